/* draft_net.c - drafting with a network: a head, which reads the target's states, or a model, which reads tokens only. See drafter.h.
 * Owns the network's KV pool, its activations and what a step needs.
 *
 * A step has two parts. Catch-up: rows of slots that became committed, so that entries are made of what the target really computed; for
 * a sequence that is not to draft now, a head's rows wait ("pending") and run together later, which is cheaper than one at a time.
 * Then levels: the tree's frontier of every sequence in one batch, until no tree wants another level. A chain is a tree of width one.
 * Of a sequence that sleeps only the last rows are kept; when it wakes its entries go on with a gap, which costs drafts, not output.
 *
 * The hard part is which row sees what: node rows see the sequence's committed entries, their ancestors' and themselves.
 */
#include "engine/drafter.h"

#include "base/memory.h"
#include "base/util.h"
#include "model/prefix_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PENDING_MAX 32 /* committed rows of one sequence that may wait */

struct drafter_memory {
  struct compute *compute;
  float *pending; /* device [PENDING_MAX, width], a ring: states of the next slots to enter; NULL for a model */
  int32_t first_pending, n_pending;
  int32_t gap;    /* slots that were forgotten: entry i is of slot i + gap, for entries behind the gaps */
};

/* One sequence of the step. */
struct job {
  struct draft_request *r;
  struct tree tree;
  bool wants, drawn;
  int32_t end;               /* catch-up ends before this slot */
  int32_t n_taken;           /* of its pending rows, in this catch-up */
  int32_t row_begin, n_rows; /* its part of the batch */
  bool root_in_batch;        /* the batch has the row whose logits start the tree */
  int32_t base, n_run;       /* node rows take slots base, base + 1 ... */
  int32_t ran[TREE_WIDTH_MAX], ran_row[TREE_WIDTH_MAX], n_ran; /* candidates of the last level's rows */
  int32_t paths[TREE_WIDTH_MAX][DRAFT_LEN_MAX];
  uint8_t *states, *states_next; /* of the frontier, with a constraint */
};

struct net {
  struct drafter base;
  struct compute *compute;
  const struct model *target, *model;
  const struct head *head;
  struct controller *controller;
  struct head_forward *head_forward;
  struct forward *forward;
  struct kv_cache kv;
  struct batch batch;
  struct job *jobs; /* [sequences_max] */
  int32_t n_jobs, rows_max, sequences_max, positions_max, width; /* width: floats of the target's states of one row */
  /* device */
  float *tapped, *feature, *root_feature; /* [rows_max, width], [rows_max, H], [sequences_max, H] */
  int32_t *gather_device, *ids_device;    /* [rows_max], [rows_max, TREE_WIDTH_MAX] */
  float *scores_device, *masked;          /* [rows_max, TREE_WIDTH_MAX], [n_draft] */
  /* host */
  int32_t *gather, *ids, *order;
  float *scores, *row;
  /* of the last run */
  float *out, *logits;
};

static struct net *net_of(struct drafter *drafter) {
  return (struct net *)drafter;
}

static int32_t target_id(const struct net *net, int32_t draft_id) {
  return net->head ? net->head->map.target[draft_id] : draft_id;
}

static enum eaglet_status run_rows(struct net *net, struct eaglet_error *err) {
  if (net->head) {
    struct head_run run = {.batch = &net->batch, .kv = &net->kv, .feature = net->feature};
    TRY(head_forward_run(net->head_forward, &run, err));
    net->out = run.out;
    net->logits = run.logits;
    return EAGLET_OK;
  }
  struct forward_run run = {.batch = &net->batch, .kv = &net->kv};
  TRY(forward_run(net->forward, &run, err));
  net->logits = run.logits;
  return EAGLET_OK;
}

/* The slot of the sequence's next entry. */
static int32_t next_slot(const struct draft_request *r) {
  return r->kv->length + r->memory->gap;
}

/* ---- choosing children ---- */

static void mask_row(const struct net *net, float *logits, const uint32_t *allowed) {
  for (int32_t i = 0; i < net->base.n_draft; i++) {
    int32_t id = target_id(net, i);
    if (!(allowed[id / 32] >> (id % 32) & 1)) logits[i] = -INFINITY;
  }
}

