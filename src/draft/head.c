/* head.c - see head.h. Binds a head's tensors (every one must be known, every needed one present) and runs it.
 * Attention and FFN are the target's own building blocks with an input twice as wide; nothing here knows how they work.
 */
#include "draft/head.h"

#include "base/memory.h"
#include "draft/head_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- binding ---- */

/* "model." in front is dropped; "layers.0." is "midlayer.". */
static void canonical_name(char out[256], const char *name) {
  if (strncmp(name, "model.", 6) == 0) name += 6;
  if (strncmp(name, "layers.0.", 9) == 0)
    snprintf(out, 256, "midlayer.%s", name + 9);
  else
    snprintf(out, 256, "%s", name);
}

static const struct tensor_entry *find_canonical(const struct safetensors *file, const char *wanted) {
  for (size_t i = 0; i < file->n; i++) {
    char name[256];
    canonical_name(name, file->tensors[i].name);
    if (strcmp(name, wanted) == 0) return &file->tensors[i];
  }
  return NULL;
}

static enum eaglet_status check_all_known(const struct safetensors *file, struct eaglet_error *err) {
  static const char *const others[] = {"d2t", "t2d", "draft_id_to_target_id", "embed_tokens.weight"};
  for (size_t i = 0; i < file->n; i++) {
    char name[256];
    bool known = false;
    canonical_name(name, file->tensors[i].name);
    for (int p = 0; p < HEAD_PARAMETER_COUNT; p++)
      known |= strcmp(name, head_parameter_name((enum head_parameter)p)) == 0;
    for (size_t o = 0; o < sizeof others / sizeof *others; o++) known |= strcmp(name, others[o]) == 0;
    if (!known)
      FAIL(err, EAGLET_E_INPUT, "%s: %s: unknown tensor; a head with it would compute something else", file->path,
           file->tensors[i].name);
  }
  return EAGLET_OK;
}

static enum eaglet_status find_checked(const struct tensor_entry **tensor, const struct head *head,
                                       enum head_parameter which, struct eaglet_error *err) {
  int64_t shape[2];
  const char *name = head_parameter_name(which);
  head_parameter_shape(&head->config, which, shape);
  *tensor = find_canonical(&head->file, name);
  if (!*tensor) FAIL(err, EAGLET_E_INPUT, "%s: %s: missing", head->file.path, name);
  int rank = shape[1] == 1 ? 1 : 2;
  bool fits =
      (*tensor)->rank == rank && (*tensor)->shape[0] == shape[0] && (rank == 1 || (*tensor)->shape[1] == shape[1]);
  if (!fits) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected (%lld,%lld) by config.json, found (%lld,%lld)", head->file.path, name,
         (long long)shape[0], (long long)shape[1], (long long)(*tensor)->shape[0],
         (*tensor)->rank > 1 ? (long long)(*tensor)->shape[1] : 1);
  }
  return EAGLET_OK;
}

static enum eaglet_status weight_of(struct weight *weight, const struct tensor_entry *tensor,
                                    struct eaglet_error *err) {
  enum weight_format format = tensor->dtype == DTYPE_BF16  ? WEIGHT_BF16
                              : tensor->dtype == DTYPE_F32 ? WEIGHT_F32
                              : tensor->dtype == DTYPE_F16 ? WEIGHT_F16
                                                           : WEIGHT_NONE;
  if (format == WEIGHT_NONE)
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected BF16, F16 or F32, found %s", tensor->path, tensor->name,
         dtype_name(tensor->dtype));
  *weight = (struct weight){
      .format = format, .n_out = (int32_t)tensor->shape[0], .n_in = (int32_t)tensor->shape[1], .data = tensor->data};
  return EAGLET_OK;
}

static enum eaglet_status bind_weight(struct weight *weight, const struct head *head, enum head_parameter which,
                                      struct eaglet_error *err) {
  const struct tensor_entry *tensor;
  TRY(find_checked(&tensor, head, which, err));
  return weight_of(weight, tensor, err);
}

