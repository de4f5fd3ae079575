/* bind.c - weights of every layer, found by name and checked by shape and dtype; see bind.h. Linears stay in the mapped
 * file, vectors (norms, biases) become F32 in one device blob. The hard part is completeness: whatever is not bound
 * must be explained (bind_unused.c). */
#include "model/bind.h"

#include "base/memory.h"
#include "model/arch_table.h"
#include "model/linear.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LENGTH 320

struct binder {
  struct model *model;
  float *host;                /* staging of model->small, same layout */
  size_t used, capacity;      /* floats */
  int32_t layer;              /* -1 outside layers */
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
  if (!is_float(tensor->dtype))
    FAIL(b->err, EAGLET_E_INPUT, "%s: %s: expected BF16, F16 or F32, found %s", tensor->path, tensor->name,
         dtype_name(tensor->dtype));
  if (!adjacent) b->used = (b->used + 15) & ~(size_t)15;
  ASSERT(b->used + (size_t)n <= b->capacity);
  dtype_to_f32(b->host + b->used, tensor->data, tensor->dtype, (size_t)n);
  for (int32_t i = 0; i < n; i++) {
    if (!isfinite(b->host[b->used + (size_t)i]))
      FAIL(b->err, EAGLET_E_INPUT, "%s: %s: element %d is not finite", tensor->path, tensor->name, i);
  }
  *vector = b->model->small + b->used;
  b->used += (size_t)n;
  return EAGLET_OK;
}

/* A linear of the layer at hand; linear.c reads whatever format its tensors have. */
static enum eaglet_status bind_linear(struct binder *b, struct weight *weight, const char *base, int32_t n_out,
                                      int32_t n_in) {
  const struct linear_source source = {.checkpoint = &b->model->checkpoint,
                                       .quantization = &b->model->quantization,
                                       .nibbles = &b->model->nibbles};
  TRY(linear_bind(weight, &source, full_name(b, base, ""), (const int32_t[]){n_out, n_in}, b->err));
  b->model->resident_bytes += weight_bytes(weight);
  return EAGLET_OK;
}

static enum eaglet_status bind_mla(struct binder *b, struct attention_weights *w) {
  const struct features *f = &b->model->arch.features;
  int32_t q_width = f->n_heads * (f->nope_dim + f->rope_dim);
  if (f->q_rank > 0) {
    TRY(bind_linear(b, &w->q_a, "self_attn.q_a_proj", f->q_rank, f->hidden));
    TRY(bind_vector(b, &w->q_a_norm, "self_attn.q_a_layernorm.weight", f->q_rank, false));
    TRY(bind_linear(b, &w->q_b, "self_attn.q_b_proj", q_width, f->q_rank));
    if (f->attention_bias) TRY(bind_vector(b, &w->q_a_bias, "self_attn.q_a_proj.bias", f->q_rank, false));
  } else {
    TRY(bind_linear(b, &w->q, "self_attn.q_proj", q_width, f->hidden));
  }
  TRY(bind_linear(b, &w->kv_a, "self_attn.kv_a_proj_with_mqa", f->kv_rank + f->rope_dim, f->hidden));
  TRY(bind_vector(b, &w->kv_a_norm, "self_attn.kv_a_layernorm.weight", f->kv_rank, false));
  TRY(bind_linear(b, &w->kv_b, "self_attn.kv_b_proj", f->n_heads * (f->nope_dim + f->value_dim), f->kv_rank));
  TRY(bind_linear(b, &w->o, "self_attn.o_proj", f->hidden, f->n_heads * f->value_dim));
  if (f->attention_bias)
    TRY(bind_vector(b, &w->kv_a_bias, "self_attn.kv_a_proj_with_mqa.bias", f->kv_rank + f->rope_dim, false));
  if (f->attention_out_bias) TRY(bind_vector(b, &w->o_bias, "self_attn.o_proj.bias", f->hidden, false));
  return EAGLET_OK;
}

