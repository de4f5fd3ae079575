/* weight.h - a linear layer's weight as it is stored, the way kernels read it: y = W x, W [n_out, n_in].
 *
 * Weights are never inflated: the struct points into the mapped file (CPU) or a device copy of the same bytes. Data may be
 * unaligned. A format is a row of the kernels' table, not a class. Pointers name the whole stored tensor; row_first and
 * row_step say which stored output is row o, so that a slice of any packing is a weight of its own.
 */
#ifndef EAGLET_COMPUTE_WEIGHT_H
#define EAGLET_COMPUTE_WEIGHT_H

#include "base/dtype.h"

enum weight_format {
  WEIGHT_NONE,  /* absent: an optional weight that this model does not have */
  WEIGHT_F32,
  WEIGHT_BF16,
  WEIGHT_F16,
  WEIGHT_INT4   /* compressed-tensors pack-quantized: nibbles low first, offset binary (q = nibble - 8), scale per `group` inputs */
};

struct weight {
  enum weight_format format;
  int32_t n_out, n_in;
  const void *data;       /* [n_out, n_in] elements of format; INT4: [n_out, n_in/2] bytes */
  const void *scale;      /* INT4: [n_out, n_in/group] */
  enum dtype scale_dtype; /* BF16, F16 or F32 */
  int32_t group;          /* INT4: inputs per scale, multiple of 8 */
  /* -- zero for a plain weight -- */
  bool transposed;        /* data is [n_in, n_stored]: inputs are the rows */
  int32_t n_stored;       /* outputs of the stored tensor; 0: n_out */
  int32_t row_first, row_step; /* row o is stored output row_first + o * row_step; step 0 means 1 */
};

static inline bool weight_present(const struct weight *w) { return w->format != WEIGHT_NONE; }
const char *weight_format_name(enum weight_format format); /* "bf16", "int4" */
uint64_t weight_bytes(const struct weight *w);             /* data + scales of these rows */
/* Rows [begin, begin+n) as a weight of their own (same data). ASSERTs the range. */
struct weight weight_rows(const struct weight *w, int32_t begin, int32_t n);
/* Rows begin, begin+step, ... (n of them): interleaved gate and up rows. */
struct weight weight_rows_every(const struct weight *w, int32_t begin, int32_t step, int32_t n);
/* Where row o of a weight that is not transposed begins. */
const uint8_t *weight_row_data(const struct weight *w, int32_t row);
const uint8_t *weight_row_scale(const struct weight *w, int32_t row);
/* Dequantises one row to F32 [n_in]; for tools and tests, exact by the format's definition. */
void weight_row_to_f32(const struct weight *w, int32_t row, float *out);

#endif
