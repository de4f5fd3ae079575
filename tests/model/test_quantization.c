/* test_quantization.c - what config.json may say about quantisation, and the bug cases about it. Method: changed copies of
 * nano-kimi (INT4) and of the packed checkpoints of tests/data/quantized; a change that alters arithmetic must be refused
 * by name, one that does not must change no bit. */
#include "quantized_fixture.h"

static char *nano;

static int find_data(void **state) {
  (void)state;
  nano = shared_path("own/nano-kimi");
  return 0;
}

static int free_data(void **state) {
  (void)state;
  free(nano);
  return 0;
}

/* ---- one key changed ---- */

static void test_integer_refusals(void **state) {
  (void)state;
  if (!nano) skip();
  static const char *const block = "text_config.quantization_config",
                           *const weights = "text_config.quantization_config.config_groups.group_0.weights";
  const struct {
    const char *path, *key;
    json_t *value;
    const char *words;
  } cases[] = {
      {block, "quant_method", json_string("quip"), "\"quip\" is not supported"},
      {block, "quant_method", json_string("fp8"), "not supported"},
      {block, "format", json_string("marlin-24"), "marlin-24"},
      {block, "transform_config", json_pack("{s:i}", "R1", 1), "transform_config: not supported"},
      {block, "sparsity_config", json_pack("{s:s}", "format", "sparse-24-bitmask"), "sparse-24-bitmask"},
      {block, "surprise", json_true(), "surprise: not supported"},
      {weights, "num_bits", json_integer(8), "weight_packed: expected [192, 80], found [192, 40]"},
      {weights, "num_bits", json_integer(9), "num_bits: 9 bits are not supported"},
      {weights, "group_size", json_integer(12), "320 inputs are no multiple of the group size 12"},
      {weights, "group_size", json_integer(64), "weight_scale: expected [192, 5], found [192, 10]"},
      {weights, "group_size", json_null(), "weight_scale: expected [192, 1], found [192, 10]"},
      {weights, "symmetric", json_false(), "weight_zero_point is missing"},
      {weights, "strategy", json_string("token"), "strategy: expected"},
      {weights, "type", json_string("float"), "no quantization_config for integers"},
      {weights, "dynamic", json_true(), "dynamic: not supported"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct variant v;
    variant_open(&v, nano);
    json_object_set_new(variant_object(&v, cases[i].path), cases[i].key, cases[i].value);
    variant_add_all(&v, NULL);
    variant_expect_refusal(&v, cases[i].words);
    variant_close(&v);
  }
  struct variant v;
  variant_open(&v, nano);
  json_object_del(variant_object(&v, "text_config"), "quantization_config");
  variant_add_all(&v, NULL);
  variant_expect_refusal(&v, "no quantization_config");
  variant_close(&v);
}

/* What only describes activations or the cache changes nothing. */
static void test_harmless_keys(void **state) {
  (void)state;
  if (!nano) skip();
  struct variant v;
  variant_open(&v, nano);
  json_t *block = variant_object(&v, "text_config.quantization_config");
  json_object_set_new(block, "kv_cache_scheme", json_pack("{s:i, s:s}", "num_bits", 8, "type", "float"));
  json_object_set_new(block, "version", json_string("0.99"));
  json_object_set_new(variant_object(&v, "text_config.quantization_config.config_groups.group_0"), "input_activations",
                      json_pack("{s:i, s:b}", "num_bits", 8, "dynamic", 1));
  variant_add_all(&v, NULL);
  variant_expect_same(&v);
  variant_close(&v);
}

struct change {
  const char *directory, *key;
  json_t *value;
  const char *words;
};

static void test_method_refusals(void **state) {
  (void)state;
  const struct change cases[] = {
      {"awq", "version", json_string("gemv"), "version: expected \"gemm\", found \"gemv\""},
      {"awq", "bits", json_integer(8), "bits: expected 4, found 8"},
      {"awq", "zero_point", json_false(), "zero_point: false is not supported"},
      {"awq", "group_size", json_integer(16), "scales: expected [4, 32], found [2, 32]"},
      {"awq", "group_size", json_integer(0), "group_size: found 0"},
      {"awq", "rotation", json_string("hadamard"), "rotation: not supported"},
      {"gptq", "checkpoint_format", json_string("marlin"), "checkpoint_format: expected"},
      {"gptq", "bits", json_integer(5), "bits: expected 2, 3, 4 or 8, found 5"},
      {"gptq", "dynamic", json_object(), "qweight: expected"},
      {"gptq", "adapter", json_pack("{s:s}", "type", "lora"), "adapter: not supported"},
      {"gptq", "pack_dtype", json_string("int16"), "pack_dtype: expected"},
      {"fp8_block", "fmt", json_string("e3m4"), "fmt: expected"},
      {"fp8_block", "weight_block_size", json_pack("[i, i]", 32, 32), "weight_scale_inv: expected"},
      {"fp8_block", "weight_block_size", json_pack("[i]", 64), "weight_block_size: expected two positive integers"},
      {"modelopt_nvfp4", "quant_algo", json_string("W4A8_AWQ"), "W4A8_AWQ"},
      {"modelopt_nvfp4", "pre_quant_scale", json_true(), "pre_quant_scale: not supported"},
  };
  static const char *const methods[] = {"aqlm",   "quip",       "hqq",     "eetq",         "higgs", "torchao", "vptq",
                                        "spqr",   "exl2",       "exl3",    "bitsandbytes", "bitnet", "humming",
                                        "auto-round", "gguf",   "mlx"};
  for (size_t i = 0; i < COUNT(cases) + COUNT(methods); i++) {
    bool named = i >= COUNT(cases);
    struct change change = named ? (struct change){"awq", "quant_method", json_string(methods[i - COUNT(cases)]),
                                                   methods[i - COUNT(cases)]}
                                 : cases[i];
    char *source = memory_format("%s/tests/data/quantized/%s", getenv("EAGLET_TEST_ROOT"), change.directory);
    struct variant v;
    variant_open(&v, source);
    json_object_set_new(variant_object(&v, "quantization_config"), change.key, change.value);
    variant_add_all(&v, NULL);
    variant_expect_refusal(&v, change.words);
    variant_close(&v);
    free(source);
  }
}

/* MLX writes a block of another name; its words would be taken for a broken plain weight. */
static void test_mlx(void **state) {
  (void)state;
  char *source = memory_format("%s/tests/data/quantized/awq", getenv("EAGLET_TEST_ROOT"));
  struct variant v;
  variant_open(&v, source);
  json_object_del(v.config, "quantization_config");
  json_object_set_new(v.config, "quantization", json_pack("{s:i, s:i}", "group_size", 64, "bits", 4));
  variant_add_all(&v, NULL);
  variant_expect_refusal(&v, "MLX");
  variant_close(&v);
  free(source);
}

/* ---- one tensor changed ---- */

static const char *left_out;
static bool all_but_one(char *name, size_t size, const char *old) {
  (void)name;
  (void)size;
  return strcmp(old, left_out) != 0;
}

#define L "model.layers.0."

static void test_missing_parts(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"ct_w4a16", L "mlp.up_proj.weight_scale"},
                                         {"ct_w4a16", L "mlp.up_proj.weight_shape"},
                                         {"ct_mixed", L "mlp.up_proj.weight_global_scale"},
                                         {"ct_mixed", L "self_attn.v_proj.weight_scale"},
                                         {"awq", L "mlp.up_proj.qzeros"},
                                         {"awq", L "mlp.up_proj.scales"},
                                         {"gptq", L "mlp.up_proj.qzeros"},
                                         {"fp8_block", L "mlp.gate_proj.weight_scale_inv"}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    char *source = memory_format("%s/tests/data/quantized/%s", getenv("EAGLET_TEST_ROOT"), cases[i][0]);
    struct variant v;
    variant_open(&v, source);
    left_out = cases[i][1];
    assert_non_null(checkpoint_peek(&v.source, left_out));
    variant_add_all(&v, all_but_one);
    variant_expect_refusal(&v, left_out);
    variant_close(&v);
    free(source);
  }
}

