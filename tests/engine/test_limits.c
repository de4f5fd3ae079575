/* test_limits.c - where sequences end and what they leave behind: stop tokens inside a block, exact caps, the context's
 * end, cancelling, short prompts, the head's KV after rounds, refusals, and the promise that steps do not allocate. */
#include "allocation_count.h"
#include "engine_fixture.h"

#include <malloc.h>
#include <math.h>

struct bench {
  char *model;
  char draft[64];
  struct prompt prompts[PROMPTS];
  struct run_result results[PROMPTS];
  struct engine *engine; /* with the head, 4 places, context 256 */
};

static struct engine *open_engine(const struct bench *b, struct eaglet_engine_params params, bool with_draft) {
  struct engine *e;
  struct eaglet_error err;
  params.model = b->model;
  params.draft = with_draft ? b->draft : NULL;
  params.precision = EAGLET_PRECISION_EXACT;
  params.threads = 1;
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

static int setup(void **state) {
  struct bench *b = memory_alloc(sizeof *b);
  *state = NULL;
  b->model = shared_path("own/nano-kimi");
  if (!b->model || !prompts_load(b->prompts) || !baseline_directory(b->draft, NULL)) return 0;
  b->engine = open_engine(b, (struct eaglet_engine_params){.sequences_max = 4, .context_max = 256}, true);
  *state = b;
  return 0;
}

static int teardown(void **state) {
  struct bench *b = *state;
  if (!b) return 0;
  engine_close(b->engine);
  remove_directory(b->draft);
  prompts_free(b->prompts);
  free(b->model);
  free(b);
  return 0;
}

static void run_one(struct bench *b, int32_t prompt, const struct eaglet_sequence_params *params,
                    struct run_result *result) {
  run_prompts(b->engine, &b->prompts[prompt], 1, 1, params, result);
}

/* G03, G04: any token of the output declared a stop token ends it there, at its first place, whatever the block; a cap
 * below comes first. */
static void test_stop_inside_block(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  struct model *model = b->engine->model;
  int32_t saved[16], n_saved = model->n_stop_ids, inside = 0;
  memcpy(saved, model->stop_ids, sizeof saved);
  const struct prompt *p = &b->prompts[5]; /* blocks of 5, 8 and 7 tokens */
  for (int32_t at = 0; at < p->n_expected; at++) {
    int32_t first = 0;
    while (p->expected[first] != p->expected[at]) first++;
    if (first != at) continue;
    model->stop_ids[0] = p->expected[at];
    model->n_stop_ids = 1;
    for (int32_t cap = at - 1; cap <= at + 3; cap++) {
      struct run_result *r = &b->results[0];
      if (cap < 1) continue;
      run_one(b, 5, &(struct eaglet_sequence_params){.output_max = cap}, r);
      int32_t n = at + 1 <= cap ? at + 1 : cap;
      assert_same_tokens(r->tokens, r->n, p->expected, n, "stop", at);
      assert_int_equal(r->stop, at + 1 <= cap ? EAGLET_STOP_TOKEN : EAGLET_STOP_LENGTH);
      int32_t drafted = 0;
      for (int32_t i = 0; i < r->n; i++) drafted += r->drafted[i];
      assert_int_equal(r->stats.output_tokens, n);
      assert_int_equal(r->stats.accepted, drafted); /* nothing behind the end is counted */
      inside += r->drafted[n - 1];
    }
  }
  assert_true(inside > 10);
  memcpy(model->stop_ids, saved, sizeof saved);
  model->n_stop_ids = n_saved;
}

/* Every cap is met exactly, and with ignore_stop the run goes on behind the stop token. */
static void test_caps(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  const struct prompt *p = &b->prompts[0]; /* 12 tokens, the last a stop token */
  for (int32_t cap = 1; cap <= 40; cap++) {
    struct run_result *with = &b->results[0], *without = &b->results[1];
    run_one(b, 0, &(struct eaglet_sequence_params){.output_max = cap, .ignore_stop = true}, with);
    run_one(b, 0, &(struct eaglet_sequence_params){.output_max = cap, .ignore_stop = true, .draft_len = -1}, without);
    assert_int_equal(with->n, cap);
    assert_int_equal(with->stop, EAGLET_STOP_LENGTH);
    assert_same_tokens(with->tokens, with->n, without->tokens, without->n, "cap", cap);
    assert_same_tokens(with->tokens, cap < 12 ? cap : 12, p->expected, cap < 12 ? cap : 12, "cap, oracle", cap);
    assert_int_equal(without->stats.drafted, 0);
  }
}

/* The context's last token is produced, never one more; the text is the same with and without drafts. */
static void test_context_end(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  const struct prompt *p = &b->prompts[10]; /* 24 + 54 tokens */
  for (int32_t context = p->n + 1; context <= p->n + 20; context++) {
    struct engine *e = open_engine(b, (struct eaglet_engine_params){.context_max = context, .rows_max = 32}, true);
    assert_int_equal(engine_context_max(e), context);
    for (int32_t draft_len = -1; draft_len <= 7; draft_len += 8) {
      run_prompts(e, p, 1, 1, &(struct eaglet_sequence_params){.output_max = 100, .draft_len = draft_len}, b->results);
      assert_int_equal(b->results[0].stop, EAGLET_STOP_CONTEXT);
      assert_same_tokens(b->results[0].tokens, b->results[0].n, p->expected, context - p->n, "context", context);
    }
    engine_close(e);
  }
}

/* G07: a head whose config ends at 64 positions drafts on behind them; the text is the plain one. */
static void test_short_draft_config(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  if (!b) skip();
  static const int32_t lengths[] = {60, 63, 64, 65, 200, 20};
  char directory[64],
      *config = memory_format("{%s, \"eagle_config\": {\"eaglet_states\": [2, 4, 5]}}", BASELINE_CONFIG),
      *limit = strstr(config, "embeddings\": 2048");
  memcpy(limit + strlen("embeddings\": "), "64  ", 4);
  char *weights = file_join(b->draft, "model.safetensors");
  temporary_directory(directory);
  write_text(directory, "config.json", config);
  copy_file(directory, "model.safetensors", weights);
  struct engine *e;
  const struct eaglet_engine_params params = {
      .model = b->model, .draft = directory, .threads = 1, .sequences_max = 3, .context_max = 256};
  assert_ok(engine_open(&e, &params, &err), &err);
  struct prompt prompts[6];
  int32_t ids[200];
  for (int32_t i = 0; i < 200; i++) ids[i] = b->prompts[i / 24].ids[i % 24];
  for (int i = 0; i < 6; i++) prompts[i] = (struct prompt){.ids = ids, .n = lengths[i]};
  run_prompts(e, prompts, 6, 3, &(struct eaglet_sequence_params){.output_max = 30, .ignore_stop = true}, b->results);
  run_prompts(b->engine, prompts, 6, 3,
              &(struct eaglet_sequence_params){.output_max = 30, .ignore_stop = true, .draft_len = -1}, b->results + 6);
  for (int i = 0; i < 6; i++) {
    assert_same_tokens(b->results[i].tokens, b->results[i].n, b->results[6 + i].tokens, 30, "short draft config", i);
    assert_true(b->results[i].stats.drafted > 0);
  }
  engine_close(e);
  const struct eaglet_engine_params longer = {.model = b->model, .context_max = 4097, .threads = 1};
  assert_refused(engine_open(&e, &longer, &err), EAGLET_E_USAGE, &err, "4097");
  remove_directory(directory);
  free(config);
  free(weights);
}

/* G10: the first token has no pair; prompts of 1, 2, 3 and 17 tokens work, alone and together, and drafts are made from
 * the start. */
static void test_short_prompts(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  static const int32_t lengths[] = {1, 2, 3, 17};
  struct prompt prompts[4];
  for (int i = 0; i < 4; i++) prompts[i] = (struct prompt){.ids = b->prompts[0].ids, .n = lengths[i]};
  run_prompts(b->engine, prompts, 4, 4, &(struct eaglet_sequence_params){.output_max = 40, .ignore_stop = true},
              b->results);
  run_prompts(b->engine, prompts, 4, 1,
              &(struct eaglet_sequence_params){.output_max = 40, .ignore_stop = true, .draft_len = -1}, b->results + 4);
  for (int i = 0; i < 4; i++) {
    assert_same_tokens(b->results[i].tokens, b->results[i].n, b->results[4 + i].tokens, 40, "short prompt", i);
    assert_int_equal(b->results[i].n_first, 7);
  }
}

static void read_entry(const struct engine *e, const struct kv_cache *cache, const struct kv_sequence *kv,
                       int32_t layer, int32_t slot, float *entry) {
  size_t floats = (size_t)cache->entry_floats;
  const float *page = cache->pools[layer] + (size_t)kv->table[slot / KV_PAGE_TOKENS] * KV_PAGE_TOKENS * floats;
  e->compute->download(e->compute, entry, page + (size_t)(slot % KV_PAGE_TOKENS) * floats, floats * sizeof(float));
}

/* Everything that a sequence's two caches hold. */
struct entries {
  float *floats;
  size_t n;
};
static struct entries entries_of(const struct engine *e, const struct sequence *s) {
  const struct kv_sequence *sequences[2] = {&s->kv, &s->draft_kv};
  struct entries entries = {0};
  for (int k = 0; k < 2; k++) {
    const struct kv_cache *cache = sequences[k]->cache;
    size_t floats = (size_t)cache->entry_floats, n = floats * (size_t)(cache->n_layers * sequences[k]->length);
    entries.floats = memory_resize(entries.floats, (entries.n + n) * sizeof(float));
    for (int32_t layer = 0; layer < cache->n_layers; layer++) {
      for (int32_t slot = 0; slot < sequences[k]->length; slot++) {
        read_entry(e, cache, sequences[k], layer, slot, entries.floats + entries.n);
        entries.n += floats;
      }
    }
  }
  assert_int_equal(s->kv.length, s->n_tokens - 1);
  assert_int_equal(s->draft_kv.length, s->n_tokens - 1);
  return entries;
}

/* G11: after many rounds both caches hold, bit for bit, what a fresh prefill of the final text holds. */
static void test_kv_after_rounds(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  if (!b) skip();
  struct engine *e = open_engine(b, (struct eaglet_engine_params){.no_prefix_cache = true, .context_max = 256}, true);
  struct sequence *rounds, *fresh;
  int32_t n_live;
  const struct eaglet_sequence_params params = {
      .prompt = b->prompts[10].ids, .n_prompt = b->prompts[10].n, .output_max = 200, .ignore_stop = true};
  assert_ok(sequence_create(&rounds, e, &params, &err), &err);
  while (rounds->n_tokens < 200) assert_ok(engine_step(e, &n_live, &err), &err);
  assert_true(rounds->stats.rounds > 10 && rounds->stats.accepted > 10);
  const struct eaglet_sequence_params again = {
      .prompt = rounds->tokens, .n_prompt = rounds->n_tokens - 1, .output_max = 40, .ignore_stop = true};
  struct entries before = entries_of(e, rounds), after;
  int32_t last = rounds->tokens[rounds->n_tokens - 1];
  assert_ok(sequence_create(&fresh, e, &again, &err), &err);
  sequence_free(rounds);
  while (fresh->stats.output_tokens == 0) assert_ok(engine_step(e, &n_live, &err), &err);
  assert_int_equal(fresh->tokens[fresh->n_tokens - 1], last);
  after = entries_of(e, fresh);
  assert_int_equal(before.n, after.n);
  assert_memory_equal(before.floats, after.floats, before.n * sizeof(float));
  free(before.floats);
  free(after.floats);
  sequence_free(fresh);
  engine_close(e);
}

/* Cancelled sequences stop at once, disturb nobody, and their places and pages come back. */
static void test_cancel(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  if (!b) skip();
  struct engine *e = b->engine;
  int32_t pages = kv_cache_available(&e->kv), head_pages = kv_cache_available(e->drafter->kv), n_live = 1;
  for (int round = 0; round < 5; round++) {
    struct sequence *live[4], *extra;
    for (int32_t i = 0; i < 4; i++) {
      const struct eaglet_sequence_params params = {
          .prompt = b->prompts[i].ids, .n_prompt = b->prompts[i].n, .output_max = 96};
      assert_ok(sequence_create(&live[i], e, &params, &err), &err);
    }
    const struct eaglet_sequence_params params = {.prompt = b->prompts[4].ids, .n_prompt = b->prompts[4].n};
    assert_ok(sequence_create(&extra, e, &params, &err), &err); /* all places are taken: it waits */
    for (int s = 0; s < round; s++) assert_ok(engine_step(e, &n_live, &err), &err);
    int32_t n = live[1]->n_tokens;
    assert_int_equal(extra->state, ROUND_WAITING);
    sequence_free(extra);
    sequence_cancel(live[1]);
    do assert_ok(engine_step(e, &n_live, &err), &err);
    while (n_live > 0);
    assert_int_equal(sequence_stop(live[1]), EAGLET_STOP_CANCELLED);
    assert_int_equal(live[1]->n_tokens, n);
    for (int32_t i = 0; i < 4; i++) {
      result_take(&b->results[i], live[i]);
      if (i != 1)
        assert_same_tokens(b->results[i].tokens, b->results[i].n, b->prompts[i].expected, b->prompts[i].n_expected,
                           "beside a cancelled one", i);
      sequence_cancel(live[i]); /* of a finished one: nothing happens */
      assert_int_equal(sequence_stop(live[i]), b->results[i].stop);
      sequence_free(live[i]);
    }
  }
  assert_int_equal(kv_cache_available(&e->kv), pages);
  assert_int_equal(kv_cache_available(e->drafter->kv), head_pages);
}

static void test_refusals(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  struct sequence *s;
  if (!b) skip();
  int32_t bad[3] = {5, 4096, 7}, *many = memory_alloc(sizeof(int32_t) * 256);
  const struct {
    struct eaglet_sequence_params params;
    enum eaglet_status status;
    const char *words;
  } cases[] = {
      {{.prompt = bad, .n_prompt = 0}, EAGLET_E_INPUT, "empty"},
      {{.prompt = bad, .n_prompt = 3}, EAGLET_E_INPUT, "4096"},
      {{.prompt = many, .n_prompt = 256}, EAGLET_E_INPUT, "256"},
      {{.prompt = many, .n_prompt = 3, .temperature = -1}, EAGLET_E_USAGE, "temperature"},
      {{.prompt = many, .n_prompt = 3, .temperature = (float)NAN}, EAGLET_E_USAGE, "temperature"},
      {{.prompt = many, .n_prompt = 3, .temperature = 1, .top_p = 1.5f}, EAGLET_E_USAGE, "top-p"},
      {{.prompt = many, .n_prompt = 3, .temperature = 1, .top_k = -2}, EAGLET_E_USAGE, "top-k"},
      {{.prompt = many, .n_prompt = 3, .draft_len = 8}, EAGLET_E_USAGE, "draft length 8"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_refused(sequence_create(&s, b->engine, &cases[i].params, &err), cases[i].status, &err, cases[i].words);
    assert_null(s);
  }
  struct engine *e;
  const struct eaglet_engine_params long_drafts = {.model = b->model, .draft = b->draft, .draft_len_max = 16},
                                    nowhere = {.model = "/nowhere"},
                                    no_draft = {.model = b->model, .draft = "/nowhere"};
  assert_refused(engine_open(&e, &long_drafts, &err), EAGLET_E_USAGE, &err, "draft length 16");
  assert_null(e);
  assert_refused(engine_open(&e, &nowhere, &err), EAGLET_E_INPUT, &err, "/nowhere");
  assert_refused(engine_open(&e, &no_draft, &err), EAGLET_E_INPUT, &err, "/nowhere");
  free(many);
}

/* Greedy and sampled, with and without drafts, chunks and rounds: after the first steps nothing is allocated any more.
 */
static void test_no_allocation(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  if (!b) skip();
  struct sequence *live[4];
  int32_t n_live;
  struct engine *e = open_engine(b, (struct eaglet_engine_params){.sequences_max = 4, .rows_max = 40}, true);
  run_prompts(e, b->prompts, 1, 1, &(struct eaglet_sequence_params){.output_max = 20, .temperature = 1},
              b->results); /* warm-up */
  for (int32_t i = 0; i < 4; i++) {
    const struct eaglet_sequence_params params = {.prompt = b->prompts[i].ids,
                                                  .n_prompt = b->prompts[i].n,
                                                  .output_max = 96,
                                                  .draft_len = i == 3 ? -1 : 0,
                                                  .temperature = (float)(i % 2),
                                                  .top_p = 0.9f,
                                                  .ignore_stop = true};
    assert_ok(sequence_create(&live[i], e, &params, &err), &err);
  }
  long before = *n_allocations;
  do {
    enum eaglet_status status = engine_step(e, &n_live, &err);
    if (status != EAGLET_OK) fail_msg("%s", err.message);
  } while (n_live > 0);
  assert_int_equal(*n_allocations - before, 0);
  assert_true(before > 0);
  for (int32_t i = 0; i < 4; i++) sequence_free(live[i]);
  engine_close(e);
}

/* Same seed, same text: alone, beside others, and cut into chunks. Another seed, another text. */
static void test_sampled_is_reproducible(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  struct engine *small = open_engine(b, (struct eaglet_engine_params){.rows_max = 16}, true);
  const struct eaglet_sequence_params params = {
      .output_max = 40, .temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .seed = 11, .ignore_stop = true};
  run_prompts(b->engine, b->prompts, 8, 1, &params, b->results);
  run_prompts(b->engine, b->prompts, 8, 4, &params, b->results + 8);
  run_prompts(small, b->prompts, 8, 1, &params, b->results + 16);
  int32_t different = 0;
  for (int i = 0; i < 8; i++) {
    assert_same_tokens(b->results[8 + i].tokens, b->results[8 + i].n, b->results[i].tokens, b->results[i].n,
                       "sampled, batched", i);
    assert_same_tokens(b->results[16 + i].tokens, b->results[16 + i].n, b->results[i].tokens, b->results[i].n,
                       "sampled, in chunks", i);
  }
  struct eaglet_sequence_params other = params;
  other.seed = 1000;
  run_prompts(b->engine, b->prompts, 8, 4, &other, b->results + 24);
  for (int i = 0; i < 8; i++)
    different += memcmp(b->results[24 + i].tokens, b->results[i].tokens, 40 * sizeof(int32_t)) != 0;
  assert_int_equal(different, 8);
  engine_close(small);
}

/* So cold that sampling must be greedy. */
static void test_cold_is_greedy(void **state) {
  struct bench *b = *state;
  if (!b) skip();
  run_prompts(b->engine, b->prompts, 8, 4, &(struct eaglet_sequence_params){.output_max = 96, .temperature = 1e-5f},
              b->results);
  for (int i = 0; i < 8; i++)
    assert_same_tokens(b->results[i].tokens, b->results[i].n, b->prompts[i].expected, b->prompts[i].n_expected, "cold",
                       i);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stop_inside_block),
      cmocka_unit_test(test_caps),
      cmocka_unit_test(test_context_end),
      cmocka_unit_test(test_short_draft_config),
      cmocka_unit_test(test_short_prompts),
      cmocka_unit_test(test_kv_after_rounds),
      cmocka_unit_test(test_cancel),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_no_allocation),
      cmocka_unit_test(test_sampled_is_reproducible),
      cmocka_unit_test(test_cold_is_greedy),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
