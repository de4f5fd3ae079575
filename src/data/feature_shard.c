/* feature_shard.c - see feature_shard.h: shards as files, written and judged. Owns the layout of feature files. Does not run a model.
 * Reading for training is in feature_shard_store.c. */
#include "data/feature_shard.h"

#include "base/memory.h"
#include "data/feature_shard_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 1024u /* of a shard's file, at most: seven tensors and their metadata */

static const char *const hashed[] = {"row_begin", "row_hash", "tokens", "states", "states_scale", "last", "last_scale"};

char *feature_shard_path(const char *directory, size_t index) {
  return memory_format("%s/rows-%05zu.safetensors", directory, index);
}

bool feature_shard_name_parse(const char *name, size_t *index) {
  int length = 0;
  unsigned long long number;
  if (sscanf(name, "rows-%llu.safetensors%n", &number, &length) != 1 || length == 0 || name[length] != '\0') return false;
  *index = (size_t)number;
  return true;
}

size_t feature_shard_rows(const struct feature_layout *layout) {
  return layout->shard_rows > 0 ? (size_t)layout->shard_rows : FEATURE_ROWS;
}

uint64_t feature_shard_bytes(const struct feature_layout *layout, size_t n_rows, uint64_t n_tokens) {
  return n_tokens * feature_token_bytes(layout) + (uint64_t)n_rows * 16 + 8 + HEADER_BYTES;
}

void layout_numbers(int32_t numbers[FEATURE_STATES_MAX + 1], const struct feature_layout *layout) {
  memcpy(numbers, layout->states, sizeof *numbers * (size_t)layout->n_states);
  numbers[layout->n_states] = layout->n_layers;
}

/* ---- writing ---- */

/* What a shard holds, laid out for the writer. */
struct shard_image {
  uint8_t *states, *last;
  float *states_scale, *last_scale;
  int32_t *tokens;
  int64_t *begins;
  uint64_t *hashes;
  int64_t n_tokens;
  struct safetensors_writer *file;
  uint64_t hash; /* of what was added so far */
};

static enum eaglet_status image_init(struct shard_image *image, const struct feature_shard *shard,
                                     struct eaglet_error *err) {
  const struct feature_layout *layout = shard->layout;
  size_t bytes = (size_t)dtype_bits(layout->dtype) / 8 * (size_t)layout->hidden, n_states = (size_t)layout->n_states;
  bool last = layout->last != FEATURE_LAST_NONE, scaled = layout->dtype == DTYPE_F8_E4M3;
  *image = (struct shard_image){.file = safetensors_writer_create()};
  image->begins = memory_alloc((shard->n_rows + 1) * sizeof *image->begins);
  image->hashes = memory_alloc((shard->n_rows + 1) * sizeof *image->hashes);
  for (size_t r = 0; r < shard->n_rows; r++) {
    image->hashes[r] = shard->rows[r].hash;
    image->begins[r + 1] = image->n_tokens += shard->rows[r].n;
  }
  size_t n = (size_t)image->n_tokens;
  image->tokens = memory_alloc(n * sizeof *image->tokens);
  image->states = memory_try(n * bytes * n_states);
  if (last) image->last = memory_try(n * bytes);
  if (scaled) image->states_scale = memory_try(n * n_states * sizeof(float));
  if (scaled && last) image->last_scale = memory_try(n * sizeof(float));
  if (image->states && (!last || image->last) && (!scaled || (image->states_scale && (!last || image->last_scale)))) return EAGLET_OK;
  FAIL(err, EAGLET_E_RESOURCE, "not enough memory for a feature shard of %lld tokens", (long long)image->n_tokens);
}

static void image_release(struct shard_image *image) {
  memory_try_free(image->states);
  memory_try_free(image->last);
  memory_try_free(image->states_scale);
  memory_try_free(image->last_scale);
  safetensors_writer_free(image->file);
  free(image->tokens);
  free(image->begins);
  free(image->hashes);
}

