/* tree.h - what a drafter proposes, and how EAGLE-2 grows a dynamic tree (eagle3.md §1.6). Pure bookkeeping on the host: tokens and
 * log-probabilities come in, rows to run and a proposal go out. A chain is a tree of width one; no proposal is an empty one.
 */
#ifndef EAGLET_DRAFT_TREE_H
#define EAGLET_DRAFT_TREE_H

#include "base/error.h"

#define PROPOSAL_MAX 64  /* drafted tokens of one round */
#define DRAFT_LEN_MAX 15 /* levels */
#define TREE_WIDTH_MAX 10

/* Drafted tokens of one sequence, parents before children, siblings the best first. */
struct proposal {
  int32_t n;
  int32_t tokens[PROPOSAL_MAX];  /* target ids */
  int32_t parents[PROPOSAL_MAX]; /* -1: follows the last committed token */
  int32_t depths[PROPOSAL_MAX];  /* 0 for those */
  float scores[PROPOSAL_MAX];    /* cumulative log-probability, the drafter's own */
  /* q[depth] is the distribution that the token of that depth was drawn from; NULL: tokens were chosen, not drawn (chains only). */
  const float *q; /* borrowed: [depths, n_q] */
  int32_t n_q;
};
void proposal_reset(struct proposal *proposal);
int32_t proposal_depth(const struct proposal *proposal); /* levels */
/* Children of node `parent` (-1: first level) in order; returns how many. */
int32_t proposal_children(const struct proposal *proposal, int32_t parent, int32_t children[TREE_WIDTH_MAX]);
void proposal_add(struct proposal *proposal, int32_t token, int32_t parent, float score); /* ASSERTs room */

#define TREE_CANDIDATES_MAX (TREE_WIDTH_MAX + (DRAFT_LEN_MAX - 1) * TREE_WIDTH_MAX * TREE_WIDTH_MAX)

/* A tree being grown. Level 0: the `width` best tokens after the last committed one. Then, level by level, the `width` best new
 * candidates ("frontier") are run, and each adds its `width` best children. Chosen are the best candidates of all levels. */
struct tree {
  int32_t width, n_levels; /* levels so far */
  int32_t n;               /* candidates */
  struct tree_candidate {
    int32_t token, parent, depth;
    float score; /* cumulative log-probability */
    int32_t slot; /* where its draft entry lies, -1: not run */
  } candidates[TREE_CANDIDATES_MAX];
  int32_t level_begin;                /* first candidate of the newest level */
  int32_t frontier[TREE_WIDTH_MAX];   /* candidates to run next, the best first */
  int32_t n_frontier;
};
void tree_reset(struct tree *tree, int32_t width);
/* The children of a frontier node (or of the root: candidate -1): n <= width tokens with log-probabilities, the best first. */
void tree_grow(struct tree *tree, int32_t candidate, const int32_t *tokens, const float *log_probabilities, int32_t n);
/* Ends a level: the best of its candidates with a score of at least `score_min` become the frontier. Returns how many. Ties: the earlier. */
int32_t tree_advance(struct tree *tree, float score_min);
/* The slots of a candidate's ancestors from the top; returns how many. */
int32_t tree_path(const struct tree *tree, int32_t candidate, int32_t slots[DRAFT_LEN_MAX]);
/* Adds the `n_max` best candidates to an empty proposal, in candidate order, which puts parents before children. */
void tree_choose(const struct tree *tree, int32_t n_max, struct proposal *proposal);

#endif
