/* parquet_writer.h - a small Parquet writer for tests: JSON rows become levels and values by the schema (every nesting, bare repeated fields and
 * two-level lists too), pages of either version in every encoding and codec that the reader knows. Slow and plain, so that it is easy to check;
 * written from the format's description and not from the reader. */
#ifndef EAGLET_TESTS_DATA_PARQUET_WRITER_H
#define EAGLET_TESTS_DATA_PARQUET_WRITER_H

#include "support.h"

#include "base/buffer.h"

#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

enum { PW_BOOLEAN, PW_INT32, PW_INT64, PW_INT96, PW_FLOAT, PW_DOUBLE, PW_BYTES, PW_FIXED };
enum { PW_REQUIRED, PW_OPTIONAL, PW_REPEATED };
enum { PW_NONE = -1, PW_TEXT = 0, PW_MAP = 1, PW_LIST = 3, PW_DECIMAL = 5, PW_UINT32 = 13, PW_UINT64 = 14 };
enum pw_style { PW_PLAIN, PW_DICTIONARY, PW_DELTA, PW_OTHER, PW_N_STYLES }; /* which encoding a type gets: see encode_values */

struct pw_node { /* depth first; [0] is the root */
  const char *name;
  int type, repetition, n_children, converted, length, scale;
};
struct pw_options {
  int version, codec; /* of pages: 1 or 2 */
  enum pw_style style;
  bool legacy_levels;
  size_t group_rows, page_entries; /* 0: all */
  int codec_said;                  /* what the footer says instead, when above 0 */
  int footer_field;                /* an extra field of the footer, when above 0 */
};

struct pw_leaf {
  size_t node;
  int level_max, definition_max;
  int *levels, *definitions;
  size_t n, capacity, d_capacity;
  json_t *values; /* those that are there */
};
struct pw {
  const struct pw_node *nodes;
  const struct pw_options *options;
  struct pw_leaf leaves[32];
  size_t n_leaves;
  struct buffer *out;
};

/* ---- thrift ---- */

static inline void pw_varint(struct buffer *b, uint64_t value) {
  for (; value > 127; value >>= 7) buffer_append_char(b, (char)(value | 128));
  buffer_append_char(b, (char)value);
}
static inline void pw_zigzag(struct buffer *b, int64_t value) { pw_varint(b, (uint64_t)value << 1 ^ (uint64_t)(value >> 63)); }
static inline void pw_field(struct buffer *b, int *last, int id, int type) {
  buffer_append_char(b, (char)((id - *last) << 4 | type));
  *last = id;
}
static inline void pw_int(struct buffer *b, int *last, int id, int64_t value, bool wide) {
  pw_field(b, last, id, wide ? 6 : 5);
  pw_zigzag(b, value);
}
static inline void pw_text(struct buffer *b, const char *text) {
  pw_varint(b, strlen(text));
  buffer_append_string(b, text);
}
static inline void pw_list(struct buffer *b, size_t n, int type) {
  if (n < 15) {
    buffer_append_char(b, (char)(n << 4 | (size_t)type));
  } else {
    buffer_append_char(b, (char)(15 << 4 | type));
    pw_varint(b, n);
  }
}

/* ---- small numbers and deltas ---- */

static inline void pw_bits(struct buffer *b, const uint64_t *values, size_t n, int width) { /* lowest first, padded to whole bytes */
  uint8_t byte = 0;
  int at = 0;
  for (size_t i = 0; i < n; i++) {
    for (int k = 0; k < width; k++) {
      byte |= (uint8_t)((values[i] >> k & 1) << at);
      if (++at == 8) {
        buffer_append_char(b, (char)byte);
        byte = 0;
        at = 0;
      }
    }
  }
  if (at) buffer_append_char(b, (char)byte);
}

