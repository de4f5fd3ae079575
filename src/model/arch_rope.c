/* arch_rope.c - rope features from config.json; see arch_features.h. The fields moved between versions of the reference
 * library (bug case A18): theta may be flat, in rope_parameters or in rope_scaling; the nested value wins and a
 * contradiction is said aloud. */
#include "model/arch_features.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const keys_known[] = {
    "rope_type",
    "type",
    "rope_theta",
    "factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "attention_factor",
    "low_freq_factor",
    "high_freq_factor",
    "truncate",
    "short_factor",
    "long_factor",
    "short_mscale",
    "long_mscale",
    "alpha",
    "llama_4_scaling_beta",
    "partial_rotary_factor",
    "mrope_section",
    "mrope_interleaved",
    "max_position_embeddings",
    "finetuned", /* text positions are equal on every axis */
};

/* The block that holds scaling, and its path. */
struct rope_block {
  const json_t *object; /* NULL: none */
  char path[160];
};
/* Rope that differs by layer type comes as a block of blocks under these names. */
static const char *const layer_kinds[ROPES_MAX] = {"full_attention", "sliding_attention"};

static const json_t *object_field(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return value && !json_is_null(value) ? value : NULL;
}

static const char *block_type(const json_t *block) {
  const json_t *type = object_field(block, "rope_type");
  if (!type) type = object_field(block, "type");
  return type && json_is_string(type) ? json_string_value(type) : "default";
}

static struct rope_block find_block(struct field_reader *reader) {
  struct rope_block block = {.object = NULL, .path = ""};
  for (int level = 0; level < reader->n_levels; level++) {
    const json_t *a = object_field(reader->levels[level], "rope_parameters"),
                 *b = object_field(reader->levels[level], "rope_scaling");
    if (!a && !b) continue;
    if (a && b && strcmp(block_type(a), block_type(b)) != 0) {
      field_fail(reader, "%srope_parameters says type %s, but %srope_scaling says %s", reader->paths[level],
                 block_type(a), reader->paths[level], block_type(b));
    }
    block.object = a ? a : b;
    snprintf(block.path, sizeof block.path, "%s%s", reader->paths[level], a ? "rope_parameters" : "rope_scaling");
    if (!json_is_object(block.object)) field_fail(reader, "%s: expected an object", block.path);
    return block;
  }
  return block;
}

static void check_block(struct field_reader *reader, const struct rope_block *block) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)block->object, key, value) {
    bool known = json_is_null(value);
    for (size_t i = 0; i < sizeof keys_known / sizeof *keys_known; i++)
      known = known || strcmp(key, keys_known[i]) == 0;
    if (!known)
      field_fail(reader, "%s.%s: not known to eaglet; it may change the arithmetic", block->path, key);
  }
}

static double block_number(struct field_reader *reader, const struct rope_block *block, const char *key,
                           double fallback) {
  const json_t *value = object_field(block->object, key);
  char name[64], from[256];
  snprintf(name, sizeof name, "rope.%s", key);
  snprintf(from, sizeof from, "%s.%s", block->path, key);
  if (reader->status != EAGLET_OK) return fallback;
  if (!value) {
    if (fallback < 0) field_fail(reader, "%s: expected a number, found none", from);
    return fallback;
  }
  if (!json_is_number(value)) field_fail(reader, "%s: expected a number", from);
  field_note(reader, name, json_real(json_number_value(value)), from);
  return json_number_value(value);
}

