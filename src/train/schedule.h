/* schedule.h - the learning rate of every optimizer step: linear warm-up, then one of three shapes. A pure function, so
 * resume has nothing to restore.
 *
 *   cosine    half a cosine from lr to lr_min over the rest of the run (Loshchilov & Hutter 2017, arXiv 1608.03983)
 *   wsd       lr, then a straight line to lr_min over the last decay_share of the steps (warm-up, stable, decay: Hu et al. 2024,
 *             MiniCPM, arXiv 2404.06395; the line as in Hägele et al. 2024, arXiv 2405.18392)
 *   constant  lr
 *
 * Cosine and line would reach lr_min one step after the last, so that no step is wasted on a zero rate.
 */
#ifndef EAGLET_TRAIN_SCHEDULE_H
#define EAGLET_TRAIN_SCHEDULE_H

#include "base/error.h"

struct schedule {
  enum eaglet_schedule kind; /* 0: cosine */
  double lr;                 /* peak */
  double lr_min;
  double decay_share;        /* of wsd, of total */
  int64_t warmup;            /* steps until the peak */
  int64_t total;             /* steps of the whole run */
};
/* step from 1 to total. */
double schedule_lr(const struct schedule *schedule, int64_t step);

#endif
