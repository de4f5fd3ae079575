/* fuzz_safetensors.c - safetensors_open on arbitrary bytes: refused with words, or every tensor lies inside the file. The reader maps
 * files, so each input goes through a file in memory. */
#define _GNU_SOURCE /* memfd_create */
#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  char path[64];
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  ASSERT(fd >= 0 && write(fd, data, length) == (ssize_t)length);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  struct safetensors file;
  struct eaglet_error err = {0};
  if (safetensors_open(&file, path, &err) != EAGLET_OK) {
    ASSERT(err.message[0]);
  } else {
    unsigned sum = 0;
    for (size_t i = 0; i < file.n; i++) {
      const struct tensor_entry *t = &file.tensors[i];
      for (uint64_t j = 0; j < t->n_bytes; j++) sum += t->data[j];
      ASSERT(safetensors_find(&file, t->name) == t);
    }
    ASSERT(sum <= 255u * length);
    safetensors_close(&file);
  }
  close(fd);
  return 0;
}
