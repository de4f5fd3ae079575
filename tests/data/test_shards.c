/* test_shards.c - token and feature files. Method: write rows, read them back to the bit; damage single bytes and
 * fields and expect a refusal that names the file; fail a write half-way and expect the finished directory unchanged.
 */
#include "data/feature_shard.h"

#include "support.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

enum { N_TARGET = 50, HIDDEN = 6, N_STATES = 2, N_LAYERS = 9 };

static json_t *manifest_of(int n_target) {
  return json_pack("{si s[i] s[ii]}", "n_target", n_target, "stop_ids", 4, "special_ids", 3, 4);
}

struct content {
  int32_t tokens[40];
  uint8_t mask[40];
  struct token_row row;
};

static void make_row(struct content *c, int32_t seed) {
  int32_t n = 5 + seed % 30;
  for (int32_t i = 0; i < n; i++) {
    c->tokens[i] = (seed * 7 + i * 3) % N_TARGET;
    c->mask[i] = i > seed % 4;
  }
  c->row = (struct token_row){.tokens = c->tokens, .mask = c->mask, .n = n};
}

/* Rows of even number from "even", others from "odd"; every tenth is for validation. */
static void write_rows(const char *directory, int32_t n_rows, int32_t first) {
  json_t *manifest = manifest_of(N_TARGET), *report = json_pack("{si}", "rows", n_rows);
  const struct token_writer_params params = {.directory = directory, .manifest = manifest};
  struct token_writer *writer;
  struct eaglet_error err = {0};
  assert_ok(token_writer_open(&writer, &params, &err), &err);
  for (int32_t r = first; r < first + n_rows; r++) {
    struct content c;
    make_row(&c, r);
    assert_ok(token_writer_add(writer, &c.row, &(struct row_origin){.source = r % 2 ? "odd" : "even", .language = r % 3 ? "Latin" : "Greek"}, r % 10 == 9, &err), &err);
  }
  assert_ok(token_writer_commit(writer, report, &err), &err);
  token_writer_free(writer);
  json_decref(manifest);
  json_decref(report);
}

static void test_round_trip(void **state) {
  struct token_store store;
  struct eaglet_error err = {0};
  uint64_t expected[5][N_TARGET] = {0}, n_trained = 0, n_tokens = 0;
  write_rows(*state, 100, 0);
  assert_ok(token_store_open(&store, *state, false, &err), &err);
  assert_int_equal(store.n_rows, 90);
  assert_int_equal(store.n_sources, 2);
  assert_string_equal(store.sources[0], "even");
  size_t at = 0;
  for (int32_t r = 0; r < 100; r++) {
    struct content c;
    make_row(&c, r);
    for (int32_t i = 0; i < c.row.n; i++) {
      expected[0][c.tokens[i]] += c.mask[i];
      expected[1 + r % 2][c.tokens[i]] += c.mask[i];
      expected[r % 3 ? 4 : 3][c.tokens[i]] += c.mask[i];
      if (r % 10 != 9) n_trained += c.mask[i];
    }
    if (r % 10 == 9) continue;
    const struct token_row *row = &store.rows[at++];
    assert_int_equal(row->n, c.row.n);
    assert_memory_equal(row->tokens, c.tokens, sizeof(int32_t) * (size_t)row->n);
    assert_memory_equal(row->mask, c.mask, (size_t)row->n);
    assert_int_equal(row->source, r % 2);
    assert_true(row->hash == token_row_hash(c.tokens, c.mask, c.row.n));
    n_tokens += (uint64_t)row->n;
  }
  assert_int_equal(store.n_tokens, n_tokens);
  assert_int_equal(store.n_trained, n_trained);
  static const struct {
    enum count_group group;
    size_t index;
  } groups[] = {{COUNT_TOTAL, 0}, {COUNT_SOURCE, 0}, {COUNT_SOURCE, 1}, {COUNT_LANGUAGE, 0}, {COUNT_LANGUAGE, 1}};
  for (size_t g = 0; g < 5; g++) { /* row 0 is Greek */
    uint64_t *counts;
    assert_ok(token_store_counts(&store, groups[g].group, groups[g].index, &counts, &err), &err);
    assert_memory_equal(counts, expected[g], sizeof expected[0]);
    free(counts);
  }
  uint64_t hash = store.hash;
  token_store_close(&store);
  assert_ok(token_store_open(&store, *state, true, &err), &err);
  assert_int_equal(store.n_rows, 10);
  assert_true(store.hash != hash);
  token_store_close(&store);
}

