/* check_pair.c - see check_pair.h. Two halves: the walk (does what the files say fit together?) and the probe (does the
 * head in fact predict this target, and with these states?). Owns its forwards for the time of the probe; changes
 * nothing of target or head. */
#include "draft/check_pair.h"

#include "base/memory.h"
#include "base/util.h"
#include "draft/head_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the walk ---- */

enum part { PART_SIZES, PART_NORMS, PART_ROPE, PART_STATES, PART_VOCABULARY, PART_COUNT };
static const char *const part_names[PART_COUNT] = {"sizes", "norms", "rope", "states", "vocabulary"};

struct walk {
  const struct model *target;
  char *config_path;
  struct checkpoint files;
  struct head_config config;
  bool ok[PART_COUNT];
  char detail[PART_COUNT][EAGLET_ERROR_MAX];
};

static void walk_close(struct walk *w) {
  if (w->files.path) checkpoint_close(&w->files);
  free(w->config_path);
}

static void judge(struct walk *w, enum part part, enum eaglet_status status, const struct eaglet_error *err) {
  w->ok[part] = status == EAGLET_OK;
  if (status != EAGLET_OK) snprintf(w->detail[part], sizeof w->detail[part], "%s", err->message);
}

/* A copy of the config whose objects, at both levels of nesting, have lost the named fields. */
static json_t *without(const json_t *config, const char *const *keys, size_t n) {
  static const char *const inner[] = {"transformer_layer_config", "eagle_config"};
  json_t *copy = json_deep_copy(config);
  for (size_t i = 0; i < n; i++) {
    json_object_del(copy, keys[i]);
    for (size_t k = 0; k < 2; k++) json_object_del(json_object_get(copy, inner[k]), keys[i]);
  }
  return copy;
}

/* The reader of config.json stops at its first complaint. Reading it again without the rope fields, then without the
 * states, tells whose complaint it was. */
static void walk_config(struct walk *w) {
  static const char *const keys[] = {"eagle_aux_hidden_state_layer_ids", "eaglet_states", "num_aux_hidden_states",
                                     "rope_theta", "rope_scaling", "rope_parameters"};
  const struct features *target = &w->target->arch.features;
  struct eaglet_error err = {0};
  struct head_config ignored;
  json_t *sizes = without(w->files.config, keys, 6), *rope = without(w->files.config, keys, 3);
  judge(w, PART_SIZES, head_config_read(&ignored, sizes, target, w->config_path, &err), &err);
  if (w->ok[PART_SIZES]) judge(w, PART_ROPE, head_config_read(&ignored, rope, target, w->config_path, &err), &err);
  if (w->ok[PART_ROPE])
    judge(w, PART_STATES, head_config_read(&w->config, w->files.config, target, w->config_path, &err), &err);
  json_decref(sizes);
  json_decref(rope);
}

static void walk_vocabulary(struct walk *w) {
  struct eaglet_error err = {0};
  struct vocab_map map;
  judge(w, PART_VOCABULARY, head_vocabulary_read(&map, &w->files, &w->config, &err), &err);
  if (!w->ok[PART_VOCABULARY]) return;
  int32_t n_stops = 0;
  for (int32_t i = 0; i < w->target->n_stop_ids; i++) n_stops += map.draft[w->target->stop_ids[i]] >= 0;
  snprintf(w->detail[PART_VOCABULARY], sizeof w->detail[PART_VOCABULARY],
           "%d of %d target ids can be drafted; %d of %d stop ids among them", map.n_draft, map.n_target, n_stops,
           w->target->n_stop_ids);
  vocab_map_release(&map);
}

static bool is_norm(const struct tensor_entry *t) {
  return t->rank == 1 && strstr(t->name, "norm") &&
         (t->dtype == DTYPE_F32 || t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16);
}

/* A norm of zeros, or one that is not finite, makes every draft the same. */
static void walk_norms(struct walk *w) {
  size_t n_norms = 0;
  w->ok[PART_NORMS] = true;
  for (size_t i = 0; i < w->files.n_tensors && w->ok[PART_NORMS]; i++) {
    const struct tensor_entry *t = w->files.tensors[i];
    if (!is_norm(t)) continue;
    size_t n = (size_t)t->shape[0];
    float *values = memory_alloc((n + 1) * sizeof *values);
    double sum = 0;
    dtype_to_f32(values, t->data, t->dtype, n);
    for (size_t j = 0; j < n; j++) sum += fabs((double)values[j]);
    free(values);
    n_norms++;
    w->ok[PART_NORMS] = isfinite(sum) && sum > 0;
    if (!w->ok[PART_NORMS])
      snprintf(w->detail[PART_NORMS], sizeof w->detail[PART_NORMS], "%s: %s: expected weights, found %s", t->path, t->name,
               sum == 0 ? "zeros only" : "values that are not finite");
  }
  if (w->ok[PART_NORMS])
    snprintf(w->detail[PART_NORMS], sizeof w->detail[PART_NORMS], "%zu norms, eps %g (target %g)", n_norms,
             w->config.norm_eps, w->target->arch.features.norm_eps);
}

