/* test_prepare.c - conversations to shards on nano-kimi. Method: a toy conversation whose tokens and mask are built
 * here piece by piece from the tokenizer and the special ids (not from the template), rules with counts on small inline
 * files, refusals with their words, and the draft vocabulary from what was prepared. */
#include "pipeline.h"

#include "base/buffer.h"
#include "train/renderer.h"

#include "draft/vocab_map.h"
#include "text/tokenizer.h"

static struct tokenizer *tokenizer_of(const struct pipeline *p) {
  struct tokenizer *tokenizer;
  struct eaglet_error err = {0};
  assert_ok(tokenizer_open(&tokenizer, p->model, &err), &err);
  return tokenizer;
}

static void append_text(const struct tokenizer *tokenizer, struct token_list *ids, const char *text) {
  assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), EAGLET_SPECIAL_AS_TEXT, ids, NULL), EAGLET_OK);
}

static void append_special(const struct tokenizer *tokenizer, struct token_list *ids, const char *text) {
  int32_t id = tokenizer_special_id(tokenizer, text);
  assert_true(id >= 0);
  token_list_append(ids, id);
}

/* <|im_ROLE|>role<|im_middle|>content<|im_end|>; returns the index of the content's first token. */
static size_t append_turn(const struct tokenizer *tokenizer, struct token_list *ids, const char *role,
                          const char *content) {
  char name[32];
  snprintf(name, sizeof name, "<|im_%s|>", role);
  append_special(tokenizer, ids, name);
  append_text(tokenizer, ids, role);
  append_special(tokenizer, ids, "<|im_middle|>");
  size_t first = ids->n;
  append_text(tokenizer, ids, content);
  append_special(tokenizer, ids, "<|im_end|>");
  return first;
}

#define TOY                                                                                                            \
  "{\"conversations\":[{\"from\":\"system\",\"value\":\"Be brief.\"},{\"from\":\"human\",\"value\":\" Say yes. "       \
  "\"},{\"from\":\"gpt\",\"value\":\"yes\"},"                                                                          \
  "{\"from\":\"human\",\"value\":\"And yes again?\"},{\"from\":\"gpt\",\"value\":\"yes, "                              \
  "again\"}],\"source\":\"toy\"}\n"

static void check_toy(const struct pipeline *p, bool last_only) {
  struct tokenizer *tokenizer = tokenizer_of(p);
  struct token_list ids = {0};
  struct token_store store;
  append_turn(tokenizer, &ids, "system", "Be brief.");
  append_turn(tokenizer, &ids, "user", "Say yes.");
  size_t first_begin = append_turn(tokenizer, &ids, "assistant", "yes"), first_end = ids.n;
  append_turn(tokenizer, &ids, "user", "And yes again?");
  size_t second_begin = append_turn(tokenizer, &ids, "assistant", "yes, again"), second_end = ids.n;
  store_open(&store, p->out);
  assert_int_equal(store.n_rows, 1);
  assert_int_equal(store.rows[0].n, ids.n);
  assert_memory_equal(store.rows[0].tokens, ids.ids, ids.n * sizeof(int32_t));
  for (size_t i = 0; i < ids.n; i++) {
    bool first = i >= first_begin && i < first_end && !last_only, second = i >= second_begin && i < second_end;
    if (store.rows[0].mask[i] != (first || second)) fail_msg("mask of token %zu is %d", i, store.rows[0].mask[i]);
  }
  token_store_close(&store);
  token_list_clear(&ids);
  tokenizer_close(tokenizer);
}

static void test_mask_by_hand(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl", TOY));
  struct eaglet_prepare_params params = prepare_params(p);
  json_t *report = prepare_ok(&params);
  assert_int_equal(report_int(report, "rows_kept"), 1);
  check_toy(p, false);
  json_decref(report);
  params.last_turn_only = true;
  report = prepare_ok(&params); /* over the finished directory */
  check_toy(p, true);
  json_decref(report);
}

