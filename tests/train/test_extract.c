/* test_extract.c - hidden states to disk. Method: what is read back must equal a direct capture of each row alone; a
 * missing, torn or foreign shard must come back byte-identical, and so must all when processes share the work or are
 * killed; other settings, a full disk, a stop request and states that are no numbers are refused by name; the check
 * finds what is wrong. */
#include "pipeline.h"

#include "base/buffer.h"
#include "base/util.h"
#include "checkpoint/checkpoint.h"
#include "data/feature_shard.h"
#include "engine/capture.h"
#include "train/extract.h"
#include "train/feature_check.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define ROWS_SHORT FEATURE_ROWS /* one shard */
#define ROWS_LONG 8

struct paths {
  char *features, *shards[2];
};

/* 64 short rows and a few more, longer by n_words words: two shards. */
static void make_data(const struct pipeline *p, int n_words) {
  struct buffer rows;
  buffer_init(&rows);
  for (int i = 0; i < ROWS_SHORT + ROWS_LONG; i++) {
    buffer_format(&rows, "{\"messages\":[{\"role\":\"user\",\"content\":\"number %d", i);
    for (int k = 0; k < (i < ROWS_SHORT ? 0 : n_words); k++) buffer_format(&rows, " and %d", k * i % 17);
    buffer_format(&rows, "\"},{\"role\":\"assistant\",\"content\":\"it is %d\"}]}\n", i);
  }
  free(scratch_write(p->directory, "data.jsonl", rows.data));
  buffer_clear(&rows);
  struct eaglet_prepare_params params = prepare_params(p);
  json_decref(prepare_ok(&params));
}

static struct paths paths_make(const struct pipeline *p) {
  struct paths paths = {.features = file_join(p->directory, "features")};
  for (size_t i = 0; i < 2; i++) paths.shards[i] = feature_shard_path(paths.features, i);
  return paths;
}

static void paths_free(struct paths *paths) {
  free(paths->features);
  free(paths->shards[0]);
  free(paths->shards[1]);
}

static struct eaglet_extract_params extract_params(const struct pipeline *p, const struct paths *paths) {
  return (struct eaglet_extract_params){.model = p->model, .data = p->out, .out = paths->features};
}

static json_t *extract_ok(const struct eaglet_extract_params *params) {
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  assert_ok(extract_run(params, &text, &err), &err);
  return report_parse(&text);
}

static void extract_fails(const struct eaglet_extract_params *params, enum eaglet_status expected, const char *words) {
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  assert_failed_with(extract_run(params, &text, &err), expected, &err, words);
  assert_null(text.data);
}

static struct eaglet_text read_path(const char *path) {
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  assert_ok(file_read(&text, path, (size_t)1 << 30, &err), &err);
  return text;
}

static bool same_bytes(const char *path, const struct eaglet_text *expected) {
  struct eaglet_text found = read_path(path);
  bool same = found.length == expected->length && memcmp(found.data, expected->data, found.length) == 0;
  free(found.data);
  return same;
}

