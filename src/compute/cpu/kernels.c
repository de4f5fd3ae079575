/* kernels.c - see kernels.h; compiled once per instruction set with KERNELS_AVX512, KERNELS_AVX2 or neither.
 *
 * The order of additions of one dot product is: sixteen lanes, lane l takes inputs l, l+16, ..., one fused multiply-add each; then the tree
 * of v_sum. How many rows and outputs share a pass over W changes only which registers hold the accumulators.
 */
#include "compute/cpu/kernels.h"

#include "compute/cpu/vector.h"

#include <math.h>

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

/* ---- reading sixteen weights ---- */

struct weight_row {
  const uint8_t *data;
  const uint8_t *scale;
};

static inline float read_scale(const uint8_t *scale, enum dtype dtype, int32_t index) {
  if (dtype == DTYPE_BF16) {
    uint16_t u;
    memcpy(&u, scale + 2 * (size_t)index, sizeof u);
    return dtype_bf16_to_f32(u);
  }
  float f;
  if (dtype == DTYPE_F32) memcpy(&f, scale + 4 * (size_t)index, sizeof f);
  else {
    uint16_t u;
    memcpy(&u, scale + 2 * (size_t)index, sizeof u);
    f = dtype_f16_to_f32(u);
  }
  return f;
}

static inline __attribute__((always_inline)) v16 read16(const struct weight *w, enum weight_format format, struct weight_row row, int32_t k) {
  switch (format) {
  case WEIGHT_F32: return v_load((const float *)(const void *)(row.data + 4 * (size_t)k));
  case WEIGHT_BF16: return v_bf16(row.data + 2 * (size_t)k);
  case WEIGHT_F16: return v_f16(row.data + 2 * (size_t)k);
  default: return v_int4(row.data + (size_t)k / 2, v_set(read_scale(row.scale, w->scale_dtype, k / w->group)));
  }
}

static struct weight_row row_of(const struct weight *w, int32_t o) {
  const struct weight one = weight_rows(w, o, 1);
  return (struct weight_row){.data = one.data, .scale = one.scale};
}

/* ---- dot products: n_o weight rows times n_r activation rows; n_in a multiple of 16 up to `n_whole`, the rest in `rest` ---- */

static inline __attribute__((always_inline)) void dot_block(const struct weight *w, enum weight_format format, const struct weight_row *rows,
                                                            const float *const *x, v16 acc[KERNEL_OUTPUTS][KERNEL_ROWS], int n_o, int n_r) {
  for (int o = 0; o < n_o; o++) {
    for (int r = 0; r < n_r; r++) acc[o][r] = v_zero();
  }
  for (int32_t k = 0; k + 16 <= w->n_in; k += 16) {
    v16 wk[KERNEL_OUTPUTS];
    for (int o = 0; o < n_o; o++) wk[o] = read16(w, format, rows[o], k);
    for (int r = 0; r < n_r; r++) {
      v16 xk = v_load(x[r] + k);
      for (int o = 0; o < n_o; o++) acc[o][r] = v_fma(wk[o], xk, acc[o][r]);
    }
  }
}

/* Inputs past the last multiple of sixteen, as one more step with zero lanes. */
static void dot_rest(const struct weight *w, const float *const *x, v16 acc[KERNEL_OUTPUTS][KERNEL_ROWS], int32_t o_first, const int n[2]) {
  int32_t k = w->n_in & ~15, n_rest = w->n_in - k;
  for (int o = 0; o < n[0]; o++) {
    float values[16] = {0};
    const struct weight_row row = row_of(w, o_first + o);
    for (int i = 0; i < n_rest; i++) {
      int32_t at = k + i;
      if (w->format == WEIGHT_INT4) values[i] = (float)(((row.data[at / 2] >> (4 * (at & 1))) & 15) - 8) * read_scale(row.scale, w->scale_dtype, at / w->group);
      else if (w->format == WEIGHT_F32) memcpy(&values[i], row.data + 4 * (size_t)at, 4);
      else values[i] = read_scale(row.data, w->format == WEIGHT_BF16 ? DTYPE_BF16 : DTYPE_F16, at);
    }
    for (int r = 0; r < n[1]; r++) acc[o][r] = v_fma(v_load(values), v_load_part(x[r] + k, n_rest, 0.0f), acc[o][r]);
  }
}

