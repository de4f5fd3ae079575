/* renderer.h - conversations to token ids by the target's own tokenizer and template, opened once: rows with their
 * mask, prompts that end with the generation prompt, and token ids back to text. */
#ifndef EAGLET_TRAIN_RENDERER_H
#define EAGLET_TRAIN_RENDERER_H

#include "data/dataset.h"
#include "text/template.h"

struct renderer {
  struct tokenizer *tokenizer;
  struct chat_template *chat;
  json_t *arguments; /* variables for the template, or NULL; owned */
  bool special_in_content, last_turn_only;
  bool one_row;        /* every conversation one row, replies that the template rewrites as they stand there */
  enum chat_part part; /* of replies, that is trained */
};
/* n_vocab: of the target; a tokenizer with more ids than that is refused. What is trained and the arguments (of
 * chat_template_arguments) are the caller's to set. */
enum eaglet_status renderer_open(struct renderer *renderer, const char *model, int32_t n_vocab,
                                 struct eaglet_error *err) MUST_USE;
void renderer_close(struct renderer *renderer);

enum eaglet_status renderer_rows(const struct renderer *renderer, const struct conversation *conversation,
                                 struct chat_rows *rows, struct eaglet_error *err) MUST_USE;
/* Replaces the content of *ids. */
enum eaglet_status renderer_prompt(const struct renderer *renderer, const json_t *messages, const json_t *tools,
                                   struct token_list *ids, struct eaglet_error *err) MUST_USE;
struct eaglet_text renderer_text(const struct renderer *renderer, const int32_t *ids,
                                 int32_t n); /* the caller owns it */

#endif
