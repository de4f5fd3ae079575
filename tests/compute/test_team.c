/* test_team.c - the threads behind inference ops: every part runs once, whoever is awake, asleep or late; teams of
 * several owners do not meet. */
#include "compute/cpu/team.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { ITEMS = 1000, THREADS = 4 };

struct counts {
  _Atomic int visits[ITEMS], parts, wrong_thread;
};

static void visit(const void *args, int64_t begin, int64_t end, int thread) {
  struct counts *counts = *(struct counts *const *)args;
  if (thread < 0 || thread >= THREADS) counts->wrong_thread++;
  for (int64_t i = begin; i < end; i++) counts->visits[i]++;
  counts->parts++;
}

static void pause_for(long nanoseconds) {
  const struct timespec time = {.tv_nsec = nanoseconds};
  nanosleep(&time, NULL);
}

/* Jobs of many shapes, back to back and after pauses that are longer than helpers spin; 0 when all is well. */
static int run_jobs(struct team *team, int n_jobs) {
  static const int32_t items[] = {0, 1, 2, 3, 17, ITEMS}, parts[] = {1, 2, 3, 8, 200};
  struct counts counts, *args = &counts;
  int bad = 0;
  for (int i = 0; i < n_jobs; i++) {
    int32_t n = items[i % 6], n_parts = parts[i % 5], expected = n_parts < n ? n_parts : n > 0 ? n : 1;
    memset(&counts, 0, sizeof counts);
    const struct team_job job = {.body = visit, .args = &args, .n = n, .n_parts = n_parts};
    team_run(team, &job);
    for (int32_t k = 0; k < ITEMS; k++) bad += counts.visits[k] != (k < n);
    bad += counts.parts != expected;
    bad += counts.wrong_thread;
    if (i % 50 == 49) pause_for(300000);
  }
  return bad;
}

static void test_every_part_once(void **state) {
  (void)state;
  struct team *team = team_create(THREADS);
  assert_int_equal(run_jobs(team, 3000), 0);
  team_free(team);
}

static void test_one_thread(void **state) {
  (void)state;
  struct team *team = team_create(1);
  struct counts counts = {.parts = 0}, *args = &counts;
  const struct team_job job = {.body = visit, .args = &args, .n = ITEMS, .n_parts = 8};
  team_run(team, &job);
  for (int k = 0; k < ITEMS; k++) assert_int_equal(counts.visits[k], 1);
  assert_int_equal(counts.parts, 1);
  team_free(team);
}

static void test_teams_end(void **state) {
  (void)state;
  team_free(NULL);
  for (int i = 0; i < 40; i++) { /* never used, just used, asleep */
    struct team *team = team_create(3);
    if (i % 4 > 0) assert_int_equal(run_jobs(team, 6), 0);
    if (i % 4 == 2) pause_for(500000);
    team_free(team);
  }
}

static void *own_team(void *bad) {
  struct team *team = team_create(THREADS);
  *(int *)bad = run_jobs(team, 1000);
  team_free(team);
  return NULL;
}

static void test_several_owners(void **state) {
  (void)state;
  enum { OWNERS = 3 };
  pthread_t owners[OWNERS];
  int bad[OWNERS];
  for (int i = 0; i < OWNERS; i++) assert_int_equal(pthread_create(&owners[i], NULL, own_team, &bad[i]), 0);
  for (int i = 0; i < OWNERS; i++) {
    pthread_join(owners[i], NULL);
    assert_int_equal(bad[i], 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_part_once),
      cmocka_unit_test(test_one_thread),
      cmocka_unit_test(test_teams_end),
      cmocka_unit_test(test_several_owners),
  };
  return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
