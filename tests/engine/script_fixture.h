/* script_fixture.h - pairs whose behaviour is known in advance: checkpoints that are really opened and computed, with
 * weights such that greedy decoding walks a given map from token to token, and a head that is right, wrong at chosen
 * tokens, or always wrong.
 *
 * Target: llama-like, three layers that add nothing; hidden = vocabulary, embeddings one-hot, so that every state of a
 * row is e(x) and lm_head, divided by what the final norm multiplies with, is the table of logits (row: next token,
 * column: token). Head, in one of two ways:
 * - it reads features: fc picks the first state e(x_t), attention adds nothing, the gate is a positive constant, up = I
 *   and down is (P - I) over that constant, so that each draft step walks one step of the map P from e(x_t) on;
 * - it reads tokens: the feature is replaced by the token's embedding. Queries and keys are one constant vector, whose
 *   rotated copies match best at distance 0; values are the difference of the row's two inputs. Right after any token,
 *   also where the target left the map.
 * Weights are F32. Logits that differ, differ by `margin` unless noise is asked for. */
#ifndef EAGLET_TESTS_SCRIPT_FIXTURE_H
#define EAGLET_TESTS_SCRIPT_FIXTURE_H

#include "../draft/pair_fixture.h"

#include "base/util.h"
#include "checkpoint/safetensors.h"
#include "draft/vocab_map.h"

#include <math.h>

#define SCRIPT_VOCAB 64
#define SCRIPT_LAYERS 3
#define SCRIPT_HEAD_DIM 32
#define SCRIPT_NORM_EPS 1e-6
#define SCRIPT_MARGIN 32.0f

/* Zero: 64 tokens, (5t + 3) mod 64, no stop token, a head that reads features and is always right. */
struct script_params {
  int32_t n_vocab;
  const int32_t *next;      // [n_vocab] what follows each token
  const int32_t *eos;       // [n_eos]
  const int32_t *wrong;     // [n_wrong] tokens that the head never drafts where they are due
  const int32_t *draft_ids; // [n_draft] ascending: what the head can draft
  int32_t n_eos, n_wrong, n_draft;
  int32_t context_max;      /* 0: 512 */
  float margin;             /* of the following token's logit; 0: SCRIPT_MARGIN */
  float noise, draft_noise; /* N(0, noise) on all logits of both, N(0, draft_noise) on the head's alone */
  uint64_t seed;            /* of the noise */
  bool hostile;             /* the head is never right */
  bool reads_tokens;
};

struct script {
  char target[64], draft[64]; /* directories */
};

/* ---- a safetensors file in the making ---- */

struct tensor_bag {
  struct safetensors_writer *writer;
  void **blocks;
  size_t n, capacity;
};

static inline void *bag_own(struct tensor_bag *bag, void *block) {
  MEMORY_GROW(bag->blocks, bag->capacity, bag->n + 1);
  return bag->blocks[bag->n++] = block;
}

/* F32 zeros to be filled in; columns 0: a vector. */
static inline float *bag_add(struct tensor_bag *bag, const char *name, int64_t rows, int64_t columns) {
  const int64_t shape[2] = {rows, columns};
  float *values = bag_own(bag, memory_alloc((size_t)(rows * (columns ? columns : 1)) * sizeof *values));
  safetensors_writer_add(bag->writer, name, DTYPE_F32, columns ? 2 : 1, shape, values);
  return values;
}

static inline void bag_add_ones(struct tensor_bag *bag, const char *name, int64_t rows) {
  float *values = bag_add(bag, name, rows, 0);
  for (int64_t i = 0; i < rows; i++) values[i] = 1;
}

static inline void bag_commit(struct tensor_bag *bag, const char *directory) {
  struct eaglet_error err;
  char *path = file_join(directory, "model.safetensors");
  assert_ok(safetensors_writer_commit(bag->writer, path, &err), &err);
  safetensors_writer_free(bag->writer);
  for (size_t i = 0; i < bag->n; i++) free(bag->blocks[i]);
  free(bag->blocks);
  free(path);
}

/* ---- what the pair does ---- */

static inline int32_t script_vocab(const struct script_params *p) {
  return p->n_vocab > 0 ? p->n_vocab : SCRIPT_VOCAB;
}

static inline int32_t script_next(const struct script_params *p, int32_t token) {
  return p->next ? p->next[token] : (5 * token + 3) % script_vocab(p);
}

/* The token `steps` after this one. */
static inline int32_t script_walk(const struct script_params *p, int32_t token, int32_t steps) {
  while (steps-- > 0) token = script_next(p, token);
  return token;
}

/* The target's logit of `next` after `token`. */
static inline double script_logit(const struct script_params *p, int32_t token, int32_t next) {
  double noise = (double)p->noise * random_normal(p->seed, (uint64_t)token, (uint64_t)next);
  return noise + (next == script_next(p, token) ? (double)(p->margin > 0 ? p->margin : SCRIPT_MARGIN) : 0);
}

static inline bool script_lists(const int32_t *list, int32_t n, int32_t token) {
  for (int32_t i = 0; i < n; i++) {
    if (list[i] == token) return true;
  }
  return false;
}

