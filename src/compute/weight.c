/* weight.c - see weight.h. The slow, exact reading of one row; kernels have their own fast ones. */
#include "compute/weight.h"

const char *weight_format_name(enum weight_format format) {
  static const char *const names[] = {[WEIGHT_NONE] = "none",
                                      [WEIGHT_F32] = "f32",
                                      [WEIGHT_BF16] = "bf16",
                                      [WEIGHT_F16] = "f16",
                                      [WEIGHT_INT4] = "int4"};
  return names[format];
}

static uint64_t row_bytes(const struct weight *w) {
  switch (w->format) {
  case WEIGHT_F32:
    return (uint64_t)w->n_in * 4;
  case WEIGHT_BF16:
  case WEIGHT_F16:
    return (uint64_t)w->n_in * 2;
  case WEIGHT_INT4:
    return (uint64_t)w->n_in / 2;
  case WEIGHT_NONE:
    break;
  }
  return 0;
}

static uint64_t scale_row_bytes(const struct weight *w) {
  return w->format == WEIGHT_INT4 ? (uint64_t)(w->n_in / w->group) * (uint64_t)(dtype_bits(w->scale_dtype) / 8) : 0;
}

static int32_t stored_row(const struct weight *w, int32_t row) {
  return w->row_first + row * (w->row_step ? w->row_step : 1);
}

uint64_t weight_bytes(const struct weight *w) {
  return (row_bytes(w) + scale_row_bytes(w)) * (uint64_t)w->n_out;
}

struct weight weight_rows_every(const struct weight *w, int32_t begin, int32_t step, int32_t n) {
  ASSERT(begin >= 0 && n >= 0 && step > 0 && (n == 0 || begin + (n - 1) * step < w->n_out));
  struct weight rows = *w;
  rows.n_out = n;
  rows.n_stored = w->n_stored ? w->n_stored : w->n_out;
  rows.row_first = stored_row(w, begin);
  rows.row_step = step * (w->row_step ? w->row_step : 1);
  return rows;
}

struct weight weight_rows(const struct weight *w, int32_t begin, int32_t n) {
  return weight_rows_every(w, begin, 1, n);
}

const uint8_t *weight_row_data(const struct weight *w, int32_t row) {
  return (const uint8_t *)w->data + row_bytes(w) * (uint64_t)stored_row(w, row);
}

const uint8_t *weight_row_scale(const struct weight *w, int32_t row) {
  return (const uint8_t *)w->scale + scale_row_bytes(w) * (uint64_t)stored_row(w, row);
}

static void int4_row_to_f32(const struct weight *w, int32_t row, float *out) {
  const uint8_t *packed = weight_row_data(w, row), *scales = weight_row_scale(w, row);
  int32_t n_groups = w->n_in / w->group;
  for (int32_t g = 0; g < n_groups; g++) {
    float scale;
    dtype_to_f32(&scale, scales + (size_t)g * (size_t)(dtype_bits(w->scale_dtype) / 8), w->scale_dtype, 1);
    for (int32_t i = g * w->group; i < (g + 1) * w->group; i++) {
      int nibble = (packed[i / 2] >> (4 * (i & 1))) & 15;
      out[i] = (float)(nibble - 8) * scale;
    }
  }
}

void weight_row_to_f32(const struct weight *w, int32_t row, float *out) {
  static const enum dtype dtypes[] = {[WEIGHT_F32] = DTYPE_F32, [WEIGHT_BF16] = DTYPE_BF16, [WEIGHT_F16] = DTYPE_F16};
  ASSERT(weight_present(w) && row >= 0 && row < w->n_out);
  if (w->format == WEIGHT_INT4) {
    int4_row_to_f32(w, row, out);
  } else if (!w->transposed) {
    dtype_to_f32(out, weight_row_data(w, row), dtypes[w->format], (size_t)w->n_in);
  } else {
    size_t bytes = (size_t)dtype_bits(dtypes[w->format]) / 8, n = (size_t)(w->n_stored ? w->n_stored : w->n_out);
    const uint8_t *at = (const uint8_t *)w->data + (size_t)stored_row(w, row) * bytes;
    for (int32_t i = 0; i < w->n_in; i++, at += n * bytes) dtype_to_f32(out + i, at, dtypes[w->format], 1);
  }
}
