/* capture.c - see capture.h. Packs whole conversations into forward calls; a conversation longer than a call is cut
 * into chunks over the same KV. */
#include "engine/capture.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

struct capture {
  const struct model *model;
  struct compute *compute;
  struct forward *forward;
  struct kv_cache kv;
  struct batch batch;
  struct tap_set taps;
  int32_t rows_max, tokens_max, start_state;
  float *start; /* device [rows_max, H], made by the first run that starts from states */
};

/* One row's progress while it is being run. */
struct job {
  struct kv_sequence kv;
  const int32_t *tokens;
  const float *start; /* [n, H] or NULL */
  float *states;
  int32_t n, done, row_begin, n_rows;
};

enum eaglet_status capture_create(struct capture **out, const struct capture_params *params, struct eaglet_error *err) {
  struct capture *c = memory_alloc(sizeof *c);
  *out = NULL;
  *c = (struct capture){.model = params->model,
                        .compute = params->model->compute,
                        .taps = params->taps,
                        .tokens_max = params->tokens_max,
                        .start_state = params->start_state,
                        .rows_max = params->rows_max > 0 ? params->rows_max : 512};
  /* Every row of a call may be a conversation of its own, and one conversation may need pages for all its tokens. */
  int32_t n_pages = c->rows_max + (c->tokens_max + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS + 1;
  batch_init(&c->batch, c->rows_max);
  enum eaglet_status status = kv_cache_init(&c->kv, c->compute, params->model->arch.features.n_layers,
                                            model_kv_entry_floats(params->model), n_pages, err);
  if (status == EAGLET_OK) status = forward_create(&c->forward, params->model, c->rows_max, n_pages, err);
  if (status != EAGLET_OK) {
    capture_free(c);
    return status;
  }
  *out = c;
  return EAGLET_OK;
}

void capture_free(struct capture *c) {
  if (!c) return;
  forward_free(c->forward);
  kv_cache_release(&c->kv);
  batch_release(&c->batch);
  if (c->start) c->compute->free(c->compute, c->start);
  free(c);
}

static enum eaglet_status add_rows(struct capture *c, struct job *job, struct eaglet_error *err) {
  int32_t room = c->batch.capacity - c->batch.n;
  job->row_begin = c->batch.n;
  job->n_rows = job->n - job->done < room ? job->n - job->done : room;
  TRY(kv_sequence_reserve(&job->kv, job->done + job->n_rows, err));
  for (int32_t i = 0; i < job->n_rows; i++) {
    struct batch_row *row = batch_add(&c->batch);
    row->token = job->tokens[job->done + i];
    row->position = row->slot = job->done + i;
    row->kv = &job->kv;
  }
  size_t hidden = (size_t)c->model->arch.features.hidden;
  if (job->start)
    c->compute->upload(c->compute, c->start + (size_t)job->row_begin * hidden, job->start + (size_t)job->done * hidden,
                       sizeof(float) * hidden * (size_t)job->n_rows);
  return EAGLET_OK;
}

static enum eaglet_status run_batch(struct capture *c, struct job *jobs, int32_t n_jobs, struct eaglet_error *err) {
  size_t width = (size_t)c->taps.n * (size_t)c->model->arch.features.hidden;
  struct forward_run run = {.batch = &c->batch, .kv = &c->kv, .taps = c->taps, .no_head = true};
  if (jobs[0].start) {
    run.start = c->start;
    run.start_state = c->start_state;
  }
  TRY(forward_run(c->forward, &run, err));
  for (int32_t j = 0; j < n_jobs; j++) {
    struct job *job = &jobs[j];
    c->compute->download(c->compute, job->states + (size_t)job->done * width,
                         run.tapped + (size_t)job->row_begin * width, sizeof(float) * width * (size_t)job->n_rows);
    job->done += job->n_rows;
    job->kv.length = job->done;
  }
  return EAGLET_OK;
}

/* Fills calls in order: jobs [first, next) are open in this call; a finished one gives its pages back. */
static enum eaglet_status run_jobs(struct capture *c, struct job *jobs, int32_t n, struct eaglet_error *err) {
  int32_t first = 0;
  while (first < n) {
    int32_t next = first;
    batch_reset(&c->batch);
    while (next < n && c->batch.n < c->batch.capacity) {
      if (!jobs[next].kv.cache) TRY(kv_sequence_init(&jobs[next].kv, &c->kv, jobs[next].n, err));
      TRY(add_rows(c, &jobs[next++], err));
    }
    TRY(run_batch(c, jobs + first, next - first, err));
    while (first < next && jobs[first].done == jobs[first].n) kv_sequence_release(&jobs[first++].kv);
  }
  return EAGLET_OK;
}

static enum eaglet_status make_start(struct capture *c, struct eaglet_error *err) {
  if (!c->start) c->start = c->compute->alloc(c->compute, sizeof(float) * (size_t)c->rows_max * (size_t)c->model->arch.features.hidden);
  if (!c->start) FAIL(err, EAGLET_E_RESOURCE, "no memory for the states of %d rows", c->rows_max);
  return EAGLET_OK;
}

enum eaglet_status capture_resume(struct capture *c, const struct capture_rows *rows, struct eaglet_error *err) {
  int32_t n = rows->n;
  if (rows->starts) TRY(make_start(c, err));
  struct job *jobs = memory_alloc((size_t)(n > 0 ? n : 1) * sizeof *jobs);
  enum eaglet_status status = EAGLET_OK;
  for (int32_t i = 0; i < n && status == EAGLET_OK; i++) {
    jobs[i] = (struct job){.tokens = rows->tokens[i], .states = rows->states[i], .n = rows->lengths[i]};
    if (rows->starts) jobs[i].start = rows->starts[i];
    if (jobs[i].n < 1 || jobs[i].n > c->tokens_max)
      status = error_set(err, EAGLET_E_INTERNAL, "capture: row of %d tokens, room for %d", jobs[i].n, c->tokens_max);
  }
  if (status == EAGLET_OK) status = run_jobs(c, jobs, n, err);
  for (int32_t i = 0; i < n; i++) {
    if (jobs[i].kv.cache) kv_sequence_release(&jobs[i].kv);
  }
  free(jobs);
  return status;
}

enum eaglet_status capture_run(struct capture *c, const int32_t *const *tokens, const int32_t *lengths, int32_t n,
                               float *const *states, struct eaglet_error *err) {
  const struct capture_rows rows = {.tokens = tokens, .lengths = lengths, .n = n, .states = states};
  return capture_resume(c, &rows, err);
}
