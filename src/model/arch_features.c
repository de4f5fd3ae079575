/* arch_features.c - sizes, attention and feed-forward features from config.json, cross-checked against tensor shapes; see
 * arch_features.h. Shapes win where the config is silent; where both speak and differ, the checkpoint is refused. */
#include "model/arch_features.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One of the row's bias rules; see struct bias_rule. */
static bool read_bias(struct field_reader *reader, const struct tensor_facts *facts, const char *rule,
                      const char *module) {
  const struct flag_witness witness = {.name = rule, .module = module, .tail = ".bias"};
  if (!rule) return false;
  return strcmp(rule, "+") == 0 || flag_or_tensor(reader, facts, &witness);
}

static void read_sizes(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  const struct tensor_entry *embed = checkpoint_peek(facts->checkpoint, reader->arch->chain.embed_name);
  const char *eps = row->norm_eps_field ? row->norm_eps_field : "rms_norm_eps";
  struct field_place vocab = field_find(reader, "vocab_size");
  int32_t rows = (int32_t)embed->shape[0];
  if (json_is_integer(vocab.value) && json_integer_value(vocab.value) == rows - row->embed_extra) rows -= row->embed_extra;
  f->n_vocab = field_int_or_tensor(reader, "vocab_size", FIELD_REQUIRED, rows, embed->name);
  f->hidden = field_int_or_tensor(reader, "hidden_size|n_embd", row_default(facts, row->hidden),
                                  (int32_t)embed->shape[1], embed->name);
  struct field_place layers = field_find(reader, "num_hidden_layers|n_layer");
  if (!layers.value) field_note(reader, "num_hidden_layers", json_integer(facts->n_layers), "tensors");
  f->n_layers =
      layers.value ? field_int(reader, "num_hidden_layers|n_layer", FIELD_REQUIRED) : facts->n_layers;
  f->positions_max = field_int(reader, "max_position_embeddings|n_positions", row_default(facts, row->positions));
  f->norm_eps = field_double(reader, eps, facts->fingerprinted ? -1 : row->norm_eps);
  f->inner_norm_eps = row->inner_norm_eps > 0 ? row->inner_norm_eps : f->norm_eps;
  field_positive(reader, "vocab_size", f->n_vocab, 1 << 28);
  field_positive(reader, "hidden_size", f->hidden, 1 << 20);
  field_positive(reader, "num_hidden_layers", f->n_layers, 4096);
  field_positive(reader, "max_position_embeddings", f->positions_max, INT32_MAX);
  if (reader->status == EAGLET_OK && (!(f->norm_eps > 0) || f->norm_eps > 1))
    field_fail(reader, "%s: expected a small positive number, found %g", eps, f->norm_eps);
  if (reader->status == EAGLET_OK && f->n_layers > facts->n_layers) {
    field_fail(reader, "%snum_hidden_layers says %d, but the tensors hold layers 0..%d under %s", reader->paths[0],
               f->n_layers, facts->n_layers - 1, reader->arch->chain.layers_prefix);
  }
}

/* Layers past the last are multi-token-prediction layers, or the config is wrong. */
static void check_surplus_layers(struct field_reader *reader, const struct tensor_facts *facts) {
  int32_t declared = field_int(reader, "num_nextn_predict_layers|num_mtp_layers", 0);
  for (int32_t i = reader->arch->features.n_layers; reader->status == EAGLET_OK && i < facts->n_layers; i++) {
    if (i - reader->arch->features.n_layers < declared || tensor_axis(reader, facts, i, "eh_proj.weight", 0) >= 0)
      continue;
    field_fail(reader, "%snum_hidden_layers says %d, but tensors %s%d.* exist and are no prediction layer",
               reader->paths[0], reader->arch->features.n_layers, reader->arch->chain.layers_prefix, i);
  }
}

