/* test_head_mla.c - a head with latent attention against TorchSpec's layer in the EAGLE authors' unrolled training step: every
 * slot of the first pass, then the chain of drafts from every slot. Inference runs it absorbed, training did not. */
#include "head_walk.h"
#include "pair_fixture.h"

#include "draft/head_convert.h"

#include <math.h>

#define STEPS 4
#define BATCH 2
#define TIME 40
#define SLOTS (BATCH * TIME)
#define HIDDEN 64
#define DRAFT 128

struct bench {
  struct safetensors reference;
  struct compute *compute;
  struct model target; /* as much of one as a head looks at */
  struct head *head;
  struct head_walk walk;
  char directory[64];
};

static const float *floats(const struct bench *b, const char *format, int32_t step) {
  char name[64];
  snprintf(name, sizeof name, "%s.%d", format, step);
  const struct tensor_entry *tensor = safetensors_find(&b->reference, step < 0 ? format : name);
  if (!tensor || tensor->dtype != DTYPE_F32) fail_msg("%s is not in the reference", format);
  return (const float *)(const void *)tensor->data;
}

static const char *fact(const struct bench *b, const char *key) {
  const char *value = safetensors_metadata(&b->reference, key);
  if (!value) fail_msg("%s is not in the reference's metadata", key);
  return value;
}

static int32_t token(const struct bench *b, int32_t sequence, int32_t t) {
  int64_t id = 0;
  if (t < TIME)
    memcpy(&id, safetensors_find(&b->reference, "in.input_ids")->data + 8 * (sequence * TIME + t), sizeof id);
  return (int32_t)id;
}

/* The reference's weights under their own names, without the embedding, which is the target's. */
static void write_head(struct bench *b) {
  struct safetensors_writer *writer = safetensors_writer_create();
  struct eaglet_error err;
  for (size_t i = 0; i < b->reference.n; i++) {
    const struct tensor_entry *t = &b->reference.tensors[i];
    bool weight = strncmp(t->name, "w.", 2) == 0;
    if (strcmp(t->name, "w.embed_tokens.weight") == 0 || !(weight || strcmp(t->name, "d2t") == 0 || strcmp(t->name, "t2d") == 0))
      continue;
    safetensors_writer_add(writer, weight ? t->name + 2 : t->name, t->dtype, t->rank, t->shape, t->data);
  }
  temporary_directory(b->directory);
  char *path = file_join(b->directory, "model.safetensors");
  assert_ok(safetensors_writer_commit(writer, path, &err), &err);
  char *config = memory_format(
      "{\"architectures\": [\"Eagle3DeepseekV2ForCausalLM\"], \"model_type\": \"kimi_k2\", \"hidden_size\": %d, \"vocab_size\": 320, "
      "\"draft_vocab_size\": %d, \"intermediate_size\": 96, \"num_hidden_layers\": 1, \"num_attention_heads\": %s, "
      "\"q_lora_rank\": %s, \"kv_lora_rank\": %s, \"qk_nope_head_dim\": %s, \"qk_rope_head_dim\": %s, \"v_head_dim\": %s, "
      "\"rms_norm_eps\": %s, \"rope_theta\": %s, \"rope_scaling\": %s, \"max_position_embeddings\": 256, \"n_routed_experts\": 384, "
      "\"first_k_dense_replace\": 1, \"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [0, 1, 2], \"use_aux_hidden_state\": true}}",
      HIDDEN, DRAFT, fact(b, "heads"), fact(b, "q_lora_rank"), fact(b, "kv_lora_rank"), fact(b, "qk_nope_head_dim"),
      fact(b, "qk_rope_head_dim"), fact(b, "v_head_dim"), fact(b, "rms_norm_eps"), fact(b, "rope_theta"), fact(b, "rope_scaling"));
  write_text(b->directory, "config.json", config);
  safetensors_writer_free(writer);
  free(config);
  free(path);
}

/* False: the reference is not there. */
static bool bench_open(struct bench *b, const char *name) {
  char *path = shared_path(name);
  struct eaglet_error err;
  *b = (struct bench){.target.n_positions = 256};
  if (!path) return false;
  assert_ok(safetensors_open(&b->reference, path, &err), &err);
  assert_ok(compute_open_cpu(&b->compute, 2, EAGLET_PRECISION_EXACT, &err), &err);
  b->target.compute = b->compute;
  b->target.arch.features.hidden = HIDDEN;
  b->target.arch.features.n_vocab = 320;
  b->target.arch.features.n_layers = 8;
  b->target.arch.features.positions_max = 256;
  b->target.embed = (struct weight){
      .format = WEIGHT_F32, .n_out = 320, .n_in = HIDDEN, .data = floats(b, "w.embed_tokens.weight", -1)};
  write_head(b);
  assert_ok(head_open(&b->head, b->directory, &b->target, &err), &err);
  assert_int_equal(b->head->config.attention, ATTENTION_MLA);
  assert_int_equal(head_kv_entry_floats(b->head), 32 + 8); /* what the latent cache is for */
  walk_open(&b->walk, b->head, b->compute, (struct walk_size){BATCH, SLOTS, HIDDEN, TIME + STEPS});
  free(path);
  return true;
}

