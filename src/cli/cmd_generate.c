/* cmd_generate.c - `eaglet generate`. */
#include "cli/cli.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/util.h"
#include "cli/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generate {
  struct cli *cli;
  const char *model, *prompt, *messages, *tokens;
  struct eaglet_engine_params engine;
  struct cli_drafting drafting;
  struct cli_sampling sampling;
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

static const char *stop_name(enum eaglet_stop stop) {
  static const char *const names[] = {"none", "token", "string", "constraint", "length", "context", "cancelled"};
  return names[stop];
}

static json_t *entries_json(const struct eaglet_token_logprob *entries, int32_t n) {
  if (n == 0) return json_null(); /* a prompt's first token has no probability */
  json_t *top = json_array();
  for (int32_t i = 1; i < n; i++) json_array_append_new(top, json_pack("{si sf}", "id", entries[i].token, "logprob", (double)entries[i].logprob));
  return json_pack("{si sf si so}", "id", entries[0].token, "logprob", (double)entries[0].logprob, "rank", entries[0].rank, "top", top);
}

/* Logprobs of output or prompt tokens. */
static json_t *logprobs_json(const struct eaglet_sequence *sequence, int32_t n, bool prompt) {
  json_t *array = json_array();
  for (int32_t i = 0; i < n; i++) {
    const struct eaglet_token_logprob *entries;
    int32_t n_entries = (prompt ? eaglet_sequence_prompt_logprobs : eaglet_sequence_logprobs)(sequence, i, &entries);
    json_array_append_new(array, entries_json(entries, n_entries));
  }
  return array;
}

static json_t *stats_json(const struct eaglet_sequence_stats *s) {
  return json_pack("{s:i,s:i,s:f,s:f,s:i,s:i,s:i,s:f}", "prompt_tokens", s->prompt_tokens, "output_tokens", s->output_tokens, "prefill_tok_s",
                   rate(s->prompt_tokens, s->prefill_s), "decode_tok_s", rate(s->output_tokens - 1, s->decode_s), "rounds", s->rounds,
                   "drafted", s->drafted, "accepted", s->accepted, "acceptance_length", acceptance_length(s));
}

static void print_stats(const struct generate *g, const struct eaglet_engine *engine, const struct eaglet_sequence_stats *s) {
  struct eaglet_engine_stats stats;
  if (g->cli->quiet) return;
  eaglet_engine_stats_get(engine, &stats);
  fprintf(stderr, "%d tokens, %.0f tok/s (prompt %d, %.0f tok/s), %d rounds, acceptance length %.2f\n", s->output_tokens,
          rate(s->output_tokens - 1, s->decode_s), s->prompt_tokens, rate(s->prompt_tokens, s->prefill_s), s->rounds, acceptance_length(s));
  if (g->engine.adaptive) fprintf(stderr, "%s\n", stats.speculation);
}

static void print_result(const struct generate *g, const struct eaglet_engine *engine, struct eaglet_sequence *sequence) {
  const int32_t *ids;
  const struct eaglet_sequence_params *p = &g->sampling.params;
  const struct eaglet_sequence_stats *s = eaglet_sequence_stats(sequence);
  size_t n = (size_t)eaglet_sequence_output(sequence, &ids), length;
  if (!g->cli->json) {
    print_stats(g, engine, s);
    return;
  }
  const char *text = eaglet_sequence_text(sequence, &length);
  json_t *document = json_object();
  json_object_set_new(document, "prompt_ids", ids_json(g->prompt_ids, g->n_prompt));
  json_object_set_new(document, "output_ids", ids_json(ids, n));
  json_object_set_new(document, "text", g->tokenizer ? json_stringn(text, length) : json_null());
  json_object_set_new(document, "stop", json_string(stop_name(eaglet_sequence_stop(sequence))));
  json_object_set_new(document, "stats", stats_json(s));
  if (p->n_logprobs) json_object_set_new(document, "logprobs", logprobs_json(sequence, (int32_t)n, false));
  if (p->n_prompt_logprobs) json_object_set_new(document, "prompt_logprobs", logprobs_json(sequence, (int32_t)g->n_prompt, true));
  struct eaglet_text dump = json_dump(document, 0);
  puts(dump.data);
  eaglet_text_clear(&dump);
  json_decref(document);
}

/* Prints what is new: text, or ids without a tokenizer. */
static void show(const struct generate *g, struct eaglet_sequence *sequence, size_t *shown) {
  size_t length;
  if (g->tokenizer) {
    const char *text = eaglet_sequence_text(sequence, &length);
    if (length > *shown) fwrite(text + *shown, 1, length - *shown, stdout);
    if (length > *shown) *shown = length;
  } else {
    const int32_t *ids;
    length = (size_t)eaglet_sequence_output(sequence, &ids) - (eaglet_sequence_stop(sequence) == EAGLET_STOP_TOKEN); /* that token is no text */
    for (; *shown < length; ++*shown) printf("%d ", ids[*shown]);
  }
  fflush(stdout);
}

static enum eaglet_status decode(const struct generate *g, struct eaglet_engine *engine, struct eaglet_sequence *sequence, struct eaglet_error *err) {
  enum eaglet_status status = EAGLET_OK;
  size_t shown = 0;
  for (int32_t n_live = 1; status == EAGLET_OK && n_live > 0;) {
    status = eaglet_step(engine, &n_live, err);
    if (progress_signal()) eaglet_sequence_cancel(sequence);
    if (!g->cli->json) show(g, sequence, &shown);
  }
  if (!g->cli->json) putchar('\n');
  return status;
}