static inline __attribute__((always_inline)) void dot_formats(const struct weight *w, const struct weight_row *rows, const float *const *x,
                                                              v16 acc[KERNEL_OUTPUTS][KERNEL_ROWS], int n_o, int n_r) {
  switch (w->format) {
  case WEIGHT_F32: dot_block(w, WEIGHT_F32, rows, x, acc, n_o, n_r); break;
  case WEIGHT_BF16: dot_block(w, WEIGHT_BF16, rows, x, acc, n_o, n_r); break;
  case WEIGHT_F16: dot_block(w, WEIGHT_F16, rows, x, acc, n_o, n_r); break;
  default: dot_block(w, WEIGHT_INT4, rows, x, acc, n_o, n_r); break;
  }
}

static void dot_some(const struct weight *w, int32_t o_first, const float *const *x, float *const *out, int32_t o_out, const int n[2]) {
  v16 acc[KERNEL_OUTPUTS][KERNEL_ROWS];
  struct weight_row rows[KERNEL_OUTPUTS];
  for (int o = 0; o < n[0]; o++) rows[o] = row_of(w, o_first + o);
  if (n[0] == KERNEL_OUTPUTS) { /* the constants make the loops unroll into registers */
    switch (n[1]) {
    case 1: dot_formats(w, rows, x, acc, KERNEL_OUTPUTS, 1); break;
#if KERNEL_ROWS == 6
    case 2: dot_formats(w, rows, x, acc, KERNEL_OUTPUTS, 2); break;
    case 3: dot_formats(w, rows, x, acc, KERNEL_OUTPUTS, 3); break;
    case 4: dot_formats(w, rows, x, acc, KERNEL_OUTPUTS, 4); break;
    case 5: dot_formats(w, rows, x, acc, KERNEL_OUTPUTS, 5); break;
    default: dot_formats(w, rows, x, acc, KERNEL_OUTPUTS, 6); break;
#endif
    }
  } else dot_formats(w, rows, x, acc, n[0], n[1]);
  if (w->n_in & 15) dot_rest(w, x, acc, o_first, n);
  for (int o = 0; o < n[0]; o++) {
    for (int r = 0; r < n[1]; r++) out[r][o_out + o] = v_sum(acc[o][r]);
  }
}

/* Row o as F32: sixteen at a time where the format's reader can, the exact slow way elsewhere; both give q * scale rounded once. */
static void unpack_row(const struct weight *w, int32_t o, float *out) {
  if (w->n_in % 16 != 0 || (w->format == WEIGHT_INT4 && w->group % 16 != 0)) {
    weight_row_to_f32(w, o, out);
    return;
  }
  const struct weight_row row = row_of(w, o);
  for (int32_t k = 0; k < w->n_in; k += 16) v_store(out + k, read16(w, w->format, row, k));
}

