/* checkpoint.c - see checkpoint.h. Owns the configs, the mapped shards and the used marks; decides only which files are read. */
#include "checkpoint/checkpoint.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/util.h"
#include "checkpoint/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_NAME "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"
#define MISSING_NAMED_MAX 8 /* shards that one message lists */

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

static size_t tensors_in_shard(const json_t *map, const char *shard) {
  size_t n_tensors = 0;
  const char *tensor;
  json_t *value;
  json_object_foreach((json_t *)map, tensor, value) n_tensors += strcmp(json_string_value(value), shard) == 0;
  return n_tensors;
}

static enum eaglet_status shards_present(const struct checkpoint *checkpoint, const struct file_list *shards, const json_t *map, struct eaglet_error *err) {
  struct buffer missing;
  size_t n_missing = 0;
  buffer_init(&missing);
  for (size_t i = 0; i < shards->n; i++) {
    char *path = file_join(checkpoint->path, shards->names[i]);
    bool present = file_exists(path);
    free(path);
    if (present || n_missing++ >= MISSING_NAMED_MAX) continue;
    buffer_format(&missing, "%s%s (%zu tensors)", n_missing > 1 ? ", " : "", shards->names[i], tensors_in_shard(map, shards->names[i]));
  }
  if (n_missing > MISSING_NAMED_MAX) buffer_format(&missing, " and %zu more", n_missing - MISSING_NAMED_MAX);
  enum eaglet_status status = EAGLET_OK;
  if (n_missing > 0) {
    char *advice = hub_advice(checkpoint->path);
    status = error_set(err, EAGLET_E_INPUT, "%s: missing %zu of %zu shards (an interrupted download?): %s%s", checkpoint->path, n_missing, shards->n, missing.data, advice);
    free(advice);
  }
  buffer_clear(&missing);
  return status;
}

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

/* Hidden files are not weights: no shell pattern gives them, and other systems leave such shadows behind. */
static bool is_weight_file(const char *name) { return name[0] != '.' && ends_with(name, ".safetensors"); }

static bool is_pickled(const char *name) { return ends_with(name, ".bin") || ends_with(name, ".pt") || ends_with(name, ".pth"); }

static bool list_holds(const struct file_list *list, const char *name) {
  return list->n && bsearch(&name, list->names, list->n, sizeof *list->names, by_text) != NULL;
}

/* "model-00002-of-00003.safetensors": number 2 of 3. */
static bool shard_number(const char *name, unsigned *number, unsigned *total) {
  const char *of = strstr(name, "-of-");
  size_t n_digits = 0;
  if (!of) return false;
  while (of - n_digits > name && of[-(ptrdiff_t)n_digits - 1] >= '0' && of[-(ptrdiff_t)n_digits - 1] <= '9') n_digits++;
  int end = 0;
  return n_digits > 0 && n_digits <= 6 && sscanf(of - n_digits, "%6u-of-%6u.safetensors%n", number, total, &end) == 2 && end > 0 &&
         of[(ptrdiff_t)end - (ptrdiff_t)n_digits] == '\0';
}

/* Without an index the numbers in the names are all that tells of a shard that did not arrive (A05). */
static enum eaglet_status check_numbers(const struct checkpoint *checkpoint, const struct file_list *shards, struct eaglet_error *err) {
  for (size_t i = 0; i < shards->n; i++) {
    unsigned number, total, other, its_total;
    const char *name = shards->names[i];
    if (!shard_number(name, &number, &total)) continue;
    unsigned n_found = 0, first_missing = 0;
    for (unsigned wanted = 1; wanted <= total && wanted <= shards->n + 1; wanted++) {
      bool found = false;
      for (size_t k = 0; k < shards->n && !found; k++) {
        found = shard_number(shards->names[k], &other, &its_total) && other == wanted && its_total == total;
      }
      n_found += found;
      if (!found && first_missing == 0) first_missing = wanted;
    }
    if (first_missing == 0 && n_found == total) continue;
    char *advice = hub_advice(checkpoint->path);
    error_set(err, EAGLET_E_INPUT, "%s: %s is one of %u shards, but number %u is not there, and there is no " INDEX_NAME " (an interrupted download?)%s",
              checkpoint->path, name, total, first_missing, advice);
    free(advice);
    return EAGLET_E_INPUT;
  }
  return EAGLET_OK;
}

