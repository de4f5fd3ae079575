/* test_torch_file.c - pytorch_model.bin: one whose pickle Python's own pickler wrote, tensor by tensor; directories; what is refused and
 * by which name; files cut at every length and with every byte changed, which must be refused or read, never followed. */
#include "support.h"

#include "checkpoint/torch_file.h"
#include "torch_writer.h"

#include <stdio.h>

#define HEAD "\x80\x02}X\x01\0\0\0w"
#define TENSOR "ctorch._utils\n_rebuild_tensor_v2\n("
#define STORAGE(type, key, n) "(X\x07\0\0\0storagectorch\n" type "\nX\x01\0\0\0" key "X\x03\0\0\0cpuK" n "tQ"
#define HOOKS "\x89}tR"
#define FLOATS STORAGE("FloatStorage", "0", "\x0c")
#define BYTES(text) text, sizeof text - 1

static char *fixture_path(void) { return memory_format("%s/tests/data/torch/pytorch_model.bin", getenv("EAGLET_TEST_ROOT")); }

static void put_archive(const char *path, const struct torch_record *records, size_t n, bool large) {
  struct eaglet_text archive = torch_archive(records, n, large);
  put_bytes(path, archive.data, archive.length);
  free(archive.data);
}

static void assert_torch_refused(const char *path, const char *reason) {
  struct safetensors file;
  struct eaglet_error err = {0};
  enum eaglet_status status = torch_file_open(&file, path, &err);
  assert_refusal(status, &err, path, reason);
  assert_true(!file.path && !file.tensors && !file.names && !file.map.data && file.n == 0);
}

/* Value i of storage k is i + 100 k (make_torch_file.py); first: where the tensor begins in it. */
static void assert_numbers(const struct safetensors *file, const char *name, enum dtype dtype, int k_first[2]) {
  const struct tensor_entry *t = safetensors_find(file, name);
  if (!t) fail_msg("%s is not there", name);
  assert_int_equal(t->dtype, dtype);
  size_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= (size_t)t->shape[i];
  assert_int_equal(t->n_bytes, n * (size_t)dtype_bits(dtype) / 8);
  float *values = memory_alloc((n + 1) * sizeof *values);
  dtype_to_f32(values, t->data, dtype, n);
  for (size_t i = 0; i < n; i++) assert_true(values[i] == (float)((int)i + k_first[1] + 100 * k_first[0]));
  free(values);
}

static void test_state_dict(void **state) {
  (void)state;
  char *path = fixture_path();
  struct safetensors file;
  struct eaglet_error err = {0};
  if (torch_file_open(&file, path, &err) != EAGLET_OK) fail_msg("%s", err.message);
  assert_int_equal(file.n, 8);
  assert_numbers(&file, "midlayer.a.weight", DTYPE_BF16, (int[]){0, 0});
  assert_numbers(&file, "same", DTYPE_BF16, (int[]){0, 0});
  assert_numbers(&file, "norm.weight", DTYPE_F32, (int[]){1, 0});
  assert_numbers(&file, "scalar", DTYPE_F32, (int[]){1, 4});
  assert_numbers(&file, "part", DTYPE_F16, (int[]){4, 2});
  assert_numbers(&file, "none", DTYPE_F16, (int[]){4, 8});
  const struct tensor_entry *matrix = safetensors_find(&file, "midlayer.a.weight"), *part = safetensors_find(&file, "part"),
                            *ids = safetensors_find(&file, "d2t"), *marks = safetensors_find(&file, "t2d");
  assert_true(matrix->rank == 2 && matrix->shape[0] == 3 && matrix->shape[1] == 4);
  assert_true(part->rank == 3 && part->shape[0] == 2 && part->shape[1] == 1 && part->shape[2] == 3);
  assert_true(safetensors_find(&file, "scalar")->rank == 0 && safetensors_find(&file, "none")->shape[1] == 3);
  assert_true(ids->dtype == DTYPE_I64 && ids->shape[0] == 300 && marks->dtype == DTYPE_BOOL && marks->shape[0] == 7);
  for (int64_t i = 0, id; i < 300; i++) {
    memcpy(&id, ids->data + 8 * i, sizeof id);
    assert_int_equal(id, i + 200);
  }
  for (int i = 0; i < 7; i++) assert_int_equal(marks->data[i], i % 3 == 0);
  assert_null(safetensors_find(&file, "_metadata"));
  assert_null(safetensors_metadata(&file, "format"));
  safetensors_close(&file);
  free(path);
}