/* The mask is part of a row's identity: the same text trained elsewhere is other data. */
static void test_hash(void **state) {
  (void)state;
  const int32_t tokens[] = {1, 2, 3};
  const uint8_t a[] = {0, 1, 1}, b[] = {0, 0, 1};
  assert_true(token_row_hash(tokens, a, 3) != token_row_hash(tokens, b, 3));
  assert_true(token_row_hash(tokens, a, 3) != token_row_hash(tokens, a, 2));
}

static void test_rewriting(void **state) {
  struct token_store store;
  struct eaglet_error err = {0};
  write_rows(*state, 30, 0);
  json_t *manifest = manifest_of(N_TARGET);
  const struct token_writer_params params = {.directory = *state, .manifest = manifest};
  struct token_writer *writer;
  struct content c;
  make_row(&c, 77);
  assert_ok(token_writer_open(&writer, &params, &err), &err); /* a run that gives up */
  assert_ok(token_writer_add(writer, &c.row, &(struct row_origin){.source = "x"}, false, &err), &err);
  token_writer_free(writer);
  assert_ok(token_store_open(&store, *state, false, &err), &err);
  assert_int_equal(store.n_rows, 27);
  token_store_close(&store);
  write_rows(*state, 3, 50); /* and one that replaces: no validation row, so no validation shard stays */
  assert_ok(token_store_open(&store, *state, false, &err), &err);
  assert_int_equal(store.n_rows, 3);
  token_store_close(&store);
  assert_ok(token_store_open(&store, *state, true, &err), &err);
  assert_int_equal(store.n_rows, 0);
  token_store_close(&store);
  json_decref(manifest);
}

static void test_writer_refuses(void **state) {
  json_t *manifest = manifest_of(N_TARGET), *bare = json_object();
  struct token_writer_params params = {.directory = *state, .manifest = bare};
  struct token_writer *writer;
  struct content c;
  struct eaglet_error err = {0};
  assert_failed_with(token_writer_open(&writer, &params, &err), EAGLET_E_INPUT, &err, "n_target");
  params.manifest = manifest;
  assert_ok(token_writer_open(&writer, &params, &err), &err);
  make_row(&c, 1);
  c.tokens[2] = N_TARGET;
  assert_failed_with(token_writer_add(writer, &c.row, &(struct row_origin){.source = "s"}, false, &err), EAGLET_E_INPUT, &err,
                     "token 50 at 2: the vocabulary has 50 ids");
  token_writer_free(writer);
  json_decref(manifest);
  json_decref(bare);
}

static void expect_refusal(const char *directory, const char *words) {
  struct token_store store;
  struct eaglet_error err = {0};
  assert_failed_with(token_store_open(&store, directory, false, &err), EAGLET_E_INPUT, &err, words);
}

