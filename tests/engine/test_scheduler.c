/* test_scheduler.c - nobody's text, rounds or probabilities depend on who else is there: mixed arrivals, chunks, tight memory, preemption,
 * cancelling and the prefix cache against solo runs, with the books of the memory checked after every step; and nobody waits for ever.
 * Cases G08 (prompts of 1 to 300 tokens), G21, G23 (a batch that shrinks), G31 (the head's place against the target's). */
#include "traffic.h"

#define CONTEXT 512
#define PAGES_FEW 17 /* the longest visitor's, and little more */
#define CROWD (TEST_STRIDE > 1 ? 24 : 64)

struct bench {
  struct pair pair;
  struct visitor visitors[TRAFFIC_MAX];
  struct visit alone[TRAFFIC_MAX], visits[TRAFFIC_MAX];
};

static struct engine *open_engine(const struct pair *pair, struct eaglet_engine_params params) {
  struct engine *e;
  struct eaglet_error err;
  params.model = pair->target;
  if (params.drafter == EAGLET_DRAFTER_AUTO) params.draft = pair->head;
  params.threads = 1;
  params.context_max = CONTEXT;
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

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

/* Visitor i of a crowd: prompts of all lengths and page borders, every other one with something special. */
static void invite(struct visitor *v, int32_t i, int32_t n_vocab, uint64_t seed, bool sampled) {
  static const int32_t lengths[] = {1, 300, 2, 31, 32, 33, 64, 65, 96, 97, 128, 160};
  static const int32_t stops[] = {3, 40, 77};
  uint64_t stream = (uint64_t)i;
  int32_t n = i % 2 ? 1 + random_below(seed, stream, 1, 40) : lengths[i / 2 % 12];
  memset(v, 0, sizeof *v);
  visitor_prompt(v, n, n_vocab, seed, 1000 + stream);
  v->params.output_max = 1 + random_below(seed, stream, 2, i % 2 ? VISIT_OUTPUT_MAX - 1 : 50);
  v->params.ignore_stop = true;
  v->params.seed = seed + stream;
  v->arrives = random_below(seed, stream, 3, 25);
  if (i % 7 == 3) v->params.draft_len = -1;
  if (i % 7 == 5) v->params.draft_len = 2;
  if (i % 5 == 1) v->params.n_logprobs = VISIT_LOGPROBS;
  if (i % 11 == 4) v->params.n_prompt_logprobs = -1;
  if (i % 6 == 2) v->params.repetition_penalty = 1.3f;
  if (i % 9 == 4) v->params.stop_ids = stops, v->params.n_stop_ids = 3, v->params.output_min = 5;
  if (sampled && i % 2) v->params.temperature = 0.8f, v->params.top_p = 0.9f;
}

static void invite_all(struct bench *b, int32_t n, uint64_t seed, bool sampled) {
  for (int32_t i = 0; i < n; i++) invite(&b->visitors[i], i, 96, seed, sampled);
}

static void run_alone(struct bench *b, int32_t n, struct eaglet_engine_params shape) {
  shape.sequences_max = 1;
  shape.rows_max = 0;
  shape.kv_memory_mib = 0;
  shape.no_prefix_cache = true;
  struct engine *e = open_engine(&b->pair, shape);
  traffic_run_alone(e, b->visitors, n, b->alone);
  engine_close(e);
}

/* ---- crowds ---- */

struct crowd {
  const char *name;
  struct eaglet_engine_params shape;
  int32_t pages; /* that everybody shares; 0: enough */
  bool same_rounds; /* rows_max never makes drafts shorter */
  int32_t preemptions_min;
};

static void check_crowd(struct bench *b, const struct crowd *crowd, int32_t n) {
  struct engine *e = open_engine(&b->pair, crowd->shape);
  struct eaglet_engine_stats stats;
  int64_t accepted = 0, drafted = 0;
  int32_t n_kept = 0, steps_max = 0, steps = traffic_run(e, crowd->pages, b->visitors, n, b->visits);
  for (int32_t i = 0; i < n; i++) {
    visit_compare(&b->visits[i], &b->alone[i], crowd->same_rounds, crowd->name, i);

    accepted += b->visits[i].stats.accepted;
    drafted += b->visits[i].stats.drafted;
    n_kept += b->visits[i].n_kept;
    steps_max += 2 * (b->alone[i].last_step + 1) + (b->visitors[i].params.n_prompt + b->visits[i].n) / 4;
  }
  engine_stats(e, &stats);
  printf("%s: %d pages, %d steps, %lld of %lld drafts stand, %lld preemptions, %lld tokens cached\n", crowd->name, stats.kv_pages, steps, (long long)accepted,
         (long long)drafted, (long long)stats.preemptions, (long long)stats.cached_tokens);
  assert_true(stats.preemptions >= crowd->preemptions_min / TEST_STRIDE);
  assert_true(crowd->preemptions_min == 0 || crowd->shape.adaptive || n_kept > 0);
  assert_true(steps <= steps_max); /* nobody is pushed out for ever */
  assert_true(crowd->shape.adaptive || (accepted > 0 && accepted < drafted));
  engine_close(e);
}

static const struct crowd chains[] = {
    {"one place", {.sequences_max = 1, .draft_len_max = 4}, PAGES_FEW, true, 0},
    {"three places", {.sequences_max = 3, .draft_len_max = 4, .rows_max = 24, .no_prefix_cache = true}, 0, true, 0},
    {"sixteen places, little memory", {.sequences_max = 16, .draft_len_max = 4, .rows_max = 96}, PAGES_FEW, true, 10},
    {"the same, no prefix cache",
     {.sequences_max = 16, .draft_len_max = 4, .rows_max = 96, .no_prefix_cache = true}, PAGES_FEW, true, 10},
    {"sixty-four places, one MiB", {.sequences_max = 64, .draft_len_max = 4, .rows_max = 512, .kv_memory_mib = 1}, 0, true, 0},
    {"sixteen places, adaptive", {.sequences_max = 16, .draft_len_max = 4, .rows_max = 96, .adaptive = true}, PAGES_FEW, false, 10},
    {"sixteen places, sixteen rows", {.sequences_max = 16, .draft_len_max = 4, .rows_max = 16}, PAGES_FEW, false, 0},
};

static void test_chains(void **state) {
  struct bench *b = *state;
  invite_all(b, CROWD, 1, false);
  run_alone(b, CROWD, (struct eaglet_engine_params){.draft_len_max = 4});
  for (size_t k = 0; k < sizeof chains / sizeof *chains; k++) check_crowd(b, &chains[k], CROWD);
}

static void test_trees(void **state) {
  struct bench *b = *state;
  static const struct crowd crowds[] = {
      {"trees, little memory",
       {.sequences_max = 16, .draft_len_max = 4, .draft_width_max = 3, .draft_tokens_max = 9, .rows_max = 192}, PAGES_FEW, true, 10},
      {"trees, adaptive",
       {.sequences_max = 16, .draft_len_max = 4, .draft_width_max = 3, .draft_tokens_max = 9, .rows_max = 192, .adaptive = true},
       PAGES_FEW, false, 1},
      {"trees, forty rows",
       {.sequences_max = 8, .draft_len_max = 4, .draft_width_max = 3, .draft_tokens_max = 9, .rows_max = 40}, PAGES_FEW, false, 0},
  };
  invite_all(b, CROWD, 2, false);
  run_alone(b, CROWD, crowds[0].shape);
  for (size_t k = 0; k < sizeof crowds / sizeof *crowds; k++) check_crowd(b, &crowds[k], CROWD);
}

/* Drawn drafts and tokens, and the drafts that a preempted sequence keeps, by seed and place. (How many drafts an adaptive engine makes is
 * a matter of time, and with drawn drafts what is said depends on it.) */
static void test_sampled(void **state) {
  struct bench *b = *state;
  invite_all(b, CROWD, 3, true);
  run_alone(b, CROWD, (struct eaglet_engine_params){.draft_len_max = 4});
  for (size_t k = 0; k < sizeof chains / sizeof *chains; k++) {
    if (!chains[k].shape.adaptive) check_crowd(b, &chains[k], CROWD);
  }
}

/* Some leave before they begin, some while they read, some while they speak or wait again; the others do not notice. */
static void test_cancelling(void **state) {
  struct bench *b = *state;
  int32_t n_cut = 0, n_silent = 0;
  invite_all(b, CROWD, 4, true);
  run_alone(b, CROWD, (struct eaglet_engine_params){.draft_len_max = 4});
  for (int32_t i = 0; i < CROWD; i++) {
    if (i % 3) b->visitors[i].leaves = b->visitors[i].arrives + 1 + random_below(4, 77, (uint64_t)i, 40);
  }
  for (size_t k = 2; k < 4; k++) {
    check_crowd(b, &chains[k], CROWD);
    for (int32_t i = 0; i < CROWD; i++) {
      n_cut += b->visits[i].stop == EAGLET_STOP_CANCELLED;
      n_silent += b->visits[i].stop == EAGLET_STOP_CANCELLED && b->visits[i].n == 0;
    }
  }
  assert_true(n_silent > 0 && n_cut > n_silent + CROWD / 8);
}

/* ---- drafts by chance ---- */

/* A drafter whose wishes are shortened, narrowed and dropped at random, so that what is committed meanwhile must be caught up with later in
 * all portions. */
struct fickle {
  struct drafter base; /* as the real one, but for what is forwarded */
  struct drafter *real;
  uint64_t counter;
  int64_t n_dropped;
};

static enum eaglet_status fickle_propose(struct drafter *drafter, struct draft_request *requests, int32_t n, const struct forward_run *target,
                                         struct eaglet_error *err) {
  struct fickle *f = (struct fickle *)drafter;
  for (int32_t i = 0; i < n; i++) {
    struct draft_request *r = &requests[i];
    bool lull = r->n_tokens / 40 % 2; /* long enough for what waits to be too much */
    r->sleeps = lull && r->n_tokens / 80 % 2;
    if (r->n_levels == 0) continue;
    if (random_below(3, 1, f->counter++, 4) == 0) r->expand_min = -1;
    r->n_levels = 1 + random_below(3, 1, f->counter++, r->n_levels);
    r->width = 1 + random_below(3, 1, f->counter++, r->width);
    r->n_max = 1 + random_below(3, 1, f->counter++, r->n_max);
    if (!lull && random_below(3, 1, f->counter++, 3) > 0) continue;
    r->n_levels = 0;
    f->n_dropped++;
  }
  return f->real->propose(f->real, requests, n, target, err);
}
static struct drafter_memory *fickle_remember(struct drafter *drafter) {
  struct fickle *f = (struct fickle *)drafter;
  return f->real->remember(f->real);
}
static void fickle_forget(struct drafter *drafter, struct drafter_memory *memory) {
  struct fickle *f = (struct fickle *)drafter;
  f->real->forget(f->real, memory);
}

static void test_fickle(void **state) {
  struct bench *b = *state;
  static const struct eaglet_engine_params shapes[] = {
      {.sequences_max = 16, .draft_len_max = 4, .rows_max = 96},
      {.sequences_max = 6, .draft_len_max = 5, .rows_max = 24, .no_prefix_cache = true},
      {.sequences_max = 16, .draft_len_max = 4, .draft_width_max = 3, .draft_tokens_max = 9, .rows_max = 192}};
  invite_all(b, CROWD, 1, false);
  run_alone(b, CROWD, shapes[0]);
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    struct engine *e = open_engine(&b->pair, shapes[k]);
    struct fickle f = {.base = *e->drafter, .real = e->drafter};
    int64_t accepted = 0;
    f.base.propose = fickle_propose;
    f.base.remember = fickle_remember;
    f.base.forget = fickle_forget;
    e->drafter = &f.base;
    traffic_run(e, 2 * PAGES_FEW, b->visitors, CROWD, b->visits);
    e->drafter = f.real;
    for (int32_t i = 0; i < CROWD; i++) {
      visit_compare(&b->visits[i], &b->alone[i], false, "fickle", i);
      accepted += b->visits[i].stats.accepted;
    }
    printf("fickle: %lld drafts stand, %lld rounds dropped\n", (long long)accepted, (long long)f.n_dropped);
    assert_true(accepted > 20 && f.n_dropped > 100);
    engine_close(e);
  }
}

