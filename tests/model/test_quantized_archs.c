/* test_quantized_archs.c - every architecture with its linears quantised: the format is none of the architecture's
 * business. Method: in a copy of each reference checkpoint every matrix of the decoder's layers is replaced by drawn codes,
 * packed here, and in a twin by the F32 numbers they mean; both must give the same logits - bit for bit where weights lie
 * along the row. Fused matrices, MLA's absorbed ones, stacks of experts and wrappers come with the architectures. */
#include "variant.h"

#include "base/util.h"

static const char *const archs[] = {
    "cohere2",       "deepseek_v2", "deepseek_v2_lite", "deepseek_v3",  "ernie4_5_moe", "exaone4",    "gemma2",
    "gemma3",        "gemma3_text", "glm4",             "glm4_moe",     "gpt_oss",      "granite",    "hunyuan_dense",
    "kimi_k2_text",  "llama2",      "llama3",           "llama_linear", "llama_yarn",   "llava",        "minimax_m2", "mistral",
    "mistral3",      "mixtral",     "olmo2",            "phi3",         "qwen2",        "qwen3",      "qwen3_moe",
    "qwen3_vl",      "seed_oss",    "smollm3"};

enum kind { FP8, INT4, NVFP4, AWQ, GPTQ, KINDS };

/* A checkpoint and its twin while they are written; blocks live until both are. */
struct pair {
  struct variant quantized, twin;
  void **blocks;
  size_t n_blocks, capacity;
};

static void *keep(struct pair *p, size_t bytes) {
  MEMORY_GROW(p->blocks, p->capacity, p->n_blocks + 1);
  return p->blocks[p->n_blocks++] = memory_alloc(bytes);
}

static void add(struct pair *p, const char *module, const char *tail, struct tensor_entry entry) {
  char name[320];
  snprintf(name, sizeof name, "%.280s%s", module, tail);
  variant_add(&p->quantized, name, &entry);
}

static uint32_t draw(const char *module, uint64_t stream, size_t at, uint32_t below) {
  uint64_t seed = 0;
  for (const char *c = module; *c; c++) seed = seed * 31 + (uint8_t)*c;
  return (uint32_t)(random_u64(seed, stream, at) % below);
}

static float code_scale(const char *module, size_t at) {
  return 0.004f + 0.00001f * (float)draw(module, 9, at, 500);
}

/* Codes [n_out][n_in] below `top`. */
static uint8_t *codes_of(struct pair *p, const char *module, size_t n, uint32_t top) {
  uint8_t *codes = keep(p, n);
  for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)draw(module, 1, i, top);
  return codes;
}

static void add_fp8(struct pair *p, const char *module, int32_t n_out, int32_t n_in, float *values) {
  int32_t rows = (n_out + 31) / 32, columns = (n_in + 31) / 32;
  uint8_t *codes = codes_of(p, module, (size_t)n_out * (size_t)n_in, 0x48);
  float *scales = keep(p, sizeof(float) * (size_t)rows * (size_t)columns);
  for (int32_t i = 0; i < rows * columns; i++) scales[i] = code_scale(module, (size_t)i) * 10;
  for (int32_t i = 0; i < n_out * n_in; i++) {
    if (draw(module, 2, (size_t)i, 2)) codes[i] |= 0x80;
    int exponent = codes[i] >> 3 & 15, fraction = codes[i] & 7;
    float value = exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
    values[i] = (codes[i] & 0x80 ? -value : value) * scales[i / n_in / 32 * columns + i % n_in / 32];
  }
  add(p, module, ".weight",
      (struct tensor_entry){.dtype = DTYPE_F8_E4M3, .rank = 2, .shape = {n_out, n_in}, .data = codes});
  add(p, module, ".weight_scale_inv",
      (struct tensor_entry){.dtype = DTYPE_F32, .rank = 2, .shape = {rows, columns}, .data = (uint8_t *)scales});
}

