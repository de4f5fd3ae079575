/* allocation_count.h - counts the allocations of the program that includes it, and their bytes, once: the linker routes them through here (meson.build). */
#ifndef EAGLET_TESTS_ALLOCATION_COUNT_H
#define EAGLET_TESTS_ALLOCATION_COUNT_H

#include <stddef.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
static long *const n_allocations = &(long){0};
static size_t *const n_allocated_bytes = &(size_t){0};
void *__wrap_malloc(size_t bytes) {
  ++*n_allocations;
  *n_allocated_bytes += bytes;
  return __real_malloc(bytes);
}
void *__wrap_calloc(size_t n, size_t bytes) {
  ++*n_allocations;
  *n_allocated_bytes += n * bytes;
  return __real_calloc(n, bytes);
}
void *__wrap_realloc(void *block, size_t bytes) {
  ++*n_allocations;
  *n_allocated_bytes += bytes;
  return __real_realloc(block, bytes);
}

#endif
