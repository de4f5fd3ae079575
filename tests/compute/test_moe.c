/* test_moe.c - the router against an fp64 reference (all kinds, groups, ties, the bias trap A23) and the experts
 * against double loops, with the bits of a row compared between groupings, companies and team sizes. */
#include "compute_fixture.h"

/* ---- router ---- */

enum { EXPERTS_MAX = 256, PICKED_MAX = 16 };

static double sigmoid(double x) {
  return 1.0 / (1.0 + exp(-x));
}

static void softmax(double *x, int n) {
  double max = x[0], sum = 0;
  for (int i = 1; i < n; i++) max = fmax(max, x[i]);
  for (int i = 0; i < n; i++) sum += x[i] = exp(x[i] - max);
  for (int i = 0; i < n; i++) x[i] /= sum;
}

static int best_of(const double *x, int n) {
  int best = 0;
  for (int i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
  return best;
}

/* models.md 2.5 and 2.8 in double. gap: the smallest distance between scores that decides a pick. */
struct routed {
  int expert[PICKED_MAX];
  double share[PICKED_MAX], gap;
};

static void mask_groups(double *choice, const struct router_params *p, double *gap) {
  int size = p->n_experts / p->n_groups;
  double score[EXPERTS_MAX];
  bool kept[EXPERTS_MAX] = {false};
  for (int g = 0; g < p->n_groups; g++) {
    double sorted[EXPERTS_MAX];
    memcpy(sorted, choice + g * size, sizeof(double) * (size_t)size);
    int first = best_of(sorted, size);
    score[g] = sorted[first];
    sorted[first] = -INFINITY;
    if (p->kind == ROUTER_SIGMOID_BIAS && size > 1) score[g] += sorted[best_of(sorted, size)];
  }
  for (int i = 0; i < p->n_groups_picked; i++) {
    int g = best_of(score, p->n_groups);
    kept[g] = true;
    double picked = score[g];
    score[g] = -INFINITY;
    *gap = fmin(*gap, picked - score[best_of(score, p->n_groups)]);
  }
  for (int e = 0; e < p->n_experts; e++) choice[e] = kept[e / size] ? choice[e] : -INFINITY;
}

static struct routed route(const struct router_params *p, int row) {
  struct routed r = {.gap = INFINITY};
  double share[EXPERTS_MAX], choice[EXPERTS_MAX], sum = 0;
  for (int e = 0; e < p->n_experts; e++) {
    double logit = p->logits[row * p->n_experts + e];
    share[e] = p->kind == ROUTER_SIGMOID_BIAS ? sigmoid(logit) : logit;
  }
  if (p->kind == ROUTER_SOFTMAX_ALL) softmax(share, p->n_experts);
  for (int e = 0; e < p->n_experts; e++) choice[e] = share[e] + (p->bias ? (double)p->bias[e] : 0);
  if (p->n_groups > 1) mask_groups(choice, p, &r.gap);
  for (int k = 0; k < p->n_picked; k++) {
    int e = best_of(choice, p->n_experts);
    double score = choice[e];
    choice[e] = -INFINITY;
    r.expert[k] = e;
    r.share[k] = share[e];
    r.gap = fmin(r.gap, score - choice[best_of(choice, p->n_experts)]);
  }
  if (p->kind == ROUTER_TOPK_SOFTMAX) softmax(r.share, p->n_picked);
  for (int k = 0; k < p->n_picked; k++) sum += r.share[k];
  for (int k = 0; k < p->n_picked; k++) r.share[k] *= p->scale / (p->normalise ? sum + 1e-20 : 1);
  return r;
}

enum { ROUTER_ROWS = 300 };

/* Returns how many rows were clear enough to be compared. */
static int check_router(struct compute *c, struct router_params *p, double gap_min) {
  int32_t expert[ROUTER_ROWS * PICKED_MAX];
  float share[ROUTER_ROWS * PICKED_MAX];
  int compared = 0;
  p->expert = expert;
  p->share = share;
  c->router(c, p, ROUTER_ROWS);
  for (int row = 0; row < ROUTER_ROWS; row++) {
    struct routed r = route(p, row);
    if (r.gap < gap_min) continue;
    compared++;
    for (int k = 0; k < p->n_picked; k++) {
      assert_int_equal(expert[row * p->n_picked + k], r.expert[k]);
      fixture_near(share[row * p->n_picked + k], r.share[k], 2e-6 * fabs(p->scale), "share", k);
    }
  }
  return compared;
}

static void check_routers(struct compute *c) {
  static const struct {
    int32_t n_experts, n_picked, n_groups, n_groups_picked;
  } shapes[] = {{16, 4, 1, 1}, {64, 6, 1, 1}, {32, 8, 8, 4}, {160, 6, 8, 3}, {5, 5, 1, 1}, {8, 1, 0, 0}, {7, 2, 7, 2}};
  float *logits = fixture_noise(ROUTER_ROWS * EXPERTS_MAX, 41), *bias = fixture_noise(EXPERTS_MAX, 42);
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    for (int bits = 0; bits < 12; bits++) {
      struct router_params p = {.logits = logits,
                                .bias = bits & 1 ? bias : NULL,
                                .n_experts = shapes[s].n_experts,
                                .n_picked = shapes[s].n_picked,
                                .n_groups = shapes[s].n_groups,
                                .n_groups_picked = shapes[s].n_groups_picked,
                                .kind = (enum router_kind)(bits / 4),
                                .normalise = bits & 2,
                                .scale = 2.5f};
      assert_true(check_router(c, &p, 1e-5) > ROUTER_ROWS / 2);
    }
  }
  free(logits);
  free(bias);
}

