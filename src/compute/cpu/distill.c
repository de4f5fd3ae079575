/* distill.c - softmax, and the training objectives on the draft vocabulary (compute/training.h has their formulas) with their gradient in
 * place of the logits. */
#include "compute/cpu/cpu.h"

#include <math.h>

void cpu_softmax(struct compute *compute, float *logits, int32_t n, int32_t dim) {
  struct cpu_compute *c = cpu_of(compute);
  int team = cpu_team(c, (double)n * dim * 12);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < n; i++) c->kernels->softmax(logits + (int64_t)i * dim, dim);
}

void cpu_log_sums(struct compute *compute, float *out, const float *x, int32_t n, int32_t dim) {
  struct cpu_compute *c = cpu_of(compute);
  int team = cpu_team(c, (double)n * dim * 12);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < n; i++) out[i] = c->kernels->log_sum(x + (int64_t)i * dim, dim);
}

static int32_t best_of(const float *x, int32_t n) {
  int32_t best = 0;
  for (int32_t k = 1; k < n; k++) best = x[k] > x[best] ? k : best;
  return best;
}

#define ACCEPTANCE_LEAST 1e-30f /* only so that no logarithm of zero is taken: alpha's gradient is never longer than 2 */

/* One row after its softmax; p = scale * s. */
struct distilled {
  float *q;           /* [Vd] the draft's probabilities, then the gradient */
  const float *s;     /* [Vd] */
  int32_t n;
  float kl_scale;     /* p of kl is kl_scale * s */
  float accept_scale; /* p of the acceptance in the loss is accept_scale * s */
  float acceptance, covered;
};

/* g = weight * (q - s): of kl, weight already times the mass. */
static void kl_gradient(const struct distilled *r, float weight) {
  for (int32_t v = 0; v < r->n; v++) r->q[v] = (r->q[v] - r->s[v]) * weight;
}

static void label_gradient(const struct distilled *r, int32_t label, float weight) {
  float kept = label >= 0 ? weight : 0.0f;
  for (int32_t v = 0; v < r->n; v++) r->q[v] *= kept;
  if (label >= 0) r->q[label] -= weight;
}

/* g = kl_weight * (q - s) + weight * q (c - [q <= p]) */
static void acceptance_gradient(const struct distilled *r, float kl_weight, float weight) {
  for (int32_t v = 0; v < r->n; v++) {
    float q = r->q[v], s = r->s[v], pull = q <= r->accept_scale * s ? r->covered - 1.0f : r->covered;
    r->q[v] = kl_weight * (q - s) + weight * q * pull;
  }
}

/* Loss of one row; its probabilities become the gradient. cross_entropy: -sum_v s_v log q_v. */
static float distill_loss(const struct distilled *r, const struct objective *o, float cross_entropy, float weight) {
  float kl = r->kl_scale * cross_entropy;
  if (o->loss == EAGLET_LOSS_LK_ALPHA) {
    float a = r->acceptance > ACCEPTANCE_LEAST ? r->acceptance : ACCEPTANCE_LEAST;
    acceptance_gradient(r, 0.0f, weight / a);
    return -logf(a);
  }
  if (o->loss == EAGLET_LOSS_LK_LAMBDA) {
    float w = o->kl_scale * expf(-o->kl_decay * r->acceptance);
    acceptance_gradient(r, weight * w * r->kl_scale, weight * (1.0f - w));
    return w * kl + (1.0f - w) * (1.0f - r->acceptance);
  }
  kl_gradient(r, weight * r->kl_scale);
  return kl;
}

static void distill_row(struct cpu_compute *c, const struct distill_params *p, int32_t i) {
  const struct objective *o = &p->objective;
  int32_t row = p->target_row[i];
  float *logits = p->logits + (int64_t)i * p->n_vocab;
  const float *target = p->target + (int64_t)row * p->n_vocab;
  float mass = p->mass ? p->mass[row] : 1.0f, expected = c->kernels->dot(target, logits, p->n_vocab);
  int32_t choice = p->choice ? p->choice[row] : best_of(target, p->n_vocab), label = p->label ? p->label[row] : choice;
  p->hit[i] = best_of(logits, p->n_vocab) == choice;
  float at_label = label >= 0 ? logits[label] : 0.0f, log_sum = c->kernels->softmax(logits, p->n_vocab);
  struct distilled r = {.q = logits,
                        .s = target,
                        .n = p->n_vocab,
                        .kl_scale = o->outside == EAGLET_OUTSIDE_RESIDUAL ? mass : 1.0f,
                        .accept_scale = o->outside == EAGLET_OUTSIDE_RENORMALISE ? 1.0f : mass};
  bool aims = o->loss == EAGLET_LOSS_LK_ALPHA || o->loss == EAGLET_LOSS_LK_LAMBDA;
  if (aims || p->acceptance) r.acceptance = c->kernels->overlap(&r.covered, target, logits, r.accept_scale, p->n_vocab);
  if (p->acceptance) {
    float ignored;
    p->acceptance[i] = r.accept_scale == mass ? r.acceptance : c->kernels->overlap(&ignored, target, logits, mass, p->n_vocab);
  }
  if (o->loss == EAGLET_LOSS_CE) {
    label_gradient(&r, label, p->weight[i]);
    p->loss[i] = label >= 0 ? log_sum - at_label : 0.0f;
  } else {
    p->loss[i] = distill_loss(&r, o, log_sum - expected, p->weight[i]);
  }
}

void cpu_distill(struct compute *compute, const struct distill_params *p) {
  struct cpu_compute *c = cpu_of(compute);
  int team = cpu_team(c, (double)p->n * p->n_vocab * 16);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < p->n; i++) distill_row(c, p, i);
}
