/* extract.c - see extract.h. Announces what it will write, then one block of rows after the other: capture here, check and write on the
 * thread of shard_writer.h. A block that exists and is of the same rows is skipped, so resuming needs no other memory than the files; and
 * several processes may share the blocks among them, because nothing but the manifest is common, which the first one makes. */
#include "train/extract.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/util.h"
#include "engine/capture.h"
#include "train/head_init.h"
#include "train/shard_writer.h"
#include "train/target_facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS_DEFAULT 4096
#define MEMORY_MIB_DEFAULT 256
#define BUFFERS 2                        /* one is captured into while the other is written */
#define DISK_MARGIN ((uint64_t)16 << 20) /* never fill a disk to the last byte */

/* The states of one block, and the block's description. */
struct capture_buffer {
  float *values;
  const float *states[FEATURE_ROWS];
};

struct extraction {
  const struct eaglet_extract_params *params;
  const struct feature_sink *sink;
  struct token_store tokens;
  struct compute *compute;
  struct model *model;
  struct capture *capture;
  struct shard_writer *writer;
  struct feature_layout layout;
  int32_t taps[FEATURE_STATES_MAX + 1], n_taps; /* states that are captured: the layout's, and the last when it is none of them and is stored */
  int32_t row_tokens_max;
  size_t n_shards, n_own, n_written, n_skipped; /* n_own: of this rank */
  uint64_t n_tokens_written;
  uint64_t n_bytes, n_bytes_missing; /* of all; that this rank is to write */
  uint8_t *done;                     /* [n_shards] */
  struct capture_buffer buffers[BUFFERS];
  double forward_seconds, seconds;
};

static int32_t rank_of(const struct extraction *e) { return e->params->world > 1 ? e->params->rank : 0; }
static int32_t world_of(const struct extraction *e) { return e->params->world > 1 ? e->params->world : 1; }
static bool is_own(const struct extraction *e, size_t shard) { return shard % (size_t)world_of(e) == (size_t)rank_of(e); }

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

static struct feature_block block_of(const struct extraction *e, size_t shard) {
  size_t width = (size_t)e->n_taps * (size_t)e->layout.hidden;
  return (struct feature_block){.directory = e->params->out,
                                .index = shard,
                                .first_row = shard_first(e, shard),
                                .shard = {.layout = &e->layout,
                                          .rows = e->tokens.rows + shard_first(e, shard),
                                          .n_rows = shard_rows(e, shard),
                                          .width = width,
                                          .last = width - (size_t)e->layout.hidden}};
}

static void set_store(struct feature_layout *layout, enum eaglet_store store) {
  layout->dtype = store == EAGLET_STORE_F32 ? DTYPE_F32 : store == EAGLET_STORE_FP8 ? DTYPE_F8_E4M3 : DTYPE_BF16;
  layout->last = store == EAGLET_STORE_AUX ? FEATURE_LAST_NONE : FEATURE_LAST_RESIDUAL;
}

/* Bytes of memory that one token takes: F32 as captured, twice, because a block is captured while the one before is written; and as
 * stored. */
