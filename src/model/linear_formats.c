/* linear_formats.c - what the tensors of a quantised linear mean; see linear.h. One function per way of storing codes;
 * shapes decide between blocks, groups, channels and tensors, with the sizes that config.json gives. Every shape is
 * checked, because a wrong reading of the right bytes is silent. */
#include "model/linear_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NIBBLE_BYTES_MAX (1 << 20)
#define SCALES_CHECKED_MAX 4096

static void shape_text(char text[96], const int64_t *shape, int rank) {
  int at = snprintf(text, 96, "[");
  for (int i = 0; i < rank && at < 80; i++)
    at += snprintf(text + at, (size_t)(96 - at), "%s%lld", i ? ", " : "", (long long)shape[i]);
  snprintf(text + at, (size_t)(96 - at), "]");
}

static enum eaglet_status refuse_shape(struct linear_reader *r, const struct tensor_entry *tensor, int64_t rows,
                                       int64_t columns) {
  char found[96];
  shape_text(found, tensor->shape, tensor->rank);
  FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected [%lld, %lld], found %s", tensor->path, tensor->name, (long long)rows,
       (long long)columns, found);
}

enum eaglet_status linear_expect_matrix(struct linear_reader *r, const struct tensor_entry *tensor, int64_t rows,
                                        int64_t columns) {
  if (tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns) return EAGLET_OK;
  return refuse_shape(r, tensor, rows, columns);
}

static enum eaglet_status need(struct linear_reader *r, const struct tensor_entry **tensor, enum linear_role role,
                               const char *usual) {
  *tensor = linear_part(r, role);
  if (!*tensor)
    FAIL(r->err, EAGLET_E_INPUT, "%s: tensor %s%s is missing", r->source->checkpoint->path, r->module, usual);
  return EAGLET_OK;
}

static enum eaglet_status refuse_dtype(struct linear_reader *r, const struct tensor_entry *tensor,
                                       const char *expected) {
  FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected %s, found %s", tensor->path, tensor->name, expected,
       dtype_name(tensor->dtype));
}

/* Parts that this way of storing codes does not have. */
static enum eaglet_status refuse_part(struct linear_reader *r, enum linear_role role) {
  const struct tensor_entry *tensor = linear_part(r, role);
  if (!tensor) return EAGLET_OK;
  FAIL(r->err, EAGLET_E_INPUT, "%s: %s: not supported beside %s of dtype %s", tensor->path, tensor->name,
       r->parts[ROLE_DATA].tensor.name, dtype_name(r->parts[ROLE_DATA].tensor.dtype));
}

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* ---- scales ---- */

static int64_t count(const struct tensor_entry *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= tensor->shape[i];
  return n;
}

/* Evenly spread scales must be finite and not negative. */
static enum eaglet_status check_scales(struct linear_reader *r, const struct tensor_entry *scale, enum dtype dtype) {
  size_t n = (size_t)count(scale), step = n / SCALES_CHECKED_MAX + 1, bytes = (size_t)dtype_bits(dtype) / 8;
  for (size_t i = 0; i < n; i += step) {
    float value;
    dtype_to_f32(&value, scale->data + i * bytes, dtype, 1);
    if (!isfinite(value) || value < 0)
      FAIL(r->err, EAGLET_E_INPUT, "%s: %s: scale %zu is %g", scale->path, scale->name, i, (double)value);
  }
  return EAGLET_OK;
}

/* Is a vector of n scales one row of blocks whose other axis was dropped on saving? The config's block says so. */
static bool is_squeezed_row(const struct linear_reader *r, int64_t n) {
  const struct quantization *q = r->source->quantization;
  for (int32_t i = 0; i < q->n_schemes; i++) {
    const int32_t *block = q->schemes[i].block;
    if (block[0] > 0 && block[1] > 0 && ceil_div(r->n_out, block[0]) == 1 && ceil_div(r->n_in, block[1]) == n) return true;
  }
  return false;
}

