/* tokenizer_json_regex.c - split patterns: Oniguruma's language, Ruby's dialect (what Hugging Face's tokenizers compiles them
 * with), translated to PCRE2 and run with its JIT.
 *
 * Differences that the translation removes: \s \w \d \h \b mean Unicode properties; ^ and $ match at every line; X{n,m}+ repeats
 * a repetition and X{n}? makes it optional; {,n} starts at 0; classes nest and intersect ([a&&[^b]]). What it does not know is
 * refused by name rather than passed on with another meaning.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer_json.h"

#include "base/memory.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MATCH_LIMIT 200000000u
#define HEAP_LIMIT_KIB (1024u * 1024)
#define JIT_STACK_MAX (64u * 1024 * 1024) /* reserved address space; touched only by patterns that backtrack deeply */
#define PATTERN_LENGTH_MAX 65536
#define CLASS_DEPTH_MAX 8

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define LATIN_WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" /* to Oniguruma \w alone has these too; in a class it has not */

struct regex {
  pcre2_code *code;
  pcre2_match_context *limits;
};

struct regex_scratch {
  pcre2_match_data *match;
  pcre2_match_context *context;
  pcre2_jit_stack *stack;
};

/* ---- translation ---- */

struct translation {
  const char *pattern, *at, *end;
  const char *what;
  struct buffer out;
  size_t atom; /* where the atom that a quantifier would repeat begins in out; SIZE_MAX: there is none */
  size_t groups[64];
  int n_groups;
};

static enum eaglet_status refuse(const struct translation *t, const char *thing, struct eaglet_error *err) {
  FAIL(err, EAGLET_E_INPUT, "%s: regular expression at byte %zu: %s is not supported", t->what, (size_t)(t->at - t->pattern), thing);
}

/* An escape that names a set of characters; in_class gives what stands inside [ ]. NULL: not such an escape. */
static const char *set_escape(char c, bool in_class) {
  switch (c) {
  case 's': return "\\p{White_Space}";
  case 'S': return "\\P{White_Space}";
  case 'd': return "\\p{Nd}";
  case 'D': return "\\P{Nd}";
  case 'w': return in_class ? WORD : "[" WORD LATIN_WORD "]";
  case 'W': return in_class ? NULL : "[^" WORD LATIN_WORD "]";
  case 'h': return in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
  case 'H': return in_class ? NULL : "[^0-9a-fA-F]";
  default: return NULL;
  }
}

