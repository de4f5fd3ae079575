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

/* Heads that read the same keys, in units of `width`; a row's units are numbered kv head by kv head. */
struct attention_args {
  const struct kernels *kernels;
  const struct attention_params *p;
  int32_t group, width, n_units;
};

static void attend_units(const void *args, int64_t begin, int64_t end, int thread) {
  const struct attention_args *a = args;
  (void)thread;
  for (int64_t unit = begin; unit < end; unit++) {
    int32_t per_group = (a->group + a->width - 1) / a->width, of_row = (int32_t)(unit % a->n_units);
    int32_t first = of_row % per_group * a->width, rest = a->group - first;
    a->kernels->attend(a->p, (int32_t)(unit / a->n_units), of_row / per_group * a->group + first,
                       rest < a->width ? rest : a->width);
  }
}

/* So few units that some threads would idle while others do their last one. */
static bool is_uneven(int32_t n_units, int32_t n_threads) {
  return n_units < n_threads || (n_units < 4 * n_threads && n_units % n_threads != 0);
}

void cpu_attention(struct compute *compute, const struct attention_params *p, int32_t n) {
  struct cpu_compute *c = cpu_of(compute);
  ASSERT(p->n_heads % p->n_kv_heads == 0);
  double keys = 0;
  for (int32_t i = 0; i < n; i++)
    keys += p->n_prefix[i] + (p->extra_begin ? p->extra_begin[i + 1] - p->extra_begin[i] : 0);
  struct attention_args a = {.kernels = c->kernels, .p = p, .group = p->n_heads / p->n_kv_heads, .width = KERNEL_HEADS};
  int32_t parts = cpu_parts(c, keys * p->n_heads * (p->key_dim + p->value_dim));
  while (parts > 1 && a.width > 2 && is_uneven(n * p->n_kv_heads * ((a.group + a.width - 1) / a.width), c->n_threads))
    a.width /= 2;
  a.n_units = p->n_kv_heads * ((a.group + a.width - 1) / a.width);
  const struct team_job job = {.body = attend_units, .args = &a, .n = (int64_t)n * a.n_units, .n_parts = parts};
  team_run(c->team, &job);
}