/* Runs of eight and more as runs, the rest as packed groups of eight. */
static inline void pw_hybrid(struct buffer *b, const int *values, size_t n, int width) {
  for (size_t i = 0; i < n;) {
    size_t run = 1;
    while (i + run < n && values[i + run] == values[i]) run++;
    if (run >= 8 || n - i < 8) {
      pw_varint(b, run << 1);
      for (int k = 0; k < (width + 7) / 8; k++) buffer_append_char(b, (char)(values[i] >> (8 * k)));
      i += run;
    } else {
      uint64_t group[8];
      for (int k = 0; k < 8; k++) group[k] = (uint64_t)values[i + (size_t)k];
      pw_varint(b, 1 << 1 | 1);
      pw_bits(b, group, 8, width);
      i += 8;
    }
  }
}

/* narrow: differences of 32 bits, which may wrap, as those of INT32 columns do. */
static inline void pw_delta(struct buffer *b, const int64_t *values, size_t n, bool narrow) {
  enum { block = 128, minis = 4, per = block / minis };
  pw_varint(b, block);
  pw_varint(b, minis);
  pw_varint(b, n);
  pw_zigzag(b, n ? values[0] : 0);
  for (size_t i = 1; i < n; i += block) {
    uint64_t steps[block] = {0};
    size_t m = n - i < block ? n - i : block;
    int64_t least = INT64_MAX;
    for (size_t k = 0; k < m; k++) {
      steps[k] = (uint64_t)values[i + k] - (uint64_t)values[i + k - 1];
      if (narrow) steps[k] = (uint64_t)(int64_t)(int32_t)(uint32_t)steps[k];
      if ((int64_t)steps[k] < least) least = (int64_t)steps[k];
    }
    for (size_t k = 0; k < m; k++) steps[k] -= (uint64_t)least;
    pw_zigzag(b, least);
    int widths[minis] = {0};
    for (size_t k = 0; k < m; k++) {
      while (widths[k / per] < 64 && steps[k] >> widths[k / per]) widths[k / per]++;
    }
    for (int k = 0; k < minis; k++) buffer_append_char(b, (char)widths[k]);
    for (size_t k = 0; k * per < m; k++) pw_bits(b, steps + k * per, per, widths[k]);
  }
}

/* ---- values ---- */

static inline void pw_plain(struct buffer *b, const struct pw_node *node, const json_t *value) {
  int64_t integer = json_integer_value(value);
  uint32_t length = (uint32_t)json_string_length(value);
  double real = json_number_value(value);
  float narrow = (float)real;
  switch (node->type) {
  case PW_INT32: buffer_append(b, &integer, 4); break;
  case PW_INT64: buffer_append(b, &integer, 8); break;
  case PW_INT96: buffer_append(b, "\0\0\0\0\0\0\0\0\0\0\0", 12); break;
  case PW_FLOAT: buffer_append(b, &narrow, 4); break;
  case PW_DOUBLE: buffer_append(b, &real, 8); break;
  case PW_FIXED: buffer_append(b, json_string_value(value), (size_t)node->length); break;
  default:
    buffer_append(b, &length, 4);
    buffer_append(b, json_string_value(value), length);
  }
}

static inline int pw_encoding(const struct pw_node *node, enum pw_style style) {
  static const uint8_t encodings[8][PW_N_STYLES] = {[PW_BOOLEAN] = {0, 3, 3, 3}, [PW_INT32] = {0, 8, 5, 9},  [PW_INT64] = {0, 2, 5, 9}, [PW_INT96] = {0, 0, 0, 0},
                                                    [PW_FLOAT] = {0, 8, 9, 9},   [PW_DOUBLE] = {0, 8, 9, 9}, [PW_BYTES] = {0, 8, 6, 7}, [PW_FIXED] = {0, 8, 7, 9}};
  return encodings[node->type][style];
}