/* Doctors a copy of a tensor's bytes. */
static void doctor(struct variant *v, const char *name, size_t at, const void *bytes, size_t n) {
  struct tensor_entry entry = *checkpoint_peek(&v->source, name);
  uint8_t *copy = variant_own(v, memory_alloc(entry.n_bytes));
  memcpy(copy, entry.data, entry.n_bytes);
  assert_true(at + n <= entry.n_bytes);
  memcpy(copy + at, bytes, n);
  entry.data = copy;
  left_out = name;
  variant_add_all(v, all_but_one);
  variant_add(v, name, &entry);
}

static void test_bad_values(void **state) {
  (void)state;
  static const int32_t group_5 = 5, zero_f32 = 0;
  static const float infinite = INFINITY;
  static const uint16_t nan_f16 = 0x7e00;
  static const uint8_t nan_byte = 0x7f;
  const struct {
    const char *directory, *name;
    size_t at;
    const void *bytes;
    size_t n;
    const char *words;
  } cases[] = {
      {"gptq", L "self_attn.q_proj.g_idx", 12, &group_5, 4, "input 3 is in group 5 of 2"},
      {"gptq", L "self_attn.q_proj.scales", 6, &nan_f16, 2, "scale 3 is nan"},
      {"modelopt_nvfp4", L "mlp.up_proj.weight_scale_2", 0, &zero_f32, 4, "weight_scale_2: found 0"},
      {"modelopt_nvfp4", L "mlp.up_proj.weight_scale", 7, &nan_byte, 1, "scale 7 is nan"},
      {"fp8_block", L "mlp.up_proj.weight_scale_inv", 4, &infinite, 4, "scale 1 is inf"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    char *source = memory_format("%s/tests/data/quantized/%s", getenv("EAGLET_TEST_ROOT"), cases[i].directory);
    struct variant v;
    variant_open(&v, source);
    doctor(&v, cases[i].name, cases[i].at, cases[i].bytes, cases[i].n);
    variant_expect_refusal(&v, cases[i].words);
    variant_close(&v);
    free(source);
  }
}

static void test_companions(void **state) {
  (void)state;
  static const struct {
    const char *name, *words; /* NULL: ignored */
  } cases[] = {{L "mlp.up_proj.pre_quant_scale", "pre_quant_scale: not supported"},
               {L "mlp.up_proj.k_rotation", "k_rotation"},
               {L "self_attn.o_proj.weight", "both"},
               {L "mlp.up_proj.input_scale", NULL},
               {L "self_attn.k_proj.k_scale", NULL},
               {L "self_attn.kv_scale", NULL}};
  char *source = memory_format("%s/tests/data/quantized/awq", getenv("EAGLET_TEST_ROOT"));
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct variant v;
    variant_open(&v, source);
    const struct tensor_entry *norm = checkpoint_peek(&v.source, "model.norm.weight");
    variant_add_all(&v, NULL);
    variant_add(&v, cases[i].name, norm);
    if (cases[i].words)
      variant_expect_refusal(&v, cases[i].words);
    else
      variant_expect_same(&v);
    variant_close(&v);
  }
  free(source);
}

