/* dot.h - dot products of weights whose outputs are the rows: KERNEL_OUTPUTS weight rows times up to KERNEL_ROWS
 * activation rows at a time. Included by kernels.c only, once per instruction set.
 *
 * Weights are turned into F32 in registers and serve every activation row of the pass: what a second row costs is its
 * own multiply-adds. How rows are dealt to passes changes no bit (see kernels.c for the order of additions). */
#ifndef EAGLET_COMPUTE_CPU_DOT_H
#define EAGLET_COMPUTE_CPU_DOT_H

#include "compute/cpu/readers.h"

/* Weight rows whose scales are turned to F32 together. They pass over all activation rows before the next ones: so many
 * rows stay in the cache, and the calls made for each of them are few. Twice the groups of so many rows fit the tile.
 */
#define DOT_RUN 32

/* Bytes that are fetched ahead, at least: short rows end before the hardware sees where they lead. */
#define DOT_AHEAD 4096

/* Weight rows [out_first, out_first + n_outputs) times some activation rows. */
struct dot_run {
  int32_t n_in, group; /* group: n_in for formats without scales */
  const uint8_t
      *data; /* row i at data + i * stride; F32 rows are followed by zeros up to a multiple of sixteen inputs */
  int64_t stride;
  const float *scale, *zero; /* of row i at + i * scale_stride */
  int64_t scale_stride;
  int32_t out_first, n_outputs;
  const float *const *x;
  float *const *out;
  int64_t left; /* bytes from data to where `after` goes on */
  const uint8_t *after, *after_scales;
};

#define DOT_OUTPUTS_MAX 8

/* Four or eight weight rows at even distances, and where the loop over their inputs stands. Bases and distances
 * instead of a pointer for every row: general registers are what these loops run out of. */
struct dot_block {
  const uint8_t *data, *next; /* sixteen inputs of the first row; what to fetch for the block that follows */
  size_t stride;
  const float *scale, *zero; /* of the first row's group */
  size_t scale_stride;
  const float *x[KERNEL_ROWS];
  struct group group[DOT_OUTPUTS_MAX];
  v16 acc[KERNEL_ROWS][DOT_OUTPUTS_MAX];
};

/* What a block's loops are compiled for. */
struct dot_kind {
  enum reader reader;
  int n_rows;
  size_t width; /* weight rows */
};

/* Inputs [k, k + 16) of the block; fetches what the next block has for these and the steps - 1 that follow. */
static inline ALWAYS_INLINE void dot_step(struct dot_block *b, struct dot_kind kind, size_t k, size_t steps) {
  const size_t bytes = 2 * reader_bits(kind.reader);
  v16 w[DOT_OUTPUTS_MAX];
  for (size_t line = 0; line < kind.width * bytes * steps; line += 64) __builtin_prefetch(b->next + line);
  for (size_t i = 0; i < kind.width; i++) {
    const uint8_t *data = b->data + i * b->stride;
    w[i] = reader_mixes(kind.reader) ? v_nibble_mixed(data, b->group[i].factor)
                                     : read16(kind.reader, data, &b->group[i]);
  }
  for (int r = 0; r < kind.n_rows; r++) {
    v16 x = v_load(b->x[r] + k);
    for (size_t i = 0; i < kind.width; i++) b->acc[r][i] = v_fma(w[i], x, b->acc[r][i]);
  }
  b->data += bytes;
  b->next += kind.width * bytes * steps;
}

static inline ALWAYS_INLINE void dot_group(struct dot_block *b, struct dot_kind kind) {
  for (size_t i = 0; i < kind.width && reader_scales(kind.reader); i++)
    b->group[i] = read_group(kind.reader, b->scale + i * b->scale_stride, b->zero + i * b->scale_stride);
  b->scale++;
  b->zero++;
}

/* The sixteen lanes of every weight row times every activation row. */
static inline ALWAYS_INLINE void dot_inputs(struct dot_block *b, struct dot_kind kind, const int32_t shape[2]) {
  size_t n_in = (size_t)shape[0], n_whole = n_in & ~(size_t)15,
         step = reader_scales(kind.reader) ? (size_t)shape[1] : n_whole, k = 0;
  for (int r = 0; r < kind.n_rows; r++) {
    for (size_t i = 0; i < kind.width; i++) b->acc[r][i] = v_zero();
  }
  if (reader_mixes(kind.reader) && step == 32) { /* the usual group of nibbles has a loop with nothing to count */
    for (; k < n_whole; k += 32) {
      dot_group(b, kind);
      dot_step(b, kind, k, 2);
      dot_step(b, kind, k + 16, 0);
    }
  }
  while (k < n_whole) {
    dot_group(b, kind);
    size_t end = k + step;
    if (kind.reader == READ_F8 && end > n_whole) end = n_whole; /* only blocks are cut off at the edge */
    for (; k + 32 <= end; k += 32) {
      dot_step(b, kind, k, 2);
      dot_step(b, kind, k + 16, 0);
    }
    for (; k < end; k += 16) dot_step(b, kind, k, 1);
  }
  for (int r = 0; kind.reader == READ_F32 && n_whole < n_in && r < kind.n_rows; r++) {
    v16 x = v_load_part(b->x[r] + n_whole, (int)(n_in - n_whole), 0.0f);
    for (size_t i = 0; i < kind.width; i++)
      b->acc[r][i] = v_fma(read16(kind.reader, b->data + i * b->stride, NULL), x, b->acc[r][i]);
  }
}