static inline void pw_lengths(struct buffer *b, json_t *values, int encoding) {
  size_t n = json_array_size(values);
  int64_t *prefixes = memory_alloc((n + 1) * sizeof *prefixes), *lengths = memory_alloc((n + 1) * sizeof *lengths);
  const char *before = "";
  for (size_t i = 0; i < n; i++) {
    const char *text = json_string_value(json_array_get(values, i));
    while (encoding == 7 && before[prefixes[i]] && before[prefixes[i]] == text[prefixes[i]]) prefixes[i]++;
    lengths[i] = (int64_t)strlen(text) - prefixes[i];
    before = text;
  }
  if (encoding == 7) pw_delta(b, prefixes, n, false);
  pw_delta(b, lengths, n, false);
  for (size_t i = 0; i < n; i++) buffer_append_string(b, json_string_value(json_array_get(values, i)) + prefixes[i]);
  free(prefixes);
  free(lengths);
}

static inline void pw_split(struct buffer *b, const struct pw_node *node, json_t *values) {
  size_t i, n = json_array_size(values);
  json_t *value;
  struct buffer plain;
  buffer_init(&plain);
  json_array_foreach(values, i, value) pw_plain(&plain, node, value);
  size_t width = n ? plain.length / n : 0;
  for (size_t k = 0; k < width; k++) {
    for (i = 0; i < n; i++) buffer_append_char(b, plain.data[i * width + k]);
  }
  buffer_clear(&plain);
}

static inline size_t pw_index(json_t *dictionary, json_t *value) { /* added when it is new */
  size_t i;
  json_t *known;
  json_array_foreach(dictionary, i, known) {
    if (json_equal(known, value)) return i;
  }
  json_array_append(dictionary, value);
  return i;
}

static inline void pw_values(struct buffer *b, const struct pw_node *node, json_t *values, int encoding, json_t *dictionary) {
  size_t i, n = json_array_size(values);
  json_t *value;
  int *small = memory_alloc((n + 1) * sizeof *small);
  int64_t *wide = memory_alloc((n + 1) * sizeof *wide);
  struct buffer runs;
  buffer_init(&runs);
  json_array_foreach(values, i, value) {
    small[i] = node->type == PW_BOOLEAN ? json_is_true(value) : encoding == 2 || encoding == 8 ? (int)pw_index(dictionary, value) : 0;
    wide[i] = json_integer_value(value);
  }
  if (encoding == 0 && node->type == PW_BOOLEAN) {
    for (i = 0; i < n; i++) wide[i] = small[i];
    pw_bits(b, (uint64_t *)wide, n, 1);
  } else if (encoding == 0) {
    json_array_foreach(values, i, value) pw_plain(b, node, value);
  } else if (encoding == 2 || encoding == 8) {
    buffer_append_char(b, 11);
    pw_hybrid(b, small, n, 11);
  } else if (encoding == 3) {
    pw_hybrid(&runs, small, n, 1);
    uint32_t length = (uint32_t)runs.length;
    buffer_append(b, &length, 4);
    buffer_append(b, runs.data, runs.length);
  } else if (encoding == 5) {
    pw_delta(b, wide, n, node->type == PW_INT32);
  } else if (encoding == 9) {
    pw_split(b, node, values);
  } else {
    pw_lengths(b, values, encoding);
  }
  buffer_clear(&runs);
  free(small);
  free(wide);
}

/* ---- pages ---- */

static inline void pw_pack(struct buffer *out, const char *bytes, size_t n, int codec) {
  size_t bound = n + n / 2 + 1000;
  char *packed = memory_alloc(bound);
  if (codec == 0) {
    buffer_append(out, bytes, n);
  } else if (codec == 1) {
    assert_int_equal(snappy_compress(bytes, n, packed, &bound), SNAPPY_OK);
    buffer_append(out, packed, bound);
  } else if (codec == 2) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)n, .next_out = (Bytef *)packed, .avail_out = (uInt)bound};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    buffer_append(out, packed, bound - z.avail_out);
    deflateEnd(&z);
  } else {
    size_t length = ZSTD_compress(packed, bound, bytes, n, 1);
    assert_false(ZSTD_isError(length));
    buffer_append(out, packed, length);
  }
  free(packed);
}

