/* optimizer.c - see optimizer.h. */
#include "train/optimizer.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool by_muon(const struct optimizer *o, const struct head_parameter *p) {
  return o->settings->optimizer == EAGLET_OPTIMIZER_MUON && p->part != HEAD_LM_HEAD && p->part != HEAD_EMBED && p->rows > 1 && p->columns > 1;
}

static bool is_trained(const struct optimizer *o, const struct head_parameter *p) {
  return !p->frozen && !(p->part == HEAD_LM_HEAD && o->settings->lm_head == EAGLET_LM_HEAD_FROZEN);
}

static size_t work_floats(const struct optimizer *o) {
  size_t most = 0;
  for (int32_t i = 0; i < o->list->n; i++) {
    const struct head_parameter *p = &o->list->list[i];
    if (!is_trained(o, p) || !by_muon(o, p)) continue;
    size_t floats = muon_work_floats(p->rows, p->columns);
    if (floats > most) most = floats;
  }
  return most;
}

enum eaglet_status optimizer_init(struct optimizer *o, const float *parameters, struct eaglet_error *err) {
  o->list = memory_alloc(sizeof *o->list);
  head_parameters_list(o->list, o->config);
  o->n_parameters = o->list->trained;
  size_t bytes = sizeof(float) * (size_t)o->n_parameters, whole = sizeof(float) * (size_t)o->list->total, work = work_floats(o);
  bool averages = o->settings->ema > 0;
  o->m = memory_try(bytes);
  o->v = memory_try(bytes);
  o->average = averages ? memory_try(whole) : NULL;
  o->work = work ? memory_try(sizeof(float) * work) : NULL;
  if (!o->m || !o->v || (averages && !o->average) || (work && !o->work)) {
    int64_t n = o->n_parameters;
    optimizer_release(o);
    FAIL(err, EAGLET_E_RESOURCE, "not enough memory for the optimizer of %lld parameters", (long long)n);
  }
  if (o->average) memcpy(o->average, parameters, whole);
  return EAGLET_OK;
}

void optimizer_release(struct optimizer *o) {
  float *blocks[] = {o->m, o->v, o->average, o->work};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) memory_try_free(blocks[i]);
  free(o->list);
  *o = (struct optimizer){0};
}

/* The share of the past grows with the steps up to --ema: the first parameters, which are noise, are forgotten as fast as in a run of any
 * length. */
static double average_decay(const struct optimizer *o, int64_t step) {
  double early = (double)(step + 1) / (double)(step + 10);
  return early < o->settings->ema ? early : o->settings->ema;
}

void optimizer_run(struct optimizer *o, float *parameters, const float *gradients, const struct optimizer_step *step) {
  const struct eaglet_train_params *s = o->settings;
  const struct compute_training *ops = o->compute->training;
  const struct adamw_params adamw = {.lr = (float)step->rate,
                                     .beta1 = (float)s->beta1,
                                     .beta2 = (float)s->beta2,
                                     .eps = 1e-8f,
                                     .weight_decay = (float)s->weight_decay,
                                     .step = step->step,
                                     .grad_scale = (float)step->grad_scale};
  for (int32_t i = 0; i < o->list->n; i++) {
    const struct head_parameter *p = &o->list->list[i];
    float *w = parameters + p->offset, *m = o->m + p->offset;
    if (!is_trained(o, p)) continue;
    if (by_muon(o, p)) {
      const struct muon_params muon = {.rows = (int32_t)p->rows,
                                       .columns = (int32_t)p->columns,
                                       .lr = (float)(step->rate * s->muon_lr / s->lr),
                                       .momentum = (float)s->muon_momentum,
                                       .weight_decay = (float)s->weight_decay,
                                       .grad_scale = (float)step->grad_scale,
                                       .work = o->work};
      ops->muon(o->compute, w, m, gradients + p->offset, &muon);
    } else {
      ops->adamw(o->compute, w, m, o->v + p->offset, gradients + p->offset, p->rows * p->columns, &adamw);
    }
  }
  if (o->average) ops->blend(o->compute, o->average, parameters, (float)average_decay(o, step->step), o->n_parameters);
}
