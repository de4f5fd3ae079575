/* foreign_store.c - see foreign_store.h. Owns the list of files and the map from rows to samples; keeps no sample open. */
#include "data/foreign_store.h"

#include "base/memory.h"
#include "data/foreign_sample.h"

#include <stdlib.h>
#include <string.h>

#define NO_SAMPLE UINT32_MAX

/* ---- files ---- */

static bool ends_with(const char *name, const char *tail) {
  size_t n = strlen(name), n_tail = strlen(tail);
  return n > n_tail && strcmp(name + n - n_tail, tail) == 0;
}

/* Tables that stand beside samples under the same ending. */
static bool is_table(const char *name) {
  static const char *const tables[] = {"token_freq.pt", "vocab_mapping.pt", "d2t.pt", "t2d.pt", "cache.pt"};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    if (strcmp(name, tables[i]) == 0) return true;
  }
  return false;
}

static bool is_sample(const char *name) {
  if (strncmp(name, "hs_", 3) == 0 && ends_with(name, ".safetensors")) return true;
  return (ends_with(name, ".pt") && !is_table(name)) || ends_with(name, ".ckpt") || ends_with(name, ".ckpt.gz");
}

static bool is_folder(const char *name) { return strcmp(name, "hidden_states") == 0 || strncmp(name, "rows_", 5) == 0; }

/* Runs of digits count as numbers: hs_10 comes after hs_9. */
static int by_number(const void *a, const void *b) {
  const char *x = *(char *const *)a, *y = *(char *const *)b;
  while (*x && *y) {
    size_t n_x = strspn(x, "0123456789"), n_y = strspn(y, "0123456789");
    if (n_x > 0 && n_y > 0) {
      while (*x == '0' && n_x > 1) x++, n_x--;
      while (*y == '0' && n_y > 1) y++, n_y--;
      int order = n_x != n_y ? (n_x > n_y) - (n_x < n_y) : memcmp(x, y, n_x);
      if (order != 0) return order;
      x += n_x;
      y += n_y;
    } else {
      if (*x != *y) return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
      x++, y++;
    }
  }
  return (*x != '\0') - (*y != '\0');
}

static enum eaglet_status add_folder(struct file_list *paths, struct file_list *folders, const char *directory, struct eaglet_error *err) {
  struct file_list list = {0};
  TRY(file_list_directory(&list, directory, err));
  for (size_t i = 0; i < list.n; i++) {
    bool folder = folders && is_folder(list.names[i]);
    struct file_list *to = folder ? folders : paths;
    if (!folder && !is_sample(list.names[i])) continue;
    MEMORY_GROW(to->names, to->capacity, to->n + 1);
    to->names[to->n++] = file_join(directory, list.names[i]);
  }
  file_list_clear(&list);
  return EAGLET_OK;
}

enum eaglet_status foreign_files_list(struct file_list *paths, const char *directory, struct eaglet_error *err) {
  struct file_list folders = {0};
  *paths = (struct file_list){0};
  enum eaglet_status status = add_folder(paths, &folders, directory, err);
  for (size_t i = 0; i < folders.n && status == EAGLET_OK; i++) {
    if (file_is_directory(folders.names[i])) status = add_folder(paths, NULL, folders.names[i], err);
  }
  file_list_clear(&folders);
  if (status != EAGLET_OK) file_list_clear(paths);
  if (paths->n > 1) qsort(paths->names, paths->n, sizeof *paths->names, by_number);
  return status;
}

bool foreign_store_is(const char *directory) {
  struct file_list paths = {0};
  char *manifest = file_join(directory, "manifest.json");
  bool is = !file_exists(manifest) && file_is_directory(directory) && foreign_files_list(&paths, directory, NULL) == EAGLET_OK && paths.n > 0;
  file_list_clear(&paths);
  free(manifest);
  return is;
}

/* ---- features ---- */

struct foreign_store {
  struct feature_store base;
  struct file_list files;
  uint32_t *samples; /* [n rows] index into files */
};
struct known { /* the ids of a sample */
  uint64_t hash;
  uint32_t sample;
};

static int by_hash(const void *a, const void *b) {
  const struct known *x = a, *y = b;
  if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
  return (x->sample > y->sample) - (x->sample < y->sample);
}

static bool foreign_has(const struct feature_store *base, size_t row) { return ((const struct foreign_store *)base)->samples[row] != NO_SAMPLE; }

