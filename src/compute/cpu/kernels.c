/* kernels.c - see kernels.h; compiled once per instruction set with KERNELS_AVX512, KERNELS_AVX2 or neither.
 *
 * The order of additions of one dot product is: sixteen lanes, lane l takes inputs l, l+16, ..., one fused multiply-add
 * each; then the tree of v_sum. How many rows and outputs share a pass over W changes only which registers hold the
 * accumulators.
 */
#include "compute/cpu/kernels.h"

#include "compute/cpu/vector.h"

#include <math.h>

/* Instrumented copies of every loop for every format and row count would take minutes to compile; the sanitizers watch
 * one copy of each instead, which does the same additions in the same order. */
#if defined(__SANITIZE_ADDRESS__)
#define ALWAYS_INLINE
#else
#define ALWAYS_INLINE __attribute__((always_inline))
#endif

#if defined(KERNELS_AVX512)
#define KERNEL_ROWS 6
#define KERNELS_TABLE kernels_avx512
#define KERNELS_NAME "avx512"
#elif defined(KERNELS_AVX2)
#define KERNEL_ROWS 1
#define KERNELS_TABLE kernels_avx2
#define KERNELS_NAME "avx2"
#else
#define KERNEL_ROWS 1
#define KERNELS_TABLE kernels_scalar
#define KERNELS_NAME "scalar"
#endif

#include "compute/cpu/in_major.h"
#include "compute/cpu/dot.h"
#include "compute/cpu/attend.h"

/* ---- row functions ---- */

static float dot(const float *a, const float *b, int32_t n) {
  v16 sum = v_zero();
  int32_t k = 0;
  for (; k + 16 <= n; k += 16) sum = v_fma(v_load(a + k), v_load(b + k), sum);
  if (k < n) sum = v_fma(v_load_part(a + k, n - k, 0.0f), v_load_part(b + k, n - k, 0.0f), sum);
  return v_sum(sum);
}

static void rms_norm(float *out, const float *x, const float *w, int32_t dim, float eps) {
  float scale = 1.0f / sqrtf(dot(x, x, dim) / (float)dim + eps);
  for (int32_t k = 0; k < dim; k++) out[k] = x[k] * scale * (w ? w[k] : 1.0f);
}

static void layer_norm(float *out, const float *x, const float *w, const struct norm_params *p) {
  v16 sum = v_zero();
  int32_t k = 0, dim = p->dim;
  for (; k + 16 <= dim; k += 16) sum = v_add(sum, v_load(x + k));
  if (k < dim) sum = v_add(sum, v_load_part(x + k, dim - k, 0.0f));
  float mean = v_sum(sum) / (float)dim, squares = 0;
  for (k = 0; k < dim; k++) squares += (x[k] - mean) * (x[k] - mean);
  float scale = 1.0f / sqrtf(squares / (float)dim + p->eps);
  for (k = 0; k < dim; k++) out[k] = (x[k] - mean) * scale * w[k] + (p->bias ? p->bias[k] : 0.0f);
}

/* x / (1 + exp(-t)) */
static inline v16 times_sigmoid(v16 x, v16 t) {
  return v_div(x, v_add(v_set(1.0f), v_exp(v_sub(v_zero(), t))));
}

/* gelu_tanh(x) = x (1 + tanh u) / 2 = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) */
static inline v16 gelu_tanh16(v16 x) {
  v16 cube = v_mul(v_mul(x, x), x);
  return times_sigmoid(x, v_mul(v_set(2.0f * 0.7978845608f), v_fma(v_set(0.044715f), cube, x)));
}

static inline v16 gelu16(v16 x) {
  float values[16];
  v_store(values, x);
  for (int i = 0; i < 16; i++) values[i] = 0.5f * values[i] * (1.0f + erff(values[i] * 0.7071067812f));
  return v_load(values);
}

static inline ALWAYS_INLINE v16 activate16(v16 gate, v16 up, enum activation kind) {
  v16 positive;
  switch (kind) {
  case ACTIVATION_SILU:
    return v_mul(times_sigmoid(gate, gate), up);
  case ACTIVATION_GELU_TANH:
    return v_mul(gelu_tanh16(gate), up);
  case ACTIVATION_GELU:
    return v_mul(gelu16(gate), up);
  case ACTIVATION_RELU2:
    positive = v_max(gate, v_zero());
    return v_mul(v_mul(positive, positive), up);
  case ACTIVATION_SWIGLU_CLAMPED:
    break;
  }
  gate = v_min(gate, v_set(7.0f));
  up = v_min(v_max(up, v_set(-7.0f)), v_set(7.0f));
  return v_mul(times_sigmoid(gate, v_mul(v_set(1.702f), gate)), v_add(up, v_set(1.0f)));
}

static inline ALWAYS_INLINE void activate_as(float *out, const float *gate, const float *up, int64_t n,
                                             enum activation kind) {
  v16 one = v_set(1.0f);
  int64_t k = 0;
  for (; k + 16 <= n; k += 16) v_store(out + k, activate16(v_load(gate + k), up ? v_load(up + k) : one, kind));
  if (k < n) {
    float values[16];
    v16 rest = up ? v_load_part(up + k, (int)(n - k), 0.0f) : one;
    v_store(values, activate16(v_load_part(gate + k, (int)(n - k), 0.0f), rest, kind));
    memcpy(out + k, values, sizeof(float) * (size_t)(n - k));
  }
}

