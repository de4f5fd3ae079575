/* tokenizer_split.c - see tokenizer_split.h. One matcher with a table of what the families differ in; all of them share the order
 * contraction, word, digits, punctuation, line ends, white space.
 *
 * Wherever a run ends at, or a decision looks at, a byte above 7F, the answer is 0: the caller asks the engine.
 */
#include "text/tokenizer_split.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { UPPER = 1, LOWER = 2, DIGIT = 4, SPACE = 8, LINE = 16, OTHER = 32, WIDE = 64 };
#define LETTER (UPPER | LOWER)

struct family {
  bool contraction_first, contraction_last; /* an alternative of its own, or the end of a word */
  bool contraction_any_case;
  bool space_prefix; /* only a space may stand before a word, and before digits too; else any one character may stand before a word */
  bool cased;        /* a word is uppercase then lowercase */
  int digits_max;    /* 0: any number */
  const char *tail;  /* what may follow punctuation */
  bool line_ends;    /* white space up to a line end is a match of its own */
};

static const struct family families[SPLIT_N_FAMILIES] = {
    [SPLIT_GPT2] = {.contraction_first = true, .space_prefix = true, .tail = ""},
    [SPLIT_LLAMA3] = {.contraction_first = true, .contraction_any_case = true, .digits_max = 3, .tail = "\r\n", .line_ends = true},
    [SPLIT_QWEN2] = {.contraction_first = true, .contraction_any_case = true, .digits_max = 1, .tail = "\r\n", .line_ends = true},
    [SPLIT_O200K] = {.contraction_last = true, .contraction_any_case = true, .cased = true, .digits_max = 3, .tail = "\r\n/", .line_ends = true},
    [SPLIT_TEKKEN] = {.cased = true, .digits_max = 1, .tail = "\r\n/", .line_ends = true},
    [SPLIT_KIMI] = {.contraction_last = true, .contraction_any_case = true, .cased = true, .digits_max = 3, .tail = "\r\n", .line_ends = true},
};

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WHITE "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPERS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWERS "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define PUNCTUATION "| ?[^\\s\\p{L}\\p{N}]+"

