/* test_checkpoint.c - model directories: which files are read and which are refused (A05, A07, A08, A09, A10, A12 of the bug file), the
 * configs, used marks, and nano-kimi against its own index. Each test has a folder of its own. */
#include "support.h"

#include "../shared_path.h"

#include <unistd.h>

#define INDEX "model.safetensors.index.json"

/* ---- folders built by hand ---- */

static char *folder_create(void **state, const char *name) {
  char *folder = file_join(*state, name), *config = file_join(folder, "config.json");
  assert_int_equal(file_make_directory(folder, NULL), EAGLET_OK);
  put_bytes(config, "{\"model_type\":\"tiny\"}", 21);
  free(config);
  return folder;
}

#define SHARDS "model-00001-of-000003.safetensors", "model-00002-of-000003.safetensors", "model-00003-of-000003.safetensors"
static const char *const shard_names[] = {SHARDS};
static const char *const shard_tensors[] = {"a.w b.w", "c.w d.w e.w", "f.w"};

/* TINY in three shards, with the mixed widths of Kimi's names. */
static char *tiny_create(void **state, const char *name) {
  char *folder = folder_create(state, name);
  for (int i = 0; i < 3; i++) put_shard(folder, shard_names[i], shard_tensors[i], (uint8_t)(i + 1));
  put_text(folder, INDEX,
           "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"f.w\":\"model-00003-of-000003.safetensors\",\"a.w\":\"model-00001-of-000003.safetensors\","
           "\"c.w\":\"model-00002-of-000003.safetensors\",\"b.w\":\"model-00001-of-000003.safetensors\",\"d.w\":\"model-00002-of-000003.safetensors\","
           "\"e.w\":\"model-00002-of-000003.safetensors\"}}");
  return folder;
}

static void assert_tiny(const char *folder) {
  struct checkpoint checkpoint;
  open_folder(&checkpoint, folder);
  assert_true(checkpoint.n_files == 3 && checkpoint.n_tensors == 6 && checkpoint.n_bytes == 12 && checkpoint.n_ignored == 0);
  for (size_t i = 1; i < checkpoint.n_tensors; i++) assert_true(strcmp(checkpoint.tensors[i - 1]->name, checkpoint.tensors[i]->name) < 0);
  assert_value(&checkpoint, "a.w", 1, shard_names[0]);
  assert_value(&checkpoint, "e.w", 2, shard_names[1]);
  assert_value(&checkpoint, "f.w", 3, shard_names[2]);
  checkpoint_close(&checkpoint);
}

static void test_indexed(void **state) {
  char *folder = tiny_create(state, "indexed");
  assert_tiny(folder);
  char *slash = memory_format("%s/", folder);
  assert_tiny(slash);
  free(slash);
  free(folder);
}

static void test_used_marks(void **state) {
  char *folder = tiny_create(state, "used");
  struct checkpoint checkpoint;
  open_folder(&checkpoint, folder);
  assert_null(checkpoint_find(&checkpoint, "a"));
  assert_null(checkpoint_find(&checkpoint, ""));
  assert_null(checkpoint_peek(&checkpoint, "g.w"));
  assert_non_null(checkpoint_peek(&checkpoint, "b.w"));
  for (size_t i = 0; i < 6; i++) assert_int_equal(checkpoint.used[i], 0);
  assert_ptr_equal(checkpoint_find(&checkpoint, "c.w"), checkpoint.tensors[2]);
  assert_non_null(checkpoint_find(&checkpoint, "c.w"));
  for (size_t i = 0; i < 6; i++) assert_int_equal(checkpoint.used[i], i == 2);
  checkpoint_close(&checkpoint);
  free(folder);
}

/* ---- the bug cases ---- */

