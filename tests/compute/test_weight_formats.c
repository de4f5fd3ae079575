/* test_weight_formats.c - every code of every quantised format against what its definition says, on every instruction
 * set; odd addresses; fields that cross words. Whole packed tensors made elsewhere are in tests/model/test_linear.c. */
#include "compute_fixture.h"

/* Each element alone: x is one at k, so that out is the weight as the kernel reads it. Equal bits, NaN to NaN. */
static void expect_read(const struct weight *w, const float *expected) {
  float *row = fixture_floats((size_t)w->n_in, 0), *x = fixture_floats((size_t)w->n_in, 0);
  for (int32_t o = 0; o < w->n_out; o++) {
    weight_row_to_f32(w, o, row);
    for (int32_t k = 0; k < w->n_in; k++) {
      float value = expected[(int64_t)o * w->n_in + k];
      if (isnan(value) ? !isnan(row[k]) : memcmp(&row[k], &value, sizeof value) != 0)
        fail_msg("row %d, input %d: expected %.9g, found %.9g", o, k, (double)value, (double)row[k]);
    }
  }
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    struct compute *c = fixture_open(fixture_isas[isa], 1);
    if (!c) continue;
    for (int32_t n = 1; n <= 3; n += 2) { /* three rows take the tile where registers are few */
      float *rows = fixture_floats((size_t)(n * w->n_in), 0), *out = fixture_floats((size_t)(n * w->n_out), 0);
      for (int32_t k = 0; k < w->n_in; k++) {
        for (int32_t r = 0; r < n; r++) rows[r * w->n_in + k] = 1;
        c->matmul(c, out, rows, w, n, 0, 0);
        for (int32_t i = 0; i < n * w->n_out; i++) {
          float value = expected[(int64_t)(i % w->n_out) * w->n_in + k];
          bool nan_elsewhere = false; /* zero times NaN */
          for (int32_t j = 0; j < w->n_in; j++) nan_elsewhere |= isnan(expected[(int64_t)(i % w->n_out) * w->n_in + j]);
          if (nan_elsewhere ? !isnan(out[i]) : out[i] != value)
            fail_msg("%s: output %d, input %d: expected %.9g, found %.9g", fixture_isas[isa], i, k, (double)value,
                     (double)out[i]);
        }
        for (int32_t r = 0; r < n; r++) rows[r * w->n_in + k] = 0;
      }
      free(rows);
      free(out);
    }
    compute_close(c);
  }
  free(row);
  free(x);
}

/* ---- 8-bit floats: all 256 codes, sixteen in a row ---- */

static float e4m3(int code) {
  int exponent = code >> 3 & 15, fraction = code & 7;
  if ((code & 127) == 127) return NAN;
  double magnitude = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
  return (float)(code & 128 ? -magnitude : magnitude);
}

static float e5m2(int code) {
  int exponent = code >> 2 & 31, fraction = code & 3;
  double magnitude = exponent ? ldexp(4 + fraction, exponent - 17) : ldexp(fraction, -16);
  if (exponent == 31) magnitude = fraction ? (double)NAN : (double)INFINITY;
  return (float)(code & 128 ? -magnitude : magnitude);
}

static void test_float8(void **state) {
  (void)state;
  uint8_t codes[257];
  float expected[256], scales[16];
  for (int i = 0; i < 256; i++) codes[1 + i] = (uint8_t)i;
  for (int o = 0; o < 16; o++) scales[o] = 0.37f + 0.013f * (float)o;
  for (int e5 = 0; e5 < 2; e5++) {
    struct weight w = {.format = e5 ? WEIGHT_F8_E5M2 : WEIGHT_F8_E4M3,
                       .n_out = 16,
                       .n_in = 16,
                       .data = codes + 1, /* an odd address */
                       .scale = scales,
                       .scale_dtype = DTYPE_F32,
                       .group = 16};
    for (int i = 0; i < 256; i++) expected[i] = (e5 ? e5m2(i) : e4m3(i)) * scales[i / 16];
    if (e5) w.n_out = 7; /* without infinities and NaN, where ones would meet zeros */
    expect_read(&w, expected);
  }
}

