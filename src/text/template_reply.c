/* template_reply.c - where a reply stands in a rendered conversation: from the first byte that the model itself would write to its
 * end-of-turn token; see template.h.
 *
 * Nothing is searched by content. The prompt of a reply is the conversation before it with the generation prompt; where that text begins
 * the rendering, the reply begins behind it (so a think block that the template writes there is the model's). Where it does not, or
 * the template knows no generation prompt, what a reply of plain text would have before its text is taken for the header: the reply begins
 * where its rendering parts from that one's. Templates that mark replies with {% generation %} say it themselves.
 *
 * The end-of-turn token is the template's: a special token behind the reply's last byte. Which one, when there are several (the
 * marks that close a tool call, a document's own end), is told by the checkpoint's stop ids, or by writing one more user turn
 * behind the reply: what still follows the reply then, belongs to it.
 */
#define _GNU_SOURCE /* memmem */
#include "text/template_internal.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

/* ---- thinking and answer ---- */

static const char *const thinking_ends[] = {"</think>", "</thinking>", "</thought>", "</reasoning>", "</seed:think>", "[/THINK]", "<|END_THINKING|>",
                                            "<|end_thinking|>", "<|/think|>"};

static size_t skip_spaces(const char *text, size_t at, size_t end) {
  while (at < end && strchr(" \t\r\n", text[at])) at++;
  return at;
}

size_t chat_answer_begin(const char *text, size_t length) {
  size_t first = length, answer = 0;
  for (size_t i = 0; i < sizeof thinking_ends / sizeof *thinking_ends; i++) {
    size_t n = strlen(thinking_ends[i]);
    const char *found = memmem(text, first, thinking_ends[i], n);
    if (!found) continue;
    first = (size_t)(found - text);
    answer = first + n;
  }
  return answer ? skip_spaces(text, answer, length) : 0;
}

/* ---- a reply's own bytes ---- */

struct own_bytes {
  size_t begin, end;      /* of content, reasoning and calls together */
  size_t reasoning_end;   /* 0 without reasoning */
  size_t spoken;          /* first byte of content or calls behind the reasoning */
  bool found;
};

static bool counts(const struct message_span *span, int message) {
  return span->message == message && span->part != PART_OTHER && span->end > span->begin;
}

static struct own_bytes find_own(const struct rendering *r, int message) {
  struct own_bytes own = {.begin = SIZE_MAX, .spoken = SIZE_MAX};
  for (size_t i = 0; i < r->n_spans; i++) {
    const struct message_span *span = &r->spans[i];
    if (!counts(span, message)) continue;
    own.found |= span->part != PART_REASONING;
    if (span->begin < own.begin) own.begin = span->begin;
    if (span->end > own.end) own.end = span->end;
    if (span->part == PART_REASONING) own.reasoning_end = span->end;
  }
  for (size_t i = 0; i < r->n_spans; i++) {
    const struct message_span *span = &r->spans[i];
    if (counts(span, message) && span->part != PART_REASONING && span->begin >= own.reasoning_end && span->begin < own.spoken)
      own.spoken = span->begin;
  }
  return own;
}

/* The place's thinking ends behind its closing mark, or else where the reasoning does. */
static void split_thinking(struct reply_place *place, const struct rendering *r, const struct own_bytes *own) {
  size_t n = place->end - place->begin, answer = chat_answer_begin(r->output.text.data + place->begin, n);
  place->answer = place->begin + answer;
  if (own->reasoning_end <= place->begin || place->answer >= own->reasoning_end) return;
  place->answer = own->spoken < place->end ? own->spoken : place->end;
}

/* ---- begin ---- */

void template_learn_prompt(struct chat_job *job, size_t message) {
  struct rendering with = {0}, without = {0};
  struct render_request request = {.n = message};
  if (job->prompt_known) return;
  if (template_rendering_make(&without, job, &request, NULL) == EAGLET_OK) {
    request.add_generation_prompt = true;
    job->prompt_known = template_rendering_make(&with, job, &request, NULL) == EAGLET_OK;
  }
  const struct buffer *a = &without.output.text, *b = &with.output.text;
  if (job->prompt_known && b->length > a->length && memcmp(a->data, b->data, a->length) == 0)
    buffer_append(&job->prompt, b->data + a->length, b->length - a->length);
  template_rendering_release(&with);
  template_rendering_release(&without);
}

/* Behind the other messages; no byte before it is the reply's. */
static size_t behind_others(const struct rendering *r, int message, size_t begin) {
  size_t from = 0;
  for (size_t i = 0; i < r->n_spans && r->spans[i].end <= begin; i++)
    if (r->spans[i].message != message) from = r->spans[i].end;
  return from;
}

static bool ends_with(const char *text, size_t length, const struct buffer *end) {
  return end->length > 0 && length >= end->length && memcmp(text + length - end->length, end->data, end->length) == 0;
}

