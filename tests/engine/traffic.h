/* traffic.h - sequences of all kinds that come, go and are cancelled while an engine runs: what each of them said, compared with what it
 * says alone; and, after every step, the books of the engine's memory kept a second time.
 *
 * Pairs are random models whose attention matters (a wrong page or slot changes the text) with a head that remembers some of their text,
 * so that drafts stand and fall. Lodgers take pages of the pools for the time of a run, so that memory is as tight as a test wants it. */
#ifndef EAGLET_TESTS_TRAFFIC_H
#define EAGLET_TESTS_TRAFFIC_H

#include "random_models.h"

#include "base/util.h"
#include "engine/engine_internal.h"
#include "model/prefix_cache.h"

#define VISIT_OUTPUT_MAX 192
#define VISIT_PROMPT_MAX 400
#define VISIT_LOGPROBS 3
#define TRAFFIC_MAX 96

/* ---- a pair ---- */

struct pair {
  char target[64], head[64];
};

static inline void pair_lengthen(const char *directory, int32_t positions) {
  struct eaglet_error err;
  json_t *config;
  char *path = file_join(directory, "config.json");
  assert_ok(json_parse_file(&config, path, &err), &err);
  json_object_set_new(config, "max_position_embeddings", json_integer(positions));
  struct eaglet_text text = json_dump(config, 2);
  write_text(directory, "config.json", text.data);
  free(text.data);
  json_decref(config);
  free(path);
}

/* Some greedy output of the target: n_starts texts of `each` tokens. */
static inline void pair_text(struct engine *e, int32_t *text, int32_t n_starts, int32_t each) {
  struct eaglet_error err;
  for (int32_t i = 0; i < n_starts; i++) {
    struct sequence *s;
    const int32_t *output;
    int32_t n_live, n_vocab = engine_model(e)->arch.features.n_vocab, prompt[2] = {(17 * i + 5) % n_vocab, (29 * i + 2) % n_vocab};
    const struct eaglet_sequence_params params = {.prompt = prompt, .n_prompt = 2, .output_max = each, .ignore_stop = true};
    assert_ok(sequence_create(&s, e, &params, &err), &err);
    do assert_ok(engine_step(e, &n_live, &err), &err);
    while (n_live > 0);
    assert_int_equal(sequence_output(s, &output), each);
    memcpy(text + (int64_t)i * each, output, sizeof(int32_t) * (size_t)each);
    sequence_free(s);
  }
}

/* What follows each token most often. */
static inline void pair_successors(int32_t *next, int32_t n_vocab, const int32_t *text, int32_t n_texts, int32_t each) {
  int32_t *counts = memory_alloc((size_t)n_vocab * (size_t)n_vocab * sizeof *counts);
  for (int32_t i = 0; i < n_texts * each; i++) {
    if ((i + 1) % each != 0) counts[text[i] * n_vocab + text[i + 1]]++;
  }
  for (int32_t t = 0; t < n_vocab; t++) {
    const int32_t *row = counts + (int64_t)t * n_vocab;
    int32_t best = 0;
    for (int32_t v = 1; v < n_vocab; v++) best = row[v] > row[best] ? v : best;
    next[t] = row[best] > 0 ? best : -1;
  }
  free(counts);
}

/* template: a directory under tests/data/arch. */
static inline void pair_write(struct pair *pair, const char *template, int32_t positions, uint64_t seed) {
  enum { STARTS = 48, EACH = 40 };
  struct eaglet_error err;
  struct engine *e;
  int32_t text[STARTS * EACH], next[512];
  static const int32_t states[] = {1, 2, 3};
  char *from = memory_format("%s/tests/data/arch/%s", getenv("EAGLET_TEST_ROOT"), template);
  random_model_write(pair->target, from, seed);
  pair_lengthen(pair->target, positions);
  const struct eaglet_engine_params params = {.model = pair->target, .threads = 1, .context_max = 64};
  assert_ok(engine_open(&e, &params, &err), &err);
  pair_text(e, text, STARTS, EACH);
  assert_true(engine_model(e)->arch.features.n_vocab <= 512);
  pair_successors(next, engine_model(e)->arch.features.n_vocab, text, STARTS, EACH);
  const struct random_head head = {
      .target = engine_model(e), .states = states, .n_states = 3, .next = next, .seed = seed};
  random_head_write(pair->head, &head);
  engine_close(e);
  free(from);
}

static inline void pair_remove(const struct pair *pair) {
  remove_directory(pair->target);
  remove_directory(pair->head);
}

