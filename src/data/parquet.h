/* parquet.h - rows of a Parquet file as JSON values, each as its JSON-lines twin would be. Reads the wanted top-level columns only, page by page:
 * memory is about a page of each wanted leaf, its dictionary, and one row. Everything is checked before it is used, and what cannot be read
 * (a codec, an encoding, a type, encryption) is refused by name in parquet_select, before any row is given. Only dataset.c uses it.
 *
 * A row is an object of the wanted columns in the file's order. Nulls are null; lists (three-level, the older two-level forms, bare repeated
 * fields) are arrays, groups objects, maps objects whose keys are text; byte arrays are text and must be UTF-8; what no JSON number can be
 * (NaN, infinity) is null. docs/DATA.md lists types, encodings and codecs.
 */
#ifndef EAGLET_DATA_PARQUET_H
#define EAGLET_DATA_PARQUET_H

#include "base/json.h"

/* A regular file that begins as a Parquet file does. */
bool parquet_is(const char *path);

struct parquet_file;
/* Reads and checks the footer: EAGLET_E_INPUT with the path in its words when the file is cut short, encrypted or contradicts itself. */
enum eaglet_status parquet_open(struct parquet_file **file, const char *path, struct eaglet_error *err) MUST_USE;
size_t parquet_n_columns(const struct parquet_file *file); /* top-level fields */
const char *parquet_column_name(const struct parquet_file *file, size_t i); /* borrowed */
/* Must come before the first row. wanted: [n_columns]. A row of more than row_bytes_max bytes (text and about 50 a value) is an error. */
enum eaglet_status parquet_select(struct parquet_file *file, const bool *wanted, size_t row_bytes_max, struct eaglet_error *err) MUST_USE;
/* *row is the caller's; NULL at the end. */
enum eaglet_status parquet_next(struct parquet_file *file, json_t **row, struct eaglet_error *err) MUST_USE;
void parquet_close(struct parquet_file *file);

#endif
