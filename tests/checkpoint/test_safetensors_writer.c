/* test_safetensors_writer.c - what the writer puts on disk: the exact bytes of a small file, bit-exact round trips, the same bytes on a
 * rewrite, and nothing at all when it fails (a full disk is played by RLIMIT_FSIZE in a child). */
#include "support.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/util.h"

static void put_random(uint8_t *to, size_t n, uint64_t stream) {
  for (size_t i = 0; i < n; i++) to[i] = (uint8_t)random_u64(7, stream, i);
}

static struct eaglet_text content(const char *path) {
  struct eaglet_text text;
  assert_int_equal(file_read(&text, path, (size_t)1 << 26, NULL), EAGLET_OK);
  return text;
}

static void assert_same_file(const char *a, const char *b) {
  struct eaglet_text x = content(a), y = content(b);
  assert_int_equal(x.length, y.length);
  assert_memory_equal(x.data, y.data, x.length);
  free(x.data);
  free(y.data);
}

/* The format, byte by byte, from its description and not from our reader. */
static void test_bytes(void **state) {
  static const char expected[] =
      "\x90\0\0\0\0\0\0\0"
      "{\"__metadata__\":{\"format\":\"pt\"},\"z\":{\"dtype\":\"U8\",\"shape\":[1,3],\"data_offsets\":[0,3]},"
      "\"a\":{\"dtype\":\"I16\",\"shape\":[],\"data_offsets\":[3,5]}}      "
      "xyz\x34\x12";
  char *path = file_join(*state, "bytes");
  const int16_t scalar = 0x1234;
  struct safetensors_writer *writer = safetensors_writer_create();
  safetensors_writer_add(writer, "z", DTYPE_U8, 2, (const int64_t[]){1, 3}, "xyz");
  safetensors_writer_metadata(writer, "format", "pt");
  safetensors_writer_add(writer, "a", DTYPE_I16, 0, NULL, &scalar);
  assert_int_equal(safetensors_writer_commit(writer, path, NULL), EAGLET_OK);
  struct eaglet_text text = content(path);
  assert_int_equal(text.length, sizeof expected - 1);
  assert_memory_equal(text.data, expected, text.length);
  free(text.data);
  safetensors_writer_free(writer);
  free(path);
}

static void test_empty(void **state) {
  char *path = file_join(*state, "empty");
  struct safetensors_writer *writer = safetensors_writer_create();
  struct safetensors file;
  assert_int_equal(safetensors_writer_commit(writer, path, NULL), EAGLET_OK);
  assert_int_equal(file_length(path), 16);
  assert_int_equal(safetensors_open(&file, path, NULL), EAGLET_OK);
  assert_int_equal(file.n, 0);
  safetensors_close(&file);
  safetensors_writer_free(writer);
  safetensors_writer_free(NULL);
  free(path);
}

static const struct sample {
  const char *name;
  enum dtype dtype;
  int rank;
  int64_t shape[TENSOR_RANK_MAX];
  size_t n_bytes;
} samples[] = {
    {"layers.10.w", DTYPE_BF16, 2, {37, 129}, 37 * 129 * 2},
    {"layers.9.w", DTYPE_F32, 3, {2, 3, 5}, 120},
    {"big", DTYPE_F64, 2, {1025, 257}, 1025 * 257 * 8}, /* more than the writer's buffer */
    {"none", DTYPE_F32, 2, {0, 7}, 0},
    {"scalar", DTYPE_I64, 0, {0}, 8},
    {"odd", DTYPE_BOOL, 1, {3}, 3},
    {"fp4", DTYPE_F4, 1, {10}, 5},
    {"fp6", DTYPE_F6_E2M3, 2, {4, 3}, 9},
    {"fp8", DTYPE_F8_E4M3, 8, {1, 1, 2, 1, 1, 3, 1, 1}, 6},
    {"\xc3\xa9\"\\\n/", DTYPE_C64, 1, {2}, 16},
};
#define N_SAMPLES (sizeof samples / sizeof *samples)

