/* accept.c - which tokens join a sequence after a target pass. Walks the proposal from its root: at every node the target chooses, as it
 * would without drafts, and the walk goes on while a drafted child is what it chose. Whatever depends on the text so far (penalties,
 * constraint, stop conditions) moves with the tokens that join, and never has to be taken back. */
#include "engine/engine_internal.h"

#include "model/prefix_cache.h"

#include <string.h>

/* ---- joining ---- */

static bool is_stop(const struct sequence *s, int32_t token) {
  for (int32_t i = 0; i < s->n_stop_ids; i++) {
    if (s->stop_ids[i] == token) return true;
  }
  return false;
}

/* Why the sequence ends with the token that just joined. What the text says comes before what its length says (G04). */
static enum eaglet_stop reason_to_stop(const struct sequence *s, int32_t token, bool stops) {
  enum token_role role = stops ? TOKEN_STOPS : s->stats.output_tokens < s->output_min ? TOKEN_EARLY : TOKEN_TEXT;
  bool watched = s->watch.token && s->watch.token(s->watch.context, token, role);
  if (stops) return EAGLET_STOP_TOKEN;
  if (watched) return EAGLET_STOP_STRING;
  if (s->constraint.source && s->constraint.source->is_over(s->constraint.source->context, s->constraint.state))
    return EAGLET_STOP_CONSTRAINT;
  if (s->stats.output_tokens >= s->output_max) return EAGLET_STOP_LENGTH;
  if (s->n_tokens >= s->engine->context_max) return EAGLET_STOP_CONTEXT;
  return EAGLET_STOP_NONE;
}

/* Joins one token; true when the sequence ends with it. */
static bool join(struct sequence *s, int32_t token, bool drafted) {
  bool stops = is_stop(s, token);
  s->was_drafted[s->n_tokens] = drafted;
  s->tokens[s->n_tokens++] = token;
  s->stats.output_tokens++;
  sampler_note(s->sampler, token, true);
  if (s->constraint.source && !stops) {
    bool allowed = s->constraint.source->advance(s->constraint.source->context, s->constraint.state, token);
    ASSERT(allowed); /* it was chosen among allowed ones */
  }
  s->stop = reason_to_stop(s, token, stops);
  return s->stop != EAGLET_STOP_NONE;
}

/* ---- choosing ---- */

/* Nothing but the logits decides: the device's argmax is the choice. */
static bool is_plain(const struct sequence *s) {
  bool unbanned = s->stats.output_tokens >= s->output_min || s->n_stop_ids == 0;
  return s->sampling.temperature == 0 && !s->constraint.source && unbanned && sampler_is_raw(s->sampler);
}

/* The row's logits on the host, as the sequence's parameters and its text so far make them. */
static void process_row(struct engine *e, struct sequence *s) {
  const uint32_t *allowed = NULL;
  int32_t n_banned = s->stats.output_tokens < s->output_min ? s->n_stop_ids : 0;
  if (s->constraint.source) allowed = s->constraint.source->allowed(s->constraint.source->context, s->constraint.state);
  sampler_process(s->sampler, e->row, allowed, s->stop_ids, n_banned);
}

/* The choice after node `node` (-1: the last committed token) whose logits are row `at` of the run. */
static struct round_choice choose(struct engine *e, struct sequence *s, const struct forward_run *run, int32_t at, int32_t node) {
  int32_t n_vocab = e->model->arch.features.n_vocab, children[TREE_WIDTH_MAX], tokens[TREE_WIDTH_MAX],
          n = proposal_children(&s->proposal, node, children);
  for (int32_t i = 0; i < n; i++) tokens[i] = s->proposal.tokens[children[i]];
  bool plain = is_plain(s);
  if (!plain || s->logprobs) e->compute->download(e->compute, e->row, run->logits + (int64_t)at * n_vocab, sizeof(float) * (size_t)n_vocab);
  if (plain) return round_choose_greedy(tokens, n, e->best[at]);
  if (s->logprobs) memcpy(e->raw_row, e->row, sizeof(float) * (size_t)n_vocab);
  process_row(e, s);
  if (s->sampling.temperature == 0) return round_choose_greedy(tokens, n, sampler_best(e->row, n_vocab));
  int32_t depth = node < 0 ? 0 : s->proposal.depths[node] + 1;
  sampler_distribution(e->row, n_vocab, &s->sampling, e->order);
  const struct round_law law = {.children = tokens,
                                .n = n,
                                .p = e->row,
                                .q = s->proposal.q ? s->proposal.q + (int64_t)depth * s->proposal.n_q : NULL,
                                .draft_of = e->drafter ? e->drafter->draft_of : NULL,
                                .n_target = n_vocab,
                                .accept_u = draw_uniform(s->seed, s->n_tokens, DRAW_ACCEPT),
                                .token_u = draw_uniform(s->seed, s->n_tokens, DRAW_TOKEN)};
  return round_choose_sampled(&law);
}

