/* head_training.c - see head_training.h. Owns the activations of one micro-batch, all unrolled steps, and the order of things: rows, forward,
 * loss, backward. The hard part is which rows exist: step k holds the slots that carry loss at step k or later ("active"), a subset of step
 * k-1's; step 0 besides holds keys and values of every slot, and in a head of several layers all that its last layer's keys are made of.
 *
 * Letters: as in head_training_internal.h; n_k active rows of step k, Vd draft vocabulary.
 */
#include "draft/head_training_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOGITS_CHUNK_FLOATS (4 << 20) /* a chunk's logits stay within 16 MiB */

/* ---- memory: everything is sized by slots_max and unroll_max ---- */

static struct head_sizes sizes_of(const struct head_config *c) {
  bool latent = c->attention == ATTENTION_MLA;
  return (struct head_sizes){.h = c->hidden,
                             .wide = c->n_states * c->target_hidden,
                             .n_heads = c->n_heads,
                             .n_kv_heads = latent ? c->n_heads : c->n_kv_heads,
                             .key = latent ? c->nope_dim + c->rope_dim : c->head_dim,
                             .value = latent ? c->value_dim : c->head_dim,
                             .q_rank = c->q_rank,
                             .kv_rank = c->kv_rank,
                             .nope = c->nope_dim,
                             .rope = c->rope_dim,
                             .inter = c->intermediate,
                             .scale = (float)(c->attention_scale > 0 ? c->attention_scale : 1.0 / sqrt((double)c->head_dim)),
                             .eps = (float)c->norm_eps,
                             .inner_eps = latent ? 1e-6f : (float)c->norm_eps}; /* as head.c has it */
}

/* [rows, width] floats; NULL when there are none, or while planning. */
static float *take(struct head_training *t, size_t rows, size_t width) {
  size_t bytes = arena_round(rows * width * sizeof(float));
  if (width == 0) return NULL;
  if (!t->planning) return arena_take(&t->floats, bytes);
  t->planned += bytes;
  return NULL;
}
static int32_t *take_ints(struct head_training *t, size_t n) {
  return arena_take(&t->ints, n * sizeof(int32_t));
}

/* What later steps and backward need of a step: keys, values, their gradients, the feature that is handed on. */
static void carve_kept(struct head_training *t, int32_t k) {
  struct step *s = &t->steps[k];
  const struct head_sizes *z = &t->sizes;
  size_t n = (size_t)s->n, in = (size_t)s->n_in, h = (size_t)z->h;
  size_t key = (size_t)(z->n_kv_heads * z->key), value = (size_t)(z->n_kv_heads * z->value);
  s->layers = t->layers + k * t->n_layers;
  for (int32_t i = 0; i < t->n_layers; i++) {
    struct layer_step *layer = &s->layers[i];
    layer->key = take(t, in, key);
    layer->value = take(t, in, value);
    layer->d_key = take(t, in, key);
    layer->d_value = take(t, in, value);
  }
  s->layers[t->n_layers - 1].z = take(t, n, h);
  s->d_normed = take(t, n, h);
  s->z_normed = take(t, n, h);
}

/* What a layer's backward reads besides, but for u. */
static void carve_layer(struct head_training *t, struct layer_step *s, size_t in, size_t n) {
  const struct head_sizes *z = &t->sizes;
  bool latent = t->config.attention == ATTENTION_MLA, norms = t->config.qk_norm;
  size_t h = (size_t)z->h, raw = (size_t)(z->kv_rank + z->rope), inter = (size_t)z->inter, heads = (size_t)z->n_heads;
  size_t key = (size_t)(z->n_kv_heads * z->key), q = heads * (size_t)z->key;
  s->key_raw = take(t, in, latent ? raw : norms ? key : 0);
  s->latent = take(t, in, (size_t)z->kv_rank);
  s->q = take(t, n, q);
  s->q_raw = take(t, n, latent ? (size_t)z->q_rank : norms ? q : 0);
  s->q_low = take(t, n, (size_t)z->q_rank);
  s->attended = take(t, n, heads * (size_t)z->value);
  s->log_sum = take(t, n, heads);
  s->y = take(t, n, h);
  s->y_normed = take(t, n, h);
  s->gate = take(t, n, inter);
  s->up = take(t, n, inter);
  s->act = take(t, n, inter);
}

