/* head_training.h - the head as the trainer sees it: the unrolled forward of the training-time test over slots, keeping
 * what backward needs, and the hand-written backward. The only code (with src/train) that knows gradients. Algorithm:
 * docs/EAGLE3.md.
 *
 * A micro-batch is S slots of whole conversations ("segments") one after the other. Slot t of a segment holds feature
 * h_t, and at step k the token x_{t+1+k}, rope position t_in_segment + k, and target row of slot t+k (the target
 * distribution over x_{t+2+k}). Only slots that still carry loss at some step >= k are computed at step k ("active
 * rows"): exact, since later keys are diagonal. Keys and values of step 0 are computed for all slots.
 *
 * What inference knows of heads (struct head_config: wiring, several layers, latent attention, windows, biases, norms, an embedding of its own) is
 * trained, except a target's own prediction layer. Memory is planned once, for slots_max slots: docs/EAGLE3.md has the sum.
 */
#ifndef EAGLET_DRAFT_HEAD_TRAINING_H
#define EAGLET_DRAFT_HEAD_TRAINING_H

#include "compute/training.h"
#include "draft/head_parameters.h"

struct head_training;
struct head_training_params {
  const struct head_config *config;
  struct compute *compute;
  int32_t slots_max, unroll_max;
  int32_t positions; /* of the rope table, as inference has them (some scalings follow their number); 0: what a segment of slots_max takes */
  bool recompute;    /* activations of one step instead of all: less memory, a forward more, the same bits */
};
enum eaglet_status head_training_create(struct head_training **training, const struct head_training_params *params,
                                        struct eaglet_error *err) MUST_USE;
void head_training_free(struct head_training *training);

struct micro_batch {
  int32_t n_slots, n_steps;
  const int32_t *segment_first;  /* [S] first slot of the slot's segment */
  const int32_t *segment_length; /* [S] slots of its segment */
  const float *features;         /* [S, n_states*H] */
  const float *embeddings; /* [S, H] embedding of x_{t+1} (slot t); step k reads slot t+k's row, zeros past the segment
                              unless pad_embedding. Not read when the head has an embedding of its own */
  const int32_t *tokens;   /* [S] x_{t+1}; read when the head has an embedding of its own, else may be NULL */
  const float
      *pad_embedding;  /* [H] embedding used past the segment's end (the reference uses token 0), or NULL: zeros */
  const float *target; /* [n_target_rows, Vd] probabilities */
  const int32_t *target_row; /* [S] row of target for slot t's own distribution (over x_{t+2}), or -1: none / outside
                                the draft vocabulary */
  const uint8_t *loss_mask;  /* [S] slot t supervised at step 0; step k uses slot t+k's mask */
  const int32_t
      *reply_begin; /* [S] or NULL. Slot t counts at step k only if t >= reply_begin[t+k]: roll-outs that start before
                       the reply they end in are left out. NULL: the reference's rule, which keeps them */
  bool compute_all; /* compute every row of every step, loss or not (tests) */
  float loss_scale; /* loss_k = loss_scale * sum over slots; e.g. 1/(B*T) or 1/number of supervised slots */
  const float *step_weight; /* [n_steps] decay^k */
};
struct micro_result {
  double step_loss[16]; /* loss_scale * sum */
  int64_t step_slots[16], step_hits[16],
      step_masked[16]; /* with loss; argmax equal; mask set (out-of-vocabulary included) */
};
/* Forward of all steps. Logits exist only chunk by chunk, so the gradient of lm_head is made here: with gradients (same
 * layout as parameters) not NULL it is added to them, and backward must follow; with NULL this is an evaluation. */
void head_training_forward(struct head_training *training, const float *parameters, const struct micro_batch *batch,
                           float *gradients, struct micro_result *result);
/* Adds d(total loss)/d(every other parameter) to gradients. Must follow forward of the same batch with the same
 * gradients. */
void head_training_backward(struct head_training *training, const float *parameters, const struct micro_batch *batch,
                            float *gradients);
/* Test access: pre-norm hidden z of step k, rows in active order with slots in *slots. */
int32_t head_training_hidden(const struct head_training *training, int32_t step, const int32_t **slots,
                             const float **hidden);
double head_training_flops(
    const struct head_training *training); /* multiply-adds times two of the last forward and its backward */
size_t head_training_bytes(const struct head_training *training); /* of activations, whatever a batch needs of them */

#endif
