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
  enum round_state at = ROUND_WAITING;
  const enum round_state expected[] = {ROUND_PREFILL, ROUND_PROPOSE, ROUND_VERIFY, ROUND_ACCEPT, ROUND_COMMIT, ROUND_PROPOSE};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    at = round_advance(at, false);
    assert_int_equal(at, expected[i]);
  }
  assert_int_equal(round_preempt(at), ROUND_WAITING);
  assert_int_equal(round_preempt(ROUND_PREFILL), ROUND_WAITING);
  assert_int_equal(round_advance(ROUND_COMMIT, true), ROUND_DONE);
}

/* The children of one row, and what the target chose there. */
struct greedy_case {
  int32_t children[4], n, best, child;
};
static const struct greedy_case greedy_cases[] = {
    {{0}, 0, 9, -1}, /* plain decoding */
    {{1}, 1, 1, 0},
    {{1}, 1, 2, -1},
    {{4, 3, 2, 1}, 4, 2, 2},
    {{4, 3, 2, 1}, 4, 5, -1},
};

static void test_greedy(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof greedy_cases / sizeof *greedy_cases; i++) {
    const struct greedy_case *c = &greedy_cases[i];
    struct round_choice choice = round_choose_greedy(c->children, c->n, c->best);
    assert_int_equal(choice.child, c->child);
    assert_int_equal(choice.token, c->best);
  }
}

#define V_MAX 64
#define DRAFTS_MAX 4

/* How a world's draft proposes. */
enum kind {
  DRAWN,  /* a chain of draws from q */
  CHOSEN, /* a chain of q's likeliest, chosen */
  TREE    /* the likeliest three of q behind every node, chosen */
};

/* A little world: a target and a draft whose distributions depend on the token before. */
struct world {
  int32_t n_target, n_draft, n_drafts;
  float p[V_MAX + 1][V_MAX], q[V_MAX + 1][V_MAX]; /* row: previous token, V_MAX at the start */
  int32_t target_of[V_MAX], draft_of[V_MAX];
  enum kind kind;
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

/* The likeliest drafts behind a token, as target ids, the best first. */
static int32_t likeliest(const struct world *w, int32_t previous, int32_t n, int32_t *children) {
  float q[V_MAX];
  memcpy(q, w->q[previous], sizeof(float) * (size_t)w->n_draft);
  if (n > w->n_draft) n = w->n_draft;
  for (int32_t i = 0; i < n; i++) {
    int32_t best = 0;
    for (int32_t d = 1; d < w->n_draft; d++) best = q[d] > q[best] ? d : best;
    children[i] = w->target_of[best];
    q[best] = -1;
  }
  return n;
}

/* One round from the start; writes the tokens it yields and returns how many. */
static int32_t world_round(const struct world *w, uint64_t trial, int32_t tokens[DRAFTS_MAX + 1]) {
  int32_t previous = V_MAX, n = 0;
  for (;;) {
    float p[V_MAX];
    int32_t children[3], n_children = 0;
    const uint64_t counter = (uint64_t)n * 5;
    memcpy(p, w->p[previous], sizeof(float) * (size_t)w->n_target);
    if (n < w->n_drafts && w->kind == DRAWN)
      children[n_children++] = w->target_of[sampler_draw(w->q[previous], w->n_draft, random_uniform(77, trial, counter + 4))];
    else if (n < w->n_drafts)
      n_children = likeliest(w, previous, w->kind == TREE ? 3 : 1, children);
    const struct round_law law = {.children = children,
                                  .n = n_children,
                                  .p = p,
                                  .q = w->kind == DRAWN ? w->q[previous] : NULL,
                                  .draft_of = w->draft_of,
                                  .n_target = w->n_target,
                                  .accept_u = random_uniform(77, trial, counter),
                                  .token_u = random_uniform(77, trial, counter + 3)};
    const struct round_choice choice = round_choose_sampled(&law);
    assert_true(choice.child < 0 || children[choice.child] == choice.token);
    tokens[n++] = previous = choice.token;
    if (choice.child < 0) return n;
  }
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
    enum kind kind;
  } worlds[] = {
      {"temperature 0.3", {.temperature = 0.3f}, 16, 16, DRAWN},
      {"temperature 1", {.temperature = 1}, 16, 16, DRAWN},
      {"temperature 1.7", {.temperature = 1.7f}, 16, 16, DRAWN},
      {"draft vocabulary 5 of 16", {.temperature = 1}, 16, 5, DRAWN},
      {"draft vocabulary 2 of 3", {.temperature = 1}, 3, 2, DRAWN},
      {"top-k 4, q uncut", {.temperature = 1, .top_k = 4}, 16, 16, DRAWN},
      {"top-p 0.7, q uncut", {.temperature = 1.7f, .top_p = 0.7f}, 16, 10, DRAWN},
      {"min-p 0.2, q uncut", {.temperature = 1.7f, .min_p = 0.2f}, 16, 10, DRAWN},
      {"chosen chain", {.temperature = 1}, 16, 16, CHOSEN},
      {"chosen chain, cut", {.temperature = 1, .top_k = 6, .top_p = 0.9f}, 16, 8, CHOSEN},
      {"tree, temperature 0.3", {.temperature = 0.3f}, 16, 16, TREE},
      {"tree, temperature 0.7, top-p", {.temperature = 0.7f, .top_p = 0.8f}, 16, 16, TREE},
      {"tree, temperature 1, top-k 2", {.temperature = 1, .top_k = 2}, 16, 16, TREE},
      {"tree, all of a small vocabulary", {.temperature = 1}, 3, 3, TREE},
  };
  struct world *w = malloc(sizeof *w);
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
    world_init(w, &worlds[i].sampling, worlds[i].n_target, worlds[i].n_draft, 1000 + i);
    w->kind = worlds[i].kind;
    check_law(w, worlds[i].name);
    w->n_drafts = 0;
    check_law(w, "... without drafts");
  }
  free(w);
}

