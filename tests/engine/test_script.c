/* test_script.c - scripted pairs do what their parameters say, through the engine: the walk, the acceptance of every
 * round, stops, batches that equal solo runs, and the law of sampled output against the table of logits. */
#include "script_fixture.h"

#include "engine/engine_internal.h"
#include "law.h"
#include "model/forward.h"

#define OUTPUT_MAX 400
#define SEQUENCES_MAX 9

struct walk {
  int32_t tokens[OUTPUT_MAX], n;
  int32_t accepted[OUTPUT_MAX], n_rounds; /* by round */
  enum eaglet_stop stop;
  struct eaglet_sequence_stats stats;
};

static struct engine *open_pair(const struct script *script, bool with_head) {
  struct engine *e;
  struct eaglet_error err;
  const struct eaglet_engine_params params = {.model = script->target,
                                              .draft = with_head ? script->draft : NULL,
                                              .threads = 1,
                                              .sequences_max = SEQUENCES_MAX,
                                              .context_max = 0,
                                              .draft_len_max = 8};
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

/* All at once; params: everything but the prompt, whose last token is the sequence's start. */
static void walk_together(struct engine *e, const int32_t *starts, int32_t n,
                          const struct eaglet_sequence_params *params, struct walk *walks) {
  struct sequence *live[SEQUENCES_MAX];
  struct eaglet_error err;
  int32_t n_live;
  memset(walks, 0, sizeof *walks * (size_t)n);
  for (int32_t i = 0; i < n; i++) {
    const int32_t prompt[3] = {7, 1, starts[i]};
    struct eaglet_sequence_params own = *params;
    own.prompt = prompt;
    own.n_prompt = 3;
    assert_ok(sequence_create(&live[i], e, &own, &err), &err);
  }
  do {
    assert_ok(engine_step(e, &n_live, &err), &err);
    for (int32_t i = 0; i < n; i++) {
      const struct eaglet_sequence_stats *now = sequence_stats(live[i]);
      if (now->rounds > walks[i].stats.rounds)
        walks[i].accepted[walks[i].n_rounds++] = now->accepted - walks[i].stats.accepted;
      walks[i].stats = *now;
    }
  } while (n_live > 0);
  for (int32_t i = 0; i < n; i++) {
    const int32_t *tokens;
    walks[i].n = sequence_output(live[i], &tokens);
    assert_in_range(walks[i].n, 0, OUTPUT_MAX);
    memcpy(walks[i].tokens, tokens, sizeof(int32_t) * (size_t)walks[i].n);
    walks[i].stop = sequence_stop(live[i]);
    sequence_free(live[i]);
  }
}

static void expect_walk(const struct script_params *p, int32_t start, const struct walk *walk, int32_t n) {
  assert_int_equal(walk->n, n);
  for (int32_t i = 0; i < n; i++) assert_int_equal(walk->tokens[i], script_walk(p, start, i + 1));
}

/* ---- the target alone ---- */

/* Every token's best logit stands far above the second. */
static void test_margins(void **state) {
  (void)state;
  const struct script_params p = {.n_vocab = 0};
  struct script script;
  struct compute *compute;
  struct model *model;
  struct forward *forward;
  struct kv_cache kv;
  struct kv_sequence sequence;
  struct batch batch;
  struct block_shape shape;
  struct eaglet_error err;
  script_write(&script, &p);
  assert_ok(compute_open_cpu(&compute, 1, EAGLET_PRECISION_EXACT, &err), &err);
  assert_ok(model_open(&model, &(const struct model_params){.path = script.target, .compute = compute}, &err), &err);
  block_shape_from_features(&shape, &model->arch.features);
  assert_ok(forward_create(&forward, model, SCRIPT_VOCAB, 8, &err), &err);
  assert_ok(kv_cache_init(&kv, compute, SCRIPT_LAYERS, block_kv_entry_floats(&shape), 8, &err), &err);
  assert_ok(kv_sequence_init(&sequence, &kv, SCRIPT_VOCAB, &err), &err);
  assert_ok(kv_sequence_reserve(&sequence, SCRIPT_VOCAB, &err), &err);
  batch_init(&batch, SCRIPT_VOCAB);
  for (int32_t t = 0; t < SCRIPT_VOCAB; t++) {
    struct batch_row *row = batch_add(&batch);
    *row =
        (struct batch_row){.token = t, .position = t, .slot = t, .kv = &sequence, .wants_logits = true};
  }
  struct forward_run run = {.batch = &batch, .kv = &kv};
  assert_ok(forward_run(forward, &run, &err), &err);
  assert_int_equal(run.n_logits, SCRIPT_VOCAB);
  for (int32_t t = 0; t < SCRIPT_VOCAB; t++) {
    for (int32_t v = 0; v < SCRIPT_VOCAB; v++)
      assert_true(fabs((double)run.logits[t * SCRIPT_VOCAB + v] - script_logit(&p, t, v)) < 1e-4);
  }
  batch_release(&batch);
  kv_sequence_release(&sequence);
  kv_cache_release(&kv);
  forward_free(forward);
  model_close(model);
  compute_close(compute);
  script_remove(&script);
}

static void check_plain(const struct script_params *p) {
  struct script script;
  script_write(&script, p);
  struct engine *e = open_pair(&script, false);
  for (int32_t start = 0; start < script_vocab(p); start += 11) {
    struct walk walk;
    walk_together(e, &start, 1, &(const struct eaglet_sequence_params){.output_max = 300}, &walk);
    expect_walk(p, start, &walk, 300);
    assert_int_equal(walk.stop, EAGLET_STOP_LENGTH);
  }
  engine_close(e);
  script_remove(&script);
}

static void test_plain(void **state) {
  (void)state;
  int32_t backwards[SCRIPT_VOCAB];
  for (int32_t t = 0; t < SCRIPT_VOCAB; t++) backwards[t] = (t + SCRIPT_VOCAB - 1) % SCRIPT_VOCAB;
  check_plain(&(const struct script_params){.n_vocab = 0});
  check_plain(&(const struct script_params){.next = backwards});
  check_plain(&(const struct script_params){.n_vocab = 12});
  check_plain(&(const struct script_params){.n_vocab = 97});
}

/* (5t + 3) mod 12 is three cycles of four. */
static void test_short_cycle(void **state) {
  (void)state;
  const struct script_params p = {.n_vocab = 12};
  int32_t in_four = 0;
  for (int32_t t = 0; t < 12; t++) {
    in_four += script_walk(&p, t, 4) == t && script_walk(&p, t, 2) != t;
  }
  assert_int_equal(in_four, 12);
}

/* ---- heads ---- */

/* A round is short only when little is left to output. */
static void check_perfect(const struct script_params *p) {
  struct script script;
  script_write(&script, p);
  struct engine *e = open_pair(&script, true);
  for (int32_t k = 1; k <= 8; k++) {
    int32_t start = 9, n = 2 + 11 * (k + 1); /* the prefill's, eleven full rounds, and one token without drafts */
    struct walk walk;
    walk_together(e, &start, 1, &(const struct eaglet_sequence_params){.output_max = n, .draft_len = k}, &walk);
    expect_walk(p, start, &walk, n);
    assert_int_equal(walk.n_rounds, 12);
    for (int32_t r = 0; r < 11; r++) assert_int_equal(walk.accepted[r], k);
    assert_int_equal(walk.stats.drafted, 11 * k);
  }
  engine_close(e);
  script_remove(&script);
}

static void test_perfect(void **state) {
  (void)state;
  check_perfect(&(const struct script_params){.n_vocab = 0});
  check_perfect(&(const struct script_params){.n_vocab = 12});
  check_perfect(&(const struct script_params){.reads_tokens = true});
  check_perfect(&(const struct script_params){.n_vocab = 97, .reads_tokens = true, .context_max = 300});
}

static void test_hostile(void **state) {
  (void)state;
  for (int reads_tokens = 0; reads_tokens < 2; reads_tokens++) {
    const struct script_params p = {.hostile = true, .reads_tokens = reads_tokens};
    struct script script;
    script_write(&script, &p);
    struct engine *e = open_pair(&script, true);
    int32_t start = 30;
    struct walk walk;
    walk_together(e, &start, 1, &(const struct eaglet_sequence_params){.output_max = 80, .draft_len = 5}, &walk);
    expect_walk(&p, start, &walk, 80);
    assert_int_equal(walk.stats.accepted, 0);
    assert_int_equal(walk.n_rounds, 79);
    assert_true(walk.stats.drafted > 70 * 5);
    engine_close(e);
    script_remove(&script);
  }
}

/* G25: elements of the output are numbered from 0, the prefill's choice; 4, 5 and 8 are never drafted. */
static void test_rigged(void **state) {
  (void)state;
  int32_t start = 20;
  const struct script_params plain = {.n_vocab = 0};
  const int32_t wrong[] = {script_walk(&plain, start, 5), script_walk(&plain, start, 6), script_walk(&plain, start, 9)};
  for (int reads_tokens = 0; reads_tokens < 2; reads_tokens++) {
    const struct script_params p = {.wrong = wrong, .n_wrong = 3, .reads_tokens = reads_tokens};
    static const int32_t expected[] = {3, 0, 2, 4};
    struct script script;
    script_write(&script, &p);
    struct engine *e = open_pair(&script, true);
    struct walk walk;
    walk_together(e, &start, 1, &(const struct eaglet_sequence_params){.output_max = 14, .draft_len = 4}, &walk);
    expect_walk(&p, start, &walk, 14);
    assert_int_equal(walk.n_rounds, 4);
    assert_memory_equal(walk.accepted, expected, sizeof expected);
    assert_int_equal(walk.stats.drafted, 16);
    engine_close(e);
    script_remove(&script);
  }
}

/* Even ids only: a draft stands exactly where an even one is due. */
static void test_reduced_vocabulary(void **state) {
  (void)state;
  int32_t even[SCRIPT_VOCAB / 2], start = 3;
  for (int32_t i = 0; i < SCRIPT_VOCAB / 2; i++) even[i] = 2 * i;
  const struct script_params p = {.draft_ids = even, .n_draft = SCRIPT_VOCAB / 2};
  struct script script;
  script_write(&script, &p);
  struct engine *e = open_pair(&script, true);
  struct walk walk;
  walk_together(e, &start, 1, &(const struct eaglet_sequence_params){.output_max = 101, .draft_len = 3}, &walk);
  expect_walk(&p, start, &walk, 101);
  for (int32_t r = 0, at = 1; r < walk.n_rounds - 1; at += ++walk.accepted[r++]) {
    int32_t stand = 0;
    while (stand < 3 && walk.tokens[at + stand] % 2 == 0) stand++;
    assert_int_equal(walk.accepted[r], stand);
  }
  assert_true(walk.stats.accepted > 0);
  engine_close(e);
  script_remove(&script);
}

static void test_stop(void **state) {
  (void)state;
  const struct script_params plain = {.n_vocab = 0};
  for (int32_t element = 0; element < 7; element++) {
    int32_t start = 41, eos[] = {script_walk(&plain, start, element + 1), script_walk(&plain, start, 30)};
    const struct script_params p = {.eos = eos, .n_eos = 2};
    struct script script;
    script_write(&script, &p);
    struct engine *e = open_pair(&script, true);
    struct walk walk;
    walk_together(e, &start, 1, &(const struct eaglet_sequence_params){.draft_len = 4}, &walk);
    expect_walk(&p, start, &walk, element + 1);
    assert_int_equal(walk.stop, EAGLET_STOP_TOKEN);
    engine_close(e);
    script_remove(&script);
  }
}

static void test_context(void **state) {
  (void)state;
  const struct script_params p = {.context_max = 50};
  struct script script;
  script_write(&script, &p);
  struct engine *e = open_pair(&script, true);
  int32_t start = 5;
  struct walk walk;
  walk_together(e, &start, 1, &(const struct eaglet_sequence_params){.draft_len = 4}, &walk);
  expect_walk(&p, start, &walk, 47); /* three are the prompt */
  assert_int_equal(walk.stop, EAGLET_STOP_CONTEXT);
  engine_close(e);
  script_remove(&script);
}

/* G21: each sequence has its own start and, by that, its own rounds at which drafts fail; together they do as alone. */
static void test_batches(void **state) {
  (void)state;
  static const int32_t wrong[] = {1, 2, 17, 40, 41, 42, 60};
  for (int reads_tokens = 0; reads_tokens < 2; reads_tokens++) {
    const struct script_params p = {.wrong = wrong, .n_wrong = 7, .reads_tokens = reads_tokens};
    const struct eaglet_sequence_params params = {.output_max = 90, .draft_len = 5};
    int32_t starts[SEQUENCES_MAX];
    struct script script;
    struct walk alone[SEQUENCES_MAX], together[SEQUENCES_MAX];
    script_write(&script, &p);
    struct engine *e = open_pair(&script, true);
    for (int32_t i = 0; i < SEQUENCES_MAX; i++) {
      starts[i] = 7 * i % SCRIPT_VOCAB;
      walk_together(e, &starts[i], 1, &params, &alone[i]);
      expect_walk(&p, starts[i], &alone[i], 90);
      assert_true(i == 0 || memcmp(alone[i].accepted, alone[0].accepted, sizeof alone[0].accepted) != 0);
    }
    for (int32_t n = 1; n <= SEQUENCES_MAX; n++) {
      walk_together(e, starts, n, &params, together);
      for (int32_t i = 0; i < n; i++) {
        expect_walk(&p, starts[i], &together[i], 90);
        assert_int_equal(together[i].n_rounds, alone[i].n_rounds);
        assert_memory_equal(together[i].accepted, alone[i].accepted, sizeof alone[i].accepted);
      }
    }
    engine_close(e);
    script_remove(&script);
  }
}

/* Eight tokens, small margins, noise: the law of three output tokens is the product of the table's softmaxes, with a
 * head that is nearly right and with one that only sometimes is. */
static void test_law(void **state) {
  (void)state;
  enum { V = 8, TRIALS = 9000, BINS = V * V * V };
  static const struct script_params kinds[] = {
      {.n_vocab = V, .margin = 1, .noise = 1, .draft_noise = 0.3f, .reads_tokens = true, .context_max = 64},
      {.n_vocab = V, .margin = 1, .noise = 1, .draft_noise = 1, .context_max = 64}};
  for (size_t kind = 0; kind < 2; kind++) {
    const struct script_params *p = &kinds[kind];
    double after[V][V], expected[BINS];
    int64_t counts[BINS] = {0}, accepted = 0, drafted = 0;
    struct script script;
    script_write(&script, p);
    struct engine *e = open_pair(&script, true);
    for (int32_t t = 0; t < V; t++) {
      double sum = 0;
      for (int32_t v = 0; v < V; v++) sum += after[t][v] = exp(script_logit(p, t, v) / 0.8);
      for (int32_t v = 0; v < V; v++) after[t][v] /= sum;
    }
    for (int32_t b = 0; b < BINS; b++)
      expected[b] = after[2][b / (V * V)] * after[b / (V * V)][b / V % V] * after[b / V % V][b % V];
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
      int32_t start = 2;
      struct walk walk;
      const struct eaglet_sequence_params params = {
          .output_max = 3, .draft_len = 2, .temperature = 0.8f, .seed = trial};
      walk_together(e, &start, 1, &params, &walk);
      counts[(walk.tokens[0] * V + walk.tokens[1]) * V + walk.tokens[2]]++;
      accepted += walk.stats.accepted;
      drafted += walk.stats.drafted;
    }
    double chance = law_p(counts, expected, BINS, TRIALS);
    printf("kind %zu: p %.3f, %.2f of the drafts stand\n", kind, chance, (double)accepted / (double)drafted);
    assert_true(chance > 0.01);
    assert_true(accepted > TRIALS / 4 && accepted < drafted);
    engine_close(e);
    script_remove(&script);
  }
}