/* What a token drawn from q expects of its own probability. Whether a drawn token is verified may depend on q and on what came before,
 * never on the token itself: dropping unlikely ones would bend the law of the output. */
static float expected_score(const float *q, int32_t n) {
  float sum = 0;
  for (int32_t i = 0; i < n; i++) sum += q[i] * q[i];
  return fminf(logf(sum), 0);
}

/* Draws one child of the node at `depth` and leaves the distribution where the verification will look for it. */
static void draw_child(struct net *net, struct job *job, int32_t candidate, float *logits) {
  struct draft_request *r = job->r;
  const struct tree *t = &job->tree;
  int32_t depth = t->n_levels, n = net->base.n_draft;
  float *q = r->q + (int64_t)depth * n;
  memcpy(q, logits, sizeof(float) * (size_t)n);
  sampler_distribution(q, n, r->sampling, net->order);
  float score = expected_score(q, n);
  if ((candidate < 0 ? 0 : t->candidates[candidate].score) + score < r->keep_min) return;
  int32_t choice = sampler_draw(q, n, draw_uniform(r->seed, r->n_tokens, DRAW_DRAFT + depth));
  if (choice < 0) return; /* a constraint allows nothing that it could draft */
  int32_t token = target_id(net, choice);
  tree_grow(&job->tree, candidate, &token, &score, 1);
}

static void best_children(struct net *net, struct job *job, int32_t candidate, const int32_t *ids, const float *scores) {
  int32_t tokens[TREE_WIDTH_MAX], n = 0;
  while (n < job->tree.width && scores[n] > -INFINITY) {
    tokens[n] = target_id(net, ids[n]);
    n++;
  }
  tree_grow(&job->tree, candidate, tokens, scores, n);
}

/* Children of the node whose logits are row `li`: the best ones, or one that is drawn; only allowed ones, none of a text that is whole. */
static void grow(struct net *net, struct job *job, int32_t candidate, int32_t li, const uint8_t *state) {
  struct compute *c = net->compute;
  const struct constraint_cursor *constraint = job->r->constraint;
  if (constraint && constraint->source->is_over(constraint->source->context, state)) return;
  if (!job->drawn && !constraint) {
    best_children(net, job, candidate, net->ids + (int64_t)li * TREE_WIDTH_MAX, net->scores + (int64_t)li * TREE_WIDTH_MAX);
    return;
  }
  size_t bytes = sizeof(float) * (size_t)net->base.n_draft;
  c->download(c, net->row, net->logits + (int64_t)li * net->base.n_draft, bytes);
  if (constraint) mask_row(net, net->row, constraint->source->allowed(constraint->source->context, state));
  if (job->drawn) {
    draw_child(net, job, candidate, net->row);
    return;
  }
  int32_t ids[TREE_WIDTH_MAX];
  float scores[TREE_WIDTH_MAX];
  const struct top_k_params top = {.ids = net->ids_device,
                                   .log_probabilities = net->scores_device,
                                   .x = net->masked,
                                   .dim = net->base.n_draft,
                                   .k = job->tree.width};
  c->upload(c, net->masked, net->row, bytes);
  c->top_k(c, &top, 1);
  c->download(c, ids, net->ids_device, sizeof(int32_t) * (size_t)top.k);
  c->download(c, scores, net->scores_device, sizeof(float) * (size_t)top.k);
  best_children(net, job, candidate, ids, scores);
}

/* The best of every row of the run, for those who take them as they are. */
static void top_of_rows(struct net *net, int32_t n) {
  struct compute *c = net->compute;
  int32_t k = net->base.n_draft < TREE_WIDTH_MAX ? net->base.n_draft : TREE_WIDTH_MAX, width = 1;
  for (int32_t j = 0; j < net->n_jobs; j++) width = net->jobs[j].tree.width > width ? net->jobs[j].tree.width : width;
  k = width < k ? width : k;
  const struct top_k_params top = {.ids = net->ids_device,
                                   .log_probabilities = net->scores_device,
                                   .x = net->logits,
                                   .dim = net->base.n_draft,
                                   .k = k};
  c->top_k(c, &top, n);
  c->download(c, net->ids, net->ids_device, sizeof(int32_t) * (size_t)(n * k));
  c->download(c, net->scores, net->scores_device, sizeof(float) * (size_t)(n * k));
  for (int32_t i = n; i-- > 0 && k < TREE_WIDTH_MAX;) { /* rows TREE_WIDTH_MAX apart */
    memmove(net->ids + (int64_t)i * TREE_WIDTH_MAX, net->ids + (int64_t)i * k, sizeof(int32_t) * (size_t)k);
    memmove(net->scores + (int64_t)i * TREE_WIDTH_MAX, net->scores + (int64_t)i * k, sizeof(float) * (size_t)k);
    for (int32_t x = k; x < TREE_WIDTH_MAX; x++) net->scores[(int64_t)i * TREE_WIDTH_MAX + x] = -INFINITY;
  }
}

