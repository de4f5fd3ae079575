/* head.c - opening and closing a head; see head.h. Orders the steps (files, config, tensors, rope table) and owns what they
 * leave behind; knows no tensor name and no arithmetic. */
#include "draft/head_internal.h"

#include "base/memory.h"
#include "model/prediction.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- a head that is files ---- */

static void make_shape(struct head *head) {
  const struct head_config *c = &head->config;
  head->shape = (struct block_shape){
      .hidden = c->hidden,
      .input = 2 * c->hidden,
      .attention = c->attention,
      .n_heads = c->n_heads,
      .n_kv_heads = c->n_kv_heads,
      .head_dim = c->head_dim,
      .q_rank = c->q_rank,
      .kv_rank = c->kv_rank,
      .nope_dim = c->nope_dim,
      .rope_dim = c->rope_dim,
      .value_dim = c->value_dim,
      .intermediate = c->intermediate,
      .attention_scale = c->attention_scale > 0 ? c->attention_scale : 1.0 / sqrt((double)c->head_dim),
      .norm_eps = c->norm_eps,
      .inner_norm_eps = c->attention == ATTENTION_MLA ? 1e-6 : c->norm_eps, /* as the reference code builds them */
      .qk_norm = c->qk_norm ? QK_NORM_HEAD : QK_NORM_NONE};
}

static enum eaglet_status open_steps(struct head *head, const char *directory, struct eaglet_error *err) {
  const struct model *target = head->target;
  const struct checkpoint_params files = {.path = directory, .is_head = true};
  TRY(checkpoint_open_with(&head->files, &files, err));
  char *what = file_join(directory, "config.json");
  enum eaglet_status status =
      head_config_read(&head->config, head->files.config, &target->arch.features, what, err);
  if (status == EAGLET_OK) head_config_remark(&head->config, head->files.config, &target->arch.features, what);
  free(what);
  TRY(status);
  TRY(head_quantization_read(head, err));
  TRY(head_bind(head, err));
  make_shape(head);
  /* The table is as long as the target's: a config that says 2048 must not end drafting there. */
  return rope_table_init(&head->rope, target->compute, &head->config.rope, target->n_positions, err);
}

enum eaglet_status head_open(struct head **out, const char *directory, const struct model *target,
                             struct eaglet_error *err) {
  struct head *head = memory_alloc(sizeof *head);
  *out = NULL;
  head->target = target;
  enum eaglet_status status = open_steps(head, directory, err);
  if (status != EAGLET_OK) {
    head_close(head);
    return status;
  }
  *out = head;
  return EAGLET_OK;
}

/* ---- a head that is the target's own layer ---- */

static void prediction_config(struct head_config *config, const struct features *f) {
  *config = (struct head_config){.hidden = f->hidden,
                                 .target_hidden = f->hidden,
                                 .n_heads = f->n_heads,
                                 .n_kv_heads = f->n_kv_heads,
                                 .head_dim = f->head_dim,
                                 .intermediate = f->intermediate,
                                 .n_target = f->n_vocab,
                                 .n_draft = f->n_vocab,
                                 .n_states = 1,
                                 .states = {f->n_layers},
                                 .norm_eps = f->norm_eps,
                                 .rope = f->rope[0],
                                 .positions_max = f->positions_max,
                                 .attention = f->attention,
                                 .q_rank = f->q_rank,
                                 .kv_rank = f->kv_rank,
                                 .nope_dim = f->nope_dim,
                                 .rope_dim = f->rope_dim,
                                 .value_dim = f->value_dim,
                                 .attention_scale = f->attention_scale,
                                 .wiring.prediction_layer = true};
}

static enum eaglet_status open_prediction(struct head *head, struct eaglet_error *err) {
  const struct model *target = head->target;
  const struct features *f = &target->arch.features;
  struct prediction_weights *w = head->prediction = memory_alloc(sizeof *w);
  TRY(prediction_open(w, target, err));
  prediction_config(&head->config, f);
  head->config.own_embed = w->own_embed;
  head->config.own_lm_head = w->own_head;
  block_shape_from_features(&head->shape, f);
  head->layers = memory_alloc(sizeof *head->layers);
  head->layers[0] = (struct head_layer){.attention = w->layer.attention,
                                        .ffn = w->layer.ffn,
                                        .input_norm = w->layer.attention_in.w,
                                        .post_norm = w->layer.ffn_in.w};
  head->fc = w->join;
  head->embed = w->embed;
  head->lm_head = w->head;
  head->embed_norm = w->embed_norm.w;
  head->hidden_norm = w->feature_norm.w;
  head->norm = w->norm.w;
  snprintf(head->notes, sizeof head->notes, "layer %d of the target%s", f->n_layers,
           w->own_head ? "" : ", lm_head borrowed from it");
  TRY(vocab_map_identity(&head->map, f->n_vocab, err));
  return rope_table_init(&head->rope, target->compute, &head->config.rope, target->n_positions, err);
}

enum eaglet_status head_open_mtp(struct head **out, const struct model *target, struct eaglet_error *err) {
  struct head *head = memory_alloc(sizeof *head);
  *out = NULL;
  head->target = target;
  enum eaglet_status status = open_prediction(head, err);
  if (status != EAGLET_OK) {
    head_close(head);
    return status;
  }
  *out = head;
  return EAGLET_OK;
}

void head_close(struct head *head) {
  if (!head) return;
  struct compute *c = head->target->compute;
  rope_table_release(&head->rope, c);
  if (head->small) c->free(c, head->small);
  vocab_map_release(&head->map);
  for (int32_t i = 0; head->layers && !head->prediction && i <= head->config.n_more_layers; i++)
    free(head->layers[i].ffn.gate);
  free(head->layers);
  if (head->prediction) prediction_close(head->prediction, c);
  free(head->prediction);
  if (head->files.path) checkpoint_close(&head->files);
  free(head);
}
