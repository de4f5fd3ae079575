/* tokenizer_json_model.c - the BPE model of tokenizer.json once its parts are read: tables, and the way of a text through
 * normaliser, tokens on normalised text, pre-tokeniser and merges.
 *
 * When the last pre-tokeniser stage is ByteLevel, its spelling of bytes as letters is undone in the vocabulary instead of done
 * to every text: pieces then are raw bytes, and a token whose text is no such spelling can only be an added token.
 */
#include "text/tokenizer_json.h"

#include "base/file.h"
#include "base/memory.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE_YES = 1, WHOLE_NO = 2 };

/* ---- reading ---- */

static enum eaglet_status read_model_fields(struct json_model *model, const json_t *spec, const char *what, struct eaglet_error *err) {
  double dropout;
  const char *affix;
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  TRY(json_get_double_or(&dropout, 0, spec, "dropout", what, err));
  if (dropout != 0) FAIL(err, EAGLET_E_INPUT, "%s: model: dropout %g is not supported: encoding would be random", what, dropout);
  for (int i = 0; i < 2; i++) {
    TRY(json_get_string_or(&affix, "", spec, affixes[i], what, err));
    if (*affix) FAIL(err, EAGLET_E_INPUT, "%s: model: %s \"%s\" is not supported", what, affixes[i], affix);
  }
  TRY(json_get_bool_or(&model->fuse_unk, false, spec, "fuse_unk", what, err));
  TRY(json_get_bool_or(&model->byte_fallback, false, spec, "byte_fallback", what, err));
  return json_get_bool_or(&model->ignore_merges, false, spec, "ignore_merges", what, err);
}

enum eaglet_status json_model_configure(struct tokenizer *tokenizer, json_t *document, const char *what, struct eaglet_error *err) {
  struct json_model *model = tokenizer->model;
  model->document = document;
  const json_t *spec = json_object_get(document, "model");
  const char *type = json_string_value(json_object_get(spec, "type"));
  if (!json_is_object(spec)) FAIL(err, EAGLET_E_INPUT, "%s: model: expected an object", what);
  if (type && strcmp(type, "BPE") != 0) FAIL(err, EAGLET_E_INPUT, "%s: model type %s is not supported, expected BPE", what, type);
  TRY(read_model_fields(model, spec, what, err));
  TRY(normalizer_create(&model->normalizer, json_object_get(document, "normalizer"), what, err));
  TRY(splitter_create(&model->splitter, json_object_get(document, "pre_tokenizer"), what, err));
  model->bytes = splitter_ends_in_bytes(model->splitter);
  tokenizer->rewrites = !model->bytes || model->normalizer || !splitter_keeps_text(model->splitter);
  return decoder_create(&model->decoder, &tokenizer->decode, json_object_get(document, "decoder"), what, err);
}

uint32_t json_model_find(const struct json_model *model, const char *text, size_t length) {
  return bpe_ranks_find(&model->text_ids, text, length); /* an empty text is never there */
}

