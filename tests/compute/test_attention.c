/* test_attention.c - paged attention, KV writes and rope. Attention against a double softmax over the row's own key
 * list; its bits against other page orders, other company and extra slots that spell out the same list. */
#include "compute_fixture.h"

enum { PAGE = 4, SEQUENCES = 3, SLOTS = 150, PAGES = (SLOTS + PAGE - 1) / PAGE, ROWS = 12 };

struct shape {
  const char *name;
  int32_t n_heads, n_kv_heads, key_dim, value_dim, key_head, value_head, value_offset, entry_floats, window, chunk;
  float softcap;
  bool sinks;
};

static const struct shape shapes[] = {
    {"gqa", 6, 2, 24, 20, 24, 20, 48, 88, 0, 0, 0, false},
    {"gqa window", 6, 2, 24, 20, 24, 20, 48, 88, 9, 0, 0, false},
    {"mha", 3, 3, 16, 16, 16, 16, 48, 96, 0, 0, 0, false},
    {"mla", 4, 1, 112, 96, 112, 96, 0, 112, 0, 0, 0, false},
    {"mla odd", 2, 1, 37, 33, 37, 33, 0, 37, 0, 0, 0, false},
    {"gqa chunk", 6, 2, 24, 20, 24, 20, 48, 88, 0, 16, 0, false},
    {"gqa softcap and sinks", 6, 2, 24, 20, 24, 20, 48, 88, 0, 0, 1.5f, true},
    {"gqa window and sinks", 6, 2, 24, 20, 24, 20, 48, 88, 3, 0, 0, true},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* A pool in which every sequence holds SLOTS entries; page numbers are a permutation that the seed picks, contents do
 * not depend on it. */
struct world {
  struct attention_params p;
  float *entries; /* [SEQUENCES, SLOTS, entry] in logical order */
  float *pool, *q, *out;
  int32_t page_table[SEQUENCES * PAGES], table_begin[ROWS], n_prefix[ROWS], extra_begin[ROWS + 1],
      extra_slots[ROWS * SLOTS];
};

static const float sink_logits[] = {0.5f, -3, 40, 2, 0, -60}; /* far above and far below the scores too */

static struct world *world_create(const struct shape *s, uint64_t seed) {
  struct world *w = calloc(1, sizeof *w);
  uint32_t pages[SEQUENCES * PAGES + 2];
  random_permutation(pages, SEQUENCES * PAGES + 2, seed, 1); /* two pages belong to nobody */
  for (int i = 0; i < SEQUENCES * PAGES; i++) w->page_table[i] = (int32_t)pages[i];
  w->entries = fixture_noise((size_t)SEQUENCES * SLOTS * (size_t)s->entry_floats, 21);
  w->pool = fixture_floats((size_t)(SEQUENCES * PAGES + 2) * PAGE * (size_t)s->entry_floats, NAN);
  w->q = fixture_noise((size_t)(ROWS * s->n_heads * s->key_dim), 22);
  w->out = fixture_floats((size_t)(ROWS * s->n_heads * s->value_dim), 77);
  w->p = (struct attention_params){.out = w->out,
                                   .q = w->q,
                                   .pool = w->pool,
                                   .page_table = w->page_table,
                                   .table_begin = w->table_begin,
                                   .n_prefix = w->n_prefix,
                                   .n_heads = s->n_heads,
                                   .n_kv_heads = s->n_kv_heads,
                                   .key_dim = s->key_dim,
                                   .value_dim = s->value_dim,
                                   .key_head = s->key_head,
                                   .value_head = s->value_head,
                                   .value_offset = s->value_offset,
                                   .entry_floats = s->entry_floats,
                                   .page_tokens = PAGE,
                                   .window = s->window,
                                   .chunk = s->chunk,
                                   .softcap = s->softcap,
                                   .sinks = s->sinks ? sink_logits : NULL,
                                   .scale = 0.2f};
  static const int32_t prefixes[ROWS] = {1, 2, 3, 4, 5, 63, 64, 65, 100, 128, 129, 150};
  for (int i = 0; i < ROWS; i++) {
    w->table_begin[i] = i % SEQUENCES * PAGES;
    w->n_prefix[i] = prefixes[i];
  }
  return w;
}

static void world_free(struct world *w) {
  free(w->entries), free(w->pool), free(w->q), free(w->out), free(w);
}

/* Writes the entries through the op under test, several rows of several sequences per call. */
static void world_write(struct world *w, struct compute *c) {
  int32_t n_entry = w->p.entry_floats;
  for (int32_t slot = 0; slot < SLOTS; slot++) {
    int32_t begin[SEQUENCES], slots[SEQUENCES];
    float *rows = fixture_floats((size_t)(SEQUENCES * n_entry), 0);
    for (int32_t s = 0; s < SEQUENCES; s++) {
      begin[s] = s * PAGES;
      slots[s] = slot;
      memcpy(rows + s * n_entry, w->entries + ((int64_t)s * SLOTS + slot) * n_entry, sizeof(float) * (size_t)n_entry);
    }
    const struct kv_write_params p = {.pool = w->pool,
                                      .entries = rows,
                                      .page_table = w->page_table,
                                      .table_begin = begin,
                                      .slots = slots,
                                      .entry_floats = n_entry,
                                      .page_tokens = PAGE};
    c->kv_write(c, &p, SEQUENCES);
    free(rows);
  }
}

/* The slots that row i sees, in order. */
static int32_t visible(const struct world *w, int32_t row, int32_t *slots) {
  int32_t n = 0, first = 0;
  for (int32_t s = 0; s < w->n_prefix[row]; s++) slots[n++] = s;
  if (w->p.extra_begin) {
    for (int32_t i = w->extra_begin[row]; i < w->extra_begin[row + 1]; i++) slots[n++] = w->extra_slots[i];
  }
  if (w->p.window > 0 && n > w->p.window) first = n - w->p.window;
  if (w->p.chunk > 0) first = (n - 1) - (n - 1) % w->p.chunk;
  memmove(slots, slots + first, sizeof *slots * (size_t)(n - first));
  return n - first;
}

static void check_row(const struct world *w, int32_t row, int32_t head, const char *name) {
  int32_t slots[2 * SLOTS], n = visible(w, row, slots);
  const struct attention_params *p = &w->p;
  int32_t kv_head = head / (p->n_heads / p->n_kv_heads);
  const float *q = w->q + ((int64_t)row * p->n_heads + head) * p->key_dim,
              *entries = w->entries + (int64_t)(row % SEQUENCES) * SLOTS * p->entry_floats;
  double score[2 * SLOTS], max = -INFINITY, sum = 0;
  for (int32_t i = 0; i < n; i++) {
    score[i] = 0;
    for (int32_t k = 0; k < p->key_dim; k++)
      score[i] += (double)p->scale * q[k] * entries[(int64_t)slots[i] * p->entry_floats + kv_head * p->key_head + k];
    if (p->softcap > 0) score[i] = p->softcap * tanh(score[i] / p->softcap);
    max = fmax(max, score[i]);
  }
  for (int32_t i = 0; i < n; i++) sum += score[i] = exp(score[i] - max);
  if (p->sinks) sum += exp(p->sinks[head] - max);
  for (int32_t k = 0; k < p->value_dim; k++) {
    double expected = 0;
    for (int32_t i = 0; i < n; i++)
      expected +=
          score[i] / sum * entries[(int64_t)slots[i] * p->entry_floats + p->value_offset + kv_head * p->value_head + k];
    fixture_near(w->out[((int64_t)row * p->n_heads + head) * p->value_dim + k], expected, 5e-6, name, k);
  }
}

static void check_shapes(struct compute *c) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct world *w = world_create(&shapes[s], 1);
    world_write(w, c);
    c->attention(c, &w->p, ROWS);
    for (int32_t row = 0; row < ROWS; row++) {
      for (int32_t head = 0; head < w->p.n_heads; head++) check_row(w, row, head, shapes[s].name);
    }
    world_free(w);
  }
}

