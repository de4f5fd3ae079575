/* kv_cache.c - pages of KV memory; see kv_cache.h. Owns the pools and the stack of free pages; sequences own their
 * tables. A page is never moved; what a page holds past its sequence's length is scratch and is never cleared. */
#include "model/kv_cache.h"

#include "base/memory.h"
#include "model/prefix_cache.h"

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
  cache->holders = memory_alloc((size_t)n_pages * sizeof *cache->holders);
  return EAGLET_OK;
}

void kv_cache_release(struct kv_cache *cache) {
  for (int32_t i = 0; cache->pools && i < cache->n_layers; i++) {
    if (cache->pools[i]) cache->compute->free(cache->compute, cache->pools[i]);
  }
  free(cache->pools);
  free(cache->free_pages);
  free(cache->holders);
  prefix_cache_free(cache->prefix);
  *cache = (struct kv_cache){0};
}

int32_t kv_cache_available(const struct kv_cache *cache) {
  return cache->n_free + (cache->prefix ? prefix_cache_idle(cache->prefix) : 0);
}

/* A page nobody needs: a free one, or the longest unused one of the prefix cache. */
static int32_t take_page(struct kv_cache *cache) {
  int32_t page = cache->n_free > 0 ? cache->free_pages[--cache->n_free] : prefix_cache_evict(cache->prefix);
  ASSERT(page >= 0 && cache->holders[page] == 0);
  cache->holders[page] = 1;
  return page;
}

void kv_cache_hold(struct kv_cache *cache, int32_t page) {
  if (cache->holders[page]++ == 0) prefix_cache_held(cache->prefix, page, false);
}

void kv_cache_drop(struct kv_cache *cache, int32_t page) {
  ASSERT(cache->holders[page] > 0);
  if (--cache->holders[page] > 0) return;
  if (cache->prefix && prefix_cache_knows(cache->prefix, page))
    prefix_cache_held(cache->prefix, page, true);
  else
    cache->free_pages[cache->n_free++] = page;
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
  int32_t n_pages = kv_pages_of(n_tokens), available = kv_cache_available(cache);
  if (n_pages > sequence->table_capacity) {
    FAIL(err, EAGLET_E_RESOURCE, "KV sequence: %d tokens asked for, planned for at most %d", n_tokens,
         sequence->table_capacity * KV_PAGE_TOKENS);
  }
  if (n_pages - sequence->n_pages > available) {
    FAIL(err, EAGLET_E_RESOURCE, "KV cache: %d more pages needed for %d tokens, %d of %d are free",
         n_pages - sequence->n_pages, n_tokens, available, cache->n_pages);
  }
  while (sequence->n_pages < n_pages) sequence->table[sequence->n_pages++] = take_page(cache);
  return EAGLET_OK;
}

static float *entry_of(const struct kv_sequence *sequence, int32_t layer, int32_t slot) {
  int64_t page = sequence->table[slot / KV_PAGE_TOKENS];
  return sequence->cache->pools[layer] + (page * KV_PAGE_TOKENS + slot % KV_PAGE_TOKENS) * sequence->cache->entry_floats;
}

void kv_sequence_move(struct kv_sequence *sequence, const int32_t *to, const int32_t *from, int32_t n) {
  struct compute *c = sequence->cache->compute;
  size_t bytes = (size_t)sequence->cache->entry_floats * sizeof(float);
  for (int32_t i = 0; i < n; i++) {
    ASSERT(to[i] <= from[i] && from[i] < sequence->n_pages * KV_PAGE_TOKENS);
    if (to[i] == from[i]) continue;
    for (int32_t layer = 0; layer < sequence->cache->n_layers; layer++)
      c->copy(c, entry_of(sequence, layer, to[i]), entry_of(sequence, layer, from[i]), bytes);
  }
}

/* From the back: who holds a page holds its ancestors. */
void kv_sequence_empty(struct kv_sequence *sequence) {
  while (sequence->n_pages > 0) kv_cache_drop(sequence->cache, sequence->table[--sequence->n_pages]);
  sequence->length = sequence->n_indexed = 0;
}

void kv_sequence_release(struct kv_sequence *sequence) {
  if (sequence->cache) kv_sequence_empty(sequence);
  free(sequence->table);
  *sequence = (struct kv_sequence){0};
}
