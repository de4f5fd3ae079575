/* attend.h - attention of one row: keys in blocks of KEYS with a running maximum; the blocks are those of the row's own
 * key list. Included by kernels.c only, once per instruction set. Heads that read the same keys share the reading of
 * them, which changes no bit of any. */
#ifndef EAGLET_COMPUTE_CPU_ATTEND_H
#define EAGLET_COMPUTE_CPU_ATTEND_H

#include "compute/cpu/sums.h"

#include <math.h>

#define KEYS 64 /* a multiple of sixteen */

/* n keys and values of one head; past n the last key again up to a multiple of four, computed and dropped. */
struct key_block {
  const float *key[KEYS];
  const uint8_t *value[KEYS];
  int32_t n;
};

/* Heads that share their keys, as far as they have come. */
struct attending {
  int n;
  const float *q[KERNEL_HEADS];
  float *out[KERNEL_HEADS]; /* the sum of values so far */
  float max[KERNEL_HEADS], sum[KERNEL_HEADS];
  float scores[KERNEL_HEADS][KEYS];
};

static void gather_keys(struct key_block *block, const struct attention_params *p, int32_t row, int32_t kv_head,
                        const int32_t at[2]) {
  int32_t n_prefix = p->n_prefix[row], extra = p->extra_begin ? p->extra_begin[row] : 0, in_page = p->page_tokens;
  const int32_t *pages = p->page_table + p->table_begin[row];
  const float *entry = NULL;
  block->n = at[1] - at[0];
  for (int32_t i = 0; i < block->n; i++, in_page++) {
    if (at[0] + i >= n_prefix || in_page == p->page_tokens) {
      int32_t slot = at[0] + i < n_prefix ? at[0] + i : p->extra_slots[extra + at[0] + i - n_prefix];
      in_page = slot % p->page_tokens;
      entry = p->pool + ((int64_t)pages[slot / p->page_tokens] * p->page_tokens + in_page) * p->entry_floats;
    } else {
      entry += p->entry_floats; /* neighbours lie side by side up to the end of their page */
    }
    block->key[i] = entry + kv_head * p->key_head;
    block->value[i] = (const uint8_t *)(entry + p->value_offset + kv_head * p->value_head);
  }
  for (int32_t i = block->n; i % 4 != 0; i++) block->key[i] = block->key[block->n - 1];
}

/* scores[h][i] = q_h . key_i for n heads from `first` on; the additions of `dot`. */
static inline ALWAYS_INLINE void score_heads(struct attending *a, const struct key_block *block, int32_t dim, int first,
                                             int n) {
  for (int32_t i = 0; i < block->n; i += 4) {
    const float *const *key = block->key + i;
    v16 acc[SUM_OUTPUTS][4];
    for (int h = 0; h < n; h++) {
      for (int o = 0; o < 4; o++) acc[h][o] = v_zero();
    }
    int32_t k = 0;
    for (; k + 16 <= dim; k += 16) {
      v16 keys[4];
      for (int o = 0; o < 4; o++) keys[o] = v_load(key[o] + k);
      for (int h = 0; h < n; h++) {
        v16 q = v_load(a->q[first + h] + k);
        for (int o = 0; o < 4; o++) acc[h][o] = v_fma(q, keys[o], acc[h][o]);
      }
    }
    if (k < dim) {
      v16 keys[4];
      for (int o = 0; o < 4; o++) keys[o] = v_load_part(key[o] + k, dim - k, 0.0f);
      for (int h = 0; h < n; h++) {
        v16 q = v_load_part(a->q[first + h] + k, dim - k, 0.0f);
        for (int o = 0; o < 4; o++) acc[h][o] = v_fma(q, keys[o], acc[h][o]);
      }
    }
    for (int h = 0; h < n; h++) v_sum4(a->scores[first + h] + i, acc[h]);
  }
}

