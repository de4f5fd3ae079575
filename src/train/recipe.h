/* recipe.h - the choices of a training recipe (objective, mask, optimizer, schedule, lm_head, noise, average): their names, their defaults,
 * what goes together, and how they stand in run.ini and in the identity of a run. One table each for choices and numbers; a part of
 * settings.c, which is the only user besides those who want a name. */
#ifndef EAGLET_TRAIN_RECIPE_H
#define EAGLET_TRAIN_RECIPE_H

#include "base/buffer.h"
#include "base/json.h"

/* Fills what is 0 with its default. EAGLET_E_USAGE names the option that makes no sense, alone or beside another. */
enum eaglet_status recipe_resolve(struct eaglet_train_params *settings, struct eaglet_error *err) MUST_USE;
/* Adds every choice and number to the object, by option name. */
void recipe_identity(json_t *identity, const struct eaglet_train_params *settings);
/* Appends them as lines of an ini file. */
void recipe_write(struct buffer *out, const struct eaglet_train_params *settings);

#endif
