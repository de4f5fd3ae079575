/* forward.c - the one layer loop; see forward.h. Owns the activations between blocks and the results of a run. It
 * decides nothing about arithmetic: norms, blocks, taps, in the order every decoder shares. */
#include "model/forward.h"

#include "base/memory.h"
#include "model/arch_table.h"

#include <stdlib.h>

struct forward {
  const struct model *model;
  struct compute *compute;
  int32_t rows_max;
  struct block_shape shape;
  struct block_scratch *scratch;
  struct row_index rows;
  float *x, *normed, *delta;     /* [rows_max, H] residual stream; normed copy; what a block adds */
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
  void *blocks[] = {forward->x,      forward->normed, forward->delta,    forward->picked, forward->final,
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
  f->delta = c->alloc(c, bytes);
  f->picked = c->alloc(c, bytes);
  f->final = c->alloc(c, bytes);
  f->identity = c->alloc(c, rows * sizeof(int32_t));
  f->wanted = c->alloc(c, rows * sizeof(int32_t));
  f->wanted_host = memory_alloc(rows * sizeof(int32_t));
  if (!f->x || !f->normed || !f->delta || !f->picked || !f->final || !f->identity || !f->wanted) return false;
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
    if (row->position < 0 || row->position >= f->model->n_positions) {
      bool bounded = f->model->arch.row->index_topk && f->model->n_positions == features->positions_max;
      FAIL(err, EAGLET_E_INPUT, "row %d: expected a position of 0..%d%s, found %d", i, f->model->n_positions - 1,
           !bounded                    ? ""
           : features->sparse.n_kept > 0 ? " (the most keys that sparse attention scores)"
                                         : " (index_topk: longer contexts need sparse attention, which is not run for this model)",
           row->position);
    }
    if (row->slot < 0 || row->slot / KV_PAGE_TOKENS >= row->kv->n_pages) {
      FAIL(err, EAGLET_E_USAGE, "row %d: slot %d is outside the %d pages reserved for its sequence", i, row->slot,
           row->kv->n_pages);
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

/* out = norm(x), or x itself where the model has no such norm. */
static const float *norm_of(struct forward *f, float *out, const float *x, const struct norm_weights *weights, int32_t n) {
  struct compute *c = f->compute;
  const struct norm_params p = {.dim = f->shape.hidden, .eps = (float)f->shape.norm_eps, .bias = weights->bias};
  if (!weights->w) return x;
  if (f->model->arch.features.norm == NORM_LAYER)
    c->layer_norm(c, out, x, weights->w, n, &p);
  else
    c->rms_norm(c, out, x, weights->w, n, &p);
  return out;
}

/* x += what the block made, normed and scaled as the model has it. */
static void add_delta(struct forward *f, const struct norm_weights *out_norm) {
  struct compute *c = f->compute;
  int64_t n_floats = (int64_t)f->rows.n * f->shape.hidden;
  double scale = f->model->arch.features.residual_scale;
  norm_of(f, f->delta, f->delta, out_norm, f->rows.n);
  if (scale == 1)
    c->add(c, f->x, f->x, f->delta, n_floats);
  else
    c->add_scaled(c, f->x, f->delta, (float)scale, n_floats);
}

static void run_layers(struct forward *f, const struct forward_run *run) {
  const struct model *model = f->model;
  const struct features *features = &model->arch.features;
  struct compute *c = f->compute;
  int32_t n = f->rows.n;
  tap(f, run, run->start_state);
  for (int32_t i = run->start_state; i < features->n_layers; i++) {
    const struct layer_weights *layer = &model->layers[i];
    const struct layer_features *own = &features->layers[i];
    if (own->skip) {
      tap(f, run, i + 1);
      continue;
    }
    const float *normed = norm_of(f, f->normed, f->x, &layer->attention_in, n);
    const struct block_attention_params attention = {.out = f->delta,
                                                     .x = normed,
                                                     .weights = &layer->attention,
                                                     .rope = own->rope >= 0 ? &model->rope[own->rope] : NULL,
                                                     .query_scale = own->scale_queries ? model->query_scale : NULL,
                                                     .window = own->window,
                                                     .chunk = own->chunk,
                                                     .pool = run->kv->pools[i],
                                                     .rows = &f->rows};
    block_attention(f->scratch, c, &attention);
    add_delta(f, &layer->attention_out);
    if (!features->parallel) normed = norm_of(f, f->normed, f->x, &layer->ffn_in, n);
    block_ffn(f->scratch, c, f->delta, normed, &layer->ffn, n);
    add_delta(f, &layer->ffn_out);
    tap(f, run, i + 1);
  }
}

static void embed_rows(struct forward *f) {
  const struct model *model = f->model;
  struct compute *c = f->compute;
  int64_t n_floats = (int64_t)f->rows.n * f->shape.hidden;
  c->embed(c, f->x, &model->embed, f->rows.tokens, f->rows.n);
  if (model->arch.features.embed_scale != 1) c->scale(c, f->x, (float)model->arch.features.embed_scale, n_floats);
  if (!weight_present(&model->position_embed)) return;
  c->embed(c, f->delta, &model->position_embed, f->rows.positions, f->rows.n);
  c->add(c, f->x, f->x, f->delta, n_floats);
}

void model_logits(struct compute *c, const struct model *model, float *logits, const float *normed, int32_t n) {
  const struct features *features = &model->arch.features;
  int64_t n_floats = (int64_t)n * features->n_vocab;
  c->matmul(c, logits, normed, &model->head, n, 0, 0);
  if (model->head_bias) c->add_bias(c, logits, model->head_bias, n, features->n_vocab);
  if (features->logit_scale != 1) c->scale(c, logits, (float)features->logit_scale, n_floats);
  if (features->logit_softcap > 0) c->softcap(c, logits, (float)features->logit_softcap, n_floats);
}

void model_final_norm(struct compute *c, const struct model *model, float *out, const float *x, int32_t n) {
  const struct features *features = &model->arch.features;
  const struct norm_params p = {.dim = features->hidden, .eps = (float)features->norm_eps, .bias = model->norm.bias};
  if (features->norm == NORM_LAYER)
    c->layer_norm(c, out, x, model->norm.w, n, &p);
  else
    c->rms_norm(c, out, x, model->norm.w, n, &p);
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
  c->upload(c, f->wanted, f->wanted_host, (size_t)n * sizeof(int32_t));
  c->gather_rows(c, f->picked, f->x, f->wanted, n, &gather);
  model_final_norm(c, f->model, f->final, f->picked, n);
  model_logits(c, f->model, f->logits, f->final, n);
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
    embed_rows(f);
  }
  run_layers(f, run);
  run->tapped = run->taps.n ? f->tapped : NULL;
  if (!run->no_head) run_head(f, run);
  return EAGLET_OK;
}
