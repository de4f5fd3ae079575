/* row_layout.h - from the layouts that data sets have to one list of messages. Only conversation.c uses it. */
#ifndef EAGLET_DATA_ROW_LAYOUT_H
#define EAGLET_DATA_ROW_LAYOUT_H

#include "base/json.h"

/* *messages gets a new reference to an array of messages as the row has them (roles and contents not yet looked at), *layout a static
 * name of what was read ("conversations", "instruction/input/output"). A layout that is no conversation (preference pairs, plain
 * text, token ids) is refused by name. */
enum eaglet_status row_messages(json_t **messages, const char **layout, const json_t *row, struct eaglet_error *err) MUST_USE;

#endif
