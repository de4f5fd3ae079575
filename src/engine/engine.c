/* engine.c - lifetime of an engine: opens target and drafter, plans all memory. The step is in step.c. */
#include "engine/engine_internal.h"

#include "base/memory.h"
#include "base/util.h"
#include "model/prefix_cache.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT_DEFAULT_MAX 4096
#define ROWS_DEFAULT 512
#define DRAFT_LEN_DEFAULT 7
#define TREE_TOKENS_DEFAULT 24
#define REMARK_ROUNDS_MIN 48 /* fewer say little */
#define REMARK_SHARE 20      /* one in so many is hardly ever */

/* ---- the drafter's network ---- */

/* A directory whose weights fuse captured states, or whose config says whose head it is, is a head; any other is a model. */
static enum eaglet_status open_draft(struct engine *e, const struct eaglet_engine_params *params, struct eaglet_error *err) {
  enum eaglet_drafter kind = params->drafter;
  if (kind == EAGLET_DRAFTER_AUTO) {
    kind = !params->draft ? EAGLET_DRAFTER_NONE : head_is_here(params->draft) ? EAGLET_DRAFTER_HEAD : EAGLET_DRAFTER_MODEL;
  }
  bool needs_draft = kind == EAGLET_DRAFTER_HEAD || kind == EAGLET_DRAFTER_MODEL;
  if (needs_draft && !params->draft) FAIL(err, EAGLET_E_USAGE, "drafting with a head or a model needs its directory");
  if (!needs_draft && params->draft) FAIL(err, EAGLET_E_USAGE, "%s: this drafter does not take a draft", params->draft);
  e->drafter_kind = kind;
  if (kind == EAGLET_DRAFTER_HEAD) {
    enum eaglet_status status = head_open(&e->head, params->draft, e->model, err);
    if (status == EAGLET_OK || head_is_here(params->draft)) return status;
    return error_set(err, EAGLET_E_INPUT, "%s: this is no EAGLE-3 head (a small model is the drafter \"model\")", params->draft);
  }
  if (kind == EAGLET_DRAFTER_MTP) return head_open_mtp(&e->head, e->model, err);
  if (kind != EAGLET_DRAFTER_MODEL) return EAGLET_OK;
  const struct model_params model = {.path = params->draft, .compute = e->compute, .positions_max = e->model->n_positions};
  return model_open(&e->draft_model, &model, err);
}

/* ---- limits ---- */

static enum eaglet_status check_most(const char *what, int32_t value, int32_t most, struct eaglet_error *err) {
  if (value > most) FAIL(err, EAGLET_E_USAGE, "%s %d: at most %d", what, value, most);
  return EAGLET_OK;
}

static enum eaglet_status plan_drafts(struct engine *e, const struct eaglet_engine_params *params, struct eaglet_error *err) {
  bool tree = params->draft_width_max > 1 && e->drafter_kind != EAGLET_DRAFTER_NGRAM;
  if (e->drafter_kind == EAGLET_DRAFTER_NONE) return EAGLET_OK;
  TRY(check_most("draft length", params->draft_len_max, DRAFT_LEN_MAX, err));
  TRY(check_most("draft width", params->draft_width_max, TREE_WIDTH_MAX, err));
  TRY(check_most("draft tokens", params->draft_tokens_max, PROPOSAL_MAX - 1, err));
  e->draft_len_max = or_default(params->draft_len_max, DRAFT_LEN_DEFAULT);
  e->draft_width_max = tree ? params->draft_width_max : 1;
  e->draft_tokens_max = or_default(params->draft_tokens_max, tree ? TREE_TOKENS_DEFAULT : e->draft_len_max);
  return EAGLET_OK;
}

static enum eaglet_status plan_limits(struct engine *e, const struct eaglet_engine_params *params,
                                      struct eaglet_error *err) {
  int32_t positions = e->model->arch.features.context_max, usual = e->model->n_positions;
  e->sequences_max = or_default(params->sequences_max, 1);
  e->context_max = or_default(params->context_max, usual < CONTEXT_DEFAULT_MAX ? usual : CONTEXT_DEFAULT_MAX);
  e->prefix_cache = !params->no_prefix_cache;
  if (e->context_max > positions)
    FAIL(err, EAGLET_E_USAGE, "context of %d tokens: the model has %d positions", e->context_max, positions);
  TRY(plan_drafts(e, params, err));
  e->rows_max = or_default(params->rows_max, ROWS_DEFAULT);
  int32_t rows_needed = e->draft_tokens_max + 1; /* one sequence verifies in one step, and a row of everybody fits */
  if (e->rows_max < rows_needed) e->rows_max = rows_needed;
  if (e->rows_max < e->sequences_max) e->rows_max = e->sequences_max;
  return EAGLET_OK;
}