static void rows_dot(const struct weight *w, int32_t begin, int32_t end, const float *const *x, float *const *out, int32_t n, float *tile) {
  /* With many rows the weights are turned to F32 once per block; INT4 groups that split sixteen inputs always are. */
  bool unpack = w->format != WEIGHT_F32 && (n > 2 * KERNEL_ROWS || (w->format == WEIGHT_INT4 && w->group % 16 != 0));
  for (int32_t o = begin; o < end; o += KERNEL_OUTPUTS) {
    int32_t n_o = end - o < KERNEL_OUTPUTS ? end - o : KERNEL_OUTPUTS;
    struct weight flat = {.format = WEIGHT_F32, .n_out = n_o, .n_in = w->n_in, .data = tile};
    for (int32_t i = 0; unpack && i < n_o; i++) unpack_row(w, o + i, tile + (size_t)i * (size_t)w->n_in);
    for (int32_t r = 0; r < n; r += KERNEL_ROWS) {
      const int counts[2] = {(int)n_o, (int)(n - r < KERNEL_ROWS ? n - r : KERNEL_ROWS)};
      dot_some(unpack ? &flat : w, unpack ? 0 : o, x + r, out + r, o, counts);
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

static void transposed(float *const *out, const float *const *x, const struct weight *w, int32_t n, float *tile) {
  for (int32_t r = 0; r < n; r++) memset(out[r], 0, sizeof(float) * (size_t)w->n_in);
  for (int32_t i = 0; i < w->n_out; i++) {
    unpack_row(w, i, tile);
    for (int32_t r = 0; r < n; r++) add_row(out[r], tile, x[r][i], w->n_in);
  }
}

static float dot(const float *a, const float *b, int32_t n) {
  v16 sum = v_zero();
  int32_t k = 0;
  for (; k + 16 <= n; k += 16) sum = v_fma(v_load(a + k), v_load(b + k), sum);
  if (k < n) sum = v_fma(v_load_part(a + k, n - k, 0.0f), v_load_part(b + k, n - k, 0.0f), sum);
  return v_sum(sum);
}

/* ---- attention: keys in blocks of KEYS with a running maximum; the blocks are those of the row's own key list ---- */

#define KEYS 64

struct running {
  float max, sum;
  float value[KERNEL_VALUE_DIM_MAX];
};

static const float *entry_of(const struct attention_params *p, int32_t row, int32_t slot) {
  int32_t page = p->page_table[p->table_begin[row] + slot / p->page_tokens];
  return p->pool + ((int64_t)page * p->page_tokens + slot % p->page_tokens) * p->entry_floats;
}

static void attend_block(struct running *state, const struct attention_params *p, const float *q, const float *const *entries, const int32_t n_keys[2]) {
  int32_t kv_head = n_keys[1] / (p->n_heads / p->n_kv_heads);
  float scores[KEYS];
  for (int i = 0; i < KEYS; i++) scores[i] = -INFINITY;
  for (int i = 0; i < n_keys[0]; i++) scores[i] = p->scale * dot(q, entries[i] + kv_head * p->key_head, p->key_dim);
  float max = state->max;
  for (int i = 0; i < n_keys[0]; i++) max = scores[i] > max ? scores[i] : max;
  float shrink = state->sum > 0 ? expf(state->max - max) : 0.0f;
  for (int32_t k = 0; k < p->value_dim; k++) state->value[k] *= shrink;
  state->sum *= shrink;
  state->max = max;
  for (int i = 0; i < KEYS; i += 16) v_store(scores + i, v_exp(v_sub(v_load(scores + i), v_set(max))));
  for (int i = 0; i < n_keys[0]; i++) {
    state->sum += scores[i];
    add_row(state->value, entries[i] + p->value_offset + kv_head * p->value_head, scores[i], p->value_dim);
  }
}

static void attend(const struct attention_params *p, int32_t row, int32_t head) {
  struct running state = {.max = -INFINITY, .sum = 0};
  memset(state.value, 0, sizeof(float) * (size_t)p->value_dim);
  const float *q = p->q + ((int64_t)row * p->n_heads + head) * p->key_dim;
  int32_t n_prefix = p->n_prefix[row];
  int32_t first = p->window > 0 && n_prefix > p->window ? n_prefix - p->window : 0;
  int32_t extra = p->extra_begin ? p->extra_begin[row] : 0, n_extra = p->extra_begin ? p->extra_begin[row + 1] - extra : 0;
  int32_t n = n_prefix - first + n_extra;
  for (int32_t k = 0; k < n; k += KEYS) {
    const float *entries[KEYS];
    const int32_t n_keys[2] = {n - k < KEYS ? n - k : KEYS, head};
    for (int32_t i = 0; i < n_keys[0]; i++) {
      int32_t at = first + k + i;
      entries[i] = entry_of(p, row, at < n_prefix ? at : p->extra_slots[extra + at - n_prefix]);
    }
    attend_block(&state, p, q, entries, n_keys);
  }
  float *out = p->out + ((int64_t)row * p->n_heads + head) * p->value_dim;
  float share = state.sum > 0 ? 1.0f / state.sum : 0.0f;
  for (int32_t k = 0; k < p->value_dim; k++) out[k] = state.value[k] * share;
}

/* ---- row functions ---- */

static void rms_norm(float *out, const float *x, const float *w, int32_t dim, float eps) {
  float scale = 1.0f / sqrtf(dot(x, x, dim) / (float)dim + eps);
  for (int32_t k = 0; k < dim; k++) out[k] = x[k] * scale * w[k];
}

static inline v16 silu_mul16(v16 gate, v16 up) {
  v16 one = v_set(1.0f);
  return v_mul(v_div(gate, v_add(one, v_exp(v_sub(v_zero(), gate)))), up);
}

static void silu_mul(float *out, const float *gate, const float *up, int64_t n) {
  int64_t k = 0;
  for (; k + 16 <= n; k += 16) v_store(out + k, silu_mul16(v_load(gate + k), v_load(up + k)));
  if (k < n) {
    float values[16];
    v_store(values, silu_mul16(v_load_part(gate + k, (int)(n - k), 0.0f), v_load_part(up + k, (int)(n - k), 0.0f)));
    memcpy(out + k, values, sizeof(float) * (size_t)(n - k));
  }
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

const struct kernels KERNELS_TABLE = {.name = KERNELS_NAME, .rows_dot = rows_dot, .transposed = transposed, .attend = attend, .rms_norm = rms_norm, .silu_mul = silu_mul, .softmax = softmax,
                                      .dot = dot, .add_row = add_row};
