/* token_shard.c - what the reader and the writer of token shards share: hashes. The writer is in token_writer.c, the
 * store in token_store.c. */
#include "data/token_shard.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t token_row_hash(const int32_t *tokens, const uint8_t *mask, int32_t n) {
  return file_hash(mask, (size_t)n, file_hash(tokens, (size_t)n * sizeof *tokens, 0));
}

void hash_text(char text[HASH_TEXT_BYTES], uint64_t hash) {
  snprintf(text, HASH_TEXT_BYTES, "%016" PRIx64, hash);
}
