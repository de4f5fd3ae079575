/* head_convert.h - a head's files in another dialect: the same weights, bit for bit, under other names beside another config. What
 * the dialect's loader would not read is refused by name, because loaders skip in silence (docs/HEADS.md). The result is opened
 * again and run beside the original: logits and features must be bitwise equal.
 */
#ifndef EAGLET_DRAFT_HEAD_CONVERT_H
#define EAGLET_DRAFT_HEAD_CONVERT_H

#include "draft/head_file.h"

struct head_convert_params {
  const char *draft, *out;   /* directories; not the same one */
  const char *target_name;   /* as the user calls the target */
  enum head_dialect dialect;
};
/* The first thing of a head that a dialect's loader does not read, in words, or NULL. own_rows: its embedding is not the target's. */
const char *head_unread(const struct head_config *config, bool own_rows, enum head_dialect dialect);
/* *report: {"out","dialect","tensors","rows","steps","identical"}; caller owns it. EAGLET_E_CHECK, and nothing left at OUT, when the
 * copy computes anything else. */
enum eaglet_status head_convert(json_t **report, const struct model *target, const struct head_convert_params *params,
                                struct eaglet_error *err) MUST_USE;
/* Runs two heads of one target on the same made-up states, a text and then a chain of drafts; EAGLET_E_CHECK when any bit of
 * features or logits differs. */
enum eaglet_status head_compare(const struct head *a, const struct head *b, struct eaglet_error *err) MUST_USE;

#endif