/* Rows and columns of scales as they lie. A vector is one scale per output (or row of blocks); nothing or one number is the
 * tensor's. */
static enum eaglet_status scale_shape(struct linear_reader *r, const struct tensor_entry *scale, int64_t shape[2]) {
  if (count(scale) == 1) {
    shape[0] = shape[1] = 1;
  } else if (scale->rank == 1) {
    bool row = r->transposed || is_squeezed_row(r, scale->shape[0]);
    shape[0] = row ? 1 : scale->shape[0];
    shape[1] = row ? scale->shape[0] : 1;
  } else if (scale->rank == 2) {
    memcpy(shape, scale->shape, 2 * sizeof *shape);
  } else {
    return refuse_shape(r, scale, r->n_out, 1);
  }
  return EAGLET_OK;
}

/* Extent of a block of a dimension that has n_scales; 0: none fits. The block is what the config says: 1000 rows of 8 scales are
 * blocks of 128, not of 125 (bug case A11). Where the config says nothing, only whole blocks of a usual extent are taken, because a
 * cut-off last block leaves the extent open. */
static int32_t block_extent(const struct linear_reader *r, int32_t dim, int64_t n_scales, int axis) {
  static const int32_t usual[] = {128, 64, 32, 16, 256, 512};
  const struct quantization *q = r->source->quantization;
  bool told = false;
  if (n_scales == 1) return dim;
  if (n_scales == dim) return 1;
  for (int32_t i = 0; i < q->n_schemes; i++) {
    const struct quantization_scheme *s = &q->schemes[i];
    int32_t extent = s->block[axis] ? s->block[axis] : axis == 1 && s->group > 0 ? s->group : 0;
    told |= s->block[axis] > 0;
    if (extent > 0 && ceil_div(dim, extent) == n_scales) return extent;
  }
  if (told) return 0;
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
    if ((int64_t)usual[i] * n_scales == dim) return usual[i];
  }
  return 0;
}

/* Block the config expects, for the message. */
static int64_t expected_scales(const struct linear_reader *r, int32_t dim, int axis) {
  const struct quantization *q = r->source->quantization;
  const struct quantization_scheme *s = q->n_schemes ? &q->schemes[0] : NULL;
  int32_t extent = !s ? 0 : s->block[axis] ? s->block[axis] : axis == 1 ? s->group : 1;
  return extent > 0 ? ceil_div(dim, extent) : 1;
}

/* Fills scale, scale_dtype, scale_rows, group of floats and bytes. */
static enum eaglet_status read_scales(struct linear_reader *r, struct weight *w) {
  const struct tensor_entry *scale;
  int64_t shape[2];
  TRY(need(r, &scale, ROLE_SCALE, ".weight_scale"));
  w->scale = scale->data;
  w->scale_dtype = scale->dtype == DTYPE_U8 && w->format != WEIGHT_INT8 ? DTYPE_F8_E8M0 : scale->dtype;
  bool fine = scale->dtype == DTYPE_F32 || scale->dtype == DTYPE_BF16 || scale->dtype == DTYPE_F16;
  if (w->format != WEIGHT_INT8 && w->scale_dtype == DTYPE_F8_E8M0) fine = true;
  if (!fine && !(w->format == WEIGHT_F4 && scale->dtype == DTYPE_F8_E4M3))
    return refuse_dtype(r, scale, "BF16, F16 or F32");
  TRY(scale_shape(r, scale, shape));
  int64_t n_rows = shape[r->transposed], n_groups = shape[!r->transposed];
  w->scale_rows = block_extent(r, r->n_out, n_rows, 0);
  w->group = block_extent(r, r->n_in, n_groups, 1);
  if (!w->scale_rows || !w->group)
    return refuse_shape(r, scale, expected_scales(r, r->n_out, 0), expected_scales(r, r->n_in, 1));
  w->scale_transposed = r->transposed && n_rows > 1;
  if (w->scale_transposed && w->scale_rows > 1)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: blocks of a transposed weight are not supported", scale->path, scale->name);
  return check_scales(r, scale, w->scale_dtype);
}

