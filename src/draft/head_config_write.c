/* head_config_write.c - config.json of a head, in the dialects that servers and trainers read; see head_file.h. What a dialect cannot
 * say is refused before (head_convert.c). No nulls, and every size spelled out, because loaders' defaults differ. */
#include "draft/head_file.h"

static json_t *state_list(const struct head_config *config, int shift) {
  json_t *list = json_array();
  for (int32_t i = 0; i < config->n_states; i++) json_array_append_new(list, json_integer(config->states[i] + shift));
  return list;
}

static json_t *scaling_block(const struct rope_features *rope) {
  static const char *const names[] = {[ROPE_SCALING_NONE] = "default",
                                      [ROPE_SCALING_LINEAR] = "linear",
                                      [ROPE_SCALING_LLAMA3] = "llama3",
                                      [ROPE_SCALING_YARN] = "yarn",
                                      [ROPE_SCALING_DYNAMIC] = "dynamic",
                                      [ROPE_SCALING_LONGROPE] = "longrope"};
  json_t *block = json_pack("{s:s,s:s,s:f,s:i}", "rope_type", names[rope->scaling], "type", names[rope->scaling],
                            "factor", rope->factor, "original_max_position_embeddings", rope->original_positions);
  if (rope->scaling == ROPE_SCALING_LLAMA3) {
    json_object_set_new(block, "low_freq_factor", json_real(rope->low_freq_factor));
    json_object_set_new(block, "high_freq_factor", json_real(rope->high_freq_factor));
  }
  if (rope->scaling == ROPE_SCALING_YARN) {
    json_object_set_new(block, "beta_fast", json_real(rope->beta_fast));
    json_object_set_new(block, "beta_slow", json_real(rope->beta_slow));
    if (rope->mscale != 0) json_object_set_new(block, "mscale", json_real(rope->mscale));
    if (rope->mscale_all_dim != 0) json_object_set_new(block, "mscale_all_dim", json_real(rope->mscale_all_dim));
    if (rope->attention_factor != 0) json_object_set_new(block, "attention_factor", json_real(rope->attention_factor));
    if (!rope->truncate) json_object_set_new(block, "truncate", json_false());
  }
  if (rope->scaling == ROPE_SCALING_LONGROPE) {
    json_object_set(block, "short_factor", (json_t *)rope->short_factors);
    json_object_set(block, "long_factor", (json_t *)rope->long_factors);
    json_object_set_new(block, "attention_factor", json_real(rope->attention_factor));
  }
  return block;
}

