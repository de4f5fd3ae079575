/* step.c - the one verb: every live sequence advances by a prefill chunk or by a round. One target forward for all,
 * acceptance per sequence, then the head for all. No allocation. */
#include "engine/engine_internal.h"

#include "base/util.h"

#include <string.h>

enum draw { DRAW_DRAFT, DRAW_ACCEPT, DRAW_BONUS, DRAW_KINDS };

/* Drawn by the place of the token it decides, so that neither batching nor draft length shifts the others. */
static double uniform(const struct sequence *s, int32_t token_index, enum draw kind) {
  return random_uniform(s->seed, DRAW_KINDS, (uint64_t)token_index * DRAW_KINDS + kind);
}

static bool live(const struct sequence *s) {
  return s && s->state != ROUND_DONE;
}

/* ---- 1. rows of the target's batch ---- */

static void add_row(struct engine *e, struct sequence *s, int32_t token, int32_t position) {
  struct batch_row *row = batch_add(&e->batch);
  row->token = token;
  row->position = row->slot = position;
  row->kv = &s->kv;
}

static enum eaglet_status add_verify_rows(struct engine *e, struct sequence *s, struct eaglet_error *err) {
  int32_t first = s->n_tokens - 1;
  TRY(kv_sequence_reserve(&s->kv, first + 1 + s->n_drafts, err));
  s->row_begin = e->batch.n;
  s->n_rows = s->n_drafts + 1;
  for (int32_t i = 0; i < s->n_rows; i++) {
    add_row(e, s, i == 0 ? s->tokens[first] : s->drafts[i - 1], first + i);
    e->batch.rows[e->batch.n - 1].wants_logits = true;
  }
  s->state = round_advance(s->state, false); /* PROPOSE -> VERIFY */
  return EAGLET_OK;
}

static enum eaglet_status add_prefill_rows(struct engine *e, struct sequence *s, struct eaglet_error *err) {
  int32_t first = s->kv.length, room = e->batch.capacity - e->batch.n;
  s->row_begin = e->batch.n;
  s->n_rows = s->n_prompt - first < room ? s->n_prompt - first : room;
  TRY(kv_sequence_reserve(&s->kv, first + s->n_rows, err));
  for (int32_t i = 0; i < s->n_rows; i++) {
    add_row(e, s, s->tokens[first + i], first + i);
    e->batch.rows[e->batch.n - 1].wants_logits = first + i == s->n_prompt - 1;
  }
  return EAGLET_OK;
}

/* Verification rows go first: they always fit; prefill takes what is left. */
static enum eaglet_status build_batch(struct engine *e, struct eaglet_error *err) {
  batch_reset(&e->batch);
  for (int pass = 0; pass < 2; pass++) {
    for (int32_t i = 0; i < e->sequences_max; i++) {
      struct sequence *s = e->sequences[i];
      if (!live(s) || (s->state == ROUND_PREFILL) != (pass == 1)) continue;
      s->n_rows = s->n_committed_rows = 0;
      TRY(pass == 0 ? add_verify_rows(e, s, err) : add_prefill_rows(e, s, err));
    }
  }
  int32_t n_logits = 0;
  for (int32_t r = 0; r < e->batch.n; r++) {
    for (int32_t i = 0; i < e->sequences_max; i++) {
      if (live(e->sequences[i]) && e->sequences[i]->n_rows > 0 && e->sequences[i]->row_begin == r)
        e->sequences[i]->logits_begin = n_logits;
    }
    n_logits += e->batch.rows[r].wants_logits;
  }
  return EAGLET_OK;
}

/* ---- 2. acceptance and commit ---- */

static bool is_stop(const struct engine *e, int32_t token) {
  for (int32_t i = 0; i < e->model->n_stop_ids; i++) {
    if (e->model->stop_ids[i] == token) return true;
  }
  return false;
}