/* ---- memory ---- */

static int64_t page_bytes(int32_t entry_floats, int32_t n_layers) {
  return (int64_t)KV_PAGE_TOKENS * entry_floats * n_layers * (int64_t)sizeof(float);
}

static int64_t model_page_bytes(const struct model *model) {
  return page_bytes(model_kv_entry_floats(model), model->arch.features.n_layers);
}

/* Pages of both pools: for sequences_max whole contexts, or what the memory allows. */
struct page_plan {
  int32_t target_each, draft_each; /* pages that the longest sequence may take */
  int32_t target, draft;           /* pages of the pools */
};

static enum eaglet_status plan_pages(struct page_plan *plan, const struct engine *e, const struct eaglet_engine_params *params,
                                     struct eaglet_error *err) {
  int64_t bytes_target = model_page_bytes(e->model), bytes_draft = 0;
  if (e->head) bytes_draft = page_bytes(head_kv_entry_floats(e->head), head_kv_layers(e->head));
  if (e->draft_model) bytes_draft = model_page_bytes(e->draft_model);
  plan->target_each = kv_pages_of(target_slots_max(e));
  plan->draft_each = kv_pages_of(draft_slots_max(e));
  int64_t each = plan->target_each * bytes_target + plan->draft_each * bytes_draft,
          memory = params->kv_memory_mib > 0 ? (int64_t)params->kv_memory_mib << 20 : each * e->sequences_max;
  if (memory < each) {
    FAIL(err, EAGLET_E_USAGE, "KV memory of %d MiB: one context of %d tokens needs %lld MiB", params->kv_memory_mib, e->context_max,
         (long long)((each + (1 << 20) - 1) >> 20));
  }
  double contexts = (double)memory / (double)each;
  if (contexts > e->sequences_max) contexts = e->sequences_max;
  plan->target = (int32_t)(plan->target_each * contexts);
  plan->draft = (int32_t)(plan->draft_each * contexts);
  return EAGLET_OK;
}

static enum eaglet_status plan_drafter(struct engine *e, const struct page_plan *pages, struct eaglet_error *err) {
  const struct drafter_params params = {.target = e->model,
                                        .head = e->head,
                                        .model = e->draft_model,
                                        .controller = e->controller,
                                        .rows_max = e->rows_max,
                                        .sequences_max = e->sequences_max,
                                        .pages = pages->draft,
                                        .pages_each = pages->draft_each,
                                        .prefix_cache = e->prefix_cache};
  if (e->drafter_kind == EAGLET_DRAFTER_NGRAM) e->drafter = drafter_ngram_open();
  if (!e->head && !e->draft_model) return EAGLET_OK;
  TRY(drafter_net_open(&e->drafter, &params, err));
  if (e->drafter_kind == EAGLET_DRAFTER_MTP) e->drafter->name = "mtp";
  if (e->draft_width_max > e->drafter->width_max) e->draft_width_max = e->drafter->width_max;
  return EAGLET_OK;
}

static enum eaglet_status plan_scratch(struct engine *e, struct eaglet_error *err) {
  struct compute *c = e->compute;
  size_t rows = (size_t)e->rows_max, vocab = (size_t)e->model->arch.features.n_vocab, sequences = (size_t)e->sequences_max;
  batch_init(&e->batch, e->rows_max);
  e->paths = memory_alloc(rows * DRAFT_LEN_MAX * sizeof(int32_t));
  e->best = memory_alloc(rows * sizeof(int32_t));
  e->committed = memory_alloc(rows * sizeof(int32_t));
  e->requests = memory_alloc(sequences * sizeof *e->requests);
  e->requested = memory_alloc(sequences * sizeof *e->requested);
  e->proposals = memory_alloc(sequences * sizeof *e->proposals);
  e->records = memory_alloc(sequences * sizeof *e->records);
  e->limits = memory_alloc(sequences * sizeof *e->limits);
  e->wishes = memory_alloc(sequences * sizeof *e->wishes);
  e->order = memory_alloc(vocab * sizeof(int32_t));
  e->best_device = c->alloc(c, rows * sizeof(int32_t));
  e->row = memory_try(vocab * sizeof(float));
  e->raw_row = memory_try(vocab * sizeof(float));
  if (!e->best_device || !e->row || !e->raw_row)
    FAIL(err, EAGLET_E_RESOURCE, "no memory for the step of %d rows", e->rows_max);
  return EAGLET_OK;
}

