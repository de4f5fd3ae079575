/* test_random_models.c - random models of every architecture there is a template of open and decode, differ from the template and by
 * seed, and say the same whoever drafts: a head (chain or tree), the text itself, the model itself, another model; alone and side by side,
 * in whole prompts and in chunks. */
#include "random_models.h"

#include "engine/engine.h"

#define OUTPUT 32
#define PROMPT 5
#define DRAFT_LEN 4
#define SIDE_BY_SIDE 3

struct run {
  int32_t text[PROMPT + OUTPUT]; /* prompt and output */
  struct eaglet_sequence_stats stats;
};
/* What all runs of one kind of drafter did. */
struct tally {
  int64_t accepted, drafted, rounds;
};
enum arm { HEAD_CHAIN, HEAD_TREE, NGRAM, ITSELF, ANOTHER, ARMS };
static const char *const arm_names[ARMS] = {"head, chains", "head, trees", "n-grams", "itself", "another model"};

static struct engine *open_engine(const struct eaglet_engine_params *params) {
  struct engine *e;
  struct eaglet_error err;
  struct eaglet_engine_params own = *params;
  own.threads = 1;
  own.context_max = PROMPT + OUTPUT + 3;
  own.draft_len_max = DRAFT_LEN;
  assert_ok(engine_open(&e, &own, &err), &err);
  return e;
}

/* n sequences at once, each with a prompt of its own. */
static void decode(struct run *runs, int32_t n, struct engine *e, uint64_t seed) {
  struct sequence *live[SIDE_BY_SIDE];
  struct eaglet_error err;
  int32_t n_live;
  for (int32_t k = 0; k < n; k++) {
    struct run *run = &runs[k];
    for (uint64_t i = 0; i < PROMPT; i++)
      run->text[i] = (int32_t)(random_u64(seed, 99 + (uint64_t)k, i) % (uint64_t)engine_model(e)->arch.features.n_vocab);
    const struct eaglet_sequence_params params = {
        .prompt = run->text, .n_prompt = PROMPT, .output_max = OUTPUT, .ignore_stop = true};
    assert_ok(sequence_create(&live[k], e, &params, &err), &err);
  }
  do assert_ok(engine_step(e, &n_live, &err), &err);
  while (n_live > 0);
  for (int32_t k = 0; k < n; k++) {
    const int32_t *output;
    assert_int_equal(sequence_output(live[k], &output), OUTPUT);
    memcpy(runs[k].text + PROMPT, output, sizeof(int32_t) * OUTPUT);
    runs[k].stats = *sequence_stats(live[k]);
    sequence_free(live[k]);
  }
}

/* Ascending: an early state, a middle one, the last; fewer when the model has fewer. */
static int32_t choose_states(int32_t states[3], int32_t n_layers) {
  int32_t n = 0, wanted[] = {1, (n_layers + 1) / 2, n_layers};
  for (int i = 0; i < 3; i++) {
    if (n == 0 || wanted[i] > states[n - 1]) states[n++] = wanted[i];
  }
  return n;
}

static void head_for(char directory[64], const struct engine *e, const struct run *known, uint64_t seed) {
  int32_t states[3];
  const struct random_head head = {.target = engine_model(e),
                                   .states = states,
                                   .n_states = choose_states(states, engine_model(e)->arch.features.n_layers),
                                   .text = known->text,
                                   .n_text = PROMPT + OUTPUT,
                                   .share = 0.8f,
                                   .seed = seed};
  random_head_write(directory, &head);
}

/* The directories of one model: itself, its head, another of its kind. */
struct family {
  char model[64], head[64], other[64];
};

static struct engine *open_arm(const struct family *f, enum arm arm, uint64_t seed) {
  struct eaglet_engine_params params = {.model = f->model, .sequences_max = SIDE_BY_SIDE, .rows_max = seed / 3 % 2 ? 16 : 0};
  if (arm == HEAD_CHAIN || arm == HEAD_TREE) params.draft = f->head;
  if (arm == HEAD_TREE) params.draft_width_max = 3, params.draft_tokens_max = 10;
  if (arm == ITSELF) params.draft = f->model;
  if (arm == ANOTHER) params.draft = f->other;
  if (arm == NGRAM) params.drafter = EAGLET_DRAFTER_NGRAM;
  return open_engine(&params);
}

static void check_arm(const struct family *f, enum arm arm, const struct run *plain, uint64_t seed, struct tally *tally) {
  struct run runs[SIDE_BY_SIDE];
  struct engine *e = open_arm(f, arm, seed);
  decode(runs, SIDE_BY_SIDE, e, seed);
  engine_close(e);
  for (int32_t k = 0; k < SIDE_BY_SIDE; k++) {
    for (int i = 0; i < PROMPT + OUTPUT; i++) {
      if (plain[k].text[i] != runs[k].text[i])
        fail_msg("%s, seed %llu, %s: token %d of text %d is %d, without drafts %d", f->model, (unsigned long long)seed, arm_names[arm], i, k,
                 runs[k].text[i], plain[k].text[i]);
    }
    if (arm == ITSELF) assert_int_equal(runs[k].stats.accepted, runs[k].stats.drafted);
    tally->accepted += runs[k].stats.accepted;
    tally->drafted += runs[k].stats.drafted;
    tally->rounds += runs[k].stats.rounds;
  }
}

