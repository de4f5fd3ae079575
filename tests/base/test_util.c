/* test_util.c - random numbers (frozen values, moments, independence of order, permutations), threads, environment, progress. */
#define _GNU_SOURCE /* CPU_SET */
#include "base/env.h"
#include "base/progress.h"
#include "base/util.h"
#include "support.h"

#include <math.h>
#include <omp.h>
#include <sched.h>

/* These values may never change: a resumed run must draw what the interrupted one would have drawn. */
static void test_random_is_frozen(void **state) {
  (void)state;
  static const uint64_t expected[] = {16572387071653284832ull, 15347426670602572147ull, 4354358404423140341ull};
  assert_true(random_u64(0, 0, 0) == expected[0]);
  assert_true(random_u64(1, 2, 3) == expected[1]);
  assert_true(random_u64(UINT64_MAX, UINT64_MAX, UINT64_MAX) == expected[2]);
  assert_true(random_u64(1, 2, 3) != random_u64(1, 3, 2) && random_u64(1, 2, 3) != random_u64(2, 1, 3));
}

/* 256 cells, 200,000 draws: chi-square with 255 degrees has sd 22.6; 6 sd allowed. Along counters, streams and seeds. */
static void test_random_uniform_is_even(void **state) {
  (void)state;
  for (int axis = 0; axis < 3; axis++) {
    int cells[256] = {0};
    const int n = 200000;
    double sum = 0;
    for (int i = 0; i < n; i++) {
      uint64_t u = (uint64_t)i;
      double x = random_uniform(axis == 0 ? u : 7, axis == 1 ? u : 7, axis == 2 ? u : 7);
      assert_true(x >= 0 && x < 1);
      cells[(int)(x * 256)]++;
      sum += x;
    }
    double chi = 0, expected = n / 256.0;
    for (int i = 0; i < 256; i++) chi += (cells[i] - expected) * (cells[i] - expected) / expected;
    assert_true(chi > 255 - 6 * 22.6 && chi < 255 + 6 * 22.6);
    assert_true(fabs(sum / n - 0.5) < 6 * 0.2887 / sqrt(n));
  }
}

static void test_random_normal_moments(void **state) {
  (void)state;
  const int n = 200000;
  double sum = 0, square = 0, fourth = 0, lag = 0, last = 0;
  for (int i = 0; i < n; i++) {
    double x = random_normal(3, 1, (uint64_t)i);
    assert_true(isfinite(x));
    sum += x, square += x * x, fourth += x * x * x * x, lag += x * last;
    last = x;
  }
  assert_true(fabs(sum / n) < 6 / sqrt(n));
  assert_true(fabs(square / n - 1) < 6 * sqrt(2.0 / n));
  assert_true(fabs(fourth / n - 3) < 6 * sqrt(96.0 / n));
  assert_true(fabs(lag / n) < 6 / sqrt(n));
}

static void test_permutation(void **state) {
  (void)state;
  enum { n = 1000 };
  uint32_t order[n], again[n];
  bool seen[n] = {false};
  random_permutation(order, n, 5, 0);
  random_permutation(again, n, 5, 0);
  assert_memory_equal(order, again, sizeof order);
  int fixed = 0;
  for (uint32_t i = 0; i < n; i++) {
    assert_true(order[i] < n && !seen[order[i]]);
    seen[order[i]] = true;
    fixed += order[i] == i;
  }
  assert_true(fixed < 10);
  random_permutation(again, n, 5, 1);
  assert_memory_not_equal(order, again, sizeof order);
  random_permutation(order, 0, 5, 0);
  random_permutation(order, 1, 5, 0);
  assert_int_equal(order[0], 0);
  /* All 6 orders of three come equally often: 60,000 draws, sd 91. */
  int counts[27] = {0};
  for (uint64_t seed = 0; seed < 60000; seed++) {
    random_permutation(order, 3, seed, 9);
    counts[order[0] * 9 + order[1] * 3 + order[2]]++;
  }
  for (int i = 0; i < 27; i++) assert_true(counts[i] == 0 || abs(counts[i] - 10000) < 6 * 92);
}

static void test_threads(void **state) {
  (void)state;
  int available = threads_available();
  assert_true(available >= 1 && available <= sysconf(_SC_NPROCESSORS_CONF));
  threads_set(3);
  assert_int_equal(omp_get_max_threads(), 3);
  threads_set(0);
  assert_int_equal(omp_get_max_threads(), available);
}

static void test_threads_follow_affinity(void **state) {
  (void)state;
  cpu_set_t before, one;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) core++;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  int available = threads_available();
  assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
  assert_int_equal(available, 1);
}