/* What backward reads of its own step only. */
static void carve_step(struct head_training *t, int32_t k) {
  struct step *s = &t->steps[k];
  const struct head_wiring *wiring = &t->config.wiring;
  size_t n = (size_t)s->n, in = (size_t)s->n_in, h = (size_t)t->sizes.h;
  s->fused = take(t, in, k == 0 && (wiring->fc_norms || wiring->fc_input_norm) ? (size_t)t->sizes.wide : 0);
  s->embedding = take(t, in, h);
  s->g = take(t, in, h);
  s->u = take(t, in, 2 * h);
  for (int32_t i = 0; i < t->n_layers; i++) {
    bool narrows = k == 0 && i == t->n_layers - 1;
    s->layers[i].u = i == 0 ? s->u : take(t, in, h);
    s->layers[i].u_out = narrows ? take(t, n, i == 0 ? 2 * h : h) : s->layers[i].u;
    if (i < t->n_layers - 1) s->layers[i].z = take(t, in, h);
    carve_layer(t, &s->layers[i], in, narrows ? n : in);
  }
}

/* All steps, whose rows are known. With recompute they take turns in one step's memory; the first has the most rows and arrays. */
static void carve_steps(struct head_training *t, int32_t n_steps) {
  for (int32_t k = 0; k < n_steps; k++) carve_kept(t, k);
  size_t begin = t->floats.used;
  for (int32_t k = 0; k < n_steps; k++) {
    if (t->recompute && !t->planning) t->floats.used = begin;
    if (!t->recompute || !t->planning || k == 0) carve_step(t, k);
  }
}

static void carve_common(struct head_training *t, size_t slots) {
  const struct head_sizes *z = &t->sizes;
  size_t chunk = (size_t)t->chunk_rows, h = (size_t)z->h, heads = (size_t)z->n_heads, inter = (size_t)z->inter;
  t->logits = take(t, chunk, (size_t)t->config.n_draft);
  t->loss = take(t, chunk, 1);
  t->weight = take(t, chunk, 1);
  t->hit = (uint8_t *)take(t, (chunk + 3) / 4, 1);
  t->stream = take(t, slots, h);
  t->spare = take(t, slots, h);
  t->d_u = take(t, slots, 2 * h);
  t->scratch_i = take(t, slots, inter);
  t->scratch_i2 = take(t, slots, inter);
  t->d_q = take(t, slots, heads * (size_t)z->key);
  t->d_attended = take(t, slots, heads * (size_t)z->value);
  t->d_low = take(t, slots, (size_t)z->q_rank);
  t->d_latent = take(t, slots, (size_t)(z->kv_rank + z->rope));
  t->kv = take(t, slots, t->config.attention == ATTENTION_MLA ? heads * (size_t)(z->nope + z->value) : 0);
}

/* What a micro-batch of slots_max slots takes when every slot is active in every step. */
static size_t plan(struct head_training *t, int32_t n_steps) {
  t->planning = true;
  carve_common(t, (size_t)t->slots_max);
  for (int32_t k = 0; k < n_steps; k++) t->steps[k].n = t->steps[k].n_in = t->slots_max;
  carve_steps(t, n_steps);
  t->planning = false;
  return t->planned;
}

static size_t plan_ints(const struct head_training *t, size_t n_steps) {
  size_t row = (size_t)t->slots_max + 16, arrays = n_steps * (9 + n_steps) + 2;
  return arrays * row + (size_t)t->chunk_rows + 16;
}

