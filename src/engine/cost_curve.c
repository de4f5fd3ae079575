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
  static const double eighths[8] = {1, 1.0905077326652577, 1.189207115002721, 1.2968395546510096, 1.4142135623730951,
                                    1.5422108254079407, 1.681792830507429, 1.8340080864093424}; /* 2^(i/8) */
  int32_t past = knot - (COST_CURVE_EXACT - 1);
  return past <= 0 ? knot + 1 : (double)(COST_CURVE_EXACT << past / 8) * eighths[past % 8];
}

/* The nearest knot that is known, from k on downwards; -1: none. */
static int32_t known_below(const struct cost_curve *c, int32_t k) {
  while (k >= 0 && c->n_seen[k] == 0) k--;
  return k;
}

/* From knot `first` on, after it changed. */
static void lift(struct cost_curve *c, int32_t first) {
  int32_t below = known_below(c, first - 1);
  float most = below < 0 ? 0 : c->lifted[below];
  for (int32_t k = first; k < COST_CURVE_KNOTS; k++) {
    if (c->n_seen[k] > 0) c->lifted[k] = most = fmaxf(most, c->seconds[k]);
  }
}

void cost_curve_add(struct cost_curve *c, int32_t n_rows, double seconds) {
  int32_t k = knot_of(n_rows);
  double known = c->seconds[k];
  if (c->n_seen[k] > 0) seconds = fmin(fmax(seconds, known / 2), known * 2);
  if (c->n_seen[k] < MEAN_OF) c->n_seen[k]++;
  c->seconds[k] = (float)(known + (seconds - known) / c->n_seen[k]);
  lift(c, k);
}

static double line(const struct cost_curve *c, int32_t a, int32_t b, double rows) {
  double from = rows_of(a), slope = ((double)c->lifted[b] - c->lifted[a]) / (rows_of(b) - from);
  return c->lifted[a] + slope * (rows - from);
}

double cost_curve_at(const struct cost_curve *c, int32_t n_rows) {
  if (n_rows <= 0) return 0;
  int32_t k = knot_of(n_rows), below = known_below(c, k - 1), above = k;
  while (above < COST_CURVE_KNOTS && c->n_seen[above] == 0) above++;
  if (above < COST_CURVE_KNOTS) return below < 0 ? c->lifted[above] : line(c, below, above, n_rows);
  int32_t before = known_below(c, below - 1);
  if (before >= 0) return line(c, before, below, n_rows);
  return below < 0 ? 0 : (double)c->lifted[below] * n_rows / rows_of(below);
}
