/* test_vocab_map.c - maps read from files and chosen from counts: a table of good and bad tensors (E02, E04, E10), the
 * choice against a plain sort, and writing back. */
#include "pair_fixture.h"

#include "base/util.h"
#include "draft/vocab_map.h"

#define N_TARGET 12
#define N_DRAFT 4

struct file_case {
  const char *name;
  const char *d2t_name; /* NULL: no mapping */
  enum dtype d2t_dtype;
  int64_t offsets[N_DRAFT];
  int64_t n_offsets;    /* length in the file */
  enum dtype t2d_dtype; /* DTYPE_NONE: absent */
  int64_t n_marks;
  const char *marks;   /* "1" marked */
  const char *refusal; /* words of the error; NULL: loads */
};

/* Ids 1, 3, 4, 11: offsets 1, 2, 2, 8. */
#define MARKS "010110000001"
static const struct file_case file_cases[] = {
    {"I64 and BOOL", "d2t", DTYPE_I64, {1, 2, 2, 8}, 4, DTYPE_BOOL, 12, MARKS, NULL},
    {"I32 and U8", "d2t", DTYPE_I32, {1, 2, 2, 8}, 4, DTYPE_U8, 12, MARKS, NULL},
    {"without t2d", "d2t", DTYPE_I64, {1, 2, 2, 8}, 4, DTYPE_NONE, 0, "", NULL},
    {"the name after renaming", "draft_id_to_target_id", DTYPE_I64, {1, 2, 2, 8}, 4, DTYPE_NONE, 0, "", NULL},
    {"id -1", "d2t", DTYPE_I64, {-1, 2, 2, 8}, 4, DTYPE_NONE, 0, "", "d2t[0]"},
    {"id -1, later", "d2t", DTYPE_I64, {1, -2, 2, 8}, 4, DTYPE_NONE, 0, "", "d2t[1]"},
    {"id 12 of 12", "d2t", DTYPE_I64, {1, 2, 2, 9}, 4, DTYPE_NONE, 0, "", "d2t[3]"},
    {"id beyond 32 bits", "d2t", DTYPE_I64, {1, 2, 2, 1LL << 40}, 4, DTYPE_NONE, 0, "", "d2t[3]"},
    {"id near the end of 64 bits", "d2t", DTYPE_I64, {1, INT64_MAX, 2, 8}, 4, DTYPE_NONE, 0, "", "d2t[1]"},
    {"duplicate", "d2t", DTYPE_I64, {1, 2, 1, 8}, 4, DTYPE_NONE, 0, "", "d2t[2]"},
    {"descending", "d2t", DTYPE_I64, {4, 2, 2, 8}, 4, DTYPE_NONE, 0, "", "d2t[1]"},
    {"absolute ids instead of offsets", "d2t", DTYPE_I64, {1, 3, 4, 11}, 4, DTYPE_NONE, 0, "", "d2t[3]"},
    {"absolute ids, and t2d says so (E01)", "d2t", DTYPE_I64, {1, 3, 4, 11}, 4, DTYPE_BOOL, 12, MARKS, NULL},
    {"absolute ids, and t2d says otherwise", "d2t", DTYPE_I64, {1, 3, 4, 10}, 4, DTYPE_BOOL, 12, MARKS, "d2t[3]"},
    {"counting (E01)", "d2t", DTYPE_I64, {0, 1, 2, 3}, 4, DTYPE_NONE, 0, "", "holds 0, 1, 2, ... and there is no t2d"},
    {"counting, and t2d says otherwise", "d2t", DTYPE_I64, {0, 1, 2, 3}, 4, DTYPE_BOOL, 12, MARKS, "t2d[0]"},
    {"zeros only (E01)", "d2t", DTYPE_I64, {0, 0, 0, 0}, 4, DTYPE_NONE, 0, "", "holds zeros only and there is no t2d"},
    {"one mark too many", "d2t", DTYPE_I64, {1, 2, 2, 8}, 4, DTYPE_BOOL, 12, "010110100001", "t2d[6]"},
    {"one mark missing", "d2t", DTYPE_I64, {1, 2, 2, 8}, 4, DTYPE_U8, 12, "010100000001", "t2d[4]"},
    {"marks of another vocabulary", "d2t", DTYPE_I64, {1, 2, 2, 8}, 4, DTYPE_BOOL, 11, "01011000000", "[12]"},
    {"marks of another type", "d2t", DTYPE_I64, {1, 2, 2, 8}, 4, DTYPE_I8, 12, MARKS, "I8"},
    {"too short", "d2t", DTYPE_I64, {1, 2, 2}, 3, DTYPE_NONE, 0, "", "[4]"},
    {"of floats", "d2t", DTYPE_F64, {1, 2, 2, 8}, 4, DTYPE_NONE, 0, "", "F64"},
    {"mapping missing", NULL, DTYPE_NONE, {0}, 0, DTYPE_NONE, 0, "", "d2t: missing"},
};

