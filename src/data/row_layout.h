/* row_layout.h - from the layouts that data sets have to one list of messages, or to token ids with a mask. Knows which fields of a row each
 * layout reads. Used by conversation.c and dataset.c. */
#ifndef EAGLET_DATA_ROW_LAYOUT_H
#define EAGLET_DATA_ROW_LAYOUT_H

#include "data/row_map.h"

struct row_reading {
  json_t *messages;   /* a new reference to an array of messages as the row has them (roles and contents not yet looked at); NULL for token ids */
  const char *layout; /* static name of what was read: "conversations", "instruction/input/output", "input_ids/labels" */
  const json_t *ids, *mask, *attention; /* of token ids, borrowed from the row; attention may be NULL */
  bool labels;        /* the mask is labels: -100 or the id */
};
/* A field that is null is not there, except where a layout's only answer is. A layout that is no conversation (preference pairs, plain text,
 * token ids without a mask) is refused by name. */
enum eaglet_status row_layout_read(struct row_reading *reading, const json_t *row, const struct row_map *map, struct eaglet_error *err) MUST_USE;

/* Does a row of this layout (a name from row_layout_read) use the field? */
bool row_layout_uses(const char *layout, const struct row_map *map, const char *field);
/* Which of a table's columns its rows can need: wanted[i] is set for names[i]. */
void row_layout_want(bool *wanted, const char *const *names, size_t n, const struct row_map *map);

#endif
