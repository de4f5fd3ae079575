/* prefix_cache.c - see prefix_cache.h. Owns the records, their hash chains and their order of use; pages belong to the kv_cache. */
#include "model/prefix_cache.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define NONE (-1)
#define KEY_MAX (KV_PAGE_TOKENS + 1)

/* What a page is known by; the record of page p is records[p]. */
struct record {
  bool known;
  int32_t parent, n_children;
  int32_t next;         /* in its hash bucket */
  int32_t older, newer; /* in order of use */
  int32_t tokens[KEY_MAX];
};

struct prefix_cache {
  struct kv_cache *kv;
  struct record *records; /* [n_pages] */
  int32_t *buckets;       /* [n_buckets] first page or NONE */
  uint32_t n_buckets;     /* a power of two */
  int32_t key_tokens;     /* KV_PAGE_TOKENS + lookahead */
  int32_t oldest, newest, n_idle;
};

void prefix_cache_create(struct kv_cache *kv, int32_t lookahead) {
  ASSERT(!kv->prefix && kv->n_free == kv->n_pages && lookahead >= 0 && lookahead <= 1);
  struct prefix_cache *cache = memory_alloc(sizeof *cache);
  uint32_t n_buckets = 16;
  while (n_buckets < (uint32_t)kv->n_pages) n_buckets *= 2;
  *cache = (struct prefix_cache){
      .kv = kv, .n_buckets = n_buckets, .key_tokens = KV_PAGE_TOKENS + lookahead, .oldest = NONE, .newest = NONE};
  cache->records = memory_alloc((size_t)kv->n_pages * sizeof *cache->records);
  cache->buckets = memory_alloc(n_buckets * sizeof *cache->buckets);
  for (uint32_t i = 0; i < n_buckets; i++) cache->buckets[i] = NONE;
  kv->prefix = cache;
}

void prefix_cache_free(struct prefix_cache *cache) {
  if (!cache) return;
  free(cache->records);
  free(cache->buckets);
  free(cache);
}

/* ---- the records ---- */