static uint64_t token_memory(const struct extraction *e) {
  return (uint64_t)e->layout.hidden * (uint64_t)e->n_taps * sizeof(float) * BUFFERS + feature_token_bytes(&e->layout);
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
  if (e->tokens.own_ids) FAIL(err, EAGLET_E_INPUT, "%s: samples of another program have their states already", e->params->data);
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
  e->layout = (struct feature_layout){.n_layers = f->n_layers, .hidden = f->hidden};
  set_store(&e->layout, p->float32 ? EAGLET_STORE_F32 : p->store);
  TRY(head_states_parse(e->layout.states, &e->layout.n_states, p->states, f, err));
  for (int32_t i = 0; i < e->layout.n_states; i++) e->taps[e->n_taps++] = e->layout.states[i];
  if (e->layout.last != FEATURE_LAST_NONE && e->taps[e->n_taps - 1] != f->n_layers) e->taps[e->n_taps++] = f->n_layers;
  if (e->n_taps > TAPS_MAX) FAIL(err, EAGLET_E_USAGE, "--states: expected at most %d with the last one, found %d", TAPS_MAX, e->n_taps);
  if (p->format == EAGLET_FEATURES_SPECULATORS && (e->layout.last == FEATURE_LAST_NONE || e->layout.dtype == DTYPE_F8_E4M3))
    FAIL(err, EAGLET_E_USAGE, "--store: samples of speculators hold every state in BF16 or F32");
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
  json_t *expected = make_facts(e), *states = json_array();
  enum eaglet_status status = EAGLET_OK;
  for (int32_t i = 0; i < e->layout.n_states; i++) json_array_append_new(states, json_integer(e->layout.states[i]));
  json_object_set_new(expected, "states", states);
  json_object_set_new(expected, "dtype", json_string(dtype_name(e->layout.dtype)));
  json_object_set_new(expected, "format", json_string("eaglet-features"));
  if (json_object_get(found, "last") || e->layout.last == FEATURE_LAST_NONE)
    json_object_set_new(expected, "last", json_string(e->layout.last == FEATURE_LAST_NONE ? "recomputed" : "stored"));
  char *a, *b;
  const char *key = json_first_difference(expected, found, &a, &b);
  if (key)
    status = error_set(err, EAGLET_E_INPUT,
                       "%s: %s: expected %.100s, found %.100s: features of other settings; use --replace or another --out", path, key, a, b);
  free(a);
  free(b);
  json_decref(expected);
  return status;
}

/* What to remove of the files of blocks. */
enum visit { VISIT_LOOK, VISIT_REMOVE_ALL, VISIT_REMOVE_TORN };

/* "rows-00001.safetensors.tmp-123" is what a killed run of the block's rank has left: nobody else writes that block. What is left of the
 * manifest is anybody's, once there is one. */
static enum eaglet_status visit_name(const struct extraction *e, const char *name, enum visit visit, bool *any, struct eaglet_error *err) {
  size_t block;
  const char *torn = strstr(name, ".tmp-");
  char *whole = torn ? memory_copy_span(name, (size_t)(torn - name)) : memory_copy_string(name);
  bool manifest = strcmp(whole, e->sink->manifest) == 0, ours = e->sink->block_of(&block, whole, &e->layout);
  free(whole);
  *any = *any || (ours && !torn);
  bool removed = visit == VISIT_REMOVE_ALL ? ours : visit == VISIT_REMOVE_TORN && torn && (manifest || (ours && is_own(e, block)));
  if (!removed) return EAGLET_OK;
  char *path = file_join(e->params->out, name);
  enum eaglet_status status = file_remove(path, err);
  free(path);
  return status;
}

static enum eaglet_status visit_shards(const struct extraction *e, enum visit visit, bool *any, struct eaglet_error *err) {
  struct file_list list = {0};
  *any = false;
  if (!file_is_directory(e->params->out)) return EAGLET_OK;
  TRY(file_list_directory(&list, e->params->out, err));
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < list.n && status == EAGLET_OK; i++) status = visit_name(e, list.names[i], visit, any, err);
  file_list_clear(&list);
  return status;
}

static enum eaglet_status read_manifest(struct extraction *e, const char *path, struct eaglet_error *err) {
  json_t *found = NULL;
  int32_t shard_rows = 0; /* what is there decides how the rest is cut */
  enum eaglet_status status = json_parse_file(&found, path, err);
  if (status == EAGLET_OK) status = check_manifest(e, found, path, err);
  if (status == EAGLET_OK) status = feature_shard_rows_read(&shard_rows, found, path, err);
  if (status == EAGLET_OK) e->layout.shard_rows = shard_rows;
  json_decref(found);
  return status;
}

