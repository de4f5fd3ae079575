/* verify.c - runs the target on given tokens and compares; see verify.h. Owns a small forward of its own, so that it
 * depends on nothing but the layer loop that it judges. Two judges share the passes: verify_reference (a file) and
 * verify_proof (the model itself). */
#include "engine/verify.h"

#include "base/memory.h"
#include "base/util.h"
#include "model/forward.h"
#include "model/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 128
#define TOLERANCE_DEFAULT 2e-3
#define TIE_GAP 1e-3      /* two logits closer than this may swap between runtimes */
#define MAX_REL_CAP 1e300 /* JSON has no infinity */

struct verifier {
  struct compute *compute;
  struct model *model;
  struct forward *forward;
  struct kv_cache kv;
  struct kv_sequence sequence;
  struct batch batch;
  float *start; /* device [ROWS_MAX, H] */
  double tolerance;
  json_t *document;
  double worst; /* largest value judged so far, and its name */
  char worst_name[96];
};

/* What one pass over n tokens gives; host arrays, NULL: not wanted. */
struct pass {
  const int32_t *tokens;
  int32_t n;
  struct tap_set taps;
  const float *start; /* [n, H] residual at start_state, or NULL */
  int32_t start_state;
  float *states;        /* [taps.n, n, H] */
  float *norm, *logits; /* [n, H], [n, V] */
};

static void verifier_close(struct verifier *v) {
  batch_release(&v->batch);
  if (v->sequence.cache) kv_sequence_release(&v->sequence);
  if (v->kv.pools) kv_cache_release(&v->kv);
  if (v->start) v->compute->free(v->compute, v->start);
  forward_free(v->forward);
  model_close(v->model);
  if (v->compute) compute_close(v->compute);
}

static enum eaglet_status verifier_open(struct verifier *v, const struct eaglet_verify_params *params,
                                        int32_t tokens_max, struct eaglet_error *err) {
  enum eaglet_precision precision =
      params->precision == EAGLET_PRECISION_DEFAULT ? EAGLET_PRECISION_EXACT : params->precision;
  int32_t n_pages = (tokens_max - 1) / KV_PAGE_TOKENS + 1;
  TRY(compute_open_cpu(&v->compute, params->threads, precision, err));
  /* Scalings that follow the context's length are those of the longest prompt, as in the run that made the reference. */
  const struct model_params open = {.path = params->model, .compute = v->compute, .positions_max = tokens_max};
  TRY(model_open(&v->model, &open, err));
  TRY(forward_create(&v->forward, v->model, ROWS_MAX, n_pages, err));
  TRY(kv_cache_init(&v->kv, v->compute, v->model->arch.features.n_layers, model_kv_entry_floats(v->model), n_pages, err));
  TRY(kv_sequence_init(&v->sequence, &v->kv, tokens_max, err));
  TRY(kv_sequence_reserve(&v->sequence, tokens_max, err));
  v->start = v->compute->alloc(v->compute, (size_t)ROWS_MAX * (size_t)v->model->arch.features.hidden * sizeof(float));
  if (!v->start) FAIL(err, EAGLET_E_RESOURCE, "verify: no memory for %d rows", ROWS_MAX);
  batch_init(&v->batch, ROWS_MAX);
  return EAGLET_OK;
}

/* Copies a chunk's results to their places. */
static void keep(struct verifier *v, const struct pass *pass, const struct forward_run *run, int32_t begin) {
  struct compute *c = v->compute;
  size_t hidden = (size_t)v->model->arch.features.hidden, n_vocab = (size_t)v->model->arch.features.n_vocab,
         n = (size_t)run->batch->n, at = (size_t)begin;
  for (int32_t t = 0; pass->states && t < pass->taps.n; t++) {
    for (size_t i = 0; i < n; i++) {
      float *to = pass->states + ((size_t)t * (size_t)pass->n + at + i) * hidden;
      c->download(c, to, run->tapped + (i * (size_t)pass->taps.n + (size_t)t) * hidden, hidden * sizeof(float));
    }
  }
  if (pass->norm) c->download(c, pass->norm + at * hidden, run->normed, n * hidden * sizeof(float));
  if (pass->logits) c->download(c, pass->logits + at * n_vocab, run->logits, n * n_vocab * sizeof(float));
}

