/* head_convert.c - see head_convert.h. Owns what each dialect's loader reads and does not read; copies bytes, never values. */
#include "draft/head_convert.h"

#include "base/memory.h"
#include "base/util.h"
#include "draft/head_internal.h"
#include "model/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dialect_names[] = {
    [HEAD_DIALECT_SPECULATORS] = "speculators", [HEAD_DIALECT_SGLANG] = "sglang", [HEAD_DIALECT_VLLM] = "vllm"};

/* ---- what a dialect cannot say ---- */

/* What a head has, and in which dialects (one letter each) its loader would not read it. */
struct trait {
  bool has;
  const char *unread, *what;
};

static bool any_window(const struct head_config *c) {
  for (int32_t i = 0; i <= c->n_more_layers; i++) {
    if (c->window[i] > 0) return true;
  }
  return false;
}

static bool is_quantised(const struct head *head) {
  const struct head_layer *layer = &head->layers[0];
  return weight_scaled(&head->fc) || weight_scaled(&head->lm_head) || weight_scaled(layer->ffn.up) ||
         weight_scaled(&layer->attention.o) || weight_scaled(&head->embed);
}

static bool fits_letter(const char *letters, enum head_dialect dialect) {
  static const char of[] = {[HEAD_DIALECT_SPECULATORS] = 's', [HEAD_DIALECT_SGLANG] = 'g', [HEAD_DIALECT_VLLM] = 'v'};
  return strchr(letters, of[dialect]) != NULL;
}

const char *head_unread(const struct head_config *c, bool own_rows, enum head_dialect dialect) {
  bool mla = c->attention == ATTENTION_MLA, wide = c->hidden != c->target_hidden;
  const struct trait traits[] = {
      {mla, "s", "latent attention (kv_lora_rank)"},
      {mla && c->n_more_layers > 0, "g", "latent attention in several layers"},
      {mla && c->rope.style == ROPE_HALF, "gv", "latent attention with rope_interleave false"},
      {mla && c->wiring.fc_input_norm, "v", "norm_before_fc with latent attention"},
      {mla && (c->attention_bias || c->ffn_bias || any_window(c)), "gv", "biases or a window with latent attention"},
      {c->wiring.norm_before_residual, "g", "norm_before_residual"},
      {c->wiring.fc_input_norm, "g", "norm_before_fc (input_norm.weight)"},
      {c->qk_norm, "g", "norms of queries and keys (q_norm)"},
      {c->qk_norm && c->ffn_bias, "sv", "biases of the feed-forward beside q_norm"},
      {c->attention_bias || c->attention_out_bias || c->ffn_bias, "g", "biases (attention_bias, mlp_bias)"},
      {c->attention_bias != c->attention_out_bias, "sv", "biases of q, k, v or o alone (attention_bias means all four)"},
      {c->fc_bias, "sgv", "fc.bias"},
      {any_window(c), "g", "a sliding window (there it is an option of the server)"},
      {wide, "s", "target_hidden_size other than hidden_size"},
      {own_rows && !wide, "g", "an embedding that is not the target's (it would be replaced by that)"},
      {c->tied && !c->own_lm_head && !c->own_embed, "sv", "an lm_head tied to the target's embedding"}};
  for (size_t i = 0; i < sizeof traits / sizeof *traits; i++) {
    if (traits[i].has && fits_letter(traits[i].unread, dialect)) return traits[i].what;
  }
  return NULL;
}

static enum eaglet_status check_expressible(const struct head *head, enum head_dialect dialect, struct eaglet_error *err) {
  const struct head_config *c = &head->config;
  bool own_rows = c->own_embed && (c->hidden != c->target_hidden || !head_same_rows(&head->embed, &head->target->embed));
  const char *what = head_unread(c, own_rows, dialect);
  if (!what && is_quantised(head)) what = "quantised weights (quantization_config names modules)";
  if (!what) return EAGLET_OK;
  FAIL(err, EAGLET_E_INPUT, "%s: %s cannot be written for %s: its loader does not read that", head->files.path, what,
       dialect_names[dialect]);
}

