/* test_training.c - the training ops of the CPU backend against the plainest code that says what they mean, in double:
 * products in every transposition, norms, the FFN's gate, the unrolled attention forward and backward, the distillation
 * loss with its gradient, AdamW, Muon. */
#include "compute/training.h"

#include "base/memory.h"
#include "base/util.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static float *noise(size_t n, uint64_t stream) {
  float *x = malloc(sizeof(float) * (n + 1));
  for (size_t i = 0; i < n; i++) x[i] = (float)random_normal(7, stream, i);
  return x;
}

static double max_rel(const float *a, const double *b, size_t n) {
  double worst = 0, most = 1e-30;
  for (size_t i = 0; i < n; i++) {
    worst = fmax(worst, fabs(a[i] - b[i]));
    most = fmax(most, fabs(b[i]));
  }
  return worst / most;
}

/* ---- gemm ---- */

static void check_gemm(struct compute *c, const struct gemm_params *shape) {
  int32_t m = shape->m, n = shape->n, k = shape->k;
  int64_t lda = (shape->transpose_a ? m : k) + 3, ldb = (shape->transpose_b ? k : n) + 5, ldc = n + 7;
  float *a = noise((size_t)((shape->transpose_a ? k : m) * lda), 1),
        *b = noise((size_t)((shape->transpose_b ? n : k) * ldb), 2), *out = noise((size_t)(m * ldc), 3);
  double *expected = malloc(sizeof(double) * (size_t)(m * ldc));
  for (int64_t i = 0; i < m * ldc; i++) expected[i] = out[i];
  for (int32_t i = 0; i < m; i++) {
    for (int32_t j = 0; j < n; j++) {
      double sum = 0;
      for (int32_t l = 0; l < k; l++)
        sum += (double)(shape->transpose_a ? a[l * lda + i] : a[i * lda + l]) *
               (shape->transpose_b ? b[j * ldb + l] : b[l * ldb + j]);
      expected[i * ldc + j] = shape->alpha * sum + shape->beta * out[i * ldc + j];
    }
  }
  struct gemm_params p = *shape;
  p.a = a, p.b = b, p.c = out, p.lda = lda, p.ldb = ldb, p.ldc = ldc;
  c->training->gemm(c, &p);
  assert_true(max_rel(out, expected, (size_t)(m * ldc)) < 2e-6);
  free(a), free(b), free(out), free(expected);
}

static void test_gemm(void **state) {
  const int32_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {33, 65, 17}, {64, 320, 96}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    for (int bits = 0; bits < 8; bits++) {
      const struct gemm_params p = {.m = shapes[i][0],
                                    .n = shapes[i][1],
                                    .k = shapes[i][2],
                                    .transpose_a = bits & 1,
                                    .transpose_b = bits & 2,
                                    .alpha = 0.5f,
                                    .beta = bits & 4 ? 1.0f : 0.0f};
      check_gemm(*state, &p);
    }
  }
}

/* beta 0 must not read C: what an arena hands out may hold anything. */
static void test_gemm_ignores_garbage(void **state) {
  struct compute *c = *state;
  float a[4] = {1, 2, 3, 4}, b[4] = {1, 0, 0, 1}, out[4] = {NAN, INFINITY, NAN, NAN};
  const struct gemm_params p = {.m = 2, .n = 2, .k = 2, .alpha = 1, .a = a, .b = b, .c = out};
  c->training->gemm(c, &p);
  for (int i = 0; i < 4; i++) assert_true(out[i] == a[i]);
  const struct gemm_params none = {.m = 0, .n = 2, .k = 2, .alpha = 1, .a = a, .b = b, .c = out};
  c->training->gemm(c, &none);
}

