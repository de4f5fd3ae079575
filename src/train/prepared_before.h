/* prepared_before.h - was this very preparation done before (C12)? What its outcome depends on is written into the manifest as "inputs":
 * the content of every data file, the settings, tokenizer, template and model, and the version of the rules. The same inputs give the same
 * rows, so a finished directory with equal ones is left as it is; any difference is named and prepared again.
 */
#ifndef EAGLET_TRAIN_PREPARED_BEFORE_H
#define EAGLET_TRAIN_PREPARED_BEFORE_H

#include "base/json.h"

#define PREPARED_VERSION 2 /* of the rules that turn the same data into rows: raise it when rows change */

/* Adds "files": [{file, bytes, xxh3}] to inputs; *known: false when one of them (standard input, a pipe) cannot be read twice. */
enum eaglet_status prepared_add_files(json_t *inputs, bool *known, const json_t *files, struct eaglet_error *err) MUST_USE;

/* *report: a new reference to the report of a finished directory that was made from these inputs, else NULL. *difference: heap, what differs
 * ("settings.tokens_max: 2048, now 4096"); NULL when the same, or when there is nothing to compare with. */
void prepared_find(json_t **report, char **difference, const char *directory, const json_t *inputs);

#endif
