/* test_evaluate.c - acceptance on real prompts. Oracle: nano_kimi_drafting.json, which holds how many drafts of the
 * baseline head the EAGLE authors' own modules accept in every round over the same prompts. Then what the counts must
 * satisfy among themselves, prompts that cannot be used, and the words of refusals. */
#include "pipeline.h"

#include "base/buffer.h"
#include "train/evaluate.h"

#include <math.h>

#define HEAD_CONFIG                                                                                                    \
  "{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"model_type\": \"llama\", \"hidden_size\": 320, "                \
  "\"intermediate_size\": 768, "                                                                                       \
  "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 40, \"num_hidden_layers\": 1, "               \
  "\"rms_norm_eps\": 1e-6, "                                                                                           \
  "\"rope_theta\": 10000, \"vocab_size\": 4096, \"draft_vocab_size\": 2048, \"max_position_embeddings\": 2048, "       \
  "\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 3, 4]}}"

static char *oracle_path(const char *name) {
  const char *root = getenv("EAGLET_TEST_SHARED");
  char *path = memory_format("%s/own/oracle/%s", root ? root : "", name);
  if (file_exists(path)) return path;
  printf("skip: own/oracle/%s is not there\n", name);
  free(path);
  return NULL;
}

/* The baseline head as a directory, or NULL. */
static char *make_head(const struct pipeline *p) {
  char *weights = oracle_path("baseline_draft.safetensors"), *head = file_join(p->directory, "head"),
       *link = file_join(p->directory, "head/model.safetensors");
  if (weights && p->model) {
    assert_int_equal(file_make_directory(head, NULL), EAGLET_OK);
    free(scratch_write(head, "config.json", HEAD_CONFIG));
    assert_int_equal(symlink(weights, link), 0);
  } else {
    free(head);
    head = NULL;
  }
  free(weights);
  free(link);
  return head;
}

static struct eaglet_eval_params eval_params(const struct pipeline *p, const char *head, const char *const *prompts) {
  return (struct eaglet_eval_params){
      .model = p->model, .draft = head, .prompts = prompts, .n_prompts = 1, .precision = EAGLET_PRECISION_EXACT};
}

static json_t *eval_ok(const struct eaglet_eval_params *params) {
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  assert_ok(evaluate_run(params, &text, &err), &err);
  return report_parse(&text);
}

static double real(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

#define ORACLE_PROMPTS 12 /* of 40, every third: enough rounds to compare, and few enough to run often */

/* Every third row of the oracle's prompts. */
static void make_oracle_prompts(const struct pipeline *p, const char *path) {
  struct file_lines *lines;
  struct buffer rows;
  const char *line;
  size_t length;
  buffer_init(&rows);
  assert_int_equal(file_lines_open(&lines, path, NULL), EAGLET_OK);
  for (int i = 0; i < 3 * ORACLE_PROMPTS; i++) {
    assert_int_equal(file_lines_next(lines, &line, &length, NULL), EAGLET_OK);
    if (i % 3 == 0) buffer_format(&rows, "%s\n", line);
  }
  file_lines_close(lines);
  free(scratch_write(p->directory, "data.jsonl", rows.data));
  buffer_clear(&rows);
}

/* Tokens per round of the oracle. Its rounds are not cut at the answers' ends, ours are: the last of each answer may
 * give less. */
static double oracle_acceptance(void) {
  char *path = oracle_path("nano_kimi_drafting.json");
  json_t *oracle = NULL, *row, *accepted;
  struct eaglet_error err = {0};
  size_t i, k, n_rounds = 0;
  double sum = 0;
  assert_non_null(path);
  assert_ok(json_parse_file(&oracle, path, &err), &err);
  json_array_foreach(json_object_get(oracle, "rows"), i, row) {
    if (i % 3 != 0 || i >= 3 * ORACLE_PROMPTS) continue;
    json_array_foreach(json_object_get(row, "accepted"), k, accepted) {
      sum += 1 + (double)json_integer_value(accepted);
      n_rounds++;
    }
  }
  json_decref(oracle);
  free(path);
  return sum / (double)n_rounds;
}

static void check_tally(const json_t *tally, int32_t draft_len) {
  double rounds = real(tally, "rounds"), sum = 0, before = 1;
  const json_t *positions = json_object_get(tally, "per_position");
  assert_int_equal(json_array_size(positions), draft_len);
  assert_true(fabs(real(tally, "acceptance_length") -
                   (real(tally, "output_tokens") - real(tally, "prompts")) / rounds) < 1e-12);
  for (int32_t i = 0; i < draft_len; i++) {
    double share = json_number_value(json_array_get(positions, (size_t)i));
    assert_true(share >= 0 && share <= before); /* a draft stands only on those before it */
    before = share;
    sum += share;
  }
  /* every round gives its bonus and what it accepts; only the last of an answer can be cut short or draft nothing */
  assert_true(real(tally, "acceptance_length") <= 1 + real(tally, "accepted") / rounds + 1e-12);
  assert_true(real(tally, "acceptance_length") > 1 + sum - 0.3);
}

/* Rows without what the clock says. */
static void assert_same_counts(const json_t *a, const json_t *b) {
  static const char *const counts[] = {"acceptance_length", "accepted_per_round", "per_position", "conditional", "by_context",
                                       "prompts",           "output_tokens",      "rounds",       "drafted",     "accepted"};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    assert_non_null(json_object_get(a, counts[i]));
    if (!json_equal(json_object_get(a, counts[i]), json_object_get(b, counts[i]))) fail_msg("%s differs", counts[i]);
  }
}

