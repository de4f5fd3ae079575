/* test_dataset.c - reading conversations. Method: a table of rows with the messages they must give (compared as JSON),
 * a table of rows that must be refused with the words of the refusal, then files: byte-order mark, blank lines, several
 * files, damage with file:line. */
#include "data/dataset.h"

#include "support.h"

static void test_rows(void **state) {
  (void)state;
  static const struct {
    const char *row, *messages, *source;
  } cases[] = {
      {"{\"conversations\":[{\"from\":\"human\",\"value\":\" hi "
       "\\n\"},{\"from\":\"gpt\",\"value\":\"yes\"}],\"source\":\"s\"}",
       "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"yes\"}]", "s"},
      {"{\"messages\":[{\"role\":\"system\",\"content\":\"be\"},{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
       "\"assistant\",\"content\":\"b\"}]}",
       "[{\"role\":\"system\",\"content\":\"be\"},{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
       "\"content\":\"b\"}]",
       ""},
      {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"model\",\"content\":\"b\"}]",
       "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]", ""},
      {"{\"conversations\":[{\"from\":\"observation\",\"value\":\"42\"},{\"from\":\"function\",\"value\":\"43\"},{"
       "\"from\":\"tool\",\"value\":\"44\"}]}",
       "[{\"role\":\"tool\",\"content\":\"42\"},{\"role\":\"tool\",\"content\":\"43\"},{\"role\":\"tool\",\"content\":"
       "\"44\"}]",
       ""},
      /* null renders as nothing; other fields stay, nulls among them */
      {"{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\"}],\"name\":null}]}",
       "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\"}],\"name\":null}]", ""},
      {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[]}]}",
       "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[]}]", ""},
      /* B15: both shapes of arguments stay what they are; no arguments, however written, are none */
      {"[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"arguments\":\"{\\\"a\\\":1}\"}},"
       "{\"function\":{\"arguments\":{\"a\":1}}},{\"function\":{\"arguments\":\"null\"}},{\"arguments\":\"\"},{"
       "\"arguments\":null}]}]",
       "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"arguments\":\"{\\\"a\\\":1}\"}},"
       "{\"function\":{\"arguments\":{\"a\":1}}},{\"function\":{\"arguments\":\"{}\"}},{\"arguments\":\"{}\"},{"
       "\"arguments\":{}}]}]",
       ""},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\" x \"}]}]}",
       "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\" x \"}]}]", ""},
      {"{\"system\":\"rules\",\"conversations\":[{\"from\":\"human\",\"value\":\"q\"}]}",
       "[{\"role\":\"system\",\"content\":\"rules\"},{\"role\":\"user\",\"content\":\"q\"}]", ""},
      {"{\"conversations\":[]}", "[]", ""},
      /* white space by Unicode, not only ASCII: no-break space, ideographic space, line separator; inside it stays */
      {"[{\"role\":\"user\",\"content\":\"\\u00a0\\u3000a\\u2003b\\u2028\"},{\"role\":\"user\",\"content\":\" \\t\"}]",
       "[{\"role\":\"user\",\"content\":\"a\\u2003b\"},{\"role\":\"user\",\"content\":\"\"}]", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *row = json_loads(cases[i].row, 0, NULL), *expected = json_loads(cases[i].messages, 0, NULL);
    struct conversation conversation = {.strip = true};
    struct eaglet_error err = {0};
    assert_ok(conversation_normalise(&conversation, row, &err), &err);
    if (!json_equal(conversation.messages, expected))
      fail_msg("case %zu: found %s", i, json_dumps(conversation.messages, 0));
    assert_string_equal(conversation.source, cases[i].source);
    conversation_clear(&conversation);
    json_decref(row);
    json_decref(expected);
  }
}

static void test_white_space_stays_for_requests(void **state) {
  (void)state;
  json_t *row = json_loads("[{\"role\":\"user\",\"content\":\" a \"}]", 0, NULL);
  struct conversation conversation = {0};
  assert_int_equal(conversation_normalise(&conversation, row, NULL), EAGLET_OK);
  assert_string_equal(json_string_value(json_object_get(json_array_get(conversation.messages, 0), "content")), " a ");
  conversation_clear(&conversation);
  json_decref(row);
}

