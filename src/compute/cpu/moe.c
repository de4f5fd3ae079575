/* moe.c - the router and the experts' FFN. Rows are grouped by expert so that a touched expert is read once per call;
 * each row's result is summed in the order of its own picks, so grouping cannot change a bit. */
#include "compute/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define EXPERTS_MAX 1024

/* ---- router ---- */

static void row_softmax(float *p, int32_t n) {
  float max = p[0], sum = 0;
  for (int32_t e = 1; e < n; e++) max = p[e] > max ? p[e] : max;
  for (int32_t e = 0; e < n; e++) sum += p[e] = expf(p[e] - max);
  for (int32_t e = 0; e < n; e++) p[e] /= sum;
}

/* A group's score: the sum of its two best selection scores (sigmoid kind) or its best (softmax kinds). */
static float group_score(const float *choice, int32_t n, bool two) {
  float first = -INFINITY, second = -INFINITY;
  for (int32_t e = 0; e < n; e++) {
    if (choice[e] > first)
      second = first, first = choice[e];
    else if (choice[e] > second)
      second = choice[e];
  }
  return two && n > 1 ? first + second : first;
}

static int32_t best_of(const float *score, int32_t n) {
  int32_t best = 0;
  for (int32_t e = 1; e < n; e++) best = score[e] > score[best] ? e : best;
  return best;
}

static void mask_groups(float *choice, const struct router_params *p) {
  int32_t size = p->n_experts / p->n_groups;
  float score[EXPERTS_MAX];
  bool kept[EXPERTS_MAX] = {false};
  for (int32_t g = 0; g < p->n_groups; g++)
    score[g] = group_score(choice + g * size, size, p->kind == ROUTER_SIGMOID_BIAS);
  for (int32_t i = 0; i < p->n_groups_picked; i++) {
    int32_t g = best_of(score, p->n_groups);
    kept[g] = true;
    score[g] = -INFINITY;
  }
  for (int32_t e = 0; e < p->n_experts; e++) {
    if (!kept[e / size]) choice[e] = -INFINITY;
  }
}

static void route_row(const struct router_params *p, int32_t row) {
  float share[EXPERTS_MAX], choice[EXPERTS_MAX];
  const float *logits = p->logits + (int64_t)row * p->n_experts;
  int32_t *expert = p->expert + (int64_t)row * p->n_picked;
  float *out = p->share + (int64_t)row * p->n_picked;
  memcpy(share, logits, sizeof(float) * (size_t)p->n_experts);
  if (p->kind == ROUTER_SOFTMAX_ALL) row_softmax(share, p->n_experts);
  if (p->kind == ROUTER_SIGMOID_BIAS) {
    for (int32_t e = 0; e < p->n_experts; e++) share[e] = 1.0f / (1.0f + expf(-share[e]));
  }
  for (int32_t e = 0; e < p->n_experts; e++) choice[e] = share[e] + (p->bias ? p->bias[e] : 0.0f);
  if (p->n_groups > 1) mask_groups(choice, p);
  for (int32_t k = 0; k < p->n_picked; k++) {
    expert[k] = best_of(choice, p->n_experts);
    out[k] = share[expert[k]];
    choice[expert[k]] = -INFINITY;
  }
  if (p->kind == ROUTER_TOPK_SOFTMAX) row_softmax(out, p->n_picked);
  for (int32_t k = 0; k < p->n_picked && p->kind == ROUTER_SIGMOID_TOPK; k++) out[k] = 1.0f / (1.0f + expf(-out[k]));
  float sum = 0;
  for (int32_t k = 0; k < p->n_picked; k++) sum += out[k];
  for (int32_t k = 0; k < p->n_picked; k++) out[k] = (p->normalise ? out[k] / (sum + 1e-20f) : out[k]) * p->scale;
}

static void route_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  for (int64_t i = begin; i < end; i++) route_row(args, (int32_t)i);
}

void cpu_router(struct compute *compute, const struct router_params *p, int32_t n) {
  ASSERT(p->n_experts <= EXPERTS_MAX && p->n_picked <= p->n_experts &&
         p->n_experts % (p->n_groups > 0 ? p->n_groups : 1) == 0);
  cpu_for(cpu_of(compute), (double)p->n_experts * (p->n_picked + 20), n, route_rows, p);
}

/* ---- experts ---- */

int64_t compute_moe_scratch_floats(int32_t n, int32_t n_picked, int32_t hidden, int32_t intermediate) {
  int64_t slots = (int64_t)n * n_picked;
  return slots * (3 * (int64_t)intermediate + hidden) + slots * 11 + 64; /* five lists of pointers, one of numbers */
}

/* The scratch carved: slot s = i * K + k holds what expert k of row i makes. Row lists are in grouped order, expert by
 * expert. */
struct moe_plan {
  float *both, *act, *down;  /* [slots, 2I] gate and up as the layout has them, [slots, I], [slots, H] */
  const float **x, **hidden; /* [slots] in grouped order */
  float **gate_rows, **up_rows, **down_rows;
  int32_t *slot;                  /* [slots] in grouped order */
  int32_t first[EXPERTS_MAX + 1]; /* first[e]: where expert e's slots begin in grouped order */
  int32_t n_used, used[EXPERTS_MAX];
};

