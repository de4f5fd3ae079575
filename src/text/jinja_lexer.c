/* jinja_lexer.c - template source to tokens: text between tags after whitespace control (trim_blocks, lstrip_blocks, "-", "+"),
 * and the tokens inside tags. Follows Jinja's own lexer where its regular expressions decide (comments, raw blocks, line starts).
 * Does not know statements.
 */
#include "text/jinja_internal.h"

#include "base/memory.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lexer {
  struct jinja_tokens *tokens;
  struct jinja_pool *pool;
  const char *source; /* newlines normalised */
  size_t length, at;
  uint32_t line;
  bool line_starting; /* the text that follows starts at the start of a line */
  struct eaglet_error *err;
};

static struct jinja_token *push(struct lexer *lexer, enum jinja_token_kind kind, const char *text, size_t length) {
  struct jinja_tokens *tokens = lexer->tokens;
  MEMORY_GROW(tokens->items, tokens->capacity, tokens->n + 1);
  struct jinja_token *token = &tokens->items[tokens->n++];
  *token = (struct jinja_token){.kind = kind, .line = lexer->line, .text = text, .length = length};
  return token;
}

static void advance(struct lexer *lexer, size_t to) {
  for (; lexer->at < to; lexer->at++) lexer->line += lexer->source[lexer->at] == '\n';
}

static bool starts(const struct lexer *lexer, size_t at, const char *text) {
  size_t n = strlen(text);
  return at + n <= lexer->length && memcmp(lexer->source + at, text, n) == 0;
}

/* Length of the whitespace character at `at` (Python's \s), 0 when it is none. */
static size_t space_at(const char *text, size_t at, size_t length) {
  uint32_t c;
  int n = at < length ? utf8_decode(text + at, length - at, &c) : 0;
  return n > 0 && unicode_is_space(c) ? (size_t)n : 0;
}

static size_t skip_space(const struct lexer *lexer, size_t at) {
  size_t n;
  while ((n = space_at(lexer->source, at, lexer->length))) at += n;
  return at;
}

/* The text before a tag: strips for "-", removes an indented tag's own indentation for lstrip_blocks. */
static void push_text(struct lexer *lexer, size_t begin, size_t end, char sign, bool is_variable) {
  const char *source = lexer->source;
  if (sign == '-') {
    size_t kept = begin;
    for (size_t at = begin; at < end;) {
      size_t space = space_at(source, at, end);
      uint32_t c;
      int n = utf8_decode(source + at, end - at, &c);
      at += n > 0 ? (size_t)n : 1;
      if (!space) kept = at;
    }
    end = kept;
  } else if (sign != '+' && !is_variable) {
    size_t start = end;
    while (start > begin && source[start - 1] != '\n') start--;
    size_t at = start, n;
    while (at < end && (n = space_at(source, at, end))) at += n;
    if (at == end && (start > begin || lexer->line_starting)) end = start;
  }
  if (end > begin) push(lexer, TOKEN_TEXT, source + begin, end - begin);
}

/* Closing of a block-like tag at `at` ("+%}", "-%}" with following whitespace, "%}" with one newline): its end, 0 when not. */
static size_t closing(const struct lexer *lexer, size_t at, const char *delimiter) {
  bool minus = starts(lexer, at, "-"), plus = starts(lexer, at, "+");
  size_t after = at + (minus || plus);
  if (!starts(lexer, after, delimiter)) return 0;
  after += 2;
  if (minus) return skip_space(lexer, after);
  return after + (!plus && starts(lexer, after, "\n"));
}

static void finish_tag(struct lexer *lexer, size_t end) {
  lexer->line_starting = lexer->source[end - 1] == '\n';
  advance(lexer, end);
}

/* ---- inside tags ---- */

static const char operators[][3] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(",
                                    ")",  "[",  "]",  "{",  "}",  ".",  ",", ":", "|", ";"};

static enum eaglet_status lex_error(struct lexer *lexer, const char *what) {
  FAIL(lexer->err, EAGLET_E_INPUT, "template line %u: %s", lexer->line, what);
}

static bool is_name_byte(unsigned char c, bool first) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80 || (!first && c >= '0' && c <= '9');
}

