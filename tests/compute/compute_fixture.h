/* compute_fixture.h - what the op tests share: backends of every instruction set and team size, noise, and weights of
 * every format with the numbers they mean in double. The meaning is computed here from the stored bits, not by the code
 * under test. */
#ifndef EAGLET_TESTS_COMPUTE_FIXTURE_H
#define EAGLET_TESTS_COMPUTE_FIXTURE_H

#include "compute/cpu/cpu.h"

#include "base/util.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const fixture_isas[] = {"scalar", "avx2", "avx512"};
#define FIXTURE_ISAS (sizeof fixture_isas / sizeof *fixture_isas)

/* NULL where the machine lacks the instruction set. */
static inline struct compute *fixture_open(const char *isa, int n_threads) {
  struct compute *c = NULL;
  const struct cpu_open_params params = {.isa = isa, .n_threads = n_threads, .precision = EAGLET_PRECISION_EXACT};
  struct eaglet_error err;
  if (cpu_open(&c, &params, &err) != EAGLET_OK) {
    printf("skip: no %s on this machine\n", isa);
    return NULL;
  }
  return c;
}

/* Calls check(c) on one thread of every instruction set. */
static inline void fixture_each(void (*check)(struct compute *c)) {
  for (size_t i = 0; i < FIXTURE_ISAS; i++) {
    struct compute *c = fixture_open(fixture_isas[i], 1);
    if (!c) continue;
    check(c);
    compute_close(c);
  }
}

static inline float *fixture_noise(size_t n, uint64_t stream) {
  float *x = malloc(sizeof(float) * (n + 1));
  assert_non_null(x);
  for (size_t i = 0; i < n; i++) x[i] = (float)random_normal(11, stream, i);
  return x;
}

static inline float *fixture_floats(size_t n, float value) {
  float *x = malloc(sizeof(float) * (n + 1));
  assert_non_null(x);
  for (size_t i = 0; i < n; i++) x[i] = value;
  return x;
}

/* A weight whose bytes start at an odd address, and its numbers. */
struct fixture_weight {
  struct weight w;
  uint8_t *bytes, *scales;
  double *value; /* [n_out, n_in] */
};

struct fixture_format {
  enum weight_format format;
  enum dtype scale_dtype;
  int32_t group;
};

static const struct fixture_format fixture_formats[] = {
    {WEIGHT_F32, DTYPE_NONE, 0},   {WEIGHT_BF16, DTYPE_NONE, 0}, {WEIGHT_F16, DTYPE_NONE, 0},
    {WEIGHT_INT4, DTYPE_BF16, 32}, {WEIGHT_INT4, DTYPE_F16, 16}, {WEIGHT_INT4, DTYPE_F32, 64},
    {WEIGHT_INT4, DTYPE_BF16, 8},  {WEIGHT_INT4, DTYPE_F32, 24},
};
#define FIXTURE_FORMATS (sizeof fixture_formats / sizeof *fixture_formats)

/* One stored number of a float format made from x; returns what it means. */
static inline double fixture_store(uint8_t *to, enum dtype dtype, float x) {
  if (dtype == DTYPE_F32) {
    memcpy(to, &x, 4);
    return x;
  }
  uint16_t bits = dtype == DTYPE_BF16 ? dtype_f32_to_bf16(x) : dtype_f32_to_f16(x);
  memcpy(to, &bits, 2);
  if (dtype == DTYPE_BF16) return ldexp(1.0 + (bits & 127) / 128.0, ((bits >> 7) & 255) - 127) * (bits >> 15 ? -1 : 1);
  int exponent = (bits >> 10) & 31;
  double magnitude = exponent ? ldexp(1.0 + (bits & 1023) / 1024.0, exponent - 15) : ldexp(bits & 1023, -24);
  return bits >> 15 ? -magnitude : magnitude;
}

static inline void fixture_fill_int4(struct fixture_weight *f, uint64_t stream) {
  struct weight *w = &f->w;
  size_t scale_bytes = w->scale_dtype == DTYPE_F32 ? 4 : 2, n_groups = (size_t)(w->n_in / w->group);
  f->scales = malloc(1 + (size_t)w->n_out * n_groups * scale_bytes);
  assert_non_null(f->scales);
  w->scale = f->scales + 1;
  for (size_t o = 0; o < (size_t)w->n_out; o++) {
    for (size_t g = 0; g < n_groups; g++) {
      size_t at = o * n_groups + g;
      double scale = fixture_store(f->scales + 1 + at * scale_bytes, w->scale_dtype,
                                   (float)(0.01 + 0.1 * random_uniform(3, stream, at)));
      for (size_t i = g * (size_t)w->group; i < (g + 1) * (size_t)w->group; i++) {
        size_t element = o * (size_t)w->n_in + i;
        unsigned nibble = (unsigned)(random_u64(5, stream, element) & 15);
        f->bytes[1 + element / 2] |= (uint8_t)(nibble << (4 * (element & 1)));
        f->value[element] = ((int)nibble - 8) * scale;
      }
    }
  }
}

static inline struct fixture_weight fixture_weight(const struct fixture_format *format, int32_t n_out, int32_t n_in,
                                                   uint64_t stream) {
  size_t n = (size_t)n_out * (size_t)n_in;
  struct fixture_weight f = {.w = {.format = format->format,
                                   .n_out = n_out,
                                   .n_in = n_in,
                                   .group = format->group,
                                   .scale_dtype = format->scale_dtype}};
  size_t bits = format->format == WEIGHT_INT4 ? 4 : format->format == WEIGHT_F32 ? 32 : 16;
  f.bytes = calloc(1, 1 + n * bits /
                              8); /* exactly what the format needs: a sanitizer sees a kernel that reads past the end */
  f.value = malloc(sizeof(double) * n);
  assert_true(f.bytes && f.value);
  f.w.data = f.bytes + 1;
  if (format->format == WEIGHT_INT4) {
    fixture_fill_int4(&f, stream);
    return f;
  }
  enum dtype dtype = format->format == WEIGHT_F32 ? DTYPE_F32 : format->format == WEIGHT_BF16 ? DTYPE_BF16 : DTYPE_F16;
  for (size_t i = 0; i < n; i++)
    f.value[i] = fixture_store(f.bytes + 1 + i * bits / 8, dtype, (float)(0.1 * random_normal(4, stream, i)));
  return f;
}

static inline void fixture_weight_free(struct fixture_weight *f) {
  free(f->bytes);
  free(f->scales);
  free(f->value);
}

static inline bool fixture_fits(const struct fixture_format *format, int32_t n_in) {
  return format->group == 0 || n_in % format->group == 0;
}

/* |a - b| within a bound; prints the place of the first that is not. */
static inline void fixture_near(double a, double b, double bound, const char *what, int64_t at) {
  if (fabs(a - b) <= bound) return;
  fail_msg("%s[%lld]: expected %.9g, found %.9g (bound %.3g)", what, (long long)at, b, a, bound);
}

/* out[o] of one row in double, with the bound that F32 accumulation allows. */
static inline void fixture_check_row(const float *out, const struct fixture_weight *f, const float *x,
                                     const char *what) {
  for (int32_t o = 0; o < f->w.n_out; o++) {
    double sum = 0, size = 0;
    for (int32_t i = 0; i < f->w.n_in; i++) {
      double term = f->value[(int64_t)o * f->w.n_in + i] * x[i];
      sum += term;
      size += fabs(term);
    }
    fixture_near(out[o], sum, 1e-6 * size + 1e-30, what, o);
  }
}

#endif
