/* engine_fixture.h - runs prompts through an engine and keeps what each of them did: tokens, rounds, first drafts, why
 * it stopped. */
#ifndef EAGLET_TESTS_ENGINE_FIXTURE_H
#define EAGLET_TESTS_ENGINE_FIXTURE_H

#include "../draft/pair_fixture.h"
#include "engine/engine_internal.h"

#define OUTPUT_MAX 128
#define PROMPTS 40

struct prompt {
  int32_t *ids, *expected;
  int32_t n, n_expected;
};
struct run_result {
  int32_t tokens[OUTPUT_MAX], n;
  bool drafted[OUTPUT_MAX];
  int32_t accepted[OUTPUT_MAX], n_rounds; /* by round */
  int32_t first_drafts[PROPOSAL_MAX], n_first;
  enum eaglet_stop stop;
  struct eaglet_sequence_stats stats;
};

static inline int32_t *json_ids(const json_t *list, int32_t *n) {
  *n = (int32_t)json_array_size(list);
  int32_t *ids = memory_alloc(sizeof(int32_t) * ((size_t)*n + 1));
  for (int32_t i = 0; i < *n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
  return ids;
}

/* The 40 prompts with the oracle's greedy outputs. False: data is not there. */
static inline bool prompts_load(struct prompt prompts[PROMPTS]) {
  struct eaglet_error err;
  json_t *rows;
  char *path = shared_path("own/oracle/nano_kimi_greedy.json");
  if (!path) return false;
  assert_ok(json_parse_file(&rows, path, &err), &err);
  assert_int_equal(json_array_size(rows), PROMPTS);
  for (size_t i = 0; i < PROMPTS; i++) {
    const json_t *row = json_array_get(rows, i);
    prompts[i].ids = json_ids(json_object_get(row, "prompt_ids"), &prompts[i].n);
    prompts[i].expected = json_ids(json_object_get(row, "output_ids"), &prompts[i].n_expected);
    assert_true(prompts[i].n_expected > 0 && prompts[i].n_expected <= OUTPUT_MAX);
  }
  json_decref(rows);
  free(path);
  return true;
}

static inline void prompts_free(struct prompt prompts[PROMPTS]) {
  for (size_t i = 0; i < PROMPTS; i++) {
    free(prompts[i].ids);
    free(prompts[i].expected);
  }
}

/* What one step did to a sequence. */
static inline void result_note(struct run_result *r, const struct sequence *s, int32_t accepted_before,
                               int32_t rounds_before) {
  if (s->stats.rounds > rounds_before) r->accepted[r->n_rounds++] = s->stats.accepted - accepted_before;
  if (r->n_first == 0 && s->stats.rounds == 0 && s->proposal.n > 0) {
    r->n_first = s->proposal.n;
    memcpy(r->first_drafts, s->proposal.tokens, sizeof(int32_t) * (size_t)s->proposal.n);
  }
}

static inline void result_take(struct run_result *r, const struct sequence *s) {
  const int32_t *tokens;
  r->n = sequence_output(s, &tokens);
  assert_in_range(r->n, 0, OUTPUT_MAX);
  memcpy(r->tokens, tokens, sizeof(int32_t) * (size_t)r->n);
  for (int32_t i = 0; i < r->n; i++) r->drafted[i] = sequence_was_drafted(s, i);
  r->stop = sequence_stop(s);
  r->stats = *sequence_stats(s);
}

/* Runs n prompts, `together` at once; a place that becomes free takes the next prompt. base: everything but prompt and
 * n_prompt. */
static inline void run_prompts(struct engine *e, const struct prompt *prompts, int32_t n, int32_t together,
                               const struct eaglet_sequence_params *base, struct run_result *results) {
  struct sequence *live[64] = {0};
  int32_t owner[64] = {0}, accepted[64] = {0}, rounds[64] = {0}, next = 0, done = 0, n_live;
  struct eaglet_error err;
  memset(results, 0, sizeof *results * (size_t)n);
  while (done < n) {
    for (int32_t i = 0; i < together; i++) {
      if (!live[i] && next < n) {
        struct eaglet_sequence_params params = *base;
        params.prompt = prompts[next].ids;
        params.n_prompt = prompts[next].n;
        params.seed = base->seed + (uint64_t)next;
        owner[i] = next++;
        assert_ok(sequence_create(&live[i], e, &params, &err), &err);
      }
      if (live[i]) {
        accepted[i] = live[i]->stats.accepted;
        rounds[i] = live[i]->stats.rounds;
      }
    }
    assert_ok(engine_step(e, &n_live, &err), &err);
    for (int32_t i = 0; i < together; i++) {
      if (!live[i]) continue;
      result_note(&results[owner[i]], live[i], accepted[i], rounds[i]);
      if (sequence_stop(live[i]) == EAGLET_STOP_NONE) continue;
      result_take(&results[owner[i]], live[i]);
      sequence_free(live[i]);
      live[i] = NULL;
      done++;
    }
  }
}

static inline void assert_same_tokens(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b, const char *what,
                                      int32_t number) {
  int32_t n = n_a < n_b ? n_a : n_b;
  for (int32_t i = 0; i < n; i++) {
    if (a[i] != b[i]) fail_msg("%s, prompt %d: token %d is %d, expected %d", what, number, i, a[i], b[i]);
  }
  if (n_a != n_b) fail_msg("%s, prompt %d: %d tokens, expected %d", what, number, n_a, n_b);
}

#endif
