/* test_constraints.c - what a text must be, through the public API: every kind of constraint, under every drafter and beside others, gives
 * what constrained plain decoding gives, and what the constraint says. Oracles: PCRE2 and jansson read the texts; plain decoding is the text.
 */
#include "api_fixture.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static struct eaglet_constraint *constrain(const struct api *api, struct eaglet_constraint_params params) {
  struct eaglet_constraint *constraint;
  struct eaglet_error err = {0};
  params.tokenizer = api->tokenizer;
  assert_ok(eaglet_constraint_create(&constraint, api->engines[ARM_PLAIN], &params, &err), &err);
  return constraint;
}

static struct eaglet_sequence_params constrained(const struct api *api, const struct ids *prompt, const struct eaglet_constraint *constraint) {
  return (struct eaglet_sequence_params){
      .prompt = prompt->ids, .n_prompt = (int32_t)prompt->n, .tokenizer = api->tokenizer, .constraint = constraint, .output_max = OUTPUT_MAX};
}

/* Every arm says what plain decoding says. Returns how many drafts were accepted. */
static int32_t check_arms(const struct api *api, const struct eaglet_sequence_params *params, int n, struct output *plain) {
  struct output outputs[TOGETHER_MAX];
  int32_t n_accepted = 0;
  run(api->engines[ARM_PLAIN], params, n, plain);
  for (int arm = ARM_CHAIN; arm < ARM_COUNT; arm++) {
    run(api->engines[arm], params, n, outputs);
    for (int i = 0; i < n; i++) {
      assert_same_output(&outputs[i], &plain[i], (enum arm)arm, "constrained");
      n_accepted += outputs[i].stats.accepted;
    }
  }
  return n_accepted;
}

/* ---- regular expressions ---- */

static bool matches(const char *expression, const char *text) {
  int code;
  size_t at;
  char *whole = memory_format("^(?:%s)\\z", expression);
  pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
  assert_non_null(compiled);
  pcre2_match_data *data = pcre2_match_data_create_from_pattern(compiled, NULL);
  bool matched = pcre2_match(compiled, (PCRE2_SPTR)text, strlen(text), 0, 0, data, NULL) >= 0;
  pcre2_match_data_free(data);
  pcre2_code_free(compiled);
  free(whole);
  return matched;
}

static void test_regex(void **state) {
  const struct api *api = *state;
  static const char *const expressions[] = {"[A-Z][a-z]+ [A-Z][a-z]+", "\\d{1,3}(\\.\\d{1,3}){3}", "(yes|no|maybe)( (and|or) (yes|no|maybe)){2}",
                                            "Which (city|day|time|date)[a-z ]{0,20}\\?"};
  struct ids prompts[QUESTIONS];
  struct output plain[QUESTIONS];
  struct eaglet_sequence_params params[QUESTIONS];
  int32_t n_accepted = 0;
  questions_render(api, prompts);
  for (size_t k = 0; k < sizeof expressions / sizeof *expressions; k++) {
    struct eaglet_constraint *constraint = constrain(api, (struct eaglet_constraint_params){.regex = expressions[k]});
    for (int i = 0; i < QUESTIONS; i++) params[i] = constrained(api, &prompts[i], constraint);
    n_accepted += check_arms(api, params, QUESTIONS, plain);
    for (int i = 0; i < QUESTIONS; i++) {
      if (plain[i].stop == EAGLET_STOP_LENGTH) continue; /* a beginning of such a text */
      assert_true(plain[i].stop == EAGLET_STOP_TOKEN || plain[i].stop == EAGLET_STOP_CONSTRAINT);
      if (!matches(expressions[k], plain[i].text)) fail_msg("%s: '%s'", expressions[k], plain[i].text);
    }
    eaglet_constraint_free(constraint);
  }
  assert_true(n_accepted > 50);
  questions_free(prompts);
}

/* ---- JSON ---- */

static const char schema[] = "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":8},\"guests\":{\"type\":\"integer\","
                             "\"minimum\":1,\"maximum\":20},\"when\":{\"enum\":[\"today\",\"tomorrow\"]},\"tags\":{\"type\":\"array\",\"items\":"
                             "{\"type\":\"boolean\"},\"maxItems\":3}},\"required\":[\"city\",\"guests\",\"when\",\"tags\"],"
                             "\"additionalProperties\":false}";

