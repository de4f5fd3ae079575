/* tokenizer_json.c - the json kind: opening tokenizer.json (Hugging Face tokenizers, BPE), its added tokens and what its
 * post-processor puts around a raw text. The large tables are read by tokenizer_json_reader.c, the rest is in
 * tokenizer_json_model.c.
 */
#include "text/tokenizer_json.h"

#include "base/file.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

/* The document without the large parts, each replaced by null. */
static enum eaglet_status parse_rest(json_t **document, const char *text, size_t length, const struct json_parts *parts, const char *path,
                                     struct eaglet_error *err) {
  const struct text_span *spans[] = {&parts->vocab, &parts->merges};
  if (parts->merges.end && parts->merges.begin < parts->vocab.begin) {
    spans[0] = &parts->merges;
    spans[1] = &parts->vocab;
  }
  struct buffer rest;
  buffer_init(&rest);
  size_t at = 0;
  for (int i = 0; i < 2; i++) {
    if (spans[i]->end == 0) continue;
    buffer_append(&rest, text + at, spans[i]->begin - at);
    buffer_append_string(&rest, "null");
    at = spans[i]->end;
  }
  buffer_append(&rest, text + at, length - at);
  enum eaglet_status status = json_parse(document, rest.data, rest.length, path, err);
  buffer_clear(&rest);
  return status;
}

static enum eaglet_status add_merge(void *context, const char *joined, size_t middle, size_t length, struct eaglet_error *err) {
  return json_model_add_merge(context, joined, middle, length, err);
}

static enum eaglet_status read_tables(struct tokenizer *tokenizer, const char *text, const struct json_parts *parts, const char *path,
                                      struct eaglet_error *err) {
  if (parts->vocab.end == 0 || parts->merges.end == 0)
    FAIL(err, EAGLET_E_INPUT, "%s: model: %s is missing or is not of the BPE kind", path, parts->vocab.end == 0 ? "vocab" : "merges");
  struct json_vocab vocab = {0};
  enum eaglet_status status = json_read_vocab(&vocab, text, parts->vocab, path, err);
  if (status == EAGLET_OK) status = json_model_set_vocab(tokenizer, &vocab, path, err);
  json_vocab_release(&vocab);
  TRY(status);
  const struct json_merge_sink sink = {add_merge, tokenizer->model};
  return json_read_merges(&sink, text, parts->merges, path, err);
}

static enum eaglet_status read_added(struct tokenizer *tokenizer, const char *path, struct eaglet_error *err) {
  const struct json_model *model = tokenizer->model;
  const json_t *list = json_object_get(model->document, "added_tokens");
  if (!list || json_is_null(list)) return EAGLET_OK;
  if (!json_is_array(list)) FAIL(err, EAGLET_E_INPUT, "%s: added_tokens: expected an array", path);
  size_t i;
  json_t *value;
  json_array_foreach(list, i, value) {
    struct added_token token = {0};
    int64_t id;
    TRY(json_get_int(&id, value, "id", path, err));
    if (id < 0 || id > TOKEN_ID_MAX) FAIL(err, EAGLET_E_INPUT, "%s: added_tokens: id %lld is out of range", path, (long long)id);
    TRY(added_parse(&token, value, path, err));
    token.id = (int32_t)id;
    uint32_t known = json_model_find(model, token.text, token.length);
    if (known != BPE_NONE && known != (uint32_t)id)
      FAIL(err, EAGLET_E_INPUT, "%s: added token %d \"%s\" has the id %u in the vocabulary", path, token.id, token.text, known);
    if (known == BPE_NONE && (uint32_t)id < model->n_tokens && model->text_at[id] != model->text_at[id + 1])
      FAIL(err, EAGLET_E_INPUT, "%s: added token %d \"%s\" collides with the vocabulary's token of that id", path, token.id, token.text);
    added_append(tokenizer, &token);
  }
  return EAGLET_OK;
}

/* ---- post-processor ---- */

static enum eaglet_status append_id(struct token_list *list, const json_t *id, const struct tokenizer *tokenizer, const char *path,
                                    struct eaglet_error *err) {
  if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= (json_int_t)tokenizer->n_ids)
    FAIL(err, EAGLET_E_INPUT, "%s: post_processor: expected a token id below %u", path, tokenizer->n_ids);
  token_list_append(list, (int32_t)json_integer_value(id));
  return EAGLET_OK;
}

