/* arch.h - what a decoder is made of: features read from config.json and cross-checked against tensors. A new architecture is a
 * table row (names and defaults) plus a reference test; nothing in the project switches on an architecture's name.
 *
 * Two halves: struct features describes one resolved model; the table (arch_table.c) maps the inner model_type to a row of
 * defaults. A model_type without a row is fingerprinted from its tensors (models.md §3.6) when every feature is inferable.
 */
#ifndef EAGLET_MODEL_ARCH_H
#define EAGLET_MODEL_ARCH_H

#include "checkpoint/checkpoint.h"
#include "compute/compute.h"

enum attention_kind { ATTENTION_GQA, ATTENTION_MLA };
enum rope_scaling {
  ROPE_SCALING_NONE,
  ROPE_SCALING_LINEAR,
  ROPE_SCALING_LLAMA3,
  ROPE_SCALING_YARN,
  ROPE_SCALING_DYNAMIC, /* theta grows with the context the table is made for, once that passes positions_max */
  ROPE_SCALING_LONGROPE /* a list of divisors for short contexts and one for long */
};
enum norm_kind { NORM_RMS, NORM_LAYER }; /* "1 + weight" norms are the same with one added when weights are bound */
enum qk_norm {
  QK_NORM_NONE,
  QK_NORM_HEAD,  /* one weight [D] for every head */
  QK_NORM_HEADS, /* a weight row per head [heads, D] */
  QK_NORM_WIDTH, /* all heads as one vector [heads * D] */
  QK_NORM_UNIT   /* per head, no weight */
};
#define ROPES_MAX 2

struct rope_features {
  enum rope_scaling scaling;
  enum rope_style style;
  int32_t dim;                      /* rotated dimensions */
  double theta;
  double factor, beta_fast, beta_slow, mscale, mscale_all_dim, attention_factor; /* yarn */
  double low_freq_factor, high_freq_factor;                                      /* llama3 */
  const json_t *short_factors, *long_factors; /* longrope: [dim / 2] numbers, borrowed from config.json */
  int32_t original_positions;
  int32_t positions_max;            /* dynamic: up to here theta stays */
  bool truncate;                    /* yarn: floor/ceil of the correction range */
};

struct moe_features {
  int32_t n_experts;                /* 0: dense everywhere */
  int32_t n_picked, intermediate, n_groups, n_groups_picked;
  int32_t shared_intermediate;      /* width of the expert that every row takes; 0: none */
  enum router_kind router;
  bool router_bias;                 /* added to the router's logits */
  bool correction_bias;             /* added to scores for the selection only */
  bool normalise, share_input;
  double scale;
};

/* What differs between the layers of one decoder. */
struct layer_features {
  int32_t window, chunk;            /* keys a row sees, itself included; rows of its own chunk; 0: all */
  int32_t rope;                     /* index in features.rope; -1: positions are not rotated */
  bool moe;
  bool skip;                        /* attends to another modality only: nothing happens to text */
  bool scale_queries;               /* by features.query_scale */
};

/* Sparse attention: a small scorer picks the keys that a row attends to. */
struct sparse_features {
  int32_t n_kept;                   /* keys; 0: dense */
  int32_t n_heads, head_dim;        /* of the scorer */
  enum rope_style rope_style;
};

/* q of position p is multiplied by 1 + beta ln(1 + floor((p + shift) / period)). */
struct query_scale {
  double beta;                      /* 0: none */
  int32_t period, shift;
};

