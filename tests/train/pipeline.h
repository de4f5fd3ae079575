/* pipeline.h - shared by the tests of prepare, extract and evaluate: one run of prepare on inline JSONL, reports as
 * JSON, stop requests. */
#ifndef EAGLET_TESTS_TRAIN_PIPELINE_H
#define EAGLET_TESTS_TRAIN_PIPELINE_H

#include "../data/support.h"

#include "data/token_shard.h"
#include "train/prepare.h"

/* Per test: the model's directory, a scratch directory, data in it. */
struct pipeline {
  char *model, *directory, *data, *out; /* data: directory/data.jsonl; out: directory/out */
};

static inline int pipeline_create(void **state) {
  struct pipeline *p = memory_alloc(sizeof *p);
  *state = p;
  p->model = nano_kimi();
  if (scratch_create((void **)&p->directory) != 0) return -1;
  p->data = file_join(p->directory, "data.jsonl");
  p->out = file_join(p->directory, "out");
  return 0;
}

static inline int pipeline_remove(void **state) {
  struct pipeline *p = *state;
  int failed = scratch_remove((void **)&p->directory);
  free(p->model);
  free(p->data);
  free(p->out);
  free(p);
  return failed;
}

#define PIPELINE_TEST(test) cmocka_unit_test_setup_teardown(test, pipeline_create, pipeline_remove)

static inline struct eaglet_prepare_params prepare_params(const struct pipeline *p) {
  return (struct eaglet_prepare_params){
      .model = p->model, .out = p->out, .data = (const char *const *)&p->data, .n_data = 1, .validation = -1};
}

/* Returns the report; the caller owns it. */
static inline json_t *report_parse(struct eaglet_text *text) {
  json_t *report = NULL;
  struct eaglet_error err = {0};
  assert_ok(json_parse(&report, text->data, text->length, "report", &err), &err);
  free(text->data);
  return report;
}

static inline json_t *prepare_ok(const struct eaglet_prepare_params *params) {
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  assert_ok(prepare_run(params, &text, &err), &err);
  return report_parse(&text);
}

static inline void prepare_fails(const struct eaglet_prepare_params *params, enum eaglet_status expected,
                                 const char *words) {
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  assert_failed_with(prepare_run(params, &text, &err), expected, &err, words);
  assert_null(text.data);
}

static inline json_int_t report_int(const json_t *report, const char *key) {
  const json_t *value = json_object_get(report, key);
  if (!json_is_integer(value)) fail_msg("report: no integer %s", key);
  return json_integer_value(value);
}

static inline json_int_t dropped(const json_t *report, const char *reason) {
  return json_integer_value(json_object_get(json_object_get(report, "dropped"), reason));
}

static inline void store_open(struct token_store *store, const char *directory) {
  struct eaglet_error err = {0};
  assert_ok(token_store_open(store, directory, false, &err), &err);
}

/* Says stop at the call of this number. */
struct stopper {
  int calls, stop_at;
};
static inline bool stopper_report(void *context, const char *stage, const char *unit, uint64_t done, uint64_t total,
                                  const char *note) {
  struct stopper *s = context;
  (void)stage, (void)unit, (void)done, (void)total, (void)note;
  return ++s->calls != s->stop_at;
}

#endif