static enum eaglet_status read_global(struct linear_reader *r, struct weight *w) {
  const struct tensor_entry *global;
  TRY(need(r, &global, ROLE_GLOBAL, ".weight_global_scale"));
  if (count(global) != 1 || global->dtype != DTYPE_F32) return refuse_dtype(r, global, "one F32");
  memcpy(&w->global, global->data, sizeof w->global);
  w->global_divides = strstr(r->parts[ROLE_GLOBAL].tail, "global") != NULL; /* scale_2 is its inverse */
  if (!isfinite(w->global) || w->global <= 0)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: found %g", global->path, global->name, (double)w->global);
  return EAGLET_OK;
}

/* Group of each input. All or some -1: unused, groups are contiguous. */
static enum eaglet_status read_index(struct linear_reader *r, struct weight *w) {
  const struct tensor_entry *index = linear_part(r, ROLE_INDEX);
  int32_t n_groups = weight_groups(w);
  bool contiguous = true;
  if (!index) return EAGLET_OK;
  if (index->dtype != DTYPE_I32 || count(index) != r->n_in) return refuse_dtype(r, index, "one I32 per input");
  for (int32_t k = 0; k < r->n_in; k++) {
    int32_t g;
    memcpy(&g, index->data + 4 * (size_t)k, sizeof g);
    if (g == -1) return EAGLET_OK;
    if (g < 0 || g >= n_groups)
      FAIL(r->err, EAGLET_E_INPUT, "%s: %s: input %d is in group %d of %d", index->path, index->name, k, g, n_groups);
    contiguous &= g == k / w->group;
  }
  if (!contiguous) w->group_index = index->data;
  return EAGLET_OK;
}

static enum eaglet_status check_groups(struct linear_reader *r, const struct weight *w) {
  if (weight_groups(w) <= WEIGHT_GROUPS_MAX) return EAGLET_OK;
  FAIL(r->err, EAGLET_E_INPUT, "%s: %s: %d groups in a row, at most %d are supported", r->source->checkpoint->path,
       r->module, weight_groups(w), WEIGHT_GROUPS_MAX);
}

/* ---- plain, bytes, floats ---- */

static enum eaglet_status expect_data(struct linear_reader *r, const struct tensor_entry *data, int64_t columns) {
  return r->transposed ? linear_expect_matrix(r, data, r->n_in, columns)
                       : linear_expect_matrix(r, data, r->n_out, columns);
}

static enum eaglet_status read_plain(struct linear_reader *r, struct weight *w) {
  const struct tensor_entry *data = &r->parts[ROLE_DATA].tensor;
  w->format = data->dtype == DTYPE_F32 ? WEIGHT_F32 : data->dtype == DTYPE_BF16 ? WEIGHT_BF16 : WEIGHT_F16;
  return expect_data(r, data, r->transposed ? r->n_out : r->n_in);
}

static enum eaglet_status read_float8(struct linear_reader *r, struct weight *w) {
  const struct tensor_entry *data = &r->parts[ROLE_DATA].tensor, *scale;
  w->format = data->dtype == DTYPE_F8_E4M3 ? WEIGHT_F8_E4M3 : WEIGHT_F8_E5M2;
  TRY(expect_data(r, data, r->transposed ? r->n_out : r->n_in));
  bool blocks = r->source->quantization->n_schemes > 0 && r->source->quantization->schemes[0].block[0] > 0;
  TRY(need(r, &scale, ROLE_SCALE, blocks ? ".weight_scale_inv" : ".weight_scale"));
  TRY(refuse_part(r, ROLE_ZERO));
  TRY(refuse_part(r, ROLE_INDEX));
  TRY(refuse_part(r, ROLE_GLOBAL));
  return read_scales(r, w);
}

