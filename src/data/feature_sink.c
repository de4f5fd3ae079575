/* feature_sink.c - the kinds of feature_sink.h. Owns the names of files and the layout of speculators' samples; our shards are written by
 * feature_shard.c. */
#include "data/feature_sink.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "data/foreign_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_HEADER_BYTES 384u /* of a sample's file, at most */
#define TABLE_ROWS "rows.jsonl"
#define TABLE_CONFIG "data_config.json"

/* ---- our shards ---- */

static bool shard_done(const struct feature_block *b) { return feature_shard_done(b->directory, b->index, &b->shard); }

static enum eaglet_status shard_write(const struct feature_block *b, struct eaglet_error *err) {
  return feature_shard_write(b->directory, b->index, &b->shard, err);
}

static bool shard_block_of(size_t *index, const char *name, const struct feature_layout *layout) {
  (void)layout;
  return feature_shard_name_parse(name, index);
}

const struct feature_sink feature_sink_eaglet = {.name = "eaglet",
                                                 .manifest = "manifest.json",
                                                 .done = shard_done,
                                                 .write = shard_write,
                                                 .bytes = feature_shard_bytes,
                                                 .block_of = shard_block_of};

/* ---- samples of speculators ---- */

static char *sample_path(const char *directory, size_t row) { return memory_format("%s/hs_%zu.safetensors", directory, row); }

static bool sample_is_of(const char *path, const struct feature_layout *layout, const struct token_row *row) {
  struct foreign_sample s;
  if (!file_exists(path) || foreign_sample_open(&s, path, NULL) != EAGLET_OK) return false;
  bool same = s.n_tokens == row->n && s.n_slots == layout->n_states + 1 && s.hidden == layout->hidden && s.dtype == layout->dtype;
  if (same) {
    int32_t *ids = memory_alloc(sizeof *ids * (size_t)s.n_tokens);
    same = foreign_sample_ids(&s, ids, NULL) == EAGLET_OK && memcmp(ids, row->tokens, sizeof *ids * (size_t)row->n) == 0;
    free(ids);
  }
  foreign_sample_close(&s);
  return same;
}

static bool sample_done(const struct feature_block *b, size_t r) {
  char *path = sample_path(b->directory, b->first_row + r);
  bool done = sample_is_of(path, b->shard.layout, &b->shard.rows[r]);
  free(path);
  return done;
}

static bool samples_done(const struct feature_block *b) {
  for (size_t r = 0; r < b->shard.n_rows; r++) {
    if (!sample_done(b, r)) return false;
  }
  return true;
}

/* hidden_states [T, n_states + 1, H] and token_ids [T]. */
static enum eaglet_status sample_write(const struct feature_block *b, size_t r, struct eaglet_error *err) {
  const struct feature_shard *shard = &b->shard;
  const struct feature_layout *layout = shard->layout;
  const struct token_row *row = &shard->rows[r];
  size_t hidden = (size_t)layout->hidden, n_states = (size_t)layout->n_states, n = (size_t)row->n,
         bytes = (size_t)dtype_bits(layout->dtype) / 8 * hidden, length = n * (n_states + 1) * bytes;
  uint8_t *states = memory_try(length);
  int64_t *ids = memory_try(n * sizeof *ids);
  enum eaglet_status status = EAGLET_OK;
  if (!states || !ids) status = error_set(err, EAGLET_E_RESOURCE, "not enough memory for a sample of %zu tokens", n);
  for (size_t i = 0; i < n && status == EAGLET_OK; i++) {
    const float *from = shard->states[r] + i * shard->width;
    uint8_t *to = states + i * (n_states + 1) * bytes;
    for (size_t s = 0; s < n_states; s++) dtype_from_f32(to + s * bytes, layout->dtype, from + s * hidden, hidden);
    dtype_from_f32(to + n_states * bytes, layout->dtype, from + shard->last, hidden);
    ids[i] = row->tokens[i];
  }
  if (status == EAGLET_OK) {
    char hash[HASH_TEXT_BYTES], *path = sample_path(b->directory, b->first_row + r);
    struct safetensors_writer *file = safetensors_writer_create();
    sample_hash_text(hash, states, length, ids, n * sizeof *ids);
    safetensors_writer_metadata(file, "xxh3", hash);
    safetensors_writer_add(file, "hidden_states", layout->dtype, 3, (const int64_t[]){row->n, layout->n_states + 1, layout->hidden}, states);
    safetensors_writer_add(file, "token_ids", DTYPE_I64, 1, (const int64_t[]){row->n}, ids);
    status = safetensors_writer_commit(file, path, err);
    safetensors_writer_free(file);
    free(path);
  }
  memory_try_free(states);
  memory_try_free(ids);
  return status;
}

