/* unpack.c - see unpack.h. Owns the two decoders' states and the rule what may stand behind a gzip member: another one, or the zero bytes that
 * tapes pad with. */
#include "base/unpack.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define WINDOW_ANY (15 + 32) /* zlib's: the largest window, gzip or zlib header by its first bytes */
#define PIECE_MAX ((size_t)1 << 30) /* zlib counts in unsigned int */

struct unpacker {
  enum packing packing;
  z_stream gzip;
  ZSTD_DStream *zstd;
  bool complete;
};

enum packing packing_of(const void *bytes, size_t length) {
  if (length >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0) return PACKING_GZIP;
  if (length >= 4 && memcmp(bytes, "\x28\xb5\x2f\xfd", 4) == 0) return PACKING_ZSTD;
  return PACKING_NONE;
}

struct unpacker *unpacker_create(enum packing packing) {
  ASSERT(packing != PACKING_NONE);
  struct unpacker *u = memory_alloc(sizeof *u);
  u->packing = packing;
  if (packing == PACKING_GZIP)
    ASSERT(inflateInit2(&u->gzip, WINDOW_ANY) == Z_OK); /* fails only without memory */
  else
    ASSERT((u->zstd = ZSTD_createDStream()) != NULL);
  return u;
}

void unpacker_free(struct unpacker *u) {
  if (!u) return;
  if (u->packing == PACKING_GZIP) inflateEnd(&u->gzip);
  ZSTD_freeDStream(u->zstd);
  free(u);
}

void unpacker_reset(struct unpacker *u) {
  u->complete = false;
  if (u->packing == PACKING_GZIP)
    ASSERT(inflateReset2(&u->gzip, WINDOW_ANY) == Z_OK);
  else
    ASSERT(!ZSTD_isError(ZSTD_initDStream(u->zstd)));
}

static enum eaglet_status run_gzip(struct unpacker *u, struct unpack_io *io, struct eaglet_error *err) {
  while (io->n_in > 0 && io->n_out > 0) {
    if (u->complete) {
      if (*io->in == 0) {
        io->in++, io->n_in--;
        continue;
      }
      if (*io->in != 0x1f) FAIL(err, EAGLET_E_INPUT, "bytes behind the gzip data that are none (byte 0x%02x)", *io->in);
      unpacker_reset(u);
    }
    size_t n_in = io->n_in < PIECE_MAX ? io->n_in : PIECE_MAX, n_out = io->n_out < PIECE_MAX ? io->n_out : PIECE_MAX;
    u->gzip.next_in = (Bytef *)(uintptr_t)io->in; /* zlib does not write there */
    u->gzip.avail_in = (uInt)n_in;
    u->gzip.next_out = io->out;
    u->gzip.avail_out = (uInt)n_out;
    int result = inflate(&u->gzip, Z_NO_FLUSH);
    io->in += n_in - u->gzip.avail_in;
    io->n_in -= n_in - u->gzip.avail_in;
    io->out += n_out - u->gzip.avail_out;
    io->n_out -= n_out - u->gzip.avail_out;
    u->complete = result == Z_STREAM_END;
    if (result != Z_OK && result != Z_STREAM_END)
      FAIL(err, EAGLET_E_INPUT, "the gzip data is corrupt: %s", u->gzip.msg ? u->gzip.msg : "it makes no progress");
  }
  return EAGLET_OK;
}

static enum eaglet_status run_zstd(struct unpacker *u, struct unpack_io *io, struct eaglet_error *err) {
  ZSTD_inBuffer in = {.src = io->in, .size = io->n_in};
  ZSTD_outBuffer out = {.dst = io->out, .size = io->n_out};
  enum eaglet_status status = EAGLET_OK;
  do {
    size_t result = ZSTD_decompressStream(u->zstd, &out, &in);
    if (ZSTD_isError(result)) {
      status = error_set(err, EAGLET_E_INPUT, "the zstd data is corrupt: %s", ZSTD_getErrorName(result));
      break;
    }
    if (in.pos > 0 || out.pos > 0) u->complete = result == 0; /* without input it would ask for a next frame */
  } while (in.pos < in.size && out.pos < out.size);
  *io = (struct unpack_io){io->in + in.pos, io->n_in - in.pos, io->out + out.pos, io->n_out - out.pos};
  return status;
}

enum eaglet_status unpacker_run(struct unpacker *u, struct unpack_io *io, struct eaglet_error *err) {
  return u->packing == PACKING_GZIP ? run_gzip(u, io, err) : run_zstd(u, io, err);
}

bool unpacker_complete(const struct unpacker *u) { return u->complete; }
