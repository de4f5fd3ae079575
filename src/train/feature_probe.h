/* feature_probe.h - which states a store of features really holds, measured: the target runs on the ids of a few rows, and every slot of the
 * store is compared with all its states and with the last one behind the final norm. What a program calls "layer k" differs by one from
 * program to program, and whether the last state is normed too; nothing that a file says about it is believed (D01, D02, D04).
 *
 * A slot is the state that it fits within the rounding of its type and of BF16 arithmetic; it must fit no other half as well.
 */
#ifndef EAGLET_TRAIN_FEATURE_PROBE_H
#define EAGLET_TRAIN_FEATURE_PROBE_H

#include "data/feature_store.h"
#include "model/model.h"

/* Names the store's states. Refused by name, with the nearest state and its error: a slot that fits none, inputs that do not ascend, a last
 * slot that is not the last state. *table, also after a refusal: [{slot, fits, error, runner_up, runner_up_error}], the caller's; NULL: not
 * wanted. */
enum eaglet_status feature_probe_run(struct feature_store *store, const struct model *model, json_t **table,
                                     struct eaglet_error *err) MUST_USE;

#endif
