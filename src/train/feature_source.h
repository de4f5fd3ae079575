/* feature_source.h - where the target's hidden states come from: the target itself, run on the rows (live), or shards
 * that extract wrote. The trainer does not see the difference. */
#ifndef EAGLET_TRAIN_FEATURE_SOURCE_H
#define EAGLET_TRAIN_FEATURE_SOURCE_H

#include "data/feature_shard.h"
#include "draft/head.h"
#include "engine/capture.h"

struct feature_source {
  struct capture *capture;     /* live, or NULL */
  struct feature_store *store; /* stored, or NULL */
  int32_t n_states, hidden;    /* the head's input states are the first n_states * hidden floats of a position */
  int32_t width, last;         /* floats of a position; where in it the last state begins */
  float *row_scratch;          /* stored: one whole row */
};
struct feature_source_params {
  const struct model *model;
  const struct head_config *config; /* states */
  const char *directory;            /* NULL: live */
  const struct token_store *tokens;
  int32_t tokens_max; /* of the longest row */
};
/* Stored features of other states, another width or other rows are refused by name. */
enum eaglet_status feature_source_open(struct feature_source *source, const struct feature_source_params *params,
                                       struct eaglet_error *err) MUST_USE;
/* The states of the first lengths[i] tokens of row rows[i] to states[i] [lengths[i], width]. */
struct feature_request {
  const struct token_store *tokens;
  const uint32_t *rows;   /* [n] indices into the store */
  const int32_t *lengths; /* [n] */
  int32_t n;
  float *const *states; /* [n] */
};
enum eaglet_status feature_source_read(struct feature_source *source, const struct feature_request *request,
                                       struct eaglet_error *err) MUST_USE;
void feature_source_close(struct feature_source *source);

#endif
