/* arch_features.c - features from config.json, cross-checked against tensor shapes; see arch_features.h. Shapes win
 * where the config is silent; where both speak and differ, the checkpoint is refused. Rope has its own file. */
#include "model/arch_features.h"

#include <stdio.h>
#include <string.h>

#define EXPERTS_MAX 1024 /* what the router op takes */

int32_t tensor_axis(const struct field_reader *reader, const struct tensor_facts *facts, int32_t layer,
                    const char *name, int axis) {
  static const char *const suffixes[] = {"", "_packed"};
  char full[512];
  for (int i = 0; i < 2; i++) {
    snprintf(full, sizeof full, "%s%d.%s%s", reader->arch->chain.layers_prefix, layer, name, suffixes[i]);
    const struct tensor_entry *tensor = checkpoint_peek(facts->checkpoint, full);
    if (tensor && axis < tensor->rank && tensor->shape[axis] <= INT32_MAX && (i == 0 || axis == 0))
      return (int32_t)tensor->shape[axis];
  }
  return -1;
}

/* Family defaults count only when config.json named the family. */
static int32_t row_default(const struct tensor_facts *facts, int32_t value) {
  return facts->fingerprinted || value == 0 ? FIELD_REQUIRED : value;
}

static void positive(struct field_reader *reader, const char *name, int32_t value, int32_t max) {
  if (reader->status == EAGLET_OK && (value < 1 || value > max))
    field_fail(reader, "%s%s: expected 1..%d, found %d", reader->paths[0], name, max, value);
}

/* A flag that a tensor also shows: absent in the config, the tensor decides. */
static bool flag_or_tensor(struct field_reader *reader, const struct tensor_facts *facts, const char *name,
                           const char *tensor) {
  bool present = tensor_axis(reader, facts, 0, tensor, 0) >= 0;
  struct field_place place = field_find(reader, name);
  bool value = field_bool(reader, name, present);
  if (!place.value) {
    char from[128];
    snprintf(from, sizeof from, "tensor %s %s", tensor, present ? "present" : "absent");
    field_note(reader, name, json_boolean(value), from);
  }
  return value;
}

static void read_sizes(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  const struct tensor_entry *embed = checkpoint_peek(facts->checkpoint, reader->arch->chain.embed_name);
  f->n_vocab = field_int_or_tensor(reader, "vocab_size", FIELD_REQUIRED, (int32_t)embed->shape[0], embed->name);
  f->hidden = field_int_or_tensor(reader, "hidden_size", row_default(facts, row->hidden), (int32_t)embed->shape[1],
                                  embed->name);
  struct field_place layers = field_find(reader, "num_hidden_layers");
  if (!layers.value) field_note(reader, "num_hidden_layers", json_integer(facts->n_layers), "tensors");
  f->n_layers = layers.value ? field_int(reader, "num_hidden_layers", FIELD_REQUIRED) : facts->n_layers;
  f->positions_max = field_int(reader, "max_position_embeddings", row_default(facts, row->positions));
  f->norm_eps = field_double(reader, "rms_norm_eps", facts->fingerprinted ? -1 : row->norm_eps);
  f->inner_norm_eps = row->inner_norm_eps;
  positive(reader, "vocab_size", f->n_vocab, 1 << 28);
  positive(reader, "hidden_size", f->hidden, 1 << 20);
  positive(reader, "num_hidden_layers", f->n_layers, 4096);
  positive(reader, "max_position_embeddings", f->positions_max, INT32_MAX);
  if (reader->status == EAGLET_OK && (!(f->norm_eps > 0) || f->norm_eps > 1))
    field_fail(reader, "rms_norm_eps: expected a small positive number, found %g", f->norm_eps);
  if (reader->status == EAGLET_OK && f->n_layers > facts->n_layers) {
    field_fail(reader, "%snum_hidden_layers says %d, but the tensors hold layers 0..%d under %s", reader->paths[0],
               f->n_layers, facts->n_layers - 1, reader->arch->chain.layers_prefix);
  }
}

/* Layers past the last are multi-token-prediction layers, or the config is wrong. */
static void check_surplus_layers(struct field_reader *reader, const struct tensor_facts *facts) {
  int32_t declared = field_int(reader, "num_nextn_predict_layers", 0);
  for (int32_t i = reader->arch->features.n_layers; reader->status == EAGLET_OK && i < facts->n_layers; i++) {
    if (i - reader->arch->features.n_layers < declared || tensor_axis(reader, facts, i, "eh_proj.weight", 0) >= 0)
      continue;
    field_fail(reader, "%snum_hidden_layers says %d, but tensors %s%d.* exist and are no prediction layer",
               reader->paths[0], reader->arch->features.n_layers, reader->arch->chain.layers_prefix, i);
  }
}

