/* head_training.c - see head_training.h. Owns the activations of one micro-batch, all unrolled steps. The hard part is
 * which rows exist: step k holds the slots that carry loss at step k or later ("active"), a subset of step k-1's; step
 * 0 besides holds keys and values of every slot.
 *
 * Letters: S slots, n_k active rows of step k, H hidden, D head dimension, Vd draft vocabulary, I intermediate.
 */
#include "draft/head_training.h"

#include "base/memory.h"
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 15
#define LOGITS_CHUNK_FLOATS (4 << 20) /* a chunk's logits stay within 16 MiB */

/* What one unrolled step keeps for backward. `in` rows are those with keys: all S at step 0, the active ones later. */
struct step {
  int32_t n, n_in;
  int32_t *slot;                   /* [n] */
  int32_t *row_in;                 /* [n] the active row's index among the in-rows */
  int32_t *row_before;             /* [n] its index among step k-1's active rows (k >= 1) */
  int32_t *position;               /* [n] rope positions of the active rows */
  int32_t *position_in;            /* [n_in] */
  int32_t *in_step[STEPS_MAX + 1]; /* [n] its row in step j's key arrays, j = 1..k */
  float *embedding, *g;            /* [n_in, H] */
  float *u;                        /* [n_in, 2H] */
  float *key, *value;              /* [n_in, n_kv D] */
  float *u_active;                 /* [n, 2H]; step 0 gathers, later steps share u */
  float *q, *attended;             /* [n, n_heads D] */
  float *log_sum;                  /* [n, n_heads] */
  float *y, *y_normed;             /* [n, H] */
  float *gate, *up, *act;          /* [n, I] */
  float *z, *z_normed;             /* [n, H] */
  float *d_normed;                 /* [n, H] gradient of z_normed from the loss */
  float *d_z;                      /* [n, H] */
  float *d_key, *d_value;          /* [n_in, n_kv D] */
};

struct head_training {
  struct head_config config;
  struct compute *compute;
  struct rope_table rope;
  int32_t slots_max, n_steps;
  struct step steps[STEPS_MAX];
  struct arena floats, ints;
  float *logits, *loss, *weight, *acceptance; /* chunk */
  uint8_t *hit;
  int32_t *target_row;
  int32_t chunk_rows;
  int32_t *segment_of; /* [S] segment_first of each slot, for the active rows */
  float *scratch_h, *scratch_2h, *scratch_i, *scratch_i2, *scratch_q, *scratch_q2; /* backward temporaries of S rows */
  double flops;
};

/* ---- memory: everything is sized by slots_max and unroll_max ---- */

struct widths {
  size_t h, kv, q, inter, heads, vocab;
};

static struct widths widths_of(const struct head_config *c) {
  return (struct widths){.h = (size_t)c->hidden,
                         .kv = (size_t)c->n_kv_heads * (size_t)c->head_dim,
                         .q = (size_t)c->n_heads * (size_t)c->head_dim,
                         .inter = (size_t)c->intermediate,
                         .heads = (size_t)c->n_heads,
                         .vocab = (size_t)c->n_draft};
}

static size_t step_floats(const struct widths *w, size_t slots) {
  size_t row = 2 * w->h + 2 * w->h + 4 * w->kv + 2 * w->h + 2 * w->q + w->heads + 6 * w->h + 3 * w->inter;
  return slots * row + 24 * 16;
}

enum eaglet_status head_training_create(struct head_training **out, const struct head_training_params *params,
                                        struct eaglet_error *err) {
  const struct head_config *config = params->config;
  const struct widths w = widths_of(config);
  size_t slots = (size_t)params->slots_max, steps = (size_t)params->unroll_max;
  *out = NULL;
  ASSERT(params->unroll_max >= 1 && params->unroll_max <= STEPS_MAX && params->compute->training);
  struct head_training *t = memory_alloc(sizeof *t);
  *t = (struct head_training){.config = *config, .compute = params->compute, .slots_max = params->slots_max};
  t->chunk_rows = (int32_t)(LOGITS_CHUNK_FLOATS / w.vocab);
  if (t->chunk_rows < 16) t->chunk_rows = 16;
  size_t chunk = (size_t)t->chunk_rows;
  size_t n_floats =
      steps * step_floats(&w, slots) + chunk * (w.vocab + 4) + slots * (3 * w.h + 2 * w.inter + 2 * w.q) + 64 * 16;
  enum eaglet_status status = arena_init(&t->floats, n_floats * sizeof(float), err);
  if (status == EAGLET_OK)
    status = arena_init(&t->ints,
                        (steps * (slots * (5 + steps) + 256) + slots * 2 + chunk * 2 + 1024) * sizeof(int32_t), err);
  if (status == EAGLET_OK)
    status = rope_table_init(&t->rope, t->compute, &config->rope, params->slots_max + params->unroll_max, err);
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
  free(t);
}

