/* constraint_schema_container.c - objects and arrays. Properties come in the schema's order; the optional ones may be missing.
 * Additional properties, where they are allowed, follow the named ones and cannot repeat a name of theirs.
 */
#include "text/constraint_schema_internal.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

const struct expression *schema_brackets(struct schema_compiler *c, const char *brackets, const struct expression *content) {
  struct constraint_builder *b = c->builder;
  const struct expression *parts[] = {expression_bytes(b, brackets, 1), c->inner, content, c->inner, expression_bytes(b, brackets + 1, 1)};
  return expression_sequence(b, parts, 5);
}

/* ---- names of additional properties ---- */

static int compare_names(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Texts that are none of the names (sorted; all begin with the same `at` bytes, which have been read). */
static const struct expression *other_names(struct constraint_builder *b, const char *const *names, size_t n, size_t at) {
  const struct expression *any = expression_set(b, NULL, 0, true), *rest = expression_repeat(b, any, 0, -1);
  struct expression_list list = {0};
  struct char_range *taken = memory_alloc((n + 1) * sizeof *taken);
  size_t n_taken = 0, i = 0;
  while (i < n && names[i][at] == '\0') i++; /* this name ends here: the text must not */
  if (i == 0) expression_list_append(&list, expression_bytes(b, "", 0));
  while (i < n) {
    uint32_t character;
    size_t length = (size_t)utf8_decode(names[i] + at, strlen(names[i] + at), &character), end = i + 1;
    while (end < n && strncmp(names[end] + at, names[i] + at, length) == 0) end++;
    taken[n_taken++] = (struct char_range){character, character};
    expression_list_append(&list, expression_pair(b, expression_range(b, character, character), other_names(b, names + i, end - i, at + length)));
    i = end;
  }
  expression_list_append(&list, expression_pair(b, expression_set(b, taken, n_taken, true), rest));
  const struct expression *out = expression_choice(b, list.items, list.n);
  free(taken);
  free(list.items);
  return out;
}

static enum eaglet_status additional_name(struct schema_compiler *c, const json_t *properties, const json_t *required, const struct expression **out) {
  size_t n = 0, n_names = json_object_size(properties) + json_array_size(required);
  if (n_names == 0) {
    *out = schema_any_string(c, 0, -1);
    return EAGLET_OK;
  }
  const char **names = memory_alloc(n_names * sizeof *names), *key;
  json_t *ignored;
  json_object_foreach((json_t *)properties, key, ignored) names[n++] = key;
  for (size_t i = 0; i < json_array_size(required); i++) names[n++] = json_string_value(json_array_get(required, i));
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < n && status == EAGLET_OK; i++)
    if (strlen(names[i]) > SCHEMA_NAME_MAX)
      status = schema_refuse(c, "a property's name of more than %d bytes beside additional properties", SCHEMA_NAME_MAX);
  if (status == EAGLET_OK) {
    qsort(names, n, sizeof *names, compare_names);
    *out = expression_string(c->builder, other_names(c->builder, names, n, 0), 0, -1);
  }
  free(names);
  return status;
}

/* ---- objects ---- */

struct object { /* while collecting */
  const json_t *properties, *required, *additional; /* additional NULL: none may come */
  const json_t *undeclared; /* schema of what is required but not among the properties */
  struct expression_list items;
  struct buffer flags; /* a byte for each item: required */
  size_t n_required;
};

static bool is_listed(const json_t *required, const char *name) {
  for (size_t i = 0; i < json_array_size(required); i++)
    if (strcmp(json_string_value(json_array_get(required, i)), name) == 0) return true;
  return false;
}

static const struct expression *member(struct schema_compiler *c, const struct expression *name, const struct expression *value) {
  const struct expression *parts[] = {name, c->colon, value};
  return expression_sequence(c->builder, parts, 3);
}

static enum eaglet_status add_property(struct schema_compiler *c, struct object *object, const char *name, const json_t *schema, bool required) {
  const struct expression *value;
  TRY(schema_compile_at(c, name, schema, &value));
  if (expression_is_never(value) && !required) return EAGLET_OK;
  expression_list_append(&object->items, member(c, schema_literal_string(c, name), value));
  buffer_append_char(&object->flags, required);
  object->n_required += required;
  return EAGLET_OK;
}