static enum eaglet_status pass_run(struct verifier *v, const struct pass *pass, struct eaglet_error *err) {
  size_t hidden = (size_t)v->model->arch.features.hidden;
  for (int32_t begin = 0; begin < pass->n; begin += ROWS_MAX) {
    int32_t n = pass->n - begin < ROWS_MAX ? pass->n - begin : ROWS_MAX;
    batch_reset(&v->batch);
    for (int32_t i = begin; i < begin + n; i++) {
      struct batch_row *row = batch_add(&v->batch);
      *row = (struct batch_row){
          .token = pass->tokens[i], .position = i, .slot = i, .kv = &v->sequence, .wants_logits = true};
    }
    struct forward_run run = {.batch = &v->batch,
                              .kv = &v->kv,
                              .taps = pass->taps,
                              .start_state = pass->start_state,
                              .no_head = !pass->norm && !pass->logits};
    if (pass->start) {
      v->compute->upload(v->compute, v->start, pass->start + (size_t)begin * hidden,
                         (size_t)n * hidden * sizeof(float));
      run.start = v->start;
    }
    TRY(forward_run(v->forward, &run, err));
    keep(v, pass, &run, begin);
  }
  return EAGLET_OK;
}

static double max_rel(const float *a, const float *b, size_t n) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(a[i]) || !isfinite(b[i])) return MAX_REL_CAP;
    difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
    largest = fmax(largest, fabs((double)b[i]));
  }
  return largest > 0 ? difference / largest : difference > 0 ? MAX_REL_CAP : 0;
}

/* Remembers the worst value, for the message. */
static void judge(struct verifier *v, double value, const char *format, const char *prefix, int32_t number) {
  if (value <= v->worst) return;
  v->worst = value;
  snprintf(v->worst_name, sizeof v->worst_name, format, prefix, number);
}

static enum eaglet_status verdict(struct verifier *v, const char *against, struct eaglet_error *err) {
  bool ok = v->worst <= v->tolerance;
  json_object_set_new(v->document, "ok", json_boolean(ok));
  json_object_set_new(v->document, "tolerance", json_real(v->tolerance));
  if (ok) return EAGLET_OK;
  FAIL(err, EAGLET_E_CHECK, "%s: expected at most %g from %s, found %.3g", v->worst_name, v->tolerance, against,
       v->worst);
}

/* ---- against a reference file ---- */

/* Largest error of one kind of value over all prompts. */
struct tally {
  double max_rel;
  bool compared;
};
struct errors {
  struct tally *states, norm, logits; /* states: index = state */
  bool has_argmax;
  int64_t n_argmax, n_wrong, n_ties;
};
/* One tensor of a prompt beside ours. */
struct comparison {
  const char *name;
  const float *own; /* [n_tokens, width] */
  int32_t n_tokens, width;
};

static enum eaglet_status compare(struct tally *tally, const struct reference_prompt *p, const struct comparison *with,
                                  struct eaglet_error *err) {
  float *expected;
  TRY(reference_floats(&expected, p, with->name, with->n_tokens, with->width, err));
  if (!expected) return EAGLET_OK;
  tally->compared = true;
  tally->max_rel = fmax(tally->max_rel, max_rel(with->own, expected, (size_t)with->n_tokens * (size_t)with->width));
  free(expected);
  return EAGLET_OK;
}

/* States in groups of TAPS_MAX, so that any depth fits. */
static enum eaglet_status compare_states(struct verifier *v, const struct reference_prompt *p, struct errors *errors,
                                         struct eaglet_error *err) {
  int32_t n_layers = v->model->arch.features.n_layers, hidden = v->model->arch.features.hidden;
  size_t span = (size_t)p->n * (size_t)hidden;
  float *states = memory_alloc(TAPS_MAX * span * sizeof(float));
  enum eaglet_status status = EAGLET_OK;
  for (int32_t first = 1; first <= n_layers && status == EAGLET_OK; first += TAPS_MAX) {
    struct pass pass = {.tokens = p->tokens, .n = p->n, .states = states};
    for (int32_t k = first; k <= n_layers && k < first + TAPS_MAX; k++) pass.taps.states[pass.taps.n++] = k;
    status = pass_run(v, &pass, err);
    for (int32_t t = 0; t < pass.taps.n && status == EAGLET_OK; t++) {
      char name[32];
      int32_t state = first + t;
      snprintf(name, sizeof name, "layer.%d", state - 1);
      const struct comparison with = {
          .name = name, .own = states + (size_t)t * span, .n_tokens = p->n, .width = hidden};
      status = compare(&errors->states[state], p, &with, err);
      judge(v, errors->states[state].max_rel, "%sstate %d", p->prefix, state);
    }
  }
  free(states);
  return status;
}

