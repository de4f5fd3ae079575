/* supervision.c - see supervision.h. */
#include "train/supervision.h"

static bool own_rule(const struct supervised_row *row) {
  return row->rule == 0 || row->rule == EAGLET_MASK_OURS;
}

/* slot <= n_tokens - 2: it has a next token. */
static bool marked(const struct supervised_row *row, int32_t slot) {
  const uint8_t *mask = row->mask + slot;
  if (row->rule == EAGLET_MASK_SPECFORGE) return mask[0];
  if (row->rule == EAGLET_MASK_SPECULATORS) return mask[1];
  return slot + 2 < row->n_tokens && mask[1] && mask[2];
}

int32_t supervision_slots(const struct supervised_row *row) {
  for (int32_t slot = row->n_tokens - 2; slot >= 0; slot--) {
    if (marked(row, slot)) return slot + 1;
  }
  return 0;
}

void supervision_fill(uint8_t *loss_mask, int32_t *reply_begin, const struct supervised_row *row, int32_t n_slots) {
  for (int32_t slot = 0; slot < n_slots; slot++) {
    loss_mask[slot] = marked(row, slot);
    /* The run that holds x_{slot+1} goes on unless x_slot is outside it; a reply at the very start of a row has no slot
     * P-1. */
    bool first = slot == 0 || !row->mask[slot];
    reply_begin[slot] = !own_rule(row) ? 0 : first ? slot : reply_begin[slot - 1];
  }
}

void supervision_count(int64_t *counts, int32_t n_steps, const struct supervised_row *row) {
  int32_t run = 0; /* supervised slots in a row, ending at this one, of one reply */
  for (int32_t slot = 0; slot + 1 < row->n_tokens; slot++) {
    bool here = marked(row, slot);
    run = here ? run + 1 : 0;
    /* This slot is the end of a roll-out of k steps from every slot of its run (of its row, by the other rules): step k has it iff more than
     * k slots lead to it. */
    int32_t most = own_rule(row) ? run : here ? slot + 1 : 0;
    for (int32_t k = 0; k < n_steps && k < most; k++) counts[k]++;
  }
}
