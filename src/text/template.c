/* template.c - a checkpoint's chat template: where it comes from, its context, rendering, tokenisation. Where a reply stands is
 * template_reply.c's, rows and their masks template_mask.c's.
 *
 * Messages are deep-copied before they are rendered, so that every string in them has an address of its own: origins are addresses.
 */
#include "text/template_internal.h"

#include "base/file.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define TEMPLATE_BYTES_MAX ((size_t)16 << 20)
#define NESTING_MAX 1000

/* ---- sources ---- */

static enum eaglet_status compile(struct chat_template *t, struct jinja_program **program, const char *source, size_t length,
                                  const char *what, struct eaglet_error *err) {
  t->hash = file_hash(source, length, t->hash);
  enum eaglet_status status = jinja_compile(program, source, length, err);
  return status == EAGLET_OK ? status : error_prefix(err, "%s", what);
}

/* chat_template as a string, or as a list of {name, template} of which "default" and "tool_use" are used. */
static enum eaglet_status compile_json(struct chat_template *t, const json_t *value, const char *path, struct eaglet_error *err) {
  if (json_is_string(value))
    return compile(t, &t->program, json_string_value(value), json_string_length(value), path, err);
  size_t i;
  json_t *entry;
  json_array_foreach(value, i, entry) {
    const json_t *name = json_object_get(entry, "name"), *source = json_object_get(entry, "template");
    if (!json_is_string(name) || !json_is_string(source))
      FAIL(err, EAGLET_E_INPUT, "%s: chat_template[%zu]: expected name and template", path, i);
    struct jinja_program **program = strcmp(json_string_value(name), "default") == 0    ? &t->program
                                     : strcmp(json_string_value(name), "tool_use") == 0 ? &t->program_tools
                                                                                         : NULL;
    if (program && !*program) TRY(compile(t, program, json_string_value(source), json_string_length(source), path, err));
  }
  if (!t->program) FAIL(err, EAGLET_E_INPUT, "%s: chat_template: expected a string or a list with a \"default\" template", path);
  return EAGLET_OK;
}

static enum eaglet_status open_jinja_file(struct chat_template *t, const char *path, struct eaglet_error *err) {
  struct eaglet_text text = {0};
  enum eaglet_status status = file_read(&text, path, TEMPLATE_BYTES_MAX, err);
  if (status == EAGLET_OK) status = compile(t, &t->program, text.data ? text.data : "", text.length, path, err);
  free(text.data);
  return status;
}

static enum eaglet_status open_json_file(struct chat_template *t, const char *path, struct eaglet_error *err) {
  json_t *json;
  TRY(json_parse_file(&json, path, err));
  const json_t *value = json_object_get(json, "chat_template");
  enum eaglet_status status = value && !json_is_null(value) ? compile_json(t, value, path, err) : EAGLET_OK;
  json_decref(json);
  return status;
}

/* ---- stop ids ---- */

/* Of generation_config.json and the configs, and the tokenizer's own eos_token. A file that is missing or unsound says nothing here. */
static void read_stops(struct chat_template *t, const char *directory) {
  static const char *const names[] = {"generation_config.json", "config.json"};
  int32_t n_ids = tokenizer_n_ids(t->tokenizer);
  for (size_t i = 0; directory && i < sizeof names / sizeof *names; i++) {
    char *path = file_join(directory, names[i]);
    json_t *config = NULL;
    if (file_exists(path) && json_parse_file(&config, path, NULL) == EAGLET_OK) {
      json_add_eos_ids(t->stops, &t->n_stops, STOPS_MAX, config, n_ids);
      json_add_eos_ids(t->stops, &t->n_stops, STOPS_MAX, json_object_get(config, "text_config"), n_ids);
    }
    json_decref(config);
    free(path);
  }
  const char *eos = tokenizer_named(t->tokenizer, "eos_token");
  int32_t id = *eos ? tokenizer_special_id(t->tokenizer, eos) : -1;
  if (id >= 0 && !template_is_stop(t, id) && t->n_stops < STOPS_MAX) t->stops[t->n_stops++] = id;
}

bool template_is_stop(const struct chat_template *t, int32_t id) {
  for (int32_t i = 0; i < t->n_stops; i++) {
    if (t->stops[i] == id) return true;
  }
  return false;
}

/* ---- open and close ---- */

enum eaglet_status chat_template_parse(struct chat_template **template_, const char *source, size_t length,
                                       const struct tokenizer *tokenizer, struct eaglet_error *err) {
  *template_ = NULL;
  struct jinja_program *program;
  TRY(jinja_compile(&program, source, length, err));
  *template_ = memory_alloc(sizeof **template_);
  (*template_)->program = program;
  (*template_)->tokenizer = tokenizer;
  read_stops(*template_, NULL);
  return EAGLET_OK;
}

