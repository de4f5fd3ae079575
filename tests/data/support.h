/* support.h - shared by the tests of src/data and of the pipeline in src/train: a scratch directory, files in it,
 * messages of errors. */
#ifndef EAGLET_TESTS_DATA_SUPPORT_H
#define EAGLET_TESTS_DATA_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

#include "../shared_path.h"

/* Per test: *state is the path of a fresh directory. */
static inline int scratch_create(void **state) {
  const char *parent = getenv("TMPDIR");
  char *path = memory_format("%s/eaglet-test-XXXXXX", parent && *parent ? parent : "/tmp");
  *state = path;
  return mkdtemp(path) ? 0 : -1;
}

static inline int scratch_remove(void **state) {
  char *command = memory_format("rm -rf '%s'", (char *)*state);
  int failed = system(command);
  free(command);
  free(*state);
  return failed;
}

static inline char *scratch_write_bytes(const char *directory, const char *name, const void *bytes,
                                        size_t length) { /* heap path */
  char *path = file_join(directory, name);
  struct eaglet_error err = {0};
  if (file_write(path, bytes, length, &err) != EAGLET_OK) fail_msg("%s", err.message);
  return path;
}

static inline char *scratch_write(const char *directory, const char *name, const char *text) {
  return scratch_write_bytes(directory, name, text, strlen(text));
}

static inline struct eaglet_text scratch_read(const char *directory, const char *name) {
  char *path = file_join(directory, name);
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  if (file_read(&text, path, (size_t)1 << 30, &err) != EAGLET_OK) fail_msg("%s", err.message);
  free(path);
  return text;
}

static inline void assert_ok(enum eaglet_status status, const struct eaglet_error *err) {
  if (status != EAGLET_OK) fail_msg("status %d: %s", (int)status, err->message);
}

/* The call failed so, and its words hold `words`. */
static inline void assert_failed_with(enum eaglet_status status, enum eaglet_status expected,
                                      const struct eaglet_error *err, const char *words) {
  if (status != expected || !strstr(err->message, words))
    fail_msg("expected status %d with '%s', found %d: %s", (int)expected, words, (int)status, err->message);
}

static inline char *nano_kimi(void) { /* heap, NULL with a skip line */
  return shared_path("own/nano-kimi");
}

#endif
