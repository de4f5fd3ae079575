/* cpu.h - the CPU backend's inside: its state and the functions behind the op tables. Only src/compute and its tests
 * include it. */
#ifndef EAGLET_COMPUTE_CPU_CPU_H
#define EAGLET_COMPUTE_CPU_CPU_H

#include "compute/cpu/kernels.h"
#include "compute/cpu/team.h"
#include "compute/training.h"

struct cpu_compute {
  struct compute base; /* first: a struct compute * of this backend is a struct cpu_compute * */
  const struct kernels *kernels;
  int n_threads;
  struct team *team;
  float *tiles; /* [n_threads, KERNEL_TILE], touched lazily */
  char name[32];
};
static inline struct cpu_compute *cpu_of(struct compute *c) {
  return (struct cpu_compute *)c;
}
static inline float *cpu_tile(struct cpu_compute *c, int thread) {
  return c->tiles + (size_t)thread * KERNEL_TILE;
}

/* Opens a named instruction set ("scalar", "avx2", "avx512"), NULL: the best. EAGLET_E_USAGE when the machine lacks it.
 */
struct cpu_open_params {
  const char *isa;
  int n_threads;
  enum eaglet_precision precision;
};
enum eaglet_status cpu_open(struct compute **c, const struct cpu_open_params *params,
                            struct eaglet_error *err) MUST_USE;

/* OpenMP threads worth starting for so many multiply-adds of a training op: a region costs microseconds, so small work
 * stays on one. */
int cpu_team(const struct cpu_compute *c, double multiply_adds);
int cpu_thread(void); /* index of the calling thread in its OpenMP team */

/* Parts of a job of the team, for so many multiply-adds: 1 where handing a part over costs more than it saves. */
int32_t cpu_parts(const struct cpu_compute *c, double multiply_adds);

/* Calls body over [0, n) in contiguous parts, on the team where that pays. work: multiply-adds of one of the n. */
typedef void cpu_body(struct cpu_compute *c, const void *args, int64_t begin, int64_t end);
void cpu_for(struct cpu_compute *c, double work, int64_t n, cpu_body *body, const void *args);

/* -- inference ops (signatures of struct compute) -- */
void cpu_embed(struct compute *c, float *out, const struct weight *table, const int32_t *ids, int32_t n);
void cpu_matmul(struct compute *c, float *out, const float *x, const struct weight *w, int32_t n, int64_t out_row,
                int64_t x_row);
void cpu_matmul_many(struct compute *c, const struct matmul_part *parts, int32_t n_parts, const float *x, int32_t n);
void cpu_matmul_heads(struct compute *c, const struct matmul_heads_params *p, int32_t n);
void cpu_rms_norm(struct compute *c, float *out, const float *x, const float *w, int32_t n,
                  const struct norm_params *p);
void cpu_layer_norm(struct compute *c, float *out, const float *x, const float *w, int32_t n,
                    const struct norm_params *p);
void cpu_add_scaled(struct compute *c, float *x, const float *a, float scale, int64_t n_floats);
void cpu_scale(struct compute *c, float *x, float factor, int64_t n_floats);
void cpu_softcap(struct compute *c, float *x, float cap, int64_t n_floats);
void cpu_scale_rows(struct compute *c, float *x, const struct scale_rows_params *p, int32_t n);
void cpu_activate(struct compute *c, float *out, const float *gate, const float *up, int64_t n_floats,
                  enum activation kind);
void cpu_add(struct compute *c, float *out, const float *a, const float *b, int64_t n_floats);
void cpu_add_bias(struct compute *c, float *x, const float *bias, int32_t n, int32_t dim);
void cpu_silu_mul(struct compute *c, float *out, const float *gate, const float *up, int64_t n_floats);
void cpu_rope(struct compute *c, const struct rope_params *p, int32_t n);
void cpu_kv_write(struct compute *c, const struct kv_write_params *p, int32_t n);
void cpu_attention(struct compute *c, const struct attention_params *p, int32_t n);
void cpu_select_keys(struct compute *c, const struct select_keys_params *p, int32_t n);
void cpu_router(struct compute *c, const struct router_params *p, int32_t n);
void cpu_moe(struct compute *c, const struct moe_params *p, int32_t n);
void cpu_gather_rows(struct compute *c, float *out, const float *x, const int32_t *rows, int32_t n,
                     const struct gather_params *p);
void cpu_argmax(struct compute *c, int32_t *out, const float *x, int32_t n, int32_t dim);
void cpu_top_k(struct compute *c, const struct top_k_params *p, int32_t n);

/* -- training ops (signatures of struct compute_training) -- */
void cpu_gemm(struct compute *c, const struct gemm_params *p);
void cpu_rms_norm_backward(struct compute *c, float *d_x, float *d_w, const float *d_y, const float *x, const float *w,
                           int32_t n, const struct norm_backward_params *p);
void cpu_silu_mul_backward(struct compute *c, float *d_gate, float *d_up, const float *d_out, const float *gate,
                           const float *up, int64_t n_floats);
void cpu_ttt_attention(struct compute *c, const struct ttt_attention_params *p);
void cpu_ttt_attention_backward(struct compute *c, const struct ttt_attention_backward_params *p);
void cpu_softmax(struct compute *c, float *logits, int32_t n, int32_t dim);
void cpu_log_sums(struct compute *c, float *out, const float *x, int32_t n, int32_t dim);
void cpu_distill(struct compute *c, const struct distill_params *p);
void cpu_scatter_add_rows(struct compute *c, float *out, const float *x, const int32_t *rows, int32_t n, int32_t dim);
void cpu_scatter_add_repeated(struct compute *c, float *out, const float *x, const int32_t *rows, int32_t n, int32_t dim);
void cpu_sum_rows(struct compute *c, float *out, const float *x, int32_t n, int32_t dim);
void cpu_move_heads(struct compute *c, const struct move_heads_params *p, int32_t n);
double cpu_sum_squares(struct compute *c, const float *x, int64_t n);
void cpu_adamw(struct compute *c, float *w, float *m, float *v, const float *g, int64_t n,
               const struct adamw_params *p);
void cpu_muon(struct compute *c, float *w, float *m, const float *g, const struct muon_params *p);
void cpu_blend(struct compute *c, float *y, const float *x, float keep, int64_t n);

#endif
