/* test_supervision.c - which slots learn at which step (F07), against a rule written the other way round, and the
 * learning rate of every step. */
#include "train/schedule.h"
#include "train/supervision.h"

#include "base/util.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_MAX = 64 };

/* Straight from the words: slot t learns at step k iff every token that the roll-out is fed, x_{t+1} .. x_{t+1+k}, and
 * the token it predicts, x_{t+2+k}, belong to one reply. */
static bool learns(const uint8_t *mask, int32_t n, int32_t t, int32_t k) {
  for (int32_t i = t + 1; i <= t + 2 + k; i++) {
    if (i >= n || !mask[i]) return false;
  }
  return true;
}

/* The rule as head_training applies it. */
static bool marked(const uint8_t *loss_mask, const int32_t *reply_begin, int32_t n_slots, const int32_t slot_step[2]) {
  int32_t t = slot_step[0], end = t + slot_step[1];
  return end < n_slots && loss_mask[end] && t >= reply_begin[end];
}

static void check_mask(const uint8_t *mask, int32_t n) {
  uint8_t loss_mask[N_MAX];
  int32_t reply_begin[N_MAX], n_slots = supervision_slots(&(struct supervised_row){.mask = mask, .n_tokens = n});
  int64_t counts[7] = {0};
  assert_true(n_slots >= 0 && (n_slots == 0 || n_slots <= n - 2));
  const struct supervised_row row = {.mask = mask, .n_tokens = n};
  supervision_fill(loss_mask, reply_begin, &row, n_slots);
  supervision_count(counts, 7, &row);
  for (int32_t k = 0; k < 7; k++) {
    int64_t expected = 0;
    for (int32_t t = 0; t < n; t++) {
      assert_int_equal(learns(mask, n, t, k),
                       t < n_slots && marked(loss_mask, reply_begin, n_slots, (const int32_t[]){t, k}));
      expected += learns(mask, n, t, k);
    }
    assert_int_equal(counts[k], expected);
  }
}

/* The case of the bug list: ten tokens, the reply is tokens 6..8 (8 ends the turn). Slot 5 predicts token 7, slot 6
 * token 8, nothing else. */
static void test_row_of_ten(void **state) {
  (void)state;
  const uint8_t mask[10] = {0, 0, 0, 0, 0, 0, 1, 1, 1, 0};
  uint8_t loss_mask[10];
  int32_t reply_begin[10];
  int64_t counts[3] = {0};
  const struct supervised_row row = {.mask = mask, .n_tokens = 10};
  assert_int_equal(supervision_slots(&row), 7);
  supervision_fill(loss_mask, reply_begin, &row, 7);
  const uint8_t expected[7] = {0, 0, 0, 0, 0, 1, 1};
  assert_memory_equal(loss_mask, expected, 7);
  assert_int_equal(reply_begin[5], 5);
  assert_int_equal(reply_begin[6], 5);
  supervision_count(counts, 3, &row);
  assert_int_equal(counts[0], 2); /* slots 5, 6 */
  assert_int_equal(counts[1], 1); /* slot 5 */
  assert_int_equal(counts[2], 0);
  check_mask(mask, 10);
}

static void test_edges(void **state) {
  (void)state;
  static const char *const rows[] = {"",     "1",   "11",    "111",     "0",       "01",     "011",
                                     "0110", "010", "01010", "1111111", "0111011", "110011", "0011111111111"};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint8_t mask[N_MAX];
    int32_t n = (int32_t)strlen(rows[i]);
    for (int32_t t = 0; t < n; t++) mask[t] = rows[i][t] == '1';
    check_mask(mask, n);
  }
  const uint8_t single[3] = {0, 1, 0};
  assert_int_equal(supervision_slots(&(struct supervised_row){.mask = single, .n_tokens = 3}), 0); /* a reply of one token has nothing to draft */
}

static void test_random_masks(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 500; seed++) {
    uint8_t mask[N_MAX];
    int32_t n = (int32_t)(random_u64(seed, 1, 0) % N_MAX);
    for (int32_t t = 0; t < n; t++)
      mask[t] = t > 0 && random_uniform(seed, 2, (uint64_t)t) < 0.8 ? mask[t - 1]
                                                                    : random_uniform(seed, 3, (uint64_t)t) < 0.5;
    check_mask(mask, n);
  }
}

/* The rules of other trainers, in the words of supervision.h: slot t+k alone decides. */
static bool learns_there(enum eaglet_mask_rule rule, const uint8_t *mask, int32_t n, int32_t slot) {
  if (slot + 1 >= n) return false;
  if (rule == EAGLET_MASK_SPECFORGE) return mask[slot];
  if (rule == EAGLET_MASK_SPECULATORS) return mask[slot + 1];
  return slot + 2 < n && mask[slot + 1] && mask[slot + 2];
}

