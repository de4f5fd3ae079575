/* safetensors.c - see safetensors.h. Owns the mapping and the parsed header; never copies tensor data. The hard part is refusing every
 * file that lies, before a byte of it is used. */
#include "checkpoint/safetensors.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "checkpoint/safetensors_header.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES_MAX 100000000u
#define DIMENSION_MAX ((int64_t)1 << 48)

/* ---- refusing what is not a safetensors file, by its first bytes ---- */

static bool starts_with(const struct file_map *map, const char *text) {
  size_t length = strlen(text);
  return map->length >= length && memcmp(map->data, text, length) == 0;
}

static enum eaglet_status refuse_lfs_pointer(const char *path, const struct file_map *map, struct eaglet_error *err) {
  char copy[512] = {0};
  memcpy(copy, map->data, map->length < sizeof copy - 1 ? map->length : sizeof copy - 1);
  const char *size = strstr(copy, "\nsize ");
  int n_digits = size ? (int)strspn(size + 6, "0123456789") : 0;
  FAIL(err, EAGLET_E_INPUT, "%s: is a Git LFS pointer, not weights: the real file has %.*s bytes; fetch it with `git lfs pull`", path,
       n_digits ? n_digits : 7, n_digits ? size + 6 : "unknown");
}

/* The header length is impossible; says what the file seems to be. Only then are its bytes read as text: a sound file may begin with
 * any byte, '<' is a header of 60 bytes or 60 more than a multiple of 256. */
static enum eaglet_status refuse_length(const char *path, const struct file_map *map, struct eaglet_error *err) {
  if (starts_with(map, "version https://git-lfs")) return refuse_lfs_pointer(path, map, err);
  size_t at = starts_with(map, "\xef\xbb\xbf") ? 3 : 0;
  while (at < map->length && map->data[at] && strchr(" \t\r\n", map->data[at])) at++;
  if (at < map->length && map->data[at] == '<') {
    FAIL(err, EAGLET_E_INPUT, "%s: is an HTML or XML page, not weights (a failed download?)", path);
  }
  if (map->length < 8) FAIL(err, EAGLET_E_INPUT, "%s: truncated: %zu bytes, a safetensors file has at least 10", path, map->length);
  struct cursor cursor = {.data = map->data, .length = map->length};
  FAIL(err, EAGLET_E_INPUT, "%s: header of %llu bytes in a file of %zu (expected 2 to %u): truncated or not a safetensors file", path,
       (unsigned long long)cursor_u64(&cursor), map->length, HEADER_BYTES_MAX);
}

/* ---- tensors: what the header says against what the file is ---- */

static enum eaglet_status count_bytes(uint64_t *n_bytes, const struct header_entry *entry, const char *path, struct eaglet_error *err) {
  uint64_t n_elements = 1, n_bits;
  bool overflow = false;
  for (int i = 0; i < entry->rank; i++) {
    if (entry->shape[i] < 0 || entry->shape[i] > DIMENSION_MAX) {
      FAIL(err, EAGLET_E_INPUT, "%s: %s: shape: dimension %d: expected an integer of 0 to 2^48", path, entry->name, i);
    }
    overflow |= __builtin_mul_overflow(n_elements, (uint64_t)entry->shape[i], &n_elements);
  }
  overflow |= __builtin_mul_overflow(n_elements, (uint64_t)dtype_bits(entry->dtype), &n_bits);
  if (overflow) FAIL(err, EAGLET_E_INPUT, "%s: %s: shape: too many elements", path, entry->name);
  if (n_bits % 8 != 0) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: %llu %s elements do not fill whole bytes", path, entry->name, (unsigned long long)n_elements, dtype_name(entry->dtype));
  }
  *n_bytes = n_bits / 8;
  return EAGLET_OK;
}

