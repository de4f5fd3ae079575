/* test_head_file.c - heads as files: configs of several projects, refusals by name (A01, A18, E04, E11), and export ->
 * import -> export. */
#include "head_variant.h"

#include "draft/head_file.h"

#include <math.h>

/* What the target of these heads is, as far as a config is concerned. */
static const struct features target_features = {.hidden = 320, .n_vocab = 4096, .n_layers = 8, .positions_max = 4096};

static enum eaglet_status read_config(struct head_config *config, const char *more, struct eaglet_error *err) {
  char *text = memory_format("{\"hidden_size\": 320, \"intermediate_size\": 768, \"num_attention_heads\": 8, "
                             "\"num_key_value_heads\": 4, \"head_dim\": 40, "
                             "\"vocab_size\": 4096, \"draft_vocab_size\": 2048%s%s}",
                             *more ? ", " : "", more);
  json_t *json;
  assert_ok(json_parse(&json, text, strlen(text), "config.json", err), err);
  enum eaglet_status status = head_config_read(config, json, &target_features, "config.json", err);
  json_decref(json);
  free(text);
  return status;
}

/* A18: the nested value wins; the flat one is a fallback; neither is the family's default. */
static void test_theta(void **state) {
  (void)state;
  static const struct {
    const char *more;
    double theta;
  } cases[] = {
      {"\"rope_theta\": 5e6", 5e6},
      {"\"rope_parameters\": {\"rope_theta\": 5e6, \"rope_type\": \"default\"}", 5e6},
      {"\"rope_scaling\": {\"rope_theta\": 5e6, \"type\": \"default\"}", 5e6},
      {"\"rope_theta\": 5e4, \"rope_parameters\": {\"rope_theta\": 5e6, \"rope_type\": \"default\"}", 5e6},
      {"", 1e4},
      {"\"rope_theta\": null, \"rope_scaling\": null", 1e4},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct head_config config;
    struct eaglet_error err;
    assert_ok(read_config(&config, cases[i].more, &err), &err);
    assert_true(config.rope.theta == cases[i].theta && config.rope.scaling == ROPE_SCALING_NONE &&
                config.rope.dim == 40);
  }
}

static void test_states(void **state) {
  (void)state;
  static const struct {
    const char *more;
    int32_t n, states[3];
  } cases[] = {
      {"\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 3, 4]}", 3, {2, 4, 5}},
      {"\"eagle_aux_hidden_state_layer_ids\": [2, 4, 5]", 3, {2, 4, 5}}, /* where vLLM reads them */
      {"\"eagle_aux_hidden_state_layer_ids\": [2, 4, 5], \"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 3, 4]}", 3, {2, 4, 5}},
      {"\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 3, 4], \"eaglet_states\": [2, 4, 5]}",
       3,
       {2, 4, 5}},
      {"\"eagle_config\": {\"eaglet_states\": [0, 8]}", 2, {0, 8}},
      {"\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [-1, 7]}", 2, {0, 8}},
  };
  struct head_config config;
  struct eaglet_error err;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_ok(read_config(&config, cases[i].more, &err), &err);
    assert_int_equal(config.n_states, cases[i].n);
    assert_memory_equal(config.states, cases[i].states, sizeof(int32_t) * (size_t)cases[i].n);
  }
  int32_t states[3];
  assert_ok(read_config(&config, "", &err), &err);
  assert_int_equal(config.n_states, model_default_states(&target_features, states));
  assert_memory_equal(config.states, states, sizeof states);
}

