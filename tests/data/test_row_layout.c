/* test_row_layout.c - what a row's fields mean: names that the user gives (--map), rows that are token ids, nulls of tables, roles and fields as they
 * are told. Method: tables of rows, in which ' stands for a quote, with the messages or ids they give or the words of the refusal. */
#include "data/dataset.h"

#include "support.h"

#include "data/row_layout.h"

static json_t *quoted(const char *text) {
  char *copy = memory_copy_string(text);
  for (char *c = copy; *c; c++) *c = *c == '\'' ? '"' : *c;
  json_error_t why;
  json_t *json = json_loads(copy, JSON_DECODE_ANY, &why);
  if (!json) fail_msg("%s: %s", copy, why.text);
  free(copy);
  return json;
}

#define QA "[{'role':'user','content':'q'},{'role':'assistant','content':'a'}]"

static void test_map(void **state) {
  (void)state;
  static const struct {
    const char *map, *row, *messages; /* messages NULL: refused, with the words in layout */
    const char *layout;
  } cases[] = {
      {"messages=dialog,role=speaker,content=utterance,assistant=bot,user=client",
       "{'dialog':[{'speaker':'client','utterance':'q','turn':1},{'speaker':'bot','utterance':'a'}]}",
       "[{'role':'user','content':'q','turn':1},{'role':'assistant','content':'a'}]", "messages (mapped)"},
      {"messages=data.turns,content=body.text", "{'data':{'turns':[{'role':'user','body':{'text':'q','lang':'en'}},{'role':'gpt','body':{'text':'a'}}]}}", QA,
       "messages (mapped)"},
      {"messages=data.turns", "{'data.turns':" QA "}", QA, "messages (mapped)"}, /* a key with a dot in it */
      {"prompt=ask,completion=reply", "{'ask':'q','reply':'a','system':'s'}", "[{'role':'system','content':'s'},{'role':'user','content':'q'},{'role':'assistant','content':'a'}]",
       "prompt/completion (mapped)"},
      {"prompt=ask,input=with,completion=reply,system=rules,history=past", "{'ask':'q','with':'x','reply':'a','rules':'s','past':[['b','c']],'system':'no'}",
       "[{'role':'system','content':'s'},{'role':'user','content':'b'},{'role':'assistant','content':'c'},{'role':'user','content':'q\\nx'},{'role':'assistant','content':'a'}]",
       "prompt/completion (mapped)"},
      /* a map of roles alone leaves the layout to be found; two names may mean one role; it comes before what is known */
      {"assistant=narrator,assistant=hero,user=gpt", "{'messages':[{'role':'gpt','content':'q'},{'role':'narrator','content':'a'},{'role':'hero','content':'b'}]}",
       "[{'role':'user','content':'q'},{'role':'assistant','content':'a'},{'role':'assistant','content':'b'}]", "messages"},
      {"system_role=boss,tool=api,call=ask_api", "{'messages':[{'role':'boss','content':'s'},{'role':'ask_api','content':'{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{}}'},{'role':'api','content':'r'}]}",
       "[{'role':'system','content':'s'},{'role':'assistant','content':'','tool_calls':[{'type':'function','function':{'name':'f','arguments':{}},'id':'functions.f:0'}]},"
       "{'role':'tool','content':'r','tool_call_id':'functions.f:0','name':'f'}]", "messages"},
      /* both layouts: messages first, the pair where there are none */
      {"messages=dialog,prompt=question,completion=reply", "{'dialog':" QA ",'question':'x','reply':'y'}", QA, "messages (mapped)"},
      {"messages=dialog,prompt=question,completion=reply", "{'dialog':null,'question':'q','reply':'a'}", QA, "prompt/completion (mapped)"},
      {"messages=dialog", "{'messages':" QA "}", NULL, "expected what --map names (dialog), found nothing there"},
      {"messages=dialog", "{'dialog':'x'}", NULL, "dialog (messages of --map): expected an array, found a string"},
      {"prompt=ask,completion=reply", "{'ask':'q'}", NULL, "expected what --map names (ask, reply), found nothing there"},
      {"role=speaker", "{'messages':[{'role':'user','content':'q'}]}", NULL, "message 0: role: expected a string, found nothing"},
      {"assistant=bot", "{'messages':[{'role':'client','content':'q'}]}", NULL, "found 'client'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *row = quoted(cases[i].row), *expected = cases[i].messages ? quoted(cases[i].messages) : NULL;
    struct row_map map;
    struct eaglet_error err = {0};
    assert_ok(row_map_parse(&map, cases[i].map, &err), &err);
    struct conversation conversation = {.strip = true, .map = &map};
    enum eaglet_status status = conversation_normalise(&conversation, row, &err);
    if (expected) {
      assert_ok(status, &err);
      if (!json_equal(conversation.messages, expected)) fail_msg("case %zu: found %s", i, json_dumps(conversation.messages, 0));
      assert_string_equal(conversation.layout, cases[i].layout);
    } else {
      assert_failed_with(status, EAGLET_E_INPUT, &err, cases[i].layout);
    }
    conversation_clear(&conversation);
    row_map_clear(&map);
    json_decref(row);
    json_decref(expected);
  }
}

static void test_map_words(void **state) {
  (void)state;
  static const struct {
    const char *map, *words;
  } cases[] = {{"speaker=x", "found 'speaker'"},
               {"messages", "expected NAME=FIELD with NAME one of messages, system, tools, source, history, prompt, input, completion, input_ids, loss_mask, role, content, "
                            "user, assistant, system_role, tool, call; found 'messages'"},
               {"messages=", "found 'messages='"},
               {"=x", "found '=x'"},
               {"role=a,role=b", "role is given twice"},
               {"prompt=a", "expected prompt and completion together"},
               {"input=a", "expected prompt and completion beside input"},
               {"loss_mask=a", "expected input_ids and loss_mask together"},
               {"role=a,,content=b", "found ''"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct row_map map;
    struct eaglet_error err = {0};
    assert_failed_with(row_map_parse(&map, cases[i].map, &err), EAGLET_E_USAGE, &err, cases[i].words);
  }
}

/* Token ids with a mask; -1 ends a list. */
static void test_token_rows(void **state) {
  (void)state;
  static const struct {
    const char *row;
    int32_t ids[6];
    int mask[6];
    const char *layout; /* or the words of the refusal, when the ids are none */
  } cases[] = {
      {"{'input_ids':[5,6,7],'loss_mask':[0,1,1]}", {5, 6, 7, -1}, {0, 1, 1}, "input_ids/loss_mask"},
      {"{'input_ids':[5,6],'labels':[-100,6],'source':'s'}", {5, 6, -1}, {0, 1}, "input_ids/labels"},
      {"{'input_ids':[5,6],'assistant_masks':[false,true],'text':'t'}", {5, 6, -1}, {0, 1}, "input_ids/assistant_masks"},
      {"{'input_ids':[5,6],'assistant_mask':[0.0,1.0]}", {5, 6, -1}, {0, 1}, "input_ids/assistant_mask"},
      {"{'input_ids':[0,0,5,6],'attention_mask':[0,0,1,1],'labels':[-100,-100,-100,6]}", {5, 6, -1}, {0, 1}, "input_ids/labels"},
      {"{'input_ids':[],'labels':[]}", {-1}, {0}, "input_ids/labels"},
      {"{'input_ids':[5,6],'loss_mask':[0]}", {0}, {0}, "mask: expected 2 values, as many as there are ids, found 1"},
      {"{'input_ids':[5],'labels':[6]}", {0}, {0}, "labels[0]: expected -100 or the id at the same place (5)"},
      {"{'input_ids':[5],'loss_mask':[2]}", {0}, {0}, "mask[0]: expected 0 or 1"},
      {"{'input_ids':[5],'loss_mask':['x']}", {0}, {0}, "mask[0]: expected 0 or 1"},
      {"{'input_ids':[-1],'loss_mask':[0]}", {0}, {0}, "input_ids[0]: expected a token id"},
      {"{'input_ids':[2147483648],'loss_mask':[0]}", {0}, {0}, "input_ids[0]: expected a token id"},
      {"{'input_ids':[1.5],'loss_mask':[0]}", {0}, {0}, "input_ids[0]: expected a token id"},
      {"{'input_ids':7,'loss_mask':[0]}", {0}, {0}, "input_ids: expected an array"},
      {"{'input_ids':[5],'labels':[5],'attention_mask':[0]}", {0}, {0}, "position 0 is learnt and left out by the attention mask"},
      {"{'input_ids':[5],'labels':[5],'attention_mask':[1,1]}", {0}, {0}, "attention_mask: expected 1 values"},
      {"{'input_ids':[5],'labels':[5],'loss_mask':[1]}", {0}, {0}, "ambiguous: could be read as input_ids/loss_mask and as input_ids/labels"},
      {"{'input_ids':[5],'attention_mask':[1]}", {0}, {0}, "token ids: give the conversations themselves, or what is to be learnt beside them"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *row = quoted(cases[i].row);
    struct conversation conversation = {.strip = true};
    struct eaglet_error err = {0};
    size_t n = 0;
    enum eaglet_status status = conversation_normalise(&conversation, row, &err);
    while (n < 6 && cases[i].ids[n] > 0) n++;
    if (cases[i].ids[n] == -1) {
      assert_ok(status, &err);
      assert_string_equal(conversation.layout, cases[i].layout);
      assert_int_equal(conversation.n_ids, n);
      assert_non_null(conversation.ids);
      assert_int_equal(json_array_size(conversation.messages), 0);
      for (size_t k = 0; k < n; k++) {
        assert_int_equal(conversation.ids[k], cases[i].ids[k]);
        assert_int_equal(conversation.mask[k], cases[i].mask[k]);
      }
    } else {
      assert_failed_with(status, EAGLET_E_INPUT, &err, cases[i].layout);
      assert_null(conversation.ids);
    }
    conversation_clear(&conversation);
    json_decref(row);
  }
}

/* A field of null is not there where another says more; C07: what a table pads objects with reaches no prompt, what JSON lines say does. */
static void test_nulls(void **state) {
  (void)state;
  static const struct {
    bool columnar;
    const char *row, *messages, *tools;
  } cases[] = {
      {false, "{'messages':" QA ",'conversations':null,'prompt':null,'completion':null}", QA, "null"},
      {false, "{'messages':null,'prompt':'q','completion':'a','question':null,'answer':null}", QA, "null"},
      {false, "{'messages':[{'role':'user','from':null,'content':null,'value':'q'},{'role':null,'from':'gpt','value':'a','content':null}]}", QA, "null"},
      {false, "{'prompt':'q','completion':null}", "[{'role':'user','content':'q'},{'role':'assistant','content':''}]", "null"},
      {true, "{'messages':[{'role':'user','content':'q','tool_calls':null,'name':null},{'role':'assistant','content':null,'tool_calls':[{'type':null,'function':{'name':'f',"
             "'arguments':{'city':'x','a':null,'b':[{'c':null,'d':1}]}}}]}],'tools':[{'type':'function','function':{'name':'weather','parameters':{'properties':{'city':{'type':'string'},"
             "'a':null,'b':null}}}}]}",
       "[{'role':'user','content':'q'},{'role':'assistant','content':'','tool_calls':[{'function':{'name':'f','arguments':{'city':'x','b':[{'d':1}]}}}]}]",
       "[{'type':'function','function':{'name':'weather','parameters':{'properties':{'city':{'type':'string'}}}}}]"},
      {false, "{'messages':[{'role':'user','content':'q','name':null}],'tools':[{'type':'function','function':{'name':'f','parameters':{'default':null}}}]}",
       "[{'role':'user','content':'q','name':null}]", "[{'type':'function','function':{'name':'f','parameters':{'default':null}}}]"},
      {true, "{'messages':[{'role':'user','content':[{'type':'text','text':'q','value':null}]}]}", "[{'role':'user','content':'q'}]", "null"},
      {true, "{'messages':[{'role':'user','content':null,'from':null,'value':null}]}", "[{'role':'user','content':''}]", "null"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *row = quoted(cases[i].row), *messages = quoted(cases[i].messages), *tools = quoted(cases[i].tools);
    struct conversation conversation = {.strip = true, .columnar = cases[i].columnar};
    struct eaglet_error err = {0};
    assert_ok(conversation_normalise(&conversation, row, &err), &err);
    if (!json_equal(conversation.messages, messages)) fail_msg("case %zu: found %s", i, json_dumps(conversation.messages, 0));
    if (json_is_null(tools)) assert_null(conversation.tools);
    else if (!json_equal(conversation.tools, tools)) fail_msg("case %zu: found %s", i, json_dumps(conversation.tools, 0));
    conversation_clear(&conversation);
    json_decref(row);
    json_decref(messages);
    json_decref(tools);
  }
}

/* Of a table only what its rows can need is read. */
static void test_wanted_columns(void **state) {
  (void)state;
  static const struct {
    const char *map;
    const char *names[8];
    const char *wanted; /* one character a name */
  } cases[] = {{NULL, {"id", "messages", "text", "tools", "prompt", "system", "source"}, "0101011"},
               {NULL, {"instruction", "input", "output", "history", "embedding", "text"}, "111101"},
               {NULL, {"prompt", "chosen", "rejected", "score"}, "1110"},
               {NULL, {"input_ids", "attention_mask", "labels", "length"}, "1110"},
               {"messages=data.turns,source=corpus", {"data", "messages", "corpus", "source", "tools"}, "10101"},
               {"prompt=q,completion=a", {"q", "a", "prompt", "history"}, "1101"},
               {"role=speaker", {"conversations", "speaker"}, "10"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct row_map map;
    struct eaglet_error err = {0};
    bool wanted[8];
    size_t n = strlen(cases[i].wanted);
    assert_ok(row_map_parse(&map, cases[i].map, &err), &err);
    row_layout_want(wanted, cases[i].names, n, &map);
    for (size_t k = 0; k < n; k++) {
      if (wanted[k] != (cases[i].wanted[k] == '1')) fail_msg("case %zu: %s is %swanted", i, cases[i].names[k], wanted[k] ? "" : "not ");
    }
    row_map_clear(&map);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_map),          cmocka_unit_test(test_map_words), cmocka_unit_test(test_token_rows),
      cmocka_unit_test(test_nulls), cmocka_unit_test(test_wanted_columns),
  };
  return cmocka_run_group_tests_name("row_layout", tests, NULL, NULL);
}