static enum eaglet_status read_int8(struct linear_reader *r, struct weight *w) {
  const struct tensor_entry *data = &r->parts[ROLE_DATA].tensor, *zero = linear_part(r, ROLE_ZERO),
                            *scale = linear_part(r, ROLE_SCALE);
  w->format = WEIGHT_INT8;
  TRY(expect_data(r, data, r->transposed ? r->n_out : r->n_in));
  TRY(refuse_part(r, ROLE_GLOBAL));
  TRY(read_scales(r, w));
  TRY(read_index(r, w));
  if (!zero) return EAGLET_OK;
  if (zero->dtype != DTYPE_I8) return refuse_dtype(r, zero, "I8");
  if (r->transposed)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: zero points of a transposed weight are not supported", zero->path,
         zero->name);
  if (count(zero) != count(scale)) return refuse_shape(r, zero, scale->shape[0], scale->rank > 1 ? scale->shape[1] : 1);
  w->zero_kind = WEIGHT_ZERO_I8;
  w->zero = zero->data;
  return EAGLET_OK;
}

/* NVFP4 (E4M3 scales per 16, scaled again) and MXFP4 (powers of two per 32): told apart by the scales. */
static enum eaglet_status read_float4(struct linear_reader *r, struct weight *w) {
  struct tensor_entry *data = &r->parts[ROLE_DATA].tensor;
  const struct tensor_entry *scale;
  if (data->rank == 3) { /* gpt-oss: [n_out, blocks, 16 bytes], lying along the row whatever the stack does */
    data->shape[1] *= data->shape[2];
    data->rank = 2;
    r->transposed = false;
  }
  w->format = WEIGHT_F4;
  w->transposed = r->transposed;
  TRY(need(r, &scale, ROLE_SCALE, ".weight_scale"));
  TRY(refuse_part(r, ROLE_ZERO));
  TRY(refuse_part(r, ROLE_INDEX));
  int32_t group = scale->dtype == DTYPE_F8_E4M3 ? 16 : 32;
  if (r->transposed || r->n_in % group != 0)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: %s", data->path, data->name,
         r->transposed ? "4-bit floats of a transposed weight are not supported" : "inputs are no multiple of a group");
  TRY(linear_expect_matrix(r, data, r->n_out, r->n_in / 2));
  TRY(linear_expect_matrix(r, scale, r->n_out, r->n_in / group));
  if (scale->dtype == DTYPE_F8_E4M3)
    TRY(read_global(r, w));
  else if (scale->dtype == DTYPE_U8 || scale->dtype == DTYPE_F8_E8M0)
    TRY(refuse_part(r, ROLE_GLOBAL));
  else
    return refuse_dtype(r, scale, "F8_E4M3, F8_E8M0 or U8");
  TRY(read_scales(r, w));
  w->group = group;
  w->scale_rows = 1;
  return EAGLET_OK;
}

/* ---- compressed-tensors pack-quantized ---- */

/* Refuses weights that are two's complement: their mass sits at codes 0 and 15 instead of around 8. */
static enum eaglet_status check_nibbles(struct linear_reader *r, const struct tensor_entry *packed) {
  struct nibble_check *check = r->source->nibbles;
  uint64_t codes[16] = {0}, n = packed->n_bytes < NIBBLE_BYTES_MAX ? packed->n_bytes : NIBBLE_BYTES_MAX;
  for (uint64_t i = 0; i < n; i++) {
    codes[packed->data[i] & 15]++;
    codes[packed->data[i] >> 4]++;
  }
  double total = 2 * (double)n;
  check->center = (double)(codes[6] + codes[7] + codes[8] + codes[9]) / total;
  check->edge = (double)(codes[0] + codes[1] + codes[14] + codes[15]) / total;
  check->lowest = (double)codes[0] / total;
  snprintf(check->tensor, sizeof check->tensor, "%s", packed->name);
  if (check->edge > 0.3 && check->edge > 2 * check->center) {
    FAIL(r->err, EAGLET_E_INPUT,
         "%s: %s: nibbles peak at 0 and 15 (%.0f%%), not around 8 (%.0f%%): not the offset binary of pack-quantized",
         packed->path, packed->name, 100 * check->edge, 100 * check->center);
  }
  return EAGLET_OK;
}

