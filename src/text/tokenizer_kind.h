/* tokenizer_kind.h - what a kind of tokenizer supplies, and the shared object behind struct tokenizer. Private to src/text.
 *
 * tokenizer.c owns special tokens, protected spans, token bytes and dispatch; a kind owns its vocabulary file, its splitting
 * and its merges. A new kind (tokenizer.json, SentencePiece) is one more file and one more row of the table in tokenizer.c.
 */
#ifndef EAGLET_TEXT_TOKENIZER_KIND_H
#define EAGLET_TEXT_TOKENIZER_KIND_H

#include "base/json.h"
#include "text/bpe.h"
#include "text/tokenizer.h"

struct tokenizer_kind {
  const char *name;
  const char *file; /* the kind is chosen when this file exists in the directory */
  /* Reads the vocabulary: sets n_base, n_ids (at least), blob, at, hash and model. what: the directory. */
  enum eaglet_status (*open)(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err);
  /* Appends the ends of the stretches of text that are encoded each for itself, special tokens included; the last is length. */
  void (*cut)(const char *text, size_t length, struct offset_list *ends);
  /* Appends ids of text[begin..end), which holds no special token. text is valid UTF-8. *scratch starts NULL: the kind's
   * memory for one encode call, given back with scratch_free. */
  enum eaglet_status (*encode)(const struct tokenizer *tokenizer, void **scratch, const struct text_span *span,
                               const char *text, const struct bpe_sink *sink, struct eaglet_error *err);
  void (*scratch_free)(void *scratch);
  void (*close)(struct tokenizer *tokenizer);
};

struct added_token {
  const char *text; /* borrowed from texts */
  uint32_t length;
  int32_t id;
  bool special;
};

struct special_node { /* trie over the bytes of special tokens: first child, next sibling */
  uint32_t child, sibling;
  int32_t token; /* index in added, -1 */
  uint8_t byte;
};

struct tokenizer {
  const struct tokenizer_kind *kind;
  void *model; /* the kind's */
  uint32_t n_base; /* ids 0 .. n_base-1 come from the vocabulary file */
  uint32_t n_ids;
  char *blob;   /* bytes of all base ids */
  uint32_t *at; /* [n_base + 1] */
  uint64_t hash;

  struct added_token *added; /* sorted by id */
  int32_t *added_ids;        /* the same ids */
  size_t n_added, added_capacity;
  int32_t *added_index; /* [n_ids - n_base] index in added, -1 */
  struct special_node *nodes; /* [0] is the root */
  size_t n_nodes, nodes_capacity;
  uint32_t first[256]; /* node of a first byte, 0 = none */

  json_t *config; /* tokenizer_config.json; added texts borrow from here or from reserved */
  char *reserved; /* text of unnamed reserved ids */
};

extern const struct tokenizer_kind tokenizer_kind_tiktoken;

/* Index in tokenizer->added of the longest added token that text[0..length) starts with, -1 when none. */
int32_t tokenizer_match(const struct tokenizer *tokenizer, const char *text, size_t length);

#endif
