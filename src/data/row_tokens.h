/* row_tokens.h - rows that are token ids already: ids and what is learnt of them. Only conversation.c uses it. */
#ifndef EAGLET_DATA_ROW_TOKENS_H
#define EAGLET_DATA_ROW_TOKENS_H

#include "data/row_layout.h"

struct row_tokens_read {
  int32_t *ids; /* [n] heap, the caller's */
  uint8_t *mask; /* [n] 0 or 1, heap, the caller's */
  size_t n;
};
/* Same lengths; ids from 0; a mask of 0 and 1 (or false and true), or labels that are -100 or the id itself. Positions that the attention mask
 * leaves out (padding) are left out; they cannot be learnt. That ids are the target's is the caller's check. Nothing is set on failure. */
enum eaglet_status row_tokens_read(struct row_tokens_read *tokens, const struct row_reading *reading, struct eaglet_error *err) MUST_USE;

#endif