enum eaglet_status head_training_create(struct head_training **out, const struct head_training_params *params,
                                        struct eaglet_error *err) {
  const struct head_config *config = params->config;
  *out = NULL;
  ASSERT(params->unroll_max >= 1 && params->unroll_max <= STEPS_MAX && params->compute->training);
  struct head_training *t = memory_alloc(sizeof *t);
  *t = (struct head_training){.config = *config,
                              .sizes = sizes_of(config),
                              .compute = params->compute,
                              .slots_max = params->slots_max,
                              .recompute = params->recompute,
                              .n_layers = 1 + config->n_more_layers};
  int32_t positions = params->positions > 0 ? params->positions : params->slots_max + params->unroll_max;
  head_parameters_list(&t->places, config);
  t->layers = memory_alloc(sizeof *t->layers * (size_t)(params->unroll_max * t->n_layers));
  t->chunk_rows = LOGITS_CHUNK_FLOATS / config->n_draft;
  if (t->chunk_rows < 16) t->chunk_rows = 16;
  enum eaglet_status status = arena_init(&t->floats, plan(t, params->unroll_max), err);
  if (status == EAGLET_OK)
    status = arena_init(&t->ints, plan_ints(t, (size_t)params->unroll_max) * sizeof(int32_t), err);
  if (status == EAGLET_OK) status = rope_table_init(&t->rope, t->compute, &config->rope, positions, err);
  if (status != EAGLET_OK) {
    head_training_free(t);
    return status;
  }
  *out = t;
  return EAGLET_OK;
}

void head_training_free(struct head_training *t) {
  if (!t) return;
  rope_table_release(&t->rope, t->compute);
  arena_release(&t->floats);
  arena_release(&t->ints);
  free(t->layers);
  free(t);
}

/* ---- which rows ---- */

static bool in_segment(const struct micro_batch *b, int32_t slot, int32_t k) {
  return slot - b->segment_first[slot] + k < b->segment_length[slot];
}

/* The mask of slot t at step k, out-of-vocabulary targets included. */
static bool masked(const struct micro_batch *b, int32_t slot, int32_t k) {
  if (!in_segment(b, slot, k) || !b->loss_mask[slot + k]) return false;
  return !b->reply_begin || slot >= b->reply_begin[slot + k];
}

static bool carries_loss(const struct micro_batch *b, int32_t slot, int32_t k) {
  return masked(b, slot, k) && b->target_row[slot + k] >= 0;
}

static int32_t steps_needed(const struct micro_batch *b, int32_t slot) {
  int32_t needed = b->compute_all ? b->n_steps : 0;
  for (int32_t k = 0; k < b->n_steps; k++) {
    if (carries_loss(b, slot, k) && k + 1 > needed) needed = k + 1;
  }
  return needed;
}


static void take_rows(struct head_training *t, struct step *s, int32_t k) {
  size_t n = (size_t)s->n, n_in = (size_t)s->n_in;
  s->slot = take_ints(t, n);
  s->row_in = take_ints(t, n);
  s->row_before = take_ints(t, n);
  s->position = take_ints(t, n);
  s->first = take_ints(t, n);
  s->slot_in = k == 0 ? take_ints(t, n_in) : s->slot;
  s->position_in = k == 0 ? take_ints(t, n_in) : s->position;
  s->first_in = k == 0 ? take_ints(t, n_in) : s->first;
  s->token = t->config.own_embed ? take_ints(t, n_in) : NULL;
  for (int32_t j = 1; j <= k; j++) s->in_step[j] = take_ints(t, n);
}

/* Step 0's in-rows: every slot. */
static void fill_first(struct step *s, const struct micro_batch *b) {
  for (int32_t slot = 0; slot < b->n_slots; slot++) {
    s->slot_in[slot] = slot;
    s->position_in[slot] = slot - b->segment_first[slot];
    s->first_in[slot] = b->segment_first[slot];
  }
}

