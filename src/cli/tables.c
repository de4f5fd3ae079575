/* tables.c - see tables.h. */
#include "cli/tables.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_MAX_DEFAULT 256 /* of struct eaglet_sequence_params */

/* ---- who drafts ---- */

void cli_drafting_table(struct cli_drafting *d, struct option table[CLI_DRAFTING_OPTIONS]) {
  const struct option options[CLI_DRAFTING_OPTIONS] = {
      {.kind = OPTION_STRING, .name = "draft", .value = &d->draft, .argument = "DIR", .help = "EAGLE-3 head, or a small model of the same vocabulary (default: nobody drafts)", .heading = "who drafts, and how much"},
      {.kind = OPTION_CHOICE, .name = "drafter", .value = &d->drafter, .argument = "auto|none|head|model|mtp|ngram", .help = "auto (default): by what --draft is. Without --draft: mtp, the model's own prediction layer; ngram, what followed the text's last tokens before"},
      {.kind = OPTION_INT, .name = "draft-len", .value = &d->len, .argument = "N", .help = "levels of drafts per round, at most 15 (default 7)", .min = 1, .max = 15},
      {.kind = OPTION_INT, .name = "draft-width", .value = &d->width, .argument = "N", .help = "drafted tokens per level, at most 10: 1 a chain (default), more a dynamic tree", .min = 1, .max = 10},
      {.kind = OPTION_INT, .name = "draft-tokens", .value = &d->tokens, .argument = "N", .help = "drafted tokens per round, at most 63 (default: a chain's levels; 24 of a tree)", .min = 1, .max = 63},
      OPTION_END};
  memcpy(table, options, sizeof options);
}

enum eaglet_drafter cli_drafter(const struct cli_drafting *d) { return d->drafter > 0 ? (enum eaglet_drafter)(d->drafter - 1) : EAGLET_DRAFTER_AUTO; }

bool cli_drafts(const struct cli_drafting *d) {
  enum eaglet_drafter drafter = cli_drafter(d);
  return d->draft || drafter == EAGLET_DRAFTER_MTP || drafter == EAGLET_DRAFTER_NGRAM;
}

enum eaglet_status cli_drafting_check(const struct cli_drafting *d, struct eaglet_error *err) {
  const char *useless = d->len ? "--draft-len" : d->width ? "--draft-width" : d->tokens ? "--draft-tokens" : NULL;
  enum eaglet_drafter drafter = cli_drafter(d);
  if (d->draft && (drafter == EAGLET_DRAFTER_NONE || drafter == EAGLET_DRAFTER_MTP || drafter == EAGLET_DRAFTER_NGRAM))
    FAIL(err, EAGLET_E_USAGE, "--draft %s: --drafter %s takes none", d->draft,
         drafter == EAGLET_DRAFTER_NONE ? "none" : drafter == EAGLET_DRAFTER_MTP ? "mtp" : "ngram");
  if (!d->draft && (drafter == EAGLET_DRAFTER_HEAD || drafter == EAGLET_DRAFTER_MODEL))
    FAIL(err, EAGLET_E_USAGE, "--drafter %s: expected its directory as --draft", drafter == EAGLET_DRAFTER_HEAD ? "head" : "model");
  if (useless && !cli_drafts(d)) FAIL(err, EAGLET_E_USAGE, "%s: nobody drafts; give --draft DIR, --drafter mtp or --drafter ngram", useless);
  return EAGLET_OK;
}

/* ---- how a text is made ---- */