static void test_router(void **state) {
  (void)state;
  fixture_each(check_routers);
}

/* Equal scores: lowest id first, groups likewise. */
static void check_ties(struct compute *c) {
  const float logits[8] = {0, 1, 1, 0, 1, 1, 0, 0};
  int32_t expert[5];
  float share[5];
  struct router_params p = {.expert = expert,
                            .share = share,
                            .logits = logits,
                            .n_experts = 8,
                            .n_picked = 5,
                            .n_groups = 1,
                            .n_groups_picked = 1,
                            .scale = 1};
  static const int32_t plain[] = {1, 2, 4, 5, 0}, grouped[] = {1, 2, 0, 3};
  for (int kind = 0; kind < 3; kind++) {
    p.kind = (enum router_kind)kind;
    p.n_picked = 5;
    p.n_groups = p.n_groups_picked = 1;
    c->router(c, &p, 1);
    assert_memory_equal(expert, plain, sizeof plain);
    p.n_picked = 4;
    p.n_groups = 2;
    c->router(c, &p, 1);
    assert_memory_equal(expert, grouped, sizeof grouped);
  }
}

static void test_router_ties(void **state) {
  (void)state;
  fixture_each(check_ties);
}

/* Masking is by -inf, not by zero: with negative scores in the kept group a masked expert must not come back. */
static void check_mask(struct compute *c) {
  const float logits[4] = {3, 3, -4, -4}, bias[4] = {-9, -9, -2, -2};
  int32_t expert[2];
  float share[2];
  const struct router_params p = {.expert = expert,
                                  .share = share,
                                  .logits = logits,
                                  .bias = bias,
                                  .n_experts = 4,
                                  .n_picked = 2,
                                  .n_groups = 2,
                                  .n_groups_picked = 1,
                                  .scale = 1};
  c->router(c, &p, 1);
  assert_int_equal(expert[0], 2);
  assert_int_equal(expert[1], 3);
}

static void test_router_mask(void **state) {
  (void)state;
  fixture_each(check_mask);
}

/* A23: 238 experts, biases that bf16 would fold into nine values. */
static void check_bias_ramp(struct compute *c) {
  enum { E = 238, N = 1000 / ROUTER_ROWS + 1 };
  float bias[E];
  for (int e = 0; e < E; e++) bias[e] = (float)(6.817 + (7.063 - 6.817) * e / (E - 1));
  int compared = 0;
  for (uint64_t part = 0; part < N; part++) {
    float *logits = fixture_noise((size_t)ROUTER_ROWS * E, 50 + part);
    struct router_params p = {.logits = logits,
                              .bias = bias,
                              .n_experts = E,
                              .n_picked = 8,
                              .n_groups = 1,
                              .n_groups_picked = 1,
                              .normalise = true,
                              .scale = 2.827f};
    compared += check_router(c, &p, 2e-6);
    for (int e = 0; part == 0 && e < E; e++) bias[e] = dtype_bf16_to_f32(dtype_f32_to_bf16(bias[e]));
    if (part == 0) { /* the test can tell: rounded biases give other picks */
      int32_t expert[ROUTER_ROWS * 8];
      float share[ROUTER_ROWS * 8];
      int differ = 0;
      struct router_params exact = p, rounded = p;
      float again[E];
      for (int e = 0; e < E; e++) again[e] = (float)(6.817 + (7.063 - 6.817) * e / (E - 1));
      exact.bias = again;
      rounded.expert = expert;
      rounded.share = share;
      c->router(c, &rounded, ROUTER_ROWS);
      for (int row = 0; row < ROUTER_ROWS; row++) {
        struct routed r = route(&exact, row);
        for (int k = 0; k < 8; k++) differ += expert[row * 8 + k] != r.expert[k];
      }
      assert_true(differ > ROUTER_ROWS);
      memcpy(bias, again, sizeof bias);
    }
    free(logits);
  }
  assert_true(compared > N * ROUTER_ROWS * 9 / 10);
}

