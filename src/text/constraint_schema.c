/* constraint_schema.c - JSON schemas: which keywords there are, references, unions, types; and JSON values with any content.
 *
 * Every subschema that a $ref names becomes a rule, compiled once; the rest is inlined. What a keyword could not be given its
 * meaning is refused by name. Supported keywords and the departures from the standard are listed in docs/CONSTRAINTS.md.
 */
#include "text/constraint_schema_internal.h"

#include "base/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

enum eaglet_status schema_refuse(const struct schema_compiler *c, const char *format, ...) {
  char words[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  FAIL(c->err, EAGLET_E_INPUT, "constraint: schema %.200s: %s", c->path.data, words);
}

size_t schema_enter(struct schema_compiler *c, const char *name) {
  size_t mark = c->path.length;
  buffer_append_char(&c->path, '/');
  buffer_append_string(&c->path, name);
  return mark;
}

void schema_leave(struct schema_compiler *c, size_t mark) {
  c->path.length = mark;
  c->path.data[mark] = '\0';
}

enum eaglet_status schema_get_count(const struct schema_compiler *c, const json_t *schema, const char *key, int32_t fallback, int32_t *count) {
  const json_t *json = json_object_get(schema, key);
  *count = fallback;
  if (!json) return EAGLET_OK;
  double value = json_number_value(json);
  if (!json_is_number(json) || value < 0 || (value < 1e9 && value != (double)(int64_t)value)) return schema_refuse(c, "%s: expected a whole number", key);
  if (value > CONSTRAINT_REPEAT_MAX) return schema_refuse(c, "%s: %.0f is more than %d", key, value, CONSTRAINT_REPEAT_MAX);
  *count = (int32_t)value;
  return EAGLET_OK;
}

/* ---- any content ---- */

const struct expression *schema_any_object(struct schema_compiler *c) {
  struct constraint_builder *b = c->builder;
  const struct expression *parts[] = {schema_any_string(c, 0, -1), c->colon, schema_any_value(c)};
  const struct members members = {.separator = c->comma, .extra = expression_sequence(b, parts, 3), .extra_max = -1};
  return schema_brackets(c, "{}", expression_members(b, &members));
}

static const struct expression *any_array(struct schema_compiler *c) {
  const struct members members = {.separator = c->comma, .extra = schema_any_value(c), .extra_max = -1};
  return schema_brackets(c, "[]", expression_members(c->builder, &members));
}

const struct expression *schema_any_value(struct schema_compiler *c) {
  struct constraint_builder *b = c->builder;
  if (c->value_rule < 0) {
    c->value_rule = builder_add_rule(b, NULL, 1, "a value");
    const struct expression *kinds[] = {schema_any_string(c, 0, -1), schema_any_number(b), expression_text(b, "true"), expression_text(b, "false"),
                                        expression_text(b, "null"), schema_any_object(c), any_array(c)};
    const struct expression *value = expression_choice(b, kinds, sizeof kinds / sizeof *kinds);
    b->rules[c->value_rule].expression = value;
  }
  return expression_rule(b, c->value_rule);
}

/* ---- references ---- */

/* One step of a JSON pointer in a URI fragment; %XX, ~0 and ~1 are undone. Returns where the next begins, NULL when it is malformed. */
static const char *read_step(const char *at, struct buffer *step) {
  buffer_reset(step);
  buffer_append(step, "", 0);
  for (; *at && *at != '/'; at++) {
    unsigned byte = (uint8_t)*at;
    if (*at == '%') {
      char digits[3] = {at[1], at[1] ? at[2] : '\0', '\0'}, *end;
      byte = (unsigned)strtoul(digits, &end, 16);
      if (end != digits + 2 || byte == 0) return NULL;
      at += 2;
    }
    if (byte == '~') {
      if (at[1] != '0' && at[1] != '1') return NULL;
      byte = *++at == '0' ? '~' : '/';
    }
    buffer_append_char(step, (char)byte);
  }
  return at;
}

static const json_t *follow_step(const json_t *json, const char *step) {
  if (json_is_object(json)) return json_object_get(json, step);
  char *end;
  unsigned long index = strtoul(step, &end, 10);
  return *step >= '0' && *step <= '9' && *end == '\0' ? json_array_get(json, index) : NULL;
}

enum eaglet_status schema_resolve(const struct schema_compiler *c, const char *reference, const json_t **target) {
  if (*reference != '#' || (reference[1] && reference[1] != '/'))
    return schema_refuse(c, "$ref \"%s\": only references into the schema itself (#, #/...) are supported", reference);
  const json_t *json = c->root;
  struct buffer step;
  buffer_init(&step);
  const char *at = reference + 1;
  while (json && at && *at) {
    at = read_step(at + 1, &step);
    json = at ? follow_step(json, step.data ? step.data : "") : NULL;
  }
  buffer_clear(&step);
  if (!json || !at) return schema_refuse(c, "$ref \"%s\" leads nowhere", reference);
  *target = json;
  return EAGLET_OK;
}

static enum eaglet_status compile_reference(struct schema_compiler *c, const json_t *reference, const struct expression **out) {
  const json_t *target;
  if (!json_is_string(reference)) return schema_refuse(c, "$ref: expected a string");
  TRY(schema_resolve(c, json_string_value(reference), &target));
  size_t i = 0;
  while (i < c->n_references && c->references[i].target != target) i++;
  if (i == c->n_references) {
    MEMORY_GROW(c->references, c->references_capacity, i + 1);
    c->references[i] = (struct schema_reference){target, builder_add_rule(c->builder, NULL, 1, json_string_value(reference))};
    c->n_references++;
  }
  *out = expression_rule(c->builder, c->references[i].rule);
  return EAGLET_OK;
}

/* ---- unions and intersections ---- */

static enum eaglet_status compile_all(struct schema_compiler *c, const json_t *schema, const struct expression **out) {
  const json_t *parts = json_object_get(schema, "allOf"), *merged;
  if (!json_is_array(parts)) return schema_refuse(c, "allOf: expected a list of schemas");
  if (json_array_size(parts) == 1 && !schema_has_constraints(schema, "allOf"))
    return schema_compile_at(c, "allOf", json_array_get(parts, 0), out);
  merged = schema_without(c, schema, "allOf");
  size_t mark = schema_enter(c, "allOf");
  for (size_t i = 0; i < json_array_size(parts); i++) TRY(schema_merge(c, merged, json_array_get(parts, i), &merged));
  schema_leave(c, mark);
  return schema_compile(c, merged, out);
}

static enum eaglet_status compile_branches(struct schema_compiler *c, const json_t *schema, const char *keyword, struct expression_list *list) {
  const json_t *branches = json_object_get(schema, keyword);
  bool alone = !schema_has_constraints(schema, keyword);
  const json_t *base = alone ? NULL : schema_without(c, schema, keyword);
  size_t mark = schema_enter(c, keyword);
  for (size_t i = 0; i < json_array_size(branches); i++) {
    const json_t *branch = json_array_get(branches, i);
    const struct expression *one;
    if (!alone) TRY(schema_merge(c, base, branch, &branch));
    TRY(schema_compile(c, branch, &one));
    expression_list_append(list, one);
  }
  schema_leave(c, mark);
  return EAGLET_OK;
}

static enum eaglet_status compile_union(struct schema_compiler *c, const json_t *schema, const char *keyword, const struct expression **out) {
  const json_t *branches = json_object_get(schema, keyword);
  if (!json_is_array(branches) || json_array_size(branches) == 0) return schema_refuse(c, "%s: expected a list of schemas", keyword);
  struct expression_list list = {0};
  enum eaglet_status status = compile_branches(c, schema, keyword, &list);
  if (status == EAGLET_OK) *out = expression_choice(c->builder, list.items, list.n);
  free(list.items);
  return status;
}

/* ---- types ---- */

enum type { TYPE_STRING, TYPE_INTEGER, TYPE_NUMBER, TYPE_BOOLEAN, TYPE_NULL, TYPE_OBJECT, TYPE_ARRAY, TYPE_COUNT, TYPE_NONE = TYPE_COUNT };
static const char *const type_names[TYPE_COUNT] = {"string", "integer", "number", "boolean", "null", "object", "array"};

/* Every keyword that has a meaning here, and the type of values that it speaks of. */
static const struct {
  const char *name;
  enum type type;
} keywords[] = {
    {"$ref", TYPE_NONE}, {"allOf", TYPE_NONE}, {"anyOf", TYPE_NONE}, {"oneOf", TYPE_NONE}, {"enum", TYPE_NONE}, {"const", TYPE_NONE}, {"type", TYPE_NONE},
    {"properties", TYPE_OBJECT}, {"required", TYPE_OBJECT}, {"additionalProperties", TYPE_OBJECT}, {"minProperties", TYPE_OBJECT},
    {"maxProperties", TYPE_OBJECT}, {"unevaluatedProperties", TYPE_OBJECT}, {"items", TYPE_ARRAY}, {"prefixItems", TYPE_ARRAY},
    {"additionalItems", TYPE_ARRAY}, {"minItems", TYPE_ARRAY}, {"maxItems", TYPE_ARRAY}, {"minLength", TYPE_STRING}, {"maxLength", TYPE_STRING},
    {"pattern", TYPE_STRING}, {"format", TYPE_STRING}, {"minimum", TYPE_NUMBER}, {"maximum", TYPE_NUMBER}, {"exclusiveMinimum", TYPE_NUMBER},
    {"exclusiveMaximum", TYPE_NUMBER}, {"multipleOf", TYPE_NUMBER},
};

static bool find_keyword(const char *name, enum type *type) {
  for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
    if (strcmp(keywords[i].name, name) != 0) continue;
    *type = keywords[i].type;
    return true;
  }
  return false;
}

