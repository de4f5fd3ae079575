/* round.h - one speculative round as a state machine, and the acceptance rules as pure functions.
 *
 *   PREFILL --(last prompt row forwarded: first token chosen)--> PROPOSE --(drafts made, possibly none)--> VERIFY
 *   VERIFY --(target rows back)--> ACCEPT --(how many stand, bonus)--> COMMIT --(tokens joined, head KV rebuilt)-->
 * PROPOSE or DONE
 *
 * Plain decoding is a round with an empty proposal. The law of accepted tokens is exactly the target's
 * (docs/EAGLE3.md).
 */
#ifndef EAGLET_ENGINE_ROUND_H
#define EAGLET_ENGINE_ROUND_H

#include "base/error.h"

#define DRAFT_LEN_MAX 15

enum round_state { ROUND_PREFILL, ROUND_PROPOSE, ROUND_VERIFY, ROUND_ACCEPT, ROUND_COMMIT, ROUND_DONE };
/* The state that follows; ASSERTs that the transition exists. */
enum round_state round_advance(enum round_state state, bool finished);

struct round_outcome {
  int32_t n_accepted; /* drafts that stand */
  int32_t bonus;      /* the token after them */
};

/* best: [n_drafts + 1] the target's argmax after the last committed token and after each draft. */
struct round_outcome round_accept_greedy(const int32_t *drafts, int32_t n_drafts, const int32_t *best);

struct round_sampled {
  const int32_t *drafts; /* [n_drafts] target ids */
  int32_t n_drafts;
  float *p; /* [n_drafts + 1, n_target] target distributions; the row of a rejection is overwritten with the residual */
  const float *q;          /* [n_drafts, n_draft] the distributions the drafts were drawn from */
  const int32_t *draft_of; /* [n_target] draft id of a target id, or -1 */
  int32_t n_target, n_draft;
  const double *accept_u, *bonus_u; /* [n_drafts], [n_drafts + 1] in [0, 1) */
};
/* Leviathan et al. 2023: accept with min(1, p/q); at the first rejection draw from max(p - q, 0) normalised. */
struct round_outcome round_accept_sampled(const struct round_sampled *r);

#endif
