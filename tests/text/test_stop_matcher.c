/* test_stop_matcher.c - stop strings are found where they are, however the text is cut into pieces. Every case is run with all cuts into
 * two pieces and byte by byte; random texts are compared with a search over the whole text, and so is what may be shown.
 */
#include "support.h"
#include "text/stop_matcher.h"

#define NONE ((size_t)-1)

static struct stop_matcher *create(const char *const *stops, size_t n) {
  struct stop_matcher *matcher;
  ASSERT_OK(stop_matcher_create(&matcher, stops, n, err));
  return matcher;
}

/* ---- the definition ---- */

static bool ends_with(const char *text, size_t end, const char *stop) {
  size_t n = strlen(stop);
  return n <= end && memcmp(text + end - n, stop, n) == 0;
}

/* The stop that ends first, the longest of those. begin NONE: none. */
static struct stop_match search(const char *text, size_t length, const char *const *stops, size_t n) {
  struct stop_match found = {.begin = NONE};
  for (size_t end = 1; end <= length && found.begin == NONE; end++)
    for (size_t i = 0; i < n; i++) {
      if (!ends_with(text, end, stops[i]) || (found.begin != NONE && end - strlen(stops[i]) >= found.begin)) continue;
      found = (struct stop_match){.begin = end - strlen(stops[i]), .end = end, .stop = i};
    }
  return found;
}

/* Where the longest end of the text begins that is a proper beginning of a stop, or a character that lacks bytes. */
static size_t safe(const char *text, size_t length, const char *const *stops, size_t n) {
  size_t at = length;
  for (size_t i = 0; i < n; i++)
    for (size_t k = strlen(stops[i]) - 1; k > 0; k--)
      if (k <= length && memcmp(text + length - k, stops[i], k) == 0 && length - k < at) at = length - k;
  static const char lead[] = {0, (char)0xc2, (char)0xe0, (char)0xf0};
  for (size_t k = 1; k <= 3 && k <= length; k++) {
    uint8_t byte = (uint8_t)text[length - k];
    if ((byte & 0xc0) == 0x80) continue;
    if (byte >= (uint8_t)lead[k] && byte < 0xf5 && length - k < at) at = length - k;
    break;
  }
  return at;
}

/* ---- running ---- */

struct piecewise {
  const char *text;
  size_t length;
  const char *const *stops;
  size_t n_stops;
};

/* Pushes pieces that end where cut says (bit i: after byte i) and compares with the definition after each. */
static struct stop_match run(struct stop_matcher *m, const struct piecewise *p, uint64_t cuts) {
  struct stop_match expected = search(p->text, p->length, p->stops, p->n_stops), found = {.begin = NONE};
  size_t shown = 0;
  stop_matcher_reset(m);
  for (size_t begin = 0, end = 1; end <= p->length; end++) {
    if (end < p->length && !(cuts >> (end - 1) & 1)) continue;
    bool matched = stop_matcher_push(m, p->text + begin, end - begin, &found);
    assert_int_equal(matched, expected.begin != NONE && end >= expected.end);
    size_t n_safe = stop_matcher_n_safe(m);
    assert_true(n_safe >= shown);
    assert_int_equal(n_safe, matched ? expected.begin : safe(p->text, end, p->stops, p->n_stops));
    shown = n_safe;
    begin = end;
  }
  assert_int_equal(found.begin, expected.begin);
  if (found.begin == NONE) return found;
  assert_int_equal(found.end, expected.end);
  assert_int_equal(found.stop, expected.stop);
  return found;
}

static struct stop_match check(const char *text, const char *const *stops, size_t n) {
  struct stop_matcher *m = create(stops, n);
  const struct piecewise p = {text, strlen(text), stops, n};
  assert_true(p.length <= 64);
  struct stop_match whole = run(m, &p, 0);
  run(m, &p, UINT64_MAX);
  for (size_t i = 0; i + 1 < p.length; i++) run(m, &p, (uint64_t)1 << i);
  stop_matcher_free(m);
  return whole;
}

/* ---- cases ---- */

