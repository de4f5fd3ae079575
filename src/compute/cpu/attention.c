/* attention.c - paged attention and writing KV entries. Threads take (row, head) pairs. */
#include "compute/cpu/cpu.h"

#include <string.h>

void cpu_kv_write(struct compute *c, const struct kv_write_params *p, int32_t n) {
  (void)c;
  for (int32_t i = 0; i < n; i++) {
    int32_t page = p->page_table[p->table_begin[i] + p->slots[i] / p->page_tokens];
    float *entry = p->pool + ((int64_t)page * p->page_tokens + p->slots[i] % p->page_tokens) * p->entry_floats;
    memcpy(entry, p->entries + (int64_t)i * p->entry_floats, sizeof(float) * (size_t)p->entry_floats);
  }
}

void cpu_attention(struct compute *compute, const struct attention_params *p, int32_t n) {
  struct cpu_compute *c = cpu_of(compute);
  ASSERT(p->value_dim <= KERNEL_VALUE_DIM_MAX && p->n_heads % p->n_kv_heads == 0);
  double keys = 0;
  for (int32_t i = 0; i < n; i++)
    keys += p->n_prefix[i] + (p->extra_begin ? p->extra_begin[i + 1] - p->extra_begin[i] : 0);
  int team = cpu_team(c, keys * p->n_heads * (p->key_dim + p->value_dim));
  if (team == 1) {
    for (int32_t i = 0; i < n; i++) {
      for (int32_t head = 0; head < p->n_heads; head++) c->kernels->attend(p, i, head);
    }
    return;
  }
#pragma omp parallel for num_threads(team) schedule(dynamic, 4)
  for (int32_t task = 0; task < n * p->n_heads; task++) c->kernels->attend(p, task / p->n_heads, task % p->n_heads);
}
