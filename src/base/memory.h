/* memory.h - owning memory: checked heap allocation and arenas.
 *
 * The heap functions never return NULL for a reasonable request: they abort with a message when the machine is out of memory
 * for small metadata (ASSERT's kind), while large, size-dependent requests (weights, KV, activations, data) go through
 * memory_try, which returns NULL so that the caller can fail with EAGLET_E_RESOURCE.
 *
 * An arena is one allocation that is carved from the front and emptied at once. Sizes are planned first; running over is a
 * programmer's mistake (ASSERT), never a realloc. All arena blocks are 64-byte aligned.
 */
#ifndef EAGLET_BASE_MEMORY_H
#define EAGLET_BASE_MEMORY_H

#include "base/error.h"

void *memory_alloc(size_t bytes);                    /* zeroed; aborts when out of memory */
void *memory_resize(void *block, size_t bytes);      /* realloc; aborts; new part not zeroed */
char *memory_copy_string(const char *text);          /* strdup; NULL gives NULL */
char *memory_copy_span(const char *text, size_t length);
char *memory_format(const char *format, ...) PRINTF_LIKE(1, 2); /* asprintf; aborts */
void *memory_try(size_t bytes);                      /* 64-byte aligned, zeroed, NULL when out of memory; memory_try_free */
void memory_try_free(void *block);

/* Grows *array to hold at least n_needed elements (doubling). Used by every growing list. */
void memory_grow(void **array, size_t *capacity, size_t n_needed, size_t element_bytes);
#define MEMORY_GROW(array, capacity, n) memory_grow((void **)&(array), &(capacity), (n), sizeof *(array))

struct arena {
  char *base;
  size_t used, capacity;
  size_t used_max; /* high-water mark */
};
enum eaglet_status arena_init(struct arena *arena, size_t capacity, struct eaglet_error *err) MUST_USE;
void *arena_take(struct arena *arena, size_t bytes); /* not zeroed; ASSERTs that it fits */
void arena_reset(struct arena *arena);               /* forget content, keep memory */
void arena_release(struct arena *arena);
static inline size_t arena_round(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

#endif