/* ---- catch-up ---- */

static void copy_rows(struct net *net, float *to, const float *from, int32_t n) {
  net->compute->copy(net->compute, to, from, sizeof(float) * (size_t)n * (size_t)net->width);
}

/* Rows of a sequence that is not to draft wait while there is room, or for ever when it sleeps. */
static bool may_wait(const struct net *net, const struct job *job) {
  const struct draft_request *r = job->r;
  if (job->wants) return false;
  return !net->head || r->sleeps || r->memory->n_pending + r->n_rows <= PENDING_MAX;
}

static float *pending_row(const struct net *net, const struct drafter_memory *m, int32_t i) {
  return m->pending + (int64_t)((m->first_pending + i) % PENDING_MAX) * net->width;
}

static void let_wait(struct net *net, struct job *job, const struct forward_run *target) {
  struct draft_request *r = job->r;
  struct drafter_memory *m = r->memory;
  if (!net->head) return;
  int32_t forgotten = m->n_pending + r->n_rows > PENDING_MAX ? m->n_pending + r->n_rows - PENDING_MAX : 0,
          old = forgotten < m->n_pending ? forgotten : m->n_pending;
  m->first_pending = (m->first_pending + old) % PENDING_MAX;
  m->n_pending -= old;
  m->gap += forgotten;
  r->kv->sparse |= forgotten > 0;
  for (int32_t i = forgotten - old; i < r->n_rows; i++)
    copy_rows(net, pending_row(net, m, m->n_pending++), target->tapped + (int64_t)r->rows[i] * net->width, 1);
}

/* Adds rows of the job's next slots as far as there is room. */
static void add_catch_up(struct net *net, struct job *job) {
  struct draft_request *r = job->r;
  int32_t begin = next_slot(r), n = job->end - begin, room = net->batch.capacity - net->batch.n,
          last = r->n_tokens - net->base.lookahead - 1;
  job->row_begin = net->batch.n;
  job->n_rows = n < room ? n : room;
  job->root_in_batch = false;
  for (int32_t i = 0; i < job->n_rows; i++) {
    struct batch_row *row = batch_add(&net->batch);
    row->token = r->tokens[begin + i + net->base.lookahead];
    row->position = begin + i;
    row->slot = r->kv->length + i;
    row->kv = r->kv;
    row->wants_logits = job->wants && begin + i == last;
    job->root_in_batch |= row->wants_logits;
  }
}

/* The target's states of the job's rows: first the pending ones, then those of this step. */
static void fetch_states(struct net *net, struct job *job, const struct forward_run *target) {
  struct draft_request *r = job->r;
  struct drafter_memory *m = r->memory;
  float *to = net->tapped + (int64_t)job->row_begin * net->width;
  int32_t waiting = m->n_pending - job->n_taken, n = job->n_rows < waiting ? job->n_rows : waiting;
  for (int32_t i = 0; i < n; i++) copy_rows(net, to + (int64_t)i * net->width, pending_row(net, m, job->n_taken++), 1);
  for (int32_t i = n; i < job->n_rows; i++) {
    int32_t row = r->rows[next_slot(r) + i - r->first_slot];
    copy_rows(net, to + (int64_t)i * net->width, target->tapped + (int64_t)row * net->width, 1);
  }
  if (job->n_taken == m->n_pending) job->n_taken = m->n_pending = 0;
}

