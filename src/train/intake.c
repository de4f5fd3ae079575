/* intake.c - see intake.h. The rules are here and nowhere else. */
#include "train/intake.h"

#include <stdio.h>
#include <string.h>

void intake_init(struct intake *intake) {
  *intake = (struct intake){.dropped = json_object(), .notes = json_object(), .layouts = json_object()};
}

void intake_release(struct intake *intake) {
  json_decref(intake->dropped);
  json_decref(intake->notes);
  json_decref(intake->layouts);
  json_decref(intake->reading);
  *intake = (struct intake){0};
}

void count_up(json_t *counts, const char *name, uint64_t n) {
  json_object_set_new(counts, name, json_integer(json_integer_value(json_object_get(counts, name)) + (json_int_t)n));
}

void intake_drop(struct intake *intake, const char *reason) {
  count_up(intake->dropped, reason, 1);
}

const char *message_role(const json_t *messages, size_t i) {
  const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
  return role ? role : "";
}

static size_t count_role(const json_t *messages, const char *role) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(messages); i++) n += strcmp(message_role(messages, i), role) == 0;
  return n;
}

/* Data cut from the middle of a dialogue starts with a reply to nothing. System messages stay. */
static bool remove_leading_replies(json_t *messages) {
  size_t i = 0, before = json_array_size(messages);
  while (strcmp(message_role(messages, i), "system") == 0) i++;
  while (strcmp(message_role(messages, i), "assistant") == 0) json_array_remove(messages, i);
  return json_array_size(messages) < before;
}

static bool has_neighbours(const json_t *messages, const char *role) {
  for (size_t i = 1; i < json_array_size(messages); i++) {
    if (strcmp(message_role(messages, i), role) == 0 && strcmp(message_role(messages, i - 1), role) == 0) return true;
  }
  return false;
}

static bool has_tool_calls(const json_t *messages) {
  size_t i;
  json_t *message;
  json_array_foreach(messages, i, message) {
    if (strcmp(message_role(messages, i), "tool") == 0 || json_array_size(json_object_get(message, "tool_calls")) > 0)
      return true;
  }
  return false;
}

static const char *reason_to_drop(const json_t *messages, bool regenerate) {
  size_t n = json_array_size(messages);
  if (n == 0) return "empty conversation";
  if (count_role(messages, "system") == n) return "only system messages";
  if (count_role(messages, "user") == 0) return "no user turn";
  if (regenerate) return has_tool_calls(messages) ? "tool calls, which cannot be regenerated" : NULL;
  return NULL;
}

void intake_note_reading(struct intake *intake, const struct dataset_reader *reader) {
  json_decref(intake->reading);
  intake->reading = dataset_describe(reader);
}

bool intake_admit(struct intake *intake, struct conversation *conversation, bool regenerate) {
  json_t *messages = conversation->messages;
  intake->n_read++;
  if (conversation->layout) count_up(intake->layouts, conversation->layout, 1);
  if (*conversation->unknown_role) {
    char words[80];
    snprintf(words, sizeof words, "unknown role '%s'", conversation->unknown_role);
    intake_drop(intake, words);
    return false;
  }
  if (conversation->ids) {
    if (regenerate) intake_drop(intake, "token ids, which cannot be regenerated");
    return !regenerate;
  }
  const char *reason = reason_to_drop(messages, regenerate);
  if (!reason) {
    if (remove_leading_replies(messages))
      count_up(intake->notes, "assistant turns before the first user turn removed", 1);
    if (!regenerate && count_role(messages, "assistant") == 0) reason = "no assistant turn";
  }
  if (reason) {
    intake_drop(intake, reason);
    return false;
  }
  if (has_neighbours(messages, "user")) count_up(intake->notes, "several user turns in a row, kept", 1);
  if (has_neighbours(messages, "assistant")) {
    count_up(intake->notes,
             regenerate ? "several assistant turns in a row, one reply generated"
                        : "several assistant turns in a row, kept",
             1);
  }
  return true;
}

void intake_refused(struct intake *intake, const struct conversation *conversation, const struct eaglet_error *err) {
  intake_drop(intake, "refused by the chat template");
  if (*intake->first_refused) return;
  snprintf(intake->first_refused, sizeof intake->first_refused, "%s:%llu: %.900s",
           conversation->path ? conversation->path : "", (unsigned long long)conversation->line, err->message);
}

void intake_describe(const struct intake *intake, char *text, size_t size) {
  const char *reason;
  json_t *count;
  size_t at = 0;
  *text = '\0';
  json_object_foreach(intake->dropped, reason, count) {
    int n = snprintf(text + at, size - at, "%s%s (%lld)", at ? ", " : "", reason, (long long)json_integer_value(count));
    if (n < 0 || (size_t)n >= size - at) return;
    at += (size_t)n;
  }
}
