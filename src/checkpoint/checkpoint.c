/* checkpoint.c - see checkpoint.h. Owns the configs, the mapped shards and the used marks; decides only which files are read. */
#include "checkpoint/checkpoint.h"

#include "base/memory.h"
#include "base/util.h"

#include <stdlib.h>
#include <string.h>


/* ---- names ---- */

static enum eaglet_status resolve_in_hub(char **path, const char *model, const char *hub_cache, struct eaglet_error *err) {
  const char *slash = strchr(model, '/'), *at = strchr(model, '@');
  int n_name = at ? (int)(at - model) : (int)strlen(model);
  const char *revision = at ? at + 1 : "main";
  char *folder = memory_format("%s/models--%.*s--%.*s", hub_cache, (int)(slash - model), model, n_name - (int)(slash - model) - 1, slash + 1);
  char *ref = memory_format("%s/refs/%s", folder, revision);
  char *snapshot = memory_format("%s/snapshots/%s", folder, revision);
  struct eaglet_text hash = {0};
  if (!file_is_directory(snapshot) && file_exists(ref) && file_read(&hash, ref, 4096, NULL) == EAGLET_OK) {
    free(snapshot);
    snapshot = memory_format("%s/snapshots/%.*s", folder, (int)strcspn(hash.data, "\r\n"), hash.data);
  }
  enum eaglet_status status = EAGLET_OK;
  if (file_is_directory(snapshot)) *path = memory_copy_string(snapshot);
  else status = error_set(err, EAGLET_E_INPUT, "%s: no such directory, and not in the hub cache (looked for %s); nothing is downloaded", model, snapshot);
  free(hash.data);
  free(folder);
  free(ref);
  free(snapshot);
  return status;
}

enum eaglet_status checkpoint_resolve(char **path, const char *model, const char *hub_cache, struct eaglet_error *err) {
  *path = NULL;
  if (file_is_directory(model)) {
    *path = memory_copy_string(model);
    return EAGLET_OK;
  }
  if (file_exists(model)) FAIL(err, EAGLET_E_INPUT, "%s: is a file; expected a model directory", model);
  const char *slash = strchr(model, '/');
  bool hub_name = slash && slash != model && slash[1] && !strchr(slash + 1, '/') && model[0] != '.' && !strstr(model, "..");
  if (hub_name && hub_cache) return resolve_in_hub(path, model, hub_cache, err);
  FAIL(err, EAGLET_E_INPUT, "%s: no such directory", model);
}

/* ---- which shards ---- */

static enum eaglet_status shard_name_check(const char *index, const char *name, struct eaglet_error *err) {
  if (!name) FAIL(err, EAGLET_E_INPUT, "%s: weight_map: expected file names", index);
  if (!name[0] || strchr(name, '/') || strstr(name, "..")) FAIL(err, EAGLET_E_INPUT, "%s: weight_map: refused file name '%s'", index, name);
  return EAGLET_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Distinct shard names of the index, sorted. */
static enum eaglet_status index_shards(struct file_list *shards, const json_t *map, const char *index, struct eaglet_error *err) {
  const char *tensor;
  json_t *value;
  if (!json_is_object(map) || json_object_size(map) == 0) FAIL(err, EAGLET_E_INPUT, "%s: weight_map: expected a filled object", index);
  json_t *seen = json_object();
  enum eaglet_status status = EAGLET_OK;
  json_object_foreach((json_t *)map, tensor, value) {
    status = shard_name_check(index, json_string_value(value), err);
    if (status != EAGLET_OK) break;
    int64_t count = json_integer_value(json_object_get(seen, json_string_value(value)));
    json_object_set_new(seen, json_string_value(value), json_integer(count + 1));
  }
  if (status == EAGLET_OK) {
    json_object_foreach(seen, tensor, value) {
      MEMORY_GROW(shards->names, shards->capacity, shards->n + 1);
      shards->names[shards->n++] = memory_copy_string(tensor);
    }
    qsort(shards->names, shards->n, sizeof *shards->names, by_text);
  }
  json_decref(seen);
  return status;
}

static enum eaglet_status shards_present(const struct checkpoint *checkpoint, const struct file_list *shards, const json_t *map, struct eaglet_error *err) {
  for (size_t i = 0; i < shards->n; i++) {
    char *path = file_join(checkpoint->path, shards->names[i]);
    bool present = file_exists(path);
    free(path);
    if (present) continue;
    size_t n_tensors = 0;
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)map, tensor, value) n_tensors += strcmp(json_string_value(value), shards->names[i]) == 0;
    FAIL(err, EAGLET_E_INPUT, "%s: missing shard %s, which holds %zu tensors (an interrupted download?)", checkpoint->path, shards->names[i], n_tensors);
  }
  return EAGLET_OK;
}

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

