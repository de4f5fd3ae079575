/* arch_moe.c - experts and their router from config.json, cross-checked against tensors; see arch_features.h. */
#include "model/arch_features.h"

#include <stdio.h>
#include <string.h>

#define EXPERTS_MAX 1024 /* what the router op takes */

static const char experts_field[] = "n_routed_experts|num_experts|num_local_experts|moe_num_experts";
/* What configs say about experts, for those that have none. */
static const char every_field[] =
    "n_routed_experts|num_experts|num_local_experts|moe_num_experts|num_experts_per_tok|num_experts_per_token|moe_k|moe_topk|"
    "moe_intermediate_size|expert_intermediate_size|n_shared_experts|moe_num_shared_experts|shared_expert_intermediate_size|"
    "norm_topk_prob|routed_scaling_factor|scoring_func|topk_method|n_group|topk_group|moe_norm_min";

static int32_t first_router_layer(struct field_reader *reader, const struct tensor_facts *facts,
                                  const struct moe_names *names) {
  for (int32_t i = 0; names && i < reader->arch->features.n_layers; i++) {
    if (module_axis(reader, facts, i, names->router, ".weight", 0) >= 0) return i;
  }
  return -1;
}

static void read_groups(struct field_reader *reader) {
  struct moe_features *moe = &reader->arch->features.moe;
  const char *method = field_string(reader, "topk_method", NULL);
  moe->n_groups = field_int(reader, "n_group", 1);
  moe->n_groups_picked = field_int(reader, "topk_group", 1);
  bool known = !method || (moe->router == ROUTER_SIGMOID_BIAS && strcmp(method, "noaux_tc") == 0) ||
               (moe->router == ROUTER_SOFTMAX_ALL &&
                (strcmp(method, "greedy") == 0 || strcmp(method, "group_limited_greedy") == 0));
  if (!known) field_fail(reader, "topk_method: \"%s\" is not supported for %s", method, reader->arch->features.row);
  if (moe->n_groups == 0 || (method && strcmp(method, "greedy") == 0)) moe->n_groups = 1;
  if (moe->n_groups == 1) moe->n_groups_picked = 1;
  if (reader->status == EAGLET_OK &&
      (moe->n_experts % moe->n_groups || moe->n_groups_picked < 1 || moe->n_groups_picked > moe->n_groups)) {
    field_fail(reader, "n_group / topk_group: %d experts cannot form %d groups of which %d are kept", moe->n_experts,
               moe->n_groups, moe->n_groups_picked);
  }
}

static bool has_correction(struct field_reader *reader, const struct tensor_facts *facts, const struct moe_names *names,
                           int32_t layer) {
  char name[128];
  for (const char *at = names->correction_bias; at && *at;) {
    size_t n = strcspn(at, "|");
    snprintf(name, sizeof name, "%.*s", (int)n, at);
    if (tensor_axis(reader, facts, layer, name, 0) >= 0) return true;
    at = at[n] ? at + n + 1 : NULL;
  }
  return false;
}

static void read_router(struct field_reader *reader, const struct tensor_facts *facts, const struct moe_names *names,
                        int32_t layer) {
  const struct arch_row *row = reader->arch->row;
  struct moe_features *moe = &reader->arch->features.moe;
  bool sigmoid = row->router == ROUTER_SIGMOID_BIAS;
  moe->router = row->router;
  moe->share_input = row->router == ROUTER_SIGMOID_TOPK;
  moe->correction_bias = sigmoid || has_correction(reader, facts, names, layer);
  moe->router_bias = module_axis(reader, facts, layer, names->router, ".bias", 0) >= 0;
  const char *scoring = field_string(reader, "scoring_func", sigmoid ? "sigmoid" : "softmax");
  if (reader->status == EAGLET_OK && strcmp(scoring, sigmoid ? "sigmoid" : "softmax") != 0)
    field_fail(reader, "scoring_func: expected \"%s\" for %s, found \"%s\"", sigmoid ? "sigmoid" : "softmax",
               reader->arch->features.row, scoring);
  moe->normalise = field_bool(reader, "norm_topk_prob", row->normalise);
  moe->scale = field_double(reader, "routed_scaling_factor", row->expert_scale);
  read_groups(reader);
  /* The original code of softmax routers scales only when it does not normalise, later code always. */
  if (row->attention == ATTENTION_MLA && moe->router == ROUTER_SOFTMAX_ALL && moe->normalise && moe->scale != 1) {
    field_fail(reader, "norm_topk_prob with routed_scaling_factor %g: implementations of %s disagree about it",
               moe->scale, reader->arch->features.row);
  }
  field_positive(reader, "num_experts_per_tok", moe->n_picked,
                 moe->n_experts / (moe->n_groups > 0 ? moe->n_groups : 1) * moe->n_groups_picked);
}