static void test_a05_missing_shards(void **state) {
  char *folder = tiny_create(state, "a05");
  remove_file(folder, shard_names[1]);
  assert_folder_refused(folder, "missing 1 of 3 shards (an interrupted download?): model-00002-of-000003.safetensors (3 tensors)");
  remove_file(folder, shard_names[2]);
  assert_folder_refused(folder, "missing 2 of 3 shards (an interrupted download?): model-00002-of-000003.safetensors (3 tensors), "
                                "model-00003-of-000003.safetensors (1 tensors)");
  /* A link whose blob was never fetched is missing too. */
  char *link = file_join(folder, shard_names[1]);
  assert_int_equal(symlink("../../blobs/0123", link), 0);
  assert_folder_refused(folder, "missing 2 of 3 shards");
  free(link);
  free(folder);
  /* A long list is cut, and says so. */
  folder = folder_create(state, "a05-many");
  char *map = memory_copy_string("{\"weight_map\":{\"w\":\"s\"");
  for (int i = 0; i < 30; i++) {
    char *longer = memory_format("%s,\"w%d\":\"s%02d\"", map, i, i);
    free(map);
    map = longer;
  }
  char *whole = memory_format("%s}}", map);
  put_text(folder, INDEX, whole);
  assert_folder_refused(folder, "s06 (1 tensors) and 23 more");
  free(whole);
  free(map);
  free(folder);
}

/* Without an index the numbers in the names tell what is missing; the maker's own names beside model*.safetensors are no second model. */
static void test_a05_numbered(void **state) {
  char *folder = tiny_create(state, "a05-numbered");
  struct checkpoint checkpoint;
  remove_file(folder, INDEX);
  assert_tiny(folder);
  remove_file(folder, shard_names[1]);
  assert_folder_refused(folder, "model-00001-of-000003.safetensors is one of 3 shards, but number 2 is not there, and there is no " INDEX);
  remove_file(folder, shard_names[0]);
  assert_folder_refused(folder, "model-00003-of-000003.safetensors is one of 3 shards, but number 1 is not there");
  remove_file(folder, shard_names[2]);
  put_shard(folder, "model-00000-of-00002.safetensors", "a.w", 1); /* counted from nought, a file is still missing */
  put_shard(folder, "model-00001-of-00002.safetensors", "b.w", 1);
  assert_folder_refused(folder, "is one of 2 shards, but number 2 is not there");
  remove_file(folder, "model-00000-of-00002.safetensors");
  remove_file(folder, "model-00001-of-00002.safetensors");
  static const char *const no_numbers[] = {"model-of-2.safetensors", "a-of-b.safetensors", "model-1-of-2-extra.safetensors", "weights-99999999-of-1.safetensors"};
  for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++) {
    put_shard(folder, no_numbers[i], "a.w", 1);
    open_folder(&checkpoint, folder);
    checkpoint_close(&checkpoint);
    remove_file(folder, no_numbers[i]);
  }
  put_shard(folder, "consolidated.safetensors", "tok_embeddings.weight", 1);
  open_folder(&checkpoint, folder); /* alone it is what there is */
  assert_true(checkpoint.n_files == 1 && checkpoint.n_ignored == 0);
  checkpoint_close(&checkpoint);
  put_shard(folder, "model.safetensors", "a.w", 1);
  open_folder(&checkpoint, folder);
  assert_true(checkpoint.n_files == 1 && checkpoint.n_ignored == 1 && checkpoint_peek(&checkpoint, "a.w"));
  checkpoint_close(&checkpoint);
  free(folder);
}

