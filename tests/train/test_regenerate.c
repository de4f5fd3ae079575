/* test_regenerate.c - on-policy data. Method: the same conversations regenerated at several concurrencies must give the
 * same bytes; trained tokens must be what the engine writes after the same prompt; a file that a kill cut at any place
 * must be completed to the same bytes. */
#include "pipeline.h"

#include "base/buffer.h"

#include "engine/engine.h"

#include <math.h>

#define REPLY_TOKENS 20

#define DATA                                                                                                           \
  "{\"conversations\":[{\"from\":\"human\",\"value\":\"I need a taxi to the "                                          \
  "airport.\"},{\"from\":\"gpt\",\"value\":\"zzz\"},"                                                                  \
  "{\"from\":\"human\",\"value\":\"At six, please.\"}],\"source\":\"dialogue\"}\n"                                     \
  "{\"conversations\":[{\"from\":\"human\",\"value\":\"Find me a cheap hotel in "                                      \
  "Boston.\"}],\"source\":\"dialogue\"}\n"                                                                             \
  "{\"messages\":[]}\n"                                                                                                \
  "{\"conversations\":[{\"from\":\"human\",\"value\":\"What is 3 + "                                                   \
  "4?\"},{\"from\":\"gpt\",\"value\":\"seven\"},{\"from\":\"gpt\",\"value\":\"7\"}]}\n"                                \
  "{\"conversations\":[{\"from\":\"gpt\",\"value\":\"Hello!\"},{\"from\":\"human\",\"value\":\"Book a table for two "  \
  "tonight.\"},{\"from\":\"gpt\",\"value\":\"ok\"}]}\n"                                                                \
  "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"tool\",\"content\":\"y\"}]}\n"                     \
  "{\"conversations\":[{\"from\":\"human\",\"value\":\"Tell me about the sea.\"}]}\n"

static struct eaglet_prepare_params regenerate_params(const struct pipeline *p) {
  struct eaglet_prepare_params params = prepare_params(p);
  params.regenerate = true;
  params.tokens_max = 256;
  params.reply_tokens_max = REPLY_TOKENS;
  params.concurrency = 3;
  return params;
}

static void remove_out(const struct pipeline *p) {
  char *command = memory_format("rm -rf '%s'", p->out);
  assert_int_equal(system(command), 0);
  free(command);
}

static void assert_same_text(struct eaglet_text a, struct eaglet_text b) {
  assert_int_equal(a.length, b.length);
  assert_memory_equal(a.data, b.data, a.length);
  free(b.data);
}

static void test_concurrency(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl", DATA));
  const float temperatures[] = {0.0f, 0.8f};
  struct eaglet_text first[2] = {{0}};
  for (int t = 0; t < 2; t++) {
    for (int32_t concurrency = 1; concurrency <= 5; concurrency += 2) {
      remove_out(p);
      struct eaglet_prepare_params params = regenerate_params(p);
      params.concurrency = concurrency;
      params.temperature = temperatures[t];
      json_decref(prepare_ok(&params));
      struct eaglet_text shard = scratch_read(p->out, "train-00000.safetensors");
      if (concurrency == 1)
        first[t] = shard;
      else
        assert_same_text(first[t], shard);
    }
  }
  assert_true(first[0].length != first[1].length || memcmp(first[0].data, first[1].data, first[0].length) != 0);
  free(first[0].data);
  free(first[1].data);
}

static void test_report(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl", DATA));
  struct eaglet_prepare_params params = regenerate_params(p);
  json_t *report = prepare_ok(&params);
  const json_t *regenerated = json_object_get(report, "regenerated");
  assert_int_equal(report_int(report, "rows_read"), 7);
  assert_int_equal(report_int(report, "rows_kept"), 5);
  assert_int_equal(dropped(report, "empty conversation"), 1);
  assert_int_equal(dropped(report, "tool calls, which cannot be regenerated"), 1);
  assert_int_equal(report_int(regenerated, "replies"), 6); /* two in the first conversation, one in the others */
  assert_int_equal(report_int(regenerated, "rows_of_their_own"), 0);
  assert_true(report_int(regenerated, "tokens") > 20);
  json_decref(report);
  report = prepare_ok(&params); /* everything is there: nothing is computed, the answer is the same */
  assert_int_equal(report_int(report, "rows_kept"), 5);
  assert_int_equal(report_int(json_object_get(report, "regenerated"), "replies"), 6);
  json_decref(report);
}

