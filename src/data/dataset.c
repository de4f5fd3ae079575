/* dataset.c - see dataset.h. Owns the table of roles and the two row shapes; reads line by line and keeps no row. Knows
 * no template and no tokenizer: what a role or an empty content means for training is decided by the caller. */
#include "data/dataset.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- one conversation ---- */

static const char *role_of(const char *name) {
  static const struct {
    const char *name, *role;
  } roles[] = {{"user", "user"},     {"human", "user"},       {"assistant", "assistant"},
               {"gpt", "assistant"}, {"model", "assistant"},  {"system", "system"},
               {"tool", "tool"},     {"observation", "tool"}, {"function", "tool"}};
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
    if (strcmp(roles[i].name, name) == 0) return roles[i].role;
  }
  return NULL;
}

/* White space by Python's str.strip(), which other pipelines apply: the same data gives the same tokens. */
static bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static json_t *stripped(const char *text, size_t length) {
  uint32_t c;
  size_t begin = 0, end = 0;
  for (size_t at = 0, n; at < length; at += n) {
    n = (size_t)utf8_decode(text + at, length - at, &c);
    ASSERT(n > 0); /* JSON strings are valid UTF-8 */
    if (!is_space(c))
      end = at + n;
    else if (end == 0)
      begin = at + n;
  }
  return end > begin ? json_stringn(text + begin, end - begin) : json_string("");
}

static json_t *text_value(const json_t *text, bool strip) {
  return strip ? stripped(json_string_value(text), json_string_length(text)) : json_deep_copy(text);
}

static const char *kind_of(const json_t *value) {
  static const char *const names[] = {"an object", "an array", "a string", "a number",
                                      "a number",  "true",     "false",    "null"};
  return value ? names[json_typeof(value)] : "nothing";
}

/* Text, parts ({"type": ...}; the template decides what it can show), or nothing. */
static enum eaglet_status normalise_content(json_t **content, const json_t *value, bool may_miss, bool strip,
                                            struct eaglet_error *err) {
  if (json_is_string(value)) {
    *content = text_value(value, strip);
    return EAGLET_OK;
  }
  if (json_is_null(value) || (!value && may_miss)) {
    *content = json_string("");
    return EAGLET_OK;
  }
  if (!json_is_array(value)) FAIL(err, EAGLET_E_INPUT, "content: expected a string, found %s", kind_of(value));
  size_t i;
  json_t *part;
  json_array_foreach(value, i, part) {
    if (!json_is_string(json_object_get(part, "type")))
      FAIL(err, EAGLET_E_INPUT, "content: part %zu: expected an object with a type, found %s", i, kind_of(part));
  }
  *content = json_deep_copy(value);
  return EAGLET_OK;
}

/* The field under either name; both is ambiguous. */
static enum eaglet_status either(const json_t **value, const json_t *object, const char *const names[2],
                                 struct eaglet_error *err) {
  const json_t *a = json_object_get(object, names[0]), *b = json_object_get(object, names[1]);
  if (a && b) FAIL(err, EAGLET_E_INPUT, "expected either %s or %s, found both", names[0], names[1]);
  *value = a ? a : b;
  return EAGLET_OK;
}

static bool is_own_field(const char *key) {
  return !strcmp(key, "role") || !strcmp(key, "from") || !strcmp(key, "content") || !strcmp(key, "value");
}

/* A call's arguments (bug case B15): an object stays; a string must hold JSON and stays a string, because templates
 * differ in which of the two they print; empty, "null" and null are a call without arguments. Templates would print
 * anything else as it stands, broken. */
static enum eaglet_status normalise_arguments(json_t *call, struct eaglet_error *err) {
  json_t *owner = json_object_get(call, "function");
  if (!json_is_object(owner)) owner = call;
  const json_t *arguments = json_object_get(owner, "arguments");
  json_t *parsed = NULL;
  if (!arguments || json_is_object(arguments)) return EAGLET_OK;
  if (!json_is_null(arguments) && !json_is_string(arguments)) {
    FAIL(err, EAGLET_E_INPUT, "arguments: expected an object or its JSON in a string, found %s", kind_of(arguments));
  }
  if (json_is_string(arguments) && json_string_length(arguments) > 0) {
    TRY(json_parse(&parsed, json_string_value(arguments), json_string_length(arguments), "arguments", err));
  }
  bool none = !parsed || json_is_null(parsed);
  json_decref(parsed);
  if (none) json_object_set_new(owner, "arguments", json_is_string(arguments) ? json_string("{}") : json_object());
  return EAGLET_OK;
}

