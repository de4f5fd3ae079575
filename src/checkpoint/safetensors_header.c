/* safetensors_header.c - see safetensors_header.h. Two readers of one language: a scanner for the plain form that every writer emits
 * (names of printable ASCII without escapes, integers as such), and jansson for all the rest. What the scanner takes, jansson takes
 * with the same meaning; at the first byte it does not know it gives up, so every refusal and its words come from jansson's way.
 * Why two: a Kimi checkpoint has 200,000 tensors; opening as many in one file took 1.5 s and 200 MB of small objects by jansson
 * alone, and takes 0.3 s with the scanner.
 * Does not look at the file behind the header. */
#include "checkpoint/safetensors_header.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define METADATA "__metadata__"

static struct header_entry *entry_append(struct header *header) {
  MEMORY_GROW(header->entries, header->capacity, header->n + 1);
  struct header_entry *entry = &header->entries[header->n++];
  *entry = (struct header_entry){0};
  return entry;
}

/* ---- scanner: each function returns false to give up ---- */

struct scan {
  const char *at, *end;
};
struct span {
  const char *text;
  size_t length;
};

static void scan_space(struct scan *scan) {
  while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r')) scan->at++;
}

static bool scan_char(struct scan *scan, char c) {
  scan_space(scan);
  if (scan->at >= scan->end || *scan->at != c) return false;
  scan->at++;
  return true;
}

static bool scan_string(struct scan *scan, struct span *string) {
  if (!scan_char(scan, '"')) return false;
  const char *from = scan->at;
  while (scan->at < scan->end && *scan->at >= 0x20 && *scan->at < 0x7f && *scan->at != '"' && *scan->at != '\\') scan->at++;
  *string = (struct span){.text = from, .length = (size_t)(scan->at - from)};
  if (scan->at >= scan->end || *scan->at != '"') return false;
  scan->at++;
  return true;
}

/* Natural numbers that fit with room to spare. What follows ('.', 'e') is the business of the next scan_char. */
static bool scan_integer(struct scan *scan, int64_t *value) {
  scan_space(scan);
  const char *from = scan->at;
  *value = 0;
  while (scan->at < scan->end && scan->at - from < 18 && *scan->at >= '0' && *scan->at <= '9') *value = *value * 10 + (*scan->at++ - '0');
  ptrdiff_t n_digits = scan->at - from;
  return n_digits > 0 && (*from != '0' || n_digits == 1);
}

static bool scan_integers(struct scan *scan, int64_t *values, int n_max, int *n) {
  *n = 0;
  if (!scan_char(scan, '[')) return false;
  if (scan_char(scan, ']')) return true;
  do {
    if (*n >= n_max || !scan_integer(scan, &values[(*n)++])) return false;
  } while (scan_char(scan, ','));
  return scan_char(scan, ']');
}

static bool span_is(const struct span *span, const char *text) { return span->length == strlen(text) && memcmp(span->text, text, span->length) == 0; }

static bool scan_dtype(struct scan *scan, enum dtype *dtype) {
  struct span string;
  char name[16] = {0};
  if (!scan_string(scan, &string) || string.length >= sizeof name) return false;
  memcpy(name, string.text, string.length);
  *dtype = dtype_from_name(name);
  return *dtype != DTYPE_NONE;
}

static bool scan_entry(struct scan *scan, struct header_entry *entry) {
  int seen = 0, n_offsets = 0;
  int64_t offsets[2] = {0};
  if (!scan_char(scan, '{')) return false;
  do {
    struct span key;
    if (!scan_string(scan, &key) || !scan_char(scan, ':')) return false;
    int field = span_is(&key, "dtype") ? 1 : span_is(&key, "shape") ? 2 : span_is(&key, "data_offsets") ? 4 : 0;
    if (!field || (seen & field)) return false;
    seen |= field;
    if (field == 1 && !scan_dtype(scan, &entry->dtype)) return false;
    if (field == 2 && !scan_integers(scan, entry->shape, TENSOR_RANK_MAX, &entry->rank)) return false;
    if (field == 4 && !scan_integers(scan, offsets, 2, &n_offsets)) return false;
  } while (scan_char(scan, ','));
  entry->first = (uint64_t)offsets[0];
  entry->last = (uint64_t)offsets[1];
  return seen == 7 && n_offsets == 2 && offsets[0] <= offsets[1] && scan_char(scan, '}');
}

/* Finds the object's end and leaves the rest to jansson. */
static bool scan_metadata(struct scan *scan, json_t *json) {
  scan_space(scan);
  const char *from = scan->at;
  bool in_string = false;
  if (json_object_get(json, METADATA) || !scan_char(scan, '{')) return false;
  while (scan->at < scan->end && (in_string || *scan->at != '}')) {
    if (!in_string && (*scan->at == '{' || *scan->at == '[')) return false;
    if (in_string && *scan->at == '\\') scan->at++;
    else if (*scan->at == '"') in_string = !in_string;
    scan->at++;
  }
  if (scan->at >= scan->end) return false;
  scan->at++;
  json_t *metadata = NULL;
  if (json_parse(&metadata, from, (size_t)(scan->at - from), METADATA, NULL) != EAGLET_OK) return false;
  return json_object_set_new(json, METADATA, metadata) == 0;
}

