/* evaluate.c - see evaluate.h. Both arms run on one engine in one process, group of prompts by group of prompts in
 * turn, so that a busy machine slows both alike. */
#include "train/evaluate.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/util.h"
#include "engine/engine.h"
#include "train/prompt_set.h"
#include "train/target_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX_DEFAULT 96
#define DRAFT_LEN_DEFAULT 7
#define POSITIONS_MAX 16
#define CONTEXT_DEFAULT_MAX 4096
#define WARM_UP_TOKENS 4

enum arm { ARM_DRAFT, ARM_PLAIN, ARM_COUNT };

struct tally {
  uint64_t n_prompts, n_output, n_rounds, n_drafted, n_accepted;
  uint64_t drafted_at[POSITIONS_MAX], accepted_at[POSITIONS_MAX];
};

struct speed {
  uint64_t n_output, n_decoded; /* all tokens; those of steps that only decoded */
  double prefill_s, decode_s;
};

struct answer {
  int32_t *ids;
  int32_t n;
};

struct evaluation {
  struct eaglet_eval_params params; /* defaults filled in */
  struct prompt_set prompts;
  struct engine *engine;
  struct tally sources[EAGLET_SOURCES_MAX], overall;
  struct speed speed[ARM_COUNT];
  struct sequence **sequences; /* [concurrency] */
  struct answer *answers;      /* [concurrency] of the arm with the head */
  bool identical;
  char difference[320]; /* the first one */
};

/* ---- counting ---- */

static void tally_add(struct tally *tally, const struct eaglet_sequence_stats *stats) {
  tally->n_prompts++;
  tally->n_output += (uint64_t)stats->output_tokens;
  tally->n_rounds += (uint64_t)stats->rounds;
  tally->n_drafted += (uint64_t)stats->drafted;
  tally->n_accepted += (uint64_t)stats->accepted;
  for (int i = 0; i < POSITIONS_MAX; i++) {
    tally->drafted_at[i] += (uint64_t)stats->drafted_at[i];
    tally->accepted_at[i] += (uint64_t)stats->accepted_at[i];
  }
}

static json_t *tally_json(const struct tally *tally, int32_t draft_len) {
  json_t *positions = json_array();
  for (int32_t i = 0; i < draft_len; i++) {
    double share = tally->drafted_at[0] ? (double)tally->accepted_at[i] / (double)tally->drafted_at[0] : 0;
    json_array_append_new(positions, json_real(share));
  }
  double length = tally->n_rounds ? (double)(tally->n_output - tally->n_prompts) / (double)tally->n_rounds : 0;
  return json_pack("{sf so sI sI sI sI sI}", "acceptance_length", length, "per_position", positions, "prompts",
                   (json_int_t)tally->n_prompts, "output_tokens", (json_int_t)tally->n_output, "rounds",
                   (json_int_t)tally->n_rounds, "drafted", (json_int_t)tally->n_drafted, "accepted",
                   (json_int_t)tally->n_accepted);
}

static double rate(const struct speed *speed) {
  return speed->decode_s > 0 ? (double)speed->n_decoded / speed->decode_s : 0;
}

/* ---- running ---- */

/* Prompts [first, first + n) of one arm. */
struct group {
  size_t first;
  int32_t n;
  enum arm arm;
  int32_t tokens_max;
  struct speed *speed; /* NULL: not measured */
};

static int32_t output_of(const struct sequence *sequence) {
  const int32_t *ids;
  return sequence_output(sequence, &ids);
}

static enum eaglet_status create_sequences(struct evaluation *e, const struct group *g, struct eaglet_error *err) {
  for (int32_t i = 0; i < g->n; i++) {
    const struct prompt *prompt = &e->prompts.prompts[g->first + (size_t)i];
    const struct eaglet_sequence_params params = {.prompt = prompt->ids,
                                                  .n_prompt = prompt->n,
                                                  .output_max = g->tokens_max,
                                                  .draft_len = g->arm == ARM_PLAIN ? -1 : e->params.draft_len,
                                                  .temperature = e->params.temperature,
                                                  .seed = random_u64(e->params.seed, g->first + (size_t)i, 0)};
    TRY(sequence_create(&e->sequences[i], e->engine, &params, err));
  }
  return EAGLET_OK;
}

/* A step counts as prefill while some sequence has no token yet. */
static enum eaglet_status step_all(struct evaluation *e, const struct group *g, struct eaglet_error *err) {
  int32_t n_live = g->n, n_before = 0;
  while (n_live > 0) {
    int32_t n_after = 0;
    bool prefill = false;
    for (int32_t i = 0; i < g->n; i++) prefill |= output_of(e->sequences[i]) == 0;
    double started = time_now();
    TRY(engine_step(e->engine, &n_live, err));
    double seconds = time_now() - started;
    for (int32_t i = 0; i < g->n; i++) n_after += output_of(e->sequences[i]);
    if (g->speed) {
      if (prefill)
        g->speed->prefill_s += seconds;
      else
        g->speed->decode_s += seconds;
      if (!prefill) g->speed->n_decoded += (uint64_t)(n_after - n_before);
      g->speed->n_output += (uint64_t)(n_after - n_before);
    }
    n_before = n_after;
  }
  return EAGLET_OK;
}

