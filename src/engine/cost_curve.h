/* cost_curve.h - what a pass of n rows costs, learnt from passes that ran. Owns no memory. A curve never falls: more rows never cost less,
 * whatever a noisy machine says. */
#ifndef EAGLET_ENGINE_COST_CURVE_H
#define EAGLET_ENGINE_COST_CURVE_H

#include "base/error.h"

#define COST_CURVE_EXACT 32 /* every row count up to here has a knot of its own, then eight of every doubling */
#define COST_CURVE_KNOTS 96

struct cost_curve {
  float seconds[COST_CURVE_KNOTS]; /* mean of the passes */
  float lifted[COST_CURVE_KNOTS];  /* the same, never less than what fewer rows cost */
  int32_t n_seen[COST_CURVE_KNOTS]; /* passes in it, 0: unknown */
};
/* Moves the knot of n_rows >= 1 towards a measured pass; one that is far off counts as twice or half of what is known. */
void cost_curve_add(struct cost_curve *curve, int32_t n_rows, double seconds);
/* Seconds of a pass of n_rows: between knots a straight line, past the last one on with its slope. 0 for 0 rows, and when nothing is known. */
double cost_curve_at(const struct cost_curve *curve, int32_t n_rows);

#endif
