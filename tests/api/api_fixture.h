/* api_fixture.h - nano-kimi through the public API: engines that differ in who drafts, several sequences run to their ends, and what each
 * of them showed on the way. Every run checks what holds of any text: what was shown is never taken back and is whole characters.
 */
#ifndef EAGLET_TESTS_API_FIXTURE_H
#define EAGLET_TESTS_API_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/util.h"

#define OUTPUT_MAX 64
#define TEXT_MAX 2048
#define TOGETHER_MAX 8
#define CONTEXT 256

#define assert_ok(expression, err)                                                                                     \
  do {                                                                                                                 \
    if ((expression) != EAGLET_OK) fail_msg("%s", (err)->message);                                                     \
  } while (0)

/* One line that holds the words. */
static inline void assert_refused(enum eaglet_status status, enum eaglet_status expected, const struct eaglet_error *err, const char *words) {
  if (status != expected || !strstr(err->message, words) || strchr(err->message, '\n'))
    fail_msg("expected status %d with '%s', found %d: %s", (int)expected, words, (int)status, err->message);
}

/* Who drafts. The first arm is plain decoding, which the others must repeat. */
enum arm { ARM_PLAIN, ARM_CHAIN, ARM_TREE, ARM_NGRAM, ARM_COUNT };
static const char *const arm_names[] = {"plain", "chain", "tree", "ngram"};

struct api {
  char *model, *draft;
  struct eaglet_tokenizer *tokenizer;
  struct eaglet_engine *engines[ARM_COUNT];
};

static inline struct eaglet_engine_params api_engine_params(const struct api *api, enum arm arm) {
  struct eaglet_engine_params params = {.model = api->model, .sequences_max = TOGETHER_MAX, .context_max = CONTEXT, .threads = 1};
  if (arm == ARM_CHAIN || arm == ARM_TREE) params.draft = api->draft;
  if (arm == ARM_NGRAM) params.drafter = EAGLET_DRAFTER_NGRAM;
  if (arm == ARM_TREE) params.draft_len_max = 5, params.draft_width_max = 4, params.draft_tokens_max = 20;
  return params;
}

static inline struct eaglet_engine *api_open(const struct api *api, enum arm arm) {
  const struct eaglet_engine_params params = api_engine_params(api, arm);
  struct eaglet_engine *engine;
  struct eaglet_error err = {0};
  assert_ok(eaglet_engine_open(&engine, &params, &err), &err);
  return engine;
}

/* Group set-up and tear-down. */
static inline int api_create(void **state) {
  const char *root = getenv("EAGLET_TEST_ROOT");
  struct api *api = *state = memory_alloc(sizeof *api);
  struct eaglet_error err = {0};
  api->model = memory_format("%s/models/nano-kimi", root ? root : ".");
  api->draft = memory_format("%s/models/nano-kimi-eagle3", root ? root : ".");
  assert_ok(eaglet_tokenizer_open(&api->tokenizer, api->model, NULL, &err), &err);
  for (int arm = 0; arm < ARM_COUNT; arm++) api->engines[arm] = api_open(api, (enum arm)arm);
  return 0;
}

static inline int api_remove(void **state) {
  struct api *api = *state;
  for (int arm = 0; arm < ARM_COUNT; arm++) eaglet_engine_close(api->engines[arm]);
  eaglet_tokenizer_close(api->tokenizer);
  free(api->model);
  free(api->draft);
  free(api);
  return 0;
}

/* ---- prompts ---- */

struct ids {
  int32_t *ids;
  size_t n;
};

static inline struct ids ids_of_text(const struct api *api, const char *text) {
  struct ids ids;
  struct eaglet_error err = {0};
  assert_ok(eaglet_tokenize(api->tokenizer, text, strlen(text), EAGLET_SPECIAL_ADD, &ids.ids, &ids.n, &err), &err);
  return ids;
}

/* One user turn, rendered for a reply. */
static inline struct ids ids_of_question(const struct api *api, const char *question) {
  json_t *messages = json_pack("[{ss ss}]", "role", "user", "content", question);
  struct eaglet_text json = json_dump(messages, 0);
  const struct eaglet_render_params params = {.messages_json = json.data, .length = json.length, .add_generation_prompt = true};
  struct eaglet_rendered rendered;
  struct eaglet_error err = {0};
  assert_ok(eaglet_render(api->tokenizer, &params, &rendered, &err), &err);
  struct ids ids = {rendered.ids, rendered.n_ids};
  rendered.ids = NULL;
  eaglet_rendered_clear(&rendered);
  eaglet_text_clear(&json);
  json_decref(messages);
  return ids;
}

