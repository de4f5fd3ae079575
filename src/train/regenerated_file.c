/* regenerated_file.c - see regenerated_file.h. */
#include "train/regenerated_file.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static int by_key(const void *a, const void *b) {
  const struct regenerated_key *x = &((const struct regenerated_line *)a)->key, *y = &((const struct regenerated_line *)b)->key;
  if (x->input != y->input) return x->input > y->input ? 1 : -1;
  return (x->copy > y->copy) - (x->copy < y->copy);
}

static enum eaglet_status check_settings(const struct regenerated_file *file, const json_t *found,
                                         const json_t *settings, struct eaglet_error *err) {
  char *a, *b;
  const char *key = json_first_difference(settings, found, &a, &b);
  enum eaglet_status status = EAGLET_OK;
  if (key)
    status = error_set(err, EAGLET_E_INPUT,
                       "%s: %s: expected %.200s, found %.200s: made with other settings; remove the file or choose another --out",
                       file->path, key, a, b);
  free(a);
  free(b);
  return status;
}

static enum eaglet_status index_line(struct regenerated_file *file, const json_t *json, size_t offset, size_t length,
                                     struct eaglet_error *err) {
  const json_t *copy = json_object_get(json, "copy");
  const char *input = json_string_value(json_object_get(json, "input"));
  if (!json_is_integer(copy) || json_integer_value(copy) < 0 || !input)
    FAIL(err, EAGLET_E_INPUT, "expected input and copy, found another line");
  MEMORY_GROW(file->lines, file->capacity, file->n + 1);
  file->lines[file->n++] = (struct regenerated_line){.key = {.input = strtoull(input, NULL, 16), .copy = (uint64_t)json_integer_value(copy)},
                                                     .offset = offset,
                                                     .length = length,
                                                     .n_replies = json_array_size(json_object_get(json, "replies"))};
  return EAGLET_OK;
}

/* settings NULL: they were checked before. */
static enum eaglet_status read_lines(struct regenerated_file *file, const json_t *settings, struct eaglet_error *err) {
  const char *text = (const char *)file->map.data;
  size_t number = 0;
  file->n = 0;
  for (size_t at = 0, next; at < file->map.length; at = next) {
    const char *newline = memchr(text + at, '\n', file->map.length - at);
    ASSERT(newline); /* a torn line was cut off before */
    size_t length = (size_t)(newline - text) - at;
    json_t *json = NULL;
    next = at + length + 1;
    enum eaglet_status status = json_parse(&json, text + at, length, "line", err);
    if (status == EAGLET_OK && number > 0) status = index_line(file, json, at, length, err);
    if (status != EAGLET_OK) error_prefix(err, "%s:%zu", file->path, number + 1);
    if (status == EAGLET_OK && number == 0 && settings) status = check_settings(file, json, settings, err);
    json_decref(json);
    TRY(status);
    number++;
  }
  if (file->n) qsort(file->lines, file->n, sizeof *file->lines, by_key);
  for (size_t i = 1; i < file->n; i++) {
    if (by_key(&file->lines[i], &file->lines[i - 1]) == 0)
      FAIL(err, EAGLET_E_INPUT, "%s: conversation %016llx: found twice", file->path, (unsigned long long)file->lines[i].key.input);
  }
  return EAGLET_OK;
}

/* What a kill in the middle of an append left behind. */
static enum eaglet_status cut_torn_line(const struct regenerated_file *file, struct eaglet_error *err) {
  struct file_map map = {0};
  TRY(file_map_open(&map, file->path, err));
  size_t whole = map.length;
  while (whole > 0 && map.data[whole - 1] != '\n') whole--;
  bool torn = whole < map.length;
  file_map_close(&map);
  return torn ? file_truncate(file->path, whole, err) : EAGLET_OK;
}

enum eaglet_status regenerated_file_open(struct regenerated_file *file, const char *directory, const json_t *settings,
                                         struct eaglet_error *err) {
  enum eaglet_status status = EAGLET_OK;
  *file = (struct regenerated_file){.path = file_join(directory, "regenerated.jsonl")};
  if (file_exists(file->path)) status = cut_torn_line(file, err);
  if (status == EAGLET_OK && file_length(file->path) <= 0) {
    struct eaglet_text line = json_dump(settings, 0);
    status = file_append_line(file->path, line.data, line.length, err);
    free(line.data);
  }
  if (status == EAGLET_OK) status = file_map_open(&file->map, file->path, err);
  if (status == EAGLET_OK) status = read_lines(file, settings, err);
  if (status != EAGLET_OK) regenerated_file_close(file);
  return status;
}

const struct regenerated_line *regenerated_file_find(const struct regenerated_file *file, const struct regenerated_key *key) {
  const struct regenerated_line wanted = {.key = *key};
  return file->n ? bsearch(&wanted, file->lines, file->n, sizeof wanted, by_key) : NULL;
}

enum eaglet_status regenerated_file_append(struct regenerated_file *file, const json_t *line,
                                           struct eaglet_error *err) {
  struct eaglet_text text = json_dump(line, 0);
  enum eaglet_status status = file_append_line(file->path, text.data, text.length, err);
  free(text.data);
  return status;
}

enum eaglet_status regenerated_file_read(struct regenerated_file *file, struct eaglet_error *err) {
  file_map_close(&file->map);
  file->map = (struct file_map){0};
  TRY(file_map_open(&file->map, file->path, err));
  return read_lines(file, NULL, err);
}

enum eaglet_status regenerated_file_line(const struct regenerated_file *file, const struct regenerated_line *line, json_t **json,
                                         struct eaglet_error *err) {
  return json_parse(json, (const char *)file->map.data + line->offset, line->length, file->path, err);
}

void regenerated_file_close(struct regenerated_file *file) {
  file_map_close(&file->map);
  free(file->lines);
  free(file->path);
  *file = (struct regenerated_file){0};
}
