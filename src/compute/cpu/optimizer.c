/* optimizer.c - AdamW, the gradient's norm and the scatter that joins gradients of unrolled steps. */
#include "compute/cpu/cpu.h"

#include <math.h>

void cpu_scatter_add_rows(struct compute *compute, float *out, const float *x, const int32_t *rows, int32_t n, int32_t dim) {
  int team = cpu_team(cpu_of(compute), (double)n * dim * 2);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < n; i++) {
    float *to = out + (int64_t)rows[i] * dim;
    const float *from = x + (int64_t)i * dim;
    for (int32_t k = 0; k < dim; k++) to[k] += from[k];
  }
}

#define BLOCK 65536 /* floats per partial sum: the order does not depend on the threads */

double cpu_sum_squares(struct compute *compute, const float *x, int64_t n) {
  (void)compute;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += BLOCK) {
    int64_t end = begin + BLOCK < n ? begin + BLOCK : n;
    double sums[8] = {0};
    for (int64_t i = begin; i < end; i++) sums[i & 7] += (double)x[i] * x[i];
    for (int k = 0; k < 8; k++) total += sums[k];
  }
  return total;
}

/* Loshchilov & Hutter: decoupled decay; bias correction by step. */
void cpu_adamw(struct compute *compute, float *w, float *m, float *v, const float *g, int64_t n, const struct adamw_params *p) {
  float correct1 = (float)(1.0 / (1.0 - pow(p->beta1, (double)p->step))), correct2 = (float)(1.0 / (1.0 - pow(p->beta2, (double)p->step)));
  float keep = 1.0f - p->lr * p->weight_decay;
  int team = cpu_team(cpu_of(compute), (double)n * 8);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int64_t i = 0; i < n; i++) {
    float d = g[i] * p->grad_scale;
    m[i] = p->beta1 * m[i] + (1.0f - p->beta1) * d;
    v[i] = p->beta2 * v[i] + (1.0f - p->beta2) * d * d;
    w[i] = w[i] * keep - p->lr * (m[i] * correct1) / (sqrtf(v[i] * correct2) + p->eps);
  }
}