static void build_rows(struct head_training *t, const struct micro_batch *b) {
  size_t slots = (size_t)b->n_slots;
  int32_t *needed = take_ints(t, slots), *row_now = take_ints(t, slots);
  for (int32_t s = 0; s < b->n_slots; s++) needed[s] = steps_needed(b, s);
  for (int32_t k = 0; k < b->n_steps; k++) {
    struct step *step = &t->steps[k], *before = k > 0 ? &t->steps[k - 1] : NULL;
    step->n = 0;
    for (int32_t s = 0; s < b->n_slots; s++) step->n += needed[s] > k;
    step->n_in = k == 0 ? b->n_slots : step->n;
    take_rows(t, step, k);
    if (k == 0) fill_first(step, b);
    int32_t n = 0;
    for (int32_t s = 0; s < b->n_slots; s++) {
      if (needed[s] <= k) continue;
      step->slot[n] = s;
      step->row_in[n] = k == 0 ? s : n;
      step->row_before[n] = before ? row_now[s] : 0;
      step->position[n] = s - b->segment_first[s] + k;
      ASSERT(step->position[n] < t->rope.n_positions);
      step->first[n] = b->segment_first[s];
      for (int32_t j = 1; j < k; j++) step->in_step[j][n] = before->in_step[j][row_now[s]];
      if (k > 1) step->in_step[k - 1][n] = row_now[s];
      if (k > 0) step->in_step[k][n] = n;
      n++;
    }
    for (int32_t i = 0; i < n; i++) row_now[step->slot[i]] = i;
  }
}

/* ---- forward ---- */

struct loss_run {
  const float *parameters;
  const struct micro_batch *batch;
  float *gradients; /* or NULL */
  struct micro_result *result;
};

/* Logits, loss and gradients of rows [begin, begin+n) of step k. Rows without loss get weight 0 and any valid target
 * row. */
static void loss_chunk(struct head_training *t, const struct loss_run *run, int32_t k, const int32_t range[2]) {
  struct step *s = &t->steps[k];
  const struct micro_batch *b = run->batch;
  int32_t begin = range[0], n = range[1], h = t->config.hidden;
  struct linear head = {n, t->config.n_draft, h};
  linear_forward(t, t->logits, s->z_normed + (int64_t)begin * h, parameter(t, run->parameters, HEAD_LM_HEAD), head);
  for (int32_t i = 0; i < n; i++) {
    bool counts = carries_loss(b, s->slot[begin + i], k);
    t->target_row[i] = counts ? b->target_row[s->slot[begin + i] + k] : 0;
    t->weight[i] = counts ? b->loss_scale * b->step_weight[k] : 0.0f;
  }
  const struct distill_params distill = {.n = n,
                                         .n_vocab = t->config.n_draft,
                                         .logits = t->logits,
                                         .target = b->target,
                                         .target_row = t->target_row,
                                         .weight = t->weight,
                                         .loss = t->loss,
                                         .hit = t->hit};
  t->compute->training->distill(t->compute, &distill);
  double loss = 0;
  for (int32_t i = 0; i < n; i++) {
    if (t->weight[i] == 0.0f) continue;
    loss += t->loss[i];
    run->result->step_slots[k]++;
    run->result->step_hits[k] += t->hit[i];
  }
  run->result->step_loss[k] += loss * b->loss_scale;
  if (!run->gradients) return;
  linear_back_w(t, gradient(t, run->gradients, HEAD_LM_HEAD), t->logits, s->z_normed + (int64_t)begin * h, head);
  linear_back_x(t, s->d_normed + (int64_t)begin * h, t->logits, parameter(t, run->parameters, HEAD_LM_HEAD), head, 0);
}

static void step_loss(struct head_training *t, const struct loss_run *run, int32_t k) {
  const struct step *s = &t->steps[k];
  for (int32_t slot = 0; slot < run->batch->n_slots; slot++) run->result->step_masked[k] += masked(run->batch, slot, k);
  for (int32_t begin = 0; begin < s->n; begin += t->chunk_rows) {
    loss_chunk(t, run, k, (const int32_t[]){begin, s->n - begin < t->chunk_rows ? s->n - begin : t->chunk_rows});
  }
}

static void bind_run(struct head_training *t, const float *parameters, const struct micro_batch *b, float *gradients) {
  t->parameters = parameters;
  t->gradients = gradients;
  t->batch = b;
}

static void step_forward(struct head_training *t, int32_t k) {
  training_inputs_forward(t, k);
  for (int32_t i = 0; i < t->n_layers; i++) training_layer_forward(t, k, i);
}

static struct norm_rows final_rows(const struct head_training *t, const struct step *s) {
  return (struct norm_rows){.n = s->n, .dim = t->sizes.h, .eps = t->sizes.eps};
}

