/* constraint.c - the finished automaton: proof that it cannot get stuck, classes of bytes; and the sources that need no parser.
 *
 * Heights: the nesting that a state needs to reach the end of its rule, a least fixpoint. A state without one can never end and is
 * never entered; together with the limit of nesting this means that from every state that a matcher holds, bytes lead to the end.
 */
#include "text/constraint_internal.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

static const char too_many_checks[] = "its check takes too many steps";

/* ---- heights ---- */

static uint32_t height_of(const struct constraint *c, const struct nfa_state *state) {
  uint32_t next, other;
  switch ((enum nfa_kind)state->kind) {
  case NFA_FAIL: return NFA_HEIGHT_NEVER;
  case NFA_RETURN: return 0;
  case NFA_BYTES: return c->heights[state->next];
  case NFA_SPLIT:
    next = c->heights[state->next];
    other = c->heights[state->other];
    return next < other ? next : other;
  case NFA_CALL:
    next = c->heights[state->next];
    other = c->heights[c->rules[state->other].start];
    if (next == NFA_HEIGHT_NEVER || other == NFA_HEIGHT_NEVER) return NFA_HEIGHT_NEVER;
    other += c->rules[state->other].weight;
    return next > other ? next : other;
  }
  return NFA_HEIGHT_NEVER;
}

/* Values only fall. States mostly follow their successors, rules precede those that they call: a few sweeps. */
static bool compute_heights(struct constraint *c) {
  size_t n_checks = 0;
  c->heights = memory_alloc(c->n_states * sizeof *c->heights);
  memset(c->heights, 0xff, c->n_states * sizeof *c->heights);
  for (bool changed = true; changed;) {
    changed = false;
    size_t end = c->n_states;
    for (size_t rule = c->n_rules; rule > 0; end = c->rules[--rule].first) {
      size_t first = rule == 1 ? 0 : c->rules[rule - 1].first;
      for (size_t i = first; i < end; i++) {
        uint32_t height = height_of(c, &c->states[i]);
        if (height >= c->heights[i]) continue;
        c->heights[i] = height;
        changed = true;
      }
    }
    n_checks += c->n_states;
    if (n_checks > CONSTRAINT_CHECKS_MAX) return false;
  }
  return true;
}

/* ---- recursion that reads nothing ---- */

struct left_walk {
  const struct constraint *c;
  bool *nullable;   /* [n_rules] the rule can end without a byte */
  uint32_t *stack;  /* [n_states] */
  uint32_t *stamps; /* [n_states] walk in which a state was last met */
  uint32_t stamp;
  size_t n_checks;
};

/* Calls visit for every rule that `rule` can call before it reads a byte; returns whether it can end there. */
static bool walk_left(struct left_walk *w, size_t rule, void (*visit)(void *context, uint32_t rule), void *context) {
  const struct constraint *c = w->c;
  bool ends = false;
  size_t n = 0;
  w->stamp++;
  w->stack[n++] = c->rules[rule].start;
  w->stamps[c->rules[rule].start] = w->stamp;
  while (n && w->n_checks++ <= CONSTRAINT_CHECKS_MAX) {
    const struct nfa_state *state = &c->states[w->stack[--n]];
    uint32_t follow[2];
    int n_follow = 0;
    if (state->kind == NFA_RETURN) ends = true;
    if (state->kind == NFA_SPLIT) follow[n_follow++] = state->other;
    if (state->kind == NFA_CALL && visit) visit(context, state->other);
    if (state->kind == NFA_SPLIT || (state->kind == NFA_CALL && w->nullable[state->other])) follow[n_follow++] = state->next;
    for (int i = 0; i < n_follow; i++) {
      uint32_t to = follow[i];
      if (w->stamps[to] == w->stamp || c->heights[to] == NFA_HEIGHT_NEVER) continue;
      w->stamps[to] = w->stamp;
      w->stack[n++] = to;
    }
  }
  return ends;
}

struct first_calls { /* how many rules call each one first; whom one rule calls first */
  uint32_t *n_callers;
  uint32_t *items;
  size_t n, capacity;
};

