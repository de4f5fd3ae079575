/* head_bind.c - from a head's tensors to weights; see head_internal.h. Owns the spellings that tensors have in the dialects.
 * Linears stay in the mapped file, in whatever format the target's binding knows; vectors become F32 in one device blob.
 * The hard part is completeness: what a tensor shows must not contradict what config.json claims, and none is left over. */
#include "draft/head_internal.h"

#include "base/memory.h"
#include "model/bind.h"
#include "model/linear.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct head_binder {
  struct head *head;        /* NULL while only the vocabulary is read */
  struct checkpoint *files; /* the head's */
  float *host;           /* staging of head->small, same layout */
  size_t used, capacity; /* floats */
  char name[256];        /* of the tensor or module at hand, as this file spells it */
  struct eaglet_error *err;
};

/* ---- spellings ---- */

/* Start of a canonical name and the other ways to write it. */
static const struct {
  const char *canonical, *other;
} spellings[] = {{"layers.0.", "midlayer."},         {"layers.1.", "additional_layers.0."}, {"layers.2.", "additional_layers.1."},
                 {"layers.3.", "additional_layers.2."}, {"fc_norm.0.", "aux_norm_low."},    {"fc_norm.1.", "aux_norm_mid."},
                 {"fc_norm.2.", "aux_norm_high."}};

void head_name_canonical(char out[256], const char *name) {
  if (strncmp(name, "model.", 6) == 0) name += 6;
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
    size_t length = strlen(spellings[i].other);
    if (strncmp(name, spellings[i].other, length) != 0) continue;
    snprintf(out, 256, "%s%s", spellings[i].canonical, name + length);
    return;
  }
  snprintf(out, 256, "%s", name);
}

/* Layers behind the first have one norm before attention; what it is called depends on who reads. */
void head_name_spell(char out[256], const char *canonical, enum head_dialect dialect) {
  static const char first[] = "layers.0.", list[] = "layers.", usual[] = ".input_layernorm.weight", other[] = ".hidden_norm.weight";
  bool in_layer = strncmp(canonical, list, sizeof list - 1) == 0, in_first = strncmp(canonical, first, sizeof first - 1) == 0;
  const char *rest = in_layer ? strchr(canonical + sizeof list - 1, '.') : NULL;
  const char *from = dialect == HEAD_DIALECT_SGLANG ? usual : other, *to = dialect == HEAD_DIALECT_SGLANG ? other : usual;
  if (in_first && dialect == HEAD_DIALECT_SGLANG)
    snprintf(out, 256, "midlayer.%s", canonical + sizeof first - 1);
  else if (rest && !in_first && strcmp(rest, from) == 0)
    snprintf(out, 256, "%.*s%s", (int)(rest - canonical), canonical, to);
  else
    snprintf(out, 256, "%s", canonical);
}

/* Is a tensor's canonical name the wanted one, or that of a part of the wanted module? */
static bool is_part(const char *canonical, const char *wanted, bool module) {
  size_t length = strlen(wanted);
  if (strncmp(canonical, wanted, length) != 0) return false;
  return canonical[length] == '\0' || (module && canonical[length] == '.');
}

/* b->name = how this file spells a canonical name; false when it has no such tensor. Two spellings of one are refused. */
static enum eaglet_status spell(struct head_binder *b, bool *found, const char *wanted, bool module) {
  const struct checkpoint *files = b->files;
  *found = false;
  snprintf(b->name, sizeof b->name, "%s", wanted);
  for (size_t i = 0; i < files->n_tensors; i++) {
    char canonical[256], spelled[256];
    const char *name = files->tensors[i]->name;
    if (strlen(name) >= sizeof canonical - 32) continue; /* left over, and refused as unknown */
    head_name_canonical(canonical, name);
    if (!is_part(canonical, wanted, module)) continue;
    size_t tail = strlen(canonical) - strlen(wanted);
    snprintf(spelled, sizeof spelled, "%.*s", (int)(strlen(name) - tail), name);
    if (*found && strcmp(spelled, b->name) != 0)
      FAIL(b->err, EAGLET_E_INPUT, "%s: both %s and its other spelling %s exist", files->path, b->name, spelled);
    *found = true;
    snprintf(b->name, sizeof b->name, "%s", spelled);
  }
  return EAGLET_OK;
}