static void test_attention(void **state) {
  (void)state;
  fixture_each(check_shapes);
}

/* Tree rows: ancestors anywhere after the prefix, in any number, also without a prefix. */
static void check_tree(struct compute *c) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct world *w = world_create(&shapes[s], 1);
    world_write(w, c);
    w->p.extra_slots = w->extra_slots;
    w->p.extra_begin = w->extra_begin;
    for (int32_t row = 0, at = 0; row < ROWS; row++) {
      w->n_prefix[row] = row * 10;
      for (int32_t i = 0; i <= row % 4; i++) w->extra_slots[at++] = row * 10 + i * i + 1;
      w->extra_begin[row + 1] = at;
    }
    c->attention(c, &w->p, ROWS);
    for (int32_t row = 0; row < ROWS; row++) {
      for (int32_t head = 0; head < w->p.n_heads; head++) check_row(w, row, head, "tree");
    }
    world_free(w);
  }
}

static void test_tree_attention(void **state) {
  (void)state;
  fixture_each(check_tree);
}

/* ---- bits ---- */

/* A prefix cut anywhere, the remainder spelled out as extra slots: the same keys in the same order, so the same bits.
 */
static void check_extra_is_prefix(struct compute *c) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct world *w = world_create(&shapes[s], 1);
    world_write(w, c);
    size_t n = (size_t)(ROWS * w->p.n_heads * w->p.value_dim);
    float *plain = fixture_floats(n, 0);
    int32_t whole[ROWS];
    c->attention(c, &w->p, ROWS);
    memcpy(plain, w->out, sizeof(float) * n);
    memcpy(whole, w->n_prefix, sizeof whole);
    w->p.extra_slots = w->extra_slots;
    w->p.extra_begin = w->extra_begin;
    for (int32_t cut = 0; cut < 70; cut += 3) {
      for (int32_t row = 0, at = 0; row < ROWS; row++) {
        w->n_prefix[row] = whole[row] > cut ? whole[row] - cut : 0;
        for (int32_t slot = w->n_prefix[row]; slot < whole[row]; slot++) w->extra_slots[at++] = slot;
        w->extra_begin[row + 1] = at;
      }
      c->attention(c, &w->p, ROWS);
      assert_memory_equal(w->out, plain, sizeof(float) * n);
    }
    free(plain);
    world_free(w);
  }
}