static void read_gqa(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  int32_t q_rows = tensor_axis(reader, facts, 0, "self_attn.q_proj.weight", 0),
          k_rows = tensor_axis(reader, facts, 0, "self_attn.k_proj.weight", 0);
  int32_t norm_length = tensor_axis(reader, facts, 0, "self_attn.q_norm.weight", 0);
  f->qk_norm =
      row->qk_norm == QK_NORM_HEAD ||
      (row->qk_norm == QK_NORM_FIELD && flag_or_tensor(reader, facts, "use_qk_norm", "self_attn.q_norm.weight"));
  f->head_dim = field_int_or_tensor(reader, "head_dim", 0, f->qk_norm ? norm_length : -1, "self_attn.q_norm.weight");
  int32_t heads_by_tensor = f->head_dim > 0 && q_rows > 0 ? q_rows / f->head_dim : -1;
  struct field_place heads = field_find(reader, "num_attention_heads");
  f->n_heads = heads.value || heads_by_tensor < 0
                   ? field_int(reader, "num_attention_heads", row_default(facts, row->n_heads))
                   : heads_by_tensor;
  positive(reader, "num_attention_heads", f->n_heads, 1 << 16);
  if (reader->status != EAGLET_OK) return;
  if (f->head_dim == 0) {
    if (f->hidden % f->n_heads)
      field_fail(reader, "head_dim is absent and hidden_size %d is not a multiple of num_attention_heads %d", f->hidden,
                 f->n_heads);
    f->head_dim = f->hidden / f->n_heads;
    field_note(reader, "head_dim", json_integer(f->head_dim), "hidden_size / num_attention_heads");
  }
  f->n_kv_heads = field_int_or_tensor(reader, "num_key_value_heads", f->n_heads, k_rows > 0 ? k_rows / f->head_dim : -1,
                                      "self_attn.k_proj.weight");
  positive(reader, "head_dim", f->head_dim, 1 << 16);
  positive(reader, "num_key_value_heads", f->n_kv_heads, f->n_heads);
  if (reader->status == EAGLET_OK && f->n_heads % f->n_kv_heads)
    field_fail(reader, "num_attention_heads %d is not a multiple of num_key_value_heads %d", f->n_heads, f->n_kv_heads);
  switch (row->bias) {
  case BIAS_FIELD_QKVO:
    f->attention_bias = flag_or_tensor(reader, facts, "attention_bias", "self_attn.q_proj.bias");
    f->attention_out_bias = f->attention_bias;
    break;
  case BIAS_FIELD_QKV:
    f->attention_bias = flag_or_tensor(reader, facts, "attention_bias", "self_attn.q_proj.bias");
    f->attention_out_bias = flag_or_tensor(reader, facts, "attention_out_bias", "self_attn.o_proj.bias");
    break;
  case BIAS_QKV:
    f->attention_bias = true;
    break;
  }
}

static void read_mla(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  int32_t q_norm = tensor_axis(reader, facts, 0, "self_attn.q_a_layernorm.weight", 0);
  f->n_heads = field_int(reader, "num_attention_heads", FIELD_REQUIRED);
  f->q_rank = field_int_or_tensor(reader, "q_lora_rank", 0, q_norm >= 0 ? q_norm : 0, "self_attn.q_a_layernorm.weight");
  f->kv_rank = field_int_or_tensor(reader, "kv_lora_rank", FIELD_REQUIRED,
                                   tensor_axis(reader, facts, 0, "self_attn.kv_a_layernorm.weight", 0),
                                   "self_attn.kv_a_layernorm.weight");
  f->nope_dim = field_int(reader, "qk_nope_head_dim", FIELD_REQUIRED);
  f->rope_dim = field_int(reader, "qk_rope_head_dim", FIELD_REQUIRED);
  f->value_dim = field_int(reader, "v_head_dim", FIELD_REQUIRED);
  positive(reader, "num_attention_heads", f->n_heads, 1 << 16);
  positive(reader, "kv_lora_rank", f->kv_rank, 1 << 20);
  positive(reader, "qk_nope_head_dim", f->nope_dim, 1 << 16);
  positive(reader, "qk_rope_head_dim", f->rope_dim, 1 << 16);
  positive(reader, "v_head_dim", f->value_dim, 1 << 16);
  f->n_kv_heads = f->n_heads;
  f->head_dim = f->nope_dim + f->rope_dim;
  struct field_place whole = field_find(reader, "qk_head_dim");
  if (whole.value && json_number_value(whole.value) != f->head_dim)
    field_fail(reader, "%s: expected qk_nope_head_dim + qk_rope_head_dim = %d", whole.from, f->head_dim);
  f->attention_bias = flag_or_tensor(reader, facts, "attention_bias", "self_attn.q_a_proj.bias");
  f->attention_out_bias = f->attention_bias;
}

