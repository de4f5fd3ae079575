/* model_fixture.h - what the model tests share: where data lies, opening a model, running tokens, comparing with a
 * reference file. */
#ifndef EAGLET_TESTS_MODEL_FIXTURE_H
#define EAGLET_TESTS_MODEL_FIXTURE_H

#include "model/forward.h"

#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../shared_path.h"

struct fixture {
  struct compute *compute;
  struct model *model;
  struct forward *forward;
  struct kv_cache kv;
  struct kv_sequence sequence;
  struct batch batch;
};

/* positions: longest context; 0: as long as the model's default. */
static inline enum eaglet_status fixture_open_at(struct fixture *f, const char *directory, int32_t rows_max,
                                                 int32_t positions, struct eaglet_error *err) {
  *f = (struct fixture){.model = NULL};
  TRY(compute_open_cpu(&f->compute, 2, EAGLET_PRECISION_EXACT, err));
  const struct model_params params = {
      .path = directory, .compute = f->compute, .positions_max = positions};
  TRY(model_open(&f->model, &params, err));
  struct block_shape shape;
  block_shape_from_features(&shape, &f->model->arch.features);
  TRY(forward_create(&f->forward, f->model, rows_max, 64, err));
  TRY(kv_cache_init(&f->kv, f->compute, f->model->arch.features.n_layers, block_kv_entry_floats(&shape), 64, err));
  TRY(kv_sequence_init(&f->sequence, &f->kv, 1024, err));
  batch_init(&f->batch, rows_max);
  return EAGLET_OK;
}

static inline enum eaglet_status fixture_open(struct fixture *f, const char *directory, int32_t rows_max,
                                              struct eaglet_error *err) {
  return fixture_open_at(f, directory, rows_max, 0, err);
}

static inline void fixture_close(struct fixture *f) {
  batch_release(&f->batch);
  if (f->sequence.cache) kv_sequence_release(&f->sequence);
  if (f->kv.pools) kv_cache_release(&f->kv);
  forward_free(f->forward);
  model_close(f->model);
  if (f->compute) compute_close(f->compute);
  *f = (struct fixture){.model = NULL};
}

/* One prefill of n tokens from slot `begin`; every row wants logits. */
static inline void fixture_batch(struct fixture *f, const int32_t *tokens, int32_t begin, int32_t n) {
  struct eaglet_error err;
  assert_int_equal(kv_sequence_reserve(&f->sequence, begin + n, &err), EAGLET_OK);
  batch_reset(&f->batch);
  for (int32_t i = 0; i < n; i++) {
    struct batch_row *row = batch_add(&f->batch);
    *row = (struct batch_row){.token = tokens[i],
                              .position = begin + i,
                              .slot = begin + i,
                              .kv = &f->sequence,
                              .wants_logits = true};
  }
}

static inline double max_rel(const float *a, const float *b, size_t n) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(a[i])) return INFINITY;
    difference = fmax(difference, fabs((double)a[i] - b[i]));
    largest = fmax(largest, fabs((double)b[i]));
  }
  return largest > 0 ? difference / largest : difference;
}

/* Largest error of states, norm and logits against one prompt of a reference file (prefix "" with [B, T] ids, or "p0."
 * with [T]). from_first: the run starts with the reference's own state 1 instead of the embeddings. */
static inline double fixture_compare_from(struct fixture *f, const struct safetensors *reference, const char *prefix,
                                          bool from_first) {
  char name[64];
  double worst = 0;
  struct eaglet_error err = {0};
  int32_t n_layers = f->model->arch.features.n_layers, hidden = f->model->arch.features.hidden,
          n_vocab = f->model->arch.features.n_vocab;
  snprintf(name, sizeof name, "%sinput_ids", prefix);
  const struct tensor_entry *ids = safetensors_find(reference, name);
  assert_non_null(ids);
  int32_t n_rows = ids->rank == 2 ? (int32_t)ids->shape[0] : 1, n = (int32_t)ids->shape[ids->rank - 1];
  for (int32_t row = 0; row < n_rows; row++) {
    int32_t *tokens = memory_alloc((size_t)n * sizeof *tokens);
    for (int32_t i = 0; i < n; i++) {
      int64_t id;
      memcpy(&id, ids->data + 8 * ((size_t)row * (size_t)n + (size_t)i), sizeof id);
      tokens[i] = (int32_t)id;
    }
    fixture_batch(f, tokens, 0, n);
    struct forward_run run = {.batch = &f->batch, .kv = &f->kv, .start_state = from_first};
    if (from_first) {
      const struct tensor_entry *first = safetensors_find(reference, "layer.0");
      run.start = (const float *)(const void *)first->data + (size_t)row * (size_t)n * (size_t)hidden;
    }
    run.taps.n = n_layers;
    for (int32_t i = 0; i < n_layers; i++) run.taps.states[i] = i + 1;
    enum eaglet_status status = forward_run(f->forward, &run, &err);
    if (status != EAGLET_OK) print_error("%s\n", err.message);
    assert_int_equal(status, EAGLET_OK);
    assert_int_equal(run.n_logits, n);
    float *state = memory_alloc((size_t)n * (size_t)hidden * sizeof *state);
    for (int32_t k = 0; k < n_layers; k++) {
      snprintf(name, sizeof name, "%slayer.%d", prefix, k);
      const struct tensor_entry *expected = safetensors_find(reference, name);
      if (f->model->arch.features.layers[k].skip) continue; /* the reference does not run it either */
      assert_non_null(expected);
      for (int32_t i = 0; i < n; i++)
        memcpy(state + (size_t)i * (size_t)hidden,
               run.tapped + ((size_t)i * (size_t)n_layers + (size_t)k) * (size_t)hidden,
               (size_t)hidden * sizeof(float));
      worst = fmax(
          worst, max_rel(state, (const float *)(const void *)expected->data + (size_t)row * (size_t)n * (size_t)hidden,
                         (size_t)n * (size_t)hidden));
    }
    snprintf(name, sizeof name, "%snorm", prefix);
    const struct tensor_entry *norm = safetensors_find(reference, name);
    worst = fmax(worst,
                 max_rel(run.normed, (const float *)(const void *)norm->data + (size_t)row * (size_t)n * (size_t)hidden,
                         (size_t)n * (size_t)hidden));
    snprintf(name, sizeof name, "%slogits", prefix);
    const struct tensor_entry *logits = safetensors_find(reference, name);
    snprintf(name, sizeof name, "%slogits_last8", prefix);
    const struct tensor_entry *last = safetensors_find(reference, name);
    assert_true(logits || last);
    if (logits)
      worst = fmax(worst, max_rel(run.logits,
                                  (const float *)(const void *)logits->data + (size_t)row * (size_t)n * (size_t)n_vocab,
                                  (size_t)n * (size_t)n_vocab));
    else
      worst = fmax(worst, max_rel(run.logits + (size_t)(n - 8) * (size_t)n_vocab,
                                  (const float *)(const void *)last->data, 8 * (size_t)n_vocab));
    free(state);
    free(tokens);
  }
  return worst;
}

static inline double fixture_compare(struct fixture *f, const struct safetensors *reference, const char *prefix) {
  return fixture_compare_from(f, reference, prefix, false);
}

#endif
