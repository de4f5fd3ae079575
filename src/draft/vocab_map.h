/* vocab_map.h - the draft vocabulary: which target ids the head can draft. target = draft + d2t[draft] (offsets, EAGLE-3);
 * t2d marks the target ids that are in. Invariant: target ids strictly increase, lie in [0, n_target), popcount(t2d) == n_draft.
 * A full vocabulary is the identity map and stores nothing.
 */
#ifndef EAGLET_DRAFT_VOCAB_MAP_H
#define EAGLET_DRAFT_VOCAB_MAP_H

#include "checkpoint/safetensors.h"

struct vocab_map {
  int32_t n_draft, n_target;
  int32_t *target;     /* [n_draft] target id of each draft id */
  int32_t *draft;      /* [n_target] draft id, or -1 */
};
/* From sorted distinct target ids (copied). */
enum eaglet_status vocab_map_init(struct vocab_map *map, const int32_t *target_ids, int32_t n_draft, int32_t n_target,
                                  const char *what, struct eaglet_error *err) MUST_USE;
enum eaglet_status vocab_map_identity(struct vocab_map *map, int32_t n_target, struct eaglet_error *err) MUST_USE;
/* From d2t (I64 or I32 offsets, "d2t" or "draft_id_to_target_id") and, if there, t2d (BOOL/U8), fully validated against each
 * other; first bad index is named (E10). A table of ids where offsets belong is taken, with a warning, when t2d says so; 0, 1, 2 ...
 * and zeros only are refused without a t2d (E01). */
enum eaglet_status vocab_map_from_tensors(struct vocab_map *map, const struct safetensors *file, int32_t n_draft, int32_t n_target,
                                          struct eaglet_error *err) MUST_USE;
/* The same of tensors that the caller found. */
struct vocab_tables {
  const struct tensor_entry *d2t, *t2d; /* NULL when absent */
  int32_t n_draft, n_target;
  const char *path; /* for messages */
};
enum eaglet_status vocab_map_from_tables(struct vocab_map *map, const struct vocab_tables *tables, struct eaglet_error *err) MUST_USE;
/* Chooses: every id of must (end-of-turn and special tokens), then by (-count, id) until n_draft; short of seen ids, lowest unused
 * ids pad (E05), *n_padded tells how many. */
struct vocab_choice {
  const uint64_t *counts;  /* [n_target] at trained positions */
  const int32_t *must; size_t n_must;
  int32_t n_draft, n_target;
  int32_t n_padded;        /* out */
  double coverage;         /* out: share of counted tokens inside the map */
};
enum eaglet_status vocab_map_choose(struct vocab_map *map, struct vocab_choice *choice, struct eaglet_error *err) MUST_USE;
/* Adds d2t (I64 offsets) and t2d (BOOL) to a writer; *storage owns the bytes until the commit (free()). */
void vocab_map_write(const struct vocab_map *map, struct safetensors_writer *writer, void **storage);
uint64_t vocab_map_hash(const struct vocab_map *map);
void vocab_map_release(struct vocab_map *map);

#endif
