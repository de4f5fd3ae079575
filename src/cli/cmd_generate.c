/* cmd_generate.c - `eaglet generate`. */
#include "cli/cli.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generate {
  struct cli *cli;
  const char *model, *prompt, *messages, *tokens;
  struct eaglet_engine_params engine;
  struct eaglet_sequence_params sequence;
  struct option_list arguments; /* for the template */
  struct eaglet_tokenizer *tokenizer; /* NULL: ids in, ids out */
  int32_t *prompt_ids;
  size_t n_prompt;
};

/* --tokens F: a JSON array of ids. */
static enum eaglet_status prompt_from_ids(struct generate *g, const struct eaglet_text *text, struct eaglet_error *err) {
  json_t *array = NULL;
  TRY(json_parse(&array, text->data, text->length, g->tokens, err));
  enum eaglet_status status = EAGLET_OK;
  if (!json_is_array(array)) status = error_set(err, EAGLET_E_INPUT, "%s: expected a JSON array of token ids", g->tokens);
  else {
    g->n_prompt = json_array_size(array);
    g->prompt_ids = memory_alloc((g->n_prompt + 1) * sizeof *g->prompt_ids);
    for (size_t i = 0; i < g->n_prompt && status == EAGLET_OK; i++) {
      const json_t *id = json_array_get(array, i);
      if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX) {
        status = error_set(err, EAGLET_E_INPUT, "%s: entry %zu: expected a token id", g->tokens, i);
      } else g->prompt_ids[i] = (int32_t)json_integer_value(id);
    }
  }
  json_decref(array);
  return status;
}

static enum eaglet_status prompt_from_messages(struct generate *g, const struct eaglet_text *text, struct eaglet_error *err) {
  struct eaglet_render_params params = {.messages_json = text->data, .length = text->length, .add_generation_prompt = true};
  struct eaglet_rendered rendered = {0};
  char *arguments;
  TRY(cli_template_arguments(&arguments, &g->arguments, err));
  params.arguments_json = arguments;
  enum eaglet_status status = eaglet_render(g->tokenizer, &params, &rendered, err);
  free(arguments);
  if (status != EAGLET_OK) return status;
  g->prompt_ids = rendered.ids;
  g->n_prompt = rendered.n_ids;
  rendered.ids = NULL;
  eaglet_rendered_clear(&rendered);
  return EAGLET_OK;
}

static enum eaglet_status read_prompt(struct generate *g, struct eaglet_error *err) {
  if (g->prompt) {
    return eaglet_tokenize(g->tokenizer, g->prompt, strlen(g->prompt), EAGLET_SPECIAL_ADD, &g->prompt_ids, &g->n_prompt, err);
  }
  struct eaglet_text text = {0};
  enum eaglet_status status = cli_read(&text, g->messages ? g->messages : g->tokens, err);
  if (status == EAGLET_OK) status = g->messages ? prompt_from_messages(g, &text, err) : prompt_from_ids(g, &text, err);
  eaglet_text_clear(&text);
  return status;
}

static json_t *ids_json(const int32_t *ids, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++) json_array_append_new(array, json_integer(ids[i]));
  return array;
}

/* Tokens per verification round; the first token comes from the prompt's own pass, so it is not counted. */
static double acceptance_length(const struct eaglet_sequence_stats *s) { return s->rounds > 0 ? (double)(s->output_tokens - 1) / s->rounds : 0; }
static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

/* A decoder (of text, not of special tokens) that stands where the output begins: behind the prompt, so that what it gives continues the prompt's text. A reply to
 * messages is a text of its own. */
static struct eaglet_detokenizer *output_decoder(const struct generate *g) {
  if (!g->tokenizer) return NULL;
  struct eaglet_detokenizer *decoder = eaglet_detokenizer_create(g->tokenizer);
  eaglet_detokenizer_skip_special(decoder, true);
  if (!g->messages) eaglet_detokenizer_follow(decoder, g->prompt_ids, g->n_prompt);
  return decoder;
}

