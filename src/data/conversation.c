/* conversation.c - one row of data as a conversation; see dataset.h. Owns the table of roles and the forms that contents and calls have in
 * data. Knows no template and no tokenizer: what a role or an empty content means for training is decided by the caller. */
#include "data/dataset.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "data/row_layout.h"
#include "data/row_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- roles ---- */

enum role { ROLE_UNKNOWN, ROLE_USER, ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL, ROLE_CALL };
static const char *const role_names[] = {[ROLE_UNKNOWN] = NULL,       [ROLE_USER] = "user", [ROLE_ASSISTANT] = "assistant",
                                         [ROLE_SYSTEM] = "system",    [ROLE_TOOL] = "tool",
                                         [ROLE_CALL] = "assistant"};

static enum role known_role(const char *name) {
  static const struct {
    const char *name;
    enum role role;
  } roles[] = {{"user", ROLE_USER},           {"human", ROLE_USER},
               {"assistant", ROLE_ASSISTANT}, {"gpt", ROLE_ASSISTANT},
               {"model", ROLE_ASSISTANT},     {"chatgpt", ROLE_ASSISTANT},
               {"bot", ROLE_ASSISTANT},       {"system", ROLE_SYSTEM},
               {"developer", ROLE_SYSTEM},    {"tool", ROLE_TOOL},
               {"observation", ROLE_TOOL},    {"function", ROLE_TOOL},
               {"tool_response", ROLE_TOOL},  {"function_response", ROLE_TOOL},
               {"ipython", ROLE_TOOL},        {"function_call", ROLE_CALL},
               {"tool_call", ROLE_CALL}};
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
    if (strcmp(roles[i].name, name) == 0) return roles[i].role;
  }
  return ROLE_UNKNOWN;
}

static enum role role_of(const struct conversation *conversation, const char *name) {
  const char *means = row_map_role(conversation->map, name);
  return known_role(means ? means : name);
}

/* ---- fields of a message ---- */

static const char *const role_fields[2] = {"role", "from"}, *const content_fields[2] = {"content", "value"};

/* The value where --map says, else under either name: the one that is not null, since tables have both columns. Both is ambiguous. */
static enum eaglet_status message_field(const json_t **value, const struct conversation *conversation, const json_t *message, bool content,
                                        struct eaglet_error *err) {
  const char *const *names = content ? content_fields : role_fields;
  const char *path = row_map_path(conversation->map, content ? FIELD_CONTENT : FIELD_ROLE);
  const json_t *a = path ? json_at_path(message, path) : json_object_get(message, names[0]);
  const json_t *b = path ? NULL : json_object_get(message, names[1]);
  if (a && b && !json_is_null(a) && !json_is_null(b)) FAIL(err, EAGLET_E_INPUT, "expected either %s or %s, found both", names[0], names[1]);
  *value = a && (!json_is_null(a) || !b) ? a : b;
  return EAGLET_OK;
}

/* The message's role as far as it has one; "" without. */
static const char *raw_role(const struct conversation *conversation, const json_t *message) {
  const json_t *name = NULL;
  (void)!message_field(&name, conversation, message, false, NULL);
  const char *role = json_string_value(name);
  return role ? role : "";
}

static bool is_own_field(const struct conversation *conversation, const char *key) {
  const char *role = row_map_path(conversation->map, FIELD_ROLE), *content = row_map_path(conversation->map, FIELD_CONTENT);
  if (role ? row_map_begins(role, key) : !strcmp(key, "role") || !strcmp(key, "from")) return true;
  return content ? row_map_begins(content, key) : !strcmp(key, "content") || !strcmp(key, "value");
}

/* A copy without the null fields of its objects: a table pads every object to the fields that any row has (bug case C07). As deep as the
 * table's schema. */
static json_t *without_padding(const json_t *value) {
  const char *key;
  json_t *field, *copy;
  size_t i;
  if (json_is_array(value)) {
    copy = json_array();
    json_array_foreach(value, i, field) json_array_append_new(copy, without_padding(field));
    return copy;
  }
  if (!json_is_object(value)) return json_deep_copy(value);
  copy = json_object();
  json_object_foreach((json_t *)value, key, field) {
    if (!json_is_null(field)) json_object_set_new(copy, key, without_padding(field));
  }
  return copy;
}

