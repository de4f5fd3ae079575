/* batch.h - the rows of one forward call: decode, prefill, verification, drafting, extraction and evaluation differ only in
 * the batch they pass (decision 1). */
#ifndef EAGLET_MODEL_BATCH_H
#define EAGLET_MODEL_BATCH_H

#include "model/kv_cache.h"

struct batch_row {
  int32_t token;
  int32_t position;          /* rope position */
  int32_t slot;              /* where the row's KV entry goes; chains: slot == position */
  int32_t n_prefix;          /* 0: a chain row, which sees slots 0 .. slot. Else a tree row: it sees slots 0 .. n_prefix-1, ... */
  const int32_t *path;       /* ... then path[0 .. n_path-1], its ancestors in the tree from the top (borrowed until the run returns), ... */
  int32_t n_path;            /* ... then itself */
  struct kv_sequence *kv;
  bool wants_logits;
};
/* Rows of one sequence stand in ascending slot order. A row's ancestors may stand earlier in the same batch or be entries of
 * earlier runs. The order of what it sees is its context: the same bits as a chain row that sees the same entries. */
struct batch {
  struct batch_row *rows; /* [capacity] owned */
  int32_t n, capacity;
};
void batch_init(struct batch *batch, int32_t capacity);
void batch_reset(struct batch *batch);
struct batch_row *batch_add(struct batch *batch); /* zeroed row; ASSERTs room */
void batch_release(struct batch *batch);

#endif
