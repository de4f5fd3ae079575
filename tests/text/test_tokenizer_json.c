/* test_tokenizer_json.c - tokenizer.json against golden ids and texts of Hugging Face's tokenizers (six real vocabularies, where
 * the shared data is there), and small tokenizers written here for every part of the pipeline.
 */
#include "support.h"
#include "base/util.h"
#include "text/detokenizer.h"
#include "text/template.h"
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
    const json_t *text = json_object_get(row, "text"), *decoded = json_object_get(row, "decoded");
    if (tokenizer_keeps_text(tokenizer) && !json_equal(text, decoded)) fail_msg("%s: text is not kept", label);
    json_decref(row);
  }
  assert_int_equal(n, 687);
  assert_int_equal(n_bad, 0);
  assert_int_equal(tokenizer_keeps_text(tokenizer), strcmp(name, "qwen3") != 0 && strcmp(name, "llama2") != 0 && strcmp(name, "mistral03") != 0);
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


/* Rendered conversations are encoded without BOS of the tokenizer's own: the template writes it (bug report B07). */
static void test_chat_ids(void **state) {
  (void)state;
  static const char *const names[] = {"llama2", "llama3", "qwen3", "deepseek_v3"};
  char *golden = shared_path("public/golden/chat_ids.jsonl");
  if (!golden) skip();
  struct tokenizer *tokenizers[4];
  for (int i = 0; i < 4; i++)
    if (!(tokenizers[i] = open_shared(names[i]))) skip();
  struct file_lines *lines;
  ASSERT_OK(file_lines_open(&lines, golden, err));
  json_t *row;
  int n = 0, n_bad = 0;
  while ((row = next_row(lines))) {
    const char *name = json_string_value(json_object_get(row, "tokenizer"));
    json_object_set(row, "text", json_object_get(row, "rendered"));
    for (int i = 0; i < 4; i++) {
      if (strcmp(names[i], name) != 0) continue;
      n_bad += check_encoding(tokenizers[i], name, row, "ids", EAGLET_SPECIAL_ALLOW);
      n++;
    }
    json_decref(row);
  }
  assert_true(n > 250);
  assert_int_equal(n_bad, 0);
  for (int i = 0; i < 4; i++) tokenizer_close(tokenizers[i]);
  file_lines_close(lines);
  free(golden);
}

/* ---- tokenizers written here ---- */

#define MARK "\xe2\x96\x81"

/* Fills the template's %s places: added tokens, normalizer, pre-tokenizer, post-processor, decoder, model fields, vocab, merges. */
struct spec {
  const char *added, *normalizer, *splitter, *processor, *decoder, *model, *vocab, *merges, *config;
};

static const char *or(const char *text, const char *fallback) { return text ? text : fallback; }

static char *write_spec(const struct spec *spec) {
  char *directory = temporary_directory();
  char *text = memory_format("{\"version\":\"1.0\",\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,"
                             "\"decoder\":%s,\"model\":{\"type\":\"BPE\",%s\"vocab\":{%s},\"merges\":[%s]}}",
                             or(spec->added, ""), or(spec->normalizer, "null"), or(spec->splitter, "null"), or(spec->processor, "null"),
                             or(spec->decoder, "{\"type\":\"Fuse\"}"), or(spec->model, ""), or(spec->vocab, "\"a\":0"), or(spec->merges, ""));
  write_file(directory, "tokenizer.json", text);
  if (spec->config) write_file(directory, "tokenizer_config.json", spec->config);
  free(text);
  return directory;
}

static struct tokenizer *open_spec(const struct spec *spec) {
  char *directory = write_spec(spec);
  struct tokenizer *tokenizer;
  ASSERT_OK(tokenizer_open(&tokenizer, directory, err));
  temporary_remove(directory);
  return tokenizer;
}

static void check_ids(const struct tokenizer *tokenizer, const char *text, enum eaglet_special special, const char *expected) {
  struct token_list ids = {0};
  ASSERT_OK(tokenizer_encode(tokenizer, text, strlen(text), special, &ids, err));
  struct buffer found;
  buffer_init(&found);
  buffer_append(&found, "", 0);
  for (size_t i = 0; i < ids.n; i++) buffer_format(&found, "%s%d", i ? " " : "", ids.ids[i]);
  if (strcmp(found.data, expected) != 0) fail_msg("\"%s\": expected \"%s\", found \"%s\"", text, expected, found.data);
  buffer_clear(&found);
  token_list_clear(&ids);
}

