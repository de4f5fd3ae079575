/* allocation_count.h - counts the allocations of the program that includes it, once: the linker routes them through here (meson.build). */
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
void *__wrap_malloc(size_t bytes) {
  ++*n_allocations;
  return __real_malloc(bytes);
}
void *__wrap_calloc(size_t n, size_t bytes) {
  ++*n_allocations;
  return __real_calloc(n, bytes);
}
void *__wrap_realloc(void *block, size_t bytes) {
  ++*n_allocations;
  return __real_realloc(block, bytes);
}

#endif