static void check_rule(const struct supervised_row *row) {
  uint8_t loss_mask[N_MAX];
  int32_t reply_begin[N_MAX], n = row->n_tokens, n_slots = supervision_slots(row);
  int64_t counts[7] = {0};
  assert_true(n_slots >= 0 && (n_slots == 0 || n_slots <= n - 1));
  supervision_fill(loss_mask, reply_begin, row, n_slots);
  supervision_count(counts, 7, row);
  for (int32_t k = 0; k < 7; k++) {
    int64_t expected = 0;
    for (int32_t t = 0; t < n; t++) {
      bool learns_here = learns_there(row->rule, row->mask, n, t + k);
      assert_int_equal(learns_here, t < n_slots && marked(loss_mask, reply_begin, n_slots, (const int32_t[]){t, k}));
      expected += learns_here;
    }
    assert_int_equal(counts[k], expected);
  }
}

static void test_rules_of_others(void **state) {
  (void)state;
  const uint8_t mask[10] = {0, 0, 0, 0, 0, 0, 1, 1, 1, 0}; /* P = 6, E = 8 */
  const int32_t last[] = {[EAGLET_MASK_EAGLE] = 6, [EAGLET_MASK_SPECFORGE] = 8, [EAGLET_MASK_SPECULATORS] = 7};
  for (int rule = EAGLET_MASK_EAGLE; rule <= EAGLET_MASK_SPECULATORS; rule++) {
    struct supervised_row row = {.mask = mask, .n_tokens = 10, .rule = (enum eaglet_mask_rule)rule};
    assert_int_equal(supervision_slots(&row), last[rule] + 1);
    check_rule(&row);
    for (uint64_t seed = 0; seed < 100; seed++) {
      uint8_t random[N_MAX];
      row.n_tokens = (int32_t)(random_u64(seed, 1, 1) % N_MAX);
      for (int32_t t = 0; t < row.n_tokens; t++) random[t] = random_uniform(seed, 2, (uint64_t)t) < 0.6;
      row.mask = random;
      check_rule(&row);
    }
  }
}

static void test_schedules(void **state) {
  (void)state;
  struct schedule s = {.kind = EAGLET_SCHEDULE_WSD, .lr = 1e-3, .lr_min = 1e-4, .decay_share = 0.2, .warmup = 50, .total = 1000};
  assert_true(fabs(schedule_lr(&s, 10) - 2e-4) < 1e-15);
  for (int64_t step = 50; step <= 800; step++) assert_true(schedule_lr(&s, step) == 1e-3);
  for (int64_t step = 801; step <= 1000; step++) assert_true(schedule_lr(&s, step) < schedule_lr(&s, step - 1));
  assert_true(fabs(schedule_lr(&s, 1000) - (1e-3 - 9e-4 * 200 / 201)) < 1e-15); /* 1e-4 would be step 1001 */
  s.decay_share = 1; /* falls from the end of the warm-up on */
  assert_true(schedule_lr(&s, 50) == 1e-3 && schedule_lr(&s, 51) < 1e-3 && schedule_lr(&s, 1000) > 1e-4);
  s.kind = EAGLET_SCHEDULE_CONSTANT;
  assert_true(schedule_lr(&s, 25) == 5e-4 && schedule_lr(&s, 51) == 1e-3 && schedule_lr(&s, 1000) == 1e-3);
  s.kind = EAGLET_SCHEDULE_COSINE;
  for (int64_t step = 51; step <= 1000; step++) assert_true(schedule_lr(&s, step) < schedule_lr(&s, step - 1));
  assert_true(schedule_lr(&s, 1000) > 1e-4 && schedule_lr(&s, 1000) < 1.0001e-4);
}

static void test_schedule(void **state) {
  (void)state;
  const struct schedule s = {.lr = 2e-3, .warmup = 50, .total = 1500};
  assert_true(fabs(schedule_lr(&s, 1) - 2e-3 / 50) < 1e-12);
  assert_true(schedule_lr(&s, 50) == 2e-3);
  for (int64_t step = 2; step <= 1500; step++)
    assert_true(step <= 50 ? schedule_lr(&s, step) > schedule_lr(&s, step - 1)
                           : schedule_lr(&s, step) < schedule_lr(&s, step - 1));
  assert_true(fabs(schedule_lr(&s, 50 + 1451 / 2) - 1e-3) < 2e-6);
  assert_true(schedule_lr(&s, 1500) > 0 && schedule_lr(&s, 1500) < 1e-8);
  const struct schedule brief = {.lr = 1, .warmup = 50, .total = 3}; /* ends inside the warm-up */
  assert_true(fabs(schedule_lr(&brief, 3) - 3.0 / 50) < 1e-12);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_row_of_ten), cmocka_unit_test(test_edges),
                                     cmocka_unit_test(test_random_masks), cmocka_unit_test(test_rules_of_others),
                                     cmocka_unit_test(test_schedule), cmocka_unit_test(test_schedules)};
  return cmocka_run_group_tests_name("supervision", tests, NULL, NULL);
}
