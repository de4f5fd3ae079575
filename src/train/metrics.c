/* metrics.c - see metrics.h. */
#include "train/metrics.h"

#include "base/file.h"
#include "base/util.h"

#include <stdlib.h>
#include <string.h>

char *metrics_path(const char *out) {
  return file_join(out, "metrics.jsonl");
}

static enum eaglet_status append(const char *out, json_t *line, struct eaglet_error *err) {
  struct eaglet_text text = json_dump(line, 0);
  char *path = metrics_path(out);
  enum eaglet_status status = file_append_line(path, text.data, text.length, err);
  free(path);
  free(text.data);
  json_decref(line);
  return status;
}

/* Rounded: nobody reads 17 digits of a rate. */
static json_t *rounded(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.6g", value);
  return json_real(strtod(text, NULL));
}

enum eaglet_status metrics_append_step(const char *out, const struct step_result *r, struct eaglet_error *err) {
  json_t *line = json_object(), *losses = json_array(), *accuracies = json_array(), *acceptances = json_array();
  for (int32_t k = 0; k < r->n_steps; k++) {
    json_array_append_new(losses, json_real(r->step_loss[k]));
    json_array_append_new(accuracies, rounded(step_accuracy(r, k)));
    json_array_append_new(acceptances, rounded(step_acceptance(r, k)));
  }
  json_object_set_new(line, "step", json_integer(r->step));
  json_object_set_new(line, "loss", json_real(r->loss));
  json_object_set_new(line, "step_loss", losses);
  json_object_set_new(line, "step_accuracy", accuracies);
  json_object_set_new(line, "step_acceptance", acceptances);
  json_object_set_new(line, "lr", json_real(r->lr));
  json_object_set_new(line, "grad_norm", json_real(r->grad_norm));
  json_object_set_new(line, "tok_s", rounded((double)r->n_tokens / r->seconds));
  json_object_set_new(line, "gflop_s", rounded(r->flops / r->head_seconds * 1e-9));
  return append(out, line, err);
}

enum eaglet_status metrics_append_eval(const char *out, int64_t step, const json_t *eval, struct eaglet_error *err) {
  json_t *line = json_object(), *sources = json_object();
  const char *name;
  const json_t *row;
  json_object_foreach(json_object_get(eval, "sources"), name, row)
      json_object_set(sources, name, json_object_get(row, "acceptance_length"));
  json_object_set_new(line, "step", json_integer(step));
  json_object_set(line, "acceptance_length", json_object_get(json_object_get(eval, "overall"), "acceptance_length"));
  json_object_set_new(line, "sources", sources);
  return append(out, line, err);
}

enum eaglet_status metrics_rewind(const char *out, int64_t length, struct eaglet_error *err) {
  char *path = metrics_path(out);
  int64_t found = file_length(path);
  enum eaglet_status status = EAGLET_OK;
  if (found > length)
    status = file_truncate(path, (uint64_t)length, err);
  else if (found < length)
    log_warning("%s: expected %lld bytes of earlier steps, found %lld", path, (long long)length,
                (long long)(found < 0 ? 0 : found));
  free(path);
  return status;
}