/* ---- requests that change the walk ---- */

static struct engine *open_drafter(const struct script *script, enum eaglet_drafter drafter, int32_t width) {
  struct engine *e;
  struct eaglet_error err;
  const struct eaglet_engine_params params = {.model = script->target,
                                              .draft = drafter == EAGLET_DRAFTER_HEAD ? script->draft : NULL,
                                              .threads = 1,
                                              .drafter = drafter,
                                              .sequences_max = SEQUENCES_MAX,
                                              .draft_len_max = 8,
                                              .draft_width_max = width,
                                              .draft_tokens_max = 8};
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

/* G14: cycles of four, eight drafts: repeats fall inside one block, and the penalty of a token must know those before it in the block. */
static void test_penalties(void **state) {
  (void)state;
  static const struct eaglet_sequence_params cases[] = {{.frequency_penalty = 0.4f},  {.frequency_penalty = -2},
                                                        {.presence_penalty = 1.7f},   {.repetition_penalty = 1.6f},
                                                        {.repetition_penalty = 0.7f}, {.presence_penalty = 0.5f, .repetition_penalty = 1.2f}};
  const struct script_params p = {.n_vocab = 12, .margin = 3, .noise = 1, .draft_noise = 0.1f, .reads_tokens = true};
  struct script script;
  struct walk free_walks[SEQUENCES_MAX], plain[SEQUENCES_MAX], walks[SEQUENCES_MAX];
  int32_t starts[SEQUENCES_MAX], n_changed = 0, n_inside = 0;
  for (int32_t i = 0; i < SEQUENCES_MAX; i++) starts[i] = i + 2;
  script_write(&script, &p);
  for (int kind = 0; kind < 3; kind++) {
    struct engine *e = open_drafter(&script, kind == 2 ? EAGLET_DRAFTER_NGRAM : EAGLET_DRAFTER_HEAD, kind == 1 ? 3 : 1);
    struct eaglet_sequence_params params = {.output_max = 120, .draft_len = -1};
    walk_together(e, starts, SEQUENCES_MAX, &params, free_walks);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
      params = cases[c];
      params.output_max = 120;
      walk_together(e, starts, SEQUENCES_MAX, &params, walks);
      params.draft_len = -1;
      walk_together(e, starts, SEQUENCES_MAX, &params, plain);
      for (int32_t i = 0; i < SEQUENCES_MAX; i++) {
        assert_memory_equal(walks[i].tokens, plain[i].tokens, sizeof plain[i].tokens);
        n_changed += memcmp(plain[i].tokens, free_walks[i].tokens, sizeof plain[i].tokens) != 0;
        for (int32_t r = 0; r < walks[i].n_rounds; r++) n_inside += walks[i].accepted[r] > 4;
      }
    }
    engine_close(e);
  }
  assert_true(n_changed > 60 && n_inside > 100);
  script_remove(&script);
}