static enum eaglet_status check_weight_shape(struct linear_reader *r) {
  const struct tensor_entry *shape;
  int64_t stored[3] = {0, 0, 0};
  TRY(need(r, &shape, ROLE_SHAPE, ".weight_shape"));
  if ((shape->dtype != DTYPE_I32 && shape->dtype != DTYPE_I64) || shape->rank != 1 || shape->shape[0] < 2 ||
      shape->shape[0] > 3) {
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected two I32 or I64, found %s", shape->path, shape->name,
         dtype_name(shape->dtype));
  }
  for (int i = 0; i < shape->shape[0]; i++) {
    int32_t narrow;
    memcpy(&narrow, shape->data + (shape->dtype == DTYPE_I64 ? 8 : 4) * i, sizeof narrow);
    if (shape->dtype == DTYPE_I64)
      memcpy(&stored[i], shape->data + 8 * i, sizeof stored[i]);
    else
      stored[i] = narrow;
  }
  const int64_t *last = stored + shape->shape[0] - 2; /* stacks store [experts, n_out, n_in] once */
  if (last[0] != r->n_out || last[1] != r->n_in) {
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: expected [%d, %d], found [%lld, %lld]", shape->path, shape->name, r->n_out,
         r->n_in, (long long)last[0], (long long)last[1]);
  }
  return EAGLET_OK;
}

/* Old writers pad every word, new ones run fields across words; the number of words tells which. */
static int64_t words_of(int64_t n, int32_t bits, bool padded) {
  return padded ? ceil_div(n, 32 / bits) : ceil_div(n * bits, 32);
}

/* Does a scheme fit the words and scales of this module? */
static bool scheme_fits(const struct linear_reader *r, const struct quantization_scheme *s, int64_t n_words,
                        int64_t n_groups, bool padded) {
  bool groups = s->group > 0 ? ceil_div(r->n_in, s->group) == n_groups : n_groups == 1;
  return !s->is_float && groups && words_of(r->n_in, s->bits, padded) == n_words;
}

struct packing {
  int32_t bits, group;
  bool padded, symmetric;
};

/* The scheme of config.json that this module's shapes follow. */
static enum eaglet_status choose_packing(struct linear_reader *r, struct packing *packing, const int64_t scale[2]) {
  const struct quantization *q = r->source->quantization;
  const struct tensor_entry *packed = &r->parts[ROLE_DATA].tensor, *scales = &r->parts[ROLE_SCALE].tensor;
  const struct quantization_scheme *fits = NULL, *first = NULL;
  for (int32_t i = 0; i < 2 * q->n_schemes; i++) { /* fields without padding first: the current writer's */
    const struct quantization_scheme *s = &q->schemes[i % q->n_schemes];
    bool padded = i >= q->n_schemes;
    if (!first && !s->is_float) first = s;
    if (packed->rank != 2 || !scheme_fits(r, s, packed->shape[1], scale[1], padded)) continue;
    if (fits && fits->bits != s->bits)
      FAIL(r->err, EAGLET_E_INPUT, "%s: %s: %d or %d bits would fit its shape", packed->path, packed->name, fits->bits,
           s->bits);
    if (!fits) *packing = (struct packing){.bits = s->bits, .group = s->group, .padded = padded};
    packing->symmetric |= s->symmetric; /* where one scheme has zero points and another has not, the tensors say */
    fits = s;
  }
  if (!first)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s is packed, but config.json has no quantization_config for integers",
         r->source->checkpoint->path, packed->name);
  if (!fits && first->group > 0 && r->n_in % first->group)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: %d inputs are no multiple of the group size %d", packed->path, packed->name,
         r->n_in, first->group);
  if (!fits) {
    TRY(linear_expect_matrix(r, packed, r->n_out, words_of(r->n_in, first->bits, false)));
    return refuse_shape(r, scales, r->n_out, first->group > 0 ? ceil_div(r->n_in, first->group) : 1);
  }
  if (packing->group > 0 && r->n_in % packing->group)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: %d inputs are no multiple of the group size %d", packed->path, packed->name,
         r->n_in, packing->group);
  if (packing->group <= 0) packing->group = r->n_in;
  return linear_expect_matrix(r, packed, r->n_out, packed->shape[1]);
}

