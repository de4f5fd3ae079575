/* test_objective.c - the training objectives against the plainest code that says what they mean, in double: values, finite differences of
 * every loss with every rule for what lies outside the draft vocabulary, and what the formulas promise about each other. */
#include "compute/training.h"

#include "base/util.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 6, V = 77, TARGETS = 4 };

static int open_compute(void **state) {
  struct compute *c = NULL;
  assert_int_equal(compute_open_cpu(&c, 2, EAGLET_PRECISION_EXACT, NULL), EAGLET_OK);
  *state = c;
  return 0;
}

static int close_compute(void **state) {
  compute_close(*state);
  return 0;
}

struct problem {
  float logits[N * V], found[N * V], target[TARGETS * V], mass[TARGETS], weight[N], loss[N], acceptance[N];
  int32_t choice[TARGETS], label[TARGETS], target_row[N];
  uint8_t hit[N];
  struct distill_params params;
};

/* Logits of drafts that are near their targets (what the minimum selects differs from token to token) and of some that are far. */
static void problem_init(struct problem *p, struct compute *c, const struct objective *o) {
  *p = (struct problem){.mass = {1.0f, 0.875f, 0.25f, 0.6f},
                        .choice = {-2, -2, -1, -2},
                        .weight = {0.5f, 0.25f, 1, 2, 0, 1},
                        .target_row = {0, 1, 2, 3, 1, 3}};
  for (int i = 0; i < TARGETS * V; i++) p->target[i] = 2.0f * (float)random_normal(5, 1, (uint64_t)i);
  for (int i = 0; i < N; i++) {
    for (int v = 0; v < V; v++) {
      float noise = (float)random_normal(5, 2, (uint64_t)(i * V + v));
      p->logits[i * V + v] = (i == 5 ? 3.0f : 0.7f) * noise + (i == 5 ? 0.0f : p->target[p->target_row[i] * V + v]);
    }
  }
  c->training->softmax(c, p->target, TARGETS, V);
  for (int t = 0; t < TARGETS; t++) {
    if (p->choice[t] == -2) {
      p->choice[t] = 0;
      for (int v = 0; v < V; v++) p->choice[t] = p->target[t * V + v] > p->target[t * V + p->choice[t]] ? v : p->choice[t];
    }
    p->label[t] = p->choice[t];
  }
  memcpy(p->found, p->logits, sizeof p->found);
  p->params = (struct distill_params){.n = N,
                                      .n_vocab = V,
                                      .logits = p->found,
                                      .target = p->target,
                                      .mass = p->mass,
                                      .choice = p->choice,
                                      .label = p->label,
                                      .target_row = p->target_row,
                                      .weight = p->weight,
                                      .objective = *o,
                                      .loss = p->loss,
                                      .acceptance = p->acceptance,
                                      .hit = p->hit};
}

/* ---- what the header says, in double ---- */

static void draft_law(const double *logits, double *q) {
  double most = -1e30, sum = 0;
  for (int v = 0; v < V; v++) most = fmax(most, logits[v]);
  for (int v = 0; v < V; v++) sum += q[v] = exp(logits[v] - most);
  for (int v = 0; v < V; v++) q[v] /= sum;
}

static double plain_acceptance(const struct problem *p, int i, const double *logits, double scale) {
  double q[V], sum = 0;
  draft_law(logits, q);
  for (int v = 0; v < V; v++) sum += fmin(scale * p->target[p->target_row[i] * V + v], q[v]);
  return sum;
}

/* w: the weight of lambda's KL, which the caller holds fixed. */
static double plain_loss(const struct problem *p, int i, const double *logits, double w) {
  const struct objective *o = &p->params.objective;
  int row = p->target_row[i];
  double q[V], kl = 0, mass = p->mass[row];
  draft_law(logits, q);
  double kl_scale = o->outside == EAGLET_OUTSIDE_RESIDUAL ? mass : 1;
  double a = plain_acceptance(p, i, logits, o->outside == EAGLET_OUTSIDE_RENORMALISE ? 1 : mass);
  for (int v = 0; v < V; v++) kl -= kl_scale * p->target[row * V + v] * log(q[v]);
  switch (o->loss) {
  case EAGLET_LOSS_CE:
    return p->label[row] >= 0 ? -log(q[p->label[row]]) : 0;
  case EAGLET_LOSS_LK_ALPHA:
    return -log(fmax(a, 1e-30));
  case EAGLET_LOSS_LK_LAMBDA:
    return w * kl + (1 - w) * (1 - a);
  default:
    return kl;
  }
}

