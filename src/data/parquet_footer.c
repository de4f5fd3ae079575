/* parquet_footer.c - the footer of a Parquet file: magic, length, and the structures of FileMetaData that reading rows needs; see
 * parquet_internal.h. Field numbers are those of the format's parquet.thrift. Owns the decision what can be read. */
#include "data/parquet_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define TAIL_BYTES 8 /* length of the footer, magic */

/* ---- schema elements ---- */

static void read_decimal(struct cursor *c, struct parquet_node *node) {
  for (struct thrift_field f = {0}; thrift_next(c, &f);) {
    if (f.id == 1) node->scale = (int32_t)thrift_integer(c, f.type);
    else thrift_skip(c, f.type);
  }
}

static void read_integer_type(struct cursor *c, struct parquet_node *node) {
  for (struct thrift_field f = {0}; thrift_next(c, &f);) {
    if (f.id == 2) node->meaning = thrift_integer(c, f.type) ? MEANING_NONE : MEANING_UNSIGNED;
    else thrift_skip(c, f.type);
  }
}

static const struct {
  enum parquet_meaning meaning;
  const char *foreign;
} logical_types[] = {[1] = {MEANING_TEXT, NULL},   [2] = {MEANING_MAP, NULL},   [3] = {MEANING_LIST, NULL}, [4] = {MEANING_TEXT, NULL},
                     [5] = {MEANING_DECIMAL, NULL}, [12] = {MEANING_TEXT, NULL}, [13] = {MEANING_OTHER, "BSON"}, [14] = {MEANING_OTHER, "UUID"},
                     [15] = {MEANING_OTHER, "FLOAT16"}, [16] = {MEANING_OTHER, "VARIANT"}},
  converted_types[] = {[0] = {MEANING_TEXT, NULL}, [1] = {MEANING_MAP, NULL},  [2] = {MEANING_MAP, NULL},  [3] = {MEANING_LIST, NULL},
                       [4] = {MEANING_TEXT, NULL}, [5] = {MEANING_DECIMAL, NULL}, [11] = {MEANING_UNSIGNED, NULL}, [12] = {MEANING_UNSIGNED, NULL},
                       [13] = {MEANING_UNSIGNED, NULL}, [14] = {MEANING_UNSIGNED, NULL}, [19] = {MEANING_TEXT, NULL},
                       [20] = {MEANING_OTHER, "BSON"}, [21] = {MEANING_OTHER, "INTERVAL"}};

/* A union: the field that is there is the type. */
static void read_logical(struct cursor *c, struct parquet_node *node) {
  for (struct thrift_field f = {0}; thrift_next(c, &f);) {
    if (f.id > 0 && f.id < (int32_t)(sizeof logical_types / sizeof *logical_types)) {
      node->meaning = logical_types[f.id].meaning;
      node->foreign = logical_types[f.id].foreign;
    }
    if (f.id == 5 && f.type == THRIFT_STRUCT) read_decimal(c, node);
    else if (f.id == 10 && f.type == THRIFT_STRUCT) read_integer_type(c, node);
    else thrift_skip(c, f.type);
  }
}

static void set_converted(struct parquet_node *node, int64_t converted) {
  if (converted < 0 || converted >= (int64_t)(sizeof converted_types / sizeof *converted_types)) return;
  node->meaning = converted_types[converted].meaning;
  node->foreign = converted_types[converted].foreign;
}

