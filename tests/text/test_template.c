/* test_template.c - chat templates: prompt ids against the oracle, masks of trained tokens decoded and compared with the replies,
 * reference masks of Kimi checkpoints, and the public bug reports B01-B07, B11, B16 as far as they touch templates.
 *
 * Templates in ChatML's shape use a directory made of nano-kimi's ranks and special tokens of their own.
 */
#include "support.h"
#include "text/template.h"

static const char chatml_config[] =
    "{\"added_tokens_decoder\":{\"4064\":{\"content\":\"<s>\"},\"4065\":{\"content\":\"</s>\"},\"4066\":{\"content\":\"<|im_end|>\"},"
    "\"4067\":{\"content\":\"<|im_start|>\"},\"4068\":{\"content\":\"<tool>\",\"special\":false}},"
    "\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},\"add_bos_token\":true}";

static struct tokenizer *open_chatml(void) {
  char *model = model_path("nano-kimi");
  if (!model) skip();
  char *directory = temporary_directory(), *link = file_join(directory, "tiktoken.model"), *ranks = file_join(model, "tiktoken.model");
  assert_int_equal(symlink(ranks, link), 0);
  write_file(directory, "tokenizer_config.json", chatml_config);
  struct tokenizer *tokenizer;
  ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
  temporary_remove(directory);
  free(link);
  free(ranks);
  free(model);
  return tokenizer;
}

/* Tokenizes; returns the masked text, replies separated by "|" (heap), or NULL with the message in *failed. */
static char *masked_text(const struct tokenizer *tokenizer, const char *source, const char *messages_text,
                         const struct chat_tokenize_params *with, struct eaglet_error *failed) {
  struct chat_template *t;
  json_t *messages;
  ASSERT_OK(chat_template_parse(&t, source, strlen(source), tokenizer, err));
  ASSERT_OK(json_parse(&messages, messages_text, strlen(messages_text), "messages", err));
  struct chat_tokenize_params params = with ? *with : (struct chat_tokenize_params){0};
  params.chat.messages = messages;
  struct chat_tokens tokens;
  enum eaglet_status status = chat_template_tokenize(t, &params, &tokens, failed);
  struct buffer text;
  buffer_init(&text);
  buffer_append(&text, "", 0);
  struct eaglet_text plain = {0};
  if (status == EAGLET_OK) { /* rendering with tracking gives the same text as without */
    ASSERT_OK(chat_template_render(t, &params.chat, &plain, err));
    assert_string_equal(plain.data, tokens.text.data);
    free(plain.data);
  }
  for (size_t i = 0; i < tokens.n; i++) {
    size_t n;
    const char *bytes = tokenizer_bytes(tokenizer, tokens.ids[i], &n);
    if (tokens.mask[i]) buffer_append(&text, bytes, n);
    else if (i && tokens.mask[i - 1]) buffer_append(&text, "|", 1);
  }
  chat_tokens_clear(&tokens);
  json_decref(messages);
  chat_template_close(t);
  if (status == EAGLET_OK) return text.data;
  buffer_clear(&text);
  return NULL;
}

static void check_mask(const struct tokenizer *tokenizer, const char *source, const char *messages, const char *expected) {
  struct eaglet_error failed = {0};
  char *text = masked_text(tokenizer, source, messages, NULL, &failed);
  if (!text) fail_msg("%s: %s", messages, failed.message);
  size_t n = strlen(text);
  if (n && text[n - 1] == '|') text[n - 1] = 0; /* whether anything follows the last reply */
  assert_string_equal(text, expected);
  free(text);
}

static void check_refused(const struct tokenizer *tokenizer, const char *source, const char *messages, const char *words) {
  struct eaglet_error failed = {0};
  char *text = masked_text(tokenizer, source, messages, NULL, &failed);
  if (text) fail_msg("%s: expected a refusal, found %s", messages, text);
  assert_int_equal(failed.status, EAGLET_E_INPUT);
  if (!strstr(failed.message, words)) fail_msg("expected \"%s\", found \"%s\"", words, failed.message);
}

#define CHATML "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" \
               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

/* ---- nano-kimi ---- */