/* Row by row the reference's argmax; a swap of two nearly equal logits is a tie, anything else is wrong. */
static enum eaglet_status compare_argmax(struct verifier *v, const struct reference_prompt *p, struct errors *errors,
                                         const float *logits, struct eaglet_error *err) {
  int32_t n_vocab = v->model->arch.features.n_vocab, *expected;
  TRY(reference_ids(&expected, p, "argmax", n_vocab, err));
  if (!expected) return EAGLET_OK;
  errors->has_argmax = true;
  for (int32_t i = 0; i < p->n; i++) {
    const float *row = logits + (size_t)i * (size_t)n_vocab;
    int32_t best = 0;
    for (int32_t k = 1; k < n_vocab; k++) best = row[k] > row[best] ? k : best;
    errors->n_argmax++;
    if (best == expected[i]) continue;
    if (row[best] - row[expected[i]] < TIE_GAP)
      errors->n_ties++;
    else
      errors->n_wrong++;
  }
  free(expected);
  if (errors->n_wrong > 0) judge(v, MAX_REL_CAP, "%sargmax (%d rows differ)", p->prefix, (int32_t)errors->n_wrong);
  return EAGLET_OK;
}

static enum eaglet_status compare_outputs(struct verifier *v, const struct reference_prompt *p, struct errors *errors,
                                          struct eaglet_error *err) {
  int32_t hidden = v->model->arch.features.hidden, n_vocab = v->model->arch.features.n_vocab,
          last = p->n < 8 ? p->n : 8;
  float *norm = memory_alloc((size_t)p->n * (size_t)hidden * sizeof(float)),
        *logits = memory_try((size_t)p->n * (size_t)n_vocab * sizeof(float));
  const struct pass pass = {.tokens = p->tokens, .n = p->n, .norm = norm, .logits = logits};
  const struct comparison of_norm = {.name = "norm", .own = norm, .n_tokens = p->n, .width = hidden};
  const struct comparison of_logits = {.name = "logits", .own = logits, .n_tokens = p->n, .width = n_vocab};
  enum eaglet_status status =
      logits ? pass_run(v, &pass, err)
             : error_set(err, EAGLET_E_RESOURCE, "verify: no memory for the logits of %d tokens", p->n);
  if (status == EAGLET_OK) status = compare(&errors->norm, p, &of_norm, err);
  if (status == EAGLET_OK) status = compare(&errors->logits, p, &of_logits, err);
  if (status == EAGLET_OK) {
    const struct comparison of_last = {.name = "logits_last8",
                                       .own = logits + (size_t)(p->n - last) * (size_t)n_vocab,
                                       .n_tokens = last,
                                       .width = n_vocab};
    status = compare(&errors->logits, p, &of_last, err);
  }
  if (status == EAGLET_OK) status = compare_argmax(v, p, errors, logits, err);
  judge(v, errors->norm.max_rel, "%snorm", p->prefix, 0);
  judge(v, errors->logits.max_rel, "%slogits", p->prefix, 0);
  free(norm);
  memory_try_free(logits);
  return status;
}

static enum eaglet_status verify_prompt(struct verifier *v, const struct reference *reference, int32_t i,
                                        struct errors *errors, struct eaglet_error *err) {
  struct reference_prompt prompt;
  TRY(reference_prompt_read(&prompt, reference, i, err));
  enum eaglet_status status = compare_states(v, &prompt, errors, err);
  if (status == EAGLET_OK) status = compare_outputs(v, &prompt, errors, err);
  json_array_append_new(json_object_get(v->document, "prompts"),
                        json_pack("{s:s, s:i, s:i}", "prefix", prompt.prefix, "row", prompt.row, "tokens", prompt.n));
  reference_prompt_clear(&prompt);
  return status;
}

