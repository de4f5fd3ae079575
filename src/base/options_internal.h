/* options_internal.h - what options.c (parsing) and options_text.c (help, man, completion, ini) share. Nobody else includes it. */
#ifndef EAGLET_BASE_OPTIONS_INTERNAL_H
#define EAGLET_BASE_OPTIONS_INTERNAL_H

#include "base/options.h"

/* Visits every option of every table in order: while ((o = options_next(&walk))). Its number is walk.index - 1. */
struct option_walk {
  const struct option *const *table;
  const struct option *at;
  size_t index;
};
struct option_walk options_walk(const struct options_spec *spec);
const struct option *options_next(struct option_walk *walk);

/* The i-th word of "exact|fast" (length in *length), or NULL behind the last. */
const char *options_choice(const struct option *option, int i, size_t *length);

#endif
