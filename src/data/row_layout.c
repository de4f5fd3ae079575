/* row_layout.c - see row_layout.h. Owns the table of layouts. A field that is missing where a layout needs it is an error: nothing is
 * guessed, and a row that fits two layouts is refused. */
#include "data/row_layout.h"

#include "base/buffer.h"

#include <stdlib.h>
#include <string.h>

static const char *kind_of(const json_t *value) {
  static const char *const names[] = {"an object", "an array", "a string", "a number", "a number", "true", "false", "null"};
  return value ? names[json_typeof(value)] : "nothing";
}

/* One question and one answer, each in a field of its own. */
struct pair_layout {
  const char *name, *question, *more, *answer; /* more: what follows the question on a line of its own, or NULL */
};
static const struct pair_layout pairs[] = {
    {"instruction/input/output", "instruction", "input", "output"}, /* Alpaca */
    {"instruction/input/response", "instruction", "input", "response"},
    {"prompt/completion", "prompt", NULL, "completion"},
    {"prompt/response", "prompt", NULL, "response"},
    {"query/response", "query", NULL, "response"},
    {"question/answer", "question", NULL, "answer"},
};

static const char *const list_names[] = {"conversations", "messages"};

static const struct {
  const char *field, *what;
} no_conversations[] = {
    {"chosen", "preference pairs (chosen, rejected): they do not say which answer to learn"},
    {"rejected", "preference pairs (chosen, rejected): they do not say which answer to learn"},
    {"input_ids", "token ids: give the conversations themselves"},
    {"text", "plain text: a head learns from conversations; expected conversations or messages"},
};

/* "" for null and nothing. */
static enum eaglet_status text_of(const char **text, const json_t *row, const char *field, struct eaglet_error *err) {
  const json_t *value = json_object_get(row, field);
  *text = "";
  if (!value || json_is_null(value)) return EAGLET_OK;
  if (!json_is_string(value)) FAIL(err, EAGLET_E_INPUT, "%s: expected a string, found %s", field, kind_of(value));
  *text = json_string_value(value);
  return EAGLET_OK;
}

static void add_message(json_t *messages, const char *role, const char *text) {
  json_array_append_new(messages, json_pack("{ss ss}", "role", role, "content", text));
}

/* Earlier turns: [[question, answer], ...]. */
static enum eaglet_status add_history(json_t *messages, const json_t *history, struct eaglet_error *err) {
  size_t i;
  const json_t *turn;
  if (!history || json_is_null(history)) return EAGLET_OK;
  if (!json_is_array(history)) FAIL(err, EAGLET_E_INPUT, "history: expected an array, found %s", kind_of(history));
  json_array_foreach(history, i, turn) {
    const json_t *question = json_array_get(turn, 0), *answer = json_array_get(turn, 1);
    if (json_array_size(turn) != 2 || !json_is_string(question) || !json_is_string(answer))
      FAIL(err, EAGLET_E_INPUT, "history[%zu]: expected a question and an answer, found %s", i, kind_of(turn));
    add_message(messages, "user", json_string_value(question));
    add_message(messages, "assistant", json_string_value(answer));
  }
  return EAGLET_OK;
}

/* Question and input joined by a newline only when both are there (bug case C15). */
static enum eaglet_status read_pair(json_t *messages, const struct pair_layout *layout, const json_t *row,
                                    struct eaglet_error *err) {
  const char *question, *more = "", *answer;
  TRY(add_history(messages, json_object_get(row, "history"), err));
  TRY(text_of(&question, row, layout->question, err));
  if (layout->more) TRY(text_of(&more, row, layout->more, err));
  TRY(text_of(&answer, row, layout->answer, err));
  struct buffer text;
  buffer_init(&text);
  buffer_format(&text, "%s%s%s", question, *question && *more ? "\n" : "", more);
  add_message(messages, "user", text.data);
  add_message(messages, "assistant", answer);
  buffer_clear(&text);
  return EAGLET_OK;
}

/* The names of a row's fields, for the words of a refusal. */
static void list_fields(struct buffer *out, const json_t *row) {
  const char *key;
  json_t *value;
  size_t n = 0;
  json_object_foreach((json_t *)row, key, value) {
    if (n++ < 8) buffer_format(out, "%s%.40s", n > 1 ? ", " : "", key);
  }
  if (n > 8) buffer_format(out, " and %zu more", n - 8);
  if (n == 0) buffer_append_string(out, "nothing");
}

static enum eaglet_status no_layout(const json_t *row, struct eaglet_error *err) {
  for (size_t i = 0; i < sizeof no_conversations / sizeof *no_conversations; i++) {
    if (json_object_get(row, no_conversations[i].field)) FAIL(err, EAGLET_E_INPUT, "is %s", no_conversations[i].what);
  }
  struct buffer fields;
  buffer_init(&fields);
  list_fields(&fields, row);
  error_set(err, EAGLET_E_INPUT,
            "expected conversations or messages (or instruction/output, prompt/completion, prompt/response, query/response, "
            "question/answer), found %s",
            fields.data);
  buffer_clear(&fields);
  return EAGLET_E_INPUT;
}

/* The pair layout of which question and answer are there; two of them would be a guess. */
static enum eaglet_status find_pair(const struct pair_layout **found, const json_t *row, struct eaglet_error *err) {
  *found = NULL;
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    bool asked = json_object_get(row, pairs[i].question) || (pairs[i].more && json_object_get(row, pairs[i].more));
    if (!asked || !json_object_get(row, pairs[i].answer)) continue;
    if (*found) FAIL(err, EAGLET_E_INPUT, "ambiguous: could be read as %s and as %s", (*found)->name, pairs[i].name);
    *found = &pairs[i];
  }
  return EAGLET_OK;
}

enum eaglet_status row_messages(json_t **messages, const char **layout, const json_t *row, struct eaglet_error *err) {
  const json_t *lists[2] = {json_object_get(row, list_names[0]), json_object_get(row, list_names[1])};
  const struct pair_layout *pair;
  *messages = NULL;
  if (json_is_array(row)) {
    *layout = "messages";
    *messages = json_incref((json_t *)row);
    return EAGLET_OK;
  }
  if (!json_is_object(row)) FAIL(err, EAGLET_E_INPUT, "expected an object with conversations or messages, found %s", kind_of(row));
  if (lists[0] && lists[1]) FAIL(err, EAGLET_E_INPUT, "expected either %s or %s, found both", list_names[0], list_names[1]);
  for (int i = 0; i < 2; i++) {
    if (!lists[i]) continue;
    if (json_object_get(row, "chosen")) FAIL(err, EAGLET_E_INPUT, "is %s", no_conversations[0].what);
    if (!json_is_array(lists[i]))
      FAIL(err, EAGLET_E_INPUT, "expected conversations or messages, an array, found %s", kind_of(lists[i]));
    *layout = list_names[i];
    *messages = json_incref((json_t *)lists[i]);
    return EAGLET_OK;
  }
  TRY(find_pair(&pair, row, err));
  if (!pair || json_object_get(row, "chosen")) return no_layout(row, err);
  *layout = pair->name;
  *messages = json_array();
  enum eaglet_status status = read_pair(*messages, pair, row, err);
  if (status == EAGLET_OK) return EAGLET_OK;
  json_decref(*messages);
  *messages = NULL;
  return status;
}
