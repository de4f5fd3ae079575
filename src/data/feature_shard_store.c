/* feature_shard_store.c - the store of our own shards; see feature_shard.h. Owns the mappings of all shards. Checks at open what can be
 * checked without reading the numbers, and the numbers of a row when it is read. */
#include "data/feature_shard.h"

#include "base/memory.h"
#include "data/feature_shard_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shard_store {
  struct feature_store base;
  struct shard_view *shards;
  size_t n_shards;
};

static bool shards_has(const struct feature_store *base, size_t row) {
  (void)base, (void)row; /* open refuses a store that lacks one */
  return true;
}

static enum eaglet_status shards_read(struct feature_store *base, size_t row, float *states, struct eaglet_error *err) {
  const struct shard_store *store = (const struct shard_store *)base;
  const struct feature_layout *layout = &base->layout;
  size_t rows = feature_shard_rows(layout);
  const struct shard_view *view = &store->shards[row / rows];
  int32_t n = base->tokens->rows[row].n, numbers[FEATURE_STATES_MAX + 1];
  struct feature_fault fault = {0};
  layout_numbers(numbers, layout);
  shard_view_read(view, layout, states, (const int64_t[]){view->begins[row % rows], n});
  const struct feature_numbers all = {.values = states, .states = numbers, .n_tokens = n, .n_slots = feature_layout_slots(layout), .hidden = layout->hidden};
  if (!feature_fault_find(&fault, &all)) return EAGLET_OK;
  enum eaglet_status status = feature_fault_fail(&fault, view->file.path, row, err);
  return status;
}

static void shards_close(struct feature_store *base) {
  struct shard_store *store = (struct shard_store *)base;
  for (size_t i = 0; i < store->n_shards; i++) safetensors_close(&store->shards[i].file);
  free(store->shards);
  free(store->base.path);
  free(store);
}

static const struct feature_store_kind kind_shards = {.name = "eaglet", .has = shards_has, .read = shards_read, .close = shards_close};

static enum eaglet_status parse_manifest(struct shard_store *store, const json_t *manifest, const char *path, struct eaglet_error *err) {
  const struct token_store *tokens = store->base.tokens;
  const char *token_hash, *model_hash;
  char expected[HASH_TEXT_BYTES];
  TRY(feature_manifest_parse(&store->base.layout, manifest, path, err));
  TRY(json_get_string_or(&token_hash, "", manifest, "token_hash", path, err));
  TRY(json_get_string_or(&model_hash, "", manifest, "model_hash", path, err));
  snprintf(store->base.model_hash, sizeof store->base.model_hash, "%s", model_hash);
  hash_text(expected, tokens->hash);
  if (strcmp(expected, token_hash) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: token_hash: expected %s (%s), found %.40s: features of other rows", path, expected,
         tokens->directory, token_hash);
  return EAGLET_OK;
}

static enum eaglet_status read_manifest(struct shard_store *store, struct eaglet_error *err) {
  char *path = file_join(store->base.path, "manifest.json");
  json_t *manifest = NULL;
  enum eaglet_status status = json_parse_file(&manifest, path, err);
  if (status == EAGLET_OK) status = parse_manifest(store, manifest, path, err);
  json_decref(manifest);
  free(path);
  return status;
}

static enum eaglet_status open_shard(struct shard_store *store, struct eaglet_error *err) {
  const struct token_store *tokens = store->base.tokens;
  size_t rows = feature_shard_rows(&store->base.layout), index = store->n_shards, first = index * rows,
         n = tokens->n_rows - first < rows ? tokens->n_rows - first : rows;
  const struct feature_examination expected = {.layout = &store->base.layout, .rows = tokens->rows + first, .n_rows = n};
  char *path = feature_shard_path(store->base.path, index);
  enum eaglet_status status =
      file_exists(path)
          ? shard_view_open(&store->shards[index], path, &expected, err)
          : error_set(err, EAGLET_E_INPUT, "%s: not there: the extraction did not finish; run extract again", path);
  free(path);
  if (status == EAGLET_OK) store->n_shards++;
  return status;
}

enum eaglet_status feature_shards_open(struct feature_store **out, const char *directory, const struct token_store *tokens,
                                       struct eaglet_error *err) {
  struct shard_store *store = memory_alloc(sizeof *store);
  *out = NULL;
  store->base = (struct feature_store){.kind = &kind_shards, .tokens = tokens, .named = true, .n_covered = tokens->n_rows};
  store->base.path = memory_copy_string(directory);
  enum eaglet_status status = read_manifest(store, err);
  size_t rows = feature_shard_rows(&store->base.layout), n_shards = (tokens->n_rows + rows - 1) / rows;
  store->shards = memory_alloc((n_shards + 1) * sizeof *store->shards);
  while (status == EAGLET_OK && store->n_shards < n_shards) status = open_shard(store, err);
  if (status != EAGLET_OK) {
    feature_store_close(&store->base);
    return status;
  }
  *out = &store->base;
  return EAGLET_OK;
}
