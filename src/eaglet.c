/* eaglet.c - the public API: translation only. Names become directories here (hub lookup), public handles are thin structs around
 * the modules' own, and nothing is decided. */
#include "eaglet.h"

#include "base/buffer.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/util.h"
#include "checkpoint/checkpoint.h"
#include "data/dataset.h"
#include "draft/check_pair.h"
#include "draft/head_convert.h"
#include "engine/engine.h"
#include "engine/inspect.h"
#include "engine/verify.h"
#include "text/detokenizer.h"
#include "text/template.h"
#include "api/text_side.h"
#include "train/evaluate.h"
#include "train/extract.h"
#include "train/feature_check.h"
#include "train/prepare.h"
#include "train/report.h"
#include "train/trainer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void eaglet_text_clear(struct eaglet_text *text) {
  free(text->data);
  *text = (struct eaglet_text){0};
}

/* ---- the handles that are no module's own ---- */

struct eaglet_tokenizer {
  struct tokenizer *tokenizer;
  struct chat_template *chat; /* NULL when the checkpoint has none; chat_error says why */
  struct eaglet_error chat_error;
  pthread_mutex_t lock;                     /* of what follows */
  struct constraint_vocabulary *vocabulary; /* made with the first constraint */
};
struct eaglet_constraint {
  struct constraint *constraint;
  const struct eaglet_tokenizer *tokenizer;
};

/* ---- engine and sequences: the handles are the modules' structs ---- */

static struct engine *inner(struct eaglet_engine *engine) { return (struct engine *)engine; }
static const struct sequence *inner_sequence(const struct eaglet_sequence *sequence) { return (const struct sequence *)sequence; }

/* Resolves a model and an optional head; both strings are owned by the caller. */
static enum eaglet_status resolve_pair(char **model, char **draft, const char *const names[2], const char *hub_cache,
                                       struct eaglet_error *err) {
  *model = *draft = NULL;
  if (!names[0]) FAIL(err, EAGLET_E_USAGE, "no model given");
  TRY(checkpoint_resolve(model, names[0], hub_cache, err));
  if (names[1]) {
    enum eaglet_status status = checkpoint_resolve(draft, names[1], hub_cache, err);
    if (status != EAGLET_OK) {
      free(*model);
      *model = NULL;
      return status;
    }
  }
  return EAGLET_OK;
}

enum eaglet_status eaglet_engine_open(struct eaglet_engine **engine, const struct eaglet_engine_params *params,
                                      struct eaglet_error *err) {
  char *model, *draft;
  *engine = NULL;
  if (params->device && strcmp(params->device, "cpu") != 0) {
    FAIL(err, EAGLET_E_USAGE, "device '%s': this build computes on cpu only", params->device);
  }
  TRY(resolve_pair(&model, &draft, (const char *const[]){params->model, params->draft}, params->hub_cache, err));
  struct eaglet_engine_params resolved = *params;
  resolved.model = model;
  resolved.draft = draft;
  struct engine *opened = NULL;
  enum eaglet_status status = engine_open(&opened, &resolved, err);
  *engine = (struct eaglet_engine *)opened;
  free(model);
  free(draft);
  return status;
}

void eaglet_engine_close(struct eaglet_engine *engine) { engine_close(inner(engine)); }

/* The text side of the output, when the caller wants one. */
static enum eaglet_status open_text_side(struct text_side **side, const struct eaglet_sequence_params *p, struct eaglet_error *err) {
  *side = NULL;
  if (!p->tokenizer && (p->n_stops > 0 || p->constraint)) FAIL(err, EAGLET_E_USAGE, "stop strings and constraints need the tokenizer");
  if (!p->tokenizer) return EAGLET_OK;
  if (p->constraint && p->constraint->tokenizer != p->tokenizer) FAIL(err, EAGLET_E_USAGE, "the constraint was made for another tokenizer");
  const struct text_side_params params = {.tokenizer = p->tokenizer->tokenizer,
                                          .prompt = p->prompt,
                                          .n_prompt = p->continues_prompt ? p->n_prompt : 0,
                                          .stops = p->stops,
                                          .n_stops = p->n_stops,
                                          .keep_stop = p->keep_stop,
                                          .constraint = p->constraint ? p->constraint->constraint : NULL,
                                          .vocabulary = p->constraint ? p->tokenizer->vocabulary : NULL};
  return text_side_create(side, &params, err);
}