static void image_fill(struct shard_image *image, const struct feature_shard *shard) {
  const struct feature_layout *layout = shard->layout;
  size_t hidden = (size_t)layout->hidden, n_states = (size_t)layout->n_states,
         bytes = (size_t)dtype_bits(layout->dtype) / 8 * hidden;
  for (size_t r = 0; r < shard->n_rows; r++) {
    size_t first = (size_t)image->begins[r], n = (size_t)shard->rows[r].n;
    memcpy(image->tokens + first, shard->rows[r].tokens, n * sizeof *image->tokens);
    for (size_t i = first; i < first + n; i++) {
      const float *from = shard->states[r] + (i - first) * shard->width;
      for (size_t s = 0; s < n_states; s++)
        feature_encode(image->states + (i * n_states + s) * bytes, image->states_scale ? image->states_scale + i * n_states + s : NULL,
                       layout->dtype, from + s * hidden, hidden);
      if (image->last)
        feature_encode(image->last + i * bytes, image->last_scale ? image->last_scale + i : NULL, layout->dtype, from + shard->last, hidden);
    }
  }
}

static void image_add(struct shard_image *image, const char *name, enum dtype dtype, const int64_t shape[2], const void *data) {
  int rank = shape[1] ? 2 : 1;
  if (!data) return;
  size_t n = (size_t)(shape[0] * (rank > 1 ? shape[1] : 1)) * (size_t)dtype_bits(dtype) / 8;
  safetensors_writer_add(image->file, name, dtype, rank, shape, data);
  image->hash = file_hash(data, n, image->hash);
}

enum eaglet_status feature_shard_write(const char *directory, size_t index, const struct feature_shard *shard,
                                       struct eaglet_error *err) {
  const struct feature_layout *layout = shard->layout;
  struct shard_image image;
  char hash[HASH_TEXT_BYTES];
  enum eaglet_status status = image_init(&image, shard, err);
  if (status == EAGLET_OK) {
    const int64_t rows = (int64_t)shard->n_rows, n = image.n_tokens;
    char *path = feature_shard_path(directory, index);
    image_fill(&image, shard);
    image_add(&image, "row_begin", DTYPE_I64, (const int64_t[]){rows + 1, 0}, image.begins);
    image_add(&image, "row_hash", DTYPE_U64, (const int64_t[]){rows, 0}, image.hashes);
    image_add(&image, "tokens", DTYPE_I32, (const int64_t[]){n, 0}, image.tokens);
    image_add(&image, "states", layout->dtype, (const int64_t[]){n, (int64_t)layout->n_states * layout->hidden}, image.states);
    image_add(&image, "states_scale", DTYPE_F32, (const int64_t[]){n, layout->n_states}, image.states_scale);
    image_add(&image, "last", layout->dtype, (const int64_t[]){n, layout->hidden}, image.last);
    image_add(&image, "last_scale", DTYPE_F32, (const int64_t[]){n, 0}, image.last_scale);
    hash_text(hash, image.hash);
    safetensors_writer_metadata(image.file, "format", "eaglet-features");
    safetensors_writer_metadata(image.file, "convention", FEATURE_CONVENTION);
    safetensors_writer_metadata(image.file, "xxh3", hash);
    status = safetensors_writer_commit(image.file, path, err);
    free(path);
  }
  image_release(&image);
  return status;
}

/* ---- the manifest ---- */

static const char *last_name(enum feature_last last) { return last == FEATURE_LAST_NONE ? "recomputed" : "stored"; }

