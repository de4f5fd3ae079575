/* test_head_training_shapes.c - training knows every head that inference knows. Tiny random heads of every wiring, attention and dialect are
 * written, opened by inference, and trained on. For each: what inference computes along every chain of drafts is what the unrolled
 * step computes, states and losses (F06); gradients are slopes of the loss; active rows change nothing, computing activations again not
 * even a bit; the block that is read is the one that was written; and the config alone says the same layout. */
#include "head_walk.h"
#include "pair_fixture.h"

#include "base/util.h"
#include "draft/head_file.h"
#include "draft/head_training.h"

#include <math.h>

enum { VOCAB = 40, SLOTS = 21, STEPS = 4, LONGEST = 13, POSITIONS = 64 };
static const int32_t segments[][2] = {{0, LONGEST}, {LONGEST, SLOTS - LONGEST}}; /* first slot, length */

/* What differs from a small standard head. */
struct case_ {
  const char *name;
  struct head_config c;
};
#define DIRECT .attention = ATTENTION_MLA, .kv_rank = 12
#define LATENT DIRECT, .q_rank = 10
static const struct case_ cases[] = {
    {"standard", {0}},
    {"speculators", {.dialect = HEAD_DIALECT_SPECULATORS}},
    {"vllm, whole vocabulary", {.dialect = HEAD_DIALECT_VLLM, .n_draft = VOCAB}},
    {"one state", {.n_states = 1}},
    {"four states, a key head for each", {.n_states = 4, .n_kv_heads = 4}},
    {"fc norms", {.wiring.fc_norms = true}},
    {"norm before fc", {.wiring.fc_input_norm = true}},
    {"norm before residual", {.wiring.norm_before_residual = true}},
    {"norm output", {.wiring.norm_output = true}},
    {"EAGLE-3.1", {.wiring = {.fc_norms = true, .norm_output = true, .norm_before_residual = true}, .dialect = HEAD_DIALECT_SPECULATORS}},
    {"biases of attention", {.attention_bias = true, .attention_out_bias = true}},
    {"biases of q, k, v", {.attention_bias = true}},
    {"bias of o", {.attention_out_bias = true}},
    {"biases of the feed-forward", {.ffn_bias = true}},
    {"bias of fc", {.fc_bias = true}},
    {"q/k norms", {.qk_norm = true, .dialect = HEAD_DIALECT_VLLM}},
    {"two layers", {.n_more_layers = 1}},
    {"three layers, windows in two", {.n_more_layers = 2, .window = {0, 3, 3}}},
    {"window of two", {.window = {2}}},
    {"window shorter than a chain", {.window = {3}, .dialect = HEAD_DIALECT_SPECULATORS}},
    {"window", {.window = {6}}},
    {"linear rope", {.rope = {.scaling = ROPE_SCALING_LINEAR, .factor = 2}}},
    {"llama3 rope",
     {.rope = {.scaling = ROPE_SCALING_LLAMA3, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_positions = 16}}},
    {"dynamic rope", {.rope = {.scaling = ROPE_SCALING_DYNAMIC, .factor = 4}, .positions_max = 16}},
    {"embedding of its own", {.own_embed = true, .dialect = HEAD_DIALECT_VLLM}},
    {"embedding that learns", {.own_embed = true, .embed_trained = true, .dialect = HEAD_DIALECT_SPECULATORS}},
    {"tied to the target's embedding", {.tied = true, .n_draft = VOCAB}},
    {"tied to its own", {.tied = true, .own_embed = true, .n_draft = VOCAB}},
    {"tied to its own, which learns", {.tied = true, .own_embed = true, .embed_trained = true, .n_draft = VOCAB}},
    {"narrower than its target", {.target_hidden = 32, .own_embed = true, .embed_trained = true}},
    {"wider than its target", {.target_hidden = 16, .own_embed = true, .embed_trained = true, .dialect = HEAD_DIALECT_SPECULATORS}},
    {"everything, grouped queries",
     {.target_hidden = 32,
      .own_embed = true,
      .embed_trained = true,
      .n_more_layers = 1,
      .window = {4, 0},
      .attention_bias = true,
      .attention_out_bias = true,
      .ffn_bias = true,
      .fc_bias = true,
      .qk_norm = true,
      .wiring = {.fc_norms = true, .norm_output = true, .norm_before_residual = true},
      .dialect = HEAD_DIALECT_SPECULATORS}},
    {"latent", {LATENT}},
    {"latent, direct queries", {DIRECT}},
    {"latent, rope in halves", {LATENT, .rope.style = ROPE_HALF, .rope.dim = 4}},
    {"latent, yarn",
     {LATENT,
      .rope = {.style = ROPE_INTERLEAVED,
               .dim = 4,
               .scaling = ROPE_SCALING_YARN,
               .factor = 4,
               .original_positions = 16,
               .beta_fast = 32,
               .beta_slow = 1,
               .mscale = 1,
               .mscale_all_dim = 1,
               .truncate = true}}},
    {"latent, biases", {LATENT, .attention_bias = true, .attention_out_bias = true}},
    {"latent, two layers, window", {LATENT, .n_more_layers = 1, .window = {0, 3}, .dialect = HEAD_DIALECT_VLLM}},
    {"latent, everything",
     {LATENT,
      .own_embed = true,
      .embed_trained = true,
      .n_more_layers = 1,
      .window = {5, 0},
      .attention_bias = true,
      .attention_out_bias = true,
      .ffn_bias = true,
      .wiring = {.fc_input_norm = true, .norm_output = true, .norm_before_residual = true},
      .dialect = HEAD_DIALECT_SPECULATORS}},
};

