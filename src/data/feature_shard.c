/* feature_shard.c - see feature_shard.h. Owns the layout of feature files; converts between F32 in memory and the
 * stored type. Does not run a model and does not judge numbers: extract refuses what is not finite. */
#include "data/feature_shard.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

char *feature_shard_path(const char *directory, size_t index) {
  return memory_format("%s/rows-%05zu.safetensors", directory, index);
}

size_t feature_shard_rows(const struct feature_layout *layout) {
  return layout->shard_rows > 0 ? (size_t)layout->shard_rows : FEATURE_ROWS;
}

enum eaglet_status feature_shard_rows_read(int32_t *shard_rows, const json_t *manifest, const char *path,
                                           struct eaglet_error *err) {
  int64_t found;
  TRY(json_get_int_or(&found, FEATURE_ROWS, manifest, "shard_rows", path, err));
  if (found < 1 || found > FEATURE_ROWS)
    FAIL(err, EAGLET_E_INPUT, "%s: shard_rows: expected 1 to %d, found %lld", path, FEATURE_ROWS, (long long)found);
  *shard_rows = (int32_t)found;
  return EAGLET_OK;
}

/* ---- writing ---- */

/* What a shard holds, laid out for the writer. */
struct shard_image {
  uint8_t *states, *last;
  int32_t *tokens;
  int64_t *begins;
  uint64_t *hashes;
  int64_t n_tokens;
};

static enum eaglet_status image_init(struct shard_image *image, const struct feature_shard *shard,
                                     struct eaglet_error *err) {
  const struct feature_layout *layout = shard->layout;
  size_t bytes = (size_t)dtype_bits(layout->dtype) / 8 * (size_t)layout->hidden;
  *image = (struct shard_image){0};
  image->begins = memory_alloc((shard->n_rows + 1) * sizeof *image->begins);
  image->hashes = memory_alloc((shard->n_rows + 1) * sizeof *image->hashes);
  for (size_t r = 0; r < shard->n_rows; r++) {
    image->hashes[r] = shard->rows[r].hash;
    image->begins[r + 1] = image->n_tokens += shard->rows[r].n;
  }
  image->tokens = memory_alloc((size_t)image->n_tokens * sizeof *image->tokens);
  image->states = memory_try((size_t)image->n_tokens * bytes * (size_t)layout->n_states);
  image->last = memory_try((size_t)image->n_tokens * bytes);
  if (!image->states || !image->last)
    FAIL(err, EAGLET_E_RESOURCE, "not enough memory for a feature shard of %lld tokens", (long long)image->n_tokens);
  return EAGLET_OK;
}

static void image_release(struct shard_image *image) {
  memory_try_free(image->states);
  memory_try_free(image->last);
  free(image->tokens);
  free(image->begins);
  free(image->hashes);
}

static void image_fill(struct shard_image *image, const struct feature_shard *shard) {
  const struct feature_layout *layout = shard->layout;
  size_t hidden = (size_t)layout->hidden, taps = (size_t)layout->n_states * hidden,
         bytes = (size_t)dtype_bits(layout->dtype) / 8;
  for (size_t r = 0; r < shard->n_rows; r++) {
    size_t first = (size_t)image->begins[r], n = (size_t)shard->rows[r].n;
    memcpy(image->tokens + first, shard->rows[r].tokens, n * sizeof *image->tokens);
    for (size_t i = 0; i < n; i++) {
      const float *from = shard->states[r] + i * (taps + hidden);
      dtype_from_f32(image->states + (first + i) * taps * bytes, layout->dtype, from, taps);
      dtype_from_f32(image->last + (first + i) * hidden * bytes, layout->dtype, from + taps, hidden);
    }
  }
}

