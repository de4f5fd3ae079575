/* test_verify.c - `verify` and `inspect` as functions. Method: nano-kimi against its oracle must pass, a reference with
 * one number changed must fail with the name of what changed, and the proof of capture must be bitwise and not vacuous.
 */
#include "engine/inspect.h"
#include "engine/verify.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../shared_path.h"

static json_t *parse(struct eaglet_text *text) {
  json_t *json = NULL;
  assert_non_null(text->data);
  assert_int_equal(json_parse(&json, text->data, text->length, "document", NULL), EAGLET_OK);
  free(text->data);
  return json;
}

static double number(const json_t *json, const char *object, const char *key) {
  return json_number_value(json_object_get(json_object_get(json, object), key));
}

static void test_reference(void **state) {
  (void)state;
  char *model = shared_path("own/nano-kimi"), *file = shared_path("own/oracle/nano_kimi_reference.safetensors");
  if (!model || !file) skip();
  struct eaglet_text text;
  struct eaglet_error err = {0};
  const struct eaglet_verify_params params = {.model = model, .reference = file, .threads = 2};
  enum eaglet_status status = verify_run(&params, &text, &err);
  if (status != EAGLET_OK) print_error("%s\n", err.message);
  assert_int_equal(status, EAGLET_OK);
  json_t *json = parse(&text);
  assert_true(json_is_true(json_object_get(json, "ok")));
  const json_t *layers = json_object_get(json, "layers");
  assert_int_equal(json_array_size(layers), 8);
  for (size_t i = 0; i < 8; i++)
    assert_true(json_number_value(json_object_get(json_array_get(layers, i), "max_rel")) < 1e-4);
  assert_true(number(json, "norm", "max_rel") < 1e-4);
  assert_true(number(json, "logits", "max_rel") < 1e-4);
  assert_true(number(json, "argmax", "rows") == 57 + 43 + 21);
  assert_true(number(json, "argmax", "different") == 0);
  assert_int_equal(json_array_size(json_object_get(json, "prompts")), 3);
  json_decref(json);
  free(model);
  free(file);
}

