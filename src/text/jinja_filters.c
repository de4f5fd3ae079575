/* jinja_filters.c - filters on text, numbers and single values, and the look-up over both filter tables. Filters on sequences
 * are in jinja_sequence.c.
 */
#include "text/jinja_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name) \
  static struct jinja_value filter_##name(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args)
#define UNUSED (void)interp, (void)args

static bool flag(struct jinja_interp *interp, struct jinja_value value, bool fallback) {
  return is_absent(value) ? fallback : value_truth(interp, value);
}

static struct jinja_string *text_of(struct jinja_interp *interp, struct jinja_value value) {
  return value_string(interp, value).string;
}

/* ---- JSON ---- */

FILTER(tojson) {
  struct json_style style = {.ensure_ascii = flag(interp, args->values[0], false), .indent = -1,
                             .sort_keys = flag(interp, args->values[3], false)};
  int64_t indent;
  if (is_given(args->values[1])) {
    if (!value_is_int(args->values[1], &indent) || indent > 100) return jinja_fail(interp, "tojson: indent must be a small integer");
    style.indent = indent < 0 ? 0 : (int)indent;
  }
  if (is_given(args->values[2])) {
    const struct jinja_list *pair = value_iterate(interp, args->values[2]);
    if (jinja_failed(interp) || pair->n != 2 || pair->items[0].type != JINJA_STRING || pair->items[1].type != JINJA_STRING)
      return jinja_fail(interp, "tojson: separators must be two strings");
    style.item_separator = pair->items[0].string;
    style.key_separator = pair->items[1].string;
  }
  if (self.type == JINJA_UNDEFINED) return jinja_fail(interp, "Object of type Undefined is not JSON serializable");
  return value_to_json(interp, self, &style);
}

/* ---- text ---- */

FILTER(trim) {
  const struct jinja_string *chars = is_given(args->values[0]) ? text_of(interp, args->values[0]) : NULL;
  return string_strip(interp, text_of(interp, self), chars, true, true);
}
FILTER(string) { UNUSED; return value_string(interp, self); }
FILTER(lower) { UNUSED; return string_case(interp, text_of(interp, self), CASE_LOWER); }
FILTER(upper) { UNUSED; return string_case(interp, text_of(interp, self), CASE_UPPER); }
FILTER(capitalize) { UNUSED; return string_case(interp, text_of(interp, self), CASE_CAPITALIZE); }
FILTER(title) { UNUSED; return string_case(interp, text_of(interp, self), CASE_TITLE_WORDS); }

FILTER(replace) {
  struct jinja_value values[3] = {value_string(interp, args->values[0]), value_string(interp, args->values[1]), args->values[2]};
  struct jinja_value text = value_string(interp, self);
  const struct jinja_row *row = method_find(JINJA_STRING, "replace", 7);
  return call_row(interp, row, "filter", text, &(struct jinja_args){.values = values, .n = is_given(values[2]) ? 3 : 2});
}

FILTER(escape) {
  UNUSED;
  struct jinja_value text = value_string(interp, self);
  return text.string->is_markup ? text : string_escape(interp, text.string);
}

static void sink_spaces(struct jinja_interp *interp, struct jinja_sink *sink, int64_t n) {
  while (n-- > 0 && jinja_step(interp, 1)) sink_bytes(interp, sink, " ", 1);
}

FILTER(indent) {
  const struct jinja_string *s = text_of(interp, self), *prefix = NULL;
  int64_t width = 4;
  if (!is_absent(args->values[0])) {
    if (args->values[0].type == JINJA_STRING) prefix = args->values[0].string;
    else if (!value_is_int(args->values[0], &width)) return jinja_fail(interp, "indent: width must be an integer or a string");
  }
  bool first = flag(interp, args->values[1], false), blank = flag(interp, args->values[2], false);
  struct jinja_sink sink = {0};
  for (size_t begin = 0; begin <= s->length && !jinja_failed(interp);) {
    const char *newline = memchr(s->data + begin, '\n', s->length - begin);
    size_t end = newline ? (size_t)(newline - s->data) : s->length;
    bool wanted = begin == 0 ? first : blank || end > begin;
    if (wanted && prefix) sink_string(interp, &sink, prefix);
    else if (wanted) sink_spaces(interp, &sink, width);
    sink_part(interp, &sink, s, begin, newline ? end + 1 : end);
    begin = end + 1;
  }
  return sink_finish(interp, &sink);
}

