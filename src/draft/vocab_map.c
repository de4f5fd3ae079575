/* vocab_map.c - see vocab_map.h. Owns the two tables; every constructor ends in the same check, so an inconsistent map
 * cannot exist. */
#include "draft/vocab_map.h"

#include "base/memory.h"
#include "base/util.h"

#include <stdlib.h>
#include <string.h>

enum eaglet_status vocab_map_init(struct vocab_map *map, const int32_t *target_ids, int32_t n_draft, int32_t n_target,
                                  const char *what, struct eaglet_error *err) {
  *map = (struct vocab_map){0};
  if (n_draft < 1 || n_draft > n_target)
    FAIL(err, EAGLET_E_INPUT, "%s: draft vocabulary of %d for a target of %d", what, n_draft, n_target);
  for (int32_t i = 0; i < n_draft; i++) {
    if (target_ids[i] < 0 || target_ids[i] >= n_target) {
      FAIL(err, EAGLET_E_INPUT, "%s: d2t[%d]: target id %d outside the vocabulary of %d", what, i, target_ids[i],
           n_target);
    }
    if (i > 0 && target_ids[i] <= target_ids[i - 1]) {
      FAIL(err, EAGLET_E_INPUT, "%s: d2t[%d]: target id %d does not follow %d: ids must increase", what, i,
           target_ids[i], target_ids[i - 1]);
    }
  }
  map->n_draft = n_draft;
  map->n_target = n_target;
  map->target = memory_alloc((size_t)n_draft * sizeof(int32_t));
  map->draft = memory_alloc((size_t)n_target * sizeof(int32_t));
  memcpy(map->target, target_ids, (size_t)n_draft * sizeof(int32_t));
  for (int32_t i = 0; i < n_target; i++) map->draft[i] = -1;
  for (int32_t i = 0; i < n_draft; i++) map->draft[target_ids[i]] = i;
  return EAGLET_OK;
}

enum eaglet_status vocab_map_identity(struct vocab_map *map, int32_t n_target, struct eaglet_error *err) {
  int32_t *ids = memory_alloc((size_t)(n_target > 0 ? n_target : 1) * sizeof(int32_t));
  for (int32_t i = 0; i < n_target; i++) ids[i] = i;
  enum eaglet_status status = vocab_map_init(map, ids, n_target, n_target, "identity", err);
  free(ids);
  return status;
}

/* The table's values, of any integer type that other trainers write. */
static enum eaglet_status read_values(int64_t *values, const struct tensor_entry *d2t, int32_t n_draft,
                                      struct eaglet_error *err) {
  if (d2t->rank != 1 || d2t->shape[0] != n_draft || (d2t->dtype != DTYPE_I64 && d2t->dtype != DTYPE_I32)) {
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected I64 or I32 [%d], found %s [%lld]", d2t->path, d2t->name, n_draft,
         dtype_name(d2t->dtype), d2t->rank == 1 ? (long long)d2t->shape[0] : -1);
  }
  for (int32_t i = 0; i < n_draft; i++) {
    int32_t narrow = 0;
    if (d2t->dtype == DTYPE_I64)
      memcpy(&values[i], d2t->data + 8 * (size_t)i, 8);
    else {
      memcpy(&narrow, d2t->data + 4 * (size_t)i, 4);
      values[i] = narrow;
    }
  }
  return EAGLET_OK;
}

struct table {
  const struct tensor_entry *d2t, *t2d; /* t2d: or NULL */
  int64_t *values;                      /* [n_draft] of d2t */
  int32_t n_draft, n_target;
};

/* Target ids from offsets (the convention), or from values that are ids themselves. */
static enum eaglet_status read_ids(int32_t *ids, const struct table *t, bool absolute, struct eaglet_error *err) {
  for (int32_t i = 0; i < t->n_draft; i++) {
    int64_t base = absolute ? 0 : i, value = t->values[i];
    if (value < -base || value > INT32_MAX - base)
      FAIL(err, EAGLET_E_INPUT, "%s: %s[%d]: %s %lld gives no token id", t->d2t->path, t->d2t->name, i,
           absolute ? "id" : "offset", (long long)value);
    ids[i] = (int32_t)(base + value);
  }
  return EAGLET_OK;
}

