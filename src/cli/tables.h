/* tables.h - option tables that several commands share: who drafts, and how a text is drawn, where it ends and what it must be. */
#ifndef EAGLET_CLI_TABLES_H
#define EAGLET_CLI_TABLES_H

#include "cli/cli.h"

/* ---- who drafts ---- */

struct cli_drafting {
  const char *draft;
  int drafter; /* choice: enum eaglet_drafter + 1 */
  int32_t len, width, tokens;
};
#define CLI_DRAFTING_OPTIONS 6
void cli_drafting_table(struct cli_drafting *drafting, struct option table[CLI_DRAFTING_OPTIONS]);
enum eaglet_drafter cli_drafter(const struct cli_drafting *drafting);
bool cli_drafts(const struct cli_drafting *drafting); /* somebody does */
/* Options that contradict each other, or change nothing. */
enum eaglet_status cli_drafting_check(const struct cli_drafting *drafting, struct eaglet_error *err) MUST_USE;

/* ---- how a text is made ---- */

struct cli_sampling {
  struct eaglet_sequence_params params; /* what the options say; lists after cli_sampling_read, tokenizer and constraint after cli_sampling_constrain */
  struct option_list bias, stops, stop_ids, choices;
  const char *regex, *schema;
  bool json_object;
  int32_t whitespace;
  /* owned */
  struct eaglet_logit_bias *biases;
  int32_t *ids;
  struct eaglet_constraint *constraint;
};
#define CLI_SAMPLING_OPTIONS 25
void cli_sampling_table(struct cli_sampling *sampling, struct option table[CLI_SAMPLING_OPTIONS]);
/* Reads the lists and checks what goes together; json: a JSON document is printed. Before any model is opened. */
enum eaglet_status cli_sampling_read(struct cli_sampling *sampling, bool json, struct eaglet_error *err) MUST_USE;
/* Compiles the constraint. tokenizer may be NULL when nothing needs it. */
enum eaglet_status cli_sampling_constrain(struct cli_sampling *sampling, const struct eaglet_engine *engine, struct eaglet_tokenizer *tokenizer,
                                          struct eaglet_error *err) MUST_USE;
void cli_sampling_clear(struct cli_sampling *sampling); /* after its sequences are freed */

#endif
