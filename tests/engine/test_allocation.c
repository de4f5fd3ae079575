/* test_allocation.c - no step allocates: every drafter, greedy and sampled, with penalties, logprobs and a watch, through prompts in
 * chunks, preemption, the prefix cache and cancelling. */
#include "allocation_count.h"
#include "traffic.h"

#define CROWD 20

static void create_all(struct engine *e, struct sequence **live) {
  struct eaglet_error err;
  for (int32_t i = 0; i < CROWD; i++) {
    static const struct eaglet_logit_bias bias[] = {{3, -2}, {26, 1}};
    struct visitor v;
    memset(&v, 0, sizeof v);
    visitor_prompt(&v, i % 3 ? 70 : 5 + i, 96, 2, (uint64_t)(i % 5)); /* some begin alike */
    v.params.output_max = 90;
    v.params.ignore_stop = true;
    v.params.temperature = i % 2 ? 0.8f : 0;
    v.params.top_p = 0.9f;
    v.params.seed = (uint64_t)i;
    v.params.repetition_penalty = i % 4 == 1 ? 1.2f : 0;
    v.params.n_logprobs = i % 4 == 2 ? 2 : 0;
    v.params.n_prompt_logprobs = i % 8 == 3 ? 1 : 0;
    v.params.bias = bias;
    v.params.n_bias = i % 5 == 4 ? 2 : 0;
    v.params.draft_len = i % 7 == 6 ? -1 : 0;
    assert_ok(sequence_create(&live[i], e, &v.params, &err), &err);
  }
}

static void check_steps(const struct pair *pair, enum eaglet_drafter drafter, int32_t width) {
  struct engine *e;
  struct eaglet_error err;
  struct sequence *live[CROWD];
  struct lodgers lodgers = {0};
  int32_t n_live = 1;
  long in_steps = 0;
  const struct eaglet_engine_params params = {
      .model = pair->target,
      .draft = drafter == EAGLET_DRAFTER_HEAD ? pair->head : drafter == EAGLET_DRAFTER_MODEL ? pair->target : NULL,
      .drafter = drafter,
      .threads = 1,
      .sequences_max = 8,
      .rows_max = 64,
      .context_max = 256,
      .draft_len_max = 5,
      .draft_width_max = width};
  assert_ok(engine_open(&e, &params, &err), &err);
  create_all(e, live);
  for (int32_t step = 0; n_live > 0; step++) {
    lodgers_spread(&lodgers, e, 11, step);
    if (step == 9) sequence_cancel(live[4]);
    long before = *n_allocations;
    enum eaglet_status status = engine_step(e, &n_live, &err);
    if (step > 0) in_steps += *n_allocations - before; /* the first step warms up what the threads of a process need */
    assert_int_equal(status, EAGLET_OK);
  }
  printf("%s, width %d: %lld steps, %lld preemptions, %ld allocations\n", e->drafter ? e->drafter->name : "plain", width,
         (long long)e->stats.steps, (long long)e->stats.preemptions, in_steps);
  assert_int_equal(in_steps, 0);
  assert_true(*n_allocations > 100 && e->stats.preemptions > 0);
  assert_true(drafter == EAGLET_DRAFTER_NONE || e->stats.accepted > 0);
  for (int32_t i = 0; i < CROWD; i++) sequence_free(live[i]);
  lodgers_move_out(&lodgers);
  engine_close(e);
}

static void test_steps(void **state) {
  (void)state;
  struct pair pair;
  pair_write(&pair, "qwen3_biased", 256, 5);
  check_steps(&pair, EAGLET_DRAFTER_NONE, 1);
  check_steps(&pair, EAGLET_DRAFTER_HEAD, 1);
  check_steps(&pair, EAGLET_DRAFTER_HEAD, 4);
  check_steps(&pair, EAGLET_DRAFTER_MODEL, 1);
  check_steps(&pair, EAGLET_DRAFTER_NGRAM, 1);
  pair_remove(&pair);
}

/* Experts, latent attention: other scratch. */
static void test_steps_of_experts(void **state) {
  (void)state;
  struct pair pair;
  pair_write(&pair, "deepseek_v3", 256, 5);
  check_steps(&pair, EAGLET_DRAFTER_HEAD, 3);
  pair_remove(&pair);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_steps_of_experts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
