/* test_sampler.c - from logits to a choice. Distributions against one computed plainly in double (sort, then cut), on
 * tables of edges and on random rows with and without ties; penalties against numbers computed by hand; refusals by
 * name; the law of draws. */
#include "engine/sampler.h"

#include "base/memory.h"
#include "base/util.h"
#include "law.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N 5

/* ---- distributions ---- */

struct ranked {
  double logit;
  int32_t index;
};

static int by_logit(const void *a, const void *b) {
  const struct ranked *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

/* By the words of vLLM's documentation: temperature, min-p, top-k, top-p, softmax of what is left. */
static void plain_distribution(double *out, const float *logits, int32_t n, const struct sampling *s) {
  struct ranked *row = memory_alloc((size_t)n * sizeof *row);
  double *weight = memory_alloc((size_t)n * sizeof *weight), sum = 0, mass = 0, kept_mass = 0;
  int32_t kept = 0;
  for (int32_t i = 0; i < n; i++) row[i] = (struct ranked){(double)logits[i], i};
  qsort(row, (size_t)n, sizeof *row, by_logit);
  for (int32_t r = 0; r < n; r++) {
    weight[r] = exp((row[r].logit - row[0].logit) / (double)s->temperature);
    if (weight[r] < (double)s->min_p || (s->top_k > 0 && r >= s->top_k)) weight[r] = 0;
    sum += weight[r];
  }
  double p = s->top_p > 0 ? (double)s->top_p : 1;
  for (; kept < n && (kept == 0 || p == 1 || mass < p * sum); kept++) mass += weight[kept];
  for (int32_t r = 0; r < kept; r++) kept_mass += weight[r];
  for (int32_t r = 0; r < n; r++) out[row[r].index] = r < kept ? weight[r] / kept_mass : 0;
  free(row);
  free(weight);
}

static void expect_distribution(const char *name, const float *logits, int32_t n, const struct sampling *s,
                                const double *expected) {
  float *values = memory_alloc((size_t)n * sizeof *values);
  int32_t *order = memory_alloc((size_t)n * sizeof *order);
  memcpy(values, logits, (size_t)n * sizeof *values);
  sampler_distribution(values, n, s, order);
  for (int32_t i = 0; i < n; i++) {
    bool same = fabs((double)values[i] - expected[i]) < 1e-6 && (expected[i] > 0 || values[i] == 0);
    if (!same) fail_msg("%s: entry %d of %d is %g, expected %g", name, i, n, (double)values[i], expected[i]);
    if (expected[i] > 1e-30 && !(fabs((double)values[i] / expected[i] - 1) < 1e-5))
      fail_msg("%s: entry %d of %d is %g, expected %g", name, i, n, (double)values[i], expected[i]);
  }
  free(values);
  free(order);
}

/* logs of 5 4 3 2 1, whose sum is 15 */
#define LOGS                                                                                                           \
  { 1.6094379f, 1.3862944f, 1.0986123f, 0.6931472f, 0 }
#define NONE (-INFINITY)

static const struct {
  const char *name;
  struct sampling sampling;
  float logits[N];
  double expected[N];
} cases[] = {
    {"temperature 1", {.temperature = 1}, LOGS, {5 / 15.0, 4 / 15.0, 3 / 15.0, 2 / 15.0, 1 / 15.0}},
    {"temperature 1/2 squares", {.temperature = 0.5f}, LOGS, {25 / 55.0, 16 / 55.0, 9 / 55.0, 4 / 55.0, 1 / 55.0}},
    {"top-k 2",
     {.temperature = 1, .top_k = 2},
     {0, 0.6931472f, 1.3862944f, 1.0986123f, 1.6094379f},
     {0, 0, 4 / 9.0, 0, 5 / 9.0}},
    {"top-k 1 with a tie: the lower index", {.temperature = 1, .top_k = 1}, {0, 2, 2, 1, 2}, {0, 1, 0, 0, 0}},
    {"top-k 2 with a tie", {.temperature = 1, .top_k = 2}, {0, 2, 1, 2, 2}, {0, 0.5, 0, 0.5, 0}},
    {"top-k with zeros of both signs", {.temperature = 1, .top_k = 1}, {-1, -0.0f, 0, -2, 0}, {0, 1, 0, 0, 0}},
    {"top-k beyond the size", {.temperature = 1, .top_k = 50}, {0, 0, 0, 0, 0}, {0.2, 0.2, 0.2, 0.2, 0.2}},
    {"top-k beyond what has a chance", {.temperature = 1, .top_k = 3}, {NONE, 1, NONE, 1, NONE}, {0, 0.5, 0, 0.5, 0}},
    {"top-p 0.55: 5 and 4 are 9/15", {.temperature = 1, .top_p = 0.55f}, LOGS, {5 / 9.0, 4 / 9.0, 0, 0, 0}},
    {"top-p of a half keeps the crossing one", {.temperature = 1, .top_p = 0.4f}, LOGS, {5 / 9.0, 4 / 9.0, 0, 0, 0}},
    {"top-p reached exactly", {.temperature = 1, .top_p = 0.5f}, {3, 3, 3, 3, NONE}, {0.5, 0.5, 0, 0, 0}},
    {"top-p below the first keeps one", {.temperature = 1, .top_p = 0.01f}, {0, 0, 3, 0, 0}, {0, 0, 1, 0, 0}},
    {"smallest top-p, all equal", {.temperature = 1, .top_p = 1e-45f}, {2, 2, 2, 2, 2}, {1, 0, 0, 0, 0}},
    {"top-p just below 1", {.temperature = 1, .top_p = 0.9999999f}, {0, 0, 0, 0, 0}, {0.2, 0.2, 0.2, 0.2, 0.2}},
    {"top-p 1 keeps all", {.temperature = 1, .top_p = 1}, {0, 0, 0, 0, 0}, {0.2, 0.2, 0.2, 0.2, 0.2}},
    {"top-k first, then top-p of what is left",
     {.temperature = 1, .top_k = 3, .top_p = 0.7f},
     LOGS,
     {5 / 9.0, 4 / 9.0, 0, 0, 0}},
    {"min-p 0.5: at least 2.5", {.temperature = 1, .min_p = 0.5f}, LOGS, {5 / 12.0, 4 / 12.0, 3 / 12.0, 0, 0}},
    {"min-p after the temperature: squares of at least 12.5",
     {.temperature = 0.5f, .min_p = 0.5f},
     LOGS,
     {25 / 41.0, 16 / 41.0, 0, 0, 0}},
    {"min-p 1 keeps the best and its equals", {.temperature = 7, .min_p = 1}, {1, 3, 2.99f, 3, 0}, {0, 0.5, 0, 0.5, 0}},
    {"min-p before top-p: 0.7 of 12",
     {.temperature = 1, .min_p = 0.5f, .top_p = 0.7f},
     LOGS,
     {5 / 9.0, 4 / 9.0, 0, 0, 0}},
    {"min-p and top-k: the shorter head",
     {.temperature = 1, .top_k = 4, .min_p = 0.7f},
     LOGS,
     {5 / 9.0, 4 / 9.0, 0, 0, 0}},
    {"one has a chance", {.temperature = 1, .top_k = 4, .top_p = 0.9f}, {NONE, NONE, -7, NONE, NONE}, {0, 0, 1, 0, 0}},
    {"none has a chance", {.temperature = 1, .top_k = 2, .top_p = 0.9f}, {NONE, NONE, NONE, NONE, NONE}, {0}},
    {"huge logits", {.temperature = 1}, {3e38f, -3e38f, 3e38f, 0, 0}, {0.5, 0, 0.5, 0, 0}},
    {"infinite logits", {.temperature = 1, .top_k = 3}, {INFINITY, 0, INFINITY, NONE, 3e38f}, {0.5, 0, 0.5, 0, 0}},
    {"no numbers", {.temperature = 1, .top_k = 2, .top_p = 0.9f}, {NAN, 1, -NAN, 1, 0}, {0, 0.5, 0, 0.5, 0}},
    {"very cold", {.temperature = 1e-6f}, {1, 1.001f, 0, 0, 0}, {0, 1, 0, 0, 0}},
    {"coldest", {.temperature = 1e-45f, .top_p = 0.9f}, {1, 1.0000001f, 0, 0, 0}, {0, 1, 0, 0, 0}},
    {"very hot", {.temperature = 3e38f}, {50, -50, 0, 3, 9}, {0.2, 0.2, 0.2, 0.2, 0.2}},
    {"temperature 0 is the best, ties lowest", {.temperature = 0, .min_p = 0.1f}, {1, 3, 2, 3, 0}, {0, 1, 0, 0, 0}},
    {"temperature 0, none has a chance", {.temperature = 0}, {NONE, NONE, NONE, NONE, NAN}, {0}},
};

static void test_cuts(void **state) {
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    expect_distribution(cases[c].name, cases[c].logits, N, &cases[c].sampling, cases[c].expected);
}

/* Rows of many widths and shapes; steps: logits are multiples of 1/2, so that most have equals. */
static void random_row(float *logits, int32_t n, uint64_t row, bool steps) {
  float scale = (float[]){0.01f, 1, 4, 20}[row % 4];
  for (int32_t i = 0; i < n; i++) {
    float value = scale * (float)random_normal(2, row, (uint64_t)i);
    logits[i] = steps ? roundf(2 * value) / 2 : value;
    if (row % 5 == 0 && i % 3 == 0) logits[i] = -INFINITY;
  }
  logits[n / 2] = 0;
}

static void test_random_rows(void **state) {
  (void)state;
  enum { WIDE = 3001 };
  float *logits = memory_alloc(WIDE * sizeof *logits);
  double *expected = memory_alloc(WIDE * sizeof *expected);
  for (uint64_t row = 0; row < 600; row++) {
    int32_t n = 1 + (int32_t)(random_u64(1, row, 0) % (row % 3 == 0 ? WIDE : 60));
    uint64_t kind = random_u64(1, row, 1);
    struct sampling s = {.temperature = 0.2f + 2 * (float)random_uniform(1, row, 2)};
    if (kind & 1) s.top_k = 1 + (int32_t)(random_u64(1, row, 3) % (uint64_t)n);
    if (kind & 2) s.top_p = (float)random_uniform(1, row, 4);
    if (kind & 4) s.min_p = 0.2f * (float)random_uniform(1, row, 5);
    char name[64];
    snprintf(name, sizeof name, "row %llu (k %d, p %g, min-p %g)", (unsigned long long)row, s.top_k, (double)s.top_p,
             (double)s.min_p);
    random_row(logits, n, row, kind & 8);
    plain_distribution(expected, logits, n, &s);
    expect_distribution(name, logits, n, &s, expected);
  }
  free(logits);
  free(expected);
}

/* A vocabulary of today's size, once peaked and once all but flat. */
static void test_wide_rows(void **state) {
  (void)state;
  enum { VOCABULARY = 160001 };
  static const struct sampling kinds[] = {{.temperature = 1},
                                          {.temperature = 1, .top_k = 50},
                                          {.temperature = 1, .top_p = 0.95f},
                                          {.temperature = 0.7f, .top_k = 1000, .top_p = 0.9f, .min_p = 0.01f}};
  float *logits = memory_alloc(VOCABULARY * sizeof *logits);
  double *expected = memory_alloc(VOCABULARY * sizeof *expected);
  for (uint64_t scale = 0; scale < 2; scale++) {
    for (uint64_t i = 0; i < VOCABULARY; i++) logits[i] = (float)random_normal(5, 0, i) * (scale ? 3 : 1e-3f);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      plain_distribution(expected, logits, VOCABULARY, &kinds[k]);
      expect_distribution(scale ? "peaked" : "flat", logits, VOCABULARY, &kinds[k], expected);
    }
  }
  free(logits);
  free(expected);
}

