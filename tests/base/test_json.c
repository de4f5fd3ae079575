/* test_json.c - strictness of the JSON door by a table of texts, typed access, and dumps that read back bit for bit. */
#include "base/json.h"
#include "support.h"

#include <math.h>

static void test_strictness(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t length; /* 0: strlen */
    bool valid;
  } cases[] = {
      {"{}", 0, true},
      {" {\"a\": [1, 2.5, null, true, \"\\u00e9\"]} \n", 0, true},
      {"5", 0, true},
      {"\"\\ud83e\\udd85\"", 0, true},
      {"", 0, false},
      {"{\"a\":1,\"a\":2}", 0, false},       /* duplicate keys */
      {"{\"a\":{\"b\":1,\"b\":1}}", 0, false},
      {"{} x", 0, false},                    /* trailing garbage */
      {"{}{}", 0, false},
      {"{}\0", 3, false},
      {"NaN", 0, false},
      {"[Infinity]", 0, false},
      {"[-Infinity]", 0, false},
      {"[1e999]", 0, false},
      {"[1,]", 0, false},
      {"[01]", 0, false},
      {"[.5]", 0, false},
      {"[+1]", 0, false},
      {"[0x10]", 0, false},
      {"{'a':1}", 0, false},
      {"// c\n{}", 0, false},
      {"\xef\xbb\xbf{}", 0, false},          /* byte-order mark */
      {"\"\xff\"", 0, false},                /* invalid UTF-8 */
      {"\"\xc0\x80\"", 0, false},
      {"\"\xed\xa0\x80\"", 0, false},
      {"\"\\ud83e\"", 0, false},             /* lone surrogate */
      {"\"a\\u0000b\"", 0, false},           /* NUL in a string */
      {"\"a\nb\"", 0, false},
      {"\"a", 0, false},
      {"{\"a\"", 0, false},
      {"tru", 0, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *json = NULL;
    struct eaglet_error err = {0};
    size_t length = cases[i].length ? cases[i].length : strlen(cases[i].text);
    enum eaglet_status status = json_parse(&json, cases[i].text, length, "t.json", &err);
    if ((status == EAGLET_OK) != cases[i].valid) fail_msg("case %zu: %s: status %d %s", i, cases[i].text, status, err.message);
    if (!cases[i].valid) {
      assert_int_equal(status, EAGLET_E_INPUT);
      assert_null(json);
      assert_memory_equal(err.message, "t.json: line ", 13);
    }
    json_decref(json);
  }
}

static void test_depth_is_limited(void **state) {
  (void)state;
  char *text = memory_alloc(200001);
  memset(text, '[', 200000);
  json_t *json = NULL;
  assert_int_equal(json_parse(&json, text, 200000, "deep", NULL), EAGLET_E_INPUT);
  free(text);
}

static void test_integers_beyond_int64_become_reals(void **state) {
  (void)state;
  const char *text = "{\"n\": 1000000000000000019884624838656, \"s\": \"1000000000000000019884624838656 \\\" 9999999999999999999\", "
                     "\"max\": 9007199254740993, \"neg\": [-99999999999999999999]}";
  json_t *json;
  assert_int_equal(json_parse(&json, text, strlen(text), "t", NULL), EAGLET_OK);
  assert_true(json_real_value(json_object_get(json, "n")) == 1000000000000000019884624838656.0);
  assert_string_equal(json_string_value(json_object_get(json, "s")), "1000000000000000019884624838656 \" 9999999999999999999");
  assert_true(json_integer_value(json_object_get(json, "max")) == 9007199254740993);
  assert_true(json_real_value(json_array_get(json_object_get(json, "neg"), 0)) == -1e20);
  json_decref(json);
}

static void test_typed_access(void **state) {
  (void)state;
  const char *text = "{\"i\": 7, \"r\": 2.5, \"b\": true, \"s\": \"x\", \"null\": null, \"a\": []}";
  json_t *json;
  struct eaglet_error err;
  assert_int_equal(json_parse(&json, text, strlen(text), "t", &err), EAGLET_OK);
  int64_t i = 0;
  double d = 0;
  bool b = false;
  const char *s = NULL;
  assert_int_equal(json_get_int(&i, json, "i", "c.json", &err), EAGLET_OK);
  assert_int_equal(i, 7);
  assert_int_equal(json_get_int(&i, json, "none", "c.json", &err), EAGLET_E_INPUT);
  assert_string_equal(err.message, "c.json: none: expected integer, found nothing");
  assert_int_equal(json_get_int(&i, json, "s", "c.json", &err), EAGLET_E_INPUT);
  assert_string_equal(err.message, "c.json: s: expected integer, found string");
  assert_int_equal(json_get_int(&i, json, "r", "c.json", &err), EAGLET_E_INPUT);
  assert_int_equal(json_get_int_or(&i, 5, json, "null", "c.json", &err), EAGLET_OK);
  assert_int_equal(i, 5);
  assert_int_equal(json_get_int_or(&i, 5, json, "b", "c.json", &err), EAGLET_E_INPUT);
  assert_int_equal(json_get_double_or(&d, 1, json, "i", "c.json", &err), EAGLET_OK);
  assert_true(d == 7);
  assert_int_equal(json_get_double_or(&d, 1.5, json, "none", "c.json", &err), EAGLET_OK);
  assert_true(d == 1.5);
  assert_int_equal(json_get_double_or(&d, 1, json, "a", "c.json", &err), EAGLET_E_INPUT);
  assert_int_equal(json_get_bool_or(&b, false, json, "b", "c.json", &err), EAGLET_OK);
  assert_true(b);
  assert_int_equal(json_get_bool_or(&b, false, json, "i", "c.json", &err), EAGLET_E_INPUT);
  assert_int_equal(json_get_string_or(&s, "y", json, "s", "c.json", &err), EAGLET_OK);
  assert_string_equal(s, "x");
  assert_int_equal(json_get_string_or(&s, NULL, json, "none", "c.json", &err), EAGLET_OK);
  assert_null(s);
  assert_int_equal(json_get_string_or(&s, "y", json_object_get(json, "a"), "k", "c.json", &err), EAGLET_E_INPUT);
  assert_string_equal(err.message, "c.json: expected object with 'k', found array");
  json_decref(json);
}

