/* test_arch.c - the tiny checkpoints of many families. Method: those that the table supports must agree with their F32
 * reference in every state, norm and logits; the others must be refused with words that say why, never run wrong in
 * silence. */
#include "model_fixture.h"

static const char *const supported[] = {
    "deepseek_v2", "deepseek_v2_lite", "deepseek_v3",  "glm4_moe",   "kimi_k2_text",
    "llama2",      "llama3",           "llama_linear", "llama_yarn", "llava",
    "mistral",     "mistral3",         "mixtral",      "phi3",       "qwen2",
    "qwen3",       "qwen3_moe",        "qwen3_vl",     "seed_oss",
};
static const struct {
  const char *name, *reason; /* words of the refusal */
} refused[] = {
    {"cohere2", "LayerNorm"},         {"ernie4_5_moe", "selection bias"},
    {"exaone4", "norms after"},       {"gemma2", "1 + weight"},
    {"gemma3", "1 + weight"},         {"gemma3_text", "1 + weight"},
    {"glm4", "norms after"},          {"gpt_oss", "sinks"},
    {"granite", "multipliers"},       {"hunyuan_dense", "norms after rope"},
    {"llama_dynamic", "\"dynamic\""}, {"minimax_m2", "over all heads"},
    {"olmo2", "norms after"},         {"smollm3", "without rope"},
};

static void test_supported(void **state) {
  (void)state;
  char *root = shared_path("own/arch");
  if (!root) skip();
  int bad = 0;
  for (size_t i = 0; i < sizeof supported / sizeof *supported; i++) {
    char *directory = file_join(root, supported[i]), *file = file_join(directory, "reference.safetensors");
    struct fixture f;
    struct safetensors reference;
    struct eaglet_error err = {0};
    assert_int_equal(safetensors_open(&reference, file, &err), EAGLET_OK);
    enum eaglet_status status = fixture_open(&f, directory, 64, &err);
    double worst = status == EAGLET_OK ? fixture_compare(&f, &reference, "") : INFINITY;
    printf("%-18s max_rel %.3e %s\n", supported[i], worst,
           status == EAGLET_OK ? f.model->arch.features.row : err.message);
    bad += !(worst < 1e-4);
    fixture_close(&f);
    safetensors_close(&reference);
    free(directory);
    free(file);
  }
  free(root);
  assert_int_equal(bad, 0);
}

static void test_refused(void **state) {
  (void)state;
  char *root = shared_path("own/arch");
  if (!root) skip();
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char *directory = file_join(root, refused[i].name);
    struct fixture f;
    struct eaglet_error err = {0};
    assert_int_equal(fixture_open(&f, directory, 64, &err), EAGLET_E_INPUT);
    printf("%-18s %s\n", refused[i].name, err.message);
    assert_non_null(strstr(err.message, refused[i].reason));
    fixture_close(&f);
    free(directory);
  }
  free(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_supported),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
