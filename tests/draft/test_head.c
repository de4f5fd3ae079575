/* test_head.c - the head at inference against the EAGLE authors' own module: every slot of the first pass, then a chain
 * of drafts from every slot (what training unrolls, inference must walk). Rows must not feel each other, and the KV of
 * drafts must be scratch. */
#include "head_walk.h"
#include "pair_fixture.h"

#include "base/util.h"
#include "draft/head_internal.h"

#include <math.h>

#define STEPS 7
#define BATCH 2
#define TIME 48
#define SLOTS (BATCH * TIME)

struct bench {
  struct safetensors reference;
  struct compute *compute;
  struct model target; /* as much of one as a head looks at */
  struct head *head;
  struct head_walk walk;
  char directory[64];
};

static const float *floats(const struct bench *b, const char *name) {
  const struct tensor_entry *tensor = safetensors_find(&b->reference, name);
  if (!tensor || tensor->dtype != DTYPE_F32) fail_msg("%s is not in the reference", name);
  return (const float *)(const void *)tensor->data;
}

static int32_t token(const struct bench *b, int32_t sequence, int32_t t) {
  int64_t id = 0;
  if (t < TIME)
    memcpy(&id, safetensors_find(&b->reference, "in.input_ids")->data + 8 * (sequence * TIME + t), sizeof id);
  return (int32_t)id;
}

static void write_head(struct bench *b) {
  const struct head_config config = {.hidden = 64,
                                     .target_hidden = 64,
                                     .n_heads = 4,
                                     .n_kv_heads = 2,
                                     .head_dim = 16,
                                     .intermediate = 96,
                                     .n_target = 320,
                                     .n_draft = 128,
                                     .n_states = 3,
                                     .states = {1, 2, 3},
                                     .norm_eps = 1e-5,
                                     .rope = {.style = ROPE_HALF, .dim = 16, .theta = 10000},
                                     .positions_max = 256};
  const struct tensor_entry *d2t = safetensors_find(&b->reference, "d2t");
  struct eaglet_error err;
  struct vocab_map map;
  int32_t ids[128];
  for (int32_t i = 0; i < 128; i++) {
    int64_t offset;
    memcpy(&offset, d2t->data + 8 * i, sizeof offset);
    ids[i] = (int32_t)(i + offset);
  }
  assert_ok(vocab_map_init(&map, ids, 128, 320, "reference", &err), &err);
  float *parameters = memory_alloc(sizeof(float) * (size_t)head_parameters_total(&config));
  struct head_parameters *list = memory_alloc(sizeof *list);
  head_parameters_list(list, &config);
  for (int32_t i = 0; i < list->n; i++) {
    const struct head_parameter *p = &list->list[i];
    char spelled[256], name[260];
    head_name_spell(spelled, p->name, HEAD_DIALECT_SGLANG);
    snprintf(name, sizeof name, "w.%s", spelled);
    memcpy(parameters + p->offset, floats(b, name), sizeof(float) * (size_t)(p->rows * p->columns));
  }
  free(list);
  const struct head_export export_ = {
      .config = &config, .map = &map, .parameters = parameters, .dtype = DTYPE_F32, .target = &b->target};
  assert_ok(head_export(b->directory, &export_, &err), &err);
  free(parameters);
  vocab_map_release(&map);
}

static int setup(void **state) {
  char *path = shared_path("own/oracle/eagle3_training_reference.safetensors");
  struct eaglet_error err;
  *state = NULL;
  if (!path) return 0;
  struct bench *b = memory_alloc(sizeof *b);
  assert_ok(safetensors_open(&b->reference, path, &err), &err);
  assert_ok(compute_open_cpu(&b->compute, 2, EAGLET_PRECISION_EXACT, &err), &err);
  b->target.compute = b->compute;
  b->target.arch.features.hidden = 64;
  b->target.arch.features.n_vocab = 320;
  b->target.arch.features.n_layers = 8;
  b->target.arch.features.positions_max = 256;
  b->target.n_positions = 256;
  b->target.embed =
      (struct weight){.format = WEIGHT_F32, .n_out = 320, .n_in = 64, .data = floats(b, "w.embed_tokens.weight")};
  temporary_directory(b->directory);
  write_head(b);
  assert_ok(head_open(&b->head, b->directory, &b->target, &err), &err);
  walk_open(&b->walk, b->head, b->compute, (struct walk_size){BATCH, SLOTS, 64, TIME + STEPS});
  free(path);
  *state = b;
  return 0;
}

static int teardown(void **state) {
  struct bench *b = *state;
  if (!b) return 0;
  walk_close(&b->walk);
  head_close(b->head);
  compute_close(b->compute);
  safetensors_close(&b->reference);
  remove_directory(b->directory);
  free(b);
  return 0;
}

/* Features of slots [begin, end) of both sequences, fused; then the pass over them. */
static void first_pass(struct bench *b, struct head_run *run, int32_t begin, int32_t end) {
  batch_reset(&b->walk.batch);
  for (int32_t s = 0; s < BATCH; s++) {
    head_fuse(b->walk.forward, b->walk.feature + (int64_t)b->walk.batch.n * 64,
              floats(b, "in.features") + (int64_t)(s * TIME + begin) * 192, end - begin);
    for (int32_t t = begin; t < end; t++) walk_add(&b->walk, s, t, token(b, s, t + 1));
  }
  walk_run(&b->walk, run);
}