static enum eaglet_status read_packed_zeros(struct linear_reader *r, struct weight *w, const struct packing *p) {
  const struct tensor_entry *zero = linear_part(r, ROLE_ZERO);
  int64_t n_groups = weight_groups(w), n_words = words_of(r->n_out, p->bits, false);
  if (!zero && p->symmetric) return EAGLET_OK;
  TRY(need(r, &zero, ROLE_ZERO, ".weight_zero_point"));
  if (zero->dtype == DTYPE_I8) { /* stored as they are by tensor schemes and old writers */
    if (count(zero) != count(&r->parts[ROLE_SCALE].tensor)) return refuse_shape(r, zero, r->n_out, n_groups);
    w->zero_kind = WEIGHT_ZERO_I8;
    w->zero = zero->data;
    return EAGLET_OK;
  }
  if (zero->dtype != DTYPE_I32) return refuse_dtype(r, zero, "I32 or I8");
  bool padded = zero->rank == 2 && zero->shape[0] != n_words && zero->shape[0] == words_of(r->n_out, p->bits, true);
  TRY(linear_expect_matrix(r, zero, padded ? zero->shape[0] : n_words, n_groups));
  w->zero_kind = WEIGHT_ZERO_FIELDS;
  w->zeros =
      (struct weight_fields){.words = zero->data, .line = 1, .step = n_groups, .bits = p->bits, .padded = padded};
  return EAGLET_OK;
}

static enum eaglet_status read_packed(struct linear_reader *r, struct weight *w) {
  const struct tensor_entry *packed = &r->parts[ROLE_DATA].tensor, *scale;
  struct packing packing = {.bits = 0};
  int64_t shape[2];
  TRY(need(r, &scale, ROLE_SCALE, ".weight_scale"));
  if (r->transposed)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: packed integers of a transposed weight are not supported", packed->path,
         packed->name);
  TRY(check_weight_shape(r));
  TRY(refuse_part(r, ROLE_GLOBAL));
  TRY(scale_shape(r, scale, shape));
  TRY(choose_packing(r, &packing, shape));
  if (shape[0] != 1 && shape[0] != r->n_out) return refuse_shape(r, scale, r->n_out, shape[1]);
  if (scale->dtype != DTYPE_F32 && scale->dtype != DTYPE_BF16 && scale->dtype != DTYPE_F16)
    return refuse_dtype(r, scale, "BF16, F16 or F32");
  TRY(check_scales(r, scale, scale->dtype));
  w->scale = scale->data;
  w->scale_dtype = scale->dtype;
  w->scale_rows = shape[0] == 1 ? r->n_out : 1;
  w->group = packing.group;
  bool nibbles = packing.bits == 4 && r->n_in % 8 == 0; /* then words are rows of nibbles without a gap */
  w->format = nibbles ? WEIGHT_INT4 : WEIGHT_PACKED;
  w->codes = (struct weight_fields){.words = packed->data,
                                    .line = packed->shape[1],
                                    .step = 1,
                                    .bits = packing.bits,
                                    .padded = packing.padded};
  TRY(read_packed_zeros(r, w, &packing));
  if (nibbles && w->zero_kind == WEIGHT_ZERO_NONE && !r->source->nibbles->tensor[0]) TRY(check_nibbles(r, packed));
  return read_index(r, w);
}

