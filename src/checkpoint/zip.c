/* zip.c - see zip.h. Trusts the central directory and holds each local header to it; every offset is checked against the archive
 * before it is followed. Checksums are not verified: weights are looked at by their own rules. */
#include "checkpoint/zip.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR_BYTES 20
#define ENTRY_BYTES 46
#define LOCAL_BYTES 30
#define COMMENT_MAX 65535

static struct cursor cursor_at(const uint8_t *data, size_t length, size_t at) {
  return (struct cursor){.data = data, .length = length, .at = at};
}

static uint16_t cursor_u16(struct cursor *c) {
  uint16_t low = cursor_u8(c);
  return (uint16_t)(low | cursor_u8(c) << 8);
}

/* ---- the end of the archive ---- */

struct directory {
  uint64_t n, n_bytes, at;
};

/* The last record, whose comment must reach to the end of the file. */
static bool find_end(size_t *at, const uint8_t *data, size_t length) {
  for (size_t back = END_BYTES; back <= length && back <= END_BYTES + COMMENT_MAX; back++) {
    struct cursor c = cursor_at(data, length, length - back);
    if (cursor_u32(&c) != 0x06054b50) continue;
    c.at += 16;
    if (cursor_u16(&c) != back - END_BYTES) continue;
    *at = length - back;
    return true;
  }
  return false;
}

static enum eaglet_status read_end64(struct directory *d, const struct zip *zip, size_t length, size_t locator, struct eaglet_error *err) {
  struct cursor c = cursor_at(zip->data, length, locator + 4);
  uint32_t disk = cursor_u32(&c);
  uint64_t at = cursor_u64(&c);
  if (disk != 0 || at > locator || locator - at < END64_BYTES) FAIL(err, EAGLET_E_INPUT, "%s: the zip64 end lies outside the archive", zip->path);
  c = cursor_at(zip->data, length, (size_t)at);
  if (cursor_u32(&c) != 0x06064b50) FAIL(err, EAGLET_E_INPUT, "%s: expected the zip64 end at byte %llu", zip->path, (unsigned long long)at);
  c.at += 20;
  uint64_t here = cursor_u64(&c);
  d->n = cursor_u64(&c);
  d->n_bytes = cursor_u64(&c);
  d->at = cursor_u64(&c);
  if (here != d->n) FAIL(err, EAGLET_E_INPUT, "%s: an archive in several parts", zip->path);
  if (d->at > at || d->n_bytes > at - d->at) FAIL(err, EAGLET_E_INPUT, "%s: the directory lies outside the archive", zip->path);
  return EAGLET_OK;
}

static enum eaglet_status read_end(struct directory *d, const struct zip *zip, size_t length, struct eaglet_error *err) {
  size_t end;
  if (!find_end(&end, zip->data, length)) FAIL(err, EAGLET_E_INPUT, "%s: truncated: the zip archive has no end", zip->path);
  struct cursor c = cursor_at(zip->data, length, end + 4);
  uint16_t disk = cursor_u16(&c), disk_directory = cursor_u16(&c), here = cursor_u16(&c);
  d->n = cursor_u16(&c);
  d->n_bytes = cursor_u32(&c);
  d->at = cursor_u32(&c);
  if (end >= LOCATOR_BYTES) {
    struct cursor locator = cursor_at(zip->data, length, end - LOCATOR_BYTES);
    if (cursor_u32(&locator) == 0x07064b50) return read_end64(d, zip, length, end - LOCATOR_BYTES, err);
  }
  if (disk != 0 || disk_directory != 0 || here != d->n) FAIL(err, EAGLET_E_INPUT, "%s: an archive in several parts", zip->path);
  if (d->at > end || d->n_bytes > end - d->at) FAIL(err, EAGLET_E_INPUT, "%s: the directory lies outside the archive", zip->path);
  return EAGLET_OK;
}

/* ---- the directory ---- */

/* Sizes that do not fit stand in an extra field, in this order. */
static void read_extra(struct zip_record *r, struct cursor extra) {
  uint64_t *const fields[] = {&r->n_bytes, &r->n_packed, &r->header};
  while (!extra.failed && extra.length - extra.at >= 4) {
    uint16_t id = cursor_u16(&extra), n = cursor_u16(&extra);
    const uint8_t *bytes = cursor_bytes(&extra, n);
    if (id != 1 || !bytes) continue;
    struct cursor c = cursor_at(bytes, n, 0);
    for (size_t i = 0; i < 3; i++) {
      if (*fields[i] == UINT32_MAX && c.length - c.at >= 8) *fields[i] = cursor_u64(&c);
    }
  }
}

