/* tokenizer.c - the shared half of every tokenizer: special tokens and their matching, protected spans, token bytes, dispatch
 * to the kind. Does not know any vocabulary format.
 *
 * Invariant after open: ids 0 .. n_ids-1 all have bytes; added tokens (named and reserved) have distinct texts and ids that
 * do not collide with the vocabulary file.
 */
#include "text/tokenizer_kind.h"

#include "base/file.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define ADDED_ID_MAX (1 << 26) /* far above any vocabulary: bounds the memory that a hostile id could ask for */

static const struct tokenizer_kind *const kinds[] = {&tokenizer_kind_tiktoken};

void token_list_append(struct token_list *list, int32_t id) {
  MEMORY_GROW(list->ids, list->capacity, list->n + 1);
  list->ids[list->n++] = id;
}

void token_list_clear(struct token_list *list) {
  free(list->ids);
  *list = (struct token_list){0};
}

/* ---- special tokens ---- */

static enum eaglet_status read_added_token(struct tokenizer *tokenizer, const char *key, const json_t *value, const char *path,
                                           struct eaglet_error *err) {
  char *end;
  long id = strtol(key, &end, 10);
  if (end == key || *end || id < 0 || id > ADDED_ID_MAX)
    FAIL(err, EAGLET_E_INPUT, "%s: added_tokens_decoder: expected a token id, found \"%.40s\"", path, key);
  if ((uint32_t)id < tokenizer->n_base)
    FAIL(err, EAGLET_E_INPUT, "%s: added token id %ld collides with the vocabulary's ids 0..%u", path, id, tokenizer->n_base - 1);
  if (!json_is_object(value)) FAIL(err, EAGLET_E_INPUT, "%s: added token %ld: expected an object", path, id);
  const json_t *content = json_object_get(value, "content");
  if (!json_is_string(content) || json_string_length(content) == 0)
    FAIL(err, EAGLET_E_INPUT, "%s: added token %ld: content: expected a non-empty string", path, id);
  bool special;
  TRY(json_get_bool_or(&special, true, value, "special", path, err));
  MEMORY_GROW(tokenizer->added, tokenizer->added_capacity, tokenizer->n_added + 1);
  tokenizer->added[tokenizer->n_added++] = (struct added_token){
      .text = json_string_value(content), .length = (uint32_t)json_string_length(content), .id = (int32_t)id, .special = special};
  if ((uint32_t)id >= tokenizer->n_ids) tokenizer->n_ids = (uint32_t)id + 1;
  return EAGLET_OK;
}

static int compare_added(const void *a, const void *b) {
  const struct added_token *x = a, *y = b;
  return (x->id > y->id) - (x->id < y->id);
}

/* Gives every id between the vocabulary and n_ids that has no name the text <|reserved_token_ID|>. */
static enum eaglet_status add_reserved(struct tokenizer *tokenizer, const char *path, struct eaglet_error *err) {
  size_t n_named = tokenizer->n_added, n_free = tokenizer->n_ids - tokenizer->n_base;
  tokenizer->added_index = memory_alloc((n_free + 1) * sizeof *tokenizer->added_index);
  for (size_t i = 0; i < n_free; i++) tokenizer->added_index[i] = -1;
  for (size_t i = 0; i < n_named; i++) {
    int32_t *index = &tokenizer->added_index[(uint32_t)tokenizer->added[i].id - tokenizer->n_base];
    if (*index >= 0) FAIL(err, EAGLET_E_INPUT, "%s: added token id %d appears twice", path, tokenizer->added[i].id);
    *index = (int32_t)i;
  }
  tokenizer->reserved = memory_alloc(n_free * 32 + 1);
  char *text = tokenizer->reserved;
  for (size_t i = 0; i < n_free; i++) {
    if (tokenizer->added_index[i] >= 0) continue;
    int32_t id = (int32_t)(tokenizer->n_base + i);
    int length = snprintf(text, 32, "<|reserved_token_%d|>", id);
    MEMORY_GROW(tokenizer->added, tokenizer->added_capacity, tokenizer->n_added + 1);
    tokenizer->added[tokenizer->n_added++] =
        (struct added_token){.text = text, .length = (uint32_t)length, .id = id, .special = true};
    text += length + 1;
  }
  qsort(tokenizer->added, tokenizer->n_added, sizeof *tokenizer->added, compare_added);
  tokenizer->added_ids = memory_alloc((tokenizer->n_added + 1) * sizeof *tokenizer->added_ids);
  for (size_t i = 0; i < tokenizer->n_added; i++) {
    tokenizer->added_ids[i] = tokenizer->added[i].id;
    tokenizer->added_index[(uint32_t)tokenizer->added[i].id - tokenizer->n_base] = (int32_t)i;
  }
  return EAGLET_OK;
}