static void test_dump(void **state) {
  (void)state;
  json_t *json = json_pack("{s:f, s:f, s:f, s:s, s:[i,b]}", "z", 0.1, "y", 3.0, "x", 1e300, "s", "1.00000000000000001 \"q\" é", "l", -3, 1);
  struct eaglet_text text = json_dump(json, 0);
  assert_string_equal(text.data, "{\"z\":0.1,\"y\":3.0,\"x\":1e+300,\"s\":\"1.00000000000000001 \\\"q\\\" é\",\"l\":[-3,true]}");
  assert_int_equal(text.length, strlen(text.data));
  free(text.data);
  text = json_dump(json, 2);
  assert_memory_equal(text.data, "{\n  \"z\": 0.1,", 13);
  free(text.data);
  json_decref(json);
}

static void test_reals_survive_a_dump(void **state) {
  (void)state;
  uint64_t u = 88172645463325252ull;
  for (int i = 0; i < 20000; i++) {
    u ^= u << 13, u ^= u >> 7, u ^= u << 17;
    double value;
    memcpy(&value, &u, sizeof value);
    if (!isfinite(value)) continue;
    json_t *json = json_real(value), *back = NULL;
    struct eaglet_text text = json_dump(json, 0);
    assert_int_equal(json_parse(&back, text.data, text.length, "t", NULL), EAGLET_OK);
    assert_true(json_is_real(back) && json_real_value(back) == value);
    json_decref(json);
    json_decref(back);
    free(text.data);
  }
}

static void test_parse_file_names_it(void **state) {
  char *path = file_join(*state, "bad.json");
  struct eaglet_error err = {0};
  json_t *json;
  assert_int_equal(json_parse_file(&json, path, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "bad.json: cannot open: No such file"));
  assert_int_equal(file_write(path, "{\n \"a\": x}", 10, NULL), EAGLET_OK);
  assert_int_equal(json_parse_file(&json, path, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "bad.json: line 2 column "));
  free(path);
}

/* A number or a list; what is no id of the vocabulary, or there already, or too much is left out. */
static void test_eos_ids(void **state) {
  (void)state;
  static const char *const configs[] = {"{\"eos_token_id\":7}", "{\"eos_token_id\":[7,3,-1,\"x\",100,99,3.0]}", "{\"eos_token_id\":null}", "{}", "[]",
                                        "{\"eos_token_id\":[5,6]}"};
  int32_t ids[4], n = 0;
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    json_t *config = json_loads(configs[i], 0, NULL);
    json_add_eos_ids(ids, &n, 4, config, 100);
    json_decref(config);
  }
  json_add_eos_ids(ids, &n, 4, NULL, 100);
  assert_int_equal(n, 4); /* 6 finds no room */
  const int32_t expected[] = {7, 3, 99, 5};
  assert_memory_equal(ids, expected, sizeof expected);
}

static void check_difference(const char *expected_text, const char *found_text, const char *key, const char *a, const char *b) {
  json_t *expected = json_loads(expected_text, 0, NULL), *found = json_loads(found_text, 0, NULL);
  char *a_text, *b_text;
  const char *different = json_first_difference(expected, found, &a_text, &b_text);
  if (key) {
    assert_string_equal(different, key);
    assert_string_equal(a_text, a);
    assert_string_equal(b_text, b);
  } else {
    assert_true(!different && !a_text && !b_text);
  }
  free(a_text);
  free(b_text);
  json_decref(expected);
  json_decref(found);
}

static void test_first_difference(void **state) {
  (void)state;
  check_difference("{\"a\":1,\"b\":[2]}", "{\"b\":[2],\"a\":1,\"c\":3}", NULL, NULL, NULL);
  check_difference("{\"a\":1,\"b\":[2]}", "{\"a\":1,\"b\":[3]}", "b", "[2]", "[3]");
  check_difference("{\"a\":1,\"b\":2}", "{\"b\":3}", "a", "1", "nothing");
  check_difference("{\"a\":null}", "[]", "a", "null", "nothing");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_strictness), cmocka_unit_test(test_depth_is_limited),
      cmocka_unit_test(test_integers_beyond_int64_become_reals), cmocka_unit_test(test_typed_access),
      cmocka_unit_test(test_dump), cmocka_unit_test(test_eos_ids), cmocka_unit_test(test_first_difference), cmocka_unit_test(test_reals_survive_a_dump), cmocka_unit_test(test_parse_file_names_it),
  };
  return cmocka_run_group_tests_name("json", tests, scratch_create, scratch_remove);
}