/* G13: the walk's eighth token may not come: it never does, at no place of a block, and another request of the batch does not notice. */
static void test_ban(void **state) {
  (void)state;
  const struct script_params p = {.margin = 6, .noise = 0.5f, .reads_tokens = true};
  static const float biases[] = {-100, -INFINITY};
  struct script script;
  script_write(&script, &p);
  int32_t banned = script_walk(&p, 11, 8), n_live;
  for (int kind = 0; kind < 4; kind++) {
    struct engine *e = open_drafter(&script, kind == 3 ? EAGLET_DRAFTER_NGRAM : EAGLET_DRAFTER_HEAD, kind == 2 ? 3 : 1);
    const struct eaglet_logit_bias bias = {banned, biases[kind % 2]};
    struct sequence *s[3];
    struct eaglet_error err;
    for (int32_t i = 0; i < 3; i++) { /* the ban with drafts, nothing, the ban without drafts */
      const int32_t prompt[3] = {7, 1, 11};
      const struct eaglet_sequence_params params = {
          .prompt = prompt, .n_prompt = 3, .output_max = 100, .bias = &bias, .n_bias = i != 1, .draft_len = i == 2 ? -1 : 0};
      assert_ok(sequence_create(&s[i], e, &params, &err), &err);
    }
    do assert_ok(engine_step(e, &n_live, &err), &err);
    while (n_live > 0);
    const int32_t *with, *none, *plain;
    assert_int_equal(sequence_output(s[0], &with), 100);
    assert_int_equal(sequence_output(s[1], &none), 100);
    assert_int_equal(sequence_output(s[2], &plain), 100);
    assert_memory_equal(with, plain, 100 * sizeof(int32_t));
    assert_int_equal(none[7], banned);
    for (int32_t i = 0; i < 100; i++) {
      assert_int_not_equal(with[i], banned);
      assert_int_equal(none[i], script_walk(&p, 11, i + 1));
    }
    for (int32_t i = 0; i < 3; i++) sequence_free(s[i]);
    engine_close(e);
  }
  script_remove(&script);
}