/* The last place in [from, begin] where the prompt's text ends; 0 when there is none. */
static size_t behind_prompt(const struct rendering *r, const struct buffer *prompt, size_t from, size_t begin) {
  for (size_t at = begin; prompt->length > 0 && at >= from + prompt->length; at--)
    if (ends_with(r->output.text.data, at, prompt)) return at;
  return 0;
}

static size_t common_prefix(const struct buffer *a, const struct buffer *b) {
  size_t at = 0;
  while (at < a->length && at < b->length && a->data[at] == b->data[at]) at++;
  return at;
}

/* A reply of plain text whose content has the same form as the message's; *text: the string in it. */
static json_t *plain_reply(const struct chat_job *job, int message, const json_t **text) {
  const json_t *content = json_object_get(json_array_get(job->messages, (size_t)message), "content");
  json_t *string = json_string("?"), *reply = json_pack("{ss}", "role", "assistant");
  *text = string;
  json_object_set_new(reply, "content", json_is_array(content) ? json_pack("[{ss so}]", "type", "text", "text", string) : string);
  return reply;
}

/* Where that plain reply in this one's place parts from it, at its text at the latest; 0 when its text does not come out. */
static size_t behind_header(const struct chat_job *job, const struct rendering *r, int message) {
  struct rendering plain;
  const json_t *string;
  json_t *more = plain_reply(job, message, &string);
  const struct render_request request = {.n = (size_t)message, .more = more};
  size_t at = 0, text = 0;
  if (template_rendering_make(&plain, job, &request, NULL) == EAGLET_OK) {
    for (size_t i = 0; i < plain.output.n_spans; i++)
      if (plain.output.spans[i].origin == string) text = plain.output.spans[i].begin;
    at = common_prefix(&plain.output.text, &r->output.text);
  }
  template_rendering_release(&plain);
  json_decref(more);
  return at < text ? at : text;
}

/* own_begin: the first byte of the reply that came out. */
static size_t find_begin(const struct chat_job *job, const struct rendering *r, int message, size_t own_begin) {
  if (ends_with(r->output.text.data, own_begin, &job->prompt)) return own_begin; /* no need to render the prompt */
  struct rendering prompt;
  const struct render_request request = {.n = (size_t)message, .add_generation_prompt = true};
  const struct buffer *before = &prompt.output.text;
  bool rendered = template_rendering_make(&prompt, job, &request, NULL) == EAGLET_OK;
  bool follows = rendered && before->length <= own_begin && memcmp(r->output.text.data, before->data, before->length) == 0;
  size_t from = behind_others(r, message, own_begin), begin = follows ? before->length : 0;
  template_rendering_release(&prompt);
  if (follows && job->prompt.length > 0) return begin;
  size_t found = behind_prompt(r, &job->prompt, from, own_begin);
  if (found) return found;
  size_t header = behind_header(job, r, message);
  if (header < from || header == 0) return own_begin;
  if (header > own_begin) header = own_begin;
  return header > begin ? header : begin;
}

/* ---- end ---- */

/* The special tokens of text [begin, end), at their places in the text. */
static enum eaglet_status find_specials(struct special_list *list, const struct chat_job *job, const struct rendering *r, size_t begin,
                                        size_t end) {
  *list = (struct special_list){0};
  if (begin == end) return EAGLET_OK;
  TRY(tokenizer_find_special(job->template_->tokenizer, r->output.text.data + begin, end - begin, list, job->err));
  for (size_t i = 0; i < list->n; i++) {
    list->items[i].begin += begin;
    list->items[i].end += begin;
  }
  return EAGLET_OK;
}

/* How far the text behind `from` stays the same when one more user turn follows the reply; all of it where that cannot be rendered or
 * changes what is before. */
static size_t common_end(const struct chat_job *job, const struct rendering *r, int message, size_t from) {
  struct rendering longer;
  json_t *more = json_pack("{ss ss}", "role", "user", "content", "?");
  const struct render_request request = {.n = (size_t)message + 1, .more = more};
  const struct buffer *text = &r->output.text;
  size_t at = text->length;
  if (template_rendering_make(&longer, job, &request, NULL) == EAGLET_OK) {
    const struct buffer *other = &longer.output.text;
    if (other->length >= from && memcmp(other->data, text->data, from) == 0) {
      at = common_prefix(text, other);
    }
  }
  template_rendering_release(&longer);
  json_decref(more);
  return at;
}

static const struct special_token *first_stop(const struct special_list *list, const struct chat_template *t, size_t limit) {
  for (size_t i = 0; i < list->n && list->items[i].end <= limit; i++) {
    if (template_is_stop(t, list->items[i].id)) return &list->items[i];
  }
  return NULL;
}

static bool ended_before(const struct chat_job *job, int32_t id) {
  for (size_t i = 0; i < job->ends.n; i++) {
    if (job->ends.ids[i] == id) return true;
  }
  return false;
}