/* A message of a table: without padding, but a content of null is no padding. A new reference. */
static json_t *unpadded_message(const struct conversation *conversation, const json_t *message) {
  const json_t *content = NULL;
  if (!conversation->columnar || !json_is_object(message)) return json_incref((json_t *)message);
  json_t *copy = without_padding(message);
  (void)!message_field(&content, conversation, message, true, NULL);
  if (json_is_null(content) && !row_map_path(conversation->map, FIELD_CONTENT))
    json_object_set_new(copy, json_object_get(message, content_fields[0]) ? content_fields[0] : content_fields[1], json_null());
  return copy;
}

/* ---- contents ---- */

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

static json_t *buffer_value(const struct buffer *text, bool strip) {
  return strip ? stripped(text->data ? text->data : "", text->length) : json_stringn(text->data ? text->data : "", text->length);
}

static const char *kind_of(const json_t *value) {
  static const char *const names[] = {"an object", "an array", "a string", "a number",
                                      "a number",  "true",     "false",    "null"};
  return value ? names[json_typeof(value)] : "nothing";
}

/* What the parts of a content become: text, reasoning and calls of the layout that has {"type", "value"}. */
struct parts {
  struct buffer text, reasoning;
  json_t *calls;
  bool has_reasoning;
};

/* The JSON of a call: {"name", "arguments"}, or a list of them. */
static enum eaglet_status add_calls(json_t *calls, const json_t *value, struct eaglet_error *err) {
  json_t *parsed = NULL, *call;
  size_t i;
  if (json_is_string(value))
    TRY(json_parse(&parsed, json_string_value(value), json_string_length(value), "call", err));
  else
    parsed = json_incref((json_t *)value);
  json_t *list = json_is_array(parsed) ? json_incref(parsed) : json_pack("[O]", parsed);
  json_decref(parsed);
  enum eaglet_status status = EAGLET_OK;
  json_array_foreach(list, i, call) {
    const json_t *arguments = json_object_get(call, "arguments");
    if (!json_is_string(json_object_get(call, "name"))) {
      status = error_set(err, EAGLET_E_INPUT, "call %zu: expected an object with name and arguments, found %s", i, kind_of(call));
      break;
    }
    json_t *function = json_pack("{sO sO*}", "name", json_object_get(call, "name"), "arguments", arguments);
    json_array_append_new(calls, json_pack("{ss so}", "type", "function", "function", function));
  }
  json_decref(list);
  return status;
}

static enum eaglet_status add_part(struct parts *parts, const json_t *part, struct eaglet_error *err) {
  const char *type = json_string_value(json_object_get(part, "type"));
  const json_t *value = json_object_get(part, "text");
  if (!value) value = json_object_get(part, "value");
  if (!strcmp(type, "tool_call")) return add_calls(parts->calls, value, err);
  bool reasoning = !strcmp(type, "reasoning") || !strcmp(type, "thinking");
  if (!reasoning && strcmp(type, "text") != 0)
    FAIL(err, EAGLET_E_INPUT, "type '%.30s': expected text, reasoning or tool_call", type);
  if (!json_is_string(value)) FAIL(err, EAGLET_E_INPUT, "%s: expected a string, found %s", type, kind_of(value));
  parts->has_reasoning |= reasoning;
  buffer_append(reasoning ? &parts->reasoning : &parts->text, json_string_value(value), json_string_length(value));
  return EAGLET_OK;
}

/* Parts in the layout with "value" are no template's: they become what templates know. So do texts alone, in data: many templates would
 * print a list as such. Other parts (pictures) stay for the template, which decides what it can show. */
static bool must_join(const json_t *list, bool strip) {
  size_t i;
  json_t *part;
  bool texts = true, values = false;
  json_array_foreach(list, i, part) {
    values |= json_object_get(part, "value") != NULL;
    texts &= !strcmp(json_string_value(json_object_get(part, "type")), "text") && json_object_get(part, "text");
  }
  return values || (texts && strip);
}

