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

/* ---- reading sixteen weights of one row ---- */

enum reader { READ_F32, READ_BF16, READ_F16, READ_INT4, READ_INT4_ZERO, READ_F4, READ_INT8, READ_F8, READ_SLOWLY };

struct weight_row {
  const uint8_t *data;
  const float *scale, *zero; /* one per group; plain weights have none, INT4 and the floats no zero */
};

/* The vector readers take sixteen neighbours that share a scale. */
static enum reader reader_of(const struct weight *w) {
  static const enum reader readers[WEIGHT_FORMAT_COUNT] = {
      [WEIGHT_NONE] = READ_SLOWLY, [WEIGHT_F32] = READ_F32,       [WEIGHT_BF16] = READ_BF16,
      [WEIGHT_F16] = READ_F16,     [WEIGHT_INT4] = READ_INT4,     [WEIGHT_INT8] = READ_INT8,
      [WEIGHT_F4] = READ_F4,       [WEIGHT_PACKED] = READ_SLOWLY, [WEIGHT_F8_E4M3] = READ_F8,
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

/* What one group of one row needs: every product code * scale where codes are nibbles, the scale elsewhere. */
static inline ALWAYS_INLINE v16 read_group(enum reader reader, const struct weight_row *row, int32_t g) {
  switch (reader) {
  case READ_INT4:
    return v_mul(v_codes(-8.0f), v_set(row->scale[g]));
  case READ_INT4_ZERO:
    return v_mul(v_sub(v_codes(0.0f), v_set(row->zero[g])), v_set(row->scale[g]));
  case READ_F4:
    return v_mul(v_load(weight_f4_values), v_set(row->scale[g]));
  case READ_INT8:
  case READ_F8:
    return v_set(row->scale[g]);
  default:
    return v_zero();
  }
}

static inline ALWAYS_INLINE v16 read16(enum reader reader, const struct weight_row *row, v16 group, int32_t g,
                                       int32_t k) {
  switch (reader) {
  case READ_F32:
    return v_load((const float *)(const void *)(row->data + 4 * (size_t)k));
  case READ_BF16:
    return v_bf16(row->data + 2 * (size_t)k);
  case READ_F16:
    return v_f16(row->data + 2 * (size_t)k);
  case READ_INT8:
    return v_mul(v_sub(v_i8(row->data + k), v_set(row->zero[g])), group);
  case READ_F8:
    return v_mul(v_f8(row->data + k), group);
  default:
    return v_nibble(row->data + (size_t)k / 2, group);
  }
}

static inline ALWAYS_INLINE void unpack_reader(float *out, const struct weight_row *row, const struct weight *w,
                                               enum reader reader) {
  int32_t step = reader_scales(reader) ? w->group : w->n_in;
  for (int32_t first = 0, g = 0; first < w->n_in; first += step, g++) {
    v16 group = read_group(reader, row, g);
    int32_t end = first + step < w->n_in ? first + step : w->n_in;
    for (int32_t k = first; k < end; k += 16) v_store(out + k, read16(reader, row, group, g, k));
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
  const struct weight_row row = {.data = weight_row_data(w, o), .scale = scale, .zero = zero};
  if (reader_scales(reader)) weight_row_scales(w, o, scale, reader_has_zeros(reader) ? zero : NULL);
  switch (reader) {
  case READ_F32:
    unpack_reader(out, &row, w, READ_F32);
    break;
  case READ_BF16:
    unpack_reader(out, &row, w, READ_BF16);
    break;
  case READ_F16:
    unpack_reader(out, &row, w, READ_F16);
    break;
  case READ_INT4:
    unpack_reader(out, &row, w, READ_INT4);
    break;
  case READ_INT4_ZERO:
    unpack_reader(out, &row, w, READ_INT4_ZERO);
    break;
  case READ_F4:
    unpack_reader(out, &row, w, READ_F4);
    break;
  case READ_INT8:
    unpack_reader(out, &row, w, READ_INT8);
    break;
  default:
    unpack_reader(out, &row, w, READ_F8);
    break;
  }
}

/* ---- dot products: KERNEL_OUTPUTS weight rows times up to KERNEL_ROWS activation rows ---- */

struct dot_block {
  enum reader reader;
  int32_t n_in, group, n_groups;          /* group: n_in for formats without scales */
  int64_t row_stride;                     /* bytes */
  struct weight_row rows[KERNEL_OUTPUTS]; /* past n_outputs the last one again: computed and dropped */
  int32_t n_outputs;
  const float *const *x;
  float *const *out;
  int32_t out_first;
  float rest[KERNEL_OUTPUTS][16]; /* weights past the last multiple of sixteen inputs, then zeros */
};

static inline ALWAYS_INLINE void dot_rows(const struct dot_block *b, enum reader reader, int n_rows) {
  v16 acc[KERNEL_ROWS][KERNEL_OUTPUTS];
  for (int r = 0; r < n_rows; r++) {
    for (int o = 0; o < KERNEL_OUTPUTS; o++) acc[r][o] = v_zero();
  }
  int32_t n_whole = b->n_in & ~15, step = reader_scales(reader) ? b->group : n_whole;
  for (int32_t first = 0, g = 0; first < n_whole; first += step, g++) {
    v16 group[KERNEL_OUTPUTS];
    for (int o = 0; o < KERNEL_OUTPUTS; o++) group[o] = read_group(reader, &b->rows[o], g);
    int32_t end = first + step;
    if (reader == READ_F8 && end > n_whole) end = n_whole; /* only blocks are cut off at the edge */
    for (int32_t k = first; k < end; k += 16) {
      v16 w[KERNEL_OUTPUTS];
      for (int o = 0; o < KERNEL_OUTPUTS; o++) w[o] = read16(reader, &b->rows[o], group[o], g, k);
      for (int r = 0; r < n_rows; r++) {
        v16 x = v_load(b->x[r] + k);
        for (int o = 0; o < KERNEL_OUTPUTS; o++) acc[r][o] = v_fma(w[o], x, acc[r][o]);
      }
    }
  }
  for (int r = 0; r < n_rows; r++) {
    if (n_whole < b->n_in) {
      v16 x = v_load_part(b->x[r] + n_whole, b->n_in - n_whole, 0.0f);
      for (int o = 0; o < KERNEL_OUTPUTS; o++) acc[r][o] = v_fma(v_load(b->rest[o]), x, acc[r][o]);
    }
    float sums[KERNEL_OUTPUTS];
    v_sum4(sums, acc[r]);
    if (b->n_outputs == KERNEL_OUTPUTS)
      memcpy(b->out[r] + b->out_first, sums, sizeof sums);
    else
      memcpy(b->out[r] + b->out_first, sums, sizeof(float) * (size_t)b->n_outputs);
  }
}

/* The constants make the loops above unroll into registers. */
static inline ALWAYS_INLINE void dot_reader(const struct dot_block *b, enum reader reader, int n_rows) {
  switch (n_rows) {
  case 1:
    dot_rows(b, reader, 1);
    break;
#if KERNEL_ROWS == 6
  case 2:
    dot_rows(b, reader, 2);
    break;
  case 3:
    dot_rows(b, reader, 3);
    break;
  case 4:
    dot_rows(b, reader, 4);
    break;
  case 5:
    dot_rows(b, reader, 5);
    break;
  default:
    dot_rows(b, reader, 6);
    break;
#endif
  }
}

static void dot_some(const struct dot_block *b, int n_rows) {
  switch (b->reader) {
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

/* Points the block at weight rows [o, o + n_outputs) as stored, their scales and zeros turned to F32 in the tile. Short
 * rows (an expert's) feel every call that is made for each of them. */
static void aim_stored(struct dot_block *b, const struct rows_dot_params *p, int32_t o) {
  bool zeros = reader_has_zeros(b->reader);
  int32_t n_groups = b->n_groups, stride = zeros ? 2 * n_groups : n_groups;
  const uint8_t *data = weight_row_data(p->w, o);
  const uint8_t *scales = zeros || n_groups == 0 ? NULL : weight_scales_adjacent(p->w, o);
  if (scales) dtype_to_f32(p->tile, scales, p->w->scale_dtype, (size_t)n_groups * (size_t)b->n_outputs);
  for (int32_t i = 0; i < b->n_outputs; i++) {
    float *scale = p->tile + (size_t)i * (size_t)stride, *zero = scale + n_groups;
    if (n_groups > 0 && !scales) weight_row_scales(p->w, o + i, scale, zeros ? zero : NULL);
    b->rows[i] = (struct weight_row){.data = data + i * b->row_stride, .scale = scale, .zero = zero};
  }
}

/* The same, unpacked into the tile. */
static void aim_unpacked(struct dot_block *b, const struct rows_dot_params *p, int32_t o) {
  int32_t whole = b->n_in & ~15;
  for (int32_t i = 0; i < b->n_outputs; i++) {
    float *tile = p->tile + (size_t)i * (size_t)b->n_in;
    unpack_row(p->w, o + i, tile);
    b->rows[i] = (struct weight_row){.data = (const uint8_t *)tile};
    if (whole < b->n_in) memcpy(b->rest[i], tile + whole, sizeof(float) * (size_t)(b->n_in - whole));
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
  bool unpack = reader == READ_SLOWLY || (reader != READ_F32 && KERNEL_ROWS == 1 && p->n > 2);
  struct dot_block b = {.reader = unpack ? READ_F32 : reader,
                        .n_in = w->n_in,
                        .group = weight_scaled(w) ? w->group : w->n_in,
                        .n_groups = weight_groups(w),
                        .row_stride = weight_row_stride(w)};
  for (int32_t o = p->begin; o < p->end; o += KERNEL_OUTPUTS) {
    b.n_outputs = p->end - o < KERNEL_OUTPUTS ? p->end - o : KERNEL_OUTPUTS;
    b.out_first = o;
    if (unpack)
      aim_unpacked(&b, p, o);
    else
      aim_stored(&b, p, o);
    for (int32_t i = b.n_outputs; i < KERNEL_OUTPUTS; i++) b.rows[i] = b.rows[b.n_outputs - 1];
    for (int32_t r = 0; r < p->n; r += KERNEL_ROWS) {
      b.x = p->x + r;
      b.out = p->out + r;
      dot_some(&b, p->n - r < KERNEL_ROWS ? p->n - r : KERNEL_ROWS);
    }
  }
}

/* out += x_i * row; every sum over i keeps the order of i. */
static void add_row(float *out, const float *row, float x, int32_t n) {
  v16 xi = v_set(x);
  int32_t j = 0;
  for (; j + 16 <= n; j += 16) v_store(out + j, v_fma(xi, v_load(row + j), v_load(out + j)));
  if (j < n) {
    float sums[16];
    v_store(sums, v_fma(xi, v_load_part(row + j, n - j, 0.0f), v_load_part(out + j, n - j, 0.0f)));
    memcpy(out + j, sums, sizeof(float) * (size_t)(n - j));
  }
}

/* add_row for n_rows rows; four share a pass over out, bit for bit what one at a time gives. */
static void add_rows(float *out, const float *const *rows, const float *x, int32_t n_rows, int32_t n) {
  int32_t i = 0;
  for (; i + 4 <= n_rows; i += 4) {
    const float *const *row = rows + i;
    v16 x0 = v_set(x[i]), x1 = v_set(x[i + 1]), x2 = v_set(x[i + 2]), x3 = v_set(x[i + 3]);
    int32_t whole = n & ~15;
    for (int32_t j = 0; j < whole; j += 16) {
      v16 sum = v_fma(x1, v_load(row[1] + j), v_fma(x0, v_load(row[0] + j), v_load(out + j)));
      v_store(out + j, v_fma(x3, v_load(row[3] + j), v_fma(x2, v_load(row[2] + j), sum)));
    }
    for (int32_t k = 0; k < 4 && whole < n; k++) add_row(out + whole, row[k] + whole, x[i + k], n - whole);
  }
  for (; i < n_rows; i++) add_row(out, rows[i], x[i], n);
}

static void transposed(float *const *out, const float *const *x, const struct weight *w, int32_t n, float *tile) {
  const float *rows[KERNEL_OUTPUTS];
  for (int32_t r = 0; r < n; r++) memset(out[r], 0, sizeof(float) * (size_t)w->n_in);
  for (int32_t i = 0; i < w->n_out; i += KERNEL_OUTPUTS) {
    int32_t n_rows = w->n_out - i < KERNEL_OUTPUTS ? w->n_out - i : KERNEL_OUTPUTS;
    for (int32_t k = 0; k < n_rows; k++) {
      unpack_row(w, i + k, tile + (size_t)k * (size_t)w->n_in);
      rows[k] = tile + (size_t)k * (size_t)w->n_in;
    }
    for (int32_t r = 0; r < n; r++) add_rows(out[r], rows, x[r] + i, n_rows, w->n_in);
  }
}

static float dot(const float *a, const float *b, int32_t n) {
  v16 sum = v_zero();
  int32_t k = 0;
  for (; k + 16 <= n; k += 16) sum = v_fma(v_load(a + k), v_load(b + k), sum);
  if (k < n) sum = v_fma(v_load_part(a + k, n - k, 0.0f), v_load_part(b + k, n - k, 0.0f), sum);
  return v_sum(sum);
}

/* dot with four vectors at once, bit for bit the same. */
static void dot4(float *out, const float *a, const float *const *b, int32_t n) {
  v16 sum[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
  int32_t k = 0;
  for (; k + 16 <= n; k += 16) {
    v16 x = v_load(a + k);
    for (int i = 0; i < 4; i++) sum[i] = v_fma(x, v_load(b[i] + k), sum[i]);
  }
  for (int i = 0; i < 4 && k < n; i++) {
    sum[i] = v_fma(v_load_part(a + k, n - k, 0.0f), v_load_part(b[i] + k, n - k, 0.0f), sum[i]);
  }
  v_sum4(out, sum);
}

/* ---- attention: keys in blocks of KEYS with a running maximum; the blocks are those of the row's own key list ---- */

#define KEYS 64 /* a multiple of sixteen */

struct running {
  float max, sum;
  float value[KERNEL_VALUE_DIM_MAX];
};

/* n keys and values of one head; past n the last key again up to a multiple of four, computed and dropped. */
struct key_block {
  const float *key[KEYS], *value[KEYS];
  int32_t n;
};

static void gather_keys(struct key_block *block, const struct attention_params *p, const int32_t at[2],
                        const int32_t row_head[2]) {
  int32_t row = row_head[0], kv_head = row_head[1] / (p->n_heads / p->n_kv_heads), n_prefix = p->n_prefix[row];
  int32_t extra = p->extra_begin ? p->extra_begin[row] : 0;
  block->n = at[1] - at[0];
  for (int32_t i = 0; i < block->n; i++) {
    int32_t slot = at[0] + i < n_prefix ? at[0] + i : p->extra_slots[extra + at[0] + i - n_prefix];
    int32_t page = p->page_table[p->table_begin[row] + slot / p->page_tokens];
    const float *entry = p->pool + ((int64_t)page * p->page_tokens + slot % p->page_tokens) * p->entry_floats;
    block->key[i] = entry + kv_head * p->key_head;
    block->value[i] = entry + p->value_offset + kv_head * p->value_head;
  }
  for (int32_t i = block->n; i % 4 != 0; i++) block->key[i] = block->key[block->n - 1];
}

static void attend_block(struct running *state, const struct attention_params *p, const float *q,
                         const struct key_block *block) {
  float scores[KEYS];
  for (int32_t i = 0; i < block->n; i += 4) dot4(scores + i, q, block->key + i, p->key_dim);
  float max = state->max;
  for (int32_t i = 0; i < block->n; i++) scores[i] *= p->scale;
  for (int32_t i = 0; i < block->n && p->softcap > 0; i++) scores[i] = p->softcap * tanhf(scores[i] / p->softcap);
  for (int32_t i = 0; i < block->n; i++) max = scores[i] > max ? scores[i] : max;
  if (state->sum > 0 && max > state->max) {
    float shrink = expf(state->max - max);
    for (int32_t k = 0; k < p->value_dim; k++) state->value[k] *= shrink;
    state->sum *= shrink;
  }
  state->max = max;
  v16 sum = v_zero();
  for (int32_t i = 0; i < block->n; i += 16) {
    v_store(
        scores + i,
        v_exp(v_sub(block->n - i < 16 ? v_load_part(scores + i, block->n - i, 0.0f) : v_load(scores + i), v_set(max))));
    for (int32_t k = block->n; k < i + 16; k++) scores[k] = 0;
    sum = v_add(sum, v_load(scores + i));
  }
  state->sum += v_sum(sum);
  add_rows(state->value, block->value, scores, block->n, p->value_dim);
}

/* 1 / (sum + exp(sink - max)), with the larger of sink and max taken out of both exponentials. */
static float share_beside_sink(const struct running *state, float sink) {
  float max = sink > state->max ? sink : state->max, shrink = expf(state->max - max);
  return shrink / (state->sum * shrink + expf(sink - max));
}

static void attend(const struct attention_params *p, int32_t row, int32_t head) {
  struct running state = {.max = -INFINITY, .sum = 0};
  memset(state.value, 0, sizeof(float) * (size_t)p->value_dim);
  const float *q = p->q + ((int64_t)row * p->n_heads + head) * p->key_dim;
  int32_t n_prefix = p->n_prefix[row], n_extra = p->extra_begin ? p->extra_begin[row + 1] - p->extra_begin[row] : 0;
  int32_t n = n_prefix + n_extra, first = p->window > 0 && n > p->window ? n - p->window : 0;
  if (p->chunk > 0 && first < (n - 1) / p->chunk * p->chunk) first = (n - 1) / p->chunk * p->chunk;
  for (int32_t k = first; k < n; k += KEYS) {
    struct key_block block;
    gather_keys(&block, p, (const int32_t[]){k, n - k < KEYS ? n : k + KEYS}, (const int32_t[]){row, head});
    attend_block(&state, p, q, &block);
  }
  float *out = p->out + ((int64_t)row * p->n_heads + head) * p->value_dim;
  float share = state.sum > 0 ? 1.0f / state.sum : 0.0f;
  if (p->sinks) share = share_beside_sink(&state, p->sinks[head]);
  for (int32_t k = 0; k < p->value_dim; k++) out[k] = state.value[k] * share;
}

/* ---- row functions ---- */

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

/* NaN never wins; ties go to the lowest index. */
static int32_t argmax(const float *x, int32_t n) {
  v16 most = v_set(-INFINITY);
  int32_t k = 0;
  for (; k + 16 <= n; k += 16) most = v_max(v_load(x + k), most);
  if (k < n) most = v_max(v_load_part(x + k, n - k, -INFINITY), most);
  float max = v_max_all(most);
  for (k = 0; k < n; k++) {
    if (x[k] == max) return k;
  }
  return 0;
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
                                      .argmax = argmax,
                                      .dot = dot,
                                      .add_row = add_row};
