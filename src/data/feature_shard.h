/* feature_shard.h - hidden states on disk: what extract writes and train --features reads.
 *
 * Directory: rows-00000.safetensors .. one per block of shard_rows training rows, and manifest.json (shard_rows, states by
 * decision 4's numbering, dtype, hidden, token data hash, model hash, convention "residual stream after k layers,
 * before the final norm"). A shard exists only when whole (atomic), so resuming is: skip shards that exist and match.
 * Tensors: states DTYPE [N, n_states*H] (the head's inputs, ascending), last DTYPE [N, H] (state n_layers, pre-norm),
 * tokens I32 [N], row_begin I64 [rows+1], row_hash U64 [rows].
 */
#ifndef EAGLET_DATA_FEATURE_SHARD_H
#define EAGLET_DATA_FEATURE_SHARD_H

#include "data/token_shard.h"

#define FEATURE_ROWS 64 /* training rows of one shard, at most: wide targets and long rows have fewer */
#define FEATURE_CONVENTION "residual stream after k layers, before the final norm"

struct feature_layout {
  int32_t n_states, states[16]; /* the head's input states */
  int32_t n_layers, hidden;
  enum dtype dtype; /* BF16 or F32 */
  int32_t shard_rows; /* training rows of one shard, 1 .. FEATURE_ROWS; 0: FEATURE_ROWS */
};
/* One shard at a time; rows in the order of the token store. */
struct feature_shard {
  const struct feature_layout *layout;
  const struct token_row *rows;
  size_t n_rows;
  const float *const *states; /* per row [n, (n_states + 1) * H]: the taps with the last state at the end */
};
size_t feature_shard_rows(const struct feature_layout *layout);
/* shard_rows of a manifest; FEATURE_ROWS where it says nothing. */
enum eaglet_status feature_shard_rows_read(int32_t *shard_rows, const json_t *manifest, const char *path,
                                           struct eaglet_error *err) MUST_USE;
char *feature_shard_path(const char *directory, size_t index); /* heap */
enum eaglet_status feature_shard_write(const char *directory, size_t index, const struct feature_shard *shard,
                                       struct eaglet_error *err) MUST_USE;
bool feature_shard_done(const char *directory, size_t index, const struct token_row *rows,
                        size_t n_rows); /* present, whole, same rows */
/* facts: fields to merge; must hold "token_hash" (of the token store, as text). Written before the first shard: it says
 * what the shards are, not that all are there. */
enum eaglet_status feature_manifest_write(const char *directory, const struct feature_layout *layout,
                                          const json_t *facts, struct eaglet_error *err) MUST_USE;

struct feature_store; /* random access by training-row index */
/* Refuses features of other tokens, a missing shard, a shard that is not of these rows. */
enum eaglet_status feature_store_open(struct feature_store **store, const char *directory,
                                      const struct token_store *tokens, struct eaglet_error *err) MUST_USE;
const struct feature_layout *feature_store_layout(const struct feature_store *store);
/* Converts row `row` to F32 into states [n, (n_states+1)*H]. */
enum eaglet_status feature_store_read(struct feature_store *store, size_t row, float *states,
                                      struct eaglet_error *err) MUST_USE;
void feature_store_close(struct feature_store *store);

#endif