/* ---- choices ---- */

static void test_best(void **state) {
  (void)state;
  float row[40];
  for (int i = 0; i < 40; i++) row[i] = -INFINITY;
  assert_int_equal(sampler_best(row, 40), -1);
  assert_int_equal(sampler_best(row, 0), -1);
  row[39] = -3e38f;
  assert_int_equal(sampler_best(row, 40), 39);
  row[17] = row[33] = 2;
  assert_int_equal(sampler_best(row, 40), 17);
  row[3] = NAN;
  assert_int_equal(sampler_best(row, 40), 17);
  row[38] = INFINITY;
  assert_int_equal(sampler_best(row, 40), 38);
}

static void test_draw_edges(void **state) {
  (void)state;
  const float p[N] = {0, 0.25f, 0, 0.5f, 0.25f}, gap[N] = {0.5f, 0.4999f, 0, 0, 0}, none[N] = {0};
  assert_int_equal(sampler_draw(p, N, 0), 1);
  assert_int_equal(sampler_draw(p, N, 0.2499), 1);
  assert_int_equal(sampler_draw(p, N, 0.25), 3);
  assert_int_equal(sampler_draw(p, N, 0.7499), 3);
  assert_int_equal(sampler_draw(p, N, 0.75), 4);
  assert_int_equal(sampler_draw(p, N, 1 - 0x1p-53), 4);
  assert_int_equal(sampler_draw(gap, N, 1 - 0x1p-53), 1); /* rounding left a gap: the last with mass, never index 4 */
  assert_int_equal(sampler_draw(none, N, 0), -1);
}

