/* state.h - everything that resuming needs, in one file: out/state/state.safetensors holds the parameters, both
 * moments and, when there is one, their moving average (F32, one block each) and, as metadata, step, place in the data, place in metrics.jsonl, settings and a
 * checksum of every block. One file and one rename: a killed run leaves the last whole state. A state of other settings
 * or other data is refused by the setting's name (F10).
 */
#ifndef EAGLET_TRAIN_STATE_H
#define EAGLET_TRAIN_STATE_H

#include "base/json.h"

struct train_state {
  int64_t n_parameters;
  float *parameters, *m, *v; /* [n_parameters] borrowed */
  float *average;            /* the same, or NULL: none is kept */
  int64_t step;              /* optimizer steps done */
  int64_t rows_seen;         /* rows taken from the endless stream of shuffled epochs */
  int64_t metrics_length;    /* bytes of metrics.jsonl that belong to these steps */
  int32_t threads;           /* of the run that made it; sums may be split by it */
  const json_t *settings;    /* object of what must not change, borrowed; values are numbers or strings */
};
bool train_state_exists(const char *out);
enum eaglet_status train_state_save(const struct train_state *state, const char *out,
                                    struct eaglet_error *err) MUST_USE;
/* n_parameters, the blocks and settings are set by the caller; the rest is filled. */
enum eaglet_status train_state_load(struct train_state *state, const char *out, struct eaglet_error *err) MUST_USE;

#endif
