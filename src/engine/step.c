/* step.c - the one verb: everybody who runs advances by a prompt chunk or by a round. The order of a step, nothing else: rows
 * (scheduler.c), the target, acceptance (accept.c), the drafter. No allocation. */
#include "engine/engine_internal.h"

#include "base/util.h"
#include "model/prefix_cache.h"

#include <math.h>

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

static void fill_request(struct engine *e, struct sequence *s, struct draft_request *r, int32_t n_deciding) {
  *r = (struct draft_request){.kv = s->draft_kv.cache ? &s->draft_kv : NULL,
                              .memory = s->memory,
                              .tokens = s->tokens,
                              .n_tokens = s->n_tokens,
                              .rows = s->rows,
                              .n_rows = s->n_rows,
                              .first_slot = s->first_slot,
                              .width = 1,
                              .score_min = -INFINITY,
                              .sampling = &s->sampling,
                              .seed = s->seed,
                              .constraint = s->constraint.source ? &s->constraint : NULL,
                              .q = s->q,
                              .proposal = &s->proposal};
  struct draft_limits limits = s->limits;
  int32_t levels = levels_wanted(e, s), rows_each = e->rows_max / (n_deciding > 0 ? n_deciding : 1);
  if (levels == 0) return;
  limits.levels = levels < limits.levels ? levels : limits.levels;
  /* All must verify in one step; but of drawn drafts, which shape what is said, there are as many as alone: they take turns. */
  if (!s->q && limits.tokens > rows_each - 1) limits.tokens = rows_each - 1;
  limits.width = limits.width < rows_each ? limits.width : rows_each;
  if (limits.tokens < 1) return;
  const struct draft_wish wish = controller_wish(e->controller, &s->record, &limits, e->running.n);
  r->n_levels = wish.levels;
  r->width = wish.width;
  r->n_max = wish.tokens;
  r->score_min = wish.score_min;
  e->stats.rounds_off += wish.levels == 0;
}

static enum eaglet_status draft_all(struct engine *e, const struct forward_run *run, struct eaglet_error *err) {
  int32_t n = 0, n_deciding = count_deciding(e), n_proposals = 0;
  for (struct sequence *s = e->running.first; s; s = s->next) {
    if (!shown_to_drafter(s)) continue;
    fill_request(e, s, &e->requests[n], n_deciding);
    e->requested[n++] = s;
  }
  if (n == 0) return EAGLET_OK;
  TRY(e->drafter->propose(e->drafter, e->requests, n, run, err));
  for (int32_t i = 0; i < n; i++) {
    struct sequence *s = e->requested[i];
    if (s->draft_kv.cache && s->draft_kv.cache->prefix) prefix_cache_add(s->draft_kv.cache->prefix, &s->draft_kv, s->tokens, s->n_tokens);
    if (e->requests[i].n_levels > 0) e->proposals[n_proposals++] = &s->proposal;
  }
  controller_trim(e->controller, e->proposals, n_proposals, e->rows_max);
  return EAGLET_OK;
}

static void account_time(struct engine *e, double seconds) {
  for (struct sequence *s = e->all; s; s = s->all_next) {
    if (s->n_prefill + s->n_verify == 0) continue;
    if (s->before_first)
      s->stats.prefill_s += seconds;
    else
      s->stats.decode_s += seconds;
  }
}

static enum eaglet_status run_target(struct engine *e, struct forward_run *run, struct eaglet_error *err) {
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
  TRY(run_target(e, &run, err));
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