enum eaglet_status json_model_set_vocab(struct tokenizer *tokenizer, const struct json_vocab *vocab, const char *what, struct eaglet_error *err) {
  struct json_model *model = tokenizer->model;
  uint32_t n = 0;
  for (size_t i = 0; i < vocab->n; i++)
    if (vocab->entries[i].id >= n) n = vocab->entries[i].id + 1;
  if (n == 0) FAIL(err, EAGLET_E_INPUT, "%s: the vocabulary is empty", what);
  const struct json_entry **by_id = memory_alloc(n * sizeof *by_id);
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < vocab->n && status == EAGLET_OK; i++) {
    const struct json_entry *entry = &vocab->entries[i], **place = &by_id[entry->id];
    if (*place)
      status = error_set(err, EAGLET_E_INPUT, "%s: vocabulary: \"%.*s\" and \"%.*s\" have the same id %u", what, (int)(*place)->length,
                         vocab->bytes + (*place)->at, (int)entry->length, vocab->bytes + entry->at, entry->id);
    *place = entry;
  }
  model->n_keys = model->n_tokens = tokenizer->n_ids = n;
  model->texts = memory_alloc(vocab->n_bytes + 1);
  model->text_at = memory_alloc(((size_t)n + 1) * sizeof *model->text_at);
  uint32_t at = 0;
  for (uint32_t id = 0; id < n; id++) {
    model->text_at[id] = at;
    if (!by_id[id]) continue;
    memcpy(model->texts + at, vocab->bytes + by_id[id]->at, by_id[id]->length);
    at += by_id[id]->length;
  }
  model->text_at[n] = at;
  free(by_id);
  TRY(status);
  status = bpe_ranks_init(&model->text_ids, model->texts, model->text_at, n, err);
  if (status != EAGLET_OK) {
    (void)error_prefix(err, "%s: vocabulary", what);
    return status;
  }
  const json_t *unk = json_object_get(json_object_get(model->document, "model"), "unk_token");
  model->has_unk = json_is_string(unk);
  model->unk = model->has_unk ? json_model_find(model, json_string_value(unk), json_string_length(unk)) : BPE_NONE;
  return EAGLET_OK;
}

enum eaglet_status json_model_add_merge(struct json_model *model, const char *joined, size_t middle, size_t length, struct eaglet_error *err) {
  struct json_merge merge = {.rank = (uint32_t)model->n_merges,
                             .left = json_model_find(model, joined, middle),
                             .right = json_model_find(model, joined + middle, length - middle),
                             .id = json_model_find(model, joined, length)};
  if (merge.left == BPE_NONE || merge.right == BPE_NONE || merge.id == BPE_NONE)
    FAIL(err, EAGLET_E_INPUT, "merge %zu, \"%.*s\" and \"%.*s\": %s is not in the vocabulary", model->n_merges, (int)middle, joined,
         (int)(length - middle), joined + middle,
         merge.left == BPE_NONE ? "the first part" : merge.right == BPE_NONE ? "the second part" : "the result");
  MEMORY_GROW(model->merges, model->merges_capacity, model->n_merges + 1);
  model->merges[model->n_merges++] = merge;
  return EAGLET_OK;
}

/* ---- added tokens of tokenizer_config.json ---- */

static const struct added_token *find_added(const struct tokenizer *tokenizer, const char *text, size_t length) {
  for (size_t i = 0; i < tokenizer->n_added; i++) {
    const struct added_token *token = &tokenizer->added[i];
    if (token->length == length && memcmp(token->text, text, length) == 0) return token;
  }
  return NULL;
}

enum eaglet_status json_model_add_configured(struct tokenizer *tokenizer, struct eaglet_error *err) {
  const struct json_model *model = tokenizer->model;
  json_t *decoder = json_object_get(tokenizer->config, "added_tokens_decoder"), *value;
  const char *key, *path = tokenizer->config_path;
  if (!decoder || json_is_null(decoder)) return EAGLET_OK;
  if (!json_is_object(decoder)) FAIL(err, EAGLET_E_INPUT, "%s: added_tokens_decoder: expected an object", path);
  json_object_foreach(decoder, key, value) {
    struct added_token token = {0};
    TRY(added_parse_id(&token.id, key, path, err));
    TRY(added_parse(&token, value, path, err));
    const struct added_token *known = find_added(tokenizer, token.text, token.length);
    uint32_t id = known ? (uint32_t)known->id : json_model_find(model, token.text, token.length);
    if (id >= model->n_tokens && !known) id = BPE_NONE;
    if (id != BPE_NONE && id != (uint32_t)token.id)
      FAIL(err, EAGLET_E_INPUT, "%s: added token %d \"%s\" has the id %u in the vocabulary", path, token.id, token.text, id);
    if (known) continue;
    if (id == BPE_NONE && (uint32_t)token.id < model->n_tokens && model->text_at[token.id] != model->text_at[token.id + 1])
      FAIL(err, EAGLET_E_INPUT, "%s: added token %d \"%s\" collides with the vocabulary's token of that id", path, token.id, token.text);
    added_append(tokenizer, &token);
  }
  return EAGLET_OK;
}

