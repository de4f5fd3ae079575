/* block.c - attention and feed-forward of one layer; see forward.h. The only code that knows their arithmetic; it
 * decides which ops run, the ops compute. Owns the activations inside a block, nothing else.
 *
 * Letters: n rows, H hidden, D head dimension; MLA: r = kv_rank, dn / dr = plain / rotated part of a head, dv = value
 * dimension.
 *
 * MLA runs absorbed for every row count, prefill included: the cache holds [latent r | rotated key dr] and one
 * arithmetic serves decode and prefill, because a row's result must not depend on how many rows came along (decision
 * 3).
 */
#include "model/forward.h"

#include "base/memory.h"

#include <stdlib.h>

struct block_scratch {
  struct block_shape shape;
  int32_t rows_max;
  float *memory;
  /* attention */
  float *q_low;    /* [n, q_rank] */
  float *q;        /* GQA [n, nh, D]; MLA [n, nh, dn + dr] */
  float *q_latent; /* MLA [n, nh, r + dr] */
  float *kv_raw;   /* MLA [n, r + dr] before norm and rope */
  float *entries;  /* [n, entry_floats] */
  float *mixed;    /* GQA [n, nh, D]; MLA [n, nh, r] */
  float *values;   /* MLA [n, nh, dv] */
  float *delta;    /* [n, H] what the block adds */
  /* feed-forward; shares memory with the attention part */
  float *ffn_delta, *gate, *up; /* [n, H], [n, I], [n, I] */
  float *logits, *share;        /* [n, E], [n, K] */
  int32_t *expert;              /* [n, K] */
  float *moe;
};

void block_shape_from_features(struct block_shape *shape, const struct features *f) {
  const struct moe_features *moe = &f->moe;
  *shape = (struct block_shape){
      .hidden = f->hidden,
      .input = f->hidden,
      .attention = f->attention,
      .n_heads = f->n_heads,
      .n_kv_heads = f->n_kv_heads,
      .head_dim = f->head_dim,
      .q_rank = f->q_rank,
      .kv_rank = f->kv_rank,
      .nope_dim = f->nope_dim,
      .rope_dim = f->rope_dim,
      .value_dim = f->value_dim,
      .intermediate = f->intermediate,
      .moe_intermediate = moe->intermediate,
      .n_experts = moe->n_experts,
      .n_picked = moe->n_picked,
      .n_shared = moe->n_shared,
      .attention_scale = f->attention_scale,
      .norm_eps = f->norm_eps,
      .inner_norm_eps = f->inner_norm_eps,
      .rope_style = f->rope.style,
      .rope_pairs = f->rope.dim / 2,
      .qk_norm = f->qk_norm,
      .window = f->window,
      .router = moe->router,
      .router_normalise = moe->normalise,
      .router_scale = moe->scale,
      .n_groups = moe->n_groups,
      .n_groups_picked = moe->n_groups_picked,
  };
}

int32_t block_kv_entry_floats(const struct block_shape *shape) {
  return shape->attention == ATTENTION_MLA ? shape->kv_rank + shape->rope_dim : 2 * shape->n_kv_heads * shape->head_dim;
}

/* Cuts pieces out of a block: with base NULL only the length is counted, so that planning and carving are the same
 * code. */
struct carver {
  float *base;
  size_t used;
};
static float *carve(struct carver *carver, int64_t n_floats) {
  float *piece = carver->base ? carver->base + carver->used : NULL;
  carver->used += ((size_t)n_floats + 15) & ~(size_t)15;
  return piece;
}

static void carve_attention(struct block_scratch *s, struct carver *carver, int64_t n) {
  const struct block_shape *d = &s->shape;
  s->entries = carve(carver, n * block_kv_entry_floats(d));
  s->delta = carve(carver, n * d->hidden);
  if (d->attention == ATTENTION_MLA) {
    s->q_low = carve(carver, n * d->q_rank);
    s->q = carve(carver, n * d->n_heads * (d->nope_dim + d->rope_dim));
    s->q_latent = carve(carver, n * d->n_heads * (d->kv_rank + d->rope_dim));
    s->kv_raw = carve(carver, n * (d->kv_rank + d->rope_dim));
    s->mixed = carve(carver, n * d->n_heads * d->kv_rank);
    s->values = carve(carver, n * d->n_heads * d->value_dim);
  } else {
    s->q = carve(carver, n * d->n_heads * d->head_dim);
    s->mixed = carve(carver, n * d->n_heads * d->head_dim);
  }
}

