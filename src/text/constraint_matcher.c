/* constraint_matcher.c - tokens on top of the deterministic states: masks by one walk over the vocabulary's trie, and their cache.
 *
 * The walk keeps the state behind every byte of the present path; a dead state skips the subtree. Cost: visited nodes, a table
 * look-up each.
 */
#include "text/constraint_matcher.h"

#include "base/memory.h"
#include "text/constraint_dfa_internal.h"
#include "text/constraint_trie_internal.h"
#include <stdlib.h>
#include <string.h>

#define MEMORY_DEFAULT ((size_t)64 << 20)
#define MASKS_DEFAULT 128

struct mask_slot {
  uint32_t state; /* DFA_DEAD: free */
  uint64_t used;  /* when, by the clock of uses */
};

struct constraint_matcher {
  struct lazy_dfa dfa;
  const struct constraint_vocabulary *vocabulary; /* borrowed, NULL */
  uint32_t *path;  /* [depth_max + 1] states of a walk */
  uint32_t *masks; /* [n_slots + 1, words + 1]; the last one: the stop tokens alone */
  struct mask_slot *slots;
  int32_t n_slots;
  size_t n_words;
  uint64_t clock;
  struct constraint_matcher_stats stats;
};

static inline void set_bit(uint32_t *bits, int32_t id) { bits[id / 32] |= (uint32_t)1 << (id % 32); }

/* Characters outside of ASCII are not asked for: where they are whole tokens, a text does not stop in the middle of one. */
static enum eaglet_status check_spelling(const struct constraint *constraint, const struct constraint_vocabulary *vocabulary,
                                         struct eaglet_error *err) {
  for (int byte = 0; byte < 0x80; byte++)
    if (constraint->used[byte] && !vocabulary->spells[byte])
      FAIL(err, EAGLET_E_INPUT, "constraint: no token is the byte 0x%02x alone, which the grammar uses: a text could get stuck", byte);
  return EAGLET_OK;
}

static enum eaglet_status fail_exhausted(const struct constraint_matcher *m, struct eaglet_error *err) {
  FAIL(err, EAGLET_E_RESOURCE, "constraint: its memory is used up: %u of %u states, at most %d alternatives at once", m->dfa.n_states,
       m->dfa.states_max, DFA_CLOSURE_MAX);
}

/* What is ambiguous beyond measure from the first byte on is told at once. */
static enum eaglet_status check_start(struct constraint_matcher *m, struct eaglet_error *err) {
  lazy_dfa_flags(&m->dfa, lazy_dfa_start(&m->dfa));
  return m->dfa.exhausted ? fail_exhausted(m, err) : EAGLET_OK;
}

static uint32_t *mask_of(const struct constraint_matcher *m, int32_t slot) { return m->masks + (size_t)slot * (m->n_words + 1); }

static void set_stops(const struct constraint_matcher *m, uint32_t *bits) {
  for (size_t i = 0; i < m->vocabulary->stops.n; i++) set_bit(bits, m->vocabulary->stops.ids[i]);
}

enum eaglet_status constraint_matcher_create(struct constraint_matcher **matcher, const struct constraint_matcher_params *params,
                                             struct eaglet_error *err) {
  *matcher = NULL;
  const struct constraint_vocabulary *vocabulary = params->vocabulary;
  if (vocabulary) TRY(check_spelling(params->constraint, vocabulary, err));
  struct constraint_matcher *m = memory_alloc(sizeof *m);
  enum eaglet_status status =
      lazy_dfa_init(&m->dfa, params->constraint, params->memory_max ? params->memory_max : MEMORY_DEFAULT, err);
  if (status == EAGLET_OK) status = check_start(m, err);
  if (status == EAGLET_OK && vocabulary) {
    m->vocabulary = vocabulary;
    m->n_slots = params->masks_max > 0 ? params->masks_max : MASKS_DEFAULT;
    m->n_words = constraint_vocabulary_words(vocabulary);
    m->path = memory_alloc((vocabulary->depth_max + 1) * sizeof *m->path);
    m->slots = memory_alloc((size_t)m->n_slots * sizeof *m->slots);
    m->masks = malloc(((size_t)m->n_slots + 1) * (m->n_words + 1) * sizeof *m->masks);
    if (!m->masks) status = error_set(err, EAGLET_E_RESOURCE, "constraint: no memory for %d masks of %zu words", m->n_slots, m->n_words);
    else set_stops(m, memset(mask_of(m, m->n_slots), 0, m->n_words * sizeof *m->masks));
  }
  if (status != EAGLET_OK) {
    constraint_matcher_free(m);
    return status;
  }
  *matcher = m;
  return EAGLET_OK;
}

void constraint_matcher_free(struct constraint_matcher *matcher) {
  if (!matcher) return;
  lazy_dfa_release(&matcher->dfa);
  free(matcher->masks);
  free(matcher->slots);
  free(matcher->path);
  free(matcher);
}

uint32_t constraint_matcher_start(struct constraint_matcher *matcher) { return lazy_dfa_start(&matcher->dfa); }

/* ---- masks ---- */

static void walk_trie(struct constraint_matcher *m, uint32_t state, uint32_t *bits) {
  const struct constraint_vocabulary *v = m->vocabulary;
  const struct vocabulary_node *nodes = v->nodes;
  uint32_t *path = m->path;
  path[0] = state;
  for (size_t i = 0; i < v->n_nodes;) {
    const struct vocabulary_node *node = &nodes[i];
    uint32_t next = lazy_dfa_next(&m->dfa, path[node->depth - 1], node->byte);
    if (next == DFA_DEAD) {
      i = node->skip;
      continue;
    }
    path[node->depth] = next;
    set_bit(bits, node->token); /* where none ends: a bit behind the mask, which is cheaper than a branch that nobody can predict */
    if (node->twins)
      for (int32_t id = v->next_twin[node->token]; id >= 0; id = v->next_twin[id]) set_bit(bits, id);
    i++;
  }
}

