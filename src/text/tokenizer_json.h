/* tokenizer_json.h - the parts of the tokenizer.json kind: reader, regular expressions, normalisers, pre-tokenisers, decoders.
 * Private to src/text/tokenizer_json*.c.
 *
 * A text goes normaliser -> tokens matched on normalised text -> pre-tokeniser stages -> BPE. Pieces run through the stages one by
 * one (depth first), so that nothing is kept per piece; a stage that rewrites text does so in a buffer of its own.
 */
#ifndef EAGLET_TEXT_TOKENIZER_JSON_H
#define EAGLET_TEXT_TOKENIZER_JSON_H

#include "text/bpe_pairs.h"
#include "text/tokenizer_kind.h"
#include "text/tokenizer_split.h"

/* ---- reader: model.vocab and model.merges from the text ---- */

struct json_parts { /* end 0: absent */
  struct text_span vocab, merges;
};
enum eaglet_status json_parts_find(struct json_parts *parts, const char *text, size_t length, const char *what, struct eaglet_error *err) MUST_USE;

struct json_entry {
  uint32_t at, length, id; /* in bytes */
};
struct json_vocab { /* in file order */
  char *bytes;
  size_t n_bytes;
  struct json_entry *entries;
  size_t n, capacity;
};
enum eaglet_status json_read_vocab(struct json_vocab *vocab, const char *text, struct text_span span, const char *what, struct eaglet_error *err) MUST_USE;
void json_vocab_release(struct json_vocab *vocab);

struct json_merge_sink { /* add gets both parts joined, the first being joined[0..middle) */
  enum eaglet_status (*add)(void *context, const char *joined, size_t middle, size_t length, struct eaglet_error *err);
  void *context;
};
enum eaglet_status json_read_merges(const struct json_merge_sink *sink, const char *text, struct text_span span, const char *what,
                                    struct eaglet_error *err) MUST_USE;

/* ---- regular expressions: Oniguruma's language (Ruby's dialect) on PCRE2 ---- */

struct regex;
enum eaglet_status regex_create(struct regex **regex, const char *pattern, size_t length, const char *what, struct eaglet_error *err) MUST_USE;
enum eaglet_status regex_create_literal(struct regex **regex, const char *text, size_t length, struct eaglet_error *err) MUST_USE;
void regex_free(struct regex *regex);

struct regex_scratch; /* of one encode call */
struct regex_scratch *regex_scratch_create(void);
void regex_scratch_free(struct regex_scratch *scratch);

struct regex_walk { /* all matches from left to right, as Oniguruma's find_iter: an empty match right behind a match is skipped */
  const struct regex *regex;
  struct regex_scratch *scratch;
  const char *text;
  size_t length, at, last_end;
  bool has_last;
};
/* *found is false at the end. Fails with EAGLET_E_RESOURCE when the pattern gives up on this text. */
enum eaglet_status regex_walk_next(struct regex_walk *walk, struct text_span *match, bool *found, struct eaglet_error *err) MUST_USE;

/* ---- text with origins ---- */

struct text_view {
  const char *data;
  size_t length;
};

struct piece { /* UTF-8 (bytes when the last stage made it so) and where it came from in the request's text */
  const char *data;
  size_t length;
  const size_t *origin; /* per byte; NULL: data[i] comes from begin + i */
  size_t begin;
};
static inline size_t piece_origin(const struct piece *piece, size_t at) { return piece->origin ? piece->origin[at] : piece->begin + at; }
static inline struct piece piece_part(const struct piece *piece, size_t begin, size_t end) {
  return (struct piece){piece->data + begin, end - begin, piece->origin ? piece->origin + begin : NULL, piece->begin + begin};
}

struct work { /* a text being rewritten, with origins when they are wanted */
  struct buffer text;
  size_t *origin;
  size_t origin_capacity;
  bool with_origin;
};
void work_reset(struct work *work, bool with_origin);
void work_append(struct work *work, const struct piece *from, size_t begin, size_t end); /* copies */
void work_append_new(struct work *work, const char *bytes, size_t length, size_t origin); /* all from one place */
struct piece work_piece(const struct work *work, const struct piece *from);
void work_release(struct work *work);

/* Appends the byte-level spelling (one character per byte) of bytes. */
void byte_level_spell(struct work *work, const struct piece *from);
/* Bytes of a byte-level spelling; false when a character is not in the alphabet. out holds length bytes. */
bool byte_level_unspell(const char *text, size_t length, char *out, size_t *n_out);

/* ---- normaliser ---- */

struct normalizer; /* the whole chain; NULL: none */
enum eaglet_status normalizer_create(struct normalizer **normalizer, const json_t *spec, const char *what, struct eaglet_error *err) MUST_USE;
void normalizer_free(struct normalizer *normalizer);
/* *piece becomes the normalised text, living in works (two of them) when it differs. */
enum eaglet_status normalizer_apply(const struct normalizer *normalizer, struct work works[2], struct regex_scratch *scratch,
                                    bool with_origin, struct piece *piece, struct eaglet_error *err) MUST_USE;

/* ---- pre-tokeniser ---- */