static void check_text(const struct tokenizer *tokenizer, const int32_t *ids, size_t n, const char *expected) {
  struct detokenizer detokenizer;
  struct buffer out;
  detokenizer_init(&detokenizer, tokenizer);
  buffer_init(&out);
  buffer_append(&out, "", 0);
  for (size_t i = 0; i < n; i++) {
    detokenizer_push(&detokenizer, ids[i], &out);
    assert_int_equal(utf8_valid(out.data, out.length), out.length); /* never half a character */
  }
  detokenizer_finish(&detokenizer, &out);
  assert_string_equal(out.data, expected);
  buffer_clear(&out);
}
#define CHECK_TEXT(tokenizer, expected, ...) \
  check_text(tokenizer, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), expected)

#define LETTERS "\"a\":0,\"b\":1,\"c\":2,\" \":3,\"1\":4,\"2\":5,\".\":6,\"" MARK "\":7,\"<unk>\":8,\"x\":9"

static void test_added_token_flags(void **state) {
  (void)state;
  const struct spec spec = {
      .vocab = LETTERS,
      .added = "{\"id\":10,\"content\":\"<l>\",\"lstrip\":true,\"special\":true,\"normalized\":false},"
               "{\"id\":11,\"content\":\"<r>\",\"rstrip\":true,\"special\":true,\"normalized\":false},"
               "{\"id\":12,\"content\":\"ab\",\"single_word\":true,\"special\":false,\"normalized\":false},"
               "{\"id\":13,\"content\":\"<l><r>\",\"special\":true,\"normalized\":false},"
               "{\"id\":14,\"content\":\"<t>\",\"special\":false,\"normalized\":false},"
               "{\"id\":15,\"content\":\"B\",\"special\":false,\"normalized\":true}",
      .normalizer = "{\"type\":\"Lowercase\"}"};
  struct tokenizer *tokenizer = open_spec(&spec);
  check_ids(tokenizer, "a  <l> a", EAGLET_SPECIAL_ALLOW, "0 10 3 0");
  check_ids(tokenizer, "a <r>\xe3\x80\x80 a", EAGLET_SPECIAL_ALLOW, "0 3 11 0"); /* any Unicode white space */
  check_ids(tokenizer, "c<r> <l>c", EAGLET_SPECIAL_ALLOW, "2 11 10 2");           /* swallowed once */
  check_ids(tokenizer, "<l><r>", EAGLET_SPECIAL_ALLOW, "13");                     /* leftmost, longest */
  check_ids(tokenizer, "ab cab. ab", EAGLET_SPECIAL_ALLOW, "12 3 2 0 15 6 3 12"); /* single word; elsewhere the normalised b */
  check_ids(tokenizer, "aBb", EAGLET_SPECIAL_ALLOW, "0 15 15");                   /* matched in normalised text, itself normalised */
  check_ids(tokenizer, "<t>a", EAGLET_SPECIAL_AS_TEXT, "14 0");                   /* not special: vocabulary, always found */
  check_ids(tokenizer, "a<l>a", EAGLET_SPECIAL_AS_TEXT, "0 0");                   /* characters without a token are dropped */
  assert_true(tokenizer_has_special(tokenizer, "x<l>", 4));
  assert_false(tokenizer_has_special(tokenizer, "x<t>", 4));
  assert_true(tokenizer_is_special(tokenizer, 10));
  assert_false(tokenizer_is_special(tokenizer, 14));
  tokenizer_close(tokenizer);
}

