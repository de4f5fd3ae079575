/* dataset.c - see dataset.h. Reads files row by row and keeps no row. What a row is, is row_source.c's business (as text), parquet.c's (as a
 * table) and conversation.c's (as a conversation). Owns the order of files, the rule for bad rows, and the account of what was met. */
#include "data/dataset.h"

#include "base/buffer.h"
#include "base/hash_set.h"
#include "base/memory.h"
#include "base/util.h"
#include "data/data_files.h"
#include "data/parquet.h"
#include "data/row_layout.h"
#include "data/row_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARNINGS_MAX 10
#define ROWS_BEFORE_CHECK 1000 /* a share means little before */
#define IDS_MAX ((size_t)1 << 20) /* ids remembered: 16 MiB */
#define FIELDS_MAX 200         /* names told of fields */
#define ROW_MIB_DEFAULT ((int32_t)(ROW_BYTES_MAX_DEFAULT >> 20))

struct dataset_reader {
  struct file_list files, ignored;
  size_t file; /* the one being read */
  uint64_t n_bytes, n_bytes_done; /* of all files, 0: not known; of those read */
  struct row_source *rows;
  struct parquet_file *table; /* instead of rows */
  uint64_t n_rows;            /* of that file so far */
  char stem[CONVERSATION_SOURCE_MAX];
  struct row_map map;
  double bad_percent_max;
  bool strict;
  int32_t row_mib_max;
  uint64_t n_read, n_bad, n_warned; /* rows of all files; of them bad, except those too long */
  char first_bad[EAGLET_ERROR_MAX];
  struct hash_set ids;          /* of the rows' own "id" */
  uint64_t n_twice;             /* rows with an id that another had (C10) */
  char first_twice[256];
  json_t *bad, *used, *unused, *roles; /* {reason: count}, {field: true}, {field: true}, {name: taken for} */
};

struct dataset_params dataset_params_of(const struct eaglet_prepare_params *p) {
  return (struct dataset_params){.paths = p->data, .n_paths = p->n_data, .map = p->map, .bad_percent_max = p->bad_percent_max, .strict = p->strict,
                                 .row_mib_max = p->row_mib_max};
}

/* 0 when one of them is no regular file. */
static uint64_t total_bytes(const struct file_list *files) {
  uint64_t n = 0;
  for (size_t i = 0; i < files->n; i++) {
    if (!file_is_regular(files->names[i])) return 0;
    n += (uint64_t)file_length(files->names[i]);
  }
  return n;
}

enum eaglet_status dataset_open(struct dataset_reader **reader, const struct dataset_params *params, struct eaglet_error *err) {
  *reader = NULL;
  if (params->n_paths == 0) FAIL(err, EAGLET_E_USAGE, "no data file given");
  struct dataset_reader *opened = memory_alloc(sizeof *opened);
  opened->bad = json_object();
  opened->used = json_object();
  opened->unused = json_object();
  opened->roles = json_object();
  opened->bad_percent_max = params->bad_percent_max;
  opened->strict = params->strict;
  opened->row_mib_max = params->row_mib_max > 0 ? params->row_mib_max : ROW_MIB_DEFAULT;
  enum eaglet_status status = row_map_parse(&opened->map, params->map, err);
  if (status == EAGLET_OK) status = data_files_find(&opened->files, &opened->ignored, params->paths, params->n_paths, err);
  if (status != EAGLET_OK) {
    dataset_close(opened);
    return status;
  }
  opened->n_bytes = total_bytes(&opened->files);
  *reader = opened;
  return EAGLET_OK;
}

/* ---- bad rows ---- */

static void warn_bad(struct dataset_reader *reader, const char *words) {
  reader->n_warned++;
  if (reader->n_warned <= WARNINGS_MAX) log_warning("%s: passed over", words);
  if (reader->n_warned == WARNINGS_MAX) log_warning("further bad rows are counted and not told");
}

static void count_bad(struct dataset_reader *reader, const char *reason) {
  json_object_set_new(reader->bad, reason, json_integer(json_integer_value(json_object_get(reader->bad, reason)) + 1));
}