bool header_scan(struct header *header, const char *text, size_t length) {
  struct scan scan = {.at = text, .end = text + length};
  *header = (struct header){.json = json_object(), .names = memory_alloc(length)}; /* each name loses two quotes and gains a NUL */
  char *name = header->names;
  if (!scan_char(&scan, '{')) return false;
  if (!scan_char(&scan, '}')) {
    do {
      struct span key;
      if (!scan_string(&scan, &key) || !scan_char(&scan, ':')) return false;
      if (span_is(&key, METADATA)) {
        if (!scan_metadata(&scan, header->json)) return false;
        continue;
      }
      struct header_entry *entry = entry_append(header);
      if (!scan_entry(&scan, entry)) return false;
      entry->name = memcpy(name, key.text, key.length);
      name += key.length + 1;
    } while (scan_char(&scan, ','));
    if (!scan_char(&scan, '}')) return false;
  }
  scan_space(&scan);
  return scan.at == scan.end;
}

/* ---- jansson's way ---- */

static enum eaglet_status read_shape(struct header_entry *entry, const json_t *shape, const char *path, struct eaglet_error *err) {
  if (!json_is_array(shape) || json_array_size(shape) > TENSOR_RANK_MAX) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: shape: expected an array of at most %d dimensions", path, entry->name, TENSOR_RANK_MAX);
  }
  entry->rank = (int)json_array_size(shape);
  for (int i = 0; i < entry->rank; i++) {
    const json_t *dimension = json_array_get(shape, (size_t)i);
    entry->shape[i] = json_is_integer(dimension) ? json_integer_value(dimension) : -1; /* refused with the negative ones */
  }
  return EAGLET_OK;
}

static enum eaglet_status read_offsets(struct header_entry *entry, const json_t *offsets, const char *path, struct eaglet_error *err) {
  const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0 ||
      json_integer_value(end) < json_integer_value(begin)) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: data_offsets: expected [begin, end] with 0 <= begin <= end", path, entry->name);
  }
  entry->first = (uint64_t)json_integer_value(begin);
  entry->last = (uint64_t)json_integer_value(end);
  return EAGLET_OK;
}

static enum eaglet_status read_entry(struct header_entry *entry, const json_t *object, const char *path, struct eaglet_error *err) {
  const char *key;
  json_t *ignored;
  if (!json_is_object(object)) FAIL(err, EAGLET_E_INPUT, "%s: %s: expected an object", path, entry->name);
  json_object_foreach((json_t *)object, key, ignored) {
    if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 && strcmp(key, "data_offsets") != 0) {
      FAIL(err, EAGLET_E_INPUT, "%s: %s: unknown field '%s'", path, entry->name, key);
    }
  }
  const char *dtype = json_string_value(json_object_get(object, "dtype"));
  entry->dtype = dtype ? dtype_from_name(dtype) : DTYPE_NONE;
  if (entry->dtype == DTYPE_NONE) FAIL(err, EAGLET_E_INPUT, "%s: %s: unknown dtype '%s'", path, entry->name, dtype ? dtype : "(none)");
  TRY(read_shape(entry, json_object_get(object, "shape"), path, err));
  return read_offsets(entry, json_object_get(object, "data_offsets"), path, err);
}

enum eaglet_status header_read(struct header *header, const char *text, size_t length, const char *path, struct eaglet_error *err) {
  const char *name;
  json_t *value;
  TRY(json_parse(&header->json, text, length, path, err));
  if (!json_is_object(header->json)) FAIL(err, EAGLET_E_INPUT, "%s: header: expected an object", path);
  json_object_foreach(header->json, name, value) {
    if (strcmp(name, METADATA) == 0) continue;
    struct header_entry *entry = entry_append(header);
    entry->name = name;
    TRY(read_entry(entry, value, path, err));
  }
  return EAGLET_OK;
}

static enum eaglet_status check_metadata(const json_t *metadata, const char *path, struct eaglet_error *err) {
  const char *key;
  json_t *value;
  if (!metadata) return EAGLET_OK;
  if (!json_is_object(metadata)) FAIL(err, EAGLET_E_INPUT, "%s: " METADATA ": expected an object", path);
  json_object_foreach((json_t *)metadata, key, value) {
    if (!json_is_string(value)) FAIL(err, EAGLET_E_INPUT, "%s: " METADATA ": %s: expected a string", path, key);
  }
  return EAGLET_OK;
}

enum eaglet_status header_parse(struct header *header, const char *text, size_t length, const char *path, struct eaglet_error *err) {
  if (!header_scan(header, text, length)) {
    header_release(header);
    TRY(header_read(header, text, length, path, err));
  }
  return check_metadata(json_object_get(header->json, METADATA), path, err);
}

void header_release(struct header *header) {
  json_decref(header->json);
  free(header->names);
  free(header->entries);
  *header = (struct header){0};
}
