/* template_mask.c - which tokens are trained: of every assistant reply the tokens P..E, P being the first token that the model
 * itself would write after the generation prompt, E the end-of-turn token that closes the reply.
 *
 * Nothing is searched by content. Where the template marks replies with {% generation %}, those blocks are used. Otherwise the
 * place of a reply is where the bytes of its content (and reasoning) came out, known by origin; its start is moved back to the
 * end of the generation prompt's text when that directly precedes (so that an empty think block written by the template is
 * trained, as the model must write it); E is the first special token after the content, before any byte of another message. A
 * candidate for E is checked by rendering the conversation up to that reply: the same token must close it there, which a
 * turn header of the next message does not. What cannot be placed exactly is refused.
 */
#include "text/template_internal.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

struct mask_job {
  const struct chat_template *template_;
  const struct chat_tokenize_params *params;
  const struct rendering *rendering;
  uint8_t *mask;
  struct buffer prompt;    /* text of the generation prompt; empty when the template has none */
  struct token_list ends;  /* end-of-turn ids already proven */
  struct eaglet_error *err;
};

struct reply {
  int message;
  size_t begin, end; /* bytes; end is where E begins, or where a generation block ends */
  size_t last;       /* token index of E */
};

/* ---- tokens and bytes ---- */

/* Index of the first token that begins at or after byte `at`. */
static size_t token_from(const struct rendering *r, size_t at) {
  size_t low = 0, high = r->ids.n;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (r->offsets[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

static size_t offset_of(const struct rendering *r, size_t token) {
  return token < r->ids.n ? r->offsets[token] : r->output.text.length;
}

static bool is_spaces(const char *text, size_t begin, size_t end) {
  while (begin < end && text[begin] == ' ') begin++;
  return begin == end;
}

static enum eaglet_status set_mask(struct mask_job *job, int message, size_t begin, size_t end) {
  const struct rendering *r = job->rendering;
  size_t first = token_from(r, begin), past = token_from(r, end);
  /* A space before the reply that is one token with its first word: the model writes that token. */
  if (offset_of(r, first) != begin && first > 0 && is_spaces(r->output.text.data, r->offsets[first - 1], begin)) begin = r->offsets[--first];
  if (offset_of(r, first) != begin || offset_of(r, past) != end)
    FAIL(job->err, EAGLET_E_INPUT, "message %d: a token straddles the %s of the reply (byte %zu of the rendered text)", message,
         offset_of(r, first) != begin ? "start" : "end", offset_of(r, first) != begin ? begin : end);
  for (size_t i = first, at = begin; i < past; i++) {
    size_t n;
    const char *bytes = tokenizer_bytes(job->template_->tokenizer, r->ids.ids[i], &n);
    if (!bytes || (tokenizer_keeps_text(job->template_->tokenizer) &&
                   (at + n > end || memcmp(r->output.text.data + at, bytes, n) != 0)))
      FAIL(job->err, EAGLET_E_INTERNAL, "message %d: token %zu does not decode to the reply's text", message, i);
    at += n;
    job->mask[i] = 1;
  }
  return EAGLET_OK;
}

/* ---- places of replies ---- */

static bool is_assistant(const json_t *messages, int message) {
  const json_t *role = json_object_get(json_array_get(messages, (size_t)message), "role");
  return json_is_string(role) && strcmp(json_string_value(role), "assistant") == 0;
}

/* Bytes of content and reasoning of one message; false when none of its content came out. */
static bool find_content(const struct rendering *r, int message, struct reply *reply) {
  *reply = (struct reply){.message = message, .begin = SIZE_MAX};
  size_t reasoning = SIZE_MAX;
  for (size_t i = 0; i < r->n_spans; i++) {
    const struct message_span *span = &r->spans[i];
    if (span->message != message) continue;
    if (span->part == PART_REASONING && reasoning == SIZE_MAX) reasoning = span->begin;
    if (span->part != PART_CONTENT) continue;
    if (reply->begin == SIZE_MAX) reply->begin = span->begin;
    reply->end = span->end;
  }
  if (reply->begin == SIZE_MAX) return false;
  if (reasoning < reply->begin) reply->begin = reasoning;
  return true;
}

/* E: the first special token at or after the content, before any byte of another message. */
static enum eaglet_status find_end(const struct chat_template *t, const struct rendering *r, struct reply *reply,
                                   struct eaglet_error *err) {
  size_t limit = r->output.text.length;
  for (size_t i = 0; i < r->n_spans; i++) {
    const struct message_span *span = &r->spans[i];
    if (span->message == reply->message) continue;
    if (span->end <= reply->begin) continue;
    if (span->begin < reply->end)
      FAIL(err, EAGLET_E_INPUT, "message %d: its text is mixed with message %d's in the rendered text", reply->message, span->message);
    limit = span->begin;
    break;
  }
  for (size_t i = token_from(r, reply->end); i < r->ids.n && r->offsets[i] < limit; i++) {
    if (!tokenizer_is_special(t->tokenizer, r->ids.ids[i])) continue;
    reply->last = i;
    return EAGLET_OK;
  }
  FAIL(err, EAGLET_E_INPUT, "message %d: no end-of-turn token follows the reply; it cannot be masked exactly", reply->message);
}

/* Proves that id closes an assistant reply: renders the conversation up to and with the reply and looks there. */
static enum eaglet_status prove_end(struct mask_job *job, const struct reply *reply) {
  const struct rendering *r = job->rendering;
  int32_t id = r->ids.ids[reply->last];
  for (size_t i = 0; i < job->ends.n; i++)
    if (job->ends.ids[i] == id) return EAGLET_OK;
  bool is_whole = (size_t)reply->message + 1 == json_array_size(r->messages) && !job->params->chat.add_generation_prompt;
  if (!is_whole) {
    json_t *messages = json_array();
    for (int i = 0; i <= reply->message; i++) json_array_append(messages, json_array_get(r->messages, (size_t)i));
    struct chat_tokenize_params params = *job->params;
    params.chat.add_generation_prompt = false;
    struct rendering cut;
    struct reply same;
    enum eaglet_status status = template_rendering_make(&cut, job->template_, &params, messages, job->err);
    if (status == EAGLET_OK && find_content(&cut, reply->message, &same)) status = find_end(job->template_, &cut, &same, job->err);
    else if (status == EAGLET_OK)
      status = error_set(job->err, EAGLET_E_INPUT, "message %d: its content is missing when it is the last", reply->message);
    if (status == EAGLET_OK && cut.ids.ids[same.last] != id) {
      size_t n;
      const char *text = tokenizer_bytes(job->template_->tokenizer, id, &n);
      status = error_set(job->err, EAGLET_E_INPUT, "message %d: %.*s follows the reply but does not end it", reply->message,
                         (int)(n > 60 ? 60 : n), text);
    }
    template_rendering_release(&cut);
    json_decref(messages);
    TRY(status);
  }
  token_list_append(&job->ends, id);
  return EAGLET_OK;
}

/* The text that add_generation_prompt appends, taken from the conversation before its first reply. Templates that refuse such a
 * conversation have no prompt to be found here; replies then start at their content. */
static void find_prompt(struct mask_job *job) {
  json_t *messages = json_array();
  const json_t *all = job->rendering->messages;
  for (size_t i = 0; i < json_array_size(all) && !is_assistant(all, (int)i); i++) json_array_append(messages, json_array_get(all, i));
  struct chat_params params = job->params->chat;
  struct jinja_output with = {0}, without = {0};
  params.add_generation_prompt = true;
  enum eaglet_status status = template_render(job->template_, &params, messages, &with, NULL);
  params.add_generation_prompt = false;
  if (status == EAGLET_OK) status = template_render(job->template_, &params, messages, &without, NULL);
  size_t n = without.text.length;
  if (status == EAGLET_OK && with.text.length > n && memcmp(with.text.data, without.text.data, n) == 0)
    buffer_append(&job->prompt, with.text.data + n, with.text.length - n);
  jinja_output_clear(&with);
  jinja_output_clear(&without);
  json_decref(messages);
}

/* Moves the start back to the end of the generation prompt's text, if that stands between the previous message and the reply. */
static void extend_to_prompt(const struct mask_job *job, struct reply *reply) {
  const struct rendering *r = job->rendering;
  size_t n = job->prompt.length, from = 0;
  if (n == 0) return;
  for (size_t i = 0; i < r->n_spans && r->spans[i].end <= reply->begin; i++)
    if (r->spans[i].message != reply->message) from = r->spans[i].end;
  for (size_t at = reply->begin; at >= from + n; at--)
    if (memcmp(r->output.text.data + at - n, job->prompt.data, n) == 0) {
      reply->begin = at;
      return;
    }
}

static enum eaglet_status mask_by_origin(struct mask_job *job) {
  const struct rendering *r = job->rendering;
  int n = (int)json_array_size(r->messages);
  for (int message = n - 1; message >= 0; message--) { /* the last reply proves the end token for free */
    struct reply reply;
    if (!is_assistant(r->messages, message)) continue;
    if (find_content(r, message, &reply)) {
      if (!job->prompt.data) {
        find_prompt(job);
        buffer_append(&job->prompt, "", 0);
      }
      extend_to_prompt(job, &reply);
      TRY(find_end(job->template_, r, &reply, job->err));
      TRY(prove_end(job, &reply));
      TRY(set_mask(job, message, reply.begin, offset_of(r, reply.last + 1)));
    }
    if (job->params->last_turn_only) break;
  }
  return EAGLET_OK;
}

/* ---- generation blocks ---- */

/* The assistant message whose content a block holds, -1 when it holds none. */
static int block_message(const struct rendering *r, const struct text_generation *block) {
  for (size_t i = 0; i < r->n_spans; i++) {
    const struct message_span *span = &r->spans[i];
    if (span->part == PART_CONTENT && span->begin >= block->begin && span->end <= block->end && is_assistant(r->messages, span->message))
      return span->message;
  }
  return -1;
}

/* A block that does not hold the end-of-turn token is extended by a special token that directly follows. */
static enum eaglet_status mask_by_blocks(struct mask_job *job) {
  const struct rendering *r = job->rendering;
  for (size_t i = r->output.n_generations; i-- > 0;) {
    struct text_generation block = r->output.generations[i];
    int message = block_message(r, &block);
    if (message < 0) continue;
    size_t past = token_from(r, block.end);
    bool has_end = past > 0 && tokenizer_is_special(job->template_->tokenizer, r->ids.ids[past - 1]) && offset_of(r, past) == block.end;
    bool follows = past < r->ids.n && r->offsets[past] == block.end && tokenizer_is_special(job->template_->tokenizer, r->ids.ids[past]);
    if (!has_end && follows) {
      struct reply reply = {.message = message, .begin = block.begin, .end = block.end, .last = past};
      TRY(prove_end(job, &reply));
      block.end = offset_of(r, past + 1);
    }
    TRY(set_mask(job, message, block.begin, block.end));
    if (job->params->last_turn_only) break;
  }
  return EAGLET_OK;
}

enum eaglet_status template_mask(const struct chat_template *t, const struct chat_tokenize_params *params,
                                 const struct rendering *rendering, uint8_t *mask, struct eaglet_error *err) {
  struct mask_job job = {.template_ = t, .params = params, .rendering = rendering, .mask = mask, .err = err};
  bool by_blocks = rendering->output.n_generations > 0 && !rendering->output.generations_lost;
  enum eaglet_status status = by_blocks ? mask_by_blocks(&job) : mask_by_origin(&job);
  buffer_clear(&job.prompt);
  token_list_clear(&job.ends);
  return status;
}
