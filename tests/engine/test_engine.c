/* test_engine.c - the speculative round against the oracle: greedy outputs of 40 prompts, the drafts and acceptances of
 * the reference loop, and the law that nothing but speed depends on draft length, threads, batching or chunking. */
#include "engine_fixture.h"

struct bench {
  char *model;
  char draft[64];
  struct prompt prompts[PROMPTS];
  struct run_result results[PROMPTS], alone[16];
};

static int setup(void **state) {
  struct bench *b = memory_alloc(sizeof *b);
  b->model = shared_path("own/nano-kimi");
  if (!b->model || !prompts_load(b->prompts) || !baseline_directory(b->draft, NULL)) {
    free(b->model);
    free(b);
    b = NULL;
  }
  *state = b;
  return 0;
}

static int teardown(void **state) {
  struct bench *b = *state;
  if (!b) return 0;
  remove_directory(b->draft);
  prompts_free(b->prompts);
  free(b->model);
  free(b);
  return 0;
}

static struct engine *open_engine(const struct bench *b, struct eaglet_engine_params params, bool with_draft) {
  struct engine *e;
  struct eaglet_error err;
  params.model = b->model;
  params.draft = with_draft ? b->draft : NULL;
  params.precision = EAGLET_PRECISION_EXACT;
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

static void assert_oracle(const struct bench *b, int32_t n, const char *what) {
  for (int32_t i = 0; i < n; i++) {
    assert_same_tokens(b->results[i].tokens, b->results[i].n, b->prompts[i].expected, b->prompts[i].n_expected, what,
                       i);
    assert_int_equal(b->results[i].stats.output_tokens, b->results[i].n);
    assert_int_equal(b->results[i].stats.prompt_tokens, b->prompts[i].n);
  }
}

static const struct eaglet_sequence_params greedy = {.output_max = 96};

static void test_plain_threads(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  for (int32_t threads = 1; threads <= 2; threads++) {
    struct engine *e = open_engine(b, (struct eaglet_engine_params){.threads = threads, .sequences_max = 8}, false);
    run_prompts(e, b->prompts, PROMPTS, threads == 1 ? 1 : 8, &greedy, b->results);
    assert_oracle(b, PROMPTS, threads == 1 ? "plain, 1 thread" : "plain, 2 threads");
    for (int32_t i = 0; i < PROMPTS; i++) {
      assert_int_equal(b->results[i].stats.drafted, 0);
      for (int32_t t = 0; t < b->results[i].n; t++) assert_false(b->results[i].drafted[t]);
    }
    engine_close(e);
  }
}

static void test_draft_lengths(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  struct engine *e =
      open_engine(b, (struct eaglet_engine_params){.threads = 1, .draft_len_max = 8, .sequences_max = 8}, true);
  for (int32_t k = 1; k <= 8; k += k > 2 ? 5 : 1) { /* seven is in test_reference_rounds */
    char what[32];
    struct eaglet_sequence_params params = greedy;
    params.draft_len = k;
    int32_t rounds = 0, output = 0;
    run_prompts(e, b->prompts, PROMPTS, 8, &params, b->results);
    snprintf(what, sizeof what, "draft length %d", k);
    assert_oracle(b, PROMPTS, what);
    for (int32_t i = 0; i < PROMPTS; i++) {
      rounds += b->results[i].stats.rounds;
      output += b->results[i].n;
    }
    printf("%s: %.3f tokens a round\n", what, (double)(output - PROMPTS) / rounds);
    assert_true((double)(output - PROMPTS) / rounds > 1.3);
  }
  engine_close(e);
}

/* The reference loop's acceptances in every round, and its first drafts. Those were made over the text (a wrong draft
 * is not fed on), so ours are the same up to the first wrong one; test_drafting.c compares the rest. */
static void test_reference_rounds(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  json_t *document;
  char *path = shared_path("own/oracle/nano_kimi_drafting.json");
  if (!b || !path) skip();
  assert_ok(json_parse_file(&document, path, &err), &err);
  struct engine *e = open_engine(b, (struct eaglet_engine_params){.threads = 1, .sequences_max = 8}, true);
  run_prompts(e, b->prompts, PROMPTS, 8, &greedy, b->results);
  assert_oracle(b, PROMPTS, "rounds");
  for (int32_t i = 0; i < PROMPTS; i++) {
    const struct run_result *r = &b->results[i];
    const json_t *row = json_array_get(json_object_get(document, "rows"), (size_t)i);
    int32_t n_accepted, n_first;
    int32_t *accepted = json_ids(json_object_get(row, "accepted"), &n_accepted),
            *first = json_ids(json_object_get(row, "first_drafts"), &n_first);
    int32_t n_right = accepted[0] + 1 < n_first ? accepted[0] + 1 : n_first;
    if (json_real_value(json_object_get(row, "smallest_first_gap")) < 1e-3)
      printf("prompt %d: a tie may flip a first draft\n", i);
    assert_same_tokens(r->first_drafts, n_right, first, n_right, "first drafts", i);
    if (r->n == greedy.output_max) { /* our last round drafts only what may still be output */
      assert_int_equal(r->n_rounds, n_accepted);
      n_accepted--;
      assert_true(r->accepted[n_accepted] <= accepted[n_accepted]);
    }
    assert_same_tokens(r->accepted, n_accepted, accepted, n_accepted, "accepted", i);
    assert_true(r->n == greedy.output_max || r->n_rounds == n_accepted);
    free(accepted);
    free(first);
  }
  json_decref(document);
  free(path);
  engine_close(e);
}

/* Alone, eight at once, and with prompts cut into chunks of 16 rows: the same, round by round. */
static void test_batching(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  const struct eaglet_engine_params shapes[] = {{.threads = 1, .sequences_max = 1},
                                                {.threads = 2, .sequences_max = 8, .rows_max = 64},
                                                {.threads = 1, .sequences_max = 1, .rows_max = 16},
                                                {.threads = 1, .sequences_max = 3, .rows_max = 24}};
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    struct engine *e = open_engine(b, shapes[k], true);
    run_prompts(e, b->prompts, 16, shapes[k].sequences_max, &greedy, b->results);
    assert_oracle(b, 16, "batching");
    if (k == 0) memcpy(b->alone, b->results, sizeof b->alone);
    for (int32_t i = 0; i < 16; i++) {
      assert_same_tokens(b->results[i].accepted, b->results[i].n_rounds, b->alone[i].accepted, b->alone[i].n_rounds,
                         "accepted when batched", i);
      assert_same_tokens(b->results[i].first_drafts, b->results[i].n_first, b->alone[i].first_drafts,
                         b->alone[i].n_first, "first drafts when batched", i);
    }
    engine_close(e);
  }
}