static void count_call(void *context, uint32_t rule) { ((struct first_calls *)context)->n_callers[rule]++; }

static void list_call(void *context, uint32_t rule) {
  struct first_calls *calls = context;
  MEMORY_GROW(calls->items, calls->capacity, calls->n + 1);
  calls->items[calls->n++] = rule;
}

static void find_nullable(struct left_walk *w) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = w->c->n_rules; i > 0; i--) {
      if (w->nullable[i - 1] || !walk_left(w, i - 1, NULL, NULL)) continue;
      w->nullable[i - 1] = true;
      changed = true;
    }
  }
}

/* Peels off the rules that nobody calls first; what stays is called from a cycle. Returns whether something stays. */
static bool peel_rules(struct left_walk *w, struct first_calls *calls) {
  size_t n = w->c->n_rules, n_ready = 0, n_peeled = 0;
  uint32_t *ready = memory_alloc(n * sizeof *ready);
  for (size_t i = 0; i < n; i++) walk_left(w, i, count_call, calls);
  for (size_t i = 0; i < n; i++)
    if (calls->n_callers[i] == 0) ready[n_ready++] = (uint32_t)i;
  for (; n_ready; n_peeled++) {
    calls->n = 0;
    walk_left(w, ready[--n_ready], list_call, calls);
    for (size_t i = 0; i < calls->n; i++)
      if (--calls->n_callers[calls->items[i]] == 0) ready[n_ready++] = calls->items[i];
  }
  free(ready);
  return n_peeled < n;
}

/* Does the rule reach itself through first calls? met: [n_rules]. */
static bool calls_itself(struct left_walk *w, uint32_t rule, struct first_calls *calls, bool *met) {
  memset(met, 0, w->c->n_rules * sizeof *met);
  calls->n = 0;
  walk_left(w, rule, list_call, calls);
  while (calls->n) {
    uint32_t callee = calls->items[--calls->n];
    if (callee == rule) return true;
    if (met[callee]) continue;
    met[callee] = true;
    walk_left(w, callee, list_call, calls);
  }
  return false;
}

/* The first rule on a cycle of first calls; n_rules: there is none. */
static size_t find_left_recursion(struct left_walk *w) {
  size_t n = w->c->n_rules, found = n;
  struct first_calls calls = {.n_callers = memory_alloc(n * sizeof(uint32_t))};
  if (peel_rules(w, &calls)) {
    bool *met = memory_alloc(n * sizeof *met);
    for (size_t i = 0; i < n && found == n; i++)
      if (calls.n_callers[i] && calls_itself(w, (uint32_t)i, &calls, met)) found = i;
    free(met);
  }
  free(calls.n_callers);
  free(calls.items);
  return found;
}

static enum eaglet_status check_left_recursion(const struct constraint *c, const struct constraint_builder *builder,
                                               struct eaglet_error *err) {
  struct left_walk w = {.c = c};
  w.nullable = memory_alloc(c->n_rules * sizeof *w.nullable);
  w.stack = memory_alloc(c->n_states * sizeof *w.stack);
  w.stamps = memory_alloc(c->n_states * sizeof *w.stamps);
  find_nullable(&w);
  size_t rule = find_left_recursion(&w);
  free(w.nullable);
  free(w.stack);
  free(w.stamps);
  if (w.n_checks > CONSTRAINT_CHECKS_MAX) FAIL(err, EAGLET_E_INPUT, "constraint: too large: %s", too_many_checks);
  if (rule == c->n_rules) return EAGLET_OK;
  FAIL(err, EAGLET_E_INPUT, "constraint: %s refers to itself without anything in between", builder->rules[rule].name ? builder->rules[rule].name : "a part");
}

/* ---- classes of bytes ---- */

static void number_classes(struct constraint *c) {
  bool begins[257] = {true};
  for (size_t i = 0; i < c->n_states; i++) {
    const struct nfa_state *state = &c->states[i];
    if (state->kind != NFA_BYTES || c->heights[i] == NFA_HEIGHT_NEVER) continue;
    begins[state->low] = begins[state->high + 1] = true;
    for (int byte = state->low; byte <= state->high; byte++) c->used[byte] = true;
  }
  for (int byte = 0; byte < 256; byte++) {
    if (byte && begins[byte]) c->n_classes++;
    c->class_of[byte] = (uint8_t)c->n_classes;
  }
  c->n_classes++;
}

