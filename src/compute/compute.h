/* compute.h - the op table: everything arithmetic that the model, the draft head and the trainer do.
 *
 * One struct compute per device. All float pointers are activations in the device's memory (F32); index arrays are in device
 * memory too (see alloc/upload/download; on the CPU these are plain memory and memcpy). Output first. n = rows of the batch.
 *
 * Invariant (decision 3): a row's result of every inference op depends only on that row's inputs, bitwise: same order of
 * additions whatever n, the thread count and the other rows are. Training ops (second table) promise only determinism for a
 * given thread count and shape.
 *
 * Ops run in order on one stream; on the CPU they are synchronous, one OpenMP region per op. No op allocates.
 * Dimension letters: n rows, H hidden, D head dimension, V vocabulary, E experts, K experts per token, I intermediate width.
 */
#ifndef EAGLET_COMPUTE_COMPUTE_H
#define EAGLET_COMPUTE_COMPUTE_H

#include "compute/weight.h"

enum rope_style { ROPE_HALF, ROPE_INTERLEAVED }; /* pairs (i, i+d/2) or (2i, 2i+1) */
enum router_kind {
  ROUTER_SIGMOID_BIAS, /* sigmoid scores; groups are scored by their two best */
  ROUTER_SOFTMAX_ALL,  /* softmax over all experts, then the best; groups are scored by their best */
  ROUTER_TOPK_SOFTMAX, /* softmax over the best logits */
  ROUTER_SIGMOID_TOPK  /* the best logits, their sigmoids */
};
/* What a feed-forward layer applies to its gate (or, without a gate, to its hidden values). */
enum activation {
  ACTIVATION_SILU,
  ACTIVATION_GELU_TANH,
  ACTIVATION_GELU,          /* with erf */
  ACTIVATION_RELU2,         /* max(x, 0)^2 */
  ACTIVATION_SWIGLU_CLAMPED /* gpt-oss: g = min(gate, 7), u = clamp(up, -7, 7): g sigmoid(1.702 g) (u + 1) */
};
/* How an expert's gate and up projections are stored. */
enum gate_layout {
  GATE_UP_SEPARATE, /* two weights */
  GATE_UP_HALVES,   /* one weight [2I, H], gate rows first */
  GATE_UP_PAIRS     /* one weight [2I, H], rows 2j gate and 2j+1 up */
};

/* Rotates d = 2*n_pairs leading dimensions of each head. Angles come from a table so that every rope variant is data.
 * In place when out == x with equal strides; dimensions beyond d are not touched nor copied. */
struct rope_params {
  float *out;
  const float *x;
  int64_t out_row, out_head, x_row, x_head; /* strides in floats */
  int32_t n_heads, n_pairs;
  enum rope_style style;
  const float *cos, *sin;    /* [positions_max, n_pairs] */
  const int32_t *positions;  /* [n] */
  bool inverse;              /* rotate by the negative angle (backward) */
};

/* Attention of n rows over paged KV. One token's entry is entry_floats wide; its page is pool + page*page_tokens*entry_floats.
 * Head h of nh reads key  = entry[(h/group)*key_head .. +key_dim)  and  value = entry[value_offset + (h/group)*value_head .. +value_dim)
 * with group = n_heads/n_kv_heads. MLA's latent cache is the case n_kv_heads = 1, value_offset = 0, value_dim = kv rank.
 * Row i sees the slots 0..n_prefix[i]-1 of its sequence, then extra_slots[extra_begin[i] .. extra_begin[i+1]) (tree ancestors and
 * itself); extra arrays may be NULL (chains). A slot s of row i lives in page page_table[table_begin[i] + s/page_tokens].
 * The keys of a row in that order are its context; the last is the row itself. window > 0: only the last `window` of them are
 * visible. chunk > 0: only those of the row's own chunk (context positions c*chunk .. c*chunk + chunk - 1). softcap > 0: scores become
 * softcap * tanh(score / softcap). sinks: a logit per head that takes part in the softmax and has no value. Softmax in F32. */
struct attention_params {
  float *out;                /* [n, n_heads, value_dim] */
  const float *q;            /* [n, n_heads, key_dim] */
  const float *pool;
  const int32_t *page_table; /* pages of all sequences of the batch, one after the other */
  const int32_t *table_begin; /* [n] */
  const int32_t *n_prefix;   /* [n] */
  const int32_t *extra_slots, *extra_begin; /* [..], [n+1] or NULL */
  int32_t n_heads, n_kv_heads, key_dim, value_dim;
  int32_t key_head, value_head, value_offset, entry_floats, page_tokens;
  int32_t window, chunk;
  float scale, softcap;      /* 0: none */
  const float *sinks;        /* [n_heads] or NULL */
};