/* Runs what was added; trees whose first logits came with it get their first level. */
static enum eaglet_status run_catch_up(struct net *net, const struct forward_run *target, struct eaglet_error *err) {
  int32_t li = 0;
  double started = time_now();
  if (net->batch.n == 0) return EAGLET_OK;
  for (int32_t j = 0; j < net->n_jobs && net->head; j++) {
    if (net->jobs[j].n_rows > 0) fetch_states(net, &net->jobs[j], target);
  }
  if (net->head) head_fuse(net->head_forward, net->feature, net->tapped, net->batch.n);
  TRY(run_rows(net, err));
  for (int32_t j = 0; j < net->n_jobs; j++) li += net->jobs[j].n_rows > 0 && net->jobs[j].root_in_batch;
  if (li > 0) top_of_rows(net, li);
  li = 0;
  for (int32_t j = 0; j < net->n_jobs; j++) {
    struct job *job = &net->jobs[j];
    if (job->n_rows == 0) continue;
    job->r->kv->length += job->n_rows;
    if (job->root_in_batch) {
      size_t h = net->head ? (size_t)net->head->config.hidden : 0;
      if (h) net->compute->copy(net->compute, net->root_feature + (size_t)j * h, net->out + (size_t)(job->row_begin + job->n_rows - 1) * h, h * sizeof(float));
      grow(net, job, -1, li++, job->r->constraint ? job->r->constraint->state : NULL);
    }
    job->n_rows = 0;
  }
  controller_measured(net->controller, COST_CATCH_UP, net->batch.n, time_now() - started);
  batch_reset(&net->batch);
  return EAGLET_OK;
}

static enum eaglet_status catch_up(struct net *net, const struct forward_run *target, struct eaglet_error *err) {
  batch_reset(&net->batch);
  for (int32_t j = 0; j < net->n_jobs; j++) {
    struct job *job = &net->jobs[j];
    if (may_wait(net, job)) {
      let_wait(net, job, target);
      continue;
    }
    while (next_slot(job->r) + job->n_rows < job->end) {
      if (net->batch.n == net->batch.capacity) TRY(run_catch_up(net, target, err));
      add_catch_up(net, job);
      if (next_slot(job->r) + job->n_rows < job->end) TRY(run_catch_up(net, target, err));
    }
  }
  return run_catch_up(net, target, err);
}

/* ---- levels ---- */

/* States of the new frontier's nodes: their parents' after one token more. */
static void advance_states(struct job *job) {
  const struct constraint_cursor *constraint = job->r->constraint;
  if (!constraint) return;
  size_t bytes = constraint->source->state_bytes;
  for (int32_t f = 0; f < job->tree.n_frontier; f++) {
    const struct tree_candidate *node = &job->tree.candidates[job->tree.frontier[f]];
    const void *from = constraint->state;
    for (int32_t i = 0; i < job->n_ran; i++) {
      if (job->ran[i] == node->parent) from = job->states + (size_t)i * bytes;
    }
    memcpy(job->states_next + (size_t)f * bytes, from, bytes);
    /* Children were masked, so what does not advance is a stop token: nobody looks at drafts behind it. */
    constraint->source->advance(constraint->source->context, job->states_next + (size_t)f * bytes, node->token);
  }
  uint8_t *t = job->states;
  job->states = job->states_next;
  job->states_next = t;
}

/* Ends every tree's level. Whether there is another one is decided for all together, since they share its pass. */
static bool next_level(struct net *net) {
  double chances = 0;
  int32_t n_rows = 0;
  for (int32_t j = 0; j < net->n_jobs; j++) {
    struct job *job = &net->jobs[j];
    struct tree *t = &job->tree;
    if (job->wants) job->wants = tree_advance(t, job->r->expand_min) > 0 && t->n_levels < job->r->n_levels;
    for (int32_t f = 0; job->wants && f < t->n_frontier; f++)
      chances += controller_chance(net->controller, job->r->record, t->candidates[t->frontier[f]].score);
    n_rows += job->wants ? t->n_frontier : 0;
  }
  return n_rows > 0 && controller_level_pays(net->controller, chances, n_rows);
}

