/* test_linear.c - weights and linear layers: every format, odd shapes, odd addresses and strides against double loops;
 * the bits of a row against its own bits alone, in other company, on other team sizes; instruction sets against each
 * other. */
#include "compute_fixture.h"

/* ---- weights ---- */

static void test_int4_vectors(void **state) {
  (void)state;
  static const struct {
    uint32_t word;
    int q[8];
  } cases[] = {
      {0x76543210u, {-8, -7, -6, -5, -4, -3, -2, -1}}, {0xFEDCBA98u, {0, 1, 2, 3, 4, 5, 6, 7}}, {0x88888888u, {0}}};
  for (size_t i = 0; i < 3; i++) {
    for (int32_t words = 1; words <= 2; words++) { /* eight inputs take the slow reader, sixteen the vector one */
      uint8_t bytes[8];
      for (int b = 0; b < 8; b++) bytes[b] = (uint8_t)(cases[i].word >> (8 * (b % 4)));
      const float scale = 0.5f;
      const struct weight w = {.format = WEIGHT_INT4,
                               .n_out = 1,
                               .n_in = 8 * words,
                               .data = bytes,
                               .scale = &scale,
                               .scale_dtype = DTYPE_F32,
                               .group = 8 * words};
      float row[16];
      weight_row_to_f32(&w, 0, row);
      for (int k = 0; k < 8 * words; k++) assert_true(row[k] == 0.5f * (float)cases[i].q[k % 8]);
      for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
        struct compute *c = fixture_open(fixture_isas[isa], 1);
        if (!c) continue;
        for (int k = 0; k < 8 * words; k++) {
          float x[16] = {0}, out;
          x[k] = 1;
          c->matmul(c, &out, x, &w, 1, 0, 0);
          assert_true(out == row[k]);
        }
        compute_close(c);
      }
    }
  }
}

static void test_weight_functions(void **state) {
  (void)state;
  assert_string_equal(weight_format_name(WEIGHT_INT4), "int4");
  assert_string_equal(weight_format_name(WEIGHT_BF16), "bf16");
  const struct fixture_format *int4 = &fixture_formats[3];
  struct fixture_weight f = fixture_weight(int4, 6, 64, 1);
  assert_int_equal(weight_bytes(&f.w), 6 * 32 + 6 * 2 * 2);
  struct weight part = weight_rows(&f.w, 2, 3);
  assert_int_equal(part.n_out, 3);
  float a[64], b[64];
  weight_row_to_f32(&part, 1, a);
  weight_row_to_f32(&f.w, 3, b);
  assert_memory_equal(a, b, sizeof a);
  assert_false(weight_present(&(struct weight){.format = WEIGHT_NONE}));
  fixture_weight_free(&f);
}

/* ---- matmul against double ---- */

static void check_matmul(struct compute *c, const struct fixture_format *format, int32_t n_out, int32_t n_in,
                         int32_t n) {
  struct fixture_weight f = fixture_weight(format, n_out, n_in, (uint64_t)n_in);
  int64_t x_row = n_in + 3, out_row = n_out + 2;
  float *x = fixture_noise((size_t)(n * x_row), 2), *out = fixture_floats((size_t)(n * out_row), 77.0f);
  c->matmul(c, out, x, &f.w, n, out_row, x_row);
  for (int32_t i = 0; i < n; i++) {
    fixture_check_row(out + i * out_row, &f, x + i * x_row, weight_format_name(format->format));
    for (int64_t k = n_out; k < out_row; k++)
      assert_true(out[i * out_row + k] == 77.0f); /* nothing between the rows is touched */
  }
  free(x);
  free(out);
  fixture_weight_free(&f);
}

static void check_matmul_shapes(struct compute *c) {
  static const int32_t outs[] = {1, 3, 4, 5, 37}, ins[] = {1, 15, 16, 17, 24, 64, 72, 96, 192},
                       rows[] = {1, 2, 3, 5, 6, 7, 13, 50};
  for (size_t f = 0; f < FIXTURE_FORMATS; f++) {
    for (size_t i = 0; i < sizeof ins / sizeof *ins; i++) {
      if (!fixture_fits(&fixture_formats[f], ins[i])) continue;
      for (size_t o = 0; o < sizeof outs / sizeof *outs; o++) {
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
          check_matmul(c, &fixture_formats[f], outs[o], ins[i], rows[r]);
      }
    }
  }
}

