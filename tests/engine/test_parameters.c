/* test_parameters.c - whoever drafts, whatever a request asks for (penalties, bans, least and most tokens, stop tokens, logprobs, cuts), it
 * gets what plain decoding alone gives it, token for token, beside requests that ask for other things. At a temperature too, unless drafts
 * are drawn: those keep the law only (test_law.c). Cases G02 to G04, G13, G14, G18, G21 and G23 of the bug list. */
#include "traffic.h"

#define CROWD (TEST_STRIDE > 1 ? 24 : 48)
#define CONTEXT 256

struct bench {
  struct pair pair;
  char other[64]; /* the target with a little noise on its logits: a draft model that is often right */
  struct visitor visitors[TRAFFIC_MAX];
  struct visit alone[TRAFFIC_MAX], visits[TRAFFIC_MAX];
};

/* The same model with other last layers' norms: near, but not the same. */
static void write_relative(char directory[64], const char *model) {
  struct checkpoint source;
  struct eaglet_error err;
  struct tensor_bag bag = {.writer = safetensors_writer_create()};
  assert_ok(checkpoint_open(&source, model, &err), &err);
  temporary_directory(directory);
  struct eaglet_text config = json_dump(source.config, 2);
  write_text(directory, "config.json", config.data);
  for (size_t i = 0; i < source.n_tensors; i++) {
    const struct tensor_entry *t = source.tensors[i];
    const void *data = t->data;
    if (strstr(t->name, "layers.2.mlp.down_proj.weight")) data = bag_own(&bag, random_model_values(t, 3, i));
    safetensors_writer_add(bag.writer, t->name, t->dtype, t->rank, t->shape, data);
  }
  bag_commit(&bag, directory);
  free(config.data);
  checkpoint_close(&source);
}

static int setup(void **state) {
  struct bench *b = memory_alloc(sizeof *b);
  pair_write(&b->pair, "qwen3_biased", CONTEXT, 5);
  write_relative(b->other, b->pair.target);
  *state = b;
  return 0;
}
static int teardown(void **state) {
  struct bench *b = *state;
  pair_remove(&b->pair);
  remove_directory(b->other);
  free(b);
  return 0;
}

/* Tokens that the model likes (it says 26, 78, 12 and 0 in most texts). */
static const int32_t frequent[] = {26, 78, 12, 0};
static const struct eaglet_logit_bias bans[] = {{26, -INFINITY}, {78, -100}, {0, -INFINITY}};
static const struct eaglet_logit_bias nudges[] = {{26, -1.5f}, {52, 2}, {7, 1}, {95, -3}};
enum { KINDS = 12 };

static void ask(struct eaglet_sequence_params *p, int32_t kind, int32_t i) {
  p->output_max = 40 + i % 23;
  p->ignore_stop = true;
  if (kind == 1) p->repetition_penalty = 1.5f;
  if (kind == 2) p->frequency_penalty = 1;
  if (kind == 3) p->presence_penalty = -1.5f;
  if (kind == 4) p->bias = bans, p->n_bias = 3;
  if (kind == 5 || kind == 6) p->stop_ids = frequent, p->n_stop_ids = 4;
  if (kind == 5) p->output_min = 9 + i % 12;
  if (kind == 7) p->output_max = 1 + i % 11;
  if (kind == 8) p->n_logprobs = VISIT_LOGPROBS;
  if (kind == 9) p->n_logprobs = -1, p->n_prompt_logprobs = -1;
  if (kind == 10) p->bias = nudges, p->n_bias = 4, p->n_logprobs = 1;
  if (kind == 11) {
    p->repetition_penalty = 1.2f;
    p->frequency_penalty = 0.3f;
    p->bias = nudges;
    p->n_bias = 4;
    p->stop_ids = frequent;
    p->n_stop_ids = 2;
    p->output_min = 6;
    p->n_logprobs = 2;
  }
}

static void ask_all(struct bench *b, float temperature) {
  for (int32_t i = 0; i < CROWD; i++) {
    struct visitor *v = &b->visitors[i];
    memset(v, 0, sizeof *v);
    visitor_prompt(v, 1 + random_below(8, (uint64_t)i, 0, 90), 96, 8, 100 + (uint64_t)i);
    ask(&v->params, i % KINDS, i);
    v->params.temperature = temperature;
    v->params.top_k = i % 4 == 1 ? 12 : 0;
    v->params.top_p = i % 4 == 2 ? 0.9f : 0;
    v->params.min_p = i % 4 == 3 ? 0.05f : 0;
    v->params.seed = (uint64_t)i;
    v->arrives = i / 3;
  }
}

struct arm {
  const char *name;
  enum eaglet_drafter drafter;
  int32_t width, rows_max, pages;
  double accepted_min; /* per round, greedy */
};
static const struct arm arms[] = {
    {"head, chains", EAGLET_DRAFTER_HEAD, 1, 0, 0, 0.05},
    {"head, trees", EAGLET_DRAFTER_HEAD, 3, 0, 10, 0.1},
    {"head, trees, 24 rows", EAGLET_DRAFTER_HEAD, 4, 24, 0, 0.02},
    {"itself", EAGLET_DRAFTER_MODEL, 1, 0, 10, 1.2},
    {"a relative, trees", EAGLET_DRAFTER_AUTO, 3, 0, 0, 0.1},
    {"n-grams", EAGLET_DRAFTER_NGRAM, 1, 48, 10, 0.1},
};