static enum eaglet_status bind_gqa(struct binder *b, struct attention_weights *w) {
  const struct features *f = &b->model->arch.features;
  int32_t q_width = f->n_heads * f->head_dim, kv_width = f->n_kv_heads * f->head_dim;
  if (b->model->arch.row->fused) {
    struct weight qkv;
    TRY(bind_linear(b, &qkv, "self_attn.qkv_proj", q_width + 2 * kv_width, f->hidden));
    w->q = weight_rows(&qkv, 0, q_width);
    w->k = weight_rows(&qkv, q_width, kv_width);
    w->v = weight_rows(&qkv, q_width + kv_width, kv_width);
  } else {
    TRY(bind_linear(b, &w->q, "self_attn.q_proj", q_width, f->hidden));
    TRY(bind_linear(b, &w->k, "self_attn.k_proj", kv_width, f->hidden));
    TRY(bind_linear(b, &w->v, "self_attn.v_proj", kv_width, f->hidden));
  }
  TRY(bind_linear(b, &w->o, "self_attn.o_proj", f->hidden, q_width));
  if (f->attention_bias) {
    TRY(bind_vector(b, &w->q_bias, "self_attn.q_proj.bias", q_width, false));
    TRY(bind_vector(b, &w->k_bias, "self_attn.k_proj.bias", kv_width, false));
    TRY(bind_vector(b, &w->v_bias, "self_attn.v_proj.bias", kv_width, true)); /* one add_bias serves both */
  }
  if (f->attention_out_bias) TRY(bind_vector(b, &w->o_bias, "self_attn.o_proj.bias", f->hidden, false));
  if (!f->qk_norm) return EAGLET_OK;
  TRY(bind_vector(b, &w->q_norm, "self_attn.q_norm.weight", f->head_dim, false));
  return bind_vector(b, &w->k_norm, "self_attn.k_norm.weight", f->head_dim, false);
}

static void ffn_init(struct ffn_weights *w, int32_t n_experts, int32_t n_picked) {
  size_t bytes = (size_t)n_experts * sizeof *w->gate;
  *w = (struct ffn_weights){.n_experts = n_experts,
                            .n_picked = n_picked,
                            .gate = memory_alloc(bytes),
                            .up = memory_alloc(bytes),
                            .down = memory_alloc(bytes)};
}

static enum eaglet_status bind_dense(struct binder *b, struct ffn_weights *w) {
  const struct features *f = &b->model->arch.features;
  ffn_init(w, 1, 1);
  if (b->model->arch.row->fused) {
    struct weight gate_up;
    TRY(bind_linear(b, &gate_up, "mlp.gate_up_proj", 2 * f->intermediate, f->hidden));
    w->gate[0] = weight_rows(&gate_up, 0, f->intermediate);
    w->up[0] = weight_rows(&gate_up, f->intermediate, f->intermediate);
  } else {
    TRY(bind_linear(b, &w->gate[0], "mlp.gate_proj", f->intermediate, f->hidden));
    TRY(bind_linear(b, &w->up[0], "mlp.up_proj", f->intermediate, f->hidden));
  }
  return bind_linear(b, &w->down[0], "mlp.down_proj", f->hidden, f->intermediate);
}

static enum eaglet_status bind_experts(struct binder *b, struct ffn_weights *w) {
  const struct features *f = &b->model->arch.features;
  const struct moe_names *names = b->model->arch.row->names;
  char base[96];
  ffn_init(w, f->moe.n_experts, f->moe.n_picked);
  TRY(bind_linear(b, &w->router, names->router, f->moe.n_experts, f->hidden));
  /* Selection depends on differences far below BF16's step: the bias stays F32 as stored (bug case A23). */
  if (f->moe.router == ROUTER_SIGMOID_BIAS)
    TRY(bind_vector(b, &w->router_bias, names->router_bias, f->moe.n_experts, false));
  for (int32_t e = 0; e < f->moe.n_experts; e++) {
    snprintf(base, sizeof base, "%s%d.%s", names->expert, e, names->gate);
    TRY(bind_linear(b, &w->gate[e], base, f->moe.intermediate, f->hidden));
    snprintf(base, sizeof base, "%s%d.%s", names->expert, e, names->up);
    TRY(bind_linear(b, &w->up[e], base, f->moe.intermediate, f->hidden));
    snprintf(base, sizeof base, "%s%d.%s", names->expert, e, names->down);
    TRY(bind_linear(b, &w->down[e], base, f->hidden, f->moe.intermediate));
  }
  if (f->moe.n_shared == 0) return EAGLET_OK;
  int32_t width = f->moe.intermediate * f->moe.n_shared;
  snprintf(base, sizeof base, "%sgate_proj", names->shared);
  TRY(bind_linear(b, &w->shared_gate, base, width, f->hidden));
  snprintf(base, sizeof base, "%sup_proj", names->shared);
  TRY(bind_linear(b, &w->shared_up, base, width, f->hidden));
  snprintf(base, sizeof base, "%sdown_proj", names->shared);
  return bind_linear(b, &w->shared_down, base, f->hidden, width);
}

