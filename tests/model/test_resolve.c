/* test_resolve.c - wrappers, prefixes, nested and renamed fields (bug cases A03, A10, A18, A24, A27) and refusals.
 * Method: variants of nano-kimi and of the tiny llama, which must either give the original's logits bit for bit or be
 * refused with words that name the culprit. */
#include "variant.h"

static char *nano;
static char *llama;

static int find_data(void **state) {
  (void)state;
  nano = shared_path("own/nano-kimi");
  llama = shared_path("own/arch/qwen2");
  return 0;
}

static int free_data(void **state) {
  (void)state;
  free(nano);
  free(llama);
  return 0;
}

static void replace_prefix(char *name, size_t size, const char *old, const char *from, const char *to) {
  if (strncmp(old, from, strlen(from)) == 0) snprintf(name, size, "%s%s", to, old + strlen(from));
}

/* ---- A27: prefixes ---- */

static bool to_native(char *name, size_t size, const char *old) {
  replace_prefix(name, size, old, "language_model.model.", "model.language_model.");
  replace_prefix(name, size, old, "language_model.lm_head.", "lm_head.");
  return true;
}
static bool to_plain(char *name, size_t size, const char *old) {
  replace_prefix(name, size, old, "language_model.model.", "model.");
  replace_prefix(name, size, old, "language_model.lm_head.", "lm_head.");
  return true;
}
static bool to_legacy(char *name, size_t size, const char *old) {
  replace_prefix(name, size, old, "language_model.model.layers.", "language_model.layers.");
  return true;
}
static bool to_bare(char *name, size_t size, const char *old) {
  replace_prefix(name, size, old, "language_model.model.", "");
  replace_prefix(name, size, old, "language_model.lm_head.", "lm_head.");
  return true;
}

static void test_prefixes(void **state) {
  (void)state;
  bool (*const renames[])(char *, size_t, const char *) = {to_native, to_plain, to_legacy, to_bare};
  static const char *const prefixes[] = {"model.language_model.", "model.", "language_model.model.", ""};
  if (!nano) skip();
  for (size_t i = 0; i < 4; i++) {
    struct variant v;
    struct fixture f;
    variant_open(&v, nano);
    variant_add_all(&v, renames[i]);
    variant_expect_same(&v);
    assert_int_equal(fixture_open(&f, v.directory, 8, NULL), EAGLET_OK);
    assert_string_equal(f.model->arch.chain.prefix, prefixes[i]);
    assert_non_null(strstr(f.model->arch.chain.why, "embed_tokens.weight"));
    fixture_close(&f);
    variant_close(&v);
  }
}

static bool mixed_layers(char *name, size_t size, const char *old) {
  if (strstr(old, "layers.5.")) replace_prefix(name, size, old, "language_model.model.", "model.language_model.");
  return true;
}
static bool mixed_embedding(char *name, size_t size, const char *old) {
  if (strstr(old, "embed_tokens")) replace_prefix(name, size, old, "language_model.model.", "model.language_model.");
  return true;
}
static bool mixed_norm(char *name, size_t size, const char *old) {
  if (strcmp(old, "language_model.model.norm.weight") == 0) snprintf(name, size, "model.norm.weight");
  return true;
}

static void test_mixed_prefixes(void **state) {
  (void)state;
  bool (*const renames[])(char *, size_t, const char *) = {mixed_layers, mixed_embedding, mixed_norm};
  static const char *const words[] = {"layers 0..4", "mixed", "language_model.model.norm.weight"};
  if (!nano) skip();
  for (size_t i = 0; i < 3; i++) {
    struct variant v;
    variant_open(&v, nano);
    variant_add_all(&v, renames[i]);
    variant_expect_refusal(&v, words[i]);
    variant_close(&v);
  }
}

/* A whole second copy of one decoder tensor under another prefix. */
static void test_doubled_tensor(void **state) {
  (void)state;
  if (!nano) skip();
  struct variant v;
  variant_open(&v, nano);
  variant_add_all(&v, NULL);
  variant_add(&v, "model.layers.3.input_layernorm.weight",
              checkpoint_peek(&v.source, "language_model.model.layers.3.input_layernorm.weight"));
  variant_expect_refusal(&v, "mixed prefixes");
  variant_close(&v);
}

