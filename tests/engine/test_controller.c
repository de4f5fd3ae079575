/* The controller in simulated worlds: a target whose passes cost a + b rows, a drafter whose passes cost c, and texts whose drafts stand
 * with a known chance. Time is counted, not measured. */
#include "engine/controller.h"
#include "engine/cost_curve.h"

#include "base/util.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 96 /* of one text */
#define PROMPT 40
#define PENDING 32
#define LEVELS 7
#define N 100 /* texts of a run */

struct world {
  double base, row;       /* a target pass */
  double draft, draft_row; /* a catch-up or a level */
  double chance[2];       /* that a draft stands, in texts of even and odd numbers */
  double doubt;           /* the drafter's own probability is chance^doubt: 1 is honest */
  int32_t n_running;
};

struct text {
  struct draft_record record;
  struct proposal proposal;
  int32_t n_tokens, number, n_waiting; /* n_waiting: rows that the drafter has not seen */
};

struct simulation {
  struct world world;
  struct controller *controller;
  uint64_t n_random;
  double seconds;
  int64_t n_tokens, n_drafted_rounds, n_rounds;
};

static double pass(struct simulation *s, enum controller_cost kind, int32_t n) {
  const struct world *w = &s->world;
  double seconds = kind == COST_TARGET ? w->base + w->row * n : w->draft + w->draft_row * n;
  if (n == 0) return 0;
  controller_measured(s->controller, kind, n, seconds);
  return seconds;
}

static double uniform(struct simulation *s) {
  return random_uniform(1, 2, s->n_random++);
}

static double chance_of(const struct simulation *s, const struct text *t) {
  return s->world.chance[t->number % 2];
}

/* Verifies: a chain stands up to the first draft that falls. */
static int32_t verify(struct simulation *s, struct text *t) {
  int32_t stood[DRAFT_LEN_MAX], n = 0;
  while (n < t->proposal.n && uniform(s) < chance_of(s, t)) {
    stood[n] = n;
    n++;
  }
  controller_learn(s->controller, &t->record, &t->proposal, stood, n);
  proposal_reset(&t->proposal);
  return n + 1;
}

static float score_at(const struct simulation *s, const struct text *t, int32_t level) {
  return (float)(s->world.doubt * log(chance_of(s, t)) * (level + 1));
}

/* Level by level, as far as wishes, scores and the controller allow. */
static void draft(struct simulation *s, struct text *const *texts, const struct draft_wish *wishes, int32_t n) {
  for (int32_t level = 0; level < LEVELS; level++) {
    double chances = 0;
    int32_t n_rows = 0;
    bool runs[64];
    for (int32_t i = 0; i < n; i++) {
      const struct text *t = texts[i];
      float score = level > 0 ? score_at(s, t, level - 1) : 0;
      runs[i] = t->proposal.n == level && level < wishes[i].levels && (level == 0 || score >= wishes[i].expand_min);
      if (!runs[i]) continue;
      chances += controller_chance(s->controller, &t->record, score);
      n_rows++;
    }
    if (level > 0 && (n_rows == 0 || !controller_level_pays(s->controller, chances, n_rows))) return;
    if (level > 0) s->seconds += pass(s, COST_LEVEL, n_rows);
    for (int32_t i = 0; i < n; i++) {
      if (runs[i] && score_at(s, texts[i], level) >= wishes[i].keep_min) proposal_add(&texts[i]->proposal, 0, level - 1, score_at(s, texts[i], level));
    }
  }
}

