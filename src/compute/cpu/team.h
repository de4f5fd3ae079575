/* team.h - threads that run one job at a time for the thread that owns the team.
 *
 * A job is a range cut into parts. Whoever comes first takes the next part, the owner included, and the owner returns
 * when all are done: a helper that sleeps, or that the machine has taken away, delays nothing but the part it holds.
 * Between jobs helpers spin for SPIN_SECONDS, then sleep: a decode step's many small jobs find them awake, an idle
 * process uses no core. Who computes a part never shows in its result, so parts must not depend on each other.
 *
 * Helpers start with the first job that has several parts; where the machine refuses a thread the others do its share.
 */
#ifndef EAGLET_COMPUTE_CPU_TEAM_H
#define EAGLET_COMPUTE_CPU_TEAM_H

#include <stdint.h>

#define TEAM_PARTS_MAX 4096

struct team;
struct team *team_create(int n_threads);
void team_free(struct team *team); /* NULL is allowed */

/* thread: 0 for the owner, then the helpers; below n_threads. */
typedef void team_body(const void *args, int64_t begin, int64_t end, int thread);

struct team_job {
  team_body *body;
  const void *args;
  int64_t n;       /* body is called on ranges that make up [0, n) */
  int32_t n_parts; /* at most; 1: the owner alone */
};
void team_run(struct team *team, const struct team_job *job);

#endif
