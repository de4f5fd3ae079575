/* head_training_internal.h - between the files of the unrolled training step: what it keeps, and the pieces that it consists of. Every piece
 * has its forward and its backward beside each other: inputs (states and embeddings to the first layer's rows), a layer (attention of
 * either kind, feed-forward), and the linears and norms that all of them are made of.
 *
 * Invariants. A layer of a step has in-rows, those with keys, and out-rows, those whose output somebody needs. They are the same but in the
 * last layer of step 0, where every slot has keys and only active ones go on. Forward fills struct step; backward goes through the
 * steps from the last to the first and carries one gradient, of the residual stream, in `stream`.
 *
 * Letters: S slots, n rows, H hidden, W what a layer's attention reads (2H in the first, else H), nh / nkv heads, D width of a key, E of a
 * value, I intermediate; MLA: r / qr ranks, dn / dr plain and rotated part of a key (D = dn + dr).
 */
#ifndef EAGLET_DRAFT_HEAD_TRAINING_INTERNAL_H
#define EAGLET_DRAFT_HEAD_TRAINING_INTERNAL_H

#include "draft/head_training.h"

#include "base/memory.h"
#include "model/model.h"

#define STEPS_MAX 15

/* Sizes by which all layers are made. */
struct head_sizes {
  int32_t h, wide;           /* wide: of the fused states */
  int32_t n_heads, n_kv_heads, key, value; /* MLA: every head has keys and values of its own */
  int32_t q_rank, kv_rank, nope, rope;     /* MLA, else 0 */
  int32_t inter;
  float scale, eps, inner_eps;
};

/* Rows of one layer in one step. */
struct row_set {
  int32_t n;
  const int32_t *slot, *row_in;    /* [n] the slot; its place among the in-rows */
  const int32_t *position, *first; /* [n] rope position; first slot of its segment */
};

/* What a layer keeps of a step for backward. With recompute only keys, values, their gradients and the last z outlive their step; the rest is
 * made again. */
struct layer_step {
  const float *x;            /* [n_in, H] the residual stream that enters; of the first layer: struct step's */
  float *u;                  /* [n_in, W] what keys are made of */
  float *u_out;              /* [n, W] what queries are made of: u, or the out-rows of it */
  float *key, *value;        /* [n_in, nkv, D], [n_in, nkv, E] */
  float *d_key, *d_value;    /* their gradients, joined over steps */
  float *q, *attended;       /* [n, nh, D], [n, nh, E] */
  float *log_sum;            /* [n, nh] */
  float *q_raw, *key_raw;    /* before their norms: GQA with norms like q and key; MLA [n, qr], [n_in, r + dr] */
  float *q_low, *latent;     /* MLA: behind their norms [n, qr], [n_in, r] */
  float *y, *y_normed;       /* [n, H] */
  float *gate, *up, *act;    /* [n, I] */
  float *z;                  /* [n, H] */
};

/* What one unrolled step keeps. */
struct step {
  int32_t n, n_in;
  int32_t *slot;                   /* [n] */
  int32_t *row_in;                 /* [n] the active row's index among the in-rows */
  int32_t *row_before;             /* [n] its index among step k-1's active rows (k >= 1) */
  int32_t *position, *first;       /* [n] */
  int32_t *slot_in, *position_in, *first_in; /* [n_in] */
  int32_t *token;                  /* [n_in] of the embedding, -1: none; where the head has an embedding of its own */
  int32_t *in_step[STEPS_MAX + 1]; /* [n] its row in step j's key arrays, j = 1..k */
  float *fused;                    /* [n_in, wide] step 0, where fc has norms before it */
  float *embedding, *g;            /* [n_in, H] */
  float *u;                        /* [n_in, 2H] */
  float *z_normed;                 /* [n, H] */
  float *d_normed;                 /* [n, H] gradient of z_normed from the loss */
  struct layer_step *layers;       /* [n_layers] */
};

struct head_training {
  struct head_config config;
  struct head_parameters places;
  struct head_sizes sizes;
  struct compute *compute;
  struct rope_table rope;
  int32_t slots_max, n_steps, n_layers;
  struct step steps[STEPS_MAX];
  struct layer_step *layers; /* [unroll_max, n_layers]: the memory of steps[].layers */
  struct arena floats, ints;
  bool recompute;            /* steps take turns in one step's memory; backward computes each again */
  bool planning;             /* take counts what a full micro-batch needs instead of taking it */
  size_t planned;
  float *logits, *loss, *weight; /* chunk */
  uint8_t *hit;
  int32_t *target_row;
  int32_t chunk_rows;
  /* temporaries of S rows: the gradient of the residual stream and room for its next value; of u; of the rest */
  float *stream, *spare;       /* [S, H] */
  float *d_u;                  /* [S, 2H] */
  float *scratch_i, *scratch_i2; /* [S, I] */
  float *d_q, *d_attended;     /* [S, nh, D], [S, nh, E] */
  float *d_low, *d_latent;     /* MLA [S, qr], [S, r + dr] */
  float *kv;                   /* MLA [S, nh, dn + E] */
  double flops;
  /* of the run at hand; borrowed */
  const float *parameters;
  float *gradients;
  const struct micro_batch *batch;
};