static float *take(struct head_training *t, size_t rows, size_t width) {
  return arena_take(&t->floats, rows * width * sizeof(float));
}
static int32_t *take_ints(struct head_training *t, size_t n) {
  return arena_take(&t->ints, n * sizeof(int32_t));
}

static void carve_step(struct head_training *t, int32_t k) {
  struct step *s = &t->steps[k];
  const struct widths w = widths_of(&t->config);
  size_t n = (size_t)s->n, in = (size_t)s->n_in;
  s->embedding = take(t, in, w.h);
  s->g = take(t, in, w.h);
  s->u = take(t, in, 2 * w.h);
  s->key = take(t, in, w.kv);
  s->value = take(t, in, w.kv);
  s->d_key = take(t, in, w.kv);
  s->d_value = take(t, in, w.kv);
  s->u_active = k == 0 ? take(t, n, 2 * w.h) : s->u;
  s->q = take(t, n, w.q);
  s->attended = take(t, n, w.q);
  s->log_sum = take(t, n, w.heads);
  s->y = take(t, n, w.h);
  s->y_normed = take(t, n, w.h);
  s->gate = take(t, n, w.inter);
  s->up = take(t, n, w.inter);
  s->act = take(t, n, w.inter);
  s->z = take(t, n, w.h);
  s->z_normed = take(t, n, w.h);
  s->d_normed = take(t, n, w.h);
  s->d_z = take(t, n, w.h);
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

static void build_rows(struct head_training *t, const struct micro_batch *b) {
  size_t slots = (size_t)b->n_slots;
  int32_t *needed = take_ints(t, slots), *row_now = take_ints(t, slots);
  for (int32_t s = 0; s < b->n_slots; s++) needed[s] = steps_needed(b, s);
  for (int32_t k = 0; k < b->n_steps; k++) {
    struct step *step = &t->steps[k], *before = k > 0 ? &t->steps[k - 1] : NULL;
    step->n = 0;
    for (int32_t s = 0; s < b->n_slots; s++) step->n += needed[s] > k;
    step->n_in = k == 0 ? b->n_slots : step->n;
    step->slot = take_ints(t, (size_t)step->n);
    step->row_in = take_ints(t, (size_t)step->n);
    step->row_before = take_ints(t, (size_t)step->n);
    step->position = take_ints(t, (size_t)step->n);
    step->position_in = take_ints(t, (size_t)step->n_in);
    for (int32_t j = 1; j <= k; j++) step->in_step[j] = take_ints(t, (size_t)step->n);
    int32_t n = 0;
    for (int32_t s = 0; s < b->n_slots; s++) {
      if (k == 0) step->position_in[s] = s - b->segment_first[s];
      if (needed[s] <= k) continue;
      step->slot[n] = s;
      step->row_in[n] = k == 0 ? s : n;
      step->row_before[n] = before ? row_now[s] : 0;
      step->position[n] = s - b->segment_first[s] + k;
      if (k > 0) step->position_in[n] = step->position[n];
      for (int32_t j = 1; j < k; j++) step->in_step[j][n] = before->in_step[j][row_now[s]];
      if (k > 1) step->in_step[k - 1][n] = row_now[s];
      if (k > 0) step->in_step[k][n] = n;
      n++;
    }
    for (int32_t i = 0; i < n; i++) row_now[step->slot[i]] = i;
  }
}

/* ---- small wrappers: y = x W^T, dx = dy W, dW += dy^T x ---- */

struct linear {
  int32_t n, n_out, n_in;
};

static void linear_forward(struct head_training *t, float *y, const float *x, const float *w, struct linear l) {
  const struct gemm_params p = {
      .m = l.n, .n = l.n_out, .k = l.n_in, .transpose_b = true, .alpha = 1, .a = x, .b = w, .c = y};
  t->compute->training->gemm(t->compute, &p);
  t->flops += 6.0 * l.n * l.n_out * l.n_in; /* forward, and the two products of its backward */
}

static void linear_back_x(struct head_training *t, float *d_x, const float *d_y, const float *w, struct linear l,
                          float beta) {
  const struct gemm_params p = {
      .m = l.n, .n = l.n_in, .k = l.n_out, .alpha = 1, .beta = beta, .a = d_y, .b = w, .c = d_x};
  t->compute->training->gemm(t->compute, &p);
}

static void linear_back_w(struct head_training *t, float *d_w, const float *d_y, const float *x, struct linear l) {
  const struct gemm_params p = {
      .m = l.n_out, .n = l.n_in, .k = l.n, .transpose_a = true, .alpha = 1, .beta = 1, .a = d_y, .b = x, .c = d_w};
  t->compute->training->gemm(t->compute, &p);
}

static const float *parameter(const struct head_training *t, const float *block, enum head_parameter which) {
  return block + head_parameter_offset(&t->config, which);
}
static float *gradient(const struct head_training *t, float *block, enum head_parameter which) {
  return block + head_parameter_offset(&t->config, which);
}

static void norm(struct head_training *t, float *out, const float *x, const float *w, int32_t n, int64_t out_row) {
  const struct norm_params p = {.dim = t->config.hidden, .eps = (float)t->config.norm_eps, .out_row = out_row};
  t->compute->rms_norm(t->compute, out, x, w, n, &p);
}

static void rotate(struct head_training *t, float *x, int32_t n_heads, const int32_t *positions, int32_t n,
                   bool inverse) {
  const int32_t dim = t->config.head_dim;
  const struct rope_params p = {.out = x,
                                .x = x,
                                .out_row = (int64_t)n_heads * dim,
                                .x_row = (int64_t)n_heads * dim,
                                .out_head = dim,
                                .x_head = dim,
                                .n_heads = n_heads,
                                .n_pairs = t->rope.n_pairs,
                                .style = t->config.rope.style,
                                .cos = t->rope.cos,
                                .sin = t->rope.sin,
                                .positions = positions,
                                .inverse = inverse};
  t->compute->rope(t->compute, &p, n);
}

/* ---- forward ---- */

/* Step inputs: embedding and feature of every in-row, normalised side by side. */
static void step_inputs(struct head_training *t, const float *parameters, const struct micro_batch *b, int32_t k) {
  struct step *s = &t->steps[k];
  int32_t h = t->config.hidden;
  for (int32_t i = 0; i < s->n_in; i++) {
    int32_t slot = k == 0 ? i : s->slot[i];
    float *to = s->embedding + (int64_t)i * h;
    if (in_segment(b, slot, k))
      memcpy(to, b->embeddings + (int64_t)(slot + k) * h, sizeof(float) * (size_t)h);
    else if (b->pad_embedding)
      memcpy(to, b->pad_embedding, sizeof(float) * (size_t)h);
    else
      memset(to, 0, sizeof(float) * (size_t)h);
  }
  if (k == 0) {
    struct linear fc = {s->n_in, h, t->config.n_states * t->config.target_hidden};
    linear_forward(t, s->g, b->features, parameter(t, parameters, HEAD_FC), fc);
    t->flops -= 2.0 * fc.n * fc.n_out * fc.n_in; /* the target's states want no gradient */
  } else {
    const struct gather_params gather = {.dim = h};
    t->compute->gather_rows(t->compute, s->g, t->steps[k - 1].z, s->row_before, s->n, &gather);
  }
  norm(t, s->u, s->embedding, parameter(t, parameters, HEAD_INPUT_NORM), s->n_in, 2 * h);
  norm(t, s->u + h, s->g, parameter(t, parameters, HEAD_HIDDEN_NORM), s->n_in, 2 * h);
}

static struct ttt_attention_params attention_of(const struct head_training *t, const struct micro_batch *b, int32_t k,
                                                const float **keys, const float **values) {
  const struct step *s = &t->steps[k];
  for (int32_t j = 0; j <= k; j++) {
    keys[j] = t->steps[j].key;
    values[j] = t->steps[j].value;
  }
  for (int32_t i = 0; i < s->n; i++) t->segment_of[i] = b->segment_first[s->slot[i]];
  return (struct ttt_attention_params){.n = s->n,
                                       .n_heads = t->config.n_heads,
                                       .n_kv_heads = t->config.n_kv_heads,
                                       .head_dim = t->config.head_dim,
                                       .n_steps = k,
                                       .slot = s->slot,
                                       .first = t->segment_of,
                                       .step_row = (const int32_t *const *)s->in_step,
                                       .q = s->q,
                                       .key = keys,
                                       .value = values,
                                       .scale = 1.0f / sqrtf((float)t->config.head_dim),
                                       .out = s->attended,
                                       .log_sum = s->log_sum};
}

static void step_attention(struct head_training *t, const float *parameters, const struct micro_batch *b, int32_t k) {
  struct step *s = &t->steps[k];
  const struct head_config *c = &t->config;
  int32_t h = c->hidden, kv = c->n_kv_heads * c->head_dim, q = c->n_heads * c->head_dim;
  linear_forward(t, s->key, s->u, parameter(t, parameters, HEAD_K), (struct linear){s->n_in, kv, 2 * h});
  linear_forward(t, s->value, s->u, parameter(t, parameters, HEAD_V), (struct linear){s->n_in, kv, 2 * h});
  rotate(t, s->key, c->n_kv_heads, s->position_in, s->n_in, false);
  const struct gather_params wide = {.dim = 2 * h}, narrow = {.dim = h};
  if (k == 0) t->compute->gather_rows(t->compute, s->u_active, s->u, s->row_in, s->n, &wide);
  linear_forward(t, s->q, s->u_active, parameter(t, parameters, HEAD_Q), (struct linear){s->n, q, 2 * h});
  rotate(t, s->q, c->n_heads, s->position, s->n, false);
  const float *keys[STEPS_MAX + 1], *values[STEPS_MAX + 1];
  const struct ttt_attention_params attention = attention_of(t, b, k, keys, values);
  t->compute->training->ttt_attention(t->compute, &attention);
  linear_forward(t, s->y, s->attended, parameter(t, parameters, HEAD_O), (struct linear){s->n, h, q});
  float *residual = t->scratch_h;
  t->compute->gather_rows(t->compute, residual, s->g, s->row_in, s->n, &narrow);
  t->compute->add(t->compute, s->y, s->y, residual, (int64_t)s->n * h);
}

static void step_ffn(struct head_training *t, const float *parameters, int32_t k) {
  struct step *s = &t->steps[k];
  int32_t h = t->config.hidden, inter = t->config.intermediate;
  norm(t, s->y_normed, s->y, parameter(t, parameters, HEAD_POST_NORM), s->n, 0);
  linear_forward(t, s->gate, s->y_normed, parameter(t, parameters, HEAD_GATE), (struct linear){s->n, inter, h});
  linear_forward(t, s->up, s->y_normed, parameter(t, parameters, HEAD_UP), (struct linear){s->n, inter, h});
  t->compute->silu_mul(t->compute, s->act, s->gate, s->up, (int64_t)s->n * inter);
  linear_forward(t, s->z, s->act, parameter(t, parameters, HEAD_DOWN), (struct linear){s->n, h, inter});
  t->compute->add(t->compute, s->z, s->z, s->y, (int64_t)s->n * h);
  norm(t, s->z_normed, s->z, parameter(t, parameters, HEAD_NORM), s->n, 0);
}

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
                                         .mass = b->target_mass,
                                         .choice = b->target_choice,
                                         .label = b->target_label,
                                         .target_row = t->target_row,
                                         .weight = t->weight,
                                         .objective = b->objective,
                                         .loss = t->loss,
                                         .acceptance = t->acceptance,
                                         .hit = t->hit};
  t->compute->training->distill(t->compute, &distill);
  double loss = 0;
  for (int32_t i = 0; i < n; i++) {
    if (t->weight[i] == 0.0f) continue;
    loss += t->loss[i];
    run->result->step_slots[k]++;
    run->result->step_hits[k] += t->hit[i];
    run->result->step_acceptance[k] += t->acceptance[i];
  }
  run->result->step_loss[k] += loss * b->loss_scale;
  if (!run->gradients) return;
  if (b->lm_head_frozen)
    t->flops -= 2.0 * head.n * head.n_out * head.n_in;
  else
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