/* ---- finishing ---- */

static void build_keys(struct json_model *model) {
  size_t n_bytes = model->text_at[model->n_keys];
  model->keys = memory_alloc(n_bytes + 1);
  model->key_at = memory_alloc(((size_t)model->n_keys + 1) * sizeof *model->key_at);
  uint32_t at = 0;
  for (uint32_t id = 0; id < model->n_keys; id++) {
    model->key_at[id] = at;
    const char *text = model->texts + model->text_at[id];
    size_t length = model->text_at[id + 1] - model->text_at[id], n = 0;
    if (model->bytes) {
      if (byte_level_unspell(text, length, model->keys + at, &n)) at += (uint32_t)n;
    } else {
      memcpy(model->keys + at, text, length);
      at += (uint32_t)length;
    }
  }
  model->key_at[model->n_keys] = at;
}

static enum eaglet_status build_byte_ids(struct json_model *model, const char *what, struct eaglet_error *err) {
  model->byte_ids_complete = true;
  for (unsigned byte = 0; byte < 256; byte++) {
    char text[8];
    int n = snprintf(text, sizeof text, "<0x%02X>", byte);
    char c = (char)byte;
    model->byte_ids[byte] = model->bytes ? bpe_ranks_find(&model->vocab, &c, 1) : json_model_find(model, text, (size_t)n);
    if (byte < 128) model->ascii_ids[byte] = bpe_ranks_find(&model->vocab, &c, 1);
    model->byte_ids_complete &= model->byte_ids[byte] != BPE_NONE;
  }
  if (model->bytes && model->byte_fallback && !model->byte_ids_complete)
    FAIL(err, EAGLET_E_INPUT, "%s: model: byte_fallback with a byte-level vocabulary that lacks letters is not supported", what);
  return EAGLET_OK;
}

/* A merge never reaches over a place where no token can stand: where another character meets a space mark. */
static bool marks_cut(const struct json_model *model) {
  if (model->bytes || model->ignore_merges || bpe_ranks_find(&model->vocab, SPACE_MARK, 3) == BPE_NONE) return false;
  for (uint32_t id = 0; id < model->n_keys; id++) {
    const char *key = model->keys + model->key_at[id];
    size_t length = model->key_at[id + 1] - model->key_at[id];
    for (size_t at = 1; at + 3 <= length; at++) {
      if (memcmp(key + at, SPACE_MARK, 3) != 0) continue;
      if (at < 3 || memcmp(key + at - 3, SPACE_MARK, 3) != 0) return false;
    }
  }
  return true;
}

static enum eaglet_status build_normalized_set(struct tokenizer *tokenizer, struct regex_scratch *scratch, const char *what, struct eaglet_error *err) {
  const struct json_model *model = tokenizer->model;
  struct work works[2] = {0};
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < tokenizer->n_added && status == EAGLET_OK; i++) {
    const struct added_token *token = &tokenizer->added[i];
    if (!token->normalized) continue;
    struct piece piece = {.data = token->text, .length = token->length};
    if (!model->verbatim_added) status = normalizer_apply(model->normalizer, works, scratch, false, &piece, err);
    if (status == EAGLET_OK && !added_set_insert(&tokenizer->normalized, piece.data, piece.length, (int32_t)i))
      status = error_set(err, EAGLET_E_INPUT, "%s: added token %d \"%s\": another one has the same normalised text", what, token->id, token->text);
  }
  work_release(&works[0]);
  work_release(&works[1]);
  return status;
}

