/* toy_head.h - tiny random heads of every wiring: their files in any dialect, and what they must compute, in double precision
 * and plain loops. Nothing here comes from the code under test: names, fields and arithmetic are written out again. */
#ifndef EAGLET_TESTS_TOY_HEAD_H
#define EAGLET_TESTS_TOY_HEAD_H

#include "pair_fixture.h"

#include "base/util.h"
#include "draft/head.h"

#include <math.h>

#define TOY_VOCAB 40
#define TOY_TIME 11
#define TOY_STEPS 4
#define TOY_LAYERS 8 /* of the target */
#define TOY_TENSORS 64

enum toy_dialect { TOY_MIDLAYER, TOY_LAYERS_DIALECT, TOY_SPECULATORS, TOY_MODELOPT };

struct toy {
  const char *name;
  enum toy_dialect dialect;
  int32_t hidden, target_hidden, n_layers, n_states, n_draft; /* 0: 24, hidden, 1, 3, 24 */
  bool fc_norms, input_norm, norm_before_residual, norm_output, attention_bias, mlp_bias, fc_bias, qk_norm, own_embed, tied,
      own_names;     /* hidden_norm in layers behind the first, aux_norm_low ... */
  int32_t window;
  const char *more;  /* further config fields, "\"a\": 1, " */
};
#define TOY_HEADS 4
#define TOY_KV 2
#define TOY_DIM 8
#define TOY_INTER 20
#define TOY_EPS 1e-5

struct toy_tensor {
  char name[96];
  float *values;
  int32_t rows, columns; /* columns 0: a vector of `rows` */
};
struct toy_head {
  struct toy spec;
  struct toy_tensor tensors[TOY_TENSORS];
  int32_t n_tensors;
  int32_t ids[TOY_VOCAB];              /* target ids of the draft's */
  float *target_embed;                 /* [TOY_VOCAB, target_hidden] */
  int32_t tokens[TOY_TIME + TOY_STEPS + 1];
  float *states;                       /* [TOY_TIME, n_states * target_hidden] */
};

static inline float *toy_random(int32_t n, double center, double width, uint64_t stream) {
  float *values = memory_alloc((size_t)n * sizeof *values);
  for (int32_t i = 0; i < n; i++) values[i] = (float)(center + width * random_normal(7, stream, (uint64_t)i));
  return values;
}

static inline void toy_add(struct toy_head *h, int32_t rows, int32_t columns, const char *format, ...) PRINTF_LIKE(4, 5);
static inline void toy_add(struct toy_head *h, int32_t rows, int32_t columns, const char *format, ...) {
  struct toy_tensor *t = &h->tensors[h->n_tensors++];
  va_list args;
  assert_true(h->n_tensors <= TOY_TENSORS);
  va_start(args, format);
  vsnprintf(t->name, sizeof t->name, format, args);
  va_end(args);
  bool norm = strstr(t->name, "norm") != NULL;
  t->rows = rows;
  t->columns = columns;
  t->values = columns ? toy_random(rows * columns, 0, 1.0 / sqrt(columns), (uint64_t)h->n_tensors)
                      : toy_random(rows, norm ? 1 : 0, 0.2, (uint64_t)h->n_tensors);
}

static inline const float *toy_find(const struct toy_head *h, const char *format, ...) PRINTF_LIKE(2, 3);
/* NULL when the head has no such tensor. */
static inline const float *toy_find(const struct toy_head *h, const char *format, ...) {
  char name[96];
  va_list args;
  va_start(args, format);
  vsnprintf(name, sizeof name, format, args);
  va_end(args);
  for (int32_t i = 0; i < h->n_tensors; i++) {
    if (strcmp(h->tensors[i].name, name) == 0) return h->tensors[i].values;
  }
  return NULL;
}

