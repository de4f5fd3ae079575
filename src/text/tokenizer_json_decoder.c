/* tokenizer_json_decoder.c - the decoder chain of tokenizer.json, cut in two: steps that act on each token's text for itself
 * (done once, when the vocabulary is read) and rules for the joined text (struct decode_rules, followed by the detokenizer).
 *
 * A chain that cannot be cut like this (a replacement after Fuse, WordPiece, CTC, BPEDecoder) is refused by name.
 */
#include "text/tokenizer_json.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

enum decode_kind { DECODE_BYTE_LEVEL, DECODE_REPLACE, DECODE_METASPACE, DECODE_BYTE_FALLBACK, DECODE_STRIP };

struct decode_step {
  enum decode_kind kind;
  struct regex *regex; /* REPLACE */
  char *content;       /* REPLACE; STRIP and METASPACE: the character */
  size_t content_length;
  int start, stop;     /* STRIP */
  bool drop_first;     /* METASPACE: at the start of a text the mark vanishes */
};

#define STEPS_MAX 16
struct decoder {
  struct decode_step steps[STEPS_MAX];
  int n;
  bool fused;
};

/* ---- one token ---- */

static int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool byte_token(const char *text, size_t length, char *byte) { /* <0xHH> */
  if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return false;
  int high = hex_digit(text[3]), low = hex_digit(text[4]);
  *byte = (char)(high * 16 + low);
  return high >= 0 && low >= 0;
}

static enum eaglet_status replace_all(const struct decode_step *step, struct regex_scratch *scratch, const struct buffer *in,
                                      struct buffer *out, struct eaglet_error *err) {
  struct regex_walk walk = {.regex = step->regex, .scratch = scratch, .text = in->data, .length = in->length};
  size_t copied = 0;
  for (;;) {
    struct text_span match;
    bool found;
    TRY(regex_walk_next(&walk, &match, &found, err));
    if (!found) break;
    buffer_append(out, in->data + copied, match.begin - copied);
    buffer_append(out, step->content, step->content_length);
    copied = match.end;
  }
  buffer_append(out, in->data + copied, in->length - copied);
  return EAGLET_OK;
}

static void strip_ends(const struct decode_step *step, const struct buffer *in, struct buffer *out) {
  size_t begin = 0, end = in->length, n = step->content_length;
  for (int i = 0; i < step->start && begin + n <= end && memcmp(in->data + begin, step->content, n) == 0; i++) begin += n;
  for (int i = 0; i < step->stop && begin + n <= end && memcmp(in->data + end - n, step->content, n) == 0; i++) end -= n;
  buffer_append(out, in->data + begin, end - begin);
}

static void replace_marks(const struct decode_step *step, bool first, const struct buffer *in, struct buffer *out) {
  size_t n = step->content_length;
  for (size_t at = 0; at < in->length;) {
    if (at + n <= in->length && memcmp(in->data + at, step->content, n) == 0) {
      if (!first || !step->drop_first) buffer_append_char(out, ' ');
      at += n;
    } else
      buffer_append_char(out, in->data[at++]);
  }
}

static enum eaglet_status apply_step(const struct decode_step *step, struct regex_scratch *scratch, bool first, const struct buffer *in,
                                     struct buffer *out, struct eaglet_error *err) {
  switch (step->kind) {
  case DECODE_REPLACE: return replace_all(step, scratch, in, out, err);
  case DECODE_METASPACE: replace_marks(step, first, in, out); break;
  case DECODE_STRIP: strip_ends(step, in, out); break;
  case DECODE_BYTE_LEVEL: {
    char *bytes = memory_alloc(in->length + 1);
    size_t n;
    if (byte_level_unspell(in->data, in->length, bytes, &n)) buffer_append(out, bytes, n);
    else buffer_append(out, in->data, in->length); /* a token with other characters stands for itself */
    free(bytes);
    break;
  }
  case DECODE_BYTE_FALLBACK: buffer_append(out, in->data, in->length); break;
  }
  return EAGLET_OK;
}