/* Blocks of outputs; the last one ends with the run and computes some outputs again. Fewer outputs than a block's are
 * blocks of their own, all of whose rows are the same. */
static inline ALWAYS_INLINE void dot_blocks(const struct dot_run *run, struct dot_kind kind) {
  const int32_t shape[2] = {run->n_in, run->group}, width = (int32_t)kind.width;
  bool few = run->n_outputs < width;
  int64_t block = width * run->stride, ahead = block > DOT_AHEAD ? block : DOT_AHEAD;
  for (int32_t at = 0; at < run->n_outputs; at += few ? 1 : width) {
    int32_t o = few || at + width <= run->n_outputs ? at : run->n_outputs - width;
    int64_t next = o * run->stride + ahead;
    struct dot_block b = {.data = run->data + o * run->stride,
                          .next = next < run->left ? run->data + next : run->after + (next - run->left),
                          .stride = few ? 0 : (size_t)run->stride,
                          .scale = run->scale + o * run->scale_stride,
                          .zero = run->zero + o * run->scale_stride,
                          .scale_stride = few ? 0 : (size_t)run->scale_stride};
    for (int r = 0; r < kind.n_rows; r++) b.x[r] = run->x[r];
    dot_inputs(&b, kind, shape);
    for (int r = 0; r < kind.n_rows; r++) {
      float *out = run->out[r] + run->out_first + o, sums[DOT_OUTPUTS_MAX];
      for (int32_t i = 0; reader_mixes(kind.reader) && i < width; i++) b.acc[r][i] = v_unmix(b.acc[r][i]);
      for (int32_t i = 0; i < width; i += 4) v_sum4((few ? sums : out) + i, b.acc[r] + i);
      if (few) out[0] = sums[0];
    }
  }
}

/* Activation rows of a pass, at most: what registers hold beside the weights' tables. */
static inline ALWAYS_INLINE int32_t reader_rows(enum reader reader) {
  return KERNEL_ROWS > 4 && reader_scales(reader) ? 4 : KERNEL_ROWS;
}

/* Nibbles wait for their sums while there are few: eight weight rows are on the way where two activation rows at most
 * share the registers with their tables. */
static inline ALWAYS_INLINE void dot_few(const struct dot_run *b, enum reader reader, int n_rows) {
  if (reader_mixes(reader) && b->n_outputs >= DOT_OUTPUTS_MAX)
    dot_blocks(b, (struct dot_kind){.reader = reader, .n_rows = n_rows, .width = DOT_OUTPUTS_MAX});
  else
    dot_blocks(b, (struct dot_kind){.reader = reader, .n_rows = n_rows, .width = KERNEL_OUTPUTS});
}

static inline ALWAYS_INLINE void dot_many(const struct dot_run *b, enum reader reader, int n_rows) {
  if (n_rows <= reader_rows(reader))
    dot_blocks(b, (struct dot_kind){.reader = reader, .n_rows = n_rows, .width = KERNEL_OUTPUTS});
}

/* The constants make the loops above unroll into registers. */
static inline ALWAYS_INLINE void dot_reader(const struct dot_run *b, enum reader reader, int n_rows) {
  switch (n_rows) {
  case 1:
    dot_few(b, reader, 1);
    break;
#if KERNEL_ROWS == 6
  case 2:
    dot_few(b, reader, 2);
    break;
  case 3:
    dot_many(b, reader, 3);
    break;
  case 4:
    dot_many(b, reader, 4);
    break;
  case 5:
    dot_many(b, reader, 5);
    break;
  default:
    dot_many(b, reader, 6);
    break;
#endif
  }
}

static void dot_some(const struct dot_run *b, enum reader reader, int n_rows) {
  switch (reader) {
  case READ_F32:
    dot_reader(b, READ_F32, n_rows);
    break;
  case READ_BF16:
    dot_reader(b, READ_BF16, n_rows);
    break;
  case READ_F16:
    dot_reader(b, READ_F16, n_rows);
    break;
  case READ_INT4:
    dot_reader(b, READ_INT4, n_rows);
    break;
  case READ_INT4_ZERO:
    dot_reader(b, READ_INT4_ZERO, n_rows);
    break;
  case READ_F4:
    dot_reader(b, READ_F4, n_rows);
    break;
  case READ_INT8:
    dot_reader(b, READ_INT8, n_rows);
    break;
  default:
    dot_reader(b, READ_F8, n_rows);
    break;
  }
}

static void scales_to_f32(float *to, const uint8_t *from, enum dtype dtype, int32_t n) {
  int32_t i = 0;
  if (dtype == DTYPE_BF16) {
    for (; i + 16 <= n; i += 16) v_store(to + i, v_bf16(from + 2 * i));
  }
  dtype_to_f32(to + i, from + (size_t)i * (size_t)dtype_bits(dtype) / 8, dtype, (size_t)(n - i));
}

