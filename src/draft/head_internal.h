/* head_internal.h - between the files that make a struct head: reading, binding, a target's own layer. */
#ifndef EAGLET_DRAFT_HEAD_INTERNAL_H
#define EAGLET_DRAFT_HEAD_INTERNAL_H

#include "draft/head_file.h"

/* Weights of head->files by name; sets what only tensors tell in head->config, makes head->layers and head->map. Every tensor is
 * used or harmless, or the head is refused. On failure head_close releases what was made. */
enum eaglet_status head_bind(struct head *head, struct eaglet_error *err) MUST_USE;

/* head->quantization from the config of head->files. */
enum eaglet_status head_quantization_read(struct head *head, struct eaglet_error *err) MUST_USE;

/* The draft vocabulary from a head's tensors, which are marked used. */
enum eaglet_status head_vocabulary_read(struct vocab_map *map, struct checkpoint *files, const struct head_config *config,
                                        struct eaglet_error *err) MUST_USE;
/* Do two weights hold the same numbers? */
bool head_same_rows(const struct weight *a, const struct weight *b);

/* The name that a tensor has in every dialect: "layers.0.self_attn.q_proj.weight", "fc_norm.2.weight", "d2t". */
void head_name_canonical(char out[256], const char *name);
/* How a dialect spells a canonical name. */
void head_name_spell(char out[256], const char *canonical, enum head_dialect dialect);

#endif