static void report_errors(struct verifier *v, const struct errors *errors) {
  json_t *layers = json_array();
  for (int32_t k = 1; k <= v->model->arch.features.n_layers; k++) {
    if (errors->states[k].compared)
      json_array_append_new(layers, json_pack("{s:i, s:f}", "state", k, "max_rel", errors->states[k].max_rel));
  }
  json_object_set_new(v->document, "layers", layers);
  if (errors->norm.compared)
    json_object_set_new(v->document, "norm", json_pack("{s:f}", "max_rel", errors->norm.max_rel));
  if (errors->logits.compared)
    json_object_set_new(v->document, "logits", json_pack("{s:f}", "max_rel", errors->logits.max_rel));
  if (!errors->has_argmax) return;
  json_object_set_new(v->document, "argmax",
                      json_pack("{s:I, s:I, s:I}", "rows", (json_int_t)errors->n_argmax, "different",
                                (json_int_t)errors->n_wrong, "ties", (json_int_t)errors->n_ties));
}

static enum eaglet_status verify_reference(struct verifier *v, const struct reference *reference,
                                           struct eaglet_error *err) {
  struct errors errors = {.states =
                              memory_alloc(((size_t)v->model->arch.features.n_layers + 1) * sizeof *errors.states)};
  enum eaglet_status status = EAGLET_OK;
  json_object_set_new(v->document, "prompts", json_array());
  for (int32_t i = 0; status == EAGLET_OK && i < reference->n_prompts; i++)
    status = verify_prompt(v, reference, i, &errors, err);
  if (status == EAGLET_OK) {
    report_errors(v, &errors);
    if (json_array_size(json_object_get(v->document, "layers")) == 0 && !errors.logits.compared) {
      status = error_set(err, EAGLET_E_INPUT, "%s: holds neither layer.{i} nor logits to compare with",
                         reference->file.path);
    }
  }
  free(errors.states);
  return status == EAGLET_OK ? verdict(v, "the reference", err) : status;
}

/* ---- proof of capture ---- */

#define PROOF_LENGTHS 4
static const int32_t proof_lengths[PROOF_LENGTHS] = {1, 7, 33, 70}; /* one row; inside a page; across pages */

/* Worst over the lengths, per start state. */
struct proof {
  double *error,
      *perturbed; /* [N + 1]: relative difference of the replayed logits; least effect of a disturbed state */
  bool *bitwise;
  float *own, *replayed, *states; /* [n, V], [n, V], [TAPS_MAX, n, H] */
  int32_t tokens[128], n;
};

/* Replays from `state`, whose residual is x; then once more with x disturbed, which must show in the logits. */
static enum eaglet_status prove_state(struct verifier *v, struct proof *proof, int32_t state, float *x,
                                      struct eaglet_error *err) {
  size_t n = (size_t)proof->n * (size_t)v->model->arch.features.n_vocab,
         span = (size_t)proof->n * (size_t)v->model->arch.features.hidden;
  const struct pass pass = {
      .tokens = proof->tokens, .n = proof->n, .start = x, .start_state = state, .logits = proof->replayed};
  TRY(pass_run(v, &pass, err));
  proof->error[state] = fmax(proof->error[state], max_rel(proof->replayed, proof->own, n));
  proof->bitwise[state] = proof->bitwise[state] && memcmp(proof->replayed, proof->own, n * sizeof(float)) == 0;
  for (size_t i = 0; i < span; i++) x[i] *= 1 + 0.1f * (float)(random_uniform(7, (uint64_t)state, i) - 0.5);
  TRY(pass_run(v, &pass, err));
  proof->perturbed[state] = fmin(proof->perturbed[state], max_rel(proof->replayed, proof->own, n));
  return EAGLET_OK;
}

/* Captures every state of one token row, TAPS_MAX at a time, and replays from each. */
static enum eaglet_status prove_tokens(struct verifier *v, struct proof *proof, struct eaglet_error *err) {
  int32_t n_layers = v->model->arch.features.n_layers;
  size_t n = (size_t)proof->n * (size_t)v->model->arch.features.n_vocab,
         span = (size_t)proof->n * (size_t)v->model->arch.features.hidden;
  const struct pass plain = {.tokens = proof->tokens, .n = proof->n, .logits = proof->own};
  TRY(pass_run(v, &plain, err));
  for (int32_t first = 0; first <= n_layers; first += TAPS_MAX) {
    struct pass capture = {.tokens = proof->tokens, .n = proof->n, .states = proof->states, .logits = proof->replayed};
    for (int32_t k = first; k <= n_layers && k < first + TAPS_MAX; k++) capture.taps.states[capture.taps.n++] = k;
    TRY(pass_run(v, &capture, err));
    judge(v, max_rel(proof->replayed, proof->own, n), "%slogits of a run with taps from state %d", "", first);
    for (int32_t t = 0; t < capture.taps.n; t++)
      TRY(prove_state(v, proof, first + t, proof->states + (size_t)t * span, err));
  }
  return EAGLET_OK;
}

