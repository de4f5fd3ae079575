/* sequence.c - lifetimes of sequences and questions to them. Owns a sequence's memory, all of it made here; who runs is scheduler.c's. */
#include "engine/engine_internal.h"

#include "base/memory.h"
#include "base/util.h"

#include <stdlib.h>
#include <string.h>

#define OUTPUT_DEFAULT 256
#define STOP_IDS_MAX 256

/* ---- lists ---- */

void sequence_list_append(struct sequence_list *list, struct sequence *s) {
  s->next = NULL;
  if (list->last)
    list->last->next = s;
  else
    list->first = s;
  list->last = s;
  list->n++;
}

void sequence_list_prepend(struct sequence_list *list, struct sequence *s) {
  s->next = list->first;
  list->first = s;
  if (!list->last) list->last = s;
  list->n++;
}

void sequence_list_remove(struct sequence_list *list, struct sequence *s) {
  struct sequence *before = NULL, *at = list->first;
  for (; at && at != s; at = at->next) before = at;
  ASSERT(at);
  if (before)
    before->next = s->next;
  else
    list->first = s->next;
  if (list->last == s) list->last = before;
  s->next = NULL;
  list->n--;
}

/* ---- creation ---- */

static enum eaglet_status check_prompt(const struct engine *e, const struct eaglet_sequence_params *p,
                                       struct eaglet_error *err) {
  int32_t n_vocab = e->model->arch.features.n_vocab;
  if (p->n_prompt < 1) FAIL(err, EAGLET_E_INPUT, "the prompt is empty");
  if (p->n_prompt >= e->context_max)
    FAIL(err, EAGLET_E_INPUT, "prompt of %d tokens: the context holds %d, output included", p->n_prompt,
         e->context_max);
  for (int32_t i = 0; i < p->n_prompt; i++) {
    if (p->prompt[i] < 0 || p->prompt[i] >= n_vocab)
      FAIL(err, EAGLET_E_INPUT, "prompt token %d at %d: the vocabulary has %d ids", p->prompt[i], i, n_vocab);
  }
  return EAGLET_OK;
}

static enum eaglet_status check_limits(const struct engine *e, const struct eaglet_sequence_params *p,
                                       struct eaglet_error *err) {
  const struct {
    const char *name;
    int32_t value, most;
  } limits[] = {{"draft length", p->draft_len, e->draft_len_max},
                {"draft width", p->draft_width, e->draft_width_max},
                {"draft tokens", p->draft_tokens, e->draft_tokens_max}};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    if (limits[i].value > limits[i].most)
      FAIL(err, EAGLET_E_USAGE, "%s %d: the engine was opened for %d", limits[i].name, limits[i].value, limits[i].most);
  }
  if (p->n_logprobs < -1 || p->n_logprobs > EAGLET_LOGPROBS_MAX || p->n_prompt_logprobs < -1 ||
      p->n_prompt_logprobs > EAGLET_LOGPROBS_MAX)
    FAIL(err, EAGLET_E_USAGE, "logprobs: expected at most %d likeliest tokens", EAGLET_LOGPROBS_MAX);
  if (p->n_stop_ids < 0 || p->n_stop_ids > STOP_IDS_MAX)
    FAIL(err, EAGLET_E_USAGE, "stop tokens: expected at most %d, found %d", STOP_IDS_MAX, p->n_stop_ids);
  for (int32_t i = 0; i < p->n_stop_ids; i++) {
    if (p->stop_ids[i] < 0 || p->stop_ids[i] >= e->model->arch.features.n_vocab)
      FAIL(err, EAGLET_E_USAGE, "stop token %d: the vocabulary has %d ids", p->stop_ids[i], e->model->arch.features.n_vocab);
  }
  if (p->output_min < 0) FAIL(err, EAGLET_E_USAGE, "least output %d: expected 0 or more", p->output_min);
  return EAGLET_OK;
}

/* The model's stop tokens and the caller's. */
static void gather_stop_ids(struct sequence *s, const struct eaglet_sequence_params *p) {
  const struct model *model = s->engine->model;
  int32_t n_own = p->ignore_stop ? 0 : model->n_stop_ids;
  s->stop_ids = memory_alloc((size_t)(n_own + p->n_stop_ids + 1) * sizeof *s->stop_ids);
  for (int32_t i = 0; i < n_own; i++) {
    if (model->stop_ids[i] >= 0 && model->stop_ids[i] < model->arch.features.n_vocab) s->stop_ids[s->n_stop_ids++] = model->stop_ids[i];
  }
  for (int32_t i = 0; i < p->n_stop_ids; i++) s->stop_ids[s->n_stop_ids++] = p->stop_ids[i];
}

