/* test_tokenizer_split.c - the hand-written split against the regular-expression engine on random text, the translation of
 * Oniguruma's language, and words of a megabyte through every family in bounded time.
 */
#include "support.h"
#include "base/util.h"
#include "text/tokenizer_json.h"

static struct regex *make(const char *pattern) {
  struct regex *regex;
  ASSERT_OK(regex_create(&regex, pattern, strlen(pattern), "test", err));
  return regex;
}

/* ---- the scan ---- */

static size_t random_text(char *text, size_t length_max, uint64_t seed) {
  static const char *const parts[] = {"a", "B", "the", "Word", "CAMELcase", " ", "  ", "\n", "\r\n", "\t", "'", "'s", "'RE", "'ll", "'v", "'D", "1",
                                      "23", "4567", ".", "!?", "/", "-", "_", "\x01", "\x1c", "\x7f", "\v", "\f", "\xc3\xa9", "\xc5\xbf", "\xe4\xbd\xa0",
                                      "\xc2\xa0", "\xe3\x80\x80", "\xcc\x81", "\xd9\xa3", "\xe2\x80\x99", "\xc2\x85", "\xe3\x80\x82"};
  const size_t n_parts = sizeof parts / sizeof *parts, n_ascii = 29;
  size_t n = 0, n_pieces = 1 + random_u64(seed, 0, 0) % 24;
  for (size_t i = 0; i < n_pieces; i++) {
    uint64_t draw = random_u64(seed, 1, i);
    const char *part = parts[draw % 7 == 0 ? draw / 7 % n_parts : draw / 7 % n_ascii];
    if (n + strlen(part) > length_max) break;
    memcpy(text + n, part, strlen(part));
    n += strlen(part);
  }
  return n;
}

static void test_scan_equals_engine(void **state) {
  (void)state;
  struct regex_scratch *scratch = regex_scratch_create();
  for (int family = SPLIT_OTHER + 1; family < SPLIT_N_FAMILIES; family++) {
    const char *pattern;
    for (size_t index = 0; (pattern = split_pattern_of((enum split_family)family, index)); index++) {
      assert_int_equal(split_family_of(pattern, strlen(pattern)), family);
      struct regex *regex = make(pattern);
      size_t n_answered = 0, n_all = 0;
      for (uint64_t seed = 0; seed < 20000; seed++) {
        char text[256];
        size_t length = random_text(text, sizeof text, seed);
        struct regex_walk walk = {.regex = regex, .scratch = scratch, .text = text, .length = length};
        for (size_t at = 0; at < length;) {
          struct text_span match;
          bool found;
          ASSERT_OK(regex_walk_next(&walk, &match, &found, err));
          assert_true(found && match.begin == at);
          size_t end = split_scan((enum split_family)family, text, length, at);
          if (end && end != match.end)
            fail_msg("family %d, pattern %zu, \"%.*s\" at %zu: expected %zu, found %zu", family, index, (int)length, text, at, match.end, end);
          n_answered += end != 0;
          n_all++;
          at = match.end;
        }
      }
      assert_true(n_answered * 2 > n_all); /* it is of use */
      regex_free(regex);
    }
  }
  regex_scratch_free(scratch);
}

/* ---- the language ---- */

static void test_language(void **state) {
  (void)state;
  static const struct {
    const char *pattern, *text, *matches; /* matches as text, each in () */
  } cases[] = {
      {"\\s+", "a\xe1\xa0\x8e\xc2\x85\xe3\x80\x80" "b", "(\xc2\x85\xe3\x80\x80)"}, /* U+180E is no white space */
      {"\\w+", "a_\xc3\xa9\xcc\x81\xc2\xb2-9", "(a_\xc3\xa9\xcc\x81\xc2\xb2)(9)"},
      {"[\\w]", "\xc2\xb2" "a", "(a)"},
      {"\\d", "\xd9\xa3\xc2\xb2", "(\xd9\xa3)"},
      {"\\h+", "xFFg", "(FF)"}, /* hexadecimal digits, not blanks */
      {"\\p{Han}+", "\xe3\x80\x81\xe3\x80\x85\xe4\xb8\x80", "(\xe3\x80\x85\xe4\xb8\x80)"}, /* the script, not what it shares */
      {"\\p{Letter}|\\p{^L}", "a1", "(a)(1)"},
      {"^a|b$", "a\na\nb\nb", "(a)(a)(b)(b)"},
      {".", "a\nb", "(a)(b)"},
      {"a{,2}b", "aaab", "(aab)"},
      {"(?:ab){2}+", "ababababab", "(abababab)"},
      {"a{2}?", "aa", "(aa)"},
      {"[a-d&&[^b]&&[b-c]]", "abcd", "(c)"},
      {"[a[bc]d]+", "dcba-", "(dcba)"},
      {"[[:alpha:]]+", "a\xc3\xa9" "1", "(a\xc3\xa9)"},
      {"x*", "axb", "()(x)()"},
      {"\\bb", "ab b", "(b)"},
      {"\\b", "\xc2\xb2", "()()"},
      {"(?i:'s)", "'\xc5\xbf'S", "('\xc5\xbf)('S)"},
      {"\\u00e9|\\x{4f60}", "\xc3\xa9\xe4\xbd\xa0", "(\xc3\xa9)(\xe4\xbd\xa0)"},
      {"(?<=a).(?!c)", "abcab", "(b)"},
  };
  struct regex_scratch *scratch = regex_scratch_create();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct regex *regex = make(cases[i].pattern);
    struct regex_walk walk = {.regex = regex, .scratch = scratch, .text = cases[i].text, .length = strlen(cases[i].text)};
    struct buffer found;
    buffer_init(&found);
    for (bool more = true; more;) {
      struct text_span match;
      ASSERT_OK(regex_walk_next(&walk, &match, &more, err));
      if (more) buffer_format(&found, "(%.*s)", (int)(match.end - match.begin), cases[i].text + match.begin);
    }
    if (strcmp(found.data, cases[i].matches) != 0) fail_msg("%s: expected %s, found %s", cases[i].pattern, cases[i].matches, found.data);
    buffer_clear(&found);
    regex_free(regex);
  }
  regex_scratch_free(scratch);
}

