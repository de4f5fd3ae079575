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
/* Every tensor must have been used or be known to be none of the text decoder's business. */
enum eaglet_status model_check_unused(struct model *model, struct eaglet_error *err) MUST_USE;

#endif