static void test_where_text_ends(void **state) {
  (void)state;
  static const struct { const char *text, *stops[4]; size_t begin, end, stop; } cases[] = {
      {"hello world", {"wor"}, 6, 9, 0},
      {"hello", {"x"}, NONE, 0, 0},
      {"aaab", {"aab"}, 1, 4, 0},                       /* overlaps itself */
      {"abababac", {"ababac"}, 2, 8, 0},
      {"xabc", {"ab", "abc"}, 1, 3, 0},                 /* a beginning of another: the shorter is complete first */
      {"xabc", {"abc", "ab"}, 1, 3, 1},
      {"abcd", {"abcd", "bc"}, 1, 3, 1},                /* inside of another */
      {"xabc", {"bc", "abc", "c"}, 1, 4, 1},            /* end together: the longest */
      {"before\n\nUser: hi", {"\n\nUser:", "User"}, 8, 12, 1},
      {"a\n\nb", {"\n\n"}, 1, 3, 0},
      {"caf\xc3\xa9!", {"\xc3\xa9"}, 3, 5, 0},
      {"\xc3\xa8\xc3\xa9", {"\xc3\xa9"}, 2, 4, 0},      /* the same first byte */
      {"x\xf0\x9f\x99\x82y", {"\xf0\x9f\x99\x82y"}, 1, 6, 0},
      {"stop", {"stop"}, 0, 4, 0},
      {"aa", {"a"}, 0, 1, 0},                           /* the first of two */
      {"ababa", {"aba"}, 0, 3, 0},
      {"", {"a"}, NONE, 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t n = 0;
    while (n < 4 && cases[i].stops[n]) n++;
    struct stop_match found = check(cases[i].text, cases[i].stops, n);
    if (found.begin != cases[i].begin) fail_msg("case %zu (\"%s\"): expected %zu, found %zu", i, cases[i].text, cases[i].begin, found.begin);
    if (found.begin == NONE) continue;
    assert_int_equal(found.end, cases[i].end);
    assert_int_equal(found.stop, cases[i].stop);
  }
}

static void test_held_back(void **state) {
  (void)state;
  static const char *const stops[] = {"</s>", "\xf0\x9f\x99\x82"};
  struct stop_matcher *m = create(stops, 2);
  static const struct { const char *piece; size_t n_safe; } steps[] = {
      {"ab<", 2}, {"/", 2}, {"s", 2}, {"x", 6}, {"<<", 7}, {"\xe4\xbd", 8}, {"\xa0", 11}, {"\xf0\x9f\x99", 11}, {"\x83", 15}, {"\xf0", 15}, {"z", 17}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    assert_false(stop_matcher_push(m, steps[i].piece, strlen(steps[i].piece), NULL));
    assert_int_equal(stop_matcher_n_safe(m), steps[i].n_safe);
  }
  struct stop_match match;
  assert_true(stop_matcher_push(m, "text before</s>text after", 25, &match));
  assert_int_equal(match.begin, 17 + 11);
  assert_int_equal(match.end, 17 + 15);
  assert_int_equal(stop_matcher_n_safe(m), 17 + 11);
  assert_true(stop_matcher_push(m, "more", 4, &match)); /* over is over */
  assert_int_equal(match.begin, 17 + 11);
  stop_matcher_reset(m);
  assert_false(stop_matcher_push(m, "again", 5, &match));
  assert_int_equal(stop_matcher_n_safe(m), 5);
  stop_matcher_free(m);
}

/* A text whose first bytes may not hold a stop: what is found is the stop that is complete first behind them, also when it begins within. */
static void test_passed_text(void **state) {
  (void)state;
  static const struct { const char *text, *stops[3]; size_t n_passed, begin, end; } cases[] = {
      {"ababab", {"abab"}, 4, 2, 6},
      {"ababab", {"abab"}, 3, 0, 4},
      {"aaaa", {"aa"}, 3, 2, 4},
      {"xabcd", {"abc", "ab"}, 3, 1, 4},
      {"stop a stop", {"stop"}, 4, 7, 11},
      {"stop a sto", {"stop"}, 4, NONE, 0},
      {"abcabd", {"abc", "cab", "abd"}, 3, 2, 5},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t n = 0, length = strlen(cases[i].text), shown = 0;
    while (n < 3 && cases[i].stops[n]) n++;
    struct stop_matcher *m = create(cases[i].stops, n);
    struct stop_match match = {.begin = NONE};
    for (size_t at = 0; at < length; at++) {
      if (at < cases[i].n_passed)
        stop_matcher_pass(m, cases[i].text + at, 1);
      else
        stop_matcher_push(m, cases[i].text + at, 1, &match);
      assert_true(stop_matcher_n_safe(m) >= shown && stop_matcher_n_safe(m) <= at + 1);
      shown = stop_matcher_n_safe(m);
    }
    assert_int_equal(match.begin, cases[i].begin);
    if (match.begin != NONE) assert_int_equal(match.end, cases[i].end);
    stop_matcher_free(m);
  }
}

static void test_random_texts(void **state) {
  (void)state;
  static const char *const letters[] = {"a", "b", "\xc3\xa9", "\xe4\xbd\xa0"};
  uint64_t seed = 5, n_matches = 0;
#define PICK(n) ((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33) % (n)
  for (int round = 0; round < 20000; round++) {
    char texts[5][32] = {{0}}; /* [4] is the text, the others are stops */
    const char *stops[4] = {texts[0], texts[1], texts[2], texts[3]};
    size_t n_stops = 1 + PICK(4);
    for (size_t i = 0; i < 5; i++)
      for (size_t k = i < 4 ? 1 + PICK(4) : PICK(10); k > 0; k--) strcat(texts[i], letters[PICK(round % 2 ? 4 : 2)]);
    struct stop_matcher *m = create(stops, n_stops);
    const struct piecewise p = {texts[4], strlen(texts[4]), stops, n_stops};
    n_matches += run(m, &p, PICK(1u << 30)).begin != NONE;
    stop_matcher_free(m);
  }
#undef PICK
  assert_true(n_matches > 2000 && n_matches < 18000);
}

static void test_refused(void **state) {
  (void)state;
  struct stop_matcher *m = (struct stop_matcher *)&m;
  struct eaglet_error err;
  const char *many[STOP_STRINGS_MAX + 1], *one[] = {"fine", ""};
  char *longest = memory_alloc(STOP_STRING_BYTES_MAX + 2);
  for (size_t i = 0; i <= STOP_STRINGS_MAX; i++) many[i] = longest;
  memset(longest, 'a', STOP_STRING_BYTES_MAX + 1);
  assert_int_equal(stop_matcher_create(&m, one, 2, &err), EAGLET_E_USAGE);
  assert_null(m);
  assert_non_null(strstr(err.message, "1 is empty"));
  assert_int_equal(stop_matcher_create(&m, many, 1, &err), EAGLET_E_USAGE);
  assert_non_null(strstr(err.message, "1025 bytes, at most 1024"));
  longest[STOP_STRING_BYTES_MAX] = '\0';
  assert_int_equal(stop_matcher_create(&m, many, STOP_STRINGS_MAX + 1, &err), EAGLET_E_USAGE);
  assert_non_null(strstr(err.message, "65, at most 64"));
  one[1] = "a\xc3";
  assert_int_equal(stop_matcher_create(&m, one, 2, &err), EAGLET_E_USAGE);
  assert_non_null(strstr(err.message, "UTF-8 at byte 1"));
  m = create(many, STOP_STRINGS_MAX); /* the limits themselves */
  assert_false(stop_matcher_push(m, longest, STOP_STRING_BYTES_MAX - 1, NULL));
  assert_int_equal(stop_matcher_n_safe(m), 0);
  assert_true(stop_matcher_push(m, "a", 1, NULL));
  stop_matcher_free(m);
  m = create(NULL, 0);
  assert_false(stop_matcher_push(m, "text", 4, NULL));
  assert_int_equal(stop_matcher_n_safe(m), 4);
  stop_matcher_free(m);
  free(longest);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_where_text_ends),
      cmocka_unit_test(test_held_back),
      cmocka_unit_test(test_passed_text), cmocka_unit_test(test_random_texts),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
