/* dataset.h - reads conversations from files people have and normalises them. Files: JSON lines, one JSON array, or JSON documents one after
 * the other; told apart by structure, not by name. Rows: ShareGPT ("conversations": from/value), OpenAI ("messages": role/content),
 * a bare array of messages, or a question and its answer in fields of their own (Alpaca's instruction/input/output with system and
 * history, prompt/completion, question/answer ...). Roles human/user, gpt/assistant/model, system/developer,
 * tool/observation/function and function_call become user, assistant, system, tool. Streaming: one row at a time. What cannot be used
 * is skipped by a named rule and counted, never dropped in silence.
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
  const char *layout;                   /* static name of the row's layout: "conversations", "question/answer" ... */
  char unknown_role[48];                /* of the row that cannot be used for it; its messages are then empty (C01) */
  uint64_t line;                        /* in its file, from 1, where the row begins */
  const char *path;                     /* borrowed from the reader */
};
/* Normalises one row object (or a bare messages array). EAGLET_E_INPUT with "message 3: ..." when malformed; the
 * conversation is then empty. Messages count from 0. Content null renders as nothing ("" with tool_calls kept); other
 * fields of a message are kept for the template. A row's own "system" text becomes the first message. A function_call message and
 * the parts {"type": "text" | "reasoning" | "tool_call", "value"} become content, reasoning_content and tool_calls (with ids made up
 * where calls came so); flat tools are wrapped as {"type": "function"}. */
enum eaglet_status conversation_normalise(struct conversation *conversation, const json_t *row,
                                          struct eaglet_error *err) MUST_USE;
/* Releases what it owns and empties it; strip stays. */
void conversation_clear(struct conversation *conversation);

struct dataset_reader;
enum eaglet_status dataset_open(struct dataset_reader **reader, const char *const *paths, size_t n_paths,
                                struct eaglet_error *err) MUST_USE;
/* Fills *conversation (stripped; what it held before is released). *more false at the end. Blank lines are no rows. A
 * malformed row fails with file:line; a file without rows fails by name. A row whose only fault is a role that nobody knows is
 * returned with unknown_role: the caller counts it. */
enum eaglet_status dataset_next(struct dataset_reader *reader, struct conversation *conversation, bool *more,
                                struct eaglet_error *err) MUST_USE;
void dataset_close(struct dataset_reader *reader);

#endif