/* The tensor of a canonical name, or NULL; marks it used. */
static enum eaglet_status find(struct head_binder *b, const struct tensor_entry **tensor, const char *wanted) {
  bool found;
  TRY(spell(b, &found, wanted, false));
  *tensor = found ? checkpoint_find(b->files, b->name) : NULL;
  return EAGLET_OK;
}

static enum eaglet_status exists(struct head_binder *b, bool *found, const char *format, ...) PRINTF_LIKE(3, 4);
static enum eaglet_status exists(struct head_binder *b, bool *found, const char *format, ...) {
  char wanted[128];
  va_list args;
  va_start(args, format);
  vsnprintf(wanted, sizeof wanted, format, args);
  va_end(args);
  return spell(b, found, wanted, false);
}

/* ---- weights and vectors ---- */

static enum eaglet_status bind_linear(struct head_binder *b, struct weight *weight, const char *module, int32_t n_out,
                                      int32_t n_in) {
  struct head *head = b->head;
  struct nibble_check ignored = {.tensor = ""};
  const struct linear_source source = {
      .checkpoint = &head->files, .quantization = &head->quantization, .nibbles = &ignored};
  bool found;
  TRY(spell(b, &found, module, true));
  if (!found) FAIL(b->err, EAGLET_E_INPUT, "%s: %s.weight: missing", head->files.path, module);
  return linear_bind(weight, &source, b->name, (const int32_t[]){n_out, n_in}, b->err);
}

/* adjacent: directly behind the last vector, without padding. */
static enum eaglet_status bind_vector(struct head_binder *b, const float **vector, const char *wanted, int32_t n,
                                      bool adjacent) {
  const struct tensor_entry *tensor;
  TRY(find(b, &tensor, wanted));
  if (!tensor) FAIL(b->err, EAGLET_E_INPUT, "%s: %s: missing", b->files->path, wanted);
  if (tensor->rank != 1 || tensor->shape[0] != n)
    FAIL(b->err, EAGLET_E_INPUT, "%s: %s: expected [%d] by config.json, found %d axes, the first of %lld", tensor->path,
         tensor->name, n, tensor->rank, tensor->rank > 0 ? (long long)tensor->shape[0] : 0);
  TRY(tensor_expect_float(tensor, b->err));
  if (!adjacent) b->used = (b->used + 15) & ~(size_t)15;
  ASSERT(b->used + (size_t)n <= b->capacity);
  TRY(tensor_to_f32(b->host + b->used, tensor, (size_t)n, b->err));
  *vector = b->head->small + b->used;
  b->used += (size_t)n;
  return EAGLET_OK;
}

static enum eaglet_status bind_norm(struct head_binder *b, const float **norm, const char *module, int32_t n) {
  char wanted[160];
  snprintf(wanted, sizeof wanted, "%s.weight", module);
  return bind_vector(b, norm, wanted, n, false);
}

static enum eaglet_status bind_bias(struct head_binder *b, const float **bias, const char *module, int32_t n, bool adjacent) {
  char wanted[160];
  snprintf(wanted, sizeof wanted, "%s.bias", module);
  return bind_vector(b, bias, wanted, n, adjacent);
}

/* Tensors show whether a part exists; a claim that says otherwise is refused. */
static enum eaglet_status settle(struct head_binder *b, bool *value, enum head_claim claim, const char *field, const char *part) {
  TRY(exists(b, value, "%s", part));
  if (claim == (*value ? CLAIM_FALSE : CLAIM_TRUE))
    FAIL(b->err, EAGLET_E_INPUT, "%s: config.json says %s %s, but %s %s", b->files->path, field,
         *value ? "false" : "true", *value ? b->name : part, *value ? "exists" : "is missing");
  return EAGLET_OK;
}

/* ---- layers ---- */

/* "layers.2.self_attn.q_proj" */
struct layer_name {
  char text[128];
};
static struct layer_name in_layer(int32_t layer, const char *module) {
  struct layer_name name;
  snprintf(name.text, sizeof name.text, "layers.%d.%s", layer, module);
  return name;
}

