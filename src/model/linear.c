/* linear.c - binding of linears; see linear.h. Owns the names that quantisers give to the parts of a weight. */
#include "model/linear.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_LENGTH 320
#define NIBBLE_BYTES_MAX (1 << 20)
#define SCALES_CHECKED_MAX 4096

/* One module while it is bound. */
struct reader {
  const struct linear_source *source;
  const char *module;
  int32_t n_out, n_in;
  char name[NAME_MAX_LENGTH]; /* of the tensor at hand */
  struct eaglet_error *err;
};

static const char *part_name(struct reader *r, const char *tail) {
  snprintf(r->name, sizeof r->name, "%s%s", r->module, tail);
  return r->name;
}

static bool has(struct reader *r, const char *tail) {
  return checkpoint_peek(r->source->checkpoint, part_name(r, tail)) != NULL;
}

static enum eaglet_status find(struct reader *r, const struct tensor_entry **tensor, const char *tail) {
  *tensor = checkpoint_find(r->source->checkpoint, part_name(r, tail));
  if (!*tensor) FAIL(r->err, EAGLET_E_INPUT, "%s: tensor %s is missing", r->source->checkpoint->path, r->name);
  return EAGLET_OK;
}

static void shape_text(char text[96], const int64_t *shape, int rank) {
  int at = snprintf(text, 96, "[");
  for (int i = 0; i < rank && at < 80; i++)
    at += snprintf(text + at, (size_t)(96 - at), "%s%lld", i ? ", " : "", (long long)shape[i]);
  snprintf(text + at, (size_t)(96 - at), "]");
}

static enum eaglet_status expect_shape(struct reader *r, const struct tensor_entry *tensor, int rank,
                                       const int64_t *shape) {
  char expected[96], found[96];
  if (tensor->rank == rank && memcmp(tensor->shape, shape, (size_t)rank * sizeof *shape) == 0) return EAGLET_OK;
  shape_text(expected, shape, rank);
  shape_text(found, tensor->shape, tensor->rank);
  FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected %s, found %s", tensor->path, tensor->name, expected, found);
}

static enum eaglet_status expect_matrix(struct reader *r, const struct tensor_entry *tensor, int64_t rows,
                                        int64_t columns) {
  return expect_shape(r, tensor, 2, (const int64_t[]){rows, columns});
}

static bool is_float(enum dtype dtype) {
  return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}

static enum eaglet_status plain_format(struct reader *r, enum weight_format *format, const struct tensor_entry *tensor) {
  *format = tensor->dtype == DTYPE_F32    ? WEIGHT_F32
            : tensor->dtype == DTYPE_BF16 ? WEIGHT_BF16
            : tensor->dtype == DTYPE_F16  ? WEIGHT_F16
                                          : WEIGHT_NONE;
  if (*format == WEIGHT_NONE)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected BF16, F16 or F32, found %s", tensor->path, tensor->name,
         dtype_name(tensor->dtype));
  return EAGLET_OK;
}

static enum eaglet_status bind_plain(struct reader *r, struct weight *weight) {
  const struct tensor_entry *tensor;
  TRY(find(r, &tensor, ".weight"));
  TRY(expect_matrix(r, tensor, r->n_out, r->n_in));
  *weight = (struct weight){.n_out = r->n_out, .n_in = r->n_in, .data = tensor->data};
  return plain_format(r, &weight->format, tensor);
}

/* Evenly spread scales must be finite and not negative. */
static enum eaglet_status check_scales(struct reader *r, const struct tensor_entry *scale) {
  size_t n = (size_t)(scale->shape[0] * scale->shape[1]), step = n / SCALES_CHECKED_MAX + 1,
         bytes = (size_t)dtype_bits(scale->dtype) / 8;
  for (size_t i = 0; i < n; i += step) {
    float value;
    dtype_to_f32(&value, scale->data + i * bytes, scale->dtype, 1);
    if (!isfinite(value) || value < 0)
      FAIL(r->err, EAGLET_E_INPUT, "%s: %s: scale %zu is %g", scale->path, scale->name, i, (double)value);
  }
  return EAGLET_OK;
}

/* Refuses weights that are two's complement: their mass sits at codes 0 and 15 instead of around 8. */
static enum eaglet_status check_nibbles(struct reader *r, const struct tensor_entry *packed) {
  struct nibble_check *check = r->source->nibbles;
  uint64_t count[16] = {0}, n = packed->n_bytes < NIBBLE_BYTES_MAX ? packed->n_bytes : NIBBLE_BYTES_MAX;
  for (uint64_t i = 0; i < n; i++) {
    count[packed->data[i] & 15]++;
    count[packed->data[i] >> 4]++;
  }
  double total = 2 * (double)n;
  check->center = (double)(count[6] + count[7] + count[8] + count[9]) / total;
  check->edge = (double)(count[0] + count[1] + count[14] + count[15]) / total;
  check->lowest = (double)count[0] / total;
  snprintf(check->tensor, sizeof check->tensor, "%s", packed->name);
  if (check->edge > 0.3 && check->edge > 2 * check->center) {
    FAIL(r->err, EAGLET_E_INPUT,
         "%s: %s: nibbles peak at 0 and 15 (%.0f%%), not around 8 (%.0f%%): not the offset binary of pack-quantized",
         packed->path, packed->name, 100 * check->edge, 100 * check->center);
  }
  return EAGLET_OK;
}

