/* test_spelling.c - one config, several spellings. Method: the tiny checkpoints are saved in the current spelling of the reference
 * library; the test rewrites their configs as releases before it did (flat rope_theta, rope_scaling with "type", torch_dtype, patterns
 * instead of layer_types, nulls, fields of other versions) and demands the same logits bit for bit. */
#include "variant.h"

/* What a family's older config says in place of layer_types; NULL: layer_types stays. */
static const char *pattern_field(const char *type) {
  static const struct {
    const char *type, *field;
  } rows[] = {{"gemma2", ""}, {"gpt_oss", ""}, {"cohere2", "sliding_window_pattern"}, {"exaone4", "sliding_window_pattern"},
              {"smollm3", ""}, {"qwen2", ""}, {"qwen3", ""}, {"mistral", ""}, {"seed_oss", ""}, {"llama4_text", ""}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i].type, type) == 0) return rows[i].field;
  }
  return NULL;
}

/* rope_parameters -> rope_theta, rope_scaling with "type", partial_rotary_factor. */
static void flatten_rope(json_t *config) {
  json_t *rope = json_deep_copy(json_object_get(config, "rope_parameters"));
  if (!rope) return;
  const json_t *full = json_object_get(rope, "full_attention"), *local = json_object_get(rope, "sliding_attention");
  json_object_del(config, "rope_parameters");
  if (local && json_object_get(config, "query_pre_attn_scalar"))
    json_object_set(config, "rope_local_base_freq", json_object_get(local, "rope_theta"));
  if (full) {
    json_t *flat = json_deep_copy(full);
    json_decref(rope);
    rope = flat;
  }
  json_t *theta = json_object_get(rope, "rope_theta"), *partial = json_object_get(rope, "partial_rotary_factor"),
         *type = json_object_get(rope, "rope_type");
  if (theta) json_object_set(config, "rope_theta", theta);
  if (partial) json_object_set(config, "partial_rotary_factor", partial);
  bool plain = !type || strcmp(json_string_value(type), "default") == 0;
  if (!plain) json_object_set(rope, "type", type);
  json_object_del(rope, "rope_type");
  json_object_del(rope, "rope_theta");
  json_object_del(rope, "partial_rotary_factor");
  if (plain && !json_object_get(rope, "mrope_section"))
    json_object_set_new(config, "rope_scaling", json_null());
  else {
    if (plain) json_object_set_new(rope, "type", json_string("mrope"));
    json_object_set(config, "rope_scaling", rope);
  }
  json_decref(rope);
}

static void age(json_t *config, bool patterns) {
  const char *type = json_string_value(json_object_get(config, "model_type"));
  const char *field = type ? pattern_field(type) : NULL;
  if (json_object_get(config, "rope_parameters")) json_object_del(config, "rotary_dim"); /* stale there, in force in older files */
  flatten_rope(config);
  if (json_object_get(config, "dtype")) json_object_set(config, "torch_dtype", json_object_get(config, "dtype"));
  json_object_del(config, "dtype");
  if (patterns && field && json_object_get(config, "layer_types")) json_object_del(config, "layer_types");
  json_object_set_new(config, "transformers_version", json_string("4.40.0"));
  json_object_set_new(config, "attention_dropout", json_real(0.1));
  json_object_set_new(config, "use_cache", json_true());
  json_object_set_new(config, "pretraining_tp", json_integer(1));
  json_object_set_new(config, "head_dim_note", json_null());
  json_object_set_new(config, "auto_map", json_pack("{s:s}", "AutoConfig", "configuration.Config"));
}

static void check(const char *root, const char *name, bool patterns) {
  char *source = file_join(root, name);
  struct variant v;
  size_t n, m;
  variant_open(&v, source);
  json_t *text = json_object_get(v.config, "text_config");
  age(text ? text : v.config, patterns);
  variant_add_all(&v, NULL);
  variant_write(&v);
  printf("%s\n", name);
  float *expected = directory_logits(v.source.path, &n), *found = directory_logits(v.directory, &m);
  if (memcmp(expected, found, n) != 0) fail_msg("%s: the older spelling gives other logits", name);
  free(expected);
  free(found);
  variant_close(&v);
  free(source);
}

/* patterns: the checkpoints follow their families' patterns, so layer_types can go. */
static void check_all(const char *root, bool patterns) {
  static const char *const names[] = {
      "llama2", "llama3", "llama_linear", "llama_yarn", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3",
      "kimi_k2_text", "gpt_oss", "glm4_moe", "glm4", "gemma2", "gemma3_text", "phi3", "olmo2", "granite", "ernie4_5_moe", "hunyuan_dense",
      "exaone4", "smollm3", "seed_oss", "cohere2", "llava", "mistral3", "qwen3_vl", /* shared */
      "gemma", "gemma3", "phi3_partial", "phi3_short", "nemotron", "glm", "starcoder2", "olmo3", "qwen2_vl", "ministral3", "llama4_text",
      "qwen2_moe", "glm4_moe_lite", "dots1", "minimax_m2"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *directory = file_join(root, names[i]), *config = file_join(directory, "config.json");
    if (access(config, R_OK) == 0) check(root, names[i], patterns);
    free(directory);
    free(config);
  }
}

static void test_shared(void **state) {
  (void)state;
  char *root = shared_path("own/arch");
  if (!root) skip();
  check_all(root, true);
  free(root);
}

static void test_variants(void **state) {
  (void)state;
  if (!getenv("EAGLET_TEST_ROOT")) skip();
  char *root = file_join(getenv("EAGLET_TEST_ROOT"), "tests/data/arch");
  check_all(root, false);
  free(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared), cmocka_unit_test(test_variants)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