enum eaglet_status eaglet_sequence_create(struct eaglet_sequence **sequence, struct eaglet_engine *engine,
                                          const struct eaglet_sequence_params *params, struct eaglet_error *err) {
  struct text_side *side;
  struct sequence *created = NULL;
  *sequence = NULL;
  TRY(sequence_create(&created, inner(engine), params, err));
  enum eaglet_status status = open_text_side(&side, params, err);
  if (status != EAGLET_OK) {
    sequence_free(created);
    return status;
  }
  if (side) text_side_join(side, created);
  *sequence = (struct eaglet_sequence *)created;
  return EAGLET_OK;
}

const char *eaglet_sequence_text(struct eaglet_sequence *sequence, size_t *length) {
  struct text_side *side = sequence_watcher(inner_sequence(sequence));
  *length = 0;
  return side ? text_side_text(side, sequence_stop(inner_sequence(sequence)) != EAGLET_STOP_NONE, length) : "";
}

void eaglet_sequence_free(struct eaglet_sequence *sequence) { sequence_free((struct sequence *)sequence); }
enum eaglet_stop eaglet_sequence_stop(const struct eaglet_sequence *sequence) { return sequence_stop(inner_sequence(sequence)); }
void eaglet_sequence_cancel(struct eaglet_sequence *sequence) { sequence_cancel((struct sequence *)sequence); }
int32_t eaglet_sequence_output(const struct eaglet_sequence *sequence, const int32_t **tokens) {
  return sequence_output(inner_sequence(sequence), tokens);
}
const struct eaglet_sequence_stats *eaglet_sequence_stats(const struct eaglet_sequence *sequence) {
  return sequence_stats(inner_sequence(sequence));
}
bool eaglet_sequence_was_drafted(const struct eaglet_sequence *sequence, int32_t i) {
  return sequence_was_drafted(inner_sequence(sequence), i);
}
int32_t eaglet_sequence_logprobs(const struct eaglet_sequence *sequence, int32_t i, const struct eaglet_token_logprob **entries) {
  return sequence_logprobs(inner_sequence(sequence), i, entries);
}
int32_t eaglet_sequence_prompt_logprobs(const struct eaglet_sequence *sequence, int32_t i,
                                        const struct eaglet_token_logprob **entries) {
  return sequence_prompt_logprobs(inner_sequence(sequence), i, entries);
}
void eaglet_engine_stats_get(const struct eaglet_engine *engine, struct eaglet_engine_stats *stats) {
  engine_stats((const struct engine *)engine, stats);
}
enum eaglet_status eaglet_step(struct eaglet_engine *engine, int32_t *n_live, struct eaglet_error *err) {
  return engine_step(inner(engine), n_live, err);
}

/* ---- constraints ---- */

static enum eaglet_status compile(struct constraint **constraint, const struct eaglet_constraint_params *p, struct eaglet_error *err) {
  const struct constraint_params json = {.whitespace_max = p->whitespace_max, .nesting_max = p->nesting_max};
  if (!!p->regex + !!p->json_schema + p->json_object + !!p->choices != 1)
    FAIL(err, EAGLET_E_USAGE, "a constraint is one of: regular expression, JSON schema, JSON object, choices");
  if (p->regex) return constraint_compile_regex(constraint, p->regex, strlen(p->regex), err);
  if (p->choices) return constraint_compile_choices(constraint, p->choices, p->n_choices, err);
  if (p->json_object) return constraint_compile_json_object(constraint, &json, err);
  json_t *schema = NULL;
  TRY(json_parse(&schema, p->json_schema, strlen(p->json_schema), "schema", err));
  enum eaglet_status status = constraint_compile_schema(constraint, schema, &json, err);
  json_decref(schema);
  return status;
}

/* The vocabulary as the engine's logits have it, made once. */
static enum eaglet_status prepare_vocabulary(struct eaglet_tokenizer *tokenizer, const struct model *model, struct eaglet_error *err) {
  enum eaglet_status status = EAGLET_OK;
  struct token_list stops = {0};
  pthread_mutex_lock(&tokenizer->lock);
  if (!tokenizer->vocabulary) {
    for (int32_t i = 0; i < model->n_stop_ids; i++) token_list_append(&stops, model->stop_ids[i]);
    status = constraint_vocabulary_create(&tokenizer->vocabulary, tokenizer->tokenizer, model->arch.features.n_vocab, &stops, err);
    token_list_clear(&stops);
  } else if (constraint_vocabulary_n(tokenizer->vocabulary) != model->arch.features.n_vocab) {
    status = error_set(err, EAGLET_E_USAGE, "constraint: the tokenizer serves a model of %d ids, this one has %d",
                       constraint_vocabulary_n(tokenizer->vocabulary), model->arch.features.n_vocab);
  }
  pthread_mutex_unlock(&tokenizer->lock);
  return status;
}