static void test_prompt_ids(void **state) {
  (void)state;
  char *oracle = shared_path("own/oracle/nano_kimi_greedy.json"), *model = model_path("nano-kimi");
  if (!oracle || !model) skip();
  struct tokenizer *tokenizer;
  struct chat_template *t;
  json_t *rows, *row, *turn;
  ASSERT_OK(tokenizer_open(&tokenizer, model, err));
  ASSERT_OK(chat_template_open(&t, model, tokenizer, err));
  ASSERT_OK(json_parse_file(&rows, oracle, err));
  size_t i, k;
  json_array_foreach(rows, i, row) {
    json_t *messages = json_array();
    json_array_foreach(json_object_get(row, "messages"), k, turn) {
      const char *from = json_string_value(json_object_get(turn, "from")), *value = json_string_value(json_object_get(turn, "value"));
      size_t n = strlen(value);
      while (n && strchr(" \t\n\r", *value)) value++, n--; /* the oracle stripped */
      while (n && strchr(" \t\n\r", value[n - 1])) n--;
      json_array_append_new(messages, json_pack("{s:s, s:s%}", "role", strcmp(from, "gpt") == 0 ? "assistant" : "user", "content", value, n));
    }
    struct chat_tokenize_params params = {.chat = {.messages = messages, .add_generation_prompt = true}};
    struct chat_tokens tokens;
    ASSERT_OK(chat_template_tokenize(t, &params, &tokens, err));
    const json_t *expected = json_object_get(row, "prompt_ids");
    assert_int_equal(tokens.n, json_array_size(expected));
    for (size_t j = 0; j < tokens.n; j++) assert_int_equal(tokens.ids[j], json_integer_value(json_array_get(expected, j)));
    chat_tokens_clear(&tokens);
    json_decref(messages);
  }
  assert_int_equal(i, 40);
  json_decref(rows);
  chat_template_close(t);
  tokenizer_close(tokenizer);
  free(model);
  free(oracle);
}

/* ---- masks ---- */

static const char three_turns[] =
    "[{\"role\":\"system\",\"content\":\"Be kind.\"},{\"role\":\"user\",\"content\":\"Say Yes or No: is water wet? Yes?\"},"
    "{\"role\":\"assistant\",\"content\":\"Yes\"},{\"role\":\"user\",\"content\":\"Yes\"},{\"role\":\"assistant\",\"content\":\"Yes\"},"
    "{\"role\":\"user\",\"content\":\"Again: Yes\"},{\"role\":\"assistant\",\"content\":\"Yes\"}]";

/* B01: no marker in the template; B06: short replies that also stand in the questions. */
static void test_mask_without_markers(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_chatml();
  check_mask(tokenizer, CHATML, "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"ok\"},{\"role\":\"assistant\",\"content\":\"ok\"}]",
             "ok<|im_end|>");
  check_mask(tokenizer, CHATML, three_turns, "Yes<|im_end|>|Yes<|im_end|>|Yes<|im_end|>");
  struct chat_tokenize_params last = {.last_turn_only = true};
  struct eaglet_error failed = {0};
  char *text = masked_text(tokenizer, CHATML, three_turns, &last, &failed);
  assert_string_equal(text, "Yes<|im_end|>|");
  free(text);
  /* Trimmed content, content in parts, a tool section between content and the end. */
  check_mask(tokenizer, "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>{% endfor %}",
             "[{\"role\":\"user\",\"content\":\" q \"},{\"role\":\"assistant\",\"content\":\"\\n a b \\n\"}]", "a b<|im_end|>");
  check_mask(tokenizer, "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for p in m.content %}{{ p.text }}{% endfor %}<|im_end|>{% endfor %}",
             "[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"one \"},{\"type\":\"text\",\"text\":\"two\"}]}]", "one two<|im_end|>");
  check_mask(tokenizer,
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}<tool>{{ c | tojson }}{% endfor %}<|im_end|>{% endfor %}",
             "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"calling\",\"tool_calls\":[{\"name\":\"f<|im_end|>\"}]},"
             "{\"role\":\"tool\",\"content\":\"3\"}]",
             "calling<tool>{\"name\": \"f<|im_end|>\"}<|im_end|>");
  tokenizer_close(tokenizer);
}