/* The one of the specials behind the reply (list, not empty) that ends it; the rendering ends with the reply. */
static const struct special_token *choose_end(const struct special_list *list, const struct chat_job *job, const struct rendering *r,
                                        int message, size_t from) {
  const struct special_token *first = &list->items[0], *last = NULL;
  if (template_is_stop(job->template_, first->id) || ended_before(job, first->id)) return first;
  size_t common = common_end(job, r, message, from), length = r->output.text.length;
  const struct special_token *stop = first_stop(list, job->template_, common);
  if (stop) return stop;
  for (size_t i = 0; i < list->n && list->items[i].end <= common; i++) last = &list->items[i];
  return last && skip_spaces(r->output.text.data, last->end, length) == length ? last : first;
}

/* ---- generation blocks ---- */

/* The block of the template that holds the reply; NULL when the template marks none. */
static const struct text_generation *find_block(const struct rendering *r, const struct own_bytes *own) {
  for (size_t i = 0; !r->output.generations_lost && i < r->output.n_generations; i++) {
    const struct text_generation *block = &r->output.generations[i];
    if (own->begin >= block->begin && own->end <= block->end) return block;
  }
  return NULL;
}

/* An end token inside a block ends it; else one that directly follows. */
static const struct special_token *block_end(const struct special_list *list, const struct text_generation *block) {
  const struct special_token *end = NULL;
  for (size_t i = 0; i < list->n && list->items[i].begin <= block->end; i++) {
    bool closes = list->items[i].end == block->end || list->items[i].begin == block->end;
    if (closes && !end) end = &list->items[i];
  }
  return end;
}

/* ---- places ---- */

static void close_place(struct reply_place *place, const struct special_token *end, size_t without) {
  place->has_end = end != NULL;
  place->end = end ? end->end : without;
  place->end_id = end ? end->id : -1;
}

/* Where a reply ends that no special token closes: before white space, and what does not stay when a turn follows. */
static size_t end_without_token(const struct chat_job *job, const struct rendering *r, int message, size_t own_end) {
  size_t end = common_end(job, r, message, own_end);
  while (end > own_end && strchr(" \t\r\n", r->output.text.data[end - 1])) end--;
  return end;
}

/* Where the next message begins behind the reply; the text of a reply mixed with another message's cannot be masked. */
static enum eaglet_status find_limit(size_t *limit, const struct chat_job *job, const struct rendering *r, int message,
                                     const struct own_bytes *own) {
  *limit = r->output.text.length;
  for (size_t i = 0; i < r->n_spans; i++) {
    const struct message_span *span = &r->spans[i];
    if (span->message == message || span->end <= own->begin || span->end == span->begin) continue;
    if (span->begin < own->end)
      FAIL(job->err, EAGLET_E_INPUT, "message %d: its text is mixed with message %d's in the rendered text", message, span->message);
    *limit = span->begin;
    return EAGLET_OK;
  }
  return EAGLET_OK;
}

enum eaglet_status template_reply_place(struct reply_place *place, bool *found, struct chat_job *job,
                                        const struct rendering *r, int message) {
  struct own_bytes own = find_own(r, message);
  struct special_list specials;
  *found = own.found;
  *place = (struct reply_place){.message = message};
  if (!own.found) return EAGLET_OK;
  const struct text_generation *block = find_block(r, &own);
  size_t limit;
  TRY(find_limit(&limit, job, r, message, &own));
  TRY(find_specials(&specials, job, r, own.end, limit));
  if (block) {
    place->begin = block->begin;
    close_place(place, block_end(&specials, block), block->end);
  } else {
    place->begin = find_begin(job, r, message, own.begin);
    if (specials.n > 0) close_place(place, choose_end(&specials, job, r, message, own.end), 0);
    else close_place(place, NULL, end_without_token(job, r, message, own.end));
  }
  free(specials.items);
  if (place->has_end && !ended_before(job, place->end_id)) token_list_append(&job->ends, place->end_id);
  split_thinking(place, r, &own);
  return EAGLET_OK;
}

enum eaglet_status template_reply_place_inside(struct reply_place *place, bool *found, const struct chat_job *job,
                                               const struct rendering *r, int message, int32_t end_id) {
  struct own_bytes own = find_own(r, message);
  struct special_list specials;
  const struct special_token *end = NULL;
  size_t limit;
  *found = false;
  *place = (struct reply_place){.message = message};
  if (!own.found) return EAGLET_OK;
  TRY(find_limit(&limit, job, r, message, &own));
  TRY(find_specials(&specials, job, r, own.end, limit));
  for (size_t i = 0; i < specials.n && !end; i++) {
    bool closes = end_id >= 0 ? specials.items[i].id == end_id : template_is_stop(job->template_, specials.items[i].id);
    if (closes) end = &specials.items[i];
  }
  *found = end != NULL;
  if (end) {
    const struct text_generation *block = find_block(r, &own);
    place->begin = block ? block->begin : find_begin(job, r, message, own.begin);
    close_place(place, end, own.end);
    split_thinking(place, r, &own);
  }
  free(specials.items);
  return EAGLET_OK;
}
