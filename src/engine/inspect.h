/* inspect.h - what a checkpoint is, as one JSON document; the text side (tokenizer, template) is added by src/eaglet.c. */
#ifndef EAGLET_ENGINE_INSPECT_H
#define EAGLET_ENGINE_INSPECT_H

#include "base/json.h"

/* params->model is a directory; the draft is not looked at. The caller owns *document; NULL after failure. */
enum eaglet_status inspect_json(json_t **document, const struct eaglet_inspect_params *params, struct eaglet_error *err) MUST_USE;

#endif