FILTER(center) {
  struct jinja_string *s = text_of(interp, self);
  int64_t width = 80, n = (int64_t)string_count(s);
  if (is_given(args->values[0]) && !value_is_int(args->values[0], &width)) return jinja_fail(interp, "center: width must be an integer");
  int64_t pad = width > n ? width - n : 0, left = pad / 2 + (pad & width & 1);
  struct jinja_sink sink = {0};
  sink_spaces(interp, &sink, left);
  sink_string(interp, &sink, s);
  sink_spaces(interp, &sink, pad - left);
  return sink_finish(interp, &sink);
}

FILTER(wordcount) {
  UNUSED;
  const struct jinja_string *s = text_of(interp, self);
  int64_t n = 0;
  bool inside = false;
  for (size_t at = 0; at < s->length;) {
    uint32_t c;
    at += (size_t)utf8_decode(s->data + at, s->length - at, &c);
    bool word = !unicode_is_space(c) && !(c < 0x80 && ispunct((int)c) && c != '_');
    n += word && !inside;
    inside = word;
  }
  return value_int(n);
}

FILTER(format) {
  struct jinja_value tuple = value_tuple(interp, args->values, args->n);
  if (args->n_named) return jinja_fail(interp, "format: named arguments are not supported");
  return format_percent(interp, text_of(interp, self), tuple);
}

FILTER(truncate) {
  int64_t length = 255, leeway = 5;
  if (is_given(args->values[0]) && !value_is_int(args->values[0], &length)) return jinja_fail(interp, "truncate: length must be an integer");
  bool kill_words = flag(interp, args->values[1], false);
  struct jinja_value end = is_given(args->values[2]) ? value_string(interp, args->values[2]) : value_literal(interp, "...");
  if (is_given(args->values[3])) (void)value_is_int(args->values[3], &leeway);
  struct jinja_string *s = text_of(interp, self);
  int64_t n = (int64_t)string_count(s), n_end = (int64_t)string_count(end.string);
  if (length < n_end) return jinja_fail(interp, "truncate: expected length >= %lld", (long long)n_end);
  if (n <= length + leeway) return value_part(interp, s, 0, s->length);
  size_t cut = string_offset(s, (size_t)(length - n_end)), space = cut;
  while (!kill_words && space > 0 && s->data[space - 1] != ' ') space--;
  if (!kill_words && space > 0) cut = space - 1;
  struct jinja_sink sink = {0};
  sink_part(interp, &sink, s, 0, cut);
  sink_string(interp, &sink, end.string);
  return sink_finish(interp, &sink);
}

/* ---- numbers and defaults ---- */

FILTER(default) {
  bool use = self.type == JINJA_UNDEFINED || (flag(interp, args->values[1], false) && !value_truth(interp, self));
  if (!use) return self;
  return is_absent(args->values[0]) ? value_literal(interp, "") : args->values[0];
}

/* Text of a number after trimming; false when it is none as a whole. */
static bool parse_number(const struct jinja_string *s, int base, bool real, int64_t *integer, double *number) {
  const char *begin = s->data + strspn(s->data, " \t\n\r\f\v");
  char *end;
  if (!*begin || (base == 10 && strspn(begin, "+-0123456789.eE_ \t\n\rinfaINFAyY") != strlen(begin))) return false;
  if (real) *number = strtod(begin, &end);
  else *integer = strtoll(begin, &end, base);
  return end > begin && end[strspn(end, " \t\n\r\f\v")] == 0;
}

FILTER(int) {
  (void)interp;
  struct jinja_value fallback = is_absent(args->values[0]) ? value_int(0) : args->values[0];
  int64_t integer, base = 10;
  double number = NAN;
  if (is_given(args->values[1])) (void)value_is_int(args->values[1], &base);
  if (value_is_int(self, &integer)) return value_int(integer);
  if (self.type == JINJA_STRING && base >= 2 && base <= 36) {
    if (parse_number(self.string, (int)base, false, &integer, &number)) return value_int(integer);
    if (!parse_number(self.string, 10, true, &integer, &number)) return fallback;
  } else if (self.type == JINJA_FLOAT)
    number = self.number;
  return fabs(number) < 9e18 ? value_int((int64_t)number) : fallback; /* not for NaN */
}

