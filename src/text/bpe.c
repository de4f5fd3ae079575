/* bpe.c - rank table and merge loop. Short pieces scan for the lowest rank (they are nearly all of real text); long ones use
 * a binary heap over a linked list, so that one word of a megabyte costs n log n. Both give the same ids.
 */
#include "text/bpe.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define SCAN_LENGTH_MAX 48 /* up to here the quadratic scan beats the heap: it touches a few cache lines only */

uint64_t bpe_prefix(const char *bytes, size_t length) {
  uint64_t low = 0, high = 0;
  if (length >= 8) {
    memcpy(&low, bytes, 8);
    return low;
  }
  if (length >= 4) { /* two loads that overlap */
    memcpy(&low, bytes, 4);
    memcpy(&high, bytes + length - 4, 4);
    return low | high << (8 * (length - 4));
  }
  for (size_t i = 0; i < length; i++) low |= (uint64_t)(uint8_t)bytes[i] << (8 * i);
  return low;
}

static uint64_t hash_bytes(uint64_t prefix, const char *bytes, size_t length) {
  const uint64_t prime = 0x9e3779b97f4a7c15u;
  uint64_t h = (prefix ^ length * 0xff51afd7ed558ccdu) * prime;
  while (length > 8) {
    size_t n = length - 8;
    bytes += 8;
    length = n;
    h = (h ^ (h >> 29) ^ bpe_prefix(bytes, n)) * prime;
  }
  h ^= h >> 32;
  h *= 0xc4ceb9fe1a85ec53u;
  return h ^ (h >> 31);
}

uint32_t bpe_ranks_find(const struct bpe_ranks *ranks, const char *bytes, size_t length) {
  if (length > UINT32_MAX) return BPE_NONE;
  uint64_t prefix = bpe_prefix(bytes, length);
  for (size_t slot = hash_bytes(prefix, bytes, length) & ranks->mask;; slot = (slot + 1) & ranks->mask) {
    const struct bpe_slot *entry = &ranks->slots[slot];
    if (entry->length == 0) return BPE_NONE;
    if (entry->prefix != prefix || entry->length != length) continue;
    if (length <= 8 || memcmp(ranks->blob + ranks->at[entry->rank] + 8, bytes + 8, length - 8) == 0) return entry->rank;
  }
}

enum eaglet_status bpe_ranks_init(struct bpe_ranks *ranks, const char *blob, const uint32_t *at, uint32_t n,
                                  struct eaglet_error *err) {
  size_t n_slots = 16;
  while (n_slots < (size_t)n * 2) n_slots *= 2; /* at most half full; four slots are one cache line */
  *ranks = (struct bpe_ranks){.blob = blob, .at = at, .n = n, .mask = n_slots - 1};
  ranks->slots = memory_alloc(n_slots * sizeof *ranks->slots);
  for (uint32_t rank = 0; rank < n; rank++) {
    size_t length = at[rank + 1] - at[rank];
    if (length == 0) continue; /* a hole */
    uint32_t other = bpe_ranks_find(ranks, blob + at[rank], length);
    if (other != BPE_NONE) {
      bpe_ranks_release(ranks);
      FAIL(err, EAGLET_E_INPUT, "ranks %u and %u have the same bytes", other, rank);
    }
    uint64_t prefix = bpe_prefix(blob + at[rank], length);
    size_t slot = hash_bytes(prefix, blob + at[rank], length) & ranks->mask;
    while (ranks->slots[slot].length) slot = (slot + 1) & ranks->mask;
    ranks->slots[slot] = (struct bpe_slot){prefix, (uint32_t)length, rank};
  }
  return EAGLET_OK;
}

void bpe_ranks_release(struct bpe_ranks *ranks) {
  free(ranks->slots);
  *ranks = (struct bpe_ranks){0};
}

void bpe_scratch_release(struct bpe_scratch *scratch) {
  free(scratch->next);
  free(scratch->previous);
  free(scratch->rank);
  free(scratch->heap);
  *scratch = (struct bpe_scratch){0};
}

void offset_list_append(struct offset_list *list, size_t offset) {
  MEMORY_GROW(list->at, list->capacity, list->n + 1);
  list->at[list->n++] = offset;
}

void bpe_sink_append(const struct bpe_sink *sink, int32_t id, size_t offset) {
  token_list_append(sink->ids, id);
  if (sink->offsets) offset_list_append(sink->offsets, offset);
}

/* ---- short pieces: an array of part starts with the rank of (part, next part) ---- */

