/* test_jinja.c - the interpreter against Python's jinja2: 3,876 renders of 57 real chat templates, the unit and end-to-end cases
 * of a JavaScript port with Python's answers, budgets that stop hostile templates, and origins.
 *
 * For golden rows that fail in Python the test asks for a failure here, and for the same words where the template chose them
 * (raise_exception). The numbers reached are floors.
 */
#include "support.h"
#include "text/jinja.h"

static const struct tm golden_clock = {.tm_year = 125, .tm_mon = 0, .tm_mday = 2, .tm_hour = 3, .tm_min = 4, .tm_sec = 5,
                                       .tm_wday = 4, .tm_yday = 1, .tm_isdst = 0};

/* Renders source with context; returns whether it worked. message gets the error. */
static bool render(const char *source, size_t length, const json_t *context, struct jinja_output *output, struct eaglet_error *err) {
  struct jinja_program *program;
  *output = (struct jinja_output){0};
  if (jinja_compile(&program, source, length, err) != EAGLET_OK) return false;
  struct jinja_limits limits = {.now = &golden_clock};
  bool ok = jinja_render(program, context, &limits, output, err) == EAGLET_OK;
  jinja_free(program);
  return ok;
}

/* The invariant of origins: output bytes equal the origin's. */
static void check_origins(const struct jinja_output *output) {
  size_t at = 0;
  for (size_t i = 0; i < output->n_spans; i++) {
    const struct jinja_span *span = &output->spans[i];
    assert_true(span->begin >= at && span->begin < span->end && span->end <= output->text.length);
    at = span->end;
    if (!json_is_string(span->origin)) continue;
    assert_true(span->origin_begin + (span->end - span->begin) <= json_string_length(span->origin));
    assert_memory_equal(output->text.data + span->begin, json_string_value(span->origin) + span->origin_begin, span->end - span->begin);
  }
}

static bool same_result(bool ok, const struct jinja_output *output, const struct eaglet_error *err, const json_t *rendered,
                        const json_t *error) {
  if (error) {
    const char *words = json_string_value(error), *prefix = "TemplateError: ";
    if (ok) return false;
    if (strncmp(words, prefix, strlen(prefix)) != 0) return true;
    return strstr(err->message, words + strlen(prefix)) != NULL;
  }
  return ok && output->text.length == json_string_length(rendered) &&
         memcmp(output->text.data, json_string_value(rendered), output->text.length) == 0;
}

static void report(const char *label, bool ok, const struct jinja_output *output, const struct eaglet_error *err, const json_t *expected) {
  char *want = json_dumps(expected, JSON_ENCODE_ANY);
  json_t *text = ok ? json_stringn(output->text.data, output->text.length) : NULL;
  char *got = text ? json_dumps(text, JSON_ENCODE_ANY) : memory_format("error: %s", err->message);
  printf("differs: %s\n  expected %.300s\n  found    %.300s\n", label, want, got);
  json_decref(text);
  free(want);
  free(got);
}

/* One conversation of the golden file called a tool with 2.0; the file's writer shortened it to 2 in the messages, not in what
 * Python rendered. */
static void restore_float(json_t *row) {
  if (strcmp(json_string_value(json_object_get(row, "conv")), "tool_call_none_content") != 0) return;
  size_t i;
  json_t *message;
  json_array_foreach(json_object_get(row, "messages"), i, message) {
    json_t *call = json_array_get(json_object_get(message, "tool_calls"), 0);
    json_t *arguments = json_object_get(json_object_get(call, "function"), "arguments");
    if (json_is_integer(json_object_get(arguments, "b"))) json_object_set_new(arguments, "b", json_real(2.0));
  }
}

