/* jinja_methods.c - methods of strings, dictionaries, lists, loops (x.name(...)). Methods that change their object are not here:
 * transformers' sandbox forbids them.
 */
#include "text/jinja_internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define METHOD(name) \
  static struct jinja_value method_##name(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args)

static const struct jinja_string *text_argument(struct jinja_interp *interp, struct jinja_value value) {
  if (value.type == JINJA_STRING) return value.string;
  if (value.type == JINJA_UNDEFINED) jinja_fail(interp, "%s", value.why);
  else jinja_fail(interp, "expected a str argument, found %s", value_type_name(value));
  return value_literal(interp, "").string;
}

/* ---- str ---- */

static struct jinja_value strip(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args, bool left, bool right) {
  const struct jinja_string *chars = is_given(args->values[0]) ? text_argument(interp, args->values[0]) : NULL;
  return string_strip(interp, self.string, chars, left, right);
}

METHOD(strip) { return strip(interp, self, args, true, true); }
METHOD(lstrip) { return strip(interp, self, args, true, false); }
METHOD(rstrip) { return strip(interp, self, args, false, true); }

static int64_t count_limit(struct jinja_interp *interp, struct jinja_value value) {
  int64_t limit = -1;
  if (is_given(value) && !value_is_int(value, &limit)) jinja_fail(interp, "expected an integer count");
  return limit;
}

static size_t space_length(const struct jinja_string *string, size_t at) {
  uint32_t c;
  size_t n = (size_t)utf8_decode(string->data + at, string->length - at, &c);
  return unicode_is_space(c) ? n : 0;
}

static size_t character_length(const struct jinja_string *string, size_t at) {
  uint32_t c;
  return (size_t)utf8_decode(string->data + at, string->length - at, &c);
}

/* split() without separator: runs of whitespace separate; with a limit the rest keeps its tail. */
static struct jinja_value split_words(struct jinja_interp *interp, const struct jinja_string *s, int64_t limit) {
  struct jinja_value list = value_list(interp, 0);
  size_t at = 0, n;
  while (!jinja_failed(interp)) {
    while (at < s->length && (n = space_length(s, at))) at += n;
    if (at == s->length) break;
    if (limit >= 0 && (int64_t)list.list->n == limit) {
      list_append(interp, list.list, value_part(interp, s, at, s->length));
      break;
    }
    size_t end = at;
    while (end < s->length && !space_length(s, end)) end += character_length(s, end);
    list_append(interp, list.list, value_part(interp, s, at, end));
    at = end;
  }
  return list;
}

/* Quadratic at worst, so every comparison is charged. */
static size_t find_last(struct jinja_interp *interp, const struct jinja_string *s, const struct jinja_string *needle, size_t end) {
  for (size_t at = end >= needle->length ? end - needle->length + 1 : 0; at-- > 0;) {
    if (needle->length && s->data[at] != *needle->data) continue;
    if (!jinja_step(interp, 1 + needle->length / 64)) break;
    if (memcmp(s->data + at, needle->data, needle->length) == 0) return at;
  }
  return SIZE_MAX;
}

METHOD(split) {
  int64_t limit = count_limit(interp, args->values[1]);
  if (!is_given(args->values[0])) return split_words(interp, self.string, limit);
  const struct jinja_string *separator = text_argument(interp, args->values[0]);
  if (separator->length == 0) return jinja_fail(interp, "empty separator");
  struct jinja_value list = value_list(interp, 0);
  size_t at = 0, found;
  while (!jinja_failed(interp) && (limit < 0 || (int64_t)list.list->n < limit) &&
         (found = string_find(self.string, separator->data, separator->length, at)) != SIZE_MAX) {
    list_append(interp, list.list, value_part(interp, self.string, at, found));
    at = found + separator->length;
  }
  list_append(interp, list.list, value_part(interp, self.string, at, self.string->length));
  return list;
}

