/* distill.c - softmax and the soft cross-entropy on the draft vocabulary, with its gradient in place of the logits. */
#include "compute/cpu/cpu.h"

void cpu_softmax(struct compute *compute, float *logits, int32_t n, int32_t dim) {
  struct cpu_compute *c = cpu_of(compute);
  int team = cpu_team(c, (double)n * dim * 12);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < n; i++) c->kernels->softmax(logits + (int64_t)i * dim, dim);
}

static int32_t best_of(const float *x, int32_t n) {
  int32_t best = 0;
  for (int32_t k = 1; k < n; k++) best = x[k] > x[best] ? k : best;
  return best;
}

/* loss = logsumexp(l) - p . l  (p sums to one);  d loss / d l = softmax(l) - p. */
static void distill_row(struct cpu_compute *c, const struct distill_params *p, int32_t i) {
  float *logits = p->logits + (int64_t)i * p->n_vocab;
  const float *target = p->target + (int64_t)p->target_row[i] * p->n_vocab;
  float expected = c->kernels->dot(target, logits, p->n_vocab);
  p->hit[i] = best_of(logits, p->n_vocab) == best_of(target, p->n_vocab);
  p->loss[i] = c->kernels->softmax(logits, p->n_vocab) - expected;
  float weight = p->weight[i];
  for (int32_t v = 0; v < p->n_vocab; v++) logits[v] = (logits[v] - target[v]) * weight;
}

void cpu_distill(struct compute *compute, const struct distill_params *p) {
  struct cpu_compute *c = cpu_of(compute);
  int team = cpu_team(c, (double)p->n * p->n_vocab * 16);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < p->n; i++) distill_row(c, p, i);
}