/* Draws from logits through every stage, against probabilities computed plainly. */
static void test_draw_law(void **state) {
  (void)state;
  enum { WIDE = 40, DRAWS = 200000 };
  static const struct sampling kinds[] = {{.temperature = 1},
                                          {.temperature = 1.7f, .top_k = 12},
                                          {.temperature = 0.3f, .top_p = 0.8f},
                                          {.temperature = 1.5f, .min_p = 0.2f},
                                          {.temperature = 1.3f, .top_k = 20, .top_p = 0.9f, .min_p = 0.05f}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    float logits[WIDE];
    double expected[WIDE];
    int32_t order[WIDE];
    int64_t counts[WIDE] = {0};
    for (uint64_t i = 0; i < WIDE; i++) logits[i] = (float)random_normal(6, k, i);
    plain_distribution(expected, logits, WIDE, &kinds[k]);
    sampler_distribution(logits, WIDE, &kinds[k], order);
    for (uint64_t i = 0; i < DRAWS; i++) counts[sampler_draw(logits, WIDE, random_uniform(3, k, i))]++;
    double chance = law_p(counts, expected, WIDE, DRAWS);
    printf("draws of kind %zu: p %.3f\n", k, chance);
    assert_true(chance > 0.01);
  }
}

/* ---- a sequence's sampler ---- */