struct bench {
  const char *name;
  struct compute *compute;
  struct model target; /* as much of one as a head looks at */
  struct head_config made, config; /* as it was asked for; as a warm start has it */
  struct vocab_map map;
  struct head *head;
  struct head_parameters places;
  float *parameters, *gradients;
  char directory[64];
  struct head_training *training;
  struct micro_batch batch;
  int32_t tokens[SLOTS], first[SLOTS], length[SLOTS], target_row[SLOTS];
  uint8_t mask[SLOTS];
  float *embed, *features, *embeddings, *wanted;
  float step_weight[STEPS];
};

static float *noise(size_t n, double width, uint64_t stream) {
  float *values = memory_alloc(sizeof(float) * n);
  for (size_t i = 0; i < n; i++) values[i] = (float)(width * random_normal(11, stream, i));
  return values;
}

static void or_else(int32_t *value, int32_t usual) {
  *value = *value ? *value : usual;
}

static struct head_config complete(struct head_config c) {
  static const int32_t states[] = {2, 4, 5, 7};
  bool latent = c.attention == ATTENTION_MLA;
  or_else(&c.hidden, 24);
  or_else(&c.target_hidden, c.hidden);
  or_else(&c.n_draft, 24);
  or_else(&c.n_states, 3);
  or_else(&c.n_kv_heads, latent ? 4 : 2);
  or_else(&c.positions_max, POSITIONS);
  c.n_target = VOCAB;
  c.n_heads = 4;
  c.intermediate = 20;
  c.norm_eps = 1e-5;
  c.nope_dim = latent ? 6 : 0;
  c.rope_dim = latent ? 4 : 0;
  c.value_dim = latent ? 8 : 0;
  c.head_dim = latent ? 10 : 8;
  if (!c.rope.dim) c.rope.style = latent ? ROPE_INTERLEAVED : ROPE_HALF;
  c.rope.dim = latent ? 4 : 8;
  c.rope.theta = 10000;
  memcpy(c.states, states, sizeof states);
  return c;
}

static void fill_parameters(struct bench *b) {
  head_parameters_list(&b->places, &b->made);
  b->parameters = memory_alloc(sizeof(float) * (size_t)b->places.total);
  b->gradients = memory_alloc(sizeof(float) * (size_t)b->places.total);
  for (int32_t i = 0; i < b->places.n; i++) {
    const struct head_parameter *p = &b->places.list[i];
    bool norm = head_part_is_norm(p->part);
    double width = norm || head_part_is_bias(p->part) ? 0.3 : p->part == HEAD_EMBED ? 1 : 1 / sqrt((double)p->columns);
    for (int64_t k = 0; k < p->rows * p->columns; k++)
      b->parameters[p->offset + k] = (float)((norm ? 1 : 0) + width * random_normal(5, (uint64_t)i, (uint64_t)k));
    if (p->borrowed) memcpy(b->parameters + p->offset, b->embed, sizeof(float) * (size_t)(p->rows * p->columns));
  }
}

