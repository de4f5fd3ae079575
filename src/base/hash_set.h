/* hash_set.h - a growing set of 64-bit hashes. Whoever holds the struct owns it; zero-initialised it is empty. */
#ifndef EAGLET_BASE_HASH_SET_H
#define EAGLET_BASE_HASH_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash_set { /* open addressing; 0 is kept apart */
  uint64_t *slots;
  size_t n, capacity; /* capacity: a power of two */
  bool has_zero;
};
bool hash_set_insert(struct hash_set *set, uint64_t hash); /* false: was there */
bool hash_set_has(const struct hash_set *set, uint64_t hash);
void hash_set_release(struct hash_set *set);

#endif
