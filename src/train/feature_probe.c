/* feature_probe.c - see feature_probe.h. Owns a capture for the time of the call. The error of a slot against a state is the median over
 * tokens of |slot - state| / |state|: the first token of many models is a giant that hardly changes from layer to layer, and would
 * make neighbours look alike; a token that went to other experts would make a good fit look bad. */
#include "train/feature_probe.h"

#include "base/memory.h"
#include "engine/capture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 3
#define ROW_TOKENS 96

struct probe {
  struct feature_store *store;
  const struct model *model;
  int32_t n_slots, n_candidates; /* candidates: states 0 .. n_layers, and the last one normed */
  int32_t n_tokens;              /* compared so far */
  float *errors;                 /* [n_slots, n_candidates, ROWS * ROW_TOKENS] */
  uint32_t rows[ROWS];
  int32_t lengths[ROWS], n_rows;
};
struct fit {
  int32_t best, second;
  double error, second_error;
};

static float *errors_of(const struct probe *p, int32_t slot, int32_t candidate) {
  return p->errors + ((size_t)slot * (size_t)p->n_candidates + (size_t)candidate) * ROWS * ROW_TOKENS;
}

static void pick_rows(struct probe *p) {
  const struct token_store *tokens = p->store->tokens;
  for (size_t r = 0; r < tokens->n_rows && p->n_rows < ROWS; r++) {
    if (!feature_store_has(p->store, r)) continue;
    p->rows[p->n_rows] = (uint32_t)r;
    p->lengths[p->n_rows++] = tokens->rows[r].n < ROW_TOKENS ? tokens->rows[r].n : ROW_TOKENS;
  }
}

/* stored: [n, n_slots * H]; state: n rows of H, `stride` floats apart. */
static void compare(struct probe *p, const float *stored, const float *state, size_t stride, const int32_t candidate_row[2]) {
  size_t hidden = (size_t)p->store->layout.hidden;
  for (int32_t slot = 0; slot < p->n_slots; slot++) {
    float *errors = errors_of(p, slot, candidate_row[0]) + p->n_tokens;
    for (int32_t t = 0; t < p->lengths[candidate_row[1]]; t++) {
      const float *a = stored + ((size_t)t * (size_t)p->n_slots + (size_t)slot) * hidden, *b = state + (size_t)t * stride;
      double difference = 0, length = 0;
      for (size_t i = 0; i < hidden; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        length += (double)b[i] * b[i];
      }
      errors[t] = length > 0 ? (float)sqrt(difference / length) : difference > 0 ? 1e9f : 0;
    }
  }
}

static enum eaglet_status compare_row(struct probe *p, struct capture *capture, const struct tap_set *taps, const int32_t row_first[2],
                                      struct eaglet_error *err) {
  const struct features *f = &p->model->arch.features;
  const struct token_row *row = &p->store->tokens->rows[p->rows[row_first[0]]];
  int32_t r = row_first[0], first = row_first[1], n = p->lengths[r];
  size_t hidden = (size_t)f->hidden, width = hidden * (size_t)taps->n;
  float *stored = memory_try(sizeof(float) * (size_t)row->n * (size_t)p->n_slots * hidden), *states = memory_try(sizeof(float) * (size_t)n * width),
        *last = memory_try(sizeof(float) * (size_t)n * hidden), *normed = memory_try(sizeof(float) * (size_t)n * hidden);
  enum eaglet_status status = EAGLET_OK;
  if (!stored || !states || !last || !normed) status = error_set(err, EAGLET_E_RESOURCE, "not enough memory for the states of a row of %d tokens", row->n);
  if (status == EAGLET_OK) status = feature_store_read(p->store, p->rows[r], stored, err);
  if (status == EAGLET_OK) status = capture_run(capture, &row->tokens, &n, 1, &states, err);
  for (int32_t i = 0; i < taps->n && status == EAGLET_OK; i++)
    compare(p, stored, states + (size_t)i * hidden, width, (const int32_t[]){first + i, r});
  if (status == EAGLET_OK && first + taps->n - 1 == f->n_layers) {
    for (int32_t t = 0; t < n; t++) memcpy(last + (size_t)t * hidden, states + (size_t)(t + 1) * width - hidden, sizeof(float) * hidden);
    model_final_norm(p->model->compute, p->model, normed, last, n);
    compare(p, stored, normed, hidden, (const int32_t[]){f->n_layers + 1, r});
  }
  memory_try_free(stored), memory_try_free(states), memory_try_free(last), memory_try_free(normed);
  return status;
}

