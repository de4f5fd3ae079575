/* cli.h - what the sub-commands share: parsed common options, exit codes, reading prompts, printing. Only the public header and
 * src/base are visible here (ARCHITECTURE: if a command needs more, the API is wrong).
 *
 * A command is one function cmd_x(cli, argc, argv) in cmd_x.c: defaults struct, options table, spec, work. It returns the exit
 * code. Option tables point into the command's own locals, so nothing here is global.
 */
#ifndef EAGLET_CLI_CLI_H
#define EAGLET_CLI_CLI_H

#include "base/env.h"
#include "base/json.h"
#include "base/options.h"
#include "base/progress.h"

struct cli {
  struct env env;
  struct progress progress;
  struct option common[8]; /* --threads --device --precision --ignore-index --config --json --quiet */
  int32_t threads;
  const char *device, *config;
  int precision; /* choice: 0 default, 1 exact, 2 fast */
  bool json, quiet, ignore_index;
  /* When set, commands only show their spec to it and return (help pages, man pages, completion). */
  void (*visit)(struct cli *cli, const struct options_spec *spec);
  struct buffer *visited;
  struct options_result parsed; /* holds what options of a --config file point to, until the command is over */
};

typedef int (*cli_command)(struct cli *cli, int argc, char **argv);
struct cli_entry {
  const char *name;
  cli_command run;
  const char *summary;
};
extern const struct cli_entry cli_commands[]; /* ends with a NULL name */

#define CLI_GO (-1)
/* Parses; returns CLI_GO, or the exit code when the command is over (help printed, usage error told). */
int cli_parse(struct cli *cli, const struct options_spec *spec, int argc, char **argv, struct options_result *result);
/* Tells a failure on stderr and gives the exit code. */
int cli_fail(const struct cli *cli, enum eaglet_status status, const struct eaglet_error *err);
int cli_usage_error(const struct cli *cli, const char *format, ...) PRINTF_LIKE(2, 3);
/* Ends a command that made a JSON document: prints it (with --json) or calls print; frees the text; returns the exit code of status. */
int cli_finish_json(struct cli *cli, enum eaglet_status status, const struct eaglet_error *err, struct eaglet_text *json,
                    void (*print)(const json_t *document));
enum eaglet_precision cli_precision(const struct cli *cli);
/* Whole file, or standard input for "-". */
enum eaglet_status cli_read(struct eaglet_text *text, const char *path, struct eaglet_error *err) MUST_USE;
/* A number of a report, 0 when absent; path "a.b.c". */
double cli_number(const json_t *document, const char *path);
const json_t *cli_at(const json_t *document, const char *path);

int cmd_check_pair(struct cli *cli, int argc, char **argv);
int cmd_convert(struct cli *cli, int argc, char **argv);
int cmd_eval(struct cli *cli, int argc, char **argv);
int cmd_extract(struct cli *cli, int argc, char **argv);
int cmd_generate(struct cli *cli, int argc, char **argv);
int cmd_help(struct cli *cli, int argc, char **argv);
int cmd_inspect(struct cli *cli, int argc, char **argv);
int cmd_prepare(struct cli *cli, int argc, char **argv);
int cmd_render(struct cli *cli, int argc, char **argv);
int cmd_report(struct cli *cli, int argc, char **argv);
int cmd_tokenize(struct cli *cli, int argc, char **argv);
int cmd_train(struct cli *cli, int argc, char **argv);
int cmd_verify(struct cli *cli, int argc, char **argv);
int cmd_vocab(struct cli *cli, int argc, char **argv);

/* --template-arg KEY=VALUE ... as a JSON object, heap; NULL when there are none. VALUE is JSON, or a string where it is not. Fails on a
 * missing "=". */
enum eaglet_status cli_template_arguments(char **json, const struct option_list *list, struct eaglet_error *err);
#define CLI_TEMPLATE_ARG(list) \
  {.kind = OPTION_LIST, .name = "template-arg", .value = &(list), .argument = "K=V", .help = "a variable for the chat template, enable_thinking=false; V is JSON or text"}

#endif
