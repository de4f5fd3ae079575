/* head_parameters.c - see head_parameters.h. Tables of names and one function of shapes; no state.
 *
 * Letters: H hidden, D head dimension, r / qr ranks of keys with values and of queries, dn / dr / dv plain, rotated and value part
 * of a latent head, I intermediate. */
#include "draft/head_parameters.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[HEAD_PART_COUNT] = {
    [HEAD_FC] = "fc.weight",
    [HEAD_FC_BIAS] = "fc.bias",
    [HEAD_FC_INPUT_NORM] = "input_norm.weight",
    [HEAD_FC_NORM] = "fc_norm.%d.weight",
    [HEAD_INPUT_NORM] = "layers.%d.input_layernorm.weight",
    [HEAD_HIDDEN_NORM] = "layers.%d.hidden_norm.weight",
    [HEAD_Q_A] = "layers.%d.self_attn.q_a_proj.weight",
    [HEAD_Q_A_BIAS] = "layers.%d.self_attn.q_a_proj.bias",
    [HEAD_Q_A_NORM] = "layers.%d.self_attn.q_a_layernorm.weight",
    [HEAD_Q_B] = "layers.%d.self_attn.q_b_proj.weight",
    [HEAD_Q] = "layers.%d.self_attn.q_proj.weight",
    [HEAD_Q_BIAS] = "layers.%d.self_attn.q_proj.bias",
    [HEAD_K] = "layers.%d.self_attn.k_proj.weight",
    [HEAD_K_BIAS] = "layers.%d.self_attn.k_proj.bias",
    [HEAD_V] = "layers.%d.self_attn.v_proj.weight",
    [HEAD_V_BIAS] = "layers.%d.self_attn.v_proj.bias",
    [HEAD_Q_NORM] = "layers.%d.self_attn.q_norm.weight",
    [HEAD_K_NORM] = "layers.%d.self_attn.k_norm.weight",
    [HEAD_KV_A] = "layers.%d.self_attn.kv_a_proj_with_mqa.weight",
    [HEAD_KV_A_BIAS] = "layers.%d.self_attn.kv_a_proj_with_mqa.bias",
    [HEAD_KV_A_NORM] = "layers.%d.self_attn.kv_a_layernorm.weight",
    [HEAD_KV_B] = "layers.%d.self_attn.kv_b_proj.weight",
    [HEAD_O] = "layers.%d.self_attn.o_proj.weight",
    [HEAD_O_BIAS] = "layers.%d.self_attn.o_proj.bias",
    [HEAD_POST_NORM] = "layers.%d.post_attention_layernorm.weight",
    [HEAD_GATE] = "layers.%d.mlp.gate_proj.weight",
    [HEAD_GATE_BIAS] = "layers.%d.mlp.gate_proj.bias",
    [HEAD_UP] = "layers.%d.mlp.up_proj.weight",
    [HEAD_UP_BIAS] = "layers.%d.mlp.up_proj.bias",
    [HEAD_DOWN] = "layers.%d.mlp.down_proj.weight",
    [HEAD_DOWN_BIAS] = "layers.%d.mlp.down_proj.bias",
    [HEAD_NORM] = "norm.weight",
    [HEAD_LM_HEAD] = "lm_head.weight",
    [HEAD_EMBED] = "embed_tokens.weight",
};

/* rows x columns when the head has the part, else 0 x 0. */
struct shape {
  int64_t rows, columns;
};
static struct shape matrix(bool has, int64_t rows, int64_t columns) {
  return has ? (struct shape){rows, columns} : (struct shape){0, 0};
}
static struct shape vector(bool has, int64_t rows) {
  return matrix(has, rows, 1);
}

static struct shape gqa_shape(const struct head_config *c, enum head_part part, int64_t n_in) {
  int64_t q = (int64_t)c->n_heads * c->head_dim, kv = (int64_t)c->n_kv_heads * c->head_dim;
  switch (part) {
  case HEAD_Q:
    return matrix(true, q, n_in);
  case HEAD_K:
  case HEAD_V:
    return matrix(true, kv, n_in);
  case HEAD_Q_BIAS:
    return vector(c->attention_bias, q);
  case HEAD_K_BIAS:
  case HEAD_V_BIAS:
    return vector(c->attention_bias, kv);
  case HEAD_Q_NORM:
  case HEAD_K_NORM:
    return vector(c->qk_norm, c->head_dim);
  case HEAD_O:
    return matrix(true, c->hidden, q);
  default:
    return vector(false, 0);
  }
}

static struct shape mla_shape(const struct head_config *c, enum head_part part, int64_t n_in) {
  int64_t q = (int64_t)c->n_heads * (c->nope_dim + c->rope_dim), raw = c->kv_rank + c->rope_dim;
  bool low = c->q_rank > 0;
  switch (part) {
  case HEAD_Q_A:
    return matrix(low, c->q_rank, n_in);
  case HEAD_Q_A_BIAS:
    return vector(low && c->attention_bias, c->q_rank);
  case HEAD_Q_A_NORM:
    return vector(low, c->q_rank);
  case HEAD_Q_B:
    return matrix(low, q, c->q_rank);
  case HEAD_Q:
    return matrix(!low, q, n_in);
  case HEAD_KV_A:
    return matrix(true, raw, n_in);
  case HEAD_KV_A_BIAS:
    return vector(c->attention_bias, raw);
  case HEAD_KV_A_NORM:
    return vector(true, c->kv_rank);
  case HEAD_KV_B:
    return matrix(true, (int64_t)c->n_heads * (c->nope_dim + c->value_dim), c->kv_rank);
  case HEAD_O:
    return matrix(true, c->hidden, (int64_t)c->n_heads * c->value_dim);
  default:
    return vector(false, 0);
  }
}