static enum eaglet_status join_parts(json_t *message, const json_t *list, bool strip, struct eaglet_error *err) {
  struct parts parts = {.calls = json_array()};
  enum eaglet_status status = EAGLET_OK;
  size_t i;
  json_t *part;
  buffer_init(&parts.text);
  buffer_init(&parts.reasoning);
  buffer_append(&parts.text, "", 0);
  json_array_foreach(list, i, part) {
    status = add_part(&parts, part, err);
    if (status != EAGLET_OK) {
      error_prefix(err, "content: part %zu", i);
      break;
    }
  }
  if (status == EAGLET_OK) {
    const struct buffer *text = &parts.text, *reasoning = &parts.reasoning;
    json_object_set_new(message, "content", buffer_value(text, strip));
    if (parts.has_reasoning) json_object_set_new(message, "reasoning_content", buffer_value(reasoning, strip));
    if (json_array_size(parts.calls) > 0) json_object_set(message, "tool_calls", parts.calls);
  }
  json_decref(parts.calls);
  buffer_clear(&parts.text);
  buffer_clear(&parts.reasoning);
  return status;
}

/* Text, parts ({"type": ...}), or nothing, as message's "content". */
static enum eaglet_status normalise_content(json_t *message, const json_t *value, bool may_miss, bool strip,
                                            struct eaglet_error *err) {
  if (json_is_string(value)) {
    json_object_set_new(message, "content", text_value(value, strip));
    return EAGLET_OK;
  }
  if (json_is_null(value) || (!value && may_miss)) {
    json_object_set_new(message, "content", json_string(""));
    return EAGLET_OK;
  }
  if (!json_is_array(value)) FAIL(err, EAGLET_E_INPUT, "content: expected a string, found %s", kind_of(value));
  size_t i;
  json_t *part;
  json_array_foreach(value, i, part) {
    if (!json_is_string(json_object_get(part, "type")))
      FAIL(err, EAGLET_E_INPUT, "content: part %zu: expected an object with a type, found %s", i, kind_of(part));
  }
  if (must_join(value, strip)) return join_parts(message, value, strip, err);
  json_object_set_new(message, "content", json_deep_copy(value));
  return EAGLET_OK;
}

/* ---- calls ---- */

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
  if (json_is_string(calls)) { /* a list of calls as text */
    json_t *parsed = NULL;
    if (json_string_length(calls) > 0) TRY(json_parse(&parsed, json_string_value(calls), json_string_length(calls), "tool_calls", err));
    json_object_set_new(message, "tool_calls", parsed ? parsed : json_null());
    calls = parsed;
    if (!calls || json_is_null(calls)) return EAGLET_OK;
  }
  if (!json_is_array(calls)) FAIL(err, EAGLET_E_INPUT, "tool_calls: expected an array, found %s", kind_of(calls));
  json_array_foreach(calls, i, call) {
    if (!json_is_object(call))
      FAIL(err, EAGLET_E_INPUT, "tool call %zu: expected an object, found %s", i, kind_of(call));
    if (normalise_arguments(call, err) != EAGLET_OK) return error_prefix(err, "tool call %zu", i);
  }
  return EAGLET_OK;
}

/* ---- a message ---- */

/* A call as a message of its own ("function_call") is an assistant's message with that call and no text. */
static enum eaglet_status normalise_call_message(json_t *message, const json_t *value, struct eaglet_error *err) {
  json_t *calls = json_array();
  enum eaglet_status status = add_calls(calls, value, err);
  json_object_set_new(message, "content", json_string(""));
  json_object_set_new(message, "tool_calls", calls);
  return status;
}

/* *out is owned by the caller in every case. */
static enum eaglet_status normalise_message(struct conversation *conversation, json_t **out, const json_t *message,
                                            struct eaglet_error *err) {
  const json_t *name = NULL, *value = NULL;
  json_t *field;
  const char *key;
  *out = NULL;
  if (!json_is_object(message)) FAIL(err, EAGLET_E_INPUT, "expected an object, found %s", kind_of(message));
  TRY(message_field(&name, conversation, message, false, err));
  TRY(message_field(&value, conversation, message, true, err));
  if (!json_is_string(name)) FAIL(err, EAGLET_E_INPUT, "role: expected a string, found %s", kind_of(name));
  enum role role = role_of(conversation, json_string_value(name));
  if (role == ROLE_UNKNOWN) {
    snprintf(conversation->unknown_role, sizeof conversation->unknown_role, "%.40s", json_string_value(name));
    FAIL(err, EAGLET_E_INPUT,
         "role: expected human, user, gpt, assistant, model, system, tool, observation, function or function_call, "
         "found '%.60s'",
         json_string_value(name));
  }
  *out = json_pack("{ss}", "role", role_names[role]);
  if (conversation->roles && !json_object_get(conversation->roles, json_string_value(name)))
    json_object_set_new(conversation->roles, json_string_value(name), json_string(role_names[role]));
  bool may_miss = json_object_get(message, "tool_calls") != NULL || (conversation->columnar && row_map_path(conversation->map, FIELD_CONTENT));
  TRY(role == ROLE_CALL ? normalise_call_message(*out, value, err)
                        : normalise_content(*out, value, may_miss, conversation->strip, err));
  json_object_foreach((json_t *)message, key, field) {
    if (is_own_field(conversation, key)) continue;
    if (json_object_get(*out, key)) FAIL(err, EAGLET_E_INPUT, "%s: given beside a content that says it too", key);
    json_object_set_new(*out, key, json_deep_copy(field));
  }
  return normalise_calls(*out, err);
}

