/* test_tree.c - growing and choosing against EAGLE-2 written down plainly: every candidate in a list, sorted by score, ties to the
 * earlier. Scores come in quarters, so that ties are everywhere; some nodes have few children or none (masked). */
#include "draft/tree.h"

#include "base/memory.h"
#include "base/util.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the plain way ---- */

struct plain_node {
  int32_t token, parent, depth, order; /* order: of creation */
  float score;
};
struct plain_tree {
  struct plain_node nodes[TREE_CANDIDATES_MAX];
  int32_t n, n_levels;
};

static int by_score(const void *a, const void *b) {
  const struct plain_node *x = a, *y = b;
  if (x->score != y->score) return x->score < y->score ? 1 : -1;
  return x->order - y->order;
}

/* The children of a node, the best first: tokens and log-probabilities that depend on the path. */
static int32_t children_of(uint64_t seed, uint64_t path, int32_t width, int32_t tokens[TREE_WIDTH_MAX], float scores[TREE_WIDTH_MAX]) {
  int32_t n = random_u64(seed, path, 0) % 5 == 0 ? (int32_t)(random_u64(seed, path, 1) % (uint64_t)width) : width;
  float last = 0;
  for (int32_t i = 0; i < n; i++) {
    last -= 0.25f * (float)(random_u64(seed, path, 2 + (uint64_t)i) % 4);
    tokens[i] = (int32_t)(random_u64(seed, path, 50 + (uint64_t)i) % 1000);
    scores[i] = last;
  }
  return n;
}

static uint64_t path_of(const struct plain_tree *t, int32_t node) {
  uint64_t path = 1;
  for (; node >= 0; node = t->nodes[node].parent) path = path * 31 + (uint64_t)node + 2;
  return path;
}

static void plain_add(struct plain_tree *t, uint64_t seed, int32_t parent, int32_t width) {
  int32_t tokens[TREE_WIDTH_MAX];
  float scores[TREE_WIDTH_MAX];
  int32_t n = children_of(seed, path_of(t, parent), width, tokens, scores), depth = parent < 0 ? 0 : t->nodes[parent].depth + 1;
  for (int32_t i = 0; i < n; i++) {
    float score = (parent < 0 ? 0 : t->nodes[parent].score) + scores[i];
    t->nodes[t->n] = (struct plain_node){tokens[i], parent, depth, t->n, score};
    t->n++;
  }
}

/* Level by level, the `width` best of the newest level have children. Returns the frontier of the level that was made last. */
static int32_t plain_grow(struct plain_tree *t, uint64_t seed, int32_t levels, int32_t width, float score_min, int32_t *frontier) {
  int32_t n_frontier = 0;
  t->n = 0;
  plain_add(t, seed, -1, width);
  for (int32_t level = 1;; level++) {
    struct plain_node newest[TREE_WIDTH_MAX * TREE_WIDTH_MAX];
    int32_t n = 0;
    for (int32_t i = 0; i < t->n; i++) {
      if (t->nodes[i].depth == level - 1) newest[n++] = t->nodes[i];
    }
    qsort(newest, (size_t)n, sizeof *newest, by_score);
    for (n_frontier = 0; n_frontier < n && n_frontier < width && newest[n_frontier].score >= score_min; n_frontier++)
      frontier[n_frontier] = newest[n_frontier].order;
    t->n_levels = level;
    if (n_frontier == 0 || level == levels) return n_frontier;
    for (int32_t i = 0; i < n_frontier; i++) plain_add(t, seed, frontier[i], width);
  }
}

/* ---- ours ---- */

static void choose(const struct tree *t, int32_t n_max, struct proposal *p) {
  proposal_reset(p);
  tree_choose(t, n_max, p);
}

