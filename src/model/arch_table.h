/* arch_table.h - one row per inner model_type: what config.json does not say because the reference code knows it.
 * Rows are data. A model_type without a row is not refused: arch_row_fingerprint picks the row whose tensors look alike, and every
 * unexplained tensor or config field is still an error. A row with `refusal` names arithmetic that is not written, so that
 * look-alikes are never run wrong in silence.
 */
#ifndef EAGLET_MODEL_ARCH_TABLE_H
#define EAGLET_MODEL_ARCH_TABLE_H

#include "model/arch.h"

/* Is a family of linears biased? NULL: never. "+": always. Else the config field that says so; where it is absent the tensors do. */
struct bias_rule {
  const char *qkv, *o, *ffn;
};

enum window_rule {
  WINDOW_NONE,    /* the family has no sliding window; the field must be absent or null */
  WINDOW_FIELD,   /* sliding_window, on every layer */
  WINDOW_FLAGGED, /* sliding_window when use_sliding_window, from layer max_window_layers on */
  WINDOW_AFTER,   /* sliding_window from layer max_window_layers on */
  WINDOW_PATTERN, /* sliding_window on every layer but each window_pattern-th */
  WINDOW_UNROTATED, /* sliding_window on layers without rope, when use_sliding_window */
  WINDOW_CHUNKED  /* attention_chunk_size on layers with rope */
};
/* Which layers rotate. */
enum rope_rule {
  ROPE_EVERYWHERE,
  ROPE_LISTED,    /* no_rope_layers, else every no_rope_layer_interval-th goes without */
  ROPE_WINDOWED,  /* only layers with a window */
  ROPE_WINDOWED_IF_ANY, /* the same, unless sliding_window is null */
  ROPE_LEARNED    /* none: learned embeddings of positions */
};
/* Rope of the layers with a window, where rope is not given per layer type. */
enum local_rope { LOCAL_SAME, LOCAL_THETA /* rope_local_base_freq, no scaling */, LOCAL_UNSCALED };
enum moe_rule {
  MOE_NONE,
  MOE_ALL,         /* every layer */
  MOE_FIRST_DENSE, /* first_k_dense_replace, moe_layer_freq */
  MOE_SPARSE_STEP, /* mlp_only_layers, decoder_sparse_step */
  MOE_RANGE,       /* moe_layer_start_index, moe_layer_end_index, moe_layer_interval */
  MOE_INTERLEAVED  /* moe_layers, else every interleave_moe_layer_step-th */
};
enum softcap_rule { SOFTCAP_NONE, SOFTCAP_BOTH, SOFTCAP_FINAL };
enum scale_rule { SCALE_HEAD_DIM /* D^-0.5 */, SCALE_QUERY_PRE /* query_pre_attn_scalar^-0.5 */, SCALE_MULTIPLIER /* attention_multiplier */ };

/* Names after "layers.N."; NULL: the family has no such tensor. Where both a joint and separate names are given, the tensors decide. */
struct layer_names {
  const char *attention_in, *attention_out, *ffn_in, *ffn_out; /* norms, without ".weight" */
  const char *q, *k, *v, *qkv, *o, *q_norm, *k_norm;
  const char *gate, *up, *gate_up, *down;
};
/* The expert's number stands between expert and gate. Stacks hold all experts in one tensor. */
struct moe_names {
  const char *router, *correction_bias, *expert, *gate, *up, *down, *shared, *shared_gate;
  const char *shared_joint;    /* gate and up of the shared expert in one weight, gate rows first; shared_down beside it */
  const char *shared_down;
  const char *stack_gate_up, *stack_down;
  bool stack_transposed;       /* [E, in, out] where the shape cannot tell */
  enum gate_layout stack_layout;
};

struct arch_row {
  const char *model_types;  /* "llama|yi" */
  const char *architecture; /* used when the inner object has no model_type; or NULL */
  const char *refusal;      /* why such a model cannot be run; else NULL */
  enum attention_kind attention;
  const struct layer_names *layer;
  const char *final_norm;   /* NULL: "norm" */
  struct bias_rule bias;
  enum norm_kind norm;
  bool norm_plus_one, norm_bias;
  const char *norm_eps_field; /* NULL: "rms_norm_eps" */
  enum qk_norm qk_norm;
  const char *qk_norm_flag; /* config field that switches it; NULL: always */
  bool qk_norm_after_rope, parallel, transposed, sinks;
  enum window_rule window;
  enum rope_rule rope;
  enum local_rope local_rope;
  enum rope_style rope_style;
  enum scale_rule scale;
  enum activation activation; /* when hidden_act is absent; ACTIVATION_SWIGLU_CLAMPED: whatever it says */
  enum softcap_rule softcaps;
  bool embed_sqrt, multipliers, logit_scale, scale_queries;
  bool index_topk;          /* sparse attention with a scorer of its own (index_topk, index_n_heads, index_head_dim) */
  enum rope_style index_rope;
  enum moe_rule moe;
  enum router_kind router;
  const struct moe_names *names[2]; /* the first whose router exists */
  bool normalise;           /* default of norm_topk_prob */
  bool expert_is_intermediate; /* experts are intermediate_size wide (the dense layers intermediate_size_mlp) */
  double inner_norm_eps;    /* 0: norm_eps */
  double partial_rotary;    /* default of partial_rotary_factor; 0: 1 */
  /* defaults of fields that a diff-serialised config leaves out; 0: the field is required */
  double norm_eps, theta, expert_scale;
  int32_t hidden, n_layers, n_heads, n_kv_heads, head_dim, intermediate, window_default, window_layers, window_pattern, positions;
  int32_t embed_extra;      /* rows that the embedding has beside the vocabulary's */
};

/* Does a tensor name speak of another modality (vision, audio ...) or of a prediction layer? Used by resolution and binding. */
bool arch_name_is_other_modality(const char *name);
/* Row of a model_type (or of an architectures[] name when type is NULL). NULL when the table has none. */
const struct arch_row *arch_row_find(const char *type, const char *architecture);
/* Row that fits the tensors of layer 0 and the first MoE layer under layers_prefix; NULL and the reason when none does. */
const struct arch_row *arch_row_fingerprint(const struct checkpoint *checkpoint, const char *layers_prefix, char *why, size_t length);
/* The row's names of experts that this checkpoint uses: those whose router stands in some layer. NULL: none does. */
const struct moe_names *arch_moe_names(const struct arch *arch, const struct checkpoint *checkpoint);

#endif
