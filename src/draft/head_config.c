/* head_config.c - config.json of a head, in the dialects that trainers write; see head_file.h. Fields decide, never class
 * names. Owns the list of what is understood: a field that is not, and is not neutral, is refused, because it may change the
 * arithmetic (decision 5). Does not look at tensors: what only they can tell is left as claims that binding checks. */
#include "draft/head_file.h"

#include "base/util.h"
#include "model/arch_fields.h"

#include <stdio.h>
#include <string.h>

/* The objects a head's config consists of, inner first. */
struct head_reader {
  struct field_reader fields;
  struct arch arch; /* the reader notes provenance there */
  const struct features *target;
  const json_t *top, *eagle;
  bool nested; /* speculators: transformer_layer_config holds the decoder's fields */
};

const json_t *head_config_decoder(const json_t *json) {
  const json_t *inner = json_object_get(json, "transformer_layer_config");
  return json_is_object(inner) ? inner : json;
}

static void reader_open(struct head_reader *r, const json_t *json, const char *what, struct eaglet_error *err) {
  r->top = json;
  r->eagle = json_object_get(json, "eagle_config");
  r->fields = (struct field_reader){.arch = &r->arch, .what = what, .asked = json_object(), .err = err};
  r->arch.provenance = json_object();
  const json_t *levels[] = {head_config_decoder(json), json, r->eagle};
  static const char *const paths[] = {"transformer_layer_config.", "", "eagle_config."};
  r->nested = levels[0] != json;
  for (int i = r->nested ? 0 : 1; i < 3; i++) {
    if (!json_is_object(levels[i])) continue;
    r->fields.levels[r->fields.n_levels] = levels[i];
    r->fields.paths[r->fields.n_levels++] = paths[i];
  }
}

static void reader_close(struct head_reader *r) {
  json_decref(r->fields.asked);
  json_decref(r->arch.provenance);
}

static enum head_claim claim(struct head_reader *r, const char *names) {
  if (!field_find(&r->fields, names).value) return CLAIM_NONE;
  return field_bool(&r->fields, names, false) ? CLAIM_TRUE : CLAIM_FALSE;
}

/* Flags with one value that is understood, and formats that are not this one. */
static void read_fixed(struct head_reader *r, const struct head_config *c) {
  static const struct {
    const char *name;
    bool value;
  } flags[] = {{"use_aux_hidden_state", true}, {"use_input_layernorm_in_first_layer", true}, {"use_last_layernorm", true},
               {"use_mtp_layernorm", false}};
  struct field_reader *f = &r->fields;
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    struct field_place place = field_find(f, flags[i].name);
    if (place.value && field_bool(f, flags[i].name, flags[i].value) != flags[i].value)
      field_fail(f, "%s: only %s is supported", place.from, flags[i].value ? "true" : "false");
  }
  struct field_place regular = field_find(f, "next_layer_regular");
  if (regular.value && !field_bool(f, "next_layer_regular", true) && c->n_more_layers > 0)
    field_fail(f, "%s: only true is supported", regular.from);
  static const char *const ones[] = {"logit_scale", "partial_rotary_factor", "parallel_draft_step"};
  for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
    struct field_place place = field_find(f, ones[i]);
    if (place.value && !(json_is_number(place.value) && json_number_value(place.value) == 1))
      field_fail(f, "%s: only 1 is supported", place.from);
  }
  const char *act = field_string(f, "hidden_act", "silu"), *kind = field_string(f, "speculators_model_type", "eagle3");
  if (f->status == EAGLET_OK && strcmp(act, "silu") != 0) field_fail(f, "hidden_act: expected silu, found %s", act);
  if (f->status == EAGLET_OK && strcmp(kind, "eagle3") != 0)
    field_fail(f, "speculators_model_type: expected eagle3, found %s", kind);
  const json_t *algorithm = json_object_get(json_object_get(r->top, "speculators_config"), "algorithm");
  if (json_is_string(algorithm) && strcmp(json_string_value(algorithm), "eagle3") != 0)
    field_fail(f, "speculators_config.algorithm: expected eagle3, found %s", json_string_value(algorithm));
}

