/* test_feature_kinds.c - training from stores of every kind. Method: the target's own states are written as other programs would write them,
 * rightly and with the mistakes that were made in public (one layer early, one late, normed or not); the probe must name what is there or
 * refuse it, and a run from a foreign store must be, bit for bit, the run from ours. */
#include "../data/foreign_writer.h"

#include "base/util.h"
#include "data/feature_shard.h"
#include "data/foreign_store.h"
#include "engine/capture.h"
#include "train/extract.h"
#include "train/feature_check.h"
#include "train/feature_probe.h"
#include "train/feature_source.h"
#include "train/trainer.h"

#include <math.h>

enum { ROWS = 10, LENGTH = 24, LAYERS = 8, HIDDEN = 320, NORMED = LAYERS + 1, STATES = LAYERS + 2 };

struct world {
  char *model_path, *directory, *data; /* data: as prepare would have written it */
  struct compute *compute;
  struct model *model;
  struct token_store tokens;
  float *states[ROWS]; /* [n, STATES * HIDDEN]: states 0 .. 8, and 8 behind the norm */
};

static void write_data(const struct world *w) {
  struct eaglet_error err = {0};
  struct token_writer *writer;
  json_t *manifest = json_pack("{si}", "n_target", 4096);
  assert_ok(token_writer_open(&writer, &(struct token_writer_params){.directory = w->data, .manifest = manifest}, &err), &err);
  for (int32_t row = 0; row < ROWS; row++) {
    int32_t tokens[LENGTH], n = LENGTH - row % 5;
    uint8_t mask[LENGTH];
    for (int32_t t = 0; t < n; t++) {
      tokens[t] = 100 + (int32_t)(random_u64(3, (uint64_t)row, (uint64_t)t) % 400);
      mask[t] = t >= 8;
    }
    const struct token_row r = {.tokens = tokens, .mask = mask, .n = n};
    assert_ok(token_writer_add(writer, &r, &(struct row_origin){.source = "test"}, false, &err), &err);
  }
  assert_ok(token_writer_commit(writer, NULL, &err), &err);
  token_writer_free(writer);
  json_decref(manifest);
}

static void capture_states(struct world *w) {
  struct eaglet_error err = {0};
  struct capture *capture;
  struct capture_params params = {.model = w->model, .tokens_max = LENGTH};
  for (int32_t k = 0; k <= LAYERS; k++) params.taps.states[params.taps.n++] = k;
  assert_ok(capture_create(&capture, &params, &err), &err);
  for (size_t r = 0; r < ROWS; r++) {
    const struct token_row *row = &w->tokens.rows[r];
    size_t n = (size_t)row->n, taps = (size_t)(LAYERS + 1) * HIDDEN, width = (size_t)STATES * HIDDEN;
    float *all = memory_alloc(sizeof(float) * n * taps);
    w->states[r] = memory_alloc(sizeof(float) * n * width);
    assert_ok(capture_run(capture, &row->tokens, &row->n, 1, &all, &err), &err);
    for (size_t t = 0; t < n; t++) {
      memcpy(w->states[r] + t * width, all + t * taps, sizeof(float) * taps);
      model_final_norm(w->compute, w->model, w->states[r] + t * width + taps, all + (t + 1) * taps - HIDDEN, 1);
    }
    free(all);
  }
  capture_free(capture);
}

static int world_create(void **state) {
  struct world *w = memory_alloc(sizeof *w);
  struct eaglet_error err = {0};
  const char *root = getenv("EAGLET_TEST_ROOT");
  *state = w;
  if (scratch_create((void **)&w->directory) != 0) return -1;
  w->model_path = file_join(root ? root : ".", "models/nano-kimi");
  w->data = file_join(w->directory, "data");
  write_data(w);
  assert_ok(token_store_open(&w->tokens, w->data, false, &err), &err);
  assert_ok(compute_open_cpu(&w->compute, 2, EAGLET_PRECISION_EXACT, &err), &err);
  const struct model_params params = {.path = w->model_path, .compute = w->compute};
  assert_ok(model_open(&w->model, &params, &err), &err);
  capture_states(w);
  return 0;
}

