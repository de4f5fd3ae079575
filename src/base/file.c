/* file.c - mapping, reading, directories and single-call file operations; see file.h. The atomic writer is in file_writer.c and
 * the line reader in file_lines.c. */
#include "base/file.h"

#include "base/file_internal.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#define HASH_PIECE_BYTES ((size_t)1 << 20)

enum eaglet_status file_failed(struct eaglet_error *err, const char *path, const char *verb) {
  int reason = errno;
  bool resource = reason == ENOSPC || reason == EDQUOT || reason == EFBIG || reason == ENOMEM || reason == EMFILE ||
                  reason == ENFILE;
  return error_set(err, resource ? EAGLET_E_RESOURCE : EAGLET_E_INPUT, "%s: cannot %s: %s", path, verb, strerror(reason));
}

bool file_write_all(int fd, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t n = write(fd, bytes, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = ENOSPC;
      return false;
    }
    bytes += n;
    length -= (size_t)n;
  }
  return true;
}

enum eaglet_status file_map_open(struct file_map *map, const char *path, struct eaglet_error *err) {
  *map = (struct file_map){0};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_failed(err, path, "open");
  enum eaglet_status status = EAGLET_OK;
  struct stat info;
  if (fstat(fd, &info) != 0) {
    status = file_failed(err, path, "examine");
  } else if (!S_ISREG(info.st_mode)) {
    status = error_set(err, EAGLET_E_INPUT, "%s: expected a file, found %s", path,
                       S_ISDIR(info.st_mode) ? "a directory" : "something else");
  } else if (info.st_size > 0) {
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      status = file_failed(err, path, "map");
    } else {
      *map = (struct file_map){.data = data, .length = (size_t)info.st_size};
    }
  }
  close(fd);
  return status;
}

void file_map_close(struct file_map *map) {
  if (map->data) munmap((void *)(uintptr_t)map->data, map->length);
  *map = (struct file_map){0};
}

/* Reads to the end whatever the size says: pipes and /proc files have none. */
static enum eaglet_status read_to_end(struct eaglet_text *text, int fd, const char *path, size_t length_max,
                                      struct eaglet_error *err) {
  size_t capacity = 0;
  for (;;) {
    MEMORY_GROW(text->data, capacity, text->length + 65536);
    ssize_t n = read(fd, text->data + text->length, capacity - text->length - 1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_failed(err, path, "read");
    if (n == 0) break;
    text->length += (size_t)n;
    if (text->length > length_max) FAIL(err, EAGLET_E_INPUT, "%s: expected at most %zu bytes, found more", path, length_max);
  }
  text->data = memory_resize(text->data, text->length + 1);
  text->data[text->length] = '\0';
  return EAGLET_OK;
}

enum eaglet_status file_read(struct eaglet_text *text, const char *path, size_t length_max, struct eaglet_error *err) {
  *text = (struct eaglet_text){0};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_failed(err, path, "open");
  enum eaglet_status status = read_to_end(text, fd, path, length_max, err);
  close(fd);
  if (status != EAGLET_OK) {
    free(text->data);
    *text = (struct eaglet_text){0};
  }
  return status;
}

enum eaglet_status file_append_line(const char *path, const char *line, size_t length, struct eaglet_error *err) {
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return file_failed(err, path, "open");
  char *text = memory_copy_span(line, length + 1);
  text[length] = '\n';
  off_t end = lseek(fd, 0, SEEK_END);
  enum eaglet_status status = EAGLET_OK;
  if (!file_write_all(fd, text, length + 1)) {
    status = file_failed(err, path, "write");
    /* No half line stays behind: a reader takes each line as a whole record. */
    if (end >= 0 && ftruncate(fd, end) != 0) error_prefix(err, "%s: a torn line was left at byte %lld", path, (long long)end);
  } else if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS) {
    status = file_failed(err, path, "write"); /* EINVAL: not a file that can be synced, such as a pipe */
  }
  if (close(fd) != 0 && status == EAGLET_OK) status = file_failed(err, path, "write");
  free(text);
  return status;
}

enum eaglet_status file_truncate(const char *path, uint64_t length, struct eaglet_error *err) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return file_failed(err, path, "open");
  enum eaglet_status status = EAGLET_OK;
  if (ftruncate(fd, (off_t)length) != 0 || fsync(fd) != 0) status = file_failed(err, path, "truncate");
  close(fd);
  return status;
}

bool file_exists(const char *path) {
  struct stat info;
  return stat(path, &info) == 0;
}