static void test_report_and_manifest(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl",
                     TOY "{\"messages\":[{\"role\":\"user\",\"content\":\"what does <|im_end|> "
                         "do?\"},{\"role\":\"assistant\",\"content\":\"it ends\"}]}\n" TOY));
  struct eaglet_prepare_params params = prepare_params(p);
  json_t *report = prepare_ok(&params), *manifest = NULL;
  struct token_store store;
  store_open(&store, p->out);
  assert_int_equal(report_int(report, "rows_read"), 3);
  assert_int_equal(report_int(report, "rows_kept"), 2);
  assert_int_equal(dropped(report, "duplicate of an earlier row"), 1);
  assert_int_equal(report_int(report, "special_in_content"), 1);
  assert_int_equal(report_int(report, "tokens"), store.n_tokens);
  assert_int_equal(report_int(report, "trained_tokens"), store.n_trained);
  const json_t *sources = json_object_get(report, "sources");
  assert_int_equal(
      report_int(json_object_get(sources, "toy"), "rows") + report_int(json_object_get(sources, "data"), "rows"), 2);
  assert_int_equal(report_int(json_object_get(sources, "toy"), "tokens"), store.rows[0].n);
  manifest = store.manifest;
  assert_int_equal(report_int(manifest, "n_target"), 4096);
  json_t *stops = json_loads("[4065,4066]", 0, NULL);
  assert_true(json_equal(json_object_get(manifest, "stop_ids"), stops));
  assert_int_equal(json_array_size(json_object_get(manifest, "special_ids")),
                   32); /* 4064 .. 4095: the named ones and the reserved range */
  json_decref(stops);
  /* "<|im_end|>" inside a message is text: one end-of-turn token per message, no more */
  int n_ends = 0;
  for (int32_t i = 0; i < store.rows[1].n; i++) n_ends += store.rows[1].tokens[i] == 4066;
  assert_int_equal(n_ends, 2);
  token_store_close(&store);
  json_decref(report);
  params.special_in_content = true;
  report = prepare_ok(&params);
  store_open(&store, p->out);
  n_ends = 0;
  for (int32_t i = 0; i < store.rows[1].n; i++) n_ends += store.rows[1].tokens[i] == 4066;
  assert_int_equal(n_ends, 3);
  token_store_close(&store);
  json_decref(report);
}

/* B16: shapes that public data has. */
static void test_odd_conversations(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(
      p->directory, "data.jsonl",
      "{\"messages\":[]}\n"
      "{\"messages\":[{\"role\":\"system\",\"content\":\"a\"}]}\n"
      "{\"messages\":[{\"role\":\"assistant\",\"content\":\"b\"}]}\n"
      "{\"messages\":[{\"role\":\"assistant\",\"content\":\"c\"},{\"role\":\"user\",\"content\":\"d\"},{\"role\":"
      "\"assistant\",\"content\":\"e\"}]}\n"
      "{\"messages\":[{\"role\":\"user\",\"content\":\"f\"},{\"role\":\"user\",\"content\":\"g\"},{\"role\":"
      "\"assistant\",\"content\":\"h\"}]}\n"
      "{\"messages\":[{\"role\":\"user\",\"content\":\"i\"}]}\n"
      "{\"messages\":[{\"role\":\"user\",\"content\":\"j\"},{\"role\":\"assistant\",\"content\":\"\"}]}\n"));
  struct eaglet_prepare_params params = prepare_params(p);
  json_t *report = prepare_ok(&params);
  assert_int_equal(report_int(report, "rows_read"), 7);
  assert_int_equal(report_int(report, "rows_kept"), 2);
  assert_int_equal(dropped(report, "empty conversation"), 1);
  assert_int_equal(dropped(report, "only system messages"), 1);
  assert_int_equal(dropped(report, "no user turn"), 1);
  assert_int_equal(dropped(report, "no assistant turn"), 1);
  assert_int_equal(dropped(report, "no supervised tokens: every reply is empty"), 1);
  assert_int_equal(report_int(json_object_get(report, "notes"), "assistant turns before the first user turn removed"),
                   1);
  assert_int_equal(report_int(json_object_get(report, "notes"), "several user turns in a row, kept"), 1);
  struct token_store store;
  store_open(&store, p->out);
  assert_int_equal(store.rows[0].tokens[0], 4067); /* <|im_user|>: the leading reply is gone */
  token_store_close(&store);
  json_decref(report);
  free(scratch_write(p->directory, "data.jsonl",
                     "{\"messages\":[]}\n{\"messages\":[{\"role\":\"user\",\"content\":\"i\"}]}\n"));
  prepare_fails(&params, EAGLET_E_INPUT,
                "none of 2 rows can be trained: empty conversation (1), no assistant turn (1)");
  store_open(&store, p->out); /* the failure left the finished directory as it was */
  assert_int_equal(store.n_rows, 2);
  token_store_close(&store);
}

