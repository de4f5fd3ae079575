/* test_constraint_tokens.c - masks and walks. A mask is what taking every token on a copy of the state says. Walks over allowed tokens end, and
 * what they wrote is JSON that a judge of its own accepts: on fixed schemas with three families of tokenizers, and on random schemas with
 * a vocabulary of bytes. Stop tokens, special tokens, vocabularies that cannot spell, drafts in little memory.
 */
#include "constraint_support.h"
#include "engine/constraint.h"
#include "schema_validator.h"

/* ---- walks ---- */

static const char closing_bytes[] = "}]\"abx";

struct walk {
  struct constraint_matcher *matcher;
  const struct constraint_vocabulary *vocabulary;
  int32_t closing[7]; /* tokens of single bytes that lead to the end of some text: brackets, quotes, letters of the patterns */
  uint64_t seed;
  struct buffer text;
};

static void walk_init(struct walk *w, struct constraint_matcher *matcher, const struct constraint_vocabulary *vocabulary, uint64_t seed) {
  *w = (struct walk){.matcher = matcher, .vocabulary = vocabulary, .seed = seed};
  buffer_init(&w->text);
  for (int32_t id = 0; id < constraint_vocabulary_n(vocabulary); id++) {
    size_t length;
    const char *bytes = constraint_vocabulary_bytes(vocabulary, id, &length);
    const char *found = bytes && length == 1 && *bytes ? strchr(closing_bytes, *bytes) : NULL;
    if (found) w->closing[found - closing_bytes] = id;
  }
}

static bool has_bit(const uint32_t *mask, int32_t id) { return mask[id / 32] >> (id % 32) & 1; }

static int32_t any_allowed(const uint32_t *mask, size_t n_words, uint64_t *seed) {
  size_t n = 0;
  for (size_t i = 0; i < n_words; i++) n += (size_t)__builtin_popcount(mask[i]);
  uint64_t k = random_pick(seed, n);
  for (int32_t id = 0;; id++)
    if (has_bit(mask, id) && k-- == 0) return id;
}

/* Random at first, then more and more towards the end of the text. */
static int32_t choose(struct walk *w, const uint32_t *mask, int n_steps, int32_t stop) {
  if (has_bit(mask, stop) && (n_steps > 30 || random_pick(&w->seed, 4) == 0)) return stop;
  for (int i = 0; i < 4 && (int)random_pick(&w->seed, 40) < (n_steps < 35 ? n_steps : 35); i++) {
    int32_t token = w->closing[random_pick(&w->seed, 6)];
    if (has_bit(mask, token)) return token;
  }
  return any_allowed(mask, constraint_vocabulary_words(w->vocabulary), &w->seed);
}

#define STEPS_MAX 20000 /* lists in lists in lists can grow faster than chance closes them */

/* false: given up after STEPS_MAX tokens. */
static bool walk_run(struct walk *w, int32_t stop) {
  uint32_t state = constraint_matcher_start(w->matcher);
  buffer_reset(&w->text);
  buffer_append(&w->text, "", 0);
  for (int n_steps = 0;; n_steps++) {
    const uint32_t *mask;
    if (n_steps == STEPS_MAX) return false;
    constraint_matcher_trim(w->matcher, &state, 1);
    ASSERT_OK(constraint_matcher_mask(w->matcher, state, &mask, err));
    int32_t token = choose(w, mask, n_steps, stop);
    bool complete = constraint_matcher_is_complete(w->matcher, state), must = constraint_matcher_must_end(w->matcher, state);
    assert_int_equal(complete, has_bit(mask, stop));
    assert_true(complete || !must);
    assert_true(!must || token == stop);
    if (!constraint_matcher_advance(w->matcher, &state, token)) fail_msg("token %d was allowed after %s", token, w->text.data);
    if (token == stop) break;
    size_t length;
    const char *bytes = constraint_vocabulary_bytes(w->vocabulary, token, &length);
    buffer_append(&w->text, bytes, length);
  }
  assert_int_equal(state, CONSTRAINT_STATE_ENDED);
  return true;
}

