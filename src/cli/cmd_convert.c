/* cmd_convert.c - `eaglet convert`. */
#include "cli/cli.h"

#include <stdio.h>

static void print_conversion(const json_t *document) {
  printf("%s: %d tensors for %s; %d rows and %d drafted steps give the original's bits\n",
         json_string_value(json_object_get(document, "out")), (int)cli_number(document, "tensors"),
         json_string_value(json_object_get(document, "dialect")), (int)cli_number(document, "rows"),
         (int)cli_number(document, "steps"));
}

int cmd_convert(struct cli *cli, int argc, char **argv) {
  struct eaglet_convert_params params = {.hub_cache = cli->env.hub_cache};
  int to = 0; /* index into the choices, + 1 */
  const struct option own[] = {
      {.kind = OPTION_CHOICE, .name = "to", .value = &to, .argument = "speculators|sglang|vllm", .help = "whose loader will read it", .required = true},
      {.kind = OPTION_STRING, .name = "out", .value = &params.out, .argument = "DIR", .help = "a new directory", .required = true},
      {.kind = OPTION_STRING, .name = "model", .value = &params.model, .argument = "MODEL", .help = "the target it was trained for", .required = true},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "convert", .usage = "DRAFT --to speculators|sglang|vllm --model MODEL --out DIR [--json]",
      .summary = "write a head in another dialect",
      .description = "The same weights under the names and config that another project reads. What its loader would skip is refused by\n"
                     "name. The written head is opened again and run beside the original: other bits in features or logits end with\n"
                     "exit code 6 and nothing written.\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  params.draft = result.positional[0];
  params.to = to == 1 ? EAGLET_DIALECT_SPECULATORS : to == 2 ? EAGLET_DIALECT_SGLANG : EAGLET_DIALECT_VLLM;
  params.ignore_index = cli->ignore_index;
  params.threads = cli->threads;
  struct eaglet_text json = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = eaglet_convert(&params, &json, &err);
  return cli_finish_json(cli, status, &err, &json, print_conversion);
}
