/* json.c - strict JSON through jansson; see json.h. Owns the error wording, over-large integers and shortest floats. */
#include "base/json.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_FILE_BYTES_MAX ((size_t)1 << 30)

/* Offset just behind the string that opens at text[at]. */
static size_t skip_string(const char *text, size_t length, size_t at) {
  for (at++; at < length && text[at] != '"'; at++) {
    if (text[at] == '\\') at++;
  }
  return at < length ? at + 1 : length;
}

static bool is_number_char(char c) { return (c >= '0' && c <= '9') || (c && strchr("+-.eE", c)); }

/* Copies text, giving every number outside strings to rewrite(). */
static void rewrite_numbers(struct buffer *out, const char *text, size_t length,
                            void (*rewrite)(struct buffer *out, const char *number, size_t length)) {
  size_t copied = 0, at = 0;
  while (at < length) {
    if (text[at] == '"') {
      at = skip_string(text, length, at);
    } else if (text[at] == '-' || (text[at] >= '0' && text[at] <= '9')) {
      buffer_append(out, text + copied, at - copied);
      copied = at;
      while (at < length && is_number_char(text[at])) at++;
      rewrite(out, text + copied, at - copied);
      copied = at;
    } else {
      at++;
    }
  }
  buffer_append(out, text + copied, length - copied);
}

/* Integers of 19 digits and more may not fit int64: they become reals. */
static void integer_to_real(struct buffer *out, const char *number, size_t length) {
  buffer_append(out, number, length);
  size_t digits = length - (number[0] == '-');
  for (size_t i = 0; i < length; i++) {
    if (strchr(".eE", number[i])) return;
  }
  if (digits >= 19) buffer_append(out, ".0", 2);
}

/* jansson prints reals with 17 digits; the fewest that read back to the same value are enough. */
static void real_to_shortest(struct buffer *out, const char *number, size_t length) {
  char token[64], shortest[64];
  bool real = memchr(number, '.', length) || memchr(number, 'e', length);
  if (!real || length >= sizeof token) {
    buffer_append(out, number, length);
    return;
  }
  memcpy(token, number, length);
  token[length] = '\0';
  double value = strtod(token, NULL);
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(shortest, sizeof shortest, "%.*g", digits, value);
    if (strtod(shortest, NULL) == value) break;
  }
  buffer_append_string(out, shortest);
  if (!strpbrk(shortest, ".e")) buffer_append(out, ".0", 2);
}

enum eaglet_status json_parse(json_t **json, const char *text, size_t length, const char *what, struct eaglet_error *err) {
  const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
  json_error_t why;
  *json = json_loadb(text ? text : "", length, flags, &why);
  if (!*json && json_error_code(&why) == json_error_numeric_overflow) {
    /* Checkpoints in the wild carry integers like 1000000000000000019884624838656 for "unlimited". */
    struct buffer widened;
    buffer_init(&widened);
    rewrite_numbers(&widened, text, length, integer_to_real);
    *json = json_loadb(widened.data, widened.length, flags, &why);
    buffer_clear(&widened);
  }
  if (!*json) FAIL(err, EAGLET_E_INPUT, "%s: line %d column %d: not valid JSON: %s", what, why.line, why.column, why.text);
  return EAGLET_OK;
}

enum eaglet_status json_parse_file(json_t **json, const char *path, struct eaglet_error *err) {
  *json = NULL;
  struct eaglet_text text = {0};
  TRY(file_read(&text, path, JSON_FILE_BYTES_MAX, err));
  size_t at = strspn(text.data, " \t\r\n");
  enum eaglet_status status = EAGLET_OK;
  if (!strncmp(text.data, "version https://git-lfs", 23))
    status = error_set(err, EAGLET_E_INPUT, "%s: is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`", path);
  else if (text.data[at] == '<')
    status = error_set(err, EAGLET_E_INPUT, "%s: is an HTML or XML page, not JSON (a failed download?)", path);
  else
    status = json_parse(json, text.data, text.length, path, err);
  free(text.data);
  return status;
}

struct eaglet_text json_dump(const json_t *json, int indent) {
  size_t flags = JSON_ENCODE_ANY | (indent > 0 ? JSON_INDENT((size_t)indent) : JSON_COMPACT);
  char *raw = json_dumps(json, flags);
  ASSERT(raw); /* only a value that is not JSON (NULL, a cycle) cannot be dumped */
  struct buffer out;
  buffer_init(&out);
  rewrite_numbers(&out, raw, strlen(raw), real_to_shortest);
  free(raw);
  return buffer_detach(&out);
}

