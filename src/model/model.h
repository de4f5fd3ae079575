/* model.h - a target model: features, weights bound to the checkpoint, rope tables. Immutable after open; shared by every
 * forward. Binding is validation: each weight's name, dtype and shape are checked against the features, every tensor under the
 * text prefix must be consumed or be on the list of known-harmless names (rotary inv_freq, MTP layers >= n_layers, ...), anything
 * else fails by name.
 */
#ifndef EAGLET_MODEL_MODEL_H
#define EAGLET_MODEL_MODEL_H

#include "model/arch.h"

/* F32 in device memory. */
struct norm_weights {
  const float *w, *bias;                          /* w NULL: there is no such norm; bias NULL: none */
};
struct attention_weights {
  struct weight q, k, v, o;                       /* GQA; MLA without q_rank uses q */
  struct weight q_a, q_b, kv_a, kv_b;             /* MLA */
  const float *q_a_norm, *kv_a_norm, *q_norm, *k_norm; /* F32, device memory; NULL when absent */
  const float *q_bias, *k_bias, *v_bias, *o_bias, *q_a_bias, *kv_a_bias;
  const float *sinks;                             /* [n_heads] or NULL */
  struct weight index_q, index_k, index_share;    /* sparse attention's scorer: of the low-rank query, of the row, of the row */
  struct norm_weights index_k_norm;
};
struct ffn_weights {
  int32_t n_experts, n_picked;                    /* dense: 1, 1 */
  struct weight *gate, *up, *down;                /* [n_experts]; gate NULL: not gated; up NULL: gate holds both (layout) */
  enum gate_layout layout;
  const float *gate_bias, *up_bias, *down_bias;   /* [n_experts, outputs] or NULL */
  struct weight router;                           /* absent when dense */
  const float *router_bias, *correction_bias;     /* [E] F32 or NULL */
  struct weight shared_gate, shared_up, shared_down; /* absent when none */
  const float *shared_gate_bias, *shared_up_bias, *shared_down_bias; /* or NULL */
  struct weight shared_share;                     /* [1, H]: sigmoid of it scales the shared expert; absent: 1 */
};
struct layer_weights {
  struct norm_weights attention_in, attention_out, ffn_in, ffn_out; /* [H] */
  struct attention_weights attention;
  struct ffn_weights ffn;
};

struct rope_table {
  float *cos, *sin;                               /* [n_positions, n_pairs], device memory */
  int32_t n_positions, n_pairs;
  enum rope_style style;
};
/* The cos/sin factor of yarn and longrope is multiplied in. Scalings that follow the context's length are those of n_positions. */
enum eaglet_status rope_table_init(struct rope_table *table, struct compute *c, const struct rope_features *rope,
                                   int32_t n_positions, struct eaglet_error *err) MUST_USE;
void rope_table_release(struct rope_table *table, struct compute *c);

/* One way in which linears of a checkpoint are quantised; zero where the config does not say. */
struct quantization_scheme {
  int32_t bits, group;                            /* group -1: one scale per output or tensor */
  int32_t block[2];                               /* outputs, inputs per scale */
  bool symmetric, is_float;
};
#define QUANTIZATION_SCHEMES_MAX 64
/* How quantised linears are stored; parameters only, which linears are quantised, and how, is decided by the tensors that exist
 * (linear.h), which pick the scheme that fits them. */
struct quantization {
  char from[64];                                  /* "text_config.quantization_config"; "" when the checkpoint has none */
  char method[32], format[32];
  int32_t bits, group;                            /* of the first scheme */
  bool symmetric;
  int32_t n_schemes;
  struct quantization_scheme schemes[QUANTIZATION_SCHEMES_MAX];
  bool gptq_v2;                                   /* zero points are stored as they are, not less one */
  /* -- counted while linears are bound -- */
  int32_t n_static_inputs;                        /* activation scales that were ignored: activations stay F32 */
  int32_t n_zeros_as_v1, n_zeros_as_v2;           /* GPTQ zero points that contradicted checkpoint_format */
  int32_t n_zeros_v1_asymmetric;                  /* old writers borrowed between fields here */
};
/* Nibble statistics of one INT4 weight: offset binary is bell-shaped around code 8, two's complement would peak at 0 and 15. */
struct nibble_check {
  char tensor[192];                               /* "" when nothing is INT4 */
  double center, edge, lowest;                    /* shares of codes 6..9; 0, 1, 14, 15; 0 alone */
};

struct model {
  struct checkpoint checkpoint;
  struct arch arch;                               /* features at arch.features */
  struct compute *compute;                        /* borrowed */
  struct weight embed, head;                      /* [V, H] */
  struct weight position_embed;                   /* [positions, H] learned positions, or absent */
  const float *head_bias;                         /* [V] or NULL */
  struct norm_weights norm;                       /* [H] final norm */
  struct layer_weights *layers;                   /* [n_layers] */
  int32_t n_positions;                            /* contexts may be as long as this */
  struct rope_table rope[ROPES_MAX];              /* features.n_ropes */
  float *query_scale;                             /* device [n_positions], or NULL */
  float *small;                                   /* one device blob: norms and biases as F32 */
  uint64_t n_vector_elements;                     /* of norms, biases and their like in the file */
  uint64_t resident_bytes;                        /* weights as kept */
  struct quantization quantization;
  struct nibble_check nibbles;
  size_t n_ignored;                               /* tensors of other modalities, prediction layers ... */
  uint64_t ignored_bytes;
  int32_t stop_ids[ARCH_STOPS_MAX], n_stop_ids;   /* union of generation_config and config eos ids (Kimi adds <|im_end|> there) */
};

struct model_params {
  const char *path;                               /* resolved directory */
  bool ignore_index;                              /* checkpoint_params */
  struct compute *compute;
  int32_t positions_max;                          /* rope table length; 0: config's, capped at 4096 */
};
enum eaglet_status model_open(struct model **model, const struct model_params *params, struct eaglet_error *err) MUST_USE;
void model_close(struct model *model);

/* Default captured states (eagle3.md §0: inputs of layers 2, N/2, N-3), ascending, in decision 4's numbering; shallow models
 * get distinct states >= 1. Returns how many (3, or fewer when n_layers < 3). */
int32_t model_default_states(const struct features *features, int32_t states[3]);

/* inspect's document: chain, features with provenance, layers, sizes per module kind and format, default states, INT4 nibble
 * self-check. Caller owns the object. */
json_t *model_describe(const struct model *model);

#endif
