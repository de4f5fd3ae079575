/* trainer_open.c - what a training run stands on: data, target, draft vocabulary, head, buffers. Every mismatch is
 * refused by name before anything is computed. */
#include "train/trainer_internal.h"

#include "base/memory.h"
#include "base/util.h"
#include "train/head_init.h"
#include "train/supervision.h"
#include "train/target_facts.h"

#include <stdio.h>
#include <stdlib.h>

/* Rows that teach something, in file order; the longest row; the most slots that one row needs. */
static enum eaglet_status find_usable(struct trainer *t, struct eaglet_error *err) {
  const struct token_store *tokens = &t->tokens;
  if (tokens->n_rows == 0) FAIL(err, EAGLET_E_INPUT, "%s: no training rows", t->settings.data);
  t->usable = memory_alloc(sizeof *t->usable * tokens->n_rows);
  t->order = memory_alloc(sizeof *t->order * tokens->n_rows);
  for (size_t i = 0; i < tokens->n_rows; i++) {
    const struct token_row *row = &tokens->rows[i];
    int32_t slots = supervision_slots(row->mask, row->n);
    if (row->n > t->tokens_max) t->tokens_max = row->n;
    if (slots > t->slots_max) t->slots_max = slots;
    if (slots > 0) t->usable[t->n_usable++] = (uint32_t)i;
  }
  if (t->n_usable == 0) {
    FAIL(err, EAGLET_E_INPUT, "%s: nothing to learn: none of %zu rows has a reply of two trained tokens",
         t->settings.data, tokens->n_rows);
  }
  if (t->n_usable < tokens->n_rows)
    log_warning("%s: %zu of %zu rows have nothing to learn and are left out", t->settings.data,
                tokens->n_rows - t->n_usable, tokens->n_rows);
  return EAGLET_OK;
}

static enum eaglet_status open_target(struct trainer *t, struct eaglet_error *err) {
  TRY(compute_open_cpu(&t->compute, t->settings.threads, EAGLET_PRECISION_EXACT, err));
  struct model_params params = {
      .path = t->settings.model, .ignore_index = t->settings.ignore_index, .compute = t->compute, .positions_max = t->tokens_max > 4096 ? t->tokens_max : 0};
  TRY(model_open(&t->model, &params, err));
  const struct features *f = &t->model->arch.features;
  if (t->tokens_max > f->positions_max) {
    FAIL(err, EAGLET_E_INPUT, "%s: longest row: expected at most %d tokens (the target's positions), found %d",
         t->settings.data, f->positions_max, t->tokens_max);
  }
  return target_check_data(&t->tokens, t->settings.model, f->n_vocab, err);
}

/* A vocabulary made for another tokenizer means other tokens; one made from other data is a choice that must be said (E08). Files of
 * other programs say neither. */
static enum eaglet_status check_vocabulary(const struct trainer *t, const struct safetensors *file, struct eaglet_error *err) {
  char data[HASH_TEXT_BYTES];
  hash_text(data, t->tokens.hash);
  const char *tokenizer = safetensors_metadata(file, "tokenizer_hash"), *tokens = safetensors_metadata(file, "token_hash");
  const char *expected = json_string_value(json_object_get(t->tokens.manifest, "tokenizer_hash"));
  if (tokenizer && *tokenizer && expected && strcmp(tokenizer, expected) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: tokenizer_hash: made for tokenizer %s, %s was prepared with %s: its ids mean other tokens; make it again with `eaglet vocab`",
         file->path, tokenizer, t->settings.data, expected);
  if (tokens && *tokens && strcmp(tokens, data) != 0 && !t->settings.vocab_of_other_data)
    FAIL(err, EAGLET_E_INPUT, "%s: token_hash: made from the data %s, %s is %s: make it again with `eaglet vocab`, or say --vocab-of-other-data", file->path,
         tokens, t->settings.data, data);
  return EAGLET_OK;
}

