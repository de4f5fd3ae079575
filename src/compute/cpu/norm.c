/* norm.c - RMS normalisation, forward and backward. */
#include "compute/cpu/cpu.h"

#include <math.h>

void cpu_rms_norm(struct compute *compute, float *out, const float *x, const float *w, int32_t n, const struct norm_params *p) {
  struct cpu_compute *c = cpu_of(compute);
  int64_t x_row = p->x_row ? p->x_row : p->dim, out_row = p->out_row ? p->out_row : p->dim;
  int team = cpu_team(c, (double)n * p->dim * 4);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < n; i++) c->kernels->rms_norm(out + i * out_row, x + i * x_row, w, p->dim, p->eps);
}

/* With s = 1/sqrt(mean(x^2) + eps) and g = d_y * w:  d_x = s * (g - x * s^2 * mean(g * x));  d_w += sum over rows of d_y * x * s. */
static void row_backward(float *d_x, const float *d_y, const float *x, const float *w, const struct norm_backward_params *p) {
  double squares = 0, dot = 0;
  for (int32_t k = 0; k < p->dim; k++) {
    squares += (double)x[k] * x[k];
    dot += (double)d_y[k] * w[k] * x[k];
  }
  float s = (float)(1.0 / sqrt(squares / p->dim + p->eps));
  float pull = (float)(dot / p->dim) * s * s;
  for (int32_t k = 0; k < p->dim; k++) {
    float d = s * (d_y[k] * w[k] - x[k] * pull);
    d_x[k] = p->accumulate_x ? d_x[k] + d : d;
  }
}

void cpu_rms_norm_backward(struct compute *compute, float *d_x, float *d_w, const float *d_y, const float *x, const float *w, int32_t n,
                           const struct norm_backward_params *p) {
  struct cpu_compute *c = cpu_of(compute);
  int64_t x_row = p->x_row ? p->x_row : p->dim, dy_row = p->dy_row ? p->dy_row : p->dim, dx_row = p->dx_row ? p->dx_row : p->dim;
  int team = cpu_team(c, (double)n * p->dim * 8);
  /* d_w first: d_x may be the same memory as d_y. Columns are split over threads, so the sum over rows keeps one order. */
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t block = 0; block < (p->dim + 63) / 64; block++) {
    int32_t end = block * 64 + 64 < p->dim ? block * 64 + 64 : p->dim;
    for (int32_t i = 0; i < n; i++) {
      const float *xi = x + i * x_row, *di = d_y + i * dy_row;
      double squares = 0;
      for (int32_t k = 0; k < p->dim; k++) squares += (double)xi[k] * xi[k];
      float s = (float)(1.0 / sqrt(squares / p->dim + p->eps));
      for (int32_t k = block * 64; k < end; k++) d_w[k] += di[k] * xi[k] * s;
    }
  }
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < n; i++) row_backward(d_x + i * dx_row, d_y + i * dy_row, x + i * x_row, w, p);
}