enum eaglet_status decoder_apply(const struct decoder *decoder, struct decode_job *job, struct buffer *out, struct eaglet_error *err) {
  struct buffer text[2];
  buffer_init(&text[0]);
  buffer_init(&text[1]);
  buffer_append(&text[0], job->token.data, job->token.length);
  job->is_byte = false;
  enum eaglet_status status = EAGLET_OK;
  int turn = 0;
  char byte = 0;
  for (int i = 0; decoder && i < decoder->n && status == EAGLET_OK && !job->is_byte; i++) {
    const struct decode_step *step = &decoder->steps[i];
    if (step->kind == DECODE_BYTE_FALLBACK) {
      job->is_byte = byte_token(text[turn].data, text[turn].length, &byte);
      continue;
    }
    buffer_reset(&text[!turn]);
    buffer_append(&text[!turn], "", 0);
    status = apply_step(step, job->scratch, job->first, &text[turn], &text[!turn], err);
    turn = !turn;
  }
  if (job->is_byte) buffer_append_char(out, byte);
  else buffer_append(out, text[turn].data, text[turn].length);
  buffer_clear(&text[0]);
  buffer_clear(&text[1]);
  return status;
}

/* ---- reading ---- */

struct decoder_reader {
  struct decoder *decoder;
  struct decode_rules *rules;
  const char *what;
};

static enum eaglet_status copy_string(struct decode_step *step, const json_t *text, const struct decoder_reader *r, const char *key,
                                      struct eaglet_error *err) {
  if (!json_is_string(text)) FAIL(err, EAGLET_E_INPUT, "%s: decoder: %s: expected a string", r->what, key);
  step->content = memory_copy_span(json_string_value(text), json_string_length(text));
  step->content_length = json_string_length(text);
  return EAGLET_OK;
}

static enum eaglet_status read_replace(struct decoder_reader *r, struct decode_step *step, const json_t *spec, struct eaglet_error *err) {
  const json_t *pattern = json_object_get(spec, "pattern");
  const json_t *string = json_object_get(pattern, "String"), *regex = json_object_get(pattern, "Regex");
  const json_t *text = string ? string : regex;
  if (!json_is_string(text) || json_string_length(text) == 0)
    FAIL(err, EAGLET_E_INPUT, "%s: decoder Replace: expected a pattern {String or Regex}", r->what);
  TRY(copy_string(step, json_object_get(spec, "content"), r, "content", err));
  if (string) return regex_create_literal(&step->regex, json_string_value(text), json_string_length(text), err);
  return regex_create(&step->regex, json_string_value(text), json_string_length(text), r->what, err);
}

static enum eaglet_status read_strip(struct decoder_reader *r, struct decode_step *step, const json_t *spec, struct eaglet_error *err) {
  int64_t start, stop;
  TRY(copy_string(step, json_object_get(spec, "content"), r, "content", err));
  TRY(json_get_int_or(&start, 0, spec, "start", r->what, err));
  TRY(json_get_int_or(&stop, 0, spec, "stop", r->what, err));
  if (start < 0 || start > 1000 || stop < 0 || stop > 1000 || step->content_length == 0 || step->content_length > 4)
    FAIL(err, EAGLET_E_INPUT, "%s: decoder Strip: expected one character and small counts", r->what);
  step->start = (int)start;
  step->stop = (int)stop;
  if (!r->decoder->fused) return EAGLET_OK;
  if (r->rules->strip_start || r->rules->strip_stop) FAIL(err, EAGLET_E_INPUT, "%s: two decoders Strip after Fuse are not supported", r->what);
  r->rules->strip_start = (int)start; /* of the joined text: a rule, not a step */
  r->rules->strip_stop = (int)stop;
  memcpy(r->rules->strip_text, step->content, step->content_length);
  free(step->content);
  step->content = NULL;
  r->decoder->n--;
  return EAGLET_OK;
}