/* A reduction over no rows adds nothing: dW of a step without active rows. */
static void test_gemm_over_no_rows(void **state) {
  struct compute *c = *state;
  float out[4] = {1, 2, 3, 4}, none[4] = {0};
  const struct gemm_params p = {
      .m = 2, .n = 2, .k = 0, .transpose_a = true, .alpha = 1, .beta = 1, .a = none, .b = none, .c = out};
  c->training->gemm(c, &p);
  for (int i = 0; i < 4; i++) assert_true(out[i] == (float)(i + 1));
}

/* ---- element-wise ---- */

static double silu(double x) {
  return x / (1 + exp(-x));
}

static void test_silu_mul_backward(void **state) {
  struct compute *c = *state;
  enum { N = 1003 };
  float *gate = noise(N, 1), *up = noise(N, 2), *d = noise(N, 3), d_gate[N], d_up[N];
  double e_gate[N], e_up[N];
  for (int i = 0; i < N; i++) {
    double x = gate[i] *= 3, s = 1 / (1 + exp(-x));
    e_up[i] = d[i] * silu(x);
    e_gate[i] = d[i] * up[i] * (s + x * s * (1 - s));
  }
  c->training->silu_mul_backward(c, d_gate, d_up, d, gate, up, N);
  assert_true(max_rel(d_gate, e_gate, N) < 3e-6);
  assert_true(max_rel(d_up, e_up, N) < 3e-6);
  free(gate), free(up), free(d);
}

static double norm_loss(const double *x, const double *w, const float *d, int n, double eps) {
  double squares = 0, loss = 0;
  for (int i = 0; i < n; i++) squares += x[i] * x[i];
  for (int i = 0; i < n; i++) loss += d[i] * x[i] * w[i] / sqrt(squares / n + eps);
  return loss;
}

/* Against central differences in double, rows with strides, d_x both written and accumulated. */
static void test_rms_norm_backward(void **state) {
  struct compute *c = *state;
  enum { ROWS = 3, N = 37, ROW = 40 };
  float *x = noise(ROWS * ROW, 1), *w = noise(N, 2), *d = noise(ROWS * ROW, 3), d_x[ROWS * ROW], d_w[N] = {0};
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < ROWS * ROW; i++) d_x[i] = pass ? 1.0f : NAN;
    memset(d_w, 0, sizeof d_w);
    const struct norm_backward_params p = {
        .dim = N, .eps = 1e-5f, .accumulate_x = pass, .x_row = ROW, .dy_row = ROW, .dx_row = ROW};
    c->training->rms_norm_backward(c, d_x, d_w, d, x, w, ROWS, &p);
    double e_w[N] = {0};
    for (int r = 0; r < ROWS; r++) {
      double xs[N], ws[N], e_x[N], found[N];
      for (int i = 0; i < N; i++) xs[i] = x[r * ROW + i], ws[i] = w[i];
      for (int i = 0; i < N; i++) {
        double keep = xs[i];
        xs[i] = keep + 1e-5;
        e_x[i] = norm_loss(xs, ws, d + r * ROW, N, 1e-5);
        xs[i] = keep - 1e-5;
        e_x[i] = (e_x[i] - norm_loss(xs, ws, d + r * ROW, N, 1e-5)) / 2e-5 + pass;
        xs[i] = keep;
        ws[i] += 1e-5;
        e_w[i] += norm_loss(xs, ws, d + r * ROW, N, 1e-5) / 2e-5;
        ws[i] -= 2e-5;
        e_w[i] -= norm_loss(xs, ws, d + r * ROW, N, 1e-5) / 2e-5;
        ws[i] += 1e-5;
        found[i] = fabs(d_x[r * ROW + i] - e_x[i]);
        assert_true(found[i] < 1e-5);
      }
    }
    assert_true(max_rel(d_w, e_w, N) < 1e-5);
  }
  free(x), free(w), free(d);
}

/* ---- attention of the training-time test ---- */

enum { SLOTS = 23, HEADS = 4, KV = 2, DIM = 20, WIDE = 12, LATER = 3, QUERIES = 9 }; /* two segments: 0..12, 13..22 */

