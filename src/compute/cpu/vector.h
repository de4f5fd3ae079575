/* vector.h - sixteen floats, for the kernels that are compiled once per instruction set. The same sixteen lanes
 * everywhere, so that the order of additions is one property of the project and not of the machine. Included by
 * kernels.c only. */
#ifndef EAGLET_COMPUTE_CPU_VECTOR_H
#define EAGLET_COMPUTE_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(KERNELS_AVX512)
#include <immintrin.h>
typedef __m512 v16;
static inline v16 v_zero(void) {
  return _mm512_setzero_ps();
}
static inline v16 v_set(float x) {
  return _mm512_set1_ps(x);
}
static inline v16 v_load(const float *p) {
  return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, v16 a) {
  _mm512_storeu_ps(p, a);
}
static inline v16 v_add(v16 a, v16 b) {
  return _mm512_add_ps(a, b);
}
static inline v16 v_sub(v16 a, v16 b) {
  return _mm512_sub_ps(a, b);
}
static inline v16 v_mul(v16 a, v16 b) {
  return _mm512_mul_ps(a, b);
}
static inline v16 v_div(v16 a, v16 b) {
  return _mm512_div_ps(a, b);
}
static inline v16 v_fma(v16 a, v16 b, v16 c) {
  return _mm512_fmadd_ps(a, b, c);
} /* a*b + c */
static inline v16 v_max(v16 a, v16 b) {
  return _mm512_max_ps(a, b);
}
static inline v16 v_min(v16 a, v16 b) {
  return _mm512_min_ps(a, b);
}
static inline v16 v_round(v16 a) {
  return _mm512_roundscale_ps(a, 0);
}
static inline v16 v_scale2(v16 a, v16 n) {
  return _mm512_scalef_ps(a, n);
} /* a * 2^n, n integral */
static inline v16 v_bf16(const void *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
static inline v16 v_f16(const void *p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
/* Sixteen nibbles looked up in the sixteen floats of table; the index is the low four bits of each lane. */
static inline v16 v_nibble(const void *p, v16 table) {
  const __m512i word = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  __m512i words = _mm512_permutexvar_epi32(word, _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)p)));
  return _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shift), table);
}
/* The same in mixed order (see v_mix), which takes one permutation less. */
#define V_MIXED 1
static inline v16 v_nibble_mixed(const void *p, v16 table) {
  const __m512i shift = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
  long long words;
  memcpy(&words, p, sizeof words);
  return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi64(words), shift), table);
}
/* Mixed order: lanes 0, 8, 1, 9, 2, 10 ... */
static inline v16 v_mix(v16 a) {
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), a);
}
static inline v16 v_unmix(v16 a) {
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), a);
}
/* Sixteen nibbles in AWQ's order, as numbers. */
static inline v16 v_awq(const void *p) {
  const __m512i word = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m512i shift = _mm512_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28, 0, 16, 4, 20, 8, 24, 12, 28);
  __m512i words = _mm512_permutexvar_epi32(word, _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)p)));
  return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srlv_epi32(words, shift), _mm512_set1_epi32(15)));
}
/* From each of sixteen words `bits` bits at `shift`, as numbers; those that a word lacks are the lowest of `above`. */
static inline v16 v_fields(const void *p, const void *above, int shift, int bits) {
  __m512i words = _mm512_srl_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(shift));
  if (shift + bits > 32)
    words = _mm512_or_si512(words, _mm512_sll_epi32(_mm512_loadu_si512(above), _mm_cvtsi32_si128(32 - shift)));
  return _mm512_cvtepi32_ps(_mm512_and_si512(words, _mm512_set1_epi32((1 << bits) - 1)));
}
static inline v16 v_i8(const void *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline v16 v_half(__m256i halves) {
  return _mm512_cvtph_ps(halves);
}
static inline __m128 v_quarter(v16 a) { /* lanes l, l+4, l+8, l+12 */
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
#elif defined(KERNELS_AVX2)
#include <immintrin.h>
typedef struct {
  __m256 a, b;
} v16;
#define V2(x, y) ((v16){(x), (y)})
static inline v16 v_zero(void) {
  return V2(_mm256_setzero_ps(), _mm256_setzero_ps());
}
static inline v16 v_set(float x) {
  return V2(_mm256_set1_ps(x), _mm256_set1_ps(x));
}
static inline v16 v_load(const float *p) {
  return V2(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
static inline void v_store(float *p, v16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
static inline v16 v_add(v16 x, v16 y) {
  return V2(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b));
}
static inline v16 v_sub(v16 x, v16 y) {
  return V2(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b));
}
static inline v16 v_mul(v16 x, v16 y) {
  return V2(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b));
}
static inline v16 v_div(v16 x, v16 y) {
  return V2(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b));
}
static inline v16 v_fma(v16 x, v16 y, v16 z) {
  return V2(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
static inline v16 v_max(v16 x, v16 y) {
  return V2(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b));
}
static inline v16 v_min(v16 x, v16 y) {
  return V2(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b));
}
static inline v16 v_round(v16 x) {
  return V2(_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8));
}
static inline __m256 power2(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
static inline v16 v_scale2(v16 x, v16 n) {
  return V2(_mm256_mul_ps(x.a, power2(n.a)), _mm256_mul_ps(x.b, power2(n.b)));
}
static inline __m256 bf16x8(const void *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
static inline v16 v_bf16(const void *p) {
  return V2(bf16x8(p), bf16x8((const uint8_t *)p + 16));
}
static inline v16 v_f16(const void *p) {
  return V2(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
            _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint8_t *)p + 16))));
}
static inline __m256 lookup8(__m256i index, v16 table) {
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.a, index), _mm256_permutevar8x32_ps(table.b, index),
                          _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
