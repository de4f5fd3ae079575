/* row_tokens.c - see row_tokens.h. */
#include "data/row_tokens.h"

#include "base/memory.h"

#include <stdlib.h>

#define LABEL_NONE (-100) /* what trainers give positions that are not learnt */

static enum eaglet_status check_list(const json_t *list, size_t n, const char *name, struct eaglet_error *err) {
  if (!json_is_array(list)) FAIL(err, EAGLET_E_INPUT, "%s: expected an array", name);
  if (json_array_size(list) != n)
    FAIL(err, EAGLET_E_INPUT, "%s: expected %zu values, as many as there are ids, found %zu", name, n, json_array_size(list));
  return EAGLET_OK;
}

static enum eaglet_status read_id(int32_t *id, const json_t *value, size_t i, struct eaglet_error *err) {
  json_int_t integer = json_is_integer(value) ? json_integer_value(value) : -1;
  if (integer < 0 || integer > INT32_MAX) FAIL(err, EAGLET_E_INPUT, "input_ids[%zu]: expected a token id", i);
  *id = (int32_t)integer;
  return EAGLET_OK;
}

/* 0 or 1 however it is written; -1: neither. */
static int bit_of(const json_t *value) {
  if (json_is_boolean(value)) return json_is_true(value);
  double number = json_is_number(value) ? json_number_value(value) : -1;
  return number == 0 ? 0 : number == 1 ? 1 : -1;
}

static enum eaglet_status read_mask(uint8_t *bit, const struct row_reading *reading, int32_t id, size_t i, struct eaglet_error *err) {
  const json_t *value = json_array_get(reading->mask, i);
  json_int_t label = json_integer_value(value);
  int given = bit_of(value);
  if (reading->labels) {
    if (!json_is_integer(value) || (label != LABEL_NONE && label != id))
      FAIL(err, EAGLET_E_INPUT, "labels[%zu]: expected %d or the id at the same place (%d)", i, LABEL_NONE, id);
    given = label != LABEL_NONE;
  }
  if (given < 0) FAIL(err, EAGLET_E_INPUT, "mask[%zu]: expected 0 or 1", i);
  *bit = (uint8_t)given;
  return EAGLET_OK;
}

static enum eaglet_status fill(struct row_tokens_read *tokens, const struct row_reading *reading, struct eaglet_error *err) {
  size_t n = json_array_size(reading->ids);
  for (size_t i = 0; i < n; i++) {
    int32_t id = 0;
    uint8_t bit = 0;
    int seen = reading->attention ? bit_of(json_array_get(reading->attention, i)) : 1;
    TRY(read_id(&id, json_array_get(reading->ids, i), i, err));
    TRY(read_mask(&bit, reading, id, i, err));
    if (seen < 0) FAIL(err, EAGLET_E_INPUT, "attention_mask[%zu]: expected 0 or 1", i);
    if (seen == 0 && bit) FAIL(err, EAGLET_E_INPUT, "position %zu is learnt and left out by the attention mask", i);
    if (seen == 0) continue;
    tokens->ids[tokens->n] = id;
    tokens->mask[tokens->n++] = bit;
  }
  return EAGLET_OK;
}

enum eaglet_status row_tokens_read(struct row_tokens_read *tokens, const struct row_reading *reading, struct eaglet_error *err) {
  *tokens = (struct row_tokens_read){0};
  if (!json_is_array(reading->ids)) FAIL(err, EAGLET_E_INPUT, "input_ids: expected an array");
  size_t n = json_array_size(reading->ids);
  TRY(check_list(reading->mask, n, reading->labels ? "labels" : "mask", err));
  if (reading->attention) TRY(check_list(reading->attention, n, "attention_mask", err));
  tokens->ids = memory_alloc((n + 1) * sizeof *tokens->ids);
  tokens->mask = memory_alloc(n + 1);
  enum eaglet_status status = fill(tokens, reading, err);
  if (status == EAGLET_OK) return EAGLET_OK;
  free(tokens->ids);
  free(tokens->mask);
  *tokens = (struct row_tokens_read){0};
  return status;
}
