/* feature_check.c - see feature_check.h. Owns the report. A file that is wrong is noted and the next one is read; only what makes the whole
 * store unreadable ends the check. */
#include "train/feature_check.h"

#include "base/memory.h"
#include "base/progress.h"
#include "data/feature_shard.h"
#include "data/foreign_sample.h"
#include "data/foreign_store.h"
#include "train/feature_probe.h"
#include "train/target_facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBLEMS_MAX 1000 /* listed; the rest is counted */

struct check {
  const struct eaglet_check_features_params *params;
  struct token_store tokens; /* of --data, or of the samples themselves */
  bool has_tokens;
  json_t *problems, *missing, *slots;
  size_t n_files, n_wrong, n_missing, n_unhashed, n_duplicates;
  uint64_t n_rows, n_tokens, n_not_finite, n_zero;
  const char *format;
  char first[EAGLET_ERROR_MAX]; /* problem */
};

static void note(struct check *c, const char *file, const struct eaglet_error *problem) {
  const char *name = strrchr(file, '/');
  if (c->n_wrong++ == 0) snprintf(c->first, sizeof c->first, "%s", problem->message);
  if (json_array_size(c->problems) < PROBLEMS_MAX)
    json_array_append_new(c->problems, json_pack("{ss ss}", "file", name ? name + 1 : file, "problem", problem->message));
}

static enum eaglet_status tell(const struct check *c, size_t done, size_t total, struct eaglet_error *err) {
  if (progress_report(&c->params->progress, "check", "files", done, total, NULL)) return EAGLET_OK;
  FAIL(err, EAGLET_E_INTERRUPTED, "stopped after %zu of %zu files", done, total);
}

/* ---- our shards ---- */

static enum eaglet_status check_shard(struct check *c, size_t index, const struct feature_layout *layout, size_t n_rows_total,
                                      struct eaglet_error *err) {
  size_t rows = feature_shard_rows(layout), first = index * rows, n = n_rows_total - first < rows ? n_rows_total - first : rows;
  const struct feature_examination expected = {.layout = layout, .rows = c->has_tokens ? c->tokens.rows + first : NULL, .n_rows = n};
  struct feature_verdict verdict;
  struct eaglet_error problem = {0};
  char *path = feature_shard_path(c->params->features, index);
  enum eaglet_status status = EAGLET_OK;
  if (!file_exists(path)) {
    c->n_missing++;
    if (json_array_size(c->missing) < PROBLEMS_MAX) json_array_append_new(c->missing, json_string(strrchr(path, '/') + 1));
  } else {
    status = feature_shard_examine(&verdict, path, &expected, &problem);
    if (status == EAGLET_E_RESOURCE) {
      if (err) *err = problem;
    } else {
      if (status != EAGLET_OK) note(c, path, &problem);
      status = EAGLET_OK;
    }
    c->n_rows += verdict.n_rows;
    c->n_tokens += verdict.n_tokens;
    c->n_unhashed += verdict.unhashed;
    c->n_not_finite += verdict.fault.n_not_finite;
    c->n_zero += verdict.fault.n_zero;
  }
  free(path);
  return status;
}

static enum eaglet_status read_manifest(const struct check *c, struct feature_layout *layout, int64_t *n_rows, struct eaglet_error *err) {
  char *path = file_join(c->params->features, "manifest.json"), hash[HASH_TEXT_BYTES];
  const char *token_hash;
  json_t *manifest = NULL;
  enum eaglet_status status = json_parse_file(&manifest, path, err);
  if (status == EAGLET_OK) status = feature_manifest_parse(layout, manifest, path, err);
  if (status == EAGLET_OK) status = json_get_int(n_rows, manifest, "rows", path, err);
  if (status == EAGLET_OK && (*n_rows < 1 || *n_rows > UINT32_MAX)) status = error_set(err, EAGLET_E_INPUT, "%s: rows: found %lld", path, (long long)*n_rows);
  if (status == EAGLET_OK) status = json_get_string_or(&token_hash, "", manifest, "token_hash", path, err);
  hash_text(hash, c->tokens.hash);
  if (status == EAGLET_OK && c->has_tokens && (strcmp(hash, token_hash) != 0 || (size_t)*n_rows != c->tokens.n_rows))
    status = error_set(err, EAGLET_E_INPUT, "%s: token_hash: expected %s (%s), found %.40s: features of other rows", path, hash, c->params->data, token_hash);
  json_decref(manifest);
  free(path);
  return status;
}