static void free_sequences(struct evaluation *e) {
  for (int32_t i = 0; i < e->params.concurrency; i++) {
    sequence_free(e->sequences[i]);
    e->sequences[i] = NULL;
  }
}

static enum eaglet_status run_group(struct evaluation *e, const struct group *g,
                                    void (*take)(struct evaluation *e, const struct group *g),
                                    struct eaglet_error *err) {
  enum eaglet_status status = create_sequences(e, g, err);
  if (status == EAGLET_OK) status = step_all(e, g, err);
  if (status == EAGLET_OK && take) take(e, g);
  free_sequences(e);
  return status;
}

static void take_draft(struct evaluation *e, const struct group *g) {
  for (int32_t i = 0; i < g->n; i++) {
    const int32_t *ids;
    struct answer *answer = &e->answers[i];
    const struct eaglet_sequence_stats *stats = sequence_stats(e->sequences[i]);
    tally_add(&e->sources[e->prompts.prompts[g->first + (size_t)i].source], stats);
    tally_add(&e->overall, stats);
    answer->n = sequence_output(e->sequences[i], &ids);
    memcpy(answer->ids, ids, (size_t)answer->n * sizeof *ids);
  }
}

static void compare_plain(struct evaluation *e, const struct group *g) {
  for (int32_t i = 0; i < g->n && e->params.temperature <= 0; i++) {
    const int32_t *ids;
    const struct answer *answer = &e->answers[i];
    int32_t n = sequence_output(e->sequences[i], &ids), at = 0;
    while (at < n && at < answer->n && ids[at] == answer->ids[at]) at++;
    if (at == n && at == answer->n) continue;
    if (e->identical) {
      snprintf(e->difference, sizeof e->difference,
               "%s: output token %d: expected %d (without the head), found %d (with it)",
               e->prompts.prompts[g->first + (size_t)i].where, at, at < n ? ids[at] : -1,
               at < answer->n ? answer->ids[at] : -1);
    }
    e->identical = false;
  }
}

/* What is allocated or mapped on first use is no part of the measurement. */
static enum eaglet_status warm_up(struct evaluation *e, struct eaglet_error *err) {
  for (int arm = 0; arm < ARM_COUNT; arm++) {
    const struct group group = {.n = 1,
                                .arm = (enum arm)arm,
                                .tokens_max =
                                    e->params.tokens_max < WARM_UP_TOKENS ? e->params.tokens_max : WARM_UP_TOKENS};
    TRY(run_group(e, &group, NULL, err));
  }
  return EAGLET_OK;
}

static enum eaglet_status run_all(struct evaluation *e, struct eaglet_error *err) {
  TRY(warm_up(e, err));
  for (size_t first = 0; first < e->prompts.n;) {
    size_t left = e->prompts.n - first;
    struct group group = {.first = first,
                          .n = left < (size_t)e->params.concurrency ? (int32_t)left : e->params.concurrency,
                          .tokens_max = e->params.tokens_max};
    group.speed = &e->speed[group.arm = ARM_DRAFT];
    TRY(run_group(e, &group, take_draft, err));
    if (!e->params.no_plain) {
      group.speed = &e->speed[group.arm = ARM_PLAIN];
      TRY(run_group(e, &group, compare_plain, err));
    }
    first += (size_t)group.n;
    char note[48];
    snprintf(note, sizeof note, "acceptance %.2f",
             e->overall.n_rounds ? (double)(e->overall.n_output - e->overall.n_prompts) / (double)e->overall.n_rounds
                                 : 0.0);
    if (!progress_report(&e->params.progress, "eval", "prompts", first, e->prompts.n, note) && first < e->prompts.n)
      FAIL(err, EAGLET_E_INTERRUPTED, "eval: stopped after %zu of %zu prompts", first, e->prompts.n);
  }
  return EAGLET_OK;
}

/* ---- set-up and result ---- */

static enum eaglet_status resolve(struct eaglet_eval_params *p, const struct eaglet_eval_params *params,
                                  struct eaglet_error *err) {
  *p = *params;
  if (!p->draft) FAIL(err, EAGLET_E_USAGE, "eval: no draft head given");
  if (p->n_prompts == 0) FAIL(err, EAGLET_E_USAGE, "eval: no prompt file given");
  if (p->tokens_max <= 0) p->tokens_max = TOKENS_MAX_DEFAULT;
  if (p->draft_len <= 0) p->draft_len = DRAFT_LEN_DEFAULT;
  if (p->draft_len > POSITIONS_MAX)
    FAIL(err, EAGLET_E_USAGE, "eval: draft length: expected at most %d, found %d", POSITIONS_MAX, p->draft_len);
  if (p->concurrency <= 0) p->concurrency = 1;
  return EAGLET_OK;
}