static void assert_same_sources(const json_t *a, const json_t *b) {
  const char *name;
  json_t *row;
  const json_t *sources = json_object_get(a, "sources"), *others = json_object_get(b, "sources");
  assert_true(json_object_size(sources) > 0);
  assert_int_equal(json_object_size(sources), json_object_size(others));
  json_object_foreach((json_t *)sources, name, row) assert_same_counts(row, json_object_get(others, name));
}

static void test_oracle(void **state) {
  struct pipeline *p = *state;
  char *head = make_head(p), *prompts = oracle_path("nano_prompts.jsonl");
  if (!head || !prompts) skip();
  make_oracle_prompts(p, prompts);
  struct eaglet_eval_params params = eval_params(p, head, (const char *const *)&p->data);
  params.concurrency = 4;
  json_t *json = eval_ok(&params), *overall = json_object_get(json, "overall"), *row;
  double expected = oracle_acceptance(), found = real(overall, "acceptance_length");
  if (fabs(found - expected) > 0.03 * expected)
    fail_msg("acceptance length %.4f, the oracle's is %.4f", found, expected);
  assert_int_equal(report_int(overall, "prompts"), ORACLE_PROMPTS);
  assert_true(json_is_true(json_object_get(json, "identical")));
  assert_true(real(json, "plain_tok_s") > 0 && real(json, "draft_tok_s") > 0);
  assert_true(fabs(real(json, "speedup") - real(json, "draft_tok_s") / real(json, "plain_tok_s")) < 1e-9);
  assert_int_equal(report_int(json_object_get(json, "draft_run"), "output_tokens"),
                   report_int(json_object_get(json, "plain_run"), "output_tokens"));
  assert_int_equal(report_int(json_object_get(json, "draft_run"), "output_tokens"),
                   report_int(overall, "output_tokens"));
  check_tally(overall, 7);
  const char *name;
  json_int_t n_prompts = 0, n_rounds = 0;
  json_object_foreach(json_object_get(json, "sources"), name, row) {
    check_tally(row, 7);
    n_prompts += report_int(row, "prompts");
    n_rounds += report_int(row, "rounds");
  }
  assert_int_equal(n_prompts, ORACLE_PROMPTS);
  assert_int_equal(n_rounds, report_int(overall, "rounds"));
  json_decref(json);
  free(prompts);
  free(head);
}

/* Counts do not depend on how many run at once; sampled runs say nothing about identity; a shorter draft accepts no
 * more. */
