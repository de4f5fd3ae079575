/* row_source.c - see row_source.h. Lines are streamed; arrays and documents are scanned in the mapped file (or, from a pipe, in memory), so
 * that one row at a time is parsed. Owns the decision what a file is; leaves it to the JSON parser whether a row is sound. */
#include "data/row_source.h"

#include "base/buffer.h"
#include "base/json.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define PIPE_BYTES_MAX ((size_t)1 << 30) /* of an array that comes through a pipe */

enum shape { SHAPE_LINES, SHAPE_ARRAY, SHAPE_DOCUMENTS };

struct row_source {
  char *path;
  enum shape shape;
  struct file_lines *lines;   /* SHAPE_LINES; also what a pipe is read through */
  char *first;                /* the first line of a pipe, already taken */
  size_t n_first;
  struct file_map map;
  struct buffer gathered;     /* instead of map, from a pipe */
  const char *text;           /* of the other shapes */
  size_t length, at;
  uint64_t line, n_rows;
  size_t counted, line_begin; /* newlines before `counted` are in `line` */
  bool begun, ended;
};

/* ---- JSON as structure ---- */

static bool is_blank_char(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static size_t skip_blank(const char *text, size_t length, size_t at) {
  while (at < length && is_blank_char(text[at])) at++;
  return at;
}

static size_t skip_string(const char *text, size_t length, size_t at) {
  for (at++; at < length && text[at] != '"'; at++) {
    if (text[at] == '\\') at++;
  }
  return at < length ? at + 1 : length + 1;
}

/* Where the value that begins at `at` ends; 0 when the text ends first. Brackets are counted, not matched: that is the parser's work. */
static size_t value_end(const char *text, size_t length, size_t at) {
  size_t depth = 0;
  if (text[at] != '{' && text[at] != '[' && text[at] != '"') {
    while (at < length && !is_blank_char(text[at]) && !strchr(",]}", text[at])) at++;
    return at;
  }
  do {
    char c = text[at];
    if (c == '"') {
      at = skip_string(text, length, at);
    } else {
      depth += c == '{' || c == '[';
      depth -= c == '}' || c == ']';
      at++;
    }
  } while (depth > 0 && at < length);
  return depth > 0 || at > length ? 0 : at;
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
               {"PAR1", 4, "a Parquet file: convert it to JSON lines"},
               {"ARROW1", 6, "an Arrow file: convert it to JSON lines"},
               {"\x1f\x8b", 2, "compressed by gzip: unpack it first"},
               {"\x28\xb5\x2f\xfd", 4, "compressed by zstd: unpack it first"},
               {"\xfd" "7zXZ", 5, "compressed by xz: unpack it first"},
               {"BZh", 3, "compressed by bzip2: unpack it first"},
               {"PK\x03\x04", 4, "a ZIP archive: unpack it first"},
               {"version https://git-lfs", 23, "a Git LFS pointer, not the data: fetch it with `git lfs pull`"},
               {"<", 1, "an HTML or XML page, not data (a failed download?)"}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (n >= kinds[i].n && memcmp(text, kinds[i].bytes, kinds[i].n) == 0) return kinds[i].kind;
  }
  return NULL;
}

/* An array whose first element is a message is one conversation, not an array of rows. */
static bool holds_messages(const char *text, size_t length, size_t at) {
  json_t *first = NULL;
  at = skip_blank(text, length, at + 1);
  size_t end = at < length && text[at] == '{' ? value_end(text, length, at) : 0;
  if (end == 0 || json_parse(&first, text + at, end - at, "row", NULL) != EAGLET_OK) return false;
  bool message = json_object_get(first, "role") || (json_object_get(first, "from") && json_object_get(first, "value"));
  json_decref(first);
  return message;
}