/* ---- AWQ, GPTQ: inputs are the rows, zero points lie along the outputs ---- */

static enum eaglet_status read_q_scales(struct linear_reader *r, struct weight *w) {
  const struct quantization *q = r->source->quantization;
  const struct tensor_entry *scale;
  TRY(need(r, &scale, ROLE_SCALE, ".scales"));
  if (scale->dtype != DTYPE_F16 && scale->dtype != DTYPE_BF16 && scale->dtype != DTYPE_F32)
    return refuse_dtype(r, scale, "F16, BF16 or F32");
  int64_t n_groups = scale->rank == 2 ? scale->shape[0] : 0;
  w->group = n_groups == 1 ? r->n_in : 0;
  for (int32_t i = 0; i < q->n_schemes && w->group == 0; i++) {
    if (q->schemes[i].group > 0 && ceil_div(r->n_in, q->schemes[i].group) == n_groups) w->group = q->schemes[i].group;
  }
  if (w->group == 0) return refuse_shape(r, scale, expected_scales(r, r->n_in, 1), r->n_out);
  TRY(linear_expect_matrix(r, scale, n_groups, r->n_out));
  w->scale = scale->data;
  w->scale_dtype = scale->dtype;
  w->scale_transposed = true;
  return check_scales(r, scale, scale->dtype);
}

static enum eaglet_status read_q_zeros(struct linear_reader *r, struct weight *w) {
  const struct tensor_entry *zero;
  int32_t bits = w->codes.bits;
  TRY(need(r, &zero, ROLE_ZERO, ".qzeros"));
  if (zero->dtype != DTYPE_I32) return refuse_dtype(r, zero, "I32");
  TRY(linear_expect_matrix(r, zero, weight_groups(w), (int64_t)r->n_out * bits / 32));
  w->zero_kind = WEIGHT_ZERO_FIELDS;
  w->zeros = (struct weight_fields){
      .words = zero->data, .line = zero->shape[1], .step = 1, .bits = bits, .awq_order = w->codes.awq_order};
  return EAGLET_OK;
}

static enum eaglet_status read_awq(struct linear_reader *r, struct weight *w) {
  const struct tensor_entry *data = &r->parts[ROLE_DATA].tensor;
  if (r->n_out % 8 != 0)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: %d outputs are no multiple of 8", data->path, data->name, r->n_out);
  TRY(linear_expect_matrix(r, data, r->n_in, r->n_out / 8));
  TRY(refuse_part(r, ROLE_INDEX));
  w->codes = (struct weight_fields){.words = data->data, .line = r->n_out / 8, .step = 1, .bits = 4, .awq_order = true};
  w->codes_along_out = true;
  TRY(read_q_scales(r, w));
  return read_q_zeros(r, w);
}

/* Do all stored zero points have this value? Looks at evenly spread ones. */
static bool zeros_are(const struct weight *w, int32_t n_out, uint32_t value) {
  int32_t n_groups = weight_groups(w), step = n_out / 64 + 1;
  for (int32_t g = 0; g < n_groups; g++) {
    for (int32_t o = g % step; o < n_out; o += step) {
      if (weight_field(&w->zeros, g, o) != value) return false;
    }
  }
  return true;
}

/* v1 stores the zero point less one. Symmetric weights have theirs in the middle, which shows when a file is labelled
 * with the wrong version (bug case A13). */
