/* fuzz_dataset.c - the reader of data files on arbitrary bytes: it must refuse with words or give conversations whose messages have a role
 * and a content, and it must end. */
#define _GNU_SOURCE
#include "data/dataset.h"

#include "base/memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void check(const struct conversation *conversation) {
  size_t i;
  json_t *message;
  ASSERT(json_is_array(conversation->messages) && conversation->line >= 1);
  json_array_foreach(conversation->messages, i, message) {
    const json_t *content = json_object_get(message, "content");
    ASSERT(json_is_string(json_object_get(message, "role")) && (json_is_string(content) || json_is_array(content)));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  struct dataset_reader *reader = NULL;
  struct conversation conversation = {0};
  struct eaglet_error err = {0};
  bool more = true;
  size_t n_rows = 0;
  int fd = memfd_create("rows", 0);
  ASSERT(fd >= 0 && write(fd, data, length) == (ssize_t)length);
  char *path = memory_format("/proc/self/fd/%d", fd);
  ASSERT(dataset_open(&reader, &(struct dataset_params){.paths = (const char *const *)&path, .n_paths = 1}, &err) == EAGLET_OK);
  while (more) {
    if (dataset_next(reader, &conversation, &more, &err) != EAGLET_OK) {
      ASSERT(err.status == EAGLET_E_INPUT && err.message[0]);
      break;
    }
    if (more) check(&conversation);
    ASSERT(n_rows++ <= length);
  }
  conversation_clear(&conversation);
  dataset_close(reader);
  free(path);
  close(fd);
  return 0;
}