FILTER(float) {
  struct jinja_value fallback = is_absent(args->values[0]) ? value_float(0) : args->values[0];
  int64_t integer;
  double number;
  (void)interp;
  if (value_is_number(self, &number)) return value_float(number);
  if (self.type == JINJA_STRING && parse_number(self.string, 10, true, &integer, &number)) return value_float(number);
  return fallback;
}

FILTER(abs) {
  (void)args;
  double number;
  if (self.type == JINJA_FLOAT) return value_float(fabs(self.number));
  if (!value_is_number(self, &number)) return jinja_fail(interp, "bad operand type for abs(): '%s'", value_type_name(self));
  return number < 0 ? value_negate(interp, self, true) : value_negate(interp, self, false);
}

FILTER(round) {
  int64_t precision = 0;
  double number, factor;
  if (is_given(args->values[0])) (void)value_is_int(args->values[0], &precision);
  if (!value_is_number(self, &number)) return jinja_fail(interp, "round: expected a number, found %s", value_type_name(self));
  const char *method = args->values[1].type == JINJA_STRING ? args->values[1].string->data : "common";
  factor = pow(10, (double)precision);
  if (strcmp(method, "ceil") == 0) return value_float(ceil(number * factor) / factor);
  if (strcmp(method, "floor") == 0) return value_float(floor(number * factor) / factor);
  if (strcmp(method, "common") != 0) return jinja_fail(interp, "method must be common, ceil or floor");
  if (precision < 0 || precision > 300) return value_float(nearbyint(number * factor) / factor);
  char text[700]; /* decimal rounding of the exact value, half to even, as Python's */
  snprintf(text, sizeof text, "%.*f", (int)precision, number);
  return value_float(strtod(text, NULL));
}

FILTER(safe) {
  UNUSED;
  const struct jinja_string *s = text_of(interp, self);
  struct jinja_value text = value_part(interp, s, 0, s->length);
  text.string->is_markup = true;
  return text;
}

FILTER(attr) {
  if (args->values[0].type != JINJA_STRING) return jinja_fail(interp, "attr: expected a name");
  if (self.type == JINJA_DICT) { /* attributes only: items do not count */
    const struct jinja_row *row = method_find(JINJA_DICT, args->values[0].string->data, args->values[0].string->length);
    return row ? value_method(interp, row, self) : value_undefined(interp, "'dict object' has no attribute '%.100s'", args->values[0].string->data);
  }
  return value_attribute(interp, self, args->values[0].string);
}

const struct jinja_row jinja_text_filters[] = {
    {"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson},
    {"trim", "chars", 0, filter_trim},
    {"string", "", 0, filter_string},
    {"lower", "", 0, filter_lower},
    {"upper", "", 0, filter_upper},
    {"capitalize", "", 0, filter_capitalize},
    {"title", "", 0, filter_title},
    {"replace", "old new count", 2, filter_replace},
    {"escape", "", 0, filter_escape},
    {"e", "", 0, filter_escape},
    {"safe", "", 0, filter_safe},
    {"indent", "width first blank", 0, filter_indent},
    {"center", "width", 0, filter_center},
    {"wordcount", "", 0, filter_wordcount},
    {"format", "*", 0, filter_format},
    {"truncate", "length killwords end leeway", 0, filter_truncate},
    {"default", "default_value boolean", 0, filter_default},
    {"d", "default_value boolean", 0, filter_default},
    {"int", "default base", 0, filter_int},
    {"float", "default", 0, filter_float},
    {"abs", "", 0, filter_abs},
    {"round", "precision method", 0, filter_round},
    {"attr", "name", 1, filter_attr},
    {0},
};

const struct jinja_row *filter_find(const char *name, size_t length) {
  const struct jinja_row *row = row_find(jinja_text_filters, name, length);
  return row ? row : row_find(jinja_sequence_filters, name, length);
}
