/* test_outputs.c - what comes with a text, through the public API: logprobs (case G18), sampling parameters and the texts of raw prompts,
 * with and without drafts. Oracle of the logprobs of an output: the same tokens as a prompt, which no drafter touches.
 */
#include "api_fixture.h"

#include <math.h>

#define TOP 4

static struct eaglet_sequence_params reply_params(const struct api *api, const struct ids *prompt) {
  return (struct eaglet_sequence_params){.prompt = prompt->ids, .n_prompt = (int32_t)prompt->n, .output_max = 40, .tokenizer = api->tokenizer};
}

/* ---- logprobs ---- */

static void assert_same_entries(const struct eaglet_token_logprob *a, const struct eaglet_token_logprob *b, int32_t n, const char *what, int32_t i) {
  for (int32_t k = 0; k < n; k++)
    if (a[k].token != b[k].token || a[k].rank != b[k].rank || !(fabsf(a[k].logprob - b[k].logprob) < 1e-5f))
      fail_msg("%s: token %d, entry %d: %d (%.6f, rank %d), expected %d (%.6f, rank %d)", what, i, k, a[k].token, (double)a[k].logprob, a[k].rank,
               b[k].token, (double)b[k].logprob, b[k].rank);
}

/* Its own, then the likeliest in order, as probabilities are. */
static void check_entries(const struct eaglet_token_logprob *entries, int32_t n, int32_t token) {
  double sum = 0;
  assert_int_equal(n, 1 + TOP);
  assert_int_equal(entries[0].token, token);
  assert_true(entries[0].rank >= 1);
  for (int32_t k = 1; k < n; k++) {
    assert_int_equal(entries[k].rank, k);
    assert_true(entries[k].logprob <= 0 && (k == 1 || entries[k].logprob <= entries[k - 1].logprob));
    if (entries[0].rank == k) assert_true(entries[0].token == entries[k].token && entries[0].logprob == entries[k].logprob);
    sum += exp((double)entries[k].logprob);
  }
  assert_true(sum > 0 && sum <= 1 + 1e-5);
  if (entries[0].rank > TOP) assert_true(entries[0].logprob <= entries[TOP].logprob);
}

/* The output's logprobs are those of the same tokens as a prompt of plain decoding. */
static void check_logprobs(const struct api *api, const struct eaglet_sequence_params *params, enum arm arm) {
  struct output o, again;
  struct eaglet_sequence *s, *reader;
  int32_t ids[CONTEXT];
  run_open(api->engines[arm], params, 1, &o, &s);
  if (arm == ARM_CHAIN || arm == ARM_TREE) assert_true(o.stats.accepted > 0);
  memcpy(ids, params->prompt, (size_t)params->n_prompt * sizeof *ids);
  memcpy(ids + params->n_prompt, o.ids, (size_t)o.n * sizeof *ids);
  const struct eaglet_sequence_params reading = {
      .prompt = ids, .n_prompt = params->n_prompt + o.n, .output_max = 1, .n_prompt_logprobs = TOP, .ignore_stop = true, .tokenizer = api->tokenizer};
  run_open(api->engines[ARM_PLAIN], &reading, 1, &again, &reader);
  for (int32_t i = 0; i < o.n; i++) {
    const struct eaglet_token_logprob *entries, *read;
    int32_t n = eaglet_sequence_logprobs(s, i, &entries);
    check_entries(entries, n, o.ids[i]);
    assert_int_equal(eaglet_sequence_prompt_logprobs(reader, params->n_prompt + i, &read), n);
    assert_same_entries(entries, read, n, arm_names[arm], i);
    if (params->temperature == 0) assert_int_equal(entries[0].rank, 1);
  }
  for (int32_t i = 1; i < params->n_prompt; i++) {
    const struct eaglet_token_logprob *entries, *read;
    int32_t n = eaglet_sequence_prompt_logprobs(s, i, &entries);
    check_entries(entries, n, params->prompt[i]);
    eaglet_sequence_prompt_logprobs(reader, i, &read);
    assert_same_entries(entries, read, n, "prompt", i);
  }
  const struct eaglet_token_logprob *none;
  assert_int_equal(eaglet_sequence_prompt_logprobs(s, 0, &none), 0); /* nothing is before it */
  eaglet_sequence_free(s);
  eaglet_sequence_free(reader);
}