static void judge_text(const json_t *schema, const char *text) {
  json_error_t why;
  json_t *value = json_loads(text, JSON_DECODE_ANY, &why);
  if (!value) fail_msg("not JSON: %s: %s", text, why.text);
  if (!judge(schema, schema, value)) {
    char *words = json_dumps(schema, JSON_ENCODE_ANY);
    fail_msg("%s\ndoes not satisfy\n%s", text, words);
  }
  json_decref(value);
}

static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":12},\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},"
    "\"email\":{\"type\":\"string\",\"format\":\"email\"},\"born\":{\"type\":\"string\",\"format\":\"date\"},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},"
    "\"maxItems\":4}},\"required\":[\"name\",\"age\"],\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"string\"},{\"type\":\"null\"}]},\"minItems\":2,\"maxItems\":5}",
    "{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"value\":{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1},"
    "\"children\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/node\"},\"maxItems\":2}},\"required\":[\"value\"]}}}",
    "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\"},\"at\":{\"type\":\"string\",\"format\":\"date-time\"},\"ip\":{\"type\":\"string\",\"format\":\"ipv4\"}},"
    "\"required\":[\"id\",\"at\",\"ip\"]}",
    "{\"type\":\"object\",\"additionalProperties\":{\"type\":[\"boolean\",\"integer\",\"string\"]}}",
    "{\"type\":\"object\"}", "true",
    "{\"type\":\"object\",\"properties\":{\"code\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{2,3}-[0-9]+$\"},\"free\":{\"type\":\"string\",\"pattern\":\"b.d\",\"maxLength\":9}},"
    "\"required\":[\"free\",\"code\"],\"additionalProperties\":{\"type\":\"null\"}}",
    "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-7}},\"required\":[\"a\"]},{\"properties\":{\"a\":{\"maximum\":70},"
    "\"b\":{\"const\":[1,\"x\",null]}}}]}",
};

static void walk_family(const struct family *f, int n_walks) {
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
    json_t *schema = parse_schema(schemas[i]);
    struct constraint *constraint = compile_schema(schemas[i], &(struct constraint_params){.nesting_max = 8, .whitespace_max = i % 2 ? 2 : 0});
    struct constraint_matcher *matcher = run_constraint(constraint, f->vocabulary);
    struct walk w;
    walk_init(&w, matcher, f->vocabulary, i);
    for (int k = 0; k < n_walks; k++) {
      assert_true(walk_run(&w, f->stop));
      judge_text(schema, w.text.data);
    }
    buffer_clear(&w.text);
    constraint_matcher_free(matcher);
    constraint_free(constraint);
    json_decref(schema);
  }
}

static void test_walks(void **state) {
  (void)state;
  static const struct { const char *name; int n_walks; } families[] = {{"gpt2", 60}, {"llama2", 60}, {"qwen3", 10}};
  for (size_t i = 0; i < 3; i++) {
    struct family f;
    if (!family_open(&f, families[i].name)) skip();
    walk_family(&f, families[i].n_walks);
    family_close(&f);
  }
}

/* ---- random schemas ---- */

#define PICK(n) random_pick(seed, n)

static json_t *random_schema(uint64_t *seed, int depth);

static json_t *random_string_schema(uint64_t *seed) {
  static const char *const patterns[] = {"^a+$", "b", "^(ab|c)*$", "x$", "^[^a-z]{2,4}$", "^\\d+$|^z", "^\\w+\\s?$"}, *const formats[] = {"date", "time", "date-time", "uuid", "email", "ipv4", "ipv6"};
  json_t *schema = json_pack("{s:s}", "type", "string");
  int min = (int)PICK(4);
  if (PICK(3) == 0) json_object_set_new(schema, "minLength", json_integer(min));
  if (PICK(3) == 0) json_object_set_new(schema, "maxLength", json_integer(min + (int)PICK(5)));
  if (PICK(4) == 0) json_object_set_new(schema, "pattern", json_string(patterns[PICK(7)]));
  else if (PICK(6) == 0) json_object_set_new(schema, "format", json_string(formats[PICK(7)]));
  return schema;
}

