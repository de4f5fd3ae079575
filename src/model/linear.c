/* linear.c - finds the tensors of a linear module under the names that quantisers give them; see linear.h. What they
 * mean is in linear_formats.c. The hard part is what is not marked used: a tensor that a format does not read must stay
 * unread, so that it is refused. */
#include "model/linear_internal.h"

#include <stdio.h>
#include <string.h>

#define TAILS_MAX 10

/* Spellings after the module's name; stacks of experts are parameters, so that theirs begin with an underscore. */
static const char *const module_tails[ROLE_COUNT][TAILS_MAX] = {
    [ROLE_DATA] = {".weight", ".weight_packed", ".qweight"},
    [ROLE_SCALE] = {".weight_scale", ".weight_scale_inv", ".scales"},
    [ROLE_ZERO] = {".weight_zero_point", ".qzeros"},
    [ROLE_SHAPE] = {".weight_shape"},
    [ROLE_INDEX] = {".weight_g_idx", ".g_idx"},
    [ROLE_GLOBAL] = {".weight_global_scale", ".weight_scale_2"},
};
static const char *const stack_tails[ROLE_COUNT][TAILS_MAX] = {
    [ROLE_DATA] = {"", ".weight", ".weight_packed", "_weight_packed", "_packed", "_blocks", "_weight", ".qweight"},
    [ROLE_SCALE] = {".weight_scale", ".weight_scale_inv", "_weight_scale", "_weight_scale_inv", "_scale", "_scale_inv",
                    "_scales", ".scales"},
    [ROLE_ZERO] = {".weight_zero_point", "_weight_zero_point", "_zero_point", ".qzeros"},
    [ROLE_SHAPE] = {".weight_shape", "_weight_shape", "_shape"},
    [ROLE_INDEX] = {".weight_g_idx", "_weight_g_idx", "_g_idx", ".g_idx"},
    [ROLE_GLOBAL] = {".weight_global_scale", ".weight_scale_2", "_weight_global_scale", "_weight_scale_2",
                     "_global_scale", "_scale_2"},
};

static const char *part_name(struct linear_reader *r, const char *tail) {
  snprintf(r->name, sizeof r->name, "%s%s", r->module, tail);
  return r->name;
}

/* A checkpoint of experts has 10^5 modules: their names are searched once, not once for every spelling. */
static void find_neighbours(struct linear_reader *r) {
  const struct checkpoint *checkpoint = r->source->checkpoint;
  size_t low = 0, high = checkpoint->n_tensors, length = strlen(r->module);
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(checkpoint->tensors[middle]->name, r->module) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  r->first = low;
  while (low < checkpoint->n_tensors && strncmp(checkpoint->tensors[low]->name, r->module, length) == 0) low++;
  r->n = low - r->first;
}

static const struct tensor_entry *peek(const struct linear_reader *r, const char *tail) {
  const struct tensor_entry *const *tensors = r->source->checkpoint->tensors + r->first;
  size_t length = strlen(r->module);
  for (size_t i = 0; i < r->n; i++) {
    if (strcmp(tensors[i]->name + length, tail) == 0) return tensors[i];
  }
  return NULL;
}

static bool has(const struct linear_reader *r, const char *tail) {
  return peek(r, tail) != NULL;
}

/* The one spelling of a role that exists. */
static enum eaglet_status choose(struct linear_reader *r, const char **tail, const char *const tails[TAILS_MAX]) {
  *tail = NULL;
  for (int i = 0; i < TAILS_MAX && tails[i]; i++) {
    if (!has(r, tails[i])) continue;
    if (*tail)
      FAIL(r->err, EAGLET_E_INPUT, "%s: both %s%s and its other form %s exist", r->source->checkpoint->path, r->module,
           *tail, part_name(r, tails[i]));
    *tail = tails[i];
  }
  return EAGLET_OK;
}

