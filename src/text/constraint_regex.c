/* constraint_regex.c - regular expressions to expressions; the subset is listed in docs/CONSTRAINTS.md.
 *
 * Only what every dialect in use (Python, PCRE, ECMA-262) reads alike is taken; \d \w \s mean ASCII. What changes the language in
 * ways that a finite automaton cannot follow (look-around, back-references, \b, possessive) is refused by name with its byte.
 */
#include "text/constraint_internal.h"

#include <stdlib.h>
#include <string.h>

struct parser {
  struct constraint_builder *builder;
  const char *pattern;
  size_t length, at;
  int depth;
  struct eaglet_error *err;
};

static enum eaglet_status refuse_at(const struct parser *p, size_t at, const char *thing) {
  FAIL(p->err, EAGLET_E_INPUT, "constraint: pattern at byte %zu: %s", at, thing);
}

static bool more(const struct parser *p) { return p->at < p->length; }
static char peek(const struct parser *p) { return more(p) ? p->pattern[p->at] : '\0'; }

static bool take(struct parser *p, const char *text) {
  size_t n = strlen(text);
  if (p->length - p->at < n || memcmp(p->pattern + p->at, text, n) != 0) return false;
  p->at += n;
  return true;
}

/* ---- characters ---- */

static const struct char_range digits[] = {{'0', '9'}};
static const struct char_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct char_range space[] = {{'\t', '\r'}, {' ', ' '}};

struct class_escape {
  char letter;
  const struct char_range *ranges;
  size_t n;
};
static const struct class_escape class_escapes[] = {{'d', digits, 1}, {'w', word, 4}, {'s', space, 2}};

/* \d \w \s and their opposites; NULL: another letter. */
static const struct class_escape *class_escape(char letter, bool *negated) {
  *negated = letter >= 'A' && letter <= 'Z';
  for (size_t i = 0; i < sizeof class_escapes / sizeof *class_escapes; i++)
    if (class_escapes[i].letter == (*negated ? letter + ('a' - 'A') : letter)) return &class_escapes[i];
  return NULL;
}

static int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static bool take_hex(struct parser *p, int n, uint32_t *value) {
  *value = 0;
  for (int i = 0; i < n; i++, p->at++) {
    int digit = hex_value(peek(p));
    if (!more(p) || digit < 0) return false;
    *value = *value << 4 | (uint32_t)digit;
  }
  return true;
}

/* After \u: XXXX, a surrogate pair of two, or {X...}. */
static bool take_unicode(struct parser *p, uint32_t *c) {
  if (take(p, "{")) {
    size_t n = 0;
    for (*c = 0; n < 6 && hex_value(peek(p)) >= 0; n++) *c = *c << 4 | (uint32_t)hex_value(p->pattern[p->at++]);
    return n > 0 && take(p, "}") && *c <= 0x10ffff && (*c < 0xd800 || *c > 0xdfff);
  }
  uint32_t low;
  if (!take_hex(p, 4, c)) return false;
  if (*c < 0xd800 || *c > 0xdfff) return true;
  if (*c > 0xdbff || !take(p, "\\u") || !take_hex(p, 4, &low) || low < 0xdc00 || low > 0xdfff) return false;
  *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
  return true;
}

/* After a backslash: an escape that is one character. */
static enum eaglet_status parse_escape(struct parser *p, uint32_t *c) {
  static const char letters[][2] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'f', '\f'}, {'v', '\v'}};
  size_t at = p->at - 1;
  if (!more(p)) return refuse_at(p, at, "a backslash ends it");
  char letter = p->pattern[p->at++];
  for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
    if (letters[i][0] == letter) {
      *c = (uint8_t)letters[i][1];
      return EAGLET_OK;
    }
  if (letter == 'x') return take_hex(p, 2, c) ? EAGLET_OK : refuse_at(p, at, "\\x takes two hexadecimal digits");
  if (letter == 'u') return take_unicode(p, c) ? EAGLET_OK : refuse_at(p, at, "\\u takes a character's four hexadecimal digits");
  if (letter >= '1' && letter <= '9') return refuse_at(p, at, "back-references are not supported");
  if (letter == 'b' || letter == 'B') return refuse_at(p, at, "word boundaries (\\b, \\B) are not supported");
  if (letter == 'p' || letter == 'P') return refuse_at(p, at, "Unicode properties (\\p) are not supported");
  bool plain = (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z');
  if (plain || (uint8_t)letter >= 0x80 || (uint8_t)letter < 0x20) return refuse_at(p, at, "this escape is not supported");
  *c = (uint8_t)letter;
  return EAGLET_OK;
}

