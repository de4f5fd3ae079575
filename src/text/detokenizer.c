/* detokenizer.c - streaming UTF-8 with replacement. Of bytes that tokens share a character in, at most three wait: a longer
 * prefix is a whole character or cannot become one. Of byte-fallback runs all waits, for the run decides as a whole.
 */
#include "text/detokenizer.h"

#include "text/tokenizer_kind.h"
#include <string.h>

/* Looks at the character that starts text[0..length): returns its bytes (positive) when whole, the bytes of its longest
 * possible prefix (negative) when it cannot become valid, 0 when more bytes are needed. */
static int classify(const uint8_t *text, size_t length) {
  uint8_t first = text[0], low = 0x80, high = 0xbf;
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return -1;
  int n = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first == 0xe0) low = 0xa0;  /* overlong */
  if (first == 0xed) high = 0x9f; /* surrogates */
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f; /* above U+10FFFF */
  for (int i = 1; i < n; i++) {
    if ((size_t)i == length) return 0;
    if (text[i] < low || text[i] > high) return -i;
    low = 0x80;
    high = 0xbf;
  }
  return n;
}

static void replace(struct buffer *out) { buffer_append(out, "\xef\xbf\xbd", 3); }

/* Emits what is decided of text[0..length); returns the number of bytes consumed. */
static size_t decode(const uint8_t *text, size_t length, struct buffer *out) {
  size_t at = 0;
  while (at < length) {
    size_t run = at; /* whole characters go out in one append */
    int n = 1;
    while (run < length && (n = classify(text + run, length - run)) > 0) run += (size_t)n;
    if (run > at) buffer_append(out, text + at, run - at);
    at = run;
    if (at == length || n == 0) break;
    replace(out);
    at += (size_t)-n;
  }
  return at;
}

/* Text that is final: drops what a text is stripped of at its start, holds back what it may be stripped of at its end. */
static void put_text(struct detokenizer *d, const char *text, size_t length, struct buffer *out) {
  const struct decode_rules *rules = &d->tokenizer->decode;
  size_t n = strlen(rules->strip_text);
  for (; d->n_strip && length >= n && memcmp(text, rules->strip_text, n) == 0; d->n_strip--) {
    text += n;
    length -= n;
  }
  if (length == 0) return;
  d->n_strip = 0;
  size_t begin = out->length;
  for (; d->n_held; d->n_held--) buffer_append(out, rules->strip_text, n);
  buffer_append(out, text, length);
  while (d->n_held < rules->strip_stop && out->length - begin >= n && memcmp(out->data + out->length - n, rules->strip_text, n) == 0) {
    out->length -= n;
    out->data[out->length] = 0;
    d->n_held++;
  }
}

/* Ends the run of byte tokens; when it only overflows, an unfinished character stays. */
static void flush_run(struct detokenizer *d, bool ends, struct buffer *out) {
  size_t n = (size_t)d->n_run, valid = utf8_valid(d->run, n);
  d->n_run = 0;
  if (valid == n || (!ends && n - valid <= 3)) {
    put_text(d, d->run, valid, out);
    memmove(d->run, d->run + valid, n - valid);
    d->n_run = (int)(n - valid);
  } else
    for (size_t i = 0; i < n; i++) put_text(d, "\xef\xbf\xbd", 3, out);
}

/* Bytes of a token that may share characters with its neighbours. */
static void put_bytes(struct detokenizer *d, const char *bytes, size_t length, struct buffer *out) {
  while (length && d->n_pending) { /* complete the waiting character byte by byte */
    uint8_t joined[sizeof d->pending];
    size_t n = (size_t)d->n_pending;
    memcpy(joined, d->pending, n);
    joined[n++] = (uint8_t)*bytes++;
    length--;
    size_t used = decode(joined, n, out);
    d->n_pending = (int)(n - used);
    memcpy(d->pending, joined + used, n - used);
  }
  size_t used = decode((const uint8_t *)bytes, length, out);
  if (used == length) return;
  d->n_pending = (int)(length - used);
  ASSERT(d->n_pending <= 3);
  memcpy(d->pending, bytes + used, length - used);
}

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer) {
  *detokenizer = (struct detokenizer){.tokenizer = tokenizer, .n_strip = tokenizer->decode.strip_start};
}

void detokenizer_push(struct detokenizer *d, int32_t id, struct buffer *out) {
  const struct tokenizer *tokenizer = d->tokenizer;
  const struct decode_rules *rules = &tokenizer->decode;
  size_t length;
  const char *bytes = tokenizer_bytes(tokenizer, id, &length);
  if (!bytes) { /* not an id of this tokenizer: visible, and it ends a pending character */
    detokenizer_finish(d, out);
    replace(out);
    return;
  }
  if (d->skip_special && tokenizer_is_special(tokenizer, id)) return;
  bool first = !d->started;
  d->started = true;
  if (!first && rules->separate) put_bytes(d, " ", 1, out);
  if (rules->byte_runs && tokenizer->token_flags[id] & TOKEN_BYTE) {
    if (d->n_run == (int)sizeof d->run) flush_run(d, false, out);
    d->run[d->n_run++] = *bytes;
    return;
  }
  flush_run(d, true, out);
  struct buffer special_first;
  buffer_init(&special_first);
  if (first && rules->first_differs) {
    tokenizer->kind->decode_first(tokenizer, id, &special_first);
    bytes = special_first.data;
    length = special_first.length;
  }
  if (rules->byte_runs || rules->strip_start || rules->strip_stop) put_text(d, bytes, length, out); /* such texts are whole characters */
  else put_bytes(d, bytes, length, out);
  buffer_clear(&special_first);
}

void detokenizer_finish(struct detokenizer *detokenizer, struct buffer *out) {
  flush_run(detokenizer, true, out);
  if (detokenizer->n_pending) replace(out); /* a prefix of a character is one invalid part */
  detokenizer->n_pending = 0;
}