/* Scales of activations are not needed: activations stay F32. */
static void take_static_inputs(struct linear_reader *r) {
  static const char *const tails[] = {".input_scale",        ".input_zero_point", ".input_global_scale",
                                      ".activation_scale",   ".input_scale_ub",   "_input_scale",
                                      "_input_global_scale", "_activation_scale", ".output_scale",
                                      ".output_zero_point"};
  for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
    if (!has(r, tails[i])) continue;
    checkpoint_find(r->source->checkpoint, part_name(r, tails[i]));
    r->source->quantization->n_static_inputs++;
  }
}

/* Old GPTQ and AWQ writers give every linear a bias, all zero where the model has none. */
static void take_zero_bias(struct linear_reader *r) {
  const struct tensor_entry *bias = peek(r, ".bias");
  if (!bias || strcmp(r->parts[ROLE_DATA].tail, ".qweight") != 0) return;
  for (uint64_t i = 0; i < bias->n_bytes; i++) {
    if (bias->data[i] != 0) return;
  }
  checkpoint_find(r->source->checkpoint, part_name(r, ".bias"));
}

/* Names the quantiser whose tensors these are, or the missing weight. */
static enum eaglet_status refuse_missing(struct linear_reader *r) {
  static const struct {
    const char *tail, *format;
  } foreign[] = {{".q_weight", "EXL2"},
                 {".trellis", "EXL3"},
                 {".W_q", "HQQ"},
                 {".codebooks", "AQLM"},
                 {".Qidxs", "QuIP"},
                 {".B", "Marlin"},
                 {".B_24", "Marlin 2:4"},
                 {".indices", "VPTQ"},
                 {".compressed", "sparse bitmask"},
                 {".weight_q", "HIGGS or EETQ"},
                 {".weight_shape", "an unknown quantiser"}};
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    if (has(r, foreign[i].tail))
      FAIL(r->err, EAGLET_E_INPUT, "%s: %s: weights of %s are not supported", r->source->checkpoint->path,
           part_name(r, foreign[i].tail), foreign[i].format);
  }
  FAIL(r->err, EAGLET_E_INPUT, "%s: tensor %s is missing", r->source->checkpoint->path, part_name(r, ".weight"));
}

/* Tensors beside a weight that change what it means. */
static enum eaglet_status refuse_companions(struct linear_reader *r) {
  static const char *const tails[] = {".pre_quant_scale", "_pre_quant_scale", ".SCB",
                                      ".weight.absmax",   ".weight.quant_map", ".svdquant_lora_a",
                                      ".weight_bitmask",  ".bitmask"};
  for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
    if (has(r, tails[i]))
      FAIL(r->err, EAGLET_E_INPUT, "%s: %s: not supported", r->source->checkpoint->path, part_name(r, tails[i]));
  }
  return EAGLET_OK;
}

static bool is_plain(enum dtype dtype) {
  return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}

/* Fills and marks the parts. What stands beside a plain weight is left alone. */
static enum eaglet_status collect(struct linear_reader *r, const char *const tails[ROLE_COUNT][TAILS_MAX]) {
  find_neighbours(r);
  for (int role = 0; role < ROLE_COUNT; role++) {
    const char *tail;
    TRY(choose(r, &tail, tails[role]));
    if (!tail && role == ROLE_DATA) return refuse_missing(r);
    if (!tail) continue;
    r->parts[role] =
        (struct linear_part){.tensor = *checkpoint_find(r->source->checkpoint, part_name(r, tail)), .tail = tail};
    if (role == ROLE_DATA && is_plain(r->parts[role].tensor.dtype)) return EAGLET_OK;
  }
  take_static_inputs(r);
  take_zero_bias(r);
  return refuse_companions(r);
}

enum eaglet_status linear_bind(struct weight *weight, const struct linear_source *source, const char *name,
                               const int32_t shape[2], struct eaglet_error *err) {
  struct linear_reader r = {.source = source, .module = name, .n_out = shape[0], .n_in = shape[1], .err = err};
  TRY(collect(&r, module_tails));
  return linear_read(&r, weight);
}