struct attention_case {
  int32_t slot[QUERIES], first[QUERIES], rows[LATER + 1][QUERIES];
  const int32_t *step_row[LATER + 1];
  float *q, *d_out, *key[LATER + 1], *value[LATER + 1], *out, *log_sum, *d_q, *d_key[LATER + 1], *d_value[LATER + 1];
  struct ttt_attention_params params;
  int wide; /* width of a value */
};
/* Windows that hide nothing, prompt slots, all of the prompt, and own keys too. */
static const struct {
  int32_t window, wide;
} sights[] = {{0, DIM}, {0, WIDE}, {4, DIM}, {9, WIDE}, {3, DIM}, {2, WIDE}, {1, DIM}};
enum { SIGHTS = sizeof sights / sizeof *sights };

static int32_t rows_of_step(int j) {
  return j == 0 ? SLOTS : QUERIES + 2 * (LATER - j);
}
static size_t kv_floats(int j, int dim) {
  return (size_t)rows_of_step(j) * KV * (size_t)dim;
}

static void make_case(struct attention_case *a, int sight) {
  a->wide = sights[sight].wide;
  static const int32_t slots[QUERIES] = {0, 1, 5, 6, 12, 13, 14, 20, 22};
  for (int i = 0; i < QUERIES; i++) {
    a->slot[i] = slots[i];
    a->first[i] = slots[i] < 13 ? 0 : 13;
    for (int j = 1; j <= LATER; j++) a->rows[j][i] = i + LATER - j; /* a subset of step j's rows */
  }
  a->q = noise(QUERIES * HEADS * DIM, 1);
  a->d_out = noise(QUERIES * HEADS * DIM, 2);
  a->out = calloc(QUERIES * HEADS * DIM, sizeof(float));
  a->d_q = noise(QUERIES * HEADS * DIM, 3);
  a->log_sum = calloc(QUERIES * HEADS, sizeof(float));
  for (int j = 0; j <= LATER; j++) {
    a->step_row[j] = j ? a->rows[j] : NULL;
    a->key[j] = noise(kv_floats(j, DIM), 10 + (uint64_t)j);
    a->value[j] = noise(kv_floats(j, a->wide), 20 + (uint64_t)j);
    a->d_key[j] = calloc(kv_floats(j, DIM), sizeof(float));
    a->d_value[j] = calloc(kv_floats(j, a->wide), sizeof(float));
  }
  a->params = (struct ttt_attention_params){.n = QUERIES,
                                            .n_heads = HEADS,
                                            .n_kv_heads = KV,
                                            .head_dim = DIM,
                                            .value_dim = a->wide == DIM ? 0 : a->wide,
                                            .window = sights[sight].window,
                                            .n_steps = LATER,
                                            .slot = a->slot,
                                            .first = a->first,
                                            .step_row = a->step_row,
                                            .q = a->q,
                                            .key = (const float *const *)a->key,
                                            .value = (const float *const *)a->value,
                                            .scale = 0.3f,
                                            .out = a->out,
                                            .log_sum = a->log_sum};
}

static void free_case(struct attention_case *a) {
  free(a->q), free(a->d_out), free(a->out), free(a->d_q), free(a->log_sum);
  for (int j = 0; j <= LATER; j++) free(a->key[j]), free(a->value[j]), free(a->d_key[j]), free(a->d_value[j]);
}

