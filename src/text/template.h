/* template.h - a checkpoint's chat template: conversation -> text, by the template itself (jinja_*), with the byte span of
 * every assistant reply. No hand-written template, no remote code.
 *
 * Rendering tracks where each string of the messages came out (origins, jinja.h). What is trained of a reply is what the model itself
 * would write: the conversation rendered up to and with the reply, from the end of its prompt (the conversation before it with the
 * generation prompt) to its end-of-turn token. A template that writes a reply differently once others follow (thinking taken out of old
 * turns, another closing token) makes that reply a row of its own, as the model saw it. Invariants: masked tokens decode to exactly those
 * bytes; rendering with tracking gives the same text as without. If a place cannot be found exactly the conversation is refused, never
 * guessed. A reply that is empty or that the template drops is not trained. docs/DATA.md says it in full.
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

enum chat_part { CHAT_PART_ALL, CHAT_PART_THINKING, CHAT_PART_ANSWER }; /* of a reply: what is trained; thinking is what precedes the answer */

struct chat_reply { /* a reply that a row trains */
  int message;
  size_t first, past; /* its tokens, end-of-turn token included */
  size_t answer;      /* the answer's first token; first when there is no thinking */
  bool has_end;       /* false: the template writes no end-of-turn token */
};
struct chat_tokens {
  struct eaglet_text text;
  int32_t *ids;   /* [n] */
  uint8_t *mask;  /* [n] 1: trained */
  size_t n;
  struct chat_reply *replies; /* [n_replies] in order */
  size_t n_replies;
  int n_special_in_content; /* messages whose content contained special-token text (kept as text) */
};
struct chat_tokenize_params {
  struct chat_params chat;
  bool special_in_content; /* special-token text inside messages becomes special tokens; default: it stays ordinary text */
  bool last_turn_only;     /* train only the last reply */
  bool one_row;            /* the whole conversation is one row. A reply that the template writes differently there than when it was given is
                              masked by what is there, when its end-of-turn token is the same, else not at all: for looking at, or
                              for templates known to keep history */
  enum chat_part part;
};
struct chat_rows {
  struct chat_tokens *rows;
  size_t n;
};
/* Every reply as the model saw it, in as few rows as that takes (the last reply's first); n is at least 1. Empty conversations and ones
 * without assistant turn give one row with an empty mask, not an error. */
enum eaglet_status chat_template_rows(const struct chat_template *template_, const struct chat_tokenize_params *params,
                                      struct chat_rows *rows, struct eaglet_error *err) MUST_USE;
/* The same with one_row. */
enum eaglet_status chat_template_tokenize(const struct chat_template *template_, const struct chat_tokenize_params *params,
                                          struct chat_tokens *tokens, struct eaglet_error *err) MUST_USE;
void chat_rows_clear(struct chat_rows *rows);
/* Token ids alone, appended: a prompt, when chat.add_generation_prompt is set. */
enum eaglet_status chat_template_ids(const struct chat_template *template_, const struct chat_tokenize_params *params,
                                     struct token_list *ids, struct eaglet_error *err) MUST_USE;
/* Where the answer begins in the text of a reply: behind the last closing mark of thinking (</think>, [/THINK] ...) and white space; 0 without. */
size_t chat_answer_begin(const char *text, size_t length);
void chat_tokens_clear(struct chat_tokens *tokens);

#endif