static enum eaglet_status bind_gqa(struct head_binder *b, struct attention_weights *w, int32_t layer, int32_t n_in) {
  const struct head_config *c = &b->head->config;
  int32_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
  TRY(bind_linear(b, &w->q, in_layer(layer, "self_attn.q_proj").text, q, n_in));
  TRY(bind_linear(b, &w->k, in_layer(layer, "self_attn.k_proj").text, kv, n_in));
  TRY(bind_linear(b, &w->v, in_layer(layer, "self_attn.v_proj").text, kv, n_in));
  TRY(bind_linear(b, &w->o, in_layer(layer, "self_attn.o_proj").text, c->hidden, q));
  if (c->attention_bias) {
    TRY(bind_bias(b, &w->q_bias, in_layer(layer, "self_attn.q_proj").text, q, false));
    TRY(bind_bias(b, &w->k_bias, in_layer(layer, "self_attn.k_proj").text, kv, false));
    TRY(bind_bias(b, &w->v_bias, in_layer(layer, "self_attn.v_proj").text, kv, true)); /* one add_bias serves both */
  }
  if (!c->qk_norm) return EAGLET_OK;
  TRY(bind_norm(b, &w->q_norm, in_layer(layer, "self_attn.q_norm").text, c->head_dim));
  return bind_norm(b, &w->k_norm, in_layer(layer, "self_attn.k_norm").text, c->head_dim);
}

static enum eaglet_status bind_mla(struct head_binder *b, struct attention_weights *w, int32_t layer, int32_t n_in) {
  const struct head_config *c = &b->head->config;
  int32_t q = c->n_heads * (c->nope_dim + c->rope_dim);
  if (c->q_rank > 0) {
    TRY(bind_linear(b, &w->q_a, in_layer(layer, "self_attn.q_a_proj").text, c->q_rank, n_in));
    TRY(bind_norm(b, &w->q_a_norm, in_layer(layer, "self_attn.q_a_layernorm").text, c->q_rank));
    TRY(bind_linear(b, &w->q_b, in_layer(layer, "self_attn.q_b_proj").text, q, c->q_rank));
    if (c->attention_bias) TRY(bind_bias(b, &w->q_a_bias, in_layer(layer, "self_attn.q_a_proj").text, c->q_rank, false));
  } else {
    TRY(bind_linear(b, &w->q, in_layer(layer, "self_attn.q_proj").text, q, n_in));
  }
  TRY(bind_linear(b, &w->kv_a, in_layer(layer, "self_attn.kv_a_proj_with_mqa").text, c->kv_rank + c->rope_dim, n_in));
  TRY(bind_norm(b, &w->kv_a_norm, in_layer(layer, "self_attn.kv_a_layernorm").text, c->kv_rank));
  TRY(bind_linear(b, &w->kv_b, in_layer(layer, "self_attn.kv_b_proj").text, c->n_heads * (c->nope_dim + c->value_dim),
                  c->kv_rank));
  TRY(bind_linear(b, &w->o, in_layer(layer, "self_attn.o_proj").text, c->hidden, c->n_heads * c->value_dim));
  if (!c->attention_bias) return EAGLET_OK;
  return bind_bias(b, &w->kv_a_bias, in_layer(layer, "self_attn.kv_a_proj_with_mqa").text, c->kv_rank + c->rope_dim, false);
}

static enum eaglet_status bind_ffn(struct head_binder *b, struct ffn_weights *w, int32_t layer) {
  const struct head_config *c = &b->head->config;
  TRY(bind_linear(b, w->gate, in_layer(layer, "mlp.gate_proj").text, c->intermediate, c->hidden));
  TRY(bind_linear(b, w->up, in_layer(layer, "mlp.up_proj").text, c->intermediate, c->hidden));
  TRY(bind_linear(b, w->down, in_layer(layer, "mlp.down_proj").text, c->hidden, c->intermediate));
  if (!c->ffn_bias) return EAGLET_OK;
  TRY(bind_bias(b, &w->gate_bias, in_layer(layer, "mlp.gate_proj").text, c->intermediate, false));
  TRY(bind_bias(b, &w->up_bias, in_layer(layer, "mlp.up_proj").text, c->intermediate, false));
  return bind_bias(b, &w->down_bias, in_layer(layer, "mlp.down_proj").text, c->hidden, false);
}

