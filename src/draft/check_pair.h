/* check_pair.h - does a head fit a target? Walks sizes, norms, rope, states, vocabulary, in that order, and names the
 * first mismatch; then a numeric probe: teacher-forced top-1 agreement and mean surprise (nats) of the head on a greedy
 * continuation, for the recorded state numbers and their neighbours (every state - 1, + 1), and warns when a neighbour
 * wins clearly (D02). */
#ifndef EAGLET_DRAFT_CHECK_PAIR_H
#define EAGLET_DRAFT_CHECK_PAIR_H

#include "draft/head.h"

/* *report: {"ok":…, "checks":[{"part","ok","detail"}…],
 * "probe":{"agreement":{"2,4,5":0.42,…},"surprise":{…},"pairs","shift":0}}; the probe is left out when a part does not
 * fit. Caller owns it. EAGLET_E_CHECK with the first mismatch in err when it does not fit. */
enum eaglet_status check_pair_run(json_t **report, const struct model *target, const char *draft_directory,
                                  struct eaglet_error *err) MUST_USE;

#endif