static inline int pw_width(int most) {
  int width = 0;
  while (most >> width) width++;
  return width;
}

static inline void pw_levels(struct buffer *b, const int *levels, size_t n, int most, const struct pw_options *o) {
  struct buffer runs;
  buffer_init(&runs);
  buffer_append(&runs, "", 0);
  if (most > 0 && o->legacy_levels) { /* highest bit first, no length */
    uint8_t byte = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
      for (int k = pw_width(most) - 1; k >= 0; k--, at++) {
        byte = (uint8_t)(byte << 1 | (levels[i] >> k & 1));
        if (at % 8 == 7) buffer_append_char(b, (char)byte);
      }
    }
    for (; at % 8; at++) {
      byte = (uint8_t)(byte << 1);
      if (at % 8 == 7) buffer_append_char(b, (char)byte);
    }
  } else if (most > 0) {
    pw_hybrid(&runs, levels, n, pw_width(most));
    uint32_t length = (uint32_t)runs.length;
    if (o->version == 1) buffer_append(b, &length, 4);
    buffer_append(b, runs.data, runs.length);
  }
  buffer_clear(&runs);
}

static inline void pw_page_header(struct buffer *out, int kind, size_t n_bytes, size_t n_packed) {
  int last = 0;
  pw_int(out, &last, 1, kind, false);
  pw_int(out, &last, 2, (int64_t)n_bytes, false);
  pw_int(out, &last, 3, (int64_t)n_packed, false);
}

static inline void pw_dictionary_page(struct pw *w, const struct pw_node *node, json_t *dictionary) {
  struct buffer bytes, packed;
  size_t i;
  json_t *value;
  int last = 3, inner = 0;
  buffer_init(&bytes);
  buffer_init(&packed);
  json_array_foreach(dictionary, i, value) pw_plain(&bytes, node, value);
  pw_pack(&packed, bytes.data, bytes.length, w->options->codec);
  pw_page_header(w->out, 2, bytes.length, packed.length);
  pw_field(w->out, &last, 7, 12);
  pw_int(w->out, &inner, 1, (int64_t)json_array_size(dictionary), false);
  pw_int(w->out, &inner, 2, 0, false);
  buffer_append(w->out, "\0\0", 2);
  buffer_append(w->out, packed.data, packed.length);
  buffer_clear(&bytes);
  buffer_clear(&packed);
}