static enum eaglet_status directory_shards(struct checkpoint *checkpoint, struct file_list *shards, bool indexed, struct eaglet_error *err) {
  struct file_list all = {0};
  TRY(file_list_directory(&all, checkpoint->path, err));
  bool pickled = false;
  for (size_t i = 0; i < all.n; i++) {
    pickled |= ends_with(all.names[i], ".bin") || ends_with(all.names[i], ".pt") || ends_with(all.names[i], ".pth");
    if (!ends_with(all.names[i], ".safetensors")) continue;
    if (indexed) {
      bool named = bsearch(&all.names[i], shards->names, shards->n, sizeof *shards->names, by_text) != NULL;
      checkpoint->n_ignored += !named;
      continue;
    }
    MEMORY_GROW(shards->names, shards->capacity, shards->n + 1);
    shards->names[shards->n++] = memory_copy_string(all.names[i]);
  }
  file_list_clear(&all);
  if (shards->n == 0) {
    FAIL(err, EAGLET_E_INPUT, "%s: no *.safetensors file%s", checkpoint->path, pickled ? "; pickled weights (*.bin) are never read: convert them to safetensors" : "");
  }
  return EAGLET_OK;
}

/* ---- the union of tensors ---- */

static int by_tensor_name(const void *a, const void *b) {
  return strcmp((*(const struct tensor_entry *const *)a)->name, (*(const struct tensor_entry *const *)b)->name);
}

static enum eaglet_status open_shards(struct checkpoint *checkpoint, const struct file_list *shards, struct eaglet_error *err) {
  checkpoint->files = memory_alloc(shards->n * sizeof *checkpoint->files);
  for (size_t i = 0; i < shards->n; i++) {
    char *path = file_join(checkpoint->path, shards->names[i]);
    enum eaglet_status status = safetensors_open(&checkpoint->files[i], path, err);
    free(path);
    if (status != EAGLET_OK) return status;
    checkpoint->n_files++;
    checkpoint->n_tensors += checkpoint->files[i].n;
  }
  checkpoint->tensors = memory_alloc((checkpoint->n_tensors + 1) * sizeof *checkpoint->tensors);
  checkpoint->used = memory_alloc(checkpoint->n_tensors + 1);
  size_t n = 0;
  for (size_t i = 0; i < checkpoint->n_files; i++) {
    for (size_t j = 0; j < checkpoint->files[i].n; j++) {
      checkpoint->tensors[n++] = &checkpoint->files[i].tensors[j];
      checkpoint->n_bytes += checkpoint->files[i].tensors[j].n_bytes;
    }
  }
  qsort(checkpoint->tensors, n, sizeof *checkpoint->tensors, by_tensor_name);
  for (size_t i = 1; i < n; i++) {
    const struct tensor_entry *a = checkpoint->tensors[i - 1], *b = checkpoint->tensors[i];
    if (strcmp(a->name, b->name) == 0) FAIL(err, EAGLET_E_INPUT, "%s: stands in two files: %s and %s", a->name, a->path, b->path);
  }
  return EAGLET_OK;
}

