/* test_bind.c - binding as validation. Method: variants of nano-kimi with one tensor changed must be refused naming
 * file, tensor, expected and found; harmless extras must change nothing; the router's F32 bias must reach the router
 * unrounded (bug case A23). */
#include "variant.h"

static char *nano;
static char *qwen2;

static int find_data(void **state) {
  (void)state;
  nano = shared_path("own/nano-kimi");
  qwen2 = shared_path("own/arch/qwen2");
  return 0;
}

static int free_data(void **state) {
  (void)state;
  free(nano);
  free(qwen2);
  return 0;
}

static const char *skipped; /* name that copy_but leaves out */
static bool all_but_skipped(char *name, size_t size, const char *old) {
  (void)name;
  (void)size;
  return strcmp(old, skipped) != 0;
}

#define P "language_model.model.layers."

/* Replaces one tensor by a doctored entry. */
static void replace(struct variant *v, const char *name, struct tensor_entry entry) {
  skipped = name;
  variant_add_all(v, all_but_skipped);
  variant_add(v, name, &entry);
}

static struct tensor_entry entry_of(struct variant *v, const char *name) {
  const struct tensor_entry *t = checkpoint_peek(&v->source, name);
  assert_non_null(t);
  return *t;
}

static void test_missing(void **state) {
  (void)state;
  static const char *const names[] = {
      "language_model.model.norm.weight",     P "3.input_layernorm.weight",
      P "2.self_attn.kv_b_proj.weight",       P "4.mlp.experts.7.up_proj.weight_scale",
      P "5.mlp.gate.e_score_correction_bias", P "6.mlp.shared_experts.down_proj.weight"};
  if (!nano) skip();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    struct variant v;
    variant_open(&v, nano);
    skipped = names[i];
    variant_add_all(&v, all_but_skipped);
    variant_expect_refusal(&v, names[i]);
    variant_close(&v);
  }
}

static void test_wrong_shape(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t shape[2];
    int rank;
    const char *words;
  } cases[] = {
      {P "1.self_attn.q_a_proj.weight", {320, 160}, 2, "q_a_proj.weight: expected [160, 320], found [320, 160]"},
      {P "1.self_attn.kv_b_proj.weight", {96, 512}, 2, "expected [512, 96], found [96, 512]"},
      {P "1.input_layernorm.weight", {320, 1}, 2, "expected [320], found [320, 1]"},
      {P "1.mlp.experts.2.down_proj.weight_packed", {192, 40}, 2, "expected [320, 24], found [192, 40]"},
      {"language_model.lm_head.weight", {320, 4096}, 2, "lm_head.weight: expected [4096, 320], found [320, 4096]"},
  };
  if (!nano) skip();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct variant v;
    variant_open(&v, nano);
    struct tensor_entry entry = entry_of(&v, cases[i].name);
    entry.rank = cases[i].rank;
    memcpy(entry.shape, cases[i].shape, sizeof cases[i].shape);
    replace(&v, cases[i].name, entry);
    variant_expect_refusal(&v, cases[i].words);
    variant_close(&v);
  }
}

static void test_wrong_dtype(void **state) {
  (void)state;
  static const struct {
    const char *name;
    enum dtype dtype;
    const char *words;
  } cases[] = {
      {P "1.self_attn.q_a_proj.weight", DTYPE_I16, "q_a_proj.weight: expected BF16, F16 or F32, found I16"},
      {P "1.input_layernorm.weight", DTYPE_I16, "input_layernorm.weight: expected BF16, F16 or F32, found I16"},
      {P "1.mlp.gate.e_score_correction_bias", DTYPE_I32,
       "e_score_correction_bias: expected BF16, F16 or F32, found I32"},
      {P "1.mlp.experts.2.down_proj.weight_packed", DTYPE_U32, "weight_packed: expected I32, found U32"},
      {P "1.mlp.experts.2.down_proj.weight_scale", DTYPE_U16, "weight_scale: expected BF16, F16 or F32, found U16"},
  };
  if (!nano) skip();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct variant v;
    variant_open(&v, nano);
    struct tensor_entry entry = entry_of(&v, cases[i].name);
    entry.dtype = cases[i].dtype;
    replace(&v, cases[i].name, entry);
    variant_expect_refusal(&v, cases[i].words);
    variant_close(&v);
  }
}

static void test_unknown_tensor(void **state) {
  (void)state;
  static const char *const names[] = {P "3.self_attn.sinks", "language_model.model.extra_norm.weight",
                                      P "3.self_attn.q_a_proj.weight_scale"};
  if (!nano) skip();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    struct variant v;
    variant_open(&v, nano);
    struct tensor_entry entry = entry_of(&v, "language_model.model.norm.weight");
    variant_add_all(&v, NULL);
    variant_add(&v, names[i], &entry);
    variant_expect_refusal(&v, names[i]);
    variant_close(&v);
  }
}