/* What the schema above says, by hand. */
static void check_booking(const char *text) {
  const json_t *tags, *tag;
  size_t i;
  json_t *booking = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  if (!json_is_object(booking) || json_object_size(booking) != 4) fail_msg("no booking: %s", text);
  const char *when = json_string_value(json_object_get(booking, "when"));
  assert_non_null(json_string_value(json_object_get(booking, "city")));
  assert_true(json_is_integer(json_object_get(booking, "guests")));
  assert_in_range(json_integer_value(json_object_get(booking, "guests")), 1, 20);
  assert_true(when && (strcmp(when, "today") == 0 || strcmp(when, "tomorrow") == 0));
  tags = json_object_get(booking, "tags");
  assert_true(json_is_array(tags) && json_array_size(tags) <= 3);
  json_array_foreach(tags, i, tag) assert_true(json_is_boolean(tag));
  json_decref(booking);
}

/* Sampled texts too: they differ between the arms, and each must be right. */
static void check_sampled(const struct api *api, const struct eaglet_sequence_params *params, int n) {
  struct eaglet_sequence_params warm[TOGETHER_MAX];
  struct output outputs[TOGETHER_MAX];
  for (int i = 0; i < n; i++) {
    warm[i] = params[i];
    warm[i].temperature = 1.5f;
    warm[i].seed = (uint64_t)i;
  }
  for (int arm = 0; arm < ARM_COUNT; arm++) {
    run(api->engines[arm], warm, n, outputs);
    for (int i = 0; i < n; i++) {
      assert_int_equal(outputs[i].stop, EAGLET_STOP_CONSTRAINT);
      check_booking(outputs[i].text);
    }
  }
}

static void test_schema(void **state) {
  const struct api *api = *state;
  struct ids prompts[QUESTIONS];
  struct output plain[QUESTIONS];
  struct eaglet_sequence_params params[QUESTIONS];
  struct eaglet_constraint *constraint = constrain(api, (struct eaglet_constraint_params){.json_schema = schema});
  questions_render(api, prompts);
  for (int i = 0; i < QUESTIONS; i++) params[i] = constrained(api, &prompts[i], constraint);
  assert_true(check_arms(api, params, QUESTIONS, plain) > 20);
  for (int i = 0; i < QUESTIONS; i++) {
    assert_int_equal(plain[i].stop, EAGLET_STOP_CONSTRAINT);
    check_booking(plain[i].text);
  }
  check_sampled(api, params, QUESTIONS);
  eaglet_constraint_free(constraint);
  questions_free(prompts);
}

/* Any object, and blanks where JSON allows them; a text that is cut is a beginning. */
static void test_json_object(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_question(api, "Answer as JSON with the keys a and b.");
  struct output plain[2];
  struct eaglet_constraint *kinds[] = {constrain(api, (struct eaglet_constraint_params){.json_object = true}),
                                       constrain(api, (struct eaglet_constraint_params){.json_object = true, .whitespace_max = 4})};
  struct eaglet_sequence_params params[] = {constrained(api, &prompt, kinds[0]), constrained(api, &prompt, kinds[1])};
  check_arms(api, params, 2, plain);
  for (int i = 0; i < 2; i++) {
    json_t *value = json_loads(plain[i].text, 0, NULL);
    if (plain[i].stop != EAGLET_STOP_LENGTH) assert_true(json_is_object(value));
    assert_int_equal(plain[i].text[0], '{');
    json_decref(value);
    eaglet_constraint_free(kinds[i]);
  }
  free(prompt.ids);
}

/* ---- choices ---- */

