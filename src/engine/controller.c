/* controller.c - see controller.h. */
#include "engine/controller.h"

#include "base/memory.h"
#include "base/util.h"
#include "engine/cost_curve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BINS 20           /* of a draft's score, by its probability */
#define PRIOR_DRAFTS 4    /* the drafter's own probability counts like so many drafts seen */
#define PRIOR_TRUST 4     /* a sequence's own drafts weigh half when so many of its drafts were expected to stand */
#define TRUST_FADES 0.95f /* a round */
#define FADE_AFTER 4096   /* drafts in a bin, then the older half fades */
#define LEVELS 256        /* of chances, when drafts of all sequences are ranked */
#define ROUNDS_MEAN 8     /* rounds that a sequence's means remember */
#define TRIES 2           /* before it may fall asleep */
#define PATIENCE_MIN 24   /* rounds */
#define PATIENCE_MAX 384
#define TRYING_SHARE 0.0075 /* of the target's time goes into the account */
#define CREDIT_MAX 4      /* passes of the target; so much the account may hold */
#define DEBT_MAX 64
#define REMEMBERED 32     /* rows of a sleeping sequence that the drafter keeps, about */
#define STEPS_REMARK 512  /* before it is said that drafting is mostly off */

/* How often drafts of a score stood, by the probability that the drafter gave them. */
struct calibration {
  float n[BINS], stood[BINS];
};

struct controller {
  bool adaptive;
  struct cost_curve costs[COST_KINDS];
  struct calibration calibrations[2]; /* chosen, drawn */
  double token_seconds, row_seconds; /* of the step to come: a token without drafts; a row more */
  double account;        /* seconds that trying may cost */
  bool charges;          /* the step's passes of the drafter are paid from it */
  float deeper;          /* running mean: how a draft's chance falls from level to level */
  float gain_new, levels_new; /* of sequences that are not tried yet: running means of first rounds */
  float promised, got;   /* fading sums: drafts expected to stand, and that stood */
  float joined;          /* running mean: rows that a drafting sequence's catch-up has */
  int32_t n_off;         /* steps since the last that drafted */
  int64_t n_steps;
  bool remarked;
  double brings, price, share; /* running means, in tokens: what a sequence's drafts are expected to bring, and cost; steps that draft */
};

struct controller *controller_create(bool adaptive) {
  struct controller *c = memory_alloc(sizeof *c);
  *c = (struct controller){.adaptive = adaptive, .deeper = 0.6f, .gain_new = 0.5f, .levels_new = 1, .joined = 1.5f, .share = 1};
  return c;
}

void controller_free(struct controller *c) {
  free(c);
}

/* ---- prices and the account ---- */

static double target_seconds(const struct controller *c, int32_t n_rows) {
  return cost_curve_at(&c->costs[COST_TARGET], n_rows);
}

/* A row more in a pass of n_rows, over the next few: curves have steps. */
static double row_seconds(const struct controller *c, int32_t n_rows) {
  return (target_seconds(c, n_rows + 4) - target_seconds(c, n_rows)) / 4;
}

/* The drafter's passes for n sequences with so many levels behind the first. */
static double draft_seconds(const struct controller *c, int32_t n, double levels) {
  return cost_curve_at(&c->costs[COST_CATCH_UP], (int32_t)ceilf(c->joined * (float)n)) + levels * cost_curve_at(&c->costs[COST_LEVEL], n);
}

static void book(struct controller *c, double seconds) {
  double pass = target_seconds(c, 1);
  c->account = fmin(fmax(c->account + seconds, -DEBT_MAX * pass), CREDIT_MAX * pass);
}

void controller_measured(struct controller *c, enum controller_cost kind, int32_t n_rows, double seconds) {
  if (!c->adaptive || n_rows < 1) return;
  cost_curve_add(&c->costs[kind], n_rows, seconds);
  if (kind == COST_TARGET)
    book(c, TRYING_SHARE * seconds);
  else if (c->charges)
    book(c, -cost_curve_at(&c->costs[kind], n_rows)); /* what such a pass costs, whatever happened to this one */
}

void controller_forget(struct controller *c) {
  memset(c->costs, 0, sizeof c->costs);
}

void controller_start(struct controller *c) {
  c->account = CREDIT_MAX * target_seconds(c, 1);
}