static uint32_t find_child(const struct tokenizer *tokenizer, uint32_t node, uint8_t byte) {
  uint32_t child = tokenizer->nodes[node].child;
  while (child && tokenizer->nodes[child].byte != byte) child = tokenizer->nodes[child].sibling;
  return child;
}

static uint32_t add_child(struct tokenizer *tokenizer, uint32_t node, uint8_t byte) {
  uint32_t child = find_child(tokenizer, node, byte);
  if (child) return child;
  MEMORY_GROW(tokenizer->nodes, tokenizer->nodes_capacity, tokenizer->n_nodes + 1);
  child = (uint32_t)tokenizer->n_nodes++;
  tokenizer->nodes[child] = (struct special_node){.sibling = tokenizer->nodes[node].child, .token = -1, .byte = byte};
  tokenizer->nodes[node].child = child;
  return child;
}

static enum eaglet_status build_trie(struct tokenizer *tokenizer, const char *path, struct eaglet_error *err) {
  MEMORY_GROW(tokenizer->nodes, tokenizer->nodes_capacity, 1);
  tokenizer->n_nodes = 1;
  tokenizer->nodes[0] = (struct special_node){.token = -1};
  for (size_t i = 0; i < tokenizer->n_added; i++) {
    const struct added_token *token = &tokenizer->added[i];
    uint32_t node = 0;
    for (uint32_t at = 0; at < token->length; at++) node = add_child(tokenizer, node, (uint8_t)token->text[at]);
    if (tokenizer->nodes[node].token >= 0)
      FAIL(err, EAGLET_E_INPUT, "%s: added tokens %d and %d have the same text \"%s\"", path,
           tokenizer->added[tokenizer->nodes[node].token].id, token->id, token->text);
    tokenizer->nodes[node].token = (int32_t)i;
  }
  for (int byte = 0; byte < 256; byte++) tokenizer->first[byte] = find_child(tokenizer, 0, (uint8_t)byte);
  return EAGLET_OK;
}

int32_t tokenizer_match(const struct tokenizer *tokenizer, const char *text, size_t length) {
  int32_t best = -1;
  if (length == 0) return best;
  uint32_t node = tokenizer->first[(uint8_t)text[0]];
  for (size_t at = 1; node; at++) {
    if (tokenizer->nodes[node].token >= 0) best = tokenizer->nodes[node].token;
    if (at == length) break;
    node = find_child(tokenizer, node, (uint8_t)text[at]);
  }
  return best;
}

/* ---- open and close ---- */

/* A vocabulary smaller than the reserved range (small test models) is stated by config.json; ids beyond it do not exist. */
static enum eaglet_status apply_vocab_size(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  char *path = file_join(directory, "config.json");
  json_t *config = NULL;
  enum eaglet_status status = EAGLET_OK;
  if (!file_exists(path)) goto done;
  TRY_GOTO(json_parse_file(&config, path, err), done);
  const json_t *text_config = json_object_get(config, "text_config");
  const json_t *size = json_object_get(text_config ? text_config : config, "vocab_size");
  if (!json_is_integer(size)) goto done;
  int64_t n = json_integer_value(size);
  uint32_t n_named = tokenizer->n_base;
  for (size_t i = 0; i < tokenizer->n_added; i++)
    if ((uint32_t)tokenizer->added[i].id >= n_named) n_named = (uint32_t)tokenizer->added[i].id + 1;
  if (n >= n_named && n < tokenizer->n_ids) tokenizer->n_ids = (uint32_t)n;
done:
  json_decref(config);
  free(path);
  return status;
}

