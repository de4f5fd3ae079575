/* optimizer.c - AdamW, Muon, averages, the gradient's norm, and what joins gradients: of unrolled steps, of rows that share a weight, of heads. */
#include "compute/cpu/cpu.h"

#include <math.h>

void cpu_scatter_add_rows(struct compute *compute, float *out, const float *x, const int32_t *rows, int32_t n, int32_t dim) {
  int team = cpu_team(cpu_of(compute), (double)n * dim * 2);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t i = 0; i < n; i++) {
    float *to = out + (int64_t)rows[i] * dim;
    const float *from = x + (int64_t)i * dim;
    for (int32_t k = 0; k < dim; k++) to[k] += from[k];
  }
}

/* ---- columns are split over threads, so that the sum over rows keeps one order ---- */

struct columns_args {
  float *out;
  const float *x;
  const int32_t *rows;
  int32_t n, dim;
};

static void scatter_columns(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct columns_args *a = args;
  for (int32_t i = 0; i < a->n; i++) {
    if (a->rows[i] < 0) continue;
    float *to = a->out + (int64_t)a->rows[i] * a->dim;
    const float *from = a->x + (int64_t)i * a->dim;
    for (int64_t k = begin; k < end; k++) to[k] += from[k];
  }
}

void cpu_scatter_add_repeated(struct compute *c, float *out, const float *x, const int32_t *rows, int32_t n, int32_t dim) {
  const struct columns_args args = {.out = out, .x = x, .rows = rows, .n = n, .dim = dim};
  cpu_for(cpu_of(c), n, dim, scatter_columns, &args);
}

static void sum_columns(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct columns_args *a = args;
  for (int32_t i = 0; i < a->n; i++) {
    const float *from = a->x + (int64_t)i * a->dim;
    for (int64_t k = begin; k < end; k++) a->out[k] += from[k];
  }
}

void cpu_sum_rows(struct compute *c, float *out, const float *x, int32_t n, int32_t dim) {
  const struct columns_args args = {.out = out, .x = x, .n = n, .dim = dim};
  cpu_for(cpu_of(c), n, dim, sum_columns, &args);
}

static void move_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct move_heads_params *p = args;
  for (int64_t i = begin; i < end; i++) {
    for (int32_t h = 0; h < p->n_heads; h++) {
      float *to = p->out + i * p->out_row + h * p->out_head;
      const float *from = p->x + i * p->x_row + h * p->x_head;
      for (int32_t k = 0; k < p->dim; k++) to[k] = p->accumulate ? to[k] + from[k] : from[k];
    }
  }
}

void cpu_move_heads(struct compute *c, const struct move_heads_params *p, int32_t n) {
  cpu_for(cpu_of(c), (double)p->n_heads * p->dim, n, move_rows, p);
}

#define BLOCK 65536 /* floats per partial sum: the order does not depend on the threads */

double cpu_sum_squares(struct compute *compute, const float *x, int64_t n) {
  (void)compute;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += BLOCK) {
    int64_t end = begin + BLOCK < n ? begin + BLOCK : n;
    double sums[8] = {0};
    for (int64_t i = begin; i < end; i++) sums[i & 7] += (double)x[i] * x[i];
    for (int k = 0; k < 8; k++) total += sums[k];
  }
  return total;
}

/* Loshchilov & Hutter: decoupled decay; bias correction by step. */
void cpu_adamw(struct compute *compute, float *w, float *m, float *v, const float *g, int64_t n, const struct adamw_params *p) {
  float correct1 = (float)(1.0 / (1.0 - pow(p->beta1, (double)p->step))), correct2 = (float)(1.0 / (1.0 - pow(p->beta2, (double)p->step)));
  float keep = 1.0f - p->lr * p->weight_decay;
  int team = cpu_team(cpu_of(compute), (double)n * 8);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int64_t i = 0; i < n; i++) {
    float d = g[i] * p->grad_scale;
    m[i] = p->beta1 * m[i] + (1.0f - p->beta1) * d;
    v[i] = p->beta2 * v[i] + (1.0f - p->beta2) * d * d;
    w[i] = w[i] * keep - p->lr * (m[i] * correct1) / (sqrtf(v[i] * correct2) + p->eps);
  }
}