static void test_damage(void **state) {
  const char *directory = *state;
  expect_refusal(directory, "manifest.json: not there");
  write_rows(directory, 20, 0);
  struct eaglet_text shard = scratch_read(directory, "train-00000.safetensors"),
                     manifest = scratch_read(directory, "manifest.json");
  for (size_t at = 0; at < shard.length; at += 37) { /* any byte: header, offsets, ids, marks */
    shard.data[at] ^= 1;
    free(scratch_write_bytes(directory, "train-00000.safetensors", shard.data, shard.length));
    expect_refusal(directory, "train-00000.safetensors");
    shard.data[at] ^= 1;
  }
  free(scratch_write_bytes(directory, "train-00000.safetensors", shard.data, shard.length - 1));
  expect_refusal(directory, "train-00000.safetensors");
  char *path = file_join(directory, "train-00000.safetensors");
  unlink(path);
  expect_refusal(directory, "train-00000.safetensors");
  free(path);
  free(scratch_write_bytes(directory, "train-00000.safetensors", shard.data, shard.length));
  free(scratch_write(directory, "manifest.json", "{\"format\":\"eaglet-features\",\"version\":1}"));
  expect_refusal(directory, "manifest.json: format: expected eaglet-tokens");
  free(scratch_write(directory, "manifest.json", "{\"format\":\"eaglet-tokens\",\"version\":2,\"n_target\":50}"));
  expect_refusal(directory, "manifest.json: version: expected 1, found 2");
  json_t *json = json_loads(manifest.data, 0, NULL); /* a vocabulary that the rows do not fit */
  json_object_set_new(json, "n_target", json_integer(10));
  struct eaglet_text text = json_dump(json, 0);
  free(scratch_write(directory, "manifest.json", text.data));
  expect_refusal(directory, "the vocabulary has 10 ids");
  json_decref(json);
  free(text.data);
  free(shard.data);
  free(manifest.data);
}

/* ---- features ---- */

struct features {
  struct token_store tokens;
  struct feature_layout layout;
  float *states[200];
};

static float value_of(size_t row, size_t i) {
  return (float)sin((double)(row * 1000 + i)) * 3.0f;
}

static void features_make(struct features *f, const char *tokens, enum dtype dtype) {
  struct eaglet_error err = {0};
  assert_ok(token_store_open(&f->tokens, tokens, false, &err), &err);
  f->layout = (struct feature_layout){
      .n_states = N_STATES, .states = {2, 5}, .n_layers = N_LAYERS, .hidden = HIDDEN, .dtype = dtype};
  for (size_t r = 0; r < f->tokens.n_rows; r++) {
    size_t n = (size_t)f->tokens.rows[r].n * (N_STATES + 1) * HIDDEN;
    f->states[r] = memory_alloc(n * sizeof(float));
    for (size_t i = 0; i < n; i++) f->states[r][i] = value_of(r, i);
  }
}

static struct feature_shard shard_of(const struct features *f, size_t first, size_t n) {
  return (struct feature_shard){.layout = &f->layout,
                                .rows = f->tokens.rows + first,
                                .n_rows = n,
                                .states = (const float *const *)f->states + first,
                                .width = (N_STATES + 1) * HIDDEN,
                                .last = N_STATES * HIDDEN};
}

static void features_write(struct features *f, const char *directory) {
  char hash[HASH_TEXT_BYTES], *path = file_join(directory, "manifest.json");
  bool existed;
  struct eaglet_error err = {0};
  hash_text(hash, f->tokens.hash);
  json_t *facts = json_pack("{ss}", "token_hash", hash);
  assert_ok(feature_manifest_write(path, &f->layout, facts, &existed, &err), &err);
  assert_false(existed);
  assert_ok(feature_manifest_write(path, &f->layout, facts, &existed, &err), &err);
  assert_true(existed);
  free(path);
  for (size_t s = 0; s * FEATURE_ROWS < f->tokens.n_rows; s++) {
    size_t first = s * FEATURE_ROWS,
           n = f->tokens.n_rows - first < FEATURE_ROWS ? f->tokens.n_rows - first : FEATURE_ROWS;
    struct feature_shard shard = shard_of(f, first, n), other = shard;
    assert_false(feature_shard_done(directory, s, &shard));
    assert_ok(feature_shard_write(directory, s, &shard, &err), &err);
    assert_true(feature_shard_done(directory, s, &shard));
    other.n_rows--;
    assert_false(feature_shard_done(directory, s, &other));
    other = shard_of(f, 0, n);
    if (first > 0) assert_false(feature_shard_done(directory, s, &other)); /* other rows */
    struct feature_layout layout = f->layout;
    layout.dtype = layout.dtype == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
    shard.layout = &layout;
    assert_false(feature_shard_done(directory, s, &shard)); /* another store */
    char *file = feature_shard_path(directory, s);
    uint64_t n_tokens = 0, length = (uint64_t)file_length(file);
    for (size_t r = first; r < first + n; r++) n_tokens += (uint64_t)f->tokens.rows[r].n;
    assert_in_range(feature_shard_bytes(&f->layout, n, n_tokens), length, length + 1024);
    free(file);
  }
  json_decref(facts);
}

