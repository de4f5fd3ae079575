/* jinja_format.c - values to text: Python's str and repr, json.dumps, and the % operator. Text that is copied keeps its origin,
 * so special-token text inside tool arguments stays recognisable as content.
 */
#include "text/jinja_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define NESTING_MAX 100

static void sink_text(struct jinja_interp *interp, struct jinja_sink *sink, const char *text) {
  sink_bytes(interp, sink, text, strlen(text));
}

/* ---- numbers ---- */

/* The shortest digits that read back as the same number, laid out as Python does: exponent below 1e-4 and from 1e16. */
void format_float(char text[40], double number) {
  if (isnan(number) || isinf(number)) {
    snprintf(text, 40, "%s", isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
    return;
  }
  char digits[40];
  int precision = 0;
  do snprintf(digits, sizeof digits, "%.*e", precision, number);
  while (strtod(digits, NULL) != number && ++precision < 17);
  int exponent = atoi(strchr(digits, 'e') + 1);
  if (exponent >= -4 && exponent < 16) {
    int decimals = precision - exponent;
    snprintf(text, 40, "%.*f", decimals > 0 ? decimals : 1, number);
    return;
  }
  snprintf(text, 40, "%s", digits); /* C writes the exponent as Python does: a sign and at least two digits */
}

static void sink_number(struct jinja_interp *interp, struct jinja_sink *sink, struct jinja_value value) {
  char text[40];
  if (value.type == JINJA_FLOAT) format_float(text, value.number);
  else snprintf(text, sizeof text, "%lld", (long long)value.integer);
  sink_text(interp, sink, text);
}

/* ---- str and repr ---- */

static bool is_printable(uint32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category((utf8proc_int32_t)c)) {
  case UTF8PROC_CATEGORY_CN: case UTF8PROC_CATEGORY_CC: case UTF8PROC_CATEGORY_CF: case UTF8PROC_CATEGORY_CS:
  case UTF8PROC_CATEGORY_CO: case UTF8PROC_CATEGORY_ZL: case UTF8PROC_CATEGORY_ZP: case UTF8PROC_CATEGORY_ZS: return false;
  default: return true;
  }
}

static void repr_string(struct jinja_interp *interp, struct jinja_sink *sink, const struct jinja_string *string) {
  bool has_single = memchr(string->data, '\'', string->length), has_double = memchr(string->data, '"', string->length);
  char quote = has_single && !has_double ? '"' : '\'', escape[16];
  sink_bytes(interp, sink, &quote, 1);
  size_t run = 0, at = 0;
  while (at < string->length && !jinja_failed(interp)) {
    uint32_t c;
    size_t n = (size_t)utf8_decode(string->data + at, string->length - at, &c);
    *escape = 0;
    if (c == (uint32_t)quote || c == '\\') snprintf(escape, sizeof escape, "\\%c", (int)c);
    else if (c == '\n') strcpy(escape, "\\n");
    else if (c == '\r') strcpy(escape, "\\r");
    else if (c == '\t') strcpy(escape, "\\t");
    else if (!is_printable(c))
      snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    if (*escape) {
      sink_part(interp, sink, string, run, at);
      sink_text(interp, sink, escape);
      run = at + n;
    }
    at += n;
  }
  sink_part(interp, sink, string, run, string->length);
  sink_bytes(interp, sink, &quote, 1);
}

static void repr_list(struct jinja_interp *interp, struct jinja_sink *sink, const struct jinja_list *list, int depth) {
  sink_text(interp, sink, list->is_tuple ? "(" : "[");
  for (size_t i = 0; i < list->n && !jinja_failed(interp); i++) {
    if (i) sink_text(interp, sink, ", ");
    sink_repr(interp, sink, list->items[i], depth + 1);
  }
  sink_text(interp, sink, list->is_tuple ? (list->n == 1 ? ",)" : ")") : "]");
}

static void repr_dict(struct jinja_interp *interp, struct jinja_sink *sink, const struct jinja_dict *dict, int depth) {
  sink_text(interp, sink, "{");
  for (size_t i = 0; i < dict->n && !jinja_failed(interp); i++) {
    if (i) sink_text(interp, sink, ", ");
    sink_repr(interp, sink, dict->entries[i].key, depth + 1);
    sink_text(interp, sink, ": ");
    sink_repr(interp, sink, dict->entries[i].value, depth + 1);
  }
  sink_text(interp, sink, "}");
}

