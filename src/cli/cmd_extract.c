/* cmd_extract.c - `eaglet extract`. */
#include "cli/cli.h"

#include <stdio.h>

static void print_options(const json_t *document) {
  size_t i;
  json_t *option;
  printf("%-8s %16s %14s   %s\n", "store", "bytes a token", "total, MB", "");
  json_array_foreach(cli_at(document, "options"), i, option) {
    printf("%-8s %16.0f %14.1f   %s%s\n", json_string_value(json_object_get(option, "store")), cli_number(option, "bytes_per_token"),
           cli_number(option, "bytes") / 1e6, json_is_true(json_object_get(option, "fits")) ? "fits" : "does not fit",
           json_is_true(json_object_get(option, "chosen")) ? ", chosen" : "");
  }
  printf("free: %.1f MB; this run would write %.1f MB\n", cli_number(document, "disk_free") / 1e6, cli_number(document, "bytes_missing") / 1e6);
}

static void print_extracted(const json_t *document) {
  printf("%.0f rows, %.0f tokens, %.1f MB on disk (%.0f bytes a token), %.0f shards written, %.0f already there\n",
         cli_number(document, "rows"), cli_number(document, "tokens"), cli_number(document, "bytes") / 1e6,
         cli_number(document, "bytes_per_token"), cli_number(document, "shards_written"), cli_number(document, "shards_skipped"));
  if (cli_number(document, "world") > 1)
    printf("rank %.0f of %.0f: %.0f of %.0f shards are its own\n", cli_number(document, "rank"), cli_number(document, "world"),
           cli_number(document, "shards_of_rank"), cli_number(document, "shards"));
  if (json_is_true(cli_at(document, "dry_run"))) print_options(document);
  else if (cli_number(document, "shards_written") > 0)
    printf("%.0f tok/s, %.0f %% of the time in the target\n", cli_number(document, "tok_s"), 100 * cli_number(document, "forward_share"));
}

static void print_checked(const json_t *document) {
  size_t i;
  json_t *entry;
  printf("%s: %.0f files, %.0f rows, %.0f tokens; %.0f wrong, %.0f missing, %.0f without a checksum, %.0f states not finite, %.0f of zeros\n",
         json_string_value(cli_at(document, "format")), cli_number(document, "files"), cli_number(document, "rows"), cli_number(document, "tokens"),
         cli_number(document, "files_wrong"), cli_number(document, "missing_count"), cli_number(document, "without_checksum"),
         cli_number(document, "not_finite"), cli_number(document, "zero_states"));
  json_array_foreach(cli_at(document, "problems"), i, entry) printf("  %s\n", json_string_value(json_object_get(entry, "problem")));
  json_array_foreach(cli_at(document, "missing"), i, entry) {
    if (json_is_string(entry)) printf("  %s: not there\n", json_string_value(entry));
    else printf("  row %lld: no sample\n", (long long)json_integer_value(entry));
  }
  json_array_foreach(cli_at(document, "slots"), i, entry) {
    printf("  slot %.0f: %s (error %.2g); next %s (%.2g)\n", cli_number(entry, "slot"), json_string_value(json_object_get(entry, "fits")),
           cli_number(entry, "error"), json_string_value(json_object_get(entry, "runner_up")), cli_number(entry, "runner_up_error"));
  }
}

static int check(struct cli *cli, const struct eaglet_extract_params *params, const char *directory) {
  const struct eaglet_check_features_params p = {.features = directory,
                                                 .data = params->data,
                                                 .model = params->model,
                                                 .hub_cache = params->hub_cache,
                                                 .threads = cli->threads,
                                                 .progress = progress_callbacks(&cli->progress),
                                                 .ignore_index = cli->ignore_index};
  struct eaglet_text report = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = eaglet_check_features(&p, &report, &err);
  return cli_finish_json(cli, status, &err, &report, print_checked);
}

