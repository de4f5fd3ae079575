/* test_file.c - mapping, atomic writing (also on a full disk, played by RLIMIT_FSIZE in a child process, and after a kill), directories,
 * lines. Each test leaves the scratch directory empty. */
#include "support.h"

#include <sys/resource.h>
#include <sys/stat.h>

static void put(const char *path, const char *text) { assert_int_equal(file_write(path, text, strlen(text), NULL), EAGLET_OK); }

static void assert_content(const char *path, const char *expected) {
  struct eaglet_text text;
  assert_int_equal(file_read(&text, path, 1 << 20, NULL), EAGLET_OK);
  assert_string_equal(text.data, expected);
  free(text.data);
}

static size_t count_entries(const char *directory) {
  struct file_list list;
  assert_int_equal(file_list_directory(&list, directory, NULL), EAGLET_OK);
  size_t n = list.n;
  file_list_clear(&list);
  return n;
}

static void test_map(void **state) {
  char *path = file_join(*state, "m");
  struct file_map map;
  struct eaglet_error err = {0};
  assert_int_equal(file_map_open(&map, path, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "/m: cannot open: No such file or directory"));
  assert_int_equal(file_map_open(&map, *state, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "expected a file, found a directory"));
  put(path, "");
  assert_int_equal(file_map_open(&map, path, &err), EAGLET_OK);
  assert_true(map.data == NULL && map.length == 0);
  file_map_close(&map);
  put(path, "hello");
  assert_int_equal(file_map_open(&map, path, &err), EAGLET_OK);
  put(path, "other"); /* a rename: the mapping keeps the old file */
  assert_int_equal(map.length, 5);
  assert_memory_equal(map.data, "hello", 5);
  file_map_close(&map);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(path);
}

static void test_read_limit(void **state) {
  char *path = file_join(*state, "r");
  struct eaglet_text text;
  struct eaglet_error err;
  put(path, "123456");
  assert_int_equal(file_read(&text, path, 6, &err), EAGLET_OK);
  assert_int_equal(text.length, 6);
  free(text.data);
  assert_int_equal(file_read(&text, path, 5, &err), EAGLET_E_INPUT);
  assert_null(text.data);
  assert_int_equal(file_read(&text, *state, 5, &err), EAGLET_E_INPUT);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(path);
}

static void test_writer_is_invisible_until_commit(void **state) {
  char *path = file_join(*state, "w");
  struct file_writer writer;
  put(path, "old");
  assert_int_equal(file_writer_open(&writer, path, NULL), EAGLET_OK);
  file_writer_append(&writer, "new ", 4);
  file_writer_append(&writer, "text", 4);
  assert_int_equal(writer.length, 8);
  assert_content(path, "old");
  assert_int_equal(file_writer_commit(&writer, NULL), EAGLET_OK);
  assert_content(path, "new text");
  assert_int_equal(count_entries(*state), 1);

  assert_int_equal(file_writer_open(&writer, path, NULL), EAGLET_OK);
  file_writer_append(&writer, "abandoned", 9);
  file_writer_abandon(&writer);
  file_writer_abandon(&writer); /* twice is fine */
  assert_content(path, "new text");
  assert_int_equal(count_entries(*state), 1);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(path);
}

static void test_writer_large_and_mixed_pieces(void **state) {
  char *path = file_join(*state, "large");
  enum { n = 5000000 };
  uint8_t *bytes = memory_alloc(n);
  for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 13);
  struct file_writer writer;
  assert_int_equal(file_writer_open(&writer, path, NULL), EAGLET_OK);
  size_t at = 0;
  for (size_t piece = 1; at < n; piece = piece * 3 % 2500003) {
    size_t length = piece < n - at ? piece : n - at;
    file_writer_append(&writer, bytes + at, length);
    at += length;
  }
  assert_int_equal(writer.length, n);
  assert_int_equal(file_writer_commit(&writer, NULL), EAGLET_OK);
  struct file_map map;
  assert_int_equal(file_map_open(&map, path, NULL), EAGLET_OK);
  assert_int_equal(map.length, n);
  assert_memory_equal(map.data, bytes, n);
  assert_true(file_hash(map.data, n, 0) == file_hash(bytes, n, 0) && file_hash(bytes, n, 0) != file_hash(bytes, n, 1));
  uint64_t hash;
  assert_int_equal(file_hash_contents(path, &hash, NULL), EAGLET_OK);
  assert_true(hash == file_hash(bytes, n, 0));
  file_map_close(&map);
  free(bytes);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(path);
}