static void test_golden_renders(void **state) {
  (void)state;
  char *golden = shared_path("public/golden/render.jsonl"), *templates_path = shared_path("public/golden/chat_templates.json");
  if (!golden || !templates_path) skip();
  json_t *templates, *row;
  ASSERT_OK(json_parse_file(&templates, templates_path, err));
  struct file_lines *lines;
  ASSERT_OK(file_lines_open(&lines, golden, err));
  int n = 0, n_same = 0, n_shown = 0;
  for (; (row = next_row(lines)); n++) {
    const char *name = json_string_value(json_object_get(row, "tokenizer"));
    const json_t *source = json_object_get(templates, name);
    assert_non_null(source);
    json_t *context = json_copy(json_object_get(row, "kwargs"));
    json_object_set(context, "messages", json_object_get(row, "messages"));
    restore_float(row);
    struct jinja_output output;
    struct eaglet_error err = {0};
    bool ok = render(json_string_value(source), json_string_length(source), context, &output, &err);
    const json_t *rendered = json_object_get(row, "rendered"), *error = json_object_get(row, "error");
    if (ok) check_origins(&output);
    if (same_result(ok, &output, &err, rendered, error)) n_same++;
    else if (n_shown++ < 4) {
      char *label = memory_format("row %d: %s, %s", n, name, json_string_value(json_object_get(row, "conv")));
      report(label, ok, &output, &err, rendered ? rendered : error);
      free(label);
    }
    jinja_output_clear(&output);
    json_decref(context);
    json_decref(row);
  }
  printf("golden renders: %d of %d\n", n_same, n);
  assert_int_equal(n, 3876);
  assert_true(n_same >= 3876);
  file_lines_close(lines);
  json_decref(templates);
  free(golden);
  free(templates_path);
}

static void check_upstream(const char *file, const char *source_key, const char *context_key, int n_floor) {
  char *path = shared_path(file);
  if (!path) skip();
  struct file_lines *lines;
  ASSERT_OK(file_lines_open(&lines, path, err));
  json_t *row;
  int n = 0, n_same = 0;
  while ((row = next_row(lines))) {
    const json_t *source = json_object_get(row, source_key), *expected = json_object_get(row, "python");
    const json_t *error = json_object_get(row, "python_error");
    if (!source || json_is_true(json_object_get(row, "has_function"))) { /* the context holds JavaScript functions */
      json_decref(row);
      continue;
    }
    n++;
    struct jinja_output output;
    struct eaglet_error err = {0};
    bool ok = render(json_string_value(source), json_string_length(source), json_object_get(row, context_key), &output, &err);
    if (ok) check_origins(&output);
    if (error ? !ok : same_result(ok, &output, &err, expected, NULL)) n_same++;
    else report(json_string_value(json_object_get(row, "name")), ok, &output, &err, error ? error : expected);
    jinja_output_clear(&output);
    json_decref(row);
  }
  printf("%s: %d of %d\n", file, n_same, n);
  assert_true(n_same >= n_floor);
  file_lines_close(lines);
  free(path);
}

static void test_upstream_unit(void **state) {
  (void)state;
  check_upstream("public/golden/jinja_upstream_unit.jsonl", "template", "context", 155);
}

static void test_upstream_e2e(void **state) {
  (void)state;
  check_upstream("public/golden/jinja_upstream_e2e.jsonl", "chat_template", "data", 53);
}

/* ---- budgets and refusals ---- */

static void expect_error(const char *source, const struct jinja_limits *limits, const char *words) {
  struct jinja_program *program;
  struct jinja_output output = {0};
  struct eaglet_error err = {0};
  json_t *context = json_object();
  enum eaglet_status status = jinja_compile(&program, source, strlen(source), &err);
  if (status == EAGLET_OK) {
    status = jinja_render(program, context, limits, &output, &err);
    jinja_free(program);
  }
  if (status != EAGLET_E_INPUT) fail_msg("%s: status %d, %s", source, status, output.text.data);
  if (!strstr(err.message, words)) fail_msg("%.80s: expected \"%s\", found \"%s\"", source, words, err.message);
  assert_null(output.text.data);
  json_decref(context);
}

static char *repeated(const char *begin, const char *middle, int n, const char *end) {
  struct buffer text;
  buffer_init(&text);
  buffer_append_string(&text, begin);
  for (int i = 0; i < n; i++) buffer_append_string(&text, middle);
  buffer_append_string(&text, end);
  return text.data;
}