static enum eaglet_status parse_character(struct parser *p, uint32_t *c) {
  int n = utf8_decode(p->pattern + p->at, p->length - p->at, c);
  if (n == 0) return refuse_at(p, p->at, "invalid UTF-8");
  p->at += (size_t)n;
  return EAGLET_OK;
}

/* ---- classes ---- */

struct ranges { /* of one class; lives in the builder when done */
  struct char_range *items;
  size_t n, capacity;
};

static void add_ranges(struct constraint_builder *builder, struct ranges *ranges, const struct char_range *items, size_t n) {
  if (ranges->n + n > ranges->capacity) {
    size_t capacity = (ranges->n + n) * 2;
    struct char_range *grown = builder_alloc(builder, capacity * sizeof *grown);
    if (ranges->n) memcpy(grown, ranges->items, ranges->n * sizeof *grown);
    ranges->items = grown;
    ranges->capacity = capacity;
  }
  if (n) memcpy(ranges->items + ranges->n, items, n * sizeof *items);
  ranges->n += n;
}

/* One end of a range, or a class escape (*is_set), whose ranges are added. */
static enum eaglet_status parse_class_item(struct parser *p, struct ranges *ranges, uint32_t *c, bool *is_set) {
  *is_set = false;
  if (peek(p) == '[' && p->at + 1 < p->length && strchr(":.=", p->pattern[p->at + 1]))
    return refuse_at(p, p->at, "named classes ([:name:]) are not supported; write \\[ for a bracket");
  if (!take(p, "\\")) return parse_character(p, c);
  bool negated;
  const struct class_escape *escape = more(p) ? class_escape(peek(p), &negated) : NULL;
  if (!escape) return parse_escape(p, c);
  p->at++;
  *is_set = true;
  const struct expression *set = expression_set(p->builder, escape->ranges, escape->n, negated);
  add_ranges(p->builder, ranges, set->ranges, set->n_ranges);
  return EAGLET_OK;
}

static enum eaglet_status parse_class(struct parser *p, const struct expression **out) {
  size_t begin = p->at - 1;
  bool negated = take(p, "^");
  struct ranges ranges = {0};
  bool closed = false;
  if (peek(p) == ']') return refuse_at(p, begin, "a class begins with ]; write \\] (dialects differ)");
  while (more(p) && !(closed = take(p, "]"))) {
    struct char_range range;
    bool is_set;
    size_t at = p->at;
    TRY(parse_class_item(p, &ranges, &range.low, &is_set));
    if (is_set) continue;
    range.high = range.low;
    if (peek(p) == '-' && p->at + 1 < p->length && p->pattern[p->at + 1] != ']') {
      p->at++;
      TRY(parse_class_item(p, &ranges, &range.high, &is_set));
      if (is_set) return refuse_at(p, at, "a range ends in a class");
      if (range.high < range.low) return refuse_at(p, at, "a range of a class runs backwards");
    }
    add_ranges(p->builder, &ranges, &range, 1);
  }
  if (!closed) return refuse_at(p, begin, "a class is not closed");
  *out = expression_set(p->builder, ranges.items, ranges.n, negated);
  return EAGLET_OK;
}

/* ---- quantifiers ---- */

/* Digits at *at; false: none. Too many give a number above every limit. */
static bool read_number(const struct parser *p, size_t *at, int32_t *value) {
  size_t begin = *at;
  for (*value = 0; *at < p->length && p->pattern[*at] >= '0' && p->pattern[*at] <= '9'; ++*at)
    if (*value <= CONSTRAINT_REPEAT_MAX) *value = *value * 10 + (p->pattern[*at] - '0');
  return *at > begin;
}

/* {m}, {m,} or {m,n}; *found false: the brace is a character. */
static enum eaglet_status parse_braces(struct parser *p, int32_t *min, int32_t *max, bool *found) {
  size_t at = p->at + 1;
  *found = false;
  if (peek(p) != '{') return EAGLET_OK;
  if (!read_number(p, &at, min)) {
    int32_t ignored;
    size_t comma = at + 1;
    if (at < p->length && p->pattern[at] == ',' && read_number(p, &comma, &ignored) && comma < p->length && p->pattern[comma] == '}')
      return refuse_at(p, p->at, "{,n} is read differently by dialects; write {0,n}");
    return EAGLET_OK;
  }
  *max = *min;
  if (at < p->length && p->pattern[at] == ',') {
    at++;
    if (!read_number(p, &at, max)) *max = -1;
  }
  if (at >= p->length || p->pattern[at] != '}') return EAGLET_OK;
  if (*min > CONSTRAINT_REPEAT_MAX || *max > CONSTRAINT_REPEAT_MAX) return refuse_at(p, p->at, "more than 100000 repetitions");
  if (*max >= 0 && *max < *min) return refuse_at(p, p->at, "a repetition's bounds run backwards");
  p->at = at + 1;
  *found = true;
  return EAGLET_OK;
}

