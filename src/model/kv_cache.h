/* kv_cache.h - paged KV of all sequences and layers of one model (the target, or the head).
 *
 * One pool per layer; a page holds KV_PAGE_TOKENS entries of entry_floats. A sequence's table lists its pages in order; slot s
 * (= position for committed tokens) lives in table[s / KV_PAGE_TOKENS]. Truncation is only a number: entries past `length` are
 * scratch and may be overwritten. Pages are reserved up front by kv_sequence_reserve, so a step never allocates.
 */
#ifndef EAGLET_MODEL_KV_CACHE_H
#define EAGLET_MODEL_KV_CACHE_H

#include "compute/compute.h"

#define KV_PAGE_TOKENS 32

struct kv_cache {
  struct compute *compute;
  float **pools;          /* [n_layers] */
  int32_t n_layers, entry_floats, n_pages;
  int32_t *free_pages;    /* stack */
  int32_t n_free;
};
struct kv_sequence {
  struct kv_cache *cache;
  int32_t *table;         /* [table_capacity] host */
  int32_t n_pages, table_capacity;
  int32_t length;         /* committed tokens */
};
enum eaglet_status kv_cache_init(struct kv_cache *cache, struct compute *c, int32_t n_layers, int32_t entry_floats, int32_t n_pages,
                                 struct eaglet_error *err) MUST_USE;
void kv_cache_release(struct kv_cache *cache);
enum eaglet_status kv_sequence_init(struct kv_sequence *sequence, struct kv_cache *cache, int32_t tokens_max, struct eaglet_error *err) MUST_USE;
/* Makes slots 0 .. n_tokens-1 writable. EAGLET_E_RESOURCE when the pool is empty. */
enum eaglet_status kv_sequence_reserve(struct kv_sequence *sequence, int32_t n_tokens, struct eaglet_error *err) MUST_USE;
void kv_sequence_release(struct kv_sequence *sequence); /* gives the pages back */

#endif
