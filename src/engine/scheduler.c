/* scheduler.c - who runs in a step, and with which rows: secures pages for those who run, admits who waits, fills the batch. Allocates
 * nothing.
 *
 * First come, first admitted. Rounds are placed before prompts, except for a quarter of the rows that prompts keep while there are some;
 * prompts share what is left equally. When pages run out the last admitted gives up its pages and waits at the head of the queue; what it
 * computed is computed again later, to the same bits. */
#include "engine/engine_internal.h"

#include "model/prefix_cache.h"

/* ---- pages ---- */

/* A drafter may draft without entries of its own. */
static bool has_draft_kv(const struct sequence *s) {
  return s->draft_kv.cache != NULL;
}

/* Slots of the drafter's entries that the end of this step may need: what may be accepted, then the nodes of the next proposal. */
static int32_t draft_slots(const struct sequence *s) {
  return s->n_tokens + proposal_depth(&s->proposal) + 1 + s->limits.levels * s->limits.width;
}

/* Slots of the target's entries that this step may write: its tokens' and the drafted ones'. */
static int32_t target_slots(const struct sequence *s) {
  return s->n_tokens + s->proposal.n;
}

/* Pages for what the sequence may write in this step, at the target and at the drafter. False: a pool has too few. */
static bool reserve(struct sequence *s) {
  struct eaglet_error err;
  return kv_sequence_reserve(&s->kv, target_slots(s), &err) == EAGLET_OK &&
         (!has_draft_kv(s) || kv_sequence_reserve(&s->draft_kv, draft_slots(s), &err) == EAGLET_OK);
}

static void give_pages_back(struct sequence *s) {
  kv_sequence_empty(&s->kv);
  if (has_draft_kv(s)) kv_sequence_empty(&s->draft_kv);
  if (s->memory) s->engine->drafter->restart(s->memory);
}

static void forget_rows(struct sequence *s) {
  s->n_prefill = s->n_verify = s->n_rows = 0;
}

static void preempt(struct engine *e, struct sequence *s) {
  sequence_list_remove(&e->running, s);
  sequence_list_prepend(&e->waiting, s);
  give_pages_back(s);
  forget_rows(s);
  s->state = round_preempt(s->state);
  s->stats.preemptions++;
  e->stats.preemptions++;
}

void scheduler_retire(struct engine *e, struct sequence *s) {
  sequence_list_remove(s->state == ROUND_WAITING ? &e->waiting : &e->running, s);
  if (s->kv.cache) give_pages_back(s);
  s->state = ROUND_DONE;
}

/* ---- admission ---- */

/* Takes what the prefix caches have of the sequence's tokens. The last token is always computed: its logits are needed. A drafter that
 * reads the target's states cannot catch up on slots that the target skips, so both start at the same page then. */
static void attach_prefix(struct engine *e, struct sequence *s) {
  int32_t pages_max = (s->n_tokens - 1) / KV_PAGE_TOKENS, n, n_draft = 0, *draft_pages = e->pages + s->kv.table_capacity;
  if (!e->kv.prefix || s->prompt_logprobs) return;
  n = prefix_cache_match(e->kv.prefix, s->tokens, s->n_tokens, e->pages, pages_max);
  if (has_draft_kv(s)) {
    n_draft = prefix_cache_match(e->drafter->kv->prefix, s->tokens, s->n_tokens, draft_pages, n);
    if (e->drafter->taps.n > 0) n = n_draft;
    prefix_cache_attach(e->drafter->kv->prefix, &s->draft_kv, draft_pages, n_draft);
  }
  prefix_cache_attach(e->kv.prefix, &s->kv, e->pages, n);
}

/* Whether the sequence's tokens fit now, with a page to grow for everybody who runs. */
static bool fits(const struct engine *e, const struct sequence *s) {
  int32_t headroom = e->running.n,
          needed = kv_pages_of(target_slots(s)) - s->kv.n_pages,
          at_drafter = has_draft_kv(s) ? kv_pages_of(draft_slots(s)) - s->draft_kv.n_pages : 0;
  return needed + headroom <= kv_cache_available(&e->kv) &&
         (!has_draft_kv(s) || at_drafter + headroom <= kv_cache_available(e->drafter->kv));
}

static void admit(struct engine *e) {
  while (e->waiting.first && e->running.n < e->sequences_max) {
    struct sequence *s = e->waiting.first;
    attach_prefix(e, s);
    if (!fits(e, s) && e->running.n > 0) {
      give_pages_back(s);
      return;
    }
    bool reserved = reserve(s);
    ASSERT(reserved); /* a pool holds the longest sequence */
    sequence_list_remove(&e->waiting, s);
    sequence_list_append(&e->running, s);
    s->state = round_advance(s->state, false); /* WAITING -> PREFILL */
    if (s->stats.preemptions > 0) continue;
    s->stats.cached_tokens = s->kv.length;
    e->stats.prompt_tokens += s->n_prompt;
    e->stats.cached_tokens += s->kv.length;
  }
}

/* Pages for what everybody who runs may write in this step, in the order of admission, taken from the last admitted when there is no
 * other way. Before any row is placed: a preempted sequence has none. */
static void secure(struct engine *e) {
  for (struct sequence *s = e->running.first, *next; s; s = next) {
    while (s->state != ROUND_WAITING && !reserve(s)) {
      ASSERT(e->running.n > 1); /* a pool holds the longest sequence */
      preempt(e, e->running.last);
    }
    next = s->state == ROUND_WAITING ? NULL : s->next; /* it was the last */
  }
}

/* ---- rows ---- */

static void add_row(struct engine *e, struct sequence *s, int32_t token, int32_t slot) {
  struct batch_row *row = batch_add(&e->batch);
  row->token = token;
  row->position = row->slot = slot;
  row->kv = &s->kv;
}