static enum eaglet_status make_sampler(struct sequence *s, const struct eaglet_sequence_params *p, struct eaglet_error *err) {
  struct sampling sampling = {.temperature = p->temperature,
                              .top_k = p->top_k,
                              .top_p = p->top_p,
                              .min_p = p->min_p,
                              .repetition_penalty = p->repetition_penalty,
                              .frequency_penalty = p->frequency_penalty,
                              .presence_penalty = p->presence_penalty,
                              .bias = p->bias,
                              .n_bias = p->n_bias};
  TRY(sampler_create(&s->sampler, &sampling, s->engine->model->arch.features.n_vocab, err));
  for (int32_t i = 0; i < p->n_prompt; i++) sampler_note(s->sampler, p->prompt[i], false);
  s->sampling = *sampler_sampling(s->sampler);
  return EAGLET_OK;
}

/* Entries of one token: its own, and the likeliest. */
static int32_t logprobs_width(int32_t n_wanted) {
  return n_wanted < 0 ? 1 : n_wanted > 0 ? 1 + n_wanted : 0;
}

static enum eaglet_status make_logprobs(struct sequence *s, const struct eaglet_sequence_params *p, struct eaglet_error *err) {
  s->logprobs_width = logprobs_width(p->n_logprobs);
  s->prompt_logprobs_width = logprobs_width(p->n_prompt_logprobs);
  size_t n_output = (size_t)(s->output_max < s->engine->context_max ? s->output_max : s->engine->context_max);
  if (s->logprobs_width) {
    s->logprobs = memory_try(n_output * (size_t)s->logprobs_width * sizeof *s->logprobs);
    s->n_entries = memory_alloc(n_output);
  }
  if (s->prompt_logprobs_width) {
    s->prompt_logprobs = memory_try((size_t)p->n_prompt * (size_t)s->prompt_logprobs_width * sizeof *s->prompt_logprobs);
    s->n_prompt_entries = memory_alloc((size_t)p->n_prompt);
  }
  if ((s->logprobs_width && !s->logprobs) || (s->prompt_logprobs_width && !s->prompt_logprobs))
    FAIL(err, EAGLET_E_RESOURCE, "no memory for logprobs");
  return EAGLET_OK;
}

static enum eaglet_status make_drafting(struct sequence *s, struct eaglet_error *err) {
  struct engine *e = s->engine;
  struct drafter *drafter = e->drafter;
  if (!drafter || s->limits.levels == 0) return EAGLET_OK;
  if (drafter->kv) TRY(kv_sequence_init(&s->draft_kv, drafter->kv, draft_slots_max(e), err));
  if (drafter->remember) {
    s->memory = drafter->remember(drafter);
    if (!s->memory) FAIL(err, EAGLET_E_RESOURCE, "no memory for what a draft of one sequence needs");
  }
  if (s->sampling.temperature > 0 && s->limits.width == 1 && drafter->n_draft > 0) {
    s->q = memory_try((size_t)s->limits.levels * (size_t)drafter->n_draft * sizeof(float));
    if (!s->q) FAIL(err, EAGLET_E_RESOURCE, "no memory for the draft's distributions");
    s->record.drawn = true;
  }
  return EAGLET_OK;
}

static enum eaglet_status make_memory(struct sequence *s, const struct eaglet_sequence_params *p, struct eaglet_error *err) {
  struct engine *e = s->engine;
  s->tokens = memory_alloc((size_t)(e->context_max + 1) * sizeof *s->tokens);
  s->was_drafted = memory_alloc((size_t)(e->context_max + 1));
  memcpy(s->tokens, p->prompt, sizeof(int32_t) * (size_t)p->n_prompt);
  gather_stop_ids(s, p);
  TRY(make_sampler(s, p, err));
  TRY(make_logprobs(s, p, err));
  TRY(kv_sequence_init(&s->kv, &e->kv, target_slots_max(e), err));
  return make_drafting(s, err);
}

