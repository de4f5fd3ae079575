/* feature_shard.h - hidden states on disk as extract writes them.
 *
 * Directory: rows-00000.safetensors .. one per block of shard_rows training rows, and manifest.json (shard_rows, states by
 * decision 4's numbering, dtype, hidden, token data hash, model hash, convention). A shard exists only when whole (atomic), so
 * resuming is: skip shards that exist and match. Shards know nothing of each other: any process may make any of them, in any order.
 * Tensors: states DTYPE [N, n_states*H] (the head's inputs, ascending), last DTYPE [N, H] (state n_layers, pre-norm; not when the layout
 * says so), of FP8 states_scale F32 [N, n_states] and last_scale F32 [N], tokens I32 [N], row_begin I64 [rows+1], row_hash U64 [rows].
 * Metadata "xxh3": hash of the tensors' bytes.
 */
#ifndef EAGLET_DATA_FEATURE_SHARD_H
#define EAGLET_DATA_FEATURE_SHARD_H

#include "data/feature_store.h"

#define FEATURE_ROWS 64 /* training rows of one shard, at most: wide targets and long rows have fewer */

/* One shard at a time; rows in the order of the token store. */
struct feature_shard {
  const struct feature_layout *layout;
  const struct token_row *rows;
  size_t n_rows;
  const float *const *states; /* per row [n, width]: the taps, the head's inputs first */
  size_t width, last;         /* floats of a position; where in it the last state begins (nothing is copied when it is an input too) */
};
size_t feature_shard_rows(const struct feature_layout *layout);
/* shard_rows of a manifest; FEATURE_ROWS where it says nothing. */
enum eaglet_status feature_shard_rows_read(int32_t *shard_rows, const json_t *manifest, const char *path,
                                           struct eaglet_error *err) MUST_USE;
char *feature_shard_path(const char *directory, size_t index); /* heap */
bool feature_shard_name_parse(const char *name, size_t *index); /* of a shard's file */
uint64_t feature_shard_bytes(const struct feature_layout *layout, size_t n_rows, uint64_t n_tokens); /* of its file, at most */
enum eaglet_status feature_shard_write(const char *directory, size_t index, const struct feature_shard *shard,
                                       struct eaglet_error *err) MUST_USE;
/* Present, whole, of these rows and this layout; its numbers are not looked at. */
bool feature_shard_done(const char *directory, size_t index, const struct feature_shard *shard);
/* facts: fields to merge; must hold "token_hash" (of the token store, as text). Written before the first shard: it says
 * what the shards are, not that all are there. Never over one that is there: *existed. */
enum eaglet_status feature_manifest_write(const char *path, const struct feature_layout *layout,
                                          const json_t *facts, bool *existed, struct eaglet_error *err) MUST_USE;
enum eaglet_status feature_manifest_parse(struct feature_layout *layout, const json_t *manifest, const char *path,
                                          struct eaglet_error *err) MUST_USE;

/* The store of kind "eaglet". */
enum eaglet_status feature_shards_open(struct feature_store **store, const char *directory, const struct token_store *tokens,
                                       struct eaglet_error *err) MUST_USE;

/* ---- the whole truth about one shard, for `extract --check` ---- */

struct feature_verdict {
  size_t n_rows;
  uint64_t n_tokens;
  bool unhashed; /* written before shards had checksums */
  struct feature_fault fault;
};
/* rows: what it must hold (n_rows of them), or NULL when the token data is not at hand. The first thing that
 * is wrong is the error. */
struct feature_examination {
  const struct feature_layout *layout;
  const struct token_row *rows;
  size_t n_rows;
};
enum eaglet_status feature_shard_examine(struct feature_verdict *verdict, const char *path, const struct feature_examination *expected,
                                         struct eaglet_error *err) MUST_USE;

#endif
