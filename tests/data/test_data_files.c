/* test_data_files.c - the reader over whole files: folders and patterns, packed files, lines past the limit, bad rows and their share, tables and
 * their JSON-lines twins, the account of what was met, and other people's data (bug cases C04 to C07, C09, C10). */
#define _GNU_SOURCE
#include "data/dataset.h"

#include "parquet_writer.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ROW(text) "{\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]}"

/* Every row as {"messages", "tools", "source", "line", ...}; *described (may be NULL) gets the reader's account. */
static enum eaglet_status read_all(const struct dataset_params *params, json_t *rows, json_t **described, struct eaglet_error *err) {
  struct dataset_reader *reader;
  struct conversation c = {0};
  bool more = true;
  TRY(dataset_open(&reader, params, err));
  enum eaglet_status status = EAGLET_OK;
  while (status == EAGLET_OK && more) {
    status = dataset_next(reader, &c, &more, err);
    if (status != EAGLET_OK || !more) break;
    json_array_append_new(rows, json_pack("{sO sO* ss sI ss ss si}", "messages", c.messages, "tools", c.tools, "source", c.source, "line", (json_int_t)c.line,
                                          "unknown", c.unknown_role, "layout", c.layout, "ids", (int)c.n_ids));
  }
  if (described) *described = dataset_describe(reader);
  conversation_clear(&c);
  dataset_close(reader);
  return status;
}

/* "user text of each row, source": a:x b:y */
static void assert_reads(const char *const *paths, size_t n, const char *expected) {
  json_t *rows = json_array(), *row;
  struct eaglet_error err = {0};
  struct buffer found;
  size_t i;
  buffer_init(&found);
  assert_ok(read_all(&(struct dataset_params){.paths = paths, .n_paths = n}, rows, NULL, &err), &err);
  json_array_foreach(rows, i, row) {
    const json_t *first = json_array_get(json_object_get(row, "messages"), 0);
    buffer_format(&found, "%s%s:%s", i ? " " : "", json_string_value(json_object_get(first, "content")), json_string_value(json_object_get(row, "source")));
  }
  assert_string_equal(found.data, expected);
  buffer_clear(&found);
  json_decref(rows);
}

static char *write_packed(const char *directory, const char *name, const char *text, int codec) {
  struct buffer bytes;
  buffer_init(&bytes);
  pw_pack(&bytes, text, strlen(text), codec);
  char *path = scratch_write_bytes(directory, name, bytes.data, bytes.length);
  buffer_clear(&bytes);
  return path;
}

/* ---- which files ---- */

