/* constraint_schema_internal.h - one JSON schema being compiled. Private to the constraint_schema files.
 *
 * constraint_schema.c dispatches keywords, references and unions; _merge.c intersects schemas as JSON; _container.c makes objects
 * and arrays, _string.c strings and fixed values, _number.c numbers. Messages name the place as a JSON pointer.
 */
#ifndef EAGLET_TEXT_CONSTRAINT_SCHEMA_INTERNAL_H
#define EAGLET_TEXT_CONSTRAINT_SCHEMA_INTERNAL_H

#include "text/constraint_internal.h"

#define SCHEMA_PREFIX_MAX 256        /* prefixItems */
#define SCHEMA_LIST_MAX 4096         /* properties of an object, required names */
#define SCHEMA_WORK_MAX 2000000      /* keywords, properties and pairs of values looked at while merging */
#define SCHEMA_NAME_MAX 128          /* characters of a property's name beside additional properties */
#define SCHEMA_REFERENCES_MAX 64     /* $ref that leads to $ref while merging */
#define SCHEMA_WHITESPACE_MAX 1000
#define SCHEMA_NESTING_MAX 10000

struct schema_reference {
  const json_t *target;
  int32_t rule;
};

struct schema_compiler {
  struct constraint_builder *builder;
  const json_t *root;
  struct buffer path; /* where in the schema: "#/properties/name" */
  struct schema_reference *references; /* [0] is the root; compiled in order */
  size_t n_references, references_capacity;
  json_t *made; /* array that owns merged schemas */
  size_t n_schemas, merge_work;
  int depth;
  int32_t value_rule, character_rule; /* -1: not made yet */
  const struct expression *inner;     /* whitespace inside of brackets */
  const struct expression *comma, *colon;
  struct eaglet_error *err;
};

/* Fails with the place: "constraint: schema #/properties/a: ...". */
enum eaglet_status schema_refuse(const struct schema_compiler *c, const char *format, ...) PRINTF_LIKE(2, 3);
size_t schema_enter(struct schema_compiler *c, const char *name); /* appends to the place; returns what schema_leave takes */
void schema_leave(struct schema_compiler *c, size_t mark);

/* ---- constraint_schema.c ---- */

enum eaglet_status schema_compile(struct schema_compiler *c, const json_t *schema, const struct expression **out) MUST_USE;
/* Compiles with name appended to the place. */
enum eaglet_status schema_compile_at(struct schema_compiler *c, const char *name, const json_t *schema, const struct expression **out) MUST_USE;
enum eaglet_status schema_resolve(const struct schema_compiler *c, const char *reference, const json_t **target) MUST_USE;
const struct expression *schema_any_value(struct schema_compiler *c);
const struct expression *schema_any_object(struct schema_compiler *c); /* "{...}" with any content */
/* A non-negative whole number; fallback when absent. */
enum eaglet_status schema_get_count(const struct schema_compiler *c, const json_t *schema, const char *key, int32_t fallback, int32_t *count) MUST_USE;

/* ---- constraint_schema_merge.c ---- */

bool schema_is_annotation(const char *keyword);
bool schema_has_constraints(const json_t *schema, const char *except); /* any keyword but annotations and `except` (NULL) */
/* A schema that accepts what both accept; owned by the compiler. */
enum eaglet_status schema_merge(struct schema_compiler *c, const json_t *a, const json_t *b, const json_t **out) MUST_USE;
/* The schema without one keyword; owned by the compiler. */
const json_t *schema_without(struct schema_compiler *c, const json_t *schema, const char *keyword);

/* ---- constraint_schema_container.c ---- */

enum eaglet_status schema_compile_object(struct schema_compiler *c, const json_t *schema, const struct expression **out) MUST_USE;
enum eaglet_status schema_compile_array(struct schema_compiler *c, const json_t *schema, const struct expression **out) MUST_USE;
/* "{" content "}" with the whitespace that is allowed, or any other pair of brackets. */
const struct expression *schema_brackets(struct schema_compiler *c, const char *brackets, const struct expression *content);

/* ---- constraint_schema_string.c ---- */

enum eaglet_status schema_compile_string(struct schema_compiler *c, const json_t *schema, const struct expression **out) MUST_USE;
enum eaglet_status schema_compile_values(struct schema_compiler *c, const json_t *schema, const json_t *values, const struct expression **out) MUST_USE;
const struct expression *schema_any_string(struct schema_compiler *c, int32_t min, int32_t max);
const struct expression *schema_literal_string(struct schema_compiler *c, const char *text); /* quoted and escaped */

/* ---- constraint_schema_number.c ---- */

enum eaglet_status schema_compile_integer(struct schema_compiler *c, const json_t *schema, const struct expression **out) MUST_USE;
enum eaglet_status schema_compile_number(struct schema_compiler *c, const json_t *schema, const struct expression **out) MUST_USE;
const struct expression *schema_any_number(struct constraint_builder *builder);

#endif
