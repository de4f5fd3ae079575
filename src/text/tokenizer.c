/* tokenizer.c - the shared half of every tokenizer: choice of the kind, matching of added tokens on raw text, protected spans,
 * BOS and EOS, and the questions about ids. Does not know any vocabulary format.
 *
 * Invariant after open: every id 0 .. n_ids-1 has bytes or is a hole that no text encodes to; added tokens have distinct texts.
 */
#include "text/tokenizer_kind.h"

#include "base/file.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

/* In order of precedence. */
static const struct tokenizer_kind *const kinds[] = {&tokenizer_kind_json, &tokenizer_kind_tiktoken, &tokenizer_kind_sentencepiece,
                                                     &tokenizer_kind_files};

void token_list_append(struct token_list *list, int32_t id) {
  MEMORY_GROW(list->ids, list->capacity, list->n + 1);
  list->ids[list->n++] = id;
}

void token_list_clear(struct token_list *list) {
  free(list->ids);
  *list = (struct token_list){0};
}

/* ---- open and close ---- */

static bool kind_applies(const struct tokenizer_kind *kind, const char *directory) {
  for (int i = 0; i < 2 && kind->files[i]; i++) {
    char *path = file_join(directory, kind->files[i]);
    bool exists = file_exists(path);
    free(path);
    if (!exists) return false;
  }
  return true;
}

static enum eaglet_status read_object(json_t **json, const char *directory, const char *name, struct eaglet_error *err) {
  char *path = file_join(directory, name);
  enum eaglet_status status = EAGLET_OK;
  if (file_exists(path)) {
    status = json_parse_file(json, path, err);
    if (status == EAGLET_OK && !json_is_object(*json)) status = error_set(err, EAGLET_E_INPUT, "%s: document: expected an object", path);
  }
  free(path);
  return status;
}

static enum eaglet_status open_kind(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !tokenizer->kind; i++)
    if (kind_applies(kinds[i], directory)) tokenizer->kind = kinds[i];
  if (!tokenizer->kind) {
    char *tekken = file_join(directory, "tekken.json");
    bool is_tekken = file_exists(tekken);
    free(tekken);
    FAIL(err, EAGLET_E_INPUT, "%s: no tokenizer file found, expected tokenizer.json, tiktoken.model, tokenizer.model or vocab.json with merges.txt%s",
         directory, is_tekken ? " (tekken.json alone is not supported)" : "");
  }
  tokenizer->config_path = file_join(directory, "tokenizer_config.json");
  TRY(read_object(&tokenizer->config, directory, "tokenizer_config.json", err));
  TRY(read_object(&tokenizer->names, directory, "special_tokens_map.json", err));
  return tokenizer->kind->open(tokenizer, directory, err);
}

enum eaglet_status tokenizer_open(struct tokenizer **tokenizer, const char *directory, struct eaglet_error *err) {
  *tokenizer = NULL;
  struct tokenizer *opened = memory_alloc(sizeof *opened);
  enum eaglet_status status = open_kind(opened, directory, err);
  if (status != EAGLET_OK) {
    tokenizer_close(opened);
    return status;
  }
  *tokenizer = opened;
  return EAGLET_OK;
}

void tokenizer_close(struct tokenizer *tokenizer) {
  if (!tokenizer) return;
  if (tokenizer->kind) tokenizer->kind->close(tokenizer);
  free(tokenizer->blob);
  free(tokenizer->at);
  free(tokenizer->token_flags);
  token_list_clear(&tokenizer->before);
  token_list_clear(&tokenizer->after);
  added_release(tokenizer);
  json_decref(tokenizer->config);
  json_decref(tokenizer->names);
  free(tokenizer->config_path);
  free(tokenizer);
}

/* ---- encoding ---- */

size_t encode_request_guard_end(const struct encode_request *request, size_t at) {
  if (!request->special) return at;
  size_t low = 0, high = request->n_protection; /* first span that ends after at */
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (request->protection[middle].end <= at) low = middle + 1;
    else high = middle;
  }
  while (low < request->n_protection && request->protection[low].begin == request->protection[low].end) low++;
  if (low == request->n_protection) return request->length;
  return request->protection[low].begin > at ? request->protection[low].begin : at;
}

static size_t n_guarded(const void *context, size_t at) {
  const struct encode_request *request = context;
  return encode_request_guard_end(request, at) - at;
}

