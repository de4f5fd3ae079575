/* token_writer.c - writes a data directory; see token_shard.h. Owns the buffered rows and the counts. The hard part is
 * that a failure at any moment leaves a directory that was finished before unchanged: new shards stand beside the old
 * ones until the commit. */
#include "data/token_shard.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARD_TOKENS ((size_t)4 << 20) /* 16 MiB of ids */
#define NEW_SUFFIX ".new"

struct group_counts {
  char *name;
  uint64_t *counts; /* [n_target] */
  uint64_t n_rows, n_tokens, n_trained;
};
struct group_list { /* of the sources, of the languages */
  const char *kind;
  struct group_counts groups[SOURCES_MAX];
  int32_t n;
};

/* Rows of one split that wait for their shard, and the manifest entries of the shards written. */
struct split {
  const char *name; /* "train", "valid" */
  int32_t *tokens;
  size_t tokens_capacity;
  uint8_t *mask;
  size_t mask_capacity;
  int64_t *begins; /* [n_rows + 1] */
  size_t begins_capacity;
  uint64_t *hashes;
  size_t hashes_capacity;
  int32_t *sources;
  size_t sources_capacity;
  size_t n_rows, n_tokens, n_trained;
  json_t *shards;
};

struct token_writer {
  char *directory;
  json_t *manifest;
  int32_t n_target;
  struct split splits[2]; /* train, valid */
  struct group_list sources, languages;
};

/* ---- old and new shards ---- */

static bool is_shard(const char *name, const char *suffix) {
  int length = 0;
  bool split = sscanf(name, "train-%*[0-9].safetensors%n", &length) == 0 && length > 0;
  if (!split) length = 0, split = sscanf(name, "valid-%*[0-9].safetensors%n", &length) == 0 && length > 0;
  return split && strcmp(name + length, suffix) == 0;
}

enum shard_action { SHARD_REMOVE, SHARD_RENAME };

/* Removes the shards with the suffix, or renames them to their name without it. */
static enum eaglet_status for_shards(const char *directory, const char *suffix, enum shard_action action,
                                     struct eaglet_error *err) {
  struct file_list list = {0};
  TRY(file_list_directory(&list, directory, err));
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < list.n && status == EAGLET_OK; i++) {
    if (!is_shard(list.names[i], suffix)) continue;
    char *path = file_join(directory, list.names[i]), *renamed = memory_copy_span(path, strlen(path) - strlen(suffix));
    status = action == SHARD_REMOVE ? file_remove(path, err) : file_rename(path, renamed, err);
    free(path);
    free(renamed);
  }
  file_list_clear(&list);
  return status;
}

/* ---- open and rows ---- */

enum eaglet_status token_writer_open(struct token_writer **writer, const struct token_writer_params *params,
                                     struct eaglet_error *err) {
  int64_t n_target;
  *writer = NULL;
  TRY(json_get_int(&n_target, params->manifest, "n_target", "manifest", err));
  if (n_target < 1 || n_target > INT32_MAX)
    FAIL(err, EAGLET_E_INPUT, "manifest: n_target: expected a vocabulary size, found %lld", (long long)n_target);
  TRY(file_make_directory(params->directory, err));
  TRY(for_shards(params->directory, NEW_SUFFIX, SHARD_REMOVE, err));
  struct token_writer *w = memory_alloc(sizeof *w);
  w->directory = memory_copy_string(params->directory);
  w->manifest = json_deep_copy(params->manifest);
  w->n_target = (int32_t)n_target;
  w->sources.kind = "source";
  w->languages.kind = "language";
  w->splits[0] = (struct split){.name = "train", .shards = json_array()};
  w->splits[1] = (struct split){.name = "valid", .shards = json_array()};
  *writer = w;
  return EAGLET_OK;
}

static enum eaglet_status find_group(struct group_list *list, int32_t n_target, const char *name, int32_t *index,
                                     struct eaglet_error *err) {
  for (*index = 0; *index < list->n; ++*index) {
    if (strcmp(list->groups[*index].name, name) == 0) return EAGLET_OK;
  }
  if (list->n == SOURCES_MAX)
    FAIL(err, EAGLET_E_INPUT, "%s '%s': expected at most %d %ss, found more", list->kind, name, SOURCES_MAX, list->kind);
  list->groups[list->n++] = (struct group_counts){.name = memory_copy_string(name),
                                                  .counts = memory_alloc((size_t)n_target * sizeof(uint64_t))};
  return EAGLET_OK;
}

static void count_row(struct group_counts *group, const struct token_row *row) {
  group->n_rows++;
  group->n_tokens += (uint64_t)row->n;
  for (int32_t i = 0; i < row->n; i++) {
    group->n_trained += row->mask[i];
    group->counts[row->tokens[i]] += row->mask[i];
  }
}