static void test_matmul(void **state) {
  (void)state;
  fixture_each(check_matmul_shapes);
}

static void check_no_rows(struct compute *c) {
  struct fixture_weight f = fixture_weight(&fixture_formats[1], 5, 16, 1);
  float out = 7, x = 1;
  c->matmul(c, &out, &x, &f.w, 0, 0, 0);
  assert_true(out == 7.0f);
  fixture_weight_free(&f);
}

/* Several weights in one job give the bits that each gives alone, in its own stride; 200 rows are several turns. */
static void check_many(const char *isa, int threads, int32_t n) {
  static const int32_t n_out[] = {37, 4, 160};
  struct compute *c = fixture_open(isa, threads);
  if (!c) return;
  struct fixture_weight f[3];
  struct matmul_part parts[3];
  float *x = fixture_noise((size_t)n * 64, 2), *wide = fixture_floats((size_t)n * 300, 77.0f),
        *alone = fixture_floats((size_t)n * 300, 77.0f);
  for (int i = 0, at = 0; i < 3; at += n_out[i++] + 5) {
    f[i] = fixture_weight(&fixture_formats[i + 1], n_out[i], 64, (uint64_t)i);
    parts[i] = (struct matmul_part){.out = wide + at, .out_row = 300, .w = &f[i].w};
    c->matmul(c, alone + at, x, &f[i].w, n, 300, 0);
  }
  c->matmul_many(c, parts, 3, x, n);
  assert_memory_equal(wide, alone, sizeof(float) * (size_t)n * 300);
  parts[2].out_row = 0;
  c->matmul(c, alone, x, &f[2].w, n, 0, 0);
  parts[2].out = wide;
  c->matmul_many(c, parts + 2, 1, x, n);
  assert_memory_equal(wide, alone, sizeof(float) * (size_t)(n * n_out[2]));
  for (int i = 0; i < 3; i++) fixture_weight_free(&f[i]);
  free(x);
  free(wide);
  free(alone);
  compute_close(c);
}

static void test_matmul_many(void **state) {
  (void)state;
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    for (int threads = 1; threads <= 3; threads++) {
      check_many(fixture_isas[isa], threads, 0);
      check_many(fixture_isas[isa], threads, 2);
      check_many(fixture_isas[isa], threads, 200);
    }
  }
}

static void test_matmul_of_no_rows(void **state) {
  (void)state;
  fixture_each(check_no_rows);
}

/* ---- rows do not see each other ---- */

/* Row r's bits alone, then with 199 others in another order, on one to three threads. */
static void check_independence(const char *isa, const struct fixture_format *format, int32_t n_in) {
  enum { N = 200, OUT = 210 };
  struct fixture_weight f = fixture_weight(format, OUT, n_in, 9);
  float *x = fixture_noise((size_t)(N * n_in), 3), *shuffled = fixture_floats((size_t)(N * n_in), 0),
        *alone = fixture_floats(N * OUT, 0), *out = fixture_floats(N * OUT, 0);
  uint32_t order[N];
  random_permutation(order, N, 5, 6);
  for (int32_t i = 0; i < N; i++)
    memcpy(shuffled + (int64_t)i * n_in, x + (int64_t)order[i] * n_in, sizeof(float) * (size_t)n_in);
  for (int threads = 1; threads <= 3; threads++) {
    struct compute *c = fixture_open(isa, threads);
    if (!c) break;
    for (int32_t i = 0; threads == 1 && i < N; i++) c->matmul(c, alone + i * OUT, x + (int64_t)i * n_in, &f.w, 1, 0, 0);
    static const int32_t counts[] = {7, 64, N};
    for (size_t k = 0; k < 3; k++) {
      c->matmul(c, out, shuffled, &f.w, counts[k], 0, 0);
      for (int32_t i = 0; i < counts[k]; i++)
        assert_memory_equal(out + i * OUT, alone + (int64_t)order[i] * OUT, sizeof(float) * OUT);
    }
    compute_close(c);
  }
  free(x), free(shuffled), free(alone), free(out);
  fixture_weight_free(&f);
}

