/* file_lines.c - the streaming line reader of file.h. Keeps one window of the input in memory and slides it; a line is a piece of
 * the window with its newline replaced by NUL. Does not look at the text beyond newlines and a byte-order mark. */
#include "base/file.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX ((size_t)256 << 20)
#define READ_BYTES ((size_t)64 << 10)

struct file_lines {
  struct file_stream *stream;
  char *window;
  size_t capacity;
  size_t start, end; /* unread bytes of the window */
  uint64_t number;
  bool ended;
};

enum eaglet_status file_lines_open(struct file_lines **lines, const char *path, struct eaglet_error *err) {
  *lines = NULL;
  struct file_stream *stream;
  TRY(file_stream_open(&stream, path, err));
  *lines = memory_alloc(sizeof **lines);
  (*lines)->stream = stream;
  return EAGLET_OK;
}

/* Reads more behind the unread bytes. */
static enum eaglet_status window_fill(struct file_lines *lines, struct eaglet_error *err) {
  size_t unread = lines->end - lines->start;
  if (unread > LINE_BYTES_MAX) {
    FAIL(err, EAGLET_E_INPUT, "%s: line %llu: expected at most %zu bytes, found more", file_stream_name(lines->stream),
         (unsigned long long)lines->number + 1, LINE_BYTES_MAX);
  }
  if (lines->start > 0) memmove(lines->window, lines->window + lines->start, unread);
  lines->start = 0;
  lines->end = unread;
  MEMORY_GROW(lines->window, lines->capacity, unread + READ_BYTES + 1);
  size_t n = 0;
  TRY(file_stream_read(lines->stream, lines->window + unread, lines->capacity - unread - 1, &n, err));
  lines->ended = n == 0;
  lines->end += n;
  return EAGLET_OK;
}

enum eaglet_status file_lines_next(struct file_lines *lines, const char **line, size_t *length, struct eaglet_error *err) {
  *line = NULL;
  *length = 0;
  size_t searched = 0;
  char *newline = NULL;
  for (;;) {
    size_t unread = lines->end - lines->start;
    if (unread > searched) newline = memchr(lines->window + lines->start + searched, '\n', unread - searched);
    if (newline || lines->ended) break;
    searched = unread;
    TRY(window_fill(lines, err));
  }
  if (lines->start == lines->end) return EAGLET_OK;
  char *start = lines->window + lines->start;
  size_t n = newline ? (size_t)(newline - start) : lines->end - lines->start;
  lines->start += newline ? n + 1 : n;
  if (n > LINE_BYTES_MAX) FAIL(err, EAGLET_E_INPUT, "%s: line %llu is too long", file_stream_name(lines->stream), (unsigned long long)lines->number + 1);
  if (n > 0 && start[n - 1] == '\r') n--;
  start[n] = '\0';
  if (lines->number++ == 0 && n >= 3 && !memcmp(start, "\xef\xbb\xbf", 3)) start += 3, n -= 3;
  *line = start;
  *length = n;
  return EAGLET_OK;
}

uint64_t file_lines_number(const struct file_lines *lines) { return lines->number; }

void file_lines_close(struct file_lines *lines) {
  if (!lines) return;
  file_stream_close(lines->stream);
  free(lines->window);
  free(lines);
}