static enum eaglet_status read_prompts(struct evaluation *e, struct eaglet_error *err) {
  const struct eaglet_eval_params *p = &e->params;
  struct target_facts facts;
  struct renderer renderer = {0};
  const struct checkpoint_params checkpoint = {.path = p->model, .ignore_index = p->ignore_index};
  TRY(target_facts_read(&facts, &checkpoint, err));
  int32_t context = facts.positions_max < CONTEXT_DEFAULT_MAX ? facts.positions_max : CONTEXT_DEFAULT_MAX;
  if (p->tokens_max >= context)
    FAIL(err, EAGLET_E_USAGE, "eval: tokens per prompt: expected fewer than %d (the context), found %d", context,
         p->tokens_max);
  const struct prompt_set_params set = {.paths = p->prompts,
                                        .n_paths = p->n_prompts,
                                        .prompts_max = p->prompts_max,
                                        .tokens_max = context - p->tokens_max};
  TRY(renderer_open(&renderer, p->model, facts.n_vocab, err));
  enum eaglet_status status = prompt_set_read(&e->prompts, &set, &renderer, err);
  renderer_close(&renderer);
  return status;
}

static enum eaglet_status open_all(struct evaluation *e, struct eaglet_error *err) {
  const struct eaglet_eval_params *p = &e->params;
  TRY(read_prompts(e, err));
  e->sequences = memory_alloc((size_t)p->concurrency * sizeof *e->sequences);
  e->answers = memory_alloc((size_t)p->concurrency * sizeof *e->answers);
  for (int32_t i = 0; i < p->concurrency; i++)
    e->answers[i].ids = memory_alloc((size_t)(p->tokens_max + POSITIONS_MAX + 1) * sizeof(int32_t));
  const struct eaglet_engine_params engine = {.model = p->model,
                                              .ignore_index = p->ignore_index,
                                              .draft = p->draft,
                                              .precision = p->precision,
                                              .threads = p->threads,
                                              .sequences_max = p->concurrency,
                                              .context_max = e->prompts.n_prompt_max + p->tokens_max,
                                              .draft_len_max = p->draft_len};
  return engine_open(&e->engine, &engine, err);
}

static json_t *speed_json(const struct speed *s) {
  return json_pack("{sI sI sf sf}", "output_tokens", (json_int_t)s->n_output, "decoded_tokens",
                   (json_int_t)s->n_decoded, "prefill_s", s->prefill_s, "decode_s", s->decode_s);
}

static struct eaglet_text make_json(const struct evaluation *e) {
  const struct eaglet_eval_params *p = &e->params;
  json_t *sources = json_object();
  for (int32_t i = 0; i < e->prompts.n_sources; i++) {
    if (e->sources[i].n_prompts > 0)
      json_object_set_new(sources, e->prompts.sources[i], tally_json(&e->sources[i], p->draft_len));
  }
  json_t *json =
      json_pack("{so so si si sf sI si sO}", "sources", sources, "overall", tally_json(&e->overall, p->draft_len),
                "draft_len", p->draft_len, "max_tokens", p->tokens_max, "temperature", (double)p->temperature, "seed",
                (json_int_t)p->seed, "concurrency", p->concurrency, "skipped", e->prompts.intake.dropped);
  double draft = rate(&e->speed[ARM_DRAFT]), plain = rate(&e->speed[ARM_PLAIN]);
  json_object_set_new(json, "draft_tok_s", json_real(draft));
  json_object_set_new(json, "draft_run", speed_json(&e->speed[ARM_DRAFT]));
  if (!p->no_plain) {
    json_object_set_new(json, "identical",
                        p->temperature > 0 ? json_null()
                                           : json_boolean(e->identical)); /* sampled outputs agree in law only */
    if (*e->difference) json_object_set_new(json, "difference", json_string(e->difference));
    json_object_set_new(json, "plain_tok_s", json_real(plain));
    json_object_set_new(json, "speedup", json_real(plain > 0 ? draft / plain : 0));
    json_object_set_new(json, "plain_run", speed_json(&e->speed[ARM_PLAIN]));
  }
  struct eaglet_text text = json_dump(json, 0);
  json_decref(json);
  return text;
}

enum eaglet_status evaluate_run(const struct eaglet_eval_params *params, struct eaglet_text *json,
                                struct eaglet_error *err) {
  struct evaluation *e = memory_alloc(sizeof *e);
  *json = (struct eaglet_text){0};
  e->identical = true;
  enum eaglet_status status = resolve(&e->params, params, err);
  if (status == EAGLET_OK) status = open_all(e, err);
  if (status == EAGLET_OK) status = run_all(e, err);
  if (status == EAGLET_OK) *json = make_json(e);
  if (status == EAGLET_OK && !e->identical) status = error_set(err, EAGLET_E_CHECK, "%s", e->difference);
  if (e->engine) engine_close(e->engine);
  for (int32_t i = 0; i < e->params.concurrency && e->answers; i++) free(e->answers[i].ids);
  free(e->answers);
  free(e->sequences);
  prompt_set_clear(&e->prompts);
  free(e);
  return status;
}
