/* test_head_training.c - the unrolled training step against the EAGLE authors' own module and TorchSpec's latent one (hidden, logits
 * through the losses, every gradient), finite differences of single parameters, and the active-row shortcut against computing
 * every row. */
#include "draft/head_internal.h"
#include "draft/head_training.h"

#include "base/memory.h"
#include "base/util.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STEPS 7 /* at most */

struct problem {
  struct safetensors file;
  struct compute *compute;
  struct head_config config;
  struct head_parameters places;
  int32_t n_batch, n_time, n_slots, n_steps;
  float *parameters, *gradients, *features, *embeddings, *pad, *target;
  int32_t *segment_first, *segment_length, *target_row;
  uint8_t *mask;
  float step_weight[STEPS];
  struct micro_batch batch;
  struct head_training *training;
};

static const float *floats(const struct problem *p, const char *name) {
  const struct tensor_entry *tensor = safetensors_find(&p->file, name);
  assert_non_null(tensor);
  assert_int_equal(tensor->dtype, DTYPE_F32);
  float *copy = malloc(tensor->n_bytes + 4);
  memcpy(copy, tensor->data, tensor->n_bytes);
  return copy;
}

/* "w.midlayer.self_attn.q_proj.weight" */
static const float *named(const struct problem *p, const char *kind, const struct head_parameter *parameter) {
  char spelled[256], name[300];
  head_name_spell(spelled, parameter->name, HEAD_DIALECT_SGLANG);
  snprintf(name, sizeof name, "%s.%s", kind, spelled);
  return floats(p, name);
}

static size_t length(const struct head_parameter *parameter) {
  return (size_t)(parameter->rows * parameter->columns);
}

static void load_parameters(struct problem *p) {
  head_parameters_list(&p->places, &p->config);
  p->parameters = calloc((size_t)p->places.total, sizeof(float));
  p->gradients = calloc((size_t)p->places.total, sizeof(float));
  for (int32_t i = 0; i < p->places.n; i++) {
    const struct head_parameter *place = &p->places.list[i];
    const float *values = named(p, "w", place);
    memcpy(p->parameters + place->offset, values, sizeof(float) * length(place));
    free((void *)values);
  }
}

/* Probabilities on the draft vocabulary of every time step and one row more: uniform, what the reference's zero padding
 * means. */
static void load_targets(struct problem *p) {
  const float *logits = floats(p, "in.target_logits"), *mask = floats(p, "in.loss_mask");
  const struct tensor_entry *t2d = safetensors_find(&p->file, "t2d");
  int32_t n_vocab = p->config.n_target, n_draft = p->config.n_draft;
  p->target = calloc((size_t)(p->n_slots + 1) * (size_t)n_draft, sizeof(float));
  for (int32_t s = 0; s < p->n_slots; s++) {
    int32_t source = s % p->n_time + 1 < p->n_time ? s + 1 : -1, best = 0;
    float *row = p->target + (size_t)s * (size_t)n_draft;
    for (int32_t v = 0, d = 0; v < n_vocab; v++) {
      float value = source >= 0 ? logits[(size_t)source * (size_t)n_vocab + (size_t)v] : 0.0f;
      if (source >= 0 && value > logits[(size_t)source * (size_t)n_vocab + (size_t)best]) best = v;
      if (t2d->data[v]) row[d++] = value;
    }
    p->mask[s] = mask[s] != 0;
    p->target_row[s] = t2d->data[best] ? s : -1;
  }
  p->compute->training->softmax(p->compute, p->target, p->n_slots, n_draft);
  free((void *)logits);
  free((void *)mask);
}

static void load_inputs(struct problem *p) {
  const float *table = floats(p, "w.embed_tokens.weight");
  const struct tensor_entry *ids = safetensors_find(&p->file, "in.input_ids");
  size_t h = (size_t)p->config.hidden;
  for (int32_t s = 0; s < p->n_slots; s++) {
    int64_t id = 0;
    if (s % p->n_time + 1 < p->n_time) memcpy(&id, ids->data + 8 * (size_t)(s + 1), 8);
    memcpy(p->embeddings + (size_t)s * h, table + (size_t)id * h, sizeof(float) * h);
    p->segment_first[s] = s / p->n_time * p->n_time;
    p->segment_length[s] = p->n_time;
  }
  memcpy(p->pad, table, sizeof(float) * h);
  free((void *)table);
}

static int32_t fact(const struct problem *p, const char *key) {
  return (int32_t)strtol(safetensors_metadata(&p->file, key), NULL, 10);
}