METHOD(rsplit) {
  int64_t limit = count_limit(interp, args->values[1]);
  if (limit < 0) return method_split(interp, self, args);
  if (!is_given(args->values[0])) return jinja_fail(interp, "rsplit() with a limit needs a separator");
  const struct jinja_string *separator = text_argument(interp, args->values[0]);
  if (separator->length == 0) return jinja_fail(interp, "empty separator");
  struct jinja_value reversed = value_list(interp, 0), list = value_list(interp, 0);
  size_t end = self.string->length, found;
  while (!jinja_failed(interp) && (int64_t)reversed.list->n < limit && (found = find_last(interp, self.string, separator, end)) != SIZE_MAX) {
    list_append(interp, reversed.list, value_part(interp, self.string, found + separator->length, end));
    end = found;
  }
  list_append(interp, list.list, value_part(interp, self.string, 0, end));
  for (size_t i = reversed.list->n; i-- > 0;) list_append(interp, list.list, reversed.list->items[i]);
  return list;
}

static struct jinja_value partition(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args, bool last) {
  const struct jinja_string *separator = text_argument(interp, args->values[0]);
  size_t at = last ? find_last(interp, self.string, separator, self.string->length)
                   : string_find(self.string, separator->data, separator->length, 0);
  struct jinja_value empty = value_literal(interp, ""), parts[3];
  if (separator->length == 0) return jinja_fail(interp, "empty separator");
  if (at == SIZE_MAX) {
    parts[0] = last ? empty : self;
    parts[1] = empty;
    parts[2] = last ? self : empty;
  } else {
    parts[0] = value_part(interp, self.string, 0, at);
    parts[1] = args->values[0];
    parts[2] = value_part(interp, self.string, at + separator->length, self.string->length);
  }
  return value_tuple(interp, parts, 3);
}

METHOD(partition) { return partition(interp, self, args, false); }
METHOD(rpartition) { return partition(interp, self, args, true); }

METHOD(splitlines) {
  struct jinja_value list = value_list(interp, 0);
  const struct jinja_string *s = self.string;
  bool keep = !is_absent(args->values[0]) && value_truth(interp, args->values[0]);
  size_t begin = 0, at = 0;
  while (at < s->length && !jinja_failed(interp)) {
    uint32_t c;
    size_t n = (size_t)utf8_decode(s->data + at, s->length - at, &c);
    bool ends = (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (c == '\r' && at + 1 < s->length && s->data[at + 1] == '\n') n = 2;
    at += n;
    if (!ends) continue;
    list_append(interp, list.list, value_part(interp, s, begin, keep ? at : at - n));
    begin = at;
  }
  if (begin < s->length) list_append(interp, list.list, value_part(interp, s, begin, s->length));
  return list;
}

static bool has_affix(const struct jinja_string *s, const struct jinja_string *affix, bool at_end) {
  if (affix->length > s->length) return false;
  return memcmp(s->data + (at_end ? s->length - affix->length : 0), affix->data, affix->length) == 0;
}

static struct jinja_value has_affixes(struct jinja_interp *interp, struct jinja_value self, struct jinja_value affix, bool at_end) {
  if (affix.type != JINJA_LIST || !affix.list->is_tuple) return value_bool(has_affix(self.string, text_argument(interp, affix), at_end));
  for (size_t i = 0; i < affix.list->n; i++)
    if (has_affix(self.string, text_argument(interp, affix.list->items[i]), at_end)) return value_bool(true);
  return value_bool(false);
}

METHOD(startswith) { return has_affixes(interp, self, args->values[0], false); }
METHOD(endswith) { return has_affixes(interp, self, args->values[0], true); }

METHOD(removeprefix) {
  const struct jinja_string *affix = text_argument(interp, args->values[0]);
  return has_affix(self.string, affix, false) ? value_part(interp, self.string, affix->length, self.string->length) : self;
}
METHOD(removesuffix) {
  const struct jinja_string *affix = text_argument(interp, args->values[0]);
  return has_affix(self.string, affix, true) ? value_part(interp, self.string, 0, self.string->length - affix->length) : self;
}

METHOD(replace) {
  const struct jinja_string *from = text_argument(interp, args->values[0]), *to = text_argument(interp, args->values[1]);
  int64_t limit = count_limit(interp, args->values[2]);
  struct jinja_sink sink = {0};
  size_t at = 0, found;
  const struct jinja_string *s = self.string;
  for (int64_t n = 0; (limit < 0 || n < limit) && jinja_step(interp, 1); n++) {
    found = string_find(s, from->data, from->length, at);
    if (found == SIZE_MAX) break;
    sink_part(interp, &sink, s, at, found);
    sink_string(interp, &sink, to);
    at = found + from->length;
    if (from->length) continue;
    if (at == s->length) break; /* an empty pattern matches between characters */
    size_t step = character_length(s, at);
    sink_part(interp, &sink, s, at, at + step);
    at += step;
  }
  sink_part(interp, &sink, s, at, s->length);
  return sink_finish(interp, &sink);
}

METHOD(upper) { (void)args; return string_case(interp, self.string, CASE_UPPER); }
METHOD(lower) { (void)args; return string_case(interp, self.string, CASE_LOWER); }
METHOD(title) { (void)args; return string_case(interp, self.string, CASE_TITLE); }
METHOD(capitalize) { (void)args; return string_case(interp, self.string, CASE_CAPITALIZE); }
METHOD(swapcase) { (void)args; return string_case(interp, self.string, CASE_SWAP); }

METHOD(join) {
  struct jinja_sink sink = {0};
  const struct jinja_list *items = value_iterate(interp, args->values[0]);
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++) {
    if (i) sink_string(interp, &sink, self.string);
    if (items->items[i].type != JINJA_STRING)
      jinja_fail(interp, "sequence item %zu: expected str instance, %s found", i, value_type_name(items->items[i]));
    sink_value(interp, &sink, items->items[i]);
  }
  return sink_finish(interp, &sink);
}

