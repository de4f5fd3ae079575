/* select.c - the keys that sparse attention reads: every key of a row's context is scored, the best are kept in context order. A
 * thread scores whole rows in its own scratch, so a row's choice depends on nothing but the row. */
#include "compute/cpu/cpu.h"

#include <string.h>

/* Values x[0..n) are reordered; returns the k-th largest (k from 1). Hoare's selection with the middle of three as pivot. */
static float kth_largest(float *x, int32_t n, int32_t k) {
  int32_t low = 0, high = n - 1, want = k - 1;
  while (low < high) {
    float a = x[low], b = x[low + (high - low) / 2], c = x[high];
    float pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
    int32_t i = low, j = high;
    while (i <= j) {
      while (x[i] > pivot) i++;
      while (x[j] < pivot) j--;
      if (i > j) break;
      float swap = x[i];
      x[i++] = x[j];
      x[j--] = swap;
    }
    if (want <= j)
      high = j;
    else if (want >= i)
      low = i;
    else
      return x[want];
  }
  return x[want];
}

static int32_t context_slot(const struct select_keys_params *p, int32_t row, int32_t at) {
  return at < p->n_prefix[row] ? at : p->extra_slots[p->extra_begin[row] + at - p->n_prefix[row]];
}

static int32_t context_length(const struct select_keys_params *p, int32_t row) {
  return p->n_prefix[row] + (p->extra_begin ? p->extra_begin[row + 1] - p->extra_begin[row] : 0);
}

/* sum_h share_h relu(q_h . key); scales that are the same for every key change no order. */
static float score(const struct cpu_compute *c, const struct select_keys_params *p, int32_t row, int32_t slot) {
  int32_t page = p->page_table[p->table_begin[row] + slot / p->page_tokens];
  const float *key = p->pool + ((int64_t)page * p->page_tokens + slot % p->page_tokens) * p->entry_floats + p->key_offset;
  const float *q = p->q + (int64_t)row * p->n_heads * p->dim, *share = p->share + (int64_t)row * p->n_heads;
  float sum = 0;
  for (int32_t h = 0; h < p->n_heads; h++) {
    float s = c->kernels->dot(q + h * p->dim, key, p->dim);
    if (s > 0) sum += share[h] * s;
  }
  return sum;
}

static void select_row(struct cpu_compute *c, const struct select_keys_params *p, int32_t row, float *scratch) {
  int32_t n = context_length(p, row), *slots = p->slots + p->begin[row];
  if (n <= p->n_kept) {
    for (int32_t i = 0; i < n; i++) slots[i] = context_slot(p, row, i);
    return;
  }
  float *scores = scratch, *sorted = scratch + n;
  for (int32_t i = 0; i < n; i++) scores[i] = score(c, p, row, context_slot(p, row, i));
  memcpy(sorted, scores, sizeof(float) * (size_t)n);
  float least = kth_largest(sorted, n, p->n_kept);
  int32_t n_above = 0, kept = 0;
  for (int32_t i = 0; i < n; i++) n_above += scores[i] > least;
  int32_t ties = p->n_kept - n_above; /* of the keys that score exactly the least, the first ones */
  for (int32_t i = 0; i < n; i++) {
    bool tie = scores[i] == least && ties > 0;
    if (scores[i] > least || tie) slots[kept++] = context_slot(p, row, i);
    ties -= tie;
  }
  for (int32_t i = 0; kept < p->n_kept; i++) slots[kept++] = context_slot(p, row, n - 1 - i); /* scores that are no numbers */
}

struct select_args {
  struct cpu_compute *c;
  const struct select_keys_params *p;
};

static void select_rows(const void *args, int64_t begin, int64_t end, int thread) {
  const struct select_args *a = args;
  for (int64_t row = begin; row < end; row++) select_row(a->c, a->p, (int32_t)row, cpu_tile(a->c, thread));
}

void cpu_select_keys(struct compute *compute, const struct select_keys_params *p, int32_t n) {
  double work = 1;
  p->begin[0] = 0;
  for (int32_t row = 0; row < n; row++) {
    int32_t length = context_length(p, row);
    ASSERT(2 * (int64_t)length <= (int64_t)KERNEL_OUTPUTS * KERNEL_IN_MAX);
    p->begin[row + 1] = p->begin[row] + (length < p->n_kept ? length : p->n_kept);
    p->none[row] = 0;
    if (length > p->n_kept) work += (double)length * p->n_heads * p->dim;
  }
  const struct select_args a = {.c = cpu_of(compute), .p = p};
  const struct team_job job = {.body = select_rows, .args = &a, .n = n, .n_parts = cpu_parts(a.c, work)};
  team_run(a.c->team, &job);
}
