/* test_family_ops.c - ops that only some families of models need: layer norm, norms per head, scales, soft caps, activations, joint
 * gate and up weights, expert biases, shares on inputs. Values against double; joint layouts against separate weights bit for bit. */
#include "compute_fixture.h"

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

/* ---- norms ---- */

static void check_layer_norm(struct compute *c) {
  enum { ROWS = 6, HEADS = 3, DIM = 37, STRIDE = DIM + 2 };
  float *x = fixture_noise(ROWS * STRIDE, 1), *w = fixture_noise(HEADS * DIM, 2), *bias = fixture_noise(DIM, 3),
        *out = fixture_floats(ROWS * STRIDE, 77);
  for (int kind = 0; kind < 3; kind++) { /* plain; with a bias; a row of weights per head */
    const struct norm_params p = {.dim = DIM,
                                  .w_rows = kind == 2 ? HEADS : 0,
                                  .eps = 1e-3f,
                                  .bias = kind == 1 ? bias : NULL,
                                  .x_row = STRIDE,
                                  .out_row = STRIDE};
    c->layer_norm(c, out, x, w, ROWS, &p);
    for (int i = 0; i < ROWS; i++) {
      const float *row = x + i * STRIDE, *weights = w + (kind == 2 ? i % HEADS * DIM : 0);
      double mean = 0, squares = 0;
      for (int k = 0; k < DIM; k++) mean += row[k];
      mean /= DIM;
      for (int k = 0; k < DIM; k++) squares += (row[k] - mean) * (row[k] - mean);
      for (int k = 0; k < DIM; k++) {
        double expected = (row[k] - mean) / sqrt(squares / DIM + 1e-3) * weights[k] + (kind == 1 ? bias[k] : 0);
        fixture_near(out[i * STRIDE + k], expected, 3e-6, "layer_norm", k);
      }
      assert_true(out[i * STRIDE + DIM] == 77.0f);
    }
  }
  free(x), free(w), free(bias), free(out);
}

static void check_unit_norm(struct compute *c) {
  enum { ROWS = 4, DIM = 19 };
  float *x = fixture_noise(ROWS * DIM, 1), *ones = fixture_floats(DIM, 1), *a = fixture_floats(ROWS * DIM, 0),
        *b = fixture_floats(ROWS * DIM, 1);
  const struct norm_params p = {.dim = DIM, .eps = 1e-5f};
  c->rms_norm(c, a, x, NULL, ROWS, &p);
  c->rms_norm(c, b, x, ones, ROWS, &p);
  assert_memory_equal(a, b, sizeof(float) * ROWS * DIM);
  free(x), free(ones), free(a), free(b);
}

static void test_norms(void **state) {
  (void)state;
  fixture_each(check_layer_norm);
  fixture_each(check_unit_norm);
}

/* ---- scales ---- */

static void check_scales(struct compute *c) {
  enum { ROWS = 5, DIM = 21, N = ROWS * DIM };
  static const float factors[] = {2, -1, 0.5f}, gates[ROWS] = {0, 30, -30, 1, -2};
  static const int32_t index[ROWS] = {2, 0, 1, 1, 0};
  float *x = fixture_noise(N, 1), *a = fixture_noise(N, 2), *y = fixture_floats(N, 0);
  memcpy(y, x, sizeof(float) * N);
  c->scale(c, y, 3.5f, N);
  for (int i = 0; i < N; i++) assert_true(y[i] == x[i] * 3.5f);
  memcpy(y, x, sizeof(float) * N);
  c->add_scaled(c, y, a, 0.3f, N);
  for (int i = 0; i < N; i++) fixture_near(y[i], x[i] + 0.3f * (double)a[i], 1e-6, "add_scaled", i);
  memcpy(y, x, sizeof(float) * N);
  c->softcap(c, y, 0.7f, N);
  for (int i = 0; i < N; i++) fixture_near(y[i], 0.7f * tanh(x[i] / (double)0.7f), 1e-6, "softcap", i);
  memcpy(y, x, sizeof(float) * N);
  c->scale_rows(c, y, &(const struct scale_rows_params){.factors = factors, .index = index, .dim = DIM}, ROWS);
  for (int i = 0; i < N; i++) assert_true(y[i] == x[i] * factors[index[i / DIM]]);
  memcpy(y, x, sizeof(float) * N);
  c->scale_rows(c, y, &(const struct scale_rows_params){.gate = gates, .dim = DIM}, ROWS);
  for (int i = 0; i < N; i++) fixture_near(y[i], x[i] * sigmoid(gates[i / DIM]), 1e-6, "gate", i);
  free(x), free(a), free(y);
}