static void test_logprobs(void **state) {
  const struct api *api = *state;
  static const float temperatures[] = {0, 0.7f, 1.5f};
  for (int i = 0; i < 3; i++) {
    struct ids prompt = ids_of_question(api, questions[i]);
    for (int arm = 0; arm < ARM_COUNT; arm++) {
      struct eaglet_sequence_params params = reply_params(api, &prompt);
      params.temperature = temperatures[i];
      params.n_logprobs = params.n_prompt_logprobs = TOP;
      params.top_p = i == 2 ? 0.9f : 0;
      check_logprobs(api, &params, (enum arm)arm);
    }
    free(prompt.ids);
  }
}

/* -1: only its own; 0: none. */
static void test_few_logprobs(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_question(api, questions[0]);
  struct eaglet_sequence_params params = reply_params(api, &prompt);
  for (int32_t n = -1; n <= 1; n++) {
    struct eaglet_sequence *s;
    struct output o;
    const struct eaglet_token_logprob *entries;
    params.n_logprobs = n;
    run_open(api->engines[ARM_CHAIN], &params, 1, &o, &s);
    for (int32_t i = 0; i < o.n; i++) assert_int_equal(eaglet_sequence_logprobs(s, i, &entries), n == 0 ? 0 : n < 0 ? 1 : 2);
    assert_int_equal(eaglet_sequence_prompt_logprobs(s, 1, &entries), 0);
    eaglet_sequence_free(s);
  }
  free(prompt.ids);
}

/* ---- sampling parameters ---- */

/* Greedy texts under penalties and bias are the same whoever drafts; and they are other texts than without. */
static void test_parameters(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_question(api, questions[0]);
  struct output free_text, plain[TOGETHER_MAX], outputs[TOGETHER_MAX];
  struct eaglet_sequence_params params[TOGETHER_MAX], *p = params;
  params[0] = reply_params(api, &prompt);
  params[0].ignore_stop = true;
  run(api->engines[ARM_PLAIN], params, 1, &free_text);
  const struct eaglet_logit_bias never[] = {{free_text.ids[0], -INFINITY}, {free_text.ids[3], -INFINITY}}, always[] = {{free_text.ids[2], 1000}};
  for (int i = 1; i < TOGETHER_MAX; i++) params[i] = params[0];
  p[0].repetition_penalty = 1.3f;
  p[1].frequency_penalty = 1;
  p[2].presence_penalty = 1;
  p[3].bias = never, p[3].n_bias = 2;
  p[4].bias = always, p[4].n_bias = 1;
  p[5].temperature = 1, p[5].min_p = 1; /* the likeliest alone is left */
  p[6].temperature = 1, p[6].top_k = 1;
  p[7].repetition_penalty = 1.2f, p[7].presence_penalty = 0.5f, p[7].bias = never, p[7].n_bias = 1;
  run(api->engines[ARM_PLAIN], params, TOGETHER_MAX, plain);
  for (int i = 0; i < TOGETHER_MAX; i++) {
    bool same = plain[i].n == free_text.n && memcmp(plain[i].ids, free_text.ids, (size_t)plain[i].n * sizeof(int32_t)) == 0;
    assert_int_equal(same, i == 5 || i == 6);
  }
  for (int32_t i = 0; i < plain[3].n; i++) assert_true(plain[3].ids[i] != never[0].token && plain[3].ids[i] != never[1].token);
  for (int32_t i = 0; i < plain[4].n; i++) assert_int_equal(plain[4].ids[i], always[0].token);
  for (int arm = ARM_CHAIN; arm < ARM_COUNT; arm++) {
    run(api->engines[arm], params, TOGETHER_MAX, outputs);
    for (int i = 0; i < TOGETHER_MAX; i++) assert_same_output(&outputs[i], &plain[i], (enum arm)arm, "parameters");
  }
  free(prompt.ids);
}

/* No stop token before output_min, and a seed draws a text again. */
static void test_seeds(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_question(api, questions[2]);
  struct output a[2], b[2];
  struct eaglet_sequence_params params[2] = {reply_params(api, &prompt), reply_params(api, &prompt)};
  params[0].temperature = params[1].temperature = 1;
  params[0].output_min = params[1].output_min = 40;
  params[1].seed = 1;
  for (int arm = 0; arm < ARM_COUNT; arm++) {
    run(api->engines[arm], params, 2, a);
    run(api->engines[arm], params, 2, b);
    for (int i = 0; i < 2; i++) {
      assert_same_output(&a[i], &b[i], (enum arm)arm, "seed");
      assert_int_equal(a[i].n, 40);
    }
    assert_string_not_equal(a[0].text, a[1].text);
  }
  free(prompt.ids);
}