static void test_folders_and_patterns(void **state) {
  const char *directory = *state;
  char *inner = file_join(directory, "inner.json");
  assert_int_equal(file_make_directory(inner, NULL), EAGLET_OK);
  free(scratch_write(directory, "b.jsonl", "\xef\xbb\xbf" ROW("b")));
  free(scratch_write(directory, "a.ndjson", "\xef\xbb\xbf" ROW("a") "\r\n"));
  free(scratch_write(directory, "c.part.json", "[" ROW("c") "]"));
  free(write_packed(directory, "d.jsonl.gz", ROW("d") "\n", 2));
  free(write_packed(directory, "e.json.zst", "\xef\xbb\xbf[" ROW("e") "]\n", 3));
  free(scratch_write(directory, ".hidden.jsonl", "nonsense"));
  free(scratch_write(directory, "README.md", "nonsense"));
  free(scratch_write(inner, "f.jsonl", ROW("f")));
  static const struct pw_node text[] = {{"root", -1, 0, 2, PW_NONE, 0, 0}, {"prompt", PW_BYTES, PW_REQUIRED, 0, PW_TEXT, 0, 0}, {"completion", PW_BYTES, PW_REQUIRED, 0, PW_TEXT, 0, 0}};
  json_t *rows = json_loads("[{\"prompt\":\"p\",\"completion\":\"x\"}]", 0, NULL), *described, *none = json_array();
  struct buffer bytes;
  buffer_init(&bytes);
  parquet_write(&bytes, text, rows, &(struct pw_options){.version = 1});
  free(scratch_write_bytes(directory, "g.parquet", bytes.data, bytes.length));
  buffer_clear(&bytes);
  json_decref(rows);
  assert_reads(&directory, 1, "a:a b:b c:c.part d:d e:e p:g");
  struct eaglet_error err = {0};
  assert_ok(read_all(&(struct dataset_params){.paths = &directory, .n_paths = 1}, none, &described, &err), &err);
  json_t *ignored = json_object_get(described, "files_ignored");
  assert_int_equal(json_array_size(ignored), 3);
  assert_non_null(strstr(json_string_value(json_array_get(ignored, 0)), "/.hidden.jsonl"));
  assert_non_null(strstr(json_string_value(json_array_get(ignored, 1)), "/README.md"));
  assert_non_null(strstr(json_string_value(json_array_get(ignored, 2)), "/inner.json"));
  assert_int_equal(json_integer_value(json_object_get(described, "files")), 6);
  json_decref(described);
  json_decref(none);
  char *pattern = file_join(directory, "[a-c].*json*"), *deep = file_join(directory, "*/*.jsonl"), *nothing = file_join(directory, "*.csv"), *odd = scratch_write(directory, "odd[1].jsonl", ROW("o"));
  const char *const several[] = {deep, pattern, odd};
  assert_reads(several, 3, "f:f a:a b:b c:c.part o:odd[1]");
  assert_failed_with(read_all(&(struct dataset_params){.paths = (const char *const *)&nothing, .n_paths = 1}, NULL, NULL, &err), EAGLET_E_INPUT, &err, "/*.csv: no file matches this pattern");
  char *empty = file_join(directory, "empty");
  assert_int_equal(file_make_directory(empty, NULL), EAGLET_OK);
  assert_failed_with(read_all(&(struct dataset_params){.paths = (const char *const *)&empty, .n_paths = 1}, NULL, NULL, &err), EAGLET_E_INPUT, &err, "/empty: expected data files in this folder");
  free(inner);
  free(pattern);
  free(deep);
  free(nothing);
  free(odd);
  free(empty);
}

/* What is cut short or corrupt is an error of the file, whatever share of bad rows is allowed. */
static void test_packed_and_cut(void **state) {
  struct buffer text, packed;
  buffer_init(&text);
  buffer_init(&packed);
  for (int i = 0; i < 20000; i++) buffer_format(&text, ROW("row %d") "\n", i);
  for (int codec = 2; codec <= 3; codec++) {
    json_t *rows = json_array();
    struct eaglet_error err = {0};
    buffer_reset(&packed);
    pw_pack(&packed, text.data, text.length, codec);
    char *path = scratch_write_bytes(*state, "data.bin", packed.data, packed.length);
    const struct dataset_params params = {.paths = (const char *const *)&path, .n_paths = 1, .bad_percent_max = 100};
    assert_ok(read_all(&params, rows, NULL, &err), &err);
    assert_int_equal(json_array_size(rows), 20000);
    json_array_clear(rows);
    free(scratch_write_bytes(*state, "data.bin", packed.data, packed.length - 100));
    assert_failed_with(read_all(&params, rows, NULL, &err), EAGLET_E_INPUT, &err, "data.bin: the packed data ends in the middle (cut short?)");
    json_decref(rows);
    free(path);
  }
  char *array = scratch_write(*state, "cut.json", "[" ROW("a") ",\n" ROW("b"));
  struct eaglet_error err = {0};
  json_t *rows = json_array();
  assert_failed_with(read_all(&(struct dataset_params){.paths = (const char *const *)&array, .n_paths = 1, .bad_percent_max = 100}, rows, NULL, &err), EAGLET_E_INPUT, &err,
                     "cut.json:2: column 45: the array does not end before the file does");
  char *table = write_packed(*state, "t.parquet.gz", "PAR1 and more", 2);
  assert_failed_with(read_all(&(struct dataset_params){.paths = (const char *const *)&table, .n_paths = 1}, rows, NULL, &err), EAGLET_E_INPUT, &err,
                     "t.parquet.gz: is a Parquet file that comes packed or through a pipe");
  free(table);
  free(array);
  json_decref(rows);
  buffer_clear(&text);
  buffer_clear(&packed);
}

/* ---- C05 ---- */