/* The job's frontier becomes rows. gather gets the rows of their parents' features. */
static void add_level(struct net *net, int32_t j) {
  struct job *job = &net->jobs[j];
  struct tree *t = &job->tree;
  if (!job->wants) return;
  advance_states(job);
  int32_t ran[TREE_WIDTH_MAX], ran_row[TREE_WIDTH_MAX];
  for (int32_t f = 0; f < t->n_frontier; f++) {
    struct tree_candidate *node = &t->candidates[t->frontier[f]];
    struct batch_row *row = batch_add(&net->batch);
    net->gather[net->batch.n - 1] = j;
    for (int32_t i = 0; i < job->n_ran && node->depth > 0; i++) {
      if (job->ran[i] == node->parent) net->gather[net->batch.n - 1] = job->ran_row[i];
    }
    node->slot = job->base + job->n_run++;
    *row = (struct batch_row){.token = node->token,
                              .position = job->base + job->r->memory->gap + node->depth,
                              .slot = node->slot,
                              .n_prefix = t->width > 1 ? job->base : 0,
                              .path = job->paths[f],
                              .kv = job->r->kv,
                              .wants_logits = true};
    if (t->width > 1) row->n_path = tree_path(t, t->frontier[f], job->paths[f]);
    ran[f] = t->frontier[f];
    ran_row[f] = net->batch.n - 1;
  }
  job->n_ran = t->n_frontier;
  memcpy(job->ran, ran, sizeof ran);
  memcpy(job->ran_row, ran_row, sizeof ran_row);
}

static enum eaglet_status run_level(struct net *net, int32_t level, struct eaglet_error *err) {
  struct compute *c = net->compute;
  double started = time_now();
  batch_reset(&net->batch);
  if (!next_level(net)) return EAGLET_OK;
  for (int32_t j = 0; j < net->n_jobs; j++) add_level(net, j);
  int32_t n = net->batch.n;
  if (net->head) {
    const struct gather_params features = {.dim = net->head->config.hidden};
    c->upload(c, net->gather_device, net->gather, sizeof(int32_t) * (size_t)n);
    c->gather_rows(c, net->feature, level == 1 ? net->root_feature : net->out, net->gather_device, n, &features);
  }
  TRY(run_rows(net, err));
  top_of_rows(net, n);
  for (int32_t j = 0; j < net->n_jobs; j++) {
    struct job *job = &net->jobs[j];
    for (int32_t i = 0; i < job->n_ran && job->wants; i++) {
      size_t bytes = job->r->constraint ? job->r->constraint->source->state_bytes : 0;
      grow(net, job, job->ran[i], job->ran_row[i], bytes ? job->states + (size_t)i * bytes : NULL);
    }
  }
  controller_measured(net->controller, COST_LEVEL, n, time_now() - started);
  return EAGLET_OK;
}

/* ---- the contract ---- */

static void start_job(struct net *net, struct job *job, struct draft_request *r) {
  int32_t last = r->n_tokens - net->base.lookahead, shown = r->first_slot + r->n_rows;
  bool whole = shown >= r->n_tokens - 1; /* everything that the target has is shown: a tree can start */
  job->r = r;
  job->wants = r->n_levels > 0 && whole && last + r->n_levels <= net->positions_max;
  job->drawn = r->q != NULL;
  job->end = whole ? last : shown;
  if (job->end > net->positions_max) job->end = next_slot(r); /* past what it can see: it stays silent */
  job->n_taken = job->n_rows = job->n_run = job->n_ran = 0;
  job->base = last - r->memory->gap;
  tree_reset(&job->tree, job->drawn ? 1 : r->width);
  if (!r->constraint) return;
  job->states = r->constraint->scratch;
  job->states_next = job->states + TREE_WIDTH_MAX * r->constraint->source->state_bytes;
}

static enum eaglet_status net_propose(struct drafter *drafter, struct draft_request *requests, int32_t n,
                                      const struct forward_run *target, struct eaglet_error *err) {
  struct net *net = net_of(drafter);
  ASSERT(n <= net->sequences_max);
  net->n_jobs = n;
  for (int32_t i = 0; i < n; i++) start_job(net, &net->jobs[i], &requests[i]);
  TRY(catch_up(net, target, err));
  for (int32_t level = 1; level < DRAFT_LEN_MAX + 1; level++) {
    TRY(run_level(net, level, err));
    if (net->batch.n == 0) break;
  }
  for (int32_t i = 0; i < n; i++) {
    struct draft_request *r = net->jobs[i].r;
    if (r->n_levels == 0) continue; /* a proposal that still waits for its verification stands */
    proposal_reset(r->proposal);
    tree_choose(&net->jobs[i].tree, r->n_max, r->proposal);
    r->proposal->q = net->jobs[i].drawn ? r->q : NULL;
    r->proposal->n_q = net->base.n_draft;
  }
  return EAGLET_OK;
}

