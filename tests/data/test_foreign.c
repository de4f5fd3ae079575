/* test_foreign.c - feature stores of other programs: every format gives the states, ids and marks that were written; rows find their sample
 * by ids; what is damaged, half there or of another shape is refused by name, never followed. */
#include "foreign_writer.h"

#include "data/foreign_sample.h"
#include "data/foreign_store.h"

#include <math.h>

enum { ROWS = 12, HIDDEN = 5, SLOTS = 4 };

struct corpus {
  int32_t ids[ROWS][20];
  uint8_t mask[ROWS][20];
  float states[ROWS][20 * SLOTS * HIDDEN];
  struct foreign_row rows[ROWS];
};

static void corpus_make(struct corpus *c, enum dtype dtype) {
  for (size_t r = 0; r < ROWS; r++) {
    int32_t n = 4 + (int32_t)r;
    for (int32_t i = 0; i < n; i++) {
      c->ids[r][i] = (int32_t)(r * 7 + (size_t)i * 3) % 90;
      c->mask[r][i] = i > 2;
    }
    for (size_t i = 0; i < (size_t)n * SLOTS * HIDDEN; i++) c->states[r][i] = (float)sin((double)(r * 1000 + i) + 1) * 3;
    c->rows[r] = (struct foreign_row){.ids = c->ids[r], .mask = c->mask[r], .states = c->states[r], .n = n, .n_slots = SLOTS, .hidden = HIDDEN, .dtype = dtype};
  }
}

static void corpus_write(const struct corpus *c, const char *directory, enum foreign_kind kind) {
  struct eaglet_error err = {0};
  assert_ok(file_make_directory(directory, &err), &err);
  for (size_t r = 0; r < ROWS; r++) foreign_write(directory, kind, r, &c->rows[r]);
}

static float expected_value(float value, enum foreign_kind kind, enum dtype dtype) {
  return kind != FOREIGN_HEAD_FP8 && dtype == DTYPE_BF16 ? dtype_bf16_to_f32(dtype_f32_to_bf16(value)) : value;
}

static void test_formats(void **state) {
  static const char *const formats[FOREIGN_KINDS] = {"speculators", "speculators", "speculators 0.3", "speculators 0", "specforge", "specforge", "modelopt"};
  struct corpus c;
  for (int k = 0; k < FOREIGN_KINDS * 2; k++) {
    enum foreign_kind kind = (enum foreign_kind)(k / 2);
    enum dtype dtype = k % 2 ? DTYPE_F32 : DTYPE_BF16;
    char *directory = memory_format("%s/store-%d", (char *)*state, k), *name = foreign_name(kind, 3), *path = file_join(directory, name);
    struct foreign_sample s;
    struct token_store tokens;
    struct feature_store *store;
    struct eaglet_error err = {0};
    corpus_make(&c, dtype);
    corpus_write(&c, directory, kind);
    assert_true(foreign_store_is(directory));
    assert_ok(foreign_sample_open(&s, path, &err), &err);
    assert_string_equal(s.format, formats[kind]);
    assert_true(s.n_slots == SLOTS && s.hidden == HIDDEN && s.n_tokens == 7);
    foreign_sample_close(&s);
    bool has_mask = kind != FOREIGN_HEAD && kind != FOREIGN_HEAD_FP8;
    enum eaglet_status status = token_store_open(&tokens, directory, false, &err);
    if (has_mask) {
      assert_ok(status, &err);
      assert_memory_equal(tokens.rows[9].mask, c.mask[9], 13);
    } else {
      assert_failed_with(status, EAGLET_E_INPUT, &err, "loss_mask: not there: prepare the conversations");
      assert_ok(foreign_tokens_open(&tokens, directory, false, &err), &err);
    }
    assert_int_equal(tokens.n_rows, ROWS);
    assert_ok(feature_store_open(&store, directory, &tokens, &err), &err);
    assert_true(!store->named && store->n_covered == ROWS && store->n_duplicates == 0 && store->layout.n_states == SLOTS - 1);
    for (size_t r = 0; r < ROWS; r++) { /* row 10 is in data_10: files come in the order of their numbers */
      float read[20 * SLOTS * HIDDEN];
      assert_int_equal(tokens.rows[r].n, c.rows[r].n);
      assert_memory_equal(tokens.rows[r].tokens, c.ids[r], sizeof(int32_t) * (size_t)c.rows[r].n);
      assert_ok(feature_store_read(store, r, read, &err), &err);
      for (size_t i = 0; i < (size_t)c.rows[r].n * SLOTS * HIDDEN; i++) {
        float value = expected_value(c.states[r][i], kind, dtype);
        if (kind == FOREIGN_HEAD_FP8) assert_true(fabsf(read[i] - value) <= fmaxf(fabsf(value) / 16, 3.0f / 448 * 0x1p-9f));
        else assert_true(read[i] == value);
      }
    }
    feature_store_close(store);
    token_store_close(&tokens);
    free(directory), free(name), free(path);
  }
}

