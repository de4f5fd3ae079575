/* test_template_rows.c - rows of conversations: what is trained of each reply, over 57 published templates with random conversations,
 * tool calls, thinking, rewritten histories, and one row against several.
 *
 * The published templates share one tokenizer: GPT-2's ranks and every marker of theirs as a special token. What precedes and ends a reply
 * in each is written down here from the models' own formats.
 */
#include "base/util.h"
#include "support.h"
#include "text/template.h"

static const struct family {
  const char *name, *before, *after; /* of a reply of plain text, as the model writes it */
  const char *stop;                  /* a stop token that the checkpoint's generation_config.json names, where the template does not say it */
} families[] = {
    {"tokenizer/deepseek_v3", "", "<｜end▁of▁sentence｜>", NULL},
    {"tokenizer/gemini", "", "<end_of_turn>", NULL},
    {"tokenizer/llama3", "", "<|eot_id|>", NULL},
    {"tokenizer/llama3_1", "", "<|eot_id|>", NULL},
    {"tokenizer/qwen3", "<think>\n\n</think>\n\n", "<|im_end|>", NULL},
    {"llama.cpp/Bielik-11B-v3.0-Instruct", "", "<|im_end|>", NULL},
    {"llama.cpp/ByteDance-Seed-OSS", "", "<seed:eos>", NULL},
    {"llama.cpp/CohereForAI-c4ai-command-r-plus-tool_use", "", "<|END_OF_TURN_TOKEN|>", NULL},
    {"llama.cpp/CohereForAI-c4ai-command-r7b-12-2024-tool_use", "", "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
    {"llama.cpp/GLM-4.6", "\n<think></think>\n", "", "<|user|>"},
    {"llama.cpp/GLM-4.7-Flash", "", "", "<|user|>"},
    {"llama.cpp/GigaChat3-10B-A1.8B", "", "<|message_sep|>", NULL},
    {"llama.cpp/HuggingFaceTB-SmolLM3-3B", "", "<|im_end|>", NULL},
    {"llama.cpp/Kimi-K2-Instruct", "", "<|im_end|>", NULL},
    {"llama.cpp/Kimi-K2-Thinking", "<think></think>", "<|im_end|>", NULL},
    {"llama.cpp/LFM2-8B-A1B", "", "<|im_end|>", NULL},
    {"llama.cpp/Mistral-Small-3.2-24B-Instruct-2506", "", "</s>", NULL},
    {"llama.cpp/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "", "<|im_end|>", NULL},
    {"llama.cpp/NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "", "<|im_end|>", NULL},
    {"llama.cpp/Qwen-Qwen2.5-7B-Instruct", "", "<|im_end|>", NULL},
    {"llama.cpp/Qwen-Qwen3-0.6B", "<think>\n\n</think>\n\n", "<|im_end|>", NULL},
    {"llama.cpp/Qwen3-Coder", "", "<|im_end|>", NULL},
    {"llama.cpp/Qwen3.5-4B", "\n</think>\n\n", "<|im_end|>", NULL},
    {"llama.cpp/Reka-Edge", " ", "\n\n<sep>", NULL},
    {"llama.cpp/StepFun3.5-Flash", "\n</think>\n", "<|im_end|>", NULL},
    {"llama.cpp/deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "", "<｜end▁of▁sentence｜>", NULL},
    {"llama.cpp/deepseek-ai-DeepSeek-V3.1", "", "<｜end▁of▁sentence｜>", NULL},
    {"llama.cpp/deepseek-ai-DeepSeek-V3.2", "", "<｜end▁of▁sentence｜>", NULL},
    {"llama.cpp/fireworks-ai-llama-3-firefunction-v2", "", "<|eot_id|>", NULL},
    {"llama.cpp/google-gemma-2-2b-it", "", "<end_of_turn>", NULL},
    {"llama.cpp/google-gemma-4-31B-it-interleaved", "", "<turn|>", NULL},
    {"llama.cpp/google-gemma-4-31B-it", "", "<turn|>", NULL},
    {"llama.cpp/ibm-granite-granite-3.3-2B-Instruct", "", "<|end_of_text|>", NULL},
    {"llama.cpp/ibm-granite-granite-4.0", "", "<|end_of_text|>", NULL},
    {"llama.cpp/llama-cpp-rwkv-world", " ", "", NULL},
    {"llama.cpp/meetkai-functionary-medium-v3.1", "", "<|eot_id|>", NULL},
    {"llama.cpp/meetkai-functionary-medium-v3.2", "all\n", "<|eot_id|>", NULL},
    {"llama.cpp/meta-llama-Llama-3.1-8B-Instruct", "", "<|eot_id|>", NULL},
    {"llama.cpp/meta-llama-Llama-3.2-3B-Instruct", "", "<|eot_id|>", NULL},
    {"llama.cpp/microsoft-Phi-3.5-mini-instruct", "", "<|end|>", NULL},
    {"llama.cpp/mistralai-Mistral-Nemo-Instruct-2407", "", "</s>", NULL},
    {"llama.cpp/moonshotai-Kimi-K2", "", "<|im_end|>", NULL},
    {"llama.cpp/openai-gpt-oss-120b", "<|channel|>final<|message|>", "<|return|>", NULL},
    {"llama.cpp/stepfun-ai-Step-3.5-Flash", "\n</think>\n", "<|im_end|>", NULL},
    {"llama.cpp/unsloth-Apriel-1.5", "", "\n<|end|>", "<|end|>"},
    {"llama.cpp/unsloth-mistral-Devstral-Small-2507", "", "</s>", NULL},
    {"chujiezheng/alpaca", "", "</s>", NULL},
    {"chujiezheng/amberchat", " ", "", NULL},
    {"chujiezheng/chatqa", " ", "", NULL},
    {"chujiezheng/falcon-instruct", " ", "", NULL},
    {"chujiezheng/gemma-it", "", "<end_of_turn>", NULL},
    {"chujiezheng/granite-3.0-instruct", "", "<|end_of_text|>", NULL},
    {"chujiezheng/qwen2.5-instruct", "", "<|im_end|>", NULL},
    {"chujiezheng/saiga", "", "</s>", NULL},
    {"chujiezheng/solar-instruct", "", "", NULL},
    {"chujiezheng/vicuna", " ", "</s>", NULL},
    {"chujiezheng/zephyr", "", "</s>", NULL},
};
#define N_FAMILIES (sizeof families / sizeof *families)

/* ---- a tokenizer for all of them ---- */

static void add_special(json_t *added, json_t *seen, const char *text, size_t n, json_int_t *id) {
  char *name = memory_copy_span(text, n);
  if (!json_object_get(seen, name)) {
    json_object_set_new(seen, name, json_true());
    json_array_append_new(added, json_pack("{sI ss sb sb sb sb sb}", "id", (json_int_t)(*id)++, "content", name, "single_word", 0, "lstrip", 0,
                                           "rstrip", 0, "normalized", 0, "special", 1));
  }
  free(name);
}

/* <|...|> and its full-width twin. */
static void add_markers(json_t *added, json_t *seen, const char *source, json_int_t *id) {
  static const char *const brackets[][2] = {{"<|", "|>"}, {"<｜", "｜>"}};
  for (size_t k = 0; k < 2; k++) {
    for (const char *at = source; (at = strstr(at, brackets[k][0])); at++) {
      const char *end = strstr(at + 2, brackets[k][1]);
      if (!end || end - at > 40 || strcspn(at + strlen(brackets[k][0]), " {}<>\n'\"") < (size_t)(end - at) - strlen(brackets[k][0])) continue;
      add_special(added, seen, at, (size_t)(end - at) + strlen(brackets[k][1]), id);
    }
  }
}

/* Heap; skips where the public files are absent. */
static char *tokenizer_directory(const json_t *templates) {
  static const char *const fixed[] = {"<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]", "[TOOL_CALLS]",
                                      "[ARGS]", "[CALL_ID]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "<seed:bos>", "<seed:eos>",
                                      "<|turn>", "<turn|>", "<sep>", "<|tool_call>", "<tool_call|>", "<|\"|>", "<think>", "</think>", "<tool_call>",
                                      "</tool_call>"};
  char *base = shared_path("public/tokenizers/gpt2/tokenizer.json"), *directory = temporary_directory();
  if (!base) skip();
  json_t *tokenizer, *seen = json_object(), *source;
  const char *name;
  assert_int_equal(json_parse_file(&tokenizer, base, NULL), EAGLET_OK);
  json_t *added = json_object_get(tokenizer, "added_tokens");
  json_int_t id = 50257;
  json_object_set_new(seen, "<|endoftext|>", json_true()); /* GPT-2's own */
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) add_special(added, seen, fixed[i], strlen(fixed[i]), &id);
  json_object_foreach((json_t *)templates, name, source) add_markers(added, seen, json_string_value(source), &id);
  char *text = json_dumps(tokenizer, 0);
  write_file(directory, "tokenizer.json", text);
  write_file(directory, "tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
  free(text);
  free(base);
  json_decref(seen);
  json_decref(tokenizer);
  return directory;
}

struct world {
  json_t *templates;
  char *directory;
  struct tokenizer *tokenizer;
};

static void world_open(struct world *w) {
  char *path = shared_path("public/golden/chat_templates.json");
  struct eaglet_error err;
  if (!path) skip();
  assert_int_equal(json_parse_file(&w->templates, path, NULL), EAGLET_OK);
  assert_int_equal(json_object_size(w->templates), N_FAMILIES);
  w->directory = tokenizer_directory(w->templates);
  if (tokenizer_open(&w->tokenizer, w->directory, &err) != EAGLET_OK) fail_msg("%s", err.message);
  free(path);
}

static struct chat_template *open_family(const struct world *w, const struct family *family) {
  char generation[64] = "{}";
  struct chat_template *t;
  struct eaglet_error err;
  int32_t stop = family->stop ? tokenizer_special_id(w->tokenizer, family->stop) : -1;
  if (family->stop) {
    assert_true(stop >= 0);
    snprintf(generation, sizeof generation, "{\"eos_token_id\":[0,%d]}", stop);
  }
  write_file(w->directory, "generation_config.json", generation);
  write_file(w->directory, "chat_template.jinja", json_string_value(json_object_get(w->templates, family->name)));
  if (chat_template_open(&t, w->directory, w->tokenizer, &err) != EAGLET_OK) fail_msg("%s: %s", family->name, err.message);
  return t;
}

static void world_close(struct world *w) {
  tokenizer_close(w->tokenizer);
  temporary_remove(w->directory);
  json_decref(w->templates);
}

/* ---- reading rows ---- */

/* The masked text of tokens [first, past), heap; fails when one of them is not masked. */
static char *text_of(const struct tokenizer *tokenizer, const struct chat_tokens *row, size_t first, size_t past) {
  struct buffer text;
  buffer_init(&text);
  buffer_append(&text, "", 0);
  for (size_t i = first; i < past; i++) {
    size_t n;
    const char *bytes = tokenizer_bytes(tokenizer, row->ids[i], &n);
    assert_int_equal(row->mask[i], 1);
    buffer_append(&text, bytes, n);
  }
  return text.data;
}

static size_t count_masked(const struct chat_tokens *row) {
  size_t n = 0;
  for (size_t i = 0; i < row->n; i++) n += row->mask[i];
  return n;
}

/* ---- random conversations over every template ---- */

static const char *const words[] = {"Yes",      "no.",      "Again:",  "x = 1;",   "Straße",        "你好",     "مرحبا",  "🙂",      "\"quoted\"",
                                    "a\nb",     "1,000",    "don't",   "<b>bold</b>", "{{ x }}",       "user",     "assistant", "<|im_end|>", "</s>",
                                    "[/INST]", "What is", "the answer?", "END", "C:\\dir",     "###",     "-- ",    "The",      "reply"};

static json_t *random_text(uint64_t seed, uint64_t place) {
  struct buffer text;
  size_t n = 1 + random_u64(seed, place, 0) % 9;
  buffer_init(&text);
  buffer_append_string(&text, place % 2 ? "Q" : "A"); /* no white space at the ends, and nothing that a header's token could take in */
  for (size_t i = 0; i < n; i++)
    buffer_format(&text, "%s%s", i ? " " : "", words[random_u64(seed, place, i + 1) % (sizeof words / sizeof *words)]);
  buffer_append_string(&text, random_u64(seed, place, 99) % 2 ? "z." : "z");
  json_t *json = json_stringn(text.data, text.length);
  buffer_clear(&text);
  return json;
}

static json_t *random_conversation(uint64_t seed, bool system) {
  json_t *messages = json_array();
  size_t n = 1 + random_u64(seed, 1000, 0) % 4;
  if (system) json_array_append_new(messages, json_pack("{ss so}", "role", "system", "content", random_text(seed, 501)));
  for (size_t i = 0; i < n; i++) {
    json_array_append_new(messages, json_pack("{ss so}", "role", "user", "content", random_text(seed, 2 * i + 1)));
    json_array_append_new(messages, json_pack("{ss so}", "role", "assistant", "content", random_text(seed, 2 * i + 2)));
  }
  if (random_u64(seed, 1000, 1) % 4 == 0) json_array_append_new(messages, json_pack("{ss so}", "role", "user", "content", random_text(seed, 777)));
  return messages;
}

/* Every reply is trained once, in a row that is the conversation up to it as the template writes it, and the trained tokens are its text
 * with what the model writes around it. */
static void check_conversation(const struct world *w, const struct family *family, const struct chat_template *t, const json_t *messages,
                               const struct chat_params *chat) {
  size_t n_messages = json_array_size(messages);
  bool *seen = memory_alloc(n_messages);
  struct chat_rows rows;
  struct eaglet_error err;
  const struct chat_tokenize_params params = {.chat = *chat};
  if (chat_template_rows(t, &params, &rows, &err) != EAGLET_OK) fail_msg("%s: %s", family->name, err.message);
  for (size_t r = 0; r < rows.n; r++) {
    const struct chat_tokens *row = &rows.rows[r];
    size_t n_masked = 0;
    for (size_t k = 0; k < row->n_replies; k++) {
      const struct chat_reply *reply = &row->replies[k];
      assert_false(seen[reply->message]);
      seen[reply->message] = true;
      const char *content = json_string_value(json_object_get(json_array_get(messages, (size_t)reply->message), "content"));
      bool closed_by_next = reply->has_end && !*family->after; /* <|user|> */
      char *expected = memory_format("%s%s%s%s", family->before, content, family->after, closed_by_next ? family->stop : ""),
           *found = text_of(w->tokenizer, row, reply->first, reply->past);
      if (strcmp(expected, found) != 0) fail_msg("%s: message %d: expected '%s', found '%s'", family->name, reply->message, expected, found);
      assert_int_equal(reply->answer, reply->first + (strstr(family->before, "</think>") ? reply->answer - reply->first : 0));
      n_masked += reply->past - reply->first;
      free(expected);
      free(found);
    }
    assert_int_equal(n_masked, count_masked(row));
  }
  for (size_t i = 0; i < n_messages; i++) {
    bool reply = strcmp(json_string_value(json_object_get(json_array_get(messages, i), "role")), "assistant") == 0;
    if (reply != seen[i]) fail_msg("%s: message %zu is %strained", family->name, i, seen[i] ? "" : "not ");
  }
  chat_rows_clear(&rows);
  free(seen);
}

static void test_every_template(void **state) {
  (void)state;
  struct world w;
  world_open(&w);
  json_t *tools = json_array(), *kwargs = json_pack("{ss ss}", "functions", "[]", "datetime", "now");
  for (size_t f = 0; f < N_FAMILIES; f++) {
    struct chat_template *t = open_family(&w, &families[f]);
    size_t n_checked = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
      bool system = seed % 2;
      json_t *messages = random_conversation(seed + 100 * f, system);
      struct chat_params chat = {.messages = messages, .tools = tools, .kwargs = kwargs};
      struct eaglet_text text = {0};
      if (chat_template_render(t, &chat, &text, NULL) == EAGLET_OK || !system) { /* some know no system turn */
        check_conversation(&w, &families[f], t, messages, &chat);
        n_checked++;
      }
      free(text.data);
      json_decref(messages);
    }
    assert_true(n_checked >= 12);
    chat_template_close(t);
  }
  json_decref(tools);
  json_decref(kwargs);
  world_close(&w);
}

/* ---- calls and thinking ---- */

static const char call_text[] =
    "[{\"role\":\"user\",\"content\":\"Weather?\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call00001\",\"type\":\"function\","
    "\"function\":{\"name\":\"look\",\"arguments\":{\"city\":\"Rome\",\"days\":3}}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"call00001\",\"name\":\"look\",\"content\":\"22\"},{\"role\":\"assistant\",\"content\":\"It is 22.\"}]";

static const struct family *find_family(const char *name) {
  for (size_t f = 0; f < N_FAMILIES; f++) {
    if (strcmp(families[f].name, name) == 0) return &families[f];
  }
  fail_msg("%s: no such template", name);
  return NULL;
}

/* All trained text: replies of a row joined by "|", rows by "||", the first reply's row first. */
static char *trained_text(const struct world *w, const char *name, const char *messages_text, const struct chat_tokenize_params *with) {
  struct chat_template *t = open_family(w, find_family(name));
  struct chat_rows rows;
  struct eaglet_error err;
  struct buffer text;
  json_t *messages;
  assert_int_equal(json_parse(&messages, messages_text, strlen(messages_text), "messages", &err), EAGLET_OK);
  struct chat_tokenize_params params = with ? *with : (struct chat_tokenize_params){0};
  params.chat.messages = messages;
  buffer_init(&text);
  if (chat_template_rows(t, &params, &rows, &err) != EAGLET_OK) fail_msg("%s: %s", name, err.message);
  for (size_t r = rows.n; r-- > 0;) {
    bool inside = false;
    if (text.length) buffer_append_string(&text, "||");
    for (size_t i = 0, n_runs = 0; i < rows.rows[r].n; i++) {
      size_t n;
      const char *bytes = tokenizer_bytes(w->tokenizer, rows.rows[r].ids[i], &n);
      if (rows.rows[r].mask[i] && !inside && n_runs++) buffer_append_string(&text, "|");
      inside = rows.rows[r].mask[i];
      if (inside) buffer_append(&text, bytes, n);
    }
  }
  chat_rows_clear(&rows);
  json_decref(messages);
  chat_template_close(t);
  return text.data;
}

static void check_trained(const struct world *w, const char *name, const char *messages, const struct chat_tokenize_params *with, const char *expected) {
  char *found = trained_text(w, name, messages, with);
  if (strcmp(found, expected) != 0) fail_msg("%s: expected '%s', found '%s'", name, expected, found);
  free(found);
}

/* A call is a reply: what the model writes, marks and end included. */
static void test_tool_calls(void **state) {
  (void)state;
  static const struct {
    const char *name, *expected;
  } cases[] = {
      /* the template writes the empty block for a last message only: two rows */
      {"tokenizer/qwen3", "<think>\n\n</think>\n\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}\n</tool_call><|im_end|>||"
                          "<think>\n\n</think>\n\nIt is 22.<|im_end|>"},
      {"llama.cpp/moonshotai-Kimi-K2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{\"city\": \"Rome\", \"days\": 3}"
                                       "<|tool_call_end|><|tool_calls_section_end|><|im_end|>|It is 22.<|im_end|>"},
      {"llama.cpp/mistralai-Mistral-Nemo-Instruct-2407",
       "[TOOL_CALLS][{\"name\": \"look\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}, \"id\": \"call00001\"}]</s>|It is 22.</s>"},
      {"llama.cpp/deepseek-ai-DeepSeek-V3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look<｜tool▁sep｜>{\"city\": \"Rome\", \"days\": 3}<｜tool▁call▁end｜>"
                                              "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>|It is 22.<｜end▁of▁sentence｜>"},
      {"llama.cpp/openai-gpt-oss-120b", " to=functions.look<|channel|>commentary json<|message|>{\"city\": \"Rome\", \"days\": 3}<|call|>|"
                                        "<|channel|>final<|message|>It is 22.<|return|>"},
      {"llama.cpp/meetkai-functionary-medium-v3.1", "<function=look>{\"city\": \"Rome\", \"days\": 3}</function><|eom_id|>|It is 22.<|eot_id|>"},
      {"llama.cpp/CohereForAI-c4ai-command-r7b-12-2024-tool_use",
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"look\", \"parameters\": {\"city\": \"Rome\", \"days\": 3}}\n]<|END_ACTION|>"
       "<|END_OF_TURN_TOKEN|>|It is 22.<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"},
      {"llama.cpp/GLM-4.6", "\n<think></think>\n<tool_call>look\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3"
                            "</arg_value>\n</tool_call>|\n<think></think>\nIt is 22."},
  };
  struct world w;
  world_open(&w);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_trained(&w, cases[i].name, call_text, NULL, cases[i].expected);
  world_close(&w);
}

static const char thought_text[] =
    "[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\",\"content\":\"Yes.\",\"reasoning_content\":\"one\"},"
    "{\"role\":\"user\",\"content\":\"2\"},{\"role\":\"assistant\",\"content\":\"No.\",\"reasoning_content\":\"two\"}]";

/* Thinking that the template takes out of old turns: each reply in a row of its own, as the model wrote it. */
static void test_thinking(void **state) {
  (void)state;
  struct world w;
  world_open(&w);
  const char *qwen = "tokenizer/qwen3", *step = "llama.cpp/StepFun3.5-Flash";
  check_trained(&w, qwen, thought_text, NULL, "<think>\none\n</think>\n\nYes.<|im_end|>||<think>\ntwo\n</think>\n\nNo.<|im_end|>");
  check_trained(&w, qwen, thought_text, &(struct chat_tokenize_params){.last_turn_only = true}, "<think>\ntwo\n</think>\n\nNo.<|im_end|>");
  check_trained(&w, qwen, thought_text, &(struct chat_tokenize_params){.part = CHAT_PART_ANSWER}, "Yes.<|im_end|>||No.<|im_end|>");
  check_trained(&w, qwen, thought_text, &(struct chat_tokenize_params){.part = CHAT_PART_THINKING},
                "<think>\none\n</think>\n\n||<think>\ntwo\n</think>\n\n");
  check_trained(&w, step, thought_text, NULL, "one\n</think>\nYes.<|im_end|>||two\n</think>\nNo.<|im_end|>"); /* B05: the prompt opens the block */
  const char *closing = "[{\"role\":\"user\",\"content\":\"2+2?\"},{\"role\":\"assistant\",\"content\":\"2+2 is 4.\\n</think>\\n\\nThe answer is 4.\"}]";
  check_trained(&w, step, closing, NULL, "2+2 is 4.\n</think>\nThe answer is 4.<|im_end|>"); /* written without the opening tag */
  /* The same thinking inside the content. */
  const char *inside = "[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\",\"content\":\"<think>\\none\\n</think>\\n\\nYes.\"}]";
  check_trained(&w, qwen, inside, NULL, "<think>\none\n</think>\n\nYes.<|im_end|>");
  check_trained(&w, "llama.cpp/LFM2-8B-A1B", inside, &(struct chat_tokenize_params){.part = CHAT_PART_ANSWER}, "Yes.<|im_end|>");
  /* A template that keeps history needs one row. */
  check_trained(&w, "llama.cpp/LFM2-8B-A1B", thought_text, NULL, "Yes.<|im_end|>|No.<|im_end|>");
  world_close(&w);
}

/* The one row of chat_template_tokenize: a reply in another form than the model wrote is masked as it stands, or not at all. */
static void test_one_row(void **state) {
  (void)state;
  struct world w;
  world_open(&w);
  static const struct {
    const char *name, *first, *second;
  } cases[] = {{"tokenizer/qwen3", "Yes.<|im_end|>", "<think>\ntwo\n</think>\n\nNo.<|im_end|>"},
               {"llama.cpp/openai-gpt-oss-120b", NULL, "<|channel|>final<|message|>No.<|return|>"}};
  for (size_t i = 0; i < 2; i++) {
    struct chat_template *t = open_family(&w, find_family(cases[i].name));
    struct chat_tokens tokens;
    json_t *messages;
    assert_int_equal(json_parse(&messages, thought_text, strlen(thought_text), "messages", NULL), EAGLET_OK);
    const struct chat_tokenize_params params = {.chat.messages = messages};
    assert_int_equal(chat_template_tokenize(t, &params, &tokens, NULL), EAGLET_OK);
    const char *expected[] = {cases[i].first, cases[i].second};
    size_t k = 0;
    for (size_t reply = 0; reply < 2; reply++) {
      if (!expected[reply]) continue;
      assert_true(k < tokens.n_replies);
      char *found = text_of(w.tokenizer, &tokens, tokens.replies[k].first, tokens.replies[k].past);
      assert_string_equal(found, expected[reply]);
      free(found);
      k++;
    }
    assert_int_equal(k, tokens.n_replies);
    chat_tokens_clear(&tokens);
    json_decref(messages);
    chat_template_close(t);
  }
  world_close(&w);
}

static void test_answer_begin(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t at;
  } cases[] = {{"", 0}, {"no thinking", 0}, {"<think>a</think>\n\nb", 18}, {"a</think>b </think> c", 9}, {"[THINK]x[/THINK]y", 16}, {"</think>", 8}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_int_equal(chat_answer_begin(cases[i].text, strlen(cases[i].text)), cases[i].at);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_template), cmocka_unit_test(test_tool_calls),   cmocka_unit_test(test_thinking),
      cmocka_unit_test(test_one_row),        cmocka_unit_test(test_answer_begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
