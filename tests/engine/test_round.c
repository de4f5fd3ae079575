/* test_round.c - the acceptance rules on arrays: the greedy table, the state machine, and the law of sampled rounds
 * (chi-square against p) for reduced draft vocabularies, cuts, one-hot proposals and the two wrong rules of bug case
 * G19. */
#include "engine/round.h"

#include "base/util.h"
#include "engine/sampler.h"
#include "law.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_states(void **state) {
  (void)state;
  enum round_state at = ROUND_PREFILL;
  const enum round_state expected[] = {ROUND_PROPOSE, ROUND_VERIFY, ROUND_ACCEPT, ROUND_COMMIT, ROUND_PROPOSE};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    at = round_advance(at, false);
    assert_int_equal(at, expected[i]);
  }
  assert_int_equal(round_advance(ROUND_PREFILL, true), ROUND_DONE);
  assert_int_equal(round_advance(ROUND_COMMIT, true), ROUND_DONE);
}

struct greedy_case {
  int32_t drafts[4], n_drafts, best[5], n_accepted, bonus;
};
static const struct greedy_case greedy_cases[] = {
    {{0}, 0, {9}, 0, 9}, /* plain decoding */
    {{1}, 1, {1, 5}, 1, 5},
    {{1}, 1, {2, 5}, 0, 2},
    {{1, 2, 3, 4}, 4, {1, 2, 3, 4, 5}, 4, 5},
    {{1, 2, 3, 4}, 4, {1, 2, 9, 4, 5}, 2, 9}, /* what agrees after a mismatch is nothing */
    {{1, 2, 3, 4}, 4, {9, 2, 3, 4, 5}, 0, 9},
    {{7, 7, 7, 7}, 4, {7, 7, 7, 8, 7}, 3, 8},
};

static void test_greedy(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof greedy_cases / sizeof *greedy_cases; i++) {
    const struct greedy_case *c = &greedy_cases[i];
    struct round_outcome outcome = round_accept_greedy(c->drafts, c->n_drafts, c->best);
    assert_int_equal(outcome.n_accepted, c->n_accepted);
    assert_int_equal(outcome.bonus, c->bonus);
  }
}

#define V_MAX 64
#define DRAFTS_MAX 4

/* A little world: a target and a draft whose distributions depend on the token before. */
struct world {
  int32_t n_target, n_draft, n_drafts;
  float p[V_MAX + 1][V_MAX], q[V_MAX + 1][V_MAX]; /* row: previous token, V_MAX at the start */
  int32_t target_of[V_MAX], draft_of[V_MAX];
  bool one_hot; /* the draft always takes its likeliest, and says so */
};

static void world_init(struct world *w, const struct sampling *sampling, int32_t n_target, int32_t n_draft,
                       uint64_t seed) {
  const struct sampling plain = {.temperature = sampling->temperature};
  int32_t order[V_MAX];
  *w = (struct world){.n_target = n_target, .n_draft = n_draft, .n_drafts = 3};
  for (int32_t i = 0; i < n_target; i++) w->draft_of[i] = -1;
  for (int32_t d = 0; d < n_draft; d++) {
    w->target_of[d] = d * n_target / n_draft;
    w->draft_of[w->target_of[d]] = d;
  }
  for (uint64_t row = 0; row <= V_MAX; row++) {
    for (uint64_t i = 0; i < (uint64_t)n_target; i++) w->p[row][i] = (float)(1.5 * random_normal(seed, row, i));
    for (uint64_t d = 0; d < (uint64_t)n_draft; d++)
      w->q[row][d] = w->p[row][w->target_of[d]] + (float)(0.7 * random_normal(seed + 1, row, d));
    sampler_distribution(w->p[row], n_target, sampling, order);
    sampler_distribution(w->q[row], n_draft, &plain, order);
  }
}

/* What the draft hands over: likeliest token and a one-hot q, or a draw and the q that it was drawn from. */
static int32_t world_draft(const struct world *w, int32_t previous, float *q, double u) {
  memcpy(q, w->q[previous], sizeof(float) * (size_t)w->n_draft);
  if (!w->one_hot) return sampler_draw(q, w->n_draft, u);
  int32_t best = 0;
  for (int32_t d = 1; d < w->n_draft; d++) best = q[d] > q[best] ? d : best;
  memset(q, 0, sizeof(float) * (size_t)w->n_draft);
  q[best] = 1;
  return best;
}