static enum eaglet_status tensor_set(struct tensor_entry *tensor, const struct header_entry *entry, const struct cursor *data, struct eaglet_error *err) {
  uint64_t n_bytes = 0, n_given = entry->last - entry->first;
  TRY(count_bytes(&n_bytes, entry, tensor->path, err));
  if (n_given != n_bytes) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: shape needs %llu bytes, data_offsets give %llu", tensor->path, entry->name, (unsigned long long)n_bytes, (unsigned long long)n_given);
  }
  ASSERT(entry->last <= data->length); /* check_length */
  tensor->name = entry->name;
  tensor->dtype = entry->dtype;
  tensor->rank = entry->rank;
  memcpy(tensor->shape, entry->shape, sizeof tensor->shape);
  tensor->data = data->data + entry->first;
  tensor->n_bytes = n_bytes;
  return EAGLET_OK;
}

/* The commonest damage first, and told as a whole: a file shorter than its farthest tensor needs was not downloaded to its end. */
static enum eaglet_status check_length(const struct safetensors *file, const struct header *header, const struct cursor *data, struct eaglet_error *err) {
  const struct header_entry *farthest = NULL;
  for (size_t i = 0; i < header->n; i++) {
    if (!farthest || header->entries[i].last > farthest->last) farthest = &header->entries[i];
  }
  if (!farthest || farthest->last <= data->length) return EAGLET_OK;
  /* An end is at most INT64_MAX, so that the sum fits. */
  FAIL(err, EAGLET_E_INPUT, "%s: truncated: expected at least %llu bytes (where %s ends), found %zu", file->path,
       (unsigned long long)(file->map.length - data->length + farthest->last), farthest->name, file->map.length);
}

static int by_offset(const void *a, const void *b) {
  const struct tensor_entry *x = *(const struct tensor_entry *const *)a, *y = *(const struct tensor_entry *const *)b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes); /* empty tensors first */
}

static int by_name(const void *a, const void *b) { return strcmp(((const struct tensor_entry *)a)->name, ((const struct tensor_entry *)b)->name); }

static enum eaglet_status sort_names(struct safetensors *file, struct eaglet_error *err) {
  qsort(file->tensors, file->n, sizeof *file->tensors, by_name);
  for (size_t i = 1; i < file->n; i++) {
    if (strcmp(file->tensors[i - 1].name, file->tensors[i].name) != 0) continue;
    FAIL(err, EAGLET_E_INPUT, "%s: %s: duplicate tensor in the header", file->path, file->tensors[i].name);
  }
  return EAGLET_OK;
}

/* order: all tensors by offset. */
static enum eaglet_status check_tiling(const struct safetensors *file, const struct tensor_entry *const *order, const struct cursor *data, struct eaglet_error *err) {
  const uint8_t *at = data->data;
  for (size_t i = 0; i < file->n; i++) {
    const struct tensor_entry *tensor = order[i];
    if (tensor->data != at) {
      FAIL(err, EAGLET_E_INPUT, "%s: %s: expected to begin at byte %zu of the data, where %s ends, found %zu: %s", file->path, tensor->name,
           (size_t)(at - data->data), i ? order[i - 1]->name : "the header", (size_t)(tensor->data - data->data),
           tensor->data < at ? "an overlap" : "a hole");
    }
    at += tensor->n_bytes;
  }
  if (at != data->data + data->length) {
    FAIL(err, EAGLET_E_INPUT, "%s: expected %zu bytes by its header, found %zu", file->path, file->map.length - data->length + (size_t)(at - data->data), file->map.length);
  }
  return EAGLET_OK;
}

static enum eaglet_status set_tensors(struct safetensors *file, const struct header *header, const struct cursor *data, struct eaglet_error *err) {
  TRY(check_length(file, header, data, err));
  file->tensors = memory_alloc((header->n + 1) * sizeof *file->tensors);
  for (; file->n < header->n; file->n++) {
    struct tensor_entry *tensor = &file->tensors[file->n];
    tensor->path = file->path;
    TRY(tensor_set(tensor, &header->entries[file->n], data, err));
  }
  TRY(sort_names(file, err));
  const struct tensor_entry **order = memory_alloc((file->n + 1) * sizeof *order);
  for (size_t i = 0; i < file->n; i++) order[i] = &file->tensors[i];
  qsort(order, file->n, sizeof *order, by_offset);
  enum eaglet_status status = check_tiling(file, order, data, err);
  free(order);
  return status;
}

