/* unpack.h - gzip and zstd as a stream: packed bytes go in, the text comes out, in pieces of any size. Members and frames that follow each
 * other are one text, as the tools that write them have it. The only module that knows zlib and libzstd. */
#ifndef EAGLET_BASE_UNPACK_H
#define EAGLET_BASE_UNPACK_H

#include "base/error.h"

enum packing { PACKING_NONE, PACKING_GZIP, PACKING_ZSTD };
enum packing packing_of(const void *bytes, size_t length); /* told by the first four bytes */

struct unpacker;
struct unpacker *unpacker_create(enum packing packing); /* not PACKING_NONE */
void unpacker_free(struct unpacker *unpacker);
/* Forgets what it read, for another text. */
void unpacker_reset(struct unpacker *unpacker);

/* What is left of both sides; unpacker_run moves them forward. */
struct unpack_io {
  const uint8_t *in;
  size_t n_in;
  uint8_t *out;
  size_t n_out;
};
/* Works until one side is used up. Words of a failure name no file: the caller does. */
enum eaglet_status unpacker_run(struct unpacker *unpacker, struct unpack_io *io, struct eaglet_error *err) MUST_USE;
/* The input may end here: behind a whole member or frame. */
bool unpacker_complete(const struct unpacker *unpacker);

#endif
