/* dataset.h - reads conversations from files people have and normalises them: ShareGPT ("conversations": from/value) and OpenAI
 * ("messages": role/content) JSONL; roles human/user, gpt/assistant/model, system, tool/observation/function become user, assistant,
 * system, tool. Streaming: one row at a time. What cannot be used is skipped by a named rule and counted, never dropped in silence.
 */
#ifndef EAGLET_DATA_DATASET_H
#define EAGLET_DATA_DATASET_H

#include "base/json.h"
#include "base/file.h"

struct conversation {
  json_t *messages;      /* normalised array; owned */
  char source[64];       /* the row's "source", else the file's stem */
  uint64_t line;         /* in its file */
  const char *path;      /* borrowed from the reader */
};
/* Normalises one row object (or a bare messages array). EAGLET_E_INPUT with "message 3: ..." when malformed. Content null renders as
 * nothing ("" with tool_calls kept); leading/trailing whitespace of contents is stripped when strip is set. */
enum eaglet_status conversation_normalise(struct conversation *conversation, const json_t *row, struct eaglet_error *err) MUST_USE;
void conversation_clear(struct conversation *conversation);

struct dataset_reader;
enum eaglet_status dataset_open(struct dataset_reader **reader, const char *const *paths, size_t n_paths, struct eaglet_error *err) MUST_USE;
/* *more false at the end. A malformed line fails with file:line. */
enum eaglet_status dataset_next(struct dataset_reader *reader, struct conversation *conversation, bool *more, struct eaglet_error *err) MUST_USE;
void dataset_close(struct dataset_reader *reader);

#endif
