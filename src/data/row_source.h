/* row_source.h - a data file as a sequence of JSON texts, one a row, whatever its name says: JSON lines, one array of rows, or JSON
 * documents one after the other (bug case C13). What it is, is told by its first bytes and structure. Only dataset.c uses it. */
#ifndef EAGLET_DATA_ROW_SOURCE_H
#define EAGLET_DATA_ROW_SOURCE_H

#include "base/file.h"

struct row_source;
/* path "-" is standard input. Refuses by name what is no JSON text (UTF-16, compressed files, Parquet, Git LFS pointers, HTML). */
enum eaglet_status row_source_open(struct row_source **source, const char *path, struct eaglet_error *err) MUST_USE;

struct row_text {
  const char *text; /* not terminated; valid until the next call; NULL at the end */
  size_t length;
  uint64_t line;    /* in the file, from 1, where it begins */
  uint64_t column;  /* from 1 */
};
/* Structure is checked only as far as needed to find where a row ends; the text itself may still be no JSON. */
enum eaglet_status row_source_next(struct row_source *source, struct row_text *row, struct eaglet_error *err) MUST_USE;
void row_source_close(struct row_source *source);

#endif