/* Every value of some rows, against a capture of that row alone. taps: the layout's states, then the last. */
static void compare_with_capture(const struct pipeline *p, const char *features, const int32_t *taps, int32_t n_taps,
                                 bool rounded) {
  struct compute *compute;
  struct model *model;
  struct capture *capture;
  struct feature_store *store;
  struct token_store tokens;
  struct eaglet_error err = {0};
  struct tap_set set = {0};
  store_open(&tokens, p->out);
  assert_ok(feature_store_open(&store, features, &tokens, &err), &err);
  assert_ok(compute_open_cpu(&compute, 2, EAGLET_PRECISION_EXACT, &err), &err);
  const struct model_params model_params = {.path = p->model, .compute = compute};
  assert_ok(model_open(&model, &model_params, &err), &err);
  for (int32_t i = 0; i < n_taps; i++) {
    if (i == 0 || taps[i] != taps[i - 1]) set.states[set.n++] = taps[i];
  }
  const struct capture_params capture_params = {.model = model, .taps = set, .tokens_max = 512};
  assert_ok(capture_create(&capture, &capture_params, &err), &err);
  for (size_t row = 0; row < tokens.n_rows; row += 23) {
    int32_t n = tokens.rows[row].n, hidden = feature_store_layout(store)->hidden;
    float *expected = memory_alloc(sizeof(float) * (size_t)(n * set.n * hidden)),
          *found = memory_alloc(sizeof(float) * (size_t)(n * n_taps * hidden));
    assert_ok(capture_run(capture, &tokens.rows[row].tokens, &n, 1, &expected, &err), &err);
    assert_ok(feature_store_read(store, row, found, &err), &err);
    for (int32_t t = 0; t < n; t++) {
      for (int32_t i = 0, at = 0; i < n_taps; i++) {
        at = i > 0 && taps[i] != taps[i - 1] ? at + 1 : at;
        for (int32_t k = 0; k < hidden; k++) {
          float value = expected[(t * set.n + at) * hidden + k];
          if (rounded) value = dtype_bf16_to_f32(dtype_f32_to_bf16(value));
          if (found[(t * n_taps + i) * hidden + k] != value) fail_msg("row %zu, token %d, tap %d, %d", row, t, i, k);
        }
      }
    }
    free(expected);
    free(found);
  }
  capture_free(capture);
  model_close(model);
  compute_close(compute);
  feature_store_close(store);
  token_store_close(&tokens);
}

static void test_values(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = extract_params(p, &paths);
  json_decref(extract_ok(&params));
  compare_with_capture(p, paths.features, (const int32_t[]){2, 4, 5, 8}, 4, true);
  params.states = "0,8"; /* the last state as an input of the head: stored for both uses */
  params.float32 = true;
  params.replace = true;
  json_decref(extract_ok(&params));
  compare_with_capture(p, paths.features, (const int32_t[]){0, 8, 8}, 3, false);
  paths_free(&paths);
}

static void test_announcement(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = extract_params(p, &paths);
  params.dry_run = true;
  json_t *report = extract_ok(&params);
  assert_false(file_is_directory(paths.features));
  assert_int_equal(report_int(report, "rows"), ROWS_SHORT + ROWS_LONG);
  assert_int_equal(report_int(report, "bytes_per_token"), 4 * 320 * 2 + 4);
  assert_int_equal(report_int(report, "shards_written"), 0);
  json_int_t announced = report_int(report, "bytes");
  assert_int_equal(report_int(report, "bytes_missing"), announced);
  json_decref(report);
  params.dry_run = false;
  report = extract_ok(&params);
  json_int_t found = file_length(paths.shards[0]) + file_length(paths.shards[1]);
  assert_in_range(announced, found, found + found / 20); /* never less than what comes */
  json_decref(report);
  paths_free(&paths);
}

static void test_resume(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = extract_params(p, &paths);
  json_t *report = extract_ok(&params);
  assert_int_equal(report_int(report, "shards_written"), 2);
  json_decref(report);
  struct eaglet_text shards[2] = {read_path(paths.shards[0]), read_path(paths.shards[1])};
  for (int damage = 0; damage < 3; damage++) { /* gone, torn, another shard's content */
    if (damage == 0) assert_int_equal(unlink(paths.shards[0]), 0);
    if (damage == 1) assert_int_equal(file_truncate(paths.shards[0], shards[0].length / 2, NULL), EAGLET_OK);
    if (damage == 2) assert_int_equal(file_write(paths.shards[0], shards[1].data, shards[1].length, NULL), EAGLET_OK);
    report = extract_ok(&params);
    assert_int_equal(report_int(report, "shards_written"), 1);
    assert_int_equal(report_int(report, "shards_skipped"), 1);
    json_decref(report);
    assert_true(same_bytes(paths.shards[0], &shards[0]) && same_bytes(paths.shards[1], &shards[1]));
  }
  free(shards[0].data);
  free(shards[1].data);
  paths_free(&paths);
}

