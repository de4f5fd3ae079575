/* prepare.h - any conversations -> token shards with an exact mask, by the target's own tokenizer and template;
 * optionally every assistant turn is first replaced by the target's own answer (regeneration, through the engine, many
 * at once). */
#ifndef EAGLET_TRAIN_PREPARE_H
#define EAGLET_TRAIN_PREPARE_H

#include "base/error.h"
enum eaglet_status prepare_run(const struct eaglet_prepare_params *params, struct eaglet_text *report,
                               struct eaglet_error *err) MUST_USE;
/* The draft vocabulary from a prepared directory; writes a safetensors file with d2t, t2d and metadata (sizes,
 * tokenizer hash). */
enum eaglet_status vocab_run(const struct eaglet_vocab_params *params, struct eaglet_text *report,
                             struct eaglet_error *err) MUST_USE;
#endif