static int world_remove(void **state) {
  struct world *w = *state;
  for (size_t r = 0; r < ROWS; r++) free(w->states[r]);
  model_close(w->model);
  compute_close(w->compute);
  token_store_close(&w->tokens);
  int failed = scratch_remove((void **)&w->directory);
  free(w->model_path), free(w->data), free(w);
  return failed;
}

/* A store of n_slots states in the order given; NORMED: the last one behind the norm. scale: of all numbers. */
struct recipe {
  enum foreign_kind kind;
  enum dtype dtype;
  int32_t slots[8], n_slots;
  float scale;
  size_t n_rows; /* 0: all */
};

static char *store_make(const struct world *w, const char *name, const struct recipe *recipe) {
  char *directory = file_join(w->directory, name);
  struct eaglet_error err = {0};
  assert_ok(file_make_directory(directory, &err), &err);
  for (size_t r = 0; r < (recipe->n_rows ? recipe->n_rows : ROWS); r++) {
    const struct token_row *row = &w->tokens.rows[r];
    size_t width = (size_t)recipe->n_slots * HIDDEN;
    float *states = memory_alloc(sizeof(float) * (size_t)row->n * width);
    for (size_t t = 0; t < (size_t)row->n; t++) {
      for (int32_t s = 0; s < recipe->n_slots; s++) {
        const float *from = w->states[r] + (t * STATES + (size_t)recipe->slots[s]) * HIDDEN;
        for (size_t i = 0; i < HIDDEN; i++) states[t * width + (size_t)s * HIDDEN + i] = from[i] * (recipe->scale != 0 ? recipe->scale : 1);
      }
    }
    const struct foreign_row foreign = {.ids = row->tokens, .mask = row->mask, .states = states, .n = row->n, .n_slots = recipe->n_slots, .hidden = HIDDEN, .dtype = recipe->dtype};
    foreign_write(directory, recipe->kind, r, &foreign);
    free(states);
  }
  return directory;
}

static enum eaglet_status probe(const struct world *w, const char *directory, struct feature_layout *layout, struct eaglet_error *err) {
  struct feature_store *store;
  json_t *table = NULL;
  assert_ok(feature_store_open(&store, directory, &w->tokens, err), err);
  enum eaglet_status status = feature_probe_run(store, w->model, &table, err);
  assert_int_equal(json_array_size(table), feature_layout_slots(&store->layout));
  assert_int_equal(store->named, status == EAGLET_OK);
  *layout = store->layout;
  json_decref(table);
  feature_store_close(store);
  return status;
}

/* Every format and both types: the states are what they are, whatever number their program gives them. */
static void test_probe_names(void **state) {
  static const struct {
    struct recipe recipe;
    int32_t states[7], n_states;
    enum feature_last last;
  } cases[] = {
      {{FOREIGN_HEAD, DTYPE_BF16, {2, 4, 5, 8}, 4, 0, 0}, {2, 4, 5}, 3, FEATURE_LAST_RESIDUAL},
      {{FOREIGN_HEAD_FP8, DTYPE_F32, {2, 4, 5, 8}, 4, 0, 0}, {2, 4, 5}, 3, FEATURE_LAST_RESIDUAL},
      {{FOREIGN_030, DTYPE_BF16, {3, 5, 6, 8}, 4, 0, 0}, {3, 5, 6}, 3, FEATURE_LAST_RESIDUAL}, /* its ids 2, 4, 5 mean these (D02) */
      {{FOREIGN_0, DTYPE_BF16, {2, 4, 5, NORMED}, 4, 0, 0}, {2, 4, 5}, 3, FEATURE_LAST_NORMED}, /* D04 */
      {{FOREIGN_SPECFORGE_GZ, DTYPE_BF16, {1, 3, 4, NORMED}, 4, 0, 0}, {1, 3, 4}, 3, FEATURE_LAST_NORMED},
      {{FOREIGN_MODELOPT, DTYPE_F32, {0, 8, 8}, 3, 0, 0}, {0, 8}, 2, FEATURE_LAST_RESIDUAL},
      {{FOREIGN_MODELOPT, DTYPE_F16, {1, 2, 3, 4, 5, 6, 7, 8}, 8, 0, 0}, {1, 2, 3, 4, 5, 6, 7}, 7, FEATURE_LAST_RESIDUAL},
  };
  const struct world *w = *state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[32];
    struct feature_layout layout;
    struct eaglet_error err = {0};
    snprintf(name, sizeof name, "named-%zu", i);
    char *directory = store_make(w, name, &cases[i].recipe);
    assert_ok(probe(w, directory, &layout, &err), &err);
    assert_int_equal(layout.n_states, cases[i].n_states);
    assert_int_equal(layout.n_layers, LAYERS);
    assert_memory_equal(layout.states, cases[i].states, sizeof(int32_t) * (size_t)layout.n_states);
    assert_int_equal(layout.last, cases[i].last);
    free(directory);
  }
}