/* Shards are looked for before the manifest: it is made before any of them, so a process that starts at the same time cannot be taken for
 * an unknown one. */
static enum eaglet_status check_directory(struct extraction *e, bool *matches, struct eaglet_error *err) {
  char *path = file_join(e->params->out, e->sink->manifest);
  bool any;
  *matches = false;
  enum eaglet_status status = visit_shards(e, VISIT_LOOK, &any, err);
  if (status == EAGLET_OK && file_exists(path)) {
    status = read_manifest(e, path, err);
    *matches = status == EAGLET_OK;
    if (status != EAGLET_OK && e->params->replace && world_of(e) == 1) status = EAGLET_OK;
  } else if (status == EAGLET_OK && any && !e->params->replace) {
    status = error_set(err, EAGLET_E_INPUT,
                       "%s: shards without %s: of unknown settings; use --replace or another --out",
                       e->params->out, e->sink->manifest);
  }
  if (status == EAGLET_OK && e->params->replace && !*matches && world_of(e) > 1)
    status = error_set(err, EAGLET_E_USAGE, "--replace: each of %d processes would remove what the others write; remove %s first", world_of(e), e->params->out);
  free(path);
  return status;
}

static void plan_shards(struct extraction *e, bool matches) {
  size_t rows = feature_shard_rows(&e->layout);
  free(e->done);
  e->n_shards = (e->tokens.n_rows + rows - 1) / rows;
  e->done = memory_alloc(e->n_shards + 1);
  e->n_own = 0;
  e->n_bytes = e->n_bytes_missing = 0;
  for (size_t i = 0; i < e->n_shards; i++) {
    uint64_t bytes = e->sink->bytes(&e->layout, shard_rows(e, i), shard_tokens(e, i));
    e->n_bytes += bytes;
    if (!is_own(e, i)) continue;
    const struct feature_block block = block_of(e, i);
    e->done[i] = matches && e->sink->done(&block);
    e->n_own++;
    if (!e->done[i]) e->n_bytes_missing += bytes;
  }
}

/* The manifest first: a kill leaves no manifest over half a directory of other settings. Another process may have made it meanwhile, and
 * has then cut the rows as it could: that holds for this one too. */
static enum eaglet_status make_directory(struct extraction *e, struct eaglet_error *err) {
  const char *out = e->params->out;
  bool any, existed = false;
  TRY(file_make_directory(out, err));
  char *path = file_join(out, e->sink->manifest);
  enum eaglet_status status = e->params->replace ? file_remove(path, err) : EAGLET_OK;
  if (status == EAGLET_OK && e->params->replace) status = visit_shards(e, VISIT_REMOVE_ALL, &any, err);
  if (status == EAGLET_OK) {
    json_t *facts = make_facts(e);
    status = feature_manifest_write(path, &e->layout, facts, &existed, err);
    json_decref(facts);
  }
  if (status == EAGLET_OK && existed) {
    status = read_manifest(e, path, err);
    if (status == EAGLET_OK) plan_shards(e, true);
  }
  free(path);
  return status;
}

/* ---- the work ---- */

#define PROOF_TOKENS 48

/* What training will do with a store without last states, on the first row: the rest of the target, run from the deepest state, must give
 * its last state to the bit, before hours go into a store that nobody could read. */