/* The last 4096 bytes, inside the header, and down to 7 bytes: with an index and without. */
static void test_a07_truncated(void **state) {
  char *folder = folder_create(state, "a07"), *path = file_join(folder, "w2.safetensors");
  struct safetensors_writer *writer = safetensors_writer_create();
  uint8_t *data = memory_alloc(8192);
  memset(data, 1, 8192);
  put_shard(folder, "w1.safetensors", "a.w", 1);
  safetensors_writer_add(writer, "b.w", DTYPE_F32, 2, (const int64_t[]){64, 32}, data);
  for (int indexed = 0; indexed < 2; indexed++) {
    if (indexed) put_text(folder, INDEX, "{\"weight_map\":{\"a.w\":\"w1.safetensors\",\"b.w\":\"w2.safetensors\"}}");
    assert_int_equal(safetensors_writer_commit(writer, path, NULL), EAGLET_OK);
    struct checkpoint checkpoint;
    open_folder(&checkpoint, folder);
    checkpoint_close(&checkpoint);
    uint64_t length = (uint64_t)file_length(path);
    cut_file(folder, "w2.safetensors", length - 4096);
    char *reason = memory_format("/w2.safetensors: truncated: expected at least %llu bytes (where b.w ends), found %llu", (unsigned long long)length,
                                 (unsigned long long)length - 4096);
    assert_folder_refused(folder, reason);
    free(reason);
    cut_file(folder, "w2.safetensors", 40);
    assert_folder_refused(folder, "/w2.safetensors: header of ");
    cut_file(folder, "w2.safetensors", 7);
    assert_folder_refused(folder, "/w2.safetensors: truncated: 7 bytes");
    cut_file(folder, "w2.safetensors", 0);
    assert_folder_refused(folder, "/w2.safetensors: truncated: 0 bytes");
  }
  safetensors_writer_free(writer);
  free(data);
  free(path);
  free(folder);
}

static void test_a08_lfs_pointer(void **state) {
  char *folder = folder_create(state, "a08");
  put_text(folder, "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5368709120\n");
  assert_folder_refused(folder, "/model.safetensors: is a Git LFS pointer, not weights: the real file has 5368709120 bytes");
  free(folder);
}

static void test_a09_stray_and_stale(void **state) {
  char *folder = tiny_create(state, "a09");
  struct checkpoint checkpoint;
  put_shard(folder, "model.safetensors", "a.w b.w c.w", 99);
  put_text(folder, "consolidated.safetensors", "not even weights");
  open_folder(&checkpoint, folder);
  assert_int_equal(checkpoint.n_ignored, 2);
  assert_int_equal(checkpoint.n_tensors, 6);
  assert_value(&checkpoint, "a.w", 1, shard_names[0]);
  checkpoint_close(&checkpoint);
  /* A stale index: a name its file lacks, whether another read file holds it or none. */
  put_text(folder, INDEX, "{\"weight_map\":{\"a.w\":\"model-00001-of-000003.safetensors\",\"b.w\":\"model-00003-of-000003.safetensors\"}}");
  assert_folder_refused(folder, INDEX ": names b.w in model-00003-of-000003.safetensors, but that file does not hold it");
  put_text(folder, INDEX, "{\"weight_map\":{\"a.w\":\"model-00001-of-000003.safetensors\",\"z.w\":\"model-00001-of-000003.safetensors\"}}");
  assert_folder_refused(folder, "names z.w in model-00001-of-000003.safetensors, but that file does not hold it");
  /* The same tensor in two read files, by index and without. */
  put_text(folder, INDEX, "{\"weight_map\":{\"a.w\":\"model.safetensors\",\"b.w\":\"model-00001-of-000003.safetensors\"}}");
  assert_folder_refused(folder, "a.w: stands in two files: ");
  remove_file(folder, INDEX);
  remove_file(folder, "consolidated.safetensors");
  assert_folder_refused(folder, "stands in two files: ");
  remove_file(folder, "model.safetensors");
  assert_tiny(folder);
  free(folder);
}

