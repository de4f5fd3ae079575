/* test_constraint.c - constrained text under every drafter: a hand-written automaton over ids. The output is valid and what constrained
 * plain decoding gives, nothing is drafted that may not come, the state is that of replaying the text, and the text ends when it is whole
 * (case G16). Drafts are made to be forbidden in many ways: the head follows the unconstrained walk, or can draft only some ids. */
#include "traffic.h"

#define V SCRIPT_VOCAB
#define CROWD 12

/* ---- the automaton: `sum` modulo 7 of the ids so far and how many there were; four ids are allowed in every state ---- */

enum { LENGTH = 40, END = 63 };
struct automaton_state {
  int32_t sum, n;
  bool over;
};
struct automaton {
  uint32_t allowed[2]; /* of the last question */
  bool may_end;        /* from 12 tokens on END is allowed, and makes the text whole ... */
  bool end_stops;      /* ... or is a stop token, which the automaton lets pass but does not read */
  const int32_t *only; /* [n_only] ids that are ever allowed; NULL: all */
  int32_t n_only;
  int64_t n_asked;
};

static bool is_allowed(const struct automaton *a, const struct automaton_state *s, int32_t token) {
  if (s->over) return false;
  if (token == END) return a->may_end && s->n >= 12;
  if (a->only) return script_lists(a->only, a->n_only, token);
  return (token + s->sum) % 4 != 1 && (token * 3 + s->n) % 5 != 2;
}

static void automaton_start(void *context, void *state) {
  (void)context;
  memset(state, 0, sizeof(struct automaton_state));
}

static const uint32_t *automaton_allowed(void *context, const void *state) {
  struct automaton *a = context;
  const struct automaton_state *s = state;
  assert_false(s->over);
  a->allowed[0] = a->allowed[1] = 0;
  for (int32_t t = 0; t < V; t++) a->allowed[t / 32] |= (uint32_t)is_allowed(a, s, t) << (t % 32);
  assert_true(a->allowed[0] | a->allowed[1]);
  a->n_asked++;
  return a->allowed;
}

static bool automaton_advance(void *context, void *state, int32_t token) {
  struct automaton *a = context;
  struct automaton_state *s = state;
  if (!is_allowed(a, s, token) || (token == END && a->end_stops)) return false;
  s->sum = (s->sum + token) % 7;
  s->n++;
  s->over = token == END || s->n == LENGTH;
  return true;
}

static bool automaton_is_over(void *context, const void *state) {
  (void)context;
  return ((const struct automaton_state *)state)->over;
}

/* ---- running ---- */

struct text {
  int32_t tokens[LENGTH + 1], n, drafted, accepted;
  enum eaglet_stop stop;
};

/* The state and the drafts of a sequence that waits for its next step. */
static void check_between_steps(struct automaton *a, const struct sequence *s) {
  struct automaton_state replayed, along[PROPOSAL_MAX];
  automaton_start(a, &replayed);
  for (int32_t i = s->n_prompt; i < s->n_tokens; i++) assert_true(automaton_advance(a, &replayed, s->tokens[i]));
  assert_memory_equal(&replayed, s->constraint.state, sizeof replayed);
  for (int32_t i = 0; i < s->proposal.n; i++) {
    along[i] = s->proposal.parents[i] < 0 ? replayed : along[s->proposal.parents[i]];
    bool ends = s->proposal.tokens[i] == END && a->end_stops && is_allowed(a, &along[i], END);
    if (!ends && !automaton_advance(a, &along[i], s->proposal.tokens[i])) fail_msg("draft %d may not come", s->proposal.tokens[i]);
  }
}

static void run_texts(struct engine *e, struct automaton *a, const struct eaglet_sequence_params *base, struct text texts[CROWD]) {
  const struct constraint_source source = {.context = a,
                                           .state_bytes = sizeof(struct automaton_state),
                                           .start = automaton_start,
                                           .allowed = automaton_allowed,
                                           .advance = automaton_advance,
                                           .is_over = automaton_is_over};
  struct sequence *live[CROWD];
  struct eaglet_error err;
  int32_t n_live;
  for (int32_t i = 0; i < CROWD; i++) {
    const int32_t prompt[2] = {1, 5 * i % V};
    struct eaglet_sequence_params params = *base;
    params.prompt = prompt;
    params.n_prompt = 2;
    params.output_max = LENGTH + 10;
    params.seed = base->seed + (uint64_t)i;
    assert_ok(sequence_create(&live[i], e, &params, &err), &err);
    if (i % 4 != 3) sequence_constrain(live[i], &source); /* every fourth says what it wants */
  }
  do {
    assert_ok(engine_step(e, &n_live, &err), &err);
    for (int32_t i = 0; i < CROWD; i++) {
      if (i % 4 != 3 && sequence_stop(live[i]) == EAGLET_STOP_NONE) check_between_steps(a, live[i]);
    }
  } while (n_live > 0);
  for (int32_t i = 0; i < CROWD; i++) {
    const int32_t *tokens;
    int32_t n = sequence_output(live[i], &tokens);
    texts[i] = (struct text){.n = n < LENGTH + 1 ? n : LENGTH + 1,
                             .drafted = sequence_stats(live[i])->drafted,
                             .accepted = sequence_stats(live[i])->accepted,
                             .stop = sequence_stop(live[i])};
    memcpy(texts[i].tokens, tokens, sizeof(int32_t) * (size_t)texts[i].n);
    sequence_free(live[i]);
  }
}