/* ---- weights ---- */

static bool is_vocabulary(const char *canonical) {
  return strcmp(canonical, "d2t") == 0 || strcmp(canonical, "t2d") == 0 || strcmp(canonical, "draft_id_to_target_id") == 0;
}

/* SGLang shares the target's embedding, which this one equals; a tied lm_head is written out for those who do not tie. */
static size_t add_tensors(struct safetensors_writer *writer, const struct head *head, enum head_dialect dialect) {
  const struct head_config *c = &head->config;
  bool drop_embed = dialect == HEAD_DIALECT_SGLANG && c->hidden == c->target_hidden;
  bool write_tied = c->tied && !c->own_lm_head && dialect != HEAD_DIALECT_SGLANG;
  size_t n = 0;
  for (size_t i = 0; i < head->files.n_tensors; i++) {
    const struct tensor_entry *t = head->files.tensors[i];
    char canonical[256], name[256];
    head_name_canonical(canonical, t->name);
    bool embed = strcmp(canonical, "embed_tokens.weight") == 0;
    if (embed && write_tied) safetensors_writer_add(writer, "lm_head.weight", t->dtype, t->rank, t->shape, t->data);
    n += embed && write_tied;
    if (is_vocabulary(canonical) || tensor_is_harmless(t->name) || (embed && drop_embed)) continue;
    head_name_spell(name, canonical, dialect);
    safetensors_writer_add(writer, name, t->dtype, t->rank, t->shape, t->data);
    n++;
  }
  return n;
}

static const char *dtype_of(const struct head *head) {
  return head->fc.format == WEIGHT_F32 ? "float32" : head->fc.format == WEIGHT_F16 ? "float16" : "bfloat16";
}

static enum eaglet_status write_files(const struct head *head, const struct head_convert_params *p, size_t *n_tensors,
                                      struct eaglet_error *err) {
  char *weights = file_join(p->out, "model.safetensors"), *config = file_join(p->out, "config.json");
  struct safetensors_writer *writer = safetensors_writer_create();
  void *tables = NULL;
  *n_tensors = add_tensors(writer, head, p->dialect);
  if (head->map.n_draft < head->map.n_target) {
    vocab_map_write(&head->map, writer, &tables);
    *n_tensors += 2;
  }
  const struct head_naming naming = {
      .dialect = p->dialect, .dtype = dtype_of(head), .target = head->target, .target_name = p->target_name};
  json_t *json = head_config_write_as(&head->config, &naming);
  struct eaglet_text text = json_dump(json, 2);
  enum eaglet_status status = file_make_directory(p->out, err);
  if (status == EAGLET_OK) status = safetensors_writer_commit(writer, weights, err);
  if (status == EAGLET_OK) status = file_write(config, text.data, text.length, err);
  safetensors_writer_free(writer);
  json_decref(json);
  free(text.data);
  free(tables);
  free(weights);
  free(config);
  return status;
}

/* ---- the proof ---- */

#define PROOF_ROWS 24
#define PROOF_STEPS 4 /* the text, then a chain of drafts at its end */

/* What a head computes on made-up states: features and logits of every row. */
struct trace {
  float *features, *logits; /* [PROOF_ROWS + PROOF_STEPS, ...] */
  struct head_forward *forward;
  struct kv_cache kv;
  struct kv_sequence sequence;
  struct batch batch;
  float *tapped, *feature; /* device */
};

static void trace_close(struct trace *t, struct compute *c) {
  if (t->sequence.cache) kv_sequence_release(&t->sequence);
  if (t->kv.pools) kv_cache_release(&t->kv);
  head_forward_free(t->forward);
  batch_release(&t->batch);
  if (t->tapped) c->free(c, t->tapped);
  if (t->feature) c->free(c, t->feature);
  memory_try_free(t->features);
  memory_try_free(t->logits);
}