/* What every id decodes to, in tokenizer->blob. */
static enum eaglet_status build_decoded(struct tokenizer *tokenizer, struct regex_scratch *scratch, struct eaglet_error *err) {
  const struct json_model *model = tokenizer->model;
  struct buffer out;
  buffer_init(&out);
  buffer_append(&out, "", 0);
  tokenizer->n_base = tokenizer->n_ids;
  tokenizer->at = memory_alloc(((size_t)tokenizer->n_ids + 1) * sizeof *tokenizer->at);
  tokenizer->token_flags = memory_alloc((size_t)tokenizer->n_ids + 1);
  enum eaglet_status status = EAGLET_OK;
  for (uint32_t id = 0; id < tokenizer->n_ids && status == EAGLET_OK; id++) {
    struct text_view view = {0};
    int32_t index = tokenizer->added_index[id];
    if (index >= 0) view = (struct text_view){tokenizer->added[index].text, tokenizer->added[index].length};
    else if (id < model->n_tokens) view = (struct text_view){model->texts + model->text_at[id], model->text_at[id + 1] - model->text_at[id]};
    tokenizer->at[id] = (uint32_t)out.length;
    if (view.length == 0) continue; /* a hole */
    struct decode_job job = {.scratch = scratch, .token = view};
    status = decoder_apply(model->decoder, &job, &out, err);
    tokenizer->token_flags[id] = job.is_byte ? TOKEN_KNOWN | TOKEN_BYTE : TOKEN_KNOWN;
  }
  tokenizer->at[tokenizer->n_ids] = (uint32_t)out.length;
  tokenizer->blob = out.data;
  return status;
}

static void drop_reading(struct json_model *model) {
  bpe_ranks_release(&model->text_ids);
  free(model->texts);
  free(model->text_at);
  free(model->merges);
  model->texts = NULL;
  model->text_at = NULL;
  model->merges = NULL;
}

enum eaglet_status json_model_finish(struct tokenizer *tokenizer, const char *what, struct eaglet_error *err) {
  struct json_model *model = tokenizer->model;
  build_keys(model);
  TRY(bpe_ranks_init(&model->vocab, model->keys, model->key_at, model->n_keys, err));
  TRY(build_byte_ids(model, what, err));
  bpe_pairs_init(&model->pairs, model->n_merges + 1);
  for (size_t i = 0; i < model->n_merges; i++) {
    const struct json_merge *merge = &model->merges[i];
    bpe_pairs_add(&model->pairs, merge->left, merge->right, merge->rank, merge->id);
  }
  model->cut_marks = marks_cut(model);
  tokenizer->rewrites |= !model->byte_ids_complete;
  model->whole = memory_alloc((size_t)model->n_keys + 1);
  TRY(added_finish(tokenizer, what, err));
  for (size_t i = 0; i < tokenizer->n_added; i++) tokenizer->rewrites |= tokenizer->added[i].lstrip || tokenizer->added[i].rstrip;
  struct regex_scratch *scratch = regex_scratch_create();
  enum eaglet_status status = build_normalized_set(tokenizer, scratch, what, err);
  if (status == EAGLET_OK) status = build_decoded(tokenizer, scratch, err);
  regex_scratch_free(scratch);
  if (status == EAGLET_OK && !tokenizer->decode.first_differs) drop_reading(model);
  return status;
}

/* ---- BOS and EOS ---- */

static uint32_t named_id(const struct tokenizer *tokenizer, const char *name) {
  const char *text = tokenizer_named(tokenizer, name);
  int32_t id = *text ? tokenizer_special_id(tokenizer, text) : -1;
  if (id >= 0) return (uint32_t)id;
  const struct json_model *model = tokenizer->model;
  return *text && !model->bytes ? bpe_ranks_find(&model->vocab, text, strlen(text)) : BPE_NONE;
}

static bool is_only(const struct token_list *list, uint32_t id) { return list->n == 1 && (uint32_t)list->ids[0] == id; }