static enum eaglet_status bind_norms(struct head *head, struct eaglet_error *err) {
  struct {
    enum head_parameter which;
    const float **place;
  } norms[] = {{HEAD_INPUT_NORM, &head->input_norm},
               {HEAD_HIDDEN_NORM, &head->hidden_norm},
               {HEAD_POST_NORM, &head->post_norm},
               {HEAD_NORM, &head->norm}};
  struct compute *c = head->target->compute;
  size_t h = (size_t)head->config.hidden;
  head->small = c->alloc(c, 4 * h * sizeof(float));
  float *values = memory_try(h * sizeof(float));
  enum eaglet_status status =
      head->small && values ? EAGLET_OK : error_set(err, EAGLET_E_RESOURCE, "no memory for a head's norms");
  for (size_t i = 0; i < 4 && status == EAGLET_OK; i++) {
    const struct tensor_entry *tensor = NULL;
    status = find_checked(&tensor, head, norms[i].which, err);
    if (status != EAGLET_OK) break;
    if (tensor->dtype != DTYPE_F32 && tensor->dtype != DTYPE_BF16 && tensor->dtype != DTYPE_F16) {
      status = error_set(err, EAGLET_E_INPUT, "%s: %s: expected a float type, found %s", head->file.path, tensor->name,
                         dtype_name(tensor->dtype));
      break;
    }
    dtype_to_f32(values, tensor->data, tensor->dtype, h);
    c->upload(c, head->small + i * h, values, h * sizeof(float));
    *norms[i].place = head->small + i * h;
  }
  memory_try_free(values);
  return status;
}

/* A head with the whole vocabulary may borrow the target's lm_head; a reduced one may not (A01). */
static enum eaglet_status bind_lm_head(struct head *head, struct eaglet_error *err) {
  if (find_canonical(&head->file, head_parameter_name(HEAD_LM_HEAD)))
    return bind_weight(&head->lm_head, head, HEAD_LM_HEAD, err);
  if (head->config.n_draft != head->config.n_target) {
    FAIL(err, EAGLET_E_INPUT,
         "%s: lm_head.weight: missing, and the target's cannot stand in for a reduced vocabulary of %d",
         head->file.path, head->config.n_draft);
  }
  head->lm_head = head->target->head;
  snprintf(head->notes, sizeof head->notes, "lm_head borrowed from the target");
  return EAGLET_OK;
}

/* Most heads leave the embedding out, because it is the target's; one that brings its own was trained on that. */
static enum eaglet_status bind_embed(struct head *head, struct eaglet_error *err) {
  const struct tensor_entry *tensor = find_canonical(&head->file, "embed_tokens.weight");
  head->embed = head->target->embed;
  if (!tensor) return EAGLET_OK;
  if (tensor->rank != 2 || tensor->shape[0] != head->config.n_target || tensor->shape[1] != head->config.hidden) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected (%d,%d), found (%lld,%lld)", head->file.path, tensor->name,
         head->config.n_target, head->config.hidden, (long long)tensor->shape[0],
         tensor->rank > 1 ? (long long)tensor->shape[1] : 1);
  }
  return weight_of(&head->embed, tensor, err);
}

static enum eaglet_status bind_all(struct head *head, struct eaglet_error *err) {
  struct {
    enum head_parameter which;
    struct weight *place;
  } weights[] = {{HEAD_FC, &head->fc},         {HEAD_Q, &head->attention.q}, {HEAD_K, &head->attention.k},
                 {HEAD_V, &head->attention.v}, {HEAD_O, &head->attention.o}, {HEAD_GATE, head->ffn.gate},
                 {HEAD_UP, head->ffn.up},      {HEAD_DOWN, head->ffn.down}};
  TRY(check_all_known(&head->file, err));
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
    TRY(bind_weight(weights[i].place, head, weights[i].which, err));
  TRY(bind_norms(head, err));
  TRY(bind_lm_head(head, err));
  TRY(bind_embed(head, err));
  return vocab_map_from_tensors(&head->map, &head->file, head->config.n_draft, head->config.n_target, err);
}

