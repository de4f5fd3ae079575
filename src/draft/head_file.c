/* head_file.c - see head_file.h. Reads and writes the two files of a head; knows the conventions of other projects'
 * configs, nothing of arithmetic. Flags that change the head's arithmetic and are not implemented are refused by name.
 */
#include "draft/head_file.h"

#include "base/memory.h"
#include "base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* ---- config.json -> head_config ---- */

/* Fields that must hold a certain value (or be absent): anything else would change the arithmetic. */
static enum eaglet_status check_flags(const json_t *json, const char *what, struct eaglet_error *err) {
  static const char *const false_flags[] = {"norm_before_residual", "norm_before_fc", "fc_norm",  "norm_output",
                                            "attention_bias",       "bias",           "mlp_bias", "tie_word_embeddings",
                                            "use_sliding_window"};
  for (size_t i = 0; i < sizeof false_flags / sizeof *false_flags; i++) {
    const json_t *flag = json_object_get(json, false_flags[i]);
    if (flag && !json_is_null(flag) && !json_is_false(flag))
      FAIL(err, EAGLET_E_INPUT, "%s: %s: only false is supported", what, false_flags[i]);
  }
  static const char *const one_factors[] = {"logit_scale", "partial_rotary_factor"};
  for (size_t i = 0; i < sizeof one_factors / sizeof *one_factors; i++) {
    const json_t *factor = json_object_get(json, one_factors[i]);
    if (factor && !json_is_null(factor) && !(json_is_number(factor) && json_number_value(factor) == 1))
      FAIL(err, EAGLET_E_INPUT, "%s: %s: only 1 is supported", what, one_factors[i]);
  }
  int64_t n_layers;
  const char *act;
  TRY(json_get_int_or(&n_layers, 1, json, "num_hidden_layers", what, err));
  TRY(json_get_string_or(&act, "silu", json, "hidden_act", what, err));
  if (n_layers != 1)
    FAIL(err, EAGLET_E_INPUT, "%s: num_hidden_layers: heads of one layer are supported, found %lld", what,
         (long long)n_layers);
  if (strcmp(act, "silu") != 0) FAIL(err, EAGLET_E_INPUT, "%s: hidden_act: expected silu, found %s", what, act);
  const json_t *quantization = json_object_get(json, "quantization_config");
  if (quantization && !json_is_null(quantization)) /* A17: a head's precision is its own, whatever the target's is */
    FAIL(err, EAGLET_E_INPUT, "%s: quantization_config: heads in BF16, F16 or F32 are supported", what);
  if (json_object_get(json, "kv_lora_rank"))
    FAIL(err, EAGLET_E_INPUT, "%s: kv_lora_rank: MLA heads are not supported yet", what);
  return EAGLET_OK;
}

static enum eaglet_status read_state_list(struct head_config *config, const json_t *list, int shift,
                                          const struct features *target, const char *what, struct eaglet_error *err) {
  size_t n = json_array_size(list);
  if (n < 1 || n > TAPS_MAX)
    FAIL(err, EAGLET_E_INPUT, "%s: captured states: expected 1 to %d numbers, found %zu", what, TAPS_MAX, n);
  config->n_states = (int32_t)n;
  for (size_t i = 0; i < n; i++) {
    const json_t *item = json_array_get(list, i);
    json_int_t state = json_is_integer(item) ? json_integer_value(item) + shift : -1;
    if (state < 0 || state > target->n_layers || (i > 0 && state <= config->states[i - 1])) {
      FAIL(err, EAGLET_E_INPUT, "%s: captured state %lld: expected ascending numbers in 0..%d", what, (long long)state,
           target->n_layers);
    }
    config->states[i] = (int32_t)state;
  }
  return EAGLET_OK;
}

static enum eaglet_status read_states(struct head_config *config, const json_t *json, const struct features *target,
                                      const char *what, struct eaglet_error *err) {
  const json_t *eagle = json_object_get(json, "eagle_config");
  const json_t *ours = json_object_get(eagle, "eaglet_states");
  const json_t *ids = json_object_get(eagle, "eagle_aux_hidden_state_layer_ids");
  if (!ids) ids = json_object_get(json, "eagle_aux_hidden_state_layer_ids");
  if (json_is_array(ours)) return read_state_list(config, ours, 0, target, what, err);
  if (json_is_array(ids)) return read_state_list(config, ids, 1, target, what, err);
  config->n_states = model_default_states(target, config->states);
  return EAGLET_OK;
}

struct size_field {
  const char *name;
  int32_t *value;
  int64_t fallback; /* -1: required */
};

static enum eaglet_status read_sizes(const struct size_field *fields, size_t n, const json_t *json, const char *what,
                                     struct eaglet_error *err) {
  for (size_t i = 0; i < n; i++) {
    int64_t value;
    if (fields[i].fallback < 0)
      TRY(json_get_int(&value, json, fields[i].name, what, err));
    else
      TRY(json_get_int_or(&value, fields[i].fallback, json, fields[i].name, what, err));
    if (value < 1 || value > INT32_MAX)
      FAIL(err, EAGLET_E_INPUT, "%s: %s: %lld is no size", what, fields[i].name, (long long)value);
    *fields[i].value = (int32_t)value;
  }
  return EAGLET_OK;
}