static void add_nvfp4(struct pair *p, const char *module, int32_t n_out, int32_t n_in, float *values) {
  static const float e2m1[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  size_t n = (size_t)n_out * (size_t)n_in;
  uint8_t *codes = codes_of(p, module, n, 16), *packed = keep(p, n / 2), *scales = keep(p, n / 16);
  float *whole = keep(p, sizeof *whole);
  *whole = 1.0f / 700.0f;
  for (size_t i = 0; i < n / 16; i++) scales[i] = (uint8_t)(0x48 + draw(module, 3, i, 24));
  for (size_t i = 0; i < n; i++) {
    uint8_t s = scales[i / 16];
    float scale = ldexpf((float)(8 + (s & 7)), (s >> 3) - 10) * *whole, value = e2m1[codes[i] & 7];
    packed[i / 2] |= (uint8_t)(codes[i] << (4 * (i & 1)));
    values[i] = (codes[i] & 8 ? -value : value) * scale;
  }
  add(p, module, ".weight",
      (struct tensor_entry){.dtype = DTYPE_U8, .rank = 2, .shape = {n_out, n_in / 2}, .data = packed});
  add(p, module, ".weight_scale",
      (struct tensor_entry){.dtype = DTYPE_F8_E4M3, .rank = 2, .shape = {n_out, n_in / 16}, .data = scales});
  add(p, module, ".weight_scale_2", (struct tensor_entry){.dtype = DTYPE_F32, .rank = 0, .data = (uint8_t *)whole});
}

static void set_nibble(uint32_t *word, int place, uint32_t value) {
  *word |= value << (4 * place);
}

/* compressed-tensors: zero points packed along the outputs. */
static void add_int4(struct pair *p, const char *module, int32_t n_out, int32_t n_in, float *values) {
  int32_t n_groups = n_in / 16;
  uint8_t *codes = codes_of(p, module, (size_t)n_out * (size_t)n_in, 16);
  uint32_t *words = keep(p, (size_t)n_out * (size_t)n_in / 2),
           *zeros = keep(p, 4 * (size_t)((n_out + 7) / 8) * (size_t)n_groups);
  float *scales = keep(p, sizeof(float) * (size_t)n_out * (size_t)n_groups);
  int64_t *shape = keep(p, 2 * sizeof *shape);
  shape[0] = n_out, shape[1] = n_in;
  for (int32_t i = 0; i < n_out * n_groups; i++) {
    int32_t o = i / n_groups, g = i % n_groups;
    scales[i] = code_scale(module, (size_t)i);
    set_nibble(&zeros[o / 8 * n_groups + g], o % 8, 6 + draw(module, 4, (size_t)i, 5));
  }
  for (int32_t i = 0; i < n_out * n_in; i++) {
    int32_t o = i / n_in, k = i % n_in, g = k / 16;
    int zero = (int)(zeros[o / 8 * n_groups + g] >> (4 * (o % 8)) & 15);
    set_nibble(&words[i / 8], i % 8, codes[i]);
    values[i] = (float)(codes[i] - zero) * scales[o * n_groups + g];
  }
  add(p, module, ".weight_packed",
      (struct tensor_entry){.dtype = DTYPE_I32, .rank = 2, .shape = {n_out, n_in / 8}, .data = (uint8_t *)words});
  add(p, module, ".weight_scale",
      (struct tensor_entry){.dtype = DTYPE_F32, .rank = 2, .shape = {n_out, n_groups}, .data = (uint8_t *)scales});
  add(p, module, ".weight_shape",
      (struct tensor_entry){.dtype = DTYPE_I64, .rank = 1, .shape = {2}, .data = (uint8_t *)shape});
  add(p, module, ".weight_zero_point",
      (struct tensor_entry){
          .dtype = DTYPE_I32, .rank = 2, .shape = {(n_out + 7) / 8, n_groups}, .data = (uint8_t *)zeros});
}

/* AWQ and GPTQ v1: inputs are the rows; they differ in what a word holds. */
static void add_q(struct pair *p, const char *module, int32_t n_out, int32_t n_in, float *values, bool awq) {
  static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  int32_t n_groups = n_in / 16;
  uint8_t *codes = codes_of(p, module, (size_t)n_out * (size_t)n_in, 16);
  uint32_t *words = keep(p, (size_t)n_out * (size_t)n_in / 2), *zeros = keep(p, (size_t)n_out * (size_t)n_groups / 2);
  uint16_t *scales = keep(p, 2 * (size_t)n_out * (size_t)n_groups);
  int32_t *group = keep(p, sizeof *group * (size_t)n_in);
  for (int32_t k = 0; k < n_in; k++) group[k] = awq ? k / 16 : (k * 5 + 3) % n_groups;
  for (int32_t i = 0; i < n_out * n_groups; i++) {
    int32_t g = i / n_out, o = i % n_out;
    uint32_t zero = 6 + draw(module, 4, (size_t)i, 5);
    scales[i] = dtype_f32_to_f16(code_scale(module, (size_t)i));
    set_nibble(&zeros[(g * n_out + o) / 8], awq ? place[o % 8] : o % 8, awq ? zero : zero - 1);
  }
  for (int32_t o = 0; o < n_out; o++) {
    for (int32_t k = 0; k < n_in; k++) {
      int32_t at = group[k] * n_out + o;
      uint8_t code = codes[o * n_in + k];
      set_nibble(awq ? &words[(k * n_out + o) / 8] : &words[k / 8 * n_out + o], awq ? place[o % 8] : k % 8, code);
      int zero = 6 + (int)draw(module, 4, (size_t)at, 5);
      values[o * n_in + k] = (float)(code - zero) * dtype_f16_to_f32(scales[at]);
    }
  }
  add(p, module, ".qweight",
      (struct tensor_entry){.dtype = DTYPE_I32,
                            .rank = 2,
                            .shape = {awq ? n_in : n_in / 8, awq ? n_out / 8 : n_out},
                            .data = (uint8_t *)words});
  add(p, module, ".qzeros",
      (struct tensor_entry){.dtype = DTYPE_I32, .rank = 2, .shape = {n_groups, n_out / 8}, .data = (uint8_t *)zeros});
  add(p, module, ".scales",
      (struct tensor_entry){.dtype = DTYPE_F16, .rank = 2, .shape = {n_groups, n_out}, .data = (uint8_t *)scales});
  if (!awq)
    add(p, module, ".g_idx", (struct tensor_entry){.dtype = DTYPE_I32, .rank = 1, .shape = {n_in}, .data = (uint8_t *)group});
}

static json_t *config_of(enum kind kind) {
  switch (kind) {
  case FP8:
    return json_pack("{s:s, s:s, s:s, s:[i, i]}", "quant_method", "fp8", "fmt", "e4m3", "activation_scheme", "dynamic",
                     "weight_block_size", 32, 32);
  case INT4:
    return json_pack("{s:s, s:s, s:{s:{s:[s], s:{s:i, s:s, s:s, s:i, s:b}}}}", "quant_method", "compressed-tensors",
                     "format", "pack-quantized", "config_groups", "group_0", "targets", "Linear", "weights", "num_bits",
                     4, "type", "int", "strategy", "group", "group_size", 16, "symmetric", 0);
  case NVFP4:
    return json_pack("{s:s, s:s}", "quant_method", "modelopt", "quant_algo", "NVFP4");
  case AWQ:
    return json_pack("{s:s, s:i, s:i, s:b, s:s}", "quant_method", "awq", "bits", 4, "group_size", 16, "zero_point", 1,
                     "version", "gemm");
  default:
    return json_pack("{s:s, s:i, s:i, s:b, s:b}", "quant_method", "gptq", "bits", 4, "group_size", 16, "desc_act", 1,
                     "sym", 0);
  }
}

static void add_kind(struct pair *p, const char *module, const struct tensor_entry *t, enum kind kind) {
  char name[320];
  int32_t n_out = (int32_t)t->shape[0], n_in = (int32_t)t->shape[1];
  float *values = keep(p, sizeof(float) * (size_t)n_out * (size_t)n_in);
  if (kind == FP8) add_fp8(p, module, n_out, n_in, values);
  if (kind == INT4) add_int4(p, module, n_out, n_in, values);
  if (kind == NVFP4) add_nvfp4(p, module, n_out, n_in, values);
  if (kind == AWQ || kind == GPTQ) add_q(p, module, n_out, n_in, values, kind == AWQ);
  struct tensor_entry plain = *t;
  plain.dtype = DTYPE_F32;
  plain.data = (uint8_t *)values;
  snprintf(name, sizeof name, "%.280s.weight", module);
  variant_add(&p->twin, name, &plain);
}

/* gpt-oss: drawn blocks in the one, transposed F32 in the other. */
static void add_stack(struct pair *p, const struct tensor_entry *t) {
  static const float e2m1[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  int64_t n_experts = t->shape[0], n_in = t->shape[1], n_out = t->shape[2];
  size_t n = (size_t)(n_experts * n_in * n_out);
  uint8_t *codes = codes_of(p, t->name, n, 16), *blocks = keep(p, n / 2), *scales = keep(p, n / 32);
  float *values = keep(p, sizeof(float) * n);
  for (size_t i = 0; i < n / 32; i++) scales[i] = (uint8_t)(119 + draw(t->name, 3, i, 3));
  for (size_t i = 0; i < n; i++) {
    size_t k = i % (size_t)n_in, o = i / (size_t)n_in % (size_t)n_out, e = i / (size_t)(n_in * n_out);
    float value = ldexpf(e2m1[codes[i] & 7], scales[i / 32] - 127);
    blocks[i / 2] |= (uint8_t)(codes[i] << (4 * (i & 1)));
    values[(e * (size_t)n_in + k) * (size_t)n_out + o] = codes[i] & 8 ? -value : value;
  }
  add(p, t->name, "_blocks",
      (struct tensor_entry){.dtype = DTYPE_U8, .rank = 4, .shape = {n_experts, n_out, n_in / 32, 16}, .data = blocks});
  add(p, t->name, "_scales",
      (struct tensor_entry){.dtype = DTYPE_U8, .rank = 3, .shape = {n_experts, n_out, n_in / 32}, .data = scales});
  struct tensor_entry plain = *t;
  plain.dtype = DTYPE_F32;
  plain.data = (uint8_t *)values;
  variant_add(&p->twin, t->name, &plain);
}

/* Quantisers leave routers alone. */
static bool is_router(const char *module) {
  const char *last = strrchr(module, '.');
  return last && (strcmp(last, ".gate") == 0 || strcmp(last, ".router") == 0);
}

static void write_pair(struct pair *p, const char *source, const char *layers, enum kind kind) {
  *p = (struct pair){.blocks = NULL};
  variant_open(&p->quantized, source);
  variant_open(&p->twin, source);
  json_object_set_new(p->quantized.config, "quantization_config", config_of(kind));
  for (size_t i = 0; i < p->twin.source.n_tensors; i++) {
    const struct tensor_entry *t = p->twin.source.tensors[i];
    char module[320];
    size_t length = strlen(t->name), tail = strlen(".weight");
    bool ours = strncmp(t->name, layers, strlen(layers)) == 0;
    bool matrix = ours && t->rank == 2 && length > tail && strcmp(t->name + length - tail, ".weight") == 0;
    snprintf(module, sizeof module, "%.*s", (int)(length - (matrix ? tail : 0)), t->name);
    if (matrix && !is_router(module) && t->shape[1] % 32 == 0 && t->shape[0] % 8 == 0) {
      add_kind(p, module, t, kind);
    } else if (ours && kind == FP8 && t->rank == 3 && strstr(t->name, "experts.") && t->shape[1] % 32 == 0) {
      add_stack(p, t);
    } else {
      variant_add(&p->quantized, t->name, t);
      variant_add(&p->twin, t->name, t);
    }
  }
  variant_write(&p->quantized);
  variant_write(&p->twin);
}

static void close_pair(struct pair *p) {
  for (size_t i = 0; i < p->n_blocks; i++) free(p->blocks[i]);
  free(p->blocks);
  variant_close(&p->quantized);
  variant_close(&p->twin);
}

static void check_arch(const char *name, enum kind kind) {
  static const char *const kinds[KINDS] = {"fp8", "int4", "nvfp4", "awq", "gptq"};
  char path[64], layers[128];
  struct fixture f;
  struct eaglet_error err = {0};
  snprintf(path, sizeof path, "own/arch/%s", name);
  char *source = shared_path(path);
  if (!source) return;
  if (fixture_open(&f, source, 8, &err) != EAGLET_OK) fail_msg("%s: %s", name, err.message);
  snprintf(layers, sizeof layers, "%s", f.model->arch.chain.layers_prefix);
  fixture_close(&f);
  struct pair p;
  write_pair(&p, source, layers, kind);
  size_t bytes;
  float *expected = directory_logits(p.twin.directory, &bytes);
  if (fixture_open(&f, p.quantized.directory, 64, &err) != EAGLET_OK) fail_msg("%s: %s: %s", name, kinds[kind], err.message);
  float *found = fixture_logits(&f);
  bool along = kind == FP8 || kind == INT4 || kind == NVFP4;
  if (strcmp(name, "gpt_oss") == 0) along = false; /* the twin's stacks have inputs as rows */
  double error = max_rel(found, expected, bytes / sizeof *found);
  if (along ? memcmp(found, expected, bytes) != 0 : !(error < 1e-4))
    fail_msg("%s: %s: logits differ from the twin's by %.3g", name, kinds[kind], error);
  fixture_close(&f);
  free(expected);
  free(found);
  close_pair(&p);
  free(source);
}

static void test_float8(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) check_arch(archs[i], FP8);
}

static void test_others(void **state) {
  (void)state;
  static const char *const some[] = {"deepseek_v3", "phi3", "qwen3_moe", "gemma3", "llava", "glm4", "gpt_oss", "mixtral"};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    for (int kind = INT4; kind < KINDS; kind++) check_arch(some[i], (enum kind)kind);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_float8),
      cmocka_unit_test(test_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