/* All samples of a store are alike. */
static enum eaglet_status check_alike(struct feature_store *base, const struct foreign_sample *s, struct eaglet_error *err) {
  struct feature_layout *layout = &base->layout;
  const char *path = s->file.path;
  if (layout->hidden == 0) {
    *layout = (struct feature_layout){.n_states = s->n_slots - 1, .hidden = s->hidden, .dtype = s->dtype, .last = FEATURE_LAST_RESIDUAL};
    for (int32_t i = 0; i < layout->n_states; i++) layout->states[i] = i + 1; /* slots, until they have names */
    layout->n_layers = s->n_slots;
  }
  if (s->hidden != layout->hidden || s->n_slots != layout->n_states + 1 || s->dtype != layout->dtype)
    FAIL(err, EAGLET_E_INPUT, "%s: expected %d states of width %d in %s as in the files before, found %d of %d in %s", path, layout->n_states + 1,
         layout->hidden, dtype_name(layout->dtype), s->n_slots, s->hidden, dtype_name(s->dtype));
  return EAGLET_OK;
}

static enum eaglet_status read_sample(struct foreign_store *store, const struct foreign_sample *s, size_t row, float *states,
                                      struct eaglet_error *err) {
  const struct token_row *expected = &store->base.tokens->rows[row];
  const struct feature_layout *layout = &store->base.layout;
  TRY(check_alike(&store->base, s, err));
  if (s->n_tokens != expected->n) FAIL(err, EAGLET_E_INPUT, "%s: expected %d tokens, found %d: the file was changed", s->file.path, expected->n, s->n_tokens);
  int32_t *ids = memory_alloc(sizeof *ids * (size_t)s->n_tokens), numbers[FEATURE_STATES_MAX + 1];
  enum eaglet_status status = foreign_sample_ids(s, ids, err);
  if (status == EAGLET_OK && memcmp(ids, expected->tokens, sizeof *ids * (size_t)s->n_tokens) != 0)
    status = error_set(err, EAGLET_E_INPUT, "%s: its ids are not those of row %zu any more: the file was changed", s->file.path, row);
  free(ids);
  TRY(status);
  foreign_sample_states(s, states);
  for (int32_t i = 0; i < layout->n_states; i++) numbers[i] = layout->states[i];
  numbers[layout->n_states] = layout->n_layers;
  struct feature_fault fault = {0};
  const struct feature_numbers all = {.values = states, .states = numbers, .n_tokens = s->n_tokens, .n_slots = s->n_slots, .hidden = s->hidden};
  return feature_fault_find(&fault, &all) ? feature_fault_fail(&fault, s->file.path, row, err) : EAGLET_OK;
}

static enum eaglet_status foreign_read(struct feature_store *base, size_t row, float *states, struct eaglet_error *err) {
  struct foreign_store *store = (struct foreign_store *)base;
  struct foreign_sample sample;
  if (store->samples[row] == NO_SAMPLE) FAIL(err, EAGLET_E_INTERNAL, "row %zu has no features", row);
  TRY(foreign_sample_open(&sample, store->files.names[store->samples[row]], err));
  enum eaglet_status status = read_sample(store, &sample, row, states, err);
  foreign_sample_close(&sample);
  return status;
}

static void foreign_close(struct feature_store *base) {
  struct foreign_store *store = (struct foreign_store *)base;
  file_list_clear(&store->files);
  free(base->path);
  free(store->samples);
  free(store);
}

static const struct feature_store_kind kind_foreign = {.name = "foreign", .has = foreign_has, .read = foreign_read, .close = foreign_close};

static enum eaglet_status hash_ids(uint64_t *hash, const struct foreign_sample *s, struct eaglet_error *err) {
  int32_t *ids = memory_alloc(sizeof *ids * (size_t)s->n_tokens);
  enum eaglet_status status = foreign_sample_ids(s, ids, err);
  *hash = file_hash(ids, sizeof *ids * (size_t)s->n_tokens, 0);
  free(ids);
  return status;
}

static enum eaglet_status read_all(struct foreign_store *store, struct known *known, struct eaglet_error *err) {
  for (size_t i = 0; i < store->files.n; i++) {
    struct foreign_sample sample;
    TRY(foreign_sample_open(&sample, store->files.names[i], err));
    enum eaglet_status status = check_alike(&store->base, &sample, err);
    known[i].sample = (uint32_t)i;
    if (status == EAGLET_OK) status = hash_ids(&known[i].hash, &sample, err);
    foreign_sample_close(&sample);
    TRY(status);
  }
  return EAGLET_OK;
}

static void match(struct foreign_store *store, struct known *known) {
  const struct token_store *tokens = store->base.tokens;
  size_t n = store->files.n;
  qsort(known, n, sizeof *known, by_hash);
  for (size_t i = 1; i < n; i++) store->base.n_duplicates += known[i].hash == known[i - 1].hash;
  for (size_t r = 0; r < tokens->n_rows; r++) {
    uint64_t hash = file_hash(tokens->rows[r].tokens, sizeof(int32_t) * (size_t)tokens->rows[r].n, 0);
    size_t low = 0, high = n;
    while (low < high) { /* the first of this hash */
      size_t middle = low + (high - low) / 2;
      if (known[middle].hash < hash) low = middle + 1;
      else high = middle;
    }
    bool found = low < n && known[low].hash == hash;
    store->samples[r] = found ? known[low].sample : NO_SAMPLE;
    store->base.n_covered += found;
  }
}

