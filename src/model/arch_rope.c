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
    "partial_rotary_factor",
    "mrope_section",
    "mrope_interleaved",
    "max_position_embeddings",
    "finetuned", /* text positions are equal on every axis */
};

/* The block that holds scaling, and its path. */
struct rope_block {
  const json_t *object; /* NULL: none */
  char path[128];
};

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
    if (json_is_object(value))
      field_fail(reader, "%s.%s: rope that differs between layers is not supported", block->path, key);
    else if (!known)
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
static bool level_theta(struct field_reader *reader, int level, double *theta, char from[160]) {
  static const char *const nests[] = {"rope_parameters", "rope_scaling"};
  const json_t *flat = object_field(reader->levels[level], "rope_theta"), *nested = NULL;
  const char *nest = "";
  for (int i = 0; i < 2 && !nested; i++) {
    const json_t *block = object_field(reader->levels[level], nests[i]);
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

static double read_theta(struct field_reader *reader, const struct tensor_facts *facts) {
  double theta = reader->arch->row->theta;
  char from[160] = "default";
  bool found = false;
  for (int level = 0; level < reader->n_levels && !found; level++) found = level_theta(reader, level, &theta, from);
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

static void read_scaling(struct field_reader *reader, const struct rope_block *block, struct rope_features *rope) {
  const char *type = block_type(block->object);
  field_note(reader, "rope_type", json_string(type), block->path);
  struct field_place outside = field_find(reader, "original_max_position_embeddings");
  int32_t fallback = outside.value && json_is_integer(outside.value) ? (int32_t)json_integer_value(outside.value)
                                                                     : reader->arch->features.positions_max;
  if (strcmp(type, "default") == 0 || strcmp(type, "mrope") == 0) return;
  if (strcmp(type, "linear") == 0) {
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
  double width = whole;
  const json_t *nested = block->object ? object_field(block->object, "partial_rotary_factor") : NULL;
  if (nested)
    width = whole * json_number_value(nested);
  else if (share.value)
    width = whole * json_number_value(share.value);
  else if (fixed.value)
    width = json_number_value(fixed.value);
  int32_t dim = (int32_t)width;
  if (dim < 2 || dim > whole || dim % 2 || (mla && dim != whole)) {
    field_fail(reader, "rope: expected an even rotated width of at most %d, found %g", whole, width);
  }
  return dim;
}

void arch_read_rope(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  struct rope_features *rope = &f->rope;
  struct rope_block block = find_block(reader);
  *rope = (struct rope_features){.style = row->rope_style, .attention_factor = 1, .factor = 1};
  rope->theta = read_theta(reader, facts);
  bool interleave = field_bool(reader, "rope_interleave", row->rope_style == ROPE_INTERLEAVED);
  if (f->attention == ATTENTION_MLA)
    rope->style = interleave ? ROPE_INTERLEAVED : ROPE_HALF;
  else if (interleave != (row->rope_style == ROPE_INTERLEAVED))
    field_fail(reader, "rope_interleave: not supported for %s", f->row);
  if (block.object && reader->status == EAGLET_OK) {
    check_block(reader, &block);
    read_scaling(reader, &block, rope);
  }
  if (reader->status != EAGLET_OK) return;
  rope->dim = rotated_width(reader, &block);
  if (!(rope->theta > 1)) field_fail(reader, "rope_theta: expected more than 1, found %g", rope->theta);
  f->attention_scale = 1 / sqrt(f->attention == ATTENTION_MLA ? f->nope_dim + f->rope_dim : f->head_dim);
  if (f->attention == ATTENTION_MLA && rope->scaling == ROPE_SCALING_YARN && rope->mscale_all_dim > 0) {
    double m = get_mscale(rope->factor, rope->mscale_all_dim);
    f->attention_scale *= m * m;
  }
  field_note(reader, "attention_scale", json_real(f->attention_scale), "derived");
}
