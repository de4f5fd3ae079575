/* weight.h - a linear layer's weight as it is stored, the way kernels read it: y = W x, W [n_out, n_in].
 *
 * Weights are never inflated: the struct points into the mapped file (CPU) or a device copy of the same bytes. Data may be
 * unaligned. Pointers name the whole stored tensor; row_first and row_step say which stored output is row o, so that a slice of
 * any packing is a weight of its own.
 *
 * What a weight means, in F32, each operation rounded once and in this order (it is the rule of the library that wrote the
 * format, evaluated in F32):
 *   plain           the element
 *   integers        (code - zero[o, g]) * scale[o, g]       the difference is exact
 *   F8, F4          element * s[o, g], s = scale[o, g], or scale[o, g] * global, or scale[o, g] / global
 * with g = group_index[k], or k / group. Without stored zero points the zero of an unsigned code is the middle, 2^(bits-1).
 */
#ifndef EAGLET_COMPUTE_WEIGHT_H
#define EAGLET_COMPUTE_WEIGHT_H

#include "base/dtype.h"

#define WEIGHT_GROUPS_MAX 8192 /* groups of one row */

enum weight_format {
  WEIGHT_NONE,    /* absent: an optional weight that this model does not have */
  WEIGHT_F32,
  WEIGHT_BF16,
  WEIGHT_F16,
  WEIGHT_INT4,    /* unsigned nibbles, low first: [n_out, n_in/2] bytes */
  WEIGHT_INT8,    /* signed bytes */
  WEIGHT_PACKED,  /* unsigned fields of 2..8 bits in 32-bit words, laid out as `codes` says */
  WEIGHT_F8_E4M3,
  WEIGHT_F8_E5M2,
  WEIGHT_F4,      /* E2M1 nibbles, low first: [n_out, n_in/2] bytes */
  WEIGHT_FORMAT_COUNT
};

/* Lines of unsigned fields in little-endian 32-bit words, lowest bits first. Word i of line l is words[l * line + i * step]. */
struct weight_fields {
  const void *words;
  int64_t line, step;     /* in words */
  int32_t bits;           /* 2..8; 0: there are none */
  bool padded;            /* floor(32/bits) fields per word instead of one contiguous string of bits */
  bool awq_order;         /* eight neighbours lie in nibbles 0, 4, 1, 5, 2, 6, 3, 7 */
};
uint32_t weight_field(const struct weight_fields *fields, int64_t line, int64_t index);

enum weight_zero {
  WEIGHT_ZERO_NONE,       /* the middle for unsigned codes, 0 for signed ones */
  WEIGHT_ZERO_FIELDS,     /* field (line: group, index: stored output), plus zero_add, in `bits` bits */
  WEIGHT_ZERO_I8          /* signed bytes indexed like the scales, on top of the middle */
};

struct weight {
  enum weight_format format;
  int32_t n_out, n_in;
  const void *data;       /* [n_out, n_in] elements of format */
  const void *scale;      /* [ceil(n_stored / scale_rows), n_groups], or [n_groups, n_stored] when scale_transposed */
  enum dtype scale_dtype; /* F32, F16, BF16, F8_E4M3, F8_E8M0 */
  int32_t group;          /* inputs per scale */
  /* -- zero for a plain weight -- */
  bool transposed;        /* data is [n_in, n_stored]: inputs are the rows */
  bool scale_transposed;
  bool global_divides;
  int32_t n_stored;       /* outputs of the stored tensor; 0: n_out */
  int32_t row_first, row_step; /* row o is stored output row_first + o * row_step; step 0 means 1 */
  int32_t scale_rows;     /* stored outputs per row of scales; 0 means 1 */
  float global;           /* scale of the scales; 0: none */
  bool codes_along_out;   /* PACKED: a line holds one input's codes of all outputs, instead of one output's of all inputs */
  enum weight_zero zero_kind;
  int32_t zero_add;
  const void *zero;       /* I8 */
  struct weight_fields codes, zeros;
  const void *group_index; /* I32 [n_in], each below n_groups, or NULL */
};

static inline bool weight_present(const struct weight *w) { return w->format != WEIGHT_NONE; }
static inline int64_t weight_stored(const struct weight *w) { return w->n_stored ? w->n_stored : w->n_out; } /* outputs */
const char *weight_format_name(enum weight_format format); /* "bf16", "int4" */
/* What inspect prints: "bf16", "int4 g32", "int3 g128 in-major zeros", "fp8 128x128". text holds 64. */
void weight_describe(const struct weight *w, char text[64]);
uint64_t weight_bytes(const struct weight *w);             /* data, scales and zero points of these rows */
/* Rows [begin, begin+n) as a weight of their own (same data). ASSERTs the range. */
struct weight weight_rows(const struct weight *w, int32_t begin, int32_t n);
/* Rows begin, begin+step, ... (n of them): interleaved gate and up rows. */
struct weight weight_rows_every(const struct weight *w, int32_t begin, int32_t step, int32_t n);

/* Where row o begins; not for transposed or PACKED weights. */
const uint8_t *weight_row_data(const struct weight *w, int32_t row);
int64_t weight_row_stride(const struct weight *w);         /* bytes from one row to the next */
/* Scales of rows [row, row + n) as they lie when those are n * n_groups neighbours that are used as stored; NULL otherwise. */
const uint8_t *weight_scales_adjacent(const struct weight *w, int32_t row);
static inline bool weight_scaled(const struct weight *w) { return w->format > WEIGHT_F16; }
int32_t weight_groups(const struct weight *w);             /* scales of one row; 0 for plain weights */
/* Scales and zeros of one row as F32 [n_groups]; zero may be NULL for F8 and F4, which have none. */
void weight_row_scales(const struct weight *w, int32_t row, float *scale, float *zero);
/* Dequantises one row to F32 [n_in], exact by the definition above. */
void weight_row_to_f32(const struct weight *w, int32_t row, float *out);

/* E2M1, by code. */
extern const float weight_f4_values[16];

#endif