void head_training_forward(struct head_training *t, const float *parameters, const struct micro_batch *b,
                           float *gradients, struct micro_result *result) {
  ASSERT(b->n_slots <= t->slots_max && b->n_steps >= 1 && b->n_steps <= STEPS_MAX);
  ASSERT(!t->config.own_embed || b->tokens);
  *result = (struct micro_result){0};
  arena_reset(&t->floats);
  arena_reset(&t->ints);
  t->flops = 0;
  t->n_steps = b->n_steps;
  bind_run(t, parameters, b, gradients);
  build_rows(t, b);
  carve_common(t, (size_t)b->n_slots);
  t->target_row = take_ints(t, (size_t)t->chunk_rows);
  const struct loss_run run = {.parameters = parameters, .batch = b, .gradients = gradients, .result = result};
  carve_steps(t, b->n_steps);
  for (int32_t k = 0; k < b->n_steps; k++) {
    struct step *s = &t->steps[k];
    step_forward(t, k);
    training_norm_forward(t, (struct module){HEAD_NORM, 0}, s->z_normed, s->layers[t->n_layers - 1].z, final_rows(t, s));
    step_loss(t, &run, k);
  }
}

/* ---- backward ---- */

/* The gradient of step k's last z: from its loss, and from step k + 1, which took z, or its norm, for a feature; that gradient is in stream. */
static void output_back(struct head_training *t, int32_t k) {
  struct step *s = &t->steps[k];
  const struct step *after = k + 1 < t->n_steps ? &t->steps[k + 1] : NULL;
  const struct compute_training *ops = t->compute->training;
  const struct norm_rows rows = final_rows(t, s);
  bool normed = t->config.wiring.norm_output;
  float *d_z = t->spare;
  if (after && normed) ops->scatter_add_rows(t->compute, s->d_normed, t->stream, after->row_before, after->n, t->sizes.h);
  training_norm_back(t, (struct module){HEAD_NORM, 0}, d_z, s->d_normed, s->layers[t->n_layers - 1].z, &rows);
  if (after && !normed) ops->scatter_add_rows(t->compute, d_z, t->stream, after->row_before, after->n, t->sizes.h);
  t->spare = t->stream;
  t->stream = d_z;
}

static void clear_key_gradients(struct head_training *t, const struct step *s) {
  size_t key = (size_t)(t->sizes.n_kv_heads * t->sizes.key), value = (size_t)(t->sizes.n_kv_heads * t->sizes.value);
  for (int32_t i = 0; i < t->n_layers; i++) {
    memset(s->layers[i].d_key, 0, sizeof(float) * (size_t)s->n_in * key);
    memset(s->layers[i].d_value, 0, sizeof(float) * (size_t)s->n_in * value);
  }
}

/* What a later step of the forward has overwritten: the same arithmetic of the same inputs, so the same bits. Of what
 * backward carries, forward touches spare only, which is free between steps. */
static void again(struct head_training *t, int32_t k) {
  double flops = t->flops;
  step_forward(t, k);
  t->flops = flops + (t->flops - flops) / 3; /* its backward is counted already */
}

void head_training_backward(struct head_training *t, const float *parameters, const struct micro_batch *b,
                            float *gradients) {
  ASSERT(t->n_steps == b->n_steps);
  bind_run(t, parameters, b, gradients);
  for (int32_t k = 0; k < t->n_steps; k++) clear_key_gradients(t, &t->steps[k]);
  for (int32_t k = t->n_steps - 1; k >= 0; k--) {
    if (t->steps[k].n == 0 && k > 0) continue;
    if (t->recompute && k < t->n_steps - 1) again(t, k);
    output_back(t, k);
    for (int32_t i = t->n_layers - 1; i >= 0; i--) training_layer_back(t, k, i);
    training_inputs_back(t, k);
  }
}

int32_t head_training_hidden(const struct head_training *t, int32_t step, const int32_t **slots, const float **hidden) {
  *slots = t->steps[step].slot;
  *hidden = t->steps[step].layers[t->n_layers - 1].z;
  return t->steps[step].n;
}

double head_training_flops(const struct head_training *t) {
  return t->flops;
}

size_t head_training_bytes(const struct head_training *t) {
  return t->floats.capacity + t->ints.capacity;
}
