/* head_training_mla.c - latent attention in the training step: u to keys, values and queries, and back. See head_training_internal.h.
 *
 * Inference absorbs kv_b into queries and outputs, because it keeps the latent rows; training makes every head's keys and values of them, as those
 * who trained such heads do: a score costs D multiplications instead of r + dr. The results agree (tests/train/test_parity.c).
 */
#include "draft/head_training_internal.h"

/* The rotated part of n_heads heads of `width` floats. */
static struct rotation tails(int32_t n_heads, int64_t width, bool inverse) {
  return (struct rotation){.n_heads = n_heads, .row = n_heads * width, .head = width, .inverse = inverse};
}

/* The latent's norm; in its gradient the rows of d_x are those of [latent | rotated]. */
static struct norm_rows latent_rows(const struct head_training *t, int32_t n) {
  const struct head_sizes *z = &t->sizes;
  return (struct norm_rows){
      .n = n, .dim = z->kv_rank, .eps = z->inner_eps, .x_row = z->kv_rank + z->rope, .dx_row = z->kv_rank + z->rope};
}

static struct norm_rows low_rows(const struct head_training *t, int32_t n) {
  return (struct norm_rows){.n = n, .dim = t->sizes.q_rank, .eps = t->sizes.inner_eps};
}

/* Between keys or values and what kv_b makes: [n, nh, dn + E], a head's plain key first. */
static struct move_heads_params plain_keys(const struct head_training *t, float *out, const float *x) {
  const struct head_sizes *z = &t->sizes;
  int64_t joint = z->nope + z->value;
  return (struct move_heads_params){.out = out,
                                    .x = x,
                                    .n_heads = z->n_heads,
                                    .dim = z->nope,
                                    .out_row = (int64_t)z->n_heads * z->key,
                                    .out_head = z->key,
                                    .x_row = z->n_heads * joint,
                                    .x_head = joint};
}

static struct move_heads_params values(const struct head_training *t, float *out, const float *x) {
  const struct head_sizes *z = &t->sizes;
  struct move_heads_params move = plain_keys(t, out, x + z->nope);
  move.dim = z->value;
  move.out_row = (int64_t)z->n_heads * z->value;
  move.out_head = z->value;
  return move;
}

static struct move_heads_params turned(struct move_heads_params move, float *out, const float *x) {
  return (struct move_heads_params){.out = out,
                                    .x = x,
                                    .n_heads = move.n_heads,
                                    .dim = move.dim,
                                    .out_row = move.x_row,
                                    .out_head = move.x_head,
                                    .x_row = move.out_row,
                                    .x_head = move.out_head};
}

/* The rotated part, one for all heads, between key_raw and keys. */
static struct move_heads_params shared_keys(const struct head_training *t, float *out, const float *x) {
  const struct head_sizes *z = &t->sizes;
  return (struct move_heads_params){.out = out + z->nope,
                                    .x = x + z->kv_rank,
                                    .n_heads = z->n_heads,
                                    .dim = z->rope,
                                    .out_row = (int64_t)z->n_heads * z->key,
                                    .out_head = z->key,
                                    .x_row = z->kv_rank + z->rope};
}

static void move(struct head_training *t, struct move_heads_params params, int32_t n) {
  t->compute->training->move_heads(t->compute, &params, n);
}

static void keys(struct head_training *t, int32_t k, int32_t layer) {
  struct layer_step *s = &t->steps[k].layers[layer];
  const struct head_sizes *z = &t->sizes;
  const struct row_set rows = training_rows_in(t, k);
  training_module_forward(t, (struct module){HEAD_KV_A, layer}, s->key_raw, s->u, rows.n);
  training_rotate(t, s->key_raw + z->kv_rank, &rows, tails(1, z->kv_rank + z->rope, false));
  training_norm_forward(t, (struct module){HEAD_KV_A_NORM, layer}, s->latent, s->key_raw, latent_rows(t, rows.n));
  training_module_forward(t, (struct module){HEAD_KV_B, layer}, t->kv, s->latent, rows.n);
  move(t, plain_keys(t, s->key, t->kv), rows.n);
  move(t, values(t, s->value, t->kv), rows.n);
  move(t, shared_keys(t, s->key, s->key_raw), rows.n);
}