static void features_free(struct features *f) {
  for (size_t r = 0; r < f->tokens.n_rows; r++) free(f->states[r]);
  token_store_close(&f->tokens);
}

/* What the store must give for a stored number; FP8: within half a step of the scale's or 1/16 of it. */
static void assert_stored(float found, float value, enum dtype dtype, float largest) {
  if (dtype == DTYPE_F32) assert_true(found == value);
  else if (dtype == DTYPE_BF16) assert_true(found == dtype_bf16_to_f32(dtype_f32_to_bf16(value)));
  else assert_true(fabsf(found - value) <= fmaxf(fabsf(value) / 16, largest / 448 * 0x1p-10f) * 1.0001f);
}

static void test_features_round_trip(void **state) {
  const struct {
    enum dtype dtype;
    enum feature_last last;
  } cases[] = {{DTYPE_F32, FEATURE_LAST_RESIDUAL}, {DTYPE_BF16, FEATURE_LAST_RESIDUAL}, {DTYPE_F8_E4M3, FEATURE_LAST_RESIDUAL},
               {DTYPE_BF16, FEATURE_LAST_NONE}, {DTYPE_F8_E4M3, FEATURE_LAST_NONE}};
  write_rows(*state, 150, 0); /* 135 training rows: three shards */
  for (size_t d = 0; d < sizeof cases / sizeof *cases; d++) {
    struct features f;
    struct feature_store *store;
    struct eaglet_error err = {0};
    char *directory = memory_format("%s/features-%zu", (char *)*state, d);
    assert_ok(file_make_directory(directory, &err), &err);
    features_make(&f, *state, cases[d].dtype);
    f.layout.last = cases[d].last;
    features_write(&f, directory);
    assert_ok(feature_store_open(&store, directory, &f.tokens, &err), &err);
    assert_int_equal(feature_store_layout(store)->n_states, N_STATES);
    assert_int_equal(feature_store_layout(store)->states[1], 5);
    assert_int_equal(feature_store_layout(store)->last, cases[d].last);
    assert_true(store->named && store->n_covered == f.tokens.n_rows && feature_store_has(store, 0));
    size_t slots = (size_t)feature_layout_slots(&f.layout);
    for (size_t r = f.tokens.n_rows; r-- > 0;) {
      size_t n = (size_t)f.tokens.rows[r].n;
      float *read = memory_alloc(n * slots * HIDDEN * sizeof(float));
      assert_ok(feature_store_read(store, r, read, &err), &err);
      for (size_t i = 0; i < n * slots; i++) {
        size_t from = (i / slots * (N_STATES + 1) + i % slots) * HIDDEN;
        float largest = 0;
        for (size_t k = 0; k < HIDDEN; k++) largest = fmaxf(largest, fabsf(value_of(r, from + k)));
        for (size_t k = 0; k < HIDDEN; k++) assert_stored(read[i * HIDDEN + k], value_of(r, from + k), cases[d].dtype, largest);
      }
      free(read);
    }
    feature_store_close(store);
    features_free(&f);
    free(directory);
  }
}

/* D14: three states and the last of Kimi-K2 over a million rows of 2048 tokens: 57,344 bytes a token and its id. */
static void test_size(void **state) {
  (void)state;
  struct feature_layout layout = {.n_states = 3, .hidden = 7168, .dtype = DTYPE_BF16};
  assert_int_equal(feature_token_bytes(&layout), 57344 + 4);
  assert_in_range(feature_shard_bytes(&layout, 64, 64 * 2048) * (1000000 / 64), 117400000000000, 117600000000000);
  layout.last = FEATURE_LAST_NONE;
  assert_int_equal(feature_token_bytes(&layout), 3 * 7168 * 2 + 4);
  layout.dtype = DTYPE_F8_E4M3;
  layout.last = FEATURE_LAST_RESIDUAL;
  assert_int_equal(feature_token_bytes(&layout), 4 * (7168 + 4) + 4);
}