static enum eaglet_status read_config(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  char *path = file_join(directory, "tokenizer_config.json");
  enum eaglet_status status = EAGLET_OK;
  if (!file_exists(path)) {
    status = error_set(err, EAGLET_E_INPUT, "%s: file is missing: special tokens are unknown without it", path);
    goto done;
  }
  TRY_GOTO(json_parse_file(&tokenizer->config, path, err), done);
  const json_t *decoder = json_object_get(tokenizer->config, "added_tokens_decoder");
  if (!json_is_object(tokenizer->config) || (decoder && !json_is_object(decoder))) {
    status = error_set(err, EAGLET_E_INPUT, "%s: %s: expected an object", path, decoder ? "added_tokens_decoder" : "document");
    goto done;
  }
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)decoder, key, value) TRY_GOTO(read_added_token(tokenizer, key, value, path, err), done);
  TRY_GOTO(apply_vocab_size(tokenizer, directory, err), done);
  TRY_GOTO(add_reserved(tokenizer, path, err), done);
  TRY_GOTO(build_trie(tokenizer, path, err), done);
  for (size_t i = 0; i < tokenizer->n_added; i++) {
    const struct added_token *token = &tokenizer->added[i];
    uint64_t salt = (uint64_t)(uint32_t)token->id << 1 | token->special;
    tokenizer->hash = file_hash(token->text, token->length, tokenizer->hash ^ (salt * 0x9e3779b97f4a7c15u));
  }
done:
  free(path);
  return status;
}

enum eaglet_status tokenizer_open(struct tokenizer **tokenizer, const char *directory, struct eaglet_error *err) {
  *tokenizer = NULL;
  struct tokenizer *t = memory_alloc(sizeof *t);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !t->kind; i++) {
    char *path = file_join(directory, kinds[i]->file);
    if (file_exists(path)) t->kind = kinds[i];
    free(path);
  }
  enum eaglet_status status;
  if (!t->kind)
    status = error_set(err, EAGLET_E_INPUT, "%s: no tokenizer file found, expected tiktoken.model", directory);
  else {
    status = t->kind->open(t, directory, err);
    if (status == EAGLET_OK) status = read_config(t, directory, err);
  }
  if (status != EAGLET_OK) {
    tokenizer_close(t);
    return status;
  }
  *tokenizer = t;
  return EAGLET_OK;
}

void tokenizer_close(struct tokenizer *tokenizer) {
  if (!tokenizer) return;
  if (tokenizer->kind) tokenizer->kind->close(tokenizer);
  free(tokenizer->blob);
  free(tokenizer->at);
  free(tokenizer->added);
  free(tokenizer->added_ids);
  free(tokenizer->added_index);
  free(tokenizer->nodes);
  free(tokenizer->reserved);
  json_decref(tokenizer->config);
  free(tokenizer);
}

/* ---- encoding ---- */

struct encode_job {
  const struct tokenizer *tokenizer;
  const char *text;
  bool special;                      /* recognise special tokens outside of protection */
  const struct text_span *protection; /* sorted, disjoint */
  size_t n_protection, i_protection; /* spans before i end at or before the place being looked at */
  void *scratch; /* the kind's */
  struct bpe_sink sink;
};

/* Special token at text[at), within [at, end) and clear of protected bytes; -1 when none. */
static int32_t special_at(struct encode_job *job, size_t at, size_t end) {
  if (!job->tokenizer->first[(uint8_t)job->text[at]]) return -1;
  while (job->i_protection < job->n_protection && job->protection[job->i_protection].end <= at) job->i_protection++;
  for (size_t i = job->i_protection; i < job->n_protection; i++) {
    if (job->protection[i].begin == job->protection[i].end) continue;
    if (job->protection[i].begin <= at) return -1;
    if (job->protection[i].begin < end) end = job->protection[i].begin;
    break;
  }
  return tokenizer_match(job->tokenizer, job->text + at, end - at);
}

static enum eaglet_status encode_ordinary(struct encode_job *job, size_t begin, size_t end, struct eaglet_error *err) {
  if (begin == end) return EAGLET_OK;
  struct text_span span = {begin, end};
  return job->tokenizer->kind->encode(job->tokenizer, &job->scratch, &span, job->text, &job->sink, err);
}

static enum eaglet_status encode_chunk(struct encode_job *job, size_t begin, size_t end, struct eaglet_error *err) {
  size_t ordinary = begin; /* start of the text not yet encoded */
  for (size_t at = begin; at < end && job->special;) {
    int32_t index = special_at(job, at, end);
    if (index < 0) {
      at++;
      continue;
    }
    TRY(encode_ordinary(job, ordinary, at, err));
    bpe_sink_append(&job->sink, job->tokenizer->added[index].id, at);
    at += job->tokenizer->added[index].length;
    ordinary = at;
  }
  return encode_ordinary(job, ordinary, end, err);
}

