/* bench_compute.c - how fast the CPU ops run, as a table on stdout: linear layers by format, shape and row count, then
 * the other ops of a decode step at nano-kimi's sizes. Decides nothing: numbers worth keeping go into docs/SPEED.md. */
#include "compute/cpu/cpu.h"

#include "base/memory.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>

#define ROWS_MAX 512
#define MEASURE_S 0.06

static float *noise(size_t n) {
  float *x = memory_try(sizeof(float) * n);
  ASSERT(x);
  for (size_t i = 0; i < n; i++) x[i] = (float)random_uniform(1, 2, i) - 0.5f;
  return x;
}

static struct weight weight_of(enum weight_format format, int32_t n_out, int32_t n_in) {
  size_t n = (size_t)n_out * (size_t)n_in;
  float *values = noise(n);
  struct weight w = {.format = format, .n_out = n_out, .n_in = n_in, .data = values};
  if (format == WEIGHT_BF16 || format == WEIGHT_F16) {
    void *data = memory_try(2 * n);
    ASSERT(data);
    dtype_from_f32(data, format == WEIGHT_BF16 ? DTYPE_BF16 : DTYPE_F16, values, n);
    memory_try_free(values);
    w.data = data;
  }
  if (format == WEIGHT_INT4) {
    w.scale = noise(n / 32);
    w.scale_dtype = DTYPE_F32;
    w.group = 32;
  }
  return w;
}

static void weight_free(struct weight *w) {
  memory_try_free((void *)(uintptr_t)w->data);
  memory_try_free((void *)(uintptr_t)w->scale);
}

/* Seconds of one call: the best of the repetitions that fit the time. */
#define BEST_OF(best, call)                                                                                            \
  do {                                                                                                                 \
    double until = time_now() + MEASURE_S;                                                                             \
    (best) = 1e9;                                                                                                      \
    do {                                                                                                               \
      double start = time_now();                                                                                       \
      for (int again = 0; again < 4; again++) call;                                                                    \
      double took = (time_now() - start) / 4;                                                                          \
      (best) = took < (best) ? took : (best);                                                                          \
    } while (time_now() < until);                                                                                      \
  } while (0)

static void bench_matmul(struct compute *c, enum weight_format format, int32_t n_out, int32_t n_in) {
  static const int32_t rows[] = {1, 4, 8, 64, 512};
  struct weight w = weight_of(format, n_out, n_in);
  float *x = noise((size_t)ROWS_MAX * (size_t)n_in), *out = noise((size_t)ROWS_MAX * (size_t)n_out);
  printf("%-5s %5d x %-5d", weight_format_name(format), n_out, n_in);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double best;
    BEST_OF(best, c->matmul(c, out, x, &w, rows[i], 0, 0));
    printf("  %8.2f us %6.1f", best * 1e6, 2e-9 * n_out * n_in * rows[i] / best);
  }
  printf("\n");
  memory_try_free(x);
  memory_try_free(out);
  weight_free(&w);
}

/* The absorbed projections of MLA: heads of 32 (of 64) rows over a latent of 96. */
static void bench_heads(struct compute *c, bool transpose, int32_t latent, int32_t n_heads) {
  static const int32_t rows[] = {1, 4, 8, 64, 512};
  struct weight w = weight_of(WEIGHT_BF16, n_heads * 64, latent);
  float *x = noise((size_t)ROWS_MAX * (size_t)(n_heads * latent)),
        *out = noise((size_t)ROWS_MAX * (size_t)(n_heads * latent));
  struct matmul_heads_params p = {
      .out = out, .x = x, .w = &w, .n_heads = n_heads, .rows_per_head = 64, .n_rows = 32, .transpose = transpose};
  p.out_head = p.x_head = latent;
  p.out_row = p.x_row = (int64_t)n_heads * latent;
  printf("heads %d latent %3d %s", n_heads, latent, transpose ? "T" : "N");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double best;
    BEST_OF(best, c->matmul_heads(c, &p, rows[i]));
    printf("  %8.2f us %6.1f", best * 1e6, 2e-9 * n_heads * 32 * latent * rows[i] / best);
  }
  printf("\n");
  memory_try_free(x);
  memory_try_free(out);
  weight_free(&w);
}

#define PAGE_TOKENS 64
#define KEYS_MAX 2048