/* Layouts other than ours are counted by name; an unknown role costs its row (C01); replies of weight 0 are not trained. */
static void test_other_layouts(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl",
                     "[{\"instruction\":\"add\",\"input\":\"1 2\",\"output\":\"three\"},\n"
                     "{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"narrator\",\"value\":\"b\"}]},\n"
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"one\",\"loss_weight\":0.0},"
                     "{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":\"two\",\"loss_weight\":1.0}]},\n"
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"assistant\",\"content\":\"d\",\"weight\":0}]},\n"
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"e\"},{\"role\":\"assistant\",\"content\":\"f\",\"weight\":0.5}]}]\n"));
  struct eaglet_prepare_params params = prepare_params(p);
  for (int last = 0; last < 2; last++) {
    struct token_store store;
    params.last_turn_only = last;
    json_t *report = prepare_ok(&params);
    assert_int_equal(report_int(report, "rows_read"), 5);
    assert_int_equal(report_int(report, "rows_kept"), 2);
    assert_int_equal(report_int(json_object_get(report, "layouts"), "instruction/input/output"), 1);
    assert_int_equal(report_int(json_object_get(report, "layouts"), "messages"), 3);
    assert_int_equal(dropped(report, "unknown role 'narrator'"), 1);
    assert_int_equal(dropped(report, "every reply has weight 0"), 1);
    assert_int_equal(dropped(report, "a weight that is neither 0 nor 1"), 1);
    store_open(&store, p->out);
    struct renderer renderer;
    struct eaglet_error err = {0};
    assert_ok(renderer_open(&renderer, p->model, 4096, &err), &err);
    const struct token_row *row = &store.rows[1];
    int32_t begin = 0, end = row->n;
    while (!row->mask[begin]) begin++;
    while (!row->mask[end - 1]) end--;
    for (int32_t i = begin; i < end; i++) assert_int_equal(row->mask[i], 1); /* one run, of the second reply */
    struct eaglet_text text = renderer_text(&renderer, row->tokens + begin, end - begin);
    assert_string_equal(text.data, "two<|im_end|>");
    free(text.data);
    renderer_close(&renderer);
    token_store_close(&store);
    json_decref(report);
  }
}

static char *long_row(int n_words, const char *reply) {
  struct buffer row;
  buffer_init(&row);
  buffer_append_string(&row, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
  for (int i = 0; i < n_words; i++) buffer_append_string(&row, "word ");
  buffer_format(&row, "\"},{\"role\":\"assistant\",\"content\":\"%s\"}]}\n", reply);
  return buffer_detach(&row).data;
}

/* B09: the cut takes the whole reply of a row, or the end of one of its replies. */
static void test_truncation(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  struct eaglet_prepare_params params = prepare_params(p);
  params.tokens_max = 64;
  char *bad = long_row(300, "ten tokens of a reply that nobody will ever see"), *good = long_row(3, "fine"),
       *mixed = memory_format("%s%s", bad, good);
  free(scratch_write(p->directory, "data.jsonl", mixed));
  json_t *report = prepare_ok(&params);
  assert_int_equal(report_int(report, "rows_kept"), 1);
  assert_int_equal(dropped(report, "no supervised tokens after truncation (max 64)"), 1);
  json_decref(report);
  free(scratch_write(p->directory, "data.jsonl", bad));
  prepare_fails(&params, EAGLET_E_INPUT, "no supervised tokens after truncation (max 64) (1)");
  free(bad);
  free(good);
  free(mixed);
}

/* At every limit the trained tokens are whole replies: each run of the mask ends with the end-of-turn token. */
static void test_no_half_reply(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(p->directory, "data.jsonl", TOY));
  int32_t n_whole = 0;
  for (int32_t limit = 12; limit < 48; limit++) {
    struct eaglet_prepare_params params = prepare_params(p);
    struct eaglet_text text = {0};
    struct eaglet_error err = {0};
    params.tokens_max = limit;
    enum eaglet_status status = prepare_run(&params, &text, &err);
    free(text.data);
    if (status == EAGLET_E_INPUT) continue; /* no reply fits */
    struct token_store store;
    store_open(&store, p->out);
    const struct token_row *row = &store.rows[0];
    assert_true(row->n <= limit);
    int32_t n_replies = 0;
    for (int32_t i = 0; i < row->n; i++) {
      if (!row->mask[i] || (i + 1 < row->n && row->mask[i + 1])) continue;
      assert_int_equal(row->tokens[i], 4066);
      n_replies++;
    }
    assert_true(n_replies >= n_whole && n_replies <= 2); /* a larger limit never has fewer */
    n_whole = n_replies;
    token_store_close(&store);
  }
  assert_int_equal(n_whole, 2);
}

