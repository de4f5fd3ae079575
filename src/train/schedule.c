/* schedule.c - see schedule.h. */
#include "train/schedule.h"

#include <math.h>

/* From 0 at `begin` to 1 one step after the last. */
static double progress(const struct schedule *s, int64_t step, int64_t begin) {
  double done = (double)(step - begin) / (double)(s->total - begin + 1);
  return done < 0 ? 0 : done < 1.0 ? done : 1.0;
}

double schedule_lr(const struct schedule *s, int64_t step) {
  if (step <= s->warmup) return s->lr * (double)step / (double)s->warmup;
  if (s->kind == EAGLET_SCHEDULE_CONSTANT) return s->lr;
  if (s->kind == EAGLET_SCHEDULE_WSD) {
    int64_t stable = s->total - (int64_t)llround((double)s->total * s->decay_share);
    return s->lr - (s->lr - s->lr_min) * progress(s, step, stable > s->warmup ? stable : s->warmup);
  }
  return s->lr_min + (s->lr - s->lr_min) * 0.5 * (1.0 + cos(M_PI * progress(s, step, s->warmup)));
}
