/* prediction_reference.h - a prediction layer in double precision and plain loops, from a checkpoint's own tensors and config:
 * latent or grouped attention, dense or sigmoid-routed feed-forward. Small sizes only. */
#ifndef EAGLET_TESTS_PREDICTION_REFERENCE_H
#define EAGLET_TESTS_PREDICTION_REFERENCE_H

#include "../model/variant.h"

#define P_TIME 9
#define P_STEPS 3
#define P_WIDE 512 /* more than any row */

struct prediction_reference {
  const struct checkpoint *files;
  const json_t *config;
  int32_t layer, hidden, n_heads, n_kv, dim, nope, rope, value, rank;
  bool latent, interleaved;
  double eps, theta;
  double next[P_STEPS][P_TIME][P_WIDE], logits[P_STEPS][P_TIME][P_WIDE];
  double keys[P_STEPS][P_TIME][P_WIDE], values[P_STEPS][P_TIME][P_WIDE]; /* [heads, D]; grouped: [kv heads, D] */
};

static inline int32_t p_int(const json_t *config, const char *key) { return (int32_t)json_integer_value(json_object_get(config, key)); }
static inline double p_double(const json_t *config, const char *key) { return json_number_value(json_object_get(config, key)); }

static inline const struct tensor_entry *p_peek(const struct prediction_reference *r, const char *name, bool in_layer) {
  char full[256];
  if (in_layer)
    snprintf(full, sizeof full, "model.layers.%d.%s", r->layer, name);
  else
    snprintf(full, sizeof full, "%s", name);
  return checkpoint_peek(r->files, full);
}

/* Element i of a tensor of the layer, or of the model. */
static inline double p_at(const struct tensor_entry *t, int64_t i) {
  float value;
  dtype_to_f32(&value, t->data + i * dtype_bits(t->dtype) / 8, t->dtype, 1);
  return (double)value;
}

static inline const struct tensor_entry *p_find(const struct prediction_reference *r, const char *name) {
  const struct tensor_entry *t = p_peek(r, name, true);
  if (!t) fail_msg("%s is not in the checkpoint", name);
  return t;
}

/* out = W x (+ bias), of the layer's module. */
static inline void p_linear(const struct prediction_reference *r, double *out, const char *module, const double *x) {
  char name[160];
  snprintf(name, sizeof name, "%s.weight", module);
  const struct tensor_entry *w = p_find(r, name);
  snprintf(name, sizeof name, "%s.bias", module);
  const struct tensor_entry *bias = p_peek(r, name, true);
  for (int64_t o = 0; o < w->shape[0]; o++) {
    out[o] = bias ? p_at(bias, o) : 0;
    for (int64_t i = 0; i < w->shape[1]; i++) out[o] += p_at(w, o * w->shape[1] + i) * x[i];
  }
}

static inline void p_rms(double *out, const double *x, const struct tensor_entry *w, int32_t n, double eps) {
  double sum = 0;
  for (int32_t i = 0; i < n; i++) sum += x[i] * x[i];
  double scale = 1 / sqrt(sum / n + eps);
  for (int32_t i = 0; i < n; i++) out[i] = x[i] * scale * p_at(w, i);
}

static inline void p_rope(const struct prediction_reference *r, double *x, int32_t position) {
  for (int32_t i = 0; i < r->rope / 2; i++) {
    int32_t a = r->interleaved ? 2 * i : i, b = r->interleaved ? 2 * i + 1 : i + r->rope / 2;
    double angle = position * pow(r->theta, -2.0 * i / r->rope), x0 = x[a], x1 = x[b];
    x[a] = x0 * cos(angle) - x1 * sin(angle);
    x[b] = x1 * cos(angle) + x0 * sin(angle);
  }
}

/* q [heads, D]; keys and values of slot t, step k. */
static inline void p_latent(struct prediction_reference *r, double *q, const double *x, int32_t t, int32_t k) {
  double low[P_WIDE], kv[P_WIDE], latent[P_WIDE];
  int32_t both = r->nope + r->value;
  if (p_peek(r, "self_attn.q_a_proj.weight", true)) {
    const struct tensor_entry *norm = p_find(r, "self_attn.q_a_layernorm.weight");
    p_linear(r, low, "self_attn.q_a_proj", x);
    p_rms(low, low, norm, (int32_t)norm->shape[0], 1e-6);
    p_linear(r, q, "self_attn.q_b_proj", low);
  } else {
    p_linear(r, q, "self_attn.q_proj", x);
  }
  p_linear(r, kv, "self_attn.kv_a_proj_with_mqa", x);
  p_rms(latent, kv, p_find(r, "self_attn.kv_a_layernorm.weight"), r->rank, 1e-6);
  p_rope(r, kv + r->rank, t + k);
  double expanded[P_WIDE];
  p_linear(r, expanded, "self_attn.kv_b_proj", latent);
  for (int32_t h = 0; h < r->n_heads; h++) {
    p_rope(r, q + h * r->dim + r->nope, t + k);
    memcpy(&r->keys[k][t][h * r->dim], expanded + h * both, sizeof(double) * (size_t)r->nope);
    memcpy(&r->keys[k][t][h * r->dim + r->nope], kv + r->rank, sizeof(double) * (size_t)r->rope);
    memcpy(&r->values[k][t][h * r->value], expanded + h * both + r->nope, sizeof(double) * (size_t)r->value);
  }
}

