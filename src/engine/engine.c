/* engine.c - lifetimes of engine and sequences: opens, plans all memory, hands out places. The step is in step.c. */
#include "engine/engine_internal.h"

#include "base/memory.h"
#include "base/util.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT_DEFAULT_MAX 4096
#define ROWS_DEFAULT 512
#define TEMPERATURE_MAX 100.0
#define REMARK_ROUNDS_MIN 48 /* fewer say little */
#define REMARK_SHARE 20      /* one in so many is hardly ever */

static int32_t or_default(int32_t value, int32_t fallback) {
  return value > 0 ? value : fallback;
}

static enum eaglet_status plan_limits(struct engine *e, const struct eaglet_engine_params *params,
                                      struct eaglet_error *err) {
  int32_t positions = e->model->arch.features.context_max;
  e->sequences_max = or_default(params->sequences_max, 1);
  e->context_max = or_default(params->context_max, positions < CONTEXT_DEFAULT_MAX ? positions : CONTEXT_DEFAULT_MAX);
  e->draft_len_max = e->head ? or_default(params->draft_len_max, 7) : 0;
  if (e->context_max > positions)
    FAIL(err, EAGLET_E_USAGE, "context of %d tokens: the model has %d positions", e->context_max, positions);
  if (e->draft_len_max > DRAFT_LEN_MAX)
    FAIL(err, EAGLET_E_USAGE, "draft length %d: at most %d", e->draft_len_max, DRAFT_LEN_MAX);
  int32_t rows_needed = e->sequences_max * (e->draft_len_max + 1);
  e->rows_max = or_default(params->rows_max, ROWS_DEFAULT);
  if (e->rows_max < rows_needed) e->rows_max = rows_needed; /* every live sequence verifies in every step */
  return EAGLET_OK;
}

static enum eaglet_status plan_scratch(struct engine *e, struct eaglet_error *err) {
  struct compute *c = e->compute;
  size_t rows = (size_t)e->rows_max, vocab = (size_t)e->model->arch.features.n_vocab;
  batch_init(&e->batch, e->rows_max);
  batch_init(&e->head_batch, e->rows_max);
  e->sequences = memory_alloc((size_t)e->sequences_max * sizeof *e->sequences);
  e->best = memory_alloc(rows * sizeof(int32_t));
  e->gather = memory_alloc(rows * sizeof(int32_t));
  e->best_device = c->alloc(c, rows * sizeof(int32_t));
  e->gather_device = c->alloc(c, rows * sizeof(int32_t));
  e->order = memory_alloc(vocab * sizeof(int32_t));
  e->p = memory_try((size_t)(e->draft_len_max + 1) * vocab * sizeof(float)); /* touched only when something samples */
  bool ok = e->best_device && e->gather_device && e->p;
  if (e->head) {
    const struct head_config *h = &e->head->config;
    e->tapped = c->alloc(c, rows * (size_t)h->n_states * (size_t)h->target_hidden * sizeof(float));
    e->feature = c->alloc(c, rows * (size_t)h->hidden * sizeof(float));
    e->draft_logits = memory_alloc((size_t)h->n_draft * sizeof(float));
    ok = ok && e->tapped && e->feature;
  }
  if (!ok) FAIL(err, EAGLET_E_RESOURCE, "no memory for the step of %d rows", e->rows_max);
  return EAGLET_OK;
}

static enum eaglet_status plan_pools(struct engine *e, struct eaglet_error *err) {
  struct block_shape shape;
  int32_t pages_each = (e->context_max + DRAFT_LEN_MAX + KV_PAGE_TOKENS) / KV_PAGE_TOKENS,
          n_pages = pages_each * e->sequences_max;
  block_shape_from_features(&shape, &e->model->arch.features);
  TRY(kv_cache_init(&e->kv, e->compute, e->model->arch.features.n_layers, block_kv_entry_floats(&shape), n_pages, err));
  TRY(forward_create(&e->forward, e->model, e->rows_max, n_pages, err));
  if (!e->head) return EAGLET_OK;
  TRY(kv_cache_init(&e->head_kv, e->compute, head_kv_layers(e->head), head_kv_entry_floats(e->head), n_pages, err));
  return head_forward_create(&e->head_forward, e->head, e->rows_max, n_pages, err);
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
  if (params->draft) TRY_GOTO(head_open(&e->head, params->draft, e->model, err), failed);
  TRY_GOTO(plan_limits(e, params, err), failed);
  TRY_GOTO(plan_pools(e, err), failed);
  TRY_GOTO(plan_scratch(e, err), failed);
  *out = e;
  return EAGLET_OK;
failed:
  engine_close(e);
  return status;
}

/* A head of another target, of other states, or of a target whose basis a quantiser rotated drafts in vain without any error. */
static void remark_acceptance(const struct engine *e) {
  if (e->n_drafting_rounds < REMARK_ROUNDS_MIN || e->n_accepting_rounds * REMARK_SHARE > e->n_drafting_rounds) return;
  log_warning("the head's first draft was accepted in %lld of %lld rounds: was it trained for this target? (eaglet check-pair)",
              (long long)e->n_accepting_rounds, (long long)e->n_drafting_rounds);
}

