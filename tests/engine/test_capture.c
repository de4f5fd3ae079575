/* test_capture.c - teacher-forced passes over whole rows: the states of a row depend neither on its company, nor on the order, nor on where it
 * is cut into calls (D06, D07, D09); and the rest of the target, run from any captured state, gives the last state to the bit. */
#include "../data/support.h"

#include "base/util.h"
#include "engine/capture.h"

enum { ROWS = 6, LONGEST = 130, LAYERS = 8, HIDDEN = 320 };
static const int32_t lengths[ROWS] = {3, 50, 17, 50, 130, 100}; /* two alike; the last two begin alike, one is the other's beginning */

struct target {
  struct compute *compute;
  struct model *model;
  int32_t ids[ROWS][LONGEST];
  float *alone[ROWS]; /* [n, LAYERS + 1, H] each row by itself, in one call */
};

static struct capture *open_capture(const struct target *t, int32_t rows_max) {
  struct capture *capture;
  struct eaglet_error err = {0};
  struct capture_params params = {.model = t->model, .tokens_max = LONGEST, .rows_max = rows_max};
  for (int32_t k = 0; k <= LAYERS; k++) params.taps.states[params.taps.n++] = k;
  assert_ok(capture_create(&capture, &params, &err), &err);
  return capture;
}

static float *room(int32_t n, int32_t states) { return memory_alloc(sizeof(float) * (size_t)n * (size_t)states * HIDDEN); }

static int target_open(void **state) {
  struct target *t = memory_alloc(sizeof *t);
  struct eaglet_error err = {0};
  const char *root = getenv("EAGLET_TEST_ROOT");
  char *path = file_join(root ? root : ".", "models/nano-kimi");
  *state = t;
  assert_ok(compute_open_cpu(&t->compute, 2, EAGLET_PRECISION_EXACT, &err), &err);
  const struct model_params params = {.path = path, .compute = t->compute};
  assert_ok(model_open(&t->model, &params, &err), &err);
  free(path);
  struct capture *capture = open_capture(t, 0);
  for (int32_t r = 0; r < ROWS; r++) {
    for (int32_t i = 0; i < lengths[r]; i++) t->ids[r][i] = (int32_t)(random_u64(4, r < 5 ? (uint64_t)r : 4, (uint64_t)i) % 4000);
    t->alone[r] = room(lengths[r], LAYERS + 1);
    const int32_t *ids = t->ids[r];
    assert_ok(capture_run(capture, &ids, &lengths[r], 1, &t->alone[r], &err), &err);
  }
  capture_free(capture);
  if (memcmp(t->alone[4], t->alone[5], sizeof(float) * (size_t)lengths[5] * (LAYERS + 1) * HIDDEN) != 0) return -1; /* they begin alike */
  return 0;
}

static int target_close(void **state) {
  struct target *t = *state;
  for (int32_t r = 0; r < ROWS; r++) free(t->alone[r]);
  model_close(t->model);
  compute_close(t->compute);
  free(t);
  return 0;
}

static void test_calls(void **state) {
  static const int32_t calls[] = {1, 7, 31, 127, 128, 500};
  const struct target *t = *state;
  struct eaglet_error err = {0};
  for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
    struct capture *capture = open_capture(t, calls[c]);
    for (int32_t turn = 0; turn < 3; turn++) { /* in order, the same again, backwards */
      const int32_t *ids[ROWS];
      int32_t n[ROWS];
      float *states[ROWS];
      for (int32_t i = 0; i < ROWS; i++) {
        int32_t r = turn == 2 ? ROWS - 1 - i : i;
        ids[i] = t->ids[r];
        n[i] = lengths[r];
        states[i] = room(n[i], LAYERS + 1);
      }
      assert_ok(capture_run(capture, ids, n, ROWS, states, &err), &err);
      for (int32_t i = 0; i < ROWS; i++) {
        int32_t r = turn == 2 ? ROWS - 1 - i : i;
        assert_memory_equal(states[i], t->alone[r], sizeof(float) * (size_t)n[i] * (LAYERS + 1) * HIDDEN);
        free(states[i]);
      }
    }
    capture_free(capture);
  }
}

static void test_resume(void **state) {
  const struct target *t = *state;
  struct eaglet_error err = {0};
  for (int32_t k = 0; k <= LAYERS; k++) {
    const struct capture_params params = {.model = t->model, .tokens_max = LONGEST, .rows_max = 40, .start_state = k, .taps = {.n = 1, .states = {LAYERS}}};
    struct capture *capture;
    const int32_t *ids[ROWS];
    float *starts[ROWS], *last[ROWS];
    assert_ok(capture_create(&capture, &params, &err), &err);
    for (int32_t r = 0; r < ROWS; r++) {
      ids[r] = t->ids[r];
      starts[r] = room(lengths[r], 1);
      last[r] = room(lengths[r], 1);
      for (int32_t i = 0; i < lengths[r]; i++)
        memcpy(starts[r] + i * HIDDEN, t->alone[r] + (i * (LAYERS + 1) + k) * HIDDEN, sizeof(float) * HIDDEN);
    }
    const struct capture_rows rows = {.tokens = ids, .lengths = lengths, .n = ROWS, .starts = (const float *const *)starts, .states = last};
    assert_ok(capture_resume(capture, &rows, &err), &err);
    for (int32_t r = 0; r < ROWS; r++) {
      for (int32_t i = 0; i < lengths[r]; i++)
        assert_memory_equal(last[r] + i * HIDDEN, t->alone[r] + (i * (LAYERS + 1) + LAYERS) * HIDDEN, sizeof(float) * HIDDEN);
      free(starts[r]), free(last[r]);
    }
    capture_free(capture);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls), cmocka_unit_test(test_resume)};
  return cmocka_run_group_tests_name("capture", tests, target_open, target_close);
}
