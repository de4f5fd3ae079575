/* assembler.c - see assembler.h. */
#include "train/assembler.h"

#include "base/memory.h"
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
      {&a->in_vocabulary, slots},
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
  void *blocks[] = {a->states,        a->features,   a->embeddings, a->last,          a->target,
                    a->in_vocabulary, a->loss_mask,  a->ids,        a->segment_first, a->segment_length,
                    a->reply_begin,   a->target_row, a->lengths,    a->row_states};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) memory_try_free(blocks[i]);
  *a = (struct assembler){0};
}

/* Slots of one row from `first` on; its states stand at `states`. Appends to last and target_row. */
static void fill_row(struct assembler *a, const struct token_row *row, const float *states, const int32_t place[2],
                     int32_t *n_supervised) {
  const struct feature_source *source = a->source;
  int32_t first = place[0], n_slots = place[1];
  size_t hidden = (size_t)source->hidden, inputs = hidden * (size_t)source->n_states;
  supervision_fill(a->loss_mask + first, a->reply_begin + first, row->mask, n_slots);
  for (int32_t t = 0; t < n_slots; t++) {
    int32_t slot = first + t;
    a->segment_first[slot] = first;
    a->segment_length[slot] = n_slots;
    a->reply_begin[slot] += first;
    a->ids[slot] = row->tokens[t + 1];
    a->target_row[slot] = -1;
    memcpy(a->features + (size_t)slot * inputs, states + (size_t)t * (size_t)source->width, sizeof(float) * inputs);
    if (!a->loss_mask[slot]) continue;
    memcpy(a->last + (size_t)*n_supervised * hidden, states + (size_t)(t + 1) * (size_t)source->width + source->last,
           sizeof(float) * hidden);
    a->target_row[slot] = (*n_supervised)++;
  }
}

enum eaglet_status assembler_run(struct assembler *a, struct micro_batch *batch, const uint32_t *rows, int32_t n,
                                 struct eaglet_error *err) {
  ASSERT(n <= a->rows_max);
  size_t positions = 0;
  for (int32_t i = 0; i < n; i++) {
    const struct token_row *row = &a->tokens->rows[rows[i]];
    a->lengths[i] = supervision_slots(row->mask, row->n) + 1;
    a->row_states[i] = a->states + positions * (size_t)a->source->width;
    positions += (size_t)a->lengths[i];
  }
  ASSERT(positions <= (size_t)a->slots_max + (size_t)n);
  const struct feature_request request = {
      .tokens = a->tokens, .rows = rows, .lengths = a->lengths, .n = n, .states = a->row_states};
  TRY(feature_source_read(a->source, &request, err));
  int32_t n_slots = 0, n_supervised = 0;
  for (int32_t i = 0; i < n; i++) {
    fill_row(a, &a->tokens->rows[rows[i]], a->row_states[i], (const int32_t[]){n_slots, a->lengths[i] - 1},
             &n_supervised);
    n_slots += a->lengths[i] - 1;
  }
  struct compute *c = a->model->compute;
  c->embed(c, a->embeddings, &a->model->embed, a->ids, n_slots);
  teacher_targets(a->teacher, a->target, a->in_vocabulary, a->last, n_supervised);
  for (int32_t s = 0; s < n_slots; s++) {
    if (a->target_row[s] >= 0 && !a->in_vocabulary[a->target_row[s]]) a->target_row[s] = -1;
  }
  batch->n_slots = n_slots;
  batch->segment_first = a->segment_first;
  batch->segment_length = a->segment_length;
  batch->features = a->features;
  batch->embeddings = a->embeddings;
  batch->tokens = a->ids;
  batch->pad_embedding = NULL;
  batch->target = a->target;
  batch->target_row = a->target_row;
  batch->loss_mask = a->loss_mask;
  batch->reply_begin = a->reply_begin;
  batch->compute_all = false;
  return EAGLET_OK;
}
