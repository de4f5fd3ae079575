/* test_head_mtp.c - a target's own prediction layer as a head: tiny checkpoints get a random one behind their last layer, which
 * must compute what plain double-precision loops compute, over a text and along chains of drafts; without it, or with one that is
 * not understood, the answer is a refusal, and the target opens as before. */
#include "head_walk.h"
#include "prediction_reference.h"

#include "base/util.h"
#include "draft/head_file.h"

struct extra {
  const char *fixture; /* under tests/data/arch, or with "own/" in front under the shared data */
  bool dense;          /* the layer is a copy of layer 0, which has no experts */
  bool own_embed, own_head;
  const char *leave_out, *add; /* of the layer's tensors */
};

static float *random_floats(size_t n, double center, double width, uint64_t stream) {
  float *values = memory_alloc(n * sizeof *values);
  for (size_t i = 0; i < n; i++) values[i] = (float)(center + width * random_normal(11, stream, i));
  return values;
}

static void add_random(struct variant *v, const char *name, const int64_t *shape, int rank) {
  size_t n = (size_t)shape[0] * (size_t)(rank > 1 ? shape[1] : 1);
  bool norm = strstr(name, "norm") != NULL;
  float *values = random_floats(n, norm ? 1 : 0, norm || rank == 1 ? 0.2 : 1.0 / sqrt((double)shape[1]), v->source.n_tensors + strlen(name) * 131 + n);
  uint16_t *halves = memory_alloc(n * sizeof *halves);
  dtype_from_f32(halves, DTYPE_BF16, values, n);
  free(values);
  variant_own(v, halves);
  safetensors_writer_add(v->writer, name, DTYPE_BF16, rank, shape, halves);
}

/* The layer's tensors: those of a decoder layer, with other values, and its own. */
static void add_layer(struct variant *v, const struct extra *extra) {
  int32_t n_layers = p_int(v->config, "num_hidden_layers"), hidden = p_int(v->config, "hidden_size");
  char from[64], name[256];
  snprintf(from, sizeof from, "model.layers.%d.", extra->dense ? 0 : n_layers - 1);
  for (size_t i = 0; i < v->source.n_tensors; i++) {
    const struct tensor_entry *t = v->source.tensors[i];
    if (strncmp(t->name, from, strlen(from)) != 0) continue;
    if (extra->leave_out && strstr(t->name, extra->leave_out)) continue;
    snprintf(name, sizeof name, "model.layers.%d.%s", n_layers, t->name + strlen(from));
    add_random(v, name, t->shape, t->rank);
  }
  const struct {
    const char *name;
    int64_t shape[2];
    bool has;
  } own[] = {{"enorm.weight", {hidden, 1}, true},
             {"hnorm.weight", {hidden, 1}, true},
             {"shared_head.norm.weight", {hidden, 1}, true},
             {"eh_proj.weight", {hidden, 2 * hidden}, true},
             {"embed_tokens.weight", {p_int(v->config, "vocab_size"), hidden}, extra->own_embed},
             {"shared_head.head.weight", {p_int(v->config, "vocab_size"), hidden}, extra->own_head},
             {extra->add ? extra->add : "", {hidden, 1}, extra->add != NULL}};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    if (!own[i].has || (extra->leave_out && strstr(own[i].name, extra->leave_out))) continue;
    snprintf(name, sizeof name, "model.layers.%d.%s", n_layers, own[i].name);
    add_random(v, name, own[i].shape, own[i].shape[1] == 1 ? 1 : 2);
  }
}

/* NULL when the fixture is not there. */
static char *fixture_path(const char *name) {
  if (strncmp(name, "own/", 4) == 0) return shared_path(name);
  const char *root = getenv("EAGLET_TEST_ROOT");
  return root ? memory_format("%s/tests/data/arch/%s", root, name) : NULL;
}

