/* evaluate.c - see evaluate.h. All arms run on one engine in one process, group of prompts by group of prompts in turn, so that a busy
 * machine slows all alike; each computes its prompts itself. */
#include "train/evaluate.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/util.h"
#include "engine/engine.h"
#include "train/evaluate_tally.h"
#include "train/prompt_set.h"
#include "train/target_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX_DEFAULT 96
#define DRAFT_LEN_DEFAULT 7
#define DRAFT_LEN_MOST 15
#define CONTEXT_DEFAULT_MAX 4096
#define TREE_TOKENS_DEFAULT 24
#define WARM_UP_TOKENS 4

/* Drafts in every round, which gives the acceptance; none; what the controller thinks pays, which gives the speed. */
enum arm { ARM_FIXED, ARM_PLAIN, ARM_ADAPTIVE, ARM_COUNT };

struct answer {
  int32_t *ids;
  int32_t n;
};

struct evaluation {
  struct eaglet_eval_params params; /* defaults filled in */
  struct prompt_set prompts;
  struct engine *engine;
  struct tally tallies[EAGLET_SOURCES_MAX], overall;
  struct speed speeds[EAGLET_SOURCES_MAX][ARM_COUNT], speed[ARM_COUNT];
  struct speed run; /* of the run at hand */
  struct sequence **sequences; /* [concurrency] */
  struct answer *answers;      /* [concurrency] of the first arm */
  bool identical;
  char difference[320]; /* the first one */
  const char *template_file;
  uint64_t template_hash;
};

static const char *arm_name(enum arm arm) {
  static const char *const names[] = {"drafting in every round", "without drafts", "adaptive drafting"};
  return names[arm];
}

/* The first arm always runs. */
static bool arm_runs(const struct evaluation *e, enum arm arm) {
  return arm == ARM_FIXED || (!e->params.no_plain && (arm == ARM_PLAIN || !e->params.no_adaptive));
}

/* ---- running ---- */

/* Prompts [first, first + n) of one source in one arm. */
struct group {
  size_t first;
  int32_t n;
  enum arm arm;
  int32_t tokens_max;
  int32_t repeat;
  bool counts; /* it is no warm-up */
};

static int32_t source_of(const struct evaluation *e, const struct group *g) {
  return e->prompts.prompts[g->first].source;
}

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
                                                  .draft_len = g->arm == ARM_PLAIN ? -1 : 0,
                                                  .draft_fixed = g->arm == ARM_FIXED,
                                                  .temperature = e->params.temperature,
                                                  .seed = random_u64(e->params.seed, g->first + (size_t)i, 0)};
    TRY(sequence_create(&e->sequences[i], e->engine, &params, err));
  }
  return EAGLET_OK;
}

/* Where the sequences of a group stand. */
struct standing {
  int32_t n_output;
  bool prefill; /* some have no token yet: the step counts as prefill */
};

static struct standing standing_of(const struct evaluation *e, const struct group *g) {
  struct standing standing = {0};
  for (int32_t i = 0; i < g->n; i++) {
    int32_t n = output_of(e->sequences[i]);
    standing.n_output += n;
    standing.prefill |= n == 0;
  }
  return standing;
}

static void count_step(struct evaluation *e, const struct group *g, const struct eaglet_sequence_stats *before, struct speed step) {
  int32_t source = source_of(e, g);
  speed_add(&e->run, &step);
  for (int32_t i = 0; i < g->n && g->arm == ARM_FIXED && g->counts && g->repeat == 0; i++) {
    const struct eaglet_sequence_stats *now = sequence_stats(e->sequences[i]);
    int32_t n_rounds = now->rounds - before[i].rounds, n_tokens = now->output_tokens - before[i].output_tokens,
            context = before[i].prompt_tokens + before[i].output_tokens;
    if (n_rounds == 0) continue;
    tally_add_rounds(&e->tallies[source], context, n_rounds, n_tokens);
    tally_add_rounds(&e->overall, context, n_rounds, n_tokens);
  }
}