/* text[at] is the first byte that is not blank. */
static enum shape shape_of(const char *text, size_t length, size_t at) {
  if (at == length || (text[at] != '{' && text[at] != '[')) return SHAPE_LINES;
  const char *newline = memchr(text + at, '\n', length - at);
  size_t line_end = newline ? (size_t)(newline - text) : length, end = value_end(text, line_end, at);
  if (end > 0) { /* the first line holds a whole value */
    bool alone = skip_blank(text, line_end, end) == line_end && skip_blank(text, length, line_end) == length;
    return alone && text[at] == '[' && !holds_messages(text, length, at) ? SHAPE_ARRAY : SHAPE_LINES;
  }
  if (text[at] == '[') return holds_messages(text, length, at) ? SHAPE_DOCUMENTS : SHAPE_ARRAY;
  return value_end(text, length, at) > 0 ? SHAPE_DOCUMENTS : SHAPE_LINES; /* a broken line is told as a line */
}

static enum eaglet_status judge(struct row_source *s, const char *text, size_t length, struct eaglet_error *err) {
  const char *kind = foreign_kind(text, length);
  if (kind) FAIL(err, EAGLET_E_INPUT, "%s: is %s", s->path, kind);
  s->at = length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
  s->shape = shape_of(text, length, skip_blank(text, length, s->at));
  s->text = text;
  s->length = length;
  s->line = 1;
  s->counted = s->line_begin = s->at;
  return EAGLET_OK;
}

/* ---- pipes ---- */

static enum eaglet_status gather(struct row_source *s, struct eaglet_error *err) {
  const char *line;
  size_t length;
  for (;;) {
    TRY(file_lines_next(s->lines, &line, &length, err));
    if (!line) return EAGLET_OK;
    if (s->gathered.length + length > PIPE_BYTES_MAX)
      FAIL(err, EAGLET_E_INPUT, "%s: an array of more than %zu bytes through a pipe: put it into a file", s->path, PIPE_BYTES_MAX);
    buffer_append(&s->gathered, line, length);
    buffer_append_char(&s->gathered, '\n');
  }
}

/* Lines go on being streamed; anything else is taken whole. */
static enum eaglet_status open_pipe(struct row_source *s, struct eaglet_error *err) {
  const char *line;
  size_t length;
  do {
    TRY(file_lines_next(s->lines, &line, &length, err));
  } while (line && skip_blank(line, length, 0) == length);
  if (!line) return EAGLET_OK;
  const char *kind = foreign_kind(line, length);
  if (kind) FAIL(err, EAGLET_E_INPUT, "%s: is %s", s->path, kind);
  size_t at = skip_blank(line, length, 0), end = value_end(line, length, at);
  if (line[at] == '[' || (line[at] == '{' && end == 0)) {
    for (uint64_t n = 1; n < file_lines_number(s->lines); n++) buffer_append_char(&s->gathered, '\n');
    buffer_append(&s->gathered, line, length);
    buffer_append_char(&s->gathered, '\n');
    TRY(gather(s, err));
    TRY(judge(s, s->gathered.data, s->gathered.length, err));
    if (s->shape == SHAPE_LINES) s->shape = SHAPE_DOCUMENTS; /* the pipe is spent: take the same lines from memory */
    return EAGLET_OK;
  }
  s->first = memory_copy_span(line, length);
  s->n_first = length;
  return EAGLET_OK;
}

enum eaglet_status row_source_open(struct row_source **source, const char *path, struct eaglet_error *err) {
  struct row_source *s = memory_alloc(sizeof *s);
  *source = NULL;
  s->path = memory_copy_string(strcmp(path, "-") == 0 ? "standard input" : path);
  buffer_init(&s->gathered);
  enum eaglet_status status = EAGLET_OK;
  bool regular = strcmp(path, "-") != 0 && file_is_regular(path);
  if (regular) TRY_GOTO(file_map_open(&s->map, path, err), done);
  if (regular) TRY_GOTO(judge(s, (const char *)s->map.data, s->map.length, err), done);
  if (!regular || s->shape == SHAPE_LINES) TRY_GOTO(file_lines_open(&s->lines, path, err), done);
  if (!regular) TRY_GOTO(open_pipe(s, err), done);
done:
  if (status != EAGLET_OK) {
    row_source_close(s);
    return status;
  }
  *source = s;
  return EAGLET_OK;
}

