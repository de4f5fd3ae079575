/* torch_writer.h - zip archives and pickles built by hand, the way torch.save builds them or wrong in one place. Header only; not for
 * src. */
#ifndef EAGLET_TESTS_TORCH_WRITER_H
#define EAGLET_TESTS_TORCH_WRITER_H

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct torch_record {
  const char *name;
  const void *data;
  size_t length;
  int method; /* 0 is what torch.save writes */
};

static inline void torch_put(struct buffer *b, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) buffer_append_char(b, (char)(value >> (8 * i)));
}

/* One record's local header, padded so that its bytes begin at a multiple of 64, and the bytes. */
static inline void torch_put_local(struct buffer *b, const struct torch_record *r) {
  size_t n_name = strlen(r->name), pad = (64 - (b->length + 30 + n_name + 4) % 64) % 64;
  torch_put(b, 0x04034b50, 4);
  torch_put(b, 0, 2); /* version, then flags */
  torch_put(b, 0, 2);
  torch_put(b, (uint64_t)r->method, 2);
  torch_put(b, 0, 8); /* time, date, checksum */
  torch_put(b, r->length, 4);
  torch_put(b, r->length, 4);
  torch_put(b, n_name, 2);
  torch_put(b, pad + 4, 2);
  buffer_append(b, r->name, n_name);
  buffer_append(b, "FB", 2);
  torch_put(b, pad, 2);
  for (size_t i = 0; i < pad; i++) buffer_append_char(b, 'Z');
  buffer_append(b, r->data, r->length);
}

/* large: every size and place stands in the zip64 extra field. */
static inline void torch_put_entry(struct buffer *b, const struct torch_record *r, uint64_t at, bool large) {
  size_t n_name = strlen(r->name);
  torch_put(b, 0x02014b50, 4);
  torch_put(b, 0, 6); /* versions, flags */
  torch_put(b, (uint64_t)r->method, 2);
  torch_put(b, 0, 8);
  torch_put(b, large ? UINT32_MAX : r->length, 4);
  torch_put(b, large ? UINT32_MAX : r->length, 4);
  torch_put(b, n_name, 2);
  torch_put(b, large ? 28 : 0, 2);
  torch_put(b, 0, 8);
  torch_put(b, 0, 2);
  torch_put(b, large ? UINT32_MAX : at, 4);
  buffer_append(b, r->name, n_name);
  if (!large) return;
  torch_put(b, 1, 2);
  torch_put(b, 24, 2);
  torch_put(b, r->length, 8);
  torch_put(b, r->length, 8);
  torch_put(b, at, 8);
}

static inline void torch_put_end(struct buffer *b, size_t n, size_t first, bool large) {
  uint64_t end = b->length, length = end - first;
  if (large) {
    torch_put(b, 0x06064b50, 4);
    torch_put(b, 44, 8);
    torch_put(b, 0, 8); /* versions, disk */
    torch_put(b, 0, 4);
    torch_put(b, n, 8);
    torch_put(b, n, 8);
    torch_put(b, length, 8);
    torch_put(b, first, 8);
    torch_put(b, 0x07064b50, 4);
    torch_put(b, 0, 4);
    torch_put(b, end, 8);
    torch_put(b, 1, 4);
  }
  torch_put(b, 0x06054b50, 4);
  torch_put(b, 0, 4);
  torch_put(b, large ? UINT16_MAX : n, 2);
  torch_put(b, large ? UINT16_MAX : n, 2);
  torch_put(b, large ? UINT32_MAX : length, 4);
  torch_put(b, large ? UINT32_MAX : first, 4);
  torch_put(b, 0, 2);
}

static inline struct eaglet_text torch_archive(const struct torch_record *records, size_t n, bool large) {
  struct buffer b;
  uint64_t *at = memory_alloc((n + 1) * sizeof *at);
  buffer_init(&b);
  for (size_t i = 0; i < n; i++) {
    at[i] = b.length;
    torch_put_local(&b, &records[i]);
  }
  size_t first = b.length;
  for (size_t i = 0; i < n; i++) torch_put_entry(&b, &records[i], at[i], large);
  torch_put_end(&b, n, first, large);
  free(at);
  return buffer_detach(&b);
}

/* ---- a state dict ---- */

struct torch_tensor {
  const char *name;
  enum dtype dtype; /* F32, BF16, I64 */
  int rank;         /* 1 or 2 */
  int64_t shape[2];
  const void *data;
};

static inline void torch_put_text(struct buffer *b, const char *text) {
  buffer_append_char(b, 'X');
  torch_put(b, strlen(text), 4);
  buffer_append_string(b, text);
}

static inline void torch_put_int(struct buffer *b, int64_t value) {
  buffer_append_char(b, 'J');
  torch_put(b, (uint64_t)value, 4);
}

static inline void torch_put_tensor(struct buffer *b, const struct torch_tensor *t, const char *key) {
  int64_t columns = t->rank > 1 ? t->shape[1] : 1;
  torch_put_text(b, t->name);
  buffer_append_string(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
  torch_put_text(b, "storage");
  buffer_append_string(b, t->dtype == DTYPE_F32 ? "ctorch\nFloatStorage\n" : t->dtype == DTYPE_BF16 ? "ctorch\nBFloat16Storage\n" : "ctorch\nLongStorage\n");
  torch_put_text(b, key);
  torch_put_text(b, "cpu");
  torch_put_int(b, t->shape[0] * columns);
  buffer_append_string(b, "tQ");
  torch_put_int(b, 0);
  torch_put_int(b, t->shape[0]);
  if (t->rank > 1) torch_put_int(b, columns);
  buffer_append_string(b, t->rank > 1 ? "\x86" : "\x85");
  if (t->rank > 1) torch_put_int(b, columns);
  torch_put_int(b, 1);
  buffer_append_string(b, t->rank > 1 ? "\x86\x89" : "\x85\x89");
  buffer_append_string(b, "ccollections\nOrderedDict\n)RtR");
}

/* pytorch_model.bin of n tensors. */
static inline struct eaglet_text torch_state_dict(const struct torch_tensor *tensors, size_t n) {
  struct torch_record *records = memory_alloc((n + 1) * sizeof *records);
  char(*names)[2][48] = memory_alloc((n + 1) * sizeof *names);
  struct buffer b;
  buffer_init(&b);
  buffer_append_string(&b, "\x80\x02}(");
  for (size_t i = 0; i < n; i++) {
    const struct torch_tensor *t = &tensors[i];
    snprintf(names[i][0], sizeof names[i][0], "%zu", i);
    snprintf(names[i][1], sizeof names[i][1], "archive/data/%zu", i);
    torch_put_tensor(&b, t, names[i][0]);
    size_t elements = (size_t)(t->shape[0] * (t->rank > 1 ? t->shape[1] : 1));
    records[i + 1] = (struct torch_record){.name = names[i][1], .data = t->data, .length = elements * (size_t)dtype_bits(t->dtype) / 8};
  }
  buffer_append_string(&b, "u.");
  struct eaglet_text pickle = buffer_detach(&b);
  records[0] = (struct torch_record){.name = "archive/data.pkl", .data = pickle.data, .length = pickle.length};
  struct eaglet_text archive = torch_archive(records, n + 1, false);
  free(pickle.data);
  free(names);
  free(records);
  return archive;
}

#endif