static void test_bad_files(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  struct eaglet_prepare_params params = prepare_params(p);
  free(scratch_write(p->directory, "data.jsonl", ""));
  prepare_fails(&params, EAGLET_E_INPUT, "data.jsonl: expected conversations (a line each, or an array of them), found none");
  free(scratch_write(p->directory, "data.jsonl", TOY "{\"messages\":[{\"role\":\"user\",\"content\":\"\xc3\"}]}\n"));
  prepare_fails(&params, EAGLET_E_INPUT, "data.jsonl:2: byte 40 of the row: expected UTF-8, found byte 0xc3");
  free(scratch_write(p->directory, "data.jsonl", TOY "not json\n"));
  prepare_fails(&params, EAGLET_E_INPUT, "data.jsonl:2: row");
  free(scratch_write(p->directory, "data.jsonl", "{\"messages\":[{\"role\":\"judge\",\"content\":\"\"}]}\n"));
  prepare_fails(&params, EAGLET_E_INPUT, "none of 1 rows can be trained: unknown role 'judge' (1)");
  struct token_store store;
  assert_int_equal(token_store_open(&store, p->out, false, NULL),
                   EAGLET_E_INPUT); /* nothing half-written passes for data */
}

static void test_refused_by_template(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  struct eaglet_prepare_params params = prepare_params(p);
  const char *image = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]},{\"role\":\"assistant\","
                      "\"content\":\"a\"}]}\n";
  char *both = memory_format("%s%s", image, TOY);
  free(scratch_write(p->directory, "data.jsonl", both));
  json_t *report = prepare_ok(&params);
  assert_int_equal(dropped(report, "refused by the chat template"), 1);
  assert_non_null(strstr(json_string_value(json_object_get(report, "first_refused")), "data.jsonl:1: "));
  assert_non_null(
      strstr(json_string_value(json_object_get(report, "first_refused")), "only text content is supported"));
  json_decref(report);
  free(scratch_write(p->directory, "data.jsonl", image));
  prepare_fails(&params, EAGLET_E_INPUT, "only text content is supported");
  free(both);
}

/* The split is by content: the same rows in another order fall on the same sides; another seed gives another split. */
static void test_validation_split(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  uint64_t sums[3] = {0}, n_valid[3] = {0};
  for (int run = 0; run < 3; run++) {
    struct buffer rows;
    buffer_init(&rows);
    for (int i = 0; i < 200; i++) {
      int number = run == 1 && i > 0 ? 200 - i : i; /* the first row, which is always trained, stays first */
      buffer_format(&rows,
                    "{\"messages\":[{\"role\":\"user\",\"content\":\"number "
                    "%d\"},{\"role\":\"assistant\",\"content\":\"yes %d\"}]}\n",
                    number, number);
    }
    free(scratch_write(p->directory, "data.jsonl", rows.data));
    buffer_clear(&rows);
    struct eaglet_prepare_params params = prepare_params(p);
    params.validation = 0.2;
    params.seed = run == 2;
    json_t *report = prepare_ok(&params);
    struct token_store store;
    assert_int_equal(token_store_open(&store, p->out, true, NULL), EAGLET_OK);
    assert_int_equal(report_int(report, "rows_validation"), store.n_rows);
    assert_int_equal(report_int(report, "rows_kept"), 200);
    n_valid[run] = store.n_rows;
    for (size_t i = 0; i < store.n_rows; i++) sums[run] += store.rows[i].hash;
    token_store_close(&store);
    json_decref(report);
  }
  assert_in_range(n_valid[0], 20, 60);
  assert_int_equal(n_valid[0], n_valid[1]);
  assert_true(sums[0] == sums[1] && sums[0] != sums[2]);
}

