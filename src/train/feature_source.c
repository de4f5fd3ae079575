/* feature_source.c - see feature_source.h. */
#include "train/feature_source.h"

#include "base/memory.h"

#include <stdlib.h>

static enum eaglet_status open_live(struct feature_source *s, const struct feature_source_params *p,
                                    struct eaglet_error *err) {
  struct capture_params capture = {.model = p->model, .tokens_max = p->tokens_max};
  int32_t n_layers = p->model->arch.features.n_layers, n = p->config->n_states;
  for (int32_t i = 0; i < n; i++) capture.taps.states[i] = p->config->states[i];
  capture.taps.n = n;
  s->last = (n - 1) * s->hidden;
  if (p->config->states[n - 1] != n_layers) {
    capture.taps.states[capture.taps.n++] = n_layers;
    s->last = n * s->hidden;
  }
  s->width = capture.taps.n * s->hidden;
  return capture_create(&s->capture, &capture, err);
}

static enum eaglet_status check_layout(const struct feature_source_params *p, struct eaglet_error *err,
                                       const struct feature_layout *layout) {
  const struct features *f = &p->model->arch.features;
  const char *path = p->directory;
  if (layout->hidden != f->hidden)
    FAIL(err, EAGLET_E_INPUT, "%s: hidden size: expected %d (the target's), found %d", path, f->hidden, layout->hidden);
  if (layout->n_layers != f->n_layers)
    FAIL(err, EAGLET_E_INPUT, "%s: layers: expected %d (the target's), found %d", path, f->n_layers, layout->n_layers);
  if (layout->n_states != p->config->n_states)
    FAIL(err, EAGLET_E_INPUT, "%s: expected %d states, found %d", path, p->config->n_states, layout->n_states);
  for (int32_t i = 0; i < layout->n_states; i++) {
    if (layout->states[i] != p->config->states[i]) {
      FAIL(err, EAGLET_E_INPUT, "%s: state %d of the head's input: expected state %d, found state %d", path, i,
           p->config->states[i], layout->states[i]);
    }
  }
  return EAGLET_OK;
}

static enum eaglet_status open_stored(struct feature_source *s, const struct feature_source_params *p,
                                      struct eaglet_error *err) {
  TRY(feature_store_open(&s->store, p->directory, p->tokens, err));
  TRY(check_layout(p, err, feature_store_layout(s->store)));
  s->last = s->n_states * s->hidden;
  s->width = s->last + s->hidden;
  s->row_scratch = memory_try(sizeof(float) * (size_t)p->tokens_max * (size_t)s->width);
  if (!s->row_scratch)
    FAIL(err, EAGLET_E_RESOURCE, "not enough memory for the states of a row of %d tokens", p->tokens_max);
  return EAGLET_OK;
}

enum eaglet_status feature_source_open(struct feature_source *s, const struct feature_source_params *p,
                                       struct eaglet_error *err) {
  *s = (struct feature_source){.n_states = p->config->n_states, .hidden = p->config->target_hidden};
  enum eaglet_status status = p->directory ? open_stored(s, p, err) : open_live(s, p, err);
  if (status != EAGLET_OK) feature_source_close(s);
  return status;
}

static enum eaglet_status read_stored(struct feature_source *s, const struct feature_request *r,
                                      struct eaglet_error *err) {
  for (int32_t i = 0; i < r->n; i++) {
    TRY(feature_store_read(s->store, r->rows[i], s->row_scratch, err));
    memcpy(r->states[i], s->row_scratch, sizeof(float) * (size_t)r->lengths[i] * (size_t)s->width);
  }
  return EAGLET_OK;
}

enum eaglet_status feature_source_read(struct feature_source *s, const struct feature_request *r,
                                       struct eaglet_error *err) {
  if (s->store) return read_stored(s, r, err);
  const int32_t **tokens = memory_alloc(sizeof *tokens * (size_t)r->n);
  for (int32_t i = 0; i < r->n; i++) tokens[i] = r->tokens->rows[r->rows[i]].tokens;
  enum eaglet_status status = capture_run(s->capture, tokens, r->lengths, r->n, r->states, err);
  free(tokens);
  return status;
}

void feature_source_close(struct feature_source *s) {
  capture_free(s->capture);
  feature_store_close(s->store);
  memory_try_free(s->row_scratch);
  *s = (struct feature_source){0};
}