void row_source_close(struct row_source *s) {
  if (!s) return;
  file_lines_close(s->lines);
  file_map_close(&s->map);
  buffer_clear(&s->gathered);
  free(s->first);
  free(s->path);
  free(s);
}

/* ---- rows ---- */

static enum eaglet_status next_line(struct row_source *s, struct row_text *row, struct eaglet_error *err) {
  if (s->first && !s->begun) {
    *row = (struct row_text){.text = s->first, .length = s->n_first, .line = file_lines_number(s->lines), .column = 1};
    s->begun = true;
    return EAGLET_OK;
  }
  do {
    TRY(file_lines_next(s->lines, &row->text, &row->length, err));
  } while (row->text && skip_blank(row->text, row->length, 0) == row->length);
  row->line = file_lines_number(s->lines);
  row->column = 1;
  return EAGLET_OK;
}

static void locate(struct row_source *s, size_t at, uint64_t *line, uint64_t *column) {
  for (const char *newline; (newline = memchr(s->text + s->counted, '\n', at - s->counted));) {
    s->counted = s->line_begin = (size_t)(newline - s->text) + 1;
    s->line++;
  }
  s->counted = at;
  *line = s->line;
  *column = at - s->line_begin + 1;
}

static enum eaglet_status broken(struct row_source *s, size_t at, const char *what, struct eaglet_error *err) {
  uint64_t line, column;
  locate(s, at, &line, &column);
  FAIL(err, EAGLET_E_INPUT, "%s:%llu: column %llu: %s", s->path, (unsigned long long)line, (unsigned long long)column, what);
}

/* The row that begins at s->at. */
static enum eaglet_status take_value(struct row_source *s, struct row_text *row, struct eaglet_error *err) {
  size_t end = value_end(s->text, s->length, s->at);
  if (end == 0) return broken(s, s->at, "this row does not end before the file does (cut short?)", err);
  if (end == s->at) return broken(s, s->at, "expected a JSON value", err);
  row->text = s->text + s->at;
  row->length = end - s->at;
  locate(s, s->at, &row->line, &row->column);
  s->at = end;
  s->n_rows++;
  return EAGLET_OK;
}

static enum eaglet_status next_element(struct row_source *s, struct row_text *row, struct eaglet_error *err) {
  s->at = skip_blank(s->text, s->length, s->at);
  if (!s->begun) s->at = skip_blank(s->text, s->length, s->at + 1); /* the array's '[' */
  bool first = !s->begun;
  s->begun = true;
  if (s->at == s->length) return broken(s, s->at, "the array does not end before the file does (cut short?)", err);
  if (s->text[s->at] == ']') {
    s->at = skip_blank(s->text, s->length, s->at + 1);
    s->ended = true;
    return s->at == s->length ? EAGLET_OK : broken(s, s->at, "expected nothing behind the array", err);
  }
  if (!first) {
    if (s->text[s->at] != ',') return broken(s, s->at, "expected ',' or ']' behind a row of the array", err);
    size_t comma = s->at;
    s->at = skip_blank(s->text, s->length, s->at + 1);
    if (s->at < s->length && s->text[s->at] == ']') return broken(s, comma, "a comma before the end of the array: not valid JSON", err);
    if (s->at == s->length) return broken(s, s->at, "the array does not end before the file does (cut short?)", err);
  }
  return take_value(s, row, err);
}

enum eaglet_status row_source_next(struct row_source *s, struct row_text *row, struct eaglet_error *err) {
  *row = (struct row_text){0};
  if (s->ended) return EAGLET_OK;
  if (s->shape == SHAPE_ARRAY) return next_element(s, row, err);
  if (s->shape == SHAPE_LINES) {
    TRY(next_line(s, row, err));
    s->ended = !row->text;
    return EAGLET_OK;
  }
  s->at = skip_blank(s->text, s->length, s->at);
  s->ended = s->at == s->length;
  return s->ended ? EAGLET_OK : take_value(s, row, err);
}
