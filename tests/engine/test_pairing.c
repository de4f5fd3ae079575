/* test_pairing.c - which draft goes with which target: who drafts is read from the checkpoint and a contradicting wish is refused (G01);
 * latent and plain attention pair freely (G27); element types of target and head do not meet (G28). */
#include "traffic.h"

#define CONTEXT 128

static void expect_refusal(const char *model, const char *draft, enum eaglet_drafter drafter, const char *words) {
  struct engine *e;
  struct eaglet_error err;
  const struct eaglet_engine_params params = {.model = model, .draft = draft, .drafter = drafter, .threads = 1, .context_max = CONTEXT};
  enum eaglet_status status = engine_open(&e, &params, &err);
  assert_null(e);
  assert_true(status == EAGLET_E_USAGE || status == EAGLET_E_INPUT);
  if (!strstr(err.message, words)) fail_msg("'%s' is not in '%s'", words, err.message);
}

static void expect_drafter(const char *model, const char *draft, enum eaglet_drafter drafter, const char *name) {
  struct engine *e;
  struct eaglet_error err;
  struct eaglet_engine_stats stats;
  const struct eaglet_engine_params params = {.model = model, .draft = draft, .drafter = drafter, .threads = 1, .context_max = CONTEXT};
  assert_ok(engine_open(&e, &params, &err), &err);
  engine_stats(e, &stats);
  assert_string_equal(stats.drafter, name);
  engine_close(e);
}

static void test_who_drafts(void **state) {
  (void)state;
  struct pair pair;
  pair_write(&pair, "qwen3_biased", CONTEXT, 5);
  expect_drafter(pair.target, NULL, EAGLET_DRAFTER_AUTO, "none");
  expect_drafter(pair.target, pair.head, EAGLET_DRAFTER_AUTO, "head");
  expect_drafter(pair.target, pair.head, EAGLET_DRAFTER_HEAD, "head");
  expect_drafter(pair.target, pair.target, EAGLET_DRAFTER_AUTO, "model");
  expect_drafter(pair.target, pair.target, EAGLET_DRAFTER_MODEL, "model");
  expect_drafter(pair.target, NULL, EAGLET_DRAFTER_NGRAM, "ngram");
  expect_refusal(pair.target, pair.head, EAGLET_DRAFTER_MODEL, pair.head);
  expect_refusal(pair.target, pair.target, EAGLET_DRAFTER_HEAD, pair.target);
  expect_refusal(pair.target, pair.head, EAGLET_DRAFTER_NGRAM, "does not take a draft");
  expect_refusal(pair.target, pair.head, EAGLET_DRAFTER_NONE, "does not take a draft");
  expect_refusal(pair.target, NULL, EAGLET_DRAFTER_HEAD, "needs its directory");
  expect_refusal(pair.target, NULL, EAGLET_DRAFTER_MODEL, "needs its directory");
  pair_remove(&pair);
}

/* ---- texts of a pair ---- */

enum { VISITORS = 6 };

static void run_pair(const char *model, const char *draft, int32_t width, struct visit visits[VISITORS]) {
  struct engine *e;
  struct eaglet_error err;
  struct visitor *visitors = memory_alloc(VISITORS * sizeof *visitors);
  const struct eaglet_engine_params params = {.model = model,
                                              .draft = draft,
                                              .threads = 1,
                                              .sequences_max = VISITORS,
                                              .context_max = CONTEXT,
                                              .draft_len_max = 4,
                                              .draft_width_max = width};
  assert_ok(engine_open(&e, &params, &err), &err);
  for (int32_t i = 0; i < VISITORS; i++) {
    visitor_prompt(&visitors[i], 3 + 9 * i, engine_model(e)->arch.features.n_vocab, 1, (uint64_t)i);
    visitors[i].params.output_max = 50;
    visitors[i].params.ignore_stop = true;
  }
  traffic_run(e, 0, visitors, VISITORS, visits);
  engine_close(e);
  free(visitors);
}

/* A draft model has the engine's positions: with rotations that depend on how many there are, the target drafts for itself without a miss,
 * to the end of a context that is longer than its own. The context that nobody asked for is what the tables hold. */
