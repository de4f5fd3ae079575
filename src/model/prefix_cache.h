/* prefix_cache.h - whole pages of KV that outlive their sequences, found again by the tokens that made them.
 *
 * A tree of pages: a page is known by its parent page, by its KV_PAGE_TOKENS tokens, and, for a draft head, by the token after them: the
 * head's entry t is made of the state at t and of token t + 1 (lookahead 1), the target's of tokens up to t (lookahead 0). Tokens are
 * compared, not only hashed. Since a row's entry has the same bits however it was computed (decision 3), a page found here is the page
 * that would be computed: the cache cannot change output.
 *
 * Invariant: who holds a page holds all its ancestors, so that pages held by nobody ("idle") can always be given up leaf first, the
 * longest unused ones before others. Memory is fixed: one record per page of the pool. One per kv_cache, which it becomes part of.
 */
#ifndef EAGLET_MODEL_PREFIX_CACHE_H
#define EAGLET_MODEL_PREFIX_CACHE_H

#include "model/kv_cache.h"

struct prefix_cache;
/* Joins `kv`, which must outlive it and have handed out no page yet. */
void prefix_cache_create(struct kv_cache *kv, int32_t lookahead);
void prefix_cache_free(struct prefix_cache *cache); /* kv_cache_release does */

/* Finds the longest cached prefix of tokens[0 .. n_tokens-1]; pages[0 .. pages_max-1] gets its pages. Returns how many. */
int32_t prefix_cache_match(const struct prefix_cache *cache, const int32_t *tokens, int32_t n_tokens, int32_t *pages, int32_t pages_max);
/* An empty sequence starts with n pages that prefix_cache_match found (nothing in between). */
void prefix_cache_attach(struct prefix_cache *cache, struct kv_sequence *sequence, const int32_t *pages, int32_t n);
/* Makes the pages known that became whole since the last call: entries 0 .. sequence->length-1 are committed, made of `tokens`. A page
 * that another sequence made known first is replaced by that one. */
void prefix_cache_add(struct prefix_cache *cache, struct kv_sequence *sequence, const int32_t *tokens, int32_t n_tokens);

/* For kv_cache.c. */
bool prefix_cache_knows(const struct prefix_cache *cache, int32_t page);
void prefix_cache_held(struct prefix_cache *cache, int32_t page, bool idle); /* a known page lost its last holder, or found a first */
int32_t prefix_cache_idle(const struct prefix_cache *cache);                /* known pages without a holder */
int32_t prefix_cache_evict(struct prefix_cache *cache);                     /* forgets the longest unused; returns it, -1: none is idle */

#endif
