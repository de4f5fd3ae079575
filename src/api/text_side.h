/* text_side.h - the text of a sequence's output: decoded as tokens join, watched for stop strings, and constrained. The engine knows ids
 * only; this is what src/eaglet.c joins to it. Owns decoder, matchers and text; belongs to its sequence, which frees it.
 */
#ifndef EAGLET_API_TEXT_SIDE_H
#define EAGLET_API_TEXT_SIDE_H

#include "engine/engine.h"
#include "text/constraint_matcher.h"
#include "text/tokenizer.h"

struct text_side_params {
  const struct tokenizer *tokenizer;
  const int32_t *prompt; /* [n_prompt] text that the output continues; n_prompt 0: it is a text of its own */
  int32_t n_prompt;
  const char *const *stops; /* [n_stops] */
  size_t n_stops;
  bool keep_stop; /* the stop string is part of the text */
  const struct constraint *constraint; /* NULL: any text; borrowed, with the vocabulary */
  const struct constraint_vocabulary *vocabulary;
};
struct text_side;
enum eaglet_status text_side_create(struct text_side **side, const struct text_side_params *params, struct eaglet_error *err) MUST_USE;
/* Gives the side to the sequence: tokens flow, and it is freed with the sequence. */
void text_side_join(struct text_side *side, struct sequence *sequence);
/* The text that may be shown so far: without what may still become a stop string, without half a character, without the stop string and
 * without special tokens. All of it when `over`. NUL-terminated, valid until the next step. */
const char *text_side_text(struct text_side *side, bool over, size_t *length);

#endif
