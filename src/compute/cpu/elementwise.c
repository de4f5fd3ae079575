/* elementwise.c - embedding rows, sums, the gated activation (with its backward), gathers and argmax. */
#include "compute/cpu/cpu.h"

#include <math.h>
#include <string.h>

void cpu_embed(struct compute *c, float *out, const struct weight *table, const int32_t *ids, int32_t n) {
  (void)c;
  for (int32_t i = 0; i < n; i++) weight_row_to_f32(table, ids[i], out + (int64_t)i * table->n_in);
}

void cpu_add(struct compute *compute, float *out, const float *a, const float *b, int64_t n_floats) {
  int team = cpu_team(cpu_of(compute), (double)n_floats);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int64_t i = 0; i < n_floats; i++) out[i] = a[i] + b[i];
}

void cpu_add_bias(struct compute *c, float *x, const float *bias, int32_t n, int32_t dim) {
  (void)c;
  for (int32_t i = 0; i < n; i++) {
    for (int32_t k = 0; k < dim; k++) x[(int64_t)i * dim + k] += bias[k];
  }
}

#define CHUNK 4096 /* floats; a multiple of sixteen, so a value's place among the lanes is its own index */

void cpu_silu_mul(struct compute *compute, float *out, const float *gate, const float *up, int64_t n_floats) {
  struct cpu_compute *c = cpu_of(compute);
  int team = cpu_team(c, (double)n_floats * 12);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int64_t i = 0; i < n_floats; i += CHUNK) {
    c->kernels->silu_mul(out + i, gate + i, up + i, n_floats - i < CHUNK ? n_floats - i : CHUNK);
  }
}

void cpu_silu_mul_backward(struct compute *compute, float *d_gate, float *d_up, const float *d_out, const float *gate, const float *up,
                           int64_t n_floats) {
  int team = cpu_team(cpu_of(compute), (double)n_floats * 30);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int64_t i = 0; i < n_floats; i++) {
    float d = d_out[i], g = gate[i], u = up[i];
    float s = 1.0f / (1.0f + expf(-g));
    d_up[i] = d * g * s;
    d_gate[i] = d * u * s * (1.0f + g * (1.0f - s));
  }
}

void cpu_gather_rows(struct compute *compute, float *out, const float *x, const int32_t *rows, int32_t n, const struct gather_params *p) {
  int64_t x_row = p->x_row ? p->x_row : p->dim, out_row = p->out_row ? p->out_row : p->dim;
  int team = cpu_team(cpu_of(compute), (double)n * p->dim);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < n; i++) memcpy(out + i * out_row, x + rows[i] * x_row, sizeof(float) * (size_t)p->dim);
}

void cpu_argmax(struct compute *compute, int32_t *out, const float *x, int32_t n, int32_t dim) {
  int team = cpu_team(cpu_of(compute), (double)n * dim);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < n; i++) {
    const float *row = x + (int64_t)i * dim;
    int32_t best = 0;
    for (int32_t k = 1; k < dim; k++) best = row[k] > row[best] ? k : best;
    out[i] = best;
  }
}