/* Classes that put BOS before raw text unless told otherwise. */
static bool class_adds_bos(const struct tokenizer *tokenizer) {
  static const char *const classes[] = {"LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "CodeLlamaTokenizerFast",
                                        "GemmaTokenizer", "GemmaTokenizerFast"};
  const char *name = json_string_value(json_object_get(tokenizer->config, "tokenizer_class"));
  for (size_t i = 0; name && i < sizeof classes / sizeof *classes; i++)
    if (strcmp(name, classes[i]) == 0) return true;
  return false;
}

enum eaglet_status json_model_surround(struct tokenizer *tokenizer, struct eaglet_error *err) {
  bool add;
  uint32_t bos = named_id(tokenizer, "bos_token"), eos = named_id(tokenizer, "eos_token");
  if (json_is_boolean(json_object_get(tokenizer->config, "add_bos_token")) || class_adds_bos(tokenizer)) {
    TRY(json_get_bool_or(&add, true, tokenizer->config, "add_bos_token", tokenizer->config_path, err));
    if (add && bos == BPE_NONE) FAIL(err, EAGLET_E_INPUT, "%s: add_bos_token, but there is no bos_token in the vocabulary", tokenizer->config_path);
    if (add && tokenizer->before.n == 0) token_list_append(&tokenizer->before, (int32_t)bos);
    if (!add && is_only(&tokenizer->before, bos)) tokenizer->before.n = 0;
  }
  if (json_is_boolean(json_object_get(tokenizer->config, "add_eos_token"))) {
    TRY(json_get_bool_or(&add, false, tokenizer->config, "add_eos_token", tokenizer->config_path, err));
    if (add && eos == BPE_NONE) FAIL(err, EAGLET_E_INPUT, "%s: add_eos_token, but there is no eos_token in the vocabulary", tokenizer->config_path);
    if (add && tokenizer->after.n == 0) token_list_append(&tokenizer->after, (int32_t)eos);
    if (!add && is_only(&tokenizer->after, eos)) tokenizer->after.n = 0;
  }
  const struct token_list *lists[] = {&tokenizer->before, &tokenizer->after};
  for (int i = 0; i < 2; i++) tokenizer->hash = file_hash(lists[i]->ids, lists[i]->n * sizeof(int32_t), tokenizer->hash + (uint64_t)i);
  return EAGLET_OK;
}

/* ---- encoding ---- */

#define CACHED_WORD_MAX 16
#define CACHED_IDS_MAX 6
#define N_CACHED 8192
#define CACHE_TEXT_MIN 4096
struct cached_word { /* a word that takes several tokens */
  uint64_t prefix, rest; /* its bytes, zeros behind the end */
  uint32_t length, n;    /* length 0: empty */
  uint32_t ids[CACHED_IDS_MAX];
};

struct json_scratch {
  struct cached_word *cache; /* [N_CACHED], direct-mapped; made when a text is long enough to gain from it */
  struct bpe_scratch bpe;
  struct bpe_symbol *symbols;
  size_t symbols_capacity;
  struct regex_scratch *regex;
  struct work normal[2], stages[STAGES_MAX];
};

struct json_job {
  const struct tokenizer *tokenizer;
  const struct json_model *model;
  struct json_scratch *scratch;
  const struct encode_request *request;
  const struct bpe_sink *sink;
};

struct symbols { /* the symbols of one piece while they are made */
  struct bpe_symbol *list;
  size_t n;
  bool unk_pending; /* an unknown stretch not yet in the list */
  uint32_t unk_length, lost; /* lost: bytes of dropped characters, given to the next symbol */
};

static void add_symbol(struct symbols *s, uint32_t id, uint32_t length) {
  s->list[s->n++] = (struct bpe_symbol){id, length + s->lost};
  s->lost = 0;
}

static void flush_unk(const struct json_model *model, struct symbols *s) {
  if (s->unk_pending) add_symbol(s, model->unk, s->unk_length);
  s->unk_pending = false;
}

