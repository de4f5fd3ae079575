/* test_script_law.c - the law of sampled text through the whole engine, against a law that is known: pairs of eight tokens whose logits
 * are a table, sampled for eight thousand tokens a case (two hundred thousand in four of them) with every drafter, at three temperatures, with every cut and with penalties. The
 * law of a token depends on the one before only (with penalties: on the text, which the test follows), so long texts give many draws:
 * transitions and pairs of them are compared by chi-square, and the excess of every token over what was expected of it by its deviation.
 * Fixed seeds: passes always or never. Case G19. */
#include "script_fixture.h"

#include "engine/engine_internal.h"
#include "law.h"

#define V 8
#define TOGETHER 64
#define OUTPUT 64
#define DRAWS_MANY 204800 /* tokens of one comparison */
#define DRAWS 8192

/* ---- the law, computed the plain way ---- */

struct candidate {
  double p;
  int32_t token;
};
static int by_probability(const void *a, const void *b) {
  const struct candidate *x = a, *y = b;
  if (x->p != y->p) return x->p < y->p ? 1 : -1;
  return x->token < y->token ? -1 : 1;
}

/* Temperature, then min-p, top-k and top-p on what is left. */
static void law_of(double p[V], const double logits[V], const struct eaglet_sequence_params *s) {
  struct candidate c[V];
  double sum = 0, mass = 0;
  int32_t n = V, keep = 0;
  for (int32_t v = 0; v < V; v++) {
    c[v] = (struct candidate){exp(logits[v] / (double)s->temperature), v};
    sum += c[v].p;
  }
  qsort(c, V, sizeof *c, by_probability);
  if (s->top_k > 0 && s->top_k < n) n = s->top_k;
  while (n > 1 && s->min_p > 0 && c[n - 1].p < (double)s->min_p * c[0].p) n--;
  for (sum = 0, keep = 0; keep < n; keep++) sum += c[keep].p;
  for (keep = 0; keep < n && (keep == 0 || s->top_p == 0 || mass < (double)s->top_p * sum); keep++) mass += c[keep].p;
  memset(p, 0, V * sizeof *p);
  for (int32_t i = 0; i < keep; i++) p[c[i].token] = c[i].p / mass;
}

static void penalise(double logits[V], const struct eaglet_sequence_params *s, const int32_t *text, int32_t n_prompt, int32_t n) {
  for (int32_t v = 0; v < V; v++) {
    int32_t said = 0;
    bool seen = false;
    for (int32_t i = 0; i < n; i++) {
      seen |= text[i] == v;
      said += i >= n_prompt && text[i] == v;
    }
    if (seen && s->repetition_penalty > 0)
      logits[v] = logits[v] > 0 ? logits[v] / (double)s->repetition_penalty : logits[v] * (double)s->repetition_penalty;
    logits[v] -= (double)s->frequency_penalty * said + (said > 0 ? (double)s->presence_penalty : 0);
  }
}

/* ---- counting ---- */

struct tally {
  double after[V][V];                        /* without penalties */
  int64_t transitions[V][V], pairs[V][V * V]; /* pairs: of every other place, so that they do not overlap */
  double excess[V], variance[V];
  int64_t drafted, accepted;
};

static void count_text(struct tally *t, const struct script_params *script, const struct eaglet_sequence_params *s, const int32_t *output,
                       int32_t n) {
  int32_t text[3 + OUTPUT];
  bool penalised = s->repetition_penalty > 0 || s->presence_penalty != 0 || s->frequency_penalty != 0;
  memcpy(text, s->prompt, sizeof(int32_t) * (size_t)s->n_prompt);
  memcpy(text + s->n_prompt, output, sizeof(int32_t) * (size_t)n);
  for (int32_t i = s->n_prompt; i < s->n_prompt + n; i++) {
    double logits[V], own[V], *p = t->after[text[i - 1]];
    if (penalised) {
      for (int32_t v = 0; v < V; v++) logits[v] = script_logit(script, text[i - 1], v);
      penalise(logits, s, text, s->n_prompt, i);
      law_of(p = own, logits, s);
    }
    assert_true(p[text[i]] > 0);
    for (int32_t v = 0; v < V; v++) {
      t->excess[v] += (text[i] == v) - p[v];
      t->variance[v] += p[v] * (1 - p[v]);
    }
    t->transitions[text[i - 1]][text[i]]++;
    if (i % 2 == 0 && i + 1 < s->n_prompt + n) t->pairs[text[i - 1]][text[i] * V + text[i + 1]]++;
  }
}