void cli_sampling_table(struct cli_sampling *s, struct option table[CLI_SAMPLING_OPTIONS]) {
  struct eaglet_sequence_params *p = &s->params;
  const struct option options[CLI_SAMPLING_OPTIONS] = {
      {.kind = OPTION_FLOAT, .name = "temperature", .letter = 't', .value = &p->temperature, .argument = "T", .help = "0: the likeliest token every time (default)", .min = 0, .max = 10, .heading = "sampling (all but the seed: default off)"},
      {.kind = OPTION_INT, .name = "top-k", .value = &p->top_k, .argument = "N", .help = "sample from the N likeliest tokens", .min = 1, .max = 1 << 24},
      {.kind = OPTION_FLOAT, .name = "top-p", .value = &p->top_p, .argument = "P", .help = "sample from the smallest set of tokens with mass P", .min = 1e-6, .max = 1},
      {.kind = OPTION_FLOAT, .name = "min-p", .value = &p->min_p, .argument = "P", .help = "leave out tokens below P times the likeliest one's probability", .min = 0, .max = 1},
      {.kind = OPTION_FLOAT, .name = "repetition-penalty", .value = &p->repetition_penalty, .argument = "X", .help = "divides the logits of tokens that prompt or output have (multiplies negative ones); 1: off", .min = 0.01, .max = 100},
      {.kind = OPTION_FLOAT, .name = "frequency-penalty", .value = &p->frequency_penalty, .argument = "X", .help = "taken from a token's logit for every time that the output has it", .min = -2, .max = 2},
      {.kind = OPTION_FLOAT, .name = "presence-penalty", .value = &p->presence_penalty, .argument = "X", .help = "taken from a token's logit once the output has it", .min = -2, .max = 2},
      {.kind = OPTION_LIST, .name = "logit-bias", .value = &s->bias, .argument = "ID=B", .help = "B is added to the logit of token ID; -inf: never that token"},
      {.kind = OPTION_UINT64, .name = "seed", .value = &p->seed, .argument = "S", .help = "the same seed draws the same text (default 0)"},
      {.kind = OPTION_INT, .name = "max-tokens", .letter = 'n', .value = &p->output_max, .argument = "N", .help = "at most so many tokens (default 256)", .min = 1, .max = 1 << 24, .heading = "where the text ends"},
      {.kind = OPTION_INT, .name = "min-tokens", .value = &p->output_min, .argument = "N", .help = "no stop token and no stop text before so many (default 0)", .min = 0, .max = 1 << 24},
      {.kind = OPTION_LIST, .name = "stop", .value = &s->stops, .argument = "S", .help = "end before this text, wherever tokens cut it"},
      {.kind = OPTION_FLAG, .name = "keep-stop", .value = &p->keep_stop, .help = "end behind the text of --stop (default: before it)"},
      {.kind = OPTION_LIST, .name = "stop-id", .value = &s->stop_ids, .argument = "ID", .help = "end with this token, as with the model's own end of turn"},
      {.kind = OPTION_FLAG, .name = "ignore-eos", .value = &p->ignore_stop, .help = "the model's own stop tokens end nothing"},
      {.kind = OPTION_STRING, .name = "regex", .value = &s->regex, .argument = "R", .help = "the whole text matches", .heading = "what the text must be (one of; drafts follow it too)"},
      {.kind = OPTION_STRING, .name = "json-schema", .value = &s->schema, .argument = "FILE", .help = "the text is a JSON value that this schema accepts; instead of a file: the schema itself, which begins with {"},
      {.kind = OPTION_FLAG, .name = "json-object", .value = &s->json_object, .help = "the text is a JSON object"},
      {.kind = OPTION_LIST, .name = "choice", .value = &s->choices, .argument = "S", .help = "the text is one of these"},
      {.kind = OPTION_INT, .name = "json-whitespace", .value = &s->whitespace, .argument = "N", .help = "of JSON: up to N blanks in a row wherever it allows them (default: one space behind ',' and ':')", .min = 1, .max = 64},
      {.kind = OPTION_INT, .name = "logprobs", .value = &p->n_logprobs, .argument = "N", .help = "with --json: each token's logprob, and the N likeliest, at most 20; of the model's own logits (default: none)", .min = 1, .max = EAGLET_LOGPROBS_MAX, .heading = "what is told about it"},
      {.kind = OPTION_INT, .name = "prompt-logprobs", .value = &p->n_prompt_logprobs, .argument = "N", .help = "with --json: the same of the prompt's tokens", .min = 1, .max = EAGLET_LOGPROBS_MAX},
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

/* At most one constraint, and nothing that would be passed over in silence. */
static enum eaglet_status check(const struct cli_sampling *s, bool json, struct eaglet_error *err) {
  const struct {
    const char *name;
    bool given;
  } kinds[] = {{"--regex", s->regex}, {"--json-schema", s->schema}, {"--json-object", s->json_object}, {"--choice", s->choices.n > 0}};
  const char *first = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (kinds[i].given && first) FAIL(err, EAGLET_E_USAGE, "%s and %s: the text can follow one of them", first, kinds[i].name);
    if (kinds[i].given) first = kinds[i].name;
  }
  if (s->whitespace > 0 && !s->schema && !s->json_object)
    FAIL(err, EAGLET_E_USAGE, "--json-whitespace: goes with --json-schema or --json-object");
  int32_t output_max = s->params.output_max > 0 ? s->params.output_max : OUTPUT_MAX_DEFAULT;
  if (s->params.output_min > output_max)
    FAIL(err, EAGLET_E_USAGE, "--min-tokens %d: more than --max-tokens %d", s->params.output_min, output_max);
  if (s->params.keep_stop && s->stops.n == 0) FAIL(err, EAGLET_E_USAGE, "--keep-stop: there is no --stop");
  if ((s->params.n_logprobs || s->params.n_prompt_logprobs) && !json)
    FAIL(err, EAGLET_E_USAGE, "%s: shown in the document of --json only", s->params.n_logprobs ? "--logprobs" : "--prompt-logprobs");
  return EAGLET_OK;
}

enum eaglet_status cli_sampling_read(struct cli_sampling *s, bool json, struct eaglet_error *err) {
  s->params.stops = s->stops.values;
  s->params.n_stops = s->stops.n;
  TRY(check(s, json, err));
  TRY(read_bias(s, err));
  return read_stop_ids(s, err);
}

static enum eaglet_status read_schema(const struct cli_sampling *s, struct eaglet_text *text, struct eaglet_error *err) {
  json_t *schema = NULL;
  TRY(cli_read(text, s->schema, err));
  enum eaglet_status status = json_parse(&schema, text->data, text->length, s->schema, err); /* to name the file */
  json_decref(schema);
  return status;
}

enum eaglet_status cli_sampling_constrain(struct cli_sampling *s, const struct eaglet_engine *engine, struct eaglet_tokenizer *tokenizer,
                                          struct eaglet_error *err) {
  struct eaglet_text schema = {0};
  struct eaglet_constraint_params params = {.tokenizer = tokenizer,
                                            .regex = s->regex,
                                            .json_object = s->json_object,
                                            .choices = s->choices.n > 0 ? s->choices.values : NULL,
                                            .n_choices = s->choices.n,
                                            .whitespace_max = s->whitespace};
  enum eaglet_status status = EAGLET_OK;
  s->params.tokenizer = tokenizer;
  if (!s->regex && !s->schema && !s->json_object && s->choices.n == 0) return EAGLET_OK;
  bool is_inline = s->schema && s->schema[strspn(s->schema, " \t\n")] == '{';
  if (s->schema && !is_inline) status = read_schema(s, &schema, err);
  params.json_schema = is_inline ? s->schema : schema.data;
  if (status == EAGLET_OK) status = eaglet_constraint_create(&s->constraint, engine, &params, err);
  eaglet_text_clear(&schema);
  s->params.constraint = s->constraint;
  return status;
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
