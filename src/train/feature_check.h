/* feature_check.h - the whole truth about a store of features: every file is read, checksums, shapes, ids and numbers are judged, what is
 * missing is named; and with a target at hand the states are measured (feature_probe.h). */
#ifndef EAGLET_TRAIN_FEATURE_CHECK_H
#define EAGLET_TRAIN_FEATURE_CHECK_H

#include "base/error.h"

/* params->model is a directory or NULL. EAGLET_E_CHECK, with *report filled, when something is wrong. */
enum eaglet_status feature_check_run(const struct eaglet_check_features_params *params, struct eaglet_text *report,
                                     struct eaglet_error *err) MUST_USE;

#endif
