/* test_constraint_regex.c - patterns mean what PCRE2 says they mean: every string over a small alphabet up to some length is
 * accepted by the constraint exactly when PCRE2 matches the whole of it; states agree with that about endings and dead ends. What is
 * outside of the subset is refused with words that name it.
 */
#include "support.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/constraint_matcher.h"

static struct constraint *compile(const char *pattern) {
  struct constraint *constraint;
  ASSERT_OK(constraint_compile_regex(&constraint, pattern, strlen(pattern), err));
  return constraint;
}

static struct constraint_matcher *run(const struct constraint *constraint) {
  struct constraint_matcher *matcher;
  const struct constraint_matcher_params params = {.constraint = constraint};
  ASSERT_OK(constraint_matcher_create(&matcher, &params, err));
  return matcher;
}

static bool accepts(struct constraint_matcher *matcher, const char *text, size_t length) {
  uint32_t state = constraint_matcher_start(matcher);
  return constraint_matcher_advance_bytes(matcher, &state, text, length) && constraint_matcher_is_complete(matcher, state);
}

/* ---- against PCRE2 ---- */

struct oracle {
  pcre2_code *code;
  pcre2_match_data *match;
};

static struct oracle oracle_open(const char *pattern) {
  int code;
  PCRE2_SIZE at;
  uint32_t options = PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOLLAR_ENDONLY;
  struct oracle oracle = {.code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &code, &at, NULL)};
  if (!oracle.code) fail_msg("PCRE2 does not take %s", pattern);
  pcre2_jit_compile(oracle.code, PCRE2_JIT_COMPLETE);
  oracle.match = pcre2_match_data_create_from_pattern(oracle.code, NULL);
  return oracle;
}

static bool oracle_matches(const struct oracle *oracle, const char *text, size_t length) {
  return pcre2_match(oracle->code, (PCRE2_SPTR)text, length, 0, 0, oracle->match, NULL) >= 0;
}

static void oracle_close(struct oracle *oracle) {
  pcre2_match_data_free(oracle->match);
  pcre2_code_free(oracle->code);
}

struct comparison {
  const char *pattern;
  struct oracle oracle;
  struct constraint_matcher *matcher;
  const char *const *letters;
  size_t n_letters, n_accepted, n_compared;
  char text[64];
};

/* All texts that begin with text[0..length) and have at most n_more letters more. Returns whether one of them is accepted. */
static bool compare_all(struct comparison *c, size_t length, int n_more, bool alive, uint32_t state) {
  bool expected = oracle_matches(&c->oracle, c->text, length);
  bool found = alive && constraint_matcher_is_complete(c->matcher, state);
  if (expected != found) fail_msg("%s on \"%.*s\": expected %d, found %d", c->pattern, (int)length, c->text, expected, found);
  c->n_compared++;
  c->n_accepted += expected;
  bool any = expected, more = false;
  for (size_t i = 0; i < c->n_letters && n_more; i++) {
    size_t n = strlen(c->letters[i]);
    uint32_t next = state;
    memcpy(c->text + length, c->letters[i], n);
    bool goes_on = alive && constraint_matcher_advance_bytes(c->matcher, &next, c->letters[i], n);
    more |= compare_all(c, length + n, n_more - 1, goes_on, next);
  }
  if (alive && constraint_matcher_must_end(c->matcher, state) && more) fail_msg("%s: \"%.*s\" must end, but may go on", c->pattern, (int)length, c->text);
  return any || more;
}

static const char *const ascii_letters[] = {"a", "b", "c", "1", " "};
static const char *const wide_letters[] = {"a", "\xc3\xa9", "\xe4\xbd\xa0", "\xf0\x9f\x99\x82", "\n"};

static size_t compare(const char *pattern, const char *const *letters, size_t n_letters, int n_max) {
  struct constraint *constraint = compile(pattern);
  struct comparison c = {.pattern = pattern, .oracle = oracle_open(pattern), .matcher = run(constraint), .letters = letters,
                         .n_letters = n_letters};
  compare_all(&c, 0, n_max, true, constraint_matcher_start(c.matcher));
  assert_true(c.n_compared > 100);
  oracle_close(&c.oracle);
  constraint_matcher_free(c.matcher);
  constraint_free(constraint);
  return c.n_accepted;
}