static void test_extra_slots_equal_a_prefix(void **state) {
  (void)state;
  fixture_each(check_extra_is_prefix);
}

/* Pages elsewhere, rows alone or together, one thread or three (enough rows to start them): equal bits. */
static void check_bits(const char *isa, const struct shape *s) {
  enum { MANY = 40 };
  struct world *one = world_create(s, 1), *two = world_create(s, 2);
  size_t row_floats = (size_t)(s->n_heads * s->value_dim), q_floats = (size_t)(s->n_heads * s->key_dim);
  float *q = fixture_floats(MANY * ROWS * q_floats, 0), *out = fixture_floats(MANY * ROWS * row_floats, 0);
  int32_t begin[MANY * ROWS], prefix[MANY * ROWS];
  for (int threads = 1; threads <= 3; threads += 2) {
    struct compute *c = fixture_open(isa, threads);
    if (!c) break;
    world_write(one, c);
    world_write(two, c);
    for (int32_t row = 0; row < ROWS; row++) {
      struct attention_params p = one->p;
      p.q += (size_t)row * q_floats;
      p.out += (size_t)row * row_floats;
      p.table_begin += row;
      p.n_prefix += row;
      c->attention(c, &p, 1);
    }
    for (int32_t i = 0; i < MANY * ROWS; i++) {
      int32_t row = i * 7 % ROWS;
      memcpy(q + (size_t)i * q_floats, two->q + (size_t)row * q_floats, sizeof(float) * q_floats);
      begin[i] = two->table_begin[row];
      prefix[i] = two->n_prefix[row];
    }
    struct attention_params p = two->p;
    p.q = q, p.out = out, p.table_begin = begin, p.n_prefix = prefix;
    c->attention(c, &p, MANY * ROWS);
    for (int32_t i = 0; i < MANY * ROWS; i++) {
      assert_memory_equal(out + (size_t)i * row_floats, one->out + (size_t)(i * 7 % ROWS) * row_floats,
                          sizeof(float) * row_floats);
    }
    compute_close(c);
  }
  free(q), free(out);
  world_free(one), world_free(two);
}

static void test_attention_rows_are_independent(void **state) {
  (void)state;
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    for (size_t s = 0; s < SHAPES; s++) check_bits(fixture_isas[isa], &shapes[s]);
  }
}

