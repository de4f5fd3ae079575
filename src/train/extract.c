/* extract.c - see extract.h. Announces what it will write, then one shard after the other: capture, check, write. A
 * shard that exists and is of the same rows is skipped, so resuming needs no other memory than the files. */
#include "train/extract.h"

#include "base/memory.h"
#include "base/progress.h"
#include "data/feature_shard.h"
#include "engine/capture.h"
#include "train/head_init.h"
#include "train/target_facts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS_DEFAULT 4096
#define MEMORY_MIB_DEFAULT 256
#define SHARD_OVERHEAD 4096u             /* header and the file system's rounding */
#define DISK_MARGIN ((uint64_t)16 << 20) /* never fill a disk to the last byte */

struct extraction {
  const struct eaglet_extract_params *params;
  struct token_store tokens;
  struct compute *compute;
  struct model *model;
  struct capture *capture;
  struct feature_layout layout;
  int32_t n_taps; /* n_states, and one more when the last state is not among them */
  int32_t row_tokens_max;
  size_t n_shards, n_written, n_skipped;
  uint64_t n_bytes, n_bytes_missing;
  uint8_t *done;                /* [n_shards] */
  float *captured, *row_states; /* a shard's capture; the same with the last state repeated, when that is needed */
};

static size_t shard_first(const struct extraction *e, size_t shard) {
  return shard * feature_shard_rows(&e->layout);
}

static size_t shard_rows(const struct extraction *e, size_t shard) {
  size_t left = e->tokens.n_rows - shard_first(e, shard), most = feature_shard_rows(&e->layout);
  return left < most ? left : most;
}

static uint64_t shard_tokens(const struct extraction *e, size_t shard) {
  uint64_t n = 0;
  for (size_t r = 0; r < shard_rows(e, shard); r++) n += (uint64_t)e->tokens.rows[shard_first(e, shard) + r].n;
  return n;
}

static uint64_t token_bytes(const struct extraction *e) {
  return (uint64_t)(e->layout.n_states + 1) * (uint64_t)e->layout.hidden * (uint64_t)dtype_bits(e->layout.dtype) / 8 +
         sizeof(int32_t);
}

static uint64_t shard_bytes(const struct extraction *e, size_t shard) {
  return shard_tokens(e, shard) * token_bytes(e) + shard_rows(e, shard) * 16 + SHARD_OVERHEAD;
}

/* Bytes of memory that one token of a shard takes while it is made: F32 as captured, once more when the last state is repeated, and as
 * stored. */
static uint64_t token_memory(const struct extraction *e) {
  uint64_t hidden = (uint64_t)e->layout.hidden, n_stored = (uint64_t)e->layout.n_states + 1;
  bool repeated = e->n_taps == e->layout.n_states;
  return hidden * ((uint64_t)e->n_taps * 4 + (repeated ? n_stored * 4 : 0) + n_stored * (uint64_t)dtype_bits(e->layout.dtype) / 8);
}

/* As many rows as fit when all are as long as the longest; one, when not even that fits. */
static int32_t rows_in_memory(const struct extraction *e) {
  uint64_t mib = e->params->memory_mib > 0 ? (uint64_t)e->params->memory_mib : MEMORY_MIB_DEFAULT;
  uint64_t n = (mib << 20) / (token_memory(e) * (uint64_t)e->row_tokens_max);
  return n < 1 ? 1 : n > FEATURE_ROWS ? FEATURE_ROWS : (int32_t)n;
}

/* ---- what it stands on ---- */

static enum eaglet_status open_tokens(struct extraction *e, struct eaglet_error *err) {
  TRY(token_store_open(&e->tokens, e->params->data, false, err));
  if (e->tokens.n_rows == 0) FAIL(err, EAGLET_E_INPUT, "%s: no training rows", e->params->data);
  for (size_t i = 0; i < e->tokens.n_rows; i++) {
    if (e->tokens.rows[i].n > e->row_tokens_max) e->row_tokens_max = e->tokens.rows[i].n;
  }
  return EAGLET_OK;
}

static enum eaglet_status open_target(struct extraction *e, struct eaglet_error *err) {
  const struct eaglet_extract_params *p = e->params;
  TRY(compute_open_cpu(&e->compute, p->threads, EAGLET_PRECISION_EXACT, err));
  const struct model_params model = {.path = p->model,
                                     .ignore_index = p->ignore_index,
                                     .compute = e->compute,
                                     .positions_max = e->row_tokens_max > POSITIONS_DEFAULT ? e->row_tokens_max : 0};
  TRY(model_open(&e->model, &model, err));
  const struct features *f = &e->model->arch.features;
  TRY(target_check_data(&e->tokens, p->model, f->n_vocab, err));
  if (e->row_tokens_max > f->positions_max) {
    FAIL(err, EAGLET_E_INPUT, "%s: longest row: expected at most %d tokens (the target's positions), found %d", p->data,
         f->positions_max, e->row_tokens_max);
  }
  e->layout = (struct feature_layout){
      .n_layers = f->n_layers, .hidden = f->hidden, .dtype = p->float32 ? DTYPE_F32 : DTYPE_BF16};
  TRY(head_states_parse(e->layout.states, &e->layout.n_states, p->states, f, err));
  e->n_taps = e->layout.n_states + (e->layout.states[e->layout.n_states - 1] != f->n_layers);
  e->layout.shard_rows = rows_in_memory(e);
  return EAGLET_OK;
}

