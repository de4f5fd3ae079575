/* constraint_schema_merge.c - the intersection of two schemas, as a schema: for allOf, for $ref and unions with keywords beside them.
 *
 * Only intersections that one schema can say are made; others are refused by name. Properties and items of both sides become an
 * allOf, which is merged in its turn when it is reached. Merged schemas belong to the compiler's array.
 */
#include "text/constraint_schema_internal.h"

#include <string.h>

bool schema_is_annotation(const char *keyword) {
  static const char *const annotations[] = {"title", "description", "default", "examples", "example", "$schema", "$comment", "$defs",
                                            "definitions", "deprecated", "readOnly", "writeOnly", "$anchor", "contentMediaType",
                                            "contentEncoding", "contentSchema"};
  for (size_t i = 0; i < sizeof annotations / sizeof *annotations; i++)
    if (strcmp(keyword, annotations[i]) == 0) return true;
  return strncmp(keyword, "x-", 2) == 0;
}

bool schema_has_constraints(const json_t *schema, const char *except) {
  const char *key;
  json_t *ignored;
  json_object_foreach((json_t *)schema, key, ignored)
    if (!schema_is_annotation(key) && strcmp(key, "$id") != 0 && !(except && strcmp(key, except) == 0)) return true;
  return false;
}

static json_t *own(struct schema_compiler *c, json_t *made) {
  json_array_append_new(c->made, made);
  return made;
}

const json_t *schema_without(struct schema_compiler *c, const json_t *schema, const char *keyword) {
  json_t *copy = own(c, json_copy((json_t *)schema));
  json_object_del(copy, keyword);
  return copy;
}

/* ---- keywords ---- */

static json_t *both(const json_t *a, const json_t *b) {
  if (json_equal(a, b)) return json_incref((json_t *)a);
  json_t *parts = json_array();
  json_array_append(parts, (json_t *)a);
  json_array_append(parts, (json_t *)b);
  json_t *schema = json_object();
  json_object_set_new(schema, "allOf", parts);
  return schema;
}

static bool lists(const json_t *array, const json_t *value) {
  for (size_t i = 0; i < json_array_size(array); i++)
    if (json_equal(json_array_get(array, i), value)) return true;
  return false;
}

static json_t *as_array(const json_t *value) {
  if (json_is_array(value)) return json_incref((json_t *)value);
  json_t *array = json_array();
  json_array_append(array, (json_t *)value);
  return array;
}

/* An integer is a number. */
static bool type_fits(const json_t *types, const json_t *type) {
  if (lists(types, type)) return true;
  const char *name = json_string_value(type);
  if (!name || strcmp(name, "integer") != 0) return false;
  json_t *number = json_string("number");
  bool fits = lists(types, number);
  json_decref(number);
  return fits;
}

static json_t *common_types(const json_t *a, const json_t *b) {
  json_t *x = as_array(a), *y = as_array(b), *common = json_array();
  for (size_t i = 0; i < json_array_size(x); i++)
    if (type_fits(y, json_array_get(x, i))) json_array_append(common, json_array_get(x, i));
  for (size_t i = 0; i < json_array_size(y); i++)
    if (!lists(common, json_array_get(y, i)) && type_fits(x, json_array_get(y, i))) json_array_append(common, json_array_get(y, i));
  json_decref(x);
  json_decref(y);
  return common;
}

static json_t *common_values(const json_t *a, const json_t *b) {
  json_t *common = json_array();
  for (size_t i = 0; i < json_array_size(a); i++)
    if (lists(b, json_array_get(a, i))) json_array_append(common, json_array_get(a, i));
  return common;
}

static json_t *union_of(const json_t *a, const json_t *b) {
  json_t *all = json_copy((json_t *)a);
  for (size_t i = 0; i < json_array_size(b); i++)
    if (!lists(all, json_array_get(b, i))) json_array_append(all, json_array_get(b, i));
  return all;
}

static json_t *concatenated(const json_t *a, const json_t *b) {
  json_t *all = json_copy((json_t *)a);
  json_array_extend(all, (json_t *)b);
  return all;
}

static json_t *stronger(const json_t *a, const json_t *b, bool upper) {
  bool first = upper ? json_number_value(a) <= json_number_value(b) : json_number_value(a) >= json_number_value(b);
  return json_incref((json_t *)(first ? a : b));
}

