/* safetensors.c - see safetensors.h. Owns the mapping and the parsed header; never copies tensor data. The hard part is refusing every
 * file that lies, before a byte of it is used. */
#include "checkpoint/safetensors.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES_MAX 100000000u
#define DIMENSION_MAX ((int64_t)1 << 48)

/* ---- refusing what is not a safetensors file, by its first bytes ---- */

static enum eaglet_status refuse_impostor(const char *path, const struct file_map *map, struct eaglet_error *err) {
  static const char lfs[] = "version https://git-lfs";
  const char *text = (const char *)map->data;
  if (map->length >= sizeof lfs - 1 && memcmp(text, lfs, sizeof lfs - 1) == 0) {
    char copy[512] = {0};
    memcpy(copy, text, map->length < sizeof copy - 1 ? map->length : sizeof copy - 1);
    const char *size = strstr(copy, "\nsize ");
    FAIL(err, EAGLET_E_INPUT, "%s: is a Git LFS pointer, not weights: the real file has %.*s bytes; fetch it with `git lfs pull`", path,
         size ? (int)strspn(size + 6, "0123456789") : 7, size ? size + 6 : "unknown");
  }
  if (map->length > 0 && text[0] == '<') FAIL(err, EAGLET_E_INPUT, "%s: is an HTML or XML page, not weights (a failed download?)", path);
  return EAGLET_OK;
}

/* ---- header ---- */

static enum eaglet_status parse_shape(struct tensor_entry *tensor, const json_t *shape, uint64_t *n_elements, struct eaglet_error *err) {
  if (!json_is_array(shape) || json_array_size(shape) > TENSOR_RANK_MAX) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: shape: expected an array of at most %d dimensions", tensor->path, tensor->name, TENSOR_RANK_MAX);
  }
  tensor->rank = (int)json_array_size(shape);
  *n_elements = 1;
  for (int i = 0; i < tensor->rank; i++) {
    const json_t *dimension = json_array_get(shape, (size_t)i);
    int64_t value = json_is_integer(dimension) ? json_integer_value(dimension) : -1;
    if (value < 0 || value > DIMENSION_MAX) FAIL(err, EAGLET_E_INPUT, "%s: %s: shape: bad dimension %d", tensor->path, tensor->name, i);
    tensor->shape[i] = value;
    if (__builtin_mul_overflow(*n_elements, (uint64_t)value, n_elements)) {
      FAIL(err, EAGLET_E_INPUT, "%s: %s: shape: too many elements", tensor->path, tensor->name);
    }
  }
  return EAGLET_OK;
}

static enum eaglet_status parse_tensor(struct tensor_entry *tensor, const json_t *object, const struct cursor *data, struct eaglet_error *err) {
  if (!json_is_object(object)) FAIL(err, EAGLET_E_INPUT, "%s: %s: expected an object", tensor->path, tensor->name);
  const char *key;
  json_t *ignored;
  json_object_foreach((json_t *)object, key, ignored) {
    if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 && strcmp(key, "data_offsets") != 0) {
      FAIL(err, EAGLET_E_INPUT, "%s: %s: unknown field '%s'", tensor->path, tensor->name, key);
    }
  }
  const char *dtype = json_string_value(json_object_get(object, "dtype"));
  tensor->dtype = dtype ? dtype_from_name(dtype) : DTYPE_NONE;
  if (tensor->dtype == DTYPE_NONE) FAIL(err, EAGLET_E_INPUT, "%s: %s: unknown dtype '%s'", tensor->path, tensor->name, dtype ? dtype : "(none)");
  uint64_t n_elements = 0, n_bits;
  TRY(parse_shape(tensor, json_object_get(object, "shape"), &n_elements, err));
  if (__builtin_mul_overflow(n_elements, (uint64_t)dtype_bits(tensor->dtype), &n_bits) || n_bits % 8 != 0) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: %s elements do not fill whole bytes", tensor->path, tensor->name, dtype);
  }
  const json_t *offsets = json_object_get(object, "data_offsets");
  const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0 ||
      json_integer_value(end) < json_integer_value(begin)) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: data_offsets: expected [begin, end] with 0 <= begin <= end", tensor->path, tensor->name);
  }
  uint64_t first = (uint64_t)json_integer_value(begin), last = (uint64_t)json_integer_value(end);
  if (last > data->length) {
    FAIL(err, EAGLET_E_INPUT, "%s: truncated: %s ends at byte %llu of the data, the file holds %zu", tensor->path, tensor->name, (unsigned long long)last, data->length);
  }
  tensor->n_bytes = last - first;
  if (tensor->n_bytes != n_bits / 8) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: shape needs %llu bytes, data_offsets give %llu", tensor->path, tensor->name, (unsigned long long)(n_bits / 8), (unsigned long long)tensor->n_bytes);
  }
  tensor->data = data->data + first;
  return EAGLET_OK;
}

static int by_offset(const void *a, const void *b) {
  const struct tensor_entry *x = a, *y = b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes); /* empty tensors first */
}

static int by_name(const void *a, const void *b) { return strcmp(((const struct tensor_entry *)a)->name, ((const struct tensor_entry *)b)->name); }

static enum eaglet_status check_tiling(struct safetensors *file, const struct cursor *data, struct eaglet_error *err) {
  qsort(file->tensors, file->n, sizeof *file->tensors, by_offset);
  const uint8_t *at = data->data;
  for (size_t i = 0; i < file->n; i++) {
    const struct tensor_entry *tensor = &file->tensors[i];
    if (tensor->data != at) FAIL(err, EAGLET_E_INPUT, "%s: %s: data %s the tensor before it", file->path, tensor->name, tensor->data < at ? "overlaps" : "leaves a hole after");
    at += tensor->n_bytes;
  }
  if (at != data->data + data->length) {
    FAIL(err, EAGLET_E_INPUT, "%s: expected %zu bytes by its header, found %zu", file->path, file->map.length - data->length + (size_t)(at - data->data), file->map.length);
  }
  qsort(file->tensors, file->n, sizeof *file->tensors, by_name);
  return EAGLET_OK;
}

