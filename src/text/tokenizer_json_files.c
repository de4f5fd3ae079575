/* tokenizer_json_files.c - the files kind: vocab.json with merges.txt, as byte-level models had before tokenizer.json. What the
 * two files do not say, normaliser and split pattern, belongs to the tokenizer class; classes that are not known are refused by
 * name.
 */
#include "text/tokenizer_json.h"

#include "base/file.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define QWEN2_PATTERN \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static json_t *byte_level(bool prefix_space, bool use_regex) {
  return json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", prefix_space, "use_regex", use_regex);
}

static enum eaglet_status make_document(json_t **document, const struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  const char *name = "GPT2Tokenizer";
  bool prefix_space = false;
  if (tokenizer->config) {
    TRY(json_get_string_or(&name, name, tokenizer->config, "tokenizer_class", tokenizer->config_path, err));
    TRY(json_get_bool_or(&prefix_space, false, tokenizer->config, "add_prefix_space", tokenizer->config_path, err));
  }
  size_t n = strlen(name);
  if (n > 4 && strcmp(name + n - 4, "Fast") == 0) n -= 4;
  json_t *normalizer = json_null(), *splitter;
  if (n == 14 && memcmp(name, "Qwen2Tokenizer", n) == 0) {
    normalizer = json_pack("{s:s}", "type", "NFC");
    splitter = json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
                         QWEN2_PATTERN, "behavior", "Isolated", "invert", 0, byte_level(prefix_space, false));
  } else if ((n == 13 && memcmp(name, "GPT2Tokenizer", n) == 0) || (n == 16 && memcmp(name, "CodeGenTokenizer", n) == 0))
    splitter = byte_level(prefix_space, true);
  else
    FAIL(err, EAGLET_E_INPUT, "%s: vocab.json with merges.txt of tokenizer class %s is not supported (tokenizer.json would be)", directory, name);
  *document = json_pack("{s:{s:s}, s:o, s:o, s:o}", "model", "type", "BPE", "normalizer", normalizer, "pre_tokenizer", splitter, "decoder",
                        byte_level(false, false));
  return EAGLET_OK;
}

static enum eaglet_status read_vocab(struct tokenizer *tokenizer, const char *path, struct eaglet_error *err) {
  struct file_map map;
  struct json_vocab vocab = {0};
  TRY(file_map_open(&map, path, err));
  const char *text = (const char *)map.data;
  enum eaglet_status status = EAGLET_OK;
  size_t valid = map.length <= INT32_MAX ? utf8_valid(text, map.length) : 0;
  if (valid < map.length || map.length == 0) status = error_set(err, EAGLET_E_INPUT, "%s: invalid UTF-8 at byte %zu", path, valid);
  if (status == EAGLET_OK) status = json_read_vocab(&vocab, text, (struct text_span){0, map.length}, path, err);
  if (status == EAGLET_OK) status = json_model_set_vocab(tokenizer, &vocab, path, err);
  tokenizer->hash = file_hash(text, map.length, tokenizer->hash);
  json_vocab_release(&vocab);
  file_map_close(&map);
  return status;
}

static enum eaglet_status read_merges(struct tokenizer *tokenizer, const char *path, struct eaglet_error *err) {
  struct file_lines *lines;
  const char *line;
  size_t length;
  struct buffer joined;
  buffer_init(&joined);
  TRY(file_lines_open(&lines, path, err));
  enum eaglet_status status = EAGLET_OK;
  for (;;) {
    TRY_GOTO(file_lines_next(lines, &line, &length, err), done);
    if (!line) break;
    if (length && line[length - 1] == '\r') length--;
    if (length == 0 || (length >= 8 && memcmp(line, "#version", 8) == 0)) continue;
    const char *space = memchr(line, ' ', length);
    if (!space || space == line || space + 1 == line + length || memchr(space + 1, ' ', (size_t)(line + length - space - 1))) {
      status = error_set(err, EAGLET_E_INPUT, "%s line %llu: expected two parts separated by one space", path,
                         (unsigned long long)file_lines_number(lines));
      goto done;
    }
    size_t middle = (size_t)(space - line);
    buffer_reset(&joined);
    buffer_append(&joined, line, middle);
    buffer_append(&joined, space + 1, length - middle - 1);
    tokenizer->hash = file_hash(line, length, tokenizer->hash);
    status = json_model_add_merge(tokenizer->model, joined.data, middle, joined.length, err);
    if (status != EAGLET_OK) {
      (void)error_prefix(err, "%s", path);
      goto done;
    }
  }
done:
  buffer_clear(&joined);
  file_lines_close(lines);
  return status;
}

