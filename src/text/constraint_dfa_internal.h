/* constraint_dfa_internal.h - the automaton of a constraint, made deterministic as far as texts need it. Private to the constraint files.
 *
 * A configuration is a state of the automaton and a stack of returns; a deterministic state is a set of configurations, a number.
 * Equal sets have equal numbers, equal stacks too: states are copied, compared and cached as numbers. All memory is reserved at
 * init (untouched pages cost nothing) and never grows; when it is used up, `exhausted` is set and states come out dead until
 * lazy_dfa_trim forgets those that are no longer wanted.
 */
#ifndef EAGLET_TEXT_CONSTRAINT_DFA_INTERNAL_H
#define EAGLET_TEXT_CONSTRAINT_DFA_INTERNAL_H

#include "text/constraint_internal.h"

enum { DFA_DEAD = 0, DFA_FIRST = 2 }; /* 1 is the matcher's own: the text has ended */
#define DFA_CLOSURE_MAX 65536         /* configurations that one state may stand for */

enum { DFA_EXPANDED = 1, DFA_ACCEPTS = 2, DFA_CONTINUES = 4 };

struct dfa_config {
  uint32_t state; /* of the constraint */
  uint32_t stack; /* 0: empty */
};

struct dfa_stack { /* immutable, shared */
  uint32_t next;   /* state to return to */
  uint32_t parent; /* always a smaller number */
  uint32_t depth;  /* nesting */
};

struct dfa_state {
  uint32_t first, n; /* configs[first .. first+n), sorted */
  int32_t mask;      /* slot of the matcher's cache, -1 */
  uint8_t flags;
};

struct dfa_edge {
  uint8_t low, high; /* classes */
  struct dfa_config to;
};

struct lazy_dfa {
  const struct constraint *constraint; /* borrowed */
  struct dfa_state *states;
  uint32_t *rows; /* [states_max, n_classes] next state, valid when expanded */
  struct dfa_config *configs;
  struct dfa_stack *stacks;
  uint32_t *state_slots, *stack_slots; /* hash tables, 0 = free */
  uint32_t n_states, states_max, n_configs, configs_max, n_stacks, stacks_max;
  uint32_t state_slots_mask, stack_slots_mask;
  uint32_t n_classes;
  bool exhausted;

  struct dfa_config *closure; /* scratch of one expansion, DFA_CLOSURE_MAX each */
  struct dfa_edge *edges;
  struct dfa_config *kernel;
  uint32_t *met;        /* hash table of the closure: index + 1 ... */
  uint32_t *met_stamps; /* ... valid when the stamp is the present one */
  uint32_t n_closure, n_edges, n_kernel, stamp;
};

enum eaglet_status lazy_dfa_init(struct lazy_dfa *dfa, const struct constraint *constraint, size_t memory_max,
                                 struct eaglet_error *err) MUST_USE;
void lazy_dfa_release(struct lazy_dfa *dfa);
uint32_t lazy_dfa_start(struct lazy_dfa *dfa);
void lazy_dfa_expand(struct lazy_dfa *dfa, uint32_t state); /* fills its row and flags */
bool lazy_dfa_is_full(const struct lazy_dfa *dfa);          /* some pool is half used */
/* Forgets all states but these, whose numbers change. */
void lazy_dfa_trim(struct lazy_dfa *dfa, uint32_t *states, size_t n);

static inline uint8_t lazy_dfa_flags(struct lazy_dfa *dfa, uint32_t state) {
  if (!(dfa->states[state].flags & DFA_EXPANDED)) lazy_dfa_expand(dfa, state);
  return dfa->states[state].flags;
}

static inline uint32_t lazy_dfa_next(struct lazy_dfa *dfa, uint32_t state, uint8_t byte) {
  if (!(dfa->states[state].flags & DFA_EXPANDED)) lazy_dfa_expand(dfa, state);
  return dfa->rows[(size_t)state * dfa->n_classes + dfa->constraint->class_of[byte]];
}

#endif