void sink_repr(struct jinja_interp *interp, struct jinja_sink *sink, struct jinja_value value, int depth) {
  if (depth > NESTING_MAX) jinja_fail(interp, "value is nested too deeply to print");
  if (!jinja_step(interp, 1)) return;
  switch (value.type) {
  case JINJA_UNDEFINED: sink_text(interp, sink, "Undefined"); return;
  case JINJA_NONE: sink_text(interp, sink, "None"); return;
  case JINJA_BOOL: sink_text(interp, sink, value.boolean ? "True" : "False"); return;
  case JINJA_INT: case JINJA_FLOAT: sink_number(interp, sink, value); return;
  case JINJA_STRING: repr_string(interp, sink, value.string); return;
  case JINJA_LIST:
    if (value.list->is_generator) sink_text(interp, sink, "<generator object>");
    else repr_list(interp, sink, value.list, depth);
    return;
  case JINJA_DICT: repr_dict(interp, sink, value.dict, depth); return;
  case JINJA_NAMESPACE:
    sink_text(interp, sink, "<Namespace ");
    repr_dict(interp, sink, value.dict, depth);
    sink_text(interp, sink, ">");
    return;
  default: sink_text(interp, sink, value.type == JINJA_LOOP ? "<LoopContext>" : "<function>"); return;
  }
}

void sink_value(struct jinja_interp *interp, struct jinja_sink *sink, struct jinja_value value) {
  if (jinja_failed(interp) || value.type == JINJA_UNDEFINED) return;
  if (value.type == JINJA_STRING) sink_string(interp, sink, value.string);
  else sink_repr(interp, sink, value, 0);
}

struct jinja_value value_string(struct jinja_interp *interp, struct jinja_value value) {
  if (value.type == JINJA_STRING) return value;
  struct jinja_sink sink = {0};
  sink_value(interp, &sink, value);
  return sink_finish(interp, &sink);
}

/* ---- JSON ---- */

static void json_string_out(struct jinja_interp *interp, struct jinja_sink *sink, const struct jinja_string *string, bool ascii) {
  static const char plain[] = "\"\"\\\\\bb\ff\nn\rr\tt";
  size_t run = 0, at = 0;
  sink_text(interp, sink, "\"");
  while (at < string->length && !jinja_failed(interp)) {
    uint32_t c = (uint8_t)string->data[at];
    size_t n = c < 0x80 ? 1 : (size_t)utf8_decode(string->data + at, string->length - at, &c);
    char escape[16] = "";
    for (size_t i = 0; i + 1 < sizeof plain; i += 2)
      if (c == (uint32_t)plain[i]) snprintf(escape, sizeof escape, "\\%c", plain[i + 1]);
    if (!*escape && (c < 0x20 || (ascii && c > 0x7e))) {
      if (c < 0x10000) snprintf(escape, sizeof escape, "\\u%04x", c);
      else snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
    }
    if (c == 0x7f) *escape = 0;
    if (*escape) {
      sink_part(interp, sink, string, run, at);
      sink_text(interp, sink, escape);
      run = at + n;
    }
    at += n;
  }
  sink_part(interp, sink, string, run, string->length);
  sink_text(interp, sink, "\"");
}

struct json_writer {
  struct jinja_interp *interp;
  struct jinja_sink *sink;
  const struct json_style *style;
};

static void json_newline(struct json_writer *w, int depth) {
  if (w->style->indent < 0) return;
  sink_text(w->interp, w->sink, "\n");
  for (int i = 0; i < depth && !jinja_failed(w->interp); i++)
    for (int k = 0; k < w->style->indent; k++) sink_text(w->interp, w->sink, " ");
}

static void json_item_separator(struct json_writer *w) {
  if (w->style->item_separator) sink_string(w->interp, w->sink, w->style->item_separator);
  else sink_text(w->interp, w->sink, w->style->indent < 0 ? ", " : ",");
}

static void json_value(struct json_writer *w, struct jinja_value value, int depth);

