/* progress.h - progress of long work for the command line: a bar on a terminal, a line every 10 s otherwise, with rate and
 * ETA; and SIGINT/SIGTERM turned into a polite stop (first signal) or the default action (second). Library code sees only
 * struct eaglet_progress. */
#ifndef EAGLET_BASE_PROGRESS_H
#define EAGLET_BASE_PROGRESS_H

#include "base/error.h"

struct progress {
  bool quiet, terminal, color;
  double started, printed;
  char stage[64];
  uint64_t done_first;
  bool complete; /* the stage has told its end */
};
void progress_init(struct progress *progress, bool quiet, bool color);
struct eaglet_progress progress_callbacks(struct progress *progress);
void progress_finish(struct progress *progress); /* ends the bar's line */
int progress_signal(void); /* the signal that asked to stop, or 0 */
/* For library code: true to go on. A NULL report is fine. */
static inline bool progress_report(const struct eaglet_progress *p, const char *stage, const char *unit, uint64_t done,
                                   uint64_t total, const char *note) {
  return !p->report || p->report(p->context, stage, unit, done, total, note);
}

#endif
