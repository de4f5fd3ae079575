/* test_wrappers.c - the text decoder inside multimodal checkpoints. Method: a tiny text model is dressed as each wrapper (nested
 * config, prefixes of old and new releases, tensors of the other modalities as decoys) and must give the logits of the bare model bit
 * for bit, found from names alone. */
#include "variant.h"

struct wrapper {
  const char *class, *nest; /* nest: "text_config", "thinker_config.text_config" or "" */
  const char *prefix, *head;
};

static const struct wrapper wrappers[] = {
    {"KimiK25ForConditionalGeneration", "text_config", "language_model.model.", "language_model.lm_head."},
    {"KimiK25ForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
    {"KimiVLForConditionalGeneration", "text_config", "language_model.model.", "language_model.lm_head."},
    {"LlavaForConditionalGeneration", "text_config", "language_model.model.", "language_model.lm_head."},
    {"LlavaForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
    {"LlavaNextForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
    {"Mistral3ForConditionalGeneration", "text_config", "language_model.model.", "language_model.lm_head."},
    {"Mistral3ForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
    {"Qwen2VLForConditionalGeneration", "", "model.", "lm_head."},
    {"Qwen2_5_VLForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
    {"Qwen3VLForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
    {"Qwen2_5OmniForConditionalGeneration", "thinker_config.text_config", "thinker.model.", "thinker.lm_head."},
    {"Gemma3ForConditionalGeneration", "text_config", "language_model.model.", "language_model.lm_head."},
    {"PaliGemmaForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
    {"InternVLChatModel", "llm_config", "language_model.model.", "language_model.lm_head."},
    {"InternVLForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
    {"Idefics3ForConditionalGeneration", "text_config", "model.text_model.", "lm_head."},
    {"SmolVLMForConditionalGeneration", "text_config", "model.text_model.", "lm_head."},
    {"Llama4ForConditionalGeneration", "text_config", "language_model.model.", "language_model.lm_head."},
    {"Glm4vForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
    {"AyaVisionForConditionalGeneration", "text_config", "language_model.model.", "language_model.lm_head."},
    {"Cohere2VisionForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
    {"DeepseekVLV2ForCausalLM", "language_config", "language.model.", "language.lm_head."},
    {"DeepseekOCRForCausalLM", "language_config", "model.", "lm_head."},
    {"MiniCPMV", "", "llm.model.", "llm.lm_head."},
    {"Ovis2", "llm_config", "llm.model.", "llm.lm_head."},
    {"Llama_Nemotron_Nano_VL", "llm_config", "language_model.model.", "language_model.lm_head."},
    {"MiniMaxVL01ForConditionalGeneration", "text_config", "language_model.model.", "language_model.lm_head."},
};

/* Neighbours of text decoders, by the names that published checkpoints have. */
static const char *const decoys[] = {
    "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight",
    "vision_tower.encoder.blocks.0.norm0.weight",
    "vision_model.embeddings.position_embedding.weight",
    "visual.blocks.0.attn.qkv.weight",
    "model.visual.merger.mlp.0.weight",
    "model.vision_tower.transformer.layers.0.attention.q_proj.weight",
    "audio_tower.layers.0.self_attn.q_proj.weight",
    "multi_modal_projector.linear_1.weight",
    "model.multi_modal_projector.linear_1.weight",
    "mm_projector.proj.0.weight",
    "mlp1.0.weight",
    "model.connector.modality_projection.proj.weight",
    "talker.model.embed_tokens.weight",
    "talker.model.layers.0.input_layernorm.weight",
    "code2wav.decoder.0.weight",
    "image_newline",
    "resampler.query",
    "vpm.encoder.layers.0.self_attn.q_proj.weight",
};

static const struct wrapper *current;

static bool dress(char *name, size_t size, const char *old) {
  static const char model[] = "model.", head[] = "lm_head.";
  if (strncmp(old, model, strlen(model)) == 0)
    snprintf(name, size, "%s%s", current->prefix, old + strlen(model));
  else if (strncmp(old, head, strlen(head)) == 0)
    snprintf(name, size, "%s%s", current->head, old + strlen(head));
  return true;
}

static void nest_config(struct variant *v, const struct wrapper *w) {
  json_t *inner = v->config;
  json_object_del(inner, "architectures");
  char path[64];
  snprintf(path, sizeof path, "%s", w->nest);
  while (path[0]) { /* innermost part first */
    char *dot = strrchr(path, '.');
    json_t *outer = json_pack("{s:o}", dot ? dot + 1 : path, inner);
    if (dot)
      *dot = 0;
    else
      path[0] = 0;
    inner = outer;
  }
  json_object_set_new(inner, "architectures", json_pack("[s]", w->class));
  json_object_set_new(inner, "vision_config", json_pack("{s:i, s:i}", "hidden_size", 32, "num_hidden_layers", 2));
  v->config = inner;
}

static void check(const char *source, const struct wrapper *w) {
  static const float zeros[16] = {0};
  struct variant v;
  struct fixture f;
  current = w;
  variant_open(&v, source);
  nest_config(&v, w);
  variant_add_all(&v, dress);
  for (size_t i = 0; i < sizeof decoys / sizeof *decoys; i++)
    safetensors_writer_add(v.writer, decoys[i], DTYPE_F32, 2, (const int64_t[]){4, 4}, zeros);
  printf("%s %s %s\n", w->class, w->nest, w->prefix);
  variant_expect_same(&v);
  assert_int_equal(fixture_open(&f, v.directory, 8, NULL), EAGLET_OK);
  assert_string_equal(f.model->arch.chain.config_path, w->nest);
  assert_string_equal(f.model->arch.chain.prefix, w->prefix);
  assert_non_null(strstr(f.model->arch.chain.why, w->class));
  fixture_close(&f);
  variant_close(&v);
}

static void test_wrappers(void **state) {
  (void)state;
  char *source = shared_path("own/arch/qwen2");
  if (!source) skip();
  for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) check(source, &wrappers[i]);
  free(source);
}

/* The same with a tied head and with experts inside. */
static void test_wrapped_kinds(void **state) {
  (void)state;
  static const char *const sources[] = {"own/arch/llama2", "own/arch/deepseek_v3", "own/arch/gpt_oss", "own/arch/cohere2"};
  static const struct wrapper kinds[] = {
      {"AnyForConditionalGeneration", "text_config", "model.language_model.", "lm_head."},
      {"AnyForConditionalGeneration", "llm_config", "language_model.model.", "language_model.lm_head."}};
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
    char *source = shared_path(sources[i]);
    if (!source) skip();
    for (int k = 0; k < 2; k++) check(source, &kinds[k]);
    free(source);
  }
}

/* Mllama puts layers that attend to images between the others; text passes them by. */
static bool open_gap(char *name, size_t size, const char *old) {
  int layer, used = 0;
  if (sscanf(old, "model.layers.%d.%n", &layer, &used) == 1 && used > 0)
    snprintf(name, size, "language_model.model.layers.%d.%s", layer < 2 ? layer : layer + 1, old + used);
  else
    snprintf(name, size, "language_model.%s", old);
  return true;
}

static void test_cross_attention_layers(void **state) {
  (void)state;
  static const float zeros[64] = {0};
  char *source = shared_path("own/arch/llama3");
  if (!source) skip();
  struct variant v;
  variant_open(&v, source);
  json_t *text = v.config;
  json_object_set_new(text, "model_type", json_string("mllama_text_model"));
  json_object_set_new(text, "num_hidden_layers", json_integer(5));
  json_object_set_new(text, "cross_attention_layers", json_pack("[i]", 2));
  json_object_del(text, "layer_types");
  v.config = json_pack("{s:[s], s:o}", "architectures", "MllamaForConditionalGeneration", "text_config", text);
  variant_add_all(&v, open_gap);
  safetensors_writer_add(v.writer, "language_model.model.layers.2.cross_attn.q_proj.weight", DTYPE_F32, 2,
                         (const int64_t[]){8, 8}, zeros);
  safetensors_writer_add(v.writer, "language_model.model.layers.2.input_layernorm.weight", DTYPE_F32, 1, (const int64_t[]){64},
                         zeros);
  variant_expect_same(&v);
  variant_close(&v);
  free(source);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wrappers),
      cmocka_unit_test(test_wrapped_kinds),
      cmocka_unit_test(test_cross_attention_layers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
