/* forward.c - the one layer loop; see forward.h. Owns the activations between blocks and the results of a run. It
 * decides nothing about arithmetic: norms, blocks, taps, in the order every decoder shares. */
#include "model/forward.h"

#include "base/memory.h"

#include <stdlib.h>

struct forward {
  const struct model *model;
  struct compute *compute;
  int32_t rows_max;
  struct block_shape shape;
  struct block_scratch *scratch;
  struct row_index rows;
  float *x, *normed;             /* [rows_max, H] residual stream; normed copy */
  float *picked;                 /* [rows_max, H] residual of the rows that want logits */
  float *final;                  /* [rows_max, H] their final norm */
  float *tapped, *logits;        /* made by the first run that needs them */
  int32_t tapped_width;          /* states that `tapped` has room for */
  int32_t *identity;             /* [rows_max] 0, 1, 2 ... device */
  int32_t *wanted, *wanted_host; /* [rows_max] rows that want logits */
};

void forward_free(struct forward *forward) {
  if (!forward) return;
  struct compute *c = forward->compute;
  void *blocks[] = {forward->x,      forward->normed, forward->picked,   forward->final,
                    forward->tapped, forward->logits, forward->identity, forward->wanted};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    if (blocks[i]) c->free(c, blocks[i]);
  }
  block_scratch_free(forward->scratch, c);
  row_index_release(&forward->rows, c);
  free(forward->wanted_host);
  free(forward);
}

static bool forward_alloc(struct forward *f) {
  struct compute *c = f->compute;
  size_t rows = (size_t)f->rows_max, bytes = rows * (size_t)f->model->arch.features.hidden * sizeof(float);
  f->x = c->alloc(c, bytes);
  f->normed = c->alloc(c, bytes);
  f->picked = c->alloc(c, bytes);
  f->final = c->alloc(c, bytes);
  f->identity = c->alloc(c, rows * sizeof(int32_t));
  f->wanted = c->alloc(c, rows * sizeof(int32_t));
  f->wanted_host = memory_alloc(rows * sizeof(int32_t));
  if (!f->x || !f->normed || !f->picked || !f->final || !f->identity || !f->wanted) return false;
  for (int32_t i = 0; i < f->rows_max; i++) f->wanted_host[i] = i;
  c->upload(c, f->identity, f->wanted_host, rows * sizeof(int32_t));
  return true;
}

enum eaglet_status forward_create(struct forward **forward, const struct model *model, int32_t rows_max,
                                  int32_t pages_max, struct eaglet_error *err) {
  struct forward *f = memory_alloc(sizeof *f);
  enum eaglet_status status;
  *forward = NULL;
  *f = (struct forward){.model = model, .compute = model->compute, .rows_max = rows_max};
  block_shape_from_features(&f->shape, &model->arch.features);
  row_index_init(&f->rows, f->compute, rows_max, pages_max);
  TRY_GOTO(block_scratch_create(&f->scratch, f->compute, &f->shape, rows_max, err), fail);
  if (!forward_alloc(f)) {
    status = error_set(err, EAGLET_E_RESOURCE, "activations of %d rows of %d floats do not fit into memory", rows_max,
                       f->shape.hidden);
    goto fail;
  }
  *forward = f;
  return EAGLET_OK;
fail:
  forward_free(f);
  return status;
}

static enum eaglet_status check_rows(const struct forward *f, const struct batch *batch, struct eaglet_error *err) {
  const struct features *features = &f->model->arch.features;
  if (batch->n < 1 || batch->n > f->rows_max) {
    FAIL(err, EAGLET_E_USAGE, "forward: expected 1..%d rows, found %d", f->rows_max, batch->n);
  }
  for (int32_t i = 0; i < batch->n; i++) {
    const struct batch_row *row = &batch->rows[i];
    if (row->token < 0 || row->token >= features->n_vocab) {
      FAIL(err, EAGLET_E_INPUT, "row %d: expected a token id of 0..%d, found %d", i, features->n_vocab - 1, row->token);
    }
    if (row->position < 0 || row->position >= f->model->rope.n_positions) {
      FAIL(err, EAGLET_E_INPUT, "row %d: expected a position of 0..%d, found %d", i, f->model->rope.n_positions - 1,
           row->position);
    }
    if (row->slot < 0 || row->slot / KV_PAGE_TOKENS >= row->kv->n_pages) {
      FAIL(err, EAGLET_E_USAGE, "row %d: slot %d is outside the %d pages reserved for its sequence", i, row->slot,
           row->kv->n_pages);
    }
    /* The op's window counts prefix keys only; a tree row would see too many. */
    if (row->parent >= 0 && features->window > 0) {
      FAIL(err, EAGLET_E_USAGE, "row %d: token trees are not supported for targets with a sliding window (%d)", i,
           features->window);
    }
  }
  return EAGLET_OK;
}

