/* prompt_set.h - prompts of an evaluation: rows of prompt files, each cut behind its last user turn and rendered with
 * the generation prompt. */
#ifndef EAGLET_TRAIN_PROMPT_SET_H
#define EAGLET_TRAIN_PROMPT_SET_H

#include "train/intake.h"
#include "train/renderer.h"

struct prompt {
  int32_t *ids;
  int32_t n, source; /* source: index into the set's */
  char where[160];   /* file:line */
};
struct prompt_set {
  struct prompt *prompts; /* [n] in file order */
  size_t n, capacity;
  char sources[EAGLET_SOURCES_MAX][CONVERSATION_SOURCE_MAX];
  int32_t counts[EAGLET_SOURCES_MAX]; /* prompts of each source */
  int32_t n_sources;
  int32_t n_prompt_max; /* tokens of the longest */
  struct intake intake; /* what was left out and why */
};
struct prompt_set_params {
  const char *const *paths;
  size_t n_paths;
  int32_t prompts_max; /* per source, 0: all */
  int32_t tokens_max;  /* longer prompts are left out (counted) */
};
/* Refuses a set without a usable prompt. */
enum eaglet_status prompt_set_read(struct prompt_set *set, const struct prompt_set_params *params,
                                   const struct renderer *renderer, struct eaglet_error *err) MUST_USE;
void prompt_set_clear(struct prompt_set *set);

#endif