/* Rows per shard follow the memory; what is there already decides how the rest is cut, and an older manifest means 64. */
static void test_memory(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = extract_params(p, &paths);
  params.memory_mib = 1;
  struct token_store tokens;
  store_open(&tokens, p->out);
  int32_t longest = 0;
  for (size_t i = 0; i < tokens.n_rows; i++) longest = tokens.rows[i].n > longest ? tokens.rows[i].n : longest;
  token_store_close(&tokens);
  json_t *report = extract_ok(&params);
  json_int_t rows = report_int(report, "shard_rows"), n_shards = (ROWS_SHORT + ROWS_LONG + rows - 1) / rows;
  assert_int_equal(rows, (1 << 20) / (longest * (320 * (4 * 4 * 2 + 4 * 2) + 4))); /* four states in F32, twice, and as stored */
  assert_in_range(rows, 2, 8);
  assert_int_equal(report_int(report, "shards_written"), n_shards);
  json_decref(report);
  compare_with_capture(p, paths.features, (const int32_t[]){2, 4, 5, 8}, 4, true);
  struct eaglet_text shard = read_path(paths.shards[1]);
  assert_int_equal(unlink(paths.shards[1]), 0);
  params.memory_mib = 0;
  report = extract_ok(&params);
  assert_int_equal(report_int(report, "shard_rows"), rows);
  assert_int_equal(report_int(report, "shards_written"), 1);
  assert_true(same_bytes(paths.shards[1], &shard));
  json_decref(report);
  free(shard.data);
  params.replace = true;
  params.float32 = true; /* other settings: all anew, by the memory there is now */
  report = extract_ok(&params);
  assert_int_equal(report_int(report, "shard_rows"), FEATURE_ROWS);
  json_decref(report);
  char *path = file_join(paths.features, "manifest.json");
  for (int64_t said = -1; said <= 100; said += said < 0 ? 1 : 100) { /* nothing, 0, 100 */
    json_t *manifest = NULL;
    assert_int_equal(json_parse_file(&manifest, path, NULL), EAGLET_OK);
    if (said < 0) json_object_del(manifest, "shard_rows");
    else json_object_set_new(manifest, "shard_rows", json_integer(said));
    struct eaglet_text text = json_dump(manifest, 0);
    assert_int_equal(file_write(path, text.data, text.length, NULL), EAGLET_OK);
    free(text.data);
    json_decref(manifest);
    params.replace = false;
    if (said >= 0) {
      extract_fails(&params, EAGLET_E_INPUT, "manifest.json: shard_rows: expected 1 to 64, found ");
      continue;
    }
    report = extract_ok(&params);
    assert_int_equal(report_int(report, "shards_written"), 0);
    json_decref(report);
  }
  params.memory_mib = 1;
  params.replace = true;
  json_decref(extract_ok(&params));
  params.data = p->out;
  make_data(p, 400); /* a row that does not fit even alone: one row a shard */
  report = extract_ok(&params);
  assert_int_equal(report_int(report, "shard_rows"), 1);
  json_decref(report);
  free(path);
  paths_free(&paths);
}

static void test_stop_request(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct stopper stopper = {.stop_at = 2}; /* after the first shard */
  struct eaglet_extract_params params = extract_params(p, &paths);
  params.progress = (struct eaglet_progress){stopper_report, &stopper};
  extract_fails(&params, EAGLET_E_INTERRUPTED, "stopped with 1 of 2 shards done");
  assert_true(file_exists(paths.shards[0]) && !file_exists(paths.shards[1]));
  stopper.stop_at = 0;
  json_t *report = extract_ok(&params);
  assert_int_equal(report_int(report, "shards_written"), 1);
  json_decref(report);
  paths_free(&paths);
}

