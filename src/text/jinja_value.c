/* jinja_value.c - the memory of programs and renders, and the values in it: strings with origins, lists, dictionaries, the sinks
 * that text is written to. Operations of the language are elsewhere.
 *
 * Invariant of origins: the bytes a span names equal the bytes of the context's string it points to, at origin_begin.
 */
#include "text/jinja_internal.h"

#include "base/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 65536

/* ---- pool ---- */

struct jinja_chunk {
  struct jinja_chunk *next;
  size_t used, capacity;
  _Alignas(16) char data[];
};

void *pool_take(struct jinja_pool *pool, size_t bytes) {
  bytes = (bytes + 15) & ~(size_t)15;
  struct jinja_chunk *chunk = pool->chunk;
  if (!chunk || chunk->capacity - chunk->used < bytes) {
    size_t capacity = bytes > CHUNK_BYTES / 4 ? bytes : CHUNK_BYTES;
    struct jinja_chunk *fresh = memory_alloc(sizeof *fresh + capacity);
    fresh->capacity = capacity;
    if (chunk && capacity == bytes) { /* keep filling the current chunk */
      fresh->next = chunk->next;
      chunk->next = fresh;
    } else {
      fresh->next = chunk;
      pool->chunk = fresh;
    }
    chunk = fresh;
  }
  void *block = chunk->data + chunk->used;
  chunk->used += bytes;
  pool->bytes += bytes;
  return block;
}

char *pool_copy(struct jinja_pool *pool, const char *text, size_t length) {
  char *copy = pool_take(pool, length + 1);
  if (length) memcpy(copy, text, length);
  return copy;
}

void pool_release(struct jinja_pool *pool) {
  while (pool->chunk) {
    struct jinja_chunk *next = pool->chunk->next;
    free(pool->chunk);
    pool->chunk = next;
  }
  pool->bytes = 0;
}

/* ---- failure and budgets ---- */

struct jinja_value jinja_fail(struct jinja_interp *interp, const char *format, ...) {
  struct jinja_value undefined = {.type = JINJA_UNDEFINED, .why = "undefined"};
  if (jinja_failed(interp)) return undefined;
  char message[512];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  interp->status = error_set(interp->err, EAGLET_E_INPUT, "template line %u: %s", interp->line, message);
  return undefined;
}

bool jinja_step(struct jinja_interp *interp, size_t n) {
  interp->steps += n;
  if (interp->steps > interp->limits.steps_max)
    jinja_fail(interp, "gave up after %llu steps", (unsigned long long)interp->limits.steps_max);
  return !jinja_failed(interp);
}

bool jinja_charge(struct jinja_interp *interp, size_t bytes) {
  interp->bytes += bytes;
  if (bytes > interp->limits.output_max || interp->bytes > interp->bytes_max)
    jinja_fail(interp, "more than %zu bytes of text and values", bytes > interp->limits.output_max ? interp->limits.output_max : interp->bytes_max);
  return jinja_step(interp, bytes / 64);
}

/* ---- plain values ---- */

struct jinja_value value_none(void) { return (struct jinja_value){.type = JINJA_NONE}; }
struct jinja_value value_bool(bool boolean) { return (struct jinja_value){.type = JINJA_BOOL, .boolean = boolean}; }
struct jinja_value value_int(int64_t integer) { return (struct jinja_value){.type = JINJA_INT, .integer = integer}; }
struct jinja_value value_float(double number) { return (struct jinja_value){.type = JINJA_FLOAT, .number = number}; }

struct jinja_value value_undefined(struct jinja_interp *interp, const char *format, ...) {
  char message[256];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  jinja_charge(interp, strlen(message) + 1);
  return (struct jinja_value){.type = JINJA_UNDEFINED, .why = pool_copy(&interp->pool, message, strlen(message))};
}

/* ---- strings ---- */

static struct jinja_value new_string(struct jinja_interp *interp, const char *data, size_t length,
                                     const struct jinja_origin *origins, size_t n_origins) {
  struct jinja_string *string = pool_take(&interp->pool, sizeof *string);
  *string = (struct jinja_string){
      .data = data, .length = length, .n_codepoints = SIZE_MAX, .origins = origins, .n_origins = n_origins};
  return (struct jinja_value){.type = JINJA_STRING, .string = string};
}

struct jinja_value value_text(struct jinja_interp *interp, const char *text, size_t length) {
  if (!jinja_charge(interp, length + 64)) length = 0;
  return new_string(interp, pool_copy(&interp->pool, text, length), length, NULL, 0);
}

struct jinja_value value_literal(struct jinja_interp *interp, const char *text) {
  return value_text(interp, text, strlen(text));
}