void engine_close(struct engine *e) {
  if (!e) return;
  remark_acceptance(e);
  for (int32_t i = 0; i < e->sequences_max && e->sequences; i++) sequence_free(e->sequences[i]);
  struct compute *c = e->compute;
  void *device[] = {e->best_device, e->gather_device, e->tapped, e->feature};
  for (size_t i = 0; i < sizeof device / sizeof *device; i++) {
    if (device[i]) c->free(c, device[i]);
  }
  memory_try_free(e->p);
  head_forward_free(e->head_forward);
  forward_free(e->forward);
  kv_cache_release(&e->head_kv);
  kv_cache_release(&e->kv);
  batch_release(&e->batch);
  batch_release(&e->head_batch);
  head_close(e->head);
  model_close(e->model);
  compute_close(c);
  free(e->sequences);
  free(e->best);
  free(e->gather);
  free(e->order);
  free(e->draft_logits);
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

/* ---- sequences ---- */

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
  if (!(p->temperature >= 0 && p->temperature <= TEMPERATURE_MAX))
    FAIL(err, EAGLET_E_USAGE, "temperature %g: expected 0 to %g", (double)p->temperature, TEMPERATURE_MAX);
  if (!(p->top_p >= 0 && p->top_p <= 1)) FAIL(err, EAGLET_E_USAGE, "top-p %g: expected 0 to 1", (double)p->top_p);
  if (p->top_k < 0) FAIL(err, EAGLET_E_USAGE, "top-k %d: expected 0 or more", p->top_k);
  if (p->draft_len > e->draft_len_max)
    FAIL(err, EAGLET_E_USAGE, "draft length %d: the engine was opened for %d", p->draft_len, e->draft_len_max);
  return EAGLET_OK;
}

static int32_t free_place(const struct engine *e) {
  for (int32_t i = 0; i < e->sequences_max; i++) {
    if (!e->sequences[i]) return i;
  }
  return -1;
}

static enum eaglet_status sequence_memory(struct sequence *s, struct eaglet_error *err) {
  struct engine *e = s->engine;
  int32_t tokens_max = e->context_max + DRAFT_LEN_MAX + 1;
  s->tokens = memory_alloc((size_t)(tokens_max + 1) * sizeof *s->tokens);
  s->was_drafted = memory_alloc((size_t)(tokens_max + 1));
  if (s->sampled && e->head) {
    s->q = memory_try((size_t)e->draft_len_max * (size_t)e->head->config.n_draft * sizeof(float));
    if (!s->q) FAIL(err, EAGLET_E_RESOURCE, "no memory for the draft's distributions");
  }
  TRY(kv_sequence_init(&s->kv, &e->kv, tokens_max, err));
  if (e->head) TRY(kv_sequence_init(&s->head_kv, &e->head_kv, tokens_max, err));
  return EAGLET_OK;
}

enum eaglet_status sequence_create(struct sequence **out, struct engine *e, const struct eaglet_sequence_params *p,
                                   struct eaglet_error *err) {
  *out = NULL;
  TRY(check_prompt(e, p, err));
  int32_t place = free_place(e);
  if (place < 0) FAIL(err, EAGLET_E_RESOURCE, "all %d places for sequences are taken", e->sequences_max);
  struct sequence *s = memory_alloc(sizeof *s);
  *s = (struct sequence){.engine = e,
                         .state = ROUND_PREFILL,
                         .n_prompt = p->n_prompt,
                         .n_tokens = p->n_prompt,
                         .output_max = or_default(p->output_max, 256),
                         .draft_len = p->draft_len < 0 ? 0 : or_default(p->draft_len, e->draft_len_max),
                         .sampled = p->temperature > 0,
                         .sampling = {.temperature = p->temperature, .top_k = p->top_k, .top_p = p->top_p},
                         .seed = p->seed,
                         .ignore_stop = p->ignore_stop,
                         .stats = {.prompt_tokens = p->n_prompt}};
  e->sequences[place] = s;
  enum eaglet_status status = sequence_memory(s, err);
  if (status != EAGLET_OK) {
    sequence_free(s);
    return status;
  }
  memcpy(s->tokens, p->prompt, sizeof(int32_t) * (size_t)p->n_prompt);
  *out = s;
  return EAGLET_OK;
}

void sequence_free(struct sequence *s) {
  if (!s) return;
  for (int32_t i = 0; i < s->engine->sequences_max; i++) {
    if (s->engine->sequences[i] == s) s->engine->sequences[i] = NULL;
  }
  kv_sequence_release(&s->kv);
  kv_sequence_release(&s->head_kv);
  memory_try_free(s->q);
  free(s->tokens);
  free(s->was_drafted);
  free(s);
}

enum eaglet_stop sequence_stop(const struct sequence *s) {
  return s->stop;
}

void sequence_cancel(struct sequence *s) {
  if (s->state == ROUND_DONE) return;
  s->state = ROUND_DONE;
  s->stop = EAGLET_STOP_CANCELLED;
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
