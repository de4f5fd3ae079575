/* cmd_prepare.c - `eaglet prepare`. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>

static void print_sources(const json_t *document) {
  const char *name;
  json_t *source;
  json_object_foreach(json_object_get(document, "sources"), name, source) {
    printf("  %-20s %8.0f rows %10.0f tokens %10.0f trained\n", name, cli_number(source, "rows"), cli_number(source, "tokens"),
           cli_number(source, "trained_tokens"));
  }
}

static void print_counted(const json_t *document, const char *key, const char *what) {
  double n = cli_number(document, key);
  if (n > 0) printf("  %.0f %s\n", n, what);
}

/* "a, b, c"; the first few of many. */
static void print_names(const char *what, const json_t *names) {
  const size_t n_max = 12;
  size_t i;
  const json_t *name;
  if (json_array_size(names) == 0) return;
  printf("  %s:", what);
  json_array_foreach(names, i, name) {
    if (i < n_max) printf("%s %s", i ? "," : "", json_string_value(name));
  }
  if (i > n_max) printf(" and %zu more", i - n_max);
  printf("\n");
}

/* What the data was taken for. */
static void print_reading(const json_t *reading) {
  const char *name;
  json_t *value;
  size_t n = 0;
  print_names("fields used", json_object_get(reading, "fields_used"));
  print_names("fields ignored", json_object_get(reading, "fields_ignored"));
  json_object_foreach(json_object_get(reading, "roles"), name, value) printf("%s%s = %s", n++ ? ", " : "  roles: ", name, json_string_value(value));
  if (n > 0) printf("\n");
  json_object_foreach(json_object_get(reading, "bad"), name, value) printf("  passed over %lld bad rows: %s\n", (long long)json_integer_value(value), name);
  if (cli_number(reading, "ids_twice") > 0)
    printf("  %.0f rows have an id that an earlier row has, the first: %s (rows are known by their content)\n", cli_number(reading, "ids_twice"),
           json_string_value(json_object_get(reading, "first_id_twice")));
  print_names("files not read", json_object_get(reading, "files_ignored"));
}

static void print_prepared(const json_t *document) {
  const char *again = json_string_value(json_object_get(document, "prepared_again"));
  if (json_is_true(json_object_get(document, "reused"))) printf("prepared before from the same data with the same settings: kept as it is (--force prepares again)\n");
  if (again) printf("prepared again, because of %s\n", again);
  printf("%.0f conversations read, %.0f kept in %.0f rows, %.0f tokens, %.0f trained (%.1f %%)\n", cli_number(document, "rows_read"),
         cli_number(document, "conversations_kept"), cli_number(document, "rows_kept"), cli_number(document, "tokens"), cli_number(document, "trained_tokens"), 100 * cli_number(document, "trained_share"));
  print_sources(document);
  print_counted(document, "rows_clipped", "rows cut to the longest allowed");
  print_counted(document, "replies_cut", "replies cut or left out by that (a reply that is cut is not trained)");
  print_counted(document, "replies_without_end", "replies that the template ends with no token");
  const char *layout, *reason;
  json_t *rows;
  json_object_foreach(json_object_get(document, "layouts"), layout, rows) {
    printf("  read %lld rows as %s\n", (long long)json_integer_value(rows), layout);
  }
  print_reading(json_object_get(document, "reading"));
  json_t *count;
  json_object_foreach(json_object_get(document, "dropped"), reason, count) {
    if (json_integer_value(count) > 0) printf("  dropped %lld: %s\n", (long long)json_integer_value(count), reason);
  }
}

