/* template_internal.h - what template.c and template_mask.c share: one rendered, tokenized conversation whose every byte is
 * known to come from a message or from the template. Private to src/text.
 */
#ifndef EAGLET_TEXT_TEMPLATE_INTERNAL_H
#define EAGLET_TEXT_TEMPLATE_INTERNAL_H

#include "text/jinja.h"
#include "text/template.h"

struct chat_template {
  const char *file; /* name, where it was read */
  uint64_t hash;    /* of the sources */
  struct jinja_program *program;
  struct jinja_program *program_tools; /* used when tools are given; NULL: the same */
  const struct tokenizer *tokenizer;   /* borrowed */
};

enum message_part { PART_OTHER, PART_CONTENT, PART_REASONING };

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
  json_t *messages; /* an own deep copy */
  struct message_index index;
  struct jinja_output output;
  struct message_span *spans; /* sorted, disjoint */
  size_t n_spans;
  struct token_list ids;
  size_t *offsets; /* [ids.n] byte in the text where each token begins */
};
enum eaglet_status template_render(const struct chat_template *t, const struct chat_params *params, json_t *messages,
                                   struct jinja_output *output, struct eaglet_error *err) MUST_USE;
/* Release in every case. */
enum eaglet_status template_rendering_make(struct rendering *rendering, const struct chat_template *t,
                                           const struct chat_tokenize_params *params, const json_t *messages,
                                           struct eaglet_error *err) MUST_USE;
void template_rendering_release(struct rendering *rendering);

/* Sets mask[i] = 1 on trained tokens; mask has room for ids.n and is zero. */
enum eaglet_status template_mask(const struct chat_template *t, const struct chat_tokenize_params *params,
                                 const struct rendering *rendering, uint8_t *mask, struct eaglet_error *err) MUST_USE;

#endif
