/* test_head_convert.c - heads of every wiring, written in every dialect: what is written, what is refused by name, and that the
 * comparison which vouches for the copy sees a single changed bit. Names and fields are looked up in the files themselves. */
#include "toy_head.h"

#include "draft/head_convert.h"

struct conversion {
  struct toy toy;
  const char *speculators, *sglang, *vllm; /* words of the refusal; NULL: is written */
};

static const struct conversion conversions[] = {
    {.toy = {.name = "standard"}},
    {.toy = {.name = "layers.0, draft_id_to_target_id", .dialect = TOY_LAYERS_DIALECT}},
    {.toy = {.name = "speculators", .dialect = TOY_SPECULATORS}},
    {.toy = {.name = "pytorch_model.bin", .pickled = true}},
    {.toy = {.name = "modelopt", .dialect = TOY_MODELOPT}},
    {.toy = {.name = "whole vocabulary", .n_draft = TOY_VOCAB}},
    {.toy = {.name = "two states", .n_states = 2}},
    {.toy = {.name = "four states", .n_states = 4, .dialect = TOY_SPECULATORS}},
    {.toy = {.name = "fc norms, older names", .fc_norms = true, .own_names = true}},
    {.toy = {.name = "norm output", .norm_output = true}},
    {.toy = {.name = "two layers", .n_layers = 2}},
    {.toy = {.name = "three layers with hidden_norm", .n_layers = 3, .own_names = true}},
    {.toy = {.name = "own embedding", .own_embed = true}, .sglang = "embedding"},
    {.toy = {.name = "tied to its own", .n_draft = TOY_VOCAB, .own_embed = true, .tied = true}, .sglang = "embedding"},
    {.toy = {.name = "tied to the target's", .n_draft = TOY_VOCAB, .tied = true}, .speculators = "tied", .vllm = "tied"},
    {.toy = {.name = "narrower", .target_hidden = 40, .own_embed = true}, .speculators = "target_hidden_size"},
    {.toy = {.name = "norm before fc", .input_norm = true}, .sglang = "norm_before_fc"},
    {.toy = {.name = "norm before residual", .norm_before_residual = true}, .sglang = "norm_before_residual"},
    {.toy = {.name = "biases", .attention_bias = true, .mlp_bias = true}, .sglang = "biases"},
    {.toy = {.name = "fc bias", .fc_bias = true}, .speculators = "fc.bias", .sglang = "fc.bias", .vllm = "fc.bias"},
    {.toy = {.name = "q/k norms", .qk_norm = true}, .sglang = "q_norm"},
    {.toy = {.name = "q/k norms and feed-forward biases", .qk_norm = true, .mlp_bias = true},
     .speculators = "q_norm",
     .sglang = "q_norm",
     .vllm = "q_norm"},
    {.toy = {.name = "window", .window = 3}, .sglang = "window"},
};

struct case_at {
  struct toy_head *toy;
  struct compute *compute;
  struct model target;
  char from[64], root[64], *out;
};

static void case_open(struct case_at *c, const struct toy *spec) {
  struct eaglet_error err;
  *c = (struct case_at){.toy = toy_create(spec)};
  assert_ok(compute_open_cpu(&c->compute, 1, EAGLET_PRECISION_EXACT, &err), &err);
  toy_target(&c->target, c->toy, c->compute);
  toy_write(c->from, c->toy);
  temporary_directory(c->root);
  c->out = file_join(c->root, "out");
}

static void case_close(struct case_at *c) {
  if (file_is_directory(c->out)) remove_directory(c->out);
  remove_directory(c->root);
  remove_directory(c->from);
  compute_close(c->compute);
  toy_free(c->toy);
  free(c->out);
}

static enum eaglet_status convert(struct case_at *c, enum head_dialect dialect, json_t **report, struct eaglet_error *err) {
  const struct head_convert_params params = {
      .draft = c->from, .out = c->out, .target_name = "acme/toy", .dialect = dialect};
  return head_convert(report, &c->target, &params, err);
}

