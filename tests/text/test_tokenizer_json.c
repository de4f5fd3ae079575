/* test_tokenizer_json.c - tokenizer.json against golden ids and texts of Hugging Face's tokenizers (six real vocabularies, where
 * the shared data is there), and small tokenizers written here for every part of the pipeline.
 */
#include "support.h"
#include "base/util.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

static struct tokenizer *open_shared(const char *name) {
  char *relative = memory_format("public/tokenizers/%s", name), *path = shared_path(relative);
  free(relative);
  if (!path) return NULL;
  struct tokenizer *tokenizer;
  ASSERT_OK(tokenizer_open(&tokenizer, path, err));
  free(path);
  return tokenizer;
}

static bool same_ids(const struct token_list *ids, const json_t *expected) {
  bool same = ids->n == json_array_size(expected);
  for (size_t i = 0; i < ids->n && same; i++) same = ids->ids[i] == json_integer_value(json_array_get(expected, i));
  return same;
}

static void print_difference(const char *label, const json_t *text, const struct token_list *ids, const json_t *expected) {
  char *want = json_dumps(expected, JSON_COMPACT);
  char *shown = json_dumps(text, JSON_ENCODE_ANY);
  printf("%s: %.200s: expected %.300s, found", label, shown, want);
  for (size_t i = 0; i < ids->n && i < 60; i++) printf(" %d", ids->ids[i]);
  puts("");
  free(want);
  free(shown);
}

static int check_encoding(const struct tokenizer *tokenizer, const char *label, const json_t *row, const char *key, enum eaglet_special special) {
  const json_t *text = json_object_get(row, "text"), *expected = json_object_get(row, key);
  if (!expected) return 0;
  struct token_list ids = {0};
  ASSERT_OK(tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), special, &ids, err));
  bool same = same_ids(&ids, expected);
  if (!same) print_difference(label, text, &ids, expected);
  token_list_clear(&ids);
  return !same;
}

/* Decodes token by token; every step appends whole characters only. */
static int check_decoding(const struct tokenizer *tokenizer, const char *label, const json_t *row, const char *key, bool skip_special) {
  const json_t *expected = json_object_get(row, key), *ids = json_object_get(row, "ids");
  if (!expected) return 0;
  struct detokenizer detokenizer;
  struct buffer out;
  detokenizer_init(&detokenizer, tokenizer);
  detokenizer.skip_special = skip_special;
  buffer_init(&out);
  buffer_append(&out, "", 0);
  for (size_t i = 0; i < json_array_size(ids); i++) {
    detokenizer_push(&detokenizer, (int32_t)json_integer_value(json_array_get(ids, i)), &out);
    assert_int_equal(utf8_valid(out.data, out.length), out.length);
  }
  detokenizer_finish(&detokenizer, &out);
  bool same = out.length == json_string_length(expected) && memcmp(out.data, json_string_value(expected), out.length) == 0;
  if (!same) {
    char *want = json_dumps(expected, JSON_ENCODE_ANY);
    printf("%s %s: expected %.300s, found %.300s\n", label, key, want, out.data);
    free(want);
  }
  buffer_clear(&out);
  return !same;
}

static void check_golden(const char *name) {
  char *file = memory_format("public/golden/encode_%s.jsonl", name), *golden = shared_path(file);
  struct tokenizer *tokenizer = golden ? open_shared(name) : NULL;
  free(file);
  if (!tokenizer) skip();
  struct file_lines *lines;
  ASSERT_OK(file_lines_open(&lines, golden, err));
  json_t *row;
  int n = 0, n_bad = 0;
  for (; (row = next_row(lines)); n++) {
    char label[64];
    snprintf(label, sizeof label, "%s row %d", name, n);
    n_bad += check_encoding(tokenizer, label, row, "ids", EAGLET_SPECIAL_ALLOW);
    n_bad += check_encoding(tokenizer, label, row, "ids_special", EAGLET_SPECIAL_ADD);
    n_bad += check_encoding(tokenizer, label, row, "ids_ordinary", EAGLET_SPECIAL_AS_TEXT);
    n_bad += check_decoding(tokenizer, label, row, "decoded", false);
    n_bad += check_decoding(tokenizer, label, row, "decoded_skip", true);
    json_decref(row);
  }
  assert_int_equal(n, 687);
  assert_int_equal(n_bad, 0);
  file_lines_close(lines);
  tokenizer_close(tokenizer);
  free(golden);
}

static void test_golden_gpt2(void **state) { (void)state; check_golden("gpt2"); }
static void test_golden_llama2(void **state) { (void)state; check_golden("llama2"); }
static void test_golden_llama3(void **state) { (void)state; check_golden("llama3"); }
static void test_golden_qwen3(void **state) { (void)state; check_golden("qwen3"); }
static void test_golden_mistral(void **state) { (void)state; check_golden("mistral03"); }
static void test_golden_deepseek(void **state) { (void)state; check_golden("deepseek_v3"); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_gpt2),  cmocka_unit_test(test_golden_llama2),  cmocka_unit_test(test_golden_llama3),
      cmocka_unit_test(test_golden_qwen3), cmocka_unit_test(test_golden_mistral), cmocka_unit_test(test_golden_deepseek),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
