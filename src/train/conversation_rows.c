/* conversation_rows.c - see conversation_rows.h. Exactness of the template's masks is text/template_mask.c's. */
#include "train/conversation_rows.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

static struct row_tokens *list_grow(struct row_list *list) {
  list->rows = memory_resize(list->rows, (list->n + 1) * sizeof *list->rows);
  list->rows[list->n] = (struct row_tokens){0};
  return &list->rows[list->n++];
}

static void row_append(struct row_tokens *row, const int32_t *ids, size_t n, uint8_t mask) {
  if (row->n + n > row->capacity) {
    row->capacity = 2 * (row->n + n);
    row->ids = memory_resize(row->ids, row->capacity * sizeof *row->ids);
    row->mask = memory_resize(row->mask, row->capacity);
  }
  if (n == 0) return;
  memcpy(row->ids + row->n, ids, n * sizeof *ids);
  memset(row->mask + row->n, mask, n);
  row->n += n;
}

void row_list_clear(struct row_list *list) {
  for (size_t i = 0; i < list->n; i++) {
    free(list->rows[i].ids);
    free(list->rows[i].mask);
  }
  free(list->rows);
  *list = (struct row_list){0};
}

bool row_clip(struct row_tokens *row, size_t n_max, bool *reply_cut) {
  *reply_cut = false;
  if (row->n <= n_max) return false;
  for (size_t i = n_max; row->mask[n_max] && i > 0 && row->mask[i - 1]; i--) row->mask[i - 1] = 0;
  *reply_cut = memchr(row->mask + n_max, 1, row->n - n_max) != NULL;
  row->n = n_max;
  return true;
}

/* ---- replies that the data says not to train ---- */

/* The weight that the data gives a message (OpenAI's "weight", "loss_weight"); 1 without one. -1: neither 0 nor 1. */
static int message_weight(const json_t *message) {
  const json_t *weight = json_object_get(message, "loss_weight");
  if (!weight) weight = json_object_get(message, "weight");
  if (!weight || json_is_null(weight)) return 1;
  double value = json_is_number(weight) ? json_number_value(weight) : json_is_boolean(weight) ? json_is_true(weight) : -1;
  return value == 0 ? 0 : value == 1 ? 1 : -1;
}

static bool has_odd_weight(const json_t *messages) {
  size_t i;
  json_t *message;
  json_array_foreach(messages, i, message) {
    if (strcmp(message_role(messages, i), "assistant") == 0 && message_weight(message) < 0) return true;
  }
  return false;
}

static void apply_weights(struct chat_tokens *row, const json_t *messages) {
  for (size_t i = 0; i < row->n_replies; i++) {
    const struct chat_reply *reply = &row->replies[i];
    if (message_weight(json_array_get(messages, (size_t)reply->message)) == 0) memset(row->mask + reply->first, 0, reply->past - reply->first);
  }
}

/* ---- by the template ---- */

static void take_row(struct row_list *list, struct chat_tokens *row) {
  *list_grow(list) = (struct row_tokens){.ids = row->ids, .mask = row->mask, .n = row->n, .capacity = row->n};
  for (size_t i = 0; i < row->n_replies; i++) list->n_endless += !row->replies[i].has_end;
  row->ids = NULL;
  row->mask = NULL;
}

enum eaglet_status rows_from_template(struct row_list *list, const char **reason, const struct renderer *renderer,
                                      const struct conversation *conversation, struct eaglet_error *err) {
  struct chat_rows rows;
  bool any = false, weighted = true;
  *reason = has_odd_weight(conversation->messages) ? "a weight that is neither 0 nor 1" : NULL;
  if (*reason) return EAGLET_OK;
  TRY(renderer_rows(renderer, conversation, &rows, err));
  for (size_t i = 0; i < rows.n; i++) {
    struct chat_tokens *row = &rows.rows[i];
    any |= row->n_replies > 0;
    list->n_special = (size_t)row->n_special_in_content;
    apply_weights(row, conversation->messages);
    if (!memchr(row->mask, 1, row->n)) continue;
    take_row(list, row);
    weighted = false;
  }
  if (!any) *reason = "no supervised tokens: every reply is empty";
  else if (weighted) *reason = "every reply has weight 0";
  chat_rows_clear(&rows);
  return EAGLET_OK;
}

void rows_from_ids(struct row_list *list, const struct conversation *conversation) {
  struct row_tokens *row = list_grow(list);
  row_append(row, conversation->ids, conversation->n_ids, 0);
  if (conversation->n_ids > 0) memcpy(row->mask, conversation->mask, conversation->n_ids);
}

/* ---- from what the target wrote ---- */

/* Ids [*from, *to) of a reply are trained; a reply whose thinking has no end is all answer. */
static void trained_part(const struct renderer *renderer, const struct reply *reply, size_t *from, size_t *to) {
  *from = 0;
  *to = (size_t)reply->n;
  if (renderer->part == CHAT_PART_ALL) return;
  struct eaglet_text text = renderer_text(renderer, reply->ids, reply->n - reply->ended);
  size_t answer = chat_answer_begin(text.data, text.length), at = 0, id = 0, n;
  free(text.data);
  for (; id < (size_t)reply->n && at < answer; id++) at += tokenizer_bytes(renderer->tokenizer, reply->ids[id], &n) ? n : 0;
  if (renderer->part == CHAT_PART_ANSWER) *from = id;
  else *to = id;
}

static bool continues(const struct row_tokens *row, const struct token_list *prompt) {
  return prompt->n >= row->n && memcmp(prompt->ids, row->ids, row->n * sizeof *row->ids) == 0;
}

static void add_reply(struct row_list *list, const struct renderer *renderer, const struct token_list *prompt, const struct reply *reply) {
  struct row_tokens *row = list->n > 0 ? &list->rows[list->n - 1] : NULL;
  size_t from, to;
  if (row && !continues(row, prompt)) {
    list->n_split++;
    row = NULL;
  }
  if (!row) row = list_grow(list);
  row_append(row, prompt->ids + row->n, prompt->n - row->n, 0);
  trained_part(renderer, reply, &from, &to);
  row_append(row, reply->ids, from, 0);
  row_append(row, reply->ids + from, to - from, 1);
  row_append(row, reply->ids + to, (size_t)reply->n - to, 0);
}

enum eaglet_status rows_from_replies(struct row_list *list, const struct renderer *renderer, const struct conversation *conversation,
                                     const struct reply_list *replies, struct eaglet_error *err) {
  json_t *before = json_array(), *message;
  struct token_list prompt = {0};
  size_t i, reply = 0;
  enum eaglet_status status = EAGLET_OK;
  json_array_foreach(conversation->messages, i, message) {
    if (status == EAGLET_OK && reply < replies->n && strcmp(message_role(conversation->messages, i), "assistant") == 0) {
      bool last = reply + 1 == replies->n;
      if (last || !renderer->last_turn_only) status = renderer_prompt(renderer, before, conversation->tools, &prompt, err);
      if (status == EAGLET_OK && (last || !renderer->last_turn_only)) add_reply(list, renderer, &prompt, &replies->replies[reply]);
      reply++;
    }
    json_array_append(before, message);
  }
  token_list_clear(&prompt);
  json_decref(before);
  return status;
}
