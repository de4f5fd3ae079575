/* arch_table.c - the rows; see arch_table.h. A new architecture is a row here, plus a reference test. */
#include "model/arch_table.h"

#include <stdio.h>
#include <string.h>

/* ---- tensor names ---- */

#define STANDARD_ATTENTION                                                                                         \
  .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj", .qkv = "self_attn.qkv_proj",          \
  .o = "self_attn.o_proj", .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"
#define STANDARD_FFN .gate = "mlp.gate_proj", .up = "mlp.up_proj", .gate_up = "mlp.gate_up_proj", .down = "mlp.down_proj"

static const struct layer_names layer_standard = {
    .attention_in = "input_layernorm", .ffn_in = "post_attention_layernorm", STANDARD_ATTENTION, STANDARD_FFN};
/* Norms before and after both parts. */
static const struct layer_names layer_sandwich = {.attention_in = "input_layernorm",
                                                  .attention_out = "post_attention_layernorm",
                                                  .ffn_in = "pre_feedforward_layernorm",
                                                  .ffn_out = "post_feedforward_layernorm",
                                                  STANDARD_ATTENTION,
                                                  STANDARD_FFN};
static const struct layer_names layer_glm4 = {.attention_in = "input_layernorm",
                                              .attention_out = "post_self_attn_layernorm",
                                              .ffn_in = "post_attention_layernorm",
                                              .ffn_out = "post_mlp_layernorm",
                                              STANDARD_ATTENTION,
                                              STANDARD_FFN};
/* Norms after both parts only. */
static const struct layer_names layer_after = {.attention_out = "post_attention_layernorm",
                                               .ffn_out = "post_feedforward_layernorm",
                                               STANDARD_ATTENTION,
                                               STANDARD_FFN};
/* One norm for both parts. */
static const struct layer_names layer_parallel = {.attention_in = "input_layernorm", STANDARD_ATTENTION, STANDARD_FFN};
static const struct layer_names layer_hunyuan = {.attention_in = "input_layernorm",
                                                 .ffn_in = "post_attention_layernorm",
                                                 .q = "self_attn.q_proj",
                                                 .k = "self_attn.k_proj",
                                                 .v = "self_attn.v_proj",
                                                 .o = "self_attn.o_proj",
                                                 .q_norm = "self_attn.query_layernorm",
                                                 .k_norm = "self_attn.key_layernorm",
                                                 STANDARD_FFN};
static const struct layer_names layer_feed_forward = {.attention_in = "input_layernorm",
                                                      .ffn_in = "post_attention_layernorm",
                                                      STANDARD_ATTENTION,
                                                      .gate = "feed_forward.gate_proj",
                                                      .up = "feed_forward.up_proj",
                                                      .down = "feed_forward.down_proj"};
/* Feed-forward layers without a gate. */
static const struct layer_names layer_ungated = {.attention_in = "input_layernorm",
                                                 .ffn_in = "post_attention_layernorm",
                                                 STANDARD_ATTENTION,
                                                 .up = "mlp.up_proj",
                                                 .down = "mlp.down_proj"};
static const struct layer_names layer_starcoder = {.attention_in = "input_layernorm",
                                                   .ffn_in = "post_attention_layernorm",
                                                   STANDARD_ATTENTION,
                                                   .up = "mlp.c_fc",
                                                   .down = "mlp.c_proj"};
static const struct layer_names layer_gpt2 = {.attention_in = "ln_1",
                                              .ffn_in = "ln_2",
                                              .qkv = "attn.c_attn",
                                              .o = "attn.c_proj",
                                              .up = "mlp.c_fc",
                                              .down = "mlp.c_proj"};

static const struct moe_names moe_mlp = {.router = "mlp.gate",
                                         .correction_bias = "mlp.gate.e_score_correction_bias",
                                         .expert = "mlp.experts.",
                                         .gate = "gate_proj",
                                         .up = "up_proj",
                                         .down = "down_proj",
                                         .shared = "mlp.shared_experts.",
                                         .stack_gate_up = "mlp.experts.gate_up_proj",
                                         .stack_down = "mlp.experts.down_proj",
                                         .stack_layout = GATE_UP_HALVES};