static enum eaglet_status parse_metadata(const char *path, const json_t *metadata, struct eaglet_error *err) {
  const char *key;
  json_t *value;
  if (!json_is_object(metadata)) FAIL(err, EAGLET_E_INPUT, "%s: __metadata__: expected an object", path);
  json_object_foreach((json_t *)metadata, key, value) {
    if (!json_is_string(value)) FAIL(err, EAGLET_E_INPUT, "%s: __metadata__: %s: expected a string", path, key);
  }
  return EAGLET_OK;
}

static enum eaglet_status parse_file(struct safetensors *file, struct eaglet_error *err) {
  TRY(refuse_impostor(file->path, &file->map, err));
  struct cursor cursor = {.data = file->map.data, .length = file->map.length};
  uint64_t n_header = cursor_u64(&cursor);
  if (cursor.failed) FAIL(err, EAGLET_E_INPUT, "%s: truncated: %zu bytes, a safetensors file has at least 10", file->path, file->map.length);
  if (n_header < 2 || n_header > HEADER_BYTES_MAX || n_header > file->map.length - 8) {
    FAIL(err, EAGLET_E_INPUT, "%s: header of %llu bytes in a file of %zu: truncated or not a safetensors file", file->path, (unsigned long long)n_header, file->map.length);
  }
  const char *text = (const char *)cursor_bytes(&cursor, (size_t)n_header);
  if (text[0] != '{') FAIL(err, EAGLET_E_INPUT, "%s: header does not start with '{'", file->path);
  TRY(json_parse(&file->header, text, (size_t)n_header, file->path, err));
  if (!json_is_object(file->header)) FAIL(err, EAGLET_E_INPUT, "%s: header: expected an object", file->path);
  const struct cursor data = {.data = file->map.data + 8 + n_header, .length = file->map.length - 8 - (size_t)n_header};
  file->tensors = memory_alloc((json_object_size(file->header) + 1) * sizeof *file->tensors);
  const char *name;
  json_t *value;
  json_object_foreach(file->header, name, value) {
    if (strcmp(name, "__metadata__") == 0) {
      TRY(parse_metadata(file->path, value, err));
      continue;
    }
    struct tensor_entry *tensor = &file->tensors[file->n++];
    *tensor = (struct tensor_entry){.name = name, .path = file->path};
    TRY(parse_tensor(tensor, value, &data, err));
  }
  return check_tiling(file, &data, err);
}

enum eaglet_status safetensors_open(struct safetensors *file, const char *path, struct eaglet_error *err) {
  *file = (struct safetensors){0};
  TRY(file_map_open(&file->map, path, err));
  file->path = memory_copy_string(path);
  enum eaglet_status status = parse_file(file, err);
  if (status != EAGLET_OK) safetensors_close(file);
  return status;
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
};

struct safetensors_writer *safetensors_writer_create(void) {
  struct safetensors_writer *writer = memory_alloc(sizeof *writer);
  writer->metadata = json_object();
  writer->tensors = json_object();
  return writer;
}

void safetensors_writer_metadata(struct safetensors_writer *writer, const char *key, const char *value) {
  json_object_set_new(writer->metadata, key, json_string(value));
}

void safetensors_writer_add(struct safetensors_writer *writer, const char *name, enum dtype dtype, int rank, const int64_t *shape,
                            const void *data) {
  ASSERT(!json_object_get(writer->tensors, name) && rank <= TENSOR_RANK_MAX);
  uint64_t n_elements = 1;
  json_t *dimensions = json_array();
  for (int i = 0; i < rank; i++) {
    n_elements *= (uint64_t)shape[i];
    json_array_append_new(dimensions, json_integer(shape[i]));
  }
  uint64_t n_bytes = n_elements * (uint64_t)dtype_bits(dtype) / 8;
  MEMORY_GROW(writer->chunks, writer->capacity, writer->n + 1);
  writer->chunks[writer->n++] = (struct chunk){.data = data, .n_bytes = (size_t)n_bytes};
  json_t *tensor = json_object();
  json_object_set_new(tensor, "dtype", json_string(dtype_name(dtype)));
  json_object_set_new(tensor, "shape", dimensions);
  json_object_set_new(tensor, "data_offsets", json_pack("[I,I]", (json_int_t)writer->n_bytes, (json_int_t)(writer->n_bytes + n_bytes)));
  json_object_set_new(writer->tensors, name, tensor);
  writer->n_bytes += n_bytes;
}

enum eaglet_status safetensors_writer_commit(struct safetensors_writer *writer, const char *path, struct eaglet_error *err) {
  struct file_writer file;
  json_t *header = json_object();
  if (json_object_size(writer->metadata) > 0) json_object_set(header, "__metadata__", writer->metadata);
  json_object_update(header, writer->tensors);
  struct eaglet_text text = json_dump(header, 0);
  json_decref(header);
  uint64_t n_padded = (text.length + 7) & ~(uint64_t)7;
  enum eaglet_status status = file_writer_open(&file, path, err);
  if (status == EAGLET_OK) {
    file_writer_append(&file, &n_padded, sizeof n_padded); /* little-endian machines only, as everywhere */
    file_writer_append(&file, text.data, text.length);
    file_writer_append(&file, "       ", (size_t)(n_padded - text.length));
    for (size_t i = 0; i < writer->n; i++) file_writer_append(&file, writer->chunks[i].data, writer->chunks[i].n_bytes);
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