/* Joins one token; true when the sequence ends with it. */
static bool commit_token(struct sequence *s, int32_t token, bool drafted) {
  const struct engine *e = s->engine;
  s->was_drafted[s->n_tokens] = drafted;
  s->tokens[s->n_tokens++] = token;
  s->stats.output_tokens++;
  if (!s->ignore_stop && is_stop(e, token))
    s->stop = EAGLET_STOP_TOKEN;
  else if (s->stats.output_tokens >= s->output_max)
    s->stop = EAGLET_STOP_LENGTH;
  else if (s->n_tokens >= e->context_max)
    s->stop = EAGLET_STOP_CONTEXT;
  return s->stop != EAGLET_STOP_NONE;
}

static struct round_outcome accept_sampled(struct engine *e, struct sequence *s, const float *logits) {
  int32_t n_vocab = e->model->arch.features.n_vocab, n = s->n_drafts;
  double accept_u[DRAFT_LEN_MAX], bonus_u[DRAFT_LEN_MAX + 1];
  e->compute->download(e->compute, e->p, logits, sizeof(float) * (size_t)(n + 1) * (size_t)n_vocab);
  for (int32_t i = 0; i <= n; i++) {
    sampler_distribution(e->p + (int64_t)i * n_vocab, n_vocab, &s->sampling, e->order);
    bonus_u[i] = uniform(s, s->n_tokens + i, DRAW_BONUS);
    if (i < n) accept_u[i] = uniform(s, s->n_tokens + i, DRAW_ACCEPT);
  }
  const struct round_sampled round = {.drafts = s->drafts,
                                      .n_drafts = n,
                                      .p = e->p,
                                      .q = s->q,
                                      .draft_of = e->head ? e->head->map.draft : NULL,
                                      .n_target = n_vocab,
                                      .n_draft = e->head ? e->head->config.n_draft : 0,
                                      .accept_u = accept_u,
                                      .bonus_u = bonus_u};
  return round_accept_sampled(&round);
}

/* The tokens that the round decided, up to where the sequence ends; drafts behind its end count as not accepted. */
static void commit_round(struct sequence *s, struct round_outcome outcome) {
  bool ended = false;
  int32_t n = 0;
  while (n < outcome.n_accepted && !ended) ended = commit_token(s, s->drafts[n++], true);
  if (!ended) commit_token(s, outcome.bonus, false);
  for (int32_t i = 0; i < s->n_drafts; i++) {
    s->stats.drafted_at[i]++;
    s->stats.accepted_at[i] += i < n;
  }
  s->engine->n_drafting_rounds += s->n_drafts > 0;
  s->engine->n_accepting_rounds += n > 0;
  s->stats.drafted += s->n_drafts;
  s->stats.accepted += n;
  s->n_committed_rows = outcome.n_accepted + 1;
  s->kv.length += s->n_committed_rows;
  s->n_drafts = 0;
}

static void finish_sequence(struct engine *e, struct sequence *s, const float *logits) {
  if (s->n_rows == 0) return;
  bool prefill = s->state == ROUND_PREFILL;
  if (prefill && s->kv.length + s->n_rows < s->n_prompt) { /* a chunk in the middle: nothing to decide */
    s->kv.length += s->n_rows;
    s->n_committed_rows = s->n_rows;
    return;
  }
  int64_t n_vocab = e->model->arch.features.n_vocab;
  struct round_outcome outcome = s->sampled ? accept_sampled(e, s, logits + s->logits_begin * n_vocab)
                                            : round_accept_greedy(s->drafts, s->n_drafts, e->best + s->logits_begin);
  if (prefill) {
    s->kv.length += s->n_rows - 1; /* commit_round counts the row that chose */
    commit_round(s, outcome);
    s->n_committed_rows = s->n_rows;
  } else {
    s->state = round_advance(s->state, false); /* VERIFY -> ACCEPT */
    s->stats.rounds++;
    s->state = round_advance(s->state, false); /* ACCEPT -> COMMIT */
    commit_round(s, outcome);
  }
  s->state = round_advance(s->state, s->stop != EAGLET_STOP_NONE);
}

