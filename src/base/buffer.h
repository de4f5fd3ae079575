/* buffer.h - growing byte buffer (writer) and bounded cursor (reader).
 *
 * A buffer is always NUL-terminated after its length, so data can be used as a C string. Writers have a sticky error: when
 * limit (0 = none) would be passed, further appends are dropped and `overflow` stays true; check once at the end.
 * A cursor never reads past its end: reads that would are refused and set `failed`, and return zeros.
 */
#ifndef EAGLET_BASE_BUFFER_H
#define EAGLET_BASE_BUFFER_H

#include "base/error.h"

struct buffer {
  char *data;
  size_t length, capacity;
  size_t limit;
  bool overflow;
};
void buffer_init(struct buffer *buffer);
bool buffer_reserve(struct buffer *buffer, size_t more); /* room for more bytes, so that appending them does not allocate; false past the limit */
void buffer_append(struct buffer *buffer, const void *bytes, size_t length);
void buffer_append_string(struct buffer *buffer, const char *text);
void buffer_append_char(struct buffer *buffer, char c);
void buffer_append_codepoint(struct buffer *buffer, uint32_t codepoint); /* UTF-8 */
void buffer_format(struct buffer *buffer, const char *format, ...) PRINTF_LIKE(2, 3);
void buffer_reset(struct buffer *buffer);
void buffer_clear(struct buffer *buffer);
struct eaglet_text buffer_detach(struct buffer *buffer); /* the caller owns the text; buffer is empty again */

struct cursor {
  const uint8_t *data;
  size_t length, at;
  bool failed;
};
uint8_t cursor_u8(struct cursor *cursor);
uint32_t cursor_u32(struct cursor *cursor); /* little-endian */
uint64_t cursor_u64(struct cursor *cursor);
const uint8_t *cursor_bytes(struct cursor *cursor, size_t length); /* borrowed; NULL when too short */

/* UTF-8. utf8_decode reads one code point from text[0..length): returns its length in bytes, or 0 when invalid (overlong,
 * surrogate, > U+10FFFF, truncated). utf8_valid returns the offset of the first bad byte, or length when all is valid. */
int utf8_decode(const char *text, size_t length, uint32_t *codepoint);
size_t utf8_valid(const char *text, size_t length);

#endif
