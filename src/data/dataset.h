/* dataset.h - reads conversations from files people have and normalises them. Files: JSON lines, one JSON array, or JSON documents one after
 * the other, plain or packed by gzip or zstd, and Parquet; told apart by their bytes, not by name; folders and patterns stand for their
 * files. Rows: ShareGPT ("conversations": from/value), OpenAI ("messages": role/content), a bare array of messages, a question and its answer
 * in fields of their own (Alpaca's instruction/input/output with system and history, prompt/completion, question/answer ...), or token ids
 * with a mask. Roles human/user, gpt/assistant/model, system/developer, tool/observation/function and function_call become user, assistant,
 * system, tool. Streaming: one row at a time. What cannot be used is skipped by a named rule and counted, never dropped in silence.
 * docs/DATA.md is the user's page of all this.
 */
#ifndef EAGLET_DATA_DATASET_H
#define EAGLET_DATA_DATASET_H

#include "base/json.h"
#include "base/file.h"

#define CONVERSATION_SOURCE_MAX 64

struct row_map;
struct conversation {
  /* in: how rows are to be read; conversation_clear leaves these four as they are */
  bool strip;                /* strip white space around contents, as data sets need; templates of a request get contents as they are */
  bool columnar;             /* the row comes from a table, which pads objects with nulls: null fields are not there (C07) */
  const struct row_map *map; /* names that the user gave; borrowed, may be NULL */
  json_t *roles;             /* gets {name of a role met: what it was taken for}; borrowed, may be NULL */
  /* out */
  json_t *messages;                     /* normalised array; owned */
  json_t *tools;                        /* the row's tool list (an array, or its JSON in a string), or NULL; owned */
  char source[CONVERSATION_SOURCE_MAX]; /* the row's "source", else the file's stem; "" from conversation_normalise
                                           without one */
  const char *layout;                   /* static name of the row's layout: "conversations", "question/answer" ... */
  int32_t *ids;  /* [n_ids] of a row of token ids, whose messages are empty; owned. Not yet known to be the target's */
  uint8_t *mask; /* [n_ids] 1: learnt; owned */
  size_t n_ids;
  char unknown_role[48];                /* of the row that cannot be used for it; its messages are then empty (C01) */
  uint64_t line;                        /* in its file, from 1, where the row begins; of a table: the row */
  const char *path;                     /* borrowed from the reader */
};
/* Normalises one row object (or a bare messages array). EAGLET_E_INPUT with "message 3: ..." when malformed; the
 * conversation is then empty, but for its layout. Messages count from 0. Content null renders as nothing ("" with tool_calls kept); other
 * fields of a message are kept for the template. A row's own "system" text becomes the first message. A function_call message and
 * the parts {"type": "text" | "reasoning" | "tool_call", "value"} become content, reasoning_content and tool_calls (with ids made up
 * where calls came so); flat tools are wrapped as {"type": "function"}. */
enum eaglet_status conversation_normalise(struct conversation *conversation, const json_t *row,
                                          struct eaglet_error *err) MUST_USE;
/* Releases what it owns and empties it; what is "in" stays. */
void conversation_clear(struct conversation *conversation);

struct dataset_params {
  const char *const *paths; /* [n_paths] files, folders, patterns, "-"; copied */
  size_t n_paths;
  const char *map;          /* row_map.h's language; NULL: none */
  double bad_percent_max;   /* share of bad rows that is passed over; 0: the first is an error */
  bool strict;              /* a role that nobody knows and a row that is too long are errors */
  int32_t row_mib_max;      /* 0: 256 */
};
struct dataset_params dataset_params_of(const struct eaglet_prepare_params *params);

struct dataset_reader;
/* Folders and patterns are looked up here: one without data files fails by name. */
enum eaglet_status dataset_open(struct dataset_reader **reader, const struct dataset_params *params, struct eaglet_error *err) MUST_USE;
/* Fills *conversation (stripped; what it held before is released). *more false at the end. Blank lines are no rows. A
 * malformed row fails with file:line, unless a share of bad rows is allowed: then it is passed over with a warning (the first ten), and the
 * share is checked from the thousandth row on and at the end. A line that is too long is passed over so too, whatever the share. A file
 * without rows, and one that is cut short, fail by name. A row whose only fault is a role that nobody knows is returned with unknown_role:
 * the caller counts it. */
enum eaglet_status dataset_next(struct dataset_reader *reader, struct conversation *conversation, bool *more,
                                struct eaglet_error *err) MUST_USE;
/* What was met so far, a new object: files, files_ignored, fields_used, fields_ignored, roles {name: taken for}, bad_rows, bad {reason: count}, ids_twice (rows
 * whose own "id" an earlier row had), first_id_twice ("file:line: id X"). */
json_t *dataset_describe(const struct dataset_reader *reader);
const struct file_list *dataset_files(const struct dataset_reader *reader); /* every file that is read, in order; borrowed */
/* Bytes read so far of *total, both packed as they stand; *total 0 when it is not known (a pipe). A table counts when it ends. */
uint64_t dataset_position(const struct dataset_reader *reader, uint64_t *total);
void dataset_close(struct dataset_reader *reader);

#endif