static void format_states(char *out, size_t length, const struct head_config *config, int32_t shift) {
  size_t at = 0;
  out[0] = 0;
  for (int32_t i = 0; i < config->n_states && at < length; i++)
    at += (size_t)snprintf(out + at, length - at, "%s%d", i ? "," : "", config->states[i] + shift);
}

/* What the head has beside the standard one. */
static void format_wiring(char *out, size_t length, const struct head_config *c) {
  const struct {
    bool has;
    const char *what;
  } parts[] = {{c->attention == ATTENTION_MLA, "latent attention"}, {c->n_more_layers > 0, "several layers"},
               {c->wiring.fc_norms, "fc_norm"},                     {c->wiring.fc_input_norm, "norm_before_fc"},
               {c->wiring.norm_before_residual, "norm_before_residual"}, {c->wiring.norm_output, "norm_output"},
               {c->qk_norm, "q/k norms"},                           {c->own_embed, "an embedding of its own"},
               {c->tied, "tied lm_head"}};
  size_t at = 0;
  out[0] = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts && at < length; i++) {
    if (parts[i].has) at += (size_t)snprintf(out + at, length - at, "; %s", parts[i].what);
  }
}

static void describe(struct walk *w, const struct head *head) {
  static const char *const scaling[] = {[ROPE_SCALING_NONE] = "none",
                                        [ROPE_SCALING_LINEAR] = "linear",
                                        [ROPE_SCALING_LLAMA3] = "llama3",
                                        [ROPE_SCALING_YARN] = "yarn",
                                        [ROPE_SCALING_DYNAMIC] = "dynamic",
                                        [ROPE_SCALING_LONGROPE] = "longrope"};
  const struct head_config *c = &head->config;
  char states[128], wiring[160];
  format_wiring(wiring, sizeof wiring, c);
  format_states(states, sizeof states, c, 0);
  snprintf(w->detail[PART_SIZES], sizeof w->detail[PART_SIZES],
           "hidden %d, %d heads, %d kv heads of %d, intermediate %d%s%s%s", c->hidden, c->n_heads, c->n_kv_heads,
           c->head_dim, c->intermediate, wiring, head->notes[0] ? "; " : "", head->notes);
  snprintf(w->detail[PART_ROPE], sizeof w->detail[PART_ROPE],
           "theta %g, scaling %s, table of %d positions as the target's", c->rope.theta, scaling[c->rope.scaling],
           w->target->n_positions);
  snprintf(w->detail[PART_STATES], sizeof w->detail[PART_STATES], "%s of 0..%d", states,
           w->target->arch.features.n_layers);
}

/* Files that cannot be read at all are the caller's error; everything else becomes a verdict. *head is NULL when a part
 * does not fit. */
static enum eaglet_status walk_run(struct walk *w, struct head **head, const char *directory,
                                   struct eaglet_error *err) {
  struct eaglet_error inner = {0};
  *head = NULL;
  w->config_path = file_join(directory, "config.json");
  const struct checkpoint_params files = {.path = directory, .is_head = true};
  TRY(checkpoint_open_with(&w->files, &files, err));
  walk_config(w);
  if (!w->ok[PART_STATES]) return EAGLET_OK;
  walk_vocabulary(w);
  walk_norms(w);
  enum eaglet_status status = head_open(head, directory, w->target, &inner);
  if (status != EAGLET_OK && (!w->ok[PART_VOCABULARY] || !w->ok[PART_NORMS])) return EAGLET_OK; /* already told */
  if (status == EAGLET_E_RESOURCE) return error_set(err, status, "%s", inner.message);
  judge(w, PART_SIZES, status,
        &inner); /* what is left of head_open's complaints are tensors that are missing, unknown or of another shape */
  if (status != EAGLET_OK) return EAGLET_OK;
  describe(w, *head);
  return EAGLET_OK;
}