static void output_text(const struct generate *g, const int32_t *ids, size_t n, struct buffer *text) {
  struct eaglet_detokenizer *decoder = output_decoder(g);
  if (!decoder) return;
  for (size_t i = 0; i < n; i++) buffer_append_string(text, eaglet_detokenizer_push(decoder, ids[i]));
  buffer_append_string(text, eaglet_detokenizer_finish(decoder));
  eaglet_detokenizer_free(decoder);
}

static void print_result(const struct generate *g, const struct eaglet_sequence *sequence) {
  const int32_t *ids;
  size_t n = (size_t)eaglet_sequence_output(sequence, &ids), ends = eaglet_sequence_stop(sequence) == EAGLET_STOP_TOKEN;
  const struct eaglet_sequence_stats *s = eaglet_sequence_stats(sequence);
  if (!g->cli->json) {
    if (!g->cli->quiet) {
      fprintf(stderr, "%d tokens, %.0f tok/s (prompt %d, %.0f tok/s), %d rounds, acceptance length %.2f\n", s->output_tokens,
              rate(s->output_tokens - 1, s->decode_s), s->prompt_tokens, rate(s->prompt_tokens, s->prefill_s), s->rounds, acceptance_length(s));
    }
    return;
  }
  struct buffer text = {0};
  output_text(g, ids, n - ends, &text); /* the token that ends the output is no text */
  json_t *stats = json_pack("{s:i,s:i,s:f,s:f,s:i,s:i,s:i,s:f}", "prompt_tokens", s->prompt_tokens, "output_tokens", s->output_tokens,
                            "prefill_tok_s", rate(s->prompt_tokens, s->prefill_s), "decode_tok_s", rate(s->output_tokens - 1, s->decode_s),
                            "rounds", s->rounds, "drafted", s->drafted, "accepted", s->accepted, "acceptance_length", acceptance_length(s));
  json_t *document = json_object();
  json_object_set_new(document, "prompt_ids", ids_json(g->prompt_ids, g->n_prompt));
  json_object_set_new(document, "output_ids", ids_json(ids, n));
  json_object_set_new(document, "text", g->tokenizer ? json_stringn(text.data ? text.data : "", text.length) : json_null());
  json_object_set_new(document, "stats", stats);
  struct eaglet_text dump = json_dump(document, 0);
  puts(dump.data);
  eaglet_text_clear(&dump);
  buffer_clear(&text);
  json_decref(document);
}

static enum eaglet_status decode(const struct generate *g, struct eaglet_engine *engine, struct eaglet_sequence *sequence, struct eaglet_error *err) {
  struct eaglet_detokenizer *stream = output_decoder(g);
  enum eaglet_status status = EAGLET_OK;
  int32_t shown = 0, n_live = 1;
  while (status == EAGLET_OK && n_live > 0) {
    status = eaglet_step(engine, &n_live, err);
    if (progress_signal()) eaglet_sequence_cancel(sequence);
    const int32_t *ids;
    int32_t n = eaglet_sequence_output(sequence, &ids);
    bool stopped = eaglet_sequence_stop(sequence) == EAGLET_STOP_TOKEN;
    for (; !g->cli->json && shown < n - (stopped ? 1 : 0); shown++) {
      if (stream)
        fputs(eaglet_detokenizer_push(stream, ids[shown]), stdout);
      else
        printf("%d ", ids[shown]);
    }
    fflush(stdout);
  }
  if (!g->cli->json) {
    if (stream) fputs(eaglet_detokenizer_finish(stream), stdout);
    putchar('\n');
  }
  if (stream) eaglet_detokenizer_free(stream);
  return status;
}