enum eaglet_status eaglet_constraint_create(struct eaglet_constraint **constraint, const struct eaglet_engine *engine,
                                            const struct eaglet_constraint_params *params, struct eaglet_error *err) {
  struct constraint *compiled = NULL;
  *constraint = NULL;
  if (!params->tokenizer) FAIL(err, EAGLET_E_USAGE, "a constraint needs the tokenizer");
  TRY(compile(&compiled, params, err));
  enum eaglet_status status = prepare_vocabulary(params->tokenizer, engine_model((const struct engine *)engine), err);
  if (status != EAGLET_OK) {
    constraint_free(compiled);
    return status;
  }
  *constraint = memory_alloc(sizeof **constraint);
  **constraint = (struct eaglet_constraint){compiled, params->tokenizer};
  return EAGLET_OK;
}

void eaglet_constraint_free(struct eaglet_constraint *constraint) {
  if (!constraint) return;
  constraint_free(constraint->constraint);
  free(constraint);
}

/* ---- text ---- */


enum eaglet_status eaglet_tokenizer_open(struct eaglet_tokenizer **tokenizer, const char *model, const char *hub_cache,
                                         struct eaglet_error *err) {
  char *directory = NULL;
  *tokenizer = NULL;
  if (!model) FAIL(err, EAGLET_E_USAGE, "no model given");
  TRY(checkpoint_resolve(&directory, model, hub_cache, err));
  struct eaglet_tokenizer *opened = memory_alloc(sizeof *opened);
  pthread_mutex_init(&opened->lock, NULL);
  enum eaglet_status status = tokenizer_open(&opened->tokenizer, directory, err);
  if (status == EAGLET_OK && chat_template_open(&opened->chat, directory, opened->tokenizer, &opened->chat_error) != EAGLET_OK) {
    opened->chat = NULL; /* base models have none: told when a render is asked for */
  }
  free(directory);
  if (status != EAGLET_OK) {
    eaglet_tokenizer_close(opened);
    opened = NULL;
  }
  *tokenizer = opened;
  return status;
}

void eaglet_tokenizer_close(struct eaglet_tokenizer *tokenizer) {
  if (!tokenizer) return;
  constraint_vocabulary_free(tokenizer->vocabulary);
  pthread_mutex_destroy(&tokenizer->lock);
  chat_template_close(tokenizer->chat);
  tokenizer_close(tokenizer->tokenizer);
  free(tokenizer);
}

enum eaglet_status eaglet_tokenize(const struct eaglet_tokenizer *tokenizer, const char *text, size_t length,
                                   enum eaglet_special special, int32_t **ids, size_t *n_ids, struct eaglet_error *err) {
  struct token_list list = {0};
  enum eaglet_status status = tokenizer_encode(tokenizer->tokenizer, text, length, special, &list, err);
  *ids = NULL;
  *n_ids = 0;
  if (status != EAGLET_OK) {
    token_list_clear(&list);
    return status;
  }
  *ids = list.ids;
  *n_ids = list.n;
  return EAGLET_OK;
}

enum eaglet_status eaglet_detokenize(const struct eaglet_tokenizer *tokenizer, const int32_t *ids, size_t n_ids,
                                     struct eaglet_text *text, struct eaglet_error *err) {
  struct detokenizer stream;
  struct buffer out;
  buffer_init(&out);
  detokenizer_init(&stream, tokenizer->tokenizer);
  for (size_t i = 0; i < n_ids; i++) {
    size_t length;
    if (!tokenizer_bytes(tokenizer->tokenizer, ids[i], &length)) {
      buffer_clear(&out);
      FAIL(err, EAGLET_E_INPUT, "token id %d at %zu: the vocabulary has %d ids", ids[i], i, tokenizer_n_ids(tokenizer->tokenizer));
    }
    detokenizer_push(&stream, ids[i], &out);
  }
  detokenizer_finish(&stream, &out);
  *text = buffer_detach(&out);
  return EAGLET_OK;
}

struct eaglet_detokenizer {
  struct detokenizer stream;
  struct buffer out;
};

struct eaglet_detokenizer *eaglet_detokenizer_create(const struct eaglet_tokenizer *tokenizer) {
  struct eaglet_detokenizer *detokenizer = memory_alloc(sizeof *detokenizer);
  detokenizer_init(&detokenizer->stream, tokenizer->tokenizer);
  buffer_init(&detokenizer->out);
  return detokenizer;
}

