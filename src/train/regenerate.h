/* regenerate.h - on-policy data: every reply of every conversation is replaced by the target's own answer, turn by
 * turn, many conversations at once. The answers go line by line to OUT/regenerated.jsonl (docs/FORMATS.md), which
 * survives kill -9: a run that finds it goes on where the last one stopped, after checking that the settings are
 * the same.
 *
 * The token ids that the target wrote are kept beside the text, because tokenizing the text again may give others.
 */
#ifndef EAGLET_TRAIN_REGENERATE_H
#define EAGLET_TRAIN_REGENERATE_H

#include "train/intake.h"
#include "train/renderer.h"
#include "train/target_facts.h"

struct regeneration;
struct regeneration_params {
  const struct eaglet_prepare_params *prepare; /* defaults filled in */
  const struct renderer *renderer;
  const struct target_facts *facts;
  struct intake *intake; /* counts every row of the data */
};
/* Answers what is not answered yet. A stop request: EAGLET_E_INTERRUPTED, what is done is kept. */
enum eaglet_status regeneration_run(struct regeneration **regeneration, const struct regeneration_params *params,
                                    struct eaglet_error *err) MUST_USE;

struct reply_list { /* the replies of one conversation, in order */
  struct reply {
    int32_t *ids;
    int32_t n;
    bool ended;
  } * replies; /* ended: the last id is the end-of-turn token that the target wrote */
  size_t n;
};
size_t regeneration_count(const struct regeneration *regeneration); /* conversations with an answer */
/* Conversation i in the order of the data; path is not set. The caller clears both. */
enum eaglet_status regeneration_row(const struct regeneration *regeneration, size_t i,
                                    struct conversation *conversation, struct reply_list *replies,
                                    struct eaglet_error *err) MUST_USE;
void reply_list_clear(struct reply_list *list);
void regeneration_close(struct regeneration *regeneration);

#endif
