/* parquet_internal.h - what the files of the Parquet reader share, bottom up: thrift (parquet_thrift.c), the footer's facts and the schema
 * (parquet_footer.c, parquet_schema.c), decoders of one page's bytes (parquet_decode.c, parquet_values.c), a column's pages one after the other
 * (parquet_column.c), rows (parquet.c). Nobody else includes it. */
#ifndef EAGLET_DATA_PARQUET_INTERNAL_H
#define EAGLET_DATA_PARQUET_INTERNAL_H

#include "base/buffer.h"
#include "base/file.h"

#define PARQUET_DEPTH_MAX 32                    /* of the schema */
#define PARQUET_PAGE_BYTES_MAX ((size_t)1 << 30) /* of a page, unpacked */

/* ---- thrift's compact protocol; a cursor that runs over its end or meets nonsense has failed ---- */

enum thrift_type { THRIFT_TRUE = 1, THRIFT_FALSE, THRIFT_I8, THRIFT_I16, THRIFT_I32, THRIFT_I64, THRIFT_DOUBLE, THRIFT_BINARY, THRIFT_LIST,
                   THRIFT_SET, THRIFT_MAP, THRIFT_STRUCT, THRIFT_UUID };
struct thrift_field { /* begin with {0} in each struct */
  int32_t id;
  uint8_t type;
};
bool thrift_next(struct cursor *cursor, struct thrift_field *field); /* false at the struct's end and after a failure */
void thrift_skip(struct cursor *cursor, uint8_t type);
uint64_t thrift_varint(struct cursor *cursor);
int64_t thrift_zigzag(struct cursor *cursor);
int64_t thrift_integer(struct cursor *cursor, uint8_t type); /* of any integer or boolean type */
size_t thrift_list(struct cursor *cursor, uint8_t type, uint8_t *element); /* type: the field's; at most as many as bytes are left */
char *thrift_text(struct cursor *cursor, uint8_t type);      /* heap, never NULL; NUL bytes fail */

/* ---- the schema ---- */

enum parquet_type { PARQUET_BOOLEAN, PARQUET_INT32, PARQUET_INT64, PARQUET_INT96, PARQUET_FLOAT, PARQUET_DOUBLE, PARQUET_BYTES, PARQUET_FIXED };
enum parquet_repetition { PARQUET_REQUIRED, PARQUET_OPTIONAL, PARQUET_REPEATED };
enum parquet_meaning { MEANING_NONE, MEANING_TEXT, MEANING_LIST, MEANING_MAP, MEANING_DECIMAL, MEANING_UNSIGNED, MEANING_OTHER };
enum parquet_kind { KIND_LEAF, KIND_STRUCT, KIND_LIST, KIND_MAP };

/* Nodes stand depth first: the children of node i begin at i + 1, the next sibling is at its end. */
struct parquet_node {
  char *name;
  enum parquet_kind kind;
  enum parquet_repetition repetition;
  enum parquet_meaning meaning;
  int32_t type, type_length, scale; /* of a leaf */
  int32_t n_children;
  size_t end;
  int32_t definition, level;      /* definition and repetition level of a value that is there */
  size_t first_leaf, n_leaves;    /* in the order of columns */
  size_t repeated, element;       /* KIND_LIST: node that repeats, node of an element (may be the same). KIND_MAP: node that repeats */
  const char *foreign;            /* static: what its annotation is called, where it cannot be read */
};
struct parquet_schema {
  struct parquet_node *nodes; /* [0] is the root */
  size_t n, capacity;
  size_t *leaves;             /* [n_leaves] nodes */
  size_t n_leaves;
};
/* From the elements as the footer lists them (names, types, repetition, n_children, meaning filled in): levels, ends, kinds. */
enum eaglet_status parquet_schema_finish(struct parquet_schema *schema, struct eaglet_error *err) MUST_USE;
char *parquet_leaf_path(const struct parquet_schema *schema, size_t leaf); /* "messages.list.element.role"; heap */
void parquet_schema_clear(struct parquet_schema *schema);

/* ---- the footer ---- */

enum parquet_codec { CODEC_NONE, CODEC_SNAPPY, CODEC_GZIP, CODEC_LZO, CODEC_BROTLI, CODEC_LZ4, CODEC_ZSTD, CODEC_LZ4_RAW };
struct parquet_chunk { /* of one leaf in one row group */
  int64_t at, n_bytes, n_values;
  int32_t codec, type;
  uint32_t encodings; /* bit set */
  bool encrypted, elsewhere, described;
};
struct parquet_footer {
  struct parquet_schema schema;
  struct parquet_chunk *chunks; /* [n_groups][n_leaves] */
  int64_t *group_rows;          /* [n_groups] */
  size_t n_groups, groups_capacity;
  size_t n_chunks, chunks_capacity;
  bool encrypted;
};
enum eaglet_status parquet_footer_read(struct parquet_footer *footer, const struct file_pieces *file, struct eaglet_error *err) MUST_USE;
void parquet_footer_clear(struct parquet_footer *footer);
/* Codec, encodings, type and encryption of a chunk can be read. */
enum eaglet_status parquet_chunk_check(const struct parquet_chunk *chunk, const struct parquet_node *leaf, uint64_t file_length,
                                       struct eaglet_error *err) MUST_USE;

