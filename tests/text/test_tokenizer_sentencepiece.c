/* test_tokenizer_sentencepiece.c - tokenizer.model: ids of a real model by the sentencepiece library (where the shared data is
 * there), models of a few pieces written here byte by byte, and refusal of damaged and unsupported ones.
 */
#include "support.h"
#include "base/util.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

#define MARK "\xe2\x96\x81"

/* ---- writing protocol buffers ---- */

static void put_varint(struct buffer *out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) buffer_append_char(out, (char)(0x80 | (value & 0x7f)));
  buffer_append_char(out, (char)value);
}

static void put_number(struct buffer *out, int field, uint64_t value) {
  put_varint(out, (uint64_t)field << 3);
  put_varint(out, value);
}

static void put_bytes(struct buffer *out, int field, const char *bytes, size_t length) {
  put_varint(out, (uint64_t)field << 3 | 2);
  put_varint(out, length);
  buffer_append(out, bytes, length);
}

static void put_piece(struct buffer *out, const char *text, float score, int type) {
  struct buffer piece;
  buffer_init(&piece);
  put_bytes(&piece, 1, text, strlen(text));
  put_varint(&piece, 2 << 3 | 5);
  buffer_append(&piece, &score, sizeof score);
  if (type != 1) put_number(&piece, 3, (uint64_t)type);
  put_bytes(out, 1, piece.data, piece.length);
  buffer_clear(&piece);
}

struct model_options {
  int model_type;
  bool byte_fallback, no_prefix, keep_spaces, charsmap;
};

static void put_specs(struct buffer *out, const struct model_options *options) {
  struct buffer spec;
  buffer_init(&spec);
  put_number(&spec, 3, (uint64_t)options->model_type);
  put_number(&spec, 35, options->byte_fallback);
  put_bytes(out, 2, spec.data, spec.length);
  buffer_reset(&spec);
  put_bytes(&spec, 1, "identity", 8);
  if (options->charsmap) put_bytes(&spec, 2, "xyz", 3);
  put_number(&spec, 3, !options->no_prefix);
  put_number(&spec, 4, !options->keep_spaces);
  put_bytes(out, 3, spec.data, spec.length);
  buffer_clear(&spec);
}

static void put_letters(struct buffer *out, const struct model_options *options) {
  put_piece(out, "<unk>", 0, 2);
  put_piece(out, "<s>", 0, 3);
  put_piece(out, "</s>", 0, 3);
  for (int byte = 0; byte < 256 && options->byte_fallback; byte++) {
    char text[8];
    snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
    put_piece(out, text, 0, 6);
  }
}

static char *write_model(const struct buffer *model) {
  char *directory = temporary_directory(), *path = file_join(directory, "tokenizer.model");
  struct eaglet_error err;
  if (file_write(path, model->data, model->length, &err) != EAGLET_OK) fail_msg("%s", err.message);
  free(path);
  return directory;
}

/* Encodes and writes the pieces with | between. */
static void check_pieces(const struct tokenizer *tokenizer, const char *text, enum eaglet_special special, const char *expected) {
  struct token_list ids = {0};
  struct buffer found;
  buffer_init(&found);
  buffer_append(&found, "", 0);
  ASSERT_OK(tokenizer_encode(tokenizer, text, strlen(text), special, &ids, err));
  for (size_t i = 0; i < ids.n; i++) {
    size_t n;
    const char *bytes = tokenizer_bytes(tokenizer, ids.ids[i], &n);
    if (i) buffer_append_char(&found, '|');
    buffer_append(&found, bytes, n);
  }
  assert_string_equal(found.data, expected);
  buffer_clear(&found);
  token_list_clear(&ids);
}

