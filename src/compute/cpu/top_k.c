/* top_k.c - the best entries of rows of logits with their log-probabilities; reads the logits, does not change them. */
#include "compute/cpu/cpu.h"

/* An insertion that keeps the list sorted; most entries fail the first comparison. */
static void best_of(int32_t *ids, const float *x, int32_t dim, int32_t k) {
  int32_t n = 0;
  for (int32_t i = 0; i < dim; i++) {
    if (n == k && !(x[i] > x[ids[n - 1]])) continue;
    int32_t at = n < k ? n++ : n - 1;
    for (; at > 0 && x[i] > x[ids[at - 1]]; at--) ids[at] = ids[at - 1];
    ids[at] = i;
  }
}

static void top_k_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  const struct top_k_params *p = args;
  for (int64_t row = begin; row < end; row++) {
    const float *x = p->x + row * p->dim;
    int32_t *ids = p->ids + row * p->k;
    float all = c->kernels->log_sum(x, p->dim);
    if (p->k == 1)
      ids[0] = c->kernels->argmax(x, p->dim);
    else
      best_of(ids, x, p->dim, p->k);
    for (int32_t i = 0; i < p->k; i++) p->log_probabilities[row * p->k + i] = x[ids[i]] - all;
  }
}

void cpu_top_k(struct compute *c, const struct top_k_params *p, int32_t n) {
  ASSERT(p->k >= 1 && p->k <= TOP_K_MAX && p->k <= p->dim);
  cpu_for(cpu_of(c), 12.0 * p->dim, n, top_k_rows, p);
}