static void read_element(struct cursor *c, struct parquet_node *node) {
  bool logical = false;
  *node = (struct parquet_node){.type = -1};
  for (struct thrift_field f = {0}; thrift_next(c, &f);) {
    if (f.id == 4) {
      free(node->name);
      node->name = thrift_text(c, f.type);
      continue;
    }
    if (f.id == 10 && f.type == THRIFT_STRUCT) {
      node->meaning = MEANING_NONE; /* says more than the converted type beside it */
      read_logical(c, node);
      logical = true;
      continue;
    }
    if (f.id < 1 || f.id > 7) {
      thrift_skip(c, f.type);
      continue;
    }
    int64_t value = thrift_integer(c, f.type);
    if (value < INT32_MIN || value > INT32_MAX) c->failed = true;
    if (f.id == 1) node->type = (int32_t)value;
    if (f.id == 2) node->type_length = (int32_t)value;
    if (f.id == 3 && value >= 0 && value <= PARQUET_REPEATED) node->repetition = (enum parquet_repetition)value;
    if (f.id == 5) node->n_children = value < 0 ? 0 : (int32_t)value;
    if (f.id == 6 && !logical) set_converted(node, value);
    if (f.id == 7) node->scale = (int32_t)value;
  }
  if (!node->name) node->name = memory_copy_string("");
}

static void read_schema(struct cursor *c, uint8_t type, struct parquet_schema *schema) {
  uint8_t element;
  size_t n = thrift_list(c, type, &element);
  if (element != THRIFT_STRUCT || schema->n > 0) c->failed = true;
  for (size_t i = 0; i < n && !c->failed; i++) {
    MEMORY_GROW(schema->nodes, schema->capacity, schema->n + 1);
    read_element(c, &schema->nodes[schema->n++]);
  }
}

/* ---- row groups ---- */

static void read_chunk_facts(struct cursor *c, struct parquet_chunk *chunk) {
  int64_t dictionary_at = 0;
  chunk->described = true;
  for (struct thrift_field f = {0}; thrift_next(c, &f);) {
    uint8_t element;
    if (f.id == 2) {
      for (size_t n = thrift_list(c, f.type, &element); n > 0 && !c->failed; n--) {
        int64_t encoding = thrift_integer(c, element);
        chunk->encodings |= encoding >= 0 && encoding < 31 ? 1u << encoding : 1u << 31;
      }
      continue;
    }
    if (f.id != 1 && f.id != 4 && f.id != 5 && f.id != 7 && f.id != 9 && f.id != 11) {
      thrift_skip(c, f.type);
      continue;
    }
    int64_t value = thrift_integer(c, f.type);
    int32_t small = value >= 0 && value < 1000 ? (int32_t)value : 1000;
    if (f.id == 1) chunk->type = small;
    if (f.id == 4) chunk->codec = small;
    if (f.id == 5) chunk->n_values = value;
    if (f.id == 7) chunk->n_bytes = value;
    if (f.id == 9) chunk->at = value;
    if (f.id == 11) dictionary_at = value;
  }
  if (dictionary_at > 0 && dictionary_at < chunk->at) chunk->at = dictionary_at;
}

static void read_chunk(struct cursor *c, struct parquet_chunk *chunk) {
  *chunk = (struct parquet_chunk){.type = -1};
  for (struct thrift_field f = {0}; thrift_next(c, &f);) {
    if (f.id == 3 && f.type == THRIFT_STRUCT) {
      read_chunk_facts(c, chunk);
      continue;
    }
    chunk->elsewhere |= f.id == 1;
    chunk->encrypted |= f.id == 8 || f.id == 9;
    thrift_skip(c, f.type);
  }
}

static void read_group(struct cursor *c, struct parquet_footer *footer) {
  int64_t n_rows = 0;
  for (struct thrift_field f = {0}; thrift_next(c, &f);) {
    uint8_t element;
    if (f.id == 1) {
      size_t n = thrift_list(c, f.type, &element);
      if (element != THRIFT_STRUCT) c->failed = true;
      for (size_t i = 0; i < n && !c->failed; i++) {
        MEMORY_GROW(footer->chunks, footer->chunks_capacity, footer->n_chunks + 1);
        read_chunk(c, &footer->chunks[footer->n_chunks++]);
      }
    } else if (f.id == 3) {
      n_rows = thrift_integer(c, f.type);
    } else {
      thrift_skip(c, f.type);
    }
  }
  MEMORY_GROW(footer->group_rows, footer->groups_capacity, footer->n_groups + 1);
  footer->group_rows[footer->n_groups++] = n_rows;
}

