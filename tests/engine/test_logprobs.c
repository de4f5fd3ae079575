/* test_logprobs.c - log-probabilities against sums in long double, ranks and order against counting, ties and rows in
 * which little or nothing has a chance. */
#include "engine/logprobs.h"

#include "base/memory.h"
#include "base/util.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static double plain_logprob(const float *logits, int32_t n, int32_t token) {
  long double sum = 0;
  for (int32_t i = 0; i < n; i++) sum += expl((long double)logits[i] - (long double)logits[token]);
  return (double)-logl(sum);
}

static int32_t plain_rank(const float *logits, int32_t n, int32_t token) {
  int32_t rank = 1;
  for (int32_t i = 0; i < n; i++) rank += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
  return rank;
}

/* steps: multiples of 1/2, so that most have equals. */
static void test_random_rows(void **state) {
  (void)state;
  enum { WIDE = 500, TOP = 20 };
  float logits[WIDE];
  for (uint64_t row = 0; row < 200; row++) {
    struct eaglet_token_logprob found[1 + TOP];
    int32_t n = 1 + (int32_t)(random_u64(1, row, 0) % WIDE), token = (int32_t)(random_u64(1, row, 1) % (uint64_t)n),
            n_top = (int32_t)(random_u64(1, row, 2) % (TOP + 1));
    for (int32_t i = 0; i < n; i++) {
      logits[i] = 5 * (float)random_normal(2, row, (uint64_t)i);
      if (row % 2) logits[i] = roundf(2 * logits[i]) / 2;
    }
    int32_t written = logprobs_of(found, logits, n, token, n_top);
    assert_int_equal(written, 1 + (n_top < n ? n_top : n));
    assert_int_equal(found[0].token, token);
    for (int32_t i = 0; i < written; i++) {
      assert_int_equal(found[i].rank, plain_rank(logits, n, found[i].token));
      assert_true(i == 0 || found[i].rank == i);
      assert_true(fabs((double)found[i].logprob - plain_logprob(logits, n, found[i].token)) < 2e-6);
    }
  }
}

/* A vocabulary of today's size: the probabilities of all tokens sum to 1, to double's precision times its size. */
static void test_wide_row(void **state) {
  (void)state;
  enum { VOCABULARY = 160000 };
  float *logits = memory_alloc(VOCABULARY * sizeof *logits);
  struct eaglet_token_logprob found[21];
  for (uint64_t i = 0; i < VOCABULARY; i++) logits[i] = 3 * (float)random_normal(4, 0, i);
  assert_int_equal(logprobs_of(found, logits, VOCABULARY, 77, 20), 21);
  assert_int_equal(found[0].rank, plain_rank(logits, VOCABULARY, 77));
  for (int i = 0; i < 21; i++)
    assert_true(fabs((double)found[i].logprob - plain_logprob(logits, VOCABULARY, found[i].token)) < 2e-6);
  for (int i = 1; i <= 20; i++) assert_int_equal(plain_rank(logits, VOCABULARY, found[i].token), i);
  free(logits);
}

static void test_ties(void **state) {
  (void)state;
  const float row[6] = {1, 2, 2, 0, 2, 1};
  struct eaglet_token_logprob found[5];
  assert_int_equal(logprobs_of(found, row, 6, 4, 4), 5);
  static const int32_t tokens[] = {4, 1, 2, 4, 0}, ranks[] = {3, 1, 2, 3, 4};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(found[i].token, tokens[i]);
    assert_int_equal(found[i].rank, ranks[i]);
  }
  assert_int_equal(logprobs_of(found, row, 6, 5, 0), 1);
  assert_int_equal(found[0].rank, 5);
}

static void test_little_chance(void **state) {
  (void)state;
  const float one[5] = {-INFINITY, -INFINITY, -4, NAN, -INFINITY}, none[3] = {-INFINITY, -INFINITY, -INFINITY},
              far[3] = {3e38f, -3e38f, 0};
  struct eaglet_token_logprob found[6];
  assert_int_equal(logprobs_of(found, one, 5, 2, 5), 2);
  assert_true(found[0].logprob == 0 && found[0].rank == 1);
  assert_true(found[1].token == 2 && found[1].logprob == 0 && found[1].rank == 1);
  assert_int_equal(logprobs_of(found, one, 5, 1, 1), 2);
  assert_true(found[0].logprob == -INFINITY && found[0].rank == 3);
  assert_int_equal(logprobs_of(found, one, 5, 3, 0), 1);
  assert_true(found[0].token == 3 && found[0].logprob == -INFINITY);
  assert_int_equal(logprobs_of(found, none, 3, 1, 3), 1);
  assert_true(found[0].logprob == -INFINITY && found[0].rank == 2);
  assert_int_equal(logprobs_of(found, far, 3, 0, 3), 4);
  assert_true(found[0].logprob == 0 && found[2].token == 2 && found[2].logprob == -3e38f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_rows), cmocka_unit_test(test_wide_row),
                                     cmocka_unit_test(test_ties), cmocka_unit_test(test_little_chance)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
