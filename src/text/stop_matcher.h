/* stop_matcher.h - finds stop strings in a text that arrives in pieces, wherever the pieces are cut.
 *
 * The stop that is complete first wins, whatever the pieces: of those that end at the same byte, the longest. Offsets count bytes
 * from the first push. What might still become a stop, and a character that is not whole yet, is not to be shown: the offset up
 * to which the text is safe never falls. Belongs to one text at a time; pushing does not allocate.
 */
#ifndef EAGLET_TEXT_STOP_MATCHER_H
#define EAGLET_TEXT_STOP_MATCHER_H

#include "base/error.h"

#define STOP_STRINGS_MAX 64
#define STOP_STRING_BYTES_MAX 1024

struct stop_matcher;

struct stop_match {
  size_t begin, end; /* the stop string lies at [begin, end): the text ends at begin, or at end when the stop is kept */
  size_t stop;       /* which of the stops */
};

/* stops: NUL-terminated UTF-8, copied. None at all is fine: then nothing matches. Refuses an empty one, more than STOP_STRINGS_MAX
 * and more than STOP_STRING_BYTES_MAX bytes. */
enum eaglet_status stop_matcher_create(struct stop_matcher **matcher, const char *const *stops, size_t n_stops,
                                       struct eaglet_error *err) MUST_USE;
void stop_matcher_free(struct stop_matcher *matcher);
void stop_matcher_reset(struct stop_matcher *matcher); /* for another text */

/* true and *match (may be NULL) once a stop is complete; bytes after it, and later pushes, are not looked at. */
bool stop_matcher_push(struct stop_matcher *matcher, const char *bytes, size_t n, struct stop_match *match);
/* Bytes in which no stop may be complete: one that is, is text, and what it ends with may still begin another. */
void stop_matcher_pass(struct stop_matcher *matcher, const char *bytes, size_t n);

/* How many bytes of the text may be shown: after a match, those before it. Without a match the whole text may be shown when it is over. */
size_t stop_matcher_n_safe(const struct stop_matcher *matcher);

#endif
