/* constraint_emit.c - from expressions to automaton states, back to front: emitting gives the state that an expression starts in
 * when what follows it is known. Equal states are one state, so common endings are shared by themselves.
 *
 * Everything is emitted for a vector of continuations, one for each number of characters already read: that is how a pattern and
 * length limits hold at once (character sets go from count c to c + 1, everything else keeps c). Without limits the vector has one
 * element. The limits of constraint_internal.h bound the work; after one is hit, states are NFA_STATE_FAIL.
 */
#include "text/constraint_internal.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define INLINE_RANGES_MAX 2 /* a set of more ranges, or of long characters, is shared as a rule */
#define SHARED_SIZE_MIN 4   /* a repeated part of more expressions than this is shared as a rule */
#define SHARED_SEARCH_MAX 256 /* so many rules are looked at for one that can be shared */

struct emission {
  struct constraint_builder *builder;
  bool json;        /* characters are written as in JSON strings */
  size_t width;     /* continuations: counts 0 .. width-1 */
  bool saturates;   /* counting stops at width-1; else no character may follow there */
};

static bool step(struct constraint_builder *builder, size_t width) {
  builder->n_steps += 1 + width / 8;
  if (builder->n_steps > CONSTRAINT_STEPS_MAX && !builder->exceeded) builder->exceeded = "it takes more than 4000000 steps";
  return !builder->exceeded;
}

/* ---- states ---- */

static uint32_t append_state(struct constraint_builder *builder, struct nfa_state state) {
  if (builder->n_states >= CONSTRAINT_STATES_MAX && !builder->exceeded) builder->exceeded = "it needs more than 400000 states";
  if (builder->exceeded) return NFA_STATE_FAIL;
  MEMORY_GROW(builder->states, builder->states_capacity, builder->n_states + 1);
  builder->states[builder->n_states] = state;
  return (uint32_t)builder->n_states++;
}