static enum eaglet_status too_many_bad(const struct dataset_reader *reader, struct eaglet_error *err) {
  struct buffer reasons;
  const char *reason;
  json_t *count;
  buffer_init(&reasons);
  json_object_foreach(reader->bad, reason, count) {
    buffer_format(&reasons, "%s%s (%lld)", reasons.length ? ", " : "", reason, (long long)json_integer_value(count));
  }
  error_set(err, EAGLET_E_INPUT, "%llu of %llu rows are bad, more than %g %% (--max-bad): %.300s; the first: %.500s", (unsigned long long)reader->n_bad,
            (unsigned long long)reader->n_read, reader->bad_percent_max, reasons.data, reader->first_bad);
  buffer_clear(&reasons);
  return EAGLET_E_INPUT;
}

static enum eaglet_status check_share(const struct dataset_reader *reader, bool at_end, struct eaglet_error *err) {
  if (reader->n_bad == 0 || (!at_end && reader->n_read < ROWS_BEFORE_CHECK)) return EAGLET_OK;
  if (100 * (double)reader->n_bad <= reader->bad_percent_max * (double)reader->n_read) return EAGLET_OK;
  return too_many_bad(reader, err);
}

/* *why is the row's fault, with file:line. EAGLET_OK: passed over. */
static enum eaglet_status pass_bad(struct dataset_reader *reader, const struct eaglet_error *why, const char *reason, struct eaglet_error *err) {
  if (reader->bad_percent_max <= 0) {
    if (err) *err = *why;
    return why->status;
  }
  if (reader->n_bad++ == 0) snprintf(reader->first_bad, sizeof reader->first_bad, "%s", why->message);
  count_bad(reader, reason);
  warn_bad(reader, why->message);
  return EAGLET_OK;
}

static enum eaglet_status pass_long(struct dataset_reader *reader, const struct row_text *row, struct eaglet_error *err) {
  struct eaglet_error why = {0};
  char reason[64];
  error_set(&why, EAGLET_E_INPUT, "%s:%llu: this line has more than %d MiB (--max-row)", reader->files.names[reader->file],
            (unsigned long long)row->line, reader->row_mib_max);
  if (reader->strict) {
    if (err) *err = why;
    return why.status;
  }
  snprintf(reason, sizeof reason, "longer than %d MiB", reader->row_mib_max);
  count_bad(reader, reason);
  warn_bad(reader, why.message);
  return EAGLET_OK;
}

/* ---- rows as JSON ---- */

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

/* A row before it is a conversation. reason: static, which kind of fault a failure is. */
struct raw_row {
  json_t *json; /* NULL at the end of the file, and when too_long */
  uint64_t line;
  bool too_long;
  const char *reason;
};

static enum eaglet_status read_text(struct raw_row *raw, struct row_text *row, struct eaglet_error *err) {
  size_t valid = utf8_valid(row->text, row->length);
  raw->reason = "not UTF-8";
  if (valid < row->length)
    FAIL(err, EAGLET_E_INPUT, "byte %zu of the row: expected UTF-8, found byte 0x%02x", valid + 1,
         (uint8_t)row->text[valid]);
  raw->reason = "not JSON";
  return parse_text(&raw->json, row, err);
}

/* ---- files ---- */

static enum eaglet_status select_columns(struct dataset_reader *reader, struct eaglet_error *err) {
  size_t n = parquet_n_columns(reader->table);
  const char **names = memory_alloc(n * sizeof *names);
  bool *wanted = memory_alloc(n * sizeof *wanted);
  for (size_t i = 0; i < n; i++) names[i] = parquet_column_name(reader->table, i);
  row_layout_want(wanted, names, n, &reader->map);
  for (size_t i = 0; i < n; i++) {
    if (!wanted[i] && json_object_size(reader->unused) < FIELDS_MAX) json_object_set_new(reader->unused, names[i], json_true());
  }
  enum eaglet_status status = parquet_select(reader->table, wanted, (size_t)reader->row_mib_max << 20, err);
  free(names);
  free(wanted);
  return status;
}