static enum eaglet_status add_properties(struct schema_compiler *c, struct object *object) {
  const char *name;
  json_t *schema;
  size_t mark = schema_enter(c, "properties");
  json_object_foreach((json_t *)object->properties, name, schema)
    TRY(add_property(c, object, name, schema, is_listed(object->required, name)));
  schema_leave(c, mark);
  for (size_t i = 0; i < json_array_size(object->required); i++) {
    name = json_string_value(json_array_get(object->required, i));
    bool again = false;
    for (size_t k = 0; k < i; k++) again |= strcmp(name, json_string_value(json_array_get(object->required, k))) == 0;
    if (again || json_object_get(object->properties, name)) continue;
    TRY(add_property(c, object, name, object->undeclared, true));
  }
  return EAGLET_OK;
}

static enum eaglet_status check_object(const struct schema_compiler *c, const json_t *schema, struct object *object) {
  object->properties = json_object_get(schema, "properties");
  object->required = json_object_get(schema, "required");
  object->additional = json_object_get(schema, "additionalProperties");
  if (object->properties && !json_is_object(object->properties)) return schema_refuse(c, "properties: expected an object");
  if (object->required && !json_is_array(object->required)) return schema_refuse(c, "required: expected a list of names");
  if (json_object_size(object->properties) > SCHEMA_LIST_MAX || json_array_size(object->required) > SCHEMA_LIST_MAX)
    return schema_refuse(c, "too large: more than %d properties or required names", SCHEMA_LIST_MAX);
  for (size_t i = 0; i < json_array_size(object->required); i++)
    if (!json_is_string(json_array_get(object->required, i))) return schema_refuse(c, "required: expected a list of names");
  object->undeclared = object->additional ? object->additional : json_true();
  if (!object->additional && !object->properties) object->additional = json_true();
  if (json_is_false(object->additional)) object->additional = NULL;
  const json_t *unevaluated = json_object_get(schema, "unevaluatedProperties");
  if (unevaluated && !(json_is_false(unevaluated) && !object->additional))
    return schema_refuse(c, "keyword \"unevaluatedProperties\" is supported only as false beside properties");
  return EAGLET_OK;
}

/* How many additional members there may be; counts of members with optional ones among them are not followed. */
static enum eaglet_status count_extra(const struct schema_compiler *c, const json_t *schema, const struct object *object, struct members *members, bool *possible) {
  int32_t min, max, n_required = (int32_t)object->n_required, n = (int32_t)object->items.n;
  TRY(schema_get_count(c, schema, "minProperties", 0, &min));
  TRY(schema_get_count(c, schema, "maxProperties", -1, &max));
  bool counts_matter = min > n_required || (max >= 0 && (members->extra || max < n));
  if (counts_matter && n > n_required) return schema_refuse(c, "minProperties and maxProperties beside optional properties are not supported");
  members->extra_min = min > n_required ? min - n_required : 0;
  members->extra_max = max < 0 ? -1 : max - n_required;
  *possible = (max < 0 || (max >= n_required && max >= min)) && (members->extra || min <= n);
  return EAGLET_OK;
}

static enum eaglet_status build_object(struct schema_compiler *c, const json_t *schema, struct object *object, const struct expression **out) {
  TRY(check_object(c, schema, object));
  TRY(add_properties(c, object));
  struct members members = {.items = object->items.items, .required = object->flags.data, .n = object->items.n, .separator = c->comma};
  if (object->additional) {
    const struct expression *name, *value;
    TRY(additional_name(c, object->properties, object->required, &name));
    TRY(schema_compile_at(c, "additionalProperties", object->additional, &value));
    if (!expression_is_never(value)) members.extra = member(c, name, value);
  }
  bool possible = false;
  TRY(count_extra(c, schema, object, &members, &possible));
  for (size_t i = 0; i < members.n; i++)
    if (expression_is_never(members.items[i])) possible = false; /* a required one, see add_property */
  *out = possible ? schema_brackets(c, "{}", expression_members(c->builder, &members)) : expression_never(c->builder);
  return EAGLET_OK;
}

