/* constraint_dfa.c - subset construction on demand: the closure of a set of configurations, its edges, the sets behind them.
 *
 * Only configurations that can still reach the end within the nesting limit are kept (heights of constraint.c), so a state is
 * dead exactly when no text continues. A call in last place pushes nothing.
 */
#include "text/constraint_dfa_internal.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define STATES_MIN 1024u
#define STATES_LIMIT (1u << 16)
#define CONFIGS_PER_STATE 8u
#define STACKS_PER_STATE 1u

static uint32_t power_of_two(uint32_t n) {
  uint32_t power = 16;
  while (power < n) power *= 2;
  return power;
}

enum eaglet_status lazy_dfa_init(struct lazy_dfa *dfa, const struct constraint *constraint, size_t memory_max,
                                 struct eaglet_error *err) {
  *dfa = (struct lazy_dfa){.constraint = constraint, .n_classes = constraint->n_classes};
  size_t per_state = sizeof *dfa->states + 8 + constraint->n_classes * sizeof *dfa->rows + CONFIGS_PER_STATE * sizeof *dfa->configs +
                     STACKS_PER_STATE * (sizeof *dfa->stacks + 8);
  size_t n = memory_max / per_state;
  dfa->states_max = n < STATES_MIN ? STATES_MIN : n > STATES_LIMIT ? STATES_LIMIT : (uint32_t)n;
  dfa->configs_max = dfa->states_max * CONFIGS_PER_STATE + 2 * DFA_CLOSURE_MAX;
  dfa->stacks_max = dfa->states_max * STACKS_PER_STATE;
  dfa->state_slots_mask = power_of_two(dfa->states_max * 2) - 1;
  dfa->stack_slots_mask = power_of_two(dfa->stacks_max * 2) - 1;
  /* Only the tables need zeros: the rest is not touched before it is used. */
  dfa->states = malloc(dfa->states_max * sizeof *dfa->states);
  dfa->rows = malloc((size_t)dfa->states_max * dfa->n_classes * sizeof *dfa->rows);
  dfa->configs = malloc(dfa->configs_max * sizeof *dfa->configs);
  dfa->stacks = malloc(dfa->stacks_max * sizeof *dfa->stacks);
  dfa->state_slots = memory_try(((size_t)dfa->state_slots_mask + 1) * sizeof *dfa->state_slots);
  dfa->stack_slots = memory_try(((size_t)dfa->stack_slots_mask + 1) * sizeof *dfa->stack_slots);
  dfa->closure = malloc(DFA_CLOSURE_MAX * sizeof *dfa->closure);
  dfa->edges = malloc(DFA_CLOSURE_MAX * sizeof *dfa->edges);
  dfa->kernel = malloc(DFA_CLOSURE_MAX * sizeof *dfa->kernel);
  dfa->met = malloc(2 * DFA_CLOSURE_MAX * sizeof *dfa->met);
  dfa->met_stamps = memory_try(2 * DFA_CLOSURE_MAX * sizeof *dfa->met_stamps);
  if (!dfa->states || !dfa->rows || !dfa->configs || !dfa->stacks || !dfa->state_slots || !dfa->stack_slots || !dfa->closure ||
      !dfa->edges || !dfa->kernel || !dfa->met || !dfa->met_stamps) {
    lazy_dfa_release(dfa);
    FAIL(err, EAGLET_E_RESOURCE, "constraint: no memory for %zu bytes of states", memory_max);
  }
  dfa->n_stacks = 1;
  dfa->n_states = DFA_FIRST;
  dfa->stacks[0] = (struct dfa_stack){0};
  for (uint32_t i = 0; i < DFA_FIRST; i++) dfa->states[i] = (struct dfa_state){.mask = -1, .flags = DFA_EXPANDED};
  memset(dfa->rows, 0, DFA_FIRST * dfa->n_classes * sizeof *dfa->rows);
  return EAGLET_OK;
}