static inline void toy_add_layer(struct toy_head *h, int32_t i) {
  const struct toy *s = &h->spec;
  int32_t q = TOY_HEADS * TOY_DIM, kv = TOY_KV * TOY_DIM, n_in = i == 0 ? 2 * s->hidden : s->hidden;
  const struct {
    const char *module;
    int32_t rows, columns;
    bool bias;
  } linears[] = {{"self_attn.q_proj", q, n_in, s->attention_bias},   {"self_attn.k_proj", kv, n_in, s->attention_bias},
                 {"self_attn.v_proj", kv, n_in, s->attention_bias},  {"self_attn.o_proj", s->hidden, q, s->attention_bias},
                 {"mlp.gate_proj", TOY_INTER, s->hidden, s->mlp_bias}, {"mlp.up_proj", TOY_INTER, s->hidden, s->mlp_bias},
                 {"mlp.down_proj", s->hidden, TOY_INTER, s->mlp_bias}};
  for (size_t k = 0; k < sizeof linears / sizeof *linears; k++) {
    toy_add(h, linears[k].rows, linears[k].columns, "layers.%d.%s.weight", i, linears[k].module);
    if (linears[k].bias) toy_add(h, linears[k].rows, 0, "layers.%d.%s.bias", i, linears[k].module);
  }
  toy_add(h, s->hidden, 0, "layers.%d.input_layernorm.weight", i);
  if (i == 0) toy_add(h, s->hidden, 0, "layers.0.hidden_norm.weight");
  toy_add(h, s->hidden, 0, "layers.%d.post_attention_layernorm.weight", i);
  if (!s->qk_norm) return;
  toy_add(h, TOY_DIM, 0, "layers.%d.self_attn.q_norm.weight", i);
  toy_add(h, TOY_DIM, 0, "layers.%d.self_attn.k_norm.weight", i);
}

static inline struct toy_head *toy_create(const struct toy *spec) {
  struct toy_head *h = memory_alloc(sizeof *h);
  struct toy *s = &h->spec;
  *s = *spec;
  if (!s->hidden) s->hidden = 24;
  if (!s->target_hidden) s->target_hidden = s->hidden;
  if (!s->n_layers) s->n_layers = 1;
  if (!s->n_states) s->n_states = 3;
  if (!s->n_draft) s->n_draft = 24;
  int32_t wide = s->n_states * s->target_hidden;
  toy_add(h, s->hidden, wide, "fc.weight");
  if (s->fc_bias) toy_add(h, s->hidden, 0, "fc.bias");
  for (int32_t i = 0; s->fc_norms && i < s->n_states; i++) toy_add(h, s->target_hidden, 0, "fc_norm.%d.weight", i);
  if (s->input_norm) toy_add(h, wide, 0, "input_norm.weight");
  for (int32_t i = 0; i < s->n_layers; i++) toy_add_layer(h, i);
  toy_add(h, s->hidden, 0, "norm.weight");
  if (s->own_embed) toy_add(h, TOY_VOCAB, s->hidden, "embed_tokens.weight");
  if (!s->tied) toy_add(h, s->n_draft, s->hidden, "lm_head.weight");
  h->target_embed = toy_random(TOY_VOCAB * s->target_hidden, 0, 1, 1000);
  h->states = toy_random(TOY_TIME * wide, 0, 2, 1001);
  for (int32_t t = 0; t < TOY_TIME + TOY_STEPS + 1; t++) h->tokens[t] = (t * 17 + 5) % TOY_VOCAB;
  for (int32_t i = 0, id = 0; i < s->n_draft; i++) {
    h->ids[i] = s->n_draft == TOY_VOCAB ? i : id;
    id += i % 3 == 1 ? 2 : 1;
  }
  return h;
}

static inline void toy_free(struct toy_head *h) {
  for (int32_t i = 0; i < h->n_tensors; i++) free(h->tensors[i].values);
  free(h->target_embed);
  free(h->states);
  free(h);
}

/* ---- as files ---- */

