/* cost_curve.c - see cost_curve.h. */
#include "engine/cost_curve.h"

#include <math.h>

#define MEAN_OF 16 /* passes that a knot remembers */

static int32_t knot_of(int32_t n_rows) {
  if (n_rows <= COST_CURVE_EXACT) return n_rows - 1;
  int32_t knot = COST_CURVE_EXACT - 1 + (int32_t)ceil(8 * log2((double)n_rows / COST_CURVE_EXACT));
  return knot < COST_CURVE_KNOTS ? knot : COST_CURVE_KNOTS - 1;
}

static double rows_of(int32_t knot) {
  return knot < COST_CURVE_EXACT ? knot + 1 : COST_CURVE_EXACT * exp2((knot - COST_CURVE_EXACT + 1) / 8.0);
}

void cost_curve_add(struct cost_curve *c, int32_t n_rows, double seconds) {
  int32_t k = knot_of(n_rows);
  double known = c->seconds[k];
  if (c->n_seen[k] > 0) seconds = fmin(fmax(seconds, known / 2), known * 2);
  if (c->n_seen[k] < MEAN_OF) c->n_seen[k]++;
  c->seconds[k] = (float)(known + (seconds - known) / c->n_seen[k]);
}

/* A knot that is known: its rows, and its seconds lifted to what fewer rows cost. */
struct point {
  double rows, seconds;
};

static double line(struct point a, struct point b, double rows) {
  return a.seconds + (b.seconds - a.seconds) * (rows - a.rows) / (b.rows - a.rows);
}

double cost_curve_at(const struct cost_curve *c, int32_t n_rows) {
  struct point before = {0}, last = {0};
  int32_t n = 0;
  if (n_rows <= 0) return 0;
  for (int32_t k = 0; k < COST_CURVE_KNOTS; k++) {
    if (c->n_seen[k] == 0) continue;
    struct point at = {rows_of(k), fmax(c->seconds[k], last.seconds)};
    if (at.rows >= n_rows) return n == 0 ? at.seconds : line(last, at, n_rows);
    before = last;
    last = at;
    n++;
  }
  return n < 2 ? last.seconds * (n ? n_rows / last.rows : 0) : line(before, last, n_rows);
}
