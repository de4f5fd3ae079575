/* round.h - one speculative round as a state machine, and the acceptance rules as pure functions.
 *
 *   WAITING --(admitted: a place and memory)--> PREFILL --(all committed tokens but the last are in the KV)--> PROPOSE
 *   PROPOSE --(the last token and the drafts, possibly none, are rows of the batch)--> VERIFY --(target rows back)--> ACCEPT
 *   ACCEPT --(how many stand, one token more)--> COMMIT --(tokens joined, next drafts made)--> PROPOSE or DONE
 *   PREFILL and PROPOSE --(preempted: memory given up, tokens and drafts kept)--> WAITING
 *
 * Plain decoding is a round with an empty proposal; so is a prompt's first token. The law of accepted tokens is exactly the target's
 * (docs/EAGLE3.md).
 */
#ifndef EAGLET_ENGINE_ROUND_H
#define EAGLET_ENGINE_ROUND_H

#include "draft/tree.h"

enum round_state { ROUND_WAITING, ROUND_PREFILL, ROUND_PROPOSE, ROUND_VERIFY, ROUND_ACCEPT, ROUND_COMMIT, ROUND_DONE };
/* The state that follows; finished: the sequence ended in this round. ASSERTs that the transition exists. */
enum round_state round_advance(enum round_state state, bool finished);
enum round_state round_preempt(enum round_state state); /* WAITING; ASSERTs PREFILL or PROPOSE */

/* What follows one verified row: the child that stands, or -1 and the token that the target chose instead. */
struct round_choice {
  int32_t child; /* index into the children, or -1 */
  int32_t token;
};
/* The target chose `best`; children: [n] tokens drafted behind the row. */
struct round_choice round_choose_greedy(const int32_t *children, int32_t n, int32_t best);

struct round_law {
  const int32_t *children; /* [n] target ids */
  int32_t n;
  float *p;                /* [n_target] the target's distribution; overwritten with the residual when a drawn child falls */
  /* The distribution that the one child was drawn from; NULL: the children were chosen without chance (trees, n-grams). */
  const float *q;          /* [n_draft] */
  const int32_t *draft_of; /* [n_target] draft id of a target id, or -1; NULL: the same ids */
  int32_t n_target;
  double accept_u, token_u; /* in [0, 1); accept_u: of a drawn child */
};
/* Drawn children: Leviathan et al. 2023, accept with min(1, p/q), at a rejection draw from max(p - q, 0) normalised. Chosen children: a
 * token is drawn from p, and the child that it is stands. A child stands with what p gives it, as when each is tried in turn and leaves p at
 * its rejection (eagle3.md §1.7), and what is said depends on p and the draw alone, whatever was drafted. Both give exactly p. */
struct round_choice round_choose_sampled(const struct round_law *law);

#endif
