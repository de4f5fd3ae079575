/* test_head_dialects.c - tiny random heads in every dialect and wiring, run over a text and then along chains of drafts,
 * against plain loops in double precision; and what must be refused by name. */
#include "head_walk.h"
#include "toy_head.h"

#include "draft/head_convert.h"
#include "draft/head_file.h"

static const struct toy toys[] = {
    {.name = "standard"},
    {.name = "pytorch_model.bin", .pickled = true},
    {.name = "pytorch_model.bin, whole vocabulary, two layers", .pickled = true, .n_draft = TOY_VOCAB, .n_layers = 2},
    {.name = "layers.0, draft_id_to_target_id", .dialect = TOY_LAYERS_DIALECT},
    {.name = "speculators", .dialect = TOY_SPECULATORS},
    {.name = "modelopt", .dialect = TOY_MODELOPT},
    {.name = "whole vocabulary without d2t", .n_draft = TOY_VOCAB},
    {.name = "tied to its own embedding", .n_draft = TOY_VOCAB, .own_embed = true, .tied = true},
    {.name = "tied to the target's embedding", .n_draft = TOY_VOCAB, .tied = true},
    {.name = "own embedding", .own_embed = true},
    {.name = "narrower than the target", .target_hidden = 40, .own_embed = true},
    {.name = "wider than the target", .target_hidden = 16, .own_embed = true, .dialect = TOY_SPECULATORS},
    {.name = "three layers", .n_layers = 3},
    {.name = "two layers with hidden_norm", .n_layers = 2, .own_names = true},
    {.name = "two states", .n_states = 2},
    {.name = "four states", .n_states = 4, .dialect = TOY_SPECULATORS},
    {.name = "fc norms", .fc_norms = true},
    {.name = "fc norms, older names", .fc_norms = true, .own_names = true},
    {.name = "norm before fc", .input_norm = true, .dialect = TOY_SPECULATORS},
    {.name = "norm output", .norm_output = true},
    {.name = "norm before residual", .norm_before_residual = true},
    {.name = "EAGLE-3.1", .fc_norms = true, .norm_output = true, .norm_before_residual = true, .dialect = TOY_SPECULATORS},
    {.name = "biases", .attention_bias = true, .mlp_bias = true, .fc_bias = true, .more = "\"bias\": true, "},
    {.name = "q/k norms", .qk_norm = true, .dialect = TOY_SPECULATORS},
    {.name = "window", .window = 3},
    {.name = "everything",
     .n_layers = 2,
     .target_hidden = 32,
     .n_states = 4,
     .fc_norms = true,
     .norm_output = true,
     .norm_before_residual = true,
     .attention_bias = true,
     .qk_norm = true,
     .own_embed = true,
     .window = 5,
     .dialect = TOY_SPECULATORS},
};

struct runner {
  const struct toy_head *toy;
  struct compute *compute;
  struct model target;
  struct head *head;
  struct head_walk walk;
  char directory[64];
};

static void runner_open(struct runner *r, const struct toy_head *toy) {
  struct eaglet_error err;
  *r = (struct runner){.toy = toy};
  assert_ok(compute_open_cpu(&r->compute, 1, EAGLET_PRECISION_EXACT, &err), &err);
  toy_target(&r->target, toy, r->compute);
  toy_write(r->directory, toy);
  if (head_open(&r->head, r->directory, &r->target, &err) != EAGLET_OK) fail_msg("%s: %s", toy->spec.name, err.message);
  /* Room for fewer rows than head_fuse is given. */
  walk_open(&r->walk, r->head, r->compute, (struct walk_size){1, TOY_TIME, 64, TOY_TIME + TOY_STEPS});
}

static void runner_close(struct runner *r) {
  walk_close(&r->walk);
  head_close(r->head);
  compute_close(r->compute);
  remove_directory(r->directory);
}

static double compare(struct runner *r, const struct head_run *run, const struct toy_reference *want, int32_t row, const int32_t at[2]) {
  const struct toy *s = &r->toy->spec;
  double next = walk_difference(run->out + (int64_t)row * s->hidden, want->next[at[1]][at[0]], s->hidden),
         logits = walk_difference(run->logits + (int64_t)row * s->n_draft, want->logits[at[1]][at[0]], s->n_draft);
  return fmax(next, logits);
}

/* From the last slot backwards: a chain writes only slots behind its start, where no earlier chain looks. */
static double run_chains(struct runner *r, const struct toy_reference *want, const float *first) {
  size_t bytes = sizeof(float) * (size_t)r->toy->spec.hidden;
  double worst = 0;
  for (int32_t t = TOY_TIME - 1; t >= 0; t--) {
    memcpy(r->walk.feature, first + (int64_t)t * r->toy->spec.hidden, bytes);
    for (int32_t k = 1; k < TOY_STEPS; k++) {
      struct head_run run;
      batch_reset(&r->walk.batch);
      walk_add(&r->walk, 0, t + k, r->toy->tokens[t + 1 + k]);
      walk_run(&r->walk, &run);
      worst = fmax(worst, compare(r, &run, want, 0, (const int32_t[]){t, k}));
      memcpy(r->walk.feature, run.out, bytes);
    }
  }
  return worst;
}