static void release_groups(struct group_list *list) {
  for (int32_t i = 0; i < list->n; i++) {
    free(list->groups[i].name);
    free(list->groups[i].counts);
  }
}

static enum eaglet_status hash_file(char text[HASH_TEXT_BYTES], const char *path, struct eaglet_error *err) {
  struct file_map map = {0};
  TRY(file_map_open(&map, path, err));
  hash_text(text, file_hash(map.data, map.length, 0));
  file_map_close(&map);
  return EAGLET_OK;
}

static void add_tensors(struct safetensors_writer *file, const struct split *s) {
  const int64_t rows[] = {(int64_t)s->n_rows}, begins[] = {(int64_t)s->n_rows + 1}, tokens[] = {(int64_t)s->n_tokens};
  /* wide elements first: every tensor is aligned in the mapping */
  safetensors_writer_add(file, "row_begin", DTYPE_I64, 1, begins, s->begins);
  safetensors_writer_add(file, "row_hash", DTYPE_U64, 1, rows, s->hashes);
  safetensors_writer_add(file, "tokens", DTYPE_I32, 1, tokens, s->tokens);
  safetensors_writer_add(file, "row_source", DTYPE_I32, 1, rows, s->sources);
  safetensors_writer_add(file, "mask", DTYPE_U8, 1, tokens, s->mask);
}

static enum eaglet_status flush(struct token_writer *w, struct split *s, struct eaglet_error *err) {
  if (s->n_rows == 0) return EAGLET_OK;
  char hash[HASH_TEXT_BYTES];
  char *name = memory_format("%s-%05zu.safetensors", s->name, json_array_size(s->shards)),
       *path = memory_format("%s/%s" NEW_SUFFIX, w->directory, name);
  struct safetensors_writer *file = safetensors_writer_create();
  safetensors_writer_metadata(file, "format", "eaglet-tokens");
  add_tensors(file, s);
  enum eaglet_status status = safetensors_writer_commit(file, path, err);
  if (status == EAGLET_OK) status = hash_file(hash, path, err);
  if (status == EAGLET_OK) {
    json_array_append_new(s->shards, json_pack("{ss ss sI sI sI ss}", "file", name, "split", s->name, "rows",
                                               (json_int_t)s->n_rows, "tokens", (json_int_t)s->n_tokens,
                                               "trained_tokens", (json_int_t)s->n_trained, "xxh3", hash));
    s->n_rows = s->n_tokens = s->n_trained = 0;
  }
  safetensors_writer_free(file);
  free(name);
  free(path);
  return status;
}

static enum eaglet_status check_row(const struct token_writer *w, const struct token_row *row,
                                    struct eaglet_error *err) {
  if (row->n < 1) FAIL(err, EAGLET_E_INTERNAL, "token row: expected tokens, found none");
  for (int32_t i = 0; i < row->n; i++) {
    if (row->tokens[i] < 0 || row->tokens[i] >= w->n_target)
      FAIL(err, EAGLET_E_INPUT, "token %d at %d: the vocabulary has %d ids", row->tokens[i], i, w->n_target);
  }
  return EAGLET_OK;
}

static void append_row(struct split *s, const struct token_row *row, int32_t source) {
  size_t n = (size_t)row->n;
  MEMORY_GROW(s->tokens, s->tokens_capacity, s->n_tokens + n);
  MEMORY_GROW(s->mask, s->mask_capacity, s->n_tokens + n);
  MEMORY_GROW(s->begins, s->begins_capacity, s->n_rows + 2);
  MEMORY_GROW(s->hashes, s->hashes_capacity, s->n_rows + 1);
  MEMORY_GROW(s->sources, s->sources_capacity, s->n_rows + 1);
  memcpy(s->tokens + s->n_tokens, row->tokens, n * sizeof *row->tokens);
  memcpy(s->mask + s->n_tokens, row->mask, n);
  s->hashes[s->n_rows] = token_row_hash(row->tokens, row->mask, row->n);
  s->sources[s->n_rows] = source;
  s->begins[0] = 0;
  s->n_tokens += n;
  s->begins[++s->n_rows] = (int64_t)s->n_tokens;
}

enum eaglet_status token_writer_add(struct token_writer *w, const struct token_row *row, const struct row_origin *origin,
                                    bool validation, struct eaglet_error *err) {
  struct split *s = &w->splits[validation];
  int32_t source, language = -1;
  TRY(check_row(w, row, err));
  TRY(find_group(&w->sources, w->n_target, origin->source, &source, err));
  if (origin->language) TRY(find_group(&w->languages, w->n_target, origin->language, &language, err));
  append_row(s, row, source);
  count_row(&w->sources.groups[source], row);
  if (language >= 0) count_row(&w->languages.groups[language], row);
  for (int32_t i = 0; i < row->n; i++) s->n_trained += row->mask[i];
  return s->n_tokens >= SHARD_TOKENS ? flush(w, s, err) : EAGLET_OK;
}

