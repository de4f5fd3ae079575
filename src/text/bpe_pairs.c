/* bpe_pairs.c - pair table and merge loop. As in bpe.c, short pieces scan for the lowest rank and long ones use a heap over a
 * linked list; both give the same symbols.
 */
#include "text/bpe_pairs.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define SCAN_LENGTH_MAX 40

static inline size_t hash_key(uint64_t key) {
  uint64_t h = key * 0x9e3779b97f4a7c15u;
  return (size_t)(h ^ (h >> 29));
}

static inline uint64_t key_of(uint32_t left, uint32_t right) { return (uint64_t)left << 32 | right; }

void bpe_pairs_init(struct bpe_pairs *pairs, size_t n_max) {
  size_t n_slots = 16;
  while (n_slots < n_max * 2) n_slots *= 2;
  *pairs = (struct bpe_pairs){.slots = memory_alloc(n_slots * sizeof *pairs->slots), .mask = n_slots - 1};
  for (size_t i = 0; i < n_slots; i++) pairs->slots[i].key = UINT64_MAX;
}

void bpe_pairs_release(struct bpe_pairs *pairs) {
  free(pairs->slots);
  *pairs = (struct bpe_pairs){0};
}

void bpe_pairs_add(struct bpe_pairs *pairs, uint32_t left, uint32_t right, uint32_t rank, uint32_t id) {
  uint64_t key = key_of(left, right);
  size_t slot = hash_key(key) & pairs->mask;
  for (size_t n = 0; pairs->slots[slot].key != UINT64_MAX && pairs->slots[slot].key != key; n++) {
    ASSERT(n <= pairs->mask);
    slot = (slot + 1) & pairs->mask;
  }
  pairs->slots[slot] = (struct bpe_pair){.key = key, .rank = rank, .id = id};
}

const struct bpe_pair *bpe_pairs_find(const struct bpe_pairs *pairs, uint32_t left, uint32_t right) {
  uint64_t key = key_of(left, right);
  for (size_t slot = hash_key(key) & pairs->mask;; slot = (slot + 1) & pairs->mask) {
    if (pairs->slots[slot].key == key) return key == UINT64_MAX ? NULL : &pairs->slots[slot];
    if (pairs->slots[slot].key == UINT64_MAX) return NULL;
  }
}

/* ---- short pieces ---- */

static inline void look_up(const struct bpe_pairs *pairs, const struct bpe_symbol *symbols, uint32_t *rank, uint32_t *id) {
  const struct bpe_pair *pair = bpe_pairs_find(pairs, symbols[0].id, symbols[1].id);
  *rank = pair ? pair->rank : BPE_NONE;
  *id = pair ? pair->id : 0;
}

static size_t merge_by_scan(const struct bpe_pairs *pairs, struct bpe_symbol *symbols, size_t n) {
  uint32_t rank[SCAN_LENGTH_MAX], id[SCAN_LENGTH_MAX]; /* of the pair that begins here; the last has none */
  for (size_t i = 0; i + 1 < n; i++) look_up(pairs, symbols + i, &rank[i], &id[i]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; i++)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == BPE_NONE) break;
    symbols[best].id = id[best];
    symbols[best].length += symbols[best + 1].length;
    n--;
    for (size_t i = best + 1; i < n; i++) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < n; i++) {
      rank[i] = rank[i + 1];
      id[i] = id[i + 1];
    }
    if (best + 1 < n) look_up(pairs, symbols + best, &rank[best], &id[best]);
    if (best) look_up(pairs, symbols + best - 1, &rank[best - 1], &id[best - 1]);
  }
  return n;
}

/* ---- long pieces ---- */

static void consider(const struct bpe_pairs *pairs, struct bpe_scratch *s, const struct bpe_symbol *symbols, uint32_t n, uint32_t at) {
  const struct bpe_pair *pair = s->next[at] < n ? bpe_pairs_find(pairs, symbols[at].id, symbols[s->next[at]].id) : NULL;
  s->rank[at] = pair ? pair->rank : BPE_NONE;
  if (pair) bpe_heap_push(s, (uint64_t)pair->rank << 32 | at);
}

static size_t merge_by_heap(const struct bpe_pairs *pairs, struct bpe_scratch *s, struct bpe_symbol *symbols, uint32_t n) {
  bpe_scratch_start(s, n);
  for (uint32_t i = 0; i < n; i++) consider(pairs, s, symbols, n, i);
  while (s->n_heap) {
    uint64_t entry = bpe_heap_pop(s);
    uint32_t at = (uint32_t)entry;
    if (s->rank[at] != entry >> 32) continue; /* the pair changed since: stale */
    uint32_t right = s->next[at];
    symbols[at].id = bpe_pairs_find(pairs, symbols[at].id, symbols[right].id)->id;
    symbols[at].length += symbols[right].length;
    s->next[at] = s->next[right];
    s->previous[s->next[right]] = at;
    s->rank[right] = BPE_NONE;
    consider(pairs, s, symbols, n, at);
    if (at) consider(pairs, s, symbols, n, s->previous[at]);
  }
  size_t left = 0;
  for (uint32_t at = 0; at < n; at = s->next[at]) symbols[left++] = symbols[at];
  return left;
}

size_t bpe_pairs_merge(const struct bpe_pairs *pairs, struct bpe_scratch *scratch, struct bpe_symbol *symbols, size_t n) {
  ASSERT(n < INT32_MAX);
  return n <= SCAN_LENGTH_MAX ? merge_by_scan(pairs, symbols, n) : merge_by_heap(pairs, scratch, symbols, (uint32_t)n);
}
