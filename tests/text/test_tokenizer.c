/* test_tokenizer.c - ids against the tiktoken library (nano-kimi, and Kimi K2's 687 golden strings), refusal of damaged files,
 * protected spans, long words in bounded time, and the merge loop against a naive one.
 */
#include "support.h"
#include "base/util.h"
#include "text/tokenizer.h"

static void assert_ids(const char *label, const struct token_list *ids, const json_t *expected) {
  bool same = ids->n == json_array_size(expected);
  for (size_t i = 0; i < ids->n && same; i++) same = ids->ids[i] == json_integer_value(json_array_get(expected, i));
  if (same) return;
  struct buffer text;
  buffer_init(&text);
  for (size_t i = 0; i < ids->n && i < 60; i++) buffer_format(&text, " %d", ids->ids[i]);
  char *want = json_dumps(expected, JSON_COMPACT);
  fail_msg("%s: found%s, expected %.400s", label, text.data, want);
}

/* Encodes the string value; the bytes of the tokens must give it back. */
static void check_string(const struct tokenizer *tokenizer, const char *label, const json_t *text, const json_t *expected,
                         enum eaglet_special special) {
  struct token_list ids = {0};
  const char *bytes = json_string_value(text);
  size_t length = json_string_length(text);
  ASSERT_OK(tokenizer_encode(tokenizer, bytes, length, special, &ids, err));
  assert_ids(label, &ids, expected);
  size_t at = 0;
  for (size_t i = 0; i < ids.n; i++) {
    size_t n;
    const char *token = tokenizer_bytes(tokenizer, ids.ids[i], &n);
    assert_true(at + n <= length);
    assert_memory_equal(bytes + at, token, n);
    at += n;
  }
  assert_int_equal(at, length);
  token_list_clear(&ids);
}

static struct tokenizer *open_nano(void) {
  char *path = model_path("nano-kimi");
  if (!path) skip();
  struct tokenizer *tokenizer;
  ASSERT_OK(tokenizer_open(&tokenizer, path, err));
  free(path);
  return tokenizer;
}

static void test_nano_kimi(void **state) {
  (void)state;
  char *oracle = shared_path("own/oracle/nano_kimi_tokens.json");
  if (!oracle) skip();
  struct tokenizer *tokenizer = open_nano();
  json_t *rows, *row;
  ASSERT_OK(json_parse_file(&rows, oracle, err));
  size_t i;
  json_array_foreach(rows, i, row)
      check_string(tokenizer, "nano-kimi", json_object_get(row, "text"), json_object_get(row, "ids"), EAGLET_SPECIAL_AS_TEXT);
  assert_true(i > 5);
  json_decref(rows);
  free(oracle);
  tokenizer_close(tokenizer);
}

static void test_names_and_reserved(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_nano();
  assert_string_equal(tokenizer_kind(tokenizer), "tiktoken");
  assert_int_equal(tokenizer_n_ids(tokenizer), 4096); /* config.json's vocabulary, not 4064 + 256 */
  assert_string_equal(tokenizer_named(tokenizer, "bos_token"), "[BOS]");
  assert_string_equal(tokenizer_named(tokenizer, "cls_token"), "");
  assert_int_equal(tokenizer_special_id(tokenizer, "<|im_end|>"), 4066);
  assert_int_equal(tokenizer_special_id(tokenizer, "<|im_en"), -1);
  assert_true(tokenizer_is_special(tokenizer, 4066));
  assert_false(tokenizer_is_special(tokenizer, 4083)); /* <think> is an added token but not special */
  assert_false(tokenizer_is_special(tokenizer, 100));
  size_t n;
  for (int32_t id = 0; id < 4096; id++) assert_non_null(tokenizer_bytes(tokenizer, id, &n));
  assert_null(tokenizer_bytes(tokenizer, 4096, &n));
  assert_null(tokenizer_bytes(tokenizer, -1, &n));
  assert_memory_equal(tokenizer_bytes(tokenizer, 4095, &n), "<|reserved_token_4095|>", 23);
  const int32_t *ids = tokenizer_special_ids(tokenizer, &n);
  assert_int_equal(n, 32);
  for (size_t i = 0; i < n; i++) assert_int_equal(ids[i], 4064 + i);
  tokenizer_close(tokenizer);
}

