/* options_text.c - the texts an option table generates: --help, man page, bash completion, resolved ini. See options.h. */
#include "base/options.h"

#include "base/buffer.h"
#include "base/options_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 26
#define HELP_WIDTH 100

/* Appends text in lines of at most HELP_WIDTH, those after the first indented to HELP_COLUMN. */
static void append_wrapped(struct buffer *out, const char *text) {
  size_t column = HELP_COLUMN;
  while (*text) {
    size_t word = strcspn(text, " ");
    if (column > HELP_COLUMN && column + 1 + word > HELP_WIDTH) {
      buffer_format(out, "\n%*s", HELP_COLUMN, "");
      column = HELP_COLUMN;
    } else if (column > HELP_COLUMN) {
      buffer_append_char(out, ' ');
      column++;
    }
    buffer_append(out, text, word);
    column += word;
    text += word;
    text += strspn(text, " ");
  }
}

/* "  -f, --file FILE" */
static void append_help_line(struct buffer *out, const struct option *option) {
  size_t start = out->length;
  if (option->letter) {
    buffer_format(out, "  -%c, --%s", option->letter, option->name);
  } else {
    buffer_format(out, "      --%s", option->name);
  }
  if (option->argument) buffer_format(out, " %s%s", option->argument, option->kind == OPTION_LIST ? "..." : "");
  size_t used = out->length - start;
  if (used + 2 > HELP_COLUMN) {
    buffer_format(out, "\n%*s", HELP_COLUMN, "");
  } else {
    buffer_format(out, "%*s", (int)(HELP_COLUMN - used), "");
  }
  append_wrapped(out, option->help ? option->help : "");
  if (option->required) buffer_append_string(out, " (required)");
  buffer_append_char(out, '\n');
}

struct eaglet_text options_help(const struct options_spec *spec) {
  struct buffer out;
  buffer_init(&out);
  buffer_format(&out, "usage: eaglet %s %s\n\n%s\n", spec->command, spec->usage, spec->summary);
  if (spec->description) {
    size_t length = strlen(spec->description);
    buffer_format(&out, "\n%s%s", spec->description, length > 0 && spec->description[length - 1] == '\n' ? "" : "\n");
  }
  struct option_walk walk = options_walk(spec);
  const struct option *option;
  while ((option = options_next(&walk))) {
    const char *heading = option->heading ? option->heading : walk.index == 1 ? "options" : NULL;
    if (heading) buffer_format(&out, "\n%s:\n", heading);
    append_help_line(&out, option);
  }
  append_help_line(&out, &(struct option){.name = "help", .letter = 'h', .help = "show this help"});
  return buffer_detach(&out);
}

/* Whether inih reads the value back as it is: one line, no comment mark, no blanks at the ends, short enough. */
static bool fits_ini(const char *name, const char *value) {
  size_t length = strlen(value);
  if (strlen(name) + length > 180 || strpbrk(value, "\n\r") || value[0] == ';') return false;
  if (length > 0 && (strchr(" \t", value[0]) || strchr(" \t", value[length - 1]))) return false;
  for (const char *semicolon = strchr(value, ';'); semicolon; semicolon = strchr(semicolon + 1, ';')) {
    if (semicolon > value && strchr(" \t", semicolon[-1])) return false;
  }
  return true;
}

static void append_ini_string(struct buffer *out, const char *name, const char *value) {
  if (fits_ini(name, value)) {
    buffer_format(out, "%s = %s\n", name, value);
  } else {
    buffer_format(out, "# %s: this value cannot be written in an ini file, give it on the command line\n", name);
  }
}