/* Layers behind the first are ordinary; one family of servers calls their norm hidden_norm. */
static enum eaglet_status bind_input_norm(struct head_binder *b, const float **norm, int32_t layer) {
  bool usual, other;
  TRY(exists(b, &usual, "layers.%d.input_layernorm.weight", layer));
  TRY(exists(b, &other, "layers.%d.hidden_norm.weight", layer));
  if (usual && other)
    FAIL(b->err, EAGLET_E_INPUT, "%s: layers.%d has both input_layernorm and hidden_norm: servers read one or the other",
         b->files->path, layer);
  return bind_norm(b, norm, in_layer(layer, other ? "hidden_norm" : "input_layernorm").text, b->head->config.hidden);
}

static enum eaglet_status bind_layer(struct head_binder *b, int32_t index) {
  const struct head_config *c = &b->head->config;
  struct head_layer *layer = &b->head->layers[index];
  int32_t n_in = index == 0 ? 2 * c->hidden : c->hidden;
  TRY(c->attention == ATTENTION_MLA ? bind_mla(b, &layer->attention, index, n_in)
                                    : bind_gqa(b, &layer->attention, index, n_in));
  if (c->attention_out_bias)
    TRY(bind_bias(b, &layer->attention.o_bias, in_layer(index, "self_attn.o_proj").text, c->hidden, false));
  TRY(bind_ffn(b, &layer->ffn, index));
  if (index > 0) TRY(bind_input_norm(b, &layer->input_norm, index));
  return bind_norm(b, &layer->post_norm, in_layer(index, "post_attention_layernorm").text, c->hidden);
}

/* What tensors tell of the layers, by the first; binding holds the others to it. */
static enum eaglet_status settle_layers(struct head_binder *b) {
  struct head_config *c = &b->head->config;
  bool latent = c->attention == ATTENTION_MLA, found;
  TRY(settle(b, &c->attention_bias, c->claims.attention_bias, "attention_bias",
             latent ? "layers.0.self_attn.kv_a_proj_with_mqa.bias" : "layers.0.self_attn.q_proj.bias"));
  TRY(exists(b, &c->attention_out_bias, "layers.0.self_attn.o_proj.bias"));
  TRY(settle(b, &c->ffn_bias, c->claims.ffn_bias, "mlp_bias", "layers.0.mlp.up_proj.bias"));
  TRY(exists(b, &c->qk_norm, "layers.0.self_attn.q_norm.weight"));
  TRY(exists(b, &c->fc_bias, "fc.bias"));
  if (c->claims.any_bias == CLAIM_TRUE && !c->fc_bias && !c->attention_bias)
    FAIL(b->err, EAGLET_E_INPUT, "%s: config.json says bias true, but neither fc.bias nor a bias of attention exists",
         b->files->path);
  TRY(exists(b, &found, "layers.0.self_attn.kv_a_proj_with_mqa.weight"));
  bool plain;
  TRY(exists(b, &plain, "layers.0.self_attn.k_proj.weight"));
  if (latent ? plain && !found : found && !plain)
    FAIL(b->err, EAGLET_E_INPUT, "%s: config.json has %s kv_lora_rank, but the tensors are those of %s attention",
         b->files->path, latent ? "a" : "no", latent ? "plain" : "latent");
  return EAGLET_OK;
}

/* ---- what stands around the layers ---- */

