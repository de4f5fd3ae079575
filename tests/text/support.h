/* support.h - shared by the tests of src/text: paths of data, temporary directories, JSON that may hold NUL. */
#ifndef EAGLET_TESTS_TEXT_SUPPORT_H
#define EAGLET_TESTS_TEXT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

static inline char *shared_path(const char *name) { /* heap, NULL (and a skip line) when absent */
  const char *root = getenv("EAGLET_TEST_SHARED");
  char *path = root ? file_join(root, name) : NULL;
  if (path && file_exists(path)) return path;
  printf("skip: %s is not there\n", name);
  free(path);
  return NULL;
}

static inline char *model_path(const char *name) {
  const char *root = getenv("EAGLET_TEST_ROOT");
  char *path = root ? memory_format("%s/models/%s", root, name) : NULL;
  if (path && file_is_directory(path)) return path;
  printf("skip: models/%s is not there\n", name);
  free(path);
  return NULL;
}

static inline char *temporary_directory(void) {
  char *path = memory_format("%s/eaglet-test-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  assert_non_null(mkdtemp(path));
  return path;
}

static inline void temporary_remove(char *directory) {
  struct file_list list = {0};
  assert_int_equal(file_list_directory(&list, directory, NULL), EAGLET_OK);
  for (size_t i = 0; i < list.n; i++) {
    char *path = file_join(directory, list.names[i]);
    unlink(path);
    free(path);
  }
  file_list_clear(&list);
  rmdir(directory);
  free(directory);
}

static inline void write_file(const char *directory, const char *name, const char *text) {
  char *path = file_join(directory, name);
  struct eaglet_error err;
  if (file_write(path, text, strlen(text), &err) != EAGLET_OK) fail_msg("%s", err.message);
  free(path);
}

/* Golden texts hold NUL characters, which base/json refuses. Returns NULL at the end of the lines, null for a row that jansson
 * cannot hold (a NUL in a key). */
static inline json_t *next_row(struct file_lines *lines) {
  const char *line;
  size_t length;
  assert_int_equal(file_lines_next(lines, &line, &length, NULL), EAGLET_OK);
  if (!line) return NULL;
  json_t *row = json_loadb(line, length, JSON_ALLOW_NUL, NULL);
  return row ? row : json_null();
}

/* The golden Kimi K2 directory has special_tokens.json only: a checkpoint directory is made around its ranks. */
static inline char *kimi_k2_directory(void) {
  char *ranks = shared_path("public/tokenizers/kimi_k2/tiktoken.model");
  char *specials = shared_path("public/tokenizers/kimi_k2/special_tokens.json");
  if (!ranks || !specials) skip();
  char *directory = temporary_directory(), *link = file_join(directory, "tiktoken.model");
  assert_int_equal(symlink(ranks, link), 0);
  json_t *names, *id, *decoder = json_object();
  assert_int_equal(json_parse_file(&names, specials, NULL), EAGLET_OK);
  const char *name;
  json_object_foreach(names, name, id) {
    char key[24];
    snprintf(key, sizeof key, "%d", (int)json_integer_value(id));
    int special = json_integer_value(id) < 163595 || json_integer_value(id) > 163599; /* tool tokens are not, in Kimi's config */
    json_object_set_new(decoder, key, json_pack("{s:s, s:b}", "content", name, "special", special));
  }
  json_t *config = json_pack("{s:o, s:s, s:s}", "added_tokens_decoder", decoder, "bos_token", "[BOS]", "eos_token", "[EOS]");
  char *text = json_dumps(config, 0);
  write_file(directory, "tokenizer_config.json", text);
  free(text);
  json_decref(config);
  json_decref(names);
  free(link);
  free(ranks);
  free(specials);
  return directory;
}

#define ASSERT_OK(expression)                                                         \
  do {                                                                                \
    struct eaglet_error err_ = {0}, *err = &err_;                                     \
    if ((expression) != EAGLET_OK) fail_msg("%s: %s", #expression, err->message);     \
  } while (0)

#endif
