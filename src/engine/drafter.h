/* drafter.h - who proposes: one contract for a draft head, an independent model, and lookup in the text.
 *
 * Once per step, after acceptance, the engine shows a drafter every sequence that moved and says what it would like. The drafter fills
 * proposals; it may keep entries of its own in KV (drafter->kv), whose pages the engine hands out, gives up and caches together with the
 * target's. What it proposes is verified by the target: it decides speed, never the law of the output, and where drafts are chosen, not
 * drawn, not a token of it.
 *
 * Invariant of a drafter with KV: entries 0 .. kv->length-1 of a sequence are made of committed tokens (and, for a head, of the target's
 * own states, never of drafted ones), in their order, without gaps unless kv->sparse; length is at most the target's committed length.
 * What lies behind is scratch.
 */
#ifndef EAGLET_ENGINE_DRAFTER_H
#define EAGLET_ENGINE_DRAFTER_H

#include "draft/head.h"
#include "draft/tree.h"
#include "engine/constraint.h"
#include "engine/controller.h"
#include "engine/sampler.h"

struct drafter_memory; /* a drafter's own memory of one sequence */

/* One sequence in one step. */
struct draft_request {
  struct kv_sequence *kv;        /* its entries at the drafter; NULL without KV */
  struct drafter_memory *memory; /* or NULL */
  const int32_t *tokens;         /* [n_tokens] committed: prompt and output */
  int32_t n_tokens;
  /* Slots first_slot .. first_slot + n_rows - 1 became committed in this step: rows[i] is the row of the target's run that made slot
   * first_slot + i. Slots are shown once, in order, without gaps, except those that the prefix cache restored. */
  const int32_t *rows;
  int32_t n_rows, first_slot;
  /* the wish: up to n_levels levels, `width` tokens a level (1: a chain), n_max tokens; levels only behind tokens of at least expand_min,
   * and of drawn tokens only those of at least keep_min. n_levels 0: propose nothing, only take note. kv has pages for what that takes. */
  int32_t n_levels, width, n_max;
  float expand_min, keep_min; /* cumulative log-probabilities */
  const struct draft_record *record; /* for controller_chance */
  bool sleeps; /* no wish soon: rows need not be kept for ever */
  /* how the target will choose */
  const struct sampling *sampling;
  uint64_t seed;
  const struct constraint_cursor *constraint; /* after the last committed token; NULL: free */
  float *q;                                   /* [n_levels, drafter->n_draft] for drawn chains; NULL: drafts are chosen */
  struct proposal *proposal;                  /* out */
};

struct drafter {
  const char *name;          /* "head", "mtp", "model", "ngram" */
  struct kv_cache *kv;       /* NULL: keeps no entries */
  int32_t lookahead;         /* 1: the entry of slot t needs token t + 1 */
  int32_t n_draft;           /* ids it chooses from; 0: it never draws */
  const int32_t *draft_of;   /* [n_target] as in struct round_law */
  struct tap_set taps;       /* states of the target that it reads */
  int32_t width_max;         /* tokens that a level of it may have */
  /* Runs passes of n_rows for the controller to learn their cost; NULL: they cost nothing. Leaves no trace. */
  enum eaglet_status (*rehearse)(struct drafter *drafter, int32_t n_rows, struct eaglet_error *err);
  enum eaglet_status (*propose)(struct drafter *drafter, struct draft_request *requests, int32_t n, const struct forward_run *target,
                                struct eaglet_error *err);
  struct drafter_memory *(*remember)(struct drafter *drafter); /* memory of a new sequence; NULL slot: needs none */
  void (*restart)(struct drafter_memory *memory);              /* its sequence was preempted */
  void (*forget)(struct drafter *drafter, struct drafter_memory *memory);
  void (*close)(struct drafter *drafter);
};

struct drafter_params {
  const struct model *target;
  const struct head *head;       /* one of the two: borrowed */
  const struct model *model;
  struct controller *controller; /* learns what its passes cost; borrowed */
  int32_t rows_max, sequences_max, pages, pages_each; /* pages: of its pool; pages_each: at most of one sequence */
  bool prefix_cache;
};
/* A network that drafts: an EAGLE-3 head or MTP layers (params->head), or a model of its own (params->model). */
enum eaglet_status drafter_net_open(struct drafter **drafter, const struct drafter_params *params, struct eaglet_error *err) MUST_USE;
/* Prompt lookup: what followed the last occurrence of the text's last tokens. */
struct drafter *drafter_ngram_open(void);
void drafter_close(struct drafter *drafter); /* NULL is fine */

/* Numbers in [0, 1) by the place of the token that they decide: neither batching nor draft length shifts the others.
 *
 * Drafts are drawn with numbers that no earlier round has used: token_index is the round's first, DRAW_DRAFT + depth. So whatever a
 * round's drafts taught (whether to draft, how deep) tells nothing of the next round's, and the law stays exact. */
enum draw { DRAW_TOKEN, DRAW_ACCEPT, DRAW_DRAFT };
#define DRAW_KINDS (DRAW_DRAFT + DRAFT_LEN_MAX)
double draw_uniform(uint64_t seed, int32_t token_index, int32_t kind);

#endif