static struct sampler *sampler_of(struct sampling s, int32_t n_vocab) {
  struct sampler *sampler;
  struct eaglet_error err = {0};
  if (sampler_create(&sampler, &s, n_vocab, &err) != EAGLET_OK) fail_msg("%s", err.message);
  return sampler;
}

static void expect_row(const float *found, const float *expected, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    bool same = found[i] == expected[i] || fabsf(found[i] - expected[i]) < 1e-6f;
    if (!same) fail_msg("logit %d is %g, expected %g", i, (double)found[i], (double)expected[i]);
  }
}

static void test_raw(void **state) {
  (void)state;
  const struct {
    struct sampling sampling;
    bool raw;
  } kinds[] = {
      {{0}, true},
      {{.temperature = 1, .top_k = 3, .top_p = 0.5f, .min_p = 0.1f}, true},
      {{.repetition_penalty = 1, .top_p = 1}, true},
      {{.repetition_penalty = 1.1f}, false},
      {{.frequency_penalty = -0.1f}, false},
      {{.presence_penalty = 0.1f}, false},
      {{.bias = (const struct eaglet_logit_bias[]){{3, 1}}, .n_bias = 1}, false},
  };
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct sampler *s = sampler_of(kinds[k].sampling, N);
    float row[N] = {1, -2, 3, 0, 5}, same[N] = {1, -2, 3, 0, 5};
    assert_int_equal(sampler_is_raw(s), kinds[k].raw);
    assert_int_equal(sampler_sampling(s)->top_k, kinds[k].sampling.top_k);
    if (kinds[k].raw) {
      sampler_note(s, 0, false);
      sampler_note(s, 1, true);
      sampler_process(s, row, NULL, NULL, 0);
      assert_memory_equal(row, same, sizeof row);
    }
    sampler_free(s);
  }
  sampler_free(NULL);
}