static void test_kimi_k2_golden(void **state) {
  (void)state;
  char *golden = shared_path("public/golden/tiktoken_kimi_k2.jsonl");
  if (!golden) skip();
  char *directory = kimi_k2_directory();
  struct tokenizer *tokenizer;
  ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
  assert_int_equal(tokenizer_n_ids(tokenizer), 163840);
  struct file_lines *lines;
  ASSERT_OK(file_lines_open(&lines, golden, err));
  json_t *row;
  int n = 0;
  for (; (row = next_row(lines)); n++) {
    const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
    const json_t *ordinary = json_object_get(row, "ids_ordinary");
    char label[32];
    snprintf(label, sizeof label, "kimi_k2 row %d", n);
    check_string(tokenizer, label, text, ids, EAGLET_SPECIAL_ALLOW);
    check_string(tokenizer, label, text, ordinary ? ordinary : ids, EAGLET_SPECIAL_AS_TEXT);
    json_decref(row);
  }
  assert_int_equal(n, 687);
  file_lines_close(lines);
  tokenizer_close(tokenizer);
  temporary_remove(directory);
  free(golden);
}

/* Rendered conversations of Kimi K2's templates. */
static void test_kimi_k2_chat_ids(void **state) {
  (void)state;
  char *golden = shared_path("public/golden/chat_ids.jsonl");
  if (!golden) skip();
  char *directory = kimi_k2_directory();
  struct tokenizer *tokenizer;
  struct file_lines *lines;
  json_t *row;
  int n = 0;
  ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
  ASSERT_OK(file_lines_open(&lines, golden, err));
  while ((row = next_row(lines))) {
    if (strcmp(json_string_value(json_object_get(row, "tokenizer")), "kimi_k2") == 0) {
      char label[64];
      snprintf(label, sizeof label, "chat_ids row %d", n++);
      check_string(tokenizer, label, json_object_get(row, "rendered"), json_object_get(row, "ids"), EAGLET_SPECIAL_ALLOW);
    }
    json_decref(row);
  }
  assert_true(n > 150);
  file_lines_close(lines);
  tokenizer_close(tokenizer);
  temporary_remove(directory);
  free(golden);
}

/* Bug report B12: a Han-aware split, and an unnamed reserved id. */
static void test_han_split(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_nano();
  const char *joined = "深度学习model模型2024", *parts[] = {"深度学习", "model", "模型", "202", "4"};
  struct token_list whole = {0}, split = {0};
  ASSERT_OK(tokenizer_encode(tokenizer, joined, strlen(joined), EAGLET_SPECIAL_ALLOW, &whole, err));
  for (size_t i = 0; i < 5; i++)
    ASSERT_OK(tokenizer_encode(tokenizer, parts[i], strlen(parts[i]), EAGLET_SPECIAL_ALLOW, &split, err));
  assert_int_equal(whole.n, split.n);
  assert_memory_equal(whole.ids, split.ids, whole.n * sizeof *whole.ids);
  token_list_clear(&whole);
  token_list_clear(&split);
  tokenizer_close(tokenizer);
}

static void write_ranks(const char *directory, int skip_byte, const char *extra);

/* The script alone: an ideographic full stop, which Han shares with other scripts, is punctuation and takes the line end along. */
static void test_han_punctuation(void **state) {
  (void)state;
  char *directory = temporary_directory();
  write_ranks(directory, -1, "44CC 256\n44CCCg== 257\n44A= 258\n5pw= 259\n5pys 260\n5pys44CC 261\n"); /* full stop; with a line end; ...; 本; 本 with it */
  write_file(directory, "tokenizer_config.json", "{}");
  struct tokenizer *tokenizer;
  ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
  struct token_list ids = {0};
  const char *text = "\xe6\x9c\xac\xe3\x80\x82\n";
  ASSERT_OK(tokenizer_encode(tokenizer, text, strlen(text), EAGLET_SPECIAL_ALLOW, &ids, err));
  assert_int_equal(ids.n, 2);
  assert_int_equal(ids.ids[0], 260);
  assert_int_equal(ids.ids[1], 257);
  token_list_clear(&ids);
  tokenizer_close(tokenizer);
  temporary_remove(directory);
}

