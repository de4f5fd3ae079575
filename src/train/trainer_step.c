/* trainer_step.c - one optimizer step: the next rows in micro-batches, gradients accumulated, clipped, the optimizer.
 *
 * Normalisation: the loss of unrolled step k is the sum over the supervised slots of the whole optimizer step divided
 * by their number, which is known from the masks before anything runs. So the result does not depend on how rows fall
 * into micro-batches (F11).
 */
#include "train/trainer_internal.h"

#include "base/progress.h"
#include "base/util.h"
#include "train/supervision.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* The row at a place of the endless stream. */
static uint32_t row_at(struct trainer *t, int64_t place) {
  int64_t epoch = place / t->n_usable;
  if (epoch != t->order_epoch) {
    random_permutation(t->order, t->n_usable, t->settings.seed, (uint64_t)epoch);
    t->order_epoch = epoch;
  }
  return t->usable[t->order[place % t->n_usable]];
}

static const struct token_row *token_row_of(const struct trainer *t, uint32_t row) {
  return &t->tokens.rows[row];
}

static struct supervised_row supervised(const struct trainer *t, uint32_t row) {
  const struct token_row *tokens = token_row_of(t, row);
  return (struct supervised_row){.mask = tokens->mask, .n_tokens = tokens->n, .rule = t->settings.mask_rule};
}

static void weigh_steps(struct trainer *t, const uint32_t *rows, int32_t n, struct step_result *result) {
  for (int32_t i = 0; i < n; i++) {
    const struct supervised_row row = supervised(t, rows[i]);
    supervision_count(result->masked, t->settings.unroll, &row);
  }
  for (int32_t k = 0; k < t->settings.unroll; k++) {
    t->step_weight[k] = result->masked[k] ? (float)(pow(t->settings.decay, k) / (double)result->masked[k]) : 0.0f;
  }
}

static enum eaglet_status run_micro(struct trainer *t, const struct assembler_rows *rows, struct step_result *result,
                                    struct eaglet_error *err) {
  struct micro_batch batch = {.n_steps = t->settings.unroll, .loss_scale = 1.0f, .step_weight = t->step_weight};
  struct micro_result micro;
  TRY(assembler_run(&t->assembler, &batch, rows, err));
  double begin = time_now();
  head_training_forward(t->training, t->parameters, &batch, t->gradients, &micro);
  head_training_backward(t->training, t->parameters, &batch, t->gradients);
  result->head_seconds += time_now() - begin;
  result->flops += head_training_flops(t->training);
  result->n_tokens += batch.n_slots;
  for (int32_t k = 0; k < t->settings.unroll; k++) {
    result->step_loss[k] += micro.step_loss[k];
    result->slots[k] += micro.step_slots[k];
    result->hits[k] += micro.step_hits[k];
    result->acceptance[k] += micro.step_acceptance[k];
  }
  return EAGLET_OK;
}

static bool goes_on(const struct trainer *t) {
  return progress_report(&t->settings.progress, "train", "step", (uint64_t)t->step, (uint64_t)t->schedule.total, NULL);
}

static enum eaglet_status run_micros(struct trainer *t, const uint32_t *rows, int32_t n_rows,
                                     struct step_result *result, struct eaglet_error *err) {
  for (int32_t begin = 0; begin < n_rows;) {
    int32_t n = 0, slots = 0;
    for (; begin + n < n_rows; n++) {
      const struct supervised_row row = supervised(t, rows[begin + n]);
      int32_t more = supervision_slots(&row);
      if (n > 0 && slots + more > t->slots_max) break;
      slots += more;
    }
    if (!goes_on(t)) FAIL(err, EAGLET_E_INTERRUPTED, "stopped after step %lld", (long long)t->step);
    const struct assembler_rows micro = {.rows = rows + begin, .n = n, .place = t->rows_seen + begin};
    TRY(run_micro(t, &micro, result, err));
    begin += n;
  }
  return EAGLET_OK;
}

/* False when the step must not be taken: a value that is not a number. */
static bool finish_loss(struct trainer *t, struct step_result *r) {
  r->loss = 0;
  for (int32_t k = 0; k < t->settings.unroll; k++) {
    if (r->masked[k]) r->step_loss[k] /= (double)r->masked[k];
    r->loss += pow(t->settings.decay, k) * r->step_loss[k];
  }
  r->grad_norm = sqrt(t->compute->training->sum_squares(t->compute, t->gradients, t->n_parameters));
  return isfinite(r->loss) && isfinite(r->grad_norm);
}

static void update(struct trainer *t, const struct step_result *r) {
  const struct eaglet_train_params *s = &t->settings;
  double scale = r->grad_norm > s->clip ? s->clip / r->grad_norm : 1.0;
  const struct optimizer_step step = {.step = r->step, .rate = r->lr, .grad_scale = scale};
  optimizer_run(&t->optimizer, t->parameters, t->gradients, &step);
}

/* A batch whose every target is outside the draft vocabulary teaches nothing, whether its slots are dropped or kept without a gradient:
 * momentum alone must not move the parameters (F12). */
static bool learned(const struct step_result *r) {
  if (r->grad_norm == 0) return false;
  for (int32_t k = 0; k < r->n_steps; k++) {
    if (r->slots[k] > 0) return true;
  }
  return false;
}

enum eaglet_status trainer_step(struct trainer *t, struct step_result *r, struct eaglet_error *err) {
  double begin = time_now();
  int32_t n =
      t->rows_end - t->rows_seen < t->settings.batch ? (int32_t)(t->rows_end - t->rows_seen) : t->settings.batch;
  *r = (struct step_result){
      .step = t->step + 1, .n_steps = t->settings.unroll, .lr = schedule_lr(&t->schedule, t->step + 1)};
  uint32_t *rows = memory_alloc(sizeof *rows * (size_t)n);
  for (int32_t i = 0; i < n; i++) rows[i] = row_at(t, t->rows_seen + i);
  weigh_steps(t, rows, n, r);
  memset(t->gradients, 0, sizeof(float) * (size_t)t->n_parameters);
  enum eaglet_status status = run_micros(t, rows, n, r, err);
  free(rows);
  if (status != EAGLET_OK) return status;
  double after = time_now();
  if (!finish_loss(t, r)) {
    FAIL(err, EAGLET_E_CHECK,
         "step %lld: loss %g, gradient norm %g: not a number; the state of step %lld is kept (try a lower --lr)",
         (long long)r->step, r->loss, r->grad_norm, (long long)t->step);
  }
  if (learned(r))
    update(t, r);
  else
    log_warning("step %lld: no target of this batch is in the draft vocabulary; parameters unchanged",
                (long long)r->step);
  r->head_seconds += time_now() - after;
  r->seconds = time_now() - begin;
  t->step++;
  t->rows_seen += n;
  return EAGLET_OK;
}
