/* bind_unused.c - what was left unread, and why that is fine; see bind.h. Owns the list of known-harmless tensor names.
 */
#include "model/bind.h"

#include "model/arch_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *text, const char *suffix) {
  size_t n = strlen(text), m = strlen(suffix);
  return n >= m && strcmp(text + n - m, suffix) == 0;
}

bool tensor_is_harmless(const char *name) {
  static const char *const suffixes[] = {"rotary_emb.inv_freq",
                                         "rotary_emb.cos_cached",
                                         "rotary_emb.sin_cached",
                                         "attn.bias",
                                         "attn.masked_bias",
                                         "k_scale",
                                         "v_scale",
                                         "k_proj.output_scale",
                                         "v_proj.output_scale"};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    if (ends_with(name, suffixes[i])) return true;
  }
  return false;
}

/* Modules that stand between another modality and the text decoder. */
static bool is_bridge(const char *name) {
  static const char *const marks[] = {"projector", "connector", "merger", "resampler", "perceiver", "aligner"};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    if (strstr(name, marks[i])) return true;
  }
  return false;
}

/* Does a tensor outside the decoder carry a decoder layer's name and shape? Then the checkpoint mixes prefixes. */
static bool looks_like_ours(const struct model *model, const struct tensor_entry *tensor) {
  const struct arch *arch = &model->arch;
  char name[512];
  if (arch_name_is_other_modality(tensor->name) || is_bridge(tensor->name)) return false;
  if (ends_with(tensor->name, "embed_tokens.weight")) {
    return tensor->rank == 2 && tensor->shape[0] == arch->features.n_vocab && tensor->shape[1] == arch->features.hidden;
  }
  const char *at = strstr(tensor->name, "layers.");
  if (!at) return false;
  char *end;
  strtol(at + strlen("layers."), &end, 10);
  if (*end != '.') return false;
  int32_t samples[] = {0, arch->features.n_layers - 1};
  for (int i = 0; i < 2; i++) {
    snprintf(name, sizeof name, "%s%d%s", arch->chain.layers_prefix, samples[i], end);
    const struct tensor_entry *own = checkpoint_peek(&model->checkpoint, name);
    bool same = own && own->rank == tensor->rank;
    for (int axis = 0; same && axis < own->rank; axis++) same = own->shape[axis] == tensor->shape[axis];
    if (same) return true;
  }
  return false;
}

/* Layers that speak to another modality. */
static bool is_skipped_layer(const struct arch *arch, const char *name) {
  size_t length = strlen(arch->chain.layers_prefix);
  if (strncmp(name, arch->chain.layers_prefix, length) != 0) return false;
  long layer = strtol(name + length, NULL, 10);
  return layer >= 0 && layer < arch->features.n_layers && arch->features.layers[layer].skip;
}

/* Layers past the last one: prediction layers, already judged by arch_features.c. */
static bool is_surplus_layer(const struct arch *arch, const char *name) {
  size_t length = strlen(arch->chain.layers_prefix);
  return strncmp(name, arch->chain.layers_prefix, length) == 0 &&
         strtol(name + length, NULL, 10) >= arch->features.n_layers;
}

static enum eaglet_status judge(const struct model *model, const struct tensor_entry *tensor,
                                struct eaglet_error *err) {
  const struct arch *arch = &model->arch;
  bool in_layers = strncmp(tensor->name, arch->chain.layers_prefix, strlen(arch->chain.layers_prefix)) == 0;
  bool inside = in_layers || strncmp(tensor->name, arch->chain.prefix, strlen(arch->chain.prefix)) == 0;
  if (is_surplus_layer(arch, tensor->name) || is_skipped_layer(arch, tensor->name) || tensor_is_harmless(tensor->name))
    return EAGLET_OK;
  /* Where sparse attention runs densely its scorer is not used. */
  if (arch->row->index_topk && arch->features.sparse.n_kept == 0 && strstr(tensor->name, ".self_attn.indexer.")) return EAGLET_OK;
  if (in_layers)
    FAIL(err, EAGLET_E_INPUT, "%s: %s: not known to the %s decoder, and unused weights are not skipped in silence",
         tensor->path, tensor->name, arch->features.row);
  if (arch_name_is_other_modality(tensor->name) || is_bridge(tensor->name)) return EAGLET_OK;
  if (inside)
    FAIL(err, EAGLET_E_INPUT, "%s: %s: not known to the %s decoder, and unused weights are not skipped in silence",
         tensor->path, tensor->name, arch->features.row);
  if (looks_like_ours(model, tensor))
    FAIL(err, EAGLET_E_INPUT, "%s: %s: a decoder tensor outside the prefix %s: mixed prefixes", tensor->path,
         tensor->name, arch->chain.prefix);
  return EAGLET_OK;
}

enum eaglet_status model_check_unused(struct model *model, struct eaglet_error *err) {
  const struct checkpoint *checkpoint = &model->checkpoint;
  for (size_t i = 0; i < checkpoint->n_tensors; i++) {
    if (checkpoint->used[i]) continue;
    TRY(judge(model, checkpoint->tensors[i], err));
    model->n_ignored++;
    model->ignored_bytes += checkpoint->tensors[i]->n_bytes;
  }
  return EAGLET_OK;
}