static enum eaglet_status open_file(struct dataset_reader *reader, struct eaglet_error *err) {
  const char *path = reader->files.names[reader->file];
  data_file_stem(reader->stem, sizeof reader->stem, path);
  reader->n_rows = 0;
  if (strcmp(path, "-") == 0 || !parquet_is(path)) return row_source_open(&reader->rows, path, (size_t)reader->row_mib_max << 20, err);
  TRY(parquet_open(&reader->table, path, err));
  return select_columns(reader, err);
}

static void close_file(struct dataset_reader *reader) {
  row_source_close(reader->rows);
  parquet_close(reader->table);
  reader->rows = NULL;
  reader->table = NULL;
}

/* The next row of the current file as it stands there; EAGLET_OK without one at its end. *bad: the failure is the row's, not the file's. */
static enum eaglet_status next_raw(struct dataset_reader *reader, struct raw_row *raw, bool *bad, struct eaglet_error *err) {
  struct row_text row = {0};
  *raw = (struct raw_row){0};
  *bad = false;
  if (!reader->rows && !reader->table) TRY(open_file(reader, err));
  if (reader->table) {
    TRY(parquet_next(reader->table, &raw->json, err));
    raw->line = reader->n_rows + 1;
    return EAGLET_OK;
  }
  TRY(row_source_next(reader->rows, &row, err));
  raw->line = row.line;
  raw->too_long = row.too_long;
  if (row.too_long) return pass_long(reader, &row, err);
  if (!row.text) return EAGLET_OK;
  *bad = true;
  return read_text(raw, &row, err);
}

static enum eaglet_status end_file(struct dataset_reader *reader, struct eaglet_error *err) {
  close_file(reader);
  const char *path = reader->files.names[reader->file++];
  int64_t length = file_length(path);
  reader->n_bytes_done += length > 0 ? (uint64_t)length : 0;
  if (reader->n_rows == 0)
    FAIL(err, EAGLET_E_INPUT, "%s: expected conversations (a line each, or an array of them), found none", path);
  return EAGLET_OK;
}

/* ---- conversations ---- */

static void note_fields(struct dataset_reader *reader, const json_t *row, const char *layout) {
  const char *key;
  json_t *value;
  if (!layout) return;
  json_object_foreach((json_t *)row, key, value) {
    if (json_object_get(reader->used, key)) continue;
    bool uses = row_layout_uses(layout, &reader->map, key);
    if (!uses && (json_object_get(reader->unused, key) || json_object_size(reader->unused) >= FIELDS_MAX)) continue;
    json_object_set_new(uses ? reader->used : reader->unused, key, json_true());
    if (uses) json_object_del(reader->unused, key);
  }
}

static enum eaglet_status make_conversation(struct dataset_reader *reader, struct conversation *conversation, struct raw_row *raw,
                                            struct eaglet_error *err) {
  conversation->strip = true;
  conversation->columnar = reader->table != NULL;
  conversation->map = &reader->map;
  conversation->roles = reader->roles;
  enum eaglet_status status = conversation_normalise(conversation, raw->json, err);
  conversation->map = NULL;
  conversation->roles = NULL;
  note_fields(reader, raw->json, conversation->layout);
  raw->reason = conversation->layout ? "malformed conversation" : "no known layout";
  if (status == EAGLET_OK || !*conversation->unknown_role || reader->strict) return status;
  conversation->messages = json_array();
  return EAGLET_OK;
}

/* An id that stands twice is told and nothing else: rows are known by their content. */
static void note_id(struct dataset_reader *reader, const struct raw_row *raw) {
  const json_t *id = json_object_get(raw->json, "id");
  char number[24];
  if (json_is_integer(id)) snprintf(number, sizeof number, "%lld", (long long)json_integer_value(id));
  else if (!json_is_string(id) || json_string_length(id) == 0) return;
  const char *text = json_is_string(id) ? json_string_value(id) : number;
  uint64_t hash = file_hash(text, strlen(text), 0);
  bool full = reader->ids.n >= IDS_MAX, fresh = full ? !hash_set_has(&reader->ids, hash) : hash_set_insert(&reader->ids, hash);
  if (fresh) return;
  if (reader->n_twice++ > 0) return;
  snprintf(reader->first_twice, sizeof reader->first_twice, "%.150s:%llu: id %.40s", reader->files.names[reader->file],
           (unsigned long long)raw->line, text);
  reader->first_twice[utf8_valid(reader->first_twice, strlen(reader->first_twice))] = '\0'; /* the name or a cut need not be whole */
}