/* Theta of one level: nested wins over flat. */
static bool level_theta(struct field_reader *reader, int level, const char *kind, double *theta, char from[160]) {
  static const char *const nests[] = {"rope_parameters", "rope_scaling"};
  const json_t *flat = object_field(reader->levels[level], "rope_theta"), *nested = NULL;
  const char *nest = "";
  for (int i = 0; i < 2 && !nested; i++) {
    const json_t *block = object_field(reader->levels[level], nests[i]);
    if (kind && json_is_object(json_object_get(block, kind))) block = json_object_get(block, kind);
    nested = block && json_is_object(block) ? object_field(block, "rope_theta") : NULL;
    nest = nests[i];
  }
  if (!flat && !nested) return false;
  if (nested)
    snprintf(from, 160, "%s%s.rope_theta", reader->paths[level], nest);
  else
    snprintf(from, 160, "%srope_theta", reader->paths[level]);
  const json_t *value = nested ? nested : flat;
  if (!json_is_number(value)) field_fail(reader, "%s: expected a number", from);
  *theta = json_number_value(value);
  if (nested && flat && json_is_number(flat) && json_number_value(flat) != *theta) {
    arch_warn(reader->arch, "%s: %s is %g, but %srope_theta is %g; the nested value is used", reader->what, from,
              *theta, reader->paths[level], json_number_value(flat));
  }
  return true;
}

static double read_theta(struct field_reader *reader, const struct tensor_facts *facts, const char *kind) {
  double theta = reader->arch->row->theta;
  char from[160] = "default";
  bool found = false;
  for (int level = 0; level < reader->n_levels && !found; level++) found = level_theta(reader, level, kind, &theta, from);
  if (!found && (facts->fingerprinted || theta <= 0))
    field_fail(reader, "%srope_theta: expected a value, found none", reader->paths[0]);
  else if (!found) {
    snprintf(from, sizeof from, "default of %s", reader->arch->features.row);
    arch_warn(reader->arch, "%s: no rope_theta at any place; the default of %s, %g, is used", reader->what,
              reader->arch->features.row, theta);
  }
  field_note(reader, "rope_theta", json_real(theta), from);
  return theta;
}

static double get_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static void read_yarn(struct field_reader *reader, const struct rope_block *block, struct rope_features *rope) {
  const struct features *f = &reader->arch->features;
  rope->scaling = ROPE_SCALING_YARN;
  rope->factor = block_number(reader, block, "factor", -1);
  rope->beta_fast = block_number(reader, block, "beta_fast", 32);
  rope->beta_slow = block_number(reader, block, "beta_slow", 1);
  rope->mscale = block_number(reader, block, "mscale", 0);
  rope->mscale_all_dim = block_number(reader, block, "mscale_all_dim", 0);
  const json_t *truncate = object_field(block->object, "truncate");
  if (truncate && !json_is_boolean(truncate)) field_fail(reader, "%s.truncate: expected true or false", block->path);
  rope->truncate = !truncate || json_is_true(truncate);
  double given = block_number(reader, block, "attention_factor", 0);
  if (given > 0)
    rope->attention_factor = given;
  else if (rope->mscale > 0 && rope->mscale_all_dim > 0)
    rope->attention_factor = get_mscale(rope->factor, rope->mscale) / get_mscale(rope->factor, rope->mscale_all_dim);
  else
    rope->attention_factor = get_mscale(rope->factor, 1);
  if (reader->status == EAGLET_OK && rope->original_positions > 0 &&
      rope->factor * rope->original_positions != f->positions_max) {
    arch_warn(reader->arch,
              "%s: %s.factor %g times original positions %d is not max_position_embeddings %d; the factor is followed",
              reader->what, block->path, rope->factor, rope->original_positions, f->positions_max);
  }
}

/* A list of one positive divisor per rotated pair. */
static const json_t *read_divisors(struct field_reader *reader, const struct rope_block *block, const char *key,
                                   int32_t n_pairs) {
  const json_t *list = object_field(block->object, key), *value;
  size_t i;
  if (!json_is_array(list) || json_array_size(list) != (size_t)n_pairs) {
    field_fail(reader, "%s.%s: expected %d numbers, found %zu", block->path, key, n_pairs, json_array_size(list));
    return NULL;
  }
  json_array_foreach((json_t *)list, i, value) {
    if (!json_is_number(value) || !(json_number_value(value) > 0))
      field_fail(reader, "%s.%s[%zu]: expected a positive number", block->path, key, i);
  }
  return list;
}