static enum eaglet_status check_taps(const struct forward *f, const struct forward_run *run, struct eaglet_error *err) {
  int32_t n_layers = f->model->arch.features.n_layers, last = run->start_state - 1;
  if (run->start_state < 0 || run->start_state > n_layers || (!run->start && run->start_state != 0)) {
    FAIL(err, EAGLET_E_USAGE, "forward: start state %d needs a residual to start from and must be 0..%d",
         run->start_state, n_layers);
  }
  if (run->taps.n < 0 || run->taps.n > TAPS_MAX)
    FAIL(err, EAGLET_E_USAGE, "forward: expected at most %d taps, found %d", TAPS_MAX, run->taps.n);
  for (int32_t i = 0; i < run->taps.n; i++) {
    int32_t state = run->taps.states[i];
    if (state <= last || state > n_layers) {
      FAIL(err, EAGLET_E_USAGE, "tap %d: expected a state above %d and at most %d, found %d", i, last, n_layers, state);
    }
    last = state;
  }
  return EAGLET_OK;
}

/* Room for results; grows only when a run asks for more states than any run before it. */
static enum eaglet_status make_room(struct forward *f, const struct forward_run *run, struct eaglet_error *err) {
  struct compute *c = f->compute;
  size_t rows = (size_t)f->rows_max;
  if (run->taps.n > f->tapped_width) {
    if (f->tapped) c->free(c, f->tapped);
    f->tapped_width = 0;
    f->tapped = c->alloc(c, rows * (size_t)run->taps.n * (size_t)f->shape.hidden * sizeof(float));
    if (!f->tapped)
      FAIL(err, EAGLET_E_RESOURCE, "no memory for %d captured states of %d rows", run->taps.n, f->rows_max);
    f->tapped_width = run->taps.n;
  }
  if (!run->no_head && !f->logits) {
    f->logits = c->alloc(c, rows * (size_t)f->model->arch.features.n_vocab * sizeof(float));
    if (!f->logits) FAIL(err, EAGLET_E_RESOURCE, "no memory for the logits of %d rows", f->rows_max);
  }
  return EAGLET_OK;
}

/* Stores the residual when `state` is tapped. */
static void tap(struct forward *f, const struct forward_run *run, int32_t state) {
  int32_t hidden = f->shape.hidden;
  for (int32_t i = 0; i < run->taps.n; i++) {
    if (run->taps.states[i] != state) continue;
    const struct gather_params gather = {.dim = hidden, .out_row = (int64_t)run->taps.n * hidden};
    f->compute->gather_rows(f->compute, f->tapped + (int64_t)i * hidden, f->x, f->identity, f->rows.n, &gather);
  }
}

static void run_layers(struct forward *f, const struct forward_run *run) {
  const struct model *model = f->model;
  struct compute *c = f->compute;
  int32_t n = f->rows.n;
  const struct norm_params norm = {.dim = f->shape.hidden, .eps = (float)f->shape.norm_eps};
  tap(f, run, run->start_state);
  for (int32_t i = run->start_state; i < model->arch.features.n_layers; i++) {
    const struct layer_weights *layer = &model->layers[i];
    c->rms_norm(c, f->normed, f->x, layer->attention_norm, n, &norm);
    const struct block_attention_params attention = {.x = f->x,
                                                     .normed = f->normed,
                                                     .weights = &layer->attention,
                                                     .rope = &model->rope,
                                                     .pool = run->kv->pools[i],
                                                     .rows = &f->rows};
    block_attention(f->scratch, c, &attention);
    c->rms_norm(c, f->normed, f->x, layer->ffn_norm, n, &norm);
    block_ffn(f->scratch, c, f->x, f->normed, &layer->ffn, n);
    tap(f, run, i + 1);
  }
}

static void run_head(struct forward *f, struct forward_run *run) {
  struct compute *c = f->compute;
  int32_t n = 0;
  for (int32_t i = 0; i < run->batch->n; i++) {
    if (run->batch->rows[i].wants_logits) f->wanted_host[n++] = i;
  }
  run->n_logits = n;
  run->normed = f->final;
  run->logits = f->logits;
  if (n == 0) return;
  const struct gather_params gather = {.dim = f->shape.hidden};
  const struct norm_params norm = {.dim = f->shape.hidden, .eps = (float)f->shape.norm_eps};
  c->upload(c, f->wanted, f->wanted_host, (size_t)n * sizeof(int32_t));
  c->gather_rows(c, f->picked, f->x, f->wanted, n, &gather);
  c->rms_norm(c, f->final, f->picked, f->model->norm, n, &norm);
  c->matmul(c, f->logits, f->final, &f->model->head, n, 0, 0);
}

enum eaglet_status forward_run(struct forward *f, struct forward_run *run, struct eaglet_error *err) {
  struct compute *c = f->compute;
  run->logits = run->normed = run->tapped = NULL;
  run->n_logits = 0;
  TRY(check_rows(f, run->batch, err));
  TRY(check_taps(f, run, err));
  TRY(make_room(f, run, err));
  ASSERT(run->kv->n_layers == f->model->arch.features.n_layers &&
         run->kv->entry_floats == block_kv_entry_floats(&f->shape));
  row_index_build(&f->rows, c, run->batch);
  if (run->start) {
    const struct gather_params gather = {.dim = f->shape.hidden};
    c->gather_rows(c, f->x, run->start, f->identity, f->rows.n, &gather);
  } else {
    c->embed(c, f->x, &f->model->embed, f->rows.tokens, f->rows.n);
  }
  run_layers(f, run);
  run->tapped = run->taps.n ? f->tapped : NULL;
  if (!run->no_head) run_head(f, run);
  return EAGLET_OK;
}