static bool is_added(const struct tokenizer *tokenizer, const char *text) {
  for (size_t i = 0; i < tokenizer->n_added; i++)
    if (strcmp(tokenizer->added[i].text, text) == 0) return true;
  return false;
}

static bool is_named(const struct tokenizer *tokenizer, const char *text) {
  static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(tokenizer_named(tokenizer, names[i]), text) == 0) return true;
  return false;
}

/* added_tokens.json: {"text": id}. Then the named special tokens that the vocabulary itself holds. */
static enum eaglet_status read_added(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  struct json_model *model = tokenizer->model;
  char *path = file_join(directory, "added_tokens.json");
  json_t *list = NULL, *id;
  const char *text;
  enum eaglet_status status = EAGLET_OK;
  if (file_exists(path)) {
    TRY_GOTO(json_parse_file(&list, path, err), done);
    json_object_set_new(model->document, "added_tokens", list); /* keeps the texts */
  }
  json_object_foreach(list, text, id) {
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    uint32_t known = json_model_find(model, text, strlen(text));
    if (!*text || value < 0 || value > TOKEN_ID_MAX || (known != BPE_NONE && known != (uint32_t)value)) {
      status = error_set(err, EAGLET_E_INPUT, "%s: \"%s\": expected a token id that does not contradict the vocabulary", path, text);
      goto done;
    }
    if (is_added(tokenizer, text)) continue;
    bool special = is_named(tokenizer, text);
    added_append(tokenizer, &(struct added_token){.text = text, .length = (uint32_t)strlen(text), .id = (int32_t)value,
                                                  .special = special, .guarded = special});
  }
  static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
  for (size_t i = 0; i < 5; i++) {
    text = i < 4 ? tokenizer_named(tokenizer, names[i]) : "<|endoftext|>"; /* which GPT-2's class names unasked */
    uint32_t known = json_model_find(model, text, strlen(text));
    if (known == BPE_NONE || is_added(tokenizer, text)) continue;
    added_append(tokenizer, &(struct added_token){.text = text, .length = (uint32_t)strlen(text), .id = (int32_t)known, .special = true,
                                                  .guarded = true});
  }
done:
  free(path);
  return status;
}

static enum eaglet_status files_open(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  json_t *document = NULL;
  tokenizer->model = memory_alloc(sizeof(struct json_model));
  TRY(make_document(&document, tokenizer, directory, err));
  TRY(json_model_configure(tokenizer, document, directory, err));
  char *paths[] = {file_join(directory, "vocab.json"), file_join(directory, "merges.txt")};
  enum eaglet_status status = read_vocab(tokenizer, paths[0], err);
  if (status == EAGLET_OK) status = read_merges(tokenizer, paths[1], err);
  if (status == EAGLET_OK) status = json_model_add_configured(tokenizer, err);
  if (status == EAGLET_OK) status = read_added(tokenizer, directory, err);
  if (status == EAGLET_OK) status = json_model_finish(tokenizer, paths[0], err);
  if (status == EAGLET_OK) status = json_model_surround(tokenizer, err);
  free(paths[0]);
  free(paths[1]);
  return status;
}

const struct tokenizer_kind tokenizer_kind_files = {
    .name = "vocab.json",
    .files = {"vocab.json", "merges.txt"},
    .open = files_open,
    .encode = json_encode,
    .scratch_free = json_scratch_free,
    .close = json_close,
    .decode_first = json_decode_first,
};