static int64_t codepoint_index(const struct jinja_string *s, size_t at) {
  int64_t n = 0;
  for (size_t i = 0; i < at; i++) n += ((uint8_t)s->data[i] & 0xc0) != 0x80;
  return n;
}

static int64_t find_index(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args, bool last) {
  const struct jinja_string *needle = text_argument(interp, args->values[0]);
  int64_t from = 0;
  if (args->n > 1 && is_given(args->values[1])) (void)value_is_int(args->values[1], &from);
  if (from < 0) from += (int64_t)string_count(self.string);
  size_t begin = from > 0 ? string_offset(self.string, (size_t)from) : 0;
  size_t at = last ? find_last(interp, self.string, needle, self.string->length) : string_find(self.string, needle->data, needle->length, begin);
  return at == SIZE_MAX || at < begin ? -1 : codepoint_index(self.string, at);
}

METHOD(find_text) { return value_int(find_index(interp, self, args, false)); }
METHOD(rfind) { return value_int(find_index(interp, self, args, true)); }
METHOD(index) {
  int64_t at = find_index(interp, self, args, false);
  return at < 0 ? jinja_fail(interp, "substring not found") : value_int(at);
}

METHOD(count) {
  const struct jinja_string *needle = text_argument(interp, args->values[0]);
  int64_t n = 0;
  if (needle->length == 0) return value_int((int64_t)string_count(self.string) + 1);
  for (size_t at = 0; (at = string_find(self.string, needle->data, needle->length, at)) != SIZE_MAX; at += needle->length) n++;
  return value_int(n);
}

/* "{} {0} {name}": fields without format specification. */
METHOD(format) {
  struct jinja_sink sink = {0};
  const struct jinja_string *s = self.string;
  size_t next = 0;
  for (size_t at = 0; at < s->length && !jinja_failed(interp);) {
    char c = s->data[at];
    if ((c == '{' || c == '}') && s->data[at + 1] == c) {
      sink_bytes(interp, &sink, &c, 1);
      at += 2;
      continue;
    }
    if (c != '{') {
      size_t n = character_length(s, at);
      sink_part(interp, &sink, s, at, at + n);
      at += n;
      continue;
    }
    size_t length = strcspn(s->data + at + 1, "}");
    const char *name = s->data + at + 1;
    struct jinja_value value = {.type = JINJA_ABSENT};
    char *end;
    size_t index = length ? strtoull(name, &end, 10) : next++;
    if ((length == 0 || end == name + length) && index < args->n) value = args->values[index];
    for (size_t i = 0; i < args->n_named && is_absent(value); i++)
      if (args->named[i].name->length == length && memcmp(args->named[i].name->data, name, length) == 0) value = args->named[i].value;
    if (is_absent(value)) jinja_fail(interp, "format(): no argument for {%.*s}", (int)(length > 40 ? 40 : length), name);
    else sink_value(interp, &sink, value);
    at += length + 2;
  }
  return sink_finish(interp, &sink);
}