/* One is the beginning of another: both can be chosen. */
static void test_choices(void **state) {
  const struct api *api = *state;
  static const char *const choices[] = {"table", "table for two", "hotel", "caf\xc3\xa9", "\xe6\x97\xa5\xe6\x9c\xac"};
  enum { N = sizeof choices / sizeof *choices };
  struct ids prompt = ids_of_question(api, questions[0]);
  struct output o, plain[TOGETHER_MAX];
  struct eaglet_sequence_params params[TOGETHER_MAX];
  struct eaglet_constraint *constraint = constrain(api, (struct eaglet_constraint_params){.choices = choices, .n_choices = N});
  int chosen[N] = {0};
  for (int i = 0; i < TOGETHER_MAX; i++) params[i] = constrained(api, &prompt, constraint);
  check_arms(api, params, 1, plain);
  for (uint64_t seed = 0; seed < 48; seed += TOGETHER_MAX) {
    for (int arm = 0; arm < ARM_COUNT; arm++) {
      for (int i = 0; i < TOGETHER_MAX; i++) params[i].temperature = 10, params[i].seed = seed + (uint64_t)i;
      run(api->engines[arm], params, TOGETHER_MAX, plain);
      for (int i = 0; i < TOGETHER_MAX; i++) {
        int k = 0;
        while (k < N && strcmp(plain[i].text, choices[k]) != 0) k++;
        if (k == N) fail_msg("'%s' is no choice", plain[i].text);
        chosen[k]++;
      }
    }
  }
  for (int k = 0; k < N; k++)
    if (chosen[k] == 0) fail_msg("'%s' was never chosen", choices[k]);
  params[0].temperature = 0;
  params[0].output_min = 30; /* there is no text so long: it ends where the constraint does */
  run(api->engines[ARM_CHAIN], params, 1, &o);
  assert_int_equal(o.stop, EAGLET_STOP_CONSTRAINT);
  eaglet_constraint_free(constraint);
  free(prompt.ids);
}

/* ---- several at once ---- */

/* Sequences that share one constraint, one of another and an unconstrained one, with stop strings among them. */
static void test_sharing(void **state) {
  const struct api *api = *state;
  struct ids prompts[QUESTIONS];
  struct eaglet_constraint *booking = constrain(api, (struct eaglet_constraint_params){.json_schema = schema}),
                           *digits = constrain(api, (struct eaglet_constraint_params){.regex = "[0-9 ]{30}"});
  const struct eaglet_constraint *kinds[TOGETHER_MAX] = {booking, NULL, digits, booking, booking, digits, NULL, booking};
  const char *stops[] = {"guests", "7"};
  struct eaglet_sequence_params params[TOGETHER_MAX];
  struct output plain[TOGETHER_MAX], alone;
  questions_render(api, prompts);
  for (int i = 0; i < TOGETHER_MAX; i++) {
    params[i] = constrained(api, &prompts[i % QUESTIONS], kinds[i]);
    params[i].stops = stops;
    params[i].n_stops = i % 3 == 0 ? 2 : 0;
  }
  check_arms(api, params, TOGETHER_MAX, plain);
  for (int i = 0; i < TOGETHER_MAX; i++) {
    run(api->engines[ARM_CHAIN], &params[i], 1, &alone);
    assert_same_output(&alone, &plain[i], ARM_CHAIN, "alone");
    if (params[i].n_stops > 0) assert_null(strstr(plain[i].text, "guests"));
    if (kinds[i] == booking && params[i].n_stops > 0) assert_int_equal(plain[i].stop, EAGLET_STOP_STRING);
    if (kinds[i] == booking && params[i].n_stops == 0) check_booking(plain[i].text);
    if (kinds[i] == digits && params[i].n_stops == 0) assert_int_equal(plain[i].length, 30);
  }
  eaglet_constraint_free(booking);
  eaglet_constraint_free(digits);
  questions_free(prompts);
}