static void test_harmless_tensors(void **state) {
  (void)state;
  if (!nano) skip();
  struct variant v;
  variant_open(&v, nano);
  struct tensor_entry entry = entry_of(&v, "language_model.model.norm.weight");
  variant_add_all(&v, NULL);
  variant_add(&v, P "3.self_attn.rotary_emb.inv_freq", &entry);
  variant_add(&v, P "8.eh_proj.weight", &entry); /* a prediction layer */
  variant_add(&v, P "8.input_layernorm.weight", &entry);
  variant_expect_same(&v);
  variant_close(&v);
}

/* F32 and F16 forms of a linear are bound as they are; values that BF16 holds give the same bits in F32. */
static void test_f32_weight(void **state) {
  (void)state;
  if (!nano) skip();
  struct variant v;
  variant_open(&v, nano);
  struct tensor_entry entry = entry_of(&v, P "1.self_attn.o_proj.weight");
  size_t n = (size_t)(entry.shape[0] * entry.shape[1]);
  float *wide = variant_own(&v, memory_alloc(n * sizeof(float)));
  dtype_to_f32(wide, entry.data, entry.dtype, n);
  entry.dtype = DTYPE_F32;
  entry.data = (const uint8_t *)wide;
  replace(&v, P "1.self_attn.o_proj.weight", entry);
  variant_write(&v);
  struct fixture f;
  assert_int_equal(fixture_open(&f, v.directory, 64, NULL), EAGLET_OK);
  assert_int_equal(f.model->layers[1].attention.o.format, WEIGHT_F32);
  size_t bytes;
  float *expected = directory_logits(nano, &bytes), *found = fixture_logits(&f);
  assert_true(max_rel(found, expected, bytes / sizeof(float)) < 1e-5);
  free(expected);
  free(found);
  fixture_close(&f);
  variant_close(&v);
}

/* ---- INT4 ---- */

static void test_twos_complement(void **state) {
  (void)state;
  static const char name[] = P "1.mlp.experts.0.gate_proj.weight_packed"; /* the one that is looked at */
  if (!nano) skip();
  struct variant v;
  variant_open(&v, nano);
  struct tensor_entry entry = entry_of(&v, name);
  uint8_t *bytes = variant_own(&v, memory_alloc(entry.n_bytes));
  for (uint64_t i = 0; i < entry.n_bytes; i++) bytes[i] = entry.data[i] ^ 0x88; /* offset binary -> two's complement */
  entry.data = bytes;
  replace(&v, name, entry);
  variant_expect_refusal(&v, "nibbles peak at 0 and 15");
  variant_close(&v);
  struct fixture f;
  assert_int_equal(fixture_open(&f, nano, 8, NULL), EAGLET_OK);
  assert_true(f.model->nibbles.center > 2 * f.model->nibbles.edge);
  fixture_close(&f);
}

static void test_int4_parts(void **state) {
  (void)state;
  static const char shape_name[] = P "1.mlp.experts.0.gate_proj.weight_shape",
                    scale_name[] = P "1.mlp.experts.0.gate_proj.weight_scale";
  if (!nano) skip();
  struct variant v;
  variant_open(&v, nano);
  struct tensor_entry entry = entry_of(&v, shape_name);
  static const int32_t lie[2] = {192, 321};
  entry.data = (const uint8_t *)lie;
  replace(&v, shape_name, entry);
  variant_expect_refusal(&v, "weight_shape: expected [192, 320], found [192, 321]");
  variant_close(&v);
  variant_open(&v, nano); /* I64 is another spelling */
  entry = entry_of(&v, shape_name);
  static const int64_t wide[2] = {192, 320};
  entry.dtype = DTYPE_I64;
  entry.data = (const uint8_t *)wide;
  replace(&v, shape_name, entry);
  variant_expect_same(&v);
  variant_close(&v);
  variant_open(&v, nano);
  entry = entry_of(&v, scale_name);
  uint16_t *scales = variant_own(&v, memory_alloc(entry.n_bytes));
  memcpy(scales, entry.data, entry.n_bytes);
  scales[77] = 0x7fc0; /* NaN */
  entry.data = (const uint8_t *)scales;
  replace(&v, scale_name, entry);
  variant_expect_refusal(&v, "scale 77 is nan");
  variant_close(&v);
}

/* ---- A23 ---- */

/* Expert ids by an F64 reference from the normed input of layer 1; the model's own picks show in what the layer adds,
 * so instead the bias is compared bit by bit and the router op is run on it with logits that only F32 tells apart. */
