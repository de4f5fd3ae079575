/* quantization.c - the quantisation block of config.json and its files beside; see bind.h. It owns the list of methods
 * and of their keys that are understood. Everything else is refused by name, because a flag that is skipped may change
 * every weight. Which module is quantised is not read here: targets, ignore lists and overrides show in the tensors. */
#include "model/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct block {
  const json_t *object;
  char path[64];
  const char *method; /* implied by where it was found; NULL: quant_method says */
};

struct checker {
  const char *what; /* directory of the checkpoint */
  struct quantization *q;
  struct eaglet_error *err;
};

static enum eaglet_status find_block(struct block *block, const struct arch *arch, const struct checker *k) {
  static const char *const keys[] = {"quantization_config", "compression_config"};
  const json_t *levels[] = {arch->config, arch->outer[0], arch->outer[1]};
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

/* Quantisers that keep their parameters in a file of their own. *file owns what it read. */
static enum eaglet_status find_file(struct block *block, json_t **file, const struct checker *k) {
  static const struct {
    const char *name, *object, *method;
  } files[] = {{"hf_quant_config.json", "quantization", "modelopt"},
               {"quantize_config.json", NULL, "gptq"},
               {"quant_config.json", NULL, "awq"}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char *path = file_join(k->what, files[i].name);
    enum eaglet_status status = file_exists(path) ? json_parse_file(file, path, k->err) : EAGLET_OK;
    free(path);
    TRY(status);
    if (!*file) continue;
    block->object = files[i].object ? json_object_get(*file, files[i].object) : *file;
    block->method = files[i].method;
    snprintf(block->path, sizeof block->path, "%s", files[i].name);
    if (!json_is_object(block->object))
      FAIL(k->err, EAGLET_E_INPUT, "%s: %s: expected an object", k->what, files[i].name);
    return EAGLET_OK;
  }
  return EAGLET_OK;
}

/* ---- checking keys ---- */

/* A key whose value must be null, false, empty or absent. */
static bool is_off(const json_t *value) {
  return !value || json_is_null(value) || json_is_false(value) ||
         (json_is_object(value) && json_object_size(value) == 0) ||
         (json_is_array(value) && json_array_size(value) == 0) ||
         (json_is_string(value) && json_string_length(value) == 0);
}

/* Is word one of the '|'-separated words of list? */
static bool is_listed(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; *at;) {
    size_t n = strcspn(at, "|");
    if (n == length && strncasecmp(at, word, n) == 0) return true;
    at += at[n] ? n + 1 : n;
  }
  return false;
}

/* The value of a key must be one of `expected` ("a|b"), or absent. */
static enum eaglet_status expect_string(const json_t *object, const char *key, const char *expected, const char *path,
                                        const struct checker *k) {
  const json_t *value = json_object_get(object, key);
  if (!value || json_is_null(value)) return EAGLET_OK;
  if (json_is_string(value) && is_listed(expected, json_string_value(value))) return EAGLET_OK;
  FAIL(k->err, EAGLET_E_INPUT, "%s: %s.%s: expected \"%s\", found \"%s\", which is not supported", k->what, path, key,
       expected, json_is_string(value) ? json_string_value(value) : "a value of another type");
}

/* Keys outside `known` ("a|b") must be off. */
static enum eaglet_status expect_known(const json_t *object, const char *known, const char *path,
                                       const struct checker *k) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    if (!is_off(value) && !is_listed(known, key))
      FAIL(k->err, EAGLET_E_INPUT, "%s: %s.%s: not supported", k->what, path, key);
  }
  return EAGLET_OK;
}

/* First of two spellings that is there. */
static const char *spelled(const json_t *object, const char *name, const char *other) {
  return json_object_get(object, name) ? name : other;
}

static enum eaglet_status add_scheme(const struct checker *k, const struct quantization_scheme *scheme,
                                     const char *path) {
  struct quantization *q = k->q;
  for (int32_t i = 0; i < q->n_schemes; i++) {
    if (memcmp(&q->schemes[i], scheme, sizeof *scheme) == 0) return EAGLET_OK;
  }
  if (q->n_schemes == QUANTIZATION_SCHEMES_MAX)
    FAIL(k->err, EAGLET_E_INPUT, "%s: %s: more than %d different schemes", k->what, path, QUANTIZATION_SCHEMES_MAX);
  if (q->n_schemes == 0) {
    q->bits = scheme->bits;
    q->group = scheme->block[1] ? scheme->block[1] : scheme->group > 0 ? scheme->group : 0;
    q->symmetric = scheme->symmetric;
  }
  q->schemes[q->n_schemes++] = *scheme;
  return EAGLET_OK;
}