static uint32_t bucket_of(const struct prefix_cache *cache, int32_t parent, const int32_t *tokens) {
  uint64_t hash = (uint64_t)(uint32_t)parent + 1;
  for (int32_t i = 0; i < cache->key_tokens; i++) {
    hash = (hash ^ (uint32_t)tokens[i]) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return (uint32_t)(hash >> 16) & (cache->n_buckets - 1);
}

static int32_t find(const struct prefix_cache *cache, int32_t parent, const int32_t *tokens) {
  size_t bytes = (size_t)cache->key_tokens * sizeof(int32_t);
  for (int32_t page = cache->buckets[bucket_of(cache, parent, tokens)]; page != NONE; page = cache->records[page].next) {
    if (cache->records[page].parent == parent && memcmp(cache->records[page].tokens, tokens, bytes) == 0) return page;
  }
  return NONE;
}

static void unlink_use(struct prefix_cache *cache, int32_t page) {
  struct record *r = &cache->records[page];
  if (r->older != NONE)
    cache->records[r->older].newer = r->newer;
  else
    cache->oldest = r->newer;
  if (r->newer != NONE)
    cache->records[r->newer].older = r->older;
  else
    cache->newest = r->older;
}

static void link_newest(struct prefix_cache *cache, int32_t page) {
  struct record *r = &cache->records[page];
  r->older = cache->newest;
  r->newer = NONE;
  if (cache->newest != NONE)
    cache->records[cache->newest].newer = page;
  else
    cache->oldest = page;
  cache->newest = page;
}

static void touch(struct prefix_cache *cache, int32_t page) {
  unlink_use(cache, page);
  link_newest(cache, page);
}

static void learn(struct prefix_cache *cache, int32_t page, int32_t parent, const int32_t *tokens) {
  struct record *r = &cache->records[page];
  uint32_t bucket = bucket_of(cache, parent, tokens);
  *r = (struct record){.known = true, .parent = parent, .next = cache->buckets[bucket]};
  memcpy(r->tokens, tokens, (size_t)cache->key_tokens * sizeof(int32_t));
  cache->buckets[bucket] = page;
  if (parent != NONE) cache->records[parent].n_children++;
  link_newest(cache, page);
}

static void forget(struct prefix_cache *cache, int32_t page) {
  struct record *r = &cache->records[page];
  int32_t *link = &cache->buckets[bucket_of(cache, r->parent, r->tokens)];
  while (*link != page) link = &cache->records[*link].next;
  *link = r->next;
  if (r->parent != NONE) cache->records[r->parent].n_children--;
  unlink_use(cache, page);
  r->known = false;
}

/* ---- sequences ---- */

int32_t prefix_cache_match(const struct prefix_cache *cache, const int32_t *tokens, int32_t n_tokens, int32_t *pages,
                           int32_t pages_max) {
  int32_t n = 0, parent = NONE;
  while (n < pages_max && n * KV_PAGE_TOKENS + cache->key_tokens <= n_tokens) {
    parent = find(cache, parent, tokens + n * KV_PAGE_TOKENS);
    if (parent == NONE) break;
    pages[n++] = parent;
  }
  return n;
}

/* Ancestors are used later than their descendants, so that leaves are the oldest. */
static void touch_all(struct prefix_cache *cache, const struct kv_sequence *sequence) {
  for (int32_t i = sequence->n_indexed; i-- > 0;) touch(cache, sequence->table[i]);
}

void prefix_cache_attach(struct prefix_cache *cache, struct kv_sequence *sequence, const int32_t *pages, int32_t n) {
  ASSERT(sequence->n_pages == 0 && n <= sequence->table_capacity);
  for (int32_t i = 0; i < n; i++) {
    kv_cache_hold(cache->kv, pages[i]);
    sequence->table[sequence->n_pages++] = pages[i];
  }
  sequence->n_indexed = n;
  sequence->length = n * KV_PAGE_TOKENS;
  touch_all(cache, sequence);
}

void prefix_cache_add(struct prefix_cache *cache, struct kv_sequence *sequence, const int32_t *tokens, int32_t n_tokens) {
  int32_t before = sequence->n_indexed;
  for (;;) {
    int32_t i = sequence->n_indexed, begin = i * KV_PAGE_TOKENS;
    if (begin + KV_PAGE_TOKENS > sequence->length || begin + cache->key_tokens > n_tokens) break;
    int32_t parent = i > 0 ? sequence->table[i - 1] : NONE, own = sequence->table[i],
            known = find(cache, parent, tokens + begin);
    if (known == NONE) {
      learn(cache, own, parent, tokens + begin);
    } else {
      kv_cache_hold(cache->kv, known);
      sequence->table[i] = known;
      kv_cache_drop(cache->kv, own);
    }
    sequence->n_indexed++;
  }
  if (sequence->n_indexed > before) touch_all(cache, sequence);
}

/* ---- for kv_cache.c ---- */

bool prefix_cache_knows(const struct prefix_cache *cache, int32_t page) {
  return cache->records[page].known;
}

void prefix_cache_held(struct prefix_cache *cache, int32_t page, bool idle) {
  ASSERT(cache->records[page].known);
  cache->n_idle += idle ? 1 : -1;
}

int32_t prefix_cache_idle(const struct prefix_cache *cache) {
  return cache->n_idle;
}

int32_t prefix_cache_evict(struct prefix_cache *cache) {
  for (int32_t page = cache->oldest; page != NONE; page = cache->records[page].newer) {
    if (cache->records[page].n_children > 0 || cache->kv->holders[page] > 0) continue;
    forget(cache, page);
    cache->n_idle--;
    return page;
  }
  ASSERT(cache->n_idle == 0);
  return NONE;
}
