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

const float *parameter(const struct head_training *t, const float *block, enum head_part part) {
  return block + place_of(t, (struct module){part, 0})->offset;
}

float *gradient(const struct head_training *t, float *block, enum head_part part) {
  const struct head_parameter *place = place_of(t, (struct module){part, 0});
  return place && !place->frozen ? block + place->offset : NULL;
}

/* ---- linears: y = x W^T, dx = dy W, dW += dy^T x ---- */

void linear_forward(struct head_training *t, float *y, const float *x, const float *w, struct linear l) {
  const struct gemm_params p = {
      .m = l.n, .n = l.n_out, .k = l.n_in, .transpose_b = true, .alpha = 1, .a = x, .b = w, .c = y};
  t->compute->training->gemm(t->compute, &p);
  t->flops += 6.0 * l.n * l.n_out * l.n_in; /* forward, and the two products of its backward */
}

void linear_back_x(struct head_training *t, float *d_x, const float *d_y, const float *w, struct linear l, float beta) {
  const struct gemm_params p = {
      .m = l.n, .n = l.n_in, .k = l.n_out, .alpha = 1, .beta = beta, .a = d_y, .b = w, .c = d_x};
  t->compute->training->gemm(t->compute, &p);
}

/* d_w NULL: frozen. */
void linear_back_w(struct head_training *t, float *d_w, const float *d_y, const float *x, struct linear l) {
  if (!d_w) return;
  const struct gemm_params p = {
      .m = l.n_out, .n = l.n_in, .k = l.n, .transpose_a = true, .alpha = 1, .beta = 1, .a = d_y, .b = x, .c = d_w};
  t->compute->training->gemm(t->compute, &p);
}

/* Only linears that may have a bias are followed by one (enum head_part). NULL: this one has none. */
static const struct head_parameter *bias_of(const struct head_training *t, struct module m) {
  enum head_part bias = m.part + 1;
  return head_part_is_bias(bias) ? head_parameter_find(&t->places, bias, m.index) : NULL;
}

static struct linear linear_of(const struct head_training *t, struct module m, int32_t n) {
  const struct head_parameter *place = place_of(t, m);
  return (struct linear){.n = n, .n_out = (int32_t)place->rows, .n_in = (int32_t)place->columns};
}

void module_forward(struct head_training *t, struct module m, float *y, const float *x, int32_t n) {
  struct linear l = linear_of(t, m, n);
  const struct head_parameter *bias = bias_of(t, m);
  linear_forward(t, y, x, weights_of(t, m), l);
  if (bias) t->compute->add_bias(t->compute, y, t->parameters + bias->offset, n, l.n_out);
}

void module_back_w(struct head_training *t, struct module m, const float *d_y, const float *x, int32_t n) {
  struct linear l = linear_of(t, m, n);
  const struct head_parameter *bias = bias_of(t, m);
  linear_back_w(t, gradients_of(t, m), d_y, x, l);
  if (bias) t->compute->training->sum_rows(t->compute, t->gradients + bias->offset, d_y, n, l.n_out);
}

void module_back_x(struct head_training *t, struct module m, float *d_x, const float *d_y, int32_t n, float beta) {
  linear_back_x(t, d_x, d_y, weights_of(t, m), linear_of(t, m, n), beta);
}

/* ---- norms ---- */

void norm_forward(struct head_training *t, struct module m, float *y, const float *x, struct norm_rows rows) {
  const struct norm_params p = {.dim = rows.dim, .eps = rows.eps, .x_row = rows.x_row, .out_row = rows.y_row};
  t->compute->rms_norm(t->compute, y, x, weights_of(t, m), rows.n, &p);
}

void norm_back(struct head_training *t, struct module m, float *d_x, const float *d_y, const float *x,
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

void rotate(struct head_training *t, float *x, const struct row_set *rows, struct rotation r) {
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
