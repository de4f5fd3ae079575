/* head_training_layer.c - a decoder layer of the training step, forward and backward; see head_training_internal.h. Knows neither what the first
 * layer reads nor which kind of attention it is. */
#include "draft/head_training_internal.h"

#include <string.h>

static const struct attention_form *form_of(const struct head_training *t) {
  return t->config.attention == ATTENTION_MLA ? &training_attention_latent : &training_attention_grouped;
}

struct row_set training_rows_in(const struct head_training *t, int32_t k) {
  const struct step *s = &t->steps[k];
  return (struct row_set){
      .n = s->n_in, .slot = s->slot_in, .row_in = s->slot_in, .position = s->position_in, .first = s->first_in};
}

/* At step 0 slots are their own rows; later in-rows and active rows are the same. */
struct row_set training_rows_out(const struct head_training *t, int32_t k, int32_t layer) {
  const struct step *s = &t->steps[k];
  if (k == 0 && layer < t->n_layers - 1) return training_rows_in(t, k);
  return (struct row_set){.n = s->n, .slot = s->slot, .row_in = s->row_in, .position = s->position, .first = s->first};
}

static bool narrows(const struct head_training *t, int32_t k, int32_t layer) {
  return k == 0 && layer == t->n_layers - 1;
}

/* ---- attention ---- */

static struct ttt_attention_params attention_of(const struct head_training *t, int32_t k, int32_t layer, const float **keys,
                                                const float **values) {
  const struct layer_step *s = &t->steps[k].layers[layer];
  const struct row_set rows = training_rows_out(t, k, layer);
  for (int32_t j = 0; j <= k; j++) {
    keys[j] = t->steps[j].layers[layer].key;
    values[j] = t->steps[j].layers[layer].value;
  }
  return (struct ttt_attention_params){.n = rows.n,
                                       .n_heads = t->sizes.n_heads,
                                       .n_kv_heads = t->sizes.n_kv_heads,
                                       .head_dim = t->sizes.key,
                                       .value_dim = t->sizes.value,
                                       .window = t->config.window[layer],
                                       .n_steps = k,
                                       .slot = rows.slot,
                                       .first = rows.first,
                                       .step_row = (const int32_t *const *)t->steps[k].in_step,
                                       .q = s->q,
                                       .key = keys,
                                       .value = values,
                                       .scale = t->sizes.scale,
                                       .out = s->attended,
                                       .log_sum = s->log_sum};
}

static void attention_forward(struct head_training *t, int32_t k, int32_t layer) {
  struct layer_step *s = &t->steps[k].layers[layer];
  const struct row_set rows = training_rows_out(t, k, layer);
  const struct gather_params wide = {.dim = layer == 0 ? 2 * t->sizes.h : t->sizes.h};
  const float *keys[STEPS_MAX + 1], *values[STEPS_MAX + 1];
  form_of(t)->keys(t, k, layer);
  if (narrows(t, k, layer)) t->compute->gather_rows(t->compute, s->u_out, s->u, rows.row_in, rows.n, &wide);
  form_of(t)->queries(t, k, layer);
  const struct ttt_attention_params attention = attention_of(t, k, layer, keys, values);
  t->compute->training->ttt_attention(t->compute, &attention);
  training_module_forward(t, (struct module){HEAD_O, layer}, s->y, s->attended, rows.n);
}

/* stream, the gradient of y, to d_u. */
static void attention_back(struct head_training *t, int32_t k, int32_t layer) {
  struct layer_step *s = &t->steps[k].layers[layer];
  const struct row_set rows = training_rows_out(t, k, layer);
  const struct module o = {HEAD_O, layer};
  const float *keys[STEPS_MAX + 1], *values[STEPS_MAX + 1];
  float *d_keys[STEPS_MAX + 1], *d_values[STEPS_MAX + 1];
  training_module_back_w(t, o, t->stream, s->attended, rows.n);
  training_module_back_x(t, o, t->d_attended, t->stream, rows.n, 0);
  for (int32_t j = 0; j <= k; j++) {
    d_keys[j] = t->steps[j].layers[layer].d_key;
    d_values[j] = t->steps[j].layers[layer].d_value;
  }
  const struct ttt_attention_backward_params back = {.forward = attention_of(t, k, layer, keys, values),
                                                     .d_out = t->d_attended,
                                                     .d_q = t->d_q,
                                                     .d_key = d_keys,
                                                     .d_value = d_values};
  t->compute->training->ttt_attention_backward(t->compute, &back);
  form_of(t)->keys_back(t, k, layer);
  if (!narrows(t, k, layer)) {
    form_of(t)->queries_back(t, k, layer, t->d_u, 1);
    return;
  }
  form_of(t)->queries_back(t, k, layer, s->u_out, 0); /* u_out is read before it is overwritten */
  t->compute->training->scatter_add_rows(t->compute, t->d_u, s->u_out, rows.row_in, rows.n,
                                         layer == 0 ? 2 * t->sizes.h : t->sizes.h);
}