/* All states in groups that a capture can tap. */
static enum eaglet_status measure(struct probe *p, struct eaglet_error *err) {
  int32_t n_layers = p->model->arch.features.n_layers, n_tokens = 0;
  for (int32_t first = 0; first <= n_layers; first += TAPS_MAX) {
    struct capture_params params = {.model = p->model, .tokens_max = ROW_TOKENS};
    struct capture *capture;
    for (int32_t k = first; k <= n_layers && k < first + TAPS_MAX; k++) params.taps.states[params.taps.n++] = k;
    TRY(capture_create(&capture, &params, err));
    enum eaglet_status status = EAGLET_OK;
    p->n_tokens = 0;
    for (int32_t r = 0; r < p->n_rows && status == EAGLET_OK; r++) {
      status = compare_row(p, capture, &params.taps, (const int32_t[]){r, first}, err);
      p->n_tokens += p->lengths[r];
    }
    capture_free(capture);
    TRY(status);
    n_tokens = p->n_tokens;
  }
  p->n_tokens = n_tokens;
  return EAGLET_OK;
}

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static struct fit find_fit(struct probe *p, int32_t slot) {
  struct fit fit = {.best = -1, .second = -1, .error = INFINITY, .second_error = INFINITY};
  for (int32_t c = 0; c < p->n_candidates; c++) {
    float *errors = errors_of(p, slot, c);
    qsort(errors, (size_t)p->n_tokens, sizeof *errors, by_value);
    double error = errors[p->n_tokens / 2];
    if (error < fit.error) {
      fit.second = fit.best;
      fit.second_error = fit.error;
      fit.best = c;
      fit.error = error;
    } else if (error < fit.second_error) {
      fit.second = c;
      fit.second_error = error;
    }
  }
  return fit;
}

/* What rounding can make of a state: that of the stored type, and one to BF16 in each layer, which is how others compute. */
static double error_allowed(const struct probe *p, int32_t candidate) {
  enum dtype dtype = p->store->layout.dtype;
  double stored = dtype == DTYPE_F8_E4M3 ? 0x1p-4 : dtype == DTYPE_BF16 ? 0x1p-8 : dtype == DTYPE_F16 ? 0x1p-11 : 0;
  return stored + 0x1p-8 * sqrt(1.0 + candidate);
}

static const char *candidate_name(const struct probe *p, int32_t candidate, char text[40]) {
  if (candidate == p->n_candidates - 1) snprintf(text, 40, "state %d behind the final norm", candidate - 1);
  else snprintf(text, 40, "state %d", candidate);
  return text;
}

static enum eaglet_status judge_slot(const struct probe *p, const char *path, int32_t slot, const struct fit *fit, struct eaglet_error *err) {
  char best[40], second[40];
  double allowed = error_allowed(p, fit->best);
  if (fit->error > allowed)
    FAIL(err, EAGLET_E_INPUT, "%s: slot %d of %d fits no state of the target: the nearest is %s with an error of %.3g (allowed: %.3g), then %s with %.3g: "
         "states of another model, or not residual streams", path, slot, p->n_slots, candidate_name(p, fit->best, best), fit->error, allowed,
         candidate_name(p, fit->second, second), fit->second_error);
  if (fit->second >= 0 && fit->second_error < 2 * fit->error)
    FAIL(err, EAGLET_E_INPUT, "%s: slot %d of %d fits %s (error %.3g) and %s (%.3g): cannot tell which it is", path, slot, p->n_slots,
         candidate_name(p, fit->best, best), fit->error, candidate_name(p, fit->second, second), fit->second_error);
  return EAGLET_OK;
}