static enum eaglet_status prove_rest(const struct extraction *e, struct eaglet_error *err) {
  const struct token_row *row = &e->tokens.rows[0];
  int32_t n = row->n < PROOF_TOKENS ? row->n : PROOF_TOKENS, deepest = e->layout.states[e->layout.n_states - 1];
  size_t floats = (size_t)n * (size_t)e->layout.hidden;
  const int32_t states[] = {deepest, e->layout.n_layers};
  float *found[2] = {memory_alloc(floats * sizeof(float)), memory_alloc(floats * sizeof(float))}, *rest = memory_alloc(floats * sizeof(float));
  enum eaglet_status status = EAGLET_OK;
  for (int k = 0; k < 3 && status == EAGLET_OK; k++) { /* the deepest and the last from the tokens; the last from the deepest */
    struct capture *capture;
    const struct capture_params params = {.model = e->model, .tokens_max = n, .start_state = k == 2 ? deepest : 0, .taps = {.n = 1, .states = {states[k > 0]}}};
    const struct capture_rows rows = {.tokens = &row->tokens, .lengths = &n, .n = 1, .starts = k == 2 ? (const float *const[]){found[0]} : NULL,
                                      .states = k == 2 ? &rest : &found[k]};
    status = capture_create(&capture, &params, err);
    if (status != EAGLET_OK) break;
    status = capture_resume(capture, &rows, err);
    capture_free(capture);
  }
  if (status == EAGLET_OK && memcmp(rest, found[1], floats * sizeof(float)) != 0)
    status = error_set(err, EAGLET_E_CHECK, "--store aux: the rest of %s, run from state %d, does not give its last state", e->params->model, deepest);
  free(found[0]), free(found[1]), free(rest);
  return status;
}

static enum eaglet_status open_capture(struct extraction *e, struct eaglet_error *err) {
  struct capture_params params = {.model = e->model, .tokens_max = e->row_tokens_max, .taps = {.n = e->n_taps}};
  uint64_t n_tokens_max = 0;
  memcpy(params.taps.states, e->taps, sizeof *e->taps * (size_t)e->n_taps);
  for (size_t i = 0; i < e->n_shards; i++) {
    uint64_t n = is_own(e, i) ? shard_tokens(e, i) : 0;
    if (n > n_tokens_max) n_tokens_max = n;
  }
  for (int i = 0; i < BUFFERS; i++) {
    e->buffers[i].values = memory_try((size_t)n_tokens_max * (size_t)e->layout.hidden * (size_t)e->n_taps * sizeof(float));
    if (!e->buffers[i].values)
      FAIL(err, EAGLET_E_RESOURCE, "not enough memory for the states of %zu rows (%" PRIu64 " tokens); see --memory",
           feature_shard_rows(&e->layout), n_tokens_max);
  }
  if (e->layout.last == FEATURE_LAST_NONE) TRY(prove_rest(e, err));
  TRY(shard_writer_create(&e->writer, e->sink, err));
  return capture_create(&e->capture, &params, err);
}

/* Captures block `index` and gives it to the writer. The buffer is free: the writer has at most the block before this one. */
static enum eaglet_status extract_shard(struct extraction *e, size_t index, struct eaglet_error *err) {
  struct shard_job job = {.block = block_of(e, index), .states = e->taps, .n_taps = e->n_taps, .data = e->params->data};
  struct capture_buffer *buffer = &e->buffers[e->n_written % BUFFERS];
  const int32_t *tokens[FEATURE_ROWS];
  int32_t lengths[FEATURE_ROWS];
  float *states[FEATURE_ROWS], *at = buffer->values;
  for (size_t r = 0; r < job.block.shard.n_rows; r++) {
    const struct token_row *row = &job.block.shard.rows[r];
    tokens[r] = row->tokens;
    lengths[r] = row->n;
    buffer->states[r] = states[r] = at;
    at += (size_t)row->n * job.block.shard.width;
  }
  job.block.shard.states = buffer->states;
  double begin = time_now();
  TRY(capture_run(e->capture, tokens, lengths, (int32_t)job.block.shard.n_rows, states, err));
  e->forward_seconds += time_now() - begin;
  TRY(shard_writer_put(e->writer, &job, err));
  e->n_written++;
  e->n_tokens_written += shard_tokens(e, index);
  return EAGLET_OK;
}