enum eaglet_status chat_template_open(struct chat_template **template_, const char *directory,
                                      const struct tokenizer *tokenizer, struct eaglet_error *err) {
  static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json", "chat_template.json"};
  *template_ = NULL;
  struct chat_template *t = memory_alloc(sizeof *t);
  enum eaglet_status status = EAGLET_OK;
  t->tokenizer = tokenizer;
  for (size_t i = 0; i < sizeof names / sizeof *names && !t->program && status == EAGLET_OK; i++) {
    char *path = file_join(directory, names[i]);
    t->file = names[i];
    if (file_exists(path)) status = i == 0 ? open_jinja_file(t, path, err) : open_json_file(t, path, err);
    free(path);
  }
  if (status == EAGLET_OK && !t->program)
    status = error_set(err, EAGLET_E_INPUT, "%s: no chat template (chat_template.jinja, tokenizer_config.json, chat_template.json)",
                       directory);
  if (status != EAGLET_OK) {
    chat_template_close(t);
    return status;
  }
  read_stops(t, directory);
  *template_ = t;
  return EAGLET_OK;
}

void chat_template_close(struct chat_template *template_) {
  if (!template_) return;
  jinja_free(template_->program);
  jinja_free(template_->program_tools);
  free(template_);
}

const char *chat_template_origin(const struct chat_template *t, uint64_t *hash) {
  *hash = t->hash;
  return t->file;
}

/* ---- rendering ---- */

const char *chat_template_unused_argument(const struct chat_template *t, const json_t *kwargs) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)kwargs, name, value) {
    (void)value;
    if (!jinja_mentions(t->program, name) && !(t->program_tools && jinja_mentions(t->program_tools, name))) return name;
  }
  return NULL;
}

enum eaglet_status chat_template_arguments(json_t **kwargs, const struct chat_template *t, const char *text,
                                           struct eaglet_error *err) {
  *kwargs = NULL;
  if (!text) return EAGLET_OK;
  TRY(json_parse(kwargs, text, strlen(text), "template arguments", err));
  const char *unused = json_is_object(*kwargs) ? chat_template_unused_argument(t, *kwargs) : NULL;
  if (json_is_object(*kwargs) && !unused) return EAGLET_OK;
  if (unused)
    error_set(err, EAGLET_E_USAGE, "template argument %s: the model's chat template does not know it", unused);
  else
    error_set(err, EAGLET_E_USAGE, "template arguments: expected a JSON object");
  json_decref(*kwargs);
  *kwargs = NULL;
  return EAGLET_E_USAGE;
}

/* The variables transformers passes: special tokens that exist, messages, tools, documents, the flag, then kwargs. */
static json_t *make_context(const struct chat_template *t, const struct chat_params *params) {
  static const char *const tokens[] = {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"};
  json_t *context = json_object();
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    const char *text = tokenizer_named(t->tokenizer, tokens[i]);
    if (*text) json_object_set_new(context, tokens[i], json_string(text));
  }
  json_object_set_new(context, "tools", params->tools ? json_incref((json_t *)params->tools) : json_null());
  json_object_set_new(context, "documents", json_null());
  json_object_set_new(context, "add_generation_prompt", json_boolean(params->add_generation_prompt));
  if (params->kwargs) json_object_update(context, (json_t *)params->kwargs);
  return context;
}

static enum eaglet_status render(const struct chat_template *t, const struct chat_params *params, json_t *messages,
                                 struct jinja_output *output, struct eaglet_error *err) {
  *output = (struct jinja_output){0};
  if (!json_is_array(messages)) FAIL(err, EAGLET_E_INPUT, "messages: expected an array");
  bool has_tools = params->tools && json_array_size(params->tools) > 0;
  const struct jinja_program *program = has_tools && t->program_tools ? t->program_tools : t->program;
  json_t *context = make_context(t, params);
  json_object_set(context, "messages", messages);
  enum eaglet_status status = jinja_render(program, context, NULL, output, err);
  json_decref(context);
  return status;
}

enum eaglet_status chat_template_render(const struct chat_template *template_, const struct chat_params *params,
                                        struct eaglet_text *text, struct eaglet_error *err) {
  struct jinja_output output;
  *text = (struct eaglet_text){0};
  TRY(render(template_, params, (json_t *)params->messages, &output, err));
  *text = buffer_detach(&output.text);
  jinja_output_clear(&output);
  return EAGLET_OK;
}

/* ---- whose text is it ---- */