static const char *type_name(const json_t *json) {
  switch (json_typeof(json)) {
  case JSON_OBJECT: return "object";
  case JSON_ARRAY: return "array";
  case JSON_STRING: return "string";
  case JSON_INTEGER: return "integer";
  case JSON_REAL: return "real number";
  case JSON_TRUE: return "true";
  case JSON_FALSE: return "false";
  default: return "null";
  }
}

/* *field is NULL when missing or null. */
static enum eaglet_status get_field(const json_t **field, const json_t *object, const char *key, const char *what,
                                    struct eaglet_error *err) {
  *field = NULL;
  if (!json_is_object(object)) {
    FAIL(err, EAGLET_E_INPUT, "%s: expected object with '%s', found %s", what, key, object ? type_name(object) : "nothing");
  }
  *field = json_object_get(object, key);
  if (json_is_null(*field)) *field = NULL;
  return EAGLET_OK;
}

static enum eaglet_status wrong_type(const json_t *found, const char *key, const char *expected, const char *what,
                                     struct eaglet_error *err) {
  return error_set(err, EAGLET_E_INPUT, "%s: %s: expected %s, found %s", what, key, expected, found ? type_name(found) : "nothing");
}

enum eaglet_status json_get_int(int64_t *value, const json_t *object, const char *key, const char *what, struct eaglet_error *err) {
  const json_t *field;
  TRY(get_field(&field, object, key, what, err));
  if (!json_is_integer(field)) return wrong_type(field, key, "integer", what, err);
  *value = json_integer_value(field);
  return EAGLET_OK;
}

enum eaglet_status json_get_int_or(int64_t *value, int64_t fallback, const json_t *object, const char *key, const char *what,
                                   struct eaglet_error *err) {
  const json_t *field;
  TRY(get_field(&field, object, key, what, err));
  if (field && !json_is_integer(field)) return wrong_type(field, key, "integer", what, err);
  *value = field ? json_integer_value(field) : fallback;
  return EAGLET_OK;
}

enum eaglet_status json_get_double_or(double *value, double fallback, const json_t *object, const char *key, const char *what,
                                      struct eaglet_error *err) {
  const json_t *field;
  TRY(get_field(&field, object, key, what, err));
  if (field && !json_is_number(field)) return wrong_type(field, key, "number", what, err);
  *value = field ? json_number_value(field) : fallback;
  return EAGLET_OK;
}

enum eaglet_status json_get_bool_or(bool *value, bool fallback, const json_t *object, const char *key, const char *what,
                                    struct eaglet_error *err) {
  const json_t *field;
  TRY(get_field(&field, object, key, what, err));
  if (field && !json_is_boolean(field)) return wrong_type(field, key, "true or false", what, err);
  *value = field ? json_is_true(field) : fallback;
  return EAGLET_OK;
}

enum eaglet_status json_get_string_or(const char **value, const char *fallback, const json_t *object, const char *key,
                                      const char *what, struct eaglet_error *err) {
  const json_t *field;
  TRY(get_field(&field, object, key, what, err));
  if (field && !json_is_string(field)) return wrong_type(field, key, "string", what, err);
  *value = field ? json_string_value(field) : fallback;
  return EAGLET_OK;
}

static void add_id(int32_t *ids, int32_t *n, int32_t n_max, const json_t *value, int32_t n_vocab) {
  json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
  if (id < 0 || id >= n_vocab) return;
  for (int32_t i = 0; i < *n; i++) {
    if (ids[i] == id) return;
  }
  if (*n < n_max) ids[(*n)++] = (int32_t)id;
}

void json_add_eos_ids(int32_t *ids, int32_t *n, int32_t n_max, const json_t *config, int32_t n_vocab) {
  const json_t *eos = json_object_get(config, "eos_token_id");
  size_t i;
  json_t *value;
  add_id(ids, n, n_max, eos, n_vocab);
  json_array_foreach(eos, i, value) add_id(ids, n, n_max, value, n_vocab);
}

static char *text_or_nothing(const json_t *value) { return value ? json_dump(value, 0).data : memory_copy_string("nothing"); }

const char *json_first_difference(const json_t *expected, const json_t *found, char **a, char **b) {
  const char *key;
  json_t *value;
  *a = *b = NULL;
  json_object_foreach((json_t *)expected, key, value) {
    const json_t *other = json_object_get(found, key);
    if (other && json_equal(value, other)) continue;
    *a = text_or_nothing(value);
    *b = text_or_nothing(other);
    return key;
  }
  return NULL;
}