static struct engine *open_arm(const struct bench *b, const struct arm *arm) {
  struct engine *e;
  struct eaglet_error err;
  struct eaglet_engine_params params = {.model = b->pair.target,
                                        .threads = 1,
                                        .context_max = CONTEXT,
                                        .sequences_max = 12,
                                        .rows_max = arm->rows_max,
                                        .drafter = arm->drafter,
                                        .draft_len_max = 5,
                                        .draft_width_max = arm->width};
  if (arm->drafter == EAGLET_DRAFTER_HEAD) params.draft = b->pair.head;
  if (arm->drafter == EAGLET_DRAFTER_MODEL) params.draft = b->pair.target;
  if (arm->drafter == EAGLET_DRAFTER_AUTO) params.draft = b->other;
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

static void run_alone(struct bench *b) {
  struct engine *e;
  struct eaglet_error err;
  const struct eaglet_engine_params params = {.model = b->pair.target, .threads = 1, .context_max = CONTEXT, .no_prefix_cache = true};
  assert_ok(engine_open(&e, &params, &err), &err);
  traffic_run_alone(e, b->visitors, CROWD, b->alone);
  engine_close(e);
}

/* What the counters say of a sequence fits together (G25). */
static void check_counts(const struct visit *v) {
  const struct eaglet_sequence_stats *s = &v->stats;
  int32_t drafted = 0, accepted = 0;
  for (int32_t i = 0; i < v->n; i++) drafted += v->drafted[i];
  assert_int_equal(s->output_tokens, v->n);
  assert_int_equal(s->accepted, drafted);
  assert_int_equal(v->n, 1 + s->accepted + s->rounds - s->rounds_cut);
  for (int32_t d = 0; d < 16; d++) {
    assert_true(s->accepted_at[d] <= s->drafted_at[d]);
    accepted += s->accepted_at[d];
  }
  assert_int_equal(accepted, s->accepted);
}

static void check_arm(struct bench *b, const struct arm *arm, bool greedy) {
  struct engine *e = open_arm(b, arm);
  int64_t accepted = 0, rounds = 0, cut = 0, stopped_by_drafts = 0;
  traffic_run(e, arm->pages, b->visitors, CROWD, b->visits);
  for (int32_t i = 0; i < CROWD; i++) {
    const struct visit *v = &b->visits[i];
    visit_compare(v, &b->alone[i], false, arm->name, i);
    check_counts(v);
    accepted += v->stats.accepted;
    rounds += v->stats.rounds;
    cut += v->stats.rounds_cut;
    stopped_by_drafts += v->stop == EAGLET_STOP_TOKEN && v->drafted[v->n - 1];
    for (int32_t t = 0; t < v->n && b->visitors[i].params.bias == bans; t++) assert_true(v->tokens[t] != 26 && v->tokens[t] != 0);
  }
  printf("%s%s: %.2f drafts accepted per round, %lld rounds cut, %lld texts stopped by a draft\n", arm->name, greedy ? "" : ", sampled",
         (double)accepted / (double)rounds, (long long)cut, (long long)stopped_by_drafts);
  assert_true(!greedy || (double)accepted >= arm->accepted_min * (double)rounds);
  assert_true(accepted > 0 && (cut > 0 || arm->accepted_min < 1));
  engine_close(e);
}

static void test_greedy(void **state) {
  struct bench *b = *state;
  ask_all(b, 0);
  run_alone(b);
  for (size_t k = 0; k < sizeof arms / sizeof *arms; k++) check_arm(b, &arms[k], true);
}

static void test_chosen_drafts_sampled(void **state) {
  struct bench *b = *state;
  ask_all(b, 0.7f);
  run_alone(b);
  for (size_t k = 0; k < sizeof arms / sizeof *arms; k++) {
    if (arms[k].width > 1 || arms[k].drafter == EAGLET_DRAFTER_NGRAM) check_arm(b, &arms[k], false);
  }
}

/* Parameters change texts at all. */
static void test_they_matter(void **state) {
  struct bench *b = *state;
  int32_t changed[KINDS] = {0};
  ask_all(b, 0);
  run_alone(b);
  for (int32_t i = 0; i < CROWD; i++) b->visitors[i].params = (struct eaglet_sequence_params){
    .prompt = b->visitors[i].prompt, .n_prompt = b->visitors[i].params.n_prompt, .output_max = 62, .ignore_stop = true};
  memcpy(b->visits, b->alone, sizeof b->visits);
  run_alone(b);
  for (int32_t i = 0; i < CROWD; i++)
    changed[i % KINDS] += memcmp(b->visits[i].tokens, b->alone[i].tokens, sizeof(int32_t) * (size_t)b->visits[i].n) != 0;
  for (int32_t kind = 0; kind < KINDS; kind++) {
    bool neutral = kind == 0 || (kind >= 6 && kind <= 9);
    assert_int_equal(changed[kind] > 0, !neutral);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy), cmocka_unit_test(test_chosen_drafts_sampled),
                                     cmocka_unit_test(test_they_matter)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