static enum eaglet_status read_entry(struct zip_record *r, struct cursor *c, const struct zip *zip, struct eaglet_error *err) {
  uint32_t signature = cursor_u32(c);
  c->at += 4;
  r->flags = cursor_u16(c);
  r->method = cursor_u16(c);
  c->at += 8;
  r->n_packed = cursor_u32(c);
  r->n_bytes = cursor_u32(c);
  uint16_t n_name = cursor_u16(c), n_extra = cursor_u16(c), n_comment = cursor_u16(c);
  c->at += 8;
  r->header = cursor_u32(c);
  r->n_name = n_name;
  r->name = (const char *)cursor_bytes(c, n_name);
  const uint8_t *extra = cursor_bytes(c, n_extra);
  (void)cursor_bytes(c, n_comment);
  if (c->failed || signature != 0x02014b50) FAIL(err, EAGLET_E_INPUT, "%s: the archive's directory is broken at record %zu", zip->path, zip->n);
  read_extra(r, cursor_at(extra, n_extra, 0));
  return EAGLET_OK;
}

static int compare_names(const char *a, size_t n_a, const char *b, size_t n_b) {
  int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
  return order ? order : (n_a > n_b) - (n_a < n_b);
}

static int by_name(const void *a, const void *b) {
  const struct zip_record *x = a, *y = b;
  return compare_names(x->name, x->n_name, y->name, y->n_name);
}

static enum eaglet_status read_directory(struct zip *zip, const struct directory *d, struct eaglet_error *err) {
  if (d->n > d->n_bytes / ENTRY_BYTES) FAIL(err, EAGLET_E_INPUT, "%s: the archive's directory is too short for its records", zip->path);
  struct cursor c = cursor_at(zip->data + d->at, (size_t)d->n_bytes, 0);
  zip->records = memory_alloc(((size_t)d->n + 1) * sizeof *zip->records);
  for (; zip->n < d->n; zip->n++) {
    if (c.length - c.at < ENTRY_BYTES) FAIL(err, EAGLET_E_INPUT, "%s: the archive's directory is broken at record %zu", zip->path, zip->n);
    TRY(read_entry(&zip->records[zip->n], &c, zip, err));
  }
  qsort(zip->records, zip->n, sizeof *zip->records, by_name);
  for (size_t i = 1; i < zip->n; i++) {
    if (by_name(&zip->records[i - 1], &zip->records[i]) == 0) FAIL(err, EAGLET_E_INPUT, "%s: a name stands twice in the archive", zip->path);
  }
  return EAGLET_OK;
}

enum eaglet_status zip_open(struct zip *zip, const uint8_t *data, size_t length, const char *path, struct eaglet_error *err) {
  struct directory d = {0};
  *zip = (struct zip){.path = path, .data = data};
  enum eaglet_status status = read_end(&d, zip, length, err);
  zip->n_data = (size_t)d.at;
  if (status == EAGLET_OK) status = read_directory(zip, &d, err);
  if (status != EAGLET_OK) zip_close(zip);
  return status;
}

const struct zip_record *zip_find(const struct zip *zip, const char *name) {
  const struct zip_record key = {.name = name, .n_name = strlen(name)};
  return zip->n ? bsearch(&key, zip->records, zip->n, sizeof key, by_name) : NULL;
}

enum eaglet_status zip_bytes(const struct zip *zip, const uint8_t **bytes, const struct zip_record *r, struct eaglet_error *err) {
  int n_name = (int)r->n_name;
  if (r->method != 0 || (r->flags & 1))
    FAIL(err, EAGLET_E_INPUT, "%s: %.*s: expected a stored record, found a %s one", zip->path, n_name, r->name, r->flags & 1 ? "encrypted" : "compressed");
  if (r->n_bytes != r->n_packed) FAIL(err, EAGLET_E_INPUT, "%s: %.*s: its two sizes differ", zip->path, n_name, r->name);
  if (r->header > zip->n_data || zip->n_data - r->header < LOCAL_BYTES)
    FAIL(err, EAGLET_E_INPUT, "%s: %.*s: lies outside the archive", zip->path, n_name, r->name);
  struct cursor c = cursor_at(zip->data, zip->n_data, (size_t)r->header);
  uint32_t signature = cursor_u32(&c);
  c.at += 22;
  uint16_t n_local = cursor_u16(&c), n_extra = cursor_u16(&c);
  const uint8_t *local = cursor_bytes(&c, n_local);
  (void)cursor_bytes(&c, n_extra);
  if (c.failed || signature != 0x04034b50 || compare_names((const char *)local, n_local, r->name, r->n_name) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: %.*s: its header is not where the directory says", zip->path, n_name, r->name);
  if (r->n_bytes > c.length - c.at)
    FAIL(err, EAGLET_E_INPUT, "%s: %.*s: expected %llu bytes, the archive has %zu left", zip->path, n_name, r->name, (unsigned long long)r->n_bytes, c.length - c.at);
  *bytes = zip->data + c.at;
  return EAGLET_OK;
}

void zip_close(struct zip *zip) {
  free(zip->records);
  *zip = (struct zip){0};
}