/* Attention as one flat list of (step, row), of which the query sees the end; gives the output in double. */
static void plain_row(const struct attention_case *a, int i, int head, double *out) {
  double weight[SLOTS + LATER], most = -1e30, sum = 0;
  int step[SLOTS + LATER], row[SLOTS + LATER], n = 0, wide = a->wide;
  for (int s = a->first[i]; s <= a->slot[i]; s++) step[n] = 0, row[n++] = s;
  for (int j = 1; j <= LATER; j++) step[n] = j, row[n++] = a->rows[j][i];
  int begin = a->params.window > 0 && n > a->params.window ? n - a->params.window : 0;
  for (int e = begin; e < n; e++) {
    weight[e] = 0;
    for (int d = 0; d < DIM; d++)
      weight[e] += (double)a->q[(i * HEADS + head) * DIM + d] * a->key[step[e]][(row[e] * KV + head / 2) * DIM + d];
    weight[e] *= a->params.scale;
    most = fmax(most, weight[e]);
  }
  for (int e = begin; e < n; e++) sum += weight[e] = exp(weight[e] - most);
  for (int d = 0; d < wide; d++) {
    out[d] = 0;
    for (int e = begin; e < n; e++) out[d] += weight[e] / sum * a->value[step[e]][(row[e] * KV + head / 2) * wide + d];
  }
}

static double plain_loss(const struct attention_case *a) {
  double loss = 0, out[DIM];
  for (int i = 0; i < QUERIES; i++) {
    for (int head = 0; head < HEADS; head++) {
      plain_row(a, i, head, out);
      for (int d = 0; d < a->wide; d++) loss += out[d] * a->d_out[(i * HEADS + head) * a->wide + d];
    }
  }
  return loss;
}

static void test_attention_forward(void **state) {
  struct compute *c = *state;
  for (int sight = 0; sight < SIGHTS; sight++) {
    struct attention_case a;
    make_case(&a, sight);
    c->training->ttt_attention(c, &a.params);
    double expected[QUERIES * HEADS * DIM];
    for (int i = 0; i < QUERIES; i++) {
      for (int head = 0; head < HEADS; head++) plain_row(&a, i, head, expected + (i * HEADS + head) * a.wide);
    }
    assert_true(max_rel(a.out, expected, QUERIES * HEADS * a.wide) < 2e-6);
    free_case(&a);
  }
}

static double slope(const struct attention_case *a, float *at) {
  float keep = *at, step = 1.0f / 256;
  *at = keep + step;
  double up = plain_loss(a), above = *at;
  *at = keep - step;
  double down = plain_loss(a), below = *at;
  *at = keep;
  return (up - down) / (above - below);
}

static void check_attention_backward(struct compute *c, int sight) {
  struct attention_case a;
  make_case(&a, sight);
  c->training->ttt_attention(c, &a.params);
  const struct ttt_attention_backward_params p = {
      .forward = a.params, .d_out = a.d_out, .d_q = a.d_q, .d_key = a.d_key, .d_value = a.d_value};
  c->training->ttt_attention_backward(c, &p);
  for (int i = 0; i < QUERIES * HEADS * DIM; i += 7) assert_true(fabs(slope(&a, a.q + i) - a.d_q[i]) < 2e-4);
  for (int j = 0; j <= LATER; j++) {
    for (size_t i = 0; i < kv_floats(j, DIM); i += 11) assert_true(fabs(slope(&a, a.key[j] + i) - a.d_key[j][i]) < 2e-4);
    for (size_t i = 0; i < kv_floats(j, a.wide); i += 11)
      assert_true(fabs(slope(&a, a.value[j] + i) - a.d_value[j][i]) < 2e-4);
  }
  float *before = malloc(kv_floats(0, DIM) * sizeof(float));
  memcpy(before, a.d_key[0], kv_floats(0, DIM) * sizeof(float));
  c->training->ttt_attention_backward(c, &p); /* keys accumulate */
  for (size_t i = 0; i < kv_floats(0, DIM); i++) assert_true(fabsf(a.d_key[0][i] - 2 * before[i]) <= 1e-5f);
  free(before);
  free_case(&a);
}

static void test_attention_backward(void **state) {
  for (int sight = 0; sight < SIGHTS; sight++) check_attention_backward(*state, sight);
}

/* ---- loss and optimizer ---- */