/* As a drafter does it; rows of a level get slots one after the other. */
static void grow(struct tree *t, uint64_t seed, int32_t levels, int32_t width, float score_min) {
  struct plain_tree names = {.n = 0}; /* of the candidates, for their paths */
  int32_t tokens[TREE_WIDTH_MAX], n, slot = 100;
  float scores[TREE_WIDTH_MAX];
  tree_reset(t, width);
  n = children_of(seed, path_of(&names, -1), width, tokens, scores);
  tree_grow(t, -1, tokens, scores, n);
  while (tree_advance(t, score_min) > 0 && t->n_levels < levels) {
    int32_t frontier[TREE_WIDTH_MAX], n_frontier = t->n_frontier;
    memcpy(frontier, t->frontier, sizeof frontier);
    for (int32_t i = 0; i < t->n; i++) names.nodes[i].parent = t->candidates[i].parent;
    for (int32_t i = 0; i < n_frontier; i++) t->candidates[frontier[i]].slot = slot++;
    for (int32_t i = 0; i < n_frontier; i++) {
      n = children_of(seed, path_of(&names, frontier[i]), width, tokens, scores);
      tree_grow(t, frontier[i], tokens, scores, n);
    }
  }
}

static void check_candidates(const struct tree *t, const struct plain_tree *plain) {
  assert_int_equal(t->n, plain->n);
  assert_int_equal(t->n_levels, plain->n_levels);
  for (int32_t i = 0; i < t->n; i++) {
    const struct tree_candidate *c = &t->candidates[i];
    int32_t slots[DRAFT_LEN_MAX], n = 0;
    assert_int_equal(c->token, plain->nodes[i].token);
    assert_int_equal(c->parent, plain->nodes[i].parent);
    assert_int_equal(c->depth, plain->nodes[i].depth);
    assert_true(c->score == plain->nodes[i].score);
    int32_t n_path = tree_path(t, i, slots);
    assert_int_equal(n_path, c->depth);
    for (int32_t at = c->parent; at >= 0; at = t->candidates[at].parent) assert_int_equal(slots[n_path - ++n], t->candidates[at].slot);
    assert_int_equal(n, n_path);
  }
}

/* The best n_max of all levels, parents before children. */
static void check_choice(const struct tree *t, const struct plain_tree *plain, int32_t n_max) {
  struct plain_node best[TREE_CANDIDATES_MAX];
  struct proposal *p = memory_alloc(sizeof *p);
  bool chosen[TREE_CANDIDATES_MAX] = {false};
  int32_t node_of[TREE_CANDIDATES_MAX], n = n_max < plain->n ? n_max : plain->n, at = 0, depth = 0;
  if (n > PROPOSAL_MAX) n = PROPOSAL_MAX;
  memcpy(best, plain->nodes, sizeof(struct plain_node) * (size_t)plain->n);
  qsort(best, (size_t)plain->n, sizeof *best, by_score);
  for (int32_t i = 0; i < n; i++) chosen[best[i].order] = true;
  choose(t, n_max, p);
  assert_int_equal(p->n, n < 0 ? 0 : n);
  for (int32_t i = 0; i < plain->n; i++) {
    const struct plain_node *node = &plain->nodes[i];
    if (!chosen[i]) continue;
    assert_true(node->parent < 0 || chosen[node->parent]);
    node_of[i] = at;
    assert_int_equal(p->tokens[at], node->token);
    assert_int_equal(p->parents[at], node->parent < 0 ? -1 : node_of[node->parent]);
    assert_int_equal(p->depths[at], node->depth);
    assert_true(p->scores[at] == node->score);
    depth = node->depth + 1 > depth ? node->depth + 1 : depth;
    at++;
  }
  assert_int_equal(proposal_depth(p), depth);
  free(p);
}

/* Children of every node, in order, each node among the children of its parent once. */
static void check_children(const struct tree *t) {
  struct proposal *p = memory_alloc(sizeof *p);
  int32_t seen = 0, children[TREE_WIDTH_MAX];
  choose(t, PROPOSAL_MAX, p);
  for (int32_t parent = -1; parent < p->n; parent++) {
    int32_t n = proposal_children(p, parent, children);
    for (int32_t i = 0; i < n; i++) {
      assert_int_equal(p->parents[children[i]], parent);
      assert_true(i == 0 || (children[i] > children[i - 1] && p->scores[children[i]] <= p->scores[children[i - 1]]));
    }
    seen += n;
  }
  assert_int_equal(seen, p->n);
  free(p);
}