static enum eaglet_status step_all(struct evaluation *e, const struct group *g, struct eaglet_error *err) {
  struct eaglet_sequence_stats *before = memory_alloc((size_t)g->n * sizeof *before);
  enum eaglet_status status = EAGLET_OK;
  for (int32_t n_live = g->n; n_live > 0 && status == EAGLET_OK;) {
    const struct standing was = standing_of(e, g);
    for (int32_t i = 0; i < g->n; i++) before[i] = *sequence_stats(e->sequences[i]);
    double started = time_now();
    status = engine_step(e->engine, &n_live, err);
    double seconds = time_now() - started;
    uint64_t n_new = (uint64_t)(standing_of(e, g).n_output - was.n_output);
    const struct speed step = {.n_output = n_new,
                               .n_decoded = was.prefill ? 0 : n_new,
                               .prefill_s = was.prefill ? seconds : 0,
                               .decode_s = was.prefill ? 0 : seconds};
    if (status == EAGLET_OK) count_step(e, g, before, step);
  }
  free(before);
  return status;
}

static void free_sequences(struct evaluation *e) {
  for (int32_t i = 0; i < e->params.concurrency; i++) {
    sequence_free(e->sequences[i]);
    e->sequences[i] = NULL;
  }
}

static void take_answers(struct evaluation *e, const struct group *g) {
  for (int32_t i = 0; i < g->n; i++) {
    const int32_t *ids;
    struct answer *answer = &e->answers[i];
    const struct eaglet_sequence_stats *stats = sequence_stats(e->sequences[i]);
    tally_add(&e->tallies[source_of(e, g)], stats);
    tally_add(&e->overall, stats);
    answer->n = sequence_output(e->sequences[i], &ids);
    memcpy(answer->ids, ids, (size_t)answer->n * sizeof *ids);
  }
}

/* Greedy output of every arm is that of the first. */
static void compare_answers(struct evaluation *e, const struct group *g) {
  for (int32_t i = 0; i < g->n && e->params.temperature <= 0; i++) {
    const int32_t *ids;
    const struct answer *answer = &e->answers[i];
    int32_t n = sequence_output(e->sequences[i], &ids), at = 0;
    while (at < n && at < answer->n && ids[at] == answer->ids[at]) at++;
    if (at == n && at == answer->n) continue;
    if (e->identical) {
      snprintf(e->difference, sizeof e->difference, "%s: output token %d: %d %s, but %d %s",
               e->prompts.prompts[g->first + (size_t)i].where, at, at < n ? ids[at] : -1, arm_name(g->arm),
               at < answer->n ? answer->ids[at] : -1, arm_name(ARM_FIXED));
    }
    e->identical = false;
  }
}

static enum eaglet_status run_group(struct evaluation *e, const struct group *g, struct eaglet_error *err) {
  e->run = (struct speed){0};
  enum eaglet_status status = create_sequences(e, g, err);
  if (status == EAGLET_OK) status = step_all(e, g, err);
  if (status == EAGLET_OK && g->counts) (g->arm == ARM_FIXED && g->repeat == 0 ? take_answers : compare_answers)(e, g);
  free_sequences(e);
  return status;
}

static double seconds_of(const struct speed *speed) {
  return speed->prefill_s + speed->decode_s;
}

/* Every arm in turn, as often as is wanted. */
static enum eaglet_status run_arms(struct evaluation *e, struct group group, struct eaglet_error *err) {
  struct speed fastest[ARM_COUNT] = {0};
  for (group.repeat = 0; group.repeat < e->params.repeats; group.repeat++) {
    for (int arm = 0; arm < ARM_COUNT; arm++) {
      group.arm = (enum arm)arm;
      if (!arm_runs(e, group.arm)) continue;
      TRY(run_group(e, &group, err));
      if (group.repeat == 0 || seconds_of(&e->run) < seconds_of(&fastest[arm])) fastest[arm] = e->run;
    }
  }
  for (int arm = 0; arm < ARM_COUNT && group.counts; arm++) {
    speed_add(&e->speeds[source_of(e, &group)][arm], &fastest[arm]);
    speed_add(&e->speed[arm], &fastest[arm]);
  }
  return EAGLET_OK;
}

/* As many of one source as run at once. */
static struct group group_at(const struct evaluation *e, size_t first) {
  struct group group = {.first = first, .n = 1, .tokens_max = e->params.tokens_max, .counts = true};
  while (group.n < e->params.concurrency && first + (size_t)group.n < e->prompts.n &&
         e->prompts.prompts[first + (size_t)group.n].source == e->prompts.prompts[first].source)
    group.n++;
  return group;
}