static void test_probe_refuses(void **state) {
  static const struct {
    struct recipe recipe;
    const char *words;
  } cases[] = {
      /* D01 */
      {{FOREIGN_HEAD, DTYPE_BF16, {2, 4, 5, 7}, 4, 0, 0}, "the last slot holds state 7 (error 0.00"},
      {{FOREIGN_HEAD, DTYPE_BF16, {2, 4, 5, 6}, 4, 0, 0}, "before or behind the final norm: it was taken 2 layers early"},
      {{FOREIGN_030, DTYPE_BF16, {4, 2, 5, 8}, 4, 0, 0}, "slot 1 of 4: expected residual streams in ascending order, found state 2 behind state 4"},
      {{FOREIGN_030, DTYPE_BF16, {2, 2, 5, 8}, 4, 0, 0}, "slot 1 of 4: expected residual streams in ascending order"},
      {{FOREIGN_030, DTYPE_BF16, {2, 4, NORMED, 8}, 4, 0, 0}, "slot 2 of 4: expected residual streams in ascending order, found state 8 behind the final norm"},
      {{FOREIGN_0, DTYPE_BF16, {2, 4, 5, 8}, 4, 1.1f, 0}, "slot 0 of 4 fits no state of the target: the nearest is state 2 with an error of 0.1 (allowed"},
      {{FOREIGN_0, DTYPE_BF16, {2, 4, 5, 8}, 4, -1, 0}, "fits no state of the target"},
  };
  const struct world *w = *state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[32];
    struct feature_layout layout;
    struct eaglet_error err = {0};
    snprintf(name, sizeof name, "refused-%zu", i);
    char *directory = store_make(w, name, &cases[i].recipe);
    assert_failed_with(probe(w, directory, &layout, &err), EAGLET_E_INPUT, &err, cases[i].words);
    free(directory);
  }
}

/* ---- training ---- */

static struct eaglet_train_params train_params(const struct world *w, const char *data, const char *features) {
  return (struct eaglet_train_params){.model = w->model_path, .data = data, .features = features, .steps = 3, .batch = 4, .unroll = 3, .warmup = 2,
                                      .heads = 2, .kv_heads = 1, .head_dim = 16, .intermediate = 48, .seed = 9, .threads = 2};
}

static json_t *train_ok(const struct world *w, struct eaglet_train_params params, const char *out) {
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  char *path = file_join(w->directory, out);
  json_t *report = NULL;
  params.out = path;
  assert_ok(train_run(&params, &text, &err), &err);
  assert_ok(json_parse(&report, text.data, text.length, "report", &err), &err);
  free(text.data), free(path);
  return report;
}

static void train_fails(const struct world *w, struct eaglet_train_params params, const char *words) {
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  char *path = file_join(w->directory, "failed");
  params.out = path;
  assert_failed_with(train_run(&params, &text, &err), EAGLET_E_INPUT, &err, words);
  free(path);
}

static bool same_head(const struct world *w, const char *a, const char *b) {
  char *left = memory_format("%s/%s", w->directory, a), *right = memory_format("%s/%s", w->directory, b);
  struct eaglet_text x = scratch_read(left, "model.safetensors"), y = scratch_read(right, "model.safetensors");
  bool same = x.length == y.length && memcmp(x.data, y.data, x.length) == 0;
  free(left), free(right), free(x.data), free(y.data);
  return same;
}