/* ---- chances ---- */

static int32_t bin_of(float score) {
  int32_t bin = (int32_t)(expf(score) * BINS);
  return bin < BINS ? bin : BINS - 1;
}

static float rate_of(const struct calibration *k, int32_t bin) {
  float prior = ((float)bin + 0.5f) / BINS;
  return (k->stood[bin] + PRIOR_DRAFTS * prior) / (k->n[bin] + PRIOR_DRAFTS);
}

/* Chances by bin, made to rise with it: a better score is never the worse draft. */
static void rates_of(const struct calibration *k, float rates[BINS]) {
  float best = 0;
  for (int32_t b = 0; b < BINS; b++) rates[b] = best = fmaxf(best, rate_of(k, b));
}

/* This sequence's drafts, measured by those of all. */
static float trust_in(const struct draft_record *r) {
  return fminf((r->accepted + PRIOR_TRUST) / (r->expected + PRIOR_TRUST), 2);
}

static float chance(const float rates[BINS], const struct draft_record *r, float score) {
  return fminf(rates[bin_of(score)] * trust_in(r), 1);
}

/* The least score whose chance is `needed`. */
static float score_of(const struct controller *c, const struct draft_record *r, double needed) {
  float rates[BINS];
  rates_of(&c->calibrations[r->drawn], rates);
  for (int32_t b = 0; b < BINS; b++) {
    if (fminf(rates[b] * trust_in(r), 1) >= needed) return b == 0 ? -INFINITY : logf((float)b / BINS);
  }
  return INFINITY;
}

/* ---- who drafts ---- */

static float gain_of(const struct controller *c, const struct draft_record *r) {
  return r->n_tries > 0 ? r->gain : c->gain_new;
}

static float levels_of(const struct controller *c, const struct draft_record *r) {
  return r->n_tries > 0 ? r->levels : c->levels_new;
}

/* Whether the sequence is to be tried (again): it is new, its patience is over, or what did not pay among many may pay among few. */
static bool is_candidate(const struct draft_record *r, int32_t n_running) {
  return r->mood == DRAFT_ASLEEP && (r->n_idle >= r->patience || n_running * 2 <= r->n_running);
}

/* A new sequence takes part at once while drafting pays, else it is a candidate. */
static void greet(const struct controller *c, struct draft_record *r, int32_t n_running) {
  if (r->mood != DRAFT_NEW) return;
  r->mood = c->n_off == 0 ? DRAFT_AWAKE : DRAFT_ASLEEP;
  r->patience = r->n_idle = PATIENCE_MIN;
  r->n_running = n_running;
}

/* Candidates are tried together, since they share the drafter's passes, when they are many among those who run and the account has what
 * that costs. */
static void try_candidates(const struct controller *c, const struct draft_plan *plan) {
  int32_t n = 0, n_all = 0, n_rows = 0;
  for (int32_t i = 0; i < plan->n; i++) {
    const struct draft_record *r = plan->records[i];
    n_all += !r->fixed;
    if (r->fixed || !is_candidate(r, plan->n_running)) continue;
    n_rows += r->n_idle < REMEMBERED ? r->n_idle : REMEMBERED;
    n++;
  }
  double price = cost_curve_at(&c->costs[COST_CATCH_UP], n_rows) + c->levels_new * cost_curve_at(&c->costs[COST_LEVEL], n);
  if (n * 2 < n_all || price > c->account) return;
  for (int32_t i = 0; i < plan->n; i++) {
    struct draft_record *r = plan->records[i];
    if (r->fixed || !is_candidate(r, plan->n_running)) continue;
    r->mood = DRAFT_AWAKE;
    r->n_tries = 0;
  }
}

static void fall_asleep(struct draft_record *r, int32_t n_running) {
  if (r->n_tries <= ROUNDS_MEAN) r->patience = r->patience * 2 < PATIENCE_MAX ? r->patience * 2 : PATIENCE_MAX;
  r->mood = DRAFT_ASLEEP;
  r->n_idle = 0;
  r->n_running = n_running;
}

/* How many sequences draft in this step: all that are awake, when that is expected to pay for all together or to try many that are not
 * known; else none. */