enum eaglet_status schema_compile_object(struct schema_compiler *c, const json_t *schema, const struct expression **out) {
  struct object object = {0};
  buffer_init(&object.flags);
  enum eaglet_status status = build_object(c, schema, &object, out);
  free(object.items.items);
  buffer_clear(&object.flags);
  return status;
}

/* ---- arrays ---- */

struct array {
  const json_t *prefix, *rest; /* rest: of the items after the prefix */
  int32_t min, max;
};

static enum eaglet_status check_array(const struct schema_compiler *c, const json_t *schema, struct array *array) {
  const json_t *items = json_object_get(schema, "items");
  array->prefix = json_object_get(schema, "prefixItems");
  array->rest = items;
  if (json_is_array(items)) { /* as before 2020-12 */
    if (array->prefix) return schema_refuse(c, "items: a list beside prefixItems");
    array->prefix = items;
    array->rest = json_object_get(schema, "additionalItems");
  }
  if (!array->rest) array->rest = json_true();
  if (array->prefix && !json_is_array(array->prefix)) return schema_refuse(c, "prefixItems: expected a list of schemas");
  if (json_array_size(array->prefix) > SCHEMA_PREFIX_MAX) return schema_refuse(c, "prefixItems: more than %d", SCHEMA_PREFIX_MAX);
  TRY(schema_get_count(c, schema, "minItems", 0, &array->min));
  return schema_get_count(c, schema, "maxItems", -1, &array->max);
}

/* The items from `i` on, when i items stand before it; an item after the first has a comma. */
static const struct expression *items_from(struct schema_compiler *c, const struct array *array, const struct expression_list *prefix,
                                           const struct expression *rest) {
  struct constraint_builder *b = c->builder;
  const struct expression *empty = expression_bytes(b, "", 0), *follow;
  int32_t n = (int32_t)prefix->n, least = array->min > n ? array->min - n : 0, most = array->max < 0 ? -1 : array->max - n;
  if (n == 0) {
    const struct members members = {.separator = c->comma, .extra = expression_is_never(rest) ? NULL : rest, .extra_min = least, .extra_max = most};
    if (!members.extra && least > 0) return expression_never(b);
    return expression_members(b, &members);
  }
  follow = most == 0 || (most < 0 && array->max >= 0) ? empty : expression_repeat(b, expression_pair(b, c->comma, rest), least, most);
  for (int32_t i = n - 1; i >= 0; i--) {
    if (array->max >= 0 && i >= array->max) {
      follow = empty;
      continue;
    }
    const struct expression *parts[] = {i ? c->comma : empty, prefix->items[i], follow};
    follow = expression_sequence(b, parts, 3);
    if (i >= array->min) follow = expression_either(b, follow, empty);
  }
  return follow;
}

static enum eaglet_status compile_items(struct schema_compiler *c, const struct array *array, struct expression_list *prefix,
                                        const struct expression **rest) {
  for (size_t i = 0; i < json_array_size(array->prefix); i++) {
    const struct expression *item;
    TRY(schema_compile_at(c, "prefixItems", json_array_get(array->prefix, i), &item));
    expression_list_append(prefix, item);
  }
  return schema_compile_at(c, "items", array->rest, rest);
}

enum eaglet_status schema_compile_array(struct schema_compiler *c, const json_t *schema, const struct expression **out) {
  struct array array = {0};
  struct expression_list prefix = {0};
  const struct expression *rest;
  TRY(check_array(c, schema, &array));
  enum eaglet_status status = compile_items(c, &array, &prefix, &rest);
  if (status == EAGLET_OK) {
    bool possible = array.max < 0 || array.min <= array.max;
    const struct expression *content = possible ? items_from(c, &array, &prefix, rest) : expression_never(c->builder);
    *out = expression_is_never(content) ? content : schema_brackets(c, "[]", content);
  }
  free(prefix.items);
  return status;
}