static const struct moe_names moe_ernie = {.router = "mlp.gate",
                                           .correction_bias = "mlp.moe_statics.e_score_correction_bias",
                                           .expert = "mlp.experts.",
                                           .gate = "gate_proj",
                                           .up = "up_proj",
                                           .down = "down_proj",
                                           .shared = "mlp.shared_experts.",
                                           .stack_gate_up = "mlp.experts.gate_up_proj",
                                           .stack_down = "mlp.experts.down_proj",
                                           .stack_layout = GATE_UP_HALVES};
static const struct moe_names moe_shared_expert = {.router = "mlp.gate",
                                                   .expert = "mlp.experts.",
                                                   .gate = "gate_proj",
                                                   .up = "up_proj",
                                                   .down = "down_proj",
                                                   .shared = "mlp.shared_expert.",
                                                   .shared_gate = "mlp.shared_expert_gate",
                                                   .stack_gate_up = "mlp.experts.gate_up_proj",
                                                   .stack_down = "mlp.experts.down_proj",
                                                   .stack_layout = GATE_UP_HALVES};
static const struct moe_names moe_stacked_transposed = {.router = "mlp.gate",
                                                        .expert = "mlp.experts.",
                                                        .gate = "gate_proj",
                                                        .up = "up_proj",
                                                        .down = "down_proj",
                                                        .stack_gate_up = "mlp.experts.gate_up_proj",
                                                        .stack_down = "mlp.experts.down_proj",
                                                        .stack_transposed = true,
                                                        .stack_layout = GATE_UP_HALVES};
static const struct moe_names moe_block_sparse = {
    .router = "block_sparse_moe.gate",
    .correction_bias = "block_sparse_moe.e_score_correction_bias|block_sparse_moe.gate.e_score_correction_bias",
    .expert = "block_sparse_moe.experts.",
    .gate = "w1",
    .up = "w3",
    .down = "w2"};
static const struct moe_names moe_granite = {.router = "block_sparse_moe.router.layer",
                                             .expert = "",
                                             .shared_joint = "shared_mlp.input_linear",
                                             .shared_down = "shared_mlp.output_linear",
                                             .stack_gate_up = "block_sparse_moe.input_linear",
                                             .stack_down = "block_sparse_moe.output_linear",
                                             .stack_layout = GATE_UP_HALVES};
static const struct moe_names moe_gpt_oss = {.router = "mlp.router",
                                             .expert = "mlp.experts.",
                                             .gate = "gate_proj",
                                             .up = "up_proj",
                                             .down = "down_proj",
                                             .stack_gate_up = "mlp.experts.gate_up_proj",
                                             .stack_down = "mlp.experts.down_proj",
                                             .stack_transposed = true,
                                             .stack_layout = GATE_UP_PAIRS};
static const struct moe_names moe_llama4 = {.router = "feed_forward.router",
                                            .expert = "feed_forward.experts.",
                                            .gate = "gate_proj",
                                            .up = "up_proj",
                                            .down = "down_proj",
                                            .shared = "feed_forward.shared_expert.",
                                            .stack_gate_up = "feed_forward.experts.gate_up_proj",
                                            .stack_down = "feed_forward.experts.down_proj",
                                            .stack_transposed = true,
                                            .stack_layout = GATE_UP_HALVES};

/* ---- the families ---- */

#define BIAS_ATTENTION {.qkv = "attention_bias", .o = "attention_bias", .ffn = "mlp_bias"}
#define DEEPSEEK_SIZES .norm_eps = 1e-6, .theta = 1e4

