/* schema_validator.h - whether a JSON value satisfies a schema, as the standard says: a judge that shares nothing with the compiler. It knows
 * the keywords that the tests use and fails on others. References are plain pointers; oneOf counts as anyOf, as documented.
 */
#ifndef EAGLET_TESTS_TEXT_SCHEMA_VALIDATOR_H
#define EAGLET_TESTS_TEXT_SCHEMA_VALIDATOR_H

#include "support.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <math.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static inline bool judge(const json_t *root, const json_t *schema, const json_t *value);

static inline bool judge_type(const json_t *type, const json_t *value) {
  if (json_is_array(type)) {
    for (size_t i = 0; i < json_array_size(type); i++)
      if (judge_type(json_array_get(type, i), value)) return true;
    return false;
  }
  const char *name = json_string_value(type);
  switch (json_typeof(value)) {
  case JSON_OBJECT: return strcmp(name, "object") == 0;
  case JSON_ARRAY: return strcmp(name, "array") == 0;
  case JSON_STRING: return strcmp(name, "string") == 0;
  case JSON_INTEGER: return strcmp(name, "integer") == 0 || strcmp(name, "number") == 0;
  case JSON_REAL: return strcmp(name, "number") == 0;
  case JSON_TRUE:
  case JSON_FALSE: return strcmp(name, "boolean") == 0;
  case JSON_NULL: return strcmp(name, "null") == 0;
  }
  return false;
}

static inline bool judge_pattern(const char *pattern, const char *text) {
  int code;
  PCRE2_SIZE at;
  pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &code, &at, NULL);
  if (!compiled) fail_msg("PCRE2 does not take %s", pattern);
  pcre2_match_data *match = pcre2_match_data_create_from_pattern(compiled, NULL);
  bool found = pcre2_match(compiled, (PCRE2_SPTR)text, strlen(text), 0, 0, match, NULL) >= 0;
  pcre2_match_data_free(match);
  pcre2_code_free(compiled);
  return found;
}