/* ---- 3. the head ---- */

/* Drafts worth making now: never past what may still be output or held. */
static int32_t drafts_wanted(const struct sequence *s) {
  if (s->state != ROUND_PROPOSE) return 0;
  int32_t room = s->engine->context_max - s->n_tokens, left = s->output_max - s->stats.output_tokens - 1;
  int32_t n = s->draft_len < left ? s->draft_len : left;
  n = n < room ? n : room;
  return n > 0 ? n : 0;
}

static struct batch_row *add_head_row(struct engine *e, struct sequence *s, int32_t token, int32_t position) {
  struct batch_row *row = batch_add(&e->head_batch);
  row->token = token;
  row->position = row->slot = position;
  row->kv = &s->head_kv;
  return row;
}

/* Rows of newly committed pairs (h_t, x_{t+1}) of all sequences that will draft again; e->gather gets their rows in the
 * target's batch. */
static enum eaglet_status build_extend(struct engine *e, struct eaglet_error *err) {
  batch_reset(&e->head_batch);
  for (int32_t i = 0; i < e->sequences_max; i++) {
    struct sequence *s = e->sequences[i];
    if (!live(s) || s->draft_len == 0) continue;
    s->head_last = -1;
    int32_t first = s->kv.length - s->n_committed_rows;
    TRY(kv_sequence_reserve(&s->head_kv, s->kv.length + s->draft_len, err));
    for (int32_t r = 0; r < s->n_committed_rows; r++) {
      e->gather[e->head_batch.n] = s->row_begin + r;
      add_head_row(e, s, s->tokens[first + r + 1], first + r);
    }
    s->head_kv.length = s->kv.length;
    if (s->n_committed_rows == 0 || drafts_wanted(s) == 0) continue;
    s->head_last = e->head_batch.n - 1;
    e->head_batch.rows[s->head_last].wants_logits = true;
  }
  return EAGLET_OK;
}

/* Draft number s->n_drafts of each sequence whose row wanted logits, in batch order; returns how many. e->gather gets
 * their rows. */
static int32_t take_drafts(struct engine *e, const struct head_run *run) {
  struct compute *c = e->compute;
  const struct vocab_map *map = &e->head->map;
  int32_t n = 0, n_draft = e->head->config.n_draft;
  c->argmax(c, e->best_device, run->logits, run->n_logits, n_draft);
  c->download(c, e->best, e->best_device, sizeof(int32_t) * (size_t)run->n_logits);
  for (int32_t i = 0; i < e->sequences_max; i++) {
    struct sequence *s = e->sequences[i];
    if (!live(s) || s->draft_len == 0 || s->head_last < 0) continue;
    int32_t choice = e->best[n];
    if (s->sampled) {
      float *q = s->q + (int64_t)s->n_drafts * n_draft;
      c->download(c, q, run->logits + (int64_t)n * n_draft, sizeof(float) * (size_t)n_draft);
      const struct sampling plain = {.temperature = s->sampling.temperature};
      sampler_distribution(q, n_draft, &plain, e->order);
      choice = sampler_draw(q, n_draft, uniform(s, s->n_tokens + s->n_drafts, DRAW_DRAFT));
    }
    e->gather[n++] = s->head_last;
    s->drafts[s->n_drafts++] = map->target[choice];
  }
  return n;
}