static void read_wiring(struct head_reader *r, struct head_config *c) {
  struct field_reader *f = &r->fields;
  c->claims.fc_norms = claim(r, "fc_norm|use_aux_norm");
  c->claims.fc_input_norm = claim(r, "norm_before_fc");
  c->claims.attention_bias = claim(r, "qkv_bias|attention_bias");
  c->claims.ffn_bias = claim(r, "mlp_bias");
  c->claims.any_bias = claim(r, "bias");
  c->embed_trained = json_is_true(field_find(f, "embed_requires_grad").value);
  c->wiring.norm_output = field_bool(f, "norm_output|return_hidden_post_norm", false);
  c->wiring.norm_before_residual = field_bool(f, "norm_before_residual", false);
  if (r->nested && !field_find(f, "norm_before_residual").value)
    field_fail(f, "norm_before_residual: expected true or false, found none: loaders disagree about its default");
  /* A copied decoder config may speak of its own embedding; the head's word stands outside. */
  const json_t *tied = json_object_get(r->top, "tie_word_embeddings");
  if (tied && !json_is_null(tied) && !json_is_boolean(tied))
    field_fail(f, "tie_word_embeddings: expected true or false");
  c->claims.tied = json_is_true(tied) ? CLAIM_TRUE : json_is_false(tied) ? CLAIM_FALSE : CLAIM_NONE;
  if (c->claims.fc_norms == CLAIM_TRUE && c->claims.fc_input_norm == CLAIM_TRUE)
    field_fail(f, "fc_norm and norm_before_fc exclude each other");
}

static void read_latent(struct head_reader *r, struct head_config *c) {
  struct field_reader *f = &r->fields;
  c->attention = ATTENTION_MLA;
  c->q_rank = field_int(f, "q_lora_rank", 0);
  c->kv_rank = field_int(f, "kv_lora_rank", FIELD_REQUIRED);
  c->nope_dim = field_int(f, "qk_nope_head_dim", FIELD_REQUIRED);
  c->rope_dim = field_int(f, "qk_rope_head_dim", FIELD_REQUIRED);
  c->value_dim = field_int(f, "v_head_dim", FIELD_REQUIRED);
  field_accept(f, "num_key_value_heads|head_dim|qk_head_dim");
  field_positive(f, "kv_lora_rank", c->kv_rank, 1 << 20);
  field_positive(f, "qk_nope_head_dim", c->nope_dim, 1 << 16);
  field_positive(f, "qk_rope_head_dim", c->rope_dim, 1 << 16);
  field_positive(f, "v_head_dim", c->value_dim, 1 << 16);
  c->n_kv_heads = c->n_heads;
  c->head_dim = c->nope_dim + c->rope_dim;
}

static void read_sizes(struct head_reader *r, struct head_config *c) {
  struct field_reader *f = &r->fields;
  c->hidden = field_int(f, "hidden_size", FIELD_REQUIRED);
  c->n_heads = field_int(f, "num_attention_heads", FIELD_REQUIRED);
  c->intermediate = field_int(f, "intermediate_size", FIELD_REQUIRED);
  c->n_target = field_int(f, "vocab_size", r->target->n_vocab);
  c->n_draft = field_int(f, "draft_vocab_size", c->n_target);
  c->target_hidden = field_int(f, "target_hidden_size", c->hidden);
  c->positions_max = field_int(f, "max_position_embeddings", r->target->positions_max);
  int32_t n_layers = field_int(f, "num_hidden_layers", 1);
  c->norm_eps = field_double(f, "rms_norm_eps", 1e-6);
  field_positive(f, "hidden_size", c->hidden, 1 << 20);
  field_positive(f, "num_attention_heads", c->n_heads, 1 << 16);
  field_positive(f, "intermediate_size", c->intermediate, 1 << 24);
  field_positive(f, "vocab_size", c->n_target, 1 << 28);
  field_positive(f, "draft_vocab_size", c->n_draft, 1 << 28);
  field_positive(f, "target_hidden_size", c->target_hidden, 1 << 20);
  field_positive(f, "max_position_embeddings", c->positions_max, INT32_MAX);
  field_positive(f, "num_hidden_layers", n_layers, HEAD_LAYERS_MAX);
  c->n_more_layers = n_layers - 1;
  if (f->status != EAGLET_OK) return;
  if (field_find(f, "kv_lora_rank").value) {
    read_latent(r, c);
    return;
  }
  c->n_kv_heads = field_int(f, "num_key_value_heads", c->n_heads);
  c->head_dim = field_int(f, "head_dim", c->hidden / c->n_heads > 0 ? c->hidden / c->n_heads : 1);
  field_positive(f, "num_key_value_heads", c->n_kv_heads, 1 << 16);
  field_positive(f, "head_dim", c->head_dim, 1 << 16);
  if (f->status == EAGLET_OK && c->n_heads % c->n_kv_heads != 0)
    field_fail(f, "%d heads cannot share %d key/value heads", c->n_heads, c->n_kv_heads);
}

