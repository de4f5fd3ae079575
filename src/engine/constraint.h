/* constraint.h - which tokens may come next, as the engine sees it: ids and small states that can be copied. Grammars live above
 * (src/api/text_side.c joins the two); the engine asks, and never looks inside.
 */
#ifndef EAGLET_ENGINE_CONSTRAINT_H
#define EAGLET_ENGINE_CONSTRAINT_H

#include "draft/tree.h"

struct constraint_source {
  void *context;
  size_t state_bytes;
  void (*start)(void *context, void *state);
  /* A bit per target id (1: allowed), valid until the next call; never all zero. Not asked of a text that is over. */
  const uint32_t *(*allowed)(void *context, const void *state);
  /* False: the token is not allowed here; the state is unchanged then. A stop token ends the text without being part of it: it may be
   * refused too, or lead to a state that is over. */
  bool (*advance)(void *context, void *state, int32_t token);
  bool (*is_over)(void *context, const void *state); /* the text is whole and nothing may be added to it */
};
/* A place in a constrained text. */
struct constraint_cursor {
  const struct constraint_source *source;
  void *state;      /* [source->state_bytes] */
  uint8_t *scratch; /* [CONSTRAINT_SCRATCH_STATES * state_bytes] for states along drafts */
};
#define CONSTRAINT_SCRATCH_STATES (2 * TREE_WIDTH_MAX) /* two levels of a tree's frontier */

#endif
