/* test_hash_set.c - against a plain list: members, strangers, zero, growth, and hashes that share their low bits. */
#include "support.h"

#include "base/hash_set.h"
#include "base/util.h"

static void test_members(void **state) {
  (void)state;
  struct hash_set set = {0};
  assert_false(hash_set_has(&set, 1));
  assert_false(hash_set_has(&set, 0));
  for (uint64_t i = 0; i < 5000; i++) {
    uint64_t hash = i % 2 ? random_u64(1, 2, i) : i << 32; /* half of them differ in the high bits only; the first is 0 */
    assert_true(hash_set_insert(&set, hash));
    assert_false(hash_set_insert(&set, hash));
  }
  for (uint64_t i = 0; i < 5000; i++) {
    assert_true(hash_set_has(&set, i % 2 ? random_u64(1, 2, i) : i << 32));
    assert_false(hash_set_has(&set, random_u64(3, 4, i)));
  }
  assert_int_equal(set.n, 4999); /* and zero */
  hash_set_release(&set);
  assert_false(hash_set_has(&set, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_members)};
  return cmocka_run_group_tests_name("hash_set", tests, NULL, NULL);
}