/* ---- fairness ---- */

/* Somebody with a short question behind `n_before` others: how many steps until the first token. */
static int32_t steps_to_answer(struct bench *b, struct eaglet_engine_params shape, int32_t n_before, int32_t prompt_before, int32_t short_prompt) {
  struct engine *e = open_engine(&b->pair, shape);
  memset(b->visitors, 0, sizeof b->visitors);
  for (int32_t i = 0; i <= n_before; i++) {
    struct visitor *v = &b->visitors[i];
    visitor_prompt(v, i < n_before ? prompt_before : short_prompt, 96, 9, (uint64_t)i);
    v->params.output_max = i < n_before ? VISIT_OUTPUT_MAX : 3;
    v->params.ignore_stop = true;
    v->arrives = i < n_before ? 0 : 12;
  }
  traffic_run(e, 0, b->visitors, n_before + 1, b->visits);
  engine_close(e);
  return b->visits[n_before].first_step - 12;
}

static void test_fairness(void **state) {
  struct bench *b = *state;
  /* behind prompts that take dozens of steps: an equal share of the rows */
  assert_in_range(steps_to_answer(b, (struct eaglet_engine_params){.sequences_max = 2, .rows_max = 16, .draft_len_max = 4}, 1, 390, 6), 0, 1);
  assert_in_range(steps_to_answer(b, (struct eaglet_engine_params){.sequences_max = 4, .rows_max = 16, .draft_len_max = 4}, 3, 390, 6), 0, 3);
  /* behind rounds that could use every row of every step */
  assert_in_range(steps_to_answer(b, (struct eaglet_engine_params){.sequences_max = 2, .rows_max = 8, .draft_len_max = 7}, 1, 5, 30), 0, 20);
  assert_in_range(steps_to_answer(b, (struct eaglet_engine_params){.sequences_max = 4, .rows_max = 16, .draft_len_max = 7}, 3, 5, 30), 0, 20);
  assert_in_range(
      steps_to_answer(b, (struct eaglet_engine_params){.sequences_max = 16, .rows_max = 16, .draft_len_max = 7}, 15, 5, 30), 0, 40);
}