/* Products of sizes, which become widths of rows. */
static void check_widths(struct head_reader *r, const struct head_config *c) {
  struct field_reader *f = &r->fields;
  int64_t widest = c->nope_dim + c->value_dim > c->head_dim ? c->nope_dim + c->value_dim : c->head_dim;
  if (f->status == EAGLET_OK && c->n_heads * widest > 1 << 24)
    field_fail(f, "%d heads of %lld: expected at most %d together", c->n_heads, (long long)widest, 1 << 24);
}

static void check_target(struct head_reader *r, const struct head_config *c) {
  struct field_reader *f = &r->fields;
  bool said = field_find(f, "target_hidden_size").value != NULL;
  if (c->n_target != r->target->n_vocab)
    field_fail(f, "vocab_size: the target has %d, the head is made for %d", r->target->n_vocab, c->n_target);
  if (c->target_hidden != r->target->hidden)
    field_fail(f, "%s: the target has %d, the head %s %d", said ? "target_hidden_size" : "hidden_size", r->target->hidden,
               said ? "is made for" : "(without a target_hidden_size)", c->target_hidden);
  if (c->n_draft > c->n_target)
    field_fail(f, "draft_vocab_size: %d is more than vocab_size %d", c->n_draft, c->n_target);
}

/* Windows come by layer_types, or by the older rule of one threshold. A size alone does not say which layers have it. */
static void read_windows(struct head_reader *r, struct head_config *c) {
  struct field_reader *f = &r->fields;
  struct field_place types = field_find(f, "layer_types"), size = field_find(f, "sliding_window");
  int32_t window = field_int(f, "sliding_window", 0);
  bool said = field_find(f, "use_sliding_window").value != NULL, use = field_bool(f, "use_sliding_window", types.value != NULL);
  struct field_place from = field_find(f, "max_window_layers");
  if (f->status != EAGLET_OK || (said && !use)) return;
  if (types.value) {
    for (int32_t i = 0; i <= c->n_more_layers; i++) {
      const char *text = json_string_value(json_array_get(types.value, (size_t)i));
      bool slides = text && strcmp(text, "sliding_attention") == 0;
      if (!slides && !(text && strcmp(text, "full_attention") == 0))
        field_fail(f, "%s[%d]: expected full_attention or sliding_attention, found %s", types.from, i, text ? text : "none");
      if (slides && window < 1) field_fail(f, "%s: asks for sliding attention, but there is no sliding_window", types.from);
      c->window[i] = slides ? window : 0;
    }
    return;
  }
  if (window < 1) return;
  if (!use || !from.value) {
    field_fail(f, "%s: %d without layer_types, or use_sliding_window and max_window_layers: which layers have it is not said",
               size.from, window);
    return;
  }
  int32_t first = field_int(f, "max_window_layers", 0);
  for (int32_t i = first; i <= c->n_more_layers; i++) c->window[i] = window;
}

static void read_rope(struct head_reader *r, struct head_config *c) {
  const struct rope_request rope = {.config = r->fields.levels[0],
                                    .head_dim = c->head_dim,
                                    .positions_max = c->positions_max,
                                    .latent_rope_dim = c->attention == ATTENTION_MLA ? c->rope_dim : 0,
                                    .attention_scale = &c->attention_scale};
  field_accept(&r->fields, "rope_theta|rope_scaling|rope_parameters|rope_interleave|original_max_position_embeddings|rotary_dim");
  if (r->fields.status != EAGLET_OK) return;
  r->fields.status = rope_features_read(&c->rope, &rope, r->fields.what, r->fields.err);
  if (c->attention == ATTENTION_GQA) c->attention_scale = 0;
}

