/* test_parity.c - the head that was trained is the head that drafts (F06, F01): hidden states of the unrolled training
 * forward against the drafting path of the inference code, on an exported and reopened head of nano-kimi. */
#include "draft/head_training.h"
#include "train/head_init.h"

#include "base/memory.h"
#include "base/util.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 13, SLOTS = TOKENS - 1, STEPS = 3, DRAFT = 512 };

struct fixture {
  struct compute *compute;
  struct model *model;
  struct vocab_map map;
  struct head_config config;
  struct head *head;
  float *parameters;
  char out[64];
};

static int teardown(void **state) {
  struct fixture *f = *state;
  char command[128];
  head_close(f->head);
  vocab_map_release(&f->map);
  if (f->model) model_close(f->model);
  if (f->compute) compute_close(f->compute);
  free(f->parameters);
  if (f->out[0]) {
    snprintf(command, sizeof command, "rm -r %s", f->out);
    assert_int_equal(system(command), 0);
  }
  free(f);
  return 0;
}

static void must(enum eaglet_status status, const struct eaglet_error *err) {
  if (status != EAGLET_OK) fail_msg("%s", err->message);
}

/* The target's kind of attention in place of grouped queries, in two layers, with what EAGLE-3.1 adds. */
static void make_latent(struct head_config *c) {
  c->attention = ATTENTION_MLA;
  c->q_rank = 96, c->kv_rank = 64, c->nope_dim = 32, c->rope_dim = 16, c->value_dim = 40;
  c->head_dim = c->nope_dim + c->rope_dim, c->n_kv_heads = c->n_heads;
  c->rope.dim = c->rope_dim, c->rope.style = ROPE_INTERLEAVED;
  c->n_more_layers = 1;
  c->wiring = (struct head_wiring){.fc_norms = true, .norm_output = true, .norm_before_residual = true};
}

static int setup_with(void **state, bool latent) {
  struct fixture *f = calloc(1, sizeof *f);
  struct eaglet_error err;
  const char *root = getenv("EAGLET_TEST_ROOT");
  char *path = file_join(root ? root : ".", "models/nano-kimi");
  int32_t ids[DRAFT];
  *state = f;
  must(compute_open_cpu(&f->compute, 2, EAGLET_PRECISION_EXACT, &err), &err);
  must(model_open(&f->model, &(struct model_params){.path = path, .compute = f->compute}, &err), &err);
  for (int i = 0; i < DRAFT; i++) ids[i] = 7 * i + 3;
  must(vocab_map_init(&f->map, ids, DRAFT, f->model->arch.features.n_vocab, "test", &err), &err);
  const struct eaglet_train_params params = {.rope_theta = 20000};
  must(head_config_new(&f->config, &params, f->model, DRAFT, &err), &err);
  if (latent) make_latent(&f->config);
  f->parameters = calloc((size_t)head_parameters_total(&f->config), sizeof(float));
  head_parameters_init(f->parameters, &f->config, f->model, &f->map, 5);
  struct head_parameters *list = memory_alloc(sizeof *list);
  head_parameters_list(list, &f->config);
  for (int32_t i = 0; i < list->n; i++) { /* norms that differ from one another, or a swapped pair would not show */
    const struct head_parameter *p = &list->list[i];
    for (int64_t k = 0; p->columns == 1 && k < p->rows; k++)
      f->parameters[p->offset + k] += 0.5f * (float)random_normal(3, (uint64_t)i, (uint64_t)k);
  }
  free(list);
  strcpy(f->out, "/tmp/eaglet-parity-XXXXXX");
  assert_non_null(mkdtemp(f->out));
  const struct head_export export_ = {
      .config = &f->config, .map = &f->map, .parameters = f->parameters, .dtype = DTYPE_F32, .target = f->model};
  must(head_export(f->out, &export_, &err), &err);
  must(head_open(&f->head, f->out, f->model, &err), &err);
  free(path);
  return 0;
}

