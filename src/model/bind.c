/* bind.c - weights of every layer, found by name and checked by shape and dtype; see bind.h. Linears stay in the mapped
 * file, vectors (norms, biases) become F32 in one device blob. The hard part is completeness: whatever is not bound
 * must be explained (bind_unused.c). */
#include "model/bind.h"

#include "base/memory.h"
#include "model/arch_table.h"
#include "model/linear.h"
#include "model/prediction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LENGTH 320

struct binder {
  struct model *model;
  float *host;                /* staging of model->small, same layout */
  size_t used, capacity;      /* floats */
  int32_t layer;              /* -1 outside layers */
  const struct moe_names *moe_names; /* NULL: no layer has a router */
  char name[NAME_MAX_LENGTH]; /* of the tensor at hand */
  struct eaglet_error *err;
};

/* binder->name = full name of `suffix` in the layer at hand, or of `suffix` itself outside. */
static const char *full_name(struct binder *b, const char *suffix, const char *tail) {
  if (b->layer < 0)
    snprintf(b->name, sizeof b->name, "%s%s", suffix, tail);
  else
    snprintf(b->name, sizeof b->name, "%s%d.%s%s", b->model->arch.chain.layers_prefix, b->layer, suffix, tail);
  return b->name;
}

static bool exists(struct binder *b, const char *suffix, const char *tail) {
  return checkpoint_peek(&b->model->checkpoint, full_name(b, suffix, tail)) != NULL;
}

