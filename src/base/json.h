/* json.h - strict JSON behind one door (jansson): rejects duplicate keys, trailing garbage, invalid UTF-8, NUL in strings.
 *
 * Values are jansson's json_t, so that callers can build and walk with the library they know; this header adds loading with
 * our errors, typed access that names the path in its message, and dumping. Only src/base/json.c calls json_load*.
 */
#ifndef EAGLET_BASE_JSON_H
#define EAGLET_BASE_JSON_H

#include "base/error.h"
#include <jansson.h>

/* Depth is limited (jansson's 2048). `what` names the text in errors. The caller owns *json (json_decref). */
enum eaglet_status json_parse(json_t **json, const char *text, size_t length, const char *what, struct eaglet_error *err) MUST_USE;
enum eaglet_status json_parse_file(json_t **json, const char *path, struct eaglet_error *err) MUST_USE;
/* Compact when indent is 0; keys keep insertion order; floats print shortest-exact. Caller owns the text. */
struct eaglet_text json_dump(const json_t *json, int indent);

/* Typed fields of an object. Missing or null: the `_or` forms give the default; the plain forms fail with EAGLET_E_INPUT
 * "what: field: expected integer, found string". A present value of a wrong type always fails. */
enum eaglet_status json_get_int(int64_t *value, const json_t *object, const char *key, const char *what, struct eaglet_error *err) MUST_USE;
enum eaglet_status json_get_int_or(int64_t *value, int64_t fallback, const json_t *object, const char *key, const char *what, struct eaglet_error *err) MUST_USE;
enum eaglet_status json_get_double_or(double *value, double fallback, const json_t *object, const char *key, const char *what, struct eaglet_error *err) MUST_USE;
enum eaglet_status json_get_bool_or(bool *value, bool fallback, const json_t *object, const char *key, const char *what, struct eaglet_error *err) MUST_USE;
enum eaglet_status json_get_string_or(const char **value, const char *fallback, const json_t *object, const char *key, const char *what, struct eaglet_error *err) MUST_USE;

/* Appends what "eos_token_id" of a config names, a number or a list of them, to ids [*n]: those below n_vocab that are not there yet, up to
 * n_max in all. A config without it, and other values, say nothing. */
void json_add_eos_ids(int32_t *ids, int32_t *n, int32_t n_max, const json_t *config, int32_t n_vocab);

/* The first key whose value in found is not the one in expected (borrowed from expected), NULL when there is none. *a and *b are then both values as
 * text, "nothing" for an absent one; the caller's to free. Keys that only found has do not count. */
const char *json_first_difference(const json_t *expected, const json_t *found, char **a, char **b);

#endif