void lazy_dfa_release(struct lazy_dfa *dfa) {
  free(dfa->states);
  free(dfa->rows);
  free(dfa->configs);
  free(dfa->stacks);
  memory_try_free(dfa->state_slots);
  memory_try_free(dfa->stack_slots);
  free(dfa->closure);
  free(dfa->edges);
  free(dfa->kernel);
  free(dfa->met);
  memory_try_free(dfa->met_stamps);
  *dfa = (struct lazy_dfa){0};
}

/* ---- stacks ---- */

static uint32_t mix(uint32_t a, uint32_t b) {
  uint64_t h = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;
  return (uint32_t)(h >> 32) ^ (uint32_t)h;
}

/* parent with one more return; 0 and exhausted when there is no room. */
static uint32_t push_stack(struct lazy_dfa *dfa, uint32_t next, uint32_t parent, uint32_t weight) {
  uint32_t at = mix(next, parent) & dfa->stack_slots_mask;
  for (; dfa->stack_slots[at]; at = (at + 1) & dfa->stack_slots_mask) {
    const struct dfa_stack *stack = &dfa->stacks[dfa->stack_slots[at]];
    if (stack->next == next && stack->parent == parent && stack->depth == dfa->stacks[parent].depth + weight)
      return dfa->stack_slots[at];
  }
  if (dfa->n_stacks == dfa->stacks_max) {
    dfa->exhausted = true;
    return 0;
  }
  dfa->stacks[dfa->n_stacks] = (struct dfa_stack){.next = next, .parent = parent, .depth = dfa->stacks[parent].depth + weight};
  dfa->stack_slots[at] = dfa->n_stacks;
  return dfa->n_stacks++;
}

/* ---- sets ---- */