static char *write_long_line(const char *directory, size_t n, bool first) {
  struct buffer text;
  buffer_init(&text);
  if (!first) buffer_append_string(&text, ROW("before") "\n");
  buffer_append_string(&text, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
  size_t at = text.length;
  assert_true(buffer_reserve(&text, n + 100));
  memset(text.data + at, 'x', n);
  text.length = at + n;
  buffer_append_string(&text, "\"}]}\n" ROW("behind") "\n");
  char *path = scratch_write_bytes(directory, "long.jsonl", text.data, text.length);
  buffer_clear(&text);
  return path;
}

/* A line of 64 MiB is read; past the limit it is passed over by number and the lines around it are read; --strict refuses it. */
static void test_long_lines(void **state) {
  char *path = write_long_line(*state, (size_t)64 << 20, false);
  struct dataset_params params = {.paths = (const char *const *)&path, .n_paths = 1};
  for (int limited = 0; limited < 2; limited++) {
    json_t *rows = json_array(), *described = NULL;
    struct eaglet_error err = {0};
    params.row_mib_max = limited ? 63 : 0;
    assert_ok(read_all(&params, rows, &described, &err), &err);
    assert_int_equal(json_array_size(rows), limited ? 2 : 3);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, limited ? 1 : 2), "line")), 3);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(described, "bad"), "longer than 63 MiB")), limited);
    json_decref(described);
    json_decref(rows);
  }
  struct eaglet_error err = {0};
  json_t *rows = json_array();
  params.strict = true;
  assert_failed_with(read_all(&params, rows, NULL, &err), EAGLET_E_INPUT, &err, "long.jsonl:2: this line has more than 63 MiB (--max-row)");
  free(path);
  path = write_long_line(*state, (size_t)2 << 20, true); /* the first line, by which the file's shape is told */
  json_array_clear(rows);
  params = (struct dataset_params){.paths = (const char *const *)&path, .n_paths = 1, .row_mib_max = 1};
  assert_ok(read_all(&params, rows, NULL, &err), &err);
  assert_int_equal(json_array_size(rows), 1);
  free(scratch_write(*state, "long.jsonl", "[\n"));
  struct buffer text; /* of an array its end cannot be known */
  buffer_init(&text);
  buffer_append_string(&text, "[" ROW("a") ",\n[\"");
  for (int i = 0; i < 150000; i++) buffer_append_string(&text, "0123456789");
  buffer_append_string(&text, "\"]]");
  free(scratch_write_bytes(*state, "long.jsonl", text.data, text.length));
  assert_failed_with(read_all(&params, rows, NULL, &err), EAGLET_E_INPUT, &err, "long.jsonl:2: this row has more than 1 MiB (--max-row)");
  buffer_clear(&text);
  json_decref(rows);
  free(path);
}

#ifdef __SANITIZE_ADDRESS__
#define ROOM_KIB (640 << 10) /* it keeps 256 MiB of what is freed, and more around it */
#else
#define ROOM_KIB (16 << 10)
#endif

/* 200 MB into the pipe: rows of an array, or one line of which nobody wants more than a MiB, and a row behind it. */
static void write_much(const char *fifo, bool line) {
  FILE *pipe = fopen(fifo, "w");
  for (int i = 0; pipe && i < 200000; i++) fprintf(pipe, line ? "%.0s%0950d" : "%s" ROW("%0900d") "\n", i ? "," : "[\n", i);
  _exit(pipe && fputs(line ? "\n" ROW("behind") : "]", pipe) >= 0 && fclose(pipe) == 0 ? 0 : 1);
}

static void read_much(const char *fifo, bool line) {
  struct rusage before, after;
  struct dataset_reader *data;
  struct conversation c = {0};
  bool more = true;
  size_t n = 0;
  getrusage(RUSAGE_SELF, &before);
  if (dataset_open(&data, &(struct dataset_params){.paths = &fifo, .n_paths = 1, .row_mib_max = 1}, NULL) != EAGLET_OK) _exit(2);
  while (more && dataset_next(data, &c, &more, NULL) == EAGLET_OK) n += more;
  getrusage(RUSAGE_SELF, &after);
  _exit(more || n != (line ? 1 : 200000) ? 3 : after.ru_maxrss - before.ru_maxrss > ROOM_KIB ? 4 : 0);
}

