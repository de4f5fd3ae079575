/* head_file.c - see head_file.h. Writes the two files of a head that was trained here, and reads one back into the trainer's
 * block of parameters; knows nothing of arithmetic. */
#include "draft/head_internal.h"

#include "base/memory.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- weights ---- */

/* A copy of floats in the file's type, which the caller frees once the file is written. */
static void *add_tensor(struct safetensors_writer *writer, const struct head_export *e, const struct head_parameter *p,
                        const char *canonical) {
  char name[256];
  const int64_t shape[2] = {p->rows, p->columns};
  size_t n = (size_t)(p->rows * p->columns);
  void *data = memory_alloc(n * (size_t)dtype_bits(e->dtype) / 8);
  head_name_spell(name, canonical, e->config->dialect);
  dtype_from_f32(data, e->dtype, e->parameters + p->offset, n);
  safetensors_writer_add(writer, name, e->dtype, p->columns == 1 ? 1 : 2, shape, data);
  return data;
}

/* What is the target's own is not written, except for loaders that do not tie: they get an lm_head of its own. */
static int32_t add_tensors(struct safetensors_writer *writer, const struct head_export *e, const struct head_parameters *p,
                           void **storage) {
  bool ties = e->config->dialect == HEAD_DIALECT_SGLANG;
  int32_t n = 0;
  for (int32_t i = 0; i < p->n; i++) {
    if (!p->list[i].borrowed || !ties) storage[n++] = add_tensor(writer, e, &p->list[i], p->list[i].name);
  }
  if (e->config->tied && e->config->own_embed && !ties)
    storage[n++] = add_tensor(writer, e, head_parameter_find(p, HEAD_EMBED, 0), "lm_head.weight");
  return n;
}

static enum eaglet_status write_weights(const char *path, const struct head_export *e, struct eaglet_error *err) {
  struct safetensors_writer *writer = safetensors_writer_create();
  struct head_parameters *parameters = memory_alloc(sizeof *parameters);
  void *storage[HEAD_PARAMETERS_MAX + 2] = {NULL};
  char hash[32];
  head_parameters_list(parameters, e->config);
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)vocab_map_hash(e->map));
  safetensors_writer_metadata(writer, "format", "pt");
  safetensors_writer_metadata(writer, "eaglet_d2t_hash", hash);
  if (e->metadata_json) safetensors_writer_metadata(writer, "eaglet_training", e->metadata_json);
  int32_t n = add_tensors(writer, e, parameters, storage);
  if (e->map->n_draft < e->map->n_target) vocab_map_write(e->map, writer, &storage[n++]);
  enum eaglet_status status = safetensors_writer_commit(writer, path, err);
  safetensors_writer_free(writer);
  for (int32_t i = 0; i < n; i++) free(storage[i]);
  free(parameters);
  return status;
}

enum eaglet_status head_export(const char *directory, const struct head_export *e, struct eaglet_error *err) {
  TRY(file_make_directory(directory, err));
  char *weights = file_join(directory, "model.safetensors"), *config = file_join(directory, "config.json");
  json_t *json = head_config_write(e->config, e->target);
  struct eaglet_text text = json_dump(json, 2);
  enum eaglet_status status = write_weights(weights, e, err);
  if (status == EAGLET_OK) status = file_write(config, text.data, text.length, err);
  free(text.data);
  json_decref(json);
  free(weights);
  free(config);
  return status;
}

/* ---- import ---- */

static void copy_weight(float *to, const struct weight *w) {
  for (int32_t row = 0; row < w->n_out; row++) weight_row_to_f32(w, row, to + (int64_t)row * w->n_in);
}

/* One of the two is set. */
struct source {
  const struct weight *matrix;
  const float *vector;
};

