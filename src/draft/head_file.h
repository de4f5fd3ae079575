/* head_file.h - the head as files: config.json + model.safetensors. A new head has the layout that SGLang and vLLM load (eagle3.md §3,
 * pipeline.md §3): architectures ["LlamaForCausalLMEagle3"], model_type llama, vocab_size = target's, draft_vocab_size,
 * head_dim always written, rope_theta, no nulls, eagle_config.eagle_aux_hidden_state_layer_ids (= state - 1) and, ours,
 * eagle_config.eaglet_states with the decision 4 numbers; midlayer.* names, d2t, t2d; no embed_tokens. A head that came in another
 * dialect is written in it.
 */
#ifndef EAGLET_DRAFT_HEAD_FILE_H
#define EAGLET_DRAFT_HEAD_FILE_H

#include "draft/head_parameters.h"

/* Reads config.json of a head in any dialect (docs/HEADS.md); accepts rope_theta or rope_parameters, eagle_config ids
 * (converted to states: id + 1; ids outside eagle_config, as vLLM and speculators have them, are states) or eaglet_states;
 * default states when absent. */
enum eaglet_status head_config_read(struct head_config *config, const json_t *json, const struct features *target,
                                    const char *what, struct eaglet_error *err) MUST_USE;
/* The object with the decoder's fields: transformer_layer_config of speculators' format, else json. */
const json_t *head_config_decoder(const json_t *json);
/* Warns about what was resolved by rule: a rope_theta that contradicts itself or is not given (A18), ids that look like counts,
 * norm_output. */
void head_config_remark(const struct head_config *config, const json_t *json, const struct features *target,
                        const char *what);
/* What only tensors tell of a head, by its config alone, for a head that is yet to be trained: claims become parts. */
enum eaglet_status head_config_complete(struct head_config *config, const json_t *json, const char *what,
                                        struct eaglet_error *err) MUST_USE;
/* config.json of a trained head, in the dialect of its config. target NULL: the facts alone, without the target's ids. */
json_t *head_config_write(const struct head_config *config, const struct model *target);

struct head_naming {
  enum head_dialect dialect;
  const char *dtype;          /* "bfloat16" */
  const struct model *target; /* token ids, class; NULL only in SGLang's dialect */
  const char *target_name;    /* as the user calls it; speculators' format holds it */
};
json_t *head_config_write_as(const struct head_config *config, const struct head_naming *naming);

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
/* The config under which a head goes on training. Its layout is kept; but where the embedding is the target's own by the habit of the
 * dialect, a frozen copy in the file is left out, and one that shall learn (embed_requires_grad) becomes the head's own. */
void head_config_trained(struct head_config *config, const struct head *head);
/* Loads a head's weights into the parameter block of that config (warm start). The target's own prediction layer is refused: it has
 * no files of its own to be written to. */
enum eaglet_status head_import(float *parameters, const struct head_config *config, const struct head *head,
                               struct eaglet_error *err) MUST_USE;

#endif