static json_t *pairwise(const json_t *a, const json_t *b) {
  json_t *all = json_array();
  for (size_t i = 0; i < json_array_size(a); i++) json_array_append_new(all, both(json_array_get(a, i), json_array_get(b, i)));
  return all;
}

enum how { UNKNOWN, TYPES, VALUES, UNION, CONCATENATION, LOWER, UPPER, SCHEMAS };

static enum how how_to_merge(const char *key) {
  static const struct { const char *key; enum how how; } table[] = {
      {"type", TYPES}, {"enum", VALUES}, {"required", UNION}, {"allOf", CONCATENATION}, {"minimum", LOWER}, {"exclusiveMinimum", LOWER},
      {"minLength", LOWER}, {"minItems", LOWER}, {"minProperties", LOWER}, {"maximum", UPPER}, {"exclusiveMaximum", UPPER},
      {"maxLength", UPPER}, {"maxItems", UPPER}, {"maxProperties", UPPER}, {"items", SCHEMAS}, {"additionalProperties", SCHEMAS},
      {"additionalItems", SCHEMAS}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(table[i].key, key) == 0) return table[i].how;
  return UNKNOWN;
}

/* Both sides have the keyword, with different values. NULL: no schema says both. */
static json_t *merge_values(const char *key, const json_t *a, const json_t *b) {
  bool arrays = json_is_array(a) && json_is_array(b), numbers = json_is_number(a) && json_is_number(b);
  switch (how_to_merge(key)) {
  case TYPES: return common_types(a, b);
  case VALUES: return arrays ? common_values(a, b) : NULL;
  case UNION: return arrays ? union_of(a, b) : NULL;
  case CONCATENATION: return arrays ? concatenated(a, b) : NULL;
  case LOWER: return numbers ? stronger(a, b, false) : NULL;
  case UPPER: return numbers ? stronger(a, b, true) : NULL;
  case SCHEMAS: return json_is_array(a) || json_is_array(b) ? NULL : both(a, b);
  case UNKNOWN: break;
  }
  if (strcmp(key, "prefixItems") == 0 && arrays && json_array_size(a) == json_array_size(b)) return pairwise(a, b);
  return NULL;
}

/* ---- properties ---- */

/* A property that only one side names must satisfy the other's additionalProperties, where that is said. */
static void add_properties(json_t *all, const json_t *own_side, const json_t *other_side) {
  const json_t *others = json_object_get(other_side, "properties"), *rule = json_object_get(other_side, "additionalProperties");
  const char *name;
  json_t *schema;
  json_object_foreach(json_object_get(own_side, "properties"), name, schema) {
    const json_t *other = json_object_get(others, name);
    if (json_object_get(all, name)) continue;
    if (!other) other = rule;
    if (other) json_object_set_new(all, name, both(schema, other));
    else json_object_set(all, name, schema);
  }
}

static void merge_properties(json_t *merged, const json_t *a, const json_t *b) {
  if (!json_is_object(json_object_get(a, "properties")) && !json_is_object(json_object_get(b, "properties"))) return;
  json_t *all = json_object();
  add_properties(all, a, b);
  add_properties(all, b, a);
  json_object_set_new(merged, "properties", all);
}

/* ---- the whole ---- */

/* const is an enum of one. */
static const json_t *with_enum(struct schema_compiler *c, const json_t *schema) {
  const json_t *value = json_object_get(schema, "const");
  if (!value) return schema;
  json_t *copy = own(c, json_copy((json_t *)schema)), *values = json_array();
  const json_t *listed = json_object_get(schema, "enum");
  if (!listed || lists(listed, value)) json_array_append(values, (json_t *)value);
  json_object_set_new(copy, "enum", values);
  json_object_del(copy, "const");
  return copy;
}

static enum eaglet_status without_reference(struct schema_compiler *c, const json_t **schema, int n_references) {
  const json_t *reference = json_object_get(*schema, "$ref"), *target;
  if (!reference) return EAGLET_OK;
  if (n_references >= SCHEMA_REFERENCES_MAX) return schema_refuse(c, "$ref leads to itself");
  if (!json_is_string(reference)) return schema_refuse(c, "$ref: expected a string");
  TRY(schema_resolve(c, json_string_value(reference), &target));
  const json_t *rest = schema_without(c, *schema, "$ref");
  if (json_is_object(target) && json_object_get(target, "$ref")) TRY(without_reference(c, &target, n_references + 1));
  return schema_merge(c, target, rest, schema);
}

