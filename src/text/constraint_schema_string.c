/* constraint_schema_string.c - strings, formats and fixed values (enum, const).
 *
 * A free string may hold every escape that JSON has (surrogates in pairs, no NUL). A string with a pattern or a format, a fixed
 * string and a property's name are written in one way: each character as itself, but for what JSON makes escape.
 */
#include "text/constraint_schema_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- free strings ---- */

/* One character as JSON writes it, escapes included; emitted as plain bytes. */
static const struct expression *any_character(struct constraint_builder *b) {
  static const struct char_range plain[] = {{' ', '!'}, {'#', '['}, {']', 0x10ffff}}, hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}},
                                 letters[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}},
                                 not_d[] = {{'1', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}, d[] = {{'D', 'D'}, {'d', 'd'}},
                                 not_zero[] = {{'1', '9'}, {'A', 'F'}, {'a', 'f'}}, high[] = {{'8', '9'}, {'A', 'B'}, {'a', 'b'}},
                                 low[] = {{'C', 'F'}, {'c', 'f'}};
#define SET(ranges) expression_set(b, ranges, sizeof ranges / sizeof *ranges, false)
  const struct expression *digit = SET(hex), *two = expression_repeat(b, digit, 2, 2), *zero = expression_text(b, "0");
  const struct expression *below_d[] = {SET(not_d), digit, two};
  const struct expression *d_low[] = {SET(d), expression_range(b, '0', '7'), two};
  const struct expression *pair[] = {SET(d), SET(high), two, expression_text(b, "\\u"), SET(d), SET(low), two};
  const struct expression *zeros[] = {zero, SET(not_zero), two};
  const struct expression *zeros_2[] = {zero, zero, SET(not_zero), digit};
  const struct expression *zeros_3[] = {zero, zero, zero, SET(not_zero)};
  const struct expression *units[] = {expression_sequence(b, below_d, 3), expression_sequence(b, d_low, 3), expression_sequence(b, pair, 7),
                                      expression_sequence(b, zeros, 3), expression_sequence(b, zeros_2, 4), expression_sequence(b, zeros_3, 4)};
  const struct expression *escape = expression_either(b, SET(letters), expression_pair(b, expression_text(b, "u"), expression_choice(b, units, 6)));
  return expression_either(b, SET(plain), expression_pair(b, expression_text(b, "\\"), escape));
#undef SET
}

const struct expression *schema_any_string(struct schema_compiler *c, int32_t min, int32_t max) {
  struct constraint_builder *b = c->builder;
  if (c->character_rule < 0) c->character_rule = builder_add_rule(b, any_character(b), 0, NULL);
  const struct expression *quote = expression_text(b, "\"");
  const struct expression *parts[] = {quote, expression_repeat(b, expression_rule(b, c->character_rule), min, max), quote};
  return expression_sequence(b, parts, 3);
}

/* ---- formats ---- */

#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL "){0,8}"
#define NAME "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?" /* in a URI: its syntax has no limits of length */
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define YEAR_OF_29 "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE                                                                                                                        \
  "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))" \
  "|" YEAR_OF_29 "-02-29)"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}"
#define COUNT "[0-9]{1,9}"
#define DAYS "(?:" COUNT "D|" COUNT "M(?:" COUNT "D)?|" COUNT "Y(?:" COUNT "M(?:" COUNT "D)?)?)"
#define HOURS "T(?:" COUNT "H(?:" COUNT "M(?:" COUNT "S)?)?|" COUNT "M(?:" COUNT "S)?|" COUNT "S)"
#define PIECE "[0-9A-Fa-f]{1,4}"
#define PATH_CHARACTER "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

