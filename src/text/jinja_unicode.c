/* jinja_unicode.c - characters of strings: counting, whitespace, stripping, case. Python's str is the model; case mapping is
 * utf8proc's simple mapping and the German sharp s.
 */
#define _GNU_SOURCE /* memmem */
#include "text/jinja_internal.h"

#include <string.h>
#include <utf8proc.h>

bool unicode_is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t string_count(struct jinja_string *string) {
  if (string->n_codepoints != SIZE_MAX) return string->n_codepoints;
  size_t n = 0;
  for (size_t i = 0; i < string->length; i++) n += ((uint8_t)string->data[i] & 0xc0) != 0x80;
  return string->n_codepoints = n;
}

size_t string_offset(struct jinja_string *string, size_t codepoint) {
  if (string_count(string) == string->length) return codepoint < string->length ? codepoint : string->length;
  size_t at = 0;
  for (; at < string->length; at++) {
    if (((uint8_t)string->data[at] & 0xc0) == 0x80) continue;
    if (codepoint-- == 0) break;
  }
  return at;
}

size_t string_find(const struct jinja_string *string, const char *needle, size_t length, size_t from) {
  if (from > string->length || length > string->length - from) return SIZE_MAX;
  if (length == 0) return from;
  const char *found = memmem(string->data + from, string->length - from, needle, length);
  return found ? (size_t)(found - string->data) : SIZE_MAX;
}

static bool strips(const struct jinja_string *chars, const char *text, size_t n, uint32_t c) {
  return chars ? string_find(chars, text, n, 0) != SIZE_MAX : unicode_is_space(c);
}

struct jinja_value string_strip(struct jinja_interp *interp, const struct jinja_string *string, const struct jinja_string *chars,
                                bool left, bool right) {
  size_t begin = 0, end = string->length;
  uint32_t c;
  while (left && begin < end) {
    size_t n = (size_t)utf8_decode(string->data + begin, end - begin, &c);
    if (!strips(chars, string->data + begin, n, c)) break;
    begin += n;
  }
  while (right && end > begin) {
    size_t at = end - 1;
    while (at > begin && ((uint8_t)string->data[at] & 0xc0) == 0x80) at--;
    (void)utf8_decode(string->data + at, end - at, &c);
    if (!strips(chars, string->data + at, end - at, c)) break;
    end = at;
  }
  return value_part(interp, string, begin, end);
}

static bool is_cased(uint32_t c) {
  utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

/* Jinja's title filter starts words after these and whitespace; str.title after anything that has no case. */
static bool starts_word(enum unicode_case how, uint32_t previous) {
  if (how == CASE_TITLE) return !is_cased(previous);
  return unicode_is_space(previous) || (previous < 0x80 && strchr("-({[<", (int)previous));
}

struct jinja_value string_case(struct jinja_interp *interp, struct jinja_string *string, enum unicode_case how) {
  struct jinja_sink sink = {0};
  uint32_t previous = ' ', c;
  for (size_t at = 0; at < string->length && !jinja_failed(interp);) {
    size_t n = (size_t)utf8_decode(string->data + at, string->length - at, &c);
    bool first = how == CASE_CAPITALIZE ? at == 0 : how != CASE_LOWER && how != CASE_UPPER && starts_word(how, previous);
    bool upper = how == CASE_UPPER || first;
    if (how == CASE_SWAP) upper = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LL;
    uint32_t mapped = (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)c) : utf8proc_tolower((utf8proc_int32_t)c));
    if (upper && how != CASE_UPPER && how != CASE_SWAP) mapped = (uint32_t)utf8proc_totitle((utf8proc_int32_t)c);
    char bytes[4];
    if (mapped == c && c != 0xdf)
      sink_part(interp, &sink, string, at, at + n); /* unchanged characters keep their origin */
    else if (c == 0xdf && upper)
      sink_bytes(interp, &sink, how == CASE_UPPER || how == CASE_SWAP ? "SS" : "Ss", 2);
    else
      sink_bytes(interp, &sink, bytes, (size_t)utf8proc_encode_char((utf8proc_int32_t)mapped, (utf8proc_uint8_t *)bytes));
    previous = c;
    at += n;
  }
  return sink_finish(interp, &sink);
}

struct jinja_value string_escape(struct jinja_interp *interp, const struct jinja_string *string) {
  static const char *const table[][2] = {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  struct jinja_sink sink = {0};
  size_t run = 0;
  for (size_t at = 0; at < string->length && !jinja_failed(interp); at++)
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
      if (string->data[at] == *table[i][0]) {
        sink_part(interp, &sink, string, run, at);
        sink_bytes(interp, &sink, table[i][1], strlen(table[i][1]));
        run = at + 1;
      }
  sink_part(interp, &sink, string, run, string->length);
  struct jinja_value text = sink_finish(interp, &sink);
  text.string->is_markup = true;
  return text;
}