static void test_budgets(void **state) {
  (void)state;
  static const struct jinja_limits small = {.steps_max = 200000, .output_max = 100000, .depth_max = 30};
  expect_error("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}", &(struct jinja_limits){.steps_max = 20000}, "steps");
  expect_error("{{ 'x' * 1000000 }}", &small, "bytes of text");
  expect_error("{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", &small, "bytes of text");
  expect_error("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", &small, "");
  expect_error("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", &small, "nested");
  expect_error("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", NULL, "nested");
  expect_error("{{ range(100001) | list | length }}", NULL, "Range too big");
  expect_error("{% for i in range(100000) %}{% for j in range(100000) %}{{ i * j }}{% endfor %}{% endfor %}", NULL, "");
  expect_error("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", NULL, "nested");
  expect_error("{{ 9223372036854775807 + 1 }}", NULL, "integer out of range");
  expect_error("{{ 2 ** 5000 }}", NULL, "integer out of range");
  static const char *const deep[][3] = {{"{{ ", "(", ""}, {"{{ ", "[", ""}, {"", "{% if x %}", ""}, {"{{ ", "-", "1 }}"},
                                        {"{{ x", "[0]", " }}"}, {"{{ x", "|string", " }}"}, {"{{ ", "{'a':", ""},
                                        {"{{ 1", " if 1 else 1", " }}"}, {"{{ 1", "+1", " }}"}, {"{{ 1", " and 1", " }}"}};
  for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
    char *source = repeated(deep[i][0], deep[i][1], 100000, deep[i][2]);
    expect_error(source, NULL, "");
    free(source);
  }
}

static void test_syntax_errors(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"a\n{{ x", "line 2: {{ is not closed"},
      {"{% if x %}", "expected {% elif %}"},
      {"{% endfor %}", "unknown or unsupported statement 'endfor'"},
      {"{% include 'x' %}", "unsupported statement 'include'"},
      {"{{ 'abc }}", "string is not closed"},
      {"{{ 1 + }}", "expected an expression"},
      {"{{ x | nope }}", "No filter named 'nope'"},
      {"{{ x is nope }}", "No test named 'nope'"},
      {"{# x", "{# is not closed"},
      {"{% raw %}x", "{% raw %} is not closed"},
      {"{% break %}", "outside a loop"},
      {"{{ )", "unbalanced bracket"},
      {"{{ 99999999999999999999 }}", "number out of range"},
      {"{% set = 3 %}", "expected a name"},
      {"{{ x $ y }}", "unexpected character"},
      {"{{ x.y }}", "'x' is undefined"},
      {"{{ f(1) }}", "'f' is undefined"},
      {"{{ none.x.y }}", "'None' has no attribute 'x'"},
      {"{{ [1].append(2) }}", "is unsafe"},
      {"{{ 'a' + 1 }}", "can only concatenate str"},
      {"{{ 1 / 0 }}", "division by zero"},
      {"{{ range(3)(1) }}", "not callable"},
      {"{{ 'x' | tojson(indent=[]) }}", "indent"},
      {"{{ 'x' | trim(1, 2) }}", "at most 1 arguments"},
      {"{{ 'x' | trim(nope=2) }}", "unexpected keyword"},
      {"{{ raise_exception('bad role') }}", "line 1: bad role"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_error(cases[i][0], NULL, cases[i][1]);
}

/* ---- origins and generation blocks ---- */

/* Renders with s = "  Hello World  " and t = "<x>"; spans are printed as their text, in order. */
static void check_spans(const char *source, const char *expected, const char *expected_spans) {
  json_t *context = json_pack("{s:s, s:s}", "s", "  Hello World  ", "t", "<x>");
  struct jinja_output output;
  struct eaglet_error err = {0};
  if (!render(source, strlen(source), context, &output, &err)) fail_msg("%s: %s", source, err.message);
  assert_string_equal(output.text.data, expected);
  check_origins(&output);
  struct buffer spans;
  buffer_init(&spans);
  buffer_append(&spans, "", 0);
  for (size_t i = 0; i < output.n_spans; i++)
    buffer_format(&spans, "[%.*s]", (int)(output.spans[i].end - output.spans[i].begin), output.text.data + output.spans[i].begin);
  assert_string_equal(spans.data, expected_spans);
  buffer_clear(&spans);
  jinja_output_clear(&output);
  json_decref(context);
}