/* ---- head_training_ops.c ---- */

/* A linear or a norm: which part of which layer (0 outside of layers). */
struct module {
  enum head_part part;
  int32_t index;
};
/* The place in a block of a part outside of layers, which the head has. Gradient: NULL for what is frozen. */
static inline const float *parameter(const struct head_training *t, const float *block, enum head_part part) {
  return block + head_parameter_find(&t->places, part, 0)->offset;
}
static inline float *gradient(const struct head_training *t, float *block, enum head_part part) {
  const struct head_parameter *place = head_parameter_find(&t->places, part, 0);
  return place->frozen ? NULL : block + place->offset;
}

struct linear {
  int32_t n, n_out, n_in;
};
/* y = x W^T. */
static inline void linear_forward(struct head_training *t, float *y, const float *x, const float *w, struct linear l) {
  const struct gemm_params p = {
      .m = l.n, .n = l.n_out, .k = l.n_in, .transpose_b = true, .alpha = 1, .a = x, .b = w, .c = y};
  t->compute->training->gemm(t->compute, &p);
  t->flops += 6.0 * l.n * l.n_out * l.n_in; /* forward, and the two products of its backward */
}
/* d_x = d_y W + beta d_x. */
static inline void linear_back_x(struct head_training *t, float *d_x, const float *d_y, const float *w, struct linear l,
                                 float beta) {
  const struct gemm_params p = {
      .m = l.n, .n = l.n_in, .k = l.n_out, .alpha = 1, .beta = beta, .a = d_y, .b = w, .c = d_x};
  t->compute->training->gemm(t->compute, &p);
}
/* d_w += d_y^T x; d_w NULL: frozen. */
static inline void linear_back_w(struct head_training *t, float *d_w, const float *d_y, const float *x, struct linear l) {
  const struct gemm_params p = {
      .m = l.n_out, .n = l.n_in, .k = l.n, .transpose_a = true, .alpha = 1, .beta = 1, .a = d_y, .b = x, .c = d_w};
  if (d_w) t->compute->training->gemm(t->compute, &p);
}

/* y = x W^T + b of n rows; the gradients of W and b; d_x = d_y W + beta d_x. */
void training_module_forward(struct head_training *training, struct module module, float *y, const float *x, int32_t n);
void training_module_back_w(struct head_training *training, struct module module, const float *d_y, const float *x, int32_t n);
void training_module_back_x(struct head_training *training, struct module module, float *d_x, const float *d_y, int32_t n, float beta);

/* A norm over rows that lie `row` floats apart (0: tight). */
struct norm_rows {
  int32_t n, dim;
  float eps;
  int64_t x_row, y_row, dx_row;
  bool accumulate; /* d_x += */
};
void training_norm_forward(struct head_training *training, struct module module, float *y, const float *x, struct norm_rows rows);
/* d_x may be d_y when rows are tight or equal. */
void training_norm_back(struct head_training *training, struct module module, float *d_x, const float *d_y, const float *x,
               const struct norm_rows *rows);

/* Rotates, in place, the first pairs of n_heads heads that start at x. */
struct rotation {
  int32_t n_heads;
  int64_t row, head; /* floats between rows, between heads */
  bool inverse;
};
void training_rotate(struct head_training *training, float *x, const struct row_set *rows, struct rotation rotation);

/* ---- the pieces ---- */

struct row_set training_rows_in(const struct head_training *training, int32_t k);
struct row_set training_rows_out(const struct head_training *training, int32_t k, int32_t layer);

/* inputs: step k's u and where its residual stream starts. Backward: from d_u and stream (both of in-rows) to the gradient of the feature, left in
 * stream, and at step 0 on to fc. */
void training_inputs_forward(struct head_training *training, int32_t k);
void training_inputs_back(struct head_training *training, int32_t k);

/* A layer. Backward: stream holds the gradient of z (out-rows) and then that of the residual stream that entered (in-rows); the first layer
 * leaves the gradient of u in d_u. Steps come from the last to the first, because they join their keys' gradients. */
void training_layer_forward(struct head_training *training, int32_t k, int32_t layer);
void training_layer_back(struct head_training *training, int32_t k, int32_t layer);

/* Attention's two kinds: from u to keys, values and queries, rotated, and from their gradients to d_u and to that of u_out (joined to d_x with
 * factor beta). */
struct attention_form {
  void (*keys)(struct head_training *training, int32_t k, int32_t layer);
  void (*queries)(struct head_training *training, int32_t k, int32_t layer);
  void (*keys_back)(struct head_training *training, int32_t k, int32_t layer);
  void (*queries_back)(struct head_training *training, int32_t k, int32_t layer, float *d_x, float beta);
};
extern const struct attention_form training_attention_grouped; /* head_training_gqa.c */
extern const struct attention_form training_attention_latent;  /* head_training_mla.c */

#endif