static enum eaglet_status tell(const struct extraction *e, size_t n_shards, struct eaglet_error *err) {
  char note[96];
  uint64_t done = n_shards * feature_shard_rows(&e->layout), n_rows = done < e->tokens.n_rows ? done : e->tokens.n_rows;
  snprintf(note, sizeof note, "%" PRIu64 " tokens, %.1f MB", e->tokens.n_tokens, (double)e->n_bytes / 1e6);
  if (progress_report(&e->params->progress, "extract", "rows", n_rows, e->tokens.n_rows, note)) return EAGLET_OK;
  if (e->writer) TRY(shard_writer_wait(e->writer, err));
  FAIL(err, EAGLET_E_INTERRUPTED, "%s: stopped with %zu of %zu shards done; run the same command to go on",
       e->params->out, e->n_skipped + (e->writer ? shard_writer_done(e->writer) : 0), e->n_own);
}

static enum eaglet_status extract_all(struct extraction *e, struct eaglet_error *err) {
  double begin = time_now();
  for (size_t i = 0; i < e->n_shards; i++) e->n_skipped += e->done[i];
  for (size_t i = 0; i < e->n_shards; i++) {
    if (!is_own(e, i) || e->done[i]) continue;
    if (!e->capture) TRY(open_capture(e, err));
    TRY(extract_shard(e, i, err));
    if (i + 1 < e->n_shards) TRY(tell(e, i + 1, err));
  }
  if (e->writer) TRY(shard_writer_wait(e->writer, err));
  e->seconds = time_now() - begin;
  (void)tell(e, e->n_shards, NULL); /* all is done: a stop request comes too late */
  return EAGLET_OK;
}

static enum eaglet_status check_disk(const struct extraction *e, struct eaglet_error *err) {
  uint64_t n_free = file_disk_free(e->params->out);
  if (e->params->force || e->n_bytes_missing == 0 || n_free >= e->n_bytes_missing + DISK_MARGIN) return EAGLET_OK;
  FAIL(err, EAGLET_E_RESOURCE, "%s: %" PRIu64 " tokens need %.1f MB of disk, %.1f MB are free; --dry-run shows what other stores need, --force tries it",
       e->params->out, e->tokens.n_tokens, (double)e->n_bytes_missing / 1e6, (double)n_free / 1e6);
}

static enum eaglet_status check_params(const struct eaglet_extract_params *p, struct eaglet_error *err) {
  if (!p->data || !p->out) FAIL(err, EAGLET_E_USAGE, "extract: expected a data directory and an output directory");
  if (p->float32 && p->store != EAGLET_STORE_BF16 && p->store != EAGLET_STORE_F32) FAIL(err, EAGLET_E_USAGE, "--float32: --store says another type");
  if (p->world < 0 || p->rank < 0 || p->rank >= (p->world > 1 ? p->world : 1))
    FAIL(err, EAGLET_E_USAGE, "--rank: expected 0 to %d (of --world %d), found %d", (p->world > 1 ? p->world : 1) - 1, p->world, p->rank);
  return EAGLET_OK;
}

static enum eaglet_status run_steps(struct extraction *e, struct eaglet_error *err) {
  bool matches, any;
  TRY(check_params(e->params, err));
  TRY(open_tokens(e, err));
  TRY(open_target(e, err));
  TRY(check_directory(e, &matches, err));
  plan_shards(e, matches);
  TRY(tell(e, 0, err)); /* the size is told before any work */
  if (e->params->dry_run) return EAGLET_OK;
  TRY(check_disk(e, err));
  if (!matches) TRY(make_directory(e, err));
  TRY(visit_shards(e, VISIT_REMOVE_TORN, &any, err));
  if (e->params->format == EAGLET_FEATURES_SPECULATORS && rank_of(e) == 0) TRY(speculators_write_tables(e->params->out, &e->layout, &e->tokens, err));
  return extract_all(e, err);
}

/* ---- the report ---- */