static int compare_configs(const void *a, const void *b) {
  const struct dfa_config *x = a, *y = b;
  if (x->state != y->state) return x->state < y->state ? -1 : 1;
  return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* Sorts the kernel and drops doubles. */
static void order_kernel(struct lazy_dfa *dfa) {
  struct dfa_config *k = dfa->kernel;
  uint32_t n = dfa->n_kernel, n_kept = 0;
  if (n > 16) {
    qsort(k, n, sizeof *k, compare_configs);
  } else {
    for (uint32_t i = 1; i < n; i++) {
      struct dfa_config config = k[i];
      uint32_t at = i;
      for (; at > 0 && compare_configs(&config, &k[at - 1]) < 0; at--) k[at] = k[at - 1];
      k[at] = config;
    }
  }
  for (uint32_t i = 0; i < n; i++)
    if (n_kept == 0 || compare_configs(&k[n_kept - 1], &k[i]) != 0) k[n_kept++] = k[i];
  dfa->n_kernel = n_kept;
}

/* The number of the kernel's set. */
static uint32_t intern_kernel(struct lazy_dfa *dfa) {
  if (dfa->n_kernel == 0) return DFA_DEAD;
  order_kernel(dfa);
  uint32_t hash = 0, n = dfa->n_kernel;
  for (uint32_t i = 0; i < n; i++) hash = mix(hash ^ dfa->kernel[i].state, dfa->kernel[i].stack);
  uint32_t at = hash & dfa->state_slots_mask;
  for (; dfa->state_slots[at]; at = (at + 1) & dfa->state_slots_mask) {
    const struct dfa_state *state = &dfa->states[dfa->state_slots[at]];
    if (state->n == n && memcmp(dfa->configs + state->first, dfa->kernel, n * sizeof *dfa->kernel) == 0) return dfa->state_slots[at];
  }
  if (dfa->n_states == dfa->states_max || dfa->configs_max - dfa->n_configs < n) {
    dfa->exhausted = true;
    return DFA_DEAD;
  }
  memcpy(dfa->configs + dfa->n_configs, dfa->kernel, n * sizeof *dfa->kernel);
  dfa->states[dfa->n_states] = (struct dfa_state){.first = dfa->n_configs, .n = n, .mask = -1};
  dfa->n_configs += n;
  dfa->state_slots[at] = dfa->n_states;
  return dfa->n_states++;
}

/* ---- closure ---- */

static bool is_alive(const struct lazy_dfa *dfa, struct dfa_config config) {
  const struct constraint *c = dfa->constraint;
  uint32_t height = c->heights[config.state];
  return height != NFA_HEIGHT_NEVER && height + dfa->stacks[config.stack].depth <= c->nesting_max;
}

/* A return is taken at once, so that equal continuations are equal configurations. */
static struct dfa_config settle(const struct lazy_dfa *dfa, struct dfa_config config) {
  while (config.state == NFA_STATE_RETURN && config.stack)
    config = (struct dfa_config){dfa->stacks[config.stack].next, dfa->stacks[config.stack].parent};
  return config;
}

static void meet(struct lazy_dfa *dfa, struct dfa_config config) {
  config = settle(dfa, config);
  if (!is_alive(dfa, config)) return;
  const uint32_t mask = 2 * DFA_CLOSURE_MAX - 1;
  uint32_t at = mix(config.state, config.stack) & mask;
  for (; dfa->met_stamps[at] == dfa->stamp; at = (at + 1) & mask) {
    const struct dfa_config *other = &dfa->closure[dfa->met[at]];
    if (other->state == config.state && other->stack == config.stack) return;
  }
  if (dfa->n_closure == DFA_CLOSURE_MAX) {
    dfa->exhausted = true;
    return;
  }
  dfa->met[at] = dfa->n_closure;
  dfa->met_stamps[at] = dfa->stamp;
  dfa->closure[dfa->n_closure++] = config;
}

static void follow_call(struct lazy_dfa *dfa, struct dfa_config config) {
  const struct constraint *c = dfa->constraint;
  const struct nfa_state *call = &c->states[config.state];
  const struct nfa_rule *rule = &c->rules[call->other];
  uint32_t stack = config.stack;
  if (call->next != NFA_STATE_RETURN) stack = push_stack(dfa, call->next, stack, rule->weight);
  if (!dfa->exhausted) meet(dfa, (struct dfa_config){rule->start, stack});
}

/* Everything that the state can be in before the next byte: edges, and whether the text may end. */
static bool close_state(struct lazy_dfa *dfa, uint32_t state) {
  const struct constraint *c = dfa->constraint;
  bool accepts = false;
  dfa->n_closure = dfa->n_edges = 0;
  if (++dfa->stamp == 0) { /* wrapped: old stamps could look present */
    memset(dfa->met_stamps, 0, 2 * DFA_CLOSURE_MAX * sizeof *dfa->met_stamps);
    dfa->stamp = 1;
  }
  for (uint32_t i = 0; i < dfa->states[state].n; i++) meet(dfa, dfa->configs[dfa->states[state].first + i]);
  for (uint32_t i = 0; i < dfa->n_closure && !dfa->exhausted; i++) {
    struct dfa_config config = dfa->closure[i];
    const struct nfa_state *s = &c->states[config.state];
    switch ((enum nfa_kind)s->kind) {
    case NFA_FAIL: break;
    case NFA_RETURN: accepts = true; break;
    case NFA_BYTES:
      dfa->edges[dfa->n_edges++] =
          (struct dfa_edge){c->class_of[s->low], c->class_of[s->high], settle(dfa, (struct dfa_config){s->next, config.stack})};
      break;
    case NFA_SPLIT:
      meet(dfa, (struct dfa_config){s->next, config.stack});
      meet(dfa, (struct dfa_config){s->other, config.stack});
      break;
    case NFA_CALL: follow_call(dfa, config); break;
    }
  }
  return accepts;
}

void lazy_dfa_expand(struct lazy_dfa *dfa, uint32_t state) {
  uint32_t *row = dfa->rows + (size_t)state * dfa->n_classes, next = DFA_DEAD;
  if (dfa->exhausted) { /* the row may still hold what stood there before a trim */
    memset(row, 0, dfa->n_classes * sizeof *row);
    return;
  }
  bool accepts = close_state(dfa, state), begins[257] = {true};
  for (uint32_t i = 0; i < dfa->n_edges; i++) begins[dfa->edges[i].low] = begins[dfa->edges[i].high + 1] = true;
  for (uint32_t class = 0; class < dfa->n_classes && !dfa->exhausted; class++) {
    if (begins[class]) { /* between two beginnings the edges are the same */
      dfa->n_kernel = 0;
      for (uint32_t i = 0; i < dfa->n_edges; i++)
        if (dfa->edges[i].low <= class && class <= dfa->edges[i].high) dfa->kernel[dfa->n_kernel++] = dfa->edges[i].to;
      next = intern_kernel(dfa);
    }
    row[class] = next;
  }
  if (dfa->exhausted) { /* stays as it was: reads as dead until a trim */
    memset(row, 0, dfa->n_classes * sizeof *row);
    return;
  }
  dfa->states[state].flags = (uint8_t)(DFA_EXPANDED | (accepts ? DFA_ACCEPTS : 0) | (dfa->n_edges ? DFA_CONTINUES : 0));
}

uint32_t lazy_dfa_start(struct lazy_dfa *dfa) {
  dfa->kernel[0] = (struct dfa_config){dfa->constraint->rules[0].start, 0};
  dfa->n_kernel = 1;
  return intern_kernel(dfa);
}

/* ---- forgetting ---- */

bool lazy_dfa_is_full(const struct lazy_dfa *dfa) {
  return dfa->exhausted || dfa->n_states > dfa->states_max / 2 || dfa->n_configs > dfa->configs_max / 2 ||
         dfa->n_stacks > dfa->stacks_max / 2;
}

/* New numbers of the stacks that the states need, 0 for others; parents have smaller numbers, so one pass down marks them all. */
static void restack(struct lazy_dfa *dfa, const struct dfa_stack *old, uint32_t *number, uint32_t n_old) {
  for (uint32_t i = n_old - 1; i > 0; i--)
    if (number[i]) number[old[i].parent] = 1;
  number[0] = 0;
  for (uint32_t i = 1; i < n_old; i++)
    if (number[i]) number[i] = push_stack(dfa, old[i].next, number[old[i].parent], old[i].depth - old[old[i].parent].depth);
}

void lazy_dfa_trim(struct lazy_dfa *dfa, uint32_t *states, size_t n) {
  uint32_t n_old = dfa->n_stacks;
  struct dfa_stack *stacks = memory_alloc(n_old * sizeof *stacks);
  uint32_t *number = memory_alloc(n_old * sizeof *number);
  struct dfa_config **configs = memory_alloc(n * sizeof *configs);
  uint32_t *n_configs = memory_alloc(n * sizeof *n_configs);
  memcpy(stacks, dfa->stacks, n_old * sizeof *stacks);
  for (size_t i = 0; i < n; i++) {
    const struct dfa_state *state = &dfa->states[states[i]];
    n_configs[i] = state->n;
    configs[i] = memory_alloc(state->n * sizeof **configs);
    if (state->n) memcpy(configs[i], dfa->configs + state->first, state->n * sizeof **configs);
    for (uint32_t k = 0; k < state->n; k++) number[configs[i][k].stack] = 1;
  }
  memset(dfa->state_slots, 0, ((size_t)dfa->state_slots_mask + 1) * sizeof *dfa->state_slots);
  memset(dfa->stack_slots, 0, ((size_t)dfa->stack_slots_mask + 1) * sizeof *dfa->stack_slots);
  dfa->n_states = DFA_FIRST;
  dfa->n_configs = 0;
  dfa->n_stacks = 1;
  dfa->exhausted = false;
  restack(dfa, stacks, number, n_old);
  for (size_t i = 0; i < n; i++) {
    dfa->n_kernel = n_configs[i];
    for (uint32_t k = 0; k < n_configs[i]; k++) dfa->kernel[k] = (struct dfa_config){configs[i][k].state, number[configs[i][k].stack]};
    if (states[i] >= DFA_FIRST) states[i] = intern_kernel(dfa);
    free(configs[i]);
  }
  free(configs);
  free(n_configs);
  free(number);
  free(stacks);
}
