/* parquet_values.c - values of one page in each of the format's encodings, one at a time; dictionaries; see parquet_internal.h. A value's bytes
 * are borrowed from the page (or, for prefixes, from the decoder) and hold until the next value or page. */
#include "data/parquet_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

const char *parquet_encoding_name(int32_t encoding) {
  static const char *const names[] = {"PLAIN", "GROUP_VAR_INT", "PLAIN_DICTIONARY", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED",
                                      "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
  return encoding >= 0 && encoding < (int32_t)(sizeof names / sizeof *names) ? names[encoding] : "unknown";
}

enum eaglet_status block_reserve(struct block *block, size_t n, struct eaglet_error *err) {
  if (n <= block->capacity && block->data) return EAGLET_OK;
  block_clear(block);
  size_t capacity = n < 4096 ? 4096 : n + n / 4;
  block->data = memory_try(capacity);
  if (!block->data) FAIL(err, EAGLET_E_RESOURCE, "not enough memory: %zu bytes were refused", capacity);
  block->capacity = capacity;
  return EAGLET_OK;
}

void block_clear(struct block *block) {
  memory_try_free(block->data);
  *block = (struct block){0};
}

/* ---- fixed widths ---- */

static size_t width_of(const struct value_decoder *v) {
  static const uint8_t widths[] = {[PARQUET_INT32] = 4, [PARQUET_INT64] = 8, [PARQUET_INT96] = 12, [PARQUET_FLOAT] = 4, [PARQUET_DOUBLE] = 8, [PARQUET_FIXED] = 0};
  return v->type == PARQUET_FIXED ? (size_t)v->type_length : v->type < PARQUET_BYTES ? widths[v->type] : 0;
}

static void from_bytes(const struct value_decoder *v, const uint8_t *bytes, struct parquet_value *value) {
  struct cursor c = {.data = bytes, .length = 8};
  float real;
  uint32_t word;
  switch (v->type) {
  case PARQUET_INT32: value->integer = (int32_t)cursor_u32(&c); break;
  case PARQUET_INT64: value->integer = (int64_t)cursor_u64(&c); break;
  case PARQUET_FLOAT:
    word = cursor_u32(&c);
    memcpy(&real, &word, sizeof real);
    value->real = (double)real;
    break;
  case PARQUET_DOUBLE: {
    uint64_t pair = cursor_u64(&c);
    memcpy(&value->real, &pair, sizeof pair);
    break;
  }
  default:
    value->bytes = bytes;
    value->n_bytes = width_of(v);
  }
}

/* ---- one function an encoding; false: the bytes end or contradict themselves ---- */

static bool next_plain(struct value_decoder *v, struct parquet_value *value) {
  if (v->type == PARQUET_BOOLEAN) {
    if (v->bit_at / 8 >= v->bytes.length) return false;
    value->integer = v->bytes.data[v->bit_at / 8] >> (v->bit_at % 8) & 1;
    v->bit_at++;
    return true;
  }
  if (v->type == PARQUET_BYTES) {
    value->n_bytes = cursor_u32(&v->bytes);
    value->bytes = cursor_bytes(&v->bytes, value->n_bytes);
    return !v->bytes.failed;
  }
  const uint8_t *bytes = cursor_bytes(&v->bytes, width_of(v));
  if (bytes) from_bytes(v, bytes, value);
  return bytes != NULL;
}

static bool next_indexed(struct value_decoder *v, struct parquet_value *value) {
  uint32_t index;
  if (!hybrid_next(&v->indices, &index) || index >= v->dictionary->n) return false;
  *value = v->dictionary->values[index];
  return true;
}

static bool next_run(struct value_decoder *v, struct parquet_value *value) {
  uint32_t bit;
  if (!hybrid_next(&v->indices, &bit)) return false;
  value->integer = bit;
  return true;
}

static bool next_delta(struct value_decoder *v, struct parquet_value *value) {
  if (!delta_next(&v->lengths, &value->integer)) return false;
  if (v->type == PARQUET_INT32) value->integer = (int32_t)(uint32_t)(uint64_t)value->integer;
  return true;
}

static bool next_length(struct value_decoder *v, struct parquet_value *value) {
  int64_t length;
  if (!delta_next(&v->lengths, &length) || length < 0 || (uint64_t)length > v->bytes.length - v->bytes.at) return false;
  value->n_bytes = (size_t)length;
  value->bytes = cursor_bytes(&v->bytes, value->n_bytes);
  return true;
}

static bool next_prefixed(struct value_decoder *v, struct parquet_value *value) {
  int64_t prefix;
  struct parquet_value suffix;
  if (!delta_next(&v->prefixes, &prefix) || prefix < 0 || (uint64_t)prefix > v->previous.length || !next_length(v, &suffix)) return false;
  if ((size_t)prefix + suffix.n_bytes > PARQUET_PAGE_BYTES_MAX) return false;
  v->previous.length = (size_t)prefix;
  buffer_append(&v->previous, suffix.bytes, suffix.n_bytes);
  value->bytes = (const uint8_t *)v->previous.data;
  value->n_bytes = v->previous.length;
  return v->type != PARQUET_FIXED || value->n_bytes == (size_t)v->type_length;
}

static bool next_split(struct value_decoder *v, struct parquet_value *value) {
  size_t width = width_of(v);
  if (v->split_at == v->n_split) return false;
  for (size_t i = 0; i < width; i++) v->split_bytes[i] = v->bytes.data[i * v->n_split + v->split_at];
  v->split_at++;
  from_bytes(v, v->split_bytes, value);
  return true;
}

/* ---- beginning and going on ---- */

static bool fits(const struct value_decoder *v) {
  switch (v->encoding) {
  case ENCODING_PLAIN: return true;
  case ENCODING_PLAIN_DICTIONARY:
  case ENCODING_DICTIONARY: return v->type != PARQUET_BOOLEAN;
  case ENCODING_RLE: return v->type == PARQUET_BOOLEAN;
  case ENCODING_DELTA: return v->type == PARQUET_INT32 || v->type == PARQUET_INT64;
  case ENCODING_DELTA_LENGTH: return v->type == PARQUET_BYTES;
  case ENCODING_DELTA_BYTES: return v->type == PARQUET_BYTES || v->type == PARQUET_FIXED;
  case ENCODING_SPLIT: return width_of(v) > 0 && width_of(v) <= sizeof v->split_bytes;
  default: return false;
  }
}

static bool begin_bytes(struct value_decoder *v) {
  if (v->encoding == ENCODING_DELTA_BYTES) {
    struct cursor rest;
    if (!delta_init(&v->prefixes, v->bytes) || !delta_skip(&v->prefixes, &rest)) return false;
    v->bytes = rest;
    v->previous.length = 0;
  }
  return delta_init(&v->lengths, v->bytes) && delta_skip(&v->lengths, &v->bytes);
}

enum eaglet_status value_decoder_begin(struct value_decoder *v, struct cursor bytes, int32_t encoding, struct eaglet_error *err) {
  v->encoding = encoding;
  v->bytes = bytes;
  v->bit_at = v->split_at = 0;
  if (!fits(v)) FAIL(err, EAGLET_E_INPUT, "encoding %s (%d) does not fit its type %d", parquet_encoding_name(encoding), encoding, v->type);
  bool good = true;
  if (encoding == ENCODING_PLAIN_DICTIONARY || encoding == ENCODING_DICTIONARY) {
    int width = bytes.length > 0 ? cursor_u8(&v->bytes) : 0;
    if (!v->dictionary) FAIL(err, EAGLET_E_INPUT, "a page needs a dictionary that is not there");
    good = width <= 32;
    if (good) hybrid_init(&v->indices, (struct cursor){.data = v->bytes.data + v->bytes.at, .length = v->bytes.length - v->bytes.at}, width);
  } else if (encoding == ENCODING_RLE) {
    uint32_t n = bytes.length > 0 ? cursor_u32(&v->bytes) : 0;
    const uint8_t *runs = cursor_bytes(&v->bytes, n);
    good = !v->bytes.failed;
    hybrid_init(&v->indices, (struct cursor){.data = runs, .length = n}, 1);
  } else if (encoding == ENCODING_DELTA) {
    good = bytes.length == 0 || delta_init(&v->lengths, bytes);
    if (bytes.length == 0) v->lengths = (struct delta){0};
  } else if (encoding == ENCODING_DELTA_LENGTH || encoding == ENCODING_DELTA_BYTES) {
    if (bytes.length == 0)
      v->lengths = v->prefixes = (struct delta){0};
    else
      good = begin_bytes(v);
  } else if (encoding == ENCODING_SPLIT) {
    v->n_split = bytes.length / width_of(v);
  }
  if (!good) FAIL(err, EAGLET_E_INPUT, "a page is damaged: its %s values do not begin as such", parquet_encoding_name(encoding));
  return EAGLET_OK;
}

enum eaglet_status value_decoder_next(struct value_decoder *v, struct parquet_value *value, struct eaglet_error *err) {
  static bool (*const nexts[])(struct value_decoder *, struct parquet_value *) = {
      [ENCODING_PLAIN] = next_plain,        [ENCODING_PLAIN_DICTIONARY] = next_indexed, [ENCODING_RLE] = next_run,
      [ENCODING_DELTA] = next_delta,        [ENCODING_DELTA_LENGTH] = next_length,      [ENCODING_DELTA_BYTES] = next_prefixed,
      [ENCODING_DICTIONARY] = next_indexed, [ENCODING_SPLIT] = next_split};
  *value = (struct parquet_value){0};
  if (!nexts[v->encoding](v, value))
    FAIL(err, EAGLET_E_INPUT, "a page is damaged: its %s values end early or contradict themselves", parquet_encoding_name(v->encoding));
  return EAGLET_OK;
}

enum eaglet_status parquet_dictionary_read(struct parquet_dictionary *dictionary, struct value_decoder *v, int64_t n, struct eaglet_error *err) {
  size_t least = v->type == PARQUET_BYTES ? 4 : width_of(v);
  dictionary->n = 0;
  if (least == 0 || n < 0 || (uint64_t)n > v->bytes.length / least)
    FAIL(err, EAGLET_E_INPUT, "a dictionary of %lld values does not fit its page of %zu bytes", (long long)n, v->bytes.length);
  MEMORY_GROW(dictionary->values, dictionary->capacity, (size_t)n + 1);
  for (size_t i = 0; i < (size_t)n; i++) {
    TRY(value_decoder_next(v, &dictionary->values[i], err));
    dictionary->n = i + 1;
  }
  return EAGLET_OK;
}
