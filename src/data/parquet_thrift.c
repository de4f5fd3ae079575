/* parquet_thrift.c - the compact protocol of Apache Thrift as far as Parquet's structures need it; see parquet_internal.h. Every length is
 * compared with the bytes that are left; nesting of what is skipped is limited. Knows no field. */
#include "data/parquet_internal.h"

#include "base/memory.h"

#include <string.h>

#define SKIP_DEPTH_MAX 64

uint64_t thrift_varint(struct cursor *c) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    uint8_t byte = cursor_u8(c);
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return value;
  }
  c->failed = true; /* longer than any number */
  return 0;
}

int64_t thrift_zigzag(struct cursor *c) {
  uint64_t value = thrift_varint(c);
  return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

bool thrift_next(struct cursor *c, struct thrift_field *field) {
  uint8_t byte = cursor_u8(c);
  if (c->failed || byte == 0) return false;
  int64_t id = byte >> 4 ? field->id + (byte >> 4) : thrift_zigzag(c);
  field->type = byte & 15;
  if (id < 0 || id > INT16_MAX || field->type > THRIFT_UUID) c->failed = true;
  field->id = (int32_t)id;
  return !c->failed;
}

int64_t thrift_integer(struct cursor *c, uint8_t type) {
  switch (type) {
  case THRIFT_TRUE: return 1;
  case THRIFT_FALSE: return 0;
  case THRIFT_I8: return (int8_t)cursor_u8(c);
  case THRIFT_I16:
  case THRIFT_I32:
  case THRIFT_I64: return thrift_zigzag(c);
  default: c->failed = true; return 0;
  }
}

size_t thrift_list(struct cursor *c, uint8_t type, uint8_t *element) {
  uint8_t byte = type == THRIFT_LIST || type == THRIFT_SET ? cursor_u8(c) : 0;
  uint64_t n = byte >> 4 == 15 ? thrift_varint(c) : byte >> 4;
  *element = byte & 15;
  if ((type != THRIFT_LIST && type != THRIFT_SET) || c->failed || n > c->length - c->at) { /* an element has a byte at least */
    c->failed = true;
    return 0;
  }
  return (size_t)n;
}

static const uint8_t *binary(struct cursor *c, size_t *n) {
  uint64_t length = thrift_varint(c);
  if (c->failed || length > c->length - c->at) {
    c->failed = true;
    return NULL;
  }
  *n = (size_t)length;
  return cursor_bytes(c, *n);
}

char *thrift_text(struct cursor *c, uint8_t type) {
  size_t n = 0;
  const uint8_t *bytes = type == THRIFT_BINARY ? binary(c, &n) : NULL;
  if (!bytes || memchr(bytes, 0, n)) {
    c->failed |= type != THRIFT_BINARY || n > 0;
    return memory_copy_string("");
  }
  return memory_copy_span((const char *)bytes, n);
}

/* What is open while a value is skipped: a struct (until its stop byte) or n more values, keys and values taking turns. */
struct skipping {
  bool is_struct;
  uint64_t n;
  uint8_t types[2];
};

static void open_value(struct cursor *c, uint8_t type, struct skipping *stack, int *depth) {
  struct skipping inner = {.is_struct = type == THRIFT_STRUCT};
  if (*depth == SKIP_DEPTH_MAX) {
    c->failed = true;
    return;
  }
  if (type == THRIFT_LIST || type == THRIFT_SET) {
    inner.n = thrift_list(c, type, &inner.types[0]);
    inner.types[1] = inner.types[0];
  } else if (type == THRIFT_MAP) {
    uint64_t n = thrift_varint(c);
    uint8_t types = n > 0 ? cursor_u8(c) : 0;
    if (n > c->length - c->at) c->failed = true;
    inner.n = 2 * n;
    inner.types[0] = types >> 4; /* an even number is left before a key */
    inner.types[1] = types & 15;
  }
  stack[(*depth)++] = inner;
}

static void skip_one(struct cursor *c, uint8_t type, bool in_list, struct skipping *stack, int *depth) {
  size_t n = 0;
  switch (type) {
  case THRIFT_TRUE:
  case THRIFT_FALSE:
    if (in_list) cursor_u8(c);
    return;
  case THRIFT_I8: cursor_u8(c); return;
  case THRIFT_I16:
  case THRIFT_I32:
  case THRIFT_I64: thrift_varint(c); return;
  case THRIFT_DOUBLE: cursor_bytes(c, 8); return;
  case THRIFT_UUID: cursor_bytes(c, 16); return;
  case THRIFT_BINARY: binary(c, &n); return;
  case THRIFT_LIST:
  case THRIFT_SET:
  case THRIFT_MAP:
  case THRIFT_STRUCT: open_value(c, type, stack, depth); return;
  default: c->failed = true;
  }
}

void thrift_skip(struct cursor *c, uint8_t type) {
  struct skipping stack[SKIP_DEPTH_MAX];
  int depth = 0;
  skip_one(c, type, false, stack, &depth);
  while (depth > 0 && !c->failed) {
    struct skipping *top = &stack[depth - 1];
    struct thrift_field field = {0};
    if (top->is_struct) {
      if (thrift_next(c, &field))
        skip_one(c, field.type, false, stack, &depth);
      else
        depth--;
    } else if (top->n == 0) {
      depth--;
    } else {
      uint8_t element = top->types[top->n-- % 2];
      skip_one(c, element, true, stack, &depth);
    }
  }
}
