/* dataset.c - see dataset.h. Reads files row by row and keeps no row. What a row is, is row_source.c's business (as text) and
 * conversation.c's (as a conversation). */
#include "data/dataset.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "data/row_source.h"

#include <stdlib.h>
#include <string.h>

struct dataset_reader {
  char **paths;
  size_t n_paths, file; /* file: the one being read */
  struct row_source *rows;
  uint64_t n_rows; /* of that file so far */
  char stem[CONVERSATION_SOURCE_MAX];
};

enum eaglet_status dataset_open(struct dataset_reader **reader, const char *const *paths, size_t n_paths,
                                struct eaglet_error *err) {
  *reader = NULL;
  if (n_paths == 0) FAIL(err, EAGLET_E_USAGE, "no data file given");
  struct dataset_reader *opened = memory_alloc(sizeof *opened);
  opened->paths = memory_alloc(n_paths * sizeof *opened->paths);
  opened->n_paths = n_paths;
  for (size_t i = 0; i < n_paths; i++) opened->paths[i] = memory_copy_string(paths[i]);
  *reader = opened;
  return EAGLET_OK;
}

/* The file's name without folder and last extension; cut at a whole character when it is too long. */
static void set_stem(struct dataset_reader *reader, const char *path) {
  const char *name = strrchr(path, '/');
  name = strcmp(path, "-") == 0 ? "stdin" : name ? name + 1 : path;
  const char *dot = strrchr(name, '.');
  size_t length = dot && dot > name ? (size_t)(dot - name) : strlen(name);
  if (length >= sizeof reader->stem) length = sizeof reader->stem - 1;
  length = utf8_valid(name, length);
  memcpy(reader->stem, name, length);
  reader->stem[length] = '\0';
}

/* Positions in the parser's words are the file's: where it fails, the text is parsed once more behind as many lines as precede it. */
static enum eaglet_status parse_text(json_t **json, const struct row_text *row, struct eaglet_error *err) {
  if (json_parse(json, row->text, row->length, "row", err) == EAGLET_OK) return EAGLET_OK;
  if (row->line == 1 && row->column == 1) return EAGLET_E_INPUT;
  struct buffer whole;
  buffer_init(&whole);
  for (uint64_t i = 1; i < row->line; i++) buffer_append_char(&whole, '\n');
  for (uint64_t i = 1; i < row->column; i++) buffer_append_char(&whole, ' ');
  buffer_append(&whole, row->text, row->length);
  enum eaglet_status status = json_parse(json, whole.data, whole.length, "row", err);
  buffer_clear(&whole);
  return status;
}

static enum eaglet_status parse_row(struct conversation *conversation, const struct row_text *row,
                                    struct eaglet_error *err) {
  json_t *json = NULL;
  size_t valid = utf8_valid(row->text, row->length);
  if (valid < row->length)
    FAIL(err, EAGLET_E_INPUT, "byte %zu of the row: expected UTF-8, found byte 0x%02x", valid + 1,
         (uint8_t)row->text[valid]);
  TRY(parse_text(&json, row, err));
  enum eaglet_status status = conversation_normalise(conversation, json, err);
  json_decref(json);
  return status;
}

/* The next row of the current file; its text is NULL when there is none. */
static enum eaglet_status next_text(struct dataset_reader *reader, struct row_text *row, struct eaglet_error *err) {
  const char *path = reader->paths[reader->file];
  if (!reader->rows) {
    TRY(row_source_open(&reader->rows, path, 0, err));
    set_stem(reader, path);
    reader->n_rows = 0;
  }
  TRY(row_source_next(reader->rows, row, err));
  if (row->text) {
    reader->n_rows++;
    return EAGLET_OK;
  }
  row_source_close(reader->rows);
  reader->rows = NULL;
  reader->file++;
  if (reader->n_rows == 0)
    FAIL(err, EAGLET_E_INPUT, "%s: expected conversations (a line each, or an array of them), found none", path);
  return EAGLET_OK;
}

enum eaglet_status dataset_next(struct dataset_reader *reader, struct conversation *conversation, bool *more,
                                struct eaglet_error *err) {
  struct row_text row = {0};
  conversation_clear(conversation);
  *more = false;
  while (!row.text && reader->file < reader->n_paths) TRY(next_text(reader, &row, err));
  if (!row.text) return EAGLET_OK;
  const char *path = reader->paths[reader->file];
  conversation->strip = true;
  enum eaglet_status status = parse_row(conversation, &row, err);
  if (status != EAGLET_OK && *conversation->unknown_role) {
    conversation->messages = json_array();
  } else if (status != EAGLET_OK) {
    error_prefix(err, "%s:%llu", path, (unsigned long long)row.line);
    return status;
  }
  conversation->path = path;
  conversation->line = row.line;
  if (!*conversation->source) memcpy(conversation->source, reader->stem, sizeof reader->stem);
  *more = true;
  return EAGLET_OK;
}

void dataset_close(struct dataset_reader *reader) {
  if (!reader) return;
  for (size_t i = 0; i < reader->n_paths; i++) free(reader->paths[i]);
  free(reader->paths);
  row_source_close(reader->rows);
  free(reader);
}