/* Scores far apart and far from zero: the running maximum must carry over blocks in both directions. */
static void check_large_scores(struct compute *c) {
  for (int up = 0; up < 2; up++) {
    struct world *w = world_create(&shapes[2], 1);
    for (int32_t slot = 0; slot < SEQUENCES * SLOTS; slot++) {
      float size = 0.1f * (float)(up ? slot % SLOTS : SLOTS - slot % SLOTS);
      for (int32_t k = 0; k < 48; k++) w->entries[(int64_t)slot * w->p.entry_floats + k] = size;
    }
    for (int32_t k = 0; k < ROWS * 48; k++) w->q[k] = 3 + (float)(k % 5);
    world_write(w, c);
    w->p.scale = 1;
    c->attention(c, &w->p, ROWS);
    for (int32_t row = 0; row < ROWS; row++) {
      for (int32_t k = 0; k < 16; k++) assert_true(isfinite(w->out[(int64_t)row * 48 + k]));
      int32_t best = up ? w->n_prefix[row] - 1
                        : 0; /* neighbours score at least 8 less: the best key has all but 4e-4 of the weight */
      const float *value = w->entries + ((int64_t)(row % SEQUENCES) * SLOTS + best) * w->p.entry_floats + 48;
      for (int32_t k = 0; k < 16; k++) fixture_near(w->out[(int64_t)row * 48 + k], value[k], 5e-3, "large scores", k);
    }
    world_free(w);
  }
}

static void test_large_scores(void **state) {
  (void)state;
  fixture_each(check_large_scores);
}

/* ---- rope ---- */

enum { PAIRS = 5, HEADS = 3, POSITIONS = 20 };

static void rope_tables(float *cos_table, float *sin_table) {
  for (int p = 0; p < POSITIONS; p++) {
    for (int i = 0; i < PAIRS; i++) {
      cos_table[p * PAIRS + i] = (float)cos(p * 0.3 / (i + 1));
      sin_table[p * PAIRS + i] = (float)sin(p * 0.3 / (i + 1));
    }
  }
}

static void check_rope(struct compute *c) {
  enum { N = 7, HEAD = 13, ROW = HEADS * HEAD + 1 };
  float cos_table[POSITIONS * PAIRS], sin_table[POSITIONS * PAIRS], back[N * ROW];
  rope_tables(cos_table, sin_table);
  const int32_t positions[N] = {0, 1, 19, 3, 3, 7, 12};
  float *x = fixture_noise(N * ROW, 31);
  for (int style = 0; style < 2; style++) {
    float *out = fixture_floats(N * ROW, 77);
    struct rope_params p = {.out = out,
                            .x = x,
                            .out_row = ROW,
                            .out_head = HEAD,
                            .x_row = ROW,
                            .x_head = HEAD,
                            .n_heads = HEADS,
                            .n_pairs = PAIRS,
                            .style = style ? ROPE_INTERLEAVED : ROPE_HALF,
                            .cos = cos_table,
                            .sin = sin_table,
                            .positions = positions};
    c->rope(c, &p, N);
    for (int i = 0; i < N * HEADS; i++) {
      const float *from = x + i / HEADS * ROW + i % HEADS * HEAD, *to = out + i / HEADS * ROW + i % HEADS * HEAD;
      for (int pair = 0; pair < PAIRS; pair++) {
        int a = style ? 2 * pair : pair, b = style ? 2 * pair + 1 : pair + PAIRS;
        double angle = positions[i / HEADS] * 0.3 / (pair + 1);
        fixture_near(to[a], from[a] * cos(angle) - from[b] * sin(angle), 1e-6, "rope first", pair);
        fixture_near(to[b], from[b] * cos(angle) + from[a] * sin(angle), 1e-6, "rope second", pair);
      }
      for (int k = 2 * PAIRS; k < HEAD; k++) assert_true(to[k] == 77.0f); /* neither touched nor copied */
    }
    memcpy(back, out, sizeof back);
    p.x = p.out = back; /* in place */
    p.inverse = true;
    c->rope(c, &p, N);
    for (int i = 0; i < N * HEADS; i++) {
      int at = i / HEADS * ROW + i % HEADS * HEAD;
      for (int k = 0; k < 2 * PAIRS; k++) fixture_near(back[at + k], x[at + k], 1e-6, "rope inverse", k);
    }
    free(out);
  }
  free(x);
}

static void test_rope(void **state) {
  (void)state;
  fixture_each(check_rope);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_tree_attention),
      cmocka_unit_test(test_extra_slots_equal_a_prefix),
      cmocka_unit_test(test_attention_rows_are_independent),
      cmocka_unit_test(test_large_scores),
      cmocka_unit_test(test_rope),
  };
  return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