static inline void toy_spell(char out[128], const struct toy *s, const char *name) {
  static const char *const aux[] = {"aux_norm_low", "aux_norm_mid", "aux_norm_high"};
  const char *rest = strncmp(name, "layers.", 7) == 0 ? strchr(name + 7, '.') : NULL;
  if (s->own_names && strncmp(name, "fc_norm.", 8) == 0)
    snprintf(out, 128, "%s%s", aux[name[8] - '0'], name + 9);
  else if (s->own_names && rest && name[7] != '0' && strcmp(rest, ".input_layernorm.weight") == 0)
    snprintf(out, 128, "layers.%c.hidden_norm.weight", name[7]);
  else if (s->dialect == TOY_MIDLAYER && strncmp(name, "layers.0.", 9) == 0)
    snprintf(out, 128, "midlayer.%s", name + 9);
  else if (s->dialect == TOY_MODELOPT && strcmp(name, "lm_head.weight") != 0)
    snprintf(out, 128, "model.%s", name);
  else
    snprintf(out, 128, "%s", name);
}

static inline void toy_weights(const char *directory, const struct toy_head *h) {
  const struct toy *s = &h->spec;
  struct safetensors_writer *writer = safetensors_writer_create();
  struct eaglet_error err;
  int64_t offsets[TOY_VOCAB];
  for (int32_t i = 0; i < h->n_tensors; i++) {
    const struct toy_tensor *t = &h->tensors[i];
    char name[128];
    toy_spell(name, s, t->name);
    safetensors_writer_add(writer, name, DTYPE_F32, t->columns ? 2 : 1, (const int64_t[]){t->rows, t->columns}, t->values);
  }
  for (int32_t i = 0; i < s->n_draft; i++) offsets[i] = h->ids[i] - i;
  if (s->n_draft < TOY_VOCAB)
    safetensors_writer_add(writer, s->dialect == TOY_LAYERS_DIALECT ? "draft_id_to_target_id" : "d2t", DTYPE_I64, 1,
                           (const int64_t[]){s->n_draft}, offsets);
  char *path = file_join(directory, "model.safetensors");
  assert_ok(safetensors_writer_commit(writer, path, &err), &err);
  safetensors_writer_free(writer);
  free(path);
}

/* "[1, 3, 4]", shifted. */
static inline void toy_ids(char out[64], const struct toy *s, int shift) {
  static const int32_t states[] = {2, 4, 5, 7};
  size_t at = 0;
  for (int32_t i = 0; i < s->n_states; i++)
    at += (size_t)snprintf(out + at, 64 - at, "%s%d", i ? ", " : "[", states[i] + shift);
  snprintf(out + at, 64 - at, "]");
}

static inline const char *toy_bool(bool value) { return value ? "true" : "false"; }

/* The decoder's fields. */
static inline char *toy_decoder(const struct toy *s) {
  char windows[256] = "";
  size_t at = 0;
  for (int32_t i = 0; s->window && i < s->n_layers; i++)
    at += (size_t)snprintf(windows + at, sizeof windows - at, "%s\"sliding_attention\"", i ? ", " : "");
  char *sliding = s->window ? memory_format(", \"sliding_window\": %d, \"use_sliding_window\": true, \"layer_types\": [%s]", s->window, windows)
                            : memory_format(", \"sliding_window\": null");
  char *text = memory_format("\"model_type\": \"%s\", \"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d, "
                             "\"num_key_value_heads\": %d, \"head_dim\": %d, \"num_hidden_layers\": %d, \"rms_norm_eps\": %g, "
                             "\"rope_theta\": 10000, \"vocab_size\": %d, \"max_position_embeddings\": 64, \"hidden_act\": \"silu\", "
                             "\"attention_bias\": %s, \"mlp_bias\": %s%s",
                             s->qk_norm ? "qwen3" : "llama", s->hidden, TOY_INTER, TOY_HEADS, TOY_KV, TOY_DIM, s->n_layers,
                             TOY_EPS, TOY_VOCAB, toy_bool(s->attention_bias), toy_bool(s->mlp_bias), sliding);
  free(sliding);
  return text;
}