/* When everything is banned nothing is said, greedy or not, with and without drafts. */
static void test_nothing_left(void **state) {
  (void)state;
  const struct script_params p = {.n_vocab = 12};
  struct eaglet_logit_bias bias[12];
  struct script script;
  script_write(&script, &p);
  for (int32_t i = 0; i < 12; i++) bias[i] = (struct eaglet_logit_bias){i, -INFINITY};
  for (int kind = 0; kind < 3; kind++) {
    struct engine *e = open_drafter(&script, kind == 2 ? EAGLET_DRAFTER_NGRAM : EAGLET_DRAFTER_HEAD, kind == 1 ? 3 : 1);
    for (int hot = 0; hot < 2; hot++) {
      int32_t start = 3;
      struct walk walk;
      walk_together(e, &start, 1, &(const struct eaglet_sequence_params){.bias = bias, .n_bias = 12, .temperature = (float)hot}, &walk);
      assert_int_equal(walk.n, 0);
      assert_int_equal(walk.stop, EAGLET_STOP_CONSTRAINT);
    }
    engine_close(e);
  }
  script_remove(&script);
}

/* ---- the text as drafter ---- */

/* On a cycle of four: nothing until two tokens have come again, then what has been said since, four tokens, all of it right. */
static void test_ngram_cycle(void **state) {
  (void)state;
  const struct script_params p = {.n_vocab = 12};
  struct script script;
  script_write(&script, &p);
  struct engine *e = open_drafter(&script, EAGLET_DRAFTER_NGRAM, 1);
  for (int32_t k = 1; k <= 8; k++) {
    int32_t start = 9, each = k < 4 ? k : 4, n = 5 + 10 * (each + 1);
    struct walk walk;
    walk_together(e, &start, 1, &(const struct eaglet_sequence_params){.output_max = n, .draft_len = k}, &walk);
    expect_walk(&p, start, &walk, n);
    assert_int_equal(walk.n_rounds, 4 + 10);
    for (int32_t r = 0; r < walk.n_rounds; r++) assert_int_equal(walk.accepted[r], r < 4 ? 0 : each);
  }
  engine_close(e);
  script_remove(&script);
}