/* Bug report B11: special tokens inside protected spans are text, on raw and on normalised text; offsets point into the raw text. */
static void test_protection_and_offsets(void **state) {
  (void)state;
  const struct spec spec = {.vocab = LETTERS ",\"<\":10,\">\":11,\"s\":12",
                            .added = "{\"id\":13,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"
                                     "{\"id\":14,\"content\":\"<x>\",\"special\":true,\"normalized\":true}",
                            .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},"
                                          "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]}"};
  /* Prepend is part of what <x> is normalised to, so it stands at the start of a piece only. */
  struct tokenizer *tokenizer = open_spec(&spec);
  const char *text = "<s>a <s><s>b";
  struct text_span span = {4, 8};
  struct token_list ids = {0};
  size_t *offsets;
  ASSERT_OK(tokenizer_encode_spans(tokenizer, &(struct protected_text){text, strlen(text), &span, 1}, &ids, &offsets, err));
  static const int32_t expected[] = {13, 7, 0, 7, 10, 12, 11, 13, 7, 1};
  static const size_t places[] = {0, 3, 3, 4, 5, 6, 7, 8, 11, 11};
  assert_int_equal(ids.n, 10);
  for (size_t i = 0; i < 10; i++) {
    assert_int_equal(ids.ids[i], expected[i]);
    assert_int_equal(offsets[i], places[i]);
  }
  free(offsets);
  span = (struct text_span){0, 3};
  ids.n = 0;
  ASSERT_OK(tokenizer_encode_spans(tokenizer, &(struct protected_text){"<x>", 3, &span, 1}, &ids, NULL, err));
  assert_int_equal(ids.n, 4);
  check_ids(tokenizer, "<x>", EAGLET_SPECIAL_ALLOW, "14");
  token_list_clear(&ids);
  tokenizer_close(tokenizer);
}