static void test_router_bias_stays_f32(void **state) {
  (void)state;
  fixture_each(check_bias_ramp);
}

/* Rows with infinities and NaN choose something inside the range and end. */
static void check_odd_logits(struct compute *c) {
  const float logits[3 * 4] = {NAN,       NAN,       NAN,      NAN, -INFINITY, -INFINITY,
                               -INFINITY, -INFINITY, INFINITY, NAN, 0,         -INFINITY};
  int32_t expert[6];
  float share[6];
  for (int kind = 0; kind < 3; kind++) {
    const struct router_params p = {.expert = expert,
                                    .share = share,
                                    .logits = logits,
                                    .n_experts = 4,
                                    .n_picked = 2,
                                    .n_groups = 2,
                                    .n_groups_picked = 1,
                                    .kind = (enum router_kind)kind,
                                    .scale = 1};
    c->router(c, &p, 3);
    for (int i = 0; i < 6; i++) assert_true(expert[i] >= 0 && expert[i] < 4);
  }
}

static void test_router_survives_odd_logits(void **state) {
  (void)state;
  fixture_each(check_odd_logits);
}

/* ---- experts ---- */

enum { E = 8, K = 3, MOE_ROWS = 160 };

struct experts {
  struct fixture_weight gate[E], up[E], down[E];
  struct weight gates[E], ups[E], downs[E];
};

static struct experts *experts_create(const struct fixture_format *format, int32_t hidden, int32_t intermediate) {
  struct experts *x = calloc(1, sizeof *x);
  for (uint64_t e = 0; e < E; e++) {
    x->gate[e] = fixture_weight(format, intermediate, hidden, 60 + e);
    x->up[e] = fixture_weight(format, intermediate, hidden, 80 + e);
    x->down[e] = fixture_weight(format, hidden, intermediate, 100 + e);
    x->gates[e] = x->gate[e].w;
    x->ups[e] = x->up[e].w;
    x->downs[e] = x->down[e].w;
  }
  return x;
}

static void experts_free(struct experts *x) {
  for (int e = 0; e < E; e++)
    fixture_weight_free(&x->gate[e]), fixture_weight_free(&x->up[e]), fixture_weight_free(&x->down[e]);
  free(x);
}

static double row_dot(const struct fixture_weight *f, int32_t o, const double *x) {
  double sum = 0;
  for (int32_t i = 0; i < f->w.n_in; i++) sum += f->value[(int64_t)o * f->w.n_in + i] * x[i];
  return sum;
}

static void check_moe_row(const struct moe_params *p, const struct experts *x, int32_t row, double before) {
  int32_t hidden = p->down[0].n_out, intermediate = p->gate[0].n_out;
  double in[256], middle[256], out[256];
  for (int32_t h = 0; h < hidden; h++) in[h] = p->x[(int64_t)row * hidden + h], out[h] = before;
  for (int32_t k = 0; k < p->n_picked; k++) {
    int32_t e = p->expert[row * p->n_picked + k];
    for (int32_t i = 0; i < intermediate; i++) {
      double gate = row_dot(&x->gate[e], i, in);
      middle[i] = gate * sigmoid(gate) * row_dot(&x->up[e], i, in);
    }
    for (int32_t h = 0; h < hidden; h++) out[h] += p->share[row * p->n_picked + k] * row_dot(&x->down[e], h, middle);
  }
  double most = 0;
  for (int32_t h = 0; h < hidden; h++) most = fmax(most, fabs(out[h]));
  for (int32_t h = 0; h < hidden; h++) fixture_near(p->out[(int64_t)row * hidden + h], out[h], 3e-6 * most, "moe", h);
}

