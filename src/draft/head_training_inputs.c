/* head_training_inputs.c - what a step's first layer reads: the target's states through fc or the step before, and embeddings, normed side
 * by side; forward and backward. See head_training_internal.h. */
#include "draft/head_training_internal.h"

#include <string.h>

/* ---- states to features ---- */

/* Norms of every state by itself: `fused` has their rows side by side, as the states are. */
static struct norm_rows state_rows(const struct head_training *t, int32_t n) {
  return (struct norm_rows){.n = n,
                            .dim = t->config.target_hidden,
                            .eps = t->sizes.eps,
                            .x_row = t->sizes.wide,
                            .y_row = t->sizes.wide,
                            .dx_row = t->sizes.wide};
}

static void fuse_forward(struct head_training *t, struct step *s) {
  const struct head_wiring *wiring = &t->config.wiring;
  const float *states = t->batch->features;
  int32_t dim = t->config.target_hidden;
  if (wiring->fc_input_norm)
    training_norm_forward(t, (struct module){HEAD_FC_INPUT_NORM, 0}, s->fused, states,
                 (struct norm_rows){.n = s->n_in, .dim = t->sizes.wide, .eps = t->sizes.eps});
  for (int32_t i = 0; wiring->fc_norms && i < t->config.n_states; i++)
    training_norm_forward(t, (struct module){HEAD_FC_NORM, i}, s->fused + i * dim, states + i * dim, state_rows(t, s->n_in));
  training_module_forward(t, (struct module){HEAD_FC, 0}, s->g, s->fused ? s->fused : states, s->n_in);
  if (!s->fused) t->flops -= 2.0 * s->n_in * t->sizes.h * t->sizes.wide; /* the target's states want no gradient */
}

/* The states' own gradient goes where the normed ones were; nobody reads it. */
static void fuse_back(struct head_training *t, struct step *s, const float *d_g) {
  const struct head_wiring *wiring = &t->config.wiring;
  const float *states = t->batch->features;
  int32_t dim = t->config.target_hidden;
  training_module_back_w(t, (struct module){HEAD_FC, 0}, d_g, s->fused ? s->fused : states, s->n_in);
  if (!s->fused) return;
  training_module_back_x(t, (struct module){HEAD_FC, 0}, s->fused, d_g, s->n_in, 0);
  const struct norm_rows whole = {.n = s->n_in, .dim = t->sizes.wide, .eps = t->sizes.eps}, each = state_rows(t, s->n_in);
  if (wiring->fc_input_norm) training_norm_back(t, (struct module){HEAD_FC_INPUT_NORM, 0}, s->fused, s->fused, states, &whole);
  for (int32_t i = 0; wiring->fc_norms && i < t->config.n_states; i++)
    training_norm_back(t, (struct module){HEAD_FC_NORM, i}, s->fused + i * dim, s->fused + i * dim, states + i * dim, &each);
}

/* ---- embeddings ---- */

static void embed(struct head_training *t, const struct step *s, int32_t k) {
  const struct micro_batch *b = t->batch;
  const float *own = t->config.own_embed ? parameter(t, t->parameters, HEAD_EMBED) : NULL;
  size_t bytes = sizeof(float) * (size_t)t->sizes.h;
  for (int32_t i = 0; i < s->n_in; i++) {
    int32_t slot = s->slot_in[i], at = slot - b->segment_first[slot] + k;
    float *to = s->embedding + (int64_t)i * t->sizes.h;
    bool inside = at < b->segment_length[slot];
    if (own) s->token[i] = inside ? b->tokens[slot + k] : -1;
    if (inside)
      memcpy(to, own ? own + (int64_t)s->token[i] * t->sizes.h : b->embeddings + (int64_t)(slot + k) * t->sizes.h, bytes);
    else if (b->pad_embedding)
      memcpy(to, b->pad_embedding, bytes);
    else
      memset(to, 0, bytes);
  }
}

/* ---- both ---- */

static struct norm_rows half_rows(const struct head_training *t, int32_t n) {
  return (struct norm_rows){.n = n, .dim = t->sizes.h, .eps = t->sizes.eps, .y_row = 2 * t->sizes.h};
}

void training_inputs_forward(struct head_training *t, int32_t k) {
  struct step *s = &t->steps[k];
  embed(t, s, k);
  if (k == 0) {
    fuse_forward(t, s);
  } else {
    const struct step *before = &t->steps[k - 1];
    const struct gather_params rows = {.dim = t->sizes.h};
    const float *next = t->config.wiring.norm_output ? before->z_normed : before->layers[t->n_layers - 1].z;
    t->compute->gather_rows(t->compute, s->g, next, s->row_before, s->n, &rows);
  }
  training_norm_forward(t, (struct module){HEAD_INPUT_NORM, 0}, s->u, s->embedding, half_rows(t, s->n_in));
  training_norm_forward(t, (struct module){HEAD_HIDDEN_NORM, 0}, s->u + t->sizes.h, s->g, half_rows(t, s->n_in));
}

void training_inputs_back(struct head_training *t, int32_t k) {
  struct step *s = &t->steps[k];
  int32_t h = t->sizes.h;
  float *table = t->config.own_embed ? gradient(t, t->gradients, HEAD_EMBED) : NULL;
  struct norm_rows rows = half_rows(t, s->n_in);
  /* The gradient of an embedding lands where the embedding was; only one that learns reads it. */
  training_norm_back(t, (struct module){HEAD_INPUT_NORM, 0}, s->embedding, t->d_u, s->embedding, &rows);
  if (table) t->compute->training->scatter_add_repeated(t->compute, table, s->embedding, s->token, s->n_in, h);
  if (t->config.wiring.norm_before_residual) { /* the residual stream is the normed feature */
    const struct move_heads_params join = {
        .out = t->d_u + h, .x = t->stream, .n_heads = 1, .dim = h, .out_row = 2 * h, .x_row = h, .accumulate = true};
    t->compute->training->move_heads(t->compute, &join, s->n_in);
  }
  rows.accumulate = !t->config.wiring.norm_before_residual;
  training_norm_back(t, (struct module){HEAD_HIDDEN_NORM, 0}, t->stream, t->d_u + h, s->g, &rows);
  if (k == 0) fuse_back(t, s, t->stream);
}