static void test_tools(void **state) {
  (void)state;
  static const char *const rows[] = {"{\"tools\":[{\"type\":\"function\"}],\"messages\":[]}",
                                     "{\"tools\":\"[{\\\"type\\\":\\\"function\\\"}]\",\"messages\":[]}"};
  for (size_t i = 0; i < 2; i++) {
    json_t *row = json_loads(rows[i], 0, NULL);
    struct conversation conversation = {0};
    assert_int_equal(conversation_normalise(&conversation, row, NULL), EAGLET_OK);
    assert_string_equal(json_string_value(json_object_get(json_array_get(conversation.tools, 0), "type")), "function");
    conversation_clear(&conversation);
    json_decref(row);
  }
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *row, *words;
  } cases[] = {
      {"42", "expected an object with conversations or messages, found a number"},
      {"{}", "found nothing"},
      {"{\"messages\":[],\"conversations\":[]}", "either conversations or messages, found both"},
      {"{\"messages\":\"hi\"}", "an array, found a string"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},7]}", "message 1: expected an object, found a number"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"narrator\",\"content\":\"b\"}]}",
       "message 1: role: expected human, user, gpt"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"narrator\",\"content\":\"b\"}]}",
       "found 'narrator'"},
      {"{\"messages\":[{\"content\":\"b\"}]}", "message 0: role: expected a string, found nothing"},
      {"{\"messages\":[{\"role\":\"user\"}]}", "message 0: content: expected a string, found nothing"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":3}]}", "message 0: content: expected a string, found a number"},
      {"{\"messages\":[{\"role\":\"user\",\"from\":\"human\",\"content\":\"b\"}]}",
       "message 0: expected either role or from, found both"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]}", "message 0: content: part 0"},
      {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"tool_calls\":[{\"arguments\":\"{\\\"a\\\":\"}]"
       "}]",
       "message 1: tool call 0: arguments: line 1"},
      {"[{\"role\":\"assistant\",\"tool_calls\":[{\"arguments\":7}]}]",
       "arguments: expected an object or its JSON in a string, found a number"},
      {"[{\"role\":\"assistant\",\"tool_calls\":{}}]", "tool_calls: expected an array, found an object"},
      {"[{\"role\":\"assistant\",\"tool_calls\":[1]}]", "tool call 0: expected an object, found a number"},
      {"{\"messages\":[],\"source\":1}", "source: expected a string"},
      {"{\"messages\":[],\"source\":\"0123456789012345678901234567890123456789012345678901234567890123\"}",
       "source: expected at most 63 bytes, found 64"},
      {"{\"messages\":[],\"tools\":{}}", "tools: expected an array, found an object"},
      {"{\"messages\":[],\"tools\":\"[\"}", "tools: line 1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *row = json_loads(cases[i].row, JSON_DECODE_ANY, NULL);
    struct conversation conversation = {0};
    struct eaglet_error err = {0};
    assert_failed_with(conversation_normalise(&conversation, row, &err), EAGLET_E_INPUT, &err, cases[i].words);
    assert_null(conversation.messages);
    json_decref(row);
  }
}

/* Reads all rows; the status of the first failure. */
static enum eaglet_status read_all(const char *const *paths, size_t n_paths, json_t *found, struct eaglet_error *err) {
  struct dataset_reader *reader;
  struct conversation conversation = {0};
  bool more = true;
  TRY(dataset_open(&reader, paths, n_paths, err));
  enum eaglet_status status = EAGLET_OK;
  while (status == EAGLET_OK && more) {
    status = dataset_next(reader, &conversation, &more, err);
    if (status == EAGLET_OK && more) {
      const char *text = json_string_value(json_object_get(json_array_get(conversation.messages, 0), "content"));
      json_array_append_new(found, json_pack("[ssI]", text, conversation.source, (json_int_t)conversation.line));
    }
  }
  conversation_clear(&conversation);
  dataset_close(reader);
  return status;
}

#define ROW(text) "{\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]}"

static void test_files(void **state) {
  char *a = scratch_write(*state, "first.part.jsonl", "\xef\xbb\xbf" ROW("a") "\r\n\n   \n" ROW("b")),
       *b = scratch_write(*state, "second", ROW("c") "\n");
  const char *const paths[] = {a, b};
  json_t *found = json_array(),
         *expected = json_loads("[[\"a\",\"first.part\",1],[\"b\",\"first.part\",4],[\"c\",\"second\",1]]", 0, NULL);
  struct eaglet_error err = {0};
  assert_ok(read_all(paths, 2, found, &err), &err);
  if (!json_equal(found, expected)) fail_msg("found %s", json_dumps(found, 0));
  json_decref(found);
  json_decref(expected);
  free(a);
  free(b);
}

static void test_damaged_files(void **state) {
  static const struct {
    const char *text, *words;
  } cases[] = {
      {"", "data.jsonl: expected one conversation a line, found no line"},
      {"\xef\xbb\xbf\n \n", "data.jsonl: expected one conversation a line, found no line"},
      {ROW("a") "\n{\"messages\": [\n", "data.jsonl:2: row: line 1 column"},
      {ROW("a") "\n\n" ROW("b") " x\n", "data.jsonl:3: row"},
      {ROW("a") "\n7\n", "data.jsonl:2: expected an object with conversations or messages, found a number"},
      {ROW("a") "\n{\"messages\":[{\"role\":\"x\",\"content\":\"\"}]}\n", "data.jsonl:2: message 0: role"},
      {ROW("a") "\n" ROW("b\xff") "\n", "data.jsonl:2: byte 41 of the line: expected UTF-8, found byte 0xff"},
      {ROW("a") "\n" ROW("\xed\xa0\x80") "\n", "expected UTF-8, found byte 0xed"}, /* a surrogate */
      {"{\"messages\":[],\"messages\":[]}\n", "data.jsonl:1: row"},                /* a key twice */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *path = scratch_write(*state, "data.jsonl", cases[i].text);
    json_t *found = json_array();
    struct eaglet_error err = {0};
    assert_failed_with(read_all((const char *const *)&path, 1, found, &err), EAGLET_E_INPUT, &err, cases[i].words);
    json_decref(found);
    free(path);
  }
  const char *const missing[] = {"/nonexistent/data.jsonl"};
  struct eaglet_error err = {0};
  assert_failed_with(read_all(missing, 1, NULL, &err), EAGLET_E_INPUT, &err, "/nonexistent/data.jsonl");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows),
      cmocka_unit_test(test_white_space_stays_for_requests),
      cmocka_unit_test(test_tools),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test_setup_teardown(test_files, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_damaged_files, scratch_create, scratch_remove),
  };
  return cmocka_run_group_tests_name("dataset", tests, NULL, NULL);
}
