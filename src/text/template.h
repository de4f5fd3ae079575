/* template.h - a checkpoint's chat template: conversation -> text, by the template itself (jinja_*), with the byte span of
 * every assistant reply. No hand-written template, no remote code.
 *
 * Rendering tracks where each string of the messages came out (origins, jinja.h). A reply starts at the first byte of its content
 * (or reasoning) in the output, moved back to the end of the generation prompt's text when that directly precedes; it ends with the
 * first special token after its content. Invariant: masked tokens decode to exactly those bytes, and rendering with tracking
 * gives the same text as without. If spans cannot be found exactly the render is refused, never guessed. A reply whose content
 * is empty or dropped by the template is not trained.
 */
#ifndef EAGLET_TEXT_TEMPLATE_H
#define EAGLET_TEXT_TEMPLATE_H

#include "base/json.h"
#include "text/tokenizer.h"

struct chat_template;
/* Sources in order: chat_template.jinja, tokenizer_config.json chat_template, chat_template.json. */
enum eaglet_status chat_template_open(struct chat_template **template_, const char *directory,
                                      const struct tokenizer *tokenizer, struct eaglet_error *err) MUST_USE;
enum eaglet_status chat_template_parse(struct chat_template **template_, const char *source, size_t length,
                                       const struct tokenizer *tokenizer, struct eaglet_error *err) MUST_USE;
void chat_template_close(struct chat_template *template_);
/* Name of the file that an opened template was read from, and the xxh3 hash of its source: two reports name the same template or they don't. */
const char *chat_template_origin(const struct chat_template *template_, uint64_t *hash);

struct chat_params {
  const json_t *messages;      /* array of {"role","content",...}; roles already normalised (user, assistant, system, tool) */
  const json_t *tools;         /* or NULL */
  const json_t *kwargs;        /* extra variables, or NULL */
  bool add_generation_prompt;
};
/* The first of kwargs that the template never mentions; NULL: all are used. A misspelt argument is not dropped in silence. */
const char *chat_template_unused_argument(const struct chat_template *template_, const json_t *kwargs);
/* kwargs from a JSON object's text, owned by the caller; NULL text: none. EAGLET_E_USAGE when one of them is never mentioned. */
enum eaglet_status chat_template_arguments(json_t **kwargs, const struct chat_template *template_, const char *text,
                                           struct eaglet_error *err) MUST_USE;
/* Plain text. Caller clears *text. Template errors (raise_exception, budgets) are EAGLET_E_INPUT with line number. */
enum eaglet_status chat_template_render(const struct chat_template *template_, const struct chat_params *params,
                                        struct eaglet_text *text, struct eaglet_error *err) MUST_USE;

struct chat_tokens {
  struct eaglet_text text;
  int32_t *ids;   /* [n] */
  uint8_t *mask;  /* [n] 1 on the tokens of trained replies: first token P of the reply .. its end-of-turn token E */
  size_t n;
  int n_special_in_content; /* messages whose content contained special-token text (kept as text) */
};
/* Render, tokenize (special-token text inside message content stays ordinary text unless special_in_content) and mask.
 * last_turn_only masks only the last assistant message. Empty conversations and ones without assistant turn give an empty
 * mask, not an error. */
struct chat_tokenize_params {
  struct chat_params chat;
  bool special_in_content, last_turn_only;
};
enum eaglet_status chat_template_tokenize(const struct chat_template *template_, const struct chat_tokenize_params *params,
                                          struct chat_tokens *tokens, struct eaglet_error *err) MUST_USE;
void chat_tokens_clear(struct chat_tokens *tokens);

#endif
