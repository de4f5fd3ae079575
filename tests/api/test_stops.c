/* test_stops.c - where a text ends, through the public API. Oracle: the output without any stop, decoded token by token and searched for
 * every stop string after each. Drafts let many tokens join in a round; the text must end at the same place. The test counts how its random
 * stops fall (within an accepted block, across token borders, at the first token, too early) and fails when one way did not happen.
 */
#include "api_fixture.h"

/* ---- the definition ---- */

struct stops {
  char texts[3][32];
  const char *list[3];
  size_t n;
  int32_t output_min;
  bool keep;
};

struct end {
  int32_t n; /* output tokens; 0: no stop */
  size_t begin, end; /* of the stop in the text */
};

/* Text after each token: lengths[i] bytes once i + 1 tokens joined. */
static void text_along(const struct api *api, const struct output *full, char *text, size_t lengths[OUTPUT_MAX]) {
  struct eaglet_detokenizer *decoder = eaglet_detokenizer_create(api->tokenizer);
  size_t length = 0;
  eaglet_detokenizer_skip_special(decoder, true);
  for (int32_t i = 0; i < full->n; i++) {
    const char *piece = eaglet_detokenizer_push(decoder, full->ids[i]);
    assert_true(length + strlen(piece) < TEXT_MAX);
    strcpy(text + length, piece);
    lengths[i] = length += strlen(piece);
  }
  eaglet_detokenizer_free(decoder);
}

/* The stop that is complete first with or after token output_min, the longest of those that end there. */
static struct end find_end(const struct stops *stops, const char *text, const size_t lengths[], int32_t n_tokens) {
  for (int32_t i = 0; i < n_tokens; i++) {
    if (i + 1 < stops->output_min) continue;
    for (size_t end = i > 0 ? lengths[i - 1] + 1 : 1; end <= lengths[i]; end++) {
      size_t longest = 0;
      for (size_t k = 0; k < stops->n; k++) {
        size_t length = strlen(stops->list[k]);
        if (length <= end && length > longest && memcmp(text + end - length, stops->list[k], length) == 0) longest = length;
      }
      if (longest > 0) return (struct end){i + 1, end - longest, end};
    }
  }
  return (struct end){0};
}

/* ---- random stops ---- */

static size_t pick(uint64_t *seed, size_t n) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (size_t)(*seed >> 33) % n;
}

/* Pieces of the text that will come, and sometimes one that goes on behind another or that never comes. */
static void stops_random(struct stops *s, const char *text, uint64_t *seed) {
  size_t length = strlen(text);
  *s = (struct stops){.n = 1 + pick(seed, 3), .keep = pick(seed, 3) == 0};
  s->output_min = pick(seed, 2) ? 0 : (int32_t)pick(seed, 24);
  for (size_t k = 0; k < s->n; k++) {
    size_t n = 1 + pick(seed, pick(seed, 2) ? 14 : 3), begin = pick(seed, 3) ? pick(seed, length - n) : 0;
    snprintf(s->texts[k], sizeof s->texts[k], "%.*s", (int)n, text + begin);
    if (k > 0 && pick(seed, 2)) snprintf(s->texts[k], sizeof s->texts[k], "%.16s%.*s", s->texts[0], (int)pick(seed, 3), "qe ");
    s->list[k] = s->texts[k];
  }
}

struct coverage {
  int n_within, n_across, n_first, n_early, n_cut, n_kept, n_missing;
};

static void cover(struct coverage *c, const struct stops *s, const struct output *o, const struct end *end, const char *text, const size_t lengths[]) {
  c->n_missing += end->n == 0;
  if (end->n == 0) return;
  struct stops late = *s;
  late.output_min = 0;
  struct end eager = find_end(&late, text, lengths, end->n);
  c->n_cut += o->stats.rounds_cut;
  c->n_within += o->drafted[end->n - 1];
  c->n_across += end->n > 1 && end->begin < lengths[end->n - 2];
  c->n_first += end->n == 1;
  c->n_early += eager.n > 0 && eager.n < end->n;
  c->n_kept += s->keep;
}

static void check_stop(const struct output *o, const struct output *full, const struct stops *s, const struct end *end, enum arm arm) {
  const char *what = s->list[0];
  if (end->n == 0) {
    assert_same_output(o, full, arm, what);
    return;
  }
  size_t length = s->keep ? end->end : end->begin;
  if (o->stop != EAGLET_STOP_STRING || o->n != end->n || o->length != length || memcmp(o->text, full->text, length) != 0)
    fail_msg("%s: stop '%s' of %zu (min %d): %d tokens, stop %d, '%s'; expected %d tokens, '%.*s'", arm_names[arm], what, s->n, s->output_min, o->n,
             (int)o->stop, o->text, end->n, (int)length, full->text);
  assert_memory_equal(o->ids, full->ids, (size_t)o->n * sizeof(int32_t));
}