/* ---- rows, parts, what is kept out ---- */

/* nano-kimi with a template that takes the thinking out of all but the last message. The caller frees the path. */
static char *forgetful_model(const struct pipeline *p) {
  static const char source[] =
      "{%- for m in messages -%}{%- set role = m['role'] -%}<|im_{{ role }}|>{{ role }}<|im_middle|>"
      "{%- if role == 'assistant' and not loop.last -%}{{ m['content'].split('</think>')[-1] }}{%- else -%}{{ m['content'] }}{%- endif -%}<|im_end|>"
      "{%- endfor -%}{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}";
  struct file_list files = {0};
  char *directory = file_join(p->directory, "model");
  assert_int_equal(file_make_directory(directory, NULL), EAGLET_OK);
  assert_int_equal(file_list_directory(&files, p->model, NULL), EAGLET_OK);
  for (size_t i = 0; i < files.n; i++) {
    char *from = file_join(p->model, files.names[i]), *to = file_join(directory, files.names[i]);
    if (strcmp(files.names[i], "chat_template.jinja") != 0) assert_int_equal(symlink(from, to), 0);
    free(from);
    free(to);
  }
  file_list_clear(&files);
  free(scratch_write(directory, "chat_template.jinja", source));
  return directory;
}

/* The trained text of every row of a split, rows separated by "|"; heap. */
static char *trained_rows(const struct pipeline *p, bool validation, size_t *n_rows) {
  struct token_store store;
  struct renderer renderer;
  struct eaglet_error err = {0};
  struct buffer text;
  buffer_init(&text);
  buffer_append(&text, "", 0);
  assert_ok(renderer_open(&renderer, p->model, 4096, &err), &err);
  assert_ok(token_store_open(&store, p->out, validation, &err), &err);
  for (size_t r = 0; r < store.n_rows; r++) {
    const struct token_row *row = &store.rows[r];
    if (r > 0) buffer_append_char(&text, '|');
    for (int32_t i = 0; i < row->n; i++) {
      size_t n;
      const char *bytes = tokenizer_bytes(renderer.tokenizer, row->tokens[i], &n);
      if (row->mask[i]) buffer_append(&text, bytes, n);
    }
  }
  *n_rows = store.n_rows;
  token_store_close(&store);
  renderer_close(&renderer);
  return buffer_detach(&text).data;
}

static void check_trained(const struct pipeline *p, const struct eaglet_prepare_params *params, const char *expected) {
  size_t n_rows;
  json_decref(prepare_ok(params));
  char *text = trained_rows(p, false, &n_rows);
  assert_string_equal(text, expected);
  free(text);
}

/* B03: one row for each reply that the template rewrites later, each as the model saw it. */
static void test_rewritten_history(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  char *model = forgetful_model(p);
  free(scratch_write(p->directory, "data.jsonl",
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\",\"content\":\"<think>a</think>one\"},"
                     "{\"role\":\"user\",\"content\":\"2\"},{\"role\":\"assistant\",\"content\":\"<think>b</think>two\"}]}\n"
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"3\"},{\"role\":\"assistant\",\"content\":\"three\"},"
                     "{\"role\":\"user\",\"content\":\"4\"},{\"role\":\"assistant\",\"content\":\"four\"}]}\n"));
  struct eaglet_prepare_params params = prepare_params(p);
  params.model = model;
  check_trained(p, &params, "<think>b</think>two<|im_end|>|<think>a</think>one<|im_end|>|three<|im_end|>four<|im_end|>");
  params.train_on = EAGLET_TRAIN_ON_ANSWER;
  check_trained(p, &params, "two<|im_end|>|one<|im_end|>|three<|im_end|>four<|im_end|>");
  params.train_on = EAGLET_TRAIN_ON_THINKING; /* the second conversation has none */
  check_trained(p, &params, "<think>b</think>|<think>a</think>");
  params.train_on = EAGLET_TRAIN_ON_BOTH;
  params.rows = EAGLET_ROWS_CONVERSATION;
  check_trained(p, &params, "one<|im_end|><think>b</think>two<|im_end|>|three<|im_end|>four<|im_end|>");
  params.last_turn_only = true;
  check_trained(p, &params, "<think>b</think>two<|im_end|>|four<|im_end|>");
  free(model);
}

