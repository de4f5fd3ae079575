/* dtype.c - names, sizes and conversions of element types; see dtype.h. Quantised formats are the business of compute. */
#include "base/dtype.h"

static const struct {
  const char *name;
  int bits;
} dtype_table[DTYPE_COUNT] = {
    [DTYPE_NONE] = {"NONE", 0},
    [DTYPE_BOOL] = {"BOOL", 8},
    [DTYPE_U8] = {"U8", 8},
    [DTYPE_I8] = {"I8", 8},
    [DTYPE_F8_E5M2] = {"F8_E5M2", 8},
    [DTYPE_F8_E4M3] = {"F8_E4M3", 8},
    [DTYPE_F8_E8M0] = {"F8_E8M0", 8},
    [DTYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [DTYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [DTYPE_I16] = {"I16", 16},
    [DTYPE_U16] = {"U16", 16},
    [DTYPE_F16] = {"F16", 16},
    [DTYPE_BF16] = {"BF16", 16},
    [DTYPE_I32] = {"I32", 32},
    [DTYPE_U32] = {"U32", 32},
    [DTYPE_F32] = {"F32", 32},
    [DTYPE_I64] = {"I64", 64},
    [DTYPE_U64] = {"U64", 64},
    [DTYPE_F64] = {"F64", 64},
    [DTYPE_C64] = {"C64", 64},
    [DTYPE_F4] = {"F4", 4},
    [DTYPE_F6_E2M3] = {"F6_E2M3", 6},
    [DTYPE_F6_E3M2] = {"F6_E3M2", 6},
};

int dtype_bits(enum dtype dtype) {
  ASSERT((unsigned)dtype < DTYPE_COUNT);
  return dtype_table[dtype].bits;
}

const char *dtype_name(enum dtype dtype) {
  ASSERT((unsigned)dtype < DTYPE_COUNT);
  return dtype_table[dtype].name;
}

enum dtype dtype_from_name(const char *name) {
  for (unsigned i = DTYPE_NONE + 1; i < DTYPE_COUNT; i++) {
    if (!strcmp(name, dtype_table[i].name)) return (enum dtype)i;
  }
  return DTYPE_NONE;
}

static float f32_of_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static uint32_t bits_of_f32(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

float dtype_f16_to_f32(uint16_t v) {
  uint32_t sign = (uint32_t)(v & 0x8000u) << 16, exponent = v >> 10 & 0x1fu, fraction = v & 0x3ffu;
  if (exponent == 0x1fu) return f32_of_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return f32_of_bits(sign | (exponent + 112u) << 23 | fraction << 13);
  float magnitude = (float)fraction * 0x1p-24f; /* subnormal: exact in F32 */
  return f32_of_bits(sign | bits_of_f32(magnitude));
}

uint16_t dtype_f32_to_f16(float f) {
  uint32_t u = bits_of_f32(f), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and up round to infinity */
  if (magnitude < 0x38800000u) {
    /* Below 2^-14: adding 0.5 puts the half's subnormal unit (2^-24) at F32's last bit, so the addition itself rounds to even. */
    float shifted = f32_of_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (bits_of_f32(shifted) - bits_of_f32(0.5f)));
  }
  uint32_t rounded = magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u);
  return (uint16_t)(sign | rounded >> 13);
}

uint8_t dtype_f32_to_f8_e4m3(float f) {
  uint32_t u = bits_of_f32(f), sign = u >> 24 & 0x80u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
  if (magnitude >= 0x43e80000u) return (uint8_t)(sign | 0x7eu); /* 464 and up */
  if (magnitude < 0x3c800000u) {
    /* Below 2^-6: as for F16, adding 2^14 puts the unit of the subnormals (2^-9) at F32's last bit. */
    float shifted = f32_of_bits(magnitude) + 0x1p14f;
    return (uint8_t)(sign | (bits_of_f32(shifted) - bits_of_f32(0x1p14f)));
  }
  return (uint8_t)(sign | (magnitude - (120u << 23) + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20);
}

static void f16_to_f32(float *to, const unsigned char *from, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint16_t v;
    memcpy(&v, from + 2 * i, sizeof v);
    to[i] = dtype_f16_to_f32(v);
  }
}

static void bf16_to_f32(float *to, const unsigned char *from, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint16_t v;
    memcpy(&v, from + 2 * i, sizeof v);
    to[i] = dtype_bf16_to_f32(v);
  }
}

static void f64_to_f32(float *to, const unsigned char *from, size_t n) {
  for (size_t i = 0; i < n; i++) {
    double v;
    memcpy(&v, from + 8 * i, sizeof v);
    to[i] = (float)v;
  }
}

static void f8_to_f32(float *to, const unsigned char *from, enum dtype dtype, size_t n) {
  for (size_t i = 0; i < n; i++) {
    to[i] = dtype == DTYPE_F8_E4M3   ? dtype_f8_e4m3_to_f32(from[i])
            : dtype == DTYPE_F8_E5M2 ? dtype_f8_e5m2_to_f32(from[i])
                                     : dtype_f8_e8m0_to_f32(from[i]);
  }
}

void dtype_to_f32(float *to, const void *from, enum dtype dtype, size_t n) {
  bool f8 = dtype == DTYPE_F8_E4M3 || dtype == DTYPE_F8_E5M2 || dtype == DTYPE_F8_E8M0;
  ASSERT(f8 || dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16 || dtype == DTYPE_F64);
  if (n == 0) return;
  if (dtype == DTYPE_F32) memcpy(to, from, n * sizeof *to);
  if (dtype == DTYPE_BF16) bf16_to_f32(to, from, n);
  if (dtype == DTYPE_F16) f16_to_f32(to, from, n);
  if (dtype == DTYPE_F64) f64_to_f32(to, from, n);
  if (f8) f8_to_f32(to, from, dtype, n);
}

void dtype_from_f32(void *to, enum dtype dtype, const float *from, size_t n) {
  ASSERT(dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16 || dtype == DTYPE_F8_E4M3);
  if (n == 0) return;
  if (dtype == DTYPE_F32) {
    memcpy(to, from, n * sizeof *from);
    return;
  }
  unsigned char *bytes = to;
  if (dtype == DTYPE_F8_E4M3) {
    for (size_t i = 0; i < n; i++) bytes[i] = dtype_f32_to_f8_e4m3(from[i]);
    return;
  }
  for (size_t i = 0; i < n; i++) {
    uint16_t v = dtype == DTYPE_BF16 ? dtype_f32_to_bf16(from[i]) : dtype_f32_to_f16(from[i]);
    memcpy(bytes + 2 * i, &v, sizeof v);
  }
}