/* One step of all texts. A text that is over is followed by the next, whose prompt the drafter follows unless it sleeps. */
static void step(struct simulation *s, struct text *texts, int32_t levels) {
  struct proposal *proposals[64];
  struct draft_record *records[64];
  struct draft_limits limits[64];
  struct draft_wish wishes[64];
  int32_t n_rows = 0, n = 0, n_joined = 0, joined[64];
  struct text *drafting[64];
  for (int32_t i = 0; i < s->world.n_running; i++) n_rows += texts[i].n_tokens == 0 ? PROMPT : 1 + texts[i].proposal.n;
  s->seconds += pass(s, COST_TARGET, n_rows);
  for (int32_t i = 0; i < s->world.n_running; i++) {
    struct text *t = &texts[i];
    joined[i] = t->n_tokens == 0 ? PROMPT : verify(s, t);
    s->n_tokens += t->n_tokens == 0 ? 1 : joined[i];
    s->n_rounds += t->n_tokens > 0;
    t->n_tokens += joined[i];
    if (t->n_tokens >= PROMPT + TOKENS) {
      *t = (struct text){.number = t->number + s->world.n_running, .record = {.drawn = t->record.drawn, .fixed = t->record.fixed}};
      joined[i] = 0;
    }
    records[i] = &t->record;
    limits[i] = (struct draft_limits){joined[i] > 0 ? levels : 0, 1, levels};
  }
  if (levels == 0) return;
  controller_plan(s->controller, &(struct draft_plan){records, limits, wishes, s->world.n_running, s->world.n_running});
  for (int32_t i = 0; i < s->world.n_running; i++) {
    struct text *t = &texts[i];
    t->n_waiting += joined[i];
    if (wishes[i].sleeps && t->n_waiting > PENDING) t->n_waiting = PENDING;
    if (wishes[i].levels > 0 || t->n_waiting > PENDING) {
      n_joined += t->n_waiting;
      t->n_waiting = 0;
    }
    if (wishes[i].levels == 0) continue;
    s->n_drafted_rounds++;
    proposals[n] = &t->proposal;
    drafting[n] = t;
    wishes[n] = wishes[i];
    records[n++] = &t->record;
  }
  s->seconds += pass(s, COST_CATCH_UP, n_joined);
  draft(s, drafting, wishes, n);
  controller_trim(s->controller, &(struct draft_round){proposals, records, n, s->world.n_running - n});
}

enum mode { PLAIN, ADAPTIVE, FIXED }; /* FIXED + k: chains of k, always */

/* Tokens per second over `n_texts` texts. */
static double speed(const struct world *world, int32_t mode, bool drawn, int32_t n_texts, struct simulation *out) {
  static struct text texts[64];
  struct simulation s = {.world = *world, .controller = controller_create(true)};
  memset(texts, 0, sizeof texts);
  for (int32_t i = 0; i < world->n_running; i++)
    texts[i] = (struct text){.number = i, .n_tokens = i * 37 % TOKENS, .record = {.drawn = drawn, .fixed = mode > FIXED}};
  for (int32_t n = 1; n <= 64; n *= 2) {
    for (enum controller_cost kind = 0; kind < COST_KINDS; kind++) pass(&s, kind, n);
  }
  s.seconds = 0;
  controller_start(s.controller);
  while (s.n_tokens < (int64_t)n_texts * TOKENS) step(&s, texts, mode == PLAIN ? 0 : mode == ADAPTIVE ? LEVELS : mode - FIXED);
  controller_free(s.controller);
  if (out) *out = s;
  return (double)s.n_tokens / s.seconds;
}

static double best_fixed(const struct world *world, bool drawn, int32_t n_texts) {
  double best = 0;
  for (int32_t k = 1; k <= LEVELS; k += 2) best = fmax(best, speed(world, FIXED + k, drawn, n_texts, NULL));
  return best;
}

static void speculation_never_loses_and_takes_most_of_what_there_is(void **state) {
  (void)state;
  const double rows[] = {0.01, 0.1, 0.4, 1}, drafts[] = {0.02, 0.2, 0.5}, chances[] = {0.05, 0.3, 0.6, 0.9}, doubts[] = {0.5, 1, 2};
  const int32_t running[] = {1, 4, 32};
  for (size_t r = 0; r < 4; r++)
    for (size_t d = 0; d < 3; d++)
      for (size_t p = 0; p < 4; p++)
        for (size_t q = 0; q < 9; q++) {
          const struct world w = {.base = 1, .row = rows[r], .draft = drafts[d], .draft_row = drafts[d] / 50, .chance = {chances[p], chances[p]},
                                  .doubt = doubts[q % 3], .n_running = running[q / 3]};
          double plain = speed(&w, PLAIN, false, N, NULL), best = best_fixed(&w, false, N);
          for (int drawn = 0; drawn < 2; drawn++) {
            double adaptive = speed(&w, ADAPTIVE, drawn, N, NULL);
            if (adaptive < 0.97 * plain || adaptive - plain < 0.45 * (best - plain) - 0.04 * plain) {
              print_message("row %g draft %g chance %g doubt %g running %d drawn %d: adaptive %.3f of plain, best fixed chain %.3f\n", rows[r],
                            drafts[d], chances[p], w.doubt, w.n_running, drawn, adaptive / plain, best / plain);
              fail();
            }
          }
        }
}

