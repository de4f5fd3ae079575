/* tokenizer_json_normalizer.c - text with origins, and the normaliser chain of tokenizer.json: Unicode forms, lower case, accents,
 * replacements, prefix, strip, byte-level spelling.
 *
 * A step that changes nothing copies nothing: most text is its own NFC. Unicode forms are made cluster by cluster (a character
 * and the marks behind it), since no composition reaches over a cluster's edge; so origins stay as fine as that.
 */
#include "text/tokenizer_json.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- work ---- */

void work_reset(struct work *work, bool with_origin) {
  buffer_reset(&work->text);
  work->with_origin = with_origin;
}

void work_append(struct work *work, const struct piece *from, size_t begin, size_t end) {
  if (work->with_origin) {
    size_t n = work->text.length;
    MEMORY_GROW(work->origin, work->origin_capacity, n + end - begin);
    for (size_t i = begin; i < end; i++) work->origin[n++] = piece_origin(from, i);
  }
  buffer_append(&work->text, from->data + begin, end - begin);
}

void work_append_new(struct work *work, const char *bytes, size_t length, size_t origin) {
  if (work->with_origin) {
    size_t n = work->text.length;
    MEMORY_GROW(work->origin, work->origin_capacity, n + length);
    for (size_t i = 0; i < length; i++) work->origin[n++] = origin;
  }
  buffer_append(&work->text, bytes, length);
}

struct piece work_piece(const struct work *work, const struct piece *from) {
  return (struct piece){.data = work->text.data ? work->text.data : "", .length = work->text.length,
                        .origin = work->with_origin ? work->origin : NULL, .begin = from->begin};
}

void work_release(struct work *work) {
  buffer_clear(&work->text);
  free(work->origin);
  *work = (struct work){0};
}

/* ---- byte-level alphabet ---- */

/* Bytes 21..7E, A1..AC, AE..FF stand for themselves as code points; the other 68, in order, for U+0100 on. */
static bool is_own_letter(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

static uint32_t letter_of(uint8_t byte) {
  if (is_own_letter(byte)) return byte;
  if (byte <= 0x20) return 0x100u + byte;
  return byte < 0xa1 ? 0x121u + (byte - 0x7fu) : 0x143u;
}

static int byte_of(uint32_t letter) {
  if (letter < 0x100) return is_own_letter(letter) ? (int)letter : -1;
  if (letter <= 0x120) return (int)(letter - 0x100);
  if (letter <= 0x142) return (int)(letter - 0x121 + 0x7f);
  return letter == 0x143 ? 0xad : -1;
}

void byte_level_spell(struct work *work, const struct piece *from) {
  for (size_t i = 0; i < from->length; i++) {
    uint32_t letter = letter_of((uint8_t)from->data[i]);
    char bytes[2] = {(char)(letter < 0x80 ? letter : 0xc0 | letter >> 6), (char)(0x80 | (letter & 0x3f))};
    work_append_new(work, bytes, letter < 0x80 ? 1 : 2, piece_origin(from, i));
  }
}

bool byte_level_unspell(const char *text, size_t length, char *out, size_t *n_out) {
  *n_out = 0;
  for (size_t at = 0; at < length;) {
    uint32_t letter;
    int n = utf8_decode(text + at, length - at, &letter), byte = n > 0 ? byte_of(letter) : -1;
    if (byte < 0) return false;
    out[(*n_out)++] = (char)byte;
    at += (size_t)n;
  }
  return true;
}

/* ---- the chain ---- */

enum step_kind { STEP_NFC, STEP_NFD, STEP_NFKC, STEP_NFKD, STEP_LOWERCASE, STEP_STRIP_ACCENTS, STEP_NMT, STEP_REPLACE, STEP_PREPEND, STEP_STRIP, STEP_BYTE_LEVEL };

struct step {
  enum step_kind kind;
  struct regex *regex;  /* REPLACE */
  char single;          /* REPLACE of one ASCII character: that character */
  char *content;        /* REPLACE, PREPEND */
  size_t content_length;
  bool left, right;     /* STRIP */
};

#define STEPS_MAX 32
struct normalizer {
  struct step steps[STEPS_MAX];
  int n;
};

struct step_job {
  const struct step *step;
  const struct piece *in;
  struct work *out;
  struct regex_scratch *scratch;
};

/* Appends one code point that replaces in[at]. */
static void put(struct step_job *job, uint32_t codepoint, size_t at) {
  uint8_t bytes[4];
  utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)codepoint, bytes);
  work_append_new(job->out, (const char *)bytes, (size_t)n, piece_origin(job->in, at));
}