/* ---- who visits ---- */

struct visitor {
  struct eaglet_sequence_params params; /* prompt: the visitor's own */
  int32_t prompt[VISIT_PROMPT_MAX];
  int32_t arrives; /* before this step */
  int32_t leaves;  /* cancelled before this step; 0: never */
};
/* What became of it. */
struct visit {
  int32_t tokens[VISIT_OUTPUT_MAX], n;
  bool drafted[VISIT_OUTPUT_MAX];
  int32_t accepted[VISIT_OUTPUT_MAX], n_rounds; /* by round */
  struct eaglet_token_logprob logprobs[VISIT_OUTPUT_MAX][1 + VISIT_LOGPROBS];
  int32_t n_logprobs[VISIT_OUTPUT_MAX];
  float prompt_logprobs[VISIT_PROMPT_MAX];
  enum eaglet_stop stop;
  struct eaglet_sequence_stats stats;
  int32_t first_step, last_step; /* when its first token was there, when it ended */
  int32_t n_kept;                /* steps it waited with drafts that are still to be verified */
};

static inline int32_t random_below(uint64_t seed, uint64_t stream, uint64_t counter, int32_t n) {
  return (int32_t)(random_u64(seed, stream, counter) % (uint64_t)n);
}

static inline void visitor_prompt(struct visitor *v, int32_t n, int32_t n_vocab, uint64_t seed, uint64_t stream) {
  for (int32_t i = 0; i < n; i++) v->prompt[i] = random_below(seed, stream, (uint64_t)i, n_vocab);
  v->params.prompt = v->prompt;
  v->params.n_prompt = n;
}

/* ---- the books ---- */

/* Pages that no sequence of the engine gets. */
struct lodgers {
  struct kv_sequence target, drafter; /* cache NULL: none */
};

/* Takes what it can get of the pool, but never more than all but pages_left. */
static inline void lodger_spread(struct kv_sequence *lodger, struct kv_cache *cache, int32_t pages_left) {
  struct eaglet_error err;
  int32_t wanted = cache->n_pages - pages_left, available;
  if (!lodger->cache) assert_ok(kv_sequence_init(lodger, cache, cache->n_pages * KV_PAGE_TOKENS, &err), &err);
  if (lodger->n_pages > wanted) kv_sequence_empty(lodger);
  available = lodger->n_pages + kv_cache_available(cache);
  if (wanted > available) wanted = available;
  if (wanted > lodger->n_pages) assert_ok(kv_sequence_reserve(lodger, wanted * KV_PAGE_TOKENS, &err), &err);
}

/* Sequences have, by turns, four times pages_left and pages_left to share, so that some must give up theirs; 0: all there are. */
static inline void lodgers_spread(struct lodgers *lodgers, struct engine *e, int32_t pages_left, int32_t step) {
  if (pages_left == 0) return;
  int32_t pages = step / 6 % 2 ? pages_left : 4 * pages_left;
  lodger_spread(&lodgers->target, &e->kv, pages);
  if (e->drafter && e->drafter->kv) lodger_spread(&lodgers->drafter, e->drafter->kv, pages);
}

static inline void lodgers_move_out(struct lodgers *lodgers) {
  kv_sequence_release(&lodgers->target);
  kv_sequence_release(&lodgers->drafter);
}

/* Every page is free, held by as many sequences as its count says, or known and idle. */
static inline void books_of_cache(const struct engine *e, const struct kv_cache *cache, const struct kv_sequence *lodger) {
  bool of_drafter = cache != &e->kv;
  int32_t *holders = memory_alloc((size_t)cache->n_pages * sizeof *holders), n_idle = 0;
  for (const struct sequence *s = e->all; s; s = s->all_next) {
    const struct kv_sequence *kv = of_drafter ? &s->draft_kv : &s->kv;
    if (!kv->cache) continue;
    if (s->state == ROUND_WAITING || s->state == ROUND_DONE) assert_int_equal(kv->n_pages, 0);
    assert_true(kv->length <= kv->n_pages * KV_PAGE_TOKENS && kv->n_indexed * KV_PAGE_TOKENS <= kv->length);
    for (int32_t i = 0; i < kv->n_pages; i++) holders[kv->table[i]]++;
    for (int32_t i = 0; i < kv->n_pages && cache->prefix; i++)
      assert_int_equal(prefix_cache_knows(cache->prefix, kv->table[i]), i < kv->n_indexed);
  }
  for (int32_t i = 0; i < lodger->n_pages; i++) holders[lodger->table[i]]++;
  for (int32_t i = 0; i < cache->n_free; i++) {
    assert_int_equal(holders[cache->free_pages[i]], 0);
    holders[cache->free_pages[i]] = -1;
  }
  for (int32_t p = 0; p < cache->n_pages; p++) {
    assert_int_equal(cache->holders[p], holders[p] < 0 ? 0 : holders[p]);
    if (holders[p] == 0) {
      assert_true(cache->prefix && prefix_cache_knows(cache->prefix, p));
      n_idle++;
    }
  }
  assert_int_equal(kv_cache_available(cache), cache->n_free + n_idle);
  free(holders);
}