/* The constants let each loop be compiled for its own kind. */
static void activate(float *out, const float *gate, const float *up, int64_t n, enum activation kind) {
  switch (kind) {
  case ACTIVATION_SILU:
    activate_as(out, gate, up, n, ACTIVATION_SILU);
    break;
  case ACTIVATION_GELU_TANH:
    activate_as(out, gate, up, n, ACTIVATION_GELU_TANH);
    break;
  case ACTIVATION_GELU:
    activate_as(out, gate, up, n, ACTIVATION_GELU);
    break;
  case ACTIVATION_RELU2:
    activate_as(out, gate, up, n, ACTIVATION_RELU2);
    break;
  case ACTIVATION_SWIGLU_CLAMPED:
    activate_as(out, gate, up, n, ACTIVATION_SWIGLU_CLAMPED);
    break;
  }
}

static void silu_mul(float *out, const float *gate, const float *up, int64_t n) {
  activate_as(out, gate, up, n, ACTIVATION_SILU);
}

static float softmax(float *x, int32_t n) {
  v16 most = v_set(-INFINITY), sum = v_zero();
  int32_t k = 0;
  for (; k + 16 <= n; k += 16) most = v_max(most, v_load(x + k));
  if (k < n) most = v_max(most, v_load_part(x + k, n - k, -INFINITY));
  v16 max = v_set(v_max_all(most));
  for (k = 0; k + 16 <= n; k += 16) {
    v16 e = v_exp(v_sub(v_load(x + k), max));
    v_store(x + k, e);
    sum = v_add(sum, e);
  }
  float total = v_sum(sum);
  for (; k < n; k++) {
    x[k] = expf(x[k] - v_max_all(max));
    total += x[k];
  }
  v16 share = v_set(1.0f / total);
  for (k = 0; k + 16 <= n; k += 16) v_store(x + k, v_mul(v_load(x + k), share));
  for (; k < n; k++) x[k] /= total;
  return v_max_all(max) + logf(total);
}

/* NaN never wins. */
static float largest(const float *x, int32_t n) {
  v16 most = v_set(-INFINITY), other = most;
  int32_t k = 0;
  for (; k + 32 <= n; k += 32) {
    most = v_max(v_load(x + k), most);
    other = v_max(v_load(x + k + 16), other);
  }
  for (; k + 16 <= n; k += 16) most = v_max(v_load(x + k), most);
  if (k < n) most = v_max(v_load_part(x + k, n - k, -INFINITY), most);
  return v_max_all(v_max(most, other));
}

static float log_sum(const float *x, int32_t n) {
  float max = largest(x, n);
  if (!(max > -INFINITY)) return max;
  v16 most = v_set(max), sum = v_zero(), other = v_zero();
  int32_t k = 0;
  for (; k + 32 <= n; k += 32) {
    sum = v_add(sum, v_exp(v_sub(v_load(x + k), most)));
    other = v_add(other, v_exp(v_sub(v_load(x + k + 16), most)));
  }
  float total = v_sum(v_add(sum, other));
  for (; k < n; k++) total += expf(x[k] - max);
  return max + logf(total);
}

/* Ties go to the lowest index. */
static int32_t argmax(const float *x, int32_t n) {
  float max = largest(x, n);
  int32_t k = 0;
  for (; k + 64 <= n; k += 64) {
    int found = 0;
    for (int32_t i = k; i < k + 64; i++) found |= x[i] == max;
    if (found) break;
  }
  for (; k < n; k++) {
    if (x[k] == max) return k;
  }
  return 0;
}

#define OVERLAP_LANES 32

/* The lanes are added in an order of their own, so every instruction set gives the same sum. */
static float overlap(float *covered, const float *p, const float *q, float scale, int32_t n) {
  float least[OVERLAP_LANES] = {0}, below[OVERLAP_LANES] = {0};
  int32_t k = 0;
  for (; k + OVERLAP_LANES <= n; k += OVERLAP_LANES) {
    for (int32_t i = 0; i < OVERLAP_LANES; i++) {
      float most = scale * p[k + i], own = q[k + i];
      least[i] += own <= most ? own : most;
      below[i] += own <= most ? own : 0.0f;
    }
  }
  for (int32_t i = 0; k + i < n; i++) {
    float most = scale * p[k + i], own = q[k + i];
    least[i] += own <= most ? own : most;
    below[i] += own <= most ? own : 0.0f;
  }
  float sum = 0, sum_below = 0;
  for (int32_t i = 0; i < OVERLAP_LANES; i++) {
    sum += least[i];
    sum_below += below[i];
  }
  *covered = sum_below;
  return sum;
}

const struct kernels KERNELS_TABLE = {.name = KERNELS_NAME,
                                      .rows_dot = rows_dot,
                                      .transposed = transposed,
                                      .attend = attend,
                                      .rms_norm = rms_norm,
                                      .layer_norm = layer_norm,
                                      .activate = activate,
                                      .silu_mul = silu_mul,
                                      .softmax = softmax,
                                      .log_sum = log_sum,
                                      .argmax = argmax,
                                      .dot = dot,
                                      .overlap = overlap,
                                      .add_row = add_row};
