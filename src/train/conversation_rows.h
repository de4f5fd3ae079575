/* conversation_rows.h - one conversation as rows of token ids with their mask: by the template, or, when the target wrote the replies, from
 * the prompts that it saw and the ids that it wrote. Knows nothing of other rows.
 */
#ifndef EAGLET_TRAIN_CONVERSATION_ROWS_H
#define EAGLET_TRAIN_CONVERSATION_ROWS_H

#include "train/regenerate.h"

struct row_tokens {
  int32_t *ids;
  uint8_t *mask;
  size_t n, capacity;
};
struct row_list { /* zero-initialised: empty */
  struct row_tokens *rows;
  size_t n;
  size_t n_special; /* messages that hold the text of a special token */
  size_t n_split;   /* replies of the target that stand in a row of their own, because a later prompt writes them with other ids */
  size_t n_endless; /* replies that the template closes with no token */
};
/* *reason: why the conversation has no rows to be trained (static), or NULL. Replies of weight 0 are not trained. EAGLET_E_INPUT: refused
 * by the template. */
enum eaglet_status rows_from_template(struct row_list *list, const char **reason, const struct renderer *renderer,
                                      const struct conversation *conversation, struct eaglet_error *err) MUST_USE;
/* A prompt that continues the row so far, id by id, goes on in that row; another begins a new one. */
enum eaglet_status rows_from_replies(struct row_list *list, const struct renderer *renderer, const struct conversation *conversation,
                                     const struct reply_list *replies, struct eaglet_error *err) MUST_USE;
/* The one row of a conversation that is token ids, which stay the conversation's too. */
void rows_from_ids(struct row_list *list, const struct conversation *conversation);
/* Cuts to n_max tokens and says whether there was something to cut; a reply that is cut is not trained, so that no head learns to stop
 * where the data did. *reply_cut: whether one was. */
bool row_clip(struct row_tokens *row, size_t n_max, bool *reply_cut);
void row_list_clear(struct row_list *list);

#endif
