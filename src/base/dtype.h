/* dtype.h - the one element-type enum of the project and conversions of single values and spans.
 *
 * Names and sizes are those of the safetensors format. Loads go through memcpy: data in mapped files is not aligned.
 */
#ifndef EAGLET_BASE_DTYPE_H
#define EAGLET_BASE_DTYPE_H

#include "base/error.h"
#include <string.h>

enum dtype {
  DTYPE_NONE, DTYPE_BOOL, DTYPE_U8, DTYPE_I8, DTYPE_F8_E5M2, DTYPE_F8_E4M3, DTYPE_F8_E8M0, DTYPE_F8_E4M3FNUZ,
  DTYPE_F8_E5M2FNUZ, DTYPE_I16, DTYPE_U16, DTYPE_F16, DTYPE_BF16, DTYPE_I32, DTYPE_U32, DTYPE_F32, DTYPE_I64, DTYPE_U64,
  DTYPE_F64, DTYPE_C64, DTYPE_F4, DTYPE_F6_E2M3, DTYPE_F6_E3M2, DTYPE_COUNT
};
int dtype_bits(enum dtype dtype);
const char *dtype_name(enum dtype dtype);            /* "BF16" */
enum dtype dtype_from_name(const char *name);        /* DTYPE_NONE when unknown */

static inline float dtype_bf16_to_f32(uint16_t v) {
  uint32_t u = (uint32_t)v << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}
static inline uint16_t dtype_f32_to_bf16(float f) { /* round to nearest even; NaN stays NaN */
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
float dtype_f16_to_f32(uint16_t v);
/* F8_E4M3 (no infinities, 0x7f and 0xff are NaN), F8_E5M2, F8_E8M0 (2^(v-127), 255 is NaN). */
static inline float dtype_f8_e4m3_to_f32(uint8_t v) {
  uint32_t u = (uint32_t)(v & 0x7f) << 20 | (uint32_t)(v & 0x80) << 24; /* the exponent is 120 too low; subnormals too */
  float f;
  if ((v & 0x7f) == 0x7f) u |= 0x7fc00000u;
  memcpy(&f, &u, sizeof f);
  return f * 0x1p120f;
}
static inline float dtype_f8_e5m2_to_f32(uint8_t v) { return dtype_f16_to_f32((uint16_t)(v << 8)); }
static inline float dtype_f8_e8m0_to_f32(uint8_t v) {
  uint32_t u = v == 255 ? 0x7fc00000u : v == 0 ? 0x00400000u : (uint32_t)v << 23;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}
uint16_t dtype_f32_to_f16(float f);
uint8_t dtype_f32_to_f8_e4m3(float f); /* to nearest even; what is beyond 448 becomes 448, NaN stays NaN */
/* Converts n elements of a float type (F32, BF16, F16, F64, F8_E4M3, F8_E5M2, F8_E8M0) at from (any alignment) to F32. ASSERTs a float type. */
void dtype_to_f32(float *to, const void *from, enum dtype dtype, size_t n);
void dtype_from_f32(void *to, enum dtype dtype, const float *from, size_t n); /* F32, BF16, F16, F8_E4M3 */

#endif
