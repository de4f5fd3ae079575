/* random_models.h - tiny models of every architecture with fresh random weights, and heads for them: any number of
 * targets from the few that have references. Same names, shapes and types as the template; float tensors are drawn with
 * the mean and spread that the template's have (so norms stay near what they are near there). Quantised weights and
 * what belongs to them (scales, zero points, group indices) stay the template's. */
#ifndef EAGLET_TESTS_RANDOM_MODELS_H
#define EAGLET_TESTS_RANDOM_MODELS_H

#include "script_fixture.h"

#include "checkpoint/checkpoint.h"
#include "compute/weight.h"
#include "model/model.h"

/* How much of a long list is worth the time: with every access checked, each that many-th. */
#ifdef __SANITIZE_ADDRESS__
#define TEST_STRIDE 6
#else
#define TEST_STRIDE 1
#endif

/* ---- models ---- */

static inline bool random_model_draws(const struct tensor_entry *t) {
  static const char *const kept[] = {"scale", "zero", "g_idx", "inv_freq"};
  if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_BF16 && t->dtype != DTYPE_F16) return false;
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    if (strstr(t->name, kept[i])) return false;
  }
  return true;
}

/* What does not vary in the template varies by a twentieth, or by 0.02 around 0. */
static inline void *random_model_values(const struct tensor_entry *t, uint64_t seed, uint64_t stream) {
  size_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= (size_t)t->shape[i];
  float *values = memory_alloc((n + 1) * sizeof *values);
  double mean = 0, square = 0;
  dtype_to_f32(values, t->data, t->dtype, n);
  for (size_t i = 0; i < n; i++) mean += (double)values[i] / (double)n;
  for (size_t i = 0; i < n; i++) square += pow((double)values[i] - mean, 2) / (double)n;
  double spread = square > 0 ? sqrt(square) : mean != 0 ? 0.05 * fabs(mean) : 0.02;
  for (size_t i = 0; i < n; i++) values[i] = (float)(mean + spread * random_normal(seed, stream, i));
  if (t->dtype == DTYPE_F32) return values;
  void *stored = memory_alloc((n + 1) * 2);
  dtype_from_f32(stored, t->dtype, values, n);
  free(values);
  return stored;
}

/* template: a directory with config.json and weights. */
static inline void random_model_write(char directory[64], const char *template, uint64_t seed) {
  struct checkpoint source;
  struct eaglet_error err;
  struct tensor_bag bag = {.writer = safetensors_writer_create()};
  assert_ok(checkpoint_open(&source, template, &err), &err);
  temporary_directory(directory);
  struct eaglet_text config = json_dump(source.config, 2);
  write_text(directory, "config.json", config.data);
  for (size_t i = 0; i < source.n_tensors; i++) {
    const struct tensor_entry *t = source.tensors[i];
    const void *data = random_model_draws(t) ? bag_own(&bag, random_model_values(t, seed, i)) : t->data;
    safetensors_writer_add(bag.writer, t->name, t->dtype, t->rank, t->shape, data);
  }
  bag_commit(&bag, directory);
  free(config.data);
  checkpoint_close(&source);
}

/* ---- heads ---- */

/* Random weights, and in them a memory of a text (the target's own, say), without which no draft would ever stand.
 * Attention looks at its own row alone: queries and keys are the token's embedding, which those of other tokens do not
 * match. Its value is what follows the token in the text, as the target's row of lm_head, less the feature; so drafts
 * depend on the captured states, but mostly on the memory. lm_head is borrowed from the target. */
struct random_head {
  const struct model *target;
  const int32_t *states; // [n_states] ascending, from 1
  const int32_t *text;   // [n_text] or NULL: what is remembered, of a token that comes again what followed last
  const int32_t *next;   // [n_vocab] or NULL: remembered instead of a text; -1: nothing of this token
  int32_t n_states, n_text;
  float share; /* of the pairs that are remembered; 0: all */
  uint64_t seed;
};

/* [rows, columns] of N(0, spread / sqrt(columns)). */
static inline float *random_head_noise(struct tensor_bag *bag, const struct random_head *r, const char *name,
                                       const int64_t shape[2], double spread) {
  float *values = bag_add(bag, name, shape[0], shape[1]);
  for (int64_t i = 0; i < shape[0] * shape[1]; i++)
    values[i] = (float)(spread / sqrt((double)shape[1]) * random_normal(r->seed, bag->n, (uint64_t)i));
  return values;
}

/* A row of a weight at length sqrt(columns), as a norm would give it. */
static inline void random_head_unit_row(const struct weight *w, int32_t row, float *out) {
  double square = 0;
  weight_row_to_f32(w, row, out);
  for (int32_t i = 0; i < w->n_in; i++) square += (double)out[i] * (double)out[i] / (double)w->n_in;
  for (int32_t i = 0; i < w->n_in; i++) out[i] = (float)((double)out[i] / sqrt(square + 1e-30));
}

