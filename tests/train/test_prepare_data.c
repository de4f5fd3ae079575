/* test_prepare_data.c - prepare over what the reader of src/data gives: rows that are token ids, a table and its JSON-lines twin, the account of the
 * data in the report. Method: whole runs on nano-kimi, the shards compared token by token. */
#include "pipeline.h"

#include "../data/parquet_writer.h"

static void test_token_rows(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl",
                     "{\"input_ids\":[10,11,12,13],\"loss_mask\":[0,0,1,1],\"source\":\"mine\"}\n{\"input_ids\":[10,11,12,14],\"labels\":[-100,11,-100,14]}\n"
                     "{\"input_ids\":[10,11,12,15],\"labels\":[-100,-100,-100,-100]}\n"
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\"}]}\n"));
  struct eaglet_prepare_params params = prepare_params(p);
  json_t *report = prepare_ok(&params);
  struct token_store store;
  static const int32_t ids[2][4] = {{10, 11, 12, 13}, {10, 11, 12, 14}};
  static const uint8_t masks[2][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}};
  store_open(&store, p->out);
  assert_int_equal(store.n_rows, 3);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(store.rows[i].n, 4);
    assert_memory_equal(store.rows[i].tokens, ids[i], sizeof ids[i]);
    assert_memory_equal(store.rows[i].mask, masks[i], 4);
  }
  assert_int_equal(report_int(report, "rows_read"), 4);
  assert_int_equal(report_int(json_object_get(report, "notes"), "token ids as given: that they are this tokenizer's was not checked"), 3);
  assert_int_equal(report_int(json_object_get(report, "layouts"), "input_ids/labels"), 2);
  assert_int_equal(report_int(json_object_get(json_object_get(report, "sources"), "mine"), "rows"), 1);
  assert_int_equal(dropped(report, "no supervised tokens: every reply is empty"), 1);
  token_store_close(&store);
  json_decref(report);
  free(scratch_write(p->directory, "data.jsonl", "{\"input_ids\":[10,4096],\"loss_mask\":[0,1]}\n"));
  prepare_fails(&params, EAGLET_E_INPUT, "data.jsonl:1: token id 4096 at 1: expected ids below 4096, the target's vocabulary");
  params.regenerate = true;
  prepare_fails(&params, EAGLET_E_INPUT, "none of 1 rows can be trained: token ids, which cannot be regenerated (1)");
}

static void test_account(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl",
                     "{\"dialog\":[{\"speaker\":\"client\",\"content\":\"q\"},{\"speaker\":\"bot\",\"content\":\"a\"}],\"id\":1}\nbroken\n"));
  struct eaglet_prepare_params params = prepare_params(p);
  params.map = "messages=dialog,role=speaker,user=client,assistant=bot";
  prepare_fails(&params, EAGLET_E_INPUT, "data.jsonl:2: row: line 2");
  params.bad_percent_max = 50;
  json_t *report = prepare_ok(&params), *expected = json_loads("{\"ids_twice\":0,\"first_id_twice\":\"\",\"files\":1,\"files_ignored\":[],\"fields_used\":[\"dialog\"],\"fields_ignored\":[\"id\"],"
                                                               "\"roles\":{\"client\":\"user\",\"bot\":\"assistant\"},\"bad_rows\":1,\"bad\":{\"not JSON\":1}}", 0, NULL);
  if (!json_equal(json_object_get(report, "reading"), expected)) fail_msg("found %s", json_dumps(json_object_get(report, "reading"), 0));
  json_decref(report);
  json_decref(expected);
  params.map = "messages";
  prepare_fails(&params, EAGLET_E_USAGE, "--map: expected NAME=FIELD");
}

static const struct pw_node chat[] = {
    {"root", -1, 0, 2, PW_NONE, 0, 0},
    {"messages", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0},
    {"list", -1, PW_REPEATED, 1, PW_NONE, 0, 0},
    {"element", -1, PW_OPTIONAL, 2, PW_NONE, 0, 0},
    {"role", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"content", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"tools", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0},
    {"list", -1, PW_REPEATED, 1, PW_NONE, 0, 0},
    {"element", -1, PW_OPTIONAL, 2, PW_NONE, 0, 0},
    {"name", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"parameters", -1, PW_OPTIONAL, 3, PW_NONE, 0, 0},
    {"city", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"a", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"b", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
};

/* C07, C09: the ids of a table's rows are those of its twin, tools of other rows and all. */
static void test_table_has_the_ids_of_its_twin(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  static const char *const lines[] = {
      "{\"messages\":[{\"role\":\"user\",\"content\":\"weather?\"},{\"role\":\"assistant\",\"content\":\"sunny\"}],\"tools\":[{\"name\":\"weather\",\"parameters\":{\"city\":\"string\"}}]}",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"1+2?\"},{\"role\":\"assistant\",\"content\":\"3\"}],\"tools\":[{\"name\":\"add\",\"parameters\":{\"a\":\"int\",\"b\":\"int\"}}]}",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"hello\"}]}"};
  struct buffer text, bytes;
  json_t *rows = json_array();
  uint64_t hash = 0;
  buffer_init(&text);
  buffer_init(&bytes);
  for (int i = 0; i < 3; i++) {
    buffer_format(&text, "%s\n", lines[i]);
    json_array_append_new(rows, json_loads(lines[i], 0, NULL));
  }
  free(scratch_write(p->directory, "data.jsonl", text.data));
  parquet_write(&bytes, chat, rows, &(struct pw_options){.version = 2, .codec = 1, .style = PW_DICTIONARY});
  char *table = scratch_write_bytes(p->directory, "data.parquet", bytes.data, bytes.length);
  for (int i = 0; i < 2; i++) {
    struct eaglet_prepare_params params = prepare_params(p);
    struct token_store store;
    if (i) params.data = (const char *const *)&table;
    json_decref(prepare_ok(&params));
    store_open(&store, p->out);
    assert_int_equal(store.n_rows, 3);
    assert_true(i == 0 || store.hash == hash);
    hash = store.hash;
    token_store_close(&store);
  }
  json_decref(rows);
  buffer_clear(&text);
  buffer_clear(&bytes);
  free(table);
}

int main(void) {
  const struct CMUnitTest tests[] = {PIPELINE_TEST(test_token_rows), PIPELINE_TEST(test_account), PIPELINE_TEST(test_table_has_the_ids_of_its_twin)};
  return cmocka_run_group_tests_name("prepare_data", tests, NULL, NULL);
}