/* What each store would take of the disk, all shards together. */
static json_t *list_options(const struct extraction *e, uint64_t n_free) {
  static const struct {
    const char *name;
    enum eaglet_store store;
  } stores[] = {{"bf16", EAGLET_STORE_BF16}, {"f32", EAGLET_STORE_F32}, {"fp8", EAGLET_STORE_FP8}, {"aux", EAGLET_STORE_AUX}};
  json_t *list = json_array();
  for (size_t s = 0; s < sizeof stores / sizeof *stores; s++) {
    struct feature_layout layout = e->layout;
    uint64_t bytes = 0;
    set_store(&layout, stores[s].store);
    for (size_t i = 0; i < e->n_shards; i++) bytes += e->sink->bytes(&layout, shard_rows(e, i), shard_tokens(e, i));
    bool chosen = layout.dtype == e->layout.dtype && layout.last == e->layout.last,
         possible = e->sink == &feature_sink_eaglet || stores[s].store == EAGLET_STORE_BF16 || stores[s].store == EAGLET_STORE_F32;
    if (!possible) continue;
    json_array_append_new(list, json_pack("{ss sI sI sb sb}", "store", stores[s].name, "bytes_per_token", (json_int_t)feature_token_bytes(&layout),
                                          "bytes", (json_int_t)bytes, "fits", n_free >= bytes + DISK_MARGIN, "chosen", chosen));
  }
  return list;
}

static struct eaglet_text make_report(const struct extraction *e) {
  json_t *states = json_array();
  uint64_t n_free = file_disk_free(e->params->out);
  for (int32_t i = 0; i < e->layout.n_states; i++) json_array_append_new(states, json_integer(e->layout.states[i]));
  json_t *report =
      json_pack("{ss so si ss ss sb sI sI sI sI sI sI}", "out", e->params->out, "states", states, "n_layers",
                e->layout.n_layers, "dtype", dtype_name(e->layout.dtype), "format", e->sink->name, "last_stored", e->layout.last != FEATURE_LAST_NONE,
                "rows", (json_int_t)e->tokens.n_rows, "tokens", (json_int_t)e->tokens.n_tokens, "bytes_per_token",
                (json_int_t)feature_token_bytes(&e->layout), "bytes", (json_int_t)e->n_bytes, "bytes_missing", (json_int_t)e->n_bytes_missing,
                "disk_free", (json_int_t)n_free);
  json_t *work = json_pack("{si si sI sI sI sI si sb sf sf sf}", "rank", rank_of(e), "world", world_of(e), "shards", (json_int_t)e->n_shards,
                           "shards_of_rank", (json_int_t)e->n_own, "shards_written", (json_int_t)e->n_written, "shards_skipped",
                           (json_int_t)e->n_skipped, "shard_rows", (int)feature_shard_rows(&e->layout), "dry_run", e->params->dry_run, "seconds",
                           e->seconds, "tok_s", e->seconds > 0 ? (double)e->n_tokens_written / e->seconds : 0.0, "forward_share",
                           e->seconds > 0 ? e->forward_seconds / e->seconds : 0.0);
  json_object_update(report, work);
  json_decref(work);
  json_object_set_new(report, "options", list_options(e, n_free));
  struct eaglet_text text = json_dump(report, 0);
  json_decref(report);
  return text;
}

enum eaglet_status extract_run(const struct eaglet_extract_params *params, struct eaglet_text *report,
                               struct eaglet_error *err) {
  struct extraction e = {.params = params,
                         .sink = params->format == EAGLET_FEATURES_SPECULATORS ? &feature_sink_speculators : &feature_sink_eaglet};
  *report = (struct eaglet_text){0};
  enum eaglet_status status = run_steps(&e, err);
  shard_writer_free(e.writer); /* it reads the buffers until then */
  if (status == EAGLET_OK) *report = make_report(&e);
  for (int i = 0; i < BUFFERS; i++) memory_try_free(e.buffers[i].values);
  free(e.done);
  capture_free(e.capture);
  model_close(e.model);
  compute_close(e.compute);
  token_store_close(&e.tokens);
  return status;
}