/* Memory does not grow with the input. */
static void test_memory_is_flat(void **state) {
  char *fifo = file_join(*state, "fifo");
  assert_int_equal(mkfifo(fifo, 0600), 0);
  for (int line = 0; line < 2; line++) {
    int status;
    pid_t writer = fork();
    if (writer == 0) write_much(fifo, line);
    pid_t reader = fork();
    if (reader == 0) read_much(fifo, line);
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_int_equal(status, 0);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
  }
  free(fifo);
}

/* ---- C06, C10: rows are read one by one ---- */

static void test_rows_are_independent(void **state) {
  struct buffer text;
  buffer_init(&text);
  for (int i = 0; i < 10000; i++) buffer_format(&text, "{\"system\":null,\"messages\":[{\"role\":\"user\",\"content\":\"%d\"}]}\n", i);
  char *a = scratch_write(*state, "a.jsonl", text.data);
  buffer_append_string(&text, "{\"system\":\"rules\",\"messages\":[{\"role\":\"user\",\"content\":\"last\"}]}\n");
  char *b = scratch_write(*state, "b.jsonl", text.data);
  const char *const paths[] = {a, b};
  json_t *rows = json_array();
  struct eaglet_error err = {0};
  assert_ok(read_all(&(struct dataset_params){.paths = paths, .n_paths = 2}, rows, NULL, &err), &err);
  assert_int_equal(json_array_size(rows), 20001);
  for (size_t i = 0; i < 20001; i++) {
    const json_t *row = json_array_get(rows, i), *messages = json_object_get(row, "messages");
    assert_int_equal(json_integer_value(json_object_get(row, "line")), i % 10000 + 1 + (i == 20000 ? 10000 : 0));
    assert_int_equal(json_array_size(messages), i == 20000 ? 2 : 1);
  }
  json_t *last = json_object_get(json_array_get(rows, 20000), "messages"), *expected = json_loads("[{\"role\":\"system\",\"content\":\"rules\"},{\"role\":\"user\",\"content\":\"last\"}]", 0, NULL);
  assert_true(json_equal(last, expected));
  json_decref(expected);
  json_decref(rows);
  buffer_clear(&text);
  free(a);
  free(b);
}

/* ---- bad rows ---- */

static void test_bad_rows(void **state) {
  struct buffer text;
  json_t *rows = json_array(), *described;
  struct eaglet_error err = {0};
  buffer_init(&text);
  for (int i = 0; i < 1500; i++) {
    if (i % 300 == 7) buffer_append_string(&text, "{\"messages\": [\n");
    else if (i % 300 == 8) buffer_append_string(&text, "{\"title\": \"x\"}\n");
    else if (i % 300 == 9) buffer_append_string(&text, "{\"messages\":[{\"role\":\"user\"}]}\n");
    else if (i % 300 == 10) buffer_append_string(&text, ROW("\xff") "\n");
    else buffer_append_string(&text, ROW("fine") "\n");
  }
  char *path = scratch_write(*state, "some.jsonl", text.data);
  struct dataset_params params = {.paths = (const char *const *)&path, .n_paths = 1};
  assert_failed_with(read_all(&params, rows, NULL, &err), EAGLET_E_INPUT, &err, "some.jsonl:8: row: line 8 column");
  assert_int_equal(json_array_size(rows), 7);
  json_array_clear(rows);
  params.bad_percent_max = 1.7; /* 16 of the first thousand, 20 of 1211, 20 of 1500 */
  assert_ok(read_all(&params, rows, &described, &err), &err);
  assert_int_equal(json_array_size(rows), 1480);
  assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 7), "line")), 12); /* the first behind the bad ones */
  const json_t *bad = json_object_get(described, "bad");
  static const char *const reasons[] = {"not JSON", "no known layout", "malformed conversation", "not UTF-8"};
  for (int i = 0; i < 4; i++) assert_int_equal(json_integer_value(json_object_get(bad, reasons[i])), 5);
  assert_int_equal(json_object_size(bad), 4);
  assert_int_equal(json_integer_value(json_object_get(described, "bad_rows")), 20);
  json_decref(described);
  json_array_clear(rows);
  params.bad_percent_max = 1.59; /* 20 of 1500 would be within: the first thousand are not */
  assert_failed_with(read_all(&params, rows, NULL, &err), EAGLET_E_INPUT, &err, "16 of 1000 rows are bad, more than 1.59 % (--max-bad): not JSON (4), ");
  assert_non_null(strstr(err.message, "the first: "));
  assert_non_null(strstr(err.message, "some.jsonl:8: row: line 8"));
  json_array_clear(rows);
  free(path);
  path = scratch_write(*state, "few.jsonl", ROW("a") "\nbad\n" ROW("b") "\n"); /* too few for a share before the end */
  params.bad_percent_max = 20;
  assert_failed_with(read_all(&params, rows, NULL, &err), EAGLET_E_INPUT, &err, "1 of 3 rows are bad, more than 20 % (--max-bad): not JSON (1); the first: ");
  assert_int_equal(json_array_size(rows), 2);
  free(path);
  json_array_clear(rows);
  path = scratch_write(*state, "torn.jsonl", "{\"messages\":\"\n\"}\n" ROW("a") "\n"); /* a first line torn in a string: still lines */
  params.bad_percent_max = 70;
  assert_ok(read_all(&params, rows, &described, &err), &err);
  assert_int_equal(json_array_size(rows), 1);
  assert_int_equal(json_integer_value(json_object_get(described, "bad_rows")), 2);
  json_decref(described);
  free(path);
  json_array_clear(rows);
  path = scratch_write(*state, "role.jsonl", ROW("a") "\n{\"messages\":[{\"role\":\"narrator\",\"content\":\"b\"}]}\n"); /* a rule of its own: C01 */
  assert_ok(read_all(&params, rows, NULL, &err), &err);
  assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 1), "unknown")), "narrator");
  params = (struct dataset_params){.paths = (const char *const *)&path, .n_paths = 1, .strict = true};
  assert_failed_with(read_all(&params, rows, NULL, &err), EAGLET_E_INPUT, &err, "role.jsonl:2: message 0: role: expected human, user");
  free(path);
  json_decref(rows);
  buffer_clear(&text);
}