static inline bool judge_date(const char *text, int *length) {
  int year, month, day, n = 0;
  if (sscanf(text, "%4d-%2d-%2d%n", &year, &month, &day, &n) != 3 || n != 10) return false;
  const int days[] = {31, year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  *length = n;
  return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
}

static inline bool judge_time(const char *text) {
  int hour, minute, second, n = 0;
  if (sscanf(text, "%2d:%2d:%2d%n", &hour, &minute, &second, &n) != 3 || n != 8 || hour > 23 || minute > 59 || second > 59) return false;
  text += n;
  if (*text == '.') {
    if (!isdigit((uint8_t)*++text)) return false;
    while (isdigit((uint8_t)*text)) text++;
  }
  if (strcmp(text, "Z") == 0) return true;
  return (*text == '+' || *text == '-') && sscanf(text + 1, "%2d:%2d%n", &hour, &minute, &n) == 2 && n == 5 && text[6] == '\0' && hour < 24 && minute < 60;
}

static inline bool judge_format(const char *format, const char *text) {
  int n = 0;
  if (strcmp(format, "date") == 0) return judge_date(text, &n) && text[n] == '\0';
  if (strcmp(format, "time") == 0) return judge_time(text);
  if (strcmp(format, "date-time") == 0) return judge_date(text, &n) && text[n] == 'T' && judge_time(text + n + 1);
  if (strcmp(format, "uuid") == 0) {
    for (int i = 0; i < 36; i++)
      if (i == 8 || i == 13 || i == 18 || i == 23 ? text[i] != '-' : !isxdigit((uint8_t)text[i])) return false;
    return text[36] == '\0';
  }
  if (strcmp(format, "email") == 0) {
    const char *at = strchr(text, '@');
    return at && at > text && !strchr(at + 1, '@') && strchr(at, '.') && !strchr(text, ' ');
  }
  if (strcmp(format, "ipv4") == 0) {
    unsigned a, b, c, d;
    return sscanf(text, "%3u.%3u.%3u.%3u%n", &a, &b, &c, &d, &n) == 4 && text[n] == '\0' && a < 256 && b < 256 && c < 256 && d < 256;
  }
  if (strcmp(format, "ipv6") == 0) {
    struct in6_addr address;
    return inet_pton(AF_INET6, text, &address) == 1;
  }
  fail_msg("the judge does not know the format %s", format);
  return false;
}

static inline bool judge_string(const json_t *schema, const char *text) {
  const json_t *x;
  size_t n = 0;
  for (const char *at = text; *at; at++) n += ((uint8_t)*at & 0xc0) != 0x80;
  if ((x = json_object_get(schema, "minLength")) && (double)n < json_number_value(x)) return false;
  if ((x = json_object_get(schema, "maxLength")) && (double)n > json_number_value(x)) return false;
  if ((x = json_object_get(schema, "pattern")) && !judge_pattern(json_string_value(x), text)) return false;
  return !(x = json_object_get(schema, "format")) || judge_format(json_string_value(x), text);
}

static inline bool judge_number(const json_t *schema, double number) {
  const json_t *x;
  if ((x = json_object_get(schema, "minimum")) && number < json_number_value(x)) return false;
  if ((x = json_object_get(schema, "maximum")) && number > json_number_value(x)) return false;
  if ((x = json_object_get(schema, "exclusiveMinimum")) && number <= json_number_value(x)) return false;
  if ((x = json_object_get(schema, "exclusiveMaximum")) && number >= json_number_value(x)) return false;
  return true;
}

static inline bool judge_object(const json_t *root, const json_t *schema, const json_t *value) {
  const json_t *properties = json_object_get(schema, "properties"), *additional = json_object_get(schema, "additionalProperties");
  const json_t *required = json_object_get(schema, "required");
  const char *name;
  json_t *member;
  for (size_t i = 0; i < json_array_size(required); i++)
    if (!json_object_get(value, json_string_value(json_array_get(required, i)))) return false;
  json_object_foreach((json_t *)value, name, member) {
    const json_t *own = json_object_get(properties, name), *rule = own ? own : additional;
    if (rule && !judge(root, rule, member)) return false;
  }
  return true;
}

static inline bool judge_array(const json_t *root, const json_t *schema, const json_t *value) {
  const json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items"), *x;
  size_t n = json_array_size(value);
  if ((x = json_object_get(schema, "minItems")) && (double)n < json_number_value(x)) return false;
  if ((x = json_object_get(schema, "maxItems")) && (double)n > json_number_value(x)) return false;
  for (size_t i = 0; i < n; i++) {
    const json_t *rule = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
    if (rule && !judge(root, rule, json_array_get(value, i))) return false;
  }
  return true;
}

static inline const json_t *judge_resolve(const json_t *root, const char *reference) {
  char *copy = memory_copy_string(reference + 1), *rest = copy;
  const json_t *at = root;
  for (char *step; (step = strtok_r(rest, "/", &rest));) at = json_object_get(at, step);
  free(copy);
  return at;
}

static inline bool judge_any(const json_t *root, const json_t *schemas, const json_t *value) {
  for (size_t i = 0; i < json_array_size(schemas); i++)
    if (judge(root, json_array_get(schemas, i), value)) return true;
  return false;
}

static inline bool judge(const json_t *root, const json_t *schema, const json_t *value) {
  if (!json_is_object(schema)) return json_is_true(schema);
  const json_t *x = json_object_get(schema, "allOf");
  for (size_t i = 0; i < json_array_size(x); i++)
    if (!judge(root, json_array_get(x, i), value)) return false;
  if ((x = json_object_get(schema, "$ref")) && !judge(root, judge_resolve(root, json_string_value(x)), value)) return false;
  if ((x = json_object_get(schema, "type")) && !judge_type(x, value)) return false;
  if ((x = json_object_get(schema, "const")) && !json_equal(x, value)) return false;
  if ((x = json_object_get(schema, "anyOf")) && !judge_any(root, x, value)) return false;
  if ((x = json_object_get(schema, "oneOf")) && !judge_any(root, x, value)) return false;
  if ((x = json_object_get(schema, "enum"))) {
    bool listed = false;
    for (size_t i = 0; i < json_array_size(x); i++) listed |= json_equal(json_array_get(x, i), value);
    if (!listed) return false;
  }
  if (json_is_string(value)) return judge_string(schema, json_string_value(value));
  if (json_is_number(value)) return judge_number(schema, json_number_value(value));
  if (json_is_object(value)) return judge_object(root, schema, value);
  return !json_is_array(value) || judge_array(root, schema, value);
}

#endif
