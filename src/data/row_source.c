/* row_source.c - see row_source.h. One window slides over the stream: [at, end) is not yet taken, and what a row needs stays in it until the
 * row is given on. A value is found by counting brackets outside strings; the count goes on where the window ended, so that no byte is looked
 * at twice. Owns the decision what a file is; leaves it to the JSON parser whether a row is sound. */
#include "data/row_source.h"

#include "base/json.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define READ_BYTES ((size_t)64 << 10)
#define READ_BYTES_MIN ((size_t)16 << 10) /* room for less makes the window grow */

enum shape { SHAPE_LINES, SHAPE_ARRAY, SHAPE_DOCUMENTS };

struct row_source {
  struct file_stream *stream;
  enum shape shape;
  size_t row_bytes_max;
  char *window;
  size_t capacity, at, end;
  uint64_t line;     /* of window[counted], from 1 */
  uint64_t column;   /* bytes between the line's begin and window[counted] */
  size_t counted;    /* at most at */
  bool exhausted;    /* the stream has no more */
  bool begun, ended; /* the array's '[' was taken; there are no more rows */
};

/* ---- the window ---- */

/* Newlines before `to` into the position. */
static void count_lines(struct row_source *s, size_t to) {
  for (const char *newline; s->counted < to && (newline = memchr(s->window + s->counted, '\n', to - s->counted));) {
    s->counted = (size_t)(newline - s->window) + 1;
    s->line++;
    s->column = 0;
  }
  s->column += to - s->counted;
  s->counted = to;
}

/* Reads more behind `end`; what is before `at` goes. False at the end of the stream. */
static enum eaglet_status fill(struct row_source *s, bool *more, struct eaglet_error *err) {
  size_t n = 0;
  *more = false;
  if (s->exhausted) return EAGLET_OK;
  if (s->at > 0) {
    count_lines(s, s->at);
    memmove(s->window, s->window + s->at, s->end - s->at);
    s->end -= s->at;
    s->at = s->counted = 0;
  }
  if (s->capacity - s->end < READ_BYTES_MIN) MEMORY_GROW(s->window, s->capacity, s->end + READ_BYTES);
  TRY(file_stream_read(s->stream, s->window + s->end, s->capacity - s->end, &n, err));
  s->end += n;
  s->exhausted = n == 0;
  *more = n > 0;
  return EAGLET_OK;
}

