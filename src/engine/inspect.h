/* inspect.h - what a checkpoint is, as one JSON document; the text side (tokenizer, template) is added by src/eaglet.c. */
#ifndef EAGLET_ENGINE_INSPECT_H
#define EAGLET_ENGINE_INSPECT_H

#include "base/json.h"

/* model is a directory. The caller owns *document; NULL after failure. */
enum eaglet_status inspect_json(json_t **document, const char *model, struct eaglet_error *err) MUST_USE;

#endif
