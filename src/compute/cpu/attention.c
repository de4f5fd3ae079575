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
  ASSERT(p->n_heads % p->n_kv_heads == 0);
  double keys = 0;
  for (int32_t i = 0; i < n; i++)
    keys += p->n_prefix[i] + (p->extra_begin ? p->extra_begin[i + 1] - p->extra_begin[i] : 0);
  int32_t group = p->n_heads / p->n_kv_heads, parts = (group + KERNEL_HEADS - 1) / KERNEL_HEADS,
          tasks = p->n_kv_heads * parts;
  int team = cpu_team(c, keys * p->n_heads * (p->key_dim + p->value_dim));
#pragma omp parallel for num_threads(team) schedule(dynamic, 1) if (team > 1)
  for (int32_t task = 0; task < n * tasks; task++) {
    int32_t part = task % tasks % parts, head = task % tasks / parts * group + part * KERNEL_HEADS;
    c->kernels->attend(p, task / tasks, head, part + 1 < parts ? KERNEL_HEADS : group - part * KERNEL_HEADS);
  }
}