/* What holds between steps. */
static inline void books_check(const struct engine *e, const struct lodgers *lodgers) {
  int32_t n_running = 0, n_waiting = 0;
  bool newcomers = false;
  books_of_cache(e, &e->kv, &lodgers->target);
  if (e->drafter && e->drafter->kv) books_of_cache(e, e->drafter->kv, &lodgers->drafter);
  for (const struct sequence *s = e->running.first; s; s = s->next) {
    n_running++;
    assert_true(s->state == ROUND_PREFILL || s->state == ROUND_PROPOSE);
    assert_true(s->kv.length < s->n_tokens && s->n_tokens <= e->context_max);
    if (s->state == ROUND_PROPOSE) assert_int_equal(s->kv.length, s->n_tokens - 1);
    if (s->draft_kv.cache) assert_true(s->draft_kv.length <= s->n_tokens - e->drafter->lookahead);
    if (s->draft_kv.cache && !s->draft_kv.sparse && s->proposal.n > 0 && s->n_verify > 0 && e->stats.rounds_off == 0) /* it just drafted: all that the target knows, it knows */
      assert_int_equal(s->draft_kv.length, s->n_tokens - e->drafter->lookahead);
    if (!s->next) assert_ptr_equal(e->running.last, s);
  }
  for (const struct sequence *s = e->waiting.first; s; s = s->next) {
    n_waiting++;
    assert_int_equal(s->state, ROUND_WAITING);
    newcomers |= s->stats.preemptions == 0;
    assert_false(newcomers && s->stats.preemptions > 0); /* who was there before is before */
    if (!s->next) assert_ptr_equal(e->waiting.last, s);
  }
  assert_int_equal(n_running, e->running.n);
  assert_int_equal(n_waiting, e->waiting.n);
  assert_true(n_running <= e->sequences_max);
}

/* Nobody is there: every page can be had. */
static inline void books_closed(const struct engine *e) {
  books_check(e, &(const struct lodgers){0});
  assert_int_equal(kv_cache_available(&e->kv), e->kv.n_pages);
  if (e->drafter && e->drafter->kv) assert_int_equal(kv_cache_available(e->drafter->kv), e->drafter->kv->n_pages);
}

/* ---- running ---- */

static inline void visit_take(struct visit *visit, const struct visitor *v, const struct sequence *s) {
  const int32_t *tokens;
  const struct eaglet_token_logprob *entries;
  visit->n = sequence_output(s, &tokens);
  assert_in_range(visit->n, 0, VISIT_OUTPUT_MAX);
  memcpy(visit->tokens, tokens, sizeof(int32_t) * (size_t)visit->n);
  for (int32_t i = 0; i < visit->n; i++) {
    visit->drafted[i] = sequence_was_drafted(s, i);
    visit->n_logprobs[i] = sequence_logprobs(s, i, &entries);
    assert_int_equal(visit->n_logprobs[i] > 0, v->params.n_logprobs != 0);
    if (visit->n_logprobs[i] > 0) memcpy(visit->logprobs[i], entries, sizeof *entries * (size_t)visit->n_logprobs[i]);
  }
  for (int32_t i = 1; i < v->params.n_prompt && v->params.n_prompt_logprobs && visit->n > 0; i++) {
    assert_true(sequence_prompt_logprobs(s, i, &entries) > 0);
    visit->prompt_logprobs[i] = entries->logprob;
  }
  visit->stop = sequence_stop(s);
  visit->stats = *sequence_stats(s);
}

static inline void visit_note(struct visit *visit, const struct sequence *s, int32_t step) {
  const struct eaglet_sequence_stats *now = sequence_stats(s);
  if (now->output_tokens > 0 && visit->stats.output_tokens == 0) visit->first_step = step;
  if (now->rounds > visit->stats.rounds) visit->accepted[visit->n_rounds++] = now->accepted - visit->stats.accepted;
  visit->n_kept += s->state == ROUND_WAITING && s->proposal.n > 0;
  visit->stats = *now;
}

