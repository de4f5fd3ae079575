/* reference.h - a trusted run of a target, as a safetensors file: what `verify` compares with.
 *
 * Prompts are rows of input_ids [T] or [B, T], or several sets under the prefixes p0., p1. ... Beside input_ids stand, optionally,
 * layer.{i} (= state i + 1) [(B,) T, H], norm [(B,) T, H], logits [(B,) T, V] or logits_last8 [(B,) 8, V], argmax [(B,) T].
 */
#ifndef EAGLET_MODEL_REFERENCE_H
#define EAGLET_MODEL_REFERENCE_H

#include "checkpoint/safetensors.h"

struct reference {
  struct safetensors file;
  int32_t n_prompts, tokens_max; /* rows of all sets; the longest */
};
struct reference_prompt {
  const struct reference *reference; /* borrowed */
  char prefix[16];         /* "p0." or "" */
  int32_t row, n_rows;     /* row of a batch */
  int32_t *tokens, n;
};
/* Fails when there is no input_ids or one has a wrong shape. On failure nothing is left open. */
enum eaglet_status reference_open(struct reference *reference, const char *path, struct eaglet_error *err) MUST_USE;
void reference_close(struct reference *reference);

enum eaglet_status reference_prompt_read(struct reference_prompt *prompt, const struct reference *reference, int32_t index,
                                         struct eaglet_error *err) MUST_USE;
void reference_prompt_clear(struct reference_prompt *prompt);
/* The prompt's part of a float tensor as F32, heap, caller frees; *values is NULL when the file has none. A wrong shape fails. */
enum eaglet_status reference_floats(float **values, const struct reference_prompt *prompt, const char *name, int32_t n_tokens, int32_t width,
                                    struct eaglet_error *err) MUST_USE;
/* Likewise for ids of every token (argmax); ids must lie below n_vocab. */
enum eaglet_status reference_ids(int32_t **ids, const struct reference_prompt *prompt, const char *name, int32_t n_vocab,
                                 struct eaglet_error *err) MUST_USE;

#endif
