/* detokenizer.h - streaming decoder: bytes of tokens in, whole UTF-8 characters out; never half a character.
 * Bytes that can no longer become valid UTF-8 come out as U+FFFD, one per maximal invalid part, as Python's
 * errors="replace" does. */
#ifndef EAGLET_TEXT_DETOKENIZER_H
#define EAGLET_TEXT_DETOKENIZER_H

#include "text/tokenizer.h"

struct detokenizer {
  const struct tokenizer *tokenizer;
  char pending[8];
  int n_pending;
};
void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer);
void detokenizer_push(struct detokenizer *detokenizer, int32_t id, struct buffer *out); /* appends whole characters */
void detokenizer_finish(struct detokenizer *detokenizer, struct buffer *out);

#endif