static void make_batch(struct bench *b) {
  size_t wide = (size_t)(b->config.n_states * b->config.target_hidden), h = (size_t)b->config.target_hidden;
  b->features = noise(SLOTS * wide, 2, 21);
  b->embeddings = memory_alloc(sizeof(float) * SLOTS * h);
  b->wanted = noise(SLOTS * (size_t)b->config.n_draft, 2, 22);
  b->compute->training->softmax(b->compute, b->wanted, SLOTS, b->config.n_draft);
  for (int32_t i = 0; i < 2; i++) {
    for (int32_t t = 0; t < segments[i][1]; t++) {
      int32_t s = segments[i][0] + t;
      b->first[s] = segments[i][0];
      b->length[s] = segments[i][1];
      b->tokens[s] = (int32_t)(random_u64(1, 23, (uint64_t)s) % VOCAB);
      b->mask[s] = t >= 4;
      b->target_row[s] = s % 7 == 6 ? -1 : s;
      memcpy(b->embeddings + (size_t)s * h, b->embed + (size_t)b->tokens[s] * h, sizeof(float) * h);
    }
  }
  for (int k = 0; k < STEPS; k++) b->step_weight[k] = powf(0.8f, (float)k);
  b->batch = (struct micro_batch){.n_slots = SLOTS,
                                  .n_steps = STEPS,
                                  .segment_first = b->first,
                                  .segment_length = b->length,
                                  .features = b->features,
                                  .embeddings = b->embeddings,
                                  .tokens = b->tokens,
                                  .target = b->wanted,
                                  .target_row = b->target_row,
                                  .loss_mask = b->mask,
                                  .loss_scale = 1,
                                  .step_weight = b->step_weight};
}

static void must(const struct bench *b, enum eaglet_status status, const struct eaglet_error *err) {
  if (status != EAGLET_OK) fail_msg("%s: %s", b->name, err->message);
}

static void bench_open(struct bench *b, const struct case_ *case_) {
  struct eaglet_error err;
  int32_t ids[VOCAB];
  *b = (struct bench){.name = case_->name, .made = complete(case_->c), .directory = ""};
  must(b, compute_open_cpu(&b->compute, 1, EAGLET_PRECISION_EXACT, &err), &err);
  b->embed = noise(VOCAB * (size_t)b->made.target_hidden, 1, 20);
  b->target = (struct model){.compute = b->compute, .n_positions = POSITIONS};
  b->target.arch.features.hidden = b->made.target_hidden;
  b->target.arch.features.n_vocab = VOCAB;
  b->target.arch.features.n_layers = 8;
  b->target.arch.features.positions_max = POSITIONS;
  b->target.embed = (struct weight){.format = WEIGHT_F32, .n_out = VOCAB, .n_in = b->made.target_hidden, .data = b->embed};
  b->target.head = b->target.embed;
  for (int32_t i = 0; i < VOCAB; i++) ids[i] = b->made.n_draft == VOCAB ? i : i + i / 2;
  must(b, vocab_map_init(&b->map, ids, b->made.n_draft, VOCAB, "test", &err), &err);
  fill_parameters(b);
  temporary_directory(b->directory);
  b->target.checkpoint.path = b->directory;
  const struct head_export export_ = {
      .config = &b->made, .map = &b->map, .parameters = b->parameters, .dtype = DTYPE_F32, .target = &b->target};
  must(b, head_export(b->directory, &export_, &err), &err);
  must(b, head_open(&b->head, b->directory, &b->target, &err), &err);
  head_config_trained(&b->config, b->head);
  make_batch(b);
  const struct head_training_params training = {
      .config = &b->config, .compute = b->compute, .slots_max = SLOTS, .unroll_max = STEPS, .positions = POSITIONS};
  must(b, head_training_create(&b->training, &training, &err), &err);
}

static void bench_close(struct bench *b) {
  head_training_free(b->training);
  head_close(b->head);
  vocab_map_release(&b->map);
  compute_close(b->compute);
  remove_directory(b->directory);
  free(b->parameters), free(b->gradients), free(b->embed), free(b->features), free(b->embeddings), free(b->wanted);
}

/* ---- what is written is what is read ---- */

/* What a config cannot say: that o has a bias, or not, beside those of q, k and v; that a frozen embedding is in the file. */
static bool config_tells(const struct head_config *c) {
  return c->attention_bias == c->attention_out_bias && c->own_embed == c->embed_trained;
}

static void check_layout(const struct bench *b) {
  struct head_config alone;
  struct eaglet_error err;
  must(b, head_config_read(&alone, b->head->files.config, &b->target.arch.features, "config", &err), &err);
  assert_int_equal(alone.dialect, b->made.dialect);
  if (!config_tells(&b->made)) return;
  must(b, head_config_complete(&alone, b->head->files.config, "config", &err), &err);
  struct head_parameters *list = memory_alloc(sizeof *list);
  head_parameters_list(list, &alone);
  assert_int_equal(list->n, b->places.n);
  for (int32_t i = 0; i < list->n; i++) assert_string_equal(list->list[i].name, b->places.list[i].name);
  assert_int_equal(list->total, b->places.total);
  assert_int_equal(list->trained, b->places.trained);
  assert_memory_equal(alone.window, b->made.window, sizeof alone.window);
  free(list);
}