/* The attention factor of the whole: sqrt(1 + ln s / ln original), s = longest / original context, unless given. */
static void read_longrope(struct field_reader *reader, const struct rope_block *block, struct rope_features *rope) {
  if (object_field(block->object, "short_mscale") || object_field(block->object, "long_mscale"))
    field_fail(reader, "%s.short_mscale: not supported", block->path);
  rope->scaling = ROPE_SCALING_LONGROPE;
  rope->short_factors = read_divisors(reader, block, "short_factor", rope->dim / 2);
  rope->long_factors = read_divisors(reader, block, "long_factor", rope->dim / 2);
  if (reader->status != EAGLET_OK) return;
  double given = block_number(reader, block, "attention_factor", 0);
  rope->factor = block_number(reader, block, "factor", (double)rope->positions_max / rope->original_positions);
  rope->attention_factor = rope->factor <= 1 ? 1 : sqrt(1 + log(rope->factor) / log(rope->original_positions));
  if (given > 0) rope->attention_factor = given;
}

/* Hunyuan fixes the growth of theta by alpha; elsewhere it follows the context. */
static void read_dynamic(struct field_reader *reader, const struct rope_block *block, struct rope_features *rope) {
  double alpha = block_number(reader, block, "alpha", 0);
  if (alpha > 0) {
    rope->theta *= pow(alpha, (double)rope->dim / (rope->dim - 2));
    return;
  }
  rope->scaling = ROPE_SCALING_DYNAMIC;
  rope->factor = block_number(reader, block, "factor", -1);
  if (rope->dim <= 2) field_fail(reader, "%s: dynamic scaling needs more than one rotated pair", block->path);
}

static void read_scaling(struct field_reader *reader, const struct rope_block *block, struct rope_features *rope) {
  const char *type = block_type(block->object);
  field_note(reader, "rope_type", json_string(type), block->path);
  struct field_place outside = field_find(reader, "original_max_position_embeddings|original_max_position");
  int32_t fallback = outside.value && json_is_integer(outside.value) ? (int32_t)json_integer_value(outside.value)
                                                                     : reader->arch->features.positions_max;
  if (strcmp(type, "default") == 0 || strcmp(type, "mrope") == 0) return;
  if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) {
    rope->original_positions = (int32_t)block_number(reader, block, "original_max_position_embeddings", fallback);
    read_longrope(reader, block, rope);
  } else if (strcmp(type, "dynamic") == 0) {
    read_dynamic(reader, block, rope);
  } else if (strcmp(type, "linear") == 0) {
    rope->scaling = ROPE_SCALING_LINEAR;
    rope->factor = block_number(reader, block, "factor", -1);
  } else if (strcmp(type, "llama3") == 0) {
    rope->scaling = ROPE_SCALING_LLAMA3;
    rope->factor = block_number(reader, block, "factor", -1);
    rope->low_freq_factor = block_number(reader, block, "low_freq_factor", 1);
    rope->high_freq_factor = block_number(reader, block, "high_freq_factor", 4);
    rope->original_positions = (int32_t)block_number(reader, block, "original_max_position_embeddings", 8192);
    if (rope->low_freq_factor >= rope->high_freq_factor)
      field_fail(reader, "%s: expected low_freq_factor below high_freq_factor", block->path);
  } else if (strcmp(type, "yarn") == 0) {
    rope->original_positions = (int32_t)block_number(reader, block, "original_max_position_embeddings", fallback);
    read_yarn(reader, block, rope);
  } else {
    field_fail(reader, "%s: rope type \"%s\" is not supported", block->path, type);
  }
  if (reader->status == EAGLET_OK && !(rope->factor > 0))
    field_fail(reader, "%s.factor: expected a positive number, found %g", block->path, rope->factor);
}