/* Points the run at weight rows [o, o + n_outputs) as stored, their scales and zeros turned to F32 in the tile. */
static void aim_stored(struct dot_run *b, const struct rows_dot_params *p, enum reader reader, int32_t o) {
  const struct weight *w = p->w;
  bool zeros = reader_has_zeros(reader);
  int32_t n_groups = weight_groups(w);
  b->data = weight_row_data(w, o);
  b->scale_stride = zeros ? 2 * n_groups : n_groups;
  b->scale = p->tile;
  b->zero = p->tile + n_groups;
  if (n_groups == 0) return;
  const uint8_t *scales = zeros ? NULL : weight_scales_adjacent(w, o);
  if (scales) {
    int64_t bytes = (int64_t)n_groups * b->n_outputs * dtype_bits(w->scale_dtype) / 8;
    const uint8_t *next = b->out_first + b->n_outputs < p->end || !b->after_scales ? scales + bytes : b->after_scales;
    for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(next + line);
    scales_to_f32(p->tile, scales, w->scale_dtype, n_groups * b->n_outputs);
    return;
  }
  for (int32_t i = 0; i < b->n_outputs; i++) {
    float *scale = p->tile + i * b->scale_stride;
    weight_row_scales(w, o + i, scale, zeros ? scale + n_groups : NULL);
  }
}

/* The same, unpacked into the tile. */
static void aim_unpacked(struct dot_run *b, const struct rows_dot_params *p, int32_t o) {
  size_t n_in = (size_t)b->n_in, padded = (size_t)b->stride / 4;
  b->data = (const uint8_t *)p->tile;
  b->scale = b->zero = p->tile;
  for (int32_t i = 0; i < b->n_outputs; i++) {
    float *tile = p->tile + (size_t)i * padded;
    unpack_row(p->w, o + i, tile);
    memset(tile + n_in, 0, sizeof(float) * (padded - n_in));
  }
}

/* The rows' inputs in mixed order, behind the scales in the tile. */
static void mix_rows(const float **mixed, const struct rows_dot_params *p, int32_t first, int32_t n) {
  float *to = p->tile + KERNEL_OUTPUTS * KERNEL_IN_MAX;
  for (int32_t r = 0; r < n; r++, to += p->w->n_in) {
    for (int32_t k = 0; k < p->w->n_in; k += 16) v_store(to + k, v_mix(v_load(p->x[first + r] + k)));
    mixed[r] = to;
  }
}

static void rows_dot(const struct rows_dot_params *p) {
  const struct weight *w = p->w;
  enum reader reader = reader_of(w);
  enum in_major in_major = reader == READ_SLOWLY ? in_major_of(w) : IN_MAJOR_NOT;
  if (in_major != IN_MAJOR_NOT) {
    in_major_dot(p, in_major);
    return;
  }
  /* Weights are read as stored: several rows in flight pay for the conversion (bf16 2048 x 2048, 64 rows: 156 GFLOP/s a
   * core against 108 through the tile). They go through the tile where one row is in flight, and where the vector
   * readers cannot take them. The bits are the same either way. */
  const float *mixed[KERNEL_ROWS];
  bool unpack = reader == READ_SLOWLY || (reader != READ_F32 && KERNEL_ROWS == 1 && p->n > 2);
  int32_t most = unpack ? KERNEL_ROWS : reader_rows(reader), n_passes = (p->n + most - 1) / most,
          run = unpack ? KERNEL_OUTPUTS : DOT_RUN;
  bool mixes = !unpack && reader_mixes(reader);
  struct dot_run b = {.n_in = w->n_in,
                      .group = weight_scaled(w) ? w->group : w->n_in,
                      .stride = unpack ? 4 * (((int64_t)w->n_in + 15) & ~(int64_t)15) : weight_row_stride(w),
                      .x = mixed,
                      .left = INT64_MAX};
  if (p->after && !unpack && reader_of(p->after) != READ_SLOWLY) {
    b.after = weight_row_data(p->after, p->after_begin);
    b.after_scales = weight_scales_adjacent(p->after, p->after_begin);
  }
  for (int32_t o = p->begin; o < p->end; o += run) {
    b.n_outputs = p->end - o < run ? p->end - o : run;
    b.out_first = o;
    if (b.after) b.left = (p->end - o) * b.stride;
    if (unpack)
      aim_unpacked(&b, p, o);
    else
      aim_stored(&b, p, reader, o);
    for (int32_t pass = 0; pass < n_passes; pass++) {
      int32_t r = (int32_t)((int64_t)p->n * pass / n_passes), end = (int32_t)((int64_t)p->n * (pass + 1) / n_passes);
      if (!mixes) b.x = p->x + r;
      if (mixes && (n_passes > 1 || o == p->begin)) mix_rows(mixed, p, r, end - r);
      b.out = p->out + r;
      dot_some(&b, unpack ? READ_F32 : reader, end - r);
    }
  }
}

#endif
