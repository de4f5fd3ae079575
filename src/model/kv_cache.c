/* kv_cache.c - pages of KV memory; see kv_cache.h. Owns the pools and the stack of free pages; sequences own their
 * tables. A page is never moved; what a page holds past its sequence's length is scratch and is never cleared. */
#include "model/kv_cache.h"

#include "base/memory.h"

#include <stdlib.h>

enum eaglet_status kv_cache_init(struct kv_cache *cache, struct compute *c, int32_t n_layers, int32_t entry_floats,
                                 int32_t n_pages, struct eaglet_error *err) {
  ASSERT(n_layers > 0 && entry_floats > 0 && n_pages > 0);
  *cache = (struct kv_cache){.compute = c, .n_layers = n_layers, .entry_floats = entry_floats, .n_pages = n_pages};
  size_t bytes = (size_t)n_pages * KV_PAGE_TOKENS * (size_t)entry_floats * sizeof(float);
  cache->pools = memory_alloc((size_t)n_layers * sizeof *cache->pools);
  for (int32_t i = 0; i < n_layers; i++) {
    cache->pools[i] = c->alloc(c, bytes);
    if (cache->pools[i]) continue;
    kv_cache_release(cache);
    FAIL(err, EAGLET_E_RESOURCE, "KV cache: %d layers of %d pages need %.1f MB, which the device does not have",
         n_layers, n_pages, (double)bytes * n_layers / 1e6);
  }
  /* The stack is filled backwards so that pages are handed out from 0. */
  cache->free_pages = memory_alloc((size_t)n_pages * sizeof *cache->free_pages);
  for (int32_t i = 0; i < n_pages; i++) cache->free_pages[i] = n_pages - 1 - i;
  cache->n_free = n_pages;
  return EAGLET_OK;
}

void kv_cache_release(struct kv_cache *cache) {
  for (int32_t i = 0; cache->pools && i < cache->n_layers; i++) {
    if (cache->pools[i]) cache->compute->free(cache->compute, cache->pools[i]);
  }
  free(cache->pools);
  free(cache->free_pages);
  *cache = (struct kv_cache){0};
}

enum eaglet_status kv_sequence_init(struct kv_sequence *sequence, struct kv_cache *cache, int32_t tokens_max,
                                    struct eaglet_error *err) {
  *sequence = (struct kv_sequence){.cache = cache};
  if (tokens_max <= 0) FAIL(err, EAGLET_E_USAGE, "KV sequence: expected at least 1 token, found %d", tokens_max);
  sequence->table_capacity = (tokens_max - 1) / KV_PAGE_TOKENS + 1;
  sequence->table = memory_alloc((size_t)sequence->table_capacity * sizeof *sequence->table);
  return EAGLET_OK;
}

enum eaglet_status kv_sequence_reserve(struct kv_sequence *sequence, int32_t n_tokens, struct eaglet_error *err) {
  struct kv_cache *cache = sequence->cache;
  int32_t n_pages = n_tokens <= 0 ? 0 : (n_tokens - 1) / KV_PAGE_TOKENS + 1;
  if (n_pages > sequence->table_capacity) {
    FAIL(err, EAGLET_E_RESOURCE, "KV sequence: %d tokens asked for, planned for at most %d", n_tokens,
         sequence->table_capacity * KV_PAGE_TOKENS);
  }
  if (n_pages - sequence->n_pages > cache->n_free) {
    FAIL(err, EAGLET_E_RESOURCE, "KV cache: %d more pages needed for %d tokens, %d of %d are free",
         n_pages - sequence->n_pages, n_tokens, cache->n_free, cache->n_pages);
  }
  while (sequence->n_pages < n_pages) sequence->table[sequence->n_pages++] = cache->free_pages[--cache->n_free];
  return EAGLET_OK;
}

void kv_sequence_release(struct kv_sequence *sequence) {
  struct kv_cache *cache = sequence->cache;
  while (sequence->n_pages > 0) cache->free_pages[cache->n_free++] = sequence->table[--sequence->n_pages];
  free(sequence->table);
  *sequence = (struct kv_sequence){0};
}
