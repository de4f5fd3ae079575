/* logprobs.c - see logprobs.h. One pass for the best few, one for the sum of exponentials (double), one for the rank.
 */
#include "engine/logprobs.h"

#include <math.h>

#define LANES 8

/* Best first; equal ones by id, since they come in that order. Returns how many. */
static int32_t take_best(struct eaglet_token_logprob *best, const float *logits, int32_t n, int32_t n_top) {
  int32_t n_best = 0;
  float least = -INFINITY; /* one must be above it to enter */
  for (int32_t i = 0; i < n; i++) {
    if (!(logits[i] > least)) continue;
    int32_t at = n_best < n_top ? n_best++ : n_top - 1;
    for (; at > 0 && best[at - 1].logprob < logits[i]; at--) best[at] = best[at - 1];
    best[at] = (struct eaglet_token_logprob){.token = i, .logprob = logits[i]};
    if (n_best == n_top) least = best[n_top - 1].logprob;
  }
  return n_best;
}

/* log of the sum of exp(logit); max: the largest, finite. */
static double log_sum(const float *logits, int32_t n, double max) {
  double lane[LANES] = {0}, sum = 0;
  for (int32_t i = 0; i < n; i++) {
    double x = (double)logits[i] - max;
    if (x >= -745) lane[i % LANES] += exp(x); /* below, exp is 0 */
  }
  for (int j = 0; j < LANES; j++) sum += lane[j];
  return max + log(sum);
}

static int32_t rank_of(const float *logits, int32_t n, int32_t token) {
  float value = logits[token];
  int32_t before = 0;
  if (value != value) value = -INFINITY;
  for (int32_t i = 0; i < n; i++) before += logits[i] > value;
  for (int32_t i = 0; i < token; i++) before += logits[i] == value;
  return before + 1;
}

int32_t logprobs_of(struct eaglet_token_logprob *out, const float *logits, int32_t n, int32_t token, int32_t n_top) {
  ASSERT(token >= 0 && token < n && n_top >= 0);
  float max = -INFINITY;
  for (int32_t i = 0; i < n; i++) max = logits[i] > max ? logits[i] : max;
  int32_t n_best = n_top > 0 ? take_best(out + 1, logits, n, n_top) : 0;
  double norm = max > -INFINITY ? log_sum(logits, n, (double)max) : 0;
  bool chance = logits[token] > -INFINITY;
  out[0] = (struct eaglet_token_logprob){.token = token,
                                  .logprob = chance ? (float)((double)logits[token] - norm) : -INFINITY,
                                  .rank = rank_of(logits, n, token)};
  for (int32_t i = 1; i <= n_best; i++) {
    out[i].logprob = (float)((double)out[i].logprob - norm);
    out[i].rank = i;
  }
  return 1 + n_best;
}