static enum eaglet_status trace_open(struct trace *t, const struct head *head, struct eaglet_error *err) {
  const struct head_config *config = &head->config;
  struct compute *c = head->target->compute;
  size_t rows = PROOF_ROWS + PROOF_STEPS, wide = (size_t)config->n_states * (size_t)config->target_hidden;
  batch_init(&t->batch, PROOF_ROWS);
  TRY(head_forward_create(&t->forward, head, PROOF_ROWS, 4, err));
  TRY(kv_cache_init(&t->kv, c, head_kv_layers(head), head_kv_entry_floats(head), 4, err));
  TRY(kv_sequence_init(&t->sequence, &t->kv, PROOF_ROWS + PROOF_STEPS, err));
  TRY(kv_sequence_reserve(&t->sequence, PROOF_ROWS + PROOF_STEPS, err));
  t->tapped = c->alloc(c, PROOF_ROWS * wide * sizeof(float));
  t->feature = c->alloc(c, PROOF_ROWS * (size_t)config->hidden * sizeof(float));
  t->features = memory_try(rows * (size_t)config->hidden * sizeof(float));
  t->logits = memory_try(rows * (size_t)config->n_draft * sizeof(float));
  float *states = memory_try(PROOF_ROWS * wide * sizeof(float));
  bool room = t->tapped && t->feature && t->features && t->logits && states;
  for (size_t i = 0; room && i < PROOF_ROWS * wide; i++) states[i] = (float)random_normal(1, 2, i);
  if (room) c->upload(c, t->tapped, states, PROOF_ROWS * wide * sizeof(float));
  memory_try_free(states);
  if (!room) FAIL(err, EAGLET_E_RESOURCE, "no memory for running %d rows of a head", PROOF_ROWS);
  return EAGLET_OK;
}

static void add_row(struct trace *t, int32_t at, int32_t n_vocab) {
  struct batch_row *row = batch_add(&t->batch);
  row->token = (int32_t)(random_u64(1, 3, (uint64_t)at) % (uint64_t)n_vocab);
  row->position = row->slot = at;
  row->kv = &t->sequence;
  row->wants_logits = true;
}

static enum eaglet_status run_rows(struct trace *t, const struct head *head, int32_t first, struct eaglet_error *err) {
  struct compute *c = head->target->compute;
  const struct head_config *config = &head->config;
  size_t n = (size_t)t->batch.n, at = (size_t)first, h = (size_t)config->hidden, vocab = (size_t)config->n_draft;
  struct head_run run = {.batch = &t->batch, .kv = &t->kv, .feature = t->feature};
  TRY(head_forward_run(t->forward, &run, err));
  c->download(c, t->features + at * h, run.out, n * h * sizeof(float));
  c->download(c, t->logits + at * vocab, run.logits, n * vocab * sizeof(float));
  c->upload(c, t->feature, t->features + (at + n - 1) * h, h * sizeof(float));
  return EAGLET_OK;
}

static enum eaglet_status trace_run(struct trace *t, const struct head *head, struct eaglet_error *err) {
  TRY(trace_open(t, head, err));
  head_fuse(t->forward, t->feature, t->tapped, PROOF_ROWS);
  for (int32_t i = 0; i < PROOF_ROWS; i++) add_row(t, i, head->config.n_target);
  TRY(run_rows(t, head, 0, err));
  for (int32_t k = 0; k < PROOF_STEPS; k++) {
    batch_reset(&t->batch);
    add_row(t, PROOF_ROWS + k, head->config.n_target);
    TRY(run_rows(t, head, PROOF_ROWS + k, err));
  }
  return EAGLET_OK;
}

