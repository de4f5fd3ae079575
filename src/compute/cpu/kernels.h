/* kernels.h - the inner loops, one table per instruction set; kernels.c is compiled once for each. Leaf arithmetic:
 * plain arguments, no threads, no memory of their own. Every one works on one row (or some rows with separate
 * accumulators): decision 3. */
#ifndef EAGLET_COMPUTE_CPU_KERNELS_H
#define EAGLET_COMPUTE_CPU_KERNELS_H

#include "compute/compute.h"

#define KERNEL_OUTPUTS 4    /* weight rows that are read together */
#define KERNEL_IN_MAX 65536 /* inputs of one linear layer; the dequantised tile is KERNEL_OUTPUTS times this */
#define KERNEL_TILE ((KERNEL_OUTPUTS + 6) * KERNEL_IN_MAX) /* floats of a thread's scratch: weights, then activations */
#define KERNEL_HEADS 8      /* of one call of attend, at most */

/* out[r][o] = W[o] . x[r] for o in [begin, end), r in [0, n). */
struct rows_dot_params {
  const struct weight *w;
  int32_t begin, end;
  const float *const *x; /* [n] */
  float *const *out;     /* [n] */
  int32_t n;
  float *tile; /* scratch of KERNEL_TILE floats */
  const struct weight *after; /* what the caller reads next, from after_begin on, or NULL: a hint, fetched ahead */
  int32_t after_begin;
};

struct kernels {
  const char *name;
  void (*rows_dot)(const struct rows_dot_params *p);
  /* out[r][j] = sum_i x[r][i] W[i][j] over the rows i of w, r in [0, n). tile: KERNEL_OUTPUTS * n_in floats of scratch.
   */
  void (*transposed)(float *const *out, const float *const *x, const struct weight *w, int32_t n, float *tile);
  /* Heads [head, head + n_heads) of one row; they must read the same keys. */
  void (*attend)(const struct attention_params *p, int32_t row, int32_t head, int32_t n_heads);
  void (*rms_norm)(float *out, const float *x, const float *w, int32_t dim, float eps);
  void (*layer_norm)(float *out, const float *x, const float *w, const struct norm_params *p);
  /* out = act(gate) * up; up NULL: act(gate) */
  void (*activate)(float *out, const float *gate, const float *up, int64_t n, enum activation kind);
  void (*silu_mul)(float *out, const float *gate, const float *up, int64_t n);
  float (*softmax)(float *x, int32_t n); /* in place; returns the log of the sum of exponentials */
  float (*log_sum)(const float *x, int32_t n);  /* the same; x stays */
  int32_t (*argmax)(const float *x, int32_t n);
  float (*dot)(const float *a, const float *b, int32_t n);
  /* sum_i min(scale * p[i], q[i]); *covered = the sum of those q[i] that are not above scale * p[i] */
  float (*overlap)(float *covered, const float *p, const float *q, float scale, int32_t n);
  void (*add_row)(float *out, const float *row, float x, int32_t n); /* out += x * row */
};
extern const struct kernels kernels_scalar, kernels_avx2, kernels_avx512;

#endif
