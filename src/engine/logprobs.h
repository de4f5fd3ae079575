/* logprobs.h - log-probabilities of a row, for those who ask what else could have been said. Of the logits as they are:
 * the caller decides whether those are the model's own or processed and divided by the temperature. Pure. */
#ifndef EAGLET_ENGINE_LOGPROBS_H
#define EAGLET_ENGINE_LOGPROBS_H

#include "base/error.h"

/* out: [1 + n_top] the chosen token, then the n_top likeliest, likeliest first (the chosen one is among them again when
 * it is one). Returns how many were written: fewer when fewer tokens have a chance. A logit of -inf, or one that is no
 * number, has none; +inf is not expected.
 * For small n_top: the time may grow with n * n_top. */
int32_t logprobs_of(struct eaglet_token_logprob *out, const float *logits, int32_t n, int32_t token, int32_t n_top);

#endif