enum eaglet_status feature_manifest_write(const char *path, const struct feature_layout *layout,
                                          const json_t *facts, bool *existed, struct eaglet_error *err) {
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
  json_object_set_new(manifest, "last", json_string(last_name(layout->last)));
  json_object_set_new(manifest, "shard_rows", json_integer((json_int_t)feature_shard_rows(layout)));
  struct eaglet_text text = json_dump(manifest, 2);
  enum eaglet_status status = file_write_new(path, text.data, text.length, existed, err);
  free(text.data);
  json_decref(manifest);
  return status;
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

static enum eaglet_status parse_kind(const json_t *manifest, const char *path, struct eaglet_error *err) {
  const char *format, *convention;
  int64_t version;
  TRY(json_get_string_or(&format, "", manifest, "format", path, err));
  if (strcmp(format, "eaglet-features") != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: format: expected eaglet-features (a directory written by extract), found '%.40s'",
         path, format);
  TRY(json_get_int(&version, manifest, "version", path, err));
  if (version != 1) FAIL(err, EAGLET_E_INPUT, "%s: version: expected 1, found %lld", path, (long long)version);
  TRY(json_get_string_or(&convention, "", manifest, "convention", path, err));
  if (strcmp(convention, FEATURE_CONVENTION) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: convention: expected '%s', found '%.80s'", path, FEATURE_CONVENTION, convention);
  return EAGLET_OK;
}

static enum eaglet_status parse_states(struct feature_layout *layout, const json_t *manifest, const char *path, struct eaglet_error *err) {
  const json_t *states = json_object_get(manifest, "states");
  size_t n = json_array_size(states);
  if (n < 1 || n > FEATURE_STATES_MAX) FAIL(err, EAGLET_E_INPUT, "%s: states: expected 1 to %d, found %zu", path, FEATURE_STATES_MAX, n);
  layout->n_states = (int32_t)n;
  for (size_t i = 0; i < n; i++) {
    json_int_t state = json_integer_value(json_array_get(states, i));
    if (state < 0 || state > layout->n_layers)
      FAIL(err, EAGLET_E_INPUT, "%s: states[%zu]: found %lld, the target has states 0 to %d", path, i,
           (long long)state, layout->n_layers);
    layout->states[i] = (int32_t)state;
  }
  return EAGLET_OK;
}

enum eaglet_status feature_manifest_parse(struct feature_layout *layout, const json_t *manifest, const char *path,
                                          struct eaglet_error *err) {
  const char *dtype, *last;
  int64_t n_layers, hidden;
  *layout = (struct feature_layout){0};
  TRY(parse_kind(manifest, path, err));
  TRY(json_get_string_or(&dtype, "", manifest, "dtype", path, err));
  TRY(json_get_string_or(&last, "stored", manifest, "last", path, err));
  TRY(json_get_int(&n_layers, manifest, "n_layers", path, err));
  TRY(json_get_int(&hidden, manifest, "hidden", path, err));
  TRY(feature_shard_rows_read(&layout->shard_rows, manifest, path, err));
  layout->dtype = dtype_from_name(dtype);
  if (layout->dtype != DTYPE_BF16 && layout->dtype != DTYPE_F32 && layout->dtype != DTYPE_F8_E4M3)
    FAIL(err, EAGLET_E_INPUT, "%s: dtype: expected BF16, F32 or F8_E4M3, found '%.20s'", path, dtype);
  layout->last = strcmp(last, "recomputed") == 0 ? FEATURE_LAST_NONE : FEATURE_LAST_RESIDUAL;
  if (strcmp(last, last_name(layout->last)) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: last: expected stored or recomputed, found '%.20s'", path, last);
  if (n_layers < 1 || n_layers > 100000 || hidden < 1 || hidden > 10000000)
    FAIL(err, EAGLET_E_INPUT, "%s: found %lld layers of width %lld", path, (long long)n_layers, (long long)hidden);
  layout->n_layers = (int32_t)n_layers;
  layout->hidden = (int32_t)hidden;
  return parse_states(layout, manifest, path, err);
}

/* ---- a shard that is there ---- */

static enum eaglet_status find_part(const uint8_t **data, const struct safetensors *file, const char *name, const int64_t type_shape[3],
                                    struct eaglet_error *err) {
  const struct tensor_entry *t = safetensors_find(file, name);
  enum dtype dtype = (enum dtype)type_shape[0];
  int rank = type_shape[2] ? 2 : 1;
  if (!t || t->dtype != dtype || t->rank != rank || t->shape[0] != type_shape[1] || (rank > 1 && t->shape[1] != type_shape[2])) {
    char columns[32] = "";
    if (rank > 1) snprintf(columns, sizeof columns, ", %lld", (long long)type_shape[2]);
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected %s [%lld%s], found %s", file->path, name, dtype_name(dtype), (long long)type_shape[1], columns,
         t ? "another shape or type" : "none");
  }
  *data = t->data;
  return EAGLET_OK;
}

/* row_begin: its length says how many rows there are. */
static enum eaglet_status read_begins(struct shard_view *view, const struct feature_examination *expected, struct eaglet_error *err) {
  const struct tensor_entry *t = safetensors_find(&view->file, "row_begin");
  const char *path = view->file.path;
  if (!t || t->dtype != DTYPE_I64 || t->rank != 1 || t->shape[0] != (int64_t)expected->n_rows + 1 || (uintptr_t)t->data % 8 != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: expected row_begin and row_hash of %zu rows, found others", path, expected->n_rows);
  view->begins = (const int64_t *)(const void *)t->data;
  view->n_rows = expected->n_rows;
  if (view->begins[0] != 0) FAIL(err, EAGLET_E_INPUT, "%s: row_begin[0]: expected 0, found %lld", path, (long long)view->begins[0]);
  for (size_t r = 0; r < view->n_rows; r++) {
    int64_t n = expected->rows ? expected->rows[r].n : 1; /* at least one token when nothing is known */
    if (view->begins[r + 1] < view->begins[r] + n || (expected->rows && view->begins[r + 1] != view->begins[r] + n) ||
        view->begins[r + 1] - view->begins[r] > INT32_MAX)
      FAIL(err, EAGLET_E_INPUT, "%s: row_begin[%zu]: expected %lld, found %lld", path, r + 1, (long long)(view->begins[r] + n),
           (long long)view->begins[r + 1]);
  }
  view->n_tokens = view->begins[view->n_rows];
  return EAGLET_OK;
}

static enum eaglet_status check_rows(const struct shard_view *view, const struct feature_examination *expected, struct eaglet_error *err) {
  const uint8_t *hashes;
  TRY(find_part(&hashes, &view->file, "row_hash", (const int64_t[]){DTYPE_U64, (int64_t)view->n_rows, 0}, err));
  for (size_t r = 0; expected->rows && r < view->n_rows; r++) {
    if (memcmp(hashes + 8 * r, &expected->rows[r].hash, 8) != 0)
      FAIL(err, EAGLET_E_INPUT, "%s: row %zu is of another conversation than the token data: extract again", view->file.path, r);
  }
  return EAGLET_OK;
}

static enum eaglet_status find_states(struct shard_view *view, const struct feature_layout *layout, struct eaglet_error *err) {
  const struct safetensors *file = &view->file;
  int64_t n = view->n_tokens;
  bool scaled = layout->dtype == DTYPE_F8_E4M3;
  const uint8_t *ids;
  TRY(find_part(&ids, file, "tokens", (const int64_t[]){DTYPE_I32, n, 0}, err));
  TRY(find_part(&view->states, file, "states", (const int64_t[]){layout->dtype, n, (int64_t)layout->n_states * layout->hidden}, err));
  if (scaled) TRY(find_part(&view->states_scale, file, "states_scale", (const int64_t[]){DTYPE_F32, n, layout->n_states}, err));
  if (layout->last == FEATURE_LAST_NONE) return EAGLET_OK;
  TRY(find_part(&view->last, file, "last", (const int64_t[]){layout->dtype, n, layout->hidden}, err));
  return scaled ? find_part(&view->last_scale, file, "last_scale", (const int64_t[]){DTYPE_F32, n, 0}, err) : EAGLET_OK;
}

enum eaglet_status shard_view_open(struct shard_view *view, const char *path, const struct feature_examination *expected,
                                   struct eaglet_error *err) {
  *view = (struct shard_view){0};
  TRY(safetensors_open(&view->file, path, err));
  enum eaglet_status status = read_begins(view, expected, err);
  if (status == EAGLET_OK) status = check_rows(view, expected, err);
  if (status == EAGLET_OK) status = find_states(view, expected->layout, err);
  if (status != EAGLET_OK) safetensors_close(&view->file);
  return status;
}

void shard_view_read(const struct shard_view *view, const struct feature_layout *layout, float *out, const int64_t first_n[2]) {
  size_t hidden = (size_t)layout->hidden, n_states = (size_t)layout->n_states, bytes = (size_t)dtype_bits(layout->dtype) / 8 * hidden,
         first = (size_t)first_n[0], n = (size_t)first_n[1];
  float scale = 1;
  for (size_t i = first; i < first + n; i++) {
    for (size_t s = 0; s < n_states; s++, out += hidden) {
      if (view->states_scale) memcpy(&scale, view->states_scale + 4 * (i * n_states + s), sizeof scale);
      feature_decode(out, view->states + (i * n_states + s) * bytes, &scale, layout->dtype, hidden);
    }
    if (!view->last) continue;
    if (view->last_scale) memcpy(&scale, view->last_scale + 4 * i, sizeof scale);
    feature_decode(out, view->last + i * bytes, &scale, layout->dtype, hidden);
    out += hidden;
  }
}

bool feature_shard_done(const char *directory, size_t index, const struct feature_shard *shard) {
  struct shard_view view;
  const struct feature_examination expected = {.layout = shard->layout, .rows = shard->rows, .n_rows = shard->n_rows};
  char *path = feature_shard_path(directory, index);
  bool done = file_exists(path) && shard_view_open(&view, path, &expected, NULL) == EAGLET_OK;
  if (done) safetensors_close(&view.file);
  free(path);
  return done;
}

/* ---- judging ---- */

static enum eaglet_status check_hash(struct feature_verdict *verdict, const struct safetensors *file, struct eaglet_error *err) {
  const char *expected = safetensors_metadata(file, "xxh3"), *format = safetensors_metadata(file, "format"),
             *convention = safetensors_metadata(file, "convention");
  char found[HASH_TEXT_BYTES];
  uint64_t hash = 0;
  if (!format || strcmp(format, "eaglet-features") != 0 || !convention || strcmp(convention, FEATURE_CONVENTION) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: metadata: expected the format eaglet-features and its convention", file->path);
  verdict->unhashed = expected == NULL;
  if (!expected) return EAGLET_OK;
  for (size_t i = 0; i < sizeof hashed / sizeof *hashed; i++) {
    const struct tensor_entry *t = safetensors_find(file, hashed[i]);
    if (t) hash = file_hash(t->data, (size_t)t->n_bytes, hash);
  }
  hash_text(found, hash);
  if (strcmp(expected, found) != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: checksum: expected %.20s, found %s: the file was changed or damaged", file->path, expected, found);
  return EAGLET_OK;
}

static enum eaglet_status check_ids(const struct shard_view *view, const struct feature_examination *expected, struct eaglet_error *err) {
  const uint8_t *ids = safetensors_find(&view->file, "tokens")->data;
  for (size_t r = 0; r < view->n_rows; r++) {
    for (int64_t i = view->begins[r]; i < view->begins[r + 1]; i++) {
      int32_t id;
      memcpy(&id, ids + 4 * i, sizeof id);
      if (expected->rows && id != expected->rows[r].tokens[i - view->begins[r]])
        FAIL(err, EAGLET_E_INPUT, "%s: row %zu, token %lld: expected id %d, found %d", view->file.path, r, (long long)(i - view->begins[r]),
             expected->rows[r].tokens[i - view->begins[r]], id);
      if (id < 0) FAIL(err, EAGLET_E_INPUT, "%s: row %zu: found id %d", view->file.path, r, id);
    }
  }
  return EAGLET_OK;
}

static enum eaglet_status check_numbers(struct feature_verdict *verdict, const struct shard_view *view, const struct feature_layout *layout,
                                        struct eaglet_error *err) {
  int32_t numbers[FEATURE_STATES_MAX + 1];
  size_t faulty = SIZE_MAX, slots = (size_t)feature_layout_slots(layout);
  layout_numbers(numbers, layout);
  for (size_t r = 0; r < view->n_rows; r++) {
    int64_t n = view->begins[r + 1] - view->begins[r];
    float *values = memory_try((size_t)n * slots * (size_t)layout->hidden * sizeof *values);
    if (!values) FAIL(err, EAGLET_E_RESOURCE, "not enough memory for the states of %lld tokens", (long long)n);
    shard_view_read(view, layout, values, (const int64_t[]){view->begins[r], n});
    const struct feature_numbers all = {.values = values, .states = numbers, .n_tokens = (int32_t)n, .n_slots = (int32_t)slots, .hidden = layout->hidden};
    if (feature_fault_find(&verdict->fault, &all) && faulty == SIZE_MAX) faulty = r;
    memory_try_free(values);
  }
  return faulty == SIZE_MAX ? EAGLET_OK : feature_fault_fail(&verdict->fault, view->file.path, faulty, err);
}

enum eaglet_status feature_shard_examine(struct feature_verdict *verdict, const char *path, const struct feature_examination *expected,
                                         struct eaglet_error *err) {
  struct shard_view view;
  *verdict = (struct feature_verdict){0};
  if (!file_exists(path)) FAIL(err, EAGLET_E_INPUT, "%s: not there", path);
  TRY(shard_view_open(&view, path, expected, err));
  verdict->n_rows = view.n_rows;
  verdict->n_tokens = (uint64_t)view.n_tokens;
  enum eaglet_status status = check_numbers(verdict, &view, expected->layout, err); /* first: it counts even where the checksum is wrong */
  struct eaglet_error damage = {0};
  enum eaglet_status hash = check_hash(verdict, &view.file, &damage);
  if (hash != EAGLET_OK) {
    status = hash;
    if (err) *err = damage;
  }
  if (status == EAGLET_OK) status = check_ids(&view, expected, err);
  safetensors_close(&view.file);
  return status;
}
