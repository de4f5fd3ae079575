/* cmd_verify.c - `eaglet verify`. */
#include "cli/cli.h"

#include <stdio.h>

static void print_verification(const json_t *document) {
  size_t i;
  json_t *row;
  json_array_foreach(json_object_get(document, "layers"), i, row) {
    printf("state %-3d max_rel %.3e\n", (int)cli_number(row, "state"), cli_number(row, "max_rel"));
  }
  if (json_object_get(document, "norm")) printf("norm      max_rel %.3e\n", cli_number(document, "norm.max_rel"));
  if (json_object_get(document, "logits")) printf("logits    max_rel %.3e\n", cli_number(document, "logits.max_rel"));
  json_array_foreach(json_object_get(document, "proof"), i, row) {
    printf("proof from state %-3d max_rel %.3e\n", (int)cli_number(row, "state"), cli_number(row, "max_rel"));
  }
  printf("%s (tolerance %.1e)\n", json_is_true(json_object_get(document, "ok")) ? "ok" : "FAILED", cli_number(document, "tolerance"));
}

int cmd_verify(struct cli *cli, int argc, char **argv) {
  struct eaglet_verify_params params = {.hub_cache = cli->env.hub_cache};
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "reference", .value = &params.reference, .argument = "FILE", .help = "safetensors with input_ids, layer.{i}, norm, logits of a trusted run"},
      {.kind = OPTION_DOUBLE, .name = "tolerance", .value = &params.tolerance, .argument = "X", .help = "largest accepted max_rel (default 2e-3)", .min = 0, .max = 1},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "verify", .usage = "MODEL [--reference FILE] [--json]", .summary = "prove that hidden states are captured right",
      .description = "Without a reference: captures every state and runs the rest of the model from each of them; the logits must be the\n"
                     "model's own. With one: prints the largest relative error of each state, the final norm and the logits.\n"
                     "Exit code 6 above the tolerance.\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  params.model = result.positional[0];
  params.ignore_index = cli->ignore_index;
  params.precision = cli_precision(cli);
  params.threads = cli->threads;
  struct eaglet_text json = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = eaglet_verify(&params, &json, &err);
  return cli_finish_json(cli, status, &err, &json, print_verification);
}
