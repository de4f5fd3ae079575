/* constraint_vocabulary.h - the tokens of a model as byte strings in a trie, for masks.
 *
 * Immutable, may be shared between threads; made once per tokenizer. Ordinary tokens only: added tokens (special or not, control
 * tokens among them), tokens without bytes, ids that are holes and stop tokens are part of no text. A node stands before its
 * children, in the order of their bytes, so that one pass over the array with skips visits what a grammar allows.
 */
#ifndef EAGLET_TEXT_CONSTRAINT_VOCABULARY_H
#define EAGLET_TEXT_CONSTRAINT_VOCABULARY_H

#include "text/tokenizer.h"

#define VOCABULARY_TOKEN_BYTES_MAX 1024 /* longer tokens are left out */

struct constraint_vocabulary;

/* n_vocab: width of the logits, may be more than the tokenizer's ids (padding is never allowed). stops: ids that end a text.
 * Refuses a tokenizer that writes between tokens what no token holds. */
enum eaglet_status constraint_vocabulary_create(struct constraint_vocabulary **vocabulary, const struct tokenizer *tokenizer,
                                                int32_t n_vocab, const struct token_list *stops, struct eaglet_error *err) MUST_USE;
/* From plain strings: tokens[i] is id i, NULL or empty for what is no text. They are copied. */
struct vocabulary_token { const char *bytes; size_t length; };
enum eaglet_status constraint_vocabulary_from_tokens(struct constraint_vocabulary **vocabulary, const struct vocabulary_token *tokens,
                                                     int32_t n_vocab, const struct token_list *stops, struct eaglet_error *err) MUST_USE;
void constraint_vocabulary_free(struct constraint_vocabulary *vocabulary);

int32_t constraint_vocabulary_n(const struct constraint_vocabulary *vocabulary); /* n_vocab */
size_t constraint_vocabulary_words(const struct constraint_vocabulary *vocabulary); /* 32-bit words of a mask */
bool constraint_vocabulary_is_stop(const struct constraint_vocabulary *vocabulary, int32_t id);
/* NULL for what is no text. */
const char *constraint_vocabulary_bytes(const struct constraint_vocabulary *vocabulary, int32_t id, size_t *length);

#endif