/* Until everybody is gone; returns the number of steps. pages_left: as lodgers_spread. */
static inline int32_t traffic_run(struct engine *e, int32_t pages_left, struct visitor *visitors, int32_t n, struct visit *visits) {
  struct sequence *live[TRAFFIC_MAX] = {0};
  struct lodgers lodgers = {0};
  int32_t step = 0, gone = 0, n_live;
  struct eaglet_error err;
  memset(visits, 0, sizeof *visits * (size_t)n);
  for (; gone < n; step++) {
    for (int32_t i = 0; i < n; i++) {
      if (visitors[i].arrives == step) assert_ok(sequence_create(&live[i], e, &visitors[i].params, &err), &err);
      if (!live[i] || visitors[i].leaves == 0 || visitors[i].leaves != step) continue;
      sequence_cancel(live[i]);
      assert_true(live[i]->kv.n_pages == 0 && live[i]->draft_kv.n_pages == 0);
      books_check(e, &lodgers);
    }
    lodgers_spread(&lodgers, e, pages_left, step);
    assert_ok(engine_step(e, &n_live, &err), &err);
    books_check(e, &lodgers);
    for (int32_t i = 0; i < n; i++) {
      if (!live[i]) continue;
      visit_note(&visits[i], live[i], step);
      if (sequence_stop(live[i]) == EAGLET_STOP_NONE) continue;
      visit_take(&visits[i], &visitors[i], live[i]);
      visits[i].last_step = step;
      sequence_free(live[i]);
      live[i] = NULL;
      gone++;
    }
    if (step > 20000) fail_msg("%d of %d sequences are still there after %d steps", n - gone, n, step);
  }
  lodgers_move_out(&lodgers);
  books_closed(e);
  return step;
}

/* One after the other. */
static inline void traffic_run_alone(struct engine *e, const struct visitor *visitors, int32_t n, struct visit *visits) {
  for (int32_t i = 0; i < n; i++) {
    struct visitor alone = visitors[i];
    alone.params.prompt = alone.prompt;
    alone.arrives = alone.leaves = 0;
    traffic_run(e, 0, &alone, 1, &visits[i]);
  }
}

/* ---- comparing ---- */

/* `is` said what `alone` says, or the beginning of it when it was cancelled; with_rounds: in the same rounds. */
static inline void visit_compare(const struct visit *is, const struct visit *alone, bool with_rounds, const char *what, int32_t number) {
  bool cut = is->stop == EAGLET_STOP_CANCELLED;
  int32_t n = is->n;
  if (cut ? n > alone->n : n != alone->n) fail_msg("%s, sequence %d: %d tokens, alone %d", what, number, n, alone->n);
  if (!cut && is->stop != alone->stop) fail_msg("%s, sequence %d: stopped by %d, alone by %d", what, number, is->stop, alone->stop);
  for (int32_t i = 0; i < n; i++) {
    if (is->tokens[i] != alone->tokens[i])
      fail_msg("%s, sequence %d: token %d is %d, alone %d", what, number, i, is->tokens[i], alone->tokens[i]);
    assert_int_equal(is->n_logprobs[i], alone->n_logprobs[i]);
    for (int32_t k = 0; k < is->n_logprobs[i]; k++) {
      const struct eaglet_token_logprob *a = &is->logprobs[i][k], *b = &alone->logprobs[i][k];
      if (a->token != b->token || a->rank != b->rank || fabs((double)a->logprob - (double)b->logprob) > 1e-6)
        fail_msg("%s, sequence %d: logprob %d of token %d differs", what, number, k, i);
    }
  }
  for (int32_t i = 0; i < VISIT_PROMPT_MAX && n > 0; i++)
    assert_true(fabs((double)is->prompt_logprobs[i] - (double)alone->prompt_logprobs[i]) <= 1e-6);
  if (!with_rounds) return;
  if (!cut) assert_int_equal(is->n_rounds, alone->n_rounds);
  for (int32_t r = 0; r < is->n_rounds; r++) {
    if (is->accepted[r] != alone->accepted[r])
      fail_msg("%s, sequence %d, round %d: %d accepted, alone %d", what, number, r, is->accepted[r], alone->accepted[r]);
  }
  for (int32_t i = 0; i < n; i++) assert_int_equal(is->drafted[i], alone->drafted[i]);
}

#endif
