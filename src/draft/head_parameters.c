/* head_parameters.c - names, shapes and places of a head's trained parameters in their one block (head_file.h). A
 * table; no state. */
#include "draft/head_file.h"

static const char *const names[HEAD_PARAMETER_COUNT] = {
    [HEAD_FC] = "fc.weight",
    [HEAD_INPUT_NORM] = "midlayer.input_layernorm.weight",
    [HEAD_HIDDEN_NORM] = "midlayer.hidden_norm.weight",
    [HEAD_Q] = "midlayer.self_attn.q_proj.weight",
    [HEAD_K] = "midlayer.self_attn.k_proj.weight",
    [HEAD_V] = "midlayer.self_attn.v_proj.weight",
    [HEAD_O] = "midlayer.self_attn.o_proj.weight",
    [HEAD_POST_NORM] = "midlayer.post_attention_layernorm.weight",
    [HEAD_GATE] = "midlayer.mlp.gate_proj.weight",
    [HEAD_UP] = "midlayer.mlp.up_proj.weight",
    [HEAD_DOWN] = "midlayer.mlp.down_proj.weight",
    [HEAD_NORM] = "norm.weight",
    [HEAD_LM_HEAD] = "lm_head.weight",
};

const char *head_parameter_name(enum head_parameter parameter) {
  return names[parameter];
}

static void set(int64_t shape[2], int64_t rows, int64_t columns) {
  shape[0] = rows;
  shape[1] = columns;
}

void head_parameter_shape(const struct head_config *c, enum head_parameter parameter, int64_t shape[2]) {
  int64_t q = (int64_t)c->n_heads * c->head_dim, kv = (int64_t)c->n_kv_heads * c->head_dim;
  switch (parameter) {
  case HEAD_FC:
    set(shape, c->hidden, (int64_t)c->n_states * c->target_hidden);
    break;
  case HEAD_Q:
    set(shape, q, 2 * (int64_t)c->hidden);
    break;
  case HEAD_K:
  case HEAD_V:
    set(shape, kv, 2 * (int64_t)c->hidden);
    break;
  case HEAD_O:
    set(shape, c->hidden, q);
    break;
  case HEAD_GATE:
  case HEAD_UP:
    set(shape, c->intermediate, c->hidden);
    break;
  case HEAD_DOWN:
    set(shape, c->hidden, c->intermediate);
    break;
  case HEAD_LM_HEAD:
    set(shape, c->n_draft, c->hidden);
    break;
  default:
    set(shape, c->hidden, 1);
    break; /* the norms */
  }
}

int64_t head_parameter_offset(const struct head_config *config, enum head_parameter parameter) {
  int64_t offset = 0;
  for (int i = 0; i < (int)parameter; i++) {
    int64_t shape[2];
    head_parameter_shape(config, (enum head_parameter)i, shape);
    offset += (shape[0] * shape[1] + 15) & ~(int64_t)15; /* each starts on a cache line */
  }
  return offset;
}

int64_t head_parameters_total(const struct head_config *config) {
  return head_parameter_offset(config, HEAD_PARAMETER_COUNT);
}
