/* test_buffer.c - buffer limits and ownership, bounds of the cursor, UTF-8 by a table of hostile cases and by a round trip over every
 * code point. */
#include "base/buffer.h"
#include "support.h"

static void test_append_and_format(void **state) {
  (void)state;
  struct buffer b;
  buffer_init(&b);
  assert_string_equal(b.data, "");
  for (int i = 0; i < 500; i++) buffer_format(&b, "%d,", i);
  buffer_append_char(&b, '!');
  buffer_append(&b, "a\0b", 3);
  assert_int_equal(b.length, 10 * 2 + 90 * 3 + 400 * 4 + 4);
  assert_memory_equal(b.data + b.length - 4, "!a\0b", 5);
  buffer_reset(&b);
  assert_string_equal(b.data, "");
  buffer_clear(&b);
  buffer_append_string(&b, "works from zero");
  assert_string_equal(b.data, "works from zero");
  buffer_clear(&b);
}

static void test_limit_is_sticky(void **state) {
  (void)state;
  struct buffer b;
  buffer_init(&b);
  b.limit = 5;
  buffer_append_string(&b, "abcde");
  assert_false(b.overflow);
  buffer_append_string(&b, "");
  assert_false(b.overflow);
  buffer_append_char(&b, 'f');
  assert_true(b.overflow);
  buffer_append_string(&b, "");
  buffer_format(&b, "%d", 1);
  assert_string_equal(b.data, "abcde");
  assert_true(b.overflow);
  buffer_clear(&b);
}

static void test_detach_gives_ownership(void **state) {
  (void)state;
  struct buffer b = {0};
  struct eaglet_text text = buffer_detach(&b);
  assert_string_equal(text.data, "");
  free(text.data);
  buffer_append_string(&b, "one");
  text = buffer_detach(&b);
  buffer_append_string(&b, "two");
  assert_string_equal(text.data, "one");
  assert_int_equal(text.length, 3);
  assert_string_equal(b.data, "two");
  free(text.data);
  buffer_clear(&b);
}

static void test_cursor_bounds(void **state) {
  (void)state;
  const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  struct cursor c = {.data = data, .length = sizeof data};
  assert_int_equal(cursor_u8(&c), 1);
  assert_int_equal(cursor_u32(&c), 0x05040302);
  assert_true(cursor_u64(&c) == 0x0d0c0b0a09080706ull);
  assert_false(c.failed);
  assert_non_null(cursor_bytes(&c, 0));
  assert_int_equal(cursor_u8(&c), 0);
  assert_true(c.failed);
  c = (struct cursor){.data = data, .length = 3};
  assert_int_equal(cursor_u32(&c), 0);
  assert_true(c.failed);
  assert_null(cursor_bytes(&c, 1)); /* sticky, although one byte is there */
  c = (struct cursor){.data = data, .length = 3, .at = 1};
  assert_null(cursor_bytes(&c, SIZE_MAX));
  c = (struct cursor){.data = data, .length = 3, .at = 9};
  assert_null(cursor_bytes(&c, 0));
}

static void test_utf8_table(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t length;
    int bytes;
    uint32_t codepoint;
  } cases[] = {
      {"", 0, 0, 0},
      {"\0", 1, 1, 0},
      {"A", 1, 1, 'A'},
      {"\x7f", 1, 1, 0x7f},
      {"\x80", 1, 0, 0},                 /* continuation alone */
      {"\xbf", 1, 0, 0},
      {"\xc0\x80", 2, 0, 0},             /* overlong NUL */
      {"\xc1\xbf", 2, 0, 0},
      {"\xc2\x80", 2, 2, 0x80},
      {"\xdf\xbf", 2, 2, 0x7ff},
      {"\xc3", 1, 0, 0},                 /* truncated */
      {"\xc3\x28", 2, 0, 0},
      {"\xe0\x9f\xbf", 3, 0, 0},         /* overlong */
      {"\xe0\xa0\x80", 3, 3, 0x800},
      {"\xed\x9f\xbf", 3, 3, 0xd7ff},
      {"\xed\xa0\x80", 3, 0, 0},         /* surrogates */
      {"\xed\xbf\xbf", 3, 0, 0},
      {"\xee\x80\x80", 3, 3, 0xe000},
      {"\xef\xbf\xbf", 3, 3, 0xffff},
      {"\xe2\x82", 2, 0, 0},
      {"\xf0\x8f\xbf\xbf", 4, 0, 0},     /* overlong */
      {"\xf0\x90\x80\x80", 4, 4, 0x10000},
      {"\xf4\x8f\xbf\xbf", 4, 4, 0x10ffff},
      {"\xf4\x90\x80\x80", 4, 0, 0},     /* above U+10FFFF */
      {"\xf5\x80\x80\x80", 4, 0, 0},
      {"\xff", 1, 0, 0},
      {"\xf0\x9f\xa6\x85", 3, 0, 0},     /* the length says one byte less */
      {"\xf0\x9f\x61\x85", 4, 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t codepoint = 0;
    assert_int_equal(utf8_decode(cases[i].text, cases[i].length, &codepoint), cases[i].bytes);
    if (cases[i].bytes) assert_int_equal(codepoint, cases[i].codepoint);
    assert_int_equal(utf8_valid(cases[i].text, cases[i].length), cases[i].bytes);
  }
  assert_int_equal(utf8_valid("ab\xc3\xa9\xff", 5), 4);
}

static void test_utf8_round_trip(void **state) {
  (void)state;
  struct buffer b;
  buffer_init(&b);
  for (uint32_t u = 0; u <= 0x110000; u++) {
    uint32_t back = 0, expected = u > 0x10ffff || (u >= 0xd800 && u <= 0xdfff) ? 0xfffd : u;
    buffer_reset(&b);
    buffer_append_codepoint(&b, u);
    if (utf8_decode(b.data, b.length, &back) != (int)b.length || back != expected) fail_msg("U+%X", u);
  }
  buffer_clear(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_append_and_format), cmocka_unit_test(test_limit_is_sticky),
      cmocka_unit_test(test_detach_gives_ownership), cmocka_unit_test(test_cursor_bounds),
      cmocka_unit_test(test_utf8_table), cmocka_unit_test(test_utf8_round_trip),
  };
  return cmocka_run_group_tests_name("buffer", tests, NULL, NULL);
}
