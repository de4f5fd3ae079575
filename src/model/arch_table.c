/* arch_table.c - the rows; see arch_table.h. A new architecture is a row here, plus a reference test. */
#include "model/arch_table.h"

#include <stdio.h>
#include <string.h>

static const struct moe_names names_mlp = {"mlp.gate", "mlp.gate.e_score_correction_bias", "mlp.experts.",
                                           "gate_proj", "up_proj", "down_proj", "mlp.shared_experts."};
static const struct moe_names names_block_sparse = {"block_sparse_moe.gate", NULL, "block_sparse_moe.experts.", "w1", "w3", "w2", NULL};

static const struct arch_row rows[] = {
    /* ---- latent attention ---- */
    {.model_types = "deepseek_v3|kimi_k2|kimi_k25_text", .architecture = "DeepseekV3ForCausalLM", .attention = ATTENTION_MLA,
     .bias = BIAS_FIELD_QKVO, .rope_style = ROPE_INTERLEAVED, .moe = MOE_FIRST_DENSE, .router = ROUTER_SIGMOID_BIAS, .names = &names_mlp,
     .normalise = true, .inner_norm_eps = 1e-6, .norm_eps = 1e-6, .theta = 1e4, .expert_scale = 1},
    {.model_types = "deepseek_v2", .architecture = "DeepseekV2ForCausalLM", .attention = ATTENTION_MLA, .bias = BIAS_FIELD_QKVO,
     .rope_style = ROPE_INTERLEAVED, .moe = MOE_FIRST_DENSE, .router = ROUTER_SOFTMAX_ALL, .names = &names_mlp, .inner_norm_eps = 1e-6,
     .norm_eps = 1e-6, .theta = 1e4, .expert_scale = 1},
    /* ---- dense, grouped queries ---- */
    {.model_types = "llama", .architecture = "LlamaForCausalLM", .bias = BIAS_FIELD_QKVO, .norm_eps = 1e-6, .theta = 1e4,
     .hidden = 4096, .n_layers = 32, .n_heads = 32, .intermediate = 11008, .positions = 2048},
    {.model_types = "mistral|ministral", .architecture = "MistralForCausalLM", .bias = BIAS_FIELD_QKVO, .window = WINDOW_FIELD,
     .norm_eps = 1e-6, .theta = 1e4, .hidden = 4096, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .intermediate = 14336,
     .window_default = 4096, .positions = 131072},
    {.model_types = "qwen2|qwen2_vl|qwen2_5_vl|qwen2_vl_text|qwen2_5_vl_text", .architecture = "Qwen2ForCausalLM", .bias = BIAS_QKV,
     .window = WINDOW_FLAGGED, .norm_eps = 1e-6, .theta = 1e4, .hidden = 4096, .n_layers = 32, .n_heads = 32, .n_kv_heads = 32,
     .intermediate = 22016, .positions = 32768},
    {.model_types = "qwen3|qwen3_vl_text", .architecture = "Qwen3ForCausalLM", .bias = BIAS_FIELD_QKVO, .qk_norm = QK_NORM_HEAD,
     .window = WINDOW_FLAGGED, .norm_eps = 1e-6, .theta = 1e4, .hidden = 4096, .n_layers = 32, .n_heads = 32, .n_kv_heads = 32,
     .intermediate = 22016, .positions = 32768},
    {.model_types = "seed_oss", .architecture = "SeedOssForCausalLM", .bias = BIAS_FIELD_QKV, .norm_eps = 1e-6, .theta = 1e4},
    {.model_types = "phi3", .architecture = "Phi3ForCausalLM", .bias = BIAS_FIELD_QKVO, .window = WINDOW_FIELD, .fused = true,
     .norm_eps = 1e-5, .theta = 1e4, .hidden = 3072, .n_layers = 32, .n_heads = 32, .intermediate = 8192, .positions = 4096},
    /* ---- mixtures of experts, grouped queries ---- */
    {.model_types = "qwen3_moe", .architecture = "Qwen3MoeForCausalLM", .bias = BIAS_FIELD_QKVO, .qk_norm = QK_NORM_HEAD,
     .window = WINDOW_FLAGGED, .moe = MOE_SPARSE_STEP, .router = ROUTER_SOFTMAX_ALL, .names = &names_mlp, .norm_eps = 1e-6, .theta = 1e4,
     .expert_scale = 1, .positions = 32768},
    {.model_types = "mixtral", .architecture = "MixtralForCausalLM", .bias = BIAS_FIELD_QKVO, .window = WINDOW_FIELD, .moe = MOE_ALL,
     .router = ROUTER_TOPK_SOFTMAX, .names = &names_block_sparse, .norm_eps = 1e-5, .theta = 1e6, .expert_scale = 1, .hidden = 4096,
     .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .intermediate = 14336, .positions = 131072},
    {.model_types = "glm4_moe|glm4v_moe_text", .architecture = "Glm4MoeForCausalLM", .bias = BIAS_FIELD_QKV, .qk_norm = QK_NORM_FIELD,
     .moe = MOE_FIRST_DENSE, .router = ROUTER_SIGMOID_BIAS, .names = &names_mlp, .normalise = true, .norm_eps = 1e-5, .theta = 1e4,
     .expert_scale = 1},
    /* ---- structure that is not written yet: look-alikes of the rows above that would run wrong ---- */
    {.model_types = "gemma|gemma2|gemma3|gemma3_text|gemma3n_text|gemma4_text", .refusal = "norms scaled by 1 + weight, norms after blocks, GELU"},
    {.model_types = "cohere|cohere2", .refusal = "LayerNorm and parallel blocks"},
    {.model_types = "olmo2|olmo3", .refusal = "norms after the blocks and norms over all heads"},
    {.model_types = "exaone4", .refusal = "norms after the blocks, layers without rope"},
    {.model_types = "glm|glm4|glm4v_text", .refusal = "interleaved partial rope with norms after the blocks"},
    {.model_types = "granite|granitemoe|granitemoeshared", .refusal = "embedding, residual and logit multipliers"},
    {.model_types = "gpt_oss", .refusal = "attention sinks and clamped experts"},
    {.model_types = "smollm3|llama4_text", .refusal = "layers without rope"},
    {.model_types = "hunyuan_v1_dense|hunyuan_v1_moe", .refusal = "query and key norms after rope"},
    {.model_types = "minimax_m2|minimax|olmoe", .refusal = "query and key norms over all heads"},
    {.model_types = "ernie4_5|ernie4_5_moe", .refusal = "interleaved rope and softmax routing with a selection bias"},
    {.model_types = "qwen2_moe", .refusal = "a gated shared expert"},
    {.model_types = "ministral3|mistral4", .refusal = "position-dependent query scaling"},
    {.model_types = "deepseek_v32|glm_moe_dsa", .refusal = "sparse attention with an indexer"},
    {.model_types = "nemotron|nemotron_h|starcoder2|stablelm|gpt_neox|falcon|phimoe|internlm2|bailing_moe|jamba|mamba|qwen3_next|"
                    "qwen3_5|qwen3_5_moe|kimi_linear|lfm2|gpt2|opt|bloom|mpt",
     .refusal = "a decoder layout of another kind"},
};