/* ---- time ---- */

/* A text that is over takes no more time, whoever goes on; nor does one that was cancelled. */
static void test_time(void **state) {
  struct bench *b = *state;
  struct engine *e = open_engine(&b->pair, (struct eaglet_engine_params){.sequences_max = 3, .draft_len_max = 4});
  struct sequence *s[3];
  struct eaglet_error err;
  struct eaglet_sequence_stats then[3];
  int32_t prompt[] = {5, 6, 7}, n_live;
  for (int32_t i = 0; i < 3; i++) {
    const struct eaglet_sequence_params params = {.prompt = prompt, .n_prompt = 3, .output_max = i == 0 ? 3 : 60, .ignore_stop = true};
    assert_ok(sequence_create(&s[i], e, &params, &err), &err);
  }
  do assert_ok(engine_step(e, &n_live, &err), &err);
  while (sequence_stop(s[0]) == EAGLET_STOP_NONE);
  sequence_cancel(s[1]);
  for (int32_t i = 0; i < 3; i++) then[i] = *sequence_stats(s[i]);
  do assert_ok(engine_step(e, &n_live, &err), &err);
  while (n_live > 0);
  for (int32_t i = 0; i < 3; i++) {
    const struct eaglet_sequence_stats *now = sequence_stats(s[i]);
    assert_true(now->prefill_s > 0 && now->prefill_s == then[i].prefill_s);
    if (i < 2)
      assert_true(now->decode_s == then[i].decode_s);
    else
      assert_true(now->decode_s > then[i].decode_s);
  }
  engine_close(e);
}