/* Unions of both sides: one stays anyOf, the other becomes oneOf, which means the same here. */
static enum eaglet_status merge_unions(struct schema_compiler *c, json_t *merged, const json_t *a, const json_t *b) {
  const json_t *unions[4];
  int n = 0;
  for (int i = 0; i < 4; i++) {
    const json_t *side = i < 2 ? a : b, *list = json_object_get(side, i % 2 ? "oneOf" : "anyOf");
    bool again = false;
    for (int k = 0; k < n; k++) again |= list && json_equal(list, unions[k]);
    if (list && !again) unions[n++] = list;
  }
  json_object_del(merged, "anyOf");
  json_object_del(merged, "oneOf");
  if (n > 2) return schema_refuse(c, "more than two unions (anyOf, oneOf) at once are not supported");
  if (n > 0) json_object_set(merged, "anyOf", (json_t *)unions[0]);
  if (n > 1) json_object_set(merged, "oneOf", (json_t *)unions[1]);
  return EAGLET_OK;
}

static enum eaglet_status merge_keywords(struct schema_compiler *c, json_t *merged, const json_t *a, const json_t *b) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)b, key, value) {
    const json_t *other = json_object_get(a, key);
    if (strcmp(key, "properties") == 0 || strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) continue;
    if (!other) {
      json_object_set(merged, key, value);
      continue;
    }
    if (schema_is_annotation(key) || json_equal(other, value)) continue;
    json_t *made = merge_values(key, other, value);
    if (!made) return schema_refuse(c, "keyword \"%s\" with two values that both must hold is not supported", key);
    json_object_set_new(merged, key, made);
  }
  bool mixed = json_object_get(merged, "prefixItems") && json_object_get(merged, "items") &&
               (!json_object_get(a, "prefixItems") != !json_object_get(b, "prefixItems"));
  return mixed ? schema_refuse(c, "prefixItems of one schema and items of another, which both must hold, are not supported") : EAGLET_OK;
}

/* What a merge looks at; lists of values are compared in pairs. */
static size_t work_of(const json_t *a, const json_t *b) {
  static const char *const lists[] = {"enum", "required", "type"};
  size_t work = json_object_size(a) + json_object_size(b) + json_object_size(json_object_get(a, "properties")) +
                json_object_size(json_object_get(b, "properties")) + json_array_size(json_object_get(a, "allOf")) + json_array_size(json_object_get(b, "allOf"));
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    size_t n = json_array_size(json_object_get(a, lists[i])), m = json_array_size(json_object_get(b, lists[i]));
    work += n + m + n * m;
  }
  return work;
}

enum eaglet_status schema_merge(struct schema_compiler *c, const json_t *a, const json_t *b, const json_t **out) {
  if (json_array_size(c->made) > CONSTRAINT_SCHEMAS_MAX) return schema_refuse(c, "too large: more than %d merged schemas", CONSTRAINT_SCHEMAS_MAX);
  c->merge_work += work_of(a, b);
  if (c->merge_work > SCHEMA_WORK_MAX) return schema_refuse(c, "too large: merging schemas takes more than %d steps", SCHEMA_WORK_MAX);
  if (json_is_false(a) || json_is_false(b)) {
    *out = json_false();
    return EAGLET_OK;
  }
  if (json_is_true(a) || json_is_true(b)) {
    *out = json_is_true(a) ? b : a;
    return EAGLET_OK;
  }
  if (!json_is_object(a) || !json_is_object(b)) return schema_refuse(c, "expected a schema: an object, true or false");
  TRY(without_reference(c, &a, 0));
  TRY(without_reference(c, &b, 0));
  if (!json_is_object(a) || !json_is_object(b)) return schema_merge(c, a, b, out);
  if (json_object_get(a, "const") || json_object_get(b, "const")) {
    a = with_enum(c, a);
    b = with_enum(c, b);
  }
  json_t *merged = own(c, json_copy((json_t *)a));
  TRY(merge_keywords(c, merged, a, b));
  merge_properties(merged, a, b);
  TRY(merge_unions(c, merged, a, b));
  *out = merged;
  return EAGLET_OK;
}
