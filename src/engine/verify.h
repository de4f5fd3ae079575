/* verify.h - are the captured states right? Against a reference file (CLI.md, row `verify`), or, without one, by proof: the rest of the model,
 * run from every captured state, must give the model's own logits (decision 2). */
#ifndef EAGLET_ENGINE_VERIFY_H
#define EAGLET_ENGINE_VERIFY_H

#include "base/json.h"

/* params->model is a directory. *json: {"ok", "tolerance", "prompts", "layers": [{"state", "max_rel"}], "norm", "logits", "argmax"} or
 * {"ok", "tolerance", "proof": [{"state", "max_rel", "bitwise", "perturbed"}]}; the caller owns the text. EAGLET_E_CHECK, with *json filled and the
 * worst value in err, when something is above tolerance; *json is empty after other failures. */
enum eaglet_status verify_run(const struct eaglet_verify_params *params, struct eaglet_text *json, struct eaglet_error *err) MUST_USE;

#endif
