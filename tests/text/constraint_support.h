/* constraint_support.h - shared by the tests of constraints: tokenizers of three families as vocabularies, texts cut into tokens at random,
 * and running a text through a matcher.
 */
#ifndef EAGLET_TESTS_TEXT_CONSTRAINT_SUPPORT_H
#define EAGLET_TESTS_TEXT_CONSTRAINT_SUPPORT_H

#include "support.h"

#include "text/constraint_matcher.h"

static inline uint64_t random_pick(uint64_t *seed, uint64_t n) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (*seed >> 33) % n;
}

static inline json_t *parse_schema(const char *text) {
  json_t *schema = json_loads(text, JSON_DECODE_ANY, NULL);
  if (!schema) fail_msg("not JSON: %s", text);
  return schema;
}

static inline struct constraint *compile_schema(const char *text, const struct constraint_params *params) {
  struct constraint *constraint;
  struct eaglet_error err = {0};
  json_t *schema = parse_schema(text);
  if (constraint_compile_schema(&constraint, schema, params, &err) != EAGLET_OK) fail_msg("%s: %s", text, err.message);
  json_decref(schema);
  return constraint;
}

static inline struct constraint_matcher *run_constraint(const struct constraint *constraint, const struct constraint_vocabulary *vocabulary) {
  struct constraint_matcher *matcher;
  const struct constraint_matcher_params params = {.constraint = constraint, .vocabulary = vocabulary, .memory_max = (size_t)2 << 20, .masks_max = 8};
  ASSERT_OK(constraint_matcher_create(&matcher, &params, err));
  return matcher;
}

static inline bool accepts_bytes(struct constraint_matcher *matcher, const char *text) {
  uint32_t state = constraint_matcher_start(matcher);
  return constraint_matcher_advance_bytes(matcher, &state, text, strlen(text)) && constraint_matcher_is_complete(matcher, state);
}

/* ---- vocabularies ---- */

struct family_token {
  const char *bytes;
  size_t length;
  int32_t id;
};

struct family {
  const char *name;
  struct tokenizer *tokenizer;
  struct constraint_vocabulary *vocabulary;
  int32_t stop;
  struct family_token *sorted; /* by bytes */
  size_t n_sorted;
};

static inline int compare_tokens(const void *a, const void *b) {
  const struct family_token *x = a, *y = b;
  int order = memcmp(x->bytes, y->bytes, x->length < y->length ? x->length : y->length);
  return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* false: the data is not there. */
static inline bool family_open(struct family *f, const char *name) {
  char *relative = memory_format("public/tokenizers/%s", name), *path = shared_path(relative);
  *f = (struct family){.name = name};
  free(relative);
  if (!path) return false;
  ASSERT_OK(tokenizer_open(&f->tokenizer, path, err));
  free(path);
  const char *text = tokenizer_named(f->tokenizer, "eos_token");
  f->stop = tokenizer_special_id(f->tokenizer, text);
  int32_t n = tokenizer_n_ids(f->tokenizer);
  if (f->stop < 0) f->stop = n + 3; /* its files name none */
  struct token_list stops = {0};
  token_list_append(&stops, f->stop);
  ASSERT_OK(constraint_vocabulary_create(&f->vocabulary, f->tokenizer, n + 37, &stops, err)); /* logits may be wider */
  token_list_clear(&stops);
  f->sorted = memory_alloc((size_t)n * sizeof *f->sorted);
  for (int32_t id = 0; id < n; id++) {
    struct family_token token = {.id = id};
    token.bytes = constraint_vocabulary_bytes(f->vocabulary, id, &token.length);
    if (token.bytes) f->sorted[f->n_sorted++] = token;
  }
  qsort(f->sorted, f->n_sorted, sizeof *f->sorted, compare_tokens);
  return true;
}

static inline void family_close(struct family *f) {
  constraint_vocabulary_free(f->vocabulary);
  tokenizer_close(f->tokenizer);
  free(f->sorted);
}

/* A token with exactly these bytes, -1. */
static inline int32_t family_find(const struct family *f, const char *bytes, size_t length) {
  const struct family_token key = {.bytes = bytes, .length = length}, *found = bsearch(&key, f->sorted, f->n_sorted, sizeof key, compare_tokens);
  return found ? found->id : -1;
}

/* A token that the text begins with, at random among those of up to 16 bytes. */
static inline int32_t family_cut(const struct family *f, const char *text, size_t length, uint64_t *seed, size_t *n_bytes) {
  int32_t chosen = -1;
  uint64_t n_found = 0;
  for (size_t n = 1; n <= length && n <= 16; n++) {
    int32_t id = family_find(f, text, n);
    if (id < 0 || random_pick(seed, ++n_found) != 0) continue;
    chosen = id;
    *n_bytes = n;
  }
  return chosen;
}

/* The text through random tokens, and the stop token after it. */
static inline bool accepts_tokens(struct constraint_matcher *matcher, const struct family *f, const char *text, uint64_t *seed) {
  uint32_t state = constraint_matcher_start(matcher);
  for (size_t length = strlen(text), at = 0, n = 0; at < length; at += n) {
    int32_t id = family_cut(f, text + at, length - at, seed, &n);
    if (id < 0) fail_msg("%s cannot spell \"%s\"", f->name, text + at);
    if (!constraint_matcher_advance(matcher, &state, id)) return false;
  }
  return constraint_matcher_advance(matcher, &state, f->stop);
}

#endif
