/* fuzz_torch_file.c - torch_file_open and torch_file_open_nested on arbitrary bytes: refused with words of one line, or every tensor lies inside the file. An input
 * that is a pickle and no archive also goes into an archive with one storage, where the fuzzer gets much farther. */
#define _GNU_SOURCE /* memfd_create */
#include "../checkpoint/torch_writer.h"
#include "checkpoint/torch_file.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void open_bytes(const void *data, size_t length, bool nested) {
  char path[64];
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  ASSERT(fd >= 0 && write(fd, data, length) == (ssize_t)length);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  struct safetensors file;
  struct eaglet_error err = {0};
  if ((nested ? torch_file_open_nested(&file, path, &err) : torch_file_open(&file, path, &err)) != EAGLET_OK) {
    ASSERT(err.message[0] && !strchr(err.message, '\n'));
  } else {
    unsigned sum = 0;
    for (size_t i = 0; i < file.n; i++) {
      const struct tensor_entry *t = &file.tensors[i];
      for (uint64_t j = 0; j < t->n_bytes && j < 4096; j++) sum += t->data[j] + t->data[t->n_bytes - 1 - j];
      ASSERT(t->n_bytes <= file.map.length && safetensors_find(&file, t->name) == t);
    }
    ASSERT(sum < UINT32_MAX);
    safetensors_close(&file);
  }
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  static const uint8_t zeros[24] = {0};
  open_bytes(data, length, false);
  open_bytes(data, length, true);
  if (length == 0 || data[0] != 0x80) return 0;
  const struct torch_record records[] = {{"a/data.pkl", data, length, 0}, {"a/data/0", zeros, sizeof zeros, 0}};
  struct eaglet_text archive = torch_archive(records, 2, false);
  open_bytes(archive.data, archive.length, false);
  open_bytes(archive.data, archive.length, true);
  free(archive.data);
  return 0;
}
