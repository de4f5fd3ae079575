/* test_constraint_schema.c - for every keyword, texts that a schema accepts and texts that it does not: byte by byte, and cut into tokens of
 * three families at random. What has no meaning here is refused with words that name it and its place; so is what no text satisfies.
 */
#include "constraint_support.h"

struct schema_case {
  const char *schema;
  const char *accepted[14], *refused[14]; /* up to NULL */
};

static const struct schema_case cases[] = {
    /* types */
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"", "tru", "True", "null", "1", "truefalse"}},
    {"{\"type\":\"null\"}", {"null"}, {"nul", "0", "\"null\""}},
    {"{\"type\":\"integer\"}", {"0", "-1", "42", "123456789012345678"}, {"-0", "01", "1.0", "1e3", "--1", "+1", "1234567890123456789", "-", ""}},
    {"{\"type\":\"number\"}", {"0", "-0.5", "3.14", "1e5", "1E-5", "2.5e+10", "123456789012345678"}, {".5", "1.", "01.5", "1e", "NaN", "1e100", "--1", "0x1"}},
    {"{\"type\":[\"string\",\"null\"]}", {"\"a\"", "null"}, {"1", "true", "nul"}},
    {"{\"type\":[\"number\",\"integer\"]}", {"1", "1.5"}, {"\"1\""}},
    {"true", {"1", "\"a\"", "[]", "{}", "[1, {\"a\": [null]}]", "[1,2]", "{\"a\":1,\"b\":2}"}, {"", "[", "[1,]", "{\"a\"}", "{a:1}", "[1  ,2]"}},
    {"{}", {"null", "{\"x\": true}"}, {"nil"}},
    /* strings */
    {"{\"type\":\"string\"}", {"\"\"", "\"a b\"", "\"\\n\\u00e9\\\"\"", "\"h\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x99\x82\"", "\"\\ud83d\\ude42\"", "\"\\/\"", "\"/\""},
     {"\"", "a", "\"a", "\"\n\"", "\"\\x\"", "\"\\u00\"", "\"\\ud83d\"", "\"\\ude42\"", "\"\\u0000\"", "\"\xc3\"", "\"\t\"", "\"a\"b\""}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", {"\"ab\"", "\"abc\"", "\"\xc3\xa9\xe4\xbd\xa0\"", "\"\\n\\u00e9x\"", "\"\\ud83d\\ude42.\""},
     {"\"a\"", "\"abcd\"", "\"\"", "\"\\n\"", "\"\\ud83d\\ude42\"", "\"\xc3\xa9\""}},
    {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}", {"\"a\"", "\"abc\""}, {"\"\"", "\"A\"", "\"a1\"", "\"1a\""}},
    {"{\"type\":\"string\",\"pattern\":\"[0-9]\"}", {"\"1\"", "\"a1b\"", "\"\xc3\xa9 7\""}, {"\"\"", "\"abc\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", {"\"a\"", "\"ax\"", "\"xb\"", "\"b\""}, {"\"xa\"", "\"bx\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(ab|c)*$\",\"minLength\":2,\"maxLength\":4}", {"\"ab\"", "\"cc\"", "\"abab\"", "\"cabc\""}, {"\"\"", "\"c\"", "\"ababc\"", "\"abb\""}},
    {"{\"type\":\"string\",\"pattern\":\"^.\\\\d{2,}$\",\"minLength\":4}", {"\"x123\"", "\"\xc3\xa9" "1234\""}, {"\"x12\"", "\"123\"", "\"xx12\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\\\n]$\"}", {"\"\\\"\"", "\"\\\\\"", "\"\\n\""}, {"\"\"\"", "\"\n\"", "\"n\"", "\"\\t\""}},
    /* formats */
    {"{\"type\":\"string\",\"format\":\"date\"}", {"\"2024-02-29\"", "\"1999-12-31\"", "\"2000-02-29\"", "\"2023-04-30\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\"", "\"2023-00-01\"", "\"2023-1-1\"", "\"23-01-01\"", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}", {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.123+02:00\""},
     {"\"2024-01-01\"", "\"2024-01-01T24:00:00Z\"", "\"2024-01-01T00:00:00\"", "\"2024-01-01 00:00:00Z\""}},
    {"{\"type\":\"string\",\"format\":\"time\"}", {"\"12:34:56Z\"", "\"00:00:00-11:30\""}, {"\"12:34\"", "\"25:00:00Z\""}},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", {"\"123e4567-e89b-12d3-a456-426614174000\"", "\"ABCDEFAB-1234-1234-1234-1234567890AB\""},
     {"\"123e4567e89b12d3a456426614174000\"", "\"123e4567-e89b-12d3-a456-42661417400\"", "\"g23e4567-e89b-12d3-a456-426614174000\""}},
    {"{\"type\":\"string\",\"format\":\"email\"}", {"\"a@b.co\"", "\"first.last+tag@sub.example.org\""}, {"\"a\"", "\"@b.co\"", "\"a@b\"", "\"a b@c.de\"", "\"a@b..co\"", "\".a@b.co\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}", {"\"0.0.0.0\"", "\"255.199.10.1\""}, {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
    {"{\"type\":\"string\",\"format\":\"duration\"}", {"\"P1Y2M3DT4H5M6S\"", "\"PT36H\"", "\"P3W\"", "\"P2DT5M\""}, {"\"P\"", "\"PT\"", "\"1D\"", "\"P1Y3D\"", "\"P1D2Y\"", "\"P1DT\"", "\"P1W1D\""}},
    {"{\"type\":\"string\",\"format\":\"ipv6\"}", {"\"::\"", "\"::1\"", "\"1::\"", "\"2001:db8::8a2e:370:7334\"", "\"1:2:3:4:5:6:7:8\"", "\"1:2:3:4:5:6:7::\"", "\"::2:3:4:5:6:7:8\""},
     {"\":\"", "\":::\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7\"", "\"1:2:3:4:5:6:7:8:9\"", "\"g::\"", "\"1:\""}},
    {"{\"type\":\"string\",\"format\":\"hostname\"}", {"\"example.org\"", "\"a-b\""}, {"\"-a\"", "\"a_b\"", "\"a.\"", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"uri\"}", {"\"https://example.org/a/b?c=d#e\"", "\"http://x:80\""}, {"\"example.org\"", "\"http://\"", "\"http://a b\""}},
    {"{\"type\":\"string\",\"format\":\"uri\",\"minLength\":1,\"maxLength\":2083}", {"\"https://example.org/\""}, {"\"\"", "\"https:\""}},
    {"{\"type\":\"string\",\"format\":\"email\",\"maxLength\":320}", {"\"a@b.co\""}, {"\"\"", "\"a@b\""}},
    {"{\"type\":\"string\",\"format\":\"hostname\",\"maxLength\":253}", {"\"a.bc\""}, {"\"\"", "\"a.\""}},
    /* integers between bounds */
    {"{\"type\":\"integer\",\"minimum\":0}", {"0", "7", "100"}, {"-1", "01"}},
    {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}", {"-12", "-9", "0", "99", "105"}, {"-0", "-13", "106", "-20", "110", "200", "-100"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":12}", {"10", "11"}, {"9", "12", "1", "100", "-10"}},
    {"{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":3.5}", {"2", "3"}, {"1", "4"}},
    {"{\"type\":\"integer\",\"minimum\":-3.5,\"maximum\":-1.5}", {"-3", "-2"}, {"-4", "-1", "2"}},
    {"{\"type\":\"integer\",\"minimum\":4711,\"maximum\":4711}", {"4711"}, {"471", "4712", "47110"}},
    {"{\"type\":\"integer\",\"multipleOf\":1,\"maximum\":5}", {"5", "-1000"}, {"6"}},
    {"{\"type\":\"integer\",\"minimum\":99,\"maximum\":1000}", {"99", "100", "999", "1000"}, {"98", "1001", "9", "10", "0"}},
    /* numbers between bounds */
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", {"0", "1", "0.5", "0.999", "1.0", "1.000", "0.0"}, {"-0.0", "1.1", "-0.1", "2", "1.0001", "1e0", "10"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}", {"0.5", "0.001", "0.999"}, {"0", "1", "0.0", "1.0", "-0.5", "-0.0"}},
    {"{\"type\":\"number\",\"minimum\":-2.25,\"maximum\":3.75}", {"-2.25", "-2.2", "-2", "0", "3.75", "3.7499", "-2.250"}, {"-2.26", "3.76", "3.751", "-3", "4"}},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0}", {"-1", "-0.1"}, {"0", "0.0", "-0", "-0.0", "1"}},
    {"{\"type\":\"number\",\"minimum\":10}", {"10", "10.5", "99999", "100"}, {"9", "9.99", "1", "-10"}},
    {"{\"type\":\"number\",\"multipleOf\":0.01,\"minimum\":0}", {"1", "1.5", "1.25"}, {"1.255", "-1"}},
    /* fixed values */
    {"{\"enum\":[\"red\",\"green\",1,null,true,[1,2],{\"a\":\"b\"}]}", {"\"red\"", "\"green\"", "1", "null", "true", "[1, 2]", "[1,2]", "{\"a\": \"b\"}"},
     {"\"re\"", "red", "2", "false", "[1]", "{}", "\"redgreen\""}},
    {"{\"const\":\"a\\\"\\n\\u0001\"}", {"\"a\\\"\\n\\u0001\""}, {"\"a\"", "\"a\\\"\\u000a\\u0001\""}},
    {"{\"const\":1.5}", {"1.5"}, {"1", "1.50"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",1,\"bb\"]}", {"\"a\"", "\"bb\""}, {"1"}},
    {"{\"type\":\"integer\",\"enum\":[1,2,3],\"minimum\":2}", {"2", "3"}, {"1"}},
    {"{\"enum\":[1,2],\"const\":2}", {"2"}, {"1"}},
    /* objects */
    {"{\"type\":\"object\"}", {"{}", "{\"a\":1}", "{\"a\": {\"b\": []}, \"c\": \"d\"}"}, {"{\"a\":1,}", "[]", "{1:2}", "{ }", "{\"a\" :1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}},\"required\":[\"a\"]}",
     {"{\"a\": 1}", "{\"a\":1,\"b\":\"x\"}", "{\"a\":1, \"b\": \"\"}"},
     {"{}", "{\"b\":\"x\"}", "{\"b\":\"x\",\"a\":1}", "{\"a\":1,\"c\":2}", "{\"a\":\"1\"}", "{\"a\":1,}", "{\"a\":1,\"a\":2}"}},
    {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":\"null\"}},\"required\":[\"b\"],\"type\":\"object\"}",
     {"{\"b\":null}", "{\"a\":null,\"b\":null}", "{\"b\":null,\"c\":null}", "{\"a\":null,\"b\":null,\"c\":null}"},
     {"{\"a\":null}", "{\"a\":null,\"c\":null}", "{,\"b\":null}", "{\"b\":null,}", "{\"b\":null,\"a\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},\"additionalProperties\":false}",
     {"{}", "{\"a\":null}", "{\"b\":null}", "{\"a\":null,\"b\":null}"}, {"{\"c\":null}", "{\"b\":null,\"a\":null}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", {"{}", "{\"x\":1}", "{\"x\":1, \"y\":2}"}, {"{\"x\":\"1\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"ab\":null}", "{\"ab\":null,\"x\":1}", "{\"a\":1}", "{\"abc\":1}", "{\"\":1}", "{\"\xc3\xa9\":1}", "{\"ab\":null, \"ac\": 1, \"b\":2}"},
     {"{\"ab\":1}", "{\"x\":null}", "{\"x\":1,\"ab\":null}", "{\"\\u0061b\":1}"}},
    {"{\"type\":\"object\",\"required\":[\"x\"],\"additionalProperties\":{\"type\":\"integer\"}}", {"{\"x\":1}", "{\"x\":1,\"y\":2}"}, {"{}", "{\"y\":2}", "{\"x\":\"a\"}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":1,\"maxProperties\":2}", {"{\"a\":null}", "{\"a\":null,\"b\":null}"}, {"{}", "{\"a\":null,\"b\":null,\"c\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\\\"b\":{\"type\":\"null\"},\"never\":false},\"required\":[\"a\\\"b\"]}", {"{\"a\\\"b\":null}"}, {"{\"a\"b\":null}", "{\"a\\\"b\":null,\"never\":1}"}},
    {"{\"properties\":{\"a\":{}}}", {"{}", "{\"a\": [1]}"}, {"1", "{\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"unevaluatedProperties\":false}", {"{}", "{\"a\":null}"}, {"{\"b\":1}"}},
    /* arrays */
    {"{\"type\":\"array\"}", {"[]", "[1]", "[1, \"a\", [], {}]"}, {"[1,]", "[,1]", "[1 2]", "{}", "[1"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":3}", {"[true]", "[true,false]", "[true, true,false]"}, {"[]", "[true,true,true,true]", "[1]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2}", {"[null,null]", "[null,null,null,null]"}, {"[]", "[null]"}},
    {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"boolean\"}],\"items\":{\"type\":\"string\"}}",
     {"[]", "[null]", "[null,true]", "[null, true, \"a\", \"b\"]"}, {"[true]", "[null,null]", "[null,true,1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"boolean\"}],\"items\":false,\"minItems\":2}", {"[null,true]"}, {"[]", "[null]", "[null,true,1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"minItems\":2,\"maxItems\":3}", {"[null,1]", "[null,\"a\",[]]"}, {"[null]", "[null,1,2,3]", "[1,2]"}},
    {"{\"type\":\"array\",\"items\":[{\"type\":\"null\"}],\"additionalItems\":false}", {"[]", "[null]"}, {"[null,1]", "[1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"null\"}],\"maxItems\":1}", {"[]", "[null]"}, {"[null,null]"}},
    /* unions, intersections, references */
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", {"1", "null"}, {"\"a\"", "1null"}},
    {"{\"oneOf\":[{\"const\":\"a\"},{\"const\":\"ab\"}]}", {"\"a\"", "\"ab\""}, {"\"b\"", "\"aab\""}},
    {"{\"type\":\"integer\",\"anyOf\":[{\"maximum\":3},{\"minimum\":10}]}", {"3", "10", "-5"}, {"4", "9", "\"a\"", "2.5"}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"null\"}},\"required\":[\"k\"],\"anyOf\":[{\"properties\":{\"x\":{\"type\":\"null\"}},\"required\":[\"x\"]},{\"properties\":{\"y\":{\"type\":\"null\"}}}]}",
     {"{\"k\":null,\"x\":null}", "{\"k\":null}", "{\"k\":null,\"y\":null}"}, {"{\"x\":null}", "{\"k\":null,\"x\":null,\"y\":null}"}},
    {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":1},{\"maximum\":3}]}", {"1", "3"}, {"0", "4", "\"a\""}},
    {"{\"allOf\":[{\"type\":\"number\"},{\"type\":[\"integer\",\"null\"]}]}", {"1"}, {"1.5", "null"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{\"properties\":{\"a\":{\"minimum\":5},\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}]}",
     {"{\"a\":5,\"b\":null}"}, {"{\"a\":4,\"b\":null}", "{\"a\":5}", "{\"b\":null}"}},
    {"{\"allOf\":[{\"anyOf\":[{\"const\":1},{\"const\":2}]},{\"anyOf\":[{\"const\":2},{\"const\":3}]}]}", {"2"}, {"1", "3"}},
    {"{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2,3,4]},{\"const\":3}]}", {"3"}, {"2", "4", "1"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"}],\"description\":\"d\",\"$defs\":{\"a\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
    {"{\"$ref\":\"#/$defs/a\",\"minimum\":3,\"$defs\":{\"a\":{\"type\":\"integer\",\"maximum\":5}}}", {"3", "5"}, {"2", "6"}},
    {"{\"$ref\":\"#/definitions/a~1b%20c\",\"definitions\":{\"a/b c\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}},\"required\":[\"v\"]}",
     {"{\"v\":1}", "{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3}}}"}, {"{\"v\":1,\"next\":{}}", "{\"v\":1,\"next\":{\"v\":2}", "{\"next\":null}"}},
    {"{\"$ref\":\"#/$defs/tree\",\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/tree\"}}},\"required\":[\"c\"]}}}",
     {"{\"c\":[]}", "{\"c\":[{\"c\":[]}, {\"c\":[{\"c\":[]}]}]}"}, {"{}", "{\"c\":[{}]}", "{\"c\":[{\"c\":[]}}"}},
    /* annotations mean nothing */
    {"{\"type\":\"null\",\"title\":\"t\",\"description\":\"d\",\"default\":1,\"examples\":[1],\"$schema\":\"s\",\"$id\":\"i\",\"$comment\":\"c\",\"deprecated\":true,\"x-y\":1}", {"null"}, {"1"}},
};
#define N_CASES (sizeof cases / sizeof *cases)

/* ---- accepted and refused texts ---- */

typedef bool accept_function(struct constraint_matcher *matcher, const struct family *f, const char *text, uint64_t *seed);

static bool accept_by_bytes(struct constraint_matcher *matcher, const struct family *f, const char *text, uint64_t *seed) {
  (void)f;
  (void)seed;
  return accepts_bytes(matcher, text);
}

static void check_case(const struct schema_case *c, const struct family *f, accept_function *accept) {
  uint64_t seed = 3;
  struct constraint *constraint = compile_schema(c->schema, NULL);
  struct constraint_matcher *matcher = run_constraint(constraint, f ? f->vocabulary : NULL);
  assert_non_null(c->accepted[0]);
  assert_non_null(c->refused[0]);
  for (size_t i = 0; c->accepted[i]; i++)
    if (!accept(matcher, f, c->accepted[i], &seed)) fail_msg("%s: refuses %s", c->schema, c->accepted[i]);
  for (size_t i = 0; c->refused[i]; i++)
    if (accept(matcher, f, c->refused[i], &seed)) fail_msg("%s: accepts %s", c->schema, c->refused[i]);
  constraint_matcher_free(matcher);
  constraint_free(constraint);
}

static void test_bytes(void **state) {
  (void)state;
  for (size_t i = 0; i < N_CASES; i++) check_case(&cases[i], NULL, accept_by_bytes);
}

/* The invalid halves of characters are no tokens of every family: a text that a family cannot spell is left out there. */
static bool accept_by_tokens(struct constraint_matcher *matcher, const struct family *f, const char *text, uint64_t *seed) {
  bool accepted = accepts_tokens(matcher, f, text, seed);
  for (int again = 0; again < 3; again++) assert_int_equal(accepts_tokens(matcher, f, text, seed), accepted);
  return accepted;
}

static void test_tokens(void **state) {
  (void)state;
  static const char *const names[] = {"gpt2", "llama2", "qwen3"};
  for (size_t k = 0; k < 3; k++) {
    struct family f;
    if (!family_open(&f, names[k])) skip();
    for (size_t i = 0; i < N_CASES; i++) check_case(&cases[i], &f, accept_by_tokens);
    family_close(&f);
  }
}

/* ---- integers, all of them ---- */

static void test_integer_bounds(void **state) {
  (void)state;
  uint64_t seed = 11;
  for (int round = 0; round < 300; round++) {
    int low = (int)random_pick(&seed, 2400) - 1200, high = low + (int)random_pick(&seed, round % 2 ? 20 : 1200);
    char *text = memory_format("{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", low, high);
    struct constraint *constraint = compile_schema(text, NULL);
    struct constraint_matcher *matcher = run_constraint(constraint, NULL);
    for (int value = low - 30; value <= high + 30; value++) {
      char digits[16];
      snprintf(digits, sizeof digits, "%d", value);
      if (accepts_bytes(matcher, digits) != (value >= low && value <= high)) fail_msg("%s: wrong about %d", text, value);
    }
    constraint_matcher_free(matcher);
    constraint_free(constraint);
    free(text);
  }
}

/* Thousandths between bounds in hundredths, inclusive and not. */
static void test_number_bounds(void **state) {
  (void)state;
  uint64_t seed = 13;
  for (int round = 0; round < 200; round++) {
    int low = (int)random_pick(&seed, 600) - 300, high = low + 1 + (int)random_pick(&seed, 300);
    bool strict = round % 2;
    const char *prefix = strict ? "exclusiveM" : "m";
    char *text = memory_format("{\"type\":\"number\",\"%sinimum\":%.2f,\"%saximum\":%.2f}", prefix, low / 100.0, prefix, high / 100.0);
    struct constraint *constraint = compile_schema(text, NULL);
    struct constraint_matcher *matcher = run_constraint(constraint, NULL);
    for (int value = low * 10 - 25; value <= high * 10 + 25; value++) {
      char digits[32];
      snprintf(digits, sizeof digits, "%s%d.%03d", value < 0 ? "-" : "", abs(value) / 1000, abs(value) % 1000);
      bool inside = strict ? value > low * 10 && value < high * 10 : value >= low * 10 && value <= high * 10;
      if (accepts_bytes(matcher, digits) != inside) fail_msg("%s: wrong about %s", text, digits);
    }
    constraint_matcher_free(matcher);
    constraint_free(constraint);
    free(text);
  }
}

/* ---- whitespace, nesting, any object ---- */

static void test_whitespace(void **state) {
  (void)state;
  static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"null\"}}}}";
  struct constraint *constraint = compile_schema(schema, &(struct constraint_params){.whitespace_max = 3});
  struct constraint_matcher *matcher = run_constraint(constraint, NULL);
  static const char *const accepted[] = {"{}", "{      }", "{\"a\":[]}", "{\n\t\"a\" :\r\n [ null , null\n]\n }"};
  static const char *const refused[] = {"{       }", "{\"a\":    []}", " {}", "{\v}", "{} "};
  for (size_t i = 0; i < 4; i++)
    if (!accepts_bytes(matcher, accepted[i])) fail_msg("refuses %s", accepted[i]);
  for (size_t i = 0; i < 5; i++)
    if (accepts_bytes(matcher, refused[i])) fail_msg("accepts %s", refused[i]);
  constraint_matcher_free(matcher);
  constraint_free(constraint);
}

static void test_json_object(void **state) {
  (void)state;
  struct constraint *constraint;
  ASSERT_OK(constraint_compile_json_object(&constraint, &(struct constraint_params){.nesting_max = 3}, err));
  struct constraint_matcher *matcher = run_constraint(constraint, NULL);
  static const char *const accepted[] = {"{}", "{\"a\": 1, \"b\": [1, [2]]}", "{\"a\":{\"b\":{\"c\":\"d\"}}}", "{\"\xe4\xbd\xa0\": \"\\u4f60\"}"};
  static const char *const refused[] = {"[]", "1", "{\"a\":[[[1]]]}", "{\"a\":{\"b\":{\"c\":{\"d\":1}}}}", "{}{}"};
  for (size_t i = 0; i < 4; i++)
    if (!accepts_bytes(matcher, accepted[i])) fail_msg("refuses %s", accepted[i]);
  for (size_t i = 0; i < 5; i++)
    if (accepts_bytes(matcher, refused[i])) fail_msg("accepts %s", refused[i]);
  uint32_t at = constraint_matcher_start(matcher);
  assert_true(constraint_matcher_advance_bytes(matcher, &at, "{\"a\":[[[", 8));
  assert_false(constraint_matcher_advance_bytes(matcher, &at, "[", 1)); /* what could not be closed is never opened */
  assert_true(constraint_matcher_advance_bytes(matcher, &at, "]]]}", 4));
  assert_true(constraint_matcher_must_end(matcher, at));
  constraint_matcher_free(matcher);
  constraint_free(constraint);
}

/* ---- refusals ---- */

static void test_refused(void **state) {
  (void)state;
  static const struct { const char *schema, *words; } refusals[] = {
      {"1", "expected a schema"}, {"{\"type\":\"text\"}", "\"text\""}, {"{\"type\":1}", "type"}, {"{\"type\":[\"null\",2]}", "type"},
      {"{\"not\":{}}", "\"not\""}, {"{\"if\":{}}", "\"if\""}, {"{\"type\":\"array\",\"uniqueItems\":true}", "\"uniqueItems\""},
      {"{\"type\":\"array\",\"contains\":{}}", "\"contains\""}, {"{\"patternProperties\":{}}", "\"patternProperties\""},
      {"{\"properties\":{\"a\":{\"dependentRequired\":{}}}}", "#/properties/a: keyword \"dependentRequired\""}, {"{\"$dynamicRef\":\"#\"}", "\"$dynamicRef\""},
      {"{\"propertyNames\":{}}", "\"propertyNames\""}, {"{\"type\":\"string\",\"format\":\"idn-email\"}", "\"idn-email\""},
      {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "lookahead"}, {"{\"type\":\"string\",\"pattern\":5}", "pattern"},
      {"{\"type\":\"string\",\"pattern\":\"a\",\"format\":\"date\"}", "pattern together with format"}, {"{\"type\":\"string\",\"minLength\":-1}", "minLength"},
      {"{\"type\":\"string\",\"maxLength\":1.5}", "maxLength"}, {"{\"type\":\"string\",\"maxLength\":1000000}", "100000"},
      {"{\"type\":\"integer\",\"multipleOf\":3}", "multipleOf"}, {"{\"type\":\"integer\",\"minimum\":\"1\"}", "minimum"},
      {"{\"type\":\"number\",\"minimum\":1e30}", "18 digits"}, {"{\"$ref\":\"#/$defs/a\"}", "leads nowhere"}, {"{\"$ref\":\"http://x\"}", "only references into"},
      {"{\"$ref\":5}", "$ref"}, {"{\"anyOf\":[]}", "anyOf"}, {"{\"anyOf\":{}}", "anyOf"}, {"{\"allOf\":1}", "allOf"}, {"{\"enum\":1}", "enum"},
      {"{\"enum\":[\"a\"],\"pattern\":\"a\"}", "\"pattern\" beside enum"}, {"{\"properties\":[]}", "properties"}, {"{\"required\":[1],\"type\":\"object\"}", "required"},
      {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"maxProperties\":0}", "maxProperties"}, {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "\"pattern\" with two values"},
      {"{\"type\":\"array\",\"items\":[{}],\"prefixItems\":[{}]}", "prefixItems"}, {"{\"properties\":{\"a\":5}}", "#/properties/a"},
      /* no text at all */
      {"false", "no text satisfies"}, {"{\"enum\":[]}", "no text satisfies"}, {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "no text satisfies"},
      {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no text satisfies"}, {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "no text satisfies"},
      {"{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", "no text satisfies"}, {"{\"type\":\"array\",\"items\":false,\"minItems\":1}", "no text satisfies"},
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no text satisfies"},
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"}},\"required\":[\"a\"],\"$defs\":{\"x\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/x\"},\"minItems\":1}}}", "#/$defs/x never ends"},
      {"{\"$ref\":\"#\"}", "no text satisfies"},
      {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "refers to itself"},
      {"{\"type\":\"string\",\"pattern\":\"^a$\",\"minLength\":2}", "no text satisfies"}, {"{\"$ref\":\"#/$defs/a\",\"type\":\"null\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}", "leads to itself"},
      /* limits */
      {"{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^([a-c]{2}x){3000}$\",\"maxLength\":90000}},\"maxItems\":90000}", "too large"},
  };
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    struct eaglet_error err = {0};
    json_t *schema = parse_schema(refusals[i].schema);
    struct constraint *constraint = (struct constraint *)&err;
    if (constraint_compile_schema(&constraint, schema, NULL, &err) == EAGLET_OK) fail_msg("%s was taken", refusals[i].schema);
    assert_null(constraint);
    assert_int_equal(err.status, EAGLET_E_INPUT);
    if (!strstr(err.message, refusals[i].words)) fail_msg("%s: expected \"%s\", found: %s", refusals[i].schema, refusals[i].words, err.message);
    json_decref(schema);
  }
}

/* A union of each level doubles what merging makes: a limit ends it. */
static void test_deep_schemas(void **state) {
  (void)state;
  struct buffer text;
  buffer_init(&text);
  for (int i = 0; i < 250; i++) buffer_append_string(&text, "{\"type\":\"array\",\"items\":");
  buffer_append_string(&text, "true");
  for (int i = 0; i < 250; i++) buffer_append_char(&text, '}');
  json_t *schema = parse_schema(text.data);
  struct constraint *constraint;
  struct eaglet_error err = {0};
  assert_int_equal(constraint_compile_schema(&constraint, schema, NULL, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "200 deep"));
  json_decref(schema);
  buffer_clear(&text);
  schema = parse_schema("{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"l\":{\"allOf\":[{\"$ref\":\"#/$defs/n\"},{\"minProperties\":0}]},"
                        "\"r\":{\"allOf\":[{\"$ref\":\"#/$defs/n\"},{\"minProperties\":0}]}}}}}");
  assert_int_equal(constraint_compile_schema(&constraint, schema, NULL, &err), EAGLET_E_INPUT);
  assert_true(strstr(err.message, "200 deep") || strstr(err.message, "too large"));
  json_decref(schema);
}

/* Lists that other lists are compared with, and merges that grow: limits end them. */
static void test_large_schemas(void **state) {
  (void)state;
  json_t *names = json_array(), *parts = json_array();
  for (int i = 0; i < 20000; i++) {
    char name[16];
    snprintf(name, sizeof name, "n%d", i);
    json_array_append_new(names, json_string(name));
    json_array_append_new(parts, json_pack("{s:{s:{}}}", "properties", name));
  }
  json_t *reversed = json_copy(names);
  json_array_remove(reversed, 0);
  const struct { json_t *schema; const char *words; } schemas[] = {
      {json_pack("{s:s,s:O}", "type", "object", "required", names), "4096 properties or required"},
      {json_pack("{s:[{s:O},{s:O}]}", "allOf", "enum", names, "enum", reversed), "2000000 steps"},
      {json_pack("{s:O}", "allOf", parts), "2000000 steps"}};
  for (size_t i = 0; i < 3; i++) {
    struct constraint *constraint;
    struct eaglet_error err = {0};
    assert_int_equal(constraint_compile_schema(&constraint, schemas[i].schema, NULL, &err), EAGLET_E_INPUT);
    if (!strstr(err.message, schemas[i].words)) fail_msg("expected \"%s\", found: %s", schemas[i].words, err.message);
    json_decref(schemas[i].schema);
  }
  json_decref(names);
  json_decref(reversed);
  json_decref(parts);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bytes),      cmocka_unit_test(test_tokens),      cmocka_unit_test(test_integer_bounds),
      cmocka_unit_test(test_number_bounds), cmocka_unit_test(test_whitespace), cmocka_unit_test(test_json_object),
      cmocka_unit_test(test_refused),    cmocka_unit_test(test_deep_schemas), cmocka_unit_test(test_large_schemas),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