static enum eaglet_status read_int(int32_t *value, const json_t *object, const char *key, int32_t fallback,
                                   const char *path, const struct checker *k) {
  int64_t wide;
  TRY(json_get_int_or(&wide, fallback, object, key, path, k->err));
  if (wide < -1 || wide > 1 << 24)
    FAIL(k->err, EAGLET_E_INPUT, "%s: %s.%s: found %lld", k->what, path, key, (long long)wide);
  *value = (int32_t)wide;
  return EAGLET_OK;
}

/* [outputs, inputs] of a block format, or "128x128". */
static enum eaglet_status read_block_size(int32_t size[2], const json_t *object, const char *key, const char *path,
                                          const struct checker *k) {
  const json_t *value = json_object_get(object, key);
  if (!value || json_is_null(value)) return EAGLET_OK;
  if (json_is_string(value) && sscanf(json_string_value(value), "%7dx%7d", &size[0], &size[1]) == 2 && size[0] > 0 &&
      size[1] > 0)
    return EAGLET_OK;
  bool good = json_is_array(value) && json_array_size(value) == 2;
  for (size_t i = 0; good && i < 2; i++) {
    json_int_t n = json_integer_value(json_array_get(value, i));
    good = n > 0 && n <= 1 << 24;
    size[i] = (int32_t)n;
  }
  if (!good) FAIL(k->err, EAGLET_E_INPUT, "%s: %s.%s: expected two positive integers", k->what, path, key);
  return EAGLET_OK;
}

/* ---- compressed-tensors, and ModelOpt's copy of it ---- */

static enum eaglet_status read_weights(const json_t *weights, const char *path, const struct checker *k) {
  static const char known[] = "type|num_bits|group_size|strategy|symmetric|observer|observer_kwargs|scale_dtype|"
                              "zp_dtype|block_structure|actorder";
  struct quantization_scheme scheme = {.bits = 0};
  if (is_off(weights)) return EAGLET_OK; /* only activations of these modules are quantised */
  if (!json_is_object(weights)) FAIL(k->err, EAGLET_E_INPUT, "%s: %s: expected an object", k->what, path);
  TRY(expect_known(weights, known, path, k));
  TRY(expect_string(weights, "type", "int|float", path, k));
  TRY(expect_string(weights, "strategy", "tensor|channel|group|block|tensor_group", path, k));
  const char *type = json_string_value(json_object_get(weights, "type"));
  scheme.is_float = type && strcasecmp(type, "float") == 0;
  TRY(read_int(&scheme.bits, weights, "num_bits", 8, path, k));
  TRY(read_int(&scheme.group, weights, "group_size", -1, path, k));
  TRY(json_get_bool_or(&scheme.symmetric, true, weights, "symmetric", path, k->err));
  TRY(read_block_size(scheme.block, weights, "block_structure", path, k));
  if (scheme.is_float ? scheme.bits != 4 && scheme.bits != 8 : scheme.bits < 2 || scheme.bits > 8)
    FAIL(k->err, EAGLET_E_INPUT, "%s: %s.num_bits: %d bits are not supported", k->what, path, scheme.bits);
  if (scheme.group == 0) FAIL(k->err, EAGLET_E_INPUT, "%s: %s.group_size: found 0", k->what, path);
  return add_scheme(k, &scheme, path);
}

static enum eaglet_status read_groups(const json_t *groups, const char *path, const struct checker *k) {
  static const char known[] = "targets|weights|format|input_activations|output_activations";
  const char *name;
  json_t *group;
  json_object_foreach((json_t *)groups, name, group) {
    char at[128];
    snprintf(at, sizeof at, "%s.config_groups.%.30s", path, name);
    if (!json_is_object(group)) FAIL(k->err, EAGLET_E_INPUT, "%s: %s: expected an object", k->what, at);
    TRY(expect_known(group, known, at, k));
    char weights[160];
    snprintf(weights, sizeof weights, "%s.weights", at);
    TRY(read_weights(json_object_get(group, "weights"), weights, k));
  }
  return EAGLET_OK;
}

