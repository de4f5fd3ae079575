/* head_init.c - see head_init.h. */
#include "train/head_init.h"

#include "base/util.h"

#include <math.h>
#include <stdlib.h>

enum eaglet_status head_states_parse(int32_t *states, int32_t *n_states, const char *text, const struct features *f,
                                     struct eaglet_error *err) {
  *n_states = 0;
  if (!text || strcmp(text, "auto") == 0) {
    *n_states = model_default_states(f, states);
    return EAGLET_OK;
  }
  for (const char *at = text;;) {
    char *end;
    long state = strtol(at, &end, 10);
    if (end == at || (*end && *end != ','))
      FAIL(err, EAGLET_E_USAGE, "states '%s': expected numbers like 2,4,5, found '%s'", text, at);
    if (state < 0 || state > f->n_layers)
      FAIL(err, EAGLET_E_USAGE, "states '%s': expected 0..%d, found %ld", text, f->n_layers, state);
    if (*n_states > 0 && state <= states[*n_states - 1])
      FAIL(err, EAGLET_E_USAGE, "states '%s': expected ascending numbers, found %ld after %d", text, state,
           states[*n_states - 1]);
    if (*n_states == TAPS_MAX - 1)
      FAIL(err, EAGLET_E_USAGE, "states '%s': expected at most %d numbers", text, TAPS_MAX - 1);
    states[(*n_states)++] = (int32_t)state;
    if (!*end) return EAGLET_OK;
    at = end + 1;
  }
}

enum eaglet_status head_config_new(struct head_config *c, const struct eaglet_train_params *p,
                                   const struct model *target, int32_t n_draft, struct eaglet_error *err) {
  const struct features *f = &target->arch.features;
  bool latent = f->attention == ATTENTION_MLA;
  *c = (struct head_config){.hidden = f->hidden,
                            .target_hidden = f->hidden,
                            .n_target = f->n_vocab,
                            .n_draft = n_draft,
                            .norm_eps = f->norm_eps,
                            .positions_max = f->positions_max};
  TRY(head_states_parse(c->states, &c->n_states, p->states, f, err));
  c->n_heads = or_default(p->heads, f->n_heads);
  int32_t kv_heads = latent || p->heads > 0 ? (c->n_heads % 2 == 0 ? c->n_heads / 2 : c->n_heads) : f->n_kv_heads;
  c->n_kv_heads = or_default(p->kv_heads, kv_heads);
  int32_t even = f->hidden / c->n_heads / 2 * 2;
  c->head_dim = or_default(p->head_dim, latent || p->heads > 0 ? (even > 0 ? even : 2) : f->head_dim);
  c->intermediate = or_default(p->intermediate, f->intermediate);
  if (c->n_heads % c->n_kv_heads != 0)
    FAIL(err, EAGLET_E_USAGE, "head: expected heads divisible by key/value heads, found %d and %d", c->n_heads,
         c->n_kv_heads);
  if (c->head_dim % 2 != 0)
    FAIL(err, EAGLET_E_USAGE, "head: head dimension: expected an even number, found %d", c->head_dim);
  c->rope = (struct rope_features){
      .scaling = ROPE_SCALING_NONE, .style = ROPE_HALF, .dim = c->head_dim, .theta = p->rope_theta};
  return EAGLET_OK;
}

static void fill_uniform(float *to, const int64_t shape[2], uint64_t seed, uint64_t stream) {
  double bound = 1.0 / sqrt((double)shape[1]);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < shape[0] * shape[1]; i++)
    to[i] = (float)((2.0 * random_uniform(seed, stream, (uint64_t)i) - 1.0) * bound);
}

void head_parameters_init(float *parameters, const struct head_config *c, const struct model *target,
                          const struct vocab_map *map, const struct eaglet_train_params *settings) {
  memset(parameters, 0, sizeof(float) * (size_t)head_parameters_total(c));
  for (int i = 0; i < HEAD_PARAMETER_COUNT; i++) {
    enum head_parameter which = (enum head_parameter)i;
    int64_t shape[2];
    head_parameter_shape(c, which, shape);
    float *to = parameters + head_parameter_offset(c, which);
    if (which == HEAD_LM_HEAD && settings->lm_head != EAGLET_LM_HEAD_RANDOM) {
      for (int32_t d = 0; d < c->n_draft; d++)
        weight_row_to_f32(&target->head, map->target[d], to + (int64_t)d * c->hidden);
    } else if (shape[1] == 1) {
      for (int64_t k = 0; k < shape[0]; k++) to[k] = 1.0f;
    } else {
      fill_uniform(to, shape, settings->seed, 0x68656164u + (uint64_t)i);
    }
  }
}