static char *extract_to(const struct world *w, const char *name, struct eaglet_extract_params params) {
  char *out = file_join(w->directory, name);
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  params.model = w->model_path;
  params.data = w->data;
  params.out = out;
  assert_ok(extract_run(&params, &text, &err), &err);
  free(text.data);
  return out;
}

/* Ours, what we write for speculators, and stores of others with the same numbers: one run. */
static void test_same_training(void **state) {
  const struct world *w = *state;
  char *ours = extract_to(w, "ours", (struct eaglet_extract_params){0}),
       *theirs = extract_to(w, "theirs", (struct eaglet_extract_params){.format = EAGLET_FEATURES_SPECULATORS});
  json_decref(train_ok(w, train_params(w, w->data, ours), "head-ours"));
  json_t *report = train_ok(w, train_params(w, w->data, theirs), "head-theirs");
  assert_int_equal(json_array_size(json_object_get(report, "feature_slots")), 4);
  json_decref(report);
  assert_true(same_head(w, "head-ours", "head-theirs"));
  static const enum foreign_kind kinds[] = {FOREIGN_030, FOREIGN_SPECFORGE, FOREIGN_MODELOPT};
  for (size_t k = 0; k < 3; k++) {
    char name[32], out[32];
    snprintf(name, sizeof name, "store-%zu", k);
    snprintf(out, sizeof out, "head-%zu", k);
    char *store = store_make(w, name, &(struct recipe){kinds[k], DTYPE_BF16, {2, 4, 5, 8}, 4, 0, 0});
    json_decref(train_ok(w, train_params(w, store, store), out)); /* its own ids and masks */
    assert_true(same_head(w, "head-ours", out));
    free(store);
  }
  free(ours), free(theirs);
}

/* D04: a last state that is normed already is taken as it is. In F32 both give the same logits, so the same head. */
static void test_normed_last(void **state) {
  const struct world *w = *state;
  char *residual = store_make(w, "residual", &(struct recipe){FOREIGN_0, DTYPE_F32, {2, 4, 5, 8}, 4, 0, 0}),
       *normed = store_make(w, "normed", &(struct recipe){FOREIGN_0, DTYPE_F32, {2, 4, 5, NORMED}, 4, 0, 0});
  json_decref(train_ok(w, train_params(w, w->data, residual), "head-residual"));
  json_decref(train_ok(w, train_params(w, w->data, normed), "head-normed"));
  assert_true(same_head(w, "head-residual", "head-normed"));
  free(residual), free(normed);
}

/* D02: states of another convention are what they are; the head must ask for them. */
static void test_other_states(void **state) {
  const struct world *w = *state;
  char *late = store_make(w, "late", &(struct recipe){FOREIGN_030, DTYPE_BF16, {3, 5, 6, 8}, 4, 0, 0});
  struct eaglet_train_params params = train_params(w, w->data, late);
  train_fails(w, params, "expected states 2,4,5, the head's input, found states 3,5,6: with --states 3,5,6 the head takes these");
  params.states = "3,5,6";
  json_decref(train_ok(w, params, "head-late"));
  free(late);
}

static void test_partial(void **state) {
  const struct world *w = *state;
  char *part = store_make(w, "part", &(struct recipe){FOREIGN_HEAD, DTYPE_BF16, {2, 4, 5, 8}, 4, 0, 6});
  struct eaglet_train_params params = train_params(w, w->data, part);
  train_fails(w, params, "has states of 6 of 10 rows; --features-partial trains on those");
  params.features_partial = true;
  json_t *report = train_ok(w, params, "head-part");
  assert_int_equal(json_integer_value(json_object_get(report, "rows")), 6);
  json_decref(report);
  train_fails(w, train_params(w, part, part), "loss_mask: not there: prepare the conversations and pass that directory as --data");
  free(part);
}

/* Rows of a store without last states: the inputs are those of the store with them, the last state is what the rest of the target makes of
 * the deepest one, near the true one and nearer than its neighbours. */
