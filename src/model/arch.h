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
enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_LLAMA3, ROPE_SCALING_YARN };

struct rope_features {
  enum rope_scaling scaling;
  enum rope_style style;
  int32_t dim;                      /* rotated dimensions */
  double theta;
  double factor, beta_fast, beta_slow, mscale, mscale_all_dim, attention_factor; /* yarn */
  double low_freq_factor, high_freq_factor;                                      /* llama3 */
  int32_t original_positions;
  bool truncate;                    /* yarn: floor/ceil of the correction range */
};

struct moe_features {
  int32_t n_experts;                /* 0: dense everywhere */
  int32_t n_picked, n_shared, intermediate, n_groups, n_groups_picked;
  int32_t first_dense, layer_freq;
  enum router_kind router;
  bool normalise;
  double scale;
};

struct features {
  char row[32];                     /* table row that gave the defaults, "deepseek_v3" */
  int32_t n_layers, hidden, n_vocab, n_heads, n_kv_heads, head_dim, intermediate, positions_max;
  enum attention_kind attention;
  int32_t q_rank, kv_rank, nope_dim, rope_dim, value_dim; /* MLA; q_rank 0: direct q_proj */
  double attention_scale;           /* softmax scale, with yarn's mscale squared for MLA */
  bool attention_bias;              /* q,k,v (GQA) or q_a, kv_a (MLA) carry biases */
  bool attention_out_bias;          /* o carries one */
  bool qk_norm;                     /* per-head RMS norm of q and k before rope */
  double norm_eps, inner_norm_eps;  /* MLA's q_a/kv_a norms: 1e-6 as the reference code builds them, unless the row says otherwise */
  int32_t window;                   /* keys a row sees, itself included; 0: all */
  struct rope_features rope;
  struct moe_features moe;
  bool tied_head;
};

/* Where the text model was found inside its wrappers, and why (decision 2). */
struct wrapper_chain {
  char config_path[128];            /* "text_config" or "" */
  char prefix[128];                 /* "language_model.model." - before "layers.0." and "embed_tokens.weight" */
  char layers_prefix[128];          /* usually prefix + "layers." */
  char embed_name[160];             /* "language_model.model.embed_tokens.weight" */
  char head_name[160];              /* "language_model.lm_head.weight"; "" when tied */
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

#endif
