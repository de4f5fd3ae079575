/* test_elementwise.c - the small ops: norms, sums, the gated activation, gathers, argmax, memory. Values against
 * double, bits against the same row in other company and on other team sizes. */
#include "compute_fixture.h"

#include <stdint.h>

/* ---- norm ---- */

static void check_norm(struct compute *c) {
  static const int32_t dims[] = {1, 7, 16, 33, 320};
  for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
    enum { N = 9 };
    int32_t dim = dims[d];
    int64_t x_row = dim + 3, out_row = dim + 1;
    float *x = fixture_noise((size_t)(N * x_row), 1), *w = fixture_noise((size_t)dim, 2),
          *out = fixture_floats((size_t)(N * out_row), 77), *tight = fixture_floats((size_t)dim, 0);
    const struct norm_params p = {.dim = dim, .eps = 1e-3f, .x_row = x_row, .out_row = out_row},
                             one = {.dim = dim, .eps = 1e-3f};
    c->rms_norm(c, out, x, w, N, &p);
    for (int i = 0; i < N; i++) {
      double squares = 0;
      for (int32_t k = 0; k < dim; k++) squares += (double)x[i * x_row + k] * x[i * x_row + k];
      double scale = 1 / sqrt(squares / dim + 1e-3);
      for (int32_t k = 0; k < dim; k++) {
        double expected = x[i * x_row + k] * scale * w[k];
        fixture_near(out[i * out_row + k], expected, 1e-6 * fabs(expected) + 1e-12, "rms_norm", k);
      }
      assert_true(out[i * out_row + dim] == 77.0f);
      c->rms_norm(c, tight, x + i * x_row, w, 1, &one);
      assert_memory_equal(tight, out + i * out_row, sizeof(float) * (size_t)dim);
    }
    c->rms_norm(c, tight, tight, w, 1, &one); /* in place */
    free(x), free(w), free(out), free(tight);
  }
}

static void test_rms_norm(void **state) {
  (void)state;
  fixture_each(check_norm);
}

/* ---- sums and the activation ---- */

static void check_sums(struct compute *c) {
  enum { N = 5, DIM = 37 };
  float *a = fixture_noise(N * DIM, 1), *b = fixture_noise(N * DIM, 2), *out = fixture_floats(N * DIM + 1, 77);
  c->add(c, out, a, b, N * DIM);
  for (int i = 0; i < N * DIM; i++) assert_true(out[i] == a[i] + b[i]);
  assert_true(out[N * DIM] == 77.0f);
  c->add(c, out, out, b, N * DIM);
  for (int i = 0; i < N * DIM; i++) assert_true(out[i] == a[i] + b[i] + b[i]);
  memcpy(out, a, sizeof(float) * N * DIM);
  c->add_bias(c, out, b, N, DIM);
  for (int i = 0; i < N * DIM; i++) assert_true(out[i] == a[i] + b[i % DIM]);
  free(a), free(b), free(out);
}

static void test_sums(void **state) {
  (void)state;
  fixture_each(check_sums);
}

static void check_silu(struct compute *c) {
  static const float extremes[] = {0, -0.0f, 1e-30f, 20, -20, 87, -87, 100, -100, 1e30f, -1e30f, 3e-8f, -1};
  enum { N = 1001, M = sizeof extremes / sizeof *extremes };
  float *gate = fixture_noise(N, 1), *up = fixture_noise(N, 2), *out = fixture_floats(N + 1, 77);
  for (int i = 0; i < N; i++) gate[i] *= 4;
  memcpy(gate + 20, extremes, sizeof extremes);
  for (int i = 20; i < 20 + M; i++) up[i] = 1;
  c->silu_mul(c, out, gate, up, N);
  for (int i = 0; i < N; i++) {
    double expected = gate[i] / (1 + exp(-(double)gate[i])) * up[i];
    fixture_near(out[i], expected, 2e-6 * fabs(expected) + 1e-30 + (gate[i] < -80 ? 1e-7 * fabs((double)gate[i]) : 0),
                 "silu_mul", i);
  }
  assert_true(out[N] == 77.0f);
  for (int begin = 0; begin < 40; begin++) { /* a value's bits do not depend on where the call began */
    float alone[3];
    c->silu_mul(c, alone, gate + begin, up + begin, 3);
    assert_memory_equal(alone, out + begin, sizeof alone);
  }
  float nan = NAN, one = 1, result;
  c->silu_mul(c, &result, &nan, &one, 1);
  assert_true(isnan(result));
  free(gate), free(up), free(out);
}

static void test_silu_mul(void **state) {
  (void)state;
  fixture_each(check_silu);
}

/* ---- gather, argmax, memory ---- */

static void check_gather(struct compute *c) {
  enum { DIM = 5, X_ROW = 7, OUT_ROW = 6 };
  static const int32_t rows[] = {3, 0, 3, 2};
  float *x = fixture_noise(4 * X_ROW, 1), *out = fixture_floats(4 * OUT_ROW, 77), tight[4 * DIM];
  const struct gather_params p = {.dim = DIM, .x_row = X_ROW, .out_row = OUT_ROW}, plain = {.dim = DIM};
  c->gather_rows(c, out, x, rows, 4, &p);
  c->gather_rows(c, tight, x, rows, 4, &plain);
  for (int i = 0; i < 4 * OUT_ROW; i++)
    assert_true(out[i] == (i % OUT_ROW < DIM ? x[rows[i / OUT_ROW] * X_ROW + i % OUT_ROW] : 77.0f));
  for (int i = 0; i < 4 * DIM; i++) assert_true(tight[i] == x[rows[i / DIM] * DIM + i % DIM]);
  free(x), free(out);
}

