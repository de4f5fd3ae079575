/* reference.c - reading trusted runs; see reference.h. Shapes are checked before a byte is used; nothing is compared
 * here. */
#include "model/reference.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPTS_MAX 65536
#define TOKENS_MAX (1 << 24)

/* input_ids of the i-th set: the plain one first, then p0., p1. ... NULL at the end. */
static const struct tensor_entry *prompt_set(const struct safetensors *file, int32_t i, char prefix[16]) {
  char name[32];
  bool plain = safetensors_find(file, "input_ids") != NULL;
  if (plain && i == 0)
    prefix[0] = 0;
  else
    snprintf(prefix, 16, "p%d.", i - plain);
  snprintf(name, sizeof name, "%sinput_ids", prefix);
  return safetensors_find(file, name);
}

static int32_t set_rows(const struct tensor_entry *ids) {
  return ids->rank == 2 ? (int32_t)ids->shape[0] : 1;
}

static enum eaglet_status check_ids(const struct tensor_entry *ids, struct eaglet_error *err) {
  bool fits = (ids->rank == 1 || ids->rank == 2) && (ids->dtype == DTYPE_I64 || ids->dtype == DTYPE_I32);
  fits = fits && ids->shape[ids->rank - 1] > 0 && ids->shape[ids->rank - 1] <= TOKENS_MAX;
  if (fits && (ids->rank == 1 || (ids->shape[0] > 0 && ids->shape[0] <= PROMPTS_MAX))) return EAGLET_OK;
  FAIL(err, EAGLET_E_INPUT, "%s: %s: expected I64 or I32 of shape [T] or [B, T], found %s of rank %d", ids->path,
       ids->name, dtype_name(ids->dtype), ids->rank);
}

static enum eaglet_status count_prompts(struct reference *reference, struct eaglet_error *err) {
  const struct tensor_entry *ids;
  char prefix[16];
  for (int32_t i = 0; reference->n_prompts <= PROMPTS_MAX && (ids = prompt_set(&reference->file, i, prefix)) != NULL;
       i++) {
    TRY(check_ids(ids, err));
    reference->n_prompts += set_rows(ids);
    if (ids->shape[ids->rank - 1] > reference->tokens_max) reference->tokens_max = (int32_t)ids->shape[ids->rank - 1];
  }
  if (reference->n_prompts > 0) return EAGLET_OK;
  FAIL(err, EAGLET_E_INPUT, "%s: expected a tensor input_ids or p0.input_ids, found none among %zu",
       reference->file.path, reference->file.n);
}

enum eaglet_status reference_open(struct reference *reference, const char *path, struct eaglet_error *err) {
  *reference = (struct reference){.n_prompts = 0};
  TRY(safetensors_open(&reference->file, path, err));
  enum eaglet_status status = count_prompts(reference, err);
  if (status != EAGLET_OK) reference_close(reference);
  return status;
}

void reference_close(struct reference *reference) {
  safetensors_close(&reference->file);
  *reference = (struct reference){.n_prompts = 0};
}

static int64_t read_id(const struct tensor_entry *ids, size_t at) {
  int64_t wide;
  int32_t narrow;
  if (ids->dtype == DTYPE_I64) {
    memcpy(&wide, ids->data + 8 * at, sizeof wide);
    return wide;
  }
  memcpy(&narrow, ids->data + 4 * at, sizeof narrow);
  return narrow;
}

/* The prompt's ids of a tensor [(B,) n], each below limit. */
static enum eaglet_status copy_ids(int32_t **ids, const struct reference_prompt *p, const struct tensor_entry *tensor,
                                   int64_t limit, struct eaglet_error *err) {
  *ids = memory_alloc((size_t)p->n * sizeof **ids);
  for (int32_t i = 0; i < p->n; i++) {
    int64_t id = read_id(tensor, (size_t)p->row * (size_t)p->n + (size_t)i);
    if (id >= 0 && id < limit) {
      (*ids)[i] = (int32_t)id;
      continue;
    }
    free(*ids);
    *ids = NULL;
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected token ids of 0..%lld, found %lld", tensor->path, tensor->name,
         (long long)(limit - 1), (long long)id);
  }
  return EAGLET_OK;
}

enum eaglet_status reference_prompt_read(struct reference_prompt *p, const struct reference *reference, int32_t index,
                                         struct eaglet_error *err) {
  const struct tensor_entry *ids;
  ASSERT(index >= 0 && index < reference->n_prompts);
  *p = (struct reference_prompt){.reference = reference, .row = index};
  for (int32_t i = 0; (ids = prompt_set(&reference->file, i, p->prefix)) != NULL && p->row >= set_rows(ids); i++)
    p->row -= set_rows(ids);
  ASSERT(ids);
  p->n_rows = set_rows(ids);
  p->n = (int32_t)ids->shape[ids->rank - 1];
  return copy_ids(&p->tokens, p, ids, INT32_MAX, err);
}

void reference_prompt_clear(struct reference_prompt *p) {
  free(p->tokens);
  *p = (struct reference_prompt){.tokens = NULL};
}

static const struct tensor_entry *find(const struct reference_prompt *p, const char *name) {
  char full[64];
  snprintf(full, sizeof full, "%s%s", p->prefix, name);
  return safetensors_find(&p->reference->file, full);
}

/* Is the shape [(B,) inner...], with B only where input_ids has it? */
static bool has_shape(const struct reference_prompt *p, const struct tensor_entry *tensor, const int64_t *inner,
                      int n_inner) {
  int outer = tensor->rank - n_inner;
  if (outer < 0 || outer > 1 || (outer == 0 && p->n_rows > 1) || (outer == 1 && tensor->shape[0] != p->n_rows))
    return false;
  for (int i = 0; i < n_inner; i++) {
    if (tensor->shape[outer + i] != inner[i]) return false;
  }
  return true;
}

enum eaglet_status reference_floats(float **values, const struct reference_prompt *p, const char *name,
                                    int32_t n_tokens, int32_t width, struct eaglet_error *err) {
  const struct tensor_entry *tensor = find(p, name);
  *values = NULL;
  if (!tensor) return EAGLET_OK;
  bool floats = tensor->dtype == DTYPE_F32 || tensor->dtype == DTYPE_BF16 || tensor->dtype == DTYPE_F16;
  if (!floats || !has_shape(p, tensor, (const int64_t[]){n_tokens, width}, 2)) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected floats [%s%d, %d], found %s of rank %d", tensor->path, tensor->name,
         p->n_rows > 1 ? "B, " : "", n_tokens, width, dtype_name(tensor->dtype), tensor->rank);
  }
  size_t n = (size_t)n_tokens * (size_t)width, bytes = (size_t)dtype_bits(tensor->dtype) / 8;
  *values = memory_alloc(n * sizeof(float));
  dtype_to_f32(*values, tensor->data + (size_t)p->row * n * bytes, tensor->dtype, n);
  return EAGLET_OK;
}

enum eaglet_status reference_ids(int32_t **ids, const struct reference_prompt *p, const char *name, int32_t n_vocab,
                                 struct eaglet_error *err) {
  const struct tensor_entry *tensor = find(p, name);
  *ids = NULL;
  if (!tensor) return EAGLET_OK;
  bool integers = tensor->dtype == DTYPE_I64 || tensor->dtype == DTYPE_I32;
  if (!integers || !has_shape(p, tensor, (const int64_t[]){p->n}, 1)) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected I64 or I32 for %d tokens, found %s of rank %d", tensor->path,
         tensor->name, p->n, dtype_name(tensor->dtype), tensor->rank);
  }
  return copy_ids(ids, p, tensor, n_vocab, err);
}