static json_t *random_number_schema(uint64_t *seed) {
  bool integer = PICK(2);
  json_t *schema = json_pack("{s:s}", "type", integer ? "integer" : "number");
  double low = (double)PICK(4000) / 100 - 20, high = low + (double)PICK(3000) / 100;
  if (PICK(2)) json_object_set_new(schema, PICK(2) ? "minimum" : "exclusiveMinimum", PICK(2) ? json_real(low) : json_integer((json_int_t)floor(low)));
  if (PICK(2)) json_object_set_new(schema, PICK(2) ? "maximum" : "exclusiveMaximum", PICK(2) ? json_real(high) : json_integer((json_int_t)ceil(high)));
  return schema;
}

static json_t *random_array_schema(uint64_t *seed, int depth) {
  json_t *schema = json_pack("{s:s}", "type", "array");
  int min = (int)PICK(3);
  if (PICK(2)) json_object_set_new(schema, "items", random_schema(seed, depth + 1));
  if (PICK(3) == 0) json_object_set_new(schema, "prefixItems", json_pack("[o,o]", random_schema(seed, depth + 1), random_schema(seed, depth + 1)));
  if (PICK(3) == 0) json_object_set_new(schema, "minItems", json_integer(min));
  if (PICK(2)) json_object_set_new(schema, "maxItems", json_integer(min + (int)PICK(3)));
  return schema;
}

static json_t *random_object_schema(uint64_t *seed, int depth) {
  static const char *const names[] = {"a", "ab", "b", "\xc3\xa9", "q\"\\"};
  json_t *schema = json_pack("{s:s}", "type", "object"), *properties = json_object(), *required = json_array();
  for (int i = 0; i < 5; i++) {
    if (PICK(2)) json_object_set_new(properties, names[i], random_schema(seed, depth + 1));
    if (PICK(3) == 0) json_array_append_new(required, json_string(names[i]));
  }
  if (PICK(5)) json_object_set(schema, "properties", properties);
  if (PICK(3)) json_object_set(schema, "required", required);
  uint64_t additional = PICK(4);
  if (additional == 1) json_object_set_new(schema, "additionalProperties", json_false());
  if (additional == 2) json_object_set_new(schema, "additionalProperties", random_schema(seed, depth + 1));
  json_decref(properties);
  json_decref(required);
  return schema;
}

static json_t *random_values_schema(uint64_t *seed) {
  static const char *const values[] = {"1", "-2.5", "null", "true", "\"a\"", "\"b\\n\\\"\"", "[1,[]]", "{\"k\":{\"l\":0}}", "\"\xe4\xbd\xa0\""};
  json_t *list = json_array();
  for (uint64_t n = 1 + PICK(3); n; n--) json_array_append_new(list, parse_schema(values[PICK(9)]));
  json_t *schema = PICK(3) ? json_pack("{s:O}", "enum", list) : json_pack("{s:O}", "const", json_array_get(list, 0));
  json_decref(list);
  return schema;
}

static json_t *random_schema(uint64_t *seed, int depth) {
  static const char *const unions[] = {"anyOf", "oneOf", "allOf"}, *const references[] = {"#/$defs/d0", "#/$defs/d1", "#"};
  static const char *const lists[] = {"[\"string\",\"null\"]", "[\"integer\",\"boolean\"]", "[\"number\",\"integer\",\"array\"]"};
  switch (PICK(depth > 3 ? 6 : 13)) {
  case 0: return json_pack("{s:s}", "type", PICK(2) ? "boolean" : "null");
  case 1: return random_string_schema(seed);
  case 2:
  case 3: return random_number_schema(seed);
  case 4: return random_values_schema(seed);
  case 5: return json_pack("{s:o}", "type", parse_schema(lists[PICK(3)]));
  case 6: return random_array_schema(seed, depth);
  case 7:
  case 8: return random_object_schema(seed, depth);
  case 9: return json_pack("{s:s}", "$ref", references[PICK(3)]);
  case 10: return PICK(8) ? json_object() : json_boolean(PICK(2));
  default: break;
  }
  json_t *one = random_schema(seed, depth + 1), *other = random_schema(seed, depth + 1);
  json_t *schema = json_pack("{s:[o,o]}", unions[PICK(3)], one, other), *beside = PICK(4) ? NULL : random_schema(seed, depth + 1);
  if (json_is_object(beside)) json_object_update_missing(schema, beside);
  json_decref(beside);
  return schema;
}

