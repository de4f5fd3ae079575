/* round.c - see round.h. Pure; knows no model, no memory, no time. */
#include "engine/round.h"

#include "engine/sampler.h"

enum round_state round_advance(enum round_state state, bool finished) {
  switch (state) {
  case ROUND_PREFILL:
    return finished ? ROUND_DONE : ROUND_PROPOSE;
  case ROUND_PROPOSE:
    return ROUND_VERIFY;
  case ROUND_VERIFY:
    return ROUND_ACCEPT;
  case ROUND_ACCEPT:
    return ROUND_COMMIT;
  case ROUND_COMMIT:
    return finished ? ROUND_DONE : ROUND_PROPOSE;
  case ROUND_DONE:
    break;
  }
  ASSERT(!"a finished sequence has no next state");
  return ROUND_DONE;
}

struct round_outcome round_accept_greedy(const int32_t *drafts, int32_t n_drafts, const int32_t *best) {
  int32_t n = 0;
  while (n < n_drafts && drafts[n] == best[n]) n++;
  return (struct round_outcome){.n_accepted = n, .bonus = best[n]};
}

/* p becomes max(p - q, 0) normalised. With no mass left (p == q up to rounding) p itself stands. */
static void residual(const struct round_sampled *r, float *p, const float *q) {
  double sum = 0;
  for (int32_t i = 0; i < r->n_target; i++) {
    int32_t d = r->draft_of[i];
    float rest = p[i] - (d >= 0 ? q[d] : 0.0f);
    sum += rest > 0 ? rest : 0;
  }
  if (sum <= 0) return;
  for (int32_t i = 0; i < r->n_target; i++) {
    int32_t d = r->draft_of[i];
    float rest = p[i] - (d >= 0 ? q[d] : 0.0f);
    p[i] = rest > 0 ? (float)(rest / sum) : 0.0f;
  }
}

struct round_outcome round_accept_sampled(const struct round_sampled *r) {
  int32_t n = 0;
  for (; n < r->n_drafts; n++) {
    float *p = r->p + (int64_t)n * r->n_target;
    const float *q = r->q + (int64_t)n * r->n_draft;
    float q_draft = q[r->draft_of[r->drafts[n]]];
    if (r->accept_u[n] * q_draft < p[r->drafts[n]]) continue;
    residual(r, p, q);
    break;
  }
  return (struct round_outcome){.n_accepted = n,
                                .bonus = sampler_draw(r->p + (int64_t)n * r->n_target, r->n_target, r->bonus_u[n])};
}