static enum eaglet_status check_index(const struct checkpoint *checkpoint, const json_t *map, struct eaglet_error *err) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)map, name, value) {
    const struct tensor_entry *tensor = checkpoint_peek(checkpoint, name);
    const char *file = tensor ? strrchr(tensor->path, '/') : NULL;
    if (!tensor || strcmp(file ? file + 1 : tensor->path, json_string_value(value)) != 0) {
      FAIL(err, EAGLET_E_INPUT, "%s/model.safetensors.index.json: names %s in %s, but that file does not hold it (a stale index?)", checkpoint->path, name, json_string_value(value));
    }
  }
  return EAGLET_OK;
}

static enum eaglet_status open_weights(struct checkpoint *checkpoint, struct eaglet_error *err) {
  struct file_list shards = {0};
  json_t *index = NULL;
  char *path = file_join(checkpoint->path, "model.safetensors.index.json");
  enum eaglet_status status = EAGLET_OK;
  bool indexed = file_exists(path);
  const json_t *map = NULL;
  if (indexed) {
    TRY_GOTO(json_parse_file(&index, path, err), done);
    map = json_object_get(index, "weight_map");
    TRY_GOTO(index_shards(&shards, map, path, err), done);
    TRY_GOTO(shards_present(checkpoint, &shards, map, err), done);
  }
  TRY_GOTO(directory_shards(checkpoint, &shards, indexed, err), done);
  TRY_GOTO(open_shards(checkpoint, &shards, err), done);
  if (indexed) TRY_GOTO(check_index(checkpoint, map, err), done);
  if (checkpoint->n_ignored) log_warning("%s: %zu safetensors files that the index does not name are ignored", checkpoint->path, checkpoint->n_ignored);
done:
  file_list_clear(&shards);
  json_decref(index);
  free(path);
  return status;
}

static enum eaglet_status open_configs(struct checkpoint *checkpoint, struct eaglet_error *err) {
  char *path = file_join(checkpoint->path, "config.json");
  enum eaglet_status status = json_parse_file(&checkpoint->config, path, err);
  if (status == EAGLET_OK && !json_is_object(checkpoint->config)) status = error_set(err, EAGLET_E_INPUT, "%s: expected an object", path);
  free(path);
  if (status != EAGLET_OK) return status;
  path = file_join(checkpoint->path, "generation_config.json");
  if (file_exists(path)) status = json_parse_file(&checkpoint->generation_config, path, err);
  free(path);
  return status;
}

enum eaglet_status checkpoint_open(struct checkpoint *checkpoint, const char *path, struct eaglet_error *err) {
  *checkpoint = (struct checkpoint){.path = memory_copy_string(path)};
  enum eaglet_status status = open_configs(checkpoint, err);
  if (status == EAGLET_OK) status = open_weights(checkpoint, err);
  if (status != EAGLET_OK) checkpoint_close(checkpoint);
  return status;
}

static size_t tensor_at(const struct checkpoint *checkpoint, const char *name) {
  const struct tensor_entry key = {.name = name}, *p = &key;
  const struct tensor_entry **found =
      checkpoint->n_tensors ? bsearch(&p, checkpoint->tensors, checkpoint->n_tensors, sizeof *checkpoint->tensors, by_tensor_name) : NULL;
  return found ? (size_t)(found - checkpoint->tensors) : SIZE_MAX;
}

const struct tensor_entry *checkpoint_find(struct checkpoint *checkpoint, const char *name) {
  size_t at = tensor_at(checkpoint, name);
  if (at == SIZE_MAX) return NULL;
  checkpoint->used[at] = 1;
  return checkpoint->tensors[at];
}

const struct tensor_entry *checkpoint_peek(const struct checkpoint *checkpoint, const char *name) {
  size_t at = tensor_at(checkpoint, name);
  return at == SIZE_MAX ? NULL : checkpoint->tensors[at];
}

void checkpoint_close(struct checkpoint *checkpoint) {
  for (size_t i = 0; i < checkpoint->n_files; i++) safetensors_close(&checkpoint->files[i]);
  free(checkpoint->files);
  free(checkpoint->tensors);
  free(checkpoint->used);
  json_decref(checkpoint->config);
  json_decref(checkpoint->generation_config);
  free(checkpoint->path);
  *checkpoint = (struct checkpoint){0};
}