/* The last token, then the drafted ones: a chain's follow it, a tree's see their ancestors. */
static void add_verify_rows(struct engine *e, struct sequence *s) {
  const struct proposal *p = &s->proposal;
  int32_t last = s->n_tokens - 1, depth = proposal_depth(p);
  s->verify_begin = e->batch.n;
  s->n_verify = p->n + 1;
  add_row(e, s, s->tokens[last], last);
  e->batch.rows[s->verify_begin].wants_logits = true;
  for (int32_t i = 0; i < p->n; i++) {
    add_row(e, s, p->tokens[i], last + 1 + i);
    struct batch_row *row = &e->batch.rows[e->batch.n - 1];
    row->wants_logits = true;
    if (depth == p->n) continue;
    int32_t *path = e->paths + (int64_t)(e->batch.n - 1) * DRAFT_LEN_MAX, at = row->n_path = p->depths[i];
    row->position = last + 1 + p->depths[i];
    row->n_prefix = last + 1;
    row->path = path;
    for (int32_t node = p->parents[i]; node >= 0; node = p->parents[node]) path[--at] = last + 1 + node;
  }
  s->state = round_advance(s->state, false); /* PROPOSE -> VERIFY */
}

static int32_t room(const struct engine *e) {
  return e->batch.capacity - e->batch.n;
}

/* n rows of the prompt (or, after preemption, of all tokens). */
static void add_prefill_rows(struct engine *e, struct sequence *s, int32_t n) {
  int32_t first = s->kv.length;
  s->prefill_begin = e->batch.n;
  s->n_prefill = n;
  for (int32_t i = 0; i < n; i++) {
    add_row(e, s, s->tokens[first + i], first + i);
    e->batch.rows[e->batch.n - 1].wants_logits = s->prompt_logprobs && first + i < s->n_prompt - 1;
  }
}

/* The sequence n places after the first; NULL behind the last. */
static struct sequence *nth(const struct sequence_list *list, int32_t n) {
  struct sequence *s = list->first;
  while (n-- > 0 && s) s = s->next;
  return s;
}

static int32_t prefill_left(const struct sequence *s) {
  return s->state == ROUND_PREFILL ? s->n_tokens - 1 - s->kv.length : 0;
}

/* Rows that rounds leave to prompts: without them, rounds that fill every batch would keep a newcomer waiting until they end. Rounds that
 * had to give way do not in the next step, so that no stream of prompts holds them up either. */
static int32_t rows_for_prompts(const struct engine *e) {
  int32_t left = 0;
  for (const struct sequence *s = e->running.first; s; s = s->next) left += prefill_left(s);
  return left > 0 && !e->rounds_gave_way ? (e->batch.capacity + 3) / 4 : 0;
}

/* Rounds of those whose prompt is done, from e->turn on, so that no place is always the last served: the first for whose rows there is no
 * room is the first in the next step. */
static void fill_verification(struct engine *e) {
  int32_t n = e->running.n, turn = n > 0 ? e->turn % n : 0, left = rows_for_prompts(e);
  struct sequence *s = nth(&e->running, turn);
  bool all = true;
  for (int32_t i = 0; i < n; i++, s = s->next ? s->next : e->running.first) {
    if (s->state == ROUND_PREFILL && s->kv.length == s->n_tokens - 1) s->state = round_advance(s->state, false);
    if (s->state != ROUND_PROPOSE) continue;
    if (room(e) - left >= s->proposal.n + 1) {
      add_verify_rows(e, s);
    } else if (all) {
      e->turn = (turn + i) % n;
      all = false;
    }
  }
  e->rounds_gave_way = left > 0 && !all;
}

/* Prompts share what is left equally; what short ones leave goes to the first. With its last row a prompt's round begins in the same
 * step. */
static void fill_prefill(struct engine *e) {
  int32_t n = 0, spare = room(e);
  for (struct sequence *s = e->running.first; s; s = s->next) n += prefill_left(s) > 0;
  if (n == 0) return;
  int32_t share = spare / n > 1 ? spare / n : 1;
  for (struct sequence *s = e->running.first; s; s = s->next) {
    int32_t left = prefill_left(s), take = left < share ? left : share;
    s->n_prefill = take < spare ? take : spare;
    spare -= s->n_prefill;
  }
  for (struct sequence *s = e->running.first; s; s = s->next) {
    int32_t left = prefill_left(s), more = left - s->n_prefill < spare ? left - s->n_prefill : spare, rows = s->n_prefill + more;
    if (rows == 0) continue;
    spare -= more;
    add_prefill_rows(e, s, rows);
    if (rows < left || spare < s->proposal.n + 1) continue;
    spare -= s->proposal.n + 1;
    s->state = round_advance(s->state, false); /* PREFILL -> PROPOSE */
    add_verify_rows(e, s);
  }
}

/* Which rows of the run's logits are whose. */
static void place_logits(struct engine *e) {
  int32_t n = 0, *before = e->best; /* unused until the run is over */
  for (int32_t r = 0; r < e->batch.n; r++) {
    before[r] = n;
    n += e->batch.rows[r].wants_logits;
  }
  for (struct sequence *s = e->running.first; s; s = s->next) {
    if (s->n_verify > 0) s->logits_begin = before[s->verify_begin];
    if (s->n_prefill > 0) s->prefill_logits_begin = before[s->prefill_begin];
  }
}

void scheduler_fill(struct engine *e) {
  batch_reset(&e->batch);
  e->n_committed = 0;
  for (struct sequence *s = e->running.first; s; s = s->next) forget_rows(s);
  secure(e);
  admit(e);
  fill_verification(e);
  fill_prefill(e);
  place_logits(e);
}