/* ---- decoders ---- */

/* Runs and bit-packed groups of small numbers (levels, dictionary indices, booleans). */
struct hybrid {
  struct cursor bytes;
  int width; /* bits; 0: all values are 0 */
  uint64_t run;
  bool packed, legacy; /* legacy: the old BIT_PACKED levels, highest bit first */
  uint32_t value;
  struct cursor bits;
  uint64_t bit_at;
};
void hybrid_init(struct hybrid *h, struct cursor bytes, int width);
void hybrid_init_legacy(struct hybrid *h, struct cursor bytes, int width);
bool hybrid_next(struct hybrid *h, uint32_t *value); /* false: the bytes end */

struct delta { /* DELTA_BINARY_PACKED */
  struct cursor bytes;
  uint64_t per_block, n_mini, per_mini, n_left;
  int64_t last, min;
  bool begun;
  const uint8_t *widths;
  uint64_t mini, in_mini;
  struct cursor bits;
};
bool delta_init(struct delta *d, struct cursor bytes);
bool delta_next(struct delta *d, int64_t *value);
bool delta_skip(struct delta *d, struct cursor *rest); /* d just initialised; rest: the bytes behind it */

uint64_t bits_at(const struct cursor *bytes, uint64_t bit, int width); /* lowest bit first; bits behind the end are 0 */

/* ---- values ---- */

enum parquet_encoding { ENCODING_PLAIN = 0, ENCODING_PLAIN_DICTIONARY = 2, ENCODING_RLE = 3, ENCODING_BIT_PACKED = 4, ENCODING_DELTA = 5,
                        ENCODING_DELTA_LENGTH = 6, ENCODING_DELTA_BYTES = 7, ENCODING_DICTIONARY = 8, ENCODING_SPLIT = 9 };
const char *parquet_encoding_name(int32_t encoding);

struct parquet_value {
  union {
    int64_t integer; /* boolean, int32, int64 */
    double real;     /* float, double */
  };
  const uint8_t *bytes; /* byte arrays; borrowed from the page, its dictionary or the decoder */
  size_t n_bytes;
};
struct parquet_dictionary {
  struct parquet_value *values;
  size_t n, capacity;
};
struct block { /* memory that is reused; what it held is lost when it grows */
  uint8_t *data;
  size_t capacity;
};
enum eaglet_status block_reserve(struct block *block, size_t n, struct eaglet_error *err) MUST_USE;
void block_clear(struct block *block);

struct value_decoder {
  int32_t encoding, type, type_length;
  const struct parquet_dictionary *dictionary;
  struct cursor bytes;
  uint64_t bit_at; /* plain booleans */
  struct hybrid indices;
  struct delta lengths, prefixes;
  struct buffer previous;     /* the last value of DELTA_BYTE_ARRAY */
  size_t n_split, split_at;
  uint8_t split_bytes[64];
};
/* Bytes of a page's values; the dictionary may be NULL where the encoding needs none. */
enum eaglet_status value_decoder_begin(struct value_decoder *v, struct cursor bytes, int32_t encoding, struct eaglet_error *err) MUST_USE;
enum eaglet_status value_decoder_next(struct value_decoder *v, struct parquet_value *value, struct eaglet_error *err) MUST_USE;
enum eaglet_status parquet_dictionary_read(struct parquet_dictionary *dictionary, struct value_decoder *v, int64_t n, struct eaglet_error *err) MUST_USE;

/* ---- a column ---- */

struct parquet_column {
  const struct file_pieces *file;
  const struct parquet_node *leaf;
  struct parquet_chunk chunk;
  uint64_t at, end; /* of the chunk, not yet read */
  int64_t n_left;   /* entries in pages not yet begun */
  int64_t n_page;   /* entries of this page not yet given */
  struct block packed, page, dictionary_page;
  struct parquet_dictionary dictionary;
  bool has_dictionary;
  struct unpacker *unpacker;
  struct hybrid levels, definitions;
  struct value_decoder values;
  /* the entry that is next: */
  bool ended;
  int32_t level, definition; /* 0 and -1 at the end */
  struct parquet_value value; /* when definition is the leaf's */
};
void parquet_column_init(struct parquet_column *column, const struct file_pieces *file, const struct parquet_node *leaf);
enum eaglet_status parquet_column_begin(struct parquet_column *column, const struct parquet_chunk *chunk, struct eaglet_error *err) MUST_USE;
enum eaglet_status parquet_column_next(struct parquet_column *column, struct eaglet_error *err) MUST_USE;
void parquet_column_clear(struct parquet_column *column);

#endif