static int32_t drafting_now(const struct controller *c, const struct draft_plan *plan) {
  double gain = 0, levels = 0;
  int32_t n = 0, n_unknown = 0, n_all = 0;
  for (int32_t i = 0; i < plan->n; i++) {
    const struct draft_record *r = plan->records[i];
    n_all += !r->fixed;
    if (r->fixed || r->mood != DRAFT_AWAKE || plan->limits[i].levels == 0) continue;
    gain += gain_of(c, r);
    levels = fmax(levels, levels_of(c, r));
    n_unknown += r->n_tries < TRIES;
    n++;
  }
  bool pays = n > 0 && gain * c->token_seconds >= draft_seconds(c, n, levels), tries = n_unknown > 0 && n_unknown * 2 >= n_all && c->account >= 0;
  return pays || tries ? n : 0;
}

static struct draft_wish up_to(const struct draft_limits *limits) {
  return (struct draft_wish){.levels = limits->levels, .width = limits->width, .tokens = limits->tokens, .expand_min = -INFINITY, .keep_min = -INFINITY};
}

/* A token is worth running when what may stand behind it pays its row at the drafter and at the target; whether the pass pays is decided
 * for all together (controller_level_pays). */
static void set_thresholds(const struct controller *c, const struct draft_record *r, int32_t n_drafting, struct draft_wish *wish) {
  double level = cost_curve_at(&c->costs[COST_LEVEL], n_drafting + 1) - cost_curve_at(&c->costs[COST_LEVEL], n_drafting);
  if (!(c->token_seconds > 0)) return; /* nothing measured yet */
  wish->expand_min = score_of(c, r, (level + c->row_seconds) / (c->token_seconds * c->deeper));
  if (r->drawn && r->n_tries >= TRIES) wish->keep_min = score_of(c, r, c->row_seconds / c->token_seconds);
}

double controller_chance(const struct controller *c, const struct draft_record *r, float score) {
  float rates[BINS];
  if (!c->adaptive || r->fixed) return INFINITY; /* whatever it costs */
  rates_of(&c->calibrations[r->drawn], rates);
  return chance(rates, r, score);
}

bool controller_level_pays(const struct controller *c, double chances, int32_t n_rows) {
  if (isinf(chances)) return true;
  return chances * c->deeper * c->token_seconds >= cost_curve_at(&c->costs[COST_LEVEL], n_rows) + n_rows * c->row_seconds;
}

static void remark(struct controller *c) {
  char text[256];
  if (c->share > 0.2) c->remarked = false;
  if (c->remarked || c->n_steps < STEPS_REMARK || c->share > 0.05) return;
  c->remarked = true;
  controller_describe(c, text, sizeof text);
  log_warning("speculation does not pay here and is mostly off: %s", text);
}

static void give_wishes(const struct controller *c, const struct draft_plan *plan, int32_t n_drafting) {
  for (int32_t i = 0; i < plan->n; i++) {
    struct draft_record *r = plan->records[i];
    struct draft_wish *wish = &plan->wishes[i];
    if (r->fixed) continue;
    if (n_drafting > 0 && r->mood == DRAFT_AWAKE)
      set_thresholds(c, r, n_drafting, wish);
    else
      *wish = (struct draft_wish){.width = 1, .sleeps = r->mood == DRAFT_ASLEEP || (r->n_tries >= TRIES && c->n_off >= REMEMBERED)};
    r->n_idle += r->mood == DRAFT_ASLEEP && plan->limits[i].levels > 0;
  }
}

void controller_plan(struct controller *c, const struct draft_plan *plan) {
  bool moves = false;
  c->charges = true;
  for (int32_t i = 0; i < plan->n; i++) {
    plan->wishes[i] = up_to(&plan->limits[i]);
    if (plan->records[i]->fixed)
      c->charges = false;
    else if (c->adaptive)
      greet(c, plan->records[i], plan->n_running);
    moves |= !plan->records[i]->fixed && plan->limits[i].levels > 0;
  }
  if (!c->adaptive) return;
  c->token_seconds = target_seconds(c, plan->n_running) / plan->n_running;
  c->row_seconds = row_seconds(c, plan->n_running);
  try_candidates(c, plan);
  int32_t n_drafting = drafting_now(c, plan);
  give_wishes(c, plan, n_drafting);
  if (!moves) return;
  c->n_off = n_drafting > 0 ? 0 : c->n_off + 1;
  c->share += ((n_drafting > 0 ? 1 : 0) - c->share) / 256;
  c->n_steps++;
  remark(c);
}