/* Half of the texts draft well: these speed up, and the others do not slow down. */
static void a_text_that_drafts_badly_is_left_alone(void **state) {
  (void)state;
  struct world good = {.base = 1, .row = 0.1, .draft = 0.2, .draft_row = 0.004, .chance = {0.8, 0.8}, .doubt = 1, .n_running = 1}, mixed = good;
  mixed.chance[1] = 0.1;
  double plain = speed(&good, PLAIN, false, N, NULL), all = speed(&good, ADAPTIVE, false, N, NULL), half = speed(&mixed, ADAPTIVE, false, N, NULL);
  assert_true(all > 1.3 * plain);
  assert_true(2 / half < 1 / all + 1.03 / plain);
}

static void hopeless_drafts_are_hardly_tried(void **state) {
  (void)state;
  const struct world w = {.base = 1, .row = 0.1, .draft = 0.5, .draft_row = 0.01, .chance = {0.05, 0.05}, .doubt = 1, .n_running = 1};
  struct simulation s;
  speed(&w, ADAPTIVE, false, N, &s);
  assert_true(s.n_drafted_rounds > 0 && s.n_drafted_rounds * 50 < s.n_rounds);
}

/* ---- the choice of drafts ---- */

static double net_of(const double *chances, int32_t n, int32_t n_sequences, const struct world *w) {
  double gain = 0, token = (w->base + w->row * n_sequences) / n_sequences;
  for (int32_t i = 0; i < n; i++) gain += chances[i];
  return gain * token - w->row * n;
}

/* Random trees of two sequences: what is kept is closed under parents, and no other number of the best drafts would gain more. */
static void the_drafts_that_gain_most_are_kept(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < 500; trial++) {
    struct simulation s = {.world = {.base = 1, .row = 0.02 + 0.5 * random_uniform(trial, 1, 0)}, .controller = controller_create(true)};
    struct proposal trees[2] = {0}, *const proposals[2] = {&trees[0], &trees[1]};
    struct draft_record record[2] = {{.n_tries = 9}, {.n_tries = 9}}, *const records[2] = {&record[0], &record[1]};
    double chances[64];
    int32_t n = 0, n_kept = 0;
    for (int32_t rows = 1; rows <= 32; rows++) pass(&s, COST_TARGET, rows);
    for (int32_t t = 0; t < 2; t++) {
      for (int32_t i = 0; i < 12; i++) {
        int32_t parent = (int32_t)(random_uniform(trial, 2 + (uint64_t)t, (uint64_t)i) * (i + 1)) - 1;
        double before = parent < 0 ? 1 : exp(trees[t].scores[parent]), chance = before * random_uniform(trial, 9 + (uint64_t)t, (uint64_t)i);
        proposal_add(&trees[t], i, parent, (float)log(chance));
      }
    }
    for (int32_t t = 0; t < 2; t++)
      for (int32_t i = 0; i < 12; i++) chances[n++] = (floor(exp(trees[t].scores[i]) * 20) + 0.5) / 20; /* nothing is known but the score */
    for (int32_t i = 0; i < n; i++)
      for (int32_t j = i + 1; j < n; j++)
        if (chances[j] > chances[i]) {
          double x = chances[i];
          chances[i] = chances[j];
          chances[j] = x;
        }
    controller_trim(s.controller, &(struct draft_round){proposals, records, 2, 0});
    for (int32_t t = 0; t < 2; t++) {
      n_kept += trees[t].n;
      for (int32_t i = 0; i < trees[t].n; i++) {
        assert_true(trees[t].parents[i] < i);
        assert_int_equal(trees[t].depths[i], trees[t].parents[i] < 0 ? 0 : trees[t].depths[trees[t].parents[i]] + 1);
      }
    }
    for (int32_t k = 0; k <= n; k++) assert_true(net_of(chances, n_kept, 2, &s.world) >= net_of(chances, k, 2, &s.world) - 0.01);
    controller_free(s.controller);
  }
}

