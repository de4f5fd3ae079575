/* stop_matcher.c - Knuth, Morris and Pratt's automaton for every stop string, side by side. There are few strings, so a byte costs a
 * comparison or two for each; one automaton for all would need a table of 64 Ki states. Does not know tokens.
 */
#include "text/stop_matcher.h"

#include "base/buffer.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

struct stop_string {
  char *bytes;
  uint16_t *borders; /* [n] of the first i + 1 bytes: the longest proper beginning that is also their end */
  size_t n;
  size_t n_matched; /* of its first bytes, that the text ends with; less than n */
};

struct stop_matcher {
  struct stop_string *strings;
  size_t n_strings;
  size_t n_bytes; /* pushed and looked at */
  int n_unfinished; /* bytes at the end that begin a character */
  int n_missing;    /* bytes that this character lacks */
  bool matched;
  struct stop_match match;
};

static void init_string(struct stop_string *string, const char *text, size_t n) {
  string->n = n;
  string->bytes = memory_copy_string(text);
  string->borders = memory_alloc(n * sizeof *string->borders);
  for (size_t i = 1, border = 0; i < n; i++) {
    while (border && text[i] != text[border]) border = string->borders[border - 1];
    if (text[i] == text[border]) border++;
    string->borders[i] = (uint16_t)border;
  }
}

enum eaglet_status stop_matcher_create(struct stop_matcher **matcher, const char *const *stops, size_t n_stops, struct eaglet_error *err) {
  *matcher = NULL;
  if (n_stops > STOP_STRINGS_MAX) FAIL(err, EAGLET_E_USAGE, "stop strings: %zu, at most %d", n_stops, STOP_STRINGS_MAX);
  for (size_t i = 0; i < n_stops; i++) {
    size_t n = strlen(stops[i]), valid = utf8_valid(stops[i], n);
    if (n == 0) FAIL(err, EAGLET_E_USAGE, "stop string %zu is empty", i);
    if (n > STOP_STRING_BYTES_MAX) FAIL(err, EAGLET_E_USAGE, "stop string %zu: %zu bytes, at most %d", i, n, STOP_STRING_BYTES_MAX);
    if (valid < n) FAIL(err, EAGLET_E_USAGE, "stop string %zu: invalid UTF-8 at byte %zu", i, valid);
  }
  struct stop_matcher *m = memory_alloc(sizeof *m);
  m->strings = memory_alloc((n_stops + 1) * sizeof *m->strings);
  m->n_strings = n_stops;
  for (size_t i = 0; i < n_stops; i++) init_string(&m->strings[i], stops[i], strlen(stops[i]));
  *matcher = m;
  return EAGLET_OK;
}

void stop_matcher_free(struct stop_matcher *matcher) {
  if (!matcher) return;
  for (size_t i = 0; i < matcher->n_strings; i++) {
    free(matcher->strings[i].bytes);
    free(matcher->strings[i].borders);
  }
  free(matcher->strings);
  free(matcher);
}

void stop_matcher_reset(struct stop_matcher *matcher) {
  for (size_t i = 0; i < matcher->n_strings; i++) matcher->strings[i].n_matched = 0;
  matcher->n_bytes = 0;
  matcher->n_unfinished = matcher->n_missing = 0;
  matcher->matched = false;
}

/* Whether the string is complete with this byte. */
static bool string_step(struct stop_string *string, char byte) {
  size_t n = string->n_matched;
  while (n && string->bytes[n] != byte) n = string->borders[n - 1];
  if (string->bytes[n] == byte) n++;
  string->n_matched = n;
  return n == string->n;
}

static void follow_character(struct stop_matcher *m, uint8_t byte) {
  if ((byte & 0xc0) == 0x80 && m->n_missing > 0) {
    m->n_unfinished++;
    if (--m->n_missing == 0) m->n_unfinished = 0;
    return;
  }
  m->n_missing = byte >= 0xf5 ? 0 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc2 ? 1 : 0;
  m->n_unfinished = m->n_missing ? 1 : 0;
}

bool stop_matcher_push(struct stop_matcher *m, const char *bytes, size_t n, struct stop_match *match) {
  for (size_t at = 0; at < n && !m->matched; at++) {
    follow_character(m, (uint8_t)bytes[at]);
    m->n_bytes++;
    for (size_t i = 0; i < m->n_strings; i++) {
      const struct stop_string *string = &m->strings[i];
      if (!string_step(&m->strings[i], bytes[at])) continue;
      size_t begin = m->n_bytes - string->n;
      if (!m->matched || begin < m->match.begin) m->match = (struct stop_match){.begin = begin, .end = m->n_bytes, .stop = i};
      m->matched = true;
    }
  }
  if (m->matched && match) *match = m->match;
  return m->matched;
}

void stop_matcher_pass(struct stop_matcher *m, const char *bytes, size_t n) {
  for (size_t at = 0; at < n && !m->matched; at++) {
    follow_character(m, (uint8_t)bytes[at]);
    m->n_bytes++;
    for (size_t i = 0; i < m->n_strings; i++) {
      struct stop_string *string = &m->strings[i];
      if (string_step(string, bytes[at])) string->n_matched = string->borders[string->n - 1];
    }
  }
}

size_t stop_matcher_n_safe(const struct stop_matcher *m) {
  if (m->matched) return m->match.begin;
  size_t n_held = (size_t)m->n_unfinished;
  for (size_t i = 0; i < m->n_strings; i++)
    if (m->strings[i].n_matched > n_held) n_held = m->strings[i].n_matched;
  return m->n_bytes - n_held;
}