static enum eaglet_status read_compressed_tensors(const struct block *block, const struct checker *k) {
  static const char formats[] =
      "pack-quantized|int-quantized|float-quantized|naive-quantized|nvfp4-pack-quantized|mxfp4-pack-quantized|"
      "mxfp8-quantized|mixed-precision|dense";
  static const char known[] = "quant_method|format|quantization_status|config_groups|ignore|global_compression_ratio|"
                              "version|kv_cache_scheme|sparsity_config|run_compressed";
  const json_t *o = block->object, *inner = json_object_get(o, "quantization_config"), *group;
  const json_t *sparsity = json_object_get(o, "sparsity_config");
  if (json_is_object(inner)) { /* as some versions of transformers nest it */
    TRY(expect_known(o, "quant_method|quantization_config|sparsity_config|run_compressed", block->path, k));
    o = inner;
  }
  const json_t *groups = json_object_get(o, "config_groups");
  const char *name, *format = json_string_value(json_object_get(o, "format"));
  TRY(expect_string(o, "format", formats, block->path, k));
  json_object_foreach((json_t *)groups, name, group) {
    char at[128];
    snprintf(at, sizeof at, "%s.config_groups.%.30s", block->path, name);
    TRY(expect_string(group, "format", formats, at, k));
  }
  TRY(expect_known(o, known, block->path, k));
  if (!is_off(sparsity)) {
    char at[128];
    snprintf(at, sizeof at, "%s.sparsity_config", block->path);
    TRY(expect_string(sparsity, "format", "dense", at, k));
  }
  if (!json_is_object(groups) || json_object_size(groups) == 0)
    FAIL(k->err, EAGLET_E_INPUT, "%s: %s.config_groups: expected at least one group", k->what, block->path);
  snprintf(k->q->format, sizeof k->q->format, "%s", format ? format : "");
  return read_groups(groups, block->path, k);
}

static enum eaglet_status read_modelopt(const struct block *block, const struct checker *k) {
  static const char known[] = "quant_method|quant_algo|kv_cache_quant_algo|kv_cache_scheme|config_groups|ignore|"
                              "producer|exclude_modules|quantized_layers|group_size|smoothquant_val|calibration";
  struct quantization_scheme scheme = {.symmetric = true, .is_float = true};
  const json_t *o = block->object, *inner = json_object_get(o, "quantization"), *groups;
  if (json_is_object(inner)) { /* a copy of hf_quant_config.json */
    TRY(expect_known(o, "quant_method|quantization|producer", block->path, k));
    o = inner;
  }
  const char *algorithm = json_string_value(json_object_get(o, "quant_algo"));
  TRY(expect_string(o, "quant_algo",
                    "FP8|FP8_PB_WO|FP8_PER_CHANNEL_PER_TOKEN|NVFP4|NVFP4_AWQ|MXFP8|MXFP4|MIXED_PRECISION", block->path,
                    k));
  TRY(expect_known(o, known, block->path, k));
  TRY(read_int(&scheme.group, o, "group_size", -1, block->path, k));
  if (scheme.group == 0) scheme.group = -1;
  scheme.bits = algorithm && (strncasecmp(algorithm, "NVFP4", 5) == 0 || strcasecmp(algorithm, "MXFP4") == 0) ? 4 : 8;
  snprintf(k->q->format, sizeof k->q->format, "%s", algorithm ? algorithm : "");
  TRY(add_scheme(k, &scheme, block->path));
  groups = json_object_get(o, "config_groups");
  return json_is_object(groups) ? read_groups(groups, block->path, k) : EAGLET_OK;
}

/* ---- AWQ, GPTQ ---- */

/* How AutoRound found the codes that it exports as AWQ or GPTQ. */
#define AUTOROUND_KEYS                                                                                                 \
  "|data_type|autoround_version|amp|batch_size|enable_quanted_input|gradient_accumulate_steps|low_gpu_mem_usage|lr|"   \
  "minmax_lr|model_dtype|quant_block_list|scale_dtype|train_bs|enable_minmax_tuning|to_quant_block_names|"             \
  "enable_norm_bias_tuning|act_bits|act_group_size|act_dynamic|act_sym|act_data_type|nsamples|seqlen|iters|dataset|"   \
  "block_name_to_quantize"