static void test_protected_spans(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_nano();
  const char *text = "<|im_user|>user<|im_middle|>what does <|im_end|><|im_assistant|> do?<|im_end|>";
  const char *content = strstr(text, "what"), *after = content + strlen("what does <|im_end|><|im_assistant|> do?");
  struct text_span span = {(size_t)(content - text), (size_t)(after - text)};
  struct token_list ids = {0}, inner = {0}, plain = {0};
  size_t *offsets;
  ASSERT_OK(tokenizer_encode_spans(tokenizer, &(struct protected_text){text, strlen(text), &span, 1}, &ids, &offsets, err));
  ASSERT_OK(tokenizer_encode(tokenizer, content, (size_t)(after - content), EAGLET_SPECIAL_AS_TEXT, &inner, err));
  assert_int_equal(ids.ids[0], tokenizer_special_id(tokenizer, "<|im_user|>"));
  assert_int_equal(ids.ids[ids.n - 1], tokenizer_special_id(tokenizer, "<|im_end|>"));
  assert_memory_equal(ids.ids + ids.n - 1 - inner.n, inner.ids, inner.n * sizeof *inner.ids);
  for (size_t i = 0; i < ids.n; i++) {
    size_t n;
    const char *bytes = tokenizer_bytes(tokenizer, ids.ids[i], &n);
    assert_memory_equal(text + offsets[i], bytes, n);
    assert_int_equal(offsets[i] + n, i + 1 < ids.n ? offsets[i + 1] : strlen(text));
  }
  free(offsets);
  /* A span that starts inside a special token's text breaks that token; no spans at all is tokenizer_encode. */
  struct text_span inside = {3, 4};
  ids.n = 0;
  ASSERT_OK(tokenizer_encode_spans(tokenizer, &(struct protected_text){text, 11, &inside, 1}, &ids, NULL, err));
  assert_int_not_equal(ids.ids[0], tokenizer_special_id(tokenizer, "<|im_user|>"));
  ids.n = 0;
  ASSERT_OK(tokenizer_encode_spans(tokenizer, &(struct protected_text){text, strlen(text), NULL, 0}, &ids, NULL, err));
  ASSERT_OK(tokenizer_encode(tokenizer, text, strlen(text), EAGLET_SPECIAL_ALLOW, &plain, err));
  assert_int_equal(ids.n, plain.n);
  assert_memory_equal(ids.ids, plain.ids, ids.n * sizeof *ids.ids);
  token_list_clear(&ids);
  token_list_clear(&inner);
  token_list_clear(&plain);
  tokenizer_close(tokenizer);
}

static void test_invalid_text(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_nano();
  struct token_list ids = {0};
  struct eaglet_error error = {0};
  token_list_append(&ids, 7);
  assert_int_equal(tokenizer_encode(tokenizer, "ab\xe4\xbdzz", 6, EAGLET_SPECIAL_ALLOW, &ids, &error), EAGLET_E_INPUT);
  assert_non_null(strstr(error.message, "byte 2"));
  assert_int_equal(ids.n, 1); /* unchanged */
  ASSERT_OK(tokenizer_encode(tokenizer, "", 0, EAGLET_SPECIAL_ALLOW, &ids, err));
  assert_int_equal(ids.n, 1);
  token_list_clear(&ids);
  tokenizer_close(tokenizer);
}

/* A word of a megabyte, letters of several sorts, whitespace and punctuation: bounded time, bytes restored. */
static void test_long_runs(void **state) {
  (void)state;
  struct tokenizer *tokenizer = open_nano();
  size_t length = 1000000;
  char *text = memory_alloc(length);
  static const char *const alphabets[] = {"abcdefghijklmnopqrstuvwxyz", "ABC", "a", " ", "!?-", "aB1 \n"};
  for (size_t a = 0; a < sizeof alphabets / sizeof *alphabets; a++) {
    for (size_t i = 0; i < length; i++) text[i] = alphabets[a][random_u64(a, 0, i) % strlen(alphabets[a])];
    struct token_list ids = {0};
    double begin = time_now();
    ASSERT_OK(tokenizer_encode(tokenizer, text, length, EAGLET_SPECIAL_ALLOW, &ids, err));
    double seconds = time_now() - begin;
    if (seconds > 10) fail_msg("alphabet %zu took %.2f s", a, seconds); /* about 0.2 s; a quadratic merge takes hours */
    size_t at = 0, n;
    for (size_t i = 0; i < ids.n; at += n, i++) {
      const char *bytes = tokenizer_bytes(tokenizer, ids.ids[i], &n);
      if (memcmp(text + at, bytes, n) != 0) fail_msg("alphabet %zu, token %zu", a, i);
    }
    assert_int_equal(at, length);
    token_list_clear(&ids);
  }
  free(text);
  tokenizer_close(tokenizer);
}