/* ---- long words ---- */

/* A byte-level vocabulary of 256 letters and the merges of a few of them. */
static char *write_byte_level(const char *pattern) {
  char *directory = temporary_directory();
  struct buffer vocab, merges;
  buffer_init(&vocab);
  buffer_init(&merges);
  struct work work = {0};
  int id = 0;
  for (int byte = 0; byte < 256; byte++) {
    char c = (char)byte;
    work_reset(&work, false);
    byte_level_spell(&work, &(struct piece){.data = &c, .length = 1});
    const char *escape = c == '"' || c == '\\' ? "\\" : "";
    buffer_format(&vocab, "%s\"%s%s\":%d", id ? "," : "", escape, work.text.data, id);
    id++;
  }
  static const char *const pairs[][2] = {{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}, {"a", "b"}, {"A", "B"}, {"ab", "ab"}, {"!", "!"}, {"=", "="},
                                         {"==", "=="}, {"1", "1"}, {"\xc4\xa0", "\xc4\xa0"}, {"\xc4\xa0\xc4\xa0", "\xc4\xa0\xc4\xa0"}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    buffer_format(&vocab, ",\"%s%s\":%d", pairs[i][0], pairs[i][1], id++);
    buffer_format(&merges, "%s[\"%s\",\"%s\"]", i ? "," : "", pairs[i][0], pairs[i][1]);
  }
  json_t *regex = json_string(pattern);
  char *quoted = json_dumps(regex, JSON_ENCODE_ANY);
  char *text = memory_format("{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                             "\"pattern\":{\"Regex\":%s},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                             "\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{%s},\"merges\":[%s]}}",
                             quoted, vocab.data, merges.data);
  write_file(directory, "tokenizer.json", text);
  free(text);
  free(quoted);
  json_decref(regex);
  work_release(&work);
  buffer_clear(&vocab);
  buffer_clear(&merges);
  return directory;
}

static void check_long(const struct tokenizer *tokenizer, const char *text, size_t length, const char *label) {
  struct token_list ids = {0};
  double begin = time_now();
  ASSERT_OK(tokenizer_encode(tokenizer, text, length, EAGLET_SPECIAL_ALLOW, &ids, err));
  double seconds = time_now() - begin;
  if (seconds > 10) fail_msg("%s took %.2f s", label, seconds); /* about 0.2 s; a quadratic step takes hours */
  size_t at = 0, n;
  for (size_t i = 0; i < ids.n; i++, at += n) {
    const char *bytes = tokenizer_bytes(tokenizer, ids.ids[i], &n);
    if (at + n > length || memcmp(text + at, bytes, n) != 0) fail_msg("%s: token %zu", label, i);
  }
  assert_int_equal(at, length);
  token_list_clear(&ids);
}

static void test_long_words(void **state) {
  (void)state;
  static const char *const units[] = {"a", "A", "ab", "aB", "=", "!?", " ", "1", "\n", " \n", "\t ", "'s", "\xe4\xbd\xa0", "\xca\xb0", "\xf0\x9f\x99\x82", "\xc2\xa0", "<|"};
  const char *const patterns[] = {split_pattern_of(SPLIT_LLAMA3, 0), split_pattern_of(SPLIT_O200K, 0), split_pattern_of(SPLIT_GPT2, 0),
                                  "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^"
                                  "\\p{Han}]]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+|\\p{N}{1,3}|\\s+|[^\\s]"};
  char *text = memory_alloc(1000008);
  for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
    size_t length = p == 0 ? 1000000 : 200000;
    char *directory = write_byte_level(patterns[p]);
    struct tokenizer *tokenizer;
    ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
    temporary_remove(directory);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
      char label[48];
      size_t n = strlen(units[u]), filled = 0;
      for (; filled + n <= length; filled += n) memcpy(text + filled, units[u], n);
      snprintf(label, sizeof label, "pattern %zu, unit %zu", p, u);
      check_long(tokenizer, text, filled, label);
      text[filled] = 'x'; /* white space before a word: look-ahead at the end of the run */
      check_long(tokenizer, text, filled + 1, label);
    }
    tokenizer_close(tokenizer);
  }
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_scan_equals_engine),
      cmocka_unit_test(test_language),
      cmocka_unit_test(test_long_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
