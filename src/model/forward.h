/* forward.h - THE layer loop. Every use of the target is forward_run with another batch.
 *
 * States are numbered as decision 4 says: state k is the residual stream after k layers; 0 the embeddings, n_layers the last
 * layer's output before the final norm. A run may start from a given state (proof of capture) and may capture any states.
 *
 * A struct forward owns the activations of up to rows_max rows; nothing is allocated in a run after the first of its kind. The building blocks
 * block_attention and block_ffn are the only code that knows attention and FFN arithmetic; the draft head calls them too.
 */
#ifndef EAGLET_MODEL_FORWARD_H
#define EAGLET_MODEL_FORWARD_H

#include "model/batch.h"
#include "model/model.h"

#define TAPS_MAX 16
#define TREE_DEPTH_MAX 32 /* ancestors of a tree row, itself included */

struct tap_set {
  int32_t n;
  int32_t states[TAPS_MAX]; /* ascending, distinct */
};

/* Row metadata in device memory, built once per run from the batch. */
struct row_index {
  int32_t n;
  int32_t *tokens, *positions, *slots, *table_begin, *n_prefix; /* [rows_max] */
  int32_t *page_table;                                          /* pages of all sequences of the batch */
  int32_t *extra_slots, *extra_begin;                           /* tree rows; extra_begin NULL when the batch has no tree row */
  int32_t *extra_slots_memory, *extra_begin_memory;             /* what the two point to when there is one */
  int32_t rows_max, pages_max;
  struct row_staging *staging;                                  /* host copies */
};

struct block_scratch; /* activations inside a block: q, latent, scores ... sized for a shape set and rows_max */
/* Shapes that a scratch must serve; the head passes its own. */
struct block_shape {
  int32_t hidden, input;    /* attention reads input-wide rows (head: 2H), adds hidden-wide rows */
  enum attention_kind attention;
  int32_t n_heads, n_kv_heads, head_dim;
  int32_t q_rank, kv_rank, nope_dim, rope_dim, value_dim;
  int32_t intermediate, moe_intermediate, n_experts, n_picked, shared_intermediate;
  double attention_scale, norm_eps, inner_norm_eps;
  double attention_softcap; /* 0: none */
  bool qk_layer_norm;       /* q and k are normalised with their mean taken out */
  enum qk_norm qk_norm;
  bool qk_norm_after_rope;
  enum activation activation;
  enum router_kind router;
  bool router_normalise;
  double router_scale;
  int32_t n_groups, n_groups_picked;
  bool share_input;
  struct sparse_features sparse;
};
void block_shape_from_features(struct block_shape *shape, const struct features *features);
int32_t model_kv_entry_floats(const struct model *model); /* of the model's every layer */
int32_t block_kv_entry_floats(const struct block_shape *shape); /* MLA: kv_rank + rope_dim; GQA: 2 * n_kv_heads * head_dim */
enum eaglet_status block_scratch_create(struct block_scratch **scratch, struct compute *c, const struct block_shape *shape,
                                        int32_t rows_max, struct eaglet_error *err) MUST_USE;
void block_scratch_free(struct block_scratch *scratch, struct compute *c);

/* out[n, hidden] = attention(x[n, input]); writes the rows' KV entries into `pool` (one layer). */
struct block_attention_params {
  float *out;
  const float *x;
  const struct attention_weights *weights;
  const struct rope_table *rope; /* NULL: positions are not rotated */
  const float *query_scale;      /* [positions], or NULL */
  int32_t window, chunk;         /* as in struct attention_params */
  float *pool;
  const struct row_index *rows;
};
void block_attention(struct block_scratch *scratch, struct compute *c, const struct block_attention_params *p);
/* out[n, hidden] = ffn(x[n, hidden]); out != x. */
void block_ffn(struct block_scratch *scratch, struct compute *c, float *out, const float *x, const struct ffn_weights *weights,
               int32_t n);

void row_index_init(struct row_index *index, struct compute *c, int32_t rows_max, int32_t pages_max);
void row_index_build(struct row_index *index, struct compute *c, const struct batch *batch); /* uploads */
void row_index_release(struct row_index *index, struct compute *c);

/* The last step of every forward, for those who hold a residual or a normed row already: out[n, H] = final norm of x[n, H]; logits[n, V]
 * of normed[n, H], scaled and capped as the model has it. */
void model_final_norm(struct compute *c, const struct model *model, float *out, const float *x, int32_t n);
void model_logits(struct compute *c, const struct model *model, float *logits, const float *normed, int32_t n);

struct forward;
enum eaglet_status forward_create(struct forward **forward, const struct model *model, int32_t rows_max, int32_t pages_max,
                                  struct eaglet_error *err) MUST_USE;
void forward_free(struct forward *forward);

struct forward_run {
  const struct batch *batch;
  struct kv_cache *kv;
  struct tap_set taps;
  const float *start;      /* device [n, H]: the residual at start_state, or NULL: embed the tokens */
  int32_t start_state;     /* layers start_state .. n_layers-1 run */
  bool no_head;            /* stop before norm and head (extraction of states only) */
  /* results, valid until the next run, device memory; the first run that needs them makes room for rows_max rows: */
  float *logits;           /* [n_logits, V], rows that want logits in batch order */
  int32_t n_logits;
  float *tapped;           /* [n, taps.n * H], states side by side */
  float *normed;           /* [n_logits, H] final norm of those rows */
};
enum eaglet_status forward_run(struct forward *forward, struct forward_run *run, struct eaglet_error *err) MUST_USE;

#endif
