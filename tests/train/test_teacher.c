/* test_teacher.c - what the target teaches of one state, against a softmax over its whole vocabulary in double: the distribution on the draft
 * vocabulary, how much of the whole is there, and the first choice, inside or outside; for a part of nano-kimi's vocabulary and for all of it. */
#include "train/teacher.h"

#include "base/memory.h"
#include "base/util.h"
#include "model/forward.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 9 };

struct fixture {
  struct compute *compute;
  struct model *model;
  struct vocab_map map;
  float *last; /* [ROWS, H] */
};

static void must(enum eaglet_status status, const struct eaglet_error *err) {
  if (status != EAGLET_OK) fail_msg("%s", err->message);
}

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  struct eaglet_error err = {0};
  const char *root = getenv("EAGLET_TEST_ROOT");
  char *path = file_join(root ? root : ".", "models/nano-kimi");
  must(compute_open_cpu(&f->compute, 2, EAGLET_PRECISION_EXACT, &err), &err);
  must(model_open(&f->model, &(struct model_params){.path = path, .compute = f->compute}, &err), &err);
  size_t n = (size_t)ROWS * (size_t)f->model->arch.features.hidden;
  f->last = malloc(sizeof(float) * n);
  for (size_t i = 0; i < n; i++) f->last[i] = (float)random_normal(4, 1, i);
  free(path);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  vocab_map_release(&f->map);
  model_close(f->model);
  compute_close(f->compute);
  free(f->last);
  free(f);
  return 0;
}

/* Returns whether the first choice is in the draft vocabulary. */
static bool check_row(const struct fixture *f, const float *logits, const struct teacher_rows *found, int i) {
  int32_t vocab = f->model->arch.features.n_vocab, n_draft = f->map.n_draft, best = 0;
  const float *target = found->target + (size_t)i * (size_t)n_draft;
  double most = -1e30, all = 0, inside = 0;
  for (int32_t v = 0; v < vocab; v++) most = fmax(most, logits[v]), best = logits[v] > logits[best] ? v : best;
  for (int32_t v = 0; v < vocab; v++) all += exp(logits[v] - most);
  for (int32_t d = 0; d < n_draft; d++) inside += exp(logits[f->map.target[d]] - most);
  for (int32_t d = 0; d < n_draft; d++) assert_true(fabs(target[d] - exp(logits[f->map.target[d]] - most) / inside) < 1e-6);
  assert_true(fabs(found->mass[i] - inside / all) < 1e-5);
  assert_int_equal(found->choice[i], f->map.draft[best]);
  return f->map.draft[best] >= 0;
}

/* Returns how many first choices are in the draft vocabulary. */
static int check_map(struct fixture *f) {
  struct eaglet_error err = {0};
  struct teacher teacher;
  must(teacher_init(&teacher, f->model, &f->map, &err), &err);
  int32_t vocab = f->model->arch.features.n_vocab, hidden = f->model->arch.features.hidden;
  float mass[ROWS], *target = malloc(sizeof(float) * ROWS * (size_t)f->map.n_draft), *normed = malloc(sizeof(float) * ROWS * (size_t)hidden),
                    *logits = malloc(sizeof(float) * ROWS * (size_t)vocab);
  int32_t choice[ROWS];
  int in = 0;
  const struct teacher_rows rows = {.target = target, .mass = mass, .choice = choice};
  teacher_targets(&teacher, &rows, f->last, ROWS);
  model_final_norm(f->compute, f->model, normed, f->last, ROWS);
  model_logits(f->compute, f->model, logits, normed, ROWS);
  for (int i = 0; i < ROWS; i++) in += check_row(f, logits + (size_t)i * (size_t)vocab, &rows, i);
  free(target), free(normed), free(logits);
  teacher_release(&teacher);
  return in;
}

static void test_part_of_the_vocabulary(void **state) {
  struct fixture *f = *state;
  struct eaglet_error err = {0};
  int32_t ids[2000];
  for (int32_t i = 0; i < 2000; i++) ids[i] = 2 * i + 1;
  must(vocab_map_init(&f->map, ids, 2000, f->model->arch.features.n_vocab, "test", &err), &err);
  int in = check_map(f);
  assert_true(in > 0 && in < ROWS); /* both kinds were seen */
}

static void test_all_of_it(void **state) {
  struct fixture *f = *state;
  struct eaglet_error err = {0};
  must(vocab_map_identity(&f->map, f->model->arch.features.n_vocab, &err), &err);
  assert_int_equal(check_map(f), ROWS);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_part_of_the_vocabulary, setup, teardown),
                                     cmocka_unit_test_setup_teardown(test_all_of_it, setup, teardown)};
  return cmocka_run_group_tests_name("teacher", tests, NULL, NULL);
}