/* ---- feed-forward ---- */

static struct norm_rows plain_rows(const struct head_training *t, int32_t n, bool accumulate) {
  return (struct norm_rows){.n = n, .dim = t->sizes.h, .eps = t->sizes.eps, .accumulate = accumulate};
}

static void ffn_forward(struct head_training *t, struct layer_step *s, int32_t layer, int32_t n) {
  training_norm_forward(t, (struct module){HEAD_POST_NORM, layer}, s->y_normed, s->y, plain_rows(t, n, false));
  training_module_forward(t, (struct module){HEAD_GATE, layer}, s->gate, s->y_normed, n);
  training_module_forward(t, (struct module){HEAD_UP, layer}, s->up, s->y_normed, n);
  t->compute->silu_mul(t->compute, s->act, s->gate, s->up, (int64_t)n * t->sizes.inter);
  training_module_forward(t, (struct module){HEAD_DOWN, layer}, s->z, s->act, n);
  t->compute->add(t->compute, s->z, s->z, s->y, (int64_t)n * t->sizes.h);
}

/* stream: from the gradient of z to that of y. */
static void ffn_back(struct head_training *t, struct layer_step *s, int32_t layer, int32_t n) {
  const struct module gate = {HEAD_GATE, layer}, up = {HEAD_UP, layer}, down = {HEAD_DOWN, layer};
  const struct norm_rows rows = plain_rows(t, n, true);
  float *d_act = t->scratch_i, *d_up = t->scratch_i2, *d_normed = t->spare;
  training_module_back_x(t, down, d_act, t->stream, n, 0);
  training_module_back_w(t, down, t->stream, s->act, n);
  t->compute->training->silu_mul_backward(t->compute, s->act, d_up, d_act, s->gate, s->up,
                                          (int64_t)n * t->sizes.inter); /* act becomes d_gate */
  training_module_back_w(t, gate, s->act, s->y_normed, n);
  training_module_back_w(t, up, d_up, s->y_normed, n);
  training_module_back_x(t, gate, d_normed, s->act, n, 0);
  training_module_back_x(t, up, d_normed, d_up, n, 1);
  training_norm_back(t, (struct module){HEAD_POST_NORM, layer}, t->stream, d_normed, s->y, &rows);
}

/* ---- the layer ---- */

/* y += the residual stream that entered, of the out-rows. */
static void add_residual(struct head_training *t, int32_t k, int32_t layer) {
  const struct step *step = &t->steps[k];
  struct layer_step *s = &step->layers[layer];
  const struct row_set rows = training_rows_out(t, k, layer);
  const bool normed = layer == 0 && t->config.wiring.norm_before_residual;
  const float *from = layer > 0 ? s->x : normed ? step->u + t->sizes.h : step->g;
  const struct gather_params gather = {.dim = t->sizes.h, .x_row = normed ? 2 * t->sizes.h : 0};
  t->compute->gather_rows(t->compute, t->spare, from, rows.row_in, rows.n, &gather);
  t->compute->add(t->compute, s->y, s->y, t->spare, (int64_t)rows.n * t->sizes.h);
}

void training_layer_forward(struct head_training *t, int32_t k, int32_t layer) {
  struct layer_step *s = &t->steps[k].layers[layer];
  int32_t n_in = t->steps[k].n_in;
  if (layer > 0) {
    s->x = s[-1].z;
    training_norm_forward(t, (struct module){HEAD_INPUT_NORM, layer}, s->u, s->x, plain_rows(t, n_in, false));
  }
  attention_forward(t, k, layer);
  add_residual(t, k, layer);
  ffn_forward(t, s, layer, training_rows_out(t, k, layer).n);
}

/* stream of the out-rows becomes stream of the in-rows. */
static void widen(struct head_training *t, const struct step *s) {
  float *wide = t->spare;
  memset(wide, 0, sizeof(float) * (size_t)s->n_in * (size_t)t->sizes.h);
  t->compute->training->scatter_add_rows(t->compute, wide, t->stream, s->row_in, s->n, t->sizes.h);
  t->spare = t->stream;
  t->stream = wide;
}

void training_layer_back(struct head_training *t, int32_t k, int32_t layer) {
  struct step *step = &t->steps[k];
  struct layer_step *s = &step->layers[layer];
  const struct norm_rows rows = plain_rows(t, step->n_in, true);
  ffn_back(t, s, layer, training_rows_out(t, k, layer).n);
  attention_back(t, k, layer);
  if (narrows(t, k, layer)) widen(t, step);
  if (layer > 0) training_norm_back(t, (struct module){HEAD_INPUT_NORM, layer}, t->stream, t->d_u, s->x, &rows);
}