static void test_small_patterns(void **state) {
  (void)state;
  static const char *const patterns[] = {
      "", "a", "abc", "a|b", "a|bc|", "(a|b)*", "(?:ab)+", "(?<n>a)b", "(?P<n>a)b", "a?b?c?", "a*b+c?", "(a|ab)(c|bc)", "(a*)*", "(a*)+b",
      "((a?)*)*b", "(a|b|ab)*c", "a{2}", "a{2,}", "a{2,4}", "a{0,2}b", "(ab|c){2,3}", "a{0}", "(a{1,2}){2}", "(){3}a", "a*?b", "a+?", "a??b",
      "a{1,3}?b", "[ab]+", "[^a]*", "[a-c]{2}", "[^a-c]", "[a\\]b]*", "[-a]*", "[a-]*", "[a\\-c]+", "\\d+", "\\D*", "\\w{2}", "\\W+", "\\s\\S",
      "[\\d\\s]*", "[^\\d\\s]+", "[\\Wa]*", ".", ".*", "a.c", "(.a)*", "^a", "a$", "^(a|b)$", "^a|b$", "a{b", "a{,b", "a}", "a]", "\\.", "a{1,b}", "(a|b)(a|b)(a|b)", "(aa|aab)*b", "(a|aa|aaa){2}c", "[a][b]?[c]*", "(a(b(c)?)?)?", "(|a)(|b)",
      "(a+b)*a+", "(?:(?:a|b){2}c?)*", "b*(ab*ab*)*", "[\\w]{0,3}1", "a||b", "(a|)+b", "[a-a]", "[ -a]*"};
  size_t n_accepted = 0;
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) n_accepted += compare(patterns[i], ascii_letters, 5, 5);
  assert_true(n_accepted > 5000);
}

static void test_wide_patterns(void **state) {
  (void)state;
  static const char *const patterns[] = {".", ".*", ".{2,3}", "[^a]*", "\xc3\xa9+", "[\xc3\xa9-\xe4\xbd\xa0]*", "(\xf0\x9f\x99\x82|a)*", "[\\s\\S]*",
                                         "[^\xe4\xbd\xa0]{3}", "\\W*", "a\xe4\xbd\xa0?\\n", "[\\x00-\xc3\xbf]+", "[^\\n]*\\n"};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) compare(patterns[i], wide_letters, 5, 5);
}

/* Random patterns from a small grammar, so that shapes are met that nobody thought of. */
static uint64_t pick(uint64_t *seed, uint64_t n) { return ((*seed = *seed * 6364136223846793005u + 1442695040888963407u) >> 33) % n; }

static void random_pattern(struct buffer *out, uint64_t *seed, int depth) {
  static const char *const atoms[] = {"a", "b", "c", "[ab]", "[^a]", ".", "\\d", "\\w", "1"};
  static const char *const quantifiers[] = {"", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}"};
  uint64_t n_branches = 1 + pick(seed, 3) / 2, n_parts;
  for (uint64_t b = 0; b < n_branches; b++) {
    if (b) buffer_append_char(out, '|');
    n_parts = pick(seed, 4);
    for (uint64_t i = 0; i < n_parts; i++) {
      if (depth < 3 && pick(seed, 3) == 0) {
        buffer_append_char(out, '(');
        random_pattern(out, seed, depth + 1);
        buffer_append_char(out, ')');
      } else {
        buffer_append_string(out, atoms[pick(seed, sizeof atoms / sizeof *atoms)]);
      }
      buffer_append_string(out, quantifiers[pick(seed, sizeof quantifiers / sizeof *quantifiers)]);
    }
  }
}

static void test_random_patterns(void **state) {
  (void)state;
  uint64_t seed = 7;
  for (int i = 0; i < 100; i++) {
    struct buffer pattern;
    buffer_init(&pattern);
    buffer_append(&pattern, "", 0);
    random_pattern(&pattern, &seed, 0);
    compare(pattern.data ? pattern.data : "", ascii_letters, 4, 5);
    buffer_clear(&pattern);
  }
}

/* ---- characters are whole ---- */