/* ---- the merge loop against its definition ---- */

#include "text/bpe.h"

static void naive_merge(const struct bpe_ranks *ranks, const char *piece, size_t length, struct token_list *ids) {
  size_t start[600], n = length;
  assert_true(length < 599);
  for (size_t i = 0; i <= length; i++) start[i] = i;
  for (;;) {
    uint32_t best = BPE_NONE;
    size_t at = 0;
    for (size_t i = 0; i + 1 < n; i++) {
      uint32_t rank = bpe_ranks_find(ranks, piece + start[i], start[i + 2] - start[i]);
      if (rank < best) {
        best = rank;
        at = i;
      }
    }
    if (best == BPE_NONE) break;
    for (size_t i = at + 1; i < n; i++) start[i] = start[i + 1];
    n--;
  }
  for (size_t i = 0; i < n; i++)
    token_list_append(ids, (int32_t)bpe_ranks_find(ranks, piece + start[i], start[i + 1] - start[i]));
}

static void test_merge_loops_agree(void **state) {
  (void)state;
  char blob[4096];
  uint32_t at[300], n = 0, used = 0;
  for (int c = 0; c < 3; c++) { /* an alphabet of three letters and random words: many overlapping merges */
    at[n++] = used;
    blob[used++] = (char)('a' + c);
  }
  struct bpe_ranks ranks;
  for (uint64_t draw = 0; n < 200; draw++) {
    char word[12];
    size_t length = 2 + random_u64(1, draw, 0) % 7;
    for (size_t i = 0; i < length; i++) word[i] = (char)('a' + random_u64(1, draw, i + 1) % 3);
    bool seen = false;
    for (uint32_t i = 0; i < n && !seen; i++) {
      size_t other = (i + 1 < n ? at[i + 1] : used) - at[i];
      seen = other == length && memcmp(blob + at[i], word, length) == 0;
    }
    if (seen) continue;
    at[n++] = used;
    memcpy(blob + used, word, length);
    used += (uint32_t)length;
  }
  at[n] = used;
  ASSERT_OK(bpe_ranks_init(&ranks, blob, at, n, err));
  struct bpe_scratch scratch = {0};
  for (uint64_t trial = 0; trial < 600; trial++) {
    char piece[600];
    size_t length = 1 + random_u64(2, trial, 0) % (trial < 400 ? 60 : 590);
    for (size_t i = 0; i < length; i++) piece[i] = (char)('a' + random_u64(2, trial, i + 1) % 3);
    struct token_list fast = {0}, naive = {0};
    struct bpe_sink sink = {.ids = &fast};
    bpe_encode(&ranks, &scratch, piece, length, 0, &sink);
    if (bpe_ranks_find(&ranks, piece, length) != BPE_NONE)
      token_list_append(&naive, (int32_t)bpe_ranks_find(&ranks, piece, length));
    else
      naive_merge(&ranks, piece, length, &naive);
    assert_int_equal(fast.n, naive.n);
    assert_memory_equal(fast.ids, naive.ids, fast.n * sizeof *fast.ids);
    token_list_clear(&fast);
    token_list_clear(&naive);
  }
  /* One piece of a megabyte (the pattern's pre-chunks are shorter): n log n, bytes restored. */
  size_t length = 1000000, total = 0;
  char *piece = memory_alloc(length);
  for (size_t i = 0; i < length; i++) piece[i] = (char)('a' + random_u64(3, 0, i) % 3);
  struct token_list ids = {0};
  struct bpe_sink sink = {.ids = &ids};
  double begin = time_now();
  bpe_encode(&ranks, &scratch, piece, length, 0, &sink);
  if (time_now() - begin > 10) fail_msg("a megabyte took %.1f s", time_now() - begin);
  for (size_t i = 0; i < ids.n; i++) {
    size_t token_length = at[ids.ids[i] + 1] - at[ids.ids[i]];
    assert_memory_equal(piece + total, blob + at[ids.ids[i]], token_length);
    total += token_length;
  }
  assert_int_equal(total, length);
  token_list_clear(&ids);
  free(piece);
  bpe_scratch_release(&scratch);
  bpe_ranks_release(&ranks);
}

/* ---- damaged directories ---- */

