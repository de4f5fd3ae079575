/* sampler.h - logits to a distribution, and a draw from it. Pure functions on arrays; randomness comes in as a number
 * in [0, 1). */
#ifndef EAGLET_ENGINE_SAMPLER_H
#define EAGLET_ENGINE_SAMPLER_H

#include "base/error.h"

struct sampling {
  float temperature; /* > 0 */
  int32_t top_k;     /* 0: all */
  float top_p;       /* 0 or 1: all */
};
/* In place: logits become probabilities (temperature, then top-k, then top-p, renormalised). order: [n] scratch. Ties
 * at a cut fall to the lower index. */
void sampler_distribution(float *values, int32_t n, const struct sampling *sampling, int32_t *order);
/* First index whose cumulative probability exceeds u; the last one with any mass when rounding leaves a gap. */
int32_t sampler_draw(const float *probability, int32_t n, double u);

#endif