static void test_distill(void **state) {
  struct compute *c = *state;
  enum { N = 5, V = 101 };
  float *logits = noise(N * V, 1), *target = noise(3 * V, 2), *found = noise(N * V, 1),
        weight[N] = {0.5f, 0, 1, 0.25f, 2}, loss[N];
  int32_t target_row[N] = {0, 1, 2, 2, 0};
  uint8_t hit[N];
  c->training->softmax(c, target, 3, V);
  found[3 * V + 17] = logits[3 * V + 17] = 80; /* far beyond what exp() of a float could sum unshifted with the rest */
  const struct distill_params p = {.n = N,
                                   .n_vocab = V,
                                   .logits = found,
                                   .target = target,
                                   .target_row = target_row,
                                   .weight = weight,
                                   .loss = loss,
                                   .hit = hit};
  c->training->distill(c, &p);
  for (int i = 0; i < N; i++) {
    const float *l = logits + i * V, *t = target + target_row[i] * V;
    double most = -1e30, sum = 0, expected = 0, gradient[V];
    int best = 0, wanted = 0;
    for (int v = 0; v < V; v++)
      most = fmax(most, l[v]), best = l[v] > l[best] ? v : best, wanted = t[v] > t[wanted] ? v : wanted;
    for (int v = 0; v < V; v++) sum += exp(l[v] - most);
    for (int v = 0; v < V; v++) {
      expected -= t[v] * (l[v] - most - log(sum));
      gradient[v] = weight[i] * (exp(l[v] - most) / sum - t[v]);
    }
    assert_true(fabs(loss[i] - expected) < 2e-5 * fabs(expected));
    assert_int_equal(hit[i], best == wanted);
    if (weight[i] > 0)
      assert_true(max_rel(found + i * V, gradient, V) < 5e-6);
    else
      for (int v = 0; v < V; v++) assert_true(found[i * V + v] == 0);
  }
  free(logits), free(target), free(found);
}

static void test_adamw(void **state) {
  struct compute *c = *state;
  enum { N = 777 };
  float *w = noise(N, 1), m[N] = {0}, v[N] = {0};
  double ew[N], em[N] = {0}, ev[N] = {0};
  for (int i = 0; i < N; i++) ew[i] = w[i];
  for (int step = 1; step <= 20; step++) {
    float *g = noise(N, 100 + (uint64_t)step);
    const struct adamw_params p = {.lr = 0.01f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .eps = 1e-8f,
                                   .weight_decay = 0.1f,
                                   .step = step,
                                   .grad_scale = 0.5f};
    c->training->adamw(c, w, m, v, g, N, &p);
    for (int i = 0; i < N; i++) {
      double d = 0.5 * g[i];
      em[i] = 0.9 * em[i] + 0.1 * d;
      ev[i] = 0.95 * ev[i] + 0.05 * d * d;
      ew[i] = ew[i] * (1 - 0.01 * 0.1) -
              0.01 * (em[i] / (1 - pow(0.9, step))) / (sqrt(ev[i] / (1 - pow(0.95, step))) + 1e-8);
    }
    free(g);
  }
  assert_true(max_rel(w, ew, N) < 1e-5);
  free(w);
}

/* ---- Muon: the same in double, without turning anything ---- */

static void plain_product(double *c, const double *a, const double *b, const int shape[3], bool turn_b) {
  for (int i = 0; i < shape[0]; i++) {
    for (int j = 0; j < shape[1]; j++) {
      double sum = 0;
      for (int k = 0; k < shape[2]; k++) sum += a[i * shape[2] + k] * (turn_b ? b[j * shape[2] + k] : b[k * shape[1] + j]);
      c[i * shape[1] + j] = sum;
    }
  }
}

enum { MUON_MAX = 40 };