/* Parts that were not reached because an earlier one failed say so. */
static json_t *walk_report(struct walk *w, const char **first_detail) {
  json_t *list = json_array();
  int first = -1;
  for (int p = 0; p < PART_COUNT; p++) {
    if (!w->ok[p] && w->detail[p][0] && first < 0) first = p;
  }
  *first_detail = first >= 0 ? w->detail[first] : NULL;
  for (int p = 0; p < PART_COUNT; p++) {
    if (!w->ok[p] && !w->detail[p][0]) snprintf(w->detail[p], sizeof w->detail[p], "not reached");
    json_array_append_new(
        list, json_pack("{s:s,s:b,s:s}", "part", part_names[p], "ok", (int)w->ok[p], "detail", w->detail[p]));
  }
  return list;
}

/* ---- the probe ---- */

#define PROBE_SEQUENCES 24
#define PROBE_TOKENS                                                                                                   \
  32 /* of each at most, the first given, the rest the target's own greedy choice up to a stop token */
#define PROBE_ROWS (PROBE_SEQUENCES * PROBE_TOKENS)
#define PROBE_SHIFTS 3 /* states - 1, as recorded, + 1 */
/* A neighbour wins clearly when it saves this many nats a token, by this many standard errors. First choices alone are
 * too coarse a measure: neighbouring states of a small model differ in few of them. */
#define PROBE_MARGIN_NATS 0.1
#define PROBE_MARGIN_ERRORS 4.0

struct probe {
  const struct model *target;
  const struct head *head;
  struct forward *forward;
  struct head_forward *head_forward;
  struct kv_cache kv, head_kv;
  struct kv_sequence sequences[PROBE_SEQUENCES], head_sequences[PROBE_SEQUENCES];
  struct batch batch;
  int32_t tokens[PROBE_SEQUENCES][PROBE_TOKENS + 1], lengths[PROBE_SEQUENCES];
  float *feature; /* device [PROBE_ROWS, H] */
  float *logits;  /* host [n_draft] */
  int32_t *best_device, best[PROBE_SEQUENCES];
  float surprise[PROBE_SHIFTS][PROBE_ROWS]; /* nats of the pairs whose next token can be drafted */
};
/* What the head makes of the text with the states of one shift. */
struct verdict {
  bool tried;
  double agreement, surprise;
  int32_t n_surprises;
};

static void probe_close(struct probe *p) {
  struct compute *c = p->target->compute;
  for (int s = 0; s < PROBE_SEQUENCES; s++) {
    if (p->sequences[s].cache) kv_sequence_release(&p->sequences[s]);
    if (p->head_sequences[s].cache) kv_sequence_release(&p->head_sequences[s]);
  }
  void *blocks[] = {p->feature, p->best_device};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    if (blocks[i]) c->free(c, blocks[i]);
  }
  forward_free(p->forward);
  head_forward_free(p->head_forward);
  if (p->kv.pools) kv_cache_release(&p->kv);
  if (p->head_kv.pools) kv_cache_release(&p->head_kv);
  batch_release(&p->batch);
  free(p->logits);
}

static enum eaglet_status probe_open(struct probe *p, struct eaglet_error *err) {
  struct compute *c = p->target->compute;
  const struct head_config *h = &p->head->config;
  int32_t pages_each = (PROBE_TOKENS - 1) / KV_PAGE_TOKENS + 1, n_pages = pages_each * PROBE_SEQUENCES;
  batch_init(&p->batch, PROBE_ROWS);
  p->logits = memory_alloc((size_t)h->n_draft * sizeof(float));
  TRY(forward_create(&p->forward, p->target, PROBE_ROWS, n_pages, err));
  TRY(head_forward_create(&p->head_forward, p->head, PROBE_TOKENS, n_pages, err));
  TRY(kv_cache_init(&p->kv, c, p->target->arch.features.n_layers, model_kv_entry_floats(p->target), n_pages, err));
  TRY(kv_cache_init(&p->head_kv, c, head_kv_layers(p->head), head_kv_entry_floats(p->head), n_pages, err));
  for (int s = 0; s < PROBE_SEQUENCES; s++) {
    TRY(kv_sequence_init(&p->sequences[s], &p->kv, PROBE_TOKENS, err));
    TRY(kv_sequence_init(&p->head_sequences[s], &p->head_kv, PROBE_TOKENS, err));
    TRY(kv_sequence_reserve(&p->sequences[s], PROBE_TOKENS, err));
    TRY(kv_sequence_reserve(&p->head_sequences[s], PROBE_TOKENS, err));
  }
  p->best_device = c->alloc(c, PROBE_SEQUENCES * sizeof(int32_t));
  p->feature = c->alloc(c, PROBE_ROWS * (size_t)h->hidden * sizeof(float));
  if (!p->best_device || !p->feature) FAIL(err, EAGLET_E_RESOURCE, "no memory for the probe of %d rows", PROBE_ROWS);
  return EAGLET_OK;
}