/* ---- which drafts are verified ---- */

/* All drafts of a step, counted by chance. */
struct ranking {
  float rates[2][BINS];
  int32_t n[LEVELS];
  int32_t cut, n_at_cut; /* kept: everything above the cut, and so many at it */
};

static int32_t level_of(const struct ranking *k, const struct draft_record *r, float score) {
  return (int32_t)(chance(k->rates[r->drawn], r, score) * (LEVELS - 1));
}

/* Its drafts all stay. */
static bool is_whole(const struct draft_record *r) {
  return r->drawn || r->fixed;
}

/* The better a draft's chance the sooner it is taken; taken are as many as gain most together. */
static void rank(const struct controller *c, struct ranking *k, const struct draft_round *round) {
  int32_t base = round->n_other + round->n, n = 0;
  double gain = 0, best = 0, token = target_seconds(c, base) / base;
  for (int32_t i = 0; i < round->n; i++) base += is_whole(round->records[i]) ? round->proposals[i]->n : 0;
  double before = target_seconds(c, base);
  for (int32_t i = 0; i < round->n; i++) {
    for (int32_t x = 0; x < round->proposals[i]->n && !is_whole(round->records[i]); x++)
      k->n[level_of(k, round->records[i], round->proposals[i]->scores[x])]++;
  }
  k->cut = LEVELS;
  for (int32_t l = LEVELS; l-- > 0;) {
    for (int32_t x = 1; x <= k->n[l]; x++) {
      gain += l / (LEVELS - 1.0) * token;
      double net = gain - (target_seconds(c, base + ++n) - before);
      if (net <= best) continue;
      best = net;
      k->cut = l;
      k->n_at_cut = x;
    }
  }
}

/* Leaves what the ranking keeps; returns the sum of the chances of what is left. A parent is never worse than its child and comes first. */
static float keep(struct ranking *k, const struct draft_record *r, struct proposal *p) {
  int32_t to[PROPOSAL_MAX], n = 0;
  float sum = 0;
  for (int32_t i = 0; i < p->n; i++) {
    int32_t level = level_of(k, r, p->scores[i]), parent = p->parents[i];
    bool tried = i == 0 && r->n_tries < TRIES; /* what is never verified is never known */
    bool kept = tried || is_whole(r) || level > k->cut || (level == k->cut && k->n_at_cut > 0);
    to[i] = -1;
    if (!kept || (parent >= 0 && to[parent] < 0)) continue;
    k->n_at_cut -= !is_whole(r) && level == k->cut && k->n_at_cut > 0;
    sum += (float)level / (LEVELS - 1);
    to[i] = n;
    p->tokens[n] = p->tokens[i];
    p->parents[n] = parent < 0 ? -1 : to[parent];
    p->depths[n] = p->depths[i];
    p->scores[n++] = p->scores[i];
  }
  p->n = n;
  return sum;
}

/* ---- learning ---- */

static void approach(float *mean, float value, int32_t memory) {
  *mean += (value - *mean) / (float)memory;
}

/* How much worse the best child of a draft is. */
static void learn_deeper(struct controller *c, const struct proposal *p) {
  float best[PROPOSAL_MAX];
  for (int32_t i = 0; i < p->n; i++) {
    best[i] = -INFINITY;
    int32_t parent = p->parents[i];
    if (parent >= 0) best[parent] = fmaxf(best[parent], p->scores[i] - p->scores[parent]);
  }
  for (int32_t i = 0; i < p->n; i++) {
    if (best[i] > -INFINITY) approach(&c->deeper, expf(best[i]), 64);
  }
}

/* The round to come is expected to gain so many tokens. Asleep falls who would not pay even if all drafted. */
static void judge(struct controller *c, struct draft_record *r, float gain, int32_t n_running) {
  double token = target_seconds(c, n_running) / n_running;
  if (r->n_tries++ == 0) {
    approach(&c->gain_new, gain, 16);
    approach(&c->levels_new, r->round_levels, 16);
  }
  int32_t memory = r->n_tries < ROUNDS_MEAN ? r->n_tries : ROUNDS_MEAN;
  approach(&r->gain, gain, memory);
  approach(&r->levels, r->round_levels, memory);
  if (r->n_tries > ROUNDS_MEAN) r->patience = PATIENCE_MIN;
  if (r->n_tries >= TRIES && r->gain * token < draft_seconds(c, n_running, r->levels) / n_running) fall_asleep(r, n_running);
}

