/* trainer.h - trains an EAGLE-3 head: feature source -> unrolled forward/backward -> clip -> AdamW, with atomic state,
 * metrics and exports. See docs/EAGLE3.md for the algorithm. */
#ifndef EAGLET_TRAIN_TRAINER_H
#define EAGLET_TRAIN_TRAINER_H

#include "base/error.h"
enum eaglet_status train_run(const struct eaglet_train_params *params, struct eaglet_text *report,
                             struct eaglet_error *err) MUST_USE;
#endif
