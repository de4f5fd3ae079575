/* text_side.c - see text_side.h. */
#include "api/text_side.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/util.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"

#include <stdlib.h>

#define TEXT_RESERVED 4096 /* bytes that a text takes without growing */

struct text_side {
  struct detokenizer decoder;
  struct buffer text;
  struct buffer shown;        /* the part of the text that was handed out, which only grows */
  struct stop_matcher *stops; /* NULL: none */
  bool keep_stop, matched, finished;
  struct stop_match match;
  struct constraint_matcher *matcher; /* NULL: unconstrained */
  struct constraint_source source;
  void *own; /* the sequence's own constraint state */
  bool told;
};

/* ---- constraint ---- */

static void start(void *context, void *state) {
  struct text_side *side = context;
  side->own = state;
  *(uint32_t *)state = constraint_matcher_start(side->matcher);
}

/* A mask that cannot be made is the stop tokens alone: the text ends, and says why. */
static const uint32_t *allowed(void *context, const void *state) {
  struct text_side *side = context;
  const uint32_t *mask;
  struct eaglet_error err;
  if (state == side->own) constraint_matcher_trim(side->matcher, side->own, 1); /* drafts are made anew from it */
  if (constraint_matcher_mask(side->matcher, *(const uint32_t *)state, &mask, &err) != EAGLET_OK && state == side->own && !side->told) {
    side->told = true;
    log_warning("a constrained text ends early: %s", err.message);
  }
  return mask;
}

static bool advance(void *context, void *state, int32_t token) {
  return constraint_matcher_advance(((struct text_side *)context)->matcher, state, token);
}

static bool is_over(void *context, const void *state) {
  return constraint_matcher_must_end(((struct text_side *)context)->matcher, *(const uint32_t *)state);
}

/* ---- text ---- */

/* Text from `begin` on is new. early: a stop in it is text. */
static bool watch(struct text_side *side, size_t begin, bool early) {
  const char *bytes = side->text.data + begin;
  size_t n = side->text.length - begin;
  if (n == 0 || !side->stops || side->matched) return false;
  if (early)
    stop_matcher_pass(side->stops, bytes, n);
  else
    side->matched = stop_matcher_push(side->stops, bytes, n, &side->match);
  return side->matched;
}

static bool take_token(void *context, int32_t token, enum token_role role) {
  struct text_side *side = context;
  size_t begin = side->text.length;
  if (role == TOKEN_STOPS) return false; /* it is no text */
  detokenizer_push(&side->decoder, token, &side->text);
  return watch(side, begin, role == TOKEN_EARLY);
}

/* Bytes of the text that may be shown. */
static size_t showable(const struct text_side *side, bool over) {
  if (side->matched) return side->keep_stop ? side->match.end : side->match.begin;
  return over || !side->stops ? side->text.length : stop_matcher_n_safe(side->stops);
}

const char *text_side_text(struct text_side *side, bool over, size_t *length) {
  if (over && !side->matched && !side->finished) {
    size_t begin = side->text.length;
    side->finished = true;
    detokenizer_finish(&side->decoder, &side->text);
    watch(side, begin, false);
  }
  size_t end = showable(side, over);
  ASSERT(end >= side->shown.length);
  buffer_append(&side->shown, side->text.data + side->shown.length, end - side->shown.length);
  *length = end;
  return side->shown.data;
}

/* ---- lifetime ---- */

static void release(void *context) {
  struct text_side *side = context;
  constraint_matcher_free(side->matcher);
  stop_matcher_free(side->stops);
  buffer_clear(&side->text);
  buffer_clear(&side->shown);
  free(side);
}

static enum eaglet_status fill(struct text_side *side, const struct text_side_params *p, struct eaglet_error *err) {
  const struct constraint_matcher_params matcher = {.constraint = p->constraint, .vocabulary = p->vocabulary};
  side->decoder.skip_special = true;
  for (int32_t i = 0; i < p->n_prompt; i++) detokenizer_push(&side->decoder, p->prompt[i], &side->text);
  buffer_reset(&side->text);
  if (p->n_stops > 0) TRY(stop_matcher_create(&side->stops, p->stops, p->n_stops, err));
  if (p->constraint) TRY(constraint_matcher_create(&side->matcher, &matcher, err));
  return EAGLET_OK;
}

enum eaglet_status text_side_create(struct text_side **out, const struct text_side_params *p, struct eaglet_error *err) {
  struct text_side *side = memory_alloc(sizeof *side);
  *side = (struct text_side){.keep_stop = p->keep_stop, .source = {.context = side,
                                                                   .state_bytes = sizeof(uint32_t),
                                                                   .start = start,
                                                                   .allowed = allowed,
                                                                   .advance = advance,
                                                                   .is_over = is_over}};
  *out = NULL;
  buffer_init(&side->text);
  buffer_reserve(&side->text, TEXT_RESERVED);
  buffer_init(&side->shown);
  buffer_reserve(&side->shown, TEXT_RESERVED);
  detokenizer_init(&side->decoder, p->tokenizer);
  enum eaglet_status status = fill(side, p, err);
  if (status != EAGLET_OK) {
    release(side);
    return status;
  }
  *out = side;
  return EAGLET_OK;
}

void text_side_join(struct text_side *side, struct sequence *sequence) {
  sequence_watch(sequence, (struct token_watch){.token = take_token, .context = side, .release = release});
  if (side->matcher) sequence_constrain(sequence, &side->source);
}