/* Largest difference relative to the largest value of `scale` (a whole tensor). */
static double max_rel(const float *a, const float *b, int32_t n, double scale) {
  double worst = 0;
  for (int32_t i = 0; i < n; i++) worst = fmax(worst, fabs((double)a[i] - b[i]));
  return worst / scale;
}

static double largest(const float *a, int32_t n) {
  double most = 0;
  for (int32_t i = 0; i < n; i++) most = fmax(most, fabs((double)a[i]));
  return most;
}

static void test_first_pass(void **state) {
  struct bench *b = *state;
  struct head_run run;
  if (!b) skip();
  first_pass(b, &run, 0, TIME);
  const float *hidden = floats(b, "out.hidden.0"), *logits = floats(b, "out.logits.0");
  double error = max_rel(run.out, hidden, SLOTS * 64, largest(hidden, SLOTS * 64)),
         error_logits = max_rel(run.logits, logits, SLOTS * 128, largest(logits, SLOTS * 128));
  printf("first pass: hidden %.2e, logits %.2e\n", error, error_logits);
  assert_true(error < 1e-5 && error_logits < 1e-5);
}

/* From the last slot backwards: a chain writes only slots behind its start, where no earlier chain looks. */
static void test_chains(void **state) {
  struct bench *b = *state;
  struct head_run run;
  struct eaglet_error err;
  double worst[STEPS] = {0}, worst_logits[STEPS] = {0};
  if (!b) skip();
  first_pass(b, &run, 0, TIME);
  float *first = memory_alloc(SLOTS * 64 * sizeof(float)), *out = memory_alloc(BATCH * 64 * sizeof(float));
  memcpy(first, run.out, SLOTS * 64 * sizeof(float));
  for (int32_t t = TIME - 1; t >= 0; t--) {
    for (int32_t s = 0; s < BATCH; s++) memcpy(out + s * 64, first + (s * TIME + t) * 64, 64 * sizeof(float));
    for (int32_t k = 1; k < STEPS; k++) {
      char name[32];
      snprintf(name, sizeof name, "out.hidden.%d", k);
      const float *hidden = floats(b, name);
      snprintf(name, sizeof name, "out.logits.%d", k);
      const float *logits = floats(b, name);
      memcpy(b->walk.feature, out, BATCH * 64 * sizeof(float));
      batch_reset(&b->walk.batch);
      for (int32_t s = 0; s < BATCH; s++) walk_add(&b->walk, s, t + k, token(b, s, t + 1 + k));
      run = (struct head_run){.batch = &b->walk.batch, .kv = &b->walk.kv, .feature = b->walk.feature};
      assert_ok(head_forward_run(b->walk.forward, &run, &err), &err);
      for (int32_t s = 0; s < BATCH; s++) {
        int32_t slot = s * TIME + t;
        worst[k] = fmax(worst[k], max_rel(run.out + s * 64, hidden + slot * 64, 64, largest(hidden, SLOTS * 64)));
        worst_logits[k] = fmax(worst_logits[k],
                               max_rel(run.logits + s * 128, logits + slot * 128, 128, largest(logits, SLOTS * 128)));
      }
      memcpy(out, run.out, BATCH * 64 * sizeof(float));
    }
  }
  for (int32_t k = 1; k < STEPS; k++) printf("step %d: hidden %.2e, logits %.2e\n", k, worst[k], worst_logits[k]);
  for (int32_t k = 1; k < STEPS; k++) assert_true(worst[k] < 1e-5 && worst_logits[k] < 1e-5);
  free(first);
  free(out);
}

/* In chunks of any size, over KV that drafts have scribbled on: the same bits. */
static void test_chunks(void **state) {
  struct bench *b = *state;
  struct head_run run;
  struct eaglet_error err;
  static const int32_t sizes[] = {1, 2, 3, 17, 30};
  if (!b) skip();
  first_pass(b, &run, 0, TIME);
  float *whole = memory_alloc(SLOTS * 64 * sizeof(float));
  memcpy(whole, run.out, SLOTS * 64 * sizeof(float));
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    for (int32_t begin = 0; begin < TIME; begin += sizes[k]) {
      int32_t end = begin + sizes[k] < TIME ? begin + sizes[k] : TIME;
      first_pass(b, &run, begin, end);
      for (int32_t s = 0; s < BATCH; s++) {
        assert_memory_equal(run.out + (int64_t)s * (end - begin) * 64, whole + (int64_t)(s * TIME + begin) * 64,
                            sizeof(float) * 64 * (size_t)(end - begin));
      }
      batch_reset(&b->walk.batch);
      for (int32_t s = 0; s < BATCH; s++) walk_add(&b->walk, s, end, 7); /* a draft: scratch behind the committed slots */
      run = (struct head_run){.batch = &b->walk.batch, .kv = &b->walk.kv, .feature = b->walk.feature};
      assert_ok(head_forward_run(b->walk.forward, &run, &err), &err);
    }
  }
  free(whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_pass), cmocka_unit_test(test_chains),
                                     cmocka_unit_test(test_chunks)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
