/* detokenizer.h - streaming decoder: ids in, whole UTF-8 characters out; never half a character. The pieces put together are
 * what Hugging Face's tokenizers decode the whole list to.
 *
 * Bytes that cannot become valid UTF-8 come out as U+FFFD, one per maximal invalid part, as Python's errors="replace" does;
 * with byte-fallback tokens (<0xHH>) a run of them is text only when all of it is valid, else one U+FFFD a byte, so a run comes
 * out when it ends (or grows past the buffer). The space that a SentencePiece text begins with is dropped.
 */
#ifndef EAGLET_TEXT_DETOKENIZER_H
#define EAGLET_TEXT_DETOKENIZER_H

#include "text/tokenizer.h"

struct detokenizer {
  const struct tokenizer *tokenizer;
  bool skip_special; /* leave special tokens out; set after init */
  bool started;      /* a token has come out */
  int n_strip;       /* how many characters may still be dropped at the start of the text */
  int n_held;        /* characters held back because they would be dropped at the end of the text */
  char pending[8];   /* bytes of an unfinished character */
  int n_pending;
  char run[128];     /* byte-fallback tokens since the last other one */
  int n_run;
};
void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer);
void detokenizer_push(struct detokenizer *detokenizer, int32_t id, struct buffer *out); /* appends whole characters */
void detokenizer_finish(struct detokenizer *detokenizer, struct buffer *out);

#endif
