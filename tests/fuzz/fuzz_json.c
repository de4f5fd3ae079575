/* fuzz_json.c - json_parse on arbitrary bytes: it must refuse or give a value whose dump parses back to an equal value. */
#include "base/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  struct eaglet_error err = {0};
  json_t *json = NULL, *back = NULL;
  if (json_parse(&json, (const char *)data, length, "input", &err) != EAGLET_OK) {
    ASSERT(json == NULL && err.status == EAGLET_E_INPUT && err.message[0]);
    return 0;
  }
  struct eaglet_text text = json_dump(json, length % 3);
  ASSERT(json_parse(&back, text.data, text.length, "dump", &err) == EAGLET_OK);
  ASSERT(json_equal(json, back));
  free(text.data);
  json_decref(json);
  json_decref(back);
  return 0;
}
