/* memory.c - checked heap allocation and arenas; see memory.h. Keeps no counters and no pools. */
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_ALIGN ((size_t)64)
#define TRY_BYTES_MAX ((size_t)1 << 47) /* no machine has more address space to give; also keeps sums from wrapping */

static _Noreturn void out_of_memory(size_t bytes) {
  fprintf(stderr, "eaglet: out of memory (%zu bytes)\n", bytes);
  abort();
}

void *memory_alloc(size_t bytes) {
  void *block = calloc(1, bytes ? bytes : 1);
  if (!block) out_of_memory(bytes);
  return block;
}

void *memory_resize(void *block, size_t bytes) {
  void *resized = realloc(block, bytes ? bytes : 1);
  if (!resized) out_of_memory(bytes);
  return resized;
}

char *memory_copy_string(const char *text) { return text ? memory_copy_span(text, strlen(text)) : NULL; }

char *memory_copy_span(const char *text, size_t length) {
  ASSERT(length < SIZE_MAX);
  char *copy = memory_alloc(length + 1);
  if (length > 0) memcpy(copy, text, length);
  return copy;
}

char *memory_format(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  ASSERT(length >= 0);
  char *text = memory_alloc((size_t)length + 1);
  va_start(arguments, format);
  vsnprintf(text, (size_t)length + 1, format, arguments);
  va_end(arguments);
  return text;
}

/* calloc with room to align, rather than aligned_alloc and memset: the pages of a large block stay untouched (and zero) until
 * they are used, so a generously planned pool costs no resident memory. The word before the block remembers what to free. */
void *memory_try(size_t bytes) {
  if (bytes > TRY_BYTES_MAX) return NULL;
  char *raw = calloc(1, bytes + 2 * BLOCK_ALIGN);
  if (!raw) return NULL;
  size_t skip = BLOCK_ALIGN + (BLOCK_ALIGN - (uintptr_t)raw % BLOCK_ALIGN) % BLOCK_ALIGN;
  char *block = raw + skip;
  memcpy(block - sizeof raw, &raw, sizeof raw);
  return block;
}

void memory_try_free(void *block) {
  if (!block) return;
  char *raw;
  memcpy(&raw, (char *)block - sizeof raw, sizeof raw);
  free(raw);
}

void memory_grow(void **array, size_t *capacity, size_t n_needed, size_t element_bytes) {
  ASSERT(element_bytes > 0);
  if (n_needed <= *capacity) return;
  size_t n = *capacity ? *capacity : 8;
  while (n < n_needed) {
    ASSERT(n <= SIZE_MAX / 2);
    n *= 2;
  }
  ASSERT(n <= SIZE_MAX / element_bytes);
  *array = memory_resize(*array, n * element_bytes);
  *capacity = n;
}

enum eaglet_status arena_init(struct arena *arena, size_t capacity, struct eaglet_error *err) {
  *arena = (struct arena){0};
  arena->base = memory_try(arena_round(capacity));
  if (!arena->base) FAIL(err, EAGLET_E_RESOURCE, "not enough memory: an arena of %zu bytes was refused", capacity);
  arena->capacity = arena_round(capacity);
  return EAGLET_OK;
}

void *arena_take(struct arena *arena, size_t bytes) {
  ASSERT(bytes <= arena->capacity && arena_round(bytes) <= arena->capacity - arena->used);
  void *block = arena->base + arena->used;
  arena->used += arena_round(bytes);
  if (arena->used > arena->used_max) arena->used_max = arena->used;
  return block;
}

void arena_reset(struct arena *arena) { arena->used = 0; }

void arena_release(struct arena *arena) {
  memory_try_free(arena->base);
  *arena = (struct arena){0};
}
