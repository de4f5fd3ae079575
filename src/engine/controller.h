/* controller.h - how much to draft. Fixed limits, or adaptive: it knows what a target pass of n rows, a catch-up and a level of drafts cost
 * (rehearsed at open and measured ever after), and how often drafts of a given score were accepted; from both it says which drafts pay.
 *
 * The yardstick is the time of a token without drafts: a drafted token is worth its chance of acceptance times that. A step drafts when
 * what its sequences' drafts are expected to bring is more than the drafter's passes cost, and verifies what pays of them. What is not
 * known must be tried: trying is paid from an account that gets a small share of the time and all that drafting gains, so that
 * speculation that does not pay costs hardly more than that share. A sequence whose drafts do not pay sleeps, and costs nothing.
 *
 * It decides speed only, never output.
 */
#ifndef EAGLET_ENGINE_CONTROLLER_H
#define EAGLET_ENGINE_CONTROLLER_H

#include "draft/tree.h"

/* What a sequence may draft at most. levels 0: nothing. */
struct draft_limits {
  int32_t levels, width, tokens;
};
/* What to draft now. */
struct draft_wish {
  int32_t levels, width, tokens;
  /* cumulative log-probabilities that a drafted token needs: for a level behind it to pay, and, of drawn ones, to pay itself */
  float expand_min, keep_min;
  bool sleeps; /* the drafter need not keep up with the sequence */
};
/* What is known of one sequence's drafts. Zero, but for the first two: nothing. */
struct draft_record {
  bool drawn;  /* its drafts are drawn, not the likeliest */
  bool fixed;  /* always up to the limits; teaches nothing */
  enum draft_mood { DRAFT_NEW, DRAFT_AWAKE, DRAFT_ASLEEP } mood;
  int32_t n_tries;          /* drafting rounds since it woke */
  float gain, levels;       /* running means of a drafting round: tokens it brings, less what their rows cost; levels behind the first */
  float round_chances, round_levels; /* of the round to come: drafts expected to stand; levels behind the first */
  float expected, accepted; /* fading sums: drafts accepted as all with their scores are, and really */
  int32_t n_idle, patience; /* rounds since it fell asleep; rounds before it wakes */
  int32_t n_running;        /* how many ran when it fell asleep */
};

struct controller;
struct controller *controller_create(bool adaptive);
void controller_free(struct controller *controller);

/* Measured: a target pass of n_rows; a catch-up of n_rows; a level of n_rows. Seconds. */
enum controller_cost { COST_TARGET, COST_CATCH_UP, COST_LEVEL, COST_KINDS };
void controller_measured(struct controller *controller, enum controller_cost kind, int32_t n_rows, double seconds);
/* Forgets what passes cost: those so far met cold memory. */
void controller_forget(struct controller *controller);
/* The rehearsal is over: what was measured so far is charged to nobody. */
void controller_start(struct controller *controller);

/* The sequences that moved in a step, before the drafter sees them. */
struct draft_plan {
  struct draft_record *const *records; /* [n] */
  const struct draft_limits *limits;   /* [n] of this round; levels 0: it cannot draft now */
  struct draft_wish *wishes;           /* [n] out */
  int32_t n, n_running;                /* n_running: sequences that share a target pass */
};
void controller_plan(struct controller *controller, const struct draft_plan *plan);

/* While drafting: the chance that a token of this cumulative log-probability is accepted, and whether a level pays that runs n_rows of
 * tokens whose chances add up so far. Neither knows which token was drawn behind which. */
double controller_chance(const struct controller *controller, const struct draft_record *record, float score);
bool controller_level_pays(const struct controller *controller, double chances, int32_t n_rows);

/* The proposals of a step, before they become rows of the next. */
struct draft_round {
  struct proposal *const *proposals;   /* [n] */
  struct draft_record *const *records; /* [n] */
  int32_t n;
  int32_t n_other; /* rows that the next step has in any case, beside a row for each of the n */
};
/* Keeps what pays, best first over all sequences together. Drawn tokens all stay: which of them are verified must not depend on what was
 * drawn (docs/EAGLE3.md), so that was decided before, by keep_min. */
void controller_trim(struct controller *controller, const struct draft_round *round);
/* A round is over: the proposal as it was verified, and which of its nodes stood. */
void controller_learn(struct controller *controller, struct draft_record *record, const struct proposal *proposal, const int32_t *stood,
                      int32_t n_stood);
/* One line: what it does now, and why. */
void controller_describe(const struct controller *controller, char *text, size_t size);

#endif
