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

/* What the draft shall learn of one target distribution. Letters: p the target's distribution over its whole vocabulary; D the draft
 * vocabulary; m = sum_{v in D} p_v; s = p restricted to D and divided by m; q the draft's, a distribution on D.
 *
 * Which p a loss sees is the matter of `outside`; what of a slot whose argmax is not in D is the caller's (it drops the slot or not):
 *
 *              in kl, lambda's KL    in alpha      slots whose argmax is outside D
 *   drop       s                     m s           carry no loss
 *   residual   m s                   m s           stay; the mass outside D, which q cannot have, costs a constant
 *   renorm.    s                     s             stay
 *
 * Losses, l the logits, d loss / d l_j on the right:
 *
 *   kl     -sum_v p_v log q_v                      (sum_v p_v) q_j - p_j        forward KL less the entropy of p, which has no gradient.
 *                                                                               Li et al. 2025, EAGLE-3 (arXiv 2503.01840)
 *   ce     -log q_label                            q_j - [j = label]            label outside D: 0 and no gradient
 *   alpha  -log a                                  q_j (c - [q_j <= p_j]) / a   a = sum_v min(p_v, q_v), the chance that a draft drawn from q
 *                                                                               is accepted (Leviathan et al. 2023, arXiv 2211.17192) and
 *                                                                               1 - the total variation; c = sum of q_v where q_v <= p_v.
 *                                                                               c <= a: the gradient's terms add up to 2 at most, however
 *                                                                               small a is, so a needs no floor
 *   lambda w kl + (1 - w)(1 - a)                   w kl' + (1 - w) q_j (c - [q_j <= p_j])
 *                                                  w = kl_scale exp(-kl_decay a), held fixed when the gradient is taken
 *
 * alpha and lambda: Samarin et al., "LK Losses" (arXiv 2602.23881). Both are taken slot by slot, as speculators does; SpecForge takes the mean
 * of a over a batch first, which would make a result depend on how rows fall into micro-batches. */
struct objective {
  enum eaglet_loss loss;         /* 0: kl */
  enum eaglet_outside outside;   /* 0: drop */
  float kl_scale, kl_decay;      /* of lambda; kl_scale in [0, 1], kl_decay not negative */
};

/* The objective of n rows of draft logits. No buffer of its own: everything happens in the rows of logits. */
struct distill_params {
  int32_t n, n_vocab;            /* rows; draft vocabulary */
  float *logits;                 /* [n, Vd] in: draft logits; out: d loss / d logits * weight_i */
  const float *target;           /* [n_targets, Vd] s: target probabilities on the draft vocabulary, each row sums to one */
  const float *mass;             /* [n_targets] m, or NULL: 1 */
  const int32_t *choice;         /* [n_targets] the target's argmax over its whole vocabulary as a draft id, -1: outside; NULL: the row's argmax */
  const int32_t *label;          /* [n_targets] of ce, as a draft id, -1: outside; NULL: choice */
  const int32_t *target_row;     /* [n] row of target for row i */
  const float *weight;           /* [n] gradient weight (0: no loss) */
  struct objective objective;
  float *loss;                   /* [n] out, unweighted */
  float *acceptance;             /* [n] out or NULL: sum_v min(p_v, q_v) with p = m s, whatever the objective */
  uint8_t *hit;                  /* [n] out, the draft's argmax is choice */
};

struct adamw_params {
  float lr, beta1, beta2, eps, weight_decay;
  int64_t step;                  /* from 1 */
  float grad_scale;              /* clipping factor applied to g */
};

/* Muon's step of one matrix (train/optimizer.h has the sources). With g scaled by grad_scale:
 *   m = momentum m + (1 - momentum) g;  d = momentum m + (1 - momentum) g
 *   x = d / |d|, transposed when it has more rows than columns; five times x = a x + (b (x x^T) + c (x x^T)^2) x
 *   w = (1 - lr weight_decay) w - lr 0.2 sqrt(max(rows, columns)) x
 * (a, b, c) = (3.4445, -4.7750, 2.0315): singular values end between about 0.7 and 1.2, not at one, which is as good and quicker. */
struct muon_params {
  int32_t rows, columns;
  float lr, momentum, weight_decay;
  float grad_scale;
  float *work;                   /* [muon_work_floats] */
};
static inline size_t muon_work_floats(int64_t rows, int64_t columns) {
  size_t least = (size_t)(rows < columns ? rows : columns);
  return 2 * (size_t)rows * (size_t)columns + 2 * least * least;
}

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
  void (*log_sums)(struct compute *c, float *out, const float *x, int32_t n, int32_t dim); /* out[i] = log sum_k exp x[i][k]; [n, dim] */
  void (*distill)(struct compute *c, const struct distill_params *p);
  void (*scatter_add_rows)(struct compute *c, float *out, const float *x, const int32_t *rows, int32_t n, int32_t dim); /* out[rows[i]] += x[i]; rows distinct */
  /* out[rows[i]] += x[i] in order of i; rows may repeat, negative ones are left out (gradient of an embedding). */
  void (*scatter_add_repeated)(struct compute *c, float *out, const float *x, const int32_t *rows, int32_t n, int32_t dim);
  void (*sum_rows)(struct compute *c, float *out, const float *x, int32_t n, int32_t dim); /* out[k] += sum of x[i, k] (gradient of a bias) */
  void (*move_heads)(struct compute *c, const struct move_heads_params *p, int32_t n);
  double (*sum_squares)(struct compute *c, const float *x, int64_t n);
  void (*adamw)(struct compute *c, float *w, float *m, float *v, const float *g, int64_t n, const struct adamw_params *p);
  void (*muon)(struct compute *c, float *w, float *m, const float *g, const struct muon_params *p); /* [rows, columns] each */
  void (*blend)(struct compute *c, float *y, const float *x, float keep, int64_t n); /* y = keep y + (1 - keep) x */
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
