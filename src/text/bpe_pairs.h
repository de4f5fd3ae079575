/* bpe_pairs.h - merging of symbols by a list of pairs: (left id, right id) -> (rank, merged id), and the merge loop.
 *
 * Invariant: the result equals "repeat: merge the adjacent pair with the lowest rank, leftmost first, until no pair is in the
 * list". Used by tokenizer.json and SentencePiece; making the first symbols of a piece is the caller's.
 */
#ifndef EAGLET_TEXT_BPE_PAIRS_H
#define EAGLET_TEXT_BPE_PAIRS_H

#include "text/bpe.h"

struct bpe_pair { /* slot of an open-addressing hash */
  uint64_t key;   /* left << 32 | right; UINT64_MAX = empty */
  uint32_t rank, id;
};
struct bpe_pairs {
  struct bpe_pair *slots;
  size_t mask;
};
void bpe_pairs_init(struct bpe_pairs *pairs, size_t n_max); /* room for n_max pairs */
void bpe_pairs_release(struct bpe_pairs *pairs);
/* A pair that is there already gets the new rank: of two equal merges the later counts. ASSERTs the room. */
void bpe_pairs_add(struct bpe_pairs *pairs, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);
const struct bpe_pair *bpe_pairs_find(const struct bpe_pairs *pairs, uint32_t left, uint32_t right); /* NULL when absent */

struct bpe_symbol {
  uint32_t id;     /* BPE_NONE merges with nothing */
  uint32_t length; /* bytes of the piece that it stands for */
};
/* Merges symbols[0..n) in place; returns how many are left. O(n log n). */
size_t bpe_pairs_merge(const struct bpe_pairs *pairs, struct bpe_scratch *scratch, struct bpe_symbol *symbols, size_t n);

#endif