enum eaglet_status head_compare(const struct head *a, const struct head *b, struct eaglet_error *err) {
  if (a->target->n_positions < PROOF_ROWS + PROOF_STEPS)
    FAIL(err, EAGLET_E_INPUT, "%s: %d positions: running a head beside its copy takes %d", a->target->checkpoint.path,
         a->target->n_positions, PROOF_ROWS + PROOF_STEPS);
  struct trace x = {.features = NULL}, y = {.features = NULL};
  size_t rows = PROOF_ROWS + PROOF_STEPS, h = (size_t)a->config.hidden, vocab = (size_t)a->config.n_draft;
  bool same_shape = a->config.hidden == b->config.hidden && a->config.n_draft == b->config.n_draft &&
                    memcmp(a->config.states, b->config.states, sizeof a->config.states) == 0 &&
                    memcmp(a->map.target, b->map.target, vocab * sizeof(int32_t)) == 0;
  if (!same_shape) FAIL(err, EAGLET_E_CHECK, "%s: sizes, states or vocabulary differ from the original's", b->files.path);
  enum eaglet_status status = trace_run(&x, a, err);
  if (status == EAGLET_OK) status = trace_run(&y, b, err);
  if (status == EAGLET_OK && memcmp(x.logits, y.logits, rows * vocab * sizeof(float)) != 0)
    status = error_set(err, EAGLET_E_CHECK, "%s: logits differ from the original's", b->files.path);
  if (status == EAGLET_OK && memcmp(x.features, y.features, rows * h * sizeof(float)) != 0)
    status = error_set(err, EAGLET_E_CHECK, "%s: features differ from the original's", b->files.path);
  trace_close(&x, a->target->compute);
  trace_close(&y, a->target->compute);
  return status;
}

static enum eaglet_status prove(const struct head *head, const char *out, struct eaglet_error *err) {
  struct head *copy;
  struct eaglet_error inner = {0};
  if (head_open(&copy, out, head->target, &inner) != EAGLET_OK)
    FAIL(err, EAGLET_E_CHECK, "the converted head does not open: %s", inner.message);
  enum eaglet_status status = head_compare(head, copy, err);
  head_close(copy);
  return status;
}

static void remove_files(const char *out) {
  static const char *const names[] = {"config.json", "model.safetensors"};
  for (size_t i = 0; i < 2; i++) {
    char *path = file_join(out, names[i]);
    if (file_remove(path, NULL) != EAGLET_OK) log_warning("%s: could not be removed", path);
    free(path);
  }
}

/* Converting a directory into itself would pull the mapped file away from under the original. */
static enum eaglet_status check_apart(const struct head_convert_params *p, struct eaglet_error *err) {
  char *from = file_real_path(p->draft), *to = file_real_path(p->out), *config = file_join(p->out, "config.json");
  enum eaglet_status status = EAGLET_OK;
  if (from && to && strcmp(from, to) == 0)
    status = error_set(err, EAGLET_E_USAGE, "%s: expected another directory than the draft's", p->out);
  else if (file_exists(config))
    status = error_set(err, EAGLET_E_USAGE, "%s: is there already; expected a new directory", config);
  free(from);
  free(to);
  free(config);
  return status;
}

enum eaglet_status head_convert(json_t **report, const struct model *target, const struct head_convert_params *p,
                                struct eaglet_error *err) {
  struct head *head = NULL;
  size_t n_tensors = 0;
  *report = NULL;
  TRY(check_apart(p, err));
  TRY(head_open(&head, p->draft, target, err));
  enum eaglet_status status = check_expressible(head, p->dialect, err);
  if (status == EAGLET_OK) {
    status = write_files(head, p, &n_tensors, err);
    if (status == EAGLET_OK) status = prove(head, p->out, err);
    if (status != EAGLET_OK) remove_files(p->out);
  }
  if (status == EAGLET_OK)
    *report = json_pack("{s:s,s:s,s:i,s:i,s:i,s:b}", "out", p->out, "dialect", dialect_names[p->dialect], "tensors",
                        (int)n_tensors, "rows", PROOF_ROWS, "steps", PROOF_STEPS, "identical", 1);
  head_close(head);
  return status;
}
