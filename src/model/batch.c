/* batch.c - batches on the host and their index arrays on the device; see batch.h and forward.h. Owns no KV.
 * The hard part is visibility: which slots a row may see, as a prefix length plus a list of tree slots. */
#include "model/batch.h"

#include "base/memory.h"
#include "model/forward.h"

#include <stdlib.h>

void batch_init(struct batch *batch, int32_t capacity) {
  *batch = (struct batch){.capacity = capacity};
  batch->rows = memory_alloc((size_t)capacity * sizeof *batch->rows);
}

void batch_reset(struct batch *batch) {
  batch->n = 0;
}

struct batch_row *batch_add(struct batch *batch) {
  ASSERT(batch->n < batch->capacity);
  struct batch_row *row = &batch->rows[batch->n++];
  *row = (struct batch_row){0};
  return row;
}

void batch_release(struct batch *batch) {
  free(batch->rows);
  *batch = (struct batch){0};
}

/* Host copies of the device arrays, uploaded together; lives beside the device arrays so that a run allocates nothing.
 */
struct row_staging {
  int32_t *tokens, *positions, *slots, *table_begin, *n_prefix, *page_table, *extra_slots, *extra_begin;
  const struct kv_sequence **sequences; /* [rows_max] distinct sequences of the batch ... */
  int32_t *sequence_begin;              /* ... and where their tables start */
  int32_t n_sequences;
};

static void *device_ints(struct compute *c, size_t n) {
  void *block = c->alloc(c, n * sizeof(int32_t));
  ASSERT(block); /* index arrays are small metadata */
  return block;
}

void row_index_init(struct row_index *index, struct compute *c, int32_t rows_max, int32_t pages_max) {
  size_t rows = (size_t)rows_max, pages = (size_t)pages_max, extra = rows * TREE_DEPTH_MAX;
  *index = (struct row_index){.rows_max = rows_max, .pages_max = pages_max};
  index->tokens = device_ints(c, rows);
  index->positions = device_ints(c, rows);
  index->slots = device_ints(c, rows);
  index->table_begin = device_ints(c, rows);
  index->n_prefix = device_ints(c, rows);
  index->page_table = device_ints(c, pages);
  index->extra_slots_memory = device_ints(c, extra);
  index->extra_begin_memory = device_ints(c, rows + 1);
  struct row_staging *s = index->staging = memory_alloc(sizeof *s);
  s->tokens = memory_alloc((5 * rows + pages + extra + rows + 1 + rows) * sizeof(int32_t));
  s->positions = s->tokens + rows;
  s->slots = s->positions + rows;
  s->table_begin = s->slots + rows;
  s->n_prefix = s->table_begin + rows;
  s->page_table = s->n_prefix + rows;
  s->extra_slots = s->page_table + pages;
  s->extra_begin = s->extra_slots + extra;
  s->sequence_begin = s->extra_begin + rows + 1;
  s->sequences = memory_alloc(rows * sizeof *s->sequences);
}

void row_index_release(struct row_index *index, struct compute *c) {
  int32_t *blocks[] = {index->tokens,
                       index->positions,
                       index->slots,
                       index->table_begin,
                       index->n_prefix,
                       index->page_table,
                       index->extra_slots_memory,
                       index->extra_begin_memory};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    if (blocks[i]) c->free(c, blocks[i]);
  }
  if (index->staging) {
    free(index->staging->tokens);
    free(index->staging->sequences);
    free(index->staging);
  }
  *index = (struct row_index){0};
}

/* Where the pages of the row's sequence start in the joint table; appends them when the sequence is new. */
static int32_t sequence_table(struct row_staging *s, const struct kv_sequence *kv, int32_t *n_pages,
                              int32_t pages_max) {
  for (int32_t i = s->n_sequences; i-- > 0;) { /* rows of one sequence usually stand together: the last is the likely one */
    if (s->sequences[i] == kv) return s->sequence_begin[i];
  }
  int32_t begin = *n_pages;
  ASSERT(kv && kv->n_pages <= pages_max - begin);
  memcpy(s->page_table + begin, kv->table, (size_t)kv->n_pages * sizeof(int32_t));
  *n_pages += kv->n_pages;
  s->sequences[s->n_sequences] = kv;
  s->sequence_begin[s->n_sequences++] = begin;
  return begin;
}

/* Lists what a row sees behind its prefix. Returns the number of extra slots. */
static int32_t row_context(const struct batch_row *row, int32_t *slots, int32_t *n_prefix) {
  *n_prefix = row->n_prefix > 0 ? row->n_prefix : row->slot + 1;
  if (row->n_prefix == 0) return 0;
  ASSERT(row->n_path >= 0 && row->n_path < TREE_DEPTH_MAX && row->n_prefix <= row->slot);
  for (int32_t i = 0; i < row->n_path; i++) slots[i] = row->path[i];
  slots[row->n_path] = row->slot;
  return row->n_path + 1;
}

void row_index_build(struct row_index *index, struct compute *c, const struct batch *batch) {
  struct row_staging *s = index->staging;
  int32_t n = batch->n, n_pages = 0, n_extra = 0;
  ASSERT(n <= index->rows_max);
  s->n_sequences = 0;
  for (int32_t i = 0; i < n; i++) {
    const struct batch_row *row = &batch->rows[i];
    s->tokens[i] = row->token;
    s->positions[i] = row->position;
    s->slots[i] = row->slot;
    s->table_begin[i] = sequence_table(s, row->kv, &n_pages, index->pages_max);
    ASSERT(row->slot >= 0 && row->slot / KV_PAGE_TOKENS < row->kv->n_pages);
    s->extra_begin[i] = n_extra;
    n_extra += row_context(row, s->extra_slots + n_extra, &s->n_prefix[i]);
  }
  s->extra_begin[n] = n_extra;
  index->n = n;
  size_t bytes = (size_t)n * sizeof(int32_t);
  c->upload(c, index->tokens, s->tokens, bytes);
  c->upload(c, index->positions, s->positions, bytes);
  c->upload(c, index->slots, s->slots, bytes);
  c->upload(c, index->table_begin, s->table_begin, bytes);
  c->upload(c, index->n_prefix, s->n_prefix, bytes);
  c->upload(c, index->page_table, s->page_table, (size_t)n_pages * sizeof(int32_t));
  index->extra_slots = n_extra ? index->extra_slots_memory : NULL;
  index->extra_begin = n_extra ? index->extra_begin_memory : NULL;
  if (!n_extra) return;
  c->upload(c, index->extra_slots, s->extra_slots, (size_t)n_extra * sizeof(int32_t));
  c->upload(c, index->extra_begin, s->extra_begin, bytes + sizeof(int32_t));
}