/* Zip64, a name with a space, no byteorder, one entry set alone, an integer as LONG1. */
static void test_zip64(void **state) {
  char *path = file_join(*state, "large.bin");
  static const float values[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  static const char pickle[] = HEAD TENSOR FLOATS "\x8a\x01\x02K\x03K\x02\x86K\x02K\x01\x86" HOOKS "s.";
  const struct torch_record records[] = {{"my head/data.pkl", BYTES(pickle), 0}, {"my head/data/0", values, sizeof values, 0}};
  struct safetensors file;
  struct eaglet_error err = {0};
  for (int large = 0; large < 2; large++) {
    put_archive(path, records, 2, large);
    if (torch_file_open(&file, path, &err) != EAGLET_OK) fail_msg("%s", err.message);
    assert_int_equal(file.n, 1);
    assert_numbers(&file, "w", DTYPE_F32, (int[]){0, 2});
    assert_int_equal((file.tensors[0].data - file.map.data) % 64, 8);
    safetensors_close(&file);
  }
  free(path);
}

static void test_pickles(void **state) {
  static const float values[12] = {0};
  static const struct {
    const char *pickle;
    size_t length;
    const char *words;
  } cases[] = {
      /* what could do harm, by name */
      {BYTES(HEAD "cposix\nsystem\nX\x02\0\0\0ls\x85Rs."), "names posix.system: only tensors are read"},
      {BYTES(HEAD "cbuiltins\neval\n."), "names builtins.eval"},
      {BYTES(HEAD "ctorch._utils\n_rebuild_sparse_tensor\n."), "names torch._utils._rebuild_sparse_tensor"},
      {BYTES(HEAD "ctorch\nComplexFloatStorage\n."), "names torch.ComplexFloatStorage"},
      {BYTES(HEAD "ia\nb\n."), "opcode 0x69 at byte 9"},
      {BYTES(HEAD "\x81."), "opcode 0x81"},
      {BYTES("\x80\x04\x95\0\0\0\0\0\0\0\0}."), "pickle protocol 4: expected 2"},
      {BYTES("}."), "does not begin as a pickle"},
      /* not a state dict */
      {BYTES("\x80\x02}."), "an empty one"},
      {BYTES("\x80\x02K\x01."), "expected a state dict, found an integer"},
      {BYTES(HEAD "}s."), "w: expected a tensor, found a dict"},
      {BYTES(HEAD "X\x01\0\0\0xs."), "w: expected a tensor, found text"},
      {BYTES("\x80\x02}K\x01K\x02s."), "expected names of tensors as keys, found an integer"},
      {BYTES("\x80\x02}X\x02\0\0\0a\nNs."), "expected names of tensors"},
      {BYTES(HEAD TENSOR FLOATS "K\0K\x01\x85K\x01\x85" HOOKS "sX\x01\0\0\0w" TENSOR FLOATS "K\0K\x01\x85K\x01\x85" HOOKS "s."), "w: stands twice"},
      /* tensors that are not what they say */
      {BYTES(HEAD TENSOR FLOATS "K\0K\x03K\x04\x86K\x01K\x03\x86" HOOKS "s."), "not contiguous: expected stride 1 of axis 1, found 3"},
      {BYTES(HEAD TENSOR FLOATS "K\x05K\x08\x85K\x01\x85" HOOKS "s."), "a tensor of 8 elements at 5 of a storage of 12"},
      {BYTES(HEAD TENSOR FLOATS "J\xff\xff\xff\xffK\x01\x85K\x01\x85" HOOKS "s."), "at -1 of a storage"},
      {BYTES(HEAD TENSOR FLOATS "K\0\x8a\x08\0\0\0\0\0\0\0\x80\x85K\x01\x85" HOOKS "s."), "sizes and strides"},
      {BYTES(HEAD TENSOR FLOATS "K\0(\x8a\x06\0\0\0\0\0\x01\x8a\x06\0\0\0\0\0\x01tK\x01K\x01\x86" HOOKS "s."), "too many elements"},
      {BYTES(HEAD TENSOR FLOATS "K\0K\x01\x85)" HOOKS "s."), "sizes and strides"},
      {BYTES(HEAD TENSOR FLOATS "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t(K\1K\1K\1K\1K\1K\1K\1K\1K\1t" HOOKS "s."), "sizes and strides"},
      {BYTES(HEAD TENSOR STORAGE("FloatStorage", "0", "\x0b") "K\0K\x01\x85K\x01\x85" HOOKS "s."), "expected 11 elements of F32, found 48 bytes"},
      {BYTES(HEAD TENSOR STORAGE("FloatStorage", "9", "\x0c") "K\0K\x01\x85K\x01\x85" HOOKS "s."), "archive/data/9: is not in the archive"},
      {BYTES(HEAD "(K\x01K\x02tQ."), "expected a storage's id"},
      /* a machine misused */
      {BYTES("\x80\x02"), "ends early"},
      {BYTES(HEAD), "ends early"},
      {BYTES(HEAD "X\xff\xff\xff\xffx"), "text ends early"},
      {BYTES("\x80\x02s."), "the stack is empty"},
      {BYTES("\x80\x02t."), "there is no mark"},
      {BYTES("\x80\x02\x86."), "the stack is empty"},
      {BYTES("\x80\x02(\x85."), "a mark in a tuple"},
      {BYTES("\x80\x02}(K\x01u."), "a key without a value"},
      {BYTES("\x80\x02K\x01(K\x01K\x02u."), "entries of what is no dict"},
      {BYTES("\x80\x02}((K\x01K\x02us."), "entries of what is no dict"},
      {BYTES("\x80\x02}q\x01."), "memo numbers out of order"},
      {BYTES("\x80\x02}q\0h\x01."), "a memo number that was never given"},
      {BYTES("\x80\x02}K\x01" "b."), "attributes of what is no dict"},
      {BYTES("\x80\x02}}."), "more than one value"},
      {BYTES("\x80\x02}.}"), "bytes behind its end"},
      {BYTES("\x80\x02}}R."), "expected a callable"},
      {BYTES("\x80\x02}\x8a\x09\0\0\0\0\0\0\0\0\0."), "more than 8 bytes"},
  };
  char *path = file_join(*state, "pytorch_model.bin");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct torch_record records[] = {{"archive/data.pkl", cases[i].pickle, cases[i].length, 0}, {"archive/data/0", values, sizeof values, 0}};
    put_archive(path, records, 2, false);
    assert_torch_refused(path, cases[i].words);
  }
  free(path);
}

