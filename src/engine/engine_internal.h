/* engine_internal.h - the engine's and a sequence's inside, shared by engine.c and sequence.c (lifetimes), rehearsal.c (what passes cost),
 * scheduler.c (who runs, with which rows), accept.c (which tokens join) and step.c (the order of a step). */
#ifndef EAGLET_ENGINE_ENGINE_INTERNAL_H
#define EAGLET_ENGINE_ENGINE_INTERNAL_H

#include "engine/controller.h"
#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/logprobs.h"
#include "engine/round.h"

/* Invariant between steps: entries 0 .. kv.length-1 are made of the committed tokens there; past prefill kv.length is n_tokens - 1.
 * draft_kv obeys drafter.h. A waiting sequence holds no pages; its tokens and its proposal wait with it, so that what follows is what
 * would have followed. */
struct sequence {
  struct engine *engine;
  struct sequence *all_next;
  struct sequence *next; /* in the queue of waiting sequences, or of the running ones in the order of admission */
  enum round_state state;
  enum eaglet_stop stop;
  struct kv_sequence kv, draft_kv;
  struct drafter_memory *memory;
  int32_t *tokens;      /* [context_max + 1] prompt, then output */
  uint8_t *was_drafted; /* same, by token */
  int32_t n_prompt, n_tokens;
  struct proposal proposal;
  float *q; /* [limits.levels, n_draft] host, when drafts are drawn; NULL: they are chosen */
  struct draft_limits limits;
  struct draft_record record;
  int32_t output_min, output_max;
  struct sampling sampling; /* without bias; the sampler has it all */
  struct sampler *sampler;
  int32_t *stop_ids;
  int32_t n_stop_ids;
  struct token_watch watch;
  struct constraint_cursor constraint; /* source NULL: free */
  struct eaglet_token_logprob *logprobs, *prompt_logprobs; /* [output_max, 1 + n_logprobs], [n_prompt, 1 + n_prompt_logprobs] or NULL */
  int32_t logprobs_width, prompt_logprobs_width;           /* entries of one token; 0: none wanted */
  uint8_t *n_entries, *n_prompt_entries;                   /* of each token */
  uint64_t seed;
  struct eaglet_sequence_stats stats;
  bool before_first; /* this step began without a token of its own */
  /* this step: its rows of the target's batch */
  int32_t prefill_begin, n_prefill; /* rows of slots kv.length ... */
  int32_t verify_begin, n_verify;   /* the row of the last token, then one per drafted token; n_verify 0: not this time */
  int32_t logits_begin, prefill_logits_begin; /* first rows of the run's logits that are its own */
  /* what became committed: rows[i] made slot first_slot + i */
  int32_t *rows, n_rows, first_slot;
};

struct sequence_list {
  struct sequence *first, *last;
  int32_t n;
};

struct engine {
  struct compute *compute;
  struct model *model;
  struct head *head;          /* what the drafter drafts with, or NULL */
  struct model *draft_model;
  enum eaglet_drafter drafter_kind;
  struct drafter *drafter;    /* NULL: plain decoding */
  struct controller *controller;
  struct forward *forward;
  struct kv_cache kv;
  struct sequence_list waiting, running;
  struct sequence *all; /* every live object, linked by all_next: freed at close */
  int32_t sequences_max, context_max, rows_max, draft_len_max, draft_width_max, draft_tokens_max;
  bool poisoned, prefix_cache;
  int64_t n_drafting_rounds, n_accepting_rounds; /* rounds with drafts, and those whose first was accepted */
  struct eaglet_engine_stats stats;
  /* step scratch */
  struct batch batch;
  int32_t *paths;                /* [rows_max, DRAFT_LEN_MAX] slots of the ancestors of verified rows */
  int32_t *best_device, *best;   /* [rows_max] argmax */
  int32_t *committed, n_committed; /* [rows_max] what the sequences' `rows` point into */
  struct draft_request *requests;  /* [sequences_max] */
  struct sequence **requested;     /* [sequences_max] */
  struct proposal **proposals;     /* [sequences_max] */
  struct draft_record **records;   /* [sequences_max] */
  struct draft_limits *limits;     /* [sequences_max] */
  struct draft_wish *wishes;       /* [sequences_max] */
  int32_t turn;                  /* which running sequence is first served */
  bool rounds_gave_way;          /* in the last step, to prompts */
  int32_t *pages;                /* [2 * pages of the longest sequence] matches of the prefix caches */
  float *row, *raw_row;          /* host [V] logits of one row and what becomes of them; as they were, for logprobs */
  int32_t *order;                /* host [V] */
};

/* ---- sequence lists ---- */
void sequence_list_append(struct sequence_list *list, struct sequence *s);
void sequence_list_prepend(struct sequence_list *list, struct sequence *s);
void sequence_list_remove(struct sequence_list *list, struct sequence *s);

/* ---- scheduler.c ---- */
/* Chooses the rows of this step: pages for those who run (the last admitted are preempted when there are too few), admission of those
 * who wait, then e->batch. */
void scheduler_fill(struct engine *e);
/* A sequence that will run no more gives back what it holds. */
void scheduler_retire(struct engine *e, struct sequence *s);

/* ---- step.c ---- */
/* The target's pass over e->batch, timed for the controller; e->best gets the likeliest token of every row of logits. */
enum eaglet_status engine_run_target(struct engine *e, struct forward_run *run, struct eaglet_error *err) MUST_USE;

/* ---- rehearsal.c ---- */
/* Runs passes of growing size so that the controller knows what they cost. Leaves no trace but that. */
enum eaglet_status engine_rehearse(struct engine *e, struct eaglet_error *err) MUST_USE;

/* ---- accept.c ---- */
/* Takes the target's results of the step into the sequence: prompt rows, and the round. */
void accept_rows(struct engine *e, struct sequence *s, const struct forward_run *run);

/* Slots that a sequence may need at most: a whole context, the token that fills it, and a proposal; at the drafter every node that a tree
 * runs. */
static inline int32_t target_slots_max(const struct engine *e) { return e->context_max + PROPOSAL_MAX + 1; }
static inline int32_t draft_slots_max(const struct engine *e) {
  return e->context_max + DRAFT_LEN_MAX + 1 + e->draft_width_max * e->draft_len_max;
}

#endif
