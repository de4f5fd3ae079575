/* file.h - files: read-only mapping, atomic writing, directories. The only module (with serve) that touches descriptors.
 *
 * Every artefact of the project survives kill -9: file_writer writes to PATH.tmp-PID, fsyncs, renames, fsyncs the directory.
 * A failure (full disk) removes the temporary file and leaves what was at PATH untouched. Disk-full is EAGLET_E_RESOURCE.
 */
#ifndef EAGLET_BASE_FILE_H
#define EAGLET_BASE_FILE_H

#include "base/error.h"

struct file_map {
  const uint8_t *data; /* NULL when length is 0 */
  size_t length;
};
enum eaglet_status file_map_open(struct file_map *map, const char *path, struct eaglet_error *err) MUST_USE;
/* A gzip or zstd file (or one that is not packed), unpacked into memory: refused when it is damaged or holds more than length_max bytes. */
enum eaglet_status file_map_open_unpacked(struct file_map *map, const char *path, size_t length_max, struct eaglet_error *err) MUST_USE;
void file_map_close(struct file_map *map);

enum eaglet_status file_read(struct eaglet_text *text, const char *path, size_t length_max, struct eaglet_error *err) MUST_USE;

struct file_writer {
  int fd;
  char *path, *path_temporary;
  char *pending;             /* write buffer */
  size_t n_pending;
  uint64_t length;           /* bytes appended so far */
  struct eaglet_error error; /* sticky: appends after a failure do nothing; commit reports it */
};
enum eaglet_status file_writer_open(struct file_writer *writer, const char *path, struct eaglet_error *err) MUST_USE;
void file_writer_append(struct file_writer *writer, const void *bytes, size_t length);
enum eaglet_status file_writer_commit(struct file_writer *writer, struct eaglet_error *err) MUST_USE; /* closes in every case */
void file_writer_abandon(struct file_writer *writer);
enum eaglet_status file_write(const char *path, const void *bytes, size_t length, struct eaglet_error *err) MUST_USE; /* atomic */

/* Atomic too, and never over a file that is there: of several processes that write PATH at once one wins. *existed: another did, and
 * nothing was written. Once PATH exists, PATH.tmp-* may be removed by anybody. */
enum eaglet_status file_write_new(const char *path, const void *bytes, size_t length, bool *existed, struct eaglet_error *err) MUST_USE;

/* Appends one line to a log-like file (metrics.jsonl) with one write() and fsyncs it. */
enum eaglet_status file_append_line(const char *path, const char *line, size_t length, struct eaglet_error *err) MUST_USE;
enum eaglet_status file_truncate(const char *path, uint64_t length, struct eaglet_error *err) MUST_USE;

bool file_exists(const char *path);
bool file_is_directory(const char *path);
bool file_is_regular(const char *path); /* no pipe, device or directory */
int64_t file_length(const char *path); /* -1 when absent */
char *file_real_path(const char *path); /* absolute, every link followed; NULL when absent; heap */
enum eaglet_status file_make_directory(const char *path, struct eaglet_error *err) MUST_USE; /* with parents; exists is fine */
enum eaglet_status file_remove(const char *path, struct eaglet_error *err) MUST_USE;         /* absent is fine */
enum eaglet_status file_rename(const char *from, const char *to, struct eaglet_error *err) MUST_USE;
/* Names (not paths) of the entries of a directory, sorted bytewise, without "." and "..". Free with file_list_clear. */
struct file_list {
  char **names;
  size_t n, capacity;
};
enum eaglet_status file_list_directory(struct file_list *list, const char *path, struct eaglet_error *err) MUST_USE;
void file_list_clear(struct file_list *list);
uint64_t file_disk_free(const char *path); /* bytes available to us on the file system of path (or its nearest parent) */
char *file_join(const char *directory, const char *name); /* heap */
uint64_t file_hash(const void *bytes, size_t length, uint64_t seed); /* xxh3, for manifests */
/* file_hash (seed 0) of a whole file, read piece by piece: nothing of it stays in memory. */
enum eaglet_status file_hash_contents(const char *path, uint64_t *hash, struct eaglet_error *err) MUST_USE;

/* Bytes of a file or of standard input ("-"), read forward once. gzip and zstd are told by their first bytes and unpacked on the way, several
 * members as one text; what is cut short or corrupt there is an error that names the file. Holds a fixed buffer, whatever the file's size. */
struct file_stream;
enum eaglet_status file_stream_open(struct file_stream **stream, const char *path, struct eaglet_error *err) MUST_USE;
/* Some bytes, at most size; *n is 0 only at the end (or when size is). */
enum eaglet_status file_stream_read(struct file_stream *stream, void *bytes, size_t size, size_t *n, struct eaglet_error *err) MUST_USE;
uint64_t file_stream_position(const struct file_stream *stream); /* bytes of the input read so far, packed as they stand */
const char *file_stream_name(const struct file_stream *stream); /* the path, or "standard input"; borrowed */
void file_stream_close(struct file_stream *stream);

/* Pieces of a regular file, read where they stand: for formats that are found from their end. */
struct file_pieces {
  int fd;
  char *path;
  uint64_t length;
};
enum eaglet_status file_pieces_open(struct file_pieces *pieces, const char *path, struct eaglet_error *err) MUST_USE;
/* Exactly length bytes; a piece behind the end is EAGLET_E_INPUT. */
enum eaglet_status file_pieces_read(const struct file_pieces *pieces, uint64_t at, void *bytes, size_t length, struct eaglet_error *err) MUST_USE;
void file_pieces_close(struct file_pieces *pieces); /* also of a zeroed struct */

/* The paths that a pattern of glob(3) stands for, sorted bytewise; none is no error. Free with file_list_clear. */
enum eaglet_status file_glob(struct file_list *list, const char *pattern, struct eaglet_error *err) MUST_USE;

/* Lines of a text file or of standard input ("-"), streaming, read as file_stream does. The line is valid until the next call; no trailing newline.
 * A line longer than 256 MiB fails. A UTF-8 byte-order mark at the start is skipped. */
struct file_lines;
enum eaglet_status file_lines_open(struct file_lines **lines, const char *path, struct eaglet_error *err) MUST_USE;
/* *line is NULL at the end. */
enum eaglet_status file_lines_next(struct file_lines *lines, const char **line, size_t *length, struct eaglet_error *err) MUST_USE;
uint64_t file_lines_number(const struct file_lines *lines); /* of the line last returned, from 1 */
void file_lines_close(struct file_lines *lines);

#endif