/* Tokens 0 and 1 in the prompt (1 twice), 1 and 2 in the output (2 three times). */
static void test_penalties(void **state) {
  (void)state;
  static const struct {
    struct sampling sampling;
    float expected[N];
  } kinds[] = {
      {{.repetition_penalty = 2}, {2, -6, 1, -1, 6}},
      {{.repetition_penalty = 0.5f}, {8, -1.5f, 4, -1, 6}},
      {{.frequency_penalty = 0.5f}, {4, -3.5f, 0.5f, -1, 6}},
      {{.presence_penalty = 0.5f}, {4, -3.5f, 1.5f, -1, 6}},
      {{.presence_penalty = -2}, {4, -1, 4, -1, 6}},
      {{.repetition_penalty = 2, .frequency_penalty = 1, .presence_penalty = 0.25f}, {2, -7.25f, -2.25f, -1, 6}},
  };
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct sampler *s = sampler_of(kinds[k].sampling, N);
    static const int32_t prompt[] = {0, 1, 1}, output[] = {2, 1, 2, 2};
    float row[N] = {4, -3, 2, -1, 6};
    for (int i = 0; i < 3; i++) sampler_note(s, prompt[i], false);
    for (int i = 0; i < 4; i++) sampler_note(s, output[i], true);
    sampler_process(s, row, NULL, NULL, 0);
    expect_row(row, kinds[k].expected, N);
    sampler_free(s);
  }
}

/* Before anything is noted penalties change nothing; each note counts from then on. Ids on both sides of a word. */
static void test_notes(void **state) {
  (void)state;
  enum { WIDE = 130 };
  struct sampler *s = sampler_of((struct sampling){.frequency_penalty = 1}, WIDE);
  static const int32_t ids[] = {0, 63, 64, 127, 128, 129};
  for (int round = 0; round < 4; round++) {
    float row[WIDE], expected[WIDE];
    for (int i = 0; i < WIDE; i++) row[i] = expected[i] = (float)i;
    for (int i = 0; i < 6; i++) expected[ids[i]] -= (float)round;
    sampler_process(s, row, NULL, NULL, 0);
    expect_row(row, expected, WIDE);
    for (int i = 0; i < 6; i++) sampler_note(s, ids[i], true);
  }
  sampler_free(s);
}

/* Allowed ids, bans, bias, then penalties: a bias joins before a repetition penalty divides; nothing brings back what
 * was masked. */