static inline void toy_config(const char *directory, const struct toy_head *h) {
  const struct toy *s = &h->spec;
  char *decoder = toy_decoder(s), ids[64], *text;
  char *own = memory_format("%s\"draft_vocab_size\": %d, \"target_hidden_size\": %d, \"fc_norm\": %s, \"norm_before_fc\": %s, "
                            "\"norm_output\": %s, \"norm_before_residual\": %s, \"tie_word_embeddings\": %s",
                            s->more ? s->more : "", s->n_draft, s->target_hidden, toy_bool(s->fc_norms), toy_bool(s->input_norm),
                            toy_bool(s->norm_output), toy_bool(s->norm_before_residual), toy_bool(s->tied));
  toy_ids(ids, s, s->dialect == TOY_SPECULATORS ? 0 : -1);
  if (s->dialect == TOY_SPECULATORS)
    text = memory_format("{\"architectures\": [\"Eagle3Speculator\"], \"speculators_model_type\": \"eagle3\", "
                         "\"speculators_config\": {\"algorithm\": \"eagle3\"}, \"speculators_version\": \"0.5\", "
                         "\"eagle_aux_hidden_state_layer_ids\": %s, %s, \"transformer_layer_config\": {%s}}",
                         ids, own, decoder);
  else if (s->dialect == TOY_MODELOPT)
    text = memory_format("{%s, %s, \"eagle_config\": {\"use_aux_hidden_state\": true, \"eagle_aux_hidden_state_layer_ids\": %s, "
                         "\"use_input_layernorm_in_first_layer\": true, \"use_last_layernorm\": true, \"use_mtp_layernorm\": false, "
                         "\"next_layer_regular\": true, \"parallel_draft_step\": 1, \"parallel_draft_heads_num_layers\": null}}",
                         decoder, own, ids);
  else
    text = memory_format("{%s, %s, \"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": %s}}", decoder, own, ids);
  write_text(directory, "config.json", text);
  free(text);
  free(own);
  free(decoder);
}

static inline void toy_write(char directory[64], const struct toy_head *h) {
  temporary_directory(directory);
  toy_config(directory, h);
  toy_weights(directory, h);
}

/* ---- what it computes ---- */

struct toy_cache {
  double keys[TOY_STEPS][TOY_TIME][TOY_KV * TOY_DIM], values[TOY_STEPS][TOY_TIME][TOY_KV * TOY_DIM];
};
/* Results of every step, and what the next one reads. */
struct toy_reference {
  double next[TOY_STEPS][TOY_TIME][64], logits[TOY_STEPS][TOY_TIME][TOY_VOCAB];
  struct toy_cache layers[HEAD_LAYERS_MAX];
};

static inline void toy_linear(double *out, const float *w, const float *bias, const double *x, int32_t rows, int32_t columns) {
  for (int32_t o = 0; o < rows; o++) {
    out[o] = bias ? (double)bias[o] : 0;
    for (int32_t i = 0; i < columns; i++) out[o] += (double)w[o * columns + i] * x[i];
  }
}

static inline void toy_rms(double *out, const double *x, const float *w, int32_t n) {
  double sum = 0;
  for (int32_t i = 0; i < n; i++) sum += x[i] * x[i];
  double scale = 1 / sqrt(sum / n + TOY_EPS);
  for (int32_t i = 0; i < n; i++) out[i] = x[i] * scale * (double)w[i];
}

static inline void toy_rope(double *x, int32_t position) {
  for (int32_t i = 0; i < TOY_DIM / 2; i++) {
    double angle = position * pow(10000, -2.0 * i / TOY_DIM), a = x[i], b = x[i + TOY_DIM / 2];
    x[i] = a * cos(angle) - b * sin(angle);
    x[i + TOY_DIM / 2] = b * cos(angle) + a * sin(angle);
  }
}