/* One round from the start; writes the tokens it yields and returns how many. */
static int32_t world_round(const struct world *w, uint64_t trial, int32_t tokens[DRAFTS_MAX + 1]) {
  float p[(DRAFTS_MAX + 1) * V_MAX], q[DRAFTS_MAX * V_MAX];
  double accept_u[DRAFTS_MAX], bonus_u[DRAFTS_MAX + 1];
  int32_t previous = V_MAX, drafts[DRAFTS_MAX];
  for (int32_t k = 0; k <= w->n_drafts; k++) {
    uint64_t counter = (uint64_t)k * 3;
    memcpy(p + (size_t)k * (size_t)w->n_target, w->p[previous], sizeof(float) * (size_t)w->n_target);
    bonus_u[k] = random_uniform(77, trial, counter);
    if (k == w->n_drafts) break;
    accept_u[k] = random_uniform(77, trial, counter + 1);
    drafts[k] = w->target_of[world_draft(w, previous, q + (size_t)k * (size_t)w->n_draft,
                                         random_uniform(77, trial, counter + 2))];
    previous = drafts[k];
  }
  const struct round_sampled round = {.drafts = drafts,
                                      .n_drafts = w->n_drafts,
                                      .p = p,
                                      .q = q,
                                      .draft_of = w->draft_of,
                                      .n_target = w->n_target,
                                      .n_draft = w->n_draft,
                                      .accept_u = accept_u,
                                      .bonus_u = bonus_u};
  struct round_outcome outcome = round_accept_sampled(&round);
  memcpy(tokens, drafts, sizeof(int32_t) * (size_t)outcome.n_accepted);
  tokens[outcome.n_accepted] = outcome.bonus;
  return outcome.n_accepted + 1;
}

/* The joint law of the first two tokens; a round that yields one is followed by a plain draw. */
static void check_law(const struct world *w, const char *name) {
  enum { TRIALS = 200000 };
  int n_bins = w->n_target * w->n_target;
  int64_t *counts = calloc((size_t)n_bins, sizeof *counts), accepted = 0;
  double *expected = calloc((size_t)n_bins, sizeof *expected);
  for (uint64_t trial = 0; trial < TRIALS; trial++) {
    int32_t tokens[DRAFTS_MAX + 2], n = world_round(w, trial, tokens);
    accepted += n - 1;
    if (n == 1) tokens[1] = sampler_draw(w->p[tokens[0]], w->n_target, random_uniform(78, trial, 0));
    counts[tokens[0] * w->n_target + tokens[1]]++;
  }
  for (int32_t a = 0; a < w->n_target; a++) {
    for (int32_t b = 0; b < w->n_target; b++) expected[a * w->n_target + b] = (double)w->p[V_MAX][a] * w->p[a][b];
  }
  double chance = law_p(counts, expected, n_bins, TRIALS);
  printf("%s: p %.3f, %.2f of %d drafts stand\n", name, chance, (double)accepted / TRIALS, w->n_drafts);
  assert_true(chance > 0.01);
  assert_true(w->n_drafts == 0 || accepted > 0);
  free(counts);
  free(expected);
}

static void test_law(void **state) {
  (void)state;
  static const struct {
    const char *name;
    struct sampling sampling;
    int32_t n_target, n_draft;
    bool one_hot;
  } worlds[] = {
      {"temperature 0.3", {.temperature = 0.3f}, 16, 16, false},
      {"temperature 1", {.temperature = 1}, 16, 16, false},
      {"temperature 1.7", {.temperature = 1.7f}, 16, 16, false},
      {"draft vocabulary 5 of 16", {.temperature = 1}, 16, 5, false},
      {"draft vocabulary 2 of 3", {.temperature = 1}, 3, 2, false},
      {"top-k 4, q uncut", {.temperature = 1, .top_k = 4}, 16, 16, false},
      {"top-p 0.7, q uncut", {.temperature = 1.7f, .top_p = 0.7f}, 16, 10, false},
      {"one-hot proposal", {.temperature = 1}, 16, 16, true},
      {"one-hot proposal, cut", {.temperature = 1, .top_k = 6, .top_p = 0.9f}, 16, 8, true},
  };
  struct world *w = malloc(sizeof *w);
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
    world_init(w, &worlds[i].sampling, worlds[i].n_target, worlds[i].n_draft, 1000 + i);
    w->one_hot = worlds[i].one_hot;
    check_law(w, worlds[i].name);
    w->n_drafts = 0;
    check_law(w, "... without drafts");
  }
  free(w);
}

