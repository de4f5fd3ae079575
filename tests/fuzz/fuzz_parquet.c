/* fuzz_parquet.c - the Parquet reader on arbitrary bytes, every column wanted: it must refuse with words or give rows that are objects. Rows are
 * counted, because a few bytes may claim billions of nulls. The seeds were made by the writer of tests/data/parquet_writer.h. */
#define _GNU_SOURCE
#include "data/parquet.h"

#include "base/memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROWS_MAX 300
#define ROW_BYTES_MAX ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static enum eaglet_status read_rows(struct parquet_file *file, struct eaglet_error *err) {
  size_t n = parquet_n_columns(file);
  bool *wanted = memory_alloc(n * sizeof *wanted);
  for (size_t i = 0; i < n; i++) wanted[i] = parquet_column_name(file, i) != NULL;
  enum eaglet_status status = parquet_select(file, wanted, ROW_BYTES_MAX, err);
  free(wanted);
  for (size_t i = 0; status == EAGLET_OK && i < ROWS_MAX; i++) {
    json_t *row;
    status = parquet_next(file, &row, err);
    if (status != EAGLET_OK || !row) break;
    ASSERT(json_is_object(row));
    json_decref(row);
  }
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  struct parquet_file *file = NULL;
  struct eaglet_error err = {0};
  int fd = memfd_create("rows", 0);
  ASSERT(fd >= 0 && write(fd, data, length) == (ssize_t)length);
  char *path = memory_format("/proc/self/fd/%d", fd);
  enum eaglet_status status = parquet_open(&file, path, &err);
  if (status == EAGLET_OK) status = read_rows(file, &err);
  ASSERT(status == EAGLET_OK || ((status == EAGLET_E_INPUT || status == EAGLET_E_RESOURCE) && err.message[0]));
  parquet_close(file);
  free(path);
  close(fd);
  return 0;
}