#define SELECT_CONTEXT_MAX 131072
/* Which keys of a row's context (as in attention_params) sparse attention reads: the n_kept with the largest
 * sum_h share[h] relu(q_h . key), key = entry[key_offset .. + dim), in context order; all where there are no more. Ties: the first.
 * The result has attention_params' form: no prefix, and extra slots. Contexts of at most SELECT_CONTEXT_MAX. */
struct select_keys_params {
  int32_t *slots, *begin, *none; /* out: [n * n_kept], [n + 1], [n] zeros: the n_prefix of such rows */
  const float *q, *share;        /* [n, n_heads, dim], [n, n_heads] */
  const float *pool;
  const int32_t *page_table, *table_begin, *n_prefix, *extra_slots, *extra_begin;
  int32_t n_heads, dim, n_kept, key_offset, entry_floats, page_tokens;
};

/* Copies row i's entry [entry_floats] to slot slots[i] of its sequence. */
struct kv_write_params {
  float *pool;
  const float *entries;      /* [n, entry_floats] */
  const int32_t *page_table, *table_begin, *slots; /* as above; slots [n] */
  int32_t entry_floats, page_tokens;
};

struct router_params {
  int32_t *expert;           /* out [n, K], by descending selection score, ties by lowest id */
  float *share;              /* out [n, K] combination weights */
  const float *logits;       /* [n, E] */
  const float *bias;         /* [E] F32 correction bias for selection only, or NULL */
  int32_t n_experts, n_picked, n_groups, n_groups_picked; /* groups 1/1: none */
  enum router_kind kind;
  bool normalise;            /* shares divided by their sum (+1e-20) */
  float scale;               /* routed_scaling_factor */
};

/* out[i] (+)= sum_k share[i,k] * (down_e(act(gate_e x_i) * up_e x_i) + down bias), e = expert[i,k], summed in order k. share_input: the
 * share multiplies x_i instead. scratch: compute_moe_scratch_floats(n, K, H, I). */
struct moe_params {
  float *out;                /* [n, H] */
  const float *x;            /* [n, H] */
  const struct weight *gate, *up, *down; /* [E] each; host arrays of structs; gate/up [I, H], down [H, I]; up NULL for joint layouts */
  const float *gate_bias, *down_bias; /* [E, gate's outputs], [E, H] or NULL */
  const int32_t *expert;     /* [n, K] */
  const float *share;        /* [n, K] */
  int32_t n_experts, n_picked;
  enum gate_layout layout;
  enum activation activation;
  bool accumulate, share_input;
  float *scratch;
};

#define MATMUL_PARTS_MAX 4
struct matmul_part;
struct matmul_heads_params;
struct norm_params;
struct scale_rows_params;
struct gather_params;
struct top_k_params;
struct compute_training;

