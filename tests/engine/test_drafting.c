/* test_drafting.c - features by capture, drafts by the head, apart from the engine: over the oracle's text every round
 * must accept what the reference loop accepted, and the first chain, fed with the text, must draft what it drafted.
 * Also: capture against the reference states, and its packing. */
#include "engine_fixture.h"

#include "engine/capture.h"

#include <math.h>

#define DRAFTS 7
#define TOKENS_MAX 256

struct bench {
  struct compute *compute;
  struct model *model;
  struct head *head;
  struct capture *capture;
  struct head_forward *forward;
  struct kv_cache kv;
  struct kv_sequence sequence;
  struct batch batch;
  struct prompt prompts[PROMPTS];
  json_t *drafting;
};

static int setup(void **state) {
  struct bench *b = memory_alloc(sizeof *b);
  struct eaglet_error err;
  char draft[64], *model = shared_path("own/nano-kimi"), *drafting = shared_path("own/oracle/nano_kimi_drafting.json");
  *state = NULL;
  if (!model || !drafting || !prompts_load(b->prompts) || !baseline_directory(draft, NULL)) return 0;
  assert_ok(compute_open_cpu(&b->compute, 1, EAGLET_PRECISION_EXACT, &err), &err);
  const struct model_params params = {.path = model, .compute = b->compute};
  assert_ok(model_open(&b->model, &params, &err), &err);
  assert_ok(head_open(&b->head, draft, b->model, &err), &err);
  struct capture_params capture = {.model = b->model, .taps.n = 3, .tokens_max = TOKENS_MAX};
  memcpy(capture.taps.states, b->head->config.states, sizeof capture.taps.states);
  assert_ok(capture_create(&b->capture, &capture, &err), &err);
  assert_ok(head_forward_create(&b->forward, b->head, TOKENS_MAX, 64, &err), &err);
  assert_ok(kv_cache_init(&b->kv, b->compute, 1, head_kv_entry_floats(b->head), 64, &err), &err);
  assert_ok(kv_sequence_init(&b->sequence, &b->kv, TOKENS_MAX + 16, &err), &err);
  assert_ok(kv_sequence_reserve(&b->sequence, TOKENS_MAX + 16, &err), &err);
  assert_ok(json_parse_file(&b->drafting, drafting, &err), &err);
  batch_init(&b->batch, TOKENS_MAX);
  remove_directory(draft);
  free(model);
  free(drafting);
  *state = b;
  return 0;
}

static int teardown(void **state) {
  struct bench *b = *state;
  if (!b) return 0;
  json_decref(b->drafting);
  batch_release(&b->batch);
  kv_sequence_release(&b->sequence);
  kv_cache_release(&b->kv);
  head_forward_free(b->forward);
  capture_free(b->capture);
  head_close(b->head);
  model_close(b->model);
  compute_close(b->compute);
  prompts_free(b->prompts);
  free(b);
  return 0;
}

/* The text of a prompt and its greedy output. */
static int32_t whole_text(int32_t tokens[TOKENS_MAX], const struct prompt *p) {
  assert_true(p->n + p->n_expected <= TOKENS_MAX);
  memcpy(tokens, p->ids, sizeof(int32_t) * (size_t)p->n);
  memcpy(tokens + p->n, p->expected, sizeof(int32_t) * (size_t)p->n_expected);
  return p->n + p->n_expected;
}

static void add_row(struct bench *b, int32_t token, int32_t position, bool wants_logits) {
  struct batch_row *row = batch_add(&b->batch);
  *row = (struct batch_row){.token = token,
                            .position = position,
                            .slot = position,
                            .kv = &b->sequence,
                            .wants_logits = wants_logits};
}

/* Drafts after token last + 1, whose pair stands in slot `last`. With text: the chain is fed with it, wrong drafts or
 * not. */
static void chain(struct bench *b, const float *features, const int32_t *tokens, int32_t last, const int32_t *text,
                  int32_t drafts[DRAFTS]) {
  struct eaglet_error err;
  size_t h = (size_t)b->head->config.hidden;
  float *feature = memory_alloc(h * sizeof *feature);
  batch_reset(&b->batch);
  for (int32_t t = 0; t <= last; t++) add_row(b, tokens[t + 1], t, t == last);
  struct head_run run = {.batch = &b->batch, .kv = &b->kv, .feature = features};
  for (int32_t k = 0; k < DRAFTS; k++) {
    int32_t best;
    assert_ok(head_forward_run(b->forward, &run, &err), &err);
    assert_int_equal(run.n_logits, 1);
    b->compute->argmax(b->compute, &best, run.logits, 1, b->head->config.n_draft);
    drafts[k] = b->head->map.target[best];
    memcpy(feature, run.out + h * (size_t)(b->batch.n - 1), h * sizeof *feature);
    batch_reset(&b->batch);
    add_row(b, text ? text[k] : drafts[k], last + 1 + k, true);
    run = (struct head_run){.batch = &b->batch, .kv = &b->kv, .feature = feature};
  }
  free(feature);
}

