/* cmd_help.c - `eaglet help`: pages of all commands from the same tables that parse them. */
#include "cli/cli.h"

#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void visit_help(struct cli *cli, const struct options_spec *spec) {
  struct eaglet_text text = options_help(spec);
  buffer_append_string(cli->visited, text.data);
  eaglet_text_clear(&text);
}

static void visit_man(struct cli *cli, const struct options_spec *spec) {
  struct eaglet_text text = options_man(spec);
  buffer_append_string(cli->visited, text.data);
  eaglet_text_clear(&text);
}

static void visit_completion(struct cli *cli, const struct options_spec *spec) {
  struct eaglet_text text = options_completion_bash(&spec, 1);
  buffer_append_string(cli->visited, text.data);
  eaglet_text_clear(&text);
}

int cmd_help(struct cli *cli, int argc, char **argv) {
  bool man = false, completion = false;
  const struct option own[] = {
      {.kind = OPTION_FLAG, .name = "man", .value = &man, .help = "as manual page source"},
      {.kind = OPTION_FLAG, .name = "completion", .value = &completion, .help = "as bash completion"},
      OPTION_END,
  };
  const struct option *tables[] = {own, NULL};
  const struct options_spec spec = {.command = "help", .usage = "[COMMAND] [--man | --completion]", .summary = "help on commands",
                                    .tables = tables, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  const char *wanted = result.n_positional > 0 ? result.positional[0] : NULL;
  struct buffer out;
  buffer_init(&out);
  cli->visited = &out;
  cli->visit = man ? visit_man : completion ? visit_completion : visit_help;
  for (const struct cli_entry *e = cli_commands; e->name; e++) {
    if (e->run != cmd_help && (!wanted || strcmp(wanted, e->name) == 0)) e->run(cli, 0, NULL);
  }
  cli->visit = NULL;
  bool found = out.length > 0;
  if (found) fputs(out.data, stdout);
  buffer_clear(&out);
  return found ? 0 : cli_usage_error(cli, "help: no command '%s'", wanted ? wanted : "");
}