static inline void p_grouped(struct prediction_reference *r, double *q, const double *x, int32_t t, int32_t k) {
  const struct tensor_entry *q_norm = p_peek(r, "self_attn.q_norm.weight", true), *k_norm = p_peek(r, "self_attn.k_norm.weight", true);
  p_linear(r, q, "self_attn.q_proj", x);
  p_linear(r, r->keys[k][t], "self_attn.k_proj", x);
  p_linear(r, r->values[k][t], "self_attn.v_proj", x);
  for (int32_t h = 0; h < r->n_heads; h++) {
    if (q_norm) p_rms(q + h * r->dim, q + h * r->dim, q_norm, r->dim, r->eps);
    p_rope(r, q + h * r->dim, t + k);
  }
  for (int32_t h = 0; h < r->n_kv; h++) {
    double *key = &r->keys[k][t][h * r->dim];
    if (k_norm) p_rms(key, key, k_norm, r->dim, r->eps);
    p_rope(r, key, t + k);
  }
}

static inline void p_attend(const struct prediction_reference *r, double *out, const double *q, int32_t t, int32_t k) {
  int32_t n = t + 1 + k, group = r->n_heads / r->n_kv;
  for (int32_t h = 0; h < r->n_heads; h++) {
    double scores[P_TIME + P_STEPS], sum = 0;
    for (int32_t d = 0; d < r->value; d++) out[h * r->value + d] = 0;
    for (int32_t j = 0; j < n; j++) {
      const double *key = (j <= t ? r->keys[0][j] : r->keys[j - t][t]) + h / group * r->dim;
      scores[j] = 0;
      for (int32_t d = 0; d < r->dim; d++) scores[j] += q[h * r->dim + d] * key[d];
      sum += scores[j] = exp(scores[j] / sqrt(r->dim));
    }
    for (int32_t j = 0; j < n; j++) {
      const double *value = (j <= t ? r->values[0][j] : r->values[j - t][t]) + h / group * r->value;
      for (int32_t d = 0; d < r->value; d++) out[h * r->value + d] += scores[j] / sum * value[d];
    }
  }
}

/* out += share * expert(x). */
static inline void p_expert(const struct prediction_reference *r, double *out, const double *x, const char *base, double share) {
  char name[128];
  double gate[P_WIDE], up[P_WIDE], down[P_WIDE];
  snprintf(name, sizeof name, "%sup_proj.weight", base);
  int32_t width = (int32_t)p_find(r, name)->shape[0];
  snprintf(name, sizeof name, "%sgate_proj", base);
  p_linear(r, gate, name, x);
  snprintf(name, sizeof name, "%sup_proj", base);
  p_linear(r, up, name, x);
  for (int32_t i = 0; i < width; i++) up[i] *= gate[i] / (1 + exp(-gate[i]));
  snprintf(name, sizeof name, "%sdown_proj", base);
  p_linear(r, down, name, up);
  for (int32_t i = 0; i < r->hidden; i++) out[i] += share * down[i];
}

static inline int32_t p_best(const double *scores, int32_t first, int32_t n) {
  int32_t best = first;
  for (int32_t i = first; i < first + n; i++) best = scores[i] > scores[best] ? i : best;
  return best;
}

/* Groups are scored by their two best; experts of the others are out of the running. */
static inline void p_drop_groups(const struct prediction_reference *r, double *biased, int32_t n_experts) {
  int32_t n_groups = p_int(r->config, "n_group"), kept = p_int(r->config, "topk_group"), size = n_experts / n_groups;
  double group[16];
  bool stays[16] = {false};
  if (n_groups <= 1) return;
  for (int32_t g = 0; g < n_groups; g++) {
    int32_t first = p_best(biased, g * size, size);
    double best = biased[first], second = -1e9;
    for (int32_t i = g * size; i < (g + 1) * size; i++) second = i != first && biased[i] > second ? biased[i] : second;
    group[g] = best + second;
  }
  for (int32_t i = 0; i < kept; i++) {
    int32_t g = p_best(group, 0, n_groups);
    stays[g] = true;
    group[g] = -1e9;
  }
  for (int32_t i = 0; i < n_experts; i++) biased[i] = stays[i / size] ? biased[i] : -1e9;
}