static void check_prompt(struct bench *b, int32_t number) {
  const json_t *row = json_array_get(json_object_get(b->drafting, "rows"), (size_t)number);
  struct eaglet_error err;
  int32_t n_accepted, n_first, tokens[TOKENS_MAX + DRAFTS] = {0}, n = whole_text(tokens, &b->prompts[number]),
                                                   drafts[DRAFTS], rounds = 0;
  int32_t *accepted = json_ids(json_object_get(row, "accepted"), &n_accepted),
          *first = json_ids(json_object_get(row, "first_drafts"), &n_first);
  size_t h = (size_t)b->head->config.hidden;
  float *states = memory_alloc((size_t)n * 3 * h * sizeof(float)),
        *features = memory_alloc((size_t)n * h * sizeof(float));
  assert_ok(capture_run(b->capture, (const int32_t *const[]){tokens}, &n, 1, &states, &err), &err);
  head_fuse(b->forward, features, states, n);
  int32_t last = b->prompts[number].n - 1;
  chain(b, features, tokens, last, tokens + last + 2, drafts);
  assert_same_tokens(drafts, DRAFTS, first, n_first, "first drafts over the text", number);
  while (last + 2 < n) {
    int32_t right = 0;
    chain(b, features, tokens, last, NULL, drafts);
    while (right < DRAFTS && last + 2 + right < n && drafts[right] == tokens[last + 2 + right]) right++;
    assert_in_range(rounds, 0, n_accepted - 1);
    if (accepted[rounds] != right)
      fail_msg("prompt %d, round %d: %d drafts stand, expected %d", number, rounds, right, accepted[rounds]);
    last += right + 1;
    rounds++;
  }
  assert_int_equal(rounds, n_accepted);
  free(accepted);
  free(first);
  free(states);
  free(features);
}

static void test_reference_loop(void **state) {
  if (!*state) skip();
  for (int32_t i = 0; i < PROMPTS; i++) check_prompt(*state, i);
}

/* However rows are packed and cut, the states are the same bits, and they are the reference's. */
static void test_packing(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  enum { N = 9 };
  static const int32_t rows_max[] = {512, 64, 16, 7};
  if (!b) skip();
  const int32_t *tokens[N];
  int32_t lengths[N], text[N][TOKENS_MAX] = {{0}};
  float *states[N], *first[N];
  size_t width = 3 * (size_t)b->head->config.hidden;
  for (int i = 0; i < N; i++) {
    lengths[i] = i == 4 ? 1 : whole_text(text[i], &b->prompts[i]);
    tokens[i] = text[i];
    first[i] = memory_alloc((size_t)lengths[i] * width * sizeof(float));
    states[i] = memory_alloc((size_t)lengths[i] * width * sizeof(float));
    assert_ok(capture_run(b->capture, &tokens[i], &lengths[i], 1, &first[i], &err), &err);
  }
  for (size_t k = 0; k < sizeof rows_max / sizeof *rows_max; k++) {
    struct capture *capture;
    struct capture_params params = {.model = b->model, .taps.n = 3, .tokens_max = TOKENS_MAX, .rows_max = rows_max[k]};
    memcpy(params.taps.states, b->head->config.states, sizeof params.taps.states);
    assert_ok(capture_create(&capture, &params, &err), &err);
    for (int i = 0; i < N; i++) memset(states[i], 0xff, (size_t)lengths[i] * width * sizeof(float));
    assert_ok(capture_run(capture, tokens, lengths, N, states, &err), &err);
    for (int i = 0; i < N; i++) assert_memory_equal(states[i], first[i], (size_t)lengths[i] * width * sizeof(float));
    capture_free(capture);
  }
  for (int i = 0; i < N; i++) {
    free(states[i]);
    free(first[i]);
  }
}

static void test_reference_states(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  struct safetensors reference;
  char *path = shared_path("own/oracle/nano_kimi_reference.safetensors");
  if (!b || !path) skip();
  assert_ok(safetensors_open(&reference, path, &err), &err);
  size_t h = (size_t)b->head->config.hidden;
  for (int i = 0; i < 3; i++) {
    char name[32];
    snprintf(name, sizeof name, "p%d.input_ids", i);
    const struct tensor_entry *ids = safetensors_find(&reference, name);
    int32_t n = (int32_t)ids->shape[0], tokens[TOKENS_MAX];
    for (int32_t t = 0; t < n; t++) {
      int64_t id;
      memcpy(&id, ids->data + 8 * (size_t)t, sizeof id);
      tokens[t] = (int32_t)id;
    }
    float *states = memory_alloc((size_t)n * 3 * h * sizeof(float));
    assert_ok(capture_run(b->capture, (const int32_t *const[]){tokens}, &n, 1, &states, &err), &err);
    for (int k = 0; k < 3; k++) {
      snprintf(name, sizeof name, "p%d.layer.%d", i, b->head->config.states[k] - 1);
      const float *expected = (const float *)(const void *)safetensors_find(&reference, name)->data;
      double difference = 0, largest = 0;
      for (size_t t = 0; t < (size_t)n; t++) {
        for (size_t j = 0; j < h; j++) {
          difference = fmax(difference, fabs((double)states[(t * 3 + (size_t)k) * h + j] - expected[t * h + j]));
          largest = fmax(largest, fabs((double)expected[t * h + j]));
        }
      }
      assert_true(difference < 1e-4 * largest);
    }
    free(states);
  }
  safetensors_close(&reference);
  free(path);
}

static void test_capture_refusals(void **state) {
  struct bench *b = *state;
  struct eaglet_error err;
  if (!b) skip();
  const int32_t text[TOKENS_MAX + 1] = {0}, *tokens[1] = {text};
  float *states[1] = {NULL};
  assert_int_not_equal(capture_run(b->capture, tokens, (const int32_t[]){TOKENS_MAX + 1}, 1, states, &err), EAGLET_OK);
  assert_int_not_equal(capture_run(b->capture, tokens, (const int32_t[]){0}, 1, states, &err), EAGLET_OK);
  assert_int_equal(capture_run(b->capture, tokens, NULL, 0, states, &err), EAGLET_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference_loop), cmocka_unit_test(test_packing),
                                     cmocka_unit_test(test_reference_states), cmocka_unit_test(test_capture_refusals)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
