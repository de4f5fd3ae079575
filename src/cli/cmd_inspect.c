/* cmd_inspect.c - `eaglet inspect`. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>

static void print_value(const char *label, const json_t *value) {
  if (!value) return;
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_PRESERVE_ORDER);
  if (!text) return;
  if (json_is_string(value)) printf("  %-24s %s\n", label, json_string_value(value));
  else printf("  %-24s %s\n", label, text);
  free(text);
}

static void print_inspection(const json_t *document) {
  const char *section;
  json_t *value;
  json_object_foreach((json_t *)document, section, value) {
    if (!json_is_object(value)) {
      print_value(section, value);
      continue;
    }
    printf("%s\n", section);
    const char *key;
    json_t *inner;
    json_object_foreach(value, key, inner) {
      const json_t *shown = json_is_object(inner) && json_object_get(inner, "value") ? json_object_get(inner, "value") : inner;
      print_value(key, shown);
      const char *from = json_string_value(json_object_get(inner, "from"));
      if (from && json_object_size(inner) == 2) printf("  %-24s   from %s\n", "", from);
    }
  }
}

int cmd_inspect(struct cli *cli, int argc, char **argv) {
  struct eaglet_inspect_params params = {.hub_cache = cli->env.hub_cache};
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "draft", .value = &params.draft, .argument = "DIR", .help = "also judge whether this head fits"},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "inspect", .usage = "MODEL [--draft DIR] [--json]", .summary = "what a checkpoint is",
      .description = "Prints the wrapper chain that was walked and why, the decoder's prefix, every architecture feature with the place it\n"
                     "came from, sizes and quantisation per module kind, tokenizer, template, and the default captured states.\n"
                     "MODEL is a directory, or org/name[@rev] in the local hub cache; nothing is downloaded.\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  params.model = result.positional[0];
  params.ignore_index = cli->ignore_index;
  struct eaglet_text json = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = eaglet_inspect(&params, &json, &err);
  return cli_finish_json(cli, status, &err, &json, print_inspection);
}