/* Names that the libraries do not share: long names of categories, and bracket classes. */
static const struct {
  const char *theirs, *ours;
} property_names[] = {
    {"Letter", "L"}, {"Lowercase_Letter", "Ll"}, {"Uppercase_Letter", "Lu"}, {"Titlecase_Letter", "Lt"}, {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"}, {"Mark", "M"}, {"Nonspacing_Mark", "Mn"}, {"Spacing_Mark", "Mc"}, {"Enclosing_Mark", "Me"}, {"Number", "N"},
    {"Decimal_Number", "Nd"}, {"Letter_Number", "Nl"}, {"Other_Number", "No"}, {"Punctuation", "P"}, {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"}, {"Open_Punctuation", "Ps"}, {"Close_Punctuation", "Pe"}, {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"}, {"Other_Punctuation", "Po"}, {"Symbol", "S"}, {"Math_Symbol", "Sm"}, {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"}, {"Other_Symbol", "So"}, {"Separator", "Z"}, {"Space_Separator", "Zs"}, {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"}, {"Other", "C"}, {"Control", "Cc"}, {"Format", "Cf"}, {"Private_Use", "Co"}, {"Unassigned", "Cn"},
    {"Alpha", "Alphabetic"}, {"Space", "White_Space"}, {"Digit", "Nd"}, {"Upper", "Uppercase"}, {"Lower", "Lowercase"}, {"Punct", "P"},
    {"Cntrl", "Cc"}};

static bool compiles(const char *pattern) {
  int code;
  PCRE2_SIZE at;
  pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
  pcre2_code_free(compiled);
  return compiled != NULL;
}

/* \p{Name}, \P{Name}, \p{^Name}. A script's bare name means script extensions to PCRE2 but the script itself to Oniguruma. */
static enum eaglet_status translate_property(struct translation *t, struct eaglet_error *err) {
  const char *close = t->at + 2 < t->end && t->at[2] == '{' ? memchr(t->at, '}', (size_t)(t->end - t->at)) : NULL;
  if (!close) return refuse(t, "a property without braces", err);
  const char *name = t->at + 3;
  bool negative = t->at[1] == 'P';
  if (*name == '^') {
    negative = !negative;
    name++;
  }
  char text[64], script[80];
  if (close == name || (size_t)(close - name) >= sizeof text || memchr(name, ':', (size_t)(close - name)) || memchr(name, '=', (size_t)(close - name)))
    return refuse(t, "this property", err);
  snprintf(text, sizeof text, "%.*s", (int)(close - name), name);
  const char *ours = text;
  for (size_t i = 0; i < sizeof property_names / sizeof *property_names; i++)
    if (strcasecmp(text, property_names[i].theirs) == 0) ours = property_names[i].ours;
  snprintf(script, sizeof script, "\\p{sc:%s}", ours);
  bool is_script = strlen(ours) > 2 && compiles(script);
  buffer_format(&t->out, "\\%c{%s%s}", negative ? 'P' : 'p', is_script ? "sc:" : "", ours);
  t->at = close + 1;
  return EAGLET_OK;
}

/* [:name:] inside a class, at its '['. */
static enum eaglet_status translate_posix(struct translation *t, struct eaglet_error *err) {
  static const struct { const char *name, *positive, *negative; } known[] = {
      {"alpha", "\\p{Alphabetic}", "\\P{Alphabetic}"}, {"upper", "\\p{Uppercase}", "\\P{Uppercase}"},
      {"lower", "\\p{Lowercase}", "\\P{Lowercase}"}, {"digit", "\\p{Nd}", "\\P{Nd}"}, {"space", "\\p{White_Space}", "\\P{White_Space}"},
      {"cntrl", "\\p{Cc}", "\\P{Cc}"}, {"alnum", "\\p{Alphabetic}\\p{Nd}", NULL}, {"word", WORD, NULL}, {"xdigit", "0-9a-fA-F", NULL},
      {"punct", "\\p{P}\\p{S}", NULL}, {"blank", "\\p{Zs}\\t", NULL}};
  const char *name = t->at + 2, *close = memchr(name, ']', (size_t)(t->end - name));
  if (!close || close[-1] != ':' || close - 1 < name) return refuse(t, "this bracket class", err);
  bool negative = *name == '^';
  size_t n = (size_t)(close - 1 - name) - negative;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strlen(known[i].name) != n || memcmp(known[i].name, name + negative, n) != 0) continue;
    const char *ours = negative ? known[i].negative : known[i].positive;
    if (!ours) break;
    buffer_append_string(&t->out, ours);
    t->at = close + 1;
    return EAGLET_OK;
  }
  return refuse(t, "this bracket class", err);
}

static enum eaglet_status translate_hex(struct translation *t, struct eaglet_error *err) { /* \x{..}, \xHH, \uHHHH */
  char c = t->at[1];
  const char *from = t->at + 2;
  size_t n = 0;
  bool braces = c == 'x' && from < t->end && *from == '{';
  if (braces) from++;
  size_t n_max = braces ? 8 : c == 'u' ? 4 : 2;
  while (n < n_max && from + n < t->end && strchr("0123456789abcdefABCDEF", from[n]) && from[n]) n++;
  if (n == 0 || (braces && (from + n == t->end || from[n] != '}')) || (c == 'u' && n != 4)) return refuse(t, "this escape", err);
  buffer_format(&t->out, "\\x{%.*s}", (int)n, from);
  t->at = from + n + (braces ? 1 : 0);
  return EAGLET_OK;
}

