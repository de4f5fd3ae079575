/* test_memory.c - errors (truncation, prefix, one line), checked heap, arenas. Aborts are watched from a parent process. */
#include "support.h"

static void test_error_set_fills_and_returns(void **state) {
  (void)state;
  struct eaglet_error err = {0};
  assert_int_equal(error_set(&err, EAGLET_E_INPUT, "%s: expected %d, found %d", "a.json", 3, 4), EAGLET_E_INPUT);
  assert_int_equal(err.status, EAGLET_E_INPUT);
  assert_string_equal(err.message, "a.json: expected 3, found 4");
  assert_int_equal(error_set(NULL, EAGLET_E_CHECK, "x"), EAGLET_E_CHECK);
}

static void test_error_is_one_line(void **state) {
  (void)state;
  struct eaglet_error err;
  error_set(&err, EAGLET_E_INPUT, "name '%s'", "a\nb\x1b[1m");
  assert_string_equal(err.message, "name 'a?b?[1m'");
}

static void test_error_truncates_on_a_character(void **state) {
  (void)state;
  struct eaglet_error err;
  for (int shift = 0; shift < 4; shift++) {
    char *long_text = memory_alloc(4000);
    memset(long_text, 'x', (size_t)shift);
    for (size_t i = (size_t)shift; i + 4 < 3900; i += 4) memcpy(long_text + i, "\xf0\x9f\xa6\x85", 4);
    error_set(&err, EAGLET_E_INPUT, "%s", long_text);
    size_t length = strlen(err.message);
    assert_true(length < EAGLET_ERROR_MAX && length > EAGLET_ERROR_MAX - 9);
    assert_string_equal(err.message + length - 3, "...");
    assert_int_equal((length - 3 - (size_t)shift) % 4, 0);
    free(long_text);
  }
}

static void test_error_prefix(void **state) {
  (void)state;
  struct eaglet_error err;
  error_set(&err, EAGLET_E_RESOURCE, "disk full");
  assert_int_equal(error_prefix(&err, "row %d", 7), EAGLET_E_RESOURCE);
  assert_string_equal(err.message, "row 7: disk full");
  error_set(&err, EAGLET_E_INPUT, "again: %s", err.message); /* its own message as an argument */
  assert_string_equal(err.message, "again: row 7: disk full");
}

static enum eaglet_status fails_at(int step, struct eaglet_error *err) {
  if (step == 2) FAIL(err, EAGLET_E_INPUT, "step %d", step);
  return EAGLET_OK;
}

static enum eaglet_status try_steps(int n, bool *released, struct eaglet_error *err) {
  enum eaglet_status status = EAGLET_OK;
  for (int i = 0; i < n; i++) TRY_GOTO(fails_at(i, err), release);
release:
  *released = true;
  return status;
}

static void test_try_goto_releases_and_forwards(void **state) {
  (void)state;
  struct eaglet_error err = {0};
  bool released = false;
  assert_int_equal(try_steps(2, &released, &err), EAGLET_OK);
  released = false;
  assert_int_equal(try_steps(5, &released, &err), EAGLET_E_INPUT);
  assert_true(released);
  assert_string_equal(err.message, "step 2");
}

static void test_alloc_is_zeroed_and_grow_keeps(void **state) {
  (void)state;
  char *block = memory_alloc(1000);
  for (int i = 0; i < 1000; i++) assert_int_equal(block[i], 0);
  free(block);
  int *list = NULL;
  size_t capacity = 0;
  for (int i = 0; i < 1000; i++) {
    MEMORY_GROW(list, capacity, (size_t)i + 1);
    list[i] = i;
  }
  for (int i = 0; i < 1000; i++) assert_int_equal(list[i], i);
  assert_true(capacity >= 1000 && capacity < 4000);
  free(list);
}

static void test_strings(void **state) {
  (void)state;
  char *copy = memory_copy_span("abcdef", 3), *made = memory_format("%d-%s", 12, "x");
  assert_string_equal(copy, "abc");
  assert_string_equal(made, "12-x");
  assert_null(memory_copy_string(NULL));
  free(copy);
  free(made);
}

static void test_memory_try_aligns_zeroes_and_refuses(void **state) {
  (void)state;
  for (size_t bytes = 0; bytes < 3000000; bytes = bytes * 3 + 1) {
    unsigned char *block = memory_try(bytes);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 64, 0);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(block[i], 0);
    if (bytes > 0) memset(block, 0xff, bytes);
    memory_try_free(block);
  }
  memory_try_free(NULL);
  assert_null(memory_try(SIZE_MAX));
  assert_null(memory_try(SIZE_MAX - 64));
}

static void take_too_much(void *argument) { arena_take(argument, 65); }
static void take_wrapping(void *argument) { arena_take(argument, SIZE_MAX - 8); }

static void test_arena(void **state) {
  (void)state;
  struct arena arena;
  assert_int_equal(arena_init(&arena, 1000, NULL), EAGLET_OK);
  assert_int_equal(arena.capacity, 1024);
  char *a = arena_take(&arena, 1), *b = arena_take(&arena, 895);
  assert_int_equal((uintptr_t)a % 64, 0);
  assert_ptr_equal(b, a + 64);
  assert_true(aborts(take_too_much, &arena));
  assert_true(aborts(take_wrapping, &arena));
  arena_take(&arena, 64);
  arena_reset(&arena);
  assert_int_equal(arena.used_max, 1024);
  assert_ptr_equal(arena_take(&arena, 5), a);
  arena_release(&arena);
  assert_null(arena.base);
}

static void test_arena_refusal_is_a_status(void **state) {
  (void)state;
  struct arena arena;
  struct eaglet_error err = {0};
  assert_int_equal(arena_init(&arena, SIZE_MAX / 2, &err), EAGLET_E_RESOURCE);
  assert_null(arena.base);
  assert_true(strstr(err.message, "memory") != NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_error_set_fills_and_returns),
      cmocka_unit_test(test_error_is_one_line),
      cmocka_unit_test(test_error_truncates_on_a_character),
      cmocka_unit_test(test_error_prefix),
      cmocka_unit_test(test_try_goto_releases_and_forwards),
      cmocka_unit_test(test_alloc_is_zeroed_and_grow_keeps),
      cmocka_unit_test(test_strings),
      cmocka_unit_test(test_memory_try_aligns_zeroes_and_refuses),
      cmocka_unit_test(test_arena),
      cmocka_unit_test(test_arena_refusal_is_a_status),
  };
  return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
