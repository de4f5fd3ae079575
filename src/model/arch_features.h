/* arch_features.h - from config.json to struct features, inside arch_resolve. arch->row, arch->chain and reader levels are set before.
 * Failures are left in reader->status. Order: sizes and attention, rope, per-layer features, feed-forward and experts. */
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
void arch_read_features(struct field_reader *reader, const struct tensor_facts *facts);

/* Rope: theta in its three places, scaling blocks of both spellings, one block per layer type. Needs head_dim / rope_dim, positions_max. */
void arch_read_rope(struct field_reader *reader, const struct tensor_facts *facts);
/* Windows, chunks, rope and query scaling of every layer: fills features.layers. After arch_read_rope. */
void arch_read_layers(struct field_reader *reader, const struct tensor_facts *facts);
/* Experts, their router, and which layers have them. After arch_read_layers. */
void arch_read_moe(struct field_reader *reader, const struct tensor_facts *facts);

/* Length of an axis of layer `layer`'s tensor, or -1 when it is absent. For a weight that is stored packed, axis 0 still holds. */
int32_t tensor_axis(const struct field_reader *reader, const struct tensor_facts *facts, int32_t layer, const char *name, int axis);
/* The same with a module's name and a tail: "mlp.gate_proj", ".weight". -1 when the name is NULL. */
int32_t module_axis(const struct field_reader *reader, const struct tensor_facts *facts, int32_t layer, const char *module, const char *tail,
                    int axis);
/* Family defaults count only when config.json named the family; FIELD_REQUIRED otherwise. */
int32_t row_default(const struct tensor_facts *facts, int32_t value);
/* Is a layer's number in a list of numbers? */
bool list_has_layer(const json_t *list, int32_t layer);
/* Fails unless 1 <= value <= max. */
void field_positive(struct field_reader *reader, const char *name, int32_t value, int32_t max);
/* A flag that a tensor also shows (module + tail in `layer`): absent in the config, the tensor decides. */
struct flag_witness {
  const char *name, *module, *tail;
  int32_t layer;
};
bool flag_or_tensor(struct field_reader *reader, const struct tensor_facts *facts, const struct flag_witness *witness);

#endif