static void plan_carve(struct moe_plan *plan, const struct moe_params *p, int32_t n) {
  int64_t slots = (int64_t)n * p->n_picked, intermediate = p->down[0].n_in;
  uint8_t *at = (uint8_t *)p->scratch;
  plan->x = (const float **)(void *)at;
  plan->hidden = plan->x + slots;
  plan->gate_rows = (float **)(void *)(plan->hidden + slots);
  plan->up_rows = plan->gate_rows + slots;
  plan->down_rows = plan->up_rows + slots;
  plan->slot = (int32_t *)(void *)(plan->down_rows + slots);
  plan->both = (float *)(void *)(plan->slot + slots);
  plan->act = plan->both + slots * 2 * intermediate;
  plan->down = plan->act + slots * intermediate;
}

static void plan_group(struct moe_plan *plan, const struct moe_params *p, int32_t n) {
  int32_t slots = n * p->n_picked, hidden = p->down[0].n_out, intermediate = p->down[0].n_in, next[EXPERTS_MAX];
  memset(plan->first, 0, sizeof(int32_t) * (size_t)(p->n_experts + 1));
  for (int32_t s = 0; s < slots; s++) plan->first[p->expert[s] + 1]++;
  plan->n_used = 0;
  for (int32_t e = 0; e < p->n_experts; e++) {
    if (plan->first[e + 1] > 0) plan->used[plan->n_used++] = e;
    plan->first[e + 1] += plan->first[e];
    next[e] = plan->first[e];
  }
  for (int32_t s = 0; s < slots; s++) {
    int32_t at = next[p->expert[s]]++;
    plan->slot[at] = s;
    plan->x[at] = p->x + (int64_t)(s / p->n_picked) * hidden;
    plan->gate_rows[at] = plan->both + (int64_t)s * 2 * intermediate;
    plan->up_rows[at] = plan->gate_rows[at] + intermediate;
    plan->hidden[at] = plan->act + (int64_t)s * intermediate;
    plan->down_rows[at] = plan->down + (int64_t)s * hidden;
  }
}

#define UP_BLOCK 32   /* inner floats of one expert that one part makes at least */
#define DOWN_BLOCK 16 /* floats of a row, of all experts */

struct moe_args {
  struct cpu_compute *c;
  const struct moe_params *p;
  const struct moe_plan *plan;
  int32_t n, blocks; /* blocks: of one expert */
};

/* Inner floats [begin, end) of a used expert: gate and up of all its slots. */
static void expert_up(const struct moe_args *a, int32_t used, const int32_t range[2], int thread) {
  const struct moe_params *p = a->p;
  const struct moe_plan *plan = a->plan;
  int32_t e = plan->used[used], at = plan->first[e], intermediate = p->down[0].n_in;
  const struct weight *next = used + 1 < plan->n_used ? &p->gate[plan->used[used + 1]] : NULL;
  bool separate = p->layout == GATE_UP_SEPARATE, pairs = p->layout == GATE_UP_PAIRS;
  struct rows_dot_params part = {.w = &p->gate[e],
                                 .begin = pairs ? 2 * range[0] : range[0],
                                 .end = pairs ? 2 * range[1] : range[1],
                                 .x = plan->x + at,
                                 .out = plan->gate_rows + at,
                                 .n = plan->first[e + 1] - at,
                                 .tile = cpu_tile(a->c, thread),
                                 .after = separate ? &p->up[e]
                                          : pairs  ? next
                                                   : &p->gate[e],
                                 .after_begin = separate ? range[0]
                                                : pairs  ? 0
                                                         : intermediate + range[0]};
  a->c->kernels->rows_dot(&part);
  if (pairs) return;
  part.after = next;
  part.after_begin = 0;
  if (separate) {
    part.w = &p->up[e];
    part.out = plan->up_rows + at;
  } else {
    part.begin += intermediate;
    part.end += intermediate;
  }
  a->c->kernels->rows_dot(&part);
}

/* The slot's outputs [begin, end) as they are before the activation. */
static void scale_and_bias(const struct moe_params *p, float *both, int32_t slot, const int32_t range[2]) {
  if (p->share_input) {
    for (int32_t j = range[0]; j < range[1]; j++) both[j] *= p->share[slot];
  }
  if (p->gate_bias) {
    const float *bias = p->gate_bias + (int64_t)p->expert[slot] * p->gate[0].n_out;
    for (int32_t j = range[0]; j < range[1] && j < p->gate[0].n_out; j++) both[j] += bias[j];
  }
}

