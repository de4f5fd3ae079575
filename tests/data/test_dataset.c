/* test_dataset.c - reading conversations. Method: tables of rows with the messages they must give (compared as JSON) and of rows that
 * must be refused with the words of the refusal; then files: every shape that JSON data comes in, from a file and through a pipe,
 * byte-order marks, several files, damage with file:line (bug cases B15, C01, C04, C13, C15). */
#include "data/dataset.h"

#include "support.h"

#include "base/buffer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

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
      /* texts alone are joined: many templates would print the list; a picture stays for the template to show or refuse */
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\" x \"},{\"type\":\"text\",\"text\":\"y\"}]}]}",
       "[{\"role\":\"user\",\"content\":\"x y\"}]", ""},
      {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"image_url\",\"image_url\":\"u\"}]}]",
       "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"image_url\",\"image_url\":\"u\"}]}]", ""},
      /* C01: every alias */
      {"[{\"role\":\"developer\",\"content\":\"a\"},{\"role\":\"chatgpt\",\"content\":\"b\"},{\"role\":\"tool_response\",\"content\":\"c\"},"
       "{\"role\":\"ipython\",\"content\":\"d\"}]",
       "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"tool\",\"content\":\"c\"},"
       "{\"role\":\"tool\",\"content\":\"d\"}]", ""},
      /* a list of calls as text, and none */
      {"[{\"role\":\"assistant\",\"tool_calls\":\"[{\\\"arguments\\\":{}}]\"},{\"role\":\"assistant\",\"tool_calls\":\"\"}]",
       "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"arguments\":{}}]},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":null}]", ""},
      {"{\"system\":\"rules\",\"conversations\":[{\"from\":\"human\",\"value\":\"q\"}]}",
       "[{\"role\":\"system\",\"content\":\"rules\"},{\"role\":\"user\",\"content\":\"q\"}]", ""},
      {"{\"system\":\"rules\",\"messages\":[{\"role\":\"system\",\"content\":\"rules\"}]}", "[{\"role\":\"system\",\"content\":\"rules\"}]", ""},
      {"{\"system\":null,\"messages\":[]}", "[]", ""}, /* C06: null in most rows, text in some */
      {"{\"system\":\"\",\"messages\":[]}", "[]", ""},
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
  /* flat descriptions are wrapped as the API has them */
  json_t *flat = json_loads("{\"tools\":\"[{\\\"name\\\":\\\"f\\\",\\\"parameters\\\":{}}]\",\"messages\":[]}", 0, NULL);
  json_t *wrapped = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]", 0, NULL);
  struct conversation wrapping = {0};
  assert_int_equal(conversation_normalise(&wrapping, flat, NULL), EAGLET_OK);
  assert_true(json_equal(wrapping.tools, wrapped));
  conversation_clear(&wrapping);
  json_decref(flat);
  json_decref(wrapped);
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
      {"{}", "question/answer), found nothing"},
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
      {"{\"messages\":[],\"system\":[1]}", "system: expected a string, found an array"},
      {"{\"system\":\"a\",\"messages\":[{\"role\":\"system\",\"content\":\"b\"}]}", "system: the row and its first message give different texts"},
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
  TRY(dataset_open(&reader, &(struct dataset_params){.paths = paths, .n_paths = n_paths}, err));
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