static void carve_ffn(struct block_scratch *s, struct carver *carver, int64_t n) {
  const struct block_shape *d = &s->shape;
  int64_t shared = (int64_t)d->moe_intermediate * d->n_shared,
          width = d->intermediate > shared ? d->intermediate : shared;
  s->ffn_delta = carve(carver, n * d->hidden);
  s->gate = carve(carver, n * width);
  s->up = carve(carver, n * width);
  if (d->n_experts == 0) return;
  s->logits = carve(carver, n * d->n_experts);
  s->share = carve(carver, n * d->n_picked);
  s->expert = (int32_t *)(void *)carve(carver, n * d->n_picked);
  s->moe = carve(carver, compute_moe_scratch_floats((int32_t)n, d->n_picked, d->hidden, d->moe_intermediate));
}

static size_t carve_all(struct block_scratch *s, float *base) {
  struct carver attention = {.base = base}, ffn = {.base = base};
  carve_attention(s, &attention, s->rows_max);
  carve_ffn(s, &ffn, s->rows_max);
  return attention.used > ffn.used ? attention.used : ffn.used;
}

enum eaglet_status block_scratch_create(struct block_scratch **scratch, struct compute *c,
                                        const struct block_shape *shape, int32_t rows_max, struct eaglet_error *err) {
  struct block_scratch *s = memory_alloc(sizeof *s);
  *s = (struct block_scratch){.shape = *shape, .rows_max = rows_max};
  *scratch = NULL;
  size_t n = carve_all(s, NULL);
  s->memory = c->alloc(c, n * sizeof(float));
  if (!s->memory) {
    free(s);
    FAIL(err, EAGLET_E_RESOURCE, "activations of %d rows need %.1f MB", rows_max, (double)n * sizeof(float) / 1e6);
  }
  carve_all(s, s->memory);
  *scratch = s;
  return EAGLET_OK;
}

void block_scratch_free(struct block_scratch *scratch, struct compute *c) {
  if (!scratch) return;
  c->free(c, scratch->memory);
  free(scratch);
}

static void linear(struct compute *c, float *out, const float *x, const struct weight *w, const float *bias,
                   int32_t n) {
  c->matmul(c, out, x, w, n, 0, 0);
  if (bias) c->add_bias(c, out, bias, n, w->n_out);
}

static void write_and_attend(struct block_scratch *s, struct compute *c, const struct block_attention_params *p,
                             const struct attention_params *layout) {
  const struct row_index *rows = p->rows;
  const struct kv_write_params write = {.pool = p->pool,
                                        .entries = s->entries,
                                        .page_table = rows->page_table,
                                        .table_begin = rows->table_begin,
                                        .slots = rows->slots,
                                        .entry_floats = layout->entry_floats,
                                        .page_tokens = KV_PAGE_TOKENS};
  c->kv_write(c, &write, rows->n);
  struct attention_params attention = *layout;
  attention.out = s->mixed;
  attention.pool = p->pool;
  attention.page_table = rows->page_table;
  attention.table_begin = rows->table_begin;
  attention.n_prefix = rows->n_prefix;
  attention.extra_slots = rows->extra_slots;
  attention.extra_begin = rows->extra_begin;
  attention.page_tokens = KV_PAGE_TOKENS;
  attention.window = s->shape.window;
  attention.scale = (float)s->shape.attention_scale;
  c->attention(c, &attention, rows->n);
}

static struct rope_params rope_of(const struct block_scratch *s, const struct block_attention_params *p, float *out,
                                  const float *x, int32_t n_heads) {
  return (struct rope_params){.out = out,
                              .x = x,
                              .n_heads = n_heads,
                              .n_pairs = s->shape.rope_pairs,
                              .style = s->shape.rope_style,
                              .cos = p->rope->cos,
                              .sin = p->rope->sin,
                              .positions = p->rows->positions};
}