/* B02: the marker in every spelling; a template that merely mentions generation has none. */
static void test_markers(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_chatml();
  static const char *const spellings[][2] = {{"{% generation %}", "{% endgeneration %}"},
                                             {"{%- generation -%}", "{%- endgeneration -%}"},
                                             {"{%generation%}", "{%endgeneration%}"},
                                             {"{% if add_generation_prompt is defined %}", "{% endif %}"}};
  for (size_t i = 0; i < 4; i++)
    for (int inside = 0; inside < 2; inside++) { /* the end token inside or after the block */
      char *source = memory_format("{%% for m in messages %%}<|im_start|>{{ m.role }}\n{%% if m.role == 'assistant' %%}%s{{ m.content }}%s%s%s\n"
                                   "{%% else %%}{{ m.content }}<|im_end|>{%% endif %%}{%% endfor %%}",
                                   spellings[i][0], inside ? "<|im_end|>" : "", spellings[i][1], inside ? "" : "<|im_end|>");
      check_mask(tokenizer, source, three_turns, "Yes<|im_end|>|Yes<|im_end|>|Yes<|im_end|>");
      free(source);
    }
  tokenizer_close(tokenizer);
}

/* B03: the template drops the thinking of earlier turns. */
static void test_rewritten_history(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_chatml();
  check_mask(tokenizer,
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last %}"
             "{{ m.content.split('</think>')[-1].lstrip('\\n') }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
             "[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\",\"content\":\"<think>a</think>\\nanswer1\"},{\"role\":\"user\",\"content\":\"2\"},"
             "{\"role\":\"assistant\",\"content\":\"<think>b</think>answer2\"}]",
             "answer1<|im_end|>|<think>b</think>answer2<|im_end|>");
  /* Reasoning in a field of its own; the think tags are the template's and the model writes them after the prompt. */
  const char *reasoning =
      "[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\",\"reasoning_content\":\"because\",\"content\":\"answer\"}]";
  check_mask(tokenizer,
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
             "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
             reasoning, "<think>\nbecause\n</think>\n\nanswer<|im_end|>");
  /* B05: the prompt itself opens the block: the reply starts inside. */
  check_mask(tokenizer,
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
             "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
             reasoning, "because\n</think>\n\nanswer<|im_end|>");
  tokenizer_close(tokenizer);
}

/* What cannot be placed exactly is refused. */
static void test_refusals(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_chatml();
  const char *two = "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"r\"},"
                    "{\"role\":\"assistant\",\"content\":\"b\"}]";
  check_refused(tokenizer, "{% for m in messages %}{{ m.content }}{% endfor %}{{ messages[0].content }}<|im_end|>",
                "[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]", "mixed");
  check_refused(tokenizer, "{{ raise_exception('no system turns') }}", two, "no system turns");
  tokenizer_close(tokenizer);
}

/* Templates that close no reply: its text alone, and not the header that follows it. A token that holds more than its text is not its. */
static void test_replies_without_end(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_chatml();
  const char *two = "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"r\"},"
                    "{\"role\":\"assistant\",\"content\":\"b\"}]";
  check_mask(tokenizer, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", two, " a| b");
  check_mask(tokenizer, "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}", two, "a|b");
  check_mask(tokenizer, "{% for m in messages %}<|im_start|>{{ m.content }}X{% endfor %}", two, "aX|bX"); /* what always follows is the reply's */
  check_mask(tokenizer, "{% for m in messages %}{{ m.content }}\n\n{% endfor %}", "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"go on.\"}]", "go on");
  /* A newline of the header and one of the reply would be one token: the prompt is tokenized alone, as when it is served. */
  check_mask(tokenizer, CHATML, "[{\"role\":\"assistant\",\"content\":\"\\nhello\"}]", "\nhello<|im_end|>");
  tokenizer_close(tokenizer);
}

/* B16: no crash, an empty mask where there is no reply. */
static void test_odd_conversations(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_chatml();
  check_mask(tokenizer, CHATML, "[]", "");
  check_mask(tokenizer, CHATML, "[{\"role\":\"system\",\"content\":\"s\"}]", "");
  check_mask(tokenizer, CHATML, "[{\"role\":\"user\",\"content\":\"s\"}]", "");
  check_mask(tokenizer, CHATML, "[{\"role\":\"assistant\",\"content\":\"hi\"}]", "hi<|im_end|>");
  check_mask(tokenizer, CHATML, "[{\"role\":\"assistant\",\"content\":\"hi\"},{\"role\":\"user\",\"content\":\"s\"},{\"role\":\"assistant\",\"content\":\"yo\"}]",
             "hi<|im_end|>|yo<|im_end|>");
  check_mask(tokenizer, CHATML, "[{\"role\":\"user\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"t\"},{\"role\":\"assistant\",\"content\":\"yo\"}]",
             "yo<|im_end|>");
  check_mask(tokenizer, CHATML, "[{\"role\":\"user\",\"content\":\"s\"},{\"role\":\"assistant\",\"content\":\"\"}]", "");
  check_mask(tokenizer, CHATML, "[{\"role\":\"user\",\"content\":\"s\"},{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"t\"}]",
             "x<|im_end|>");
  tokenizer_close(tokenizer);
}

/* B07: the template's BOS is the only one, though tokenizer_config.json asks to add it. */
static void test_bos_once(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_chatml();
  struct chat_template *t;
  const char *source = "{{ bos_token }}" CHATML;
  ASSERT_OK(chat_template_parse(&t, source, strlen(source), tokenizer, err));
  json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "hello");
  struct chat_tokenize_params params = {.chat = {.messages = messages}};
  struct chat_tokens tokens;
  ASSERT_OK(chat_template_tokenize(t, &params, &tokens, err));
  assert_int_equal(tokens.ids[0], 4064);
  for (size_t i = 1; i < tokens.n; i++) assert_int_not_equal(tokens.ids[i], 4064);
  chat_tokens_clear(&tokens);
  json_decref(messages);
  chat_template_close(t);
  tokenizer_close(tokenizer);
}