enum eaglet_status head_config_read(struct head_config *config, const json_t *json, const struct features *target,
                                    const char *what, struct eaglet_error *err) {
  *config = (struct head_config){0};
  if (!json_is_object(json)) FAIL(err, EAGLET_E_INPUT, "%s: expected an object", what);
  TRY(check_flags(json, what, err));
  const struct size_field first[] = {{"hidden_size", &config->hidden, -1},
                                     {"num_attention_heads", &config->n_heads, -1},
                                     {"intermediate_size", &config->intermediate, -1},
                                     {"vocab_size", &config->n_target, target->n_vocab},
                                     {"target_hidden_size", &config->target_hidden, target->hidden},
                                     {"max_position_embeddings", &config->positions_max, target->positions_max}};
  TRY(read_sizes(first, sizeof first / sizeof *first, json, what, err));
  const struct size_field then[] = {
      {"num_key_value_heads", &config->n_kv_heads, config->n_heads},
      {"draft_vocab_size", &config->n_draft, config->n_target},
      {"head_dim", &config->head_dim, config->hidden / config->n_heads > 0 ? config->hidden / config->n_heads : 1}};
  TRY(read_sizes(then, sizeof then / sizeof *then, json, what, err));
  TRY(json_get_double_or(&config->norm_eps, 1e-6, json, "rms_norm_eps", what, err));
  if (config->n_heads % config->n_kv_heads != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: %d heads cannot share %d key/value heads", what, config->n_heads,
         config->n_kv_heads);
  if (config->n_target != target->n_vocab)
    FAIL(err, EAGLET_E_INPUT, "%s: vocab_size: the target has %d, the head is made for %d", what, target->n_vocab,
         config->n_target);
  if (config->target_hidden != target->hidden)
    FAIL(err, EAGLET_E_INPUT, "%s: target_hidden_size: the target has %d, the head is made for %d", what,
         target->hidden, config->target_hidden);
  if (config->hidden != target->hidden)
    FAIL(err, EAGLET_E_INPUT, "%s: hidden_size: the target's shared embedding has %d, the head %d", what,
         target->hidden, config->hidden);
  if (config->n_draft > config->n_target)
    FAIL(err, EAGLET_E_INPUT, "%s: draft_vocab_size: %d is more than vocab_size %d", what, config->n_draft,
         config->n_target);
  const struct rope_request rope = {.config = json, .head_dim = config->head_dim, .positions_max = config->positions_max};
  TRY(rope_features_read(&config->rope, &rope, what, err));
  return read_states(config, json, target, what, err);
}

void head_config_remark(const struct head_config *config, const json_t *json, const char *what) {
  const json_t *flat = json_object_get(json, "rope_theta"), *scaling = json_object_get(json, "rope_scaling"),
               *parameters = json_object_get(json, "rope_parameters");
  bool nested = json_is_number(json_object_get(scaling, "rope_theta")) ||
                json_is_number(json_object_get(parameters, "rope_theta"));
  if (json_is_number(flat) && json_number_value(flat) != config->rope.theta) {
    log_warning("%s: rope_theta: %g beside a nested %g, which is used", what, json_number_value(flat),
                config->rope.theta);
  }
  if (!json_is_number(flat) && !nested)
    log_warning("%s: rope_theta: not given, using the family's %g", what, config->rope.theta);
}

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

enum eaglet_status head_import(float *parameters, const struct head *head, struct eaglet_error *err) {
  const struct weight *weights[HEAD_PARAMETER_COUNT] = {
      [HEAD_FC] = &head->fc,         [HEAD_Q] = &head->attention.q, [HEAD_K] = &head->attention.k,
      [HEAD_V] = &head->attention.v, [HEAD_O] = &head->attention.o, [HEAD_GATE] = head->ffn.gate,
      [HEAD_UP] = head->ffn.up,      [HEAD_DOWN] = head->ffn.down,  [HEAD_LM_HEAD] = &head->lm_head};
  const float *norms[HEAD_PARAMETER_COUNT] = {[HEAD_INPUT_NORM] = head->input_norm,
                                              [HEAD_HIDDEN_NORM] = head->hidden_norm,
                                              [HEAD_POST_NORM] = head->post_norm,
                                              [HEAD_NORM] = head->norm};
  for (int i = 0; i < HEAD_PARAMETER_COUNT; i++) {
    float *to = parameters + head_parameter_offset(&head->config, (enum head_parameter)i);
    if (weights[i])
      copy_weight(to, weights[i]);
    else
      memcpy(to, norms[i], sizeof(float) * (size_t)head->config.hidden);
  }
  (void)err;
  return EAGLET_OK;
}
