/* row_map.h - what a user says about the fields and roles of their data (`--map messages=dialog,role=speaker,assistant=bot`), parsed once; it
 * comes before the names that are known anyway. docs/DATA.md describes the language. Used by row_layout.c, conversation.c and dataset.c. */
#ifndef EAGLET_DATA_ROW_MAP_H
#define EAGLET_DATA_ROW_MAP_H

#include "base/json.h"

enum row_field { /* of a row, then of a message */
  FIELD_MESSAGES, FIELD_SYSTEM, FIELD_TOOLS, FIELD_SOURCE, FIELD_HISTORY, FIELD_PROMPT, FIELD_INPUT, FIELD_COMPLETION, FIELD_IDS, FIELD_MASK,
  FIELD_ROW_END, FIELD_ROLE = FIELD_ROW_END, FIELD_CONTENT, FIELD_N
};

struct row_map {
  char *paths[FIELD_N]; /* dotted; NULL: not given */
  struct row_role {
    char *name;
    const char *means; /* static: user, assistant, system, tool, function_call */
  } *roles;
  size_t n_roles, roles_capacity;
};
/* text NULL or "" gives an empty map. EAGLET_E_USAGE with the part that is not understood. */
enum eaglet_status row_map_parse(struct row_map *map, const char *text, struct eaglet_error *err) MUST_USE;
void row_map_clear(struct row_map *map);

/* map may be NULL in all of these. */
const char *row_map_path(const struct row_map *map, enum row_field field); /* NULL: not given */
const char *row_map_role(const struct row_map *map, const char *name);     /* what a role's name means; NULL: not given */
/* The value under the dotted path: the whole path as one key first. NULL when there is none. Borrowed. */
const json_t *json_at_path(const json_t *object, const char *path);
/* The mapped path begins with this field. */
bool row_map_begins(const char *path, const char *field);
/* The field's value: under its mapped path, else under name. */
const json_t *row_value(const struct row_map *map, const json_t *row, enum row_field field, const char *name);

#endif
