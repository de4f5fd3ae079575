/* prepared_before.c - see prepared_before.h. Reads manifests with the suspicion that they deserve: whatever is not as expected is a
 * difference, never an error. */
#include "train/prepared_before.h"

#include "base/file.h"
#include "base/memory.h"
#include "data/token_shard.h"

#include <stdlib.h>
#include <string.h>

enum eaglet_status prepared_add_files(json_t *inputs, bool *known, const json_t *files, struct eaglet_error *err) {
  json_t *list = json_array(), *name;
  size_t i;
  json_object_set_new(inputs, "files", list);
  *known = true;
  json_array_foreach(files, i, name) {
    const char *path = json_string_value(name);
    char text[HASH_TEXT_BYTES];
    uint64_t hash;
    *known &= file_is_regular(path);
    if (!*known) return EAGLET_OK;
    TRY(file_hash_contents(path, &hash, err));
    hash_text(text, hash);
    json_array_append_new(list, json_pack("{ss sI ss}", "file", path, "bytes", (json_int_t)file_length(path), "xxh3", text));
  }
  return EAGLET_OK;
}

/* The first difference of two objects, objects inside named by "settings.seed"; heap, NULL when there is none. */
static char *first_difference(const char *prefix, const json_t *before, const json_t *now) {
  char *then_text, *now_text;
  const char *key = json_first_difference(now, before, &now_text, &then_text);
  if (!key) key = json_first_difference(before, now, &then_text, &now_text); /* what only the older one has */
  const json_t *then = json_object_get(before, key), *value = json_object_get(now, key);
  char *text = NULL;
  if (json_is_object(then) && json_is_object(value)) text = first_difference(key, then, value);
  else if (key) text = memory_format("%s%s%s: %.120s, now %.120s", prefix, *prefix ? "." : "", key, then_text, now_text);
  free(then_text);
  free(now_text);
  return text;
}

/* Why the directory's shards are not as they were written; heap, NULL when they are. */
static char *damage(const char *directory, const json_t *manifest) {
  const json_t *shards = json_object_get(manifest, "shards");
  json_t *shard;
  size_t i;
  char *what = json_array_size(shards) > 0 ? NULL : memory_copy_string("no shards");
  json_array_foreach(shards, i, shard) {
    const char *name = json_string_value(json_object_get(shard, "file")), *expected = json_string_value(json_object_get(shard, "xxh3"));
    char *path = file_join(directory, name ? name : ""), found[HASH_TEXT_BYTES];
    uint64_t hash = 0;
    bool read = name && !what && file_is_regular(path) && file_hash_contents(path, &hash, NULL) == EAGLET_OK;
    hash_text(found, hash);
    if (!what && (!read || !expected || strcmp(expected, found) != 0))
      what = memory_format("%s, which is %s", name ? name : "a shard without a name", read ? "not as it was written (checksum)" : "missing");
    free(path);
  }
  return what;
}

void prepared_find(json_t **report, char **difference, const char *directory, const json_t *inputs) {
  char *path = file_join(directory, "manifest.json");
  json_t *manifest = NULL;
  *report = NULL;
  *difference = NULL;
  if (file_exists(path) && json_parse_file(&manifest, path, NULL) == EAGLET_OK) {
    const json_t *before = json_object_get(manifest, "inputs"), *found = json_object_get(manifest, "report");
    if (!before || !json_is_object(found)) *difference = memory_copy_string("it was prepared by an older version");
    else *difference = first_difference("", before, inputs);
    if (!*difference) *difference = damage(directory, manifest);
    if (!*difference) *report = json_deep_copy(found);
  }
  json_decref(manifest);
  free(path);
}