void cpu_blend(struct compute *compute, float *y, const float *x, float keep, int64_t n) {
  int team = cpu_team(cpu_of(compute), (double)n * 2);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int64_t i = 0; i < n; i++) y[i] = keep * y[i] + (1.0f - keep) * x[i];
}

/* ---- Muon ---- */

#define MUON_STEPS 5

/* The direction, laid with the shorter side first; the momentum moves on. */
static void muon_direction(struct compute *compute, float *x, float *m, const float *g, const struct muon_params *p) {
  int64_t rows = p->rows, columns = p->columns;
  bool turn = rows > columns;
  float keep = p->momentum, take = 1.0f - keep;
  int team = cpu_team(cpu_of(compute), (double)rows * (double)columns * 6);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t k = 0; k < columns; k++) {
      float d = g[r * columns + k] * p->grad_scale, *moment = &m[r * columns + k];
      *moment = keep * *moment + take * d;
      x[turn ? k * rows + r : r * columns + k] = keep * *moment + take * d;
    }
  }
}

static void muon_apply(struct compute *compute, float *w, const float *x, const struct muon_params *p) {
  int64_t rows = p->rows, columns = p->columns;
  bool turn = rows > columns;
  float keep = 1.0f - p->lr * p->weight_decay, step = p->lr * 0.2f * sqrtf((float)(turn ? rows : columns));
  int team = cpu_team(cpu_of(compute), (double)rows * (double)columns * 4);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t k = 0; k < columns; k++) w[r * columns + k] = keep * w[r * columns + k] - step * x[turn ? k * rows + r : r * columns + k];
  }
}

/* x [n, wide], n <= wide: towards the nearest matrix with orthonormal rows. Returns where the result stands: x or spare. */
static float *muon_orthogonalise(struct compute *compute, float *x, float *spare, float *squares, const int32_t shape[2]) {
  static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
  int32_t n = shape[0], wide = shape[1];
  float *gram = squares, *mixed = squares + (int64_t)n * n;
  double length = sqrt(cpu_sum_squares(compute, x, (int64_t)n * wide));
  float scale = (float)(1.0 / (length > 1e-7 ? length : 1e-7));
  for (int64_t i = 0; i < (int64_t)n * wide; i++) x[i] *= scale;
  for (int i = 0; i < MUON_STEPS; i++) {
    const struct gemm_params outer = {.m = n, .n = n, .k = wide, .transpose_b = true, .alpha = 1, .a = x, .b = x, .c = gram};
    cpu_gemm(compute, &outer);
    memcpy(mixed, gram, sizeof(float) * (size_t)n * (size_t)n);
    const struct gemm_params square = {.m = n, .n = n, .k = n, .alpha = c, .beta = b, .a = gram, .b = gram, .c = mixed};
    cpu_gemm(compute, &square);
    memcpy(spare, x, sizeof(float) * (size_t)n * (size_t)wide);
    const struct gemm_params step = {.m = n, .n = wide, .k = n, .alpha = 1, .beta = a, .a = mixed, .b = x, .c = spare};
    cpu_gemm(compute, &step);
    float *swap = x;
    x = spare;
    spare = swap;
  }
  return x;
}

void cpu_muon(struct compute *compute, float *w, float *m, const float *g, const struct muon_params *p) {
  int64_t size = (int64_t)p->rows * p->columns;
  const int32_t shape[2] = {p->rows < p->columns ? p->rows : p->columns, p->rows < p->columns ? p->columns : p->rows};
  float *x = p->work, *spare = x + size, *squares = spare + size;
  muon_direction(compute, x, m, g, p);
  muon_apply(compute, w, muon_orthogonalise(compute, x, spare, squares, shape), p);
}