static enum eaglet_status prove_lengths(struct verifier *v, struct proof *proof, struct eaglet_error *err) {
  const struct features *f = &v->model->arch.features;
  for (int i = 0; i < PROOF_LENGTHS; i++) {
    proof->n = proof_lengths[i];
    if (proof->n > v->model->n_positions) continue;
    for (int32_t t = 0; t < proof->n; t++)
      proof->tokens[t] = (int32_t)(random_u64(11, (uint64_t)i, (uint64_t)t) % (uint64_t)f->n_vocab);
    TRY(prove_tokens(v, proof, err));
  }
  return EAGLET_OK;
}

static enum eaglet_status verify_proof(struct verifier *v, struct eaglet_error *err) {
  const struct features *f = &v->model->arch.features;
  size_t n_states = (size_t)f->n_layers + 1, rows = (size_t)proof_lengths[PROOF_LENGTHS - 1];
  struct proof proof = {.error = memory_alloc(n_states * sizeof(double)),
                        .perturbed = memory_alloc(n_states * sizeof(double)),
                        .bitwise = memory_alloc(n_states * sizeof(bool)),
                        .own = memory_try(rows * (size_t)f->n_vocab * sizeof(float)),
                        .replayed = memory_try(rows * (size_t)f->n_vocab * sizeof(float)),
                        .states = memory_try(TAPS_MAX * rows * (size_t)f->hidden * sizeof(float))};
  enum eaglet_status status = EAGLET_OK;
  for (size_t k = 0; k < n_states; k++) {
    proof.bitwise[k] = true;
    proof.perturbed[k] = MAX_REL_CAP;
  }
  if (!proof.own || !proof.replayed || !proof.states)
    status = error_set(err, EAGLET_E_RESOURCE, "verify: no memory for %zu rows of logits", rows);
  if (status == EAGLET_OK) status = prove_lengths(v, &proof, err);
  json_t *list = json_array();
  for (int32_t k = 0; k <= f->n_layers && status == EAGLET_OK; k++) {
    judge(v, proof.error[k], "%slogits from state %d", "", k);
    if (proof.perturbed[k] <= fmax(1e-6, 2 * proof.error[k]))
      judge(v, MAX_REL_CAP, "%slogits do not depend on state %d, the proof is void; error", "", k);
    json_array_append_new(list, json_pack("{s:i, s:f, s:b, s:f}", "state", k, "max_rel", proof.error[k], "bitwise",
                                          proof.bitwise[k], "perturbed", proof.perturbed[k]));
  }
  json_object_set_new(v->document, "proof", list);
  free(proof.error);
  free(proof.perturbed);
  free(proof.bitwise);
  memory_try_free(proof.own);
  memory_try_free(proof.replayed);
  memory_try_free(proof.states);
  return status == EAGLET_OK ? verdict(v, "the model's own logits", err) : status;
}

enum eaglet_status verify_run(const struct eaglet_verify_params *params, struct eaglet_text *json,
                              struct eaglet_error *err) {
  struct verifier v = {.tolerance = params->tolerance > 0 ? params->tolerance : TOLERANCE_DEFAULT,
                       .document = json_object()};
  struct reference reference = {.n_prompts = 0};
  int32_t tokens_max = proof_lengths[PROOF_LENGTHS - 1];
  enum eaglet_status status = EAGLET_OK;
  *json = (struct eaglet_text){0};
  if (params->reference) {
    status = reference_open(&reference, params->reference, err);
    tokens_max = reference.tokens_max;
  }
  if (status == EAGLET_OK) status = verifier_open(&v, params, tokens_max, err);
  if (status == EAGLET_OK) status = params->reference ? verify_reference(&v, &reference, err) : verify_proof(&v, err);
  if (status == EAGLET_OK || status == EAGLET_E_CHECK) *json = json_dump(v.document, 2);
  json_decref(v.document);
  verifier_close(&v);
  reference_close(&reference);
  return status;
}