static void read_state_list(struct head_reader *r, struct head_config *c, const struct field_place *place, int shift) {
  struct field_reader *f = &r->fields;
  size_t n = json_array_size(place->value);
  if (n < 1 || n > TAPS_MAX) {
    field_fail(f, "%s: captured states: expected 1 to %d numbers, found %zu", place->from, TAPS_MAX, n);
    return;
  }
  c->n_states = (int32_t)n;
  for (size_t i = 0; i < n; i++) {
    const json_t *item = json_array_get(place->value, i);
    json_int_t state = json_is_integer(item) ? json_integer_value(item) + shift : -1;
    if (state < 0 || state > r->target->n_layers || (i > 0 && state <= c->states[i - 1])) {
      field_fail(f, "%s: captured state %lld: expected ascending numbers in 0..%d", place->from, (long long)state,
                 r->target->n_layers);
      return;
    }
    c->states[i] = (int32_t)state;
  }
}

/* The place tells the numbering: in eagle_config ids are outputs of layers, numbered from 0 (SGLang and the trainers around it); a list
 * outside, which vLLM and speculators read, counts the layers that were run. */
static void read_states(struct head_reader *r, struct head_config *c) {
  struct field_reader *f = &r->fields;
  struct field_place ours = field_find(f, "eaglet_states"), ids = field_find(f, "eagle_aux_hidden_state_layer_ids");
  bool outputs = !r->nested && json_is_array(json_object_get(r->eagle, "eagle_aux_hidden_state_layer_ids"));
  bool counts = !outputs && json_is_array(json_object_get(r->top, "eagle_aux_hidden_state_layer_ids"));
  c->dialect = r->nested ? HEAD_DIALECT_SPECULATORS : counts ? HEAD_DIALECT_VLLM : HEAD_DIALECT_SGLANG;
  if (outputs) {
    ids.value = json_object_get(r->eagle, "eagle_aux_hidden_state_layer_ids");
    snprintf(ids.from, sizeof ids.from, "eagle_config.eagle_aux_hidden_state_layer_ids");
  }
  if (json_is_array(ours.value))
    read_state_list(r, c, &ours, 0);
  else if (json_is_array(ids.value))
    read_state_list(r, c, &ids, outputs);
  else
    c->n_states = model_default_states(r->target, c->states);
  int32_t said = field_int(f, "num_aux_hidden_states|num_eagle_features", c->n_states);
  if (f->status == EAGLET_OK && said != c->n_states)
    field_fail(f, "num_aux_hidden_states: says %d, but %d states are named", said, c->n_states);
}

/* Every object's keys, with those that speak of experts: a head's feed-forward is dense, and a router among its tensors would be
 * unknown there. */
static void check_known(struct head_reader *r) {
  struct field_reader *f = &r->fields;
  field_accept(f, "eagle_config|transformer_layer_config|speculators_config|speculators_version|has_no_defaults_at_init|"
                  "has_lm_head|target_model_type|parallel_draft_heads_num_layers|eagle_decoder_type|"
                  "num_nextn_predict_layers|first_k_dense_replace|moe_layer_freq|moe_intermediate_size|n_routed_experts|"
                  "n_shared_experts|num_experts|num_local_experts|num_experts_per_tok|n_group|topk_group|topk_method|"
                  "scoring_func|norm_topk_prob|routed_scaling_factor|decoder_sparse_step|mlp_only_layers|qk_head_dim|"
                  "original_max_position_embeddings|eaglet_dialect");
  for (int i = 0; i < f->n_levels; i++) {
    struct field_reader level = *f;
    level.levels[0] = f->levels[i];
    level.paths[0] = f->paths[i];
    level.n_levels = 1;
    field_check_known(&level);
    if (f->status == EAGLET_OK) f->status = level.status;
  }
}

enum eaglet_status head_config_read(struct head_config *config, const json_t *json, const struct features *target,
                                    const char *what, struct eaglet_error *err) {
  struct eaglet_error ignored;
  struct head_reader r = {.target = target};
  *config = (struct head_config){0};
  if (!json_is_object(json)) FAIL(err, EAGLET_E_INPUT, "%s: expected an object", what);
  reader_open(&r, json, what, err ? err : &ignored);
  read_sizes(&r, config);
  check_widths(&r, config);
  read_fixed(&r, config);
  if (r.fields.status == EAGLET_OK) check_target(&r, config);
  if (r.fields.status == EAGLET_OK) read_wiring(&r, config);
  if (r.fields.status == EAGLET_OK) read_windows(&r, config);
  if (r.fields.status == EAGLET_OK) read_rope(&r, config);
  if (r.fields.status == EAGLET_OK) read_states(&r, config);
  if (r.fields.status == EAGLET_OK) check_known(&r);
  enum eaglet_status status = r.fields.status;
  reader_close(&r);
  return status;
}