void eaglet_detokenizer_free(struct eaglet_detokenizer *detokenizer) {
  if (!detokenizer) return;
  buffer_clear(&detokenizer->out);
  free(detokenizer);
}

void eaglet_detokenizer_skip_special(struct eaglet_detokenizer *detokenizer, bool skip) {
  detokenizer->stream.skip_special = skip;
}

void eaglet_detokenizer_follow(struct eaglet_detokenizer *detokenizer, const int32_t *ids, size_t n_ids) {
  bool skip = detokenizer->stream.skip_special;
  detokenizer->stream.skip_special = true;
  for (size_t i = 0; i < n_ids; i++) detokenizer_push(&detokenizer->stream, ids[i], &detokenizer->out);
  detokenizer->stream.skip_special = skip;
  buffer_reset(&detokenizer->out);
}

static const char *streamed(const struct eaglet_detokenizer *detokenizer) {
  return detokenizer->out.data ? detokenizer->out.data : "";
}

const char *eaglet_detokenizer_push(struct eaglet_detokenizer *detokenizer, int32_t id) {
  buffer_reset(&detokenizer->out);
  detokenizer_push(&detokenizer->stream, id, &detokenizer->out);
  return streamed(detokenizer);
}

const char *eaglet_detokenizer_finish(struct eaglet_detokenizer *detokenizer) {
  buffer_reset(&detokenizer->out);
  detokenizer_finish(&detokenizer->stream, &detokenizer->out);
  return streamed(detokenizer);
}

/* The row that was asked for: of prepare's (in the order of their last replies), or the whole conversation. */
static enum eaglet_status take_row(struct chat_tokens *row, size_t *n_rows, const struct chat_template *chat,
                                   const struct chat_tokenize_params *params, size_t index, struct eaglet_error *err) {
  struct chat_rows rows;
  TRY(chat_template_rows(chat, params, &rows, err));
  *n_rows = rows.n;
  enum eaglet_status status = EAGLET_OK;
  if (index > rows.n) {
    status = error_set(err, EAGLET_E_USAGE, "row %zu: the conversation makes %zu", index, rows.n);
  } else if (index > 0) {
    *row = rows.rows[rows.n - index];
    rows.rows[rows.n - index] = (struct chat_tokens){0};
  } else {
    status = chat_template_tokenize(chat, params, row, err);
  }
  chat_rows_clear(&rows);
  return status;
}

enum eaglet_status eaglet_render(const struct eaglet_tokenizer *tokenizer, const struct eaglet_render_params *params,
                                 struct eaglet_rendered *rendered, struct eaglet_error *err) {
  static const enum chat_part parts[] = {CHAT_PART_ALL, CHAT_PART_ALL, CHAT_PART_THINKING, CHAT_PART_ANSWER};
  *rendered = (struct eaglet_rendered){0};
  if (!tokenizer->chat) FAIL(err, EAGLET_E_INPUT, "%s", tokenizer->chat_error.message);
  json_t *row = NULL;
  struct conversation conversation = {0};
  struct chat_tokens tokens = {0};
  size_t n_rows = 0;
  TRY(json_parse(&row, params->messages_json, params->length, "messages", err));
  json_t *kwargs = NULL;
  enum eaglet_status status = conversation_normalise(&conversation, row, err);
  if (status == EAGLET_OK) status = chat_template_arguments(&kwargs, tokenizer->chat, params->arguments_json, err);
  if (status == EAGLET_OK) {
    const struct chat_tokenize_params chat = {
        .chat = {.messages = conversation.messages, .tools = json_object_get(row, "tools"), .kwargs = kwargs,
                 .add_generation_prompt = params->add_generation_prompt},
        .special_in_content = params->special_in_content,
        .last_turn_only = params->last_turn_only,
        .part = parts[params->train_on]};
    status = take_row(&tokens, &n_rows, tokenizer->chat, &chat, params->row, err);
  }
  conversation_clear(&conversation);
  json_decref(kwargs);
  json_decref(row);
  if (status != EAGLET_OK) return status;
  *rendered = (struct eaglet_rendered){.text = tokens.text, .ids = tokens.ids, .mask = tokens.mask, .n_ids = tokens.n, .n_rows = n_rows};
  free(tokens.replies);
  return EAGLET_OK;
}