static enum eaglet_status parse_file(struct safetensors *file, struct eaglet_error *err) {
  struct cursor cursor = {.data = file->map.data, .length = file->map.length};
  uint64_t n_header = cursor_u64(&cursor);
  if (cursor.failed || n_header < 2 || n_header > HEADER_BYTES_MAX || n_header > file->map.length - 8) {
    return refuse_length(file->path, &file->map, err);
  }
  const char *text = (const char *)cursor_bytes(&cursor, (size_t)n_header);
  if (text[0] != '{') FAIL(err, EAGLET_E_INPUT, "%s: header does not start with '{'", file->path);
  const struct cursor data = {.data = file->map.data + 8 + n_header, .length = file->map.length - 8 - (size_t)n_header};
  struct header header;
  enum eaglet_status status = header_parse(&header, text, (size_t)n_header, file->path, err);
  if (status == EAGLET_OK) status = set_tensors(file, &header, &data, err);
  file->header = header.json;
  file->names = header.names;
  header.json = NULL;
  header.names = NULL;
  header_release(&header);
  return status;
}

enum eaglet_status safetensors_open(struct safetensors *file, const char *path, struct eaglet_error *err) {
  *file = (struct safetensors){0};
  TRY(file_map_open(&file->map, path, err));
  file->path = memory_copy_string(path);
  enum eaglet_status status = parse_file(file, err);
  if (status != EAGLET_OK) safetensors_close(file);
  return status;
}

enum eaglet_status tensor_expect_float(const struct tensor_entry *tensor, struct eaglet_error *err) {
  if (tensor->dtype != DTYPE_F32 && tensor->dtype != DTYPE_BF16 && tensor->dtype != DTYPE_F16)
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected BF16, F16 or F32, found %s", tensor->path, tensor->name, dtype_name(tensor->dtype));
  return EAGLET_OK;
}

enum eaglet_status tensor_to_f32(float *out, const struct tensor_entry *tensor, size_t n, struct eaglet_error *err) {
  dtype_to_f32(out, tensor->data, tensor->dtype, n);
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(out[i])) FAIL(err, EAGLET_E_INPUT, "%s: %s: element %zu is not finite", tensor->path, tensor->name, i);
  }
  return EAGLET_OK;
}

const struct tensor_entry *safetensors_find(const struct safetensors *file, const char *name) {
  const struct tensor_entry key = {.name = name};
  return file->n ? bsearch(&key, file->tensors, file->n, sizeof key, by_name) : NULL;
}