/* ---- tables and their twins (C07, C09) ---- */

static const struct pw_node chat[] = {
    {"root", -1, 0, 5, PW_NONE, 0, 0},
    {"messages", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0},
    {"list", -1, PW_REPEATED, 1, PW_NONE, 0, 0},
    {"element", -1, PW_OPTIONAL, 3, PW_NONE, 0, 0},
    {"role", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"content", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"tool_calls", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0},
    {"list", -1, PW_REPEATED, 1, PW_NONE, 0, 0},
    {"element", -1, PW_OPTIONAL, 2, PW_NONE, 0, 0},
    {"type", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"function", -1, PW_OPTIONAL, 2, PW_NONE, 0, 0},
    {"name", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"arguments", -1, PW_OPTIONAL, 3, PW_NONE, 0, 0}, /* the union of what all tools take */
    {"city", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"a", PW_INT64, PW_OPTIONAL, 0, PW_NONE, 0, 0},
    {"b", PW_INT64, PW_OPTIONAL, 0, PW_NONE, 0, 0},
    {"tools", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0},
    {"list", -1, PW_REPEATED, 1, PW_NONE, 0, 0},
    {"element", -1, PW_OPTIONAL, 2, PW_NONE, 0, 0},
    {"name", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"parameters", -1, PW_OPTIONAL, 3, PW_NONE, 0, 0},
    {"city", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"a", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"b", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"system", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"enable_thinking", PW_BOOLEAN, PW_OPTIONAL, 0, PW_NONE, 0, 0},
    {"embedding", PW_DOUBLE, PW_REPEATED, 0, PW_NONE, 0, 0},
};

/* Three kinds of rows, each with the fields it has itself. */
static json_t *chat_row(int i) {
  switch (i % 3) {
  case 0:
    return json_pack("{s[{ss ss}{so s[{ss s{ss s{ss}}}] ss}] s[{ss s{ss}}]}", "messages", "role", "user", "content", "weather?", "content", json_null(), "tool_calls", "type", "function",
                     "function", "name", "weather", "arguments", "city", "Rome", "role", "assistant", "tools", "name", "weather", "parameters", "city", "string");
  case 1:
    return json_pack("{s[{ss ss}{ss s[{ss s{ss s{si si}}}] so}{ss ss}] s[{ss s{ss ss}}] ss}", "messages", "role", "user", "content", "1+2?", "role", "assistant", "tool_calls", "type",
                     "function", "function", "name", "add", "arguments", "a", i, "b", 2, "content", json_null(), "role", "tool", "content", "3", "tools", "name", "add", "parameters",
                     "a", "integer", "b", "integer", "system", "count");
  default: return json_pack("{s[{ss ss}{ss ss}] so}", "messages", "role", "user", "content", " hi ", "role", "gpt", "content", "hello", "enable_thinking", json_true());
  }
}

