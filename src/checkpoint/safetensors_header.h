/* safetensors_header.h - the JSON header of a safetensors file as a list of what it says. Only safetensors.c includes it. */
#ifndef EAGLET_CHECKPOINT_SAFETENSORS_HEADER_H
#define EAGLET_CHECKPOINT_SAFETENSORS_HEADER_H

#include "checkpoint/safetensors.h"

struct header_entry { /* not yet compared with the file or with its own shape */
  const char *name;   /* borrowed from the header */
  enum dtype dtype;
  int rank;
  int64_t shape[TENSOR_RANK_MAX];
  uint64_t first, last; /* first <= last <= INT64_MAX */
};

struct header {
  json_t *json; /* owns __metadata__, and names when `names` does not */
  char *names;
  struct header_entry *entries; /* in file order; names may repeat */
  size_t n, capacity;
};

/* text begins with '{'. In every case the caller releases the header. */
enum eaglet_status header_parse(struct header *header, const char *text, size_t length, const char *path, struct eaglet_error *err) MUST_USE;
/* The two readers behind header_parse, declared for tests that compare them: what the scanner takes, the other takes and means the
 * same. header_scan is false when the text is not in the plain form, which says nothing about its soundness; header_read wants a
 * header of zeros. */
bool header_scan(struct header *header, const char *text, size_t length);
enum eaglet_status header_read(struct header *header, const char *text, size_t length, const char *path, struct eaglet_error *err) MUST_USE;
void header_release(struct header *header);

#endif
