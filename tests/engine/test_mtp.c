/* test_mtp.c - decoding with the target's own prediction layer: random models of the families that carry one get a layer whose
 * weights are random but for a memory of their own text, so that many drafts stand; output must be the output without it, token by
 * token, as a chain and as a tree. A checkpoint without the layer is refused. */
#include "random_models.h"

#include "engine_fixture.h"

#define OUTPUT 40
#define PROMPT 5
#define N_PROMPTS 3

struct case_at {
  char plain[64], mtp[64]; /* directories: the model, and with the layer */
  struct prompt prompts[N_PROMPTS];
  struct run_result expected[N_PROMPTS];
};

/* width 0: without drafts. */
static struct engine *open_engine(const char *model, int32_t width) {
  struct engine *e;
  struct eaglet_error err;
  const struct eaglet_engine_params params = {.model = model,
                                              .threads = 1,
                                              .context_max = 64,
                                              .sequences_max = 2,
                                              .drafter = width > 0 ? EAGLET_DRAFTER_MTP : EAGLET_DRAFTER_NONE,
                                              .draft_len_max = 4,
                                              .draft_width_max = width,
                                              .draft_tokens_max = width > 1 ? 9 : 0};
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

static const struct eaglet_sequence_params greedy = {.output_max = OUTPUT, .ignore_stop = true};

/* ---- the layer ---- */

/* Another model with the last layer's kind of tensors, one layer further. */
static void add_layer(struct tensor_bag *bag, const struct checkpoint *source, int32_t n_layers, uint64_t seed) {
  char from[64], name[256];
  snprintf(from, sizeof from, "model.layers.%d.", n_layers - 1);
  for (size_t i = 0; i < source->n_tensors; i++) {
    const struct tensor_entry *t = source->tensors[i];
    if (strncmp(t->name, from, strlen(from)) != 0) continue;
    snprintf(name, sizeof name, "model.layers.%d.%s", n_layers, t->name + strlen(from));
    safetensors_writer_add(bag->writer, name, t->dtype, t->rank, t->shape, bag_own(bag, random_model_values(t, seed + 1000, i)));
  }
}

/* eh_proj reads [token, feature]: of the token what followed it in the text, of the feature a little; all of it so large that what
 * the random layer adds seldom outweighs it. */
static void add_join(struct tensor_bag *bag, const struct random_head *r, int32_t n_layers) {
  int32_t h = r->target->arch.features.hidden;
  char name[64];
  static const char *const norms[] = {"enorm", "hnorm", "shared_head.norm"};
  for (size_t i = 0; i < 3; i++) {
    snprintf(name, sizeof name, "model.layers.%d.%s.weight", n_layers, norms[i]);
    bag_add_ones(bag, name, h);
  }
  snprintf(name, sizeof name, "model.layers.%d.eh_proj.weight", n_layers);
  float *join = random_head_noise(bag, r, name, (const int64_t[]){h, 2 * h}, 0.1);
  random_head_remember(join, r);
  for (int32_t i = 0; i < 2 * h * h; i++) join[i] *= 10;
}

static void write_mtp(struct case_at *c, const struct model *target, uint64_t seed) {
  struct checkpoint source;
  struct eaglet_error err;
  struct tensor_bag bag = {.writer = safetensors_writer_create()};
  int32_t text[N_PROMPTS * (PROMPT + OUTPUT)], n = 0, n_layers = target->arch.features.n_layers;
  for (int i = 0; i < N_PROMPTS; i++) {
    memcpy(text + n, c->prompts[i].ids, PROMPT * sizeof *text);
    memcpy(text + n + PROMPT, c->expected[i].tokens, OUTPUT * sizeof *text);
    n += PROMPT + OUTPUT;
  }
  const struct random_head memory = {.target = target, .text = text, .n_text = n, .share = 0.8f, .seed = seed};
  assert_ok(checkpoint_open(&source, c->plain, &err), &err);
  temporary_directory(c->mtp);
  json_t *config = json_deep_copy(source.config);
  json_object_set_new(config, "num_nextn_predict_layers", json_integer(1));
  struct eaglet_text dump = json_dump(config, 2);
  write_text(c->mtp, "config.json", dump.data);
  for (size_t i = 0; i < source.n_tensors; i++) {
    const struct tensor_entry *t = source.tensors[i];
    safetensors_writer_add(bag.writer, t->name, t->dtype, t->rank, t->shape, t->data);
  }
  add_layer(&bag, &source, n_layers, seed);
  add_join(&bag, &memory, n_layers);
  bag_commit(&bag, c->mtp);
  json_decref(config);
  free(dump.data);
  checkpoint_close(&source);
}

/* ---- runs ---- */

static void case_open(struct case_at *c, const char *template, uint64_t seed) {
  *c = (struct case_at){.plain = ""};
  random_model_write(c->plain, template, seed);
  struct engine *e = open_engine(c->plain, 0);
  for (uint64_t i = 0; i < N_PROMPTS; i++) {
    c->prompts[i] = (struct prompt){.ids = memory_alloc(PROMPT * sizeof(int32_t)), .n = PROMPT};
    for (uint64_t k = 0; k < PROMPT; k++)
      c->prompts[i].ids[k] = (int32_t)(random_u64(seed, 90 + i, k) % (uint64_t)engine_model(e)->arch.features.n_vocab);
  }
  run_prompts(e, c->prompts, N_PROMPTS, 2, &greedy, c->expected);
  write_mtp(c, engine_model(e), seed);
  engine_close(e);
}

static void case_close(struct case_at *c) {
  for (int i = 0; i < N_PROMPTS; i++) free(c->prompts[i].ids);
  remove_directory(c->plain);
  remove_directory(c->mtp);
}

/* Drafts that stood. */
static int32_t check_width(const struct case_at *c, int32_t width, const char *what) {
  struct run_result *found = memory_alloc(N_PROMPTS * sizeof *found);
  struct eaglet_engine_stats stats;
  struct engine *e = open_engine(c->mtp, width);
  int32_t accepted = 0, drafted = 0, rounds = 0;
  run_prompts(e, c->prompts, N_PROMPTS, 2, &greedy, found);
  engine_stats(e, &stats);
  assert_string_equal(stats.drafter, width > 0 ? "mtp" : "none");
  for (int i = 0; i < N_PROMPTS; i++) {
    assert_int_equal(found[i].n, OUTPUT);
    assert_same_tokens(found[i].tokens, found[i].n, c->expected[i].tokens, c->expected[i].n, what, i);
    accepted += found[i].stats.accepted;
    drafted += found[i].stats.drafted;
    rounds += found[i].stats.rounds;
  }
  printf("%s, width %d: %d of %d drafts stand, %d rounds\n", what, width, accepted, drafted, rounds);
  engine_close(e);
  free(found);
  return accepted;
}

static void check_template(const char *template, uint64_t seed) {
  struct case_at c;
  case_open(&c, template, seed);
  assert_int_equal(check_width(&c, 0, template), 0); /* the target passes its layer over */
  int32_t chain = check_width(&c, 1, template), tree = check_width(&c, 3, template);
  assert_true(chain > N_PROMPTS * OUTPUT / 4 && tree > N_PROMPTS * OUTPUT / 4);
  case_close(&c);
}

static void test_identity(void **state) {
  (void)state;
  static const char *const own[] = {"deepseek_v3", "deepseek_v3_direct", "glm4_moe"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    char *template = memory_format("%s/tests/data/arch/%s", getenv("EAGLET_TEST_ROOT"), own[i]);
    check_template(template, i + 1);
    free(template);
  }
}

static void test_without(void **state) {
  (void)state;
  struct engine *e;
  struct eaglet_error err;
  char *template = memory_format("%s/tests/data/arch/deepseek_v3", getenv("EAGLET_TEST_ROOT"));
  const struct eaglet_engine_params params = {.model = template, .threads = 1, .drafter = EAGLET_DRAFTER_MTP};
  assert_refused(engine_open(&e, &params, &err), EAGLET_E_INPUT, &err, "no prediction layer");
  free(template);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_identity), cmocka_unit_test(test_without)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