/* Rows of the next draft: the token just drafted with the head's own output as feature. */
static void build_next(struct engine *e) {
  int32_t kept = 0, n = 0;
  batch_reset(&e->head_batch);
  for (int32_t i = 0; i < e->sequences_max; i++) {
    struct sequence *s = e->sequences[i];
    if (!live(s) || s->draft_len == 0 || s->head_last < 0) continue;
    int32_t row = e->gather[n++];
    if (s->n_drafts >= drafts_wanted(s)) {
      s->head_last = -1;
      continue;
    }
    e->gather[kept++] = row;
    add_head_row(e, s, s->drafts[s->n_drafts - 1], s->head_kv.length - 1 + s->n_drafts)->wants_logits = true;
    s->head_last = e->head_batch.n - 1;
  }
}

static enum eaglet_status draft_all(struct engine *e, const struct forward_run *target, struct eaglet_error *err) {
  struct compute *c = e->compute;
  int32_t h = e->head->config.hidden, wide = e->head->config.n_states * e->head->config.target_hidden;
  TRY(build_extend(e, err));
  if (e->head_batch.n == 0) return EAGLET_OK;
  const struct gather_params taps = {.dim = wide}, features = {.dim = h};
  c->upload(c, e->gather_device, e->gather, sizeof(int32_t) * (size_t)e->head_batch.n);
  c->gather_rows(c, e->tapped, target->tapped, e->gather_device, e->head_batch.n, &taps);
  head_fuse(e->head_forward, e->feature, e->tapped, e->head_batch.n);
  while (e->head_batch.n > 0) {
    struct head_run run = {.batch = &e->head_batch, .kv = &e->head_kv, .feature = e->feature};
    TRY(head_forward_run(e->head_forward, &run, err));
    if (run.n_logits == 0) break;
    take_drafts(e, &run);
    build_next(e);
    if (e->head_batch.n == 0) break;
    c->upload(c, e->gather_device, e->gather, sizeof(int32_t) * (size_t)e->head_batch.n);
    c->gather_rows(c, e->feature, run.out, e->gather_device, e->head_batch.n, &features);
  }
  return EAGLET_OK;
}

/* ---- the step ---- */

static void account_time(struct engine *e, double seconds) {
  for (int32_t i = 0; i < e->sequences_max; i++) {
    struct sequence *s = e->sequences[i];
    if (!s || s->n_rows == 0) continue;
    if (s->stats.rounds == 0)
      s->stats.prefill_s += seconds;
    else
      s->stats.decode_s += seconds;
    s->n_rows = 0;
  }
}

static enum eaglet_status step_rows(struct engine *e, struct eaglet_error *err) {
  struct compute *c = e->compute;
  struct forward_run run = {.batch = &e->batch, .kv = &e->kv};
  if (e->head) {
    run.taps.n = e->head->config.n_states;
    memcpy(run.taps.states, e->head->config.states, sizeof(int32_t) * (size_t)run.taps.n);
  }
  TRY(forward_run(e->forward, &run, err));
  if (run.n_logits > 0) {
    c->argmax(c, e->best_device, run.logits, run.n_logits, e->model->arch.features.n_vocab);
    c->download(c, e->best, e->best_device, sizeof(int32_t) * (size_t)run.n_logits);
  }
  for (int32_t i = 0; i < e->sequences_max; i++) {
    if (live(e->sequences[i])) finish_sequence(e, e->sequences[i], run.logits);
  }
  return e->head ? draft_all(e, &run, err) : EAGLET_OK;
}

enum eaglet_status engine_step(struct engine *e, int32_t *n_live, struct eaglet_error *err) {
  double started = time_now();
  *n_live = 0;
  if (e->poisoned) FAIL(err, EAGLET_E_DEVICE, "the engine failed in an earlier step and must be closed");
  enum eaglet_status status = build_batch(e, err);
  if (status == EAGLET_OK && e->batch.n > 0) status = step_rows(e, err);
  if (status != EAGLET_OK) {
    e->poisoned = true; /* sequences may have advanced half-way */
    return status;
  }
  account_time(e, time_now() - started);
  for (int32_t i = 0; i < e->sequences_max; i++) *n_live += live(e->sequences[i]);
  return EAGLET_OK;
}
