/* row_source.h - a data file as a sequence of JSON texts, one a row, whatever its name says: JSON lines, one array of rows, or JSON
 * documents one after the other (bug case C13), plain or packed, from a file or a pipe. What it is, is told by its first bytes and
 * structure. Holds a window of the input that grows to one row, never the input. Only dataset.c uses it. */
#ifndef EAGLET_DATA_ROW_SOURCE_H
#define EAGLET_DATA_ROW_SOURCE_H

#include "base/file.h"

#define ROW_BYTES_MAX_DEFAULT ((size_t)256 << 20)

struct row_source;
/* path "-" is standard input; row_bytes_max 0 is the default. Refuses by name what is no JSON text (UTF-16, other packings, Parquet, Git
 * LFS pointers, HTML). */
enum eaglet_status row_source_open(struct row_source **source, const char *path, size_t row_bytes_max, struct eaglet_error *err) MUST_USE;

struct row_text {
  const char *text; /* not terminated; valid until the next call; NULL at the end */
  size_t length;
  uint64_t line;    /* in the file, from 1, where it begins */
  uint64_t column;  /* from 1 */
  bool too_long;    /* a line of more than row_bytes_max: it was passed over, text is "" (bug case C05) */
};
/* Structure is checked only as far as needed to find where a row ends; the text itself may still be no JSON. Of an array or a document a
 * row past the limit is an error: where it ends cannot be known without reading it. */
enum eaglet_status row_source_next(struct row_source *source, struct row_text *row, struct eaglet_error *err) MUST_USE;
uint64_t row_source_position(const struct row_source *source); /* bytes of the file read so far */
void row_source_close(struct row_source *source);

#endif
