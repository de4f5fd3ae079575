/* weight.c - see weight.h. The exact reading of one row, whatever its layout; kernels have faster ones for the layouts
 * that lie along the row. Codes are turned to floats first and scaled in a second pass, so that layouts and scales do
 * not multiply. */
#include "compute/weight.h"

#include <stdio.h>

const float weight_f4_values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

static const struct {
  const char *name;
  int bits;
} formats[WEIGHT_FORMAT_COUNT] = {
    [WEIGHT_NONE] = {"none", 0},   [WEIGHT_F32] = {"f32", 32},        [WEIGHT_BF16] = {"bf16", 16},
    [WEIGHT_F16] = {"f16", 16},    [WEIGHT_INT4] = {"int4", 4},       [WEIGHT_INT8] = {"int8", 8},
    [WEIGHT_PACKED] = {"int", 0},  [WEIGHT_F8_E4M3] = {"fp8", 8},     [WEIGHT_F8_E5M2] = {"fp8 e5m2", 8},
    [WEIGHT_F4] = {"fp4", 4},
};

const char *weight_format_name(enum weight_format format) {
  return formats[format].name;
}

static int64_t stored_row(const struct weight *w, int32_t row) {
  return w->row_first + (int64_t)row * (w->row_step ? w->row_step : 1);
}

static int32_t scale_rows(const struct weight *w) {
  return w->scale_rows ? w->scale_rows : 1;
}

int32_t weight_groups(const struct weight *w) {
  return weight_scaled(w) ? (w->n_in + w->group - 1) / w->group : 0;
}

void weight_describe(const struct weight *w, char text[64]) {
  int at;
  if (w->format == WEIGHT_PACKED)
    at = snprintf(text, 64, "int%d", w->codes.bits);
  else if (w->format == WEIGHT_F4)
    at = snprintf(text, 64, "%s", w->scale_dtype == DTYPE_F8_E8M0 ? "mxfp4" : "nvfp4");
  else
    at = snprintf(text, 64, "%s", formats[w->format].name);
  if (!weight_scaled(w)) {
    if (w->transposed) snprintf(text + at, (size_t)(64 - at), " in-major");
    return;
  }
  bool one_row = scale_rows(w) >= weight_stored(w), one_group = w->group >= w->n_in;
  if (one_row && one_group)
    at += snprintf(text + at, (size_t)(64 - at), " tensor");
  else if (scale_rows(w) > 1)
    at += snprintf(text + at, (size_t)(64 - at), " %dx%d", w->scale_rows, w->group);
  else if (one_group)
    at += snprintf(text + at, (size_t)(64 - at), " channel");
  else
    at += snprintf(text + at, (size_t)(64 - at), " g%d", w->group);
  if (w->transposed || w->codes_along_out || (w->format == WEIGHT_PACKED && w->codes.step > 1))
    at += snprintf(text + at, (size_t)(64 - at), " in-major");
  if (w->zero_kind != WEIGHT_ZERO_NONE) at += snprintf(text + at, (size_t)(64 - at), " zeros");
  if (w->group_index) snprintf(text + at, (size_t)(64 - at), " reordered");
}

uint64_t weight_bytes(const struct weight *w) {
  uint64_t n_groups = (uint64_t)weight_groups(w), n_out = (uint64_t)w->n_out,
           n_scale_rows = (n_out + (uint64_t)scale_rows(w) - 1) / (uint64_t)scale_rows(w);
  uint64_t bits = (uint64_t)(w->format == WEIGHT_PACKED ? w->codes.bits : formats[w->format].bits);
  if (w->format == WEIGHT_PACKED && w->codes.padded) bits = 32 / (32 / bits);
  uint64_t bytes = n_out * ((uint64_t)w->n_in * bits / 8);
  if (n_groups > 0) bytes += n_scale_rows * n_groups * (uint64_t)dtype_bits(w->scale_dtype) / 8;
  if (w->zero_kind == WEIGHT_ZERO_FIELDS) bytes += n_out * n_groups * (uint64_t)w->zeros.bits / 8;
  if (w->zero_kind == WEIGHT_ZERO_I8) bytes += n_scale_rows * n_groups;
  return bytes + (w->group_index ? 4 * (uint64_t)w->n_in : 0);
}

