/* cpu.c - the CPU backend: picks kernels for the machine, owns per-thread scratch, fills the op tables. Does no
 * arithmetic itself. Precision: fast and exact use the same arithmetic here (F32 activations); a faster one joins when
 * a measurement pays for it. */
#include "compute/cpu/cpu.h"

#include "base/memory.h"
#include "base/util.h"

#include <cpuid.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Below this many multiply-adds per thread an OpenMP region costs more than it saves. */
#define MULTIPLY_ADDS_PER_THREAD 400e3

/* The same for a thread's part of a job of the team. Short jobs have a part for each thread: more parts are more short
 * runs over weights (nano-kimi, four for each thread: one row 0.52 ms instead of 0.42). Long ones have several, so that
 * who comes late takes fewer. */
#define MULTIPLY_ADDS_PER_PART 16e3
#define MULTIPLY_ADDS_LONG 4e6 /* for each thread */
#define PARTS_PER_THREAD 4

static const struct compute_training training_table = {
    .gemm = cpu_gemm,
    .rms_norm_backward = cpu_rms_norm_backward,
    .silu_mul_backward = cpu_silu_mul_backward,
    .ttt_attention = cpu_ttt_attention,
    .ttt_attention_backward = cpu_ttt_attention_backward,
    .softmax = cpu_softmax,
    .log_sums = cpu_log_sums,
    .distill = cpu_distill,
    .scatter_add_rows = cpu_scatter_add_rows,
    .scatter_add_repeated = cpu_scatter_add_repeated,
    .sum_rows = cpu_sum_rows,
    .move_heads = cpu_move_heads,
    .sum_squares = cpu_sum_squares,
    .adamw = cpu_adamw,
    .muon = cpu_muon,
    .blend = cpu_blend,
};

static void *cpu_alloc(struct compute *c, size_t bytes) {
  (void)c;
  return memory_try(bytes);
}
static void cpu_free(struct compute *c, void *block) {
  (void)c;
  memory_try_free(block);
}
static void cpu_copy(struct compute *c, void *to, const void *from, size_t bytes) {
  (void)c;
  memcpy(to, from, bytes);
}

static const struct compute inference_table = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .embed = cpu_embed,
    .matmul = cpu_matmul,
    .matmul_many = cpu_matmul_many,
    .matmul_heads = cpu_matmul_heads,
    .rms_norm = cpu_rms_norm,
    .layer_norm = cpu_layer_norm,
    .add = cpu_add,
    .add_scaled = cpu_add_scaled,
    .scale = cpu_scale,
    .softcap = cpu_softcap,
    .scale_rows = cpu_scale_rows,
    .activate = cpu_activate,
    .add_bias = cpu_add_bias,
    .silu_mul = cpu_silu_mul,
    .rope = cpu_rope,
    .kv_write = cpu_kv_write,
    .attention = cpu_attention,
    .select_keys = cpu_select_keys,
    .router = cpu_router,
    .moe = cpu_moe,
    .gather_rows = cpu_gather_rows,
    .argmax = cpu_argmax,
    .top_k = cpu_top_k,
    .training = &training_table,
};

/* Not every compiler's __builtin_cpu_supports knows f16c. */
static bool has_f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static const struct kernels *kernels_for(const char *isa) {
  bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!isa) return has_avx512 ? &kernels_avx512 : has_avx2 ? &kernels_avx2 : &kernels_scalar;
  if (strcmp(isa, "scalar") == 0) return &kernels_scalar;
  if (strcmp(isa, "avx2") == 0 && has_avx2) return &kernels_avx2;
  if (strcmp(isa, "avx512") == 0 && has_avx512) return &kernels_avx512;
  return NULL;
}

enum eaglet_status cpu_open(struct compute **compute, const struct cpu_open_params *params, struct eaglet_error *err) {
  *compute = NULL;
  const struct kernels *kernels = kernels_for(params->isa);
  if (!kernels) FAIL(err, EAGLET_E_USAGE, "instruction set '%s': this machine does not have it", params->isa);
  struct cpu_compute *c = memory_alloc(sizeof *c);
  c->base = inference_table;
  c->kernels = kernels;
  c->n_threads = params->n_threads > 0 ? params->n_threads : threads_available();
  c->base.precision = params->precision;
  c->tiles = memory_try((size_t)c->n_threads * KERNEL_TILE * sizeof(float));
  c->team = team_create(c->n_threads);
  if (!c->tiles || !c->team) {
    compute_close(&c->base);
    FAIL(err, EAGLET_E_RESOURCE, "no memory for the scratch of %d threads", params->n_threads);
  }
  snprintf(c->name, sizeof c->name, "cpu %s", kernels->name);
  c->base.name = c->name;
  threads_set(c->n_threads);
  *compute = &c->base;
  return EAGLET_OK;
}

enum eaglet_status compute_open_cpu(struct compute **c, int n_threads, enum eaglet_precision precision,
                                    struct eaglet_error *err) {
  const struct cpu_open_params params = {.n_threads = n_threads, .precision = precision};
  return cpu_open(c, &params, err);
}

void compute_close(struct compute *compute) {
  if (!compute) return;
  struct cpu_compute *c = cpu_of(compute);
  team_free(c->team);
  memory_try_free(c->tiles);
  free(c);
}

int cpu_thread(void) {
  return omp_get_thread_num();
}

int cpu_team(const struct cpu_compute *c, double multiply_adds) {
  double worth = multiply_adds / MULTIPLY_ADDS_PER_THREAD;
  return worth < 2 ? 1 : worth > c->n_threads ? c->n_threads : (int)worth;
}

int32_t cpu_parts(const struct cpu_compute *c, double multiply_adds) {
  double worth = multiply_adds / MULTIPLY_ADDS_PER_PART, most = c->n_threads;
  if (multiply_adds > MULTIPLY_ADDS_LONG * most) most *= PARTS_PER_THREAD;
  if (most > TEAM_PARTS_MAX) most = TEAM_PARTS_MAX;
  return c->n_threads == 1 || worth < 2 ? 1 : worth > most ? (int32_t)most : (int32_t)worth;
}

struct for_args {
  struct cpu_compute *c;
  cpu_body *body;
  const void *args;
};

static void for_part(const void *args, int64_t begin, int64_t end, int thread) {
  const struct for_args *a = args;
  (void)thread;
  a->body(a->c, a->args, begin, end);
}

void cpu_for(struct cpu_compute *c, double work, int64_t n, cpu_body *body, const void *args) {
  const struct for_args a = {.c = c, .body = body, .args = args};
  const struct team_job job = {.body = for_part, .args = &a, .n = n, .n_parts = cpu_parts(c, work * (double)n)};
  team_run(c->team, &job);
}
