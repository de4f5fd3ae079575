/* dataset.h - reads conversations from files people have and normalises them: ShareGPT ("conversations": from/value)
 * and OpenAI
 * ("messages": role/content) JSONL; roles human/user, gpt/assistant/model, system, tool/observation/function become
 * user, assistant, system, tool. Streaming: one row at a time. What cannot be used is skipped by a named rule and
 * counted, never dropped in silence.
 */
#ifndef EAGLET_DATA_DATASET_H
#define EAGLET_DATA_DATASET_H

#include "base/json.h"
#include "base/file.h"

#define CONVERSATION_SOURCE_MAX 64

struct conversation {
  bool strip; /* in: strip white space around contents, as data sets need; templates of a request get contents as they
                 are */
  json_t *messages;                     /* normalised array; owned */
  json_t *tools;                        /* the row's tool list (an array, or its JSON in a string), or NULL; owned */
  char source[CONVERSATION_SOURCE_MAX]; /* the row's "source", else the file's stem; "" from conversation_normalise
                                           without one */
  uint64_t line;                        /* in its file, from 1 */
  const char *path;                     /* borrowed from the reader */
};
/* Normalises one row object (or a bare messages array). EAGLET_E_INPUT with "message 3: ..." when malformed; the
 * conversation is then empty. Messages count from 0. Content null renders as nothing ("" with tool_calls kept); other
 * fields of a message are kept for the template. A row's own "system" text becomes the first message. */
enum eaglet_status conversation_normalise(struct conversation *conversation, const json_t *row,
                                          struct eaglet_error *err) MUST_USE;
/* Releases what it owns and empties it; strip stays. */
void conversation_clear(struct conversation *conversation);

struct dataset_reader;
enum eaglet_status dataset_open(struct dataset_reader **reader, const char *const *paths, size_t n_paths,
                                struct eaglet_error *err) MUST_USE;
/* Fills *conversation (stripped; what it held before is released). *more false at the end. Blank lines are no rows. A
 * malformed line fails with file:line; a file without rows fails by name. */
enum eaglet_status dataset_next(struct dataset_reader *reader, struct conversation *conversation, bool *more,
                                struct eaglet_error *err) MUST_USE;
void dataset_close(struct dataset_reader *reader);

#endif
