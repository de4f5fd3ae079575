/* test_dtype.c - element types: names both ways, and half and bfloat16 conversions, exhaustively. The oracle is arithmetic on doubles
 * with the definition of the formats (value = fraction * 2^e, nearest, ties to even), not bit tricks. */
#include "base/dtype.h"
#include "support.h"

#include <math.h>

static uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

static float float_of(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static void test_names_and_bits(void **state) {
  (void)state;
  for (unsigned i = DTYPE_BOOL; i < DTYPE_COUNT; i++) {
    assert_int_equal(dtype_from_name(dtype_name((enum dtype)i)), i);
    assert_true(dtype_bits((enum dtype)i) >= 4);
  }
  assert_int_equal(dtype_from_name("bf16"), DTYPE_NONE);
  assert_int_equal(dtype_from_name(""), DTYPE_NONE);
  assert_int_equal(dtype_from_name("NONE"), DTYPE_NONE);
  assert_int_equal(dtype_bits(DTYPE_BF16), 16);
  assert_int_equal(dtype_bits(DTYPE_F6_E3M2), 6);
  assert_int_equal(dtype_bits(DTYPE_C64), 64);
}

static double value_of_f16(uint16_t v) {
  int exponent = v >> 10 & 31, fraction = v & 1023;
  double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
  return v & 0x8000 ? -magnitude : magnitude;
}

static void test_f16_to_f32_all(void **state) {
  (void)state;
  for (uint32_t v = 0; v < 65536; v++) {
    float f = dtype_f16_to_f32((uint16_t)v);
    assert_int_equal(signbit(f) != 0, v >> 15);
    if ((v >> 10 & 31) == 31) {
      assert_true(v & 1023 ? isnan(f) : isinf(f));
    } else {
      assert_true((double)f == value_of_f16((uint16_t)v));
    }
    uint16_t back = dtype_f32_to_f16(f);
    if (isnan(f)) assert_true((back & 0x7c00) == 0x7c00 && (back & 0x3ff));
    else assert_int_equal(back, v);
  }
}

/* Rounding is monotonic, so it is right everywhere when it is right at, just below and just above every midpoint. */
static void test_f32_to_f16_midpoints(void **state) {
  (void)state;
  for (uint32_t v = 0; v < 0x7bff; v++) {
    double middle = (value_of_f16((uint16_t)v) + value_of_f16((uint16_t)(v + 1))) / 2;
    float f = (float)middle; /* exact: one bit more than a half */
    uint32_t even = v & 1 ? v + 1 : v;
    for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
      float sign_f = sign ? -1.0f : 1.0f;
      assert_int_equal(dtype_f32_to_f16(sign_f * f), even | sign);
      assert_int_equal(dtype_f32_to_f16(sign_f * float_of(bits_of(f) - 1)), v | sign);
      assert_int_equal(dtype_f32_to_f16(sign_f * float_of(bits_of(f) + 1)), (v + 1) | sign);
    }
  }
  assert_int_equal(dtype_f32_to_f16(65519.996f), 0x7bff);
  assert_int_equal(dtype_f32_to_f16(65520.0f), 0x7c00);
  assert_int_equal(dtype_f32_to_f16(-3e38f), 0xfc00);
  assert_int_equal(dtype_f32_to_f16(INFINITY), 0x7c00);
  assert_int_equal(dtype_f32_to_f16(float_of(1)), 0);
}

static void test_bf16_all(void **state) {
  (void)state;
  for (uint32_t v = 0; v < 65536; v++) {
    float f = dtype_bf16_to_f32((uint16_t)v);
    assert_int_equal(bits_of(f), v << 16);
    uint16_t back = dtype_f32_to_bf16(f);
    if (isnan(f)) {
      assert_true((back & 0x7f80) == 0x7f80 && (back & 0x7f));
      continue;
    }
    assert_int_equal(back, v);
    if ((v & 0x7fff) >= 0x7f80) continue;
    uint32_t even = v & 1 ? v + 1 : v;
    assert_int_equal(dtype_f32_to_bf16(float_of(v << 16 | 0x8000)), even);
    assert_int_equal(dtype_f32_to_bf16(float_of(v << 16 | 0x7fff)), v);
    assert_int_equal(dtype_f32_to_bf16(float_of(v << 16 | 0x8001)), v + 1);
  }
  assert_true(isnan(dtype_bf16_to_f32(dtype_f32_to_bf16(float_of(0x7f800001))))); /* payload only in the lost bits */
}