static void test_router_bias_stays_f32(void **state) {
  (void)state;
  static const char name[] = P "1.mlp.gate.e_score_correction_bias";
  if (!nano) skip();
  struct variant v;
  struct fixture f;
  variant_open(&v, nano);
  struct tensor_entry entry = entry_of(&v, name);
  float ramp[16];
  for (int e = 0; e < 16; e++) ramp[e] = 6.817f + 0.246f * (float)((e * 7) % 16) / 16; /* one BF16 step is 0.03 here */
  entry.data = (const uint8_t *)ramp;
  assert_int_equal(entry.dtype, DTYPE_F32);
  replace(&v, name, entry);
  variant_write(&v);
  assert_int_equal(fixture_open(&f, v.directory, 64, NULL), EAGLET_OK);
  const float *bias = f.model->layers[1].ffn.correction_bias;
  assert_memory_equal(bias, ramp, sizeof ramp);
  struct compute *c = f.compute;
  float *logits = c->alloc(c, 1000 * 16 * sizeof(float)), *share = c->alloc(c, 1000 * 4 * sizeof(float));
  int32_t *expert = c->alloc(c, 1000 * 4 * sizeof(int32_t));
  for (int i = 0; i < 16000; i++) logits[i] = (float)((i * 2654435761u >> 8) % 1000) * 2e-5f;
  const struct router_params router = {.expert = expert,
                                       .share = share,
                                       .logits = logits,
                                       .bias = bias,
                                       .n_experts = 16,
                                       .n_picked = 4,
                                       .n_groups = 1,
                                       .n_groups_picked = 1,
                                       .kind = ROUTER_SIGMOID_BIAS,
                                       .normalise = true,
                                       .scale = 1};
  c->router(c, &router, 1000);
  for (int i = 0; i < 1000; i++) {
    bool taken[16] = {false};
    for (int k = 0; k < 4; k++) {
      int best = -1;
      double best_score = -1;
      for (int e = 0; e < 16; e++) {
        double score = 1 / (1 + exp(-(double)logits[i * 16 + e])) + (double)ramp[e];
        if (!taken[e] && score > best_score) best = e, best_score = score;
      }
      taken[best] = true;
      assert_int_equal(expert[i * 4 + k], best);
    }
  }
  c->free(c, logits);
  c->free(c, share);
  c->free(c, expert);
  fixture_close(&f);
  variant_close(&v);
}

/* ---- the rest of a model ---- */

static void test_biases_lie_side_by_side(void **state) {
  (void)state;
  if (!qwen2) skip();
  struct fixture f;
  assert_int_equal(fixture_open(&f, qwen2, 8, NULL), EAGLET_OK);
  const struct attention_weights *w = &f.model->layers[2].attention;
  assert_true(w->v_bias == w->k_bias + w->k.n_out);
  assert_null(w->o_bias);
  fixture_close(&f);
}

static void test_stop_ids(void **state) {
  (void)state;
  if (!nano) skip();
  struct fixture f;
  assert_int_equal(fixture_open(&f, nano, 8, NULL), EAGLET_OK);
  assert_int_equal(f.model->n_stop_ids, 2);
  assert_int_equal(f.model->stop_ids[0], 4065);
  assert_int_equal(f.model->stop_ids[1], 4066);
  fixture_close(&f);
}

static void test_default_states(void **state) {
  (void)state;
  static const struct {
    int32_t n_layers, n, states[3];
  } cases[] = {
      {61, 3, {2, 30, 58}}, {8, 3, {2, 4, 5}}, {32, 3, {2, 16, 29}}, {6, 3, {1, 2, 3}}, {5, 3, {1, 2, 3}},
      {4, 3, {1, 2, 3}},    {3, 3, {1, 2, 3}}, {2, 2, {1, 2}},       {1, 1, {1}},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct features features = {.n_layers = cases[i].n_layers};
    int32_t states[3];
    assert_int_equal(model_default_states(&features, states), cases[i].n);
    for (int k = 0; k < cases[i].n; k++) assert_int_equal(states[k], cases[i].states[k]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_missing),
      cmocka_unit_test(test_wrong_shape),
      cmocka_unit_test(test_wrong_dtype),
      cmocka_unit_test(test_unknown_tensor),
      cmocka_unit_test(test_harmless_tensors),
      cmocka_unit_test(test_f32_weight),
      cmocka_unit_test(test_twos_complement),
      cmocka_unit_test(test_int4_parts),
      cmocka_unit_test(test_router_bias_stays_f32),
      cmocka_unit_test(test_biases_lie_side_by_side),
      cmocka_unit_test(test_stop_ids),
      cmocka_unit_test(test_default_states),
  };
  return cmocka_run_group_tests(tests, find_data, free_data);
}