static inline void toy_heads(const struct toy_head *h, double *x, int32_t n_heads, const char *norm, int32_t layer, int32_t position) {
  const float *w = toy_find(h, "layers.%d.self_attn.%s.weight", layer, norm);
  for (int32_t i = 0; i < n_heads; i++) {
    if (w) toy_rms(x + i * TOY_DIM, x + i * TOY_DIM, w, TOY_DIM);
    toy_rope(x + i * TOY_DIM, position);
  }
}

/* Keys of slot t at step k: those of step 0 up to t, then the slot's own of steps 1..k; the last `window` of them. */
static inline void toy_attend(const struct toy_head *h, double *out, const struct toy_cache *cache, const double *q, int32_t t, int32_t k) {
  int32_t n = t + 1 + k, first = h->spec.window > 0 && n > h->spec.window ? n - h->spec.window : 0;
  for (int32_t head = 0; head < TOY_HEADS; head++) {
    int32_t at = head / (TOY_HEADS / TOY_KV) * TOY_DIM;
    double scores[TOY_TIME + TOY_STEPS], sum = 0;
    for (int32_t d = 0; d < TOY_DIM; d++) out[head * TOY_DIM + d] = 0;
    for (int32_t j = first; j < n; j++) {
      const double *key = j <= t ? cache->keys[0][j] : cache->keys[j - t][t];
      scores[j] = 0;
      for (int32_t d = 0; d < TOY_DIM; d++) scores[j] += q[head * TOY_DIM + d] * key[at + d];
      scores[j] = exp(scores[j] / sqrt(TOY_DIM));
      sum += scores[j];
    }
    for (int32_t j = first; j < n; j++) {
      const double *value = j <= t ? cache->values[0][j] : cache->values[j - t][t];
      for (int32_t d = 0; d < TOY_DIM; d++) out[head * TOY_DIM + d] += scores[j] / sum * value[at + d];
    }
  }
}

/* x += attention(u), x += mlp(norm(x)), in layer at[0], for slot at[1] of step at[2]. */
static inline void toy_layer(const struct toy_head *h, struct toy_reference *r, const int32_t at[3], double *x, const double *u) {
  const struct toy *s = &h->spec;
  int32_t i = at[0], t = at[1], k = at[2], hidden = s->hidden, n_in = i == 0 ? 2 * hidden : hidden, q_width = TOY_HEADS * TOY_DIM, kv = TOY_KV * TOY_DIM;
  double q[TOY_HEADS * TOY_DIM], mixed[TOY_HEADS * TOY_DIM], delta[64], normed[64], gate[TOY_INTER], up[TOY_INTER];
  struct toy_cache *cache = &r->layers[i];
#define TOY_LINEAR(out, module, from, rows, columns)                                                                    \
  toy_linear(out, toy_find(h, "layers.%d." module ".weight", i), toy_find(h, "layers.%d." module ".bias", i), from, rows, columns)
  TOY_LINEAR(q, "self_attn.q_proj", u, q_width, n_in);
  TOY_LINEAR(cache->keys[k][t], "self_attn.k_proj", u, kv, n_in);
  TOY_LINEAR(cache->values[k][t], "self_attn.v_proj", u, kv, n_in);
  toy_heads(h, q, TOY_HEADS, "q_norm", i, t + k);
  toy_heads(h, cache->keys[k][t], TOY_KV, "k_norm", i, t + k);
  toy_attend(h, mixed, cache, q, t, k);
  TOY_LINEAR(delta, "self_attn.o_proj", mixed, hidden, q_width);
  for (int32_t d = 0; d < hidden; d++) x[d] += delta[d];
  toy_rms(normed, x, toy_find(h, "layers.%d.post_attention_layernorm.weight", i), hidden);
  TOY_LINEAR(gate, "mlp.gate_proj", normed, TOY_INTER, hidden);
  TOY_LINEAR(up, "mlp.up_proj", normed, TOY_INTER, hidden);
  for (int32_t d = 0; d < TOY_INTER; d++) up[d] *= gate[d] / (1 + exp(-gate[d]));
  TOY_LINEAR(delta, "mlp.down_proj", up, hidden, TOY_INTER);
  for (int32_t d = 0; d < hidden; d++) x[d] += delta[d];
#undef TOY_LINEAR
}