static bool has_tensor(const struct safetensors *file, const char *format, ...) PRINTF_LIKE(2, 3);
static bool has_tensor(const struct safetensors *file, const char *format, ...) {
  char name[96];
  va_list args;
  va_start(args, format);
  vsnprintf(name, sizeof name, format, args);
  va_end(args);
  for (size_t i = 0; i < file->n; i++) {
    if (strcmp(file->tensors[i].name, name) == 0) return true;
  }
  return false;
}

/* Ids in the place and numbering of the dialect. */
static void check_ids(const json_t *config, const struct toy *s, enum head_dialect dialect) {
  static const int states[] = {2, 4, 5, 7};
  const json_t *eagle = json_object_get(config, "eagle_config"),
               *ids = json_object_get(dialect == HEAD_DIALECT_SGLANG ? eagle : config, "eagle_aux_hidden_state_layer_ids");
  assert_int_equal(json_array_size(ids), s->n_states);
  for (int32_t i = 0; i < s->n_states; i++)
    assert_int_equal(json_integer_value(json_array_get(ids, (size_t)i)), states[i] - (dialect == HEAD_DIALECT_SGLANG));
}

static void check_files(const struct case_at *c, enum head_dialect dialect) {
  const struct toy *s = &c->toy->spec;
  const char *first = dialect == HEAD_DIALECT_SGLANG ? "midlayer" : "layers.0", *next = dialect == HEAD_DIALECT_SGLANG ? "hidden_norm" : "input_layernorm";
  char *weights = file_join(c->out, "model.safetensors"), *config = file_join(c->out, "config.json");
  struct safetensors file;
  struct eaglet_error err;
  json_t *json;
  assert_ok(safetensors_open(&file, weights, &err), &err);
  assert_ok(json_parse_file(&json, config, &err), &err);
  assert_true(has_tensor(&file, "%s.self_attn.q_proj.weight", first));
  assert_true(has_tensor(&file, "%s.hidden_norm.weight", first));
  for (int32_t i = 1; i < s->n_layers; i++) assert_true(has_tensor(&file, "layers.%d.%s.weight", i, next));
  for (int32_t i = 0; s->fc_norms && i < s->n_states; i++) assert_true(has_tensor(&file, "fc_norm.%d.weight", i));
  assert_int_equal(has_tensor(&file, "d2t"), s->n_draft < TOY_VOCAB);
  assert_int_equal(has_tensor(&file, "t2d"), s->n_draft < TOY_VOCAB);
  assert_int_equal(has_tensor(&file, "lm_head.weight"), !(s->tied && dialect == HEAD_DIALECT_SGLANG));
  assert_int_equal(json_object_get(json, "transformer_layer_config") != NULL, dialect == HEAD_DIALECT_SPECULATORS);
  if (dialect == HEAD_DIALECT_SPECULATORS) {
    const json_t *verifier = json_object_get(json_object_get(json, "speculators_config"), "verifier");
    assert_string_equal(json_string_value(json_object_get(verifier, "name_or_path")), "acme/toy");
    assert_int_equal(json_is_true(json_object_get(json, "norm_before_residual")), s->norm_before_residual);
  }
  assert_int_equal(json_is_true(json_object_get(json, "norm_output")), s->norm_output);
  check_ids(json, s, dialect);
  json_decref(json);
  safetensors_close(&file);
  free(weights);
  free(config);
}

/* What was opened from the copy is what was opened from the original. */
static void check_copy(struct case_at *c) {
  struct eaglet_error err;
  struct head *original, *copy;
  assert_ok(head_open(&original, c->from, &c->target, &err), &err);
  assert_ok(head_open(&copy, c->out, &c->target, &err), &err);
  assert_int_equal(copy->config.n_more_layers, original->config.n_more_layers);
  assert_memory_equal(copy->config.window, original->config.window, sizeof copy->config.window);
  assert_memory_equal(copy->config.states, original->config.states, sizeof copy->config.states);
  assert_memory_equal(&copy->config.wiring, &original->config.wiring, sizeof copy->config.wiring);
  assert_memory_equal(copy->map.target, c->toy->ids, sizeof(int32_t) * (size_t)c->toy->spec.n_draft);
  assert_ok(head_compare(original, copy, &err), &err);
  head_close(copy);
  head_close(original);
}