/* TorchSpec's layer: what the file's metadata says of it, read as a head's config is. */
static void read_latent(struct head_config *c, const struct problem *p) {
  const struct features target = {.hidden = c->hidden, .n_vocab = c->n_target, .n_layers = 8, .positions_max = 256};
  struct eaglet_error err;
  char *text = memory_format(
      "{\"hidden_size\": %d, \"vocab_size\": %d, \"draft_vocab_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d, "
      "\"q_lora_rank\": %d, \"kv_lora_rank\": %d, \"qk_nope_head_dim\": %d, \"qk_rope_head_dim\": %d, \"v_head_dim\": %d, "
      "\"rms_norm_eps\": %s, \"rope_theta\": %s, \"rope_scaling\": %s, \"max_position_embeddings\": 256}",
      c->hidden, c->n_target, c->n_draft, c->intermediate, fact(p, "heads"), fact(p, "q_lora_rank"), fact(p, "kv_lora_rank"),
      fact(p, "qk_nope_head_dim"), fact(p, "qk_rope_head_dim"), fact(p, "v_head_dim"), safetensors_metadata(&p->file, "rms_norm_eps"),
      safetensors_metadata(&p->file, "rope_theta"), safetensors_metadata(&p->file, "rope_scaling"));
  json_t *json = json_loads(text, 0, NULL);
  assert_non_null(json);
  if (head_config_read(c, json, &target, "reference", &err) != EAGLET_OK) fail_msg("%s", err.message);
  assert_int_equal(c->attention, ATTENTION_MLA);
  json_decref(json);
  free(text);
}

static void load_config(struct problem *p) {
  const struct tensor_entry *features = safetensors_find(&p->file, "in.features"),
                            *logits = safetensors_find(&p->file, "in.target_logits"),
                            *losses = safetensors_find(&p->file, "out.step_loss"),
                            *gate = safetensors_find(&p->file, "w.midlayer.mlp.gate_proj.weight"),
                            *head = safetensors_find(&p->file, "w.lm_head.weight");
  p->n_batch = (int32_t)features->shape[0];
  p->n_time = (int32_t)features->shape[1];
  p->n_slots = p->n_batch * p->n_time;
  p->n_steps = (int32_t)losses->shape[0];
  int32_t hidden = (int32_t)head->shape[1];
  p->config = (struct head_config){.hidden = hidden,
                                   .target_hidden = hidden,
                                   .n_heads = 4,
                                   .n_kv_heads = 2,
                                   .head_dim = hidden / 4,
                                   .intermediate = (int32_t)gate->shape[0],
                                   .n_target = (int32_t)logits->shape[2],
                                   .n_draft = (int32_t)head->shape[0],
                                   .n_states = 3,
                                   .norm_eps = 1e-5,
                                   .positions_max = 2048,
                                   .rope = {.style = ROPE_HALF, .dim = hidden / 4, .theta = 10000}};
  if (safetensors_metadata(&p->file, "kv_lora_rank")) read_latent(&p->config, p);
}

static int setup(void **state, const char *oracle) {
  const char *shared = getenv("EAGLET_TEST_SHARED");
  char path[1024];
  snprintf(path, sizeof path, "%s/own/oracle/%s.safetensors", shared ? shared : "", oracle);
  struct problem *p = calloc(1, sizeof *p);
  *state = p;
  if (!shared || !file_exists(path)) return 0;
  assert_int_equal(safetensors_open(&p->file, path, NULL), EAGLET_OK);
  assert_int_equal(compute_open_cpu(&p->compute, 2, EAGLET_PRECISION_EXACT, NULL), EAGLET_OK);
  load_config(p);
  size_t slots = (size_t)p->n_slots, hidden = (size_t)p->config.hidden;
  p->embeddings = calloc(slots * hidden, sizeof(float));
  p->pad = calloc(hidden, sizeof(float));
  p->segment_first = calloc(slots, sizeof(int32_t));
  p->segment_length = calloc(slots, sizeof(int32_t));
  p->target_row = calloc(slots, sizeof(int32_t));
  p->mask = calloc(slots, 1);
  p->features = (float *)floats(p, "in.features");
  load_parameters(p);
  load_targets(p);
  load_inputs(p);
  for (int k = 0; k < STEPS; k++) p->step_weight[k] = powf(0.8f, (float)k);
  p->batch = (struct micro_batch){.n_slots = p->n_slots,
                                  .n_steps = p->n_steps,
                                  .segment_first = p->segment_first,
                                  .segment_length = p->segment_length,
                                  .features = p->features,
                                  .embeddings = p->embeddings,
                                  .pad_embedding = p->pad,
                                  .target = p->target,
                                  .target_row = p->target_row,
                                  .loss_mask = p->mask,
                                  .loss_scale = 1.0f / (float)p->n_slots,
                                  .step_weight = p->step_weight};
  const struct head_training_params params = {
      .config = &p->config, .compute = p->compute, .slots_max = p->n_slots, .unroll_max = p->n_steps};
  assert_int_equal(head_training_create(&p->training, &params, NULL), EAGLET_OK);
  return 0;
}