/* The rows of a conversation are all for training or all for validation. */
static void test_split_by_conversation(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  char *model = forgetful_model(p), name[16];
  struct buffer rows;
  buffer_init(&rows);
  for (int i = 0; i < 60; i++)
    buffer_format(&rows,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\",\"content\":\"<think>a%d.</think>one\"},"
                  "{\"role\":\"user\",\"content\":\"2\"},{\"role\":\"assistant\",\"content\":\"<think>b%d.</think>two\"}]}\n", i, i);
  free(scratch_write(p->directory, "data.jsonl", rows.data));
  buffer_clear(&rows);
  struct eaglet_prepare_params params = prepare_params(p);
  params.model = model;
  params.validation = 0.3;
  json_t *report = prepare_ok(&params);
  assert_int_equal(report_int(report, "conversations_kept"), 60);
  assert_int_equal(report_int(report, "rows_kept"), 120);
  size_t n_train, n_valid;
  char *train = trained_rows(p, false, &n_train), *valid = trained_rows(p, true, &n_valid);
  assert_in_range(n_valid, 20, 60);
  assert_int_equal(n_train + n_valid, 120);
  for (int i = 0; i < 60; i++) {
    snprintf(name, sizeof name, "a%d.", i);
    bool a = strstr(valid, name) != NULL;
    assert_true(a != (strstr(train, name) != NULL));
    *name = 'b';
    assert_true(a == (strstr(valid, name) != NULL));
  }
  json_decref(report);
  free(train);
  free(valid);
  free(model);
}

/* Conversations that hold a prompt of a test set are dropped, by any thirteen words of it or by all of a short one. */
static void test_keep_out(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  char *prompts = scratch_write(p->directory, "prompts.jsonl",
                                "{\"messages\":[{\"role\":\"user\",\"content\":\"one two three four five six seven eight nine ten eleven twelve thirteen fourteen\"}]}\n"
                                "{\"messages\":[{\"role\":\"user\",\"content\":\"Write a short poem.\"}]}\n{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}\n");
  free(scratch_write(p->directory, "data.jsonl",
                     "{\"prompt\":\"So: TWO three, four five six seven eight nine ten eleven - twelve thirteen fourteen!\",\"completion\":\"a\"}\n"
                     "{\"prompt\":\"two three four five six seven eight nine ten eleven twelve thirteen\",\"completion\":\"b\"}\n"
                     "{\"prompt\":\"write a short poem\",\"completion\":\"c\"}\n{\"prompt\":\"write a short poem now\",\"completion\":\"d\"}\n"
                     "{\"prompt\":\"hi\",\"completion\":\"e\"}\n"));
  struct eaglet_prepare_params params = prepare_params(p);
  params.keep_out = (const char *const *)&prompts;
  params.n_keep_out = 1;
  json_t *report = prepare_ok(&params);
  assert_int_equal(dropped(report, "overlaps a prompt of --keep-out"), 2);
  json_decref(report);
  size_t n_rows;
  char *text = trained_rows(p, false, &n_rows);
  assert_string_equal(text, "b<|im_end|>|d<|im_end|>|e<|im_end|>");
  free(text);
  free(prompts);
}

/* B01: nearly everything trained is a wrong mask until somebody says that it is right. */
static void test_trained_share(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  char *row = long_row(1, "");
  struct buffer reply;
  buffer_init(&reply);
  for (int i = 0; i < 300; i++) buffer_append_string(&reply, "word ");
  free(row);
  row = long_row(1, reply.data);
  buffer_clear(&reply);
  free(scratch_write(p->directory, "data.jsonl", row));
  struct eaglet_prepare_params params = prepare_params(p);
  prepare_fails(&params, EAGLET_E_INPUT, "of all tokens would be trained, more than 95 %");
  params.trained_max = 1;
  json_decref(prepare_ok(&params));
  free(row);
}