/* Width of an expert as the tensors tell it, or -1. */
static int32_t tensor_width(struct field_reader *reader, const struct tensor_facts *facts, const struct moe_names *names,
                            int32_t layer) {
  int32_t hidden = reader->arch->features.hidden;
  char module[160];
  snprintf(module, sizeof module, "%s0.%s", names->expert, names->gate ? names->gate : "");
  int32_t single = module_axis(reader, facts, layer, module, ".weight", 0);
  if (single >= 0) return single;
  static const char *const tails[] = {"", ".weight"};
  for (int i = 0; i < 2; i++) {
    int32_t a = module_axis(reader, facts, layer, names->stack_down, tails[i], 1),
            b = module_axis(reader, facts, layer, names->stack_down, tails[i], 2);
    if (a < 0 || b < 0) continue;
    if (a == hidden && b != hidden) return b;
    if (b == hidden) return a;
  }
  return -1;
}

static void read_shared(struct field_reader *reader, const struct tensor_facts *facts, const struct moe_names *names,
                        int32_t layer) {
  struct moe_features *moe = &reader->arch->features.moe;
  char module[160];
  if (!names->shared && !names->shared_joint) return;
  snprintf(module, sizeof module, "%s%s", names->shared_joint ? names->shared_joint : names->shared,
           names->shared_joint ? "" : "up_proj");
  int32_t width = module_axis(reader, facts, layer, module, ".weight", 0);
  if (names->shared_joint && width > 0) width /= 2;
  struct field_place whole = field_find(reader, "shared_expert_intermediate_size|shared_intermediate_size"),
                     count = field_find(reader, "n_shared_experts|moe_num_shared_experts|num_shared_experts");
  if (whole.value)
    moe->shared_intermediate =
        field_int_or_tensor(reader, "shared_expert_intermediate_size|shared_intermediate_size", 0, width, module);
  else if (count.value)
    moe->shared_intermediate =
        field_int(reader, "n_shared_experts|moe_num_shared_experts|num_shared_experts", 0) * moe->intermediate;
  else
    moe->shared_intermediate = width > 0 ? width : 0;
  if (width >= 0 && count.value && !whole.value && moe->shared_intermediate != width && reader->status == EAGLET_OK)
    field_fail(reader, "%s says %d, a width of %d together, but tensor %s says %d", count.from,
               moe->shared_intermediate / moe->intermediate, moe->shared_intermediate, module, width);
}

/* Whole numbers of a rule, each at least `least`. */
static int32_t rule_int(struct field_reader *reader, const char *name, int32_t fallback, int32_t least) {
  struct field_place place = field_find(reader, name);
  if (place.value && json_is_integer(place.value) && json_integer_value(place.value) == -1) return fallback;
  int32_t value = field_int(reader, name, fallback);
  if (reader->status == EAGLET_OK && value < least)
    field_fail(reader, "%s: expected at least %d, found %d", name, least, value);
  return value;
}

static void mark(struct features *f, int32_t first, int32_t last, int32_t step, int32_t phase) {
  for (int32_t i = 0; i < f->n_layers; i++)
    f->layers[i].moe = step > 0 && i >= first && i <= last && (i + phase) % step == 0;
}

static bool any_marked(const struct features *f) {
  for (int32_t i = 0; i < f->n_layers; i++) {
    if (f->layers[i].moe) return true;
  }
  return false;
}