/* ---- the directory ---- */

static json_t *make_facts(const struct extraction *e) {
  char tokens[HASH_TEXT_BYTES], model[HASH_TEXT_BYTES];
  hash_text(tokens, e->tokens.hash);
  hash_text(model, target_hash(&e->model->checkpoint));
  return json_pack("{ss ss ss sI sI}", "token_hash", tokens, "model_hash", model, "precision", "exact", "rows",
                   (json_int_t)e->tokens.n_rows, "tokens", (json_int_t)e->tokens.n_tokens);
}

/* Compares what decides the bytes of the shards. */
static enum eaglet_status check_manifest(const struct extraction *e, const json_t *found, const char *path,
                                         struct eaglet_error *err) {
  char states[128] = "[";
  json_t *expected = make_facts(e);
  for (int32_t i = 0; i < e->layout.n_states; i++)
    snprintf(states + strlen(states), sizeof states - strlen(states), "%s%d", i ? "," : "", e->layout.states[i]);
  strcat(states, "]");
  json_t *list = NULL;
  enum eaglet_status status = json_parse(&list, states, strlen(states), "states", err);
  if (status == EAGLET_OK) {
    json_object_set_new(expected, "states", list);
    json_object_set_new(expected, "dtype", json_string(dtype_name(e->layout.dtype)));
    json_object_set_new(expected, "format", json_string("eaglet-features"));
  }
  const char *key;
  json_t *value;
  json_object_foreach(expected, key, value) {
    const json_t *other = json_object_get(found, key);
    if (status != EAGLET_OK || (other && json_equal(value, other))) continue;
    struct eaglet_text a = json_dump(value, 0), b = {0};
    if (other) b = json_dump(other, 0);
    status =
        error_set(err, EAGLET_E_INPUT,
                  "%s: %s: expected %.100s, found %.100s: features of other settings; use --replace or another --out",
                  path, key, a.data, b.data ? b.data : "nothing");
    free(a.data);
    free(b.data);
  }
  json_decref(expected);
  return status;
}

static bool is_shard_name(const char *name) {
  int length = 0;
  (void)!sscanf(name, "rows-%*[0-9].safetensors%n", &length);
  return length > 0 && name[length] == '\0';
}

/* Removes every shard (and the manifest first, so that a kill leaves no manifest over half a directory), or tells that
 * there is one. */
static enum eaglet_status visit_shards(const char *directory, bool remove, bool *any, struct eaglet_error *err) {
  struct file_list list = {0};
  *any = false;
  if (!file_is_directory(directory)) return EAGLET_OK;
  TRY(file_list_directory(&list, directory, err));
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < list.n && status == EAGLET_OK; i++) {
    if (!is_shard_name(list.names[i])) continue;
    *any = true;
    char *path = file_join(directory, list.names[i]);
    if (remove) status = file_remove(path, err);
    free(path);
  }
  file_list_clear(&list);
  return status;
}

static enum eaglet_status check_directory(struct extraction *e, bool *matches, struct eaglet_error *err) {
  char *path = file_join(e->params->out, "manifest.json");
  json_t *found = NULL;
  bool any;
  *matches = false;
  enum eaglet_status status = visit_shards(e->params->out, false, &any, err);
  if (status == EAGLET_OK && file_exists(path)) {
    status = json_parse_file(&found, path, err);
    if (status == EAGLET_OK) status = check_manifest(e, found, path, err);
    int32_t shard_rows = 0; /* what is there decides how the rest is cut */
    if (status == EAGLET_OK) status = feature_shard_rows_read(&shard_rows, found, path, err);
    *matches = status == EAGLET_OK;
    if (*matches) e->layout.shard_rows = shard_rows;
    if (status != EAGLET_OK && e->params->replace) status = EAGLET_OK;
  } else if (status == EAGLET_OK && any && !e->params->replace) {
    status = error_set(err, EAGLET_E_INPUT,
                       "%s: shards without manifest.json: of unknown settings; use --replace or another --out",
                       e->params->out);
  }
  json_decref(found);
  free(path);
  return status;
}

