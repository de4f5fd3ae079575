/* support.h - what the tests of checkpoint share: files and folders built by hand, refusals that must name their reason, and a
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

/* ---- folders ---- */

static inline void put_text(const char *folder, const char *name, const char *text) {
  char *path = file_join(folder, name);
  put_bytes(path, text, strlen(text));
  free(path);
}

/* A shard with one U8 tensor of two bytes (value, value) per name; names separated by spaces. */
static inline void put_shard(const char *folder, const char *name, const char *tensors, uint8_t value) {
  struct safetensors_writer *writer = safetensors_writer_create();
  const uint8_t data[2] = {value, value};
  char *names = memory_copy_string(tensors), *path = file_join(folder, name), *rest = names;
  for (char *tensor; (tensor = strsep(&rest, " ")) != NULL;) safetensors_writer_add(writer, tensor, DTYPE_U8, 1, (const int64_t[]){2}, data);
  assert_int_equal(safetensors_writer_commit(writer, path, NULL), EAGLET_OK);
  safetensors_writer_free(writer);
  free(names);
  free(path);
}

static inline void remove_file(const char *folder, const char *name) {
  char *path = file_join(folder, name);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(path);
}

static inline void cut_file(const char *folder, const char *name, uint64_t length) {
  char *path = file_join(folder, name);
  assert_int_equal(file_truncate(path, length, NULL), EAGLET_OK);
  free(path);
}

/* The message must name the folder and hold the reason; nothing stays open. */
static inline void assert_folder_refused(const char *folder, const char *reason) {
  struct checkpoint checkpoint;
  struct eaglet_error err = {0};
  enum eaglet_status status = checkpoint_open(&checkpoint, folder, &err);
  assert_refusal(status, &err, folder, reason);
  assert_true(!checkpoint.path && !checkpoint.config && !checkpoint.files && !checkpoint.tensors && checkpoint.n_tensors == 0);
}

static inline void open_folder(struct checkpoint *checkpoint, const char *folder) {
  struct eaglet_error err = {0};
  if (checkpoint_open(checkpoint, folder, &err) != EAGLET_OK) fail_msg("%s: %s", folder, err.message);
}

static inline void assert_value(const struct checkpoint *checkpoint, const char *name, int value, const char *file) {
  const struct tensor_entry *tensor = checkpoint_peek(checkpoint, name);
  if (!tensor) fail_msg("%s is not there", name);
  assert_int_equal(tensor->data[0], value);
  assert_non_null(strstr(tensor->path, file));
}

#endif
