/* overlap.h - do conversations hold the prompts of a test set? Texts are compared as words (case and punctuation aside, a Chinese or Japanese
 * character is a word). A conversation overlaps when a message of the user or the assistant shares OVERLAP_WORDS words in a row with a
 * prompt, or when a message of the user is the same as a shorter prompt of at least OVERLAP_WORDS_MIN words.
 */
#ifndef EAGLET_TRAIN_OVERLAP_H
#define EAGLET_TRAIN_OVERLAP_H

#include "base/hash_set.h"
#include "data/dataset.h"

#define OVERLAP_WORDS 13
#define OVERLAP_WORDS_MIN 4

struct overlap {
  struct hash_set runs;   /* of OVERLAP_WORDS words */
  struct hash_set shorts; /* whole texts of fewer words */
  uint64_t n_prompts;
};
/* Takes the user turns of every conversation of the files (src/data/dataset.h). */
enum eaglet_status overlap_read(struct overlap *overlap, const char *const *paths, size_t n_paths, struct eaglet_error *err) MUST_USE;
bool overlap_found(const struct overlap *overlap, const json_t *messages);
void overlap_release(struct overlap *overlap);

#endif