struct compute {
  const char *name;          /* "cpu avx512" */
  enum eaglet_precision precision;
  /* -- memory -- */
  void *(*alloc)(struct compute *c, size_t bytes);  /* zeroed, 64-byte aligned, NULL when out of memory */
  void (*free)(struct compute *c, void *block);
  void (*upload)(struct compute *c, void *to, const void *from, size_t bytes);
  void (*download)(struct compute *c, void *to, const void *from, size_t bytes);
  void (*copy)(struct compute *c, void *to, const void *from, size_t bytes); /* inside the device; must not overlap */
  /* -- inference ops -- */
  void (*embed)(struct compute *c, float *out, const struct weight *table, const int32_t *ids, int32_t n); /* [n, n_in] */
  /* out[i, o] = W[o] . x[i]; rows of x are x_row floats apart, rows of out out_row apart (0: tight). */
  void (*matmul)(struct compute *c, float *out, const float *x, const struct weight *w, int32_t n, int64_t out_row, int64_t x_row);
  /* Several weights of the same n_in times the same rows, tight in x. */
  void (*matmul_many)(struct compute *c, const struct matmul_part *parts, int32_t n_parts, const float *x, int32_t n);
  /* Per head: out[i, h, :] = W_h x[i, h, :] (or W_h^T x), W_h = rows [h*rows_per_head + row_begin, + n_rows) of w.
   * not transposed: x [.., n_in], out [.., n_rows]; transposed: x [.., n_rows], out [.., n_in]. */
  void (*matmul_heads)(struct compute *c, const struct matmul_heads_params *p, int32_t n);
  /* y = x / sqrt(mean(x^2) + eps) * w; w F32 [w_rows, dim] or NULL (ones); rows x_row/out_row apart (0: dim). */
  void (*rms_norm)(struct compute *c, float *out, const float *x, const float *w, int32_t n, const struct norm_params *p);
  /* y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w + bias; bias [dim] or NULL; not in place with other strides. */
  void (*layer_norm)(struct compute *c, float *out, const float *x, const float *w, int32_t n, const struct norm_params *p);
  void (*add)(struct compute *c, float *out, const float *a, const float *b, int64_t n_floats); /* out = a + b; may alias */
  void (*add_bias)(struct compute *c, float *x, const float *bias, int32_t n, int32_t dim);
  void (*add_scaled)(struct compute *c, float *x, const float *a, float scale, int64_t n_floats); /* x += scale * a */
  void (*scale)(struct compute *c, float *x, float factor, int64_t n_floats);                    /* x *= factor */
  void (*softcap)(struct compute *c, float *x, float cap, int64_t n_floats);                     /* x = cap tanh(x / cap) */
  void (*scale_rows)(struct compute *c, float *x, const struct scale_rows_params *p, int32_t n);
  /* out = act(gate) * up, or act(gate) when up is NULL; may alias. */
  void (*activate)(struct compute *c, float *out, const float *gate, const float *up, int64_t n_floats, enum activation kind);
  void (*silu_mul)(struct compute *c, float *out, const float *gate, const float *up, int64_t n_floats); /* silu(gate)*up */
  void (*rope)(struct compute *c, const struct rope_params *p, int32_t n);
  void (*kv_write)(struct compute *c, const struct kv_write_params *p, int32_t n);
  void (*attention)(struct compute *c, const struct attention_params *p, int32_t n);
  void (*select_keys)(struct compute *c, const struct select_keys_params *p, int32_t n);
  void (*router)(struct compute *c, const struct router_params *p, int32_t n);
  void (*moe)(struct compute *c, const struct moe_params *p, int32_t n);
  /* out[i, :] = x[rows[i], :]; dim floats; x rows x_row apart, out rows out_row apart (0: dim). */
  void (*gather_rows)(struct compute *c, float *out, const float *x, const int32_t *rows, int32_t n, const struct gather_params *p);
  void (*argmax)(struct compute *c, int32_t *out, const float *x, int32_t n, int32_t dim); /* ties: lowest index */
  /* The k largest of each row, the largest first, with the logarithms of their shares in softmax(row). Ties: lowest index. */
  void (*top_k)(struct compute *c, const struct top_k_params *p, int32_t n);
  const struct compute_training *training; /* NULL where a device cannot train */
};

struct matmul_part {
  float *out;
  int64_t out_row; /* floats between rows; 0: n_out */
  const struct weight *w;
};
struct matmul_heads_params {
  float *out;
  const float *x;
  const struct weight *w;
  int32_t n_heads, rows_per_head, row_begin, n_rows;
  bool transpose;
  int64_t out_row, out_head, x_row, x_head; /* strides in floats */
};
/* x[i, :] *= factors[index[i]], or 1 / (1 + exp(-gate[i])) when factors is NULL. */
struct scale_rows_params {
  const float *factors;
  const int32_t *index; /* [n] */
  const float *gate;    /* [n] */
  int32_t dim;
};
struct norm_params {
  int32_t dim;
  int32_t w_rows;         /* row i is multiplied by weight row i % w_rows (per-head weights); 0: one row of weights */
  float eps;
  const float *bias;      /* layer_norm only */
  int64_t x_row, out_row; /* 0: dim */
};
#define TOP_K_MAX 32
struct top_k_params {
  int32_t *ids;             /* out [n, k] */
  float *log_probabilities; /* out [n, k] */
  const float *x;           /* [n, dim] */
  int32_t dim, k;           /* k <= TOP_K_MAX, k <= dim */
};
struct gather_params {
  int32_t dim;
  int64_t x_row, out_row; /* 0: dim */
};

/* Opens the CPU backend: picks kernels for the machine (AVX-512, AVX2+FMA, scalar), sets the team size (0: all available). */
enum eaglet_status compute_open_cpu(struct compute **c, int n_threads, enum eaglet_precision precision,
                                    struct eaglet_error *err) MUST_USE;
void compute_close(struct compute *c);
int64_t compute_moe_scratch_floats(int32_t n, int32_t n_picked, int32_t hidden, int32_t intermediate);

#endif