/* 1: the list has only this kind; 0: none of it; -1: mixed. */
static int layer_types_all(struct field_reader *reader, const struct field_place *types, const char *kind) {
  size_t n = 0, i;
  json_t *value;
  json_array_foreach(types->value, i, value) {
    const char *text = json_string_value(value);
    if (!text || (strcmp(text, "full_attention") != 0 && strcmp(text, "sliding_attention") != 0)) {
      field_fail(reader, "%s[%zu]: attention type \"%s\" is not supported", types->from, i, text ? text : "?");
      return 0;
    }
    n += strcmp(text, kind) == 0;
  }
  return n == json_array_size(types->value) ? 1 : n == 0 ? 0 : -1;
}

static void read_window(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  struct field_place field = field_find(reader, "sliding_window"), types = field_find(reader, "layer_types");
  /* Class default: a config that leaves the field out means it; a null is "none" and json_object_get tells them apart.
   */
  bool silent = !json_object_get(reader->levels[0], "sliding_window");
  int32_t window = field.value                       ? field_int(reader, "sliding_window", 0)
                   : silent && !facts->fingerprinted ? row->window_default
                                                     : 0;
  if (row->window == WINDOW_NONE && window > 0)
    field_fail(reader, "%s: a sliding window is not supported for %s", field.from, f->row);
  if (row->window == WINDOW_FLAGGED) {
    bool use = field_bool(reader, "use_sliding_window", false);
    int32_t full_layers = field_int(reader, "max_window_layers", 0);
    if (!use || full_layers >= f->n_layers)
      window = 0;
    else if (window > 0 && full_layers > 0 && !types.value)
      field_fail(reader, "max_window_layers: a window on some layers only is not supported (%d of %d)", full_layers,
                 f->n_layers);
  }
  if (types.value && window > 0) {
    int sliding = layer_types_all(reader, &types, "sliding_attention");
    if (sliding < 0) field_fail(reader, "%s: windows that differ between layers are not supported", types.from);
    if (sliding == 0) window = 0;
  } else if (types.value && layer_types_all(reader, &types, "full_attention") != 1) {
    field_fail(reader, "%s: asks for sliding attention, but there is no sliding_window", types.from);
  }
  f->window = window;
  field_note(reader, "window", json_integer(window),
             field.value ? field.from
             : silent    ? "default"
                         : "sliding_window null");
}

static int32_t first_router_layer(struct field_reader *reader, const struct tensor_facts *facts, const char *router) {
  char name[128];
  snprintf(name, sizeof name, "%s.weight", router);
  for (int32_t i = 0; i < reader->arch->features.n_layers; i++) {
    if (tensor_axis(reader, facts, i, name, 0) >= 0) return i;
  }
  return -1;
}

static void read_groups(struct field_reader *reader) {
  struct moe_features *moe = &reader->arch->features.moe;
  const char *method = field_string(reader, "topk_method", NULL);
  moe->n_groups = field_int(reader, "n_group", 1);
  moe->n_groups_picked = field_int(reader, "topk_group", 1);
  bool known = !method || (moe->router == ROUTER_SIGMOID_BIAS && strcmp(method, "noaux_tc") == 0) ||
               (moe->router == ROUTER_SOFTMAX_ALL &&
                (strcmp(method, "greedy") == 0 || strcmp(method, "group_limited_greedy") == 0));
  if (!known) field_fail(reader, "topk_method: \"%s\" is not supported for %s", method, reader->arch->features.row);
  if (moe->n_groups == 0 || (method && strcmp(method, "greedy") == 0)) moe->n_groups = 1;
  if (moe->n_groups == 1) moe->n_groups_picked = 1;
  if (reader->status == EAGLET_OK &&
      (moe->n_experts % moe->n_groups || moe->n_groups_picked < 1 || moe->n_groups_picked > moe->n_groups)) {
    field_fail(reader, "n_group / topk_group: %d experts cannot form %d groups of which %d are kept", moe->n_experts,
               moe->n_groups, moe->n_groups_picked);
  }
}

static void read_router(struct field_reader *reader) {
  const struct arch_row *row = reader->arch->row;
  struct moe_features *moe = &reader->arch->features.moe;
  const char *own = row->router == ROUTER_SIGMOID_BIAS ? "sigmoid" : "softmax";
  moe->router = row->router;
  const char *scoring = field_string(reader, "scoring_func", own);
  if (reader->status == EAGLET_OK && strcmp(scoring, own) != 0)
    field_fail(reader, "scoring_func: expected \"%s\" for %s, found \"%s\"", own, reader->arch->features.row, scoring);
  moe->normalise = field_bool(reader, "norm_topk_prob", row->normalise);
  moe->scale = field_double(reader, "routed_scaling_factor", row->expert_scale);
  read_groups(reader);
  /* The original code of softmax routers scales only when it does not normalise, later code always. */
  if (row->attention == ATTENTION_MLA && moe->router == ROUTER_SOFTMAX_ALL && moe->normalise && moe->scale != 1) {
    field_fail(reader, "norm_topk_prob with routed_scaling_factor %g: implementations of %s disagree about it",
               moe->scale, reader->arch->features.row);
  }
  positive(reader, "num_experts_per_tok", moe->n_picked,
           moe->n_experts / (moe->n_groups > 0 ? moe->n_groups : 1) * moe->n_groups_picked);
}