const char *safetensors_metadata(const struct safetensors *file, const char *key) {
  return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

void safetensors_close(struct safetensors *file) {
  json_decref(file->header);
  free(file->names);
  free(file->tensors);
  file_map_close(&file->map);
  free(file->path);
  *file = (struct safetensors){0};
}

/* ---- writer ---- */

struct safetensors_writer {
  json_t *metadata, *tensors;
  struct chunk { const void *data; size_t n_bytes; } *chunks;
  size_t n, capacity;
  uint64_t n_bytes;
  struct eaglet_error error; /* sticky: the first text that JSON cannot hold */
};

struct safetensors_writer *safetensors_writer_create(void) {
  struct safetensors_writer *writer = memory_alloc(sizeof *writer);
  writer->metadata = json_object();
  writer->tensors = json_object();
  return writer;
}

/* Steals value. jansson refuses keys that are not UTF-8 (and gives NULL for such strings). */
static void writer_set(struct safetensors_writer *writer, json_t *object, const char *key, json_t *value) {
  if (json_object_set_new(object, key, value) == 0 || writer->error.status != EAGLET_OK) return;
  error_set(&writer->error, EAGLET_E_INPUT, "%s '%s': expected UTF-8", object == writer->tensors ? "tensor" : "metadata", key);
}

void safetensors_writer_metadata(struct safetensors_writer *writer, const char *key, const char *value) {
  writer_set(writer, writer->metadata, key, json_string(value));
}

void safetensors_writer_add(struct safetensors_writer *writer, const char *name, enum dtype dtype, int rank, const int64_t *shape,
                            const void *data) {
  ASSERT(!json_object_get(writer->tensors, name) && strcmp(name, "__metadata__") != 0);
  ASSERT(rank >= 0 && rank <= TENSOR_RANK_MAX && dtype > DTYPE_NONE && dtype < DTYPE_COUNT);
  uint64_t n_elements = 1, n_bits;
  json_t *dimensions = json_array();
  for (int i = 0; i < rank; i++) {
    ASSERT(shape[i] >= 0 && shape[i] <= DIMENSION_MAX && !__builtin_mul_overflow(n_elements, (uint64_t)shape[i], &n_elements));
    json_array_append_new(dimensions, json_integer(shape[i]));
  }
  ASSERT(!__builtin_mul_overflow(n_elements, (uint64_t)dtype_bits(dtype), &n_bits) && n_bits % 8 == 0);
  uint64_t n_bytes = n_bits / 8;
  MEMORY_GROW(writer->chunks, writer->capacity, writer->n + 1);
  writer->chunks[writer->n++] = (struct chunk){.data = data, .n_bytes = (size_t)n_bytes};
  json_t *tensor = json_object();
  json_object_set_new(tensor, "dtype", json_string(dtype_name(dtype)));
  json_object_set_new(tensor, "shape", dimensions);
  json_object_set_new(tensor, "data_offsets", json_pack("[I,I]", (json_int_t)writer->n_bytes, (json_int_t)(writer->n_bytes + n_bytes)));
  writer_set(writer, writer->tensors, name, tensor);
  writer->n_bytes += n_bytes;
}

static void write_all(const struct safetensors_writer *writer, struct file_writer *file, const struct eaglet_text *header) {
  uint64_t n_padded = (header->length + 7) & ~(uint64_t)7;
  file_writer_append(file, &n_padded, sizeof n_padded); /* little-endian machines only, as everywhere */
  file_writer_append(file, header->data, header->length);
  file_writer_append(file, "       ", (size_t)(n_padded - header->length));
  for (size_t i = 0; i < writer->n; i++) file_writer_append(file, writer->chunks[i].data, writer->chunks[i].n_bytes);
}

enum eaglet_status safetensors_writer_commit(struct safetensors_writer *writer, const char *path, struct eaglet_error *err) {
  struct file_writer file;
  if (writer->error.status != EAGLET_OK) FAIL(err, writer->error.status, "%s: %s", path, writer->error.message);
  json_t *header = json_object();
  if (json_object_size(writer->metadata) > 0) json_object_set(header, "__metadata__", writer->metadata);
  json_object_update(header, writer->tensors);
  struct eaglet_text text = json_dump(header, 0);
  json_decref(header);
  enum eaglet_status status = EAGLET_OK;
  if (text.length > HEADER_BYTES_MAX) {
    status = error_set(err, EAGLET_E_INPUT, "%s: header of %zu bytes, the format allows %u", path, text.length, HEADER_BYTES_MAX);
  }
  if (status == EAGLET_OK) status = file_writer_open(&file, path, err);
  if (status == EAGLET_OK) {
    write_all(writer, &file, &text);
    status = file_writer_commit(&file, err);
  }
  free(text.data);
  return status;
}

void safetensors_writer_free(struct safetensors_writer *writer) {
  if (!writer) return;
  json_decref(writer->metadata);
  json_decref(writer->tensors);
  free(writer->chunks);
  free(writer);
}
