/* test_law.c - speculative sampling through the whole engine against plain sampling: 64,000 tokens of a tiny model with
 * a random head (reduced vocabulary) at three temperatures; every position's law and the joint law must be the same
 * (two-sample chi-square, fixed seeds). */
#include "engine_fixture.h"
#include "law.h"

#include "base/util.h"
#include "draft/head_file.h"

#define TOGETHER 64
#define SEQUENCES 16000 /* a multiple of TOGETHER; each draws LENGTH tokens */
#define LENGTH 4
#define VOCABULARY 320
#define JOINT_BINS 211

struct sample {
  int64_t at[LENGTH][VOCABULARY], joint[JOINT_BINS];
  int64_t drafted, accepted;
};

/* A head of random weights for the tiny target; a head that knows nothing makes both branches of the acceptance
 * frequent. */
static void write_random_head(const char *directory, const struct model *target) {
  const struct head_config config = {.hidden = 64,
                                     .target_hidden = 64,
                                     .n_heads = 4,
                                     .n_kv_heads = 2,
                                     .head_dim = 16,
                                     .intermediate = 96,
                                     .n_target = VOCABULARY,
                                     .n_draft = 200,
                                     .n_states = 3,
                                     .states = {1, 2, 3},
                                     .norm_eps = 1e-6,
                                     .rope = {.style = ROPE_HALF, .dim = 16, .theta = 10000},
                                     .positions_max = 512};
  struct eaglet_error err;
  struct vocab_map map;
  int32_t ids[200];
  for (int32_t i = 0; i < 200; i++) ids[i] = i + i / 2;
  assert_ok(vocab_map_init(&map, ids, 200, VOCABULARY, "test", &err), &err);
  float *parameters = memory_alloc(sizeof(float) * (size_t)head_parameters_total(&config));
  struct head_parameters *list = memory_alloc(sizeof *list);
  head_parameters_list(list, &config);
  for (int32_t i = 0; i < list->n; i++) {
    const struct head_parameter *p = &list->list[i];
    for (int64_t j = 0; j < p->rows * p->columns; j++)
      parameters[p->offset + j] = p->columns == 1 ? 1.0f : (float)(0.1 * random_normal(9, (uint64_t)i, (uint64_t)j));
  }
  free(list);
  const struct head_export export_ = {
      .config = &config, .map = &map, .parameters = parameters, .dtype = DTYPE_BF16, .target = target};
  assert_ok(head_export(directory, &export_, &err), &err);
  free(parameters);
  vocab_map_release(&map);
}

static void draw_sample(struct engine *e, const struct eaglet_sequence_params *base, struct sample *sample) {
  struct eaglet_error err;
  memset(sample, 0, sizeof *sample);
  for (uint64_t done = 0; done < SEQUENCES; done += TOGETHER) {
    struct sequence *live[TOGETHER];
    int32_t n_live;
    for (uint64_t i = 0; i < TOGETHER; i++) {
      struct eaglet_sequence_params params = *base;
      params.seed = base->seed + done + i;
      if (sequence_create(&live[i], e, &params, &err) != EAGLET_OK) fail_msg("%s", err.message);
    }
    do {
      if (engine_step(e, &n_live, &err) != EAGLET_OK) fail_msg("%s", err.message);
    } while (n_live > 0);
    for (uint64_t i = 0; i < TOGETHER; i++) {
      const int32_t *tokens;
      uint32_t hash = 0;
      if (sequence_output(live[i], &tokens) != LENGTH) fail_msg("an output of another length");
      for (int k = 0; k < LENGTH; k++) {
        sample->at[k][tokens[k]]++;
        hash = hash * 2654435761u + (uint32_t)tokens[k] + 1;
      }
      sample->joint[hash % JOINT_BINS]++;
      sample->drafted += live[i]->stats.drafted;
      sample->accepted += live[i]->stats.accepted;
      sequence_free(live[i]);
    }
  }
}

static void test_same_law(void **state) {
  (void)state;
  char directory[64], *model = shared_path("own/arch/qwen3");
  struct eaglet_error err;
  if (!model) skip();
  struct engine *plain, *speculative;
  struct eaglet_engine_params params = {
      .model = model, .threads = 1, .sequences_max = TOGETHER, .context_max = 32, .draft_len_max = 3};
  assert_ok(engine_open(&plain, &params, &err), &err);
  temporary_directory(directory);
  write_random_head(directory, engine_model(plain));
  params.draft = directory;
  assert_ok(engine_open(&speculative, &params, &err), &err);
  static const struct eaglet_sequence_params cases[] = {
      {.temperature = 0.3f}, {.temperature = 1}, {.temperature = 1.7f, .top_k = 60, .top_p = 0.9f}};
  const int32_t prompt[] = {17, 4, 99};
  struct sample *a = memory_alloc(sizeof *a), *b = memory_alloc(sizeof *b);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct eaglet_sequence_params base = cases[c];
    base.prompt = prompt;
    base.n_prompt = 3;
    base.output_max = LENGTH;
    base.ignore_stop = true;
    base.seed = 1000000 * (2 * c + 1);
    draw_sample(speculative, &base, a);
    base.seed += 1000000;
    draw_sample(plain, &base, b);
    double joint = same_law_p(a->joint, b->joint, JOINT_BINS);
    printf("temperature %g: joint p %.3f, positions", (double)base.temperature, joint);
    for (int k = 0; k < LENGTH; k++) {
      double chance = same_law_p(a->at[k], b->at[k], VOCABULARY);
      printf(" %.3f", chance);
      assert_true(chance > 0.01);
    }
    printf("; %.2f of %.2f drafts stand\n", (double)a->accepted / SEQUENCES, (double)a->drafted / SEQUENCES);
    assert_true(joint > 0.01);
    assert_true(a->accepted > SEQUENCES / 100 && a->accepted < a->drafted * 99 / 100);
  }
  free(a);
  free(b);
  engine_close(speculative);
  engine_close(plain);
  remove_directory(directory);
  free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_law)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
