/* detokenizer.c - streaming UTF-8 with replacement. At most three bytes wait: a longer prefix is a whole character or cannot
 * become one.
 */
#include "text/detokenizer.h"

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

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer) {
  *detokenizer = (struct detokenizer){.tokenizer = tokenizer};
}

void detokenizer_push(struct detokenizer *detokenizer, int32_t id, struct buffer *out) {
  size_t length;
  const char *bytes = tokenizer_bytes(detokenizer->tokenizer, id, &length);
  if (!bytes) { /* not an id of this tokenizer: visible, and it ends a pending character */
    detokenizer_finish(detokenizer, out);
    replace(out);
    return;
  }
  while (length && detokenizer->n_pending) { /* complete the waiting character byte by byte */
    uint8_t joined[sizeof detokenizer->pending];
    size_t n = (size_t)detokenizer->n_pending;
    memcpy(joined, detokenizer->pending, n);
    joined[n++] = (uint8_t)*bytes++;
    length--;
    size_t used = decode(joined, n, out);
    detokenizer->n_pending = (int)(n - used);
    memcpy(detokenizer->pending, joined + used, n - used);
  }
  size_t used = decode((const uint8_t *)bytes, length, out);
  if (used == length) return;
  detokenizer->n_pending = (int)(length - used);
  ASSERT(detokenizer->n_pending <= 3);
  memcpy(detokenizer->pending, bytes + used, length - used);
}

void detokenizer_finish(struct detokenizer *detokenizer, struct buffer *out) {
  if (detokenizer->n_pending) replace(out); /* a prefix of a character is one invalid part */
  detokenizer->n_pending = 0;
}