/* ---- the context's end ---- */

/* Contexts filled to the last token, with page borders just before, at and behind it, while memory is tight. */
static void test_brim(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  for (int32_t context = 94; context <= 98; context++) {
    struct engine *e;
    struct eaglet_engine_params params = {.model = b->pair.target, .draft = b->pair.head, .threads = 1, .context_max = context,
                                          .sequences_max = 5, .draft_len_max = 5, .draft_width_max = context % 2 ? 1 : 3};
    memset(b->visitors, 0, sizeof b->visitors);
    for (int32_t i = 0; i < 16; i++) {
      visitor_prompt(&b->visitors[i], i < 8 ? context - 1 - i : 60 + i, 96, 6, (uint64_t)i);
      b->visitors[i].params.output_max = VISIT_OUTPUT_MAX;
      b->visitors[i].params.ignore_stop = true;
      b->visitors[i].arrives = i;
    }
    assert_ok(engine_open(&e, &params, &err), &err);
    traffic_run(e, 5, b->visitors, 16, b->visits);
    for (int32_t i = 0; i < 16; i++) b->visitors[i].params.draft_len = -1;
    traffic_run_alone(e, b->visitors, 16, b->alone);
    for (int32_t i = 0; i < 16; i++) {
      visit_compare(&b->visits[i], &b->alone[i], false, "brim", i);
      assert_int_equal(b->visits[i].stop, EAGLET_STOP_CONTEXT);
      assert_int_equal(b->visits[i].n, context - b->visitors[i].params.n_prompt);
    }
    engine_close(e);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains),     cmocka_unit_test(test_trees),
                                     cmocka_unit_test(test_sampled),    cmocka_unit_test(test_cancelling), cmocka_unit_test(test_fickle),
                                     cmocka_unit_test(test_fairness),   cmocka_unit_test(test_time),
                                     cmocka_unit_test(test_brim)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