static void test_table_and_twin(void **state) {
  json_t *rows = json_array();
  struct buffer lines, bytes;
  struct eaglet_error err = {0};
  buffer_init(&lines);
  buffer_init(&bytes);
  for (int i = 0; i < 1200; i++) {
    json_t *row = chat_row(i);
    struct eaglet_text text = json_dump(row, 0);
    buffer_format(&lines, "%s\n", text.data);
    free(text.data);
    json_array_append_new(rows, row);
  }
  char *twin = scratch_write(*state, "rows.jsonl", lines.data);
  json_t *expected = json_array();
  assert_ok(read_all(&(struct dataset_params){.paths = (const char *const *)&twin, .n_paths = 1}, expected, NULL, &err), &err);
  for (int i = 0; i < 6; i++) { /* row groups of 1 and 1000; none, snappy, zstd; dictionaries */
    const struct pw_options options = {.version = 1 + i % 2, .codec = (const int[]){0, 1, 3}[i % 3], .style = i < 3 ? PW_PLAIN : PW_DICTIONARY, .group_rows = i % 2 ? 1000 : 1};
    buffer_reset(&bytes);
    parquet_write(&bytes, chat, rows, &options);
    char *path = scratch_write_bytes(*state, "rows.parquet", bytes.data, bytes.length);
    json_t *found = json_array(), *described;
    assert_ok(read_all(&(struct dataset_params){.paths = (const char *const *)&path, .n_paths = 1}, found, &described, &err), &err);
    assert_int_equal(json_array_size(found), 1200);
    for (size_t k = 0; k < 1200; k++) {
      struct eaglet_text wanted = json_dump(json_array_get(expected, k), 0), got = json_dump(json_array_get(found, k), 0); /* the order of keys too */
      assert_string_equal(got.data, wanted.data);
      free(wanted.data);
      free(got.data);
    }
    json_t *ignored = json_object_get(described, "fields_ignored");
    assert_int_equal(json_array_size(ignored), 2);
    assert_string_equal(json_string_value(json_array_get(ignored, 1)), "embedding");
    json_decref(described);
    json_decref(found);
    free(path);
  }
  free(twin);
  json_decref(expected);
  json_decref(rows);
  buffer_clear(&lines);
  buffer_clear(&bytes);
}

/* A bad row of a table is told by its number; a table whose columns are no layout by their names. */
static void test_table_faults(void **state) {
  static const struct pw_node nodes[] = {{"root", -1, 0, 2, PW_NONE, 0, 0}, {"prompt", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0}, {"response", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0}};
  static const struct pw_node other[] = {{"root", -1, 0, 2, PW_NONE, 0, 0}, {"prompt", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0}, {"score", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0}};
  json_t *rows = json_loads("[{\"prompt\":\"p\",\"response\":\"r\",\"score\":\"1\"}]", 0, NULL), *found = json_array();
  struct eaglet_error err = {0};
  for (int i = 0; i < 2; i++) {
    struct buffer bytes;
    buffer_init(&bytes);
    parquet_write(&bytes, i ? other : nodes, rows, &(struct pw_options){.version = 1});
    char *path = scratch_write_bytes(*state, "t.parquet", bytes.data, bytes.length);
    enum eaglet_status status = read_all(&(struct dataset_params){.paths = (const char *const *)&path, .n_paths = 1}, found, NULL, &err);
    if (i) assert_failed_with(status, EAGLET_E_INPUT, &err, "t.parquet:1: expected conversations or messages (or instruction/output, ");
    else assert_ok(status, &err);
    free(path);
    buffer_clear(&bytes);
  }
  json_decref(rows);
  json_decref(found);
}

/* ---- the account ---- */