void eaglet_rendered_clear(struct eaglet_rendered *rendered) {
  eaglet_text_clear(&rendered->text);
  free(rendered->ids);
  free(rendered->mask);
  *rendered = (struct eaglet_rendered){0};
}

/* ---- questions ---- */

static void inspect_text(json_t *document, const char *model, const char *hub_cache) {
  struct eaglet_tokenizer *tokenizer = NULL;
  struct eaglet_error err = {0};
  json_t *about = json_object();
  if (eaglet_tokenizer_open(&tokenizer, model, hub_cache, &err) == EAGLET_OK) {
    json_object_set_new(about, "kind", json_string(tokenizer_kind(tokenizer->tokenizer)));
    json_object_set_new(about, "ids", json_integer(tokenizer_n_ids(tokenizer->tokenizer)));
    json_object_set_new(about, "template", json_boolean(tokenizer->chat != NULL));
    if (!tokenizer->chat) json_object_set_new(about, "template_note", json_string(tokenizer->chat_error.message));
  } else {
    json_object_set_new(about, "kind", json_null());
    json_object_set_new(about, "note", json_string(err.message));
  }
  json_object_set_new(document, "tokenizer", about);
  eaglet_tokenizer_close(tokenizer);
}

/* params: resolved. */
static enum eaglet_status pair_report(json_t **report, const struct eaglet_check_pair_params *params, struct eaglet_error *err) {
  struct compute *compute = NULL;
  struct model *target = NULL;
  *report = NULL;
  TRY(compute_open_cpu(&compute, params->threads, EAGLET_PRECISION_EXACT, err));
  const struct model_params open = {.path = params->model, .ignore_index = params->ignore_index, .compute = compute};
  enum eaglet_status status = model_open(&target, &open, err);
  if (status == EAGLET_OK) status = check_pair_run(report, target, params->draft, err);
  model_close(target);
  compute_close(compute);
  return status;
}

enum eaglet_status eaglet_inspect(const struct eaglet_inspect_params *params, struct eaglet_text *json, struct eaglet_error *err) {
  char *model, *draft;
  json_t *document = NULL, *pairing = NULL;
  *json = (struct eaglet_text){0};
  TRY(resolve_pair(&model, &draft, (const char *const[]){params->model, params->draft}, params->hub_cache, err));
  const struct eaglet_inspect_params resolved = {.model = model, .draft = draft, .ignore_index = params->ignore_index};
  enum eaglet_status status = inspect_json(&document, &resolved, err);
  if (status == EAGLET_OK) inspect_text(document, params->model, params->hub_cache);
  if (status == EAGLET_OK && draft) {
    const struct eaglet_check_pair_params pair = {.model = model, .draft = draft, .ignore_index = params->ignore_index};
    status = pair_report(&pairing, &pair, err);
    if (pairing) json_object_set_new(document, "pairing", pairing);
  }
  if (document) *json = json_dump(document, 2);
  json_decref(document);
  free(model);
  free(draft);
  return status;
}

enum eaglet_status eaglet_verify(const struct eaglet_verify_params *params, struct eaglet_text *json, struct eaglet_error *err) {
  char *model, *draft;
  *json = (struct eaglet_text){0};
  TRY(resolve_pair(&model, &draft, (const char *const[]){params->model, NULL}, params->hub_cache, err));
  struct eaglet_verify_params resolved = *params;
  resolved.model = model;
  enum eaglet_status status = verify_run(&resolved, json, err);
  free(model);
  return status;
}

enum eaglet_status eaglet_check_pair(const struct eaglet_check_pair_params *params, struct eaglet_text *json, struct eaglet_error *err) {
  char *model, *draft;
  json_t *report = NULL;
  *json = (struct eaglet_text){0};
  if (!params->draft) FAIL(err, EAGLET_E_USAGE, "no draft given");
  TRY(resolve_pair(&model, &draft, (const char *const[]){params->model, params->draft}, params->hub_cache, err));
  const struct eaglet_check_pair_params resolved = {
      .model = model, .draft = draft, .ignore_index = params->ignore_index, .threads = params->threads};
  enum eaglet_status status = pair_report(&report, &resolved, err);
  if (report) *json = json_dump(report, 2);
  json_decref(report);
  free(model);
  free(draft);
  return status;
}

