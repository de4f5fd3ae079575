"""Tiny random checkpoints with other flags, widths and families than the shared fixtures, each with a float32 reference.

Runs where torch + transformers are installed; the results are kept in tests/data/arch. For each variant writes
OUT/<name>/{config.json,model.safetensors,reference.safetensors}: input_ids [2, T], layer.{i}, norm, logits, as computed in
float32 on the stored bfloat16 weights (eager attention, no cache). Buffers that are not saved are never randomised.

usage: make_arch_variants.py OUT [name,name]
"""
import os, sys, traceback
import torch
import transformers
from safetensors.torch import save_file

OUT = sys.argv[1]
ONLY = set(sys.argv[2].split(",")) if len(sys.argv) > 2 else None
T = 40
COMMON = dict(vocab_size=96, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
              intermediate_size=48, max_position_embeddings=256, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1,
              pad_token_id=None)


def cfg(cls, **kw):
    return getattr(transformers, cls)(**{**COMMON, **kw})


YARN = dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=0.8,
            original_max_position_embeddings=32, rope_theta=20000.0)
MLA = dict(q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, num_key_value_heads=4)
DSMOE = dict(n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=16, first_k_dense_replace=1,
             norm_topk_prob=True, routed_scaling_factor=1.7)
VIS = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, depth=1, num_heads=2, patch_size=14,
           image_size=28, out_hidden_size=32)


def wrap(cls, text, vision, **kw):
    return getattr(transformers, cls)(text_config=text, vision_config=vision, **kw)


def text(model_type, **kw):
    return {**COMMON, "model_type": model_type, **kw}


