/* extract.h - hidden states of prepared rows to disk: announces the size, checks the disk, resumes. */
#ifndef EAGLET_TRAIN_EXTRACT_H
#define EAGLET_TRAIN_EXTRACT_H

#include "base/error.h"
enum eaglet_status extract_run(const struct eaglet_extract_params *params, struct eaglet_text *report,
                               struct eaglet_error *err) MUST_USE;
#endif
