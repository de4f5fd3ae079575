/* regenerate.c - see regenerate.h. Owns the places (one conversation each) that share the engine. Decision 3 makes an
 * answer independent of what else runs, and every draw has its own seed, so concurrency and resuming cannot change a
 * token. */
#include "train/regenerate.h"

#include "base/hash_set.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/util.h"
#include "data/token_shard.h"
#include "engine/engine.h"
#include "train/regenerated_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_SECONDS 0.25

/* One conversation on its way: messages so far, and where in the data's conversation it stands. */
struct place {
  bool taken;
  struct regenerated_key key;
  struct conversation source;
  size_t next; /* first message of the source that was not looked at */
  uint64_t turn;
  json_t *messages, *replies;
  struct token_list prompt;
  struct sequence *sequence;
};

struct regeneration {
  struct regeneration_params params;
  struct regenerated_file file;
  struct dataset_reader *reader;
  struct engine *engine; /* NULL until the first conversation without an answer */
  struct place *places;  /* [concurrency] */
  int32_t n_places, context_max;
  struct regenerated_key *keys;       /* [n_keys] of the data's conversations, in order */
  size_t n_keys, keys_capacity;
  struct hash_set taken;              /* keys that the data had so far */
  bool ended;                         /* the data is read to its end */
  uint64_t n_done, n_total, n_tokens; /* replies; tokens of this run */
  double started, reported;
};

/* ---- what identifies the work ---- */

static json_t *settings_of(const struct regeneration_params *p) {
  char hash[HASH_TEXT_BYTES], chat[HASH_TEXT_BYTES];
  const struct eaglet_prepare_params *s = p->prepare;
  uint64_t chat_hash;
  (void)chat_template_origin(p->renderer->chat, &chat_hash);
  hash_text(hash, p->facts->hash);
  hash_text(chat, chat_hash);
  return json_pack("{ss si ss ss sf si si sI sb ss}", "format", "eaglet-regenerated", "version", 2, "model", hash, "template", chat,
                   "temperature", (double)s->temperature, "reply_tokens_max", s->reply_tokens_max, "tokens_max",
                   s->tokens_max, "seed", (json_int_t)s->seed, "special_in_content", s->special_in_content,
                   "template_arguments", s->arguments_json ? s->arguments_json : "");
}

static uint64_t input_hash(const struct conversation *conversation) {
  struct eaglet_text text = json_dump(conversation->messages, 0);
  uint64_t hash = file_hash(text.data, text.length, 0);
  free(text.data);
  if (conversation->tools) {
    text = json_dump(conversation->tools, 0);
    hash = file_hash(text.data, text.length, hash);
    free(text.data);
  }
  return hash;
}

/* The conversation's key, which no earlier one of this run has. */
static struct regenerated_key next_key(struct regeneration *r, const struct conversation *conversation) {
  struct regenerated_key key = {.input = input_hash(conversation)};
  while (!hash_set_insert(&r->taken, file_hash(&key, sizeof key, 0))) key.copy++;
  return key;
}

/* ---- turns ---- */

/* Moves the messages before the next reply into `messages` and steps over the replies it replaces; false: no reply is
 * due any more. */
static bool next_turn(const json_t *source, size_t *next, json_t *messages) {
  size_t n = json_array_size(source), first = *next;
  bool asked = false;
  for (; *next < n && strcmp(message_role(source, *next), "assistant") != 0; ++*next) {
    asked |= strcmp(message_role(source, *next), "user") == 0;
    if (messages) json_array_append(messages, json_array_get(source, *next));
  }
  bool due = asked || (*next > first && *next < n);
  while (*next < n && strcmp(message_role(source, *next), "assistant") == 0) ++*next;
  return due;
}

static uint64_t count_turns(const json_t *source) {
  size_t next = 0;
  uint64_t n = 0;
  while (next_turn(source, &next, NULL)) n++;
  return n;
}

/* Reads the data once before the work: a malformed line shows now and not after hours, and the progress knows its end.
 */
