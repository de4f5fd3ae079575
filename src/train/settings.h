/* settings.h - the trainer's resolved settings: defaults filled in, checked, written to run.ini, and as the object that
 * a resumed run must agree with. */
#ifndef EAGLET_TRAIN_SETTINGS_H
#define EAGLET_TRAIN_SETTINGS_H

#include "draft/head_file.h"

#define UNROLL_MAX 15 /* of head_training */

static inline void settings_default(double *value, double fallback) {
  if (*value == 0) *value = fallback;
}
/* Fills what is 0 with its default. EAGLET_E_USAGE names the option that makes no sense. */
enum eaglet_status settings_resolve(struct eaglet_train_params *settings, const struct eaglet_train_params *params,
                                    struct eaglet_error *err) MUST_USE;
/* What changes the result of training, by option name; the caller adds hashes and owns it. */
json_t *settings_identity(const struct eaglet_train_params *settings, const struct head_config *config);
/* out/run.ini: every option with its resolved value, readable by `train --config`. */
enum eaglet_status settings_write_ini(const struct eaglet_train_params *settings, const struct head_config *config,
                                      struct eaglet_error *err) MUST_USE;

#endif
