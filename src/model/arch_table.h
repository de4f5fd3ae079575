/* arch_table.h - one row of defaults per inner model_type: what config.json does not say because the reference code knows it.
 * Rows are data. A model_type without a row is not refused: arch_row_fingerprint picks the row whose tensors look alike, and every
 * unexplained tensor or config field is still an error. A row with `refusal` names arithmetic that is not written yet, so that
 * look-alikes are never run wrong in silence.
 */
#ifndef EAGLET_MODEL_ARCH_TABLE_H
#define EAGLET_MODEL_ARCH_TABLE_H

#include "model/arch.h"

enum bias_rule {
  BIAS_FIELD_QKVO, /* attention_bias: q, k, v and o (MLA: q_a, kv_a, o) */
  BIAS_FIELD_QKV,  /* attention_bias: q, k, v; attention_out_bias: o */
  BIAS_QKV         /* always q, k, v */
};
enum norm_rule { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_FIELD /* use_qk_norm */ };
enum window_rule {
  WINDOW_NONE,    /* the family has no sliding window; the field must be absent or null */
  WINDOW_FIELD,   /* sliding_window, on every layer */
  WINDOW_FLAGGED  /* sliding_window when use_sliding_window */
};
enum moe_rule {
  MOE_NONE,
  MOE_ALL,          /* every layer */
  MOE_FIRST_DENSE,  /* first_k_dense_replace, moe_layer_freq */
  MOE_SPARSE_STEP   /* mlp_only_layers, decoder_sparse_step */
};

/* Names after "layers.N."; the expert's number stands between expert and gate. */
struct moe_names {
  const char *router, *router_bias, *expert, *gate, *up, *down, *shared;
};

struct arch_row {
  const char *model_types;  /* "llama|yi" */
  const char *architecture; /* used when the inner object has no model_type; or NULL */
  const char *refusal;      /* why such a model cannot be run yet; else NULL */
  enum attention_kind attention;
  enum bias_rule bias;
  enum norm_rule qk_norm;
  enum window_rule window;
  enum rope_style rope_style;
  enum moe_rule moe;
  enum router_kind router;
  const struct moe_names *names;
  bool normalise, fused; /* default of norm_topk_prob; qkv_proj and gate_up_proj */
  double inner_norm_eps;
  /* defaults of fields that a diff-serialised config leaves out; 0: the field is required */
  double norm_eps, theta, expert_scale;
  int32_t hidden, n_layers, n_heads, n_kv_heads, intermediate, window_default, positions;
};

/* Does a tensor name speak of another modality (vision, audio ...) or of a prediction layer? Used by resolution and binding. */
bool arch_name_is_other_modality(const char *name);
/* Row of a model_type (or of an architectures[] name when type is NULL). NULL when the table has none. */
const struct arch_row *arch_row_find(const char *type, const char *architecture);
/* Row that fits the tensors of layer 0 and the first MoE layer under layers_prefix; NULL and the reason when none does. */
const struct arch_row *arch_row_fingerprint(const struct checkpoint *checkpoint, const char *layers_prefix, char *why, size_t length);

#endif