#define ROUNDS 3 /* of TOGETHER_MAX random stops for each question */

static struct eaglet_sequence_params reply_params(const struct api *api, const struct ids *prompt) {
  return (struct eaglet_sequence_params){
      .prompt = prompt->ids, .n_prompt = (int32_t)prompt->n, .output_max = 40, .tokenizer = api->tokenizer, .ignore_stop = true};
}

static void try_stops(const struct api *api, const struct ids *prompt, struct coverage coverage[ARM_COUNT], uint64_t *seed) {
  struct eaglet_sequence_params params[TOGETHER_MAX];
  struct stops stops[TOGETHER_MAX];
  struct output full, outputs[TOGETHER_MAX];
  struct end ends[TOGETHER_MAX];
  char text[TEXT_MAX];
  size_t lengths[OUTPUT_MAX];
  params[0] = reply_params(api, prompt);
  run(api->engines[ARM_PLAIN], params, 1, &full);
  text_along(api, &full, text, lengths);
  assert_string_equal(text, full.text);
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < TOGETHER_MAX; i++) {
      stops_random(&stops[i], full.text, seed);
      ends[i] = find_end(&stops[i], full.text, lengths, full.n);
      params[i] = reply_params(api, prompt);
      params[i].stops = stops[i].list;
      params[i].n_stops = stops[i].n;
      params[i].keep_stop = stops[i].keep;
      params[i].output_min = stops[i].output_min;
    }
    for (int arm = 0; arm < ARM_COUNT; arm++) {
      run(api->engines[arm], params, TOGETHER_MAX, outputs);
      for (int i = 0; i < TOGETHER_MAX; i++) {
        check_stop(&outputs[i], &full, &stops[i], &ends[i], (enum arm)arm);
        cover(&coverage[arm], &stops[i], &outputs[i], &ends[i], full.text, lengths);
      }
    }
  }
}

static void test_random_stops(void **state) {
  const struct api *api = *state;
  struct ids prompts[QUESTIONS];
  struct coverage coverage[ARM_COUNT] = {0};
  uint64_t seed = 7;
  questions_render(api, prompts);
  for (int i = 0; i < QUESTIONS; i += 2) try_stops(api, &prompts[i], coverage, &seed);
  for (int arm = 0; arm < ARM_COUNT; arm++) {
    const struct coverage *c = &coverage[arm];
    assert_true(c->n_across >= 10 && c->n_first >= 5 && c->n_early >= 5 && c->n_kept >= 10 && c->n_missing >= 3);
    if (arm == ARM_CHAIN || arm == ARM_TREE) assert_true(c->n_within >= 20 && c->n_cut >= 20);
    if (arm == ARM_PLAIN) assert_true(c->n_within == 0 && c->n_cut == 0);
  }
  questions_free(prompts);
}

/* ---- by hand ---- */

/* Runs one text with these stops in every arm and expects what plain decoding says. */
static void check_text(const struct api *api, const struct eaglet_sequence_params *params, const char *text, enum eaglet_stop stop) {
  struct output o;
  for (int arm = 0; arm < ARM_COUNT; arm++) {
    run(api->engines[arm], params, 1, &o);
    if (strcmp(o.text, text) != 0 || o.stop != stop) fail_msg("%s: '%s' (%d), expected '%s' (%d)", arm_names[arm], o.text, (int)o.stop, text, (int)stop);
  }
}

static struct eaglet_constraint *regex(const struct api *api, const char *expression) {
  const struct eaglet_constraint_params params = {.tokenizer = api->tokenizer, .regex = expression};
  struct eaglet_constraint *constraint;
  struct eaglet_error err = {0};
  assert_ok(eaglet_constraint_create(&constraint, api->engines[ARM_PLAIN], &params, &err), &err);
  return constraint;
}

/* A stop that is too early is text, but its end may be the beginning of one that is not: "ababab" with "abab" stops at the second one,
 * which begins in the first. The constraint makes the text; single letters by bias make the tokens. */
static void test_overlap(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_text(api, "x"), a = ids_of_text(api, "a"), b = ids_of_text(api, "b");
  struct eaglet_constraint *constraint = regex(api, "abababcabab");
  const struct eaglet_logit_bias bias[] = {{a.ids[a.n - 1], 1000}, {b.ids[b.n - 1], 1000}};
  const char *stop = "abab";
  struct eaglet_sequence_params params = {.prompt = prompt.ids, .n_prompt = (int32_t)prompt.n, .tokenizer = api->tokenizer, .constraint = constraint,
                                          .bias = bias, .n_bias = 2, .stops = &stop, .n_stops = 1, .continues_prompt = true};
  check_text(api, &params, "", EAGLET_STOP_STRING);
  params.output_min = 4; /* complete with the fourth token */
  check_text(api, &params, "", EAGLET_STOP_STRING);
  params.output_min = 5;
  check_text(api, &params, "ab", EAGLET_STOP_STRING);
  params.output_min = 7;
  check_text(api, &params, "abababc", EAGLET_STOP_STRING);
  params.keep_stop = true;
  check_text(api, &params, "abababcabab", EAGLET_STOP_STRING);
  params.output_min = 12; /* the constraint's text is over before that */
  check_text(api, &params, "abababcabab", EAGLET_STOP_CONSTRAINT);
  eaglet_constraint_free(constraint);
  free(prompt.ids);
  free(a.ids);
  free(b.ids);
}

