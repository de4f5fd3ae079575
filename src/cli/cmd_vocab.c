/* cmd_vocab.c - `eaglet vocab`. */
#include "cli/cli.h"

#include <stdio.h>

static void print_vocab(const json_t *document) {
  printf("draft vocabulary %.0f of %.0f, coverage %.3f %%, padded %.0f\n", cli_number(document, "size"), cli_number(document, "target_size"),
         100 * cli_number(document, "coverage"), cli_number(document, "padded"));
  const char *name;
  json_t *source;
  json_object_foreach(json_object_get(document, "sources"), name, source) {
    printf("  %-20s coverage %.3f %%\n", name, 100 * json_number_value(json_is_object(source) ? json_object_get(source, "coverage") : source));
  }
}

int cmd_vocab(struct cli *cli, int argc, char **argv) {
  struct eaglet_vocab_params params = {0};
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "data", .value = &params.data, .argument = "DIR", .help = "directory written by prepare", .required = true},
      {.kind = OPTION_INT, .name = "size", .value = &params.size, .argument = "N", .help = "draft vocabulary (default: the target's whole vocabulary)", .min = 1, .max = 1 << 24},
      {.kind = OPTION_STRING, .name = "out", .letter = 'o', .value = &params.out, .argument = "FILE", .help = "safetensors with d2t and t2d", .required = true},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "vocab", .usage = "--data DIR --size N --out FILE", .summary = "choose the draft vocabulary",
      .description = "Takes the N most frequent trained tokens; end-of-turn and special tokens are always in. Prints the coverage per source.\n",
      .tables = tables};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  struct eaglet_text report = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = eaglet_vocab(&params, &report, &err);
  return cli_finish_json(cli, status, &err, &report, print_vocab);
}
