/* cli.c - shared pieces of the commands; see cli.h. Owns exit codes and where text goes: results to stdout, the rest to stderr. */
#include "cli/cli.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int exit_code(enum eaglet_status status) {
  if (status == EAGLET_E_DEVICE) return EAGLET_E_INTERNAL;
  if (status == EAGLET_E_INTERRUPTED) {
    int signal_number = progress_signal();
    return signal_number ? 128 + signal_number : EAGLET_E_INTERRUPTED;
  }
  return (int)status;
}

int cli_parse(struct cli *cli, const struct options_spec *spec, int argc, char **argv, struct options_result *result) {
  if (cli->visit) {
    cli->visit(cli, spec);
    return 0;
  }
  struct eaglet_error err = {0};
  enum eaglet_status status = options_parse(spec, argc, argv, result, &err);
  cli->parsed = *result;
  result->owned = NULL;
  result->n_owned = 0;
  if (status != EAGLET_OK) {
    fprintf(stderr, "eaglet %s: %s\n", spec->command, err.message);
    fprintf(stderr, "usage: eaglet %s %s  (--help tells more)\n", spec->command, spec->usage);
    return exit_code(status);
  }
  if (result->help) {
    struct eaglet_text help = options_help(spec);
    fputs(help.data, stdout);
    free(help.data);
    return 0;
  }
  progress_init(&cli->progress, cli->quiet, !cli->env.no_color);
  return CLI_GO;
}

int cli_fail(const struct cli *cli, enum eaglet_status status, const struct eaglet_error *err) {
  (void)cli;
  fprintf(stderr, "eaglet: %s\n", err->message[0] ? err->message : "failed");
  return exit_code(status);
}

int cli_usage_error(const struct cli *cli, const char *format, ...) {
  (void)cli;
  va_list arguments;
  fputs("eaglet: ", stderr);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  return EAGLET_E_USAGE;
}

int cli_finish_json(struct cli *cli, enum eaglet_status status, const struct eaglet_error *err, struct eaglet_text *json,
                    void (*print)(const json_t *document)) {
  progress_finish(&cli->progress);
  if (json->data && json->length > 0) {
    if (cli->json) {
      fputs(json->data, stdout);
      fputc('\n', stdout);
    } else if (print) {
      json_t *document = NULL;
      if (json_parse(&document, json->data, json->length, "report", NULL) == EAGLET_OK) print(document);
      json_decref(document);
    }
  }
  free(json->data);
  *json = (struct eaglet_text){0};
  if (fflush(stdout) != 0 && status == EAGLET_OK) {
    fputs("eaglet: cannot write the result to standard output\n", stderr);
    return EAGLET_E_RESOURCE;
  }
  return status == EAGLET_OK ? 0 : cli_fail(cli, status, err);
}

enum eaglet_precision cli_precision(const struct cli *cli) { return (enum eaglet_precision)cli->precision; }

enum eaglet_status cli_read(struct eaglet_text *text, const char *path, struct eaglet_error *err) {
  return file_read(text, strcmp(path, "-") == 0 ? "/dev/stdin" : path, (size_t)1 << 30, err);
}

const json_t *cli_at(const json_t *document, const char *path) {
  char key[128];
  while (document && *path) {
    size_t length = strcspn(path, ".");
    if (length >= sizeof key) return NULL;
    memcpy(key, path, length);
    key[length] = '\0';
    document = json_object_get(document, key);
    path += length + (path[length] == '.');
  }
  return document;
}

double cli_number(const json_t *document, const char *path) { return json_number_value(cli_at(document, path)); }

enum eaglet_status cli_template_arguments(char **json, const struct option_list *list, struct eaglet_error *err) {
  json_t *object = json_object();
  *json = NULL;
  for (size_t i = 0; i < list->n; i++) {
    const char *equals = strchr(list->values[i], '=');
    if (!equals || equals == list->values[i]) {
      json_decref(object);
      FAIL(err, EAGLET_E_USAGE, "--template-arg %s: expected KEY=VALUE", list->values[i]);
    }
    json_t *value = NULL;
    if (json_parse(&value, equals + 1, strlen(equals + 1), "", NULL) != EAGLET_OK) value = json_string(equals + 1);
    json_object_setn_new(object, list->values[i], (size_t)(equals - list->values[i]), value);
  }
  if (list->n > 0) *json = json_dump(object, 0).data;
  json_decref(object);
  return EAGLET_OK;
}