static int setup(void **state) {
  return setup_with(state, false);
}
static int setup_latent(void **state) {
  return setup_with(state, true);
}

/* The chain of drafts that starts from prefix slots 0..t: z and logits of steps 0..STEPS-1. */
struct drafting {
  struct head_forward *forward;
  struct kv_cache kv;
  struct kv_sequence sequence;
  struct batch batch;
  float *z, *logits; /* [STEPS, H], [STEPS, DRAFT] */
};

static void draft_row(struct drafting *d, const int32_t *tokens, int32_t slot, bool wants_logits) {
  struct batch_row *row = batch_add(&d->batch);
  row->token = tokens[slot + 1];
  row->position = row->slot = slot;
  row->kv = &d->sequence;
  row->wants_logits = wants_logits;
}

static void draft_from(struct drafting *d, const struct fixture *f, const float *fused, const int32_t *tokens,
                       int32_t t) {
  size_t h = (size_t)f->config.hidden;
  struct eaglet_error err;
  for (int32_t k = 0; k < STEPS; k++) {
    struct head_run run = {.batch = &d->batch, .kv = &d->kv, .feature = k == 0 ? fused : d->z + (size_t)(k - 1) * h};
    batch_reset(&d->batch);
    for (int32_t slot = k == 0 ? 0 : t + k; slot <= t + k; slot++) draft_row(d, tokens, slot, slot == t + k);
    must(head_forward_run(d->forward, &run, &err), &err);
    memcpy(d->z + (size_t)k * h, run.out + (size_t)(d->batch.n - 1) * h, sizeof(float) * h);
    memcpy(d->logits + (size_t)k * DRAFT, run.logits, sizeof(float) * DRAFT);
  }
}

static void drafting_open(struct drafting *d, const struct fixture *f) {
  struct eaglet_error err;
  must(head_forward_create(&d->forward, f->head, 32, 4, &err), &err);
  must(kv_cache_init(&d->kv, f->compute, head_kv_layers(f->head), head_kv_entry_floats(f->head), 4, &err), &err);
  must(kv_sequence_init(&d->sequence, &d->kv, 64, &err), &err);
  must(kv_sequence_reserve(&d->sequence, 32, &err), &err);
  batch_init(&d->batch, 32);
  d->z = calloc(STEPS * (size_t)f->config.hidden, sizeof(float));
  d->logits = calloc(STEPS * DRAFT, sizeof(float));
}

static void drafting_close(struct drafting *d) {
  batch_release(&d->batch);
  kv_sequence_release(&d->sequence);
  kv_cache_release(&d->kv);
  head_forward_free(d->forward);
  free(d->z);
  free(d->logits);
}

struct row { /* one conversation of random tokens and features */
  int32_t tokens[TOKENS + STEPS], first[SLOTS], length[SLOTS], target_row[SLOTS];
  uint8_t mask[SLOTS];
  float *features, *embeddings, *target;
};

static void make_row(struct row *r, const struct fixture *f) {
  size_t h = (size_t)f->config.hidden, width = h * (size_t)f->config.n_states;
  r->features = malloc(sizeof(float) * SLOTS * width);
  r->embeddings = malloc(sizeof(float) * SLOTS * h);
  r->target = malloc(sizeof(float) * DRAFT);
  for (size_t i = 0; i < SLOTS * width; i++) r->features[i] = (float)random_normal(1, 1, i);
  for (int t = 0; t < TOKENS + STEPS; t++) r->tokens[t] = (int32_t)(random_u64(1, 2, (uint64_t)t) % 4000);
  for (int i = 0; i < DRAFT; i++) r->target[i] = 1.0f / DRAFT;
  f->compute->embed(f->compute, r->embeddings, &f->model->embed, r->tokens + 1, SLOTS);
  for (int t = 0; t < SLOTS; t++) r->first[t] = 0, r->length[t] = SLOTS, r->target_row[t] = 0, r->mask[t] = 1;
}