static enum eaglet_status generate_run(struct generate *g, struct eaglet_error *err) {
  struct eaglet_engine *engine = NULL;
  struct eaglet_sequence *sequence = NULL;
  enum eaglet_status status = eaglet_tokenizer_open(&g->tokenizer, g->model, g->cli->env.hub_cache, err);
  if (status != EAGLET_OK && !g->tokens) goto done;
  if (status != EAGLET_OK) log_warning("%s; ids are printed as ids", err->message);
  TRY_GOTO(read_prompt(g, err), done);
  if (g->n_prompt == 0) {
    status = error_set(err, EAGLET_E_INPUT, "the prompt is empty");
    goto done;
  }
  g->sampling.params.prompt = g->prompt_ids;
  g->sampling.params.n_prompt = (int32_t)g->n_prompt;
  g->sampling.params.continues_prompt = !g->messages; /* a reply to messages is a text of its own */
  TRY_GOTO(eaglet_engine_open(&engine, &g->engine, err), done);
  TRY_GOTO(cli_sampling_constrain(&g->sampling, engine, g->tokenizer, err), done);
  TRY_GOTO(eaglet_sequence_create(&sequence, engine, &g->sampling.params, err), done);
  TRY_GOTO(decode(g, engine, sequence, err), done);
  print_result(g, engine, sequence);
done:
  eaglet_sequence_free(sequence);
  eaglet_engine_close(engine);
  eaglet_tokenizer_close(g->tokenizer);
  free(g->prompt_ids);
  return status;
}

int cmd_generate(struct cli *cli, int argc, char **argv) {
  struct generate g = {.cli = cli};
  struct option drafting[CLI_DRAFTING_OPTIONS], sampling[CLI_SAMPLING_OPTIONS];
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "prompt", .letter = 'p', .value = &g.prompt, .argument = "S", .help = "raw text to continue", .heading = "the prompt (one of)"},
      {.kind = OPTION_STRING, .name = "messages", .letter = 'm', .value = &g.messages, .argument = "FILE", .help = "JSON messages, a conversation to reply to by the model's own chat template; - for standard input"},
      {.kind = OPTION_STRING, .name = "tokens", .value = &g.tokens, .argument = "FILE", .help = "JSON array of token ids; - for standard input"},
      CLI_TEMPLATE_ARG(g.arguments),
      OPTION_END,
  };
  const struct option adaptive[] = {
      {.kind = OPTION_FLAG, .name = "adaptive", .value = &g.engine.adaptive, .help = "draft only what pays, as measured (default: up to the limits in every round)"},
      OPTION_END,
  };
  const struct option *tables[] = {own, drafting, adaptive, sampling, cli->common, NULL};
  const struct options_spec spec = {
      .command = "generate", .usage = "MODEL [--draft DIR] (--prompt S | --messages FILE | --tokens FILE) [--max-tokens N] [--json]",
      .summary = "text from a prompt",
      .description = "The text goes to standard output as it is made. Statistics go to standard error, or into the document of --json: prompt_ids,\n"
                     "output_ids, text, stop (token, string, constraint, length, context), stats and, when asked for, logprobs and prompt_logprobs.\n"
                     "Greedy output with a draft is bit for bit the output without it. A seed draws the same text again while the draft's limits are\n"
                     "the same; with --adaptive they depend on time, and only the law of the text is the same.\n"
                     "\n  eaglet generate models/nano-kimi --draft models/nano-kimi-eagle3 --messages chat.json --max-tokens 96\n"
                     "  eaglet generate MODEL --prompt 'A person: ' --json-schema person.json\n"
                     "  eaglet generate MODEL --prompt 'Paris or Rome? ' --choice Paris Rome --json --logprobs 2\n"
                     "  eaglet generate MODEL --messages chat.json --drafter ngram --stop 'Question:'\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  cli_drafting_table(&g.drafting, drafting);
  cli_sampling_table(&g.sampling, sampling);
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  struct eaglet_error err = {0};
  if (!!g.prompt + !!g.messages + !!g.tokens != 1) return cli_usage_error(cli, "generate: give exactly one of --prompt, --messages, --tokens");
  g.model = result.positional[0];
  g.engine.model = g.model;
  g.engine.hub_cache = cli->env.hub_cache;
  g.engine.ignore_index = cli->ignore_index;
  g.engine.device = cli->device;
  g.engine.precision = cli_precision(cli);
  g.engine.threads = cli->threads;
  g.engine.draft = g.drafting.draft;
  g.engine.drafter = cli_drafter(&g.drafting);
  g.engine.draft_len_max = g.drafting.len;
  g.engine.draft_width_max = g.drafting.width;
  g.engine.draft_tokens_max = g.drafting.tokens;
  enum eaglet_status status = cli_drafting_check(&g.drafting, &err);
  if (status == EAGLET_OK && g.engine.adaptive && !cli_drafts(&g.drafting))
    status = error_set(&err, EAGLET_E_USAGE, "--adaptive: nobody drafts; give --draft DIR, --drafter mtp or --drafter ngram");
  if (status == EAGLET_OK) status = cli_sampling_read(&g.sampling, cli->json, &err);
  if (status == EAGLET_OK) status = generate_run(&g, &err);
  options_list_clear(&g.arguments);
  cli_sampling_clear(&g.sampling);
  return status == EAGLET_OK ? 0 : cli_fail(cli, status, &err);
}
