/* head_walk.h - what the numeric tests of heads share: a head with all that it needs to be run row by row, and how far results are off. */
#ifndef EAGLET_TESTS_HEAD_WALK_H
#define EAGLET_TESTS_HEAD_WALK_H

#include "draft/head.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define WALK_SEQUENCES_MAX 2

struct head_walk {
  struct compute *compute; /* borrowed */
  struct head_forward *forward;
  struct kv_cache kv;
  struct kv_sequence sequences[WALK_SEQUENCES_MAX];
  int32_t n_sequences;
  struct batch batch;
  float *feature; /* [rows, width] */
};
struct walk_size {
  int32_t n_sequences, rows, width, slots; /* slots: of each sequence */
};

static inline void walk_must(enum eaglet_status status, const struct eaglet_error *err) {
  if (status != EAGLET_OK) fail_msg("%s", err->message);
}

static inline void walk_open(struct head_walk *w, const struct head *head, struct compute *c, struct walk_size size) {
  struct eaglet_error err;
  int32_t n_pages = size.n_sequences * kv_pages_of(size.slots);
  *w = (struct head_walk){.compute = c, .n_sequences = size.n_sequences};
  walk_must(head_forward_create(&w->forward, head, size.rows, n_pages, &err), &err);
  walk_must(kv_cache_init(&w->kv, c, head_kv_layers(head), head_kv_entry_floats(head), n_pages, &err), &err);
  for (int32_t i = 0; i < size.n_sequences; i++) {
    walk_must(kv_sequence_init(&w->sequences[i], &w->kv, size.slots, &err), &err);
    walk_must(kv_sequence_reserve(&w->sequences[i], size.slots, &err), &err);
  }
  batch_init(&w->batch, size.rows);
  w->feature = c->alloc(c, (size_t)size.rows * (size_t)size.width * sizeof(float));
}

static inline void walk_close(struct head_walk *w) {
  w->compute->free(w->compute, w->feature);
  batch_release(&w->batch);
  for (int32_t i = 0; i < w->n_sequences; i++) kv_sequence_release(&w->sequences[i]);
  kv_cache_release(&w->kv);
  head_forward_free(w->forward);
}

/* A row whose logits are wanted. */
static inline void walk_add(struct head_walk *w, int32_t sequence, int32_t at, int32_t token) {
  struct batch_row *row = batch_add(&w->batch);
  row->token = token;
  row->position = row->slot = at;
  row->kv = &w->sequences[sequence];
  row->wants_logits = true;
}

static inline void walk_run(struct head_walk *w, struct head_run *run) {
  struct eaglet_error err;
  *run = (struct head_run){.batch = &w->batch, .kv = &w->kv, .feature = w->feature};
  walk_must(head_forward_run(w->forward, run, &err), &err);
  assert_int_equal(run->n_logits, w->batch.n);
}

/* Largest difference of n floats, relative to the largest value of the reference. */
static inline double walk_difference(const float *a, const double *b, int32_t n) {
  double worst = 0, most = 0;
  for (int32_t i = 0; i < n; i++) {
    worst = fmax(worst, fabs((double)a[i] - b[i]));
    most = fmax(most, fabs(b[i]));
  }
  return worst / most;
}

#endif