/* Child: writes 3 MB where only 100,000 bytes fit. Exit code: the status, 99 when a promise is broken. */
static int write_on_full_disk(const char *path, const char *directory) {
  const struct rlimit limit = {100000, 100000};
  signal(SIGXFSZ, SIG_IGN);
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 98;
  char *bytes = memory_alloc(3000000);
  struct file_writer writer;
  struct eaglet_error err = {0};
  if (file_writer_open(&writer, path, &err) != EAGLET_OK) return 97;
  for (int i = 0; i < 30; i++) file_writer_append(&writer, bytes, 100000);
  /* Space is given back before the caller notices. */
  struct file_list list;
  if (file_list_directory(&list, directory, NULL) != EAGLET_OK || list.n != 1) return 99;
  enum eaglet_status status = file_writer_commit(&writer, &err);
  if (!strstr(err.message, "cannot write") || err.status != status) return 99;
  return (int)status;
}

static void test_writer_full_disk(void **state) {
  char *path = file_join(*state, "full");
  put(path, "precious");
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) _exit(write_on_full_disk(path, *state));
  int how = 0;
  waitpid(child, &how, 0);
  assert_true(WIFEXITED(how));
  assert_int_equal(WEXITSTATUS(how), EAGLET_E_RESOURCE);
  assert_content(path, "precious");
  assert_int_equal(count_entries(*state), 1);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(path);
}

static void test_writer_killed(void **state) {
  char *path = file_join(*state, "killed");
  put(path, "precious");
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    struct file_writer writer;
    char *bytes = memory_alloc(3000000);
    if (file_writer_open(&writer, path, NULL) != EAGLET_OK) _exit(1);
    file_writer_append(&writer, bytes, 3000000);
    kill(getpid(), SIGKILL);
  }
  int how = 0;
  waitpid(child, &how, 0);
  assert_true(WIFSIGNALED(how));
  assert_content(path, "precious");
  char *leftover = memory_format("%s.tmp-%ld", path, (long)child);
  assert_int_equal(file_length(leftover), 3000000);
  assert_int_equal(file_remove(leftover, NULL), EAGLET_OK);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(leftover);
  free(path);
}

static void test_writer_failures_say_where(void **state) {
  char *path = file_join(*state, "no/such/file");
  struct eaglet_error err = {0};
  assert_int_equal(file_write(path, "x", 1, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "no/such/file: cannot create: No such file"));
  free(path);
  /* A directory stands where the file should go: found at the rename. */
  path = file_join(*state, "d");
  assert_int_equal(file_make_directory(path, NULL), EAGLET_OK);
  assert_int_equal(file_write(path, "x", 1, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "/d: cannot rename into place"));
  assert_int_equal(count_entries(*state), 1);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(path);
}

static void test_append_line(void **state) {
  char *path = file_join(*state, "log");
  assert_int_equal(file_append_line(path, "{\"a\":1}", 7, NULL), EAGLET_OK);
  assert_int_equal(file_append_line(path, "", 0, NULL), EAGLET_OK);
  assert_int_equal(file_append_line(path, "twoX", 3, NULL), EAGLET_OK);
  assert_content(path, "{\"a\":1}\n\ntwo\n");
  struct eaglet_error err;
  assert_int_equal(file_append_line("/dev/full", "x", 1, &err), EAGLET_E_RESOURCE);
  assert_non_null(strstr(err.message, "/dev/full: cannot write: No space left on device"));
  assert_int_equal(file_truncate(path, 8, NULL), EAGLET_OK);
  assert_content(path, "{\"a\":1}\n");
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  assert_int_equal(file_truncate(path, 0, &err), EAGLET_E_INPUT);
  free(path);
}

static void test_append_line_leaves_no_torn_line(void **state) {
  char *path = file_join(*state, "torn");
  put(path, "whole\n");
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    const struct rlimit limit = {10, 10};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(98);
    _exit((int)file_append_line(path, "too long", 8, NULL));
  }
  int how = 0;
  waitpid(child, &how, 0);
  assert_int_equal(WEXITSTATUS(how), EAGLET_E_RESOURCE);
  assert_content(path, "whole\n");
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(path);
}