static enum eaglet_status plan_pools(struct engine *e, const struct eaglet_engine_params *params, struct eaglet_error *err) {
  struct page_plan pages = {0};
  TRY(plan_pages(&pages, e, params, err));
  TRY(kv_cache_init(&e->kv, e->compute, e->model->arch.features.n_layers, model_kv_entry_floats(e->model), pages.target, err));
  if (e->prefix_cache) prefix_cache_create(&e->kv, 0);
  e->pages = memory_alloc(2 * (size_t)pages.target_each * sizeof(int32_t));
  TRY(forward_create(&e->forward, e->model, e->rows_max, pages.target_each * e->sequences_max, err));
  e->controller = controller_create(params->adaptive);
  return plan_drafter(e, &pages, err);
}

enum eaglet_status engine_open(struct engine **out, const struct eaglet_engine_params *params,
                               struct eaglet_error *err) {
  struct engine *e = memory_alloc(sizeof *e);
  enum eaglet_status status = EAGLET_OK;
  *out = NULL;
  TRY_GOTO(compute_open_cpu(&e->compute, params->threads, params->precision, err), failed);
  const struct model_params model = {
      .path = params->model, .ignore_index = params->ignore_index, .compute = e->compute, .positions_max = params->context_max > 0 ? params->context_max : 0};
  TRY_GOTO(model_open(&e->model, &model, err), failed);
  TRY_GOTO(open_draft(e, params, err), failed);
  TRY_GOTO(plan_limits(e, params, err), failed);
  TRY_GOTO(plan_pools(e, params, err), failed);
  TRY_GOTO(plan_scratch(e, err), failed);
  if (e->drafter && params->adaptive) TRY_GOTO(engine_rehearse(e, err), failed);
  *out = e;
  return EAGLET_OK;
failed:
  engine_close(e);
  return status;
}

/* A head of another target, of other states, or of a target whose basis a quantiser rotated drafts in vain without any error. */
static void remark_acceptance(const struct engine *e) {
  if (!e->head || e->n_drafting_rounds < REMARK_ROUNDS_MIN || e->n_accepting_rounds * REMARK_SHARE > e->n_drafting_rounds) return;
  log_warning("the head's first draft was accepted in %lld of %lld rounds: was it trained for this target? (eaglet check-pair)",
              (long long)e->n_accepting_rounds, (long long)e->n_drafting_rounds);
}

void engine_close(struct engine *e) {
  if (!e) return;
  struct compute *c = e->compute;
  remark_acceptance(e);
  while (e->all) sequence_free(e->all);
  if (e->best_device) c->free(c, e->best_device);
  memory_try_free(e->row);
  memory_try_free(e->raw_row);
  drafter_close(e->drafter);
  controller_free(e->controller);
  forward_free(e->forward);
  kv_cache_release(&e->kv);
  batch_release(&e->batch);
  head_close(e->head);
  model_close(e->draft_model);
  model_close(e->model);
  compute_close(c);
  free(e->paths);
  free(e->best);
  free(e->committed);
  free(e->requests);
  free(e->requested);
  free(e->proposals);
  free(e->records);
  free(e->limits);
  free(e->wishes);
  free(e->pages);
  free(e->order);
  free(e);
}

const struct model *engine_model(const struct engine *e) {
  return e->model;
}
const struct head *engine_head(const struct engine *e) {
  return e->head;
}
int32_t engine_context_max(const struct engine *e) {
  return e->context_max;
}

void engine_stats(const struct engine *e, struct eaglet_engine_stats *stats) {
  *stats = e->stats;
  stats->n_waiting = e->waiting.n;
  stats->n_running = e->running.n;
  stats->kv_pages = e->kv.n_pages;
  stats->kv_pages_free = kv_cache_available(&e->kv);
  stats->drafter = e->drafter ? e->drafter->name : "none";
  controller_describe(e->controller, stats->speculation, sizeof stats->speculation);
}
