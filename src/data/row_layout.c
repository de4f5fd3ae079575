/* row_layout.c - see row_layout.h. Owns the table of layouts. A field that is missing where a layout needs it is an error: nothing is
 * guessed, and a row that fits two layouts is refused. */
#include "data/row_layout.h"

#include "base/buffer.h"

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

/* Token ids with a mask of what is learnt. */
static const struct {
  const char *layout, *mask;
} id_layouts[] = {{"input_ids/loss_mask", "loss_mask"},
                  {"input_ids/assistant_masks", "assistant_masks"},
                  {"input_ids/assistant_mask", "assistant_mask"},
                  {"input_ids/labels", "labels"}};
#define N_ID_LAYOUTS (sizeof id_layouts / sizeof *id_layouts)

/* What --map names has layouts of its own. */
static const char mapped_messages[] = "messages (mapped)", mapped_pair[] = "prompt/completion (mapped)", mapped_ids[] = "input_ids/loss_mask (mapped)";

static const struct {
  const char *field, *what;
} no_conversations[] = {
    {"chosen", "preference pairs (chosen, rejected): they do not say which answer to learn"},
    {"rejected", "preference pairs (chosen, rejected): they do not say which answer to learn"},
    {"input_ids", "token ids: give the conversations themselves, or what is to be learnt beside them (loss_mask, assistant_masks or labels)"},
    {"text", "plain text: a head learns from conversations; expected conversations or messages"},
};

/* NULL for null and nothing: columns that other rows need are null in this one. */
static const json_t *field_of(const json_t *row, const char *field) {
  const json_t *value = json_object_get(row, field);
  return json_is_null(value) ? NULL : value;
}

/* "" for null and nothing. */
static enum eaglet_status text_of(const char **text, const json_t *value, const char *field, struct eaglet_error *err) {
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

/* A question and its answer as messages. Question and input are joined by a newline only when both are there (bug case C15). */
struct pair_values {
  const json_t *history, *question, *more, *answer;
};
static enum eaglet_status read_pair(json_t *messages, const struct pair_layout *layout, const struct pair_values *values,
                                    struct eaglet_error *err) {
  const char *question, *more, *answer;
  TRY(add_history(messages, values->history, err));
  TRY(text_of(&question, values->question, layout->question, err));
  TRY(text_of(&more, values->more, layout->more, err));
  TRY(text_of(&answer, values->answer, layout->answer, err));
  struct buffer text;
  buffer_init(&text);
  buffer_format(&text, "%s%s%s", question, *question && *more ? "\n" : "", more);
  add_message(messages, "user", text.data);
  add_message(messages, "assistant", answer);
  buffer_clear(&text);
  return EAGLET_OK;
}

/* Both sides may be lists of messages already (a conversation cut where learning begins). */
static bool join_lists(json_t *messages, const struct pair_values *values) {
  if (!json_is_array(values->question) || !json_is_array(values->answer)) return false;
  json_array_extend(messages, (json_t *)values->question);
  json_array_extend(messages, (json_t *)values->answer);
  return true;
}

static enum eaglet_status take_pair(struct row_reading *reading, const struct pair_layout *layout, const struct pair_values *values,
                                    struct eaglet_error *err) {
  reading->layout = layout->name;
  reading->messages = json_array();
  enum eaglet_status status = join_lists(reading->messages, values) ? EAGLET_OK : read_pair(reading->messages, layout, values, err);
  if (status == EAGLET_OK) return EAGLET_OK;
  json_decref(reading->messages);
  reading->messages = NULL;
  return status;
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
    if (field_of(row, no_conversations[i].field)) FAIL(err, EAGLET_E_INPUT, "is %s", no_conversations[i].what);
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

/* The pair layout of which question and answer are there; two of them would be a guess. with_null: an answer of null counts. */
static enum eaglet_status find_pair(const struct pair_layout **found, const json_t *row, bool with_null, struct eaglet_error *err) {
  *found = NULL;
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    const struct pair_layout *pair = &pairs[i];
    bool asked = field_of(row, pair->question) || (pair->more && field_of(row, pair->more));
    bool named = json_object_get(row, pair->question) || (pair->more && json_object_get(row, pair->more));
    bool answered = with_null ? named && json_object_get(row, pair->answer) : asked && field_of(row, pair->answer);
    if (!answered) continue;
    if (*found) FAIL(err, EAGLET_E_INPUT, "ambiguous: could be read as %s and as %s", (*found)->name, pair->name);
    *found = pair;
  }
  return EAGLET_OK;
}

static enum eaglet_status take_list(struct row_reading *reading, const json_t *list, const char *layout, struct eaglet_error *err) {
  if (!json_is_array(list)) FAIL(err, EAGLET_E_INPUT, "expected conversations or messages, an array, found %s", kind_of(list));
  reading->layout = layout;
  reading->messages = json_incref((json_t *)list);
  return EAGLET_OK;
}

/* A value where --map says, NULL for null and nothing. */
static const json_t *mapped(const json_t *row, const struct row_map *map, enum row_field field) {
  const char *path = row_map_path(map, field);
  const json_t *value = path ? json_at_path(row, path) : NULL;
  return json_is_null(value) ? NULL : value;
}

static enum eaglet_status nothing_mapped(const struct row_map *map, struct eaglet_error *err) {
  static const enum row_field fields[] = {FIELD_MESSAGES, FIELD_PROMPT, FIELD_COMPLETION, FIELD_IDS, FIELD_MASK};
  struct buffer paths;
  buffer_init(&paths);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    const char *path = row_map_path(map, fields[i]);
    if (path) buffer_format(&paths, "%s%.60s", paths.length ? ", " : "", path);
  }
  error_set(err, EAGLET_E_INPUT, "expected what --map names (%s), found nothing there", paths.data);
  buffer_clear(&paths);
  return EAGLET_E_INPUT;
}