static void test_scales(void **state) {
  (void)state;
  fixture_each(check_scales);
}

/* ---- activations ---- */

static double activated(double g, double u, enum activation kind) {
  switch (kind) {
  case ACTIVATION_SILU:
    return g * sigmoid(g) * u;
  case ACTIVATION_GELU_TANH:
    return 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
  case ACTIVATION_GELU:
    return 0.5 * g * (1 + erf(g / sqrt(2))) * u;
  case ACTIVATION_RELU2:
    return g > 0 ? g * g * u : 0;
  case ACTIVATION_SWIGLU_CLAMPED:
    g = fmin(g, 7);
    u = fmin(fmax(u, -7), 7);
    return g * sigmoid(1.702 * g) * (u + 1);
  }
  return NAN;
}

static void check_activations(struct compute *c) {
  enum { N = 203 };
  float *gate = fixture_noise(N, 1), *up = fixture_noise(N, 2), *out = fixture_floats(N + 1, 77);
  for (int i = 0; i < N; i++) gate[i] *= 5, up[i] *= 5;
  gate[3] = 60, gate[4] = -60, gate[5] = 0;
  for (int kind = ACTIVATION_SILU; kind <= ACTIVATION_SWIGLU_CLAMPED; kind++) {
    c->activate(c, out, gate, up, N, (enum activation)kind);
    for (int i = 0; i < N; i++)
      fixture_near(out[i], activated(gate[i], up[i], (enum activation)kind), 3e-6 * (1 + fabs((double)gate[i] * up[i])), "act", i);
    assert_true(out[N] == 77.0f);
    for (int begin = 0; begin < 20; begin++) { /* a value's bits do not depend on where the call began */
      float alone[3];
      c->activate(c, alone, gate + begin, up + begin, 3, (enum activation)kind);
      assert_memory_equal(alone, out + begin, sizeof alone);
    }
    if (kind == ACTIVATION_SWIGLU_CLAMPED) continue;
    c->activate(c, out, gate, NULL, N, (enum activation)kind);
    for (int i = 0; i < N; i++)
      fixture_near(out[i], activated(gate[i], 1, (enum activation)kind), 3e-6 * (1 + fabs((double)gate[i])), "plain act", i);
  }
  free(gate), free(up), free(out);
}

static void test_activations(void **state) {
  (void)state;
  fixture_each(check_activations);
}

/* ---- experts ---- */

enum { E = 4, K = 2, ROWS = 70, H = 24, I = 20 };

struct joint {
  float gate[E][I * H], up[E][I * H], down[E][H * I], halves[E][2 * I * H], pairs[E][2 * I * H];
  float gate_bias[E * I], up_bias[E * I], halves_bias[E * 2 * I], pairs_bias[E * 2 * I], down_bias[E * H];
  struct weight gates[E], ups[E], downs[E], halved[E], paired[E];
  int32_t expert[ROWS * K];
  float share[ROWS * K], x[ROWS * H];
};

static void fill(float *to, int n, uint64_t stream) {
  float *noise = fixture_noise((size_t)n, stream);
  memcpy(to, noise, sizeof(float) * (size_t)n);
  free(noise);
}

static struct joint *joint_create(void) {
  struct joint *j = calloc(1, sizeof *j);
  for (uint64_t e = 0; e < E; e++) {
    fill(j->gate[e], I * H, 10 + e), fill(j->up[e], I * H, 20 + e), fill(j->down[e], H * I, 30 + e);
    fill(j->gate_bias + e * I, I, 40 + e), fill(j->up_bias + e * I, I, 50 + e), fill(j->down_bias + e * H, H, 60 + e);
    memcpy(j->halves[e], j->gate[e], sizeof j->gate[e]);
    memcpy(j->halves[e] + I * H, j->up[e], sizeof j->up[e]);
    for (int i = 0; i < I; i++) {
      memcpy(j->pairs[e] + 2 * i * H, j->gate[e] + i * H, sizeof(float) * H);
      memcpy(j->pairs[e] + (2 * i + 1) * H, j->up[e] + i * H, sizeof(float) * H);
      j->halves_bias[e * 2 * I + (uint64_t)i] = j->pairs_bias[e * 2 * I + 2 * (uint64_t)i] = j->gate_bias[e * I + (uint64_t)i];
      j->halves_bias[e * 2 * I + I + (uint64_t)i] = j->pairs_bias[e * 2 * I + 2 * (uint64_t)i + 1] = j->up_bias[e * I + (uint64_t)i];
    }
    j->gates[e] = (struct weight){.format = WEIGHT_F32, .n_out = I, .n_in = H, .data = j->gate[e]};
    j->ups[e] = (struct weight){.format = WEIGHT_F32, .n_out = I, .n_in = H, .data = j->up[e]};
    j->downs[e] = (struct weight){.format = WEIGHT_F32, .n_out = H, .n_in = I, .data = j->down[e]};
    j->halved[e] = (struct weight){.format = WEIGHT_F32, .n_out = 2 * I, .n_in = H, .data = j->halves[e]};
    j->paired[e] = (struct weight){.format = WEIGHT_F32, .n_out = 2 * I, .n_in = H, .data = j->pairs[e]};
  }
  fill(j->x, ROWS * H, 70), fill(j->share, ROWS * K, 71);
  for (int i = 0; i < ROWS; i++) j->expert[i * K] = i % E, j->expert[i * K + 1] = (i + 1 + i % 2) % E;
  return j;
}

