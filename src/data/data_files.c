/* data_files.c - see data_files.h. Owns the endings. */
#include "data/data_files.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static const char *const packings[] = {".gz", ".zst"}, *const kinds[] = {".jsonl", ".json", ".ndjson", ".parquet"};

/* Length of name without one of the endings; all of it when it has none. */
static size_t without(const char *name, size_t n, const char *const *endings, size_t n_endings) {
  for (size_t i = 0; i < n_endings; i++) {
    size_t m = strlen(endings[i]);
    if (n > m && memcmp(name + n - m, endings[i], m) == 0) return n - m;
  }
  return n;
}

#define WITHOUT(name, n, endings) without((name), (n), (endings), sizeof(endings) / sizeof *(endings))

static void add(struct file_list *list, char *name) {
  MEMORY_GROW(list->names, list->capacity, list->n + 1);
  list->names[list->n++] = name;
}

static enum eaglet_status add_folder(struct file_list *files, struct file_list *ignored, const char *path, struct eaglet_error *err) {
  struct file_list entries;
  size_t n_before = files->n;
  TRY(file_list_directory(&entries, path, err));
  for (size_t i = 0; i < entries.n; i++) {
    const char *name = entries.names[i];
    size_t n = WITHOUT(name, strlen(name), packings);
    char *whole = file_join(path, name);
    bool data = name[0] != '.' && WITHOUT(name, n, kinds) < n && !file_is_directory(whole);
    add(data ? files : ignored, whole);
  }
  file_list_clear(&entries);
  if (files->n == n_before)
    FAIL(err, EAGLET_E_INPUT, "%s: expected data files in this folder (.jsonl .json .ndjson .parquet, also .gz or .zst), found none (folders inside it are not looked into)", path);
  return EAGLET_OK;
}

static enum eaglet_status add_pattern(struct file_list *files, struct file_list *ignored, const char *pattern, struct eaglet_error *err) {
  struct file_list found;
  size_t n_before = files->n;
  TRY(file_glob(&found, pattern, err));
  for (size_t i = 0; i < found.n; i++) add(file_is_directory(found.names[i]) ? ignored : files, memory_copy_string(found.names[i]));
  file_list_clear(&found);
  if (files->n == n_before) FAIL(err, EAGLET_E_INPUT, "%s: no file matches this pattern", pattern);
  return EAGLET_OK;
}

enum eaglet_status data_files_find(struct file_list *files, struct file_list *ignored, const char *const *paths, size_t n_paths,
                                   struct eaglet_error *err) {
  *files = *ignored = (struct file_list){0};
  for (size_t i = 0; i < n_paths; i++) {
    if (file_is_directory(paths[i]))
      TRY(add_folder(files, ignored, paths[i], err));
    else if (strpbrk(paths[i], "*?[") && !file_exists(paths[i]))
      TRY(add_pattern(files, ignored, paths[i], err));
    else
      add(files, memory_copy_string(paths[i]));
  }
  return EAGLET_OK;
}

void data_file_stem(char *stem, size_t size, const char *path) {
  const char *name = strrchr(path, '/');
  name = strcmp(path, "-") == 0 ? "stdin" : name ? name + 1 : path;
  size_t whole = strlen(name), length = WITHOUT(name, whole, packings);
  length = WITHOUT(name, length, kinds);
  const char *dot = strrchr(name, '.');
  if (length == whole && dot && dot > name) length = (size_t)(dot - name);
  if (length >= size) length = size - 1;
  length = utf8_valid(name, length);
  memcpy(stem, name, length);
  stem[length] = '\0';
}
