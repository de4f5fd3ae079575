/* constraint_internal.h - from a source to the automaton. Private to the constraint files.
 *
 * Three stages: a front end (constraint_regex.c, constraint_schema*.c) builds expressions; constraint_emit.c turns expressions into
 * automaton states, back to front, so that every state's successors exist before it; constraint.c checks the whole and numbers the
 * byte classes. Errors of limits are sticky in the builder: building goes on with dead parts and the end reports.
 */
#ifndef EAGLET_TEXT_CONSTRAINT_INTERNAL_H
#define EAGLET_TEXT_CONSTRAINT_INTERNAL_H

#include "base/buffer.h"
#include "text/constraint.h"

/* ---- limits, each with its name in the message ---- */

#define CONSTRAINT_STATES_MAX 400000       /* states of one automaton */
#define CONSTRAINT_EXPRESSION_BYTES_MAX (64u << 20)
#define CONSTRAINT_STEPS_MAX 4000000       /* visits of expressions while emitting */
#define CONSTRAINT_CHECKS_MAX 200000000    /* visits of states while checking */
#define CONSTRAINT_REPEAT_MAX 100000       /* {m,n}, lengths and counts */
#define CONSTRAINT_DEPTH_MAX 200           /* nesting of groups in a pattern, of subschemas in a schema */
#define CONSTRAINT_SOURCE_MAX (1u << 20)   /* bytes of a pattern */
#define CONSTRAINT_SCHEMAS_MAX 50000       /* subschemas visited, merged ones included */

/* ---- expressions ---- */

struct char_range { uint32_t low, high; }; /* code points, inclusive */

enum expression_kind {
  EXPRESSION_BYTES,    /* exactly these bytes; none: the empty text */
  EXPRESSION_SET,      /* one character of sorted, disjoint ranges; none: nothing at all */
  EXPRESSION_SEQUENCE, /* children one after the other */
  EXPRESSION_CHOICE,   /* one of the children; none: nothing at all */
  EXPRESSION_REPEAT,   /* children[0], min..max times (max -1: no end) */
  EXPRESSION_MEMBERS,  /* children in order with separators between those present; see expression_members */
  EXPRESSION_RULE,     /* a call of a rule */
  EXPRESSION_STRING,   /* JSON string whose content is children[0], min..max characters long */
  EXPRESSION_BEGIN,    /* ^ and $, which regex parsing resolves: never emitted */
  EXPRESSION_END,
};

struct expression {
  enum expression_kind kind;
  int32_t min, max, rule;
  const struct expression *const *children;
  size_t n_children;
  const char *bytes; /* BYTES; MEMBERS: [n_children] 1 where the member must be present */
  size_t n_bytes;
  const struct char_range *ranges;
  size_t n_ranges;
};

/* ---- automaton ---- */

enum nfa_kind {
  NFA_FAIL,   /* state 0 */
  NFA_RETURN, /* state 1: the end of a rule; of the root rule: the end of the text */
  NFA_BYTES,  /* a byte of low..high, then next */
  NFA_SPLIT,  /* next or other */
  NFA_CALL,   /* the rule `other`, then next */
};
enum { NFA_STATE_FAIL = 0, NFA_STATE_RETURN = 1 };

struct nfa_state {
  uint32_t next, other;
  uint8_t kind, low, high;
};

struct nfa_rule {
  uint32_t start;
  uint32_t first;  /* its states are first .. the next rule's first, but for those that it shares with earlier rules */
  uint32_t weight; /* what a call adds to the nesting: 1 for what can recurse, 0 for parts that are only shared */
};

#define NFA_HEIGHT_NEVER UINT32_MAX

struct constraint {
  struct nfa_state *states;
  size_t n_states;
  uint32_t *heights; /* [n_states] nesting needed to reach the rule's end; NFA_HEIGHT_NEVER: it cannot be reached */
  struct nfa_rule *rules; /* [0] is the root */
  size_t n_rules, rules_capacity;
  uint32_t nesting_max;
  uint8_t class_of[256]; /* bytes that no state tells apart share a class */
  uint32_t n_classes;
  bool used[256];        /* some reachable state takes this byte */
};