/* Is word one of the |-separated words of list? */
static bool list_has(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; at && *at;) {
    const char *end = strchr(at, '|');
    size_t n = end ? (size_t)(end - at) : strlen(at);
    if (n == length && memcmp(at, word, n) == 0) return true;
    at = end ? end + 1 : NULL;
  }
  return false;
}

const struct arch_row *arch_row_find(const char *type, const char *architecture) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (type && list_has(rows[i].model_types, type)) return &rows[i];
    if (!type && architecture && rows[i].architecture && strcmp(rows[i].architecture, architecture) == 0) return &rows[i];
  }
  return NULL;
}

static bool has_tensor(const struct checkpoint *checkpoint, const char *prefix, int layer, const char *suffix) {
  char name[512];
  snprintf(name, sizeof name, "%s%d.%s", prefix, layer, suffix);
  return checkpoint_peek(checkpoint, name) != NULL;
}

/* What the tensors alone say: only structure that decides the row; everything else is checked when binding. */
const struct arch_row *arch_row_fingerprint(const struct checkpoint *checkpoint, const char *layers_prefix, char *why, size_t length) {
  bool experts = false, block_sparse = false, bias = false;
  for (int layer = 0; layer < 64 && !experts; layer++) { /* the first layers may be dense */
    block_sparse = has_tensor(checkpoint, layers_prefix, layer, "block_sparse_moe.gate.weight");
    experts = block_sparse || has_tensor(checkpoint, layers_prefix, layer, "mlp.gate.weight");
    bias = has_tensor(checkpoint, layers_prefix, layer, "mlp.gate.e_score_correction_bias");
  }
  bool split = has_tensor(checkpoint, layers_prefix, 0, "self_attn.q_proj.weight") ||
               has_tensor(checkpoint, layers_prefix, 0, "self_attn.q_proj.weight_packed");
  bool q_bias = has_tensor(checkpoint, layers_prefix, 0, "self_attn.q_proj.bias");
  bool o_bias = has_tensor(checkpoint, layers_prefix, 0, "self_attn.o_proj.bias");
  const char *type = NULL;
  if (has_tensor(checkpoint, layers_prefix, 0, "self_attn.kv_a_proj_with_mqa.weight")) type = experts && !bias ? "deepseek_v2" : "deepseek_v3";
  else if (has_tensor(checkpoint, layers_prefix, 0, "self_attn.qkv_proj.weight")) type = "phi3";
  else if (!split) {
    snprintf(why, length, "layer 0 has neither self_attn.q_proj nor self_attn.kv_a_proj_with_mqa nor self_attn.qkv_proj");
    return NULL;
  } else if (block_sparse) type = "mixtral";
  else if (experts) type = bias ? "glm4_moe" : "qwen3_moe";
  else if (has_tensor(checkpoint, layers_prefix, 0, "self_attn.q_norm.weight")) type = "qwen3";
  else if (q_bias && !o_bias) type = "qwen2";
  else type = "llama";
  snprintf(why, length, "tensors look like %s; assumed as there: plain RMS norms, rope style, no multipliers", type);
  return arch_row_find(type, NULL);
}