static void check_template(const char *template, uint64_t seed, struct tally tallies[ARMS]) {
  struct family f;
  struct run plain[SIDE_BY_SIDE];
  random_model_write(f.model, template, seed);
  random_model_write(f.other, template, seed + 5000);
  struct engine *e = open_engine(&(const struct eaglet_engine_params){.model = f.model, .sequences_max = SIDE_BY_SIDE});
  decode(plain, SIDE_BY_SIDE, e, seed);
  head_for(f.head, e, &plain[0], seed);
  engine_close(e);
  check_arm(&f, seed % 2 ? HEAD_CHAIN : HEAD_TREE, plain, seed, &tallies[seed % 2 ? HEAD_CHAIN : HEAD_TREE]);
  enum arm other = NGRAM + (enum arm)(seed / 2 % 3);
  check_arm(&f, other, plain, seed, &tallies[other]);
  remove_directory(f.model);
  remove_directory(f.other);
  remove_directory(f.head);
}

static void check_folder(const char *folder, uint64_t n_seeds) {
  struct file_list list = {0};
  struct eaglet_error err;
  struct tally tallies[ARMS] = {{0, 0, 0}};
  assert_ok(file_list_directory(&list, folder, &err), &err);
  assert_true(list.n >= 20);
  for (size_t i = 0; i < list.n * n_seeds; i += TEST_STRIDE) {
    char *template = file_join(folder, list.names[i % list.n]);
    check_template(template, i + 1, tallies);
    free(template);
  }
  for (int arm = 0; arm < ARMS; arm++) {
    const struct tally *t = &tallies[arm];
    printf("%s, %zu models, %s: %.2f drafts accepted per round\n", folder, list.n * n_seeds / TEST_STRIDE, arm_names[arm],
           (double)t->accepted / (double)t->rounds);
    assert_true(arm == ANOTHER || 10 * t->accepted > t->rounds || TEST_STRIDE > 1);
    assert_true(arm == ITSELF || t->accepted < t->drafted || t->drafted == 0);
  }
  file_list_clear(&list);
}

static void test_own_templates(void **state) {
  (void)state;
  char *folder = memory_format("%s/tests/data/arch", getenv("EAGLET_TEST_ROOT"));
  check_folder(folder, 2);
  free(folder);
}

static void test_shared_templates(void **state) {
  (void)state;
  char *folder = shared_path("own/arch");
  if (!folder) skip();
  check_folder(folder, 2);
  free(folder);
}

/* The same seed gives the same bytes, another seed others; what is quantised stays, what is not changes. */
static void test_weights(void **state) {
  (void)state;
  char *template = shared_path("own/nano-kimi"), directories[3][64];
  static const uint64_t seeds[] = {1, 1, 2};
  struct checkpoint source, made[3];
  struct eaglet_error err;
  size_t n_kept = 0;
  if (!template) skip();
  assert_ok(checkpoint_open(&source, template, &err), &err);
  for (int i = 0; i < 3; i++) {
    random_model_write(directories[i], template, seeds[i]);
    assert_ok(checkpoint_open(&made[i], directories[i], &err), &err);
    assert_int_equal(made[i].n_tensors, source.n_tensors);
  }
  for (size_t t = 0; t < source.n_tensors; t++) {
    const struct tensor_entry *from = source.tensors[t], *a = made[0].tensors[t], *b = made[1].tensors[t],
                              *c = made[2].tensors[t];
    assert_string_equal(from->name, a->name);
    assert_true(from->dtype == a->dtype && from->n_bytes == a->n_bytes);
    assert_memory_equal(a->data, b->data, a->n_bytes);
    bool kept = memcmp(a->data, from->data, a->n_bytes) == 0;
    assert_int_equal(kept, memcmp(a->data, c->data, a->n_bytes) == 0);
    assert_int_equal(kept, strstr(a->name, "weight_packed") || strstr(a->name, "weight_scale") ||
                               strstr(a->name, "weight_shape"));
    n_kept += kept;
  }
  assert_true(n_kept > 0 && n_kept < source.n_tensors);
  for (int i = 0; i < 3; i++) {
    checkpoint_close(&made[i]);
    remove_directory(directories[i]);
  }
  checkpoint_close(&source);
  free(template);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights), cmocka_unit_test(test_own_templates),
                                     cmocka_unit_test(test_shared_templates)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