static void test_origins(void **state) {
  (void)state;
  check_spans("a{{ s }}b", "a  Hello World  b", "[  Hello World  ]");
  check_spans("{{ '<' + s.strip() + '>' }}", "<Hello World>", "[Hello World]");
  check_spans("{{ s | trim }}{{ t }}", "Hello World<x>", "[Hello World][<x>]");
  check_spans("{{ s.split(' ') | join('-') }}", "--Hello-World--", "[Hello][World]");
  check_spans("{{ s[2:7] }}", "Hello", "[Hello]");
  check_spans("{{ s.strip().replace('World', t) }}", "Hello <x>", "[Hello ][<x>]");
  check_spans("{{ s.strip() | upper }}", "HELLO WORLD", "[H][ W]"); /* characters that did not change */
  check_spans("{% macro m(x) %}({{ x }}){% endmacro %}{% set y %}{{ m(t) }}{% endset %}{{ y }}", "(<x>)", "[<x>]");
  check_spans("{{ [t, {'k': t}] | tojson }}", "[\"<x>\", {\"k\": \"<x>\"}]", "[<x>][<x>]");
  check_spans("{{ [t] }}", "['<x>']", "[<x>]");
  check_spans("{{ '%s!' % t }}{{ '{}'.format(t) }}", "<x>!<x>", "[<x>][<x>]");
  check_spans("{{ t | e }}", "&lt;x&gt;", "[x]");
  check_spans("{{ t ~ t }}{{ t * 2 }}", "<x><x><x><x>", "[<x>][<x>][<x>][<x>]");
}

static void test_generation_blocks(void **state) {
  (void)state;
  json_t *context = json_pack("{s:[s,s]}", "l", "one", "two");
  struct jinja_output output;
  struct eaglet_error err = {0};
  const char *source = "{% for x in l %}<{% generation %}{% set y = x %}{{ y }}!{% endgeneration %}>{% endfor %}{{ y }}";
  assert_true(render(source, strlen(source), context, &output, &err));
  assert_string_equal(output.text.data, "<one!><two!>");
  assert_int_equal(output.n_generations, 2);
  assert_int_equal(output.generations[1].begin, 7);
  assert_int_equal(output.generations[1].end, 11);
  assert_false(output.generations_lost);
  jinja_output_clear(&output);
  source = "{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}";
  assert_true(render(source, strlen(source), context, &output, &err));
  assert_true(output.generations_lost);
  jinja_output_clear(&output);
  json_decref(context);
}

/* ---- pieces of the language that the golden files do not touch; the right column is Python's ---- */