static void test_float8_block_edges(void **state) {
  (void)state;
  static uint8_t codes[5 * 80];
  static float expected[5 * 80];
  const float scales[3 * 3] = {1, 2, 4, 8, 16, 32, 64, 128, 256}; /* blocks of 2 x 32, cut off at 5 x 80 */
  for (int i = 0; i < 5 * 80; i++) {
    codes[i] = (uint8_t)(i * 37 % 120);
    expected[i] = e4m3(codes[i]) * scales[i / 80 / 2 * 3 + i % 80 / 32];
  }
  const struct weight w = {.format = WEIGHT_F8_E4M3,
                           .n_out = 5,
                           .n_in = 80,
                           .data = codes,
                           .scale = scales,
                           .scale_dtype = DTYPE_F32,
                           .scale_rows = 2,
                           .group = 32};
  expect_read(&w, expected);
  const struct weight part = weight_rows(&w, 3, 2); /* begins in the middle of a block */
  expect_read(&part, expected + 3 * 80);
}

/* ---- 4-bit floats ---- */

static void test_float4(void **state) {
  (void)state;
  static const float values[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};
  uint8_t codes[32], scales[4] = {0x38, 0x01, 127, 0}; /* E4M3: 1, 2^-9; E8M0: 1, 2^-127 */
  float expected[64];
  for (int i = 0; i < 32; i++) codes[i] = (uint8_t)((2 * i & 15) | (2 * i + 1) % 16 << 4); /* all codes in order */
  for (int mx = 0; mx < 2; mx++) {
    const struct weight w = {.format = WEIGHT_F4,
                             .n_out = mx ? 1 : 2,
                             .n_in = mx ? 64 : 16,
                             .data = codes,
                             .scale = mx ? scales + 2 : scales,
                             .scale_dtype = mx ? DTYPE_F8_E8M0 : DTYPE_F8_E4M3,
                             .group = mx ? 32 : 16,
                             .global = mx ? 0.0f : 3.0f,
                             .global_divides = true};
    for (int i = 0; i < w.n_out * w.n_in; i++) {
      float scale = mx ? ldexpf(1, i < 32 ? 0 : -127) : (i < 16 ? 1.0f : 0x1p-9f) / 3.0f;
      expected[i] = values[i % 16] * scale;
    }
    expect_read(&w, expected);
  }
}

/* ---- integers ---- */

static void test_int8(void **state) {
  (void)state;
  int8_t codes[256], zeros[16];
  float expected[256], scales[16];
  for (int i = 0; i < 256; i++) codes[i] = (int8_t)(i - 128);
  for (int o = 0; o < 16; o++) scales[o] = 0.01f + 0.003f * (float)o, zeros[o] = (int8_t)(o * 17 - 128);
  struct weight w = {.format = WEIGHT_INT8,
                     .n_out = 16,
                     .n_in = 16,
                     .data = codes,
                     .scale = scales,
                     .scale_dtype = DTYPE_F32,
                     .group = 16};
  for (int i = 0; i < 256; i++) expected[i] = (float)codes[i] * scales[i / 16];
  expect_read(&w, expected);
  w.zero_kind = WEIGHT_ZERO_I8;
  w.zero = zeros;
  for (int i = 0; i < 256; i++) expected[i] = (float)(codes[i] - zeros[i / 16]) * scales[i / 16];
  expect_read(&w, expected);
}

/* The last group of a row may be cut off. */
static void test_cut_groups(void **state) {
  (void)state;
  int8_t codes[3 * 80];
  float expected[3 * 80], scales[9];
  for (int i = 0; i < 3 * 80; i++) codes[i] = (int8_t)(i * 11 % 251 - 125);
  for (int i = 0; i < 9; i++) scales[i] = 0.01f + 0.001f * (float)i;
  const struct weight w = {.format = WEIGHT_INT8,
                           .n_out = 3,
                           .n_in = 80,
                           .data = codes,
                           .scale = scales,
                           .scale_dtype = DTYPE_F32,
                           .group = 32};
  for (int i = 0; i < 3 * 80; i++) expected[i] = (float)codes[i] * scales[i / 80 * 3 + i % 80 / 32];
  expect_read(&w, expected);
}