static enum eaglet_status normalise_calls(json_t *message, struct eaglet_error *err) {
  json_t *calls = json_object_get(message, "tool_calls"), *call;
  size_t i;
  if (!calls || json_is_null(calls)) return EAGLET_OK;
  if (!json_is_array(calls)) FAIL(err, EAGLET_E_INPUT, "tool_calls: expected an array, found %s", kind_of(calls));
  json_array_foreach(calls, i, call) {
    if (!json_is_object(call))
      FAIL(err, EAGLET_E_INPUT, "tool call %zu: expected an object, found %s", i, kind_of(call));
    if (normalise_arguments(call, err) != EAGLET_OK) return error_prefix(err, "tool call %zu", i);
  }
  return EAGLET_OK;
}

static enum eaglet_status normalise_message(json_t **out, const json_t *message, bool strip, struct eaglet_error *err) {
  const json_t *name = NULL, *value = NULL;
  json_t *content = NULL, *field;
  const char *key;
  *out = NULL;
  if (!json_is_object(message)) FAIL(err, EAGLET_E_INPUT, "expected an object, found %s", kind_of(message));
  TRY(either(&name, message, (const char *const[]){"role", "from"}, err));
  TRY(either(&value, message, (const char *const[]){"content", "value"}, err));
  if (!json_is_string(name)) FAIL(err, EAGLET_E_INPUT, "role: expected a string, found %s", kind_of(name));
  const char *role = role_of(json_string_value(name));
  if (!role) {
    FAIL(err, EAGLET_E_INPUT,
         "role: expected human, user, gpt, assistant, model, system, tool, observation or function, found '%.60s'",
         json_string_value(name));
  }
  TRY(normalise_content(&content, value, json_object_get(message, "tool_calls") != NULL, strip, err));
  *out = json_object();
  json_object_set_new(*out, "role", json_string(role));
  json_object_set_new(*out, "content", content);
  json_object_foreach((json_t *)message, key, field) {
    if (!is_own_field(key)) json_object_set_new(*out, key, json_deep_copy(field));
  }
  enum eaglet_status status = normalise_calls(*out, err);
  if (status != EAGLET_OK) {
    json_decref(*out);
    *out = NULL;
  }
  return status;
}

static enum eaglet_status normalise_tools(struct conversation *conversation, const json_t *tools,
                                          struct eaglet_error *err) {
  if (!tools || json_is_null(tools)) return EAGLET_OK;
  json_t *parsed = NULL;
  if (json_is_string(tools)) {
    if (json_string_length(tools) == 0) return EAGLET_OK;
    TRY(json_parse(&parsed, json_string_value(tools), json_string_length(tools), "tools", err));
  } else {
    parsed = json_deep_copy(tools);
  }
  conversation->tools = parsed;
  if (!json_is_array(parsed)) FAIL(err, EAGLET_E_INPUT, "tools: expected an array, found %s", kind_of(parsed));
  return EAGLET_OK;
}

static enum eaglet_status normalise_row(struct conversation *conversation, const json_t *row,
                                        struct eaglet_error *err) {
  const json_t *messages = row, *system = json_object_get(row, "system"), *source = json_object_get(row, "source");
  json_t *message, *made;
  size_t i;
  if (json_is_object(row))
    TRY(either(&messages, row, (const char *const[]){"conversations", "messages"}, err));
  else if (!json_is_array(row))
    FAIL(err, EAGLET_E_INPUT, "expected an object with conversations or messages, found %s", kind_of(row));
  if (!json_is_array(messages))
    FAIL(err, EAGLET_E_INPUT, "expected conversations or messages, an array, found %s", kind_of(messages));
  if (source && !json_is_null(source)) {
    size_t length = json_string_length(source);
    if (!json_is_string(source)) FAIL(err, EAGLET_E_INPUT, "source: expected a string, found %s", kind_of(source));
    if (length >= sizeof conversation->source)
      FAIL(err, EAGLET_E_INPUT, "source: expected at most %zu bytes, found %zu", sizeof conversation->source - 1,
           length);
    memcpy(conversation->source, json_string_value(source), length + 1);
  }
  TRY(normalise_tools(conversation, json_object_get(row, "tools"), err));
  if (json_is_string(system) && json_string_length(system) > 0) {
    json_array_append_new(conversation->messages,
                          json_pack("{ss so}", "role", "system", "content", text_value(system, conversation->strip)));
  }
  json_array_foreach(messages, i, message) {
    enum eaglet_status status = normalise_message(&made, message, conversation->strip, err);
    if (status != EAGLET_OK) {
      error_prefix(err, "message %zu", i);
      return status;
    }
    json_array_append_new(conversation->messages, made);
  }
  return EAGLET_OK;
}