static void test_recomputed_last(void **state) {
  const struct world *w = *state;
  const struct head_config config = {.n_states = 3, .states = {2, 4, 5}, .target_hidden = HIDDEN};
  char *directories[2] = {extract_to(w, "whole", (struct eaglet_extract_params){0}), extract_to(w, "aux", (struct eaglet_extract_params){.store = EAGLET_STORE_AUX})};
  struct feature_source sources[2];
  struct eaglet_error err = {0};
  for (int k = 0; k < 2; k++) {
    const struct feature_source_params params = {.model = w->model, .config = &config, .directory = directories[k], .tokens = &w->tokens, .tokens_max = LENGTH};
    assert_ok(feature_source_open(&sources[k], &params, &err), &err);
    assert_int_equal(sources[k].width, 4 * HIDDEN);
  }
  for (uint32_t r = 0; r < ROWS; r++) {
    int32_t n = w->tokens.rows[r].n - 3; /* not the whole row */
    float *read[2];
    double difference = 0, size = 0, rounding = 0;
    for (int k = 0; k < 2; k++) {
      read[k] = memory_alloc(sizeof(float) * LENGTH * 4 * HIDDEN);
      const struct feature_request request = {.tokens = &w->tokens, .rows = &r, .lengths = &n, .n = 1, .states = &read[k]};
      assert_ok(feature_source_read(&sources[k], &request, &err), &err);
    }
    for (int32_t t = 0; t < n; t++) {
      const float *last = w->states[r] + ((size_t)t * STATES + LAYERS) * HIDDEN;
      assert_memory_equal(read[0] + t * 4 * HIDDEN, read[1] + t * 4 * HIDDEN, sizeof(float) * 3 * HIDDEN);
      for (int32_t i = 0; i < HIDDEN; i++) {
        difference += pow((double)read[1][(t * 4 + 3) * HIDDEN + i] - (double)last[i], 2);
        rounding += pow((double)read[0][(t * 4 + 3) * HIDDEN + i] - (double)last[i], 2);
        size += pow((double)last[i], 2);
      }
    }
    assert_true(rounding > 0 && sqrt(rounding / size) < 0x1p-8);
    assert_true(difference > 0 && sqrt(difference / size) < 0.02);
    free(read[0]), free(read[1]);
  }
  for (int k = 0; k < 2; k++) {
    feature_source_close(&sources[k]);
    free(directories[k]);
  }
}

/* A store that is run again in another kind must not be taken for the one before. */
static void test_train_every_store(void **state) {
  const struct world *w = *state;
  static const char *const names[] = {"bf16", "f32", "fp8", "aux"};
  double losses[4];
  for (int s = 0; s < 4; s++) {
    char out[32];
    char *features = extract_to(w, names[s], (struct eaglet_extract_params){.store = (enum eaglet_store)s});
    snprintf(out, sizeof out, "head-%s", names[s]);
    json_t *report = train_ok(w, train_params(w, w->data, features), out);
    losses[s] = json_real_value(json_object_get(report, "loss"));
    json_decref(report);
    for (int k = 0; k < s; k++) {
      char other[32];
      snprintf(other, sizeof other, "head-%s", names[k]);
      assert_false(same_head(w, out, other));
    }
    assert_true(fabs(losses[s] - losses[0]) < 0.02 * losses[0]);
    free(features);
  }
}

/* A manifest that names other weights is not believed in the rest either: the states are measured. The right ones train the same head. */
static void test_other_model(void **state) {
  const struct world *w = *state;
  char *features = extract_to(w, "features", (struct eaglet_extract_params){.store = EAGLET_STORE_F32});
  json_decref(train_ok(w, train_params(w, w->data, features), "head-before"));
  struct eaglet_text text = scratch_read(features, "manifest.json");
  json_t *manifest = json_loads(text.data, 0, NULL);
  json_object_set_new(manifest, "model_hash", json_string("0123456789abcdef"));
  struct eaglet_text other = json_dump(manifest, 0);
  free(scratch_write(features, "manifest.json", other.data));
  json_t *report = train_ok(w, train_params(w, w->data, features), "head-after");
  assert_int_equal(json_array_size(json_object_get(report, "feature_slots")), 4);
  assert_true(same_head(w, "head-before", "head-after"));
  json_object_set_new(manifest, "states", json_pack("[iii]", 2, 4, 6));
  free(other.data);
  other = json_dump(manifest, 0);
  free(scratch_write(features, "manifest.json", other.data));
  struct eaglet_train_params params = train_params(w, w->data, features);
  params.states = "2,4,6";
  train_fails(w, params, "expected states 2,4,6, the head's input, found states 2,4,5");
  json_decref(report), json_decref(manifest);
  free(text.data), free(other.data), free(features);
}