static enum eaglet_status check_weight_shape(struct reader *r, const struct tensor_entry *shape) {
  int64_t stored[2] = {0, 0};
  if (shape->rank != 1 || shape->shape[0] != 2 || (shape->dtype != DTYPE_I32 && shape->dtype != DTYPE_I64)) {
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected two I32 or I64, found %s", shape->path, shape->name,
         dtype_name(shape->dtype));
  }
  for (int i = 0; i < 2; i++) {
    int32_t narrow;
    memcpy(&narrow, shape->data + 4 * i, sizeof narrow);
    if (shape->dtype == DTYPE_I64)
      memcpy(&stored[i], shape->data + 8 * i, sizeof stored[i]);
    else
      stored[i] = narrow;
  }
  if (stored[0] != r->n_out || stored[1] != r->n_in) {
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected [%d, %d], found [%lld, %lld]", shape->path, shape->name, r->n_out,
         r->n_in, (long long)stored[0], (long long)stored[1]);
  }
  return EAGLET_OK;
}

static enum eaglet_status bind_int4(struct reader *r, struct weight *weight) {
  const struct quantization *q = r->source->quantization;
  const struct tensor_entry *packed, *scale, *shape;
  if (q->bits != 4)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s is packed, but config.json has no quantization_config",
         r->source->checkpoint->path, part_name(r, ".weight_packed"));
  if (r->n_in % q->group)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: %d inputs are no multiple of the group size %d", r->source->checkpoint->path,
         part_name(r, ".weight_packed"), r->n_in, q->group);
  TRY(find(r, &packed, ".weight_packed"));
  TRY(find(r, &scale, ".weight_scale"));
  TRY(find(r, &shape, ".weight_shape"));
  TRY(check_weight_shape(r, shape));
  TRY(expect_matrix(r, packed, r->n_out, r->n_in / 8));
  TRY(expect_matrix(r, scale, r->n_out, r->n_in / q->group));
  if (packed->dtype != DTYPE_I32)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected I32, found %s", packed->path, packed->name,
         dtype_name(packed->dtype));
  if (!is_float(scale->dtype))
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected BF16, F16 or F32, found %s", scale->path, scale->name,
         dtype_name(scale->dtype));
  TRY(check_scales(r, scale));
  if (!r->source->nibbles->tensor[0]) TRY(check_nibbles(r, packed));
  *weight = (struct weight){.format = WEIGHT_INT4,
                            .n_out = r->n_out,
                            .n_in = r->n_in,
                            .data = packed->data,
                            .scale = scale->data,
                            .scale_dtype = scale->dtype,
                            .group = q->group};
  return EAGLET_OK;
}

enum eaglet_status linear_bind(struct weight *weight, const struct linear_source *source, const char *name,
                               const int32_t shape[2], struct eaglet_error *err) {
  struct reader r = {.source = source, .module = name, .n_out = shape[0], .n_in = shape[1], .err = err};
  bool packed = has(&r, ".weight_packed"), plain = has(&r, ".weight");
  if (packed && plain)
    FAIL(err, EAGLET_E_INPUT, "%s: both %s and its packed form exist", source->checkpoint->path, r.name);
  return packed ? bind_int4(&r, weight) : bind_plain(&r, weight);
}

bool linear_exists(const struct linear_source *source, const char *name) {
  static const char *const tails[] = {".weight", ".weight_packed", ".qweight"};
  struct reader r = {.source = source, .module = name};
  for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
    if (has(&r, tails[i])) return true;
  }
  return false;
}

enum eaglet_status linear_bind_stack(struct weight *weights, const struct linear_source *source, const char *name,
                                     const struct linear_stack *stack, struct eaglet_error *err) {
  struct reader r = {.source = source, .module = name, .n_out = stack->n_out, .n_in = stack->n_in, .err = err};
  int32_t n_out = stack->n_out, n_in = stack->n_in;
  const struct tensor_entry *tensor;
  enum weight_format format;
  TRY(find(&r, &tensor, has(&r, "") ? "" : ".weight"));
  TRY(expect_shape(&r, tensor, 3,
                   (const int64_t[]){stack->n_experts, stack->transposed ? n_in : n_out,
                                     stack->transposed ? n_out : n_in}));
  TRY(plain_format(&r, &format, tensor));
  for (int32_t e = 0; e < stack->n_experts; e++) {
    weights[e] = (struct weight){.format = format,
                                 .n_out = n_out,
                                 .n_in = n_in,
                                 .data = tensor->data + tensor->n_bytes / (uint64_t)stack->n_experts * (uint64_t)e,
                                 .transposed = stack->transposed,
                                 .n_stored = n_out};
  }
  return EAGLET_OK;
}