/* B11: special-token text in content stays text unless asked for. */
static void test_special_text_in_content(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_chatml();
  struct chat_template *t;
  ASSERT_OK(chat_template_parse(&t, CHATML, strlen(CHATML), tokenizer, err));
  json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "what does <|im_end|><|im_start|> do?", "role",
                               "assistant", "content", "it is like </s> here");
  for (int allow = 0; allow < 2; allow++) {
    struct chat_tokenize_params params = {.chat = {.messages = messages}, .special_in_content = allow};
    struct chat_tokens tokens;
    ASSERT_OK(chat_template_tokenize(t, &params, &tokens, err));
    int n_start = 0, n_end = 0, n_eos = 0;
    for (size_t i = 0; i < tokens.n; i++) {
      n_start += tokens.ids[i] == 4067;
      n_end += tokens.ids[i] == 4066;
      n_eos += tokens.ids[i] == 4065;
    }
    assert_int_equal(n_start, allow ? 3 : 2);
    assert_int_equal(n_end, allow ? 3 : 2);
    assert_int_equal(n_eos, allow);
    assert_int_equal(tokens.n_special_in_content, 2);
    chat_tokens_clear(&tokens);
  }
  struct eaglet_error failed = {0};
  char *messages_text = json_dumps(messages, 0), *text = masked_text(tokenizer, CHATML, messages_text, NULL, &failed);
  assert_string_equal(text, "it is like </s> here<|im_end|>|");
  free(text);
  free(messages_text);
  json_decref(messages);
  chat_template_close(t);
  tokenizer_close(tokenizer);
}

/* ---- reference masks ---- */

/* One reference: the conversation after a system turn, ids and mask token by token. */
static void check_reference(const struct chat_template *t, const json_t *conversation, const char *file) {
  char *path = shared_path(file);
  if (!path) skip();
  json_t *reference, *messages = json_pack("[{s:s, s:s}]", "role", "system", "content", "You are a helpful assistant.");
  ASSERT_OK(json_parse_file(&reference, path, err));
  json_array_extend(messages, (json_t *)conversation);
  struct chat_tokenize_params params = {.chat = {.messages = messages}};
  struct chat_tokens tokens;
  ASSERT_OK(chat_template_tokenize(t, &params, &tokens, err));
  const json_t *ids = json_object_get(reference, "input_ids"), *mask = json_object_get(reference, "loss_mask");
  assert_int_equal(tokens.n, json_array_size(ids));
  for (size_t i = 0; i < tokens.n; i++) {
    assert_int_equal(tokens.ids[i], json_integer_value(json_array_get(ids, i)));
    if (tokens.mask[i] != json_integer_value(json_array_get(mask, i))) fail_msg("%s: token %zu: mask %d", file, i, tokens.mask[i]);
  }
  chat_tokens_clear(&tokens);
  json_decref(reference);
  json_decref(messages);
  free(path);
}

/* chat_templates.json has Kimi-K2-Thinking without its {% break %} (an edit for another program); this is the publisher's. */
static char *kimi_thinking_template(void) {
  char *path = shared_path("public/golden/jinja_upstream_e2e.jsonl"), *source = NULL;
  if (!path) skip();
  struct file_lines *lines;
  json_t *row;
  ASSERT_OK(file_lines_open(&lines, path, err));
  while ((row = next_row(lines))) {
    if (!source && strcmp(json_string_value(json_object_get(row, "name")), "moonshotai/Kimi-K2-Thinking") == 0)
      source = memory_copy_string(json_string_value(json_object_get(row, "chat_template")));
    json_decref(row);
  }
  assert_non_null(source);
  file_lines_close(lines);
  free(path);
  return source;
}