/* Every sequence with a draft length of its own, plain ones among them. */
static void test_mixed_lengths(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  struct engine *e = open_engine(b, (struct eaglet_engine_params){.threads = 1, .sequences_max = 6}, true);
  struct eaglet_error err;
  struct sequence *live[6];
  int32_t n_live = 1;
  for (int32_t i = 0; i < 6; i++) {
    const struct eaglet_sequence_params params = {
        .prompt = b->prompts[i].ids, .n_prompt = b->prompts[i].n, .output_max = 96, .draft_len = i == 0 ? -1 : i};
    assert_ok(sequence_create(&live[i], e, &params, &err), &err);
  }
  while (n_live > 0) assert_ok(engine_step(e, &n_live, &err), &err);
  for (int32_t i = 0; i < 6; i++) {
    result_take(&b->results[i], live[i]);
    assert_true((b->results[i].stats.drafted == 0) == (i == 0));
    sequence_free(live[i]);
  }
  assert_oracle(b, 6, "mixed lengths");
  engine_close(e);
}

/* EAGLE-2's dynamic tree after every prompt: tokens, parents and depths of the authors' modules (whose node 0 is the token before). */
static void test_reference_trees(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  json_t *document;
  char *path = shared_path("own/oracle/nano_kimi_drafting.json");
  if (!b || !path) skip();
  assert_ok(json_parse_file(&document, path, &err), &err);
  const struct eaglet_engine_params shape = {
      .threads = 1, .sequences_max = 8, .draft_len_max = 6, .draft_width_max = 8, .draft_tokens_max = 23};
  struct engine *e = open_engine(b, shape, true);
  for (int32_t i = 0; i < PROMPTS; i++) {
    const json_t *tree = json_object_get(json_array_get(json_object_get(document, "rows"), (size_t)i), "tree");
    int32_t n_live, n[3];
    int32_t *tokens = json_ids(json_object_get(tree, "tokens"), &n[0]), *parents = json_ids(json_object_get(tree, "parents"), &n[1]),
            *depths = json_ids(json_object_get(tree, "depths"), &n[2]);
    const struct eaglet_sequence_params params = {.prompt = b->prompts[i].ids, .n_prompt = b->prompts[i].n, .output_max = 96};
    struct sequence *s;
    assert_ok(sequence_create(&s, e, &params, &err), &err);
    assert_ok(engine_step(e, &n_live, &err), &err);
    assert_int_equal(s->proposal.n, n[0] - 1);
    assert_int_equal(s->tokens[s->n_tokens - 1], tokens[0]);
    for (int32_t k = 0; k < s->proposal.n; k++) {
      parents[k + 1]--;
      depths[k + 1]--;
    }
    assert_same_tokens(s->proposal.tokens, s->proposal.n, tokens + 1, n[0] - 1, "tree tokens", i);
    assert_same_tokens(s->proposal.parents, s->proposal.n, parents + 1, n[0] - 1, "tree parents", i);
    assert_same_tokens(s->proposal.depths, s->proposal.n, depths + 1, n[0] - 1, "tree depths", i);
    sequence_free(s);
    free(tokens);
    free(parents);
    free(depths);
  }
  json_decref(document);
  free(path);
  engine_close(e);
}

