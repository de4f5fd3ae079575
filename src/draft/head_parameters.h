/* head_parameters.h - the parameters of a head in one block of F32: which there are, what they are called, their shapes and
 * places. The trainer, its optimizer and the head's files share the list; what a config has decides what is on it.
 *
 * Invariant: the order is fixed (it is that of saved training states), each parameter starts on a cache line, and what is frozen
 * stands at the end: the first `trained` floats are what gradients and moments exist for.
 */
#ifndef EAGLET_DRAFT_HEAD_PARAMETERS_H
#define EAGLET_DRAFT_HEAD_PARAMETERS_H

#include "draft/head.h"

/* A linear's bias follows its weight. */
enum head_part {
  HEAD_FC,
  HEAD_FC_BIAS,
  HEAD_FC_INPUT_NORM,
  HEAD_FC_NORM, /* index: the state */
  /* -- index: the layer -- */
  HEAD_INPUT_NORM, /* layer 0: of the embedding; further layers: of the residual stream */
  HEAD_HIDDEN_NORM,
  HEAD_Q_A,
  HEAD_Q_A_BIAS,
  HEAD_Q_A_NORM,
  HEAD_Q_B,
  HEAD_Q,
  HEAD_Q_BIAS,
  HEAD_K,
  HEAD_K_BIAS,
  HEAD_V,
  HEAD_V_BIAS,
  HEAD_Q_NORM,
  HEAD_K_NORM,
  HEAD_KV_A,
  HEAD_KV_A_BIAS,
  HEAD_KV_A_NORM,
  HEAD_KV_B,
  HEAD_O,
  HEAD_O_BIAS,
  HEAD_POST_NORM,
  HEAD_GATE,
  HEAD_GATE_BIAS,
  HEAD_UP,
  HEAD_UP_BIAS,
  HEAD_DOWN,
  HEAD_DOWN_BIAS,
  /* -- behind the layers -- */
  HEAD_NORM,
  HEAD_LM_HEAD, /* of a tied head: its embedding */
  HEAD_EMBED,
  HEAD_PART_COUNT
};

struct head_parameter {
  enum head_part part;
  int32_t index;         /* layer, or state */
  char name[64];         /* canonical: "layers.0.self_attn.q_proj.weight" */
  int64_t rows, columns; /* columns 1: a vector */
  int64_t offset;        /* floats into the block */
  bool frozen;
  bool borrowed;         /* the target's own, not in the head's files */
};

#define HEAD_PARAMETERS_MAX 256
struct head_parameters {
  int32_t n;
  struct head_parameter list[HEAD_PARAMETERS_MAX];
  int16_t place[TAPS_MAX][HEAD_PART_COUNT]; /* place[index][part]: where in the list, -1: the head has no such part */
  int64_t total, trained;                   /* floats of the block, and of its trained beginning */
};
void head_parameters_list(struct head_parameters *parameters, const struct head_config *config);
/* NULL: the head has no such part. */
const struct head_parameter *head_parameter_find(const struct head_parameters *parameters, enum head_part part,
                                                 int32_t index);
/* Is a parameter a vector of ones at the start (a norm's weight), or zeros (a bias)? */
bool head_part_is_norm(enum head_part part);
bool head_part_is_bias(enum head_part part);
/* Floats of a head's block. */
int64_t head_parameters_total(const struct head_config *config);

#endif