/* Every byte of a shard counts: whatever is changed, the examination finds it, with the rows at hand or without. */
static void test_examination(void **state) {
  const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F8_E4M3};
  for (size_t d = 0; d < 2; d++) {
    struct features f;
    struct eaglet_error err = {0};
    struct feature_verdict verdict;
    char *directory = memory_format("%s/features-%zu", (char *)*state, d), *path = feature_shard_path(directory, 0);
    assert_ok(file_make_directory(directory, &err), &err);
    write_rows(*state, 5, 0);
    features_make(&f, *state, dtypes[d]);
    features_write(&f, directory);
    struct feature_examination expected = {.layout = &f.layout, .rows = f.tokens.rows, .n_rows = f.tokens.n_rows}, alone = expected;
    alone.rows = NULL;
    assert_ok(feature_shard_examine(&verdict, path, &expected, &err), &err);
    assert_ok(feature_shard_examine(&verdict, path, &alone, &err), &err);
    assert_true(verdict.n_rows == f.tokens.n_rows && verdict.n_tokens == f.tokens.n_tokens && !verdict.unhashed);
    struct eaglet_text whole = scratch_read(directory, "rows-00000.safetensors");
    size_t header;
    memcpy(&header, whole.data, 8);
    for (size_t at = 8 + header; at < whole.length; at += 5) {
      whole.data[at] ^= 0x10;
      free(scratch_write_bytes(directory, "rows-00000.safetensors", whole.data, whole.length));
      assert_int_equal(feature_shard_examine(&verdict, path, at % 2 ? &expected : &alone, &err), EAGLET_E_INPUT);
      whole.data[at] ^= 0x10;
    }
    features_free(&f);
    free(whole.data), free(directory), free(path);
  }
}

/* D15: zeros are no state. Their checksum may be right: what wrote them was wrong. */
static void test_zeros(void **state) {
  struct features f;
  struct feature_store *store;
  struct eaglet_error err = {0};
  struct feature_verdict verdict;
  char *directory = memory_format("%s/features", (char *)*state), *path = feature_shard_path(directory, 0);
  assert_ok(file_make_directory(directory, &err), &err);
  write_rows(*state, 5, 0);
  features_make(&f, *state, DTYPE_BF16);
  memset(f.states[2] + 1 * (N_STATES + 1) * HIDDEN + HIDDEN, 0, HIDDEN * sizeof(float)); /* token 1, the second input: state 5 */
  f.states[2][2 * (N_STATES + 1) * HIDDEN + HIDDEN] = NAN;
  features_write(&f, directory);
  const struct feature_examination expected = {.layout = &f.layout, .rows = f.tokens.rows, .n_rows = f.tokens.n_rows};
  assert_true(f.tokens.rows[2].n > 2);
  assert_failed_with(feature_shard_examine(&verdict, path, &expected, &err), EAGLET_E_INPUT, &err, "row 2, token 1, state 5: expected a state, found zeros");
  assert_true(verdict.fault.n_zero == 1 && verdict.fault.n_not_finite == 1);
  assert_ok(feature_store_open(&store, directory, &f.tokens, &err), &err);
  float *row = memory_alloc((size_t)f.tokens.rows[2].n * (N_STATES + 1) * HIDDEN * sizeof *row);
  assert_failed_with(feature_store_read(store, 2, row, &err), EAGLET_E_INPUT, &err, "row 2, token 1, state 5: expected a state, found zeros");
  feature_store_close(store);
  features_free(&f);
  free(row), free(directory), free(path);
}