static bool extra_write(struct variant *v, const struct extra *extra) {
  char *path = fixture_path(extra->fixture);
  if (!path) return false;
  variant_open(v, path);
  json_object_set_new(v->config, "num_nextn_predict_layers", json_integer(1));
  json_t *rope = json_object_get(v->config, "rope_parameters");
  if (json_is_string(json_object_get(rope, "rope_type"))) { /* the reference knows no scaling */
    const json_t *part = json_object_get(rope, "partial_rotary_factor");
    json_t *plain = json_pack("{s:s,s:f}", "rope_type", "default", "rope_theta", p_double(rope, "rope_theta"));
    if (part) json_object_set(plain, "partial_rotary_factor", (json_t *)part);
    json_object_set_new(v->config, "rope_parameters", plain);
  }
  variant_add_all(v, NULL);
  add_layer(v, extra);
  variant_write(v);
  free(path);
  return true;
}

/* ---- running ---- */

struct runner {
  struct compute *compute;
  struct model *model;
  struct head *head;
  struct head_walk walk;
};

static void runner_open(struct runner *r, const char *directory) {
  struct eaglet_error err;
  *r = (struct runner){.compute = NULL};
  assert_int_equal(compute_open_cpu(&r->compute, 1, EAGLET_PRECISION_EXACT, &err), EAGLET_OK);
  const struct model_params params = {.path = directory, .compute = r->compute};
  if (model_open(&r->model, &params, &err) != EAGLET_OK) fail_msg("%s", err.message);
  if (head_open_mtp(&r->head, r->model, &err) != EAGLET_OK) fail_msg("%s", err.message);
  assert_int_equal(head_import(NULL, &r->head->config, r->head, &err), EAGLET_E_INPUT); /* it has no files to be written to */
  assert_non_null(strstr(err.message, "prediction layer"));
  assert_int_equal(r->head->config.n_states, 1);
  assert_int_equal(r->head->config.states[0], r->model->arch.features.n_layers);
  walk_open(&r->walk, r->head, r->compute, (struct walk_size){1, P_TIME, P_WIDE, P_TIME + P_STEPS});
}

static void runner_close(struct runner *r) {
  walk_close(&r->walk);
  head_close(r->head);
  model_close(r->model);
  compute_close(r->compute);
}

static int32_t token_at(const struct prediction_reference *ref, int32_t t) {
  return (t * 29 + 3) % p_int(ref->config, "vocab_size");
}

static double judge(const struct runner *r, const struct head_run *run, const struct prediction_reference *ref, const int32_t row_t_k[3]) {
  int32_t row = row_t_k[0], t = row_t_k[1], k = row_t_k[2], n_vocab = r->head->config.n_draft;
  return fmax(walk_difference(run->out + (int64_t)row * ref->hidden, ref->next[k][t], ref->hidden),
              walk_difference(run->logits + (int64_t)row * n_vocab, ref->logits[k][t], n_vocab));
}

static void evaluate(struct prediction_reference *ref, const float *states) {
  double state[P_WIDE], feature[P_WIDE];
  for (int32_t k = 0; k < P_STEPS; k++) {
    for (int32_t t = 0; t < P_TIME; t++) {
      for (int32_t i = 0; i < ref->hidden; i++) state[i] = (double)states[t * ref->hidden + i];
      p_rms(feature, state, p_peek(ref, "model.norm.weight", false), ref->hidden, ref->eps);
      p_slot(ref, token_at(ref, t + 1 + k), k == 0 ? feature : ref->next[k - 1][t], (const int32_t[]){t, k});
    }
  }
}