static void carve_common(struct head_training *t, const struct micro_batch *b) {
  const struct widths w = widths_of(&t->config);
  size_t slots = (size_t)b->n_slots, chunk = (size_t)t->chunk_rows;
  t->logits = take(t, chunk, w.vocab);
  t->loss = take(t, chunk, 1);
  t->weight = take(t, chunk, 1);
  t->acceptance = take(t, chunk, 1);
  t->hit = arena_take(&t->floats, chunk);
  t->target_row = take_ints(t, chunk);
  t->segment_of = take_ints(t, slots);
  t->scratch_h = take(t, slots, w.h);
  t->scratch_2h = take(t, slots, 2 * w.h);
  t->scratch_i = take(t, slots, w.inter);
  t->scratch_i2 = take(t, slots, w.inter);
  t->scratch_q = take(t, slots, w.q);
  t->scratch_q2 = take(t, slots, w.q);
}

void head_training_forward(struct head_training *t, const float *parameters, const struct micro_batch *b,
                           float *gradients, struct micro_result *result) {
  ASSERT(b->n_slots <= t->slots_max && b->n_steps >= 1 && b->n_steps <= STEPS_MAX);
  *result = (struct micro_result){0};
  arena_reset(&t->floats);
  arena_reset(&t->ints);
  t->flops = 0;
  t->n_steps = b->n_steps;
  build_rows(t, b);
  carve_common(t, b);
  const struct loss_run run = {.parameters = parameters, .batch = b, .gradients = gradients, .result = result};
  for (int32_t k = 0; k < b->n_steps; k++) {
    carve_step(t, k);
    step_inputs(t, parameters, b, k);
    step_attention(t, parameters, b, k);
    step_ffn(t, parameters, k);
    step_loss(t, &run, k);
  }
}

