/* support.h - what the tests of checkpoint share: files built by hand from header text, refusals that must name their reason, and a
 * scratch directory that may hold folders. Header only; not for src. */
#ifndef EAGLET_TESTS_CHECKPOINT_SUPPORT_H
#define EAGLET_TESTS_CHECKPOINT_SUPPORT_H

#include "../base/support.h"

#include <sys/stat.h>

#include "checkpoint/checkpoint.h"

/* Removes a tree of the depth tests build; links are removed, not followed. */
static inline void tree_remove(const char *path, int depth) {
  struct file_list list;
  struct stat info;
  if (depth > 0 && lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && file_list_directory(&list, path, NULL) == EAGLET_OK) {
    for (size_t i = 0; i < list.n; i++) {
      char *child = file_join(path, list.names[i]);
      tree_remove(child, depth - 1);
      free(child);
    }
    file_list_clear(&list);
  }
  (void)!remove(path);
}

static inline int tree_teardown(void **state) {
  tree_remove(*state, 8);
  bool gone = !file_exists(*state);
  free(*state);
  return gone ? 0 : -1;
}

static inline void put_bytes(const char *path, const void *bytes, size_t length) {
  assert_int_equal(file_write(path, bytes, length, NULL), EAGLET_OK);
}

/* Header length, header, then n_data bytes 0, 1, 2, ... (mod 251, so that no power of two repeats). */
static inline uint8_t *file_image(const char *header, size_t n_header, size_t n_data, size_t *length) {
  *length = 8 + n_header + n_data;
  uint8_t *image = memory_alloc(*length);
  for (int i = 0; i < 8; i++) image[i] = (uint8_t)((uint64_t)n_header >> (8 * i));
  memcpy(image + 8, header, n_header);
  for (size_t i = 0; i < n_data; i++) image[8 + n_header + i] = (uint8_t)(i % 251);
  return image;
}

static inline void put_file(const char *path, const char *header, size_t n_data) {
  size_t length;
  uint8_t *image = file_image(header, strlen(header), n_data, &length);
  put_bytes(path, image, length);
  free(image);
}

/* A refusal is bad input (exit code 3), one line, names the place and holds the reason. */
static inline void assert_refusal(enum eaglet_status status, const struct eaglet_error *err, const char *place, const char *reason) {
  if (status != EAGLET_E_INPUT || !strstr(err->message, reason) || !strstr(err->message, place)) {
    print_error("expected a refusal of '%s' with '%s', found status %d: %s\n", place, reason, (int)status, err->message);
  }
  assert_int_equal(status, 3);
  assert_int_equal(err->status, status);
  assert_non_null(strstr(err->message, place));
  assert_non_null(strstr(err->message, reason));
  assert_null(strchr(err->message, '\n'));
}

/* The file must be refused, and leave *file closed. */
static inline void assert_file_refused(const char *path, const char *reason) {
  struct safetensors file;
  struct eaglet_error err = {0};
  enum eaglet_status status = safetensors_open(&file, path, &err);
  assert_refusal(status, &err, path, reason);
  assert_true(!file.path && !file.header && !file.tensors && !file.map.data && file.n == 0);
}

#endif
