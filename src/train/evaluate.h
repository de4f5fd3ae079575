/* evaluate.h - real acceptance: prompts through the engine with the head, per source and per draft position, and the same prompts
 * without it in the same run (identity of greedy output, speed). JSON as in the CLI contract. */
#ifndef EAGLET_TRAIN_EVALUATE_H
#define EAGLET_TRAIN_EVALUATE_H

#include "base/error.h"
enum eaglet_status evaluate_run(const struct eaglet_eval_params *params, struct eaglet_text *json, struct eaglet_error *err) MUST_USE;
#endif
