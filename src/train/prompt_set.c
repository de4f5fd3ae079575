/* prompt_set.c - see prompt_set.h. */
#include "train/prompt_set.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The answer that a row may carry is what the model shall write: it goes, and what is asked stays last. */
static bool cut_answer(json_t *messages) {
  size_t n = json_array_size(messages);
  while (n > 0 && strcmp(message_role(messages, n - 1), "assistant") == 0) json_array_remove(messages, --n);
  return n > 0 && strcmp(message_role(messages, n - 1), "system") != 0;
}

static enum eaglet_status find_source(struct prompt_set *set, const char *name, int32_t *index,
                                      struct eaglet_error *err) {
  for (*index = 0; *index < set->n_sources; ++*index) {
    if (strcmp(set->sources[*index], name) == 0) return EAGLET_OK;
  }
  if (set->n_sources == EAGLET_SOURCES_MAX)
    FAIL(err, EAGLET_E_INPUT, "source '%s': expected at most %d sources, found more", name, EAGLET_SOURCES_MAX);
  snprintf(set->sources[set->n_sources++], CONVERSATION_SOURCE_MAX, "%s", name);
  return EAGLET_OK;
}

static enum eaglet_status add_prompt(struct prompt_set *set, const struct conversation *conversation,
                                     const struct prompt_set_params *params, const struct renderer *renderer,
                                     struct eaglet_error *err) {
  struct token_list ids = {0};
  struct eaglet_error refused = {0};
  int32_t source;
  if (*conversation->unknown_role) {
    char reason[80];
    snprintf(reason, sizeof reason, "unknown role '%s'", conversation->unknown_role);
    intake_drop(&set->intake, reason);
    return EAGLET_OK;
  }
  if (!cut_answer(conversation->messages)) {
    intake_drop(&set->intake, "nothing is asked");
    return EAGLET_OK;
  }
  TRY(find_source(set, conversation->source, &source, err));
  if (params->prompts_max > 0 && set->counts[source] >= params->prompts_max) return EAGLET_OK;
  enum eaglet_status status = renderer_prompt(renderer, conversation->messages, conversation->tools, &ids, &refused);
  if (status == EAGLET_E_INPUT) {
    intake_refused(&set->intake, conversation, &refused);
    status = EAGLET_OK;
  } else if (status != EAGLET_OK) {
    if (err) *err = refused;
  } else if (ids.n > (size_t)params->tokens_max) {
    intake_drop(&set->intake, "longer than the context");
  } else {
    MEMORY_GROW(set->prompts, set->capacity, set->n + 1);
    struct prompt *prompt = &set->prompts[set->n++];
    *prompt = (struct prompt){.ids = ids.ids, .n = (int32_t)ids.n, .source = source};
    snprintf(prompt->where, sizeof prompt->where, "%.120s:%llu", conversation->path,
             (unsigned long long)conversation->line);
    if (prompt->n > set->n_prompt_max) set->n_prompt_max = prompt->n;
    set->counts[source]++;
    ids = (struct token_list){0};
  }
  token_list_clear(&ids);
  return status;
}

enum eaglet_status prompt_set_read(struct prompt_set *set, const struct prompt_set_params *params,
                                   const struct renderer *renderer, struct eaglet_error *err) {
  struct dataset_reader *reader = NULL;
  struct conversation conversation = {0};
  bool more = true;
  *set = (struct prompt_set){0};
  intake_init(&set->intake);
  const struct dataset_params data = {.paths = params->paths, .n_paths = params->n_paths};
  enum eaglet_status status = dataset_open(&reader, &data, err);
  while (status == EAGLET_OK && more) {
    status = dataset_next(reader, &conversation, &more, err);
    if (status == EAGLET_OK && more) status = add_prompt(set, &conversation, params, renderer, err);
  }
  conversation_clear(&conversation);
  dataset_close(reader);
  if (status == EAGLET_OK && set->n == 0) {
    char reasons[512];
    intake_describe(&set->intake, reasons, sizeof reasons);
    status = error_set(err, EAGLET_E_INPUT, "%s: no usable prompt: %s%s%.300s", params->paths[0], reasons,
                       *set->intake.first_refused ? ": " : "", set->intake.first_refused);
  }
  if (status != EAGLET_OK) prompt_set_clear(set);
  return status;
}

void prompt_set_clear(struct prompt_set *set) {
  for (size_t i = 0; i < set->n; i++) free(set->prompts[i].ids);
  free(set->prompts);
  intake_release(&set->intake);
  *set = (struct prompt_set){0};
}
