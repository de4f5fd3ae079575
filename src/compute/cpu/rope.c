/* rope.c - rotary positions from a table of cosines and sines; backward is the inverse rotation. */
#include "compute/cpu/cpu.h"

static void rotate(const struct rope_params *p, float *out, const float *x, int32_t position) {
  const float *cos = p->cos + (int64_t)position * p->n_pairs, *sin = p->sin + (int64_t)position * p->n_pairs;
  int32_t step = p->style == ROPE_HALF ? 1 : 2, other = p->style == ROPE_HALF ? p->n_pairs : 1;
  for (int32_t i = 0; i < p->n_pairs; i++) {
    float a = x[i * step], b = x[i * step + other], s = p->inverse ? -sin[i] : sin[i];
    out[i * step] = a * cos[i] - b * s;
    out[i * step + other] = b * cos[i] + a * s;
  }
}

static void rotate_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct rope_params *p = args;
  for (int64_t i = begin; i < end; i++) {
    for (int32_t head = 0; head < p->n_heads; head++) {
      rotate(p, p->out + i * p->out_row + head * p->out_head, p->x + i * p->x_row + head * p->x_head, p->positions[i]);
    }
  }
}

void cpu_rope(struct compute *compute, const struct rope_params *p, int32_t n) {
  cpu_for(cpu_of(compute), 6.0 * p->n_heads * p->n_pairs, n, rotate_rows, p);
}