static void test_settings(void **state) {
  struct pipeline *p = *state;
  char *head = make_head(p), *prompts = oracle_path("nano_prompts.jsonl");
  if (!head || !prompts) skip();
  struct eaglet_eval_params params = eval_params(p, head, (const char *const *)&prompts);
  params.prompts_max = 2;
  params.tokens_max = 24;
  params.no_plain = true;
  json_t *one = eval_ok(&params);
  params.concurrency = 3;
  json_t *three = eval_ok(&params);
  assert_same_sources(one, three);
  assert_null(json_object_get(one, "identical"));
  assert_null(json_object_get(one, "speedup"));
  params.draft_len = 2;
  json_t *two = eval_ok(&params);
  check_tally(json_object_get(two, "overall"), 2);
  assert_true(real(json_object_get(two, "overall"), "acceptance_length") <= 3);
  params.temperature = 1;
  params.seed = 5;
  params.no_plain = false;
  json_t *sampled = eval_ok(&params), *again = eval_ok(&params);
  assert_true(json_is_null(json_object_get(sampled, "identical")));
  assert_true(json_equal(json_object_get(sampled, "overall"), json_object_get(again, "overall")));
  json_decref(one);
  json_decref(two);
  json_decref(three);
  json_decref(sampled);
  json_decref(again);
  free(prompts);
  free(head);
}

static void test_prompts(void **state) {
  struct pipeline *p = *state;
  char *head = make_head(p);
  if (!head) skip();
  free(scratch_write(p->directory, "data.jsonl", /* the answer a row carries is cut off: rows 1 and 2 ask the same */
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"Book a "
                     "table.\"},{\"role\":\"assistant\",\"content\":\"zzz zzz\"}],\"source\":\"a\"}\n"
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"Book a table.\"}],\"source\":\"b\"}\n"
                     "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}]}\n"
                     "{\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}\n"
                     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}\n"));
  struct eaglet_eval_params params = eval_params(p, head, (const char *const *)&p->data);
  params.tokens_max = 12;
  json_t *json = eval_ok(&params), *sources = json_object_get(json, "sources");
  assert_int_equal(report_int(json_object_get(json, "overall"), "prompts"), 2);
  assert_same_counts(json_object_get(sources, "a"), json_object_get(sources, "b"));
  assert_int_equal(report_int(json_object_get(json, "skipped"), "nothing is asked"), 2);
  assert_int_equal(report_int(json_object_get(json, "skipped"), "refused by the chat template"), 1);
  json_decref(json);
  free(scratch_write(p->directory, "data.jsonl", "{\"messages\":[]}\n"));
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  assert_failed_with(evaluate_run(&params, &text, &err), EAGLET_E_INPUT, &err,
                     "no usable prompt: nothing is asked (1)");
  params.tokens_max = 5000;
  assert_failed_with(evaluate_run(&params, &text, &err), EAGLET_E_USAGE, &err,
                     "tokens per prompt: expected fewer than 4096");
  params.draft = NULL;
  assert_failed_with(evaluate_run(&params, &text, &err), EAGLET_E_USAGE, &err, "no draft given");
  free(head);
}

static void test_stop_request(void **state) {
  struct pipeline *p = *state;
  char *head = make_head(p);
  if (!head) skip();
  struct stopper stopper = {.stop_at = 1};
  free(scratch_write(p->directory, "data.jsonl",
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n{\"messages\":[{\"role\":\"user\","
                     "\"content\":\"b\"}]}\n"));
  struct eaglet_eval_params params = eval_params(p, head, (const char *const *)&p->data);
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  params.tokens_max = 4;
  params.progress = (struct eaglet_progress){stopper_report, &stopper};
  assert_failed_with(evaluate_run(&params, &text, &err), EAGLET_E_INTERRUPTED, &err, "stopped after 1 of 2 prompts");
  assert_null(text.data);
  free(head);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      PIPELINE_TEST(test_oracle),
      PIPELINE_TEST(test_settings),
      PIPELINE_TEST(test_prompts),
      PIPELINE_TEST(test_stop_request),
  };
  return cmocka_run_group_tests_name("evaluate", tests, NULL, NULL);
}
