/* evaluate.h - real acceptance: prompts through the engine with the head, per source and per draft position, and the
 * same prompts without it in the same run (identity of greedy output, speed). JSON as in the CLI contract.
 *
 * Definitions. acceptance_length = tokens that verification rounds gave / rounds, pooled over all rounds of a source: 1
 * + accepted drafts per round. The first token of an answer comes from the prefill, which verifies nothing: it counts
 * neither as a token nor as a round, so (output_tokens - prompts) / rounds. per_position[i] = rounds in which draft i
 * was accepted / rounds that drafted (vLLM's definition; a draft is accepted only with all before it). Speed: tokens
 * per second of the steps that only decode. */
#ifndef EAGLET_TRAIN_EVALUATE_H
#define EAGLET_TRAIN_EVALUATE_H

#include "base/error.h"
/* EAGLET_E_CHECK, with *json filled, when greedy output with and without the head differs; the message names the prompt
 * and the place. */
enum eaglet_status evaluate_run(const struct eaglet_eval_params *params, struct eaglet_text *json,
                                struct eaglet_error *err) MUST_USE;
#endif
