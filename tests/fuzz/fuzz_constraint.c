/* fuzz_constraint.c - compiles arbitrary patterns and JSON schemas; what is taken is walked. Compiling must end in a constraint or in an error with
 * words. A walk over allowed bytes must never get stuck: from every state some byte goes on or the text may end, and bytes alone lead to an
 * end; masks of a vocabulary of bytes say the same as the bytes.
 *
 * The first byte chooses the source: 'r' a pattern, 's' a schema, 'w' a schema with whitespace. Bytes behind a NUL steer the walk.
 */
#include "text/constraint_matcher.h"

#include "base/json.h"
#include <stdlib.h>
#include <string.h>

#define STOP 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static struct constraint_vocabulary *byte_vocabulary(void) {
  char bytes[256];
  struct vocabulary_token tokens[257] = {{0}};
  int32_t stop = STOP;
  for (int i = 0; i < 256; i++) {
    bytes[i] = (char)i;
    tokens[i] = (struct vocabulary_token){&bytes[i], 1};
  }
  struct constraint_vocabulary *vocabulary;
  const struct token_list stops = {.ids = &stop, .n = 1};
  ASSERT(constraint_vocabulary_from_tokens(&vocabulary, tokens, 257, &stops, NULL) == EAGLET_OK);
  return vocabulary;
}

static void walk(struct constraint_matcher *matcher, const uint8_t *steps, size_t n_steps) {
  uint32_t state = constraint_matcher_start(matcher);
  for (size_t i = 0; i < n_steps; i++) {
    const uint32_t *mask;
    struct eaglet_error err = {0};
    constraint_matcher_trim(matcher, &state, 1);
    if (constraint_matcher_mask(matcher, state, &mask, &err) != EAGLET_OK) {
      ASSERT(err.status == EAGLET_E_RESOURCE && err.message[0]); /* never stuck: every byte is a token */
      return;
    }
    ASSERT((mask[STOP / 32] >> (STOP % 32) & 1) == constraint_matcher_is_complete(matcher, state));
    int byte = steps[i], n_tried = 0; /* the byte that is asked for, or the next one that may come */
    while (n_tried < 256 && !(mask[byte / 32] >> (byte % 32) & 1)) {
      byte = (byte + 1) % 256;
      n_tried++;
    }
    if (n_tried == 256) {
      ASSERT(constraint_matcher_must_end(matcher, state));
      return;
    }
    ASSERT(constraint_matcher_advance(matcher, &state, byte));
  }
}

static enum eaglet_status compile(struct constraint **constraint, char kind, const char *source, size_t length, struct eaglet_error *err) {
  if (kind == 'r') return constraint_compile_regex(constraint, source, length, err);
  json_t *schema;
  *constraint = NULL;
  TRY(json_parse(&schema, source, length, "schema", err));
  const struct constraint_params params = {.whitespace_max = kind == 'w' ? 2 : 0, .nesting_max = 5};
  enum eaglet_status status = constraint_compile_schema(constraint, schema, &params, err);
  json_decref(schema);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  if (length < 2 || length > 4096 || !strchr("rsw", data[0]) || !data[0]) return 0;
  const uint8_t *end = memchr(data, 0, length);
  size_t n_source = end ? (size_t)(end - data) - 1 : length - 1, n_steps = end ? length - n_source - 2 : 0;
  struct constraint *constraint;
  struct eaglet_error err = {0};
  if (compile(&constraint, (char)data[0], (const char *)data + 1, n_source, &err) != EAGLET_OK) {
    ASSERT(constraint == NULL && err.message[0]);
    return 0;
  }
  static struct constraint_vocabulary *vocabulary; /* one for all inputs */
  if (!vocabulary) vocabulary = byte_vocabulary();
  struct constraint_matcher *matcher;
  const struct constraint_matcher_params params = {.constraint = constraint, .vocabulary = vocabulary, .memory_max = 1 << 20, .masks_max = 4};
  if (constraint_matcher_create(&matcher, &params, &err) == EAGLET_OK) walk(matcher, n_steps ? end + 1 : data, n_steps ? n_steps : length);
  else ASSERT(err.status == EAGLET_E_RESOURCE && err.message[0]);
  constraint_matcher_free(matcher);
  constraint_free(constraint);
  return 0;
}