#define QUESTIONS 6
static const char *const questions[QUESTIONS] = {"Hi, I would like to book a table for three people tomorrow.",
                                                 "I need a hotel in Atlanta for four nights, please.",
                                                 "Tom has 14 apples and buys 5 more. How many apples does Tom have now?",
                                                 "Will it rain in Oakland on March 3rd?",
                                                 "How do I copy a folder on the command line?",
                                                 "Find me a place to stay in Dallas with three rooms."};

static inline void questions_render(const struct api *api, struct ids prompts[QUESTIONS]) {
  for (int i = 0; i < QUESTIONS; i++) prompts[i] = ids_of_question(api, questions[i]);
}
static inline void questions_free(struct ids prompts[QUESTIONS]) {
  for (int i = 0; i < QUESTIONS; i++) free(prompts[i].ids);
}

/* ---- runs ---- */

struct output {
  int32_t ids[OUTPUT_MAX], n;
  bool drafted[OUTPUT_MAX];
  char text[TEXT_MAX];
  size_t length;
  int32_t n_shown; /* times that more text was shown before the end */
  enum eaglet_stop stop;
  struct eaglet_sequence_stats stats;
};

/* What is shown now goes on where it was, in whole characters. */
static inline void output_watch(struct output *o, struct eaglet_sequence *s) {
  size_t length;
  const char *text = eaglet_sequence_text(s, &length);
  assert_true(length < TEXT_MAX);
  assert_int_equal(text[length], 0);
  if (length < o->length || memcmp(text, o->text, o->length) != 0) fail_msg("'%s' was shown, and became '%.*s'", o->text, (int)length, text);
  if (utf8_valid(text, length) != length) fail_msg("'%.*s' ends within a character", (int)length, text);
  o->n_shown += length > o->length && eaglet_sequence_stop(s) == EAGLET_STOP_NONE;
  memcpy(o->text, text, length);
  o->text[length] = '\0';
  o->length = length;
}

static inline void output_take(struct output *o, const struct eaglet_sequence *s) {
  const int32_t *ids;
  o->n = eaglet_sequence_output(s, &ids);
  assert_in_range(o->n, 0, OUTPUT_MAX);
  memcpy(o->ids, ids, (size_t)o->n * sizeof *ids);
  for (int32_t i = 0; i < o->n; i++) o->drafted[i] = eaglet_sequence_was_drafted(s, i);
  o->stop = eaglet_sequence_stop(s);
  o->stats = *eaglet_sequence_stats(s);
  assert_int_equal(o->stats.output_tokens, o->n);
  assert_int_equal(o->n, 1 + o->stats.accepted + o->stats.rounds - o->stats.rounds_cut); /* G25 */
}

/* Creates n sequences, runs them to their ends, and leaves them to the caller. */
static inline void run_open(struct eaglet_engine *engine, const struct eaglet_sequence_params *params, int n, struct output *outputs,
                            struct eaglet_sequence **sequences) {
  struct eaglet_error err = {0};
  memset(outputs, 0, (size_t)n * sizeof *outputs);
  for (int i = 0; i < n; i++) assert_ok(eaglet_sequence_create(&sequences[i], engine, &params[i], &err), &err);
  for (int32_t n_live = n; n_live > 0;) {
    assert_ok(eaglet_step(engine, &n_live, &err), &err);
    for (int i = 0; i < n; i++) output_watch(&outputs[i], sequences[i]);
  }
  for (int i = 0; i < n; i++) output_take(&outputs[i], sequences[i]);
}

static inline void run_close(struct eaglet_sequence **sequences, int n) {
  for (int i = 0; i < n; i++) eaglet_sequence_free(sequences[i]);
}

static inline void run(struct eaglet_engine *engine, const struct eaglet_sequence_params *params, int n, struct output *outputs) {
  struct eaglet_sequence *sequences[TOGETHER_MAX];
  assert_in_range(n, 1, TOGETHER_MAX);
  run_open(engine, params, n, outputs, sequences);
  run_close(sequences, n);
}

static inline void assert_same_output(const struct output *found, const struct output *expected, enum arm arm, const char *what) {
  if (found->n != expected->n || memcmp(found->ids, expected->ids, (size_t)found->n * sizeof(int32_t)) != 0)
    fail_msg("%s, %s: ids of '%s' (%d), expected those of '%s' (%d)", what, arm_names[arm], found->text, found->n, expected->text, expected->n);
  if (strcmp(found->text, expected->text) != 0) fail_msg("%s, %s: '%s', expected '%s'", what, arm_names[arm], found->text, expected->text);
  if (found->stop != expected->stop) fail_msg("%s, %s: stop %d, expected %d", what, arm_names[arm], (int)found->stop, (int)expected->stop);
}

#endif