static void write_samples(const char *path, uint8_t *const *data) {
  struct safetensors_writer *writer = safetensors_writer_create();
  for (size_t i = 0; i < N_SAMPLES; i++) safetensors_writer_add(writer, samples[i].name, samples[i].dtype, samples[i].rank, samples[i].shape, data[i]);
  safetensors_writer_metadata(writer, "k\"", "line\nbreak \xe2\x82\xac");
  safetensors_writer_metadata(writer, "number", "1.50");
  assert_int_equal(safetensors_writer_commit(writer, path, NULL), EAGLET_OK);
  safetensors_writer_free(writer);
}

/* A file written anew from what the reader gives: names, so that two rewrites must agree. */
static void rewrite(const struct safetensors *file, const char *path) {
  struct safetensors_writer *writer = safetensors_writer_create();
  const char *key;
  json_t *value;
  json_object_foreach(json_object_get(file->header, "__metadata__"), key, value) safetensors_writer_metadata(writer, key, json_string_value(value));
  for (size_t i = 0; i < file->n; i++) {
    const struct tensor_entry *t = &file->tensors[i];
    safetensors_writer_add(writer, t->name, t->dtype, t->rank, t->shape, t->data);
  }
  assert_int_equal(safetensors_writer_commit(writer, path, NULL), EAGLET_OK);
  safetensors_writer_free(writer);
}

static void test_round_trip(void **state) {
  char *first = file_join(*state, "first"), *second = file_join(*state, "second"), *third = file_join(*state, "third");
  uint8_t *data[N_SAMPLES];
  for (size_t i = 0; i < N_SAMPLES; i++) {
    data[i] = memory_alloc(samples[i].n_bytes + 1);
    put_random(data[i], samples[i].n_bytes, i);
  }
  write_samples(first, data);
  write_samples(second, data);
  assert_same_file(first, second);
  struct safetensors file;
  assert_int_equal(safetensors_open(&file, first, NULL), EAGLET_OK);
  assert_int_equal(file.n, N_SAMPLES);
  assert_int_equal((uintptr_t)(file.map.data + file.map.length) % 8, (uintptr_t)(file.map.length % 8));
  for (size_t i = 0; i < N_SAMPLES; i++) {
    const struct tensor_entry *t = safetensors_find(&file, samples[i].name);
    assert_non_null(t);
    assert_int_equal(t->dtype, samples[i].dtype);
    assert_int_equal(t->rank, samples[i].rank);
    assert_memory_equal(t->shape, samples[i].shape, (size_t)t->rank * sizeof *t->shape);
    assert_int_equal(t->n_bytes, samples[i].n_bytes);
    assert_memory_equal(t->data, data[i], t->n_bytes);
    free(data[i]);
  }
  assert_string_equal(safetensors_metadata(&file, "k\""), "line\nbreak \xe2\x82\xac");
  assert_string_equal(safetensors_metadata(&file, "number"), "1.50");
  rewrite(&file, second);
  safetensors_close(&file);
  assert_int_equal(safetensors_open(&file, second, NULL), EAGLET_OK);
  rewrite(&file, third);
  /* Over the file that is mapped: the mapping keeps the old bytes, so this must not damage what is being copied. */
  rewrite(&file, second);
  safetensors_close(&file);
  assert_same_file(second, third);
  free(first);
  free(second);
  free(third);
}

static void fill_disk(const char *path, size_t limit, struct safetensors_writer *writer) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    const struct rlimit full = {.rlim_cur = limit, .rlim_max = limit};
    struct eaglet_error err = {0};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &full) != 0) _exit(99);
    enum eaglet_status status = safetensors_writer_commit(writer, path, &err);
    _exit(status == err.status && strstr(err.message, path) ? (int)status : 98);
  }
  int how = 0;
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_true(WIFEXITED(how));
  assert_int_equal(WEXITSTATUS(how), EAGLET_E_RESOURCE);
}