static void test_directories(void **state) {
  char *deep = file_join(*state, "a/b//c/"), *blocked = file_join(*state, "a/file/x"), *file = file_join(*state, "a/file");
  struct eaglet_error err = {0};
  assert_int_equal(file_make_directory(deep, &err), EAGLET_OK);
  assert_int_equal(file_make_directory(deep, &err), EAGLET_OK);
  assert_true(file_is_directory(deep));
  put(file, "x");
  assert_int_equal(file_make_directory(file, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "expected a directory, found a file"));
  assert_int_equal(file_make_directory(blocked, &err), EAGLET_E_INPUT);
  char *a = file_join(*state, "a"), *renamed = file_join(*state, "a/A");
  assert_int_equal(file_rename(file, renamed, &err), EAGLET_OK);
  struct file_list list;
  assert_int_equal(file_list_directory(&list, a, &err), EAGLET_OK);
  assert_int_equal(list.n, 2);
  assert_string_equal(list.names[0], "A");
  assert_string_equal(list.names[1], "b");
  file_list_clear(&list);
  assert_int_equal(file_remove(a, &err), EAGLET_E_INPUT); /* not empty */
  assert_int_equal(file_rename(file, renamed, &err), EAGLET_E_INPUT);
  assert_false(file_exists(file));
  assert_int_equal(file_length(file), -1);
  assert_int_equal(file_length(renamed), 1);
  assert_int_equal(file_remove(file, &err), EAGLET_OK); /* absent is fine */
  assert_int_equal(file_list_directory(&list, file, &err), EAGLET_E_INPUT);
  assert_true(file_disk_free(*state) > 0);
  assert_true(file_disk_free("/no/such/place") > 0 && file_disk_free("relative/place") > 0);
  const char *const undo[] = {"a/A", "a/b/c", "a/b", "a"};
  for (size_t i = 0; i < 4; i++) {
    char *path = file_join(*state, undo[i]);
    assert_int_equal(file_remove(path, &err), EAGLET_OK);
    free(path);
  }
  free(deep), free(blocked), free(file), free(a), free(renamed);
}

static void test_join(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"a", "/b", "/b"}, {"/", "b", "/b"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *joined = file_join(cases[i][0], cases[i][1]);
    assert_string_equal(joined, cases[i][2]);
    free(joined);
  }
}

static void assert_lines(const char *path, const char *const *expected, size_t n) {
  struct file_lines *lines;
  const char *line;
  size_t length;
  assert_int_equal(file_lines_open(&lines, path, NULL), EAGLET_OK);
  for (size_t i = 0; i < n; i++) {
    assert_int_equal(file_lines_next(lines, &line, &length, NULL), EAGLET_OK);
    assert_non_null(line);
    assert_string_equal(line, expected[i]);
    assert_int_equal(length, strlen(expected[i]));
    assert_int_equal(file_lines_number(lines), i + 1);
  }
  for (int again = 0; again < 2; again++) {
    assert_int_equal(file_lines_next(lines, &line, &length, NULL), EAGLET_OK);
    assert_null(line);
  }
  file_lines_close(lines);
}

static void test_lines(void **state) {
  char *path = file_join(*state, "lines");
  put(path, "");
  assert_lines(path, NULL, 0);
  put(path, "one\n\nthree");
  assert_lines(path, (const char *const[]){"one", "", "three"}, 3);
  put(path, "\xef\xbb\xbfone\r\ntwo\n");
  assert_lines(path, (const char *const[]){"one", "two"}, 2);
  put(path, "\xef\xbb\xbf\n\xef\xbb\xbf\n");
  assert_lines(path, (const char *const[]){"", "\xef\xbb\xbf"}, 2);
  /* Lines around the size of the reading window. */
  static const size_t sizes[] = {65535, 65536, 65537, 1, 0, 300000, 131071};
  enum { n = sizeof sizes / sizeof *sizes };
  char *expected[n];
  struct file_writer writer;
  assert_int_equal(file_writer_open(&writer, path, NULL), EAGLET_OK);
  for (size_t i = 0; i < n; i++) {
    expected[i] = memory_alloc(sizes[i] + 1);
    memset(expected[i], 'a' + (int)i, sizes[i]);
    file_writer_append(&writer, expected[i], sizes[i]);
    file_writer_append(&writer, "\n", 1);
  }
  assert_int_equal(file_writer_commit(&writer, NULL), EAGLET_OK);
  assert_lines(path, (const char *const *)expected, n);
  for (size_t i = 0; i < n; i++) free(expected[i]);
  struct file_lines *lines;
  struct eaglet_error err;
  assert_int_equal(file_lines_open(&lines, *state, &err), EAGLET_E_INPUT);
  assert_null(lines);
  file_lines_close(NULL);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(path);
}

