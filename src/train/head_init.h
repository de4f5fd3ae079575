/* head_init.h - what a new head looks like (sizes, states, rotary base) and where its parameters start. */
#ifndef EAGLET_TRAIN_HEAD_INIT_H
#define EAGLET_TRAIN_HEAD_INIT_H

#include "draft/head_file.h"

/* "auto" or NULL: the model's default states; else "2,4,5", ascending, distinct, 0 <= state <= layers. EAGLET_E_USAGE
 * names the bad entry. */
enum eaglet_status head_states_parse(int32_t *states, int32_t *n_states, const char *text,
                                     const struct features *features, struct eaglet_error *err) MUST_USE;
/* Sizes that params leave at 0 come from the target: heads and FFN width as they are; key/value heads as they are, or
 * half the heads when the target's attention is latent (MLA); head_dim as it is, or hidden/heads. n_draft is the map's.
 */
enum eaglet_status head_config_new(struct head_config *config, const struct eaglet_train_params *params,
                                   const struct model *target, int32_t n_draft, struct eaglet_error *err) MUST_USE;
/* Linear weights uniform in +-1/sqrt(inputs) (as torch's Linear), norms one, lm_head by the settings the target's own rows of
 * the draft vocabulary (the head then starts from a working read-out instead of noise) or uniform too. The same seed gives the same parameters on
 * every machine. */
void head_parameters_init(float *parameters, const struct head_config *config, const struct model *target,
                          const struct vocab_map *map, const struct eaglet_train_params *settings);

#endif