/* q -> s->q_latent [n, nh, r + dr]: per head UK^T q_nope, then the rotated part. */
static void mla_queries(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  const struct block_shape *d = &s->shape;
  const struct attention_weights *w = p->weights;
  int32_t n = p->rows->n, head = d->nope_dim + d->rope_dim, latent = d->kv_rank + d->rope_dim;
  const struct norm_params norm = {.dim = d->q_rank, .eps = (float)d->inner_norm_eps};
  if (weight_present(&w->q_a)) {
    linear(c, s->q_low, p->normed, &w->q_a, w->q_a_bias, n);
    c->rms_norm(c, s->q_low, s->q_low, w->q_a_norm, n, &norm);
    linear(c, s->q, s->q_low, &w->q_b, NULL, n);
  } else {
    linear(c, s->q, p->normed, &w->q, w->q_bias, n);
  }
  const struct matmul_heads_params absorb = {.out = s->q_latent,
                                             .x = s->q,
                                             .w = &w->kv_b,
                                             .n_heads = d->n_heads,
                                             .rows_per_head = d->nope_dim + d->value_dim,
                                             .row_begin = 0,
                                             .n_rows = d->nope_dim,
                                             .transpose = true,
                                             .out_row = (int64_t)d->n_heads * latent,
                                             .out_head = latent,
                                             .x_row = (int64_t)d->n_heads * head,
                                             .x_head = head};
  c->matmul_heads(c, &absorb, n);
  struct rope_params rope = rope_of(s, p, s->q_latent + d->kv_rank, s->q + d->nope_dim, d->n_heads);
  rope.out_row = absorb.out_row;
  rope.out_head = latent;
  rope.x_row = absorb.x_row;
  rope.x_head = head;
  c->rope(c, &rope, n);
}

/* s->entries [n, r + dr] = [norm(latent) | rotated key]. */
static void mla_entries(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  const struct block_shape *d = &s->shape;
  int32_t n = p->rows->n, entry = d->kv_rank + d->rope_dim;
  const struct norm_params norm = {
      .dim = d->kv_rank, .eps = (float)d->inner_norm_eps, .x_row = entry, .out_row = entry};
  linear(c, s->kv_raw, p->normed, &p->weights->kv_a, p->weights->kv_a_bias, n);
  c->rms_norm(c, s->entries, s->kv_raw, p->weights->kv_a_norm, n, &norm);
  struct rope_params rope = rope_of(s, p, s->entries + d->kv_rank, s->kv_raw + d->kv_rank, 1);
  rope.out_row = rope.x_row = entry;
  rope.out_head = rope.x_head = d->rope_dim;
  c->rope(c, &rope, n);
}

static void attention_mla(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  const struct block_shape *d = &s->shape;
  int32_t n = p->rows->n, entry = d->kv_rank + d->rope_dim;
  mla_queries(s, c, p);
  mla_entries(s, c, p);
  const struct attention_params layout = {.q = s->q_latent,
                                          .n_heads = d->n_heads,
                                          .n_kv_heads = 1,
                                          .key_dim = entry,
                                          .value_dim = d->kv_rank,
                                          .key_head = entry,
                                          .value_head = d->kv_rank,
                                          .value_offset = 0,
                                          .entry_floats = entry};
  write_and_attend(s, c, p, &layout);
  const struct matmul_heads_params expand = {.out = s->values,
                                             .x = s->mixed,
                                             .w = &p->weights->kv_b,
                                             .n_heads = d->n_heads,
                                             .rows_per_head = d->nope_dim + d->value_dim,
                                             .row_begin = d->nope_dim,
                                             .n_rows = d->value_dim,
                                             .out_row = (int64_t)d->n_heads * d->value_dim,
                                             .out_head = d->value_dim,
                                             .x_row = (int64_t)d->n_heads * d->kv_rank,
                                             .x_head = d->kv_rank};
  c->matmul_heads(c, &expand, n);
  linear(c, s->delta, s->values, &p->weights->o, p->weights->o_bias, n);
}

/* Per-head norm before rope. Keys lie in the entries, whose rows are wider than the keys: one call per key head. */
static void gqa_norms(struct block_scratch *s, struct compute *c, const struct block_attention_params *p,
                      int32_t entry) {
  const struct block_shape *d = &s->shape;
  int32_t n = p->rows->n;
  const struct norm_params q_norm = {.dim = d->head_dim, .eps = (float)d->norm_eps};
  const struct norm_params k_norm = {.dim = d->head_dim, .eps = (float)d->norm_eps, .x_row = entry, .out_row = entry};
  c->rms_norm(c, s->q, s->q, p->weights->q_norm, n * d->n_heads, &q_norm);
  for (int32_t h = 0; h < d->n_kv_heads; h++) {
    float *k = s->entries + (int64_t)h * d->head_dim;
    c->rms_norm(c, k, k, p->weights->k_norm, n, &k_norm);
  }
}

/* Entries are [keys | values] and so are the biases when binding laid them side by side: then one call serves both.
 * Otherwise (only one of the two has a bias) rows go one at a time, because the op wants tight rows. */
static void add_entry_bias(struct compute *c, float *entries, const struct attention_weights *w, int32_t n,
                           int32_t keys) {
  int32_t entry = 2 * keys;
  if (w->k_bias && w->v_bias == w->k_bias + keys) {
    c->add_bias(c, entries, w->k_bias, n, entry);
    return;
  }
  for (int32_t i = 0; i < n; i++) {
    float *row = entries + (int64_t)i * entry;
    if (w->k_bias) c->add_bias(c, row, w->k_bias, 1, keys);
    if (w->v_bias) c->add_bias(c, row + keys, w->v_bias, 1, keys);
  }
}

