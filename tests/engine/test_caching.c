/* test_caching.c - the prefix cache saves work and changes nothing: turns of a chat, shared beginnings, memory too small to remember
 * everything, requests that drafted nothing before ones that do. Texts and every round's acceptances are those without the cache (a head's
 * restored entries are as good as computed ones), and hits are counted (cases G31 and H07). */
#include "traffic.h"

#define CONTEXT 512
#define OUTPUT 60

struct bench {
  struct pair pair;
  struct visitor visitors[TRAFFIC_MAX];
  struct visit with[TRAFFIC_MAX], without[TRAFFIC_MAX];
};

struct arm {
  const char *name;
  enum eaglet_drafter drafter;
  int32_t width;
  float temperature;
};
static const struct arm arms[] = {{"plain", EAGLET_DRAFTER_NONE, 1, 0},        {"head, chains", EAGLET_DRAFTER_HEAD, 1, 0},
                                  {"head, trees", EAGLET_DRAFTER_HEAD, 3, 0},  {"head, chains, sampled", EAGLET_DRAFTER_HEAD, 1, 0.8f},
                                  {"itself", EAGLET_DRAFTER_MODEL, 1, 0},      {"n-grams", EAGLET_DRAFTER_NGRAM, 1, 0}};
#define N_ARMS (sizeof arms / sizeof *arms)

static int setup(void **state) {
  struct bench *b = memory_alloc(sizeof *b);
  pair_write(&b->pair, "qwen3_biased", CONTEXT, 5);
  *state = b;
  return 0;
}
static int teardown(void **state) {
  struct bench *b = *state;
  pair_remove(&b->pair);
  free(b);
  return 0;
}