static bool read_qk_norm(struct field_reader *reader, const struct tensor_facts *facts) {
  const struct arch_row *row = reader->arch->row;
  if (row->qk_norm == QK_NORM_NONE) return false;
  if (!row->qk_norm_flag) return true;
  if (row->qk_norm == QK_NORM_UNIT) return field_bool(reader, row->qk_norm_flag, true);
  const struct flag_witness witness = {.name = row->qk_norm_flag, .module = row->layer->q_norm, .tail = ".weight"};
  return flag_or_tensor(reader, facts, &witness);
}

/* Head width: config, else the norm's length, else the family's, else hidden / heads. */
static void read_head_dim(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  int32_t norm = f->qk_norm == QK_NORM_HEAD ? module_axis(reader, facts, 0, row->layer->q_norm, ".weight", 0) : -1;
  f->head_dim = field_int_or_tensor(reader, "head_dim|attention_head_dim", 0, norm, "q_norm.weight");
  bool silent = !json_object_get(reader->levels[0], "head_dim");
  int32_t q_rows = row->transposed ? -1 : module_axis(reader, facts, 0, row->layer->q, ".weight", 0);
  struct field_place heads = field_find(reader, "num_attention_heads|n_head");
  if (f->head_dim == 0 && !heads.value && !facts->fingerprinted) f->head_dim = row->head_dim;
  f->n_heads = heads.value || f->head_dim <= 0 || q_rows < 0
                   ? field_int(reader, "num_attention_heads|n_head", row_default(facts, row->n_heads))
                   : q_rows / f->head_dim;
  field_positive(reader, "num_attention_heads", f->n_heads, 1 << 16);
  if (reader->status != EAGLET_OK || f->head_dim > 0) return;
  if (q_rows > 0 && q_rows % f->n_heads == 0) {
    f->head_dim = q_rows / f->n_heads;
    field_note(reader, "head_dim", json_integer(f->head_dim), "rows of q_proj / num_attention_heads");
  } else if (silent && !facts->fingerprinted && row->head_dim > 0) {
    f->head_dim = row->head_dim;
    field_note(reader, "head_dim", json_integer(f->head_dim), "default");
  } else if (f->hidden % f->n_heads) {
    field_fail(reader, "head_dim is absent and hidden_size %d is not a multiple of num_attention_heads %d", f->hidden,
               f->n_heads);
  } else {
    f->head_dim = f->hidden / f->n_heads;
    field_note(reader, "head_dim", json_integer(f->head_dim), "hidden_size / num_attention_heads");
  }
}

static void read_gqa(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  const struct layer_names *names = row->layer;
  f->qk_norm = read_qk_norm(reader, facts) ? row->qk_norm : QK_NORM_NONE;
  f->qk_norm_after_rope = row->qk_norm_after_rope;
  read_head_dim(reader, facts);
  if (reader->status != EAGLET_OK) return;
  int32_t k_rows = module_axis(reader, facts, 0, names->k, ".weight", 0);
  f->n_kv_heads = field_int_or_tensor(reader, "num_key_value_heads", f->n_heads, k_rows > 0 ? k_rows / f->head_dim : -1,
                                      "self_attn.k_proj.weight");
  field_positive(reader, "head_dim", f->head_dim, 1 << 16);
  field_positive(reader, "num_key_value_heads", f->n_kv_heads, f->n_heads);
  if (reader->status == EAGLET_OK && f->n_heads % f->n_kv_heads)
    field_fail(reader, "num_attention_heads %d is not a multiple of num_key_value_heads %d", f->n_heads, f->n_kv_heads);
  bool joint = names->qkv && module_axis(reader, facts, 0, names->qkv, ".weight", 0) >= 0;
  f->attention_bias = read_bias(reader, facts, row->bias.qkv, joint ? names->qkv : names->q);
  f->attention_out_bias = read_bias(reader, facts, row->bias.o, names->o);
  f->sinks = row->sinks;
}