static enum eaglet_status run_all(struct evaluation *e, struct eaglet_error *err) {
  /* what is allocated or mapped on first use is no part of the measurement */
  const struct group warm_up = {.n = 1, .tokens_max = e->params.tokens_max < WARM_UP_TOKENS ? e->params.tokens_max : WARM_UP_TOKENS};
  TRY(run_arms(e, warm_up, err));
  for (size_t first = 0; first < e->prompts.n;) {
    const struct group group = group_at(e, first);
    TRY(run_arms(e, group, err));
    first += (size_t)group.n;
    char note[48];
    snprintf(note, sizeof note, "acceptance %.2f", tally_acceptance_length(&e->overall));
    if (!progress_report(&e->params.progress, "eval", "prompts", first, e->prompts.n, note) && first < e->prompts.n)
      FAIL(err, EAGLET_E_INTERRUPTED, "eval: stopped after %zu of %zu prompts", first, e->prompts.n);
  }
  return EAGLET_OK;
}

/* ---- set-up and result ---- */

static enum eaglet_status resolve(struct eaglet_eval_params *p, const struct eaglet_eval_params *params,
                                  struct eaglet_error *err) {
  *p = *params;
  bool needs_draft = p->drafter != EAGLET_DRAFTER_MTP && p->drafter != EAGLET_DRAFTER_NGRAM;
  if (p->drafter == EAGLET_DRAFTER_NONE) FAIL(err, EAGLET_E_USAGE, "eval: without a drafter there is nothing to evaluate");
  if (needs_draft && !p->draft) FAIL(err, EAGLET_E_USAGE, "eval: no draft given; the drafters mtp and ngram alone need none");
  if (p->n_prompts == 0) FAIL(err, EAGLET_E_USAGE, "eval: no prompt file given");
  if (p->tokens_max <= 0) p->tokens_max = TOKENS_MAX_DEFAULT;
  if (p->draft_len <= 0) p->draft_len = DRAFT_LEN_DEFAULT;
  if (p->draft_len > DRAFT_LEN_MOST)
    FAIL(err, EAGLET_E_USAGE, "eval: draft length: expected at most %d, found %d", DRAFT_LEN_MOST, p->draft_len);
  if (p->concurrency <= 0) p->concurrency = 1;
  if (p->repeats <= 0) p->repeats = 1;
  return EAGLET_OK;
}

/* What the engine would choose, so that the report can say it. */
static void resolve_shape(struct eaglet_eval_params *p) {
  if (p->draft_width <= 0 || p->drafter == EAGLET_DRAFTER_NGRAM) p->draft_width = 1; /* it knows one continuation */
  if (p->draft_tokens <= 0) p->draft_tokens = p->draft_width > 1 ? TREE_TOKENS_DEFAULT : p->draft_len;
  if (p->draft_width == 1 && p->draft_tokens > p->draft_len) p->draft_tokens = p->draft_len;
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
  e->template_file = chat_template_origin(renderer.chat, &e->template_hash);
  enum eaglet_status status = prompt_set_read(&e->prompts, &set, &renderer, err);
  renderer_close(&renderer);
  return status;
}

static enum eaglet_status open_all(struct evaluation *e, struct eaglet_error *err) {
  const struct eaglet_eval_params *p = &e->params;
  resolve_shape(&e->params);
  TRY(read_prompts(e, err));
  e->sequences = memory_alloc((size_t)p->concurrency * sizeof *e->sequences);
  e->answers = memory_alloc((size_t)p->concurrency * sizeof *e->answers);
  for (int32_t i = 0; i < p->concurrency; i++)
    e->answers[i].ids = memory_alloc((size_t)(p->tokens_max + DRAFT_LEN_MOST + 1) * sizeof(int32_t));
  const struct eaglet_engine_params engine = {.model = p->model,
                                              .ignore_index = p->ignore_index,
                                              .draft = p->draft,
                                              .precision = p->precision,
                                              .threads = p->threads,
                                              .sequences_max = p->concurrency,
                                              .context_max = e->prompts.n_prompt_max + p->tokens_max,
                                              .drafter = p->drafter,
                                              .draft_len_max = p->draft_len,
                                              .draft_width_max = p->draft_width,
                                              .draft_tokens_max = p->draft_tokens,
                                              .adaptive = arm_runs(e, ARM_ADAPTIVE),
                                              .no_prefix_cache = true};
  return engine_open(&e->engine, &engine, err);
}