static enum eaglet_status parse_quantifier(struct parser *p, int32_t *min, int32_t *max, bool *found) {
  *found = true;
  *min = 0;
  *max = -1;
  if (take(p, "*")) return EAGLET_OK;
  if (take(p, "?")) *max = 1;
  else if (take(p, "+")) *min = 1;
  else return parse_braces(p, min, max, found);
  return EAGLET_OK;
}

/* ---- atoms ---- */

static enum eaglet_status parse_choice(struct parser *p, const struct expression **out);

/* After "(?": what a group may begin with. */
static enum eaglet_status parse_group_kind(struct parser *p) {
  size_t at = p->at - 2;
  if (take(p, ":")) return EAGLET_OK;
  if (peek(p) == '=' || peek(p) == '!') return refuse_at(p, at, "lookahead is not supported");
  if (take(p, "<=") || take(p, "<!")) return refuse_at(p, at, "lookbehind is not supported");
  if (take(p, "P=") || take(p, "P>")) return refuse_at(p, at, "back-references are not supported");
  if (peek(p) == '>') return refuse_at(p, at, "atomic groups are not supported");
  if (!take(p, "P<") && !take(p, "<")) return refuse_at(p, at, "flags and special groups are not supported");
  size_t begin = p->at;
  while (more(p) && peek(p) != '>' && peek(p) != ')') p->at++;
  if (p->at == begin || !take(p, ">")) return refuse_at(p, at, "a group's name is not closed");
  return EAGLET_OK;
}

static enum eaglet_status parse_group(struct parser *p, const struct expression **out) {
  size_t begin = p->at - 1;
  if (peek(p) == '*') return refuse_at(p, begin, "verbs are not supported");
  if (take(p, "?")) TRY(parse_group_kind(p));
  if (++p->depth > CONSTRAINT_DEPTH_MAX) return refuse_at(p, begin, "groups nest more than 200 deep");
  TRY(parse_choice(p, out));
  p->depth--;
  return take(p, ")") ? EAGLET_OK : refuse_at(p, begin, "a group is not closed");
}

static const struct expression *anchor(struct constraint_builder *builder, enum expression_kind kind) {
  struct expression *expression = builder_alloc(builder, sizeof *expression);
  expression->kind = kind;
  return expression;
}

static enum eaglet_status parse_atom(struct parser *p, const struct expression **out) {
  static const struct char_range newline[] = {{'\n', '\n'}};
  uint32_t c;
  int32_t min, max;
  bool repeats;
  size_t begin = p->at;
  TRY(parse_quantifier(p, &min, &max, &repeats));
  if (repeats) return refuse_at(p, begin, "nothing to repeat");
  if (take(p, "(")) return parse_group(p, out);
  if (take(p, "[")) return parse_class(p, out);
  if (take(p, ".")) *out = expression_set(p->builder, newline, 1, true);
  else if (take(p, "^")) *out = anchor(p->builder, EXPRESSION_BEGIN);
  else if (take(p, "$")) *out = anchor(p->builder, EXPRESSION_END);
  else if (take(p, "\\")) {
    bool negated;
    const struct class_escape *escape = more(p) ? class_escape(peek(p), &negated) : NULL;
    if (escape) {
      p->at++;
      *out = expression_set(p->builder, escape->ranges, escape->n, negated);
      return EAGLET_OK;
    }
    TRY(parse_escape(p, &c));
    *out = expression_range(p->builder, c, c);
  } else {
    TRY(parse_character(p, &c));
    *out = expression_range(p->builder, c, c);
  }
  return EAGLET_OK;
}

static enum eaglet_status parse_repeated(struct parser *p, const struct expression **out) {
  TRY(parse_atom(p, out));
  int32_t min, max;
  bool found;
  TRY(parse_quantifier(p, &min, &max, &found));
  if (!found) return EAGLET_OK;
  if ((*out)->kind == EXPRESSION_BEGIN || (*out)->kind == EXPRESSION_END) return refuse_at(p, p->at, "an anchor is repeated");
  *out = expression_repeat(p->builder, *out, min, max);
  if (peek(p) == '+') return refuse_at(p, p->at, "possessive quantifiers are not supported");
  take(p, "?"); /* lazy: the same texts match */
  size_t at = p->at;
  TRY(parse_quantifier(p, &min, &max, &found));
  return found ? refuse_at(p, at, "a repetition is repeated; put it in a group") : EAGLET_OK;
}