static void read_mla(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  int32_t q_norm = tensor_axis(reader, facts, 0, "self_attn.q_a_layernorm.weight", 0);
  field_accept(reader, "num_key_value_heads|head_dim");
  f->n_heads = field_int(reader, "num_attention_heads", FIELD_REQUIRED);
  f->q_rank = field_int_or_tensor(reader, "q_lora_rank", 0, q_norm >= 0 ? q_norm : 0, "self_attn.q_a_layernorm.weight");
  f->kv_rank = field_int_or_tensor(reader, "kv_lora_rank", FIELD_REQUIRED,
                                   tensor_axis(reader, facts, 0, "self_attn.kv_a_layernorm.weight", 0),
                                   "self_attn.kv_a_layernorm.weight");
  f->nope_dim = field_int(reader, "qk_nope_head_dim", FIELD_REQUIRED);
  f->rope_dim = field_int(reader, "qk_rope_head_dim", FIELD_REQUIRED);
  f->value_dim = field_int(reader, "v_head_dim", FIELD_REQUIRED);
  field_positive(reader, "num_attention_heads", f->n_heads, 1 << 16);
  field_positive(reader, "kv_lora_rank", f->kv_rank, 1 << 20);
  field_positive(reader, "qk_nope_head_dim", f->nope_dim, 1 << 16);
  field_positive(reader, "qk_rope_head_dim", f->rope_dim, 1 << 16);
  field_positive(reader, "v_head_dim", f->value_dim, 1 << 16);
  f->n_kv_heads = f->n_heads;
  f->head_dim = f->nope_dim + f->rope_dim;
  struct field_place whole = field_find(reader, "qk_head_dim");
  if (whole.value && json_number_value(whole.value) != f->head_dim)
    field_fail(reader, "%s: expected qk_nope_head_dim + qk_rope_head_dim = %d", whole.from, f->head_dim);
  f->attention_bias = read_bias(reader, facts, reader->arch->row->bias.qkv,
                                f->q_rank > 0 ? "self_attn.q_a_proj" : "self_attn.kv_a_proj_with_mqa");
  f->attention_out_bias = f->attention_bias;
}

/* Layers that reuse the choice of another would make a state depend on more than itself, so such models run densely: the same as long
 * as no row has more keys than are kept. */
static bool shares_choices(struct field_reader *reader) {
  struct field_place types = field_find(reader, "indexer_types");
  size_t i;
  json_t *value;
  json_array_foreach((json_t *)types.value, i, value) {
    const char *text = json_string_value(value);
    if (!text || strcmp(text, "full") != 0) return true;
  }
  return field_int(reader, "index_topk_freq", 1) > 1;
}

#define SCORER_HEADS_MIN 16 /* a key scores exactly 0 when no head of the scorer likes it: one in 2^heads */

static void read_sparse(struct field_reader *reader) {
  struct features *f = &reader->arch->features;
  struct sparse_features *sparse = &f->sparse;
  sparse->n_kept = field_int(reader, "index_topk", FIELD_REQUIRED);
  sparse->n_heads = field_int(reader, "index_n_heads", FIELD_REQUIRED);
  sparse->head_dim = field_int(reader, "index_head_dim", FIELD_REQUIRED);
  sparse->rope_style = reader->arch->row->index_rope;
  if (field_find(reader, "indexer_rope_interleave").value)
    sparse->rope_style = field_bool(reader, "indexer_rope_interleave", false) ? ROPE_INTERLEAVED : ROPE_HALF;
  field_accept(reader, "index_topk_pattern|index_skip_topk_offset|index_share_for_mtp_iteration");
  field_positive(reader, "index_topk", sparse->n_kept, INT32_MAX);
  field_positive(reader, "index_n_heads", sparse->n_heads, 4096);
  field_positive(reader, "index_head_dim", sparse->head_dim, 4096);
  if (reader->status == EAGLET_OK && (sparse->head_dim < f->rope_dim || f->q_rank == 0))
    field_fail(reader, "index_head_dim: expected at least qk_rope_head_dim %d, and a q_lora_rank", f->rope_dim);
  const char *why = shares_choices(reader) ? "layers share the choice of keys"
                    : sparse->n_heads < SCORER_HEADS_MIN
                        ? "a scorer of so few heads gives many keys the same score, and which of them count is not defined"
                        : NULL;
  int32_t longest = why ? sparse->n_kept : SELECT_CONTEXT_MAX;
  if (why) sparse->n_kept = 0;
  if (reader->status != EAGLET_OK || longest >= f->positions_max) return;
  if (why)
    arch_warn(reader->arch, "%s: contexts of more than index_topk = %d tokens are refused, up to there attention is dense (%s)",
              reader->what, longest, why);
  else
    arch_warn(reader->arch, "%s: contexts of more than %d tokens are refused: sparse attention scores no more keys", reader->what,
              longest);
  f->positions_max = longest;
}

