/* cmd_report.c - `eaglet report`. */
#include "cli/cli.h"

#include "base/file.h"

#include <stdio.h>

static enum eaglet_status read_optional(struct eaglet_text *text, const char *path, struct eaglet_error *err) {
  return path ? file_read(text, path, (size_t)1 << 30, err) : EAGLET_OK;
}

int cmd_report(struct cli *cli, int argc, char **argv) {
  const char *eval = NULL, *metrics = NULL, *prepare = NULL, *out = NULL;
  struct eaglet_report_params params = {.title = "eaglet report"};
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "eval", .value = &eval, .argument = "FILE", .help = "output of eval --json"},
      {.kind = OPTION_STRING, .name = "metrics", .value = &metrics, .argument = "FILE", .help = "metrics.jsonl of a training run"},
      {.kind = OPTION_STRING, .name = "prepare", .value = &prepare, .argument = "FILE", .help = "output of prepare --json"},
      {.kind = OPTION_STRING, .name = "title", .value = &params.title, .argument = "S", .help = "heading of the page"},
      {.kind = OPTION_STRING, .name = "out", .letter = 'o', .value = &out, .argument = "FILE", .help = "the page", .required = true},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "report", .usage = "[--eval FILE] [--metrics FILE] [--prepare FILE] --out FILE", .summary = "an HTML page of results",
      .description = "One self-contained file: no scripts from elsewhere, no network.\n", .tables = tables};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  if (!eval && !metrics && !prepare) return cli_usage_error(cli, "report: give at least one of --eval, --metrics, --prepare");
  struct eaglet_text texts[3] = {{0}}, html = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = read_optional(&texts[0], eval, &err);
  if (status == EAGLET_OK) status = read_optional(&texts[1], metrics, &err);
  if (status == EAGLET_OK) status = read_optional(&texts[2], prepare, &err);
  params.eval_json = texts[0].data;
  params.metrics_jsonl = texts[1].data;
  params.prepare_json = texts[2].data;
  if (status == EAGLET_OK) status = eaglet_report_html(&params, &html, &err);
  if (status == EAGLET_OK) status = file_write(out, html.data, html.length, &err);
  eaglet_text_clear(&html);
  for (int i = 0; i < 3; i++) eaglet_text_clear(&texts[i]);
  return status == EAGLET_OK ? 0 : cli_fail(cli, status, &err);
}
