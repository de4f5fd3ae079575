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
  /* sparse attention: the scorer's queries, keys and shares; what it chose */
  float *index_q, *index_k, *index_share;        /* [n, heads, d], [n, d], [n, heads] */
  int32_t *kept_slots, *kept_begin, *kept_prefix; /* [n, n_kept], [n + 1], [n] */
  /* feed-forward; shares memory with the attention part */
  float *shared, *gate, *up; /* [n, H], [n, I], [n, I] */
  float *logits, *share;     /* [n, E], [n, K] */
  float *shared_share;       /* [n] */
  int32_t *expert;           /* [n, K] */
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
      .shared_intermediate = moe->shared_intermediate,
      .attention_scale = f->attention_scale,
      .norm_eps = f->norm_eps,
      .inner_norm_eps = f->inner_norm_eps,
      .attention_softcap = f->attention_softcap,
      .qk_norm = f->qk_norm,
      .qk_layer_norm = f->norm == NORM_LAYER,
      .qk_norm_after_rope = f->qk_norm_after_rope,
      .activation = f->activation,
      .router = moe->router,
      .router_normalise = moe->normalise,
      .router_scale = moe->scale,
      .n_groups = moe->n_groups,
      .n_groups_picked = moe->n_groups_picked,
      .share_input = moe->share_input,
      .sparse = f->sparse,
  };
}

int32_t block_kv_entry_floats(const struct block_shape *shape) {
  if (shape->attention == ATTENTION_GQA) return 2 * shape->n_kv_heads * shape->head_dim;
  return shape->kv_rank + shape->rope_dim + (shape->sparse.n_kept > 0 ? shape->sparse.head_dim : 0);
}

