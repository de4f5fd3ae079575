/* prediction.c - see prediction.h. The model is not touched: binding works on a copy of it with marks, vectors and layer features of
 * its own. */
#include "model/prediction.h"

#include "base/memory.h"
#include "model/arch_table.h"
#include "model/bind.h"
#include "model/linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the arithmetic of prediction.h leaves out. */
static enum eaglet_status check_family(const struct model *model, struct eaglet_error *err) {
  const struct features *f = &model->arch.features;
  const struct layer_names *names = model->arch.row->layer;
  const struct {
    bool has;
    const char *what;
  } parts[] = {{f->norm != NORM_RMS || f->norm_plus_one || f->norm_bias, "other norms than RMS"},
               {f->parallel, "parallel blocks"},
               {names->attention_out || names->ffn_out || !names->attention_in || !names->ffn_in, "norms behind its blocks"},
               {f->residual_scale != 1 || f->embed_scale != 1 || f->logit_scale != 1 || f->logit_softcap > 0 || model->head_bias,
                "scaled or biased streams"},
               {f->learned_positions || f->query_scale.beta != 0 || f->n_ropes != 1, "other positions than one rope"},
               {f->layers[f->n_layers - 1].window > 0 || f->layers[f->n_layers - 1].chunk > 0, "windows"}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (parts[i].has)
      FAIL(err, EAGLET_E_INPUT, "%s: prediction layers of a decoder with %s are not known", model->checkpoint.path, parts[i].what);
  }
  return EAGLET_OK;
}

static enum eaglet_status check_present(const struct model *model, struct eaglet_error *err) {
  char name[256];
  snprintf(name, sizeof name, "%s%d.eh_proj", model->arch.chain.layers_prefix, model->arch.features.n_layers);
  if (linear_axis(&model->checkpoint, name, 0) < 0)
    FAIL(err, EAGLET_E_INPUT, "%s: no prediction layer: tensor %s.weight is missing", model->checkpoint.path, name);
  return EAGLET_OK;
}

static enum eaglet_status check_used(const struct model *model, struct eaglet_error *err) {
  const struct checkpoint *checkpoint = &model->checkpoint;
  const struct arch *arch = &model->arch;
  char prefix[160];
  snprintf(prefix, sizeof prefix, "%s%d.", arch->chain.layers_prefix, arch->features.n_layers);
  for (size_t i = 0; i < checkpoint->n_tensors; i++) {
    const char *name = checkpoint->tensors[i]->name;
    bool scorer = arch->row->index_topk && arch->features.sparse.n_kept == 0 && strstr(name, ".self_attn.indexer.");
    if (strncmp(name, prefix, strlen(prefix)) != 0 || checkpoint->used[i] || tensor_is_harmless(name) || scorer) continue;
    FAIL(err, EAGLET_E_INPUT, "%s: %s: not known to a prediction layer of the %s decoder", checkpoint->tensors[i]->path, name,
         arch->features.row);
  }
  return EAGLET_OK;
}

enum eaglet_status prediction_open(struct prediction_weights *weights, const struct model *model, struct eaglet_error *err) {
  const struct features *f = &model->arch.features;
  *weights = (struct prediction_weights){.small = NULL};
  TRY(check_present(model, err));
  TRY(check_family(model, err));
  struct model copy = *model;
  size_t n = (size_t)f->n_layers;
  copy.checkpoint.used = memory_alloc(model->checkpoint.n_tensors + 1);
  copy.arch.features.layers = memory_alloc((n + 1) * sizeof *f->layers);
  memcpy(copy.arch.features.layers, f->layers, n * sizeof *f->layers);
  copy.arch.features.layers[n] = f->layers[n - 1];
  enum eaglet_status status = model_bind_prediction(&copy, weights, err);
  if (status == EAGLET_OK) status = check_used(&copy, err);
  free(copy.checkpoint.used);
  free(copy.arch.features.layers);
  if (status != EAGLET_OK) prediction_close(weights, model->compute);
  return status;
}

void prediction_close(struct prediction_weights *weights, struct compute *c) {
  free(weights->layer.ffn.gate);
  free(weights->layer.ffn.up);
  free(weights->layer.ffn.down);
  if (weights->small) c->free(c, weights->small);
  *weights = (struct prediction_weights){.small = NULL};
}
