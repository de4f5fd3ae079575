/* tokenizer_json_reader.c - the two large parts of tokenizer.json, model.vocab and model.merges, read straight from the text: a
 * document tree of half a million small strings would take longer to build than everything else. The rest of the document, with
 * the two parts cut out, goes to the JSON library, which checks it.
 *
 * Every read is bounded by the end of the text; nesting is counted, not recursed. The text is valid UTF-8 before it comes here.
 */
#include "text/tokenizer_json.h"

#include "base/file.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 2048

struct reader {
  const char *text, *end, *at;
  const char *what;
  struct buffer string; /* of the string last read when it had escapes */
};

static enum eaglet_status fail_at(const struct reader *r, const char *expected, struct eaglet_error *err) {
  FAIL(err, EAGLET_E_INPUT, "%s: byte %zu: expected %s", r->what, (size_t)(r->at - r->text), expected);
}

static void skip_space(struct reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r')) r->at++;
}

static bool take(struct reader *r, char c) { /* with the white space around it */
  skip_space(r);
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  skip_space(r);
  return true;
}

static bool hex4(struct reader *r, uint32_t *value) {
  *value = 0;
  for (int i = 0; i < 4; i++, r->at++) {
    if (r->at == r->end) return false;
    char c = *r->at;
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return false;
    *value = *value * 16 + (uint32_t)digit;
  }
  return true;
}

static bool read_escape(struct reader *r) { /* at is behind the backslash */
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (r->at == r->end) return false;
  char c = *r->at++;
  const char *found = c ? strchr(from, c) : NULL;
  if (found) {
    buffer_append_char(&r->string, to[found - from]);
    return true;
  }
  uint32_t high, low;
  if (c != 'u' || !hex4(r, &high)) return false;
  if (high >= 0xd800 && high < 0xdc00) {
    if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u') return false;
    r->at += 2;
    if (!hex4(r, &low) || low < 0xdc00 || low > 0xdfff) return false;
    high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  } else if (high >= 0xdc00 && high < 0xe000)
    return false;
  buffer_append_codepoint(&r->string, high);
  return true;
}

/* *data points into the text, or into r->string when there were escapes (valid until the next string). */
static enum eaglet_status read_string(struct reader *r, const char **data, size_t *length, struct eaglet_error *err) {
  if (r->at == r->end || *r->at != '"') return fail_at(r, "a string", err);
  const char *begin = ++r->at;
  while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (uint8_t)*r->at >= 0x20) r->at++;
  if (r->at < r->end && *r->at == '"') {
    *data = begin;
    *length = (size_t)(r->at++ - begin);
    return EAGLET_OK;
  }
  buffer_reset(&r->string);
  buffer_append(&r->string, begin, (size_t)(r->at - begin));
  while (r->at < r->end && *r->at != '"') {
    if ((uint8_t)*r->at < 0x20) return fail_at(r, "a string without control characters", err);
    if (*r->at != '\\') {
      buffer_append_char(&r->string, *r->at++);
      continue;
    }
    r->at++;
    if (!read_escape(r)) return fail_at(r, "a valid escape sequence", err);
  }
  if (r->at == r->end) return fail_at(r, "the end of a string", err);
  r->at++;
  *data = r->string.data;
  *length = r->string.length;
  return EAGLET_OK;
}

/* Skips one value, checking only what finds its end. */
static enum eaglet_status skip_value(struct reader *r, struct eaglet_error *err) {
  int depth = 0;
  do {
    skip_space(r);
    if (r->at == r->end) return fail_at(r, "a value", err);
    const char *data;
    size_t length;
    if (*r->at == '"')
      TRY(read_string(r, &data, &length, err));
    else {
      depth += *r->at == '{' || *r->at == '[';
      depth -= *r->at == '}' || *r->at == ']';
      if (depth > DEPTH_MAX || depth < 0) return fail_at(r, "a value", err);
      if (depth == 0 && strchr("]}", *r->at) == NULL) /* a number or a word */
        while (r->at + 1 < r->end && strchr(",]} \t\r\n", r->at[1]) == NULL) r->at++;
      r->at++;
    }
  } while (depth > 0);
  skip_space(r);
  return EAGLET_OK;
}

static bool key_is(const char *key, size_t length, const char *name) { return length == strlen(name) && memcmp(key, name, length) == 0; }

/* Inside the object `model`: the spans of its large values. */
static enum eaglet_status find_parts(struct reader *r, struct text_span *vocab, struct text_span *merges, struct eaglet_error *err) {
  r->at++;
  if (take(r, '}')) return EAGLET_OK;
  do {
    const char *key;
    size_t length;
    TRY(read_string(r, &key, &length, err));
    bool is_vocab = key_is(key, length, "vocab"), is_merges = key_is(key, length, "merges");
    if (!take(r, ':')) return fail_at(r, "':'", err);
    size_t begin = (size_t)(r->at - r->text);
    bool open = r->at < r->end && *r->at == (is_vocab ? '{' : '[');
    TRY(skip_value(r, err));
    struct text_span *span = is_vocab ? vocab : is_merges ? merges : NULL;
    if (!span || !open) continue;
    if (span->end) return fail_at(r, "each of vocab and merges once", err);
    *span = (struct text_span){begin, (size_t)(r->at - r->text)};
  } while (take(r, ','));
  return take(r, '}') ? EAGLET_OK : fail_at(r, "',' or '}'", err);
}

