/* in_major.h - dot products of weights whose inputs are the rows: AWQ, GPTQ, transposed plain matrices. Included by
 * kernels.c only, once per instruction set. A lane is an output: sixteen neighbours are read at once for one input, which
 * suits how the bytes lie, where a row at a time would touch a line of memory per weight.
 *
 * The order of additions of one output: inputs in order within chunks of IN_MAJOR_CHUNK, then chunks in order. It depends on the
 * weight alone; which block of outputs a lane sits in, and how many rows share it, changes no bit.
 */
#ifndef EAGLET_COMPUTE_CPU_IN_MAJOR_H
#define EAGLET_COMPUTE_CPU_IN_MAJOR_H

#include "compute/cpu/kernels.h"
#include "compute/cpu/vector.h"

#if defined(KERNELS_AVX512)
#define IN_MAJOR_VECTORS 2
#define IN_MAJOR_ROWS 6 /* activation rows that share the reading of a weight */
#elif defined(KERNELS_AVX2)
#define IN_MAJOR_VECTORS 1
#define IN_MAJOR_ROWS 4
#else
#define IN_MAJOR_VECTORS 1
#define IN_MAJOR_ROWS 1
#endif
#define IN_MAJOR_LANES (16 * IN_MAJOR_VECTORS)
#define IN_MAJOR_CHUNK 128
#define IN_MAJOR_GROUPS_MAX (KERNEL_OUTPUTS * KERNEL_IN_MAX / (2 * IN_MAJOR_LANES)) /* whose scales fit the tile */

enum in_major { IN_MAJOR_NOT, IN_MAJOR_F32, IN_MAJOR_BF16, IN_MAJOR_F16, IN_MAJOR_AWQ, IN_MAJOR_FIELDS };

static enum in_major in_major_of(const struct weight *w) {
  if (weight_stored(w) < IN_MAJOR_LANES) return IN_MAJOR_NOT;
  if (w->transposed && !weight_scaled(w))
    return w->format == WEIGHT_F32 ? IN_MAJOR_F32 : w->format == WEIGHT_BF16 ? IN_MAJOR_BF16 : IN_MAJOR_F16;
  if (w->format != WEIGHT_PACKED || !w->scale_transposed || w->zero_kind != WEIGHT_ZERO_FIELDS) return IN_MAJOR_NOT;
  if (w->codes.padded || weight_groups(w) > IN_MAJOR_GROUPS_MAX) return IN_MAJOR_NOT;
  if (w->codes_along_out && (!w->codes.awq_order || w->codes.bits != 4 || weight_stored(w) % 8 != 0)) return IN_MAJOR_NOT;
  if (w->codes_along_out) return IN_MAJOR_AWQ;
  return w->codes.line == 1 ? IN_MAJOR_FIELDS : IN_MAJOR_NOT;
}

/* Outputs [column, column + IN_MAJOR_LANES) of the stored tensor; scale and zero [n_groups][lanes]. */
struct in_major_block {
  const struct weight *w;
  int64_t column;
  float *scale, *zero;
};

/* Sixteen codes of input k. */
static inline ALWAYS_INLINE v16 in_major_codes(const struct weight *w, enum in_major kind, int32_t k, int64_t column) {
  const uint8_t *data = w->data;
  size_t at = (size_t)k * (size_t)weight_stored(w) + (size_t)column;
  switch (kind) {
  case IN_MAJOR_F32:
    return v_load((const float *)(const void *)(data + 4 * at));
  case IN_MAJOR_BF16:
    return v_bf16(data + 2 * at);
  case IN_MAJOR_F16:
    return v_f16(data + 2 * at);
  case IN_MAJOR_AWQ:
    return v_awq((const uint8_t *)w->codes.words + 4 * (size_t)(k * w->codes.line) + (size_t)column / 2);
  default: {
    int32_t bit = k * w->codes.bits, bits = w->codes.bits; /* fits: 65536 inputs of 8 bits */
    const uint8_t *word = (const uint8_t *)w->codes.words + 4 * (size_t)(bit / 32 * w->codes.step + column);
    bool split = (bit & 31) + bits > 32;
    return v_fields(word, split ? word + 4 * w->codes.step : word, bit & 31, bits);
  }
  }
}

static void in_major_scales(const struct in_major_block *b) {
  const struct weight *w = b->w;
  int32_t n_groups = weight_groups(w);
  uint32_t mask = (1u << w->zeros.bits) - 1;
  size_t bytes = (size_t)dtype_bits(w->scale_dtype) / 8;
  for (int32_t g = 0; g < n_groups; g++) {
    float *scale = b->scale + (size_t)g * IN_MAJOR_LANES, *zero = b->zero + (size_t)g * IN_MAJOR_LANES;
    const uint8_t *from = (const uint8_t *)w->scale + (size_t)(g * weight_stored(w) + b->column) * bytes;
    const uint8_t *zeros = (const uint8_t *)w->zeros.words + 4 * (size_t)(g * w->zeros.line) + (size_t)b->column / 2;
    bool nibbles = w->zeros.bits == 4 && w->zero_add == 0;
    for (int32_t lane = 0; lane < IN_MAJOR_LANES; lane += 16) {
      if (w->scale_dtype == DTYPE_F16)
        v_store(scale + lane, v_f16(from + 2 * lane));
      else
        dtype_to_f32(scale + lane, from + (size_t)lane * bytes, w->scale_dtype, 16);
      if (nibbles && w->zeros.awq_order)
        v_store(zero + lane, v_awq(zeros + lane / 2));
      else if (nibbles)
        v_store(zero + lane, v_nibble(zeros + lane / 2, v_codes(0)));
      else
        for (int32_t i = lane; i < lane + 16; i++)
          zero[i] = (float)((weight_field(&w->zeros, g, b->column + i) + (uint32_t)w->zero_add) & mask);
    }
  }
}