/* Refuses what has no meaning here. *spoken_of: the types that keywords speak of, a bit each. */
static enum eaglet_status check_keywords(const struct schema_compiler *c, const json_t *schema, unsigned *spoken_of) {
  const char *key;
  json_t *value;
  *spoken_of = 0;
  json_object_foreach((json_t *)schema, key, value) {
    enum type type;
    if (schema_is_annotation(key)) continue;
    if (strcmp(key, "$id") == 0 && schema == c->root) continue;
    if (strcmp(key, "uniqueItems") == 0 && json_is_false(value)) continue;
    if (!find_keyword(key, &type)) return schema_refuse(c, "keyword \"%s\" is not supported", key);
    if (type != TYPE_NONE) *spoken_of |= 1u << type;
  }
  return EAGLET_OK;
}

static enum eaglet_status add_type(const struct schema_compiler *c, const json_t *name, unsigned *types) {
  for (unsigned i = 0; json_is_string(name) && i < TYPE_COUNT; i++)
    if (strcmp(type_names[i], json_string_value(name)) == 0) {
      *types |= 1u << i;
      return EAGLET_OK;
    }
  if (!json_is_string(name)) return schema_refuse(c, "type: expected a name or a list of names");
  return schema_refuse(c, "type \"%s\" does not exist", json_string_value(name));
}

