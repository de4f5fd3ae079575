/* util.h - small shared tools: clock, random numbers, threads, distance of words, log.
 *
 * Random numbers are counter-based (no state to save, no order to keep): random_u64(seed, stream, counter) is a pure
 * function, so resume and batching cannot change what is drawn.
 */
#ifndef EAGLET_BASE_UTIL_H
#define EAGLET_BASE_UTIL_H

#include "base/error.h"

/* Parameters: zero means default. */
static inline int32_t or_default(int32_t value, int32_t fallback) {
  return value > 0 ? value : fallback;
}

double time_now(void); /* seconds, monotonic */

uint64_t random_u64(uint64_t seed, uint64_t stream, uint64_t counter);
double random_uniform(uint64_t seed, uint64_t stream, uint64_t counter); /* [0, 1), 53 bits */
double random_normal(uint64_t seed, uint64_t stream, uint64_t counter);  /* Box-Muller on two draws of the counter */
void random_permutation(uint32_t *order, uint32_t n, uint64_t seed, uint64_t stream); /* Fisher-Yates */

int threads_available(void);      /* cores this process may use: affinity and cgroup quota */
void threads_set(int n_threads);  /* OpenMP team size for this process; called by the engine and the trainer at open */

/* Edits (insert, delete, replace, swap of neighbours) from a to b; texts longer than TEXT_DISTANCE_MAX are that far apart. */
#define TEXT_DISTANCE_MAX 96
int text_distance(const char *a, size_t n_a, const char *b, size_t n_b);

/* Warnings go to stderr as "eaglet: warning: ...". */
void log_warning(const char *format, ...) PRINTF_LIKE(1, 2);

#endif