static enum eaglet_status read_awq(const struct block *block, const struct checker *k) {
  static const char known[] =
      "quant_method|bits|w_bit|group_size|q_group_size|zero_point|version|modules_to_not_convert|backend|do_fuse|"
      "fuse_max_seq_len|modules_to_fuse|exllama_config|provider|model_type|is_awq|desc_act|sym|format|pack_dtype|"
      "meta" AUTOROUND_KEYS;
  struct quantization_scheme scheme = {.symmetric = false};
  const json_t *o = block->object;
  bool zero_point;
  TRY(expect_string(o, "version", "gemm", block->path, k));
  TRY(expect_string(o, "format", "gemm", block->path, k));
  TRY(expect_known(o, known, block->path, k));
  TRY(read_int(&scheme.bits, o, spelled(o, "bits", "w_bit"), 4, block->path, k));
  TRY(read_int(&scheme.group, o, spelled(o, "group_size", "q_group_size"), 128, block->path, k));
  TRY(json_get_bool_or(&zero_point, true, o, "zero_point", block->path, k->err));
  if (scheme.bits != 4)
    FAIL(k->err, EAGLET_E_INPUT, "%s: %s.bits: expected 4, found %d, which is not supported", k->what, block->path,
         scheme.bits);
  if (!zero_point)
    FAIL(k->err, EAGLET_E_INPUT, "%s: %s.zero_point: false is not supported", k->what, block->path);
  if (scheme.group == 0) FAIL(k->err, EAGLET_E_INPUT, "%s: %s.group_size: found 0", k->what, block->path);
  snprintf(k->q->format, sizeof k->q->format, "gemm");
  return add_scheme(k, &scheme, block->path);
}

static enum eaglet_status read_gptq_scheme(const json_t *object, const struct quantization_scheme *base,
                                           const char *path, const struct checker *k) {
  struct quantization_scheme scheme = *base;
  TRY(read_int(&scheme.bits, object, "bits", base->bits, path, k));
  TRY(read_int(&scheme.group, object, "group_size", base->group, path, k));
  TRY(json_get_bool_or(&scheme.symmetric, base->symmetric, object, "sym", path, k->err));
  if (scheme.bits != 2 && scheme.bits != 3 && scheme.bits != 4 && scheme.bits != 8)
    FAIL(k->err, EAGLET_E_INPUT, "%s: %s.bits: expected 2, 3, 4 or 8, found %d, which is not supported", k->what, path,
         scheme.bits);
  if (scheme.group == 0) FAIL(k->err, EAGLET_E_INPUT, "%s: %s.group_size: found 0", k->what, path);
  return add_scheme(k, &scheme, path);
}

static enum eaglet_status read_gptq(const struct block *block, const struct checker *k) {
  static const char known[] =
      "quant_method|bits|group_size|desc_act|sym|checkpoint_format|format|dynamic|damp_percent|damp_auto_increment|"
      "static_groups|true_sequential|lm_head|mse|meta|device|pack_dtype|act_group_aware|v2|v2_alpha|gptaq|quantizer|"
      "model_name_or_path|model_file_base_name|modules_to_not_convert|"
      "module_name_preceding_first_block|modules_in_block_to_quantize|tokenizer|pad_token_id|"
      "use_exllama|disable_exllama|exllama_config|use_cuda_fp16|model_seqlen|max_input_length|cache_block_outputs|"
      "backend|parallel_packing|offload_to_disk|offload_to_disk_path|uuid|"
      "pack_impl|fail_safe|failsafe|hyb_act|mock_quantization|wait_for_submodule_finalizers" AUTOROUND_KEYS;
  static const char overrides[] = "bits|group_size|sym|desc_act|mse|damp_percent|static_groups|true_sequential|v2";
  const struct quantization_scheme base = {.bits = 4, .group = 128, .symmetric = true};
  const json_t *o = block->object, *dynamic = json_object_get(o, "dynamic"), *rule;
  const char *key = spelled(o, "checkpoint_format", "format"), *format = json_string_value(json_object_get(o, key)),
             *pattern;
  TRY(expect_string(o, key, "gptq|gptq_v2", block->path, k));
  TRY(expect_string(o, "pack_dtype", "int32", block->path, k));
  TRY(expect_known(o, known, block->path, k));
  k->q->gptq_v2 = format && strcasecmp(format, "gptq_v2") == 0;
  snprintf(k->q->format, sizeof k->q->format, "%s", format ? format : "gptq");
  TRY(read_gptq_scheme(o, &base, block->path, k));
  const struct quantization_scheme general = k->q->schemes[0];
  json_object_foreach((json_t *)dynamic, pattern, rule) {
    char path[128];
    snprintf(path, sizeof path, "%s.dynamic[\"%.40s\"]", block->path, pattern);
    if (strncmp(pattern, "-:", 2) == 0) continue; /* not quantised: its tensors say so */
    if (!json_is_object(rule)) FAIL(k->err, EAGLET_E_INPUT, "%s: %s: expected an object", k->what, path);
    TRY(expect_known(rule, overrides, path, k));
    TRY(read_gptq_scheme(rule, &general, path, k));
  }
  return EAGLET_OK;
}

/* ---- 8-bit floats, gpt-oss, Quark ---- */

