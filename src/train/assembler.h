/* assembler.h - turns rows of the token store into one micro-batch for the head: states to features, next tokens to
 * embeddings, last states to target distributions, masks to supervision. Owns the buffers that the micro-batch points
 * into; they are valid until the next call.
 *
 * Beyond the target distributions [supervised slots, Vd] a recipe costs three numbers a supervised slot.
 *
 * Noise (--noise X) is added to the features, not to the states that the target distributions are made of: uniform in +-X, as speculators'
 * AddUniformNoise. It is a function of (seed, place of the row in the stream of rows, number in the row), so that it depends neither on
 * micro-batches nor on where a run was interrupted. */
#ifndef EAGLET_TRAIN_ASSEMBLER_H
#define EAGLET_TRAIN_ASSEMBLER_H

#include "draft/head_training.h"
#include "train/feature_source.h"
#include "train/teacher.h"

struct assembler {
  const struct model *model; /* borrowed, as the next four */
  const struct token_store *tokens;
  struct feature_source *source;
  struct teacher *teacher;
  const struct eaglet_train_params *settings; /* resolved: outside, teacher, mask rule, loss, noise, seed */
  int32_t slots_max, rows_max;
  float *states;                      /* [slots_max + rows_max, width]: a row needs the state behind its last slot */
  float *features, *embeddings;       /* [slots_max, n_states * H], [slots_max, H] */
  float *last, *target;               /* [slots_max, H], [slots_max, Vd] of the supervised slots */
  float *mass;                        /* [slots_max] of the supervised slots, as the next two */
  int32_t *choice, *label;
  uint8_t *loss_mask;                 /* [slots_max] */
  int32_t *ids, *segment_first, *segment_length, *reply_begin, *target_row; /* [slots_max] */
  int32_t *lengths;                                                         /* [rows_max] */
  float **row_states;                                                       /* [rows_max] */
};
/* The borrowed fields and the maxima are set by the caller. */
enum eaglet_status assembler_init(struct assembler *assembler, struct eaglet_error *err) MUST_USE;
/* Rows of the store, their slots together at most slots_max. */
struct assembler_rows {
  const uint32_t *rows; /* [n] */
  int32_t n;
  int64_t place; /* of the first in the endless stream */
};
/* Fills everything of *batch but n_steps, loss_scale and step_weight. */
enum eaglet_status assembler_run(struct assembler *assembler, struct micro_batch *batch, const struct assembler_rows *rows,
                                 struct eaglet_error *err) MUST_USE;
void assembler_release(struct assembler *assembler);

#endif
