/* quantization.c - the quantisation block of config.json; see bind.h. It owns the list of what is understood:
 * compressed-tensors, pack-quantized, 4 bits, groups, symmetric. Everything else is refused by name, because a flag
 * that is skipped changes every weight. */
#include "model/bind.h"

#include <stdio.h>
#include <string.h>

struct block {
  const json_t *object;
  char path[64];
};

struct checker {
  const char *what; /* directory of the checkpoint */
  struct eaglet_error *err;
};

static enum eaglet_status find_block(struct block *block, const struct arch *arch, const struct checker *k) {
  static const char *const keys[] = {"quantization_config", "compression_config"};
  const json_t *levels[] = {arch->config, arch->outer[0], arch->outer[1]};
  *block = (struct block){.object = NULL};
  for (int level = 0; level < 3; level++) {
    for (int i = 0; i < 2; i++) {
      const json_t *object = json_object_get(levels[level], keys[i]);
      char path[64];
      if (!object || json_is_null(object)) continue;
      bool inner = level == 0 && arch->chain.config_path[0];
      snprintf(path, sizeof path, "%.30s%s%s", inner ? arch->chain.config_path : "", inner ? "." : "", keys[i]);
      if (!json_is_object(object)) FAIL(k->err, EAGLET_E_INPUT, "%s: %s: expected an object", k->what, path);
      if (block->object && !json_equal(block->object, object)) {
        FAIL(k->err, EAGLET_E_INPUT, "%s: %s and %s contradict each other", k->what, block->path, path);
      }
      if (block->object) continue;
      block->object = object;
      memcpy(block->path, path, sizeof path);
    }
  }
  return EAGLET_OK;
}

/* A key whose value must be null, false, empty or absent. */
static bool is_off(const json_t *value) {
  return !value || json_is_null(value) || json_is_false(value) ||
         (json_is_object(value) && json_object_size(value) == 0) ||
         (json_is_array(value) && json_array_size(value) == 0);
}

static enum eaglet_status expect_string(const json_t *object, const char *key, const char *expected, const char *path,
                                        const struct checker *k) {
  const json_t *value = json_object_get(object, key);
  if (!value || json_is_null(value)) return EAGLET_OK;
  if (json_is_string(value) && strcmp(json_string_value(value), expected) == 0) return EAGLET_OK;
  FAIL(k->err, EAGLET_E_INPUT, "%s: %s.%s: expected \"%s\", found \"%s\", which is not supported", k->what, path, key,
       expected, json_is_string(value) ? json_string_value(value) : "a value of another type");
}

/* Keys outside `known` must be off. */
static enum eaglet_status expect_known(const json_t *object, const char *const *known, const char *path,
                                       const struct checker *k) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    bool found = is_off(value);
    for (int i = 0; known[i] && !found; i++) found = strcmp(known[i], key) == 0;
    if (!found) FAIL(k->err, EAGLET_E_INPUT, "%s: %s.%s: not supported", k->what, path, key);
  }
  return EAGLET_OK;
}

static enum eaglet_status read_weights(struct quantization *q, const json_t *weights, const char *path,
                                       const struct checker *k) {
  static const char *const known[] = {"type",     "num_bits",        "group_size",  "strategy", "symmetric",
                                      "observer", "observer_kwargs", "scale_dtype", NULL};
  int64_t bits, group;
  bool symmetric;
  if (!json_is_object(weights)) FAIL(k->err, EAGLET_E_INPUT, "%s: %s: expected an object", k->what, path);
  TRY(json_get_int_or(&bits, 0, weights, "num_bits", path, k->err));
  TRY(json_get_int_or(&group, 0, weights, "group_size", path, k->err));
  TRY(json_get_bool_or(&symmetric, true, weights, "symmetric", path, k->err));
  TRY(expect_string(weights, "type", "int", path, k));
  TRY(expect_string(weights, "strategy", "group", path, k));
  if (bits != 4)
    FAIL(k->err, EAGLET_E_INPUT, "%s: %s.num_bits: expected 4, found %lld, which is not supported", k->what, path,
         (long long)bits);
  if (group < 8 || group % 8 || group > 1 << 20)
    FAIL(k->err, EAGLET_E_INPUT, "%s: %s.group_size: expected a multiple of 8, found %lld", k->what, path,
         (long long)group);
  if (!symmetric) FAIL(k->err, EAGLET_E_INPUT, "%s: %s.symmetric: false is not supported", k->what, path);
  TRY(expect_known(weights, known, path, k));
  if (q->group && q->group != group)
    FAIL(k->err, EAGLET_E_INPUT, "%s: %s.group_size: %lld here, %d in another group: mixed groups are not supported",
         k->what, path, (long long)group, q->group);
  q->bits = 4;
  q->group = (int32_t)group;
  q->symmetric = true;
  return EAGLET_OK;
}

static enum eaglet_status read_group(struct quantization *q, const json_t *group, const char *path,
                                     const struct checker *k) {
  static const char *const known[] = {"targets", "weights", "format", NULL};
  char weights_path[160];
  if (!json_is_object(group)) FAIL(k->err, EAGLET_E_INPUT, "%s: %s: expected an object", k->what, path);
  TRY(expect_known(group, known, path, k));
  TRY(expect_string(group, "format", "pack-quantized", path, k));
  snprintf(weights_path, sizeof weights_path, "%s.weights", path);
  return read_weights(q, json_object_get(group, "weights"), weights_path, k);
}

enum eaglet_status quantization_read(struct quantization *q, const struct arch *arch,
                                     const struct checkpoint *checkpoint, struct eaglet_error *err) {
  static const char *const known[] = {"quant_method",  "format", "quantization_status",
                                      "config_groups", "ignore", "global_compression_ratio",
                                      "version",       NULL};
  const struct checker k = {.what = checkpoint->path, .err = err};
  struct block block;
  const char *method;
  *q = (struct quantization){.bits = 0};
  TRY(find_block(&block, arch, &k));
  if (!block.object) return EAGLET_OK;
  TRY(json_get_string_or(&method, "compressed-tensors", block.object, "quant_method", block.path, err));
  if (strcmp(method, "compressed-tensors") != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: %s.quant_method: \"%s\" is not supported", checkpoint->path, block.path, method);
  TRY(expect_string(block.object, "format", "pack-quantized", block.path, &k));
  TRY(expect_known(block.object, known, block.path, &k));
  const json_t *groups = json_object_get(block.object, "config_groups");
  if (!json_is_object(groups) || json_object_size(groups) == 0)
    FAIL(err, EAGLET_E_INPUT, "%s: %s.config_groups: expected at least one group", checkpoint->path, block.path);
  const char *name;
  json_t *group;
  json_object_foreach((json_t *)groups, name, group) {
    char path[128];
    snprintf(path, sizeof path, "%s.config_groups.%.30s", block.path, name);
    TRY(read_group(q, group, path, &k));
  }
  memcpy(q->from, block.path, sizeof q->from);
  snprintf(q->method, sizeof q->method, "%s", method);
  snprintf(q->format, sizeof q->format, "pack-quantized");
  return EAGLET_OK;
}