static double run_all(struct runner *r, const struct prediction_reference *ref, const float *states) {
  struct head_run run;
  size_t bytes = sizeof(float) * (size_t)ref->hidden;
  double worst = 0;
  head_fuse(r->walk.forward, r->walk.feature, states, P_TIME);
  for (int32_t t = 0; t < P_TIME; t++) walk_add(&r->walk, 0, t, token_at(ref, t + 1));
  walk_run(&r->walk, &run);
  for (int32_t t = 0; t < P_TIME; t++) worst = fmax(worst, judge(r, &run, ref, (const int32_t[]){t, t, 0}));
  float *first = memory_alloc(P_TIME * bytes);
  memcpy(first, run.out, P_TIME * bytes);
  for (int32_t t = P_TIME - 1; t >= 0; t--) {
    memcpy(r->walk.feature, first + (int64_t)t * ref->hidden, bytes);
    for (int32_t k = 1; k < P_STEPS; k++) {
      batch_reset(&r->walk.batch);
      walk_add(&r->walk, 0, t + k, token_at(ref, t + 1 + k));
      walk_run(&r->walk, &run);
      worst = fmax(worst, judge(r, &run, ref, (const int32_t[]){0, t, k}));
      memcpy(r->walk.feature, run.out, bytes);
    }
  }
  free(first);
  return worst;
}

static void test_arithmetic(void **state) {
  (void)state;
  static const struct extra cases[] = {
      {.fixture = "deepseek_v3", .own_embed = true, .own_head = true}, /* biases, groups, low-rank queries */
      {.fixture = "deepseek_v3"},                                      /* embedding and head shared */
      {.fixture = "deepseek_v3_direct", .own_head = true},             /* direct queries, interleaved rope */
      {.fixture = "glm4_moe", .own_embed = true, .own_head = true},    /* grouped queries */
      {.fixture = "glm4_moe", .dense = true},
      {.fixture = "own/arch/glm4_moe", .own_head = true},              /* q/k norms, half of a head rotated, biases */
      {.fixture = "own/arch/deepseek_v3"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct variant v;
    struct runner r;
    if (!extra_write(&v, &cases[i])) continue;
    runner_open(&r, v.directory);
    struct prediction_reference *ref = p_create(&r.model->checkpoint);
    float *states = random_floats((size_t)P_TIME * (size_t)ref->hidden, 0, 3, 5);
    evaluate(ref, states);
    double worst = run_all(&r, ref, states);
    printf("%s%s: %.2e (%s)\n", cases[i].fixture, cases[i].dense ? ", dense" : "", worst, r.head->notes);
    assert_true(worst < 1e-5);
    assert_true(r.model->n_ignored > 10); /* the target itself passes the layer over */
    free(states);
    free(ref);
    runner_close(&r);
    variant_close(&v);
  }
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    struct extra extra;
    const char *words;
  } cases[] = {
      {{.fixture = "deepseek_v3", .leave_out = "eh_proj"}, "no prediction layer"},
      {{.fixture = "deepseek_v3", .leave_out = "hnorm"}, "hnorm.weight is missing"},
      {{.fixture = "deepseek_v3", .leave_out = "kv_b_proj"}, "kv_b_proj"},
      {{.fixture = "glm4_moe", .leave_out = "experts.1.up_proj"}, "experts.1.up_proj"},
      {{.fixture = "glm4_moe", .add = "future_norm.weight"}, "future_norm.weight: not known"},
      {{.fixture = "cohere2"}, "prediction layers of a decoder with"},
      {{.fixture = "gemma3_text"}, "prediction layers of a decoder with"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct variant v;
    struct compute *compute;
    struct model *model;
    struct head *head;
    struct eaglet_error err;
    assert_true(extra_write(&v, &cases[i].extra));
    assert_int_equal(compute_open_cpu(&compute, 1, EAGLET_PRECISION_EXACT, &err), EAGLET_OK);
    const struct model_params params = {.path = v.directory, .compute = compute};
    if (model_open(&model, &params, &err) != EAGLET_OK) fail_msg("%s", err.message);
    assert_int_equal(head_open_mtp(&head, model, &err), EAGLET_E_INPUT);
    if (!strstr(err.message, cases[i].words)) fail_msg("'%s' is not in '%s'", cases[i].words, err.message);
    model_close(model);
    compute_close(compute);
    variant_close(&v);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