static enum eaglet_status translate_escape(struct translation *t, bool in_class, struct eaglet_error *err) {
  if (t->at + 1 == t->end) return refuse(t, "a backslash at the end", err);
  char c = t->at[1];
  if (c == 'p' || c == 'P') return translate_property(t, err);
  if (c == 'x' || c == 'u') return translate_hex(t, err);
  const char *set = set_escape(c, in_class);
  if (set) buffer_append_string(&t->out, set);
  else if (strchr("tnrfvae", c) || strchr("AzZ", c)) {
    if (strchr("AzZ", c) && in_class) return refuse(t, "this escape", err);
    if (c == 'v') buffer_append_string(&t->out, "\\x{0b}"); /* PCRE2's \v is a set */
    else buffer_append(&t->out, t->at, 2);
  } else if (c == 'b' && !in_class)
    buffer_append_string(&t->out, "(?:(?<=[" WORD LATIN_WORD "])(?![" WORD LATIN_WORD "])|(?<![" WORD LATIN_WORD "])(?=[" WORD LATIN_WORD "]))");
  else if (c == 'B' && !in_class)
    buffer_append_string(&t->out, "(?:(?<=[" WORD LATIN_WORD "])(?=[" WORD LATIN_WORD "])|(?<![" WORD LATIN_WORD "])(?![" WORD LATIN_WORD "]))");
  else if ((uint8_t)c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
    return refuse(t, "this escape", err);
  else
    buffer_append(&t->out, t->at, 2);
  t->at += 2;
  return EAGLET_OK;
}

static enum eaglet_status translate_class_items(struct translation *t, int depth, bool *stopped_at_and, struct eaglet_error *err) {
  int open = 0;
  bool first = true;
  *stopped_at_and = false;
  for (; t->at < t->end; first = false) {
    char c = *t->at;
    if (c == ']' && !first) {
      if (open == 0) return EAGLET_OK;
      open--;
      t->at++;
    } else if (c == '&' && t->at + 1 < t->end && t->at[1] == '&') {
      if (open) return refuse(t, "an intersection inside a nested class", err);
      *stopped_at_and = true;
      return EAGLET_OK;
    } else if (c == '[' && t->at + 1 < t->end && t->at[1] == ':') {
      TRY(translate_posix(t, err));
    } else if (c == '[') {
      if (t->at + 1 < t->end && t->at[1] == '^') return refuse(t, "a negated class inside a class", err);
      if (depth + open >= CLASS_DEPTH_MAX) return refuse(t, "so deep a nesting of classes", err);
      open++; /* a union: its items join the outer class's */
      t->at++;
    } else if (c == '\\')
      TRY(translate_escape(t, true, err));
    else {
      buffer_append_char(&t->out, c);
      t->at++;
    }
  }
  return refuse(t, "a class without end", err);
}

/* One bracket class, at '['. An intersection becomes a look-ahead: [a&&[^b]] is (?:(?=[^b])[a]). */
static enum eaglet_status translate_class(struct translation *t, int depth, struct eaglet_error *err) {
  size_t begin = t->out.length;
  bool and_follows;
  buffer_append_char(&t->out, '[');
  t->at++;
  bool negative = t->at < t->end && *t->at == '^';
  if (negative) {
    buffer_append_char(&t->out, '^');
    t->at++;
  }
  TRY(translate_class_items(t, depth, &and_follows, err));
  buffer_append_char(&t->out, ']');
  if (!and_follows) {
    t->at++;
    return EAGLET_OK;
  }
  if (negative) return refuse(t, "a negated intersection", err);
  struct buffer first;
  buffer_init(&first);
  buffer_append(&first, t->out.data + begin, t->out.length - begin);
  t->out.length = begin;
  buffer_append_string(&t->out, "(?:");
  enum eaglet_status status = EAGLET_OK;
  while (and_follows && status == EAGLET_OK) {
    t->at += 2;
    buffer_append_string(&t->out, "(?=");
    if (t->at < t->end && *t->at == '[' && depth < CLASS_DEPTH_MAX) {
      status = translate_class(t, depth + 1, err);
      buffer_append_char(&t->out, ')');
      and_follows = t->at + 1 < t->end && t->at[0] == '&' && t->at[1] == '&';
      if (status == EAGLET_OK && !and_follows && (t->at == t->end || *t->at != ']')) status = refuse(t, "this intersection", err);
    } else {
      buffer_append_char(&t->out, '[');
      status = translate_class_items(t, depth, &and_follows, err);
      buffer_append_string(&t->out, "])");
    }
  }
  buffer_append(&t->out, first.data, first.length);
  buffer_append_char(&t->out, ')');
  buffer_clear(&first);
  t->at++;
  return status;
}

static enum eaglet_status translate_group(struct translation *t, struct eaglet_error *err) { /* at '(' */
  if (t->n_groups == (int)(sizeof t->groups / sizeof *t->groups)) return refuse(t, "so deep a nesting of groups", err);
  t->groups[t->n_groups++] = t->out.length;
  t->atom = SIZE_MAX;
  if (t->at + 1 < t->end && t->at[1] == '?') {
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:", "(?-i)"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
      size_t n = strlen(known[i]);
      if ((size_t)(t->end - t->at) < n || memcmp(t->at, known[i], n) != 0) continue;
      if (known[i][n - 1] == ')' && t->at > t->pattern) break; /* their reach ends elsewhere than PCRE2's */
      buffer_append_string(&t->out, known[i]);
      t->at += n;
      if (known[i][n - 1] == ')') t->n_groups--;
      return EAGLET_OK;
    }
    return refuse(t, "this kind of group", err);
  }
  buffer_append_char(&t->out, '(');
  t->at++;
  return EAGLET_OK;
}