static void test_language(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 2 ** -1 }}", "3 -4 2 1024 3.5 0.5"},
      {"{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e100 }}",
       "1e+16 1000000000000000.0 0.0001 1e-05 1.0 0.30000000000000004 1e+100"},
      {"{{ [1, 'a', none, true, 2.0, (1,), {'k': 'v'}] }}", "[1, 'a', None, True, 2.0, (1,), {'k': 'v'}]"},
      {"{{ ['it\\'s', 'a\"b', '\\n\\t\\x01'] }}", "[\"it's\", 'a\"b', '\\n\\t\\x01']"},
      {"{{ 'h\xc3\xa9llo'[1] }}{{ 'h\xc3\xa9llo'[::-1] }}{{ 'h\xc3\xa9llo' | length }}", "\xc3\xa9oll\xc3\xa9h5"},
      {"{{ [1,2,3,4,5][::2] }}{{ [1,2,3][-2:] }}{{ [1,2,3][5:] }}{{ [1,2,3][:-1] }}", "[1, 3, 5][2, 3][][1, 2]"},
      {"{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "231"},
      {"{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
      {"{% for a, b in {'x': 1, 'y': 2}.items() %}{{ a }}{{ b }}{{ ',' if not loop.last }}{% endfor %}", "x1,y2"},
      {"{% for i in [1,2,3,4] if i is even %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% else %}none{% endfor %}", "1:2/2 2:4/2 "},
      {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
      {"{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}", "0134"},
      {"{% macro m(a, b='x', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(1, 2, 3) }}", "1x11x3123"},
      {"{% macro m() %}[{{ caller('y') }}]{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}", "[y]"},
      {"{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "2"},
      {"{% filter upper | replace('A', 'b') %}aXa{% endfilter %}", "bXb"},
      {"{% set x | trim %}  a  {% endset %}[{{ x }}]", "[a]"},
      {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' in 'abc' }} {{ 2 not in [1] }} {{ not 1 in [1] }}", "True False True True False"},
      {"{{ x }}|{{ x is undefined }}|{{ x | default('d') }}|{{ '' | default('e', true) }}|{{ (x if false) }}|", "|True|d|e||"},
      {"{{ [3,1,2] | sort }}{{ ['b','A'] | sort | join }}{{ [1,2] | sum }}{{ [[1,2],[0]] | map('first') | list }}", "[1, 2, 3]Ab3[1, 0]"},
      {"{{ [{'r':'a','n':1},{'r':'b','n':2}] | selectattr('r','equalto','b') | map(attribute='n') | list }}", "[2]"},
      {"{{ [0,1,none,'x'] | select | list }}{{ ['a','b'] | reject('equalto','a') | list }}", "[1, 'x']['b']"},
      {"{{ {'b':1,'a':2} | dictsort }}{{ {'b':1} | items | list }}{{ {'a':1} | length }}", "[('a', 2), ('b', 1)][('b', 1)]1"},
      {"{{ 'a\nb' | indent(2) }}|{{ 'a\n\nb' | indent(1, true) }}", "a\n  b| a\n\n b"},
      {"{{ '3.7' | int }}{{ 'x' | int(9) }}{{ '0x1f' | int(0, 16) }}{{ '2.5' | float }}{{ 2.5 | round }}{{ 2.567 | round(1) }}", "39312.52.02.6"},
      {"{{ 'hello world' | title }}{{ 'hELLO' | capitalize }}{{ \"it's\".title() }}", "Hello WorldHelloIt'S"},
      {"{{ {'a': [1, 2.0, none, true], 'b': {}} | tojson }}", "{\"a\": [1, 2.0, null, true], \"b\": {}}"},
      {"{{ {'b': 1, 'a': [1, []]} | tojson(indent=2, sort_keys=true) }}", "{\n  \"a\": [\n    1,\n    []\n  ],\n  \"b\": 1\n}"},
      {"{{ {'a': 1} | tojson(separators=(',', ':')) }}{{ '<\xc3\xa9>' | tojson }}{{ '\xc3\xa9' | tojson(ensure_ascii=true) }}",
       "{\"a\":1}\"<\xc3\xa9>\"\"\\u00e9\""},
      {"{{ strftime_now('%d %b %Y %H:%M') }}", "02 Jan 2025 03:04"},
      {"{{ 'a' 'b' ~ 1 }}{{ -3 | abs }}{{ (1, 2)[0] }}{{ {'a': {'b': 1}}.a.b }}", "ab1311"},
      {"  {% if true %}\n  x\n  {% endif %}\n y", "  x\n y"},
      {"a {%- if true -%} b {%- endif %} c", "ab c"},
      {"{% raw %}{{ x }}{% endraw %}{# gone #}!\n", "{{ x }}!"},
      {"  {%+ if true %}x{% endif %}", "  x"},
      {"{{ '{{' }}{{ {'a': {}} }}", "{{{'a': {}}"},
  };
  json_t *context = json_object();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct jinja_output output;
    struct eaglet_error err = {0};
    if (!render(cases[i][0], strlen(cases[i][0]), context, &output, &err)) fail_msg("%s: %s", cases[i][0], err.message);
    if (strcmp(output.text.data, cases[i][1]) != 0) fail_msg("%s: expected %s, found %s", cases[i][0], cases[i][1], output.text.data);
    jinja_output_clear(&output);
  }
  json_decref(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_renders),
      cmocka_unit_test(test_upstream_unit),
      cmocka_unit_test(test_upstream_e2e),
      cmocka_unit_test(test_budgets),
      cmocka_unit_test(test_syntax_errors),
      cmocka_unit_test(test_origins),
      cmocka_unit_test(test_generation_blocks),
      cmocka_unit_test(test_language),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
