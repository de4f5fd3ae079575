/* step.c - the one verb: everybody who runs advances by a prompt chunk or by a round. The order of a step, nothing else: rows
 * (scheduler.c), the target, acceptance (accept.c), the drafter. No allocation. */
#include "engine/engine_internal.h"

#include "base/util.h"
#include "model/prefix_cache.h"

/* Levels worth making now: never past what may still be output or held. */
static int32_t levels_wanted(const struct engine *e, const struct sequence *s) {
  if (s->state != ROUND_PROPOSE) return 0;
  int32_t room = e->context_max - s->n_tokens, left = s->output_max - s->stats.output_tokens - 1, n = s->limits.levels;
  n = n < left ? n : left;
  n = n < room ? n : room;
  return n > 0 ? n : 0;
}

static bool shown_to_drafter(const struct sequence *s) {
  return s->n_rows > 0 && s->state != ROUND_DONE && s->limits.levels > 0;
}

static int32_t count_deciding(const struct engine *e) {
  int32_t n = 0;
  for (const struct sequence *s = e->running.first; s; s = s->next) n += shown_to_drafter(s) && levels_wanted(e, s) > 0;
  return n;
}

/* What the sequence's next round may draft. All must verify in one step, whoever else drafts; but of drawn drafts, which shape what is
 * said, there are as many as alone: they take turns. */
static struct draft_limits limits_now(const struct engine *e, const struct sequence *s, int32_t n_deciding) {
  int32_t rows_each = e->rows_max / (n_deciding > 0 ? n_deciding : 1);
  struct draft_limits limits = {.levels = levels_wanted(e, s), .width = s->limits.width, .tokens = s->limits.tokens};
  if (!s->q && limits.tokens > rows_each - 1) limits.tokens = rows_each - 1;
  limits.width = limits.width < rows_each ? limits.width : rows_each;
  if (limits.tokens < 1) limits.levels = 0;
  return limits;
}

static struct draft_request request_of(struct sequence *s, const struct draft_wish *wish) {
  return (struct draft_request){.kv = s->draft_kv.cache ? &s->draft_kv : NULL,
                                .memory = s->memory,
                                .tokens = s->tokens,
                                .n_tokens = s->n_tokens,
                                .rows = s->rows,
                                .n_rows = s->n_rows,
                                .first_slot = s->first_slot,
                                .n_levels = wish->levels,
                                .width = wish->width > 0 ? wish->width : 1,
                                .n_max = wish->tokens,
                                .expand_min = wish->expand_min,
                                .keep_min = wish->keep_min,
                                .record = &s->record,
                                .sleeps = wish->sleeps,
                                .sampling = &s->sampling,
                                .seed = s->seed,
                                .constraint = s->constraint.source ? &s->constraint : NULL,
                                .q = s->q,
                                .proposal = &s->proposal};
}

/* Everybody who moved, with what it is to draft; returns how many. */
static int32_t make_requests(struct engine *e) {
  int32_t n = 0, n_deciding = count_deciding(e);
  for (struct sequence *s = e->running.first; s; s = s->next) {
    if (!shown_to_drafter(s)) continue;
    e->requested[n] = s;
    e->records[n] = &s->record;
    e->limits[n++] = limits_now(e, s, n_deciding);
  }
  const struct draft_plan plan = {e->records, e->limits, e->wishes, n, e->running.n};
  if (n > 0) controller_plan(e->controller, &plan);
  for (int32_t i = 0; i < n; i++) {
    e->requests[i] = request_of(e->requested[i], &e->wishes[i]);
    e->stats.rounds_off += e->limits[i].levels > 0 && e->wishes[i].levels == 0;
  }
  return n;
}

/* Rows of the next step beside those of `n_drafting` sequences: everybody else's round; prompts, as many as in this step. */
static int32_t rows_besides(const struct engine *e, int32_t n_drafting) {
  int32_t n = 0;
  for (const struct sequence *s = e->running.first; s; s = s->next) {
    n += s->state == ROUND_PROPOSE ? 1 + (s->n_rows == 0 ? s->proposal.n : 0) : 0;
    n += s->state == ROUND_PREFILL ? s->n_prefill : 0;
  }
  return n > n_drafting ? n - n_drafting : 0;
}

static enum eaglet_status draft_all(struct engine *e, const struct forward_run *run, struct eaglet_error *err) {
  int32_t n = make_requests(e), n_proposals = 0;
  if (n == 0) return EAGLET_OK;
  TRY(e->drafter->propose(e->drafter, e->requests, n, run, err));
  for (int32_t i = 0; i < n; i++) {
    struct sequence *s = e->requested[i];
    if (s->draft_kv.cache && s->draft_kv.cache->prefix) prefix_cache_add(s->draft_kv.cache->prefix, &s->draft_kv, s->tokens, s->n_tokens);
    if (e->requests[i].n_levels == 0) continue;
    e->records[n_proposals] = &s->record;
    e->proposals[n_proposals++] = &s->proposal;
  }
  const struct draft_round round = {e->proposals, e->records, n_proposals, rows_besides(e, n_proposals)};
  controller_trim(e->controller, &round);
  return EAGLET_OK;
}

static void account_time(struct engine *e, double seconds) {
  for (struct sequence *s = e->running.first; s; s = s->next) {
    if (s->n_prefill + s->n_verify == 0) continue;
    if (s->before_first)
      s->stats.prefill_s += seconds;
    else
      s->stats.decode_s += seconds;
  }
}

enum eaglet_status engine_run_target(struct engine *e, struct forward_run *run, struct eaglet_error *err) {
  struct compute *c = e->compute;
  double started = time_now();
  *run = (struct forward_run){.batch = &e->batch, .kv = &e->kv};
  if (e->drafter) run->taps = e->drafter->taps;
  TRY(forward_run(e->forward, run, err));
  if (run->n_logits > 0) {
    c->argmax(c, e->best_device, run->logits, run->n_logits, e->model->arch.features.n_vocab);
    c->download(c, e->best, e->best_device, sizeof(int32_t) * (size_t)run->n_logits);
  }
  controller_measured(e->controller, COST_TARGET, e->batch.n, time_now() - started);
  return EAGLET_OK;
}

static enum eaglet_status step_rows(struct engine *e, struct eaglet_error *err) {
  struct forward_run run;
  TRY(engine_run_target(e, &run, err));
  for (struct sequence *s = e->running.first; s; s = s->next) accept_rows(e, s, &run);
  return e->drafter ? draft_all(e, &run, err) : EAGLET_OK;
}

static void retire_ended(struct engine *e) {
  for (struct sequence *s = e->running.first, *next; s; s = next) {
    next = s->next;
    if (s->state == ROUND_DONE) scheduler_retire(e, s);
  }
}

enum eaglet_status engine_step(struct engine *e, int32_t *n_live, struct eaglet_error *err) {
  double started = time_now();
  *n_live = 0;
  if (e->poisoned) FAIL(err, EAGLET_E_DEVICE, "the engine failed in an earlier step and must be closed");
  scheduler_fill(e);
  enum eaglet_status status = e->batch.n > 0 ? step_rows(e, err) : EAGLET_OK;
  if (status != EAGLET_OK) {
    e->poisoned = true; /* sequences may have advanced half-way */
    return status;
  }
  account_time(e, time_now() - started);
  retire_ended(e);
  e->stats.steps++;
  *n_live = e->running.n + e->waiting.n;
  return EAGLET_OK;
}