static void encode_by_scan(const struct bpe_ranks *ranks, const char *piece, uint32_t length, size_t base,
                           const struct bpe_sink *sink) {
  uint32_t start[SCAN_LENGTH_MAX + 2], rank[SCAN_LENGTH_MAX + 2], n = length;
  for (uint32_t i = 0; i <= n; i++) start[i] = i;
  for (uint32_t i = 0; i < n; i++) rank[i] = i + 1 < n ? bpe_ranks_find(ranks, piece + i, 2) : BPE_NONE;
  for (;;) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == BPE_NONE) break;
    memmove(start + best + 1, start + best + 2, (n - best - 1) * sizeof *start); /* n+1 starts: the end moves too */
    memmove(rank + best + 1, rank + best + 2, (n - best - 2) * sizeof *rank);
    n--;
    for (uint32_t i = best ? best - 1 : 0; i <= best; i++)
      rank[i] = i + 1 < n ? bpe_ranks_find(ranks, piece + start[i], start[i + 2] - start[i]) : BPE_NONE;
  }
  for (uint32_t i = 0; i < n; i++)
    bpe_sink_append(sink, (int32_t)bpe_ranks_find(ranks, piece + start[i], start[i + 1] - start[i]), base + start[i]);
}

/* ---- long pieces: linked list of parts, heap of candidate merges (rank, position) ---- */

void bpe_scratch_start(struct bpe_scratch *s, uint32_t n) {
  MEMORY_GROW(s->next, s->next_capacity, (size_t)n + 1);
  MEMORY_GROW(s->previous, s->previous_capacity, (size_t)n + 1);
  MEMORY_GROW(s->rank, s->rank_capacity, (size_t)n + 1);
  s->n_heap = 0;
  for (uint32_t i = 0; i <= n; i++) {
    s->next[i] = i + 1;
    s->previous[i] = i - 1; /* of the first: wraps, never followed */
  }
}

void bpe_heap_push(struct bpe_scratch *s, uint64_t entry) {
  MEMORY_GROW(s->heap, s->heap_capacity, s->n_heap + 1);
  size_t i = s->n_heap++;
  for (; i && s->heap[(i - 1) / 2] > entry; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
  s->heap[i] = entry;
}

uint64_t bpe_heap_pop(struct bpe_scratch *s) {
  uint64_t top = s->heap[0], entry = s->heap[--s->n_heap];
  size_t i = 0;
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= s->n_heap) break;
    if (child + 1 < s->n_heap && s->heap[child + 1] < s->heap[child]) child++;
    if (s->heap[child] >= entry) break;
    s->heap[i] = s->heap[child];
    i = child;
  }
  s->heap[i] = entry;
  return top;
}

/* Ranks the merge of the part at `at` with its right neighbour and queues it. Parts are named by their first byte. */
static void consider(const struct bpe_ranks *ranks, struct bpe_scratch *s, const char *piece, uint32_t length, uint32_t at) {
  uint32_t right = s->next[at];
  s->rank[at] = right < length ? bpe_ranks_find(ranks, piece + at, s->next[right] - at) : BPE_NONE;
  if (s->rank[at] != BPE_NONE) bpe_heap_push(s, (uint64_t)s->rank[at] << 32 | at);
}

static void encode_by_heap(const struct bpe_ranks *ranks, struct bpe_scratch *s, const char *piece, uint32_t length,
                           size_t base, const struct bpe_sink *sink) {
  bpe_scratch_start(s, length);
  for (uint32_t i = 0; i < length; i++) consider(ranks, s, piece, length, i);
  while (s->n_heap) {
    uint64_t entry = bpe_heap_pop(s);
    uint32_t at = (uint32_t)entry;
    if (s->rank[at] != entry >> 32) continue; /* the pair changed since: stale */
    uint32_t right = s->next[at];
    s->next[at] = s->next[right];
    s->previous[s->next[right]] = at;
    s->rank[right] = BPE_NONE;
    consider(ranks, s, piece, length, at);
    if (at) consider(ranks, s, piece, length, s->previous[at]);
  }
  for (uint32_t at = 0; at < length; at = s->next[at])
    bpe_sink_append(sink, (int32_t)bpe_ranks_find(ranks, piece + at, s->next[at] - at), base + at);
}

void bpe_encode(const struct bpe_ranks *ranks, struct bpe_scratch *scratch, const char *piece, size_t length, size_t base,
                const struct bpe_sink *sink) {
  ASSERT(length > 0 && length < INT32_MAX);
  uint32_t whole = bpe_ranks_find(ranks, piece, length);
  if (whole != BPE_NONE)
    bpe_sink_append(sink, (int32_t)whole, base);
  else if (length <= SCAN_LENGTH_MAX)
    encode_by_scan(ranks, piece, (uint32_t)length, base, sink);
  else
    encode_by_heap(ranks, scratch, piece, (uint32_t)length, base, sink);
}