struct encode_job {
  const struct tokenizer *tokenizer;
  const struct encode_request *request;
  void *scratch; /* the kind's */
  struct bpe_sink sink;
};

static enum eaglet_status encode_ordinary(struct encode_job *job, size_t begin, size_t end, struct eaglet_error *err) {
  if (begin >= end) return EAGLET_OK;
  struct text_span span = {begin, end};
  return job->tokenizer->kind->encode(job->tokenizer, &job->scratch, &span, job->request, &job->sink, err);
}

static enum eaglet_status encode_stretch(struct encode_job *job, size_t begin, size_t end, struct eaglet_error *err) {
  struct added_scan scan = {.tokenizer = job->tokenizer, .set = &job->tokenizer->raw, .text = job->request->text, .begin = begin,
                            .end = end, .n_guarded = n_guarded, .context = job->request, .at = begin, .ordinary = begin};
  struct added_match match;
  while (added_scan_next(&scan, &match)) {
    TRY(encode_ordinary(job, match.ordinary, match.begin, err));
    bpe_sink_append(&job->sink, job->tokenizer->added[match.index].id, match.begin);
  }
  return encode_ordinary(job, scan.ordinary, end, err);
}

static enum eaglet_status encode(const struct tokenizer *tokenizer, const struct encode_request *request,
                                 const struct bpe_sink *sink, struct eaglet_error *err) {
  size_t valid = utf8_valid(request->text, request->length);
  if (valid < request->length) FAIL(err, EAGLET_E_INPUT, "text: invalid UTF-8 at byte %zu", valid);
  if (request->length == 0) return EAGLET_OK;
  struct encode_job job = {.tokenizer = tokenizer, .request = request, .sink = *sink};
  struct offset_list ends = {0};
  if (tokenizer->kind->cut) tokenizer->kind->cut(request->text, request->length, &ends);
  else offset_list_append(&ends, request->length);
  enum eaglet_status status = EAGLET_OK;
  size_t begin = 0;
  for (size_t i = 0; i < ends.n && status == EAGLET_OK; i++) {
    status = encode_stretch(&job, begin, ends.at[i], err);
    begin = ends.at[i];
  }
  free(ends.at);
  tokenizer->kind->scratch_free(job.scratch);
  return status;
}

enum eaglet_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                                    enum eaglet_special special, struct token_list *ids, struct eaglet_error *err) {
  const struct encode_request request = {.text = text, .length = length, .special = special != EAGLET_SPECIAL_AS_TEXT};
  const struct bpe_sink sink = {.ids = ids};
  size_t n_before = ids->n;
  bool add = special == EAGLET_SPECIAL_ADD;
  for (size_t i = 0; add && i < tokenizer->before.n; i++) token_list_append(ids, tokenizer->before.ids[i]);
  enum eaglet_status status = encode(tokenizer, &request, &sink, err);
  for (size_t i = 0; add && i < tokenizer->after.n; i++) token_list_append(ids, tokenizer->after.ids[i]);
  if (status != EAGLET_OK) ids->n = n_before;
  return status;
}

enum eaglet_status tokenizer_encode_spans(const struct tokenizer *tokenizer, const struct protected_text *text,
                                          struct token_list *ids, size_t **offsets, struct eaglet_error *err) {
  struct offset_list begins = {0};
  const struct encode_request request = {
      .text = text->data, .length = text->length, .special = true, .protection = text->spans, .n_protection = text->n_spans};
  const struct bpe_sink sink = {.ids = ids, .offsets = offsets ? &begins : NULL};
  size_t n_before = ids->n;
  enum eaglet_status status = encode(tokenizer, &request, &sink, err);
  if (status != EAGLET_OK) {
    ids->n = n_before;
    free(begins.at);
    begins.at = NULL;
  }
  if (offsets) *offsets = begins.at;
  return status;
}

/* ---- special tokens alone ---- */

static void special_append(struct special_list *list, size_t begin, size_t end, int32_t id) {
  MEMORY_GROW(list->items, list->capacity, list->n + 1);
  list->items[list->n++] = (struct special_token){begin, end, id};
}