/* The layouts that --map names, messages before a pair before token ids; a row that has none of them is refused. */
static enum eaglet_status read_mapped(struct row_reading *reading, const json_t *row, const struct row_map *map, struct eaglet_error *err) {
  const json_t *messages = mapped(row, map, FIELD_MESSAGES);
  const struct pair_values pair = {.history = row_value(map, row, FIELD_HISTORY, "history"), .question = mapped(row, map, FIELD_PROMPT),
                                   .more = mapped(row, map, FIELD_INPUT), .answer = mapped(row, map, FIELD_COMPLETION)};
  const struct pair_layout layout = {.name = mapped_pair, .question = row_map_path(map, FIELD_PROMPT), .more = row_map_path(map, FIELD_INPUT),
                                     .answer = row_map_path(map, FIELD_COMPLETION)};
  if (messages) {
    if (!json_is_array(messages))
      FAIL(err, EAGLET_E_INPUT, "%.60s (messages of --map): expected an array, found %s", row_map_path(map, FIELD_MESSAGES), kind_of(messages));
    return take_list(reading, messages, mapped_messages, err);
  }
  if ((pair.question || pair.more) && pair.answer) return take_pair(reading, &layout, &pair, err);
  reading->ids = mapped(row, map, FIELD_IDS);
  reading->mask = mapped(row, map, FIELD_MASK);
  if (!reading->ids || !reading->mask) return nothing_mapped(map, err);
  reading->layout = mapped_ids;
  reading->labels = strcmp(map->paths[FIELD_MASK], "labels") == 0;
  return EAGLET_OK;
}

static bool is_mapped(const struct row_map *map) {
  return row_map_path(map, FIELD_MESSAGES) || row_map_path(map, FIELD_PROMPT) || row_map_path(map, FIELD_IDS);
}

/* False: no token ids with a mask. */
static enum eaglet_status find_ids(struct row_reading *reading, const json_t *row, struct eaglet_error *err) {
  if (!field_of(row, "input_ids")) return EAGLET_OK;
  for (size_t i = 0; i < N_ID_LAYOUTS; i++) {
    const json_t *mask = field_of(row, id_layouts[i].mask);
    if (!mask) continue;
    if (reading->layout) FAIL(err, EAGLET_E_INPUT, "ambiguous: could be read as %s and as %s", reading->layout, id_layouts[i].layout);
    *reading = (struct row_reading){.layout = id_layouts[i].layout, .ids = field_of(row, "input_ids"), .mask = mask,
                                    .attention = field_of(row, "attention_mask"), .labels = strcmp(id_layouts[i].mask, "labels") == 0};
  }
  return EAGLET_OK;
}