static enum eaglet_status read_types(const struct schema_compiler *c, const json_t *type, unsigned *types) {
  *types = 0;
  if (!json_is_array(type)) return add_type(c, type, types);
  for (size_t i = 0; i < json_array_size(type); i++) TRY(add_type(c, json_array_get(type, i), types));
  if (*types & 1u << TYPE_NUMBER) *types &= ~(1u << TYPE_INTEGER);
  return EAGLET_OK;
}

static enum eaglet_status compile_type(struct schema_compiler *c, const json_t *schema, enum type type, const struct expression **out) {
  struct constraint_builder *b = c->builder;
  switch (type) {
  case TYPE_STRING: return schema_compile_string(c, schema, out);
  case TYPE_INTEGER: return schema_compile_integer(c, schema, out);
  case TYPE_NUMBER: return schema_compile_number(c, schema, out);
  case TYPE_BOOLEAN: *out = expression_either(b, expression_text(b, "true"), expression_text(b, "false")); return EAGLET_OK;
  case TYPE_NULL: *out = expression_text(b, "null"); return EAGLET_OK;
  case TYPE_OBJECT: return schema_compile_object(c, schema, out);
  case TYPE_ARRAY: return schema_compile_array(c, schema, out);
  case TYPE_COUNT: break;
  }
  return schema_refuse(c, "type: expected one");
}