/* Entries [from, to) of a leaf; their values are [*value, ...). */
static inline void pw_data_page(struct pw *w, const struct pw_leaf *leaf, size_t from, size_t to, json_t *values) {
  const struct pw_node *node = &w->nodes[leaf->node];
  const struct pw_options *o = w->options;
  int encoding = pw_encoding(node, o->style), last = 3, inner = 0, n_nulls = 0, n_rows = 0;
  struct buffer levels, definitions, bytes, packed;
  buffer_init(&levels);
  buffer_init(&definitions);
  buffer_init(&bytes);
  buffer_init(&packed);
  for (size_t i = from; i < to; i++) {
    n_nulls += leaf->definitions[i] < leaf->definition_max;
    n_rows += leaf->levels[i] == 0;
  }
  pw_levels(&levels, leaf->levels + from, to - from, leaf->level_max, o);
  pw_levels(&definitions, leaf->definitions + from, to - from, leaf->definition_max, o);
  json_t *known = json_incref(json_object_get(values, "dictionary"));
  buffer_append(&bytes, "", 0);
  if (o->version == 1) {
    buffer_append(&bytes, levels.data ? levels.data : "", levels.length);
    buffer_append(&bytes, definitions.data ? definitions.data : "", definitions.length);
  }
  pw_values(&bytes, node, json_object_get(values, "page"), encoding, known);
  json_decref(known);
  if (o->version == 2) {
    buffer_append(&packed, levels.data ? levels.data : "", levels.length);
    buffer_append(&packed, definitions.data ? definitions.data : "", definitions.length);
  }
  size_t n_plain = packed.length;
  pw_pack(&packed, bytes.data, bytes.length, o->codec);
  pw_page_header(w->out, o->version == 1 ? 0 : 3, n_plain + bytes.length, packed.length);
  pw_field(w->out, &last, o->version == 1 ? 5 : 8, 12);
  pw_int(w->out, &inner, 1, (int64_t)(to - from), false);
  if (o->version == 1) {
    pw_int(w->out, &inner, 2, encoding, false);
    pw_int(w->out, &inner, 3, o->legacy_levels ? 4 : 3, false);
    pw_int(w->out, &inner, 4, o->legacy_levels ? 4 : 3, false);
  } else {
    pw_int(w->out, &inner, 2, n_nulls, false);
    pw_int(w->out, &inner, 3, n_rows, false);
    pw_int(w->out, &inner, 4, encoding, false);
    pw_int(w->out, &inner, 5, (int64_t)definitions.length, false);
    pw_int(w->out, &inner, 6, (int64_t)levels.length, false);
  }
  buffer_append(w->out, "\0\0", 2);
  buffer_append(w->out, packed.data, packed.length);
  buffer_clear(&levels);
  buffer_clear(&definitions);
  buffer_clear(&bytes);
  buffer_clear(&packed);
}

/* The chunk's pages; *data_at is where the data pages begin. */
static inline void pw_chunk(struct pw *w, const struct pw_leaf *leaf, size_t *data_at) {
  const struct pw_node *node = &w->nodes[leaf->node];
  size_t per_page = w->options->page_entries ? w->options->page_entries : leaf->n, value = 0;
  int encoding = pw_encoding(node, w->options->style);
  json_t *dictionary = json_array(), *any;
  size_t i;
  if (encoding == 2 || encoding == 8) {
    json_array_foreach(leaf->values, i, any) pw_index(dictionary, any);
    pw_dictionary_page(w, node, dictionary);
  }
  *data_at = w->out->length;
  for (size_t from = 0, to; from < leaf->n; from = to) {
    json_t *page = json_array();
    to = from + per_page < leaf->n ? from + per_page : leaf->n;
    while (w->options->version == 2 && to < leaf->n && leaf->levels[to] != 0) to++; /* v2 pages hold whole rows */
    for (i = from; i < to; i++) {
      if (leaf->definitions[i] == leaf->definition_max) json_array_append(page, json_array_get(leaf->values, value++));
    }
    json_t *values = json_pack("{so sO}", "page", page, "dictionary", dictionary);
    pw_data_page(w, leaf, from, to, values);
    json_decref(values);
  }
  json_decref(dictionary);
}

/* ---- rows to entries ---- */

static inline size_t pw_end(const struct pw_node *nodes, size_t i) {
  size_t end = i + 1;
  for (int k = 0; k < nodes[i].n_children; k++) end = pw_end(nodes, end);
  return end;
}

static inline void pw_entry(struct pw *w, size_t node, int level, int definition, json_t *value) {
  for (size_t i = 0; i < w->n_leaves; i++) {
    struct pw_leaf *leaf = &w->leaves[i];
    if (leaf->node != node) continue;
    MEMORY_GROW(leaf->levels, leaf->capacity, leaf->n + 1);
    MEMORY_GROW(leaf->definitions, leaf->d_capacity, leaf->n + 1);
    leaf->levels[leaf->n] = level;
    leaf->definitions[leaf->n++] = definition;
    if (value) json_array_append(leaf->values, value);
  }
}

static inline void pw_absent(struct pw *w, size_t i, int level, int definition) {
  for (size_t k = i; k < pw_end(w->nodes, i); k++) {
    if (w->nodes[k].n_children == 0) pw_entry(w, k, level, definition, NULL);
  }
}