static void json_list(struct json_writer *w, const struct jinja_list *list, int depth) {
  sink_text(w->interp, w->sink, "[");
  for (size_t i = 0; i < list->n && !jinja_failed(w->interp); i++) {
    if (i) json_item_separator(w);
    json_newline(w, depth + 1);
    json_value(w, list->items[i], depth + 1);
  }
  if (list->n) json_newline(w, depth);
  sink_text(w->interp, w->sink, "]");
}

static void json_key(struct json_writer *w, struct jinja_value key) {
  if (key.type == JINJA_STRING) json_string_out(w->interp, w->sink, key.string, w->style->ensure_ascii);
  else if (key.type == JINJA_INT || key.type == JINJA_FLOAT || key.type == JINJA_BOOL || key.type == JINJA_NONE) {
    sink_text(w->interp, w->sink, "\"");
    json_value(w, key, 0);
    sink_text(w->interp, w->sink, "\"");
  } else
    jinja_fail(w->interp, "keys must be str, int, float, bool or None, not %s", value_type_name(key));
}

/* Orders entries by key text: insertion into a copy; dictionaries of templates are small, steps are charged. */
static struct jinja_dict *sorted_entries(struct jinja_interp *interp, const struct jinja_dict *dict) {
  struct jinja_dict *sorted = pool_take(&interp->pool, sizeof *sorted);
  sorted->entries = pool_take(&interp->pool, (dict->n + 1) * sizeof *sorted->entries);
  for (size_t i = 0; i < dict->n && jinja_step(interp, i); i++) {
    size_t at = sorted->n++;
    for (; at && value_compare(interp, sorted->entries[at - 1].key, dict->entries[i].key) > 0; at--)
      sorted->entries[at] = sorted->entries[at - 1];
    sorted->entries[at] = dict->entries[i];
  }
  return sorted;
}

static void json_dict(struct json_writer *w, const struct jinja_dict *dict, int depth) {
  if (w->style->sort_keys) dict = sorted_entries(w->interp, dict);
  sink_text(w->interp, w->sink, "{");
  for (size_t i = 0; i < dict->n && !jinja_failed(w->interp); i++) {
    if (i) json_item_separator(w);
    json_newline(w, depth + 1);
    json_key(w, dict->entries[i].key);
    if (w->style->key_separator) sink_string(w->interp, w->sink, w->style->key_separator);
    else sink_text(w->interp, w->sink, ": ");
    json_value(w, dict->entries[i].value, depth + 1);
  }
  if (dict->n) json_newline(w, depth);
  sink_text(w->interp, w->sink, "}");
}

static void json_value(struct json_writer *w, struct jinja_value value, int depth) {
  if (depth > NESTING_MAX) jinja_fail(w->interp, "value is nested too deeply for JSON");
  if (!jinja_step(w->interp, 1)) return;
  switch (value.type) {
  case JINJA_NONE: sink_text(w->interp, w->sink, "null"); return;
  case JINJA_BOOL: sink_text(w->interp, w->sink, value.boolean ? "true" : "false"); return;
  case JINJA_FLOAT:
    if (isnan(value.number) || isinf(value.number)) {
      sink_text(w->interp, w->sink, isnan(value.number) ? "NaN" : value.number > 0 ? "Infinity" : "-Infinity");
      return;
    }
    sink_number(w->interp, w->sink, value);
    return;
  case JINJA_INT: sink_number(w->interp, w->sink, value); return;
  case JINJA_STRING: json_string_out(w->interp, w->sink, value.string, w->style->ensure_ascii); return;
  case JINJA_LIST:
    if (value.list->is_generator) break;
    json_list(w, value.list, depth);
    return;
  case JINJA_DICT: json_dict(w, value.dict, depth); return;
  default: break;
  }
  jinja_fail(w->interp, "Object of type %s is not JSON serializable", value_type_name(value));
}

struct jinja_value value_to_json(struct jinja_interp *interp, struct jinja_value value, const struct json_style *style) {
  struct jinja_sink sink = {0};
  struct json_writer writer = {.interp = interp, .sink = &sink, .style = style};
  json_value(&writer, value, 0);
  return sink_finish(interp, &sink);
}

/* ---- the % operator ---- */

struct percent {
  struct jinja_interp *interp;
  struct jinja_sink *sink;
  struct jinja_value arguments;
  size_t used;
};