static enum eaglet_status compile_types(struct schema_compiler *c, const json_t *schema, unsigned spoken_of, const struct expression **out) {
  const json_t *type = json_object_get(schema, "type");
  unsigned types = spoken_of;
  if (type) TRY(read_types(c, type, &types));
  if (!type && !spoken_of) {
    *out = schema_any_value(c);
    return EAGLET_OK;
  }
  *out = expression_never(c->builder);
  for (unsigned i = 0; i < TYPE_COUNT; i++) {
    const struct expression *one;
    if (!(types & 1u << i)) continue;
    TRY(compile_type(c, schema, (enum type)i, &one));
    *out = expression_either(c->builder, *out, one);
  }
  return EAGLET_OK;
}

/* ---- one schema ---- */

static enum eaglet_status compile_values(struct schema_compiler *c, const json_t *schema, const struct expression **out) {
  const json_t *values = json_object_get(schema, "enum"), *value = json_object_get(schema, "const");
  unsigned types;
  if (values && !json_is_array(values)) return schema_refuse(c, "enum: expected a list of values");
  if (json_object_get(schema, "type")) TRY(read_types(c, json_object_get(schema, "type"), &types));
  if (!value) return schema_compile_values(c, schema, values, out);
  json_t *one = json_array();
  bool listed = !values;
  for (size_t i = 0; i < json_array_size(values); i++) listed |= json_equal(json_array_get(values, i), value);
  if (listed) json_array_append(one, (json_t *)value);
  enum eaglet_status status = schema_compile_values(c, schema, one, out);
  json_decref(one);
  return status;
}

static enum eaglet_status compile_keywords(struct schema_compiler *c, const json_t *schema, const struct expression **out) {
  unsigned spoken_of;
  TRY(check_keywords(c, schema, &spoken_of));
  const json_t *reference = json_object_get(schema, "$ref");
  if (reference && !schema_has_constraints(schema, "$ref")) return compile_reference(c, reference, out);
  if (reference) {
    const json_t *merged;
    json_t *everything = json_object();
    json_array_append_new(c->made, everything);
    TRY(schema_merge(c, schema, everything, &merged));
    return schema_compile(c, merged, out);
  }
  if (json_object_get(schema, "allOf")) return compile_all(c, schema, out);
  if (json_object_get(schema, "anyOf")) return compile_union(c, schema, "anyOf", out);
  if (json_object_get(schema, "oneOf")) return compile_union(c, schema, "oneOf", out);
  if (json_object_get(schema, "enum") || json_object_get(schema, "const")) return compile_values(c, schema, out);
  return compile_types(c, schema, spoken_of, out);
}

enum eaglet_status schema_compile(struct schema_compiler *c, const json_t *schema, const struct expression **out) {
  if (++c->n_schemas > CONSTRAINT_SCHEMAS_MAX) return schema_refuse(c, "too large: more than %d subschemas", CONSTRAINT_SCHEMAS_MAX);
  if (c->builder->exceeded) return schema_refuse(c, "too large: %s", c->builder->exceeded);
  if (json_is_true(schema)) {
    *out = schema_any_value(c);
    return EAGLET_OK;
  }
  if (json_is_false(schema)) {
    *out = expression_never(c->builder);
    return EAGLET_OK;
  }
  if (!json_is_object(schema)) return schema_refuse(c, "expected a schema: an object, true or false");
  if (c->depth >= CONSTRAINT_DEPTH_MAX) return schema_refuse(c, "subschemas nest more than %d deep", CONSTRAINT_DEPTH_MAX);
  c->depth++;
  enum eaglet_status status = compile_keywords(c, schema, out);
  c->depth--;
  return status;
}