static void test_arithmetic(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof toys / sizeof *toys; i++) {
    struct toy_head *toy = toy_create(&toys[i]);
    struct toy_reference *want = toy_evaluate(toy);
    struct runner r;
    struct head_run run;
    double worst = 0;
    runner_open(&r, toy);
    static const int32_t states[] = {2, 4, 5, 7};
    assert_int_equal(r.head->config.n_states, toy->spec.n_states);
    assert_memory_equal(r.head->config.states, states, sizeof(int32_t) * (size_t)toy->spec.n_states);
    assert_memory_equal(r.head->map.target, toy->ids, sizeof(int32_t) * (size_t)toy->spec.n_draft);
    head_fuse(r.walk.forward, r.walk.feature, toy->states, TOY_TIME);
    for (int32_t t = 0; t < TOY_TIME; t++) walk_add(&r.walk, 0, t, toy->tokens[t + 1]);
    walk_run(&r.walk, &run);
    for (int32_t t = 0; t < TOY_TIME; t++) worst = fmax(worst, compare(&r, &run, want, t, (const int32_t[]){t, 0}));
    size_t bytes = TOY_TIME * sizeof(float) * (size_t)toy->spec.hidden;
    float *first = memory_alloc(bytes);
    memcpy(first, run.out, bytes);
    double chains = run_chains(&r, want, first);
    printf("%-40s text %.2e, chains %.2e\n", toy->spec.name, worst, chains);
    assert_true(worst < 1e-5 && chains < 1e-5);
    free(first);
    runner_close(&r);
    free(want);
    toy_free(toy);
  }
}

/* A toy with one thing changed: a field of the outer config, tensors dropped or renamed. */
struct refusal {
  struct toy toy;
  const char *field, *value; /* JSON; "null" removes */
  const char *drop;          /* a tensor */
  const char *rename, *to;
  const char *words;
};

static void change_config(const char *directory, const struct refusal *change) {
  struct eaglet_error err;
  json_t *config;
  char *path = file_join(directory, "config.json");
  assert_ok(json_parse_file(&config, path, &err), &err);
  if (change->field) json_object_set_new(config, change->field, json_loads(change->value, JSON_DECODE_ANY, NULL));
  struct eaglet_text text = json_dump(config, 2);
  write_text(directory, "config.json", text.data);
  free(text.data);
  json_decref(config);
  free(path);
}

static void change_weights(const char *directory, const struct refusal *change) {
  struct eaglet_error err;
  struct safetensors from;
  struct safetensors_writer *writer = safetensors_writer_create();
  char *path = file_join(directory, "model.safetensors");
  assert_ok(safetensors_open(&from, path, &err), &err);
  for (size_t i = 0; i < from.n; i++) {
    const struct tensor_entry *t = &from.tensors[i];
    bool renamed = change->rename && strcmp(t->name, change->rename) == 0;
    if (change->drop && strcmp(t->name, change->drop) == 0) continue;
    safetensors_writer_add(writer, renamed ? change->to : t->name, t->dtype, t->rank, t->shape, t->data);
  }
  assert_ok(safetensors_writer_commit(writer, path, &err), &err);
  safetensors_writer_free(writer);
  safetensors_close(&from);
  free(path);
}