static const struct {
  const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(?:" DAYS "(?:" HOURS ")?|" HOURS "|" COUNT "W)"},
    {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"email", ATOM "(?:\\." ATOM ")?@" LABEL "(?:\\." LABEL "){1,8}"},
    {"hostname", HOST},
    {"ipv4", OCTET "(?:\\." OCTET "){3}"},
    {"ipv6", "(?:" PIECE ":){7}" PIECE "|(?:" PIECE ":){1,7}:|(?:" PIECE ":){1,6}:" PIECE "|(?:" PIECE ":){1,5}(?::" PIECE "){2}|(?:" PIECE ":){1,4}(?::" PIECE
             "){3}|(?:" PIECE ":){1,3}(?::" PIECE "){4}|(?:" PIECE ":){1,2}(?::" PIECE "){5}|" PIECE ":(?::" PIECE "){6}|:(?:(?::" PIECE "){1,7}|:)"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*://" NAME "(?:\\." NAME ")*(?::[0-9]{1,5})?(?:/" PATH_CHARACTER "*)*(?:\\?(?:" PATH_CHARACTER
            "|[/?])*)?(?:#(?:" PATH_CHARACTER "|[/?])*)?"},
};

static const char *format_pattern(const char *name) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (strcmp(formats[i].name, name) == 0) return formats[i].pattern;
  return NULL;
}

/* ---- strings ---- */

static enum eaglet_status get_text(const struct schema_compiler *c, const json_t *schema, const char *key, const char **text) {
  const json_t *json = json_object_get(schema, key);
  *text = NULL;
  if (!json) return EAGLET_OK;
  if (!json_is_string(json)) return schema_refuse(c, "%s: expected a string", key);
  *text = json_string_value(json);
  return EAGLET_OK;
}

enum eaglet_status schema_compile_string(struct schema_compiler *c, const json_t *schema, const struct expression **out) {
  const char *pattern, *format;
  int32_t min, max;
  TRY(schema_get_count(c, schema, "minLength", 0, &min));
  TRY(schema_get_count(c, schema, "maxLength", -1, &max));
  TRY(get_text(c, schema, "pattern", &pattern));
  TRY(get_text(c, schema, "format", &format));
  if (max >= 0 && min > max) {
    *out = expression_never(c->builder);
    return EAGLET_OK;
  }
  if (pattern && format) return schema_refuse(c, "pattern together with format is not supported");
  if (!pattern && !format) {
    *out = schema_any_string(c, min, max);
    return EAGLET_OK;
  }
  const char *source = pattern ? pattern : format_pattern(format);
  if (!source) return schema_refuse(c, "format \"%s\" is not supported", format);
  const struct expression *content;
  struct eaglet_error err = {0};
  if (regex_parse(c->builder, &content, source, strlen(source), pattern != NULL, &err) != EAGLET_OK)
    return schema_refuse(c, "%s", err.message);
  *out = expression_string(c->builder, content, min, max);
  return EAGLET_OK;
}

/* ---- fixed values ---- */

const struct expression *schema_literal_string(struct schema_compiler *c, const char *text) {
  static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
  struct buffer out;
  buffer_init(&out);
  buffer_append_char(&out, '"');
  for (; *text; text++) {
    const char *found = strchr(special, *text);
    if (found) {
      buffer_append_char(&out, '\\');
      buffer_append_char(&out, letters[found - special]);
    } else if ((uint8_t)*text < 0x20) {
      buffer_format(&out, "\\u%04x", (uint8_t)*text);
    } else {
      buffer_append_char(&out, *text);
    }
  }
  buffer_append_char(&out, '"');
  const struct expression *literal = expression_bytes(c->builder, out.data, out.length);
  buffer_clear(&out);
  return literal;
}

static const struct expression *literal(struct schema_compiler *c, const json_t *value);

static const struct expression *literal_container(struct schema_compiler *c, const json_t *value) {
  struct constraint_builder *b = c->builder;
  struct expression_list list = {0};
  if (json_is_object(value)) {
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item) {
      if (list.n) expression_list_append(&list, c->comma);
      expression_list_append(&list, schema_literal_string(c, key));
      expression_list_append(&list, c->colon);
      expression_list_append(&list, literal(c, item));
    }
  } else {
    for (size_t i = 0; i < json_array_size(value); i++) {
      if (list.n) expression_list_append(&list, c->comma);
      expression_list_append(&list, literal(c, json_array_get(value, i)));
    }
  }
  const struct expression *content = expression_sequence(b, list.items, list.n);
  free(list.items);
  return schema_brackets(c, json_is_object(value) ? "{}" : "[]", content);
}