static void test_vision_never_matches(void **state) {
  (void)state;
  if (!nano) skip();
  struct variant v;
  variant_open(&v, nano);
  variant_add_all(&v, NULL);
  const struct tensor_entry *embed = checkpoint_peek(&v.source, "language_model.model.embed_tokens.weight");
  const struct tensor_entry *norm = checkpoint_peek(&v.source, "language_model.model.norm.weight");
  variant_add(&v, "vision_tower.embed_tokens.weight", embed);
  variant_add(&v, "vision_tower.layers.0.input_layernorm.weight", norm);
  variant_add(&v, "vision_tower.lm_head.weight", embed);
  variant_add(&v, "mm_projector.pre_norm.weight", norm);
  variant_expect_same(&v);
  struct fixture f;
  assert_int_equal(fixture_open(&f, v.directory, 8, NULL), EAGLET_OK);
  assert_int_equal(f.model->n_ignored, 4);
  fixture_close(&f);
  variant_close(&v);
}

/* ---- A03: quantization_config ---- */

static void test_quantization_places(void **state) {
  (void)state;
  if (!nano) skip();
  for (int i = 0; i < 3; i++) { /* only at the top; at both, equal; at both, different */
    struct variant v;
    variant_open(&v, nano);
    json_t *text = variant_object(&v, "text_config"),
           *copy = json_deep_copy(json_object_get(text, "quantization_config"));
    if (i == 0) json_object_del(text, "quantization_config");
    if (i == 2) json_object_set_new(copy, "ignore", json_array());
    json_object_set_new(v.config, "quantization_config", copy);
    variant_add_all(&v, NULL);
    if (i < 2)
      variant_expect_same(&v);
    else
      variant_expect_refusal(&v, "text_config.quantization_config and quantization_config contradict");
    variant_close(&v);
  }
}

/* ---- A10: tied heads ---- */

static bool drop_head(char *name, size_t size, const char *old) {
  (void)name;
  (void)size;
  return strstr(old, "lm_head.") == NULL;
}

static void test_tied_head(void **state) {
  (void)state;
  if (!llama) skip();
  struct variant v;
  struct fixture f;
  variant_open(&v, llama); /* absent and tie=true: the embedding */
  json_object_set_new(v.config, "tie_word_embeddings", json_true());
  variant_add_all(&v, drop_head);
  variant_write(&v);
  assert_int_equal(fixture_open(&f, v.directory, 8, NULL), EAGLET_OK);
  assert_true(f.model->head.data == f.model->embed.data);
  fixture_close(&f);
  variant_close(&v);
  variant_open(&v, llama); /* present and different with tie=true: the stored head, with a warning */
  json_object_set_new(v.config, "tie_word_embeddings", json_true());
  variant_add_all(&v, NULL);
  variant_expect_same(&v);
  assert_int_equal(fixture_open(&f, v.directory, 8, NULL), EAGLET_OK);
  assert_int_equal(json_array_size(f.model->arch.warnings), 1);
  fixture_close(&f);
  variant_close(&v);
  variant_open(&v, llama); /* absent with tie=false */
  json_object_set_new(v.config, "tie_word_embeddings", json_false());
  variant_add_all(&v, drop_head);
  variant_expect_refusal(&v, "tie_word_embeddings is false");
  variant_close(&v);
}

/* ---- A18: rope_theta ---- */

static void theta_variant(struct variant *v, double flat, double parameters, double scaling) {
  variant_open(v, llama);
  json_object_del(v->config, "rope_parameters");
  json_object_del(v->config, "rope_theta");
  if (flat > 0) json_object_set_new(v->config, "rope_theta", json_real(flat));
  if (parameters > 0)
    json_object_set_new(v->config, "rope_parameters",
                        json_pack("{s:f, s:s}", "rope_theta", parameters, "rope_type", "default"));
  if (scaling > 0)
    json_object_set_new(v->config, "rope_scaling", json_pack("{s:f, s:s}", "rope_theta", scaling, "type", "default"));
  variant_add_all(v, NULL);
  variant_write(v);
}