enum eaglet_status feature_shard_write(const char *directory, size_t index, const struct feature_shard *shard,
                                       struct eaglet_error *err) {
  const struct feature_layout *layout = shard->layout;
  struct shard_image image;
  enum eaglet_status status = image_init(&image, shard, err);
  if (status == EAGLET_OK) {
    const int64_t rows = (int64_t)shard->n_rows;
    char *path = feature_shard_path(directory, index);
    struct safetensors_writer *file = safetensors_writer_create();
    image_fill(&image, shard);
    safetensors_writer_metadata(file, "format", "eaglet-features");
    safetensors_writer_metadata(file, "convention", FEATURE_CONVENTION);
    safetensors_writer_add(file, "row_begin", DTYPE_I64, 1, (const int64_t[]){rows + 1}, image.begins);
    safetensors_writer_add(file, "row_hash", DTYPE_U64, 1, &rows, image.hashes);
    safetensors_writer_add(file, "tokens", DTYPE_I32, 1, &image.n_tokens, image.tokens);
    safetensors_writer_add(file, "states", layout->dtype, 2,
                           (const int64_t[]){image.n_tokens, (int64_t)layout->n_states * layout->hidden}, image.states);
    safetensors_writer_add(file, "last", layout->dtype, 2, (const int64_t[]){image.n_tokens, layout->hidden},
                           image.last);
    status = safetensors_writer_commit(file, path, err);
    safetensors_writer_free(file);
    free(path);
  }
  image_release(&image);
  return status;
}

enum eaglet_status feature_manifest_write(const char *directory, const struct feature_layout *layout,
                                          const json_t *facts, struct eaglet_error *err) {
  json_t *manifest = json_deep_copy(facts), *states = json_array();
  ASSERT(json_is_string(json_object_get(facts, "token_hash")));
  for (int32_t i = 0; i < layout->n_states; i++) json_array_append_new(states, json_integer(layout->states[i]));
  json_object_set_new(manifest, "format", json_string("eaglet-features"));
  json_object_set_new(manifest, "version", json_integer(1));
  json_object_set_new(manifest, "convention", json_string(FEATURE_CONVENTION));
  json_object_set_new(manifest, "states", states);
  json_object_set_new(manifest, "n_layers", json_integer(layout->n_layers));
  json_object_set_new(manifest, "hidden", json_integer(layout->hidden));
  json_object_set_new(manifest, "dtype", json_string(dtype_name(layout->dtype)));
  json_object_set_new(manifest, "shard_rows", json_integer((json_int_t)feature_shard_rows(layout)));
  struct eaglet_text text = json_dump(manifest, 2);
  char *path = file_join(directory, "manifest.json");
  enum eaglet_status status = file_write(path, text.data, text.length, err);
  free(path);
  free(text.data);
  json_decref(manifest);
  return status;
}

/* ---- reading ---- */

static bool is_vector(const struct tensor_entry *t, enum dtype dtype, int64_t n) {
  return t && t->dtype == dtype && t->rank == 1 && t->shape[0] == n;
}

/* The shard is of exactly these rows. */
static enum eaglet_status check_rows(const struct safetensors *file, const struct token_row *rows, size_t n_rows,
                                     struct eaglet_error *err) {
  const struct tensor_entry *begin = safetensors_find(file, "row_begin"), *hash = safetensors_find(file, "row_hash");
  if (!is_vector(begin, DTYPE_I64, (int64_t)n_rows + 1) || !is_vector(hash, DTYPE_U64, (int64_t)n_rows)) {
    FAIL(err, EAGLET_E_INPUT, "%s: expected row_begin and row_hash of %zu rows, found others", file->path, n_rows);
  }
  for (size_t r = 0, at = 0; r <= n_rows; r++) {
    int64_t its_begin;
    uint64_t its_hash;
    memcpy(&its_begin, begin->data + 8 * r, 8);
    if (its_begin != (int64_t)at)
      FAIL(err, EAGLET_E_INPUT, "%s: row_begin[%zu]: expected %zu, found %lld", file->path, r, at,
           (long long)its_begin);
    if (r == n_rows) break;
    memcpy(&its_hash, hash->data + 8 * r, 8);
    if (its_hash != rows[r].hash)
      FAIL(err, EAGLET_E_INPUT, "%s: row %zu is of another conversation than the token data: extract again", file->path,
           r);
    at += (size_t)rows[r].n;
  }
  return EAGLET_OK;
}

bool feature_shard_done(const char *directory, size_t index, const struct token_row *rows, size_t n_rows) {
  struct safetensors file = {0};
  char *path = feature_shard_path(directory, index);
  bool done = file_exists(path) && safetensors_open(&file, path, NULL) == EAGLET_OK;
  if (done) {
    done = check_rows(&file, rows, n_rows, NULL) == EAGLET_OK && safetensors_find(&file, "states") &&
           safetensors_find(&file, "last");
    safetensors_close(&file);
  }
  free(path);
  return done;
}

