/* optimizer.h - how a gradient moves the parameters: AdamW, or Muon for the matrices and AdamW for the rest; and the moving average of the
 * parameters. Owns the moments (borrowed by the state file) and Muon's work space. Allocates when it is made, never in a step.
 *
 * AdamW: Loshchilov & Hutter 2019 (arXiv 1711.05101). Muon: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks";
 * Nesterov momentum, five steps of the quintic Newton-Schulz iteration, and the step scaled by 0.2 sqrt(max(rows, columns)) (Liu et al. 2025,
 * "Muon is scalable for LLM training", arXiv 2502.16982), so that its entries are as large as AdamW's and both take the same rate. Which
 * parameters: matrices that map features to features. lm_head and an embedding stay with AdamW, as do norms and biases (Jordan et al.;
 * speculators does so too).
 *
 * What is frozen is not touched, not even by weight decay.
 */
#ifndef EAGLET_TRAIN_OPTIMIZER_H
#define EAGLET_TRAIN_OPTIMIZER_H

#include "compute/training.h"
#include "draft/head_parameters.h"

struct optimizer {
  const struct eaglet_train_params *settings; /* resolved, borrowed, as the next two */
  const struct head_config *config;
  struct compute *compute;
  struct head_parameters *list; /* owned */
  int64_t n_parameters;         /* trained */
  float *m, *v;   /* [n_parameters] AdamW's moments; m is also Muon's momentum, where v stays zero */
  float *average; /* with --ema, else NULL: a whole block, what is frozen as it is */
  float *work;    /* of Muon: the direction, and what its iteration needs */
};
/* The borrowed fields are set by the caller; parameters are where the average starts (it is then set again by a state that is resumed). */
enum eaglet_status optimizer_init(struct optimizer *optimizer, const float *parameters, struct eaglet_error *err) MUST_USE;
/* One step; the rate is a share of --lr and of --muon-lr alike. */
struct optimizer_step {
  int64_t step;      /* from 1 */
  double rate;       /* lr of this step by the schedule of --lr */
  double grad_scale; /* clipping */
};
void optimizer_run(struct optimizer *optimizer, float *parameters, const float *gradients, const struct optimizer_step *step);
/* What is exported and evaluated. */
static inline const float *optimizer_result(const struct optimizer *optimizer, const float *parameters) {
  return optimizer->average ? optimizer->average : parameters;
}
void optimizer_release(struct optimizer *optimizer);

#endif