enum character_class { CLASS_DIGIT, CLASS_ALPHA, CLASS_ALNUM, CLASS_SPACE, CLASS_UPPER, CLASS_LOWER };

static bool in_class(uint32_t c, enum character_class class) {
  utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
  bool alpha = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  bool digit = category == UTF8PROC_CATEGORY_ND;
  switch (class) {
  case CLASS_DIGIT: return digit;
  case CLASS_ALPHA: return alpha;
  case CLASS_ALNUM: return alpha || digit || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
  case CLASS_SPACE: return unicode_is_space(c);
  case CLASS_UPPER: return category != UTF8PROC_CATEGORY_LL;
  default: return category != UTF8PROC_CATEGORY_LU;
  }
}

static struct jinja_value all_in_class(const struct jinja_string *s, enum character_class class) {
  bool cased = class != CLASS_UPPER && class != CLASS_LOWER;
  for (size_t at = 0; at < s->length;) {
    uint32_t c;
    at += (size_t)utf8_decode(s->data + at, s->length - at, &c);
    if (!in_class(c, class)) return value_bool(false);
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    cased |= category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL;
  }
  return value_bool(s->length > 0 && cased);
}

METHOD(isdigit) { (void)interp, (void)args; return all_in_class(self.string, CLASS_DIGIT); }
METHOD(isalpha) { (void)interp, (void)args; return all_in_class(self.string, CLASS_ALPHA); }
METHOD(isalnum) { (void)interp, (void)args; return all_in_class(self.string, CLASS_ALNUM); }
METHOD(isspace) { (void)interp, (void)args; return all_in_class(self.string, CLASS_SPACE); }
METHOD(isupper) { (void)interp, (void)args; return all_in_class(self.string, CLASS_UPPER); }
METHOD(islower) { (void)interp, (void)args; return all_in_class(self.string, CLASS_LOWER); }

static struct jinja_value justify(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args, bool left) {
  struct jinja_sink sink = {0};
  int64_t width = count_limit(interp, args->values[0]), length = (int64_t)string_count(self.string);
  struct jinja_value fill = is_given(args->values[1]) ? args->values[1] : value_literal(interp, " ");
  if (left) sink_string(interp, &sink, self.string);
  for (int64_t i = length; i < width && jinja_step(interp, 1); i++) sink_string(interp, &sink, text_argument(interp, fill));
  if (!left) sink_string(interp, &sink, self.string);
  return sink_finish(interp, &sink);
}

METHOD(ljust) { return justify(interp, self, args, true); }
METHOD(rjust) { return justify(interp, self, args, false); }
METHOD(zfill) {
  struct jinja_value values[2] = {args->values[0], value_literal(interp, "0")};
  return justify(interp, self, &(struct jinja_args){.values = values, .n = 2}, false);
}

/* Numbers as parameter names: Python takes these by position only. */
static const struct jinja_row string_methods[] = {
    {"strip", "1", 0, method_strip},
    {"lstrip", "1", 0, method_lstrip},
    {"rstrip", "1", 0, method_rstrip},
    {"split", "sep maxsplit", 0, method_split},
    {"rsplit", "sep maxsplit", 0, method_rsplit},
    {"partition", "1", 1, method_partition},
    {"rpartition", "1", 1, method_rpartition},
    {"splitlines", "keepends", 0, method_splitlines},
    {"startswith", "1", 1, method_startswith},
    {"endswith", "1", 1, method_endswith},
    {"removeprefix", "1", 1, method_removeprefix},
    {"removesuffix", "1", 1, method_removesuffix},
    {"replace", "1 2 3", 2, method_replace},
    {"upper", "", 0, method_upper},
    {"lower", "", 0, method_lower},
    {"casefold", "", 0, method_lower},
    {"title", "", 0, method_title},
    {"capitalize", "", 0, method_capitalize},
    {"swapcase", "", 0, method_swapcase},
    {"join", "1", 1, method_join},
    {"find", "1 2", 1, method_find_text},
    {"rfind", "1 2", 1, method_rfind},
    {"index", "1 2", 1, method_index},
    {"count", "1", 1, method_count},
    {"format", "*", 0, method_format},
    {"isdigit", "", 0, method_isdigit},
    {"isnumeric", "", 0, method_isdigit},
    {"isdecimal", "", 0, method_isdigit},
    {"isalpha", "", 0, method_isalpha},
    {"isalnum", "", 0, method_isalnum},
    {"isspace", "", 0, method_isspace},
    {"isupper", "", 0, method_isupper},
    {"islower", "", 0, method_islower},
    {"ljust", "1 2", 1, method_ljust},
    {"rjust", "1 2", 1, method_rjust},
    {"zfill", "1", 1, method_zfill},
    {0},
};

