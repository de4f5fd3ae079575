/* tokenizer_split.h - hand-written matching of the split patterns that most vocabularies use, on ASCII text.
 *
 * The regular-expression engine defines the split; this only answers faster where no character outside of ASCII could change the
 * answer, and says so where one could. Who may use it: the kinds of tokenizer.
 */
#ifndef EAGLET_TEXT_TOKENIZER_SPLIT_H
#define EAGLET_TEXT_TOKENIZER_SPLIT_H

#include <stddef.h>

enum split_family { SPLIT_OTHER, SPLIT_GPT2, SPLIT_LLAMA3, SPLIT_QWEN2, SPLIT_O200K, SPLIT_TEKKEN, SPLIT_KIMI, SPLIT_N_FAMILIES };
enum split_family split_family_of(const char *pattern, size_t length); /* by the pattern's text; OTHER when it is not known */
const char *split_pattern_of(enum split_family family, size_t index);  /* index-th spelling that is known, NULL past the last */

/* End of the family's match that begins at text[at] (at < length), or 0 when a character that is not ASCII may decide it. */
size_t split_scan(enum split_family family, const char *text, size_t length, size_t at);

#endif