static enum eaglet_status check_shards(struct check *c, struct eaglet_error *err) {
  struct feature_layout layout;
  int64_t n_rows = 0;
  TRY(read_manifest(c, &layout, &n_rows, err));
  size_t rows = feature_shard_rows(&layout), n = ((size_t)n_rows + rows - 1) / rows;
  c->format = "eaglet";
  c->n_files = n;
  for (size_t i = 0; i < n; i++) {
    TRY(check_shard(c, i, &layout, (size_t)n_rows, err));
    TRY(tell(c, i + 1, n, err));
  }
  return EAGLET_OK;
}

/* ---- samples of others ---- */

/* Samples that we wrote carry a checksum. */
static enum eaglet_status check_sample_hash(struct check *c, const struct foreign_sample *s, struct eaglet_error *err) {
  const char *expected = safetensors_metadata(&s->file, "xxh3");
  const struct tensor_entry *states = safetensors_find(&s->file, "hidden_states"), *ids = safetensors_find(&s->file, "token_ids");
  char found[HASH_TEXT_BYTES];
  if (!expected || !states || !ids) {
    c->n_unhashed++;
    return EAGLET_OK;
  }
  sample_hash_text(found, states->data, (size_t)states->n_bytes, ids->data, (size_t)ids->n_bytes);
  if (strcmp(expected, found) == 0) return EAGLET_OK;
  FAIL(err, EAGLET_E_INPUT, "%s: checksum: expected %.20s, found %s: the file was changed or damaged", s->file.path, expected, found);
}

static enum eaglet_status judge_sample(struct check *c, const struct foreign_sample *s, const struct foreign_sample *first, struct eaglet_error *err) {
  int32_t slots[FEATURE_STATES_MAX + 1];
  struct feature_fault fault = {0};
  for (int32_t i = 0; i < s->n_slots; i++) slots[i] = i + 1;
  if (s->n_slots != first->n_slots || s->hidden != first->hidden || s->dtype != first->dtype)
    FAIL(err, EAGLET_E_INPUT, "%s: expected %d states of width %d in %s as in the first file, found %d of %d in %s", s->file.path, first->n_slots,
         first->hidden, dtype_name(first->dtype), s->n_slots, s->hidden, dtype_name(s->dtype));
  int32_t *ids = memory_alloc(sizeof *ids * (size_t)s->n_tokens);
  float *states = memory_try(sizeof *states * (size_t)s->n_tokens * (size_t)s->n_slots * (size_t)s->hidden);
  enum eaglet_status status = states ? foreign_sample_ids(s, ids, err) : error_set(err, EAGLET_E_RESOURCE, "not enough memory for %d tokens", s->n_tokens);
  if (status == EAGLET_OK) status = check_sample_hash(c, s, err);
  if (status == EAGLET_OK) {
    foreign_sample_states(s, states);
    const struct feature_numbers all = {.values = states, .states = slots, .n_tokens = s->n_tokens, .n_slots = s->n_slots, .hidden = s->hidden};
    if (feature_fault_find(&fault, &all)) {
      fault.state--; /* the slot */
      status = error_set(err, EAGLET_E_INPUT, "%s: token %d, slot %d: expected %s, found %s", s->file.path, fault.token, fault.state,
                         fault.zero ? "a state" : "finite numbers", fault.zero ? "zeros" : "others");
    }
    c->n_not_finite += fault.n_not_finite;
    c->n_zero += fault.n_zero;
  }
  memory_try_free(states);
  free(ids);
  return status;
}