/* Inputs ascend; the last slot is the last state. */
static enum eaglet_status judge_order(const struct probe *p, const char *path, const struct fit *fits, struct eaglet_error *err) {
  char name[40];
  int32_t n_layers = p->n_candidates - 2, n_inputs = p->store->layout.n_states;
  for (int32_t s = 0; s < n_inputs; s++) {
    if (fits[s].best > n_layers || (s > 0 && fits[s].best <= fits[s - 1].best))
      FAIL(err, EAGLET_E_INPUT, "%s: slot %d of %d: expected residual streams in ascending order, found %s behind state %d", path, s, p->n_slots,
           candidate_name(p, fits[s].best, name), s > 0 ? fits[s - 1].best : -1);
  }
  if (p->n_slots > n_inputs && fits[n_inputs].best < n_layers)
    FAIL(err, EAGLET_E_INPUT, "%s: the last slot holds state %d (error %.3g), expected state %d, before or behind the final norm: it was taken %d layer%s "
         "early, and logits made of it are not the target's", path, fits[n_inputs].best, fits[n_inputs].error, n_layers,
         n_layers - fits[n_inputs].best, n_layers - fits[n_inputs].best > 1 ? "s" : "");
  return EAGLET_OK;
}

static json_t *make_table(const struct probe *p, const struct fit *fits) {
  json_t *table = json_array();
  char best[40], second[40];
  for (int32_t s = 0; s < p->n_slots; s++) {
    json_array_append_new(table, json_pack("{si ss sf ss sf}", "slot", s, "fits", candidate_name(p, fits[s].best, best), "error", fits[s].error,
                                           "runner_up", candidate_name(p, fits[s].second, second), "runner_up_error", fits[s].second_error));
  }
  return table;
}

static enum eaglet_status judge(struct probe *p, const char *path, const struct fit *fits, struct eaglet_error *err) {
  int32_t states[FEATURE_STATES_MAX], n_layers = p->n_candidates - 2, n_inputs = p->store->layout.n_states;
  for (int32_t s = 0; s < p->n_slots; s++) TRY(judge_slot(p, path, s, &fits[s], err));
  TRY(judge_order(p, path, fits, err));
  for (int32_t s = 0; s < n_inputs; s++) states[s] = fits[s].best;
  enum feature_last last = p->n_slots == n_inputs              ? FEATURE_LAST_NONE
                           : fits[n_inputs].best == n_layers + 1 ? FEATURE_LAST_NORMED
                                                                 : FEATURE_LAST_RESIDUAL;
  feature_store_name(p->store, states, n_layers, last);
  return EAGLET_OK;
}

enum eaglet_status feature_probe_run(struct feature_store *store, const struct model *model, json_t **table, struct eaglet_error *err) {
  const struct features *f = &model->arch.features;
  struct probe p = {.store = store, .model = model, .n_slots = feature_layout_slots(&store->layout), .n_candidates = f->n_layers + 2};
  struct fit fits[FEATURE_STATES_MAX + 1];
  if (table) *table = NULL;
  if (store->layout.hidden != f->hidden)
    FAIL(err, EAGLET_E_INPUT, "%s: hidden size: expected %d (the target's), found %d", store->path, f->hidden, store->layout.hidden);
  pick_rows(&p);
  if (p.n_rows == 0) FAIL(err, EAGLET_E_INPUT, "%s: no row to measure its states on", store->path);
  p.errors = memory_try(sizeof(float) * (size_t)p.n_slots * (size_t)p.n_candidates * ROWS * ROW_TOKENS);
  if (!p.errors) FAIL(err, EAGLET_E_RESOURCE, "not enough memory to compare %d states", p.n_candidates);
  enum eaglet_status status = measure(&p, err);
  for (int32_t s = 0; s < p.n_slots && status == EAGLET_OK; s++) fits[s] = find_fit(&p, s);
  if (status == EAGLET_OK && table) *table = make_table(&p, fits);
  if (status == EAGLET_OK) status = judge(&p, store->path, fits, err);
  memory_try_free(p.errors);
  return status;
}