/* Threads change nothing: the same bytes, over more than one batch. */
static void test_threads(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  struct buffer rows;
  buffer_init(&rows);
  for (int i = 0; i < 700; i++)
    buffer_format(&rows, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s %d\"},{\"role\":\"assistant\",\"content\":\"%s %d\"}]}\n",
                  i % 5 ? "say" : "\xd1\x81\xd0\xba\xd0\xb0\xd0\xb6\xd0\xb8", i, i % 5 ? "yes" : "\xd0\xb4\xd0\xb0", i % 650);
  free(scratch_write(p->directory, "data.jsonl", rows.data));
  buffer_clear(&rows);
  struct eaglet_text first = {0};
  for (int32_t threads = 1; threads <= 3; threads++) {
    struct eaglet_prepare_params params = prepare_params(p);
    params.threads = threads;
    json_decref(prepare_ok(&params));
    struct eaglet_text shard = scratch_read(p->out, "train-00000.safetensors");
    if (threads == 1) {
      first = shard;
      continue;
    }
    assert_int_equal(first.length, shard.length);
    assert_memory_equal(first.data, shard.data, first.length);
    free(shard.data);
  }
  struct token_store store; /* languages are counted */
  store_open(&store, p->out);
  const json_t *languages = json_object_get(store.manifest, "languages");
  assert_int_equal(json_array_size(languages), 2);
  for (size_t i = 0; i < 2; i++) {
    const json_t *language = json_array_get(languages, i);
    bool russian = strcmp(json_string_value(json_object_get(language, "name")), "Cyrillic") == 0;
    assert_int_equal(report_int(language, "rows"), russian ? 140 : 560);
  }
  token_store_close(&store);
  free(first.data);
}

/* C12: nothing is prepared twice, and any change is: data, options, template, tokenizer, a damaged shard. */
static void check_again(const struct eaglet_prepare_params *params, const char *why) {
  json_t *report = prepare_ok(params);
  const char *again = json_string_value(json_object_get(report, "prepared_again"));
  assert_true(json_is_true(json_object_get(report, "reused")) == !why);
  if (why && (!again || !strstr(again, why))) fail_msg("expected %s, found %s", why, again ? again : "nothing");
  json_decref(report);
}

static void test_prepared_before(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  char *model = forgetful_model(p), *shard = file_join(p->out, "train-00000.safetensors");
  free(scratch_write(p->directory, "data.jsonl", TOY));
  struct eaglet_prepare_params params = prepare_params(p);
  params.model = model;
  json_decref(prepare_ok(&params));
  check_again(&params, NULL);
  params.seed = 3;
  check_again(&params, "settings.seed: 0, now 3");
  check_again(&params, NULL);
  free(scratch_write(p->directory, "data.jsonl", TOY "\n"));
  check_again(&params, "files");
  struct eaglet_text source = scratch_read(model, "chat_template.jinja");
  char *edited = memory_format("%.*s ", (int)source.length, source.data);
  free(scratch_write(model, "chat_template.jinja", edited));
  check_again(&params, "template");
  params.train_on = EAGLET_TRAIN_ON_ANSWER;
  check_again(&params, "settings.train_on");
  struct eaglet_text bytes = scratch_read(p->out, "train-00000.safetensors");
  bytes.data[bytes.length - 1] ^= 1;
  free(scratch_write_bytes(p->out, "train-00000.safetensors", bytes.data, bytes.length));
  check_again(&params, "checksum");
  assert_int_equal(file_remove(shard, NULL), EAGLET_OK);
  check_again(&params, "train-00000.safetensors");
  check_again(&params, NULL);
  params.force = true;
  json_t *report = prepare_ok(&params);
  assert_null(json_object_get(report, "reused"));
  json_decref(report);
  free(bytes.data);
  free(source.data);
  free(edited);
  free(shard);
  free(model);
}

/* ---- vocabulary ---- */

