/* arch_fields.c - the config reader; see arch_fields.h. Owns the list of config keys that never matter. */
#include "model/arch_fields.h"

#include "base/buffer.h"
#include "base/util.h"
#include "model/linear.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys that never change what a forward pass computes. */
static const char *const keys_harmless[] = {
    "model_type",
    "architectures",
    "tie_word_embeddings",
    "quantization_config",
    "compression_config",
    "eos_token_id",
    "bos_token_id",
    "pad_token_id",
    "unk_token_id",
    "sep_token_id",
    "eod_token_id",
    "decoder_start_token_id",
    "ignore_index",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "cache_implementation",
    "initializer_range",
    "initializer_factor",
    "attention_dropout",
    "hidden_dropout",
    "residual_dropout",
    "attn_pdrop",
    "input_jitter_noise",
    "jitter_noise",
    "moe_dropout_prob",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_proj_to_labels",
    "summary_first_dropout",
    "head_dtype",
    "moe_aux_loss_coef",
    "router_z_loss_coef",
    "z_loss_coefficient",
    "use_flash_attention",
    "_flash_attn_2_enabled",
    "use_flash_attn",
    "initial_context_length",
    "transformers_weights",
    "norm_reduce_in_fp32",
    "cache_config",
    "model_max_length",
    "resid_pdrop",
    "embd_pdrop",
    "embedding_dropout",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "pretraining_tp",
    "output_router_logits",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "return_legacy_cache",
    "router_aux_loss_coef",
    "aux_loss_alpha",
    "seq_aux",
    "router_jitter_noise",
    "ep_size",
    "_name_or_path",
    "name_or_path",
    "auto_map",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "task_specific_params",
    "tokenizer_class",
    "is_decoder",
    "is_encoder_decoder",
    "is_composition",
    "sub_configs",
    "model_parallel",
    "tensor_parallel_size",
    "chunk_size_feed_forward",
    "use_mrope",
    "keys_to_ignore_at_inference",
    "_attn_implementation",
    "_attn_implementation_internal",
    "attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "gradient_checkpointing",
    "use_unified_vision_chunk",
    "vision_feature_layer",
    "vision_feature_select_strategy",
    "projector_hidden_act",
    "multimodal_projector_bias",
    "spatial_merge_size",
    "tokenizer_path",
    "max_length",
    "min_length",
    "temperature",
    "top_k",
    "top_p",
    "do_sample",
    "num_beams",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "max_new_tokens",
    "video_placeholder",
    "moe_router_use_hidden_states",
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "text_model_config",
    "thinker",
    "talker_config",
    "token2wav_config",
    "mtp_loss_scaling_factor",
    "quantization",
    "_diffusers_version",
};
/* Prefixes and suffixes of keys that speak of other modalities or of token numbers. */
static const char *const key_prefixes[] = {"base_model_", "vision_", "image_", "video_", "audio_", "vt_",
                                           "mm_",     "boi_",   "eoi_",   "img_"};
static const char *const key_suffixes[] = {"_token_id", "_token_index", "_token_ids", "_seq_length", "_dropout"};

void arch_warn(struct arch *arch, const char *format, ...) {
  char text[1024];
  va_list args;
  if (!arch->warnings) return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  log_warning("%s", text);
  json_array_append_new(arch->warnings, json_string(text));
}

void field_fail(struct field_reader *reader, const char *format, ...) {
  char text[EAGLET_ERROR_MAX];
  if (reader->status != EAGLET_OK) return;
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  reader->status = error_set(reader->err, EAGLET_E_INPUT, "%s: %s", reader->what, text);
}

void field_accept(const struct field_reader *reader, const char *names) {
  for (const char *at = names; at && *at;) {
    size_t n = strcspn(at, "|");
    json_object_setn_new(reader->asked, at, n, json_true());
    at = at[n] ? at + n + 1 : NULL;
  }
}

struct field_place field_find(const struct field_reader *reader, const char *names) {
  struct field_place place = {.value = NULL, .from = ""};
  field_accept(reader, names);
  for (int level = 0; level < reader->n_levels; level++) {
    for (const char *at = names; at && *at;) {
      char name[64];
      size_t n = strcspn(at, "|");
      snprintf(name, sizeof name, "%.*s", (int)n, at);
      at = at[n] ? at + n + 1 : NULL;
      const json_t *value = json_object_get(reader->levels[level], name);
      if (!value || json_is_null(value)) continue;
      place.value = value;
      snprintf(place.from, sizeof place.from, "%s%s", reader->paths[level], name);
      return place;
    }
  }
  return place;
}