static void test_other_settings(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = extract_params(p, &paths);
  json_decref(extract_ok(&params));
  struct eaglet_text shard = read_path(paths.shards[0]);
  params.states = "1,2";
  extract_fails(&params, EAGLET_E_INPUT, "manifest.json: states: expected [1,2], found [2,4,5]");
  params.states = NULL;
  params.float32 = true;
  extract_fails(&params, EAGLET_E_INPUT, "manifest.json: dtype: expected \"F32\", found \"BF16\"");
  assert_true(same_bytes(paths.shards[0], &shard)); /* a refusal touches nothing */
  params.replace = true;
  json_t *report = extract_ok(&params);
  assert_int_equal(report_int(report, "shards_written"), 2);
  json_decref(report);
  params = extract_params(p, &paths); /* other rows */
  params.float32 = true;
  struct eaglet_prepare_params prepare = prepare_params(p);
  prepare.validation = 0.3;
  json_decref(prepare_ok(&prepare));
  extract_fails(&params, EAGLET_E_INPUT, "manifest.json: token_hash");
  char *manifest = file_join(paths.features, "manifest.json");
  assert_int_equal(unlink(manifest), 0);
  extract_fails(&params, EAGLET_E_INPUT, "shards without manifest.json");
  params.states = "5,4";
  extract_fails(&params, EAGLET_E_USAGE, "ascending");
  params.states = "1,9";
  extract_fails(&params, EAGLET_E_USAGE, "expected 0..8, found 9");
  free(manifest);
  free(shard.data);
  paths_free(&paths);
}

/* A file system that takes no larger file stands for one that is full: the shard before stays, nothing half-written
 * does, and the run goes on where there is room. */
static void test_full_disk(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 100);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = extract_params(p, &paths);
  json_decref(extract_ok(&params));
  struct eaglet_text shards[2] = {read_path(paths.shards[0]), read_path(paths.shards[1])};
  assert_true(shards[1].length > shards[0].length + 4096);
  assert_int_equal(unlink(paths.shards[0]) + unlink(paths.shards[1]), 0);
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = (struct rlimit){.rlim_cur = shards[0].length + 4096, .rlim_max = before.rlim_max};
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = extract_run(&params, &text, &err);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  assert_failed_with(status, EAGLET_E_RESOURCE, &err, "rows-00001.safetensors");
  assert_true(same_bytes(paths.shards[0], &shards[0]));
  struct file_list list = {0};
  assert_int_equal(file_list_directory(&list, paths.features, NULL), EAGLET_OK);
  assert_int_equal(list.n, 2); /* manifest.json and the first shard */
  file_list_clear(&list);
  json_t *report = extract_ok(&params);
  assert_int_equal(report_int(report, "shards_skipped"), 1);
  assert_true(same_bytes(paths.shards[1], &shards[1]));
  json_decref(report);
  free(shards[0].data);
  free(shards[1].data);
  paths_free(&paths);
}

/* A copy of the model whose layer 3 makes a NaN of one element. */
static char *broken_model(const struct pipeline *p) {
  static const char name[] = "language_model.model.layers.3.self_attn.o_proj.weight";
  char *directory = file_join(p->directory, "broken");
  struct checkpoint checkpoint;
  struct file_list list = {0};
  struct eaglet_error err = {0};
  assert_ok(file_make_directory(directory, &err), &err);
  assert_ok(file_list_directory(&list, p->model, &err), &err);
  assert_ok(checkpoint_open(&checkpoint, p->model, &err), &err);
  const struct tensor_entry *norm = checkpoint_peek(&checkpoint, name);
  assert_non_null(norm);
  assert_int_equal(norm->dtype, DTYPE_BF16);
  for (size_t i = 0; i < list.n; i++) {
    char *from = file_join(p->model, list.names[i]), *to = file_join(directory, list.names[i]);
    if (strcmp(from, norm->path) != 0) {
      assert_int_equal(symlink(from, to), 0);
    } else {
      struct eaglet_text text = read_path(from);
      for (size_t f = 0; f < checkpoint.n_files; f++) {
        const struct safetensors *file = &checkpoint.files[f];
        if (strcmp(file->path, from) == 0) memset(text.data + (norm->data - file->map.data), 0xff, 2); /* one element */
      }
      assert_ok(file_write(to, text.data, text.length, &err), &err);
      free(text.data);
    }
    free(from);
    free(to);
  }
  checkpoint_close(&checkpoint);
  file_list_clear(&list);
  return directory;
}