static void write_case(const char *path, const struct file_case *c) {
  struct safetensors_writer *writer = safetensors_writer_create();
  struct eaglet_error err;
  int32_t narrow[N_DRAFT];
  uint8_t marks[N_TARGET];
  const float filler = 0;
  for (int i = 0; i < N_DRAFT; i++) narrow[i] = (int32_t)c->offsets[i];
  for (int64_t i = 0; i < c->n_marks; i++) marks[i] = c->marks[i] == '1';
  if (c->d2t_name)
    safetensors_writer_add(writer, c->d2t_name, c->d2t_dtype, 1, &c->n_offsets,
                           c->d2t_dtype == DTYPE_I32 ? (const void *)narrow : c->offsets);
  if (c->t2d_dtype) safetensors_writer_add(writer, "t2d", c->t2d_dtype, 1, &c->n_marks, marks);
  safetensors_writer_add(writer, "filler", DTYPE_F32, 1, (const int64_t[]){1}, &filler);
  assert_ok(safetensors_writer_commit(writer, path, &err), &err);
  safetensors_writer_free(writer);
}

static void test_files(void **state) {
  (void)state;
  static const int32_t expected[N_DRAFT] = {1, 3, 4, 11};
  char directory[64];
  struct eaglet_error err;
  temporary_directory(directory);
  char *path = file_join(directory, "map.safetensors");
  for (size_t i = 0; i < sizeof file_cases / sizeof *file_cases; i++) {
    const struct file_case *c = &file_cases[i];
    struct safetensors file;
    struct vocab_map map;
    write_case(path, c);
    assert_ok(safetensors_open(&file, path, &err), &err);
    enum eaglet_status status = vocab_map_from_tensors(&map, &file, N_DRAFT, N_TARGET, &err);
    if ((status != EAGLET_OK) != (c->refusal != NULL))
      fail_msg("%s: status %d (%s)", c->name, status, status ? err.message : "");
    if (c->refusal && !strstr(err.message, c->refusal))
      fail_msg("%s: '%s' is not in '%s'", c->name, c->refusal, err.message);
    if (c->refusal && status != EAGLET_E_INPUT) fail_msg("%s: status %d", c->name, status);
    if (!c->refusal) {
      assert_memory_equal(map.target, expected, sizeof expected);
      for (int32_t id = 0; id < N_TARGET; id++)
        assert_int_equal(map.draft[id], id == 1 ? 0 : id == 3 ? 1 : id == 4 ? 2 : id == 11 ? 3 : -1);
    }
    vocab_map_release(&map);
    safetensors_close(&file);
  }
  free(path);
  remove_directory(directory);
}

/* No mapping is the identity exactly when the sizes are equal; sizes that cannot be are refused. */
static void test_sizes(void **state) {
  (void)state;
  char directory[64];
  struct eaglet_error err;
  struct safetensors file;
  struct vocab_map map;
  temporary_directory(directory);
  char *path = file_join(directory, "map.safetensors");
  write_case(path, &file_cases[sizeof file_cases / sizeof *file_cases - 1]);
  assert_ok(safetensors_open(&file, path, &err), &err);
  assert_ok(vocab_map_from_tensors(&map, &file, N_TARGET, N_TARGET, &err), &err);
  for (int32_t i = 0; i < N_TARGET; i++) assert_true(map.target[i] == i && map.draft[i] == i);
  vocab_map_release(&map);
  assert_int_equal(vocab_map_from_tensors(&map, &file, N_TARGET + 1, N_TARGET, &err), EAGLET_E_INPUT);
  assert_int_equal(vocab_map_from_tensors(&map, &file, 0, N_TARGET, &err), EAGLET_E_INPUT);
  assert_int_equal(vocab_map_identity(&map, 0, &err), EAGLET_E_INPUT);
  safetensors_close(&file);
  free(path);
  remove_directory(directory);
}