/* Old writers give every linear a bias: zeros are none, others must not be dropped. */
static void test_bias_of_zeros(void **state) {
  (void)state;
  char *source = memory_format("%s/tests/data/quantized/gptq", getenv("EAGLET_TEST_ROOT"));
  static uint16_t bias[96];
  for (int i = 0; i < 2; i++) {
    struct variant v;
    variant_open(&v, source);
    bias[95] = i ? 0x3c00 : 0;
    const struct tensor_entry entry = {
        .dtype = DTYPE_F16, .rank = 1, .shape = {96}, .data = (const uint8_t *)bias, .n_bytes = sizeof bias};
    variant_add_all(&v, NULL);
    variant_add(&v, L "mlp.gate_proj.bias", &entry);
    if (i)
      variant_expect_refusal(&v, "mlp.gate_proj.bias");
    else
      variant_expect_same(&v);
    variant_close(&v);
  }
  free(source);
}

static void test_axes(void **state) {
  (void)state;
  static const struct {
    const char *directory, *module;
    int32_t n_out, n_in;
  } cases[] = {{"awq", L "mlp.up_proj", 96, -1},         {"gptq", L "mlp.up_proj", 96, 64},
               {"ct_w4a16", L "mlp.up_proj", 96, 64},    {"fp8_block", L "mlp.down_proj", 64, 96},
               {"modelopt_nvfp4", L "mlp.up_proj", 96, 64}, {"ct_mixed", L "mlp.up_proj", 96, 64},
               {"awq", L "mlp.no_proj", -1, -1}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct quantized q;
    quantized_open(&q, cases[i].directory);
    assert_int_equal(linear_axis(&q.checkpoint, cases[i].module, 0), cases[i].n_out);
    assert_int_equal(linear_axis(&q.checkpoint, cases[i].module, 1), cases[i].n_in);
    quantized_close(&q);
  }
}

