/* tokenizer_sentencepiece.c - the sentencepiece kind: tokenizer.model, a protocol buffer, of BPE type. The fields that matter are
 * read by hand and turned into the model of tokenizer_json.h: pieces into a vocabulary, scores into ranks of merges, the
 * normaliser's flags into its steps.
 *
 * A merge exists for every way to cut a piece into two parts that are pieces or single characters; its rank comes from the
 * score of the whole, equal scores having equal ranks. A single character that pieces hold but that is none itself gets a symbol
 * above the tokens. Unigram models, character maps and unused pieces are refused by name.
 */
#include "text/tokenizer_json.h"

#include "base/file.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX (1u << 24)

enum piece_type { PIECE_NORMAL = 1, PIECE_UNKNOWN = 2, PIECE_CONTROL = 3, PIECE_USER_DEFINED = 4, PIECE_UNUSED = 5, PIECE_BYTE = 6 };

struct sp_piece {
  uint32_t at, length; /* in the file */
  float score;
  int type;
  uint32_t rank;
};

struct sp_model {
  const char *path, *file;
  struct sp_piece *pieces;
  size_t n, capacity;
  int64_t model_type, unk_id, bos_id, eos_id, pad_id;
  bool byte_fallback, whitespace_suffix;
  char normalizer[64];
  size_t n_charsmap;
  bool dummy_prefix, remove_extra_spaces, escape_spaces;
};

/* ---- protocol buffer ---- */

struct field {
  uint32_t number;
  int wire;        /* 0 varint, 1 fixed64, 2 bytes, 5 fixed32 */
  uint64_t value;  /* varint, fixed32 */
  const char *data; /* bytes */
  size_t length;
};

struct message {
  const char *data;
  size_t length, at;
};

