/* parquet.c - see parquet.h. Owns the columns that are read and puts their entries together: a node of the schema asks its first leaf whether it
 * is there (definition level) and whether its list goes on (repetition level), and its other leaves must agree. Recursion is as deep as the
 * schema, which is limited. The bytes are the business of the files below. */
#include "data/parquet.h"

#include "base/memory.h"
#include "data/parquet_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_BYTES 48 /* what an entry costs as JSON, about */

struct parquet_file {
  struct file_pieces file;
  struct parquet_footer footer;
  bool *wanted;                   /* [n top-level columns] */
  struct parquet_column *columns; /* [n_leaves]; only those of wanted columns are set up */
  size_t group;                   /* the next row group */
  int64_t n_left;                 /* rows of the current one */
  uint64_t row;                   /* from 1 */
  size_t row_bytes, row_bytes_max;
};

bool parquet_is(const char *path) {
  struct file_pieces file;
  char magic[4] = "";
  if (!file_is_regular(path) || file_pieces_open(&file, path, NULL) != EAGLET_OK) return false;
  bool read = file_pieces_read(&file, 0, magic, sizeof magic, NULL) == EAGLET_OK;
  file_pieces_close(&file);
  return read && (!memcmp(magic, "PAR1", 4) || !memcmp(magic, "PARE", 4));
}

/* Words about the file's bytes already name it. */
static void prefix_path(const struct parquet_file *file, struct eaglet_error *err) {
  if (err && strncmp(err->message, file->file.path, strlen(file->file.path)) != 0) error_prefix(err, "%s", file->file.path);
}

enum eaglet_status parquet_open(struct parquet_file **file, const char *path, struct eaglet_error *err) {
  struct parquet_file *p = memory_alloc(sizeof *p);
  *file = NULL;
  enum eaglet_status status = file_pieces_open(&p->file, path, err);
  if (status == EAGLET_OK) {
    status = parquet_footer_read(&p->footer, &p->file, err);
    if (status != EAGLET_OK) prefix_path(p, err);
  }
  if (status != EAGLET_OK) {
    parquet_close(p);
    return status;
  }
  *file = p;
  return EAGLET_OK;
}

/* Node of top-level column i. */
static size_t column_node(const struct parquet_file *p, size_t i) {
  size_t node = 1;
  while (i-- > 0) node = p->footer.schema.nodes[node].end;
  return node;
}

size_t parquet_n_columns(const struct parquet_file *p) { return (size_t)p->footer.schema.nodes[0].n_children; }
const char *parquet_column_name(const struct parquet_file *p, size_t i) { return p->footer.schema.nodes[column_node(p, i)].name; }

/* ---- selection ---- */

static enum eaglet_status check_leaf(struct parquet_file *p, size_t leaf, struct eaglet_error *err) {
  const struct parquet_schema *schema = &p->footer.schema;
  const struct parquet_node *node = &schema->nodes[schema->leaves[leaf]];
  for (size_t group = 0; group < p->footer.n_groups; group++) {
    enum eaglet_status status = parquet_chunk_check(&p->footer.chunks[group * schema->n_leaves + leaf], node, p->file.length, err);
    if (status == EAGLET_OK) continue;
    char *name = parquet_leaf_path(schema, leaf);
    error_prefix(err, "%s: column %.200s", p->file.path, name);
    free(name);
    return status;
  }
  parquet_column_init(&p->columns[leaf], &p->file, node);
  return EAGLET_OK;
}

enum eaglet_status parquet_select(struct parquet_file *p, const bool *wanted, size_t row_bytes_max, struct eaglet_error *err) {
  const struct parquet_schema *schema = &p->footer.schema;
  ASSERT(!p->wanted);
  p->wanted = memory_alloc(parquet_n_columns(p) * sizeof *wanted);
  p->columns = memory_alloc(schema->n_leaves * sizeof *p->columns);
  p->row_bytes_max = row_bytes_max;
  for (size_t i = 0, node = 1; i < parquet_n_columns(p); i++, node = schema->nodes[node].end) {
    const struct parquet_node *column = &schema->nodes[node];
    p->wanted[i] = wanted[i];
    for (size_t k = 0; wanted[i] && k < column->n_leaves; k++) TRY(check_leaf(p, column->first_leaf + k, err));
  }
  return EAGLET_OK;
}