/* --ignore-index: every file is read, and what stands in two of them is still refused. */
static void test_a09_ignore_index(void **state) {
  char *folder = tiny_create(state, "a09-ignore");
  struct checkpoint checkpoint;
  struct eaglet_error err = {0};
  const struct checkpoint_params params = {.path = folder, .ignore_index = true};
  put_text(folder, INDEX, "{\"weight_map\":{\"a.w\":\"model-00003-of-000003.safetensors\",\"f.w\":\"model-00003-of-000003.safetensors\"}}");
  assert_folder_refused(folder, "(a stale index? --ignore-index reads every *.safetensors file instead)");
  assert_int_equal(checkpoint_open_with(&checkpoint, &params, &err), EAGLET_OK);
  assert_true(checkpoint.n_files == 3 && checkpoint.n_tensors == 6 && checkpoint.n_ignored == 0);
  assert_value(&checkpoint, "a.w", 1, shard_names[0]);
  checkpoint_close(&checkpoint);
  put_text(folder, INDEX, "not even an index");
  assert_int_equal(checkpoint_open_with(&checkpoint, &params, &err), EAGLET_OK);
  checkpoint_close(&checkpoint);
  put_shard(folder, "model.safetensors", "c.w", 9);
  enum eaglet_status status = checkpoint_open_with(&checkpoint, &params, &err);
  assert_refusal(status, &err, folder, "c.w: stands in two files: ");
  free(folder);
}

/* One file, no index; hidden files and folders that are not weights do not matter. */
static void test_a10_no_index(void **state) {
  char *folder = folder_create(state, "a10"), *original = file_join(folder, "original");
  struct checkpoint checkpoint;
  put_shard(folder, "model.safetensors", "model.embed_tokens.weight model.norm.weight", 7);
  put_text(folder, "._model.safetensors", "a shadow of another system");
  put_text(folder, "training_args.bin", "pickle");
  assert_int_equal(file_make_directory(original, NULL), EAGLET_OK);
  put_shard(original, "model.safetensors", "model.norm.weight", 8);
  open_folder(&checkpoint, folder);
  assert_true(checkpoint.n_files == 1 && checkpoint.n_tensors == 2 && checkpoint.n_ignored == 0);
  assert_value(&checkpoint, "model.embed_tokens.weight", 7, "/model.safetensors");
  assert_null(checkpoint_find(&checkpoint, "lm_head.weight"));
  checkpoint_close(&checkpoint);
  free(original);
  free(folder);
}

/* A weight and its scale in different shards are found alike, in whatever order the shards are listed. */
static void test_a12_scale_elsewhere(void **state) {
  static const char *const indexes[] = {
      "{\"weight_map\":{\"l.gate_proj.weight\":\"s1\",\"l.gate_proj.weight_scale_inv\":\"s2\",\"l.up_proj.weight\":\"s2\"}}",
      "{\"weight_map\":{\"l.up_proj.weight\":\"s2\",\"l.gate_proj.weight_scale_inv\":\"s2\",\"l.gate_proj.weight\":\"s1\"}}",
  };
  char *folder = folder_create(state, "a12");
  put_shard(folder, "s1", "l.gate_proj.weight", 1);
  put_shard(folder, "s2", "l.up_proj.weight l.gate_proj.weight_scale_inv", 2);
  for (int i = 0; i < 2; i++) {
    struct checkpoint checkpoint;
    put_text(folder, INDEX, indexes[i]);
    open_folder(&checkpoint, folder);
    assert_int_equal(checkpoint.n_tensors, 3);
    assert_value(&checkpoint, "l.gate_proj.weight", 1, "/s1");
    assert_value(&checkpoint, "l.gate_proj.weight_scale_inv", 2, "/s2");
    assert_null(checkpoint_find(&checkpoint, "l.up_proj.weight_scale_inv"));
    assert_string_equal(checkpoint.tensors[0]->name, "l.gate_proj.weight");
    assert_string_equal(checkpoint.tensors[2]->name, "l.up_proj.weight");
    checkpoint_close(&checkpoint);
  }
  free(folder);
}

/* ---- indexes, configs, folders that cannot be ---- */

