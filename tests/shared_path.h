/* shared_path.h - where test data lies: one lookup for all tests. `relative` is looked up in EAGLET_TEST_SHARED; nano-kimi ships with the
 * project, so that a clone without the shared data still runs what needs only that model. Include <stdio.h> and cmocka's headers first. */
#ifndef EAGLET_TESTS_SHARED_PATH_H
#define EAGLET_TESTS_SHARED_PATH_H

#include "base/file.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool path_is_there(const char *path) { return file_exists(path) || file_is_directory(path); }

/* Heap; NULL, and a line that says so, when absent. */
static inline char *shared_path(const char *relative) {
  const char *shared = getenv("EAGLET_TEST_SHARED"), *root = getenv("EAGLET_TEST_ROOT"), *shipped = "own/nano-kimi";
  char *path = shared ? file_join(shared, relative) : NULL;
  if (path && path_is_there(path)) return path;
  free(path);
  size_t n = strlen(shipped);
  bool is_shipped = strncmp(relative, shipped, n) == 0 && (relative[n] == '\0' || relative[n] == '/');
  path = root && is_shipped ? memory_format("%s/models/nano-kimi%s", root, relative + n) : NULL;
  if (path && path_is_there(path)) return path;
  free(path);
  printf("skip: %s is not there\n", relative);
  return NULL;
}

#endif