/* inspect says how weights are kept and what was not taken at its word. */
static void test_description(void **state) {
  (void)state;
  static const struct {
    const char *directory, *kind, *format, *note;
  } cases[] = {{"gptq", "dense_ffn", "int3 g32 in-major zeros reordered", "asymmetric linears of gptq v1"},
               {"modelopt_nvfp4", "attention", "nvfp4 g16", "scales of activations are ignored"},
               {"ct_mixed", "dense_ffn", "mxfp4 g32", NULL},
               {"fp8_block", "dense_ffn", "fp8 64x64", NULL}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    char *source = memory_format("%s/tests/data/quantized/%s", getenv("EAGLET_TEST_ROOT"), cases[i].directory);
    struct fixture f;
    assert_int_equal(fixture_open(&f, source, 8, NULL), EAGLET_OK);
    json_t *document = model_describe(f.model), *notes;
    notes = json_object_get(json_object_get(document, "quantization"), "notes");
    assert_non_null(json_object_get(json_object_get(json_object_get(document, "formats"), cases[i].kind), cases[i].format));
    assert_int_equal(json_array_size(notes), cases[i].note ? 1 : 0);
    if (cases[i].note) assert_non_null(strstr(json_string_value(json_array_get(notes, 0)), cases[i].note));
    json_decref(document);
    fixture_close(&f);
    free(source);
  }
}

/* ---- bug cases ---- */

/* A12: weights in one shard, their scales in another, and the shards in either order. */
static void test_scale_in_another_shard(void **state) {
  (void)state;
  char *source = memory_format("%s/tests/data/quantized/fp8_block", getenv("EAGLET_TEST_ROOT"));
  size_t n;
  float *expected = directory_logits(source, &n);
  for (int order = 0; order < 2; order++) {
    struct variant v;
    variant_open(&v, source);
    char *scales = memory_format("%s/%s.safetensors", v.directory, order ? "a" : "z");
    struct safetensors_writer *writer = safetensors_writer_create();
    for (size_t i = 0; i < v.source.n_tensors; i++) {
      const struct tensor_entry *t = v.source.tensors[i];
      if (strstr(t->name, "_scale_inv"))
        safetensors_writer_add(writer, t->name, t->dtype, t->rank, t->shape, t->data);
      else
        variant_add(&v, t->name, t);
    }
    variant_write(&v);
    assert_int_equal(safetensors_writer_commit(writer, scales, NULL), EAGLET_OK);
    safetensors_writer_free(writer);
    float *found = directory_logits(v.directory, &n);
    assert_memory_equal(found, expected, n);
    free(found);
    unlink(scales);
    free(scales);
    variant_close(&v);
  }
  free(expected);
  free(source);
}

