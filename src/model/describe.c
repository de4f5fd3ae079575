/* describe.c - inspect's document about a model; see model.h. Only reports; decides nothing. */
#include "model/bind.h"

#include <stdio.h>
#include <string.h>

enum kind { KIND_EMBEDDING, KIND_HEAD, KIND_ATTENTION, KIND_DENSE, KIND_EXPERTS, KIND_SHARED, KIND_ROUTER, KIND_COUNT };

/* By what a weight is for and how it is stored: bytes {"fp8": n} and counts {"fp8 128x128": n} per kind. */
struct tally {
  json_t *bytes[KIND_COUNT], *counts[KIND_COUNT];
  uint64_t n_parameters;
};

static void add_number(json_t *object, const char *key, uint64_t n) {
  json_object_set_new(object, key, json_integer(json_integer_value(json_object_get(object, key)) + (json_int_t)n));
}

static void add(struct tally *tally, enum kind kind, const struct weight *weight) {
  char text[64];
  if (!weight_present(weight)) return;
  weight_describe(weight, text);
  add_number(tally->counts[kind], text, 1);
  text[strcspn(text, " ")] = '\0';
  add_number(tally->bytes[kind], text, weight_bytes(weight));
  tally->n_parameters += (uint64_t)weight->n_out * (uint64_t)weight->n_in;
}

static void add_layer(struct tally *tally, const struct layer_weights *layer) {
  const struct attention_weights *a = &layer->attention;
  const struct ffn_weights *ffn = &layer->ffn;
  const struct weight *attention[] = {&a->q, &a->k, &a->v, &a->o, &a->q_a, &a->q_b, &a->kv_a, &a->kv_b};
  const struct weight *shared[] = {&ffn->shared_gate, &ffn->shared_up, &ffn->shared_down, &ffn->shared_share};
  enum kind kind = weight_present(&ffn->router) ? KIND_EXPERTS : KIND_DENSE;
  for (size_t i = 0; i < sizeof attention / sizeof *attention; i++) add(tally, KIND_ATTENTION, attention[i]);
  for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) add(tally, KIND_SHARED, shared[i]);
  add(tally, KIND_ROUTER, &ffn->router);
  for (int32_t e = 0; e < ffn->n_experts; e++) {
    if (ffn->gate) add(tally, kind, &ffn->gate[e]);
    if (ffn->up) add(tally, kind, &ffn->up[e]); /* a joint layout has one weight for both */
    add(tally, kind, &ffn->down[e]);
  }
}

/* Moves what is not empty into the parent. */
static void set_some(json_t *parent, const char *key, json_t *object) {
  if (json_object_size(object))
    json_object_set_new(parent, key, object);
  else
    json_decref(object);
}

static json_t *describe_sizes(const struct model *model, json_t *formats) {
  static const char *const names[KIND_COUNT] = {"embedding", "head",           "attention", "dense_ffn",
                                                "experts",   "shared_experts", "router"};
  struct tally tally = {.n_parameters = model->n_vector_elements};
  json_t *sizes = json_object();
  for (int kind = 0; kind < KIND_COUNT; kind++) tally.bytes[kind] = json_object(), tally.counts[kind] = json_object();
  add(&tally, KIND_EMBEDDING, &model->embed);
  add(&tally, KIND_EMBEDDING, &model->position_embed);
  if (!model->arch.features.tied_head) add(&tally, KIND_HEAD, &model->head);
  for (int32_t i = 0; i < model->arch.features.n_layers; i++) add_layer(&tally, &model->layers[i]);
  for (int kind = 0; kind < KIND_COUNT; kind++) {
    set_some(sizes, names[kind], tally.bytes[kind]);
    set_some(formats, names[kind], tally.counts[kind]);
  }
  json_object_set_new(sizes, "parameters", json_integer((json_int_t)tally.n_parameters));
  json_object_set_new(sizes, "resident_bytes", json_integer((json_int_t)model->resident_bytes));
  json_object_set_new(sizes, "tensor_bytes", json_integer((json_int_t)model->checkpoint.n_bytes));
  json_object_set_new(sizes, "tensors", json_integer((json_int_t)model->checkpoint.n_tensors));
  json_object_set_new(sizes, "files", json_integer((json_int_t)model->checkpoint.n_files));
  json_object_set_new(sizes, "ignored_files", json_integer((json_int_t)model->checkpoint.n_ignored));
  json_object_set_new(sizes, "ignored_tensors", json_integer((json_int_t)model->n_ignored));
  json_object_set_new(sizes, "ignored_bytes", json_integer((json_int_t)model->ignored_bytes));
  return sizes;
}