static void test_distance(void **state) {
  (void)state;
  assert_int_equal(text_distance("", 0, "abc", 3), 3);
  assert_int_equal(text_distance("kimi", 4, "kimi", 4), 0);
  assert_int_equal(text_distance("kmii", 4, "kimi", 4), 1); /* neighbours swapped */
  assert_int_equal(text_distance("kitten", 6, "sitting", 7), 3);
  char many[200] = {0};
  assert_int_equal(text_distance(many, sizeof many, "a", 1), TEXT_DISTANCE_MAX);
}

static void test_time_goes_forward(void **state) {
  (void)state;
  double start = time_now();
  usleep(2000);
  double elapsed = time_now() - start;
  assert_true(elapsed >= 0.002 && elapsed < 60);
}

static void test_env_hub_cache(void **state) {
  (void)state;
  static const struct {
    const char *values[5], *expected;
  } cases[] = {
      {{"/hub", "/old", "/home", "/xdg", "/u"}, "/hub"},
      {{NULL, "/old", "/home", "/xdg", "/u"}, "/old"},
      {{"", "", "/home/", "/xdg", "/u"}, "/home/hub"},
      {{NULL, NULL, NULL, "/xdg", "/u"}, "/xdg/huggingface/hub"},
      {{NULL, NULL, NULL, NULL, "/u"}, "/u/.cache/huggingface/hub"},
      {{NULL, NULL, NULL, NULL, NULL}, NULL},
      {{"~/hub", NULL, NULL, NULL, "/u"}, "/u/hub"},
      {{NULL, NULL, "~/hf", NULL, "/u"}, "/u/hf/hub"},
      {{"~other/hub", NULL, NULL, NULL, "/u"}, "~other/hub"},
  };
  static const char *const names[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int j = 0; j < 5; j++) {
      if (cases[i].values[j]) setenv(names[j], cases[i].values[j], 1);
      else unsetenv(names[j]);
    }
    setenv("NO_COLOR", i % 2 ? "1" : "", 1);
    setenv("COLUMNS", i == 0 ? "132" : i == 1 ? "many" : "-5", 1);
    struct env env;
    env_read(&env);
    if (cases[i].expected) assert_string_equal(env.hub_cache, cases[i].expected);
    else assert_null(env.hub_cache);
    assert_int_equal(env.no_color, i % 2);
    assert_int_equal(env.columns, i == 0 ? 132 : 80);
    env_clear(&env);
    assert_null(env.hub_cache);
  }
}

/* In a child, with stderr in a file: the end of a stage is told once, and SIGINT makes the next report false. */
static int run_progress(const char *path) {
  if (!freopen(path, "w", stderr)) return 1;
  struct progress progress;
  progress_init(&progress, false, true);
  struct eaglet_progress callbacks = progress_callbacks(&progress);
  if (!progress_report(&callbacks, "extract", "tokens", 10, 100, NULL)) return 2;
  if (!progress_report(&callbacks, "extract", "tokens", 100, 100, "loss 2.5")) return 3;
  if (!progress_report(&callbacks, "extract", "tokens", 100, 100, NULL)) return 4;
  raise(SIGINT);
  if (progress_signal() != SIGINT) return 5;
  if (progress_report(&callbacks, "train", "steps", 1, 0, NULL)) return 6;
  progress_finish(&progress);
  fflush(stderr);
  raise(SIGTERM); /* the second signal kills */
  return 7;
}

static void test_progress(void **state) {
  char *path = file_join(*state, "stderr");
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) _exit(run_progress(path));
  int how = 0;
  waitpid(child, &how, 0);
  assert_false(WIFEXITED(how));
  assert_int_equal(WTERMSIG(how), SIGTERM);
  struct eaglet_text text;
  assert_int_equal(file_read(&text, path, 10000, NULL), EAGLET_OK);
  assert_memory_equal(text.data, "extract: 100/100 tokens, ", 25);
  assert_non_null(strstr(text.data, " tokens/s, took 0:00, loss 2.5\n"));
  assert_int_equal(strcspn(text.data, "\n") + 1, text.length);
  free(text.data);
  free(path);
  const struct eaglet_progress none = {0};
  assert_true(progress_report(&none, "s", "u", 1, 2, NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_is_frozen),
      cmocka_unit_test(test_random_uniform_is_even),
      cmocka_unit_test(test_random_normal_moments),
      cmocka_unit_test(test_permutation),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_threads_follow_affinity),
      cmocka_unit_test(test_time_goes_forward),
      cmocka_unit_test(test_distance),
      cmocka_unit_test(test_env_hub_cache),
      cmocka_unit_test(test_progress),
  };
  return cmocka_run_group_tests_name("util", tests, scratch_create, scratch_remove);
}
