/* vocab.c - vocab_run of prepare.h: counts of a data directory -> draft vocabulary file. The choice itself is
 * draft/vocab_map.c's. */
#include "train/prepare.h"

#include "base/memory.h"
#include "base/util.h"
#include "data/token_shard.h"
#include "draft/vocab_map.h"

#include <stdio.h>
#include <stdlib.h>

#define COVERAGE_LOW 0.95

/* End-of-turn and special ids that prepare recorded. Caller frees. */
static enum eaglet_status read_must(const struct token_store *store, int32_t **must, size_t *n_must,
                                    struct eaglet_error *err) {
  static const char *const names[] = {"stop_ids", "special_ids"};
  *n_must = 0;
  *must = NULL;
  for (size_t k = 0; k < 2; k++) {
    const json_t *ids = json_object_get(store->manifest, names[k]);
    size_t i;
    json_t *id;
    if (!json_is_array(ids))
      FAIL(err, EAGLET_E_INPUT, "%s/manifest.json: %s: expected an array", store->directory, names[k]);
    *must = memory_resize(*must, (*n_must + json_array_size(ids) + 1) * sizeof **must);
    json_array_foreach(ids, i, id) {
      if (!json_is_integer(id)) {
        free(*must);
        *must = NULL;
        FAIL(err, EAGLET_E_INPUT, "%s/manifest.json: %s[%zu]: expected a token id", store->directory, names[k], i);
      }
      (*must)[(*n_must)++] = (int32_t)json_integer_value(id);
    }
  }
  return EAGLET_OK;
}

/* counts: of the source. An empty source is covered. */
static double coverage_of(const struct vocab_map *map, const uint64_t *counts, uint64_t *n_trained) {
  uint64_t inside = 0;
  *n_trained = 0;
  for (int32_t i = 0; i < map->n_target; i++) {
    *n_trained += counts[i];
    if (map->draft[i] >= 0) inside += counts[i];
  }
  return *n_trained ? (double)inside / (double)*n_trained : 1.0;
}

/* Coverage of each of the manifest's groups, and a warning for every one that is low. */
static enum eaglet_status report_groups(json_t *report, json_t *warnings, const struct token_store *store, const struct vocab_map *map,
                                        enum count_group group, struct eaglet_error *err) {
  const char *key = group == COUNT_SOURCE ? "sources" : "languages", *kind = group == COUNT_SOURCE ? "source" : "language";
  json_t *groups = json_object(), *entry;
  size_t i;
  json_object_set_new(report, key, groups);
  json_array_foreach(json_object_get(store->manifest, key), i, entry) {
    const char *name = json_string_value(json_object_get(entry, "name"));
    uint64_t *counts, n_trained;
    if (!name) FAIL(err, EAGLET_E_INPUT, "%s/manifest.json: %s[%zu]: expected a name", store->directory, key, i);
    TRY(token_store_counts(store, group, i, &counts, err));
    double coverage = coverage_of(map, counts, &n_trained);
    free(counts);
    json_object_set_new(groups, name, json_pack("{sf sI}", "coverage", coverage, "trained_tokens", (json_int_t)n_trained));
    if (coverage >= COVERAGE_LOW) continue;
    char *words = memory_format("%s '%s': the draft vocabulary covers %.1f %% of its %llu trained tokens; the head cannot draft the rest", kind,
                                name, 100 * coverage, (unsigned long long)n_trained);
    log_warning("%s", words);
    json_array_append_new(warnings, json_string(words));
    free(words);
  }
  return EAGLET_OK;
}

static enum eaglet_status choose(struct vocab_map *map, struct vocab_choice *choice, const struct token_store *store,
                                 int32_t size, struct eaglet_error *err) {
  int32_t *must = NULL;
  uint64_t *counts = NULL;
  if (size >= choice->n_target || size <= 0) {
    choice->coverage = 1;
    choice->n_draft = choice->n_target;
    return vocab_map_identity(map, choice->n_target, err);
  }
  choice->n_draft = size;
  enum eaglet_status status = token_store_counts(store, COUNT_TOTAL, 0, &counts, err);
  if (status == EAGLET_OK) status = read_must(store, &must, &choice->n_must, err);
  if (status == EAGLET_OK) {
    choice->counts = counts;
    choice->must = must;
    status = vocab_map_choose(map, choice, err);
  }
  free(counts);
  free(must);
  return status;
}

static enum eaglet_status write_file(const struct vocab_map *map, const struct token_store *store, const char *path,
                                     struct eaglet_error *err) {
  char size[16], data[HASH_TEXT_BYTES], own[HASH_TEXT_BYTES];
  void *storage = NULL;
  struct safetensors_writer *writer = safetensors_writer_create();
  const char *tokenizer = json_string_value(json_object_get(store->manifest, "tokenizer_hash"));
  hash_text(data, store->hash);
  hash_text(own, vocab_map_hash(map));
  safetensors_writer_metadata(writer, "format", "eaglet-vocab");
  snprintf(size, sizeof size, "%d", map->n_draft);
  safetensors_writer_metadata(writer, "draft_vocab_size", size);
  snprintf(size, sizeof size, "%d", map->n_target);
  safetensors_writer_metadata(writer, "vocab_size", size);
  safetensors_writer_metadata(writer, "tokenizer_hash", tokenizer ? tokenizer : "");
  safetensors_writer_metadata(writer, "token_hash", data);
  safetensors_writer_metadata(writer, "vocab_hash", own);
  vocab_map_write(map, writer, &storage);
  enum eaglet_status status = safetensors_writer_commit(writer, path, err);
  safetensors_writer_free(writer);
  free(storage);
  return status;
}

enum eaglet_status vocab_run(const struct eaglet_vocab_params *params, struct eaglet_text *text,
                             struct eaglet_error *err) {
  struct token_store store = {0};
  struct vocab_map map = {0};
  *text = (struct eaglet_text){0};
  if (!params->data || !params->out) FAIL(err, EAGLET_E_USAGE, "vocab: expected a data directory and an output file");
  if (params->size < 0) FAIL(err, EAGLET_E_USAGE, "vocab: size: expected 0 or more, found %d", params->size);
  TRY(token_store_open(&store, params->data, false, err));
  struct vocab_choice choice = {.n_target = (int32_t)json_integer_value(json_object_get(store.manifest, "n_target"))};
  if (choice.n_target < 1) {
    token_store_close(&store);
    FAIL(err, EAGLET_E_INPUT, "%s: samples of another program do not say how large the vocabulary is: prepare the conversations and pass that directory", params->data);
  }
  json_t *report = json_object();
  enum eaglet_status status = choose(&map, &choice, &store, params->size, err);
  if (status == EAGLET_OK) {
    json_object_set_new(report, "out", json_string(params->out));
    json_object_set_new(report, "size", json_integer(map.n_draft));
    json_object_set_new(report, "target_size", json_integer(map.n_target));
    json_object_set_new(report, "coverage", json_real(choice.coverage));
    json_object_set_new(report, "padded", json_integer(choice.n_padded));
    json_t *warnings = json_array();
    json_object_set_new(report, "warnings", warnings);
    status = report_groups(report, warnings, &store, &map, COUNT_SOURCE, err);
    if (status == EAGLET_OK) status = report_groups(report, warnings, &store, &map, COUNT_LANGUAGE, err);
  }
  if (status == EAGLET_OK) status = write_file(&map, &store, params->out, err);
  if (status == EAGLET_OK) *text = json_dump(report, 0);
  json_decref(report);
  vocab_map_release(&map);
  token_store_close(&store);
  return status;
}