static struct source attention_source(const struct attention_weights *w, enum head_part part) {
  const struct {
    enum head_part part;
    const struct weight *matrix;
    const float *vector;
  } sources[] = {{HEAD_Q_A, &w->q_a, NULL},           {HEAD_Q_A_BIAS, NULL, w->q_a_bias},   {HEAD_Q_A_NORM, NULL, w->q_a_norm},
                 {HEAD_Q_B, &w->q_b, NULL},           {HEAD_Q, &w->q, NULL},                {HEAD_Q_BIAS, NULL, w->q_bias},
                 {HEAD_K, &w->k, NULL},               {HEAD_K_BIAS, NULL, w->k_bias},       {HEAD_V, &w->v, NULL},
                 {HEAD_V_BIAS, NULL, w->v_bias},      {HEAD_Q_NORM, NULL, w->q_norm},       {HEAD_K_NORM, NULL, w->k_norm},
                 {HEAD_KV_A, &w->kv_a, NULL},         {HEAD_KV_A_BIAS, NULL, w->kv_a_bias}, {HEAD_KV_A_NORM, NULL, w->kv_a_norm},
                 {HEAD_KV_B, &w->kv_b, NULL},         {HEAD_O, &w->o, NULL},                {HEAD_O_BIAS, NULL, w->o_bias}};
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
    if (sources[i].part == part) return (struct source){sources[i].matrix, sources[i].vector};
  }
  return (struct source){NULL, NULL};
}

static struct source source_of(const struct head *head, enum head_part part, int32_t index) {
  const struct head_layer *layer = part >= HEAD_INPUT_NORM && part <= HEAD_DOWN_BIAS ? &head->layers[index] : &head->layers[0];
  const struct ffn_weights *ffn = &layer->ffn;
  const struct {
    enum head_part part;
    const struct weight *matrix;
    const float *vector;
  } sources[] = {{HEAD_FC, &head->fc, NULL},
                 {HEAD_FC_BIAS, NULL, head->fc_bias},
                 {HEAD_FC_INPUT_NORM, NULL, head->fc_input_norm},
                 {HEAD_FC_NORM, NULL, part == HEAD_FC_NORM ? head->fc_norms[index] : NULL},
                 {HEAD_INPUT_NORM, NULL, index == 0 ? head->embed_norm : layer->input_norm},
                 {HEAD_HIDDEN_NORM, NULL, head->hidden_norm},
                 {HEAD_POST_NORM, NULL, layer->post_norm},
                 {HEAD_GATE, ffn->gate, NULL},
                 {HEAD_GATE_BIAS, NULL, ffn->gate_bias},
                 {HEAD_UP, ffn->up, NULL},
                 {HEAD_UP_BIAS, NULL, ffn->up_bias},
                 {HEAD_DOWN, ffn->down, NULL},
                 {HEAD_DOWN_BIAS, NULL, ffn->down_bias},
                 {HEAD_NORM, NULL, head->norm},
                 {HEAD_LM_HEAD, &head->lm_head, NULL},
                 {HEAD_EMBED, &head->embed, NULL}};
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
    if (sources[i].part == part) return (struct source){sources[i].matrix, sources[i].vector};
  }
  return attention_source(&layer->attention, part);
}

void head_config_trained(struct head_config *c, const struct head *head) {
  *c = head->config;
  c->own_lm_head = !c->tied;
  bool copies = c->dialect == HEAD_DIALECT_SGLANG && c->hidden == c->target_hidden && !c->embed_trained && c->own_embed;
  if (c->embed_trained || (copies && head_same_rows(&head->embed, &head->target->embed))) c->own_embed = c->embed_trained;
}

enum eaglet_status head_import(float *parameters, const struct head_config *config, const struct head *head,
                               struct eaglet_error *err) {
  if (head->config.wiring.prediction_layer)
    FAIL(err, EAGLET_E_INPUT, "%s: a prediction layer of the target cannot be trained: it has no files of its own",
         head->target->checkpoint.path);
  struct head_parameters *list = memory_alloc(sizeof *list);
  head_parameters_list(list, config);
  for (int32_t i = 0; i < list->n; i++) {
    const struct head_parameter *p = &list->list[i];
    const struct source from = source_of(head, p->part, p->index);
    ASSERT(from.matrix || from.vector);
    if (from.matrix)
      copy_weight(parameters + p->offset, from.matrix);
    else
      memcpy(parameters + p->offset, from.vector, sizeof(float) * (size_t)p->rows);
  }
  free(list);
  return EAGLET_OK;
}
