/* tokenizer_kind.h - what a kind of tokenizer supplies, and the shared object behind struct tokenizer. Private to src/text.
 *
 * tokenizer.c owns dispatch, the matching of added tokens on raw text and the questions about ids; tokenizer_added.c owns the
 * added tokens; a kind owns its vocabulary file, its splitting and its merges. A new kind is one more file and one more row of
 * the table in tokenizer.c.
 */
#ifndef EAGLET_TEXT_TOKENIZER_KIND_H
#define EAGLET_TEXT_TOKENIZER_KIND_H

#include "base/json.h"
#include "text/bpe.h"
#include "text/tokenizer.h"

#define TOKEN_ID_MAX (1 << 26) /* far above any vocabulary: bounds the memory that a hostile id could ask for */

/* One text to encode and where the guarded tokens in it may be recognised. */
struct encode_request {
  const char *text;
  size_t length;
  bool special;                       /* guarded tokens are recognised outside of protection */
  const struct text_span *protection; /* sorted, disjoint */
  size_t n_protection;
};
/* End of the stretch from `at` on in which guarded tokens may be recognised; `at` itself when there is none. */
size_t encode_request_guard_end(const struct encode_request *request, size_t at);

struct tokenizer_kind {
  const char *name;
  const char *files[2]; /* the kind is chosen when these exist in the directory; [1] may be NULL */
  /* Reads the vocabulary. tokenizer->config is already read (NULL when there is no tokenizer_config.json). Sets n_ids, blob, at
   * and hash, appends the added tokens and calls added_finish. */
  enum eaglet_status (*open)(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err);
  /* Appends the ends of the stretches of text that are encoded each for itself, added tokens included; the last is length.
   * NULL: one stretch. */
  void (*cut)(const char *text, size_t length, struct offset_list *ends);
  /* Appends ids of request->text[begin..end), in which no token of the raw set was found. The text is valid UTF-8. *scratch starts
   * NULL: the kind's memory for one encode call, given back with scratch_free. */
  enum eaglet_status (*encode)(const struct tokenizer *tokenizer, void **scratch, const struct text_span *span,
                               const struct encode_request *request, const struct bpe_sink *sink, struct eaglet_error *err);
  void (*scratch_free)(void *scratch);
  void (*close)(struct tokenizer *tokenizer);
  /* Appends what the token decodes to at the start of a text, where that is not its bytes. NULL: it always is. */
  void (*decode_first)(const struct tokenizer *tokenizer, int32_t id, struct buffer *out);
};

struct added_token {
  const char *text; /* borrowed from the kind or from config */
  uint32_t length;
  int32_t id;
  bool special;     /* left out when special tokens are skipped */
  bool guarded;     /* recognised only where the caller allows special tokens */
  bool normalized;  /* matched on normalised text */
  bool lstrip, rstrip, single_word;
};

struct added_node { /* trie over bytes: first child, next sibling */
  uint32_t child, sibling;
  int32_t token; /* index in added, -1 */
  uint8_t byte;
};
struct added_set {
  struct added_node *nodes; /* [0] is the root */
  size_t n_nodes, capacity, n_tokens;
  size_t length_max;   /* of its tokens */
  uint32_t first[256]; /* node of a first byte, 0 = none */
};

/* How the bytes of tokens become text; all false: concatenated, invalid UTF-8 replaced. */
struct decode_rules {
  bool byte_runs;     /* a run of byte tokens is text only when all of it is valid UTF-8, else one U+FFFD a byte */
  bool first_differs; /* the first token goes through the kind's decode_first */
  bool separate;      /* a space between tokens */
  int strip_start, strip_stop; /* up to so many strip_text at the start and at the end of the whole text are dropped */
  char strip_text[8];
};

enum { TOKEN_KNOWN = 1, TOKEN_BYTE = 2 }; /* token_flags */

struct tokenizer {
  const struct tokenizer_kind *kind;
  void *model; /* the kind's */
  uint32_t n_base; /* ids 0 .. n_base-1 have their bytes in blob; above are added tokens, their text being their bytes */
  uint32_t n_ids;
  char *blob;           /* what each id decodes to */
  uint32_t *at;         /* [n_base + 1] */
  uint8_t *token_flags; /* [n_base], NULL: all are known and none is a byte token */
  struct decode_rules decode;
  bool rewrites; /* the bytes of a text's tokens need not be the text: it is normalised, or characters can be unknown */
  uint64_t hash;
  struct token_list before, after; /* ids that stand around a raw text (BOS, EOS) */

  struct added_token *added; /* sorted by id after added_finish */
  int32_t *added_ids;        /* the same ids */
  size_t n_added, added_capacity;
  int32_t *added_index; /* [n_ids] index in added, -1 */
  struct added_set raw, normalized; /* by where they are matched; a kind that normalises fills the second */
  struct added_set guarded;         /* all guarded tokens by their text */

  json_t *config;      /* tokenizer_config.json, NULL; added texts may borrow from here */
  json_t *names;       /* bos_token ... where config has none: from special_tokens_map.json or the kind; NULL */
  char *config_path;   /* for messages */
};

extern const struct tokenizer_kind tokenizer_kind_json, tokenizer_kind_tiktoken, tokenizer_kind_sentencepiece, tokenizer_kind_files;

/* ---- tokenizer_added.c ---- */

void added_append(struct tokenizer *tokenizer, const struct added_token *token);
/* Reads one {"content", "special", ...} of added_tokens_decoder or added_tokens; texts borrow from value. */
enum eaglet_status added_parse(struct added_token *token, const json_t *value, const char *what, struct eaglet_error *err) MUST_USE;
enum eaglet_status added_parse_id(int32_t *id, const char *text, const char *what, struct eaglet_error *err) MUST_USE;
/* Sorts, indexes, refuses an id or a text that stands twice; builds the raw and the guarded set. n_ids is final before. */
enum eaglet_status added_finish(struct tokenizer *tokenizer, const char *what, struct eaglet_error *err) MUST_USE;
void added_release(struct tokenizer *tokenizer);

/* Adds text for the added token of that index; false when the text is there already. */
bool added_set_insert(struct added_set *set, const char *text, size_t length, int32_t index);
void added_set_release(struct added_set *set);
/* Index in added of the longest token of the set that text[0..length) starts with, guarded ones within text[0..n_guarded)
 * only; -1 when none. *matched: its length in the text. */
int32_t added_set_match(const struct added_set *set, const struct added_token *added, const char *text, size_t length,
                        size_t n_guarded, size_t *matched);

/* Walks the added tokens of one text, leftmost-longest, with their flags. */
struct added_scan {
  const struct tokenizer *tokenizer;
  const struct added_set *set;
  const char *text;
  size_t begin, end; /* stretch of text that is searched */
  size_t (*n_guarded)(const void *context, size_t at); /* bytes from at on in which guarded tokens may be recognised */
  const void *context;
  size_t at, ordinary; /* start both at begin; ordinary: where text not yet handed out begins */
};
struct added_match { /* text[ordinary..begin) is ordinary, then stands the token up to end */
  size_t ordinary, begin, end;
  int32_t index;
};
bool added_scan_next(struct added_scan *scan, struct added_match *match);

bool text_is_white_space(uint32_t codepoint); /* Unicode White_Space */
bool text_is_word(uint32_t codepoint);        /* \w of Unicode regular expressions */

#endif
