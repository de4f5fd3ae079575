/* template_internal.h - what template.c, template_mask.c and template_reply.c share: one rendered, tokenized conversation whose every byte is
 * known to come from a message or from the template. Private to src/text.
 */
#ifndef EAGLET_TEXT_TEMPLATE_INTERNAL_H
#define EAGLET_TEXT_TEMPLATE_INTERNAL_H

#include "text/jinja.h"
#include "text/template.h"

#define STOPS_MAX 64

struct chat_template {
  const char *file; /* name, where it was read */
  uint64_t hash;    /* of the sources */
  struct jinja_program *program;
  struct jinja_program *program_tools; /* used when tools are given; NULL: the same */
  const struct tokenizer *tokenizer;   /* borrowed */
  int32_t stops[STOPS_MAX], n_stops;   /* ids at which the model stops, as far as the directory says */
};

enum message_part { PART_OTHER, PART_CONTENT, PART_REASONING, PART_CALL };

/* Every JSON value inside the messages, by address. */
struct message_item {
  const json_t *json;
  int message;
  enum message_part part;
};
struct message_index {
  struct message_item *items; /* sorted by address */
  size_t n, capacity;
};
void message_index_init(struct message_index *index, const json_t *messages);
const struct message_item *message_index_find(const struct message_index *index, const json_t *json);
void message_index_release(struct message_index *index);

struct message_span { /* bytes of the text that come from a message */
  size_t begin, end;
  int message;
  enum message_part part;
};

struct rendering {
  struct jinja_output output;
  struct message_span *spans; /* sorted, disjoint */
  size_t n_spans;
};
/* A conversation being tokenized. Everything is rendered from one copy, so that an address tells a message in every rendering. */
struct chat_job {
  const struct chat_template *template_;
  const struct chat_tokenize_params *params;
  json_t *messages; /* an own deep copy */
  struct message_index index;
  struct buffer prompt; /* text of the generation prompt; empty when the template writes none */
  bool prompt_known;
  struct token_list ends; /* ids that were found to end a reply of this conversation */
  struct eaglet_error *err;
};
/* Fills prompt from the conversation before that message, when it can be rendered and is not known yet. */
void template_learn_prompt(struct chat_job *job, size_t message);
/* Renders messages 0 .. n - 1 and, unless it is NULL, one more. Release in every case. */
struct render_request {
  size_t n;
  json_t *more;
  bool add_generation_prompt;
};
enum eaglet_status template_rendering_make(struct rendering *rendering, const struct chat_job *job,
                                           const struct render_request *request, struct eaglet_error *err) MUST_USE;
void template_rendering_release(struct rendering *rendering);

struct rendered_tokens {
  struct token_list ids;
  size_t *offsets; /* [ids.n] byte in the text where each token begins */
};
/* splits: bytes, ascending, that no token may straddle; what is before and behind is tokenized alone. */
enum eaglet_status template_encode(struct rendered_tokens *tokens, const struct chat_job *job, const struct rendering *rendering,
                                   const size_t *splits, size_t n_splits, struct eaglet_error *err) MUST_USE;
void rendered_tokens_release(struct rendered_tokens *tokens);

struct reply_place { /* bytes of a rendering */
  int message;
  size_t begin, answer, end; /* end: behind the end-of-turn token, or behind the reply's last byte without one */
  bool has_end;
  int32_t end_id;
};
/* A reply in the rendering that ends with it, as the model wrote it. *found: false when nothing of it came out. */
enum eaglet_status template_reply_place(struct reply_place *place, bool *found, struct chat_job *job,
                                        const struct rendering *rendering, int message) MUST_USE;
/* The same reply where others follow it; end_id: the token that must close it, -1: not known. *found: false also when another one does. */
enum eaglet_status template_reply_place_inside(struct reply_place *place, bool *found, const struct chat_job *job,
                                               const struct rendering *rendering, int message, int32_t end_id) MUST_USE;
bool template_is_stop(const struct chat_template *t, int32_t id);

enum eaglet_status template_rows(struct chat_job *job, struct chat_rows *rows) MUST_USE; /* of template_mask.c */

#endif