static void test_archives(void **state) {
  static const float values[12] = {0};
  static const char pickle[] = HEAD TENSOR FLOATS "K\0K\x01\x85K\x01\x85" HOOKS "s.";
  static const struct torch_record packed[] = {{"a/data.pkl", BYTES(pickle), 8}, {"a/data/0", values, sizeof values, 0}},
                                   packed_data[] = {{"a/data.pkl", BYTES(pickle), 0}, {"a/data/0", values, sizeof values, 8}},
                                   big[] = {{"a/data.pkl", BYTES(pickle), 0}, {"a/byteorder", "big", 3, 0}, {"a/data/0", values, sizeof values, 0}},
                                   twice[] = {{"a/data.pkl", BYTES(pickle), 0}, {"b/data.pkl", BYTES(pickle), 0}},
                                   same[] = {{"a/data.pkl", BYTES(pickle), 0}, {"a/data.pkl", BYTES(pickle), 0}},
                                   none[] = {{"a/b/data.pkl", BYTES(pickle), 0}};
  static const struct {
    const struct torch_record *records;
    size_t n;
    const char *words;
  } cases[] = {{packed, 2, "a/data.pkl: expected a stored record, found a compressed one"},
               {packed_data, 2, "a/data/0: expected a stored record"},
               {big, 3, "byteorder: expected little"},
               {twice, 2, "more than one data.pkl"},
               {same, 2, "a name stands twice"},
               {none, 1, "without a data.pkl"}};
  char *path = file_join(*state, "archive.bin");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_archive(path, cases[i].records, cases[i].n, false);
    assert_torch_refused(path, cases[i].words);
  }
  put_bytes(path, BYTES("\x80\x02\x8a\x0al\xfc\x9c""F\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."));
  assert_torch_refused(path, "torch before 1.6");
  put_bytes(path, BYTES("version https://git-lfs.github.com/spec/v1\n"));
  assert_torch_refused(path, "Git LFS pointer");
  put_bytes(path, BYTES("<html>"));
  assert_torch_refused(path, "expected a zip archive");
  free(path);
}

/* Thousands of them: without waiting for the disk, which cutting an old file of that name would do too. */
static void put_quickly(const char *path, const void *bytes, size_t length) {
  (void)remove(path);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, length, file), length);
  assert_int_equal(fclose(file), 0);
}