static inline v16 v_nibble(const void *p, v16 table) {
  __m128i bytes = _mm_loadl_epi64((const __m128i *)p), mask = _mm_set1_epi8(15);
  __m128i nibbles = _mm_unpacklo_epi8(_mm_and_si128(bytes, mask), _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
  return V2(lookup8(_mm256_cvtepu8_epi32(nibbles), table),
            lookup8(_mm256_cvtepu8_epi32(_mm_srli_si128(nibbles, 8)), table));
}
static inline __m256 awq8(int word) {
  __m256i words = _mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28));
  return _mm256_cvtepi32_ps(_mm256_and_si256(words, _mm256_set1_epi32(15)));
}
static inline v16 v_awq(const void *p) {
  int words[2];
  memcpy(words, p, sizeof words);
  return V2(awq8(words[0]), awq8(words[1]));
}
static inline __m256 fields8(const void *p, const void *above, int shift, int bits) {
  __m256i words = _mm256_srl_epi32(_mm256_loadu_si256((const __m256i *)p), _mm_cvtsi32_si128(shift));
  if (shift + bits > 32)
    words = _mm256_or_si256(
        words, _mm256_sll_epi32(_mm256_loadu_si256((const __m256i *)above), _mm_cvtsi32_si128(32 - shift)));
  return _mm256_cvtepi32_ps(_mm256_and_si256(words, _mm256_set1_epi32((1 << bits) - 1)));
}
static inline v16 v_fields(const void *p, const void *above, int shift, int bits) {
  return V2(fields8(p, above, shift, bits), fields8((const uint8_t *)p + 32, (const uint8_t *)above + 32, shift, bits));
}
static inline v16 v_i8(const void *p) {
  __m128i bytes = _mm_loadu_si128((const __m128i *)p);
  return V2(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))));
}
static inline v16 v_half(__m256i halves) {
  return V2(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
}
static inline __m128 v_quarter(v16 x) { /* lanes l, l+4, l+8, l+12 */
  __m256 half = _mm256_add_ps(x.a, x.b);
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
#else
#include "base/dtype.h"
#include <math.h>
typedef struct {
  float v[16];
} v16;
#define V_EACH(expression)                                                                                             \
  v16 r;                                                                                                               \
  for (int i = 0; i < 16; i++) r.v[i] = (expression);                                                                  \
  return r
static inline v16 v_zero(void) {
  V_EACH(0.0f);
}
static inline v16 v_set(float x) {
  V_EACH(x);
}
static inline v16 v_load(const float *p) { /* weights lie at any address */
  v16 r;
  memcpy(r.v, p, sizeof r.v);
  return r;
}
static inline void v_store(float *p, v16 a) {
  memcpy(p, a.v, sizeof a.v);
}
static inline v16 v_add(v16 a, v16 b) {
  V_EACH(a.v[i] + b.v[i]);
}
static inline v16 v_sub(v16 a, v16 b) {
  V_EACH(a.v[i] - b.v[i]);
}
static inline v16 v_mul(v16 a, v16 b) {
  V_EACH(a.v[i] * b.v[i]);
}
static inline v16 v_div(v16 a, v16 b) {
  V_EACH(a.v[i] / b.v[i]);
}
static inline v16 v_fma(v16 a, v16 b, v16 c) {
  V_EACH(a.v[i] * b.v[i] + c.v[i]);
}
static inline v16 v_max(v16 a, v16 b) {
  V_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
static inline v16 v_min(v16 a, v16 b) {
  V_EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]);
}
static inline v16 v_round(v16 a) {
  V_EACH(rintf(a.v[i]));
}
static inline v16 v_scale2(v16 a, v16 n) {
  V_EACH(ldexpf(a.v[i], (int)n.v[i]));
}
static inline v16 v_bf16(const void *p) {
  uint16_t u[16];
  memcpy(u, p, sizeof u);
  V_EACH(dtype_bf16_to_f32(u[i]));
}
static inline v16 v_f16(const void *p) {
  uint16_t u[16];
  memcpy(u, p, sizeof u);
  V_EACH(dtype_f16_to_f32(u[i]));
}
static inline v16 v_nibble(const void *p, v16 table) {
  const uint8_t *bytes = p;
  V_EACH(table.v[bytes[i / 2] >> (4 * (i & 1)) & 15]);
}
static inline v16 v_awq(const void *p) {
  static const uint8_t shift[8] = {0, 16, 4, 20, 8, 24, 12, 28};
  uint32_t words[2];
  memcpy(words, p, sizeof words);
  V_EACH((float)(words[i / 8] >> shift[i % 8] & 15));
}
static inline v16 v_fields(const void *p, const void *above, int shift, int bits) {
  uint32_t words[16], high[16];
  memcpy(words, p, sizeof words);
  memcpy(high, above, sizeof high);
  uint32_t mask = (1u << bits) - 1;
  V_EACH((float)((words[i] >> shift | (shift + bits > 32 ? high[i] << (32 - shift) : 0)) & mask));
}
static inline v16 v_i8(const void *p) {
  const int8_t *bytes = p;
  V_EACH((float)bytes[i]);
}
static inline v16 v_f8(const void *p) {
  const uint8_t *bytes = p;
  V_EACH(dtype_f8_e4m3_to_f32(bytes[i]));
}
#endif

#if defined(KERNELS_AVX512) || defined(KERNELS_AVX2)
/* F8_E4M3 by way of F16, whose exponent is 8 higher: the hardware then takes subnormals at full speed. */
static inline v16 v_f8(const void *p) {
  __m128i bytes = _mm_loadu_si128((const __m128i *)p), low = _mm_set1_epi8(0x7f);
  __m256i halves =
      _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), _mm256_set1_epi16((short)0xbfff));
  __m256i nan = _mm256_cvtepi8_epi16(_mm_cmpeq_epi8(_mm_and_si128(bytes, low), low));
  return v_mul(v_half(_mm256_or_si256(halves, nan)), v_set(256.0f));
}
#endif
#if !defined(V_MIXED) /* no order but one */
#define V_MIXED 0
static inline v16 v_nibble_mixed(const void *p, v16 table) {
  return v_nibble(p, table);
}
static inline v16 v_mix(v16 a) {
  return a;
}
static inline v16 v_unmix(v16 a) {
  return a;
}
#endif
/* first, first + 1, ..., first + 15; a constant where first is one */
static inline v16 v_codes(float first) {
#if defined(KERNELS_AVX512)
  return _mm512_add_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_ps(first));