enum eaglet_status row_layout_read(struct row_reading *reading, const json_t *row, const struct row_map *map, struct eaglet_error *err) {
  const json_t *lists[2] = {field_of(row, list_names[0]), field_of(row, list_names[1])};
  const struct pair_layout *pair;
  *reading = (struct row_reading){0};
  if (json_is_array(row)) return take_list(reading, row, "messages", err);
  if (!json_is_object(row)) FAIL(err, EAGLET_E_INPUT, "expected an object with conversations or messages, found %s", kind_of(row));
  if (is_mapped(map)) return read_mapped(reading, row, map, err);
  if (lists[0] && lists[1]) FAIL(err, EAGLET_E_INPUT, "expected either %s or %s, found both", list_names[0], list_names[1]);
  for (int i = 0; i < 2; i++) {
    if (!lists[i]) continue;
    if (field_of(row, "chosen")) FAIL(err, EAGLET_E_INPUT, "is %s", no_conversations[0].what);
    return take_list(reading, lists[i], list_names[i], err);
  }
  TRY(find_pair(&pair, row, false, err));
  if (!pair) TRY(find_ids(reading, row, err));
  if (reading->layout) return EAGLET_OK;
  if (!pair) TRY(find_pair(&pair, row, true, err));
  if (!pair || field_of(row, "chosen")) return no_layout(row, err);
  const struct pair_values values = {.history = row_value(map, row, FIELD_HISTORY, "history"), .question = json_object_get(row, pair->question),
                                     .more = pair->more ? json_object_get(row, pair->more) : NULL, .answer = json_object_get(row, pair->answer)};
  return take_pair(reading, pair, &values, err);
}

/* ---- which fields ---- */

static bool is_common(const struct row_map *map, const char *field) {
  static const struct {
    enum row_field field;
    const char *name;
  } common[] = {{FIELD_SYSTEM, "system"}, {FIELD_TOOLS, "tools"}, {FIELD_SOURCE, "source"}};
  for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
    const char *path = row_map_path(map, common[i].field);
    if (path ? row_map_begins(path, field) : !strcmp(common[i].name, field)) return true;
  }
  return false;
}

static bool is_history(const struct row_map *map, const char *field) {
  const char *path = row_map_path(map, FIELD_HISTORY);
  return path ? row_map_begins(path, field) : !strcmp(field, "history");
}

bool row_layout_uses(const char *layout, const struct row_map *map, const char *field) {
  if (is_common(map, field)) return true;
  for (size_t i = 0; is_mapped(map) && i < FIELD_ROW_END; i++) {
    if (row_map_begins(map->paths[i], field)) return true;
  }
  for (int i = 0; i < 2; i++) {
    if (!strcmp(layout, list_names[i])) return !strcmp(field, list_names[i]);
  }
  for (size_t i = 0; i < N_ID_LAYOUTS; i++) {
    if (!strcmp(layout, id_layouts[i].layout)) return !strcmp(field, id_layouts[i].mask) || !strcmp(field, "input_ids") || !strcmp(field, "attention_mask");
  }
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    const struct pair_layout *pair = &pairs[i];
    if (!strcmp(layout, pair->name))
      return is_history(map, field) || !strcmp(field, pair->question) || !strcmp(field, pair->answer) || (pair->more && !strcmp(field, pair->more));
  }
  return !strcmp(layout, mapped_pair) && is_history(map, field);
}

static bool is_known(const struct row_map *map, const char *field) {
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    if (row_layout_uses(pairs[i].name, map, field)) return true;
  }
  for (size_t i = 0; i < N_ID_LAYOUTS; i++) {
    if (row_layout_uses(id_layouts[i].layout, map, field)) return true;
  }
  return false;
}

void row_layout_want(bool *wanted, const char *const *names, size_t n, const struct row_map *map) {
  bool lists = false, mapped = is_mapped(map);
  for (size_t i = 0; i < n; i++) lists |= !strcmp(names[i], list_names[0]) || !strcmp(names[i], list_names[1]);
  for (size_t i = 0; i < n; i++) {
    bool list = !strcmp(names[i], list_names[0]) || !strcmp(names[i], list_names[1]);
    bool refusing = !strcmp(names[i], "chosen") || !strcmp(names[i], "rejected");
    if (mapped) wanted[i] = row_layout_uses(row_map_path(map, FIELD_PROMPT) ? mapped_pair : mapped_messages, map, names[i]);
    else if (lists) wanted[i] = list || refusing || is_common(map, names[i]);
    else wanted[i] = refusing || is_common(map, names[i]) || is_known(map, names[i]) || !strcmp(names[i], "text");
  }
}