static struct engine *open_arm(const struct bench *b, const struct arm *arm, int32_t sequences_max, bool cache) {
  struct engine *e;
  struct eaglet_error err;
  const struct eaglet_engine_params params = {
      .model = b->pair.target,
      .draft = arm->drafter == EAGLET_DRAFTER_HEAD ? b->pair.head : arm->drafter == EAGLET_DRAFTER_MODEL ? b->pair.target : NULL,
      .threads = 1,
      .drafter = arm->drafter,
      .sequences_max = sequences_max,
      .context_max = CONTEXT,
      .draft_len_max = 4,
      .draft_width_max = arm->width,
      .no_prefix_cache = !cache};
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

static void ask(struct visitor *v, const struct arm *arm, uint64_t seed) {
  v->params.output_max = OUTPUT;
  v->params.ignore_stop = true;
  v->params.temperature = arm->temperature;
  v->params.seed = seed;
}

/* ---- turns ---- */

/* Each turn asks with everything said so far and a few tokens more. */
static void run_turns(struct engine *e, const struct arm *arm, int32_t n_turns, struct visit *visits) {
  struct visitor v = {.arrives = 0};
  int32_t n = 0;
  for (int32_t turn = 0; turn < n_turns; turn++) {
    for (int32_t i = 0; i < 21; i++) v.prompt[n++] = random_below(12, (uint64_t)turn, (uint64_t)i, 96);
    v.params = (struct eaglet_sequence_params){.prompt = v.prompt, .n_prompt = n};
    ask(&v, arm, 7);
    traffic_run(e, 0, &v, 1, &visits[turn]);
    memcpy(v.prompt + n, visits[turn].tokens, sizeof(int32_t) * (size_t)visits[turn].n);
    n += visits[turn].n;
  }
}

static void test_turns(void **state) {
  struct bench *b = *state;
  enum { TURNS = 4 };
  for (size_t k = 0; k < N_ARMS; k++) {
    struct engine *e = open_arm(b, &arms[k], 1, true), *plain = open_arm(b, &arms[k], 1, false);
    run_turns(e, &arms[k], TURNS, b->with);
    run_turns(plain, &arms[k], TURNS, b->without);
    for (int32_t turn = 0; turn < TURNS; turn++) {
      int32_t known = turn * (21 + OUTPUT) - 1, cached = b->with[turn].stats.cached_tokens;
      visit_compare(&b->with[turn], &b->without[turn], true, arms[k].name, turn);
      assert_int_equal(b->without[turn].stats.cached_tokens, 0);
      /* all whole pages; for a head, which had no more to draft at the end, at most one less */
      assert_int_equal(cached % KV_PAGE_TOKENS, 0);
      assert_true(turn == 0 ? cached == 0 : cached <= known);
      assert_true(turn == 0 || cached > known - KV_PAGE_TOKENS - (arms[k].drafter == EAGLET_DRAFTER_HEAD ? KV_PAGE_TOKENS : 0));
    }
    engine_close(e);
    engine_close(plain);
  }
}

/* ---- many at once ---- */

/* Sixteen requests begin alike (a hundred tokens), each goes on in its own way. */
static void invite_kin(struct bench *b, const struct arm *arm, int32_t n, int32_t later) {
  for (int32_t i = 0; i < n; i++) {
    struct visitor *v = &b->visitors[i];
    memset(v, 0, sizeof *v);
    visitor_prompt(v, 100 + 1 + i, 96, 3, 0);
    for (int32_t t = 100; t < 101 + i; t++) v->prompt[t] = random_below(3, 1 + (uint64_t)i, (uint64_t)t, 96);
    ask(v, arm, (uint64_t)i);
    v->arrives = i == 0 ? 0 : later;
  }
}

static void test_shared_beginning(void **state) {
  struct bench *b = *state;
  enum { N = 16 };
  for (size_t k = 0; k < N_ARMS; k++) {
    struct engine *e = open_arm(b, &arms[k], N, true), *plain = open_arm(b, &arms[k], 1, false);
    invite_kin(b, &arms[k], N, 3);
    traffic_run(e, 0, b->visitors, N, b->with);
    traffic_run_alone(plain, b->visitors, N, b->without);
    for (int32_t i = 0; i < N; i++) {
      visit_compare(&b->with[i], &b->without[i], true, arms[k].name, i);
      assert_int_equal(b->with[i].stats.cached_tokens, i == 0 ? 0 : 96);
    }
    engine_close(e);
    engine_close(plain);
  }
}

/* All in the same step: nobody finds anything, but what they compute alike is kept once. */
static void test_together(void **state) {
  struct bench *b = *state;
  enum { N = 8 };
  struct engine *e = open_arm(b, &arms[1], N, true);
  struct sequence *live[N];
  struct eaglet_error err;
  int32_t n_live, n_held;
  invite_kin(b, &arms[1], N, 0);
  for (int32_t i = 0; i < N; i++) assert_ok(sequence_create(&live[i], e, &b->visitors[i].params, &err), &err);
  for (int32_t step = 0; step < 6; step++) assert_ok(engine_step(e, &n_live, &err), &err);
  n_held = e->kv.n_pages - kv_cache_available(&e->kv);
  for (int32_t i = 0; i < N; i++) {
    assert_true(live[i]->stats.output_tokens > 0);
    assert_memory_equal(live[i]->kv.table, live[0]->kv.table, 3 * sizeof(int32_t));
    assert_memory_equal(live[i]->draft_kv.table, live[0]->draft_kv.table, 3 * sizeof(int32_t));
    n_held -= live[i]->kv.n_pages - 3;
  }
  assert_int_equal(n_held, 3);
  books_check(e, &(const struct lodgers){0});
  for (int32_t i = 0; i < N; i++) sequence_free(live[i]);
  books_closed(e);
  engine_close(e);
}

/* ---- forgetting ---- */

/* Twenty texts through a memory of two: the newest is remembered, the oldest is not, and nobody notices but by time. */
static void test_pressure(void **state) {
  struct bench *b = *state;
  enum { N = 22 };
  struct engine *e = open_arm(b, &arms[1], 1, true), *plain = open_arm(b, &arms[1], 1, false);
  for (int32_t i = 0; i < N; i++) {
    struct visitor *v = &b->visitors[i];
    memset(v, 0, sizeof *v);
    visitor_prompt(v, 150, 96, 4, i == 20 ? 19 : i == 21 ? 0 : (uint64_t)i); /* the last but one again, then the first again */
    ask(v, &arms[1], 0);
  }
  traffic_run_alone(e, b->visitors, N, b->with);
  traffic_run_alone(plain, b->visitors, N, b->without);
  for (int32_t i = 0; i < N; i++) {
    visit_compare(&b->with[i], &b->without[i], true, "pressure", i);
    assert_int_equal(b->with[i].stats.cached_tokens, i == 20 ? 128 : 0);
  }
  engine_close(e);
  engine_close(plain);
}

/* A request without drafts leaves nothing for the head; one with drafts after it starts anew, and the next one finds all. Prompt logprobs
 * need every row. */
static void test_mixed_kinds(void **state) {
  struct bench *b = *state;
  static const int32_t cached[] = {0, 0, 128, 128, 0, 128};
  enum { N = 6 };
  struct engine *e = open_arm(b, &arms[1], 1, true), *plain = open_arm(b, &arms[1], 1, false);
  for (int32_t i = 0; i < N; i++) {
    struct visitor *v = &b->visitors[i];
    memset(v, 0, sizeof *v);
    visitor_prompt(v, 150, 96, 5, 0);
    ask(v, &arms[1], 0);
    v->params.draft_len = i == 0 || i == 3 ? -1 : 0;
    v->params.n_prompt_logprobs = i == 4 ? 1 : 0;
  }
  traffic_run_alone(e, b->visitors, N, b->with);
  traffic_run_alone(plain, b->visitors, N, b->without);
  for (int32_t i = 0; i < N; i++) {
    visit_compare(&b->with[i], &b->without[i], true, "kinds", i);
    assert_int_equal(b->with[i].stats.cached_tokens, cached[i]);
  }
  engine_close(e);
  engine_close(plain);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_turns), cmocka_unit_test(test_shared_beginning), cmocka_unit_test(test_together),
                                     cmocka_unit_test(test_pressure), cmocka_unit_test(test_mixed_kinds)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
