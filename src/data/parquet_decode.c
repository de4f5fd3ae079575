/* parquet_decode.c - runs of small numbers and delta-packed integers, one value at a time from bounded bytes, so that no claimed count is ever
 * allocated or looped over; see parquet_internal.h. Knows no types and no pages. */
#include "data/parquet_internal.h"

#include <string.h>

#define PER_BLOCK_MAX ((uint64_t)1 << 24)

uint64_t bits_at(const struct cursor *bytes, uint64_t bit, int width) {
  uint64_t at = bit / 8, value = 0;
  int shift = (int)(bit % 8), have = 0;
  for (; have < width + shift && have < 64; have += 8, at++) value |= (uint64_t)(at < bytes->length ? bytes->data[at] : 0) << have;
  value >>= shift;
  if (have < width + shift && at < bytes->length) value |= (uint64_t)bytes->data[at] << (64 - shift); /* a ninth byte */
  return width == 64 ? value : value & (((uint64_t)1 << width) - 1);
}

/* ---- hybrid ---- */

void hybrid_init(struct hybrid *h, struct cursor bytes, int width) { *h = (struct hybrid){.bytes = bytes, .width = width}; }

void hybrid_init_legacy(struct hybrid *h, struct cursor bytes, int width) {
  *h = (struct hybrid){.width = width, .packed = true, .legacy = true, .bits = bytes, .run = width ? 8 * (uint64_t)bytes.length / (uint64_t)width : 0};
}

static bool begin_run(struct hybrid *h) {
  struct cursor *c = &h->bytes;
  if (h->legacy || c->at >= c->length) return false;
  uint64_t header = thrift_varint(c);
  h->packed = header & 1;
  h->run = header >> 1;
  if (!h->packed) {
    size_t n = (size_t)(h->width + 7) / 8;
    const uint8_t *bytes = cursor_bytes(c, n);
    h->value = 0;
    for (size_t i = n; bytes && i > 0; i--) h->value = h->value << 8 | bytes[i - 1];
    return !c->failed && (h->width == 32 || h->value >> h->width == 0);
  }
  if (h->run > UINT64_MAX / 64) return false;
  uint64_t n = h->run * (uint64_t)h->width, left = c->length - c->at;
  h->run *= 8;
  if (n > left) { /* some writers leave out the padding of the last group */
    n = left;
    h->run = 8 * left / (uint64_t)h->width;
  }
  h->bits = (struct cursor){.data = cursor_bytes(c, (size_t)n), .length = (size_t)n};
  h->bit_at = 0;
  return !c->failed;
}

static uint32_t legacy_bits(struct hybrid *h) {
  uint32_t value = 0;
  for (int i = 0; i < h->width; i++, h->bit_at++) value = value << 1 | (h->bits.data[h->bit_at / 8] >> (7 - h->bit_at % 8) & 1u);
  return value;
}

bool hybrid_next(struct hybrid *h, uint32_t *value) {
  while (h->run == 0) {
    if (!begin_run(h)) return false;
  }
  h->run--;
  if (!h->packed) {
    *value = h->value;
  } else if (h->legacy) {
    *value = legacy_bits(h);
  } else {
    *value = (uint32_t)bits_at(&h->bits, h->bit_at, h->width);
    h->bit_at += (uint64_t)h->width;
  }
  return true;
}

/* ---- delta ---- */

bool delta_init(struct delta *d, struct cursor bytes) {
  *d = (struct delta){.bytes = bytes};
  d->per_block = thrift_varint(&d->bytes);
  d->n_mini = thrift_varint(&d->bytes);
  d->n_left = thrift_varint(&d->bytes);
  d->last = thrift_zigzag(&d->bytes);
  if (d->bytes.failed || d->n_mini == 0 || d->per_block > PER_BLOCK_MAX || d->per_block % d->n_mini != 0) return false;
  d->per_mini = d->per_block / d->n_mini;
  d->mini = d->n_mini; /* none is open */
  return d->per_mini > 0 && d->per_mini % 8 == 0;
}

static bool begin_block(struct delta *d) {
  d->min = thrift_zigzag(&d->bytes);
  d->widths = cursor_bytes(&d->bytes, (size_t)d->n_mini);
  d->mini = 0;
  return !d->bytes.failed;
}

/* The bytes of the miniblock that is next; n_left values are yet to come. The last one may be without its padding. */
static bool begin_mini(struct delta *d) {
  if (d->mini == d->n_mini && !begin_block(d)) return false;
  uint64_t width = d->widths[d->mini++], n_values = d->n_left < d->per_mini ? d->n_left : d->per_mini;
  uint64_t left = d->bytes.length - d->bytes.at, n = d->per_mini / 8 * width;
  if (width > 64 || (n_values * width + 7) / 8 > left) return false;
  if (n > left) n = left;
  d->bits = (struct cursor){.data = cursor_bytes(&d->bytes, (size_t)n), .length = (size_t)n};
  d->in_mini = 0;
  return true;
}

static int mini_width(const struct delta *d) { return d->widths[d->mini - 1]; }

bool delta_next(struct delta *d, int64_t *value) {
  if (d->n_left == 0) return false;
  if (d->begun) {
    if ((!d->widths || d->in_mini == d->per_mini) && !begin_mini(d)) return false;
    uint64_t step = bits_at(&d->bits, d->in_mini * (uint64_t)mini_width(d), mini_width(d));
    d->last = (int64_t)((uint64_t)d->last + (uint64_t)d->min + step);
    d->in_mini++;
  }
  d->begun = true;
  d->n_left--;
  *value = d->last;
  return true;
}

bool delta_skip(struct delta *d, struct cursor *rest) {
  struct delta walk = *d;
  if (walk.n_left > 0) walk.n_left--; /* the first stands in the header */
  while (walk.n_left > 0) {
    if (!begin_mini(&walk)) return false;
    walk.n_left -= walk.n_left < walk.per_mini ? walk.n_left : walk.per_mini;
  }
  *rest = (struct cursor){.data = walk.bytes.data + walk.bytes.at, .length = walk.bytes.length - walk.bytes.at};
  return true;
}