static int32_t rotated_width(struct field_reader *reader, const struct rope_block *block) {
  const struct features *f = &reader->arch->features;
  bool mla = f->attention == ATTENTION_MLA;
  int32_t whole = mla ? f->rope_dim : f->head_dim;
  struct field_place fixed = field_find(reader, "rotary_dim"),
                     share = field_find(reader, "partial_rotary_factor|rotary_pct");
  double width = reader->arch->row->partial_rotary > 0 && !mla ? whole * reader->arch->row->partial_rotary : whole;
  const json_t *nested = block->object ? object_field(block->object, "partial_rotary_factor") : NULL;
  if (nested)
    width = (int32_t)(whole * json_number_value(nested));
  else if (share.value)
    width = whole * json_number_value(share.value);
  else if (fixed.value && !json_is_object(json_object_get(reader->levels[0], "rope_parameters")))
    width = json_number_value(fixed.value);
  else if (fixed.value)
    arch_warn(reader->arch, "%s: %s is left from an older format; rope_parameters beside it rotates all %d dimensions",
              reader->what, fixed.from, whole);
  int32_t dim = (int32_t)width;
  if (dim < 2 || dim > whole || dim % 2 || (mla && dim != whole)) {
    field_fail(reader, "rope: expected an even rotated width of at most %d, found %g", whole, width);
  }
  return dim;
}

/* One rope. kind: NULL, or the layer type whose block is wanted. */
static void read_one(struct field_reader *reader, const struct tensor_facts *facts, const struct rope_block *block,
                     const char *kind, struct rope_features *rope) {
  const struct features *f = &reader->arch->features;
  *rope = (struct rope_features){.style = reader->arch->row->rope_style, .attention_factor = 1, .factor = 1};
  rope->theta = read_theta(reader, facts, kind);
  rope->positions_max = f->positions_max;
  bool interleave = field_bool(reader, "rope_interleave", rope->style == ROPE_INTERLEAVED);
  if (f->attention == ATTENTION_MLA)
    rope->style = interleave ? ROPE_INTERLEAVED : ROPE_HALF;
  else if (interleave != (rope->style == ROPE_INTERLEAVED))
    field_fail(reader, "rope_interleave: not supported for %s", f->row);
  rope->dim = rotated_width(reader, block);
  if (block->object && reader->status == EAGLET_OK) {
    check_block(reader, block);
    read_scaling(reader, block, rope);
  }
  if (reader->status == EAGLET_OK && !(rope->theta > 1))
    field_fail(reader, "rope_theta: expected more than 1, found %g", rope->theta);
}

/* The block of one layer type inside a block of blocks; the block itself when it is flat. */
static struct rope_block kind_block(const struct rope_block *block, int kind) {
  struct rope_block inner = *block;
  const json_t *object = json_object_get(block->object, layer_kinds[kind]);
  if (!json_is_object(object)) return inner;
  inner.object = object;
  snprintf(inner.path, sizeof inner.path, "%.120s.%s", block->path, layer_kinds[kind]);
  return inner;
}

static bool is_per_kind(const struct rope_block *block) {
  for (int i = 0; i < ROPES_MAX; i++) {
    if (json_is_object(json_object_get(block->object, layer_kinds[i]))) return true;
  }
  return false;
}

/* Ropes 0 of layers that see everything and 1 of layers with a window, where the two differ. */
static void read_ropes(struct field_reader *reader, const struct tensor_facts *facts, const struct rope_block *block) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  const struct rope_block none = {.object = NULL, .path = ""};
  f->n_ropes = 1;
  if (is_per_kind(block)) {
    f->n_ropes = ROPES_MAX;
    for (int kind = 0; kind < ROPES_MAX; kind++) {
      const struct rope_block inner = kind_block(block, kind);
      read_one(reader, facts, &inner, layer_kinds[kind], &f->rope[kind]);
    }
    return;
  }
  read_one(reader, facts, block, NULL, &f->rope[0]);
  if (row->local_rope == LOCAL_SAME || reader->status != EAGLET_OK) return;
  f->n_ropes = ROPES_MAX;
  read_one(reader, facts, &none, NULL, &f->rope[1]);
  if (row->local_rope == LOCAL_THETA) f->rope[1].theta = field_double(reader, "rope_local_base_freq", 1e4);
}