static enum eaglet_status bind_fusion(struct head_binder *b) {
  struct head *head = b->head;
  struct head_config *c = &head->config;
  TRY(settle(b, &c->wiring.fc_norms, c->claims.fc_norms, "fc_norm", "fc_norm.0.weight"));
  TRY(settle(b, &c->wiring.fc_input_norm, c->claims.fc_input_norm, "norm_before_fc", "input_norm.weight"));
  if (c->wiring.fc_norms && c->wiring.fc_input_norm)
    FAIL(b->err, EAGLET_E_INPUT, "%s: both fc_norm and input_norm exist; which norm stands before fc is not said",
         head->files.path);
  TRY(bind_linear(b, &head->fc, "fc", c->hidden, c->n_states * c->target_hidden));
  if (c->fc_bias) TRY(bind_bias(b, &head->fc_bias, "fc", c->hidden, false));
  if (c->wiring.fc_input_norm) TRY(bind_norm(b, &head->fc_input_norm, "input_norm", c->n_states * c->target_hidden));
  for (int32_t i = 0; c->wiring.fc_norms && i < c->n_states; i++) {
    char module[32];
    snprintf(module, sizeof module, "fc_norm.%d", i);
    TRY(bind_norm(b, &head->fc_norms[i], module, c->target_hidden));
  }
  return EAGLET_OK;
}

/* Most heads leave the embedding out, because it is the target's; one that brings its own was trained on that. */
static enum eaglet_status bind_embed(struct head_binder *b) {
  struct head *head = b->head;
  struct head_config *c = &head->config;
  bool found;
  TRY(spell(b, &found, "embed_tokens", true));
  c->own_embed = found;
  if (found) return bind_linear(b, &head->embed, "embed_tokens", c->n_target, c->hidden);
  if (head->target->embed.n_in != c->hidden)
    FAIL(b->err, EAGLET_E_INPUT, "%s: embed_tokens.weight: missing, and the target's rows of %d cannot stand in for %d",
         head->files.path, head->target->embed.n_in, c->hidden);
  head->embed = head->target->embed;
  return EAGLET_OK;
}

bool head_same_rows(const struct weight *a, const struct weight *b) {
  bool same = a->n_out == b->n_out && a->n_in == b->n_in;
  if (!same) return false;
  float *x = memory_alloc(2 * sizeof *x * (size_t)a->n_in), *y = x + a->n_in;
  for (int32_t row = 0; same && row < a->n_out; row++) {
    weight_row_to_f32(a, row, x);
    weight_row_to_f32(b, row, y);
    same = memcmp(x, y, sizeof *x * (size_t)a->n_in) == 0;
  }
  free(x);
  return same;
}

/* Tied, a head has its embedding for lm_head. Otherwise one with the whole vocabulary may borrow the target's; a reduced one
 * may not (A01). */
static enum eaglet_status bind_lm_head(struct head_binder *b) {
  struct head *head = b->head;
  struct head_config *c = &head->config;
  TRY(spell(b, &c->own_lm_head, "lm_head", true));
  c->tied = c->claims.tied == CLAIM_TRUE;
  if (c->own_lm_head) TRY(bind_linear(b, &head->lm_head, "lm_head", c->n_draft, c->hidden));
  if (c->tied && c->n_draft != c->n_target)
    FAIL(b->err, EAGLET_E_INPUT, "%s: tie_word_embeddings: a draft vocabulary of %d has no rows of an embedding of %d",
         head->files.path, c->n_draft, c->n_target);
  if (c->tied && c->own_lm_head && !head_same_rows(&head->lm_head, &head->embed))
    FAIL(b->err, EAGLET_E_INPUT, "%s: tie_word_embeddings is true, but lm_head.weight differs from the embedding", head->files.path);
  if (c->own_lm_head) return EAGLET_OK;
  if (c->tied) {
    head->lm_head = head->embed;
    return EAGLET_OK;
  }
  if (c->n_draft != c->n_target || c->hidden != c->target_hidden) {
    FAIL(b->err, EAGLET_E_INPUT,
         "%s: lm_head.weight: missing, and the target's cannot stand in for %d outputs of %d inputs", head->files.path,
         c->n_draft, c->hidden);
  }
  head->lm_head = head->target->head;
  snprintf(head->notes, sizeof head->notes, "lm_head borrowed from the target");
  return EAGLET_OK;
}