static void run_moe(struct compute *c, const struct joint *j, struct moe_params p, float out[ROWS * H]) {
  p.out = out;
  p.x = j->x;
  p.down = j->downs;
  p.expert = j->expert;
  p.share = j->share;
  p.n_experts = E;
  p.n_picked = K;
  p.scratch = malloc(sizeof(float) * (size_t)compute_moe_scratch_floats(ROWS, K, H, I));
  c->moe(c, &p, ROWS);
  free(p.scratch);
}

/* Two layouts of the same numbers, on one and on three threads: the same bits. */
static void test_joint_layouts(void **state) {
  (void)state;
  struct joint *j = joint_create();
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    for (int threads = 1; threads <= 3; threads += 2) {
      struct compute *c = fixture_open(fixture_isas[isa], threads);
      if (!c) continue;
      float separate[ROWS * H], other[ROWS * H];
      run_moe(c, j, (struct moe_params){.gate = j->gates, .up = j->ups}, separate);
      run_moe(c, j, (struct moe_params){.gate = j->halved, .layout = GATE_UP_HALVES}, other);
      assert_memory_equal(separate, other, sizeof other);
      run_moe(c, j, (struct moe_params){.gate = j->paired, .layout = GATE_UP_PAIRS}, other);
      assert_memory_equal(separate, other, sizeof other);
      struct moe_params biased = {.gate = j->halved, .gate_bias = j->halves_bias, .down_bias = j->down_bias, .layout = GATE_UP_HALVES};
      run_moe(c, j, biased, separate);
      assert_memory_not_equal(separate, other, sizeof other);
      biased.gate = j->paired;
      biased.gate_bias = j->pairs_bias;
      biased.layout = GATE_UP_PAIRS;
      run_moe(c, j, biased, other);
      assert_memory_equal(separate, other, sizeof other);
      compute_close(c);
    }
  }
  free(j);
}

static double plain_dot(const float *w, const double *x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (double)w[i] * x[i];
  return sum;
}

/* Biases and shares on inputs against double. */
static void check_experts(struct compute *c) {
  struct joint *j = joint_create();
  float out[ROWS * H];
  for (int share_input = 0; share_input < 2; share_input++) {
    run_moe(c, j, (struct moe_params){.gate = j->paired, .gate_bias = share_input ? NULL : j->pairs_bias,
                                      .down_bias = share_input ? NULL : j->down_bias, .layout = GATE_UP_PAIRS,
                                      .activation = ACTIVATION_SWIGLU_CLAMPED, .share_input = share_input}, out);
    for (int row = 0; row < ROWS; row++) {
      double expected[H] = {0};
      for (int k = 0; k < K; k++) {
        int e = j->expert[row * K + k];
        double share = j->share[row * K + k], in[H], middle[I];
        for (int h = 0; h < H; h++) in[h] = j->x[row * H + h] * (share_input ? share : 1);
        for (int i = 0; i < I; i++) {
          double g = plain_dot(j->gate[e] + i * H, in, H) + (share_input ? 0 : j->gate_bias[e * I + i]);
          double u = plain_dot(j->up[e] + i * H, in, H) + (share_input ? 0 : j->up_bias[e * I + i]);
          middle[i] = activated(g, u, ACTIVATION_SWIGLU_CLAMPED);
        }
        for (int h = 0; h < H; h++) {
          double y = plain_dot(j->down[e] + h * I, middle, I) + (share_input ? 0 : j->down_bias[e * H + h]);
          expected[h] += (share_input ? 1 : share) * y;
        }
      }
      for (int h = 0; h < H; h++) fixture_near(out[row * H + h], expected[h], 2e-4, "experts", h);
    }
  }
  free(j);
}