/* Greedy answers of a plain engine to the rows' own prompts are the rows' trained tokens. */
static void check_rows_by_engine(const struct pipeline *p, int32_t n_output) {
  const struct eaglet_engine_params engine_params = {.model = p->model};
  struct engine *engine;
  struct token_store store;
  struct eaglet_error err = {0};
  store_open(&store, p->out);
  assert_ok(engine_open(&engine, &engine_params, &err), &err);
  for (size_t r = 0; r < store.n_rows; r++) {
    const struct token_row *row = &store.rows[r];
    for (int32_t i = 1; i < row->n; i++) {
      if (!row->mask[i] || row->mask[i - 1]) continue; /* a reply begins at i */
      const struct eaglet_sequence_params params = {.prompt = row->tokens, .n_prompt = i, .output_max = n_output};
      struct sequence *sequence;
      const int32_t *ids;
      int32_t n_live = 1, end = i;
      assert_ok(sequence_create(&sequence, engine, &params, &err), &err);
      while (n_live > 0) assert_ok(engine_step(engine, &n_live, &err), &err);
      while (end < row->n && row->mask[end]) end++;
      int32_t n = sequence_output(sequence, &ids);
      assert_int_equal(n, end - i);
      assert_memory_equal(ids, row->tokens + i, (size_t)n * sizeof *ids);
      if (sequence_stop(sequence) == EAGLET_STOP_LENGTH && end < row->n) { /* cut: the template's end-of-turn follows, not trained */
        assert_int_equal(row->tokens[end], 4066);
        assert_int_equal(row->mask[end], 0);
      }
      sequence_free(sequence);
    }
  }
  engine_close(engine);
  token_store_close(&store);
}

static void test_on_policy(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl", DATA));
  struct eaglet_prepare_params params = regenerate_params(p);
  json_decref(prepare_ok(&params));
  check_rows_by_engine(p, REPLY_TOKENS);
}

static void test_cut_by_length(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(
      p->directory, "data.jsonl",
      "{\"conversations\":[{\"from\":\"human\",\"value\":\"Tell me about the sea and the ships on it.\"}]}\n"));
  struct eaglet_prepare_params params = regenerate_params(p);
  params.reply_tokens_max = 4;
  json_t *report = prepare_ok(&params);
  assert_int_equal(report_int(json_object_get(report, "regenerated"), "cut_by_length"), 1);
  assert_int_equal(report_int(report, "trained_tokens"), 4);
  json_decref(report);
  check_rows_by_engine(p, 4);
}

/* A kill leaves whole lines and at most one torn one. Whatever is left, the next run completes to the same shard. */
static void test_resume_after_kill(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl", DATA));
  struct eaglet_prepare_params params = regenerate_params(p);
  json_decref(prepare_ok(&params));
  struct eaglet_text shard = scratch_read(p->out, "train-00000.safetensors"),
                     lines = scratch_read(p->out, "regenerated.jsonl");
  const size_t cuts[] = {0, 10, lines.length / 3, lines.length / 2, lines.length - 1};
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    remove_out(p);
    assert_int_equal(file_make_directory(p->out, NULL), EAGLET_OK);
    free(scratch_write_bytes(p->out, "regenerated.jsonl", lines.data, cuts[i]));
    json_t *report = prepare_ok(&params);
    assert_int_equal(report_int(report, "rows_kept"), 5);
    json_decref(report);
    assert_same_text(shard, scratch_read(p->out, "train-00000.safetensors"));
    struct eaglet_text again = scratch_read(p->out, "regenerated.jsonl");
    assert_int_equal(again.length, lines.length); /* the same lines, perhaps in another order */
    free(again.data);
  }
  free(shard.data);
  free(lines.data);
}

static void test_stop_request(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl", DATA));
  struct stopper stopper = {.stop_at = 1};
  struct eaglet_prepare_params params = regenerate_params(p);
  params.progress = (struct eaglet_progress){stopper_report, &stopper};
  prepare_fails(&params, EAGLET_E_INTERRUPTED, "run the same command to go on");
  struct token_store store;
  assert_int_equal(token_store_open(&store, p->out, false, NULL), EAGLET_E_INPUT);
  stopper.stop_at = 0;
  json_t *report = prepare_ok(&params);
  assert_int_equal(report_int(report, "rows_kept"), 5);
  assert_true(stopper.calls >= 2);
  json_decref(report);
}