/* As the loaders build their modules: attention_bias is that of q, k, v and o (latent attention: of q_a, kv_a and o), qkv_bias is not
 * that of o, and Qwen3's attention has norms of queries and keys. */
enum eaglet_status head_config_complete(struct head_config *c, const json_t *json, const char *what, struct eaglet_error *err) {
  const json_t *decoder = head_config_decoder(json), *type = json_object_get(decoder, "model_type");
  c->attention_bias = c->claims.attention_bias == CLAIM_TRUE;
  c->attention_out_bias = c->attention_bias && json_is_true(json_object_get(decoder, "attention_bias"));
  c->ffn_bias = c->claims.ffn_bias == CLAIM_TRUE;
  c->fc_bias = c->claims.any_bias == CLAIM_TRUE;
  c->wiring.fc_norms = c->claims.fc_norms == CLAIM_TRUE;
  c->wiring.fc_input_norm = c->claims.fc_input_norm == CLAIM_TRUE;
  c->qk_norm = c->attention == ATTENTION_GQA && json_is_string(type) && strcmp(json_string_value(type), "qwen3") == 0;
  c->tied = c->claims.tied == CLAIM_TRUE;
  c->own_embed = c->embed_trained;
  c->own_lm_head = !c->tied;
  if (c->hidden != c->target_hidden && !c->embed_trained)
    FAIL(err, EAGLET_E_INPUT, "%s: embed_requires_grad: expected true: a head of %d cannot take the target's embedding of %d", what,
         c->hidden, c->target_hidden);
  return EAGLET_OK;
}

/* Is it the default of the other numbering? */
static bool holds_defaults(const json_t *ids, const struct features *target, int shift) {
  int32_t states[3], n = model_default_states(target, states);
  bool same = json_array_size(ids) == (size_t)n;
  for (int32_t i = 0; same && i < n; i++) same = json_integer_value(json_array_get(ids, (size_t)i)) == states[i] + shift;
  return same;
}

void head_config_remark(const struct head_config *config, const json_t *json, const struct features *target,
                        const char *what) {
  const json_t *inner = head_config_decoder(json), *flat = json_object_get(inner, "rope_theta"),
               *scaling = json_object_get(inner, "rope_scaling"), *parameters = json_object_get(inner, "rope_parameters"),
               *eagle = json_object_get(json, "eagle_config");
  bool nested = json_is_number(json_object_get(scaling, "rope_theta")) ||
                json_is_number(json_object_get(parameters, "rope_theta"));
  if (json_is_number(flat) && json_number_value(flat) != config->rope.theta) {
    log_warning("%s: rope_theta: %g beside a nested %g, which is used", what, json_number_value(flat),
                config->rope.theta);
  }
  if (!json_is_number(flat) && !nested)
    log_warning("%s: rope_theta: not given, using the family's %g", what, config->rope.theta);
  const json_t *outputs = json_object_get(eagle, "eagle_aux_hidden_state_layer_ids"),
               *counts = json_object_get(json, "eagle_aux_hidden_state_layer_ids");
  if (!json_object_get(eagle, "eaglet_states") && holds_defaults(outputs, target, 0)) {
    log_warning("%s: eagle_aux_hidden_state_layer_ids: read as outputs of layers, states %d, ..., but they look like counts of "
                "layers; check-pair tells which they are",
                what, config->states[0]);
  }
  if (!json_object_get(eagle, "eaglet_states") && !outputs && holds_defaults(counts, target, -1)) {
    log_warning("%s: eagle_aux_hidden_state_layer_ids: read as counts of layers, states %d, ..., but they look like outputs of layers; "
                "check-pair tells which they are",
                what, config->states[0]);
  }
  if (config->wiring.norm_output && !config->wiring.norm_before_residual && json_object_get(json, "norm_output"))
    log_warning("%s: norm_output: taken as servers do (the next feature is normed); SpecForge's trainer means another thing by it",
                what);
}