struct weight weight_rows_every(const struct weight *w, int32_t begin, int32_t step, int32_t n) {
  ASSERT(begin >= 0 && n >= 0 && step > 0 && begin + (n - 1) * (int64_t)step < w->n_out);
  struct weight rows = *w;
  rows.n_out = n;
  rows.n_stored = (int32_t)weight_stored(w);
  rows.row_first = (int32_t)stored_row(w, begin);
  rows.row_step = step * (w->row_step ? w->row_step : 1);
  return rows;
}

struct weight weight_rows(const struct weight *w, int32_t begin, int32_t n) {
  return weight_rows_every(w, begin, 1, n);
}

static int64_t row_bytes(const struct weight *w) {
  return (int64_t)w->n_in * formats[w->format].bits / 8;
}

const uint8_t *weight_row_data(const struct weight *w, int32_t row) {
  return (const uint8_t *)w->data + row_bytes(w) * stored_row(w, row);
}

int64_t weight_row_stride(const struct weight *w) {
  return row_bytes(w) * (w->row_step ? w->row_step : 1);
}

const uint8_t *weight_scales_adjacent(const struct weight *w, int32_t row) {
  bool as_stored = weight_scaled(w) && !w->scale_transposed && w->scale_rows <= 1 && w->row_step <= 1 && w->global == 0;
  if (!as_stored) return NULL;
  return (const uint8_t *)w->scale + stored_row(w, row) * weight_groups(w) * (dtype_bits(w->scale_dtype) / 8);
}

/* ---- scales and zeros ---- */

static uint32_t read_word(const struct weight_fields *f, int64_t at) {
  uint32_t word;
  memcpy(&word, (const uint8_t *)f->words + 4 * at, sizeof word);
  return word;
}

uint32_t weight_field(const struct weight_fields *f, int64_t line, int64_t index) {
  static const uint8_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  uint32_t mask = (1u << f->bits) - 1;
  if (f->awq_order) index = (index & ~(int64_t)7) + awq_place[index & 7];
  int64_t at = line * f->line;
  if (f->padded) {
    int32_t per_word = 32 / f->bits;
    return read_word(f, at + index / per_word * f->step) >> (index % per_word * f->bits) & mask;
  }
  int64_t bit = index * f->bits;
  int shift = (int)(bit & 31);
  uint32_t value = read_word(f, at + bit / 32 * f->step) >> shift;
  if (shift + f->bits > 32) value |= read_word(f, at + (bit / 32 + 1) * f->step) << (32 - shift);
  return value & mask;
}

/* What a code must have subtracted when no zero point is stored. */
static int32_t middle(const struct weight *w) {
  if (w->format == WEIGHT_INT4) return 8;
  return w->format == WEIGHT_PACKED ? 1 << (w->codes.bits - 1) : 0;
}

static void row_zeros(const struct weight *w, int64_t stored, int32_t n_groups, float *zero) {
  uint32_t mask = (1u << w->zeros.bits) - 1;
  const int8_t *bytes = (const int8_t *)w->zero;
  switch (w->zero_kind) {
  case WEIGHT_ZERO_FIELDS:
    for (int32_t g = 0; g < n_groups; g++)
      zero[g] = (float)((weight_field(&w->zeros, g, stored) + (uint32_t)w->zero_add) & mask);
    break;
  case WEIGHT_ZERO_I8:
    for (int32_t g = 0; g < n_groups; g++)
      zero[g] = (float)(middle(w) + bytes[stored / scale_rows(w) * n_groups + g]);
    break;
  case WEIGHT_ZERO_NONE:
    for (int32_t g = 0; g < n_groups; g++) zero[g] = (float)middle(w);
    break;
  }
}

void weight_row_scales(const struct weight *w, int32_t row, float *scale, float *zero) {
  int32_t n_groups = weight_groups(w);
  int64_t stored = stored_row(w, row);
  size_t bytes = (size_t)dtype_bits(w->scale_dtype) / 8;
  if (w->scale_transposed) {
    for (int32_t g = 0; g < n_groups; g++) {
      size_t at = (size_t)(g * weight_stored(w) + stored);
      dtype_to_f32(scale + g, (const uint8_t *)w->scale + at * bytes, w->scale_dtype, 1);
    }
  } else {
    int64_t line = w->scale_rows > 1 ? stored / w->scale_rows : stored; /* short rows feel a division */
    dtype_to_f32(scale, (const uint8_t *)w->scale + (size_t)(line * n_groups) * bytes, w->scale_dtype, (size_t)n_groups);
  }
  for (int32_t g = 0; w->global != 0 && g < n_groups; g++)
    scale[g] = w->global_divides ? scale[g] / w->global : scale[g] * w->global;
  if (zero) row_zeros(w, stored, n_groups, zero);
}