/* Where people put them: below the directory, in several folders, beside tables. */
static void test_places(void **state) {
  struct corpus c;
  struct file_list files;
  struct eaglet_error err = {0};
  char *below = file_join(*state, "a/hidden_states"), *above = file_join(*state, "a"), *rows[2] = {file_join(*state, "b/rows_0-2000"), file_join(*state, "b/rows_2000-4000")};
  corpus_make(&c, DTYPE_BF16);
  corpus_write(&c, below, FOREIGN_HEAD);
  assert_true(foreign_store_is(above));
  assert_ok(foreign_files_list(&files, above, &err), &err);
  assert_int_equal(files.n, ROWS);
  assert_non_null(strstr(files.names[2], "hs_2.safetensors"));
  assert_non_null(strstr(files.names[11], "hs_11.safetensors"));
  file_list_clear(&files);
  for (int k = 0; k < 2; k++) {
    assert_ok(file_make_directory(rows[k], &err), &err);
    foreign_write(rows[k], k ? FOREIGN_SPECFORGE_GZ : FOREIGN_SPECFORGE, 2000u * (unsigned)k + 5, &c.rows[k]);
  }
  char *other = file_join(*state, "b");
  free(scratch_write(other, "token_freq.pt", "not a sample"));
  free(scratch_write(other, "notes.txt", ""));
  assert_ok(foreign_files_list(&files, other, &err), &err);
  assert_int_equal(files.n, 2);
  assert_non_null(strstr(files.names[1], "rows_2000-4000/data_2005.ckpt.gz"));
  file_list_clear(&files);
  assert_false(foreign_store_is(rows[0] + 1));
  free(scratch_write(other, "manifest.json", "{}"));
  assert_false(foreign_store_is(other)); /* ours */
  free(below), free(above), free(rows[0]), free(rows[1]), free(other);
}

/* A part of the rows, in another order, some twice. */
static void test_matching(void **state) {
  struct corpus c;
  struct token_store tokens;
  struct feature_store *store;
  struct eaglet_error err = {0};
  float read[20 * SLOTS * HIDDEN];
  char *all = file_join(*state, "all"), *part = file_join(*state, "part");
  corpus_make(&c, DTYPE_F32);
  corpus_write(&c, all, FOREIGN_030);
  assert_ok(foreign_tokens_open(&tokens, all, true, &err), &err);
  assert_ok(file_make_directory(part, &err), &err);
  for (size_t k = 0; k < 6; k++) foreign_write(part, FOREIGN_HEAD, k, &c.rows[k == 5 ? 7 : 10 - k]); /* rows 10 9 8 7 6 7 */
  assert_ok(feature_store_open(&store, part, &tokens, &err), &err);
  assert_int_equal(store->n_covered, 5);
  assert_int_equal(store->n_duplicates, 1);
  for (size_t r = 0; r < ROWS; r++) {
    assert_int_equal(feature_store_has(store, r), r >= 6 && r <= 10);
    if (!feature_store_has(store, r)) continue;
    assert_ok(feature_store_read(store, r, read, &err), &err);
    assert_memory_equal(read, c.states[r], sizeof(float) * (size_t)c.rows[r].n * SLOTS * HIDDEN);
  }
  assert_false(feature_store_has(store, ROWS));
  foreign_write(part, FOREIGN_HEAD, 0, &c.rows[2]); /* another row took its place while the store was open */
  assert_failed_with(feature_store_read(store, 10, read, &err), EAGLET_E_INPUT, &err, "hs_0.safetensors: expected 14 tokens, found 6: the file was changed");
  struct foreign_row swapped = c.rows[9];
  c.ids[8][0]++;
  c.ids[9][1]++;
  foreign_write(part, FOREIGN_HEAD, 1, &swapped);
  assert_failed_with(feature_store_read(store, 9, read, &err), EAGLET_E_INPUT, &err, "its ids are not those of row 9 any more");
  feature_store_close(store);
  for (size_t r = 0; r < ROWS; r++) c.ids[r][0] = 99;
  char *others = file_join(*state, "others");
  corpus_write(&c, others, FOREIGN_HEAD);
  assert_failed_with(feature_store_open(&store, others, &tokens, &err), EAGLET_E_INPUT, &err, "none of its 12 samples has the ids of a row");
  token_store_close(&tokens);
  free(all), free(part), free(others);
}