/* A number outside its range is the "use the default" mark of its command and would not be accepted back. */
static void append_ini_number(struct buffer *out, const struct option *option) {
  double value = 0;
  char text[64];
  if (option->kind == OPTION_INT) {
    value = *(const int32_t *)option->value;
    snprintf(text, sizeof text, "%d", (int)value);
  } else if (option->kind == OPTION_UINT64) {
    value = (double)*(const uint64_t *)option->value;
    snprintf(text, sizeof text, "%llu", (unsigned long long)*(const uint64_t *)option->value);
  } else if (option->kind == OPTION_FLOAT) {
    value = *(const float *)option->value;
    for (int digits = 6; digits <= 9; digits++) {
      snprintf(text, sizeof text, "%.*g", digits, value);
      if (strtof(text, NULL) == *(const float *)option->value) break;
    }
  } else {
    value = *(const double *)option->value;
    for (int digits = 15; digits <= 17; digits++) {
      snprintf(text, sizeof text, "%.*g", digits, value);
      if (strtod(text, NULL) == value) break;
    }
  }
  bool outside = option->min < option->max && !(value >= option->min && value <= option->max);
  buffer_format(out, outside ? "# %s = (default)\n" : "%s = %s\n", option->name, text);
}

static void append_ini_value(struct buffer *out, const struct option *option) {
  switch (option->kind) {
  case OPTION_FLAG: buffer_format(out, "%s = %s\n", option->name, *(const bool *)option->value ? "true" : "false"); break;
  case OPTION_INT:
  case OPTION_UINT64:
  case OPTION_DOUBLE:
  case OPTION_FLOAT: append_ini_number(out, option); break;
  case OPTION_STRING: {
    const char *text = *(const char *const *)option->value;
    if (text) append_ini_string(out, option->name, text);
    else buffer_format(out, "# %s = (default)\n", option->name);
    break;
  }
  case OPTION_LIST: {
    const struct option_list *list = option->value;
    for (size_t i = 0; i < list->n; i++) append_ini_string(out, option->name, list->values[i]);
    break;
  }
  case OPTION_CHOICE: {
    size_t length = 0;
    int chosen = *(const int *)option->value;
    const char *word = chosen > 0 ? options_choice(option, chosen - 1, &length) : NULL;
    if (word) buffer_format(out, "%s = %.*s\n", option->name, (int)length, word);
    else buffer_format(out, "# %s = (default)\n", option->name);
    break;
  }
  }
}

struct eaglet_text options_resolved_ini(const struct options_spec *spec) {
  struct buffer out;
  buffer_init(&out);
  buffer_format(&out, "[%s]\n", spec->command);
  struct option_walk walk = options_walk(spec);
  const struct option *option;
  while ((option = options_next(&walk))) {
    if (strcmp(option->name, "config") != 0) append_ini_value(&out, option);
  }
  return buffer_detach(&out);
}

/* The words of one option after its name: choices, files (compgen's work) or nothing. */
static void append_completion_case(struct buffer *out, const struct option *option) {
  if (option->kind == OPTION_CHOICE) {
    buffer_format(out, "    *:--%s) COMPREPLY=($(compgen -W '", option->name);
    size_t length;
    const char *word;
    for (int i = 0; (word = options_choice(option, i, &length)); i++) {
      buffer_format(out, "%s%.*s", i == 0 ? "" : " ", (int)length, word);
    }
    buffer_append_string(out, "' -- \"$word\")); return ;;\n");
  }
}

