/* parquet_schema.c - the tree of a Parquet schema: where subtrees end, definition and repetition levels, and what groups are (structs, lists in
 * their three-level and older forms, maps); see parquet_internal.h. Does not read bytes. */
#include "data/parquet_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Ends of subtrees; leaves in order. The elements must be exactly one tree. */
static enum eaglet_status build_tree(struct parquet_schema *s, struct eaglet_error *err) {
  size_t open[PARQUET_DEPTH_MAX];
  int64_t missing[PARQUET_DEPTH_MAX]; /* children not yet met */
  int depth = 0;
  if (s->n == 0 || s->nodes[0].n_children == 0) FAIL(err, EAGLET_E_INPUT, "the schema has no columns");
  s->leaves = memory_alloc(s->n * sizeof *s->leaves);
  for (size_t i = 0; i < s->n; i++) {
    struct parquet_node *node = &s->nodes[i];
    if (i > 0 && depth == 0) FAIL(err, EAGLET_E_INPUT, "the schema has more elements than its tree");
    node->first_leaf = s->n_leaves;
    if (depth > 0) missing[depth - 1]--;
    if (node->n_children > 0) {
      if (depth == PARQUET_DEPTH_MAX) FAIL(err, EAGLET_E_INPUT, "the schema is deeper than %d", PARQUET_DEPTH_MAX);
      open[depth] = i;
      missing[depth++] = node->n_children;
      continue;
    }
    node->end = i + 1;
    node->n_leaves = 1;
    s->leaves[s->n_leaves++] = i;
    while (depth > 0 && missing[depth - 1] == 0) {
      struct parquet_node *done = &s->nodes[open[--depth]];
      done->end = i + 1;
      done->n_leaves = s->n_leaves - done->first_leaf;
    }
  }
  if (depth > 0) FAIL(err, EAGLET_E_INPUT, "the schema has fewer elements than its tree");
  return EAGLET_OK;
}

static void set_levels(struct parquet_schema *s) {
  for (size_t i = 0; i < s->n; i++) {
    struct parquet_node *node = &s->nodes[i];
    if (i > 0) {
      node->definition += node->repetition != PARQUET_REQUIRED;
      node->level += node->repetition == PARQUET_REPEATED;
    }
    for (size_t child = i + 1; node->n_children > 0 && child < node->end; child = s->nodes[child].end) {
      s->nodes[child].definition = node->definition;
      s->nodes[child].level = node->level;
    }
  }
}

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

/* The format's own rules for files written before the three-level form: a repeated leaf, a repeated group of several fields or with one of the
 * names that old writers gave is the element itself. */
static bool is_element(const struct parquet_node *repeated) {
  return repeated->n_children != 1 || strcmp(repeated->name, "array") == 0 || ends_with(repeated->name, "_tuple");
}

static enum eaglet_status set_kind(struct parquet_schema *s, size_t i, struct eaglet_error *err) {
  struct parquet_node *node = &s->nodes[i];
  const struct parquet_node *child = node->n_children > 0 ? &s->nodes[i + 1] : NULL;
  bool nested = node->meaning == MEANING_LIST || node->meaning == MEANING_MAP;
  node->kind = child ? KIND_STRUCT : KIND_LEAF;
  if (!nested || !child) return EAGLET_OK;
  if (node->n_children != 1 || child->repetition != PARQUET_REPEATED)
    FAIL(err, EAGLET_E_INPUT, "schema: %.60s: expected one repeated field in a list or map", node->name);
  node->repeated = i + 1;
  if (node->meaning == MEANING_MAP) {
    if (child->n_children < 1 || child->n_children > 2)
      FAIL(err, EAGLET_E_INPUT, "schema: %.60s: expected a key and a value in a map", node->name);
    node->kind = KIND_MAP;
    return EAGLET_OK;
  }
  node->kind = KIND_LIST;
  node->element = is_element(child) || s->nodes[i + 2].repetition == PARQUET_REPEATED ? i + 1 : i + 2;
  return EAGLET_OK;
}

enum eaglet_status parquet_schema_finish(struct parquet_schema *schema, struct eaglet_error *err) {
  TRY(build_tree(schema, err));
  set_levels(schema);
  for (size_t i = 0; i < schema->n; i++) TRY(set_kind(schema, i, err));
  return EAGLET_OK;
}

char *parquet_leaf_path(const struct parquet_schema *schema, size_t leaf) {
  struct buffer path;
  buffer_init(&path);
  for (size_t i = 1; i < schema->n;) { /* down from the root: the child that holds the leaf */
    const struct parquet_node *node = &schema->nodes[i];
    if (leaf >= node->first_leaf + node->n_leaves) {
      i = node->end;
      continue;
    }
    buffer_format(&path, "%s%.60s", path.length ? "." : "", node->name);
    if (node->n_children == 0) break;
    i++;
  }
  return buffer_detach(&path).data;
}

void parquet_schema_clear(struct parquet_schema *schema) {
  for (size_t i = 0; i < schema->n; i++) free(schema->nodes[i].name);
  free(schema->nodes);
  free(schema->leaves);
  *schema = (struct parquet_schema){0};
}
