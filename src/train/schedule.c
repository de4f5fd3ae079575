/* schedule.c - see schedule.h. */
#include "train/schedule.h"

#include <math.h>

double schedule_lr(const struct schedule *s, int64_t step) {
  if (step <= s->warmup) return s->lr * (double)step / (double)s->warmup;
  double done = (double)(step - s->warmup) / (double)(s->total - s->warmup + 1);
  return s->lr * 0.5 * (1.0 + cos(M_PI * (done < 1.0 ? done : 1.0)));
}