static enum eaglet_status convert_draft(json_t **report, const struct eaglet_convert_params *params, const char *name, struct eaglet_error *err) {
  static const enum head_dialect dialects[] = {[EAGLET_DIALECT_SPECULATORS] = HEAD_DIALECT_SPECULATORS,
                                               [EAGLET_DIALECT_SGLANG] = HEAD_DIALECT_SGLANG,
                                               [EAGLET_DIALECT_VLLM] = HEAD_DIALECT_VLLM};
  struct compute *compute = NULL;
  struct model *target = NULL;
  TRY(compute_open_cpu(&compute, params->threads, EAGLET_PRECISION_EXACT, err));
  const struct model_params open = {.path = params->model, .ignore_index = params->ignore_index, .compute = compute};
  enum eaglet_status status = model_open(&target, &open, err);
  const struct head_convert_params convert = {
      .draft = params->draft, .out = params->out, .target_name = name, .dialect = dialects[params->to]};
  if (status == EAGLET_OK) status = head_convert(report, target, &convert, err);
  model_close(target);
  compute_close(compute);
  return status;
}

enum eaglet_status eaglet_convert(const struct eaglet_convert_params *params, struct eaglet_text *json, struct eaglet_error *err) {
  char *model, *draft;
  json_t *report = NULL;
  *json = (struct eaglet_text){0};
  if (!params->draft || !params->out) FAIL(err, EAGLET_E_USAGE, "no %s given", params->draft ? "directory to write" : "draft");
  TRY(resolve_pair(&model, &draft, (const char *const[]){params->model, params->draft}, params->hub_cache, err));
  struct eaglet_convert_params resolved = *params;
  resolved.model = model;
  resolved.draft = draft;
  enum eaglet_status status = convert_draft(&report, &resolved, params->model, err);
  if (report) *json = json_dump(report, 2);
  json_decref(report);
  free(model);
  free(draft);
  return status;
}

/* ---- pipeline ---- */

#define PIPELINE(name, params_type, run)                                                                                        \
  enum eaglet_status name(const struct params_type *params, struct eaglet_text *report, struct eaglet_error *err) {            \
    char *model, *draft;                                                                                                        \
    *report = (struct eaglet_text){0};                                                                                          \
    TRY(resolve_pair(&model, &draft, (const char *const[]){params->model, NULL}, params->hub_cache, err));                     \
    struct params_type resolved = *params;                                                                                      \
    resolved.model = model;                                                                                                     \
    enum eaglet_status status = run(&resolved, report, err);                                                                    \
    free(model);                                                                                                                \
    return status;                                                                                                              \
  }

PIPELINE(eaglet_prepare, eaglet_prepare_params, prepare_run)
PIPELINE(eaglet_extract, eaglet_extract_params, extract_run)

enum eaglet_status eaglet_check_features(const struct eaglet_check_features_params *params, struct eaglet_text *json, struct eaglet_error *err) {
  char *model = NULL;
  *json = (struct eaglet_text){0};
  if (params->model) TRY(checkpoint_resolve(&model, params->model, params->hub_cache, err));
  struct eaglet_check_features_params resolved = *params;
  resolved.model = model;
  enum eaglet_status status = feature_check_run(&resolved, json, err);
  free(model);
  return status;
}

enum eaglet_status eaglet_train(const struct eaglet_train_params *params, struct eaglet_text *report, struct eaglet_error *err) {
  char *model, *init;
  *report = (struct eaglet_text){0};
  TRY(resolve_pair(&model, &init, (const char *const[]){params->model, params->init}, params->hub_cache, err));
  struct eaglet_train_params resolved = *params;
  resolved.model = model;
  resolved.init = init;
  enum eaglet_status status = train_run(&resolved, report, err);
  free(model);
  free(init);
  return status;
}

enum eaglet_status eaglet_vocab(const struct eaglet_vocab_params *params, struct eaglet_text *report, struct eaglet_error *err) {
  *report = (struct eaglet_text){0};
  return vocab_run(params, report, err);
}

enum eaglet_status eaglet_eval(const struct eaglet_eval_params *params, struct eaglet_text *json, struct eaglet_error *err) {
  char *model, *draft;
  *json = (struct eaglet_text){0};
  TRY(resolve_pair(&model, &draft, (const char *const[]){params->model, params->draft}, params->hub_cache, err));
  struct eaglet_eval_params resolved = *params;
  resolved.model = model;
  resolved.draft = draft;
  enum eaglet_status status = evaluate_run(&resolved, json, err);
  free(model);
  free(draft);
  return status;
}

enum eaglet_status eaglet_report_html(const struct eaglet_report_params *params, struct eaglet_text *html, struct eaglet_error *err) {
  *html = (struct eaglet_text){0};
  return report_html(params, html, err);
}