/* ---- commit ---- */

static void add_counts(struct safetensors_writer *file, const struct group_list *list, int32_t n_target) {
  const int64_t shape[] = {n_target};
  char name[32];
  for (int32_t i = 0; i < list->n; i++) {
    snprintf(name, sizeof name, "%s.%d", list->kind, i);
    safetensors_writer_add(file, name, DTYPE_U64, 1, shape, list->groups[i].counts);
  }
}

static enum eaglet_status write_counts(const struct token_writer *w, struct eaglet_error *err) {
  const int64_t shape[] = {w->n_target};
  char *path = file_join(w->directory, "counts.safetensors");
  uint64_t *total = memory_alloc((size_t)w->n_target * sizeof *total);
  struct safetensors_writer *file = safetensors_writer_create();
  safetensors_writer_metadata(file, "format", "eaglet-counts");
  for (int32_t s = 0; s < w->sources.n; s++) {
    for (int32_t i = 0; i < w->n_target; i++) total[i] += w->sources.groups[s].counts[i];
  }
  add_counts(file, &w->sources, w->n_target);
  add_counts(file, &w->languages, w->n_target);
  safetensors_writer_add(file, "total", DTYPE_U64, 1, shape, total);
  enum eaglet_status status = safetensors_writer_commit(file, path, err);
  safetensors_writer_free(file);
  free(total);
  free(path);
  return status;
}

static json_t *describe_group(const struct group_counts *g) {
  return json_pack("{sI sI sI}", "rows", (json_int_t)g->n_rows, "tokens", (json_int_t)g->n_tokens, "trained_tokens", (json_int_t)g->n_trained);
}

static json_t *describe_groups(const struct group_list *list) {
  json_t *array = json_array();
  for (int32_t i = 0; i < list->n; i++) {
    json_t *entry = json_pack("{ss}", "name", list->groups[i].name), *counts = describe_group(&list->groups[i]);
    json_object_update(entry, counts);
    json_decref(counts);
    json_array_append_new(array, entry);
  }
  return array;
}

json_t *token_writer_sources(const struct token_writer *w) {
  json_t *sources = json_object();
  for (int32_t i = 0; i < w->sources.n; i++) json_object_set_new(sources, w->sources.groups[i].name, describe_group(&w->sources.groups[i]));
  return sources;
}

static void complete_manifest(struct token_writer *w, const json_t *report) {
  json_t *shards = json_array();
  for (int i = 0; i < 2; i++) json_array_extend(shards, w->splits[i].shards);
  json_object_set_new(w->manifest, "format", json_string("eaglet-tokens"));
  json_object_set_new(w->manifest, "version", json_integer(1));
  json_object_set_new(w->manifest, "sources", describe_groups(&w->sources));
  json_object_set_new(w->manifest, "languages", describe_groups(&w->languages));
  json_object_set_new(w->manifest, "shards", shards);
  if (report) json_object_set(w->manifest, "report", (json_t *)report);
}

/* From here the old directory is given up: without a manifest it is unfinished until the new one stands. */
static enum eaglet_status replace_files(const struct token_writer *w, const char *manifest_path,
                                        struct eaglet_error *err) {
  TRY(file_remove(manifest_path, err));
  TRY(for_shards(w->directory, "", SHARD_REMOVE, err));
  TRY(for_shards(w->directory, NEW_SUFFIX, SHARD_RENAME, err));
  TRY(write_counts(w, err));
  struct eaglet_text text = json_dump(w->manifest, 2);
  enum eaglet_status status = file_write(manifest_path, text.data, text.length, err);
  free(text.data);
  return status;
}

enum eaglet_status token_writer_commit(struct token_writer *w, const json_t *report, struct eaglet_error *err) {
  for (int i = 0; i < 2; i++) TRY(flush(w, &w->splits[i], err));
  complete_manifest(w, report);
  char *path = file_join(w->directory, "manifest.json");
  enum eaglet_status status = replace_files(w, path, err);
  free(path);
  return status;
}

void token_writer_free(struct token_writer *w) {
  if (!w) return;
  (void)!for_shards(w->directory, NEW_SUFFIX, SHARD_REMOVE, NULL);
  for (int i = 0; i < 2; i++) {
    struct split *s = &w->splits[i];
    void *blocks[] = {s->tokens, s->mask, s->begins, s->hashes, s->sources};
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) free(blocks[b]);
    json_decref(s->shards);
  }
  release_groups(&w->sources);
  release_groups(&w->languages);
  json_decref(w->manifest);
  free(w->directory);
  free(w);
}
