/* parquet_column.c - one leaf of one row group: its pages one after the other, unpacked, and its entries (levels and value) one at a time; see
 * parquet_internal.h. Holds one page and one dictionary. Does not know what the levels mean for a row. */
#include "data/parquet_internal.h"

#include "base/memory.h"
#include "base/unpack.h"

#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES_FIRST ((size_t)1024)     /* most headers fit; statistics can make them long */
#define HEADER_BYTES_MAX ((size_t)16 << 20)
#define SNAPPY_GAIN_MAX 64 /* more than the format can reach */

enum page_kind { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_V2 };
struct page_header {
  int64_t kind, n_bytes, n_packed, n_values, encoding, definition_encoding, level_encoding;
  int64_t definition_bytes, level_bytes; /* v2 */
  bool plain; /* v2: not packed */
};

/* ---- headers ---- */

static void read_kind_header(struct cursor *c, struct page_header *h) {
  bool v2 = h->kind == PAGE_DATA_V2;
  for (struct thrift_field f = {0}; thrift_next(c, &f);) {
    if (f.id < 1 || f.id > 7 || (!v2 && f.id > 4)) {
      thrift_skip(c, f.type);
      continue;
    }
    int64_t value = thrift_integer(c, f.type);
    if (f.id == 1) h->n_values = value;
    if (f.id == (v2 ? 4 : 2)) h->encoding = value;
    if (!v2 && f.id == 3) h->definition_encoding = value;
    if (!v2 && f.id == 4) h->level_encoding = value;
    if (v2 && f.id == 5) h->definition_bytes = value;
    if (v2 && f.id == 6) h->level_bytes = value;
    if (v2 && f.id == 7) h->plain = value == 0;
  }
}

/* The structure of the page's kind follows the kind itself: fields come in order. */
static void read_header(struct cursor *c, struct page_header *h) {
  static const int32_t own[] = {[PAGE_DATA] = 5, [PAGE_INDEX] = 6, [PAGE_DICTIONARY] = 7, [PAGE_DATA_V2] = 8};
  *h = (struct page_header){.kind = -1, .n_values = -1, .encoding = -1, .definition_encoding = ENCODING_RLE, .level_encoding = ENCODING_RLE};
  for (struct thrift_field f = {0}; thrift_next(c, &f);) {
    if (f.id >= 1 && f.id <= 3) {
      int64_t value = thrift_integer(c, f.type);
      if (f.id == 1) h->kind = value;
      if (f.id == 2) h->n_bytes = value;
      if (f.id == 3) h->n_packed = value;
    } else if (f.type == THRIFT_STRUCT && h->kind >= 0 && h->kind <= PAGE_DATA_V2 && h->kind != PAGE_INDEX && f.id == own[h->kind]) {
      read_kind_header(c, h);
    } else {
      thrift_skip(c, f.type);
    }
  }
}

static enum eaglet_status next_header(struct parquet_column *column, struct page_header *h, struct eaglet_error *err) {
  uint64_t left = column->end - column->at;
  for (size_t n = HEADER_BYTES_FIRST;; n *= 4) {
    if (n > left) n = (size_t)left;
    TRY(block_reserve(&column->packed, n, err));
    TRY(file_pieces_read(column->file, column->at, column->packed.data, n, err));
    struct cursor c = {.data = column->packed.data, .length = n};
    read_header(&c, h);
    if (!c.failed) {
      column->at += c.at;
      break;
    }
    if (n == left || n >= HEADER_BYTES_MAX) FAIL(err, EAGLET_E_INPUT, "a page header at byte %llu is damaged", (unsigned long long)column->at);
  }
  left = column->end - column->at;
  if (h->n_packed < 0 || (uint64_t)h->n_packed > left)
    FAIL(err, EAGLET_E_INPUT, "a page of %lld bytes does not fit its column, which has %llu left", (long long)h->n_packed, (unsigned long long)left);
  if (h->n_bytes < 0 || (uint64_t)h->n_bytes > PARQUET_PAGE_BYTES_MAX)
    FAIL(err, EAGLET_E_INPUT, "a page of %lld bytes unpacked: expected at most %zu", (long long)h->n_bytes, PARQUET_PAGE_BYTES_MAX);
  return EAGLET_OK;
}

/* ---- bytes ---- */

static enum eaglet_status unpack_stream(struct parquet_column *column, struct unpack_io io, struct eaglet_error *err) {
  if (!column->unpacker)
    column->unpacker = unpacker_create(column->chunk.codec == CODEC_GZIP ? PACKING_GZIP : PACKING_ZSTD);
  else
    unpacker_reset(column->unpacker);
  TRY(unpacker_run(column->unpacker, &io, err));
  if (io.n_out > 0) FAIL(err, EAGLET_E_INPUT, "a packed page gives %zu bytes less than it says", io.n_out);
  return EAGLET_OK;
}