/* G19: p (.5 .3 .2), q (.6 .3 .1). One-hot proposal of token 0 must keep p, where the rule with the raw q gives (5/6,
 * 0, 1/6); the test sees that. */
static void test_wrong_rule_shows(void **state) {
  (void)state;
  enum { TRIALS = 1000000 };
  const double p[3] = {0.5, 0.3, 0.2};
  const float raw[3] = {0.6f, 0.3f, 0.1f}, one_hot[3] = {1, 0, 0};
  const int32_t draft_of[3] = {0, 1, 2}, draft = 0;
  for (int rule = 0; rule < 2; rule++) {
    int64_t counts[3] = {0};
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
      float rows[6] = {0.5f, 0.3f, 0.2f, 0.5f, 0.3f, 0.2f};
      const double accept_u = random_uniform(5, trial, 0),
                   bonus_u[2] = {random_uniform(5, trial, 1), random_uniform(5, trial, 2)};
      const struct round_sampled round = {.drafts = &draft,
                                          .n_drafts = 1,
                                          .p = rows,
                                          .q = rule == 0 ? one_hot : raw,
                                          .draft_of = draft_of,
                                          .n_target = 3,
                                          .n_draft = 3,
                                          .accept_u = &accept_u,
                                          .bonus_u = bonus_u};
      struct round_outcome outcome = round_accept_sampled(&round);
      counts[outcome.n_accepted ? draft : outcome.bonus]++;
    }
    double chance = law_p(counts, p, 3, TRIALS);
    printf("%s: (%.4f %.4f %.4f), p %.3g\n", rule == 0 ? "one-hot q" : "raw q", (double)counts[0] / TRIALS,
           (double)counts[1] / TRIALS, (double)counts[2] / TRIALS, chance);
    if (rule == 0)
      assert_true(chance > 0.01);
    else
      assert_true(chance < 1e-9 && fabs((double)counts[0] / TRIALS - 5.0 / 6) < 0.003);
  }
}

/* p equal to q accepts everything; a draft the target cannot say is never accepted. */
static void test_extremes(void **state) {
  (void)state;
  const int32_t draft_of[2] = {0, 1}, drafts[2] = {0, 1};
  const float q[4] = {0.5f, 0.5f, 0.5f, 0.5f}, q_first[2] = {1, 0};
  const double accept_u[2] = {1 - 0x1p-53, 1 - 0x1p-53}, bonus_u[3] = {0, 0, 0}, zero[2] = {0, 0};
  float p[6] = {0.5f, 0.5f, 0.5f, 0.5f, 0.25f, 0.75f}, never[4] = {0, 1, 0.5f, 0.5f};
  struct round_sampled round = {.drafts = drafts,
                                .n_drafts = 2,
                                .p = p,
                                .q = q,
                                .draft_of = draft_of,
                                .n_target = 2,
                                .n_draft = 2,
                                .accept_u = accept_u,
                                .bonus_u = bonus_u};
  assert_int_equal(round_accept_sampled(&round).n_accepted, 2);
  round = (struct round_sampled){.drafts = drafts,
                                 .n_drafts = 1,
                                 .p = never,
                                 .q = q_first,
                                 .draft_of = draft_of,
                                 .n_target = 2,
                                 .n_draft = 2,
                                 .accept_u = zero,
                                 .bonus_u = zero};
  struct round_outcome outcome = round_accept_sampled(&round);
  assert_int_equal(outcome.n_accepted, 0);
  assert_int_equal(outcome.bonus, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_states), cmocka_unit_test(test_greedy),
                                     cmocka_unit_test(test_law), cmocka_unit_test(test_wrong_rule_shows),
                                     cmocka_unit_test(test_extremes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