static int setup_plain(void **state) {
  return setup(state, "eagle3_training_reference");
}
static int setup_latent(void **state) {
  return setup(state, "eagle3_mla_reference_plain");
}
static int setup_latent_yarn(void **state) {
  return setup(state, "eagle3_mla_reference_yarn");
}

static int teardown(void **state) {
  struct problem *p = *state;
  head_training_free(p->training);
  if (p->compute) safetensors_close(&p->file);
  compute_close(p->compute);
  void *blocks[] = {p->parameters,    p->gradients,      p->features,   p->embeddings, p->pad, p->target,
                    p->segment_first, p->segment_length, p->target_row, p->mask,       p};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
  return 0;
}

static double max_rel(const float *a, const float *b, size_t n) {
  double worst = 0, most = 0;
  for (size_t i = 0; i < n; i++) {
    worst = fmax(worst, fabs((double)a[i] - b[i]));
    most = fmax(most, fabs(b[i]));
  }
  return worst / fmax(most, 1e-30);
}

static void need_oracle(const struct problem *p) {
  if (p->compute) return;
  printf("skip: the training oracle is not here\n");
  skip();
}

static struct micro_result run(struct problem *p, bool all) {
  struct micro_result result;
  memset(p->gradients, 0, sizeof(float) * (size_t)p->places.total);
  p->batch.compute_all = all;
  head_training_forward(p->training, p->parameters, &p->batch, p->gradients, &result);
  return result;
}

static void test_forward_matches_authors(void **state) {
  struct problem *p = *state;
  need_oracle(p);
  struct micro_result result = run(p, true);
  bool judged = safetensors_find(&p->file, "out.step_accuracy") != NULL;
  const float *losses = floats(p, "out.step_loss"), *accuracy = judged ? floats(p, "out.step_accuracy") : NULL;
  for (int k = 0; k < p->n_steps; k++) {
    char name[64];
    const int32_t *slots;
    const float *hidden;
    snprintf(name, sizeof name, "out.hidden.%d", k);
    const float *expected = floats(p, name);
    assert_int_equal(head_training_hidden(p->training, k, &slots, &hidden), p->n_slots);
    double error = max_rel(hidden, expected, (size_t)p->n_slots * (size_t)p->config.hidden);
    double loss_error = fabs(result.step_loss[k] - losses[k]) / losses[k];
    double found = (double)result.step_hits[k] / (double)result.step_masked[k];
    printf("step %d: hidden %.2e loss %.2e accuracy %.4f\n", k, error, loss_error, found);
    assert_true(error < 1e-4);
    assert_true(loss_error < 1e-4);
    if (accuracy) assert_true(fabs(found - accuracy[k]) < 1e-4);
    free((void *)expected);
  }
  free((void *)losses);
  free((void *)accuracy);
}

static void test_logits_match_authors(void **state) {
  struct problem *p = *state;
  need_oracle(p);
  run(p, true);
  size_t vocab = (size_t)p->config.n_draft, h = (size_t)p->config.hidden;
  float *logits = malloc(sizeof(float) * vocab * (size_t)p->n_slots),
        *normed = malloc(sizeof(float) * h * (size_t)p->n_slots);
  const struct norm_params norm = {.dim = p->config.hidden, .eps = (float)p->config.norm_eps};
  const float *norm_weight = p->parameters + head_parameter_find(&p->places, HEAD_NORM, 0)->offset;
  const struct weight head = {.format = WEIGHT_F32,
                              .n_out = p->config.n_draft,
                              .n_in = p->config.hidden,
                              .data = p->parameters + head_parameter_find(&p->places, HEAD_LM_HEAD, 0)->offset};
  for (int k = 0; k < p->n_steps; k++) {
    char name[64];
    const int32_t *slots;
    const float *hidden;
    snprintf(name, sizeof name, "out.logits.%d", k);
    const float *expected = floats(p, name);
    int32_t n = head_training_hidden(p->training, k, &slots, &hidden);
    p->compute->rms_norm(p->compute, normed, hidden, norm_weight, n, &norm);
    p->compute->matmul(p->compute, logits, normed, &head, n, 0, 0);
    assert_true(max_rel(logits, expected, (size_t)n * vocab) < 1e-4);
    free((void *)expected);
  }
  free(logits);
  free(normed);
}