static void attention_gqa(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  const struct block_shape *d = &s->shape;
  const struct attention_weights *w = p->weights;
  int32_t n = p->rows->n, keys = d->n_kv_heads * d->head_dim, entry = 2 * keys;
  linear(c, s->q, p->normed, &w->q, w->q_bias, n);
  c->matmul(c, s->entries, p->normed, &w->k, n, entry, 0);
  c->matmul(c, s->entries + keys, p->normed, &w->v, n, entry, 0);
  if (w->k_bias || w->v_bias) add_entry_bias(c, s->entries, w, n, keys);
  if (d->qk_norm) gqa_norms(s, c, p, entry);
  struct rope_params rope = rope_of(s, p, s->q, s->q, d->n_heads);
  rope.out_row = rope.x_row = (int64_t)d->n_heads * d->head_dim;
  rope.out_head = rope.x_head = d->head_dim;
  c->rope(c, &rope, n);
  rope.out = s->entries;
  rope.x = s->entries;
  rope.n_heads = d->n_kv_heads;
  rope.out_row = rope.x_row = entry;
  c->rope(c, &rope, n);
  const struct attention_params layout = {.q = s->q,
                                          .n_heads = d->n_heads,
                                          .n_kv_heads = d->n_kv_heads,
                                          .key_dim = d->head_dim,
                                          .value_dim = d->head_dim,
                                          .key_head = d->head_dim,
                                          .value_head = d->head_dim,
                                          .value_offset = keys,
                                          .entry_floats = entry};
  write_and_attend(s, c, p, &layout);
  linear(c, s->delta, s->mixed, &w->o, w->o_bias, n);
}

void block_attention(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  ASSERT(p->rows->n <= s->rows_max);
  if (s->shape.attention == ATTENTION_MLA)
    attention_mla(s, c, p);
  else
    attention_gqa(s, c, p);
  c->add(c, p->x, p->x, s->delta, (int64_t)p->rows->n * s->shape.hidden);
}

/* x += down(silu(gate(normed)) * up(normed)) */
static void gated_mlp(struct block_scratch *s, struct compute *c, float *x, const float *normed,
                      const struct weight *const mlp[3], int32_t n) {
  c->matmul(c, s->gate, normed, mlp[0], n, 0, 0);
  c->matmul(c, s->up, normed, mlp[1], n, 0, 0);
  c->silu_mul(c, s->gate, s->gate, s->up, (int64_t)n * mlp[0]->n_out);
  c->matmul(c, s->ffn_delta, s->gate, mlp[2], n, 0, 0);
  c->add(c, x, x, s->ffn_delta, (int64_t)n * s->shape.hidden);
}

void block_ffn(struct block_scratch *s, struct compute *c, float *x, const float *normed,
               const struct ffn_weights *weights, int32_t n) {
  const struct block_shape *d = &s->shape;
  ASSERT(n <= s->rows_max);
  if (!weight_present(&weights->router)) {
    gated_mlp(s, c, x, normed, (const struct weight *const[]){weights->gate, weights->up, weights->down}, n);
    return;
  }
  const struct router_params router = {.expert = s->expert,
                                       .share = s->share,
                                       .logits = s->logits,
                                       .bias = weights->router_bias,
                                       .n_experts = weights->n_experts,
                                       .n_picked = weights->n_picked,
                                       .n_groups = d->n_groups,
                                       .n_groups_picked = d->n_groups_picked,
                                       .kind = d->router,
                                       .normalise = d->router_normalise,
                                       .scale = (float)d->router_scale};
  c->matmul(c, s->logits, normed, &weights->router, n, 0, 0);
  c->router(c, &router, n);
  const struct moe_params moe = {.out = x,
                                 .x = normed,
                                 .gate = weights->gate,
                                 .up = weights->up,
                                 .down = weights->down,
                                 .expert = s->expert,
                                 .share = s->share,
                                 .n_experts = weights->n_experts,
                                 .n_picked = weights->n_picked,
                                 .accumulate = true,
                                 .scratch = s->moe};
  c->moe(c, &moe, n);
  if (!weight_present(&weights->shared_gate)) return;
  gated_mlp(s, c, x, normed,
            (const struct weight *const[]){&weights->shared_gate, &weights->shared_up, &weights->shared_down}, n);
}
