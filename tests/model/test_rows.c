/* test_rows.c - the laws of rows, bitwise: a row's result depends neither on chunking nor on its neighbours; a tree row
 * equals the same token in a chain; a window forgets; a run from a state equals the whole run; bad rows are refused.
 * And the KV pages under all that. */
#include "model_fixture.h"

enum { MODELS = 14 };
static char *models[MODELS]; /* latent attention with experts; grouped queries; a sliding window; biases; then one of every mechanism */

static int find_data(void **state) {
  (void)state;
  static const char *const shared[] = {"own/nano-kimi", "own/arch/qwen3_moe", "own/arch/mistral", "own/arch/qwen2"};
  static const char *const own[] = {"gemma2", "gemma3_text", "gpt_oss", "llama4_text", "cohere2", "exaone4", "gpt2", "ministral3",
                                    "deepseek_v32_sparse", "glm_moe_dsa_sparse"};
  for (int i = 0; i < 4; i++) models[i] = shared_path(shared[i]);
  for (int i = 0; i < MODELS - 4 && getenv("EAGLET_TEST_ROOT"); i++)
    models[4 + i] = memory_format("%s/tests/data/arch/%s", getenv("EAGLET_TEST_ROOT"), own[i]);
  return 0;
}

static int free_data(void **state) {
  (void)state;
  for (int i = 0; i < MODELS; i++) free(models[i]);
  return 0;
}

#define N 40

static void make_tokens(const struct fixture *f, int32_t *tokens, int32_t seed) {
  for (int32_t i = 0; i < N; i++) tokens[i] = (i * 7919 + 13 * seed) % f->model->arch.features.n_vocab;
}

static void open_model(struct fixture *f, int i) {
  struct eaglet_error err = {0};
  enum eaglet_status status = fixture_open(f, models[i], 96, &err);
  if (status != EAGLET_OK) print_error("%s\n", err.message);
  assert_int_equal(status, EAGLET_OK);
}

static struct forward_run run_batch(struct fixture *f, struct batch *batch) {
  struct eaglet_error err = {0};
  struct forward_run run = {.batch = batch, .kv = &f->kv};
  enum eaglet_status status = forward_run(f->forward, &run, &err);
  if (status != EAGLET_OK) print_error("%s\n", err.message);
  assert_int_equal(status, EAGLET_OK);
  return run;
}

static float *copy_floats(const float *from, size_t n) {
  float *to = memory_alloc(n * sizeof *to);
  memcpy(to, from, n * sizeof *to);
  return to;
}

/* Whole prefill against chunks of every kind, down to single rows. */
static void test_chunks(void **state) {
  (void)state;
  static const int32_t chunks[] = {1, 3, 8, 31, 32, 33};
  for (int m = 0; m < MODELS; m++) {
    if (!models[m]) skip();
    struct fixture f;
    int32_t tokens[N];
    open_model(&f, m);
    make_tokens(&f, tokens, 1);
    size_t n_vocab = (size_t)f.model->arch.features.n_vocab;
    fixture_batch(&f, tokens, 0, N);
    float *whole = copy_floats(run_batch(&f, &f.batch).logits, N * n_vocab);
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
      for (int32_t begin = 0; begin < N; begin += chunks[c]) {
        int32_t n = N - begin < chunks[c] ? N - begin : chunks[c];
        fixture_batch(&f, tokens + begin, begin, n);
        struct forward_run run = run_batch(&f, &f.batch);
        assert_memory_equal(run.logits, whole + (size_t)begin * n_vocab, (size_t)n * n_vocab * sizeof(float));
      }
    }
    free(whole);
    fixture_close(&f);
  }
}

/* Two sequences interleaved with a third at another length: each gives what it gives alone. Only some rows ask for
 * logits. */
