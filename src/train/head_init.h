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
/* The layout that p->head_config names, a head's config.json in any dialect (docs/HEADS.md): its sizes, kind of attention, layers, wiring and
 * rope; states where it names them. EAGLET_E_USAGE when another parameter says otherwise. */
enum eaglet_status head_config_from_file(struct head_config *config, const struct eaglet_train_params *params,
                                         const struct model *target, int32_t n_draft, struct eaglet_error *err) MUST_USE;
/* Refuses sizes, and a rotary base, among the parameters that are not those of a head whose layout is given; from: "the head of --init". */
enum eaglet_status head_config_check(const struct head_config *config, const struct eaglet_train_params *params,
                                     const char *from, struct eaglet_error *err) MUST_USE;
/* Refuses an embedding that learns and that its dialect's loader would replace (F22), warns of what that loader does not read. */
enum eaglet_status head_config_serve(const struct head_config *config, const char *from, struct eaglet_error *err) MUST_USE;
/* Linear weights uniform in +-1/sqrt(inputs) (as torch's Linear), norms one, biases zero, embedding and lm_head the target's own rows where
 * they are as wide: the head then starts from a working read-out instead of noise. The same seed gives the same parameters on every
 * machine. */
void head_parameters_init(float *parameters, const struct head_config *config, const struct model *target,
                          const struct vocab_map *map, uint64_t seed);

#endif
