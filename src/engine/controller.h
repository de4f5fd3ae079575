/* controller.h - how much to draft. Fixed limits, or adaptive: it knows what a target pass of n rows, a level of drafts and a catch-up
 * cost (measured at open and ever after), and how often drafts of a given score were accepted; from both it says which drafts pay.
 *
 * The yardstick is time per token: a drafted token is worth its chance of acceptance times what a token costs without it. Speculation
 * that does not pay is left out, tried again now and then, and says so (controller_describe). It decides speed only, never output.
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
  float score_min; /* drafts whose cumulative log-probability is lower are not worth their cost */
};
/* What one sequence's drafts brought lately. Zero: nothing known. */
struct draft_record {
  float accepted;     /* running mean of accepted tokens per drafting round */
  int32_t n_rounds;   /* drafting rounds in it */
  int32_t n_idle;     /* rounds since the last drafting one */
  int32_t patience;   /* idle rounds before the next try */
};

#define CONTROLLER_ROWS_MAX 1024
struct controller;
struct controller *controller_create(bool adaptive, int32_t levels_max);
void controller_free(struct controller *controller);

/* Measured: a target pass of n_rows; a catch-up of n_rows; a level of n_rows. Seconds. */
enum controller_cost { COST_TARGET, COST_CATCH_UP, COST_LEVEL, COST_KINDS };
void controller_measured(struct controller *controller, enum controller_cost kind, int32_t n_rows, double seconds);

/* For one of n_running sequences that verify in the next step together. */
struct draft_wish controller_wish(struct controller *controller, struct draft_record *record, const struct draft_limits *limits,
                                  int32_t n_running);
/* Keeps of the proposals what pays, best first, over all sequences together: at most rows_max rows with one per sequence. */
void controller_trim(struct controller *controller, struct proposal *const *proposals, int32_t n, int32_t rows_max);
/* A round is over: the proposal as it was verified, and which of its nodes stood. */
void controller_learn(struct controller *controller, struct draft_record *record, const struct proposal *proposal, const int32_t *stood,
                      int32_t n_stood);
void controller_describe(const struct controller *controller, char *text, size_t size);

#endif