/* ---- texts ---- */

/* The text of a continuation joins the prompt's. */
static void test_continuation(void **state) {
  const struct api *api = *state;
  static const char text[] = "The sea is";
  struct ids prompt = ids_of_text(api, text);
  struct eaglet_sequence_params params = reply_params(api, &prompt);
  params.continues_prompt = true;
  params.output_max = 8;
  for (int arm = 0; arm < ARM_COUNT; arm++) {
    struct output o;
    struct eaglet_text whole;
    struct eaglet_error err = {0};
    int32_t ids[CONTEXT];
    run(api->engines[arm], &params, 1, &o);
    memcpy(ids, prompt.ids, prompt.n * sizeof *ids);
    memcpy(ids + prompt.n, o.ids, (size_t)o.n * sizeof *ids);
    assert_ok(eaglet_detokenize(api->tokenizer, ids, prompt.n + (size_t)o.n, &whole, &err), &err);
    char *joined = memory_format("%s%s", text, o.text), *end = strstr(whole.data, text);
    assert_non_null(end);
    assert_string_equal(end, joined);
    free(joined);
    eaglet_text_clear(&whole);
  }
  free(prompt.ids);
}

/* Ids alone: no tokenizer, no text. */
static void test_ids_only(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_question(api, questions[0]);
  struct eaglet_sequence_params params = reply_params(api, &prompt);
  struct output with, without;
  run(api->engines[ARM_CHAIN], &params, 1, &with);
  params.tokenizer = NULL;
  run(api->engines[ARM_CHAIN], &params, 1, &without);
  assert_int_equal(without.length, 0);
  assert_int_equal(with.n, without.n);
  assert_memory_equal(with.ids, without.ids, (size_t)with.n * sizeof(int32_t));
  free(prompt.ids);
}

/* Questions asked again and again, to this many tokens. */
static void prompts_lengthen(struct ids prompts[QUESTIONS], size_t n) {
  for (int i = 0; i < QUESTIONS; i++) {
    int32_t *ids = memory_alloc(n * sizeof *ids);
    size_t n_one = prompts[i].n;
    for (size_t k = 0; k < n; k++) ids[n - 1 - k] = prompts[i].ids[n_one - 1 - k % n_one];
    free(prompts[i].ids);
    prompts[i] = (struct ids){ids, n};
  }
}

/* An engine that lacks memory for all preempts: the texts and their stops are those of an engine that has enough. */
static void test_preemption(void **state) {
  const struct api *api = *state;
  struct ids prompts[QUESTIONS];
  struct eaglet_sequence_params params[QUESTIONS];
  struct output expected[QUESTIONS], outputs[QUESTIONS];
  struct eaglet_engine_params small = api_engine_params(api, ARM_CHAIN);
  struct eaglet_engine *engine;
  struct eaglet_engine_stats stats;
  struct eaglet_error err = {0};
  const char *stop = "?";
  small.kv_memory_mib = 2;
  assert_ok(eaglet_engine_open(&engine, &small, &err), &err);
  eaglet_engine_stats_get(engine, &stats);
  questions_render(api, prompts);
  prompts_lengthen(prompts, (size_t)(stats.kv_pages / QUESTIONS) * 32);
  for (int i = 0; i < QUESTIONS; i++) {
    params[i] = reply_params(api, &prompts[i]);
    params[i].output_max = OUTPUT_MAX;
    params[i].ignore_stop = i > 0;
    params[i].stops = &stop;
    params[i].n_stops = i == 1;
  }
  run(api->engines[ARM_PLAIN], params, QUESTIONS, expected);
  run(engine, params, QUESTIONS, outputs);
  for (int i = 0; i < QUESTIONS; i++) assert_same_output(&outputs[i], &expected[i], ARM_CHAIN, "little memory");
  eaglet_engine_stats_get(engine, &stats);
  assert_string_equal(stats.drafter, "head");
  if (stats.preemptions == 0) fail_msg("nobody was preempted: %d pages for %zu tokens each", stats.kv_pages, prompts[0].n);
  eaglet_engine_close(engine);
  questions_free(prompts);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_logprobs),     cmocka_unit_test(test_few_logprobs), cmocka_unit_test(test_parameters), cmocka_unit_test(test_seeds),
      cmocka_unit_test(test_continuation), cmocka_unit_test(test_ids_only),     cmocka_unit_test(test_preemption),
  };
  return cmocka_run_group_tests_name("api_outputs", tests, api_create, api_remove);
}