/* ---- codes ---- */

static void packed_codes(const struct weight *w, int64_t stored, float *out) {
  const struct weight_fields *f = &w->codes;
  if (w->codes_along_out) {
    for (int32_t k = 0; k < w->n_in; k++) out[k] = (float)weight_field(f, k, stored);
    return;
  }
  int32_t per_word = 32 / f->bits;
  uint32_t mask = (1u << f->bits) - 1;
  bool split = !f->padded && 32 % f->bits != 0;
  int32_t whole = split ? 0 : w->n_in / per_word * per_word;
  int64_t at = stored * f->line;
  for (int32_t k = 0; k < whole; k += per_word, at += f->step) {
    uint32_t word = read_word(f, at);
    for (int32_t i = 0; i < per_word; i++) out[k + i] = (float)(word >> (i * f->bits) & mask);
  }
  for (int32_t k = whole; k < w->n_in; k++) out[k] = (float)weight_field(f, stored, k);
}

/* Element at byte or nibble `at` of formats that take at most a byte. */
static float small_element(const struct weight *w, uint64_t at) {
  const uint8_t *bytes = w->data;
  switch (w->format) {
  case WEIGHT_INT4:
    return (float)(bytes[at / 2] >> (4 * (at & 1)) & 15);
  case WEIGHT_F4:
    return weight_f4_values[bytes[at / 2] >> (4 * (at & 1)) & 15];
  case WEIGHT_INT8:
    return (float)(int8_t)bytes[at];
  case WEIGHT_F8_E4M3:
    return dtype_f8_e4m3_to_f32(bytes[at]);
  default:
    return dtype_f8_e5m2_to_f32(bytes[at]);
  }
}

static void row_codes(const struct weight *w, int64_t stored, float *out) {
  static const enum dtype dtypes[] = {[WEIGHT_F32] = DTYPE_F32, [WEIGHT_BF16] = DTYPE_BF16, [WEIGHT_F16] = DTYPE_F16};
  uint64_t first = w->transposed ? (uint64_t)stored : (uint64_t)stored * (uint64_t)w->n_in,
           step = w->transposed ? (uint64_t)weight_stored(w) : 1;
  if (w->format == WEIGHT_PACKED) {
    packed_codes(w, stored, out);
  } else if (weight_scaled(w)) {
    for (int32_t k = 0; k < w->n_in; k++) out[k] = small_element(w, first + (uint64_t)k * step);
  } else {
    size_t bytes = (size_t)formats[w->format].bits / 8;
    const uint8_t *at = (const uint8_t *)w->data + first * bytes;
    if (step == 1)
      dtype_to_f32(out, at, dtypes[w->format], (size_t)w->n_in);
    else
      for (int32_t k = 0; k < w->n_in; k++, at += step * bytes) dtype_to_f32(out + k, at, dtypes[w->format], 1);
  }
}

void weight_row_to_f32(const struct weight *w, int32_t row, float *out) {
  float scale[WEIGHT_GROUPS_MAX], zero[WEIGHT_GROUPS_MAX];
  ASSERT(weight_present(w) && row >= 0 && row < w->n_out);
  row_codes(w, stored_row(w, row), out);
  if (!weight_scaled(w)) return;
  int32_t n_groups = weight_groups(w);
  ASSERT(n_groups <= WEIGHT_GROUPS_MAX);
  bool integer = w->format == WEIGHT_INT4 || w->format == WEIGHT_INT8 || w->format == WEIGHT_PACKED;
  weight_row_scales(w, row, scale, integer ? zero : NULL);
  if (w->group_index) {
    for (int32_t k = 0; k < w->n_in; k++) {
      int32_t g;
      memcpy(&g, (const uint8_t *)w->group_index + 4 * (size_t)k, sizeof g);
      out[k] = (out[k] - (integer ? zero[g] : 0.0f)) * scale[g];
    }
    return;
  }
  for (int32_t g = 0; g < n_groups; g++) {
    int32_t end = (g + 1) * w->group < w->n_in ? (g + 1) * w->group : w->n_in;
    /* x - 0 is x for every float, -0 included: one loop serves integers and floats. */
    float z = integer ? zero[g] : 0.0f;
    for (int32_t k = g * w->group; k < end; k++) out[k] = (out[k] - z) * scale[g];
  }
}