/* ---- backward ---- */

struct norm_back {
  float *d_x;
  const float *d_y, *x;
  int32_t n;
  int64_t dy_row;
  bool accumulate;
};

static void norm_back(struct head_training *t, const float *parameters, float *gradients, enum head_parameter which,
                      const struct norm_back *b) {
  const struct norm_backward_params p = {
      .dim = t->config.hidden, .eps = (float)t->config.norm_eps, .dy_row = b->dy_row, .accumulate_x = b->accumulate};
  t->compute->training->rms_norm_backward(t->compute, b->d_x, gradient(t, gradients, which), b->d_y, b->x,
                                          parameter(t, parameters, which), b->n, &p);
}

/* d_z -> d_y (in t->scratch_h): through the FFN and its residual. */
static void back_ffn(struct head_training *t, const float *parameters, float *gradients, int32_t k) {
  struct step *s = &t->steps[k];
  int32_t h = t->config.hidden, inter = t->config.intermediate;
  struct linear down = {s->n, h, inter}, up = {s->n, inter, h};
  float *d_act = t->scratch_i, *d_up = t->scratch_i2, *d_normed = s->d_normed; /* d_normed's own content is used up */
  linear_back_x(t, d_act, s->d_z, parameter(t, parameters, HEAD_DOWN), down, 0);
  linear_back_w(t, gradient(t, gradients, HEAD_DOWN), s->d_z, s->act, down);
  t->compute->training->silu_mul_backward(t->compute, s->act, d_up, d_act, s->gate, s->up,
                                          (int64_t)s->n * inter); /* act becomes d_gate */
  linear_back_w(t, gradient(t, gradients, HEAD_GATE), s->act, s->y_normed, up);
  linear_back_w(t, gradient(t, gradients, HEAD_UP), d_up, s->y_normed, up);
  linear_back_x(t, d_normed, s->act, parameter(t, parameters, HEAD_GATE), up, 0);
  linear_back_x(t, d_normed, d_up, parameter(t, parameters, HEAD_UP), up, 1);
  memcpy(t->scratch_h, s->d_z, sizeof(float) * (size_t)s->n * (size_t)h);
  norm_back(t, parameters, gradients, HEAD_POST_NORM,
            &(const struct norm_back){.d_x = t->scratch_h, .d_y = d_normed, .x = s->y, .n = s->n, .accumulate = true});
}