static json_t *vocab_ok(const struct pipeline *p, int32_t size, struct vocab_map *map) {
  char *path = file_join(p->directory, "vocab.safetensors");
  const struct eaglet_vocab_params params = {.data = p->out, .out = path, .size = size};
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  struct safetensors file;
  assert_ok(vocab_run(&params, &text, &err), &err);
  assert_ok(safetensors_open(&file, path, &err), &err);
  json_t *report = report_parse(&text);
  assert_ok(vocab_map_from_tensors(map, &file, (int32_t)report_int(report, "size"), 4096, &err), &err);
  assert_string_equal(safetensors_metadata(&file, "vocab_size"), "4096");
  safetensors_close(&file);
  free(path);
  return report;
}

static void test_vocabulary(void **state) {
  struct pipeline *p = *state;
  if (!p->model) skip();
  free(scratch_write(
      p->directory, "data.jsonl",
      TOY "{\"messages\":[{\"role\":\"user\",\"content\":\"more\"},{\"role\":\"assistant\",\"content\":\"Eleven "
          "benevolent elephants wander quietly past seven silver lakes.\"}],\"source\":\"rare\"}\n"));
  struct eaglet_prepare_params params = prepare_params(p);
  json_decref(prepare_ok(&params));
  struct vocab_map map;
  json_t *report = vocab_ok(p, 128, &map); /* E05: fewer ids were seen than asked for */
  assert_int_equal(report_int(report, "size"), 128);
  assert_true(report_int(report, "padded") > 0);
  assert_true(json_number_value(json_object_get(report, "coverage")) == 1.0);
  assert_int_equal(json_array_size(json_object_get(report, "warnings")), 0);
  for (int32_t id = 4064; id <= 4095; id++) assert_true(map.draft[id] >= 0); /* every special token */
  json_decref(report);
  vocab_map_release(&map);
  report = vocab_ok(p, 35, &map); /* three ids besides the special ones: the rare source is not covered */
  const json_t *sources = json_object_get(report, "sources");
  const json_t *languages = json_object_get(report, "languages");
  assert_int_equal(json_object_size(languages), 1);
  assert_true(json_number_value(json_object_get(json_object_get(languages, "Latin"), "coverage")) < 0.95);
  double toy = json_number_value(json_object_get(json_object_get(sources, "toy"), "coverage")),
         rare = json_number_value(json_object_get(json_object_get(sources, "rare"), "coverage"));
  assert_true(rare < 0.5 && toy > rare);
  assert_true(json_array_size(json_object_get(report, "warnings")) >= 1);
  assert_true(map.draft[4066] >= 0);
  json_decref(report);
  vocab_map_release(&map);
  const int32_t whole[] = {0, 4096, 9000};
  for (size_t i = 0; i < 3; i++) { /* the target's whole vocabulary */
    report = vocab_ok(p, whole[i], &map);
    assert_int_equal(map.n_draft, 4096);
    assert_int_equal(map.target[4095], 4095);
    json_decref(report);
    vocab_map_release(&map);
  }
  const struct eaglet_vocab_params small = {.data = p->out, .out = "/nonexistent/v", .size = 5};
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  assert_failed_with(vocab_run(&small, &text, &err), EAGLET_E_USAGE, &err, "special tokens alone do not fit");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      PIPELINE_TEST(test_mask_by_hand),        PIPELINE_TEST(test_report_and_manifest),
      PIPELINE_TEST(test_other_layouts),
      PIPELINE_TEST(test_odd_conversations),   PIPELINE_TEST(test_truncation),
      PIPELINE_TEST(test_no_half_reply),       PIPELINE_TEST(test_bad_files),
      PIPELINE_TEST(test_refused_by_template), PIPELINE_TEST(test_validation_split),
      PIPELINE_TEST(test_rewritten_history),   PIPELINE_TEST(test_split_by_conversation),
      PIPELINE_TEST(test_keep_out),            PIPELINE_TEST(test_trained_share),
      PIPELINE_TEST(test_threads),             PIPELINE_TEST(test_prepared_before),
                  PIPELINE_TEST(test_vocabulary),
  };
  return cmocka_run_group_tests_name("prepare", tests, NULL, NULL);
}