static enum eaglet_status add_unknown(const struct json_model *model, struct symbols *s, const char *text, uint32_t n, struct eaglet_error *err) {
  if (model->byte_fallback && !model->bytes) {
    bool all = true;
    for (uint32_t i = 0; i < n; i++) all &= model->byte_ids[(uint8_t)text[i]] != BPE_NONE;
    for (uint32_t i = 0; all && i < n; i++) add_symbol(s, model->byte_ids[(uint8_t)text[i]], 1);
    if (all) return EAGLET_OK;
  }
  if (!model->has_unk) { /* dropped, as the reference does */
    s->lost += n;
    return EAGLET_OK;
  }
  if (model->unk == BPE_NONE) FAIL(err, EAGLET_E_INPUT, "text has a character outside of the vocabulary, and unk_token is not in it either");
  if (s->unk_pending && model->fuse_unk) {
    s->unk_length += n;
    return EAGLET_OK;
  }
  flush_unk(model, s);
  s->unk_pending = true;
  s->unk_length = n;
  return EAGLET_OK;
}

static enum eaglet_status make_symbols(const struct json_model *model, struct symbols *s, const char *data, size_t length, struct eaglet_error *err) {
  for (size_t at = 0; at < length;) {
    uint32_t c, n = 1, id;
    if (model->bytes) id = model->byte_ids[(uint8_t)data[at]];
    else if (!((uint8_t)data[at] & 0x80)) id = model->ascii_ids[(uint8_t)data[at]];
    else {
      n = (uint32_t)utf8_decode(data + at, length - at, &c);
      id = bpe_ranks_find(&model->vocab, data + at, n);
    }
    if (id == BPE_NONE) TRY(add_unknown(model, s, data + at, n, err));
    else {
      flush_unk(model, s);
      add_symbol(s, id, n);
    }
    at += n;
  }
  flush_unk(model, s);
  return EAGLET_OK;
}

static void emit_symbols(struct json_job *job, const struct piece *piece, size_t at, const struct bpe_symbol *symbols, size_t n) {
  for (size_t i = 0; i < n; at += symbols[i++].length)
    bpe_sink_append(job->sink, (int32_t)symbols[i].id, job->sink->offsets ? piece_origin(piece, at) : 0);
}

/* Characters that only merge were left over: they are unknown after all. */
static enum eaglet_status encode_leftovers(struct json_job *job, const struct piece *piece, size_t begin, const struct symbols *merged, size_t n,
                                           struct eaglet_error *err) {
  struct bpe_symbol *list = memory_alloc((n + piece->length - begin + 1) * sizeof *list);
  struct symbols s = {.list = list};
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0, at = begin; i < n && status == EAGLET_OK; at += merged->list[i++].length) {
    if (merged->list[i].id >= job->model->n_tokens && merged->list[i].id != job->model->unk)
      status = add_unknown(job->model, &s, piece->data + at, merged->list[i].length, err);
    else {
      flush_unk(job->model, &s);
      add_symbol(&s, merged->list[i].id, merged->list[i].length);
    }
  }
  flush_unk(job->model, &s);
  if (status == EAGLET_OK) emit_symbols(job, piece, begin, s.list, s.n);
  free(list);
  return status;
}

/* The cache's place for a word; NULL when the word is not of the kind that is cached. */
static struct cached_word *cached_place(const struct json_job *job, const char *data, size_t length) {
  if (!job->scratch->cache || length > CACHED_WORD_MAX || job->sink->offsets) return NULL;
  uint64_t prefix = bpe_prefix(data, length), rest = length > 8 ? bpe_prefix(data + 8, length - 8) : 0;
  uint64_t hash = (prefix ^ rest * 0xff51afd7ed558ccdu ^ length) * 0x9e3779b97f4a7c15u;
  struct cached_word *place = &job->scratch->cache[(hash >> 40) % N_CACHED];
  if (place->length == length && place->prefix == prefix && place->rest == rest) return place;
  *place = (struct cached_word){.prefix = prefix, .rest = rest}; /* the next call fills it in, or leaves it empty */
  return place;
}