static inline ALWAYS_INLINE void in_major_rows(const struct in_major_block *b, const float *const *x,
                                               float (*total)[IN_MAJOR_LANES], enum in_major kind, int n_rows) {
  const struct weight *w = b->w;
  bool scaled = kind == IN_MAJOR_AWQ || kind == IN_MAJOR_FIELDS;
  int32_t g = 0, next = scaled ? w->group : w->n_in;
  memset(total, 0, sizeof *total * (size_t)n_rows);
  for (int32_t begin = 0; begin < w->n_in; begin += IN_MAJOR_CHUNK) {
    int32_t end = begin + IN_MAJOR_CHUNK < w->n_in ? begin + IN_MAJOR_CHUNK : w->n_in;
    v16 acc[IN_MAJOR_ROWS][IN_MAJOR_VECTORS];
    for (int r = 0; r < n_rows; r++) {
      for (int v = 0; v < IN_MAJOR_VECTORS; v++) acc[r][v] = v_zero();
    }
    for (int32_t k = begin; k < end; k++) {
      if (k == next) g++, next += w->group;
      int32_t at = g;
      if (scaled && w->group_index) memcpy(&at, (const uint8_t *)w->group_index + 4 * (size_t)k, sizeof at);
      for (int v = 0; v < IN_MAJOR_VECTORS; v++) {
        v16 code = in_major_codes(w, kind, k, b->column + 16 * v);
        size_t lane = (size_t)at * IN_MAJOR_LANES + 16 * (size_t)v;
        if (scaled) code = v_mul(v_sub(code, v_load(b->zero + lane)), v_load(b->scale + lane));
        for (int r = 0; r < n_rows; r++) acc[r][v] = v_fma(code, v_set(x[r][k]), acc[r][v]);
      }
    }
    for (int r = 0; r < n_rows; r++) {
      for (int v = 0; v < IN_MAJOR_VECTORS; v++)
        v_store(total[r] + 16 * v, v_add(v_load(total[r] + 16 * v), acc[r][v]));
    }
  }
}

static inline ALWAYS_INLINE void in_major_kind(const struct in_major_block *b, const float *const *x,
                                               float (*total)[IN_MAJOR_LANES], enum in_major kind, int n_rows) {
  if (n_rows == 1) {
    in_major_rows(b, x, total, kind, 1);
    return;
  }
  const float *padded[IN_MAJOR_ROWS]; /* the last row again: computed and dropped */
  for (int r = 0; r < IN_MAJOR_ROWS; r++) padded[r] = x[r < n_rows ? r : n_rows - 1];
  in_major_rows(b, padded, total, kind, IN_MAJOR_ROWS);
}

static void in_major_some(const struct in_major_block *b, const float *const *x, float (*total)[IN_MAJOR_LANES],
                          enum in_major kind, int n_rows) {
  switch (kind) {
  case IN_MAJOR_F32:
    in_major_kind(b, x, total, IN_MAJOR_F32, n_rows);
    break;
  case IN_MAJOR_BF16:
    in_major_kind(b, x, total, IN_MAJOR_BF16, n_rows);
    break;
  case IN_MAJOR_F16:
    in_major_kind(b, x, total, IN_MAJOR_F16, n_rows);
    break;
  case IN_MAJOR_AWQ:
    in_major_kind(b, x, total, IN_MAJOR_AWQ, n_rows);
    break;
  default:
    in_major_kind(b, x, total, IN_MAJOR_FIELDS, n_rows);
    break;
  }
}

/* rows_dot of such a weight. */
static void in_major_dot(const struct rows_dot_params *p, enum in_major kind) {
  const struct weight *w = p->w;
  int64_t step = w->row_step ? w->row_step : 1, first = w->row_first + p->begin * step,
          last = w->row_first + (p->end - 1) * step;
  struct in_major_block b = {.w = w, .scale = p->tile, .zero = p->tile + (size_t)weight_groups(w) * IN_MAJOR_LANES};
  for (int64_t column = first; column <= last; column = b.column + IN_MAJOR_LANES) {
    b.column = column & ~(int64_t)7; /* where nibbles begin a word */
    if (b.column > weight_stored(w) - IN_MAJOR_LANES) b.column = weight_stored(w) - IN_MAJOR_LANES;
    if (weight_scaled(w)) in_major_scales(&b);
    for (int32_t r = 0; r < p->n; r += IN_MAJOR_ROWS) {
      float total[IN_MAJOR_ROWS][IN_MAJOR_LANES];
      int n_rows = p->n - r < IN_MAJOR_ROWS ? p->n - r : IN_MAJOR_ROWS;
      in_major_some(&b, p->x + r, total, kind, n_rows);
      for (int64_t at = column; at <= last && at < b.column + IN_MAJOR_LANES; at++) {
        if ((at - w->row_first) % step != 0) continue; /* another slice's */
        for (int i = 0; i < n_rows; i++) p->out[r + i][(at - w->row_first) / step] = total[i][at - b.column];
      }
    }
  }
}

#endif