static enum eaglet_status count_total(struct regeneration *r, struct eaglet_error *err) {
  const struct eaglet_prepare_params *p = r->params.prepare;
  struct dataset_reader *reader = NULL;
  struct conversation conversation = {0};
  struct intake intake;
  bool more = true;
  for (size_t i = 0; i < p->n_data; i++) {
    if (strcmp(p->data[i], "-") == 0) return EAGLET_OK; /* standard input cannot be read twice */
  }
  const struct dataset_params data = dataset_params_of(p);
  TRY(dataset_open(&reader, &data, err));
  intake_init(&intake);
  enum eaglet_status status = EAGLET_OK;
  while (status == EAGLET_OK && more) {
    status = dataset_next(reader, &conversation, &more, err);
    if (status == EAGLET_OK && more && intake_admit(&intake, &conversation, true))
      r->n_total += count_turns(conversation.messages);
  }
  conversation_clear(&conversation);
  intake_release(&intake);
  dataset_close(reader);
  return status;
}

/* ---- places ---- */

static void place_clear(struct place *place) {
  sequence_free(place->sequence);
  conversation_clear(&place->source);
  json_decref(place->messages);
  json_decref(place->replies);
  token_list_clear(&place->prompt);
  *place = (struct place){0};
}

/* Writes what was reached; without any reply it is a dropped row, with the reason. */
static enum eaglet_status place_finish(struct regeneration *r, struct place *place, const char *reason,
                                       struct eaglet_error *err) {
  char hash[HASH_TEXT_BYTES];
  hash_text(hash, place->key.input);
  json_t *line = json_pack("{ss sI ss sI}", "input", hash, "copy", (json_int_t)place->key.copy, "source",
                           place->source.source, "line", (json_int_t)place->source.line);
  if (json_array_size(place->replies) > 0) {
    json_object_set(line, "messages", place->messages);
    if (place->source.tools) json_object_set(line, "tools", place->source.tools);
    json_object_set(line, "replies", place->replies);
  } else {
    json_object_set_new(line, "dropped", json_string(reason));
    intake_drop(r->params.intake, reason);
  }
  enum eaglet_status status = regenerated_file_append(&r->file, line, err);
  json_decref(line);
  place_clear(place);
  return status;
}

static enum eaglet_status place_ask(struct regeneration *r, struct place *place, struct eaglet_error *err) {
  const struct eaglet_prepare_params *p = r->params.prepare;
  struct eaglet_error refused = {0};
  if (!next_turn(place->source.messages, &place->next, place->messages))
    return place_finish(r, place, "no user turn", err);
  enum eaglet_status status =
      renderer_prompt(r->params.renderer, place->messages, place->source.tools, &place->prompt, &refused);
  if (status == EAGLET_E_INPUT && json_array_size(place->replies) == 0) {
    if (!*r->params.intake->first_refused)
      snprintf(r->params.intake->first_refused, sizeof refused.message, "%.1000s", refused.message);
    return place_finish(r, place, "refused by the chat template", err);
  }
  if (status == EAGLET_E_INPUT || (status == EAGLET_OK && place->prompt.n >= (size_t)r->context_max))
    return place_finish(r, place, "prompt longer than a row", err);
  if (status != EAGLET_OK) {
    if (err) *err = refused;
    return status;
  }
  const struct eaglet_sequence_params params = {.prompt = place->prompt.ids,
                                                .n_prompt = (int32_t)place->prompt.n,
                                                .output_max = p->reply_tokens_max,
                                                .draft_len = -1,
                                                .temperature = p->temperature,
                                                .seed = random_u64(p->seed, file_hash(&place->key, sizeof place->key, 0), place->turn)};
  return sequence_create(&place->sequence, r->engine, &params, err);
}