static json_t *random_root(uint64_t seed_of_schema) {
  uint64_t own = seed_of_schema, *seed = &own;
  json_t *schema = NULL;
  while (!json_is_object(schema)) {
    json_decref(schema);
    schema = random_schema(seed, 0);
  }
  json_object_set_new(schema, "$defs", json_pack("{s:o,s:o}", "d0", random_schema(seed, 2), "d1", random_schema(seed, 2)));
  return schema;
}

static struct constraint_vocabulary *byte_vocabulary(int32_t *stop) {
  char bytes[256];
  struct vocabulary_token tokens[264] = {{0}};
  static const char *const more[] = {"\":", "\", \"", "}}", "true", "[[", "\xe4\xbd\xa0"};
  for (int i = 0; i < 256; i++) {
    bytes[i] = (char)i;
    tokens[i] = (struct vocabulary_token){&bytes[i], 1};
  }
  for (int i = 0; i < 6; i++) tokens[256 + i] = (struct vocabulary_token){more[i], strlen(more[i])};
  *stop = 262;
  struct constraint_vocabulary *vocabulary;
  const struct token_list stops = {.ids = stop, .n = 1};
  ASSERT_OK(constraint_vocabulary_from_tokens(&vocabulary, tokens, 264, &stops, err));
  return vocabulary;
}

static void test_random_schemas(void **state) {
  (void)state;
  int32_t stop;
  struct constraint_vocabulary *vocabulary = byte_vocabulary(&stop);
  const int n_schemas = 1000;
  int n_taken = 0, n_walks = 0, n_given_up = 0;
  for (int i = 0; i < n_schemas; i++) {
    json_t *schema = random_root((uint64_t)i);
    struct constraint *constraint;
    struct eaglet_error err = {0};
    const struct constraint_params params = {.nesting_max = 3, .whitespace_max = i % 3 ? 0 : 2};
    if (constraint_compile_schema(&constraint, schema, &params, &err) == EAGLET_OK) {
      n_taken++;
      struct constraint_matcher *matcher = run_constraint(constraint, vocabulary);
      struct walk w;
      walk_init(&w, matcher, vocabulary, (uint64_t)i);
      for (int k = 0; k < 8; k++) {
        n_walks++;
        if (walk_run(&w, stop)) judge_text(schema, w.text.data);
        else n_given_up++;
      }
      buffer_clear(&w.text);
      constraint_matcher_free(matcher);
      constraint_free(constraint);
    } else {
      assert_true(err.message[0]);
    }
    json_decref(schema);
  }
  printf("%d of %d random schemas were taken, %d of %d walks given up\n", n_taken, n_schemas, n_given_up, n_walks);
  assert_true(n_taken > n_schemas / 2 && n_given_up * 200 < n_walks);
  constraint_vocabulary_free(vocabulary);
}

/* ---- nothing is missing ---- */

static json_t *random_value(uint64_t *seed, int depth) {
  static const char *const strings[] = {"", "a", "b", "ab", "aa", "aaa", "xb", "abab", "cab", "x", "bx", "aax", "Z1", "\xc3\xa9\xc3\xa9", "12", "z", "a ", "b\n\"",
                                        "2024-02-29", "12:00:00Z", "2024-02-29T12:00:00Z", "a@b.co", "1.2.3.4", "::1", "\xe4\xbd\xa0", "AB", "A.B",
                                        "123e4567-e89b-12d3-a456-426614174000"};
  switch (PICK(depth > 1 ? 6 : 8)) {
  case 0: return PICK(2) ? json_null() : json_boolean(PICK(2));
  case 1: return json_integer((json_int_t)PICK(80) - 30);
  case 2: return json_real((double)((int)PICK(160) - 60) / 2 + 0.25);
  case 3:
  case 4: return json_string(strings[PICK(sizeof strings / sizeof *strings)]);
  case 5: return PICK(4) ? json_integer((json_int_t)PICK(3)) : json_pack("{s:{s:i}}", "k", "l", 0);
  default: break;
  }
  json_t *array = json_array();
  for (uint64_t n = PICK(4); n; n--) json_array_append_new(array, random_value(seed, depth + 1));
  return array;
}

