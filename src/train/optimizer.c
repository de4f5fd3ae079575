/* optimizer.c - see optimizer.h. */
#include "train/optimizer.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

static bool by_muon(const struct optimizer *o, enum head_parameter which, const int64_t shape[2]) {
  return o->settings->optimizer == EAGLET_OPTIMIZER_MUON && which != HEAD_LM_HEAD && shape[0] > 1 && shape[1] > 1;
}

static size_t work_floats(const struct optimizer *o) {
  size_t most = 0;
  for (int i = 0; i < HEAD_PARAMETER_COUNT; i++) {
    int64_t shape[2];
    head_parameter_shape(o->config, (enum head_parameter)i, shape);
    if (!by_muon(o, (enum head_parameter)i, shape)) continue;
    size_t floats = muon_work_floats(shape[0], shape[1]);
    if (floats > most) most = floats;
  }
  return most;
}

enum eaglet_status optimizer_init(struct optimizer *o, const float *parameters, struct eaglet_error *err) {
  size_t bytes = sizeof(float) * (size_t)o->n_parameters, work = work_floats(o);
  bool averages = o->settings->ema > 0;
  o->m = memory_try(bytes);
  o->v = memory_try(bytes);
  o->average = averages ? memory_try(bytes) : NULL;
  o->work = work ? memory_try(sizeof(float) * work) : NULL;
  if (!o->m || !o->v || (averages && !o->average) || (work && !o->work)) {
    optimizer_release(o);
    FAIL(err, EAGLET_E_RESOURCE, "not enough memory for the optimizer of %lld parameters", (long long)o->n_parameters);
  }
  if (o->average) memcpy(o->average, parameters, bytes);
  return EAGLET_OK;
}

void optimizer_release(struct optimizer *o) {
  float *blocks[] = {o->m, o->v, o->average, o->work};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) memory_try_free(blocks[i]);
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
  for (int i = 0; i < HEAD_PARAMETER_COUNT; i++) {
    enum head_parameter which = (enum head_parameter)i;
    int64_t shape[2], offset = head_parameter_offset(o->config, which);
    head_parameter_shape(o->config, which, shape);
    if (which == HEAD_LM_HEAD && s->lm_head == EAGLET_LM_HEAD_FROZEN) continue;
    if (by_muon(o, which, shape)) {
      const struct muon_params muon = {.rows = (int32_t)shape[0],
                                       .columns = (int32_t)shape[1],
                                       .lr = (float)(step->rate * s->muon_lr / s->lr),
                                       .momentum = (float)s->muon_momentum,
                                       .weight_decay = (float)s->weight_decay,
                                       .grad_scale = (float)step->grad_scale,
                                       .work = o->work};
      ops->muon(o->compute, parameters + offset, o->m + offset, gradients + offset, &muon);
    } else {
      ops->adamw(o->compute, parameters + offset, o->m + offset, o->v + offset, gradients + offset, shape[0] * shape[1], &adamw);
    }
  }
  if (o->average) ops->blend(o->compute, o->average, parameters, (float)average_decay(o, step->step), o->n_parameters);
}
