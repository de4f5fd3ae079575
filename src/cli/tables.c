/* tables.c - see tables.h. */
#include "cli/tables.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- who drafts ---- */

void cli_drafting_table(struct cli_drafting *d, struct option table[CLI_DRAFTING_OPTIONS]) {
  const struct option options[CLI_DRAFTING_OPTIONS] = {
      {.kind = OPTION_STRING, .name = "draft", .value = &d->draft, .argument = "DIR", .help = "EAGLE-3 head, or a small model of the same vocabulary: decode speculatively"},
      {.kind = OPTION_CHOICE, .name = "drafter", .value = &d->drafter, .argument = "auto|none|head|model|mtp|ngram", .help = "who drafts (default: by what --draft is); mtp: the model's own prediction layer; ngram: what followed the text's last tokens before"},
      {.kind = OPTION_INT, .name = "draft-len", .value = &d->len, .argument = "N", .help = "levels of drafts per round (default 7)", .min = 1, .max = 15},
      {.kind = OPTION_INT, .name = "draft-width", .value = &d->width, .argument = "N", .help = "drafted tokens per level: 1 (default) a chain, more a dynamic tree", .min = 1, .max = 10},
      {.kind = OPTION_INT, .name = "draft-tokens", .value = &d->tokens, .argument = "N", .help = "drafted tokens per round (default: a chain's levels; 24 of a tree)", .min = 1, .max = 63},
      OPTION_END};
  memcpy(table, options, sizeof options);
}

enum eaglet_drafter cli_drafter(const struct cli_drafting *d) { return d->drafter > 0 ? (enum eaglet_drafter)(d->drafter - 1) : EAGLET_DRAFTER_AUTO; }

/* ---- how a text is made ---- */

void cli_sampling_table(struct cli_sampling *s, struct option table[CLI_SAMPLING_OPTIONS]) {
  struct eaglet_sequence_params *p = &s->params;
  const struct option options[CLI_SAMPLING_OPTIONS] = {
      {.kind = OPTION_INT, .name = "max-tokens", .letter = 'n', .value = &p->output_max, .argument = "N", .help = "output tokens (default 256)", .min = 1, .max = 1 << 24},
      {.kind = OPTION_INT, .name = "min-tokens", .value = &p->output_min, .argument = "N", .help = "no end before so many", .min = 0, .max = 1 << 24},
      {.kind = OPTION_FLOAT, .name = "temperature", .letter = 't', .value = &p->temperature, .argument = "T", .help = "0: greedy (default)", .min = 0, .max = 10},
      {.kind = OPTION_INT, .name = "top-k", .value = &p->top_k, .argument = "N", .help = "sample from the N likeliest tokens", .min = 1, .max = 1 << 24},
      {.kind = OPTION_FLOAT, .name = "top-p", .value = &p->top_p, .argument = "P", .help = "sample from the smallest set with mass P", .min = 1e-6, .max = 1},
      {.kind = OPTION_FLOAT, .name = "min-p", .value = &p->min_p, .argument = "P", .help = "leave out tokens below P times the likeliest one's probability", .min = 0, .max = 1},
      {.kind = OPTION_FLOAT, .name = "repetition-penalty", .value = &p->repetition_penalty, .argument = "X", .help = "divides the logits of tokens that prompt or output have (multiplies negative ones)", .min = 0.01, .max = 100},
      {.kind = OPTION_FLOAT, .name = "frequency-penalty", .value = &p->frequency_penalty, .argument = "X", .help = "taken from a logit for every time that the output has the token", .min = -2, .max = 2},
      {.kind = OPTION_FLOAT, .name = "presence-penalty", .value = &p->presence_penalty, .argument = "X", .help = "taken from a logit once the output has the token", .min = -2, .max = 2},
      {.kind = OPTION_LIST, .name = "logit-bias", .value = &s->bias, .argument = "ID=B", .help = "added to a token's logit; -inf: never"},
      {.kind = OPTION_UINT64, .name = "seed", .value = &p->seed, .argument = "S", .help = "of sampling (default 0)"},
      {.kind = OPTION_LIST, .name = "stop", .value = &s->stops, .argument = "S", .help = "end before this text"},
      {.kind = OPTION_LIST, .name = "stop-id", .value = &s->stop_ids, .argument = "ID", .help = "end with this token"},
      {.kind = OPTION_FLAG, .name = "keep-stop", .value = &p->keep_stop, .help = "the text of --stop is part of the output"},
      {.kind = OPTION_FLAG, .name = "ignore-eos", .value = &p->ignore_stop, .help = "run to --max-tokens"},
      {.kind = OPTION_STRING, .name = "regex", .value = &s->regex, .argument = "R", .help = "the whole output matches"},
      {.kind = OPTION_STRING, .name = "json-schema", .value = &s->schema, .argument = "FILE", .help = "the output is a JSON value that the schema accepts; the schema itself when it begins with {"},
      {.kind = OPTION_FLAG, .name = "json-object", .value = &s->json_object, .help = "the output is a JSON object"},
      {.kind = OPTION_LIST, .name = "choice", .value = &s->choices, .argument = "S", .help = "the output is one of these"},
      {.kind = OPTION_INT, .name = "json-whitespace", .value = &s->whitespace, .argument = "N", .help = "blanks that JSON output may have in a row (default: one space behind ',' and ':')", .min = 1, .max = 64},
      {.kind = OPTION_INT, .name = "logprobs", .value = &p->n_logprobs, .argument = "N", .help = "with --json: each token's logprob and the N likeliest", .min = 1, .max = EAGLET_LOGPROBS_MAX},
      {.kind = OPTION_INT, .name = "prompt-logprobs", .value = &p->n_prompt_logprobs, .argument = "N", .help = "with --json: the same of the prompt", .min = 1, .max = EAGLET_LOGPROBS_MAX},
      OPTION_END};
  memcpy(table, options, sizeof options);
}

