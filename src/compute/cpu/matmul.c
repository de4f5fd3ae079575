/* matmul.c - linear layers. Splits outputs over threads; the kernels do the arithmetic. A row's bits do not depend on
 * the split. */
#include "compute/cpu/cpu.h"

#define PANEL 48 /* activation rows that pass over the weights together; they stay in the near cache */

struct rows_args {
  struct cpu_compute *c;
  const struct weight *w;
  const float *const *x; /* [n] */
  float *const *out;     /* [n] */
  int32_t n;
};

/* Blocks of KERNEL_OUTPUTS outputs, of all rows. */
static void dot_blocks(const void *args, int64_t begin, int64_t end, int thread) {
  const struct rows_args *a = args;
  int64_t last = end * KERNEL_OUTPUTS;
  struct rows_dot_params part = {.w = a->w,
                                 .begin = (int32_t)begin * KERNEL_OUTPUTS,
                                 .end = last < a->w->n_out ? (int32_t)last : a->w->n_out,
                                 .tile = cpu_tile(a->c, thread)};
  for (int32_t r = 0; r < a->n && begin < end; r += PANEL) {
    part.x = a->x + r;
    part.out = a->out + r;
    part.n = a->n - r < PANEL ? a->n - r : PANEL;
    a->c->kernels->rows_dot(&part);
  }
}

#define POINTERS 192 /* rows whose pointers fit on the stack at once; a multiple of PANEL */

void cpu_matmul(struct compute *compute, float *out, const float *x, const struct weight *w, int32_t n, int64_t out_row,
                int64_t x_row) {
  const float *x_rows[POINTERS];
  float *out_rows[POINTERS];
  struct rows_args args = {.c = cpu_of(compute), .w = w, .x = x_rows, .out = out_rows};
  struct team_job job = {.body = dot_blocks, .args = &args, .n = (w->n_out + KERNEL_OUTPUTS - 1) / KERNEL_OUTPUTS};
  ASSERT(w->n_in <= KERNEL_IN_MAX);
  if (out_row == 0) out_row = w->n_out;
  if (x_row == 0) x_row = w->n_in;
  for (int32_t r = 0; r < n; r += POINTERS) {
    int32_t some = n - r < POINTERS ? n - r : POINTERS;
    for (int32_t i = 0; i < some; i++) {
      x_rows[i] = x + (r + i) * x_row;
      out_rows[i] = out + (r + i) * out_row;
    }
    args.n = some;
    job.n_parts = cpu_parts(args.c, (double)w->n_out * w->n_in * some);
    team_run(args.c->team, &job);
  }
}

/* ---- several weights, the same rows ---- */

#define MANY_ROWS 96 /* rows whose pointers fit on the stack at once; a multiple of PANEL */

struct many_args {
  struct rows_args rows[MATMUL_PARTS_MAX];
  int64_t n_blocks[MATMUL_PARTS_MAX];
  int32_t n;
};

/* Blocks of KERNEL_OUTPUTS outputs, numbered weight by weight. */
static void many_blocks(const void *args, int64_t begin, int64_t end, int thread) {
  const struct many_args *a = args;
  for (int32_t i = 0; i < a->n && end > 0; begin -= a->n_blocks[i], end -= a->n_blocks[i], i++) {
    int64_t last = end < a->n_blocks[i] ? end : a->n_blocks[i];
    dot_blocks(&a->rows[i], begin > 0 ? begin : 0, last, thread);
  }
}

void cpu_matmul_many(struct compute *compute, const struct matmul_part *parts, int32_t n_parts, const float *x,
                     int32_t n) {
  const float *x_rows[MANY_ROWS];
  float *out_rows[MATMUL_PARTS_MAX][MANY_ROWS];
  struct many_args a = {.n = n_parts};
  struct team_job job = {.body = many_blocks, .args = &a};
  int64_t n_in = parts[0].w->n_in, n_out = 0;
  ASSERT(n_parts >= 1 && n_parts <= MATMUL_PARTS_MAX && n_in <= KERNEL_IN_MAX);
  for (int32_t p = 0; p < n_parts; p++) {
    const struct weight *w = parts[p].w;
    ASSERT(w->n_in == n_in);
    a.rows[p] = (struct rows_args){.c = cpu_of(compute), .w = w, .x = x_rows, .out = out_rows[p]};
    a.n_blocks[p] = (w->n_out + KERNEL_OUTPUTS - 1) / KERNEL_OUTPUTS;
    job.n += a.n_blocks[p];
    n_out += w->n_out;
  }
  for (int32_t r = 0; r < n; r += MANY_ROWS) {
    int32_t some = n - r < MANY_ROWS ? n - r : MANY_ROWS;
    for (int32_t i = 0; i < some; i++) x_rows[i] = x + (r + i) * n_in;
    for (int32_t p = 0; p < n_parts; p++) {
      int64_t out_row = parts[p].out_row ? parts[p].out_row : parts[p].w->n_out;
      for (int32_t i = 0; i < some; i++) out_rows[p][i] = parts[p].out + (r + i) * out_row;
      a.rows[p].n = some;
    }
    job.n_parts = cpu_parts(cpu_of(compute), (double)n_out * (double)n_in * some);
    team_run(cpu_of(compute)->team, &job);
  }
}

/* ---- heads ---- */

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

struct heads_args {
  struct cpu_compute *c;
  const struct matmul_heads_params *p;
  int32_t n;
};

/* Panels of rows, head by head. */
static void head_panels(const void *args, int64_t begin, int64_t end, int thread) {
  const struct heads_args *a = args;
  for (int64_t i = begin; i < end; i++) {
    int32_t first = (int32_t)(i / a->p->n_heads) * PANEL, last = first + PANEL < a->n ? first + PANEL : a->n;
    head_rows(a->c, a->p, (int32_t)(i % a->p->n_heads), (const int32_t[]){first, last}, thread);
  }
}

void cpu_matmul_heads(struct compute *compute, const struct matmul_heads_params *p, int32_t n) {
  const struct heads_args args = {.c = cpu_of(compute), .p = p, .n = n};
  ASSERT(p->w->n_in <= KERNEL_IN_MAX);
  /* Fetching rows that lie apart takes as long as multiplying one row by them. */
  const struct team_job job = {.body = head_panels,
                               .args = &args,
                               .n = (int64_t)p->n_heads * ((n + PANEL - 1) / PANEL),
                               .n_parts = cpu_parts(args.c, (n + 1.0) * p->n_heads * p->n_rows * p->w->n_in)};
  team_run(args.c->team, &job);
}