/* ---- the whole ---- */

static enum eaglet_status check(struct constraint *c, const struct constraint_builder *builder, struct eaglet_error *err) {
  if (builder->exceeded) FAIL(err, EAGLET_E_INPUT, "constraint: too large: %s", builder->exceeded);
  if (!compute_heights(c)) FAIL(err, EAGLET_E_INPUT, "constraint: too large: %s", too_many_checks);
  uint32_t height = c->heights[c->rules[0].start];
  if (height == NFA_HEIGHT_NEVER) {
    for (size_t i = c->n_rules; i > 1; i--) /* the innermost part that has a name says more than the whole */
      if (builder->rules[i - 1].name && c->heights[c->rules[i - 1].start] == NFA_HEIGHT_NEVER)
        FAIL(err, EAGLET_E_INPUT, "constraint: no text satisfies it: %s never ends", builder->rules[i - 1].name);
    FAIL(err, EAGLET_E_INPUT, "constraint: no text satisfies it");
  }
  if (height > c->nesting_max)
    FAIL(err, EAGLET_E_INPUT, "constraint: its shortest text nests %u deep, at most %u are allowed", height, c->nesting_max);
  TRY(check_left_recursion(c, builder, err));
  number_classes(c);
  return EAGLET_OK;
}

enum eaglet_status constraint_finish(struct constraint **constraint, struct constraint_builder *builder, uint32_t nesting_max,
                                     struct eaglet_error *err) {
  struct constraint *c = memory_alloc(sizeof *c);
  c->nesting_max = nesting_max;
  enum eaglet_status status = EAGLET_OK;
  if (!builder->exceeded) builder_emit(builder, c);
  status = check(c, builder, err);
  builder_release(builder);
  if (status != EAGLET_OK) {
    constraint_free(c);
    c = NULL;
  }
  *constraint = c;
  return status;
}

void constraint_free(struct constraint *constraint) {
  if (!constraint) return;
  free(constraint->states);
  free(constraint->heights);
  free(constraint->rules);
  free(constraint);
}

size_t constraint_n_states(const struct constraint *constraint) { return constraint->n_states; }

/* ---- sources ---- */

enum eaglet_status constraint_compile_regex(struct constraint **constraint, const char *pattern, size_t length,
                                            struct eaglet_error *err) {
  *constraint = NULL;
  struct constraint_builder builder;
  builder_init(&builder);
  const struct expression *root;
  enum eaglet_status status = regex_parse(&builder, &root, pattern, length, false, err);
  if (status != EAGLET_OK) {
    builder_release(&builder);
    return status;
  }
  builder_add_rule(&builder, root, 0, NULL);
  return constraint_finish(constraint, &builder, CONSTRAINT_NESTING_MAX, err);
}

enum eaglet_status constraint_compile_choices(struct constraint **constraint, const char *const *choices, size_t n_choices,
                                              struct eaglet_error *err) {
  *constraint = NULL;
  if (n_choices == 0) FAIL(err, EAGLET_E_USAGE, "constraint: no choices");
  for (size_t i = 0; i < n_choices; i++) {
    size_t length = strlen(choices[i]), valid = utf8_valid(choices[i], length);
    if (valid < length) FAIL(err, EAGLET_E_INPUT, "constraint: choice %zu: invalid UTF-8 at byte %zu", i, valid);
  }
  struct constraint_builder builder;
  builder_init(&builder);
  struct expression_list list = {0};
  for (size_t i = 0; i < n_choices; i++) expression_list_append(&list, expression_text(&builder, choices[i]));
  const struct expression *root = expression_choice(&builder, list.items, list.n);
  free(list.items);
  builder_add_rule(&builder, root, 0, NULL);
  return constraint_finish(constraint, &builder, CONSTRAINT_NESTING_MAX, err);
}