static bool read_varint(struct message *m, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 64 && m->at < m->length; shift += 7) {
    uint8_t byte = (uint8_t)m->data[m->at++];
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

/* 1: a field, 0: the end, -1: damaged. */
static int next_field(struct message *m, struct field *field) {
  uint64_t key, length;
  if (m->at == m->length) return 0;
  if (!read_varint(m, &key)) return -1;
  *field = (struct field){.number = (uint32_t)(key >> 3), .wire = (int)(key & 7)};
  switch (field->wire) {
  case 0: return read_varint(m, &field->value) ? 1 : -1;
  case 1: case 5: length = field->wire == 1 ? 8 : 4; break;
  case 2:
    if (!read_varint(m, &length)) return -1;
    break;
  default: return -1; /* groups are not used */
  }
  if (length > m->length - m->at) return -1;
  field->data = m->data + m->at;
  field->length = (size_t)length;
  m->at += (size_t)length;
  if (field->wire == 5)
    for (int i = 0; i < 4; i++) field->value |= (uint64_t)(uint8_t)field->data[i] << (8 * i);
  return 1;
}

static enum eaglet_status fail_damaged(const struct sp_model *sp, const char *part, struct eaglet_error *err) {
  FAIL(err, EAGLET_E_INPUT, "%s: damaged or not a SentencePiece model: %s cannot be read", sp->path, part);
}

static enum eaglet_status read_piece(struct sp_model *sp, const struct field *outer, struct eaglet_error *err) {
  struct message m = {outer->data, outer->length, 0};
  struct field field;
  struct sp_piece piece = {.type = PIECE_NORMAL};
  int found;
  while ((found = next_field(&m, &field)) > 0) {
    if (field.number == 1 && field.wire == 2) {
      piece.at = (uint32_t)(field.data - sp->file);
      piece.length = (uint32_t)field.length;
    } else if (field.number == 2 && field.wire == 5) {
      uint32_t bits = (uint32_t)field.value;
      memcpy(&piece.score, &bits, sizeof bits);
    } else if (field.number == 3 && field.wire == 0)
      piece.type = (int)field.value;
  }
  if (found < 0) return fail_damaged(sp, "a piece", err);
  const char *text = sp->file + piece.at;
  if (piece.length == 0 || utf8_valid(text, piece.length) != piece.length)
    FAIL(err, EAGLET_E_INPUT, "%s: piece %zu is empty or not valid UTF-8", sp->path, sp->n);
  if (piece.type == PIECE_UNUSED || piece.type < PIECE_NORMAL || piece.type > PIECE_BYTE)
    FAIL(err, EAGLET_E_INPUT, "%s: piece %zu \"%.*s\": %s (type %d) is not supported", sp->path, sp->n, (int)piece.length, text,
         piece.type == PIECE_UNUSED ? "an unused piece" : "this kind of piece", piece.type);
  if (sp->n == PIECES_MAX) FAIL(err, EAGLET_E_INPUT, "%s: more than %u pieces", sp->path, PIECES_MAX);
  MEMORY_GROW(sp->pieces, sp->capacity, sp->n + 1);
  sp->pieces[sp->n++] = piece;
  return EAGLET_OK;
}

static enum eaglet_status read_trainer(struct sp_model *sp, const struct field *outer, struct eaglet_error *err) {
  struct message m = {outer->data, outer->length, 0};
  struct field field;
  int found;
  while ((found = next_field(&m, &field)) > 0) {
    if (field.wire != 0) continue;
    int64_t value = (int64_t)field.value;
    switch (field.number) {
    case 3: sp->model_type = value; break;
    case 24: sp->whitespace_suffix = value != 0; break;
    case 35: sp->byte_fallback = value != 0; break;
    case 40: sp->unk_id = value; break;
    case 41: sp->bos_id = value; break;
    case 42: sp->eos_id = value; break;
    case 43: sp->pad_id = value; break;
    default: break;
    }
  }
  return found < 0 ? fail_damaged(sp, "trainer_spec", err) : EAGLET_OK;
}

static enum eaglet_status read_normalizer(struct sp_model *sp, const struct field *outer, struct eaglet_error *err) {
  struct message m = {outer->data, outer->length, 0};
  struct field field;
  int found;
  while ((found = next_field(&m, &field)) > 0) {
    if (field.number == 1 && field.wire == 2) snprintf(sp->normalizer, sizeof sp->normalizer, "%.*s", (int)field.length, field.data);
    if (field.number == 2 && field.wire == 2) sp->n_charsmap = field.length;
    if (field.wire != 0) continue;
    if (field.number == 3) sp->dummy_prefix = field.value != 0;
    if (field.number == 4) sp->remove_extra_spaces = field.value != 0;
    if (field.number == 5) sp->escape_spaces = field.value != 0;
  }
  return found < 0 ? fail_damaged(sp, "normalizer_spec", err) : EAGLET_OK;
}

static enum eaglet_status read_model(struct sp_model *sp, size_t length, struct eaglet_error *err) {
  struct message m = {sp->file, length, 0};
  struct field field;
  int found;
  sp->model_type = 1; /* the format's defaults */
  sp->bos_id = 1;
  sp->eos_id = 2;
  sp->pad_id = -1;
  sp->dummy_prefix = sp->remove_extra_spaces = sp->escape_spaces = true;
  while ((found = next_field(&m, &field)) > 0) {
    if (field.wire != 2) continue;
    if (field.number == 1) TRY(read_piece(sp, &field, err));
    if (field.number == 2) TRY(read_trainer(sp, &field, err));
    if (field.number == 3) TRY(read_normalizer(sp, &field, err));
  }
  if (found < 0) return fail_damaged(sp, "a field", err);
  static const char *const types[] = {"of an unknown kind", "Unigram", "BPE", "Word", "Char"};
  if (sp->model_type != 2)
    FAIL(err, EAGLET_E_INPUT, "%s: a SentencePiece model %s is not supported, expected BPE", sp->path,
         types[sp->model_type >= 1 && sp->model_type <= 4 ? sp->model_type : 0]);
  if (sp->n_charsmap)
    FAIL(err, EAGLET_E_INPUT, "%s: normalizer %s: a precompiled character map is not supported, expected identity", sp->path, sp->normalizer);
  if (!sp->escape_spaces || sp->whitespace_suffix)
    FAIL(err, EAGLET_E_INPUT, "%s: %s is not supported", sp->path,
         sp->whitespace_suffix ? "treat_whitespace_as_suffix" : "escape_whitespaces false");
  if (sp->n == 0) FAIL(err, EAGLET_E_INPUT, "%s: no pieces", sp->path);
  return EAGLET_OK;
}

/* ---- the same as a tokenizer.json ---- */

static json_t *text_of(const struct sp_model *sp, int64_t id) {
  if (id < 0 || (uint64_t)id >= sp->n) return json_null();
  return json_stringn(sp->file + sp->pieces[id].at, sp->pieces[id].length);
}

static json_t *replace_step(const char *kind, const char *pattern, const char *content) {
  return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", kind, pattern, "content", content);
}

/* first_only: the prefix stands before the text only, not before each stretch between special tokens. */
static json_t *make_document(const struct sp_model *sp, bool first_only) {
  json_t *steps = json_array(), *decoders = json_array(), *splitter = json_null();
  if (sp->remove_extra_spaces) {
    json_array_append_new(steps, replace_step("Regex", "\\A +", ""));
    json_array_append_new(steps, replace_step("Regex", " {2,}", " "));
  }
  if (sp->dummy_prefix && !first_only) json_array_append_new(steps, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", SPACE_MARK));
  if (sp->dummy_prefix && first_only)
    splitter = json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", SPACE_MARK, "prepend_scheme", "first", "split", 0);
  json_array_append_new(steps, replace_step("String", " ", SPACE_MARK));
  if (sp->remove_extra_spaces) json_array_append_new(steps, replace_step("Regex", "(?:" SPACE_MARK ")+\\z", "")); /* written marks too */
  json_array_append_new(decoders, replace_step("String", SPACE_MARK, " "));
  if (sp->byte_fallback) json_array_append_new(decoders, json_pack("{s:s}", "type", "ByteFallback"));
  json_array_append_new(decoders, json_pack("{s:s}", "type", "Fuse"));
  if (sp->dummy_prefix)
    json_array_append_new(decoders, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
  return json_pack("{s:{s:s, s:o, s:b, s:b}, s:{s:s, s:o}, s:o, s:{s:s, s:o}}", "model", "type", "BPE", "unk_token", text_of(sp, sp->unk_id),
                   "byte_fallback", sp->byte_fallback, "fuse_unk", 1, "normalizer", "type", "Sequence", "normalizers", steps, "pre_tokenizer",
                   splitter, "decoder", "type", "Sequence", "decoders", decoders);
}

static bool takes_part(const struct sp_piece *piece) { return piece->type == PIECE_NORMAL || piece->type == PIECE_USER_DEFINED; }

/* Pieces, then the single characters inside of pieces that are none. */
static void make_vocab(struct json_vocab *vocab, const struct sp_model *sp) {
  struct added_set seen = {0}; /* of single characters */
  size_t n_bytes = 0;
  for (size_t i = 0; i < sp->n; i++) n_bytes += sp->pieces[i].length;
  vocab->bytes = memory_alloc(2 * n_bytes + 1);
  for (size_t i = 0; i < sp->n; i++) {
    const struct sp_piece *piece = &sp->pieces[i];
    MEMORY_GROW(vocab->entries, vocab->capacity, vocab->n + 1);
    vocab->entries[vocab->n++] = (struct json_entry){(uint32_t)vocab->n_bytes, piece->length, (uint32_t)i};
    memcpy(vocab->bytes + vocab->n_bytes, sp->file + piece->at, piece->length);
    vocab->n_bytes += piece->length;
    uint32_t c;
    if ((size_t)utf8_decode(sp->file + piece->at, piece->length, &c) == piece->length) added_set_insert(&seen, sp->file + piece->at, piece->length, 0);
  }
  for (size_t i = 0; i < sp->n; i++) {
    const char *text = sp->file + sp->pieces[i].at;
    for (size_t at = 0, n; at < sp->pieces[i].length && takes_part(&sp->pieces[i]); at += n) {
      uint32_t c;
      n = (size_t)utf8_decode(text + at, sp->pieces[i].length - at, &c);
      if (!added_set_insert(&seen, text + at, n, 0)) continue;
      MEMORY_GROW(vocab->entries, vocab->capacity, vocab->n + 1);
      vocab->entries[vocab->n] = (struct json_entry){(uint32_t)vocab->n_bytes, (uint32_t)n, (uint32_t)vocab->n};
      vocab->n++;
      memcpy(vocab->bytes + vocab->n_bytes, text + at, n);
      vocab->n_bytes += n;
    }
  }
  added_set_release(&seen);
}

struct by_score {
  float score;
  uint32_t id;
};

static int compare_scores(const void *a, const void *b) { /* highest first */
  const struct by_score *x = a, *y = b;
  return (x->score < y->score) - (x->score > y->score);
}

static void rank_scores(struct sp_model *sp) {
  struct by_score *order = memory_alloc((sp->n + 1) * sizeof *order);
  for (size_t i = 0; i < sp->n; i++) order[i] = (struct by_score){sp->pieces[i].score, (uint32_t)i};
  qsort(order, sp->n, sizeof *order, compare_scores);
  uint32_t rank = 0;
  for (size_t i = 0; i < sp->n; i++) {
    if (i && order[i].score < order[i - 1].score) rank++;
    sp->pieces[order[i].id].rank = rank;
  }
  free(order);
}

static void make_merges(struct json_model *model, const struct sp_model *sp) {
  for (uint32_t id = 0; id < sp->n; id++) {
    const struct sp_piece *piece = &sp->pieces[id];
    const char *text = sp->file + piece->at;
    if (!takes_part(piece)) continue;
    for (size_t at = 1; at < piece->length; at++) {
      if (((uint8_t)text[at] & 0xc0) == 0x80) continue;
      uint32_t left = json_model_find(model, text, at), right = json_model_find(model, text + at, piece->length - at);
      if (left == BPE_NONE || right == BPE_NONE) continue;
      if ((left < sp->n && !takes_part(&sp->pieces[left])) || (right < sp->n && !takes_part(&sp->pieces[right]))) continue;
      MEMORY_GROW(model->merges, model->merges_capacity, model->n_merges + 1);
      model->merges[model->n_merges++] = (struct json_merge){left, right, piece->rank, id};
    }
  }
}

/* Control pieces and the unknown one are special tokens; user-defined ones are found in normalised text. */
static void add_pieces(struct tokenizer *tokenizer, const struct sp_model *sp) {
  const struct json_model *model = tokenizer->model;
  json_t *texts = json_array(); /* keeps the texts */
  json_object_set_new(model->document, "added_pieces", texts);
  for (size_t i = 0; i < sp->n; i++) {
    int type = sp->pieces[i].type;
    if (type != PIECE_CONTROL && type != PIECE_UNKNOWN && type != PIECE_USER_DEFINED) continue;
    bool special = type != PIECE_USER_DEFINED;
    json_t *text = text_of(sp, (int64_t)i);
    json_array_append_new(texts, text);
    added_append(tokenizer, &(struct added_token){.text = json_string_value(text), .length = sp->pieces[i].length, .id = (int32_t)i,
                                                  .special = special, .guarded = special, .normalized = !special});
  }
}

static void name_tokens(struct tokenizer *tokenizer, const struct sp_model *sp) {
  const struct { const char *name; int64_t id; } names[] = {
      {"unk_token", sp->unk_id}, {"bos_token", sp->bos_id}, {"eos_token", sp->eos_id}, {"pad_token", sp->pad_id}};
  if (!tokenizer->names) tokenizer->names = json_object();
  for (int i = 0; i < 4; i++)
    if (!json_object_get(tokenizer->names, names[i].name)) json_object_set_new(tokenizer->names, names[i].name, text_of(sp, names[i].id));
}

static enum eaglet_status build(struct tokenizer *tokenizer, struct sp_model *sp, struct eaglet_error *err) {
  struct json_model *model = tokenizer->model;
  TRY(json_model_configure(tokenizer, make_document(sp, json_is_false(json_object_get(tokenizer->config, "legacy"))), sp->path, err));
  struct json_vocab vocab = {0};
  make_vocab(&vocab, sp);
  enum eaglet_status status = json_model_set_vocab(tokenizer, &vocab, sp->path, err);
  json_vocab_release(&vocab);
  TRY(status);
  model->n_tokens = tokenizer->n_ids = (uint32_t)sp->n;
  model->verbatim_added = true;
  rank_scores(sp);
  make_merges(model, sp);
  add_pieces(tokenizer, sp);
  name_tokens(tokenizer, sp);
  TRY(json_model_add_configured(tokenizer, err));
  TRY(json_model_finish(tokenizer, sp->path, err));
  if (sp->bos_id >= 0 && (uint64_t)sp->bos_id < sp->n) token_list_append(&tokenizer->before, (int32_t)sp->bos_id);
  return json_model_surround(tokenizer, err);
}

static enum eaglet_status sentencepiece_open(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  char *path = file_join(directory, "tokenizer.model");
  struct file_map map;
  struct sp_model sp = {.path = path};
  tokenizer->model = memory_alloc(sizeof(struct json_model));
  enum eaglet_status status = file_map_open(&map, path, err);
  if (status == EAGLET_OK) {
    sp.file = (const char *)map.data;
    if (map.length > INT32_MAX) status = error_set(err, EAGLET_E_INPUT, "%s: %zu bytes are more than a tokenizer has", path, map.length);
    tokenizer->hash = file_hash(map.data, map.length, 0);
    if (status == EAGLET_OK) status = read_model(&sp, map.length, err);
    if (status == EAGLET_OK) status = build(tokenizer, &sp, err);
    file_map_close(&map);
  }
  free(sp.pieces);
  free(path);
  return status;
}

const struct tokenizer_kind tokenizer_kind_sentencepiece = {
    .name = "sentencepiece",
    .files = {"tokenizer.model"},
    .open = sentencepiece_open,
    .encode = json_encode,
    .scratch_free = json_scratch_free,
    .close = json_close,
    .decode_first = json_decode_first,
};