static void plan_shards(struct extraction *e, bool matches) {
  size_t rows = feature_shard_rows(&e->layout);
  e->n_shards = (e->tokens.n_rows + rows - 1) / rows;
  e->done = memory_alloc(e->n_shards + 1);
  for (size_t i = 0; i < e->n_shards; i++) {
    uint64_t bytes = shard_bytes(e, i);
    e->done[i] = matches && feature_shard_done(e->params->out, i, e->tokens.rows + shard_first(e, i), shard_rows(e, i));
    e->n_bytes += bytes;
    if (!e->done[i]) e->n_bytes_missing += bytes;
  }
}

static enum eaglet_status make_directory(struct extraction *e, bool matches, struct eaglet_error *err) {
  const char *out = e->params->out;
  if (matches) return EAGLET_OK;
  TRY(file_make_directory(out, err));
  char *path = file_join(out, "manifest.json");
  bool any;
  enum eaglet_status status = file_remove(path, err);
  free(path);
  TRY(status);
  TRY(visit_shards(out, true, &any, err));
  json_t *facts = make_facts(e);
  status = feature_manifest_write(out, &e->layout, facts, err);
  json_decref(facts);
  return status;
}

/* ---- the work ---- */

static enum eaglet_status open_capture(struct extraction *e, struct eaglet_error *err) {
  struct capture_params params = {.model = e->model, .tokens_max = e->row_tokens_max};
  const struct feature_layout *layout = &e->layout;
  uint64_t n_tokens_max = 0;
  for (int32_t i = 0; i < layout->n_states; i++) params.taps.states[params.taps.n++] = layout->states[i];
  if (layout->states[layout->n_states - 1] != layout->n_layers) params.taps.states[params.taps.n++] = layout->n_layers;
  ASSERT(e->n_taps == params.taps.n);
  for (size_t i = 0; i < e->n_shards; i++) {
    uint64_t n = shard_tokens(e, i);
    if (n > n_tokens_max) n_tokens_max = n;
  }
  size_t floats = (size_t)n_tokens_max * (size_t)layout->hidden;
  e->captured = memory_try(floats * (size_t)e->n_taps * sizeof(float));
  if (e->n_taps == layout->n_states)
    e->row_states = memory_try(floats * (size_t)(layout->n_states + 1) * sizeof(float));
  if (!e->captured || (e->n_taps == layout->n_states && !e->row_states)) {
    FAIL(err, EAGLET_E_RESOURCE, "not enough memory for the states of %zu rows (%" PRIu64 " tokens); see --memory",
         feature_shard_rows(layout), n_tokens_max);
  }
  return capture_create(&e->capture, &params, err);
}

static enum eaglet_status check_finite(const struct extraction *e, size_t row, const float *states,
                                       struct eaglet_error *err) {
  size_t width = (size_t)e->n_taps * (size_t)e->layout.hidden, n = (size_t)e->tokens.rows[row].n;
  for (size_t i = 0; i < n * width; i++) {
    if (isfinite(states[i])) continue;
    size_t tap = i % width / (size_t)e->layout.hidden;
    int32_t state = tap < (size_t)e->layout.n_states ? e->layout.states[tap] : e->layout.n_layers;
    FAIL(err, EAGLET_E_INPUT, "%s: row %zu, token %zu, state %d: expected finite numbers, found %f", e->params->data,
         row, i / width, state, (double)states[i]);
  }
  return EAGLET_OK;
}

/* The last state is an input of the head too: it stands twice in the layout of a shard. */
static void repeat_last(const struct extraction *e, size_t n_tokens) {
  size_t hidden = (size_t)e->layout.hidden, taps = (size_t)e->n_taps * hidden;
  for (size_t i = 0; i < n_tokens; i++) {
    float *to = e->row_states + i * (taps + hidden);
    memcpy(to, e->captured + i * taps, taps * sizeof *to);
    memcpy(to + taps, e->captured + (i + 1) * taps - hidden, hidden * sizeof *to);
  }
}

static enum eaglet_status extract_shard(struct extraction *e, size_t index, struct eaglet_error *err) {
  size_t n_rows = shard_rows(e, index), first = shard_first(e, index), hidden = (size_t)e->layout.hidden;
  const int32_t *tokens[FEATURE_ROWS];
  int32_t lengths[FEATURE_ROWS];
  float *states[FEATURE_ROWS];
  const float *stored[FEATURE_ROWS];
  size_t at = 0;
  for (size_t r = 0; r < n_rows; r++) {
    const struct token_row *row = &e->tokens.rows[first + r];
    tokens[r] = row->tokens;
    lengths[r] = row->n;
    states[r] = e->captured + at * (size_t)e->n_taps * hidden;
    stored[r] = e->row_states ? e->row_states + at * (size_t)(e->n_taps + 1) * hidden : states[r];
    at += (size_t)row->n;
  }
  TRY(capture_run(e->capture, tokens, lengths, (int32_t)n_rows, states, err));
  for (size_t r = 0; r < n_rows; r++) TRY(check_finite(e, first + r, states[r], err));
  if (e->row_states) repeat_last(e, at);
  const struct feature_shard shard = {
      .layout = &e->layout, .rows = e->tokens.rows + first, .n_rows = n_rows, .states = stored};
  return feature_shard_write(e->params->out, index, &shard, err);
}