/* ---- values ---- */

static enum eaglet_status fail_leaf(struct parquet_file *p, size_t leaf, const char *words, struct eaglet_error *err) {
  char *name = parquet_leaf_path(&p->footer.schema, leaf);
  error_set(err, EAGLET_E_INPUT, "column %.200s: %s", name, words);
  free(name);
  return EAGLET_E_INPUT;
}

static enum eaglet_status advance(struct parquet_file *p, size_t leaf, struct eaglet_error *err) {
  struct eaglet_error why = {0};
  enum eaglet_status status = parquet_column_next(&p->columns[leaf], &why);
  if (status == EAGLET_OK) return EAGLET_OK;
  char *name = parquet_leaf_path(&p->footer.schema, leaf);
  error_set(err, status, "column %.200s: %.700s", name, why.message);
  free(name);
  return status;
}

static json_t *number_of(const struct parquet_node *leaf, int64_t integer) {
  if (leaf->meaning == MEANING_DECIMAL) return json_real((double)integer / pow(10, leaf->scale));
  if (leaf->meaning == MEANING_UNSIGNED && leaf->type == PARQUET_INT32) return json_integer((uint32_t)integer);
  if (leaf->meaning == MEANING_UNSIGNED && integer < 0) return json_real((double)(uint64_t)integer);
  return json_integer(integer);
}

/* NULL: bytes that are no text. */
static json_t *value_of(const struct parquet_node *leaf, const struct parquet_value *value) {
  switch (leaf->type) {
  case PARQUET_BOOLEAN: return json_boolean(value->integer != 0);
  case PARQUET_INT32:
  case PARQUET_INT64: return number_of(leaf, value->integer);
  case PARQUET_FLOAT:
  case PARQUET_DOUBLE: return isfinite(value->real) ? json_real(value->real) : json_null();
  default:
    if (memchr(value->bytes, 0, value->n_bytes)) return NULL;
    return json_stringn((const char *)value->bytes, value->n_bytes);
  }
}

static enum eaglet_status take_leaf(struct parquet_file *p, const struct parquet_node *node, json_t **out, struct eaglet_error *err) {
  struct parquet_column *column = &p->columns[node->first_leaf];
  if (column->ended || column->definition != node->definition)
    return fail_leaf(p, node->first_leaf, "levels that contradict the schema or another column", err);
  p->row_bytes += ENTRY_BYTES + column->value.n_bytes;
  if (p->row_bytes > p->row_bytes_max) {
    char words[80];
    snprintf(words, sizeof words, "this row has more than %zu MiB (--max-row)", p->row_bytes_max >> 20);
    return fail_leaf(p, node->first_leaf, words, err);
  }
  *out = value_of(node, &column->value);
  if (!*out) return fail_leaf(p, node->first_leaf, "expected UTF-8 text without NUL, found other bytes", err);
  return advance(p, node->first_leaf, err);
}

/* ---- putting together ---- */

static struct parquet_column *first_column(const struct parquet_file *p, const struct parquet_node *node) {
  return &p->columns[node->first_leaf];
}

/* Nothing is there under this node: every leaf says so with one entry. */
static enum eaglet_status pass_absent(struct parquet_file *p, const struct parquet_node *node, struct eaglet_error *err) {
  for (size_t leaf = node->first_leaf; leaf < node->first_leaf + node->n_leaves; leaf++) {
    if (p->columns[leaf].ended || p->columns[leaf].definition >= node->definition)
      return fail_leaf(p, leaf, "says that something is there where another column says that nothing is", err);
    p->row_bytes += ENTRY_BYTES;
    TRY(advance(p, leaf, err));
  }
  return EAGLET_OK;
}

/* Does the repeating node have another element? All of its leaves must say the same. */
static enum eaglet_status goes_on(struct parquet_file *p, const struct parquet_node *repeated, bool *more, struct eaglet_error *err) {
  *more = first_column(p, repeated)->level == repeated->level;
  for (size_t leaf = repeated->first_leaf; leaf < repeated->first_leaf + repeated->n_leaves; leaf++) {
    int32_t level = p->columns[leaf].level;
    if (level > repeated->level || (level == repeated->level) != *more)
      return fail_leaf(p, leaf, "its list goes on where another column's does not", err);
  }
  return EAGLET_OK;
}

