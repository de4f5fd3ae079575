/* row_map.c - see row_map.h. Owns the words of the language. */
#include "data/row_map.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static const char *const field_names[FIELD_N] = {
    [FIELD_MESSAGES] = "messages", [FIELD_SYSTEM] = "system",   [FIELD_TOOLS] = "tools",           [FIELD_SOURCE] = "source",
    [FIELD_HISTORY] = "history",   [FIELD_PROMPT] = "prompt",   [FIELD_INPUT] = "input",           [FIELD_COMPLETION] = "completion",
    [FIELD_IDS] = "input_ids",     [FIELD_MASK] = "loss_mask",  [FIELD_ROLE] = "role",             [FIELD_CONTENT] = "content"};

static const struct {
  const char *word, *means;
} roles[] = {{"user", "user"}, {"assistant", "assistant"}, {"system_role", "system"}, {"tool", "tool"}, {"call", "function_call"}};

static enum eaglet_status unknown_word(const char *word, size_t n, struct eaglet_error *err) {
  struct buffer known;
  buffer_init(&known);
  for (size_t i = 0; i < FIELD_N; i++) buffer_format(&known, "%s, ", field_names[i]);
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) buffer_format(&known, "%s%s", i ? ", " : "", roles[i].word);
  error_set(err, EAGLET_E_USAGE, "--map: expected NAME=FIELD with NAME one of %s; found '%.*s'", known.data, n > 60 ? 60 : (int)n, word);
  buffer_clear(&known);
  return EAGLET_E_USAGE;
}

/* word[0..n) = value[0..n_value) */
static enum eaglet_status add_pair(struct row_map *map, const char *word, size_t n, const char *value, size_t n_value, struct eaglet_error *err) {
  for (size_t i = 0; i < FIELD_N; i++) {
    if (strlen(field_names[i]) != n || memcmp(field_names[i], word, n) != 0) continue;
    if (map->paths[i]) FAIL(err, EAGLET_E_USAGE, "--map: %s is given twice", field_names[i]);
    map->paths[i] = memory_copy_span(value, n_value);
    return EAGLET_OK;
  }
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
    if (strlen(roles[i].word) != n || memcmp(roles[i].word, word, n) != 0) continue;
    MEMORY_GROW(map->roles, map->roles_capacity, map->n_roles + 1);
    map->roles[map->n_roles++] = (struct row_role){.name = memory_copy_span(value, n_value), .means = roles[i].means};
    return EAGLET_OK;
  }
  return unknown_word(word, n, err);
}

static enum eaglet_status check_whole(const struct row_map *map, struct eaglet_error *err) {
  if (!map->paths[FIELD_PROMPT] != !map->paths[FIELD_COMPLETION]) FAIL(err, EAGLET_E_USAGE, "--map: expected prompt and completion together");
  if (map->paths[FIELD_INPUT] && !map->paths[FIELD_PROMPT]) FAIL(err, EAGLET_E_USAGE, "--map: expected prompt and completion beside input");
  if (!map->paths[FIELD_IDS] != !map->paths[FIELD_MASK]) FAIL(err, EAGLET_E_USAGE, "--map: expected input_ids and loss_mask together");
  return EAGLET_OK;
}

enum eaglet_status row_map_parse(struct row_map *map, const char *text, struct eaglet_error *err) {
  enum eaglet_status status = EAGLET_OK;
  *map = (struct row_map){0};
  for (const char *at = text ? text : ""; status == EAGLET_OK && *at;) {
    size_t n = strcspn(at, ","), word = strcspn(at, "=,");
    if (word == n || word == 0 || word + 1 == n) status = unknown_word(at, n, err);
    else status = add_pair(map, at, word, at + word + 1, n - word - 1, err);
    at += n + (at[n] == ',');
  }
  if (status == EAGLET_OK) status = check_whole(map, err);
  if (status != EAGLET_OK) row_map_clear(map);
  return status;
}

void row_map_clear(struct row_map *map) {
  for (size_t i = 0; i < FIELD_N; i++) free(map->paths[i]);
  for (size_t i = 0; i < map->n_roles; i++) free(map->roles[i].name);
  free(map->roles);
  *map = (struct row_map){0};
}

const char *row_map_path(const struct row_map *map, enum row_field field) { return map ? map->paths[field] : NULL; }

const char *row_map_role(const struct row_map *map, const char *name) {
  for (size_t i = 0; map && i < map->n_roles; i++) {
    if (strcmp(map->roles[i].name, name) == 0) return map->roles[i].means;
  }
  return NULL;
}

const json_t *json_at_path(const json_t *object, const char *path) {
  const json_t *whole = json_object_get(object, path);
  if (whole) return whole;
  while (object && *path) {
    size_t n = strcspn(path, ".");
    char *key = memory_copy_span(path, n);
    object = json_object_get(object, key);
    free(key);
    path += n + (path[n] == '.');
  }
  return object;
}

bool row_map_begins(const char *path, const char *field) {
  size_t n = strlen(field);
  return path && strncmp(path, field, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

const json_t *row_value(const struct row_map *map, const json_t *row, enum row_field field, const char *name) {
  const char *path = row_map_path(map, field);
  return path ? json_at_path(row, path) : json_object_get(row, name);
}