/* Where no property is named (their order and what is open are ours), a value is accepted exactly when the judge accepts it. */
static void test_random_values(void **state) {
  (void)state;
  size_t n_accepted = 0, n_schemas = 0, n_values = 0;
  for (uint64_t i = 0; i < 1200; i++) {
    uint64_t own = i, *seed = &own;
    json_t *schema = random_root(1000000 + i);
    char *words = json_dumps(schema, 0);
    struct constraint *constraint = NULL;
    bool plain = !strstr(words, "roperties") && !strstr(words, "required");
    if (plain && constraint_compile_schema(&constraint, schema, NULL, NULL) == EAGLET_OK) {
      struct constraint_matcher *matcher = run_constraint(constraint, NULL);
      n_schemas++;
      for (int k = 0; k < 100; k++, n_values++) {
        json_t *value = random_value(seed, 0);
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        bool expected = judge(schema, schema, value);
        if (accepts_bytes(matcher, text) != expected) fail_msg("%s\n%s: expected %d", words, text, expected);
        n_accepted += expected;
        free(text);
        json_decref(value);
      }
      constraint_matcher_free(matcher);
      constraint_free(constraint);
    }
    free(words);
    json_decref(schema);
  }
  printf("%zu random schemas, %zu of %zu values accepted\n", n_schemas, n_accepted, n_values);
  assert_true(n_schemas > 400 && n_accepted > n_values / 10 && n_accepted < n_values * 9 / 10);
}
#undef PICK

/* ---- masks ---- */

static void check_mask(const struct family *f, struct constraint_matcher *matcher, uint32_t state) {
  const uint32_t *mask;
  int32_t n = constraint_vocabulary_n(f->vocabulary);
  ASSERT_OK(constraint_matcher_mask(matcher, state, &mask, err));
  for (int32_t id = 0; id < n; id++) {
    uint32_t copy = state;
    bool taken = constraint_matcher_advance(matcher, &copy, id);
    if (taken != has_bit(mask, id)) fail_msg("%s: token %d: the mask says %d", f->name, id, !taken);
    assert_true(taken || copy == state);
  }
  for (size_t i = (size_t)n; i < constraint_vocabulary_words(f->vocabulary) * 32; i++) assert_false(has_bit(mask, (int32_t)i));
}

static void check_masks(const struct family *f) {
  static const char *const texts[] = {"", "{", "{\"na", "{\"name\":\"", "{\"name\":\"\xe4\xbd", "{\"name\":\"x\\", "{\"name\":\"x\\u00", "{\"name\": \"x\",\"age\":", "{\"name\":\"x\",\"age\":15",
                                      "{\"name\":\"x\",\"age\":0,\"born\":\"2024-02-", "{\"name\":\"x\",\"age\":0}"};
  struct constraint *constraint = compile_schema(schemas[0], NULL);
  struct constraint_matcher *matcher = run_constraint(constraint, f->vocabulary);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    uint32_t state = constraint_matcher_start(matcher);
    if (!constraint_matcher_advance_bytes(matcher, &state, texts[i], strlen(texts[i]))) fail_msg("refuses %s", texts[i]);
    check_mask(f, matcher, state);
  }
  check_mask(f, matcher, CONSTRAINT_STATE_ENDED);
  struct constraint_matcher_stats stats = constraint_matcher_stats(matcher);
  assert_int_equal(stats.masks_made, sizeof texts / sizeof *texts + 1);
  const uint32_t *mask;
  ASSERT_OK(constraint_matcher_mask(matcher, CONSTRAINT_STATE_ENDED, &mask, err));
  assert_int_equal(constraint_matcher_stats(matcher).masks_reused, stats.masks_reused + 1);
  constraint_matcher_free(matcher);
  constraint_free(constraint);
}

