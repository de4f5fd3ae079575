/* test_prefix_cache.c - pages of KV and their second life. Random sequences start, grow and end in small pools, with and without a prefix
 * cache, while a second set of books is kept by other means: which prefixes are known, who holds them, which goes next. Every entry
 * carries the hash of the tokens that it is made of, so that a page found for other tokens, written while shared, or handed out twice
 * shows in the entries of some sequence. */
#include "model/kv_cache.h"
#include "model/prefix_cache.h"

#include "base/memory.h"
#include "base/util.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define P KV_PAGE_TOKENS
#define LAYERS 2
#define SEQUENCES 6
#define PAGES_MAX 5 /* of one sequence */
#define NODES_MAX 4096

#define assert_ok(expression, err)                                                                                     \
  do {                                                                                                                 \
    if ((expression) != EAGLET_OK) fail_msg("%s: %s", #expression, (err)->message);                                    \
  } while (0)

/* ---- the second books ---- */

/* A prefix of whole pages that is known; it is a leaf when no living node has it as parent. */
struct node {
  bool alive;
  int32_t parent, depth; /* depth: pages of the prefix, itself included */
  int32_t tokens[PAGES_MAX * P + 1];
  int32_t holders;
  int64_t used; /* larger: later */
};
struct guest {
  struct kv_sequence kv;
  int32_t tokens[PAGES_MAX * P + 1], n_tokens;
  int32_t nodes[PAGES_MAX], n_nodes, n_own; /* known pages from the front, then pages of its own */
};
struct world {
  struct compute *compute;
  struct kv_cache cache;
  int32_t lookahead; /* -1: no prefix cache */
  struct node nodes[NODES_MAX];
  int32_t n_nodes;
  int64_t now;
  struct guest guests[SEQUENCES];
  uint64_t seed, counter;
  int64_t hits, evictions, refusals, replaced; /* that they happen at all */
};

static int32_t dice(struct world *w, int32_t n) {
  return (int32_t)(random_u64(w->seed, 1, w->counter++) % (uint64_t)n);
}

static int32_t count_idle(const struct world *w) {
  int32_t n = 0;
  for (int32_t i = 0; i < w->n_nodes; i++) n += w->nodes[i].alive && w->nodes[i].holders == 0;
  return n;
}

static int32_t count_free(const struct world *w) {
  int32_t n = w->cache.n_pages;
  for (int32_t i = 0; i < w->n_nodes; i++) n -= w->nodes[i].alive;
  for (int32_t i = 0; i < SEQUENCES; i++) n -= w->guests[i].n_own;
  return n;
}

/* The node of the first `depth` pages of tokens, or -1. */
static int32_t node_find(const struct world *w, const int32_t *tokens, int32_t depth) {
  size_t bytes = sizeof(int32_t) * (size_t)(depth * P + w->lookahead);
  for (int32_t i = 0; i < w->n_nodes; i++) {
    if (w->nodes[i].alive && w->nodes[i].depth == depth && memcmp(w->nodes[i].tokens, tokens, bytes) == 0) return i;
  }
  return -1;
}

static bool is_leaf(const struct world *w, int32_t node) {
  for (int32_t i = 0; i < w->n_nodes; i++) {
    if (w->nodes[i].alive && w->nodes[i].parent == node) return false;
  }
  return true;
}

/* Who is given up for a page: the longest unused leaf that nobody holds. */
static void expect_eviction(struct world *w) {
  int32_t oldest = -1;
  for (int32_t i = 0; i < w->n_nodes; i++) {
    const struct node *n = &w->nodes[i];
    if (n->alive && n->holders == 0 && is_leaf(w, i) && (oldest < 0 || n->used < w->nodes[oldest].used)) oldest = i;
  }
  assert_true(oldest >= 0);
  w->nodes[oldest].alive = false;
  w->evictions++;
}

static void expect_use(struct world *w, struct guest *g) {
  for (int32_t i = g->n_nodes; i-- > 0;) w->nodes[g->nodes[i]].used = w->now++;
}

/* ---- entries ---- */

static float *entry(const struct world *w, const struct guest *g, int32_t layer, int32_t slot) {
  return w->cache.pools[layer] + ((int64_t)g->kv.table[slot / P] * P + slot % P) * w->cache.entry_floats;
}

/* Entries are hashes of the tokens that they are made of: hashes[slot], of a layer apart. */
static void hash_all(const struct world *w, const struct guest *g, float hashes[PAGES_MAX * P]) {
  uint64_t hash = 7;
  for (int32_t i = 0; i < g->n_tokens; i++) {
    hash = hash * 1000003 + (uint64_t)g->tokens[i] + 1;
    if (i >= (w->lookahead > 0)) hashes[i - (w->lookahead > 0)] = (float)(hash >> 44);
  }
}

static void check_entries(const struct world *w) {
  float hashes[PAGES_MAX * P];
  for (int32_t i = 0; i < SEQUENCES; i++) {
    const struct guest *g = &w->guests[i];
    hash_all(w, g, hashes);
    for (int32_t slot = 0; slot < g->kv.length; slot++) {
      for (int32_t layer = 0; layer < LAYERS; layer++) {
        if (entry(w, g, layer, slot)[1] != hashes[slot] + (float)layer)
          fail_msg("sequence %d: entry %d of layer %d is of other tokens", i, slot, layer);
      }
    }
  }
}

/* ---- what a sequence does ---- */

/* Tokens up to n in all: pages of two kinds, so that beginnings are shared; now and then a token of its own. */
static void append_tokens(struct world *w, struct guest *g, int32_t n) {
  for (; g->n_tokens < n; g->n_tokens++) {
    int32_t at = g->n_tokens;
    bool begins = at % P == 0;
    g->tokens[at] = begins ? dice(w, 2) : g->tokens[at - at % P];
    if (dice(w, 150) == 0) g->tokens[at] = 5;
  }
}

static void start(struct world *w, struct guest *g) {
  int32_t pages[PAGES_MAX], n = 0, expected = 0, pages_max = dice(w, PAGES_MAX + 1);
  g->n_tokens = 0;
  append_tokens(w, g, 1 + dice(w, PAGES_MAX * P));
  if (!w->cache.prefix) return;
  n = prefix_cache_match(w->cache.prefix, g->tokens, g->n_tokens, pages, pages_max);
  while (expected < pages_max && (expected + 1) * P + w->lookahead <= g->n_tokens && node_find(w, g->tokens, expected + 1) >= 0) expected++;
  assert_int_equal(n, expected);
  prefix_cache_attach(w->cache.prefix, &g->kv, pages, n);
  assert_int_equal(g->kv.length, n * P);
  for (int32_t i = 0; i < n; i++) {
    g->nodes[i] = node_find(w, g->tokens, i + 1);
    w->nodes[g->nodes[i]].holders++;
  }
  g->n_nodes = n;
  expect_use(w, g);
  w->hits += n;
}

/* Slots for n tokens; false: there are none, and nothing has changed. */
static bool reserve(struct world *w, struct guest *g, int32_t n) {
  struct eaglet_error err;
  int32_t before = g->kv.n_pages, needed = kv_pages_of(n) - before, available = count_free(w) + count_idle(w);
  enum eaglet_status status = kv_sequence_reserve(&g->kv, n, &err);
  assert_int_equal(status, needed > available ? EAGLET_E_RESOURCE : EAGLET_OK);
  if (status != EAGLET_OK) {
    assert_int_equal(g->kv.n_pages, before);
    w->refusals++;
    return false;
  }
  for (int32_t i = 0; i < needed; i++) {
    if (count_free(w) == 0) expect_eviction(w);
    g->n_own++;
  }
  return true;
}

/* Entries up to `length` are computed. What lies in pages that are known is not written again. */
static void compute_entries(struct world *w, struct guest *g, int32_t length) {
  float hashes[PAGES_MAX * P];
  hash_all(w, g, hashes);
  for (; g->kv.length < length; g->kv.length++) {
    int32_t slot = g->kv.length;
    assert_true(slot >= g->n_nodes * P);
    for (int32_t layer = 0; layer < LAYERS; layer++) entry(w, g, layer, slot)[1] = hashes[slot] + (float)layer;
  }
}

static void share(struct world *w, struct guest *g) {
  int32_t before = g->n_nodes;
  if (!w->cache.prefix) return;
  prefix_cache_add(w->cache.prefix, &g->kv, g->tokens, g->n_tokens);
  while ((g->n_nodes + 1) * P <= g->kv.length && (g->n_nodes + 1) * P + w->lookahead <= g->n_tokens) {
    int32_t depth = g->n_nodes + 1, known = node_find(w, g->tokens, depth);
    if (known < 0) {
      assert_true(w->n_nodes < NODES_MAX);
      known = w->n_nodes++;
      w->nodes[known] = (struct node){.alive = true, .parent = depth > 1 ? g->nodes[depth - 2] : -1, .depth = depth};
      memcpy(w->nodes[known].tokens, g->tokens, sizeof(int32_t) * (size_t)(depth * P + w->lookahead));
    } else {
      w->replaced++;
    }
    w->nodes[known].holders++;
    g->nodes[g->n_nodes++] = known;
    g->n_own--;
  }
  if (g->n_nodes > before) expect_use(w, g);
}

static void grow(struct world *w, struct guest *g) {
  int32_t more = 1 + dice(w, 40), n = g->n_tokens + more < PAGES_MAX * P ? g->n_tokens + more : PAGES_MAX * P;
  if (dice(w, 3) > 0) append_tokens(w, g, n);
  int32_t slots = g->n_tokens + dice(w, 10); /* drafts need some that are never committed */
  if (!reserve(w, g, slots < PAGES_MAX * P ? slots : PAGES_MAX * P)) return;
  int32_t length = g->n_tokens - 1 - dice(w, 3);
  compute_entries(w, g, length > g->kv.length ? length : g->kv.length);
  if (g->n_nodes == g->kv.n_pages) return share(w, g);
  /* scratch behind the length may be anything */
  for (int32_t slot = g->kv.length; slot < g->kv.n_pages * P; slot++) entry(w, g, 0, slot)[1] = -1;
  share(w, g);
}

static void end(struct world *w, struct guest *g) {
  kv_sequence_empty(&g->kv);
  for (int32_t i = 0; i < g->n_nodes; i++) w->nodes[g->nodes[i]].holders--;
  g->n_nodes = g->n_own = g->n_tokens = 0;
}

/* ---- the books agree ---- */

static void check_books(const struct world *w) {
  const struct kv_cache *cache = &w->cache;
  int32_t *seen = memory_alloc((size_t)cache->n_pages * sizeof *seen);
  assert_int_equal(cache->n_free, count_free(w));
  assert_int_equal(kv_cache_available(cache), count_free(w) + count_idle(w));
  for (int32_t i = 0; i < SEQUENCES; i++) {
    const struct guest *g = &w->guests[i];
    assert_int_equal(g->kv.n_pages, g->n_nodes + g->n_own);
    assert_int_equal(g->kv.n_indexed, g->n_nodes);
    for (int32_t k = 0; k < g->kv.n_pages; k++) {
      seen[g->kv.table[k]]++;
      if (k >= g->n_nodes) assert_int_equal(cache->holders[g->kv.table[k]], 1);
    }
  }
  for (int32_t p = 0; p < cache->n_pages; p++) assert_int_equal(cache->holders[p], seen[p]);
  for (int32_t i = 0; i < cache->n_free; i++) {
    assert_int_equal(seen[cache->free_pages[i]], 0);
    assert_false(cache->prefix && prefix_cache_knows(cache->prefix, cache->free_pages[i]));
    seen[cache->free_pages[i]] = 1; /* not twice */
  }
  free(seen);
}

/* Everything that should be known is found, and nothing else (a leaf that was given up). */
static void check_known(const struct world *w) {
  int32_t pages[PAGES_MAX];
  for (int32_t i = 0; i < w->n_nodes && w->cache.prefix; i++) {
    const struct node *n = &w->nodes[i];
    int32_t expected = n->depth, found = prefix_cache_match(w->cache.prefix, n->tokens, n->depth * P + w->lookahead, pages, n->depth);
    while (expected > 0 && node_find(w, n->tokens, expected) < 0) expected--;
    assert_int_equal(found, expected);
  }
}

static void world_open(struct world *w, int32_t n_pages, int32_t lookahead, uint64_t seed) {
  struct eaglet_error err;
  memset(w, 0, sizeof *w);
  w->lookahead = lookahead;
  w->seed = seed;
  assert_ok(compute_open_cpu(&w->compute, 1, EAGLET_PRECISION_EXACT, &err), &err);
  assert_ok(kv_cache_init(&w->cache, w->compute, LAYERS, 3, n_pages, &err), &err);
  if (lookahead >= 0) prefix_cache_create(&w->cache, lookahead);
  for (int32_t i = 0; i < SEQUENCES; i++) assert_ok(kv_sequence_init(&w->guests[i].kv, &w->cache, PAGES_MAX * P, &err), &err);
}

static void world_close(struct world *w) {
  for (int32_t i = 0; i < SEQUENCES; i++) {
    end(w, &w->guests[i]);
    kv_sequence_release(&w->guests[i].kv);
  }
  assert_int_equal(kv_cache_available(&w->cache), w->cache.n_pages);
  kv_cache_release(&w->cache);
  compute_close(w->compute);
}

static void fuzz(struct world *w, int32_t n_pages, int32_t lookahead, uint64_t seed) {
  world_open(w, n_pages, lookahead, seed);
  for (int32_t step = 0; step < 1500 && w->n_nodes < NODES_MAX - PAGES_MAX; step++) {
    struct guest *g = &w->guests[dice(w, SEQUENCES)];
    if (g->n_tokens == 0)
      start(w, g);
    else if (dice(w, 6) == 0)
      end(w, g);
    else
      grow(w, g);
    check_books(w);
    check_entries(w);
    if (step % 25 == 0) check_known(w);
  }
}

static void test_fuzz(void **state) {
  (void)state;
  static const int32_t pools[] = {PAGES_MAX, 9, 14, 40};
  struct world *w = memory_alloc(sizeof *w);
  for (int32_t lookahead = -1; lookahead <= 1; lookahead++) {
    int64_t hits = 0, replaced = 0, evictions = 0, refusals = 0;
    for (uint64_t seed = 0; seed < 16; seed++) {
      fuzz(w, pools[seed % 4], lookahead, seed);
      hits += w->hits;
      replaced += w->replaced;
      evictions += w->evictions;
      refusals += w->refusals;
      world_close(w);
    }
    printf("lookahead %d: %lld hits, %lld replaced, %lld given up, %lld refusals\n", lookahead, (long long)hits, (long long)replaced,
           (long long)evictions, (long long)refusals);
    assert_true(refusals > 1000);
    assert_true(lookahead < 0 || (hits > 1000 && replaced > 300 && evictions > 1000));
  }
  free(w);
}

/* ---- by hand ---- */

static void fill(struct world *w, struct guest *g, int32_t n_tokens, int32_t token, int32_t last) {
  g->n_tokens = n_tokens;
  for (int32_t i = 0; i < n_tokens; i++) g->tokens[i] = i < n_tokens - 1 ? token : last;
  assert_true(reserve(w, g, n_tokens));
  compute_entries(w, g, n_tokens - 1);
  share(w, g);
}

/* A head's entry is made of the next token too: the same page of text with another successor is another page. */
static void test_lookahead(void **state) {
  (void)state;
  struct world *w = memory_alloc(sizeof *w);
  int32_t pages[2], text[2 * P + 2] = {0};
  for (int32_t lookahead = 0; lookahead <= 1; lookahead++) {
    world_open(w, 8, lookahead, 0);
    fill(w, &w->guests[0], P + 1, 3, 8);
    for (int32_t i = 0; i < P; i++) text[i] = 3;
    text[P] = 8;
    assert_int_equal(prefix_cache_match(w->cache.prefix, text, P + 1, pages, 2), 1);
    text[P] = 9;
    assert_int_equal(prefix_cache_match(w->cache.prefix, text, P + 1, pages, 2), lookahead ? 0 : 1);
    assert_int_equal(prefix_cache_match(w->cache.prefix, text, P, pages, 2), lookahead ? 0 : 1);
    assert_int_equal(prefix_cache_match(w->cache.prefix, text, P - 1, pages, 2), 0);
    assert_int_equal(prefix_cache_match(w->cache.prefix, text, P + 1, pages, 0), 0);
    world_close(w);
  }
  free(w);
}

/* The least recently used goes first, a page in use never, a parent never before its child. */
static void test_order(void **state) {
  (void)state;
  struct world *w = memory_alloc(sizeof *w);
  int32_t pages[2];
  world_open(w, 4, 0, 0);
  for (int32_t i = 0; i < 2; i++) {
    fill(w, &w->guests[i], 2 * P, 1 + i, 1 + i); /* two pages, the first of them known */
    append_tokens(w, &w->guests[i], 2 * P);
    end(w, &w->guests[i]);
  }
  assert_int_equal(kv_cache_available(&w->cache), 4);
  int32_t first[P], second[P];
  for (int32_t i = 0; i < P; i++) first[i] = 1, second[i] = 2;
  /* the first is used again: now the second is the oldest */
  assert_int_equal(prefix_cache_match(w->cache.prefix, first, P, pages, 1), 1);
  prefix_cache_attach(w->cache.prefix, &w->guests[0].kv, pages, 1);
  kv_sequence_empty(&w->guests[0].kv);
  struct eaglet_error err;
  assert_ok(kv_sequence_reserve(&w->guests[2].kv, 3 * P, &err), &err);
  assert_int_equal(prefix_cache_match(w->cache.prefix, first, P, pages, 1), 1);
  assert_int_equal(prefix_cache_match(w->cache.prefix, second, P, pages, 1), 0);
  prefix_cache_attach(w->cache.prefix, &w->guests[0].kv, pages, 1);
  assert_int_equal(kv_cache_available(&w->cache), 0);
  assert_int_equal(kv_sequence_reserve(&w->guests[2].kv, 4 * P, &err), EAGLET_E_RESOURCE);
  assert_non_null(strstr(err.message, "0 of 4"));
  assert_int_equal(w->guests[2].kv.n_pages, 3);
  kv_sequence_empty(&w->guests[0].kv);
  assert_ok(kv_sequence_reserve(&w->guests[2].kv, 4 * P, &err), &err);
  assert_int_equal(prefix_cache_match(w->cache.prefix, first, P, pages, 1), 0);
  kv_sequence_empty(&w->guests[2].kv);
  w->n_nodes = 0;
  world_close(w);
  free(w);
}

/* Entries move to the front across pages and layers; what is planned for is all that can be asked for. */
static void test_move(void **state) {
  (void)state;
  struct world *w = memory_alloc(sizeof *w);
  struct eaglet_error err;
  world_open(w, 8, -1, 0);
  struct guest *other = &w->guests[1], *g = &w->guests[0];
  assert_ok(kv_sequence_reserve(&other->kv, 1, &err), &err);
  assert_ok(kv_sequence_reserve(&g->kv, 3 * P, &err), &err);
  for (int32_t slot = 0; slot < 3 * P; slot++) {
    for (int32_t layer = 0; layer < LAYERS; layer++) {
      for (int k = 0; k < 3; k++) entry(w, g, layer, slot)[k] = (float)(1000 * layer + 3 * slot + k);
    }
  }
  const int32_t to[] = {P - 2, P - 1, P, P + 1}, from[] = {P - 2, P + 3, 2 * P, 3 * P - 1};
  kv_sequence_move(&g->kv, to, from, 4);
  for (int32_t slot = 0; slot < 3 * P; slot++) {
    int32_t source = slot;
    for (int i = 0; i < 4; i++) source = to[i] == slot ? from[i] : source;
    for (int32_t layer = 0; layer < LAYERS; layer++) {
      for (int k = 0; k < 3; k++) assert_true(entry(w, g, layer, slot)[k] == (float)(1000 * layer + 3 * source + k));
    }
  }
  assert_int_equal(kv_sequence_reserve(&g->kv, PAGES_MAX * P + 1, &err), EAGLET_E_RESOURCE);
  assert_non_null(strstr(err.message, "planned for"));
  assert_ok(kv_sequence_reserve(&g->kv, 0, &err), &err);
  assert_int_equal(g->kv.n_pages, 3);
  struct kv_sequence none;
  assert_int_equal(kv_sequence_init(&none, &w->cache, 0, &err), EAGLET_E_USAGE);
  kv_sequence_empty(&other->kv);
  kv_sequence_empty(&g->kv);
  world_close(w);
  free(w);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_fuzz), cmocka_unit_test(test_lookahead), cmocka_unit_test(test_order),
                                     cmocka_unit_test(test_move)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