static void test_masks(void **state) {
  (void)state;
  struct eaglet_logit_bias bias[] = {{4, 100}, {1, -1}, {0, 2}, {3, -INFINITY}};
  struct sampler *s = sampler_of((struct sampling){.repetition_penalty = 2, .bias = bias, .n_bias = 4}, N);
  const int32_t banned[] = {4};
  const uint32_t allowed[] = {1u << 0 | 1u << 1 | 1u << 3 | 1u << 4};
  float row[N] = {1, 2, 9, 7, 8}, expected[N] = {1.5f, 1, -INFINITY, -INFINITY, -INFINITY};
  memset(bias, 0, sizeof bias); /* it keeps a copy */
  sampler_note(s, 0, false);
  sampler_note(s, 2, true);
  sampler_process(s, row, allowed, banned, 1);
  expect_row(row, expected, N);
  sampler_free(s);
  enum { WIDE = 100 };
  s = sampler_of((struct sampling){0}, WIDE);
  float wide[WIDE], wide_expected[WIDE];
  const uint32_t words[] = {UINT32_MAX, 0, 0x80000001u, 0x8u};
  for (int i = 0; i < WIDE; i++) {
    wide[i] = (float)i;
    wide_expected[i] = i < 32 || i == 64 || i == 95 || i == 99 ? (float)i : -INFINITY;
  }
  sampler_process(s, wide, words, NULL, 0);
  expect_row(wide, wide_expected, WIDE);
  assert_int_equal(sampler_best(wide, WIDE), 99);
  sampler_free(s);
}

static void test_refusals(void **state) {
  (void)state;
  const struct {
    struct sampling sampling;
    const char *words;
  } kinds[] = {
      {{.temperature = NAN}, "temperature nan: expected 0 to 100"},
      {{.temperature = -1}, "temperature -1"},
      {{.temperature = INFINITY}, "temperature inf"},
      {{.top_k = -1}, "top-k -1: expected 0 or more"},
      {{.top_p = NAN}, "top-p nan"},
      {{.top_p = 1.5f}, "top-p 1.5: expected 0 to 1"},
      {{.min_p = -0.5f}, "min-p -0.5: expected 0 to 1"},
      {{.min_p = NAN}, "min-p nan"},
      {{.repetition_penalty = -1}, "repetition penalty -1"},
      {{.repetition_penalty = INFINITY}, "repetition penalty inf"},
      {{.repetition_penalty = NAN}, "repetition penalty nan"},
      {{.frequency_penalty = 2.5f}, "frequency penalty 2.5: expected -2 to 2"},
      {{.presence_penalty = NAN}, "presence penalty nan"},
      {{.n_bias = -1}, "-1 logit biases"},
      {{.bias = (const struct eaglet_logit_bias[]){{1, 0}, {N, 1}}, .n_bias = 2}, "token 5: the vocabulary has 5 ids"},
      {{.bias = (const struct eaglet_logit_bias[]){{-1, 1}}, .n_bias = 1}, "token -1: the vocabulary has 5 ids"},
      {{.bias = (const struct eaglet_logit_bias[]){{2, NAN}}, .n_bias = 1}, "token 2: expected a finite number or -inf"},
      {{.bias = (const struct eaglet_logit_bias[]){{2, INFINITY}}, .n_bias = 1}, "token 2: expected a finite number or -inf"},
      {{.bias = (const struct eaglet_logit_bias[]){{2, 1}, {0, 1}, {2, 3}}, .n_bias = 3}, "token 2: given twice"},
  };
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct sampler *s = (struct sampler *)&s;
    struct eaglet_error err = {0};
    assert_int_equal(sampler_create(&s, &kinds[k].sampling, N, &err), EAGLET_E_USAGE);
    assert_null(s);
    if (!strstr(err.message, kinds[k].words)) fail_msg("'%s' is not in '%s'", kinds[k].words, err.message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cuts),  cmocka_unit_test(test_random_rows), cmocka_unit_test(test_wide_rows),
      cmocka_unit_test(test_best),  cmocka_unit_test(test_draw_edges),  cmocka_unit_test(test_draw_law),
      cmocka_unit_test(test_raw),   cmocka_unit_test(test_penalties),   cmocka_unit_test(test_notes),
      cmocka_unit_test(test_masks), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
