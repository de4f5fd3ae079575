/* test_state.c - the resume file: a round trip to the bit, refusals by name, damage, and the metrics file's rewinding.
 */
#include "train/metrics.h"
#include "train/settings.h"
#include "train/state.h"

#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 1000 };

struct fixture {
  char out[64];
  float blocks[4][N];
  json_t *settings;
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  strcpy(f->out, "/tmp/eaglet-state-XXXXXX");
  assert_non_null(mkdtemp(f->out));
  for (int b = 0; b < 4; b++) {
    for (int i = 0; i < N; i++) f->blocks[b][i] = (float)(b * N + i) / 7.0f;
  }
  f->settings = json_pack("{ss si sf}", "data", "0123", "--batch", 64, "--lr", 1e-3);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", f->out);
  assert_int_equal(system(command), 0);
  json_decref(f->settings);
  free(f);
  return 0;
}

static struct train_state state_of(struct fixture *f) {
  return (struct train_state){.n_parameters = N,
                              .parameters = f->blocks[0],
                              .m = f->blocks[1],
                              .v = f->blocks[2],
                              .step = 123,
                              .rows_seen = 7890,
                              .metrics_length = 11,
                              .threads = 3,
                              .settings = f->settings};
}

static void check_round_trip(struct fixture *f, bool average) {
  struct train_state state = state_of(f);
  float before[4][N];
  if (average) state.average = f->blocks[3];
  memcpy(before, f->blocks, sizeof before);
  assert_int_equal(train_state_save(&state, f->out, NULL), EAGLET_OK);
  assert_true(train_state_exists(f->out));
  memset(f->blocks, 0, sizeof f->blocks);
  state.step = state.rows_seen = state.metrics_length = state.threads = 0;
  assert_int_equal(train_state_load(&state, f->out, NULL), EAGLET_OK);
  assert_memory_equal(f->blocks, before, sizeof f->blocks[0] * (average ? 4 : 3));
  assert_int_equal(state.step, 123);
  assert_int_equal(state.rows_seen, 7890);
  assert_int_equal(state.metrics_length, 11);
  assert_int_equal(state.threads, 3);
}

static void test_round_trip(void **context) {
  struct fixture *f = *context;
  assert_false(train_state_exists(f->out));
  check_round_trip(f, true);
  check_round_trip(f, false);
  struct train_state state = state_of(f);
  struct eaglet_error err;
  state.average = f->blocks[3]; /* which the file does not have */
  assert_int_equal(train_state_load(&state, f->out, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "average: expected F32 [1000]"));
}

static void refused(struct fixture *f, const char *key, json_t *value, const char *words) {
  struct train_state state = state_of(f);
  struct eaglet_error err;
  assert_int_equal(train_state_save(&state, f->out, NULL), EAGLET_OK);
  json_t *changed = json_deep_copy(f->settings);
  json_object_set_new(changed, key, value);
  state.settings = changed;
  assert_int_equal(train_state_load(&state, f->out, &err), EAGLET_E_USAGE);
  assert_non_null(strstr(err.message, words));
  json_decref(changed);
}

static void test_changed_settings_are_refused(void **context) {
  struct fixture *f = *context;
  refused(f, "--batch", json_integer(32), "--batch was 64, is now 32");
  refused(f, "--lr", json_real(2e-3), "--lr was 0.001");
  refused(f, "data", json_string("4567"), "data was 0123, is now 4567");
  refused(f, "--unroll", json_integer(5), "--unroll was nothing, is now 5");
}

static void test_damage_is_refused(void **context) {
  struct fixture *f = *context;
  struct train_state state = state_of(f);
  struct eaglet_error err;
  char path[128];
  assert_int_equal(train_state_save(&state, f->out, NULL), EAGLET_OK);
  snprintf(path, sizeof path, "%s/state/state.safetensors", f->out);
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  fseek(file, -6, SEEK_END);
  fputc(0x55, file);
  fclose(file);
  assert_int_equal(train_state_load(&state, f->out, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "v: expected checksum"));
  assert_int_equal(train_state_save(&state, f->out, NULL), EAGLET_OK);
  state.n_parameters = N / 2;
  assert_int_equal(train_state_load(&state, f->out, &err), EAGLET_E_INPUT);
  assert_int_equal(truncate(path, 4000), 0);
  state.n_parameters = N;
  assert_int_equal(train_state_load(&state, f->out, &err), EAGLET_E_INPUT);
}

static void test_metrics_rewind(void **context) {
  struct fixture *f = *context;
  struct step_result result = {.step = 1,
                               .n_steps = 2,
                               .loss = 3.5,
                               .step_loss = {2, 1.875},
                               .masked = {10, 8},
                               .hits = {5, 2},
                               .acceptance = {4, 2},
                               .seconds = 2,
                               .head_seconds = 1,
                               .flops = 3e9,
                               .n_tokens = 100};
  char *path = metrics_path(f->out);
  assert_int_equal(metrics_append_step(f->out, &result, NULL), EAGLET_OK);
  int64_t one = file_length(path);
  result.step = 2;
  assert_int_equal(metrics_append_step(f->out, &result, NULL), EAGLET_OK);
  assert_int_equal(metrics_rewind(f->out, one, NULL), EAGLET_OK);
  assert_int_equal(file_length(path), one);
  struct eaglet_text text;
  json_t *line;
  assert_int_equal(file_read(&text, path, 1000, NULL), EAGLET_OK);
  assert_int_equal(json_parse(&line, text.data, text.length, "line", NULL), EAGLET_OK);
  assert_int_equal(json_integer_value(json_object_get(line, "step")), 1);
  assert_true(json_real_value(json_array_get(json_object_get(line, "step_accuracy"), 1)) == 0.25);
  assert_true(json_real_value(json_array_get(json_object_get(line, "step_acceptance"), 0)) == 0.4);
  assert_true(json_number_value(json_object_get(line, "tok_s")) == 50);
  assert_true(json_number_value(json_object_get(line, "gflop_s")) == 3);
  assert_int_equal(metrics_rewind(f->out, one + 10, NULL), EAGLET_OK); /* lost lines: told, not fatal */
  json_decref(line);
  free(text.data);
  free(path);
}

