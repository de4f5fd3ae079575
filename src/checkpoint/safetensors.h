/* safetensors.h - one safetensors file, mapped read-only and fully validated; and an atomic writer.
 *
 * Invariant: after open, every tensor's [begin, end) lies inside the mapping and equals prod(shape)*bits/8; tensors tile the
 * data buffer without hole or overlap; header is strict JSON without duplicate keys. A truncated file, an LFS pointer or an
 * HTML page is refused by name before anything is read (rules: spec models.md §7).
 */
#ifndef EAGLET_CHECKPOINT_SAFETENSORS_H
#define EAGLET_CHECKPOINT_SAFETENSORS_H

#include "base/dtype.h"
#include "base/file.h"
#include "base/json.h"

#define TENSOR_RANK_MAX 8

struct tensor_entry {
  const char *name;   /* borrowed from the file or checkpoint */
  enum dtype dtype;
  int rank;
  int64_t shape[TENSOR_RANK_MAX];
  const uint8_t *data; /* in the mapping; any alignment */
  uint64_t n_bytes;
  const char *path;   /* file it lives in, for messages */
};

struct safetensors {
  char *path;
  struct file_map map;
  json_t *header;        /* owns the metadata */
  char *names;           /* owns the names, unless header does (safetensors_header.h) */
  struct tensor_entry *tensors; /* [n], sorted by name */
  size_t n;
};
enum eaglet_status safetensors_open(struct safetensors *file, const char *path, struct eaglet_error *err) MUST_USE;
/* EAGLET_E_INPUT: another element type than F32, BF16, F16; an element that is not finite. The second wants the first to have passed. */
enum eaglet_status tensor_expect_float(const struct tensor_entry *tensor, struct eaglet_error *err) MUST_USE;
enum eaglet_status tensor_to_f32(float *out, const struct tensor_entry *tensor, size_t n, struct eaglet_error *err) MUST_USE;
const struct tensor_entry *safetensors_find(const struct safetensors *file, const char *name); /* NULL when absent */
const char *safetensors_metadata(const struct safetensors *file, const char *key);             /* NULL when absent */
void safetensors_close(struct safetensors *file);

/* Writer: declare every tensor, then commit, which streams data from the given pointers in declaration order. Header is padded
 * with spaces to 8 bytes. A name, key or value that is not UTF-8 is a sticky error that commit reports; a name twice, a bad
 * shape or a part of a byte is the programmer's mistake (ASSERT). */
struct safetensors_writer;
struct safetensors_writer *safetensors_writer_create(void);
void safetensors_writer_metadata(struct safetensors_writer *writer, const char *key, const char *value);
/* data is borrowed until commit. */
void safetensors_writer_add(struct safetensors_writer *writer, const char *name, enum dtype dtype, int rank,
                            const int64_t *shape, const void *data);
/* Writes PATH atomically; frees nothing. */
enum eaglet_status safetensors_writer_commit(struct safetensors_writer *writer, const char *path, struct eaglet_error *err) MUST_USE;
void safetensors_writer_free(struct safetensors_writer *writer);

#endif