int cmd_prepare(struct cli *cli, int argc, char **argv) {
  struct option_list data = {0}, arguments = {0}, keep_out = {0};
  int train_on = 0, rows = 0;
  bool all_turns = false;
  double trained_max = 0;
  char *arguments_json = NULL;
  struct eaglet_prepare_params params = {.hub_cache = cli->env.hub_cache};
  const struct option own[] = {
      {.kind = OPTION_LIST, .name = "data", .value = &data, .argument = "FILE", .help = "files of conversations (JSON lines, JSON, Parquet; also .gz, .zst), folders of such, quoted patterns, - for standard input", .required = true},
      {.kind = OPTION_STRING, .name = "map", .value = &params.map, .argument = "MAP", .help = "names of fields and roles, as messages=dialog,role=speaker,content=text,assistant=bot (docs/DATA.md)"},
      {.kind = OPTION_DOUBLE, .name = "max-bad", .value = &params.bad_percent_max, .argument = "PERCENT", .help = "pass over malformed rows up to this share of all (default 0: the first is an error)", .min = 0, .max = 100},
      {.kind = OPTION_INT, .name = "max-row", .value = &params.row_mib_max, .argument = "MIB", .help = "longest row that is read (default 256)", .min = 1, .max = 1 << 16},
      {.kind = OPTION_FLAG, .name = "strict", .value = &params.strict, .help = "refuse unknown roles and lines that are too long instead of counting them"},
      {.kind = OPTION_STRING, .name = "out", .letter = 'o', .value = &params.out, .argument = "DIR", .help = "where the shards go", .required = true},
      {.kind = OPTION_INT, .name = "max-len", .value = &params.tokens_max, .argument = "N", .help = "tokens kept of a row (default 2048)", .min = 8, .max = 1 << 20},
      {.kind = OPTION_DOUBLE, .name = "validation", .value = &params.validation, .argument = "X", .help = "share of conversations kept for validation (default 0.05; below 0: none)", .min = -1, .max = 0.5},
      {.kind = OPTION_FLAG, .name = "last-turn", .value = &params.last_turn_only, .help = "train only the last assistant turn"},
      {.kind = OPTION_FLAG, .name = "all-turns", .value = &all_turns, .help = "train every assistant turn (the default)"},
      {.kind = OPTION_CHOICE, .name = "train-on", .value = &train_on, .argument = "both|thinking|answer", .help = "which part of a reply is trained (default both)"},
      {.kind = OPTION_CHOICE, .name = "rows", .value = &rows, .argument = "auto|conversation", .help = "auto: a reply that the template writes differently once others follow gets a row of its own, as the model saw it; conversation: always one row (default auto)"},
      {.kind = OPTION_DOUBLE, .name = "max-trained", .value = &trained_max, .argument = "PERCENT", .help = "refuse data of which more is trained: its mask is likely wrong (default 95)", .min = 1, .max = 100},
      {.kind = OPTION_LIST, .name = "keep-out", .value = &keep_out, .argument = "FILE", .help = "prompts of test sets: conversations that hold one are dropped"},
      {.kind = OPTION_FLAG, .name = "allow-special-in-content", .value = &params.special_in_content, .help = "special-token text inside messages becomes special tokens"},
      {.kind = OPTION_FLAG, .name = "force", .value = &params.force, .help = "prepare again even when nothing changed since"},
      CLI_TEMPLATE_ARG(arguments),
      {.kind = OPTION_FLAG, .name = "regenerate", .value = &params.regenerate, .help = "replace each assistant turn by the target's own answer (on-policy data)"},
      {.kind = OPTION_FLOAT, .name = "temperature", .value = &params.temperature, .argument = "T", .help = "of the regeneration (default 0: greedy)", .min = 0, .max = 10},
      {.kind = OPTION_INT, .name = "max-tokens", .value = &params.reply_tokens_max, .argument = "N", .help = "tokens of a regenerated reply (default 256)", .min = 1, .max = 1 << 20},
      {.kind = OPTION_INT, .name = "concurrency", .value = &params.concurrency, .argument = "N", .help = "sequences regenerated at once (default 16)", .min = 1, .max = 4096},
      {.kind = OPTION_UINT64, .name = "seed", .value = &params.seed, .argument = "S", .help = "of sampling and of the validation split (default 0)"},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "prepare", .usage = "MODEL --data FILE... --out DIR [--regenerate]", .summary = "conversations to token shards",
      .description = "Renders every conversation with the target's own template and marks exactly the reply tokens (end-of-turn included).\n"
                     "Rows without anything to learn are dropped by a named rule and counted. Rows are ShareGPT's (conversations: from, value),\n"
                     "OpenAI's (messages: role, content), Alpaca's (instruction, input, output, history, system), or prompt/completion,\n"
                     "prompt/response, query/response, question/answer, or token ids with a mask (input_ids and loss_mask, labels or\n"
                     "assistant_masks); roles human, user | gpt, assistant, model | system, developer |\n"
                     "tool, observation, function | function_call. Other names are given with --map. What was met is printed at the end.\n"
                     "--regenerate resumes after an interruption.\n"
                     "\n  eaglet prepare models/nano-kimi --data samples/dialogue.jsonl --regenerate --out run/data\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code == CLI_GO) {
    params.model = result.positional[0];
    params.ignore_index = cli->ignore_index;
    params.data = data.values;
    params.n_data = data.n;
    params.keep_out = keep_out.values;
    params.n_keep_out = keep_out.n;
    params.train_on = (enum eaglet_train_on)train_on;
    params.rows = (enum eaglet_rows)rows;
    params.trained_max = trained_max / 100;
    params.threads = cli->threads;
    params.progress = progress_callbacks(&cli->progress);
    struct eaglet_text report = {0};
    struct eaglet_error err = {0};
    enum eaglet_status status = all_turns && params.last_turn_only
                                    ? error_set(&err, EAGLET_E_USAGE, "--last-turn and --all-turns: expected one of them")
                                    : cli_template_arguments(&arguments_json, &arguments, &err);
    params.arguments_json = arguments_json;
    if (status == EAGLET_OK) status = eaglet_prepare(&params, &report, &err);
    code = cli_finish_json(cli, status, &err, &report, print_prepared);
  }
  options_list_clear(&data);
  options_list_clear(&keep_out);
  options_list_clear(&arguments);
  free(arguments_json);
  return code;
}
