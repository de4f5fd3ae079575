/* head_training_gqa.c - grouped queries in the training step: u to keys, values and queries, and back. Norms per head, where a head has them,
 * stand before the rotation, as in inference. See head_training_internal.h. */
#include "draft/head_training_internal.h"

static struct rotation heads(const struct head_training *t, int32_t n_heads, bool inverse) {
  return (struct rotation){
      .n_heads = n_heads, .row = (int64_t)n_heads * t->sizes.key, .head = t->sizes.key, .inverse = inverse};
}

static struct norm_rows per_head(const struct head_training *t, int32_t n) {
  return (struct norm_rows){.n = n, .dim = t->sizes.key, .eps = t->sizes.eps};
}

static void keys(struct head_training *t, int32_t k, int32_t layer) {
  struct layer_step *s = &t->steps[k].layers[layer];
  const struct row_set rows = training_rows_in(t, k);
  training_module_forward(t, (struct module){HEAD_K, layer}, s->key_raw ? s->key_raw : s->key, s->u, rows.n);
  training_module_forward(t, (struct module){HEAD_V, layer}, s->value, s->u, rows.n);
  if (s->key_raw)
    training_norm_forward(t, (struct module){HEAD_K_NORM, layer}, s->key, s->key_raw, per_head(t, rows.n * t->sizes.n_kv_heads));
  training_rotate(t, s->key, &rows, heads(t, t->sizes.n_kv_heads, false));
}

static void queries(struct head_training *t, int32_t k, int32_t layer) {
  struct layer_step *s = &t->steps[k].layers[layer];
  const struct row_set rows = training_rows_out(t, k, layer);
  training_module_forward(t, (struct module){HEAD_Q, layer}, s->q_raw ? s->q_raw : s->q, s->u_out, rows.n);
  if (s->q_raw)
    training_norm_forward(t, (struct module){HEAD_Q_NORM, layer}, s->q, s->q_raw, per_head(t, rows.n * t->sizes.n_heads));
  training_rotate(t, s->q, &rows, heads(t, t->sizes.n_heads, false));
}

static void keys_back(struct head_training *t, int32_t k, int32_t layer) {
  struct layer_step *s = &t->steps[k].layers[layer];
  const struct row_set rows = training_rows_in(t, k);
  const struct norm_rows norm = per_head(t, rows.n * t->sizes.n_kv_heads);
  training_rotate(t, s->d_key, &rows, heads(t, t->sizes.n_kv_heads, true));
  if (s->key_raw) training_norm_back(t, (struct module){HEAD_K_NORM, layer}, s->d_key, s->d_key, s->key_raw, &norm);
  training_module_back_w(t, (struct module){HEAD_K, layer}, s->d_key, s->u, rows.n);
  training_module_back_w(t, (struct module){HEAD_V, layer}, s->d_value, s->u, rows.n);
  training_module_back_x(t, (struct module){HEAD_K, layer}, t->d_u, s->d_key, rows.n, 0);
  training_module_back_x(t, (struct module){HEAD_V, layer}, t->d_u, s->d_value, rows.n, 1);
}

static void queries_back(struct head_training *t, int32_t k, int32_t layer, float *d_x, float beta) {
  struct layer_step *s = &t->steps[k].layers[layer];
  const struct row_set rows = training_rows_out(t, k, layer);
  const struct norm_rows norm = per_head(t, rows.n * t->sizes.n_heads);
  training_rotate(t, t->d_q, &rows, heads(t, t->sizes.n_heads, true));
  if (s->q_raw) training_norm_back(t, (struct module){HEAD_Q_NORM, layer}, t->d_q, t->d_q, s->q_raw, &norm);
  training_module_back_w(t, (struct module){HEAD_Q, layer}, t->d_q, s->u_out, rows.n);
  training_module_back_x(t, (struct module){HEAD_Q, layer}, d_x, t->d_q, rows.n, beta);
}

const struct attention_form training_attention_grouped = {
    .keys = keys, .queries = queries, .keys_back = keys_back, .queries_back = queries_back};