/* {n}, {n,}, {n,m}, {,m}; a brace that is none of these is literal in both libraries. */
static size_t interval_length(const struct translation *t) {
  const char *p = t->at + 1;
  size_t n_digits = 0, n_commas = 0;
  for (; p < t->end && ((*p >= '0' && *p <= '9') || *p == ','); p++) {
    n_commas += *p == ',';
    n_digits += *p != ',';
  }
  return p < t->end && *p == '}' && n_digits && n_commas <= 1 ? (size_t)(p + 1 - t->at) : 0;
}

static void insert(struct buffer *out, size_t at, const char *text) {
  size_t n = strlen(text), length = out->length;
  buffer_append_string(out, text);
  memmove(out->data + at + n, out->data + at, length - at);
  memcpy(out->data + at, text, n);
}

static enum eaglet_status translate_quantifier(struct translation *t, struct eaglet_error *err) {
  if (t->atom == SIZE_MAX) return refuse(t, "a repetition of nothing", err);
  if (*t->at != '{') {
    buffer_append_char(&t->out, *t->at++);
    if (t->at < t->end && (*t->at == '?' || *t->at == '+')) buffer_append_char(&t->out, *t->at++); /* lazy, possessive: the same */
  } else {
    size_t n = interval_length(t);
    bool exact = !memchr(t->at, ',', n);
    if (t->at[1] == ',') buffer_format(&t->out, "{0%.*s", (int)n - 1, t->at + 1);
    else buffer_append(&t->out, t->at, n);
    t->at += n;
    if (t->at < t->end && *t->at == '?' && !exact) buffer_append_char(&t->out, *t->at++);
  }
  /* A further quantifier repeats what stands here as a whole. */
  if (t->at < t->end && (strchr("*+?", *t->at) || (*t->at == '{' && interval_length(t)))) {
    insert(&t->out, t->atom, "(?:");
    buffer_append_char(&t->out, ')');
  } else
    t->atom = SIZE_MAX;
  return EAGLET_OK;
}

static enum eaglet_status translate_item(struct translation *t, struct eaglet_error *err) {
  char c = *t->at;
  size_t begin = t->out.length;
  if (c == '(') return translate_group(t, err);
  if (c == ')') {
    if (t->n_groups == 0) return refuse(t, "a closing parenthesis without an opening one", err);
    buffer_append_char(&t->out, c);
    t->at++;
    t->atom = t->groups[--t->n_groups];
    return EAGLET_OK;
  }
  if (strchr("*+?", c) || (c == '{' && interval_length(t))) return translate_quantifier(t, err);
  if (c == '[') TRY(translate_class(t, 0, err));
  else if (c == '\\') TRY(translate_escape(t, false, err));
  else { /* one character, all of its bytes */
    uint32_t codepoint;
    int n = utf8_decode(t->at, (size_t)(t->end - t->at), &codepoint);
    ASSERT(n > 0);
    if (c == '{' || c == '}' || c == ']' || c == '#') buffer_append_char(&t->out, '\\');
    buffer_append(&t->out, t->at, (size_t)n);
    t->at += n;
  }
  t->atom = c == '|' ? SIZE_MAX : begin;
  return EAGLET_OK;
}