struct pw_place {
  int level, definition, depth; /* depth: lists entered */
};

static inline void pw_content(struct pw *w, size_t i, json_t *value, struct pw_place at);

static inline void pw_shred(struct pw *w, size_t i, json_t *value, struct pw_place at) {
  const struct pw_node *node = &w->nodes[i];
  size_t k;
  json_t *element;
  if (node->repetition == PW_REPEATED) {
    if (json_array_size(value) == 0) pw_absent(w, i, at.level, at.definition);
    json_array_foreach(value, k, element)
      pw_content(w, i, element, (struct pw_place){k ? at.depth + 1 : at.level, at.definition + 1, at.depth + 1});
  } else if (node->repetition == PW_OPTIONAL && (!value || json_is_null(value))) {
    pw_absent(w, i, at.level, at.definition);
  } else {
    at.definition += node->repetition == PW_OPTIONAL;
    pw_content(w, i, value, at);
  }
}

static inline void pw_content(struct pw *w, size_t i, json_t *value, struct pw_place at) {
  const struct pw_node *node = &w->nodes[i], *child = node + 1;
  const char *key;
  json_t *element;
  size_t k = 0;
  if (node->n_children == 0) {
    pw_entry(w, i, at.level, at.definition, value);
  } else if (node->converted == PW_LIST) {
    bool old = child->n_children != 1 || !strcmp(child->name, "array") || strstr(child->name, "_tuple");
    if (json_array_size(value) == 0) pw_absent(w, i + 1, at.level, at.definition);
    json_array_foreach(value, k, element) {
      struct pw_place inner = {k ? at.depth + 1 : at.level, at.definition + 1, at.depth + 1};
      if (old) pw_content(w, i + 1, element, inner);
      else pw_shred(w, i + 2, element, inner);
    }
  } else if (node->converted == PW_MAP) {
    if (json_object_size(value) == 0) pw_absent(w, i + 1, at.level, at.definition);
    json_object_foreach(value, key, element) {
      struct pw_place inner = {k++ ? at.depth + 1 : at.level, at.definition + 1, at.depth + 1};
      json_t *name = json_string(key);
      pw_shred(w, i + 2, name, inner);
      pw_shred(w, i + 3, element, inner);
      json_decref(name);
    }
  } else {
    for (size_t c = i + 1; c < pw_end(w->nodes, i); c = pw_end(w->nodes, c)) pw_shred(w, c, json_object_get(value, w->nodes[c].name), at);
  }
}

/* ---- the file ---- */

static inline void pw_find_leaves(struct pw *w, size_t i, int level, int definition) {
  const struct pw_node *node = &w->nodes[i];
  if (i > 0) {
    level += node->repetition == PW_REPEATED;
    definition += node->repetition != PW_REQUIRED;
  }
  if (node->n_children == 0) w->leaves[w->n_leaves++] = (struct pw_leaf){.node = i, .level_max = level, .definition_max = definition, .values = json_array()};
  for (size_t c = i + 1; c < pw_end(w->nodes, i); c = pw_end(w->nodes, c)) pw_find_leaves(w, c, level, definition);
}

static inline void pw_schema(struct buffer *b, const struct pw_node *nodes) {
  size_t n = pw_end(nodes, 0);
  pw_list(b, n, 12);
  for (size_t i = 0; i < n; i++) {
    int last = 0;
    if (nodes[i].n_children == 0) pw_int(b, &last, 1, nodes[i].type, false);
    if (nodes[i].type == PW_FIXED) pw_int(b, &last, 2, nodes[i].length, false);
    if (i > 0) pw_int(b, &last, 3, nodes[i].repetition, false);
    pw_field(b, &last, 4, 8);
    pw_text(b, nodes[i].name);
    if (nodes[i].n_children) pw_int(b, &last, 5, nodes[i].n_children, false);
    if (nodes[i].converted >= 0) pw_int(b, &last, 6, nodes[i].converted, false);
    if (nodes[i].scale) pw_int(b, &last, 7, nodes[i].scale, false);
    buffer_append_char(b, 0);
  }
}