LONG = dict(rope_type="longrope", short_factor=[1.0, 1.1, 1.3, 1.9], long_factor=[1.5, 2.5, 4.0, 8.0], rope_theta=10000.0)
RD = dict(rope_type="default", rope_theta=10000.0)
SIG = dict(VIS, model_type="siglip_vision_model")
VARIANTS = {
    "gemma": lambda: cfg("GemmaConfig", head_dim=12, tie_word_embeddings=True),
    "gemma2": lambda: cfg("Gemma2Config", head_dim=12, hidden_size=40, query_pre_attn_scalar=20, sliding_window=7, attn_logit_softcapping=5.0,
                          final_logit_softcapping=3.0, tie_word_embeddings=True),
    "gemma2_uncapped": lambda: cfg("Gemma2Config", head_dim=8, query_pre_attn_scalar=8, sliding_window=9, attn_logit_softcapping=None,
                                   final_logit_softcapping=None, tie_word_embeddings=True, attention_bias=True),
    "gemma3_text": lambda: cfg("Gemma3TextConfig", head_dim=8, num_hidden_layers=4, query_pre_attn_scalar=24, sliding_window=6, tie_word_embeddings=True,
                               sliding_window_pattern=3, rope_parameters={"full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                                                                          "sliding_attention": dict(rope_type="default", rope_theta=3000.0)}),
    "gemma3": lambda: wrap("Gemma3Config", text("gemma3_text", head_dim=8, query_pre_attn_scalar=8, sliding_window=6, tie_word_embeddings=True),
                           dict(VIS, model_type="siglip_vision_model")),
    "llama_biased": lambda: cfg("LlamaConfig", attention_bias=True, mlp_bias=True, head_dim=20, tie_word_embeddings=True),
    "llama_longer": lambda: cfg("LlamaConfig", rope_parameters=dict(rope_type="dynamic", factor=4.0, rope_theta=10000.0), max_position_embeddings=20),
    "arcee": lambda: cfg("ArceeConfig", mlp_bias=True),
    "helium": lambda: cfg("HeliumConfig", head_dim=8),
    "mistral_window": lambda: cfg("MistralConfig", sliding_window=5),
    "ministral3": lambda: cfg("Ministral3Config", head_dim=8, rope_parameters=dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0,
                              original_max_position_embeddings=8, rope_theta=1e6, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
    "qwen2_window": lambda: cfg("Qwen2Config", use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "qwen2_vl": lambda: wrap("Qwen2VLConfig", text("qwen2_vl_text", rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[1, 1, 2])),
                             dict(depth=1, embed_dim=32, hidden_size=32, num_heads=2, patch_size=14)),
    "qwen3_biased": lambda: cfg("Qwen3Config", head_dim=12, attention_bias=True, use_sliding_window=True, sliding_window=8, max_window_layers=2),
    "qwen2_moe": lambda: cfg("Qwen2MoeConfig", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24,
                             decoder_sparse_step=2),
    "qwen3_moe": lambda: cfg("Qwen3MoeConfig", head_dim=8, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=16, norm_topk_prob=False,
                             attention_bias=True),
    "qwen3_vl_moe": lambda: wrap("Qwen3VLMoeConfig", text("qwen3_vl_moe_text", head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                 rope_parameters=dict(rope_type="default", rope_theta=5e6, mrope_section=[2, 1, 1], mrope_interleaved=True)),
                                 dict(VIS, deepstack_visual_indexes=[0])),
    "deepseek_v2": lambda: cfg("DeepseekV2Config", **{**MLA, **DSMOE, "topk_method": "greedy", "n_group": 1, "topk_group": 1, "norm_topk_prob": False,
                               "attention_bias": True}),
    "deepseek_v3": lambda: cfg("DeepseekV3Config", **{**MLA, **DSMOE, "n_group": 3, "topk_group": 2, "attention_bias": True}, rope_parameters=YARN,
                               rope_interleave=False),
    "deepseek_v3_direct": lambda: cfg("DeepseekV3Config", **{**MLA, **DSMOE, "q_lora_rank": None, "n_group": 1, "topk_group": 1, "norm_topk_prob": False}),
    "deepseek_v32": lambda: cfg("DeepseekV32Config", **{**MLA, **DSMOE, "n_group": 1, "topk_group": 1}, index_n_heads=2, index_head_dim=16, index_topk=48),
    "glm_moe_dsa": lambda: cfg("GlmMoeDsaConfig", **{**MLA, **DSMOE, "n_group": 1, "topk_group": 1}, index_n_heads=2, index_head_dim=16, index_topk=48),
    # enough heads that no two keys score exactly 0: whom topk picks among equals is nobody's business
    "deepseek_v32_sparse": lambda: cfg("DeepseekV32Config", **{**MLA, **DSMOE, "n_group": 1, "topk_group": 1}, index_n_heads=24, index_head_dim=12,
                                       index_topk=10),
    "glm_moe_dsa_sparse": lambda: cfg("GlmMoeDsaConfig", **{**MLA, **DSMOE, "n_group": 1, "topk_group": 1}, index_n_heads=24, index_head_dim=16,
                                      index_topk=13),
    "glm4_moe_lite": lambda: cfg("Glm4MoeLiteConfig", **{**MLA, **DSMOE, "n_group": 1, "topk_group": 1}),
    "kimi_k25": lambda: wrap("Kimi_K25Config", text("deepseek_v3", **{**MLA, **DSMOE, "n_group": 1, "topk_group": 1}, rope_parameters=YARN), VIS),
    "gpt_oss": lambda: cfg("GptOssConfig", head_dim=8, num_local_experts=5, num_experts_per_tok=3, sliding_window=7, attention_bias=True, intermediate_size=32,
                           rope_parameters=dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                                original_max_position_embeddings=32, rope_theta=1000.0)),
    "glm4": lambda: cfg("Glm4Config", head_dim=12, attention_bias=False, partial_rotary_factor=0.5),
    "glm": lambda: cfg("GlmConfig", head_dim=12, attention_bias=True),
    "glm4_moe": lambda: cfg("Glm4MoeConfig", head_dim=8, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=16,
                            first_k_dense_replace=2, n_group=2, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5, use_qk_norm=False,
                            attention_bias=False, partial_rotary_factor=1.0),
    "phi3_partial": lambda: cfg("Phi3Config", num_attention_heads=2, num_key_value_heads=1, partial_rotary_factor=0.75, sliding_window=9, tie_word_embeddings=True),
    "phi3_long": lambda: cfg("Phi3Config", rope_parameters=dict(LONG), original_max_position_embeddings=32, max_position_embeddings=256),
    "phi3_short": lambda: cfg("Phi3Config", rope_parameters=dict(LONG), original_max_position_embeddings=64, max_position_embeddings=256),
    "olmo2": lambda: cfg("Olmo2Config", attention_bias=True),
    "olmo3": lambda: cfg("Olmo3Config", num_hidden_layers=4, sliding_window=6),
    "olmoe": lambda: cfg("OlmoeConfig", num_experts=4, num_experts_per_tok=2, num_key_value_heads=4),
    "granite": lambda: cfg("GraniteConfig", embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4, logits_scaling=2.0,
                           attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "granitemoe": lambda: cfg("GraniteMoeConfig", embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4, logits_scaling=2.0,
                              num_local_experts=4, num_experts_per_tok=2),
    "granitemoeshared": lambda: cfg("GraniteMoeSharedConfig", embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
                                    logits_scaling=2.0, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=24),
    "minimax_m2": lambda: cfg("MiniMaxM2Config", head_dim=16, num_local_experts=4, num_experts_per_tok=2,
                              rope_parameters=dict(rope_type="default", rope_theta=5e6, partial_rotary_factor=0.5)),
    "ernie4_5_moe": lambda: cfg("Ernie4_5_MoeConfig", moe_num_experts=6, moe_k=3, moe_intermediate_size=16, moe_num_shared_experts=2,
                                moe_layer_start_index=1, moe_layer_end_index=1, use_bias=True, tie_word_embeddings=True),
    "ernie4_5": lambda: cfg("Ernie4_5Config", head_dim=8, use_bias=True),
    "hunyuan_dense": lambda: cfg("HunYuanDenseV1Config", head_dim=8, attention_bias=True,
                                 rope_parameters=dict(rope_type="dynamic", alpha=50.0, factor=1.0, rope_theta=10000.0)),
    "exaone4": lambda: cfg("Exaone4Config", num_hidden_layers=4, sliding_window=7, sliding_window_pattern=2),
    "smollm3": lambda: cfg("SmolLM3Config", no_rope_layer_interval=2, use_sliding_window=True, sliding_window=6),
    "seed_oss": lambda: cfg("SeedOssConfig", head_dim=8, attention_bias=False, attention_out_bias=True),
    "cohere": lambda: cfg("CohereConfig", use_qk_norm=True, tie_word_embeddings=True, logit_scale=0.3),
    "cohere_biased": lambda: cfg("CohereConfig", attention_bias=True, tie_word_embeddings=True),
    "cohere2": lambda: cfg("Cohere2Config", num_hidden_layers=4, sliding_window=6, layer_types=["sliding_attention", "full_attention"] * 2, tie_word_embeddings=True),
    "starcoder2": lambda: cfg("Starcoder2Config", sliding_window=8, tie_word_embeddings=True),
    "starcoder2_plain": lambda: cfg("Starcoder2Config", use_bias=False),
    "nemotron": lambda: cfg("NemotronConfig", mlp_bias=True, attention_bias=True, head_dim=16),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=96, n_embd=32, n_layer=3, n_head=4, n_positions=64, n_inner=40, bos_token_id=0, eos_token_id=1),
    "dots1": lambda: cfg("Dots1Config", n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16, n_group=3, topk_group=2,
                         norm_topk_prob=True, head_dim=8, first_k_dense_replace=1, max_window_layers=1, sliding_window=6),
    "llama4_text": lambda: cfg("Llama4TextConfig", head_dim=8, num_hidden_layers=4, num_local_experts=3, intermediate_size=24, intermediate_size_mlp=48,
                               attention_chunk_size=16, interleave_moe_layer_step=2, floor_scale=8),
    "llama4_plain": lambda: cfg("Llama4TextConfig", head_dim=8, num_local_experts=3, num_experts_per_tok=2, intermediate_size=24, intermediate_size_mlp=48,
                                use_qk_norm=False, attn_temperature_tuning=False, no_rope_layers=[1, 0, 1]),
    "mistral3": lambda: wrap("Mistral3Config", text("ministral3", head_dim=8, rope_parameters=dict(rope_type="yarn", factor=4.0, rope_theta=1e5,
                             original_max_position_embeddings=16, llama_4_scaling_beta=0.2, mscale=1.0, mscale_all_dim=1.0)),
                             dict(VIS, model_type="pixtral", head_dim=16)),
    "llava_qwen2": lambda: wrap("LlavaConfig", text("qwen2"), dict(VIS, model_type="clip_vision_model", projection_dim=32)),
    "mixtral_window": lambda: cfg("MixtralConfig", num_local_experts=4, num_experts_per_tok=3, sliding_window=6),
    "internvl": lambda: wrap("InternVLConfig", text("qwen2"), dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, patch_size=[14, 14],
                             image_size=[28, 28])),
    "llama_yarn_factor": lambda: cfg("LlamaConfig", rope_parameters=dict(rope_type="yarn", factor=4.0, attention_factor=1.3, beta_fast=16, beta_slow=2,
                                     truncate=False, original_max_position_embeddings=32, rope_theta=10000.0)),
    "qwen2_5_vl": lambda: wrap("Qwen2_5_VLConfig", text("qwen2_5_vl_text", rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[1, 1, 2])), dict(depth=1, hidden_size=32, num_heads=2, patch_size=14, out_hidden_size=32, intermediate_size=32, fullatt_block_indexes=[0])),
    "glm4v": lambda: wrap("Glm4vConfig", text("glm4v_text", rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[1, 1, 0])), dict(depth=1, hidden_size=32, num_heads=2, patch_size=14, out_hidden_size=32, intermediate_size=32, image_size=28)),
    "glm4v_moe": lambda: wrap("Glm4vMoeConfig", text("glm4v_moe_text", head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16, first_k_dense_replace=1, n_group=1, topk_group=1, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[1, 1, 0])), dict(depth=1, hidden_size=32, num_heads=2, patch_size=14, out_hidden_size=32, intermediate_size=32, image_size=28)),
    "idefics3": lambda: wrap("Idefics3Config", text("llama", rope_parameters=RD), dict(VIS, model_type="idefics3_vision")),
    "mllama": lambda: wrap("MllamaConfig", text("mllama_text_model", num_hidden_layers=4, cross_attention_layers=[1], rope_parameters=RD, pad_token_id=2), dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_global_layers=1, attention_heads=2, vision_output_dim=64, image_size=28, patch_size=14, intermediate_layers_indices=[0], supported_aspect_ratios=[[1, 1]], max_num_tiles=1)),
    "llava_next": lambda: wrap("LlavaNextConfig", text("mistral", sliding_window=9), dict(VIS, model_type="clip_vision_model", projection_dim=32)),
    "qwen2_5_omni": lambda: transformers.Qwen2_5OmniThinkerConfig(text_config=text("qwen2_5_omni_text", rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[1, 1, 2])), vision_config=dict(depth=1, hidden_size=32, num_heads=2, out_hidden_size=32, intermediate_size=32), audio_config=dict(d_model=32, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=32, output_dim=32)),
    "ovis2": lambda: wrap("Ovis2Config", text("qwen2"), dict(VIS, vocab_size=40, hidden_stride=2, num_visual_indicator_tokens=5)),
    "shieldgemma2": lambda: wrap("ShieldGemma2Config", text("gemma3_text", head_dim=8, query_pre_attn_scalar=8, sliding_window=6, tie_word_embeddings=True), SIG),
    "qwen3_moe_step": lambda: cfg("Qwen3MoeConfig", num_hidden_layers=5, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True, decoder_sparse_step=2, mlp_only_layers=[3], tie_word_embeddings=True),
    "qwen2_moe_window": lambda: cfg("Qwen2MoeConfig", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16, use_sliding_window=True, sliding_window=5, max_window_layers=2),
    "ernie_interval": lambda: cfg("Ernie4_5_MoeConfig", num_hidden_layers=5, moe_num_experts=4, moe_k=2, moe_intermediate_size=16, moe_num_shared_experts=0, moe_layer_start_index=0, moe_layer_interval=2),
    "gpt_oss_plain": lambda: cfg("GptOssConfig", head_dim=16, num_local_experts=4, num_experts_per_tok=1, sliding_window=5, attention_bias=False, tie_word_embeddings=True, layer_types=["full_attention", "sliding_attention", "full_attention"]),
    "deepseek_v3_linear": lambda: cfg("DeepseekV3Config", **{**MLA, **DSMOE, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 3}, rope_parameters=dict(rope_type="linear", factor=3.0, rope_theta=1e4)),
    "deepseek_v2_yarn": lambda: cfg("DeepseekV2Config", **{**MLA, **DSMOE, "topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2, "norm_topk_prob": False, "routed_scaling_factor": 16.0}, rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=0.707)),
    "phi3_mini": lambda: cfg("Phi3Config", num_attention_heads=2, num_key_value_heads=2, partial_rotary_factor=0.75, rope_parameters=dict(rope_type="longrope", short_factor=[1.0] * 6, long_factor=[2.0] * 6, rope_theta=10000.0, partial_rotary_factor=0.75), original_max_position_embeddings=32),
    "smollm3_list": lambda: cfg("SmolLM3Config", no_rope_layers=[0, 1, 0], attention_bias=True, mlp_bias=True),
    "cohere2_full": lambda: cfg("Cohere2Config", sliding_window=5, layer_types=["full_attention"] * 3, attention_bias=True, tie_word_embeddings=False, logit_scale=1.0),
    "gemma3_soft": lambda: cfg("Gemma3TextConfig", head_dim=8, query_pre_attn_scalar=8, sliding_window=6, attn_logit_softcapping=4.0, final_logit_softcapping=2.0, attention_bias=True, tie_word_embeddings=True),
    "olmo3_yarn": lambda: cfg("Olmo3Config", num_hidden_layers=4, sliding_window=6, rope_parameters={"full_attention": dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=32, rope_theta=5e5), "sliding_attention": dict(rope_type="default", rope_theta=5e5)}),
    "gpt2_tall": lambda: transformers.GPT2Config(vocab_size=96, n_embd=48, n_layer=5, n_head=6, n_positions=40, activation_function="gelu", tie_word_embeddings=False, bos_token_id=0, eos_token_id=1),
    "llama4_dense": lambda: cfg("Llama4TextConfig", head_dim=8, num_local_experts=3, intermediate_size=24, intermediate_size_mlp=48, moe_layers=[1], attention_chunk_size=8, no_rope_layer_interval=2, attention_bias=True, tie_word_embeddings=True),
}