static void note_value(struct message_index *index, const json_t *json, int message, enum message_part part, int depth) {
  if (depth > NESTING_MAX) return; /* deeper than a render accepts */
  MEMORY_GROW(index->items, index->capacity, index->n + 1);
  index->items[index->n++] = (struct message_item){json, message, part};
  size_t i;
  const char *key;
  json_t *value;
  if (json_is_array(json)) {
    json_array_foreach(json, i, value) note_value(index, value, message, part, depth + 1);
  } else if (json_is_object(json)) {
    json_object_foreach((json_t *)json, key, value) {
      enum message_part inner = part;
      if (depth == 0 && strcmp(key, "content") == 0) inner = PART_CONTENT;
      if (depth == 0 && (strcmp(key, "reasoning_content") == 0 || strcmp(key, "reasoning") == 0 || strcmp(key, "thinking") == 0))
        inner = PART_REASONING;
      if (depth == 0 && (strcmp(key, "tool_calls") == 0 || strcmp(key, "function_call") == 0)) inner = PART_CALL;
      if (depth > 0 && part == PART_CONTENT && strcmp(key, "type") == 0) inner = PART_OTHER; /* of a content part */
      note_value(index, value, message, inner, depth + 1);
    }
  }
}

static int compare_items(const void *a, const void *b) {
  const char *x = (const char *)((const struct message_item *)a)->json, *y = (const char *)((const struct message_item *)b)->json;
  return (x > y) - (x < y);
}

void message_index_init(struct message_index *index, const json_t *messages) {
  size_t i;
  json_t *message;
  *index = (struct message_index){0};
  json_array_foreach(messages, i, message) note_value(index, message, (int)i, PART_OTHER, 0);
  if (index->n) qsort(index->items, index->n, sizeof *index->items, compare_items);
}

const struct message_item *message_index_find(const struct message_index *index, const json_t *json) {
  struct message_item key = {.json = json};
  return index->n ? bsearch(&key, index->items, index->n, sizeof key, compare_items) : NULL;
}

void message_index_release(struct message_index *index) {
  free(index->items);
  *index = (struct message_index){0};
}

static int count_special(const struct tokenizer *tokenizer, const struct message_index *index, int n_messages) {
  bool *has = memory_alloc((size_t)n_messages + 1);
  int n = 0;
  for (size_t i = 0; i < index->n; i++) {
    const struct message_item *item = &index->items[i];
    if (!json_is_string(item->json) || has[item->message]) continue;
    if (!tokenizer_has_special(tokenizer, json_string_value(item->json), json_string_length(item->json))) continue;
    has[item->message] = true;
    n++;
  }
  free(has);
  return n;
}

/* ---- renderings and tokens ---- */

enum eaglet_status template_rendering_make(struct rendering *rendering, const struct chat_job *job,
                                           const struct render_request *request, struct eaglet_error *err) {
  *rendering = (struct rendering){0};
  struct chat_params params = job->params->chat;
  json_t *messages = json_array();
  for (size_t i = 0; i < request->n; i++) json_array_append(messages, json_array_get(job->messages, i));
  if (request->more) json_array_append(messages, request->more);
  params.add_generation_prompt = request->add_generation_prompt;
  enum eaglet_status status = render(job->template_, &params, messages, &rendering->output, err);
  json_decref(messages);
  TRY(status);
  const struct jinja_output *output = &rendering->output;
  rendering->spans = memory_alloc((output->n_spans + 1) * sizeof *rendering->spans);
  for (size_t i = 0; i < output->n_spans; i++) {
    const struct message_item *item = message_index_find(&job->index, output->spans[i].origin);
    if (!item) continue; /* a token's name, a tool, an argument of the caller */
    rendering->spans[rendering->n_spans++] =
        (struct message_span){output->spans[i].begin, output->spans[i].end, item->message, item->part};
  }
  return EAGLET_OK;
}

void template_rendering_release(struct rendering *rendering) {
  jinja_output_clear(&rendering->output);
  free(rendering->spans);
  *rendering = (struct rendering){0};
}

/* The text's bytes [begin, end), appended. */
static enum eaglet_status encode_piece(struct rendered_tokens *tokens, const struct chat_job *job, const struct rendering *rendering,
                                       size_t begin, size_t end, struct eaglet_error *err) {
  struct text_span *protection = memory_alloc((rendering->n_spans + 1) * sizeof *protection);
  size_t n = 0, n_before = tokens->ids.n, *offsets = NULL;
  for (size_t i = 0; !job->params->special_in_content && i < rendering->n_spans; i++) {
    const struct message_span *span = &rendering->spans[i];
    if (span->end <= begin || span->begin >= end) continue;
    protection[n++] = (struct text_span){span->begin > begin ? span->begin - begin : 0, (span->end < end ? span->end : end) - begin};
  }
  const struct buffer *text = &rendering->output.text;
  const struct protected_text protected = {text->data ? text->data + begin : "", end - begin, protection, n};
  enum eaglet_status status = tokenizer_encode_spans(job->template_->tokenizer, &protected, &tokens->ids, &offsets, err);
  tokens->offsets = memory_resize(tokens->offsets, (tokens->ids.n + 1) * sizeof *tokens->offsets);
  for (size_t i = n_before; status == EAGLET_OK && i < tokens->ids.n; i++) tokens->offsets[i] = begin + offsets[i - n_before];
  free(offsets);
  free(protection);
  return status;
}