static void shape_text(char text[96], const struct tensor_entry *tensor) {
  int at = snprintf(text, 96, "[");
  for (int i = 0; i < tensor->rank && at < 80; i++)
    at += snprintf(text + at, (size_t)(96 - at), "%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
  snprintf(text + at, (size_t)(96 - at), "]");
}

static enum eaglet_status find(struct binder *b, const struct tensor_entry **tensor, const char *suffix,
                               const char *tail) {
  *tensor = checkpoint_find(&b->model->checkpoint, full_name(b, suffix, tail));
  if (!*tensor) FAIL(b->err, EAGLET_E_INPUT, "%s: tensor %s is missing", b->model->checkpoint.path, b->name);
  return EAGLET_OK;
}

static bool is_float(enum dtype dtype) {
  return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}

/* F32 vector of n elements into the blob. adjacent: directly behind the last one, without padding. */
static enum eaglet_status bind_vector(struct binder *b, const float **vector, const char *suffix, int32_t n,
                                      bool adjacent) {
  const struct tensor_entry *tensor;
  TRY(find(b, &tensor, suffix, ""));
  bool row = tensor->rank == 1 || (tensor->rank == 2 && tensor->shape[0] == 1);
  if (!row || tensor->shape[tensor->rank - 1] != n) {
    char found[96];
    shape_text(found, tensor);
    FAIL(b->err, EAGLET_E_INPUT, "%s: %s: expected [%d], found %s", tensor->path, tensor->name, n, found);
  }
  TRY(tensor_expect_float(tensor, b->err));
  if (!adjacent) b->used = (b->used + 15) & ~(size_t)15;
  ASSERT(b->used + (size_t)n <= b->capacity);
  TRY(tensor_to_f32(b->host + b->used, tensor, (size_t)n, b->err));
  *vector = b->model->small + b->used;
  b->used += (size_t)n;
  b->model->n_vector_elements += (uint64_t)n;
  return EAGLET_OK;
}

/* n rows of n_in elements each into the blob, tight: biases of experts, norms of heads. */
static enum eaglet_status bind_matrix_vector(struct binder *b, const float **vector, const char *suffix, int32_t n,
                                             int32_t n_in) {
  const struct tensor_entry *tensor;
  TRY(find(b, &tensor, suffix, ""));
  if (tensor->rank != 2 || tensor->shape[0] != n || tensor->shape[1] != n_in || !is_float(tensor->dtype)) {
    char found[96];
    shape_text(found, tensor);
    FAIL(b->err, EAGLET_E_INPUT, "%s: %s: expected BF16, F16 or F32 [%d, %d], found %s %s", tensor->path, tensor->name, n,
         n_in, dtype_name(tensor->dtype), found);
  }
  size_t count = (size_t)n * (size_t)n_in;
  b->used = (b->used + 15) & ~(size_t)15;
  ASSERT(b->used + count <= b->capacity);
  dtype_to_f32(b->host + b->used, tensor->data, tensor->dtype, count);
  *vector = b->model->small + b->used;
  b->used += count;
  b->model->n_vector_elements += count;
  return EAGLET_OK;
}

static struct linear_source source_of(struct binder *b) {
  return (struct linear_source){.checkpoint = &b->model->checkpoint,
                                .quantization = &b->model->quantization,
                                .nibbles = &b->model->nibbles};
}

/* Is there a weight of this module in the layer at hand, in any format? */
static bool module_exists(struct binder *b, const char *module) {
  const struct linear_source source = source_of(b);
  return linear_exists(&source, full_name(b, module, ""));
}

/* A linear of the layer at hand; linear.c reads whatever format its tensors have. */
static enum eaglet_status bind_linear(struct binder *b, struct weight *weight, const char *base, int32_t n_out,
                                      int32_t n_in) {
  const struct linear_source source = source_of(b);
  TRY(linear_bind(weight, &source, full_name(b, base, ""), (const int32_t[]){n_out, n_in}, b->err));
  b->model->resident_bytes += weight_bytes(weight);
  return EAGLET_OK;
}

static enum eaglet_status bind_norm(struct binder *b, struct norm_weights *norm, const char *module, int32_t n) {
  const struct features *f = &b->model->arch.features;
  char name[NAME_MAX_LENGTH];
  if (!module) return EAGLET_OK;
  snprintf(name, sizeof name, "%s.weight", module);
  TRY(bind_vector(b, &norm->w, name, n, false));
  if (f->norm_plus_one) {
    for (int32_t i = 0; i < n; i++) b->host[b->used - (size_t)n + (size_t)i] += 1.0f;
  }
  if (!f->norm_bias) return EAGLET_OK;
  snprintf(name, sizeof name, "%s.bias", module);
  return bind_vector(b, &norm->bias, name, n, false);
}

static enum eaglet_status bind_bias(struct binder *b, const float **bias, const char *module, int32_t n,
                                    bool adjacent) {
  char name[NAME_MAX_LENGTH];
  snprintf(name, sizeof name, "%s.bias", module);
  return bind_vector(b, bias, name, n, adjacent);
}

static enum eaglet_status bind_scorer(struct binder *b, struct attention_weights *w) {
  const struct features *f = &b->model->arch.features;
  const struct sparse_features *sparse = &f->sparse;
  TRY(bind_linear(b, &w->index_q, "self_attn.indexer.wq_b", sparse->n_heads * sparse->head_dim, f->q_rank));
  TRY(bind_linear(b, &w->index_k, "self_attn.indexer.wk", sparse->head_dim, f->hidden));
  TRY(bind_linear(b, &w->index_share, "self_attn.indexer.weights_proj", sparse->n_heads, f->hidden));
  TRY(bind_vector(b, &w->index_k_norm.w, "self_attn.indexer.k_norm.weight", sparse->head_dim, false));
  return bind_vector(b, &w->index_k_norm.bias, "self_attn.indexer.k_norm.bias", sparse->head_dim, false);
}

static enum eaglet_status bind_mla(struct binder *b, struct attention_weights *w) {
  const struct features *f = &b->model->arch.features;
  int32_t q_width = f->n_heads * (f->nope_dim + f->rope_dim);
  if (f->q_rank > 0) {
    TRY(bind_linear(b, &w->q_a, "self_attn.q_a_proj", f->q_rank, f->hidden));
    TRY(bind_vector(b, &w->q_a_norm, "self_attn.q_a_layernorm.weight", f->q_rank, false));
    TRY(bind_linear(b, &w->q_b, "self_attn.q_b_proj", q_width, f->q_rank));
    if (f->attention_bias) TRY(bind_bias(b, &w->q_a_bias, "self_attn.q_a_proj", f->q_rank, false));
  } else {
    TRY(bind_linear(b, &w->q, "self_attn.q_proj", q_width, f->hidden));
  }
  TRY(bind_linear(b, &w->kv_a, "self_attn.kv_a_proj_with_mqa", f->kv_rank + f->rope_dim, f->hidden));
  TRY(bind_vector(b, &w->kv_a_norm, "self_attn.kv_a_layernorm.weight", f->kv_rank, false));
  TRY(bind_linear(b, &w->kv_b, "self_attn.kv_b_proj", f->n_heads * (f->nope_dim + f->value_dim), f->kv_rank));
  TRY(bind_linear(b, &w->o, "self_attn.o_proj", f->hidden, f->n_heads * f->value_dim));
  if (f->attention_bias)
    TRY(bind_bias(b, &w->kv_a_bias, "self_attn.kv_a_proj_with_mqa", f->kv_rank + f->rope_dim, false));
  if (f->attention_out_bias) TRY(bind_bias(b, &w->o_bias, "self_attn.o_proj", f->hidden, false));
  return f->sparse.n_kept > 0 ? bind_scorer(b, w) : EAGLET_OK;
}

/* A weight whose file may hold it as [in, out]. */
static enum eaglet_status bind_maybe_transposed(struct binder *b, struct weight *weight, const char *module,
                                                int32_t n_out, int32_t n_in) {
  if (!b->model->arch.row->transposed) return bind_linear(b, weight, module, n_out, n_in);
  const struct linear_stack stack = {.n_experts = 1, .n_out = n_out, .n_in = n_in, .transposed = true};
  const struct linear_source source = source_of(b);
  TRY(linear_bind_stack(weight, &source, full_name(b, module, ""), &stack, b->err));
  b->model->resident_bytes += weight_bytes(weight);
  return EAGLET_OK;
}

static enum eaglet_status bind_qkv(struct binder *b, struct attention_weights *w, int32_t q_width, int32_t kv_width) {
  const struct features *f = &b->model->arch.features;
  const struct layer_names *names = b->model->arch.row->layer;
  if (names->qkv && module_exists(b, names->qkv)) {
    struct weight qkv;
    const float *bias;
    TRY(bind_maybe_transposed(b, &qkv, names->qkv, q_width + 2 * kv_width, f->hidden));
    w->q = weight_rows(&qkv, 0, q_width);
    w->k = weight_rows(&qkv, q_width, kv_width);
    w->v = weight_rows(&qkv, q_width + kv_width, kv_width);
    if (!f->attention_bias) return EAGLET_OK;
    TRY(bind_bias(b, &bias, names->qkv, q_width + 2 * kv_width, false));
    w->q_bias = bias;
    w->k_bias = bias + q_width;
    w->v_bias = w->k_bias + kv_width;
    return EAGLET_OK;
  }
  TRY(bind_linear(b, &w->q, names->q, q_width, f->hidden));
  TRY(bind_linear(b, &w->k, names->k, kv_width, f->hidden));
  TRY(bind_linear(b, &w->v, names->v, kv_width, f->hidden));
  if (!f->attention_bias) return EAGLET_OK;
  TRY(bind_bias(b, &w->q_bias, names->q, q_width, false));
  TRY(bind_bias(b, &w->k_bias, names->k, kv_width, false));
  return bind_bias(b, &w->v_bias, names->v, kv_width, true); /* one add_bias serves both */
}

static enum eaglet_status bind_qk_norm(struct binder *b, const float **norm, const char *module, int32_t n_heads) {
  const struct features *f = &b->model->arch.features;
  struct norm_weights weights = {.w = NULL};
  if (f->qk_norm == QK_NORM_HEADS) {
    char name[NAME_MAX_LENGTH];
    snprintf(name, sizeof name, "%s.weight", module);
    return bind_matrix_vector(b, norm, name, n_heads, f->head_dim);
  }
  TRY(bind_norm(b, &weights, module, f->qk_norm == QK_NORM_WIDTH ? n_heads * f->head_dim : f->head_dim));
  *norm = weights.w;
  return EAGLET_OK;
}

static enum eaglet_status bind_gqa(struct binder *b, struct attention_weights *w) {
  const struct features *f = &b->model->arch.features;
  const struct layer_names *names = b->model->arch.row->layer;
  int32_t q_width = f->n_heads * f->head_dim, kv_width = f->n_kv_heads * f->head_dim;
  TRY(bind_qkv(b, w, q_width, kv_width));
  TRY(bind_maybe_transposed(b, &w->o, names->o, f->hidden, q_width));
  if (f->attention_out_bias) TRY(bind_bias(b, &w->o_bias, names->o, f->hidden, false));
  if (f->sinks) TRY(bind_vector(b, &w->sinks, "self_attn.sinks", f->n_heads, false));
  if (f->qk_norm == QK_NORM_NONE || f->qk_norm == QK_NORM_UNIT) return EAGLET_OK;
  TRY(bind_qk_norm(b, &w->q_norm, names->q_norm, f->n_heads));
  return bind_qk_norm(b, &w->k_norm, names->k_norm, f->n_kv_heads);
}

static void ffn_init(struct ffn_weights *w, int32_t n_experts, int32_t n_picked, bool gate, bool up) {
  size_t bytes = (size_t)n_experts * sizeof *w->gate;
  *w = (struct ffn_weights){.n_experts = n_experts,
                            .n_picked = n_picked,
                            .gate = gate ? memory_alloc(bytes) : NULL,
                            .up = up ? memory_alloc(bytes) : NULL,
                            .down = memory_alloc(bytes)};
}

static enum eaglet_status bind_dense(struct binder *b, struct ffn_weights *w) {
  const struct features *f = &b->model->arch.features;
  const struct layer_names *names = b->model->arch.row->layer;
  bool joint = names->gate_up && module_exists(b, names->gate_up);
  ffn_init(w, 1, 1, f->gated, true);
  if (joint) {
    struct weight gate_up;
    TRY(bind_linear(b, &gate_up, names->gate_up, 2 * f->intermediate, f->hidden));
    w->gate[0] = weight_rows(&gate_up, 0, f->intermediate);
    w->up[0] = weight_rows(&gate_up, f->intermediate, f->intermediate);
  } else {
    if (f->gated) TRY(bind_linear(b, &w->gate[0], names->gate, f->intermediate, f->hidden));
    TRY(bind_maybe_transposed(b, &w->up[0], names->up, f->intermediate, f->hidden));
  }
  TRY(bind_maybe_transposed(b, &w->down[0], names->down, f->hidden, f->intermediate));
  if (!f->ffn_bias) return EAGLET_OK;
  if (f->gated) TRY(bind_bias(b, &w->gate_bias, names->gate, f->intermediate, false));
  TRY(bind_bias(b, &w->up_bias, names->up, f->intermediate, false));
  return bind_bias(b, &w->down_bias, names->down, f->hidden, false);
}

/* Are the stacks stored as [E, in, out]? The shape of one says so unless its sides are equal; then that of the other does. */
static bool is_transposed(struct binder *b, const struct moe_names *names) {
  const struct features *f = &b->model->arch.features;
  const int32_t both = 2 * f->moe.intermediate, sides[2][2] = {{both, f->hidden}, {f->hidden, f->moe.intermediate}};
  const char *const modules[] = {names->stack_gate_up, names->stack_down};
  for (int i = 0; i < 2; i++) {
    const struct tensor_entry *tensor = checkpoint_peek(&b->model->checkpoint, full_name(b, modules[i], ""));
    if (!tensor) tensor = checkpoint_peek(&b->model->checkpoint, full_name(b, modules[i], ".weight"));
    if (tensor && tensor->rank == 3 && sides[i][0] != sides[i][1])
      return tensor->shape[1] == sides[i][1] && tensor->shape[2] == sides[i][0];
  }
  return names->stack_transposed;
}

/* Experts in two tensors per layer. */
static enum eaglet_status bind_stacks(struct binder *b, struct ffn_weights *w, const struct moe_names *names) {
  const struct features *f = &b->model->arch.features;
  const struct linear_source source = source_of(b);
  struct linear_stack stack = {.n_experts = f->moe.n_experts,
                               .n_out = 2 * f->moe.intermediate,
                               .n_in = f->hidden,
                               .transposed = is_transposed(b, names)};
  ffn_init(w, f->moe.n_experts, f->moe.n_picked, true, false);
  w->layout = names->stack_layout;
  TRY(linear_bind_stack(w->gate, &source, full_name(b, names->stack_gate_up, ""), &stack, b->err));
  stack.n_out = f->hidden;
  stack.n_in = f->moe.intermediate;
  TRY(linear_bind_stack(w->down, &source, full_name(b, names->stack_down, ""), &stack, b->err));
  for (int32_t e = 0; e < f->moe.n_experts; e++)
    b->model->resident_bytes += weight_bytes(&w->gate[e]) + weight_bytes(&w->down[e]);
  if (!exists(b, names->stack_down, "_bias")) return EAGLET_OK;
  char name[NAME_MAX_LENGTH];
  snprintf(name, sizeof name, "%s_bias", names->stack_gate_up);
  TRY(bind_matrix_vector(b, &w->gate_bias, name, f->moe.n_experts, 2 * f->moe.intermediate));
  snprintf(name, sizeof name, "%s_bias", names->stack_down);
  return bind_matrix_vector(b, &w->down_bias, name, f->moe.n_experts, f->hidden);
}

static enum eaglet_status bind_single_experts(struct binder *b, struct ffn_weights *w, const struct moe_names *names) {
  const struct features *f = &b->model->arch.features;
  char base[128];
  ffn_init(w, f->moe.n_experts, f->moe.n_picked, true, true);
  for (int32_t e = 0; e < f->moe.n_experts; e++) {
    snprintf(base, sizeof base, "%s%d.%s", names->expert, e, names->gate);
    TRY(bind_linear(b, &w->gate[e], base, f->moe.intermediate, f->hidden));
    snprintf(base, sizeof base, "%s%d.%s", names->expert, e, names->up);
    TRY(bind_linear(b, &w->up[e], base, f->moe.intermediate, f->hidden));
    snprintf(base, sizeof base, "%s%d.%s", names->expert, e, names->down);
    TRY(bind_linear(b, &w->down[e], base, f->hidden, f->moe.intermediate));
  }
  return EAGLET_OK;
}

/* One linear of the shared expert, with its bias where the checkpoint has one. */
static enum eaglet_status bind_shared_part(struct binder *b, struct weight *weight, const float **bias, const char *base,
                                           const int32_t shape[2]) {
  TRY(bind_linear(b, weight, base, shape[0], shape[1]));
  return exists(b, base, ".bias") ? bind_bias(b, bias, base, shape[0], false) : EAGLET_OK;
}

static enum eaglet_status bind_shared(struct binder *b, struct ffn_weights *w, const struct moe_names *names) {
  const struct features *f = &b->model->arch.features;
  const int32_t width = f->moe.shared_intermediate, in[] = {width, f->hidden}, out[] = {f->hidden, width};
  char base[128];
  if (width == 0) return EAGLET_OK;
  if (names->shared_joint) {
    struct weight joint;
    TRY(bind_linear(b, &joint, names->shared_joint, 2 * width, f->hidden));
    w->shared_gate = weight_rows(&joint, 0, width);
    w->shared_up = weight_rows(&joint, width, width);
    return bind_linear(b, &w->shared_down, names->shared_down, f->hidden, width);
  }
  snprintf(base, sizeof base, "%sgate_proj", names->shared);
  TRY(bind_shared_part(b, &w->shared_gate, &w->shared_gate_bias, base, in));
  snprintf(base, sizeof base, "%sup_proj", names->shared);
  TRY(bind_shared_part(b, &w->shared_up, &w->shared_up_bias, base, in));
  snprintf(base, sizeof base, "%sdown_proj", names->shared);
  TRY(bind_shared_part(b, &w->shared_down, &w->shared_down_bias, base, out));
  return names->shared_gate ? bind_linear(b, &w->shared_share, names->shared_gate, 1, f->hidden) : EAGLET_OK;
}

/* Selection depends on differences far below BF16's step: the bias stays F32 as stored (bug case A23). */
static enum eaglet_status bind_correction(struct binder *b, struct ffn_weights *w, const struct moe_names *names) {
  char name[128];
  for (const char *at = names->correction_bias;;) {
    size_t n = strcspn(at, "|");
    snprintf(name, sizeof name, "%.*s", (int)n, at);
    if (!at[n] || exists(b, name, "")) return bind_vector(b, &w->correction_bias, name, w->n_experts, false);
    at += n + 1;
  }
}

static enum eaglet_status bind_experts(struct binder *b, struct ffn_weights *w, const struct moe_names *names) {
  const struct features *f = &b->model->arch.features;
  char first[128];
  snprintf(first, sizeof first, "%s0.%s", names->expert, names->gate ? names->gate : "");
  bool single = names->gate && module_exists(b, first);
  TRY(single || !names->stack_gate_up ? bind_single_experts(b, w, names) : bind_stacks(b, w, names));
  TRY(bind_linear(b, &w->router, names->router, f->moe.n_experts, f->hidden));
  if (f->moe.router_bias) TRY(bind_bias(b, &w->router_bias, names->router, f->moe.n_experts, false));
  if (f->moe.correction_bias) TRY(bind_correction(b, w, names));
  return bind_shared(b, w, names);
}

static enum eaglet_status bind_layer(struct binder *b, struct layer_weights *layer) {
  const struct arch *arch = &b->model->arch;
  const struct layer_names *names = arch->row->layer;
  const struct moe_names *experts = arch->features.moe.n_experts > 0 ? b->moe_names : NULL;
  int32_t hidden = arch->features.hidden;
  bool moe = arch->features.layers[b->layer].moe;
  if (arch->features.layers[b->layer].skip) return EAGLET_OK;
  TRY(bind_norm(b, &layer->attention_in, names->attention_in, hidden));
  TRY(bind_norm(b, &layer->attention_out, names->attention_out, hidden));
  TRY(bind_norm(b, &layer->ffn_in, names->ffn_in, hidden));
  TRY(bind_norm(b, &layer->ffn_out, names->ffn_out, hidden));
  TRY(arch->features.attention == ATTENTION_MLA ? bind_mla(b, &layer->attention) : bind_gqa(b, &layer->attention));
  if (experts && exists(b, experts->router, ".weight") != moe) {
    FAIL(b->err, EAGLET_E_INPUT, "%s: layer %d: config.json says %s, but %s %s", b->model->checkpoint.path, b->layer,
         moe ? "mixture of experts" : "dense", b->name, moe ? "is missing" : "exists");
  }
  return moe && experts ? bind_experts(b, &layer->ffn, experts) : bind_dense(b, &layer->ffn);
}

static bool ends_with(const char *text, const char *suffix) {
  size_t n = strlen(text), m = strlen(suffix);
  return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* Upper bound of the blob: every vector-like tensor whose name starts so, each padded. */
static size_t count_small(const struct checkpoint *checkpoint, const char *prefix) {
  size_t n = 0;
  for (size_t i = 0; i < checkpoint->n_tensors; i++) {
    const struct tensor_entry *tensor = checkpoint->tensors[i];
    if (strncmp(tensor->name, prefix, strlen(prefix)) != 0) continue;
    bool row = tensor->rank == 1 || (tensor->rank == 2 && tensor->shape[0] == 1);
    bool per_head = tensor->rank == 2 && (ends_with(tensor->name, "_norm.weight") || ends_with(tensor->name, "_bias"));
    if ((row || per_head) && is_float(tensor->dtype)) n += (size_t)(tensor->n_bytes / 2) + 16;
  }
  return n + 16;
}

/* Base of a linear's names: without the trailing ".weight". */
static void base_name(char base[NAME_MAX_LENGTH], const char *name) {
  size_t n = strlen(name), tail = strlen(".weight");
  snprintf(base, NAME_MAX_LENGTH, "%.*s", (int)(n > tail ? n - tail : 0), name);
}

static enum eaglet_status bind_all(struct binder *b) {
  struct model *model = b->model;
  const struct features *f = &model->arch.features;
  const char *prefix = model->arch.chain.prefix, *final = model->arch.row->final_norm;
  char name[NAME_MAX_LENGTH];
  b->layer = -1;
  base_name(name, model->arch.chain.embed_name);
  int32_t rows = (int32_t)checkpoint_peek(&model->checkpoint, model->arch.chain.embed_name)->shape[0];
  TRY(bind_linear(b, &model->embed, name, rows, f->hidden));
  model->embed = weight_rows(&model->embed, 0, f->n_vocab); /* more rows only where the family says so */
  base_name(name, model->arch.chain.head_name);
  if (f->tied_head)
    model->head = model->embed;
  else
    TRY(bind_linear(b, &model->head, name, f->n_vocab, f->hidden));
  if (model->arch.chain.head_bias_name[0])
    TRY(bind_vector(b, &model->head_bias, model->arch.chain.head_bias_name, f->n_vocab, false));
  snprintf(name, sizeof name, "%swpe", prefix);
  if (f->learned_positions) TRY(bind_linear(b, &model->position_embed, name, f->positions_max, f->hidden));
  snprintf(name, sizeof name, "%s%s", prefix, final ? final : "norm");
  TRY(bind_norm(b, &model->norm, name, f->hidden));
  b->moe_names = arch_moe_names(&model->arch, &model->checkpoint);
  model->layers = memory_alloc((size_t)f->n_layers * sizeof *model->layers);
  for (b->layer = 0; b->layer < f->n_layers; b->layer++) TRY(bind_layer(b, &model->layers[b->layer]));
  model->compute->upload(model->compute, model->small, b->host, b->used * sizeof(float));
  model->resident_bytes += b->used * sizeof(float);
  return EAGLET_OK;
}

enum eaglet_status model_bind(struct model *model, struct eaglet_error *err) {
  struct binder binder = {.model = model, .capacity = count_small(&model->checkpoint, ""), .err = err};
  model->small = model->compute->alloc(model->compute, binder.capacity * sizeof(float));
  binder.host = memory_try(binder.capacity * sizeof(float));
  enum eaglet_status status;
  if (!model->small || !binder.host)
    status = error_set(err, EAGLET_E_RESOURCE, "no memory for %zu floats of norms and biases", binder.capacity);
  else
    status = bind_all(&binder);
  memory_try_free(binder.host);
  return status;
}

/* ---- a prediction layer ---- */

static enum eaglet_status bind_prediction_parts(struct binder *b, struct prediction_weights *w) {
  const struct model *model = b->model;
  const struct features *f = &model->arch.features;
  TRY(bind_linear(b, &w->join, "eh_proj", f->hidden, 2 * f->hidden));
  TRY(bind_norm(b, &w->embed_norm, "enorm", f->hidden));
  TRY(bind_norm(b, &w->feature_norm, "hnorm", f->hidden));
  TRY(bind_norm(b, &w->norm, "shared_head.norm", f->hidden));
  w->own_embed = module_exists(b, "embed_tokens");
  w->own_head = module_exists(b, "shared_head.head");
  w->embed = model->embed;
  w->head = model->head;
  if (w->own_embed) TRY(bind_linear(b, &w->embed, "embed_tokens", f->n_vocab, f->hidden));
  if (w->own_head) TRY(bind_linear(b, &w->head, "shared_head.head", f->n_vocab, f->hidden));
  return EAGLET_OK;
}

enum eaglet_status model_bind_prediction(struct model *model, struct prediction_weights *w, struct eaglet_error *err) {
  struct binder b = {.model = model, .layer = model->arch.features.n_layers, .err = err};
  struct compute *c = model->compute;
  char prefix[NAME_MAX_LENGTH];
  snprintf(prefix, sizeof prefix, "%s%d.", model->arch.chain.layers_prefix, b.layer);
  b.capacity = count_small(&model->checkpoint, prefix);
  b.moe_names = arch_moe_names(&model->arch, &model->checkpoint);
  b.host = memory_try(b.capacity * sizeof(float));
  model->small = w->small = c->alloc(c, b.capacity * sizeof(float));
  enum eaglet_status status = b.host && w->small
                                  ? bind_prediction_parts(&b, w)
                                  : error_set(err, EAGLET_E_RESOURCE, "no memory for %zu floats of norms and biases", b.capacity);
  if (status == EAGLET_OK) {
    model->arch.features.layers[b.layer].moe = b.moe_names && exists(&b, b.moe_names->router, ".weight");
    status = bind_layer(&b, &w->layer);
  }
  if (status == EAGLET_OK) c->upload(c, w->small, b.host, b.used * sizeof(float));
  memory_try_free(b.host);
  return status;
}