static int extract(struct cli *cli, struct eaglet_extract_params *params) {
  if (!params->model) return cli_usage_error(cli, "extract: expected MODEL");
  if (!params->data || !params->out) return cli_usage_error(cli, "extract: expected --data DIR and --out DIR");
  if (params->rank >= 0 && params->world < 1) return cli_usage_error(cli, "--rank: expected --world with it");
  if (params->rank < 0 && params->world > 1) return cli_usage_error(cli, "--world: expected --rank with it");
  if (params->rank < 0) params->rank = 0;
  params->ignore_index = cli->ignore_index;
  params->threads = cli->threads;
  params->progress = progress_callbacks(&cli->progress);
  struct eaglet_text report = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = eaglet_extract(params, &report, &err);
  return cli_finish_json(cli, status, &err, &report, print_extracted);
}

int cmd_extract(struct cli *cli, int argc, char **argv) {
  struct eaglet_extract_params params = {.hub_cache = cli->env.hub_cache, .rank = -1};
  const char *check_directory = NULL;
  int store = 0, format = 0;
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "data", .value = &params.data, .argument = "DIR", .help = "directory written by prepare"},
      {.kind = OPTION_STRING, .name = "out", .letter = 'o', .value = &params.out, .argument = "DIR", .help = "where the feature shards go"},
      {.kind = OPTION_STRING, .name = "states", .value = &params.states, .argument = "auto|2,30,58", .help = "states to capture; state k is the residual stream after k layers (default auto)"},
      {.kind = OPTION_CHOICE, .name = "store", .value = &store, .argument = "bf16|f32|fp8|aux", .help = "bf16 (default): two bytes a number. f32: four. fp8: one, with a scale per token and state. aux: bf16 without the last state, which train recomputes"},
      {.kind = OPTION_CHOICE, .name = "format", .value = &format, .argument = "eaglet|speculators", .help = "eaglet (default): shards. speculators: hs_0.safetensors ..., as vLLM's speculators reads them"},
      {.kind = OPTION_FLAG, .name = "float32", .value = &params.float32, .help = "the same as --store f32"},
      {.kind = OPTION_FLAG, .name = "dry-run", .value = &params.dry_run, .help = "announce the disk need of every store and stop"},
      {.kind = OPTION_FLAG, .name = "force", .value = &params.force, .help = "begin even when the disk is too small"},
      {.kind = OPTION_FLAG, .name = "replace", .value = &params.replace, .help = "discard features of other settings in DIR"},
      {.kind = OPTION_INT, .name = "memory", .value = &params.memory_mib, .argument = "MIB", .help = "states held in memory at a time (default 256): rows per shard follow", .min = 1, .max = 1 << 20},
      {.kind = OPTION_INT, .name = "rank", .value = &params.rank, .argument = "R", .help = "this process is number R of --world (default: what mpirun or srun says, else 0)", .min = 0, .max = 1 << 20},
      {.kind = OPTION_INT, .name = "world", .value = &params.world, .argument = "W", .help = "processes that share the work; each writes every W-th shard", .min = 1, .max = 1 << 20},
      {.kind = OPTION_STRING, .name = "check", .value = &check_directory, .argument = "DIR", .help = "read features that are there and say what is wrong; with --data also whether they are of its rows, with MODEL which states they hold"},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "extract", .usage = "MODEL --data DIR --out DIR [--store bf16|f32|fp8|aux] [--dry-run] | [MODEL] --check DIR [--data DIR]", .summary = "hidden states to disk",
      .description = "Says how much disk it needs before it starts. A shard appears only when it is whole; run again to continue.\n"
                     "Several processes share the work with --rank and --world, or under mpirun or srun; the files are those of one process.\n"
                     "\n  eaglet extract models/nano-kimi --data run/data --out run/features --store fp8\n"
                     "  eaglet extract --check run/features --data run/data\n",
      .tables = tables, .n_positional_min = 0, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  params.model = result.n_positional > 0 ? result.positional[0] : NULL;
  if (params.rank < 0 && params.world == 0 && cli->env.world > 0) { /* flags win over the launcher */
    params.rank = cli->env.rank;
    params.world = cli->env.world;
  }
  params.store = store > 0 ? (enum eaglet_store)(store - 1) : EAGLET_STORE_BF16;
  params.format = format > 0 ? (enum eaglet_features_format)(format - 1) : EAGLET_FEATURES_EAGLET;
  return check_directory ? check(cli, &params, check_directory) : extract(cli, &params);
}
