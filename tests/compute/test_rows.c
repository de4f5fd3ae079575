/* test_rows.c - a row's bits depend on nothing but the row: every op at 1 to 70 rows, on one to three threads, against
 * the row alone on one thread; every weight format; heads together against heads alone. Whether the numbers are right
 * is what the other tests ask. */
#include "compute_fixture.h"

enum { ROWS = 70 };

/* ---- weights of every reader ---- */

enum { IN_MAX = 320, OUT_MAX = 37 };

struct layer {
  const char *name;
  struct weight w; /* without sizes */
};

static const struct layer layers[] = {
    {"f32", {.format = WEIGHT_F32}},
    {"bf16", {.format = WEIGHT_BF16}},
    {"f16", {.format = WEIGHT_F16}},
    {"int4", {.format = WEIGHT_INT4, .group = 32, .scale_dtype = DTYPE_BF16}},
    {"int4, one group", {.format = WEIGHT_INT4, .group = 16, .scale_dtype = DTYPE_F16}},
    {"int4 zeros", {.format = WEIGHT_INT4, .group = 32, .scale_dtype = DTYPE_F32, .zero_kind = WEIGHT_ZERO_I8}},
    {"int8", {.format = WEIGHT_INT8, .group = 32, .scale_dtype = DTYPE_F32}},
    {"int8 zeros", {.format = WEIGHT_INT8, .group = 16, .scale_dtype = DTYPE_F32, .zero_kind = WEIGHT_ZERO_I8}},
    {"f4", {.format = WEIGHT_F4, .group = 16, .scale_dtype = DTYPE_F32}},
    {"f8 e4m3", {.format = WEIGHT_F8_E4M3, .group = 128, .scale_rows = 16, .scale_dtype = DTYPE_F32}},
    {"f8 e5m2", {.format = WEIGHT_F8_E5M2, .group = 128, .scale_dtype = DTYPE_F32}},
    {"bf16 transposed", {.format = WEIGHT_BF16, .transposed = true}},
};
#define LAYERS (sizeof layers / sizeof *layers)

struct bytes {
  uint8_t data[IN_MAX * OUT_MAX * 4], scale[IN_MAX / 16 * OUT_MAX * 4];
  int8_t zero[IN_MAX / 16 * OUT_MAX];
};

/* Random bits whose exponents stay small. */
static void fill_floats(uint8_t *to, size_t n, enum dtype dtype, uint64_t stream) {
  for (size_t i = 0; i < n; i++) {
    float value = 0.02f + 0.01f * (float)random_normal(3, stream, i);
    uint32_t bits;
    uint16_t half = dtype_f32_to_f16(value);
    memcpy(&bits, &value, 4);
    if (dtype == DTYPE_BF16) half = (uint16_t)(bits >> 16);
    if (dtype == DTYPE_F32)
      memcpy(to + 4 * i, &value, 4);
    else
      memcpy(to + 2 * i, &half, 2);
  }
}

static struct weight layer_create(struct bytes *b, const struct layer *layer, int32_t n_out, int32_t n_in) {
  struct weight w = layer->w;
  size_t n = (size_t)n_out * (size_t)n_in;
  w.n_out = n_out, w.n_in = n_in, w.data = b->data;
  for (size_t i = 0; i < sizeof b->data; i++) b->data[i] = (uint8_t)random_u64(5, 6, i);
  for (size_t i = 0; i < sizeof b->zero; i++) b->zero[i] = (int8_t)(random_u64(5, 7, i) % 5);
  for (size_t i = 0; i < n && w.format == WEIGHT_F8_E4M3; i++) b->data[i] &= 0xb7;
  for (size_t i = 0; i < n && w.format == WEIGHT_F8_E5M2; i++) b->data[i] &= 0xbf;
  if (w.format == WEIGHT_F32) fill_floats(b->data, n, DTYPE_F32, 1);
  if (w.format == WEIGHT_BF16) fill_floats(b->data, n, DTYPE_BF16, 1);
  if (w.format == WEIGHT_F16) fill_floats(b->data, n, DTYPE_F16, 1);
  if (!weight_scaled(&w)) return w;
  fill_floats(b->scale, sizeof b->scale / 4, w.scale_dtype, 2);
  w.scale = b->scale;
  w.zero = w.zero_kind ? b->zero : NULL;
  return w;
}