/* Rows of a sequence that never was: a catch-up and a level, timed like any other. */
static enum eaglet_status net_rehearse(struct drafter *drafter, int32_t n_rows, struct eaglet_error *err) {
  struct net *net = net_of(drafter);
  struct kv_sequence kv;
  TRY(kv_sequence_init(&kv, &net->kv, n_rows, err));
  enum eaglet_status status = kv_sequence_reserve(&kv, n_rows, err);
  for (int32_t pass = 0; pass < 2 && status == EAGLET_OK; pass++) {
    double started = time_now();
    batch_reset(&net->batch);
    for (int32_t i = 0; i < n_rows; i++) {
      struct batch_row *row = batch_add(&net->batch);
      *row = (struct batch_row){.token = i % net->target->arch.features.n_vocab, .position = i, .slot = i, .kv = &kv};
      row->wants_logits = pass == 1 || i == n_rows - 1;
    }
    net->n_jobs = 0;
    if (net->head && pass == 0) head_fuse(net->head_forward, net->feature, net->tapped, n_rows);
    status = run_rows(net, err);
    top_of_rows(net, pass == 0 ? 1 : n_rows);
    controller_measured(net->controller, pass == 0 ? COST_CATCH_UP : COST_LEVEL, n_rows, time_now() - started);
  }
  kv_sequence_release(&kv);
  return status;
}

static struct drafter_memory *net_remember(struct drafter *drafter) {
  struct net *net = net_of(drafter);
  struct drafter_memory *m = memory_alloc(sizeof *m);
  *m = (struct drafter_memory){.compute = net->compute};
  if (!net->head) return m;
  m->pending = net->compute->alloc(net->compute, (size_t)PENDING_MAX * (size_t)net->width * sizeof(float));
  if (m->pending) return m;
  free(m);
  return NULL;
}

static void net_restart(struct drafter_memory *memory) {
  memory->n_pending = memory->gap = 0;
}

static void net_forget(struct drafter *drafter, struct drafter_memory *memory) {
  (void)drafter;
  if (!memory) return;
  if (memory->pending) memory->compute->free(memory->compute, memory->pending);
  free(memory);
}

static void net_close(struct drafter *drafter) {
  struct net *net = net_of(drafter);
  struct compute *c = net->compute;
  void *device[] = {net->tapped,     net->feature,       net->root_feature, net->gather_device,
                    net->ids_device, net->scores_device, net->masked};
  for (size_t i = 0; i < sizeof device / sizeof *device; i++) {
    if (device[i]) c->free(c, device[i]);
  }
  head_forward_free(net->head_forward);
  forward_free(net->forward);
  kv_cache_release(&net->kv);
  batch_release(&net->batch);
  free(net->jobs);
  free(net->gather);
  free(net->ids);
  free(net->order);
  memory_try_free(net->scores);
  memory_try_free(net->row);
  free(net);
}

