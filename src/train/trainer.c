/* trainer.c - see trainer.h. The run: start or resume, steps, saves, evaluations, report. What is written and when:
 *   metrics.jsonl  a line per step, before the state that counts it
 *   state/         every save_every steps and whenever the run stops, for whatever reason
 *   the head       together with every state (a stopped run leaves a usable head)
 */
#include "train/trainer.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/util.h"
#include "train/evaluate.h"
#include "train/trainer_internal.h"

#include <stdio.h>
#include <stdlib.h>

struct run {
  struct trainer trainer;
  struct step_result last;
  json_t *eval;       /* of the last evaluation, or NULL */
  int64_t first_step; /* of this run */
  int64_t n_tokens;
  double seconds, head_seconds, flops;
};

/* ---- saving ---- */

static char *facts_text(const struct run *r) {
  const struct trainer *t = &r->trainer;
  json_t *facts = json_pack("{ss sI sO}", "producer", "eaglet", "steps", (json_int_t)t->step, "settings", t->identity);
  if (r->last.step > 0) json_object_set_new(facts, "loss", json_real(r->last.loss));
  struct eaglet_text text = json_dump(facts, 0);
  json_decref(facts);
  return text.data;
}

static enum eaglet_status export_head(const struct run *r, struct eaglet_error *err) {
  const struct trainer *t = &r->trainer;
  char *facts = facts_text(r);
  const struct head_export export_ = {.config = &t->config,
                                      .map = &t->map,
                                      .parameters = optimizer_result(&t->optimizer, t->parameters),
                                      .dtype = DTYPE_BF16,
                                      .target = t->model,
                                      .metadata_json = facts};
  enum eaglet_status status = head_export(t->settings.out, &export_, err);
  free(facts);
  return status;
}

static int32_t threads_of(const struct trainer *t) {
  return t->settings.threads > 0 ? t->settings.threads : threads_available();
}

static enum eaglet_status save(const struct run *r, struct eaglet_error *err) {
  const struct trainer *t = &r->trainer;
  char *path = metrics_path(t->settings.out);
  int64_t length = file_length(path);
  free(path);
  const struct train_state state = {.n_parameters = t->n_parameters,
                                    .parameters = t->parameters,
                                    .m = t->optimizer.m,
                                    .v = t->optimizer.v,
                                    .average = t->optimizer.average,
                                    .step = t->step,
                                    .rows_seen = t->rows_seen,
                                    .metrics_length = length > 0 ? length : 0,
                                    .threads = threads_of(t),
                                    .settings = t->identity};
  TRY(train_state_save(&state, t->settings.out, err));
  return export_head(r, err);
}

/* ---- start ---- */

static enum eaglet_status resume(struct trainer *t, struct eaglet_error *err) {
  struct train_state state = {.n_parameters = t->n_parameters,
                              .parameters = t->parameters,
                              .m = t->optimizer.m,
                              .v = t->optimizer.v,
                              .average = t->optimizer.average,
                              .settings = t->identity};
  TRY(train_state_load(&state, t->settings.out, err));
  if (state.threads > 0 && state.threads != threads_of(t))
    log_warning("%s: saved by a run with %d threads, going on with %d: the last bits of sums may differ from a run that was not "
                "interrupted; --threads %d is exact",
                t->settings.out, state.threads, threads_of(t), state.threads);
  t->step = state.step;
  t->rows_seen = state.rows_seen;
  return metrics_rewind(t->settings.out, state.metrics_length, err);
}

/* A saved state is hours of work: without --resume it is not overwritten. --resume without one starts from the
 * beginning, so that a script may always pass it. */
static enum eaglet_status start(struct run *r, struct eaglet_error *err) {
  struct trainer *t = &r->trainer;
  const char *out = t->settings.out;
  TRY(file_make_directory(out, err));
  if (train_state_exists(out)) {
    if (!t->settings.resume)
      FAIL(err, EAGLET_E_USAGE, "%s: holds a saved state; continue with --resume, or remove %s/state to start over",
           out, out);
    TRY(resume(t, err));
  } else {
    char *path = metrics_path(out);
    enum eaglet_status status = file_remove(path, err);
    free(path);
    TRY(status);
  }
  r->first_step = t->step;
  return settings_write_ini(&t->settings, &t->config, err);
}

/* ---- evaluation ---- */

static enum eaglet_status evaluate(struct run *r, struct eaglet_error *err) {
  const struct eaglet_train_params *s = &r->trainer.settings;
  const struct eaglet_eval_params params = {.model = s->model,
                                            .ignore_index = s->ignore_index,
                                            .draft = s->out,
                                            .prompts = &s->eval_prompts,
                                            .n_prompts = 1,
                                            .prompts_max = s->eval_prompts_max,
                                            .draft_len = s->unroll,
                                            .concurrency = 8,
                                            .no_plain = true,
                                            .seed = s->seed,
                                            .threads = s->threads,
                                            .progress = s->progress};
  struct eaglet_text text = {0};
  enum eaglet_status status = evaluate_run(&params, &text, err);
  json_t *eval = NULL;
  if (status == EAGLET_OK) status = json_parse(&eval, text.data, text.length, "evaluation", err);
  free(text.data);
  TRY(status);
  json_decref(r->eval);
  r->eval = eval;
  return metrics_append_eval(s->out, r->trainer.step, eval, err);
}