static void test_kimi_references(void **state) {
  (void)state;
  static const struct {
    const char *template_name, *label, *file;
  } cases[] = {
      {"llama.cpp/Kimi-K2-Instruct", "standard", "public/loss_mask/kimi-k2-instruct_standard_ref.json"},
      {"llama.cpp/Kimi-K2-Instruct", "reasoning-multi-turn", "public/loss_mask/kimi-k2-instruct_reasoning-multi-turn_ref.json"},
      {NULL, "standard", "public/loss_mask/kimi-k2-thinking_standard_ref.json"},
      {NULL, "reasoning-multi-turn", "public/loss_mask/kimi-k2-thinking_reasoning-multi-turn_ref.json"},
  };
  char *templates_path = shared_path("public/golden/chat_templates.json"), *path = shared_path("public/loss_mask/conversations.json");
  if (!templates_path || !path) skip();
  char *directory = kimi_k2_directory(), *thinking = kimi_thinking_template();
  struct tokenizer *tokenizer;
  json_t *templates, *conversations;
  ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
  ASSERT_OK(json_parse_file(&templates, templates_path, err));
  ASSERT_OK(json_parse_file(&conversations, path, err));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *source = cases[i].template_name ? json_string_value(json_object_get(templates, cases[i].template_name)) : thinking;
    struct chat_template *t;
    ASSERT_OK(chat_template_parse(&t, source, strlen(source), tokenizer, err));
    check_reference(t, json_array_get(json_object_get(conversations, cases[i].label), 0), cases[i].file);
    chat_template_close(t);
  }
  json_decref(templates);
  json_decref(conversations);
  tokenizer_close(tokenizer);
  temporary_remove(directory);
  free(thinking);
  free(templates_path);
  free(path);
}

/* The same with Qwen3's and DeepSeek-V3's own tokenizers. Where the references differ from "what the model writes up to its end-of-turn
 * token": they train the newline behind <|im_end|>, and one of them leaves out the empty think block, which the model does write. */
static void check_qwen(const struct tokenizer *tokenizer, const char *source, const json_t *conversation, const char *file, bool think_block) {
  char *path = shared_path(file);
  if (!path) skip();
  struct chat_template *t;
  json_t *reference, *messages = json_pack("[{s:s, s:s}]", "role", "system", "content", "You are a helpful assistant.");
  ASSERT_OK(json_parse_file(&reference, path, err));
  json_array_extend(messages, (json_t *)conversation);
  ASSERT_OK(chat_template_parse(&t, source, strlen(source), tokenizer, err));
  struct chat_tokenize_params params = {.chat = {.messages = messages}};
  struct chat_tokens tokens;
  ASSERT_OK(chat_template_tokenize(t, &params, &tokens, err));
  const json_t *ids = json_object_get(reference, "input_ids"), *mask = json_object_get(reference, "loss_mask");
  int32_t newline = 198, end = tokenizer_special_id(tokenizer, "<|im_end|>"), think = tokenizer_special_id(tokenizer, "<think>");
  assert_int_equal(tokens.n, json_array_size(ids));
  for (size_t i = 0, block = 0; i < tokens.n; i++) {
    assert_int_equal(tokens.ids[i], json_integer_value(json_array_get(ids, i)));
    int expected = (int)json_integer_value(json_array_get(mask, i));
    if (tokens.ids[i] == newline && i > 0 && tokens.ids[i - 1] == end) expected = 0;
    if (think_block && tokens.ids[i] == think) block = 4; /* <think> \n\n </think> \n\n */
    if (block > 0) expected = 1, block--;
    if (tokens.mask[i] != expected) fail_msg("%s: token %zu: mask %d", file, i, tokens.mask[i]);
  }
  chat_tokens_clear(&tokens);
  chat_template_close(t);
  json_decref(reference);
  json_decref(messages);
  free(path);
}

