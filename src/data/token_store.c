/* token_store.c - reads a data directory; see token_shard.h. Owns the mappings; rows point into them. Believes nothing
 * that it has not checked: checksums, shapes, offsets, ids, marks. */
#include "data/token_shard.h"

#include "base/memory.h"
#include "data/foreign_store.h"

#include <stdlib.h>
#include <string.h>

static enum eaglet_status read_manifest(struct token_store *store, struct eaglet_error *err) {
  char *path = file_join(store->directory, "manifest.json");
  const char *format = NULL;
  int64_t version = 0, n_target = 0;
  enum eaglet_status status = EAGLET_OK;
  if (!file_exists(path))
    status = error_set(err, EAGLET_E_INPUT,
                       "%s: not there: the directory was not written by prepare, or prepare did not finish", path);
  if (status == EAGLET_OK) status = json_parse_file(&store->manifest, path, err);
  if (status == EAGLET_OK) status = json_get_string_or(&format, "", store->manifest, "format", path, err);
  if (status == EAGLET_OK && strcmp(format, "eaglet-tokens") != 0) {
    status =
        error_set(err, EAGLET_E_INPUT,
                  "%s: format: expected eaglet-tokens (a directory written by prepare), found '%.40s'", path, format);
  }
  if (status == EAGLET_OK) status = json_get_int(&version, store->manifest, "version", path, err);
  if (status == EAGLET_OK && version != 1)
    status = error_set(err, EAGLET_E_INPUT, "%s: version: expected 1, found %lld", path, (long long)version);
  if (status == EAGLET_OK) status = json_get_int(&n_target, store->manifest, "n_target", path, err);
  if (status == EAGLET_OK && (n_target < 1 || n_target > INT32_MAX))
    status = error_set(err, EAGLET_E_INPUT, "%s: n_target: found %lld", path, (long long)n_target);
  free(path);
  return status;
}

static enum eaglet_status read_sources(struct token_store *store, struct eaglet_error *err) {
  const json_t *sources = json_object_get(store->manifest, "sources");
  size_t i, n = json_array_size(sources);
  json_t *source;
  if (n > SOURCES_MAX)
    FAIL(err, EAGLET_E_INPUT, "%s/manifest.json: sources: expected at most %d, found %zu", store->directory,
         SOURCES_MAX, n);
  store->sources = memory_alloc((n + 1) * sizeof *store->sources);
  json_array_foreach(sources, i, source) {
    const char *name = json_string_value(json_object_get(source, "name"));
    if (!name) FAIL(err, EAGLET_E_INPUT, "%s/manifest.json: sources[%zu]: expected a name", store->directory, i);
    store->sources[store->n_sources++] = memory_copy_string(name);
  }
  return EAGLET_OK;
}

static enum eaglet_status check_shard_hash(const struct safetensors *file, const json_t *entry,
                                           struct eaglet_error *err) {
  char found[HASH_TEXT_BYTES];
  const char *expected = json_string_value(json_object_get(entry, "xxh3"));
  hash_text(found, file_hash(file->map.data, file->map.length, 0));
  if (!expected || strcmp(expected, found) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: checksum: expected %s, found %s: the file was changed or damaged", file->path,
         expected ? expected : "one", found);
  return EAGLET_OK;
}

/* A vector of n elements (n < 0: any number), aligned for its type. */
static enum eaglet_status find_vector(const struct tensor_entry **tensor, const struct safetensors *file,
                                      const char *name, enum dtype dtype, int64_t n, struct eaglet_error *err) {
  const struct tensor_entry *t = safetensors_find(file, name);
  *tensor = t;
  if (!t) FAIL(err, EAGLET_E_INPUT, "%s: %s: not there", file->path, name);
  if (t->dtype != dtype || t->rank != 1 || (n >= 0 && t->shape[0] != n)) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected %s [%lld], found %s of rank %d", file->path, name, dtype_name(dtype),
         (long long)n, dtype_name(t->dtype), t->rank);
  }
  if ((uintptr_t)t->data % (uintptr_t)(dtype_bits(dtype) / 8) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: %s: not aligned in the file", file->path, name);
  return EAGLET_OK;
}

static enum eaglet_status check_content(const struct token_row *row, const char *path, int64_t n_target,
                                        struct eaglet_error *err) {
  for (int32_t i = 0; i < row->n; i++) {
    if (row->tokens[i] < 0 || row->tokens[i] >= n_target)
      FAIL(err, EAGLET_E_INPUT, "%s: token %d: the vocabulary has %lld ids", path, row->tokens[i], (long long)n_target);
    if (row->mask[i] > 1) FAIL(err, EAGLET_E_INPUT, "%s: mask: expected 0 or 1, found %d", path, row->mask[i]);
  }
  return EAGLET_OK;
}