static void test_neighbours(void **state) {
  (void)state;
  for (int m = 0; m < MODELS; m++) {
    if (!models[m]) skip();
    struct fixture f;
    struct kv_sequence other;
    int32_t a[N], b[N];
    open_model(&f, m);
    make_tokens(&f, a, 1);
    make_tokens(&f, b, 5);
    size_t n_vocab = (size_t)f.model->arch.features.n_vocab;
    fixture_batch(&f, b, 0, N);
    float *alone_b = copy_floats(run_batch(&f, &f.batch).logits, N * n_vocab);
    fixture_batch(&f, a, 0, N);
    float *alone_a = copy_floats(run_batch(&f, &f.batch).logits, N * n_vocab);
    assert_int_equal(kv_sequence_init(&other, &f.kv, 64, NULL), EAGLET_OK);
    assert_int_equal(kv_sequence_reserve(&other, N, NULL), EAGLET_OK);
    batch_reset(&f.batch);
    for (int32_t i = 0; i < N; i++) {
      *batch_add(&f.batch) = (struct batch_row){
          .token = a[i], .position = i, .slot = i, .kv = &f.sequence, .wants_logits = i % 3 == 0};
      *batch_add(&f.batch) = (struct batch_row){
          .token = b[i], .position = i, .slot = i, .kv = &other, .wants_logits = i % 5 == 0};
    }
    struct forward_run run = run_batch(&f, &f.batch);
    int32_t at = 0;
    for (int32_t i = 0; i < N; i++) {
      if (i % 3 == 0)
        assert_memory_equal(run.logits + (size_t)at++ * n_vocab, alone_a + (size_t)i * n_vocab,
                            n_vocab * sizeof(float));
      if (i % 5 == 0)
        assert_memory_equal(run.logits + (size_t)at++ * n_vocab, alone_b + (size_t)i * n_vocab,
                            n_vocab * sizeof(float));
    }
    assert_int_equal(run.n_logits, at);
    kv_sequence_release(&other);
    free(alone_a);
    free(alone_b);
    fixture_close(&f);
  }
}

/* Root r, children x and y, x's child z: z must see r, x, z and not y. */
static void test_tree(void **state) {
  (void)state;
  for (int m = 0; m < MODELS; m++) {
    if (!models[m]) skip();
    struct fixture f;
    int32_t tokens[N];
    open_model(&f, m);
    make_tokens(&f, tokens, 1);
    size_t n_vocab = (size_t)f.model->arch.features.n_vocab;
    const int32_t y = 17;
    fixture_batch(&f, tokens, 0, N); /* the chain: slots 36.. are r, x, z */
    float *chain = copy_floats(run_batch(&f, &f.batch).logits, N * n_vocab);
    fixture_batch(&f, tokens, 0, 36);
    run_batch(&f, &f.batch);
    f.sequence.length = 36;
    assert_int_equal(kv_sequence_reserve(&f.sequence, 44, NULL), EAGLET_OK);
    batch_reset(&f.batch);
    static const int32_t path[] = {38, 39};
    const struct {
      int32_t token, position, slot, n_prefix, n_path;
    } tree[] = {{tokens[36], 36, 36, 0, 0},
                {y, 37, 37, 37, 0},
                {tokens[37], 37, 38, 37, 0},
                {tokens[38], 38, 39, 37, 1},
                {tokens[39], 39, 40, 37, 2}};
    for (int i = 0; i < 5; i++) {
      *batch_add(&f.batch) = (struct batch_row){.token = tree[i].token,
                                                .position = tree[i].position,
                                                .slot = tree[i].slot,
                                                .n_prefix = tree[i].n_prefix,
                                                .path = path,
                                                .n_path = tree[i].n_path,
                                                .kv = &f.sequence,
                                                .wants_logits = true};
    }
    struct forward_run run = run_batch(&f, &f.batch);
    static const int32_t same[][2] = {{0, 36}, {2, 37}, {3, 38}, {4, 39}}; /* tree row, chain row */
    for (int i = 0; i < 4; i++)
      assert_memory_equal(run.logits + (size_t)same[i][0] * n_vocab, chain + (size_t)same[i][1] * n_vocab,
                          n_vocab * sizeof(float));
    assert_memory_not_equal(run.logits + n_vocab, run.logits + 2 * n_vocab, n_vocab * sizeof(float));
    free(chain);
    fixture_close(&f);
  }
}

/* Truncation is only a number: rejected rows leave no trace. */
static void test_rollback(void **state) {
  (void)state;
  if (!models[0]) skip();
  struct fixture f;
  int32_t a[N], b[N];
  open_model(&f, 0);
  make_tokens(&f, a, 1);
  make_tokens(&f, b, 9);
  size_t n_vocab = (size_t)f.model->arch.features.n_vocab;
  fixture_batch(&f, a, 0, N);
  float *whole = copy_floats(run_batch(&f, &f.batch).logits, N * n_vocab);
  fixture_batch(&f, a, 0, 20);
  run_batch(&f, &f.batch);
  fixture_batch(&f, b, 20, 8); /* drafted and rejected */
  run_batch(&f, &f.batch);
  fixture_batch(&f, a + 20, 20, 20);
  struct forward_run run = run_batch(&f, &f.batch);
  assert_memory_equal(run.logits, whole + 20 * n_vocab, 20 * n_vocab * sizeof(float));
  free(whole);
  fixture_close(&f);
}