static void test_refusals(void **state) {
  (void)state;
  static const struct refusal cases[] = {
      /* claims against tensors, both ways */
      {.field = "fc_norm", .value = "true", .words = "fc_norm"},
      {.toy = {.fc_norms = true}, .field = "fc_norm", .value = "false", .words = "fc_norm.0.weight exists"},
      {.field = "norm_before_fc", .value = "true", .words = "norm_before_fc"},
      {.toy = {.input_norm = true}, .field = "norm_before_fc", .value = "false", .words = "input_norm.weight exists"},
      {.field = "attention_bias", .value = "true", .words = "attention_bias"},
      {.toy = {.attention_bias = true}, .field = "attention_bias", .value = "false", .words = "attention_bias"},
      {.field = "mlp_bias", .value = "true", .words = "mlp_bias"},
      {.field = "bias", .value = "true", .words = "bias"},
      {.field = "kv_lora_rank", .value = "8", .words = "qk_nope_head_dim"},
      {.field = "tie_word_embeddings", .value = "true", .words = "tie_word_embeddings"},
      {.toy = {.n_draft = TOY_VOCAB, .own_embed = true}, .field = "tie_word_embeddings", .value = "true", .words = "differs from the embedding"},
      /* tensors that are missing, doubled or of another shape */
      {.toy = {.fc_norms = true}, .drop = "fc_norm.1.weight", .words = "fc_norm.1.weight"},
      {.toy = {.n_layers = 2}, .drop = "layers.1.mlp.up_proj.weight", .words = "layers.1.mlp.up_proj"},
      {.toy = {.n_layers = 2}, .field = "num_hidden_layers", .value = "1", .words = "layers.1."},
      {.field = "num_hidden_layers", .value = "2", .words = "layers.1."},
      {.toy = {.qk_norm = true}, .drop = "midlayer.self_attn.k_norm.weight", .words = "k_norm"},
      {.toy = {.attention_bias = true}, .drop = "midlayer.self_attn.v_proj.bias", .words = "v_proj.bias"},
      {.toy = {.fc_norms = true}, .rename = "fc_norm.1.weight", .to = "aux_norm_low.weight", .words = "other spelling"},
      {.toy = {.n_layers = 2}, .rename = "layers.1.input_layernorm.weight", .to = "layers.1.mask_hidden", .words = "input_layernorm"},
      {.toy = {.n_layers = 2}, .rename = "layers.1.post_attention_layernorm.weight", .to = "layers.1.hidden_norm.weight", .words = "both input_layernorm and hidden_norm"},
      {.toy = {.n_states = 2}, .field = "eagle_config", .value = "{\"eaglet_states\": [2, 4, 5]}", .words = "fc.weight: expected [24, 72], found [24, 48]"},
      {.toy = {.target_hidden = 40}, .words = "embed_tokens.weight: missing"},
      {.toy = {.n_draft = TOY_VOCAB}, .rename = "lm_head.weight", .to = "router.weight", .words = "router.weight"},
      {.rename = "midlayer.mlp.up_proj.weight", .to = "midlayer.mlp.upproj.weight", .words = "up_proj"}, /* F02 */
      {.toy = {.dialect = TOY_SPECULATORS}, .field = "norm_before_residual", .value = "null", .words = "norm_before_residual"},
      {.toy = {.dialect = TOY_SPECULATORS}, .field = "speculators_model_type", .value = "\"dflash\"", .words = "dflash"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct toy_head *toy = toy_create(&cases[i].toy);
    struct compute *compute;
    struct eaglet_error err;
    struct model target;
    struct head *head;
    char directory[64];
    assert_ok(compute_open_cpu(&compute, 1, EAGLET_PRECISION_EXACT, &err), &err);
    toy_target(&target, toy, compute);
    toy_write(directory, toy);
    change_config(directory, &cases[i]);
    change_weights(directory, &cases[i]);
    if (head_open(&head, directory, &target, &err) != EAGLET_E_INPUT) fail_msg("case %zu, %s", i, cases[i].words);
    if (!strstr(err.message, cases[i].words)) fail_msg("case %zu: '%s' is not in '%s'", i, cases[i].words, err.message);
    assert_null(head);
    remove_directory(directory);
    compute_close(compute);
    toy_free(toy);
  }
}

static float *import_block(const struct head_config *config, const struct head *head) {
  struct eaglet_error err;
  float *parameters = memory_alloc(sizeof(float) * (size_t)head_parameters_total(config));
  assert_ok(head_import(parameters, config, head, &err), &err);
  return parameters;
}

/* A warm start keeps the layout of any head, and what it writes computes the same, bit for bit, under the names of the head's dialect. */
static void test_trained_and_written(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof toys / sizeof *toys; i++) {
    struct toy_head *toy = toy_create(&toys[i]);
    struct runner r;
    struct head *again;
    struct head_config config, kept;
    struct eaglet_error err;
    char second[64];
    runner_open(&r, toy);
    r.target.checkpoint.path = r.directory;
    head_config_trained(&config, r.head);
    float *parameters = import_block(&config, r.head);
    const struct head_export export_ = {
        .config = &config, .map = &r.head->map, .parameters = parameters, .dtype = DTYPE_F32, .target = &r.target};
    temporary_directory(second);
    assert_ok(head_export(second, &export_, &err), &err);
    if (head_open(&again, second, &r.target, &err) != EAGLET_OK) fail_msg("%s: %s", toy->spec.name, err.message);
    if (head_compare(r.head, again, &err) != EAGLET_OK) fail_msg("%s: %s", toy->spec.name, err.message);
    assert_int_equal(again->config.dialect, r.head->config.dialect);
    head_config_trained(&kept, again);
    bool unties = config.tied && config.dialect != HEAD_DIALECT_SGLANG;
    if (!unties) {
      float *back = import_block(&kept, again);
      assert_int_equal(head_parameters_total(&kept), head_parameters_total(&config));
      assert_memory_equal(back, parameters, sizeof(float) * (size_t)head_parameters_total(&config));
      free(back);
    }
    free(parameters);
    head_close(again);
    remove_directory(second);
    runner_close(&r);
    toy_free(toy);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_arithmetic),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_trained_and_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