static enum eaglet_status read_template(struct token_list around[2], const json_t *spec, const struct tokenizer *tokenizer, const char *path,
                                        struct eaglet_error *err) {
  const json_t *single = json_object_get(spec, "single"), *tokens = json_object_get(spec, "special_tokens");
  if (!json_is_array(single)) FAIL(err, EAGLET_E_INPUT, "%s: post_processor: single: expected an array", path);
  size_t i, j;
  json_t *item, *id;
  int side = 0;
  json_array_foreach(single, i, item) {
    if (json_object_get(item, "Sequence")) {
      if (side++) FAIL(err, EAGLET_E_INPUT, "%s: post_processor: single: the text twice is not supported", path);
      continue;
    }
    const char *name = json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
    const json_t *ids = name ? json_object_get(json_object_get(tokens, name), "ids") : NULL;
    if (!json_is_array(ids)) FAIL(err, EAGLET_E_INPUT, "%s: post_processor: special token %s has no ids", path, name ? name : "without id");
    json_array_foreach(ids, j, id) TRY(append_id(&around[side], id, tokenizer, path, err));
  }
  return EAGLET_OK;
}

/* cls and sep: ["<s>", 0]. */
static enum eaglet_status read_pair(struct token_list around[2], const json_t *spec, const struct tokenizer *tokenizer, const char *path,
                                    struct eaglet_error *err) {
  TRY(append_id(&around[0], json_array_get(json_object_get(spec, "cls"), 1), tokenizer, path, err));
  return append_id(&around[1], json_array_get(json_object_get(spec, "sep"), 1), tokenizer, path, err);
}

static enum eaglet_status read_processor(struct tokenizer *tokenizer, const json_t *spec, int depth, const char *path, struct eaglet_error *err) {
  if (!spec || json_is_null(spec)) return EAGLET_OK;
  const char *type = json_string_value(json_object_get(spec, "type"));
  if (!type) FAIL(err, EAGLET_E_INPUT, "%s: post_processor: expected an object with a type", path);
  if (strcmp(type, "ByteLevel") == 0) return EAGLET_OK; /* moves offsets only */
  if (strcmp(type, "Sequence") == 0) {
    const json_t *list = json_object_get(spec, "processors");
    if (!json_is_array(list) || depth > 4) FAIL(err, EAGLET_E_INPUT, "%s: post_processor Sequence: expected a list of processors", path);
    size_t i;
    json_t *inner;
    json_array_foreach(list, i, inner) TRY(read_processor(tokenizer, inner, depth + 1, path, err));
    return EAGLET_OK;
  }
  struct token_list around[2] = {0};
  enum eaglet_status status;
  if (strcmp(type, "TemplateProcessing") == 0) status = read_template(around, spec, tokenizer, path, err);
  else if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) status = read_pair(around, spec, tokenizer, path, err);
  else FAIL(err, EAGLET_E_INPUT, "%s: post_processor %s is not supported", path, type);
  /* A later processor stands around what the earlier ones made. */
  for (size_t i = 0; i < tokenizer->before.n; i++) token_list_append(&around[0], tokenizer->before.ids[i]);
  for (size_t i = 0; i < around[1].n; i++) token_list_append(&tokenizer->after, around[1].ids[i]);
  token_list_clear(&tokenizer->before);
  tokenizer->before = around[0];
  token_list_clear(&around[1]);
  return status;
}

/* ---- open ---- */

static enum eaglet_status read_document(struct tokenizer *tokenizer, const char *text, size_t length, const char *path, struct eaglet_error *err) {
  size_t valid = utf8_valid(text, length);
  if (valid < length) FAIL(err, EAGLET_E_INPUT, "%s: invalid UTF-8 at byte %zu", path, valid);
  struct json_parts parts;
  json_t *document = NULL;
  TRY(json_parts_find(&parts, text, length, path, err));
  TRY(parse_rest(&document, text, length, &parts, path, err));
  TRY(json_model_configure(tokenizer, document, path, err));
  TRY(read_tables(tokenizer, text, &parts, path, err));
  TRY(read_added(tokenizer, path, err));
  TRY(json_model_add_configured(tokenizer, err));
  TRY(json_model_finish(tokenizer, path, err));
  TRY(read_processor(tokenizer, json_object_get(document, "post_processor"), 0, path, err));
  return json_model_surround(tokenizer, err);
}

static enum eaglet_status json_open(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  struct file_map map;
  char *path = file_join(directory, "tokenizer.json");
  tokenizer->model = memory_alloc(sizeof(struct json_model));
  enum eaglet_status status = file_map_open(&map, path, err);
  if (status == EAGLET_OK) {
    if (map.length > INT32_MAX) status = error_set(err, EAGLET_E_INPUT, "%s: %zu bytes are more than a tokenizer has", path, map.length);
    else {
      tokenizer->hash = file_hash(map.data, map.length, 0);
      status = read_document(tokenizer, (const char *)map.data, map.length, path, err);
    }
    file_map_close(&map);
  }
  free(path);
  return status;
}

const struct tokenizer_kind tokenizer_kind_json = {
    .name = "tokenizer.json",
    .files = {"tokenizer.json"},
    .open = json_open,
    .encode = json_encode,
    .scratch_free = json_scratch_free,
    .close = json_close,
    .decode_first = json_decode_first,
};
