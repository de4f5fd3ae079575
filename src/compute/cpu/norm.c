/* norm.c - RMS normalisation, forward and backward, and layer normalisation. */
#include "compute/cpu/cpu.h"

#include <math.h>

struct norm_args {
  float *out;
  const float *x, *w;
  int64_t x_row, out_row;
  const struct norm_params *p;
};

static const float *row_weights(const struct norm_args *a, int64_t row) {
  return a->p->w_rows > 1 ? a->w + row % a->p->w_rows * a->p->dim : a->w;
}

static void norm_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  const struct norm_args *a = args;
  for (int64_t i = begin; i < end; i++)
    c->kernels->rms_norm(a->out + i * a->out_row, a->x + i * a->x_row, row_weights(a, i), a->p->dim, a->p->eps);
}

static void layer_norm_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  const struct norm_args *a = args;
  for (int64_t i = begin; i < end; i++)
    c->kernels->layer_norm(a->out + i * a->out_row, a->x + i * a->x_row, row_weights(a, i), a->p);
}

static void each_row(struct compute *compute, struct norm_args args, int32_t n, cpu_body *body) {
  const struct norm_params *p = args.p;
  args.x_row = p->x_row ? p->x_row : p->dim;
  args.out_row = p->out_row ? p->out_row : p->dim;
  cpu_for(cpu_of(compute), 4.0 * p->dim, n, body, &args);
}

void cpu_rms_norm(struct compute *compute, float *out, const float *x, const float *w, int32_t n,
                  const struct norm_params *p) {
  each_row(compute, (struct norm_args){.out = out, .x = x, .w = w, .p = p}, n, norm_rows);
}

void cpu_layer_norm(struct compute *compute, float *out, const float *x, const float *w, int32_t n,
                    const struct norm_params *p) {
  each_row(compute, (struct norm_args){.out = out, .x = x, .w = w, .p = p}, n, layer_norm_rows);
}

/* ---- backward: with s = 1/sqrt(mean(x^2) + eps) and g = d_y * w,
 * d_x = s * (g - x * s^2 * mean(g * x));  d_w += sum over rows of d_y * x * s. ---- */

#define SCALE_ROWS 256 /* rows whose s wait on the stack between the passes */

struct backward_args {
  float *d_x, *d_w;
  const float *d_y, *x, *w;
  float *scale; /* [n] */
  int32_t n;
  int64_t x_row, dy_row, dx_row;
  const struct norm_backward_params *p;
};

static void scale_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  const struct backward_args *a = args;
  for (int64_t i = begin; i < end; i++) {
    const float *x = a->x + i * a->x_row;
    a->scale[i] = 1.0f / sqrtf(c->kernels->dot(x, x, a->p->dim) / (float)a->p->dim + a->p->eps);
  }
}

/* Columns are split over threads, so the sum over rows keeps one order. */
static void weight_columns(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct backward_args *a = args;
  for (int32_t i = 0; i < a->n; i++) {
    const float *x = a->x + i * a->x_row, *d_y = a->d_y + i * a->dy_row;
    float s = a->scale[i];
    for (int64_t k = begin; k < end; k++) a->d_w[k] += d_y[k] * x[k] * s;
  }
}

static void input_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct backward_args *a = args;
  int32_t dim = a->p->dim;
  for (int64_t i = begin; i < end; i++) {
    const float *x = a->x + i * a->x_row, *d_y = a->d_y + i * a->dy_row;
    float *d_x = a->d_x + i * a->dx_row, s = a->scale[i];
    double dot = 0;
    for (int32_t k = 0; k < dim; k++) dot += (double)d_y[k] * a->w[k] * x[k];
    float pull = (float)(dot / dim) * s * s;
    for (int32_t k = 0; k < dim; k++) {
      float d = s * (d_y[k] * a->w[k] - x[k] * pull);
      d_x[k] = a->p->accumulate_x ? d_x[k] + d : d;
    }
  }
}

void cpu_rms_norm_backward(struct compute *compute, float *d_x, float *d_w, const float *d_y, const float *x,
                           const float *w, int32_t n, const struct norm_backward_params *p) {
  struct cpu_compute *c = cpu_of(compute);
  float scale[SCALE_ROWS];
  struct backward_args a = {.d_w = d_w,
                            .w = w,
                            .scale = scale,
                            .p = p,
                            .x_row = p->x_row ? p->x_row : p->dim,
                            .dy_row = p->dy_row ? p->dy_row : p->dim,
                            .dx_row = p->dx_row ? p->dx_row : p->dim};
  for (int32_t i = 0; i < n; i += SCALE_ROWS) {
    a.n = n - i < SCALE_ROWS ? n - i : SCALE_ROWS;
    a.x = x + i * a.x_row;
    a.d_y = d_y + i * a.dy_row;
    a.d_x = d_x + i * a.dx_row;
    cpu_for(c, p->dim, a.n, scale_rows, &a);
    cpu_for(c, a.n, p->dim, weight_columns, &a); /* before d_x, which may be the same memory as d_y */
    cpu_for(c, 4.0 * p->dim, a.n, input_rows, &a);
  }
}