static void test_normalizers(void **state) {
  (void)state;
  static const struct {
    const char *normalizer, *text, *expected;
  } cases[] = {
      {"{\"type\":\"NFC\"}", "e\xcc\x81", "10"},
      {"{\"type\":\"NFD\"}", "\xc3\xa9", "11 12"},
      {"{\"type\":\"NFKC\"}", "\xef\xbc\x91", "4"}, /* full-width digit one */
      {"{\"type\":\"NFKD\"}", "\xc2\xb2\xc3\xa9", "5 11 12"},
      {"{\"type\":\"Lowercase\"}", "ABC", "0 1 2"},
      {"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"StripAccents\"}]}", "\xc3\xa9", "11"},
      {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"c\"}", "aabb", "0 2 1"},
      {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}", "a   b", "0 3 1"},
      {"{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"}", "a", "7 0"},
      {"{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"}", "", ""},
      {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", " \xc2\xa0" "a b ", "0 3 1"},
      {"{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}", " a ", "3 0"},
      {"{\"type\":\"Sequence\",\"normalizers\":[]}", "a", "0"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct spec spec = {.vocab = LETTERS ",\"\xc3\xa9\":10,\"e\":11,\"\xcc\x81\":12", .normalizer = cases[i].normalizer};
    struct tokenizer *tokenizer = open_spec(&spec);
    check_ids(tokenizer, cases[i].text, EAGLET_SPECIAL_ALLOW, cases[i].expected);
    tokenizer_close(tokenizer);
  }
}

/* Every pair of letters merges, so that ids show where the text was cut. */
static void test_splitters(void **state) {
  (void)state;
#define SPLIT(pattern, behavior) "{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behavior "\",\"invert\":false}"
#define INVERTED(pattern, behavior) "{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behavior "\",\"invert\":true}"
#define DOT "{\"String\":\".\"}"
  static const struct {
    const char *splitter, *text, *expected;
  } cases[] = { /* pieces, cut by | */
      {SPLIT(DOT, "Isolated"), "a..b", "a|.|.|b"},
      {SPLIT(DOT, "Removed"), "a..b", "a|b"},
      {SPLIT(DOT, "MergedWithPrevious"), "a..b", "a.|.|b"},
      {SPLIT(DOT, "MergedWithNext"), "a..b", "a|.|.b"},
      {SPLIT(DOT, "Contiguous"), "a..b", "a|..|b"},
      {SPLIT(DOT, "MergedWithNext"), "a.", "a|."},
      {INVERTED("{\"Regex\":\"[a-c]+\"}", "Removed"), "ab..c", "ab|c"},
      {SPLIT("{\"Regex\":\"\\\\p{N}{1,2}\"}", "Isolated"), "a121b", "a|12|1|b"},
      {SPLIT("{\"Regex\":\"\\\\s+(?!\\\\S)|\\\\s+\"}", "Isolated"), "a   b", "a|  | |b"},
      {SPLIT("{\"Regex\":\"(?i:A)\"}", "Isolated"), "bab", "b|a|b"},
      {SPLIT("{\"Regex\":\"[a-c&&[^b]]+\"}", "Isolated"), "abca", "a|b|ca"},
      {SPLIT("{\"Regex\":\"1{2}+\"}", "Isolated"), "a11111", "a|1111|1"}, /* Ruby's dialect: a repetition of {2} */
      {SPLIT("{\"Regex\":\"$\"}", "Isolated"), "ab", "ab"},
      {"{\"type\":\"Digits\",\"individual_digits\":true}", "a12", "a|1|2"},
      {"{\"type\":\"Digits\",\"individual_digits\":false}", "a12b", "a|12|b"},
      {"{\"type\":\"Punctuation\"}", "a..b", "a|.|.|b"},
      {"{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}", "a..b", "a|..|b"},
      {"{\"type\":\"Whitespace\"}", "ab. c", "ab|.|c"},
      {"{\"type\":\"WhitespaceSplit\"}", "ab. c", "ab.|c"},
      {"{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"always\",\"split\":true}", "a b", MARK "a|" MARK "b"},
      {"{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"never\",\"split\":false}", "a b", "a" MARK "b"},
      {"{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"add_prefix_space\":false}", "a b", "a|" MARK "b"},
      {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\",\"replacement\":\"" MARK
       "\",\"prepend_scheme\":\"first\"}]}", "a b", MARK "a|b"},
      {"{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("{\"String\":\" \"}", "MergedWithNext") "," SPLIT(DOT, "Isolated") "]}",
       "a b.c", "a| b|.|c"},
      {"null", "a b", "a b"},
  };
  static const char *const letters[] = {"a", "b", "c", " ", "1", "2", ".", MARK};
  struct buffer vocab, merges;
  buffer_init(&vocab);
  buffer_init(&merges);
  buffer_append_string(&vocab, LETTERS);
  for (int i = 0, id = 100; i < 64; i++) { /* pairs, then pairs of pairs: any cut shows */
    buffer_format(&vocab, ",\"%s%s\":%d", letters[i / 8], letters[i % 8], id++);
    buffer_format(&merges, "%s[\"%s\",\"%s\"]", i ? "," : "", letters[i / 8], letters[i % 8]);
  }
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct spec spec = {.vocab = vocab.data, .merges = merges.data, .splitter = cases[i].splitter};
    const struct spec whole = {.vocab = vocab.data, .merges = merges.data};
    struct tokenizer *tokenizer = open_spec(&spec), *plain = open_spec(&whole);
    struct token_list ids = {0}, expected = {0};
    ASSERT_OK(tokenizer_encode(tokenizer, cases[i].text, strlen(cases[i].text), EAGLET_SPECIAL_ALLOW, &ids, err));
    for (const char *piece = cases[i].expected; *piece;) {
      size_t n = strcspn(piece, "|");
      ASSERT_OK(tokenizer_encode(plain, piece, n, EAGLET_SPECIAL_ALLOW, &expected, err));
      piece += n + (piece[n] == '|');
    }
    if (ids.n != expected.n || memcmp(ids.ids, expected.ids, ids.n * sizeof *ids.ids) != 0) fail_msg("case %zu: %s", i, cases[i].expected);
    token_list_clear(&ids);
    token_list_clear(&expected);
    tokenizer_close(tokenizer);
    tokenizer_close(plain);
  }
  buffer_clear(&vocab);
  buffer_clear(&merges);
}

static void test_model_flags(void **state) {
  (void)state;
  const char *vocab = LETTERS ",\"ab\":10,\"abc\":11,\"<0xC3>\":12,\"<0xA9>\":13";
  const struct spec plain = {.vocab = vocab, .merges = "\"a b\"", .model = "\"unk_token\":\"<unk>\","};
  struct tokenizer *tokenizer = open_spec(&plain);
  check_ids(tokenizer, "abc", EAGLET_SPECIAL_ALLOW, "10 2");
  check_ids(tokenizer, "a??b", EAGLET_SPECIAL_ALLOW, "0 8 8 1");
  tokenizer_close(tokenizer);
  const struct spec flags = {.vocab = vocab, .merges = "[\"a\",\"b\"]",
                             .model = "\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":true,\"dropout\":null,"};
  tokenizer = open_spec(&flags);
  check_ids(tokenizer, "abc", EAGLET_SPECIAL_ALLOW, "11");    /* the whole word is a token, merges or not */
  check_ids(tokenizer, "abcb", EAGLET_SPECIAL_ALLOW, "10 2 1");
  check_ids(tokenizer, "a??b", EAGLET_SPECIAL_ALLOW, "0 8 1"); /* fused */
  check_ids(tokenizer, "\xc3\xa9", EAGLET_SPECIAL_ALLOW, "12 13");
  check_ids(tokenizer, "\xc3\xaa", EAGLET_SPECIAL_ALLOW, "8"); /* not all bytes have tokens */
  tokenizer_close(tokenizer);
  const struct spec drop = {.vocab = vocab, .merges = "\"#version: 0.2\",\"a b\""};
  tokenizer = open_spec(&drop);
  check_ids(tokenizer, "a?b", EAGLET_SPECIAL_ALLOW, "10"); /* a dropped character leaves its neighbours adjacent */
  tokenizer_close(tokenizer);
}

/* Bug report B07: exactly one BOS for a raw text, none of the tokenizer's own otherwise. */
static void test_surrounding(void **state) {
  (void)state;
#define BOTH "{\"id\":10,\"content\":\"<s>\",\"special\":true},{\"id\":11,\"content\":\"</s>\",\"special\":true}"
#define TEMPLATE "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\"}}]," \
                 "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[10],\"tokens\":[\"<s>\"]}}}"
#define NAMES "\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"}"
  static const struct {
    const char *processor, *config, *expected;
  } cases[] = {
      {NULL, NULL, "0"},
      {TEMPLATE, NULL, "10 0"},
      {TEMPLATE, "{\"add_bos_token\":true," NAMES "}", "10 0"},
      {TEMPLATE, "{\"add_bos_token\":false," NAMES "}", "0"},
      {NULL, "{\"add_bos_token\":true,\"add_eos_token\":true," NAMES "}", "10 0 11"},
      {NULL, "{\"tokenizer_class\":\"LlamaTokenizerFast\"," NAMES "}", "10 0"},
      {NULL, "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"," NAMES "}", "0"},
      {"{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",11],\"cls\":[\"<s>\",10]}", NULL, "10 0 11"},
      {"{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," TEMPLATE "]}", NULL, "10 0"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct spec spec = {.vocab = LETTERS, .added = BOTH, .processor = cases[i].processor, .config = cases[i].config};
    struct tokenizer *tokenizer = open_spec(&spec);
    check_ids(tokenizer, "a", EAGLET_SPECIAL_ADD, cases[i].expected);
    check_ids(tokenizer, "<s>a", EAGLET_SPECIAL_ALLOW, "10 0");
    if (cases[i].config) assert_string_equal(tokenizer_named(tokenizer, "eos_token"), "</s>");
    tokenizer_close(tokenizer);
  }
}

static void test_decoders(void **state) {
  (void)state;
  const char *vocab = "\"" MARK "a\":0,\"b\":1,\"<0xE2>\":2,\"<0x82>\":3,\"<0xAC>\":4,\"" MARK "\":5,\"<0x41>\":6";
  const struct spec sequence = {.vocab = vocab, .added = "{\"id\":7,\"content\":\"</s>\",\"special\":true}",
                                .decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK
                                           "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
                                           "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"};
  struct tokenizer *tokenizer = open_spec(&sequence);
  CHECK_TEXT(tokenizer, "a a", 0, 0);
  CHECK_TEXT(tokenizer, "b a", 1, 0);
  CHECK_TEXT(tokenizer, " a", 5, 0);               /* one space is dropped, once */
  CHECK_TEXT(tokenizer, "\xe2\x82\xac" "b", 2, 3, 4, 1);
  CHECK_TEXT(tokenizer, "b\xef\xbf\xbd\xef\xbf\xbd" "b", 1, 2, 3, 1);
  CHECK_TEXT(tokenizer, "\xef\xbf\xbd\xef\xbf\xbd", 6, 2); /* the run as a whole is not UTF-8 */
  CHECK_TEXT(tokenizer, "A</s> a", 6, 7, 0);
  struct detokenizer detokenizer;
  struct buffer out;
  buffer_init(&out);
  detokenizer_init(&detokenizer, tokenizer);
  detokenizer.skip_special = true;
  for (int i = 0; i < 3; i++) detokenizer_push(&detokenizer, (const int32_t[]){7, 0, 7}[i], &out);
  assert_string_equal(out.data, "a");
  buffer_reset(&out);
  detokenizer_init(&detokenizer, tokenizer);
  for (int i = 0; i < 999; i++) { /* a run longer than the buffer: whole characters, nothing lost */
    detokenizer_push(&detokenizer, 2 + i % 3, &out);
    assert_int_equal(utf8_valid(out.data ? out.data : "", out.length), out.length);
  }
  detokenizer_finish(&detokenizer, &out);
  assert_int_equal(out.length, 999);
  buffer_clear(&out);
  tokenizer_close(tokenizer);
  const struct spec metaspace = {.vocab = vocab, .decoder = "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"first\"}"};
  tokenizer = open_spec(&metaspace);
  CHECK_TEXT(tokenizer, "a a", 0, 0);
  CHECK_TEXT(tokenizer, "b a", 1, 0);
  tokenizer_close(tokenizer);
  const struct spec bytes = {.vocab = "\"\xc4\xa0\":0,\"\xc3\xa2\":1,\"\xc4\xa4\":2,\"\xc2\xac\":3,\"\xef\xbd\x9c\":4",
                             .splitter = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", .decoder = "{\"type\":\"ByteLevel\"}"};
  tokenizer = open_spec(&bytes);
  CHECK_TEXT(tokenizer, " \xe2\x82\xac\xef\xbd\x9c", 0, 1, 2, 3, 4);
  CHECK_TEXT(tokenizer, "\xef\xbf\xbd ", 1, 0);
  check_ids(tokenizer, " \xe2\x82\xac", EAGLET_SPECIAL_ALLOW, "0 1 2 3");
  assert_false(tokenizer_keeps_text(tokenizer)); /* letters are missing */
  tokenizer_close(tokenizer);
  const struct spec none = {.vocab = vocab, .decoder = "null"};
  tokenizer = open_spec(&none);
  CHECK_TEXT(tokenizer, "b b", 1, 1);
  tokenizer_close(tokenizer);
}

/* The space before a reply is one token with its first letter: the model writes that token, so it is trained. And a reply that
 * normalisation changes has a mask although its tokens do not spell it. */
static void test_mask(void **state) {
  (void)state;
  const struct spec spec = {.vocab = "\"" MARK "a\":0,\"b\":1,\"" MARK "\":2,\"a\":3,\":\":4,\"\xc3\xa9\":5", .merges = "[\"" MARK "\",\"a\"]",
                            .added = "{\"id\":6,\"content\":\"</s>\",\"special\":true,\"normalized\":false}",
                            .normalizer = "{\"type\":\"NFC\"}",
                            .splitter = "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"first\",\"split\":false}"};
  struct tokenizer *tokenizer = open_spec(&spec);
  const char *source = "{% for m in messages %}{% if m.role == 'user' %}b: {{ m.content }}{% else %}b: {{ m.content }}</s>{% endif %}{% endfor %}"
                       "{% if add_generation_prompt %}b:{% endif %}";
  struct chat_template *chat;
  ASSERT_OK(chat_template_parse(&chat, source, strlen(source), tokenizer, err));
  json_t *messages = json_pack("[{s:s,s:s},{s:s,s:s}]", "role", "user", "content", "b", "role", "assistant", "content", "abe\xcc\x81");
  struct chat_tokenize_params params = {.chat = {.messages = messages}};
  struct chat_tokens tokens;
  ASSERT_OK(chat_template_tokenize(chat, &params, &tokens, err));
  static const int32_t ids[] = {2, 1, 4, 2, 1, 1, 4, 0, 1, 5, 6};
  static const uint8_t mask[] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
  assert_int_equal(tokens.n, 11);
  for (size_t i = 0; i < 11; i++) {
    assert_int_equal(tokens.ids[i], ids[i]);
    assert_int_equal(tokens.mask[i], mask[i]);
  }
  chat_tokens_clear(&tokens);
  json_decref(messages);
  chat_template_close(chat);
  tokenizer_close(tokenizer);
}

/* Ids between the vocabulary and the added tokens that nothing has (bug report B12: no crash for any id). */
static void test_holes(void **state) {
  (void)state;
  const struct spec spec = {.vocab = "\"a\":0,\"b\":2", .added = "{\"id\":5,\"content\":\"<s>\",\"special\":true}"};
  struct tokenizer *tokenizer = open_spec(&spec);
  size_t n;
  assert_int_equal(tokenizer_n_ids(tokenizer), 6);
  assert_null(tokenizer_bytes(tokenizer, 1, &n));
  assert_null(tokenizer_bytes(tokenizer, 4, &n));
  assert_non_null(tokenizer_bytes(tokenizer, 5, &n));
  assert_false(tokenizer_is_special(tokenizer, 4));
  CHECK_TEXT(tokenizer, "a\xef\xbf\xbd" "b<s>", 0, 4, 2, 5);
  tokenizer_close(tokenizer);
}

static void test_configured_tokens(void **state) {
  (void)state;
  const struct spec spec = {.vocab = LETTERS, .config = "{\"added_tokens_decoder\":{\"12\":{\"content\":\"<q>\",\"special\":true}}}"};
  struct tokenizer *tokenizer = open_spec(&spec);
  check_ids(tokenizer, "a<q>b", EAGLET_SPECIAL_ALLOW, "0 12 1");
  tokenizer_close(tokenizer);
}

static void check_refused(const char *text, const char *config, const char *expected) {
  char *directory = temporary_directory();
  write_file(directory, "tokenizer.json", text);
  if (config) write_file(directory, "tokenizer_config.json", config);
  struct tokenizer *tokenizer;
  struct eaglet_error err = {0};
  enum eaglet_status status = tokenizer_open(&tokenizer, directory, &err);
  if (status != EAGLET_E_INPUT || !strstr(err.message, expected)) fail_msg("%.200s: status %d, %s", text, status, err.message);
  assert_null(tokenizer);
  temporary_remove(directory);
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    struct spec spec;
    const char *expected;
  } cases[] = {
      {{.normalizer = "{\"type\":\"Precompiled\"}"}, "normalizer Precompiled is not supported"},
      {{.normalizer = "{\"type\":\"BertNormalizer\"}"}, "normalizer BertNormalizer is not supported"},
      {{.normalizer = "{\"type\":\"Replace\",\"pattern\":{},\"content\":\"\"}"}, "Replace: expected pattern"},
      {{.splitter = "{\"type\":\"UnicodeScripts\"}"}, "pre_tokenizer UnicodeScripts is not supported"},
      {{.splitter = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"}, "a group without end"},
      {{.splitter = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[^a&&b]\"},\"behavior\":\"Isolated\"}"}, "a negated intersection is not supported"},
      {{.splitter = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a(?i)b\"},\"behavior\":\"Isolated\"}"}, "this kind of group is not supported"},
      {{.splitter = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{Nonsense}\"},\"behavior\":\"Isolated\"}"}, "unknown property"},
      {{.splitter = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Sideways\"}"}, "split behavior Sideways is not supported"},
      {{.splitter = "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"}, "expected one character"},
      {{.processor = "{\"type\":\"Strange\"}"}, "post_processor Strange is not supported"},
      {{.processor = "{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",99],\"cls\":[\"<s>\",0]}"}, "expected a token id below"},
      {{.decoder = "{\"type\":\"WordPiece\"}"}, "decoder WordPiece is not supported"},
      {{.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}"}, "decoder ByteFallback after Fuse"},
      {{.model = "\"dropout\":0.1,"}, "dropout 0.1 is not supported"},
      {{.model = "\"end_of_word_suffix\":\"</w>\","}, "end_of_word_suffix \"</w>\" is not supported"},
      {{.vocab = "\"a\":0,\"b\":0"}, "have the same id 0"},
      {{.vocab = "\"a\":0,\"a\":1"}, "have the same bytes"},
      {{.vocab = "\"a\":-1"}, "expected a token id"},
      {{.vocab = "\"a\":99999999999"}, "expected a token id"},
      {{.vocab = "\"\\ud800\":0"}, "expected a valid escape sequence"},
      {{.vocab = ""}, "the vocabulary is empty"},
      {{.merges = "\"a b c\""}, "two parts separated by one space"},
      {{.merges = "[\"a\"]"}, "expected ','"},
      {{.merges = "\"a x\""}, "the second part is not in the vocabulary"},
      {{.added = "{\"id\":7,\"content\":\"a\"}"}, "has the id 0 in the vocabulary"},
      {{.added = "{\"id\":0,\"content\":\"b\"}"}, "collides with the vocabulary's token"},
      {{.added = "{\"id\":-3,\"content\":\"b\"}"}, "out of range"},
      {{.added = "{\"id\":3,\"content\":\"b\"},{\"id\":3,\"content\":\"c\"}"}, "appears twice"},
      {{.added = "{\"id\":3,\"content\":\"b\"},{\"id\":4,\"content\":\"b\"}"}, "have the same text"},
      {{.config = "{\"add_bos_token\":true}"}, "there is no bos_token"},
      {{.config = "{\"added_tokens_decoder\":{\"5\":{\"content\":\"a\"}}}"}, "has the id 0 in the vocabulary"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *directory = write_spec(&cases[i].spec);
    struct tokenizer *tokenizer;
    struct eaglet_error err = {0};
    enum eaglet_status status = tokenizer_open(&tokenizer, directory, &err);
    if (status != EAGLET_E_INPUT || !strstr(err.message, cases[i].expected)) fail_msg("case %zu: status %d, %s", i, status, err.message);
    assert_null(tokenizer);
    temporary_remove(directory);
  }
  check_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0.5]]}}", NULL, "model type Unigram is not supported");
  check_refused("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", NULL, "model type WordPiece is not supported");
  check_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", NULL, "merges is missing");
  check_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]", NULL, "expected");
  check_refused("[]", NULL, "expected an object");
  check_refused("", NULL, "expected an object");
  check_refused("{\"model\":{\"vocab\":{\"a\":0},\"vocab\":{\"b\":0},\"merges\":[]}}", NULL, "each of vocab and merges once");
  check_refused("{\"x\":\"\xff\"}", NULL, "invalid UTF-8 at byte 6");
}