static void check_matmul(const char *isa, const struct weight *w, const char *name) {
  float *x = fixture_noise((size_t)(ROWS * w->n_in), 3), *alone = fixture_floats((size_t)(ROWS * w->n_out), 0),
        *out = fixture_floats((size_t)(ROWS * w->n_out), 0);
  for (int threads = 1; threads <= 3; threads++) {
    struct compute *c = fixture_open(isa, threads);
    if (!c) break;
    for (int32_t i = 0; threads == 1 && i < ROWS; i++) c->matmul(c, alone + i * w->n_out, x + i * w->n_in, w, 1, 0, 0);
    for (int32_t i = 0; i < ROWS * w->n_out; i++) assert_true(isfinite(alone[i]));
    for (int32_t n = 1; n <= ROWS; n++) {
      size_t bytes = sizeof(float) * (size_t)(n * w->n_out);
      memset(out, 0xff, bytes);
      c->matmul(c, out, x, w, n, 0, 0);
      if (memcmp(out, alone, bytes) != 0)
        fail_msg("%s, %s [%d, %d], %d threads: %d rows differ from rows alone", isa, name, w->n_out, w->n_in, threads,
                 n);
    }
    compute_close(c);
  }
  free(x), free(alone), free(out);
}

static void test_matmul(void **state) {
  (void)state;
  static const int32_t outs[] = {1, 3, 6, OUT_MAX}, ins[] = {32, IN_MAX};
  struct bytes *b = malloc(sizeof *b);
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    for (size_t l = 0; l < LAYERS; l++) {
      for (size_t k = 0; k < 8; k++) {
        const struct weight w = layer_create(b, &layers[l], outs[k / 2], ins[k % 2]);
        check_matmul(fixture_isas[isa], &w, layers[l].name);
      }
    }
  }
  free(b);
}

/* ---- heads of one matrix ---- */

static void check_heads(const char *isa, const struct weight *w, bool transpose) {
  enum { HEADS = 4 };
  int32_t per_head = w->n_out / HEADS, n_out = transpose ? w->n_in : per_head, n_in = transpose ? per_head : w->n_in;
  int64_t out_row = HEADS * n_out, x_row = HEADS * n_in;
  float *x = fixture_noise((size_t)(ROWS * x_row), 3), *alone = fixture_floats((size_t)(ROWS * out_row), 0),
        *out = fixture_floats((size_t)(ROWS * out_row), 0);
  struct matmul_heads_params p = {.w = w,
                                  .n_heads = HEADS,
                                  .rows_per_head = per_head,
                                  .n_rows = per_head,
                                  .transpose = transpose,
                                  .out_row = out_row,
                                  .out_head = n_out,
                                  .x_row = x_row,
                                  .x_head = n_in};
  for (int threads = 1; threads <= 3; threads++) {
    struct compute *c = fixture_open(isa, threads);
    if (!c) break;
    for (int32_t i = 0; threads == 1 && i < ROWS; i++) {
      p.out = alone + i * out_row, p.x = x + i * x_row;
      c->matmul_heads(c, &p, 1);
    }
    p.out = out, p.x = x;
    for (int32_t n = 1; n <= ROWS; n++) {
      c->matmul_heads(c, &p, n);
      assert_memory_equal(out, alone, sizeof(float) * (size_t)(n * out_row));
    }
    compute_close(c);
  }
  free(x), free(alone), free(out);
}

static void test_matmul_heads(void **state) {
  (void)state;
  struct bytes *b = malloc(sizeof *b);
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    for (size_t l = 0; l < LAYERS; l++) {
      if (layers[l].w.transposed || layers[l].w.scale_rows) continue;
      const struct weight w = layer_create(b, &layers[l], 36, 160);
      check_heads(fixture_isas[isa], &w, false);
      check_heads(fixture_isas[isa], &w, true);
    }
  }
  free(b);
}

/* ---- experts ---- */