/* Trees of all sizes keep the text, and at an equal budget accept no less than chains. */
static void test_trees(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  static const struct {
    int32_t levels, width, tokens, prompts;
  } shapes[] = {{7, 1, 7, PROMPTS},   {7, 2, 7, PROMPTS}, {7, 4, 7, PROMPTS}, {5, 10, 24, PROMPTS / 4},
                {1, 3, 3, PROMPTS / 4}, {2, 8, 60, 4},    {15, 2, 30, 4}};
  double chain = 0;
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    const struct eaglet_engine_params shape = {.threads = 1,
                                               .sequences_max = 5,
                                               .rows_max = 128,
                                               .draft_len_max = shapes[k].levels,
                                               .draft_width_max = shapes[k].width,
                                               .draft_tokens_max = shapes[k].tokens};
    struct engine *e = open_engine(b, shape, true);
    int32_t rounds = 0, output = 0, n = shapes[k].prompts;
    run_prompts(e, b->prompts, n, 5, &greedy, b->results);
    assert_oracle(b, n, "trees");
    for (int32_t i = 0; i < n; i++) {
      const struct eaglet_sequence_stats *stats = &b->results[i].stats;
      rounds += stats->rounds;
      output += b->results[i].n;
      assert_int_equal(stats->output_tokens, 1 + stats->accepted + stats->rounds - stats->rounds_cut);
    }
    double length = (double)(output - n) / rounds;
    printf("%d levels, width %d, %d tokens: %.3f tokens a round\n", shapes[k].levels, shapes[k].width, shapes[k].tokens, length);
    if (shapes[k].width == 1) chain = length;
    if (shapes[k].levels == 7) assert_true(length >= chain);
    engine_close(e);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain_threads),    cmocka_unit_test(test_draft_lengths),
      cmocka_unit_test(test_reference_rounds), cmocka_unit_test(test_batching),
      cmocka_unit_test(test_mixed_lengths),    cmocka_unit_test(test_reference_trees),
      cmocka_unit_test(test_trees),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