/* Characters of two to four bytes, in tokens that cut them: shown whole (every run checks it), stopped at, and left out when the length
 * ends within one. */
static void test_characters(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_text(api, "Some signs: ");
  struct eaglet_constraint *constraint = regex(api, "[\xc3\xa9\xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\x98\x80\xf0\x9f\x98\x81\xce\xb4]{24,}");
  const char *stop = "\xe6\x9c\xac"; /* one of the seven */
  struct eaglet_sequence_params params[TOGETHER_MAX];
  struct output outputs[TOGETHER_MAX];
  int n_stopped = 0, n_split = 0;
  for (int i = 0; i < TOGETHER_MAX; i++)
    params[i] = (struct eaglet_sequence_params){.prompt = prompt.ids, .n_prompt = (int32_t)prompt.n, .tokenizer = api->tokenizer, .seed = (uint64_t)i,
                                                .constraint = constraint, .temperature = 2, .output_max = 20 + i, .stops = &stop, .n_stops = i % 2};
  for (int arm = 0; arm < ARM_COUNT; arm++) {
    run(api->engines[arm], params, TOGETHER_MAX, outputs);
    for (int i = 0; i < TOGETHER_MAX; i++) {
      assert_true(outputs[i].n_shown > 1 || outputs[i].stop == EAGLET_STOP_STRING);
      n_stopped += outputs[i].stop == EAGLET_STOP_STRING;
      n_split += strstr(outputs[i].text, "\xef\xbf\xbd") != NULL;
      if (i % 2) assert_null(strstr(outputs[i].text, stop));
    }
  }
  assert_true(n_stopped > 0 && n_split > 0);
  eaglet_constraint_free(constraint);
  free(prompt.ids);
}

/* ---- stop tokens and lengths ---- */

/* Any id can be a stop token, wherever it falls; it is the output's last and no text (G03). The length says nothing before it does (G04). */
static void test_stop_ids(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_question(api, questions[0]);
  struct eaglet_sequence_params params = reply_params(api, &prompt), shorter;
  struct output full, o;
  char text[TEXT_MAX];
  size_t lengths[OUTPUT_MAX];
  run(api->engines[ARM_PLAIN], &params, 1, &full);
  text_along(api, &full, text, lengths);
  for (int32_t i = 0; i < 12; i++) {
    int32_t first = 0;
    while (full.ids[first] != full.ids[i]) first++;
    params.stop_ids = &full.ids[i];
    params.n_stop_ids = 1;
    for (int arm = 0; arm < ARM_COUNT; arm++) {
      for (int32_t length = first; length < first + 3; length++) {
        shorter = params;
        shorter.output_max = length;
        if (length == 0) continue;
        run(api->engines[arm], &shorter, 1, &o);
        int32_t n = length < first + 1 ? length : first + 1, n_text = n - (length > first);
        assert_int_equal(o.n, n);
        assert_int_equal(o.stop, length > first ? EAGLET_STOP_TOKEN : EAGLET_STOP_LENGTH);
        assert_memory_equal(o.ids, full.ids, (size_t)n * sizeof(int32_t));
        assert_int_equal(o.length, n_text > 0 ? lengths[n_text - 1] : 0);
        assert_memory_equal(o.text, full.text, o.length);
      }
    }
  }
  free(prompt.ids);
}

/* The model's own end of turn: the output has it, the text doesn't. */
static void test_end_of_turn(void **state) {
  const struct api *api = *state;
  struct ids prompts[QUESTIONS];
  struct eaglet_sequence_params params[QUESTIONS];
  struct output plain[QUESTIONS], o[QUESTIONS];
  int n_ended = 0;
  questions_render(api, prompts);
  for (int i = 0; i < QUESTIONS; i++) {
    params[i] = reply_params(api, &prompts[i]);
    params[i].ignore_stop = false;
    params[i].output_max = OUTPUT_MAX;
  }
  run(api->engines[ARM_PLAIN], params, QUESTIONS, plain);
  for (int i = 0; i < QUESTIONS; i++) {
    struct eaglet_text text;
    struct eaglet_error err = {0};
    bool ended = plain[i].stop == EAGLET_STOP_TOKEN;
    n_ended += ended;
    assert_ok(eaglet_detokenize(api->tokenizer, plain[i].ids, (size_t)(plain[i].n - ended), &text, &err), &err);
    assert_string_equal(plain[i].text, text.data);
    eaglet_text_clear(&text);
  }
  assert_true(n_ended >= 2);
  for (int arm = ARM_CHAIN; arm < ARM_COUNT; arm++) {
    run(api->engines[arm], params, QUESTIONS, o);
    for (int i = 0; i < QUESTIONS; i++) assert_same_output(&o[i], &plain[i], (enum arm)arm, questions[i]);
  }
  questions_free(prompts);
}