static uint64_t hash_state(const struct nfa_state *state) {
  uint64_t h = ((uint64_t)state->next << 32 | state->other) * 0x9e3779b97f4a7c15u;
  h ^= ((uint64_t)state->kind << 16 | (uint64_t)state->low << 8 | state->high) * 0xc2b2ae3d27d4eb4fu;
  h *= 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

static bool same_state(const struct nfa_state *a, const struct nfa_state *b) {
  return a->next == b->next && a->other == b->other && a->kind == b->kind && a->low == b->low && a->high == b->high;
}

static void grow_slots(struct constraint_builder *builder) {
  size_t n = builder->n_slots ? builder->n_slots * 2 : 1024;
  uint32_t *slots = memory_alloc(n * sizeof *slots), *old = builder->slots;
  for (size_t i = 0; i < builder->n_slots; i++) {
    if (!old[i]) continue;
    size_t at = hash_state(&builder->states[old[i]]) & (n - 1);
    while (slots[at]) at = (at + 1) & (n - 1);
    slots[at] = old[i];
  }
  free(old);
  builder->slots = slots;
  builder->n_slots = n;
}

static uint32_t share_state(struct constraint_builder *builder, struct nfa_state state) {
  if (builder->n_states * 2 >= builder->n_slots) grow_slots(builder);
  size_t at = hash_state(&state) & (builder->n_slots - 1);
  for (; builder->slots[at]; at = (at + 1) & (builder->n_slots - 1))
    if (same_state(&builder->states[builder->slots[at]], &state)) return builder->slots[at];
  uint32_t made = append_state(builder, state);
  if (made) builder->slots[at] = made;
  return made;
}

static uint32_t bytes_state(struct constraint_builder *builder, uint8_t low, uint8_t high, uint32_t next) {
  if (next == NFA_STATE_FAIL) return NFA_STATE_FAIL;
  return share_state(builder, (struct nfa_state){.kind = NFA_BYTES, .low = low, .high = high, .next = next});
}

static uint32_t split_state(struct constraint_builder *builder, uint32_t next, uint32_t other) {
  if (next == NFA_STATE_FAIL || next == other) return other;
  if (other == NFA_STATE_FAIL) return next;
  return share_state(builder, (struct nfa_state){.kind = NFA_SPLIT, .next = next, .other = other});
}

static uint32_t call_state(struct constraint_builder *builder, int32_t rule, uint32_t next) {
  if (next == NFA_STATE_FAIL) return NFA_STATE_FAIL;
  return share_state(builder, (struct nfa_state){.kind = NFA_CALL, .other = (uint32_t)rule, .next = next});
}

static uint32_t literal_state(struct constraint_builder *builder, const char *bytes, size_t length, uint32_t next) {
  for (size_t i = length; i > 0; i--) next = bytes_state(builder, (uint8_t)bytes[i - 1], (uint8_t)bytes[i - 1], next);
  return next;
}

/* ---- characters ---- */

static int utf8_length(uint32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

static void utf8_encode(uint32_t c, int length, uint8_t bytes[4]) {
  static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (int i = length - 1; i > 0; i--, c >>= 6) bytes[i] = (uint8_t)(0x80 | (c & 0x3f));
  bytes[0] = (uint8_t)(lead[length] | c);
}

/* Where a range of characters of one length must be cut so that the parts are products of byte ranges: the last character of the
 * first part; high when it need not be cut. */
static uint32_t cut_of(uint32_t low, uint32_t high, int length) {
  for (int i = 1; i < length; i++) {
    uint32_t tail = ((uint32_t)1 << (6 * i)) - 1;
    if ((low & ~tail) == (high & ~tail)) continue;
    if ((low & tail) != 0) return low | tail;
    if ((high & tail) != tail) return (high & ~tail) - 1;
  }
  return high;
}

static uint32_t utf8_states(struct constraint_builder *builder, struct char_range range, uint32_t next, uint32_t others) {
  static const uint32_t length_max[] = {0, 0x7f, 0x7ff, 0xffff, 0x10ffff};
  for (uint32_t low = range.low; low <= range.high;) {
    int length = utf8_length(low);
    uint32_t high = range.high < length_max[length] ? range.high : length_max[length];
    high = cut_of(low, high, length);
    uint8_t from[4], to[4];
    utf8_encode(low, length, from);
    utf8_encode(high, length, to);
    uint32_t state = next;
    for (int i = length - 1; i >= 0; i--) state = bytes_state(builder, from[i], to[i], state);
    others = split_state(builder, state, others);
    low = high + 1;
  }
  return others;
}

/* One character of a JSON string as it is escaped: only what must be. */
static uint32_t escaped_state(struct constraint_builder *builder, uint32_t c, uint32_t next) {
  static const char letters[][2] = {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
  for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
    const char text[2] = {'\\', letters[i][1]};
    if ((uint32_t)letters[i][0] == c) return literal_state(builder, text, 2, next);
  }
  const char text[6] = {'\\', 'u', '0', '0', "01"[c >> 4], "0123456789abcdef"[c & 15]};
  return literal_state(builder, text, 6, next);
}

static bool is_escaped(uint32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

/* JSON strings never hold NUL: parsers refuse it, ours among them. */
static uint32_t json_states(struct constraint_builder *builder, struct char_range range, uint32_t next, uint32_t others) {
  static const struct char_range plain[] = {{' ', '!'}, {'#', '['}, {']', 0x10ffff}};
  for (uint32_t c = range.low ? range.low : 1; c <= range.high && c <= '\\'; c++)
    if (is_escaped(c)) others = split_state(builder, escaped_state(builder, c, next), others);
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
    struct char_range part = {range.low > plain[i].low ? range.low : plain[i].low,
                              range.high < plain[i].high ? range.high : plain[i].high};
    if (part.low <= part.high) others = utf8_states(builder, part, next, others);
  }
  return others;
}

static uint32_t set_states(struct constraint_builder *builder, const struct expression *set, bool json, uint32_t next) {
  uint32_t state = NFA_STATE_FAIL;
  if (next == NFA_STATE_FAIL) return state;
  for (size_t i = set->n_ranges; i > 0; i--)
    state = json ? json_states(builder, set->ranges[i - 1], next, state) : utf8_states(builder, set->ranges[i - 1], next, state);
  return state;
}

/* Few states: not worth a call. */
static bool set_is_small(const struct expression *set, bool json) {
  if (set->n_ranges > INLINE_RANGES_MAX) return false;
  for (size_t i = 0; i < set->n_ranges; i++) {
    const struct char_range r = set->ranges[i];
    bool plain = !json || (r.low >= ' ' && (r.low > '"' || r.high < '"') && (r.low > '\\' || r.high < '\\'));
    if (r.low != r.high && (r.high >= 0x80 || !plain)) return false;
  }
  return true;
}

/* ---- shared parts ---- */

static bool same_set(const struct expression *a, const struct expression *b) {
  return a->kind == EXPRESSION_SET && b->kind == EXPRESSION_SET && a->n_ranges == b->n_ranges &&
         (a->n_ranges == 0 || memcmp(a->ranges, b->ranges, a->n_ranges * sizeof *a->ranges) == 0);
}

/* The rule that holds this part; made when there is none nearby. */
static int32_t shared_rule(struct constraint_builder *builder, const struct expression *part, bool json) {
  size_t stop = builder->n_rules > SHARED_SEARCH_MAX ? builder->n_rules - SHARED_SEARCH_MAX : 0;
  for (size_t i = builder->n_rules; i > stop; i--) {
    const struct builder_rule *rule = &builder->rules[i - 1];
    if (rule->shared && rule->json == json && (rule->expression == part || same_set(rule->expression, part)))
      return (int32_t)(i - 1);
  }
  int32_t rule = builder_add_rule(builder, part, 0, NULL);
  builder->rules[rule].shared = true;
  builder->rules[rule].json = json;
  return rule;
}

/* Expressions in the part, counted up to SHARED_SIZE_MIN + 1. */
static size_t size_of(const struct expression *part) {
  size_t n = 1;
  if (part->kind == EXPRESSION_BYTES) n = part->n_bytes;
  if (part->kind == EXPRESSION_REPEAT) n += part->max > 0 ? (size_t)part->max : 1;
  for (size_t i = 0; i < part->n_children && n <= SHARED_SIZE_MIN; i++) n += size_of(part->children[i]);
  return n;
}

/* ---- expressions ---- */

static void emit(const struct emission *e, const struct expression *x, const uint32_t *next, uint32_t *entry);

static uint32_t *vector(const struct emission *e) { return memory_alloc(e->width * sizeof(uint32_t)); }

static void emit_set(const struct emission *e, const struct expression *x, const uint32_t *next, uint32_t *entry) {
  int32_t rule = set_is_small(x, e->json) ? -1 : shared_rule(e->builder, x, e->json);
  for (size_t i = 0; i < e->width; i++) {
    bool last = i + 1 == e->width;
    uint32_t after = !last ? next[i + 1] : e->saturates ? next[i] : NFA_STATE_FAIL;
    entry[i] = rule >= 0 ? call_state(e->builder, rule, after) : set_states(e->builder, x, e->json, after);
  }
}

static void emit_sequence(const struct emission *e, const struct expression *x, const uint32_t *next, uint32_t *entry) {
  memmove(entry, next, e->width * sizeof *entry);
  for (size_t i = x->n_children; i > 0; i--) emit(e, x->children[i - 1], entry, entry);
}

static void emit_choice(const struct emission *e, const struct expression *x, const uint32_t *next, uint32_t *entry) {
  uint32_t *one = vector(e), *all = vector(e);
  for (size_t i = x->n_children; i > 0; i--) {
    emit(e, x->children[i - 1], next, one);
    for (size_t c = 0; c < e->width; c++) all[c] = split_state(e->builder, one[c], all[c]);
  }
  memcpy(entry, all, e->width * sizeof *entry);
  free(one);
  free(all);
}

/* A loop's states come before the body that they lead to, so they are patched; they are never shared. */
static void emit_loop(const struct emission *e, const struct expression *child, const uint32_t *next, uint32_t *entry) {
  uint32_t *loop = vector(e), *body = vector(e);
  for (size_t c = 0; c < e->width; c++)
    loop[c] = append_state(e->builder, (struct nfa_state){.kind = NFA_SPLIT, .next = NFA_STATE_FAIL, .other = next[c]});
  emit(e, child, loop, body);
  for (size_t c = 0; c < e->width; c++)
    if (loop[c] != NFA_STATE_FAIL) e->builder->states[loop[c]].next = body[c];
  memcpy(entry, loop, e->width * sizeof *entry);
  free(loop);
  free(body);
}

static void emit_repeat(const struct emission *e, const struct expression *x, const uint32_t *next, uint32_t *entry) {
  struct constraint_builder *builder = e->builder;
  const struct expression *child = x->children[0];
  if (x->min + (x->max < 0) + (x->max > x->min ? x->max - x->min : 0) > 1 && e->width == 1 && size_of(child) > SHARED_SIZE_MIN)
    child = expression_rule(builder, shared_rule(builder, child, e->json));
  uint32_t *end = vector(e);
  memcpy(end, next, e->width * sizeof *end);
  if (x->max < 0) {
    emit_loop(e, child, end, entry);
  } else {
    memmove(entry, end, e->width * sizeof *entry);
    for (int32_t i = x->min; i < x->max && step(builder, e->width); i++) {
      emit(e, child, entry, entry);
      for (size_t c = 0; c < e->width; c++) entry[c] = split_state(builder, entry[c], end[c]);
    }
  }
  for (int32_t i = 0; i < x->min && step(builder, e->width); i++) emit(e, child, entry, entry);
  free(end);
}

/* Two states before each item: `some` when one stands before it, `none` when not; an item goes on to the next `some`. */
static void emit_members(const struct emission *e, const struct expression *x, const uint32_t *next, uint32_t *entry) {
  struct constraint_builder *builder = e->builder;
  ASSERT(e->width == 1);
  size_t n = x->n_children - 3;
  uint32_t some, none;
  emit(e, x->children[n + 1], next, &some);
  emit(e, x->children[n + 2], next, &none);
  for (size_t i = n; i > 0 && step(builder, e->width); i--) {
    uint32_t item, separated;
    emit(e, x->children[i - 1], &some, &item);
    emit(e, x->children[n], &item, &separated);
    bool required = x->bytes[i - 1];
    some = required ? separated : split_state(builder, separated, some);
    none = required ? item : split_state(builder, item, none);
  }
  *entry = none;
}

static void emit_string(const struct emission *e, const struct expression *x, const uint32_t *next, uint32_t *entry) {
  struct constraint_builder *builder = e->builder;
  ASSERT(e->width == 1);
  struct emission inner = {.builder = builder, .json = true, .saturates = x->max < 0, .width = (size_t)(x->max < 0 ? x->min : x->max) + 1};
  uint32_t quote = bytes_state(builder, '"', '"', *next), *counts = vector(&inner);
  for (size_t c = 0; c < inner.width; c++) counts[c] = c >= (size_t)x->min ? quote : NFA_STATE_FAIL;
  emit(&inner, x->children[0], counts, counts);
  *entry = bytes_state(builder, '"', '"', counts[0]);
  free(counts);
}

/* entry may be next. */
static void emit(const struct emission *e, const struct expression *x, const uint32_t *next, uint32_t *entry) {
  struct constraint_builder *builder = e->builder;
  if (!step(builder, e->width)) {
    memset(entry, 0, e->width * sizeof *entry);
    return;
  }
  switch (x->kind) {
  case EXPRESSION_BYTES:
    ASSERT(e->width == 1 || x->n_bytes == 0);
    for (size_t c = 0; c < e->width; c++) entry[c] = literal_state(builder, x->bytes, x->n_bytes, next[c]);
    return;
  case EXPRESSION_SET: emit_set(e, x, next, entry); return;
  case EXPRESSION_SEQUENCE: emit_sequence(e, x, next, entry); return;
  case EXPRESSION_CHOICE: emit_choice(e, x, next, entry); return;
  case EXPRESSION_REPEAT: emit_repeat(e, x, next, entry); return;
  case EXPRESSION_MEMBERS: emit_members(e, x, next, entry); return;
  case EXPRESSION_STRING: emit_string(e, x, next, entry); return;
  case EXPRESSION_RULE:
    ASSERT(e->width == 1);
    *entry = call_state(builder, x->rule, *next);
    return;
  case EXPRESSION_BEGIN:
  case EXPRESSION_END: break;
  }
  ASSERT(!"an anchor is not emitted");
}

void builder_emit(struct constraint_builder *builder, struct constraint *constraint) {
  append_state(builder, (struct nfa_state){.kind = NFA_FAIL});
  append_state(builder, (struct nfa_state){.kind = NFA_RETURN});
  for (size_t i = 0; i < builder->n_rules; i++) { /* emitting adds rules at the end */
    const struct emission e = {.builder = builder, .json = builder->rules[i].json, .saturates = true, .width = 1};
    const uint32_t end = NFA_STATE_RETURN;
    uint32_t start, first = (uint32_t)builder->n_states;
    const struct expression *body = builder->rules[i].expression;
    ASSERT(body);
    if (body->kind == EXPRESSION_SET) start = set_states(builder, body, e.json, end); /* not by a call of the shared set */
    else emit(&e, body, &end, &start);
    MEMORY_GROW(constraint->rules, constraint->rules_capacity, i + 1);
    constraint->rules[i] = (struct nfa_rule){.start = start, .first = first, .weight = builder->rules[i].weight};
  }
  constraint->n_rules = builder->n_rules;
  constraint->states = builder->states;
  constraint->n_states = builder->n_states;
  builder->states = NULL;
  builder->n_states = builder->states_capacity = 0;
}
