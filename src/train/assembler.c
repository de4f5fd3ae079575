/* assembler.c - see assembler.h. */
#include "train/assembler.h"

#include "base/memory.h"
#include "base/util.h"
#include "train/supervision.h"

#include <stdlib.h>
#include <string.h>

enum eaglet_status assembler_init(struct assembler *a, struct eaglet_error *err) {
  size_t slots = (size_t)a->slots_max, rows = (size_t)a->rows_max, h = (size_t)a->source->hidden,
         vocab = (size_t)a->teacher->map->n_draft;
  const struct {
    void *place;
    size_t bytes;
  } blocks[] = {
      {&a->states, sizeof(float) * (slots + rows) * (size_t)a->source->width},
      {&a->features, sizeof(float) * slots * h * (size_t)a->source->n_states},
      {&a->embeddings, sizeof(float) * slots * h},
      {&a->last, sizeof(float) * slots * h},
      {&a->target, sizeof(float) * slots * vocab},
      {&a->mass, sizeof(float) * slots},
      {&a->choice, sizeof(int32_t) * slots},
      {&a->label, sizeof(int32_t) * slots},
      {&a->loss_mask, slots},
      {&a->ids, sizeof(int32_t) * slots},
      {&a->segment_first, sizeof(int32_t) * slots},
      {&a->segment_length, sizeof(int32_t) * slots},
      {&a->reply_begin, sizeof(int32_t) * slots},
      {&a->target_row, sizeof(int32_t) * slots},
      {&a->lengths, sizeof(int32_t) * rows},
      {&a->row_states, sizeof(float *) * rows},
  };
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    void *block = memory_try(blocks[i].bytes);
    memcpy(blocks[i].place, &block, sizeof block);
    if (block) continue;
    assembler_release(a);
    FAIL(err, EAGLET_E_RESOURCE, "not enough memory for a micro-batch of %d token slots; lower --micro-tokens",
         a->slots_max);
  }
  return EAGLET_OK;
}

void assembler_release(struct assembler *a) {
  void *blocks[] = {a->states,    a->features, a->embeddings,    a->last,           a->target,      a->mass,
                    a->choice,    a->label,    a->loss_mask,     a->ids,            a->segment_first,
                    a->segment_length, a->reply_begin, a->target_row, a->lengths, a->row_states};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) memory_try_free(blocks[i]);
  *a = (struct assembler){0};
}

static struct supervised_row supervised(const struct assembler *a, const struct token_row *row) {
  return (struct supervised_row){.mask = row->mask, .n_tokens = row->n, .rule = a->settings->mask_rule};
}

/* The slots of one row: [first, first + n), its states, its place in the stream. */
struct row_place {
  int32_t first, n;
  const float *states;
  int64_t place;
};

static void add_noise(const struct assembler *a, const struct row_place *at) {
  size_t inputs = (size_t)a->source->hidden * (size_t)a->source->n_states;
  float *to = a->features + (size_t)at->first * inputs;
  int64_t n = (int64_t)at->n * (int64_t)inputs;
  const double most = a->settings->noise;
  const uint64_t seed = a->settings->seed ^ 0x6e6f697365u, stream = (uint64_t)at->place;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i++) to[i] += (float)((2.0 * random_uniform(seed, stream, (uint64_t)i) - 1.0) * most);
}

/* The token that the data has behind slot t, as a draft id; -1: outside, or none. */
static int32_t data_label(const struct assembler *a, const struct token_row *row, int32_t t) {
  const struct vocab_map *map = a->teacher->map;
  if (t + 2 >= row->n) return -1;
  return map->n_draft == map->n_target ? row->tokens[t + 2] : map->draft[row->tokens[t + 2]];
}

/* Slots of one row. Appends to last, target_row and label. */
static void fill_row(struct assembler *a, const struct token_row *row, const struct row_place *at, int32_t *n_supervised) {
  const struct feature_source *source = a->source;
  const struct supervised_row mask = supervised(a, row);
  size_t hidden = (size_t)source->hidden, inputs = hidden * (size_t)source->n_states;
  supervision_fill(a->loss_mask + at->first, a->reply_begin + at->first, &mask, at->n);
  for (int32_t t = 0; t < at->n; t++) {
    int32_t slot = at->first + t;
    a->segment_first[slot] = at->first;
    a->segment_length[slot] = at->n;
    a->reply_begin[slot] += at->first;
    a->ids[slot] = row->tokens[t + 1];
    a->target_row[slot] = -1;
    memcpy(a->features + (size_t)slot * inputs, at->states + (size_t)t * (size_t)source->width, sizeof(float) * inputs);
    if (!a->loss_mask[slot]) continue;
    memcpy(a->last + (size_t)*n_supervised * hidden, at->states + (size_t)(t + 1) * (size_t)source->width + source->last,
           sizeof(float) * hidden);
    a->label[*n_supervised] = data_label(a, row, t);
    a->target_row[slot] = (*n_supervised)++;
  }
  if (a->settings->noise > 0) add_noise(a, at);
}