static enum eaglet_status fail_stuck(struct constraint_matcher *m, uint32_t state, struct eaglet_error *err) {
  for (int byte = 0; byte < 256; byte++)
    if (lazy_dfa_next(&m->dfa, state, (uint8_t)byte) != DFA_DEAD)
      FAIL(err, EAGLET_E_INPUT, "constraint: no token of the vocabulary continues the text: byte 0x%02x is expected", byte);
  FAIL(err, EAGLET_E_INPUT, "constraint: no token of the vocabulary continues the text");
}

static enum eaglet_status make_mask(struct constraint_matcher *m, uint32_t state, uint32_t *bits, struct eaglet_error *err) {
  memset(bits, 0, m->n_words * sizeof *bits);
  bool ends = state == CONSTRAINT_STATE_ENDED;
  if (!ends) {
    walk_trie(m, state, bits);
    ends = lazy_dfa_flags(&m->dfa, state) & DFA_ACCEPTS;
    if (m->dfa.exhausted) return fail_exhausted(m, err);
  }
  if (ends) set_stops(m, bits);
  m->stats.masks_made++;
  uint32_t any = 0;
  for (size_t i = 0; i < m->n_words; i++) any |= bits[i];
  return any ? EAGLET_OK : fail_stuck(m, state, err);
}

/* The slot used longest ago. A scan: it costs nothing beside the walk that follows. */
static int32_t take_slot(struct constraint_matcher *m) {
  int32_t oldest = 0;
  for (int32_t i = 0; i < m->n_slots; i++) {
    if (m->slots[i].state == DFA_DEAD) return i;
    if (m->slots[i].used < m->slots[oldest].used) oldest = i;
  }
  m->dfa.states[m->slots[oldest].state].mask = -1;
  m->slots[oldest].state = DFA_DEAD;
  return oldest;
}

enum eaglet_status constraint_matcher_mask(struct constraint_matcher *m, uint32_t state, const uint32_t **mask, struct eaglet_error *err) {
  ASSERT(m->vocabulary && state < m->dfa.n_states);
  *mask = mask_of(m, m->n_slots);
  if (state == CONSTRAINT_STATE_DEAD) FAIL(err, EAGLET_E_USAGE, "constraint: a mask of the dead state");
  int32_t slot = m->dfa.states[state].mask;
  if (slot < 0) {
    slot = take_slot(m);
    TRY(make_mask(m, state, mask_of(m, slot), err));
    m->slots[slot].state = state;
    m->dfa.states[state].mask = slot;
  } else {
    m->stats.masks_reused++;
  }
  m->slots[slot].used = ++m->clock;
  *mask = mask_of(m, slot);
  return EAGLET_OK;
}

/* ---- steps ---- */

bool constraint_matcher_advance_bytes(struct constraint_matcher *m, uint32_t *state, const char *bytes, size_t length) {
  ASSERT(*state < m->dfa.n_states);
  uint32_t at = *state;
  for (size_t i = 0; i < length; i++) {
    if (at < DFA_FIRST) return false;
    at = lazy_dfa_next(&m->dfa, at, (uint8_t)bytes[i]);
  }
  if (at == DFA_DEAD) return false;
  *state = at;
  return true;
}

bool constraint_matcher_advance(struct constraint_matcher *m, uint32_t *state, int32_t token) {
  ASSERT(m->vocabulary);
  if (constraint_vocabulary_is_stop(m->vocabulary, token)) {
    if (!constraint_matcher_is_complete(m, *state)) return false;
    *state = CONSTRAINT_STATE_ENDED;
    return true;
  }
  size_t length;
  const char *bytes = constraint_vocabulary_bytes(m->vocabulary, token, &length);
  return bytes && constraint_matcher_advance_bytes(m, state, bytes, length);
}

bool constraint_matcher_is_complete(struct constraint_matcher *m, uint32_t state) {
  ASSERT(state < m->dfa.n_states);
  if (state < DFA_FIRST) return state == CONSTRAINT_STATE_ENDED;
  return lazy_dfa_flags(&m->dfa, state) & DFA_ACCEPTS;
}

bool constraint_matcher_must_end(struct constraint_matcher *m, uint32_t state) {
  if (!constraint_matcher_is_complete(m, state)) return false;
  return state < DFA_FIRST || !(m->dfa.states[state].flags & DFA_CONTINUES);
}

/* ---- memory ---- */

bool constraint_matcher_trim(struct constraint_matcher *m, uint32_t *states, size_t n) {
  for (size_t i = 0; i < n; i++) ASSERT(states[i] < m->dfa.n_states);
  if (!lazy_dfa_is_full(&m->dfa)) return false;
  lazy_dfa_trim(&m->dfa, states, n);
  for (int32_t i = 0; i < m->n_slots; i++) m->slots[i] = (struct mask_slot){0};
  m->dfa.states[CONSTRAINT_STATE_ENDED].mask = -1;
  m->stats.trims++;
  return true;
}

bool constraint_matcher_is_exhausted(const struct constraint_matcher *matcher) { return matcher->dfa.exhausted; }

struct constraint_matcher_stats constraint_matcher_stats(const struct constraint_matcher *matcher) {
  struct constraint_matcher_stats stats = matcher->stats;
  stats.n_states = matcher->dfa.n_states;
  return stats;
}