/* The first of several names: the canonical one. */
static void canonical(char *name, size_t size, const char *names) {
  snprintf(name, size, "%.*s", (int)strcspn(names, "|"), names);
}

void field_note(struct field_reader *reader, const char *name, json_t *value, const char *from) {
  json_t *row = json_object();
  json_object_set_new(row, "value", value);
  json_object_set_new(row, "from", json_string(from));
  json_object_set_new(reader->arch->provenance, name, row);
}

static const char *json_type_name(const json_t *value) {
  static const char *const names[] = {"object", "array", "string", "integer", "real", "true", "false", "null"};
  return names[json_typeof(value)];
}

/* Finds, or reports absence. True when a value was found and the reader is fine. */
static bool look_up(struct field_reader *reader, const char *names, bool required, struct field_place *place,
                    char name[64]) {
  canonical(name, 64, names);
  if (reader->status != EAGLET_OK) return false;
  *place = field_find(reader, names);
  if (place->value) return true;
  if (required) field_fail(reader, "%s%s: expected a value, found none", reader->paths[0], name);
  return false;
}

static void wrong_type(struct field_reader *reader, const struct field_place *place, const char *expected) {
  field_fail(reader, "%s: expected %s, found %s", place->from, expected, json_type_name(place->value));
}

int32_t field_int(struct field_reader *reader, const char *names, int32_t fallback) {
  struct field_place place;
  char name[64];
  if (!look_up(reader, names, fallback == FIELD_REQUIRED, &place, name)) {
    if (reader->status == EAGLET_OK) field_note(reader, name, json_integer(fallback), "default");
    return fallback;
  }
  double value = json_number_value(place.value);
  if (!json_is_number(place.value) || value != floor(value)) {
    wrong_type(reader, &place, "an integer");
    return fallback;
  }
  if (value < 0 || value > INT32_MAX) {
    field_fail(reader, "%s: expected 0..%d, found %.17g", place.from, INT32_MAX, value);
    return fallback;
  }
  field_note(reader, name, json_integer((json_int_t)value), place.from);
  return (int32_t)value;
}

double field_double(struct field_reader *reader, const char *names, double fallback) {
  struct field_place place;
  char name[64];
  if (!look_up(reader, names, fallback < 0, &place, name)) {
    if (reader->status == EAGLET_OK) field_note(reader, name, json_real(fallback), "default");
    return fallback;
  }
  if (!json_is_number(place.value)) {
    wrong_type(reader, &place, "a number");
    return fallback;
  }
  field_note(reader, name, json_real(json_number_value(place.value)), place.from);
  return json_number_value(place.value);
}

bool field_bool(struct field_reader *reader, const char *names, bool fallback) {
  struct field_place place;
  char name[64];
  if (!look_up(reader, names, false, &place, name)) {
    if (reader->status == EAGLET_OK) field_note(reader, name, json_boolean(fallback), "default");
    return fallback;
  }
  if (!json_is_boolean(place.value) && !json_is_integer(place.value)) {
    wrong_type(reader, &place, "true or false");
    return fallback;
  }
  /* Some published configs hold numbers here, which the reference code takes as Python does. */
  bool value = json_is_true(place.value) || (json_is_integer(place.value) && json_integer_value(place.value) != 0);
  field_note(reader, name, json_boolean(value), place.from);
  return value;
}

const char *field_string(struct field_reader *reader, const char *names, const char *fallback) {
  struct field_place place;
  char name[64];
  if (!look_up(reader, names, false, &place, name)) {
    if (reader->status == EAGLET_OK && fallback) field_note(reader, name, json_string(fallback), "default");
    return fallback;
  }
  if (!json_is_string(place.value)) {
    wrong_type(reader, &place, "a string");
    return fallback;
  }
  field_note(reader, name, json_string(json_string_value(place.value)), place.from);
  return json_string_value(place.value);
}

