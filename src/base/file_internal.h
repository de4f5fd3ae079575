/* file_internal.h - what file.c, file_writer.c and file_stream.c share. Nobody else includes it. */
#ifndef EAGLET_BASE_FILE_INTERNAL_H
#define EAGLET_BASE_FILE_INTERNAL_H

#include "base/error.h"

/* "path: cannot VERB: strerror(errno)"; a full disk, quota or descriptor table is EAGLET_E_RESOURCE, the rest EAGLET_E_INPUT. */
enum eaglet_status file_failed(struct eaglet_error *err, const char *path, const char *verb);
/* False with errno set when not everything could be written. */
bool file_write_all(int fd, const char *bytes, size_t length);
/* Makes a rename in path's directory survive a power cut. */
void file_sync_parent(const char *path);

#endif
