/* trainer_internal.h - the trainer's state, shared by trainer.c (the run), trainer_open.c (what it stands on) and
 * trainer_step.c (one step). Nobody else includes it.
 *
 * Rows come from an endless stream: epoch e is the e-th seeded permutation of the usable rows, rows_seen is the place
 * in the stream. So (seed, rows_seen) is the whole data position, and resuming cannot repeat or skip a row.
 */
#ifndef EAGLET_TRAIN_TRAINER_INTERNAL_H
#define EAGLET_TRAIN_TRAINER_INTERNAL_H

#include "train/assembler.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/settings.h"
#include "train/state.h"

struct trainer {
  struct eaglet_train_params settings; /* resolved */
  struct compute *compute;
  struct model *model;
  struct token_store tokens;
  struct head *init; /* --init, open while its parameters are taken */
  struct vocab_map map;
  struct head_config config;
  struct feature_source source;
  struct teacher teacher;
  struct assembler assembler;
  struct head_training *training;
  uint32_t *usable,
      *order; /* [n_usable] rows with something to learn; the current epoch's permutation of their indices */
  uint32_t n_usable;
  int64_t order_epoch;           /* that `order` holds, -1: none */
  int32_t tokens_max, slots_max; /* longest row; slots of one micro-batch */
  int64_t n_parameters, n_frozen; /* trained; behind them in their block, what does not learn */
  float *parameters, *gradients;
  struct optimizer optimizer;
  float step_weight[UNROLL_MAX];
  int64_t step, rows_seen, rows_end; /* done so far; where the stream ends */
  struct schedule schedule;
  json_t *identity; /* settings that a resumed run must share */
};

enum eaglet_status trainer_open(struct trainer *trainer, const struct eaglet_train_params *params,
                                struct eaglet_error *err) MUST_USE;
void trainer_close(struct trainer *trainer);

/* One optimizer step over the next rows. On failure (not-a-number, stop request: EAGLET_E_INTERRUPTED) parameters,
 * moments, step and rows_seen are those of the step before. */
enum eaglet_status trainer_step(struct trainer *trainer, struct step_result *result, struct eaglet_error *err) MUST_USE;

#endif
