/* cmd_check_pair.c - `eaglet check-pair`. */
#include "cli/cli.h"

#include <stdio.h>

static void print_checks(const json_t *document) {
  size_t i;
  json_t *row;
  json_array_foreach(json_object_get(document, "checks"), i, row) {
    const char *detail = json_string_value(json_object_get(row, "detail"));
    printf("%-4s %-12s %s\n", json_is_true(json_object_get(row, "ok")) ? "ok" : "NO", json_string_value(json_object_get(row, "part")),
           detail ? detail : "");
  }
  const json_t *agreement = cli_at(document, "probe.agreement");
  if (json_is_object(agreement)) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)agreement, key, value) printf("probe states %s: agreement %.3f\n", key, json_number_value(value));
  }
}

int cmd_check_pair(struct cli *cli, int argc, char **argv) {
  struct eaglet_check_pair_params params = {.hub_cache = cli->env.hub_cache};
  const struct option *tables[] = {cli->common, NULL};
  const struct options_spec spec = {
      .command = "check-pair", .usage = "MODEL DRAFT [--json]", .summary = "does this head fit this target?",
      .description = "Walks sizes, norms, rope, states and vocabulary and names the first mismatch (exit code 6), then probes numerically\n"
                     "whether the head was trained on the states its config names or on their neighbours.\n",
      .tables = tables, .n_positional_min = 2, .n_positional_max = 2};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  params.model = result.positional[0];
  params.ignore_index = cli->ignore_index;
  params.draft = result.positional[1];
  params.threads = cli->threads;
  struct eaglet_text json = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = eaglet_check_pair(&params, &json, &err);
  return cli_finish_json(cli, status, &err, &json, print_checks);
}
