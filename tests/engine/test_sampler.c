/* test_sampler.c - from logits to a distribution: temperature, cuts and their ties against plain formulas; draws at the
 * edges of [0, 1). */
#include "engine/sampler.h"

#include "base/util.h"
#include "law.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define N 5

struct cut_case {
  const char *name;
  struct sampling sampling;
  float logits[N];
  double expected[N];
};

/* logits are logs of the weights 5 4 3 2 1 (over 15) in some order. */
static const struct cut_case cases[] = {
    {"temperature 1",
     {1, 0, 0},
     {1.6094379f, 1.3862944f, 1.0986123f, 0.6931472f, 0},
     {5 / 15.0, 4 / 15.0, 3 / 15.0, 2 / 15.0, 1 / 15.0}},
    {"temperature 1/2 squares",
     {0.5f, 0, 0},
     {1.6094379f, 1.3862944f, 1.0986123f, 0.6931472f, 0},
     {25 / 55.0, 16 / 55.0, 9 / 55.0, 4 / 55.0, 1 / 55.0}},
    {"top-k 2", {1, 2, 0}, {0, 0.6931472f, 1.3862944f, 1.0986123f, 1.6094379f}, {0, 0, 4 / 9.0, 0, 5 / 9.0}},
    {"top-k 1 with a tie: the lower index", {1, 1, 0}, {0, 2, 2, 1, 2}, {0, 1, 0, 0, 0}},
    {"top-k beyond the size", {1, 50, 0}, {0, 0, 0, 0, 0}, {0.2, 0.2, 0.2, 0.2, 0.2}},
    {"top-p 0.55: 5 and 4 are 9/15",
     {1, 0, 0.55f},
     {1.6094379f, 1.3862944f, 1.0986123f, 0.6931472f, 0},
     {5 / 9.0, 4 / 9.0, 0, 0, 0}},
    {"top-p below the first keeps one", {1, 0, 0.01f}, {0, 0, 3, 0, 0}, {0, 0, 1, 0, 0}},
    {"top-p 1 keeps all", {1, 0, 1}, {0, 0, 0, 0, 0}, {0.2, 0.2, 0.2, 0.2, 0.2}},
    {"top-k first, then top-p of what is left",
     {1, 3, 0.7f},
     {1.6094379f, 1.3862944f, 1.0986123f, 0.6931472f, 0},
     {5 / 9.0, 4 / 9.0, 0, 0, 0}},
    {"huge logits", {1, 0, 0}, {3e38f, -3e38f, 3e38f, 0, 0}, {0.5, 0, 0.5, 0, 0}},
    {"very cold", {1e-6f, 0, 0}, {1, 1.001f, 0, 0, 0}, {0, 1, 0, 0, 0}},
};

static void test_cuts(void **state) {
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    float values[N];
    int32_t order[N];
    memcpy(values, cases[c].logits, sizeof values);
    sampler_distribution(values, N, &cases[c].sampling, order);
    for (int i = 0; i < N; i++) {
      if (!(fabs(values[i] - cases[c].expected[i]) < 1e-6))
        fail_msg("%s: entry %d is %g, expected %g", cases[c].name, i, (double)values[i], cases[c].expected[i]);
    }
  }
}

/* Against sorting by hand, on many random rows. */
static void test_random_cuts(void **state) {
  (void)state;
  enum { WIDE = 97 };
  for (uint64_t row = 0; row < 200; row++) {
    float values[WIDE], plain[WIDE];
    int32_t order[WIDE], kept = 0;
    int32_t k = 1 + (int32_t)(random_u64(1, row, 0) % WIDE);
    float top_p = (float)random_uniform(1, row, 1);
    for (uint64_t i = 0; i < WIDE; i++) values[i] = plain[i] = (float)(4 * random_normal(2, row, i));
    const struct sampling cut = {.temperature = 0.8f, .top_k = k, .top_p = top_p}, none = {.temperature = 0.8f};
    sampler_distribution(values, WIDE, &cut, order);
    sampler_distribution(plain, WIDE, &none, order);
    double mass = 0, first_k = 0, sum = 0, least_kept = 2, most_cut = 0, before_last = 0;
    for (int i = 0; i < WIDE; i++) {
      int larger = 0;
      for (int j = 0; j < WIDE; j++) larger += plain[j] > plain[i];
      if (larger < k) first_k += plain[i];
      sum += values[i];
      kept += values[i] > 0;
      if (values[i] > 0) {
        mass += plain[i];
        least_kept = fmin(least_kept, plain[i]);
      } else {
        most_cut = fmax(most_cut, plain[i]);
      }
    }
    before_last = mass - least_kept;
    assert_true(fabs(sum - 1) < 1e-5 && kept >= 1 && kept <= k && least_kept >= most_cut);
    assert_true(kept == k || mass / first_k >= top_p - 1e-6);
    assert_true(kept == 1 || before_last / first_k < top_p + 1e-6);
  }
}

static void test_draw_edges(void **state) {
  (void)state;
  const float p[N] = {0, 0.25f, 0, 0.5f, 0.25f}, gap[N] = {0.5f, 0.4999f, 0, 0, 0};
  assert_int_equal(sampler_draw(p, N, 0), 1);
  assert_int_equal(sampler_draw(p, N, 0.2499), 1);
  assert_int_equal(sampler_draw(p, N, 0.25), 3);
  assert_int_equal(sampler_draw(p, N, 0.7499), 3);
  assert_int_equal(sampler_draw(p, N, 0.75), 4);
  assert_int_equal(sampler_draw(p, N, 1 - 0x1p-53), 4);
  assert_int_equal(sampler_draw(gap, N, 1 - 0x1p-53), 1); /* rounding left a gap: the last with mass, never index 4 */
}

static void test_draw_law(void **state) {
  (void)state;
  const double p[N] = {0.1, 0.2, 0, 0.4, 0.3};
  float values[N];
  int64_t counts[N] = {0};
  for (int i = 0; i < N; i++) values[i] = (float)p[i];
  for (uint64_t i = 0; i < 200000; i++) counts[sampler_draw(values, N, random_uniform(3, 0, i))]++;
  double chance = law_p(counts, p, N, 200000);
  printf("draws: p %.3f\n", chance);
  assert_true(chance > 0.01);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_random_cuts),
                                     cmocka_unit_test(test_draw_edges), cmocka_unit_test(test_draw_law)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