static void test_not_finite(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = extract_params(p, &paths);
  char *model = broken_model(p);
  params.model = model;
  extract_fails(&params, EAGLET_E_INPUT, "row 0, token 0, state 4: expected finite numbers, found ");
  assert_false(file_exists(paths.shards[0]));
  free(model);
  paths_free(&paths);
}

/* ---- several processes, killed and not ---- */

/* Names and bytes of all files of a directory, in order. */
static uint64_t directory_hash(const char *directory) {
  struct file_list list = {0};
  uint64_t hash = 0;
  assert_int_equal(file_list_directory(&list, directory, NULL), EAGLET_OK);
  for (size_t i = 0; i < list.n; i++) {
    struct eaglet_text text = scratch_read(directory, list.names[i]);
    hash = file_hash(text.data, text.length, file_hash(list.names[i], strlen(list.names[i]), hash));
    free(text.data);
  }
  file_list_clear(&list);
  return hash;
}

static size_t count_files(const char *directory) {
  struct file_list list = {0};
  if (file_list_directory(&list, directory, NULL) != EAGLET_OK) return 0;
  size_t n = list.n;
  file_list_clear(&list);
  return n;
}

/* The extraction in a process of its own; its exit code is the status. */
static pid_t extract_start(const struct eaglet_extract_params *params) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = extract_run(params, &text, &err);
  if (status != EAGLET_OK) fprintf(stderr, "rank %d: %s\n", params->rank, err.message);
  _exit((int)status);
}

static int wait_for(pid_t pid) {
  int code = 0;
  assert_int_equal(waitpid(pid, &code, 0), pid);
  return WIFEXITED(code) ? WEXITSTATUS(code) : -WTERMSIG(code);
}

/* About twelve shards; both layouts of files. */
static const enum eaglet_features_format file_formats[] = {EAGLET_FEATURES_EAGLET, EAGLET_FEATURES_SPECULATORS};

static struct eaglet_extract_params small_shards(const struct pipeline *p, const char *out, enum eaglet_features_format format) {
  return (struct eaglet_extract_params){.model = p->model, .data = p->out, .out = out, .memory_mib = 1, .threads = 1, .format = format};
}

static void test_ranks(void **state) {
  enum { WORLD = 3 };
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  for (int f = 0; f < 2; f++) {
    char *alone = memory_format("%s/alone-%d", p->directory, f), *shared = memory_format("%s/shared-%d", p->directory, f);
    struct eaglet_extract_params params = small_shards(p, alone, file_formats[f]);
    assert_int_equal(wait_for(extract_start(&params)), 0);
    pid_t pids[WORLD];
    params.out = shared;
    params.world = WORLD;
    for (params.rank = 0; params.rank < WORLD; params.rank++) pids[params.rank] = extract_start(&params);
    for (int r = 0; r < WORLD; r++) assert_int_equal(wait_for(pids[r]), 0);
    assert_true(directory_hash(alone) == directory_hash(shared));
    for (params.rank = 0; params.rank < WORLD; params.rank++) { /* each has its own part, and nothing to do any more */
      json_t *report = extract_ok(&params);
      assert_in_range(report_int(report, "shards_of_rank"), report_int(report, "shards") / WORLD, report_int(report, "shards") / WORLD + 1);
      assert_int_equal(report_int(report, "shards_skipped"), report_int(report, "shards_of_rank"));
      assert_int_equal(report_int(report, "shards_written"), 0);
      json_decref(report);
    }
    params.rank = 0;
    params.world = 1; /* one process goes on with what others made */
    params.memory_mib = 256;
    json_t *report = extract_ok(&params);
    assert_int_equal(report_int(report, "shards_written"), 0);
    json_decref(report);
    free(alone), free(shared);
  }
}

