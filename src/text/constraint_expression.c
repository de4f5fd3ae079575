/* constraint_expression.c - the builder's memory and the constructors of expressions. They simplify what is trivial (a sequence of
 * one, a choice with a dead branch), so that front ends need not. Knows neither sources nor the automaton.
 */
#include "text/constraint_internal.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 16384
#define CODE_POINT_MAX 0x10ffffu

/* ---- builder ---- */

void builder_init(struct constraint_builder *builder) { *builder = (struct constraint_builder){0}; }

void builder_release(struct constraint_builder *builder) {
  for (size_t i = 0; i < builder->n_blocks; i++) free(builder->blocks[i]);
  for (size_t i = 0; i < builder->n_rules; i++) free(builder->rules[i].name);
  free(builder->blocks);
  free(builder->rules);
  free(builder->states);
  free(builder->slots);
  builder_init(builder);
}

void *builder_alloc(struct constraint_builder *builder, size_t bytes) {
  bytes = (bytes + 15) & ~(size_t)15;
  if (builder->n_blocks == 0 || builder->block_size - builder->block_used < bytes) {
    MEMORY_GROW(builder->blocks, builder->blocks_capacity, builder->n_blocks + 1);
    builder->block_size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    builder->blocks[builder->n_blocks++] = memory_alloc(builder->block_size);
    builder->block_used = 0;
    builder->bytes += builder->block_size;
    if (builder->bytes > CONSTRAINT_EXPRESSION_BYTES_MAX && !builder->exceeded) builder->exceeded = "expressions take more than 64 MiB";
  }
  void *block = (char *)builder->blocks[builder->n_blocks - 1] + builder->block_used;
  builder->block_used += bytes;
  return block;
}

int32_t builder_add_rule(struct constraint_builder *builder, const struct expression *expression, uint32_t weight, const char *name) {
  MEMORY_GROW(builder->rules, builder->rules_capacity, builder->n_rules + 1);
  builder->rules[builder->n_rules] =
      (struct builder_rule){.expression = expression, .weight = weight, .name = memory_copy_string(name)};
  return (int32_t)builder->n_rules++;
}

/* ---- constructors ---- */

static struct expression *make(struct constraint_builder *builder, enum expression_kind kind) {
  struct expression *expression = builder_alloc(builder, sizeof *expression);
  expression->kind = kind;
  return expression;
}

const struct expression *expression_bytes(struct constraint_builder *builder, const char *bytes, size_t length) {
  struct expression *expression = make(builder, EXPRESSION_BYTES);
  char *copy = builder_alloc(builder, length + 1);
  if (length) memcpy(copy, bytes, length);
  expression->bytes = copy;
  expression->n_bytes = length;
  return expression;
}

const struct expression *expression_text(struct constraint_builder *builder, const char *text) {
  return expression_bytes(builder, text, strlen(text));
}

static int compare_ranges(const void *a, const void *b) {
  const struct char_range *x = a, *y = b;
  return x->low < y->low ? -1 : x->low > y->low;
}

static void push_range(struct char_range *out, size_t *n, uint32_t low, uint32_t high) {
  if (low > high) return;
  if (*n && out[*n - 1].high + 1 >= low) {
    if (high > out[*n - 1].high) out[*n - 1].high = high;
  } else {
    out[(*n)++] = (struct char_range){low, high};
  }
}

/* Surrogates are no characters: a range that holds them is cut in two. */
static void push_characters(struct char_range *out, size_t *n, uint32_t low, uint32_t high) {
  if (high > CODE_POINT_MAX) high = CODE_POINT_MAX;
  push_range(out, n, low, high < 0xd7ff ? high : 0xd7ff);
  push_range(out, n, low > 0xe000 ? low : 0xe000, high);
}

const struct expression *expression_set(struct constraint_builder *builder, const struct char_range *ranges, size_t n, bool negated) {
  struct expression *expression = make(builder, EXPRESSION_SET);
  struct char_range *sorted = builder_alloc(builder, (n + 1) * sizeof *sorted);
  struct char_range *out = builder_alloc(builder, (2 * n + 4) * sizeof *out);
  size_t n_out = 0;
  if (n) memcpy(sorted, ranges, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, compare_ranges);
  uint32_t from = 0; /* of the gap, when negated */
  for (size_t i = 0; i < n; i++) {
    if (!negated) push_characters(out, &n_out, sorted[i].low, sorted[i].high);
    else if (sorted[i].low > from) push_characters(out, &n_out, from, sorted[i].low - 1);
    if (sorted[i].high >= from) from = sorted[i].high + 1;
  }
  if (negated && from <= CODE_POINT_MAX) push_characters(out, &n_out, from, CODE_POINT_MAX);
  expression->ranges = out;
  expression->n_ranges = n_out;
  return expression;
}

const struct expression *expression_range(struct constraint_builder *builder, uint32_t low, uint32_t high) {
  const struct char_range range = {low, high};
  return expression_set(builder, &range, 1, false);
}