/* Which layers have experts. */
static void mark_layers(struct field_reader *reader) {
  struct features *f = &reader->arch->features;
  int32_t first, last, step;
  struct field_place list, types = field_find(reader, "mlp_layer_types");
  switch (reader->arch->row->moe) {
  case MOE_NONE:
    break;
  case MOE_ALL:
    mark(f, 0, f->n_layers, 1, 0);
    break;
  case MOE_FIRST_DENSE:
    first = field_int(reader, "first_k_dense_replace", 0);
    mark(f, first, f->n_layers, rule_int(reader, "moe_layer_freq", 1, 1), 0);
    break;
  case MOE_SPARSE_STEP:
    mark(f, 0, f->n_layers, rule_int(reader, "decoder_sparse_step", 1, 1), 1);
    list = field_find(reader, "mlp_only_layers");
    for (int32_t i = 0; i < f->n_layers; i++) f->layers[i].moe &= !list_has_layer(list.value, i);
    break;
  case MOE_RANGE:
    first = rule_int(reader, "moe_layer_start_index", 0, 0);
    last = rule_int(reader, "moe_layer_end_index", f->n_layers - 1, 0);
    mark(f, first, last, rule_int(reader, "moe_layer_interval", 1, 1), 1);
    break;
  case MOE_INTERLEAVED:
    list = field_find(reader, "moe_layers");
    step = rule_int(reader, "interleave_moe_layer_step", 1, 1);
    mark(f, 0, f->n_layers, step, 1);
    for (int32_t i = 0; list.value && i < f->n_layers; i++) f->layers[i].moe = list_has_layer(list.value, i);
    break;
  }
  for (int32_t i = 0; types.value && i < f->n_layers; i++) {
    const char *text = json_string_value(json_array_get(types.value, (size_t)i));
    if (!text || (strcmp(text, "dense") != 0 && strcmp(text, "sparse") != 0))
      field_fail(reader, "%s[%d]: expected \"dense\" or \"sparse\"", types.from, i);
    else
      f->layers[i].moe = text[0] == 's';
  }
}

void arch_read_moe(struct field_reader *reader, const struct tensor_facts *facts) {
  const struct arch_row *row = reader->arch->row;
  struct features *f = &reader->arch->features;
  struct moe_features *moe = &f->moe;
  if (row->moe == MOE_NONE) {
    struct field_place place = field_find(reader, experts_field);
    if (place.value && json_number_value(place.value) > 0)
      field_fail(reader, "%s: experts are not supported for %s", place.from, f->row);
    return;
  }
  if (reader->status != EAGLET_OK) return;
  const struct moe_names *names = arch_moe_names(reader->arch, facts->checkpoint);
  int32_t layer = first_router_layer(reader, facts, names);
  mark_layers(reader);
  if (!any_marked(f)) { /* dense throughout, whatever the config says about experts */
    field_accept(reader, every_field);
    return;
  }
  moe->n_experts = field_int_or_tensor(
      reader, experts_field, 0, layer >= 0 ? module_axis(reader, facts, layer, names->router, ".weight", 0) : 0,
      "of the router");
  if (moe->n_experts == 0) mark(f, 0, -1, 1, 0);
  if (moe->n_experts == 0 || reader->status != EAGLET_OK) return;
  field_positive(reader, "num_experts", moe->n_experts, EXPERTS_MAX);
  moe->n_picked =
      field_int(reader, "num_experts_per_tok|num_experts_per_token|moe_k|moe_topk|top_k_experts", FIELD_REQUIRED);
  moe->intermediate = field_int_or_tensor(
      reader, row->expert_is_intermediate ? "intermediate_size" : "moe_intermediate_size|expert_intermediate_size",
      FIELD_REQUIRED, tensor_width(reader, facts, names, layer), "of expert 0");
  field_positive(reader, "moe_intermediate_size", moe->intermediate, 1 << 24);
  field_accept(reader, "moe_norm_min|experts_per_token");
  if (reader->status != EAGLET_OK) return;
  read_shared(reader, facts, names, layer);
  read_router(reader, facts, names, layer);
}