#define STAGES_MAX 16
struct splitter; /* the chain of stages */
enum eaglet_status splitter_create(struct splitter **splitter, const json_t *spec, const char *what, struct eaglet_error *err) MUST_USE;
void splitter_free(struct splitter *splitter);
bool splitter_ends_in_bytes(const struct splitter *splitter); /* pieces are raw bytes: the last stage is ByteLevel */
bool splitter_keeps_text(const struct splitter *splitter);    /* pieces joined are the text */
bool splitter_wants_first(const struct splitter *splitter);   /* a stage asks whether a piece begins the text */

struct split_job {
  const struct splitter *splitter;
  struct work *works; /* [STAGES_MAX] */
  struct regex_scratch *scratch;
  bool with_origin;
  enum eaglet_status (*emit)(void *context, const struct piece *piece, struct eaglet_error *err);
  void *context;
};
enum eaglet_status splitter_run(struct split_job *job, const struct piece *piece, struct eaglet_error *err) MUST_USE;

/* ---- decoder ---- */

/* Steps that act on each token for itself, and rules for the whole. */
struct decoder;
enum eaglet_status decoder_create(struct decoder **decoder, struct decode_rules *rules, const json_t *spec, const char *what,
                                  struct eaglet_error *err) MUST_USE;
void decoder_free(struct decoder *decoder);
struct decode_job {
  struct regex_scratch *scratch;
  struct text_view token;
  bool first;   /* at the start of a text */
  bool is_byte; /* result: it is one byte of a byte run */
};
/* Appends what the token's text decodes to. */
enum eaglet_status decoder_apply(const struct decoder *decoder, struct decode_job *job, struct buffer *out, struct eaglet_error *err) MUST_USE;

/* ---- the model: shared by the kinds json, sentencepiece and files ---- */

struct json_merge {
  uint32_t left, right, rank, id;
};
struct json_model {
  /* While reading: the vocabulary as text, and its merges. Dropped by json_model_finish. */
  char *texts;
  uint32_t *text_at; /* [n_keys + 1]; empty: no such token */
  struct bpe_ranks text_ids;
  struct json_merge *merges;
  size_t n_merges, merges_capacity;

  char *keys; /* what a piece must be to be this token: bytes when pieces are bytes, else text; empty: no piece can */
  uint32_t *key_at;
  uint32_t n_keys;
  struct bpe_ranks vocab;
  struct bpe_pairs pairs;
  uint32_t n_tokens;   /* keys from here on are single characters that merge but are no tokens (SentencePiece) */
  bool verbatim_added; /* texts of normalised added tokens are normalised already (SentencePiece) */
  bool bytes, ignore_merges, byte_fallback, fuse_unk, has_unk;
  uint32_t unk;            /* BPE_NONE: named but not in the vocabulary */
  uint32_t byte_ids[256];  /* the <0xHH> tokens; when pieces are bytes, the symbol of each byte; BPE_NONE when absent */
  uint32_t ascii_ids[128]; /* the symbol of each ASCII character of a text */
  bool byte_ids_complete;
  bool cut_marks; /* no token holds another character followed by a space mark: text may be cut before such marks */
  _Atomic uint8_t *whole; /* per id: does its text encode to it alone? 0 not known yet, 1 yes, 2 no. A memo: any thread may fill it */
  struct normalizer *normalizer;
  struct splitter *splitter;
  struct decoder *decoder;
  json_t *document;       /* without the large parts; added texts borrow from here */
};
#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */

/* Reads normalizer, pre_tokenizer, decoder and the small fields of model from the document, which the model takes over. */
enum eaglet_status json_model_configure(struct tokenizer *tokenizer, json_t *document, const char *what, struct eaglet_error *err) MUST_USE;
/* Then the vocabulary; then merges, in order of rank. */
enum eaglet_status json_model_set_vocab(struct tokenizer *tokenizer, const struct json_vocab *vocab, const char *what, struct eaglet_error *err) MUST_USE;
enum eaglet_status json_model_add_merge(struct json_model *model, const char *joined, size_t middle, size_t length, struct eaglet_error *err) MUST_USE;
uint32_t json_model_find(const struct json_model *model, const char *text, size_t length); /* id of a token's text; BPE_NONE */
/* Then added tokens (added_append), tokenizer_config.json's among them: */
enum eaglet_status json_model_add_configured(struct tokenizer *tokenizer, struct eaglet_error *err) MUST_USE;
/* Last: builds what encoding and decoding need. */
enum eaglet_status json_model_finish(struct tokenizer *tokenizer, const char *what, struct eaglet_error *err) MUST_USE;
/* add_bos_token and add_eos_token of tokenizer_config.json over what the vocabulary's file says. */
enum eaglet_status json_model_surround(struct tokenizer *tokenizer, struct eaglet_error *err) MUST_USE;

enum eaglet_status json_encode(const struct tokenizer *tokenizer, void **scratch, const struct text_span *span,
                               const struct encode_request *request, const struct bpe_sink *sink, struct eaglet_error *err) MUST_USE;
void json_scratch_free(void *scratch);
void json_close(struct tokenizer *tokenizer);
void json_decode_first(const struct tokenizer *tokenizer, int32_t id, struct buffer *out);

#endif
