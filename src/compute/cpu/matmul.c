/* matmul.c - linear layers. Splits outputs over threads; the kernels do the arithmetic. A row's bits do not depend on
 * the split. */
#include "compute/cpu/cpu.h"

#include <omp.h>

#define PANEL 48 /* activation rows that pass over the weights together; they stay in the near cache */

/* Outputs [range[0], range[1]) of all rows on one thread. */
static void part_dot(struct cpu_compute *c, const struct cpu_rows *p, const int32_t range[2], int thread) {
  struct rows_dot_params part = {.w = p->w, .begin = range[0], .end = range[1], .tile = cpu_tile(c, thread)};
  for (int32_t r = 0; r < p->n && range[0] < range[1]; r += PANEL) {
    part.x = p->x + r;
    part.out = p->out + r;
    part.n = p->n - r < PANEL ? p->n - r : PANEL;
    c->kernels->rows_dot(&part);
  }
}

void cpu_rows_dot(struct cpu_compute *c, const struct cpu_rows *p) {
  const struct weight *w = p->w;
  ASSERT(w->n_in <= KERNEL_IN_MAX);
  int team = cpu_team(c, (double)w->n_out * w->n_in * p->n);
  if (team == 1) {
    part_dot(c, p, (const int32_t[]){0, w->n_out}, 0);
    return;
  }
#pragma omp parallel num_threads(team)
  {
    int32_t range[2];
    cpu_share(range, w->n_out, omp_get_thread_num(), omp_get_num_threads());
    part_dot(c, p, range, omp_get_thread_num());
  }
}

#define POINTERS 192 /* rows whose pointers fit on the stack at once; a multiple of PANEL */

void cpu_matmul(struct compute *compute, float *out, const float *x, const struct weight *w, int32_t n, int64_t out_row,
                int64_t x_row) {
  const float *x_rows[POINTERS];
  float *out_rows[POINTERS];
  if (out_row == 0) out_row = w->n_out;
  if (x_row == 0) x_row = w->n_in;
  for (int32_t r = 0; r < n; r += POINTERS) {
    int32_t some = n - r < POINTERS ? n - r : POINTERS;
    for (int32_t i = 0; i < some; i++) {
      x_rows[i] = x + (r + i) * x_row;
      out_rows[i] = out + (r + i) * out_row;
    }
    const struct cpu_rows rows = {.w = w, .x = x_rows, .out = out_rows, .n = some};
    cpu_rows_dot(cpu_of(compute), &rows);
  }
}

static void head_rows(struct cpu_compute *c, const struct matmul_heads_params *p, int32_t head, const int32_t range[2],
                      int thread) {
  const float *x = p->x + head * p->x_head;
  float *out = p->out + head * p->out_head;
  int32_t first = head * p->rows_per_head + p->row_begin;
  const struct weight w = weight_rows(p->w, first, p->n_rows);
  for (int32_t r = range[0]; r < range[1]; r += PANEL) {
    const float *x_rows[PANEL];
    float *out_rows[PANEL];
    int32_t some = range[1] - r < PANEL ? range[1] - r : PANEL;
    for (int32_t i = 0; i < some; i++) {
      x_rows[i] = x + (r + i) * p->x_row;
      out_rows[i] = out + (r + i) * p->out_row;
    }
    const struct rows_dot_params part = {
        .w = &w, .end = w.n_out, .x = x_rows, .out = out_rows, .n = some, .tile = cpu_tile(c, thread)};
    if (!p->transpose)
      c->kernels->rows_dot(&part);
    else
      c->kernels->transposed(out_rows, x_rows, &w, some, cpu_tile(c, thread));
  }
}

void cpu_matmul_heads(struct compute *compute, const struct matmul_heads_params *p, int32_t n) {
  struct cpu_compute *c = cpu_of(compute);
  ASSERT(p->w->n_in <= KERNEL_IN_MAX);
  int team = cpu_team(c, (double)n * p->n_heads * p->n_rows * p->w->n_in);
  if (team == 1) {
    for (int32_t head = 0; head < p->n_heads; head++) head_rows(c, p, head, (const int32_t[]){0, n}, 0);
    return;
  }
  int32_t n_blocks = (n + PANEL - 1) / PANEL;
#pragma omp parallel for num_threads(team) schedule(static)
  for (int32_t task = 0; task < p->n_heads * n_blocks; task++) {
    int32_t begin = task / p->n_heads * PANEL;
    head_rows(c, p, task % p->n_heads, (const int32_t[]){begin, begin + PANEL < n ? begin + PANEL : n},
              omp_get_thread_num());
  }
}