static void test_lengths(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_question(api, questions[1]);
  struct eaglet_sequence_params params[TOGETHER_MAX];
  struct output full, outputs[TOGETHER_MAX];
  params[0] = reply_params(api, &prompt);
  run(api->engines[ARM_PLAIN], params, 1, &full);
  for (int arm = 0; arm < ARM_COUNT; arm++) {
    for (int32_t first = 1; first <= 2 * TOGETHER_MAX; first += TOGETHER_MAX) {
      for (int i = 0; i < TOGETHER_MAX; i++) {
        params[i] = reply_params(api, &prompt);
        params[i].output_max = first + i;
      }
      run(api->engines[arm], params, TOGETHER_MAX, outputs);
      for (int i = 0; i < TOGETHER_MAX; i++) {
        assert_int_equal(outputs[i].n, first + i);
        assert_int_equal(outputs[i].stop, EAGLET_STOP_LENGTH);
        assert_memory_equal(outputs[i].ids, full.ids, (size_t)outputs[i].n * sizeof(int32_t));
        assert_memory_equal(outputs[i].text, full.text, outputs[i].length);
      }
    }
  }
  free(prompt.ids);
}

/* A full context ends a text as well, and says so. */
static void test_context(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_question(api, questions[1]);
  int32_t *ids = memory_alloc(CONTEXT * sizeof *ids);
  for (int32_t i = 0; i < CONTEXT - 5; i++) ids[i] = prompt.ids[(size_t)i % prompt.n];
  struct eaglet_sequence_params params = {
      .prompt = ids, .n_prompt = CONTEXT - 5, .output_max = 50, .tokenizer = api->tokenizer, .ignore_stop = true};
  struct output plain, o;
  run(api->engines[ARM_PLAIN], &params, 1, &plain);
  assert_int_equal(plain.stop, EAGLET_STOP_CONTEXT);
  assert_int_equal(plain.n, 5);
  for (int arm = ARM_CHAIN; arm < ARM_COUNT; arm++) {
    run(api->engines[arm], &params, 1, &o);
    assert_same_output(&o, &plain, (enum arm)arm, "context");
  }
  free(ids);
  free(prompt.ids);
}

/* ---- refusals ---- */

static void test_refusals(void **state) {
  const struct api *api = *state;
  struct ids prompt = ids_of_text(api, "x");
  const char *list[65], *empty = "", *broken = "\xc3", *fine = "a";
  const int32_t outside = 1 << 20;
  struct eaglet_sequence_params params = {.prompt = prompt.ids, .n_prompt = (int32_t)prompt.n, .stops = &fine, .n_stops = 1};
  struct eaglet_sequence *s;
  struct eaglet_error err = {0};
  assert_refused(eaglet_sequence_create(&s, api->engines[0], &params, &err), EAGLET_E_USAGE, &err, "need the tokenizer");
  assert_null(s);
  params.tokenizer = api->tokenizer;
  params.stops = &empty;
  assert_refused(eaglet_sequence_create(&s, api->engines[0], &params, &err), EAGLET_E_USAGE, &err, "empty");
  params.stops = &broken;
  assert_refused(eaglet_sequence_create(&s, api->engines[0], &params, &err), EAGLET_E_USAGE, &err, "UTF-8");
  for (int i = 0; i < 65; i++) list[i] = fine;
  params.stops = list;
  params.n_stops = 65;
  assert_refused(eaglet_sequence_create(&s, api->engines[0], &params, &err), EAGLET_E_USAGE, &err, "at most 64");
  params.n_stops = 0;
  params.stop_ids = &outside;
  params.n_stop_ids = 1;
  assert_refused(eaglet_sequence_create(&s, api->engines[0], &params, &err), EAGLET_E_USAGE, &err, "1048576");
  free(prompt.ids);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_stops), cmocka_unit_test(test_overlap), cmocka_unit_test(test_characters), cmocka_unit_test(test_stop_ids),
      cmocka_unit_test(test_end_of_turn),  cmocka_unit_test(test_lengths), cmocka_unit_test(test_context),    cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests_name("api_stops", tests, api_create, api_remove);
}