static const struct expression *literal(struct schema_compiler *c, const json_t *value) {
  if (json_is_string(value)) return schema_literal_string(c, json_string_value(value));
  if (json_is_object(value) || json_is_array(value)) {
    if (c->depth >= CONSTRAINT_DEPTH_MAX) {
      c->builder->exceeded = "a fixed value nests more than 200 deep";
      return expression_never(c->builder);
    }
    c->depth++;
    const struct expression *container = literal_container(c, value);
    c->depth--;
    return container;
  }
  struct eaglet_text text = json_dump(value, 0);
  const struct expression *out = expression_text(c->builder, text.data);
  free(text.data);
  return out;
}

static bool has_type(const json_t *value, const char *type) {
  if (strcmp(type, "string") == 0) return json_is_string(value);
  if (strcmp(type, "number") == 0) return json_is_number(value);
  if (strcmp(type, "integer") == 0)
    return json_is_integer(value) || (json_is_real(value) && json_real_value(value) == floor(json_real_value(value)));
  if (strcmp(type, "boolean") == 0) return json_is_boolean(value);
  if (strcmp(type, "null") == 0) return json_is_null(value);
  if (strcmp(type, "object") == 0) return json_is_object(value);
  return json_is_array(value);
}

static bool has_types(const json_t *value, const json_t *type) {
  if (json_is_string(type)) return has_type(value, json_string_value(type));
  for (size_t i = 0; i < json_array_size(type); i++)
    if (has_type(value, json_string_value(json_array_get(type, i)))) return true;
  return !type;
}

static size_t count_characters(const char *text) {
  size_t n = 0;
  for (; *text; text++) n += ((uint8_t)*text & 0xc0) != 0x80;
  return n;
}

/* Keywords beside enum that can be checked here and now; others are refused before. */
static bool value_passes(const json_t *value, const json_t *schema) {
  if (!has_types(value, json_object_get(schema, "type"))) return false;
  const json_t *bound;
  if (json_is_number(value)) {
    double x = json_number_value(value);
    if ((bound = json_object_get(schema, "minimum")) && x < json_number_value(bound)) return false;
    if ((bound = json_object_get(schema, "maximum")) && x > json_number_value(bound)) return false;
    if ((bound = json_object_get(schema, "exclusiveMinimum")) && x <= json_number_value(bound)) return false;
    if ((bound = json_object_get(schema, "exclusiveMaximum")) && x >= json_number_value(bound)) return false;
  }
  if (json_is_string(value)) {
    double n = (double)count_characters(json_string_value(value));
    if ((bound = json_object_get(schema, "minLength")) && n < json_number_value(bound)) return false;
    if ((bound = json_object_get(schema, "maxLength")) && n > json_number_value(bound)) return false;
  }
  return true;
}

enum eaglet_status schema_compile_values(struct schema_compiler *c, const json_t *schema, const json_t *values, const struct expression **out) {
  static const char *const checked[] = {"type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"};
  const char *key;
  json_t *ignored;
  json_object_foreach((json_t *)schema, key, ignored) {
    bool known = schema_is_annotation(key);
    for (size_t i = 0; i < sizeof checked / sizeof *checked; i++) known |= strcmp(key, checked[i]) == 0;
    if (!known) return schema_refuse(c, "keyword \"%s\" beside enum or const is not supported", key);
  }
  struct expression_list list = {0};
  for (size_t i = 0; i < json_array_size(values); i++)
    if (value_passes(json_array_get(values, i), schema)) expression_list_append(&list, literal(c, json_array_get(values, i)));
  *out = expression_choice(c->builder, list.items, list.n);
  free(list.items);
  return EAGLET_OK;
}
