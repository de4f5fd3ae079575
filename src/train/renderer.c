/* renderer.c - see renderer.h. */
#include "train/renderer.h"

#include "text/detokenizer.h"

enum eaglet_status renderer_open(struct renderer *renderer, const char *model, int32_t n_vocab,
                                 struct eaglet_error *err) {
  *renderer = (struct renderer){0};
  enum eaglet_status status = tokenizer_open(&renderer->tokenizer, model, err);
  if (status == EAGLET_OK && tokenizer_n_ids(renderer->tokenizer) > n_vocab) {
    status = error_set(err, EAGLET_E_INPUT, "%s: tokenizer: expected at most %d ids (the model's vocabulary), found %d",
                       model, n_vocab, tokenizer_n_ids(renderer->tokenizer));
  }
  if (status == EAGLET_OK) status = chat_template_open(&renderer->chat, model, renderer->tokenizer, err);
  if (status != EAGLET_OK) renderer_close(renderer);
  return status;
}

void renderer_close(struct renderer *renderer) {
  json_decref(renderer->arguments);
  chat_template_close(renderer->chat);
  tokenizer_close(renderer->tokenizer);
  *renderer = (struct renderer){0};
}

enum eaglet_status renderer_rows(const struct renderer *renderer, const struct conversation *conversation,
                                 struct chat_rows *rows, struct eaglet_error *err) {
  const struct chat_tokenize_params params = {
      .chat = {.messages = conversation->messages, .tools = conversation->tools, .kwargs = renderer->arguments},
      .special_in_content = renderer->special_in_content,
      .last_turn_only = renderer->last_turn_only,
      .one_row = renderer->one_row,
      .part = renderer->part};
  return chat_template_rows(renderer->chat, &params, rows, err);
}

enum eaglet_status renderer_prompt(const struct renderer *renderer, const json_t *messages, const json_t *tools,
                                   struct token_list *ids, struct eaglet_error *err) {
  const struct chat_tokenize_params params = {
      .chat = {.messages = messages, .tools = tools, .kwargs = renderer->arguments, .add_generation_prompt = true},
      .special_in_content = renderer->special_in_content};
  ids->n = 0;
  return chat_template_ids(renderer->chat, &params, ids, err);
}

struct eaglet_text renderer_text(const struct renderer *renderer, const int32_t *ids, int32_t n) {
  struct detokenizer stream;
  struct buffer out;
  buffer_init(&out);
  buffer_append(&out, "", 0);
  detokenizer_init(&stream, renderer->tokenizer);
  for (int32_t i = 0; i < n; i++) detokenizer_push(&stream, ids[i], &out);
  detokenizer_finish(&stream, &out);
  return buffer_detach(&out);
}
