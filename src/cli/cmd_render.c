/* cmd_render.c - `eaglet render`. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The conversation token by token, trained tokens marked: in colour on a terminal, between guillemets elsewhere. */
static void print_marked(const struct cli *cli, const struct eaglet_tokenizer *tokenizer, const struct eaglet_rendered *rendered) {
  bool color = !cli->env.no_color && isatty(STDOUT_FILENO);
  struct eaglet_detokenizer *stream = eaglet_detokenizer_create(tokenizer);
  bool inside = false;
  for (size_t i = 0; i <= rendered->n_ids; i++) {
    bool trained = i < rendered->n_ids && rendered->mask[i];
    if (trained != inside) {
      fputs(eaglet_detokenizer_finish(stream), stdout);
      fputs(trained ? (color ? "\033[1;32m" : "\xc2\xab") : (color ? "\033[0m" : "\xc2\xbb"), stdout);
      inside = trained;
    }
    if (i < rendered->n_ids) fputs(eaglet_detokenizer_push(stream, rendered->ids[i]), stdout);
  }
  putchar('\n');
  eaglet_detokenizer_free(stream);
}

static void print_json(const struct eaglet_rendered *rendered) {
  json_t *document = json_object(), *ids = json_array(), *mask = json_array();
  for (size_t i = 0; i < rendered->n_ids; i++) {
    json_array_append_new(ids, json_integer(rendered->ids[i]));
    json_array_append_new(mask, json_integer(rendered->mask[i]));
  }
  json_object_set_new(document, "text", json_stringn(rendered->text.data, rendered->text.length));
  json_object_set_new(document, "ids", ids);
  json_object_set_new(document, "mask", mask);
  json_object_set_new(document, "rows", json_integer((json_int_t)rendered->n_rows));
  struct eaglet_text text = json_dump(document, 0);
  puts(text.data);
  eaglet_text_clear(&text);
  json_decref(document);
}

int cmd_render(struct cli *cli, int argc, char **argv) {
  const char *messages = NULL;
  bool mask = false;
  int train_on = 0, row = 0;
  struct eaglet_render_params params = {0};
  struct option_list arguments = {0};
  char *arguments_json = NULL;
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "messages", .letter = 'm', .value = &messages, .argument = "FILE", .help = "JSON: a messages array or one dataset row; - for standard input", .required = true},
      {.kind = OPTION_FLAG, .name = "mask", .value = &mask, .help = "mark the trained part"},
      {.kind = OPTION_INT, .name = "row", .value = &row, .argument = "K", .help = "the K-th of the rows that prepare makes of the conversation (default: all of it as one)", .min = 1, .max = 1 << 30},
      {.kind = OPTION_FLAG, .name = "last-turn", .value = &params.last_turn_only, .help = "train only the last assistant turn"},
      {.kind = OPTION_CHOICE, .name = "train-on", .value = &train_on, .argument = "both|thinking|answer", .help = "which part of a reply is trained (default both)"},
      {.kind = OPTION_FLAG, .name = "add-generation-prompt", .value = &params.add_generation_prompt, .help = "end with the assistant's header"},
      {.kind = OPTION_FLAG, .name = "allow-special-in-content", .value = &params.special_in_content, .help = "special-token text inside messages becomes special tokens"},
      CLI_TEMPLATE_ARG(arguments),
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "render", .usage = "MODEL --messages FILE [--mask] [--add-generation-prompt] [--json]",
      .summary = "a conversation through the model's own template",
      .description = "Renders with the checkpoint's chat template. --mask marks what training would learn (reply and end-of-turn token). Templates that\n"
                     "rewrite earlier replies (old thinking taken out) make prepare write a row for each reply: --row 1, --row 2 ... show them.\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;

  struct eaglet_tokenizer *tokenizer = NULL;
  struct eaglet_text text = {0};
  struct eaglet_rendered rendered = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = eaglet_tokenizer_open(&tokenizer, result.positional[0], cli->env.hub_cache, &err);
  if (status == EAGLET_OK) status = cli_template_arguments(&arguments_json, &arguments, &err);
  if (status == EAGLET_OK) status = cli_read(&text, messages, &err);
  if (status == EAGLET_OK) {
    params.messages_json = text.data;
    params.length = text.length;
    params.arguments_json = arguments_json;
    params.row = (size_t)row;
    params.train_on = (enum eaglet_train_on)train_on;
    status = eaglet_render(tokenizer, &params, &rendered, &err);
  }
  if (status == EAGLET_OK) {
    if (mask && row == 0 && rendered.n_rows > 1 && !cli->quiet)
      fprintf(stderr, "eaglet: the template rewrites earlier replies: prepare makes %zu rows of this conversation, see --row\n", rendered.n_rows);
    if (cli->json) print_json(&rendered);
    else if (mask) print_marked(cli, tokenizer, &rendered);
    else fwrite(rendered.text.data, 1, rendered.text.length, stdout);
  }
  eaglet_rendered_clear(&rendered);
  eaglet_text_clear(&text);
  eaglet_tokenizer_close(tokenizer);
  options_list_clear(&arguments);
  free(arguments_json);
  return status == EAGLET_OK ? 0 : cli_fail(cli, status, &err);
}