static void test_bad_index(void **state) {
  static const struct { const char *text, *reason; } indexes[] = {
      {"", INDEX ": line 1"},
      {"{\"weight_map\":{\"a.w\":\"s\"}", "not valid JSON"},
      {"{\"weight_map\":{\"a.w\":\"s\",\"a.w\":\"s\"}}", "duplicate"},
      {"[]", "weight_map: expected a filled object"},
      {"{}", "weight_map: expected a filled object"},
      {"{\"weight_map\":{}}", "weight_map: expected a filled object"},
      {"{\"weight_map\":[\"s\"]}", "weight_map: expected a filled object"},
      {"{\"weight_map\":{\"a.w\":1}}", "weight_map: expected file names"},
      {"{\"weight_map\":{\"a.w\":null}}", "weight_map: expected file names"},
      {"{\"weight_map\":{\"a.w\":\"\"}}", "weight_map: refused file name ''"},
      {"{\"weight_map\":{\"a.w\":\"..\"}}", "weight_map: refused file name '..'"},
      {"{\"weight_map\":{\"a.w\":\"../s\"}}", "weight_map: refused file name '../s'"},
      {"{\"weight_map\":{\"a.w\":\"x/s\"}}", "weight_map: refused file name 'x/s'"},
      {"{\"weight_map\":{\"a.w\":\"./s\"}}", "weight_map: refused file name './s'"},
      {"{\"weight_map\":{\"a.w\":\"/etc/passwd\"}}", "weight_map: refused file name '/etc/passwd'"},
      {"{\"weight_map\":{\"a.w\":\"s\\u0000\"}}", "not valid JSON"},
      {"{\"weight_map\":{\"a.w\":\"config.json\"}}", "/config.json: "},
  };
  char *folder = folder_create(state, "bad-index");
  put_shard(folder, "s", "a.w", 1);
  put_shard(folder, "model.safetensors", "a.w", 1); /* must not be fallen back to */
  for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
    put_text(folder, INDEX, indexes[i].text);
    assert_folder_refused(folder, indexes[i].reason);
  }
  /* A link to an index that was not fetched: the shards beside it may not be all. */
  char *path = file_join(folder, INDEX);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  assert_int_equal(symlink("nowhere", path), 0);
  assert_folder_refused(folder, INDEX ": cannot open");
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  struct checkpoint checkpoint;
  open_folder(&checkpoint, folder);
  checkpoint_close(&checkpoint);
  free(path);
  free(folder);
}

static void test_no_weights(void **state) {
  char *folder = folder_create(state, "no-weights");
  struct eaglet_error err = {0};
  struct checkpoint checkpoint;
  assert_folder_refused(folder, "no *.safetensors file");
  assert_int_equal(checkpoint_open(&checkpoint, folder, &err), EAGLET_E_INPUT);
  assert_null(strstr(err.message, "pickled"));
  put_text(folder, "pytorch_model.bin", "\x80\x02");
  assert_folder_refused(folder, "no *.safetensors file; pickled weights (*.bin, *.pt) are never read: convert them to safetensors");
  put_text(folder, "model.safetensors", "");
  assert_folder_refused(folder, "/model.safetensors: truncated: 0 bytes");
  free(folder);
}

