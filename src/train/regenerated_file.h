/* regenerated_file.h - OUT/regenerated.jsonl: one line of settings, then one line per conversation in the order they
 * were finished. Owns resuming: a torn last line is cut off, other settings are refused. A conversation is known by its content, not by its
 * place in the data: data that was filtered, extended or put in another order finds its answers again (C10). regenerate.c decides what
 * the lines say. */
#ifndef EAGLET_TRAIN_REGENERATED_FILE_H
#define EAGLET_TRAIN_REGENERATED_FILE_H

#include "base/file.h"
#include "base/json.h"

struct regenerated_key {
  uint64_t input; /* hash of the conversation's messages and tools */
  uint64_t copy;  /* how many conversations with the same content came before it */
};
struct regenerated_line {
  struct regenerated_key key;
  size_t offset, length; /* of the line */
  uint64_t n_replies;    /* 0: dropped, with a reason in the line */
};
struct regenerated_file {
  char *path;
  struct regenerated_line *lines; /* [n], sorted by key after regenerated_file_open and regenerated_file_read */
  size_t n, capacity;
  struct file_map map;
};
/* Makes the file when it is not there. settings: an object; a file with another one is refused, naming the first field
 * that differs. */
enum eaglet_status regenerated_file_open(struct regenerated_file *file, const char *directory, const json_t *settings,
                                         struct eaglet_error *err) MUST_USE;
const struct regenerated_line *regenerated_file_find(const struct regenerated_file *file,
                                                     const struct regenerated_key *key); /* lines as last read; NULL when absent */
/* line: an object with input (hash as text), copy (integer) and replies (array). Not seen by find before the next read. */
enum eaglet_status regenerated_file_append(struct regenerated_file *file, const json_t *line,
                                           struct eaglet_error *err) MUST_USE;
enum eaglet_status regenerated_file_read(struct regenerated_file *file, struct eaglet_error *err) MUST_USE;
enum eaglet_status regenerated_file_line(const struct regenerated_file *file, const struct regenerated_line *line, json_t **json,
                                         struct eaglet_error *err) MUST_USE; /* caller owns it */
void regenerated_file_close(struct regenerated_file *file);

#endif
