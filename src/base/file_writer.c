/* file_writer.c - the atomic writer of file.h: PATH.tmp-PID, fsync, rename, fsync of the directory. Whatever happens before the
 * rename leaves PATH as it was; whatever fails removes the temporary file. */
#include "base/file.h"

#include "base/file_internal.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PENDING_MAX ((size_t)1 << 20)

enum eaglet_status file_writer_open(struct file_writer *writer, const char *path, struct eaglet_error *err) {
  *writer = (struct file_writer){.fd = -1};
  char *path_temporary = memory_format("%s.tmp-%ld", path, (long)getpid());
  int fd = open(path_temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    free(path_temporary);
    return file_failed(err, path, "create");
  }
  writer->fd = fd;
  writer->path = memory_copy_string(path);
  writer->path_temporary = path_temporary;
  writer->pending = memory_alloc(PENDING_MAX);
  return EAGLET_OK;
}

/* Closes and frees; removes the temporary file unless it was renamed. Keeps the error. */
static void writer_release(struct file_writer *writer, bool renamed) {
  struct eaglet_error error = writer->error;
  if (writer->fd >= 0) close(writer->fd);
  if (writer->path_temporary && !renamed) unlink(writer->path_temporary);
  free(writer->path);
  free(writer->path_temporary);
  free(writer->pending);
  *writer = (struct file_writer){.fd = -1, .error = error};
}

/* Gives the disk space back at once: what else runs on a full disk should not wait for our caller. */
static void writer_fail(struct file_writer *writer) {
  file_failed(&writer->error, writer->path, "write");
  close(writer->fd);
  writer->fd = -1;
  unlink(writer->path_temporary);
}

static void writer_put(struct file_writer *writer, const char *bytes, size_t length) {
  if (writer->fd >= 0 && !file_write_all(writer->fd, bytes, length)) writer_fail(writer);
}

void file_writer_append(struct file_writer *writer, const void *bytes, size_t length) {
  if (writer->fd < 0 || length == 0) return;
  if (length > PENDING_MAX - writer->n_pending) {
    writer_put(writer, writer->pending, writer->n_pending);
    writer->n_pending = 0;
  }
  if (length > PENDING_MAX) {
    writer_put(writer, bytes, length);
  } else {
    memcpy(writer->pending + writer->n_pending, bytes, length);
    writer->n_pending += length;
  }
  if (writer->fd >= 0) writer->length += length;
}

enum eaglet_status file_writer_commit(struct file_writer *writer, struct eaglet_error *err) {
  ASSERT(writer->path);
  writer_put(writer, writer->pending, writer->n_pending);
  if (writer->fd >= 0 && fsync(writer->fd) != 0) writer_fail(writer);
  bool renamed = false;
  if (writer->fd >= 0) {
    /* close can report a delayed write failure (NFS), so it comes before the rename. */
    int closed = close(writer->fd);
    writer->fd = -1;
    renamed = closed == 0 && rename(writer->path_temporary, writer->path) == 0;
    if (!renamed) file_failed(&writer->error, writer->path, closed != 0 ? "write" : "rename into place");
  }
  if (renamed) file_sync_parent(writer->path);
  writer_release(writer, renamed);
  if (!renamed && err) *err = writer->error;
  return renamed ? EAGLET_OK : writer->error.status;
}

void file_writer_abandon(struct file_writer *writer) {
  if (writer->path) writer_release(writer, false);
}

enum eaglet_status file_write(const char *path, const void *bytes, size_t length, struct eaglet_error *err) {
  struct file_writer writer;
  TRY(file_writer_open(&writer, path, err));
  file_writer_append(&writer, bytes, length);
  return file_writer_commit(&writer, err);
}

/* The temporary file is this call's alone, also when processes of several machines share the directory and a process id. */
static int create_unique(char **path_temporary, const char *path) {
  for (int attempt = 0;; attempt++) {
    *path_temporary = memory_format("%s.tmp-%ld-%d", path, (long)getpid(), attempt);
    int fd = open(*path_temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST || attempt == 1000) return fd;
    free(*path_temporary);
  }
}

enum eaglet_status file_write_new(const char *path, const void *bytes, size_t length, bool *existed, struct eaglet_error *err) {
  char *path_temporary;
  *existed = false;
  int fd = create_unique(&path_temporary, path);
  enum eaglet_status status = EAGLET_OK;
  if (fd < 0) {
    status = file_failed(err, path, "create");
    free(path_temporary);
    return status;
  }
  bool written = file_write_all(fd, bytes, length) && fsync(fd) == 0;
  if (!written) status = file_failed(err, path, "write");
  if (close(fd) != 0 && written) status = file_failed(err, path, "write");
  if (status == EAGLET_OK && link(path_temporary, path) != 0) { /* unlike rename, fails when the name is taken */
    *existed = errno == EEXIST || (errno == ENOENT && file_exists(path)); /* who finds the file finished may clear away what is torn */
    if (!*existed) status = file_failed(err, path, "link into place");
  }
  unlink(path_temporary);
  if (status == EAGLET_OK) file_sync_parent(path);
  free(path_temporary);
  return status;
}
