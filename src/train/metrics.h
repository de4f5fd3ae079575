/* metrics.h - out/metrics.jsonl: one line per optimizer step and one per evaluation. Append-only within a run; resuming
 * cuts it back to the saved state, so that every step stands in it once. */
#ifndef EAGLET_TRAIN_METRICS_H
#define EAGLET_TRAIN_METRICS_H

#include "base/json.h"

struct step_result {
  int64_t step;
  int32_t n_steps; /* unrolled */
  double loss, step_loss[16], lr, grad_norm;
  int64_t slots[16], hits[16], masked[16]; /* with loss; target's choice hit; supervised, out-of-vocabulary included */
  double acceptance[16];                   /* sum over the slots with loss of sum_v min(p_v, q_v) */
  int64_t n_tokens;                        /* slots of the batch */
  double seconds, head_seconds, flops; /* all; of the head's arithmetic and the optimizer; useful operations of those */
};
static inline double step_accuracy(const struct step_result *r, int32_t k) {
  return r->masked[k] ? (double)r->hits[k] / (double)r->masked[k] : 0;
}
/* The chance that a drawn draft is accepted. As in the accuracy, a slot that was dropped counts as nothing. */
static inline double step_acceptance(const struct step_result *r, int32_t k) {
  return r->masked[k] ? r->acceptance[k] / (double)r->masked[k] : 0;
}

char *metrics_path(const char *out); /* heap */
enum eaglet_status metrics_append_step(const char *out, const struct step_result *result,
                                       struct eaglet_error *err) MUST_USE;
/* {"step", "acceptance_length", "sources": {name: acceptance length}} of an eval document. */
enum eaglet_status metrics_append_eval(const char *out, int64_t step, const json_t *eval,
                                       struct eaglet_error *err) MUST_USE;
/* Cuts the file to length; a shorter file (lost lines) is a warning, not an error: the state decides. */
enum eaglet_status metrics_rewind(const char *out, int64_t length, struct eaglet_error *err) MUST_USE;

#endif