static void check_decoded(const struct tokenizer *tokenizer, const char *text, const char *expected) {
  struct token_list ids = {0};
  struct buffer out;
  struct detokenizer detokenizer;
  buffer_init(&out);
  buffer_append(&out, "", 0);
  ASSERT_OK(tokenizer_encode(tokenizer, text, strlen(text), EAGLET_SPECIAL_ALLOW, &ids, err));
  detokenizer_init(&detokenizer, tokenizer);
  for (size_t i = 0; i < ids.n; i++) {
    detokenizer_push(&detokenizer, ids.ids[i], &out);
    assert_int_equal(utf8_valid(out.data, out.length), out.length);
  }
  detokenizer_finish(&detokenizer, &out);
  assert_string_equal(out.data, expected);
  buffer_clear(&out);
  token_list_clear(&ids);
}

/* ---- tests ---- */

static void test_stories(void **state) {
  (void)state;
  char *golden = shared_path("public/stories260k/tokens.json"), *model = shared_path("public/stories260k");
  if (!golden || !model) skip();
  struct tokenizer *tokenizer;
  ASSERT_OK(tokenizer_open(&tokenizer, model, err));
  assert_string_equal(tokenizer_kind(tokenizer), "sentencepiece");
  assert_string_equal(tokenizer_named(tokenizer, "bos_token"), "<s>");
  assert_int_equal(tokenizer_n_ids(tokenizer), 512);
  json_t *rows, *row;
  ASSERT_OK(json_parse_file(&rows, golden, err));
  size_t i;
  json_array_foreach(rows, i, row) {
    const json_t *text = json_object_get(row, "text"), *expected = json_object_get(row, "ids");
    struct token_list ids = {0};
    ASSERT_OK(tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), EAGLET_SPECIAL_ADD, &ids, err));
    assert_int_equal(ids.n, json_array_size(expected) + 1);
    assert_int_equal(ids.ids[0], 1);
    for (size_t j = 1; j < ids.n; j++) assert_int_equal(ids.ids[j], json_integer_value(json_array_get(expected, j - 1)));
    token_list_clear(&ids);
    check_decoded(tokenizer, json_string_value(text), json_string_value(text));
  }
  assert_true(i > 5);
  json_decref(rows);
  tokenizer_close(tokenizer);
  free(golden);
  free(model);
}

static void test_merges_follow_scores(void **state) {
  (void)state;
  const struct model_options options = {.model_type = 2, .byte_fallback = true, .keep_spaces = true};
  struct buffer model;
  buffer_init(&model);
  put_letters(&model, &options);
  static const struct { const char *text; float score; int type; } pieces[] = {
      {"bc", -1, 1}, {"ab", -2, 1}, {"abc", -3, 1}, {"aa", -4, 1}, {MARK "a", -5, 1}, {"xy", -5, 1}, /* x and y are no pieces */
      {"yx", -5, 1}, {"<think>", 0, 4}, {"a", -10, 1}, {"b", -11, 1}, {"c", -12, 1}, {MARK, -13, 1}};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) put_piece(&model, pieces[i].text, pieces[i].score, pieces[i].type);
  put_specs(&model, &options);
  char *directory = write_model(&model);
  struct tokenizer *tokenizer;
  ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
  check_pieces(tokenizer, "abc", EAGLET_SPECIAL_ALLOW, " |abc"); /* bc, then abc before the mark's pair */
  check_pieces(tokenizer, "a", EAGLET_SPECIAL_ALLOW, " a");
  check_pieces(tokenizer, "cabc", EAGLET_SPECIAL_ALLOW, " |c|abc");
  check_pieces(tokenizer, "caaa", EAGLET_SPECIAL_ALLOW, " |c|aa|a"); /* equal scores: leftmost */
  check_pieces(tokenizer, "cxyx", EAGLET_SPECIAL_ALLOW, " |c|xy|x"); /* a character that only merges falls back to its byte */
  check_pieces(tokenizer, "\xc3\xa9", EAGLET_SPECIAL_ALLOW, " |\xc3|\xa9");
  check_pieces(tokenizer, "", EAGLET_SPECIAL_ALLOW, "");
  check_pieces(tokenizer, "  a", EAGLET_SPECIAL_ALLOW, " | | a");
  check_pieces(tokenizer, "b<think>b", EAGLET_SPECIAL_AS_TEXT, " |b|<think>|b");
  check_pieces(tokenizer, "b</s>b", EAGLET_SPECIAL_ALLOW, " |b|</s>| |b");
  check_pieces(tokenizer, "a</s>", EAGLET_SPECIAL_AS_TEXT, " a|<|/|s|>");
  check_pieces(tokenizer, "a", EAGLET_SPECIAL_ADD, "<s>| a");
  check_decoded(tokenizer, "abc a", "abc a");
  check_decoded(tokenizer, "h\xc3\xa9 \xf0\x9f\x99\x82!", "h\xc3\xa9 \xf0\x9f\x99\x82!");
  check_decoded(tokenizer, "  a", "  a");
  tokenizer_close(tokenizer);
  /* tokenizer_config.json has the last word on BOS and EOS; legacy false: the prefix stands at the start of the text only. */
  write_file(directory, "tokenizer_config.json", "{\"add_bos_token\":false,\"add_eos_token\":true,\"legacy\":false,\"eos_token\":\"</s>\"}");
  ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
  check_pieces(tokenizer, "a", EAGLET_SPECIAL_ADD, " a|</s>");
  check_pieces(tokenizer, "b</s>b", EAGLET_SPECIAL_ALLOW, " |b|</s>|b");
  tokenizer_close(tokenizer);
  temporary_remove(directory);
  buffer_clear(&model);
}

