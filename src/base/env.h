/* env.h - the one place where environment variables are read, once, at start-up, into a struct. */
#ifndef EAGLET_BASE_ENV_H
#define EAGLET_BASE_ENV_H

#include <stdbool.h>

struct env {
  char *hub_cache; /* HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE (its older name), else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub; NULL if none */
  bool no_color;   /* NO_COLOR set and not empty */
  int columns;     /* COLUMNS or 80 */
  int rank, world; /* of this process among those that a launcher started: OMPI_COMM_WORLD_RANK/SIZE, PMI_RANK/SIZE or SLURM_PROCID/NTASKS; world 0: none */
};
void env_read(struct env *env);
void env_clear(struct env *env);

/* For main() only, before anything else. OpenMP's threads spin while they wait, for milliseconds; with other work on the same cores that makes
 * two threads many times slower than one. The runtime reads its setting when it is loaded, so this sets a short spin and runs the program
 * again; it returns when the user has chosen (OMP_WAIT_POLICY, GOMP_SPINCOUNT) or the program cannot be run again. */
void env_shorten_spin(char **argv);

#endif