enum eaglet_status foreign_store_open(struct feature_store **out, const char *directory, const struct token_store *tokens,
                                      struct eaglet_error *err) {
  struct foreign_store *store = memory_alloc(sizeof *store);
  *out = NULL;
  store->base = (struct feature_store){.kind = &kind_foreign, .path = memory_copy_string(directory), .tokens = tokens};
  store->samples = memory_alloc((tokens->n_rows + 1) * sizeof *store->samples);
  enum eaglet_status status = foreign_files_list(&store->files, directory, err);
  struct known *known = memory_alloc((store->files.n + 1) * sizeof *known);
  if (status == EAGLET_OK && store->files.n >= NO_SAMPLE) status = error_set(err, EAGLET_E_INPUT, "%s: %zu samples", directory, store->files.n);
  if (status == EAGLET_OK) status = read_all(store, known, err);
  if (status == EAGLET_OK) match(store, known);
  if (status == EAGLET_OK && store->base.n_covered == 0)
    status = error_set(err, EAGLET_E_INPUT, "%s: none of its %zu samples has the ids of a row of %s", directory, store->files.n, tokens->directory);
  free(known);
  if (status != EAGLET_OK) {
    feature_store_close(&store->base);
    return status;
  }
  *out = &store->base;
  return EAGLET_OK;
}

/* ---- token data ---- */

/* Rows as they come; the addresses are put in when all are there. */
struct gathered {
  int32_t *ids;
  uint8_t *mask;
  size_t n, ids_capacity, mask_capacity, rows_capacity;
};

static enum eaglet_status gather(struct token_store *tokens, struct gathered *g, const struct foreign_sample *s, bool need_mask,
                                 struct eaglet_error *err) {
  size_t n = (size_t)s->n_tokens;
  MEMORY_GROW(g->ids, g->ids_capacity, g->n + n);
  MEMORY_GROW(g->mask, g->mask_capacity, g->n + n);
  MEMORY_GROW(tokens->rows, g->rows_capacity, tokens->n_rows + 1);
  TRY(foreign_sample_ids(s, g->ids + g->n, err));
  memset(g->mask + g->n, 0, n);
  if (need_mask) TRY(foreign_sample_mask(s, g->mask + g->n, err));
  struct token_row *row = &tokens->rows[tokens->n_rows++];
  *row = (struct token_row){.n = s->n_tokens, .hash = token_row_hash(g->ids + g->n, g->mask + g->n, s->n_tokens)};
  for (size_t i = 0; i < n; i++) tokens->n_trained += g->mask[g->n + i];
  tokens->n_tokens += n;
  tokens->hash = file_hash(&row->hash, sizeof row->hash, tokens->hash);
  g->n += n;
  return EAGLET_OK;
}

static enum eaglet_status gather_all(struct token_store *tokens, struct gathered *g, const struct file_list *files, bool need_mask,
                                     struct eaglet_error *err) {
  for (size_t i = 0; i < files->n; i++) {
    struct foreign_sample sample;
    TRY(foreign_sample_open(&sample, files->names[i], err));
    enum eaglet_status status = gather(tokens, g, &sample, need_mask, err);
    foreign_sample_close(&sample);
    TRY(status);
  }
  return EAGLET_OK;
}

enum eaglet_status foreign_tokens_open(struct token_store *tokens, const char *directory, bool need_mask, struct eaglet_error *err) {
  struct file_list files = {0};
  struct gathered g = {0};
  *tokens = (struct token_store){.directory = memory_copy_string(directory)};
  tokens->manifest = json_pack("{ss}", "format", "foreign");
  enum eaglet_status status = foreign_files_list(&files, directory, err);
  if (status == EAGLET_OK) status = gather_all(tokens, &g, &files, need_mask, err);
  file_list_clear(&files);
  tokens->own_ids = g.ids;
  tokens->own_mask = g.mask;
  for (size_t r = 0, at = 0; r < tokens->n_rows; r++) {
    tokens->rows[r].tokens = g.ids + at;
    tokens->rows[r].mask = g.mask + at;
    at += (size_t)tokens->rows[r].n;
  }
  tokens->sources = memory_alloc(2 * sizeof *tokens->sources);
  tokens->sources[tokens->n_sources++] = memory_copy_string("foreign");
  if (status != EAGLET_OK) token_store_close(tokens);
  return status;
}
