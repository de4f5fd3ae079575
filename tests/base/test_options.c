/* test_options.c - one option table parsed from command lines (table of good and bad ones), from config files, and turned into help, man
 * page, completion and an ini file that reads back to the same values. */
#include "base/options.h"
#include "support.h"

struct values {
  bool verbose, json;
  int32_t tokens;
  uint64_t seed;
  double lr;
  float temperature;
  const char *out, *config;
  struct option_list data;
  int precision;
  struct option own[10], common[3];
  const struct option *tables[3];
  struct options_spec spec;
  struct options_result result;
  struct eaglet_error err;
  char line[512];
};

static void values_init(struct values *v) {
  *v = (struct values){.tokens = 256, .lr = 1e-3};
  const struct option own[] = {
      {.kind = OPTION_INT, .name = "max-tokens", .letter = 'n', .value = &v->tokens, .argument = "N", .help = "tokens", .min = 1, .max = 1000},
      {.kind = OPTION_UINT64, .name = "seed", .value = &v->seed, .argument = "S", .help = "seed"},
      {.kind = OPTION_DOUBLE, .name = "lr", .value = &v->lr, .argument = "X", .help = "learning rate"},
      {.kind = OPTION_FLOAT, .name = "temperature", .letter = 't', .value = &v->temperature, .argument = "T", .help = "0 = greedy", .min = 0, .max = 10},
      {.kind = OPTION_STRING, .name = "out", .letter = 'o', .value = &v->out, .argument = "DIR", .help = "where to", .required = true},
      {.kind = OPTION_LIST, .name = "data", .letter = 'd', .value = &v->data, .argument = "FILE", .help = "JSONL files"},
      {.kind = OPTION_CHOICE, .name = "precision", .value = &v->precision, .argument = "exact|fast", .help = "arithmetic"},
      {.kind = OPTION_FLAG, .name = "verbose", .letter = 'v', .value = &v->verbose, .help = "tell a lot about everything that happens, in so many words that it needs a second line in the help"},
      OPTION_END,
  };
  const struct option common[] = {
      {.kind = OPTION_STRING, .name = "config", .value = &v->config, .argument = "FILE", .help = "ini file", .heading = "limits"},
      {.kind = OPTION_FLAG, .name = "json", .letter = 'j', .value = &v->json, .help = "JSON"},
      OPTION_END,
  };
  memcpy(v->own, own, sizeof own);
  memcpy(v->common, common, sizeof common);
  v->tables[0] = v->own;
  v->tables[1] = v->common;
  v->spec = (struct options_spec){.command = "train", .usage = "MODEL --out DIR", .summary = "trains", .description = ".dotted\n",
                                  .tables = v->tables, .n_positional_min = 1, .n_positional_max = 2};
}

static void values_clear(struct values *v) {
  options_list_clear(&v->data);
  options_release(&v->result);
}

/* Splits line at blanks ("_" is an empty argument) and parses it. */
static enum eaglet_status parse(struct values *v, const char *line) {
  char *copy = v->line;
  char *argv[32] = {"train"};
  int argc = 1;
  values_init(v);
  snprintf(copy, sizeof v->line, "%s", line);
  for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[argc++] = strcmp(word, "_") ? word : "";
  return options_parse(&v->spec, argc, argv, &v->result, &v->err);
}

static void test_every_kind(void **state) {
  (void)state;
  struct values v;
  assert_int_equal(parse(&v, "m -n 5 --seed=18446744073709551615 --lr 5e-5 -t0.5 --out d -d a b --data c --precision fast -vj"), EAGLET_OK);
  assert_int_equal(v.result.n_positional, 1);
  assert_string_equal(v.result.positional[0], "m");
  assert_int_equal(v.tokens, 5);
  assert_true(v.seed == UINT64_MAX && v.lr == 5e-5 && v.temperature == 0.5f);
  assert_string_equal(v.out, "d");
  assert_int_equal(v.data.n, 3);
  assert_string_equal(v.data.values[1], "b");
  assert_string_equal(v.data.values[2], "c");
  assert_int_equal(v.precision, 2);
  assert_true(v.verbose && v.json);
  values_clear(&v);
  assert_int_equal(parse(&v, "--out -x --data - a -- -m"), EAGLET_OK); /* -x and - are values, behind -- nothing is an option */
  assert_string_equal(v.out, "-x");
  assert_int_equal(v.data.n, 2);
  assert_string_equal(v.result.positional[0], "-m");
  assert_true(v.tokens == 256 && v.precision == 0); /* untouched defaults */
  values_clear(&v);
}