static void check_valid(struct automaton *a, const struct text *text) {
  struct automaton_state s;
  automaton_start(a, &s);
  for (int32_t t = 0; t < text->n; t++) {
    if (text->stop == EAGLET_STOP_TOKEN && t == text->n - 1) {
      assert_true(a->end_stops && text->tokens[t] == END && is_allowed(a, &s, END));
      return;
    }
    if (!automaton_advance(a, &s, text->tokens[t])) fail_msg("token %d may not be %d", t, text->tokens[t]);
  }
  assert_true(s.over);
  assert_int_equal(text->stop, EAGLET_STOP_CONSTRAINT);
}

static struct engine *open_engine(const struct script *script, enum eaglet_drafter drafter, int32_t width) {
  struct engine *e;
  struct eaglet_error err;
  const struct eaglet_engine_params params = {
      .model = script->target,
      .draft = drafter == EAGLET_DRAFTER_HEAD ? script->draft : drafter == EAGLET_DRAFTER_MODEL ? script->target : NULL,
      .threads = 1,
      .drafter = drafter,
      .sequences_max = 5,
      .context_max = 128,
      .draft_len_max = 5,
      .draft_width_max = width};
  assert_ok(engine_open(&e, &params, &err), &err);
  return e;
}

struct arm {
  const char *name;
  enum eaglet_drafter drafter;
  int32_t width;
  bool as_plain; /* at a temperature too */
};
static const struct arm arms[] = {{"none", EAGLET_DRAFTER_NONE, 1, true},         {"head, chains", EAGLET_DRAFTER_HEAD, 1, false},
                                  {"head, trees", EAGLET_DRAFTER_HEAD, 4, true},  {"itself", EAGLET_DRAFTER_MODEL, 1, false},
                                  {"itself, trees", EAGLET_DRAFTER_MODEL, 3, true}, {"n-grams", EAGLET_DRAFTER_NGRAM, 1, true}};

/* Small margins and noise: where the due token may not come there is a best one of the others. */
static void check_pair(const struct script_params *p, struct automaton *a, float temperature) {
  struct script script;
  struct text plain[CROWD], texts[CROWD];
  static const int32_t stop[] = {END};
  const struct eaglet_sequence_params params = {.stop_ids = stop, .n_stop_ids = a->end_stops, .temperature = temperature, .top_p = temperature > 0 ? 0.95f : 0, .seed = 50};
  script_write(&script, p);
  for (size_t k = 0; k < sizeof arms / sizeof *arms; k++) {
    struct engine *e = open_engine(&script, arms[k].drafter, arms[k].width);
    int32_t drafted = 0, accepted = 0;
    run_texts(e, a, &params, k == 0 ? plain : texts);
    engine_close(e);
    for (int32_t i = 0; i < CROWD; i++) {
      const struct text *t = k == 0 ? &plain[i] : &texts[i];
      if (i % 4 != 3) check_valid(a, t);
      if (temperature > 0 && !arms[k].as_plain) assert_true(t->n > 0);
      if (temperature == 0 || arms[k].as_plain) {
        assert_int_equal(t->n, plain[i].n);
        assert_memory_equal(t->tokens, plain[i].tokens, sizeof(int32_t) * (size_t)t->n);
      }
      drafted += t->drafted;
      accepted += t->accepted;
    }
    printf("%s, temperature %.1f: %d of %d drafts stand\n", arms[k].name, (double)temperature, accepted, drafted);
    assert_true(k == 0 || a->only || accepted > 0 || (temperature > 0 && arms[k].drafter == EAGLET_DRAFTER_NGRAM));
  }
  script_remove(&script);
}

static const struct script_params lively = {.margin = 3, .noise = 1, .draft_noise = 0.3f, .reads_tokens = true, .context_max = 128};

static void test_valid_and_plain(void **state) {
  (void)state;
  for (int32_t k = 0; k < 6; k++) {
    struct automaton a = {.may_end = k % 3 > 0, .end_stops = k % 3 > 1};
    check_pair(&lively, &a, k < 3 ? 0 : 0.8f);
    assert_true(a.n_asked > 1000);
  }
}

/* The head can draft nothing that the automaton allows, or little of it. */
static void test_little_to_draft(void **state) {
  (void)state;
  static const int32_t low[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, high[] = {40, 41, 42, 43, 44}, both[] = {10, 11, 44, 45, 46};
  for (int32_t k = 0; k < 4; k++) {
    struct automaton a = {.only = k % 2 ? both : high, .n_only = 5, .may_end = true, .end_stops = k % 2};
    struct script_params p = lively;
    p.draft_ids = low;
    p.n_draft = 12;
    check_pair(&p, &a, k < 2 ? 0 : 0.8f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_valid_and_plain), cmocka_unit_test(test_little_to_draft)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