static void test_positions(void **state) {
  (void)state;
  char *folder = shared_path("own/arch/llama_dynamic"), model[64];
  struct visitor v = {.arrives = 0};
  struct visit *visit = memory_alloc(sizeof *visit);
  if (!folder) skip();
  random_model_write(model, folder, 3);
  for (int32_t context = 0; context <= 64; context += 32) {
    struct engine *e;
    struct eaglet_error err;
    const struct eaglet_engine_params params = {.model = model, .draft = model, .threads = 1, .context_max = context, .draft_len_max = 4};
    assert_ok(engine_open(&e, &params, &err), &err);
    assert_int_equal(engine_context_max(e), context > 32 ? context : 32);
    visitor_prompt(&v, 9, 320, 1, 1);
    v.params.output_max = 190;
    v.params.ignore_stop = true;
    traffic_run(e, 0, &v, 1, visit);
    assert_int_equal(visit->stop, EAGLET_STOP_CONTEXT);
    assert_int_equal(visit->n, engine_context_max(e) - 9);
    assert_int_equal(visit->stats.accepted, visit->stats.drafted);
    assert_true(visit->stats.accepted >= 3 * visit->stats.rounds);
    engine_close(e);
  }
  remove_directory(model);
  free(folder);
  free(visit);
}

/* Heads with plain attention behind latent attention, experts and windows; models of either kind as drafts of the other. */
static void test_attention_kinds(void **state) {
  (void)state;
  static const char *const templates[] = {"deepseek_v3", "qwen3_biased", "deepseek_v2", "gemma2"};
  enum { N = 4 };
  struct pair pairs[N];
  struct visit *plain = memory_alloc(VISITORS * sizeof *plain), *visits = memory_alloc(VISITORS * sizeof *visits);
  for (int i = 0; i < N; i++) pair_write(&pairs[i], templates[i], 256, (uint64_t)i);
  for (int i = 0; i < N; i++) {
    run_pair(pairs[i].target, NULL, 1, plain);
    const char *drafts[] = {pairs[i].head, pairs[(i + 1) % N].target};
    for (int k = 0; k < 4; k++) {
      int32_t drafted = 0;
      run_pair(pairs[i].target, drafts[k / 2], k % 2 ? 3 : 1, visits);
      for (int32_t v = 0; v < VISITORS; v++) {
        visit_compare(&visits[v], &plain[v], false, templates[i], v);
        drafted += visits[v].stats.drafted;
      }
      assert_true(drafted > 0);
    }
  }
  for (int i = 0; i < N; i++) pair_remove(&pairs[i]);
  free(plain);
  free(visits);
}

/* The head's weights, in values that every type has, stored as `dtype`. */
static void store_head(char directory[64], const char *head, enum dtype dtype) {
  struct checkpoint source;
  struct eaglet_error err;
  struct tensor_bag bag = {.writer = safetensors_writer_create()};
  assert_ok(checkpoint_open(&source, head, &err), &err);
  temporary_directory(directory);
  struct eaglet_text config = json_dump(source.config, 2);
  write_text(directory, "config.json", config.data);
  for (size_t i = 0; i < source.n_tensors; i++) {
    const struct tensor_entry *t = source.tensors[i];
    size_t n = t->n_bytes / sizeof(float);
    float *values = bag_own(&bag, memory_alloc(n * sizeof *values)), *stored = bag_own(&bag, memory_alloc(n * sizeof *values));
    assert_int_equal(t->dtype, DTYPE_F32);
    dtype_from_f32(stored, DTYPE_BF16, (const float *)(const void *)t->data, n);
    dtype_to_f32(values, stored, DTYPE_BF16, n);
    for (size_t k = 0; k < n; k++) values[k] = fabsf(values[k]) < 0x1p-13f ? 0 : values[k]; /* F16 has fewer small ones */
    dtype_from_f32(stored, dtype, values, n);
    safetensors_writer_add(bag.writer, t->name, dtype, t->rank, t->shape, stored);
  }
  bag_commit(&bag, directory);
  free(config.data);
  checkpoint_close(&source);
}

static void test_element_types(void **state) {
  (void)state;
  static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
  struct pair pair;
  struct visit *visits[3];
  int32_t accepted = 0;
  pair_write(&pair, "qwen3_biased", CONTEXT, 5);
  for (int k = 0; k < 3; k++) {
    char head[64];
    visits[k] = memory_alloc(VISITORS * sizeof *visits[k]);
    store_head(head, pair.head, dtypes[k]);
    run_pair(pair.target, head, 1, visits[k]);
    for (int32_t v = 0; v < VISITORS; v++) {
      visit_compare(&visits[k][v], &visits[0][v], true, "type", v);
      accepted += visits[k][v].stats.accepted;
    }
    remove_directory(head);
  }
  assert_true(accepted > 30);
  for (int k = 0; k < 3; k++) free(visits[k]);
  pair_remove(&pair);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_who_drafts), cmocka_unit_test(test_positions), cmocka_unit_test(test_attention_kinds),
                                     cmocka_unit_test(test_element_types)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