/* Encodes one word: piece[begin..end). */
static enum eaglet_status encode_word(struct json_job *job, const struct piece *piece, size_t begin, size_t end, struct eaglet_error *err) {
  const struct json_model *model = job->model;
  const char *data = piece->data + begin;
  size_t length = end - begin;
  uint32_t whole = bpe_ranks_find(&model->vocab, data, length);
  if (whole >= model->n_tokens) whole = BPE_NONE;
  if (whole != BPE_NONE && (model->ignore_merges || atomic_load_explicit(&model->whole[whole], memory_order_relaxed) == WHOLE_YES)) {
    bpe_sink_append(job->sink, (int32_t)whole, job->sink->offsets ? piece_origin(piece, begin) : 0);
    return EAGLET_OK;
  }
  struct json_scratch *scratch = job->scratch;
  struct cached_word *cached = cached_place(job, data, length);
  if (cached && cached->length) {
    for (uint32_t i = 0; i < cached->n; i++) bpe_sink_append(job->sink, (int32_t)cached->ids[i], 0);
    return EAGLET_OK;
  }
  MEMORY_GROW(scratch->symbols, scratch->symbols_capacity, length + 1);
  struct symbols s = {.list = scratch->symbols};
  if (length >= INT32_MAX) FAIL(err, EAGLET_E_RESOURCE, "a word of %zu bytes is too long", length);
  TRY(make_symbols(model, &s, data, length, err));
  size_t n = bpe_pairs_merge(&model->pairs, &scratch->bpe, s.list, s.n);
  if (whole != BPE_NONE)
    atomic_store_explicit(&model->whole[whole], n == 1 && s.list[0].id == whole ? WHOLE_YES : WHOLE_NO, memory_order_relaxed);
  for (size_t i = 0; i < n; i++)
    if (s.list[i].id >= model->n_tokens) return encode_leftovers(job, piece, begin, &s, n, err);
  emit_symbols(job, piece, begin, s.list, n);
  if (cached && n <= CACHED_IDS_MAX) {
    for (size_t i = 0; i < n; i++) cached->ids[i] = s.list[i].id;
    cached->n = (uint32_t)n;
    cached->length = (uint32_t)length;
  }
  return EAGLET_OK;
}

static enum eaglet_status encode_piece(void *context, const struct piece *piece, struct eaglet_error *err) {
  struct json_job *job = context;
  size_t begin = 0;
  if (job->model->cut_marks) {
    for (size_t at = 1; at + 3 <= piece->length; at++) {
      if (piece->data[at] != SPACE_MARK[0] || memcmp(piece->data + at, SPACE_MARK, 3) != 0) continue;
      if (at >= 3 && memcmp(piece->data + at - 3, SPACE_MARK, 3) == 0) continue;
      TRY(encode_word(job, piece, begin, at, err));
      begin = at;
    }
  }
  return encode_word(job, piece, begin, piece->length, err);
}

struct guard { /* of tokens in normalised text: where its bytes came from decides */
  const struct json_job *job;
  const struct piece *piece;
};

static size_t n_guarded(const void *context, size_t at) {
  const struct guard *guard = context;
  const struct piece *piece = guard->piece;
  if (guard->job->request->n_protection == 0) return guard->job->request->special ? SIZE_MAX : 0; /* origins are not kept then */
  size_t limit = encode_request_guard_end(guard->job->request, piece_origin(piece, at)), n = 0;
  size_t n_max = guard->job->tokenizer->normalized.length_max;
  while (n < n_max && at + n < piece->length && piece_origin(piece, at + n) < limit) n++;
  return n;
}

