/* draft_ngram.c - prompt lookup: proposes what followed the last earlier occurrence of the text's last tokens, the longest match first.
 * Looks at committed tokens only; keeps nothing. */
#include "engine/drafter.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MATCH_MAX 4    /* tokens that are looked up */
#define MATCH_MIN 2    /* shorter matches are chance */
#define SCAN_MAX 32768 /* tokens back */

/* Length of the common ending of tokens[0 .. a-1] and tokens[0 .. b-1], up to MATCH_MAX. */
static int32_t common_ending(const int32_t *tokens, int32_t a, int32_t b) {
  int32_t n = 0;
  while (n < MATCH_MAX && n < a && tokens[a - 1 - n] == tokens[b - 1 - n]) n++;
  return n;
}

/* Where the continuation of the best match begins, or -1, and how long the match is. Longer matches win, then later ones. */
static int32_t find_match(const int32_t *tokens, int32_t n, int32_t *length_of_best) {
  int32_t best = -1, best_length = MATCH_MIN - 1, stop = n > SCAN_MAX ? n - SCAN_MAX : 1;
  for (int32_t at = n - 1; at >= stop && best_length < MATCH_MAX; at--) {
    if (tokens[at - 1] != tokens[n - 1]) continue;
    int32_t length = common_ending(tokens, at, n);
    if (length <= best_length) continue;
    best = at;
    best_length = length;
  }
  *length_of_best = best_length;
  return best;
}

/* False: the constraint does not let the token follow. Without one everything may. */
static bool advance(const struct draft_request *r, void *state, int32_t token) {
  return !r->constraint || r->constraint->source->advance(r->constraint->source->context, state, token);
}

static enum eaglet_status ngram_propose(struct drafter *drafter, struct draft_request *requests, int32_t n,
                                        const struct forward_run *target, struct eaglet_error *err) {
  (void)drafter, (void)target, (void)err;
  for (int32_t i = 0; i < n; i++) {
    struct draft_request *r = &requests[i];
    if (r->n_levels == 0) continue; /* a proposal that still waits for its verification stands */
    void *state = r->constraint ? r->constraint->scratch : NULL;
    int32_t length, at = find_match(r->tokens, r->n_tokens, &length);
    float score = logf((float)length / (float)(length + 1)); /* a first guess that the controller's experience corrects */
    proposal_reset(r->proposal);
    if (state) memcpy(state, r->constraint->state, r->constraint->source->state_bytes);
    for (int32_t d = 0; at >= 0 && d < r->n_levels && d < r->n_max && at + d < r->n_tokens; d++) {
      if (!advance(r, state, r->tokens[at + d])) break;
      proposal_add(r->proposal, r->tokens[at + d], d - 1, (float)(d + 1) * score);
    }
  }
  return EAGLET_OK;
}

static void ngram_close(struct drafter *drafter) {
  free(drafter);
}

struct drafter *drafter_ngram_open(void) {
  struct drafter *drafter = memory_alloc(sizeof *drafter);
  *drafter = (struct drafter){
      .name = "ngram", .width_max = 1, .propose = ngram_propose, .close = ngram_close};
  return drafter;
}