static void read_query_scale(struct field_reader *reader, const struct rope_block *block) {
  struct features *f = &reader->arch->features;
  if (block->object && object_field(block->object, "llama_4_scaling_beta")) {
    f->query_scale.beta = block_number(reader, block, "llama_4_scaling_beta", 0);
    f->query_scale.period =
        (int32_t)block_number(reader, block, "original_max_position_embeddings", f->positions_max);
  } else if (reader->arch->row->rope == ROPE_LISTED && field_bool(reader, "attn_temperature_tuning", true)) {
    f->query_scale.beta = field_double(reader, "attn_scale", 0.1);
    f->query_scale.period = field_int(reader, "floor_scale", 8192);
    f->query_scale.shift = 1;
  }
  field_accept(reader, "attn_scale|floor_scale");
  if (f->query_scale.beta != 0) field_positive(reader, "floor_scale", f->query_scale.period, INT32_MAX);
}

void arch_read_rope(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  struct rope_block block = find_block(reader);
  field_accept(reader, "rope_theta|rope_scaling|rope_parameters|rope_interleave|original_max_position_embeddings|"
                       "original_max_position|rope_local_base_freq");
  f->attention_scale = 1 / sqrt(f->head_dim);
  if (reader->arch->row->rope == ROPE_LEARNED) {
    f->learned_positions = true;
    return;
  }
  read_ropes(reader, facts, &block);
  if (reader->status == EAGLET_OK && reader->arch->row->scale_queries) read_query_scale(reader, &block);
  if (reader->status == EAGLET_OK && !reader->arch->row->scale_queries && block.object &&
      object_field(block.object, "llama_4_scaling_beta"))
    field_fail(reader, "%s.llama_4_scaling_beta: not supported for %s", block.path, f->row);
  const struct rope_features *rope = &f->rope[0];
  if (f->attention == ATTENTION_MLA && rope->scaling == ROPE_SCALING_YARN && rope->mscale_all_dim > 0) {
    double m = get_mscale(rope->factor, rope->mscale_all_dim);
    f->attention_scale *= m * m;
  }
}

enum eaglet_status rope_features_read(struct rope_features *rope, const struct rope_request *request, const char *what,
                                      struct eaglet_error *err) {
  const char *family = request->latent_rope_dim > 0 ? "deepseek_v3" : "llama";
  struct arch arch = {.config = request->config, .row = arch_row_find(family, NULL), .provenance = json_object()};
  struct field_reader reader = {.arch = &arch,
                                .what = what,
                                .levels = {request->config},
                                .paths = {""},
                                .n_levels = 1,
                                .asked = json_object(),
                                .err = err};
  const struct tensor_facts facts = {.fingerprinted = false};
  arch.features.head_dim = request->head_dim;
  arch.features.rope_dim = request->latent_rope_dim;
  arch.features.attention = request->latent_rope_dim > 0 ? ATTENTION_MLA : ATTENTION_GQA;
  arch.features.positions_max = request->positions_max;
  snprintf(arch.features.row, sizeof arch.features.row, "%s", family);
  arch_read_rope(&reader, &facts);
  if (reader.status == EAGLET_OK && arch.features.n_ropes != 1)
    field_fail(&reader, "rope: one rope for every layer is expected");
  *rope = arch.features.rope[0];
  if (request->attention_scale) *request->attention_scale = arch.features.attention_scale;
  json_decref(reader.asked);
  json_decref(arch.provenance);
  return reader.status;
}