static void check_moe(const char *isa, const struct layer *layer) {
  enum { E = 8, K = 3, HIDDEN = 96, INNER = 64 };
  struct bytes *b = malloc(2 * sizeof *b);
  struct weight in[E], down[E];
  int32_t expert[ROWS * K];
  float share[ROWS * K], *x = fixture_noise(ROWS * HIDDEN, 3), *alone = fixture_floats(ROWS * HIDDEN, 0),
                         *out = fixture_floats(ROWS * HIDDEN, 0),
                         *scratch = fixture_floats((size_t)compute_moe_scratch_floats(ROWS, K, HIDDEN, INNER), 0);
  for (int e = 0; e < E; e++) { /* the same bytes from other places */
    in[e] = layer_create(&b[0], layer, INNER, HIDDEN);
    down[e] = layer_create(&b[1], layer, HIDDEN, INNER);
    in[e].scale = down[e].scale = layer->w.group ? b[0].scale + 4 * e : NULL;
  }
  for (uint64_t i = 0; i < ROWS; i++) {
    uint32_t order[E];
    random_permutation(order, E, 7, i);
    for (uint64_t k = 0; k < K; k++) expert[i * K + k] = (int32_t)order[k], share[i * K + k] = 0.1f + (float)k;
  }
  struct moe_params p = {
      .gate = in, .up = in, .down = down, .n_experts = E, .n_picked = K, .scratch = scratch, .share = share};
  for (int threads = 1; threads <= 3; threads++) {
    struct compute *c = fixture_open(isa, threads);
    if (!c) break;
    for (int32_t i = 0; threads == 1 && i < ROWS; i++) {
      p.out = alone + i * HIDDEN, p.x = x + i * HIDDEN, p.expert = expert + i * K, p.share = share + i * K;
      c->moe(c, &p, 1);
    }
    p.out = out, p.x = x, p.expert = expert, p.share = share;
    for (int32_t n = 1; n <= ROWS; n += n < 12 ? 1 : 7) {
      c->moe(c, &p, n);
      assert_memory_equal(out, alone, sizeof(float) * (size_t)(n * HIDDEN));
    }
    compute_close(c);
  }
  free(x), free(alone), free(out), free(scratch), free(b);
}

static void test_moe(void **state) {
  (void)state;
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    check_moe(fixture_isas[isa], &layers[1]);
    check_moe(fixture_isas[isa], &layers[3]);
  }
}

/* ---- attention ---- */

enum { PAGE = 16, SLOTS = 160, TREE = 12 };

struct heads_shape {
  int32_t n_heads, n_kv_heads, key_dim, value_dim;
};

/* Rows see contexts of different lengths, some through a prefix, some key by key as trees do. */
struct context {
  int32_t pages[SLOTS / PAGE], table_begin[TREE], n_prefix[TREE], extra_begin[TREE + 1], extra_slots[TREE * SLOTS];
};

static void context_fill(struct context *x) {
  for (int i = 0; i < SLOTS / PAGE; i++) x->pages[i] = (i * 7 + 3) % (SLOTS / PAGE);
  x->extra_begin[0] = 0;
  for (int i = 0; i < TREE; i++) {
    int32_t length = 1 + i * i, extra = i % 3 * length / 5;
    x->table_begin[i] = 0;
    x->n_prefix[i] = length - extra;
    for (int32_t k = 0; k < extra; k++) x->extra_slots[x->extra_begin[i] + k] = length - extra + k;
    x->extra_begin[i + 1] = x->extra_begin[i] + extra;
  }
}

/* One head of one row, on its own. */
static void attend_alone(struct compute *c, struct attention_params p, int32_t row, int32_t head) {
  int32_t kv = head / (p.n_heads / p.n_kv_heads);
  p.q += ((int64_t)row * p.n_heads + head) * p.key_dim;
  p.out += ((int64_t)row * p.n_heads + head) * p.value_dim;
  p.table_begin += row, p.n_prefix += row, p.extra_begin += row;
  p.pool += kv * p.key_head;
  p.value_offset += kv * (p.value_head - p.key_head);
  p.n_heads = p.n_kv_heads = 1;
  c->attention(c, &p, 1);
}