int32_t model_kv_entry_floats(const struct model *model) {
  struct block_shape shape;
  block_shape_from_features(&shape, &model->arch.features);
  return block_kv_entry_floats(&shape);
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

static void carve_sparse(struct block_scratch *s, struct carver *carver, int64_t n) {
  const struct sparse_features *sparse = &s->shape.sparse;
  s->index_q = carve(carver, n * sparse->n_heads * sparse->head_dim);
  s->index_k = carve(carver, n * sparse->head_dim);
  s->index_share = carve(carver, n * sparse->n_heads);
  s->kept_slots = (int32_t *)(void *)carve(carver, n * sparse->n_kept);
  s->kept_begin = (int32_t *)(void *)carve(carver, n + 1);
  s->kept_prefix = (int32_t *)(void *)carve(carver, n);
}

static void carve_attention(struct block_scratch *s, struct carver *carver, int64_t n) {
  const struct block_shape *d = &s->shape;
  s->entries = carve(carver, n * block_kv_entry_floats(d));
  if (d->attention == ATTENTION_MLA) {
    s->q_low = carve(carver, n * d->q_rank);
    s->q = carve(carver, n * d->n_heads * (d->nope_dim + d->rope_dim));
    s->q_latent = carve(carver, n * d->n_heads * (d->kv_rank + d->rope_dim));
    s->kv_raw = carve(carver, n * (d->kv_rank + d->rope_dim));
    s->mixed = carve(carver, n * d->n_heads * d->kv_rank);
    s->values = carve(carver, n * d->n_heads * d->value_dim);
    if (d->sparse.n_kept > 0) carve_sparse(s, carver, n);
  } else {
    s->q = carve(carver, n * d->n_heads * d->head_dim);
    s->mixed = carve(carver, n * d->n_heads * d->head_dim);
  }
}

static void carve_ffn(struct block_scratch *s, struct carver *carver, int64_t n) {
  const struct block_shape *d = &s->shape;
  int64_t width = d->intermediate > d->shared_intermediate ? d->intermediate : d->shared_intermediate;
  s->gate = carve(carver, n * width);
  s->up = carve(carver, n * width);
  if (d->n_experts == 0) return;
  s->logits = carve(carver, n * d->n_experts);
  s->share = carve(carver, n * d->n_picked);
  s->shared = carve(carver, n * d->hidden);
  s->shared_share = carve(carver, n);
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

static void add_bias(struct compute *c, float *x, const float *bias, int32_t n, int32_t dim) {
  if (bias) c->add_bias(c, x, bias, n, dim);
}

static void linear(struct compute *c, float *out, const float *x, const struct weight *w, const float *bias,
                   int32_t n) {
  c->matmul(c, out, x, w, n, 0, 0);
  add_bias(c, out, bias, n, w->n_out);
}

/* The scorer's choice for every row, from keys that are in the cache already. */
static void choose_keys(struct block_scratch *s, struct compute *c, const struct block_attention_params *p, int32_t entry) {
  const struct sparse_features *sparse = &s->shape.sparse;
  const struct row_index *rows = p->rows;
  const struct select_keys_params select = {.slots = s->kept_slots,
                                            .begin = s->kept_begin,
                                            .none = s->kept_prefix,
                                            .q = s->index_q,
                                            .share = s->index_share,
                                            .pool = p->pool,
                                            .page_table = rows->page_table,
                                            .table_begin = rows->table_begin,
                                            .n_prefix = rows->n_prefix,
                                            .extra_slots = rows->extra_slots,
                                            .extra_begin = rows->extra_begin,
                                            .n_heads = sparse->n_heads,
                                            .dim = sparse->head_dim,
                                            .n_kept = sparse->n_kept,
                                            .key_offset = s->shape.kv_rank + s->shape.rope_dim,
                                            .entry_floats = entry,
                                            .page_tokens = KV_PAGE_TOKENS};
  c->select_keys(c, &select, rows->n);
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
  attention.window = p->window;
  attention.chunk = p->chunk;
  attention.scale = (float)s->shape.attention_scale;
  attention.softcap = (float)s->shape.attention_softcap;
  attention.sinks = p->weights->sinks;
  if (s->shape.sparse.n_kept > 0) {
    choose_keys(s, c, p, layout->entry_floats);
    attention.n_prefix = s->kept_prefix;
    attention.extra_slots = s->kept_slots;
    attention.extra_begin = s->kept_begin;
  }
  c->attention(c, &attention, rows->n);
}

static struct rope_params rope_of(const struct block_attention_params *p, float *out, const float *x, int32_t n_heads) {
  return (struct rope_params){.out = out,
                              .x = x,
                              .n_heads = n_heads,
                              .n_pairs = p->rope->n_pairs,
                              .style = p->rope->style,
                              .cos = p->rope->cos,
                              .sin = p->rope->sin,
                              .positions = p->rows->positions};
}

/* What is made of the input itself: the low-rank query, or the query, and the entry before its norm. */
static void mla_project(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  const struct attention_weights *w = p->weights;
  bool low = weight_present(&w->q_a);
  const struct matmul_part parts[] = {{.out = low ? s->q_low : s->q, .w = low ? &w->q_a : &w->q},
                                      {.out = s->kv_raw, .w = &w->kv_a}};
  const float *biases[] = {low ? w->q_a_bias : w->q_bias, w->kv_a_bias};
  c->matmul_many(c, parts, 2, p->x, p->rows->n);
  for (int32_t i = 0; i < 2; i++) add_bias(c, parts[i].out, biases[i], p->rows->n, parts[i].w->n_out);
}

/* q -> s->q_latent [n, nh, r + dr]: per head UK^T q_nope, then the rotated part. */
static void mla_queries(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  const struct block_shape *d = &s->shape;
  const struct attention_weights *w = p->weights;
  int32_t n = p->rows->n, head = d->nope_dim + d->rope_dim, latent = d->kv_rank + d->rope_dim;
  const struct norm_params norm = {.dim = d->q_rank, .eps = (float)d->inner_norm_eps};
  if (weight_present(&w->q_a)) {
    c->rms_norm(c, s->q_low, s->q_low, w->q_a_norm, n, &norm);
    linear(c, s->q, s->q_low, &w->q_b, NULL, n);
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
  struct rope_params rope = rope_of(p, s->q_latent + d->kv_rank, s->q + d->nope_dim, d->n_heads);
  rope.out_row = absorb.out_row;
  rope.out_head = latent;
  rope.x_row = absorb.x_row;
  rope.x_head = head;
  c->rope(c, &rope, n);
}

/* s->entries [n, r + dr] = [norm(latent) | rotated key]. */
static void mla_entries(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  const struct block_shape *d = &s->shape;
  int32_t n = p->rows->n, raw = d->kv_rank + d->rope_dim, entry = block_kv_entry_floats(d);
  const struct norm_params norm = {
      .dim = d->kv_rank, .eps = (float)d->inner_norm_eps, .x_row = raw, .out_row = entry};
  c->rms_norm(c, s->entries, s->kv_raw, p->weights->kv_a_norm, n, &norm);
  struct rope_params rope = rope_of(p, s->entries + d->kv_rank, s->kv_raw + d->kv_rank, 1);
  rope.out_row = entry;
  rope.x_row = raw;
  rope.out_head = rope.x_head = d->rope_dim;
  c->rope(c, &rope, n);
}

/* The scorer's queries (of the low-rank query), shares, and keys, which become part of the entries. Its rope turns the first dr
 * dimensions of a head. */
static void mla_scorer(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  const struct block_shape *d = &s->shape;
  const struct attention_weights *w = p->weights;
  int32_t n = p->rows->n, dim = d->sparse.head_dim, entry = block_kv_entry_floats(d);
  float *keys = s->entries + d->kv_rank + d->rope_dim;
  const struct norm_params norm = {.dim = dim, .eps = 1e-6f, .bias = w->index_k_norm.bias, .out_row = entry};
  linear(c, s->index_q, s->q_low, &w->index_q, NULL, n);
  linear(c, s->index_k, p->x, &w->index_k, NULL, n);
  linear(c, s->index_share, p->x, &w->index_share, NULL, n);
  c->layer_norm(c, keys, s->index_k, w->index_k_norm.w, n, &norm);
  struct rope_params rope = rope_of(p, s->index_q, s->index_q, d->sparse.n_heads);
  rope.style = d->sparse.rope_style;
  rope.out_row = rope.x_row = (int64_t)d->sparse.n_heads * dim;
  rope.out_head = rope.x_head = dim;
  c->rope(c, &rope, n);
  rope.out = keys;
  rope.x = keys;
  rope.n_heads = 1;
  rope.out_row = rope.x_row = entry;
  c->rope(c, &rope, n);
}

static void attention_mla(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  const struct block_shape *d = &s->shape;
  int32_t n = p->rows->n, key = d->kv_rank + d->rope_dim;
  mla_project(s, c, p);
  mla_queries(s, c, p);
  mla_entries(s, c, p);
  if (d->sparse.n_kept > 0) mla_scorer(s, c, p);
  const struct attention_params layout = {.q = s->q_latent,
                                          .n_heads = d->n_heads,
                                          .n_kv_heads = 1,
                                          .key_dim = key,
                                          .value_dim = d->kv_rank,
                                          .key_head = key,
                                          .value_head = d->kv_rank,
                                          .value_offset = 0,
                                          .entry_floats = block_kv_entry_floats(d)};
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
  linear(c, p->out, s->values, &p->weights->o, p->weights->o_bias, n);
}

static void norm_rows(struct compute *c, const struct block_shape *d, float *x, const float *w, int32_t n,
                      const struct norm_params *p) {
  if (d->qk_layer_norm)
    c->layer_norm(c, x, x, w, n, p);
  else
    c->rms_norm(c, x, x, w, n, p);
}

/* Norms of queries and keys. Keys lie in the entries, whose rows are wider than the keys: one call per key head, unless
 * all heads are one vector. */
static void gqa_norms(struct block_scratch *s, struct compute *c, const struct block_attention_params *p,
                      int32_t entry) {
  const struct block_shape *d = &s->shape;
  int32_t n = p->rows->n, dim = d->head_dim;
  const float *k_weights = p->weights->k_norm;
  struct norm_params q_norm = {.dim = dim, .eps = (float)d->norm_eps}, k_norm = q_norm;
  k_norm.x_row = k_norm.out_row = entry;
  if (d->qk_norm == QK_NORM_WIDTH) {
    q_norm.dim = d->n_heads * dim;
    k_norm.dim = d->n_kv_heads * dim;
    norm_rows(c, d, s->q, p->weights->q_norm, n, &q_norm);
    norm_rows(c, d, s->entries, k_weights, n, &k_norm);
    return;
  }
  q_norm.w_rows = d->qk_norm == QK_NORM_HEADS ? d->n_heads : 0;
  norm_rows(c, d, s->q, p->weights->q_norm, n * d->n_heads, &q_norm);
  for (int32_t h = 0; h < d->n_kv_heads; h++) {
    const float *w = d->qk_norm == QK_NORM_HEADS ? k_weights + (int64_t)h * dim : k_weights;
    norm_rows(c, d, s->entries + (int64_t)h * dim, w, n, &k_norm);
  }
}

static void gqa_rope(struct block_scratch *s, struct compute *c, const struct block_attention_params *p,
                     int32_t entry) {
  const struct block_shape *d = &s->shape;
  struct rope_params rope = rope_of(p, s->q, s->q, d->n_heads);
  rope.out_row = rope.x_row = (int64_t)d->n_heads * d->head_dim;
  rope.out_head = rope.x_head = d->head_dim;
  c->rope(c, &rope, p->rows->n);
  rope.out = s->entries;
  rope.x = s->entries;
  rope.n_heads = d->n_kv_heads;
  rope.out_row = rope.x_row = entry;
  c->rope(c, &rope, p->rows->n);
}

/* What happens to queries and keys between projection and scores. A norm without weights stands on rotated layers only. */
static void gqa_prepare(struct block_scratch *s, struct compute *c, const struct block_attention_params *p,
                        int32_t entry) {
  const struct block_shape *d = &s->shape;
  bool norms = d->qk_norm != QK_NORM_NONE && (d->qk_norm != QK_NORM_UNIT || p->rope);
  if (norms && !d->qk_norm_after_rope) gqa_norms(s, c, p, entry);
  if (p->rope) gqa_rope(s, c, p, entry);
  if (norms && d->qk_norm_after_rope) gqa_norms(s, c, p, entry);
  if (!p->query_scale) return;
  const struct scale_rows_params scale = {
      .factors = p->query_scale, .index = p->rows->positions, .dim = d->n_heads * d->head_dim};
  c->scale_rows(c, s->q, &scale, p->rows->n);
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
  const struct matmul_part parts[] = {{.out = s->q, .w = &w->q},
                                      {.out = s->entries, .out_row = entry, .w = &w->k},
                                      {.out = s->entries + keys, .out_row = entry, .w = &w->v}};
  c->matmul_many(c, parts, 3, p->x, n);
  add_bias(c, s->q, w->q_bias, n, w->q.n_out);
  if (w->k_bias || w->v_bias) add_entry_bias(c, s->entries, w, n, keys);
  gqa_prepare(s, c, p, entry);
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
  linear(c, p->out, s->mixed, &w->o, w->o_bias, n);
}

void block_attention(struct block_scratch *s, struct compute *c, const struct block_attention_params *p) {
  ASSERT(p->rows->n <= s->rows_max);
  if (s->shape.attention == ATTENTION_MLA)
    attention_mla(s, c, p);
  else
    attention_gqa(s, c, p);
}

/* out = down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate. */
static void mlp(struct block_scratch *s, struct compute *c, float *out, const float *x, const struct ffn_weights *w,
                int32_t n) {
  const struct weight *up = &w->up[0], *down = &w->down[0];
  int64_t n_floats = (int64_t)n * up->n_out;
  const struct matmul_part parts[] = {{.out = s->up, .w = up}, {.out = s->gate, .w = w->gate}};
  c->matmul_many(c, parts, w->gate ? 2 : 1, x, n);
  add_bias(c, s->up, w->up_bias, n, up->n_out);
  if (w->gate) add_bias(c, s->gate, w->gate_bias, n, up->n_out);
  c->activate(c, s->up, w->gate ? s->gate : s->up, w->gate ? s->up : NULL, n_floats, s->shape.activation);
  c->matmul(c, out, s->up, down, n, 0, 0);
  add_bias(c, out, w->down_bias, n, down->n_out);
}

/* out += the expert that every row takes, scaled where the model has a gate for it. */
static void add_shared(struct block_scratch *s, struct compute *c, float *out, const float *x,
                       const struct ffn_weights *w, int32_t n) {
  struct weight gate = w->shared_gate, up = w->shared_up, down = w->shared_down;
  const struct ffn_weights shared = {.gate = &gate,
                                     .up = &up,
                                     .down = &down,
                                     .gate_bias = w->shared_gate_bias,
                                     .up_bias = w->shared_up_bias,
                                     .down_bias = w->shared_down_bias};
  mlp(s, c, s->shared, x, &shared, n);
  if (weight_present(&w->shared_share)) {
    const struct scale_rows_params scale = {.gate = s->shared_share, .dim = s->shape.hidden};
    c->matmul(c, s->shared_share, x, &w->shared_share, n, 0, 0);
    c->scale_rows(c, s->shared, &scale, n);
  }
  c->add(c, out, out, s->shared, (int64_t)n * s->shape.hidden);
}

void block_ffn(struct block_scratch *s, struct compute *c, float *out, const float *x,
               const struct ffn_weights *weights, int32_t n) {
  const struct block_shape *d = &s->shape;
  ASSERT(n <= s->rows_max);
  if (!weight_present(&weights->router)) {
    mlp(s, c, out, x, weights, n);
    return;
  }
  const struct router_params router = {.expert = s->expert,
                                       .share = s->share,
                                       .logits = s->logits,
                                       .bias = weights->correction_bias,
                                       .n_experts = weights->n_experts,
                                       .n_picked = weights->n_picked,
                                       .n_groups = d->n_groups,
                                       .n_groups_picked = d->n_groups_picked,
                                       .kind = d->router,
                                       .normalise = d->router_normalise,
                                       .scale = (float)d->router_scale};
  c->matmul(c, s->logits, x, &weights->router, n, 0, 0);
  add_bias(c, s->logits, weights->router_bias, n, weights->n_experts);
  c->router(c, &router, n);
  const struct moe_params moe = {.out = out,
                                 .x = x,
                                 .gate = weights->gate,
                                 .up = weights->up,
                                 .down = weights->down,
                                 .gate_bias = weights->gate_bias,
                                 .down_bias = weights->down_bias,
                                 .expert = s->expert,
                                 .share = s->share,
                                 .n_experts = weights->n_experts,
                                 .n_picked = weights->n_picked,
                                 .layout = weights->layout,
                                 .activation = d->activation,
                                 .share_input = d->share_input,
                                 .scratch = s->moe};
  c->moe(c, &moe, n);
  if (weight_present(&weights->shared_gate)) add_shared(s, c, out, x, weights, n);
}
