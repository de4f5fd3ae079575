/* head.c - opening and closing a head; see head.h. Orders the steps (files, config, tensors, rope table) and owns what they
 * leave behind; knows no tensor name and no arithmetic. */
#include "draft/head_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

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
  const struct checkpoint_params files = {.path = directory, .prefer_single = true};
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

void head_close(struct head *head) {
  if (!head) return;
  struct compute *c = head->target->compute;
  rope_table_release(&head->rope, c);
  if (head->small) c->free(c, head->small);
  vocab_map_release(&head->map);
  for (int32_t i = 0; head->layers && i <= head->config.n_more_layers; i++)
    free(head->layers[i].ffn.gate);
  free(head->layers);
  if (head->files.path) checkpoint_close(&head->files);
  free(head);
}