static void add_row(struct probe *p, int32_t position, int32_t token, struct kv_sequence *kv) {
  struct batch_row *row = batch_add(&p->batch);
  row->token = token;
  row->position = row->slot = position;
  row->kv = kv;
  row->wants_logits = true;
}

static bool is_stop(const struct model *target, int32_t token) {
  for (int32_t i = 0; i < target->n_stop_ids; i++) {
    if (target->stop_ids[i] == token) return true;
  }
  return false;
}

/* Every sequence starts with another id of the draft vocabulary (what is drafted often is met often) and goes on as the
 * target likes best. */
static enum eaglet_status continue_greedily(struct probe *p, struct eaglet_error *err) {
  const struct vocab_map *map = &p->head->map;
  struct compute *c = p->target->compute;
  for (int s = 0; s < PROBE_SEQUENCES; s++) {
    p->tokens[s][0] = map->target[(int64_t)s * map->n_draft / PROBE_SEQUENCES];
    p->lengths[s] = 1;
  }
  for (int32_t t = 0; t < PROBE_TOKENS; t++) {
    batch_reset(&p->batch);
    for (int s = 0; s < PROBE_SEQUENCES; s++) add_row(p, t, p->tokens[s][t], &p->sequences[s]);
    struct forward_run run = {.batch = &p->batch, .kv = &p->kv};
    TRY(forward_run(p->forward, &run, err));
    c->argmax(c, p->best_device, run.logits, run.n_logits, p->target->arch.features.n_vocab);
    c->download(c, p->best, p->best_device, sizeof p->best);
    for (int s = 0; s < PROBE_SEQUENCES; s++) {
      p->tokens[s][t + 1] = p->best[s];
      if (p->lengths[s] == t + 1 && !is_stop(p->target, p->tokens[s][t]))
        p->lengths[s]++; /* the stop token itself still counts */
    }
  }
  return EAGLET_OK;
}

/* One pair: did the head put `next` first, and how surprised was it? */
static void judge_pair(struct probe *p, const float *logits, int32_t next, int32_t shift_index,
                       struct verdict *verdict) {
  int32_t n = p->head->config.n_draft, best = 0, wanted = p->head->map.draft[next];
  double sum = 0;
  p->target->compute->download(p->target->compute, p->logits, logits, (size_t)n * sizeof(float));
  for (int32_t i = 1; i < n; i++) best = p->logits[i] > p->logits[best] ? i : best;
  verdict->agreement += best == wanted;
  if (wanted < 0) return;
  for (int32_t i = 0; i < n; i++) sum += exp((double)p->logits[i] - p->logits[best]);
  double surprise = log(sum) + p->logits[best] - p->logits[wanted];
  p->surprise[shift_index][verdict->n_surprises++] = (float)surprise;
  verdict->surprise += surprise;
}

static enum eaglet_status run_head(struct probe *p, int32_t shift_index, struct verdict *verdict,
                                   struct eaglet_error *err) {
  int64_t row = 0;
  int32_t n_pairs = 0;
  for (int s = 0; s < PROBE_SEQUENCES; s++) {
    int32_t n = p->lengths[s] - 2; /* pairs (h_t, x_{t+1}) that have a token x_{t+2} */
    batch_reset(&p->batch);
    for (int32_t t = 0; t < n; t++) add_row(p, t, p->tokens[s][t + 1], &p->head_sequences[s]);
    struct head_run run = {.batch = &p->batch, .kv = &p->head_kv, .feature = p->feature + row * p->head->config.hidden};
    row += PROBE_TOKENS;
    if (n < 1) continue;
    TRY(head_forward_run(p->head_forward, &run, err));
    for (int32_t t = 0; t < n; t++)
      judge_pair(p, run.logits + (int64_t)t * p->head->config.n_draft, p->tokens[s][t + 2], shift_index, verdict);
    n_pairs += n;
  }
  if (n_pairs > 0) verdict->agreement /= n_pairs;
  if (verdict->n_surprises > 0) verdict->surprise /= verdict->n_surprises;
  if (!isfinite(verdict->surprise))
    FAIL(err, EAGLET_E_CHECK, "%s: the head's logits on the target's own text are not finite", p->head->files.path);
  return EAGLET_OK;
}

