/* test_arch.c - the tiny checkpoints of many families. Method: each must agree with its F32 reference in every state, norm
 * and logits. What no row describes must be refused with words that say why, never run wrong in silence. */
#include "variant.h"

#include <dirent.h>

#define LIMIT 1e-4

/* The Gemma references of the shared set were made with an embedding scale that was drawn at random and not saved (it is a buffer of
 * the reference model); everything after state 1 is sound, so they are run from their own state 1. The scale itself is judged by the
 * Gemma checkpoints among the variants. */
static bool embeds_at_random(const char *root, const char *name) {
  return strstr(root, "own/arch") && strncmp(name, "gemma", 5) == 0;
}

static double compare_one(const char *root, const char *name) {
  char *directory = file_join(root, name), *file = file_join(directory, "reference.safetensors");
  struct fixture f;
  struct safetensors reference;
  struct eaglet_error err = {0};
  assert_int_equal(safetensors_open(&reference, file, &err), EAGLET_OK);
  enum eaglet_status status = fixture_open_at(&f, directory, 64, 40, &err);
  double worst = status == EAGLET_OK ? fixture_compare_from(&f, &reference, "", embeds_at_random(root, name)) : INFINITY;
  if (status == EAGLET_OK) {
    json_t *document = model_describe(f.model);
    assert_true(json_integer_value(json_object_get(json_object_get(document, "sizes"), "resident_bytes")) > 0);
    json_decref(document);
  }
  printf("%-18s max_rel %.3e %s\n", name, worst, status == EAGLET_OK ? f.model->arch.features.row : err.message);
  fixture_close(&f);
  safetensors_close(&reference);
  free(directory);
  free(file);
  return worst;
}

/* Every checkpoint of a directory; returns how many there are. */
static int compare_all(const char *root) {
  DIR *directory = opendir(root);
  int n = 0, bad = 0;
  for (const struct dirent *entry; directory && (entry = readdir(directory));) {
    if (entry->d_name[0] == '.') continue;
    n++;
    bad += !(compare_one(root, entry->d_name) < LIMIT);
  }
  if (directory) closedir(directory);
  assert_int_equal(bad, 0);
  return n;
}

static void test_shared_families(void **state) {
  (void)state;
  char *root = shared_path("own/arch");
  if (!root) skip();
  assert_true(compare_all(root) >= 33);
  free(root);
}

/* Other flags, widths and families than those of the shared set; made by tests/reference/make_arch_variants.py. */
static void test_variants(void **state) {
  (void)state;
  const char *project = getenv("EAGLET_TEST_ROOT");
  if (!project) skip();
  char *root = file_join(project, "tests/data/arch");
  assert_true(compare_all(root) >= 20);
  free(root);
}

/* inspect's count of parameters is that of the file, however joint or stacked its tensors are. */
static void test_parameter_count(void **state) {
  (void)state;
  static const char *const names[] = {"llama_biased", "gpt_oss", "gpt2", "granitemoeshared", "nemotron", "cohere", "ernie4_5_moe"};
  const char *project = getenv("EAGLET_TEST_ROOT");
  if (!project) skip();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *directory = memory_format("%s/tests/data/arch/%s", project, names[i]), *file = file_join(directory, "model.safetensors");
    struct fixture f;
    struct safetensors weights;
    struct eaglet_error err = {0};
    int64_t n = 0;
    assert_int_equal(safetensors_open(&weights, file, &err), EAGLET_OK);
    for (size_t t = 0; t < weights.n; t++) n += (int64_t)weights.tensors[t].n_bytes / (dtype_bits(weights.tensors[t].dtype) / 8);
    assert_int_equal(fixture_open(&f, directory, 8, &err), EAGLET_OK);
    json_t *document = model_describe(f.model);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(document, "sizes"), "parameters")), n);
    json_decref(document);
    fixture_close(&f);
    safetensors_close(&weights);
    free(directory);
    free(file);
  }
}

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *type, *reason; /* words of the refusal */
  } refused[] = {{"qwen3_next", "linear-attention"}, {"kimi_linear", "linear-attention"}, {"bamba", "state-space"},
                 {"gemma3n_text", "per-layer"},      {"longcat_flash", "no row describes"}};
  char *source = shared_path("own/arch/llama3");
  if (!source) skip();
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    struct variant v;
    struct fixture f;
    struct eaglet_error err = {0};
    variant_open(&v, source);
    json_object_set_new(v.config, "model_type", json_string(refused[i].type));
    variant_add_all(&v, NULL);
    variant_write(&v);
    assert_int_equal(fixture_open(&f, v.directory, 40, &err), EAGLET_E_INPUT);
    printf("%-18s %s\n", refused[i].type, err.message);
    assert_non_null(strstr(err.message, refused[i].reason));
    fixture_close(&f);
    variant_close(&v);
  }
  free(source);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shared_families),
      cmocka_unit_test(test_variants),
      cmocka_unit_test(test_parameter_count),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
