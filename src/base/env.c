/* env.c - the only place that reads the environment; see env.h. */
#include "base/env.h"

#include "base/file.h"
#include "base/memory.h"

#include <stdlib.h>
#include <unistd.h>

/* An unset and an empty variable are the same. */
static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

static char *find_hub_cache(void) {
  const char *directory = variable("HF_HUB_CACHE");
  if (directory) return memory_copy_string(directory);
  directory = variable("HF_HOME");
  if (directory) return file_join(directory, "hub");
  directory = variable("XDG_CACHE_HOME");
  if (directory) return file_join(directory, "huggingface/hub");
  directory = variable("HOME");
  return directory ? file_join(directory, ".cache/huggingface/hub") : NULL;
}

void env_read(struct env *env) {
  const char *columns = variable("COLUMNS");
  long n = columns ? strtol(columns, NULL, 10) : 0;
  *env = (struct env){
      .hub_cache = find_hub_cache(),
      .no_color = variable("NO_COLOR") != NULL,
      .columns = n >= 20 && n <= 1000 ? (int)n : 80,
  };
}

void env_clear(struct env *env) {
  free(env->hub_cache);
  *env = (struct env){0};
}

#define SPIN_COUNT "1000" /* a few microseconds: docs/SPEED.md */

void env_shorten_spin(char **argv) {
  if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
  if (setenv("GOMP_SPINCOUNT", SPIN_COUNT, 0) == 0) execv("/proc/self/exe", argv);
}