bool arch_layer_is_moe(const struct arch *arch, int32_t layer) {
  const struct moe_features *moe = &arch->features.moe;
  if (moe->n_experts == 0) return false;
  if (arch->row->moe != MOE_SPARSE_STEP) return layer >= moe->first_dense && layer % moe->layer_freq == 0;
  size_t i;
  json_t *value;
  json_array_foreach(json_object_get(arch->config, "mlp_only_layers"), i, value) {
    if (json_is_integer(value) && json_integer_value(value) == layer) return false;
  }
  return (layer + 1) % moe->layer_freq == 0;
}

static enum eaglet_status bind_layer(struct binder *b, struct layer_weights *layer) {
  const struct arch *arch = &b->model->arch;
  bool moe = arch_layer_is_moe(arch, b->layer);
  TRY(bind_vector(b, &layer->attention_norm, "input_layernorm.weight", arch->features.hidden, false));
  TRY(bind_vector(b, &layer->ffn_norm, "post_attention_layernorm.weight", arch->features.hidden, false));
  TRY(arch->features.attention == ATTENTION_MLA ? bind_mla(b, &layer->attention) : bind_gqa(b, &layer->attention));
  if (arch->row->names && exists(b, arch->row->names->router, ".weight") != moe) {
    FAIL(b->err, EAGLET_E_INPUT, "%s: layer %d: config.json says %s, but %s %s", b->model->checkpoint.path, b->layer,
         moe ? "mixture of experts" : "dense", b->name, moe ? "is missing" : "exists");
  }
  return moe ? bind_experts(b, &layer->ffn) : bind_dense(b, &layer->ffn);
}

/* Upper bound of the blob: every vector-like tensor, each padded. */
static size_t count_small(const struct checkpoint *checkpoint) {
  size_t n = 0;
  for (size_t i = 0; i < checkpoint->n_tensors; i++) {
    const struct tensor_entry *tensor = checkpoint->tensors[i];
    bool row = tensor->rank == 1 || (tensor->rank == 2 && tensor->shape[0] == 1);
    if (row && is_float(tensor->dtype)) n += (size_t)tensor->shape[tensor->rank - 1] + 16;
  }
  return n + 16;
}

/* Base of a linear's names: without the trailing ".weight". */
static void base_name(char base[NAME_MAX_LENGTH], const char *name) {
  snprintf(base, NAME_MAX_LENGTH, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
}

static enum eaglet_status bind_all(struct binder *b) {
  struct model *model = b->model;
  const struct features *f = &model->arch.features;
  char base[NAME_MAX_LENGTH], norm[NAME_MAX_LENGTH];
  b->layer = -1;
  base_name(base, model->arch.chain.embed_name);
  TRY(bind_linear(b, &model->embed, base, f->n_vocab, f->hidden));
  if (f->tied_head) {
    model->head = model->embed;
  } else {
    base_name(base, model->arch.chain.head_name);
    TRY(bind_linear(b, &model->head, base, f->n_vocab, f->hidden));
  }
  snprintf(norm, sizeof norm, "%snorm.weight", model->arch.chain.prefix);
  TRY(bind_vector(b, &model->norm, norm, f->hidden, false));
  model->layers = memory_alloc((size_t)f->n_layers * sizeof *model->layers);
  for (b->layer = 0; b->layer < f->n_layers; b->layer++) TRY(bind_layer(b, &model->layers[b->layer]));
  model->compute->upload(model->compute, model->small, b->host, b->used * sizeof(float));
  model->resident_bytes += b->used * sizeof(float);
  return EAGLET_OK;
}

enum eaglet_status model_bind(struct model *model, struct eaglet_error *err) {
  struct binder binder = {.model = model, .capacity = count_small(&model->checkpoint), .err = err};
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