/* Token ids that servers look for in a draft's config, as the target has them. */
static void copy_ids(json_t *json, const struct model *target) {
  const char *const names[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  for (size_t i = 0; i < 3; i++) {
    const json_t *id = json_object_get(target->arch.config, names[i]);
    if (!id) id = json_object_get(target->checkpoint.config, names[i]);
    if (id && !json_is_null(id)) json_object_set(json, names[i], (json_t *)id);
  }
}

static void set_int(json_t *json, const char *name, int32_t value) { json_object_set_new(json, name, json_integer(value)); }
static void set_bool(json_t *json, const char *name, bool value) { json_object_set_new(json, name, json_boolean(value)); }

static void write_latent(json_t *json, const struct head_config *c) {
  if (c->attention != ATTENTION_MLA) return;
  if (c->q_rank > 0) set_int(json, "q_lora_rank", c->q_rank);
  set_int(json, "kv_lora_rank", c->kv_rank);
  set_int(json, "qk_nope_head_dim", c->nope_dim);
  set_int(json, "qk_rope_head_dim", c->rope_dim);
  set_int(json, "v_head_dim", c->value_dim);
  if (c->rope.style == ROPE_HALF) set_bool(json, "rope_interleave", false);
}

static void write_windows(json_t *json, const struct head_config *c) {
  json_t *types = json_array();
  int32_t window = 0;
  for (int32_t i = 0; i <= c->n_more_layers; i++) {
    json_array_append_new(types, json_string(c->window[i] > 0 ? "sliding_attention" : "full_attention"));
    window = c->window[i] > 0 ? c->window[i] : window;
  }
  if (window > 0) {
    set_int(json, "sliding_window", window);
    set_bool(json, "use_sliding_window", true);
    json_object_set(json, "layer_types", types);
  }
  json_decref(types);
}

/* Fields of the decoder, without the draft's own. */
static void write_decoder(json_t *json, const struct head_config *c) {
  set_int(json, "intermediate_size", c->intermediate);
  set_int(json, "num_attention_heads", c->n_heads);
  set_int(json, "num_key_value_heads", c->n_kv_heads);
  set_int(json, "head_dim", c->head_dim);
  set_int(json, "num_hidden_layers", 1 + c->n_more_layers);
  set_int(json, "max_position_embeddings", c->positions_max);
  set_int(json, "vocab_size", c->n_target);
}

static void write_arithmetic(json_t *json, const struct head_config *c) {
  json_object_set_new(json, "rms_norm_eps", json_real(c->norm_eps));
  json_object_set_new(json, "rope_theta", json_real(c->rope.theta));
  if (c->rope.scaling != ROPE_SCALING_NONE) json_object_set_new(json, "rope_scaling", scaling_block(&c->rope));
  json_object_set_new(json, "hidden_act", json_string("silu"));
  set_bool(json, "attention_bias", c->attention_bias);
  if (c->ffn_bias) set_bool(json, "mlp_bias", true);
  if (c->fc_bias) set_bool(json, "bias", true);
  write_latent(json, c);
  write_windows(json, c);
}

/* Flags of the draft that are off in a standard head. */
static void write_wiring(json_t *json, const struct head_config *c) {
  if (c->wiring.fc_norms) set_bool(json, "fc_norm", true);
  if (c->wiring.fc_input_norm) set_bool(json, "norm_before_fc", true);
  if (c->wiring.norm_output) set_bool(json, "norm_output", true);
  if (c->wiring.norm_before_residual) set_bool(json, "norm_before_residual", true);
  if (c->n_states != 3) set_int(json, "num_aux_hidden_states", c->n_states);
  if (c->embed_trained) set_bool(json, "embed_requires_grad", true);
}

static const char *class_of(const struct head_config *c, enum head_dialect dialect, const char **model_type) {
  *model_type = c->attention == ATTENTION_MLA ? "deepseek_v3" : c->qk_norm ? "qwen3" : "llama";
  if (c->attention == ATTENTION_MLA) return "Eagle3DeepseekV2ForCausalLM";
  return c->qk_norm && dialect == HEAD_DIALECT_VLLM ? "Eagle3Qwen3ForCausalLM" : "LlamaForCausalLMEagle3";
}

/* vLLM counts layers in the list at the top; SGLang numbers outputs in eagle_config. */
static json_t *write_flat(const struct head_config *c, const struct head_naming *naming) {
  const char *model_type, *class = class_of(c, naming->dialect, &model_type);
  json_t *json = json_pack("{s:[s],s:s}", "architectures", class, "model_type", model_type), *eagle = json_object();
  set_int(json, "hidden_size", c->hidden);
  set_int(json, "target_hidden_size", c->target_hidden);
  write_decoder(json, c);
  if (c->own_lm_head || c->n_draft != c->n_target || naming->dialect != HEAD_DIALECT_SGLANG)
    set_int(json, "draft_vocab_size", c->n_draft); /* absent, SGLang borrows the target's lm_head */
  write_arithmetic(json, c);
  set_bool(json, "tie_word_embeddings", c->tied && naming->dialect == HEAD_DIALECT_SGLANG);
  json_object_set_new(json, "torch_dtype", json_string(naming->dtype));
  write_wiring(json, c);
  if (naming->target) copy_ids(json, naming->target);
  if (naming->dialect == HEAD_DIALECT_VLLM) json_object_set_new(json, "eagle_aux_hidden_state_layer_ids", state_list(c, 0));
  set_bool(eagle, "use_aux_hidden_state", true);
  if (naming->dialect == HEAD_DIALECT_SGLANG) {
    json_object_set_new(eagle, "eagle_aux_hidden_state_layer_ids", state_list(c, -1));
    json_object_set_new(eagle, "eaglet_states", state_list(c, 0));
  }
  json_object_set_new(json, "eagle_config", eagle);
  return json;
}

static const json_t *target_class(const struct model *target) {
  return json_array_get(json_object_get(target->checkpoint.config, "architectures"), 0);
}

static json_t *write_speculators(const struct head_config *c, const struct head_naming *naming) {
  const char *model_type;
  class_of(c, naming->dialect, &model_type);
  json_t *decoder = json_pack("{s:s}", "model_type", model_type), *classes = json_array();
  set_int(decoder, "hidden_size", c->hidden);
  write_decoder(decoder, c);
  write_arithmetic(decoder, c);
  if (target_class(naming->target)) json_array_append(classes, (json_t *)target_class(naming->target));
  json_t *json = json_pack("{s:[s],s:s,s:s,s:i,s:b,s:b,s:b,s:b,s:b,s:b,s:s,s:o,s:o}", "architectures", "Eagle3Speculator",
                           "speculators_model_type", "eagle3", "speculators_version", "0.5.0", "draft_vocab_size", c->n_draft,
                           "norm_before_residual", (int)c->wiring.norm_before_residual, "norm_before_fc",
                           (int)c->wiring.fc_input_norm, "fc_norm", (int)c->wiring.fc_norms, "norm_output",
                           (int)c->wiring.norm_output, "embed_requires_grad", (int)c->embed_trained, "tie_word_embeddings", 0, "torch_dtype",
                           naming->dtype, "eagle_aux_hidden_state_layer_ids", state_list(c, 0), "transformer_layer_config",
                           decoder);
  if (c->hidden != c->target_hidden) set_int(json, "target_hidden_size", c->target_hidden);
  json_object_set_new(
      json, "speculators_config",
      json_pack("{s:s,s:[{s:s,s:i,s:i,s:f}],s:s,s:{s:s,s:o}}", "algorithm", "eagle3", "proposal_methods", "proposal_type",
                "greedy", "speculative_tokens", 3, "verifier_accept_k", 1, "accept_tolerance", 0.0,
                "default_proposal_method", "greedy", "verifier", "name_or_path", naming->target_name, "architectures", classes));
  return json;
}

json_t *head_config_write_as(const struct head_config *c, const struct head_naming *naming) {
  return naming->dialect == HEAD_DIALECT_SPECULATORS ? write_speculators(c, naming) : write_flat(c, naming);
}

json_t *head_config_write(const struct head_config *c, const struct model *target) {
  struct head_config trained = *c;
  trained.own_lm_head = !c->tied;
  if (!target) trained.dialect = HEAD_DIALECT_SGLANG;
  const struct head_naming naming = {.dialect = trained.dialect,
                                     .dtype = "bfloat16",
                                     .target = target,
                                     .target_name = target ? target->checkpoint.path : NULL};
  return head_config_write_as(&trained, &naming);
}
