/* head_file.c - see head_file.h. Writes the two files of a head that was trained here, and reads one back into the trainer's
 * block of parameters; knows nothing of arithmetic. */
#include "draft/head_internal.h"

#include "base/memory.h"
#include "base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* ---- head_config -> config.json ---- */

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

json_t *head_config_write(const struct head_config *c, const struct model *target) {
  json_t *json = json_pack("{s:[s],s:s}", "architectures", "LlamaForCausalLMEagle3", "model_type", "llama");
  const struct {
    const char *name;
    int32_t value;
  } sizes[] = {{"hidden_size", c->hidden},
               {"target_hidden_size", c->target_hidden},
               {"intermediate_size", c->intermediate},
               {"num_attention_heads", c->n_heads},
               {"num_key_value_heads", c->n_kv_heads},
               {"head_dim", c->head_dim},
               {"num_hidden_layers", 1},
               {"max_position_embeddings", c->positions_max},
               {"vocab_size", c->n_target},
               {"draft_vocab_size", c->n_draft}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    json_object_set_new(json, sizes[i].name, json_integer(sizes[i].value));
  json_object_set_new(json, "rms_norm_eps", json_real(c->norm_eps));
  json_object_set_new(json, "rope_theta", json_real(c->rope.theta));
  if (c->rope.scaling != ROPE_SCALING_NONE) json_object_set_new(json, "rope_scaling", scaling_block(&c->rope));
  json_object_set_new(json, "hidden_act", json_string("silu"));
  json_object_set_new(json, "attention_bias", json_false());
  json_object_set_new(json, "tie_word_embeddings", json_false());
  json_object_set_new(json, "torch_dtype", json_string("bfloat16"));
  if (target) copy_ids(json, target);
  json_t *eagle = json_object();
  json_object_set_new(eagle, "use_aux_hidden_state", json_true());
  json_object_set_new(eagle, "eagle_aux_hidden_state_layer_ids", state_list(c, -1));
  json_object_set_new(eagle, "eaglet_states", state_list(c, 0));
  json_object_set_new(json, "eagle_config", eagle);
  return json;
}

/* ---- weights ---- */

static enum eaglet_status write_weights(const char *path, const struct head_export *e, struct eaglet_error *err) {
  struct safetensors_writer *writer = safetensors_writer_create();
  void *storage[HEAD_PARAMETER_COUNT + 1] = {NULL};
  size_t element = (size_t)dtype_bits(e->dtype) / 8;
  char hash[32];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)vocab_map_hash(e->map));
  safetensors_writer_metadata(writer, "format", "pt");
  safetensors_writer_metadata(writer, "eaglet_d2t_hash", hash);
  if (e->metadata_json) safetensors_writer_metadata(writer, "eaglet_training", e->metadata_json);
  for (int i = 0; i < HEAD_PARAMETER_COUNT; i++) {
    int64_t shape[2];
    head_parameter_shape(e->config, (enum head_parameter)i, shape);
    size_t n = (size_t)(shape[0] * shape[1]);
    storage[i] = memory_alloc(n * element);
    dtype_from_f32(storage[i], e->dtype, e->parameters + head_parameter_offset(e->config, (enum head_parameter)i), n);
    safetensors_writer_add(writer, head_parameter_name((enum head_parameter)i), e->dtype, shape[1] == 1 ? 1 : 2, shape,
                           storage[i]);
  }
  if (e->map->n_draft < e->map->n_target) vocab_map_write(e->map, writer, &storage[HEAD_PARAMETER_COUNT]);
  enum eaglet_status status = safetensors_writer_commit(writer, path, err);
  safetensors_writer_free(writer);
  for (int i = 0; i <= HEAD_PARAMETER_COUNT; i++) free(storage[i]);
  return status;
}

enum eaglet_status head_export(const char *directory, const struct head_export *e, struct eaglet_error *err) {
  TRY(file_make_directory(directory, err));
  char *weights = file_join(directory, "model.safetensors"), *config = file_join(directory, "config.json");
  json_t *json = head_config_write(e->config, e->target);
  struct eaglet_text text = json_dump(json, 2);
  enum eaglet_status status = write_weights(weights, e, err);
  if (status == EAGLET_OK) status = file_write(config, text.data, text.length, err);
  free(text.data);
  json_decref(json);
  free(weights);
  free(config);
  return status;
}

/* ---- import ---- */

static void copy_weight(float *to, const struct weight *w) {
  for (int32_t row = 0; row < w->n_out; row++) weight_row_to_f32(w, row, to + (int64_t)row * w->n_in);
}

static bool has_window(const struct head_config *c) {
  for (int32_t i = 0; i <= c->n_more_layers; i++) {
    if (c->window[i] > 0) return true;
  }
  return false;
}

/* The trainer knows the standard head only. */
static enum eaglet_status check_trainable(const struct head *head, struct eaglet_error *err) {
  const struct head_config *c = &head->config;
  const struct {
    bool has;
    const char *what;
  } parts[] = {
      {c->attention == ATTENTION_MLA, "latent attention (kv_lora_rank)"},
      {c->n_more_layers > 0, "more than one layer (num_hidden_layers)"},
      {c->wiring.fc_norms, "norms of the states (fc_norm)"},
      {c->wiring.fc_input_norm, "a norm before fc (norm_before_fc)"},
      {c->wiring.norm_before_residual, "norm_before_residual"},
      {c->wiring.norm_output, "norm_output"},
      {c->qk_norm, "norms of queries and keys (q_norm)"},
      {c->attention_bias || c->attention_out_bias || c->ffn_bias || c->fc_bias, "biases"},
      {has_window(c), "a sliding window"},
      {c->tied, "an lm_head that is the embedding (tie_word_embeddings)"},
      {c->hidden != c->target_hidden, "another hidden size than the target's (target_hidden_size)"},
      {c->own_embed && !head_same_rows(&head->embed, &head->target->embed), "an embedding of its own (embed_tokens.weight)"}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (parts[i].has)
      FAIL(err, EAGLET_E_INPUT, "%s: %s cannot be trained: the trainer knows the standard head only",
           head->files.path, parts[i].what);
  }
  return EAGLET_OK;
}

enum eaglet_status head_import(float *parameters, const struct head *head, struct eaglet_error *err) {
  TRY(check_trainable(head, err));
  const struct head_layer *layer = &head->layers[0];
  const struct weight *weights[HEAD_PARAMETER_COUNT] = {
      [HEAD_FC] = &head->fc,           [HEAD_Q] = &layer->attention.q, [HEAD_K] = &layer->attention.k,
      [HEAD_V] = &layer->attention.v,  [HEAD_O] = &layer->attention.o, [HEAD_GATE] = layer->ffn.gate,
      [HEAD_UP] = layer->ffn.up,       [HEAD_DOWN] = layer->ffn.down,  [HEAD_LM_HEAD] = &head->lm_head};
  const float *norms[HEAD_PARAMETER_COUNT] = {[HEAD_INPUT_NORM] = head->embed_norm,
                                              [HEAD_HIDDEN_NORM] = head->hidden_norm,
                                              [HEAD_POST_NORM] = layer->post_norm,
                                              [HEAD_NORM] = head->norm};
  for (int i = 0; i < HEAD_PARAMETER_COUNT; i++) {
    float *to = parameters + head_parameter_offset(&head->config, (enum head_parameter)i);
    if (weights[i])
      copy_weight(to, weights[i]);
    else
      memcpy(to, norms[i], sizeof(float) * (size_t)head->config.hidden);
  }
  return EAGLET_OK;
}