#elif defined(KERNELS_AVX2)
  return v_add(V2(_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)), v_set(first));
#else
  V_EACH(first + (float)i);
#endif
}

/* The sum of the lanes by one fixed tree: halves are added until one number is left. v_sum4 does four at once, bit for
 * bit the same. */
#if defined(KERNELS_AVX512) || defined(KERNELS_AVX2)
static inline float v_sum(v16 a) {
  __m128 quarter = v_quarter(a);
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_shuffle_ps(quarter, quarter, 1)));
}
#if defined(KERNELS_AVX512)
/* Lanes [l + l+8 of a | l + l+8 of b]. */
static inline v16 v_halves(v16 a, v16 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
static inline void v_sum4(float *out, const v16 a[4]) {
  v16 low = v_halves(a[0], a[1]), high = v_halves(a[2], a[3]);
  v16 sum = _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd));
  sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0x4e)); /* a quarter of the register is an input now */
  sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0xb1));
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, sum)));
}
#else
static inline void v_sum4(float *out, const v16 a[4]) {
  __m128 q0 = v_quarter(a[0]), q1 = v_quarter(a[1]), q2 = v_quarter(a[2]), q3 = v_quarter(a[3]);
  _MM_TRANSPOSE4_PS(q0, q1, q2, q3);
  _mm_storeu_ps(out, _mm_add_ps(_mm_add_ps(q0, q2), _mm_add_ps(q1, q3)));
}
#endif
#else
static inline float v_sum(v16 a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}
static inline void v_sum4(float *out, const v16 a[4]) {
  for (int i = 0; i < 4; i++) out[i] = v_sum(a[i]);
}
#endif
#if defined(KERNELS_AVX512)
static inline float v_max_all(v16 a) {
  return _mm512_reduce_max_ps(a);
}
/* The first n < 16 floats at p, the other lanes filled. */
static inline v16 v_load_part(const float *p, int n, float fill) {
  return _mm512_mask_loadu_ps(v_set(fill), (__mmask16)((1u << n) - 1), p);
}
static inline void v_store_part(float *p, v16 a, int n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}
#else
static inline float v_max_all(v16 a) {
  float x[16];
  v_store(x, a);
  float m = x[0];
  for (int i = 1; i < 16; i++) m = x[i] > m ? x[i] : m;
  return m;
}
static inline v16 v_load_part(const float *p, int n, float fill) {
  float x[16];
  for (int i = 0; i < 16; i++) x[i] = i < n ? p[i] : fill;
  return v_load(x);
}
static inline void v_store_part(float *p, v16 a, int n) {
  float x[16];
  v_store(x, a);
  memcpy(p, x, sizeof(float) * (size_t)n);
}
#endif

/* exp, relative error about 2e-7 (Cephes' expf polynomial); saturates below -87 to about 1e-38 and above 88. */
static inline v16 v_exp(v16 x) {
  x = v_min(v_max(x, v_set(-87.0f)), v_set(88.0f));
  v16 n = v_round(v_mul(x, v_set(1.44269504f)));
  v16 r = v_fma(n, v_set(-0.693359375f), x);
  r = v_fma(n, v_set(2.12194440e-4f), r);
  v16 p = v_set(1.9875691500e-4f);
  p = v_fma(p, r, v_set(1.3981999507e-3f));
  p = v_fma(p, r, v_set(8.3334519073e-3f));
  p = v_fma(p, r, v_set(4.1665795894e-2f));
  p = v_fma(p, r, v_set(1.6666665459e-1f));
  p = v_fma(p, r, v_set(5.0000001201e-1f));
  p = v_add(v_fma(p, v_mul(r, r), r), v_set(1.0f));
  return v_scale2(p, n);
}

#endif