/* Clips the origins of string to [begin, end) and shifts them by -begin; writes at most n_origins spans to clipped. */
static size_t clip_origins(const struct jinja_string *string, size_t begin, size_t end, struct jinja_origin *clipped) {
  size_t n = 0;
  for (size_t i = 0; i < string->n_origins; i++) {
    struct jinja_origin span = string->origins[i];
    if (span.end <= begin || span.begin >= end) continue;
    size_t cut = span.begin < begin ? begin - span.begin : 0;
    span.begin += cut;
    span.origin_begin += cut;
    if (span.end > end) span.end = end;
    span.begin -= begin;
    span.end -= begin;
    clipped[n++] = span;
  }
  return n;
}

struct jinja_value value_part(struct jinja_interp *interp, const struct jinja_string *string, size_t begin, size_t end) {
  if (end <= begin || !jinja_charge(interp, end - begin + string->n_origins * sizeof *string->origins + 64))
    return new_string(interp, "", 0, NULL, 0);
  struct jinja_origin *origins = NULL;
  size_t n = 0;
  if (string->n_origins) {
    origins = pool_take(&interp->pool, string->n_origins * sizeof *origins);
    n = clip_origins(string, begin, end, origins);
  }
  return new_string(interp, pool_copy(&interp->pool, string->data + begin, end - begin), end - begin, origins, n);
}

/* ---- sinks ---- */

void sink_bytes(struct jinja_interp *interp, struct jinja_sink *sink, const char *bytes, size_t length) {
  if (!jinja_charge(interp, length)) return;
  if (sink->text.length + length > interp->limits.output_max) {
    jinja_fail(interp, "more than %zu bytes of text", interp->limits.output_max);
    return;
  }
  buffer_append(&sink->text, bytes, length);
}

void sink_part(struct jinja_interp *interp, struct jinja_sink *sink, const struct jinja_string *string, size_t begin, size_t end) {
  size_t at = sink->text.length;
  if (end <= begin) return;
  sink_bytes(interp, sink, string->data + begin, end - begin);
  if (jinja_failed(interp) || string->n_origins == 0) return;
  if (!jinja_step(interp, string->n_origins)) return;
  MEMORY_GROW(sink->origins, sink->origins_capacity, sink->n_origins + string->n_origins);
  struct jinja_origin *fresh = sink->origins + sink->n_origins;
  size_t n = clip_origins(string, begin, end, fresh);
  for (size_t i = 0; i < n; i++) {
    fresh[i].begin += at;
    fresh[i].end += at;
    struct jinja_origin *last = sink->n_origins ? &sink->origins[sink->n_origins - 1] : NULL;
    bool continues = last && last->end == fresh[i].begin && last->origin == fresh[i].origin &&
                     last->origin_begin + (last->end - last->begin) == fresh[i].origin_begin;
    if (continues) last->end = fresh[i].end;
    else sink->origins[sink->n_origins++] = fresh[i];
  }
}

void sink_string(struct jinja_interp *interp, struct jinja_sink *sink, const struct jinja_string *string) {
  sink_part(interp, sink, string, 0, string->length);
}

struct jinja_value sink_finish(struct jinja_interp *interp, struct jinja_sink *sink) {
  struct jinja_origin *origins = NULL;
  size_t length = sink->text.length, n = sink->n_origins;
  if (!jinja_charge(interp, length + n * sizeof *origins + 64)) length = n = 0;
  if (n) {
    origins = pool_take(&interp->pool, n * sizeof *origins);
    memcpy(origins, sink->origins, n * sizeof *origins);
  }
  struct jinja_value value = new_string(interp, pool_copy(&interp->pool, sink->text.data, length), length, origins, n);
  buffer_clear(&sink->text);
  free(sink->origins);
  *sink = (struct jinja_sink){0};
  return value;
}

/* ---- lists and dictionaries ---- */

struct jinja_value value_list(struct jinja_interp *interp, size_t capacity) {
  if (!jinja_charge(interp, sizeof(struct jinja_list) + capacity * sizeof(struct jinja_value))) capacity = 0;
  struct jinja_list *list = pool_take(&interp->pool, sizeof *list);
  list->capacity = capacity;
  list->items = capacity ? pool_take(&interp->pool, capacity * sizeof *list->items) : NULL;
  return (struct jinja_value){.type = JINJA_LIST, .list = list};
}

struct jinja_value value_tuple(struct jinja_interp *interp, const struct jinja_value *items, size_t n) {
  struct jinja_value tuple = value_list(interp, n);
  tuple.list->is_tuple = true;
  for (size_t i = 0; i < n; i++) list_append(interp, tuple.list, items[i]);
  return tuple;
}

/* Room for one more element in a pool array: doubles into fresh memory. */
static void *pool_grow(struct jinja_interp *interp, void *items, size_t n, size_t *capacity, size_t element) {
  if (n < *capacity) return items;
  size_t wanted = *capacity ? *capacity * 2 : 8;
  if (!jinja_charge(interp, wanted * element)) return NULL;
  void *fresh = pool_take(&interp->pool, wanted * element);
  if (n) memcpy(fresh, items, n * element);
  *capacity = wanted;
  return fresh;
}