static void test_rope_theta_places(void **state) {
  (void)state;
  static const struct {
    double flat, parameters, scaling, expected;
    size_t n_warnings;
    const char *from;
  } cases[] = {
      {5e6, 0, 0, 5e6, 0, "rope_theta"},
      {0, 5e6, 0, 5e6, 0, "rope_parameters.rope_theta"},
      {0, 0, 5e6, 5e6, 0, "rope_scaling.rope_theta"},
      {5e4, 5e6, 0, 5e6, 1, "rope_parameters.rope_theta"},
      {5e6, 5e6, 0, 5e6, 0, "rope_parameters.rope_theta"},
      {0, 0, 0, 1e4, 1, "default of qwen2"},
  };
  if (!llama) skip();
  float *first = NULL;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct variant v;
    struct fixture f;
    size_t bytes;
    theta_variant(&v, cases[i].flat, cases[i].parameters, cases[i].scaling);
    assert_int_equal(fixture_open(&f, v.directory, 64, NULL), EAGLET_OK);
    assert_true(f.model->arch.features.rope[0].theta == cases[i].expected);
    assert_int_equal(json_array_size(f.model->arch.warnings), cases[i].n_warnings);
    const json_t *row = json_object_get(f.model->arch.provenance, "rope_theta");
    assert_string_equal(json_string_value(json_object_get(row, "from")), cases[i].from);
    bytes = (size_t)VARIANT_TOKENS * (size_t)f.model->arch.features.n_vocab * sizeof(float);
    float *logits = fixture_logits(&f);
    if (!first)
      first = logits;
    else {
      if (cases[i].expected == 5e6)
        assert_memory_equal(first, logits, bytes);
      else
        assert_memory_not_equal(first, logits, bytes);
      free(logits);
    }
    fixture_close(&f);
    variant_close(&v);
  }
  free(first);
}

/* ---- A24: fields at other levels, absent, under other names ---- */

static void test_fields_at_top(void **state) {
  (void)state;
  if (!nano) skip();
  struct variant v;
  variant_open(&v, nano); /* everything but the type moves out of text_config */
  json_t *text = variant_object(&v, "text_config"), *value;
  const char *key;
  void *next;
  json_object_foreach_safe(text, next, key, value) {
    if (strcmp(key, "model_type") == 0 || strcmp(key, "architectures") == 0) continue;
    json_object_set(v.config, key, value);
    json_object_del(text, key);
  }
  variant_add_all(&v, NULL);
  variant_expect_same(&v);
  struct fixture f;
  assert_int_equal(fixture_open(&f, v.directory, 8, NULL), EAGLET_OK);
  const json_t *row = json_object_get(f.model->arch.provenance, "num_attention_heads");
  assert_string_equal(json_string_value(json_object_get(row, "from")), "num_attention_heads");
  fixture_close(&f);
  variant_close(&v);
}

static void test_fields_absent(void **state) {
  (void)state;
  if (!nano || !llama) skip();
  static const char *const of_nano[] = {"vocab_size",
                                        "hidden_size",
                                        "num_hidden_layers",
                                        "q_lora_rank",
                                        "kv_lora_rank",
                                        "intermediate_size",
                                        "moe_intermediate_size",
                                        "n_routed_experts",
                                        "n_shared_experts",
                                        "tie_word_embeddings",
                                        "attention_bias",
                                        "num_key_value_heads",
                                        "scoring_func",
                                        "topk_method",
                                        "n_group",
                                        "topk_group",
                                        "torch_dtype"};
  static const char *const of_llama[] = {"vocab_size",          "hidden_size",       "num_hidden_layers",
                                         "num_key_value_heads", "intermediate_size", "head_dim",
                                         "sliding_window",      "hidden_act",        "layer_types"};
  struct variant v;
  variant_open(&v, nano);
  for (size_t i = 0; i < sizeof of_nano / sizeof *of_nano; i++)
    json_object_del(variant_object(&v, "text_config"), of_nano[i]);
  json_object_set_new(variant_object(&v, "vision_config"), "vt_unheard_of", json_integer(3));
  json_object_set_new(v.config, "vision_unheard_of", json_integer(3));
  variant_add_all(&v, NULL);
  variant_expect_same(&v);
  variant_close(&v);
  variant_open(&v, llama);
  for (size_t i = 0; i < sizeof of_llama / sizeof *of_llama; i++) json_object_del(v.config, of_llama[i]);
  variant_add_all(&v, NULL);
  variant_expect_same(&v);
  variant_close(&v);
}