static void score_keys(struct attending *a, const struct key_block *block, int32_t dim) {
  int h = 0;
#if SUM_OUTPUTS == 4
  for (; h + 4 <= a->n; h += 4) score_heads(a, block, dim, h, 4);
  for (; h + 2 <= a->n; h += 2) score_heads(a, block, dim, h, 2);
#endif
  for (; h < a->n; h++) score_heads(a, block, dim, h, 1);
}

/* Turns one head's scores into weights against the running maximum, shrinking what was summed under a smaller one. */
static void weigh_scores(struct attending *a, const struct attention_params *p, int h, int32_t n) {
  float *scores = a->scores[h];
  v16 most = v_set(a->max[h]);
  for (int32_t i = 0; i < n; i++) scores[i] *= p->scale;
  for (int32_t i = 0; i < n && p->softcap > 0; i++) scores[i] = p->softcap * tanhf(scores[i] / p->softcap);
  for (int32_t i = 0; i < n; i += 16)
    most = v_max(n - i < 16 ? v_load_part(scores + i, n - i, -INFINITY) : v_load(scores + i), most);
  float max = v_max_all(most);
  if (a->sum[h] > 0 && max > a->max[h]) {
    float shrink = expf(a->max[h] - max);
    for (int32_t k = 0; k < p->value_dim; k++) a->out[h][k] *= shrink;
    a->sum[h] *= shrink;
  }
  a->max[h] = max;
  v16 sum = v_zero();
  for (int32_t i = 0; i < n; i += 16) {
    v16 some = n - i < 16 ? v_load_part(scores + i, n - i, 0.0f) : v_load(scores + i);
    v_store(scores + i, v_exp(v_sub(some, v_set(max))));
    for (int32_t k = n; k < i + 16; k++) scores[k] = 0;
    sum = v_add(sum, v_load(scores + i));
  }
  a->sum[h] += v_sum(sum);
}

/* 1 / (sum + exp(sink - max)), with the larger of sink and max taken out of both exponentials. */
static float share_beside_sink(float sum, float max, float sink) {
  float most = sink > max ? sink : max, shrink = expf(max - most);
  return shrink / (sum * shrink + expf(sink - most));
}

static void attend(const struct attention_params *p, int32_t row, int32_t head, int32_t n_heads) {
  struct attending a = {.n = n_heads};
  const float *weights[KERNEL_HEADS];
  for (int h = 0; h < a.n; h++) {
    int64_t at = (int64_t)row * p->n_heads + head + h;
    a.q[h] = p->q + at * p->key_dim;
    a.out[h] = p->out + at * p->value_dim;
    a.max[h] = -INFINITY;
    weights[h] = a.scores[h];
    memset(a.out[h], 0, sizeof(float) * (size_t)p->value_dim);
  }
  int32_t n_prefix = p->n_prefix[row], n_extra = p->extra_begin ? p->extra_begin[row + 1] - p->extra_begin[row] : 0;
  int32_t n = n_prefix + n_extra, first = p->window > 0 && n > p->window ? n - p->window : 0;
  if (p->chunk > 0 && first < (n - 1) / p->chunk * p->chunk) first = (n - 1) / p->chunk * p->chunk;
  for (int32_t k = first; k < n; k += KEYS) {
    struct key_block block;
    gather_keys(&block, p, row, head / (p->n_heads / p->n_kv_heads), (const int32_t[]){k, n - k < KEYS ? n : k + KEYS});
    score_keys(&a, &block, p->key_dim);
    for (int h = 0; h < a.n; h++) weigh_scores(&a, p, h, block.n);
    const struct sum_params values = {
        .out = a.out, .x = weights, .row = block.value, .n_rows = block.n, .n_floats = p->value_dim};
    sum_f32(&values, a.n);
  }
  for (int h = 0; h < a.n; h++) {
    float share = a.sum[h] > 0 ? 1.0f / a.sum[h] : 0.0f;
    if (p->sinks) share = share_beside_sink(a.sum[h], a.max[h], p->sinks[head + h]);
    for (int32_t k = 0; k < p->value_dim; k++) a.out[h][k] *= share;
  }
}

#endif