static enum eaglet_status add_rows(struct token_store *store, size_t *capacity, const struct safetensors *file,
                                   struct eaglet_error *err) {
  const struct tensor_entry *begin, *hash, *tokens, *source, *mask;
  TRY(find_vector(&begin, file, "row_begin", DTYPE_I64, -1, err));
  int64_t n_rows = begin->shape[0] - 1;
  if (n_rows < 0) FAIL(err, EAGLET_E_INPUT, "%s: row_begin: expected at least one element, found none", file->path);
  TRY(find_vector(&hash, file, "row_hash", DTYPE_U64, n_rows, err));
  TRY(find_vector(&source, file, "row_source", DTYPE_I32, n_rows, err));
  TRY(find_vector(&tokens, file, "tokens", DTYPE_I32, -1, err));
  TRY(find_vector(&mask, file, "mask", DTYPE_U8, tokens->shape[0], err));
  const int64_t *begins = (const int64_t *)(const void *)begin->data;
  int64_t n_target = json_integer_value(json_object_get(store->manifest, "n_target"));
  if (begins[0] != 0 || begins[n_rows] != tokens->shape[0])
    FAIL(err, EAGLET_E_INPUT, "%s: row_begin: expected 0 .. %lld, found other ends", file->path,
         (long long)tokens->shape[0]);
  MEMORY_GROW(store->rows, *capacity, store->n_rows + (size_t)n_rows);
  for (int64_t r = 0; r < n_rows; r++) {
    if (begins[r + 1] <= begins[r] || begins[r + 1] > tokens->shape[0] || begins[r + 1] - begins[r] > INT32_MAX)
      FAIL(err, EAGLET_E_INPUT, "%s: row_begin[%lld]: rows must not be empty", file->path, (long long)r);
    struct token_row row = {.tokens = (const int32_t *)(const void *)tokens->data + begins[r],
                            .mask = mask->data + begins[r],
                            .n = (int32_t)(begins[r + 1] - begins[r])};
    memcpy(&row.source, source->data + 4 * r, 4);
    memcpy(&row.hash, hash->data + 8 * r, 8);
    if (row.source < 0 || (size_t)row.source >= store->n_sources)
      FAIL(err, EAGLET_E_INPUT, "%s: row_source[%lld]: found %d of %zu sources", file->path, (long long)r, row.source,
           store->n_sources);
    TRY(check_content(&row, file->path, n_target, err));
    for (int32_t i = 0; i < row.n; i++) store->n_trained += row.mask[i];
    store->n_tokens += (uint64_t)row.n;
    store->hash = file_hash(&row.hash, sizeof row.hash, store->hash);
    store->rows[store->n_rows++] = row;
  }
  return EAGLET_OK;
}

static enum eaglet_status open_shards(struct token_store *store, const char *split, struct eaglet_error *err) {
  const json_t *shards = json_object_get(store->manifest, "shards");
  size_t i, capacity = 0;
  json_t *entry;
  store->shards = memory_alloc((json_array_size(shards) + 1) * sizeof *store->shards);
  json_array_foreach(shards, i, entry) {
    const char *name = json_string_value(json_object_get(entry, "file")),
               *its_split = json_string_value(json_object_get(entry, "split"));
    if (!name || !its_split || strchr(name, '/'))
      FAIL(err, EAGLET_E_INPUT, "%s/manifest.json: shards[%zu]: expected file and split", store->directory, i);
    if (strcmp(its_split, split) != 0) continue;
    char *path = file_join(store->directory, name);
    struct safetensors *file = &store->shards[store->n_shards];
    enum eaglet_status status = safetensors_open(file, path, err);
    free(path);
    TRY(status);
    store->n_shards++;
    TRY(check_shard_hash(file, entry, err));
    TRY(add_rows(store, &capacity, file, err));
  }
  return EAGLET_OK;
}

enum eaglet_status token_store_open(struct token_store *store, const char *directory, bool validation,
                                    struct eaglet_error *err) {
  if (!validation && foreign_store_is(directory)) return foreign_tokens_open(store, directory, true, err);
  *store = (struct token_store){.directory = memory_copy_string(directory)};
  enum eaglet_status status = read_manifest(store, err);
  if (status == EAGLET_OK) status = read_sources(store, err);
  if (status == EAGLET_OK) status = open_shards(store, validation ? "valid" : "train", err);
  if (status != EAGLET_OK) token_store_close(store);
  return status;
}

enum eaglet_status token_store_counts(const struct token_store *store, enum count_group group, size_t index, uint64_t **counts,
                                      struct eaglet_error *err) {
  struct safetensors file = {0};
  const struct tensor_entry *tensor;
  int64_t n_target = json_integer_value(json_object_get(store->manifest, "n_target"));
  char *path = file_join(store->directory, "counts.safetensors"),
       *name = group == COUNT_TOTAL ? memory_copy_string("total") : memory_format("%s.%zu", group == COUNT_SOURCE ? "source" : "language", index);
  *counts = NULL;
  enum eaglet_status status = safetensors_open(&file, path, err);
  if (status == EAGLET_OK) {
    status = find_vector(&tensor, &file, name, DTYPE_U64, n_target, err);
    if (status == EAGLET_OK) {
      *counts = memory_alloc((size_t)n_target * sizeof **counts);
      memcpy(*counts, tensor->data, (size_t)n_target * sizeof **counts);
    }
    safetensors_close(&file);
  }
  free(path);
  free(name);
  return status;
}

void token_store_close(struct token_store *store) {
  for (size_t i = 0; i < store->n_shards; i++) safetensors_close(&store->shards[i]);
  for (size_t i = 0; i < store->n_sources; i++) free(store->sources[i]);
  free(store->shards);
  free(store->sources);
  free(store->rows);
  free(store->own_ids);
  free(store->own_mask);
  free(store->directory);
  json_decref(store->manifest);
  *store = (struct token_store){0};
}
