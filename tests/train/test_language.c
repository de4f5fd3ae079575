/* test_language.c - texts of each script, mixtures, and messages. */
#include "../data/support.h"

#include "train/language.h"

static void test_scripts(void **state) {
  (void)state;
  static const struct {
    const char *text, *language;
  } cases[] = {{"", "none"},
               {"12 + 30 = 42!", "none"},
               {"Hello", "Latin"},
               {"Tiếng Việt", "Latin"},
               {"Привет, world", "Cyrillic"},
               {"Καλημέρα", "Greek"},
               {"שלום", "Hebrew"},
               {"مرحبا بالعالم", "Arabic"},
               {"नमस्ते", "Indic"},
               {"สวัสดี", "Thai"},
               {"안녕하세요", "Korean"},
               {"你好，世界", "Chinese"},
               {"これは日本語の文章です", "Japanese"},
               {"東京都 は", "Japanese"},
               {"გამარჯობა", "Georgian"},
               {"Բարեւ", "Armenian"},
               {"ሰላም", "Ethiopic"},
               {"Use print() 打印这个结果 now", "Chinese"},
               {"ᏣᎳᎩ", "other"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *found = language_of(cases[i].text, strlen(cases[i].text));
    if (strcmp(found, cases[i].language) != 0) fail_msg("%s: expected %s, found %s", cases[i].text, cases[i].language, found);
  }
  assert_string_equal(language_of("\xff\xfe", 2), "none");
}

static void test_messages(void **state) {
  (void)state;
  json_t *messages = json_pack("[{ss ss}, {ss ss}]", "role", "user", "content", "Translate: hello", "role", "assistant", "content", "你好");
  assert_string_equal(language_of_messages(messages), "Chinese"); /* what is trained decides */
  json_array_remove(messages, 1);
  assert_string_equal(language_of_messages(messages), "Latin");
  json_decref(messages);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_scripts), cmocka_unit_test(test_messages)};
  return cmocka_run_group_tests_name("language", tests, NULL, NULL);
}