static const json_t *id_of(const json_t *object, const char *key) {
  const json_t *id = json_object_get(object, key);
  return json_is_string(id) ? id : NULL;
}

/* Calls without an id get one, and the results that follow them its reference, because templates print them: "functions.NAME:N", N
 * counted over the conversation (Kimi's own form). Data that has ids keeps them. */
static void number_calls(json_t *messages) {
  json_t *message, *call, *waiting = json_array(); /* ids of calls without a result */
  size_t i, j, n_calls = 0, next = 0;
  json_array_foreach(messages, i, message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *calls = json_object_get(message, "tool_calls");
    if (json_array_size(calls) > 0) {
      json_array_clear(waiting);
      next = 0;
    }
    json_array_foreach(calls, j, call) {
      const json_t *name = json_object_get(json_object_get(call, "function"), "name");
      if (!id_of(call, "id") && json_is_string(name)) {
        char *id = memory_format("functions.%s:%zu", json_string_value(name), n_calls);
        json_object_set_new(call, "id", json_string(id));
        free(id);
      }
      n_calls++;
      json_array_append(waiting, call);
    }
    if (strcmp(role, "tool") != 0 || next >= json_array_size(waiting)) continue;
    const json_t *answered = json_array_get(waiting, next++), *id = id_of(answered, "id");
    const json_t *name = json_object_get(json_object_get(answered, "function"), "name");
    if (id && !json_object_get(message, "tool_call_id")) json_object_set(message, "tool_call_id", (json_t *)id);
    if (name && !json_object_get(message, "name")) json_object_set(message, "name", (json_t *)name);
  }
  json_decref(waiting);
}

/* ---- a row ---- */

/* Tools are described as the API has them, {"type": "function", "function": {...}}: templates reach into that. */
static void wrap_tools(json_t *tools) {
  size_t i;
  json_t *tool;
  json_array_foreach(tools, i, tool) {
    if (!json_is_string(json_object_get(tool, "name")) || json_object_get(tool, "function") || json_object_get(tool, "type")) continue;
    json_array_set_new(tools, i, json_pack("{ss sO}", "type", "function", "function", tool));
  }
}

static enum eaglet_status normalise_tools(struct conversation *conversation, const json_t *tools,
                                          struct eaglet_error *err) {
  if (!tools || json_is_null(tools)) return EAGLET_OK;
  json_t *parsed = NULL;
  if (json_is_string(tools)) {
    if (json_string_length(tools) == 0) return EAGLET_OK;
    TRY(json_parse(&parsed, json_string_value(tools), json_string_length(tools), "tools", err));
  } else {
    parsed = conversation->columnar ? without_padding(tools) : json_deep_copy(tools);
  }
  conversation->tools = parsed;
  if (!json_is_array(parsed)) FAIL(err, EAGLET_E_INPUT, "tools: expected an array, found %s", kind_of(parsed));
  wrap_tools(parsed);
  return EAGLET_OK;
}

static enum eaglet_status normalise_source(struct conversation *conversation, const json_t *source,
                                           struct eaglet_error *err) {
  if (!source || json_is_null(source)) return EAGLET_OK;
  size_t length = json_string_length(source);
  if (!json_is_string(source)) FAIL(err, EAGLET_E_INPUT, "source: expected a string, found %s", kind_of(source));
  if (length >= sizeof conversation->source)
    FAIL(err, EAGLET_E_INPUT, "source: expected at most %zu bytes, found %zu", sizeof conversation->source - 1, length);
  memcpy(conversation->source, json_string_value(source), length + 1);
  return EAGLET_OK;
}

