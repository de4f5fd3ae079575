/* supervision.c - see supervision.h. */
#include "train/supervision.h"

#include <stdbool.h>

int32_t supervision_slots(const uint8_t *mask, int32_t n_tokens) {
  for (int32_t slot = n_tokens - 3; slot >= 0; slot--) {
    if (mask[slot + 1] && mask[slot + 2]) return slot + 1;
  }
  return 0;
}

void supervision_fill(uint8_t *loss_mask, int32_t *reply_begin, const uint8_t *mask, int32_t n_slots) {
  for (int32_t slot = 0; slot < n_slots; slot++) {
    loss_mask[slot] = mask[slot + 1] && mask[slot + 2];
    /* The run that holds x_{slot+1} goes on unless x_slot is outside it; a reply at the very start of a row has no slot
     * P-1. */
    bool first = slot == 0 || !mask[slot];
    reply_begin[slot] = first ? slot : reply_begin[slot - 1];
  }
}

void supervision_count(int64_t *counts, int32_t n_steps, const uint8_t *mask, int32_t n_tokens) {
  int32_t run = 0; /* supervised slots in a row, ending at this one, of one reply */
  for (int32_t slot = 0; slot + 2 < n_tokens; slot++) {
    run = mask[slot + 1] && mask[slot + 2] ? run + 1 : 0;
    /* This slot is the end of a roll-out of k steps from every slot of its run: step k has it iff the run is longer
     * than k. */
    for (int32_t k = 0; k < n_steps && k < run; k++) counts[k]++;
  }
}
