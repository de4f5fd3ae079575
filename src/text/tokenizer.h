/* tokenizer.h - text <-> token ids of one checkpoint directory; immutable after open, usable from several threads.
 *
 * Kinds share one interface, chosen by the files that exist, in this order: tokenizer.json (BPE), tiktoken.model (ranks; Kimi),
 * tokenizer.model (SentencePiece BPE), vocab.json with merges.txt. Normalisation, split pattern, special tokens and merge rule
 * are data of the kind; no remote code is ever read, and what is not understood is refused by name. Encoding is O(n log n).
 */
#ifndef EAGLET_TEXT_TOKENIZER_H
#define EAGLET_TEXT_TOKENIZER_H

#include "base/buffer.h"

struct tokenizer;

enum eaglet_status tokenizer_open(struct tokenizer **tokenizer, const char *directory, struct eaglet_error *err) MUST_USE;
void tokenizer_close(struct tokenizer *tokenizer);

struct token_list { /* growing list of ids; release with token_list_clear */
  int32_t *ids;
  size_t n, capacity;
};
void token_list_append(struct token_list *list, int32_t id);
void token_list_clear(struct token_list *list);

/* Appends the ids of text (valid UTF-8, else EAGLET_E_INPUT with the byte offset). special decides whether special-token text
 * becomes its id or is encoded as ordinary text; with EAGLET_SPECIAL_ADD it becomes its id and the ids that the checkpoint puts
 * around a raw text (BOS, EOS) are added: for raw prompts, never for rendered conversations. Added tokens whose "special" is
 * false are vocabulary and always found (tiktoken.model: they count as special). */
enum eaglet_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                                    enum eaglet_special special, struct token_list *ids, struct eaglet_error *err) MUST_USE;
/* Text with protection: special tokens are recognised outside the protected spans only (a template's structure); text inside is
 * ordinary. Spans are sorted, disjoint byte ranges. Protection does not split the text: pre-tokenisation and merges run across
 * span edges exactly as tokenizer_encode would run them.
 * offsets (may be NULL): receives the byte offset in the text where each appended id begins; freed by the caller with free(). */
struct text_span { size_t begin, end; };
struct protected_text {
  const char *data;
  size_t length;
  const struct text_span *spans;
  size_t n_spans;
};
enum eaglet_status tokenizer_encode_spans(const struct tokenizer *tokenizer, const struct protected_text *text,
                                          struct token_list *ids, size_t **offsets, struct eaglet_error *err) MUST_USE;

/* The special tokens (tokenizer_is_special) that tokenizer_encode_spans would find in text without protection, in order; items are freed
 * by the caller. */
struct special_token { size_t begin, end; int32_t id; };
struct special_list {
  struct special_token *items;
  size_t n, capacity;
};
enum eaglet_status tokenizer_find_special(const struct tokenizer *tokenizer, const char *text, size_t length,
                                          struct special_list *list, struct eaglet_error *err) MUST_USE;

int32_t tokenizer_n_ids(const struct tokenizer *tokenizer);           /* ids are 0 .. n-1 */
/* What a token decodes to, bytes (special tokens: their text; a SentencePiece space is a space). Valid as long as the tokenizer.
 * NULL for an id that is not a token. */
const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *length);
bool tokenizer_keeps_text(const struct tokenizer *tokenizer); /* the bytes of a text's tokens are the text, always */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id); /* by added_tokens_decoder's "special" */
int32_t tokenizer_special_id(const struct tokenizer *tokenizer, const char *text); /* -1 when none */
const int32_t *tokenizer_special_ids(const struct tokenizer *tokenizer, size_t *n); /* all added tokens, sorted */
bool tokenizer_has_special(const struct tokenizer *tokenizer, const char *text, size_t length); /* any special token's text */
/* bos_token, eos_token, pad_token, unk_token of tokenizer_config.json (else special_tokens_map.json, else the SentencePiece
 * model) as strings ("" if none), for templates. */
const char *tokenizer_named(const struct tokenizer *tokenizer, const char *name);
uint64_t tokenizer_hash(const struct tokenizer *tokenizer); /* of content, for manifests and pairing */
const char *tokenizer_kind(const struct tokenizer *tokenizer);

#endif
