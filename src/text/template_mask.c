/* template_mask.c - conversations to rows of tokens with their masks; see template.h. Owns the decision which replies share a row.
 *
 * Rows are made from the last reply back: a reply whose own rendering (the conversation up to it) is, up to its end, the beginning of
 * the row at hand, and whose first byte begins a token there, stands there as the model wrote it and is trained there; another begins a
 * row of its own. In that row its prompt is tokenized alone, as a server does, when a token would run from the prompt into the reply.
 */
#include "text/template_internal.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

struct row_job {
  struct chat_job *job;
  struct rendering rendering;
  struct rendered_tokens tokens;
  struct reply_place *places; /* of the replies that it trains, from the last to the first */
  size_t n_places, places_capacity;
};

/* ---- tokens and bytes ---- */

/* Index of the first token that begins at or after byte `at`. */
static size_t token_from(const struct rendered_tokens *t, size_t at) {
  size_t low = 0, high = t->ids.n;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (t->offsets[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

static size_t offset_of(const struct row_job *row, size_t token) {
  return token < row->tokens.ids.n ? row->tokens.offsets[token] : row->rendering.output.text.length;
}

static bool is_spaces(const char *text, size_t begin, size_t end) {
  while (begin < end && text[begin] == ' ') begin++;
  return begin == end;
}

/* The invariant of masks: tokens [first, past) decode to the text's bytes from `at`. */
static enum eaglet_status check_bytes(const struct row_job *row, int message, size_t first, size_t past, size_t end) {
  const struct tokenizer *tokenizer = row->job->template_->tokenizer;
  for (size_t i = first, at = offset_of(row, first); i < past; i++) {
    size_t n;
    const char *bytes = tokenizer_bytes(tokenizer, row->tokens.ids.ids[i], &n);
    if (!bytes ||
        (tokenizer_keeps_text(tokenizer) && (at + n > end || memcmp(row->rendering.output.text.data + at, bytes, n) != 0)))
      FAIL(row->job->err, EAGLET_E_INTERNAL, "message %d: token %zu does not decode to the reply's text", message, i);
    at += n;
  }
  return EAGLET_OK;
}

/* The reply's first token; a space before it that is one token with its first word is the model's too. False when a token straddles its
 * first byte. */
static bool find_first(const struct row_job *row, const struct reply_place *place, size_t *first) {
  *first = token_from(&row->tokens, place->begin);
  if (offset_of(row, *first) == place->begin) return true;
  if (*first == 0 || !is_spaces(row->rendering.output.text.data, row->tokens.offsets[*first - 1], place->begin)) return false;
  --*first;
  return true;
}

/* A token that straddles the edge between thinking and answer, or the end of a reply that no token ends, belongs to what it begins with. */
static enum eaglet_status find_tokens(struct chat_reply *reply, const struct row_job *row, const struct reply_place *place) {
  size_t first, past = token_from(&row->tokens, place->end), answer = token_from(&row->tokens, place->answer);
  bool at_begin = find_first(row, place, &first);
  if (!place->has_end && past > first && offset_of(row, past) != place->end) past--;
  bool at_end = !place->has_end || offset_of(row, past) == place->end;
  if (!at_begin || !at_end)
    FAIL(row->job->err, EAGLET_E_INPUT, "message %d: a token straddles the %s of the reply (byte %zu of the rendered text)", place->message,
         at_begin ? "end" : "start", at_begin ? place->end : place->begin);
  TRY(check_bytes(row, place->message, first, past, place->end));
  if (answer < first || place->answer <= place->begin) answer = first;
  if (answer > past) answer = past;
  *reply = (struct chat_reply){.message = place->message, .first = first, .past = past, .answer = answer, .has_end = place->has_end};
  return EAGLET_OK;
}

/* ---- rows ---- */

static enum eaglet_status row_begin(struct row_job *row, struct rendering *rendering) {
  row->rendering = *rendering;
  *rendering = (struct rendering){0};
  return template_encode(&row->tokens, row->job, &row->rendering, NULL, 0, row->job->err);
}

static void row_release(struct row_job *row) {
  template_rendering_release(&row->rendering);
  rendered_tokens_release(&row->tokens);
  free(row->places);
  *row = (struct row_job){.job = row->job};
}

static void row_add(struct row_job *row, const struct reply_place *place) {
  MEMORY_GROW(row->places, row->places_capacity, row->n_places + 1);
  row->places[row->n_places++] = *place;
}

/* Tokenizes once more where a token runs from a prompt into its reply. */
static enum eaglet_status split_prompts(struct row_job *row) {
  size_t *splits = memory_alloc((row->n_places + 1) * sizeof *splits), n = 0, first;
  for (size_t i = row->n_places; i-- > 0;) {
    if (!find_first(row, &row->places[i], &first)) splits[n++] = row->places[i].begin;
  }
  enum eaglet_status status = EAGLET_OK;
  if (n > 0) {
    rendered_tokens_release(&row->tokens);
    status = template_encode(&row->tokens, row->job, &row->rendering, splits, n, row->job->err);
  }
  free(splits);
  return status;
}

/* Marks what is trained of one reply; a part of it that is empty makes no reply. */
static void mark(struct chat_tokens *tokens, const struct chat_reply *reply, enum chat_part part) {
  size_t from = part == CHAT_PART_ANSWER ? reply->answer : reply->first, to = part == CHAT_PART_THINKING ? reply->answer : reply->past;
  if (from >= to) return;
  memset(tokens->mask + from, 1, to - from);
  tokens->replies[tokens->n_replies++] = *reply;
}

static enum eaglet_status fill_tokens(struct chat_tokens *tokens, struct row_job *row) {
  TRY(split_prompts(row));
  size_t n = row->tokens.ids.n;
  *tokens = (struct chat_tokens){.n = n, .mask = memory_alloc(n + 1), .replies = memory_alloc((row->n_places + 1) * sizeof *tokens->replies)};
  for (size_t i = row->n_places; i-- > 0;) {
    struct chat_reply reply;
    TRY(find_tokens(&reply, row, &row->places[i]));
    mark(tokens, &reply, row->job->params->part);
  }
  tokens->ids = n ? row->tokens.ids.ids : memory_alloc(sizeof *tokens->ids);
  row->tokens.ids = (struct token_list){0};
  tokens->text = buffer_detach(&row->rendering.output.text);
  return EAGLET_OK;
}

/* Gives the row to the list; one that trains nothing only when the list would stay empty. */
static enum eaglet_status row_finish(struct row_job *row, struct chat_rows *rows, bool keep) {
  struct chat_tokens tokens = {0};
  enum eaglet_status status = row->n_places > 0 || keep ? fill_tokens(&tokens, row) : EAGLET_OK;
  if (status == EAGLET_OK && (tokens.n_replies > 0 || keep)) {
    rows->rows = memory_resize(rows->rows, (rows->n + 1) * sizeof *rows->rows);
    rows->rows[rows->n++] = tokens;
  } else {
    chat_tokens_clear(&tokens);
  }
  row_release(row);
  return status;
}

static bool is_assistant(const json_t *messages, size_t message) {
  const json_t *role = json_object_get(json_array_get(messages, message), "role");
  return json_is_string(role) && strcmp(json_string_value(role), "assistant") == 0;
}

static bool begins_with(const struct rendering *row, const struct rendering *own, size_t n) {
  return row->output.text.length >= n && memcmp(row->output.text.data, own->output.text.data, n) == 0;
}

/* A reply that its template does not close may be closed by what begins the next turn, when the model stops there (<|user|>). */
static void extend_to_stop(const struct row_job *row, struct reply_place *place) {
  size_t next = token_from(&row->tokens, place->end);
  if (place->has_end || next == row->tokens.ids.n || offset_of(row, next) != place->end) return;
  if (!template_is_stop(row->job->template_, row->tokens.ids.ids[next])) return;
  place->end = offset_of(row, next + 1);
  place->has_end = true;
}

/* As the model wrote it: same bytes up to its end, and its prompt's last token does not run into it. */
static bool fits(const struct row_job *row, const struct rendering *own, const struct reply_place *place) {
  size_t first;
  return begins_with(&row->rendering, own, place->end) && find_first(row, place, &first);
}

/* What the row at hand says of a reply that its own rendering could not say (the template refuses to end there), or that stands there in
 * another form than the model wrote. */
static enum eaglet_status add_inside(struct row_job *row, size_t message, int32_t end_id) {
  struct reply_place place;
  bool found;
  TRY(template_reply_place_inside(&place, &found, row->job, &row->rendering, (int)message, end_id));
  if (found) row_add(row, &place);
  return EAGLET_OK;
}

/* A reply found in its own rendering. */
static enum eaglet_status add_placed(struct row_job *row, struct rendering *own, struct reply_place *place,
                                     struct chat_rows *rows) {
  bool one_row = row->job->params->one_row;
  if (one_row ? begins_with(&row->rendering, own, place->end) : fits(row, own, place)) {
    extend_to_stop(row, place);
  } else if (one_row) {
    return place->has_end ? add_inside(row, (size_t)place->message, place->end_id) : EAGLET_OK;
  } else {
    TRY(row_finish(row, rows, false));
    TRY(row_begin(row, own));
  }
  row_add(row, place);
  return EAGLET_OK;
}

static enum eaglet_status add_reply(struct row_job *row, size_t message, struct chat_rows *rows) {
  struct chat_job *job = row->job;
  struct rendering own;
  struct reply_place place;
  bool found = false;
  const struct render_request request = {.n = message + 1};
  template_learn_prompt(job, message);
  enum eaglet_status status = template_rendering_make(&own, job, &request, NULL);
  if (status != EAGLET_OK) {
    status = add_inside(row, message, -1);
  } else {
    status = template_reply_place(&place, &found, job, &own, (int)message);
    if (status == EAGLET_OK && found) status = add_placed(row, &own, &place, rows);
  }
  template_rendering_release(&own);
  return status;
}

static enum eaglet_status add_replies(struct row_job *row, struct chat_rows *rows) {
  const struct chat_job *job = row->job;
  for (size_t message = json_array_size(job->messages); message-- > 0;) {
    if (!is_assistant(job->messages, message)) continue;
    TRY(add_reply(row, message, rows));
    if (job->params->last_turn_only) break;
  }
  return EAGLET_OK;
}

enum eaglet_status template_rows(struct chat_job *job, struct chat_rows *rows) {
  struct row_job row = {.job = job};
  struct rendering whole;
  const struct render_request request = {.n = json_array_size(job->messages),
                                         .add_generation_prompt = job->params->chat.add_generation_prompt};
  enum eaglet_status status = template_rendering_make(&whole, job, &request, job->err);
  if (status == EAGLET_OK) status = row_begin(&row, &whole);
  if (status == EAGLET_OK) status = add_replies(&row, rows);
  if (status == EAGLET_OK) status = row_finish(&row, rows, rows->n == 0);
  template_rendering_release(&whole);
  row_release(&row);
  return status;
}