static void check_attention(const char *isa, const struct heads_shape *s) {
  int32_t entry = s->n_kv_heads * (s->key_dim + s->value_dim);
  size_t n_out = (size_t)(TREE * s->n_heads * s->value_dim);
  float *pool = fixture_noise((size_t)(SLOTS * entry), 1),
        *q = fixture_noise((size_t)(TREE * s->n_heads * s->key_dim), 2), *alone = fixture_floats(n_out, 0),
        *out = fixture_floats(n_out, 0);
  struct context x;
  context_fill(&x);
  struct attention_params p = {.out = alone,
                               .q = q,
                               .pool = pool,
                               .page_table = x.pages,
                               .table_begin = x.table_begin,
                               .n_prefix = x.n_prefix,
                               .extra_slots = x.extra_slots,
                               .extra_begin = x.extra_begin,
                               .n_heads = s->n_heads,
                               .n_kv_heads = s->n_kv_heads,
                               .key_dim = s->key_dim,
                               .value_dim = s->value_dim,
                               .key_head = s->key_dim,
                               .value_head = s->value_dim,
                               .value_offset = s->n_kv_heads * s->key_dim,
                               .entry_floats = entry,
                               .page_tokens = PAGE,
                               .scale = 0.2f};
  for (int threads = 1; threads <= 3; threads++) {
    struct compute *c = fixture_open(isa, threads);
    if (!c) break;
    p.out = alone;
    for (int32_t i = 0; threads == 1 && i < TREE * s->n_heads; i++) attend_alone(c, p, i / s->n_heads, i % s->n_heads);
    p.out = out;
    for (int32_t n = 1; n <= TREE; n++) {
      c->attention(c, &p, n);
      assert_memory_equal(out, alone, sizeof(float) * n_out / TREE * (size_t)n);
    }
    compute_close(c);
  }
  free(pool), free(q), free(alone), free(out);
}

static void test_attention(void **state) {
  (void)state;
  static const struct heads_shape shapes[] = {
      {8, 1, 112, 96}, {12, 1, 40, 24}, {20, 2, 33, 17}, {3, 3, 64, 64}, {14, 2, 16, 80}};
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) check_attention(fixture_isas[isa], &shapes[s]);
  }
}

/* ---- small ops ---- */

enum { DIM = 200, PICKED = 4 };

struct small {
  float norm[ROWS * DIM], layer[ROWS * DIM], turned[ROWS * DIM], share[ROWS * PICKED], likely[ROWS * PICKED];
  int32_t expert[ROWS * PICKED], best[ROWS], ids[ROWS * PICKED];
};

/* All of them over rows [first, first + n) of x. */
static void run_small(struct compute *c, struct small *s, const float *x, int32_t first, int32_t n) {
  const float *rows = x + first * DIM;
  const struct norm_params norm = {.dim = DIM, .eps = 1e-5f, .bias = x + DIM};
  const struct router_params router = {.expert = s->expert + first * PICKED,
                                       .share = s->share + first * PICKED,
                                       .logits = rows,
                                       .n_experts = DIM,
                                       .n_picked = PICKED,
                                       .kind = ROUTER_SOFTMAX_ALL,
                                       .normalise = true,
                                       .scale = 2};
  int32_t positions[ROWS];
  for (int32_t i = 0; i < n; i++) positions[i] = (first + i) % 3;
  const struct rope_params rope = {.out = s->turned + first * DIM,
                                   .x = rows,
                                   .out_row = DIM,
                                   .out_head = 100,
                                   .x_row = DIM,
                                   .x_head = 100,
                                   .n_heads = 2,
                                   .n_pairs = 50,
                                   .cos = x,
                                   .sin = x + 150,
                                   .positions = positions};
  const struct top_k_params top = {.ids = s->ids + first * PICKED,
                                   .log_probabilities = s->likely + first * PICKED,
                                   .x = rows,
                                   .dim = DIM,
                                   .k = PICKED};
  c->rms_norm(c, s->norm + first * DIM, rows, x, n, &norm);
  c->layer_norm(c, s->layer + first * DIM, rows, x, n, &norm);
  c->rope(c, &rope, n);
  c->router(c, &router, n);
  c->argmax(c, s->best + first, rows, n, DIM);
  c->top_k(c, &top, n);
}

static void test_small_ops(void **state) {
  (void)state;
  float *x = fixture_noise(ROWS * DIM, 3);
  struct small *alone = calloc(1, sizeof *alone), *all = calloc(1, sizeof *all);
  for (size_t isa = 0; isa < FIXTURE_ISAS; isa++) {
    for (int threads = 1; threads <= 3; threads++) {
      struct compute *c = fixture_open(fixture_isas[isa], threads);
      if (!c) break;
      for (int32_t i = 0; threads == 1 && i < ROWS; i++) run_small(c, alone, x, i, 1);
      memset(all, 0, sizeof *all);
      run_small(c, all, x, 0, ROWS);
      assert_memory_equal(all, alone, sizeof *all);
      compute_close(c);
    }
  }
  free(x), free(alone), free(all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_matmul),    cmocka_unit_test(test_matmul_heads), cmocka_unit_test(test_moe),
      cmocka_unit_test(test_attention), cmocka_unit_test(test_small_ops),
  };
  return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