static bool is_blank_char(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Moves to the next byte that is not blank; at == end only at the end of the stream. */
static enum eaglet_status skip_blank(struct row_source *s, struct eaglet_error *err) {
  bool more = true;
  for (;;) {
    while (s->at < s->end && is_blank_char(s->window[s->at])) s->at++;
    if (s->at < s->end || !more) return EAGLET_OK;
    TRY(fill(s, &more, err));
  }
}

/* ---- a value ---- */

struct scan {
  size_t length;    /* bytes of the value looked at */
  size_t depth;
  size_t string_at; /* the open string's quote, when in_string */
  bool in_string, scalar, complete;
};

static bool is_closed_by(const char *text, size_t quote, size_t string_at) {
  size_t n = 0;
  while (quote - n > string_at + 1 && text[quote - n - 1] == '\\') n++;
  return n % 2 == 0;
}

enum byte_kind { BYTE_PLAIN, BYTE_QUOTE, BYTE_OPEN, BYTE_CLOSE };
static const uint8_t byte_kinds[256] = {['"'] = BYTE_QUOTE, ['{'] = BYTE_OPEN, ['['] = BYTE_OPEN, ['}'] = BYTE_CLOSE, [']'] = BYTE_CLOSE};

static size_t scan_string(struct scan *scan, const char *text, size_t length, size_t at) {
  const char *quote = memchr(text + at, '"', length - at);
  if (!quote) return length;
  at = (size_t)(quote - text);
  scan->in_string = !is_closed_by(text, at, scan->string_at);
  return at + 1;
}

/* Goes on through text[0..length), the value from its first byte; complete when its end was found, which is then scan->length. Brackets are
 * counted, not matched: that is the parser's work. */
static void scan_more(struct scan *scan, const char *text, size_t length) {
  size_t at = scan->length;
  if (at == 0 && length > 0) scan->scalar = byte_kinds[(uint8_t)*text] == BYTE_PLAIN || byte_kinds[(uint8_t)*text] == BYTE_CLOSE;
  if (scan->scalar) {
    while (at < length && !is_blank_char(text[at]) && text[at] && !strchr(",]}", text[at])) at++;
    scan->complete = at < length;
    scan->length = at;
    return;
  }
  while (at < length && !scan->complete) {
    if (scan->in_string) {
      at = scan_string(scan, text, length, at);
    } else {
      while (at < length && byte_kinds[(uint8_t)text[at]] == BYTE_PLAIN) at++;
      if (at == length) break;
      enum byte_kind kind = byte_kinds[(uint8_t)text[at]];
      scan->in_string = kind == BYTE_QUOTE;
      scan->string_at = at;
      scan->depth += kind == BYTE_OPEN;
      scan->depth -= kind == BYTE_CLOSE;
      at++;
    }
    scan->complete = scan->depth == 0 && !scan->in_string;
  }
  scan->length = at;
}

static enum eaglet_status broken(struct row_source *s, const char *what, struct eaglet_error *err) {
  count_lines(s, s->at);
  FAIL(err, EAGLET_E_INPUT, "%s:%llu: column %llu: %s", file_stream_name(s->stream), (unsigned long long)s->line,
       (unsigned long long)s->column + 1, what);
}

/* The value at `at` as far as there is one: until its end, the stream's, or the limit. */
static enum eaglet_status scan_value(struct row_source *s, struct scan *scan, struct eaglet_error *err) {
  bool more = true;
  for (;;) {
    scan_more(scan, s->window + s->at, s->end - s->at);
    if (scan->complete || !more || scan->length > s->row_bytes_max) break;
    TRY(fill(s, &more, err));
  }
  if (scan->scalar && !more) scan->complete = true; /* a number may end with the file */
  return EAGLET_OK;
}

/* ---- what is it? ---- */

static const char *foreign_kind(const char *text, size_t n) {
  static const struct {
    const char *bytes;
    size_t n;
    const char *kind;
  } kinds[] = {{"\xff\xfe", 2, "UTF-16 text: convert it to UTF-8"},
               {"\xfe\xff", 2, "UTF-16 text: convert it to UTF-8"},
               {"{\0", 2, "UTF-16 text: convert it to UTF-8"},
               {"[\0", 2, "UTF-16 text: convert it to UTF-8"},
               {"\0{", 2, "UTF-16 text: convert it to UTF-8"},
               {"\0[", 2, "UTF-16 text: convert it to UTF-8"},
               {"PAR1", 4, "a Parquet file that comes packed or through a pipe: it is read from its end, so put it into a plain file"},
               {"ARROW1", 6, "an Arrow file: convert it to Parquet or JSON lines"},
               {"\x1f\x8b", 2, "packed by gzip twice: unpack it once"},
               {"\x28\xb5\x2f\xfd", 4, "packed by zstd twice: unpack it once"},
               {"\xfd" "7zXZ", 5, "compressed by xz: unpack it first"},
               {"\x04\x22\x4d\x18", 4, "compressed by lz4: unpack it first"},
               {"BZh", 3, "compressed by bzip2: unpack it first"},
               {"PK\x03\x04", 4, "a ZIP archive: unpack it first"},
               {"version https://git-lfs", 23, "a Git LFS pointer, not the data: fetch it with `git lfs pull`"},
               {"<", 1, "an HTML or XML page, not data (a failed download?)"}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (n >= kinds[i].n && memcmp(text, kinds[i].bytes, kinds[i].n) == 0) return kinds[i].kind;
  }
  return NULL;
}

static bool is_message(const char *text, size_t length) {
  json_t *first = NULL;
  if (json_parse(&first, text, length, "row", NULL) != EAGLET_OK) return false;
  bool message = json_object_get(first, "role") || (json_object_get(first, "from") && json_object_get(first, "value"));
  json_decref(first);
  return message;
}

/* A value that ends in its first line makes JSON lines, one that goes on documents. A line that breaks off inside a string, or a value that
 * never ends, is a broken line and told as one. */
static enum eaglet_status shape_of_value(struct row_source *s, struct eaglet_error *err) {
  struct scan scan = {0};
  bool more = true, split = false;
  s->shape = SHAPE_LINES;
  while (!scan.complete && scan.length <= s->row_bytes_max) {
    size_t from = scan.length;
    const char *text = s->window + s->at;
    const char *newline = memchr(text + from, '\n', s->end - s->at - from);
    size_t stop = newline && !split ? (size_t)(newline - text) : s->end - s->at;
    scan_more(&scan, text, stop);
    if (scan.complete) break;
    if (newline && !split) {
      if (scan.in_string) return EAGLET_OK;
      split = true;
      continue;
    }
    if (!more) return EAGLET_OK;
    TRY(fill(s, &more, err));
  }
  if (split && scan.complete) s->shape = SHAPE_DOCUMENTS;
  return EAGLET_OK;
}

/* Where the array's first element begins, from `at`; 0 when the stream ends first. What is looked at stays in the window. */
static enum eaglet_status find_element(struct row_source *s, size_t *offset, struct eaglet_error *err) {
  bool more = true;
  for (*offset = 1; *offset <= s->row_bytes_max;) {
    if (s->at + *offset == s->end) {
      TRY(fill(s, &more, err));
      if (!more) break;
    }
    if (!is_blank_char(s->window[s->at + *offset])) return EAGLET_OK;
    ++*offset;
  }
  *offset = 0;
  return EAGLET_OK;
}

/* An array whose first element is a message is one conversation, not an array of rows; so is an empty one with something behind it. */
static enum eaglet_status shape_of_array(struct row_source *s, struct eaglet_error *err) {
  size_t offset;
  bool more = true;
  s->shape = SHAPE_ARRAY;
  TRY(find_element(s, &offset, err));
  if (offset == 0) return EAGLET_OK;
  if (s->window[s->at + offset] == ']') {
    size_t next = offset + 1;
    for (;; next++) {
      if (s->at + next == s->end) TRY(fill(s, &more, err));
      if (!more || next > s->row_bytes_max) return EAGLET_OK;
      if (!is_blank_char(s->window[s->at + next])) return shape_of_value(s, err);
    }
  }
  if (s->window[s->at + offset] != '{') return EAGLET_OK;
  struct scan scan = {0};
  for (;;) {
    scan_more(&scan, s->window + s->at + offset, s->end - s->at - offset);
    if (scan.complete) break;
    if (!more || scan.length > s->row_bytes_max) return EAGLET_OK;
    TRY(fill(s, &more, err));
  }
  return is_message(s->window + s->at + offset, scan.length) ? shape_of_value(s, err) : EAGLET_OK;
}

static enum eaglet_status judge(struct row_source *s, struct eaglet_error *err) {
  bool more = true;
  while (s->end < 32 && more) TRY(fill(s, &more, err)); /* more than any kind's first bytes */
  const char *kind = foreign_kind(s->window, s->end);
  if (kind) FAIL(err, EAGLET_E_INPUT, "%s: is %s", file_stream_name(s->stream), kind);
  if (s->end >= 3 && !memcmp(s->window, "\xef\xbb\xbf", 3)) s->at = s->counted = 3;
  TRY(skip_blank(s, err));
  if (s->at == s->end) return EAGLET_OK;
  if (s->window[s->at] == '[') return shape_of_array(s, err);
  if (s->window[s->at] == '{') return shape_of_value(s, err);
  return EAGLET_OK;
}

enum eaglet_status row_source_open(struct row_source **source, const char *path, size_t row_bytes_max, struct eaglet_error *err) {
  struct row_source *s = memory_alloc(sizeof *s);
  *source = NULL;
  s->row_bytes_max = row_bytes_max ? row_bytes_max : ROW_BYTES_MAX_DEFAULT;
  s->line = 1;
  s->shape = SHAPE_LINES;
  enum eaglet_status status = file_stream_open(&s->stream, path, err);
  if (status == EAGLET_OK) status = judge(s, err);
  if (status != EAGLET_OK) {
    row_source_close(s);
    return status;
  }
  *source = s;
  return EAGLET_OK;
}

uint64_t row_source_position(const struct row_source *s) { return file_stream_position(s->stream); }

void row_source_close(struct row_source *s) {
  if (!s) return;
  file_stream_close(s->stream);
  free(s->window);
  free(s);
}

/* ---- rows ---- */

static void locate(struct row_source *s, struct row_text *row) {
  count_lines(s, s->at);
  row->line = s->line;
  row->column = s->column + 1;
}

/* Gives up what is left of a line that is too long. */
static enum eaglet_status pass_line(struct row_source *s, struct row_text *row, struct eaglet_error *err) {
  bool more = true;
  locate(s, row);
  row->text = "";
  row->too_long = true;
  for (;;) {
    const char *newline = memchr(s->window + s->at, '\n', s->end - s->at);
    s->at = newline ? (size_t)(newline - s->window) : s->end;
    if (newline || !more) return EAGLET_OK;
    TRY(fill(s, &more, err));
  }
}

/* Blank lines are no rows; blanks before a row count in its column. A line begins where skip_blank stands or earlier in the same line. */
static enum eaglet_status next_line(struct row_source *s, struct row_text *row, struct eaglet_error *err) {
  size_t searched = 0;
  bool more = true;
  const char *newline = NULL;
  TRY(skip_blank(s, err));
  s->ended = s->at == s->end;
  if (s->ended) return EAGLET_OK;
  for (;;) {
    newline = memchr(s->window + s->at + searched, '\n', s->end - s->at - searched);
    if (newline || !more) break;
    searched = s->end - s->at;
    if (searched > s->row_bytes_max) return pass_line(s, row, err);
    TRY(fill(s, &more, err));
  }
  size_t end = newline ? (size_t)(newline - s->window) : s->end;
  if (end - s->at > s->row_bytes_max) return pass_line(s, row, err);
  locate(s, row);
  row->text = s->window + s->at;
  row->length = end - s->at;
  s->at = end;
  return EAGLET_OK;
}

/* The row that begins at `at`. */
static enum eaglet_status take_value(struct row_source *s, struct row_text *row, struct eaglet_error *err) {
  struct scan scan = {0};
  TRY(scan_value(s, &scan, err));
  if (scan.length > s->row_bytes_max) {
    count_lines(s, s->at);
    FAIL(err, EAGLET_E_INPUT, "%s:%llu: this row has more than %zu MiB (--max-row)", file_stream_name(s->stream), (unsigned long long)s->line,
         s->row_bytes_max >> 20);
  }
  if (!scan.complete) return broken(s, "this row does not end before the file does (cut short?)", err);
  if (scan.length == 0) return broken(s, "expected a JSON value", err);
  locate(s, row);
  row->text = s->window + s->at;
  row->length = scan.length;
  s->at += scan.length;
  return EAGLET_OK;
}

/* To the first element, over '['. */
static enum eaglet_status begin_array(struct row_source *s, struct eaglet_error *err) {
  s->begun = true;
  s->at++;
  return skip_blank(s, err);
}

static enum eaglet_status next_element(struct row_source *s, struct row_text *row, struct eaglet_error *err) {
  static const char *const cut = "the array does not end before the file does (cut short?)";
  bool first = !s->begun;
  TRY(skip_blank(s, err));
  if (first) TRY(begin_array(s, err));
  if (s->at == s->end) return broken(s, cut, err);
  if (s->window[s->at] == ']') {
    s->at++;
    TRY(skip_blank(s, err));
    s->ended = true;
    return s->at == s->end ? EAGLET_OK : broken(s, "expected nothing behind the array", err);
  }
  if (!first) {
    if (s->window[s->at] != ',') return broken(s, "expected ',' or ']' behind a row of the array", err);
    count_lines(s, s->at);
    uint64_t line = s->line, column = s->column + 1;
    s->at++;
    TRY(skip_blank(s, err));
    if (s->at < s->end && s->window[s->at] == ']')
      FAIL(err, EAGLET_E_INPUT, "%s:%llu: column %llu: a comma before the end of the array: not valid JSON", file_stream_name(s->stream),
           (unsigned long long)line, (unsigned long long)column);
    if (s->at == s->end) return broken(s, cut, err);
  }
  return take_value(s, row, err);
}

enum eaglet_status row_source_next(struct row_source *s, struct row_text *row, struct eaglet_error *err) {
  *row = (struct row_text){0};
  if (s->ended) return EAGLET_OK;
  if (s->shape == SHAPE_ARRAY) return next_element(s, row, err);
  if (s->shape == SHAPE_LINES) return next_line(s, row, err);
  TRY(skip_blank(s, err));
  s->ended = s->at == s->end;
  return s->ended ? EAGLET_OK : take_value(s, row, err);
}