static struct draft_limits limits_of(const struct engine *e, const struct eaglet_sequence_params *p) {
  struct draft_limits limits = {.levels = p->draft_len < 0 || !e->drafter ? 0 : or_default(p->draft_len, e->draft_len_max),
                                .width = or_default(p->draft_width, e->draft_width_max)};
  limits.tokens = or_default(p->draft_tokens, limits.width == 1 ? limits.levels : e->draft_tokens_max);
  if (limits.tokens > e->draft_tokens_max) limits.tokens = e->draft_tokens_max;
  return limits;
}

enum eaglet_status sequence_create(struct sequence **out, struct engine *e, const struct eaglet_sequence_params *p,
                                   struct eaglet_error *err) {
  *out = NULL;
  TRY(check_prompt(e, p, err));
  TRY(check_limits(e, p, err));
  struct sequence *s = memory_alloc(sizeof *s);
  *s = (struct sequence){.engine = e,
                         .all_next = e->all,
                         .state = ROUND_WAITING,
                         .n_prompt = p->n_prompt,
                         .n_tokens = p->n_prompt,
                         .output_min = p->output_min,
                         .output_max = or_default(p->output_max, OUTPUT_DEFAULT),
                         .limits = limits_of(e, p),
                         .record = {.fixed = p->draft_fixed},
                         .seed = p->seed,
                         .stats = {.prompt_tokens = p->n_prompt}};
  e->all = s;
  sequence_list_append(&e->waiting, s);
  enum eaglet_status status = make_memory(s, p, err);
  if (status != EAGLET_OK) {
    sequence_free(s);
    return status;
  }
  *out = s;
  return EAGLET_OK;
}

void sequence_free(struct sequence *s) {
  if (!s) return;
  struct engine *e = s->engine;
  sequence_cancel(s);
  for (struct sequence **link = &e->all; *link; link = &(*link)->all_next) {
    if (*link != s) continue;
    *link = s->all_next;
    break;
  }
  if (s->watch.release) s->watch.release(s->watch.context);
  kv_sequence_release(&s->kv);
  kv_sequence_release(&s->draft_kv);
  if (e->drafter && e->drafter->forget) e->drafter->forget(e->drafter, s->memory);
  sampler_free(s->sampler);
  memory_try_free(s->q);
  memory_try_free(s->logprobs);
  memory_try_free(s->prompt_logprobs);
  free(s->n_entries);
  free(s->n_prompt_entries);
  free(s->constraint.state);
  free(s->stop_ids);
  free(s->tokens);
  free(s->was_drafted);
  free(s);
}

void sequence_watch(struct sequence *s, struct token_watch watch) {
  s->watch = watch;
}

void *sequence_watcher(const struct sequence *s) {
  return s->watch.context;
}

void sequence_constrain(struct sequence *s, const struct constraint_source *source) {
  ASSERT(s->state == ROUND_WAITING && s->n_tokens == s->n_prompt && !s->constraint.source);
  s->constraint.source = source;
  s->constraint.state = memory_alloc((1 + CONSTRAINT_SCRATCH_STATES) * source->state_bytes);
  s->constraint.scratch = (uint8_t *)s->constraint.state + source->state_bytes;
  source->start(source->context, s->constraint.state);
}

void sequence_cancel(struct sequence *s) {
  if (s->state == ROUND_DONE) return;
  s->stop = EAGLET_STOP_CANCELLED;
  scheduler_retire(s->engine, s);
}

/* ---- questions ---- */

enum eaglet_stop sequence_stop(const struct sequence *s) {
  return s->stop;
}

int32_t sequence_output(const struct sequence *s, const int32_t **tokens) {
  *tokens = s->tokens + s->n_prompt;
  return s->n_tokens - s->n_prompt;
}

const struct eaglet_sequence_stats *sequence_stats(const struct sequence *s) {
  return &s->stats;
}

bool sequence_was_drafted(const struct sequence *s, int32_t i) {
  return s->was_drafted[s->n_prompt + i] != 0;
}

int32_t sequence_logprobs(const struct sequence *s, int32_t i, const struct eaglet_token_logprob **entries) {
  if (!s->logprobs || i < 0 || i >= s->n_tokens - s->n_prompt) return 0;
  *entries = s->logprobs + (int64_t)i * s->logprobs_width;
  return s->n_entries[i];
}

int32_t sequence_prompt_logprobs(const struct sequence *s, int32_t i, const struct eaglet_token_logprob **entries) {
  if (!s->prompt_logprobs || i < 1 || i >= s->n_prompt) return 0;
  *entries = s->prompt_logprobs + (int64_t)i * s->prompt_logprobs_width;
  return s->n_prompt_entries[i];
}