bool file_is_directory(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool file_is_regular(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

int64_t file_length(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

char *file_real_path(const char *path) { return realpath(path, NULL); }

enum eaglet_status file_make_directory(const char *path, struct eaglet_error *err) {
  char *prefix = memory_copy_string(path);
  size_t length = strlen(prefix);
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 1; i <= length && status == EAGLET_OK; i++) {
    if (prefix[i] != '/' && prefix[i] != '\0') continue;
    prefix[i] = '\0';
    if (mkdir(prefix, 0777) != 0 && !(errno == EEXIST || file_is_directory(prefix))) {
      status = file_failed(err, prefix, "create the directory");
    }
    if (i < length) prefix[i] = '/';
  }
  free(prefix);
  if (status == EAGLET_OK && !file_is_directory(path)) {
    FAIL(err, EAGLET_E_INPUT, "%s: expected a directory, found %s", path, file_exists(path) ? "a file" : "nothing");
  }
  return status;
}

enum eaglet_status file_remove(const char *path, struct eaglet_error *err) {
  if (remove(path) != 0 && errno != ENOENT) return file_failed(err, path, "remove");
  return EAGLET_OK;
}

void file_sync_parent(const char *path) {
  const char *slash = strrchr(path, '/');
  char *directory = slash == path ? memory_copy_string("/")
                    : slash       ? memory_copy_span(path, (size_t)(slash - path))
                                  : memory_copy_string(".");
  int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(directory);
  if (fd < 0) return;
  fsync(fd); /* best effort: some file systems cannot sync directories, and the file itself is safe already */
  close(fd);
}

enum eaglet_status file_rename(const char *from, const char *to, struct eaglet_error *err) {
  if (rename(from, to) != 0) {
    enum eaglet_status status = file_failed(err, to, "rename into place");
    error_prefix(err, "%s", from);
    return status;
  }
  file_sync_parent(to);
  return EAGLET_OK;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

enum eaglet_status file_list_directory(struct file_list *list, const char *path, struct eaglet_error *err) {
  *list = (struct file_list){0};
  DIR *directory = opendir(path);
  if (!directory) return file_failed(err, path, "list");
  enum eaglet_status status = EAGLET_OK;
  for (;;) {
    errno = 0;
    const struct dirent *entry = readdir(directory);
    if (!entry) {
      if (errno != 0) status = file_failed(err, path, "list");
      break;
    }
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    MEMORY_GROW(list->names, list->capacity, list->n + 1);
    list->names[list->n++] = memory_copy_string(entry->d_name);
  }
  closedir(directory);
  if (status != EAGLET_OK) file_list_clear(list);
  if (list->n > 1) qsort(list->names, list->n, sizeof *list->names, compare_names);
  return status;
}

enum eaglet_status file_glob(struct file_list *list, const char *pattern, struct eaglet_error *err) {
  *list = (struct file_list){0};
  glob_t found;
  int result = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
  if (result != 0 && result != GLOB_NOMATCH) {
    globfree(&found);
    FAIL(err, EAGLET_E_INPUT, "%s: a folder of this pattern cannot be read", pattern);
  }
  for (size_t i = 0; result == 0 && i < found.gl_pathc; i++) {
    MEMORY_GROW(list->names, list->capacity, list->n + 1);
    list->names[list->n++] = memory_copy_string(found.gl_pathv[i]);
  }
  globfree(&found);
  if (list->n > 1) qsort(list->names, list->n, sizeof *list->names, compare_names);
  return EAGLET_OK;
}

void file_list_clear(struct file_list *list) {
  for (size_t i = 0; i < list->n; i++) free(list->names[i]);
  free(list->names);
  *list = (struct file_list){0};
}

uint64_t file_disk_free(const char *path) {
  struct statvfs info;
  char *at = memory_copy_string(path);
  uint64_t bytes = 0;
  for (;;) {
    if (statvfs(at, &info) == 0) {
      bytes = (uint64_t)info.f_bavail * info.f_frsize;
      break;
    }
    char *slash = strrchr(at, '/');
    if (!slash && !strcmp(at, ".")) break;
    /* A relative name's parent is the working directory, an absolute one's the root. */
    if (slash && slash != at) {
      *slash = '\0';
    } else {
      bool root = slash != NULL;
      if (root && !strcmp(at, "/")) break;
      free(at);
      at = memory_copy_string(root ? "/" : ".");
    }
  }
  free(at);
  return bytes;
}

char *file_join(const char *directory, const char *name) {
  size_t length = strlen(directory);
  if (length == 0 || name[0] == '/') return memory_copy_string(name);
  return memory_format("%s%s%s", directory, directory[length - 1] == '/' ? "" : "/", name);
}

uint64_t file_hash(const void *bytes, size_t length, uint64_t seed) { return XXH3_64bits_withSeed(bytes, length, seed); }

enum eaglet_status file_hash_contents(const char *path, uint64_t *hash, struct eaglet_error *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_failed(err, path, "open");
  XXH3_state_t *state = XXH3_createState();
  char *piece = memory_alloc(HASH_PIECE_BYTES);
  ssize_t n;
  XXH3_64bits_reset(state);
  while ((n = read(fd, piece, HASH_PIECE_BYTES)) > 0 || (n < 0 && errno == EINTR)) {
    if (n > 0) XXH3_64bits_update(state, piece, (size_t)n);
  }
  enum eaglet_status status = n < 0 ? file_failed(err, path, "read") : EAGLET_OK;
  *hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  free(piece);
  close(fd);
  return status;
}