static inline void pw_group(struct pw *w, struct buffer *footer, json_t *rows, size_t from, size_t to) {
  int last = 0;
  w->n_leaves = 0;
  pw_find_leaves(w, 0, 0, 0);
  for (size_t i = from; i < to; i++) pw_content(w, 0, json_array_get(rows, i), (struct pw_place){0, 0, 0});
  pw_field(footer, &last, 1, 9);
  pw_list(footer, w->n_leaves, 12);
  for (size_t i = 0; i < w->n_leaves; i++) {
    struct pw_leaf *leaf = &w->leaves[i];
    const struct pw_node *node = &w->nodes[leaf->node];
    int outer = 0, inner = 0, encoding = pw_encoding(node, w->options->style);
    size_t at = w->out->length, data_at;
    pw_chunk(w, leaf, &data_at);
    pw_int(footer, &outer, 2, (int64_t)at, true);
    pw_field(footer, &outer, 3, 12);
    pw_int(footer, &inner, 1, node->type, false);
    pw_field(footer, &inner, 2, 9);
    pw_list(footer, 2, 5);
    pw_zigzag(footer, 3);
    pw_zigzag(footer, encoding);
    pw_field(footer, &inner, 3, 9);
    pw_list(footer, 1, 8);
    pw_text(footer, node->name);
    static const int codecs[] = {0, 1, 2, 6};
    pw_int(footer, &inner, 4, w->options->codec_said ? w->options->codec_said : codecs[w->options->codec], false);
    pw_int(footer, &inner, 5, (int64_t)leaf->n, true);
    pw_int(footer, &inner, 6, (int64_t)(w->out->length - at), true);
    pw_int(footer, &inner, 7, (int64_t)(w->out->length - at), true);
    pw_int(footer, &inner, 9, (int64_t)data_at, true);
    if (data_at > at) pw_int(footer, &inner, 11, (int64_t)at, true);
    buffer_append(footer, "\0\0", 2);
    free(leaf->levels);
    free(leaf->definitions);
    json_decref(leaf->values);
  }
  pw_int(footer, &last, 2, 0, true);
  pw_int(footer, &last, 3, (int64_t)(to - from), true);
  buffer_append_char(footer, 0);
}

static inline void parquet_write(struct buffer *out, const struct pw_node *nodes, json_t *rows, const struct pw_options *options) {
  struct pw w = {.nodes = nodes, .options = options, .out = out};
  size_t n = json_array_size(rows), per_group = options->group_rows ? options->group_rows : n ? n : 1, n_groups = (n + per_group - 1) / per_group;
  struct buffer footer;
  int last = 0;
  buffer_init(&footer);
  buffer_append(out, "PAR1", 4);
  pw_int(&footer, &last, 1, 1, false);
  pw_field(&footer, &last, 2, 9);
  pw_schema(&footer, nodes);
  pw_int(&footer, &last, 3, (int64_t)n, true);
  pw_field(&footer, &last, 4, 9);
  pw_list(&footer, n_groups, 12);
  for (size_t i = 0; i < n_groups; i++) pw_group(&w, &footer, rows, i * per_group, (i + 1) * per_group < n ? (i + 1) * per_group : n);
  pw_field(&footer, &last, 6, 8);
  pw_text(&footer, "tests");
  if (options->footer_field) {
    pw_field(&footer, &last, options->footer_field, 12);
    buffer_append_char(&footer, 0);
  }
  buffer_append_char(&footer, 0);
  uint32_t length = (uint32_t)footer.length;
  buffer_append(out, footer.data, footer.length);
  buffer_append(out, &length, 4);
  buffer_append(out, "PAR1", 4);
  buffer_clear(&footer);
}

#endif