static void test_account(void **state) {
  char *path = scratch_write(*state, "d.jsonl",
                             "{\"id\":1,\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"a\"}],\"system\":\"s\"}\n"
                             "{\"prompt\":\"q\",\"completion\":\"a\",\"score\":2}\n[{\"role\":\"observation\",\"content\":\"x\"}]\n");
  json_t *rows = json_array(), *described,
         *expected = json_loads("{\"ids_twice\":0,\"first_id_twice\":\"\",\"files\":1,\"files_ignored\":[],\"fields_used\":[\"conversations\",\"system\",\"prompt\",\"completion\"],\"fields_ignored\":[\"id\",\"score\"],"
                                "\"roles\":{\"human\":\"user\",\"gpt\":\"assistant\",\"user\":\"user\",\"assistant\":\"assistant\",\"observation\":\"tool\"},\"bad_rows\":0,\"bad\":{}}",
                                0, NULL);
  struct eaglet_error err = {0};
  assert_ok(read_all(&(struct dataset_params){.paths = (const char *const *)&path, .n_paths = 1}, rows, &described, &err), &err);
  if (!json_equal(described, expected)) fail_msg("found %s", json_dumps(described, 0));
  json_decref(described);
  json_decref(expected);
  json_decref(rows);
  free(path);
}

/* ---- other people's data ---- */

struct totals {
  size_t rows, users, assistants, systems, tools, calls, reasoning, with_tools;
};

static struct totals count(const json_t *rows) {
  struct totals t = {.rows = json_array_size(rows)};
  size_t i, k;
  const json_t *row, *message;
  json_array_foreach(rows, i, row) {
    t.with_tools += json_array_size(json_object_get(row, "tools")) > 0;
    json_array_foreach(json_object_get(row, "messages"), k, message) {
      const char *role = json_string_value(json_object_get(message, "role"));
      t.users += !strcmp(role, "user");
      t.assistants += !strcmp(role, "assistant");
      t.systems += !strcmp(role, "system");
      t.tools += !strcmp(role, "tool");
      t.calls += json_array_size(json_object_get(message, "tool_calls"));
      t.reasoning += json_object_get(message, "reasoning_content") != NULL;
    }
  }
  return t;
}

/* The counts were made by a script that knows nothing of this reader. */
static void test_public_data(void **state) {
  (void)state;
  static const struct {
    const char *file, *layout;
    struct totals totals;
  } cases[] = {
      {"alpaca_en_demo.json", "instruction/input/output", {999, 999, 999, 0, 0, 0, 0, 0}},
      {"dummy_conversation.json", "conversations", {500, 1000, 1000, 0, 0, 0, 0, 0}},
      {"glaive_toolcall_en_demo.json", "conversations", {300, 746, 957, 0, 211, 211, 0, 191}},
      {"gpteacher.300.jsonl", "conversations", {300, 300, 300, 0, 0, 0, 0, 0}},
      {"gsm8k_train.300.jsonl", "conversations", {300, 300, 300, 0, 0, 0, 0, 0}},
      {"reason_tool_use_demo_50.jsonl", "messages", {50, 70, 112, 50, 42, 68, 112, 48}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[80];
    snprintf(name, sizeof name, "public/chat/%s", cases[i].file);
    char *path = shared_path(name);
    if (!path) return;
    json_t *rows = json_array();
    struct eaglet_error err = {0};
    assert_ok(read_all(&(struct dataset_params){.paths = (const char *const *)&path, .n_paths = 1}, rows, NULL, &err), &err);
    struct totals found = count(rows);
    if (memcmp(&found, &cases[i].totals, sizeof found) != 0)
      fail_msg("%s: found %zu rows, %zu user, %zu assistant, %zu system, %zu tool, %zu calls, %zu reasoning, %zu with tools", cases[i].file, found.rows, found.users, found.assistants,
               found.systems, found.tools, found.calls, found.reasoning, found.with_tools);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "layout")), cases[i].layout);
    json_decref(rows);
    free(path);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_memory_is_flat, scratch_create, scratch_remove), /* first: a child begins with its parent's memory */
      cmocka_unit_test_setup_teardown(test_folders_and_patterns, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_packed_and_cut, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_long_lines, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_rows_are_independent, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_bad_rows, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_table_and_twin, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_table_faults, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_account, scratch_create, scratch_remove),
      cmocka_unit_test(test_public_data),
  };
  return cmocka_run_group_tests_name("data_files", tests, NULL, NULL);
}