static void test_utf8_only(void **state) {
  (void)state;
  struct constraint *constraint = compile("[^a]*");
  struct constraint_matcher *matcher = run(constraint);
  static const struct { const char *text; bool valid; } cases[] = {
      {"b", true}, {"\xc3\xa9", true}, {"\xc3", false}, {"\xa9", false}, {"\xc0\xaf", false}, {"\xe0\x80\x80", false}, {"\xe0\xa0\x80", true},
      {"\xed\x9f\xbf", true}, {"\xed\xa0\x80", false}, {"\xee\x80\x80", true}, {"\xf0\x8f\xbf\xbf", false}, {"\xf0\x90\x80\x80", true},
      {"\xf4\x8f\xbf\xbf", true}, {"\xf4\x90\x80\x80", false}, {"\xf5\x80\x80\x80", false}, {"\xff", false}, {"\xe4\xbd", false}, {"a", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(accepts(matcher, cases[i].text, strlen(cases[i].text)), cases[i].valid);
  uint32_t at = constraint_matcher_start(matcher), before;
  assert_true(constraint_matcher_advance_bytes(matcher, &at, "\xe4", 1)); /* a state inside of a character */
  assert_false(constraint_matcher_is_complete(matcher, at));
  before = at;
  assert_false(constraint_matcher_advance_bytes(matcher, &at, "b", 1));
  assert_int_equal(at, before);
  assert_true(constraint_matcher_advance_bytes(matcher, &at, "\xbd\xa0", 2));
  assert_true(constraint_matcher_is_complete(matcher, at));
  constraint_matcher_free(matcher);
  constraint_free(constraint);
}

static void test_escapes(void **state) {
  (void)state;
  static const struct { const char *pattern, *text; } cases[] = {
      {"\\u00e9", "\xc3\xa9"}, {"\\u4f60", "\xe4\xbd\xa0"}, {"\\ud83d\\ude42", "\xf0\x9f\x99\x82"}, {"\\u{1F642}", "\xf0\x9f\x99\x82"},
      {"\\t\\r\\n\\f\\v", "\t\r\n\f\v"}, {"\\x41\\/\\-\\\"", "A/-\""}, {"[\\u4f60-\\u4f61]", "\xe4\xbd\xa0"}, {"\\{\\}\\[\\]\\(\\)\\^\\$", "{}[]()^$"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct constraint *constraint = compile(cases[i].pattern);
    struct constraint_matcher *matcher = run(constraint);
    assert_true(accepts(matcher, cases[i].text, strlen(cases[i].text)));
    assert_false(accepts(matcher, "", 0));
    constraint_matcher_free(matcher);
    constraint_free(constraint);
  }
}

/* ---- refusals ---- */

static void test_refused(void **state) {
  (void)state;
  static const struct { const char *pattern, *words; } cases[] = {
      {"(?=a)", "lookahead"}, {"(?!a)", "lookahead"}, {"(?<=a)b", "lookbehind"}, {"(?<!a)b", "lookbehind"}, {"(a)\\1", "back-references"},
      {"(?P=n)", "back-references"}, {"\\bword", "word boundaries"}, {"\\p{L}", "Unicode properties"}, {"(?i)a", "flags"}, {"a*+", "possessive"},
      {"(?>a)", "atomic"}, {"a**", "repeated"}, {"a{2}{3}", "repeated"}, {"*a", "nothing to repeat"}, {"{2}", "nothing to repeat"}, {"(", "not closed"},
      {"(a", "not closed"}, {"a)", "closes nothing"}, {"[a", "not closed"}, {"[\\]", "not closed"}, {"[", "not closed"}, {"[]a]", "begins with ]"}, {"[b-a]", "backwards"},
      {"[a-\\d]", "a range ends"}, {"[[:alpha:]]", "named classes"}, {"a{3,2}", "backwards"}, {"a{,3}", "{0,n}"}, {"a{100001}", "repetitions"},
      {"\\", "backslash"}, {"\\q", "escape"}, {"\\x4", "\\x"}, {"\\ud83d", "\\u"}, {"\\u{110000}", "\\u"}, {"\xff", "UTF-8"}, {"a^b", "only at the ends"},
      {"(a$)b", "only at the ends"}, {"(^a|b)c", "only at the ends"}, {"^*", "anchor"}, {"[^\\s\\S]", "no text"}, {"a{100000}b{100000}c{100000}d{100000}(ef){100000}", "400000 states"}, {"(?<n", "name"}, {"(*ACCEPT)", "verbs"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct eaglet_error err = {0};
    struct constraint *constraint = (struct constraint *)&err;
    if (constraint_compile_regex(&constraint, cases[i].pattern, strlen(cases[i].pattern), &err) == EAGLET_OK)
      fail_msg("%s was taken", cases[i].pattern);
    assert_null(constraint);
    assert_int_equal(err.status, EAGLET_E_INPUT);
    if (!strstr(err.message, cases[i].words)) fail_msg("%s: expected \"%s\", found: %s", cases[i].pattern, cases[i].words, err.message);
  }
}

static void test_choices(void **state) {
  (void)state;
  static const char *const choices[] = {"yes", "no", "not sure", "n\xc3\xa9", "yes"};
  struct constraint *constraint;
  ASSERT_OK(constraint_compile_choices(&constraint, choices, 5, err));
  struct constraint_matcher *matcher = run(constraint);
  for (size_t i = 0; i < 5; i++) assert_true(accepts(matcher, choices[i], strlen(choices[i])));
  static const char *const others[] = {"", "y", "ye", "yess", "not", "nosure", "n\xc3", "Yes"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(accepts(matcher, others[i], strlen(others[i])));
  uint32_t at = constraint_matcher_start(matcher);
  assert_true(constraint_matcher_advance_bytes(matcher, &at, "no", 2));
  assert_true(constraint_matcher_is_complete(matcher, at)); /* "no", or on to "not sure" */
  assert_false(constraint_matcher_must_end(matcher, at));
  assert_true(constraint_matcher_advance_bytes(matcher, &at, "t sure", 6));
  assert_true(constraint_matcher_must_end(matcher, at));
  constraint_matcher_free(matcher);
  constraint_free(constraint);
  struct eaglet_error err;
  assert_int_equal(constraint_compile_choices(&constraint, choices, 0, &err), EAGLET_E_USAGE);
  static const char *const bad[] = {"a", "\xff"};
  assert_int_equal(constraint_compile_choices(&constraint, bad, 2, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "choice 1"));
}

/* A pattern whose deterministic automaton is huge runs out of a small memory by name, and a trim makes it go on. */
static void test_exhausted_and_trimmed(void **state) {
  (void)state;
  struct constraint *constraint = compile("(a|b)*a(a|b){40}c");
  struct constraint_matcher *matcher;
  const struct constraint_matcher_params params = {.constraint = constraint, .memory_max = 1};
  ASSERT_OK(constraint_matcher_create(&matcher, &params, err));
  uint32_t at = constraint_matcher_start(matcher);
  uint64_t seed = 1;
  int n_trims = 0, n_refused = 0;
  for (int i = 0; i < 20000; i++) {
    const char *letter = pick(&seed, 2) ? "a" : "b";
    if (i >= 19950) letter = "a"; /* so that c may follow */
    if (!constraint_matcher_advance_bytes(matcher, &at, letter, 1)) {
      assert_true(constraint_matcher_is_exhausted(matcher));
      n_refused++;
      assert_true(constraint_matcher_trim(matcher, &at, 1));
      assert_false(constraint_matcher_is_exhausted(matcher));
      assert_true(constraint_matcher_advance_bytes(matcher, &at, letter, 1));
    } else if (i % 7 == 0 && i > 10000) {
      n_trims += constraint_matcher_trim(matcher, &at, 1);
    }
  }
  assert_true(n_trims > 0 && n_refused > 0);
  assert_false(constraint_matcher_is_complete(matcher, at));
  assert_true(constraint_matcher_advance_bytes(matcher, &at, "c", 1));
  assert_true(constraint_matcher_must_end(matcher, at));
  constraint_matcher_free(matcher);
  constraint_free(constraint);
}

/* Counted parts in counted parts: more ways to read the first byte than are followed. Told when the matcher is made. */
static void test_too_ambiguous(void **state) {
  (void)state;
  struct constraint *constraint = compile("((x{0,300}){0,300}){0,300}");
  struct constraint_matcher *matcher;
  struct eaglet_error err;
  const struct constraint_matcher_params params = {.constraint = constraint};
  assert_int_equal(constraint_matcher_create(&matcher, &params, &err), EAGLET_E_RESOURCE);
  assert_null(matcher);
  assert_non_null(strstr(err.message, "at most 65536 alternatives"));
  constraint_free(constraint);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small_patterns),  cmocka_unit_test(test_wide_patterns), cmocka_unit_test(test_random_patterns),
      cmocka_unit_test(test_utf8_only),       cmocka_unit_test(test_escapes),       cmocka_unit_test(test_refused),
      cmocka_unit_test(test_choices),         cmocka_unit_test(test_exhausted_and_trimmed), cmocka_unit_test(test_too_ambiguous),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
