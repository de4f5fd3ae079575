/* kv_cache.h - paged KV of all sequences and layers of one model (the target, or a drafter's).
 *
 * One pool per layer; a page holds KV_PAGE_TOKENS entries of entry_floats. A sequence's table lists its pages in order; slot s
 * (= position for committed tokens) lives in table[s / KV_PAGE_TOKENS]. Truncation is only a number: entries past `length` are
 * scratch and may be overwritten. Pages are reserved by kv_sequence_reserve, which allocates nothing.
 *
 * A page is free, or held by one sequence, or, once a prefix_cache knows it, held by any number of sequences or by none. Only pages that
 * one sequence holds and that no prefix cache knows are written to: known pages lie wholly below `length`.
 */
#ifndef EAGLET_MODEL_KV_CACHE_H
#define EAGLET_MODEL_KV_CACHE_H

#include "compute/compute.h"

#define KV_PAGE_TOKENS 32

struct prefix_cache;
struct kv_cache {
  struct compute *compute;
  float **pools;          /* [n_layers] */
  int32_t n_layers, entry_floats, n_pages;
  int32_t *free_pages;    /* stack */
  int32_t n_free;
  int32_t *holders;       /* [n_pages] sequences whose tables list the page */
  struct prefix_cache *prefix; /* or NULL; owned */
};
struct kv_sequence {
  struct kv_cache *cache;
  int32_t *table;         /* [table_capacity] host */
  int32_t n_pages, table_capacity;
  int32_t length;         /* entries of committed tokens; what lies behind is scratch */
  bool sparse;            /* entries are not those of tokens 0 .. length-1: no prefix cache takes its pages */
  int32_t n_indexed;      /* pages from the front that the prefix cache knows */
};
enum eaglet_status kv_cache_init(struct kv_cache *cache, struct compute *c, int32_t n_layers, int32_t entry_floats, int32_t n_pages,
                                 struct eaglet_error *err) MUST_USE;
void kv_cache_release(struct kv_cache *cache);
int32_t kv_cache_available(const struct kv_cache *cache); /* pages that sequences can still get */
static inline int32_t kv_pages_of(int32_t n_tokens) { return n_tokens <= 0 ? 0 : (n_tokens - 1) / KV_PAGE_TOKENS + 1; }

enum eaglet_status kv_sequence_init(struct kv_sequence *sequence, struct kv_cache *cache, int32_t tokens_max, struct eaglet_error *err) MUST_USE;
/* Pages for slots 0 .. n_tokens-1. EAGLET_E_RESOURCE when the pool has too few; the sequence is unchanged then. */
enum eaglet_status kv_sequence_reserve(struct kv_sequence *sequence, int32_t n_tokens, struct eaglet_error *err) MUST_USE;
/* entry of slot from[i] -> slot to[i], i in order, all layers; to[i] <= from[i]. The accepted path of a tree becomes contiguous. */
void kv_sequence_move(struct kv_sequence *sequence, const int32_t *to, const int32_t *from, int32_t n);
void kv_sequence_empty(struct kv_sequence *sequence);   /* gives the pages back, keeps the table */
void kv_sequence_release(struct kv_sequence *sequence); /* gives the pages and the table back */

/* For prefix_cache.c: one more, or one less, sequence lists the page. */
void kv_cache_hold(struct kv_cache *cache, int32_t page);
void kv_cache_drop(struct kv_cache *cache, int32_t page);

#endif