/* By encoding all of the text: what tokens found on normalised text need. */
static enum eaglet_status find_by_encoding(const struct tokenizer *tokenizer, const char *text, size_t length, struct special_list *list,
                                           struct eaglet_error *err) {
  struct token_list ids = {0};
  size_t *offsets = NULL;
  const struct protected_text whole = {.data = text, .length = length};
  enum eaglet_status status = tokenizer_encode_spans(tokenizer, &whole, &ids, &offsets, err);
  for (size_t i = 0; status == EAGLET_OK && i < ids.n; i++) {
    if (tokenizer_is_special(tokenizer, ids.ids[i])) special_append(list, offsets[i], i + 1 < ids.n ? offsets[i + 1] : length, ids.ids[i]);
  }
  token_list_clear(&ids);
  free(offsets);
  return status;
}

enum eaglet_status tokenizer_find_special(const struct tokenizer *tokenizer, const char *text, size_t length, struct special_list *list,
                                          struct eaglet_error *err) {
  *list = (struct special_list){0};
  if (tokenizer->normalized.n_tokens > 0 || tokenizer->kind->cut) return find_by_encoding(tokenizer, text, length, list, err);
  const struct encode_request request = {.text = text, .length = length, .special = true};
  struct added_scan scan = {.tokenizer = tokenizer, .set = &tokenizer->raw, .text = text, .end = length, .n_guarded = n_guarded, .context = &request};
  struct added_match match;
  while (added_scan_next(&scan, &match)) {
    const struct added_token *token = &tokenizer->added[match.index];
    if (token->special) special_append(list, match.begin, match.end, token->id);
  }
  return EAGLET_OK;
}

/* ---- queries ---- */

int32_t tokenizer_n_ids(const struct tokenizer *tokenizer) { return (int32_t)tokenizer->n_ids; }

static const struct added_token *added_by_id(const struct tokenizer *tokenizer, int32_t id) {
  if (id < 0 || (uint32_t)id >= tokenizer->n_ids || tokenizer->added_index[id] < 0) return NULL;
  return &tokenizer->added[tokenizer->added_index[id]];
}

const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *length) {
  *length = 0;
  if (id < 0 || (uint32_t)id >= tokenizer->n_ids) return NULL;
  if ((uint32_t)id >= tokenizer->n_base) {
    const struct added_token *token = added_by_id(tokenizer, id);
    if (!token) return NULL;
    *length = token->length;
    return token->text;
  }
  if (tokenizer->token_flags && !(tokenizer->token_flags[id] & TOKEN_KNOWN)) return NULL;
  *length = tokenizer->at[id + 1] - tokenizer->at[id];
  return tokenizer->blob + tokenizer->at[id];
}

bool tokenizer_keeps_text(const struct tokenizer *tokenizer) { return !tokenizer->rewrites; }

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id) {
  const struct added_token *token = added_by_id(tokenizer, id);
  return token && token->special;
}

int32_t tokenizer_special_id(const struct tokenizer *tokenizer, const char *text) {
  size_t length = strlen(text);
  for (size_t i = 0; i < tokenizer->n_added; i++) {
    const struct added_token *token = &tokenizer->added[i];
    if (token->length == length && memcmp(token->text, text, length) == 0) return token->id;
  }
  return -1;
}

const int32_t *tokenizer_special_ids(const struct tokenizer *tokenizer, size_t *n) {
  *n = tokenizer->n_added;
  return tokenizer->added_ids;
}

bool tokenizer_has_special(const struct tokenizer *tokenizer, const char *text, size_t length) {
  const struct added_set *set = &tokenizer->guarded;
  size_t matched;
  for (size_t at = 0; at < length && set->n_tokens; at++)
    if (added_set_match(set, tokenizer->added, text + at, length - at, length - at, &matched) >= 0) return true;
  return false;
}

static const char *named_in(const json_t *object, const char *name) {
  const json_t *value = json_object_get(object, name);
  if (json_is_object(value)) value = json_object_get(value, "content");
  return json_is_string(value) ? json_string_value(value) : "";
}

const char *tokenizer_named(const struct tokenizer *tokenizer, const char *name) {
  /* A null in tokenizer_config.json is an answer: there is none. */
  return json_object_get(tokenizer->config, name) ? named_in(tokenizer->config, name) : named_in(tokenizer->names, name);
}

uint64_t tokenizer_hash(const struct tokenizer *tokenizer) { return tokenizer->hash; }

const char *tokenizer_kind(const struct tokenizer *tokenizer) { return tokenizer->kind->name; }