static enum eaglet_status open_files(struct head *head, const char *directory, struct eaglet_error *err) {
  char *config = file_join(directory, "config.json"), *weights = file_join(directory, "model.safetensors");
  enum eaglet_status status = json_parse_file(&head->config_json, config, err);
  if (status == EAGLET_OK)
    status = head_config_read(&head->config, head->config_json, &head->target->arch.features, config, err);
  if (status == EAGLET_OK) head_config_remark(&head->config, head->config_json, config);
  if (status == EAGLET_OK) status = safetensors_open(&head->file, weights, err);
  free(config);
  free(weights);
  return status;
}

enum eaglet_status head_open(struct head **out, const char *directory, const struct model *target,
                             struct eaglet_error *err) {
  struct head *head = memory_alloc(sizeof *head);
  *out = NULL;
  head->target = target;
  head->ffn = (struct ffn_weights){.n_experts = 1, .n_picked = 1, .gate = memory_alloc(3 * sizeof(struct weight))};
  head->ffn.up = head->ffn.gate + 1;
  head->ffn.down = head->ffn.gate + 2;
  enum eaglet_status status = open_files(head, directory, err);
  if (status == EAGLET_OK) status = bind_all(head, err);
  /* The table is as long as the target's: a config that says 2048 must not end drafting there. */
  if (status == EAGLET_OK)
    status = rope_table_init(&head->rope, target->compute, &head->config.rope, target->n_positions, err);
  if (status != EAGLET_OK) {
    head_close(head);
    return status;
  }
  *out = head;
  return EAGLET_OK;
}

void head_close(struct head *head) {
  if (!head) return;
  struct compute *c = head->target->compute;
  rope_table_release(&head->rope, c);
  if (head->small) c->free(c, head->small);
  vocab_map_release(&head->map);
  safetensors_close(&head->file);
  json_decref(head->config_json);
  free(head->ffn.gate);
  free(head);
}

/* ---- running ---- */

struct head_forward {
  const struct head *head;
  struct compute *compute;
  struct block_scratch *block;
  struct row_index rows;
  int32_t rows_max;
  float *memory;
  float *wide;     /* [n, 2H] */
  float *x;        /* [n, H] embeddings, then the residual stream */
  float *normed;   /* [n, H] */
  float *delta;    /* [n, H] what a block adds */
  float *logits;   /* [n, Vd] */
  int32_t *picked; /* device: rows that want logits */
  int32_t *picked_host;
};

static void head_shape(struct block_shape *shape, const struct head_config *c) {
  *shape = (struct block_shape){.hidden = c->hidden,
                                .input = 2 * c->hidden,
                                .attention = ATTENTION_GQA,
                                .n_heads = c->n_heads,
                                .n_kv_heads = c->n_kv_heads,
                                .head_dim = c->head_dim,
                                .intermediate = c->intermediate,
                                .attention_scale = 1.0 / sqrt((double)c->head_dim),
                                .norm_eps = c->norm_eps,
                                .inner_norm_eps = c->norm_eps};
}

int32_t head_kv_entry_floats(const struct head *head) {
  struct block_shape shape;
  head_shape(&shape, &head->config);
  return block_kv_entry_floats(&shape);
}