/* in[0..n_in) unpacked into out[0..n_out), exactly. */
static enum eaglet_status unpack_page(struct parquet_column *column, const uint8_t *in, size_t n_in, struct cursor out, struct eaglet_error *err) {
  uint8_t *to = (uint8_t *)(uintptr_t)out.data;
  size_t n = 0;
  if (out.length == 0) return EAGLET_OK;
  if (column->chunk.codec != CODEC_SNAPPY) return unpack_stream(column, (struct unpack_io){in, n_in, to, out.length}, err);
  if (snappy_uncompressed_length((const char *)in, n_in, &n) != SNAPPY_OK || n != out.length)
    FAIL(err, EAGLET_E_INPUT, "a snappy page holds %zu bytes and says %zu", n, out.length);
  if (snappy_uncompress((const char *)in, n_in, (char *)to, &n) != SNAPPY_OK) FAIL(err, EAGLET_E_INPUT, "a snappy page is corrupt");
  return EAGLET_OK;
}

/* The page's bytes into block: the first n_plain as they are, the rest unpacked. */
static enum eaglet_status load_page(struct parquet_column *column, struct block *block, const struct page_header *h, size_t n_plain,
                                    struct eaglet_error *err) {
  bool packed = column->chunk.codec != CODEC_NONE && !h->plain;
  size_t n = (size_t)h->n_packed, n_bytes = (size_t)h->n_bytes;
  if (n_plain > n || n_plain > n_bytes || (!packed && n != n_bytes))
    FAIL(err, EAGLET_E_INPUT, "a page is damaged: its sizes contradict each other (%zu, %zu, %zu)", n_plain, n, n_bytes);
  if (column->chunk.codec == CODEC_SNAPPY && packed && (n_bytes - n_plain) / SNAPPY_GAIN_MAX > n - n_plain)
    FAIL(err, EAGLET_E_INPUT, "a snappy page of %zu bytes cannot hold %zu", n, n_bytes);
  TRY(block_reserve(block, n_bytes, err));
  uint64_t from = column->at;
  column->at += n;
  if (!packed) return file_pieces_read(column->file, from, block->data, n, err);
  TRY(block_reserve(&column->packed, n, err));
  TRY(file_pieces_read(column->file, from, column->packed.data, n, err));
  memcpy(block->data, column->packed.data, n_plain);
  return unpack_page(column, column->packed.data + n_plain, n - n_plain, (struct cursor){.data = block->data + n_plain, .length = n_bytes - n_plain}, err);
}

/* ---- pages ---- */

static int bits_of(int32_t most) { return most ? 32 - __builtin_clz((unsigned)most) : 0; }

/* Levels in front of a v1 page's values: their length in four bytes, or none in the old packing. */
static enum eaglet_status begin_levels(struct hybrid *h, struct cursor *page, int32_t most, const struct page_header *header, int64_t encoding,
                                       struct eaglet_error *err) {
  if (most == 0) return EAGLET_OK;
  bool legacy = encoding == ENCODING_BIT_PACKED;
  if (!legacy && encoding != ENCODING_RLE) FAIL(err, EAGLET_E_INPUT, "levels in encoding %s cannot be read", parquet_encoding_name((int32_t)encoding));
  uint64_t n = legacy ? ((uint64_t)header->n_values * (uint64_t)bits_of(most) + 7) / 8 : cursor_u32(page);
  const uint8_t *bytes = n <= SIZE_MAX ? cursor_bytes(page, (size_t)n) : NULL;
  if (!bytes || page->failed) FAIL(err, EAGLET_E_INPUT, "a page is damaged: its levels do not fit");
  struct cursor levels = {.data = bytes, .length = (size_t)n};
  if (legacy) hybrid_init_legacy(h, levels, bits_of(most));
  else hybrid_init(h, levels, bits_of(most));
  return EAGLET_OK;
}

static enum eaglet_status begin_data(struct parquet_column *column, const struct page_header *h, struct eaglet_error *err) {
  bool v2 = h->kind == PAGE_DATA_V2;
  const struct parquet_node *leaf = column->leaf;
  if (h->n_values < 0 || h->n_values > column->n_left)
    FAIL(err, EAGLET_E_INPUT, "a page has %lld values, its column has %lld left", (long long)h->n_values, (long long)column->n_left);
  if (h->definition_bytes < 0 || h->level_bytes < 0 || h->definition_bytes > h->n_bytes || h->level_bytes > h->n_bytes - h->definition_bytes)
    FAIL(err, EAGLET_E_INPUT, "a page is damaged: its levels do not fit");
  TRY(load_page(column, &column->page, h, (size_t)(h->definition_bytes + h->level_bytes), err));
  struct cursor page = {.data = column->page.data, .length = (size_t)h->n_bytes};
  if (v2) {
    hybrid_init(&column->levels, (struct cursor){.data = page.data, .length = (size_t)h->level_bytes}, bits_of(leaf->level));
    hybrid_init(&column->definitions, (struct cursor){.data = page.data + h->level_bytes, .length = (size_t)h->definition_bytes},
                bits_of(leaf->definition));
    page.at = (size_t)(h->level_bytes + h->definition_bytes);
  } else {
    TRY(begin_levels(&column->levels, &page, leaf->level, h, h->level_encoding, err));
    TRY(begin_levels(&column->definitions, &page, leaf->definition, h, h->definition_encoding, err));
  }
  column->n_page = h->n_values;
  column->n_left -= h->n_values;
  column->values.dictionary = column->has_dictionary ? &column->dictionary : NULL;
  if (h->encoding < 0 || h->encoding > INT16_MAX) FAIL(err, EAGLET_E_INPUT, "encoding %lld is not known", (long long)h->encoding);
  return value_decoder_begin(&column->values, (struct cursor){.data = page.data + page.at, .length = page.length - page.at}, (int32_t)h->encoding, err);
}

