/* head_forward.c - running a head; see head.h. Owns the activations of its rows. Attention and feed-forward are the target's
 * own building blocks; what is written here is how a head is wired around them, and struct head_wiring says how.
 *
 * Letters: n rows, H the head's hidden size, W = n_states * H_target, Vd draft vocabulary. */
#include "draft/head.h"

#include "base/memory.h"

#include <stdlib.h>

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
  float *next;     /* [n, H] normed output, where that is the next feature */
  float *fused;    /* [n, W] states behind their norms, where they have any */
  float *logits;   /* [n, Vd] */
  int32_t *picked; /* device: rows that want logits */
  int32_t *picked_host;
};

int32_t head_kv_layers(const struct head *head) {
  return 1 + head->config.n_more_layers;
}

int32_t head_kv_entry_floats(const struct head *head) {
  return block_kv_entry_floats(&head->shape);
}

static bool has_fusion_norms(const struct head *head) {
  return head->config.wiring.fc_norms || head->config.wiring.fc_input_norm;
}

enum eaglet_status head_forward_create(struct head_forward **out, const struct head *head, int32_t rows_max,
                                       int32_t pages_max, struct eaglet_error *err) {
  const struct head_config *config = &head->config;
  struct compute *c = head->target->compute;
  struct head_forward *f = memory_alloc(sizeof *f);
  size_t n = (size_t)rows_max, h = (size_t)config->hidden, vocab = (size_t)config->n_draft,
         fused = has_fusion_norms(head) ? (size_t)config->n_states * (size_t)config->target_hidden : 0;
  *out = NULL;
  *f = (struct head_forward){.head = head, .compute = c, .rows_max = rows_max};
  enum eaglet_status status = block_scratch_create(&f->block, c, &head->shape, rows_max, err);
  f->memory = c->alloc(c, n * (6 * h + fused + vocab + 1) * sizeof(float));
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
  f->next = f->delta + n * h;
  f->fused = f->next + n * h;
  f->logits = f->fused + n * fused;
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

/* ---- fusing ---- */

/* At most rows_max rows. */
static const float *norm_states(struct head_forward *f, const float *tapped, int32_t n) {
  const struct head *head = f->head;
  const struct head_config *config = &head->config;
  struct compute *c = f->compute;
  int32_t dim = config->target_hidden, wide = config->n_states * dim;
  if (config->wiring.fc_input_norm) {
    const struct norm_params whole = {.dim = wide, .eps = (float)config->norm_eps};
    c->rms_norm(c, f->fused, tapped, head->fc_input_norm, n, &whole);
    return f->fused;
  }
  const struct norm_params each = {.dim = dim, .eps = (float)config->norm_eps, .x_row = wide, .out_row = wide};
  for (int32_t i = 0; i < config->n_states; i++)
    c->rms_norm(c, f->fused + (int64_t)i * dim, tapped + (int64_t)i * dim, head->fc_norms[i], n, &each);
  return f->fused;
}

void head_fuse(struct head_forward *f, float *g, const float *tapped, int32_t n) {
  const struct head *head = f->head;
  struct compute *c = f->compute;
  int32_t h = head->config.hidden;
  int64_t wide = (int64_t)head->config.n_states * head->config.target_hidden;
  int32_t step = has_fusion_norms(head) ? f->rows_max : n;
  for (int32_t at = 0; at < n; at += step) {
    int32_t rows = n - at < step ? n - at : step;
    const float *states = tapped + at * wide;
    if (has_fusion_norms(head)) states = norm_states(f, states, rows);
    c->matmul(c, g + (int64_t)at * h, states, &head->fc, rows, 0, 0);
  }
  if (head->fc_bias) c->add_bias(c, g, head->fc_bias, n, h);
}

/* ---- the pass ---- */

static int32_t pick_rows(struct head_forward *f, const struct batch *batch) {
  int32_t n = 0;
  for (int32_t i = 0; i < batch->n; i++) {
    if (batch->rows[i].wants_logits) f->picked_host[n++] = i;
  }
  f->compute->upload(f->compute, f->picked, f->picked_host, sizeof(int32_t) * (size_t)n);
  return n;
}

/* wide = [norm(embedding) | norm(feature)]; x = where the residual stream starts. */
static void join_inputs(struct head_forward *f, const float *feature, int32_t n) {
  const struct head *head = f->head;
  struct compute *c = f->compute;
  int32_t h = head->config.hidden;
  const struct norm_params into_wide = {.dim = h, .eps = (float)head->config.norm_eps, .out_row = 2 * h},
                           plain = {.dim = h, .eps = (float)head->config.norm_eps};
  c->embed(c, f->x, &head->embed, f->rows.tokens, n);
  c->rms_norm(c, f->wide, f->x, head->embed_norm, n, &into_wide);
  c->rms_norm(c, f->wide + h, feature, head->hidden_norm, n, &into_wide);
  if (head->config.wiring.norm_before_residual)
    c->rms_norm(c, f->x, feature, head->hidden_norm, n, &plain);
  else
    c->copy(c, f->x, feature, sizeof(float) * (size_t)n * (size_t)h);
}

static void run_layer(struct head_forward *f, const struct head_layer *layer, float *pool, int32_t window) {
  const struct head *head = f->head;
  struct compute *c = f->compute;
  int32_t n = f->rows.n, h = head->config.hidden;
  const struct norm_params plain = {.dim = h, .eps = (float)head->config.norm_eps};
  if (layer->input_norm) c->rms_norm(c, f->normed, f->x, layer->input_norm, n, &plain);
  const struct block_attention_params attention = {.out = f->delta,
                                                   .x = layer->input_norm ? f->normed : f->wide,
                                                   .weights = &layer->attention,
                                                   .rope = &head->rope,
                                                   .window = window,
                                                   .pool = pool,
                                                   .rows = &f->rows};
  block_attention(f->block, c, &attention);
  c->add(c, f->x, f->x, f->delta, (int64_t)n * h);
  c->rms_norm(c, f->normed, f->x, layer->post_norm, n, &plain);
  block_ffn(f->block, c, f->delta, f->normed, &layer->ffn, n);
  c->add(c, f->x, f->x, f->delta, (int64_t)n * h);
}

static void run_lm_head(struct head_forward *f, struct head_run *run) {
  const struct head *head = f->head;
  struct compute *c = f->compute;
  int32_t h = head->config.hidden;
  const struct norm_params plain = {.dim = h, .eps = (float)head->config.norm_eps};
  const struct gather_params rows = {.dim = h};
  run->logits = f->logits;
  run->n_logits = pick_rows(f, run->batch);
  if (run->n_logits == 0) return;
  c->gather_rows(c, f->normed, f->x, f->picked, run->n_logits, &rows);
  c->rms_norm(c, f->normed, f->normed, head->norm, run->n_logits, &plain);
  c->matmul(c, f->logits, f->normed, &head->lm_head, run->n_logits, 0, 0);
}

enum eaglet_status head_forward_run(struct head_forward *f, struct head_run *run, struct eaglet_error *err) {
  const struct head *head = f->head;
  struct compute *c = f->compute;
  int32_t n = run->batch->n;
  if (n > f->rows_max) FAIL(err, EAGLET_E_INTERNAL, "head: %d rows, room for %d", n, f->rows_max);
  ASSERT(run->kv->n_layers == head_kv_layers(head) && run->kv->entry_floats == head_kv_entry_floats(head));
  row_index_build(&f->rows, c, run->batch);
  join_inputs(f, run->feature, n);
  for (int32_t i = 0; i <= head->config.n_more_layers; i++)
    run_layer(f, &head->layers[i], run->kv->pools[i], head->config.window[i]);
  run_lm_head(f, run);
  run->out = f->x;
  if (head->config.wiring.norm_output) {
    const struct norm_params plain = {.dim = head->config.hidden, .eps = (float)head->config.norm_eps};
    c->rms_norm(c, f->next, f->x, head->norm, n, &plain);
    run->out = f->next;
  }
  return EAGLET_OK;
}