static void test_fields_renamed(void **state) {
  (void)state;
  static const char *const names[][2] = {
      {"n_routed_experts", "num_experts"}, {"num_experts_per_tok", "num_experts_per_token"}, {"torch_dtype", "dtype"}};
  if (!nano) skip();
  struct variant v;
  variant_open(&v, nano);
  json_t *text = variant_object(&v, "text_config");
  for (size_t i = 0; i < 3; i++) {
    json_object_set(text, names[i][1], json_object_get(text, names[i][0]));
    json_object_del(text, names[i][0]);
  }
  json_t *rope = json_deep_copy(json_object_get(text, "rope_scaling")); /* the newer spelling of rope */
  json_object_set(rope, "rope_type", json_object_get(rope, "type"));
  json_object_set(rope, "rope_theta", json_object_get(text, "rope_theta"));
  json_object_del(rope, "type");
  json_object_del(text, "rope_scaling");
  json_object_del(text, "rope_theta");
  json_object_set_new(text, "rope_parameters", rope);
  variant_add_all(&v, NULL);
  variant_expect_same(&v);
  variant_close(&v);
}

/* ---- contradictions and unknown arithmetic ---- */

static void test_config_refusals(void **state) {
  (void)state;
  if (!nano) skip();
  const struct {
    const char *key;
    json_t *value;
    const char *words;
  } cases[] = {
      {"vocab_size", json_integer(5000), "vocab_size says 5000, but tensor"},
      {"vocab_size", json_integer(4095), "vocab_size says 4095, but tensor"},
      {"hidden_size", json_integer(256), "hidden_size says 256"},
      {"num_hidden_layers", json_integer(9), "num_hidden_layers says 9"},
      {"num_hidden_layers", json_integer(6), "num_hidden_layers says 6"},
      {"num_hidden_layers", json_string("8"), "num_hidden_layers: expected an integer, found string"},
      {"num_attention_heads", json_integer(4), "q_b_proj.weight: expected [192, 160], found [384, 160]"},
      {"qk_nope_head_dim", json_integer(40), "q_b_proj.weight: expected"},
      {"kv_lora_rank", json_integer(64), "kv_lora_rank says 64"},
      {"moe_intermediate_size", json_integer(128), "moe_intermediate_size says 128"},
      {"n_routed_experts", json_integer(8), "n_routed_experts says 8"},
      {"num_experts_per_tok", json_integer(17), "num_experts_per_tok: expected 1..16, found 17"},
      {"n_shared_experts", json_integer(2), "n_shared_experts says 2"},
      {"first_k_dense_replace", json_integer(2), "layer 1: config.json says dense"},
      {"n_group", json_integer(3), "16 experts cannot form 3 groups"},
      {"scoring_func", json_string("softmax"), "scoring_func: expected \"sigmoid\""},
      {"topk_method", json_string("greedy"), "topk_method: \"greedy\""},
      {"hidden_act", json_string("xielu"), "hidden_act: \"xielu\" is not supported"},
      {"attention_bias", json_true(), "q_a_proj.bias is missing"},
      {"attn_logit_softcapping", json_real(50), "attn_logit_softcapping: not known to eaglet"},
      {"embedding_multiplier", json_real(12), "embedding_multiplier: not known to eaglet"},
      {"sliding_window", json_integer(16), "sliding window is not supported"},
      {"layer_types", json_pack("[s]", "full_attention"), "layer_types: expected 8 entries, found 1"},
      {"layer_types", json_pack("[ssssssss]", "linear_attention", "a", "a", "a", "a", "a", "a", "a"),
       "\"linear_attention\" is not supported"},
      {"rms_norm_eps", json_real(-1), "rms_norm_eps"},
      {"rope_parameters", json_pack("{s:{s:f}}", "full_attention", "rope_theta", 1e6), "rope"},
      {"model_type", json_string("gemma3n_text"), "not supported"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct variant v;
    variant_open(&v, nano);
    json_object_set_new(variant_object(&v, "text_config"), cases[i].key, cases[i].value);
    variant_add_all(&v, NULL);
    variant_expect_refusal(&v, cases[i].words);
    variant_close(&v);
  }
}

static void test_rope_refusals(void **state) {
  (void)state;
  if (!nano) skip();
  const struct {
    const char *key;
    json_t *value;
    const char *words;
  } cases[] = {
      {"type", json_string("longrope"), "rope_scaling.short_factor: expected 8 numbers, found 0"},
      {"type", json_string("proportional"), "rope type \"proportional\" is not supported"},
      {"unheard_of", json_real(1), "rope_scaling.unheard_of: not known"},
      {"factor", json_null(), "rope_scaling.factor: expected a number, found none"},
      {"factor", json_integer(0), "factor: expected a positive number"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct variant v;
    variant_open(&v, nano);
    json_object_set_new(variant_object(&v, "text_config.rope_scaling"), cases[i].key, cases[i].value);
    variant_add_all(&v, NULL);
    variant_expect_refusal(&v, cases[i].words);
    variant_close(&v);
  }
}

/* ---- unknown model types ---- */

static void test_fingerprint(void **state) {
  (void)state;
  if (!nano || !llama) skip();
  const char *sources[] = {nano, llama};
  static const char *const objects[] = {"text_config", ""};
  for (int i = 0; i < 2; i++) {
    struct variant v;
    struct fixture f;
    variant_open(&v, sources[i]);
    json_object_set_new(variant_object(&v, objects[i]), "model_type", json_string("unheard_of"));
    variant_add_all(&v, NULL);
    variant_expect_same(&v);
    assert_int_equal(fixture_open(&f, v.directory, 8, NULL), EAGLET_OK);
    assert_non_null(strstr(json_string_value(json_array_get(f.model->arch.warnings, 0)), "\"unheard_of\" is unknown"));
    fixture_close(&f);
    variant_close(&v);
  }
}

/* A family whose name is hidden must still be refused or run right; wrong in silence is the one thing that must not
 * happen. */
static void test_fingerprint_exotic(void **state) {
  (void)state;
  static const char *const names[] = {"cohere2",       "ernie4_5_moe", "exaone4", "gemma2",
                                      "gemma3_text",   "glm4",         "gpt_oss", "granite",
                                      "hunyuan_dense", "minimax_m2",   "olmo2",   "smollm3"};
  char *root = shared_path("own/arch");
  if (!root) skip();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *source = file_join(root, names[i]);
    struct variant v;
    struct fixture f;
    struct eaglet_error err = {0};
    variant_open(&v, source);
    json_object_set_new(v.config, "model_type", json_string("unheard_of"));
    json_object_del(v.config, "architectures");
    variant_add_all(&v, NULL);
    variant_write(&v);
    enum eaglet_status status = fixture_open(&f, v.directory, 64, &err);
    printf("%-14s %s\n", names[i], status == EAGLET_OK ? "opened" : err.message + strlen(v.directory));
    assert_int_equal(status, EAGLET_E_INPUT);
    fixture_close(&f);
    variant_close(&v);
    free(source);
  }
  free(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_prefixes),
      cmocka_unit_test(test_mixed_prefixes),
      cmocka_unit_test(test_doubled_tensor),
      cmocka_unit_test(test_vision_never_matches),
      cmocka_unit_test(test_quantization_places),
      cmocka_unit_test(test_tied_head),
      cmocka_unit_test(test_rope_theta_places),
      cmocka_unit_test(test_fields_at_top),
      cmocka_unit_test(test_fields_absent),
      cmocka_unit_test(test_fields_renamed),
      cmocka_unit_test(test_config_refusals),
      cmocka_unit_test(test_rope_refusals),
      cmocka_unit_test(test_fingerprint),
      cmocka_unit_test(test_fingerprint_exotic),
  };
  return cmocka_run_group_tests(tests, find_data, free_data);
}