static inline void toy_fuse(const struct toy_head *h, double *g, int32_t t) {
  const struct toy *s = &h->spec;
  int32_t wide = s->n_states * s->target_hidden;
  double states[256], normed[256];
  assert_true(wide <= 256);
  for (int32_t i = 0; i < wide; i++) states[i] = normed[i] = (double)h->states[t * wide + i];
  if (s->input_norm) toy_rms(normed, states, toy_find(h, "input_norm.weight"), wide);
  for (int32_t i = 0; s->fc_norms && i < s->n_states; i++)
    toy_rms(normed + i * s->target_hidden, states + i * s->target_hidden, toy_find(h, "fc_norm.%d.weight", i), s->target_hidden);
  toy_linear(g, toy_find(h, "fc.weight"), toy_find(h, "fc.bias"), normed, s->hidden, wide);
}

static inline void toy_slot(const struct toy_head *h, struct toy_reference *r, int32_t t, int32_t k) {
  const struct toy *s = &h->spec;
  int32_t hidden = s->hidden;
  double g[64], e[64], u[128], x[64], normed[64];
  const float *embed = toy_find(h, "embed_tokens.weight"), *lm_head = toy_find(h, "lm_head.weight");
  if (!embed) embed = h->target_embed;
  if (k == 0)
    toy_fuse(h, g, t);
  else
    memcpy(g, r->next[k - 1][t], sizeof g);
  for (int32_t i = 0; i < hidden; i++) e[i] = (double)embed[h->tokens[t + 1 + k] * hidden + i];
  toy_rms(u, e, toy_find(h, "layers.0.input_layernorm.weight"), hidden);
  toy_rms(u + hidden, g, toy_find(h, "layers.0.hidden_norm.weight"), hidden);
  memcpy(x, s->norm_before_residual ? u + hidden : g, sizeof(double) * (size_t)hidden);
  for (int32_t i = 0; i < s->n_layers; i++) {
    if (i > 0) toy_rms(u, x, toy_find(h, "layers.%d.input_layernorm.weight", i), hidden);
    toy_layer(h, r, (const int32_t[]){i, t, k}, x, u);
  }
  toy_rms(normed, x, toy_find(h, "norm.weight"), hidden);
  memcpy(r->next[k][t], s->norm_output ? normed : x, sizeof(double) * (size_t)hidden);
  toy_linear(r->logits[k][t], lm_head ? lm_head : embed, NULL, normed, s->n_draft, hidden);
}

static inline struct toy_reference *toy_evaluate(const struct toy_head *h) {
  struct toy_reference *r = memory_alloc(sizeof *r);
  for (int32_t k = 0; k < TOY_STEPS; k++) {
    for (int32_t t = 0; t < TOY_TIME; t++) toy_slot(h, r, t, k);
  }
  return r;
}

/* ---- running it ---- */

/* As much of a target as a head looks at. */
static inline void toy_target(struct model *target, const struct toy_head *h, struct compute *c) {
  *target = (struct model){.compute = c, .n_positions = 64};
  target->arch.features.hidden = h->spec.target_hidden;
  target->arch.features.n_vocab = TOY_VOCAB;
  target->arch.features.n_layers = TOY_LAYERS;
  target->arch.features.positions_max = 64;
  target->embed = (struct weight){
      .format = WEIGHT_F32, .n_out = TOY_VOCAB, .n_in = h->spec.target_hidden, .data = h->target_embed};
  target->head = target->embed;
}

#endif