static void test_space_removal_and_unknown(void **state) {
  (void)state;
  const struct model_options options = {.model_type = 2};
  struct buffer model;
  buffer_init(&model);
  put_letters(&model, &options);
  put_piece(&model, "a", -1, 1);
  put_piece(&model, MARK, -2, 1);
  put_specs(&model, &options);
  char *directory = write_model(&model);
  struct tokenizer *tokenizer;
  ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
  check_pieces(tokenizer, "  a   a ", EAGLET_SPECIAL_ALLOW, " |a| |a");
  check_pieces(tokenizer, "   ", EAGLET_SPECIAL_ALLOW, "");
  check_pieces(tokenizer, "axya", EAGLET_SPECIAL_ALLOW, " |a|<unk>|a"); /* a run of unknown characters is one token */
  tokenizer_close(tokenizer);
  temporary_remove(directory);
  buffer_clear(&model);
}

static void check_refused(const struct buffer *model, size_t length, const char *expected) {
  struct buffer part = *model;
  part.length = length;
  char *directory = write_model(&part);
  struct tokenizer *tokenizer;
  struct eaglet_error err = {0};
  assert_int_equal(tokenizer_open(&tokenizer, directory, &err), EAGLET_E_INPUT);
  if (!strstr(err.message, expected)) fail_msg("expected \"%s\", found \"%s\"", expected, err.message);
  temporary_remove(directory);
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    struct model_options options;
    int type;
    const char *piece, *expected;
  } cases[] = {
      {{.model_type = 1}, 1, "a", "Unigram is not supported"},
      {{.model_type = 3}, 1, "a", "Word is not supported"},
      {{.model_type = 2, .charsmap = true}, 1, "a", "precompiled character map"},
      {{.model_type = 2}, 5, "a", "unused piece"},
      {{.model_type = 2}, 9, "a", "type 9"},
      {{.model_type = 2}, 1, "", "is empty"},
      {{.model_type = 2}, 1, "\xff", "not valid UTF-8"},
      {{.model_type = 2}, 1, "<s>", "have the same bytes"},
  };
  struct buffer model;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    buffer_init(&model);
    put_letters(&model, &cases[i].options);
    put_piece(&model, cases[i].piece, 0, cases[i].type);
    put_specs(&model, &cases[i].options);
    check_refused(&model, model.length, cases[i].expected);
    buffer_clear(&model);
  }
  buffer_init(&model);
  put_letters(&model, &cases[0].options);
  for (size_t cut = 1; cut < 12; cut++) check_refused(&model, cut, "damaged"); /* inside the first piece */
  check_refused(&model, 0, "Unigram"); /* an empty file is a model of defaults */
  buffer_clear(&model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stories),
      cmocka_unit_test(test_merges_follow_scores),
      cmocka_unit_test(test_space_removal_and_unknown),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
