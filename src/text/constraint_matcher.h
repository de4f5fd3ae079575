/* constraint_matcher.h - runs a constraint over tokens: which may come next, and what state a token leads to.
 *
 * A state is a number of its matcher: copy it, compare it, keep many (every node of a draft tree has one). The matcher owns what
 * has been worked out so far: states met and a cache of masks, least recently used out first. It belongs to one thread at a time;
 * sequences of the same constraint and thread may share one. The constraint and the vocabulary are borrowed and outlive it.
 * Memory is reserved at creation and does not grow: call constraint_matcher_trim between rounds.
 */
#ifndef EAGLET_TEXT_CONSTRAINT_MATCHER_H
#define EAGLET_TEXT_CONSTRAINT_MATCHER_H

#include "text/constraint.h"
#include "text/constraint_vocabulary.h"

enum { CONSTRAINT_STATE_DEAD = 0, CONSTRAINT_STATE_ENDED = 1 }; /* ended: a stop token has been taken */

struct constraint_matcher;

struct constraint_matcher_params {
  const struct constraint *constraint;
  const struct constraint_vocabulary *vocabulary; /* NULL: bytes only, no masks and no tokens */
  size_t memory_max; /* bytes of address space for states, default 64 MiB; what is not used stays untouched */
  int32_t masks_max; /* masks kept, default 128 */
};

/* Refuses a vocabulary that cannot spell an ASCII byte that the grammar uses: a text could get stuck before it. EAGLET_E_RESOURCE: no
 * memory, or too many ways to begin. */
enum eaglet_status constraint_matcher_create(struct constraint_matcher **matcher, const struct constraint_matcher_params *params,
                                             struct eaglet_error *err) MUST_USE;
void constraint_matcher_free(struct constraint_matcher *matcher);

uint32_t constraint_matcher_start(struct constraint_matcher *matcher);

/* *mask: constraint_vocabulary_words words, valid until the next call of this function; bit id % 32 of word id / 32 is set when the
 * token may come next. A stop token may when the text may end here; after one, only stop tokens may. Fails, by name, when no token
 * continues the text, when memory is used up (trim, then try again) and for a dead state; *mask is then the stop tokens alone, so
 * that a caller who cannot report ends the text. At least one bit is set in any case. */
enum eaglet_status constraint_matcher_mask(struct constraint_matcher *matcher, uint32_t state, const uint32_t **mask,
                                           struct eaglet_error *err) MUST_USE;

/* false, and *state unchanged: the token may not come here, or memory is used up (constraint_matcher_is_exhausted). */
bool constraint_matcher_advance(struct constraint_matcher *matcher, uint32_t *state, int32_t token);
bool constraint_matcher_advance_bytes(struct constraint_matcher *matcher, uint32_t *state, const char *bytes, size_t length);

bool constraint_matcher_is_complete(struct constraint_matcher *matcher, uint32_t state); /* the text may end here */
bool constraint_matcher_must_end(struct constraint_matcher *matcher, uint32_t state);    /* and nothing else may come */

/* When half of the memory is used: forgets every state but states[0..n), whose numbers change in place, and every mask. Else does
 * nothing. Allocates only when it forgets. Returns whether it did. To be called where no other state is held: before the mask of a
 * sequence's own state, when drafts are made anew (src/api/text_side.c). */
bool constraint_matcher_trim(struct constraint_matcher *matcher, uint32_t *states, size_t n);
bool constraint_matcher_is_exhausted(const struct constraint_matcher *matcher);

struct constraint_matcher_stats {
  uint64_t masks_made, masks_reused, trims;
  uint32_t n_states; /* now */
};
struct constraint_matcher_stats constraint_matcher_stats(const struct constraint_matcher *matcher);

#endif
