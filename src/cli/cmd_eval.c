/* cmd_eval.c - `eaglet eval`. */
#include "cli/tables.h"

#include "base/file.h"

#include <stdio.h>

static const char *text_of(const json_t *document, const char *path) {
  const char *text = json_string_value(cli_at(document, path));
  return text ? text : "?";
}

/* What the numbers depend on, by the names of the document (case G26). */
static void print_settings(const json_t *document) {
  const json_t *files = json_object_get(document, "prompt_files"), *file;
  size_t i;
  printf("drafter %s: %s, draft_len %.0f, draft_width %.0f, draft_tokens %.0f; temperature %g, max_tokens %.0f, concurrency %.0f\n",
         text_of(document, "drafter"), text_of(document, "shape"), cli_number(document, "draft_len"), cli_number(document, "draft_width"),
         cli_number(document, "draft_tokens"), cli_number(document, "temperature"), cli_number(document, "max_tokens"),
         cli_number(document, "concurrency"));
  printf("template %s (xxh3 %s); prompts %.0f of", text_of(document, "template.file"), text_of(document, "template.xxh3"),
         cli_number(document, "prompts"));
  json_array_foreach(files, i, file) printf(" %s", json_string_value(file));
  puts("\n");
}

/* speeds: where the row's are. */
static void print_counts(const char *name, const json_t *row, const json_t *speeds) {
  printf("%-20s %7.0f %13.0f %17.3f %18.3f", name, cli_number(row, "prompts"), cli_number(row, "output_tokens"), cli_number(row, "acceptance_length"),
         cli_number(row, "accepted_per_round"));
  if (json_object_get(speeds, "speedup")) printf(" %7.2fx", cli_number(speeds, "speedup"));
  putchar('\n');
}

static void print_shares(const char *name, const json_t *shares) {
  size_t i;
  json_t *share;
  printf("  %-18s", name);
  json_array_foreach(shares, i, share) printf(" %.2f", json_number_value(share));
  putchar('\n');
}

static void print_shares_of_all(const json_t *document, const char *key) {
  const char *name;
  json_t *row;
  char path[64];
  snprintf(path, sizeof path, "definitions.%s", key);
  printf("\n%s: %s\n", key, text_of(document, path));
  json_object_foreach(json_object_get(document, "sources"), name, row) print_shares(name, json_object_get(row, key));
  print_shares("overall", json_object_get(json_object_get(document, "overall"), key));
}

static void print_contexts(const json_t *overall) {
  const json_t *buckets = json_object_get(overall, "by_context"), *bucket;
  size_t i;
  if (json_array_size(buckets) < 2) return;
  printf("\nacceptance_length by tokens of context:");
  json_array_foreach(buckets, i, bucket) printf("  %.0f+: %.3f", cli_number(bucket, "from"), cli_number(bucket, "acceptance_length"));
  putchar('\n');
}

static void print_speeds(const json_t *document) {
  const json_t *identical = json_object_get(document, "identical");
  if (!json_object_get(document, "speedup")) return;
  printf("\nplain_tok_s %.0f, draft_tok_s %.0f: speedup %.2fx (%.2fx with the prompts' time; %.2fx when every round drafts)\n",
         cli_number(document, "plain_tok_s"), cli_number(document, "draft_tok_s"), cli_number(document, "speedup"),
         cli_number(document, "speedup_total"), cli_number(document, "fixed_speedup"));
  if (json_object_get(document, "speculation")) printf("%s\n", text_of(document, "speculation"));
  if (json_is_boolean(identical)) printf("greedy output %s\n", json_is_true(identical) ? "identical" : "NOT identical");
}

static void print_eval(const json_t *document) {
  const json_t *overall = json_object_get(document, "overall");
  const char *name;
  json_t *row;
  print_settings(document);
  printf("%-20s %7s %13s %17s %18s%s\n", "source", "prompts", "output_tokens", "acceptance_length", "accepted_per_round",
         json_object_get(document, "speedup") ? "  speedup" : "");
  json_object_foreach(json_object_get(document, "sources"), name, row) print_counts(name, row, row);
  print_counts("overall", overall, document);
  printf("acceptance_length: %s\n", text_of(document, "definitions.acceptance_length"));
  print_shares_of_all(document, "per_position");
  print_shares_of_all(document, "conditional");
  print_contexts(overall);
  print_speeds(document);
}

static enum eaglet_status write_page(const char *path, const struct eaglet_text *json, struct eaglet_error *err) {
  const struct eaglet_report_params params = {.title = "eaglet eval", .eval_json = json->data};
  struct eaglet_text html = {0};
  TRY(eaglet_report_html(&params, &html, err));
  enum eaglet_status status = file_write(path, html.data, html.length, err);
  eaglet_text_clear(&html);
  return status;
}