/* x [rows, columns]: five times a x + (b g + c g g) x with g = x x^T, whichever side is shorter: the polynomial is the same. */
static void plain_orthogonal(double *x, int rows, int columns) {
  double g[MUON_MAX * MUON_MAX], gg[MUON_MAX * MUON_MAX], gx[MUON_MAX * MUON_MAX], length = 0;
  for (int i = 0; i < rows * columns; i++) length += x[i] * x[i];
  for (int i = 0; i < rows * columns; i++) x[i] /= sqrt(length);
  for (int round = 0; round < 5; round++) {
    plain_product(g, x, x, (const int[]){rows, rows, columns}, true);
    plain_product(gg, g, g, (const int[]){rows, rows, rows}, false);
    for (int i = 0; i < rows * rows; i++) gg[i] = -4.7750 * g[i] + 2.0315 * gg[i];
    plain_product(gx, gg, x, (const int[]){rows, columns, rows}, false);
    for (int i = 0; i < rows * columns; i++) x[i] = 3.4445 * x[i] + gx[i];
  }
}

static void check_muon(struct compute *c, int rows, int columns) {
  int n = rows * columns;
  float *w = noise((size_t)n, 1), *m = calloc((size_t)n, sizeof(float)),
        *work = malloc(sizeof(float) * muon_work_floats(rows, columns));
  double ew[MUON_MAX * MUON_MAX], em[MUON_MAX * MUON_MAX] = {0}, x[MUON_MAX * MUON_MAX];
  for (int i = 0; i < n; i++) ew[i] = w[i];
  for (int step = 1; step <= 4; step++) {
    float *g = noise((size_t)n, 200 + (uint64_t)step);
    const struct muon_params p = {
        .rows = rows, .columns = columns, .lr = 0.02f, .momentum = 0.9f, .weight_decay = 0.1f, .grad_scale = 0.25f, .work = work};
    c->training->muon(c, w, m, g, &p);
    for (int i = 0; i < n; i++) {
      em[i] = 0.9 * em[i] + 0.1 * 0.25 * g[i];
      x[i] = 0.9 * em[i] + 0.1 * 0.25 * g[i];
    }
    plain_orthogonal(x, rows, columns);
    for (int i = 0; i < n; i++)
      ew[i] = ew[i] * (1 - 0.02 * 0.1) - 0.02 * 0.2 * sqrt(rows > columns ? rows : columns) * x[i];
    free(g);
  }
  assert_true(max_rel(m, em, (size_t)n) < 1e-6);
  assert_true(max_rel(w, ew, (size_t)n) < 1e-5);
  free(w), free(m), free(work);
}

