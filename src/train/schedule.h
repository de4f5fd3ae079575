/* schedule.h - the learning rate of every optimizer step: linear warm-up, then a cosine to zero. A pure function, so
 * resume has nothing to restore. */
#ifndef EAGLET_TRAIN_SCHEDULE_H
#define EAGLET_TRAIN_SCHEDULE_H

#include <stdint.h>

struct schedule {
  double lr;      /* peak */
  int64_t warmup; /* steps until the peak */
  int64_t total;  /* steps of the whole run */
};
/* step from 1 to total. The cosine would reach zero one step after the last, so that no step is wasted on a zero rate.
 */
double schedule_lr(const struct schedule *schedule, int64_t step);

#endif