int32_t field_int_or_tensor(struct field_reader *reader, const char *names, int32_t fallback, int32_t tensor_value,
                            const char *tensor) {
  struct field_place place = field_find(reader, names);
  char name[64], from[256];
  canonical(name, sizeof name, names);
  if (!place.value && tensor_value >= 0 && reader->status == EAGLET_OK) {
    snprintf(from, sizeof from, "tensor %s", tensor);
    field_note(reader, name, json_integer(tensor_value), from);
    return tensor_value;
  }
  int32_t value = field_int(reader, names, fallback);
  if (reader->status == EAGLET_OK && tensor_value >= 0 && value != tensor_value) {
    field_fail(reader, "%s says %d, but tensor %s says %d", place.value ? place.from : name, value, tensor,
               tensor_value);
  }
  return value;
}

static bool is_listed(const char *key, const char *const *list, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (strcmp(key, list[i]) == 0) return true;
  }
  return false;
}

static bool is_other_modality(const char *key) {
  size_t length = strlen(key);
  for (size_t i = 0; i < sizeof key_prefixes / sizeof *key_prefixes; i++) {
    if (strncmp(key, key_prefixes[i], strlen(key_prefixes[i])) == 0) return true;
  }
  for (size_t i = 0; i < sizeof key_suffixes / sizeof *key_suffixes; i++) {
    size_t n = strlen(key_suffixes[i]);
    if (length > n && strcmp(key + length - n, key_suffixes[i]) == 0) return true;
  }
  return false;
}

/* An unknown key that is off says nothing. */
static bool is_neutral(const json_t *value) {
  return json_is_null(value) || json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0) ||
         (json_is_array(value) && json_array_size(value) == 0) ||
         (json_is_object(value) && json_object_size(value) == 0);
}

void field_check_known(struct field_reader *reader) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)reader->levels[0], key, value) {
    if (json_object_get(reader->asked, key)) continue;
    if (is_listed(key, keys_harmless, sizeof keys_harmless / sizeof *keys_harmless)) continue;
    if (is_other_modality(key) || is_neutral(value)) continue;
    struct eaglet_text text = json_dump(value, 0);
    field_fail(reader, "%s%s: not known to eaglet and set to %.60s; it may change the arithmetic", reader->paths[0],
               key, text.data);
    free(text.data);
  }
}

/* ---- what tensors say ---- */

int32_t tensor_axis(const struct field_reader *reader, const struct tensor_facts *facts, int32_t layer,
                    const char *name, int axis) {
  char full[512];
  snprintf(full, sizeof full, "%s%d.%s", reader->arch->chain.layers_prefix, layer, name);
  const struct tensor_entry *tensor = checkpoint_peek(facts->checkpoint, full);
  size_t length = strlen(full), tail = strlen(".weight");
  if ((!tensor || tensor->rank == 2) && length > tail && strcmp(full + length - tail, ".weight") == 0) {
    full[length - tail] = '\0'; /* quantised linears have their extents in other tensors */
    return linear_axis(facts->checkpoint, full, axis);
  }
  return tensor && axis < tensor->rank && tensor->shape[axis] <= INT32_MAX ? (int32_t)tensor->shape[axis] : -1;
}

int32_t module_axis(const struct field_reader *reader, const struct tensor_facts *facts, int32_t layer,
                    const char *module, const char *tail, int axis) {
  char name[160];
  if (!module) return -1;
  snprintf(name, sizeof name, "%s%s", module, tail);
  return tensor_axis(reader, facts, layer, name, axis);
}

int32_t row_default(const struct tensor_facts *facts, int32_t value) {
  return facts->fingerprinted || value == 0 ? FIELD_REQUIRED : value;
}

bool list_has_layer(const json_t *list, int32_t layer) {
  size_t i;
  json_t *value;
  json_array_foreach((json_t *)list, i, value) {
    if (json_is_integer(value) && json_integer_value(value) == layer) return true;
  }
  return false;
}

void field_positive(struct field_reader *reader, const char *name, int32_t value, int32_t max) {
  if (reader->status == EAGLET_OK && (value < 1 || value > max))
    field_fail(reader, "%s%s: expected 1..%d, found %d", reader->paths[0], name, max, value);
}

bool flag_or_tensor(struct field_reader *reader, const struct tensor_facts *facts, const struct flag_witness *w) {
  bool present = module_axis(reader, facts, w->layer, w->module, w->tail, 0) >= 0;
  struct field_place place = field_find(reader, w->name);
  bool value = field_bool(reader, w->name, present);
  if (!place.value) {
    char from[160];
    snprintf(from, sizeof from, "tensor %s%s %s", w->module ? w->module : "", w->tail, present ? "present" : "absent");
    field_note(reader, w->name, json_boolean(value), from);
  }
  return value;
}