/* Ranks with different memory: the one that comes first cuts the rows, the others follow; the shards are those of one plan. */
static void test_ranks_agree(void **state) {
  enum { WORLD = 3 };
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  pid_t pids[WORLD];
  for (int32_t r = 0; r < WORLD; r++) {
    struct eaglet_extract_params params = small_shards(p, paths.features, EAGLET_FEATURES_EAGLET);
    params.memory_mib = 1 + r;
    params.rank = r;
    params.world = WORLD;
    pids[r] = extract_start(&params);
  }
  for (int r = 0; r < WORLD; r++) assert_int_equal(wait_for(pids[r]), 0);
  compare_with_capture(p, paths.features, (const int32_t[]){2, 4, 5, 8}, 4, true);
  struct eaglet_extract_params params = extract_params(p, &paths);
  params.world = 2;
  params.rank = 2;
  extract_fails(&params, EAGLET_E_USAGE, "--rank: expected 0 to 1 (of --world 2), found 2");
  params.rank = 1;
  params.store = EAGLET_STORE_F32;
  params.replace = true;
  extract_fails(&params, EAGLET_E_INPUT, "dtype: expected \"F32\", found \"BF16\"");
  paths_free(&paths);
}

/* D11, D12: killed at ten random moments and run again, the files are those of a run that nothing befell: alone, and as one of three. */
static void test_killed(void **state) {
  enum { WORLD = 3, KILLS = 10 };
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  for (int f = 0; f < 2; f++) {
    char *clean = memory_format("%s/clean-%d", p->directory, f), *torn = memory_format("%s/torn-%d", p->directory, f);
    struct eaglet_extract_params params = small_shards(p, clean, file_formats[f]);
    assert_int_equal(wait_for(extract_start(&params)), 0);
    params.out = torn;
    params.world = f == 0 ? WORLD : 1;
    int n_killed = 0;
    for (int k = 0; k < KILLS; k++) {
      params.rank = k % params.world;
      size_t before = count_files(torn);
      pid_t pid = extract_start(&params);
      int code = 0;
      bool ended = false;
      while (count_files(torn) == before && !ended) { /* until it has begun to write */
        ended = waitpid(pid, &code, WNOHANG) != 0;
        usleep(200);
      }
      assert_int_equal(code, 0);
      if (ended) continue;
      usleep((useconds_t)(15000 * random_uniform(5, (uint64_t)f, (uint64_t)k)));
      kill(pid, SIGKILL);
      code = wait_for(pid);
      assert_true(code == 0 || code == -SIGKILL);
      n_killed += code != 0;
    }
    assert_true(n_killed > 0);
    for (params.rank = 0; params.rank < params.world; params.rank++) assert_int_equal(wait_for(extract_start(&params)), 0);
    assert_true(directory_hash(clean) == directory_hash(torn)); /* nothing torn is left either */
    free(clean), free(torn);
  }
}

/* What a killed run has left of a shard goes when its rank comes again; what belongs to another rank, or is no shard, stays. */
static void test_torn_files(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = small_shards(p, paths.features, EAGLET_FEATURES_EAGLET);
  json_decref(extract_ok(&params));
  static const char *const names[] = {"rows-00002.safetensors.tmp-77", "rows-00003.safetensors.tmp-77", "notes.tmp-77"};
  for (size_t i = 0; i < 3; i++) free(scratch_write(paths.features, names[i], "torn"));
  params.world = 2;
  json_decref(extract_ok(&params)); /* rank 0 */
  for (size_t i = 0; i < 3; i++) {
    char *path = file_join(paths.features, names[i]);
    assert_int_equal(file_exists(path), i > 0);
    free(path);
  }
  paths_free(&paths);
}