/* Takes the finished answer into the conversation and goes on to the next turn. */
static enum eaglet_status place_answer(struct regeneration *r, struct place *place, struct eaglet_error *err) {
  const int32_t *ids;
  int32_t n = sequence_output(place->sequence, &ids);
  enum eaglet_stop stop = sequence_stop(place->sequence);
  bool ended = stop == EAGLET_STOP_TOKEN;
  struct eaglet_text text = renderer_text(r->params.renderer, ids, n - ended);
  json_t *list = json_array();
  for (int32_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
  json_array_append_new(place->messages,
                        json_pack("{ss so}", "role", "assistant", "content", json_stringn(text.data, text.length)));
  json_array_append_new(place->replies, json_pack("{ss so}", "stop",
                                                  ended                        ? "token"
                                                  : stop == EAGLET_STOP_LENGTH ? "length"
                                                                               : "context",
                                                  "ids", list));
  free(text.data);
  sequence_free(place->sequence);
  place->sequence = NULL;
  place->turn++;
  r->n_done++;
  r->n_tokens += (uint64_t)n;
  return stop == EAGLET_STOP_CONTEXT ? place_finish(r, place, "", err) : place_ask(r, place, err);
}

static enum eaglet_status open_engine(struct regeneration *r, struct eaglet_error *err) {
  const struct eaglet_prepare_params *p = r->params.prepare;
  const struct eaglet_engine_params params = {.model = p->model,
                                              .ignore_index = p->ignore_index,
                                              .threads = p->threads,
                                              .sequences_max = r->n_places,
                                              .context_max = r->context_max};
  return engine_open(&r->engine, &params, err);
}

/* A conversation that an earlier run finished; one that it dropped counts again. */
static enum eaglet_status count_answered(struct regeneration *r, const struct regenerated_line *line, struct eaglet_error *err) {
  json_t *json = NULL;
  r->n_done += line->n_replies;
  if (line->n_replies > 0) return EAGLET_OK;
  TRY(regenerated_file_line(&r->file, line, &json, err));
  const char *reason = json_string_value(json_object_get(json, "dropped"));
  intake_drop(r->params.intake, reason ? reason : "no reply");
  json_decref(json);
  return EAGLET_OK;
}

/* The next conversation of the data that has no answer, into a free place. */
static enum eaglet_status place_fill(struct regeneration *r, struct place *place, struct eaglet_error *err) {
  struct conversation *source = &place->source;
  while (!r->ended) {
    bool more;
    TRY(dataset_next(r->reader, source, &more, err));
    r->ended = !more;
    if (!more) break;
    if (!intake_admit(r->params.intake, source, true)) continue;
    struct regenerated_key key = next_key(r, source);
    MEMORY_GROW(r->keys, r->keys_capacity, r->n_keys + 1);
    r->keys[r->n_keys++] = key;
    const struct regenerated_line *line = regenerated_file_find(&r->file, &key);
    if (line) {
      TRY(count_answered(r, line, err));
      continue;
    }
    if (!r->engine) TRY(open_engine(r, err));
    place->taken = true;
    place->key = key;
    place->messages = json_array();
    place->replies = json_array();
    return place_ask(r, place, err);
  }
  conversation_clear(source);
  return EAGLET_OK;
}

/* ---- the loop ---- */

static enum eaglet_status tell(struct regeneration *r, struct eaglet_error *err) {
  double now = time_now();
  char note[64];
  if (now - r->reported < REPORT_SECONDS) return EAGLET_OK;
  r->reported = now;
  snprintf(note, sizeof note, "%.0f tok/s", (double)r->n_tokens / (now - r->started));
  if (progress_report(&r->params.prepare->progress, "regenerate", "replies", r->n_done, r->n_total, note))
    return EAGLET_OK;
  FAIL(err, EAGLET_E_INTERRUPTED, "%s: stopped with %llu replies done; run the same command to go on", r->file.path,
       (unsigned long long)r->n_done);
}

static enum eaglet_status generate_all(struct regeneration *r, struct eaglet_error *err) {
  int32_t n_taken;
  do {
    n_taken = 0;
    for (int32_t i = 0; i < r->n_places; i++) {
      struct place *place = &r->places[i];
      while (!place->taken && !r->ended) TRY(place_fill(r, place, err)); /* a row may be dropped at once */
      n_taken += place->taken;
    }
    if (n_taken == 0) break;
    int32_t n_live;
    TRY(engine_step(r->engine, &n_live, err));
    for (int32_t i = 0; i < r->n_places; i++) {
      struct place *place = &r->places[i];
      if (place->taken && sequence_stop(place->sequence) != EAGLET_STOP_NONE) TRY(place_answer(r, place, err));
    }
    TRY(tell(r, err));
  } while (true);
  r->reported = 0;
  return tell(r, err);
}

static enum eaglet_status run(struct regeneration *r, struct eaglet_error *err) {
  const struct eaglet_prepare_params *p = r->params.prepare;
  json_t *settings = settings_of(&r->params);
  enum eaglet_status status = regenerated_file_open(&r->file, p->out, settings, err);
  json_decref(settings);
  TRY(status);
  TRY(count_total(r, err));
  const struct dataset_params data = dataset_params_of(p);
  TRY(dataset_open(&r->reader, &data, err));
  r->started = time_now();
  TRY(generate_all(r, err));
  return regenerated_file_read(&r->file, err);
}

static void drop_working_state(struct regeneration *r) {
  for (int32_t i = 0; i < r->n_places; i++) place_clear(&r->places[i]);
  free(r->places);
  r->places = NULL;
  r->n_places = 0;
  engine_close(r->engine);
  r->engine = NULL;
  if (r->reader) intake_note_reading(r->params.intake, r->reader);
  dataset_close(r->reader);
  r->reader = NULL;
}

enum eaglet_status regeneration_run(struct regeneration **out, const struct regeneration_params *params,
                                    struct eaglet_error *err) {
  struct regeneration *r = memory_alloc(sizeof *r);
  const struct eaglet_prepare_params *p = params->prepare;
  *out = NULL;
  *r = (struct regeneration){.params = *params, .n_places = p->concurrency};
  r->context_max = p->tokens_max < params->facts->positions_max ? p->tokens_max : params->facts->positions_max;
  r->places = memory_alloc((size_t)r->n_places * sizeof *r->places);
  enum eaglet_status status = run(r, err);
  drop_working_state(r);
  if (status == EAGLET_OK)
    *out = r;
  else
    regeneration_close(r);
  return status;
}

/* ---- reading the answers ---- */

size_t regeneration_count(const struct regeneration *r) {
  return r->n_keys;
}

static enum eaglet_status read_replies(const json_t *list, struct reply_list *replies, struct eaglet_error *err) {
  size_t i, k;
  json_t *entry, *id;
  replies->replies = memory_alloc((json_array_size(list) + 1) * sizeof *replies->replies);
  json_array_foreach(list, i, entry) {
    const json_t *ids = json_object_get(entry, "ids");
    const char *stop = json_string_value(json_object_get(entry, "stop"));
    if (!json_is_array(ids) || !stop) FAIL(err, EAGLET_E_INPUT, "replies[%zu]: expected ids and stop", i);
    struct reply *reply = &replies->replies[replies->n++];
    *reply = (struct reply){.ids = memory_alloc((json_array_size(ids) + 1) * sizeof *reply->ids),
                            .n = (int32_t)json_array_size(ids),
                            .ended = strcmp(stop, "token") == 0};
    json_array_foreach(ids, k, id) {
      json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
      if (value < 0 || value > INT32_MAX)
        FAIL(err, EAGLET_E_INPUT, "replies[%zu]: ids[%zu]: expected a token id", i, k);
      reply->ids[k] = (int32_t)value;
    }
    if (reply->ended && reply->n == 0)
      FAIL(err, EAGLET_E_INPUT, "replies[%zu]: ids: expected the end-of-turn token, found none", i);
  }
  return EAGLET_OK;
}

static enum eaglet_status read_row(const json_t *line, struct conversation *conversation, struct reply_list *replies,
                                   struct eaglet_error *err) {
  if (!json_object_get(line, "replies")) { /* dropped: an empty conversation */
    conversation->messages = json_array();
    return EAGLET_OK;
  }
  TRY(conversation_normalise(conversation, line,
                             err)); /* as written: nothing is stripped, so that the text stays the ids' text */
  conversation->line = (uint64_t)json_integer_value(json_object_get(line, "line"));
  return read_replies(json_object_get(line, "replies"), replies, err);
}

enum eaglet_status regeneration_row(const struct regeneration *r, size_t i, struct conversation *conversation,
                                    struct reply_list *replies, struct eaglet_error *err) {
  const struct regenerated_line *line = regenerated_file_find(&r->file, &r->keys[i]);
  json_t *json = NULL;
  *replies = (struct reply_list){0};
  conversation->strip = false;
  conversation_clear(conversation);
  ASSERT(line); /* the run answered every one */
  TRY(regenerated_file_line(&r->file, line, &json, err));
  enum eaglet_status status = read_row(json, conversation, replies, err);
  if (status != EAGLET_OK) error_prefix(err, "%s: conversation %016llx", r->file.path, (unsigned long long)line->key.input);
  json_decref(json);
  return status;
}

void reply_list_clear(struct reply_list *list) {
  for (size_t i = 0; i < list->n; i++) free(list->replies[i].ids);
  free(list->replies);
  *list = (struct reply_list){0};
}

void regeneration_close(struct regeneration *r) {
  if (!r) return;
  drop_working_state(r);
  regenerated_file_close(&r->file);
  hash_set_release(&r->taken);
  free(r->keys);
  free(r);
}