void list_append(struct jinja_interp *interp, struct jinja_list *list, struct jinja_value value) {
  void *items = pool_grow(interp, list->items, list->n, &list->capacity, sizeof *list->items);
  if (!items) return;
  list->items = items;
  list->items[list->n++] = value;
}

struct jinja_value value_dict(struct jinja_interp *interp) {
  struct jinja_dict *dict = pool_take(&interp->pool, sizeof *dict);
  jinja_charge(interp, sizeof *dict);
  return (struct jinja_value){.type = JINJA_DICT, .dict = dict};
}

struct jinja_value *dict_find_text(const struct jinja_dict *dict, const char *key, size_t length) {
  for (size_t i = 0; i < dict->n; i++) {
    const struct jinja_value *other = &dict->entries[i].key;
    if (other->type == JINJA_STRING && other->string->length == length && memcmp(other->string->data, key, length) == 0)
      return &dict->entries[i].value;
  }
  return NULL;
}

struct jinja_value *dict_find(struct jinja_interp *interp, const struct jinja_dict *dict, struct jinja_value key) {
  if (!jinja_step(interp, 1 + dict->n / 16)) return NULL;
  if (key.type == JINJA_STRING) return dict_find_text(dict, key.string->data, key.string->length);
  if (key.type == JINJA_DICT || key.type == JINJA_NAMESPACE || (key.type == JINJA_LIST && !key.list->is_tuple)) {
    jinja_fail(interp, "unhashable type: '%s'", value_type_name(key));
    return NULL;
  }
  for (size_t i = 0; i < dict->n; i++)
    if (value_equal(interp, dict->entries[i].key, key)) return &dict->entries[i].value;
  return NULL;
}

void dict_set(struct jinja_interp *interp, struct jinja_dict *dict, struct jinja_value key, struct jinja_value value) {
  struct jinja_value *found = dict_find(interp, dict, key);
  if (jinja_failed(interp)) return;
  if (found) {
    *found = value;
    return;
  }
  void *entries = pool_grow(interp, dict->entries, dict->n, &dict->capacity, sizeof *dict->entries);
  if (!entries) return;
  dict->entries = entries;
  dict->entries[dict->n++] = (struct jinja_entry){.key = key, .value = value};
}

struct jinja_value value_method(struct jinja_interp *interp, const struct jinja_row *row, struct jinja_value self) {
  struct jinja_function *function = pool_take(&interp->pool, sizeof *function);
  jinja_charge(interp, sizeof *function);
  function->row = row;
  function->self = self;
  return (struct jinja_value){.type = JINJA_FUNCTION, .function = function};
}

/* ---- from JSON ---- */

static struct jinja_value string_of(struct jinja_interp *interp, const char *text, size_t length, const json_t *origin) {
  struct jinja_value value = value_text(interp, text, length);
  if (value.string->length == 0) return value;
  struct jinja_origin *span = pool_take(&interp->pool, sizeof *span);
  *span = (struct jinja_origin){.begin = 0, .end = value.string->length, .origin = origin};
  value.string->origins = span;
  value.string->n_origins = 1;
  return value;
}

/* Recursion is bounded by jansson's parser depth and by limits.depth_max for values built by callers. */
static struct jinja_value convert(struct jinja_interp *interp, const json_t *json, int depth) {
  if (depth > 1000) return jinja_fail(interp, "context is nested too deeply");
  if (!jinja_step(interp, 1)) return value_none();
  size_t i;
  const char *key;
  json_t *item;
  struct jinja_value value;
  switch (json_typeof(json)) {
  case JSON_TRUE: return value_bool(true);
  case JSON_FALSE: return value_bool(false);
  case JSON_INTEGER: return value_int(json_integer_value(json));
  case JSON_REAL: return value_float(json_real_value(json));
  case JSON_STRING: return string_of(interp, json_string_value(json), json_string_length(json), json);
  case JSON_ARRAY:
    value = value_list(interp, json_array_size(json));
    json_array_foreach(json, i, item) list_append(interp, value.list, convert(interp, item, depth + 1));
    return value;
  case JSON_OBJECT:
    value = value_dict(interp);
    json_object_foreach((json_t *)json, key, item) { /* keys are distinct already: no search */
      void *entries = pool_grow(interp, value.dict->entries, value.dict->n, &value.dict->capacity, sizeof *value.dict->entries);
      if (!entries) break;
      value.dict->entries = entries;
      struct jinja_entry entry = {.key = string_of(interp, key, strlen(key), json), .value = convert(interp, item, depth + 1)};
      value.dict->entries[value.dict->n++] = entry;
    }
    return value;
  case JSON_NULL: break;
  }
  return value_none();
}

struct jinja_value value_from_json(struct jinja_interp *interp, const json_t *json) { return convert(interp, json, 0); }