static enum eaglet_status plan_memory(struct net *net, struct eaglet_error *err) {
  struct compute *c = net->compute;
  size_t rows = (size_t)net->rows_max, n_draft = (size_t)net->base.n_draft, best = rows * TREE_WIDTH_MAX;
  net->jobs = memory_alloc((size_t)net->sequences_max * sizeof *net->jobs);
  net->gather = memory_alloc(rows * sizeof(int32_t));
  net->ids = memory_alloc(best * sizeof(int32_t));
  net->order = memory_alloc(n_draft * sizeof(int32_t));
  net->scores = memory_try(best * sizeof(float));
  net->row = memory_try(n_draft * sizeof(float));
  net->gather_device = c->alloc(c, rows * sizeof(int32_t));
  net->ids_device = c->alloc(c, best * sizeof(int32_t));
  net->scores_device = c->alloc(c, best * sizeof(float));
  net->masked = c->alloc(c, n_draft * sizeof(float));
  bool ok = net->scores && net->row && net->gather_device && net->ids_device && net->scores_device && net->masked;
  batch_init(&net->batch, net->rows_max);
  if (net->head) {
    size_t h = (size_t)net->head->config.hidden;
    net->tapped = c->alloc(c, rows * (size_t)net->width * sizeof(float));
    net->feature = c->alloc(c, rows * h * sizeof(float));
    net->root_feature = c->alloc(c, (size_t)net->sequences_max * h * sizeof(float));
    ok = ok && net->tapped && net->feature && net->root_feature;
  }
  if (!ok) FAIL(err, EAGLET_E_RESOURCE, "no memory for drafting %d rows at a time", net->rows_max);
  return EAGLET_OK;
}

static enum eaglet_status plan_network(struct net *net, const struct drafter_params *p, struct eaglet_error *err) {
  int32_t tables = p->pages_each * p->sequences_max, layers = 1, entry;
  if (net->head) {
    entry = head_kv_entry_floats(net->head);
    layers = head_kv_layers(net->head);
    TRY(head_forward_create(&net->head_forward, net->head, p->rows_max, tables, err));
  } else {
    entry = model_kv_entry_floats(net->model);
    layers = net->model->arch.features.n_layers;
    TRY(forward_create(&net->forward, net->model, p->rows_max, tables, err));
  }
  TRY(kv_cache_init(&net->kv, net->compute, layers, entry, p->pages, err));
  if (p->prefix_cache) prefix_cache_create(&net->kv, net->base.lookahead);
  return EAGLET_OK;
}

static void describe(struct net *net, const struct drafter_params *p) {
  const struct head *head = p->head;
  net->base = (struct drafter){.name = head ? "head" : "model",
                               .kv = &net->kv,
                               .lookahead = head ? 1 : 0,
                               .n_draft = head ? head->config.n_draft : p->model->arch.features.n_vocab,
                               .draft_of = head ? head->map.draft : NULL,
                               .width_max = TREE_WIDTH_MAX,
                               .rehearse = net_rehearse,
                               .propose = net_propose,
                               .remember = net_remember,
                               .restart = net_restart,
                               .forget = net_forget,
                               .close = net_close};
  if (net->base.width_max > net->base.n_draft) net->base.width_max = net->base.n_draft;
  if (!head) return;
  net->base.taps.n = head->config.n_states;
  memcpy(net->base.taps.states, head->config.states, sizeof(int32_t) * (size_t)head->config.n_states);
}

enum eaglet_status drafter_net_open(struct drafter **out, const struct drafter_params *p, struct eaglet_error *err) {
  const struct model *target = p->target;
  *out = NULL;
  if (p->model && p->model->arch.features.n_vocab != target->arch.features.n_vocab) {
    FAIL(err, EAGLET_E_INPUT, "draft model: its vocabulary has %d ids, the target's %d", p->model->arch.features.n_vocab,
         target->arch.features.n_vocab);
  }
  struct net *net = memory_alloc(sizeof *net);
  *net = (struct net){.compute = target->compute,
                      .target = target,
                      .model = p->head ? NULL : p->model,
                      .head = p->head,
                      .controller = p->controller,
                      .rows_max = p->rows_max,
                      .sequences_max = p->sequences_max,
                      .positions_max = p->head ? target->n_positions : p->model->n_positions,
                      .width = p->head ? p->head->config.n_states * p->head->config.target_hidden : 0};
  describe(net, p);
  enum eaglet_status status = plan_network(net, p, err);
  if (status == EAGLET_OK) status = plan_memory(net, err);
  if (status != EAGLET_OK) {
    net_close(&net->base);
    return status;
  }
  *out = &net->base;
  return EAGLET_OK;
}

void drafter_close(struct drafter *drafter) {
  if (drafter) drafter->close(drafter);
}

double draw_uniform(uint64_t seed, int32_t token_index, int32_t kind) {
  return random_uniform(seed, DRAW_KINDS, (uint64_t)token_index * DRAW_KINDS + (uint64_t)kind);
}