int cmd_eval(struct cli *cli, int argc, char **argv) {
  struct option_list prompts = {0};
  struct cli_drafting who = {0};
  struct option drafting[CLI_DRAFTING_OPTIONS];
  const char *html = NULL;
  struct eaglet_eval_params params = {.hub_cache = cli->env.hub_cache};
  const struct option own[] = {
      {.kind = OPTION_LIST, .name = "prompts", .value = &prompts, .argument = "FILE", .help = "JSONL, one conversation a row, with an optional source that names its group", .required = true, .heading = "what is evaluated"},
      {.kind = OPTION_INT, .name = "max-tokens", .value = &params.tokens_max, .argument = "N", .help = "tokens per prompt (default 96)", .min = 1, .max = 1 << 20},
      {.kind = OPTION_INT, .name = "max-prompts", .value = &params.prompts_max, .argument = "N", .help = "prompts per source (default: all)", .min = 1, .max = 1e9},
      {.kind = OPTION_FLOAT, .name = "temperature", .value = &params.temperature, .argument = "T", .help = "0: greedy (default)", .min = 0, .max = 10},
      {.kind = OPTION_UINT64, .name = "seed", .value = &params.seed, .argument = "S", .help = "of sampling (default 0)"},
      {.kind = OPTION_INT, .name = "concurrency", .value = &params.concurrency, .argument = "N", .help = "sequences at once (default 1)", .min = 1, .max = 4096},
      {.kind = OPTION_FLAG, .name = "no-plain", .value = &params.no_plain, .help = "skip plain and adaptive runs: acceptance only, no speed, no identity", .heading = "what is run"},
      {.kind = OPTION_FLAG, .name = "no-adaptive", .value = &params.no_adaptive, .help = "skip adaptive runs: the speed is that of drafting in every round"},
      {.kind = OPTION_INT, .name = "repeats", .value = &params.repeats, .argument = "N", .help = "runs of every prompt, of which the fastest counts: on a busy machine (default 1)", .min = 1, .max = 1000},
      {.kind = OPTION_STRING, .name = "html", .value = &html, .argument = "FILE", .help = "also write a self-contained page with tables and bars", .heading = "result"},
      OPTION_END,
  };
  const struct option *tables[] = {own, drafting, cli->common, NULL};
  const struct options_spec spec = {
      .command = "eval", .usage = "MODEL (--draft DIR | --drafter mtp|ngram) --prompts FILE... [--json] [--html FILE]", .summary = "acceptance, identity and speed",
      .description = "Every prompt runs three times, in turn on one engine: drafting in every round, which gives the acceptance; plain; and adaptive\n"
                     "drafting, which drafts only what pays and gives the speed. Greedy output must be the same in all (exit code 6 when it is not).\n"
                     "acceptance_length is tokens per verification round with the bonus token, accepted_per_round without it; per_position is the\n"
                     "share of drafting rounds in which draft i was accepted, conditional that among rounds in which those before it were. The document\n"
                     "of --json has the same names, what they depend on (shape, template, prompts, temperature, ...) and their definitions.\n"
                     "\n  eaglet eval models/nano-kimi --draft models/nano-kimi-eagle3 --prompts samples/eval.jsonl --html eval.html\n"
                     "  eaglet eval MODEL --drafter ngram --prompts held_out.jsonl --max-prompts 20 --json\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  cli_drafting_table(&who, drafting);
  int code = cli_parse(cli, &spec, argc, argv, &result);
  struct eaglet_error err = {0};
  if (code == CLI_GO && cli_drafting_check(&who, &err) != EAGLET_OK) code = cli_fail(cli, EAGLET_E_USAGE, &err);
  if (code == CLI_GO) {
    params.model = result.positional[0];
    params.draft = who.draft;
    params.drafter = cli_drafter(&who);
    params.draft_len = who.len;
    params.draft_width = who.width;
    params.draft_tokens = who.tokens;
    params.ignore_index = cli->ignore_index;
    params.prompts = prompts.values;
    params.n_prompts = prompts.n;
    params.precision = cli_precision(cli);
    params.threads = cli->threads;
    params.progress = progress_callbacks(&cli->progress);
    struct eaglet_text json = {0};
    enum eaglet_status status = eaglet_eval(&params, &json, &err);
    if (status == EAGLET_OK && html) status = write_page(html, &json, &err);
    code = cli_finish_json(cli, status, &err, &json, print_eval);
  }
  options_list_clear(&prompts);
  return code;
}
