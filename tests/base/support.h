/* support.h - what the tests of base share: a scratch directory per test program and "this call must abort". Header only, so that
 * each test stays one file; not for src. */
#ifndef EAGLET_TESTS_BASE_SUPPORT_H
#define EAGLET_TESTS_BASE_SUPPORT_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"

/* Group set-up and tear-down: *state is the path of a fresh directory. */
static inline int scratch_create(void **state) {
  const char *parent = getenv("TMPDIR");
  char *path = memory_format("%s/eaglet-test-XXXXXX", parent && *parent ? parent : "/tmp");
  *state = path;
  return mkdtemp(path) ? 0 : -1;
}

static inline int scratch_remove(void **state) {
  struct file_list list;
  if (file_list_directory(&list, *state, NULL) == EAGLET_OK) {
    for (size_t i = 0; i < list.n; i++) {
      char *path = file_join(*state, list.names[i]);
      (void)!file_remove(path, NULL);
      free(path);
    }
    file_list_clear(&list);
  }
  int failed = rmdir(*state);
  free(*state);
  return failed;
}

/* Runs call(argument) in a child and tells whether it died of SIGABRT. */
static inline bool aborts(void (*call)(void *argument), void *argument) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    (void)!freopen("/dev/null", "w", stderr);
    signal(SIGABRT, SIG_DFL); /* cmocka catches signals */
    call(argument);
    _exit(0);
  }
  int how = 0;
  waitpid(child, &how, 0);
  return WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT;
}

#endif
