/* fuzz_safetensors.c - safetensors_open on arbitrary bytes: refused with words, or every tensor lies inside the file; and the two
 * readers of headers agree. The reader maps files, so each input goes through a file in memory. */
#define _GNU_SOURCE /* memfd_create */
#include "checkpoint/safetensors_header.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

/* The input as a header: without a length before it the fuzzer gets much farther. */
static void compare_readers(const char *text, size_t length) {
  struct header fast, slow = {0};
  if (header_scan(&fast, text, length)) {
    struct eaglet_error err = {0};
    enum eaglet_status status = header_read(&slow, text, length, "slow", &err);
    /* A name twice is left to the caller by the scanner, refused by jansson. */
    ASSERT(status == EAGLET_OK || strstr(err.message, "duplicate"));
    for (size_t i = 0; status == EAGLET_OK && i < fast.n; i++) {
      const struct header_entry *a = &fast.entries[i], *b = &slow.entries[i];
      ASSERT(fast.n == slow.n && strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank);
      ASSERT(memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0 && a->first == b->first && a->last == b->last);
    }
    const json_t *a = json_object_get(fast.json, "__metadata__"), *b = json_object_get(slow.json, "__metadata__");
    ASSERT(status != EAGLET_OK || a == b || json_equal(a, b));
  }
  header_release(&fast);
  header_release(&slow);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  if (length > 0 && data[0] == '{') compare_readers((const char *)data, length);
  if (length > 8) compare_readers((const char *)data + 8, length - 8);
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