static void fill_picks(int32_t *expert, float *share) {
  for (uint64_t i = 0; i < MOE_ROWS; i++) {
    uint32_t order[E];
    random_permutation(order, E, 7, i);
    for (uint64_t k = 0; k < K; k++) {
      expert[i * K + k] = (int32_t)order[k];
      share[i * K + k] = (float)(0.1 + random_uniform(8, i, k));
    }
  }
}

/* All rows at once on one to three threads against double and against each row alone; the scratch is exactly as long as
 * promised. */
static void check_moe(const char *isa, const struct fixture_format *format, const int32_t dims[2]) {
  int32_t hidden = dims[0], intermediate = dims[1], expert[MOE_ROWS * K];
  float share[MOE_ROWS * K], *in = fixture_noise((size_t)(MOE_ROWS * hidden), 61),
                             *out = fixture_floats((size_t)(MOE_ROWS * hidden), 0),
                             *alone = fixture_floats((size_t)(MOE_ROWS * hidden), 0);
  struct experts *x = experts_create(format, hidden, intermediate);
  fill_picks(expert, share);
  float *scratch = malloc(sizeof(float) * (size_t)compute_moe_scratch_floats(MOE_ROWS, K, hidden, intermediate));
  struct moe_params p = {
      .x = in, .gate = x->gates, .up = x->ups, .down = x->downs, .n_experts = E, .n_picked = K, .scratch = scratch};
  for (int threads = 1; threads <= 3; threads++) {
    struct compute *c = fixture_open(isa, threads);
    if (!c) break;
    for (int32_t i = 0; threads == 1 && i < MOE_ROWS; i++) {
      p.out = alone + (int64_t)i * hidden, p.x = in + (int64_t)i * hidden, p.expert = expert + i * K,
      p.share = share + i * K;
      c->moe(c, &p, 1);
    }
    p.out = out, p.x = in, p.expert = expert, p.share = share;
    c->moe(c, &p, MOE_ROWS);
    assert_memory_equal(out, alone, sizeof(float) * (size_t)(MOE_ROWS * hidden));
    for (int32_t i = 0; i < 4; i++) check_moe_row(&p, x, i, 0);
    compute_close(c);
  }
  free(in), free(out), free(alone), free(scratch);
  experts_free(x);
}

static void test_moe(void **state) {
  (void)state;
  static const int32_t dims[][2] = {{96, 48}, {72, 120}, {37, 19}};
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    for (size_t f = 0; f < FIXTURE_FORMATS; f++) {
      for (size_t d = 0; d < 3; d++) {
        if (fixture_fits(&fixture_formats[f], dims[d][0]) && fixture_fits(&fixture_formats[f], dims[d][1]))
          check_moe(fixture_isas[isa], &fixture_formats[f], dims[d]);
      }
    }
  }
}

/* A dense FFN is one expert with share 1; accumulate adds to what is there; no rows do nothing. */
static void check_dense(struct compute *c) {
  enum { HIDDEN = 64, INTERMEDIATE = 96 };
  struct experts *x = experts_create(&fixture_formats[1], HIDDEN, INTERMEDIATE);
  float *in = fixture_noise(2 * HIDDEN, 61), *out = fixture_floats(2 * HIDDEN, 1.5f), share[2] = {1, 1};
  float *scratch = malloc(sizeof(float) * (size_t)compute_moe_scratch_floats(2, 1, HIDDEN, INTERMEDIATE));
  const int32_t expert[2] = {0, 0};
  const struct moe_params p = {.out = out,
                               .x = in,
                               .gate = x->gates,
                               .up = x->ups,
                               .down = x->downs,
                               .expert = expert,
                               .share = share,
                               .n_experts = 1,
                               .n_picked = 1,
                               .accumulate = true,
                               .scratch = scratch};
  c->moe(c, &p, 0);
  for (int i = 0; i < 2 * HIDDEN; i++) assert_true(out[i] == 1.5f);
  c->moe(c, &p, 2);
  for (int row = 0; row < 2; row++) check_moe_row(&p, x, row, 1.5);
  free(in), free(out), free(scratch);
  experts_free(x);
}

static void test_dense_is_one_expert(void **state) {
  (void)state;
  fixture_each(check_dense);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_router),
      cmocka_unit_test(test_router_ties),
      cmocka_unit_test(test_router_mask),
      cmocka_unit_test(test_router_bias_stays_f32),
      cmocka_unit_test(test_router_survives_odd_logits),
      cmocka_unit_test(test_moe),
      cmocka_unit_test(test_dense_is_one_expert),
  };
  return cmocka_run_group_tests_name("moe", tests, NULL, NULL);
}