/* The layouts of question and answer (C15), and what is no conversation. */
static void test_layouts(void **state) {
  (void)state;
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define REPLY(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
  static const struct {
    const char *row, *messages, *layout; /* messages NULL: refused, with the words in layout */
  } cases[] = {
      {"{'instruction':'Add','input':'1 2','output':'3'}", "[" USER("Add\\n1 2") "," REPLY("3") "]", "instruction/input/output"},
      {"{'instruction':'Add','input':'','output':'3'}", "[" USER("Add") "," REPLY("3") "]", "instruction/input/output"},
      {"{'instruction':'Add','output':'3'}", "[" USER("Add") "," REPLY("3") "]", "instruction/input/output"},
      {"{'instruction':'Add','input':null,'output':'3'}", "[" USER("Add") "," REPLY("3") "]", "instruction/input/output"},
      {"{'instruction':'','input':'1 2','output':'3'}", "[" USER("1 2") "," REPLY("3") "]", "instruction/input/output"},
      {"{'instruction':'c','output':'d','history':[['a','b']],'system':'be'}",
       "[{\"role\":\"system\",\"content\":\"be\"}," USER("a") "," REPLY("b") "," USER("c") "," REPLY("d") "]", "instruction/input/output"},
      {"{'prompt':'q','completion':' a'}", "[" USER("q") "," REPLY("a") "]", "prompt/completion"},
      {"{'prompt':'q','response':'a'}", "[" USER("q") "," REPLY("a") "]", "prompt/response"},
      {"{'question':'q','answer':'a','id':7}", "[" USER("q") "," REPLY("a") "]", "question/answer"},
      {"{'query':'q','response':'a','history':[]}", "[" USER("q") "," REPLY("a") "]", "query/response"},
      {"{'prompt':[{'role':'user','content':'q'}],'completion':[{'role':'assistant','content':'a'}]}", "[" USER("q") "," REPLY("a") "]", "prompt/completion"},
      {"{'prompt':[{'role':'user','content':'q'}],'completion':'a'}", NULL, "prompt: expected a string, found an array"},
      {"{'prompt':['q'],'completion':['a']}", NULL, "message 0: expected an object, found a string"},
      {"{'messages':[],'prompt':'q','completion':'a'}", "[]", "messages"},
      {"{'instruction':'Add','output':['3','4']}", NULL, "output: expected a string, found an array"},
      {"{'instruction':7,'output':'3'}", NULL, "instruction: expected a string, found a number"},
      {"{'instruction':'a','output':'b','history':[['a']]}", NULL, "history[0]: expected a question and an answer"},
      {"{'instruction':'a','output':'b','history':{}}", NULL, "history: expected an array, found an object"},
      {"{'prompt':'q','query':'q','response':'a'}", NULL, "ambiguous: could be read as prompt/response and as query/response"},
      {"{'prompt':'q','chosen':'a','rejected':'b'}", NULL, "preference pairs (chosen, rejected)"},
      {"{'conversations':[],'chosen':{}}", NULL, "preference pairs (chosen, rejected)"},
      {"{'text':'once upon a time'}", NULL, "plain text: a head learns from conversations"},
      {"{'input_ids':[1,2]}", NULL, "token ids: give the conversations themselves"},
      {"{'a':1,'b':2}", NULL, "expected conversations or messages (or instruction/output, "},
      {"{'a':1,'b':2}", NULL, "found a, b"},
      {"{'instruction':'Add'}", NULL, "found instruction"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *text = memory_copy_string(cases[i].row);
    for (char *c = text; *c; c++) *c = *c == '\'' ? '"' : *c;
    json_t *row = json_loads(text, 0, NULL), *expected = cases[i].messages ? json_loads(cases[i].messages, 0, NULL) : NULL;
    struct conversation conversation = {.strip = true};
    struct eaglet_error err = {0};
    enum eaglet_status status = conversation_normalise(&conversation, row, &err);
    if (expected) {
      assert_ok(status, &err);
      if (!json_equal(conversation.messages, expected)) fail_msg("case %zu: found %s", i, json_dumps(conversation.messages, 0));
      assert_string_equal(conversation.layout, cases[i].layout);
    } else {
      assert_failed_with(status, EAGLET_E_INPUT, &err, cases[i].layout);
    }
    conversation_clear(&conversation);
    json_decref(row);
    json_decref(expected);
    free(text);
  }
}

/* Calls as messages of their own and as parts of a content become what templates know; what has ids keeps them. */
static void test_calls(void **state) {
  (void)state;
  static const struct {
    const char *row, *messages;
  } cases[] = {
      {"{'conversations':[{'from':'human','value':'q'},{'from':'function_call','value':'{`name`:`f`,`arguments`:{`x`:[1]}}'},"
       "{'from':'observation','value':'r'},{'from':'function_call','value':'[{`name`:`g`,`arguments`:{}},{`name`:`h`,`arguments`:``}]'},"
       "{'from':'observation','value':'s'},{'from':'observation','value':'t'},{'from':'gpt','value':'a'}]}",
       "[{'role':'user','content':'q'},"
       "{'role':'assistant','content':'','tool_calls':[{'type':'function','function':{'name':'f','arguments':{'x':[1]}},'id':'functions.f:0'}]},"
       "{'role':'tool','content':'r','tool_call_id':'functions.f:0','name':'f'},"
       "{'role':'assistant','content':'','tool_calls':[{'type':'function','function':{'name':'g','arguments':{}},'id':'functions.g:1'},"
       "{'type':'function','function':{'name':'h','arguments':'{}'},'id':'functions.h:2'}]},"
       "{'role':'tool','content':'s','tool_call_id':'functions.g:1','name':'g'},{'role':'tool','content':'t','tool_call_id':'functions.h:2','name':'h'},"
       "{'role':'assistant','content':'a'}]"},
      {"[{'role':'assistant','content':[{'type':'reasoning','value':' r '},{'type':'text','value':'t '},{'type':'tool_call','value':'{`name`:`f`,`arguments`:{}}'}]},"
       "{'role':'tool','content':[{'type':'text','value':'42'}]}]",
       "[{'role':'assistant','content':'t','reasoning_content':'r','tool_calls':[{'type':'function','function':{'name':'f','arguments':{}},'id':'functions.f:0'}]},"
       "{'role':'tool','content':'42','tool_call_id':'functions.f:0','name':'f'}]"},
      /* OpenAI's own form is left alone, ids or none */
      {"[{'role':'assistant','tool_calls':[{'type':'function','function':{'name':'f','arguments':{}}}]},{'role':'tool','content':'r'}]",
       "[{'role':'assistant','content':'','tool_calls':[{'type':'function','function':{'name':'f','arguments':{}}}]},{'role':'tool','content':'r'}]"},
  };
  static const struct {
    const char *row, *words;
  } refused[] = {
      {"[{'role':'function_call','content':'no json'}]", "message 0: call: line 1"},
      {"[{'role':'function_call','content':'{`arguments`:{}}'}]", "message 0: call 0: expected an object with name and arguments"},
      {"[{'role':'function_call','content':'{`name`:`f`,`arguments`:7}'}]", "message 0: tool call 0: arguments: expected an object"},
      {"[{'role':'assistant','content':[{'type':'video','value':'u'}]}]", "content: part 0: type 'video': expected text, reasoning or tool_call"},
      {"[{'role':'assistant','content':[{'type':'text','value':7}]}]", "content: part 0: text: expected a string, found a number"},
      {"[{'role':'assistant','content':[{'type':'reasoning','value':'a'}],'reasoning_content':'b'}]", "reasoning_content: given beside a content that says it too"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases + sizeof refused / sizeof *refused; i++) {
    bool good = i < sizeof cases / sizeof *cases;
    char *texts[2] = {memory_copy_string(good ? cases[i].row : refused[i - sizeof cases / sizeof *cases].row), memory_copy_string(good ? cases[i].messages : "[]")};
    struct buffer quoted[2];
    json_t *json[2];
    for (int k = 0; k < 2; k++) { /* ' is a quote, ` a quote inside a string */
      buffer_init(&quoted[k]);
      for (char *c = texts[k]; *c; c++) {
        if (*c == '`') buffer_append_string(&quoted[k], "\\\"");
        else buffer_append_char(&quoted[k], *c == '\'' ? '"' : *c);
      }
      json[k] = json_loads(quoted[k].data, 0, NULL);
      assert_non_null(json[k]);
    }
    struct conversation conversation = {.strip = true};
    struct eaglet_error err = {0};
    enum eaglet_status status = conversation_normalise(&conversation, json[0], &err);
    if (!good) assert_failed_with(status, EAGLET_E_INPUT, &err, refused[i - sizeof cases / sizeof *cases].words);
    else assert_ok(status, &err);
    if (good && !json_equal(conversation.messages, json[1])) fail_msg("case %zu: found %s", i, json_dumps(conversation.messages, 0));
    conversation_clear(&conversation);
    for (int k = 0; k < 2; k++) {
      json_decref(json[k]);
      buffer_clear(&quoted[k]);
      free(texts[k]);
    }
  }
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

static void assert_reads(const char *path, const char *expected, const char *what) {
  json_t *found = json_array(), *wanted = json_loads(expected, 0, NULL), *row;
  struct eaglet_error err = {0};
  size_t i;
  assert_ok(read_all(&path, 1, found, &err), &err);
  json_array_foreach(found, i, row) json_array_remove(row, 1); /* the source's name */
  if (!json_equal(found, wanted)) fail_msg("%s: found %s", what, json_dumps(found, 0));
  json_decref(found);
  json_decref(wanted);
}

/* C13: what a file is does not hang on its name; C04: a byte-order mark changes nothing. */
static void test_shapes(void **state) {
  static const struct {
    const char *text, *found;
  } cases[] = {
      {ROW("a") "\n" ROW("b"), "[[\"a\",1],[\"b\",2]]"},
      {"[" ROW("a") "," ROW("b") "]", "[[\"a\",1],[\"b\",1]]"},
      {"[" ROW("a") "," ROW("b") "]\r\n\r\n  ", "[[\"a\",1],[\"b\",1]]"},
      {"\xef\xbb\xbf\n[\n  " ROW("a") ",\r\n  " ROW("b") "\n]", "[[\"a\",3],[\"b\",4]]"},
      {"[\n{\n\"messages\": [\n{\"role\": \"user\",\n \"content\": \"a ] } , \\\" [\"}]\n}\n,\n" ROW("b") "]", "[[\"a ] } , \\\" [\",2],[\"b\",8]]"},
      {"{\n\"messages\": [\n{\"role\": \"user\", \"content\": \"a\"}\n]}", "[[\"a\",1]]"},
      {"{\n\"messages\": [\n{\"role\": \"user\", \"content\": \"a\"}\n]}\n" ROW("b") "\n", "[[\"a\",1],[\"b\",5]]"},
      /* arrays of messages: one, one a line, an array of them */
      {"[{\"role\":\"user\",\"content\":\"a\"}]", "[[\"a\",1]]"},
      {"[\n{\"role\":\"user\",\n\"content\":\"a\"}]", "[[\"a\",1]]"},
      {"[{\"role\":\"user\",\"content\":\"a\"}]\n[{\"from\":\"human\",\"value\":\"b\"}]\n", "[[\"a\",1],[\"b\",2]]"},
      {"[[{\"role\":\"user\",\"content\":\"a\"}],\n[{\"role\":\"user\",\"content\":\"b\"}]]", "[[\"a\",1],[\"b\",2]]"},
  };
  static const char *const names[] = {"data.jsonl", "data.json", "data"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *path = scratch_write(*state, names[i % 3], cases[i].text);
    assert_reads(path, cases[i].found, cases[i].text);
    free(path);
    /* the same through a pipe that can be read only once */
    char *fifo = file_join(*state, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    pid_t child = fork();
    if (child == 0) {
      int fd = open(fifo, O_WRONLY);
      size_t length = strlen(cases[i].text);
      _exit(write(fd, cases[i].text, length) == (ssize_t)length ? 0 : 1);
    }
    assert_reads(fifo, cases[i].found, cases[i].text);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(remove(fifo), 0);
    free(fifo);
  }
  char *a = scratch_write(*state, "a.jsonl", ROW("a")), *b = scratch_write(*state, "b.jsonl", "\xef\xbb\xbf" ROW("b"));
  const char *const two[] = {a, b};
  json_t *found = json_array();
  assert_int_equal(read_all(two, 2, found, NULL), EAGLET_OK);
  assert_int_equal(json_array_size(found), 2);
  json_decref(found);
  free(a);
  free(b);
}

static void test_broken_shapes(void **state) {
  static const struct {
    const char *text, *words;
    size_t length; /* 0: of the text */
  } cases[] = {
      {"[" ROW("a") ",\n" ROW("b") ",\n]", ":2: column 45: a comma before the end of the array", 0},
      {"[" ROW("a") ",]", ":1: column 46: a comma before the end of the array", 0},
      {"[\n" ROW("a") "\n" ROW("b") "]", ":3: column 1: expected ',' or ']' behind a row of the array", 0},
      {"[\n" ROW("a") ",\n{\"messages\": [", ":3: column 1: this row does not end before the file does (cut short?)", 0},
      {"[\n" ROW("a"), "the array does not end before the file does (cut short?)", 0},
      {"[\n" ROW("a") ",", "the array does not end before the file does (cut short?)", 0},
      {"[\n" ROW("a") "]\nx", ":3: column 1: expected nothing behind the array", 0},
      {"[\n" ROW("a") ",\n  {\"messages\": [1,]}]", ":3: row: line 3 column 19: not valid JSON", 0},
      {"[\n" ROW("a") ",\n  {\"messages\": []]]", ":3: row: line 3 column 18: not valid JSON", 0},
      {"[\n" ROW("a") ",\n7]", ":3: expected an object with conversations or messages, found a number", 0},
      {"[\n" ROW("a") ",\n\"x\"]", ":3: expected an object with conversations or messages, found a string", 0},
      {"[\n,]", ":2: column 1: expected a JSON value", 0},
      {"[\n" ROW("b\xff") "]", ":2: byte 41 of the row: expected UTF-8, found byte 0xff", 0},
      {"[]", "expected conversations (a line each, or an array of them), found none", 0},
      {"[ \n ]", "expected conversations (a line each, or an array of them), found none", 0},
      {"{\n\"messages\": [\n", ":1: row: line 1", 0},
      {"\xff\xfe{\0", ": is UTF-16 text: convert it to UTF-8", 4},
      {"{\0\"\0", ": is UTF-16 text: convert it to UTF-8", 4},
      {"PAR1....", "data.json: is a Parquet file", 0},
      {"\x1f\x8b\x08", "data.json: the packed data ends in the middle (cut short?)", 0},
      {"\x28\xb5\x2f\xfd.", "data.json: the packed data ends in the middle (cut short?)", 0},
      {"\x1f\x8b\x07nonsense", "data.json: the gzip data is corrupt: ", 0},
      {"<!DOCTYPE html>", ": is an HTML or XML page, not data", 0},
      {"version https://git-lfs.github.com/spec/v1\n", ": is a Git LFS pointer, not the data", 0},
      {"instruction,output\nAdd,3\n", ":1: row: line 1 column", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *path = scratch_write_bytes(*state, "data.json", cases[i].text, cases[i].length ? cases[i].length : strlen(cases[i].text));
    json_t *found = json_array();
    struct eaglet_error err = {0};
    assert_failed_with(read_all((const char *const *)&path, 1, found, &err), EAGLET_E_INPUT, &err, cases[i].words);
    assert_non_null(strstr(err.message, "data.json"));
    json_decref(found);
    free(path);
  }
}

/* C01: a role that nobody knows costs its row, by name; the rows after it are read. */
static void test_unknown_role(void **state) {
  char *path = scratch_write(*state, "data.jsonl", ROW("a") "\n{\"messages\":[{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"narrator\",\"content\":\"c\"}]}\n" ROW("d"));
  struct dataset_reader *reader;
  struct conversation conversation = {0};
  struct eaglet_error err = {0};
  bool more;
  assert_ok(dataset_open(&reader, &(struct dataset_params){.paths = (const char *const *)&path, .n_paths = 1}, &err), &err);
  for (int i = 0; i < 3; i++) {
    assert_ok(dataset_next(reader, &conversation, &more, &err), &err);
    assert_true(more);
    assert_string_equal(conversation.unknown_role, i == 1 ? "narrator" : "");
    assert_int_equal(json_array_size(conversation.messages), i == 1 ? 0 : 1);
    assert_int_equal(conversation.line, i + 1);
  }
  conversation_clear(&conversation);
  dataset_close(reader);
  free(path);
}

static void test_damaged_files(void **state) {
  static const struct {
    const char *text, *words;
  } cases[] = {
      {"", "data.jsonl: expected conversations (a line each, or an array of them), found none"},
      {"\xef\xbb\xbf\n \n", "data.jsonl: expected conversations (a line each, or an array of them), found none"},
      {ROW("a") "\n{\"messages\": [\n", "data.jsonl:2: row: line 2 column"},
      {ROW("a") "\n\n" ROW("b") " x\n", "data.jsonl:3: row"},
      {ROW("a") "\n7\n", "data.jsonl:2: expected an object with conversations or messages, found a number"},
      {ROW("a") "\n" ROW("b\xff") "\n", "data.jsonl:2: byte 41 of the row: expected UTF-8, found byte 0xff"},
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
      cmocka_unit_test(test_layouts),
      cmocka_unit_test(test_calls),
      cmocka_unit_test_setup_teardown(test_shapes, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_broken_shapes, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_unknown_role, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_files, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_damaged_files, scratch_create, scratch_remove),
  };
  return cmocka_run_group_tests_name("dataset", tests, NULL, NULL);
}