/* Copies the reference with one tensor's value changed (scaled) or its shape misstated. */
static char *falsify(const char *file, const char *name, double scale) {
  struct safetensors reference;
  char *path =
      memory_format("%s/eaglet-verify-%d.safetensors", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
  assert_int_equal(safetensors_open(&reference, file, NULL), EAGLET_OK);
  struct safetensors_writer *writer = safetensors_writer_create();
  float *changed = NULL;
  for (size_t i = 0; i < reference.n; i++) {
    const struct tensor_entry *t = &reference.tensors[i];
    const void *data = t->data;
    if (strcmp(t->name, name) == 0) {
      changed = memory_alloc(t->n_bytes);
      memcpy(changed, t->data, t->n_bytes);
      changed[0] = (float)(changed[0] + scale);
      data = changed;
    }
    safetensors_writer_add(writer, t->name, t->dtype, t->rank, t->shape, data);
  }
  assert_non_null(changed);
  assert_int_equal(safetensors_writer_commit(writer, path, NULL), EAGLET_OK);
  safetensors_writer_free(writer);
  free(changed);
  safetensors_close(&reference);
  return path;
}

static void test_reference_differs(void **state) {
  (void)state;
  char *model = shared_path("own/nano-kimi"), *file = shared_path("own/oracle/nano_kimi_reference.safetensors");
  if (!model || !file) skip();
  static const struct {
    const char *tensor, *words;
  } cases[] = {{"p1.layer.4", "p1.state 5"}, {"p0.norm", "p0.norm"}, {"p2.logits_last8", "p2.logits"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *wrong = falsify(file, cases[i].tensor, 100);
    struct eaglet_text text;
    struct eaglet_error err = {0};
    const struct eaglet_verify_params params = {.model = model, .reference = wrong, .threads = 2};
    assert_int_equal(verify_run(&params, &text, &err), EAGLET_E_CHECK);
    assert_non_null(strstr(err.message, cases[i].words));
    json_t *json = parse(&text);
    assert_true(json_is_false(json_object_get(json, "ok")));
    json_decref(json);
    unlink(wrong);
    free(wrong);
  }
  free(model);
  free(file);
}

static void test_reference_of_nothing(void **state) {
  (void)state;
  char *model = shared_path("own/nano-kimi"), *weights = shared_path("own/nano-kimi/model-00001-of-000002.safetensors");
  if (!model || !weights) skip();
  struct eaglet_text text;
  struct eaglet_error err = {0};
  const struct eaglet_verify_params params = {.model = model, .reference = weights, .threads = 2};
  assert_int_equal(verify_run(&params, &text, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "input_ids"));
  assert_null(text.data);
  free(model);
  free(weights);
}

/* A batched reference of another architecture, through the same door. */
static void test_reference_batch(void **state) {
  (void)state;
  char *model = shared_path("own/arch/qwen3_moe"), *file = shared_path("own/arch/qwen3_moe/reference.safetensors");
  if (!model || !file) skip();
  struct eaglet_text text;
  const struct eaglet_verify_params params = {.model = model, .reference = file, .threads = 2};
  assert_int_equal(verify_run(&params, &text, NULL), EAGLET_OK);
  json_t *json = parse(&text);
  assert_int_equal(json_array_size(json_object_get(json, "prompts")), 2);
  assert_true(number(json, "logits", "max_rel") < 1e-4);
  json_decref(json);
  free(model);
  free(file);
}

static void test_proof(void **state) {
  (void)state;
  static const char *const models[] = {"own/nano-kimi", "own/arch/llama3", "own/arch/mixtral"};
  static const size_t n_states[] = {9, 5, 5};
  for (size_t m = 0; m < 3; m++) {
    char *model = shared_path(models[m]);
    if (!model) skip();
    struct eaglet_text text;
    struct eaglet_error err = {0};
    const struct eaglet_verify_params params = {.model = model, .threads = 2};
    enum eaglet_status status = verify_run(&params, &text, &err);
    if (status != EAGLET_OK) print_error("%s\n", err.message);
    assert_int_equal(status, EAGLET_OK);
    json_t *json = parse(&text);
    const json_t *proof = json_object_get(json, "proof");
    assert_int_equal(json_array_size(proof), n_states[m]);
    for (size_t k = 0; k < n_states[m]; k++) {
      const json_t *row = json_array_get(proof, k);
      assert_int_equal(json_integer_value(json_object_get(row, "state")), k);
      assert_true(json_number_value(json_object_get(row, "max_rel")) == 0);
      assert_true(json_is_true(json_object_get(row, "bitwise")));
      assert_true(json_number_value(json_object_get(row, "perturbed")) > 1e-3);
    }
    json_decref(json);
    free(model);
  }
}

static void test_inspect(void **state) {
  (void)state;
  char *model = shared_path("own/nano-kimi");
  if (!model) skip();
  json_t *json;
  assert_int_equal(inspect_json(&json, &(const struct eaglet_inspect_params){.model = model}, NULL), EAGLET_OK);
  const json_t *chain = json_object_get(json, "chain"), *quantization = json_object_get(json, "quantization"),
               *sizes = json_object_get(json, "sizes");
  assert_string_equal(json_string_value(json_object_get(chain, "prefix")), "language_model.model.");
  assert_string_equal(json_string_value(json_object_get(chain, "config")), "text_config");
  assert_string_equal(json_string_value(json_object_get(quantization, "from")), "text_config.quantization_config");
  assert_int_equal(json_integer_value(json_object_get(quantization, "group_size")), 32);
  assert_true(number(sizes, "experts", "int4") > 0);
  assert_int_equal(json_integer_value(json_object_get(sizes, "ignored_tensors")), 0);
  const json_t *heads = json_object_get(json_object_get(json, "features"), "num_attention_heads");
  assert_int_equal(json_integer_value(json_object_get(heads, "value")), 8);
  assert_string_equal(json_string_value(json_object_get(heads, "from")), "text_config.num_attention_heads");
  const json_t *states = json_object_get(json, "default_states");
  static const int expected[] = {2, 4, 5};
  for (size_t i = 0; i < 3; i++) assert_int_equal(json_integer_value(json_array_get(states, i)), expected[i]);
  json_decref(json);
  free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reference),
      cmocka_unit_test(test_reference_differs),
      cmocka_unit_test(test_reference_of_nothing),
      cmocka_unit_test(test_reference_batch),
      cmocka_unit_test(test_proof),
      cmocka_unit_test(test_inspect),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