static void test_matmul_rows_are_independent(void **state) {
  (void)state;
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    for (size_t f = 0; f < FIXTURE_FORMATS; f++) {
      static const int32_t ins[] = {192, 72, 41};
      for (size_t i = 0; i < 3; i++) {
        if (fixture_fits(&fixture_formats[f], ins[i]))
          check_independence(fixture_isas[isa], &fixture_formats[f], ins[i]);
      }
    }
  }
}

/* AVX2 and AVX-512 add the same lanes in the same order with fused steps: equal bits. Scalar code rounds products too.
 */
static void test_instruction_sets_agree(void **state) {
  (void)state;
  enum { N = 9, OUT = 33, IN = 192 };
  float *x = fixture_noise(N * IN, 3), *out[FIXTURE_ISAS];
  for (size_t f = 0; f < FIXTURE_FORMATS; f++) {
    struct fixture_weight w = fixture_weight(&fixture_formats[f], OUT, IN, 9);
    bool present[FIXTURE_ISAS] = {false};
    for (size_t i = 0; i < FIXTURE_ISAS; i++) {
      out[i] = fixture_floats(N * OUT, 0);
      struct compute *c = fixture_open(fixture_isas[i], 1);
      if (!c) continue;
      present[i] = true;
      c->matmul(c, out[i], x, &w.w, N, 0, 0);
      compute_close(c);
    }
    for (int k = 0; present[1] && k < N * OUT; k++) fixture_near(out[1][k], out[0][k], 1e-5, "avx2 against scalar", k);
    if (present[1] && present[2]) assert_memory_equal(out[1], out[2], sizeof(float) * N * OUT);
    for (size_t i = 0; i < FIXTURE_ISAS; i++) free(out[i]);
    fixture_weight_free(&w);
  }
  free(x);
}

/* The single dot product and the blocked one promise one order of additions. */
static void check_one_order(struct compute *c) {
  static const int32_t ins[] = {16, 41, 192, 320};
  for (size_t i = 0; i < sizeof ins / sizeof *ins; i++) {
    enum { OUT = 40 };
    struct fixture_weight f = fixture_weight(&fixture_formats[0], OUT, ins[i], 9);
    float *x = fixture_noise((size_t)ins[i], 3), *row = fixture_floats((size_t)ins[i], 0), out[OUT];
    c->matmul(c, out, x, &f.w, 1, 0, 0);
    for (int32_t o = 0; o < OUT; o++) {
      weight_row_to_f32(&f.w, o, row);
      float one = cpu_of(c)->kernels->dot(row, x, ins[i]);
      assert_memory_equal(&one, &out[o], sizeof one);
    }
    free(x), free(row);
    fixture_weight_free(&f);
  }
}

static void test_one_order_of_additions(void **state) {
  (void)state;
  fixture_each(check_one_order);
}

static void test_unknown_instruction_set(void **state) {
  (void)state;
  struct compute *c = NULL;
  struct eaglet_error err;
  const struct cpu_open_params params = {.isa = "mmx"};
  assert_int_equal(cpu_open(&c, &params, &err), EAGLET_E_USAGE);
  assert_null(c);
  assert_int_equal(compute_open_cpu(&c, 0, EAGLET_PRECISION_FAST, &err), EAGLET_OK);
  assert_memory_equal(c->name, "cpu ", 4);
  compute_close(c);
  compute_close(NULL);
}

/* ---- heads ---- */

enum { HEADS = 3, ROWS_PER_HEAD = 21, LATENT_MAX = 72, HEAD_ROWS = 200 };

static void check_head(const struct matmul_heads_params *p, const struct fixture_weight *f, int32_t row, int32_t head) {
  const float *x = p->x + row * p->x_row + head * p->x_head, *out = p->out + row * p->out_row + head * p->out_head;
  const double *w = f->value + (int64_t)(head * p->rows_per_head + p->row_begin) * f->w.n_in;
  int32_t n_out = p->transpose ? f->w.n_in : p->n_rows, n_in = p->transpose ? p->n_rows : f->w.n_in;
  for (int32_t o = 0; o < n_out; o++) {
    double sum = 0, size = 0;
    for (int32_t i = 0; i < n_in; i++) {
      double term = x[i] * (p->transpose ? w[(int64_t)i * f->w.n_in + o] : w[(int64_t)o * f->w.n_in + i]);
      sum += term;
      size += fabs(term);
    }
    fixture_near(out[o], sum, 1e-6 * size + 1e-30, p->transpose ? "heads transposed" : "heads", o);
  }
}