/* ---- values inside each other ---- */

static void test_sample(void **state) {
  char *plain = memory_format("%s/tests/data/torch/sample.pt", getenv("EAGLET_TEST_ROOT")), *packed = file_join(*state, "sample.ckpt.gz");
  char *command = memory_format("gzip -c '%s' > '%s'", plain, packed);
  assert_int_equal(system(command), 0);
  for (int k = 0; k < 2; k++) {
    struct safetensors file;
    struct eaglet_error err = {0};
    if (torch_file_open_nested(&file, k ? packed : plain, &err) != EAGLET_OK) fail_msg("%s", err.message);
    assert_int_equal(file.n, 6);
    assert_numbers(&file, "hidden_states.0", DTYPE_BF16, (int[]){0, 0});
    assert_numbers(&file, "hidden_states.3", DTYPE_BF16, (int[]){0, 54});
    assert_int_equal(safetensors_find(&file, "input_ids")->dtype, DTYPE_I64);
    assert_string_equal(safetensors_metadata(&file, "notes.id"), "row 7 \xc3\xa9");
    assert_string_equal(safetensors_metadata(&file, "notes.turns"), "3");
    assert_string_equal(safetensors_metadata(&file, "notes.score"), "0.5");
    assert_string_equal(safetensors_metadata(&file, "notes.spans.1.1"), "-6");
    assert_string_equal(safetensors_metadata(&file, "notes.9"), "true");
    assert_null(safetensors_metadata(&file, "notes.none"));
    safetensors_close(&file);
  }
  assert_torch_refused(plain, "hidden_states: expected a tensor, found a list"); /* a head is a state dict */
  free(command);
  free(plain);
  free(packed);
}

static void assert_nested_refused(const char *path, const char *reason) {
  struct safetensors file;
  struct eaglet_error err = {0};
  enum eaglet_status status = torch_file_open_nested(&file, path, &err);
  assert_refusal(status, &err, path, reason);
  assert_true(!file.path && !file.tensors && !file.names && !file.map.data && file.n == 0);
}

static void test_nested_pickles(void **state) {
  static const float values[12] = {0};
  static const struct {
    const char *pickle;
    size_t length;
    const char *words;
  } cases[] = {
      {BYTES("\x80\x02]q\0h\0a."), "expected a dict, found a list"},
      {BYTES(HEAD "]q\0h\0as."), "more than 8 values inside each other"}, /* holds itself */
      {BYTES(HEAD "}q\0X\x01\0\0\0xh\0ss."), "more than 8 values inside each other"},
      {BYTES(HEAD "cposix\nsystem\nX\x02\0\0\0ls\x85Rs."), "names posix.system: only tensors are read"},
      {BYTES(HEAD "ctorch\nFloatStorage\ns."), "w: expected a tensor, a number or text, found a storage type"},
      {BYTES(HEAD "X\x01\0\0\0\xffs."), "w: text that is not UTF-8"},
      {BYTES(HEAD "K\x01s."), "holds no tensor"},
      {BYTES("\x80\x02}NK\x01s."), "expected a name as a key, found None"},
      {BYTES("\x80\x02}X\x02\0\0\0a\nK\x01s."), "expected a short plain name"},
      {BYTES(HEAD "K\x01K\x02" "as."), "items of what is no list"},
      {BYTES(HEAD "](K\x01u."), "a key without a value"},
      {BYTES(HEAD "G\0\0s."), "ends early"},
      {BYTES("\x80\x02" "e."), "there is no mark"},
      {BYTES("\x80\x02(e."), "the stack is empty"},
      {BYTES("\x80\x02](](ae."), "a mark in a list"},
      {BYTES("\x80\x02}(X\x01\0\0\0a](K\x01" TENSOR FLOATS "K\0K\x01\x85K\x01\x85" HOOKS "eX\x03\0\0\0a.1" TENSOR FLOATS "K\0K\x01\x85K\x01\x85" HOOKS "u."), "a.1: stands twice"},
  };
  char *path = file_join(*state, "nested.pt");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct torch_record records[] = {{"archive/data.pkl", cases[i].pickle, cases[i].length, 0}, {"archive/data/0", values, sizeof values, 0}};
    put_archive(path, records, 2, false);
    assert_nested_refused(path, cases[i].words);
  }
  /* Few bytes that mean 64 to the power of 5 values: each tuple holds the one before 64 times. */
  struct buffer bomb;
  buffer_init(&bomb);
  buffer_append(&bomb, BYTES(HEAD "()q\0"));
  for (char i = 0; i < 5; i++) {
    buffer_append_char(&bomb, '(');
    for (int k = 0; k < 64; k++) buffer_append(&bomb, (const char[]){'h', i}, 2);
    buffer_append(&bomb, (const char[]){'t', 'q', (char)(i + 1)}, 3);
  }
  buffer_append(&bomb, BYTES("ts."));
  struct torch_record record = {"archive/data.pkl", bomb.data, bomb.length, 0};
  put_archive(path, &record, 1, false);
  buffer_clear(&bomb);
  assert_nested_refused(path, "more than 4096 values");
  put_bytes(path, "\x1f\x8b\x08\0\0\0\0\0\0\3", 10);
  assert_nested_refused(path, "the packed data ends in the middle");
  put_bytes(path, "\x1f\x8b\x08\0\0\0\0\0\0\3\7\7\7\7", 14);
  assert_nested_refused(path, "the gzip data is corrupt");
  put_bytes(path, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  assert_nested_refused(path, "written in the format of torch before 1.6");
  free(path);
}

