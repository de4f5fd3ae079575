/* state.c - see state.h. */
#include "train/state.h"

#include "base/memory.h"
#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>

#define STATE_VERSION 1

#define BLOCKS_MAX 4

struct block {
  const char *name;
  float *floats;
};

static int blocks_of(struct block blocks[BLOCKS_MAX], const struct train_state *s) {
  const struct block all[BLOCKS_MAX] = {{"parameters", s->parameters}, {"m", s->m}, {"v", s->v}, {"average", s->average}};
  memcpy(blocks, all, sizeof all);
  return s->average ? 4 : 3;
}

static char *state_path(const char *out) {
  return memory_format("%s/state/state.safetensors", out);
}

bool train_state_exists(const char *out) {
  char *path = state_path(out);
  bool exists = file_exists(path);
  free(path);
  return exists;
}

static void set_hash(json_t *hashes, const struct block *block, int64_t n) {
  char hash[20];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)file_hash(block->floats, sizeof(float) * (size_t)n, 0));
  json_object_set_new(hashes, block->name, json_string(hash));
}

static json_t *facts_of(const struct train_state *s) {
  struct block blocks[BLOCKS_MAX];
  json_t *hashes = json_object();
  int n = blocks_of(blocks, s);
  for (int i = 0; i < n; i++) set_hash(hashes, &blocks[i], s->n_parameters);
  return json_pack("{si sI sI sI si so sO}", "version", STATE_VERSION, "step", (json_int_t)s->step, "rows_seen", (json_int_t)s->rows_seen,
                   "metrics_length", (json_int_t)s->metrics_length, "threads", s->threads, "xxh3", hashes, "settings", s->settings);
}

enum eaglet_status train_state_save(const struct train_state *s, const char *out, struct eaglet_error *err) {
  char *directory = file_join(out, "state"), *path = state_path(out);
  json_t *facts = facts_of(s);
  struct eaglet_text text = json_dump(facts, 0);
  struct safetensors_writer *writer = safetensors_writer_create();
  struct block blocks[BLOCKS_MAX];
  int n = blocks_of(blocks, s);
  safetensors_writer_metadata(writer, "eaglet.train", text.data);
  for (int i = 0; i < n; i++) safetensors_writer_add(writer, blocks[i].name, DTYPE_F32, 1, &s->n_parameters, blocks[i].floats);
  enum eaglet_status status = file_make_directory(directory, err);
  if (status == EAGLET_OK) status = safetensors_writer_commit(writer, path, err);
  safetensors_writer_free(writer);
  free(text.data);
  json_decref(facts);
  free(directory);
  free(path);
  return status;
}

/* ---- load ---- */

static char *value_text(const json_t *value) {
  if (!value) return memory_copy_string("nothing");
  if (json_is_string(value)) return memory_copy_string(json_string_value(value));
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
  char *copy = memory_copy_string(text ? text : "?");
  free(text);
  return copy;
}

static enum eaglet_status compare_settings(const json_t *now, const json_t *then, const char *path,
                                           struct eaglet_error *err) {
  const char *key;
  const json_t *value;
  if (!json_is_object(then)) FAIL(err, EAGLET_E_INPUT, "%s: settings: expected an object", path);
  json_object_foreach((json_t *)now, key, value) {
    const json_t *saved = json_object_get(then, key);
    bool equal = json_is_real(value) && json_is_number(saved) ? json_real_value(value) == json_number_value(saved)
                                                              : json_equal(value, saved);
    if (equal) continue;
    char *expected = value_text(saved), *found = value_text(value);
    enum eaglet_status status =
        error_set(err, EAGLET_E_USAGE, "%s: cannot resume: %s was %s, is now %s", path, key, expected, found);
    free(expected);
    free(found);
    return status;
  }
  return EAGLET_OK;
}

static enum eaglet_status load_blocks(struct train_state *s, const struct safetensors *file, const json_t *hashes,
                                      struct eaglet_error *err) {
  struct block blocks[BLOCKS_MAX];
  int n = blocks_of(blocks, s);
  for (int i = 0; i < n; i++) {
    const char *name = blocks[i].name;
    const struct tensor_entry *tensor = safetensors_find(file, name);
    if (!tensor || tensor->dtype != DTYPE_F32 || tensor->n_bytes != sizeof(float) * (size_t)s->n_parameters) {
      FAIL(err, EAGLET_E_INPUT, "%s: %s: expected F32 [%lld]", file->path, name, (long long)s->n_parameters);
    }
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)file_hash(tensor->data, tensor->n_bytes, 0));
    const char *expected = json_string_value(json_object_get(hashes, name));
    if (!expected || strcmp(hash, expected) != 0) {
      FAIL(err, EAGLET_E_INPUT, "%s: %s: expected checksum %s, found %s", file->path, name, expected ? expected : "(none)", hash);
    }
    memcpy(blocks[i].floats, tensor->data, tensor->n_bytes);
  }
  return EAGLET_OK;
}

static enum eaglet_status load_facts(struct train_state *s, const struct safetensors *file, const json_t *facts,
                                     struct eaglet_error *err) {
  int64_t version, threads;
  TRY(json_get_int(&version, facts, "version", file->path, err));
  if (version != STATE_VERSION)
    FAIL(err, EAGLET_E_INPUT, "%s: version: expected %d, found %lld", file->path, STATE_VERSION, (long long)version);
  TRY(json_get_int(&s->step, facts, "step", file->path, err));
  TRY(json_get_int(&s->rows_seen, facts, "rows_seen", file->path, err));
  TRY(json_get_int(&s->metrics_length, facts, "metrics_length", file->path, err));
  TRY(json_get_int_or(&threads, 0, facts, "threads", file->path, err));
  s->threads = (int32_t)threads;
  TRY(compare_settings(s->settings, json_object_get(facts, "settings"), file->path, err));
  return load_blocks(s, file, json_object_get(facts, "xxh3"), err);
}

enum eaglet_status train_state_load(struct train_state *s, const char *out, struct eaglet_error *err) {
  char *path = state_path(out);
  struct safetensors file = {0};
  json_t *facts = NULL;
  enum eaglet_status status = safetensors_open(&file, path, err);
  if (status == EAGLET_OK) {
    const char *text = safetensors_metadata(&file, "eaglet.train");
    if (!text)
      status = error_set(err, EAGLET_E_INPUT, "%s: expected a training state, found no 'eaglet.train' metadata", path);
    else
      status = json_parse(&facts, text, strlen(text), path, err);
    if (status == EAGLET_OK) status = load_facts(s, &file, facts, err);
    json_decref(facts);
    safetensors_close(&file);
  }
  free(path);
  return status;
}