static const struct arch_row rows[] = {
    /* ---- latent attention ---- */
    {.model_types = "deepseek_v3|kimi_k2|kimi_k25_text|axk1", .architecture = "DeepseekV3ForCausalLM",
     .attention = ATTENTION_MLA, .layer = &layer_standard, .bias = BIAS_ATTENTION, .rope_style = ROPE_INTERLEAVED,
     .moe = MOE_FIRST_DENSE, .router = ROUTER_SIGMOID_BIAS, .names = {&moe_mlp}, .normalise = true, .inner_norm_eps = 1e-6,
     .expert_scale = 1, DEEPSEEK_SIZES},
    {.model_types = "deepseek_v2", .architecture = "DeepseekV2ForCausalLM", .attention = ATTENTION_MLA,
     .layer = &layer_standard, .bias = BIAS_ATTENTION, .rope_style = ROPE_INTERLEAVED, .moe = MOE_FIRST_DENSE,
     .router = ROUTER_SOFTMAX_ALL, .names = {&moe_mlp}, .inner_norm_eps = 1e-6, .expert_scale = 1, DEEPSEEK_SIZES},
    {.model_types = "glm4_moe_lite", .architecture = "Glm4MoeLiteForCausalLM", .attention = ATTENTION_MLA,
     .layer = &layer_standard, .bias = BIAS_ATTENTION, .rope_style = ROPE_INTERLEAVED, .moe = MOE_FIRST_DENSE,
     .router = ROUTER_SIGMOID_BIAS, .names = {&moe_mlp}, .normalise = true, .inner_norm_eps = 1e-6, .expert_scale = 1.8,
     .norm_eps = 1e-5, .theta = 1e4},
    {.model_types = "deepseek_v32", .architecture = "DeepseekV32ForCausalLM", .attention = ATTENTION_MLA,
     .layer = &layer_standard, .bias = BIAS_ATTENTION, .rope_style = ROPE_INTERLEAVED, .moe = MOE_FIRST_DENSE,
     .router = ROUTER_SIGMOID_BIAS, .names = {&moe_mlp}, .normalise = true, .inner_norm_eps = 1e-6, .expert_scale = 2.5,
     .index_topk = true, .index_rope = ROPE_HALF, DEEPSEEK_SIZES},
    {.model_types = "glm_moe_dsa", .architecture = "GlmMoeDsaForCausalLM", .attention = ATTENTION_MLA,
     .layer = &layer_standard, .bias = BIAS_ATTENTION, .rope_style = ROPE_INTERLEAVED, .moe = MOE_FIRST_DENSE,
     .router = ROUTER_SIGMOID_BIAS, .names = {&moe_mlp}, .normalise = true, .inner_norm_eps = 1e-6, .expert_scale = 2.5,
     .index_topk = true, .index_rope = ROPE_INTERLEAVED, .norm_eps = 1e-5, .theta = 1e4},
    /* ---- dense, grouped queries ---- */
    {.model_types = "llama", .architecture = "LlamaForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .norm_eps = 1e-6, .theta = 1e4, .hidden = 4096, .n_layers = 32, .n_heads = 32, .intermediate = 11008, .positions = 2048},
    {.model_types = "mllama_text_model", .architecture = "MllamaForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .norm_eps = 1e-5, .theta = 5e5, .hidden = 4096, .n_layers = 40, .n_heads = 32, .n_kv_heads = 8, .intermediate = 14336,
     .positions = 131072, .embed_extra = 8},
    {.model_types = "arcee", .architecture = "ArceeForCausalLM", .layer = &layer_ungated, .bias = BIAS_ATTENTION,
     .activation = ACTIVATION_RELU2, .norm_eps = 1e-5, .theta = 1e4},
    {.model_types = "helium", .architecture = "HeliumForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .rope_style = ROPE_INTERLEAVED, .norm_eps = 1e-8, .theta = 1e5, .head_dim = 128},
    {.model_types = "mistral", .architecture = "MistralForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .window = WINDOW_FIELD, .norm_eps = 1e-6, .theta = 1e4, .hidden = 4096, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8,
     .intermediate = 14336, .window_default = 4096, .positions = 131072},
    {.model_types = "ministral", .architecture = "MinistralForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .window = WINDOW_FIELD, .norm_eps = 1e-6, .theta = 1e4, .hidden = 4096, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8,
     .intermediate = 14336, .window_default = 4096, .positions = 131072},
    {.model_types = "ministral3", .architecture = "Ministral3ForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .window = WINDOW_FIELD, .scale_queries = true, .norm_eps = 1e-5, .theta = 1e4, .hidden = 4096, .n_layers = 34,
     .n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .intermediate = 14336, .positions = 262144},
    {.model_types = "qwen2|qwen2_vl|qwen2_5_vl|qwen2_vl_text|qwen2_5_vl_text|qwen2_5_omni_text", .architecture = "Qwen2ForCausalLM",
     .layer = &layer_standard, .bias = {.qkv = "+"}, .window = WINDOW_FLAGGED, .norm_eps = 1e-6, .theta = 1e4, .hidden = 4096,
     .n_layers = 32, .n_heads = 32, .n_kv_heads = 32, .intermediate = 22016, .window_layers = 28, .window_default = 4096,
     .positions = 32768},
    {.model_types = "qwen3", .architecture = "Qwen3ForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .qk_norm = QK_NORM_HEAD, .window = WINDOW_FLAGGED, .norm_eps = 1e-6, .theta = 1e4, .hidden = 4096, .n_layers = 32,
     .n_heads = 32, .n_kv_heads = 32, .head_dim = 128, .intermediate = 22016, .window_layers = 28, .window_default = 4096,
     .positions = 32768},
    {.model_types = "qwen3_vl_text|qwen3_vl", .architecture = "Qwen3VLTextModel", .layer = &layer_standard,
     .bias = BIAS_ATTENTION, .qk_norm = QK_NORM_HEAD, .norm_eps = 1e-6, .theta = 5e5, .hidden = 4096, .n_layers = 32,
     .n_heads = 32, .n_kv_heads = 32, .head_dim = 128, .intermediate = 22016, .positions = 128000},
    {.model_types = "seed_oss", .architecture = "SeedOssForCausalLM", .layer = &layer_standard,
     .bias = {.qkv = "attention_bias", .o = "attention_out_bias", .ffn = "mlp_bias"}, .norm_eps = 1e-6, .theta = 1e4,
     .head_dim = 128},
    {.model_types = "phi3|phi4mm", .architecture = "Phi3ForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .window = WINDOW_FIELD, .norm_eps = 1e-5, .theta = 1e4, .hidden = 3072, .n_layers = 32, .n_heads = 32,
     .intermediate = 8192, .positions = 4096},
    {.model_types = "gemma", .architecture = "GemmaForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .norm_plus_one = true, .activation = ACTIVATION_GELU_TANH, .embed_sqrt = true, .norm_eps = 1e-6, .theta = 1e4,
     .hidden = 3072, .n_layers = 28, .n_heads = 16, .n_kv_heads = 16, .head_dim = 256, .intermediate = 24576, .positions = 8192},
    {.model_types = "gemma2", .architecture = "Gemma2ForCausalLM", .layer = &layer_sandwich, .bias = BIAS_ATTENTION,
     .norm_plus_one = true, .window = WINDOW_PATTERN, .scale = SCALE_QUERY_PRE, .activation = ACTIVATION_GELU_TANH,
     .embed_sqrt = true, .softcaps = SOFTCAP_BOTH, .norm_eps = 1e-6, .theta = 1e4, .hidden = 2304, .n_layers = 26, .n_heads = 8,
     .n_kv_heads = 4, .head_dim = 256, .intermediate = 9216, .window_default = 4096, .window_pattern = 2, .positions = 8192},
    {.model_types = "gemma3|gemma3_text", .architecture = "Gemma3ForCausalLM", .layer = &layer_sandwich,
     .bias = BIAS_ATTENTION, .norm_plus_one = true, .qk_norm = QK_NORM_HEAD, .window = WINDOW_PATTERN,
     .local_rope = LOCAL_THETA, .scale = SCALE_QUERY_PRE, .activation = ACTIVATION_GELU_TANH, .embed_sqrt = true,
     .softcaps = SOFTCAP_FINAL, .norm_eps = 1e-6, .theta = 1e6, .hidden = 2304, .n_layers = 26, .n_heads = 8, .n_kv_heads = 4,
     .head_dim = 256, .intermediate = 9216, .window_default = 4096, .window_pattern = 6, .positions = 131072},
    {.model_types = "granite", .architecture = "GraniteForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .scale = SCALE_MULTIPLIER, .multipliers = true, .norm_eps = 1e-6, .theta = 1e4},
    {.model_types = "olmo2", .architecture = "Olmo2ForCausalLM", .layer = &layer_after, .bias = BIAS_ATTENTION,
     .qk_norm = QK_NORM_WIDTH, .norm_eps = 1e-5, .theta = 1e4},
    {.model_types = "olmo3", .architecture = "Olmo3ForCausalLM", .layer = &layer_after, .bias = BIAS_ATTENTION,
     .qk_norm = QK_NORM_WIDTH, .window = WINDOW_PATTERN, .local_rope = LOCAL_UNSCALED, .norm_eps = 1e-5, .theta = 5e5,
     .window_default = 4096, .window_pattern = 4},
    {.model_types = "exaone4", .architecture = "Exaone4ForCausalLM", .layer = &layer_after, .bias = {.qkv = NULL},
     .qk_norm = QK_NORM_HEAD, .window = WINDOW_PATTERN, .rope = ROPE_WINDOWED_IF_ANY, .norm_eps = 1e-5, .theta = 1e4,
     .window_default = 4096, .window_pattern = 4},
    {.model_types = "glm4|glm4v_text", .architecture = "Glm4ForCausalLM", .layer = &layer_glm4,
     .bias = {.qkv = "attention_bias"}, .rope_style = ROPE_INTERLEAVED, .partial_rotary = 0.5, .norm_eps = 1.5625e-7,
     .theta = 1e4, .head_dim = 128},
    {.model_types = "glm", .architecture = "GlmForCausalLM", .layer = &layer_standard, .bias = {.qkv = "attention_bias"},
     .rope_style = ROPE_INTERLEAVED, .partial_rotary = 0.5, .norm_eps = 1.5625e-7, .theta = 1e4, .head_dim = 128},
    {.model_types = "smollm3", .architecture = "SmolLM3ForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .window = WINDOW_UNROTATED, .rope = ROPE_LISTED, .norm_eps = 1e-6, .theta = 2e6},
    {.model_types = "hunyuan_v1_dense", .architecture = "HunYuanDenseV1ForCausalLM", .layer = &layer_hunyuan,
     .bias = BIAS_ATTENTION, .qk_norm = QK_NORM_HEAD, .qk_norm_flag = "use_qk_norm", .qk_norm_after_rope = true,
     .norm_eps = 1e-5, .theta = 1e4},
    {.model_types = "ernie4_5", .architecture = "Ernie4_5ForCausalLM", .layer = &layer_standard,
     .bias = {.qkv = "use_bias", .o = "use_bias", .ffn = "use_bias"}, .rope_style = ROPE_INTERLEAVED, .norm_eps = 1e-5,
     .theta = 5e5, .head_dim = 128},
    {.model_types = "cohere", .architecture = "CohereForCausalLM", .layer = &layer_parallel, .bias = BIAS_ATTENTION,
     .norm = NORM_LAYER, .norm_eps_field = "layer_norm_eps", .qk_norm = QK_NORM_HEADS, .qk_norm_flag = "use_qk_norm",
     .parallel = true, .rope_style = ROPE_INTERLEAVED, .logit_scale = true, .norm_eps = 1e-5, .theta = 1e4},
    {.model_types = "cohere2", .architecture = "Cohere2ForCausalLM", .layer = &layer_parallel, .bias = BIAS_ATTENTION,
     .norm = NORM_LAYER, .norm_eps_field = "layer_norm_eps", .parallel = true, .window = WINDOW_PATTERN, .rope = ROPE_WINDOWED,
     .rope_style = ROPE_INTERLEAVED, .logit_scale = true, .norm_eps = 1e-5, .theta = 1e4, .window_default = 4096,
     .window_pattern = 4},
    {.model_types = "starcoder2", .architecture = "Starcoder2ForCausalLM", .layer = &layer_starcoder,
     .bias = {.qkv = "use_bias", .o = "use_bias", .ffn = "use_bias"}, .norm = NORM_LAYER, .norm_bias = true,
     .norm_eps_field = "norm_epsilon", .window = WINDOW_FIELD, .activation = ACTIVATION_GELU_TANH, .norm_eps = 1e-5,
     .theta = 1e4},
    {.model_types = "nemotron", .architecture = "NemotronForCausalLM", .layer = &layer_ungated, .bias = BIAS_ATTENTION,
     .norm = NORM_LAYER, .norm_plus_one = true, .norm_bias = true, .norm_eps_field = "norm_eps", .partial_rotary = 0.5,
     .activation = ACTIVATION_RELU2, .norm_eps = 1e-5, .theta = 1e4},
    {.model_types = "gpt2", .architecture = "GPT2LMHeadModel", .layer = &layer_gpt2, .final_norm = "ln_f",
     .bias = {.qkv = "+", .o = "+", .ffn = "+"}, .norm = NORM_LAYER, .norm_bias = true, .norm_eps_field = "layer_norm_epsilon",
     .transposed = true, .rope = ROPE_LEARNED, .activation = ACTIVATION_GELU_TANH, .norm_eps = 1e-5},
    /* ---- mixtures of experts, grouped queries ---- */
    {.model_types = "qwen2_moe", .architecture = "Qwen2MoeForCausalLM", .layer = &layer_standard, .bias = {.qkv = "qkv_bias"},
     .window = WINDOW_FLAGGED, .moe = MOE_SPARSE_STEP, .router = ROUTER_SOFTMAX_ALL, .names = {&moe_shared_expert},
     .norm_eps = 1e-6, .theta = 1e4, .expert_scale = 1, .window_layers = 28, .window_default = 4096, .positions = 32768},
    {.model_types = "qwen3_moe|qwen3_omni_moe_text", .architecture = "Qwen3MoeForCausalLM", .layer = &layer_standard,
     .bias = BIAS_ATTENTION, .qk_norm = QK_NORM_HEAD, .window = WINDOW_FLAGGED, .moe = MOE_SPARSE_STEP,
     .router = ROUTER_SOFTMAX_ALL, .names = {&moe_mlp}, .norm_eps = 1e-6, .theta = 1e4, .expert_scale = 1,
     .window_default = 4096, .positions = 32768},
    {.model_types = "qwen3_vl_moe_text|qwen3_vl_moe", .architecture = "Qwen3VLMoeTextModel", .layer = &layer_standard,
     .bias = BIAS_ATTENTION, .qk_norm = QK_NORM_HEAD, .moe = MOE_SPARSE_STEP, .router = ROUTER_SOFTMAX_ALL,
     .names = {&moe_stacked_transposed}, .normalise = true, .norm_eps = 1e-6, .theta = 5e5, .expert_scale = 1,
     .positions = 128000},
    {.model_types = "olmoe", .architecture = "OlmoeForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .qk_norm = QK_NORM_WIDTH, .moe = MOE_ALL, .router = ROUTER_SOFTMAX_ALL, .names = {&moe_mlp},
     .expert_is_intermediate = true, .norm_eps = 1e-5, .theta = 1e4, .expert_scale = 1},
    {.model_types = "mixtral", .architecture = "MixtralForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .window = WINDOW_FIELD, .moe = MOE_ALL, .router = ROUTER_TOPK_SOFTMAX, .names = {&moe_block_sparse, &moe_mlp},
     .expert_is_intermediate = true, .norm_eps = 1e-5, .theta = 1e6, .expert_scale = 1, .hidden = 4096, .n_layers = 32,
     .n_heads = 32, .n_kv_heads = 8, .intermediate = 14336, .positions = 131072},
    {.model_types = "glm4_moe|glm4v_moe_text|glm4v_moe", .architecture = "Glm4MoeForCausalLM", .layer = &layer_standard,
     .bias = {.qkv = "attention_bias"}, .qk_norm = QK_NORM_HEAD, .qk_norm_flag = "use_qk_norm", .partial_rotary = 0.5,
     .moe = MOE_FIRST_DENSE, .router = ROUTER_SIGMOID_BIAS, .names = {&moe_mlp}, .normalise = true, .norm_eps = 1e-5,
     .theta = 1e4, .expert_scale = 1},
    {.model_types = "dots1", .architecture = "Dots1ForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .qk_norm = QK_NORM_HEAD, .window = WINDOW_AFTER, .moe = MOE_FIRST_DENSE, .router = ROUTER_SIGMOID_BIAS,
     .names = {&moe_mlp}, .norm_eps = 1e-6, .theta = 1e4, .expert_scale = 1, .window_default = 4096, .window_layers = 62},
    {.model_types = "minimax_m2", .architecture = "MiniMaxM2ForCausalLM", .layer = &layer_standard, .bias = {.qkv = NULL},
     .qk_norm = QK_NORM_WIDTH, .qk_norm_flag = "use_qk_norm", .moe = MOE_ALL, .router = ROUTER_SIGMOID_BIAS,
     .names = {&moe_block_sparse, &moe_mlp}, .normalise = true, .expert_is_intermediate = true, .norm_eps = 1e-6, .theta = 5e6,
     .expert_scale = 1, .head_dim = 128},
    {.model_types = "ernie4_5_moe|ernie4_5_moe_vl_text", .architecture = "Ernie4_5_MoeForCausalLM", .layer = &layer_standard,
     .bias = {.qkv = "use_bias", .o = "use_bias", .ffn = "use_bias"}, .rope_style = ROPE_INTERLEAVED, .moe = MOE_RANGE,
     .router = ROUTER_SOFTMAX_ALL, .names = {&moe_ernie}, .normalise = true, .norm_eps = 1e-5, .theta = 5e5, .expert_scale = 1},
    {.model_types = "granitemoe|granitemoeshared", .architecture = "GraniteMoeForCausalLM", .layer = &layer_standard, .bias = BIAS_ATTENTION,
     .scale = SCALE_MULTIPLIER, .multipliers = true, .moe = MOE_ALL, .router = ROUTER_TOPK_SOFTMAX, .names = {&moe_granite},
     .expert_is_intermediate = true, .norm_eps = 1e-6, .theta = 1e4, .expert_scale = 1},
    {.model_types = "gpt_oss", .architecture = "GptOssForCausalLM", .layer = &layer_standard,
     .bias = {.qkv = "attention_bias", .o = "attention_bias"}, .sinks = true, .window = WINDOW_PATTERN,
     .activation = ACTIVATION_SWIGLU_CLAMPED, .moe = MOE_ALL, .router = ROUTER_TOPK_SOFTMAX, .names = {&moe_gpt_oss},
     .expert_is_intermediate = true, .norm_eps = 1e-5, .theta = 150000, .expert_scale = 1, .head_dim = 64,
     .window_default = 128, .window_pattern = 2},
    {.model_types = "llama4_text|llama4", .architecture = "Llama4ForCausalLM", .layer = &layer_feed_forward,
     .bias = BIAS_ATTENTION, .qk_norm = QK_NORM_UNIT, .qk_norm_flag = "use_qk_norm", .qk_norm_after_rope = true,
     .window = WINDOW_CHUNKED, .rope = ROPE_LISTED, .rope_style = ROPE_INTERLEAVED, .scale_queries = true,
     .moe = MOE_INTERLEAVED, .router = ROUTER_SIGMOID_TOPK, .names = {&moe_llama4}, .expert_is_intermediate = true,
     .norm_eps = 1e-5, .theta = 5e5, .expert_scale = 1, .head_dim = 128},
    /* ---- another kind of decoder: recognised, so that it is refused by what it is ---- */
    {.model_types = "qwen3_next|qwen3_5|qwen3_5_text|qwen3_5_moe|qwen3_5_moe_text|kimi_linear|minimax|minimax_m1|lfm2|lfm2_moe|"
                    "olmo_hybrid",
     .refusal = "linear-attention layers between the attention layers keep a state that this engine does not have"},
    {.model_types = "jamba|bamba|mamba|mamba2|falcon_h1|falcon_mamba|nemotron_h|zamba|zamba2|granitemoehybrid|recurrent_gemma|rwkv",
     .refusal = "state-space layers keep a state that this engine does not have"},
    {.model_types = "gemma3n_text|gemma4|gemma4_text", .refusal = "per-layer embeddings and shared key-value layers"},
    {.model_types = "deepseek_v4", .refusal = "compressed sparse attention"},
    {.model_types = "mistral4", .refusal = "latent attention with position-dependent query scaling"},
    {.model_types = "phimoe|afmoe|longcat_flash|mimo_v2_flash|hunyuan_v1_moe|step3p5|step3p7",
     .refusal = "a mixture of experts of a kind that no row describes"},
    {.model_types = "stablelm|gpt_neox|gpt_neo|gptj|gpt_bigcode|falcon|internlm2|bailing_moe|bailing_moe_v2|baichuan|chatglm|opt|bloom|"
                    "mpt|persimmon|phi|codegen|apertus|bitnet|diffllama|minicpm|minicpm3|xverse|qwen",
     .refusal = "a decoder layout that no row describes"},
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

/* Does some of the first layers (which may be dense) hold this tensor? */
static bool some_layer_has(const struct checkpoint *checkpoint, const char *prefix, const char *suffix) {
  for (int layer = 0; layer < 64; layer++) {
    if (has_tensor(checkpoint, prefix, layer, suffix)) return true;
  }
  return false;
}

static bool first_has(const struct checkpoint *checkpoint, const char *prefix, const char *module) {
  static const char *const spellings[] = {".weight", ".weight_packed", ".qweight"};
  char name[160];
  for (int i = 0; i < 3; i++) {
    snprintf(name, sizeof name, "%s%s", module, spellings[i]);
    if (has_tensor(checkpoint, prefix, 0, name)) return true;
  }
  return false;
}

/* What the tensors alone say: only structure that decides the row; everything else is checked when binding. */
const struct arch_row *arch_row_fingerprint(const struct checkpoint *checkpoint, const char *layers_prefix, char *why, size_t length) {
  bool block_sparse = some_layer_has(checkpoint, layers_prefix, "block_sparse_moe.gate.weight");
  bool experts = block_sparse || some_layer_has(checkpoint, layers_prefix, "mlp.gate.weight");
  bool bias = some_layer_has(checkpoint, layers_prefix, "mlp.gate.e_score_correction_bias");
  bool q_bias = has_tensor(checkpoint, layers_prefix, 0, "self_attn.q_proj.bias");
  bool o_bias = has_tensor(checkpoint, layers_prefix, 0, "self_attn.o_proj.bias");
  bool norm_in = has_tensor(checkpoint, layers_prefix, 0, "input_layernorm.weight");
  bool norm_after = has_tensor(checkpoint, layers_prefix, 0, "post_attention_layernorm.weight");
  const char *type = NULL;
  if (some_layer_has(checkpoint, layers_prefix, "linear_attn.A_log") || some_layer_has(checkpoint, layers_prefix, "mamba.A_log") ||
      some_layer_has(checkpoint, layers_prefix, "mixer.A_log")) {
    snprintf(why, length, "its tensors show linear-attention or state-space layers, which are not supported");
    return NULL;
  }
  if (!norm_in || !norm_after || has_tensor(checkpoint, layers_prefix, 0, "pre_feedforward_layernorm.weight")) {
    snprintf(why, length, "its norms (input_layernorm, post_attention_layernorm) are not those of a plain decoder");
    return NULL;
  }
  if (first_has(checkpoint, layers_prefix, "self_attn.kv_a_proj_with_mqa")) type = experts && !bias ? "deepseek_v2" : "deepseek_v3";
  else if (first_has(checkpoint, layers_prefix, "self_attn.qkv_proj")) type = "phi3";
  else if (!first_has(checkpoint, layers_prefix, "self_attn.q_proj")) {
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

const struct moe_names *arch_moe_names(const struct arch *arch, const struct checkpoint *checkpoint) {
  char name[160];
  for (int i = 0; i < 2; i++) {
    const struct moe_names *names = arch->row->names[i];
    if (!names) return NULL;
    snprintf(name, sizeof name, "%s.weight", names->router);
    for (int32_t layer = 0; layer < arch->features.n_layers; layer++) {
      if (has_tensor(checkpoint, arch->chain.layers_prefix, layer, name)) return names;
    }
  }
  return NULL;
}