static void test_gather_rows(void **state) {
  (void)state;
  fixture_each(check_gather);
}

static void check_argmax(struct compute *c) {
  for (int32_t dim = 1; dim < 70; dim++) {
    for (int32_t best = 0; best < dim; best++) {
      float x[2 * 70];
      int32_t out[2];
      for (int32_t k = 0; k < 2 * dim; k++) x[k] = -2 - (float)(k % 3);
      x[best] = -1;
      for (int32_t k = best; k < dim; k += 16) x[dim + k] = -1; /* second row: ties, the lowest wins */
      c->argmax(c, out, x, 2, dim);
      assert_int_equal(out[0], best);
      assert_int_equal(out[1], best);
    }
  }
  const float odd[3][4] = {{NAN, 1, 3, NAN}, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {NAN, NAN, NAN, NAN}};
  int32_t out[3];
  c->argmax(c, out, odd[0], 3, 4);
  assert_int_equal(out[0], 2);
  assert_int_equal(out[1], 0);
  assert_int_equal(out[2], 0);
}

static void test_argmax(void **state) {
  (void)state;
  fixture_each(check_argmax);
}

static void check_memory(struct compute *c) {
  uint8_t *a = c->alloc(c, 1000), *b = c->alloc(c, 1000);
  assert_int_equal((uintptr_t)a % 64, 0);
  for (int i = 0; i < 1000; i++) assert_int_equal(a[i], 0);
  uint8_t from[1000], to[1000];
  for (int i = 0; i < 1000; i++) from[i] = (uint8_t)(i * 7);
  c->upload(c, a, from, sizeof from);
  c->copy(c, b, a, sizeof from);
  c->download(c, to, b, sizeof from);
  assert_memory_equal(to, from, sizeof from);
  c->free(c, a), c->free(c, b), c->free(c, NULL);
  assert_null(c->alloc(c, SIZE_MAX / 2));
}

static void test_memory(void **state) {
  (void)state;
  fixture_each(check_memory);
}

/* ---- team sizes: large enough for several threads, equal bits ---- */

enum { BIG_N = 700, BIG_DIM = 1201 };

static uint64_t run_all(struct compute *c, float *out, const float *x, const float *y) {
  const struct norm_params norm = {.dim = BIG_DIM, .eps = 1e-6f};
  const struct gather_params gather = {.dim = BIG_DIM};
  static int32_t rows[BIG_N], best[BIG_N];
  const struct rope_params rope = {.out = out,
                                   .x = out,
                                   .out_row = BIG_DIM,
                                   .out_head = 100,
                                   .x_row = BIG_DIM,
                                   .x_head = 100,
                                   .n_heads = 12,
                                   .n_pairs = 50,
                                   .cos = x,
                                   .sin = y,
                                   .positions = rows};
  uint64_t hash = 14695981039346656037u;
  for (int i = 0; i < BIG_N; i++) rows[i] = (i * 31) % BIG_N;
  for (int op = 0; op < 6; op++) {
    if (op == 0) c->rms_norm(c, out, x, y, BIG_N, &norm);
    if (op == 1) c->add(c, out, out, y, (int64_t)BIG_N * BIG_DIM);
    if (op == 2) c->add_bias(c, out, x, BIG_N, BIG_DIM);
    if (op == 3) c->silu_mul(c, out, out, y, (int64_t)BIG_N * BIG_DIM);
    if (op == 4) c->rope(c, &rope, BIG_N);
    if (op == 5) c->gather_rows(c, out, x, rows, BIG_N, &gather);
    for (size_t i = 0; i < (size_t)BIG_N * BIG_DIM; i++) {
      uint32_t bits;
      memcpy(&bits, out + i, 4);
      hash = (hash ^ bits) * 1099511628211u;
    }
  }
  c->argmax(c, best, x, BIG_N, BIG_DIM);
  for (int i = 0; i < BIG_N; i++) hash = (hash ^ (uint64_t)best[i]) * 1099511628211u;
  return hash;
}

static void test_team_sizes_agree(void **state) {
  (void)state;
  float *x = fixture_noise(BIG_N * BIG_DIM, 1), *y = fixture_noise(BIG_N * BIG_DIM, 2),
        *out = fixture_floats(BIG_N * BIG_DIM, 0);
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    uint64_t first = 0;
    for (int threads = 1; threads <= 3; threads++) {
      struct compute *c = fixture_open(fixture_isas[isa], threads);
      if (!c) break;
      uint64_t hash = run_all(c, out, x, y);
      if (threads == 1) first = hash;
      assert_true(hash == first);
      compute_close(c);
    }
  }
  free(x), free(y), free(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rms_norm),         cmocka_unit_test(test_sums),   cmocka_unit_test(test_silu_mul),
      cmocka_unit_test(test_gather_rows),      cmocka_unit_test(test_argmax), cmocka_unit_test(test_memory),
      cmocka_unit_test(test_team_sizes_agree),
  };
  return cmocka_run_group_tests_name("elementwise", tests, NULL, NULL);
}