static enum eaglet_status read_content(struct parquet_file *p, size_t i, json_t **out, struct eaglet_error *err);

/* The repeating node's elements, `element` being what an element is made of. */
static enum eaglet_status read_elements(struct parquet_file *p, size_t repeated, size_t element, json_t *array, struct eaglet_error *err) {
  const struct parquet_node *nodes = p->footer.schema.nodes, *node = &nodes[repeated], *inner = &nodes[element];
  if (first_column(p, node)->definition < node->definition) return pass_absent(p, node, err);
  for (bool more = true; more;) {
    json_t *value = NULL;
    bool absent = element != repeated && inner->repetition == PARQUET_OPTIONAL && first_column(p, inner)->definition < inner->definition;
    enum eaglet_status status = absent ? pass_absent(p, inner, err) : read_content(p, element, &value, err);
    json_array_append_new(array, absent ? json_null() : value);
    TRY(status);
    p->row_bytes += ENTRY_BYTES;
    if (p->row_bytes > p->row_bytes_max) return fail_leaf(p, node->first_leaf, "this row has too many values (--max-row)", err);
    TRY(goes_on(p, node, &more, err));
  }
  return EAGLET_OK;
}

/* A field of a group, whatever its repetition. */
static enum eaglet_status read_field(struct parquet_file *p, size_t i, json_t **out, struct eaglet_error *err) {
  const struct parquet_node *node = &p->footer.schema.nodes[i];
  if (node->repetition == PARQUET_REPEATED) {
    *out = json_array();
    return read_elements(p, i, i, *out, err);
  }
  if (node->repetition == PARQUET_OPTIONAL && first_column(p, node)->definition < node->definition) {
    *out = json_null();
    return pass_absent(p, node, err);
  }
  return read_content(p, i, out, err);
}

static enum eaglet_status read_struct(struct parquet_file *p, size_t i, json_t **out, struct eaglet_error *err) {
  const struct parquet_node *nodes = p->footer.schema.nodes;
  *out = json_object();
  for (size_t child = i + 1; child < nodes[i].end; child = nodes[child].end) {
    json_t *value = NULL;
    enum eaglet_status status = read_field(p, child, &value, err);
    if (value && json_object_set_new(*out, nodes[child].name, value) != 0 && status == EAGLET_OK)
      status = fail_leaf(p, nodes[child].first_leaf, "its name is no UTF-8", err);
    TRY(status);
  }
  return EAGLET_OK;
}

/* One key and its value into the object. */
static enum eaglet_status read_entry(struct parquet_file *p, size_t repeated, json_t *object, struct eaglet_error *err) {
  const struct parquet_node *nodes = p->footer.schema.nodes;
  size_t key_node = repeated + 1, value_node = nodes[key_node].end;
  json_t *key = NULL, *value = NULL;
  enum eaglet_status status = read_field(p, key_node, &key, err);
  if (status == EAGLET_OK && nodes[repeated].n_children == 2) status = read_field(p, value_node, &value, err);
  if (status == EAGLET_OK) {
    char digits[24];
    const char *name = json_string_value(key);
    if (json_is_integer(key)) {
      snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT, json_integer_value(key));
      name = digits;
    }
    if (name) json_object_set(object, name, value ? value : json_null());
    else status = fail_leaf(p, nodes[key_node].first_leaf, "expected text or integers as keys of a map", err);
  }
  json_decref(key);
  json_decref(value);
  return status;
}

static enum eaglet_status read_map(struct parquet_file *p, size_t i, json_t **out, struct eaglet_error *err) {
  const struct parquet_node *nodes = p->footer.schema.nodes, *repeated = &nodes[nodes[i].repeated];
  *out = json_object();
  if (first_column(p, repeated)->definition < repeated->definition) return pass_absent(p, repeated, err);
  for (bool more = true; more;) {
    TRY(read_entry(p, nodes[i].repeated, *out, err));
    TRY(goes_on(p, repeated, &more, err));
  }
  return EAGLET_OK;
}