static void read_metadata(struct cursor *c, struct parquet_footer *footer) {
  for (struct thrift_field f = {0}; thrift_next(c, &f);) {
    uint8_t element;
    if (f.id == 2) {
      read_schema(c, f.type, &footer->schema);
    } else if (f.id == 4) {
      size_t n = thrift_list(c, f.type, &element);
      if (element != THRIFT_STRUCT && n > 0) c->failed = true;
      for (size_t i = 0; i < n && !c->failed; i++) read_group(c, footer);
    } else {
      footer->encrypted |= f.id == 8;
      thrift_skip(c, f.type);
    }
  }
}

/* ---- checks ---- */

static enum eaglet_status check_groups(const struct parquet_footer *footer, struct eaglet_error *err) {
  size_t n_leaves = footer->schema.n_leaves;
  if (footer->n_chunks != footer->n_groups * n_leaves)
    FAIL(err, EAGLET_E_INPUT, "the footer is damaged: expected %zu columns in each of %zu row groups, found %zu in all", n_leaves,
         footer->n_groups, footer->n_chunks);
  for (size_t i = 0; i < footer->n_groups; i++) {
    if (footer->group_rows[i] < 0)
      FAIL(err, EAGLET_E_INPUT, "the footer is damaged: row group %zu has %lld rows", i, (long long)footer->group_rows[i]);
  }
  return EAGLET_OK;
}

static enum eaglet_status read_tail(uint32_t *length, const struct file_pieces *file, struct eaglet_error *err) {
  uint8_t tail[TAIL_BYTES], head[4];
  if (file->length < sizeof head + TAIL_BYTES) FAIL(err, EAGLET_E_INPUT, "is a Parquet file of %llu bytes: cut short", (unsigned long long)file->length);
  TRY(file_pieces_read(file, 0, head, sizeof head, err));
  TRY(file_pieces_read(file, file->length - TAIL_BYTES, tail, TAIL_BYTES, err));
  if (!memcmp(tail + 4, "PARE", 4) || !memcmp(head, "PARE", 4)) FAIL(err, EAGLET_E_INPUT, "is an encrypted Parquet file: decrypt it first");
  if (memcmp(head, "PAR1", 4) != 0) FAIL(err, EAGLET_E_INPUT, "is no Parquet file: it does not begin with PAR1");
  if (memcmp(tail + 4, "PAR1", 4) != 0)
    FAIL(err, EAGLET_E_INPUT, "is a Parquet file that does not end as one (PAR1 is missing; cut short?)");
  struct cursor c = {.data = tail, .length = TAIL_BYTES};
  *length = cursor_u32(&c);
  if (*length > file->length - sizeof head - TAIL_BYTES)
    FAIL(err, EAGLET_E_INPUT, "is a Parquet file of %llu bytes whose footer should have %u (cut short?)", (unsigned long long)file->length, *length);
  return EAGLET_OK;
}

enum eaglet_status parquet_footer_read(struct parquet_footer *footer, const struct file_pieces *file, struct eaglet_error *err) {
  uint32_t length = 0;
  struct block bytes = {0};
  *footer = (struct parquet_footer){0};
  TRY(read_tail(&length, file, err));
  enum eaglet_status status = block_reserve(&bytes, length, err);
  if (status == EAGLET_OK) status = file_pieces_read(file, file->length - TAIL_BYTES - length, bytes.data, length, err);
  if (status == EAGLET_OK) {
    struct cursor c = {.data = bytes.data, .length = length};
    read_metadata(&c, footer);
    if (c.failed) status = error_set(err, EAGLET_E_INPUT, "the footer is damaged (byte %zu of %u)", c.at, length);
  }
  block_clear(&bytes);
  if (status == EAGLET_OK) status = parquet_schema_finish(&footer->schema, err);
  if (status == EAGLET_OK) status = check_groups(footer, err);
  if (status != EAGLET_OK) parquet_footer_clear(footer);
  return status;
}

