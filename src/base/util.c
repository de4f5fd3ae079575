/* util.c - clock, counter-based random numbers, threads, warnings; see util.h. */
#define _GNU_SOURCE /* sched_getaffinity and CPU_ALLOC */
#include "base/util.h"

#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double time_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The finaliser of SplitMix64: a bijection that passes through every bit twice. */
static uint64_t mix64(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

/* Each (seed, stream) is a SplitMix64 sequence from its own random start, entered at counter. */
uint64_t random_u64(uint64_t seed, uint64_t stream, uint64_t counter) {
  const uint64_t step = 0x9e3779b97f4a7c15ull;
  uint64_t start = mix64(mix64(seed + step) ^ mix64(stream * step + 0x632be59bd9b4e019ull));
  return mix64(start + (counter + 1) * step);
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
  return (double)(random_u64(seed, stream, counter) >> 11) * 0x1p-53;
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t counter) {
  double radius = sqrt(-2.0 * log(1.0 - random_uniform(seed, stream, 2 * counter)));
  return radius * cos(6.283185307179586477 * random_uniform(seed, stream, 2 * counter + 1));
}

void random_permutation(uint32_t *order, uint32_t n, uint64_t seed, uint64_t stream) {
  for (uint32_t i = 0; i < n; i++) order[i] = i;
  for (uint32_t i = n; i > 1; i--) {
    uint32_t j = (uint32_t)((random_u64(seed, stream, i) >> 32) * i >> 32); /* in 0..i-1 */
    uint32_t swapped = order[i - 1];
    order[i - 1] = order[j];
    order[j] = swapped;
  }
}

/* Cores of the affinity mask; the set grows until the kernel's mask fits. */
static int affinity_cores(void) {
  for (int n = 1024; n <= 1 << 20; n *= 4) {
    cpu_set_t *set = CPU_ALLOC((size_t)n);
    if (!set) return 1;
    size_t bytes = CPU_ALLOC_SIZE((size_t)n);
    int cores = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (cores > 0) return cores;
  }
  return 1;
}

static bool read_line(char *line, int size, const char *path) {
  FILE *file = fopen(path, "re");
  if (!file) return false;
  bool got = fgets(line, size, file) != NULL;
  fclose(file);
  return got;
}

/* Quota of one cgroup directory in cores, or 0 when it sets none. */
static double directory_quota(const char *directory) {
  char path[1200], line[128], period_line[128];
  double quota, period;
  snprintf(path, sizeof path, "%s/cpu.max", directory);
  if (read_line(line, sizeof line, path)) {
    return sscanf(line, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0 ? quota / period : 0;
  }
  snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
  if (!read_line(line, sizeof line, path)) return 0;
  snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory);
  if (!read_line(period_line, sizeof period_line, path)) return 0;
  quota = atof(line), period = atof(period_line);
  return quota > 0 && period > 0 ? quota / period : 0;
}

/* The tightest quota from a cgroup up to the root of its hierarchy. In a container the path named by the kernel may not exist
 * under the mount; walking up then ends at the mount itself, which is the container's own group. */
static double hierarchy_quota(const char *mount, const char *group) {
  char directory[1100];
  double least = 0;
  if (snprintf(directory, sizeof directory, "%s%s", mount, group) >= (int)sizeof directory) return 0;
  while (strlen(directory) >= strlen(mount)) {
    double quota = directory_quota(directory);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
    char *slash = strrchr(directory, '/');
    if (!slash || slash == directory) break;
    *slash = '\0';
  }
  return least;
}

static double cgroup_quota(void) {
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (!file) return 0;
  char line[1024];
  double least = 0;
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = '\0';
    controllers++;
    const char *mount = *controllers == '\0' ? "/sys/fs/cgroup" : strstr(controllers, "cpu") ? "/sys/fs/cgroup/cpu" : NULL;
    double quota = mount ? hierarchy_quota(mount, group) : 0;
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  }
  fclose(file);
  return least;
}

int threads_available(void) {
  int cores = affinity_cores();
  double quota = cgroup_quota();
  /* Rounded down: a thread beyond the quota is throttled, and every barrier then waits for it. */
  if (quota > 0 && quota < cores) cores = quota < 1 ? 1 : (int)quota;
  return cores;
}

void threads_set(int n_threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(n_threads > 0 ? n_threads : threads_available());
}

void log_warning(const char *format, ...) {
  char message[EAGLET_ERROR_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  fprintf(stderr, "eaglet: warning: %s\n", message);
}

static int least(int a, int b) { return a < b ? a : b; }

int text_distance(const char *a, size_t n_a, const char *b, size_t n_b) {
  int rows[3][TEXT_DISTANCE_MAX + 1];
  if (n_a > TEXT_DISTANCE_MAX || n_b > TEXT_DISTANCE_MAX) return TEXT_DISTANCE_MAX;
  int *before = rows[0], *last = rows[1], *row = rows[2];
  for (size_t j = 0; j <= n_b; j++) last[j] = (int)j;
  for (size_t i = 1; i <= n_a; i++) {
    row[0] = (int)i;
    for (size_t j = 1; j <= n_b; j++) {
      row[j] = least(last[j - 1] + (a[i - 1] != b[j - 1]), least(last[j], row[j - 1]) + 1);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = least(row[j], before[j - 2] + 1);
    }
    int *recycled = before;
    before = last, last = row, row = recycled;
  }
  return last[n_b];
}