def text_base(model):
    for _, m in model.named_modules():
        if isinstance(getattr(m, "layers", None), torch.nn.ModuleList) and hasattr(m, "embed_tokens"):
            return m.layers, (getattr(m, "norm", None) or getattr(m, "final_layernorm", None))
    return model.transformer.h, model.transformer.ln_f


def randomize(model):
    saved = set(model.state_dict().keys())
    g = torch.Generator().manual_seed(4321)
    plus_one = any(k in type(model).__name__ for k in ("Gemma", "Nemotron"))
    for n, p in list(model.named_parameters()) + list(model.named_buffers()):
        if n not in saved or not torch.is_floating_point(p) or p.ndim == 0:
            continue
        with torch.no_grad():
            r = torch.randn(p.shape, generator=g)
            if "e_score_correction_bias" in n: p.copy_(0.2 * r)
            elif p.ndim <= 2 and "norm" in n and n.endswith("weight"): p.copy_((0 if plus_one else 1) + 0.2 * r)
            elif p.ndim == 1: p.copy_(0.2 * r)
            elif "embed_tokens" in n or "wte" in n: p.copy_(r * 0.5)
            else: p.copy_(r * (1.2 / p.shape[-1] ** 0.5))
            p.copy_(p.to(torch.bfloat16).to(p.dtype))