static inline bool script_drafts(const struct script_params *p, int32_t token) {
  return p->n_draft == 0 || script_lists(p->draft_ids, p->n_draft, token);
}

/* What the head drafts where `due` comes next. */
static inline int32_t script_answer(const struct script_params *p, int32_t due) {
  int32_t answer = due, n_vocab = script_vocab(p);
  if (!p->hostile && !script_lists(p->wrong, p->n_wrong, due) && script_drafts(p, due)) return due;
  do answer = (answer + 1) % n_vocab;
  while (!script_drafts(p, answer) && answer != due);
  assert_int_not_equal(answer, due);
  return answer;
}

/* ---- the target ---- */

static inline double script_norm_factor(int32_t n_vocab) {
  return 1 / sqrt(1.0 / n_vocab + SCRIPT_NORM_EPS); /* of a one-hot vector */
}

static inline void script_target_weights(const char *directory, const struct script_params *p) {
  static const struct {
    const char *name;
    int rows, columns; /* 0: hidden */
  } zeros[] = {{"self_attn.q_proj", 32, 0}, {"self_attn.k_proj", 16, 0}, {"self_attn.v_proj", 16, 0},
               {"self_attn.o_proj", 0, 32}, {"mlp.gate_proj", 16, 0},    {"mlp.up_proj", 16, 0},
               {"mlp.down_proj", 0, 16}};
  struct tensor_bag bag = {.writer = safetensors_writer_create()};
  int32_t n = script_vocab(p);
  char name[128];
  for (int layer = 0; layer < SCRIPT_LAYERS; layer++) {
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) {
      snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, zeros[i].name);
      bag_add(&bag, name, zeros[i].rows ? zeros[i].rows : n, zeros[i].columns ? zeros[i].columns : n);
    }
    snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", layer);
    bag_add_ones(&bag, name, n);
    snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm.weight", layer);
    bag_add_ones(&bag, name, n);
  }
  float *embed = bag_add(&bag, "model.embed_tokens.weight", n, n), *head = bag_add(&bag, "lm_head.weight", n, n);
  for (int32_t t = 0; t < n; t++) {
    embed[t * n + t] = 1;
    for (int32_t v = 0; v < n; v++) head[v * n + t] = (float)(script_logit(p, t, v) / script_norm_factor(n));
  }
  bag_add_ones(&bag, "model.norm.weight", n);
  bag_commit(&bag, directory);
}

static inline void script_target(char directory[64], const struct script_params *p) {
  json_t *eos = json_array();
  for (int32_t i = 0; i < p->n_eos; i++) json_array_append_new(eos, json_integer(p->eos[i]));
  int32_t n = script_vocab(p);
  json_t *config =
      json_pack("{s:[s],s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:s,s:b}", "architectures", "LlamaForCausalLM",
                "model_type", "llama", "vocab_size", n, "hidden_size", n, "intermediate_size", 16, "num_hidden_layers",
                SCRIPT_LAYERS, "num_attention_heads", 2, "num_key_value_heads", 1, "head_dim", 16,
                "max_position_embeddings", p->context_max > 0 ? p->context_max : 512, "rms_norm_eps", SCRIPT_NORM_EPS,
                "rope_theta", 10000.0, "hidden_act", "silu", "tie_word_embeddings", 0);
  if (p->n_eos > 0) json_object_set(config, "eos_token_id", eos);
  struct eaglet_text text = json_dump(config, 2);
  temporary_directory(directory);
  write_text(directory, "config.json", text.data);
  script_target_weights(directory, p);
  free(text.data);
  json_decref(config);
  json_decref(eos);
}

/* ---- the head ---- */

/* y = g; z = y + down(silu(gate) up(norm(y))) = P y. */
static inline void script_step_by_feature(struct tensor_bag *bag, const struct script_params *p) {
  int32_t n = script_vocab(p);
  double a = script_norm_factor(n), constant = a / (1 + exp(-a)) * a;
  float *gate = bag_add(bag, "midlayer.mlp.gate_proj.weight", n, n),
        *up = bag_add(bag, "midlayer.mlp.up_proj.weight", n, n),
        *down = bag_add(bag, "midlayer.mlp.down_proj.weight", n, n);
  for (int32_t t = 0; t < n; t++) {
    for (int32_t i = 0; i < n; i++) gate[t * n + i] = 1;
    up[t * n + t] = 1;
    down[script_next(p, t) * n + t] += (float)(1 / constant);
    down[t * n + t] -= (float)(1 / constant);
  }
}

/* How much better the constant vector matches itself than any of its copies up to the context's length away: sum of
 * 1 - cos over the pairs. */
static inline double script_match_gap(int32_t context_max) {
  double least = 1e9;
  for (int32_t distance = 1; distance < context_max; distance++) {
    double gap = 0;
    for (int i = 0; i < SCRIPT_HEAD_DIM / 2; i++) gap += 1 - cos(distance * pow(10000, -2.0 * i / SCRIPT_HEAD_DIM));
    least = fmin(least, gap);
  }
  return least;
}