static void test_gradients_match_authors(void **state) {
  struct problem *p = *state;
  need_oracle(p);
  run(p, false);
  head_training_backward(p->training, p->parameters, &p->batch, p->gradients);
  for (int32_t i = 0; i < p->places.n; i++) {
    const struct head_parameter *place = &p->places.list[i];
    const float *expected = named(p, "grad", place);
    double error = max_rel(p->gradients + place->offset, expected, length(place));
    printf("%-45s %.2e\n", place->name, error);
    assert_true(error < 1e-4);
    free((void *)expected);
  }
}

static double total_loss(struct problem *p, const struct micro_result *result) {
  double total = 0;
  for (int k = 0; k < p->n_steps; k++) total += p->step_weight[k] * result->step_loss[k];
  return total;
}

static void test_finite_differences(void **state) {
  struct problem *p = *state;
  need_oracle(p);
  run(p, false);
  head_training_backward(p->training, p->parameters, &p->batch, p->gradients);
  float *gradients = malloc(sizeof(float) * (size_t)p->places.total);
  memcpy(gradients, p->gradients, sizeof(float) * (size_t)p->places.total);
  for (int32_t i = 0; i < p->places.n; i++) {
    int64_t offset = p->places.list[i].offset, best = 0;
    for (size_t j = 0; j < length(&p->places.list[i]); j++)
      best = fabsf(gradients[offset + (int64_t)j]) > fabsf(gradients[offset + best]) ? (int64_t)j : best;
    float keep = p->parameters[offset + best], step = 2e-3f;
    double side[2];
    for (int d = 0; d < 2; d++) {
      p->parameters[offset + best] = keep + (d ? step : -step);
      struct micro_result result = run(p, false);
      side[d] = total_loss(p, &result);
    }
    p->parameters[offset + best] = keep;
    double numeric = (side[1] - side[0]) / (2 * (double)step), ours = gradients[offset + best];
    assert_true(fabs(numeric - ours) < 0.02 * fabs(ours) + 1e-5);
  }
  free(gradients);
}

/* Through the whole unrolled net: the gradient of every objective against differences of its own loss. Some targets get a mass below one and a
 * choice outside; lambda's weight is constant (its decay is 0), since a difference of the loss would move it. */
static void check_objective(struct problem *p, const struct objective *objective, double *found, double *numeric) {
  const enum head_part which[] = {HEAD_LM_HEAD, HEAD_DOWN, HEAD_K, HEAD_FC};
  p->batch.objective = *objective;
  run(p, false);
  head_training_backward(p->training, p->parameters, &p->batch, p->gradients);
  float *gradients = malloc(sizeof(float) * (size_t)head_parameters_total(&p->config));
  memcpy(gradients, p->gradients, sizeof(float) * (size_t)head_parameters_total(&p->config));
  for (int i = 0; i < 4; i++) {
    const struct head_parameter *place = head_parameter_find(&p->places, which[i], 0);
    int64_t offset = place->offset, best = 0;
    for (int64_t j = 0; j < place->rows * place->columns; j++) best = fabsf(gradients[offset + j]) > fabsf(gradients[offset + best]) ? j : best;
    float keep = p->parameters[offset + best], step = 2e-3f;
    double side[2];
    for (int d = 0; d < 2; d++) {
      p->parameters[offset + best] = keep + (d ? step : -step);
      struct micro_result result = run(p, false);
      side[d] = total_loss(p, &result);
    }
    p->parameters[offset + best] = keep;
    numeric[i] = (side[1] - side[0]) / (2 * (double)step);
    found[i] = gradients[offset + best];
  }
  free(gradients);
}