static void check_block(const struct bench *b) {
  struct eaglet_error err;
  float *back = memory_alloc(sizeof(float) * (size_t)b->places.total);
  assert_int_equal(head_parameters_total(&b->config), b->places.total);
  must(b, head_import(back, &b->config, b->head, &err), &err);
  assert_memory_equal(back, b->parameters, sizeof(float) * (size_t)b->places.total);
  free(back);
}

/* ---- training is drafting ---- */

static double distance(const float *a, const float *b, int32_t n) {
  double worst = 0, most = 0;
  for (int32_t i = 0; i < n; i++) {
    worst = fmax(worst, fabs((double)a[i] - b[i]));
    most = fmax(most, fabs((double)b[i]));
  }
  return worst / most;
}

static double cross_entropy(const float *logits, const float *wanted, int32_t n) {
  double most = logits[0], sum = 0, loss = 0;
  for (int32_t i = 1; i < n; i++) most = fmax(most, (double)logits[i]);
  for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
  for (int32_t i = 0; i < n; i++) loss -= (double)wanted[i] * ((double)logits[i] - most - log(sum));
  return loss;
}

/* The feature that the unrolled step hands on from a slot. */
static void trained_feature(const struct bench *b, float *out, int32_t k, int32_t slot) {
  const int32_t *slots;
  const float *hidden;
  int32_t n = head_training_hidden(b->training, k, &slots, &hidden), row = 0, h = b->config.hidden;
  while (row < n && slots[row] != slot) row++;
  assert_true(row < n);
  const struct norm_params norm = {.dim = h, .eps = (float)b->config.norm_eps};
  memcpy(out, hidden + (int64_t)row * h, sizeof(float) * (size_t)h);
  const float *w = b->parameters + head_parameter_find(&b->places, HEAD_NORM, 0)->offset;
  if (b->config.wiring.norm_output) b->compute->rms_norm(b->compute, out, out, w, 1, &norm);
}

/* The chain of drafts from slot t of a segment, with the text's own tokens; adds its losses. */
static double draft_from(const struct bench *b, struct head_walk *w, const int32_t at[2], double loss[STEPS]) {
  int32_t first = segments[at[0]][0], t = at[1], h = b->config.hidden;
  double worst = 0;
  for (int32_t k = 0; k < STEPS && t + k < segments[at[0]][1]; k++) {
    struct head_run run;
    float trained[64];
    batch_reset(&w->batch);
    if (k == 0)
      head_fuse(w->forward, w->feature, b->features + (int64_t)first * b->config.n_states * b->config.target_hidden, t + 1);
    for (int32_t slot = k == 0 ? 0 : t + k; slot <= t + k; slot++) walk_add(w, 0, slot, b->tokens[first + slot]);
    walk_run(w, &run);
    const float *last = run.out + (int64_t)(w->batch.n - 1) * h,
                *logits = run.logits + (int64_t)(w->batch.n - 1) * b->config.n_draft;
    trained_feature(b, trained, k, first + t);
    worst = fmax(worst, distance(trained, last, h));
    int32_t row = b->mask[first + t + k] ? b->target_row[first + t + k] : -1;
    if (row >= 0) loss[k] += cross_entropy(logits, b->wanted + (int64_t)row * b->config.n_draft, b->config.n_draft);
    memcpy(w->feature, last, sizeof(float) * (size_t)h);
  }
  return worst;
}

static double check_drafting(struct bench *b) {
  struct head_walk walk;
  struct micro_result result;
  double worst = 0, loss[STEPS] = {0};
  b->batch.compute_all = true;
  head_training_forward(b->training, b->parameters, &b->batch, NULL, &result);
  walk_open(&walk, b->head, b->compute, (struct walk_size){1, LONGEST, 64, LONGEST + STEPS});
  for (int32_t i = 0; i < 2; i++) {
    for (int32_t t = 0; t < segments[i][1]; t++)
      worst = fmax(worst, draft_from(b, &walk, (const int32_t[]){i, t}, loss));
  }
  for (int k = 0; k < STEPS; k++) worst = fmax(worst, fabs(loss[k] - result.step_loss[k]) / loss[k]);
  walk_close(&walk);
  return worst;
}

/* ---- gradients are slopes ---- */

static double total_loss(const struct bench *b, bool all, float *gradients) {
  struct micro_batch batch = b->batch;
  struct micro_result result;
  double total = 0;
  batch.compute_all = all;
  head_training_forward(b->training, b->parameters, &batch, gradients, &result);
  for (int k = 0; k < STEPS; k++) total += (double)b->step_weight[k] * result.step_loss[k];
  if (gradients) head_training_backward(b->training, b->parameters, &batch, gradients);
  return total;
}