static enum eaglet_status parse_sequence(struct parser *p, const struct expression **out) {
  struct expression_list list = {0};
  enum eaglet_status status = EAGLET_OK;
  while (status == EAGLET_OK && more(p) && peek(p) != '|' && peek(p) != ')') {
    const struct expression *part;
    status = parse_repeated(p, &part);
    if (status == EAGLET_OK && p->builder->exceeded) status = refuse_at(p, p->at, p->builder->exceeded);
    if (status == EAGLET_OK) expression_list_append(&list, part);
  }
  if (status == EAGLET_OK) *out = expression_sequence(p->builder, list.items, list.n);
  free(list.items);
  return status;
}

static enum eaglet_status parse_choice(struct parser *p, const struct expression **out) {
  struct expression_list list = {0};
  enum eaglet_status status;
  do {
    const struct expression *part;
    status = parse_sequence(p, &part);
    if (status == EAGLET_OK) expression_list_append(&list, part);
  } while (status == EAGLET_OK && take(p, "|"));
  if (status == EAGLET_OK) *out = expression_choice(p->builder, list.items, list.n);
  free(list.items);
  return status;
}

/* ---- anchors ---- */

static bool has_anchor(const struct expression *x) {
  if (x->kind == EXPRESSION_BEGIN || x->kind == EXPRESSION_END) return true;
  for (size_t i = 0; i < x->n_children; i++)
    if (has_anchor(x->children[i])) return true;
  return false;
}

static const struct expression *any_text(struct constraint_builder *builder) {
  return expression_repeat(builder, expression_set(builder, NULL, 0, true), 0, -1);
}

static enum eaglet_status place(struct parser *p, const struct expression *x, bool search, const struct expression **out);

static enum eaglet_status place_choice(struct parser *p, const struct expression *x, bool search, const struct expression **out) {
  struct expression_list list = {0};
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < x->n_children && status == EAGLET_OK; i++) {
    const struct expression *part;
    status = place(p, x->children[i], search, &part);
    if (status == EAGLET_OK) expression_list_append(&list, part);
  }
  if (status == EAGLET_OK) *out = expression_choice(p->builder, list.items, list.n);
  free(list.items);
  return status;
}

/* Anchors at the ends of a whole alternative go away; where a search has none, any text may stand. */
static enum eaglet_status place(struct parser *p, const struct expression *x, bool search, const struct expression **out) {
  struct constraint_builder *builder = p->builder;
  if (x->kind == EXPRESSION_CHOICE && x->n_children && (search || has_anchor(x))) return place_choice(p, x, search, out);
  const struct expression *const *parts = x->kind == EXPRESSION_SEQUENCE ? x->children : &x;
  size_t n = x->kind == EXPRESSION_SEQUENCE ? x->n_children : 1, begin = 0, end = n;
  while (begin < end && parts[begin]->kind == EXPRESSION_BEGIN) begin++;
  while (end > begin && parts[end - 1]->kind == EXPRESSION_END) end--;
  for (size_t i = begin; i < end; i++)
    if (has_anchor(parts[i])) FAIL(p->err, EAGLET_E_INPUT, "constraint: pattern: ^ and $ are supported only at the ends of a whole alternative");
  *out = expression_sequence(builder, parts + begin, end - begin);
  if (search && begin == 0) *out = expression_pair(builder, any_text(builder), *out);
  if (search && end == n) *out = expression_pair(builder, *out, any_text(builder));
  return EAGLET_OK;
}

enum eaglet_status regex_parse(struct constraint_builder *builder, const struct expression **expression, const char *pattern,
                               size_t length, bool search, struct eaglet_error *err) {
  struct parser p = {.builder = builder, .pattern = pattern, .length = length, .err = err};
  if (length > CONSTRAINT_SOURCE_MAX) FAIL(err, EAGLET_E_INPUT, "constraint: pattern: %zu bytes, at most %u", length, CONSTRAINT_SOURCE_MAX);
  const struct expression *parsed;
  TRY(parse_choice(&p, &parsed));
  if (more(&p)) return refuse_at(&p, p.at, "a parenthesis closes nothing");
  return place(&p, parsed, search, expression);
}