/* Teacher-forced: the head over the text, with every state number shifted. */
static enum eaglet_status try_shift(struct probe *p, int32_t shift_index, struct verdict *verdict,
                                    struct eaglet_error *err) {
  const struct head_config *h = &p->head->config;
  struct forward_run run = {.batch = &p->batch, .kv = &p->kv, .no_head = true, .taps.n = h->n_states};
  for (int32_t i = 0; i < h->n_states; i++) {
    run.taps.states[i] = h->states[i] + shift_index - 1;
    if (run.taps.states[i] < 0 || run.taps.states[i] > p->target->arch.features.n_layers) return EAGLET_OK;
  }
  batch_reset(&p->batch);
  for (int s = 0; s < PROBE_SEQUENCES; s++) {
    for (int32_t t = 0; t < PROBE_TOKENS; t++) add_row(p, t, p->tokens[s][t], &p->sequences[s]);
  }
  TRY(forward_run(p->forward, &run, err));
  head_fuse(p->head_forward, p->feature, run.tapped, p->batch.n);
  verdict->tried = true;
  return run_head(p, shift_index, verdict, err);
}

/* The pairs are the same for every shift, so their differences are what is judged. */
static int32_t clear_shift(const struct probe *p, const struct verdict verdicts[PROBE_SHIFTS]) {
  int32_t shift = 0, n = verdicts[1].n_surprises;
  double saved_most = 0;
  for (int32_t i = 0; i < PROBE_SHIFTS; i += 2) {
    double saved = verdicts[1].surprise - verdicts[i].surprise, squares = 0;
    if (!verdicts[i].tried || n < 2) continue;
    for (int32_t k = 0; k < n; k++) {
      double d = (double)p->surprise[1][k] - p->surprise[i][k] - saved;
      squares += d * d;
    }
    if (saved <= saved_most || saved < PROBE_MARGIN_NATS || saved < PROBE_MARGIN_ERRORS * sqrt(squares / (n - 1) / n))
      continue;
    saved_most = saved;
    shift = i - 1;
  }
  return shift;
}

static json_t *probe_report(const struct probe *p, const struct verdict verdicts[PROBE_SHIFTS]) {
  json_t *agreement = json_object(), *surprise = json_object();
  int32_t shift = clear_shift(p, verdicts);
  for (int32_t i = 0; i < PROBE_SHIFTS; i++) {
    char states[128];
    if (!verdicts[i].tried) continue;
    format_states(states, sizeof states, &p->head->config, i - 1);
    json_object_set_new(agreement, states, json_real(verdicts[i].agreement));
    json_object_set_new(surprise, states, json_real(verdicts[i].surprise));
  }
  if (shift != 0) {
    log_warning("with its recorded states the head is surprised by %.2f nats a token of the target's text, with every "
                "state %+d by %.2f: its numbers seem to follow another convention",
                verdicts[1].surprise, shift, verdicts[1 + shift].surprise);
  }
  return json_pack("{s:o,s:o,s:i,s:i}", "agreement", agreement, "surprise", surprise, "pairs", verdicts[1].n_surprises,
                   "shift", shift);
}

static enum eaglet_status probe_run(json_t **report, const struct head *head, struct eaglet_error *err) {
  struct probe *p = memory_alloc(sizeof *p);
  struct verdict verdicts[PROBE_SHIFTS] = {{.tried = false}};
  enum eaglet_status status;
  p->target = head->target;
  p->head = head;
  TRY_GOTO(probe_open(p, err), done);
  TRY_GOTO(continue_greedily(p, err), done);
  for (int32_t i = 0; i < PROBE_SHIFTS; i++) TRY_GOTO(try_shift(p, i, &verdicts[i], err), done);
  *report = probe_report(p, verdicts);
done:
  probe_close(p);
  free(p);
  return status;
}

enum eaglet_status check_pair_run(json_t **report, const struct model *target, const char *draft_directory,
                                  struct eaglet_error *err) {
  struct walk *w = memory_alloc(sizeof *w);
  struct head *head = NULL;
  json_t *probe = NULL;
  const char *mismatch = NULL;
  *w = (struct walk){.target = target};
  *report = NULL;
  struct eaglet_error failed = {0};
  enum eaglet_status status = walk_run(w, &head, draft_directory, err);
  if (status == EAGLET_OK) {
    json_t *checks = walk_report(w, &mismatch);
    if (head && !mismatch) status = probe_run(&probe, head, &failed);
    if (status == EAGLET_E_CHECK) {
      mismatch = failed.message;
      status = EAGLET_OK;
    }
    if (status == EAGLET_OK)
      *report = json_pack("{s:b,s:o}", "ok", mismatch == NULL, "checks", checks);
    else {
      error_set(err, status, "%s", failed.message);
      json_decref(checks);
    }
    if (probe) json_object_set_new(*report, "probe", probe);
    if (mismatch) status = error_set(err, EAGLET_E_CHECK, "%s", mismatch);
  }
  head_close(head);
  walk_close(w);
  free(w);
  return status;
}