static struct jinja_value percent_next(struct percent *p) {
  const struct jinja_list *list = p->arguments.type == JINJA_LIST && p->arguments.list->is_tuple ? p->arguments.list : NULL;
  size_t n = list ? list->n : 1;
  if (p->used >= n) return jinja_fail(p->interp, "not enough arguments for format string");
  p->used++;
  return list ? list->items[p->used - 1] : p->arguments;
}

/* One conversion: flags, width and precision go to printf for numbers; strings are padded here. */
static void percent_one(struct percent *p, const char *flags, char conversion) {
  struct jinja_value value = percent_next(p);
  char format[40], text[1400]; /* width 999, or the digits of the largest double */
  int64_t integer;
  double number;
  if (jinja_failed(p->interp)) return;
  if (strchr("di", conversion) && value_is_number(value, &number)) {
    snprintf(format, sizeof format, "%%%slld", flags);
    snprintf(text, sizeof text, format, value_is_int(value, &integer) ? (long long)integer : (long long)number);
  } else if (strchr("xXo", conversion) && value_is_int(value, &integer)) {
    snprintf(format, sizeof format, "%%%sll%c", flags, conversion);
    snprintf(text, sizeof text, format, (long long)integer);
  } else if (strchr("feEgGF", conversion) && value_is_number(value, &number)) {
    snprintf(format, sizeof format, "%%%s%c", flags, conversion);
    snprintf(text, sizeof text, format, number);
  } else if (strchr("sr", conversion)) {
    struct jinja_sink inner = {0};
    if (conversion == 's') sink_value(p->interp, &inner, value);
    else sink_repr(p->interp, &inner, value, 0);
    struct jinja_value string = sink_finish(p->interp, &inner);
    bool left = *flags == '-';
    const char *dot = strchr(flags, '.');
    int64_t width = abs(atoi(flags + left)), length = (int64_t)string_count(string.string);
    if (dot && atoi(dot + 1) < length) length = atoi(dot + 1);
    for (int64_t i = length; i < width && !left && !jinja_failed(p->interp); i++) sink_text(p->interp, p->sink, " ");
    sink_part(p->interp, p->sink, string.string, 0, string_offset(string.string, (size_t)length));
    for (int64_t i = length; i < width && left && !jinja_failed(p->interp); i++) sink_text(p->interp, p->sink, " ");
    return;
  } else {
    jinja_fail(p->interp, "%%%c format: a number is required, not %s", conversion, value_type_name(value));
    return;
  }
  sink_text(p->interp, p->sink, text);
}

struct jinja_value format_percent(struct jinja_interp *interp, const struct jinja_string *format, struct jinja_value arguments) {
  struct jinja_sink sink = {0};
  struct percent p = {.interp = interp, .sink = &sink, .arguments = arguments};
  size_t run = 0;
  for (size_t at = 0; at < format->length && !jinja_failed(interp);) {
    if (format->data[at] != '%') {
      at++;
      continue;
    }
    sink_part(interp, &sink, format, run, at++);
    char flags[16];
    size_t n = strspn(format->data + at, "-+ #0123456789.");
    char conversion = format->data[at + n];
    if (n > 8 || !conversion || !strchr("dixXofFeEgGsr%", conversion)) {
      jinja_fail(interp, "unsupported format in a %% string");
      break;
    }
    memcpy(flags, format->data + at, n);
    flags[n] = 0;
    if (strspn(flags, "-+ #0") + 3 < strcspn(flags, ".") || strlen(flags + strcspn(flags, ".")) > 3) {
      jinja_fail(interp, "width or precision in a %% string is too large");
      break;
    }
    if (conversion == '%') sink_text(interp, &sink, "%");
    else percent_one(&p, flags, conversion);
    at += n + 1;
    run = at;
  }
  sink_part(interp, &sink, format, run, format->length);
  bool is_tuple = arguments.type == JINJA_LIST && arguments.list->is_tuple;
  if (!jinja_failed(interp) && p.used < (is_tuple ? arguments.list->n : 1) && arguments.type != JINJA_DICT)
    jinja_fail(interp, "not all arguments converted during string formatting");
  return sink_finish(interp, &sink);
}