/* What was expected of drafts is chosen for being much, so it is less when it comes (the winner's curse). */
static double promises_kept(const struct controller *c) {
  return fmin((c->got + 8) / (c->promised + 8), 1);
}

/* The account pays the rows; every sequence is judged by what its drafts are expected to bring. */
static void judge_all(struct controller *c, const struct draft_round *round) {
  int32_t base = round->n_other + round->n, n_rows = 0;
  for (int32_t i = 0; i < round->n; i++) n_rows += round->proposals[i]->n;
  double before = target_seconds(c, base), token = before / base, kept = promises_kept(c),
         row = n_rows > 0 ? (target_seconds(c, base + n_rows) - before) / n_rows : 0;
  for (int32_t i = 0; i < round->n && token > 0; i++) {
    struct draft_record *r = round->records[i];
    double rows = row * round->proposals[i]->n, passes = draft_seconds(c, round->n, r->round_levels) / round->n;
    if (r->fixed) continue;
    book(c, -rows);
    c->brings += (r->round_chances * kept - c->brings) / 64;
    c->price += ((rows + passes) / token - c->price) / 64;
    judge(c, r, (float)(r->round_chances * kept - rows / token), base);
  }
}

void controller_trim(struct controller *c, const struct draft_round *round) {
  struct ranking k = {0};
  if (!c->adaptive || round->n == 0) return;
  for (int32_t d = 0; d < 2; d++) rates_of(&c->calibrations[d], k.rates[d]);
  rank(c, &k, round);
  for (int32_t i = 0; i < round->n; i++) {
    int32_t depth = proposal_depth(round->proposals[i]);
    learn_deeper(c, round->proposals[i]);
    round->records[i]->round_levels = depth > 1 ? (float)(depth - 1) : 0;
    round->records[i]->round_chances = keep(&k, round->records[i], round->proposals[i]);
  }
  judge_all(c, round);
}

void controller_learn(struct controller *c, struct draft_record *r, const struct proposal *p, const int32_t *stood, int32_t n_stood) {
  struct calibration *k = &c->calibrations[r->drawn];
  float rates[BINS];
  if (!c->adaptive || r->fixed || p->n == 0) return;
  approach(&c->joined, (float)(n_stood + 1), 64);
  c->promised = c->promised * 0.998f + r->round_chances;
  c->got = c->got * 0.998f + (float)n_stood;
  book(c, n_stood * c->token_seconds);
  rates_of(k, rates);
  r->expected *= TRUST_FADES;
  r->accepted *= TRUST_FADES;
  for (int32_t i = 0, at = 0; i < p->n; i++) {
    int32_t bin = bin_of(p->scores[i]), parent = p->parents[i];
    bool stands = at < n_stood && stood[at] == i, reached = parent < 0 || (at > 0 && stood[at - 1] == parent);
    at += stands;
    k->n[bin]++;
    k->stood[bin] += stands;
    if (reached) r->expected += rates[bin] / (parent < 0 ? 1 : rates[bin_of(p->scores[parent])]);
    r->accepted += stands;
    if (k->n[bin] < FADE_AFTER) continue;
    k->n[bin] /= 2;
    k->stood[bin] /= 2;
  }
}

void controller_describe(const struct controller *c, char *text, size_t size) {
  if (!c->adaptive)
    snprintf(text, size, "fixed: every round drafts up to its limits");
  else
    snprintf(text, size,
             "adaptive: drafts in %.0f %% of the steps; a sequence's drafts bring %.2f tokens and cost as much as %.2f (a target pass %.3g ms, a row "
             "more %.3g; a draft's first level %.3g, the next %.3g)",
             100 * c->share, c->brings, c->price, 1e3 * target_seconds(c, 1), 1e3 * row_seconds(c, 1), 1e3 * cost_curve_at(&c->costs[COST_CATCH_UP], 2),
             1e3 * cost_curve_at(&c->costs[COST_LEVEL], 1));
}
