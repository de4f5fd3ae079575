/* arch_features.h - from config.json to struct features, inside arch_resolve. arch->row, arch->chain and reader levels are set before.
 * Failures are left in reader->status. Order: sizes and attention, rope, per-layer features, feed-forward and experts. */
#ifndef EAGLET_MODEL_ARCH_FEATURES_H
#define EAGLET_MODEL_ARCH_FEATURES_H

#include "model/arch_fields.h"
#include "model/arch_table.h"

void arch_read_features(struct field_reader *reader, const struct tensor_facts *facts);

/* Rope: theta in its three places, scaling blocks of both spellings, one block per layer type. Needs head_dim / rope_dim, positions_max. */
void arch_read_rope(struct field_reader *reader, const struct tensor_facts *facts);
/* Windows, chunks, rope and query scaling of every layer: fills features.layers. After arch_read_rope. */
void arch_read_layers(struct field_reader *reader, const struct tensor_facts *facts);
/* Experts, their router, and which layers have them. After arch_read_layers. */
void arch_read_moe(struct field_reader *reader, const struct tensor_facts *facts);

#endif
