/* tree.c - see tree.h. */
#include "draft/tree.h"

#include <math.h>
#include <string.h>

void proposal_reset(struct proposal *p) {
  p->n = 0;
  p->q = NULL;
  p->n_q = 0;
}

int32_t proposal_depth(const struct proposal *p) {
  int32_t depth = 0;
  for (int32_t i = 0; i < p->n; i++) depth = p->depths[i] + 1 > depth ? p->depths[i] + 1 : depth;
  return depth;
}

int32_t proposal_children(const struct proposal *p, int32_t parent, int32_t children[TREE_WIDTH_MAX]) {
  int32_t n = 0;
  for (int32_t i = parent + 1; i < p->n && n < TREE_WIDTH_MAX; i++) {
    if (p->parents[i] == parent) children[n++] = i;
  }
  return n;
}

void proposal_add(struct proposal *p, int32_t token, int32_t parent, float score) {
  ASSERT(p->n < PROPOSAL_MAX && parent >= -1 && parent < p->n);
  p->tokens[p->n] = token;
  p->parents[p->n] = parent;
  p->depths[p->n] = parent < 0 ? 0 : p->depths[parent] + 1;
  p->scores[p->n++] = score;
}

/* ---- growing ---- */

void tree_reset(struct tree *t, int32_t width) {
  ASSERT(width >= 1 && width <= TREE_WIDTH_MAX);
  t->width = width;
  t->n_levels = t->n = t->level_begin = t->n_frontier = 0;
}

void tree_grow(struct tree *t, int32_t candidate, const int32_t *tokens, const float *log_probabilities, int32_t n) {
  float before = candidate < 0 ? 0 : t->candidates[candidate].score;
  int32_t depth = candidate < 0 ? 0 : t->candidates[candidate].depth + 1;
  ASSERT(n <= t->width && depth == t->n_levels && depth < DRAFT_LEN_MAX && t->n + n <= TREE_CANDIDATES_MAX);
  for (int32_t i = 0; i < n; i++) {
    t->candidates[t->n++] = (struct tree_candidate){.token = tokens[i],
                                                    .parent = candidate,
                                                    .depth = depth,
                                                    .score = before + log_probabilities[i],
                                                    .slot = -1};
  }
}

/* The up to n_max best of candidates [begin, end) into best, ordered by score; ties: the earlier. An insertion that keeps the list sorted. */
static int32_t best_of(const struct tree *t, const int32_t range[2], float score_min, int32_t *best, int32_t n_max) {
  int32_t n = 0;
  for (int32_t c = range[0]; c < range[1]; c++) {
    float score = t->candidates[c].score;
    if (!(score >= score_min) || (n == n_max && !(score > t->candidates[best[n - 1]].score))) continue;
    int32_t at = n < n_max ? n++ : n - 1;
    for (; at > 0 && score > t->candidates[best[at - 1]].score; at--) best[at] = best[at - 1];
    best[at] = c;
  }
  return n;
}

int32_t tree_advance(struct tree *t, float score_min) {
  const int32_t level[2] = {t->level_begin, t->n};
  t->n_frontier = best_of(t, level, score_min, t->frontier, t->width);
  t->level_begin = t->n;
  t->n_levels++;
  return t->n_frontier;
}

int32_t tree_path(const struct tree *t, int32_t candidate, int32_t slots[DRAFT_LEN_MAX]) {
  int32_t n = t->candidates[candidate].depth, at = n;
  for (int32_t c = t->candidates[candidate].parent; c >= 0; c = t->candidates[c].parent) {
    ASSERT(at > 0 && t->candidates[c].slot >= 0);
    slots[--at] = t->candidates[c].slot;
  }
  return n;
}

void tree_choose(const struct tree *t, int32_t n_max, struct proposal *p) {
  int32_t best[PROPOSAL_MAX], node_of[TREE_CANDIDATES_MAX];
  uint8_t chosen[TREE_CANDIDATES_MAX] = {0};
  const int32_t all[2] = {0, t->n};
  ASSERT(p->n == 0);
  int32_t n = n_max < 1 ? 0 : best_of(t, all, -INFINITY, best, n_max < PROPOSAL_MAX ? n_max : PROPOSAL_MAX);
  for (int32_t i = 0; i < n; i++) chosen[best[i]] = 1;
  for (int32_t c = 0; c < t->n; c++) {
    if (!chosen[c]) continue;
    int32_t parent = t->candidates[c].parent;
    ASSERT(parent < 0 || chosen[parent]); /* a child's score is at most its parent's, which comes first in ties */
    node_of[c] = p->n;
    proposal_add(p, t->candidates[c].token, parent < 0 ? -1 : node_of[parent], t->candidates[c].score);
  }
}
