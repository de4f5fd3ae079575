/* file_unpacked.c - a packed file as a mapping; see file.h. The size that a file claims is not believed: memory grows with what comes out, up to
 * the bound. Packing itself is file_stream.c's. */
#define _GNU_SOURCE /* mremap */
#include "base/file.h"

#include <sys/mman.h>

#define ROOM_FIRST ((size_t)1 << 20)

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

static enum eaglet_status read_all(struct growing *out, struct file_stream *stream, const char *path, struct eaglet_error *err) {
  for (size_t n = 1; n > 0; out->length += n) {
    if (out->length == out->room) TRY(grow(out, path, err));
    TRY(file_stream_read(stream, out->data + out->length, out->room - out->length, &n, err));
  }
  if (out->length > out->length_max) FAIL(err, EAGLET_E_INPUT, "%s: expected at most %zu bytes when unpacked, found more", path, out->length_max);
  return EAGLET_OK;
}

enum eaglet_status file_map_open_unpacked(struct file_map *map, const char *path, size_t length_max, struct eaglet_error *err) {
  struct file_stream *stream = NULL;
  struct growing out = {.length_max = length_max};
  *map = (struct file_map){0};
  TRY(file_stream_open(&stream, path, err));
  enum eaglet_status status = read_all(&out, stream, path, err);
  file_stream_close(stream);
  if (status == EAGLET_OK && out.length > 0) {
    void *data = mremap(out.data, out.room, out.length, MREMAP_MAYMOVE); /* the mapping's length is the content's: closing frees all of it */
    if (data != MAP_FAILED) {
      *map = (struct file_map){.data = data, .length = out.length};
      return EAGLET_OK;
    }
    status = error_set(err, EAGLET_E_RESOURCE, "%s: no memory to unpack it", path);
  }
  if (out.data) munmap(out.data, out.room);
  return status;
}