/* ---- limits ---- */

/* draft_tokens_max bounds chains and trees, whatever their levels; so does a request's own bound. */
static void test_draft_tokens(void **state) {
  (void)state;
  const struct script_params p = {.n_vocab = 0};
  struct script script;
  struct eaglet_error err;
  script_write(&script, &p);
  for (int32_t width = 1; width <= 3; width += 2) {
    struct engine *e;
    const struct eaglet_engine_params params = {
        .model = script.target, .draft = script.draft, .threads = 1, .draft_len_max = 8, .draft_width_max = width, .draft_tokens_max = 5};
    assert_ok(engine_open(&e, &params, &err), &err);
    for (int32_t own = 0; own <= 3; own += 3) {
      int32_t start = 9, n_live, most = 0;
      const int32_t prompt[1] = {start};
      const struct eaglet_sequence_params request = {.prompt = prompt, .n_prompt = 1, .output_max = 60, .draft_tokens = own};
      struct sequence *s;
      assert_ok(sequence_create(&s, e, &request, &err), &err);
      do {
        assert_ok(engine_step(e, &n_live, &err), &err);
        most = s->proposal.n > most ? s->proposal.n : most;
      } while (n_live > 0);
      assert_int_equal(most, own ? own : 5);
      sequence_free(s);
    }
    engine_close(e);
  }
  script_remove(&script);
}

