/* intake.h - which conversations can be used, by named rules with counts (nothing is dropped in silence). */
#ifndef EAGLET_TRAIN_INTAKE_H
#define EAGLET_TRAIN_INTAKE_H

#include "data/dataset.h"

struct intake {
  uint64_t n_read;
  json_t *dropped;                      /* {reason: count} */
  json_t *notes;                        /* {what was changed or kept: count} */
  json_t *layouts;                      /* {layout of the rows read: count} */
  json_t *reading;                      /* what dataset_describe told of the data, or NULL */
  char first_refused[EAGLET_ERROR_MAX]; /* why the first conversation that the template refused was refused, with
                                           file:line */
};
void intake_init(struct intake *intake);
void intake_release(struct intake *intake);

/* Counts the row; false: dropped (counted). May change the messages: assistant turns before the first user turn are
 * taken away. */
bool intake_admit(struct intake *intake, struct conversation *conversation, bool regenerate);
void intake_drop(struct intake *intake, const char *reason);
/* For a conversation that the template cannot render or mask: keeps the first error's words. */
void intake_refused(struct intake *intake, const struct conversation *conversation, const struct eaglet_error *err);
/* "empty conversation (3), no user turn (1)" for an error that says why nothing is left. */
void intake_describe(const struct intake *intake, char *text, size_t size);
void count_up(json_t *counts, const char *name, uint64_t n); /* counts[name] += n */

/* Takes the reader's account of files, fields, roles and bad rows, in place of an earlier one. */
void intake_note_reading(struct intake *intake, const struct dataset_reader *reader);

/* Role of message i, "" past the end. */
const char *message_role(const json_t *messages, size_t i);

#endif
