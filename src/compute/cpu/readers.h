/* readers.h - sixteen neighbouring weights of one row as F32, straight from how they are stored. Included by kernels.c
 * only, once per instruction set. A reader gives the bits that weight_row_to_f32 gives; what no reader takes is
 * unpacked by that. */
#ifndef EAGLET_COMPUTE_CPU_READERS_H
#define EAGLET_COMPUTE_CPU_READERS_H

#include "compute/cpu/kernels.h"
#include "compute/cpu/vector.h"

enum reader { READ_F32, READ_BF16, READ_F16, READ_INT4, READ_INT4_ZERO, READ_F4, READ_INT8, READ_F8, READ_SLOWLY };

/* What the weights of one group of one row share. */
struct group {
  v16 factor; /* every product code * scale where codes are nibbles, the scale elsewhere */
  v16 zero;   /* READ_INT8 */
};

/* The vector readers take sixteen neighbours that share a scale. */
static enum reader reader_of(const struct weight *w) {
  static const enum reader readers[WEIGHT_FORMAT_COUNT] = {
      [WEIGHT_NONE] = READ_SLOWLY,   [WEIGHT_F32] = READ_F32,       [WEIGHT_BF16] = READ_BF16,
      [WEIGHT_F16] = READ_F16,       [WEIGHT_INT4] = READ_INT4,     [WEIGHT_INT8] = READ_INT8,
      [WEIGHT_F4] = READ_F4,         [WEIGHT_PACKED] = READ_SLOWLY, [WEIGHT_F8_E4M3] = READ_F8,
      [WEIGHT_F8_E5M2] = READ_SLOWLY};
  if (w->transposed || w->group_index || w->n_in % 16 != 0) return READ_SLOWLY;
  if (weight_scaled(w) && w->group % 16 != 0) return READ_SLOWLY;
  if (weight_scaled(w) && w->format != WEIGHT_F8_E4M3 && w->n_in % w->group != 0) return READ_SLOWLY;
  if (w->format == WEIGHT_INT4 && w->zero_kind != WEIGHT_ZERO_NONE) return READ_INT4_ZERO;
  return readers[w->format];
}

static inline ALWAYS_INLINE bool reader_scales(enum reader reader) {
  return reader > READ_F16;
}
static inline ALWAYS_INLINE bool reader_has_zeros(enum reader reader) {
  return reader == READ_INT4_ZERO || reader == READ_INT8;
}

static inline ALWAYS_INLINE size_t reader_bits(enum reader reader) {
  if (reader == READ_F32) return 32;
  return reader == READ_BF16 || reader == READ_F16 ? 16 : reader == READ_INT8 || reader == READ_F8 ? 8 : 4;
}

static inline ALWAYS_INLINE struct group read_group(enum reader reader, const float *scale, const float *zero) {
  struct group group = {.factor = v_zero(), .zero = v_zero()};
  switch (reader) {
  case READ_INT4:
    group.factor = v_mul(v_codes(-8.0f), v_set(*scale));
    break;
  case READ_INT4_ZERO:
    group.factor = v_mul(v_sub(v_codes(0.0f), v_set(*zero)), v_set(*scale));
    break;
  case READ_F4:
    group.factor = v_mul(v_load(weight_f4_values), v_set(*scale));
    break;
  case READ_INT8:
    group.zero = v_set(*zero);
    group.factor = v_set(*scale);
    break;
  case READ_F8:
    group.factor = v_set(*scale);
    break;
  default:
    break;
  }
  return group;
}

static inline ALWAYS_INLINE v16 read16(enum reader reader, const uint8_t *data, const struct group *group) {
  switch (reader) {
  case READ_F32:
    return v_load((const float *)(const void *)data);
  case READ_BF16:
    return v_bf16(data);
  case READ_F16:
    return v_f16(data);
  case READ_INT8:
    return v_mul(v_sub(v_i8(data), group->zero), group->factor);
  case READ_F8:
    return v_mul(v_f8(data), group->factor);
  default:
    return v_nibble(data, group->factor);
  }
}

/* Readers whose lanes come cheaper in mixed order; activations are mixed alike, sums unmixed before they are reduced. */
static inline ALWAYS_INLINE bool reader_mixes(enum reader reader) {
  return V_MIXED && (reader == READ_INT4 || reader == READ_INT4_ZERO || reader == READ_F4);
}

/* Scales and zeros of the row, one per group; plain weights have none, INT4 and the floats no zero. */
struct row_groups {
  const float *scale, *zero;
};

static inline ALWAYS_INLINE void unpack_reader(float *out, const uint8_t *data, const struct row_groups *groups,
                                               const struct weight *w, enum reader reader) {
  int32_t step = reader_scales(reader) ? w->group : w->n_in;
  for (int32_t first = 0, g = 0; first < w->n_in; first += step, g++) {
    struct group group = read_group(reader, groups->scale + g, groups->zero + g);
    int32_t end = first + step < w->n_in ? first + step : w->n_in;
    for (int32_t k = first; k < end; k += 16)
      v_store(out + k, read16(reader, data + (size_t)k * reader_bits(reader) / 8, &group));
  }
}

/* Row o as F32: sixteen at a time where a reader can, the exact slow way elsewhere; both give the same bits. */
static void unpack_row(const struct weight *w, int32_t o, float *out) {
  enum reader reader = reader_of(w);
  if (reader == READ_SLOWLY) {
    weight_row_to_f32(w, o, out);
    return;
  }
  float scale[WEIGHT_GROUPS_MAX / 2], zero[WEIGHT_GROUPS_MAX / 2]; /* a group has sixteen inputs or more */
  const uint8_t *data = weight_row_data(w, o);
  const struct row_groups groups = {.scale = scale, .zero = zero};
  if (reader_scales(reader)) weight_row_scales(w, o, scale, reader_has_zeros(reader) ? zero : NULL);
  switch (reader) {
  case READ_F32:
    unpack_reader(out, data, &groups, w, READ_F32);
    break;
  case READ_BF16:
    unpack_reader(out, data, &groups, w, READ_BF16);
    break;
  case READ_F16:
    unpack_reader(out, data, &groups, w, READ_F16);
    break;
  case READ_INT4:
    unpack_reader(out, data, &groups, w, READ_INT4);
    break;
  case READ_INT4_ZERO:
    unpack_reader(out, data, &groups, w, READ_INT4_ZERO);
    break;
  case READ_F4:
    unpack_reader(out, data, &groups, w, READ_F4);
    break;
  case READ_INT8:
    unpack_reader(out, data, &groups, w, READ_INT8);
    break;
  default:
    unpack_reader(out, data, &groups, w, READ_F8);
    break;
  }
}

#endif