/* ---- the loop ---- */

static bool tell(const struct run *r) {
  const struct trainer *t = &r->trainer;
  char note[96];
  snprintf(note, sizeof note, "loss %.3f accuracy %.3f %.0f tok/s %.0f GFLOP/s", r->last.loss,
           step_accuracy(&r->last, 0), (double)r->last.n_tokens / r->last.seconds,
           r->last.flops / r->last.head_seconds * 1e-9);
  return progress_report(&t->settings.progress, "train", "step", (uint64_t)t->step, (uint64_t)t->schedule.total, note);
}

static enum eaglet_status one_step(struct run *r, struct eaglet_error *err) {
  struct step_result result;
  TRY(trainer_step(&r->trainer, &result, err));
  TRY(metrics_append_step(r->trainer.settings.out, &result, err));
  r->last = result;
  r->n_tokens += result.n_tokens;
  r->seconds += result.seconds;
  r->head_seconds += result.head_seconds;
  r->flops += result.flops;
  if (!tell(r))
    FAIL(err, EAGLET_E_INTERRUPTED, "stopped after step %lld of %lld; continue with --resume",
         (long long)r->trainer.step, (long long)r->trainer.schedule.total);
  return EAGLET_OK;
}

/* Whatever ends the loop early, the last good step is saved; a failure to save is then only told when there is nothing
 * worse to tell. */
static enum eaglet_status train_loop(struct run *r, struct eaglet_error *err) {
  struct trainer *t = &r->trainer;
  const struct eaglet_train_params *s = &t->settings;
  int64_t saved = t->step;
  while (t->step < t->schedule.total && !(s->stop_after && t->step - r->first_step >= s->stop_after)) {
    enum eaglet_status status = one_step(r, err);
    if (status != EAGLET_OK) {
      struct eaglet_error second;
      if (t->step > saved && save(r, &second) != EAGLET_OK) log_warning("%s", second.message);
      return status;
    }
    bool due = s->eval_prompts && s->eval_every && t->step % s->eval_every == 0 && t->step < t->schedule.total;
    if (due || t->step % s->save_every == 0) {
      TRY(save(r, err));
      saved = t->step;
    }
    if (due) TRY(evaluate(r, err));
  }
  if (t->step > saved) return save(r, err);
  return t->step == r->first_step ? export_head(r, err)
                                  : EAGLET_OK; /* nothing to do, but a kill may have come between state and head */
}

static struct eaglet_text report_of(const struct run *r) {
  const struct trainer *t = &r->trainer;
  json_t *report = json_object(), *accuracy = json_array();
  json_t *acceptance = json_array();
  for (int32_t k = 0; k < r->last.n_steps; k++) json_array_append_new(accuracy, json_real(step_accuracy(&r->last, k)));
  for (int32_t k = 0; k < r->last.n_steps; k++) json_array_append_new(acceptance, json_real(step_acceptance(&r->last, k)));
  json_object_set_new(report, "out", json_string(t->settings.out));
  json_object_set_new(report, "steps", json_integer(t->step));
  json_object_set_new(report, "steps_total", json_integer(t->schedule.total));
  json_object_set_new(report, "finished", json_boolean(t->step == t->schedule.total));
  json_object_set_new(report, "loss", json_real(r->last.loss));
  json_object_set_new(report, "step_accuracy", accuracy);
  json_object_set_new(report, "step_acceptance", acceptance);
  json_object_set_new(report, "rows", json_integer((json_int_t)t->n_usable));
  json_object_set_new(report, "rows_without_loss", json_integer((json_int_t)(t->tokens.n_rows - t->n_usable)));
  if (t->source.slots) json_object_set(report, "feature_slots", t->source.slots);
  json_object_set_new(report, "parameters", json_integer((json_int_t)t->n_parameters));
  json_object_set_new(report, "draft_vocabulary", json_integer(t->map.n_draft));
  json_object_set_new(report, "seconds", json_real(r->seconds));
  json_object_set_new(report, "tok_s", json_real(r->seconds > 0 ? (double)r->n_tokens / r->seconds : 0));
  json_object_set_new(report, "gflop_s", json_real(r->head_seconds > 0 ? r->flops / r->head_seconds * 1e-9 : 0));
  json_object_set(report, "eval", r->eval ? r->eval : json_null());
  struct eaglet_text text = json_dump(report, 0);
  json_decref(report);
  return text;
}

static enum eaglet_status run_all(struct run *r, struct eaglet_error *err) {
  TRY(start(r, err));
  TRY(train_loop(r, err));
  bool finished = r->trainer.step == r->trainer.schedule.total;
  return finished && r->trainer.settings.eval_prompts ? evaluate(r, err) : EAGLET_OK;
}

enum eaglet_status train_run(const struct eaglet_train_params *params, struct eaglet_text *report,
                             struct eaglet_error *err) {
  struct run r = {0};
  *report = (struct eaglet_text){0};
  TRY(trainer_open(&r.trainer, params, err));
  enum eaglet_status status = run_all(&r, err);
  if (status == EAGLET_OK) *report = report_of(&r);
  json_decref(r.eval);
  trainer_close(&r.trainer);
  return status;
}