static void note_logprobs(struct engine *e, struct sequence *s, const struct round_choice *choice) {
  if (!s->logprobs) return;
  int32_t i = s->n_tokens - s->n_prompt;
  const float *logits = is_plain(s) ? e->row : e->raw_row;
  s->n_entries[i] = (uint8_t)logprobs_of(s->logprobs + (int64_t)i * s->logprobs_width, logits, e->model->arch.features.n_vocab,
                                         choice->token, s->logprobs_width - 1);
}

/* ---- the round ---- */

static void count_round(struct sequence *s, int32_t n_accepted, bool cut) {
  struct engine *e = s->engine;
  int32_t depth = proposal_depth(&s->proposal);
  if (!s->before_first) {
    s->stats.rounds++;
    s->stats.rounds_cut += cut;
    e->stats.rounds++;
  }
  for (int32_t d = 0; d < depth; d++) {
    s->stats.drafted_at[d]++;
    s->stats.accepted_at[d] += d < n_accepted;
  }
  e->n_drafting_rounds += depth > 0;
  e->n_accepting_rounds += n_accepted > 0;
  s->stats.drafted += s->proposal.n;
  s->stats.accepted += n_accepted;
  e->stats.drafted += s->proposal.n;
  e->stats.accepted += n_accepted;
}

static void accept_round(struct engine *e, struct sequence *s, const struct forward_run *run) {
  int32_t node = -1, stood[DRAFT_LEN_MAX], from[DRAFT_LEN_MAX], to[DRAFT_LEN_MAX], n_stood = 0, root = s->n_tokens - 1;
  bool ended = false, drafted = true;
  s->state = round_advance(s->state, false); /* VERIFY -> ACCEPT */
  while (!ended && drafted) {
    int32_t row = node + 1; /* of the sequence's verification rows */
    s->rows[s->n_rows++] = s->verify_begin + row;
    const struct round_choice choice = choose(e, s, run, s->logits_begin + row, node);
    if (choice.token < 0) { /* constraint and bans leave nothing to say */
      s->stop = EAGLET_STOP_CONSTRAINT;
      ended = true;
      break;
    }
    note_logprobs(e, s, &choice);
    drafted = choice.child >= 0;
    ended = join(s, choice.token, drafted);
    if (!drafted) break;
    int32_t children[TREE_WIDTH_MAX];
    proposal_children(&s->proposal, node, children);
    node = children[choice.child];
    from[n_stood] = root + 1 + node;
    to[n_stood] = root + 1 + n_stood;
    stood[n_stood++] = node;
  }
  s->state = round_advance(s->state, false); /* ACCEPT -> COMMIT */
  kv_sequence_move(&s->kv, to, from, n_stood);
  s->kv.length = s->n_tokens - 1;
  count_round(s, n_stood, ended && drafted);
  controller_learn(e->controller, &s->record, &s->proposal, stood, n_stood);
  proposal_reset(&s->proposal);
  s->state = round_advance(s->state, s->stop != EAGLET_STOP_NONE);
}

/* ---- the prompt ---- */

static void note_prompt_logprobs(struct engine *e, struct sequence *s, const struct forward_run *run) {
  int32_t n_vocab = e->model->arch.features.n_vocab, at = s->prefill_logits_begin;
  for (int32_t slot = s->kv.length; slot < s->kv.length + s->n_prefill && slot < s->n_prompt - 1; slot++, at++) {
    e->compute->download(e->compute, e->row, run->logits + (int64_t)at * n_vocab, sizeof(float) * (size_t)n_vocab);
    s->n_prompt_entries[slot + 1] =
        (uint8_t)logprobs_of(s->prompt_logprobs + (int64_t)(slot + 1) * s->prompt_logprobs_width, e->row, n_vocab,
                             s->tokens[slot + 1], s->prompt_logprobs_width - 1);
  }
}

void accept_rows(struct engine *e, struct sequence *s, const struct forward_run *run) {
  s->rows = e->committed + e->n_committed;
  s->n_rows = 0;
  s->first_slot = s->kv.length;
  s->before_first = s->stats.output_tokens == 0;
  if (s->n_prefill > 0) {
    if (s->prompt_logprobs) note_prompt_logprobs(e, s, run);
    for (int32_t i = 0; i < s->n_prefill; i++) s->rows[s->n_rows++] = s->prefill_begin + i;
    s->kv.length += s->n_prefill;
  }
  if (s->n_verify > 0) accept_round(e, s, run);
  e->n_committed += s->n_rows;
  if (e->kv.prefix) prefix_cache_add(e->kv.prefix, &s->kv, s->tokens, s->n_tokens);
}
