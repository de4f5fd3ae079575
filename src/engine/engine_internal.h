/* engine_internal.h - the engine's and a sequence's inside, shared by engine.c (lifetimes) and step.c (the step). */
#ifndef EAGLET_ENGINE_ENGINE_INTERNAL_H
#define EAGLET_ENGINE_ENGINE_INTERNAL_H

#include "engine/engine.h"
#include "engine/round.h"
#include "engine/sampler.h"

/* Invariant of a live sequence past prefill: every committed token but the last has its entry in the target's KV; the
 * head's KV holds the pairs (h_t, x_{t+1}) for exactly those. Drafted entries beyond are scratch. */
struct sequence {
  struct engine *engine;
  enum round_state state;
  enum eaglet_stop stop;
  struct kv_sequence kv, head_kv;
  int32_t *tokens;      /* [context_max + DRAFT_LEN_MAX + 2] prompt, then output */
  uint8_t *was_drafted; /* same, by token */
  int32_t n_prompt, n_tokens;
  int32_t drafts[DRAFT_LEN_MAX], n_drafts;
  float *q; /* [draft_len_max, n_draft] host, when sampled with a head */
  int32_t draft_len, output_max;
  struct sampling sampling;
  bool sampled, ignore_stop;
  uint64_t seed;
  struct eaglet_sequence_stats stats;
  /* this step: rows of the target's batch, and of those the ones that became committed */
  int32_t row_begin, n_rows, n_committed_rows, logits_begin;
  int32_t head_last; /* its last row in the head's batch, or -1 */
};

struct engine {
  struct compute *compute;
  struct model *model;
  struct head *head; /* NULL: plain decoding */
  struct forward *forward;
  struct head_forward *head_forward;
  struct kv_cache kv, head_kv;
  struct sequence **sequences; /* [sequences_max], NULL where free */
  int32_t sequences_max, context_max, rows_max, draft_len_max;
  bool poisoned;
  int64_t n_drafting_rounds, n_accepting_rounds; /* rounds with drafts, and those whose first was accepted */
  /* step scratch */
  struct batch batch, head_batch;
  int32_t *best_device, *best;     /* [rows_max] argmax */
  int32_t *gather_device, *gather; /* [rows_max] row numbers */
  float *tapped, *feature;         /* device: [rows_max, n_states H], [rows_max, H] */
  float *p;                        /* host [draft_len_max + 1, V] when something samples */
  float *draft_logits;             /* host [n_draft] */
  int32_t *order;                  /* host [V] */
};

#endif