struct feature_store {
  char *directory;
  const struct token_store *tokens; /* borrowed */
  struct feature_layout layout;
  struct shard_view {
    struct safetensors file;
    const uint8_t *states, *last;
  } * shards;
  size_t n_shards;
  int64_t *row_begin; /* [n_rows] of each row in its shard */
};

static enum eaglet_status parse_manifest(struct feature_store *store, const json_t *manifest, const char *path,
                                         struct eaglet_error *err) {
  const char *format, *convention, *dtype, *token_hash;
  int64_t version, n_layers, hidden;
  char expected[HASH_TEXT_BYTES];
  struct feature_layout *layout = &store->layout;
  TRY(json_get_string_or(&format, "", manifest, "format", path, err));
  if (strcmp(format, "eaglet-features") != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: format: expected eaglet-features (a directory written by extract), found '%.40s'",
         path, format);
  TRY(json_get_int(&version, manifest, "version", path, err));
  if (version != 1) FAIL(err, EAGLET_E_INPUT, "%s: version: expected 1, found %lld", path, (long long)version);
  TRY(json_get_string_or(&convention, "", manifest, "convention", path, err));
  if (strcmp(convention, FEATURE_CONVENTION) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: convention: expected '%s', found '%.80s'", path, FEATURE_CONVENTION, convention);
  TRY(json_get_string_or(&dtype, "", manifest, "dtype", path, err));
  TRY(json_get_string_or(&token_hash, "", manifest, "token_hash", path, err));
  TRY(json_get_int(&n_layers, manifest, "n_layers", path, err));
  TRY(json_get_int(&hidden, manifest, "hidden", path, err));
  TRY(feature_shard_rows_read(&layout->shard_rows, manifest, path, err));
  const json_t *states = json_object_get(manifest, "states");
  size_t n = json_array_size(states);
  layout->dtype = dtype_from_name(dtype);
  if (layout->dtype != DTYPE_BF16 && layout->dtype != DTYPE_F32)
    FAIL(err, EAGLET_E_INPUT, "%s: dtype: expected BF16 or F32, found '%.20s'", path, dtype);
  if (n_layers < 1 || n_layers > 100000 || hidden < 1 || hidden > 10000000)
    FAIL(err, EAGLET_E_INPUT, "%s: found %lld layers of width %lld", path, (long long)n_layers, (long long)hidden);
  if (n < 1 || n > 16) FAIL(err, EAGLET_E_INPUT, "%s: states: expected 1 to 16, found %zu", path, n);
  layout->n_layers = (int32_t)n_layers;
  layout->hidden = (int32_t)hidden;
  layout->n_states = (int32_t)n;
  for (size_t i = 0; i < n; i++) {
    json_int_t state = json_integer_value(json_array_get(states, i));
    if (state < 0 || state > n_layers)
      FAIL(err, EAGLET_E_INPUT, "%s: states[%zu]: found %lld, the target has states 0 to %lld", path, i,
           (long long)state, (long long)n_layers);
    layout->states[i] = (int32_t)state;
  }
  hash_text(expected, store->tokens->hash);
  if (strcmp(expected, token_hash) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: token_hash: expected %s (%s), found %.40s: features of other rows", path, expected,
         store->tokens->directory, token_hash);
  return EAGLET_OK;
}

static enum eaglet_status read_manifest(struct feature_store *store, struct eaglet_error *err) {
  char *path = file_join(store->directory, "manifest.json");
  json_t *manifest = NULL;
  enum eaglet_status status = json_parse_file(&manifest, path, err);
  if (status == EAGLET_OK) status = parse_manifest(store, manifest, path, err);
  json_decref(manifest);
  free(path);
  return status;
}

static enum eaglet_status check_matrix(const struct tensor_entry **tensor, const struct safetensors *file,
                                       const char *name, const int64_t shape[2], enum dtype dtype,
                                       struct eaglet_error *err) {
  const struct tensor_entry *t = *tensor = safetensors_find(file, name);
  if (!t || t->dtype != dtype || t->rank != 2 || t->shape[0] != shape[0] || t->shape[1] != shape[1]) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected %s [%lld, %lld], found %s", file->path, name, dtype_name(dtype),
         (long long)shape[0], (long long)shape[1], t ? "another shape or type" : "none");
  }
  return EAGLET_OK;
}