enum eaglet_status head_forward_create(struct head_forward **out, const struct head *head, int32_t rows_max,
                                       int32_t pages_max, struct eaglet_error *err) {
  struct compute *c = head->target->compute;
  struct head_forward *f = memory_alloc(sizeof *f);
  struct block_shape shape;
  size_t n = (size_t)rows_max, h = (size_t)head->config.hidden, vocab = (size_t)head->config.n_draft;
  *out = NULL;
  *f = (struct head_forward){.head = head, .compute = c, .rows_max = rows_max};
  head_shape(&shape, &head->config);
  enum eaglet_status status = block_scratch_create(&f->block, c, &shape, rows_max, err);
  f->memory = c->alloc(c, n * (5 * h + vocab + 1) * sizeof(float));
  f->picked_host = memory_alloc(n * sizeof(int32_t));
  row_index_init(&f->rows, c, rows_max, pages_max);
  if (status == EAGLET_OK && !f->memory)
    status = error_set(err, EAGLET_E_RESOURCE, "no memory for the head's activations (%d rows)", rows_max);
  if (status != EAGLET_OK) {
    head_forward_free(f);
    return status;
  }
  f->wide = f->memory;
  f->x = f->wide + n * 2 * h;
  f->normed = f->x + n * h;
  f->delta = f->normed + n * h;
  f->logits = f->delta + n * h;
  f->picked = (int32_t *)(void *)(f->logits + n * vocab);
  *out = f;
  return EAGLET_OK;
}

void head_forward_free(struct head_forward *f) {
  if (!f) return;
  block_scratch_free(f->block, f->compute);
  row_index_release(&f->rows, f->compute);
  if (f->memory) f->compute->free(f->compute, f->memory);
  free(f->picked_host);
  free(f);
}

void head_fuse(struct head_forward *f, float *g, const float *tapped, int32_t n) {
  f->compute->matmul(f->compute, g, tapped, &f->head->fc, n, 0, 0);
}

static int32_t pick_rows(struct head_forward *f, const struct batch *batch) {
  int32_t n = 0;
  for (int32_t i = 0; i < batch->n; i++) {
    if (batch->rows[i].wants_logits) f->picked_host[n++] = i;
  }
  f->compute->upload(f->compute, f->picked, f->picked_host, sizeof(int32_t) * (size_t)n);
  return n;
}

enum eaglet_status head_forward_run(struct head_forward *f, struct head_run *run, struct eaglet_error *err) {
  const struct head *head = f->head;
  struct compute *c = f->compute;
  int32_t n = run->batch->n, h = head->config.hidden;
  if (n > f->rows_max) FAIL(err, EAGLET_E_INTERNAL, "head: %d rows, room for %d", n, f->rows_max);
  const struct norm_params into_wide = {.dim = h, .eps = (float)head->config.norm_eps, .out_row = 2 * h},
                           plain = {.dim = h, .eps = (float)head->config.norm_eps};
  row_index_build(&f->rows, c, run->batch);
  c->embed(c, f->x, &head->embed, f->rows.tokens, n);
  c->rms_norm(c, f->wide, f->x, head->input_norm, n, &into_wide);
  c->rms_norm(c, f->wide + h, run->feature, head->hidden_norm, n, &into_wide);
  c->copy(c, f->x, run->feature, sizeof(float) * (size_t)n * (size_t)h); /* the residual stream starts at the feature */
  const struct block_attention_params attention = {.out = f->delta,
                                                   .x = f->wide,
                                                   .weights = &head->attention,
                                                   .rope = &head->rope,
                                                   .pool = run->kv->pools[0],
                                                   .rows = &f->rows};
  block_attention(f->block, c, &attention);
  c->add(c, f->x, f->x, f->delta, (int64_t)n * h);
  c->rms_norm(c, f->normed, f->x, head->post_norm, n, &plain);
  block_ffn(f->block, c, f->delta, f->normed, &head->ffn, n);
  c->add(c, f->x, f->x, f->delta, (int64_t)n * h);
  run->out = f->x;
  run->logits = f->logits;
  run->n_logits = pick_rows(f, run->batch);
  if (run->n_logits > 0) {
    const struct gather_params picked = {.dim = h};
    c->gather_rows(c, f->normed, f->x, f->picked, run->n_logits, &picked);
    c->rms_norm(c, f->normed, f->normed, head->norm, run->n_logits, &plain);
    c->matmul(c, f->logits, f->normed, &head->lm_head, run->n_logits, 0, 0);
  }
  return EAGLET_OK;
}