/* Nibbles with packed zero points along the outputs, as compressed-tensors packs them. */
static void test_int4_zeros(void **state) {
  (void)state;
  uint8_t codes[8 * 16];
  float expected[8 * 32], scales[16];
  const uint32_t zeros[2] = {0x76543210u, 0x89abcdefu}; /* [1, groups]: outputs 0..7 of groups 0 and 1 */
  for (int i = 0; i < 8 * 16; i++) codes[i] = (uint8_t)(i * 29);
  for (int i = 0; i < 16; i++) scales[i] = 0.02f + 0.001f * (float)i;
  const struct weight w = {.format = WEIGHT_INT4,
                           .n_out = 8,
                           .n_in = 32,
                           .data = codes,
                           .scale = scales,
                           .scale_dtype = DTYPE_F32,
                           .group = 16,
                           .zero_kind = WEIGHT_ZERO_FIELDS,
                           .zeros = {.words = zeros, .line = 1, .step = 2, .bits = 4}};
  for (int i = 0; i < 8 * 32; i++) {
    int o = i / 32, g = i % 32 / 16, q = codes[i / 2] >> (4 * (i & 1)) & 15, z = g ? 15 - o : o;
    expected[i] = (float)(q - z) * scales[2 * o + g];
  }
  expect_read(&w, expected);
}

/* Three bits run across words: 32 fields in three words. */
static void test_fields(void **state) {
  (void)state;
  uint8_t bytes[13];
  struct weight_fields f = {.words = bytes + 1, .line = 3, .step = 1, .bits = 3};
  uint32_t words[3] = {0};
  for (uint32_t i = 0; i < 32; i++) {
    uint32_t value = i * 5 % 8;
    for (uint32_t b = 0; b < 3; b++) words[(3 * i + b) / 32] |= (value >> b & 1) << ((3 * i + b) % 32);
  }
  memcpy(bytes + 1, words, sizeof words);
  for (uint32_t i = 0; i < 32; i++) assert_int_equal(weight_field(&f, 0, i), i * 5 % 8);
  f.padded = true; /* ten in a word */
  const uint32_t padded[2] = {0x3fffffffu & 01234567012u, 7u};
  memcpy(bytes + 1, padded, sizeof padded);
  assert_int_equal(weight_field(&f, 0, 0), 2);
  assert_int_equal(weight_field(&f, 0, 8), 2);
  assert_int_equal(weight_field(&f, 0, 10), 7);
}

/* Bug case A15: logical columns 0..7 are 0x75316420 in AWQ's order. */
static void test_awq_order(void **state) {
  (void)state;
  const uint32_t codes[2] = {0x75316420u, 0x75316420u}, zeros[1] = {0x64207531u}; /* 1 3 5 7 0 2 4 6 as nibbles */
  const float scales[8] = {1, 1, 1, 1, 1, 1, 1, 0.5f};
  const struct weight w = {.format = WEIGHT_PACKED,
                           .n_out = 8,
                           .n_in = 2,
                           .scale = scales,
                           .scale_dtype = DTYPE_F32,
                           .scale_transposed = true,
                           .group = 2,
                           .codes = {.words = codes, .line = 1, .step = 1, .bits = 4, .awq_order = true},
                           .codes_along_out = true,
                           .zero_kind = WEIGHT_ZERO_FIELDS,
                           .zeros = {.words = zeros, .line = 1, .step = 1, .bits = 4, .awq_order = true}};
  for (int i = 0; i < 8; i++) assert_int_equal(weight_field(&w.codes, 0, i), i);
  static const int zero[8] = {1, 0, 3, 2, 5, 4, 7, 6};
  for (int i = 0; i < 8; i++) assert_int_equal(weight_field(&w.zeros, 0, i), zero[i]);
  float expected[16];
  for (int i = 0; i < 16; i++) expected[i] = (float)(i / 2 - zero[i / 2]) * scales[i / 2];
  expect_read(&w, expected);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_float8), cmocka_unit_test(test_float8_block_edges),
      cmocka_unit_test(test_float4), cmocka_unit_test(test_int8),
      cmocka_unit_test(test_cut_groups), cmocka_unit_test(test_int4_zeros),
      cmocka_unit_test(test_fields),     cmocka_unit_test(test_awq_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