static void read_moe(struct field_reader *reader, const struct tensor_facts *facts) {
  static const char experts[] = "n_routed_experts|num_experts|num_local_experts|moe_num_experts";
  const struct arch_row *row = reader->arch->row;
  struct features *f = &reader->arch->features;
  struct moe_features *moe = &f->moe;
  char name[128];
  if (row->moe == MOE_NONE) {
    struct field_place place = field_find(reader, experts);
    if (place.value && json_number_value(place.value) > 0)
      field_fail(reader, "%s: experts are not supported for %s", place.from, f->row);
    return;
  }
  int32_t layer = first_router_layer(reader, facts, row->names->router);
  snprintf(name, sizeof name, "%s.weight", row->names->router);
  moe->n_experts =
      field_int_or_tensor(reader, experts, 0, layer >= 0 ? tensor_axis(reader, facts, layer, name, 0) : 0, name);
  if (moe->n_experts == 0 || reader->status != EAGLET_OK) return;
  positive(reader, "num_experts", moe->n_experts, EXPERTS_MAX);
  moe->n_picked = field_int(reader, "num_experts_per_tok|num_experts_per_token", FIELD_REQUIRED);
  snprintf(name, sizeof name, "%s0.%s.weight", row->names->expert, row->names->gate);
  moe->intermediate = field_int_or_tensor(reader, row->moe == MOE_ALL ? "intermediate_size" : "moe_intermediate_size",
                                          FIELD_REQUIRED, tensor_axis(reader, facts, layer, name, 0), name);
  positive(reader, "moe_intermediate_size", moe->intermediate, 1 << 24);
  if (reader->status != EAGLET_OK) return;
  int32_t shared = -1;
  if (row->names->shared) {
    snprintf(name, sizeof name, "%sgate_proj.weight", row->names->shared);
    shared = tensor_axis(reader, facts, layer, name, 0);
    moe->n_shared =
        field_int_or_tensor(reader, "n_shared_experts", 0, shared < 0 ? 0 : shared / moe->intermediate, name);
  }
  if (row->moe == MOE_FIRST_DENSE) {
    moe->first_dense = field_int(reader, "first_k_dense_replace", 0);
    moe->layer_freq = field_int(reader, "moe_layer_freq", 1);
  } else if (row->moe == MOE_SPARSE_STEP) {
    moe->layer_freq = field_int(reader, "decoder_sparse_step", 1);
  } else {
    moe->layer_freq = 1;
  }
  positive(reader, row->moe == MOE_SPARSE_STEP ? "decoder_sparse_step" : "moe_layer_freq", moe->layer_freq, 4096);
  read_router(reader);
}

static void read_ffn(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  const char *act = field_string(reader, "hidden_act|hidden_activation", "silu");
  if (reader->status == EAGLET_OK && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
    field_fail(reader, "hidden_act: \"%s\" is not supported", act);
  if (field_bool(reader, "mlp_bias", false))
    field_fail(reader, "mlp_bias: biased feed-forward layers are not supported");
  int32_t rows = tensor_axis(reader, facts, 0, row->fused ? "mlp.gate_up_proj.weight" : "mlp.gate_proj.weight", 0);
  if (row->fused && rows > 0) rows /= 2;
  f->intermediate =
      field_int_or_tensor(reader, "intermediate_size", row->moe == MOE_NONE ? row_default(facts, row->intermediate) : 0,
                          rows, "mlp.gate_proj.weight");
  if (row->moe == MOE_NONE) positive(reader, "intermediate_size", f->intermediate, 1 << 24);
  read_moe(reader, facts);
}

void arch_read_features(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  f->attention = reader->arch->row->attention;
  f->tied_head = reader->arch->chain.head_name[0] == 0;
  read_sizes(reader, facts);
  if (reader->status == EAGLET_OK) check_surplus_layers(reader, facts);
  if (f->attention == ATTENTION_MLA)
    read_mla(reader, facts);
  else
    read_gqa(reader, facts);
  if (reader->status == EAGLET_OK) arch_read_rope(reader, facts);
  if (reader->status == EAGLET_OK) read_window(reader, facts);
  if (reader->status == EAGLET_OK) read_ffn(reader, facts);
  if (reader->status == EAGLET_OK) field_check_known(reader);
}