static void run_case(const struct conversion *conversion, enum head_dialect dialect, const char *words) {
  struct case_at c;
  struct eaglet_error err = {0};
  json_t *report;
  case_open(&c, &conversion->toy);
  enum eaglet_status status = convert(&c, dialect, &report, &err);
  if (words) {
    if (status != EAGLET_E_INPUT) fail_msg("%s, dialect %d: written", conversion->toy.name, dialect);
    if (!strstr(err.message, words)) fail_msg("'%s' is not in '%s'", words, err.message);
    assert_false(file_exists(c.out));
    assert_null(report);
  } else {
    if (status != EAGLET_OK) fail_msg("%s, dialect %d: %s", conversion->toy.name, dialect, err.message);
    assert_true(json_is_true(json_object_get(report, "identical")));
    check_files(&c, dialect);
    check_copy(&c);
    json_decref(report);
  }
  case_close(&c);
}

static void test_dialects(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++) {
    run_case(&conversions[i], HEAD_DIALECT_SPECULATORS, conversions[i].speculators);
    run_case(&conversions[i], HEAD_DIALECT_SGLANG, conversions[i].sglang);
    run_case(&conversions[i], HEAD_DIALECT_VLLM, conversions[i].vllm);
  }
}

/* One bit of one weight, another wiring, another vocabulary: none passes. */
static void test_compare(void **state) {
  (void)state;
  struct case_at a, b;
  struct eaglet_error err;
  struct head *x, *y;
  case_open(&a, &(const struct toy){.name = "standard"});
  case_open(&b, &(const struct toy){.name = "standard"});
  assert_ok(head_open(&x, a.from, &a.target, &err), &err);
  assert_ok(head_open(&y, b.from, &a.target, &err), &err);
  assert_ok(head_compare(x, y, &err), &err);
  head_close(y);
  float *up = (float *)toy_find(b.toy, "layers.0.mlp.up_proj.weight");
  uint32_t bits;
  memcpy(&bits, up + 7, sizeof bits);
  bits ^= 1u << 8;
  memcpy(up + 7, &bits, sizeof bits);
  toy_weights(b.from, b.toy);
  assert_ok(head_open(&y, b.from, &a.target, &err), &err);
  assert_refused(head_compare(x, y, &err), EAGLET_E_CHECK, &err, "logits differ");
  head_close(y);
  case_close(&b);
  case_open(&b, &(const struct toy){.norm_output = true});
  assert_ok(head_open(&y, b.from, &a.target, &err), &err);
  assert_refused(head_compare(x, y, &err), EAGLET_E_CHECK, &err, "differ");
  head_close(y);
  case_close(&b);
  case_open(&b, &(const struct toy){.n_draft = 20});
  assert_ok(head_open(&y, b.from, &a.target, &err), &err);
  assert_refused(head_compare(x, y, &err), EAGLET_E_CHECK, &err, "vocabulary");
  head_close(y);
  head_close(x);
  case_close(&b);
  case_close(&a);
}

/* Never into itself, never over another head. */
static void test_places(void **state) {
  (void)state;
  struct case_at c;
  struct eaglet_error err;
  json_t *report;
  case_open(&c, &(const struct toy){.name = "standard"});
  const struct head_convert_params self = {.draft = c.from, .out = c.from, .target_name = "t", .dialect = HEAD_DIALECT_VLLM};
  assert_refused(head_convert(&report, &c.target, &self, &err), EAGLET_E_USAGE, &err, "another directory");
  assert_ok(convert(&c, HEAD_DIALECT_VLLM, &report, &err), &err);
  json_decref(report);
  assert_refused(convert(&c, HEAD_DIALECT_VLLM, &report, &err), EAGLET_E_USAGE, &err, "is there already");
  case_close(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dialects),
      cmocka_unit_test(test_compare),
      cmocka_unit_test(test_places),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