/* An engine that is closed frees what lives in it: waiting, running, constrained and ended sequences. Leaks show under ASan. */
static void test_close(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_question(api, questions[0]);
  struct eaglet_constraint *constraint = constrain(api, (struct eaglet_constraint_params){.json_schema = schema});
  const char *stop = "no such text";
  struct eaglet_sequence_params params[3] = {constrained(api, &prompt, constraint), constrained(api, &prompt, NULL), constrained(api, &prompt, NULL)};
  params[1].stops = &stop;
  params[1].n_stops = 1;
  params[1].ignore_stop = true;
  params[1].n_logprobs = 3;
  params[2].output_max = 1;
  for (int n_steps = 0; n_steps < 4; n_steps++) {
    struct eaglet_engine *engine = api_open(api, ARM_CHAIN);
    struct eaglet_sequence *sequences[2 * TOGETHER_MAX];
    struct eaglet_error err = {0};
    int32_t n_live;
    size_t length;
    for (int i = 0; i < 2 * TOGETHER_MAX; i++) assert_ok(eaglet_sequence_create(&sequences[i], engine, &params[i % 3], &err), &err);
    for (int step = 0; step < n_steps; step++) assert_ok(eaglet_step(engine, &n_live, &err), &err);
    if (n_steps > 0) assert_true(n_live > 0);
    assert_int_equal(eaglet_sequence_stop(sequences[0]), EAGLET_STOP_NONE);
    assert_int_equal(eaglet_sequence_stop(sequences[2]), n_steps > 0 ? EAGLET_STOP_LENGTH : EAGLET_STOP_NONE);
    eaglet_sequence_cancel(sequences[1]);
    assert_int_equal(eaglet_sequence_stop(sequences[1]), EAGLET_STOP_CANCELLED);
    assert_non_null(eaglet_sequence_text(sequences[1], &length));
    eaglet_sequence_free(sequences[3]);
    eaglet_engine_close(engine);
  }
  eaglet_constraint_free(constraint);
  free(prompt.ids);
}

/* ---- refusals ---- */

static void refused(const struct api *api, struct eaglet_constraint_params params, enum eaglet_status expected, const char *words) {
  struct eaglet_constraint *constraint;
  struct eaglet_error err = {0};
  params.tokenizer = api->tokenizer;
  assert_refused(eaglet_constraint_create(&constraint, api->engines[ARM_PLAIN], &params, &err), expected, &err, words);
  assert_null(constraint);
}

static void test_refusals(void **state) {
  const struct api *api = *state;
  static const char *const choices[] = {"a"};
  struct ids prompt = ids_of_text(api, "x");
  struct eaglet_constraint *constraint = constrain(api, (struct eaglet_constraint_params){.regex = "a+"});
  struct eaglet_tokenizer *other;
  struct eaglet_sequence *sequence;
  struct eaglet_error err = {0};
  assert_ok(eaglet_tokenizer_open(&other, api->model, NULL, &err), &err);
  struct eaglet_sequence_params params = constrained(api, &prompt, constraint);
  params.tokenizer = other;
  assert_refused(eaglet_sequence_create(&sequence, api->engines[ARM_PLAIN], &params, &err), EAGLET_E_USAGE, &err, "another tokenizer");
  assert_null(sequence);
  params.tokenizer = NULL;
  assert_refused(eaglet_sequence_create(&sequence, api->engines[ARM_PLAIN], &params, &err), EAGLET_E_USAGE, &err, "need the tokenizer");
  refused(api, (struct eaglet_constraint_params){0}, EAGLET_E_USAGE, "one of");
  refused(api, (struct eaglet_constraint_params){.regex = "a", .json_object = true}, EAGLET_E_USAGE, "one of");
  refused(api, (struct eaglet_constraint_params){.regex = "a", .choices = choices, .n_choices = 1}, EAGLET_E_USAGE, "one of");
  refused(api, (struct eaglet_constraint_params){.regex = "(a"}, EAGLET_E_INPUT, "a group is not closed");
  refused(api, (struct eaglet_constraint_params){.regex = "(?=a)b"}, EAGLET_E_INPUT, "lookahead");
  refused(api, (struct eaglet_constraint_params){.json_schema = "{"}, EAGLET_E_INPUT, "schema");
  refused(api, (struct eaglet_constraint_params){.json_schema = "{\"type\":\"strange\"}"}, EAGLET_E_INPUT, "strange");
  refused(api, (struct eaglet_constraint_params){.json_schema = "{\"$ref\":\"http://elsewhere\"}"}, EAGLET_E_INPUT, "elsewhere");
  eaglet_constraint_free(constraint);
  eaglet_constraint_free(NULL);
  eaglet_tokenizer_close(other);
  free(prompt.ids);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_regex),   cmocka_unit_test(test_schema), cmocka_unit_test(test_json_object), cmocka_unit_test(test_choices),
      cmocka_unit_test(test_sharing), cmocka_unit_test(test_close),  cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests_name("api_constraints", tests, api_create, api_remove);
}