static const struct {
  enum split_family family;
  const char *pattern;
} patterns[] = {
    {SPLIT_GPT2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+" PUNCTUATION "|\\s+(?!\\S)|\\s+"},
    {SPLIT_GPT2, "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+" PUNCTUATION "|\\s+(?!\\S)|\\s+"},
    {SPLIT_LLAMA3, CONTRACTIONS "|" PREFIX "\\p{L}+|\\p{N}{1,3}" PUNCTUATION "[\\r\\n]*" WHITE},
    {SPLIT_LLAMA3, "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|" PREFIX "\\p{L}+|\\p{N}{1,3}" PUNCTUATION "[\\r\\n]*" WHITE},
    {SPLIT_QWEN2, CONTRACTIONS "|" PREFIX "\\p{L}+|\\p{N}" PUNCTUATION "[\\r\\n]*" WHITE},
    /* Marks beside letters: no difference in ASCII. */
    {SPLIT_QWEN2, CONTRACTIONS "|" PREFIX "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" WHITE},
    {SPLIT_O200K, PREFIX UPPERS "*" LOWERS "+" CONTRACTIONS "?|" PREFIX UPPERS "+" LOWERS "*" CONTRACTIONS "?|\\p{N}{1,3}" PUNCTUATION
                         "[\\r\\n/]*" WHITE},
    {SPLIT_KIMI, PREFIX UPPERS "*" LOWERS "+" CONTRACTIONS "?|" PREFIX UPPERS "+" LOWERS "*" CONTRACTIONS "?|\\p{N}{1,3}" PUNCTUATION
                        "[\\r\\n]*" WHITE},
    {SPLIT_TEKKEN, PREFIX UPPERS "*" LOWERS "+|" PREFIX UPPERS "+" LOWERS "*|\\p{N}" PUNCTUATION "[\\r\\n/]*" WHITE},
};
#define N_PATTERNS (sizeof patterns / sizeof *patterns)

enum split_family split_family_of(const char *pattern, size_t length) {
  for (size_t i = 0; i < N_PATTERNS; i++)
    if (strlen(patterns[i].pattern) == length && memcmp(patterns[i].pattern, pattern, length) == 0) return patterns[i].family;
  return SPLIT_OTHER;
}

const char *split_pattern_of(enum split_family family, size_t index) {
  for (size_t i = 0; i < N_PATTERNS; i++)
    if (patterns[i].family == family && index-- == 0) return patterns[i].pattern;
  return NULL;
}

#define U UPPER
#define L LOWER
#define D DIGIT
#define S SPACE
#define N (SPACE | LINE)
#define O OTHER
static const uint8_t classes[256] = {
    O, O, O, O, O, O, O, O, O, S, N, S, S, N, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, D, D, D, D, D, D, D, D, D, D, O, O, O, O, O, O,
    O, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
    [128 ... 255] = WIDE};
#undef U
#undef L
#undef D
#undef S
#undef N
#undef O

static inline unsigned class_at(const char *text, size_t length, size_t at) { return at < length ? classes[(uint8_t)text[at]] : 0; }

static inline size_t run_of(unsigned mask, const char *text, size_t length, size_t at) {
  while (at < length && classes[(uint8_t)text[at]] & mask) at++;
  return at;
}

/* Bytes of a contraction at text[at) ('), 0: none, SIZE_MAX: a wide character may make one (U+017F folds to s). */
static size_t contraction(const struct family *f, const char *text, size_t length, size_t at) {
  if (at + 1 >= length) return 0;
  if ((uint8_t)text[at + 1] & 0x80) return f->contraction_any_case ? SIZE_MAX : 0;
  char fold = f->contraction_any_case ? 0x20 : 0;
  char a = (char)(text[at + 1] | fold), b = (char)(at + 2 < length ? text[at + 2] | fold : 0);
  if (!(class_at(text, length, at + 1) & LETTER)) return 0;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* A word from its first letter on. */
static size_t word_end(const struct family *f, const char *text, size_t length, size_t at) {
  size_t end = f->cased ? run_of(UPPER, text, length, at) : run_of(LETTER, text, length, at);
  if (class_at(text, length, end) & WIDE) return 0;
  if (f->cased) end = run_of(LOWER, text, length, end);
  if (class_at(text, length, end) & WIDE) return 0;
  if (f->contraction_last && end < length && text[end] == '\'') {
    size_t n = contraction(f, text, length, end);
    return n == SIZE_MAX ? 0 : end + n;
  }
  return end;
}

static size_t digits_end(const struct family *f, const char *text, size_t length, size_t at) {
  size_t limit = f->digits_max && length - at > (size_t)f->digits_max ? at + (size_t)f->digits_max : length;
  size_t end = run_of(DIGIT, text, limit, at);
  return end < limit && class_at(text, length, end) & WIDE ? 0 : end;
}

static size_t punctuation_end(const struct family *f, const char *text, size_t length, size_t at) {
  size_t end = run_of(OTHER, text, length, at);
  if (class_at(text, length, end) & WIDE) return 0;
  while (*f->tail && end < length && (text[end] == f->tail[0] || text[end] == f->tail[1] || (f->tail[2] && text[end] == f->tail[2]))) end++;
  return end;
}

static size_t space_end(const struct family *f, const char *text, size_t length, size_t at) {
  size_t end = run_of(SPACE, text, length, at), line = end;
  if (class_at(text, length, end) & WIDE) return 0;
  if (f->line_ends) { /* up to the last line end of the run */
    while (line > at && !(classes[(uint8_t)text[line - 1]] & LINE)) line--;
    if (line > at) return line;
  }
  return end == length || end == at + 1 ? end : end - 1; /* the last space belongs to what follows */
}

size_t split_scan(enum split_family family, const char *text, size_t length, size_t at) {
  const struct family *f = &families[family];
  unsigned here = classes[(uint8_t)text[at]];
  if (here & LETTER) return word_end(f, text, length, at);
  if (here & DIGIT) return digits_end(f, text, length, at);
  if (here & WIDE) return 0;
  if (text[at] == '\'' && f->contraction_first) {
    size_t n = contraction(f, text, length, at);
    if (n) return n == SIZE_MAX ? 0 : at + n;
  }
  unsigned next = class_at(text, length, at + 1);
  bool is_space = text[at] == ' ';
  if (next & WIDE && !(here & LINE)) return 0;
  if (next & LETTER && (f->space_prefix ? is_space : !(here & LINE))) return word_end(f, text, length, at + 1);
  if (next & DIGIT && f->space_prefix && is_space) return digits_end(f, text, length, at + 1);
  if (here & OTHER) return punctuation_end(f, text, length, at);
  if (is_space && next & OTHER) return punctuation_end(f, text, length, at + 1);
  return space_end(f, text, length, at);
}