static void test_against_plain(void **state) {
  (void)state;
  static const float least[] = {-INFINITY, -2, -0.5f, 0};
  struct tree *t = memory_alloc(sizeof *t);
  struct plain_tree *plain = memory_alloc(sizeof *plain);
  int64_t n_candidates = 0, n_ties = 0;
  for (uint64_t seed = 0; seed < 2000; seed++) {
    int32_t width = 1 + (int32_t)(seed % TREE_WIDTH_MAX), levels = 1 + (int32_t)(seed / 10 % DRAFT_LEN_MAX), frontier[TREE_WIDTH_MAX];
    float score_min = least[seed / 7 % 4];
    int32_t n_frontier = plain_grow(plain, seed, levels, width, score_min, frontier);
    grow(t, seed, levels, width, score_min);
    check_candidates(t, plain);
    assert_int_equal(t->n_frontier, n_frontier);
    assert_memory_equal(t->frontier, frontier, sizeof(int32_t) * (size_t)n_frontier);
    for (int32_t n_max = 0; n_max <= PROPOSAL_MAX + 1; n_max += 1 + n_max / 3) check_choice(t, plain, n_max);
    check_children(t);
    n_candidates += t->n;
    for (int32_t i = 1; i < t->n; i++) n_ties += t->candidates[i].score == t->candidates[i - 1].score;
  }
  printf("%lld candidates, %lld ties\n", (long long)n_candidates, (long long)n_ties);
  assert_true(n_candidates > 100000 && n_ties > 10000);
  free(t);
  free(plain);
}

/* By hand: two levels of width two; a chain; a root without children. */
static void test_by_hand(void **state) {
  (void)state;
  struct tree *t = memory_alloc(sizeof *t);
  struct proposal *p = memory_alloc(sizeof *p);
  tree_reset(t, 2);
  tree_grow(t, -1, (const int32_t[]){10, 11}, (const float[]){-1, -2}, 2);
  assert_int_equal(tree_advance(t, -INFINITY), 2);
  tree_grow(t, 0, (const int32_t[]){20, 21}, (const float[]){-0.5f, -3}, 2); /* -1.5, -4 */
  tree_grow(t, 1, (const int32_t[]){22, 23}, (const float[]){0, -0.5f}, 2);  /* -2, -2.5 */
  assert_int_equal(tree_advance(t, -2.2f), 2);
  assert_int_equal(t->frontier[0], 2);
  assert_int_equal(t->frontier[1], 4);
  choose(t, 3, p); /* 10, 20 and, of the two at -2, the earlier: 11 */
  assert_int_equal(p->n, 3);
  assert_memory_equal(p->tokens, ((const int32_t[]){10, 11, 20}), 3 * sizeof(int32_t));
  assert_memory_equal(p->parents, ((const int32_t[]){-1, -1, 0}), 3 * sizeof(int32_t));
  tree_reset(t, 1);
  for (int32_t i = 0; i < DRAFT_LEN_MAX; i++) {
    tree_grow(t, i - 1, &i, (const float[]){-0.1f}, 1);
    assert_int_equal(tree_advance(t, -INFINITY), 1);
  }
  choose(t, PROPOSAL_MAX, p);
  assert_int_equal(p->n, DRAFT_LEN_MAX);
  assert_int_equal(proposal_depth(p), DRAFT_LEN_MAX);
  tree_reset(t, 3);
  tree_grow(t, -1, NULL, NULL, 0);
  assert_int_equal(tree_advance(t, -INFINITY), 0);
  choose(t, 5, p);
  assert_int_equal(p->n, 0);
  assert_int_equal(proposal_depth(p), 0);
  free(t);
  free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_plain), cmocka_unit_test(test_by_hand)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