/* d_y (t->scratch_h) -> d_q (t->scratch_q), d_key and d_value of steps 0..k. */
static void back_attention(struct head_training *t, const float *parameters, float *gradients,
                           const struct micro_batch *b, int32_t k) {
  struct step *s = &t->steps[k];
  const struct head_config *c = &t->config;
  struct linear o = {s->n, c->hidden, c->n_heads * c->head_dim};
  const float *keys[STEPS_MAX + 1], *values[STEPS_MAX + 1];
  float *d_keys[STEPS_MAX + 1], *d_values[STEPS_MAX + 1];
  float *d_out = t->scratch_q2;
  linear_back_w(t, gradient(t, gradients, HEAD_O), t->scratch_h, s->attended, o);
  linear_back_x(t, d_out, t->scratch_h, parameter(t, parameters, HEAD_O), o, 0);
  for (int32_t j = 0; j <= k; j++) {
    d_keys[j] = t->steps[j].d_key;
    d_values[j] = t->steps[j].d_value;
  }
  const struct ttt_attention_backward_params back = {.forward = attention_of(t, b, k, keys, values),
                                                     .d_out = d_out,
                                                     .d_q = t->scratch_q,
                                                     .d_key = d_keys,
                                                     .d_value = d_values};
  t->compute->training->ttt_attention_backward(t->compute, &back);
}

