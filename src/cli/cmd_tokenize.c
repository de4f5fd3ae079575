/* cmd_tokenize.c - `eaglet tokenize`. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits of id (not negative) before `end`; returns where they begin. */
static char *digits(char *end, int32_t id) {
  do *--end = (char)('0' + id % 10);
  while ((id /= 10) > 0);
  return end;
}

/* A book is millions of ids: formatting them one by one through stdio would take longer than finding them. */
static void print_ids(const struct cli *cli, const int32_t *ids, size_t n) {
  char chunk[1 << 14], number[12], *end = number + sizeof number;
  size_t used = 0;
  if (cli->json) fputs("{\"ids\":[", stdout);
  for (size_t i = 0; i < n; i++) {
    const char *from = digits(end, ids[i]);
    size_t length = (size_t)(end - from);
    if (used + length + 1 > sizeof chunk) {
      fwrite(chunk, 1, used, stdout);
      used = 0;
    }
    if (i > 0) chunk[used++] = cli->json ? ',' : ' ';
    memcpy(chunk + used, from, length);
    used += length;
  }
  fwrite(chunk, 1, used, stdout);
  puts(cli->json ? "]}" : "");
}

int cmd_tokenize(struct cli *cli, int argc, char **argv) {
  const char *file = "-", *text_argument = NULL;
  bool as_text = false, add = false;
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "file", .letter = 'f', .value = &file, .argument = "FILE", .help = "text to encode (default: standard input)"},
      {.kind = OPTION_STRING, .name = "text", .value = &text_argument, .argument = "S", .help = "encode this string instead"},
      {.kind = OPTION_FLAG, .name = "no-special", .value = &as_text, .help = "special-token text is ordinary text"},
      {.kind = OPTION_FLAG, .name = "add-special", .value = &add, .help = "add BOS and EOS as the checkpoint does for a raw prompt"},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "tokenize", .usage = "MODEL [--file FILE | --text S] [--no-special | --add-special] [--json]", .summary = "text to token ids",
      .description = "Prints the ids on one line, or {\"ids\": [...]} with --json.\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;

  struct eaglet_tokenizer *tokenizer = NULL;
  struct eaglet_text text = {0};
  struct eaglet_error err = {0};
  int32_t *ids = NULL;
  size_t n_ids = 0;
  enum eaglet_status status = eaglet_tokenizer_open(&tokenizer, result.positional[0], cli->env.hub_cache, &err);
  if (status == EAGLET_OK && !text_argument) status = cli_read(&text, file, &err);
  if (status == EAGLET_OK) {
    status = eaglet_tokenize(tokenizer, text_argument ? text_argument : text.data, text_argument ? strlen(text_argument) : text.length,
                             as_text ? EAGLET_SPECIAL_AS_TEXT : add ? EAGLET_SPECIAL_ADD : EAGLET_SPECIAL_ALLOW, &ids, &n_ids, &err);
  }
  if (status == EAGLET_OK) print_ids(cli, ids, n_ids);
  free(ids);
  eaglet_text_clear(&text);
  eaglet_tokenizer_close(tokenizer);
  return status == EAGLET_OK ? 0 : cli_fail(cli, status, &err);
}