/* ---- check ---- */

static json_t *check(const struct world *w, const char *features, const char *data, bool with_model, const char *words) {
  const struct eaglet_check_features_params params = {.features = features, .data = data, .model = with_model ? w->model_path : NULL, .threads = 2};
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  json_t *report = NULL;
  enum eaglet_status status = feature_check_run(&params, &text, &err);
  if (words) assert_failed_with(status, EAGLET_E_CHECK, &err, words);
  else assert_ok(status, &err);
  assert_ok(json_parse(&report, text.data, text.length, "report", &err), &err);
  assert_int_equal(json_is_true(json_object_get(report, "ok")), words == NULL);
  free(text.data);
  return report;
}

static void test_check_foreign(void **state) {
  const struct world *w = *state;
  char *good = store_make(w, "good", &(struct recipe){FOREIGN_030, DTYPE_BF16, {2, 4, 5, 8}, 4, 0, 0}),
       *early = store_make(w, "early", &(struct recipe){FOREIGN_030, DTYPE_BF16, {2, 4, 5, 7}, 4, 0, 7}),
       *theirs = extract_to(w, "checked", (struct eaglet_extract_params){.format = EAGLET_FEATURES_SPECULATORS});
  json_decref(check(w, good, NULL, false, NULL));
  json_t *report = check(w, good, w->data, true, NULL);
  assert_int_equal(json_array_size(json_object_get(report, "slots")), 4);
  json_decref(report);
  json_decref(check(w, good, NULL, true, NULL));
  json_decref(check(w, early, NULL, true, "the last slot holds state 7"));
  json_decref(check(w, early, w->data, false, "3 of the rows are missing"));
  report = check(w, theirs, w->data, true, NULL);
  assert_int_equal(json_integer_value(json_object_get(report, "without_checksum")), 0);
  json_decref(report);
  struct eaglet_text whole = scratch_read(theirs, "hs_4.safetensors");
  whole.data[whole.length - 400] ^= 1; /* one bit of one id, or of a state */
  free(scratch_write_bytes(theirs, "hs_4.safetensors", whole.data, whole.length));
  report = check(w, theirs, w->data, true, "hs_4.safetensors: checksum: expected ");
  assert_int_equal(json_integer_value(json_object_get(report, "files_wrong")), 1);
  json_decref(report);
  struct eaglet_text torn = scratch_read(good, "data_3.pt");
  free(scratch_write_bytes(good, "data_3.pt", torn.data, torn.length / 2));
  json_decref(check(w, good, w->data, false, "data_3.pt"));
  free(whole.data), free(torn.data), free(good), free(early), free(theirs);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_probe_names, world_create, world_remove),
      cmocka_unit_test_setup_teardown(test_probe_refuses, world_create, world_remove),
      cmocka_unit_test_setup_teardown(test_same_training, world_create, world_remove),
      cmocka_unit_test_setup_teardown(test_normed_last, world_create, world_remove),
      cmocka_unit_test_setup_teardown(test_other_states, world_create, world_remove),
      cmocka_unit_test_setup_teardown(test_partial, world_create, world_remove),
      cmocka_unit_test_setup_teardown(test_recomputed_last, world_create, world_remove),
      cmocka_unit_test_setup_teardown(test_train_every_store, world_create, world_remove),
      cmocka_unit_test_setup_teardown(test_other_model, world_create, world_remove),
      cmocka_unit_test_setup_teardown(test_check_foreign, world_create, world_remove),
  };
  return cmocka_run_group_tests_name("feature_kinds", tests, NULL, NULL);
}