static enum eaglet_status read_bias(struct cli_sampling *s, struct eaglet_error *err) {
  s->biases = memory_alloc((s->bias.n + 1) * sizeof *s->biases);
  for (size_t i = 0; i < s->bias.n; i++) {
    const char *text = s->bias.values[i];
    char *after, *end;
    long token = strtol(text, &after, 10);
    double bias = *after == '=' ? strtod(after + 1, &end) : 0;
    if (after == text || *after != '=' || end == after + 1 || *end || isnan(bias) || token < 0 || token > INT32_MAX)
      FAIL(err, EAGLET_E_USAGE, "--logit-bias %s: expected ID=NUMBER", text);
    s->biases[i] = (struct eaglet_logit_bias){(int32_t)token, (float)bias};
  }
  s->params.bias = s->biases;
  s->params.n_bias = (int32_t)s->bias.n;
  return EAGLET_OK;
}

static enum eaglet_status read_stop_ids(struct cli_sampling *s, struct eaglet_error *err) {
  s->ids = memory_alloc((s->stop_ids.n + 1) * sizeof *s->ids);
  for (size_t i = 0; i < s->stop_ids.n; i++) {
    const char *text = s->stop_ids.values[i];
    char *end;
    long id = strtol(text, &end, 10);
    if (end == text || *end || id < 0 || id > INT32_MAX) FAIL(err, EAGLET_E_USAGE, "--stop-id %s: expected a token id", text);
    s->ids[i] = (int32_t)id;
  }
  s->params.stop_ids = s->ids;
  s->params.n_stop_ids = (int32_t)s->stop_ids.n;
  return EAGLET_OK;
}

static enum eaglet_status compile(struct cli_sampling *s, const struct eaglet_engine *engine, struct eaglet_tokenizer *tokenizer,
                                  struct eaglet_error *err) {
  struct eaglet_text schema = {0};
  struct eaglet_constraint_params params = {.tokenizer = tokenizer,
                                            .regex = s->regex,
                                            .json_object = s->json_object,
                                            .choices = s->choices.n > 0 ? s->choices.values : NULL,
                                            .n_choices = s->choices.n,
                                            .whitespace_max = s->whitespace};
  if (!s->regex && !s->schema && !s->json_object && s->choices.n == 0) return EAGLET_OK;
  if (s->schema && s->schema[strspn(s->schema, " \t\n")] == '{') {
    params.json_schema = s->schema;
  } else if (s->schema) {
    TRY(cli_read(&schema, s->schema, err));
    params.json_schema = schema.data;
  }
  enum eaglet_status status = eaglet_constraint_create(&s->constraint, engine, &params, err);
  eaglet_text_clear(&schema);
  s->params.constraint = s->constraint;
  return status;
}

enum eaglet_status cli_sampling_resolve(struct cli_sampling *s, const struct eaglet_engine *engine, struct eaglet_tokenizer *tokenizer,
                                        struct eaglet_error *err) {
  s->params.tokenizer = tokenizer;
  s->params.stops = s->stops.values;
  s->params.n_stops = s->stops.n;
  TRY(read_bias(s, err));
  TRY(read_stop_ids(s, err));
  return compile(s, engine, tokenizer, err);
}

void cli_sampling_clear(struct cli_sampling *s) {
  eaglet_constraint_free(s->constraint);
  free(s->biases);
  free(s->ids);
  options_list_clear(&s->bias);
  options_list_clear(&s->stops);
  options_list_clear(&s->stop_ids);
  options_list_clear(&s->choices);
}
