/* test_shard_writer.c - the thread that writes: jobs in order, one at a time, each whole before the next is taken; what fails is told by the
 * next call and stops the rest; numbers that are none never reach the disk. Method: a sink that keeps what it is given. */
#include "../data/support.h"

#include "train/shard_writer.h"

#include <math.h>

enum { HIDDEN = 4, TAPS = 2, JOBS = 20 };

static struct {
  size_t order[JOBS], n;
  float seen[JOBS];
  size_t fails_at;
} sink_state;

static enum eaglet_status keep(const struct feature_block *block, struct eaglet_error *err) {
  usleep((useconds_t)(block->index % 3 * 2000)); /* some are slow */
  if (block->index == sink_state.fails_at) FAIL(err, EAGLET_E_RESOURCE, "block %zu: the disk is full", block->index);
  sink_state.seen[sink_state.n] = block->shard.states[0][0];
  sink_state.order[sink_state.n++] = block->index;
  return EAGLET_OK;
}

static const struct feature_sink sink = {.name = "kept", .write = keep};
static const int32_t taps[TAPS] = {2, 8}, ids[1] = {7};
static const uint8_t mask[1] = {1};
static const struct token_row row = {.tokens = ids, .mask = mask, .n = 1};
static const struct feature_layout layout = {.n_states = 1, .states = {2}, .n_layers = 8, .hidden = HIDDEN, .dtype = DTYPE_F32};

static struct shard_job job_of(size_t index, float *values, const float **states) {
  for (size_t i = 0; i < TAPS * HIDDEN; i++) values[i] = (float)(index + 1);
  states[0] = values;
  return (struct shard_job){.block = {.index = index, .first_row = index, .shard = {.layout = &layout, .rows = &row, .n_rows = 1, .states = states, .width = TAPS * HIDDEN, .last = HIDDEN}},
                            .states = taps, .n_taps = TAPS, .data = "data"};
}

/* Two buffers in turn, as extraction has them: the one that was just given away is not touched until the next was taken. */
static enum eaglet_status put_all(struct shard_writer *writer, size_t n, struct eaglet_error *err) {
  static float values[2][TAPS * HIDDEN];
  static const float *states[2][1];
  for (size_t i = 0; i < n; i++) {
    const struct shard_job job = job_of(i, values[i % 2], states[i % 2]);
    TRY(shard_writer_put(writer, &job, err));
  }
  return shard_writer_wait(writer, err);
}

static void test_order(void **state) {
  struct shard_writer *writer;
  struct eaglet_error err = {0};
  (void)state;
  memset(&sink_state, 0, sizeof sink_state);
  sink_state.fails_at = SIZE_MAX;
  assert_ok(shard_writer_create(&writer, &sink, &err), &err);
  assert_ok(shard_writer_wait(writer, &err), &err);
  assert_ok(put_all(writer, JOBS, &err), &err);
  assert_int_equal(shard_writer_done(writer), JOBS);
  for (size_t i = 0; i < JOBS; i++) assert_true(sink_state.order[i] == i && sink_state.seen[i] == (float)(i + 1));
  shard_writer_free(writer);
}

static void test_failure(void **state) {
  struct shard_writer *writer;
  struct eaglet_error err = {0};
  (void)state;
  memset(&sink_state, 0, sizeof sink_state);
  sink_state.fails_at = 5;
  assert_ok(shard_writer_create(&writer, &sink, &err), &err);
  assert_failed_with(put_all(writer, JOBS, &err), EAGLET_E_RESOURCE, &err, "block 5: the disk is full");
  assert_int_equal(shard_writer_done(writer), 5);
  err = (struct eaglet_error){0};
  assert_failed_with(shard_writer_wait(writer, &err), EAGLET_E_RESOURCE, &err, "block 5"); /* it stays */
  assert_int_equal(sink_state.n, 5);
  shard_writer_free(writer);
}

static void test_numbers(void **state) {
  static const float wrong[] = {NAN, INFINITY, 0};
  (void)state;
  for (size_t k = 0; k < 3; k++) {
    struct shard_writer *writer;
    struct eaglet_error err = {0};
    float values[TAPS * HIDDEN];
    const float *states[1];
    memset(&sink_state, 0, sizeof sink_state);
    assert_ok(shard_writer_create(&writer, &sink, &err), &err);
    const struct shard_job job = job_of(9, values, states);
    for (size_t i = 0; i < HIDDEN; i++) values[HIDDEN + i] = k < 2 && i != 3 ? 1 : wrong[k];
    assert_ok(shard_writer_put(writer, &job, &err), &err);
    assert_failed_with(shard_writer_wait(writer, &err), EAGLET_E_INPUT, &err, k < 2 ? "data: row 9, token 0, state 8: expected finite numbers" : "data: row 9, token 0, state 8: expected a state, found zeros");
    assert_int_equal(sink_state.n, 0);
    shard_writer_free(writer);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_failure), cmocka_unit_test(test_numbers)};
  return cmocka_run_group_tests_name("shard_writer", tests, NULL, NULL);
}
