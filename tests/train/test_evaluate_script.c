/* test_evaluate_script.c - what evaluation reports of a pair whose every round is known (cases G25 and G26): a script with a tokenizer of 64
 * letters and a template that is nothing but the content, so that a prompt's last letter decides the whole answer.
 */
#include "../engine/script_fixture.h"

#include "base/buffer.h"
#include "base/json.h"
#include "train/evaluate.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
#define TEMPLATE "{% for m in messages %}{{ m['content'] }}{% endfor %}"

struct world {
  struct script script;
  char prompts[128]; /* path */
};

/* Letter i is token i. */
static void write_tokenizer(const char *directory) {
  struct buffer vocabulary;
  buffer_init(&vocabulary);
  for (int i = 0; i < SCRIPT_VOCAB; i++) buffer_format(&vocabulary, "%s\"%c\":%d", i > 0 ? "," : "", LETTERS[i], i);
  char *text = memory_format("{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,"
                             "\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"vocab\":{%s},\"merges\":[]}}",
                             vocabulary.data);
  write_text(directory, "tokenizer.json", text);
  write_text(directory, "tokenizer_config.json", "{\"chat_template\": \"" TEMPLATE "\"}");
  free(text);
  buffer_clear(&vocabulary);
}

static void write_prompts(struct world *w, const char *rows) {
  snprintf(w->prompts, sizeof w->prompts, "%s/prompts.jsonl", w->script.draft);
  write_text(w->script.draft, "prompts.jsonl", rows);
}

static void world_create(struct world *w, const struct script_params *p) {
  script_write(&w->script, p);
  write_tokenizer(w->script.target);
  write_prompts(w, "{\"messages\":[{\"role\":\"user\",\"content\":\"xyzU\"}],\"source\":\"rigged\"}\n"); /* U: token 20 */
}

static json_t *evaluate(const struct world *w, struct eaglet_eval_params params) {
  const char *prompts = w->prompts;
  struct eaglet_text text;
  struct eaglet_error err = {0};
  json_t *report;
  params.model = w->script.target;
  params.draft = w->script.draft;
  params.prompts = &prompts;
  params.n_prompts = 1;
  params.threads = 1;
  assert_ok(evaluate_run(&params, &text, &err), &err);
  assert_ok(json_parse(&report, text.data, text.length, "report", &err), &err);
  free(text.data);
  return report;
}

static double real(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number %s", key);
  return json_number_value(value);
}

static void expect_shares(const json_t *row, const char *key, const double *expected, size_t n) {
  const json_t *shares = json_object_get(row, key);
  assert_int_equal(json_array_size(shares), n);
  for (size_t i = 0; i < n; i++) {
    double found = json_number_value(json_array_get(shares, i));
    if (fabs(found - expected[i]) > 1e-12) fail_msg("%s %zu: %.6f, expected %.6f", key, i, found, expected[i]);
  }
}

static void expect_text(const json_t *object, const char *key, const char *expected) {
  const char *found = json_string_value(json_object_get(object, key));
  if (!found || strcmp(found, expected) != 0) fail_msg("%s: %s, expected %s", key, found ? found : "none", expected);
}

/* Elements 4, 5 and 8 of the answer are never drafted: rounds of four drafts accept 3, 0, 2 and 4. */
static void test_rigged(void **state) {
  (void)state;
  static const double per_position[] = {0.75, 0.75, 0.5, 0.25}, conditional[] = {0.75, 1, 2.0 / 3, 0.5};
  const struct script_params walk = {.n_vocab = 0};
  const int32_t wrong[] = {script_walk(&walk, 20, 5), script_walk(&walk, 20, 6), script_walk(&walk, 20, 9)};
  const struct script_params p = {.wrong = wrong, .n_wrong = 3};
  struct world w;
  world_create(&w, &p);
  json_t *report = evaluate(&w, (struct eaglet_eval_params){.draft_len = 4, .tokens_max = 14}), *overall = json_object_get(report, "overall"),
         *source = json_object_get(json_object_get(report, "sources"), "rigged");
  assert_true(real(overall, "acceptance_length") == 3.25 && real(overall, "accepted_per_round") == 2.25);
  assert_true(real(overall, "rounds") == 4 && real(overall, "accepted") == 9 && real(overall, "drafted") == 16);
  assert_true(real(overall, "output_tokens") == 14 && real(overall, "prompts") == 1);
  expect_shares(overall, "per_position", per_position, 4);
  expect_shares(overall, "conditional", conditional, 4);
  expect_shares(source, "per_position", per_position, 4);
  expect_text(report, "drafter", "head");
  expect_text(report, "shape", "chain");
  assert_true(real(report, "draft_len") == 4 && real(report, "draft_width") == 1 && real(report, "draft_tokens") == 4);
  assert_true(real(report, "temperature") == 0 && real(report, "max_tokens") == 14 && real(report, "prompts") == 1);
  assert_true(json_is_true(json_object_get(report, "identical")));
  assert_string_equal(json_string_value(json_array_get(json_object_get(report, "prompt_files"), 0)), w.prompts);
  json_decref(report);
  script_remove(&w.script);
}