/* One row of the current file: *made when it is a conversation; EAGLET_OK without one at the file's end and for a row that is passed over. */
static enum eaglet_status next_conversation(struct dataset_reader *reader, struct conversation *conversation, bool *made, struct eaglet_error *err) {
  struct raw_row raw;
  struct eaglet_error why = {0};
  const char *path = reader->files.names[reader->file];
  bool bad;
  *made = false;
  enum eaglet_status status = next_raw(reader, &raw, &bad, &why);
  if (status != EAGLET_OK && !bad) {
    if (err) *err = why;
    return status;
  }
  if (status == EAGLET_OK && !raw.json && !raw.too_long) return end_file(reader, err);
  reader->n_rows++;
  reader->n_read++;
  if (raw.too_long) return EAGLET_OK;
  if (status == EAGLET_OK) note_id(reader, &raw);
  if (status == EAGLET_OK) status = make_conversation(reader, conversation, &raw, &why);
  json_decref(raw.json);
  if (status != EAGLET_OK) {
    error_prefix(&why, "%s:%llu", path, (unsigned long long)raw.line);
    return pass_bad(reader, &why, raw.reason, err);
  }
  conversation->path = path;
  conversation->line = raw.line;
  if (!*conversation->source) memcpy(conversation->source, reader->stem, sizeof reader->stem);
  *made = true;
  return EAGLET_OK;
}

enum eaglet_status dataset_next(struct dataset_reader *reader, struct conversation *conversation, bool *more,
                                struct eaglet_error *err) {
  conversation_clear(conversation);
  *more = false;
  while (!*more && reader->file < reader->files.n) {
    TRY(next_conversation(reader, conversation, more, err));
    if (check_share(reader, false, err) == EAGLET_OK) continue;
    conversation_clear(conversation);
    *more = false;
    return EAGLET_E_INPUT;
  }
  return *more ? EAGLET_OK : check_share(reader, true, err);
}

/* ---- the account ---- */

static json_t *names_of(const json_t *object) {
  const char *key;
  json_t *value, *names = json_array();
  json_object_foreach((json_t *)object, key, value) json_array_append_new(names, json_string(key));
  return names;
}

json_t *dataset_describe(const struct dataset_reader *reader) {
  json_t *ignored = json_array();
  for (size_t i = 0; i < reader->ignored.n; i++) {
    json_t *name = json_string(reader->ignored.names[i]);
    json_array_append_new(ignored, name ? name : json_string("(a name that is not UTF-8)"));
  }
  return json_pack("{sI ss sI so so so sO sI sO}", "ids_twice", (json_int_t)reader->n_twice, "first_id_twice", reader->first_twice, "files", (json_int_t)reader->files.n, "files_ignored", ignored, "fields_used", names_of(reader->used),
                   "fields_ignored", names_of(reader->unused), "roles", reader->roles, "bad_rows", (json_int_t)reader->n_bad, "bad", reader->bad);
}

const struct file_list *dataset_files(const struct dataset_reader *reader) { return &reader->files; }

uint64_t dataset_position(const struct dataset_reader *reader, uint64_t *total) {
  *total = reader->n_bytes;
  return reader->n_bytes_done + (reader->rows ? row_source_position(reader->rows) : 0);
}

void dataset_close(struct dataset_reader *reader) {
  if (!reader) return;
  close_file(reader);
  file_list_clear(&reader->files);
  file_list_clear(&reader->ignored);
  row_map_clear(&reader->map);
  json_decref(reader->bad);
  json_decref(reader->used);
  json_decref(reader->unused);
  json_decref(reader->roles);
  hash_set_release(&reader->ids);
  free(reader);
}