static void test_refusals(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl", DATA));
  struct eaglet_prepare_params params = regenerate_params(p);
  json_decref(prepare_ok(&params));
  params.temperature = 1;
  prepare_fails(&params, EAGLET_E_INPUT, "regenerated.jsonl: temperature: expected 1.0, found 0.0");
  params = regenerate_params(p);
  params.seed = 3;
  prepare_fails(&params, EAGLET_E_INPUT, "regenerated.jsonl: seed: expected 3, found 0");
  params = regenerate_params(p);
  free(scratch_write(p->directory, "data.jsonl", DATA "{\"messages\": 4}\n")); /* told before any work */
  remove_out(p);
  prepare_fails(&params, EAGLET_E_INPUT, "data.jsonl:8: expected conversations or messages");
  free(scratch_write(p->out, "regenerated.jsonl", "{\"no\":\"settings\"}\n"));
  prepare_fails(&params, EAGLET_E_INPUT, "regenerated.jsonl: format: expected");
}

/* C10: answers belong to conversations, not to places. Half of the data first; then all of it in another order, with rows gone, new and twice:
 * nothing is asked again, and the rows are those of one run. */
static void test_resume_with_other_data(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  static const char *const rows[] = {"alpha", "beta", "gamma", "delta", "epsilon", "beta"};
  static const int orders[2][5] = {{1, 0, 3, 2, -1}, {4, 5, 2, 1, 0}}; /* the second without delta, with a second beta and with epsilon */
  struct eaglet_text lines[2] = {{0}}, shard = {0};
  for (int fresh = 0; fresh < 2; fresh++) {
    remove_out(p);
    for (int run = fresh; run < 2; run++) {
      struct buffer data;
      buffer_init(&data);
      for (int i = 0; i < 5 && orders[run][i] >= 0; i++)
        buffer_format(&data, "{\"messages\":[{\"role\":\"user\",\"content\":\"say %s\"}]}\n", rows[orders[run][i]]);
      free(scratch_write(p->directory, "data.jsonl", data.data));
      buffer_clear(&data);
      struct eaglet_prepare_params params = regenerate_params(p);
      params.temperature = 0.8f;
      json_decref(prepare_ok(&params));
      if (!fresh) lines[run] = scratch_read(p->out, "regenerated.jsonl");
    }
    struct eaglet_text now = scratch_read(p->out, "train-00000.safetensors");
    if (fresh) assert_same_text(shard, now);
    else shard = now;
  }
  assert_true(lines[1].length > lines[0].length);
  assert_memory_equal(lines[0].data, lines[1].data, lines[0].length); /* what was there stayed */
  int n_lines = 0;
  for (size_t i = 0; i < lines[1].length; i++) n_lines += lines[1].data[i] == '\n';
  assert_int_equal(n_lines, 1 + 4 + 2);
  free(lines[0].data);
  free(lines[1].data);
  free(shard.data);
}

/* A prompt as long as a row leaves no room for an answer. */
static void test_long_prompts(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl", DATA));
  struct eaglet_prepare_params params = regenerate_params(p);
  params.tokens_max = 24;
  json_t *report = prepare_ok(&params);
  assert_true(report_int(report, "rows_kept") >= 1);
  struct token_store store;
  store_open(&store, p->out);
  for (size_t i = 0; i < store.n_rows; i++) assert_true(store.rows[i].n <= 24);
  token_store_close(&store);
  json_decref(report);
  remove_out(p);
  params.tokens_max = 9;
  prepare_fails(&params, EAGLET_E_INPUT, "prompt longer than a row");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      PIPELINE_TEST(test_concurrency),       PIPELINE_TEST(test_report),
      PIPELINE_TEST(test_on_policy),         PIPELINE_TEST(test_cut_by_length),
      PIPELINE_TEST(test_resume_with_other_data),
      PIPELINE_TEST(test_resume_after_kill), PIPELINE_TEST(test_stop_request),
      PIPELINE_TEST(test_refusals),          PIPELINE_TEST(test_long_prompts),
  };
  return cmocka_run_group_tests_name("regenerate", tests, NULL, NULL);
}