/* A window of 16 over 4 layers: token 0 reaches row t only while t <= 4 * 15. */
static void test_window(void **state) {
  (void)state;
  if (!models[2]) skip();
  struct fixture f;
  int32_t tokens[96], n_vocab;
  open_model(&f, 2);
  n_vocab = f.model->arch.features.n_vocab;
  assert_int_equal(f.model->arch.features.layers[0].window, 16);
  for (int32_t i = 0; i < 96; i++) tokens[i] = (i * 31 + 7) % n_vocab;
  fixture_batch(&f, tokens, 0, 96);
  float *first = copy_floats(run_batch(&f, &f.batch).logits, 96 * (size_t)n_vocab);
  tokens[0] = (tokens[0] + 1) % n_vocab;
  fixture_batch(&f, tokens, 0, 96);
  struct forward_run run = run_batch(&f, &f.batch);
  size_t row = (size_t)n_vocab;
  assert_memory_not_equal(run.logits + 60 * row, first + 60 * row, row * sizeof(float));
  assert_memory_equal(run.logits + 61 * row, first + 61 * row, 35 * row * sizeof(float));
  free(first);
  fixture_close(&f);
}

static void test_taps_and_starts(void **state) {
  (void)state;
  if (!models[0]) skip();
  struct fixture f;
  int32_t tokens[N];
  open_model(&f, 0);
  make_tokens(&f, tokens, 1);
  size_t n_vocab = (size_t)f.model->arch.features.n_vocab, hidden = (size_t)f.model->arch.features.hidden;
  fixture_batch(&f, tokens, 0, N);
  float *whole = copy_floats(run_batch(&f, &f.batch).logits, N * n_vocab);
  struct forward_run run = {.batch = &f.batch, .kv = &f.kv, .taps = {.n = 3, .states = {0, 5, 8}}, .no_head = true};
  assert_int_equal(forward_run(f.forward, &run, NULL), EAGLET_OK);
  assert_null(run.logits);
  float *start = memory_alloc(N * hidden * sizeof(float));
  for (size_t i = 0; i < N; i++) memcpy(start + i * hidden, run.tapped + (i * 3 + 1) * hidden, hidden * sizeof(float));
  struct forward_run rest = {.batch = &f.batch, .kv = &f.kv, .start = start, .start_state = 5};
  assert_int_equal(forward_run(f.forward, &rest, NULL), EAGLET_OK);
  assert_memory_equal(rest.logits, whole, N * n_vocab * sizeof(float));
  free(start);
  free(whole);
  fixture_close(&f);
}

static void test_bad_rows(void **state) {
  (void)state;
  if (!models[0]) skip();
  struct fixture f;
  struct eaglet_error err;
  int32_t token = 3;
  open_model(&f, 0);
  fixture_batch(&f, &token, 0, 1);
  struct forward_run run = {.batch = &f.batch, .kv = &f.kv};
  f.batch.rows[0].token = 4096;
  assert_int_equal(forward_run(f.forward, &run, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "token id of 0..4095, found 4096"));
  f.batch.rows[0].token = 3;
  f.batch.rows[0].position = 4096;
  assert_int_equal(forward_run(f.forward, &run, &err), EAGLET_E_INPUT);
  f.batch.rows[0].position = 0;
  f.batch.rows[0].slot = 32;
  assert_int_equal(forward_run(f.forward, &run, &err), EAGLET_E_USAGE);
  f.batch.rows[0].slot = 0;
  run.taps = (struct tap_set){.n = 2, .states = {3, 3}};
  assert_int_equal(forward_run(f.forward, &run, &err), EAGLET_E_USAGE);
  run.taps = (struct tap_set){.n = 1, .states = {9}};
  assert_int_equal(forward_run(f.forward, &run, &err), EAGLET_E_USAGE);
  run.taps.n = 0;
  run.start_state = 2; /* without a residual */
  assert_int_equal(forward_run(f.forward, &run, &err), EAGLET_E_USAGE);
  batch_reset(&f.batch);
  run.start_state = 0;
  assert_int_equal(forward_run(f.forward, &run, &err), EAGLET_E_USAGE);
  fixture_close(&f);
}

