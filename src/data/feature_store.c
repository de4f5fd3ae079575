/* feature_store.c - what all stores share: the choice of a kind, the check of what was read, the stored form of numbers; see
 * feature_store.h. Owns nothing but the order of these steps. */
#include "data/feature_store.h"

#include "data/feature_shard.h"
#include "data/foreign_store.h"

#include <math.h>
#include <string.h>

#define F8_MAX 448.0f /* the largest E4M3 */

int32_t feature_layout_slots(const struct feature_layout *layout) {
  return layout->n_states + (layout->last != FEATURE_LAST_NONE);
}

uint64_t feature_token_bytes(const struct feature_layout *layout) {
  uint64_t state = (uint64_t)layout->hidden * (uint64_t)dtype_bits(layout->dtype) / 8;
  if (layout->dtype == DTYPE_F8_E4M3) state += sizeof(float);
  return (uint64_t)feature_layout_slots(layout) * state + sizeof(int32_t);
}

/* ---- numbers ---- */

/* The largest magnitude of n floats as bits: infinities and what is no number are above all numbers, zeros are 0. */
static uint32_t largest_bits(const float *values, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, values + i, sizeof bits);
    bits &= 0x7fffffffu;
    if (bits > largest) largest = bits;
  }
  return largest;
}

static void note_fault(struct feature_fault *fault, const struct feature_numbers *numbers, int32_t token, int32_t slot) {
  const float *values = numbers->values + ((size_t)token * (size_t)numbers->n_slots + (size_t)slot) * (size_t)numbers->hidden;
  fault->token = token;
  fault->state = numbers->states[slot];
  fault->zero = true;
  fault->value = 0;
  for (int32_t i = 0; i < numbers->hidden; i++) {
    if (isfinite(values[i])) continue;
    fault->zero = false;
    fault->value = values[i];
    return;
  }
}

bool feature_fault_find(struct feature_fault *fault, const struct feature_numbers *numbers) {
  bool found = false;
  size_t hidden = (size_t)numbers->hidden;
  for (int32_t t = 0; t < numbers->n_tokens; t++) {
    for (int32_t s = 0; s < numbers->n_slots; s++) {
      uint32_t largest = largest_bits(numbers->values + ((size_t)t * (size_t)numbers->n_slots + (size_t)s) * hidden, hidden);
      bool zero = largest == 0 && numbers->states[s] != 0;
      if (largest < 0x7f800000u && !zero) continue;
      if (fault->n_not_finite + fault->n_zero == 0) note_fault(fault, numbers, t, s);
      fault->n_not_finite += !zero;
      fault->n_zero += zero;
      found = true;
    }
  }
  return found;
}

enum eaglet_status feature_fault_fail(const struct feature_fault *fault, const char *path, size_t row, struct eaglet_error *err) {
  if (fault->zero)
    FAIL(err, EAGLET_E_INPUT, "%s: row %zu, token %d, state %d: expected a state, found zeros", path, row, fault->token, fault->state);
  FAIL(err, EAGLET_E_INPUT, "%s: row %zu, token %d, state %d: expected finite numbers, found %f", path, row, fault->token, fault->state,
       (double)fault->value);
}

void feature_encode(void *to, float *scale, enum dtype dtype, const float *from, size_t n) {
  if (dtype != DTYPE_F8_E4M3) {
    dtype_from_f32(to, dtype, from, n);
    return;
  }
  uint32_t largest = largest_bits(from, n);
  float magnitude, factor;
  memcpy(&magnitude, &largest, sizeof magnitude);
  *scale = magnitude / F8_MAX;
  factor = *scale > 0 ? 1.0f / *scale : 0.0f;
  uint8_t *bytes = to;
  for (size_t i = 0; i < n; i++) bytes[i] = dtype_f32_to_f8_e4m3(from[i] * factor);
}

void feature_decode(float *to, const void *from, const float *scale, enum dtype dtype, size_t n) {
  dtype_to_f32(to, from, dtype, n);
  if (dtype != DTYPE_F8_E4M3) return;
  for (size_t i = 0; i < n; i++) to[i] *= *scale;
}

/* ---- stores ---- */

enum eaglet_status feature_store_open(struct feature_store **store, const char *directory,
                                      const struct token_store *tokens, struct eaglet_error *err) {
  return foreign_store_is(directory) ? foreign_store_open(store, directory, tokens, err)
                                     : feature_shards_open(store, directory, tokens, err);
}

bool feature_store_has(const struct feature_store *store, size_t row) {
  return row < store->tokens->n_rows && store->kind->has(store, row);
}

enum eaglet_status feature_store_read(struct feature_store *store, size_t row, float *states,
                                      struct eaglet_error *err) {
  if (row >= store->tokens->n_rows) FAIL(err, EAGLET_E_INTERNAL, "feature row %zu of %zu", row, store->tokens->n_rows);
  return store->kind->read(store, row, states, err);
}

void feature_store_name(struct feature_store *store, const int32_t *states, int32_t n_layers, enum feature_last last) {
  ASSERT((last == FEATURE_LAST_NONE) == (store->layout.last == FEATURE_LAST_NONE));
  memcpy(store->layout.states, states, sizeof *states * (size_t)store->layout.n_states);
  store->layout.n_layers = n_layers;
  store->layout.last = last;
  store->named = true;
}

void feature_store_close(struct feature_store *store) {
  if (store) store->kind->close(store);
}