enum eaglet_status template_encode(struct rendered_tokens *tokens, const struct chat_job *job, const struct rendering *rendering,
                                   const size_t *splits, size_t n_splits, struct eaglet_error *err) {
  size_t begin = 0;
  *tokens = (struct rendered_tokens){0};
  for (size_t i = 0; i <= n_splits; i++) {
    size_t end = i < n_splits ? splits[i] : rendering->output.text.length;
    TRY(encode_piece(tokens, job, rendering, begin, end, err));
    begin = end;
  }
  return EAGLET_OK;
}

void rendered_tokens_release(struct rendered_tokens *tokens) {
  token_list_clear(&tokens->ids);
  free(tokens->offsets);
  *tokens = (struct rendered_tokens){0};
}

/* ---- conversations ---- */

static enum eaglet_status job_open(struct chat_job *job, const struct chat_template *t, const struct chat_tokenize_params *params,
                                   struct eaglet_error *err) {
  *job = (struct chat_job){.template_ = t, .params = params, .err = err};
  if (!json_is_array(params->chat.messages)) FAIL(err, EAGLET_E_INPUT, "messages: expected an array");
  job->messages = json_deep_copy(params->chat.messages);
  message_index_init(&job->index, job->messages);
  return EAGLET_OK;
}

static void job_close(struct chat_job *job) {
  json_decref(job->messages);
  message_index_release(&job->index);
  buffer_clear(&job->prompt);
  token_list_clear(&job->ends);
}

enum eaglet_status chat_template_rows(const struct chat_template *template_, const struct chat_tokenize_params *params,
                                      struct chat_rows *rows, struct eaglet_error *err) {
  struct chat_job job;
  *rows = (struct chat_rows){0};
  TRY(job_open(&job, template_, params, err));
  enum eaglet_status status = template_rows(&job, rows);
  int n_special = status == EAGLET_OK ? count_special(template_->tokenizer, &job.index, (int)json_array_size(job.messages)) : 0;
  for (size_t i = 0; i < rows->n; i++) rows->rows[i].n_special_in_content = n_special;
  job_close(&job);
  if (status != EAGLET_OK) chat_rows_clear(rows);
  return status;
}

enum eaglet_status chat_template_tokenize(const struct chat_template *template_, const struct chat_tokenize_params *params,
                                          struct chat_tokens *tokens, struct eaglet_error *err) {
  struct chat_tokenize_params whole = *params;
  struct chat_rows rows;
  *tokens = (struct chat_tokens){0};
  whole.one_row = true;
  TRY(chat_template_rows(template_, &whole, &rows, err));
  ASSERT(rows.n == 1);
  *tokens = rows.rows[0];
  free(rows.rows);
  return EAGLET_OK;
}

enum eaglet_status chat_template_ids(const struct chat_template *template_, const struct chat_tokenize_params *params,
                                     struct token_list *ids, struct eaglet_error *err) {
  struct chat_job job;
  struct rendering rendering = {0};
  struct rendered_tokens tokens = {0};
  TRY(job_open(&job, template_, params, err));
  const struct render_request whole = {.n = json_array_size(job.messages), .add_generation_prompt = params->chat.add_generation_prompt};
  enum eaglet_status status = template_rendering_make(&rendering, &job, &whole, err);
  if (status == EAGLET_OK) status = template_encode(&tokens, &job, &rendering, NULL, 0, err);
  for (size_t i = 0; status == EAGLET_OK && i < tokens.ids.n; i++) token_list_append(ids, tokens.ids.ids[i]);
  rendered_tokens_release(&tokens);
  template_rendering_release(&rendering);
  job_close(&job);
  return status;
}

void chat_tokens_clear(struct chat_tokens *tokens) {
  free(tokens->text.data);
  free(tokens->ids);
  free(tokens->mask);
  free(tokens->replies);
  *tokens = (struct chat_tokens){0};
}

void chat_rows_clear(struct chat_rows *rows) {
  for (size_t i = 0; i < rows->n; i++) chat_tokens_clear(&rows->rows[i]);
  free(rows->rows);
  *rows = (struct chat_rows){0};
}