static int hex_value(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One escape after a backslash at text[*at]; Python's rules, unknown ones keep the backslash. */
static bool decode_escape(const char *text, size_t length, size_t *at, struct buffer *out) {
  static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
  char c = text[(*at)++];
  if (c == '\n') return true;
  for (size_t i = 0; i + 1 < sizeof plain; i += 2)
    if (plain[i] == c) {
      buffer_append_char(out, plain[i + 1]);
      return true;
    }
  int n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  uint32_t codepoint = 0;
  if (n_digits) {
    for (int i = 0; i < n_digits; i++) {
      int digit = *at < length ? hex_value(text[*at]) : -1;
      if (digit < 0) return false;
      codepoint = codepoint << 4 | (uint32_t)digit;
      (*at)++;
    }
  } else if (c >= '0' && c <= '7') {
    codepoint = (uint32_t)(c - '0');
    for (int i = 0; i < 2 && *at < length && text[*at] >= '0' && text[*at] <= '7'; i++)
      codepoint = codepoint * 8 + (uint32_t)(text[(*at)++] - '0');
  } else {
    buffer_append_char(out, '\\');
    buffer_append_char(out, c);
    return true;
  }
  if (codepoint > 0x10ffff || (codepoint >= 0xd800 && codepoint < 0xe000)) return false;
  buffer_append_codepoint(out, codepoint);
  return true;
}

static enum eaglet_status lex_string(struct lexer *lexer) {
  char quote = lexer->source[lexer->at];
  size_t at = lexer->at + 1, end = at;
  while (end < lexer->length && lexer->source[end] != quote) end += lexer->source[end] == '\\' ? 2 : 1;
  if (end >= lexer->length) return lex_error(lexer, "string is not closed");
  struct buffer text;
  buffer_init(&text);
  enum eaglet_status status = EAGLET_OK;
  while (at < end && status == EAGLET_OK) {
    if (lexer->source[at] != '\\') {
      buffer_append_char(&text, lexer->source[at++]);
      continue;
    }
    at++;
    if (!decode_escape(lexer->source, end, &at, &text)) status = lex_error(lexer, "bad escape in a string");
  }
  if (status == EAGLET_OK)
    push(lexer, TOKEN_STRING, pool_copy(lexer->pool, text.data ? text.data : "", text.length), text.length);
  buffer_clear(&text);
  advance(lexer, end + 1);
  return status;
}

/* Integers (decimal, 0x, 0o, 0b, with underscores) and floats. */
static enum eaglet_status lex_number(struct lexer *lexer) {
  const char *source = lexer->source;
  size_t at = lexer->at, n = 0;
  char digits[64];
  int base = 10;
  bool is_float = false, after_dot = at > 0 && source[at - 1] == '.'; /* x.0.1 is two subscripts */
  if (source[at] == '0' && at + 1 < lexer->length) {
    char c = (char)(source[at + 1] | 0x20);
    base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
    if (base != 10) at += 2;
  }
  for (; at < lexer->length && n + 1 < sizeof digits; at++) {
    char c = source[at], next = at + 1 < lexer->length ? source[at + 1] : 0;
    bool exponent = base == 10 && !after_dot && (c == 'e' || c == 'E') &&
                    ((next >= '0' && next <= '9') ||
                     ((next == '+' || next == '-') && at + 2 < lexer->length && source[at + 2] >= '0' && source[at + 2] <= '9'));
    if (c == '_' && n) continue;
    if (exponent) {
      is_float = true;
      digits[n++] = c;
      if (next == '+' || next == '-') digits[n++] = source[++at];
    } else if (base == 10 && !after_dot && c == '.' && !is_float && next >= '0' && next <= '9') {
      is_float = true;
      digits[n++] = c;
    } else if (hex_value(c) >= 0 && hex_value(c) < base)
      digits[n++] = c;
    else
      break;
  }
  digits[n] = 0;
  errno = 0;
  struct jinja_token *token = push(lexer, is_float ? TOKEN_FLOAT : TOKEN_INTEGER, source + lexer->at, at - lexer->at);
  if (is_float)
    token->number = strtod(digits, NULL);
  else
    token->integer = strtoll(digits, NULL, base);
  if (n == 0 || (!is_float && errno == ERANGE) || n + 1 >= sizeof digits) return lex_error(lexer, "number out of range");
  advance(lexer, at);
  return EAGLET_OK;
}

static enum eaglet_status lex_operator(struct lexer *lexer, char *nesting, int *depth) {
  const char *found = NULL;
  for (size_t i = 0; i < sizeof operators / sizeof *operators && !found; i++)
    if (starts(lexer, lexer->at, operators[i])) found = operators[i];
  if (!found) return lex_error(lexer, "unexpected character in a tag");
  if (strchr("([{", *found)) {
    if (*depth >= 200) return lex_error(lexer, "brackets are nested too deeply");
    nesting[(*depth)++] = *found == '(' ? ')' : *found == '[' ? ']' : '}';
  } else if (strchr(")]}", *found)) {
    if (*depth == 0 || nesting[*depth - 1] != *found) return lex_error(lexer, "unbalanced bracket");
    (*depth)--;
  }
  push(lexer, TOKEN_OPERATOR, found, strlen(found));
  advance(lexer, lexer->at + strlen(found));
  return EAGLET_OK;
}

/* Tokens up to and with the end of the tag. Ends are only looked for outside brackets, as {{ {"a": {}} }} needs. */
static enum eaglet_status lex_tag(struct lexer *lexer, bool is_variable) {
  char nesting[200];
  int depth = 0;
  uint32_t begin_line = lexer->line;
  for (;;) {
    advance(lexer, skip_space(lexer, lexer->at));
    if (lexer->at >= lexer->length) {
      lexer->line = begin_line;
      return lex_error(lexer, is_variable ? "{{ is not closed" : "{% is not closed");
    }
    size_t end = 0;
    if (depth == 0 && is_variable) {
      if (starts(lexer, lexer->at, "-}}")) end = skip_space(lexer, lexer->at + 3);
      else if (starts(lexer, lexer->at, "}}")) end = lexer->at + 2;
    } else if (depth == 0)
      end = closing(lexer, lexer->at, "%}");
    if (end) {
      push(lexer, is_variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, "", 0);
      finish_tag(lexer, end);
      return EAGLET_OK;
    }
    unsigned char c = (unsigned char)lexer->source[lexer->at];
    if (c == '\'' || c == '"') TRY(lex_string(lexer));
    else if (c >= '0' && c <= '9') TRY(lex_number(lexer));
    else if (is_name_byte(c, true)) {
      size_t at = lexer->at;
      while (at < lexer->length && is_name_byte((unsigned char)lexer->source[at], false)) at++;
      push(lexer, TOKEN_NAME, lexer->source + lexer->at, at - lexer->at);
      advance(lexer, at);
    } else
      TRY(lex_operator(lexer, nesting, &depth));
  }
}

/* ---- between tags ---- */

/* {% raw %} at the current place: its body is text. Returns false when the tag is no raw tag. */
static bool lex_raw(struct lexer *lexer, size_t tag, enum eaglet_status *status) {
  size_t at = tag + 2;
  at += starts(lexer, at, "-") || starts(lexer, at, "+");
  at = skip_space(lexer, at);
  if (!starts(lexer, at, "raw")) return false;
  at = skip_space(lexer, at + 3);
  size_t begin = starts(lexer, at, "-%}") ? skip_space(lexer, at + 3) : starts(lexer, at, "%}") ? at + 2 : 0;
  if (!begin) return false;
  lexer->line_starting = lexer->source[begin - 1] == '\n';
  for (size_t end = begin; end < lexer->length; end++) {
    if (!starts(lexer, end, "{%")) continue;
    char sign = end + 2 < lexer->length ? lexer->source[end + 2] : 0;
    size_t name = skip_space(lexer, end + 2 + (sign == '-' || sign == '+'));
    if (!starts(lexer, name, "endraw")) continue;
    size_t close = closing(lexer, skip_space(lexer, name + 6), "%}");
    if (!close) continue;
    advance(lexer, begin);
    push_text(lexer, begin, end, sign, false);
    finish_tag(lexer, close);
    return true;
  }
  *status = lex_error(lexer, "{% raw %} is not closed");
  return true;
}

static enum eaglet_status lex_comment(struct lexer *lexer, size_t tag) {
  for (size_t at = tag + 2; at < lexer->length; at++) {
    if (lexer->source[at] != '#' && lexer->source[at] != '-' && lexer->source[at] != '+') continue;
    size_t end = closing(lexer, at, "#}");
    if (!end) continue;
    finish_tag(lexer, end);
    return EAGLET_OK;
  }
  return lex_error(lexer, "{# is not closed");
}

static enum eaglet_status lex_all(struct lexer *lexer) {
  while (lexer->at < lexer->length) {
    size_t tag = lexer->at;
    while (tag < lexer->length && !(lexer->source[tag] == '{' && tag + 1 < lexer->length &&
                                    strchr("{%#", lexer->source[tag + 1]) && lexer->source[tag + 1]))
      tag++;
    if (tag == lexer->length) {
      push(lexer, TOKEN_TEXT, lexer->source + lexer->at, tag - lexer->at);
      break;
    }
    char what = lexer->source[tag + 1], sign = tag + 2 < lexer->length ? lexer->source[tag + 2] : 0;
    push_text(lexer, lexer->at, tag, sign, what == '{');
    advance(lexer, tag);
    enum eaglet_status status = EAGLET_OK;
    if (what == '#') {
      TRY(lex_comment(lexer, tag));
      continue;
    }
    if (what == '%' && lex_raw(lexer, tag, &status)) {
      TRY(status);
      continue;
    }
    push(lexer, what == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, "", 0);
    advance(lexer, tag + 2 + (sign == '-' || sign == '+'));
    TRY(lex_tag(lexer, what == '{'));
  }
  push(lexer, TOKEN_END, "", 0);
  return EAGLET_OK;
}

enum eaglet_status jinja_lex(struct jinja_tokens *tokens, struct jinja_pool *pool, const char *source, size_t length,
                             struct eaglet_error *err) {
  size_t valid = utf8_valid(source, length);
  if (valid < length) FAIL(err, EAGLET_E_INPUT, "template: invalid UTF-8 at byte %zu", valid);
  char *text = pool_take(pool, length + 1);
  size_t n = 0;
  for (size_t i = 0; i < length; i++) { /* \r\n and \r become \n */
    if (source[i] == '\r' && i + 1 < length && source[i + 1] == '\n') continue;
    text[n++] = source[i] == '\r' ? '\n' : source[i];
  }
  if (n && text[n - 1] == '\n') n--; /* keep_trailing_newline is off */
  struct lexer lexer = {.tokens = tokens, .pool = pool, .source = text, .length = n, .line = 1, .line_starting = true, .err = err};
  return lex_all(&lexer);
}