/* What the node holds, the node being there. *out may be set on failure too; the caller owns it. */
static enum eaglet_status read_content(struct parquet_file *p, size_t i, json_t **out, struct eaglet_error *err) {
  const struct parquet_node *node = &p->footer.schema.nodes[i];
  switch (node->kind) {
  case KIND_LEAF: return take_leaf(p, node, out, err);
  case KIND_STRUCT: return read_struct(p, i, out, err);
  case KIND_MAP: return read_map(p, i, out, err);
  default:
    *out = json_array();
    return read_elements(p, node->repeated, node->element, *out, err);
  }
}

/* ---- rows ---- */

/* Every leaf of a wanted column stands at the begin of a row (or at the end of the group). */
static enum eaglet_status check_row_begin(struct parquet_file *p, bool at_end, struct eaglet_error *err) {
  for (size_t leaf = 0; leaf < p->footer.schema.n_leaves; leaf++) {
    const struct parquet_column *column = &p->columns[leaf];
    if (!column->leaf) continue;
    if (column->level != 0) return fail_leaf(p, leaf, "a list goes on where a row should begin", err);
    if (column->ended != at_end) return fail_leaf(p, leaf, at_end ? "has more values than the row group has rows" : "ends before the row group does", err);
  }
  return EAGLET_OK;
}

static enum eaglet_status begin_group(struct parquet_file *p, struct eaglet_error *err) {
  size_t n_leaves = p->footer.schema.n_leaves;
  for (size_t leaf = 0; leaf < n_leaves; leaf++) {
    struct eaglet_error why = {0};
    if (!p->columns[leaf].leaf) continue;
    enum eaglet_status status = parquet_column_begin(&p->columns[leaf], &p->footer.chunks[p->group * n_leaves + leaf], &why);
    if (status == EAGLET_OK) continue;
    char *name = parquet_leaf_path(&p->footer.schema, leaf);
    error_set(err, status, "row group %zu: column %.200s: %.700s", p->group, name, why.message);
    free(name);
    return status;
  }
  p->n_left = p->footer.group_rows[p->group++];
  return EAGLET_OK;
}

static enum eaglet_status next_row(struct parquet_file *p, json_t **row, struct eaglet_error *err) {
  const struct parquet_node *nodes = p->footer.schema.nodes;
  while (p->n_left == 0) {
    TRY(check_row_begin(p, true, err));
    if (p->group == p->footer.n_groups) return EAGLET_OK;
    TRY(begin_group(p, err));
  }
  TRY(check_row_begin(p, false, err));
  p->n_left--;
  p->row++;
  p->row_bytes = 0;
  *row = json_object();
  for (size_t i = 0, node = 1; i < parquet_n_columns(p); i++, node = nodes[node].end) {
    json_t *value = NULL;
    if (!p->wanted[i]) continue;
    enum eaglet_status status = read_field(p, node, &value, err);
    if (value && json_object_set_new(*row, nodes[node].name, value) != 0 && status == EAGLET_OK)
      status = fail_leaf(p, nodes[node].first_leaf, "its name is no UTF-8", err);
    TRY(status);
  }
  return EAGLET_OK;
}

enum eaglet_status parquet_next(struct parquet_file *p, json_t **row, struct eaglet_error *err) {
  ASSERT(p->wanted);
  *row = NULL;
  enum eaglet_status status = next_row(p, row, err);
  if (status == EAGLET_OK) return EAGLET_OK;
  json_decref(*row);
  *row = NULL;
  if (err && strncmp(err->message, p->file.path, strlen(p->file.path)) != 0)
    error_prefix(err, "%s: row %llu", p->file.path, (unsigned long long)p->row);
  return status;
}

void parquet_close(struct parquet_file *p) {
  if (!p) return;
  for (size_t i = 0; p->columns && i < p->footer.schema.n_leaves; i++) parquet_column_clear(&p->columns[i]);
  free(p->columns);
  free(p->wanted);
  parquet_footer_clear(&p->footer);
  file_pieces_close(&p->file);
  free(p);
}