static char *base64(const char *bytes, size_t n) { /* n <= 2 */
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t bits = (uint32_t)(uint8_t)bytes[0] << 16 | (n > 1 ? (uint32_t)(uint8_t)bytes[1] << 8 : 0);
  return memory_format("%c%c%c=", digits[bits >> 18], digits[bits >> 12 & 63], n > 1 ? digits[bits >> 6 & 63] : '=');
}

static void write_ranks(const char *directory, int skip_byte, const char *extra) {
  struct buffer text;
  buffer_init(&text);
  for (int byte = 0, rank = 0; byte < 256; byte++) {
    if (byte == skip_byte) continue;
    char c = (char)byte, *code = base64(&c, 1);
    buffer_format(&text, "%s %d\n", code, rank++);
    free(code);
  }
  buffer_append_string(&text, extra);
  write_file(directory, "tiktoken.model", text.data);
  buffer_clear(&text);
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    int skip_byte;
    const char *extra, *config, *expected;
  } cases[] = {
      {-1, "YWI= 256\n", "{\"added_tokens_decoder\":{\"300\":{\"content\":\"<s>\"}}}", NULL},
      {-1, "", "{}", NULL},
      {'q', "YWI= 255\n", "{}", "no rank for the single byte 0x71"},
      {-1, "YWI= 255\n", "{}", "rank 255 appears twice"},
      {-1, "YWI= 256\nYWI= 257\n", "{}", "ranks 256 and 257 have the same bytes"},
      {-1, "YWI= 258\n", "{}", "rank 256 is missing"},
      {-1, "YW!= 256\n", "{}", "line 257: token is not valid base64"},
      {-1, "YWI 256\n", "{}", "line 257: token is not valid base64"},
      {-1, "YWJ= 256\n", "{}", "line 257: token is not valid base64"},
      {-1, "YWI=\n", "{}", "line 257: expected base64, space and rank"},
      {-1, "YWI= 2x\n", "{}", "line 257: rank is not a number"},
      {-1, "YWI= 99999999\n", "{}", "above the limit"},
      {-1, "", NULL, "tokenizer_config.json: file is missing"},
      {-1, "", "{\"added_tokens_decoder\":{\"255\":{\"content\":\"<s>\"}}}", "collides with the vocabulary"},
      {-1, "", "{\"added_tokens_decoder\":{\"256\":{\"content\":\"<s>\"},\"257\":{\"content\":\"<s>\"}}}", "have the same text"},
      {-1, "", "{\"added_tokens_decoder\":{\"256\":{\"content\":\"<s>\"},\"0256\":{\"content\":\"<t>\"}}}", "appears twice"},
      {-1, "", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<s>\"}}}", "expected a token id"},
      {-1, "", "{\"added_tokens_decoder\":{\"300\":{}}}", "content: expected a non-empty string"},
      {-1, "", "{\"added_tokens_decoder\":{\"9999999999\":{\"content\":\"<s>\"}}}", "expected a token id"},
      {-1, "", "{\"added_tokens_decoder\":3}", "expected an object"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *directory = temporary_directory();
    write_ranks(directory, cases[i].skip_byte, cases[i].extra);
    if (cases[i].config) write_file(directory, "tokenizer_config.json", cases[i].config);
    struct tokenizer *tokenizer;
    struct eaglet_error err = {0};
    enum eaglet_status status = tokenizer_open(&tokenizer, directory, &err);
    if (!cases[i].expected) {
      if (status != EAGLET_OK) fail_msg("case %zu: %s", i, err.message);
      tokenizer_close(tokenizer);
    } else {
      assert_int_equal(status, EAGLET_E_INPUT);
      assert_null(tokenizer);
      if (!strstr(err.message, cases[i].expected)) fail_msg("case %zu: %s", i, err.message);
    }
    temporary_remove(directory);
  }
  char *empty = temporary_directory();
  struct tokenizer *tokenizer;
  struct eaglet_error err = {0};
  assert_int_equal(tokenizer_open(&tokenizer, empty, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "no tokenizer file"));
  temporary_remove(empty);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nano_kimi),      cmocka_unit_test(test_names_and_reserved), cmocka_unit_test(test_kimi_k2_golden),      cmocka_unit_test(test_kimi_k2_chat_ids),
      cmocka_unit_test(test_han_punctuation), cmocka_unit_test(test_han_split),      cmocka_unit_test(test_protected_spans),    cmocka_unit_test(test_invalid_text),
      cmocka_unit_test(test_long_runs),      cmocka_unit_test(test_merge_loops_agree),  cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
