/* test_head_training_memory.c - what a training step allocates, counted: the sum that docs/EAGLE3.md gives, written out again; linear in
 * slots, without a word of the target's vocabulary; and nothing while it runs. */
#include "../engine/allocation_count.h"
#include "pair_fixture.h"

#include "base/util.h"
#include "draft/head_training.h"

enum { STEPS = 5, H = 48, VD = 96 };

/* Floats of a slot by docs/EAGLE3.md. */
static size_t floats_per_slot(const struct head_config *c, bool recompute) {
  bool latent = c->attention == ATTENTION_MLA;
  size_t h = (size_t)c->hidden, inter = (size_t)c->intermediate, heads = (size_t)c->n_heads, layers = 1 + (size_t)c->n_more_layers;
  size_t d = latent ? (size_t)(c->nope_dim + c->rope_dim) : (size_t)c->head_dim, e = latent ? (size_t)c->value_dim : d;
  size_t kv = latent ? heads : (size_t)c->n_kv_heads, r = (size_t)c->kv_rank, raw = r + (size_t)c->rope_dim, qr = (size_t)c->q_rank;
  size_t wide = (size_t)c->n_states * (size_t)c->target_hidden, norms = c->qk_norm ? (kv + heads) * d : 0;
  bool fused = c->wiring.fc_norms || c->wiring.fc_input_norm;
  size_t layer = 2 * kv * (d + e) + heads * (d + e) + heads + 3 * h + 3 * inter + norms + (latent ? raw + r + 2 * qr : 0);
  size_t step = 6 * h + layers * layer + (layers - 1) * h, kept = layers * 2 * kv * (d + e) + 3 * h;
  size_t once = (layers == 1 ? 2 * h : h) + (fused ? wide : 0) + 4 * h + 2 * inter + heads * (d + e) +
                (latent ? qr + raw + heads * ((size_t)c->nope_dim + e) : 0);
  return (recompute ? STEPS * kept + step - kept : STEPS * step) + once;
}

static size_t bytes_of(const struct head_config *c, struct compute *compute, int32_t slots, bool recompute) {
  struct head_training *t;
  struct eaglet_error err;
  const struct head_training_params params = {
      .config = c, .compute = compute, .slots_max = slots, .unroll_max = STEPS, .positions = 128, .recompute = recompute};
  size_t before = *n_allocated_bytes;
  assert_ok(head_training_create(&t, &params, &err), &err);
  size_t bytes = *n_allocated_bytes - before;
  assert_true(bytes >= head_training_bytes(t));
  head_training_free(t);
  return bytes;
}

static struct head_config plain(void) {
  return (struct head_config){.hidden = H,
                              .target_hidden = H,
                              .n_heads = 4,
                              .n_kv_heads = 2,
                              .head_dim = 16,
                              .intermediate = 64,
                              .n_target = 1000,
                              .n_draft = VD,
                              .n_states = 3,
                              .norm_eps = 1e-5,
                              .positions_max = 128,
                              .rope = {.style = ROPE_HALF, .dim = 16, .theta = 10000}};
}

static void test_sum(void **state) {
  (void)state;
  struct compute *compute;
  struct eaglet_error err;
  struct head_config configs[5];
  assert_ok(compute_open_cpu(&compute, 1, EAGLET_PRECISION_EXACT, &err), &err);
  for (int i = 0; i < 5; i++) configs[i] = plain();
  configs[1].n_more_layers = 2;
  configs[2].qk_norm = configs[2].wiring.fc_norms = true;
  configs[3].attention = configs[4].attention = ATTENTION_MLA;
  for (int i = 3; i < 5; i++) {
    struct head_config *c = &configs[i];
    c->kv_rank = 16, c->nope_dim = 16, c->rope_dim = 16, c->value_dim = 32, c->head_dim = 32, c->n_kv_heads = 4;
    c->q_rank = i == 3 ? 32 : 0, c->n_more_layers = i - 3;
  }
  for (int i = 0; i < 10; i++) {
    bool recompute = i >= 5;
    struct head_config *c = &configs[i % 5], big = *c;
    enum { FEW = 256, MANY = 2048 };
    size_t few = bytes_of(c, compute, FEW, recompute), many = bytes_of(c, compute, MANY, recompute);
    size_t ints = STEPS * (9 + STEPS) + 2, slot = sizeof(float) * floats_per_slot(c, recompute) + sizeof(int32_t) * ints;
    assert_int_equal(many - few, (MANY - FEW) * slot); /* every array is a whole number of cache lines here */
    size_t rest = few - FEW * slot, logits = sizeof(float) * (size_t)((4 << 20) / VD) * (VD + 3);
    assert_true(rest > logits && rest < logits + (1 << 19)); /* chunk of logits, rope table, list of parameters */
    big.n_target = 200000;
    assert_int_equal(bytes_of(&big, compute, FEW, recompute), few);
  }
  compute_close(compute);
}

static float *noise(size_t n) {
  float *x = memory_alloc(sizeof(float) * n);
  for (size_t i = 0; i < n; i++) x[i] = (float)(0.1 * random_normal(1, 1, i));
  return x;
}

static void test_step_allocates_nothing(void **state) {
  (void)state;
  enum { SLOTS = 64 };
  struct compute *compute;
  struct eaglet_error err;
  struct head_training *t;
  struct micro_result result;
  struct head_config c = plain();
  assert_ok(compute_open_cpu(&compute, 1, EAGLET_PRECISION_EXACT, &err), &err);
  c.n_more_layers = 1, c.qk_norm = c.wiring.fc_norms = true;
  size_t n = (size_t)head_parameters_total(&c);
  float *parameters = noise(n), *gradients = noise(n), *features = noise(SLOTS * 3 * H), *embeddings = noise(SLOTS * H),
        *target = noise(SLOTS * VD), weight[STEPS] = {1, 1, 1, 1, 1};
  int32_t first[SLOTS] = {0}, length[SLOTS], row[SLOTS];
  uint8_t mask[SLOTS];
  for (int32_t s = 0; s < SLOTS; s++) length[s] = SLOTS, row[s] = s, mask[s] = s > 20;
  const struct micro_batch batch = {.n_slots = SLOTS,
                                    .n_steps = STEPS,
                                    .segment_first = first,
                                    .segment_length = length,
                                    .features = features,
                                    .embeddings = embeddings,
                                    .target = target,
                                    .target_row = row,
                                    .loss_mask = mask,
                                    .loss_scale = 1,
                                    .step_weight = weight};
  const struct head_training_params params = {.config = &c, .compute = compute, .slots_max = SLOTS, .unroll_max = STEPS};
  assert_ok(head_training_create(&t, &params, &err), &err);
  size_t held = 0;
  for (int i = 0; i < 3; i++) {
    size_t before = *n_allocated_bytes;
    head_training_forward(t, parameters, &batch, gradients, &result);
    head_training_backward(t, parameters, &batch, gradients);
    held = *n_allocated_bytes - before;
    printf("step %d: %zu bytes\n", i, held);
  }
  assert_int_equal(held, 0); /* behind the first: nothing */
  head_training_free(t);
  compute_close(compute);
  free(parameters), free(gradients), free(features), free(embeddings), free(target);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sum), cmocka_unit_test(test_step_allocates_nothing)};
  return cmocka_run_group_tests_name("head_training_memory", tests, NULL, NULL);
}
