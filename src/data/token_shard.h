/* token_shard.h - what prepare writes and everything later reads: rows of token ids with their trained mask.
 *
 * A data directory holds train-00000.safetensors .., valid-00000.safetensors .., counts.safetensors (token frequencies
 * at trained positions, total, per source and per language) and manifest.json (written last; version, tokenizer hash, n_target, stop
 * and special ids, settings, sources, languages, per-shard rows/tokens/xxh3). A directory without manifest is unfinished. Shard
 * tensors: tokens I32 [N], mask U8 [N], row_begin I64 [rows+1], row_source I32 [rows], row_hash U64 [rows]. See
 * docs/FORMATS.md.
 */
#ifndef EAGLET_DATA_TOKEN_SHARD_H
#define EAGLET_DATA_TOKEN_SHARD_H

#include "checkpoint/safetensors.h"

#define SOURCES_MAX EAGLET_SOURCES_MAX
#define HASH_TEXT_BYTES 17 /* a 64-bit hash as the manifests write it: 16 hex digits and NUL */

struct token_row {
  const int32_t *tokens; /* [n] valid while the store is open */
  const uint8_t *mask;   /* [n] 1: trained reply token, end-of-turn included */
  int32_t n;
  int32_t source; /* index into the store's sources */
  uint64_t hash;  /* of tokens and mask */
};

uint64_t token_row_hash(const int32_t *tokens, const uint8_t *mask, int32_t n);
void hash_text(char text[HASH_TEXT_BYTES], uint64_t hash);

/* Writer: rows are buffered into shards of about 16 MiB. Until the commit shards carry the ending .new, so that a
 * failure leaves a finished directory as it was; the commit renames them, drops the older ones and writes the manifest
 * last. Row hashes are computed here. */
struct token_writer;
struct token_writer_params {
  const char *directory;
  const json_t *manifest; /* fields to merge into manifest.json; must hold "n_target" (integer) */
};
enum eaglet_status token_writer_open(struct token_writer **writer, const struct token_writer_params *params,
                                     struct eaglet_error *err) MUST_USE;
struct row_origin {
  const char *source;
  const char *language; /* NULL: not known */
};
enum eaglet_status token_writer_add(struct token_writer *writer, const struct token_row *row, const struct row_origin *origin,
                                    bool validation, struct eaglet_error *err) MUST_USE;
enum eaglet_status token_writer_commit(struct token_writer *writer, const json_t *report,
                                       struct eaglet_error *err) MUST_USE; /* writes counts and manifest */
/* {source: {rows, tokens, trained_tokens}} of what was added so far; the caller's. */
json_t *token_writer_sources(const struct token_writer *writer);
void token_writer_free(struct token_writer *writer);

struct token_store {
  char *directory;
  json_t *manifest;
  struct safetensors *shards;
  size_t n_shards;
  struct token_row *rows; /* [n_rows], training rows or validation rows as asked */
  size_t n_rows;
  uint64_t n_tokens, n_trained;
  uint64_t hash; /* of the content: of all row hashes in order */
  char **sources;
  size_t n_sources;
  int32_t *own_ids;  /* rows that are not in a shard of ours (foreign_store.h) */
  uint8_t *own_mask;
};
/* Verifies checksums, shapes and every token id. A directory without manifest is refused as unfinished, unless it holds samples of another
 * program with ids and masks: then those are the training rows. */
enum eaglet_status token_store_open(struct token_store *store, const char *directory, bool validation,
                                    struct eaglet_error *err) MUST_USE;
enum count_group { COUNT_TOTAL, COUNT_SOURCE, COUNT_LANGUAGE };
/* Trained-token counts [n_target] of the whole directory, or of one of its sources or languages (manifest). Caller frees. */
enum eaglet_status token_store_counts(const struct token_store *store, enum count_group group, size_t index, uint64_t **counts,
                                      struct eaglet_error *err) MUST_USE;
void token_store_close(struct token_store *store);

#endif
