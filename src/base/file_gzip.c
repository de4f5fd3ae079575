/* file_gzip.c - a gzip file as a mapping; see file.h. The size that the file claims (modulo 2^32) is not believed: memory grows with what
 * comes out, up to the bound. Owns the inflater for the time of the call. */
#define _GNU_SOURCE /* mremap */
#include "base/file.h"

#include <string.h>
#include <sys/mman.h>
#include <zlib.h>

#define ROOM_FIRST ((size_t)1 << 20)
#define STEP_MAX ((size_t)1 << 30) /* of the inflater's 32-bit counters */

/* The mapping while it grows. */
struct growing {
  uint8_t *data;
  size_t length, room, length_max;
};

static enum eaglet_status grow(struct growing *out, const char *path, struct eaglet_error *err) {
  size_t room = out->room ? 2 * out->room : ROOM_FIRST;
  if (room > out->length_max + 1) room = out->length_max + 1; /* one more, so that too much is seen */
  if (room <= out->room) FAIL(err, EAGLET_E_INPUT, "%s: expected at most %zu bytes when unpacked, found more", path, out->length_max);
  void *data = out->data ? mremap(out->data, out->room, room, MREMAP_MAYMOVE)
                         : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) FAIL(err, EAGLET_E_RESOURCE, "%s: no memory to unpack %zu bytes", path, room);
  out->data = data;
  out->room = room;
  return EAGLET_OK;
}

static enum eaglet_status unpack(struct growing *out, z_stream *z, const struct file_map *packed, const char *path, struct eaglet_error *err) {
  size_t taken = 0;
  for (int code = Z_OK; code != Z_STREAM_END;) {
    if (out->length == out->room) TRY(grow(out, path, err));
    size_t n_in = packed->length - taken, n_out = out->room - out->length;
    z->next_in = (Bytef *)(uintptr_t)(packed->data + taken);
    z->avail_in = (uInt)(n_in < STEP_MAX ? n_in : STEP_MAX);
    z->next_out = out->data + out->length;
    z->avail_out = (uInt)(n_out < STEP_MAX ? n_out : STEP_MAX);
    uInt given = z->avail_in, room = z->avail_out;
    code = inflate(z, Z_NO_FLUSH);
    taken += given - z->avail_in;
    out->length += room - z->avail_out;
    if (code == Z_MEM_ERROR) FAIL(err, EAGLET_E_RESOURCE, "%s: no memory to unpack it", path);
    if (code == Z_BUF_ERROR && taken == packed->length) FAIL(err, EAGLET_E_INPUT, "%s: the gzip data ends early", path);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      FAIL(err, EAGLET_E_INPUT, "%s: the gzip data is broken near byte %zu: %s", path, taken, z->msg ? z->msg : "not gzip");
  }
  if (out->length > out->length_max) FAIL(err, EAGLET_E_INPUT, "%s: expected at most %zu bytes when unpacked, found more", path, out->length_max);
  if (taken != packed->length) FAIL(err, EAGLET_E_INPUT, "%s: %zu bytes behind the gzip data", path, packed->length - taken);
  return EAGLET_OK;
}

enum eaglet_status file_map_open_gzip(struct file_map *map, const char *path, size_t length_max, struct eaglet_error *err) {
  struct file_map packed;
  struct growing out = {.length_max = length_max};
  z_stream z;
  *map = (struct file_map){0};
  memset(&z, 0, sizeof z);
  TRY(file_map_open(&packed, path, err));
  enum eaglet_status status = EAGLET_OK;
  if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) {
    status = error_set(err, EAGLET_E_RESOURCE, "%s: no memory to unpack it", path);
  } else {
    status = unpack(&out, &z, &packed, path, err);
    inflateEnd(&z);
  }
  file_map_close(&packed);
  if (status == EAGLET_OK && out.length > 0) {
    void *data = mremap(out.data, out.room, out.length, MREMAP_MAYMOVE); /* the mapping's length is the content's: closing frees all of it */
    if (data == MAP_FAILED) {
      status = error_set(err, EAGLET_E_RESOURCE, "%s: no memory to unpack it", path);
    } else {
      *map = (struct file_map){.data = data, .length = out.length};
      return EAGLET_OK;
    }
  }
  if (out.data) munmap(out.data, out.room);
  return status;
}
