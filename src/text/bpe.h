/* bpe.h - merging of byte strings by rank: the rank table (bytes -> rank) and the merge loop.
 *
 * Invariant: the result equals "repeat: merge the adjacent pair whose concatenation has the lowest rank, leftmost first,
 * until no pair has one". Used by the tiktoken kind; splitting text into pieces is not done here.
 */
#ifndef EAGLET_TEXT_BPE_H
#define EAGLET_TEXT_BPE_H

#include "text/tokenizer.h"

#define BPE_NONE UINT32_MAX

/* Open-addressing hash from byte strings to ranks. Keys live in one blob: rank r is blob[at[r] .. at[r+1]); an empty key is a
 * rank that nothing has. */
struct bpe_slot {
  uint64_t prefix; /* the first 8 bytes, zeros behind the end: a short key is compared without touching the blob */
  uint32_t length; /* 0 = empty slot */
  uint32_t rank;
};
struct bpe_ranks {
  const char *blob;   /* borrowed */
  const uint32_t *at; /* borrowed, [n + 1] */
  uint32_t n;
  struct bpe_slot *slots;
  size_t mask;
};
/* Fails with EAGLET_E_INPUT when two ranks have the same bytes, naming them. */
enum eaglet_status bpe_ranks_init(struct bpe_ranks *ranks, const char *blob, const uint32_t *at, uint32_t n,
                                  struct eaglet_error *err) MUST_USE;
void bpe_ranks_release(struct bpe_ranks *ranks);
uint64_t bpe_prefix(const char *bytes, size_t length); /* the first 8 bytes, zeros behind the end */
uint32_t bpe_ranks_find(const struct bpe_ranks *ranks, const char *bytes, size_t length); /* BPE_NONE when absent */

/* Reusable memory of the merge loop; zero-initialise, one per thread of work. */
struct bpe_scratch {
  uint32_t *next, *previous, *rank;
  uint64_t *heap;
  size_t next_capacity, previous_capacity, rank_capacity, heap_capacity, n_heap;
};
void bpe_scratch_release(struct bpe_scratch *scratch);
/* n parts in a row, linked; no candidate merges. */
void bpe_scratch_start(struct bpe_scratch *scratch, uint32_t n);
/* Heap of candidate merges, rank << 32 | part: the lowest rank first, leftmost first. */
void bpe_heap_push(struct bpe_scratch *scratch, uint64_t entry);
uint64_t bpe_heap_pop(struct bpe_scratch *scratch);

struct offset_list { size_t *at; size_t n, capacity; };
void offset_list_append(struct offset_list *list, size_t offset);
struct bpe_sink {
  struct token_list *ids;
  struct offset_list *offsets; /* or NULL */
};
void bpe_sink_append(const struct bpe_sink *sink, int32_t id, size_t offset);
/* Appends the ids of piece (1 .. 2^31 bytes; every single byte has a rank) to ids, and to offsets (when not NULL) `base` plus
 * the offset in piece where each begins. O(n log n). */
void bpe_encode(const struct bpe_ranks *ranks, struct bpe_scratch *scratch, const char *piece, size_t length, size_t base,
                const struct bpe_sink *sink);

#endif