static void test_other_references(void **state) {
  (void)state;
  static const struct {
    const char *tokenizer, *template_name, *label, *file;
    bool think_block;
  } cases[] = {
      {"deepseek_v3", "tokenizer/deepseek_v3", "standard", "public/loss_mask/deepseek-v3_standard_ref.json", false},
      {"qwen3", "llama.cpp/Qwen-Qwen2.5-7B-Instruct", "standard", "public/loss_mask/qwen_standard_ref.json", false},
      {"qwen3", "tokenizer/qwen3", "standard", "public/loss_mask/qwen3-thinking_standard_ref.json", false},
      {"qwen3", "tokenizer/qwen3", "reasoning-multi-turn", "public/loss_mask/qwen3-thinking_reasoning-multi-turn_ref.json", false},
      {"qwen3", "tokenizer/qwen3", "standard", "public/loss_mask/qwen3-instruct_standard_ref.json", true},
      {"qwen3", "tokenizer/qwen3", "tool-use", "public/loss_mask/qwen3-instruct_tool-use_ref.json", true},
  };
  char *templates_path = shared_path("public/golden/chat_templates.json"), *path = shared_path("public/loss_mask/conversations.json");
  if (!templates_path || !path) skip();
  json_t *templates, *conversations;
  ASSERT_OK(json_parse_file(&templates, templates_path, err));
  ASSERT_OK(json_parse_file(&conversations, path, err));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *name = memory_format("public/tokenizers/%s", cases[i].tokenizer), *directory = shared_path(name);
    struct tokenizer *tokenizer;
    if (!directory) skip();
    ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
    check_qwen(tokenizer, json_string_value(json_object_get(templates, cases[i].template_name)),
               json_array_get(json_object_get(conversations, cases[i].label), 0), cases[i].file, cases[i].think_block);
    tokenizer_close(tokenizer);
    free(directory);
    free(name);
  }
  json_decref(templates);
  json_decref(conversations);
  free(templates_path);
  free(path);
}

/* ---- sources of templates ---- */

static void test_sources(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_chatml();
  char *directory = temporary_directory();
  struct chat_template *t;
  struct eaglet_error failed;
  struct eaglet_text text;
  json_t *messages = json_array(), *tools = json_pack("[{s:s}]", "name", "f");
  struct chat_params params = {.messages = messages};
  assert_int_equal(chat_template_open(&t, directory, tokenizer, &failed), EAGLET_E_INPUT);
  assert_non_null(strstr(failed.message, "no chat template"));
  static const struct {
    const char *file, *content, *plain, *with_tools;
  } cases[] = {
      {"chat_template.json", "{\"chat_template\":\"from json\"}", "from json", "from json"},
      {"tokenizer_config.json", "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"tools\"},{\"name\":\"default\",\"template\":\"plain\"}]}", "plain", "tools"},
      {"tokenizer_config.json", "{\"chat_template\":\"from config {{ bos_token }}{{ pad_token }}\"}", "from config <s>", "from config <s>"},
      {"chat_template.jinja", "from jinja {{ x }}", "from jinja 7", "from jinja 7"},
  };
  json_t *kwargs = json_pack("{s:i}", "x", 7);
  params.kwargs = kwargs;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) { /* later ones take precedence over earlier ones */
    write_file(directory, cases[i].file, cases[i].content);
    ASSERT_OK(chat_template_open(&t, directory, tokenizer, err));
    for (int with = 0; with < 2; with++) {
      params.tools = with ? tools : NULL;
      ASSERT_OK(chat_template_render(t, &params, &text, err));
      assert_string_equal(text.data, with ? cases[i].with_tools : cases[i].plain);
      free(text.data);
    }
    chat_template_close(t);
  }
  write_file(directory, "chat_template.jinja", "a\n{% if %}");
  assert_int_equal(chat_template_open(&t, directory, tokenizer, &failed), EAGLET_E_INPUT);
  assert_non_null(strstr(failed.message, "chat_template.jinja: template line 2"));
  json_decref(kwargs);
  json_decref(messages);
  json_decref(tools);
  temporary_remove(directory);
  tokenizer_close(tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_prompt_ids),        cmocka_unit_test(test_mask_without_markers), cmocka_unit_test(test_markers),
      cmocka_unit_test(test_rewritten_history), cmocka_unit_test(test_refusals), cmocka_unit_test(test_replies_without_end),             cmocka_unit_test(test_odd_conversations),
      cmocka_unit_test(test_bos_once),          cmocka_unit_test(test_special_text_in_content), cmocka_unit_test(test_sources),
      cmocka_unit_test(test_kimi_references),   cmocka_unit_test(test_other_references),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
