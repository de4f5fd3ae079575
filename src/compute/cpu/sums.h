/* sums.h - weighted sums of rows: the transposed product, and attention's sum over values. Included by kernels.c only,
 * once per instruction set. Every element keeps the order of the rows: one fused multiply-add after the other, whatever
 * shares the pass. */
#ifndef EAGLET_COMPUTE_CPU_SUMS_H
#define EAGLET_COMPUTE_CPU_SUMS_H

#include "compute/cpu/readers.h"

#if defined(KERNELS_AVX512)
#define SUM_OUTPUTS 4 /* sums that share the reading of a row */
#else
#define SUM_OUTPUTS 1
#endif

/* out[s][j] += sum over i of x[s][i] * row[i][j], j in [0, n_floats). */
struct sum_params {
  float *const *out;         /* [n sums] */
  const float *const *x;     /* [n sums][n_rows] */
  const uint8_t *const *row; /* [n_rows], each as the reader takes it */
  int32_t n_rows, n_floats;
};

/* out += x_i * row; every sum over i keeps the order of i. */
static void add_row(float *out, const float *row, float x, int32_t n) {
  v16 xi = v_set(x);
  int32_t j = 0;
  for (; j + 16 <= n; j += 16) v_store(out + j, v_fma(xi, v_load(row + j), v_load(out + j)));
  if (j < n) v_store_part(out + j, v_fma(xi, v_load_part(row + j, n - j, 0.0f), v_load_part(out + j, n - j, 0.0f)), n - j);
}

/* Columns [j, j + 16 * n_vectors) of n sums. */
static inline ALWAYS_INLINE void sum_panel(const struct sum_params *p, enum reader reader, int n, int n_vectors,
                                           int32_t j) {
  v16 acc[SUM_OUTPUTS][4];
  const float *x[SUM_OUTPUTS];
  for (int s = 0; s < n; s++) {
    x[s] = p->x[s];
    for (int v = 0; v < n_vectors; v++) acc[s][v] = v_load(p->out[s] + j + 16 * v);
  }
  size_t at = (size_t)j * reader_bits(reader) / 8, width = 2 * reader_bits(reader);
  for (int32_t i = 0; i < p->n_rows; i++) {
    v16 w[4];
    for (int v = 0; v < n_vectors; v++) w[v] = read16(reader, p->row[i] + at + (size_t)v * width, NULL);
    for (int s = 0; s < n; s++) {
      v16 xi = v_set(x[s][i]);
      for (int v = 0; v < n_vectors; v++) acc[s][v] = v_fma(xi, w[v], acc[s][v]);
    }
  }
  for (int s = 0; s < n; s++) {
    for (int v = 0; v < n_vectors; v++) v_store(p->out[s] + j + 16 * v, acc[s][v]);
  }
}

/* The last columns, fewer than sixteen, of F32 rows. */
static inline ALWAYS_INLINE void sum_tail(const struct sum_params *p, int n, int32_t j) {
  v16 acc[SUM_OUTPUTS];
  int rest = p->n_floats - j;
  for (int s = 0; s < n; s++) acc[s] = v_load_part(p->out[s] + j, rest, 0.0f);
  for (int32_t i = 0; i < p->n_rows; i++) {
    v16 w = v_load_part((const float *)(const void *)p->row[i] + j, rest, 0.0f);
    for (int s = 0; s < n; s++) acc[s] = v_fma(v_set(p->x[s][i]), w, acc[s]);
  }
  for (int s = 0; s < n; s++) v_store_part(p->out[s] + j, acc[s], rest);
}

static inline ALWAYS_INLINE void sum_panels(const struct sum_params *p, enum reader reader, int n) {
  int32_t j = 0;
  for (; j + 64 <= p->n_floats; j += 64) sum_panel(p, reader, n, 4, j);
  for (; j + 32 <= p->n_floats; j += 32) sum_panel(p, reader, n, 2, j);
  for (; j + 16 <= p->n_floats; j += 16) sum_panel(p, reader, n, 1, j);
  if (reader == READ_F32 && j < p->n_floats) sum_tail(p, n, j);
}

/* n sums in passes of four, two, one. */
static inline ALWAYS_INLINE void sum_all(struct sum_params p, enum reader reader, int32_t n) {
  while (n > 0) {
    int some = n >= SUM_OUTPUTS ? SUM_OUTPUTS : n >= 2 ? 2 : 1;
    if (some == 4)
      sum_panels(&p, reader, SUM_OUTPUTS);
    else if (some == 2)
      sum_panels(&p, reader, SUM_OUTPUTS > 1 ? 2 : 1);
    else
      sum_panels(&p, reader, 1);
    p.out += some;
    p.x += some;
    n -= some;
  }
}

static void sum_f32(const struct sum_params *p, int32_t n) {
  sum_all(*p, READ_F32, n);
}
static void sum_bf16(const struct sum_params *p, int32_t n) {
  sum_all(*p, READ_BF16, n);
}
static void sum_f16(const struct sum_params *p, int32_t n) {
  sum_all(*p, READ_F16, n);
}

#define SUM_ROWS 64  /* rows whose pointers fit on the stack at once */
#define SUM_PANEL 48 /* activation rows of one call of `transposed` */

static void transposed(float *const *out, const float *const *x, const struct weight *w, int32_t n, float *tile) {
  enum reader reader = reader_of(w);
  bool stored = reader <= READ_F16; /* other rows go through the tile */
  int32_t most = stored ? SUM_ROWS : KERNEL_OUTPUTS;
  const uint8_t *row[SUM_ROWS];
  const float *x_at[SUM_PANEL];
  ASSERT(n <= SUM_PANEL);
  for (int32_t r = 0; r < n; r++) memset(out[r], 0, sizeof(float) * (size_t)w->n_in);
  for (int32_t i = 0; i < w->n_out; i += most) {
    struct sum_params p = {
        .out = out, .x = x_at, .row = row, .n_rows = w->n_out - i < most ? w->n_out - i : most, .n_floats = w->n_in};
    for (int32_t r = 0; r < n; r++) x_at[r] = x[r] + i;
    for (int32_t k = 0; k < p.n_rows; k++) {
      float *unpacked = tile + (size_t)k * (size_t)w->n_in;
      if (!stored) unpack_row(w, i + k, unpacked);
      row[k] = stored ? weight_row_data(w, i + k) : (const uint8_t *)unpacked;
    }
    if (reader == READ_BF16)
      sum_bf16(&p, n);
    else if (reader == READ_F16)
      sum_f16(&p, n);
    else
      sum_f32(&p, n);
  }
}

#endif
