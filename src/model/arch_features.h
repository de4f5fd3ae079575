/* arch_features.h - from config.json to struct features, inside arch_resolve. arch->row, arch->chain and reader levels are set before. */
#ifndef EAGLET_MODEL_ARCH_FEATURES_H
#define EAGLET_MODEL_ARCH_FEATURES_H

#include "model/arch_fields.h"
#include "model/arch_table.h"

/* What the tensors told the wrapper resolution. */
struct tensor_facts {
  const struct checkpoint *checkpoint;
  int32_t n_layers;  /* contiguous layers from 0 */
  bool fingerprinted; /* row chosen from tensors: its family defaults do not apply */
};
/* Failures are left in reader->status. */
void arch_read_features(struct field_reader *reader, const struct tensor_facts *facts);
/* Rope alone: rope_theta in its three places, scaling blocks of both spellings. Needs head_dim / rope_dim, positions_max. */
void arch_read_rope(struct field_reader *reader, const struct tensor_facts *facts);
/* Length of an axis of layer `layer`'s tensor, or -1 when it is absent. For a weight that is stored packed, axis 0 still holds. */
int32_t tensor_axis(const struct field_reader *reader, const struct tensor_facts *facts, int32_t layer, const char *name, int axis);

#endif