static enum eaglet_status read_one(struct decoder_reader *r, const json_t *spec, const char *type, struct eaglet_error *err) {
  struct decoder *decoder = r->decoder;
  if (strcmp(type, "Fuse") == 0) {
    decoder->fused = true;
    return EAGLET_OK;
  }
  if (decoder->n == STEPS_MAX) FAIL(err, EAGLET_E_INPUT, "%s: more than %d decoders", r->what, STEPS_MAX);
  bool is_strip = strcmp(type, "Strip") == 0;
  if (decoder->fused && !is_strip) FAIL(err, EAGLET_E_INPUT, "%s: decoder %s after Fuse or ByteLevel is not supported", r->what, type);
  struct decode_step *step = &decoder->steps[decoder->n++];
  if (is_strip) {
    step->kind = DECODE_STRIP;
    return read_strip(r, step, spec, err);
  }
  if (strcmp(type, "Replace") == 0) {
    step->kind = DECODE_REPLACE;
    return read_replace(r, step, spec, err);
  }
  if (strcmp(type, "ByteLevel") == 0) {
    step->kind = DECODE_BYTE_LEVEL;
    decoder->fused = true; /* it joins everything */
    return EAGLET_OK;
  }
  if (strcmp(type, "ByteFallback") == 0) {
    step->kind = DECODE_BYTE_FALLBACK;
    r->rules->byte_runs = true;
    return EAGLET_OK;
  }
  if (strcmp(type, "Metaspace") == 0) {
    const char *scheme;
    bool prefix_space;
    step->kind = DECODE_METASPACE;
    TRY(json_get_bool_or(&prefix_space, true, spec, "add_prefix_space", r->what, err));
    TRY(json_get_string_or(&scheme, prefix_space ? "always" : "never", spec, "prepend_scheme", r->what, err));
    step->drop_first = strcmp(scheme, "never") != 0;
    r->rules->first_differs |= step->drop_first;
    return copy_string(step, json_object_get(spec, "replacement"), r, "replacement", err);
  }
  FAIL(err, EAGLET_E_INPUT, "%s: decoder %s is not supported", r->what, type);
}

static enum eaglet_status read_chain(struct decoder_reader *r, const json_t *spec, int depth, struct eaglet_error *err) {
  const char *type = json_string_value(json_object_get(spec, "type"));
  if (!type) FAIL(err, EAGLET_E_INPUT, "%s: decoder: expected an object with a type", r->what);
  if (strcmp(type, "Sequence") != 0) return read_one(r, spec, type, err);
  const json_t *list = json_object_get(spec, "decoders");
  if (!json_is_array(list) || depth > 4) FAIL(err, EAGLET_E_INPUT, "%s: decoder Sequence: expected a list of decoders", r->what);
  size_t i;
  json_t *inner;
  json_array_foreach(list, i, inner) TRY(read_chain(r, inner, depth + 1, err));
  return EAGLET_OK;
}

enum eaglet_status decoder_create(struct decoder **decoder, struct decode_rules *rules, const json_t *spec, const char *what,
                                  struct eaglet_error *err) {
  *decoder = NULL;
  if (!spec || json_is_null(spec)) {
    rules->separate = true; /* without a decoder tokens are joined by spaces */
    return EAGLET_OK;
  }
  struct decoder_reader r = {.decoder = memory_alloc(sizeof **decoder), .rules = rules, .what = what};
  enum eaglet_status status = read_chain(&r, spec, 0, err);
  if (status != EAGLET_OK) decoder_free(r.decoder);
  else *decoder = r.decoder;
  return status;
}

void decoder_free(struct decoder *decoder) {
  if (!decoder) return;
  for (int i = 0; i < decoder->n; i++) {
    regex_free(decoder->steps[i].regex);
    free(decoder->steps[i].content);
  }
  free(decoder);
}
