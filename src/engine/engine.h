/* engine.h - the engine: target, drafter, KV pools, sequences, and the step that advances them all.
 *
 * One step = admission of waiting sequences, one target forward over rows of every running one (verification rows and prefill chunks side
 * by side), acceptance, then the drafter for those who draft next. Everything a step needs is allocated when the engine or a sequence is
 * made. One thread owns an engine. src/eaglet.c maps the public API one to one.
 *
 * What a sequence says never depends on what else runs, on chunks, on memory pressure or on the prefix cache: rows are independent
 * (decision 3), and randomness is drawn by seed and place. Nor does it depend on drafts that are chosen: greedy, trees, n-grams. Drawn
 * drafts (a chain at a temperature) shape what a seed says, never its law: with fixed limits the same seed says the same again, in an
 * adaptive engine, where the clock decides who drafts, perhaps not.
 */
#ifndef EAGLET_ENGINE_ENGINE_H
#define EAGLET_ENGINE_ENGINE_H

#include "draft/head.h"
#include "engine/constraint.h"

struct engine;
struct sequence;

/* params->model and ->draft are resolved directories here. */
enum eaglet_status engine_open(struct engine **engine, const struct eaglet_engine_params *params,
                               struct eaglet_error *err) MUST_USE;
void engine_close(struct engine *engine);
const struct model *engine_model(const struct engine *engine);
const struct head *engine_head(const struct engine *engine); /* or NULL */
int32_t engine_context_max(const struct engine *engine);
void engine_stats(const struct engine *engine, struct eaglet_engine_stats *stats);

/* The sequence waits until a step admits it. */
enum eaglet_status sequence_create(struct sequence **sequence, struct engine *engine,
                                   const struct eaglet_sequence_params *params,
                                   struct eaglet_error *err) MUST_USE;
void sequence_free(struct sequence *sequence);

/* Sees every output token as it joins; true ends the sequence with it (a stop string is complete). EARLY: it is too early for that. STOPS:
 * the sequence ends with this token, which is no text. */
enum token_role { TOKEN_TEXT, TOKEN_EARLY, TOKEN_STOPS };
struct token_watch {
  bool (*token)(void *context, int32_t token, enum token_role role); /* NULL: nobody watches */
  void *context;
  void (*release)(void *context); /* when the sequence is freed; or NULL */
};
/* Before the first step of the sequence only. source is borrowed for the sequence's life. */
void sequence_watch(struct sequence *sequence, struct token_watch watch);
void *sequence_watcher(const struct sequence *sequence); /* the watch's context */
void sequence_constrain(struct sequence *sequence, const struct constraint_source *source);

enum eaglet_stop sequence_stop(const struct sequence *sequence);
void sequence_cancel(struct sequence *sequence); /* gives its memory back at once */
int32_t sequence_output(const struct sequence *sequence, const int32_t **tokens);
const struct eaglet_sequence_stats *sequence_stats(const struct sequence *sequence);
bool sequence_was_drafted(const struct sequence *sequence, int32_t i);
int32_t sequence_logprobs(const struct sequence *sequence, int32_t i, const struct eaglet_token_logprob **entries);
int32_t sequence_prompt_logprobs(const struct sequence *sequence, int32_t i, const struct eaglet_token_logprob **entries);

enum eaglet_status engine_step(struct engine *engine, int32_t *n_live, struct eaglet_error *err) MUST_USE;

#endif
