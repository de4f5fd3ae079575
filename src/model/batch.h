/* batch.h - the rows of one forward call: decode, prefill, verification, drafting, extraction and evaluation differ only in
 * the batch they pass (decision 1). */
#ifndef EAGLET_MODEL_BATCH_H
#define EAGLET_MODEL_BATCH_H

#include "model/kv_cache.h"

struct batch_row {
  int32_t token;
  int32_t position;          /* rope position */
  int32_t slot;              /* where the row's KV entry goes; chains: slot == position */
  int32_t parent;            /* index in this batch of the tree parent, or -1: the row follows the sequence's slots 0..slot-1 */
  struct kv_sequence *kv;
  bool wants_logits;
};
/* Rows of one sequence stand in ascending slot order. A row sees every slot below it of its own sequence when parent is -1; with a
 * parent it sees what the root of its tree (the ancestor without parent) sees, the ancestors between them and itself. */
struct batch {
  struct batch_row *rows; /* [capacity] owned */
  int32_t n, capacity;
};
void batch_init(struct batch *batch, int32_t capacity);
void batch_reset(struct batch *batch);
struct batch_row *batch_add(struct batch *batch); /* zeroed row with parent -1; ASSERTs room */
void batch_release(struct batch *batch);

#endif
