/* engine.h - the engine: target, optional head, KV pools, live sequences, and the step that advances them all.
 *
 * One step = one target forward over rows of every live sequence (prefill chunks and verification rows side by side),
 * then acceptance, then head passes (catch-up on committed rows with target features, then draft_len-1 single rows
 * each). All memory is planned at open. One thread owns an engine. src/eaglet.c maps the public API one to one.
 */
#ifndef EAGLET_ENGINE_ENGINE_H
#define EAGLET_ENGINE_ENGINE_H

#include "draft/head.h"

struct engine;
struct sequence;

/* params->model and ->draft are resolved directories here. */
enum eaglet_status engine_open(struct engine **engine, const struct eaglet_engine_params *params,
                               struct eaglet_error *err) MUST_USE;
void engine_close(struct engine *engine);
const struct model *engine_model(const struct engine *engine);
const struct head *engine_head(const struct engine *engine); /* or NULL */
int32_t engine_context_max(const struct engine *engine);

enum eaglet_status sequence_create(struct sequence **sequence, struct engine *engine,
                                   const struct eaglet_sequence_params *params,
                                   struct eaglet_error *err) MUST_USE; /* EAGLET_E_RESOURCE when all places are taken */
void sequence_free(struct sequence *sequence);
enum eaglet_stop sequence_stop(const struct sequence *sequence);
void sequence_cancel(struct sequence *sequence);
int32_t sequence_output(const struct sequence *sequence, const int32_t **tokens);
const struct eaglet_sequence_stats *sequence_stats(const struct sequence *sequence);
bool sequence_was_drafted(const struct sequence *sequence, int32_t i);

enum eaglet_status engine_step(struct engine *engine, int32_t *n_live, struct eaglet_error *err) MUST_USE;

#endif
