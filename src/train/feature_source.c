/* feature_source.c - see feature_source.h. */
#include "train/feature_source.h"

#include "base/memory.h"
#include "base/util.h"
#include "train/feature_probe.h"
#include "train/target_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void states_text(char text[128], const int32_t *states, int32_t n) {
  size_t length = 0;
  text[0] = '\0';
  for (int32_t i = 0; i < n && length < 120; i++) length += (size_t)snprintf(text + length, 128 - length, "%s%d", i ? "," : "", states[i]);
}

static enum eaglet_status check_layout(const struct feature_source_params *p, const struct feature_layout *layout, struct eaglet_error *err) {
  const struct features *f = &p->model->arch.features;
  const char *path = p->directory;
  char expected[128], found[128];
  if (layout->hidden != f->hidden)
    FAIL(err, EAGLET_E_INPUT, "%s: hidden size: expected %d (the target's), found %d", path, f->hidden, layout->hidden);
  if (layout->n_layers != f->n_layers)
    FAIL(err, EAGLET_E_INPUT, "%s: layers: expected %d (the target's), found %d", path, f->n_layers, layout->n_layers);
  bool same = layout->n_states == p->config->n_states && memcmp(layout->states, p->config->states, sizeof *layout->states * (size_t)layout->n_states) == 0;
  if (same) return EAGLET_OK;
  states_text(expected, p->config->states, p->config->n_states);
  states_text(found, layout->states, layout->n_states);
  FAIL(err, EAGLET_E_INPUT, "%s: expected states %s, the head's input, found states %s: with --states %s the head takes these", path, expected, found, found);
}

static enum eaglet_status check_cover(const struct feature_source *s, const struct feature_source_params *p, struct eaglet_error *err) {
  size_t n = p->tokens->n_rows, missing = n - s->store->n_covered;
  if (s->store->n_duplicates > 0)
    log_warning("%s: %zu samples have the ids of an earlier one and are not used", p->directory, s->store->n_duplicates);
  if (missing == 0) return EAGLET_OK;
  if (!p->partial)
    FAIL(err, EAGLET_E_INPUT, "%s: has states of %zu of %zu rows; --features-partial trains on those", p->directory, n - missing, n);
  log_warning("%s: has states of %zu of %zu rows; the others are left out", p->directory, n - missing, n);
  return EAGLET_OK;
}

/* The rest of the target, from the deepest state that is stored. */
static enum eaglet_status open_rest(struct feature_source *s, const struct feature_source_params *p, struct eaglet_error *err) {
  const struct feature_layout *layout = &s->store->layout;
  const struct capture_params capture = {.model = p->model,
                                         .tokens_max = p->tokens_max,
                                         .start_state = layout->states[layout->n_states - 1],
                                         .taps = {.n = 1, .states = {layout->n_layers}}};
  s->start = memory_try(sizeof(float) * (size_t)p->tokens_max * (size_t)s->hidden);
  s->rest = memory_try(sizeof(float) * (size_t)p->tokens_max * (size_t)s->hidden);
  if (!s->start || !s->rest) FAIL(err, EAGLET_E_RESOURCE, "not enough memory for the last states of a row of %d tokens", p->tokens_max);
  return capture_create(&s->capture, &capture, err);
}

/* States of other weights, by the manifest: what they are is then measured as for any file of unknown origin. */
static bool is_of_another_model(const struct feature_store *store, const struct model *model) {
  char hash[HASH_TEXT_BYTES];
  hash_text(hash, target_hash(&model->checkpoint));
  return store->model_hash[0] != '\0' && strcmp(store->model_hash, hash) != 0;
}

static enum eaglet_status open_stored(struct feature_source *s, const struct feature_source_params *p,
                                      struct eaglet_error *err) {
  TRY(feature_store_open(&s->store, p->directory, p->tokens, err));
  if (!s->store->named || is_of_another_model(s->store, p->model)) TRY(feature_probe_run(s->store, p->model, &s->slots, err));
  const struct feature_layout *layout = feature_store_layout(s->store);
  TRY(check_layout(p, layout, err));
  TRY(check_cover(s, p, err));
  s->last = s->n_states * s->hidden;
  s->width = s->last + s->hidden;
  s->last_is_normed = layout->last == FEATURE_LAST_NORMED;
  if (layout->last == FEATURE_LAST_NONE) TRY(open_rest(s, p, err));
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

/* Runs what is left of the target for the first n tokens of the row in the scratch. */
static enum eaglet_status run_rest(struct feature_source *s, const int32_t *tokens, int32_t n, struct eaglet_error *err) {
  size_t hidden = (size_t)s->hidden, inputs = (size_t)s->last;
  for (size_t t = 0; t < (size_t)n; t++)
    memcpy(s->start + t * hidden, s->row_scratch + (t + 1) * inputs - hidden, sizeof(float) * hidden);
  const struct capture_rows rows = {.tokens = &tokens, .lengths = &n, .n = 1, .starts = (const float *const[]){s->start}, .states = &s->rest};
  return capture_resume(s->capture, &rows, err);
}

static enum eaglet_status read_stored(struct feature_source *s, const struct feature_request *r,
                                      struct eaglet_error *err) {
  size_t inputs = (size_t)s->last, hidden = (size_t)s->hidden, width = (size_t)s->width;
  for (int32_t i = 0; i < r->n; i++) {
    size_t n = (size_t)r->lengths[i];
    TRY(feature_store_read(s->store, r->rows[i], s->row_scratch, err));
    if (!s->capture) {
      memcpy(r->states[i], s->row_scratch, sizeof(float) * n * width);
      continue;
    }
    TRY(run_rest(s, r->tokens->rows[r->rows[i]].tokens, r->lengths[i], err));
    for (size_t t = 0; t < n; t++) {
      memcpy(r->states[i] + t * width, s->row_scratch + t * inputs, sizeof(float) * inputs);
      memcpy(r->states[i] + t * width + inputs, s->rest + t * hidden, sizeof(float) * hidden);
    }
  }
  return EAGLET_OK;
}

bool feature_source_has(const struct feature_source *s, size_t row) { return !s->store || feature_store_has(s->store, row); }

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
  memory_try_free(s->start);
  memory_try_free(s->rest);
  json_decref(s->slots);
  *s = (struct feature_source){0};
}