enum eaglet_status head_vocabulary_read(struct vocab_map *map, struct checkpoint *files, const struct head_config *c,
                                        struct eaglet_error *err) {
  struct head_binder b = {.files = files, .err = err};
  struct vocab_tables tables = {.n_draft = c->n_draft, .n_target = c->n_target, .path = files->path};
  const struct tensor_entry *other;
  *map = (struct vocab_map){0};
  TRY(find(&b, &tables.d2t, "d2t"));
  TRY(find(&b, &other, "draft_id_to_target_id"));
  TRY(find(&b, &tables.t2d, "t2d"));
  if (!tables.d2t) tables.d2t = other;
  bool same = !other || (other->dtype == tables.d2t->dtype && other->n_bytes == tables.d2t->n_bytes &&
                         memcmp(other->data, tables.d2t->data, other->n_bytes) == 0);
  if (!same) FAIL(err, EAGLET_E_INPUT, "%s: d2t and draft_id_to_target_id differ", files->path);
  return vocab_map_from_tables(map, &tables, err);
}

static enum eaglet_status check_unused(struct head_binder *b) {
  const struct checkpoint *files = b->files;
  for (size_t i = 0; i < files->n_tensors; i++) {
    if (!files->used[i] && !tensor_is_harmless(files->tensors[i]->name))
      FAIL(b->err, EAGLET_E_INPUT, "%s: %s: unknown tensor; a head with it would compute something else",
           files->tensors[i]->path, files->tensors[i]->name);
  }
  return EAGLET_OK;
}

static enum eaglet_status bind_all(struct head_binder *b) {
  struct head *head = b->head;
  TRY(settle_layers(b));
  TRY(bind_fusion(b));
  for (int32_t i = 0; i <= head->config.n_more_layers; i++) TRY(bind_layer(b, i));
  TRY(bind_norm(b, &head->embed_norm, "layers.0.input_layernorm", head->config.hidden));
  TRY(bind_norm(b, &head->hidden_norm, "layers.0.hidden_norm", head->config.hidden));
  TRY(bind_norm(b, &head->norm, "norm", head->config.hidden));
  TRY(bind_embed(b));
  TRY(bind_lm_head(b));
  TRY(head_vocabulary_read(&head->map, &head->files, &head->config, b->err));
  TRY(check_unused(b));
  struct compute *c = head->target->compute;
  c->upload(c, head->small, b->host, b->used * sizeof(float));
  return EAGLET_OK;
}

enum eaglet_status head_quantization_read(struct head *head, struct eaglet_error *err) {
  struct arch arch = {.config = head_config_decoder(head->files.config)};
  if (arch.config != head->files.config) arch.outer[0] = head->files.config;
  return quantization_read(&head->quantization, &arch, &head->files, err);
}

/* Upper bound of the blob: every vector, each padded. */
static size_t count_small(const struct checkpoint *files) {
  size_t n = 16;
  for (size_t i = 0; i < files->n_tensors; i++) {
    const struct tensor_entry *tensor = files->tensors[i];
    bool is_float = tensor->dtype == DTYPE_F32 || tensor->dtype == DTYPE_BF16 || tensor->dtype == DTYPE_F16;
    if (tensor->rank == 1 && is_float) n += (size_t)tensor->shape[0] + 16;
  }
  return n;
}

static void make_layers(struct head *head) {
  size_t n = (size_t)head->config.n_more_layers + 1;
  head->layers = memory_alloc(n * sizeof *head->layers);
  for (size_t i = 0; i < n; i++) {
    struct ffn_weights *ffn = &head->layers[i].ffn;
    *ffn = (struct ffn_weights){.n_experts = 1, .n_picked = 1, .gate = memory_alloc(3 * sizeof(struct weight))};
    ffn->up = ffn->gate + 1;
    ffn->down = ffn->gate + 2;
  }
}

enum eaglet_status head_bind(struct head *head, struct eaglet_error *err) {
  struct compute *c = head->target->compute;
  struct head_binder b = {.head = head, .files = &head->files, .capacity = count_small(&head->files), .err = err};
  make_layers(head);
  head->small = c->alloc(c, b.capacity * sizeof(float));
  b.host = memory_try(b.capacity * sizeof(float));
  enum eaglet_status status = head->small && b.host
                                  ? bind_all(&b)
                                  : error_set(err, EAGLET_E_RESOURCE, "no memory for a head's norms and biases");
  memory_try_free(b.host);
  return status;
}
