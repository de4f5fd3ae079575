/* capture.h - teacher-forced passes over whole token rows: the states and the final state of every position. Used by
 * extract and by live training. One implementation of "run these conversations and give me their features". */
#ifndef EAGLET_ENGINE_CAPTURE_H
#define EAGLET_ENGINE_CAPTURE_H

#include "model/forward.h"

struct capture;
struct capture_params {
  const struct model *model;
  struct tap_set taps; /* include n_layers (the last state) when target logits are wanted later */
  int32_t tokens_max;  /* of one row */
  int32_t rows_max;    /* of one forward call; default 512 */
  int32_t start_state; /* layers from this state on run; 0: from the tokens, unless capture_resume gives embeddings */
};
enum eaglet_status capture_create(struct capture **capture, const struct capture_params *params,
                                  struct eaglet_error *err) MUST_USE;
void capture_free(struct capture *capture);
/* states[i] gets [lengths[i], taps.n * H] F32 (caller's memory). Rows are packed into forward calls of several
 * conversations and split into chunks as needed; results do not depend on the packing (decision 3). */
enum eaglet_status capture_run(struct capture *capture, const int32_t *const *tokens, const int32_t *lengths, int32_t n,
                               float *const *states, struct eaglet_error *err) MUST_USE;

/* The rest of the model, from start_state of every token: starts[i] [lengths[i], H]. */
struct capture_rows {
  const int32_t *const *tokens; /* [n] */
  const int32_t *lengths;
  int32_t n;
  const float *const *starts; /* NULL: as capture_run */
  float *const *states;
};
enum eaglet_status capture_resume(struct capture *capture, const struct capture_rows *rows, struct eaglet_error *err) MUST_USE;
#endif
