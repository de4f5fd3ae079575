/* rehearsal.c - passes of growing size at open, timed, for adaptive drafting: the target's and the drafter's. Bounded in time: what a slow
 * model leaves unmeasured is learnt while it serves. */
#include "engine/engine_internal.h"

#include "base/util.h"

#define SECONDS_MAX 0.3 /* no new pass after so long; the two smallest run in any case */
#define PASSES 4        /* of each size; the first, which meets cold memory, is not counted */

static enum eaglet_status rehearse_target(struct engine *e, struct kv_sequence *kv, int32_t n_rows, struct eaglet_error *err) {
  struct forward_run run;
  batch_reset(&e->batch);
  for (int32_t i = 0; i < n_rows; i++) {
    struct batch_row *row = batch_add(&e->batch);
    int32_t token = (int32_t)(random_uniform(0, (uint64_t)n_rows, (uint64_t)i) * e->model->arch.features.n_vocab);
    *row = (struct batch_row){.token = token, .position = i, .slot = i, .kv = kv, .wants_logits = true};
  }
  return engine_run_target(e, &run, err);
}

static int32_t next_size(int32_t n) {
  return n < 4 ? n + 1 : n + n / 2 - n / 2 % 2;
}

static enum eaglet_status rehearse_sizes(struct engine *e, struct kv_sequence *kv, int32_t rows_most, struct eaglet_error *err) {
  double started = time_now();
  for (int32_t pass = 0; pass < PASSES; pass++) {
    for (int32_t n = 1; n <= rows_most; n = next_size(n)) {
      if (time_now() - started > SECONDS_MAX && (pass > 1 || n > 2)) break;
      TRY(rehearse_target(e, kv, n, err));
      if (e->drafter->rehearse) TRY(e->drafter->rehearse(e->drafter, n, err));
    }
    if (pass == 0) controller_forget(e->controller);
  }
  return EAGLET_OK;
}

enum eaglet_status engine_rehearse(struct engine *e, struct eaglet_error *err) {
  struct kv_sequence kv;
  int64_t most = (int64_t)e->sequences_max * (e->draft_tokens_max + 1);
  int32_t rows_most = most < e->rows_max ? (int32_t)most : e->rows_max;
  if (rows_most > e->context_max) rows_most = e->context_max;
  TRY(kv_sequence_init(&kv, &e->kv, rows_most, err));
  enum eaglet_status status = kv_sequence_reserve(&kv, rows_most, err);
  if (status == EAGLET_OK) status = rehearse_sizes(e, &kv, rows_most, err);
  controller_start(e->controller);
  batch_reset(&e->batch);
  kv_sequence_release(&kv);
  return status;
}