static void test_spans_at_odd_addresses(void **state) {
  (void)state;
  const float values[] = {0, -0.0f, 1, -2.5f, 1e-7f, 65504, 3.140625f};
  enum { n = sizeof values / sizeof *values };
  static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
  for (int d = 0; d < 3; d++) {
    unsigned char bytes[1 + 4 * n];
    float back[n];
    dtype_from_f32(bytes + 1, dtypes[d], values, n);
    dtype_to_f32(back, bytes + 1, dtypes[d], n);
    for (int i = 0; i < n; i++) {
      double tolerance = dtypes[d] == DTYPE_F32 ? 0 : dtypes[d] == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
      assert_true(fabs(back[i] - values[i]) <= tolerance * fabs(values[i]) + (dtypes[d] == DTYPE_F16 ? 0x1p-25 : 0));
    }
  }
  const double wide[] = {1.0 / 3, -1e300};
  float narrow[2];
  dtype_to_f32(narrow, wide, DTYPE_F64, 2);
  assert_true(narrow[0] == (float)(1.0 / 3) && isinf(narrow[1]));
  dtype_to_f32(NULL, NULL, DTYPE_BF16, 0);
}

static void convert_integers(void *argument) { dtype_to_f32(argument, "abcd", DTYPE_I32, 1); }

static void test_integers_are_refused(void **state) {
  (void)state;
  float f;
  assert_true(aborts(convert_integers, &f));
}

/* As for F16; 464, half way to what would be 480, still is 448, and so is all beyond. */
static void test_f32_to_f8_e4m3(void **state) {
  (void)state;
  for (uint32_t v = 0; v < 256; v++) {
    float f = dtype_f8_e4m3_to_f32((uint8_t)v);
    assert_int_equal(dtype_f32_to_f8_e4m3(f) & (isnan(f) ? 0x7f : 0xff), isnan(f) ? 0x7f : v);
  }
  for (uint32_t v = 0; v < 0x7e; v++) {
    float middle = (dtype_f8_e4m3_to_f32((uint8_t)v) + dtype_f8_e4m3_to_f32((uint8_t)(v + 1))) / 2;
    uint32_t even = v & 1 ? v + 1 : v;
    for (uint32_t sign = 0; sign <= 0x80; sign += 0x80) {
      float sign_f = sign ? -1.0f : 1.0f;
      assert_int_equal(dtype_f32_to_f8_e4m3(sign_f * middle), even | sign);
      assert_int_equal(dtype_f32_to_f8_e4m3(sign_f * float_of(bits_of(middle) - 1)), v | sign);
      assert_int_equal(dtype_f32_to_f8_e4m3(sign_f * float_of(bits_of(middle) + 1)), (v + 1) | sign);
    }
  }
  assert_int_equal(dtype_f32_to_f8_e4m3(464.0f), 0x7e);
  assert_int_equal(dtype_f32_to_f8_e4m3(-3e38f), 0xfe);
  assert_int_equal(dtype_f32_to_f8_e4m3(INFINITY), 0x7e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names_and_bits),       cmocka_unit_test(test_f16_to_f32_all),
      cmocka_unit_test(test_f32_to_f16_midpoints), cmocka_unit_test(test_bf16_all), cmocka_unit_test(test_f32_to_f8_e4m3),
      cmocka_unit_test(test_spans_at_odd_addresses), cmocka_unit_test(test_integers_are_refused),
  };
  return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
