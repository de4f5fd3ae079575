/* checkpoint.h - a model directory: config.json, generation_config.json and the union of its safetensors shards.
 *
 * Which files are read: with model.safetensors.index.json exactly the files it names (every named tensor must be in the named
 * file's header; extra files are ignored, reported in `n_ignored`); otherwise, or when the caller says to ignore the index, every
 * *.safetensors of the directory (consolidated*.safetensors, the same weights under their maker's names, are passed over beside
 * model*.safetensors; files numbered NNNNN-of-MMMMM must be all there). A tensor in two files that are read is refused. A missing shard is refused with its name and the number of tensors it holds. pytorch_model.bin
 * alone is refused. No tensor is copied; data stays in the mapping.
 *
 * Every tensor has a "used" mark, so that binding can prove that nothing was left unread in silence (decision 5).
 */
#ifndef EAGLET_CHECKPOINT_CHECKPOINT_H
#define EAGLET_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/safetensors.h"

struct checkpoint {
  char *path;                   /* the directory */
  json_t *config;               /* config.json; never NULL */
  json_t *generation_config;    /* or NULL */
  struct safetensors *files;    /* [n_files] */
  size_t n_files, n_ignored;
  const struct tensor_entry **tensors; /* [n_tensors] sorted by name */
  uint8_t *used;                /* [n_tensors] */
  size_t n_tensors;
  uint64_t n_bytes;             /* of all tensors */
};

/* MODEL is a directory, which wins, or org/name[@rev], looked up in hub_cache (models--org--name/refs/REV -> snapshots/COMMIT; rev: a
 * branch, a tag, refs/pr/N, a commit or the beginning of one; default main, or the only snapshot; NULL hub_cache: directories only).
 * A snapshot with dangling links is refused. Caller owns *path. The error says where it looked and how to get what is missing;
 * nothing is downloaded. Defined in hub.c. */
enum eaglet_status checkpoint_resolve(char **path, const char *model, const char *hub_cache, struct eaglet_error *err) MUST_USE;

struct checkpoint_params {
  const char *path;  /* the directory */
  bool ignore_index; /* read every *.safetensors file, whatever the index says (A09) */
  bool prefer_single; /* a head's directory: model.safetensors alone where there is one, whatever stands beside it */
};
enum eaglet_status checkpoint_open_with(struct checkpoint *checkpoint, const struct checkpoint_params *params, struct eaglet_error *err) MUST_USE;
enum eaglet_status checkpoint_open(struct checkpoint *checkpoint, const char *path, struct eaglet_error *err) MUST_USE; /* by the index */
/* Marks the tensor used. NULL when absent. */
const struct tensor_entry *checkpoint_find(struct checkpoint *checkpoint, const char *name);
const struct tensor_entry *checkpoint_peek(const struct checkpoint *checkpoint, const char *name); /* does not mark */
void checkpoint_close(struct checkpoint *checkpoint);

#endif