static void test_settings(void **context) {
  (void)context;
  struct eaglet_train_params s, params = {.data = "d", .out = "o", .lr = 5e-4, .unroll = 3};
  struct eaglet_error err;
  assert_int_equal(settings_resolve(&s, &params, &err), EAGLET_OK);
  assert_true(s.lr == 5e-4 && s.unroll == 3 && s.batch == 64 && s.warmup == 50 && s.clip == 0.5 && s.beta2 == 0.95 &&
              s.rope_theta == 10000);
  params.unroll = 16;
  assert_int_equal(settings_resolve(&s, &params, &err), EAGLET_E_USAGE);
  assert_non_null(strstr(err.message, "--unroll"));
  params.unroll = 0;
  params.beta1 = 1;
  assert_int_equal(settings_resolve(&s, &params, &err), EAGLET_E_USAGE);
  assert_non_null(strstr(err.message, "--beta1"));
}

/* What contradicts itself, or would change nothing, is refused by name. */
static void test_recipes(void **context) {
  (void)context;
  static const struct {
    struct eaglet_train_params params;
    const char *words; /* NULL: taken */
  } cases[] = {
      {{.loss = EAGLET_LOSS_CE}, NULL},
      {{.loss = EAGLET_LOSS_CE, .teacher = EAGLET_TEACHER_DATA, .outside = EAGLET_OUTSIDE_RESIDUAL}, NULL},
      {{.loss = EAGLET_LOSS_CE, .teacher = EAGLET_TEACHER_SOFT}, "--loss ce: expected --teacher argmax or data"},
      {{.teacher = EAGLET_TEACHER_ARGMAX}, "--teacher argmax and data"},
      {{.loss = EAGLET_LOSS_CE, .teacher = EAGLET_TEACHER_DATA, .outside = EAGLET_OUTSIDE_RENORMALISE}, "--outside renormalise"},
      {{.init = "head", .lm_head = EAGLET_LM_HEAD_RANDOM}, "--lm-head random"},
      {{.init = "head", .lm_head = EAGLET_LM_HEAD_FROZEN}, NULL},
      {{.loss = (enum eaglet_loss)5}, "--loss: expected one of its values, found number 5"},
      {{.optimizer = (enum eaglet_optimizer)3}, "--optimizer: expected one of its values"},
      {{.schedule = (enum eaglet_schedule)-1}, "--schedule: expected one of its values"},
      {{.lr = 1e-3, .lr_min = 2e-3}, "--min-lr: expected 0..0.001, found 0.002"},
      {{.kl_scale = 1.5}, "--kl-scale: expected 0..1"},
      {{.ema = 1}, "--ema"},
      {{.noise = -1}, "--noise"},
      {{.muon_momentum = 1}, "--muon-momentum"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct eaglet_train_params s, params = cases[i].params;
    struct eaglet_error err = {0};
    params.data = "d", params.out = "o";
    assert_int_equal(settings_resolve(&s, &params, &err), cases[i].words ? EAGLET_E_USAGE : EAGLET_OK);
    if (cases[i].words) assert_non_null(strstr(err.message, cases[i].words));
  }
}

/* Every number and choice of a recipe is in the identity, under its option's name. */
static void test_identity(void **context) {
  (void)context;
  static const char *const names[] = {"--loss", "--outside", "--teacher", "--mask-rule", "--optimizer", "--schedule", "--lm-head", "--kl-scale",
                                      "--kl-decay", "--muon-lr", "--muon-momentum", "--min-lr", "--decay-share", "--ema", "--noise"};
  struct eaglet_train_params s, params = {.data = "d", .out = "o", .loss = EAGLET_LOSS_LK_LAMBDA, .noise = 0.05};
  assert_int_equal(settings_resolve(&s, &params, NULL), EAGLET_OK);
  json_t *identity = settings_identity(&s, &(struct head_config){.n_states = 1});
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_non_null(json_object_get(identity, names[i]));
  assert_string_equal(json_string_value(json_object_get(identity, "--loss")), "lk-lambda");
  assert_true(json_real_value(json_object_get(identity, "--noise")) == 0.05);
  assert_true(json_real_value(json_object_get(identity, "--muon-lr")) == 1e-3);
  json_decref(identity);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
      cmocka_unit_test_setup_teardown(test_changed_settings_are_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(test_damage_is_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(test_metrics_rewind, setup, teardown),
      cmocka_unit_test(test_settings),
      cmocka_unit_test(test_recipes),
      cmocka_unit_test(test_identity),
  };
  return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