static struct shape layer_shape(const struct head_config *c, enum head_part part, int32_t layer) {
  int64_t n_in = layer == 0 ? 2 * (int64_t)c->hidden : c->hidden;
  switch (part) {
  case HEAD_INPUT_NORM:
  case HEAD_POST_NORM:
    return vector(true, c->hidden);
  case HEAD_HIDDEN_NORM:
    return vector(layer == 0, c->hidden);
  case HEAD_O_BIAS:
    return vector(c->attention_out_bias, c->hidden);
  case HEAD_GATE:
  case HEAD_UP:
    return matrix(true, c->intermediate, c->hidden);
  case HEAD_DOWN:
    return matrix(true, c->hidden, c->intermediate);
  case HEAD_GATE_BIAS:
  case HEAD_UP_BIAS:
    return vector(c->ffn_bias, c->intermediate);
  case HEAD_DOWN_BIAS:
    return vector(c->ffn_bias, c->hidden);
  default:
    return c->attention == ATTENTION_MLA ? mla_shape(c, part, n_in) : gqa_shape(c, part, n_in);
  }
}

/* A head that is tied to its own embedding has one matrix for both. */
static struct shape outer_shape(const struct head_config *c, enum head_part part) {
  int64_t wide = (int64_t)c->n_states * c->target_hidden;
  switch (part) {
  case HEAD_FC:
    return matrix(true, c->hidden, wide);
  case HEAD_FC_BIAS:
    return vector(c->fc_bias, c->hidden);
  case HEAD_FC_INPUT_NORM:
    return vector(c->wiring.fc_input_norm, wide);
  case HEAD_FC_NORM:
    return vector(c->wiring.fc_norms, c->target_hidden);
  case HEAD_NORM:
    return vector(true, c->hidden);
  case HEAD_LM_HEAD:
    return matrix(!(c->tied && c->own_embed), c->n_draft, c->hidden);
  case HEAD_EMBED:
    return matrix(c->own_embed, c->n_target, c->hidden);
  default:
    return vector(false, 0);
  }
}

static void add(struct head_parameters *p, const struct head_config *c, enum head_part part, int32_t index) {
  bool layered = part >= HEAD_INPUT_NORM && part <= HEAD_DOWN_BIAS;
  struct shape shape = layered ? layer_shape(c, part, index) : outer_shape(c, part);
  if (shape.rows == 0) return;
  ASSERT(p->n < HEAD_PARAMETERS_MAX);
  struct head_parameter *parameter = &p->list[p->n];
  *parameter = (struct head_parameter){.part = part,
                                       .index = index,
                                       .rows = shape.rows,
                                       .columns = shape.columns,
                                       .offset = p->total,
                                       .borrowed = part == HEAD_LM_HEAD && c->tied,
                                       .frozen = (part == HEAD_LM_HEAD && c->tied) || (part == HEAD_EMBED && !c->embed_trained)};
  const char *number = strstr(names[part], "%d");
  int before = number ? (int)(number - names[part]) : (int)strlen(names[part]);
  if (number)
    snprintf(parameter->name, sizeof parameter->name, "%.*s%d%s", before, names[part], index, number + 2);
  else
    snprintf(parameter->name, sizeof parameter->name, "%s", names[part]);
  p->place[index][part] = (int16_t)p->n++;
  p->total += (shape.rows * shape.columns + 15) & ~(int64_t)15;
  if (!parameter->frozen) p->trained = p->total;
}

void head_parameters_list(struct head_parameters *p, const struct head_config *c) {
  p->n = 0;
  p->total = p->trained = 0;
  for (int32_t i = 0; i < TAPS_MAX; i++) {
    for (int part = 0; part < HEAD_PART_COUNT; part++) p->place[i][part] = -1;
  }
  for (int part = HEAD_FC; part <= HEAD_FC_INPUT_NORM; part++) add(p, c, (enum head_part)part, 0);
  for (int32_t i = 0; i < c->n_states; i++) add(p, c, HEAD_FC_NORM, i);
  for (int32_t i = 0; i <= c->n_more_layers; i++) {
    for (int part = HEAD_INPUT_NORM; part <= HEAD_DOWN_BIAS; part++) add(p, c, (enum head_part)part, i);
  }
  for (int part = HEAD_NORM; part < HEAD_PART_COUNT; part++) add(p, c, (enum head_part)part, 0);
  if (c->tied && c->own_embed) p->place[0][HEAD_LM_HEAD] = p->place[0][HEAD_EMBED];
}

const struct head_parameter *head_parameter_find(const struct head_parameters *p, enum head_part part, int32_t index) {
  return p->place[index][part] < 0 ? NULL : &p->list[p->place[index][part]];
}

bool head_part_is_norm(enum head_part part) {
  size_t length = strlen(names[part]);
  return strstr(names[part], "norm") != NULL && strcmp(names[part] + length - 6, "weight") == 0;
}

bool head_part_is_bias(enum head_part part) {
  size_t length = strlen(names[part]);
  return strcmp(names[part] + length - 4, "bias") == 0;
}

int64_t head_parameters_total(const struct head_config *config) {
  struct head_parameters *p = memory_alloc(sizeof *p);
  head_parameters_list(p, config);
  int64_t total = p->total;
  free(p);
  return total;
}