/* G19: p (.5 .3 .2), q (.6 .3 .1). Always proposing token 0 as chosen keeps p; passing the raw q off as what it was drawn from gives
 * (5/6, 0, 1/6), and the test sees that. */
static void test_wrong_rule_shows(void **state) {
  (void)state;
  enum { TRIALS = 1000000 };
  const double p[3] = {0.5, 0.3, 0.2};
  const float raw[3] = {0.6f, 0.3f, 0.1f};
  const int32_t draft = 0;
  for (int rule = 0; rule < 2; rule++) {
    int64_t counts[3] = {0};
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
      float row[3] = {0.5f, 0.3f, 0.2f};
      const struct round_law law = {.children = &draft,
                                    .n = 1,
                                    .p = row,
                                    .q = rule == 0 ? NULL : raw,
                                    .n_target = 3,
                                    .accept_u = random_uniform(5, trial, 0),
                                    .token_u = random_uniform(5, trial, 1)};
      counts[round_choose_sampled(&law).token]++;
    }
    double chance = law_p(counts, p, 3, TRIALS);
    printf("%s: (%.4f %.4f %.4f), p %.3g\n", rule == 0 ? "chosen" : "raw q", (double)counts[0] / TRIALS,
           (double)counts[1] / TRIALS, (double)counts[2] / TRIALS, chance);
    if (rule == 0)
      assert_true(chance > 0.01);
    else
      assert_true(chance < 1e-9 && fabs((double)counts[0] / TRIALS - 5.0 / 6) < 0.003);
  }
}

/* p equal to q accepts everything; a draft that the target cannot say is never accepted; what has all the mass always is. */
static void test_extremes(void **state) {
  (void)state;
  const int32_t drafts[2] = {0, 1};
  const float q[2] = {0.5f, 0.5f}, q_first[2] = {1, 0};
  const double most = 1 - 0x1p-53;
  float equal[2] = {0.5f, 0.5f}, never[2] = {0, 1}, also_never[2] = {0, 1}, sure[2] = {1, 0};
  struct round_law law = {.children = drafts, .n = 1, .p = equal, .q = q, .n_target = 2, .accept_u = most, .token_u = most};
  assert_int_equal(round_choose_sampled(&law).child, 0);
  law = (struct round_law){.children = drafts, .n = 1, .p = never, .q = q_first, .n_target = 2, .accept_u = 0};
  struct round_choice choice = round_choose_sampled(&law);
  assert_int_equal(choice.child, -1);
  assert_int_equal(choice.token, 1);
  law = (struct round_law){.children = drafts, .n = 2, .p = also_never, .n_target = 2, .accept_u = 0};
  choice = round_choose_sampled(&law);
  assert_int_equal(choice.child, 1);
  assert_int_equal(choice.token, 1);
  law = (struct round_law){.children = drafts, .n = 2, .p = sure, .n_target = 2, .accept_u = most, .token_u = most};
  assert_int_equal(round_choose_sampled(&law).child, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_states), cmocka_unit_test(test_greedy),
                                     cmocka_unit_test(test_law), cmocka_unit_test(test_wrong_rule_shows),
                                     cmocka_unit_test(test_extremes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
