/* file_stream.c - the byte streams of file.h: a file or standard input read forward, gzip and zstd unpacked on the way; and pieces of a file
 * read where they stand. Knows no text. A packed input that ends in the middle of a member or frame is an error, never a short file. */
#include "base/file.h"

#include "base/file_internal.h"
#include "base/memory.h"
#include "base/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PACKED_BYTES ((size_t)64 << 10)
#define MAGIC_BYTES 4 /* enough to tell a packing */

struct file_stream {
  int fd;
  char *name;
  uint8_t *packed; /* [PACKED_BYTES] read and not yet given on */
  size_t packed_at, packed_end;
  uint64_t n_read; /* bytes that the descriptor gave */
  struct unpacker *unpacker; /* NULL: bytes as they are */
  bool told, ended;          /* told: the first bytes were looked at; ended: the descriptor has no more */
};

static enum eaglet_status read_some(struct file_stream *s, void *bytes, size_t size, size_t *n, struct eaglet_error *err) {
  ssize_t got;
  do {
    got = read(s->fd, bytes, size);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return file_failed(err, s->name, "read");
  s->ended = got == 0;
  *n = (size_t)got;
  s->n_read += *n;
  return EAGLET_OK;
}

enum eaglet_status file_stream_open(struct file_stream **stream, const char *path, struct eaglet_error *err) {
  *stream = NULL;
  bool standard_input = !strcmp(path, "-");
  int fd = standard_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_failed(err, path, "open");
  struct stat info;
  if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    if (!standard_input) close(fd);
    FAIL(err, EAGLET_E_INPUT, "%s: expected a file, found a directory", path);
  }
  struct file_stream *s = memory_alloc(sizeof *s);
  s->fd = fd;
  s->name = memory_copy_string(standard_input ? "standard input" : path);
  s->packed = memory_resize(NULL, PACKED_BYTES);
  *stream = s;
  return EAGLET_OK;
}

const char *file_stream_name(const struct file_stream *s) { return s->name; }

uint64_t file_stream_position(const struct file_stream *s) { return s->n_read; }

/* A pipe may give its first bytes one by one. */
static enum eaglet_status tell_packing(struct file_stream *s, struct eaglet_error *err) {
  while (s->packed_end < MAGIC_BYTES && !s->ended) {
    size_t n = 0;
    TRY(read_some(s, s->packed + s->packed_end, PACKED_BYTES - s->packed_end, &n, err));
    s->packed_end += n;
  }
  enum packing packing = packing_of(s->packed, s->packed_end);
  if (packing != PACKING_NONE) s->unpacker = unpacker_create(packing);
  s->told = true;
  return EAGLET_OK;
}

static enum eaglet_status read_packed(struct file_stream *s, uint8_t *bytes, size_t size, size_t *n, struct eaglet_error *err) {
  struct unpack_io io = {.out = bytes, .n_out = size};
  while (io.n_out == size) {
    if (s->packed_at == s->packed_end && !s->ended) {
      s->packed_at = 0;
      TRY(read_some(s, s->packed, PACKED_BYTES, &s->packed_end, err));
    }
    io.in = s->packed + s->packed_at;
    io.n_in = s->packed_end - s->packed_at;
    if (unpacker_run(s->unpacker, &io, err) != EAGLET_OK) {
      error_prefix(err, "%s", s->name);
      return EAGLET_E_INPUT;
    }
    s->packed_at = s->packed_end - io.n_in;
    if (io.n_out == size && s->ended && io.n_in == 0) {
      if (!unpacker_complete(s->unpacker)) FAIL(err, EAGLET_E_INPUT, "%s: the packed data ends in the middle (cut short?)", s->name);
      break;
    }
  }
  *n = size - io.n_out;
  return EAGLET_OK;
}

enum eaglet_status file_stream_read(struct file_stream *s, void *bytes, size_t size, size_t *n, struct eaglet_error *err) {
  *n = 0;
  if (!s->told) TRY(tell_packing(s, err));
  if (s->unpacker) return read_packed(s, bytes, size, n, err);
  if (s->packed_at < s->packed_end) {
    *n = s->packed_end - s->packed_at < size ? s->packed_end - s->packed_at : size;
    memcpy(bytes, s->packed + s->packed_at, *n);
    s->packed_at += *n;
    return EAGLET_OK;
  }
  return s->ended ? EAGLET_OK : read_some(s, bytes, size, n, err);
}

void file_stream_close(struct file_stream *s) {
  if (!s) return;
  if (s->fd != STDIN_FILENO) close(s->fd);
  unpacker_free(s->unpacker);
  free(s->packed);
  free(s->name);
  free(s);
}

/* ---- pieces ---- */

enum eaglet_status file_pieces_open(struct file_pieces *pieces, const char *path, struct eaglet_error *err) {
  *pieces = (struct file_pieces){.fd = -1};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_failed(err, path, "open");
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    FAIL(err, EAGLET_E_INPUT, "%s: expected a regular file, which can be read from its end", path);
  }
  *pieces = (struct file_pieces){.fd = fd, .length = (uint64_t)info.st_size, .path = memory_copy_string(path)};
  return EAGLET_OK;
}

enum eaglet_status file_pieces_read(const struct file_pieces *pieces, uint64_t at, void *bytes, size_t length, struct eaglet_error *err) {
  if (at > pieces->length || length > pieces->length - at)
    FAIL(err, EAGLET_E_INPUT, "%s: %zu bytes at %llu are behind the end of the file (%llu bytes; cut short?)", pieces->path, length,
         (unsigned long long)at, (unsigned long long)pieces->length);
  for (size_t done = 0; done < length;) {
    ssize_t n = pread(pieces->fd, (char *)bytes + done, length - done, (off_t)(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_failed(err, pieces->path, "read");
    if (n == 0) FAIL(err, EAGLET_E_INPUT, "%s: became shorter while it was read", pieces->path);
    done += (size_t)n;
  }
  return EAGLET_OK;
}

void file_pieces_close(struct file_pieces *pieces) {
  if (pieces->fd >= 0 && pieces->path) close(pieces->fd);
  free(pieces->path);
  *pieces = (struct file_pieces){.fd = -1};
}