/* A13: 7 labelled v1, 8 labelled v2 and 8 labelled v1 are the same weights; the last is noticed. */
static void test_gptq_zero_points(void **state) {
  (void)state;
  static const char *const names[] = {"gptq_sym_v1", "gptq_sym_v2", "gptq_sym_mislabelled"};
  float *first = NULL;
  for (int i = 0; i < 3; i++) {
    struct quantized q;
    struct weight w;
    quantized_open(&q, names[i]);
    assert_int_equal(quantized_bind(&q, json_array_get(json_object_get(q.expected, "modules"), 0), &w, NULL), EAGLET_OK);
    float *rows = weight_floats(&w);
    if (first)
      assert_memory_equal(rows, first, sizeof(float) * (size_t)(w.n_out * w.n_in));
    else
      first = rows;
    if (rows != first) free(rows);
    assert_int_equal(q.quantization.n_zeros_as_v2, i == 2);
    assert_int_equal(q.quantization.n_zeros_as_v1, 0);
    quantized_close(&q);
  }
  free(first);
}

/* A11: 270 rows of 3 scales are blocks of 128 by the config, not of 90 by the quotient; with no config that is not guessed. */
static void test_block_size(void **state) {
  (void)state;
  struct quantized q;
  struct weight w;
  quantized_open(&q, "fp8_partial");
  assert_int_equal(linear_bind(&w, &q.source, "rows", (const int32_t[]){270, 16}, NULL), EAGLET_OK);
  assert_int_equal(w.scale_rows, 128);
  q.quantization.n_schemes = 0;
  assert_int_equal(linear_bind(&w, &q.source, "rows", (const int32_t[]){270, 16}, NULL), EAGLET_E_INPUT);
  quantized_close(&q);
}

/* The reference library drops axes of one when it re-saves experts: a vector of block scales is a row or a column by the block's size. */
static void test_squeezed_scales(void **state) {
  (void)state;
  static const char *const names[] = {"rows", "columns"};
  for (int i = 0; i < 2; i++) {
    struct quantized q;
    struct weight whole, squeezed;
    char name[64];
    quantized_open(&q, "fp8_partial");
    snprintf(name, sizeof name, "%s.weight", names[i]);
    const struct tensor_entry *codes = checkpoint_peek(q.source.checkpoint, name);
    const int32_t shape[] = {(int32_t)codes->shape[0], (int32_t)codes->shape[1]};
    snprintf(name, sizeof name, "%s.weight_scale_inv", names[i]);
    struct tensor_entry *scale = (struct tensor_entry *)checkpoint_peek(q.source.checkpoint, name);
    assert_int_equal(linear_bind(&whole, &q.source, names[i], shape, NULL), EAGLET_OK);
    float *expected = weight_floats(&whole);
    scale->shape[0] *= scale->shape[1]; /* [3, 1] or [1, 3] -> [3] */
    scale->rank = 1;
    assert_int_equal(linear_bind(&squeezed, &q.source, names[i], shape, NULL), EAGLET_OK);
    float *found = weight_floats(&squeezed);
    assert_memory_equal(expected, found, sizeof(float) * (size_t)(shape[0] * shape[1]));
    free(expected);
    free(found);
    quantized_close(&q);
  }
}

/* A scale beside a weight that is not quantised is not skipped; the check is by name. */
static void test_scale_without_codes(void **state) {
  (void)state;
  char *source = memory_format("%s/tests/data/quantized/awq", getenv("EAGLET_TEST_ROOT"));
  struct variant v;
  variant_open(&v, source);
  variant_add_all(&v, NULL);
  variant_add(&v, "model.embed_tokens.weight_scale", checkpoint_peek(&v.source, "model.norm.weight"));
  variant_expect_refusal(&v, "model.embed_tokens.weight_scale");
  variant_close(&v);
  free(source);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_integer_refusals),
      cmocka_unit_test(test_harmless_keys),
      cmocka_unit_test(test_method_refusals),
      cmocka_unit_test(test_mlx),
      cmocka_unit_test(test_missing_parts),
      cmocka_unit_test(test_bad_values),
      cmocka_unit_test(test_companions),
      cmocka_unit_test(test_bias_of_zeros),
      cmocka_unit_test(test_axes),
      cmocka_unit_test(test_squeezed_scales),
      cmocka_unit_test(test_description),
      cmocka_unit_test(test_scale_in_another_shard),
      cmocka_unit_test(test_gptq_zero_points),
      cmocka_unit_test(test_block_size),
      cmocka_unit_test(test_scale_without_codes),
  };
  return cmocka_run_group_tests(tests, find_data, free_data);
}
