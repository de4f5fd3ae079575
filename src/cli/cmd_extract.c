/* cmd_extract.c - `eaglet extract`. */
#include "cli/cli.h"

#include <stdio.h>

static void print_extracted(const json_t *document) {
  printf("%.0f rows, %.0f tokens, %.1f MB on disk (%.0f bytes a token), %.0f shards written, %.0f already there\n",
         cli_number(document, "rows"), cli_number(document, "tokens"), cli_number(document, "bytes") / 1e6,
         cli_number(document, "bytes_per_token"), cli_number(document, "shards_written"), cli_number(document, "shards_skipped"));
}

int cmd_extract(struct cli *cli, int argc, char **argv) {
  struct eaglet_extract_params params = {.hub_cache = cli->env.hub_cache};
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "data", .value = &params.data, .argument = "DIR", .help = "directory written by prepare", .required = true},
      {.kind = OPTION_STRING, .name = "out", .letter = 'o', .value = &params.out, .argument = "DIR", .help = "where the feature shards go", .required = true},
      {.kind = OPTION_STRING, .name = "states", .value = &params.states, .argument = "auto|2,30,58", .help = "states to capture; state k is the residual stream after k layers (default auto)"},
      {.kind = OPTION_FLAG, .name = "float32", .value = &params.float32, .help = "store F32 (default BF16)"},
      {.kind = OPTION_FLAG, .name = "dry-run", .value = &params.dry_run, .help = "announce the disk need and stop"},
      {.kind = OPTION_FLAG, .name = "replace", .value = &params.replace, .help = "discard features of other settings in DIR"},
      {.kind = OPTION_INT, .name = "memory", .value = &params.memory_mib, .argument = "MIB", .help = "states held in memory at a time (default 256): rows per shard follow", .min = 1, .max = 1 << 20},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "extract", .usage = "MODEL --data DIR --out DIR [--states auto|2,30,58] [--dry-run]", .summary = "hidden states to disk",
      .description = "Says how much disk it needs before it starts. A shard appears only when it is whole; run again to continue.\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  params.model = result.positional[0];
  params.ignore_index = cli->ignore_index;
  params.threads = cli->threads;
  params.progress = progress_callbacks(&cli->progress);
  struct eaglet_text report = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = eaglet_extract(&params, &report, &err);
  return cli_finish_json(cli, status, &err, &report, print_extracted);
}