static enum eaglet_status unindexed_shards(struct checkpoint *checkpoint, struct file_list *shards, const struct file_list *all,
                                           struct eaglet_error *err) {
  bool pickled = false, model = false;
  for (size_t i = 0; i < all->n; i++) model |= is_weight_file(all->names[i]) && !strncmp(all->names[i], "model", 5);
  for (size_t i = 0; i < all->n; i++) {
    pickled |= is_pickled(all->names[i]);
    if (!is_weight_file(all->names[i])) continue;
    if (model && !strncmp(all->names[i], "consolidated", 12)) {
      checkpoint->n_ignored++;
      log_warning("%s: %s is passed over: the same weights under their maker's names", checkpoint->path, all->names[i]);
      continue;
    }
    MEMORY_GROW(shards->names, shards->capacity, shards->n + 1);
    shards->names[shards->n++] = memory_copy_string(all->names[i]);
  }
  if (shards->n > 0) return check_numbers(checkpoint, shards, err);
  char *advice = pickled ? memory_copy_string("; pickled weights (*.bin, *.pt) are never read: convert them to safetensors") : hub_advice(checkpoint->path);
  error_set(err, EAGLET_E_INPUT, "%s: no *.safetensors file%s", checkpoint->path, advice);
  free(advice);
  return EAGLET_E_INPUT;
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
      FAIL(err, EAGLET_E_INPUT, "%s/" INDEX_NAME ": names %s in %s, but that file does not hold it (a stale index? --ignore-index reads every *.safetensors file instead)", checkpoint->path, name, json_string_value(value));
    }
  }
  return EAGLET_OK;
}

static enum eaglet_status open_indexed(struct checkpoint *checkpoint, const struct file_list *all, struct eaglet_error *err) {
  struct file_list shards = {0};
  json_t *index = NULL;
  char *path = file_join(checkpoint->path, INDEX_NAME);
  enum eaglet_status status = EAGLET_OK;
  TRY_GOTO(json_parse_file(&index, path, err), done);
  const json_t *map = json_object_get(index, "weight_map");
  TRY_GOTO(index_shards(&shards, map, path, err), done);
  TRY_GOTO(shards_present(checkpoint, &shards, map, err), done);
  TRY_GOTO(open_shards(checkpoint, &shards, err), done);
  TRY_GOTO(check_index(checkpoint, map, err), done);
  for (size_t i = 0; i < all->n; i++) checkpoint->n_ignored += is_weight_file(all->names[i]) && !list_holds(&shards, all->names[i]);
  if (checkpoint->n_ignored) log_warning("%s: %zu safetensors files that the index does not name are ignored", checkpoint->path, checkpoint->n_ignored);
done:
  file_list_clear(&shards);
  json_decref(index);
  free(path);
  return status;
}

/* The listing decides whether there is an index: a dangling link to one (a hub cache cut short) is an error, not its absence. */
static enum eaglet_status open_weights(struct checkpoint *checkpoint, const struct checkpoint_params *params, struct eaglet_error *err) {
  struct file_list all, shards = {0};
  TRY(file_list_directory(&all, checkpoint->path, err));
  enum eaglet_status status;
  if (params->prefer_single && list_holds(&all, SINGLE_NAME)) {
    char *names[] = {SINGLE_NAME};
    const struct file_list single = {.names = names, .n = 1};
    status = open_shards(checkpoint, &single, err);
  } else if (list_holds(&all, INDEX_NAME) && !params->ignore_index) {
    status = open_indexed(checkpoint, &all, err);
  } else {
    status = unindexed_shards(checkpoint, &shards, &all, err);
    if (status == EAGLET_OK) status = open_shards(checkpoint, &shards, err);
  }
  file_list_clear(&shards);
  file_list_clear(&all);
  return status;
}

static enum eaglet_status open_object(json_t **object, const char *directory, const char *name, struct eaglet_error *err) {
  char *path = file_join(directory, name);
  enum eaglet_status status = json_parse_file(object, path, err);
  if (status == EAGLET_OK && !json_is_object(*object)) status = error_set(err, EAGLET_E_INPUT, "%s: expected an object", path);
  free(path);
  return status;
}

static enum eaglet_status open_configs(struct checkpoint *checkpoint, struct eaglet_error *err) {
  enum eaglet_status status = open_object(&checkpoint->config, checkpoint->path, "config.json", err);
  if (status != EAGLET_OK) {
    char *config = file_join(checkpoint->path, "config.json"), *advice = hub_advice(checkpoint->path);
    if (*advice && !file_exists(config)) error_set(err, status, "%s: not there%s", config, advice);
    free(config);
    free(advice);
    return status;
  }
  char *path = file_join(checkpoint->path, "generation_config.json");
  bool present = file_exists(path);
  free(path);
  return present ? open_object(&checkpoint->generation_config, checkpoint->path, "generation_config.json", err) : EAGLET_OK;
}

enum eaglet_status checkpoint_open_with(struct checkpoint *checkpoint, const struct checkpoint_params *params, struct eaglet_error *err) {
  *checkpoint = (struct checkpoint){.path = memory_copy_string(params->path)};
  enum eaglet_status status = open_configs(checkpoint, err);
  if (status == EAGLET_OK) status = open_weights(checkpoint, params, err);
  if (status != EAGLET_OK) checkpoint_close(checkpoint);
  return status;
}

enum eaglet_status checkpoint_open(struct checkpoint *checkpoint, const char *path, struct eaglet_error *err) {
  const struct checkpoint_params params = {.path = path};
  return checkpoint_open_with(checkpoint, &params, err);
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