/* Speeds of the arms that ran. `draft` is the adaptive arm, the way people run it. */
static void add_speeds(const struct evaluation *e, json_t *json, const struct speed speeds[ARM_COUNT]) {
  enum arm draft = arm_runs(e, ARM_ADAPTIVE) ? ARM_ADAPTIVE : ARM_FIXED;
  double plain = speed_rate(&speeds[ARM_PLAIN]), plain_total = speed_total(&speeds[ARM_PLAIN]);
  json_object_set_new(json, "draft_tok_s", json_real(speed_rate(&speeds[draft])));
  json_object_set_new(json, "draft_run", speed_json(&speeds[draft]));
  if (!arm_runs(e, ARM_PLAIN)) return;
  json_object_set_new(json, "plain_tok_s", json_real(plain));
  json_object_set_new(json, "plain_run", speed_json(&speeds[ARM_PLAIN]));
  json_object_set_new(json, "speedup", json_real(plain > 0 ? speed_rate(&speeds[draft]) / plain : 0));
  json_object_set_new(json, "speedup_total", json_real(plain_total > 0 ? speed_total(&speeds[draft]) / plain_total : 0));
  json_object_set_new(json, "fixed_run", speed_json(&speeds[ARM_FIXED]));
  json_object_set_new(json, "fixed_speedup", json_real(plain > 0 ? speed_rate(&speeds[ARM_FIXED]) / plain : 0));
}

static json_t *source_json(const struct evaluation *e, int32_t source) {
  json_t *json = tally_json(&e->tallies[source], e->params.draft_len);
  add_speeds(e, json, e->speeds[source]);
  return json;
}

/* What a number depends on (case G26): without it nobody can find it again. */
static json_t *settings_json(const struct evaluation *e, const char *drafter) {
  const struct eaglet_eval_params *p = &e->params;
  char hash[24];
  json_t *files = json_array();
  for (size_t i = 0; i < p->n_prompts; i++) json_array_append_new(files, json_string(p->prompts[i]));
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)e->template_hash);
  return json_pack("{ss ss si si si so si sI s{ss ss} si sf sI si si}", "drafter", drafter, "shape", p->draft_width > 1 ? "tree" : "chain", "draft_len",
                   p->draft_len, "draft_width", p->draft_width, "draft_tokens", p->draft_tokens, "prompt_files", files, "max_prompts", p->prompts_max,
                   "prompts", (json_int_t)e->overall.n_prompts, "template", "file", e->template_file, "xxh3", hash, "max_tokens", p->tokens_max,
                   "temperature", (double)p->temperature, "seed", (json_int_t)p->seed, "concurrency", p->concurrency,
                   "repeats", p->repeats);
}

static json_t *definitions_json(void) {
  return json_pack("{ss ss ss ss ss}", "acceptance_length",
                   "tokens per verification round, the bonus token included, pooled over rounds; a prompt's own first token is not counted",
                   "accepted_per_round", "accepted drafts per verification round: the same without the bonus token", "per_position",
                   "rounds in which draft i was accepted / rounds that drafted", "conditional",
                   "rounds in which draft i was accepted / rounds in which those before it were", "by_context",
                   "acceptance_length of rounds that began with at least `from` tokens of context and fewer than the next");
}

static json_t *sources_json(const struct evaluation *e) {
  json_t *sources = json_object();
  for (int32_t i = 0; i < e->prompts.n_sources; i++) {
    if (e->tallies[i].n_prompts > 0) json_object_set_new(sources, e->prompts.sources[i], source_json(e, i));
  }
  return sources;
}

/* The whole first: who looks for a name finds the whole's, then the sources'. */
static struct eaglet_text make_json(const struct evaluation *e) {
  const struct eaglet_eval_params *p = &e->params;
  struct eaglet_engine_stats stats;
  engine_stats(e->engine, &stats);
  json_t *json = settings_json(e, stats.drafter);
  json_object_set_new(json, "overall", tally_json(&e->overall, p->draft_len));
  add_speeds(e, json, e->speed);
  if (arm_runs(e, ARM_ADAPTIVE)) json_object_set_new(json, "speculation", json_string(stats.speculation));
  if (arm_runs(e, ARM_PLAIN)) {
    json_object_set_new(json, "identical", p->temperature > 0 ? json_null() : json_boolean(e->identical)); /* sampled outputs agree in law only */
    if (*e->difference) json_object_set_new(json, "difference", json_string(e->difference));
  }
  json_object_set_new(json, "sources", sources_json(e));
  json_object_set(json, "skipped", e->prompts.intake.dropped);
  json_object_set_new(json, "definitions", definitions_json());
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
