/* fuzz_foreign_sample.c - foreign_sample_open on arbitrary bytes, as a file of torch.save (or gzip) and as safetensors: refused with words of
 * one line, or every number and id lies inside the file. */
#define _GNU_SOURCE /* memfd_create */
#include "base/memory.h"
#include "data/foreign_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void open_path(const char *path) {
  struct foreign_sample s;
  struct eaglet_error err = {0};
  if (foreign_sample_open(&s, path, &err) != EAGLET_OK) {
    ASSERT(err.message[0] && !strchr(err.message, '\n'));
    return;
  }
  ASSERT(s.n_tokens > 0 && s.n_slots > 1 && s.hidden > 0);
  size_t n = (size_t)s.n_tokens * (size_t)s.n_slots * (size_t)s.hidden;
  ASSERT(n <= s.file.map.length * 17); /* slots may share bytes */
  float *states = memory_alloc(n * sizeof *states);
  int32_t *ids = memory_alloc((size_t)s.n_tokens * sizeof *ids);
  uint8_t *mask = memory_alloc((size_t)s.n_tokens);
  foreign_sample_states(&s, states);
  if (foreign_sample_ids(&s, ids, &err) != EAGLET_OK) ASSERT(err.message[0]);
  if (foreign_sample_mask(&s, mask, &err) != EAGLET_OK) ASSERT(err.message[0]);
  free(states);
  free(ids);
  free(mask);
  foreign_sample_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  char path[64], link[96];
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  ASSERT(fd >= 0 && write(fd, data, length) == (ssize_t)length);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  open_path(path);
  snprintf(link, sizeof link, "/tmp/fuzz-%ld.safetensors", (long)getpid());
  unlink(link);
  ASSERT(symlink(path, link) == 0);
  open_path(link);
  unlink(link);
  close(fd);
  return 0;
}