static void test_config_refusals(void **state) {
  (void)state;
  static const struct {
    const char *more, *words;
  } cases[] = {
      {"\"logit_scale\": 0.5", "logit_scale"},
      {"\"partial_rotary_factor\": 0.5", "partial_rotary_factor"},
      {"\"num_hidden_layers\": 9", "num_hidden_layers"},
      {"\"norm_output\": \"yes\"", "norm_output"},
      {"\"fc_norm\": true, \"norm_before_fc\": true", "exclude"},
      {"\"sliding_window\": 64", "sliding_window"},
      {"\"use_sliding_window\": true, \"sliding_window\": 64", "sliding_window"},
      {"\"layer_types\": [\"sliding_attention\"]", "sliding_window"},
      {"\"layer_types\": [\"linear_attention\"]", "linear_attention"},
      {"\"future_norm\": true", "future_norm"}, /* I06 */
      {"\"eagle_config\": {\"future_norm\": 2}", "eagle_config.future_norm"},
      {"\"eagle_config\": {\"use_aux_hidden_state\": false}", "use_aux_hidden_state"},
      {"\"eagle_config\": {\"use_input_layernorm_in_first_layer\": false}", "use_input_layernorm_in_first_layer"},
      {"\"eagle_config\": {\"use_last_layernorm\": false}", "use_last_layernorm"},
      {"\"eagle_config\": {\"use_mtp_layernorm\": true}", "use_mtp_layernorm"},
      {"\"eagle_config\": {\"parallel_draft_step\": 4}", "parallel_draft_step"},
      {"\"num_hidden_layers\": 2, \"eagle_config\": {\"next_layer_regular\": false}", "next_layer_regular"},
      {"\"num_aux_hidden_states\": 4, \"eagle_config\": {\"eaglet_states\": [2, 4, 5]}", "num_aux_hidden_states"},
      {"\"speculators_model_type\": \"peagle\"", "peagle"},
      {"\"speculators_config\": {\"algorithm\": \"mtp\"}", "mtp"},
      {"\"transformer_layer_config\": {\"hidden_size\": 320}", "norm_before_residual"},
      {"\"hidden_act\": \"gelu\"", "gelu"},
      {"\"kv_lora_rank\": 96", "qk_nope_head_dim"},
      {"\"target_hidden_size\": 640", "target_hidden_size"},
      {"\"rope_scaling\": {\"type\": \"proportional\", \"factor\": 2}", "proportional"},
      {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"beta_quick\": 3}", "beta_quick"},
      {"\"rope_theta\": \"big\"", "rope_theta"},
      {"\"eagle_config\": {\"eaglet_states\": []}", "states"},
      {"\"eagle_config\": {\"eaglet_states\": [2, 2, 4]}", "state 2"},
      {"\"eagle_config\": {\"eaglet_states\": [2, 4, 9]}", "state 9"},
      {"\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 3, 8]}", "state 9"},
      {"\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 3, 4.5]}", "state"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct head_config config;
    struct eaglet_error err;
    assert_refused(read_config(&config, cases[i].more, &err), EAGLET_E_INPUT, &err, cases[i].words);
  }
}

/* Fields of the baseline's config replaced by a value, the target real: each is refused by name, or loads. */
static void test_fields_against_target(void **state) {
  const struct model *target = *state;
  if (!target) skip();
  static const struct {
    const char *field, *value, *words;
  } cases[] = {
      {"vocab_size", "2048", "vocab_size"}, /* E11: the draft's size where the target's belongs */
      {"vocab_size", "4160", "vocab_size"}, /* E13: a padded vocabulary */
      {"hidden_size", "640", "hidden_size"},
      {"draft_vocab_size", "5000", "draft_vocab_size"},
      {"draft_vocab_size", "2047", "lm_head.weight"},
      {"num_attention_heads", "6", "heads"},
      {"num_attention_heads", "4", "q_proj"},
      {"num_key_value_heads", "2", "k_proj"},
      {"head_dim", "32", "q_proj"},
      {"intermediate_size", "512", "gate_proj"},
      {"num_key_value_heads", "0", "num_key_value_heads"},
      {"rms_norm_eps", "1e-5", NULL},
      {"head_dim", "null", NULL}, /* hidden / heads */
      {"max_position_embeddings", "64", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct head *head;
    struct eaglet_error err;
    char directory[64];
    variant_write(directory, &(const struct head_variant){.field = cases[i].field, .value = cases[i].value});
    enum eaglet_status status = head_open(&head, directory, target, &err);
    if (status != (cases[i].words ? EAGLET_E_INPUT : EAGLET_OK))
      fail_msg("%s = %s: status %d", cases[i].field, cases[i].value, status);
    if (cases[i].words && !strstr(err.message, cases[i].words))
      fail_msg("'%s' is not in '%s'", cases[i].words, err.message);
    if (head) assert_int_equal(head->rope.n_positions, target->n_positions);
    head_close(head);
    remove_directory(directory);
  }
}

/* A01 and its kin: every tensor is needed, known, of the right shape and type. */
static void test_tensors(void **state) {
  const struct model *target = *state;
  if (!target) skip();
  static const struct {
    struct head_variant variant;
    const char *words;
  } cases[] = {
      {{.drop = "lm_head.weight"}, "lm_head.weight"},
      {{.drop = "midlayer.hidden_norm.weight"}, "hidden_norm"},
      {{.drop = "fc.weight"}, "fc.weight"},
      {{.drop = "d2t"}, "d2t"},
      {{.drop = "t2d"}, NULL},
      {{.rename = "d2t", .to = "draft_id_to_target_id"}, NULL},
      {{.rename = "midlayer.", .to = "layers.0."}, NULL},
      {{.rename = "midlayer.", .to = "model.layers.0."}, NULL},
      {{.rename = "midlayer.self_attn.q_proj.weight", .to = "midlayer.self_attn.q_proj.W_q"}, "q_proj.W_q"},
      {{.rename = "t2d", .to = "midlayer.self_attn.q_norm.weight"}, "q_norm"},
      {{.flatten = "midlayer.self_attn.v_proj.weight"}, "v_proj"},
      {{.flatten = "norm.weight", .dtype = DTYPE_I16}, "norm.weight"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct head *head;
    struct eaglet_error err;
    char directory[64];
    variant_write(directory, &cases[i].variant);
    enum eaglet_status status = head_open(&head, directory, target, &err);
    if (status != (cases[i].words ? EAGLET_E_INPUT : EAGLET_OK))
      fail_msg("case %zu: status %d: %s", i, status, status ? err.message : "");
    if (cases[i].words && !strstr(err.message, cases[i].words))
      fail_msg("'%s' is not in '%s'", cases[i].words, err.message);
    if (head) assert_int_equal(head->map.n_draft, 2048);
    head_close(head);
    remove_directory(directory);
  }
}

/* A01, other half: a head over the whole vocabulary may borrow the target's, and says so. */
static void test_borrowed_lm_head(void **state) {
  const struct model *target = *state;
  struct head *head;
  struct eaglet_error err;
  char directory[64];
  if (!target) skip();
  variant_write(directory, &(const struct head_variant){
                               .field = "draft_vocab_size", .value = "4096", .drop = "lm_head.weight|d2t|t2d"});
  assert_ok(head_open(&head, directory, target, &err), &err);
  assert_ptr_equal(head->lm_head.data, target->head.data);
  assert_non_null(strstr(head->notes, "borrowed"));
  assert_int_equal(head->map.n_draft, 4096);
  assert_int_equal(head->map.target[4095], 4095);
  head_close(head);
  remove_directory(directory);
}

/* A20, A21: every scaling survives the round trip to the rotary angles; keys of multimodal rope are dropped on the way. */
static void test_scaling_round_trip(void **state) {
  const struct model *target = *state;
  static const char *const scalings[] = {
      "{\"type\": \"linear\", \"factor\": 4}",
      "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
      "\"original_max_position_embeddings\": 512}",
      "{\"rope_type\": \"yarn\", \"factor\": 16, \"beta_fast\": 20, \"beta_slow\": 2, \"original_max_position_embeddings\": 256}",
      "{\"rope_type\": \"yarn\", \"factor\": 16, \"mscale\": 1, \"mscale_all_dim\": 0.7, \"truncate\": false, "
      "\"original_max_position_embeddings\": 256}",
      "{\"rope_type\": \"dynamic\", \"factor\": 2}",
      "{\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 256, \"short_factor\": [1,1,1,1,1,1,1,1,1,1,2,2,2,2,2,2,2,2,2,2], "
      "\"long_factor\": [1,1,1,1,1,1,1,1,1,1,9,9,9,9,9,9,9,9,9,9]}",
      "{\"rope_type\": \"default\", \"mrope_section\": [4, 8, 8], \"mrope_interleaved\": true}",
  };
  if (!target) skip();
  for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
    struct head *head, *again;
    struct eaglet_error err;
    char first[64], second[64];
    variant_write(first, &(const struct head_variant){.field = "rope_scaling", .value = scalings[i]});
    assert_ok(head_open(&head, first, target, &err), &err);
    float *parameters = memory_alloc((size_t)head_parameters_total(&head->config) * sizeof(float));
    assert_ok(head_import(parameters, &head->config, head, &err), &err);
    const struct head_export export_ = {.config = &head->config, .map = &head->map, .parameters = parameters, .dtype = DTYPE_BF16,
                                        .target = target, .metadata_json = "{}"};
    temporary_directory(second);
    assert_ok(head_export(second, &export_, &err), &err);
    assert_ok(head_open(&again, second, target, &err), &err);
    assert_int_equal(head->config.rope.scaling, again->config.rope.scaling);
    size_t bytes = (size_t)head->rope.n_positions * (size_t)head->rope.n_pairs * sizeof(float);
    assert_memory_equal(head->rope.cos, again->rope.cos, bytes);
    assert_memory_equal(head->rope.sin, again->rope.sin, bytes);
    struct eaglet_text text = json_dump(again->files.config, 0);
    assert_null(strstr(text.data, "mrope"));
    free(text.data);
    free(parameters);
    head_close(head);
    head_close(again);
    remove_directory(first);
    remove_directory(second);
  }
}

/* E02, E11: one directory with two files is enough, and says what servers look for. */
static void test_round_trip(void **state) {
  const struct model *target = *state;
  struct head *head, *again;
  struct eaglet_error err;
  char first[64], second[64];
  if (!target) skip();
  variant_write(first, &(const struct head_variant){.drop = ""});
  assert_ok(head_open(&head, first, target, &err), &err);
  size_t n = (size_t)head_parameters_total(&head->config);
  float *parameters = memory_alloc(n * sizeof(float)), *back = memory_alloc(n * sizeof(float));
  assert_ok(head_import(parameters, &head->config, head, &err), &err);
  const struct head_export export_ = {.config = &head->config,
                                      .map = &head->map,
                                      .parameters = parameters,
                                      .dtype = DTYPE_BF16,
                                      .target = target,
                                      .metadata_json = "{\"steps\":1}"};
  temporary_directory(second);
  assert_ok(head_export(second, &export_, &err), &err);
  struct file_list list = {0};
  assert_ok(file_list_directory(&list, second, &err), &err);
  assert_int_equal(list.n, 2);
  file_list_clear(&list);
  assert_ok(head_open(&again, second, target, &err), &err);
  assert_ok(head_import(back, &again->config, again, &err), &err);
  assert_memory_equal(parameters, back, n * sizeof(float));
  assert_memory_equal(head->map.target, again->map.target, sizeof(int32_t) * 2048);
  assert_memory_equal(head->config.states, again->config.states, sizeof head->config.states);
  assert_true(head->config.rope.theta == again->config.rope.theta && head->config.norm_eps == again->config.norm_eps);
  const json_t *json = again->files.config, *eagle = json_object_get(json, "eagle_config");
  const struct {
    const char *field;
    json_int_t value;
  } fields[] = {{"vocab_size", 4096},
                {"draft_vocab_size", 2048},
                {"head_dim", 40},
                {"hidden_size", 320},
                {"num_hidden_layers", 1}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    assert_int_equal(json_integer_value(json_object_get(json, fields[i].field)), fields[i].value);
  assert_string_equal(json_string_value(json_array_get(json_object_get(json, "architectures"), 0)),
                      "LlamaForCausalLMEagle3");
  for (size_t i = 0; i < 3; i++) {
    json_int_t id = json_integer_value(json_array_get(json_object_get(eagle, "eagle_aux_hidden_state_layer_ids"), i));
    assert_int_equal(id + 1, json_integer_value(json_array_get(json_object_get(eagle, "eaglet_states"), i)));
    assert_int_equal(id + 1, head->config.states[i]);
  }
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)json, key, value) assert_false(json_is_null(value));
  assert_int_equal(checkpoint_peek(&again->files, "d2t")->dtype, DTYPE_I64);
  assert_int_equal(checkpoint_peek(&again->files, "t2d")->shape[0], 4096);
  assert_null(checkpoint_peek(&again->files, "embed_tokens.weight"));
  assert_string_equal(safetensors_metadata(&again->files.files[0], "eaglet_training"), "{\"steps\":1}");
  head_close(head);
  head_close(again);
  free(parameters);
  free(back);
  remove_directory(first);
  remove_directory(second);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_theta),           cmocka_unit_test(test_states),
      cmocka_unit_test(test_config_refusals), cmocka_unit_test(test_fields_against_target),
      cmocka_unit_test(test_tensors),         cmocka_unit_test(test_borrowed_lm_head),
      cmocka_unit_test(test_scaling_round_trip), cmocka_unit_test(test_round_trip),
  };
  return cmocka_run_group_tests(tests, target_setup, target_teardown);
}