static void test_configs(void **state) {
  char *folder = tiny_create(state, "configs"), *absent = file_join(*state, "absent");
  struct checkpoint checkpoint;
  open_folder(&checkpoint, folder);
  assert_string_equal(json_string_value(json_object_get(checkpoint.config, "model_type")), "tiny");
  assert_null(checkpoint.generation_config);
  checkpoint_close(&checkpoint);
  put_text(folder, "generation_config.json", "{\"eos_token_id\":[1,2]}");
  open_folder(&checkpoint, folder);
  assert_int_equal(json_array_size(json_object_get(checkpoint.generation_config, "eos_token_id")), 2);
  checkpoint_close(&checkpoint);
  put_text(folder, "generation_config.json", "{");
  assert_folder_refused(folder, "/generation_config.json: line 1");
  put_text(folder, "generation_config.json", "[]");
  assert_folder_refused(folder, "/generation_config.json: expected an object");
  remove_file(folder, "generation_config.json");
  put_text(folder, "config.json", "{\"a\":1,}");
  assert_folder_refused(folder, "/config.json: line 1");
  put_text(folder, "config.json", "{\"a\":1,\"a\":1}");
  assert_folder_refused(folder, "/config.json: ");
  put_text(folder, "config.json", "\"text\"");
  assert_folder_refused(folder, "/config.json: expected an object");
  put_text(folder, "config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 700\n");
  assert_folder_refused(folder, "/config.json: is a Git LFS pointer, not the file itself");
  put_text(folder, "config.json", "\n<!DOCTYPE html>");
  assert_folder_refused(folder, "/config.json: is an HTML or XML page, not JSON");
  put_text(folder, "config.json", "");
  assert_folder_refused(folder, "/config.json: ");
  remove_file(folder, "config.json");
  assert_folder_refused(folder, "/config.json: cannot open: No such file or directory");
  assert_folder_refused(absent, "/config.json: cannot open: No such file or directory");
  free(absent);
  free(folder);
}

/* ---- nano-kimi ---- */

/* The index was written by another program: it must agree with what we found in the shards. */
static void test_nano_kimi(void **state) {
  (void)state;
  char *folder = shared_path("own/nano-kimi");
  if (!folder) skip();
  struct checkpoint checkpoint;
  open_folder(&checkpoint, folder);
  char *path = file_join(folder, INDEX);
  json_t *index, *value;
  assert_int_equal(json_parse_file(&index, path, NULL), EAGLET_OK);
  const json_t *map = json_object_get(index, "weight_map");
  const char *name;
  assert_int_equal(checkpoint.n_files, 2);
  assert_int_equal(checkpoint.n_tensors, json_object_size(map));
  assert_int_equal(checkpoint.n_bytes, json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")));
  json_object_foreach((json_t *)map, name, value) {
    const struct tensor_entry *tensor = checkpoint_find(&checkpoint, name);
    assert_non_null(tensor);
    assert_non_null(strstr(tensor->path, json_string_value(value)));
  }
  for (size_t i = 0; i < checkpoint.n_tensors; i++) assert_int_equal(checkpoint.used[i], 1);
  const struct tensor_entry *embed = checkpoint_peek(&checkpoint, "language_model.model.embed_tokens.weight");
  const json_t *text = json_object_get(checkpoint.config, "text_config");
  assert_non_null(embed);
  assert_int_equal(embed->rank, 2);
  assert_int_equal(embed->shape[0], json_integer_value(json_object_get(text, "vocab_size")));
  assert_int_equal(embed->shape[1], json_integer_value(json_object_get(text, "hidden_size")));
  print_message("nano-kimi: %zu tensors, %llu bytes\n", checkpoint.n_tensors, (unsigned long long)checkpoint.n_bytes);
  json_decref(index);
  checkpoint_close(&checkpoint);
  free(path);
  free(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_indexed),           cmocka_unit_test(test_used_marks),      cmocka_unit_test(test_a05_missing_shards),
      cmocka_unit_test(test_a05_numbered),      cmocka_unit_test(test_a07_truncated),     cmocka_unit_test(test_a08_lfs_pointer), cmocka_unit_test(test_a09_stray_and_stale),
      cmocka_unit_test(test_a10_no_index),      cmocka_unit_test(test_a12_scale_elsewhere),
      cmocka_unit_test(test_bad_index),         cmocka_unit_test(test_no_weights),      cmocka_unit_test(test_configs),
      cmocka_unit_test(test_a09_ignore_index),  cmocka_unit_test(test_nano_kimi),
  };
  return cmocka_run_group_tests(tests, scratch_create, tree_teardown);
}