static void test_objectives(void **state) {
  struct problem *p = *state;
  need_oracle(p);
  float *mass = malloc(sizeof(float) * (size_t)p->n_slots);
  int32_t *choice = malloc(sizeof(int32_t) * (size_t)p->n_slots);
  for (int32_t s = 0; s < p->n_slots; s++) {
    mass[s] = s % 3 ? 0.5f + 0.5f * (float)random_uniform(1, 2, (uint64_t)s) : 1.0f;
    choice[s] = s % 7 ? s % p->config.n_draft : -1;
  }
  p->batch.target_mass = mass;
  p->batch.target_choice = choice;
  for (int loss = EAGLET_LOSS_KL; loss <= EAGLET_LOSS_LK_LAMBDA; loss++) {
    for (int outside = EAGLET_OUTSIDE_DROP; outside <= EAGLET_OUTSIDE_RENORMALISE; outside++) {
      const struct objective o = {.loss = (enum eaglet_loss)loss, .outside = (enum eaglet_outside)outside, .kl_scale = 0.4f};
      double found[4], numeric[4];
      check_objective(p, &o, found, numeric);
      for (int i = 0; i < 4; i++) assert_true(fabs(numeric[i] - found[i]) < 0.03 * fabs(found[i]) + 2e-5);
    }
  }
  p->batch.target_mass = NULL;
  p->batch.target_choice = NULL;
  p->batch.objective = (struct objective){0};
  free(mass), free(choice);
}

/* A frozen lm_head has no gradient; everybody else's is as before. What is counted as accepted lies between 0 and the slots. */
static void test_frozen_lm_head(void **state) {
  struct problem *p = *state;
  need_oracle(p);
  size_t total = (size_t)head_parameters_total(&p->config), head = (size_t)head_parameter_find(&p->places, HEAD_LM_HEAD, 0)->offset;
  run(p, false);
  head_training_backward(p->training, p->parameters, &p->batch, p->gradients);
  float *expected = malloc(total * sizeof(float));
  memcpy(expected, p->gradients, total * sizeof(float));
  p->batch.lm_head_frozen = true;
  struct micro_result result = run(p, false);
  head_training_backward(p->training, p->parameters, &p->batch, p->gradients);
  p->batch.lm_head_frozen = false;
  assert_memory_equal(p->gradients, expected, head * sizeof(float));
  for (size_t i = head; i < total; i++) assert_true(p->gradients[i] == 0);
  for (int k = 0; k < STEPS; k++) assert_true(result.step_acceptance[k] > 0 && result.step_acceptance[k] < (double)result.step_slots[k]);
  free(expected);
}

static void test_active_rows_change_nothing(void **state) {
  struct problem *p = *state;
  need_oracle(p);
  size_t total = (size_t)p->places.total;
  uint8_t *mask = p->mask;
  uint8_t *few = calloc((size_t)p->n_slots, 1);
  for (int32_t s = 0; s < p->n_slots; s++) few[s] = s % p->n_time >= 20 && s % p->n_time < 31;
  p->batch.loss_mask = few;
  struct micro_result all = run(p, true);
  head_training_backward(p->training, p->parameters, &p->batch, p->gradients);
  double flops_all = head_training_flops(p->training);
  float *expected = malloc(total * sizeof(float));
  memcpy(expected, p->gradients, total * sizeof(float));
  struct micro_result active = run(p, false);
  head_training_backward(p->training, p->parameters, &p->batch, p->gradients);
  assert_true(head_training_flops(p->training) < 0.5 * flops_all);
  for (int k = 0; k < p->n_steps; k++) {
    assert_true(fabs(all.step_loss[k] - active.step_loss[k]) < 1e-6 * all.step_loss[k]);
    assert_int_equal(all.step_hits[k], active.step_hits[k]);
  }
  assert_true(max_rel(p->gradients, expected, total) < 2e-6);
  p->batch.loss_mask = mask;
  free(few);
  free(expected);
}

#define WITH(setup, test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH(setup_plain, test_forward_matches_authors),
      WITH(setup_plain, test_logits_match_authors),
      WITH(setup_plain, test_gradients_match_authors),
      WITH(setup_plain, test_finite_differences),
      WITH(setup_plain, test_objectives),
      WITH(setup_plain, test_frozen_lm_head),
      WITH(setup_plain, test_active_rows_change_nothing),
      WITH(setup_latent, test_forward_matches_authors),
      WITH(setup_latent, test_logits_match_authors),
      WITH(setup_latent, test_gradients_match_authors),
      WITH(setup_latent, test_active_rows_change_nothing),
      WITH(setup_latent_yarn, test_forward_matches_authors),
      WITH(setup_latent_yarn, test_logits_match_authors),
      WITH(setup_latent_yarn, test_gradients_match_authors),
  };
  return cmocka_run_group_tests_name("head_training", tests, NULL, NULL);
}