static double norm_of(const float *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
  return sqrt(sum);
}

static double loss_at(const struct bench *b, const struct head_parameter *p, const float *direction, double step) {
  int64_t n = p->rows * p->columns;
  float *w = b->parameters + p->offset, *keep = memory_alloc(sizeof(float) * (size_t)n);
  memcpy(keep, w, sizeof(float) * (size_t)n);
  for (int64_t i = 0; i < n; i++) w[i] = keep[i] + (float)(step * (double)direction[i]);
  double loss = total_loss(b, false, NULL);
  memcpy(w, keep, sizeof(float) * (size_t)n);
  free(keep);
  return loss;
}

/* How far the slope along a direction of unit length is from the gradient's, in units of the gradient's length. Four points: the error is
 * of the step's fourth power, so a step may be long enough for F32. */
static double slope_error(const struct bench *b, const struct head_parameter *p, const float *direction) {
  const float *g = b->gradients + p->offset;
  double step = 0.015, expected = 0;
  double near = loss_at(b, p, direction, step) - loss_at(b, p, direction, -step),
         far = loss_at(b, p, direction, 2 * step) - loss_at(b, p, direction, -2 * step);
  for (int64_t i = 0; i < p->rows * p->columns; i++) expected += (double)g[i] * (double)direction[i];
  return fabs((8 * near - far) / (12 * step) - expected) / norm_of(g, p->rows * p->columns);
}

/* Along the gradient, and along a random direction, in which every element takes part. */
static double check_slopes(const struct bench *b) {
  double worst = 0;
  for (int32_t i = 0; i < b->places.n; i++) {
    const struct head_parameter *p = &b->places.list[i];
    int64_t n = p->rows * p->columns;
    if (p->frozen) continue;
    float *along = memory_alloc(sizeof(float) * (size_t)n), *across = noise((size_t)n, 1, 40);
    double length = norm_of(b->gradients + p->offset, n), other = norm_of(across, n);
    assert_true(length > 1e-4); /* everything that learns has something to learn */
    for (int64_t k = 0; k < n; k++) {
      along[k] = b->gradients[p->offset + k] / (float)length;
      across[k] /= (float)other;
    }
    double error = fmax(slope_error(b, p, along), slope_error(b, p, across));
    if (!(error < 0.004)) fail_msg("%s: %s: slope is off by %.4f of the gradient", b->name, p->name, error);
    worst = fmax(worst, error);
    free(along);
    free(across);
  }
  return worst;
}

/* With the activations of one step at a time, gradients are the same bits. */
static void check_recompute(const struct bench *b) {
  struct bench less = *b;
  struct eaglet_error err;
  size_t bytes = sizeof(float) * (size_t)b->places.trained;
  const struct head_training_params params = {.config = &b->config,
                                              .compute = b->compute,
                                              .slots_max = SLOTS,
                                              .unroll_max = STEPS,
                                              .positions = POSITIONS,
                                              .recompute = true};
  must(b, head_training_create(&less.training, &params, &err), &err);
  less.gradients = memory_alloc(bytes);
  total_loss(&less, false, less.gradients);
  assert_memory_equal(less.gradients, b->gradients, bytes);
  assert_true(head_training_bytes(less.training) < head_training_bytes(b->training));
  assert_true(head_training_flops(less.training) > head_training_flops(b->training));
  head_training_free(less.training);
  free(less.gradients);
}

static void check_gradients(struct bench *b, double *slopes) {
  size_t n = (size_t)b->places.trained;
  float *all = memory_alloc(sizeof(float) * n);
  total_loss(b, true, all);
  total_loss(b, false, b->gradients);
  for (int32_t i = 0; i < b->places.n; i++) {
    const struct head_parameter *p = &b->places.list[i];
    if (!p->frozen) assert_true(distance(b->gradients + p->offset, all + p->offset, (int32_t)(p->rows * p->columns)) < 5e-6);
  }
  check_recompute(b);
  *slopes = check_slopes(b);
  free(all);
}

static void test_shapes(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct bench *b = memory_alloc(sizeof *b);
    double slopes;
    bench_open(b, &cases[i]);
    check_layout(b);
    check_block(b);
    double drafting = check_drafting(b);
    check_gradients(b, &slopes);
    printf("%-36s drafting %.1e, slopes %.1e\n", b->name, drafting, slopes);
    assert_true(drafting < 1e-5);
    bench_close(b);
    free(b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes)};
  return cmocka_run_group_tests_name("head_training_shapes", tests, NULL, NULL);
}