/* ---- builder ---- */

struct builder_rule {
  const struct expression *expression; /* NULL until it is known */
  bool shared;                         /* made while emitting, for a part that is used many times */
  bool json;                           /* characters are written as in JSON strings */
  uint32_t weight;
  char *name; /* for messages: where in the schema; NULL */
};

struct constraint_builder {
  void **blocks; /* expressions live here until the builder is released */
  size_t n_blocks, blocks_capacity;
  size_t block_used, block_size, bytes;

  struct builder_rule *rules;
  size_t n_rules, rules_capacity;

  struct nfa_state *states;
  size_t n_states, states_capacity;
  uint32_t *slots; /* hash table of states that may be shared */
  size_t n_slots;

  size_t n_steps;
  const char *exceeded; /* the limit that was hit, NULL: none */
};

void builder_init(struct constraint_builder *builder);
void builder_release(struct constraint_builder *builder);
void *builder_alloc(struct constraint_builder *builder, size_t bytes); /* zeroed, lives as long as the builder */
int32_t builder_add_rule(struct constraint_builder *builder, const struct expression *expression, uint32_t weight, const char *name);

/* ---- constraint_expression.c ---- */

const struct expression *expression_bytes(struct constraint_builder *builder, const char *bytes, size_t length);
const struct expression *expression_text(struct constraint_builder *builder, const char *text); /* NUL-terminated */
/* Sorts and joins the ranges (which are copied); negated: all other characters. */
const struct expression *expression_set(struct constraint_builder *builder, const struct char_range *ranges, size_t n, bool negated);
const struct expression *expression_range(struct constraint_builder *builder, uint32_t low, uint32_t high);
/* children is copied. */
const struct expression *expression_sequence(struct constraint_builder *builder, const struct expression *const *children, size_t n);
const struct expression *expression_choice(struct constraint_builder *builder, const struct expression *const *children, size_t n);
const struct expression *expression_pair(struct constraint_builder *builder, const struct expression *a, const struct expression *b);
const struct expression *expression_either(struct constraint_builder *builder, const struct expression *a, const struct expression *b);
const struct expression *expression_repeat(struct constraint_builder *builder, const struct expression *child, int32_t min, int32_t max);
const struct expression *expression_string(struct constraint_builder *builder, const struct expression *content, int32_t min, int32_t max);
const struct expression *expression_rule(struct constraint_builder *builder, int32_t rule);
const struct expression *expression_never(struct constraint_builder *builder);
bool expression_is_never(const struct expression *expression);

struct members { /* all borrowed during the call */
  const struct expression *const *items; /* [n] */
  const char *required;                  /* [n] 1 or 0 */
  size_t n;
  const struct expression *separator;
  const struct expression *extra; /* NULL: no more than the items */
  int32_t extra_min, extra_max;
};
const struct expression *expression_members(struct constraint_builder *builder, const struct members *members);

struct expression_list { /* while collecting; release with free(items) */
  const struct expression **items;
  size_t n, capacity;
};
void expression_list_append(struct expression_list *list, const struct expression *expression);

/* ---- constraint_emit.c ---- */

/* Emits every rule and moves the automaton out of the builder. */
void builder_emit(struct constraint_builder *builder, struct constraint *constraint);

/* ---- constraint.c ---- */

/* Emits, checks and finishes; the root is rule 0. Releases the builder, also on failure. */
enum eaglet_status constraint_finish(struct constraint **constraint, struct constraint_builder *builder, uint32_t nesting_max,
                                     struct eaglet_error *err) MUST_USE;

/* ---- constraint_regex.c ---- */

/* search: the pattern may match anywhere in the text unless it is anchored (JSON schema); else it matches the whole. */
enum eaglet_status regex_parse(struct constraint_builder *builder, const struct expression **expression, const char *pattern,
                               size_t length, bool search, struct eaglet_error *err) MUST_USE;

#endif