static void bench_attention(struct compute *c, int32_t n_heads, int32_t key_dim, int32_t value_dim, int32_t n_keys) {
  static const int32_t rows[] = {1, 4, 8, 64};
  int32_t pages[KEYS_MAX / PAGE_TOKENS], begin[64] = {0}, prefix[64];
  for (int32_t i = 0; i < KEYS_MAX / PAGE_TOKENS; i++) pages[i] = i;
  for (int32_t i = 0; i < 64; i++) prefix[i] = n_keys;
  float *pool = noise((size_t)KEYS_MAX * (size_t)key_dim), *q = noise((size_t)64 * (size_t)(n_heads * key_dim)),
        *out = noise((size_t)64 * (size_t)(n_heads * value_dim));
  struct attention_params p = {.out = out,
                               .q = q,
                               .pool = pool,
                               .page_table = pages,
                               .table_begin = begin,
                               .n_prefix = prefix,
                               .n_heads = n_heads,
                               .n_kv_heads = 1,
                               .key_dim = key_dim,
                               .value_dim = value_dim,
                               .key_head = key_dim,
                               .value_head = value_dim,
                               .entry_floats = key_dim,
                               .page_tokens = PAGE_TOKENS,
                               .scale = 0.1f};
  printf("mla %2dx%3d keys %4d", n_heads, key_dim, n_keys);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double best;
    BEST_OF(best, c->attention(c, &p, rows[i]));
    printf("  %8.2f us %6.1f", best * 1e6, 2e-9 * n_heads * (key_dim + value_dim) * n_keys * rows[i] / best);
  }
  printf("\n");
  memory_try_free(pool);
  memory_try_free(q);
  memory_try_free(out);
}

static void bench_moe(struct compute *c) {
  enum { E = 16, K = 4, H = 320, I = 192 };
  static const int32_t rows[] = {1, 4, 8, 64, 512};
  struct weight gate[E], up[E], down[E];
  for (int e = 0; e < E; e++) {
    gate[e] = weight_of(WEIGHT_INT4, I, H);
    up[e] = weight_of(WEIGHT_INT4, I, H);
    down[e] = weight_of(WEIGHT_INT4, H, I);
  }
  float *x = noise((size_t)ROWS_MAX * H), *out = noise((size_t)ROWS_MAX * H), *logits = noise((size_t)ROWS_MAX * E),
        *share = noise((size_t)ROWS_MAX * K);
  float *scratch = noise((size_t)compute_moe_scratch_floats(ROWS_MAX, K, H, I));
  int32_t *expert = calloc((size_t)ROWS_MAX * K, sizeof *expert);
  const struct router_params r = {.expert = expert,
                                  .share = share,
                                  .logits = logits,
                                  .n_experts = E,
                                  .n_picked = K,
                                  .n_groups = 1,
                                  .n_groups_picked = 1,
                                  .normalise = true,
                                  .scale = 1};
  const struct moe_params p = {.out = out,
                               .x = x,
                               .gate = gate,
                               .up = up,
                               .down = down,
                               .expert = expert,
                               .share = share,
                               .n_experts = E,
                               .n_picked = K,
                               .scratch = scratch};
  printf("router              ");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double best;
    BEST_OF(best, c->router(c, &r, rows[i]));
    printf("  %8.2f us       ", best * 1e6);
  }
  printf("\nmoe 16x4 320x192 int4");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double best;
    BEST_OF(best, c->moe(c, &p, rows[i]));
    printf("  %8.2f us %6.1f", best * 1e6, 6e-9 * H * I * K * rows[i] / best);
  }
  printf("\n");
  for (int e = 0; e < E; e++) weight_free(&gate[e]), weight_free(&up[e]), weight_free(&down[e]);
  memory_try_free(x), memory_try_free(out), memory_try_free(logits), memory_try_free(share), memory_try_free(scratch);
  free(expert);
}

static void bench_small(struct compute *c) {
  float *x = noise(4096), *y = noise(4096), *w = noise(4096);
  int32_t best_id;
  double norm, add, silu, argmax;
  const struct norm_params p = {.dim = 320, .eps = 1e-6f};
  BEST_OF(norm, c->rms_norm(c, y, x, w, 1, &p));
  BEST_OF(add, c->add(c, y, x, w, 320));
  BEST_OF(silu, c->silu_mul(c, y, x, w, 192));
  BEST_OF(argmax, c->argmax(c, &best_id, x, 1, 4096));
  printf("one row: rms_norm 320 %.2f us, add 320 %.2f us, silu_mul 192 %.2f us, argmax 4096 %.2f us\n", norm * 1e6,
         add * 1e6, silu * 1e6, argmax * 1e6);
  memory_try_free(x), memory_try_free(y), memory_try_free(w);
}

int main(int argc, char **argv) {
  struct compute *c = NULL;
  const struct cpu_open_params params = {.isa = argc > 1 ? argv[1] : NULL, .n_threads = argc > 2 ? atoi(argv[2]) : 0};
  if (cpu_open(&c, &params, NULL) != EAGLET_OK) return 1;
  printf("%s, %d threads; columns: rows 1, 4, 8, 64, 512; time and GFLOP/s\n", c->name, cpu_of(c)->n_threads);
  static const enum weight_format formats[] = {WEIGHT_BF16, WEIGHT_INT4, WEIGHT_F16, WEIGHT_F32};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    bench_matmul(c, formats[i], 960, 320);
    bench_matmul(c, formats[i], 4096, 320);
    bench_matmul(c, formats[i], 2048, 2048);
  }
  bench_heads(c, true, 96, 8);
  bench_heads(c, false, 96, 8);
  bench_heads(c, true, 512, 8);
  bench_attention(c, 8, 112, 96, 64);
  bench_attention(c, 8, 112, 96, 512);
  bench_attention(c, 8, 576, 512, 512);
  bench_moe(c);
  bench_small(c);
  compute_close(c);
  return 0;
}
