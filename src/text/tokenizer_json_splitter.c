/* tokenizer_json_splitter.c - the pre-tokeniser chain: every stage cuts each piece of the stage before it for itself, so that
 * look-ahead and $ see the ends of pieces as ends of text. Depth first; the depth is the number of stages.
 */
#include "text/tokenizer_json.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum stage_kind { /* ByteLevel is PREFIX_SPACE, SPLIT and SPELL, each where it applies */
  STAGE_SPLIT, STAGE_PREFIX_SPACE, STAGE_SPELL, STAGE_METASPACE, STAGE_DIGITS, STAGE_PUNCTUATION, STAGE_WHITESPACE_SPLIT,
  STAGE_DELIMITER, STAGE_LENGTH
};
enum behavior { ISOLATED, REMOVED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
enum prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct stage {
  enum stage_kind kind;
  enum behavior behavior;
  bool invert;
  struct regex *regex;      /* SPLIT */
  enum split_family family; /* of its pattern */
  bool cut;                 /* METASPACE: split before each mark */
  enum prepend prepend;     /* METASPACE */
  char mark[4];             /* METASPACE, DELIMITER: a character */
  size_t mark_length;
  size_t n_characters;      /* LENGTH */
};

struct splitter {
  struct stage stages[STAGES_MAX];
  size_t n;
  bool bytes; /* a last SPELL was left out: pieces are the bytes that it would have spelled */
};

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

bool splitter_ends_in_bytes(const struct splitter *splitter) { return splitter->bytes; }

bool splitter_keeps_text(const struct splitter *splitter) {
  for (size_t i = 0; i < splitter->n; i++) {
    const struct stage *stage = &splitter->stages[i];
    if (stage->kind == STAGE_METASPACE || stage->kind == STAGE_PREFIX_SPACE || stage->behavior == REMOVED) return false;
  }
  return true;
}

bool splitter_wants_first(const struct splitter *splitter) {
  for (size_t i = 0; i < splitter->n; i++)
    if (splitter->stages[i].kind == STAGE_METASPACE && splitter->stages[i].prepend == PREPEND_FIRST) return true;
  return false;
}

/* ---- behaviours ---- */

struct cut { /* turns a sequence of matches and gaps into pieces */
  struct split_job *job;
  size_t stage;
  const struct piece *piece;
  enum behavior behavior;
  bool pending, previous; /* previous: the part before was a match */
  size_t begin, end;      /* the pending piece */
};

static enum eaglet_status run_stage(struct split_job *job, size_t stage, const struct piece *piece, struct eaglet_error *err);

static enum eaglet_status emit(struct cut *cut, size_t begin, size_t end, struct eaglet_error *err) {
  if (begin == end) return EAGLET_OK;
  struct piece part = piece_part(cut->piece, begin, end);
  return run_stage(cut->job, cut->stage + 1, &part, err);
}

static enum eaglet_status flush(struct cut *cut, struct eaglet_error *err) {
  bool pending = cut->pending;
  cut->pending = false;
  return pending ? emit(cut, cut->begin, cut->end, err) : EAGLET_OK;
}

static enum eaglet_status add_part(struct cut *cut, size_t begin, size_t end, bool is_match, struct eaglet_error *err) {
  bool previous = cut->previous, extend = false;
  cut->previous = is_match;
  switch (cut->behavior) {
  case ISOLATED: return emit(cut, begin, end, err);
  case REMOVED: return is_match ? EAGLET_OK : emit(cut, begin, end, err);
  case CONTIGUOUS: extend = cut->pending && is_match == previous; break;
  case MERGED_WITH_PREVIOUS: extend = cut->pending && is_match && !previous; break;
  case MERGED_WITH_NEXT:
    if (!is_match && cut->pending) { /* what is pending is the match right before */
      cut->pending = false;
      return emit(cut, cut->begin, end, err);
    }
    if (!is_match) return emit(cut, begin, end, err);
    break;
  }
  if (extend) {
    cut->end = end;
    return EAGLET_OK;
  }
  TRY(flush(cut, err));
  cut->pending = true;
  cut->begin = begin;
  cut->end = end;
  return EAGLET_OK;
}

/* ---- cutting by a pattern ---- */

static enum eaglet_status cut_by_regex(struct split_job *job, size_t index, const struct piece *piece, struct eaglet_error *err) {
  const struct stage *stage = &job->splitter->stages[index];
  struct cut cut = {.job = job, .stage = index, .piece = piece, .behavior = stage->behavior};
  struct regex_walk walk = {.regex = stage->regex, .scratch = job->scratch, .text = piece->data, .length = piece->length};
  size_t gap = 0; /* where text not yet cut begins */
  while (gap < piece->length) {
    struct text_span match = {walk.at, 0};
    if (stage->family != SPLIT_OTHER) match.end = split_scan(stage->family, piece->data, piece->length, walk.at);
    if (match.end) {
      walk.at = walk.last_end = match.end;
      walk.has_last = true;
    } else {
      bool found;
      TRY(regex_walk_next(&walk, &match, &found, err));
      if (!found) break;
    }
    if (match.begin > gap) TRY(add_part(&cut, gap, match.begin, stage->invert, err));
    TRY(add_part(&cut, match.begin, match.end, !stage->invert, err));
    gap = match.end;
  }
  if (gap < piece->length) TRY(add_part(&cut, gap, piece->length, stage->invert, err));
  return flush(&cut, err);
}

/* ---- cutting by a class of characters ---- */

static bool is_numeric(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

static bool is_punctuation(uint32_t c) {
  if (c < 0x80) return (c >= 0x21 && c <= 0x2f) || (c >= 0x3a && c <= 0x40) || (c >= 0x5b && c <= 0x60) || (c >= 0x7b && c <= 0x7e);
  switch (utf8proc_category((utf8proc_int32_t)c)) {
  case UTF8PROC_CATEGORY_PC: case UTF8PROC_CATEGORY_PD: case UTF8PROC_CATEGORY_PS: case UTF8PROC_CATEGORY_PE:
  case UTF8PROC_CATEGORY_PI: case UTF8PROC_CATEGORY_PF: case UTF8PROC_CATEGORY_PO:
    return true;
  default: return false;
  }
}

static bool is_in_class(const struct stage *stage, const char *text, size_t n, uint32_t c) {
  switch (stage->kind) {
  case STAGE_DIGITS: return is_numeric(c);
  case STAGE_PUNCTUATION: return is_punctuation(c);
  case STAGE_WHITESPACE_SPLIT: return text_is_white_space(c);
  default: return n == stage->mark_length && memcmp(text, stage->mark, n) == 0;
  }
}

static enum eaglet_status cut_by_class(struct split_job *job, size_t index, const struct piece *piece, struct eaglet_error *err) {
  const struct stage *stage = &job->splitter->stages[index];
  struct cut cut = {.job = job, .stage = index, .piece = piece, .behavior = stage->behavior};
  size_t gap = 0;
  for (size_t at = 0; at < piece->length;) {
    uint32_t c = 0xfffd;
    int n = utf8_decode(piece->data + at, piece->length - at, &c);
    size_t end = at + (n > 0 ? (size_t)n : 1);
    if (is_in_class(stage, piece->data + at, end - at, c)) {
      if (gap < at) TRY(add_part(&cut, gap, at, false, err));
      TRY(add_part(&cut, at, end, true, err));
      gap = end;
    }
    at = end;
  }
  if (gap < piece->length) TRY(add_part(&cut, gap, piece->length, false, err));
  return flush(&cut, err);
}

static enum eaglet_status cut_by_length(struct split_job *job, size_t index, const struct piece *piece, struct eaglet_error *err) {
  struct cut cut = {.job = job, .stage = index, .piece = piece, .behavior = ISOLATED};
  size_t begin = 0, n = 0;
  for (size_t at = 0; at < piece->length; at++) {
    if (((uint8_t)piece->data[at] & 0xc0) == 0x80) continue;
    if (n++ < job->splitter->stages[index].n_characters) continue;
    TRY(emit(&cut, begin, at, err));
    begin = at;
    n = 1;
  }
  return emit(&cut, begin, piece->length, err);
}

/* ---- stages that rewrite ---- */

static enum eaglet_status run_prefix_space(struct split_job *job, size_t index, const struct piece *piece, struct eaglet_error *err) {
  if (*piece->data == ' ') return run_stage(job, index + 1, piece, err);
  struct work *work = &job->works[index];
  work_reset(work, job->with_origin);
  work_append_new(work, " ", 1, piece_origin(piece, 0));
  work_append(work, piece, 0, piece->length);
  struct piece out = work_piece(work, piece);
  return run_stage(job, index + 1, &out, err);
}

static enum eaglet_status run_spell(struct split_job *job, size_t index, const struct piece *piece, struct eaglet_error *err) {
  struct work *work = &job->works[index];
  work_reset(work, job->with_origin);
  byte_level_spell(work, piece);
  struct piece out = work_piece(work, piece);
  return run_stage(job, index + 1, &out, err);
}

static enum eaglet_status run_metaspace(struct split_job *job, size_t index, const struct piece *piece, struct eaglet_error *err) {
  const struct stage *stage = &job->splitter->stages[index];
  bool is_first = piece_origin(piece, 0) == 0;
  bool has_mark = *piece->data == ' ' ||
                  (piece->length >= stage->mark_length && memcmp(piece->data, stage->mark, stage->mark_length) == 0);
  bool prepend = !has_mark && (stage->prepend == PREPEND_ALWAYS || (stage->prepend == PREPEND_FIRST && is_first));
  struct piece out = *piece;
  if (prepend || memchr(piece->data, ' ', piece->length)) {
    struct work *work = &job->works[index];
    work_reset(work, job->with_origin);
    if (prepend) work_append_new(work, stage->mark, stage->mark_length, piece_origin(piece, 0));
    for (size_t at = 0; at < piece->length;) {
      const char *space = memchr(piece->data + at, ' ', piece->length - at);
      size_t end = space ? (size_t)(space - piece->data) : piece->length;
      work_append(work, piece, at, end);
      if (space) work_append_new(work, stage->mark, stage->mark_length, piece_origin(piece, end));
      at = end + 1;
    }
    out = work_piece(work, piece);
  }
  return stage->cut ? cut_by_class(job, index, &out, err) : run_stage(job, index + 1, &out, err);
}

static enum eaglet_status run_stage(struct split_job *job, size_t index, const struct piece *piece, struct eaglet_error *err) {
  if (index == job->splitter->n) return job->emit(job->context, piece, err);
  switch (job->splitter->stages[index].kind) {
  case STAGE_SPLIT: return cut_by_regex(job, index, piece, err);
  case STAGE_PREFIX_SPACE: return run_prefix_space(job, index, piece, err);
  case STAGE_SPELL: return run_spell(job, index, piece, err);
  case STAGE_METASPACE: return run_metaspace(job, index, piece, err);
  case STAGE_LENGTH: return cut_by_length(job, index, piece, err);
  default: return cut_by_class(job, index, piece, err);
  }
}

enum eaglet_status splitter_run(struct split_job *job, const struct piece *piece, struct eaglet_error *err) {
  return piece->length ? run_stage(job, 0, piece, err) : EAGLET_OK;
}

/* ---- reading ---- */

static enum eaglet_status add_stage(struct splitter *splitter, struct stage **stage, enum stage_kind kind, const char *what, struct eaglet_error *err) {
  if (splitter->n == STAGES_MAX) FAIL(err, EAGLET_E_INPUT, "%s: more than %d pre-tokenizer stages", what, STAGES_MAX);
  *stage = &splitter->stages[splitter->n++];
  (*stage)->kind = kind;
  return EAGLET_OK;
}

static enum eaglet_status read_behavior(enum behavior *behavior, const json_t *spec, const char *what, struct eaglet_error *err) {
  static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  const char *name;
  TRY(json_get_string_or(&name, "Isolated", spec, "behavior", what, err));
  for (int i = 0; i < 5; i++) {
    if (strcmp(name, names[i]) != 0) continue;
    *behavior = (enum behavior)i;
    return EAGLET_OK;
  }
  FAIL(err, EAGLET_E_INPUT, "%s: split behavior %s is not supported", what, name);
}

static enum eaglet_status read_split(struct splitter *splitter, const json_t *spec, const char *what, struct eaglet_error *err) {
  struct stage *stage = NULL;
  TRY(add_stage(splitter, &stage, STAGE_SPLIT, what, err));
  TRY(read_behavior(&stage->behavior, spec, what, err));
  TRY(json_get_bool_or(&stage->invert, false, spec, "invert", what, err));
  const json_t *pattern = json_object_get(spec, "pattern");
  const json_t *string = json_object_get(pattern, "String"), *regex = json_object_get(pattern, "Regex");
  const json_t *text = string ? string : regex;
  if (!json_is_string(text) || json_string_length(text) == 0)
    FAIL(err, EAGLET_E_INPUT, "%s: Split: expected a pattern {String or Regex}", what);
  const char *data = json_string_value(text);
  size_t length = json_string_length(text);
  if (string) return regex_create_literal(&stage->regex, data, length, err);
  stage->family = split_family_of(data, length);
  return regex_create(&stage->regex, data, length, what, err);
}

static enum eaglet_status read_byte_level(struct splitter *splitter, const json_t *spec, const char *what, struct eaglet_error *err) {
  bool prefix_space, use_regex;
  struct stage *stage = NULL;
  TRY(json_get_bool_or(&prefix_space, true, spec, "add_prefix_space", what, err));
  TRY(json_get_bool_or(&use_regex, true, spec, "use_regex", what, err));
  if (prefix_space) TRY(add_stage(splitter, &stage, STAGE_PREFIX_SPACE, what, err));
  if (use_regex) {
    TRY(add_stage(splitter, &stage, STAGE_SPLIT, what, err));
    stage->family = SPLIT_GPT2;
    TRY(regex_create(&stage->regex, GPT2_PATTERN, strlen(GPT2_PATTERN), what, err));
  }
  return add_stage(splitter, &stage, STAGE_SPELL, what, err);
}

static enum eaglet_status read_character(struct stage *stage, const json_t *spec, const char *key, const char *what, struct eaglet_error *err) {
  const char *text = json_string_value(json_object_get(spec, key));
  size_t length = text ? strlen(text) : 0;
  uint32_t c;
  if (length == 0 || length > 4 || (size_t)utf8_decode(text, length, &c) != length)
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected one character", what, key);
  memcpy(stage->mark, text, length);
  stage->mark_length = length;
  return EAGLET_OK;
}

static enum eaglet_status read_metaspace(struct splitter *splitter, const json_t *spec, const char *what, struct eaglet_error *err) {
  struct stage *stage = NULL;
  TRY(add_stage(splitter, &stage, STAGE_METASPACE, what, err));
  TRY(read_character(stage, spec, "replacement", what, err));
  TRY(json_get_bool_or(&stage->cut, true, spec, "split", what, err));
  stage->behavior = MERGED_WITH_NEXT;
  const char *scheme;
  bool prefix_space;
  TRY(json_get_bool_or(&prefix_space, true, spec, "add_prefix_space", what, err));
  TRY(json_get_string_or(&scheme, prefix_space ? "always" : "never", spec, "prepend_scheme", what, err));
  stage->prepend = strcmp(scheme, "first") == 0 ? PREPEND_FIRST : strcmp(scheme, "never") == 0 ? PREPEND_NEVER : PREPEND_ALWAYS;
  if (stage->prepend == PREPEND_ALWAYS && strcmp(scheme, "always") != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: Metaspace: prepend_scheme %s is not supported", what, scheme);
  if (!prefix_space && stage->prepend != PREPEND_NEVER)
    FAIL(err, EAGLET_E_INPUT, "%s: Metaspace: add_prefix_space false contradicts prepend_scheme %s", what, scheme);
  return EAGLET_OK;
}

static enum eaglet_status read_word_split(struct splitter *splitter, const char *what, struct eaglet_error *err) {
  static const char pattern[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\xe2\x80\x8c\xe2\x80\x8d]+" /* \w of Rust: with the joiners */
                                "|[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\xe2\x80\x8c\xe2\x80\x8d\\s]+";
  struct stage *stage = NULL;
  TRY(add_stage(splitter, &stage, STAGE_SPLIT, what, err));
  stage->behavior = REMOVED;
  stage->invert = true;
  return regex_create(&stage->regex, pattern, strlen(pattern), what, err);
}

/* BertPreTokenizer: white space removed, punctuation alone. */
static enum eaglet_status read_bert(struct splitter *splitter, const char *what, struct eaglet_error *err) {
  struct stage *stage = NULL;
  TRY(add_stage(splitter, &stage, STAGE_WHITESPACE_SPLIT, what, err));
  stage->behavior = REMOVED;
  TRY(add_stage(splitter, &stage, STAGE_PUNCTUATION, what, err));
  stage->behavior = ISOLATED;
  return EAGLET_OK;
}

static enum eaglet_status read_class_stage(struct splitter *splitter, const json_t *spec, const char *type, const char *what, struct eaglet_error *err) {
  struct stage *stage = NULL;
  if (strcmp(type, "Digits") == 0) {
    bool each;
    TRY(add_stage(splitter, &stage, STAGE_DIGITS, what, err));
    TRY(json_get_bool_or(&each, false, spec, "individual_digits", what, err));
    stage->behavior = each ? ISOLATED : CONTIGUOUS;
  } else if (strcmp(type, "Punctuation") == 0) {
    TRY(add_stage(splitter, &stage, STAGE_PUNCTUATION, what, err));
    return read_behavior(&stage->behavior, spec, what, err);
  } else if (strcmp(type, "WhitespaceSplit") == 0) {
    TRY(add_stage(splitter, &stage, STAGE_WHITESPACE_SPLIT, what, err));
    stage->behavior = REMOVED;
  } else if (strcmp(type, "CharDelimiterSplit") == 0) {
    TRY(add_stage(splitter, &stage, STAGE_DELIMITER, what, err));
    stage->behavior = REMOVED;
    return read_character(stage, spec, "delimiter", what, err);
  } else if (strcmp(type, "FixedLength") == 0) {
    int64_t length;
    TRY(add_stage(splitter, &stage, STAGE_LENGTH, what, err));
    TRY(json_get_int_or(&length, 5, spec, "length", what, err));
    if (length < 1) FAIL(err, EAGLET_E_INPUT, "%s: FixedLength: length: expected a positive number", what);
    stage->n_characters = (size_t)length;
  } else
    FAIL(err, EAGLET_E_INPUT, "%s: pre_tokenizer %s is not supported", what, type);
  return EAGLET_OK;
}

static enum eaglet_status read_stages(struct splitter *splitter, const json_t *spec, int depth, const char *what, struct eaglet_error *err) {
  if (!spec || json_is_null(spec)) return EAGLET_OK;
  const char *type = json_string_value(json_object_get(spec, "type"));
  if (!type) FAIL(err, EAGLET_E_INPUT, "%s: pre_tokenizer: expected an object with a type", what);
  if (strcmp(type, "Split") == 0) return read_split(splitter, spec, what, err);
  if (strcmp(type, "ByteLevel") == 0) return read_byte_level(splitter, spec, what, err);
  if (strcmp(type, "Metaspace") == 0) return read_metaspace(splitter, spec, what, err);
  if (strcmp(type, "Whitespace") == 0) return read_word_split(splitter, what, err);
  if (strcmp(type, "BertPreTokenizer") == 0) return read_bert(splitter, what, err);
  if (strcmp(type, "Sequence") != 0) return read_class_stage(splitter, spec, type, what, err);
  const json_t *list = json_object_get(spec, "pretokenizers");
  if (!json_is_array(list) || depth > 4) FAIL(err, EAGLET_E_INPUT, "%s: pre_tokenizer Sequence: expected a list of pretokenizers", what);
  size_t i;
  json_t *inner;
  json_array_foreach(list, i, inner) TRY(read_stages(splitter, inner, depth + 1, what, err));
  return EAGLET_OK;
}

enum eaglet_status splitter_create(struct splitter **splitter, const json_t *spec, const char *what, struct eaglet_error *err) {
  struct splitter *s = *splitter = memory_alloc(sizeof *s);
  enum eaglet_status status = read_stages(s, spec, 0, what, err);
  if (status != EAGLET_OK) {
    splitter_free(s);
    *splitter = NULL;
  } else if (s->n && s->stages[s->n - 1].kind == STAGE_SPELL) { /* spelling one by one is a renaming: undone in the vocabulary */
    s->bytes = true;
    s->n--;
  }
  return status;
}

void splitter_free(struct splitter *splitter) {
  if (!splitter) return;
  for (size_t i = 0; i < splitter->n; i++) regex_free(splitter->stages[i].regex);
  free(splitter);
}
