/* test_random_models.c - random models of every architecture there is a template of open and decode, differ from the
 * template and by seed, and say the same with a head as without while many of the head's drafts stand. */
#include "random_models.h"

#include "engine/engine.h"

#define OUTPUT 32
#define PROMPT 5
#define DRAFT_LEN 4

struct run {
  int32_t text[PROMPT + OUTPUT]; /* prompt and output */
  struct eaglet_sequence_stats stats;
};

static struct engine *open_engine(const char *model, const char *draft) {
  struct engine *e;
  struct eaglet_error err;
  const struct eaglet_engine_params params = {
      .model = model, .draft = draft, .threads = 1, .context_max = 40, .draft_len_max = DRAFT_LEN};
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

static void decode(struct run *run, struct engine *e, uint64_t seed) {
  struct sequence *s;
  struct eaglet_error err;
  int32_t n_live;
  const int32_t *output;
  for (uint64_t i = 0; i < PROMPT; i++)
    run->text[i] = (int32_t)(random_u64(seed, 99, i) % (uint64_t)engine_model(e)->arch.features.n_vocab);
  const struct eaglet_sequence_params params = {
      .prompt = run->text, .n_prompt = PROMPT, .output_max = OUTPUT, .ignore_stop = true};
  assert_ok(sequence_create(&s, e, &params, &err), &err);
  do assert_ok(engine_step(e, &n_live, &err), &err);
  while (n_live > 0);
  assert_int_equal(sequence_output(s, &output), OUTPUT);
  memcpy(run->text + PROMPT, output, sizeof(int32_t) * OUTPUT);
  run->stats = *sequence_stats(s);
  sequence_free(s);
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

static void check_template(const char *template, uint64_t seed, int64_t *accepted, int64_t *rounds) {
  char model[64], draft[64];
  struct run plain, paired;
  random_model_write(model, template, seed);
  struct engine *e = open_engine(model, NULL);
  decode(&plain, e, seed);
  head_for(draft, e, &plain, seed);
  engine_close(e);
  e = open_engine(model, draft);
  decode(&paired, e, seed);
  engine_close(e);
  for (int i = 0; i < PROMPT + OUTPUT; i++) {
    if (plain.text[i] != paired.text[i])
      fail_msg("%s, seed %llu: token %d is %d with the head, %d without", template, (unsigned long long)seed, i,
               paired.text[i], plain.text[i]);
  }
  printf("%s: %d of %d drafts stand\n", template, paired.stats.accepted, paired.stats.drafted);
  *accepted += paired.stats.accepted;
  *rounds += paired.stats.rounds;
  remove_directory(model);
  remove_directory(draft);
}

static void check_folder(const char *folder) {
  struct file_list list = {0};
  struct eaglet_error err;
  int64_t accepted = 0, rounds = 0;
  assert_ok(file_list_directory(&list, folder, &err), &err);
  assert_true(list.n >= 20);
  for (size_t i = 0; i < list.n; i++) {
    char *template = file_join(folder, list.names[i]);
    check_template(template, i + 1, &accepted, &rounds);
    free(template);
  }
  printf("%s: %.2f drafts accepted per round\n", folder, (double)accepted / (double)rounds);
  assert_true(2 * accepted > rounds); /* measured: 0.94 and 0.98 */
  file_list_clear(&list);
}

static void test_own_templates(void **state) {
  (void)state;
  char *folder = memory_format("%s/tests/data/arch", getenv("EAGLET_TEST_ROOT"));
  check_folder(folder);
  free(folder);
}

static void test_shared_templates(void **state) {
  (void)state;
  char *folder = shared_path("own/arch");
  if (!folder) skip();
  check_folder(folder);
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
