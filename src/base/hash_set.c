/* hash_set.c - see hash_set.h. Slots are probed one after the other from the hash's low bits; never more than half are taken. */
#include "base/hash_set.h"

#include "base/memory.h"

#include <stdlib.h>

static size_t slot_of(const struct hash_set *set, uint64_t hash) {
  size_t at = (size_t)hash & (set->capacity - 1);
  while (set->slots[at] && set->slots[at] != hash) at = (at + 1) & (set->capacity - 1);
  return at;
}

static void grow(struct hash_set *set) {
  struct hash_set larger = {.n = set->n, .capacity = set->capacity ? 2 * set->capacity : 1024, .has_zero = set->has_zero};
  larger.slots = memory_alloc(larger.capacity * sizeof *larger.slots);
  for (size_t i = 0; i < set->capacity; i++) {
    if (set->slots[i]) larger.slots[slot_of(&larger, set->slots[i])] = set->slots[i];
  }
  free(set->slots);
  *set = larger;
}

bool hash_set_insert(struct hash_set *set, uint64_t hash) {
  if (hash == 0) {
    bool fresh = !set->has_zero;
    set->has_zero = true;
    return fresh;
  }
  if (2 * (set->n + 1) > set->capacity) grow(set);
  size_t at = slot_of(set, hash);
  if (set->slots[at]) return false;
  set->slots[at] = hash;
  set->n++;
  return true;
}

bool hash_set_has(const struct hash_set *set, uint64_t hash) {
  if (hash == 0) return set->has_zero;
  return set->capacity > 0 && set->slots[slot_of(set, hash)];
}

void hash_set_release(struct hash_set *set) {
  free(set->slots);
  *set = (struct hash_set){0};
}