static void test_muon(void **state) {
  const int shapes[][2] = {{8, 40}, {40, 8}, {17, 17}, {2, 3}, {33, 31}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_muon(*state, shapes[i][0], shapes[i][1]);
}

/* What the iteration is for: a direction whose singular values were 1 and 1/50 leaves with both near one. */
static void test_muon_evens_directions(void **state) {
  struct compute *c = *state;
  enum { N = 6, MATRIX_WIDE = 11 };
  float w[N * MATRIX_WIDE] = {0}, m[N * MATRIX_WIDE] = {0}, g[N * MATRIX_WIDE] = {0}, work[2 * N * MATRIX_WIDE + 2 * N * N];
  assert_int_equal(muon_work_floats(N, MATRIX_WIDE), sizeof work / sizeof *work);
  for (int i = 0; i < N; i++) g[i * MATRIX_WIDE + i] = i % 2 ? 1.0f : 0.02f;
  const struct muon_params p = {.rows = N, .columns = MATRIX_WIDE, .lr = 1, .momentum = 0.95f, .grad_scale = 1, .work = work};
  c->training->muon(c, w, m, g, &p);
  for (int i = 0; i < N; i++) {
    double value = -w[i * MATRIX_WIDE + i] / (0.2 * sqrt(MATRIX_WIDE));
    assert_true(value > 0.65 && value < 1.25);
  }
}

static void test_blend(void **state) {
  struct compute *c = *state;
  float y[3] = {1, -2, 4}, x[3] = {3, 2, 4};
  c->training->blend(c, y, x, 0.75f, 3);
  assert_true(y[0] == 1.5f && y[1] == -1.0f && y[2] == 4.0f);
}

static void test_sums_and_scatter(void **state) {
  struct compute *c = *state;
  enum { N = 200001 };
  float *x = noise(N, 1), out[12] = {0}, rows[6] = {1, 2, 3, 4, 5, 6};
  double expected = 0;
  for (int i = 0; i < N; i++) expected += (double)x[i] * x[i];
  assert_true(fabs(c->training->sum_squares(c, x, N) - expected) < 1e-9 * expected);
  c->training->scatter_add_rows(c, out, rows, (const int32_t[]){5, 0}, 2, 2);
  c->training->scatter_add_rows(c, out, rows, (const int32_t[]){5, 1}, 2, 2);
  const float want[12] = {3, 4, 3, 4, 0, 0, 0, 0, 0, 0, 2, 4};
  for (int i = 0; i < 12; i++) assert_true(out[i] == want[i]);
  free(x);
}

static void test_joined_gradients(void **state) {
  struct compute *c = *state;
  float table[8] = {0}, sums[2] = {10, 20}, rows[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  c->training->scatter_add_repeated(c, table, rows, (const int32_t[]){3, 0, -1, 3}, 4, 2);
  const float want[8] = {3, 4, 0, 0, 0, 0, 1 + 7, 2 + 8};
  for (int i = 0; i < 8; i++) assert_true(table[i] == want[i]);
  c->training->sum_rows(c, sums, rows, 4, 2);
  assert_true(sums[0] == 10 + 1 + 3 + 5 + 7 && sums[1] == 20 + 2 + 4 + 6 + 8);
}

static void test_move_heads(void **state) {
  struct compute *c = *state;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, wide[12] = {0}, one[4] = {100, 100, 100, 100};
  /* rows of two heads of 2 into rows of two heads of 3 */
  c->training->move_heads(c, &(struct move_heads_params){.out = wide + 1, .x = x, .n_heads = 2, .dim = 2, .out_row = 6, .out_head = 3, .x_row = 4, .x_head = 2}, 2);
  const float spread[12] = {0, 1, 2, 0, 3, 4, 0, 5, 6, 0, 7, 8};
  assert_memory_equal(wide, spread, sizeof spread);
  /* one head for all, and back: the sum over heads */
  c->training->move_heads(c, &(struct move_heads_params){.out = wide, .x = x, .n_heads = 2, .dim = 2, .out_row = 6, .out_head = 3, .x_row = 2}, 2);
  const float same[12] = {1, 2, 2, 1, 2, 4, 3, 4, 6, 3, 4, 8};
  assert_memory_equal(wide, same, sizeof same);
  c->training->move_heads(c, &(struct move_heads_params){.out = one, .x = x, .n_heads = 2, .dim = 2, .out_row = 2, .x_row = 4, .x_head = 2, .accumulate = true}, 2);
  const float summed[4] = {104, 106, 112, 114};
  assert_memory_equal(one, summed, sizeof summed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gemm),
      cmocka_unit_test(test_gemm_ignores_garbage),
      cmocka_unit_test(test_gemm_over_no_rows),
      cmocka_unit_test(test_silu_mul_backward),
      cmocka_unit_test(test_rms_norm_backward),
      cmocka_unit_test(test_attention_forward),
      cmocka_unit_test(test_attention_backward),
      cmocka_unit_test(test_distill),
      cmocka_unit_test(test_adamw),
      cmocka_unit_test(test_muon),
      cmocka_unit_test(test_muon_evens_directions),
      cmocka_unit_test(test_blend),
      cmocka_unit_test(test_sums_and_scatter),
      cmocka_unit_test(test_joined_gradients),
      cmocka_unit_test(test_move_heads),
  };
  return cmocka_run_group_tests_name("training", tests, open_compute, close_compute);
}