/* A constraint that takes any text still takes no special token and no padding. */
static void check_special(const struct family *f) {
  struct constraint *constraint;
  ASSERT_OK(constraint_compile_regex(&constraint, "[\\s\\S]*", 7, err));
  struct constraint_matcher *matcher = run_constraint(constraint, f->vocabulary);
  const uint32_t *mask;
  ASSERT_OK(constraint_matcher_mask(matcher, constraint_matcher_start(matcher), &mask, err));
  size_t n;
  const int32_t *special = tokenizer_special_ids(f->tokenizer, &n);
  for (size_t i = 0; i < n; i++) assert_int_equal(has_bit(mask, special[i]), special[i] == f->stop);
  for (int32_t id = tokenizer_n_ids(f->tokenizer); id < constraint_vocabulary_n(f->vocabulary); id++) assert_int_equal(has_bit(mask, id), id == f->stop);
  size_t n_allowed = 0;
  for (int32_t id = 0; id < constraint_vocabulary_n(f->vocabulary); id++) n_allowed += has_bit(mask, id);
  assert_true(n_allowed > f->n_sorted * 9 / 10 && n_allowed < f->n_sorted + 2); /* all but halves of characters that begin none */
  constraint_matcher_free(matcher);
  constraint_free(constraint);
}

static void test_masks(void **state) {
  (void)state;
  static const char *const names[] = {"gpt2", "llama2", "qwen3"};
  for (size_t i = 0; i < 3; i++) {
    struct family f;
    if (!family_open(&f, names[i])) skip();
    check_masks(&f);
    check_special(&f);
    family_close(&f);
  }
}

/* ---- vocabularies that cannot spell ---- */

static void test_stuck(void **state) {
  (void)state;
  static const struct vocabulary_token tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"\xe4\xbd\xa0", 3}, {NULL, 0}};
  int32_t stop = 4;
  struct token_list stops = {.ids = &stop, .n = 1}, none = {0};
  struct constraint_vocabulary *vocabulary;
  struct constraint *constraint;
  struct constraint_matcher *matcher;
  struct eaglet_error why = {0};
  assert_int_equal(constraint_vocabulary_from_tokens(&vocabulary, tokens, 5, &none, &why), EAGLET_E_USAGE);
  assert_non_null(strstr(why.message, "no stop token"));
  ASSERT_OK(constraint_vocabulary_from_tokens(&vocabulary, tokens, 5, &stops, err));
  ASSERT_OK(constraint_compile_regex(&constraint, "abc", 3, err));
  struct constraint_matcher_params params = {.constraint = constraint, .vocabulary = vocabulary};
  assert_int_equal(constraint_matcher_create(&matcher, &params, &why), EAGLET_E_INPUT);
  assert_null(matcher);
  assert_non_null(strstr(why.message, "byte 0x63"));
  constraint_free(constraint);
  ASSERT_OK(constraint_compile_regex(&constraint, "a\xc3\xa9|b\xe4\xbd\xa0", 8, err));
  params.constraint = constraint;
  ASSERT_OK(constraint_matcher_create(&matcher, &params, err));
  uint32_t at = constraint_matcher_start(matcher);
  const uint32_t *mask;
  ASSERT_OK(constraint_matcher_mask(matcher, at, &mask, err));
  assert_int_equal(*mask, 1 << 0 | 1 << 1);
  uint32_t other = at;
  assert_true(constraint_matcher_advance(matcher, &other, 1));
  ASSERT_OK(constraint_matcher_mask(matcher, other, &mask, err));
  assert_int_equal(*mask, 1 << 3);
  assert_true(constraint_matcher_advance(matcher, &at, 0));
  assert_int_equal(constraint_matcher_mask(matcher, at, &mask, &why), EAGLET_E_INPUT);
  assert_non_null(strstr(why.message, "byte 0xc3 is expected"));
  assert_int_equal(*mask, 1 << 4); /* the caller can still end the text */
  assert_int_equal(constraint_matcher_mask(matcher, CONSTRAINT_STATE_DEAD, &mask, &why), EAGLET_E_USAGE);
  constraint_matcher_free(matcher);
  constraint_free(constraint);
  constraint_vocabulary_free(vocabulary);
}