static inline void p_feed_forward(const struct prediction_reference *r, double *out, const double *x) {
  const struct tensor_entry *router = p_peek(r, "mlp.gate.weight", true);
  int32_t picked[16], n_picked = p_int(r->config, "num_experts_per_tok");
  double scores[64], biased[64], sum = 1e-20;
  for (int32_t i = 0; i < r->hidden; i++) out[i] = 0;
  if (!router) {
    p_expert(r, out, x, "mlp.", 1);
    return;
  }
  int32_t n = (int32_t)router->shape[0];
  p_linear(r, scores, "mlp.gate", x);
  for (int32_t i = 0; i < n; i++) {
    scores[i] = 1 / (1 + exp(-scores[i]));
    biased[i] = scores[i] + p_at(p_find(r, "mlp.gate.e_score_correction_bias"), i);
  }
  p_drop_groups(r, biased, n);
  for (int32_t i = 0; i < n_picked; i++) {
    picked[i] = p_best(biased, 0, n);
    biased[picked[i]] = -1e9;
    sum += scores[picked[i]];
  }
  if (!json_is_true(json_object_get(r->config, "norm_topk_prob"))) sum = 1;
  for (int32_t i = 0; i < n_picked; i++) {
    char base[64];
    snprintf(base, sizeof base, "mlp.experts.%d.", picked[i]);
    p_expert(r, out, x, base, scores[picked[i]] / sum * p_double(r->config, "routed_scaling_factor"));
  }
  p_expert(r, out, x, "mlp.shared_experts.", 1);
}

/* One slot of one step: token and feature in, next feature and logits out. */
static inline void p_slot(struct prediction_reference *r, int32_t token, const double *feature, const int32_t at[2]) {
  int32_t t = at[0], k = at[1], h = r->hidden;
  double e[P_WIDE], wide[P_WIDE], x[P_WIDE], normed[P_WIDE], q[P_WIDE], mixed[P_WIDE], delta[P_WIDE];
  const struct tensor_entry *embed = p_peek(r, "embed_tokens.weight", true), *head = p_peek(r, "shared_head.head.weight", true);
  if (!embed) embed = p_peek(r, "model.embed_tokens.weight", false);
  if (!head) head = p_peek(r, "lm_head.weight", false);
  for (int32_t i = 0; i < h; i++) e[i] = p_at(embed, (int64_t)token * h + i);
  p_rms(wide, e, p_find(r, "enorm.weight"), h, r->eps);
  p_rms(wide + h, feature, p_find(r, "hnorm.weight"), h, r->eps);
  p_linear(r, x, "eh_proj", wide);
  p_rms(normed, x, p_find(r, "input_layernorm.weight"), h, r->eps);
  if (r->latent)
    p_latent(r, q, normed, t, k);
  else
    p_grouped(r, q, normed, t, k);
  p_attend(r, mixed, q, t, k);
  p_linear(r, delta, "self_attn.o_proj", mixed);
  for (int32_t i = 0; i < h; i++) x[i] += delta[i];
  p_rms(normed, x, p_find(r, "post_attention_layernorm.weight"), h, r->eps);
  p_feed_forward(r, delta, normed);
  for (int32_t i = 0; i < h; i++) x[i] += delta[i];
  memcpy(r->next[k][t], x, sizeof(double) * (size_t)h);
  p_rms(normed, x, p_find(r, "shared_head.norm.weight"), h, r->eps);
  for (int64_t o = 0; o < head->shape[0]; o++) {
    r->logits[k][t][o] = 0;
    for (int32_t i = 0; i < h; i++) r->logits[k][t][o] += p_at(head, o * h + i) * normed[i];
  }
}

static inline struct prediction_reference *p_create(const struct checkpoint *files) {
  struct prediction_reference *r = memory_alloc(sizeof *r);
  const json_t *c = r->config = files->config, *rope = json_object_get(c, "rope_parameters");
  r->files = files;
  r->layer = p_int(c, "num_hidden_layers");
  r->hidden = p_int(c, "hidden_size");
  r->n_heads = p_int(c, "num_attention_heads");
  r->latent = json_is_integer(json_object_get(c, "kv_lora_rank"));
  r->eps = p_double(c, "rms_norm_eps");
  r->theta = p_double(rope, "rope_theta");
  assert_string_equal(json_string_value(json_object_get(rope, "rope_type")), "default");
  if (r->latent) {
    r->nope = p_int(c, "qk_nope_head_dim");
    r->rope = p_int(c, "qk_rope_head_dim");
    r->value = p_int(c, "v_head_dim");
    r->rank = p_int(c, "kv_lora_rank");
    r->dim = r->nope + r->rope;
    r->n_kv = r->n_heads;
    r->interleaved = !json_is_false(json_object_get(c, "rope_interleave"));
  } else {
    r->n_kv = p_int(c, "num_key_value_heads");
    r->dim = r->value = p_int(c, "head_dim");
    r->rope = (int32_t)(r->dim * p_double(c, "partial_rotary_factor"));
  }
  return r;
}

#endif
