/* feature_source.h - where the target's hidden states come from: the target itself, run on the rows (live), or a store that extract or
 * another program wrote (data/feature_store.h). The trainer does not see the difference, except that a store may cover a part of the rows
 * and that its last states may be behind the final norm. */
#ifndef EAGLET_TRAIN_FEATURE_SOURCE_H
#define EAGLET_TRAIN_FEATURE_SOURCE_H

#include "data/feature_store.h"
#include "draft/head.h"
#include "engine/capture.h"

struct feature_source {
  struct capture *capture;     /* live; or the rest of the target, for a store without last states; or NULL */
  struct feature_store *store; /* stored, or NULL */
  int32_t n_states, hidden;    /* the head's input states are the first n_states * hidden floats of a position */
  int32_t width, last;         /* floats of a position; where in it the last state begins */
  bool last_is_normed;
  float *row_scratch;          /* stored: one whole row */
  float *start, *rest;         /* [tokens_max, H] of a store without last states */
  json_t *slots;               /* what a probe found, or NULL */
};
struct feature_source_params {
  const struct model *model;
  const struct head_config *config; /* states */
  const char *directory;            /* NULL: live */
  const struct token_store *tokens;
  int32_t tokens_max; /* of the longest row */
  bool partial;       /* a store that does not cover all rows is taken */
};
/* Stored features of other states, another width or other rows are refused by name. */
enum eaglet_status feature_source_open(struct feature_source *source, const struct feature_source_params *params,
                                       struct eaglet_error *err) MUST_USE;
bool feature_source_has(const struct feature_source *source, size_t row);
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