static enum eaglet_status samples_write(const struct feature_block *b, struct eaglet_error *err) {
  for (size_t r = 0; r < b->shard.n_rows; r++) {
    if (!sample_done(b, r)) TRY(sample_write(b, r, err));
  }
  return EAGLET_OK;
}

static uint64_t samples_bytes(const struct feature_layout *layout, size_t n_rows, uint64_t n_tokens) {
  return n_tokens * (feature_token_bytes(layout) + 4) + (uint64_t)n_rows * SAMPLE_HEADER_BYTES; /* ids are I64 */
}

static bool sample_block_of(size_t *index, const char *name, const struct feature_layout *layout) {
  int length = 0;
  unsigned long long row;
  if (strcmp(name, TABLE_ROWS) == 0 || strcmp(name, TABLE_CONFIG) == 0) { /* whoever makes the first block makes the tables */
    *index = 0;
    return true;
  }
  if (sscanf(name, "hs_%llu.safetensors%n", &row, &length) != 1 || length == 0 || name[length] != '\0') return false;
  *index = (size_t)row / feature_shard_rows(layout);
  return true;
}

const struct feature_sink feature_sink_speculators = {.name = "speculators",
                                                      .manifest = "eaglet.json",
                                                      .done = samples_done,
                                                      .write = samples_write,
                                                      .bytes = samples_bytes,
                                                      .block_of = sample_block_of};

/* ---- tables beside them ---- */

static void put_numbers(struct buffer *line, const char *name, const struct token_row *row, bool mask) {
  buffer_format(line, ", \"%s\": [", name);
  for (int32_t i = 0; i < row->n; i++) buffer_format(line, "%s%d", i ? ", " : "", mask ? row->mask[i] : row->tokens[i]);
  buffer_append_char(line, ']');
}

static enum eaglet_status write_rows(const char *path, const struct token_store *tokens, struct eaglet_error *err) {
  struct file_writer file;
  struct buffer line;
  TRY(file_writer_open(&file, path, err));
  buffer_init(&line);
  for (size_t r = 0; r < tokens->n_rows; r++) {
    buffer_reset(&line);
    buffer_format(&line, "{\"id\": \"%zu\"", r);
    put_numbers(&line, "input_ids", &tokens->rows[r], false);
    put_numbers(&line, "loss_mask", &tokens->rows[r], true);
    buffer_append_string(&line, "}\n");
    file_writer_append(&file, line.data, line.length);
  }
  buffer_clear(&line);
  return file_writer_commit(&file, err);
}

/* vLLM numbers what is captured before layer x by x: our state x; the last one is N. */
static enum eaglet_status write_config(const char *path, const struct feature_layout *layout, struct eaglet_error *err) {
  json_t *inputs = json_array(), *all = json_array();
  for (int32_t i = 0; i < layout->n_states; i++) {
    json_array_append_new(inputs, json_integer(layout->states[i]));
    json_array_append_new(all, json_integer(layout->states[i]));
  }
  json_array_append_new(all, json_integer(layout->n_layers));
  json_t *config = json_pack("{ss ss so so ss}", "file_pattern", "hs_{idx}.safetensors", "rows", TABLE_ROWS, "target_layer_ids", inputs,
                             "eagle_aux_hidden_state_layer_ids", all, "hidden_states_dtype", layout->dtype == DTYPE_F32 ? "float32" : "bfloat16");
  struct eaglet_text text = json_dump(config, 2);
  enum eaglet_status status = file_write(path, text.data, text.length, err);
  free(text.data);
  json_decref(config);
  return status;
}

enum eaglet_status speculators_write_tables(const char *directory, const struct feature_layout *layout, const struct token_store *tokens,
                                            struct eaglet_error *err) {
  char *rows = file_join(directory, TABLE_ROWS), *config = file_join(directory, TABLE_CONFIG);
  enum eaglet_status status = EAGLET_OK;
  if (!file_exists(rows)) status = write_rows(rows, tokens, err);
  if (status == EAGLET_OK && !file_exists(config)) status = write_config(config, layout, err);
  free(rows);
  free(config);
  return status;
}