/* What follows the token at `at` of the text (of a token that comes again: -1), or the token `at`, where `next` is given. */
static inline int32_t random_head_following(const struct random_head *r, int32_t at) {
  if (r->next) return r->next[at];
  return script_lists(r->text + at + 1, r->n_text - at - 2, r->text[at]) ? -1 : r->text[at + 1];
}

/* value: [H, 2H]; adds following(token) embedding(token)^T / H for every pair. */
static inline void random_head_remember(float *value, const struct random_head *r) {
  int32_t h = r->target->arch.features.hidden, n = r->next ? r->target->arch.features.n_vocab : r->n_text - 1;
  float *token = memory_alloc((size_t)h * sizeof *token), *following = memory_alloc((size_t)h * sizeof *following);
  for (int32_t at = 0; at < n; at++) {
    int32_t next = random_head_following(r, at);
    if (next < 0 || (r->share > 0 && random_uniform(r->seed, 1000, (uint64_t)at) >= (double)r->share)) continue;
    random_head_unit_row(&r->target->embed, r->next ? at : r->text[at], token);
    random_head_unit_row(&r->target->head, next, following);
    for (int32_t i = 0; i < h; i++) {
      for (int32_t j = 0; j < h; j++) value[(int64_t)i * 2 * h + j] += following[i] * token[j] / (float)h;
    }
  }
  free(token);
  free(following);
}

static inline void random_head_weights(const char *directory, const struct random_head *r) {
  struct tensor_bag bag = {.writer = safetensors_writer_create()};
  int32_t h = r->target->arch.features.hidden;
  const int64_t fc[2] = {h, r->n_states * h}, wide[2] = {h, 2 * h}, square[2] = {h, h}, up[2] = {2 * h, h};
  random_head_noise(&bag, r, "fc.weight", fc, 0.01);
  float *q = random_head_noise(&bag, r, "midlayer.self_attn.q_proj.weight", wide, 0.1),
        *k = random_head_noise(&bag, r, "midlayer.self_attn.k_proj.weight", wide, 0.1),
        *v = random_head_noise(&bag, r, "midlayer.self_attn.v_proj.weight", wide, 0.1),
        *o = random_head_noise(&bag, r, "midlayer.self_attn.o_proj.weight", square, 0.1);
  random_head_noise(&bag, r, "midlayer.mlp.gate_proj.weight", up, 1);
  random_head_noise(&bag, r, "midlayer.mlp.up_proj.weight", up, 1);
  random_head_noise(&bag, r, "midlayer.mlp.down_proj.weight", wide, 0.1);
  bag_add_ones(&bag, "midlayer.input_layernorm.weight", h);
  bag_add_ones(&bag, "midlayer.hidden_norm.weight", h);
  bag_add_ones(&bag, "midlayer.post_attention_layernorm.weight", h);
  bag_add_ones(&bag, "norm.weight", h);
  for (int32_t i = 0; i < h; i++) {
    q[(int64_t)i * 2 * h + i] += 2;
    k[(int64_t)i * 2 * h + i] += 2;
    v[(int64_t)i * 2 * h + h + i] -= 0.7f;
    o[(int64_t)i * h + i] += 1;
  }
  random_head_remember(v, r);
  bag_commit(&bag, directory);
}

static inline void random_head_write(char directory[64], const struct random_head *r) {
  const struct features *f = &r->target->arch.features;
  json_t *states = json_array(), *ids = json_array();
  for (int32_t i = 0; i < r->n_states; i++) {
    json_array_append_new(states, json_integer(r->states[i]));
    json_array_append_new(ids, json_integer(r->states[i] - 1));
  }
  json_t *config = json_pack(
      "{s:[s],s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:s,s:{s:o,s:o}}", "architectures", "LlamaForCausalLMEagle3",
      "model_type", "llama", "vocab_size", f->n_vocab, "hidden_size", f->hidden, "intermediate_size", 2 * f->hidden,
      "num_hidden_layers", 1, "num_attention_heads", 1, "num_key_value_heads", 1, "head_dim", f->hidden,
      "max_position_embeddings", f->positions_max, "rms_norm_eps", 1e-6, "rope_theta", 10000.0, "hidden_act", "silu",
      "eagle_config", "eagle_aux_hidden_state_layer_ids", ids, "eaglet_states", states);
  assert_non_null(config);
  struct eaglet_text text = json_dump(config, 2);
  temporary_directory(directory);
  write_text(directory, "config.json", text.data);
  random_head_weights(directory, r);
  free(text.data);
  json_decref(config);
}

#endif
