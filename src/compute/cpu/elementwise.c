/* elementwise.c - embedding rows, sums, the gated activation (with its backward), gathers and argmax. */
#include "compute/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Arguments of every op of this file; each uses what it needs. */
struct args {
  void *out, *out2;
  const float *a, *b, *c;
  const struct weight *table;
  const int32_t *rows;
  int32_t dim;
  int64_t in_row, out_row;
  float factor;
  enum activation kind;
};

static void embed_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct args *p = args;
  for (int64_t i = begin; i < end; i++) weight_row_to_f32(p->table, p->rows[i], (float *)p->out + i * p->table->n_in);
}

void cpu_embed(struct compute *c, float *out, const struct weight *table, const int32_t *ids, int32_t n) {
  const struct args args = {.out = out, .table = table, .rows = ids};
  cpu_for(cpu_of(c), table->n_in, n, embed_rows, &args);
}

static void add_some(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct args *p = args;
  float *out = p->out;
  for (int64_t i = begin; i < end; i++) out[i] = p->a[i] + p->b[i];
}

void cpu_add(struct compute *c, float *out, const float *a, const float *b, int64_t n_floats) {
  const struct args args = {.out = out, .a = a, .b = b};
  cpu_for(cpu_of(c), 1, n_floats, add_some, &args);
}

static void bias_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct args *p = args;
  for (int64_t i = begin; i < end; i++) {
    float *row = (float *)p->out + i * p->dim;
    for (int32_t k = 0; k < p->dim; k++) row[k] += p->a[k];
  }
}

void cpu_add_bias(struct compute *c, float *x, const float *bias, int32_t n, int32_t dim) {
  const struct args args = {.out = x, .a = bias, .dim = dim};
  cpu_for(cpu_of(c), dim, n, bias_rows, &args);
}

static void add_scaled_some(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct args *p = args;
  float *out = p->out;
  for (int64_t i = begin; i < end; i++) out[i] += p->factor * p->a[i];
}

void cpu_add_scaled(struct compute *c, float *x, const float *a, float scale, int64_t n_floats) {
  const struct args args = {.out = x, .a = a, .factor = scale};
  cpu_for(cpu_of(c), 1, n_floats, add_scaled_some, &args);
}

static void scale_some(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct args *p = args;
  float *out = p->out;
  for (int64_t i = begin; i < end; i++) out[i] *= p->factor;
}

void cpu_scale(struct compute *c, float *x, float factor, int64_t n_floats) {
  const struct args args = {.out = x, .factor = factor};
  cpu_for(cpu_of(c), 1, n_floats, scale_some, &args);
}

static void softcap_some(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct args *p = args;
  float *out = p->out;
  for (int64_t i = begin; i < end; i++) out[i] = p->factor * tanhf(out[i] / p->factor);
}

void cpu_softcap(struct compute *c, float *x, float cap, int64_t n_floats) {
  const struct args args = {.out = x, .factor = cap};
  cpu_for(cpu_of(c), 20, n_floats, softcap_some, &args);
}

static void scale_some_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct args *p = args;
  for (int64_t i = begin; i < end; i++) {
    float *row = (float *)p->out + i * p->dim, factor = p->a ? p->a[p->rows[i]] : 1.0f / (1.0f + expf(-p->b[i]));
    for (int32_t k = 0; k < p->dim; k++) row[k] *= factor;
  }
}

void cpu_scale_rows(struct compute *c, float *x, const struct scale_rows_params *p, int32_t n) {
  const struct args args = {.out = x, .a = p->factors, .b = p->gate, .rows = p->index, .dim = p->dim};
  cpu_for(cpu_of(c), p->dim, n, scale_some_rows, &args);
}

static void activate_some(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  const struct args *p = args;
  c->kernels->activate((float *)p->out + begin, p->a + begin, p->b ? p->b + begin : NULL, end - begin, p->kind);
}

void cpu_activate(struct compute *c, float *out, const float *gate, const float *up, int64_t n_floats,
                  enum activation kind) {
  const struct args args = {.out = out, .a = gate, .b = up, .kind = kind};
  cpu_for(cpu_of(c), 14, n_floats, activate_some, &args);
}

static void silu_some(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  const struct args *p = args;
  c->kernels->silu_mul((float *)p->out + begin, p->a + begin, p->b + begin, end - begin);
}

void cpu_silu_mul(struct compute *c, float *out, const float *gate, const float *up, int64_t n_floats) {
  const struct args args = {.out = out, .a = gate, .b = up};
  cpu_for(cpu_of(c), 12, n_floats, silu_some, &args);
}

static void silu_backward_some(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct args *p = args;
  float *d_gate = p->out, *d_up = p->out2;
  for (int64_t i = begin; i < end; i++) {
    float d = p->c[i], g = p->a[i], u = p->b[i];
    float s = 1.0f / (1.0f + expf(-g));
    d_up[i] = d * g * s;
    d_gate[i] = d * u * s * (1.0f + g * (1.0f - s));
  }
}

void cpu_silu_mul_backward(struct compute *c, float *d_gate, float *d_up, const float *d_out, const float *gate,
                           const float *up, int64_t n_floats) {
  const struct args args = {.out = d_gate, .out2 = d_up, .a = gate, .b = up, .c = d_out};
  cpu_for(cpu_of(c), 30, n_floats, silu_backward_some, &args);
}

static void gather_some(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  const struct args *p = args;
  for (int64_t i = begin; i < end; i++)
    memcpy((float *)p->out + i * p->out_row, p->a + p->rows[i] * p->in_row, sizeof(float) * (size_t)p->dim);
}

void cpu_gather_rows(struct compute *c, float *out, const float *x, const int32_t *rows, int32_t n,
                     const struct gather_params *p) {
  const struct args args = {.out = out,
                            .a = x,
                            .rows = rows,
                            .dim = p->dim,
                            .in_row = p->x_row ? p->x_row : p->dim,
                            .out_row = p->out_row ? p->out_row : p->dim};
  cpu_for(cpu_of(c), p->dim, n, gather_some, &args);
}

static void argmax_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  const struct args *p = args;
  for (int64_t i = begin; i < end; i++) ((int32_t *)p->out)[i] = c->kernels->argmax(p->a + i * p->dim, p->dim);
}

void cpu_argmax(struct compute *c, int32_t *out, const float *x, int32_t n, int32_t dim) {
  const struct args args = {.out = out, .a = x, .dim = dim};
  cpu_for(cpu_of(c), dim, n, argmax_rows, &args);
}