static int32_t best_of(const float *x, int32_t n) {
  int32_t best = 0;
  for (int32_t k = 1; k < n; k++) best = x[k] > x[best] ? k : best;
  return best;
}

/* What ce predicts. The data's tokens stand there already. */
static void set_labels(struct assembler *a, int32_t n) {
  const struct eaglet_train_params *s = a->settings;
  int32_t n_draft = a->teacher->map->n_draft;
  if (s->teacher == EAGLET_TEACHER_DATA) return;
  for (int32_t i = 0; i < n; i++) {
    bool nearest = s->loss == EAGLET_LOSS_CE && s->outside == EAGLET_OUTSIDE_RENORMALISE && a->choice[i] < 0;
    a->label[i] = nearest ? best_of(a->target + (int64_t)i * n_draft, n_draft) : a->choice[i];
  }
}

/* With `drop`, a slot whose certain target is outside the draft vocabulary carries no loss. */
static void drop_outside(struct assembler *a, int32_t n_slots) {
  if (a->settings->outside != EAGLET_OUTSIDE_DROP) return;
  for (int32_t s = 0; s < n_slots; s++) {
    if (a->target_row[s] >= 0 && a->label[a->target_row[s]] < 0) a->target_row[s] = -1;
  }
}

/* Reads the states of every row; the place of each in a->states is in a->row_states. */
static enum eaglet_status read_states(struct assembler *a, const struct assembler_rows *rows, struct eaglet_error *err) {
  size_t positions = 0;
  for (int32_t i = 0; i < rows->n; i++) {
    const struct supervised_row mask = supervised(a, &a->tokens->rows[rows->rows[i]]);
    a->lengths[i] = supervision_slots(&mask) + 1;
    a->row_states[i] = a->states + positions * (size_t)a->source->width;
    positions += (size_t)a->lengths[i];
  }
  ASSERT(positions <= (size_t)a->slots_max + (size_t)rows->n);
  const struct feature_request request = {
      .tokens = a->tokens, .rows = rows->rows, .lengths = a->lengths, .n = rows->n, .states = a->row_states};
  return feature_source_read(a->source, &request, err);
}

static void describe(const struct assembler *a, struct micro_batch *batch, int32_t n_slots) {
  const struct eaglet_train_params *s = a->settings;
  batch->n_slots = n_slots;
  batch->segment_first = a->segment_first;
  batch->segment_length = a->segment_length;
  batch->features = a->features;
  batch->embeddings = a->embeddings;
  batch->tokens = a->ids;
  batch->pad_embedding = NULL;
  batch->target = a->target;
  batch->target_mass = a->mass;
  batch->target_choice = a->choice;
  batch->target_label = a->label;
  batch->objective = (struct objective){
      .loss = s->loss, .outside = s->outside, .kl_scale = (float)s->kl_scale, .kl_decay = (float)s->kl_decay};
  batch->target_row = a->target_row;
  batch->loss_mask = a->loss_mask;
  batch->reply_begin = a->reply_begin;
  batch->lm_head_frozen = s->lm_head == EAGLET_LM_HEAD_FROZEN;
  batch->compute_all = false;
}

enum eaglet_status assembler_run(struct assembler *a, struct micro_batch *batch, const struct assembler_rows *rows,
                                 struct eaglet_error *err) {
  ASSERT(rows->n <= a->rows_max);
  TRY(read_states(a, rows, err));
  int32_t n_slots = 0, n_supervised = 0;
  for (int32_t i = 0; i < rows->n; i++) {
    const struct row_place at = {.first = n_slots, .n = a->lengths[i] - 1, .states = a->row_states[i], .place = rows->place + i};
    fill_row(a, &a->tokens->rows[rows->rows[i]], &at, &n_supervised);
    n_slots += at.n;
  }
  struct compute *c = a->model->compute;
  c->embed(c, a->embeddings, &a->model->embed, a->ids, n_slots);
  const struct teacher_rows targets = {.target = a->target, .mass = a->mass, .choice = a->choice};
  teacher_targets(a->teacher, &targets, a->last, n_supervised);
  set_labels(a, n_supervised);
  drop_outside(a, n_slots);
  describe(a, batch, n_slots);
  return EAGLET_OK;
}