static void check_row(const struct problem *p, int i) {
  const struct objective *o = &p->params.objective;
  double logits[V], mass = p->mass[p->target_row[i]];
  for (int v = 0; v < V; v++) logits[v] = p->logits[i * V + v];
  double a = plain_acceptance(p, i, logits, o->outside == EAGLET_OUTSIDE_RENORMALISE ? 1 : mass);
  double w = o->kl_scale * exp(-o->kl_decay * a), expected = plain_loss(p, i, logits, w);
  assert_true(fabs(p->loss[i] - expected) < 1e-5 * fabs(expected) + 1e-6);
  assert_true(fabs(p->acceptance[i] - plain_acceptance(p, i, logits, mass)) < 2e-6);
  double worst = 0, sum = 0;
  for (int v = 0; v < V; v++) {
    double keep = logits[v], side[2];
    for (int d = 0; d < 2; d++) {
      logits[v] = keep + (d ? 1e-5 : -1e-5);
      side[d] = plain_loss(p, i, logits, w);
    }
    logits[v] = keep;
    worst = fmax(worst, fabs(p->weight[i] * (side[1] - side[0]) / 2e-5 - p->found[i * V + v]));
    sum += p->found[i * V + v];
  }
  assert_true(worst < 2e-6);
  assert_true(fabs(sum) < 2e-6); /* a softmax does not feel what is added to all logits */
}

static void test_finite_differences(void **state) {
  for (int loss = EAGLET_LOSS_KL; loss <= EAGLET_LOSS_LK_LAMBDA; loss++) {
    for (int outside = EAGLET_OUTSIDE_DROP; outside <= EAGLET_OUTSIDE_RENORMALISE; outside++) {
      const struct objective o = {
          .loss = (enum eaglet_loss)loss, .outside = (enum eaglet_outside)outside, .kl_scale = 0.9f, .kl_decay = 3};
      struct problem p;
      problem_init(&p, *state, &o);
      ((struct compute *)*state)->training->distill(*state, &p.params);
      for (int i = 0; i < N; i++) check_row(&p, i);
    }
  }
}

/* ---- what the objectives promise about each other ---- */

static struct problem run_loss(struct compute *c, enum eaglet_loss loss, enum eaglet_outside outside, bool one_hot) {
  const struct objective o = {.loss = loss, .outside = outside, .kl_scale = 1, .kl_decay = 3};
  struct problem p;
  problem_init(&p, c, &o);
  for (int t = 0; one_hot && t < TARGETS; t++) {
    memset(p.target + t * V, 0, sizeof(float) * V);
    p.target[t * V + 11 * t] = 1;
    p.choice[t] = p.label[t] = 11 * t;
    p.mass[t] = 1;
  }
  p.params = (struct distill_params){.n = N,
                                     .n_vocab = V,
                                     .logits = p.found,
                                     .target = p.target,
                                     .mass = p.mass,
                                     .choice = p.choice,
                                     .label = p.label,
                                     .target_row = p.target_row,
                                     .weight = p.weight,
                                     .objective = o,
                                     .loss = p.loss,
                                     .acceptance = p.acceptance,
                                     .hit = p.hit};
  c->training->distill(c, &p.params);
  return p;
}

static double most_apart(const float *a, const float *b, int n) {
  double worst = 0;
  for (int i = 0; i < n; i++) worst = fmax(worst, fabs((double)a[i] - b[i]));
  return worst;
}

/* Of a target that is certain, kl, ce and alpha are one loss: -log q_label. */
static void test_certain_targets_agree(void **state) {
  struct problem kl = run_loss(*state, EAGLET_LOSS_KL, EAGLET_OUTSIDE_DROP, true),
                 ce = run_loss(*state, EAGLET_LOSS_CE, EAGLET_OUTSIDE_DROP, true),
                 alpha = run_loss(*state, EAGLET_LOSS_LK_ALPHA, EAGLET_OUTSIDE_DROP, true);
  assert_true(most_apart(kl.loss, ce.loss, N) < 2e-6);
  assert_true(most_apart(kl.found, ce.found, N * V) < 1e-6);
  assert_true(most_apart(alpha.loss, ce.loss, N) < 5e-6);
  assert_true(most_apart(alpha.found, ce.found, N * V) < 2e-6);
}