struct eaglet_text options_completion_bash(const struct options_spec *const *specs, size_t n) {
  struct buffer out;
  buffer_init(&out);
  buffer_append_string(&out, "# bash completion for eaglet, generated from its option tables\n_eaglet() {\n"
                             "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
                             "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    COMPREPLY=($(compgen -W '");
  for (size_t i = 0; i < n; i++) buffer_format(&out, "%s%s", i == 0 ? "" : " ", specs[i]->command);
  buffer_append_string(&out, "' -- \"$word\"))\n    return\n  fi\n  case $command:$before in\n");
  for (size_t i = 0; i < n; i++) {
    struct option_walk walk = options_walk(specs[i]);
    const struct option *option;
    while ((option = options_next(&walk))) {
      /* A choice common to all commands is written once. */
      bool repeated = false;
      for (size_t j = 0; j < i && !repeated; j++) {
        struct option_walk earlier = options_walk(specs[j]);
        const struct option *other;
        while ((other = options_next(&earlier)) && !repeated) repeated = !strcmp(other->name, option->name);
      }
      if (!repeated) append_completion_case(&out, option);
    }
  }
  buffer_append_string(&out, "  esac\n  case $word in -*) ;; *) COMPREPLY=($(compgen -f -- \"$word\")); return ;; esac\n"
                             "  case $command in\n");
  for (size_t i = 0; i < n; i++) {
    buffer_format(&out, "    %s) COMPREPLY=($(compgen -W '--help", specs[i]->command);
    struct option_walk walk = options_walk(specs[i]);
    const struct option *option;
    while ((option = options_next(&walk))) buffer_format(&out, " --%s", option->name);
    buffer_append_string(&out, "' -- \"$word\")) ;;\n");
  }
  buffer_append_string(&out, "  esac\n}\ncomplete -o filenames -F _eaglet eaglet\n");
  return buffer_detach(&out);
}

/* Escapes what roff would take for its own: backslashes, hyphens, and dots and quotes at the start of a line. */
static void append_roff(struct buffer *out, const char *text) {
  bool at_start = out->length == 0 || out->data[out->length - 1] == '\n';
  for (; *text; text++) {
    if (at_start && (*text == '.' || *text == '\'')) buffer_append_string(out, "\\&");
    if (*text == '\\') {
      buffer_append_string(out, "\\e");
    } else if (*text == '-') {
      buffer_append_string(out, "\\-");
    } else {
      buffer_append_char(out, *text);
    }
    at_start = *text == '\n';
  }
}

static void append_man_option(struct buffer *out, const struct option *option) {
  buffer_append_string(out, ".TP\n.B ");
  if (option->letter) buffer_format(out, "\\-%c, ", option->letter);
  buffer_append_string(out, "\\-\\-");
  append_roff(out, option->name);
  if (option->argument) {
    buffer_append_string(out, " \\fI");
    append_roff(out, option->argument);
    buffer_append_string(out, option->kind == OPTION_LIST ? "...\\fR" : "\\fR");
  }
  buffer_append_char(out, '\n');
  append_roff(out, option->help ? option->help : "");
  buffer_append_char(out, '\n');
}

struct eaglet_text options_man(const struct options_spec *spec) {
  struct buffer out;
  buffer_init(&out);
  buffer_append_string(&out, ".TH \"EAGLET\\-");
  for (const char *c = spec->command; *c; c++) buffer_append_char(&out, *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c);
  buffer_format(&out, "\" 1 \"\" \"eaglet %s\"\n.SH NAME\neaglet\\-", EAGLET_VERSION);
  append_roff(&out, spec->command);
  buffer_append_string(&out, " \\- ");
  append_roff(&out, spec->summary);
  buffer_append_string(&out, "\n.SH SYNOPSIS\n.B eaglet ");
  append_roff(&out, spec->command);
  buffer_append_string(&out, "\n");
  append_roff(&out, spec->usage);
  if (spec->description) {
    buffer_append_string(&out, "\n.SH DESCRIPTION\n.nf\n");
    append_roff(&out, spec->description);
    buffer_append_string(&out, "\n.fi");
  }
  buffer_append_string(&out, "\n.SH OPTIONS\n");
  struct option_walk walk = options_walk(spec);
  const struct option *option;
  while ((option = options_next(&walk))) {
    if (option->heading) {
      buffer_append_string(&out, ".SS ");
      append_roff(&out, option->heading);
      buffer_append_char(&out, '\n');
    }
    append_man_option(&out, option);
  }
  append_man_option(&out, &(struct option){.name = "help", .letter = 'h', .help = "Show this help."});
  buffer_append_string(&out, ".SH EXIT STATUS\n0 done, 1 internal, 2 usage, 3 bad input, 4 memory or disk, 5 network, 6 a check failed,\n"
                             "130 or 143 stopped by a signal with the state saved.\n");
  return buffer_detach(&out);
}