enum eaglet_status json_encode(const struct tokenizer *tokenizer, void **scratch_, const struct text_span *span,
                               const struct encode_request *request, const struct bpe_sink *sink, struct eaglet_error *err) {
  const struct json_model *model = tokenizer->model;
  if (!*scratch_) {
    struct json_scratch *created = memory_alloc(sizeof *created);
    created->regex = regex_scratch_create();
    *scratch_ = created;
  }
  struct json_scratch *scratch = *scratch_;
  if (!scratch->cache && span->end - span->begin >= CACHE_TEXT_MIN) scratch->cache = memory_alloc(N_CACHED * sizeof *scratch->cache);
  struct json_job job = {tokenizer, model, scratch, request, sink};
  bool with_origin = sink->offsets || (request->n_protection && tokenizer->normalized.n_tokens) ||
                     (model->normalizer && splitter_wants_first(model->splitter));
  struct split_job split = {.splitter = model->splitter, .works = scratch->stages, .scratch = scratch->regex,
                            .with_origin = with_origin, .emit = encode_piece, .context = &job};
  struct piece piece = {.data = request->text + span->begin, .length = span->end - span->begin, .begin = span->begin};
  TRY(normalizer_apply(model->normalizer, scratch->normal, scratch->regex, with_origin, &piece, err));
  struct guard guard = {&job, &piece};
  struct added_scan scan = {.tokenizer = tokenizer, .set = &tokenizer->normalized, .text = piece.data, .end = piece.length,
                            .n_guarded = n_guarded, .context = &guard};
  struct added_match match;
  while (added_scan_next(&scan, &match)) {
    struct piece part = piece_part(&piece, match.ordinary, match.begin > match.ordinary ? match.begin : match.ordinary);
    TRY(splitter_run(&split, &part, err));
    bpe_sink_append(sink, tokenizer->added[match.index].id, piece_origin(&piece, match.begin));
  }
  struct piece rest = piece_part(&piece, scan.ordinary, piece.length);
  return splitter_run(&split, &rest, err);
}

void json_scratch_free(void *scratch_) {
  struct json_scratch *scratch = scratch_;
  if (!scratch) return;
  bpe_scratch_release(&scratch->bpe);
  free(scratch->cache);
  free(scratch->symbols);
  regex_scratch_free(scratch->regex);
  for (int i = 0; i < 2; i++) work_release(&scratch->normal[i]);
  for (int i = 0; i < STAGES_MAX; i++) work_release(&scratch->stages[i]);
  free(scratch);
}

/* ---- the rest ---- */

void json_decode_first(const struct tokenizer *tokenizer, int32_t id, struct buffer *out) {
  const struct json_model *model = tokenizer->model;
  int32_t index = tokenizer->added_index[id];
  struct text_view view = {0};
  if (index >= 0) view = (struct text_view){tokenizer->added[index].text, tokenizer->added[index].length};
  else if ((uint32_t)id < model->n_tokens)
    view = (struct text_view){model->texts + model->text_at[id], model->text_at[id + 1] - model->text_at[id]};
  struct regex_scratch *scratch = regex_scratch_create();
  struct decode_job job = {.scratch = scratch, .token = view, .first = true};
  size_t before = out->length;
  /* It succeeded when the vocabulary was read. */
  if (decoder_apply(model->decoder, &job, out, NULL) != EAGLET_OK) out->length = before;
  regex_scratch_free(scratch);
}

void json_close(struct tokenizer *tokenizer) {
  struct json_model *model = tokenizer->model;
  if (!model) return;
  drop_reading(model);
  free(model->keys);
  free(model->key_at);
  bpe_ranks_release(&model->vocab);
  bpe_pairs_release(&model->pairs);
  free((void *)model->whole);
  normalizer_free(model->normalizer);
  splitter_free(model->splitter);
  decoder_free(model->decoder);
  json_decref(model->document);
  free(model);
  tokenizer->model = NULL;
}