/* The tables beside speculators' samples are of the rows that the samples are of. */
static void test_tables(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = small_shards(p, paths.features, EAGLET_FEATURES_SPECULATORS);
  json_decref(extract_ok(&params));
  for (int k = 0; k < 2; k++) {
    struct eaglet_text rows = scratch_read(paths.features, "rows.jsonl"), config = scratch_read(paths.features, "data_config.json");
    struct token_store tokens;
    char *at = rows.data;
    store_open(&tokens, p->out);
    for (size_t r = 0; r < tokens.n_rows; r++) {
      char *end = strchr(at, '\n');
      json_t *row = json_loadb(at, (size_t)(end - at), 0, NULL);
      const json_t *ids = json_object_get(row, "input_ids"), *mask = json_object_get(row, "loss_mask");
      assert_int_equal(json_array_size(ids), tokens.rows[r].n);
      assert_int_equal(json_array_size(mask), tokens.rows[r].n);
      for (size_t i = 0; i < json_array_size(ids); i++) {
        assert_int_equal(json_integer_value(json_array_get(ids, i)), tokens.rows[r].tokens[i]);
        assert_int_equal(json_integer_value(json_array_get(mask, i)), tokens.rows[r].mask[i]);
      }
      json_decref(row);
      at = end + 1;
    }
    assert_int_equal(*at, '\0');
    token_store_close(&tokens);
    json_t *json = json_loads(config.data, 0, NULL), *expected = json_pack("[iiii]", k ? 1 : 2, k ? 3 : 4, k ? 6 : 5, 8);
    assert_true(json_equal(json_object_get(json, "eagle_aux_hidden_state_layer_ids"), expected));
    json_decref(json), json_decref(expected);
    free(rows.data), free(config.data);
    if (k == 1) break;
    make_data(p, 7); /* other rows, other states */
    params.states = "1,3,6";
    extract_fails(&params, EAGLET_E_INPUT, "eaglet.json: ");
    params.replace = true;
    json_decref(extract_ok(&params));
  }
  paths_free(&paths);
}

/* ---- what a store takes, and whether it is right ---- */

/* D14: announced for every store; what comes is within 2 % of it. */
static void test_options(void **state) {
  static const char *const names[] = {"bf16", "f32", "fp8", "aux"};
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 100);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = extract_params(p, &paths);
  params.dry_run = true;
  json_t *report = extract_ok(&params), *options = json_object_get(report, "options");
  assert_int_equal(json_array_size(options), 4);
  params.dry_run = false;
  params.replace = true;
  for (int s = 0; s < 4; s++) {
    params.store = (enum eaglet_store)s;
    json_decref(extract_ok(&params));
    const json_t *option = json_array_get(options, (size_t)s);
    double found = (double)(file_length(paths.shards[0]) + file_length(paths.shards[1])), announced = (double)json_integer_value(json_object_get(option, "bytes"));
    assert_string_equal(json_string_value(json_object_get(option, "store")), names[s]);
    assert_true(announced >= found && announced <= found * 1.02);
    assert_int_equal(json_is_true(json_object_get(option, "chosen")), s == 0);
    assert_true(json_is_true(json_object_get(option, "fits")));
  }
  json_decref(report);
  params.float32 = true;
  extract_fails(&params, EAGLET_E_USAGE, "--float32: --store says another type");
  params.float32 = false;
  params.format = EAGLET_FEATURES_SPECULATORS;
  extract_fails(&params, EAGLET_E_USAGE, "--store: samples of speculators hold every state in BF16 or F32");
  paths_free(&paths);
}

static json_t *check_features(const struct pipeline *p, const struct paths *paths, const char *words) {
  const struct eaglet_check_features_params params = {.features = paths->features, .data = p->out, .model = p->model, .threads = 2};
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = feature_check_run(&params, &text, &err);
  if (words) assert_failed_with(status, EAGLET_E_CHECK, &err, words);
  else assert_ok(status, &err);
  return report_parse(&text);
}