/* ---- as the engine uses it ---- */

struct glue { /* what joins a matcher to engine/constraint.h: one sequence's */
  struct constraint_matcher *matcher;
  void *own; /* the sequence's state; others are of drafts and are made anew after it is asked about */
};

static void glue_start(void *context, void *state) {
  struct glue *g = context;
  g->own = state;
  *(uint32_t *)state = constraint_matcher_start(g->matcher);
}

static const uint32_t *glue_allowed(void *context, const void *state) {
  struct glue *g = context;
  const uint32_t *mask;
  if (state == g->own) constraint_matcher_trim(g->matcher, g->own, 1);
  enum eaglet_status status = constraint_matcher_mask(g->matcher, *(const uint32_t *)state, &mask, NULL);
  ASSERT(status == EAGLET_OK || state != g->own);
  return mask;
}

static bool glue_advance(void *context, void *state, int32_t token) {
  return constraint_matcher_advance(((struct glue *)context)->matcher, state, token);
}

static bool glue_is_over(void *context, const void *state) { return constraint_matcher_must_end(((struct glue *)context)->matcher, *(const uint32_t *)state); }

/* Rounds of drafts from copies of the state, then tokens that join: in the least memory, the same masks as in plenty. */
static void test_drafts_in_little_memory(void **state) {
  (void)state;
  int32_t stop;
  struct constraint_vocabulary *vocabulary = byte_vocabulary(&stop);
  struct constraint *constraint = compile_schema("{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":3000}}", NULL);
  struct constraint_matcher *small, *large = run_constraint(constraint, vocabulary);
  ASSERT_OK(constraint_matcher_create(&small, &(struct constraint_matcher_params){.constraint = constraint, .vocabulary = vocabulary, .memory_max = 1, .masks_max = 2}, err));
  struct glue glue = {.matcher = small};
  const struct constraint_source source = {&glue, sizeof(uint32_t), glue_start, glue_allowed, glue_advance, glue_is_over};
  size_t n_words = constraint_vocabulary_words(vocabulary);
  uint64_t seed = 9;
  for (int text = 0; text < 30; text++) {
    uint32_t own, mirror = constraint_matcher_start(large);
    source.start(source.context, &own);
    for (int round = 0; round < 500 && !source.is_over(source.context, &own); round++) {
      for (int draft = 0; draft < 8; draft++) {
        uint32_t copy = own;
        for (int k = 0; k < 6; k++) {
          int32_t token = any_allowed(source.allowed(source.context, &copy), n_words, &seed);
          if (token == stop || !source.advance(source.context, &copy, token)) break;
        }
      }
      const uint32_t *mask = source.allowed(source.context, &own), *expected;
      ASSERT_OK(constraint_matcher_mask(large, mirror, &expected, err));
      assert_memory_equal(mask, expected, n_words * sizeof *mask);
      int32_t token = any_allowed(mask, n_words, &seed);
      if (token == stop) break;
      assert_true(source.advance(source.context, &own, token));
      assert_true(constraint_matcher_advance(large, &mirror, token));
      constraint_matcher_trim(large, &mirror, 1);
    }
  }
  assert_true(constraint_matcher_stats(small).trims > 3);
  assert_true(constraint_matcher_stats(small).masks_reused > 100);
  constraint_matcher_free(small);
  constraint_matcher_free(large);
  constraint_free(constraint);
  constraint_vocabulary_free(vocabulary);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stuck), cmocka_unit_test(test_drafts_in_little_memory), cmocka_unit_test(test_random_schemas),
      cmocka_unit_test(test_random_values),
      cmocka_unit_test(test_masks), cmocka_unit_test(test_walks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