const struct expression *expression_never(struct constraint_builder *builder) { return make(builder, EXPRESSION_CHOICE); }

bool expression_is_never(const struct expression *expression) {
  return (expression->kind == EXPRESSION_CHOICE && expression->n_children == 0) ||
         (expression->kind == EXPRESSION_SET && expression->n_ranges == 0);
}

static bool is_empty_text(const struct expression *expression) {
  return expression->kind == EXPRESSION_BYTES && expression->n_bytes == 0;
}

static const struct expression *with_children(struct constraint_builder *builder, enum expression_kind kind,
                                              const struct expression *const *children, size_t n) {
  struct expression *expression = make(builder, kind);
  const struct expression **copy = builder_alloc(builder, n * sizeof *copy);
  if (n) memcpy(copy, children, n * sizeof *copy);
  expression->children = copy;
  expression->n_children = n;
  return expression;
}

const struct expression *expression_sequence(struct constraint_builder *builder, const struct expression *const *children, size_t n) {
  size_t n_kept = 0;
  const struct expression *last = NULL;
  for (size_t i = 0; i < n; i++) {
    if (expression_is_never(children[i])) return children[i];
    if (is_empty_text(children[i])) continue;
    last = children[i];
    n_kept++;
  }
  if (n_kept == 0) return expression_bytes(builder, "", 0);
  if (n_kept == 1) return last;
  return with_children(builder, EXPRESSION_SEQUENCE, children, n);
}

const struct expression *expression_choice(struct constraint_builder *builder, const struct expression *const *children, size_t n) {
  struct expression_list kept = {0};
  for (size_t i = 0; i < n; i++)
    if (!expression_is_never(children[i])) expression_list_append(&kept, children[i]);
  const struct expression *choice =
      kept.n == 1 ? kept.items[0] : with_children(builder, EXPRESSION_CHOICE, kept.items, kept.n);
  free(kept.items);
  return choice;
}

const struct expression *expression_pair(struct constraint_builder *builder, const struct expression *a, const struct expression *b) {
  const struct expression *children[] = {a, b};
  return expression_sequence(builder, children, 2);
}

const struct expression *expression_either(struct constraint_builder *builder, const struct expression *a, const struct expression *b) {
  const struct expression *children[] = {a, b};
  return expression_choice(builder, children, 2);
}

const struct expression *expression_repeat(struct constraint_builder *builder, const struct expression *child, int32_t min, int32_t max) {
  ASSERT(min >= 0 && (max < 0 || min <= max));
  if (max == 0 || is_empty_text(child)) return expression_bytes(builder, "", 0);
  if (expression_is_never(child)) return min == 0 ? expression_bytes(builder, "", 0) : child;
  if (min == 1 && max == 1) return child;
  struct expression *expression = (struct expression *)with_children(builder, EXPRESSION_REPEAT, &child, 1);
  expression->min = min;
  expression->max = max;
  return expression;
}

const struct expression *expression_string(struct constraint_builder *builder, const struct expression *content, int32_t min, int32_t max) {
  ASSERT(min >= 0 && (max < 0 || min <= max));
  if (expression_is_never(content)) return content;
  struct expression *expression = (struct expression *)with_children(builder, EXPRESSION_STRING, &content, 1);
  expression->min = min;
  expression->max = max;
  return expression;
}

const struct expression *expression_rule(struct constraint_builder *builder, int32_t rule) {
  struct expression *expression = make(builder, EXPRESSION_RULE);
  expression->rule = rule;
  return expression;
}

/* children: the items, then the separator, then what may follow when some item stands before it and when none does. */
const struct expression *expression_members(struct constraint_builder *builder, const struct members *members) {
  const struct expression *after_some = expression_bytes(builder, "", 0), *after_none = after_some;
  if (members->extra && members->extra_max != 0) {
    int32_t min = members->extra_min, max = members->extra_max;
    const struct expression *next = expression_pair(builder, members->separator, members->extra);
    after_some = expression_repeat(builder, next, min, max);
    after_none = expression_pair(builder, members->extra,
                                 expression_repeat(builder, next, min > 0 ? min - 1 : 0, max < 0 ? -1 : max - 1));
    if (min == 0) after_none = expression_either(builder, expression_bytes(builder, "", 0), after_none);
  }
  if (members->n == 0) return after_none;
  size_t n = members->n;
  const struct expression **children = builder_alloc(builder, (n + 3) * sizeof *children);
  memcpy(children, members->items, n * sizeof *children);
  children[n] = members->separator;
  children[n + 1] = after_some;
  children[n + 2] = after_none;
  struct expression *expression = make(builder, EXPRESSION_MEMBERS);
  char *required = builder_alloc(builder, n);
  memcpy(required, members->required, n);
  expression->children = children;
  expression->n_children = n + 3;
  expression->bytes = required;
  expression->n_bytes = n;
  return expression;
}

void expression_list_append(struct expression_list *list, const struct expression *expression) {
  MEMORY_GROW(list->items, list->capacity, list->n + 1);
  list->items[list->n++] = expression;
}