static void test_experts(void **state) {
  (void)state;
  fixture_each(check_experts);
}

static void check_sigmoid_topk(struct compute *c) {
  static const float logits[] = {1, 3, -2, 2, -5, -6, -4, -7};
  int32_t expert[4];
  float share[4];
  const struct router_params p = {.expert = expert, .share = share, .logits = logits, .n_experts = 4, .n_picked = 2,
                                  .n_groups = 1, .n_groups_picked = 1, .kind = ROUTER_SIGMOID_TOPK, .scale = 1};
  c->router(c, &p, 2);
  static const int32_t picks[] = {1, 3, 2, 0};
  static const double of[] = {3, 2, -4, -5};
  assert_memory_equal(expert, picks, sizeof picks);
  for (int i = 0; i < 4; i++) fixture_near(share[i], sigmoid(of[i]), 1e-6, "share", i);
}

static void test_sigmoid_topk(void **state) {
  (void)state;
  fixture_each(check_sigmoid_topk);
}

/* ---- sparse attention's choice ---- */

enum { CONTEXT = 300, PAGE_TOKENS = 8, SCORER_HEADS = 5, SCORER_DIM = 9, ENTRY = 13, SPARSE_ROWS = 7 };

/* The n_kept best of the first n slots by score, the first of equals, in order; the slow way. */
static int naive_choice(const float *score, int n, int n_kept, int32_t *slots) {
  bool taken[CONTEXT] = {false};
  int kept = 0;
  for (int k = 0; k < n_kept && k < n; k++) {
    int best = -1;
    for (int i = 0; i < n; i++) {
      if (!taken[i] && (best < 0 || score[i] > score[best])) best = i;
    }
    taken[best] = true;
  }
  for (int i = 0; i < n; i++) {
    if (taken[i]) slots[kept++] = i;
  }
  return kept;
}

static void check_choices(struct compute *c) {
  static const int32_t prefixes[SPARSE_ROWS] = {1, 20, 21, 64, 100, 299, 300};
  float *pool = fixture_noise(CONTEXT * ENTRY, 80), *q = fixture_noise(SPARSE_ROWS * SCORER_HEADS * SCORER_DIM, 81),
        *share = fixture_noise(SPARSE_ROWS * SCORER_HEADS, 82);
  int32_t table[CONTEXT / PAGE_TOKENS + 1], begins[SPARSE_ROWS] = {0}, slots[SPARSE_ROWS * 20], begin[SPARSE_ROWS + 1], none[SPARSE_ROWS];
  for (int i = 0; i <= CONTEXT / PAGE_TOKENS; i++) table[i] = i;
  for (int i = 40; i < 60; i++) memcpy(pool + i * ENTRY, pool + 7 * ENTRY, sizeof(float) * ENTRY); /* equal scores */
  const struct select_keys_params p = {.slots = slots, .begin = begin, .none = none, .q = q, .share = share, .pool = pool,
                                       .page_table = table, .table_begin = begins, .n_prefix = prefixes, .n_heads = SCORER_HEADS,
                                       .dim = SCORER_DIM, .n_kept = 20, .key_offset = 4, .entry_floats = ENTRY,
                                       .page_tokens = PAGE_TOKENS};
  c->select_keys(c, &p, SPARSE_ROWS);
  for (int row = 0; row < SPARSE_ROWS; row++) {
    float score[CONTEXT];
    int32_t expected[20];
    for (int i = 0; i < prefixes[row]; i++) {
      score[i] = 0;
      for (int h = 0; h < SCORER_HEADS; h++) {
        float s = cpu_of(c)->kernels->dot(q + (row * SCORER_HEADS + h) * SCORER_DIM, pool + i * ENTRY + 4, SCORER_DIM);
        if (s > 0) score[i] += share[row * SCORER_HEADS + h] * s;
      }
    }
    int n = naive_choice(score, prefixes[row], 20, expected);
    assert_int_equal(begin[row + 1] - begin[row], n);
    assert_memory_equal(slots + begin[row], expected, sizeof(int32_t) * (size_t)n);
    assert_int_equal(none[row], 0);
  }
  free(pool), free(q), free(share);
}

static void test_choices(void **state) {
  (void)state;
  fixture_each(check_choices);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_norms),         cmocka_unit_test(test_scales),  cmocka_unit_test(test_activations),
      cmocka_unit_test(test_joint_layouts), cmocka_unit_test(test_experts), cmocka_unit_test(test_sigmoid_topk),
      cmocka_unit_test(test_choices),
  };
  return cmocka_run_group_tests_name("family ops", tests, NULL, NULL);
}
