/* head_training_ops.c - linears, norms and rotations of the training step, forward and backward; see head_training_internal.h. Owns nothing;
 * finds parameters and gradients by name, so that the pieces above speak of parts only. */
#include "draft/head_training_internal.h"

/* ---- places ---- */

static const struct head_parameter *place_of(const struct head_training *t, struct module m) {
  return head_parameter_find(&t->places, m.part, m.index);
}

static const float *weights_of(const struct head_training *t, struct module m) {
  const struct head_parameter *place = place_of(t, m);
  return place ? t->parameters + place->offset : NULL;
}

static float *gradients_of(const struct head_training *t, struct module m) {
  const struct head_parameter *place = place_of(t, m);
  return place && !place->frozen ? t->gradients + place->offset : NULL;
}

/* ---- linears with their biases ---- */

/* Only linears that may have a bias are followed by one (enum head_part). NULL: this one has none. */
static const struct head_parameter *bias_of(const struct head_training *t, struct module m) {
  enum head_part bias = m.part + 1;
  return head_part_is_bias(bias) ? head_parameter_find(&t->places, bias, m.index) : NULL;
}

static struct linear linear_of(const struct head_training *t, struct module m, int32_t n) {
  const struct head_parameter *place = place_of(t, m);
  return (struct linear){.n = n, .n_out = (int32_t)place->rows, .n_in = (int32_t)place->columns};
}

void training_module_forward(struct head_training *t, struct module m, float *y, const float *x, int32_t n) {
  struct linear l = linear_of(t, m, n);
  const struct head_parameter *bias = bias_of(t, m);
  linear_forward(t, y, x, weights_of(t, m), l);
  if (bias) t->compute->add_bias(t->compute, y, t->parameters + bias->offset, n, l.n_out);
}

void training_module_back_w(struct head_training *t, struct module m, const float *d_y, const float *x, int32_t n) {
  struct linear l = linear_of(t, m, n);
  const struct head_parameter *bias = bias_of(t, m);
  linear_back_w(t, gradients_of(t, m), d_y, x, l);
  if (bias) t->compute->training->sum_rows(t->compute, t->gradients + bias->offset, d_y, n, l.n_out);
}

void training_module_back_x(struct head_training *t, struct module m, float *d_x, const float *d_y, int32_t n, float beta) {
  linear_back_x(t, d_x, d_y, weights_of(t, m), linear_of(t, m, n), beta);
}

/* ---- norms ---- */

void training_norm_forward(struct head_training *t, struct module m, float *y, const float *x, struct norm_rows rows) {
  const struct norm_params p = {.dim = rows.dim, .eps = rows.eps, .x_row = rows.x_row, .out_row = rows.y_row};
  t->compute->rms_norm(t->compute, y, x, weights_of(t, m), rows.n, &p);
}

void training_norm_back(struct head_training *t, struct module m, float *d_x, const float *d_y, const float *x,
               const struct norm_rows *rows) {
  const struct norm_backward_params p = {.dim = rows->dim,
                                         .eps = rows->eps,
                                         .accumulate_x = rows->accumulate,
                                         .x_row = rows->x_row,
                                         .dy_row = rows->y_row,
                                         .dx_row = rows->dx_row};
  t->compute->training->rms_norm_backward(t->compute, d_x, gradients_of(t, m), d_y, x, weights_of(t, m), rows->n, &p);
}

/* ---- rotation ---- */

void training_rotate(struct head_training *t, float *x, const struct row_set *rows, struct rotation r) {
  const struct rope_params p = {.out = x,
                                .x = x,
                                .out_row = r.row,
                                .x_row = r.row,
                                .out_head = r.head,
                                .x_head = r.head,
                                .n_heads = r.n_heads,
                                .n_pairs = t->rope.n_pairs,
                                .style = t->config.rope.style,
                                .cos = t->rope.cos,
                                .sin = t->rope.sin,
                                .positions = rows->position,
                                .inverse = r.inverse};
  t->compute->rope(t->compute, &p, rows->n);
}