static void bench_close(struct bench *b) {
  walk_close(&b->walk);
  head_close(b->head);
  compute_close(b->compute);
  safetensors_close(&b->reference);
  remove_directory(b->directory);
}

/* Largest difference of n floats, relative to the largest value of the whole tensor. */
static double max_rel(const float *a, const float *whole, int32_t first, int32_t n, int32_t n_whole) {
  double worst = 0, most = 0;
  for (int32_t i = 0; i < n; i++) worst = fmax(worst, fabs((double)a[i] - whole[first + i]));
  for (int32_t i = 0; i < n_whole; i++) most = fmax(most, fabs((double)whole[i]));
  return worst / most;
}

static double judge(const struct bench *b, const struct head_run *run, const int32_t rows_slot_step[3], int32_t row) {
  int32_t n = rows_slot_step[0], slot = rows_slot_step[1], k = rows_slot_step[2];
  return fmax(max_rel(run->out + row * HIDDEN, floats(b, "out.hidden", k), slot * HIDDEN, n * HIDDEN, SLOTS * HIDDEN),
              max_rel(run->logits + row * DRAFT, floats(b, "out.logits", k), slot * DRAFT, n * DRAFT, SLOTS * DRAFT));
}

/* From the last slot backwards: a chain writes only slots behind its start, where no earlier chain looks. */
static void run_chains(struct bench *b, double worst[STEPS], const float *first) {
  struct head_run run;
  for (int32_t t = TIME - 1; t >= 0; t--) {
    for (int32_t s = 0; s < BATCH; s++)
      memcpy(b->walk.feature + s * HIDDEN, first + (s * TIME + t) * HIDDEN, HIDDEN * sizeof(float));
    for (int32_t k = 1; k < STEPS; k++) {
      batch_reset(&b->walk.batch);
      for (int32_t s = 0; s < BATCH; s++) walk_add(&b->walk, s, t + k, token(b, s, t + 1 + k));
      walk_run(&b->walk, &run);
      for (int32_t s = 0; s < BATCH; s++)
        worst[k] = fmax(worst[k], judge(b, &run, (const int32_t[]){1, s * TIME + t, k}, s));
      memcpy(b->walk.feature, run.out, BATCH * HIDDEN * sizeof(float));
    }
  }
}

/* Latent heads have a class of their own in servers, and none in speculators' format. */
static void check_convert(const struct bench *b) {
  static const struct {
    enum head_dialect dialect;
    enum eaglet_status status;
  } cases[] = {{HEAD_DIALECT_SGLANG, EAGLET_OK}, {HEAD_DIALECT_VLLM, EAGLET_OK}, {HEAD_DIALECT_SPECULATORS, EAGLET_E_INPUT}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char root[64];
    struct eaglet_error err;
    json_t *report, *config;
    temporary_directory(root);
    char *out = file_join(root, "out"), *path = file_join(out, "config.json");
    const struct head_convert_params params = {
        .draft = b->directory, .out = out, .target_name = "t", .dialect = cases[i].dialect};
    if (head_convert(&report, &b->target, &params, &err) != cases[i].status) fail_msg("case %zu: %s", i, err.message);
    json_decref(report);
    if (cases[i].status == EAGLET_OK) {
      assert_ok(json_parse_file(&config, path, &err), &err);
      const json_t *class = json_array_get(json_object_get(config, "architectures"), 0);
      assert_string_equal(json_string_value(class), "Eagle3DeepseekV2ForCausalLM");
      json_decref(config);
      remove_directory(out);
    } else {
      assert_non_null(strstr(err.message, "kv_lora_rank"));
    }
    remove_directory(root);
    free(path);
    free(out);
  }
}

static void check_reference(const char *name) {
  struct bench *b = memory_alloc(sizeof *b);
  struct head_run run;
  double worst[STEPS] = {0};
  if (!bench_open(b, name)) {
    free(b);
    skip();
  }
  head_fuse(b->walk.forward, b->walk.feature, floats(b, "in.features", -1), SLOTS);
  for (int32_t s = 0; s < BATCH; s++) {
    for (int32_t t = 0; t < TIME; t++) walk_add(&b->walk, s, t, token(b, s, t + 1));
  }
  walk_run(&b->walk, &run);
  worst[0] = judge(b, &run, (const int32_t[]){SLOTS, 0, 0}, 0);
  float *first = memory_alloc(SLOTS * HIDDEN * sizeof(float));
  memcpy(first, run.out, SLOTS * HIDDEN * sizeof(float));
  run_chains(b, worst, first);
  for (int32_t k = 0; k < STEPS; k++) {
    printf("%s, step %d: %.2e\n", name, k, worst[k]);
    assert_true(worst[k] < 1e-5);
  }
  check_convert(b);
  free(first);
  bench_close(b);
  free(b);
}

static void test_plain(void **state) {
  (void)state;
  check_reference("own/oracle/eagle3_mla_reference_plain.safetensors");
}

static void test_yarn(void **state) {
  (void)state;
  check_reference("own/oracle/eagle3_mla_reference_yarn.safetensors");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain), cmocka_unit_test(test_yarn)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