def make(name, config):
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    try:
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    except ValueError:
        model = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager")
    model = model.float().eval()
    randomize(model)
    layers, norm = text_base(model)
    caps, hooks = {}, []
    for i, layer in enumerate(layers):
        hooks.append(layer.register_forward_hook(
            lambda m, a, o, i=i: caps.__setitem__(f"layer.{i}", (o[0] if isinstance(o, tuple) else o).detach().clone().float())))
    hooks.append(norm.register_forward_hook(lambda m, a, o: caps.__setitem__("norm", o.detach().clone().float())))
    ids = torch.randint(2, COMMON["vocab_size"], (2, T), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits.float()
    for h in hooks: h.remove()
    d = os.path.join(OUT, name)
    model.to(torch.bfloat16).save_pretrained(d, safe_serialization=True)
    for f in os.listdir(d):
        if f.startswith("generation"): os.remove(os.path.join(d, f))
    ref = {"input_ids": ids, "logits": logits.contiguous(), **{k: v.contiguous() for k, v in caps.items()}}
    save_file(ref, os.path.join(d, "reference.safetensors"), metadata={"transformers": transformers.__version__, "torch": torch.__version__})
    print(f"{name:18s} ok logit_std={logits.std().item():.3f}", flush=True)


failed = 0
for name, config in VARIANTS.items():
    if ONLY and name not in ONLY: continue
    try:
        make(name, config())
    except Exception as e:
        failed += 1
        print(f"{name:18s} FAILED {type(e).__name__}: {str(e)[:300]}", flush=True)
        traceback.print_exc(limit=-2, file=sys.stdout)
print(failed, "failed")