static void keys_back(struct head_training *t, int32_t k, int32_t layer) {
  struct layer_step *s = &t->steps[k].layers[layer];
  const struct head_sizes *z = &t->sizes;
  const struct row_set rows = training_rows_in(t, k);
  const struct norm_rows norm = latent_rows(t, rows.n);
  const struct move_heads_params all = shared_keys(t, s->d_key, t->d_latent);
  struct move_heads_params sum = turned(all, t->d_latent + z->kv_rank, s->d_key + z->nope);
  float *d_normed = s->latent; /* read by kv_b's gradient, then overwritten */
  move(t, turned(plain_keys(t, NULL, t->kv), t->kv, s->d_key), rows.n);
  move(t, turned(values(t, NULL, t->kv), t->kv + z->nope, s->d_value), rows.n);
  training_module_back_w(t, (struct module){HEAD_KV_B, layer}, t->kv, s->latent, rows.n);
  training_module_back_x(t, (struct module){HEAD_KV_B, layer}, d_normed, t->kv, rows.n, 0);
  training_norm_back(t, (struct module){HEAD_KV_A_NORM, layer}, t->d_latent, d_normed, s->key_raw, &norm);
  sum.n_heads = 1;
  move(t, sum, rows.n);
  sum.n_heads = z->n_heads - 1;
  sum.x += z->key;
  sum.accumulate = true;
  move(t, sum, rows.n);
  training_rotate(t, t->d_latent + z->kv_rank, &rows, tails(1, z->kv_rank + z->rope, true));
  training_module_back_w(t, (struct module){HEAD_KV_A, layer}, t->d_latent, s->u, rows.n);
  training_module_back_x(t, (struct module){HEAD_KV_A, layer}, t->d_u, t->d_latent, rows.n, 0);
}

static void queries(struct head_training *t, int32_t k, int32_t layer) {
  struct layer_step *s = &t->steps[k].layers[layer];
  const struct head_sizes *z = &t->sizes;
  const struct row_set rows = training_rows_out(t, k, layer);
  if (z->q_rank > 0) {
    training_module_forward(t, (struct module){HEAD_Q_A, layer}, s->q_raw, s->u_out, rows.n);
    training_norm_forward(t, (struct module){HEAD_Q_A_NORM, layer}, s->q_low, s->q_raw, low_rows(t, rows.n));
    training_module_forward(t, (struct module){HEAD_Q_B, layer}, s->q, s->q_low, rows.n);
  } else {
    training_module_forward(t, (struct module){HEAD_Q, layer}, s->q, s->u_out, rows.n);
  }
  training_rotate(t, s->q + z->nope, &rows, tails(z->n_heads, z->key, false));
}

static void queries_back(struct head_training *t, int32_t k, int32_t layer, float *d_x, float beta) {
  struct layer_step *s = &t->steps[k].layers[layer];
  const struct head_sizes *z = &t->sizes;
  const struct row_set rows = training_rows_out(t, k, layer);
  const struct norm_rows norm = low_rows(t, rows.n);
  training_rotate(t, t->d_q + z->nope, &rows, tails(z->n_heads, z->key, true));
  struct module first = {z->q_rank > 0 ? HEAD_Q_A : HEAD_Q, layer};
  const float *d_first = t->d_q;
  if (z->q_rank > 0) {
    training_module_back_w(t, (struct module){HEAD_Q_B, layer}, t->d_q, s->q_low, rows.n);
    training_module_back_x(t, (struct module){HEAD_Q_B, layer}, t->d_low, t->d_q, rows.n, 0);
    training_norm_back(t, (struct module){HEAD_Q_A_NORM, layer}, t->d_low, t->d_low, s->q_raw, &norm);
    d_first = t->d_low;
  }
  training_module_back_w(t, first, d_first, s->u_out, rows.n);
  training_module_back_x(t, first, d_x, d_first, rows.n, beta);
}

const struct attention_form training_attention_latent = {
    .keys = keys, .queries = queries, .keys_back = keys_back, .queries_back = queries_back};