bool linear_exists(const struct linear_source *source, const char *name) {
  struct linear_reader r = {.source = source, .module = name};
  find_neighbours(&r);
  for (int i = 0; i < TAILS_MAX && stack_tails[ROLE_DATA][i]; i++) {
    if (has(&r, stack_tails[ROLE_DATA][i])) return true;
  }
  return false;
}

/* Extent i of tensor name+tail, times `times`; -1 when there is no such matrix. */
static int32_t extent(const struct checkpoint *checkpoint, const char *name, const char *tail, int i, int times) {
  char full[NAME_MAX_LENGTH];
  snprintf(full, sizeof full, "%s%s", name, tail);
  const struct tensor_entry *tensor = checkpoint_peek(checkpoint, full);
  if (!tensor || i >= tensor->rank || tensor->shape[i] > INT32_MAX / times) return -1;
  return (int32_t)tensor->shape[i] * times;
}

int32_t linear_axis(const struct checkpoint *checkpoint, const char *name, int axis) {
  static const char *const tails[] = {".weight", ".weight_packed"};
  for (int i = 0; i < 2; i++) {
    char full[NAME_MAX_LENGTH];
    snprintf(full, sizeof full, "%s%s", name, tails[i]);
    const struct tensor_entry *tensor = checkpoint_peek(checkpoint, full);
    if (!tensor) continue;
    bool nibbles = tensor->dtype == DTYPE_U8; /* two inputs in a byte */
    if (axis == 0 || i == 0 || nibbles) return extent(checkpoint, name, tails[i], axis, axis == 1 && nibbles ? 2 : 1);
    snprintf(full, sizeof full, "%s.weight_shape", name);
    const struct tensor_entry *shape = checkpoint_peek(checkpoint, full);
    int32_t n_in;
    size_t bytes = shape && shape->dtype == DTYPE_I64 ? 8 : 4;
    if (!shape || shape->n_bytes < 2 * bytes) return -1;
    memcpy(&n_in, shape->data + bytes, sizeof n_in); /* little-endian: the low half of an I64 */
    return n_in;
  }
  if (axis == 0) return extent(checkpoint, name, ".scales", 1, 1);
  return extent(checkpoint, name, ".g_idx", 0, 1);
}

/* Part of expert e; one that has no axis of experts serves all of them. */
static enum eaglet_status slice(struct linear_reader *r, struct linear_part *part, int32_t e, int32_t n_experts) {
  struct tensor_entry *t = &part->tensor;
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  if (t->rank > 0 && t->shape[0] == n_experts && !(n_experts == 1 && t->rank < 3)) {
    t->n_bytes /= (uint64_t)n_experts;
    t->data += t->n_bytes * (uint64_t)e;
    memmove(t->shape, t->shape + 1, (size_t)(t->rank - 1) * sizeof *t->shape);
    t->rank--;
  } else if (n != 1 && n_experts != 1) {
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected %d experts, found %lld", t->path, t->name, n_experts,
         t->rank > 0 ? (long long)t->shape[0] : 0LL);
  }
  return EAGLET_OK;
}

enum eaglet_status linear_bind_stack(struct weight *weights, const struct linear_source *source, const char *name,
                                     const struct linear_stack *stack, struct eaglet_error *err) {
  struct linear_reader all = {.source = source,
                              .module = name,
                              .n_out = stack->n_out,
                              .n_in = stack->n_in,
                              .transposed = stack->transposed,
                              .err = err};
  TRY(collect(&all, stack_tails));
  for (int32_t e = 0; e < stack->n_experts; e++) {
    struct linear_reader r = all;
    for (int role = 0; role < ROLE_COUNT; role++) {
      if (r.parts[role].tensor.name) TRY(slice(&r, &r.parts[role], e, stack->n_experts));
    }
    TRY(linear_read(&r, &weights[e]));
  }
  return EAGLET_OK;
}
