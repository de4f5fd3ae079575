/* head_file.h - the head as files: config.json + model.safetensors in the layout SGLang and vLLM load (eagle3.md §3,
 * pipeline.md §3): architectures ["LlamaForCausalLMEagle3"], model_type llama, vocab_size = target's, draft_vocab_size,
 * head_dim always written, rope_theta, no nulls, eagle_config.eagle_aux_hidden_state_layer_ids (= state - 1) and, ours,
 * eagle_config.eaglet_states with the decision 4 numbers; midlayer.* names, d2t, t2d; no embed_tokens.
 */
#ifndef EAGLET_DRAFT_HEAD_FILE_H
#define EAGLET_DRAFT_HEAD_FILE_H

#include "draft/head.h"

/* Reads config.json of a head in any dialect (docs/HEADS.md); accepts rope_theta or rope_parameters, eagle_config ids
 * (converted to states: id + 1; in speculators' format ids are states) or eaglet_states; default states when absent. */
enum eaglet_status head_config_read(struct head_config *config, const json_t *json, const struct features *target,
                                    const char *what, struct eaglet_error *err) MUST_USE;
/* The object with the decoder's fields: transformer_layer_config of speculators' format, else json. */
const json_t *head_config_decoder(const json_t *json);
/* Warns about what was resolved by rule: a rope_theta that contradicts itself or is not given (A18), ids that look like counts,
 * norm_output. */
void head_config_remark(const struct head_config *config, const json_t *json, const struct features *target,
                        const char *what);
json_t *head_config_write(const struct head_config *config, const struct model *target);

/* The trained parameters of a head, F32, in one block; order and names are fixed (also the trainer's optimizer layout).
 */
enum head_parameter {
  HEAD_FC,
  HEAD_INPUT_NORM,
  HEAD_HIDDEN_NORM,
  HEAD_Q,
  HEAD_K,
  HEAD_V,
  HEAD_O,
  HEAD_POST_NORM,
  HEAD_GATE,
  HEAD_UP,
  HEAD_DOWN,
  HEAD_NORM,
  HEAD_LM_HEAD,
  HEAD_PARAMETER_COUNT
};
const char *head_parameter_name(enum head_parameter parameter); /* "midlayer.self_attn.q_proj.weight" */
void head_parameter_shape(const struct head_config *config, enum head_parameter parameter,
                          int64_t shape[2]); /* norms: [n, 1] */
int64_t head_parameter_offset(const struct head_config *config,
                              enum head_parameter parameter); /* floats into the block */
int64_t head_parameters_total(const struct head_config *config);

/* Writes directory/{config.json, model.safetensors} atomically (weights first, config last), BF16 or F32. metadata_json
 * (may be NULL): training facts as a string. */
struct head_export {
  const struct head_config *config;
  const struct vocab_map *map;
  const float *parameters; /* the block */
  enum dtype dtype;
  const struct model *target;
  const char *metadata_json;
};
enum eaglet_status head_export(const char *directory, const struct head_export *export_,
                               struct eaglet_error *err) MUST_USE;
/* Loads a head's weights into a parameter block (warm start, resume). A head that the trainer cannot train is refused, naming
 * what it has and the standard head has not. */
enum eaglet_status head_import(float *parameters, const struct head *head, struct eaglet_error *err) MUST_USE;

#endif