static double distance(const float *a, const float *b, size_t n) {
  double worst = 0, most = 0;
  for (size_t i = 0; i < n; i++) worst = fmax(worst, fabs((double)a[i] - b[i])), most = fmax(most, fabs((double)b[i]));
  return worst / most;
}

static void test_training_is_drafting(void **state) {
  struct fixture *f = *state;
  struct eaglet_error err;
  struct row r;
  struct drafting d = {0};
  struct head_training *training;
  struct micro_result result;
  size_t h = (size_t)f->config.hidden;
  const struct norm_params norm = {.dim = f->config.hidden, .eps = (float)f->config.norm_eps};
  float weights[STEPS] = {1, 0.8f, 0.64f}, *fused = malloc(sizeof(float) * SLOTS * h), *next = malloc(sizeof(float) * h);
  make_row(&r, f);
  drafting_open(&d, f);
  must(head_training_create(&training,
                            &(struct head_training_params){
                                .config = &f->config, .compute = f->compute, .slots_max = SLOTS, .unroll_max = STEPS},
                            &err),
       &err);
  const struct micro_batch batch = {.n_slots = SLOTS,
                                    .n_steps = STEPS,
                                    .segment_first = r.first,
                                    .segment_length = r.length,
                                    .features = r.features,
                                    .embeddings = r.embeddings,
                                    .target = r.target,
                                    .target_row = r.target_row,
                                    .loss_mask = r.mask,
                                    .loss_scale = 1,
                                    .step_weight = weights};
  head_training_forward(training, f->parameters, &batch, NULL, &result);
  head_fuse(d.forward, fused, r.features, SLOTS);
  for (int32_t t = 0; t + STEPS <= SLOTS; t++) {
    draft_from(&d, f, fused, r.tokens, t);
    for (int32_t k = 0; k < STEPS; k++) {
      const int32_t *slots;
      const float *hidden;
      int32_t n = head_training_hidden(training, k, &slots, &hidden), row = 0;
      while (row < n && slots[row] != t) row++;
      assert_true(row < n);
      memcpy(next, hidden + (size_t)row * h, sizeof(float) * h);
      if (f->config.wiring.norm_output) f->compute->rms_norm(f->compute, next, next, f->head->norm, 1, &norm);
      assert_true(distance(d.z + (size_t)k * h, next, h) < 1e-5);
    }
  }
  free(fused), free(next), free(r.features), free(r.embeddings), free(r.target);
  head_training_free(training);
  drafting_close(&d);
}

/* What was written is what is read: every parameter of an F32 export, bit for bit, and the facts that inference depends
 * on (F05). */
static void test_export_round_trip(void **state) {
  struct fixture *f = *state;
  struct eaglet_error err;
  size_t bytes = sizeof(float) * (size_t)head_parameters_total(&f->config);
  float *again = calloc(1, bytes);
  must(head_import(again, &f->config, f->head, &err), &err);
  assert_memory_equal(again, f->parameters, bytes);
  assert_true(f->head->config.rope.theta == 20000);
  assert_int_equal(f->head->config.n_states, f->config.n_states);
  for (int i = 0; i < f->config.n_states; i++) assert_int_equal(f->head->config.states[i], f->config.states[i]);
  assert_true(vocab_map_hash(&f->head->map) == vocab_map_hash(&f->map));
  assert_ptr_equal(f->head->embed.data, f->model->embed.data); /* the embedding is the target's own */
  free(again);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_training_is_drafting, setup, teardown),
                                     cmocka_unit_test_setup_teardown(test_export_round_trip, setup, teardown),
                                     cmocka_unit_test_setup_teardown(test_training_is_drafting, setup_latent, teardown),
                                     cmocka_unit_test_setup_teardown(test_export_round_trip, setup_latent, teardown)};
  return cmocka_run_group_tests_name("parity", tests, NULL, NULL);
}