static enum eaglet_status generate_run(struct generate *g, struct eaglet_error *err) {
  struct eaglet_engine *engine = NULL;
  struct eaglet_sequence *sequence = NULL;
  enum eaglet_status status = EAGLET_OK;
  status = eaglet_tokenizer_open(&g->tokenizer, g->model, g->cli->env.hub_cache, err);
  if (status != EAGLET_OK && !g->tokens) goto done;
  if (status != EAGLET_OK) log_warning("%s; ids are printed as ids", err->message);
  TRY_GOTO(read_prompt(g, err), done);
  if (g->n_prompt == 0) {
    status = error_set(err, EAGLET_E_INPUT, "the prompt is empty");
    goto done;
  }
  g->sequence.prompt = g->prompt_ids;
  g->sequence.n_prompt = (int32_t)g->n_prompt;
  TRY_GOTO(eaglet_engine_open(&engine, &g->engine, err), done);
  TRY_GOTO(eaglet_sequence_create(&sequence, engine, &g->sequence, err), done);
  TRY_GOTO(decode(g, engine, sequence, err), done);
  print_result(g, sequence);
done:
  eaglet_sequence_free(sequence);
  eaglet_engine_close(engine);
  eaglet_tokenizer_close(g->tokenizer);
  free(g->prompt_ids);
  return status;
}

int cmd_generate(struct cli *cli, int argc, char **argv) {
  struct generate g = {.cli = cli};
  int32_t draft_len = 0;
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "prompt", .letter = 'p', .value = &g.prompt, .argument = "S", .help = "raw text to continue"},
      {.kind = OPTION_STRING, .name = "messages", .letter = 'm', .value = &g.messages, .argument = "FILE", .help = "JSON messages, rendered by the model's template; - for standard input"},
      {.kind = OPTION_STRING, .name = "tokens", .value = &g.tokens, .argument = "FILE", .help = "JSON array of token ids"},
      {.kind = OPTION_STRING, .name = "draft", .value = &g.engine.draft, .argument = "DIR", .help = "EAGLE-3 head: decode speculatively"},
      {.kind = OPTION_INT, .name = "draft-len", .value = &draft_len, .argument = "N", .help = "drafted tokens per round (default 7)", .min = 1, .max = 15},
      {.kind = OPTION_INT, .name = "max-tokens", .letter = 'n', .value = &g.sequence.output_max, .argument = "N", .help = "output tokens (default 256)", .min = 1, .max = 1 << 24},
      {.kind = OPTION_FLOAT, .name = "temperature", .letter = 't', .value = &g.sequence.temperature, .argument = "T", .help = "0: greedy (default)", .min = 0, .max = 10},
      {.kind = OPTION_INT, .name = "top-k", .value = &g.sequence.top_k, .argument = "N", .help = "sample from the N likeliest tokens", .min = 1, .max = 1 << 24},
      {.kind = OPTION_FLOAT, .name = "top-p", .value = &g.sequence.top_p, .argument = "P", .help = "sample from the smallest set with mass P", .min = 1e-6, .max = 1},
      {.kind = OPTION_UINT64, .name = "seed", .value = &g.sequence.seed, .argument = "S", .help = "of sampling (default 0)"},
      CLI_TEMPLATE_ARG(g.arguments),
      {.kind = OPTION_FLAG, .name = "ignore-eos", .value = &g.sequence.ignore_stop, .help = "run to --max-tokens"},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "generate", .usage = "MODEL [--draft DIR] (--prompt S | --messages FILE | --tokens FILE) [--max-tokens N] [--json]",
      .summary = "text from a prompt",
      .description = "Greedy output with a head is bit for bit the output without it. Statistics go to standard error, or into the JSON document.\n"
                     "\n  eaglet generate models/nano-kimi --draft models/nano-kimi-eagle3 --messages chat.json --max-tokens 96\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  if (!!g.prompt + !!g.messages + !!g.tokens != 1) return cli_usage_error(cli, "generate: give exactly one of --prompt, --messages, --tokens");
  g.model = result.positional[0];
  g.engine.model = g.model;
  g.engine.hub_cache = cli->env.hub_cache;
  g.engine.ignore_index = cli->ignore_index;
  g.engine.device = cli->device;
  g.engine.precision = cli_precision(cli);
  g.engine.threads = cli->threads;
  g.engine.draft_len_max = draft_len;
  struct eaglet_error err = {0};
  enum eaglet_status status = generate_run(&g, &err);
  options_list_clear(&g.arguments);
  return status == EAGLET_OK ? 0 : cli_fail(cli, status, &err);
}