static enum eaglet_status check_sample(struct check *c, const char *path, struct foreign_sample *first, struct eaglet_error *err) {
  struct foreign_sample s;
  struct eaglet_error problem = {0};
  enum eaglet_status status = foreign_sample_open(&s, path, &problem);
  if (status == EAGLET_OK) {
    if (first->n_slots == 0) *first = (struct foreign_sample){.n_slots = s.n_slots, .hidden = s.hidden, .dtype = s.dtype};
    c->format = s.format;
    c->n_rows++;
    c->n_tokens += (uint64_t)s.n_tokens;
    status = judge_sample(c, &s, first, &problem);
    foreign_sample_close(&s);
  }
  if (status == EAGLET_E_RESOURCE) {
    if (err) *err = problem;
    return status;
  }
  if (status != EAGLET_OK) note(c, path, &problem);
  return EAGLET_OK;
}

static enum eaglet_status check_samples(struct check *c, struct eaglet_error *err) {
  struct file_list files;
  struct foreign_sample first = {0};
  TRY(foreign_files_list(&files, c->params->features, err));
  c->n_files = files.n;
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < files.n && status == EAGLET_OK; i++) {
    status = check_sample(c, files.names[i], &first, err);
    if (status == EAGLET_OK) status = tell(c, i + 1, files.n, err);
  }
  file_list_clear(&files);
  return status;
}

/* Rows of --data without a sample. */
static void check_cover(struct check *c, const struct feature_store *store) {
  for (size_t r = 0; r < c->tokens.n_rows; r++) {
    if (feature_store_has(store, r)) continue;
    c->n_missing++;
    if (json_array_size(c->missing) < PROBLEMS_MAX) json_array_append_new(c->missing, json_integer((json_int_t)r));
  }
  c->n_duplicates = store->n_duplicates;
}

/* ---- which states ---- */

/* A store of ours says what it holds; what is measured must be the same. */
static void compare_names(struct check *c, const struct feature_layout *said, const struct feature_layout *found) {
  struct eaglet_error problem = {0};
  for (int32_t i = 0; i < said->n_states; i++) {
    if (said->states[i] == found->states[i]) continue;
    error_set(&problem, EAGLET_E_CHECK, "%s: manifest.json says that input %d is state %d, measured is state %d", c->params->features, i, said->states[i],
              found->states[i]);
    note(c, "manifest.json", &problem);
  }
  if (said->last == found->last) return;
  error_set(&problem, EAGLET_E_CHECK, "%s: manifest.json says that the last state is before the final norm, measured is behind", c->params->features);
  note(c, "manifest.json", &problem);
}

static enum eaglet_status open_model(struct model **model, struct compute **compute, const struct eaglet_check_features_params *p,
                                     struct eaglet_error *err) {
  TRY(compute_open_cpu(compute, p->threads, EAGLET_PRECISION_EXACT, err));
  const struct model_params params = {.path = p->model, .ignore_index = p->ignore_index, .compute = *compute};
  return model_open(model, &params, err);
}

static enum eaglet_status probe(struct check *c, struct feature_store *store, struct eaglet_error *err) {
  const struct eaglet_check_features_params *p = c->params;
  struct compute *compute = NULL;
  struct model *model = NULL;
  struct eaglet_error problem = {0};
  struct feature_layout said = store->layout;
  bool named = store->named;
  enum eaglet_status status = open_model(&model, &compute, p, err);
  if (status == EAGLET_OK) status = target_check_data(&c->tokens, p->model, model->arch.features.n_vocab, err);
  if (status == EAGLET_OK) {
    enum eaglet_status fits = feature_probe_run(store, model, &c->slots, &problem);
    if (fits != EAGLET_OK) note(c, p->features, &problem);
    else if (named) compare_names(c, &said, &store->layout);
  }
  model_close(model);
  if (compute) compute_close(compute);
  return status;
}