/* ---- compiling ---- */

static enum eaglet_status compile(struct regex **regex, const char *pattern, size_t length, uint32_t options, const char *what,
                                  struct eaglet_error *err) {
  int code;
  PCRE2_SIZE at;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  ASSERT(context);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  struct regex *r = memory_alloc(sizeof *r);
  r->code = pcre2_compile((PCRE2_SPTR)pattern, length, PCRE2_UTF | PCRE2_NO_UTF_CHECK | options, &code, &at, context);
  pcre2_compile_context_free(context);
  if (!r->code) {
    char message[128] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
    free(r);
    FAIL(err, EAGLET_E_INPUT, "%s: regular expression %.300s: at %zu: %s", what, pattern, (size_t)at, message);
  }
  (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without JIT the interpreter does the same, slower */
  *regex = r;
  return EAGLET_OK;
}

enum eaglet_status regex_create(struct regex **regex, const char *pattern, size_t length, const char *what, struct eaglet_error *err) {
  struct translation t = {.pattern = pattern, .at = pattern, .end = pattern + length, .what = what, .atom = SIZE_MAX};
  buffer_init(&t.out);
  *regex = NULL;
  enum eaglet_status status = EAGLET_OK;
  if (length > PATTERN_LENGTH_MAX) status = refuse(&t, "so long a pattern", err);
  while (t.at < t.end && status == EAGLET_OK) status = translate_item(&t, err);
  if (status == EAGLET_OK && t.n_groups) status = refuse(&t, "a group without end", err);
  if (status == EAGLET_OK) status = compile(regex, t.out.length ? t.out.data : "", t.out.length, PCRE2_UCP | PCRE2_MULTILINE, what, err);
  buffer_clear(&t.out);
  return status;
}

enum eaglet_status regex_create_literal(struct regex **regex, const char *text, size_t length, struct eaglet_error *err) {
  *regex = NULL;
  return compile(regex, text, length, PCRE2_LITERAL, "literal pattern", err);
}

void regex_free(struct regex *regex) {
  if (!regex) return;
  pcre2_code_free(regex->code);
  free(regex);
}

/* ---- matching ---- */

struct regex_scratch *regex_scratch_create(void) {
  struct regex_scratch *scratch = memory_alloc(sizeof *scratch);
  scratch->context = pcre2_match_context_create(NULL);
  scratch->match = pcre2_match_data_create(1, NULL);
  scratch->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_MAX, NULL); /* NULL: JIT is not built in */
  ASSERT(scratch->context && scratch->match);
  pcre2_set_match_limit(scratch->context, MATCH_LIMIT);
  pcre2_set_heap_limit(scratch->context, HEAP_LIMIT_KIB);
  if (scratch->stack) pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
  return scratch;
}

void regex_scratch_free(struct regex_scratch *scratch) {
  if (!scratch) return;
  pcre2_match_data_free(scratch->match);
  pcre2_match_context_free(scratch->context);
  if (scratch->stack) pcre2_jit_stack_free(scratch->stack);
  free(scratch);
}

enum eaglet_status regex_walk_next(struct regex_walk *walk, struct text_span *match, bool *found, struct eaglet_error *err) {
  *found = false;
  while (walk->at <= walk->length) {
    int rc = pcre2_match(walk->regex->code, (PCRE2_SPTR)walk->text, walk->length, walk->at, PCRE2_NO_UTF_CHECK, walk->scratch->match,
                         walk->scratch->context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) FAIL(err, EAGLET_E_RESOURCE, "text at byte %zu: the split pattern gave up (PCRE2 code %d)", walk->at, rc);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(walk->scratch->match);
    if (span[0] == span[1] && walk->has_last && span[1] == walk->last_end) { /* no empty match right behind a match */
      if (walk->at == walk->length) break;
      uint32_t c;
      int n = utf8_decode(walk->text + walk->at, walk->length - walk->at, &c);
      walk->at += n > 0 ? (size_t)n : 1;
      continue;
    }
    *match = (struct text_span){span[0], span[1]};
    walk->at = walk->last_end = span[1];
    walk->has_last = *found = true;
    return EAGLET_OK;
  }
  walk->at = walk->length + 1;
  return EAGLET_OK;
}
