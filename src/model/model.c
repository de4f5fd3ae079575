/* model.c - opening and closing a target; see model.h. Orders the steps (checkpoint, resolution, quantisation, binding,
 * rope table) and owns what they leave behind; knows no tensor name. */
#include "model/bind.h"

#include "base/memory.h"
#include "model/arch_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS_DEFAULT 4096

/* Tables over positions: how long contexts may be, rotations, scales of queries. */
static enum eaglet_status open_positions(struct model *model, int32_t wanted, struct eaglet_error *err) {
  const struct features *f = &model->arch.features;
  struct compute *c = model->compute;
  bool bounded = f->learned_positions || model->arch.row->index_topk; /* nothing is defined past the end */
  int32_t n = f->positions_max > POSITIONS_DEFAULT ? POSITIONS_DEFAULT : f->positions_max;
  if (wanted > 0) n = wanted;
  if (bounded && n > f->positions_max) n = f->positions_max;
  model->n_positions = n;
  for (int32_t i = 0; i < f->n_ropes; i++) TRY(rope_table_init(&model->rope[i], c, &f->rope[i], n, err));
  if (f->query_scale.beta == 0) return EAGLET_OK;
  float *scale = memory_alloc((size_t)n * sizeof *scale);
  for (int32_t p = 0; p < n; p++) {
    float turns = floorf((float)(p + f->query_scale.shift) / (float)f->query_scale.period);
    scale[p] = 1.0f + (float)f->query_scale.beta * log1pf(turns);
  }
  model->query_scale = c->alloc(c, (size_t)n * sizeof *scale);
  if (model->query_scale) c->upload(c, model->query_scale, scale, (size_t)n * sizeof *scale);
  free(scale);
  if (!model->query_scale) FAIL(err, EAGLET_E_RESOURCE, "no memory for %d positions", n);
  return EAGLET_OK;
}

static enum eaglet_status open_steps(struct model *model, const struct model_params *params, struct eaglet_error *err) {
  const struct checkpoint_params checkpoint = {.path = params->path, .ignore_index = params->ignore_index};
  TRY(checkpoint_open_with(&model->checkpoint, &checkpoint, err));
  TRY(arch_resolve(&model->arch, &model->checkpoint, err));
  TRY(quantization_read(&model->quantization, &model->arch, &model->checkpoint, err));
  TRY(model_bind(model, err));
  TRY(model_check_unused(model, err));
  model->n_stop_ids = arch_stop_ids(model->stop_ids, &model->arch, &model->checkpoint);
  return open_positions(model, params->positions_max, err);
}

enum eaglet_status model_open(struct model **model, const struct model_params *params, struct eaglet_error *err) {
  struct model *m = memory_alloc(sizeof *m);
  m->compute = params->compute;
  enum eaglet_status status = open_steps(m, params, err);
  if (status != EAGLET_OK) {
    model_close(m);
    m = NULL;
  }
  *model = m;
  return status;
}

void model_close(struct model *model) {
  if (!model) return;
  for (int32_t i = 0; model->layers && i < model->arch.features.n_layers; i++) {
    free(model->layers[i].ffn.gate);
    free(model->layers[i].ffn.up);
    free(model->layers[i].ffn.down);
  }
  free(model->layers);
  for (int32_t i = 0; i < ROPES_MAX; i++) rope_table_release(&model->rope[i], model->compute);
  if (model->query_scale) model->compute->free(model->compute, model->query_scale);
  if (model->small) model->compute->free(model->compute, model->small);
  arch_clear(&model->arch);
  checkpoint_close(&model->checkpoint);
  free(model);
}

int32_t model_default_states(const struct features *features, int32_t states[3]) {
  int32_t n_layers = features->n_layers, wanted[3] = {2, n_layers / 2, n_layers - 3}, n = 0;
  for (int i = 0; i < 3; i++) {
    int32_t at = n;
    if (wanted[i] < 1 || wanted[i] > n_layers) continue;
    while (at > 0 && states[at - 1] > wanted[i]) at--;
    if (at > 0 && states[at - 1] == wanted[i]) continue;
    for (int32_t k = n; k > at; k--) states[k] = states[k - 1];
    states[at] = wanted[i];
    n++;
  }
  /* Shallow models: fill up with the lowest states that are not there yet. */
  for (int32_t state = 1; n < 3 && state <= n_layers; state++) {
    int32_t at = 0;
    while (at < n && states[at] < state) at++;
    if (at < n && states[at] == state) continue;
    for (int32_t k = n; k > at; k--) states[k] = states[k - 1];
    states[at] = state;
    n++;
  }
  return n;
}
