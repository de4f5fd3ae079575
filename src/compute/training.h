/* training.h - ops that only the trainer and the head's backward use. Same conventions as compute.h; F32.
 *
 * Slots: the head is trained on S slots of several conversations laid one after the other ("segments"). Step 0 holds keys of
 * all slots; unrolled step k >= 1 holds one key per slot that is still active. See docs/EAGLE3.md.
 */
#ifndef EAGLET_COMPUTE_TRAINING_H
#define EAGLET_COMPUTE_TRAINING_H

#include "compute/compute.h"

/* Attention of the training-time test. Query row i of step k belongs to slot s = slot[i] of a segment starting at first[i]. It sees the step-0
 * keys of slots first[i]..s and, for j = 1..k, the key of row `i` of step j (rows of later steps are subsets of earlier ones:
 * step_row[j][i] is the row in step j's arrays that belongs to the same slot). In this order they are the row's context, as in
 * attention_params; window > 0: only the last `window` of them are visible. */
struct ttt_attention_params {
  int32_t n, n_heads, n_kv_heads, head_dim; /* n query rows */
  int32_t value_dim;             /* E, of a value; 0: head_dim */
  int32_t window;
  int32_t n_steps;               /* k: number of extra diagonal keys */
  const int32_t *slot, *first;   /* [n] */
  const int32_t *const *step_row; /* [k+1]; entries 1..k: [n] */
  const float *q;                /* [n, n_heads, D], rotated */
  const float *const *key, *const *value; /* [k+1]: step 0 [S, n_kv_heads, D or E]; step j [n_j, n_kv_heads, D or E] */
  float scale;
  float *out;                    /* [n, n_heads, E] */
  float *log_sum;                /* [n, n_heads] log-sum-exp, kept for backward */
};
struct ttt_attention_backward_params {
  struct ttt_attention_params forward;
  const float *d_out;            /* [n, n_heads, E] */
  float *d_q;                    /* [n, n_heads, D] written */
  float *const *d_key, *const *d_value; /* [k+1] accumulated */
};

/* Soft cross-entropy on the draft vocabulary (EAGLE-3): loss_i = -sum_v p_iv log q_iv. */
struct distill_params {
  int32_t n, n_vocab;            /* rows; draft vocabulary */
  float *logits;                 /* [n, Vd] in: draft logits; out: d loss / d logits * weight_i */
  const float *target;           /* [n_targets, Vd] target probabilities */
  const int32_t *target_row;     /* [n] row of target for row i */
  const float *weight;           /* [n] gradient weight (0: no loss) */
  float *loss;                   /* [n] out, unweighted */
  uint8_t *hit;                  /* [n] out, argmax agrees */
};

struct adamw_params {
  float lr, beta1, beta2, eps, weight_decay;
  int64_t step;                  /* from 1 */
  float grad_scale;              /* clipping factor applied to g */
};

struct gemm_params;
struct norm_backward_params;
struct move_heads_params;

struct compute_training {
  /* C[m, n] = alpha * op(A) op(B) + beta * C, row-major, oneDNN. lda etc. in floats. */
  void (*gemm)(struct compute *c, const struct gemm_params *p);
  void (*rms_norm_backward)(struct compute *c, float *d_x, float *d_w, const float *d_y, const float *x, const float *w, int32_t n,
                            const struct norm_backward_params *p);
  void (*silu_mul_backward)(struct compute *c, float *d_gate, float *d_up, const float *d_out, const float *gate, const float *up,
                            int64_t n_floats);
  void (*ttt_attention)(struct compute *c, const struct ttt_attention_params *p);
  void (*ttt_attention_backward)(struct compute *c, const struct ttt_attention_backward_params *p);
  /* p[i] = softmax(logits[i]) in place; [n, dim]. */
  void (*softmax)(struct compute *c, float *logits, int32_t n, int32_t dim);
  void (*distill)(struct compute *c, const struct distill_params *p);
  void (*scatter_add_rows)(struct compute *c, float *out, const float *x, const int32_t *rows, int32_t n, int32_t dim); /* out[rows[i]] += x[i]; rows distinct */
  /* out[rows[i]] += x[i] in order of i; rows may repeat, negative ones are left out (gradient of an embedding). */
  void (*scatter_add_repeated)(struct compute *c, float *out, const float *x, const int32_t *rows, int32_t n, int32_t dim);
  void (*sum_rows)(struct compute *c, float *out, const float *x, int32_t n, int32_t dim); /* out[k] += sum of x[i, k] (gradient of a bias) */
  void (*move_heads)(struct compute *c, const struct move_heads_params *p, int32_t n);
  double (*sum_squares)(struct compute *c, const float *x, int64_t n);
  void (*adamw)(struct compute *c, float *w, float *m, float *v, const float *g, int64_t n, const struct adamw_params *p);
};

struct gemm_params {
  int32_t m, n, k;
  bool transpose_a, transpose_b;
  float alpha, beta;
  const float *a, *b;
  float *c;
  int64_t lda, ldb, ldc; /* 0: tight */
};
/* out[i, h, 0..dim) = (accumulate: +=) x[i, h, 0..dim) between layouts of heads. x_head 0 gives every head the same, out_head 0 with
 * accumulate sums over the heads in order. */
struct move_heads_params {
  float *out;
  const float *x;
  int32_t n_heads, dim;
  int64_t out_row, out_head, x_row, x_head; /* strides in floats */
  bool accumulate;
};
struct norm_backward_params {
  int32_t dim;
  float eps;
  bool accumulate_x; /* d_x += instead of = ; d_w always accumulates */
  int64_t x_row, dy_row, dx_row; /* 0: dim */
};

#endif