struct features {
  char row[32];                     /* table row that gave the defaults, "deepseek_v3" */
  int32_t context_max;              /* longest context that is defined: positions_max, or what dynamic scaling stretches it to */
  int32_t n_layers, hidden, n_vocab, n_heads, n_kv_heads, head_dim, intermediate, positions_max;
  enum attention_kind attention;
  int32_t q_rank, kv_rank, nope_dim, rope_dim, value_dim; /* MLA; q_rank 0: direct q_proj */
  double attention_scale;           /* softmax scale, with yarn's mscale squared for MLA */
  double attention_softcap;         /* 0: none */
  bool attention_bias;              /* q,k,v (GQA) or q_a, kv_a (MLA) carry biases */
  bool attention_out_bias;          /* o carries one */
  bool sinks;                       /* a logit per head beside the keys */
  enum qk_norm qk_norm;
  bool qk_norm_after_rope;
  enum norm_kind norm;              /* of every norm of the decoder */
  bool norm_plus_one, norm_bias;    /* weights are stored minus one; norms carry biases */
  double norm_eps, inner_norm_eps;  /* MLA's q_a/kv_a norms: 1e-6 as the reference code builds them, unless the row says otherwise */
  bool parallel;                    /* attention and feed-forward read the same norm, both are added */
  enum activation activation;
  bool gated, ffn_bias;             /* act(gate) * up, or act(up) alone; feed-forward linears carry biases */
  struct query_scale query_scale;
  struct sparse_features sparse;
  struct rope_features rope[ROPES_MAX];
  int32_t n_ropes;                  /* 0: positions are learned (positions_max rows), or nowhere */
  bool learned_positions;
  struct moe_features moe;
  double embed_scale, residual_scale, logit_scale, logit_softcap; /* softcap 0: none */
  bool tied_head;
  struct layer_features *layers;    /* [n_layers], owned by the arch */
};

/* Where the text model was found inside its wrappers, and why (decision 2). */
struct wrapper_chain {
  char config_path[128];            /* "text_config" or "" */
  char prefix[128];                 /* "language_model.model." - before "layers.0." and "embed_tokens.weight" */
  char layers_prefix[128];          /* usually prefix + "layers." */
  char embed_name[160];             /* "language_model.model.embed_tokens.weight" */
  char head_name[160];              /* "language_model.lm_head.weight"; "" when tied */
  char head_bias_name[160];         /* "lm_head.bias"; "" when there is none; a tied head may have one */
  char why[768];                    /* one line a person can read */
};

struct arch {
  const json_t *config;             /* the text model's object, borrowed from the checkpoint */
  const json_t *outer[2];           /* objects around it, nearest first, borrowed; NULL when none */
  const struct arch_row *row;       /* arch_table.h */
  struct wrapper_chain chain;
  struct features features;
  json_t *warnings;                 /* strings, owned; each was also logged */
  json_t *provenance;               /* {field: {"value":..., "from": "text_config.num_hidden_layers" | "default" | "tensor ..."}} owned */
};

/* Resolves wrapper, table row and features; every feature that changes arithmetic and is not understood is an error that names
 * the config field (decision 5). */
enum eaglet_status arch_resolve(struct arch *arch, const struct checkpoint *checkpoint, struct eaglet_error *err) MUST_USE;
void arch_clear(struct arch *arch);
/* The ids at which the target stops, of every place that names some (generation_config.json and the configs of all wrappers): a stop that is
 * missed costs more than one too many. Returns how many. */
#define ARCH_STOPS_MAX 16
int32_t arch_stop_ids(int32_t ids[ARCH_STOPS_MAX], const struct arch *arch, const struct checkpoint *checkpoint);

/* The rope of a plain decoder's config (a draft head's): every scaling of the targets', the same defaults. Silent. what: path of the
 * config, for messages. Lists of factors are borrowed from config. */
struct rope_request {
  const json_t *config;
  int32_t head_dim, positions_max;
  int32_t latent_rope_dim; /* MLA: the rotated part of a head; 0: plain attention */
  double *attention_scale; /* out, or NULL: softmax scale; MLA's has yarn's mscale squared in it */
};
enum eaglet_status rope_features_read(struct rope_features *rope, const struct rope_request *request, const char *what,
                                      struct eaglet_error *err) MUST_USE;

#endif