/* The smallest p-value of all comparisons, each as likely as any number under the right law; times their number. */
static double judge(const struct tally *t, bool penalised) {
  double least = 1;
  int n = 0;
  for (int32_t v = 0; v < V; v++) {
    double z = t->variance[v] > 5 ? t->excess[v] / sqrt(t->variance[v]) : 0;
    least = fmin(least, erfc(fabs(z) / sqrt(2)));
    n++;
    if (penalised) continue;
    double expected[V * V];
    int64_t n_transitions = 0, n_pairs = 0;
    for (int32_t w = 0; w < V; w++) n_transitions += t->transitions[v][w];
    for (int32_t b = 0; b < V * V; b++) {
      expected[b] = t->after[v][b / V] * t->after[b / V][b % V];
      n_pairs += t->pairs[v][b];
    }
    least = fmin(least, law_p(t->transitions[v], t->after[v], V, n_transitions));
    least = fmin(least, law_p(t->pairs[v], expected, V * V, n_pairs));
    n += 2;
  }
  return least * n;
}

/* ---- drawing ---- */

static void draw_texts(struct engine *e, const struct script_params *script, const struct eaglet_sequence_params *base,
                       int32_t n_texts, struct tally *t) {
  struct eaglet_error err;
  for (uint64_t done = 0; done < (uint64_t)n_texts; done += TOGETHER) {
    struct sequence *live[TOGETHER];
    int32_t n_live, prompts[TOGETHER][2];
    struct eaglet_sequence_params own = *base;
    for (int32_t i = 0; i < TOGETHER; i++) {
      prompts[i][0] = 1;
      prompts[i][1] = i % V;
      own.prompt = prompts[i];
      own.seed = base->seed + done + (uint64_t)i;
      assert_ok(sequence_create(&live[i], e, &own, &err), &err);
    }
    do assert_ok(engine_step(e, &n_live, &err), &err);
    while (n_live > 0);
    for (int32_t i = 0; i < TOGETHER; i++) {
      const int32_t *output;
      int32_t n = sequence_output(live[i], &output);
      own.prompt = prompts[i];
      assert_int_equal(n, base->output_max);
      count_text(t, script, &own, output, n);
      t->drafted += live[i]->stats.drafted;
      t->accepted += live[i]->stats.accepted;
      sequence_free(live[i]);
    }
  }
}

static const struct eaglet_sequence_params cuts[] = {
    {.top_k = 0},
    {.top_p = 0.8f},
    {.top_k = 3},
    {.min_p = 0.15f},
    {.repetition_penalty = 1.3f, .presence_penalty = 0.4f, .frequency_penalty = 0.01f},
    {.top_k = 5, .top_p = 0.9f, .min_p = 0.05f},
};
#define N_CUTS ((int)(sizeof cuts / sizeof *cuts))
static const float temperatures[] = {0.3f, 0.7f, 1};

/* The chance of what was drawn under the law. */
static double chance_of_law(struct engine *e, const struct script_params *script, const char *name, int32_t temperature, int32_t cut) {
  struct tally *t = memory_alloc(sizeof *t);
  struct eaglet_sequence_params s = cuts[cut];
  s.temperature = temperatures[temperature];
  s.n_prompt = 2;
  s.output_max = OUTPUT;
  s.seed = (uint64_t)(1000 * (10 * temperature + cut));
  for (int32_t token = 0; token < V; token++) {
    double logits[V];
    for (int32_t v = 0; v < V; v++) logits[v] = script_logit(script, token, v);
    law_of(t->after[token], logits, &s);
  }
  bool many = engine_head(e) && (cut == 2 ? temperature == 2 : cut == 1 && temperature == 1) && script->n_draft == 0;
  draw_texts(e, script, &s, (many ? DRAWS_MANY : DRAWS) / OUTPUT, t);
  double chance = judge(t, s.repetition_penalty > 0);
  printf("%s, temperature %.1f, cut %d%s: p %.4f, %.2f of the drafts stand\n", name, (double)s.temperature, cut, many ? ", many draws" : "", chance,
         (double)t->accepted / (double)t->drafted);
  assert_true(t->accepted > 0 && t->drafted > 0);
  free(t);
  return chance;
}

static void check_law(struct engine *e, const struct script_params *script, const char *name, int32_t temperature, int32_t cut) {
  assert_true(chance_of_law(e, script, name, temperature, cut) > 0.0002); /* of some thirty cases */
}

