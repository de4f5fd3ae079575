/* feature_sink.h - how states are laid out on disk while they are extracted: a kind of files for blocks of training rows. Two kinds: our
 * shards, and the samples of vLLM's speculators (a file per row). A block is written whole or not at all by a kind that has one file for
 * it, and file by file otherwise; either way what is there is right, and blocks know nothing of each other.
 */
#ifndef EAGLET_DATA_FEATURE_SINK_H
#define EAGLET_DATA_FEATURE_SINK_H

#include "data/feature_shard.h"

struct feature_block {
  const char *directory;
  size_t index, first_row; /* of the block; of its rows in the token data */
  struct feature_shard shard;
};
struct feature_sink {
  const char *name;     /* "eaglet", "speculators" */
  const char *manifest; /* name of the file that says what the rest is */
  bool (*done)(const struct feature_block *block); /* nothing of it is missing; numbers are not looked at */
  enum eaglet_status (*write)(const struct feature_block *block, struct eaglet_error *err); /* what is not there yet */
  uint64_t (*bytes)(const struct feature_layout *layout, size_t n_rows, uint64_t n_tokens); /* of a block's files, at most */
  /* A name in the directory: the block that its file belongs to; false: none of this kind. */
  bool (*block_of)(size_t *index, const char *name, const struct feature_layout *layout);
};
extern const struct feature_sink feature_sink_eaglet, feature_sink_speculators;

/* Beside the samples, for the trainer of speculators: rows.jsonl (ids and loss masks, as its preprocessing takes them) and data_config.json
 * (which states, by the numbers of vLLM). Left alone when they are there. */
enum eaglet_status speculators_write_tables(const char *directory, const struct feature_layout *layout, const struct token_store *tokens,
                                            struct eaglet_error *err) MUST_USE;

#endif
