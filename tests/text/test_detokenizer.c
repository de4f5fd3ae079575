/* test_detokenizer.c - the streaming decoder equals Python's decode(errors="replace") however bytes are split into tokens. */
#include "support.h"
#include "text/detokenizer.h"

static struct tokenizer *open_nano(void) {
  char *path = model_path("nano-kimi");
  if (!path) skip();
  struct tokenizer *tokenizer;
  ASSERT_OK(tokenizer_open(&tokenizer, path, err));
  free(path);
  return tokenizer;
}

static int32_t byte_id(const struct tokenizer *tokenizer, uint8_t byte) {
  for (int32_t id = 0; id < tokenizer_n_ids(tokenizer); id++) {
    size_t n;
    const char *bytes = tokenizer_bytes(tokenizer, id, &n);
    if (n == 1 && (uint8_t)*bytes == byte) return id;
  }
  fail_msg("no id for byte %02x", byte);
  return -1;
}

static void check_bytes(const struct tokenizer *tokenizer, const char *bytes, const char *expected) {
  struct detokenizer detokenizer;
  struct buffer out;
  detokenizer_init(&detokenizer, tokenizer);
  buffer_init(&out);
  for (; *bytes; bytes++) {
    detokenizer_push(&detokenizer, byte_id(tokenizer, (uint8_t)*bytes), &out);
    assert_int_equal(utf8_valid(out.data ? out.data : "", out.length), out.length); /* never half a character */
  }
  detokenizer_finish(&detokenizer, &out);
  assert_string_equal(out.data, expected);
  buffer_clear(&out);
}

#define R "\xef\xbf\xbd"

static void test_replacement(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_nano();
  static const char *const cases[][2] = { /* right column: Python 3 bytes.decode("utf-8", "replace") */
      {"abc", "abc"},
      {"h\xc3\xa9!", "h\xc3\xa9!"},
      {"\xe4\xbd\xa0\xf0\x9f\x99\x82", "\xe4\xbd\xa0\xf0\x9f\x99\x82"},
      {"\x80", R},
      {"a\xff" "b", "a" R "b"},
      {"\xc0\xaf", R R},
      {"\xe0\x80\x80", R R R},
      {"\xe4\xbd" "a", R "a"},
      {"\xe4" "a\xbd", R "a" R},
      {"\xf0\x9f\x99" "a", R "a"},
      {"\xf0\x9f\xe4\xbd\xa0", R "\xe4\xbd\xa0"},
      {"\xed\xa0\x80", R R R},
      {"\xf4\x90\x80\x80", R R R R},
      {"\xf5\x80", R R},
      {"ok\xe4\xbd", "ok" R},
      {"ok\xf0", "ok" R},
      {"\xc3\xc3\xa9", R "\xc3\xa9"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_bytes(tokenizer, cases[i][0], cases[i][1]);
  tokenizer_close(tokenizer);
}

/* Text of every sort, decoded token by token and byte by byte, gives itself back. */
static void test_stream_equals_whole(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_nano();
  const char *text = "na\xc3\xafve \xe2\x80\x93 \xe4\xbd\xa0\xe5\xa5\xbd \xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 "
                     "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 <|im_end|> e\xcc\x81 \xd8\xb3\xd9\x84\xd8\xa7\xd9\x85";
  struct token_list ids = {0};
  ASSERT_OK(tokenizer_encode(tokenizer, text, strlen(text), EAGLET_SPECIAL_ALLOW, &ids, err));
  struct detokenizer detokenizer;
  struct buffer out;
  detokenizer_init(&detokenizer, tokenizer);
  buffer_init(&out);
  for (size_t i = 0; i < ids.n; i++) {
    detokenizer_push(&detokenizer, ids.ids[i], &out);
    assert_int_equal(utf8_valid(out.data ? out.data : "", out.length), out.length);
    assert_true(out.length == 0 || memcmp(out.data, text, out.length) == 0);
  }
  detokenizer_finish(&detokenizer, &out);
  assert_string_equal(out.data, text);
  buffer_clear(&out);
  check_bytes(tokenizer, text, text);
  token_list_clear(&ids);
  tokenizer_close(tokenizer);
}

static void test_unknown_id(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_nano();
  struct detokenizer detokenizer;
  struct buffer out;
  detokenizer_init(&detokenizer, tokenizer);
  buffer_init(&out);
  detokenizer_push(&detokenizer, byte_id(tokenizer, 0xe4), &out);
  detokenizer_push(&detokenizer, 999999, &out);
  detokenizer_push(&detokenizer, byte_id(tokenizer, 'a'), &out);
  detokenizer_finish(&detokenizer, &out);
  assert_string_equal(out.data, R R "a");
  buffer_clear(&out);
  tokenizer_close(tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_replacement),
      cmocka_unit_test(test_stream_equals_whole),
      cmocka_unit_test(test_unknown_id),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
