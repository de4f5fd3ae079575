/* linear.h - the weight of one linear module, whatever a quantiser made of it. The tensors that exist under the module's name
 * decide the format; config.json only gives parameters that tensors do not show. Nothing is copied or inflated: the weight
 * points into the mapped files. Every tensor that is read is marked used; one that is not understood stays unused, so that
 * bind_unused.c refuses it by name.
 */
#ifndef EAGLET_MODEL_LINEAR_H
#define EAGLET_MODEL_LINEAR_H

#include "model/model.h"

struct linear_source {
  struct checkpoint *checkpoint;            /* its used marks change */
  struct quantization *quantization;        /* parameters; its counters change */
  struct nibble_check *nibbles;             /* filled by the first INT4 weight */
};

/* Experts in one tensor: [n_experts, n_out, n_in], or [n_experts, n_in, n_out] when transposed. */
struct linear_stack {
  int32_t n_experts, n_out, n_in;
  bool transposed;
};

/* Weight of module `name` (full name without ".weight"): y = W x with W [n_out, n_in]; shape is {n_out, n_in}. */
enum eaglet_status linear_bind(struct weight *weight, const struct linear_source *source, const char *name, const int32_t shape[2],
                               struct eaglet_error *err) MUST_USE;
/* Does any spelling of the module's weight exist? */
bool linear_exists(const struct linear_source *source, const char *name);
/* Outputs (axis 0) or inputs (1) of module `name` as its tensors show them, in any format; -1 where they do not. Marks nothing. */
int32_t linear_axis(const struct checkpoint *checkpoint, const char *name, int axis);
/* Experts stored as one stack `name` (".../mlp.experts.gate_up_proj", with or without ".weight" in the file). Fills
 * weights[n_experts]. */
enum eaglet_status linear_bind_stack(struct weight *weights, const struct linear_source *source, const char *name,
                                     const struct linear_stack *stack, struct eaglet_error *err) MUST_USE;

#endif