/* ---- Unicode forms ---- */

static bool joins_previous(uint32_t c) { /* may compose with, or be reordered among, what stands before it */
  if (c < 0x300) return false;
  if (c >= 0x1160 && c <= 0x11ff) return true; /* Hangul vowels and finals */
  const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)c);
  return property->combining_class != 0 || property->category == UTF8PROC_CATEGORY_MN || property->category == UTF8PROC_CATEGORY_MC ||
         property->category == UTF8PROC_CATEGORY_ME;
}

/* A cluster of one character that the form leaves alone. */
static bool is_inert(uint32_t c, enum step_kind form) {
  if (c < 0x80) return true;
  if ((c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3041 && c <= 0x304a)) return true;
  return form == STEP_NFC && (c < 0x300 || (c >= 0xac00 && c <= 0xd7a3) || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30a1 && c <= 0x30fa));
}

static void form_cluster(struct step_job *job, size_t begin, size_t end) {
  static const int options[] = {[STEP_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE, [STEP_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
                                [STEP_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                [STEP_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
  const char *data = job->in->data + begin;
  size_t length = end - begin;
  int option = options[job->step->kind];
  utf8proc_int32_t small[64], *points = small;
  utf8proc_ssize_t n = utf8proc_decompose((const uint8_t *)data, (utf8proc_ssize_t)length, small, 64, option);
  if (n > 64) {
    points = memory_alloc((size_t)n * sizeof *points);
    n = utf8proc_decompose((const uint8_t *)data, (utf8proc_ssize_t)length, points, n, option);
  }
  ASSERT(n >= 0); /* the text is valid UTF-8 */
  if (option & UTF8PROC_COMPOSE) n = utf8proc_normalize_utf32(points, n, option);
  struct buffer *text = &job->out->text;
  size_t before = text->length;
  for (utf8proc_ssize_t i = 0; i < n; i++) put(job, (uint32_t)points[i], begin);
  if (text->length - before == length && memcmp(text->data + before, data, length) == 0) { /* unchanged: origins stay exact */
    text->length = before;
    work_append(job->out, job->in, begin, end);
  }
  if (points != small) free(points);
}

static void apply_form(struct step_job *job) {
  const char *data = job->in->data;
  size_t length = job->in->length, copied = 0;
  for (size_t at = 0; at < length;) {
    uint32_t c = (uint8_t)data[at];
    size_t n = c < 0x80 ? 1 : (size_t)utf8_decode(data + at, length - at, &c), end = at + n;
    uint32_t next = 0;
    while (end < length && ((uint8_t)data[end] & 0x80)) {
      n = (size_t)utf8_decode(data + end, length - end, &next);
      if (!joins_previous(next)) break;
      end += n;
      c = UINT32_MAX; /* more than one character */
    }
    if (!is_inert(c, job->step->kind)) {
      work_append(job->out, job->in, copied, at);
      form_cluster(job, at, end);
      copied = end;
    }
    at = end;
  }
  work_append(job->out, job->in, copied, length);
}

/* ---- character by character ---- */

static bool is_mark(uint32_t c) {
  utf8proc_category_t category = c < 0x300 ? UTF8PROC_CATEGORY_CN : utf8proc_category((utf8proc_int32_t)c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

/* The Nmt normaliser: controls vanish, other separators become spaces. Returns 0 for a character that vanishes. */
static uint32_t nmt_of(uint32_t c) {
  if ((c >= 1 && c <= 8) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f) return 0;
  if (c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 ||
      c == 0x2581 || c == 0xfeff || c == 0xfffd)
    return ' ';
  return c;
}

static void apply_characters(struct step_job *job) {
  const struct piece *in = job->in;
  for (size_t at = 0; at < in->length;) {
    uint32_t c;
    size_t n = (size_t)utf8_decode(in->data + at, in->length - at, &c);
    if (job->step->kind == STEP_LOWERCASE) {
      put(job, c == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c), at);
      if (c == 0x130) put(job, 0x307, at); /* the one lower case of two characters */
    } else if (job->step->kind == STEP_NMT) {
      uint32_t mapped = nmt_of(c);
      if (mapped || c == 0) put(job, mapped, at);
    } else if (!is_mark(c))
      work_append(job->out, in, at, at + n);
    at += n;
  }
}

static void apply_strip(struct step_job *job) {
  const struct piece *in = job->in;
  size_t begin = 0, end = in->length;
  uint32_t c;
  while (job->step->left && begin < end) {
    int n = utf8_decode(in->data + begin, end - begin, &c);
    if (!text_is_white_space(c)) break;
    begin += (size_t)n;
  }
  while (job->step->right && begin < end) {
    size_t start = end - 1;
    while (start > begin && ((uint8_t)in->data[start] & 0xc0) == 0x80) start--;
    utf8_decode(in->data + start, end - start, &c);
    if (!text_is_white_space(c)) break;
    end = start;
  }
  work_append(job->out, in, begin, end);
}

static enum eaglet_status apply_replace(struct step_job *job, struct eaglet_error *err) {
  const struct piece *in = job->in;
  const struct step *step = job->step;
  size_t copied = 0;
  if (step->single) {
    const char *found;
    while ((found = memchr(in->data + copied, step->single, in->length - copied))) {
      size_t at = (size_t)(found - in->data);
      work_append(job->out, in, copied, at);
      work_append_new(job->out, step->content, step->content_length, piece_origin(in, at));
      copied = at + 1;
    }
  } else {
    struct regex_walk walk = {.regex = step->regex, .scratch = job->scratch, .text = in->data, .length = in->length};
    struct text_span match;
    bool found;
    for (;;) {
      TRY(regex_walk_next(&walk, &match, &found, err));
      if (!found) break;
      work_append(job->out, in, copied, match.begin);
      size_t origin = match.begin < in->length ? piece_origin(in, match.begin) : piece_origin(in, in->length - 1);
      work_append_new(job->out, step->content, step->content_length, origin);
      copied = match.end;
    }
  }
  work_append(job->out, in, copied, in->length);
  return EAGLET_OK;
}

/* False when the step surely changes nothing, at the price of one pass at most. */
static bool may_change(const struct step *step, const struct piece *in) {
  if (step->kind == STEP_PREPEND || step->kind == STEP_BYTE_LEVEL || step->kind == STEP_LOWERCASE || step->kind == STEP_NMT) return true;
  if (step->kind == STEP_STRIP || (step->kind == STEP_REPLACE && !step->single)) return true;
  if (step->kind == STEP_REPLACE) return memchr(in->data, step->single, in->length) != NULL;
  for (size_t at = 0; at < in->length;) { /* forms and accents leave inert characters alone */
    if (!((uint8_t)in->data[at] & 0x80)) {
      at++;
      continue;
    }
    uint32_t c;
    size_t n = (size_t)utf8_decode(in->data + at, in->length - at, &c);
    if (step->kind == STEP_STRIP_ACCENTS ? is_mark(c) : joins_previous(c) || !is_inert(c, step->kind)) return true;
    at += n;
  }
  return false;
}

static enum eaglet_status apply_step(struct step_job *job, struct eaglet_error *err) {
  const struct piece *in = job->in;
  switch (job->step->kind) {
  case STEP_NFC: case STEP_NFD: case STEP_NFKC: case STEP_NFKD: apply_form(job); break;
  case STEP_LOWERCASE: case STEP_STRIP_ACCENTS: case STEP_NMT: apply_characters(job); break;
  case STEP_STRIP: apply_strip(job); break;
  case STEP_BYTE_LEVEL: byte_level_spell(job->out, in); break;
  case STEP_PREPEND:
    work_append_new(job->out, job->step->content, job->step->content_length, piece_origin(in, 0));
    work_append(job->out, in, 0, in->length);
    break;
  case STEP_REPLACE: return apply_replace(job, err);
  }
  return EAGLET_OK;
}

enum eaglet_status normalizer_apply(const struct normalizer *normalizer, struct work works[2], struct regex_scratch *scratch,
                                    bool with_origin, struct piece *piece, struct eaglet_error *err) {
  if (!normalizer) return EAGLET_OK;
  int turn = 0;
  for (int i = 0; i < normalizer->n && piece->length; i++) {
    const struct step *step = &normalizer->steps[i];
    if (!may_change(step, piece)) continue;
    struct piece in = *piece;
    struct step_job job = {.step = step, .in = &in, .out = &works[turn], .scratch = scratch};
    work_reset(job.out, with_origin);
    TRY(apply_step(&job, err));
    *piece = work_piece(job.out, &in);
    turn = !turn;
  }
  return EAGLET_OK;
}

/* ---- reading ---- */

static enum eaglet_status read_replace(struct step *step, const json_t *spec, const char *what, struct eaglet_error *err) {
  const json_t *pattern = json_object_get(spec, "pattern"), *content = json_object_get(spec, "content");
  const json_t *string = json_object_get(pattern, "String"), *regex = json_object_get(pattern, "Regex");
  if (!json_is_string(content) || (!json_is_string(string) && !json_is_string(regex)))
    FAIL(err, EAGLET_E_INPUT, "%s: Replace: expected pattern {String or Regex} and content", what);
  step->content = memory_copy_span(json_string_value(content), json_string_length(content));
  step->content_length = json_string_length(content);
  const json_t *text = string ? string : regex;
  const char *data = json_string_value(text);
  size_t length = json_string_length(text);
  if (string && length == 1) {
    step->single = *data;
    return EAGLET_OK;
  }
  return string ? regex_create_literal(&step->regex, data, length, err) : regex_create(&step->regex, data, length, what, err);
}

static enum eaglet_status read_step(struct step *step, const json_t *spec, const char *type, const char *what, struct eaglet_error *err) {
  static const struct { const char *name; enum step_kind kind; } names[] = {
      {"NFC", STEP_NFC}, {"NFD", STEP_NFD}, {"NFKC", STEP_NFKC}, {"NFKD", STEP_NFKD}, {"Lowercase", STEP_LOWERCASE},
      {"StripAccents", STEP_STRIP_ACCENTS}, {"Nmt", STEP_NMT}, {"Replace", STEP_REPLACE}, {"Prepend", STEP_PREPEND}, {"Strip", STEP_STRIP},
      {"ByteLevel", STEP_BYTE_LEVEL}};
  size_t i = 0;
  while (i < sizeof names / sizeof *names && strcmp(names[i].name, type) != 0) i++;
  if (i == sizeof names / sizeof *names) FAIL(err, EAGLET_E_INPUT, "%s: normalizer %s is not supported", what, type);
  step->kind = names[i].kind;
  if (step->kind == STEP_REPLACE) return read_replace(step, spec, what, err);
  if (step->kind == STEP_STRIP) {
    TRY(json_get_bool_or(&step->left, true, spec, "strip_left", what, err));
    return json_get_bool_or(&step->right, true, spec, "strip_right", what, err);
  }
  if (step->kind == STEP_PREPEND) {
    const json_t *prepend = json_object_get(spec, "prepend");
    if (!json_is_string(prepend)) FAIL(err, EAGLET_E_INPUT, "%s: Prepend: expected a string prepend", what);
    step->content = memory_copy_span(json_string_value(prepend), json_string_length(prepend));
    step->content_length = json_string_length(prepend);
  }
  return EAGLET_OK;
}

static enum eaglet_status read_steps(struct normalizer *normalizer, const json_t *spec, int depth, const char *what, struct eaglet_error *err) {
  if (!spec || json_is_null(spec)) return EAGLET_OK;
  const char *type = json_string_value(json_object_get(spec, "type"));
  if (!type) FAIL(err, EAGLET_E_INPUT, "%s: normalizer: expected an object with a type", what);
  if (strcmp(type, "Sequence") == 0) {
    const json_t *list = json_object_get(spec, "normalizers");
    if (!json_is_array(list) || depth > 4) FAIL(err, EAGLET_E_INPUT, "%s: normalizer Sequence: expected a list of normalizers", what);
    size_t i;
    json_t *inner;
    json_array_foreach(list, i, inner) TRY(read_steps(normalizer, inner, depth + 1, what, err));
    return EAGLET_OK;
  }
  if (normalizer->n == STEPS_MAX) FAIL(err, EAGLET_E_INPUT, "%s: more than %d normalizers", what, STEPS_MAX);
  return read_step(&normalizer->steps[normalizer->n++], spec, type, what, err);
}

enum eaglet_status normalizer_create(struct normalizer **normalizer, const json_t *spec, const char *what, struct eaglet_error *err) {
  *normalizer = memory_alloc(sizeof **normalizer);
  enum eaglet_status status = read_steps(*normalizer, spec, 0, what, err);
  if (status != EAGLET_OK || (*normalizer)->n == 0) {
    normalizer_free(*normalizer);
    *normalizer = NULL;
  }
  return status;
}

void normalizer_free(struct normalizer *normalizer) {
  if (!normalizer) return;
  for (int i = 0; i < normalizer->n; i++) {
    regex_free(normalizer->steps[i].regex);
    free(normalizer->steps[i].content);
  }
  free(normalizer);
}
