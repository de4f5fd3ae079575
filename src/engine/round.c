/* round.c - see round.h. No model, no memory, no time. */
#include "engine/round.h"

#include "engine/sampler.h"

enum round_state round_advance(enum round_state state, bool finished) {
  switch (state) {
  case ROUND_WAITING:
    return ROUND_PREFILL;
  case ROUND_PREFILL:
    return ROUND_PROPOSE;
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

enum round_state round_preempt(enum round_state state) {
  ASSERT(state == ROUND_PREFILL || state == ROUND_PROPOSE);
  return ROUND_WAITING;
}

struct round_choice round_choose_greedy(const int32_t *children, int32_t n, int32_t best) {
  int32_t child = 0;
  while (child < n && children[child] != best) child++;
  return (struct round_choice){.child = child < n ? child : -1, .token = best};
}

/* p becomes max(p - q, 0) normalised. With no mass left (p == q up to rounding) p itself stands. */
static void residual(const struct round_law *law) {
  double sum = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int32_t i = 0; i < law->n_target; i++) {
      int32_t d = law->draft_of ? law->draft_of[i] : i;
      float rest = law->p[i] - (d >= 0 ? law->q[d] : 0.0f);
      rest = rest > 0 ? rest : 0.0f;
      if (pass == 0)
        sum += rest;
      else
        law->p[i] = (float)(rest / sum);
    }
    if (sum <= 0) return;
  }
}

struct round_choice round_choose_sampled(const struct round_law *law) {
  ASSERT(!law->q || law->n <= 1);
  if (law->q && law->n > 0) {
    int32_t token = law->children[0];
    float q = law->q[law->draft_of ? law->draft_of[token] : token];
    if (law->accept_u * q < law->p[token]) return (struct round_choice){.child = 0, .token = token};
    residual(law);
    return (struct round_choice){.child = -1, .token = sampler_draw(law->p, law->n_target, law->token_u)};
  }
  return round_choose_greedy(law->children, law->n, sampler_draw(law->p, law->n_target, law->token_u));
}