/* A truncated file is refused at every length, never read past its end. */
static void test_truncation(void **state) {
  (void)state;
  const struct spec spec = {.vocab = "\"a\":0,\"\\u00e9\":1,\"a\\u00e9\":2", .merges = "\"a \\u00e9\"", .added = "{\"id\":3,\"content\":\"<s>\"}"};
  char *directory = write_spec(&spec), *path = file_join(directory, "tokenizer.json");
  struct eaglet_text text = {0};
  ASSERT_OK(file_read(&text, path, 1 << 20, err));
  for (size_t n = 0; n < text.length; n++) {
    struct tokenizer *tokenizer;
    ASSERT_OK(file_write(path, text.data, n, err));
    assert_int_equal(tokenizer_open(&tokenizer, directory, NULL), EAGLET_E_INPUT);
  }
  free(text.data);
  free(path);
  temporary_remove(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_gpt2),  cmocka_unit_test(test_golden_llama2),  cmocka_unit_test(test_golden_llama3),
      cmocka_unit_test(test_golden_qwen3), cmocka_unit_test(test_golden_mistral), cmocka_unit_test(test_golden_deepseek),
      cmocka_unit_test(test_chat_ids),     cmocka_unit_test(test_added_token_flags),
      cmocka_unit_test(test_protection_and_offsets),
      cmocka_unit_test(test_normalizers),  cmocka_unit_test(test_splitters),      cmocka_unit_test(test_model_flags),
      cmocka_unit_test(test_surrounding),  cmocka_unit_test(test_decoders),       cmocka_unit_test(test_holes),
      cmocka_unit_test(test_configured_tokens), cmocka_unit_test(test_mask),
      cmocka_unit_test(test_refusals),     cmocka_unit_test(test_truncation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