static enum eaglet_status read_fp8(const struct block *block, const struct checker *k) {
  static const char known[] = "quant_method|fmt|activation_scheme|weight_block_size|scale_fmt|modules_to_not_convert|"
                              "ignored_layers|dequantize|kv_cache_scheme|activation_scale_ub";
  struct quantization_scheme scheme = {.bits = 8, .group = -1, .symmetric = true, .is_float = true};
  TRY(expect_string(block->object, "fmt", "e4m3|e4m3fn|float8_e4m3fn|e5m2|float8_e5m2", block->path, k));
  TRY(expect_string(block->object, "scale_fmt", "ue8m0|float|float32|bfloat16", block->path, k));
  TRY(expect_string(block->object, "activation_scheme", "dynamic|static", block->path, k));
  TRY(expect_known(block->object, known, block->path, k));
  TRY(read_block_size(scheme.block, block->object, "weight_block_size", block->path, k));
  snprintf(k->q->format, sizeof k->q->format, "%s", scheme.block[0] ? "fp8 blocks" : "fp8");
  return add_scheme(k, &scheme, block->path);
}

static enum eaglet_status read_mxfp4(const struct block *block, const struct checker *k) {
  const struct quantization_scheme scheme = {.bits = 4, .group = 32, .symmetric = true, .is_float = true};
  TRY(expect_known(block->object, "quant_method|modules_to_not_convert|dequantize|swizzle", block->path, k));
  snprintf(k->q->format, sizeof k->q->format, "mxfp4");
  return add_scheme(k, &scheme, block->path);
}

/* Quark's floats are stored like ours; its rotations are not undone by any tensor. */
static enum eaglet_status read_quark(const struct block *block, const struct checker *k) {
  const struct quantization_scheme scheme = {.bits = 0, .group = -1, .symmetric = true, .is_float = true};
  TRY(expect_known(block->object,
                   "quant_method|global_quant_config|exclude|export|layer_quant_config|layer_type_quant_config|"
                   "quant_mode|softmax_quant_spec|kv_cache_quant_config|kv_cache_post_rope|version",
                   block->path, k));
  snprintf(k->q->format, sizeof k->q->format, "quark");
  return add_scheme(k, &scheme, block->path);
}

/* MLX keeps its own block and stores groups as U32 words with scales and biases. */
static enum eaglet_status refuse_mlx(const struct arch *arch, const struct checker *k) {
  const json_t *levels[] = {arch->config, arch->outer[0], arch->outer[1]};
  for (int i = 0; i < 3; i++) {
    const json_t *object = json_object_get(levels[i], "quantization");
    if (json_object_get(object, "group_size") && json_object_get(object, "bits"))
      FAIL(k->err, EAGLET_E_INPUT, "%s: quantization {group_size, bits}: MLX's format is not supported", k->what);
  }
  return EAGLET_OK;
}

static enum eaglet_status read_block(const struct block *block, const struct checker *k) {
  static const struct {
    const char *method;
    enum eaglet_status (*read)(const struct block *block, const struct checker *k);
  } methods[] = {{"compressed-tensors", read_compressed_tensors},
                 {"awq", read_awq},
                 {"gptq", read_gptq},
                 {"fp8", read_fp8},
                 {"fbgemm_fp8", read_fp8},
                 {"mxfp4", read_mxfp4},
                 {"modelopt", read_modelopt},
                 {"modelopt_fp4", read_modelopt},
                 {"modelopt_mixed", read_modelopt},
                 {"quark", read_quark}};
  const char *method;
  TRY(json_get_string_or(&method, block->method ? block->method : "compressed-tensors", block->object, "quant_method",
                         block->path, k->err));
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    if (strcmp(method, methods[i].method) != 0) continue;
    memcpy(k->q->from, block->path, sizeof k->q->from);
    snprintf(k->q->method, sizeof k->q->method, "%s", method);
    return methods[i].read(block, k);
  }
  FAIL(k->err, EAGLET_E_INPUT, "%s: %s.quant_method: \"%s\" is not supported", k->what, block->path, method);
}

enum eaglet_status quantization_read(struct quantization *q, const struct arch *arch,
                                     const struct checkpoint *checkpoint, struct eaglet_error *err) {
  const struct checker k = {.what = checkpoint->path, .q = q, .err = err};
  struct block block = {.object = NULL};
  json_t *file = NULL;
  *q = (struct quantization){.bits = 0};
  TRY(find_block(&block, arch, &k));
  TRY(refuse_mlx(arch, &k));
  enum eaglet_status status = EAGLET_OK;
  if (!block.object) TRY_GOTO(find_file(&block, &file, &k), done);
  if (block.object) status = read_block(&block, &k);
done:
  json_decref(file);
  return status;
}