static enum eaglet_status check_marks(const struct vocab_map *map, const struct tensor_entry *t2d,
                                      struct eaglet_error *err) {
  if (t2d->rank != 1 || t2d->shape[0] != map->n_target || (t2d->dtype != DTYPE_BOOL && t2d->dtype != DTYPE_U8)) {
    FAIL(err, EAGLET_E_INPUT, "%s: t2d: expected BOOL or U8 [%d], found %s [%lld]", t2d->path, map->n_target,
         dtype_name(t2d->dtype), t2d->rank == 1 ? (long long)t2d->shape[0] : -1);
  }
  for (int32_t i = 0; i < map->n_target; i++) {
    if ((t2d->data[i] != 0) != (map->draft[i] >= 0))
      FAIL(err, EAGLET_E_INPUT, "%s: t2d[%d] is %d, but d2t says %d", t2d->path, i, t2d->data[i], map->draft[i] >= 0);
  }
  return EAGLET_OK;
}

static enum eaglet_status read_as(struct vocab_map *map, const struct table *t, bool absolute,
                                  struct eaglet_error *err) {
  int32_t *ids = memory_alloc((size_t)t->n_draft * sizeof *ids);
  *map = (struct vocab_map){0};
  enum eaglet_status status = read_ids(ids, t, absolute, err);
  if (status == EAGLET_OK) status = vocab_map_init(map, ids, t->n_draft, t->n_target, t->d2t->path, err);
  if (status == EAGLET_OK && t->t2d) status = check_marks(map, t->t2d, err);
  free(ids);
  if (status != EAGLET_OK) vocab_map_release(map);
  return status;
}

/* Tables that exporters write by mistake where offsets belong (E01): 0, 1, 2 ... and zeros only. As offsets both are legal, so only
 * t2d can speak for them. */
static bool is_suspicious(const struct table *t) {
  bool counting = t->n_draft > 1, zeros = t->n_draft < t->n_target && t->n_draft > 1;
  for (int32_t i = 0; i < t->n_draft; i++) {
    counting &= t->values[i] == i;
    zeros &= t->values[i] == 0;
  }
  return counting || zeros;
}

static enum eaglet_status read_table(struct vocab_map *map, const struct table *t, struct eaglet_error *err) {
  enum eaglet_status status = read_as(map, t, false, err);
  if (status == EAGLET_OK && !t->t2d && is_suspicious(t)) {
    vocab_map_release(map);
    FAIL(err, EAGLET_E_INPUT, "%s: %s holds %s and there is no t2d to confirm it: expected offsets of a chosen vocabulary",
         t->d2t->path, t->d2t->name, t->values[1] ? "0, 1, 2, ..." : "zeros only");
  }
  if (status == EAGLET_OK || !t->t2d) return status;
  struct vocab_map absolute;
  if (read_as(&absolute, t, true, NULL) != EAGLET_OK) return status;
  log_warning("%s: %s holds token ids where offsets belong, as t2d shows; read as ids", t->d2t->path, t->d2t->name);
  *map = absolute;
  return EAGLET_OK;
}

enum eaglet_status vocab_map_from_tables(struct vocab_map *map, const struct vocab_tables *tables, struct eaglet_error *err) {
  int32_t n_draft = tables->n_draft, n_target = tables->n_target;
  *map = (struct vocab_map){0};
  if (!tables->d2t) {
    if (n_draft == n_target) return vocab_map_identity(map, n_target, err);
    FAIL(err, EAGLET_E_INPUT, "%s: d2t: missing, and the draft vocabulary (%d) is not the target's (%d)", tables->path,
         n_draft, n_target);
  }
  if (n_draft < 1 || n_draft > n_target)
    FAIL(err, EAGLET_E_INPUT, "%s: draft vocabulary of %d for a target of %d", tables->path, n_draft, n_target);
  struct table table = {.d2t = tables->d2t, .t2d = tables->t2d, .n_draft = n_draft, .n_target = n_target};
  table.values = memory_alloc((size_t)n_draft * sizeof *table.values);
  enum eaglet_status status = read_values(table.values, tables->d2t, n_draft, err);
  if (status == EAGLET_OK) status = read_table(map, &table, err);
  free(table.values);
  return status;
}

