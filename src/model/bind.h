/* bind.h - from tensors to weights, inside model_open. Binding is validation: see model.h. */
#ifndef EAGLET_MODEL_BIND_H
#define EAGLET_MODEL_BIND_H

#include "model/model.h"

/* Reads quantization_config wherever it sits; equal copies are accepted, contradictions and unsupported schemes refused by name. */
enum eaglet_status quantization_read(struct quantization *quantization, const struct arch *arch, const struct checkpoint *checkpoint,
                                     struct eaglet_error *err) MUST_USE;

/* Fills model->embed, head, norm, layers, small from the checkpoint. arch, compute and quantization are set. On failure model_close
 * releases what was made. */
enum eaglet_status model_bind(struct model *model, struct eaglet_error *err) MUST_USE;
struct prediction_weights; /* prediction.h */
/* Fills *weights from layer n_layers of the checkpoint, whose features stand in model->arch.features.layers[n_layers]; whether it has
 * experts is read from its tensors. On failure prediction_close releases what was made. */
enum eaglet_status model_bind_prediction(struct model *model, struct prediction_weights *weights, struct eaglet_error *err) MUST_USE;
/* Buffers that old checkpoints carry along, and scales of a quantised KV cache, which this cache is not. */
bool tensor_is_harmless(const char *name);
/* Every tensor must have been used or be known to be none of the text decoder's business. */
enum eaglet_status model_check_unused(struct model *model, struct eaglet_error *err) MUST_USE;

#endif