static void expect_sample_refused(const char *path, const char *words) {
  struct foreign_sample s;
  struct eaglet_error err = {0};
  assert_failed_with(foreign_sample_open(&s, path, &err), EAGLET_E_INPUT, &err, words);
  assert_true(s.file.path == NULL && s.file.map.data == NULL);
}

static void put_tensors(const char *path, const struct torch_tensor *tensors, size_t n) {
  struct eaglet_error err = {0};
  struct eaglet_text archive = torch_sample(tensors, n);
  assert_ok(file_write(path, archive.data, archive.length, &err), &err);
  free(archive.data);
}

static void test_refused(void **state) {
  static const float numbers[200] = {1};
  static const int64_t ids[200] = {1}, bad[4] = {1, 2, -3, 4}, large[4] = {1, 2, (int64_t)1 << 40, 4};
  char *path = file_join(*state, "x.pt");
  static const struct {
    struct torch_tensor tensors[4];
    size_t n;
    const char *words;
  } cases[] = {
      {{{"weights", DTYPE_F32, 1, {4}, numbers}}, 1, "under names of speculators, SpecForge or Model-Optimizer, found others (first: weights)"},
      {{{"hidden_state", DTYPE_F32, 2, {4, 6}, numbers}, {"target", DTYPE_F32, 2, {4, 2}, numbers}}, 2, "input_ids: not there, but hidden_state is"},
      {{{"input_ids", DTYPE_F32, 1, {4}, numbers}, {"hidden_state", DTYPE_F32, 2, {4, 6}, numbers}, {"target", DTYPE_F32, 2, {4, 2}, numbers}}, 3, "input_ids: expected a vector of integers"},
      {{{"input_ids", DTYPE_I64, 1, {3}, ids}, {"hidden_state", DTYPE_F32, 2, {4, 6}, numbers}, {"target", DTYPE_F32, 2, {4, 2}, numbers}}, 3, "hidden_state: expected states of 3 tokens, found 4"},
      {{{"input_ids", DTYPE_I64, 1, {4}, ids}, {"hidden_state", DTYPE_F32, 2, {4, 5}, numbers}, {"target", DTYPE_F32, 2, {4, 2}, numbers}}, 3, "expected a multiple of 2, the width of target, found 5"},
      {{{"input_ids", DTYPE_I64, 1, {4}, ids}, {"hidden_state", DTYPE_F32, 2, {4, 6}, numbers}, {"target", DTYPE_F32, 2, {5, 2}, numbers}}, 3, "target: expected states of 4 tokens, found 5"},
      {{{"input_ids", DTYPE_I64, 1, {4}, ids}, {"hidden_state", DTYPE_F32, 2, {4, 6}, numbers}, {"target", DTYPE_BF16, 2, {4, 2}, numbers}}, 3, "target: expected F32 as the other states, found BF16"},
      {{{"input_ids", DTYPE_I64, 1, {4}, ids}, {"hidden_state", DTYPE_I64, 2, {4, 6}, ids}, {"target", DTYPE_I64, 2, {4, 2}, ids}}, 3, "expected BF16, F16, F32 or F8_E4M3, found I64"},
      {{{"input_ids", DTYPE_I64, 1, {4}, ids}, {"hidden_state", DTYPE_F32, 2, {4, 40}, numbers}, {"target", DTYPE_F32, 2, {4, 2}, numbers}}, 3, "at most 17 states, found more"},
      {{{"input_ids", DTYPE_I64, 1, {4}, ids}, {"hidden_states", DTYPE_F32, 2, {4, 2}, numbers}, {"hidden_states", DTYPE_F32, 2, {4, 3}, numbers}}, 3, "hidden_states.1: expected width 2, found 3"},
      {{{"input_ids", DTYPE_I64, 2, {2, 2}, ids}, {"hidden_state", DTYPE_F32, 2, {4, 6}, numbers}, {"target", DTYPE_F32, 2, {4, 2}, numbers}}, 3, "input_ids: expected a vector of integers"},
      {{{"input_ids", DTYPE_I64, 1, {4}, ids}, {"hidden_state", DTYPE_F32, 2, {4, 0}, numbers}, {"target", DTYPE_F32, 2, {4, 0}, numbers}}, 3, "found states of width 0"},
      {{{"input_ids", DTYPE_I64, 1, {4}, ids}, {"hidden_state", DTYPE_F32, 3, {2, 4, 6}, numbers}, {"target", DTYPE_F32, 2, {4, 2}, numbers}}, 3, "hidden_state: expected 2 axes, found 3"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_tensors(path, cases[i].tensors, cases[i].n);
    expect_sample_refused(path, cases[i].words);
  }
  for (int k = 0; k < 2; k++) {
    struct foreign_sample s;
    struct eaglet_error err = {0};
    int32_t read[4];
    uint8_t mask[4];
    const struct torch_tensor tensors[] = {{"input_ids", DTYPE_I64, 1, {4}, k ? large : bad}, {"hidden_state", DTYPE_F32, 2, {4, 6}, numbers},
                                           {"target", DTYPE_F32, 2, {4, 2}, numbers}, {"loss_mask", DTYPE_I64, 1, {4}, bad}};
    put_tensors(path, tensors, 4);
    assert_ok(foreign_sample_open(&s, path, &err), &err);
    assert_failed_with(foreign_sample_ids(&s, read, &err), EAGLET_E_INPUT, &err, k ? "input_ids[2]: found id 1099511627776" : "input_ids[2]: found id -3");
    assert_failed_with(foreign_sample_mask(&s, mask, &err), EAGLET_E_INPUT, &err, "loss_mask[1]: expected 0 or 1, found 2");
    foreign_sample_close(&s);
  }
  free(path);
}

/* Any byte changed, and cut anywhere: refused or read within the file. */
static void test_damage(void **state) {
  struct corpus c;
  corpus_make(&c, DTYPE_BF16);
  for (int kind = 0; kind < FOREIGN_KINDS; kind++) {
    char *directory = memory_format("%s/damaged-%d", (char *)*state, kind), *name = foreign_name((enum foreign_kind)kind, 0), *path = file_join(directory, name);
    struct eaglet_error err = {0};
    assert_ok(file_make_directory(directory, &err), &err);
    foreign_write(directory, (enum foreign_kind)kind, 0, &c.rows[0]);
    struct eaglet_text whole = scratch_read(directory, name);
    for (size_t at = 0; at < whole.length; at += 7) {
      struct foreign_sample s;
      FILE *file = fopen(path, "w");
      whole.data[at] ^= 0x55;
      fwrite(whole.data, 1, at % 3 ? whole.length : at, file);
      fclose(file);
      whole.data[at] ^= 0x55;
      if (foreign_sample_open(&s, path, &err) != EAGLET_OK) continue;
      assert_true(s.n_tokens > 0 && s.n_tokens < 100000);
      float *states = memory_alloc(sizeof(float) * (size_t)s.n_tokens * (size_t)s.n_slots * (size_t)s.hidden);
      int32_t *ids = memory_alloc(sizeof *ids * (size_t)s.n_tokens);
      foreign_sample_states(&s, states);
      if (foreign_sample_ids(&s, ids, &err) == EAGLET_OK) assert_true(ids[0] >= 0);
      foreign_sample_close(&s);
      free(states), free(ids);
    }
    free(whole.data), free(directory), free(name), free(path);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_formats, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_places, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_matching, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_refused, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_damage, scratch_create, scratch_remove),
  };
  return cmocka_run_group_tests_name("foreign", tests, NULL, NULL);
}
