/* env.c - the only place that reads the environment; see env.h. */
#include "base/env.h"

#include "base/file.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An unset and an empty variable are the same. */
static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

/* A leading ~/ is the user's home, as the hub's own client reads it: quoted values reach us unexpanded. */
static char *directory_of(const char *value, const char *below) {
  const char *home = variable("HOME");
  char *root = home && (!strcmp(value, "~") || !strncmp(value, "~/", 2)) ? memory_format("%s%s", home, value + 1) : memory_copy_string(value);
  char *path = below ? file_join(root, below) : memory_copy_string(root);
  free(root);
  return path;
}

static char *find_hub_cache(void) {
  static const struct {
    const char *name, *below;
  } places[] = {{"HF_HUB_CACHE", NULL}, {"HUGGINGFACE_HUB_CACHE", NULL}, {"HF_HOME", "hub"}, {"XDG_CACHE_HOME", "huggingface/hub"}, {"HOME", ".cache/huggingface/hub"}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char *value = variable(places[i].name);
    if (value) return directory_of(value, places[i].below);
  }
  return NULL;
}

/* A number that is not negative; -1: not set, or none. */
static int count_of(const char *name) {
  const char *value = variable(name);
  char *end = NULL;
  long n = value ? strtol(value, &end, 10) : -1;
  return value && *end == '\0' && n >= 0 && n <= 1 << 20 ? (int)n : -1;
}

/* A launcher that gives only one of the two, or a rank that its world has not, is none. */
static void find_rank(struct env *env) {
  static const char *const launchers[][2] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    int rank = count_of(launchers[i][0]), world = count_of(launchers[i][1]);
    if (rank < 0 || world < 1 || rank >= world) continue;
    env->rank = rank;
    env->world = world;
    return;
  }
}

void env_read(struct env *env) {
  const char *columns = variable("COLUMNS");
  long n = columns ? strtol(columns, NULL, 10) : 0;
  *env = (struct env){
      .hub_cache = find_hub_cache(),
      .no_color = variable("NO_COLOR") != NULL,
      .columns = n >= 20 && n <= 1000 ? (int)n : 80,
  };
  find_rank(env);
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