static enum eaglet_status open_shard(struct feature_store *store, struct eaglet_error *err) {
  const struct feature_layout *layout = &store->layout;
  const struct token_store *tokens = store->tokens;
  size_t rows = feature_shard_rows(layout), index = store->n_shards, first = index * rows,
         n = tokens->n_rows - first < rows ? tokens->n_rows - first : rows;
  struct shard_view *view = &store->shards[index];
  const struct tensor_entry *states, *last;
  int64_t n_tokens = 0;
  char *path = feature_shard_path(store->directory, index);
  enum eaglet_status status =
      file_exists(path)
          ? safetensors_open(&view->file, path, err)
          : error_set(err, EAGLET_E_INPUT, "%s: not there: the extraction did not finish; run extract again", path);
  free(path);
  TRY(status);
  store->n_shards++;
  TRY(check_rows(&view->file, tokens->rows + first, n, err));
  for (size_t r = first; r < first + n; r++) {
    store->row_begin[r] = n_tokens;
    n_tokens += tokens->rows[r].n;
  }
  TRY(check_matrix(&states, &view->file, "states",
                   (const int64_t[]){n_tokens, (int64_t)layout->n_states * layout->hidden}, layout->dtype, err));
  TRY(check_matrix(&last, &view->file, "last", (const int64_t[]){n_tokens, layout->hidden}, layout->dtype, err));
  view->states = states->data;
  view->last = last->data;
  return EAGLET_OK;
}

enum eaglet_status feature_store_open(struct feature_store **out, const char *directory,
                                      const struct token_store *tokens, struct eaglet_error *err) {
  struct feature_store *store = memory_alloc(sizeof *store);
  *out = NULL;
  store->directory = memory_copy_string(directory);
  store->tokens = tokens;
  store->row_begin = memory_alloc((tokens->n_rows + 1) * sizeof *store->row_begin);
  enum eaglet_status status = read_manifest(store, err);
  size_t rows = feature_shard_rows(&store->layout), n_shards = (tokens->n_rows + rows - 1) / rows;
  store->shards = memory_alloc((n_shards + 1) * sizeof *store->shards);
  while (status == EAGLET_OK && store->n_shards < n_shards) status = open_shard(store, err);
  if (status != EAGLET_OK) {
    feature_store_close(store);
    return status;
  }
  *out = store;
  return EAGLET_OK;
}

const struct feature_layout *feature_store_layout(const struct feature_store *store) {
  return &store->layout;
}

enum eaglet_status feature_store_read(struct feature_store *store, size_t row, float *states,
                                      struct eaglet_error *err) {
  const struct feature_layout *layout = &store->layout;
  if (row >= store->tokens->n_rows) FAIL(err, EAGLET_E_INTERNAL, "feature row %zu of %zu", row, store->tokens->n_rows);
  const struct shard_view *view = &store->shards[row / feature_shard_rows(layout)];
  size_t hidden = (size_t)layout->hidden, taps = (size_t)layout->n_states * hidden,
         bytes = (size_t)dtype_bits(layout->dtype) / 8, first = (size_t)store->row_begin[row];
  for (size_t i = 0; i < (size_t)store->tokens->rows[row].n; i++) {
    float *to = states + i * (taps + hidden);
    dtype_to_f32(to, view->states + (first + i) * taps * bytes, layout->dtype, taps);
    dtype_to_f32(to + taps, view->last + (first + i) * hidden * bytes, layout->dtype, hidden);
    for (size_t k = 0; k < taps + hidden; k++) {
      if (isfinite(to[k])) continue;
      FAIL(err, EAGLET_E_INPUT, "%s: row %zu, token %zu, state %d: expected finite numbers, found %f: extract again", view->file.path, row, i,
           k < taps ? layout->states[k / hidden] : layout->n_layers, (double)to[k]);
    }
  }
  return EAGLET_OK;
}

void feature_store_close(struct feature_store *store) {
  if (!store) return;
  for (size_t i = 0; i < store->n_shards; i++) safetensors_close(&store->shards[i].file);
  free(store->shards);
  free(store->row_begin);
  free(store->directory);
  free(store);
}