/* act(gate) * up of one slot's inner floats [begin, end). */
static void activate_slot(const struct moe_args *a, int32_t slot, const int32_t range[2]) {
  const struct moe_params *p = a->p;
  int32_t intermediate = p->down[0].n_in, begin = range[0], n = range[1] - range[0];
  float *both = a->plan->both + (int64_t)slot * 2 * intermediate, *act = a->plan->act + (int64_t)slot * intermediate;
  float *gate = both + begin, *up = both + intermediate + begin;
  if (p->layout == GATE_UP_PAIRS) {
    gate = both + 2 * begin;
    up = act + begin;
    scale_and_bias(p, both, slot, (const int32_t[]){2 * begin, 2 * range[1]});
    for (int32_t j = 0; j < n; j++) {
      up[j] = gate[2 * j + 1];
      gate[j] = gate[2 * j];
    }
  } else {
    scale_and_bias(p, both, slot, range);
    scale_and_bias(p, both, slot, (const int32_t[]){intermediate + begin, intermediate + range[1]});
  }
  a->c->kernels->activate(act + begin, gate, up, n, p->activation);
}

/* Blocks of UP_BLOCK inner floats, expert by expert. */
static void experts_up(const void *args, int64_t begin, int64_t end, int thread) {
  const struct moe_args *a = args;
  int32_t intermediate = a->p->down[0].n_in;
  while (begin < end) {
    int32_t used = (int32_t)(begin / a->blocks), first = (int32_t)(begin % a->blocks) * UP_BLOCK,
            e = a->plan->used[used];
    int64_t next = (int64_t)(used + 1) * a->blocks < end ? (int64_t)(used + 1) * a->blocks : end;
    int64_t last = (next - (int64_t)used * a->blocks) * UP_BLOCK;
    const int32_t range[2] = {first, last < intermediate ? (int32_t)last : intermediate};
    expert_up(a, used, range, thread);
    for (int32_t at = a->plan->first[e]; at < a->plan->first[e + 1]; at++) activate_slot(a, a->plan->slot[at], range);
    begin = next;
  }
}

/* Floats [begin, end) of what expert by expert adds to a row, in the order of the row's picks. */
static void combine_row(const struct moe_args *a, int32_t row, const int32_t range[2]) {
  const struct moe_params *p = a->p;
  int32_t hidden = p->down[0].n_out;
  float *out = p->out + (int64_t)row * hidden;
  for (int32_t h = range[0]; h < range[1] && !p->accumulate; h++) out[h] = 0;
  for (int32_t k = 0; k < p->n_picked; k++) {
    const float *y = a->plan->down + ((int64_t)row * p->n_picked + k) * hidden;
    float share = p->share_input ? 1.0f : p->share[(int64_t)row * p->n_picked + k];
    const float *bias = p->down_bias ? p->down_bias + (int64_t)p->expert[row * p->n_picked + k] * hidden : NULL;
    for (int32_t h = range[0]; h < range[1]; h++) out[h] += share * (bias ? y[h] + bias[h] : y[h]);
  }
}

/* Blocks of DOWN_BLOCK floats of every row, through all experts to the result. */
static void experts_down(const void *args, int64_t begin, int64_t end, int thread) {
  const struct moe_args *a = args;
  const struct moe_plan *plan = a->plan;
  const struct weight *down = a->p->down;
  int64_t last = end * DOWN_BLOCK;
  const int32_t range[2] = {(int32_t)begin * DOWN_BLOCK, last < down[0].n_out ? (int32_t)last : down[0].n_out};
  for (int32_t u = 0; u < plan->n_used && begin < end; u++) {
    int32_t e = plan->used[u], at = plan->first[e];
    const struct rows_dot_params part = {.w = &down[e],
                                         .begin = range[0],
                                         .end = range[1],
                                         .x = plan->hidden + at,
                                         .out = plan->down_rows + at,
                                         .n = plan->first[e + 1] - at,
                                         .tile = cpu_tile(a->c, thread),
                                         .after = u + 1 < plan->n_used ? &down[plan->used[u + 1]] : NULL,
                                         .after_begin = range[0]};
    a->c->kernels->rows_dot(&part);
  }
  for (int32_t i = 0; i < a->n; i++) combine_row(a, i, range);
}

void cpu_moe(struct compute *compute, const struct moe_params *p, int32_t n) {
  struct cpu_compute *c = cpu_of(compute);
  struct moe_plan plan;
  ASSERT(p->n_experts <= EXPERTS_MAX && p->gate[0].n_in <= KERNEL_IN_MAX && p->down[0].n_in <= KERNEL_IN_MAX);
  if (n == 0) return;
  plan_carve(&plan, p, n);
  plan_group(&plan, p, n);
  const struct moe_args args = {
      .c = c, .p = p, .plan = &plan, .n = n, .blocks = (p->down[0].n_in + UP_BLOCK - 1) / UP_BLOCK};
  double work = (double)n * p->n_picked * p->gate[0].n_in * p->down[0].n_in;
  const struct team_job up = {
      .body = experts_up, .args = &args, .n = (int64_t)plan.n_used * args.blocks, .n_parts = cpu_parts(c, 2 * work)};
  const struct team_job down = {.body = experts_down,
                                .args = &args,
                                .n = (p->down[0].n_out + DOWN_BLOCK - 1) / DOWN_BLOCK,
                                .n_parts = cpu_parts(c, work)};
  team_run(c->team, &up);
  team_run(c->team, &down);
}
