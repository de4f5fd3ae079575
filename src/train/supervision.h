/* supervision.h - from a row's trained-token mask to the slots that learn.
 *
 * A reply is a run of trained tokens P..E (E: its end-of-turn token). Slot t holds the feature of x_t and the token
 * x_{t+1} and predicts x_{t+2}; at unrolled step k it predicts x_{t+2+k}. By our rule slot t learns at step k iff P-1 <= t and t+k
 * <= E-2 for one reply (docs/EAGLE3.md): the first draft of a reply is trained, no roll-out starts before its reply or
 * leaves it. In the terms of struct micro_batch: loss_mask marks the slots P-1..E-2 and reply_begin of such a slot is
 * P-1 (0 for a reply that opens its row). Replies that touch count as one. What this module does not know: whether the
 * target's argmax is in the draft vocabulary.
 *
 * The other rules are those of other trainers, for comparison: slot t learns at step k iff slot t+k is marked, wherever its roll-out began.
 *
 *   eagle        marked: P-1..E-2   SafeAILab/EAGLE, whose span offsets amount to that
 *   specforge    marked: P..E       SpecForge, TorchSpec: the mask is not shifted with the tokens
 *   speculators  marked: P-1..E-1   speculators, Model-Optimizer: the mask of the input token
 */
#ifndef EAGLET_TRAIN_SUPERVISION_H
#define EAGLET_TRAIN_SUPERVISION_H

#include "base/error.h"

struct supervised_row {
  const uint8_t *mask; /* [n_tokens] */
  int32_t n_tokens;
  enum eaglet_mask_rule rule; /* 0: ours */
};
/* Slots that the row needs: up to the last supervised one (keys look back only), at most n_tokens - 1. 0: nothing to learn. */
int32_t supervision_slots(const struct supervised_row *row);
/* loss_mask[n_slots] and reply_begin[n_slots] (row-relative slots) of the first n_slots <= supervision_slots slots. */
void supervision_fill(uint8_t *loss_mask, int32_t *reply_begin, const struct supervised_row *row, int32_t n_slots);
/* Adds the number of supervised slots of every step k < n_steps to counts[k]. */
void supervision_count(int64_t *counts, int32_t n_steps, const struct supervised_row *row);

#endif