/* Changes one byte of a shard, from its end. */
static void flip(const char *path, size_t back) {
  struct eaglet_text text = read_path(path);
  text.data[text.length - back] ^= 4;
  assert_int_equal(file_write(path, text.data, text.length, NULL), EAGLET_OK);
  free(text.data);
}

static void test_check(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  for (int s = 0; s < 4; s++) {
    struct eaglet_extract_params params = extract_params(p, &paths);
    params.store = (enum eaglet_store)s;
    params.replace = true;
    json_decref(extract_ok(&params));
    json_t *report = check_features(p, &paths, NULL);
    assert_int_equal(report_int(report, "files"), 2);
    assert_int_equal(report_int(report, "rows"), ROWS_SHORT + ROWS_LONG);
    assert_int_equal(report_int(report, "without_checksum"), 0);
    assert_int_equal(json_array_size(json_object_get(report, "slots")), s == EAGLET_STORE_AUX ? 3 : 4); /* measured, and as the manifest says */
    json_decref(report);
    flip(paths.shards[1], 100);
    report = check_features(p, &paths, "1 of 2 files are not right, 0 are missing; the first: ");
    assert_non_null(strstr(json_string_value(json_object_get(json_array_get(json_object_get(report, "problems"), 0), "problem")), "rows-00001.safetensors: checksum"));
    json_decref(report);
    flip(paths.shards[1], 100);
    assert_int_equal(unlink(paths.shards[0]), 0);
    report = check_features(p, &paths, "1 of its shards are missing");
    assert_string_equal(json_string_value(json_array_get(json_object_get(report, "missing"), 0)), "rows-00000.safetensors");
    json_decref(report);
  }
  paths_free(&paths);
}

/* A manifest that calls the states by other numbers is found out by the target (D02). */
static void test_check_names(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = extract_params(p, &paths);
  params.states = "1,3,6";
  json_decref(extract_ok(&params));
  struct eaglet_text text = scratch_read(paths.features, "manifest.json");
  json_t *manifest = json_loads(text.data, 0, NULL);
  json_object_set_new(manifest, "states", json_pack("[iii]", 2, 4, 6));
  struct eaglet_text other = json_dump(manifest, 0);
  free(scratch_write(paths.features, "manifest.json", other.data));
  json_t *report = check_features(p, &paths, "manifest.json says that input 0 is state 2, measured is state 1");
  assert_int_equal(report_int(report, "files_wrong"), 2); /* inputs 0 and 1 */
  json_decref(report), json_decref(manifest);
  free(text.data), free(other.data);
  paths_free(&paths);
}

/* A place where nothing can be made is told before anything is computed. */
static void test_read_only(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  make_data(p, 3);
  struct paths paths = paths_make(p);
  struct eaglet_extract_params params = extract_params(p, &paths);
  params.out = "/proc/eaglet-features";
  extract_fails(&params, params.force ? EAGLET_E_INPUT : EAGLET_E_RESOURCE, "/proc/eaglet-features");
  params.force = true;
  extract_fails(&params, EAGLET_E_INPUT, "/proc/eaglet-features: cannot create the directory");
  paths_free(&paths);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      PIPELINE_TEST(test_values),       PIPELINE_TEST(test_announcement),   PIPELINE_TEST(test_resume),
      PIPELINE_TEST(test_memory), PIPELINE_TEST(test_stop_request), PIPELINE_TEST(test_other_settings), PIPELINE_TEST(test_full_disk),
      PIPELINE_TEST(test_not_finite), PIPELINE_TEST(test_ranks), PIPELINE_TEST(test_ranks_agree), PIPELINE_TEST(test_killed),
      PIPELINE_TEST(test_torn_files), PIPELINE_TEST(test_tables), PIPELINE_TEST(test_options), PIPELINE_TEST(test_check), PIPELINE_TEST(test_check_names),
      PIPELINE_TEST(test_read_only),
  };
  return cmocka_run_group_tests_name("extract", tests, NULL, NULL);
}
