/* law.h - is it the same law? Chi-square tests with their p-value, for tests that draw with fixed seeds (so they pass
 * always or never). */
#ifndef EAGLET_TESTS_LAW_H
#define EAGLET_TESTS_LAW_H

#include <math.h>
#include <stdint.h>

/* Upper regularised incomplete gamma Q(a, x): series below a + 1, Lentz's continued fraction above. */
static inline double gamma_upper(double a, double x) {
  double scale = exp(a * log(x) - x - lgamma(a));
  if (x <= 0) return 1;
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < 2000; n++) {
      term *= x / (a + n);
      sum += term;
    }
    return 1 - sum * scale;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int n = 1; n < 2000; n++) {
    double an = -n * (n - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
  }
  return scale * h;
}

static inline double chi_square_p(double chi, int degrees) {
  return degrees < 1 ? 1 : gamma_upper(degrees / 2.0, chi / 2);
}

/* Counts against probabilities; bins with less than 5 expected are pooled. */
static inline double law_p(const int64_t *counts, const double *probability, int n_bins, int64_t n) {
  double chi = 0, rest_expected = 0, rest = 0;
  int degrees = -1;
  for (int i = 0; i < n_bins; i++) {
    double expected = probability[i] * (double)n;
    if (expected < 5) {
      rest_expected += expected;
      rest += (double)counts[i];
      continue;
    }
    chi += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    degrees++;
  }
  if (rest > 0 && rest_expected <= 0) return 0; /* what cannot be was drawn */
  if (rest_expected >= 1) {
    chi += (rest - rest_expected) * (rest - rest_expected) / rest_expected;
    degrees++;
  }
  return chi_square_p(chi, degrees);
}

/* Two samples of equal size; bins with less than 10 together are pooled. */
static inline double same_law_p(const int64_t *a, const int64_t *b, int n_bins) {
  double chi = 0, rest_a = 0, rest_b = 0;
  int degrees = -1;
  for (int i = 0; i < n_bins; i++) {
    double x = (double)a[i], y = (double)b[i];
    if (x + y < 10) {
      rest_a += x;
      rest_b += y;
      continue;
    }
    chi += (x - y) * (x - y) / (x + y);
    degrees++;
  }
  if (rest_a + rest_b >= 10) {
    chi += (rest_a - rest_b) * (rest_a - rest_b) / (rest_a + rest_b);
    degrees++;
  }
  return chi_square_p(chi, degrees);
}

#endif