/* y = g + e(x) - g; the feed-forward part adds nothing. */
static inline void script_step_by_token(struct tensor_bag *bag, const struct script_params *p, int32_t n_heads) {
  int32_t n = script_vocab(p), d = SCRIPT_HEAD_DIM, wide = n_heads * d, half = d / 2;
  float *q = bag_add(bag, "midlayer.self_attn.q_proj.weight", wide, 2 * n),
        *k = bag_add(bag, "midlayer.self_attn.k_proj.weight", wide, 2 * n),
        *v = bag_add(bag, "midlayer.self_attn.v_proj.weight", wide, 2 * n),
        *o = bag_add(bag, "midlayer.self_attn.o_proj.weight", n, wide);
  if (!p->reads_tokens) return;
  double a = script_norm_factor(n), gap = script_match_gap(p->context_max > 0 ? p->context_max : 512);
  float match = (float)(sqrt(60 * sqrt(d) / gap) / a); /* the others weigh less than exp(-60) */
  for (int32_t i = 0; i < wide; i++) {
    for (int32_t t = 0; t < n && i % d < half; t++) q[i * 2 * n + t] = k[i * 2 * n + t] = match;
  }
  for (int32_t t = 0; t < n; t++) {
    v[t * 2 * n + t] = (float)(1 / a);
    v[t * 2 * n + n + t] = (float)(-1 / a);
    o[t * wide + t] = 1;
  }
}

static inline void script_draft_weights(const char *directory, const struct script_params *p, int32_t n_heads) {
  struct tensor_bag bag = {.writer = safetensors_writer_create()};
  static const char *const norms[] = {"midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight",
                                      "midlayer.post_attention_layernorm.weight", "norm.weight"};
  int32_t n = script_vocab(p), n_draft = p->n_draft > 0 ? p->n_draft : n;
  float *fc = bag_add(&bag, "fc.weight", n, 3 * n), *head = bag_add(&bag, "lm_head.weight", n_draft, n);
  for (int32_t t = 0; t < n; t++) fc[t * 3 * n + t] = 1;
  for (int i = 0; i < 4; i++) bag_add_ones(&bag, norms[i], n);
  script_step_by_token(&bag, p, n_heads);
  if (p->reads_tokens) {
    bag_add(&bag, "midlayer.mlp.gate_proj.weight", n, n);
    bag_add(&bag, "midlayer.mlp.up_proj.weight", n, n);
    bag_add(&bag, "midlayer.mlp.down_proj.weight", n, n);
  } else {
    script_step_by_feature(&bag, p);
  }
  for (int32_t t = 0; t < n; t++) {
    int32_t due = script_next(p, t), answer = script_answer(p, due);
    for (int32_t d = 0; d < n_draft; d++) {
      int32_t token = p->n_draft > 0 ? p->draft_ids[d] : d;
      /* the target's logits, with those of the due token and of the answer exchanged */
      int32_t as = token == answer ? due : token == due ? answer : token;
      double extra = (double)p->draft_noise * random_normal(p->seed + 1, (uint64_t)t, (uint64_t)token);
      head[d * n + t] = (float)((script_logit(p, t, as) + extra) / script_norm_factor(n));
    }
  }
  if (p->n_draft > 0) {
    struct vocab_map map;
    struct eaglet_error err;
    void *storage;
    assert_ok(vocab_map_init(&map, p->draft_ids, p->n_draft, n, "script", &err), &err);
    vocab_map_write(&map, bag.writer, &storage);
    bag_own(&bag, storage);
    vocab_map_release(&map);
  }
  bag_commit(&bag, directory);
}

static inline void script_draft(char directory[64], const struct script_params *p) {
  int32_t n = script_vocab(p), n_heads = (n + SCRIPT_HEAD_DIM - 1) / SCRIPT_HEAD_DIM;
  json_t *config =
      json_pack("{s:[s],s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:s,s:{s:b,s:[i,i,i],s:[i,i,i]}}",
                "architectures", "LlamaForCausalLMEagle3", "model_type", "llama", "vocab_size", n, "draft_vocab_size",
                p->n_draft > 0 ? p->n_draft : n, "hidden_size", n, "intermediate_size", n, "num_hidden_layers", 1,
                "num_attention_heads", n_heads, "num_key_value_heads", n_heads, "head_dim", SCRIPT_HEAD_DIM,
                "max_position_embeddings", p->context_max > 0 ? p->context_max : 512, "rms_norm_eps", SCRIPT_NORM_EPS,
                "rope_theta", 10000.0, "hidden_act", "silu", "eagle_config", "use_aux_hidden_state", 1,
                "eagle_aux_hidden_state_layer_ids", 0, 1, 2, "eaglet_states", 1, 2, 3);
  struct eaglet_text text = json_dump(config, 2);
  temporary_directory(directory);
  write_text(directory, "config.json", text.data);
  script_draft_weights(directory, p, n_heads);
  free(text.data);
  json_decref(config);
}

static inline void script_write(struct script *script, const struct script_params *p) {
  script_target(script->target, p);
  script_draft(script->draft, p);
}

static inline void script_remove(const struct script *script) {
  remove_directory(script->target);
  remove_directory(script->draft);
}

#endif