static bool made_calls(const struct conversation *conversation, const json_t *messages) {
  size_t i;
  const json_t *message;
  json_array_foreach(messages, i, message) {
    const json_t *content = NULL, *part;
    size_t j;
    if (role_of(conversation, raw_role(conversation, message)) == ROLE_CALL) return true;
    (void)!message_field(&content, conversation, message, true, NULL);
    if (!json_is_array(content)) continue;
    json_array_foreach(content, j, part) {
      const char *type = json_string_value(json_object_get(part, "type"));
      if (type && !strcmp(type, "tool_call")) return true;
    }
  }
  return false;
}

static enum eaglet_status normalise_messages(struct conversation *conversation, const json_t *messages,
                                             struct eaglet_error *err) {
  json_t *message, *made;
  size_t i;
  json_array_foreach(messages, i, message) {
    json_t *whole = unpadded_message(conversation, message);
    enum eaglet_status status = normalise_message(conversation, &made, whole, err);
    json_decref(whole);
    if (status != EAGLET_OK) {
      json_decref(made);
      error_prefix(err, "message %zu", i);
      return status;
    }
    json_array_append_new(conversation->messages, made);
  }
  if (made_calls(conversation, messages)) number_calls(conversation->messages);
  return EAGLET_OK;
}

/* The row's own system text goes first; said again by the first message it is said once. */
static enum eaglet_status add_system(struct conversation *conversation, const json_t *system, const json_t *first,
                                     struct eaglet_error *err) {
  if (!system || json_is_null(system)) return EAGLET_OK;
  if (!json_is_string(system)) FAIL(err, EAGLET_E_INPUT, "system: expected a string, found %s", kind_of(system));
  if (json_string_length(system) == 0) return EAGLET_OK;
  const json_t *content = NULL;
  if (role_of(conversation, raw_role(conversation, first)) == ROLE_SYSTEM) {
    (void)!message_field(&content, conversation, first, true, NULL);
    if (json_equal(content, system)) return EAGLET_OK;
    FAIL(err, EAGLET_E_INPUT, "system: the row and its first message give different texts");
  }
  json_array_append_new(conversation->messages,
                        json_pack("{ss so}", "role", "system", "content", text_value(system, conversation->strip)));
  return EAGLET_OK;
}

/* Token ids instead of messages. */
static enum eaglet_status take_tokens(struct conversation *conversation, const struct row_reading *reading, struct eaglet_error *err) {
  struct row_tokens_read tokens;
  TRY(row_tokens_read(&tokens, reading, err));
  conversation->ids = tokens.ids;
  conversation->mask = tokens.mask;
  conversation->n_ids = tokens.n;
  return EAGLET_OK;
}

static enum eaglet_status normalise_row(struct conversation *conversation, const json_t *row,
                                        struct eaglet_error *err) {
  const struct row_map *map = conversation->map;
  struct row_reading reading;
  TRY(row_layout_read(&reading, row, map, err));
  conversation->layout = reading.layout;
  enum eaglet_status status = normalise_source(conversation, row_value(map, row, FIELD_SOURCE, "source"), err);
  if (status == EAGLET_OK && reading.ids) return take_tokens(conversation, &reading, err);
  if (status == EAGLET_OK) status = normalise_tools(conversation, row_value(map, row, FIELD_TOOLS, "tools"), err);
  if (status == EAGLET_OK)
    status = add_system(conversation, row_value(map, row, FIELD_SYSTEM, "system"), json_array_get(reading.messages, 0), err);
  if (status == EAGLET_OK) status = normalise_messages(conversation, reading.messages, err);
  json_decref(reading.messages);
  return status;
}

enum eaglet_status conversation_normalise(struct conversation *conversation, const json_t *row,
                                          struct eaglet_error *err) {
  conversation_clear(conversation);
  conversation->messages = json_array();
  enum eaglet_status status = normalise_row(conversation, row, err);
  if (status != EAGLET_OK) {
    struct conversation failed = *conversation;
    conversation_clear(conversation);
    memcpy(conversation->unknown_role, failed.unknown_role, sizeof failed.unknown_role);
    conversation->layout = failed.layout;
  }
  return status;
}

void conversation_clear(struct conversation *conversation) {
  json_decref(conversation->messages);
  json_decref(conversation->tools);
  free(conversation->ids);
  free(conversation->mask);
  *conversation = (struct conversation){
      .strip = conversation->strip, .columnar = conversation->columnar, .map = conversation->map, .roles = conversation->roles};
}
