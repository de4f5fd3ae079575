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
  enum dtype dtype; /* F32, BF16, F16, I64, I32, U8, BOOL */
  int rank;         /* 1 to 3 */
  int64_t shape[3];
  const void *data;
};

static inline int64_t torch_elements(const struct torch_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

static inline void torch_put_text(struct buffer *b, const char *text) {
  buffer_append_char(b, 'X');
  torch_put(b, strlen(text), 4);
  buffer_append_string(b, text);
}

static inline void torch_put_int(struct buffer *b, int64_t value) {
  buffer_append_char(b, 'J');
  torch_put(b, (uint64_t)value, 4);
}

static inline const char *torch_storage(enum dtype dtype) {
  switch (dtype) {
  case DTYPE_F32: return "ctorch\nFloatStorage\n";
  case DTYPE_BF16: return "ctorch\nBFloat16Storage\n";
  case DTYPE_F16: return "ctorch\nHalfStorage\n";
  case DTYPE_I32: return "ctorch\nIntStorage\n";
  case DTYPE_U8: return "ctorch\nByteStorage\n";
  case DTYPE_BOOL: return "ctorch\nBoolStorage\n";
  default: return "ctorch\nLongStorage\n";
  }
}

static inline void torch_put_tensor(struct buffer *b, const struct torch_tensor *t, const char *key) {
  static const char tuples[] = {0, (char)0x85, (char)0x86, (char)0x87};
  buffer_append_string(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
  torch_put_text(b, "storage");
  buffer_append_string(b, torch_storage(t->dtype));
  torch_put_text(b, key);
  torch_put_text(b, "cpu");
  torch_put_int(b, torch_elements(t));
  buffer_append_string(b, "tQ");
  torch_put_int(b, 0);
  for (int i = 0; i < t->rank; i++) torch_put_int(b, t->shape[i]);
  buffer_append_char(b, tuples[t->rank]);
  for (int i = 0; i < t->rank; i++) {
    int64_t stride = 1;
    for (int k = i + 1; k < t->rank; k++) stride *= t->shape[k];
    torch_put_int(b, stride);
  }
  buffer_append_char(b, tuples[t->rank]);
  buffer_append_string(b, "\x89" "ccollections\nOrderedDict\n)RtR");
}

/* A dict of tensors; those that follow each other under one name are a list. A name without data is a note: text. */
static inline struct eaglet_text torch_sample(const struct torch_tensor *tensors, size_t n) {
  struct torch_record *records = memory_alloc((n + 1) * sizeof *records);
  char(*names)[2][48] = memory_alloc((n + 1) * sizeof *names);
  struct buffer b;
  size_t n_records = 1;
  buffer_init(&b);
  buffer_append_string(&b, "\x80\x02}(");
  for (size_t i = 0, last; i < n; i = last) {
    for (last = i + 1; last < n && strcmp(tensors[last].name, tensors[i].name) == 0;) last++;
    torch_put_text(&b, tensors[i].name);
    if (!tensors[i].data) {
      torch_put_text(&b, "a note");
      continue;
    }
    if (last > i + 1) buffer_append_string(&b, "](");
    for (size_t k = i; k < last; k++) {
      const struct torch_tensor *t = &tensors[k];
      snprintf(names[k][0], sizeof names[k][0], "%zu", k);
      snprintf(names[k][1], sizeof names[k][1], "archive/data/%zu", k);
      torch_put_tensor(&b, t, names[k][0]);
      records[n_records++] = (struct torch_record){
          .name = names[k][1], .data = t->data, .length = (size_t)torch_elements(t) * (size_t)dtype_bits(t->dtype) / 8};
    }
    if (last > i + 1) buffer_append_char(&b, 'e');
  }
  buffer_append_string(&b, "u.");
  struct eaglet_text pickle = buffer_detach(&b);
  records[0] = (struct torch_record){.name = "archive/data.pkl", .data = pickle.data, .length = pickle.length};
  struct eaglet_text archive = torch_archive(records, n_records, false);
  free(pickle.data);
  free(names);
  free(records);
  return archive;
}

/* pytorch_model.bin of n tensors. */
static inline struct eaglet_text torch_state_dict(const struct torch_tensor *tensors, size_t n) { return torch_sample(tensors, n); }

#endif