static enum eaglet_status read_vocabulary(struct vocab_map *map, const struct trainer *t, const char *path,
                                          struct eaglet_error *err) {
  int32_t n_target = t->model->arch.features.n_vocab;
  struct safetensors file = {0};
  TRY(safetensors_open(&file, path, err));
  const struct tensor_entry *d2t = safetensors_find(&file, "d2t");
  enum eaglet_status status;
  if (!d2t || d2t->rank != 1 || d2t->shape[0] < 1 || d2t->shape[0] > n_target) {
    status = error_set(err, EAGLET_E_INPUT, "%s: d2t: expected between 1 and %d offsets, found %s", path, n_target,
                       d2t ? "another shape" : "no such tensor");
  } else {
    status = check_vocabulary(t, &file, err);
    if (status == EAGLET_OK) status = vocab_map_from_tensors(map, &file, (int32_t)d2t->shape[0], n_target, err);
  }
  safetensors_close(&file);
  return status;
}

/* A new head takes the vocabulary file that was named, or the whole vocabulary: no file is taken unasked (E08). */
static enum eaglet_status open_vocabulary(struct trainer *t, struct eaglet_error *err) {
  if (t->settings.vocab) return read_vocabulary(&t->map, t, t->settings.vocab, err);
  return vocab_map_identity(&t->map, t->model->arch.features.n_vocab, err);
}

/* A warm start keeps sizes, states, rotary base and vocabulary of its head (E07): an option that says otherwise is
 * refused. */
static enum eaglet_status check_warm(const struct trainer *t, struct eaglet_error *err) {
  const struct eaglet_train_params *s = &t->settings;
  TRY(head_config_check(&t->init->config, s, "the head of --init", err));
  if (!s->vocab) return EAGLET_OK;
  struct vocab_map asked = {0};
  TRY(read_vocabulary(&asked, t, s->vocab, err));
  bool same = vocab_map_hash(&asked) == vocab_map_hash(&t->init->map);
  vocab_map_release(&asked);
  if (!same)
    FAIL(err, EAGLET_E_USAGE,
         "--vocab: %s is not the vocabulary of the head of --init, which is kept; leave --vocab out", s->vocab);
  return EAGLET_OK;
}

static enum eaglet_status open_config(struct trainer *t, struct eaglet_error *err) {
  const struct eaglet_train_params *s = &t->settings;
  if (s->init && s->head_config)
    FAIL(err, EAGLET_E_USAGE, "--head-config: the head of --init has a layout of its own, which is kept; leave one of the two out");
  if (s->init) {
    TRY(head_open(&t->init, s->init, t->model, err));
    TRY(check_warm(t, err));
    head_config_trained(&t->config, t->init);
    TRY(vocab_map_init(&t->map, t->init->map.target, t->init->map.n_draft, t->init->map.n_target, s->init, err));
    return head_config_serve(&t->config, s->init, err);
  }
  TRY(open_vocabulary(t, err));
  if (!s->head_config) return head_config_new(&t->config, s, t->model, t->map.n_draft, err);
  TRY(head_config_from_file(&t->config, s, t->model, t->map.n_draft, err));
  return head_config_serve(&t->config, s->head_config, err);
}

/* The block holds what is frozen too; gradients and moments are of its trained beginning. */
static enum eaglet_status open_blocks(struct trainer *t, struct eaglet_error *err) {
  struct head_parameters *list = memory_alloc(sizeof *list);
  head_parameters_list(list, &t->config);
  t->n_parameters = list->trained;
  t->n_frozen = list->total - list->trained;
  free(list);
  const struct {
    float **block;
    int64_t n;
  } blocks[] = {{&t->parameters, t->n_parameters + t->n_frozen},
                {&t->gradients, t->n_parameters},
                {&t->m, t->n_parameters},
                {&t->v, t->n_parameters}};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    *blocks[i].block = memory_try(sizeof(float) * (size_t)blocks[i].n);
    if (!*blocks[i].block)
      FAIL(err, EAGLET_E_RESOURCE, "not enough memory for a head of %lld parameters and its optimizer",
           (long long)t->n_parameters);
  }
  return EAGLET_OK;
}

static enum eaglet_status open_head(struct trainer *t, struct eaglet_error *err) {
  TRY(open_config(t, err));
  TRY(open_blocks(t, err));
  if (t->init)
    TRY(head_import(t->parameters, &t->config, t->init, err));
  else
    head_parameters_init(t->parameters, &t->config, t->model, &t->map, t->settings.seed);
  head_close(t->init);
  t->init = NULL;
  return EAGLET_OK;
}