enum eaglet_status vocab_map_from_tensors(struct vocab_map *map, const struct safetensors *file, int32_t n_draft,
                                          int32_t n_target, struct eaglet_error *err) {
  struct vocab_tables tables = {.d2t = safetensors_find(file, "d2t"),
                                .t2d = safetensors_find(file, "t2d"),
                                .n_draft = n_draft,
                                .n_target = n_target,
                                .path = file->path};
  if (!tables.d2t) tables.d2t = safetensors_find(file, "draft_id_to_target_id");
  return vocab_map_from_tables(map, &tables, err);
}

struct candidate {
  uint64_t count;
  int32_t id;
  bool must;
};

static int by_merit(const void *a, const void *b) {
  const struct candidate *x = a, *y = b;
  if (x->must != y->must) return x->must ? -1 : 1;
  if (x->count != y->count) return x->count > y->count ? -1 : 1;
  return (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

enum eaglet_status vocab_map_choose(struct vocab_map *map, struct vocab_choice *choice, struct eaglet_error *err) {
  int32_t n_target = choice->n_target, n_draft = choice->n_draft;
  size_t n_must = 0;
  *map = (struct vocab_map){0};
  if (n_draft < 1 || n_draft > n_target)
    FAIL(err, EAGLET_E_INPUT, "draft vocabulary of %d for a target of %d", n_draft, n_target);
  struct candidate *all = memory_alloc((size_t)n_target * sizeof *all);
  int32_t *ids = memory_alloc((size_t)n_draft * sizeof *ids);
  for (int32_t i = 0; i < n_target; i++) all[i] = (struct candidate){.count = choice->counts[i], .id = i};
  for (size_t i = 0; i < choice->n_must; i++) {
    if (choice->must[i] >= 0 && choice->must[i] < n_target) all[choice->must[i]].must = true;
  }
  for (int32_t i = 0; i < n_target; i++) n_must += all[i].must;
  enum eaglet_status status = EAGLET_OK;
  if (n_must > (size_t)n_draft)
    status =
        error_set(err, EAGLET_E_USAGE,
                  "draft vocabulary of %d: the %zu end-of-turn and special tokens alone do not fit", n_draft, n_must);
  if (status == EAGLET_OK) {
    double seen = 0, inside = 0;
    qsort(all, (size_t)n_target, sizeof *all, by_merit);
    choice->n_padded = 0;
    for (int32_t i = 0; i < n_target; i++) seen += (double)all[i].count;
    for (int32_t i = 0; i < n_draft; i++) {
      ids[i] = all[i].id;
      inside += (double)all[i].count;
      choice->n_padded += !all[i].must && all[i].count == 0;
    }
    choice->coverage = seen > 0 ? inside / seen : 0;
    qsort(ids, (size_t)n_draft, sizeof *ids, by_id);
    status = vocab_map_init(map, ids, n_draft, n_target, "chosen vocabulary", err);
  }
  free(all);
  free(ids);
  return status;
}

void vocab_map_write(const struct vocab_map *map, struct safetensors_writer *writer, void **storage) {
  int64_t *offsets = memory_alloc((size_t)map->n_draft * sizeof(int64_t) + (size_t)map->n_target);
  uint8_t *marks = (uint8_t *)(offsets + map->n_draft);
  for (int32_t i = 0; i < map->n_draft; i++) offsets[i] = map->target[i] - i;
  for (int32_t i = 0; i < map->n_target; i++) marks[i] = map->draft[i] >= 0;
  safetensors_writer_add(writer, "d2t", DTYPE_I64, 1, (const int64_t[]){map->n_draft}, offsets);
  safetensors_writer_add(writer, "t2d", DTYPE_BOOL, 1, (const int64_t[]){map->n_target}, marks);
  *storage = offsets;
}

uint64_t vocab_map_hash(const struct vocab_map *map) {
  return file_hash(map->target, (size_t)map->n_draft * sizeof(int32_t), (uint64_t)map->n_target);
}

void vocab_map_release(struct vocab_map *map) {
  free(map->target);
  free(map->draft);
  *map = (struct vocab_map){0};
}
