/* teacher.c - see teacher.h. */
#include "train/teacher.h"

#include "base/memory.h"
#include "compute/training.h"
#include "model/forward.h"

#include <math.h>
#include <string.h>

#define CHUNK_FLOATS (4 << 20) /* a chunk's logits stay within 16 MiB */

enum eaglet_status teacher_init(struct teacher *t, const struct model *model, const struct vocab_map *map,
                                struct eaglet_error *err) {
  const struct features *f = &model->arch.features;
  *t = (struct teacher){.model = model, .map = map, .chunk_rows = CHUNK_FLOATS / f->n_vocab};
  if (t->chunk_rows < 16) t->chunk_rows = 16;
  size_t chunk = (size_t)t->chunk_rows;
  t->normed = memory_try(sizeof(float) * chunk * (size_t)f->hidden);
  t->logits = memory_try(sizeof(float) * chunk * (size_t)f->n_vocab);
  t->best = memory_try(sizeof(int32_t) * chunk);
  t->log_all = memory_try(sizeof(float) * chunk);
  t->log_draft = memory_try(sizeof(float) * chunk);
  if (t->normed && t->logits && t->best && t->log_all && t->log_draft) return EAGLET_OK;
  teacher_release(t);
  FAIL(err, EAGLET_E_RESOURCE, "not enough memory for the target's logits of %zu rows", chunk);
}

static void pick_columns(const struct teacher *t, float *target, int32_t n) {
  const struct vocab_map *map = t->map;
  int64_t vocab = t->model->arch.features.n_vocab;
#pragma omp parallel for schedule(static)
  for (int32_t i = 0; i < n; i++) {
    const float *from = t->logits + i * vocab;
    float *to = target + (int64_t)i * map->n_draft;
    if (map->n_draft == vocab)
      memcpy(to, from, sizeof(float) * (size_t)vocab);
    else
      for (int32_t d = 0; d < map->n_draft; d++) to[d] = from[map->target[d]];
  }
}

/* From the columns, before their softmax. */
static void measure_mass(struct teacher *t, float *mass, const float *columns, int32_t n) {
  struct compute *c = t->model->compute;
  int32_t vocab = t->model->arch.features.n_vocab, n_draft = t->map->n_draft;
  if (n_draft < vocab) {
    c->training->log_sums(c, t->log_all, t->logits, n, vocab);
    c->training->log_sums(c, t->log_draft, columns, n, n_draft);
  }
  for (int32_t i = 0; i < n; i++) mass[i] = n_draft < vocab ? fminf(expf(t->log_draft[i] - t->log_all[i]), 1.0f) : 1.0f;
}

void teacher_targets(struct teacher *t, const struct teacher_rows *rows, const float *last, int32_t n_rows) {
  const struct features *f = &t->model->arch.features;
  struct compute *c = t->model->compute;
  for (int32_t begin = 0; begin < n_rows; begin += t->chunk_rows) {
    int32_t n = n_rows - begin < t->chunk_rows ? n_rows - begin : t->chunk_rows;
    float *to = rows->target + (int64_t)begin * t->map->n_draft;
    const float *from = last + (int64_t)begin * f->hidden;
    if (!t->last_is_normed) model_final_norm(c, t->model, t->normed, from, n);
    model_logits(c, t->model, t->logits, t->last_is_normed ? from : t->normed, n);
    c->argmax(c, t->best, t->logits, n, f->n_vocab);
    pick_columns(t, to, n);
    measure_mass(t, rows->mass + begin, to, n);
    c->training->softmax(c, to, n, t->map->n_draft);
    for (int32_t i = 0; i < n; i++)
      rows->choice[begin + i] = t->map->n_draft == f->n_vocab ? t->best[i] : t->map->draft[t->best[i]];
  }
}

void teacher_release(struct teacher *t) {
  memory_try_free(t->normed);
  memory_try_free(t->logits);
  memory_try_free(t->best);
  memory_try_free(t->log_all);
  memory_try_free(t->log_draft);
  *t = (struct teacher){0};
}