static json_t *describe_chain(const struct model *model) {
  const struct wrapper_chain *chain = &model->arch.chain;
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "why", chain->why, "config", chain->config_path, "prefix",
                   chain->prefix, "layers", chain->layers_prefix, "embedding", chain->embed_name, "head",
                   chain->head_name);
}

static void add_note(json_t *notes, int32_t n, const char *text) {
  char note[160];
  if (n == 0) return;
  snprintf(note, sizeof note, "%d %s", n, text);
  json_array_append_new(notes, json_string(note));
}

/* What was read otherwise than its label says, or not at all. */
static json_t *describe_notes(const struct quantization *q) {
  json_t *notes = json_array();
  add_note(notes, q->n_static_inputs, "scales of activations are ignored: activations stay F32");
  add_note(notes, q->n_zeros_as_v2, "linears store true zero points under the label gptq: read as gptq_v2");
  add_note(notes, q->n_zeros_as_v1, "linears store zero points less one under the label gptq_v2: read as gptq");
  add_note(notes, q->n_zeros_v1_asymmetric, "asymmetric linears of gptq v1, where old writers let a zero point of 0 "
                                            "borrow from its neighbour");
  return notes;
}

static json_t *describe_quantization(const struct model *model) {
  const struct quantization *q = &model->quantization;
  if (!q->from[0]) return json_null();
  json_t *object = json_pack("{s:s, s:s, s:i, s:i, s:b, s:s, s:i, s:o}", "method", q->method, "format", q->format,
                             "bits", q->bits, "group_size", q->group, "symmetric", q->symmetric, "from", q->from,
                             "schemes", q->n_schemes, "notes", describe_notes(q));
  if (strcmp(q->method, "gptq") == 0)
    json_object_set_new(object, "zero_points", json_string(q->gptq_v2 ? "as stored (gptq_v2)" : "stored less one (gptq)"));
  if (model->nibbles.tensor[0]) {
    json_object_set_new(object, "nibble_check",
                        json_pack("{s:s, s:f, s:f, s:f}", "tensor", model->nibbles.tensor, "around_8",
                                  model->nibbles.center, "at_0_1_14_15", model->nibbles.edge, "at_0",
                                  model->nibbles.lowest));
  }
  return object;
}

static json_t *describe_layers(const struct model *model) {
  int32_t n_moe = 0, n_skipped = 0, n = model->arch.features.n_layers;
  for (int32_t i = 0; i < n; i++) {
    n_moe += weight_present(&model->layers[i].ffn.router);
    n_skipped += model->arch.features.layers[i].skip;
  }
  const char *attention = model->arch.features.attention == ATTENTION_MLA ? "latent (MLA)" : "grouped queries";
  return json_pack("{s:i, s:i, s:i, s:s}", "layers", n, "dense", n - n_moe - n_skipped, "experts", n_moe, "attention", attention);
}

json_t *model_describe(const struct model *model) {
  json_t *document = json_object(), *list = json_array();
  int32_t states[3], n = model_default_states(&model->arch.features, states);
  json_object_set_new(document, "path", json_string(model->checkpoint.path));
  json_object_set_new(document, "architecture", json_string(model->arch.features.row));
  json_object_set_new(document, "chain", describe_chain(model));
  json_object_set(document, "features", model->arch.provenance);
  json_object_set_new(document, "decoder", describe_layers(model));
  json_object_set_new(document, "quantization", describe_quantization(model));
  json_t *formats = json_object();
  json_object_set_new(document, "sizes", describe_sizes(model, formats));
  json_object_set_new(document, "formats", formats);
  for (int32_t i = 0; i < n; i++) json_array_append_new(list, json_integer(states[i]));
  json_object_set_new(document, "default_states", list);
  list = json_array();
  for (int32_t i = 0; i < model->n_stop_ids; i++) json_array_append_new(list, json_integer(model->stop_ids[i]));
  json_object_set_new(document, "stop_ids", list);
  json_object_set(document, "warnings", model->arch.warnings);
  return document;
}