/* Cut anywhere it is refused; with any byte changed every tensor still lies inside the file. */
static void test_damage(void **state) {
  char *whole = fixture_path(), *path = file_join(*state, "damaged.bin");
  struct file_map map;
  struct eaglet_error err = {0};
  assert_int_equal(file_map_open(&map, whole, &err), EAGLET_OK);
  size_t length = map.length, n_refused = 0;
  uint8_t *copy = memory_alloc(length);
  memcpy(copy, map.data, length);
  for (size_t n = 0; n < length; n += n < 200 || n > length - 200 ? 1 : 37) {
    struct safetensors file;
    put_quickly(path, copy, n);
    assert_int_equal(torch_file_open(&file, path, &err), EAGLET_E_INPUT);
  }
  for (size_t i = 0; i < length; i++) {
    struct safetensors file;
    copy[i] ^= 0xff;
    put_quickly(path, copy, length);
    if (torch_file_open(&file, path, &err) == EAGLET_OK) {
      for (size_t k = 0; k < file.n; k++)
        assert_true(file.tensors[k].data >= file.map.data && file.tensors[k].data + file.tensors[k].n_bytes <= file.map.data + file.map.length);
      safetensors_close(&file);
    } else {
      n_refused++;
    }
    copy[i] ^= 0xff;
  }
  assert_in_range(n_refused, 900, length - 1000);
  file_map_close(&map);
  free(copy);
  free(path);
  free(whole);
}

/* A head's directory is read from it where there is nothing better; a model's never. */
static void test_directories(void **state) {
  char *folder = file_join(*state, "head"), *from = fixture_path(), *path = file_join(folder, "pytorch_model.bin");
  struct file_map map;
  struct checkpoint checkpoint;
  struct eaglet_error err = {0};
  const struct checkpoint_params head = {.path = folder, .is_head = true};
  assert_int_equal(file_make_directory(folder, NULL), EAGLET_OK);
  assert_int_equal(file_map_open(&map, from, &err), EAGLET_OK);
  put_bytes(path, map.data, map.length);
  put_text(folder, "config.json", "{}");
  assert_folder_refused(folder, "pickled weights");
  assert_int_equal(checkpoint_open_with(&checkpoint, &head, &err), EAGLET_OK);
  assert_true(checkpoint.n_files == 1 && checkpoint.n_tensors == 8);
  assert_int_equal(checkpoint_find(&checkpoint, "d2t")->shape[0], 300);
  checkpoint_close(&checkpoint);
  put_shard(folder, "model.safetensors", "a.w", 1);
  assert_int_equal(checkpoint_open_with(&checkpoint, &head, &err), EAGLET_OK);
  assert_true(checkpoint.n_tensors == 1 && checkpoint_peek(&checkpoint, "a.w"));
  checkpoint_close(&checkpoint);
  file_map_close(&map);
  free(path);
  free(from);
  free(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_state_dict),
      cmocka_unit_test(test_zip64),
      cmocka_unit_test(test_pickles),
      cmocka_unit_test(test_archives),
      cmocka_unit_test(test_sample),
      cmocka_unit_test(test_nested_pickles),
      cmocka_unit_test(test_damage),
      cmocka_unit_test(test_directories),
  };
  return cmocka_run_group_tests(tests, scratch_create, tree_teardown);
}