static enum eaglet_status read_dictionary(struct parquet_column *column, const struct page_header *h, struct eaglet_error *err) {
  if (column->has_dictionary) FAIL(err, EAGLET_E_INPUT, "a second dictionary in a column");
  if (h->encoding != ENCODING_PLAIN && h->encoding != ENCODING_PLAIN_DICTIONARY)
    FAIL(err, EAGLET_E_INPUT, "a dictionary in encoding %lld cannot be read", (long long)h->encoding);
  TRY(load_page(column, &column->dictionary_page, h, 0, err));
  struct value_decoder v = {.type = column->leaf->type, .type_length = column->leaf->type_length};
  TRY(value_decoder_begin(&v, (struct cursor){.data = column->dictionary_page.data, .length = (size_t)h->n_bytes}, ENCODING_PLAIN, err));
  TRY(parquet_dictionary_read(&column->dictionary, &v, h->n_values, err));
  column->has_dictionary = true;
  return EAGLET_OK;
}

/* To the next page that has entries. */
static enum eaglet_status next_page(struct parquet_column *column, struct eaglet_error *err) {
  struct page_header h;
  while (column->n_page == 0) {
    if (column->at == column->end)
      FAIL(err, EAGLET_E_INPUT, "the pages end %lld values before the column does", (long long)column->n_left);
    TRY(next_header(column, &h, err));
    if (h.kind == PAGE_DATA || h.kind == PAGE_DATA_V2)
      TRY(begin_data(column, &h, err));
    else if (h.kind == PAGE_DICTIONARY)
      TRY(read_dictionary(column, &h, err));
    else
      column->at += (uint64_t)h.n_packed; /* an index, or what a later version adds */
  }
  return EAGLET_OK;
}

/* ---- entries ---- */

void parquet_column_init(struct parquet_column *column, const struct file_pieces *file, const struct parquet_node *leaf) {
  *column = (struct parquet_column){.file = file, .leaf = leaf, .ended = true, .definition = -1};
  column->values.type = leaf->type;
  column->values.type_length = leaf->type_length;
  buffer_init(&column->values.previous);
}

enum eaglet_status parquet_column_begin(struct parquet_column *column, const struct parquet_chunk *chunk, struct eaglet_error *err) {
  if (chunk->codec != column->chunk.codec) {
    unpacker_free(column->unpacker);
    column->unpacker = NULL;
  }
  column->chunk = *chunk;
  column->at = (uint64_t)chunk->at;
  column->end = column->at + (uint64_t)chunk->n_bytes;
  column->n_left = chunk->n_values;
  column->n_page = 0;
  column->has_dictionary = column->ended = false;
  return parquet_column_next(column, err);
}

static enum eaglet_status next_level(struct hybrid *h, int32_t most, int32_t *level, struct eaglet_error *err) {
  uint32_t value = 0;
  if (most > 0 && (!hybrid_next(h, &value) || value > (uint32_t)most))
    FAIL(err, EAGLET_E_INPUT, "a page is damaged: its levels end early or are above %d", most);
  *level = (int32_t)value;
  return EAGLET_OK;
}

enum eaglet_status parquet_column_next(struct parquet_column *column, struct eaglet_error *err) {
  if (column->n_page == 0 && column->n_left == 0) {
    column->ended = true;
    column->level = 0;
    column->definition = -1;
    return EAGLET_OK;
  }
  if (column->n_page == 0) TRY(next_page(column, err));
  column->n_page--;
  TRY(next_level(&column->levels, column->leaf->level, &column->level, err));
  TRY(next_level(&column->definitions, column->leaf->definition, &column->definition, err));
  if (column->definition < column->leaf->definition) return EAGLET_OK;
  return value_decoder_next(&column->values, &column->value, err);
}

void parquet_column_clear(struct parquet_column *column) {
  block_clear(&column->packed);
  block_clear(&column->page);
  block_clear(&column->dictionary_page);
  free(column->dictionary.values);
  unpacker_free(column->unpacker);
  buffer_clear(&column->values.previous);
  *column = (struct parquet_column){0};
}