/* Of many processes that make one file at once exactly one does, and its content is whole. */
static void test_write_new(void **state) {
  enum { PROCESSES = 8 };
  char *path = file_join(*state, "once");
  for (int p = 0; p < PROCESSES; p++) {
    if (fork() != 0) continue;
    char bytes[3000];
    bool existed;
    memset(bytes, 'a' + p, sizeof bytes);
    enum eaglet_status status = file_write_new(path, bytes, sizeof bytes, &existed, NULL);
    _exit(status != EAGLET_OK ? 2 : existed);
  }
  int n_made = 0, code;
  for (int p = 0; p < PROCESSES; p++) {
    assert_true(wait(&code) > 0 && WIFEXITED(code) && WEXITSTATUS(code) < 2);
    n_made += WEXITSTATUS(code) == 0;
  }
  assert_int_equal(n_made, 1);
  struct eaglet_text text;
  struct file_list list;
  assert_int_equal(file_read(&text, path, 10000, NULL), EAGLET_OK);
  assert_int_equal(text.length, 3000);
  for (size_t i = 0; i < text.length; i++) assert_int_equal(text.data[i], text.data[0]);
  assert_int_equal(file_list_directory(&list, *state, NULL), EAGLET_OK);
  for (size_t i = 0; i < list.n; i++) assert_null(strstr(list.names[i], "once.tmp-"));
  file_list_clear(&list);
  free(text.data);
  unlink(path);
  free(path);
}

static void test_gzip(void **state) {
  char *path = file_join(*state, "plain"), *packed = file_join(*state, "plain.gz");
  const size_t n = 3 << 20;
  char *bytes = memory_alloc(n), *command = memory_format("gzip -kf '%s'", path);
  for (size_t i = 0; i < n; i++) bytes[i] = (char)(i * i >> 7);
  assert_int_equal(file_write(path, bytes, n, NULL), EAGLET_OK);
  assert_int_equal(system(command), 0);
  struct file_map map;
  struct eaglet_error err = {0};
  assert_int_equal(file_map_open_unpacked(&map, packed, n, &err), EAGLET_OK);
  assert_int_equal(map.length, n);
  assert_memory_equal(map.data, bytes, n);
  file_map_close(&map);
  assert_int_equal(file_map_open_unpacked(&map, packed, n - 1, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "at most 3145727 bytes when unpacked"));
  assert_null(map.data);
  uint64_t length = (uint64_t)file_length(packed);
  struct eaglet_text whole;
  assert_int_equal(file_read(&whole, packed, n, NULL), EAGLET_OK);
  whole.data[length - 6] ^= 1; /* of its checksum */
  assert_int_equal(file_write(packed, whole.data, length, NULL), EAGLET_OK);
  assert_int_equal(file_map_open_unpacked(&map, packed, n, &err), EAGLET_E_INPUT);
  assert_int_equal(file_truncate(packed, length / 2, NULL), EAGLET_OK);
  assert_int_equal(file_map_open_unpacked(&map, packed, n, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "ends in the middle"));
  unlink(path), unlink(packed);
  free(whole.data), free(bytes), free(command), free(path), free(packed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_map),
      cmocka_unit_test(test_read_limit),
      cmocka_unit_test(test_writer_is_invisible_until_commit),
      cmocka_unit_test(test_writer_large_and_mixed_pieces),
      cmocka_unit_test(test_writer_full_disk),
      cmocka_unit_test(test_writer_killed),
      cmocka_unit_test(test_writer_failures_say_where),
      cmocka_unit_test(test_write_new),
      cmocka_unit_test(test_gzip),
      cmocka_unit_test(test_append_line),
      cmocka_unit_test(test_append_line_leaves_no_torn_line),
      cmocka_unit_test(test_directories),
      cmocka_unit_test(test_join),
      cmocka_unit_test(test_lines),
  };
  return cmocka_run_group_tests_name("file", tests, scratch_create, scratch_remove);
}