static enum eaglet_status open_buffers(struct trainer *t, struct eaglet_error *err) {
  if (t->settings.micro_tokens > t->slots_max) t->slots_max = t->settings.micro_tokens;
  const struct feature_source_params source = {.model = t->model,
                                               .config = &t->config,
                                               .directory = t->settings.features,
                                               .tokens = &t->tokens,
                                               .tokens_max = t->tokens_max};
  TRY(feature_source_open(&t->source, &source, err));
  TRY(teacher_init(&t->teacher, t->model, &t->map, err));
  int32_t rows_max = t->settings.batch < t->slots_max ? t->settings.batch : t->slots_max;
  t->assembler = (struct assembler){.model = t->model,
                                    .tokens = &t->tokens,
                                    .source = &t->source,
                                    .teacher = &t->teacher,
                                    .slots_max = t->slots_max,
                                    .rows_max = rows_max};
  TRY(assembler_init(&t->assembler, err));
  const struct head_training_params head = {
      .config = &t->config, .compute = t->compute, .slots_max = t->slots_max, .unroll_max = t->settings.unroll, .positions = t->model->n_positions,
      .recompute = t->settings.recompute};
  return head_training_create(&t->training, &head, err);
}

static void set_hash(json_t *object, const char *name, uint64_t hash) {
  char text[20];
  snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
  json_object_set_new(object, name, json_string(text));
}

/* Everything of the head that a checkpoint of its parameters does not hold: rope scaling, norm eps, states, sizes. */
static uint64_t config_hash(const struct head_config *config) {
  json_t *json = head_config_write(config, NULL);
  struct eaglet_text text = json_dump(json, 0);
  uint64_t hash = file_hash(text.data, text.length, 0);
  free(text.data);
  json_decref(json);
  return hash;
}

static void plan_steps(struct trainer *t) {
  const struct eaglet_train_params *s = &t->settings;
  int64_t rows = (int64_t)s->epochs * t->n_usable;
  t->rows_end = s->steps ? INT64_MAX : rows;
  t->schedule = (struct schedule){
      .lr = s->lr, .warmup = s->warmup, .total = s->steps ? s->steps : (rows + s->batch - 1) / s->batch};
  t->order_epoch = -1;
  t->identity = settings_identity(s, &t->config);
  set_hash(t->identity, "model", target_hash(&t->model->checkpoint));
  set_hash(t->identity, "data", t->tokens.hash);
  set_hash(t->identity, "draft vocabulary", vocab_map_hash(&t->map));
  set_hash(t->identity, "head config", config_hash(&t->config));
  if (t->n_frozen > 0)
    set_hash(t->identity, "frozen parameters",
             file_hash(t->parameters + t->n_parameters, sizeof(float) * (size_t)t->n_frozen, 0));
  json_object_set_new(t->identity, "features",
                      json_string(s->features ? dtype_name(feature_store_layout(t->source.store)->dtype) : "live"));
}

enum eaglet_status trainer_open(struct trainer *t, const struct eaglet_train_params *params, struct eaglet_error *err) {
  *t = (struct trainer){0};
  enum eaglet_status status;
  TRY_GOTO(settings_resolve(&t->settings, params, err), failed);
  TRY_GOTO(token_store_open(&t->tokens, t->settings.data, false, err), failed);
  TRY_GOTO(find_usable(t, err), failed);
  TRY_GOTO(open_target(t, err), failed);
  TRY_GOTO(open_head(t, err), failed);
  TRY_GOTO(open_buffers(t, err), failed);
  plan_steps(t);
  return EAGLET_OK;
failed:
  trainer_close(t);
  return status;
}

void trainer_close(struct trainer *t) {
  head_training_free(t->training);
  assembler_release(&t->assembler);
  teacher_release(&t->teacher);
  feature_source_close(&t->source);
  head_close(t->init);
  vocab_map_release(&t->map);
  float *blocks[] = {t->parameters, t->gradients, t->m, t->v};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) memory_try_free(blocks[i]);
  if (t->model) model_close(t->model);
  if (t->compute) compute_close(t->compute);
  token_store_close(&t->tokens);
  free(t->usable);
  free(t->order);
  json_decref(t->identity);
  *t = (struct trainer){0};
}