enum eaglet_status json_parts_find(struct json_parts *parts, const char *text, size_t length, const char *what, struct eaglet_error *err) {
  struct reader r = {.text = text, .end = text + length, .at = text, .what = what};
  *parts = (struct json_parts){0};
  enum eaglet_status status = EAGLET_OK;
  if (!take(&r, '{')) status = fail_at(&r, "an object", err);
  if (status == EAGLET_OK && take(&r, '}')) goto done;
  while (status == EAGLET_OK) {
    const char *key;
    size_t key_length;
    TRY_GOTO(read_string(&r, &key, &key_length, err), done);
    bool is_model = key_is(key, key_length, "model");
    if (!take(&r, ':')) TRY_GOTO(fail_at(&r, "':'", err), done);
    if (is_model && r.at < r.end && *r.at == '{') TRY_GOTO(find_parts(&r, &parts->vocab, &parts->merges, err), done);
    else TRY_GOTO(skip_value(&r, err), done);
    if (!take(&r, ',')) break;
  }
done:
  buffer_clear(&r.string);
  return status;
}

/* ---- the parts ---- */

static enum eaglet_status read_id(struct reader *r, uint32_t *id, struct eaglet_error *err) {
  uint64_t value = 0;
  const char *begin = r->at;
  for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && value <= TOKEN_ID_MAX; r->at++) value = value * 10 + (uint64_t)(*r->at - '0');
  if (r->at == begin || value > TOKEN_ID_MAX) return fail_at(r, "a token id", err);
  *id = (uint32_t)value;
  return EAGLET_OK;
}

static void reader_open(struct reader *r, const char *text, struct text_span span, const char *what) {
  *r = (struct reader){.text = text, .end = text + span.end, .at = text + span.begin, .what = what};
}

enum eaglet_status json_read_vocab(struct json_vocab *vocab, const char *text, struct text_span span, const char *what, struct eaglet_error *err) {
  struct reader r;
  reader_open(&r, text, span, what);
  enum eaglet_status status = EAGLET_OK;
  vocab->bytes = memory_alloc(span.end - span.begin + 1); /* decoded strings are no longer than written ones */
  if (!take(&r, '{')) status = fail_at(&r, "an object", err);
  bool more = status == EAGLET_OK && !take(&r, '}');
  while (more) {
    const char *key;
    size_t length;
    struct json_entry entry = {.at = (uint32_t)vocab->n_bytes};
    TRY_GOTO(read_string(&r, &key, &length, err), done);
    memcpy(vocab->bytes + vocab->n_bytes, key, length);
    vocab->n_bytes += length;
    entry.length = (uint32_t)length;
    if (!take(&r, ':')) TRY_GOTO(fail_at(&r, "':'", err), done);
    TRY_GOTO(read_id(&r, &entry.id, err), done);
    MEMORY_GROW(vocab->entries, vocab->capacity, vocab->n + 1);
    vocab->entries[vocab->n++] = entry;
    more = take(&r, ',');
    if (!more && !take(&r, '}')) TRY_GOTO(fail_at(&r, "',' or '}'", err), done);
  }
done:
  buffer_clear(&r.string);
  return status;
}

void json_vocab_release(struct json_vocab *vocab) {
  free(vocab->bytes);
  free(vocab->entries);
  *vocab = (struct json_vocab){0};
}

/* ["a", "b"]: both spellings end up in joined, with the place between them. */
static enum eaglet_status read_merge_pair(struct reader *r, struct buffer *joined, size_t *middle, struct eaglet_error *err) {
  const char *data;
  size_t length;
  buffer_reset(joined);
  if (*r->at == '"') {
    TRY(read_string(r, &data, &length, err));
    if (length >= 8 && memcmp(data, "#version", 8) == 0) { /* a first line of merges.txt that was taken along */
      *middle = 0;
      return EAGLET_OK;
    }
    const char *space = memchr(data, ' ', length);
    if (!space || space == data || space + 1 == data + length || memchr(space + 1, ' ', (size_t)(data + length - space - 1)))
      return fail_at(r, "two parts separated by one space before here", err);
    *middle = (size_t)(space - data);
    buffer_append(joined, data, *middle);
    buffer_append(joined, space + 1, length - *middle - 1);
    return EAGLET_OK;
  }
  if (!take(r, '[')) return fail_at(r, "a merge", err);
  TRY(read_string(r, &data, &length, err));
  buffer_append(joined, data, length);
  *middle = joined->length;
  if (!take(r, ',')) return fail_at(r, "','", err);
  TRY(read_string(r, &data, &length, err));
  buffer_append(joined, data, length);
  if (*middle == 0 || *middle == joined->length) return fail_at(r, "two parts that are not empty before here", err);
  return take(r, ']') ? EAGLET_OK : fail_at(r, "']'", err);
}

enum eaglet_status json_read_merges(const struct json_merge_sink *sink, const char *text, struct text_span span, const char *what,
                                    struct eaglet_error *err) {
  struct reader r;
  reader_open(&r, text, span, what);
  struct buffer joined;
  buffer_init(&joined);
  enum eaglet_status status = EAGLET_OK;
  if (!take(&r, '[')) status = fail_at(&r, "an array", err);
  bool more = status == EAGLET_OK && !take(&r, ']');
  while (more) {
    size_t middle = 0;
    if (r.at == r.end) TRY_GOTO(fail_at(&r, "a merge", err), done);
    TRY_GOTO(read_merge_pair(&r, &joined, &middle, err), done);
    if (middle) TRY_GOTO(sink->add(sink->context, joined.data, middle, joined.length, err), done);
    more = take(&r, ',');
    if (!more && !take(&r, ']')) TRY_GOTO(fail_at(&r, "',' or ']'", err), done);
  }
done:
  buffer_clear(&r.string);
  buffer_clear(&joined);
  return status;
}