static void test_features_refused(void **state) {
  struct features f;
  struct feature_store *store;
  struct eaglet_error err = {0};
  char *directory = memory_format("%s/features", (char *)*state), *other = memory_format("%s/other", (char *)*state),
       *shard = memory_format("%s/features/rows-00001.safetensors", (char *)*state);
  assert_ok(file_make_directory(directory, &err), &err);
  write_rows(*state, 100, 0);
  write_rows(other, 100, 3);
  features_make(&f, *state, DTYPE_BF16);
  features_write(&f, directory);
  struct token_store others;
  assert_ok(token_store_open(&others, other, false, &err), &err);
  assert_failed_with(feature_store_open(&store, directory, &others, &err), EAGLET_E_INPUT, &err, "token_hash");
  token_store_close(&others);
  /* D04: states of another kind. D15: a number that is none is told where it stands. */
  struct eaglet_text manifest = scratch_read(directory, "manifest.json");
  char *kind = strstr(manifest.data, "before the final norm");
  assert_non_null(kind);
  memcpy(kind, "behind", 6);
  free(scratch_write_bytes(directory, "manifest.json", manifest.data, manifest.length));
  assert_failed_with(feature_store_open(&store, directory, &f.tokens, &err), EAGLET_E_INPUT, &err, "manifest.json: convention: expected 'residual stream after k layers, before");
  memcpy(kind, "before", 6);
  free(scratch_write_bytes(directory, "manifest.json", manifest.data, manifest.length));
  free(manifest.data);
  struct eaglet_text first = scratch_read(directory, "rows-00000.safetensors");
  const uint16_t infinite = 0x7f80;
  uint16_t kept;
  char *last = first.data + first.length - 2; /* of the last state of the shard's last token */
  memcpy(&kept, last, 2);
  memcpy(last, &infinite, 2);
  free(scratch_write_bytes(directory, "rows-00000.safetensors", first.data, first.length));
  assert_ok(feature_store_open(&store, directory, &f.tokens, &err), &err);
  float *row = memory_alloc((size_t)f.tokens.rows[63].n * (N_STATES + 1) * HIDDEN * sizeof *row);
  char *words = memory_format("rows-00000.safetensors: row 63, token %d, state %d: expected finite numbers, found inf", f.tokens.rows[63].n - 1, N_LAYERS);
  assert_failed_with(feature_store_read(store, 63, row, &err), EAGLET_E_INPUT, &err, words);
  feature_store_close(store);
  free(words);
  free(row);
  memcpy(last, &kept, 2);
  free(scratch_write_bytes(directory, "rows-00000.safetensors", first.data, first.length));
  free(scratch_write_bytes(directory, "rows-00001.safetensors", first.data,
                           first.length)); /* a shard in another's place */
  assert_failed_with(feature_store_open(&store, directory, &f.tokens, &err), EAGLET_E_INPUT, &err,
                     "rows-00001.safetensors");
  assert_int_equal(unlink(shard), 0);
  assert_failed_with(feature_store_open(&store, directory, &f.tokens, &err), EAGLET_E_INPUT, &err,
                     "rows-00001.safetensors: not there: the extraction did not finish");
  free(first.data);
  free(directory);
  free(other);
  free(shard);
  features_free(&f);
}

/* A full disk: the write fails as a resource, no half file stays, and what was there is untouched. */
static void test_full_disk(void **state) {
  struct features f;
  struct eaglet_error err = {0};
  write_rows(*state, 64, 0);
  features_make(&f, *state, DTYPE_F32);
  const struct feature_shard shard = shard_of(&f, 0, f.tokens.n_rows);
  struct rlimit before, small = {.rlim_cur = 20000};
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small.rlim_max = before.rlim_max;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  enum eaglet_status status = feature_shard_write(*state, 0, &shard, &err);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  assert_failed_with(status, EAGLET_E_RESOURCE, &err, "rows-00000.safetensors");
  struct file_list list = {0};
  assert_ok(file_list_directory(&list, *state, &err), &err);
  for (size_t i = 0; i < list.n; i++) assert_null(strstr(list.names[i], "rows-"));
  file_list_clear(&list);
  features_free(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_round_trip, scratch_create, scratch_remove),
      cmocka_unit_test(test_hash),
      cmocka_unit_test_setup_teardown(test_rewriting, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_writer_refuses, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_damage, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_features_round_trip, scratch_create, scratch_remove),
      cmocka_unit_test(test_size),
      cmocka_unit_test_setup_teardown(test_examination, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_zeros, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_features_refused, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_full_disk, scratch_create, scratch_remove),
  };
  return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