static void test_pages(void **state) {
  (void)state;
  struct compute *c;
  struct kv_cache cache;
  struct kv_sequence a, b;
  struct eaglet_error err;
  assert_int_equal(compute_open_cpu(&c, 1, EAGLET_PRECISION_EXACT, NULL), EAGLET_OK);
  assert_int_equal(kv_cache_init(&cache, c, 2, 8, 4, NULL), EAGLET_OK);
  assert_int_equal(kv_sequence_init(&a, &cache, 100, NULL), EAGLET_OK);
  assert_int_equal(kv_sequence_init(&b, &cache, 100, NULL), EAGLET_OK);
  assert_int_equal(kv_sequence_reserve(&a, 33, NULL), EAGLET_OK);
  assert_int_equal(a.n_pages, 2);
  assert_int_equal(kv_sequence_reserve(&a, 5, NULL), EAGLET_OK); /* less than held: nothing happens */
  assert_int_equal(a.n_pages, 2);
  assert_int_equal(kv_sequence_reserve(&b, 65, &err), EAGLET_E_RESOURCE);
  assert_int_equal(b.n_pages, 0); /* unchanged after failure */
  assert_int_equal(kv_sequence_reserve(&b, 64, NULL), EAGLET_OK);
  assert_int_equal(cache.n_free, 0);
  for (int i = 0; i < 2; i++) assert_true(a.table[i] != b.table[0] && a.table[i] != b.table[1]);
  kv_sequence_release(&a);
  assert_int_equal(cache.n_free, 2);
  assert_int_equal(kv_sequence_reserve(&b, 129, &err), EAGLET_E_RESOURCE); /* beyond its plan */
  kv_sequence_release(&b);
  assert_int_equal(cache.n_free, 4);
  kv_cache_release(&cache);
  compute_close(c);
}

/* Numbers of models.md: Kimi-K2.5 keeps pairs 0..19 and divides 20..31 by 64 at cos/sin factor 1. */
static void test_rope_table(void **state) {
  (void)state;
  struct compute *c;
  struct rope_table table;
  assert_int_equal(compute_open_cpu(&c, 1, EAGLET_PRECISION_EXACT, NULL), EAGLET_OK);
  const struct rope_features kimi = {.scaling = ROPE_SCALING_YARN,
                                     .dim = 64,
                                     .theta = 50000,
                                     .factor = 64,
                                     .beta_fast = 1,
                                     .beta_slow = 1,
                                     .original_positions = 4096,
                                     .attention_factor = 1,
                                     .truncate = true};
  assert_int_equal(rope_table_init(&table, c, &kimi, 3, NULL), EAGLET_OK);
  for (int i = 0; i < 32; i++) {
    double f = pow(50000, -2.0 * i / 64) / (i < 20 ? 1 : 64);
    assert_float_equal(table.cos[2 * 32 + i], cos(2 * f), 1e-6);
    assert_float_equal(table.sin[2 * 32 + i], sin(2 * f), 1e-6);
  }
  rope_table_release(&table, c);
  /* gpt-oss keeps the fractional range (truncate false) and scales cos and sin by 1.3465736. */
  const struct rope_features fractional = {.scaling = ROPE_SCALING_YARN,
                                           .dim = 64,
                                           .theta = 150000,
                                           .factor = 32,
                                           .beta_fast = 32,
                                           .beta_slow = 1,
                                           .original_positions = 4096,
                                           .attention_factor = 1.3465736};
  assert_int_equal(rope_table_init(&table, c, &fractional, 1, NULL), EAGLET_OK);
  assert_float_equal(table.cos[0], 1.3465736, 1e-6);
  rope_table_release(&table, c);
  const struct rope_features odd = {.dim = 7, .theta = 10000};
  assert_int_equal(rope_table_init(&table, c, &odd, 1, NULL), EAGLET_E_INPUT);
  compute_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_chunks),   cmocka_unit_test(test_neighbours), cmocka_unit_test(test_tree),
      cmocka_unit_test(test_rollback), cmocka_unit_test(test_window),     cmocka_unit_test(test_taps_and_starts),
      cmocka_unit_test(test_bad_rows), cmocka_unit_test(test_pages),      cmocka_unit_test(test_rope_table),
  };
  return cmocka_run_group_tests(tests, find_data, free_data);
}