static void test_choose(void **state) {
  (void)state;
  static const struct {
    const char *name;
    uint64_t counts[N_TARGET];
    int32_t must[3];
    size_t n_must;
    int32_t n_draft, expected[N_TARGET], n_padded;
    double coverage;
  } cases[] = {
      {"by count", {0, 5, 1, 9, 0, 7, 2}, {0}, 0, 3, {1, 3, 5}, 0, 21 / 24.0},
      {"ties fall to the lower id", {4, 4, 4, 4, 4, 4}, {0}, 0, 3, {0, 1, 2}, 0, 0.5},
      {"what must be in stays in", {0, 5, 1, 9, 0, 7, 2}, {10, 4}, 2, 4, {3, 4, 5, 10}, 0, 16 / 24.0},
      {"named twice counts once", {0, 5, 1, 9, 0, 7, 2}, {10, 10, 3}, 3, 3, {3, 5, 10}, 0, 16 / 24.0},
      {"short of seen ids: the lowest pad", {0, 0, 0, 9, 0, 7}, {11}, 1, 6, {0, 1, 2, 3, 5, 11}, 3, 1},
      {"nothing counted", {0}, {0}, 0, 2, {0, 1}, 2, 0},
      {"the whole vocabulary", {3, 1}, {7}, 1, 12, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 9, 1},
  };
  struct eaglet_error err;
  struct vocab_map map;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct vocab_choice choice = {.counts = cases[i].counts,
                                  .must = cases[i].must,
                                  .n_must = cases[i].n_must,
                                  .n_draft = cases[i].n_draft,
                                  .n_target = N_TARGET};
    assert_ok(vocab_map_choose(&map, &choice, &err), &err);
    if (memcmp(map.target, cases[i].expected, sizeof(int32_t) * (size_t)cases[i].n_draft) != 0)
      fail_msg("%s: other ids", cases[i].name);
    if (choice.n_padded != cases[i].n_padded) fail_msg("%s: %d padded", cases[i].name, choice.n_padded);
    if (choice.coverage - cases[i].coverage > 1e-12 || cases[i].coverage - choice.coverage > 1e-12)
      fail_msg("%s: coverage %g", cases[i].name, choice.coverage);
    vocab_map_release(&map);
  }
  const uint64_t counts[N_TARGET] = {1};
  struct vocab_choice crowded = {
      .counts = counts, .must = (const int32_t[]){1, 2, 3}, .n_must = 3, .n_draft = 2, .n_target = N_TARGET};
  assert_int_not_equal(vocab_map_choose(&map, &crowded, &err), EAGLET_OK);
}

/* Written and read back: same map, same hash; another map, another hash. */
static void test_round_trip(void **state) {
  (void)state;
  enum { BIG = 5000, SMALL = 700 };
  char directory[64];
  struct eaglet_error err;
  struct safetensors file;
  struct vocab_map map, read, other;
  uint64_t *counts = memory_alloc(BIG * sizeof *counts);
  for (uint64_t i = 0; i < BIG; i++) counts[i] = random_u64(1, 2, i) % 1000;
  struct vocab_choice choice = {.counts = counts, .n_draft = SMALL, .n_target = BIG};
  temporary_directory(directory);
  char *path = file_join(directory, "map.safetensors");
  assert_ok(vocab_map_choose(&map, &choice, &err), &err);
  struct safetensors_writer *writer = safetensors_writer_create();
  void *storage;
  vocab_map_write(&map, writer, &storage);
  assert_ok(safetensors_writer_commit(writer, path, &err), &err);
  safetensors_writer_free(writer);
  free(storage);
  assert_ok(safetensors_open(&file, path, &err), &err);
  assert_int_equal(safetensors_find(&file, "d2t")->dtype, DTYPE_I64);
  assert_int_equal(safetensors_find(&file, "t2d")->dtype, DTYPE_BOOL);
  assert_ok(vocab_map_from_tensors(&read, &file, SMALL, BIG, &err), &err);
  assert_memory_equal(read.target, map.target, SMALL * sizeof(int32_t));
  assert_true(vocab_map_hash(&read) == vocab_map_hash(&map));
  counts[map.target[0]] = 0;
  assert_ok(vocab_map_choose(&other, &choice, &err), &err);
  assert_true(vocab_map_hash(&other) != vocab_map_hash(&map));
  vocab_map_release(&map);
  vocab_map_release(&read);
  vocab_map_release(&other);
  safetensors_close(&file);
  free(counts);
  free(path);
  remove_directory(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_sizes),
                                     cmocka_unit_test(test_choose), cmocka_unit_test(test_round_trip)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