static void read_scales(struct field_reader *reader) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  f->embed_scale = row->embed_sqrt ? sqrt((double)f->hidden) : 1;
  f->residual_scale = f->logit_scale = 1;
  if (row->multipliers) {
    f->embed_scale = field_double(reader, "embedding_multiplier", 1);
    f->residual_scale = field_double(reader, "residual_multiplier", 1);
    f->logit_scale = 1 / field_double(reader, "logits_scaling", 1);
  }
  if (row->logit_scale) f->logit_scale = field_double(reader, "logit_scale", 0.0625);
  bool gemma2 = row->softcaps == SOFTCAP_BOTH; /* whose defaults are not "none" */
  if (row->softcaps != SOFTCAP_NONE) {
    bool says_attention = json_object_get(reader->levels[0], "attn_logit_softcapping"),
         says_final = json_object_get(reader->levels[0], "final_logit_softcapping");
    f->attention_softcap = field_double(reader, "attn_logit_softcapping", gemma2 && !says_attention ? 50 : 0);
    f->logit_softcap = field_double(reader, "final_logit_softcapping", gemma2 && !says_final ? 30 : 0);
  }
  if (row->softcaps == SOFTCAP_FINAL && f->attention_softcap > 0) {
    arch_warn(reader->arch, "%s: attn_logit_softcapping %g is not applied: no implementation of %s does", reader->what,
              f->attention_softcap, f->row);
    f->attention_softcap = 0;
  }
  if (row->scale == SCALE_QUERY_PRE) {
    double scalar = field_double(reader, "query_pre_attn_scalar", 256);
    if (!(scalar > 0)) field_fail(reader, "query_pre_attn_scalar: expected a positive number, found %g", scalar);
    f->attention_scale = 1 / sqrt(scalar);
  } else if (row->scale == SCALE_MULTIPLIER) {
    f->attention_scale = field_double(reader, "attention_multiplier", 1);
  }
  bool fine = isfinite(f->embed_scale) && isfinite(f->residual_scale) && isfinite(f->logit_scale) && f->logit_scale != 0;
  if (reader->status == EAGLET_OK && !fine) field_fail(reader, "embedding, residual or logit multiplier: out of range");
}

static void read_activation(struct field_reader *reader) {
  static const struct {
    const char *name;
    enum activation kind;
  } known[] = {{"silu", ACTIVATION_SILU},           {"swish", ACTIVATION_SILU},
               {"gelu", ACTIVATION_GELU},           {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
               {"gelu_new", ACTIVATION_GELU_TANH},  {"gelu_fast", ACTIVATION_GELU_TANH},
               {"gelu_python", ACTIVATION_GELU},    {"relu2", ACTIVATION_RELU2},
               {"squared_relu", ACTIVATION_RELU2}};
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  const char *act = field_string(reader, "hidden_activation|hidden_act|activation_function", NULL);
  f->activation = row->activation;
  if (row->activation == ACTIVATION_SWIGLU_CLAMPED) {
    double limit = field_double(reader, "swiglu_limit", 7);
    if (reader->status == EAGLET_OK && limit != 7) field_fail(reader, "swiglu_limit: expected 7, found %g", limit);
    if (act && strcmp(act, "silu") != 0) field_fail(reader, "hidden_act: \"%s\" is not supported for %s", act, f->row);
    return;
  }
  if (!act) return;
  /* Gemma's first configs say "gelu" and mean the tanh form; the reference code takes it so. */
  if (row->norm_plus_one && row->embed_sqrt && strcmp(act, "gelu") == 0) return;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(act, known[i].name) != 0) continue;
    f->activation = known[i].kind;
    return;
  }
  field_fail(reader, "hidden_act: \"%s\" is not supported", act);
}