static void check_heads(const char *isa, const struct fixture_format *format, bool transpose, int32_t latent) {
  struct fixture_weight f = fixture_weight(format, HEADS * ROWS_PER_HEAD, latent, 4);
  int64_t head = LATENT_MAX + 1, row = HEADS * head + 2;
  float *x = fixture_noise((size_t)(HEAD_ROWS * row), 5), *out = fixture_floats((size_t)(HEAD_ROWS * row), 77),
        *alone = fixture_floats((size_t)(HEAD_ROWS * row), 77);
  struct matmul_heads_params p = {.out = alone,
                                  .x = x,
                                  .w = &f.w,
                                  .n_heads = HEADS,
                                  .rows_per_head = ROWS_PER_HEAD,
                                  .row_begin = 2,
                                  .n_rows = 17,
                                  .transpose = transpose,
                                  .out_row = row,
                                  .out_head = head,
                                  .x_row = row,
                                  .x_head = head};
  for (int threads = 1; threads <= 3; threads++) {
    struct compute *c = fixture_open(isa, threads);
    if (!c) break;
    for (int32_t i = 0; threads == 1 && i < HEAD_ROWS; i++) {
      p.out = alone + i * row;
      p.x = x + i * row;
      c->matmul_heads(c, &p, 1);
    }
    p.out = out;
    p.x = x;
    c->matmul_heads(c, &p, HEAD_ROWS);
    assert_memory_equal(out, alone, sizeof(float) * (size_t)(HEAD_ROWS * row));
    for (int32_t i = 0; i < 7; i++) {
      for (int32_t h = 0; h < HEADS; h++) check_head(&p, &f, i, h);
    }
    compute_close(c);
  }
  free(x), free(out), free(alone);
  fixture_weight_free(&f);
}

static void test_matmul_heads(void **state) {
  (void)state;
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    for (size_t f = 0; f < FIXTURE_FORMATS; f++) {
      static const int32_t latents[] = {64, 72, 41};
      for (size_t i = 0; i < 3; i++) {
        if (!fixture_fits(&fixture_formats[f], latents[i])) continue;
        check_heads(fixture_isas[isa], &fixture_formats[f], false, latents[i]);
        check_heads(fixture_isas[isa], &fixture_formats[f], true, latents[i]);
      }
    }
  }
}

/* ---- embedding ---- */

static void check_embed(struct compute *c) {
  static const int32_t ids[] = {4, 0, 4, 6};
  for (size_t f = 0; f < FIXTURE_FORMATS; f++) {
    int32_t n_in = fixture_formats[f].group == 24 ? 72 : 64;
    struct fixture_weight w = fixture_weight(&fixture_formats[f], 7, n_in, 8);
    float *out = fixture_floats((size_t)(4 * n_in), 0);
    c->embed(c, out, &w.w, ids, 4);
    for (int32_t i = 0; i < 4 * n_in; i++) {
      double expected = w.value[ids[i / n_in] * n_in + i % n_in];
      assert_true(out[i] == (float)expected); /* exact by the format's definition */
    }
    free(out);
    fixture_weight_free(&w);
  }
}

static void test_embed(void **state) {
  (void)state;
  fixture_each(check_embed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_int4_vectors),
      cmocka_unit_test(test_weight_functions),
      cmocka_unit_test(test_matmul),
      cmocka_unit_test(test_matmul_of_no_rows),
      cmocka_unit_test(test_matmul_many),
      cmocka_unit_test(test_matmul_rows_are_independent),
      cmocka_unit_test(test_instruction_sets_agree),
      cmocka_unit_test(test_one_order_of_additions),
      cmocka_unit_test(test_unknown_instruction_set),
      cmocka_unit_test(test_matmul_heads),
      cmocka_unit_test(test_embed),
  };
  return cmocka_run_group_tests_name("linear", tests, NULL, NULL);
}