enum eaglet_status schema_compile_at(struct schema_compiler *c, const char *name, const json_t *schema, const struct expression **out) {
  size_t mark = schema_enter(c, name);
  enum eaglet_status status = schema_compile(c, schema, out);
  schema_leave(c, mark);
  return status;
}

/* ---- sources ---- */

static enum eaglet_status begin(struct schema_compiler *c, struct constraint_builder *builder, const struct constraint_params *params) {
  builder_init(builder);
  buffer_init(&c->path);
  buffer_append_char(&c->path, '#');
  c->builder = builder;
  c->value_rule = c->character_rule = -1;
  c->made = json_array();
  int n = params ? params->whitespace_max : 0;
  if (n < 0 || n > SCHEMA_WHITESPACE_MAX) FAIL(c->err, EAGLET_E_USAGE, "constraint: whitespace_max is %d, expected 0 to %d", n, SCHEMA_WHITESPACE_MAX);
  if (params && (params->nesting_max < 0 || params->nesting_max > SCHEMA_NESTING_MAX))
    FAIL(c->err, EAGLET_E_USAGE, "constraint: nesting_max is %d, expected 0 to %d", params->nesting_max, SCHEMA_NESTING_MAX);
  static const struct char_range white[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
  const struct expression *any = n ? expression_repeat(builder, expression_set(builder, white, 3, false), 0, n) : NULL;
  const struct expression *after = n ? any : expression_repeat(builder, expression_text(builder, " "), 0, 1);
  c->inner = n ? any : expression_bytes(builder, "", 0);
  c->comma = expression_pair(builder, expression_text(builder, ","), after);
  c->colon = expression_pair(builder, expression_text(builder, ":"), after);
  if (n) c->comma = expression_pair(builder, any, c->comma), c->colon = expression_pair(builder, any, c->colon);
  return EAGLET_OK;
}

static void end(struct schema_compiler *c) {
  buffer_clear(&c->path);
  json_decref(c->made);
  free(c->references);
}

static uint32_t nesting_of(const struct constraint_params *params) {
  return params && params->nesting_max ? (uint32_t)params->nesting_max : CONSTRAINT_NESTING_MAX;
}

/* The root is the first reference; compiling one finds more. */
static enum eaglet_status compile_references(struct schema_compiler *c, const json_t *schema) {
  MEMORY_GROW(c->references, c->references_capacity, 1);
  c->references[c->n_references++] = (struct schema_reference){schema, builder_add_rule(c->builder, NULL, 1, "#")};
  for (size_t i = 0; i < c->n_references; i++) {
    struct schema_reference reference = c->references[i];
    const struct expression *expression;
    buffer_reset(&c->path);
    buffer_append_string(&c->path, c->builder->rules[reference.rule].name);
    TRY(schema_compile(c, reference.target, &expression));
    c->builder->rules[reference.rule].expression = expression;
  }
  return EAGLET_OK;
}

enum eaglet_status constraint_compile_schema(struct constraint **constraint, const json_t *schema, const struct constraint_params *params,
                                             struct eaglet_error *err) {
  *constraint = NULL;
  struct constraint_builder builder;
  struct schema_compiler c = {.root = schema, .err = err};
  enum eaglet_status status = begin(&c, &builder, params);
  if (status == EAGLET_OK) status = compile_references(&c, schema);
  end(&c);
  if (status == EAGLET_OK) return constraint_finish(constraint, &builder, nesting_of(params), err);
  builder_release(&builder);
  return status;
}

enum eaglet_status constraint_compile_json_object(struct constraint **constraint, const struct constraint_params *params,
                                                  struct eaglet_error *err) {
  *constraint = NULL;
  struct constraint_builder builder;
  struct schema_compiler c = {.root = json_true(), .err = err};
  enum eaglet_status status = begin(&c, &builder, params);
  if (status == EAGLET_OK) {
    builder_add_rule(&builder, NULL, 0, NULL);
    const struct expression *object = schema_any_object(&c);
    builder.rules[0].expression = object;
  }
  end(&c);
  if (status == EAGLET_OK) return constraint_finish(constraint, &builder, nesting_of(params), err);
  builder_release(&builder);
  return status;
}