/* Which drawn tokens are verified must not depend on what was drawn: they all are. */
static void drawn_drafts_are_never_dropped(void **state) {
  (void)state;
  struct simulation s = {.world = {.base = 0.1, .row = 1}, .controller = controller_create(true)};
  struct proposal p = {0}, *const proposals[] = {&p};
  struct draft_record record = {.drawn = true, .mood = DRAFT_AWAKE, .n_tries = 9, .gain = 1}, *const records[] = {&record};
  for (int32_t rows = 1; rows <= 32; rows++) pass(&s, COST_TARGET, rows);
  for (int32_t i = 0; i < 5; i++) proposal_add(&p, i, i - 1, -5.0f * (float)(i + 1));
  controller_trim(s.controller, &(struct draft_round){proposals, records, 1, 0});
  assert_int_equal(p.n, 5);
  struct draft_wish wish;
  const struct draft_limits limits = {LEVELS, 1, LEVELS};
  controller_start(s.controller);
  controller_plan(s.controller, &(struct draft_plan){records, &limits, &wish, 1, 1});
  assert_true(wish.levels == LEVELS && wish.keep_min > logf(0.5f)); /* a row costs as much as a token: only what is nearly sure is drawn */
  controller_free(s.controller);
}

static void fixed_limits_stay_as_they_are(void **state) {
  (void)state;
  const struct draft_limits limits = {5, 3, 11};
  for (int adaptive = 0; adaptive < 2; adaptive++) {
    struct controller *c = controller_create(adaptive);
    struct proposal p = {0}, *const proposals[] = {&p};
    struct draft_record record = {.fixed = adaptive}, *const records[] = {&record};
    for (int32_t rows = 1; rows <= 16; rows++) controller_measured(c, COST_TARGET, rows, rows);
    for (int32_t i = 0; i < 5; i++) proposal_add(&p, i, i - 1, -9);
    for (int32_t round = 0; round < 100; round++) {
      struct draft_wish wish;
      controller_plan(c, &(struct draft_plan){records, &limits, &wish, 1, 1});
      assert_true(wish.levels == 5 && wish.width == 3 && wish.tokens == 11 && wish.expand_min == -INFINITY && wish.keep_min == -INFINITY);
      controller_trim(c, &(struct draft_round){proposals, records, 1, 0});
      assert_int_equal(p.n, 5);
      assert_false(wish.sleeps);
    }
    controller_free(c);
  }
}

/* ---- the curve ---- */

static void a_curve_is_what_was_measured_and_straight_between(void **state) {
  (void)state;
  struct cost_curve c = {0};
  assert_true(cost_curve_at(&c, 5) == 0);
  cost_curve_add(&c, 2, 3);
  cost_curve_add(&c, 6, 5);
  assert_true(cost_curve_at(&c, 0) == 0);
  assert_true(fabs(cost_curve_at(&c, 1) - 3) < 1e-6 && fabs(cost_curve_at(&c, 2) - 3) < 1e-6);
  assert_true(fabs(cost_curve_at(&c, 4) - 4) < 1e-6 && fabs(cost_curve_at(&c, 6) - 5) < 1e-6);
  assert_true(fabs(cost_curve_at(&c, 10) - 7) < 1e-6);
  cost_curve_add(&c, 4, 1); /* noise: it never falls */
  assert_true(fabs(cost_curve_at(&c, 4) - 3) < 1e-6);
  for (int32_t i = 0; i < 100; i++) cost_curve_add(&c, 6, 1000); /* an outlier moves it by a step at a time; the truth wins in the end */
  assert_true(cost_curve_at(&c, 6) > 900);
}

static void a_curve_of_many_rows_is_close(void **state) {
  (void)state;
  struct cost_curve c = {0};
  for (int32_t n = 1; n <= 1024; n++) cost_curve_add(&c, n, 10 + n);
  for (int32_t n = 1; n <= 1024; n++) assert_true(fabs(cost_curve_at(&c, n) - (10 + n)) < 0.06 * (10 + n));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(speculation_never_loses_and_takes_most_of_what_there_is), cmocka_unit_test(a_text_that_drafts_badly_is_left_alone),
      cmocka_unit_test(hopeless_drafts_are_hardly_tried), cmocka_unit_test(the_drafts_that_gain_most_are_kept),
      cmocka_unit_test(drawn_drafts_are_never_dropped), cmocka_unit_test(fixed_limits_stay_as_they_are),
      cmocka_unit_test(a_curve_is_what_was_measured_and_straight_between), cmocka_unit_test(a_curve_of_many_rows_is_close)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