static struct engine *open_engine(const struct script *script, enum eaglet_drafter drafter, int32_t width) {
  struct engine *e;
  struct eaglet_error err;
  const struct eaglet_engine_params params = {
      .model = script->target,
      .draft = drafter == EAGLET_DRAFTER_HEAD ? script->draft : drafter == EAGLET_DRAFTER_MODEL ? script->target : NULL,
      .threads = 1,
      .drafter = drafter,
      .sequences_max = TOGETHER,
      .context_max = OUTPUT + 2,
      .draft_len_max = 3,
      .draft_width_max = width,
      .draft_tokens_max = width > 1 ? 8 : 0,
      .no_prefix_cache = true};
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

static const struct script_params whole = {
    .n_vocab = V, .margin = 1, .noise = 1, .draft_noise = 0.6f, .reads_tokens = true, .context_max = OUTPUT + 2};

static void check_drafter(const char *name, enum eaglet_drafter drafter, int32_t width, bool all) {
  struct script script;
  script_write(&script, &whole);
  struct engine *e = open_engine(&script, drafter, width);
  for (int32_t temperature = 0; temperature < 3; temperature++) {
    for (int32_t cut = 0; cut < N_CUTS; cut++) {
      if (all || cut % 3 == temperature) check_law(e, &whole, name, temperature, cut);
    }
  }
  engine_close(e);
  script_remove(&script);
}

static void test_head_chains(void **state) {
  (void)state;
  check_drafter("head, chains", EAGLET_DRAFTER_HEAD, 1, true);
}
static void test_head_trees(void **state) {
  (void)state;
  check_drafter("head, trees", EAGLET_DRAFTER_HEAD, 3, false);
}
static void test_model(void **state) {
  (void)state;
  check_drafter("itself, chains", EAGLET_DRAFTER_MODEL, 1, false);
  check_drafter("itself, trees", EAGLET_DRAFTER_MODEL, 2, false);
}
static void test_ngram(void **state) {
  (void)state;
  check_drafter("n-grams", EAGLET_DRAFTER_NGRAM, 1, false);
}

/* A head that can draft five of the eight tokens. */
static void test_reduced_vocabulary(void **state) {
  (void)state;
  static const int32_t ids[] = {0, 2, 3, 5, 7};
  struct script_params p = whole;
  struct script script;
  p.draft_ids = ids;
  p.n_draft = 5;
  script_write(&script, &p);
  for (int32_t width = 1; width <= 3; width += 2) {
    struct engine *e = open_engine(&script, EAGLET_DRAFTER_HEAD, width);
    for (int32_t temperature = 0; temperature < 3; temperature++) check_law(e, &p, width == 1 ? "five ids, chains" : "five ids, trees", temperature, temperature);
    engine_close(e);
  }
  script_remove(&script);
}

/* A drafter that is told what pays, as adaptive drafting tells it: chains end where the drafter is unsure, sequences sleep now and then.
 * By q alone the law stays; the wrong rule looks at the token that was drawn, and must be found out. */
struct thrifty {
  struct drafter base, *real;
  uint64_t counter;
  bool wrong;
};

static enum eaglet_status thrifty_propose(struct drafter *drafter, struct draft_request *requests, int32_t n, const struct forward_run *target,
                                          struct eaglet_error *err) {
  struct thrifty *d = (struct thrifty *)drafter;
  static const float thresholds[] = {-INFINITY, -0.6f, -1.2f};
  for (int32_t i = 0; i < n; i++) {
    struct draft_request *r = &requests[i];
    r->sleeps = random_uniform(9, 1, d->counter++) < 0.2;
    if (r->sleeps) r->n_levels = 0;
    if (d->wrong) continue;
    r->keep_min = thresholds[d->counter++ % 3];
    r->expand_min = thresholds[d->counter++ % 3];
  }
  enum eaglet_status status = d->real->propose(d->real, requests, n, target, err);
  for (int32_t i = 0; i < n && d->wrong; i++) {
    struct proposal *p = requests[i].proposal;
    for (int32_t x = 0; x < p->n; x++) {
      if (p->q[x * p->n_q + p->tokens[x]] < 0.3f) p->n = x;
    }
  }
  return status;
}
static struct drafter_memory *thrifty_remember(struct drafter *drafter) {
  struct thrifty *d = (struct thrifty *)drafter;
  return d->real->remember(d->real);
}
static void thrifty_forget(struct drafter *drafter, struct drafter_memory *memory) {
  struct thrifty *d = (struct thrifty *)drafter;
  d->real->forget(d->real, memory);
}

static void test_what_pays(void **state) {
  (void)state;
  struct script script;
  script_write(&script, &whole);
  for (int wrong = 0; wrong < 2; wrong++) {
    struct engine *e = open_engine(&script, EAGLET_DRAFTER_HEAD, 1);
    struct thrifty d = {.base = *e->drafter, .real = e->drafter, .wrong = wrong};
    d.base.propose = thrifty_propose;
    d.base.remember = thrifty_remember;
    d.base.forget = thrifty_forget;
    e->drafter = &d.base;
    double chance = chance_of_law(e, &whole, wrong ? "unlikely tokens dropped (wrong)" : "thrifty chains", 1, 1);
    if (wrong)
      assert_true(chance < 1e-6);
    else
      assert_true(chance > 0.0002);
    e->drafter = d.real;
    engine_close(e);
  }
  script_remove(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_head_chains), cmocka_unit_test(test_head_trees), cmocka_unit_test(test_model),
                                     cmocka_unit_test(test_ngram), cmocka_unit_test(test_reduced_vocabulary),
                                     cmocka_unit_test(test_what_pays)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
