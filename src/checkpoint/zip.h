/* zip.h - the directory of a zip archive in memory, as much of the format as torch.save uses: stored records (never compressed or
 * encrypted), zip64, one disk. Invariant: after zip_open records are sorted by name, no name stands twice. Nothing is copied.
 */
#ifndef EAGLET_CHECKPOINT_ZIP_H
#define EAGLET_CHECKPOINT_ZIP_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct zip_record {
  const char *name; /* in the archive, not terminated */
  size_t n_name;
  uint64_t header;  /* where its local header begins */
  uint64_t n_bytes, n_packed;
  uint16_t method, flags;
};
struct zip {
  const char *path;      /* borrowed, for messages */
  const uint8_t *data;   /* borrowed: the archive */
  size_t n_data;         /* up to the directory: records end before it */
  struct zip_record *records; /* [n] owned */
  size_t n;
};
enum eaglet_status zip_open(struct zip *zip, const uint8_t *data, size_t length, const char *path, struct eaglet_error *err) MUST_USE;
const struct zip_record *zip_find(const struct zip *zip, const char *name); /* NULL when absent */
/* The record's n_bytes bytes, in the archive. */
enum eaglet_status zip_bytes(const struct zip *zip, const uint8_t **bytes, const struct zip_record *record, struct eaglet_error *err) MUST_USE;
void zip_close(struct zip *zip);

#endif