static void test_usage_errors(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"m", "--out is required"},
      {"--out d", "expected 1 argument (MODEL --out DIR), found 0"},
      {"--out d --data a b m", "what stands behind --data belongs to it"},
      {"m --out d x y", "unexpected argument 'y'"},
      {"m --out", "--out: expected DIR behind it, found nothing"},
      {"m --out --json", "--out: expected DIR behind it, found --json"},
      {"m --out d --max-token 5", "unknown option --max-token; did you mean --max-tokens?"},
      {"m --out d --tempreature 1", "did you mean --temperature?"},
      {"m --out d --max_tokens 5", "did you mean --max-tokens?"},
      {"m --out d --prec fast", "did you mean --precision?"},
      {"m --out d --zebra", "unknown option --zebra"},
      {"m --out d -z", "unknown option -z"},
      {"m --out d -n x", "--max-tokens: expected a whole number, found 'x'"},
      {"m --out d -n 5x", "found '5x'"},
      {"m --out d -n 1.5", "found '1.5'"},
      {"m --out d -n _", "found ''"},
      {"m --out d -n 0", "expected a number from 1 to 1000, found '0'"},
      {"m --out d -n 99999999999999999999", "from 1 to 1000"},
      {"m --out d --seed -1", "--seed: expected a whole number, found '-1'"},
      {"m --out d --seed 18446744073709551616", "out of range"},
      {"m --out d --lr nan", "out of range"},
      {"m --out d --lr inf", "out of range"},
      {"m --out d -t 11", "from 0 to 10"},
      {"m --out d --precision exac", "--precision: expected one of exact|fast, found 'exac'"},
      {"m --out d --json=yes", "--json: takes no value, found 'yes'"},
      {"m --out d -n 5 -n 6", "--max-tokens: given twice, as '5' and '6'"},
      {"m --out d --config /no/such.ini", "/no/such.ini: cannot open"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct values v;
    enum eaglet_status status = parse(&v, cases[i][0]);
    if (status == EAGLET_OK || !strstr(v.err.message, cases[i][1])) fail_msg("'%s': status %d, '%s'", cases[i][0], status, v.err.message);
    assert_int_equal(status, strstr(cases[i][1], "cannot open") ? EAGLET_E_INPUT : EAGLET_E_USAGE);
    values_clear(&v);
  }
  struct values v;
  assert_int_equal(parse(&v, "m --out d --zebra"), EAGLET_E_USAGE);
  assert_null(strstr(v.err.message, "mean")); /* nothing is near */
  values_clear(&v);
  assert_int_equal(parse(&v, "m --out d -n 5 -n 5 -v -v"), EAGLET_OK); /* an agreeing repeat */
  values_clear(&v);
}

static void test_help_wins(void **state) {
  (void)state;
  struct values v;
  assert_int_equal(parse(&v, "--help --nonsense"), EAGLET_OK);
  assert_true(v.result.help);
  values_clear(&v);
  assert_int_equal(parse(&v, "m -h"), EAGLET_OK);
  assert_true(v.result.help);
  values_clear(&v);
}

static enum eaglet_status parse_config(struct values *v, const char *directory, const char *text, const char *rest) {
  char *path = file_join(directory, "run.ini"), *line = memory_format("m --config %s %s", path, rest);
  assert_int_equal(file_write(path, text, strlen(text), NULL), EAGLET_OK);
  enum eaglet_status status = parse(v, line);
  free(path);
  free(line);
  return status;
}

static void test_config_fills_what_is_not_given(void **state) {
  struct values v;
  const char *text = "; comment\n# another\n[train]\nmax-tokens = 7\nlr=2e-4\nout = some dir\ndata = a\ndata = b\nprecision=exact\njson = yes\n"
                     "verbose = off\n";
  assert_int_equal(parse_config(&v, *state, text, "--lr 0.5 --out mine"), EAGLET_OK);
  assert_int_equal(v.tokens, 7);
  assert_true(v.lr == 0.5 && v.json && !v.verbose);
  assert_string_equal(v.out, "mine");
  assert_int_equal(v.data.n, 2);
  assert_string_equal(v.data.values[1], "b");
  assert_int_equal(v.precision, 1);
  values_clear(&v);
  assert_int_equal(parse_config(&v, *state, text, "--data x"), EAGLET_OK); /* a required option may come from the file */
  assert_string_equal(v.out, "some dir");
  assert_int_equal(v.data.n, 1);
  values_clear(&v);
}

