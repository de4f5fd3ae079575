/* buffer.c - growing buffer, bounded cursor, UTF-8; see buffer.h. Knows nothing of files or formats. */
#include "base/buffer.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_FIRST 64

void buffer_init(struct buffer *buffer) {
  *buffer = (struct buffer){0};
  buffer->data = memory_alloc(CAPACITY_FIRST);
  buffer->capacity = CAPACITY_FIRST;
}

/* Makes room for length more bytes and the NUL. False (and overflow) when the limit forbids them. */
bool buffer_reserve(struct buffer *buffer, size_t length) {
  if (buffer->overflow) return false;
  ASSERT(length < SIZE_MAX - buffer->length);
  if (buffer->limit && buffer->length + length > buffer->limit) {
    buffer->overflow = true;
    return false;
  }
  MEMORY_GROW(buffer->data, buffer->capacity, buffer->length + length + 1);
  return true;
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t length) {
  if (!buffer_reserve(buffer, length)) return;
  if (length > 0) memcpy(buffer->data + buffer->length, bytes, length);
  buffer->length += length;
  buffer->data[buffer->length] = '\0';
}

void buffer_append_string(struct buffer *buffer, const char *text) { buffer_append(buffer, text, strlen(text)); }

void buffer_append_char(struct buffer *buffer, char c) { buffer_append(buffer, &c, 1); }

void buffer_append_codepoint(struct buffer *buffer, uint32_t codepoint) {
  uint32_t u = codepoint;
  if (u > 0x10ffffu || (u >= 0xd800u && u <= 0xdfffu)) u = 0xfffdu;
  unsigned char b[4];
  size_t n;
  if (u < 0x80u) {
    b[0] = (unsigned char)u, n = 1;
  } else if (u < 0x800u) {
    b[0] = (unsigned char)(0xc0u | u >> 6), n = 2;
  } else if (u < 0x10000u) {
    b[0] = (unsigned char)(0xe0u | u >> 12), n = 3;
  } else {
    b[0] = (unsigned char)(0xf0u | u >> 18), n = 4;
  }
  for (size_t i = n - 1; i > 0; i--, u >>= 6) b[i] = (unsigned char)(0x80u | (u & 0x3fu));
  buffer_append(buffer, b, n);
}

void buffer_format(struct buffer *buffer, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  ASSERT(length >= 0);
  if (!buffer_reserve(buffer, (size_t)length)) return;
  va_start(arguments, format);
  vsnprintf(buffer->data + buffer->length, (size_t)length + 1, format, arguments);
  va_end(arguments);
  buffer->length += (size_t)length;
}

void buffer_reset(struct buffer *buffer) {
  buffer->length = 0;
  buffer->overflow = false;
  if (buffer->data) buffer->data[0] = '\0';
}

void buffer_clear(struct buffer *buffer) {
  free(buffer->data);
  *buffer = (struct buffer){0};
}

struct eaglet_text buffer_detach(struct buffer *buffer) {
  struct eaglet_text text = {.data = buffer->data, .length = buffer->length};
  if (!text.data) text.data = memory_alloc(1);
  *buffer = (struct buffer){.limit = buffer->limit};
  return text;
}

const uint8_t *cursor_bytes(struct cursor *cursor, size_t length) {
  if (cursor->failed || cursor->at > cursor->length || length > cursor->length - cursor->at) {
    cursor->failed = true;
    return NULL;
  }
  const uint8_t *bytes = cursor->data + cursor->at;
  cursor->at += length;
  return bytes;
}

static uint64_t cursor_little_endian(struct cursor *cursor, size_t length) {
  const uint8_t *bytes = cursor_bytes(cursor, length);
  uint64_t value = 0;
  for (size_t i = length; bytes && i > 0; i--) value = value << 8 | bytes[i - 1];
  return value;
}

uint8_t cursor_u8(struct cursor *cursor) { return (uint8_t)cursor_little_endian(cursor, 1); }
uint32_t cursor_u32(struct cursor *cursor) { return (uint32_t)cursor_little_endian(cursor, 4); }
uint64_t cursor_u64(struct cursor *cursor) { return cursor_little_endian(cursor, 8); }

int utf8_decode(const char *text, size_t length, uint32_t *codepoint) {
  static const uint32_t least[5] = {0, 0, 0x80u, 0x800u, 0x10000u};
  if (length == 0) return 0;
  const unsigned char *b = (const unsigned char *)text;
  if (b[0] < 0x80u) {
    *codepoint = b[0];
    return 1;
  }
  int n = b[0] >= 0xf0u ? 4 : b[0] >= 0xe0u ? 3 : 2;
  if (b[0] < 0xc2u || b[0] > 0xf4u || (size_t)n > length) return 0;
  uint32_t u = b[0] & (0x7fu >> n);
  for (int i = 1; i < n; i++) {
    if ((b[i] & 0xc0u) != 0x80u) return 0;
    u = u << 6 | (b[i] & 0x3fu);
  }
  if (u < least[n] || u > 0x10ffffu || (u >= 0xd800u && u <= 0xdfffu)) return 0;
  *codepoint = u;
  return n;
}

size_t utf8_valid(const char *text, size_t length) {
  size_t at = 0;
  while (at < length) {
    uint32_t ignored;
    int n = utf8_decode(text + at, length - at, &ignored);
    if (n == 0) break;
    at += (size_t)n;
  }
  return at;
}