void parquet_footer_clear(struct parquet_footer *footer) {
  parquet_schema_clear(&footer->schema);
  free(footer->chunks);
  free(footer->group_rows);
  *footer = (struct parquet_footer){0};
}

static enum eaglet_status check_type(const struct parquet_chunk *chunk, const struct parquet_node *leaf, struct eaglet_error *err) {
  static const char *const names[] = {"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};
  if (leaf->type < 0 || leaf->type > PARQUET_FIXED) FAIL(err, EAGLET_E_INPUT, "type %d is not known", leaf->type);
  if (chunk->type != leaf->type) FAIL(err, EAGLET_E_INPUT, "the footer is damaged: the schema says %s, the column type %d", names[leaf->type], chunk->type);
  if (leaf->type == PARQUET_INT96) FAIL(err, EAGLET_E_INPUT, "INT96 cannot be read");
  if (leaf->foreign) FAIL(err, EAGLET_E_INPUT, "%s values cannot be read", leaf->foreign);
  if (leaf->meaning == MEANING_DECIMAL && (leaf->type == PARQUET_BYTES || leaf->type == PARQUET_FIXED || leaf->scale < 0 || leaf->scale > 18))
    FAIL(err, EAGLET_E_INPUT, "decimals stored as %s with scale %d cannot be read", names[leaf->type], leaf->scale);
  if (leaf->type == PARQUET_FIXED && leaf->type_length <= 0) FAIL(err, EAGLET_E_INPUT, "expected a length above 0, found %d", leaf->type_length);
  return EAGLET_OK;
}

enum eaglet_status parquet_chunk_check(const struct parquet_chunk *chunk, const struct parquet_node *leaf, uint64_t file_length,
                                       struct eaglet_error *err) {
  static const char *const codecs[] = {"none", "snappy", "gzip", "LZO", "brotli", "LZ4", "zstd", "LZ4_RAW"};
  const uint32_t known = 1u << ENCODING_PLAIN | 1u << ENCODING_PLAIN_DICTIONARY | 1u << ENCODING_RLE | 1u << ENCODING_BIT_PACKED |
                         1u << ENCODING_DELTA | 1u << ENCODING_DELTA_LENGTH | 1u << ENCODING_DELTA_BYTES | 1u << ENCODING_DICTIONARY |
                         1u << ENCODING_SPLIT;
  if (chunk->encrypted) FAIL(err, EAGLET_E_INPUT, "is encrypted: decrypt the file first");
  if (chunk->elsewhere) FAIL(err, EAGLET_E_INPUT, "is in another file, which cannot be read");
  if (!chunk->described) FAIL(err, EAGLET_E_INPUT, "the footer is damaged: nothing is said about it");
  TRY(check_type(chunk, leaf, err));
  if (chunk->codec > CODEC_LZ4_RAW) FAIL(err, EAGLET_E_INPUT, "compression %d is not known", chunk->codec);
  if (chunk->codec > CODEC_GZIP && chunk->codec != CODEC_ZSTD)
    FAIL(err, EAGLET_E_INPUT, "compression %s cannot be read: write the file with snappy, gzip, zstd or none", codecs[chunk->codec]);
  if (chunk->encodings & ~known) FAIL(err, EAGLET_E_INPUT, "an encoding is not known");
  if (chunk->at < 4 || chunk->n_bytes < 0 || chunk->n_values < 0 || (uint64_t)chunk->at > file_length ||
      (uint64_t)chunk->n_bytes > file_length - (uint64_t)chunk->at)
    FAIL(err, EAGLET_E_INPUT, "expected %lld bytes at %lld, found a file of %llu bytes (cut short?)", (long long)chunk->n_bytes,
         (long long)chunk->at, (unsigned long long)file_length);
  return EAGLET_OK;
}
