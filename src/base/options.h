/* options.h - git-style option tables: one table generates parsing, --help, man page text and shell completion.
 *
 * A command declares a static const array of struct option ended by OPTION_END. Values are written through pointers into the
 * command's own struct. Unknown options, missing values, numbers out of range and conflicting repeats are EAGLET_E_USAGE with
 * the nearest known option suggested. `--config FILE` (inih) fills options not given on the command line; unknown keys fail.
 */
#ifndef EAGLET_BASE_OPTIONS_H
#define EAGLET_BASE_OPTIONS_H

#include "base/error.h"

enum option_kind { OPTION_FLAG, OPTION_INT, OPTION_UINT64, OPTION_DOUBLE, OPTION_FLOAT, OPTION_STRING, OPTION_LIST, OPTION_CHOICE };

struct option_list { /* OPTION_LIST: repeated option, or several values after it up to the next option */
  const char **values;
  size_t n, capacity;
};

struct option {
  enum option_kind kind;
  const char *name;     /* "max-tokens", without dashes */
  char letter;          /* 0 = none */
  void *value;          /* bool*, int32_t*, uint64_t*, double*, float*, const char**, struct option_list*, int* (choice) */
  const char *argument; /* "N", "FILE"; for OPTION_CHOICE "exact|fast": the index + 1 is stored */
  const char *help;
  double min, max;      /* numbers: allowed range when min < max */
  bool required;
  const char *heading;  /* of the group that begins with this option, in help and man page; NULL: the group goes on */
};
#define OPTION_END { 0, NULL, 0, NULL, NULL, NULL, 0, 0, false, NULL }

struct options_spec {
  const char *command;               /* "generate" */
  const char *usage;                 /* "MODEL [--draft D] (--prompt S | --messages F | --tokens F)" */
  const char *summary;               /* one line */
  const char *description;           /* paragraphs and examples for --help; may be NULL */
  const struct option *const *tables; /* NULL-terminated list of tables (own options, common options) */
  int n_positional_min, n_positional_max;
};

struct options_result {
  const char *positional[16];
  int n_positional;
  bool help; /* --help was asked for: print options_help and exit 0 */
  char **owned; /* [n_owned] values read from a --config file; strings and lists point into them */
  size_t n_owned, owned_capacity;
};
enum eaglet_status options_parse(const struct options_spec *spec, int argc, char **argv, struct options_result *result,
                                 struct eaglet_error *err) MUST_USE;
/* Frees what a config file brought: its strings die here. */
void options_release(struct options_result *result);
struct eaglet_text options_help(const struct options_spec *spec);
struct eaglet_text options_resolved_ini(const struct options_spec *spec); /* every option with its value, for run.ini */
struct eaglet_text options_completion_bash(const struct options_spec *const *specs, size_t n);
struct eaglet_text options_man(const struct options_spec *spec);
void options_list_clear(struct option_list *list);

#endif