static void test_disk_full(void **state) {
  char *folder = file_join(*state, "full"), *path = file_join(folder, "w.safetensors");
  size_t n_bytes = (size_t)3 << 20;
  uint8_t *data = memory_alloc(n_bytes);
  put_random(data, n_bytes, 1);
  assert_int_equal(file_make_directory(folder, NULL), EAGLET_OK);
  struct safetensors_writer *writer = safetensors_writer_create();
  safetensors_writer_add(writer, "w", DTYPE_U8, 1, (const int64_t[]){(int64_t)n_bytes}, data);
  static const size_t limits[] = {0, 5, 40, 1000000, 3 << 20}; /* inside the length, the header, the data, just short */
  for (int existing = 0; existing < 2; existing++) {
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
      if (existing) put_bytes(path, "old", 3);
      fill_disk(path, limits[i], writer);
      struct file_list list;
      assert_int_equal(file_list_directory(&list, folder, NULL), EAGLET_OK);
      assert_int_equal(list.n, existing); /* no temporary file stays */
      file_list_clear(&list);
      assert_int_equal(file_length(path), existing ? 3 : -1);
    }
  }
  assert_int_equal(safetensors_writer_commit(writer, path, NULL), EAGLET_OK); /* the writer survived it all */
  struct safetensors file;
  assert_int_equal(safetensors_open(&file, path, NULL), EAGLET_OK);
  assert_memory_equal(file.tensors[0].data, data, n_bytes);
  safetensors_close(&file);
  safetensors_writer_free(writer);
  free(data);
  free(path);
  free(folder);
}

/* What JSON cannot hold must not leave a file with a tensor or a key less. */
static void test_not_utf8(void **state) {
  char *path = file_join(*state, "utf8");
  for (int kind = 0; kind < 3; kind++) {
    struct safetensors_writer *writer = safetensors_writer_create();
    struct eaglet_error err = {0};
    safetensors_writer_add(writer, kind == 0 ? "a\xff" : "a", DTYPE_U8, 1, (const int64_t[]){1}, "x");
    safetensors_writer_metadata(writer, kind == 1 ? "k\xff" : "k", kind == 2 ? "v\xff" : "v");
    safetensors_writer_metadata(writer, "other", "fine");
    enum eaglet_status status = safetensors_writer_commit(writer, path, &err);
    assert_refusal(status, &err, path, kind == 0 ? "tensor 'a" : "metadata 'k");
    assert_false(file_exists(path));
    safetensors_writer_free(writer);
  }
  free(path);
}

static void test_no_directory(void **state) {
  char *path = file_join(*state, "absent/w.safetensors");
  struct safetensors_writer *writer = safetensors_writer_create();
  struct eaglet_error err = {0};
  enum eaglet_status status = safetensors_writer_commit(writer, path, &err);
  assert_refusal(status, &err, path, "No such file");
  safetensors_writer_free(writer);
  free(path);
}

static void add_mistake(void *argument) {
  int kind = *(const int *)argument;
  struct safetensors_writer *writer = safetensors_writer_create();
  safetensors_writer_add(writer, "a", DTYPE_U8, 1, (const int64_t[]){1}, "x");
  switch (kind) {
  case 0: safetensors_writer_add(writer, "a", DTYPE_U8, 1, (const int64_t[]){1}, "x"); break;
  case 1: safetensors_writer_add(writer, "__metadata__", DTYPE_U8, 1, (const int64_t[]){1}, "x"); break;
  case 2: safetensors_writer_add(writer, "b", DTYPE_U8, 1, (const int64_t[]){-1}, "x"); break;
  case 3: safetensors_writer_add(writer, "b", DTYPE_F4, 1, (const int64_t[]){3}, "x"); break;
  case 4: safetensors_writer_add(writer, "b", DTYPE_U8, 9, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, "x"); break;
  case 5: safetensors_writer_add(writer, "b", DTYPE_U8, 2, (const int64_t[]){(int64_t)1 << 40, (int64_t)1 << 40}, "x"); break;
  case 6: safetensors_writer_add(writer, "b", DTYPE_NONE, 0, NULL, "x"); break;
  default: safetensors_writer_add(writer, "b", DTYPE_U8, 1, (const int64_t[]){1}, "x"); /* no mistake */
  }
}

static void test_mistakes(void **state) {
  (void)state;
  for (int kind = 0; kind < 8; kind++) assert_int_equal(aborts(add_mistake, &kind), kind < 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bytes),    cmocka_unit_test(test_empty),        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_disk_full),
      cmocka_unit_test(test_not_utf8), cmocka_unit_test(test_no_directory), cmocka_unit_test(test_mistakes),
  };
  return cmocka_run_group_tests(tests, scratch_create, tree_teardown);
}