static void read_ffn(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  const struct layer_names *names = row->layer;
  bool dense_here = row->moe == MOE_NONE;
  read_activation(reader);
  f->gated = names->gate != NULL;
  f->ffn_bias = read_bias(reader, facts, row->bias.ffn, names->down);
  bool joint = names->gate_up && module_axis(reader, facts, 0, names->gate_up, ".weight", 0) >= 0;
  int32_t rows = module_axis(reader, facts, 0, joint ? names->gate_up : names->up, ".weight", row->transposed ? 1 : 0);
  if (joint && rows > 0) rows /= 2;
  int32_t fallback = dense_here ? row_default(facts, row->intermediate) : 0;
  if (row->transposed) fallback = 4 * f->hidden;
  const char *field = row->expert_is_intermediate && row->moe == MOE_INTERLEAVED ? "intermediate_size_mlp"
                                                                                 : "intermediate_size|n_inner";
  f->intermediate = field_int_or_tensor(reader, field, fallback, rows, "layers.0 mlp");
  if (dense_here) field_positive(reader, "intermediate_size", f->intermediate, 1 << 24);
  arch_read_moe(reader, facts);
}

/* Features of GPT-2's kind that change the arithmetic and are off in every known checkpoint. */
static void check_gpt2(struct field_reader *reader) {
  if (!field_bool(reader, "scale_attn_weights", true)) field_fail(reader, "scale_attn_weights: false is not supported");
  if (field_bool(reader, "scale_attn_by_inverse_layer_idx", false))
    field_fail(reader, "scale_attn_by_inverse_layer_idx: not supported");
  if (field_bool(reader, "add_cross_attention", false)) field_fail(reader, "add_cross_attention: not supported");
  field_accept(reader, "reorder_and_upcast_attn|n_ctx");
}

void arch_read_features(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  f->attention = row->attention;
  f->norm = row->norm;
  f->norm_plus_one = row->norm_plus_one;
  f->norm_bias = row->norm_bias;
  f->parallel = row->parallel;
  f->tied_head = reader->arch->chain.head_name[0] == 0;
  read_sizes(reader, facts);
  if (reader->status == EAGLET_OK) check_surplus_layers(reader, facts);
  if (f->attention == ATTENTION_MLA)
    read_mla(reader, facts);
  else
    read_gqa(reader, facts);
  if (reader->status == EAGLET_OK && row->index_topk) read_sparse(reader);
  if (row->transposed) check_gpt2(reader);
  if (reader->status == EAGLET_OK && field_bool(reader, "use_bidirectional_attention", false))
    field_fail(reader, "use_bidirectional_attention: only causal decoders are supported");
  if (reader->status == EAGLET_OK && field_double(reader, "clip_qkv", 0) != 0)
    field_fail(reader, "clip_qkv: clipped projections are not supported");
  if (reader->status == EAGLET_OK) arch_read_rope(reader, facts);
  if (reader->status == EAGLET_OK) read_scales(reader);
  if (reader->status == EAGLET_OK) arch_read_layers(reader, facts);
  if (reader->status == EAGLET_OK) read_ffn(reader, facts);
  f->context_max = f->positions_max;
  if (f->n_ropes > 0 && f->rope[0].scaling == ROPE_SCALING_DYNAMIC && f->positions_max < (1 << 24))
    f->context_max = (int32_t)(f->positions_max * fmin(f->rope[0].factor, 64));
  field_note(reader, "attention_scale", json_real(f->attention_scale), "derived");
  if (reader->status == EAGLET_OK) field_check_known(reader);
}