/* alpha's acceptance is 1 - total variation, the mass outside D counted as a token that the draft never has. */
static void test_acceptance_is_one_minus_variation(void **state) {
  struct problem p = run_loss(*state, EAGLET_LOSS_LK_ALPHA, EAGLET_OUTSIDE_RESIDUAL, false);
  for (int i = 0; i < N; i++) {
    double logits[V], q[V], mass = p.mass[p.target_row[i]], variation = 1 - mass;
    for (int v = 0; v < V; v++) logits[v] = p.logits[i * V + v];
    draft_law(logits, q);
    for (int v = 0; v < V; v++) variation += fabs(mass * p.target[p.target_row[i] * V + v] - q[v]);
    assert_true(fabs(exp(-p.loss[i]) - (1 - variation / 2)) < 2e-6);
    assert_true(fabs(p.acceptance[i] - (1 - variation / 2)) < 2e-6);
  }
}

/* residual's kl is drop's times the mass; lambda with weight one is kl; renormalised targets of mass one are what they are. */
static void test_rules_agree(void **state) {
  struct compute *c = *state;
  struct problem drop = run_loss(c, EAGLET_LOSS_KL, EAGLET_OUTSIDE_DROP, false),
                 residual = run_loss(c, EAGLET_LOSS_KL, EAGLET_OUTSIDE_RESIDUAL, false);
  for (int i = 0; i < N; i++) {
    float mass = drop.mass[drop.target_row[i]];
    assert_true(fabs(residual.loss[i] - mass * drop.loss[i]) < 2e-6);
    for (int v = 0; v < V; v++) assert_true(fabs(residual.found[i * V + v] - mass * drop.found[i * V + v]) < 1e-6);
  }
  const struct objective o = {.loss = EAGLET_LOSS_LK_LAMBDA, .outside = EAGLET_OUTSIDE_DROP, .kl_scale = 1, .kl_decay = 0};
  struct problem lambda;
  problem_init(&lambda, c, &o);
  c->training->distill(c, &lambda.params);
  assert_true(most_apart(lambda.loss, drop.loss, N) < 1e-6 && most_apart(lambda.found, drop.found, N * V) < 1e-6);
  for (int loss = EAGLET_LOSS_LK_ALPHA; loss <= EAGLET_LOSS_LK_LAMBDA; loss++) {
    struct problem a = run_loss(c, (enum eaglet_loss)loss, EAGLET_OUTSIDE_RESIDUAL, true),
                   b = run_loss(c, (enum eaglet_loss)loss, EAGLET_OUTSIDE_RENORMALISE, true);
    assert_memory_equal(a.found, b.found, sizeof a.found);
    assert_memory_equal(a.loss, b.loss, sizeof a.loss);
  }
}

/* A label outside D costs nothing and pulls nowhere; a target whose first choice is outside is never hit. A draft that shares nothing with its
 * target has a finite loss and gradient. */
static void test_edges(void **state) {
  struct compute *c = *state;
  struct problem ce = run_loss(c, EAGLET_LOSS_CE, EAGLET_OUTSIDE_RESIDUAL, false);
  assert_true(ce.loss[2] == 0 && ce.hit[2] == 0);
  for (int v = 0; v < V; v++) assert_true(ce.found[2 * V + v] == 0);
  const struct objective o = {.loss = EAGLET_LOSS_LK_ALPHA};
  struct problem far;
  problem_init(&far, c, &o);
  memset(far.target, 0, sizeof far.target);
  for (int t = 0; t < TARGETS; t++) far.target[t * V] = 1;
  for (int i = 0; i < N; i++) far.found[i * V + 1] = 200;
  c->training->distill(c, &far.params);
  for (int i = 0; i < N; i++) assert_true(fabs(far.loss[i] + log(1e-30)) < 1e-4);
  for (int i = 0; i < N * V; i++) assert_true(isfinite(far.found[i]));
}

static void test_log_sums(void **state) {
  struct compute *c = *state;
  struct problem p;
  problem_init(&p, c, &(const struct objective){.loss = EAGLET_LOSS_KL});
  float found[N];
  p.logits[3 * V + 5] = 95;
  c->training->log_sums(c, found, p.logits, N, V);
  for (int i = 0; i < N; i++) {
    double sum = 0;
    for (int v = 0; v < V; v++) sum += exp((double)p.logits[i * V + v]);
    assert_true(fabs(found[i] - log(sum)) < 2e-5);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_finite_differences), cmocka_unit_test(test_certain_targets_agree),
      cmocka_unit_test(test_acceptance_is_one_minus_variation), cmocka_unit_test(test_rules_agree),
      cmocka_unit_test(test_edges), cmocka_unit_test(test_log_sums),
  };
  return cmocka_run_group_tests_name("objective", tests, open_compute, close_compute);
}