/* Right and wrong in every round. A perfect head gives every round its drafts and the bonus; a hostile one the bonus alone. */
static void test_extremes(void **state) {
  (void)state;
  for (int hostile = 0; hostile < 2; hostile++) {
    const struct script_params p = {.hostile = hostile};
    struct world w;
    world_create(&w, &p);
    json_t *report = evaluate(&w, (struct eaglet_eval_params){.draft_len = 4, .tokens_max = 51}), *overall = json_object_get(report, "overall");
    const double shares[] = {!hostile, !hostile, !hostile, !hostile}, chances[] = {!hostile, !hostile, !hostile, !hostile};
    assert_true(real(overall, "acceptance_length") == (hostile ? 1 : 5));
    assert_true(real(overall, "accepted_per_round") == (hostile ? 0 : 4));
    expect_shares(overall, "per_position", shares, 4);
    expect_shares(overall, "conditional", chances, 4);
    assert_true(json_is_true(json_object_get(report, "identical")));
    json_decref(report);
    script_remove(&w.script);
  }
}

/* What the numbers depend on is in the document, as the engine had it; every measure has its definition. */
static void test_settings(void **state) {
  (void)state;
  static const char *const measures[] = {"acceptance_length", "accepted_per_round", "per_position", "conditional", "by_context"};
  const struct script_params p = {.n_vocab = 0};
  struct world w;
  world_create(&w, &p);
  json_t *tree = evaluate(&w, (struct eaglet_eval_params){.draft_len = 3, .draft_width = 4, .tokens_max = 20, .temperature = 0.5f, .seed = 9});
  expect_text(tree, "shape", "tree");
  assert_true(real(tree, "draft_len") == 3 && real(tree, "draft_width") == 4 && real(tree, "draft_tokens") == 24);
  assert_true(real(tree, "temperature") == 0.5 && real(tree, "seed") == 9 && json_is_null(json_object_get(tree, "identical")));
  expect_text(json_object_get(tree, "template"), "file", "tokenizer_config.json");
  for (size_t i = 0; i < sizeof measures / sizeof *measures; i++) {
    assert_non_null(json_object_get(json_object_get(tree, "overall"), measures[i]));
    assert_true(json_string_length(json_object_get(json_object_get(tree, "definitions"), measures[i])) > 20);
  }
  /* another template is another hash; the same one is the same */
  json_t *again = evaluate(&w, (struct eaglet_eval_params){.no_plain = true});
  assert_true(json_equal(json_object_get(again, "template"), json_object_get(tree, "template")));
  assert_true(real(again, "draft_len") == 7 && real(again, "draft_tokens") == 7);
  write_text(w.script.target, "chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  json_t *other = evaluate(&w, (struct eaglet_eval_params){.no_plain = true});
  expect_text(json_object_get(other, "template"), "file", "chat_template.jinja");
  assert_false(json_equal(json_object_get(json_object_get(other, "template"), "xxh3"), json_object_get(json_object_get(tree, "template"), "xxh3")));
  assert_true(json_equal(json_object_get(other, "overall"), json_object_get(again, "overall")));
  json_decref(other);
  json_decref(again);
  json_decref(tree);
  script_remove(&w.script);
}

/* The end of an answer within a block: what comes behind it is not counted (G25, G03). */
static void test_stop_within(void **state) {
  (void)state;
  for (int32_t at = 1; at <= 5; at++) {
    const struct script_params walk = {.n_vocab = 0};
    const int32_t eos = script_walk(&walk, 20, 1 + at);
    const struct script_params p = {.eos = &eos, .n_eos = 1};
    struct world w;
    world_create(&w, &p);
    json_t *report = evaluate(&w, (struct eaglet_eval_params){.draft_len = 4, .tokens_max = 40}), *overall = json_object_get(report, "overall");
    assert_true(real(overall, "output_tokens") == 1 + at && real(overall, "rounds") == 1);
    assert_true(real(overall, "acceptance_length") == at && real(overall, "accepted") == (at < 4 ? at : 4));
    json_decref(report);
    script_remove(&w.script);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rigged),
      cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_settings),
      cmocka_unit_test(test_stop_within),
  };
  return cmocka_run_group_tests_name("evaluate_script", tests, NULL, NULL);
}
