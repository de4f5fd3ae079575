/* sampler.h - logits to a choice: what one sequence wants of its tokens, and the arithmetic of it.
 *
 * The order is vLLM's: allowed ids, banned ids, bias, penalties (repetition, frequency, presence), then either the
 * best or temperature, min-p, top-k, top-p and a draw. Everything is a pure function of its arguments and of the
 * tokens noted so far; randomness comes in as a number in [0, 1). Nothing allocates after sampler_create.
 *
 * A logit of -inf, or one that is no number, has no chance: it is never the best and its probability is 0.
 */
#ifndef EAGLET_ENGINE_SAMPLER_H
#define EAGLET_ENGINE_SAMPLER_H

#include "base/error.h"

#define SAMPLING_TEMPERATURE_MAX 100.0
#define SAMPLING_PENALTY_MAX 2.0 /* frequency and presence, either sign */

/* Zero: greedy, nothing changed. */
struct sampling {
  float temperature; /* 0: greedy */
  int32_t top_k;     /* 0: all */
  float top_p;       /* 0 or 1: all; else the shortest head with at least this mass, so the crossing token stays */
  float min_p;       /* 0: off; at the temperature, tokens below min_p * p(best) go */
  float repetition_penalty; /* 0 or 1: off; logits of tokens in prompt or output: > 0 divided, < 0 multiplied by it */
  float frequency_penalty, presence_penalty; /* 0: off; taken from logits of output tokens, per time and once */
  const struct eaglet_logit_bias *bias;             // [n_bias] each token once
  int32_t n_bias;
};

struct sampler;
/* Copies the biases. Refuses (EAGLET_E_USAGE) what is out of range, is no number or names no id, by name. Counts of
 * tokens take memory only where a penalty asks for them. */
enum eaglet_status sampler_create(struct sampler **sampler, const struct sampling *sampling, int32_t n_vocab,
                                  struct eaglet_error *err) MUST_USE;
void sampler_free(struct sampler *sampler);
/* What it was made with; bias points to its own copy. */
const struct sampling *sampler_sampling(const struct sampler *sampler);
/* No bias, no penalty: sampler_process changes logits only for its masks. */
bool sampler_is_raw(const struct sampler *sampler);

/* A token joined the context: of the prompt, or of the output. */
void sampler_note(struct sampler *sampler, int32_t token, bool is_output);

/* In place, logits: [n_vocab] of the row after everything noted. allowed: a bit per id, least significant first, or
 * NULL; banned ids lie in the vocabulary. */
void sampler_process(const struct sampler *sampler, float *logits, const uint32_t *allowed, const int32_t *banned,
                     int32_t n_banned);

/* In place: processed logits become probabilities (temperature, min-p, top-k, top-p, renormalised); only those four of
 * sampling are looked at. order: [n] scratch. Ties at a cut fall to the lower index. Temperature 0 is all on the best.
 * All zero when nothing has a chance. */
void sampler_distribution(float *values, int32_t n, const struct sampling *sampling, int32_t *order);

/* First index whose cumulative probability exceeds u; the last one with any mass when rounding leaves a gap; -1 when
 * nothing has any. */
int32_t sampler_draw(const float *probability, int32_t n, double u);

/* The largest, ties to the lowest index; -1 when nothing has a chance. */
int32_t sampler_best(const float *logits, int32_t n);

#endif