/* Only a store whose files are all right is opened as one. */
static enum eaglet_status check_whole(struct check *c, bool foreign, struct eaglet_error *err) {
  struct feature_store *store;
  if (!c->has_tokens || c->n_wrong > 0 || (c->n_missing > 0 && !foreign)) return EAGLET_OK;
  struct eaglet_error problem = {0};
  enum eaglet_status status = feature_store_open(&store, c->params->features, &c->tokens, &problem);
  if (status == EAGLET_E_INPUT) { /* of other rows altogether */
    note(c, c->params->features, &problem);
    return EAGLET_OK;
  }
  if (status != EAGLET_OK) FAIL(err, status, "%s", problem.message);
  if (foreign) check_cover(c, store);
  if (status == EAGLET_OK && c->params->model) status = probe(c, store, err);
  feature_store_close(store);
  return status;
}

/* ---- all of it ---- */

static struct eaglet_text make_report(const struct check *c) {
  json_t *report = json_pack("{ss ss sI sI sI sI sI sI sI sI sI so so so sb}", "features", c->params->features, "format", c->format ? c->format : "unknown", "files",
                             (json_int_t)c->n_files, "rows", (json_int_t)c->n_rows, "tokens", (json_int_t)c->n_tokens, "files_wrong",
                             (json_int_t)c->n_wrong, "missing_count", (json_int_t)c->n_missing, "without_checksum", (json_int_t)c->n_unhashed,
                             "not_finite", (json_int_t)c->n_not_finite, "zero_states", (json_int_t)c->n_zero, "duplicates", (json_int_t)c->n_duplicates,
                             "problems", json_incref(c->problems), "missing", json_incref(c->missing), "slots",
                             c->slots ? json_incref(c->slots) : json_array(), "ok", c->n_wrong + c->n_missing == 0);
  struct eaglet_text text = json_dump(report, 0);
  json_decref(report);
  return text;
}

static enum eaglet_status run_steps(struct check *c, struct eaglet_error *err) {
  const struct eaglet_check_features_params *p = c->params;
  bool foreign = foreign_store_is(p->features);
  if (p->data) {
    TRY(token_store_open(&c->tokens, p->data, false, err));
    c->has_tokens = true;
  }
  TRY(foreign ? check_samples(c, err) : check_shards(c, err));
  if (foreign && !p->data && p->model && c->n_wrong == 0) { /* their own ids are enough to measure with */
    TRY(foreign_tokens_open(&c->tokens, p->features, false, err));
    c->has_tokens = true;
  }
  return check_whole(c, foreign, err);
}

enum eaglet_status feature_check_run(const struct eaglet_check_features_params *params, struct eaglet_text *report, struct eaglet_error *err) {
  struct check c = {.params = params, .problems = json_array(), .missing = json_array()};
  *report = (struct eaglet_text){0};
  enum eaglet_status status = params->features ? run_steps(&c, err) : error_set(err, EAGLET_E_USAGE, "check: expected a directory of features");
  if (status == EAGLET_OK) *report = make_report(&c);
  if (status == EAGLET_OK && c.n_wrong > 0)
    status = error_set(err, EAGLET_E_CHECK, "%zu of %zu files are not right, %zu are missing; the first: %.800s", c.n_wrong, c.n_files, c.n_missing, c.first);
  if (status == EAGLET_OK && c.n_missing > 0)
    status = error_set(err, EAGLET_E_CHECK, "%s: %zu of %s are missing", params->features, c.n_missing,
                       strcmp(c.format, "eaglet") == 0 ? "its shards" : "the rows");
  token_store_close(&c.tokens);
  json_decref(c.problems);
  json_decref(c.missing);
  json_decref(c.slots);
  return status;
}