static enum eaglet_status tell(const struct extraction *e, size_t n_shards, struct eaglet_error *err) {
  char note[96];
  uint64_t done = n_shards * feature_shard_rows(&e->layout), n_rows = done < e->tokens.n_rows ? done : e->tokens.n_rows;
  snprintf(note, sizeof note, "%" PRIu64 " tokens, %.1f MB", e->tokens.n_tokens, (double)e->n_bytes / 1e6);
  if (progress_report(&e->params->progress, "extract", "rows", n_rows, e->tokens.n_rows, note)) return EAGLET_OK;
  FAIL(err, EAGLET_E_INTERRUPTED, "%s: stopped with %zu of %zu shards done; run the same command to go on",
       e->params->out, n_shards, e->n_shards);
}

static enum eaglet_status extract_all(struct extraction *e, struct eaglet_error *err) {
  for (size_t i = 0; i < e->n_shards; i++) {
    if (e->done[i]) {
      e->n_skipped++;
      continue;
    }
    if (!e->capture) TRY(open_capture(e, err));
    TRY(extract_shard(e, i, err));
    e->n_written++;
    if (i + 1 < e->n_shards) TRY(tell(e, i + 1, err));
  }
  (void)tell(e, e->n_shards, NULL); /* all is done: a stop request comes too late */
  return EAGLET_OK;
}

static enum eaglet_status run_steps(struct extraction *e, struct eaglet_error *err) {
  bool matches;
  TRY(open_tokens(e, err));
  TRY(open_target(e, err));
  TRY(check_directory(e, &matches, err));
  plan_shards(e, matches);
  TRY(tell(e, 0, err)); /* the size is told before any work */
  if (e->params->dry_run) return EAGLET_OK;
  uint64_t n_free = file_disk_free(e->params->out);
  if (e->n_bytes_missing > 0 && n_free < e->n_bytes_missing + DISK_MARGIN) {
    FAIL(err, EAGLET_E_RESOURCE, "%s: %" PRIu64 " tokens need %.1f MB of disk, %.1f MB are free", e->params->out,
         e->tokens.n_tokens, (double)e->n_bytes_missing / 1e6, (double)n_free / 1e6);
  }
  TRY(make_directory(e, matches, err));
  return extract_all(e, err);
}

static struct eaglet_text make_report(const struct extraction *e) {
  json_t *states = json_array();
  for (int32_t i = 0; i < e->layout.n_states; i++) json_array_append_new(states, json_integer(e->layout.states[i]));
  json_t *report =
      json_pack("{ss so si ss sI sI sI sI sI sI sI sI sI si sb}", "out", e->params->out, "states", states, "n_layers",
                e->layout.n_layers, "dtype", dtype_name(e->layout.dtype), "rows", (json_int_t)e->tokens.n_rows,
                "tokens", (json_int_t)e->tokens.n_tokens, "bytes_per_token", (json_int_t)token_bytes(e), "bytes",
                (json_int_t)e->n_bytes, "bytes_missing", (json_int_t)e->n_bytes_missing, "disk_free",
                (json_int_t)file_disk_free(e->params->out), "shards", (json_int_t)e->n_shards, "shards_written",
                (json_int_t)e->n_written, "shards_skipped", (json_int_t)e->n_skipped, "shard_rows", (int)feature_shard_rows(&e->layout), "dry_run", e->params->dry_run);
  struct eaglet_text text = json_dump(report, 0);
  json_decref(report);
  return text;
}

enum eaglet_status extract_run(const struct eaglet_extract_params *params, struct eaglet_text *report,
                               struct eaglet_error *err) {
  struct extraction e = {.params = params};
  *report = (struct eaglet_text){0};
  if (!params->data || !params->out)
    FAIL(err, EAGLET_E_USAGE, "extract: expected a data directory and an output directory");
  enum eaglet_status status = run_steps(&e, err);
  if (status == EAGLET_OK) *report = make_report(&e);
  memory_try_free(e.captured);
  memory_try_free(e.row_states);
  free(e.done);
  capture_free(e.capture);
  model_close(e.model);
  compute_close(e.compute);
  token_store_close(&e.tokens);
  return status;
}