/* A draft model whose ids are others is refused by both numbers. */
static void test_other_vocabulary(void **state) {
  (void)state;
  struct script script;
  struct engine *e;
  struct eaglet_error err;
  char other[64];
  script_write(&script, &(const struct script_params){.n_vocab = 12});
  script_target(other, &(const struct script_params){.n_vocab = 13});
  const struct eaglet_engine_params params = {.model = script.target, .draft = other, .threads = 1};
  assert_refused(engine_open(&e, &params, &err), EAGLET_E_INPUT, &err, "13 ids, the target's 12");
  assert_null(e);
  remove_directory(other);
  script_remove(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_margins),
                                     cmocka_unit_test(test_plain),
                                     cmocka_unit_test(test_short_cycle),
                                     cmocka_unit_test(test_perfect),
                                     cmocka_unit_test(test_hostile),
                                     cmocka_unit_test(test_rigged),
                                     cmocka_unit_test(test_reduced_vocabulary),
                                     cmocka_unit_test(test_stop),
                                     cmocka_unit_test(test_context),
                                     cmocka_unit_test(test_batches),
                                     cmocka_unit_test(test_law),
                                     cmocka_unit_test(test_penalties),
                                     cmocka_unit_test(test_ban),
                                     cmocka_unit_test(test_nothing_left),
                                     cmocka_unit_test(test_ngram_cycle),
                                     cmocka_unit_test(test_draft_tokens),
                                     cmocka_unit_test(test_other_vocabulary)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