static enum eaglet_status encode(struct encode_job *job, size_t length, struct eaglet_error *err) {
  size_t valid = utf8_valid(job->text, length);
  if (valid < length) FAIL(err, EAGLET_E_INPUT, "text: invalid UTF-8 at byte %zu", valid);
  if (length == 0) return EAGLET_OK;
  struct offset_list ends = {0};
  job->tokenizer->kind->cut(job->text, length, &ends);
  enum eaglet_status status = EAGLET_OK;
  size_t begin = 0;
  for (size_t i = 0; i < ends.n && status == EAGLET_OK; i++) {
    status = encode_chunk(job, begin, ends.at[i], err);
    begin = ends.at[i];
  }
  free(ends.at);
  job->tokenizer->kind->scratch_free(job->scratch);
  return status;
}

enum eaglet_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                                    enum eaglet_special special, struct token_list *ids, struct eaglet_error *err) {
  struct encode_job job = {
      .tokenizer = tokenizer, .text = text, .special = special == EAGLET_SPECIAL_ALLOW, .sink = {.ids = ids}};
  size_t n_before = ids->n;
  enum eaglet_status status = encode(&job, length, err);
  if (status != EAGLET_OK) ids->n = n_before;
  return status;
}

enum eaglet_status tokenizer_encode_spans(const struct tokenizer *tokenizer, const struct protected_text *text,
                                          struct token_list *ids, size_t **offsets, struct eaglet_error *err) {
  struct offset_list begins = {0};
  struct encode_job job = {.tokenizer = tokenizer,
                           .text = text->data,
                           .special = true,
                           .protection = text->spans,
                           .n_protection = text->n_spans,
                           .sink = {.ids = ids, .offsets = offsets ? &begins : NULL}};
  size_t n_before = ids->n;
  enum eaglet_status status = encode(&job, text->length, err);
  if (status != EAGLET_OK) {
    ids->n = n_before;
    free(begins.at);
    begins.at = NULL;
  }
  if (offsets) *offsets = begins.at;
  return status;
}

/* ---- queries ---- */

int32_t tokenizer_n_ids(const struct tokenizer *tokenizer) { return (int32_t)tokenizer->n_ids; }

static const struct added_token *added_by_id(const struct tokenizer *tokenizer, int32_t id) {
  if (id < 0 || (uint32_t)id < tokenizer->n_base || (uint32_t)id >= tokenizer->n_ids) return NULL;
  return &tokenizer->added[tokenizer->added_index[(uint32_t)id - tokenizer->n_base]];
}

const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *length) {
  const struct added_token *token = added_by_id(tokenizer, id);
  *length = 0;
  if (token) {
    *length = token->length;
    return token->text;
  }
  if (id < 0 || (uint32_t)id >= tokenizer->n_base) return NULL;
  *length = tokenizer->at[id + 1] - tokenizer->at[id];
  return tokenizer->blob + tokenizer->at[id];
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id) {
  const struct added_token *token = added_by_id(tokenizer, id);
  return token && token->special;
}

int32_t tokenizer_special_id(const struct tokenizer *tokenizer, const char *text) {
  int32_t index = tokenizer_match(tokenizer, text, strlen(text));
  return index >= 0 && tokenizer->added[index].length == strlen(text) ? tokenizer->added[index].id : -1;
}

const int32_t *tokenizer_special_ids(const struct tokenizer *tokenizer, size_t *n) {
  *n = tokenizer->n_added;
  return tokenizer->added_ids;
}

bool tokenizer_has_special(const struct tokenizer *tokenizer, const char *text, size_t length) {
  for (size_t at = 0; at < length; at++)
    if (tokenizer_match(tokenizer, text + at, length - at) >= 0) return true;
  return false;
}

const char *tokenizer_named(const struct tokenizer *tokenizer, const char *name) {
  const json_t *value = json_object_get(tokenizer->config, name);
  if (json_is_object(value)) value = json_object_get(value, "content");
  return json_is_string(value) ? json_string_value(value) : "";
}

uint64_t tokenizer_hash(const struct tokenizer *tokenizer) { return tokenizer->hash; }

const char *tokenizer_kind(const struct tokenizer *tokenizer) { return tokenizer->kind->name; }