enum eaglet_status conversation_normalise(struct conversation *conversation, const json_t *row,
                                          struct eaglet_error *err) {
  conversation_clear(conversation);
  conversation->messages = json_array();
  enum eaglet_status status = normalise_row(conversation, row, err);
  if (status != EAGLET_OK) conversation_clear(conversation);
  return status;
}

void conversation_clear(struct conversation *conversation) {
  json_decref(conversation->messages);
  json_decref(conversation->tools);
  *conversation = (struct conversation){.strip = conversation->strip};
}

/* ---- files of them ---- */

struct dataset_reader {
  char **paths;
  size_t n_paths, file; /* file: the one being read */
  struct file_lines *lines;
  uint64_t n_rows; /* of that file so far */
  char stem[CONVERSATION_SOURCE_MAX];
};

enum eaglet_status dataset_open(struct dataset_reader **reader, const char *const *paths, size_t n_paths,
                                struct eaglet_error *err) {
  *reader = NULL;
  if (n_paths == 0) FAIL(err, EAGLET_E_USAGE, "no data file given");
  struct dataset_reader *opened = memory_alloc(sizeof *opened);
  opened->paths = memory_alloc(n_paths * sizeof *opened->paths);
  opened->n_paths = n_paths;
  for (size_t i = 0; i < n_paths; i++) opened->paths[i] = memory_copy_string(paths[i]);
  *reader = opened;
  return EAGLET_OK;
}

/* The file's name without folder and last extension; cut at a whole character when it is too long. */
static void set_stem(struct dataset_reader *reader, const char *path) {
  const char *name = strrchr(path, '/');
  name = strcmp(path, "-") == 0 ? "stdin" : name ? name + 1 : path;
  const char *dot = strrchr(name, '.');
  size_t length = dot && dot > name ? (size_t)(dot - name) : strlen(name);
  if (length >= sizeof reader->stem) length = sizeof reader->stem - 1;
  length = utf8_valid(name, length);
  memcpy(reader->stem, name, length);
  reader->stem[length] = '\0';
}

static bool is_blank(const char *line, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
  }
  return true;
}

static enum eaglet_status parse_line(struct conversation *conversation, const char *line, size_t length,
                                     struct eaglet_error *err) {
  json_t *row = NULL;
  size_t valid = utf8_valid(line, length);
  if (valid < length)
    FAIL(err, EAGLET_E_INPUT, "byte %zu of the line: expected UTF-8, found byte 0x%02x", valid + 1,
         (uint8_t)line[valid]);
  TRY(json_parse(&row, line, length, "row", err));
  enum eaglet_status status = conversation_normalise(conversation, row, err);
  json_decref(row);
  return status;
}

/* The next line that is a row of the current file; *line is NULL when there is none. */
static enum eaglet_status next_line(struct dataset_reader *reader, const char **line, size_t *length,
                                    struct eaglet_error *err) {
  const char *path = reader->paths[reader->file];
  if (!reader->lines) {
    TRY(file_lines_open(&reader->lines, path, err));
    set_stem(reader, path);
    reader->n_rows = 0;
  }
  do TRY(file_lines_next(reader->lines, line, length, err));
  while (*line && is_blank(*line, *length));
  if (*line) {
    reader->n_rows++;
    return EAGLET_OK;
  }
  file_lines_close(reader->lines);
  reader->lines = NULL;
  reader->file++;
  if (reader->n_rows == 0) FAIL(err, EAGLET_E_INPUT, "%s: expected one conversation a line, found no line", path);
  return EAGLET_OK;
}

enum eaglet_status dataset_next(struct dataset_reader *reader, struct conversation *conversation, bool *more,
                                struct eaglet_error *err) {
  const char *line = NULL;
  size_t length = 0;
  conversation_clear(conversation);
  *more = false;
  while (!line && reader->file < reader->n_paths) TRY(next_line(reader, &line, &length, err));
  if (!line) return EAGLET_OK;
  const char *path = reader->paths[reader->file];
  uint64_t number = file_lines_number(reader->lines);
  conversation->strip = true;
  enum eaglet_status status = parse_line(conversation, line, length, err);
  if (status != EAGLET_OK) {
    error_prefix(err, "%s:%llu", path, (unsigned long long)number);
    return status;
  }
  conversation->path = path;
  conversation->line = number;
  if (!*conversation->source) memcpy(conversation->source, reader->stem, sizeof reader->stem);
  *more = true;
  return EAGLET_OK;
}

void dataset_close(struct dataset_reader *reader) {
  if (!reader) return;
  for (size_t i = 0; i < reader->n_paths; i++) free(reader->paths[i]);
  free(reader->paths);
  file_lines_close(reader->lines);
  free(reader);
}
