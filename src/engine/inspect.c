/* inspect.c - opens a target only to describe it; see inspect.h. Opening binds and validates every tensor, so a
 * document is also a verdict. */
#include "engine/inspect.h"

#include "model/model.h"

enum eaglet_status inspect_json(json_t **document, const struct eaglet_inspect_params *params, struct eaglet_error *err) {
  struct compute *compute;
  struct model *target;
  *document = NULL;
  TRY(compute_open_cpu(&compute, 1, EAGLET_PRECISION_EXACT, err));
  const struct model_params open = {.path = params->model, .ignore_index = params->ignore_index, .compute = compute};
  enum eaglet_status status = model_open(&target, &open, err);
  if (status == EAGLET_OK) *document = model_describe(target);
  model_close(target);
  compute_close(compute);
  return status;
}
