/* quantized_fixture.h - the directories of tests/data/quantized (made by tests/reference/make_quantized.py): a checkpoint and
 * what its modules mean. */
#ifndef EAGLET_TESTS_QUANTIZED_FIXTURE_H
#define EAGLET_TESTS_QUANTIZED_FIXTURE_H

#include "variant.h"

#include "model/bind.h"
#include "model/linear.h"

static const char *const quantized_models[] = {"ct_w4a16", "ct_mixed", "awq", "gptq", "fp8_block", "modelopt_nvfp4"};
static const char *const quantized_units[] = {
    "ct_bits",     "ct_channel",           "ct_int8",     "awq_shapes",  "gptq_sym_v1",
    "gptq_v2",     "gptq_sym_mislabelled", "gptq_sym_v2", "fp8_partial", "fp8_untold",
    "fbgemm_fp8",  "modelopt_fp8",         "quark_mxfp4", "stack_mxfp4", "stack_fp8",
    "stack_plain"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

struct quantized {
  char *directory;
  struct checkpoint checkpoint;
  struct arch arch; /* only config is set */
  struct quantization quantization;
  struct nibble_check nibbles;
  struct linear_source source;
  json_t *expected;
};

static inline void quantized_open(struct quantized *q, const char *name) {
  struct eaglet_error err = {0};
  *q = (struct quantized){.directory = memory_format("%s/tests/data/quantized/%s", getenv("EAGLET_TEST_ROOT"), name)};
  char *expected = file_join(q->directory, "expected.json");
  assert_int_equal(checkpoint_open(&q->checkpoint, q->directory, &err), EAGLET_OK);
  assert_int_equal(json_parse_file(&q->expected, expected, &err), EAGLET_OK);
  q->arch.config = q->checkpoint.config;
  enum eaglet_status status = quantization_read(&q->quantization, &q->arch, &q->checkpoint, &err);
  if (status != EAGLET_OK) print_error("%s\n", err.message);
  assert_int_equal(status, EAGLET_OK);
  q->source = (struct linear_source){&q->checkpoint, &q->quantization, &q->nibbles};
  free(expected);
}

static inline void quantized_close(struct quantized *q) {
  json_decref(q->expected);
  checkpoint_close(&q->checkpoint);
  free(q->directory);
}

static inline int32_t module_int(const json_t *module, const char *key) {
  return (int32_t)json_integer_value(json_object_get(module, key));
}

static inline enum eaglet_status quantized_bind(struct quantized *q, const json_t *module, struct weight *weight,
                                                struct eaglet_error *err) {
  const char *name = json_string_value(json_object_get(module, "name"));
  int32_t n_out = module_int(module, "n_out"), n_in = module_int(module, "n_in"),
          n_experts = module_int(module, "n_experts");
  if (n_experts == 0) return linear_bind(weight, &q->source, name, (const int32_t[]){n_out, n_in}, err);
  struct weight experts[8];
  assert_true(n_experts <= 8);
  const struct linear_stack stack = {.n_experts = n_experts,
                                     .n_out = n_out,
                                     .n_in = n_in,
                                     .transposed = json_is_true(json_object_get(module, "transposed"))};
  TRY(linear_bind_stack(experts, &q->source, name, &stack, err));
  *weight = experts[module_int(module, "expert")];
  return EAGLET_OK;
}

/* All rows of a weight; the caller owns them. */
static inline float *weight_floats(const struct weight *w) {
  float *rows = memory_alloc(sizeof(float) * (size_t)w->n_out * (size_t)w->n_in);
  for (int32_t o = 0; o < w->n_out; o++) weight_row_to_f32(w, o, rows + (int64_t)o * w->n_in);
  return rows;
}

#endif