/* ---- dict ---- */

METHOD(get) {
  struct jinja_value *found = dict_find(interp, self.dict, args->values[0]);
  if (found) return *found;
  return is_absent(args->values[1]) ? value_none() : args->values[1];
}

METHOD(keys) {
  (void)args;
  return (struct jinja_value){.type = JINJA_LIST, .list = value_iterate(interp, self)};
}

METHOD(values) {
  (void)args;
  struct jinja_value list = value_list(interp, self.dict->n);
  for (size_t i = 0; i < self.dict->n && !jinja_failed(interp); i++) list_append(interp, list.list, self.dict->entries[i].value);
  return list;
}

METHOD(items) {
  (void)args;
  struct jinja_value list = value_list(interp, self.dict->n);
  for (size_t i = 0; i < self.dict->n && !jinja_failed(interp); i++) {
    struct jinja_value pair[2] = {self.dict->entries[i].key, self.dict->entries[i].value};
    list_append(interp, list.list, value_tuple(interp, pair, 2));
  }
  return list;
}

METHOD(copy) {
  (void)args;
  if (self.type == JINJA_LIST) {
    struct jinja_value list = value_list(interp, self.list->n);
    for (size_t i = 0; i < self.list->n && !jinja_failed(interp); i++) list_append(interp, list.list, self.list->items[i]);
    return list;
  }
  struct jinja_value dict = value_dict(interp);
  for (size_t i = 0; i < self.dict->n && !jinja_failed(interp); i++)
    dict_set(interp, dict.dict, self.dict->entries[i].key, self.dict->entries[i].value);
  return dict;
}

static const struct jinja_row dict_methods[] = {
    {"get", "1 2", 1, method_get}, {"keys", "", 0, method_keys}, {"values", "", 0, method_values},
    {"items", "", 0, method_items},        {"copy", "", 0, method_copy}, {0},
};

/* ---- list ---- */

METHOD(list_index) {
  for (size_t i = 0; i < self.list->n && !jinja_failed(interp); i++)
    if (value_equal(interp, self.list->items[i], args->values[0])) return value_int((int64_t)i);
  return jinja_fail(interp, "value is not in list");
}

METHOD(list_count) {
  int64_t n = 0;
  for (size_t i = 0; i < self.list->n && !jinja_failed(interp); i++) n += value_equal(interp, self.list->items[i], args->values[0]);
  return value_int(n);
}

static const struct jinja_row list_methods[] = {
    {"index", "1", 1, method_list_index}, {"count", "1", 1, method_list_count}, {"copy", "", 0, method_copy}, {0},
};

/* ---- loop ---- */

METHOD(cycle) {
  if (args->n == 0) return jinja_fail(interp, "no items for cycling given");
  return args->values[self.loop->index % args->n];
}

METHOD(changed) {
  struct jinja_value now = value_tuple(interp, args->values, args->n);
  if (!is_absent(self.loop->changed) && value_equal(interp, self.loop->changed, now)) return value_bool(false);
  self.loop->changed = now;
  return value_bool(true);
}

static const struct jinja_row loop_methods[] = {{"cycle", "*", 0, method_cycle}, {"changed", "*", 0, method_changed}, {0}};

const struct jinja_row *method_find(enum jinja_type type, const char *name, size_t length) {
  switch (type) {
  case JINJA_STRING: return row_find(string_methods, name, length);
  case JINJA_DICT: return row_find(dict_methods, name, length);
  case JINJA_LIST: return row_find(list_methods, name, length);
  case JINJA_LOOP: return row_find(loop_methods, name, length);
  default: return NULL;
  }
}