static void test_config_errors(void **state) {
  static const char *const cases[][2] = {
      {"max-tokens = 5\nmax-token = 6\n", "run.ini: line 2: unknown key 'max-token'; did you mean 'max-tokens'?"},
      {"max-tokens = 5000\n", "run.ini: line 1: max-tokens: expected a number from 1 to 1000"},
      {"[generate]\nlr = 1\n", "run.ini: line 2: section [generate], expected [train] or none"},
      {"json = maybe\n", "line 1: json: expected true or false, found 'maybe'"},
      {"lr = 1\nlr = 1\n", "line 2: lr: given twice"},
      {"config = other.ini\n", "unknown key 'config'"},
      {"\njust words\n", "run.ini: line 2: expected 'key = value'"},
      {"[open\n", "line 1: expected 'key = value'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct values v;
    enum eaglet_status status = parse_config(&v, *state, cases[i][0], "--out d");
    if (status != EAGLET_E_USAGE || !strstr(v.err.message, cases[i][1])) fail_msg("'%s': status %d, '%s'", cases[i][0], status, v.err.message);
    values_clear(&v);
  }
  struct values v;
  char *line = memory_format("\nout = %0300d\n", 1);
  assert_int_equal(parse_config(&v, *state, line, ""), EAGLET_E_USAGE);
  assert_non_null(strstr(v.err.message, "line 2: expected at most 190 characters, found 306"));
  values_clear(&v);
  free(line);
}

static void test_resolved_ini_reads_back(void **state) {
  struct values v, back;
  assert_int_equal(parse(&v, "m --out dir --lr 0.1 -t 0.3 --seed 18446744073709551615 -d a -d b;c --precision fast -v"), EAGLET_OK);
  struct eaglet_text ini = options_resolved_ini(&v.spec);
  assert_non_null(strstr(ini.data, "[train]\nmax-tokens = 256\n"));
  assert_non_null(strstr(ini.data, "lr = 0.1\ntemperature = 0.3\n"));
  assert_int_equal(parse_config(&back, *state, ini.data, ""), EAGLET_OK);
  assert_true(back.lr == v.lr && back.temperature == v.temperature && back.seed == v.seed && back.precision == 2 && back.verbose && !back.json);
  assert_string_equal(back.out, "dir");
  assert_int_equal(back.data.n, 2);
  assert_string_equal(back.data.values[1], "b;c");
  free(ini.data);
  values_clear(&v);
  values_clear(&back);
  values_init(&v); /* defaults that their own range refuses become comments */
  v.tokens = 0;
  v.out = "x ; y";
  ini = options_resolved_ini(&v.spec);
  assert_non_null(strstr(ini.data, "# max-tokens = (default)\n"));
  assert_non_null(strstr(ini.data, "# out: this value cannot be written"));
  assert_non_null(strstr(ini.data, "# precision = (default)\n"));
  free(ini.data);
  values_clear(&v);
}

static void test_generated_texts(void **state) {
  (void)state;
  struct values v;
  values_init(&v);
  struct eaglet_text help = options_help(&v.spec);
  assert_memory_equal(help.data, "usage: eaglet train MODEL --out DIR\n\ntrains\n\n.dotted\n\noptions:\n", 61);
  assert_non_null(strstr(help.data, "\n  -n, --max-tokens N      tokens\n"));
  assert_non_null(strstr(help.data, "\n      --seed S            seed\n"));
  assert_non_null(strstr(help.data, "where to (required)\n"));
  assert_non_null(strstr(help.data, "  -d, --data FILE...      JSONL"));
  assert_non_null(strstr(help.data, "  -h, --help"));
  assert_non_null(strstr(help.data, "\n\nlimits:\n"));
  for (const char *line = help.data; *line; line += strcspn(line, "\n"), line += *line == '\n') assert_true(strcspn(line, "\n") <= 100);
  free(help.data);
  struct eaglet_text man = options_man(&v.spec);
  assert_non_null(strstr(man.data, ".TH \"EAGLET\\-TRAIN\" 1"));
  assert_non_null(strstr(man.data, "\n\\&.dotted\n"));
  assert_non_null(strstr(man.data, ".TP\n.B \\-n, \\-\\-max\\-tokens \\fIN\\fR\n"));
  free(man.data);
  const struct options_spec *specs[] = {&v.spec, &v.spec};
  struct eaglet_text completion = options_completion_bash(specs, 2);
  assert_non_null(strstr(completion.data, "*:--precision) COMPREPLY=($(compgen -W 'exact fast' "));
  assert_non_null(strstr(completion.data, "train) COMPREPLY=($(compgen -W '--help --max-tokens --seed"));
  free(completion.data);
  values_clear(&v);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_kind),
      cmocka_unit_test(test_usage_errors),
      cmocka_unit_test(test_help_wins),
      cmocka_unit_test(test_config_fills_what_is_not_given),
      cmocka_unit_test(test_config_errors),
      cmocka_unit_test(test_resolved_ini_reads_back),
      cmocka_unit_test(test_generated_texts),
  };
  return cmocka_run_group_tests_name("options", tests, scratch_create, scratch_remove);
}