/* d_q, d_key, d_value -> d_u -> norms -> d_g (t->scratch_h gains it on the active rows) and, at step 0, fc. */
static void back_inputs(struct head_training *t, const float *parameters, float *gradients, const struct micro_batch *b,
                        int32_t k) {
  struct step *s = &t->steps[k];
  const struct head_config *c = &t->config;
  int32_t h = c->hidden, kv = c->n_kv_heads * c->head_dim;
  struct linear query = {s->n, c->n_heads * c->head_dim, 2 * h}, key = {s->n_in, kv, 2 * h};
  float *d_u = t->scratch_2h, *d_u_active = k == 0 ? s->u_active : NULL; /* u_active is read before it is overwritten */
  rotate(t, t->scratch_q, c->n_heads, s->position, s->n, true);
  rotate(t, s->d_key, c->n_kv_heads, s->position_in, s->n_in, true);
  linear_back_w(t, gradient(t, gradients, HEAD_Q), t->scratch_q, s->u_active, query);
  linear_back_w(t, gradient(t, gradients, HEAD_K), s->d_key, s->u, key);
  linear_back_w(t, gradient(t, gradients, HEAD_V), s->d_value, s->u, key);
  linear_back_x(t, d_u, s->d_key, parameter(t, parameters, HEAD_K), key, 0);
  linear_back_x(t, d_u, s->d_value, parameter(t, parameters, HEAD_V), key, 1);
  if (d_u_active) {
    linear_back_x(t, d_u_active, t->scratch_q, parameter(t, parameters, HEAD_Q), query, 0);
    t->compute->training->scatter_add_rows(t->compute, d_u, d_u_active, s->row_in, s->n, 2 * h);
  } else
    linear_back_x(t, d_u, t->scratch_q, parameter(t, parameters, HEAD_Q), query, 1);
  /* The embedding is frozen: only its norm's weight learns, the rest of that gradient lands in a scratch that nobody
   * reads. */
  norm_back(
      t, parameters, gradients, HEAD_INPUT_NORM,
      &(const struct norm_back){.d_x = s->embedding, .d_y = d_u, .x = s->embedding, .n = s->n_in, .dy_row = 2 * h});
  float *d_g = s->embedding;
  memset(d_g, 0, sizeof(float) * (size_t)s->n_in * (size_t)h);
  t->compute->training->scatter_add_rows(t->compute, d_g, t->scratch_h, s->row_in, s->n, h);
  norm_back(t, parameters, gradients, HEAD_HIDDEN_NORM,
            &(const struct norm_back){
                .d_x = d_g, .d_y = d_u + h, .x = s->g, .n = s->n_in, .dy_row = 2 * h, .accumulate = true});
  if (k > 0)
    t->compute->training->scatter_add_rows(t->compute, t->steps[k - 1].d_z, d_g, s->row_before, s->n, h);
  else
    linear_back_w(t, gradient(t, gradients, HEAD_FC), d_g, b->features,
                  (struct linear){s->n_in, h, c->n_states * c->target_hidden});
}

void head_training_backward(struct head_training *t, const float *parameters, const struct micro_batch *b,
                            float *gradients) {
  ASSERT(t->n_steps == b->n_steps);
  const struct widths w = widths_of(&t->config);
  for (int32_t k = 0; k < t->n_steps; k++) {
    struct step *s = &t->steps[k];
    memset(s->d_key, 0, sizeof(float) * (size_t)s->n_in * w.kv);
    memset(s->d_value, 0, sizeof(float) * (size_t)s->n_in * w.kv);
    norm_back(t, parameters, gradients, HEAD_NORM,
              &(const struct norm_back){.d_x = s->d_z, .d_y = s->d_normed, .x = s->z, .n = s->n});
  }
  for (int32_t k = t->n_steps - 1; k >= 0; k--) {
    if (t->steps[k].n == 0 && k > 0) continue;
    back_ffn(t, parameters, gradients, k);
    back_attention(t, parameters, gradients, b, k);
    back_inputs(t, parameters, gradients, b, k);
  }
}

int32_t head_training_hidden(const struct head_training *t, int32_t step, const int32_t **slots, const float **hidden) {
  *slots = t->steps[step].slot;
  *hidden = t->steps[step].z;
  return t->steps[step].n;
}

double head_training_flops(const struct head_training *t) {
  return t->flops;
}