static void choose_zero_convention(struct linear_reader *r, struct weight *w) {
  struct quantization *q = r->source->quantization;
  uint32_t middle = 1u << (w->codes.bits - 1);
  bool symmetric = false, v2 = q->gptq_v2;
  for (int32_t i = 0; i < q->n_schemes; i++) symmetric |= q->schemes[i].bits == w->codes.bits && q->schemes[i].symmetric;
  if (symmetric && !v2 && zeros_are(w, r->n_out, middle)) {
    v2 = true;
    q->n_zeros_as_v2++;
  } else if (symmetric && v2 && zeros_are(w, r->n_out, middle - 1)) {
    v2 = false;
    q->n_zeros_as_v1++;
  } else if (!symmetric && !v2) {
    q->n_zeros_v1_asymmetric++;
  }
  w->zero_add = v2 ? 0 : 1;
}

static enum eaglet_status read_gptq(struct linear_reader *r, struct weight *w) {
  const struct quantization *q = r->source->quantization;
  const struct tensor_entry *data = &r->parts[ROLE_DATA].tensor;
  int32_t bits = 0;
  for (int32_t i = 0; i < q->n_schemes && bits == 0; i++) {
    int64_t rows = (int64_t)r->n_in * q->schemes[i].bits;
    if (data->rank == 2 && rows % 32 == 0 && rows / 32 == data->shape[0]) bits = q->schemes[i].bits;
  }
  if (bits == 0) return refuse_shape(r, data, (int64_t)r->n_in * q->bits / 32, r->n_out);
  TRY(linear_expect_matrix(r, data, data->shape[0], r->n_out));
  if ((int64_t)r->n_out * bits % 32 != 0)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: %d outputs of %d bits do not fill words", data->path, data->name, r->n_out,
         bits);
  w->codes = (struct weight_fields){.words = data->data, .line = 1, .step = r->n_out, .bits = bits};
  TRY(read_q_scales(r, w));
  TRY(read_q_zeros(r, w));
  choose_zero_convention(r, w);
  return read_index(r, w);
}

static enum eaglet_status read_qweight(struct linear_reader *r, struct weight *w) {
  const struct quantization *q = r->source->quantization;
  const struct tensor_entry *data = &r->parts[ROLE_DATA].tensor;
  w->format = WEIGHT_PACKED;
  if (data->dtype != DTYPE_I32) return refuse_dtype(r, data, "I32");
  if (r->transposed)
    FAIL(r->err, EAGLET_E_INPUT, "%s: %s: a stack of qweight in another orientation is not supported", data->path,
         data->name);
  TRY(refuse_part(r, ROLE_GLOBAL));
  if (strcmp(q->method, "awq") == 0) return read_awq(r, w);
  if (strcmp(q->method, "gptq") == 0) return read_gptq(r, w);
  FAIL(r->err, EAGLET_E_INPUT, "%s: %s: config.json names neither AWQ nor GPTQ as the quantiser", data->path,
       data->name);
}

enum eaglet_status linear_read(struct linear_reader *r, struct weight *weight) {
  const struct tensor_entry *data = &r->parts[ROLE_DATA].tensor;
  bool packed = strstr(r->parts[ROLE_DATA].tail, "packed") != NULL;
  *weight = (struct weight){
      .n_out = r->n_out, .n_in = r->n_in, .data = data->data, .transposed = r->transposed, .n_stored = r->n_out};
  if (strcmp(r->parts[ROLE_DATA].tail, ".qweight") == 0) {
    TRY(read_qweight(r, weight));
    return check_groups(r, weight);
  }
  switch (data->dtype) {
  case DTYPE_F32:
  case DTYPE_BF16:
  case DTYPE_F16:
    return read_plain(r, weight);
  case DTYPE_F8_E4M3:
  case DTYPE_F8_E5M2:
    TRY(read_float8(r, weight));
    break;
  case DTYPE_I8:
    TRY(read_int8(r, weight));
    break;
  case DTYPE_U8:
    TRY(read_float4(r, weight));
    break;
  default:
    if (!packed) return refuse_dtype(r, data, "BF16, F16 or F32");
    if (data->dtype != DTYPE_I32) return refuse_dtype(r, data, "I32");
    TRY(read_packed(r, weight));
  }
  return check_groups(r, weight);
}
